//! Tables of C and C++ libraries, behind the C interface of `peers/peer.h`.
//!
//! ```text
//! harness ─ MapHandle<U64> ─ Peer<P> ─ P::get ─── C call ─── peer_tbb_get ─ the library
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

use crate::adapters::card;
use crate::entry::Entry;
use crate::table::{MapHandle, MeasuredMap, Resize, Setup, TableInfo, U64};

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

impl<P: PeerApi> MeasuredMap<U64> for Peer<P> {
    type Handle<'t> = PeerHandle<'t, P>;

    fn build(setup: &Setup) -> Self {
        // SAFETY: `create` has no preconditions.
        let raw = unsafe { P::create(setup.capacity, setup.threads) };
        Self {
            raw: NonNull::new(raw).expect("a peer's table is not null"),
            peer: PhantomData,
        }
    }

    fn handle(&self) -> PeerHandle<'_, P> {
        // SAFETY: the table lives until `self` is dropped (1).
        let raw = unsafe { P::open(self.raw) };
        PeerHandle {
            raw: NonNull::new(raw).expect("a peer's handle is not null"),
            table: PhantomData,
        }
    }

    fn size(&self) -> Option<usize> {
        // SAFETY: the table lives until `self` is dropped (1).
        Some(unsafe { P::size(self.raw) })
    }

    fn settle(&self) {
        // SAFETY: the table lives until `self` is dropped (1).
        unsafe { P::settle(self.raw) };
    }
}

impl<P: PeerApi> Drop for Peer<P> {
    fn drop(&mut self) {
        // SAFETY: `create` made the table and this is the only `destroy` (1); handles borrow
        // `self` (3).
        unsafe { P::destroy(self.raw) };
    }
}

impl<P: ResizeApi> Resize<U64> for Peer<P> {
    fn resize_to(&self, buckets: usize) {
        // SAFETY: the table lives until `self` is dropped (1); by the contract of `Resize` (4).
        unsafe { P::resize_to(self.raw, buckets) };
    }
    fn buckets(&self) -> usize {
        // SAFETY: the table lives until `self` is dropped (1); by the contract of `Resize` (4).
        unsafe { P::buckets(self.raw) }
    }
}

/// A thread's handle to a [`Peer`]; not Send, since the library may have registered the thread.
pub(crate) struct PeerHandle<'t, P: PeerApi> {
    raw: NonNull<RawHandle>,
    table: PhantomData<&'t Peer<P>>,
}

impl<P: PeerApi> MapHandle<U64> for PeerHandle<'_, P> {
    #[inline]
    fn get(&mut self, key: &u64) -> Option<u64> {
        let mut value = 0;
        // SAFETY: `open` made the handle on this thread, and it borrows the table (2).
        unsafe { P::get(self.raw, *key, &mut value) }.then_some(value)
    }

    #[inline]
    fn insert(&mut self, key: &u64, value: u64) -> bool {
        // SAFETY: `open` made the handle on this thread, and it borrows the table (2).
        unsafe { P::insert(self.raw, *key, value) }
    }

    #[inline]
    fn remove(&mut self, key: &u64) -> Option<u64> {
        let mut value = 0;
        // SAFETY: `open` made the handle on this thread, and it borrows the table (2).
        unsafe { P::remove(self.raw, *key, &mut value) }.then_some(value)
    }
}

impl<P: PeerApi> Drop for PeerHandle<'_, P> {
    fn drop(&mut self) {
        // SAFETY: `open` made the handle on this thread, and this is the only `close` (2).
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

/// Defines a peer whose C functions share a prefix; with `resize`, one that is resized only on
/// request.
macro_rules! peer {
    ($cfg:literal, $Api:ident, $prefix:literal, $name:literal, $version:expr) => {
        peer! { $cfg, $Api, $prefix, $name, $version, "_create" }
    };
    ($cfg:literal, $Api:ident, $prefix:literal, $name:literal, $version:expr, $create:literal) => {
        #[cfg(corewise_peer = $cfg)]
        pub(crate) enum $Api {}

        // SAFETY: the functions are those of `PEER_DECLARE` for this prefix, with the types that
        // `peers/peer.h` gives them: `struct peer_table *` and `struct peer_handle *` are never
        // null here, and `uint64_t *` points to memory that is written before it is read.
        #[cfg(corewise_peer = $cfg)]
        unsafe impl PeerApi for $Api {
            fn card() -> TableInfo {
                TableInfo {
                    version: $version.into(),
                    ..card($name)
                }
            }
            peer! { $prefix, $create, create(capacity: usize, threads: usize) -> *mut RawTable }
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
    (resize $cfg:literal, $Api:ident, $prefix:literal, $name:literal, $version:expr) => {
        peer! { $cfg, $Api, $prefix, $name, $version, "_create_resizable" }

        // SAFETY: as for `PeerApi`, with the functions of `PEER_DECLARE_RESIZE`.
        #[cfg(corewise_peer = $cfg)]
        unsafe impl ResizeApi for $Api {
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

/// Lists the peers, of which some are resized on request.
macro_rules! peers {
    ($($cfg:literal $Api:ident $prefix:literal $name:literal $version:expr $(, resized $Resized:ident)?;)*) => {
        $(
            peer! { $cfg, $Api, $prefix, $name, $version }
            $(peer! { resize $cfg, $Resized, $prefix, $name, $version })?
        )*

        pub(crate) fn entries() -> Vec<Entry> {
            Vec::from([$(
                #[cfg(corewise_peer = $cfg)]
                entry::<$Api>()$(.resized::<U64, Peer<$Resized>>())?,
            )*])
        }
    };
}

peers! {
    "null" Null "peer_null" "peer-null" env!("CARGO_PKG_VERSION");
    "tbb" Tbb "peer_tbb" "tbb" env!("COREWISE_PEER_TBB_VERSION");
    "urcu_memb" UrcuMemb "peer_urcu_memb" "urcu-memb" env!("COREWISE_PEER_URCU_MEMB_VERSION"), resized UrcuMembResized;
    "urcu_sync" UrcuSync "peer_urcu_sync" "urcu-sync" env!("COREWISE_PEER_URCU_SYNC_VERSION");
    "urcu_qsbr" UrcuQsbr "peer_urcu_qsbr" "urcu-qsbr" env!("COREWISE_PEER_URCU_QSBR_VERSION"), resized UrcuQsbrResized;
    "cuckoo" Cuckoo "peer_cuckoo" "libcuckoo" env!("COREWISE_PEER_CUCKOO_VERSION"), resized CuckooResized;
    "cds" CdsMichael "peer_cds_michael" "cds-michael" env!("COREWISE_PEER_CDS_VERSION");
    "cds" CdsSplit "peer_cds_split" "cds-split" env!("COREWISE_PEER_CDS_VERSION");
    "cds" CdsFeldman "peer_cds_feldman" "cds-feldman" env!("COREWISE_PEER_CDS_VERSION");
}

#[allow(dead_code)]
fn entry<P: PeerApi>() -> Entry {
    let entry = Entry::new(P::card()).map::<U64, Peer<P>>();
    if entry.card.name == "peer-null" {
        entry.null()
    } else {
        entry
    }
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
