//! Which public types are `Send` and `Sync`. Compiling is the test.

use crate::common;

use common::Dictionary;
use corewise_nr::baseline::{
    Batch, FlatCombining, FlatCombiningPlus, ReadersWriterLocked, SpinLocked,
};
use corewise_nr::{
    BuildError, Builder, Checkpoint, Divergence, Handle, NoReplica, NodeReplicated, Operation,
    RemoveError, ReplicaId, ReplicaStats, ReplicationStats, Sequential, SortedSet, TooMany,
};
use static_assertions::{assert_impl_all, assert_not_impl_any};

assert_impl_all!(BuildError: Send, Sync);
assert_impl_all!(Builder: Send, Sync);
assert_impl_all!(Checkpoint: Send, Sync);
assert_impl_all!(Divergence: Send, Sync);
assert_impl_all!(NoReplica: Send, Sync);
assert_impl_all!(RemoveError: Send, Sync);
assert_impl_all!(ReplicaId: Send, Sync);
assert_impl_all!(ReplicaStats: Send, Sync);
assert_impl_all!(SortedSet: Send, Sync);
assert_impl_all!(ReplicationStats: Send, Sync);
assert_impl_all!(TooMany: Send, Sync);

assert_impl_all!(Batch<Dictionary>: Send);
assert_impl_all!(FlatCombining<Dictionary>: Send, Sync);
assert_impl_all!(FlatCombiningPlus<Dictionary>: Send, Sync);
assert_impl_all!(NodeReplicated<Dictionary>: Send, Sync);
assert_impl_all!(Operation<Dictionary>: Send);
assert_impl_all!(ReadersWriterLocked<Dictionary>: Send, Sync);
assert_impl_all!(SpinLocked<Dictionary>: Send, Sync);

// A handle may move to another thread, but two threads may not use it at the same time.
assert_impl_all!(Handle<'static, Dictionary>: Send);
assert_not_impl_any!(Handle<'static, Dictionary>: Sync, Clone);

/// A structure whose reads and responses may not be shared between threads.
#[derive(Clone)]
struct Cells;

impl Sequential for Cells {
    type Read = std::cell::Cell<u8>;
    type Write = ();
    type Response = std::cell::Cell<u8>;
    fn read(&self, cell: &Self::Read) -> Self::Response {
        cell.clone()
    }
    fn write(&mut self, (): &()) -> Self::Response {
        0.into()
    }
}

// Reads and responses are not shared, so they need not be `Sync`.
assert_impl_all!(NodeReplicated<Cells>: Send, Sync);
assert_impl_all!(FlatCombining<Cells>: Send, Sync);
assert_impl_all!(FlatCombiningPlus<Cells>: Send, Sync);
assert_impl_all!(ReadersWriterLocked<Cells>: Send, Sync);
assert_impl_all!(SpinLocked<Cells>: Send, Sync);
assert_impl_all!(Handle<'static, Cells>: Send);
assert_not_impl_any!(Operation<Cells>: Sync);

#[test]
fn auto_traits_are_as_stated() {
    // The compiler checks the assertions above.
}
