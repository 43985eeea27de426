//! Tables of C and C++ libraries, behind the C interface of `peers/peer.h`.
//!
//! ```text
//! harness ─ Handle<U64> ─ Peer<P> ─ P::get ─── C call ─── peer_tbb_get ─ the library
//!           └── one loop per peer, no pointer to a function ──┘           └ its own allocations
//!                                          corewise_bench_alloc ◄───────────┘
//! ```
//!
//! The build script builds a peer for each library that is installed on this machine; [`missing`]
//! lists the others with reasons. All peers store integers only, hash with the common function
//! ([`crate::hash::hash_u64`], reimplemented in C) and allocate through the program's allocator
//! wherever the library accepts one. The row `peer-null` measures the cost of the C call itself.

use std::alloc::Layout;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::dyn_table::Entry;
use crate::hash::COMMON;
use crate::table::{Handle, Resize, Setup, Table, TableInfo, U64};

/// `struct peer_table`, opaque to Rust.
#[repr(C)]
pub(crate) struct RawTable(c_void);

/// `struct peer_handle`, opaque to Rust.
#[repr(C)]
pub(crate) struct RawHandle(c_void);

/// The functions of `PEER_DECLARE` in `peers/peer.h` for one peer.
///
/// # Safety
///
/// An implementor guarantees that its functions do what `peers/peer.h` says, for tables that many
/// threads use at a time, each through its own handles.
///
/// Callers of every function guarantee:
///
/// 1. `create` returned the table, and `destroy` has not taken it yet;
/// 2. `open` returned the handle on this thread, `close` has not taken it yet, and its table meets
///    1;
/// 3. `destroy` is called while no handle of the table is open.
pub(crate) unsafe trait PeerApi: 'static {
    fn card() -> TableInfo;
    unsafe fn create(capacity: usize, threads: usize) -> *mut RawTable;
    unsafe fn destroy(table: NonNull<RawTable>);
    unsafe fn open(table: NonNull<RawTable>) -> *mut RawHandle;
    unsafe fn close(handle: NonNull<RawHandle>);
    unsafe fn get(handle: NonNull<RawHandle>, key: u64, value: &mut u64) -> bool;
    unsafe fn insert(handle: NonNull<RawHandle>, key: u64, value: u64) -> bool;
    unsafe fn remove(handle: NonNull<RawHandle>, key: u64, value: &mut u64) -> bool;
    unsafe fn size(table: NonNull<RawTable>) -> usize;
    unsafe fn settle(table: NonNull<RawTable>);
}

/// The functions of `PEER_DECLARE_RESIZE` for a peer that resizes on request.
///
/// # Safety
///
/// As [`PeerApi`]. Callers also guarantee:
///
/// 4. one thread at a time calls `resize_to` and `buckets`, and it has no handle open.
pub(crate) unsafe trait ResizeApi: PeerApi {
    unsafe fn create_resizable(capacity: usize, threads: usize) -> *mut RawTable;
    unsafe fn resize_to(table: NonNull<RawTable>, buckets: usize);
    unsafe fn buckets(table: NonNull<RawTable>) -> usize;
}

/// A table of a C or C++ library.
pub(crate) struct Peer<P: PeerApi> {
    raw: NonNull<RawTable>,
    peer: PhantomData<P>,
}

// SAFETY: `peers/peer.h` allows any thread to open handles, read the size, resize and destroy.
unsafe impl<P: PeerApi> Send for Peer<P> {}
// SAFETY: as above; the entries themselves are integers.
unsafe impl<P: PeerApi> Sync for Peer<P> {}

impl<P: PeerApi> Peer<P> {
    /// Wraps the result of `create` or `create_resizable`.
    fn of(raw: *mut RawTable) -> Self {
        Self {
            raw: NonNull::new(raw).expect("a peer's table is not null"),
            peer: PhantomData,
        }
    }
}

impl<P: PeerApi> Table<U64> for Peer<P> {
    type Handle<'t> = PeerHandle<'t, P>;

    fn build(setup: &Setup) -> Self {
        // SAFETY: `create` has no preconditions.
        Self::of(unsafe { P::create(setup.capacity, setup.threads) })
    }

    fn handle(&self) -> PeerHandle<'_, P> {
        // SAFETY: 1: the table lives until `self` is dropped.
        let raw = unsafe { P::open(self.raw) };
        PeerHandle {
            raw: NonNull::new(raw).expect("a peer's handle is not null"),
            table: PhantomData,
        }
    }

    fn size(&self) -> Option<usize> {
        // SAFETY: 1: the table lives until `self` is dropped.
        Some(unsafe { P::size(self.raw) })
    }

    fn settle(&self) {
        // SAFETY: 1: the table lives until `self` is dropped.
        unsafe { P::settle(self.raw) };
    }
}

impl<P: PeerApi> Drop for Peer<P> {
    fn drop(&mut self) {
        // SAFETY: 1: `create` made the table and this is the only `destroy`; 3: handles borrow
        // `self`.
        unsafe { P::destroy(self.raw) };
    }
}

/// A [`Peer`] that is resized only on request.
pub(crate) struct ResizedPeer<P: ResizeApi>(Peer<P>);

impl<P: ResizeApi> Table<U64> for ResizedPeer<P> {
    type Handle<'t> = PeerHandle<'t, P>;

    fn build(setup: &Setup) -> Self {
        // SAFETY: `create_resizable` has no preconditions.
        Self(Peer::of(unsafe {
            P::create_resizable(setup.capacity, setup.threads)
        }))
    }
    fn handle(&self) -> PeerHandle<'_, P> {
        self.0.handle()
    }
    fn size(&self) -> Option<usize> {
        self.0.size()
    }
    fn settle(&self) {
        self.0.settle();
    }
}

impl<P: ResizeApi> Resize<U64> for ResizedPeer<P> {
    fn resize_to(&self, buckets: usize) {
        // SAFETY: 1: the table lives until `self` is dropped; 4: by the contract of `Resize`.
        unsafe { P::resize_to(self.0.raw, buckets) };
    }
    fn buckets(&self) -> usize {
        // SAFETY: 1: the table lives until `self` is dropped; 4: by the contract of `Resize`.
        unsafe { P::buckets(self.0.raw) }
    }
}

/// A thread's handle to a [`Peer`]; not Send, since the library may have registered the thread.
pub(crate) struct PeerHandle<'t, P: PeerApi> {
    raw: NonNull<RawHandle>,
    table: PhantomData<&'t Peer<P>>,
}

impl<P: PeerApi> Handle<U64> for PeerHandle<'_, P> {
    #[inline]
    fn get(&mut self, key: &u64) -> Option<u64> {
        let mut value = 0;
        // SAFETY: 2: `open` made the handle on this thread, and it borrows the table.
        unsafe { P::get(self.raw, *key, &mut value) }.then_some(value)
    }

    #[inline]
    fn insert(&mut self, key: &u64, value: u64) -> bool {
        // SAFETY: 2: `open` made the handle on this thread, and it borrows the table.
        unsafe { P::insert(self.raw, *key, value) }
    }

    #[inline]
    fn remove(&mut self, key: &u64) -> Option<u64> {
        let mut value = 0;
        // SAFETY: 2: `open` made the handle on this thread, and it borrows the table.
        unsafe { P::remove(self.raw, *key, &mut value) }.then_some(value)
    }
}

impl<P: PeerApi> Drop for PeerHandle<'_, P> {
    fn drop(&mut self) {
        // SAFETY: 2: `open` made the handle on this thread, and this is the only `close`.
        unsafe { P::close(self.raw) };
    }
}

/// Allocates memory for a peer; returns null on failure.
///
/// # Safety
///
/// `align` is a power of two.
#[unsafe(no_mangle)]
unsafe extern "C" fn corewise_bench_alloc(size: usize, align: usize) -> *mut c_void {
    let Ok(layout) = Layout::from_size_align(size.max(1), align) else {
        return std::ptr::null_mut();
    };
    // SAFETY: the size is not 0.
    let memory = unsafe { std::alloc::alloc(layout) };
    #[cfg(test)]
    tests::allocated(layout.size());
    memory.cast()
}

/// Frees the memory of a peer.
///
/// # Safety
///
/// `memory` is null, or [`corewise_bench_alloc`] returned it for this size and alignment and
/// nothing uses it.
#[unsafe(no_mangle)]
unsafe extern "C" fn corewise_bench_free(memory: *mut c_void, size: usize, align: usize) {
    if memory.is_null() {
        return;
    }
    // SAFETY: `corewise_bench_alloc` made the same layout, so it is valid.
    let layout = unsafe { Layout::from_size_align_unchecked(size.max(1), align) };
    // SAFETY: `std::alloc::alloc` returned the memory for this layout.
    unsafe { std::alloc::dealloc(memory.cast(), layout) };
    #[cfg(test)]
    tests::freed(layout.size());
}

/// Defines a peer whose C functions share a prefix.
macro_rules! peer {
    ($cfg:literal, $Api:ident, $prefix:literal, $card:expr) => {
        #[cfg(corewise_peer = $cfg)]
        pub(crate) enum $Api {}

        // SAFETY: the functions are those of `PEER_DECLARE` for this prefix, with the types that
        // `peers/peer.h` gives them: `struct peer_table *` and `struct peer_handle *` are never
        // null here, and `uint64_t *` points to memory that is written before it is read.
        #[cfg(corewise_peer = $cfg)]
        unsafe impl PeerApi for $Api {
            fn card() -> TableInfo {
                $card
            }
            peer! { $prefix, "_create", create(capacity: usize, threads: usize) -> *mut RawTable }
            peer! { $prefix, "_destroy", destroy(table: NonNull<RawTable>) -> () }
            peer! { $prefix, "_open", open(table: NonNull<RawTable>) -> *mut RawHandle }
            peer! { $prefix, "_close", close(handle: NonNull<RawHandle>) -> () }
            peer! { $prefix, "_get", get(handle: NonNull<RawHandle>, key: u64, value: &mut u64) -> bool }
            peer! { $prefix, "_insert", insert(handle: NonNull<RawHandle>, key: u64, value: u64) -> bool }
            peer! { $prefix, "_remove", remove(handle: NonNull<RawHandle>, key: u64, value: &mut u64) -> bool }
            peer! { $prefix, "_size", size(table: NonNull<RawTable>) -> usize }
            peer! { $prefix, "_settle", settle(table: NonNull<RawTable>) -> () }
        }
    };
    (resize $cfg:literal, $Api:ident, $prefix:literal) => {
        // SAFETY: as for `PeerApi`, with the functions of `PEER_DECLARE_RESIZE`.
        #[cfg(corewise_peer = $cfg)]
        unsafe impl ResizeApi for $Api {
            peer! { $prefix, "_create_resizable", create_resizable(capacity: usize, threads: usize) -> *mut RawTable }
            peer! { $prefix, "_resize_to", resize_to(table: NonNull<RawTable>, buckets: usize) -> () }
            peer! { $prefix, "_buckets", buckets(table: NonNull<RawTable>) -> usize }
        }
    };
    ($prefix:literal, $suffix:literal, $name:ident($($arg:ident: $Arg:ty),*) -> $Result:ty) => {
        #[inline(always)]
        unsafe fn $name($($arg: $Arg),*) -> $Result {
            unsafe extern "C" {
                #[link_name = concat!($prefix, $suffix)]
                fn call($($arg: $Arg),*) -> $Result;
            }
            // SAFETY: the caller meets the numbered conditions of `PeerApi`.
            unsafe { call($($arg),*) }
        }
    };
}

/// The common fields of all cards.
struct Text {
    name: &'static str,
    about: &'static str,
    version: &'static str,
    language: &'static str,
    hasher: &'static str,
    reclamation: &'static str,
    guarantees: &'static str,
    settings: &'static str,
    /// What the adapter adds besides the C call.
    adapter: &'static str,
    memory: &'static str,
}

impl Text {
    fn card(&self) -> TableInfo {
        let own = str::to_owned;
        TableInfo {
            name: own(self.name),
            about: own(self.about),
            version: own(self.version),
            language: own(self.language),
            hasher: own(self.hasher),
            reclamation: own(self.reclamation),
            guarantees: own(self.guarantees),
            settings: format!("{}; gcc -O3 -DNDEBUG", self.settings),
            adapter: format!(
                "one C call an operation (see row peer-null); {}",
                self.adapter
            ),
            memory: own(self.memory),
            batch: crate::table::no_batch(),
        }
    }
}

#[cfg(any(corewise_peer = "tbb", corewise_peer = "cuckoo"))]
const PROGRAM_ALLOCATOR: &str = "all of it from the program's allocator, through one C call";

peer! {
    "null", Null, "peer_null",
    Text {
        name: "peer-null",
        about: "no table: the C call that every other peer makes too",
        version: env!("CARGO_PKG_VERSION"),
        language: "C",
        hasher: "none",
        reclamation: "none",
        guarantees: "none; odd keys are present, even ones absent",
        settings: "none",
        adapter: "nothing else",
        memory: "none",
    }
    .card()
}

peer! {
    "tbb", Tbb, "peer_tbb",
    Text {
        name: "tbb",
        about: "oneTBB concurrent_hash_map: chains with a lock per bucket and per entry",
        version: env!("COREWISE_PEER_TBB_VERSION"),
        language: "C++",
        hasher: COMMON,
        reclamation: "at once: an entry is freed by its remover, who holds its write lock",
        guarantees: "linearizable; lookups take a bucket's and the entry's read lock and may block",
        settings: "built with the announced number of buckets; grows, never shrinks: rehash() can \
                   only grow it, while no other operation runs, so it takes no part in the section \
                   resize",
        adapter: "an accessor per lookup and removal, as the library asks for",
        memory: PROGRAM_ALLOCATOR,
    }
    .card()
}

#[cfg(any(
    corewise_peer = "urcu_memb",
    corewise_peer = "urcu_sync",
    corewise_peer = "urcu_qsbr"
))]
const URCU: Text = Text {
    name: "",
    about: "",
    version: "",
    language: "C",
    hasher: COMMON,
    reclamation: "",
    guarantees: "linearizable; lookups wait-free but for chain length, updates lock-free; one \
                 background thread resizes, and 0.13.2 was seen to lose requests to grow (that \
                 thread idle, chains without bound) when threads fill a table from empty",
    settings: "",
    adapter: "a read-side critical section (inlined, _LGPL_SOURCE); an insert allocates its node \
              first, and frees it if the key is present",
    memory: "nodes (48 bytes) and handles from the program's allocator; bucket arrays, counters \
             and the call_rcu thread from libc's malloc, which the program's counters do not see",
};

peer! {
    "urcu_memb", UrcuMemb, "peer_urcu_memb",
    Text {
        name: "urcu-memb",
        about: "liburcu cds_lfht over RCU with membarrier(2): a resizable split-ordered list",
        version: env!("COREWISE_PEER_URCU_MEMB_VERSION"),
        reclamation: "call_rcu with the default single worker thread; settle waits for rcu_barrier",
        settings: "AUTO_RESIZE and ACCOUNTING; starts with the announced number of buckets \
                   (rounded up to a power of two; 1 if it is to grow), may shrink to 1; in the \
                   section resize neither flag, and cds_lfht_resize, which gives 4,096 buckets and \
                   more to threads of its own; the library does not tell its buckets, so they are \
                   those asked for",
        ..URCU
    }
    .card()
}

peer! {
    "urcu_sync", UrcuSync, "peer_urcu_sync",
    Text {
        name: "urcu-sync",
        about: "liburcu cds_lfht over RCU with membarrier(2), whose removals wait for readers",
        version: env!("COREWISE_PEER_URCU_SYNC_VERSION"),
        reclamation: "synchronize_rcu in each removal, then at once",
        settings: "AUTO_RESIZE and ACCOUNTING; starts with the announced number of buckets \
                   (rounded up to a power of two; 1 if it is to grow), may shrink to 1",
        ..URCU
    }
    .card()
}

peer! {
    "urcu_qsbr", UrcuQsbr, "peer_urcu_qsbr",
    Text {
        name: "urcu-qsbr",
        about: "liburcu cds_lfht over quiescent-state-based RCU: a resizable split-ordered list",
        version: env!("COREWISE_PEER_URCU_QSBR_VERSION"),
        reclamation: "call_rcu with the default single worker thread; settle waits for \
                      rcu_barrier; a thread that keeps a handle and does nothing holds it up",
        settings: "AUTO_RESIZE and ACCOUNTING; starts with the announced number of buckets \
                   (rounded up to a power of two; 1 if it is to grow), may shrink to 1; in the \
                   section resize as urcu-memb; a quiescent state is announced every 64 \
                   operations of a handle",
        adapter: "no read-side cost; a counter and every 64 operations a quiescent state; an \
                  insert allocates its node first, and frees it if the key is present",
        ..URCU
    }
    .card()
}

peer! {
    "cuckoo", Cuckoo, "peer_cuckoo",
    Text {
        name: "libcuckoo",
        about: "libcuckoo cuckoohash_map: cuckoo hashing, four slots a bucket, striped locks",
        version: env!("COREWISE_PEER_CUCKOO_VERSION"),
        language: "C++",
        hasher: COMMON,
        reclamation: "at once: entries are in the bucket array",
        guarantees: "linearizable; every operation takes the spinlocks of two buckets and may \
                     block; growing takes them all",
        settings: "built for the announced number of entries, or by default (262,144) if it is \
                   to grow; one thread grows it; shrinks on request only; a bucket of the \
                   section resize is a group of 16 slots (four of its buckets), by rehash(), which \
                   takes all locks",
        adapter: "find_fn and erase_fn with a function that copies the value",
        memory: PROGRAM_ALLOCATOR,
    }
    .card()
}

peer! { resize "urcu_memb", UrcuMemb, "peer_urcu_memb" }
peer! { resize "urcu_qsbr", UrcuQsbr, "peer_urcu_qsbr" }
peer! { resize "cuckoo", Cuckoo, "peer_cuckoo" }

#[cfg(corewise_peer = "cds")]
const CDS: Text = Text {
    name: "",
    about: "",
    version: env!("COREWISE_PEER_CDS_VERSION"),
    language: "C++",
    hasher: COMMON,
    reclamation: "hazard pointers (gc::HP) for 128 threads or two per CPU, whichever is more; a \
                  thread keeps some thousand removed entries; settle scans once",
    guarantees: "linearizable, lock-free",
    settings: "",
    adapter: "find and erase with a function that copies the value; a thread is attached with its \
              handle",
    memory: "nodes, bucket arrays and hazard pointers from the program's allocator (hazard pointers \
             are kept to the end of the process); some words per thread from libc's malloc",
};

peer! {
    "cds", CdsMichael, "peer_cds_michael",
    Text {
        name: "cds-michael",
        about: "libcds MichaelHashMap: Michael's lists (SPAA 2002) in a fixed number of buckets",
        settings: "load factor 1; the default item counter, one word that all updates share; \
                   cannot grow: 65,536 buckets if no number of entries was announced",
        ..CDS
    }
    .card()
}

peer! {
    "cds", CdsSplit, "peer_cds_split",
    Text {
        name: "cds-split",
        about: "libcds SplitListMap: split-ordered lists (Shalev, Shavit, JACM 2006)",
        settings: "load factor 1, Michael's list, the default item counter, one word that all \
                   updates share; starts with two buckets and splits them up to the announced \
                   number, by default 524,288",
        ..CDS
    }
    .card()
}

peer! {
    "cds", CdsFeldman, "peer_cds_feldman",
    Text {
        name: "cds-feldman",
        about: "libcds FeldmanHashMap: a tree of arrays (Feldman, LaBorde, Dechev, 2013)",
        hasher: "a bijection of one multiplication (the table keeps the hash for the key, so two \
                 keys must not share one, as they may with the common function)",
        settings: "head array of the announced number of entries (2^8 if it is to grow), rounded \
                   up so that arrays of 16 use up the hash; default item counter, one word that \
                   all updates share; arrays are never taken out again",
        memory: "nodes, arrays (each with 16 bytes in front, as the library gives it back without its \
                 size) and hazard pointers (kept to the end of the process) from the program's \
                 allocator; some words per thread from libc's malloc",
        ..CDS
    }
    .card()
}

/// The peers of this build.
pub(crate) fn entries() -> Vec<Entry> {
    Vec::from([
        #[cfg(corewise_peer = "null")]
        entry::<Null>(),
        #[cfg(corewise_peer = "tbb")]
        entry::<Tbb>(),
        #[cfg(corewise_peer = "urcu_memb")]
        resizable::<UrcuMemb>(),
        #[cfg(corewise_peer = "urcu_sync")]
        entry::<UrcuSync>(),
        #[cfg(corewise_peer = "urcu_qsbr")]
        resizable::<UrcuQsbr>(),
        #[cfg(corewise_peer = "cuckoo")]
        resizable::<Cuckoo>(),
        #[cfg(corewise_peer = "cds")]
        entry::<CdsMichael>(),
        #[cfg(corewise_peer = "cds")]
        entry::<CdsSplit>(),
        #[cfg(corewise_peer = "cds")]
        entry::<CdsFeldman>(),
    ])
}

#[allow(dead_code)]
fn entry<P: PeerApi>() -> Entry {
    let entry = Entry::new(P::card()).u64::<Peer<P>>();
    if entry.card.name == "peer-null" {
        entry.null()
    } else {
        entry
    }
}

#[allow(dead_code)]
fn resizable<P: ResizeApi>() -> Entry {
    entry::<P>().u64_resize::<ResizedPeer<P>>()
}

/// The peers that this build lacks, with reasons: for instance "header tbb/concurrent_hash_map.h
/// not found (Debian: libtbb-dev)".
pub(crate) fn missing() -> Vec<(&'static str, String)> {
    let reasons = env!("COREWISE_PEERS_MISSING").split(';');
    let pairs = reasons.filter_map(|line| line.split_once('='));
    pairs
        .flat_map(|(tables, why)| tables.split(", ").map(move |name| (name, why.to_owned())))
        .collect()
}

#[cfg(test)]
#[path = "peers_tests.rs"]
mod tests;
