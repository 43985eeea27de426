//! Which public types are `Send` and `Sync`: all of them, and none has a lifetime. Compiling is the
//! test.

use corewise_topology::{
    Cache, CacheKind, Cpu, CpuId, CpuListError, MemoryPolicy, MemoryPolicyError, NumaNode,
    PinPolicy, PinPolicyError, Topology,
};
use static_assertions::assert_impl_all;

assert_impl_all!(Cache: Send, Sync);
assert_impl_all!(CacheKind: Send, Sync);
assert_impl_all!(Cpu: Send, Sync);
assert_impl_all!(CpuId: Send, Sync);
assert_impl_all!(CpuListError: Send, Sync);
assert_impl_all!(MemoryPolicy: Send, Sync);
assert_impl_all!(MemoryPolicyError: Send, Sync);
assert_impl_all!(NumaNode: Send, Sync);
assert_impl_all!(PinPolicy: Send, Sync);
assert_impl_all!(PinPolicyError: Send, Sync);
assert_impl_all!(Topology: Send, Sync);

#[test]
fn auto_traits_are_as_stated() {
    // The compiler checks the assertions above.
}
