//! Which public types are `Send` and `Sync`. Compiling is the test; programs that must not compile
//! are in `src/compile_fail.rs`.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use std::rc::Rc;

use corewise_cphash::{
    AndersonLock, CacheRequest, Client, Colocated, Config, ConfigError, CpHash, Entry, InsertError,
    Key, LockHash, PartitionServer, PipelineFull, RemoteRef, Reply, Stats, ValueRef, ring,
};
use static_assertions::{assert_impl_all, assert_not_impl_any};

assert_impl_all!(Config: Send, Sync);
assert_impl_all!(ConfigError: Send, Sync);
assert_impl_all!(InsertError: Send, Sync);
assert_impl_all!(PipelineFull: Send, Sync);
assert_impl_all!(Stats: Send, Sync);
assert_impl_all!(Key<'_>: Send, Sync);
assert_impl_all!(CacheRequest<'_>: Send, Sync);

// Results of closures are sent to the client, and not shared.
assert_impl_all!(Reply<'_>: Send);
assert_not_impl_any!(Reply<'_>: Sync);

// A hasher is shared by all threads that use a table.
assert_impl_all!(LockHash: Send, Sync);
assert_impl_all!(CpHash: Send, Sync);
assert_not_impl_any!(LockHash<Rc<u8>>: Send, Sync);
assert_not_impl_any!(CpHash<Rc<u8>>: Send, Sync);
assert_not_impl_any!(Client<Rc<u8>>: Send, Sync);
assert_not_impl_any!(Colocated<Rc<u8>>: Send, Sync);

// Any thread may read a value and give up the reference.
assert_impl_all!(ValueRef<'_>: Send, Sync);
assert_impl_all!(ValueRef<'_, AndersonLock>: Send, Sync);
assert_impl_all!(RemoteRef<'_>: Send, Sync);

// They may move to another thread, which then is the only one that uses them.
assert_impl_all!(Client: Send);
assert_impl_all!(PartitionServer: Send);
assert_impl_all!(Colocated: Send);
assert_impl_all!(ring::Producer: Send);
assert_impl_all!(ring::Consumer: Send);

// An entry belongs to the thread that serves its partition.
assert_impl_all!(Entry<'_>: Sized);
