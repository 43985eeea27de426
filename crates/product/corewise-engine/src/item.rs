//! The one item layout, shared by all engines and protocols.
//!
//! ```text
//!  node        ┌──────────────────────────────────────────────┐
//!  offset 0    │ links: L           the engine's own           │
//!              ├──────────────────────────────────────────────┤  header, 24 bytes
//!       +0     │ cas                64 bits                    │
//!       +8     │ key length 8 │ state 8 │ expiry in ms 48      │
//!      +16     │ kind 3 │ has client flags 1 │ value length 28 │
//!      +20     │ last access, seconds      32                  │
//!              ├──────────────────────────────────────────────┤
//!      +24     │ client flags       32, only if not zero       │
//!              │ long key's length  32, only if the 8 are 255 │
//!              │ key                0–65,536 bytes            │
//!              │ value              0–(2^28−1) bytes           │
//!              └──────────────────────────────────────────────┘
//! ```
//!
//! Value, kind, key and client flags never change once an item is published: a writer that changes
//! the value publishes another item. Only fields that fit one atomic word change in place: expiry
//! and state (touch, win tokens, staleness), the cas value (with staleness), and the access time.
//!
//! # Guarantees
//!
//! 1. A reader that can reach an item sees its key and value whole.
//! 2. Expiry and state change together or not at all.
//! 3. A hit writes the state bits only if they change, and the access time only then or if the last
//!    recorded access is some seconds old.

use crate::alloc::{ITEM_ALIGN, ItemAllocator};
use corewise_atomic::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use corewise_ops::{Deadline, ItemFlags, ItemKind, ItemView, Now, database};
use std::marker::PhantomData;
use std::ptr::{NonNull, addr_of};

/// Bytes of the header, without links, client flags, key and value.
pub const HEADER_BYTES: usize = 24;
/// The longest value an item can hold.
pub const MAX_VALUE_BYTES: usize = (1 << 28) - 1;
/// The longest key an item can hold, beside the [prefix](database) of its stored form.
pub const MAX_KEY_BYTES: usize = 64 << 10;

/// The key length in the header of an item whose key is this long or longer; the true length lies
/// before the key.
const LONG_KEY: usize = u8::MAX as usize;
const LONG_KEY_LEN_BYTES: usize = 4;

/// Where readers exclude no other thread, a recorded access time is at most this many seconds older
/// than the last access.
pub const ACCESS_STEP_S: u32 = 8;

const EXPIRY_MASK: u64 = (1 << 48) - 1;
const STATE_SHIFT: u32 = 48;
const KEY_LEN_SHIFT: u32 = 56;
const VALUE_LEN_MASK: u32 = (1 << 28) - 1;
const HAS_CLIENT_FLAGS: u32 = 1 << 28;
const KIND_SHIFT: u32 = 29;
const CLIENT_FLAGS_BYTES: usize = 4;

/// State bits of an item.
pub mod state {
    /// The item has been read since it was stored.
    pub const FETCHED: u8 = 1;
    /// The item was marked stale.
    pub const STALE: u8 = 2;
    /// A client was told to refresh the item.
    pub const WIN_SENT: u8 = 4;
    /// The number of reads since the eviction policy last looked at the item, up to three: two
    /// bits. For engines whose policy uses it.
    pub const HITS: u8 = 3 << HITS_SHIFT;
    /// Position of [`HITS`].
    pub const HITS_SHIFT: u32 = 3;
    /// The eviction policy has decided to keep the item. For engines whose policy uses it.
    pub const KEPT: u8 = 32;
}

#[repr(C)]
struct Header {
    cas: AtomicU64,
    life: AtomicU64,
    /// The length of the value, whether there are client flags, and the kind.
    shape: u32,
    access_s: AtomicU32,
}

/// The header of an item as it lies in memory; [`Item`] reaches the bytes that follow.
#[repr(C)]
pub struct ItemNode<L> {
    /// The engine's words: chain, eviction order, accounting.
    pub links: L,
    header: Header,
}

#[cfg(not(any(corewise_loom, corewise_shuttle, corewise_sim)))]
const _: () = {
    assert!(size_of::<Header>() == HEADER_BYTES);
    assert!(align_of::<Header>() == ITEM_ALIGN);
    assert!(size_of::<ItemNode<u64>>() == HEADER_BYTES + 8);
};

/// The contents from which an item is made.
#[derive(Clone, Copy)]
pub struct Contents<'a> {
    /// The stored key: at most [`MAX_KEY_BYTES`] bytes, and the prefix.
    pub key: &'a [u8],
    /// The value in two parts, stored one after the other (append and prepend).
    pub value: [&'a [u8]; 2],
    /// Opaque to the cache; stored only if it is not zero.
    pub client_flags: u32,
    /// When the item expires.
    pub deadline: Deadline,
    /// Initial state bits.
    pub state: u8,
    /// What the value is.
    pub kind: ItemKind,
}

impl<'a> Contents<'a> {
    /// A value in one part, in no special state.
    #[inline]
    #[must_use]
    pub fn new(key: &'a [u8], value: &'a [u8], client_flags: u32, deadline: Deadline) -> Self {
        Self {
            key,
            value: [value, b""],
            client_flags,
            deadline,
            state: 0,
            kind: ItemKind::String,
        }
    }

    fn value_len(&self) -> usize {
        self.value[0].len() + self.value[1].len()
    }

    /// Whether the header can express the lengths of key and value.
    #[must_use]
    pub fn fits_header(&self) -> bool {
        let has_short_key =
            self.key.len() <= MAX_KEY_BYTES || database::split(self.key).1.len() <= MAX_KEY_BYTES;
        has_short_key && self.value_len() <= MAX_VALUE_BYTES
    }

    /// Bytes of key, value, the length of a long key, and client flags other than 0.
    #[must_use]
    pub fn payload(&self) -> usize {
        let flags = if self.client_flags == 0 {
            0
        } else {
            CLIENT_FLAGS_BYTES
        };
        let key_len = if self.key.len() < LONG_KEY {
            0
        } else {
            LONG_KEY_LEN_BYTES
        };
        flags + key_len + self.key.len() + self.value_len()
    }

    /// Bytes that the item will take, before any rounding.
    #[must_use]
    pub fn bytes<L>(&self) -> usize {
        size_of::<ItemNode<L>>() + self.payload()
    }
}

/// Allocates and writes an item with cas value zero.
///
/// Returns the item and the bytes that it really takes, or `None` when there is no memory or a
/// length does not fit the header.
pub fn create<L, A: ItemAllocator>(
    allocator: &A,
    links: L,
    contents: &Contents<'_>,
    now: Now,
) -> Option<(NonNull<ItemNode<L>>, usize)> {
    if !contents.fits_header() {
        return None;
    }
    let (memory, footprint) = allocator.alloc(contents.bytes::<L>())?;
    // SAFETY: the memory is that of ItemAllocator 1, and the lengths fit.
    let node = unsafe { write(memory, links, contents, now) };
    Some((node, footprint))
}

/// Writes an item with cas value zero.
///
/// # Safety
///
/// 1. `memory` is valid for writes of `contents.bytes::<L>()` bytes, aligned to [`ITEM_ALIGN`], and
///    not used by anything else.
/// 2. The contents [fit the header](Contents::fits_header).
pub unsafe fn write<L>(
    memory: NonNull<u8>,
    links: L,
    contents: &Contents<'_>,
    now: Now,
) -> NonNull<ItemNode<L>> {
    let has_flags = if contents.client_flags == 0 {
        0
    } else {
        HAS_CLIENT_FLAGS
    };
    let header = Header {
        cas: AtomicU64::new(0),
        life: AtomicU64::new(
            contents.deadline.to_bits()
                | u64::from(contents.state) << STATE_SHIFT
                | (contents.key.len().min(LONG_KEY) as u64) << KEY_LEN_SHIFT,
        ),
        shape: contents.value_len() as u32 | has_flags | (contents.kind as u32) << KIND_SHIFT,
        access_s: AtomicU32::new(now.seconds()),
    };
    let flags = contents.client_flags.to_ne_bytes();
    let flags = if has_flags == 0 { &[][..] } else { &flags };
    let key_len = (contents.key.len() as u32).to_ne_bytes();
    let key_len = if contents.key.len() < LONG_KEY {
        &[][..]
    } else {
        &key_len
    };
    // SAFETY: the memory has room for the node and these parts, by the caller's 1, and their
    // lengths fit the header, by 2.
    unsafe {
        let [first, second] = contents.value;
        let parts = [flags, key_len, contents.key, first, second];
        lay_out(memory, ItemNode { links, header }, parts)
    }
}

/// Writes an item as [`write()`] does, except for its value.
///
/// Returns where the `value_len` bytes of the value are to be written. `contents` has no value.
///
/// # Safety
///
/// 1. `memory` is valid for writes of `contents.bytes::<L>() + value_len` bytes, aligned to
///    [`ITEM_ALIGN`], and not used by anything else.
/// 2. The key [fits the header](Contents::fits_header), and `value_len` is at most
///    [`MAX_VALUE_BYTES`].
/// 3. The item's value is not read before it has been written.
pub unsafe fn write_head<L>(
    memory: NonNull<u8>,
    links: L,
    contents: &Contents<'_>,
    value_len: usize,
    now: Now,
) -> (NonNull<ItemNode<L>>, NonNull<u8>) {
    debug_assert_eq!(contents.value_len(), 0);
    // SAFETY: the memory has room for the contents and the value, by 1, and the key fits the
    // header, by 2; the item's length covers the value that is written later, by 3.
    unsafe {
        let node = write(memory, links, contents, now);
        (*node.as_ptr()).header.shape |= value_len as u32;
        (node, memory.add(contents.bytes::<L>()))
    }
}

/// Writes a copy of `from` with other links and with `state` as its state bits.
///
/// # Safety
///
/// 1. `memory` is valid for writes of `from.bytes()` bytes, aligned to [`ITEM_ALIGN`], and not used
///    by anything else.
pub unsafe fn copy<L>(
    memory: NonNull<u8>,
    links: L,
    from: Item<'_, L>,
    state: u8,
) -> NonNull<ItemNode<L>> {
    let old = from.header();
    let life = from.life() & !(u64::from(u8::MAX) << STATE_SHIFT) | u64::from(state) << STATE_SHIFT;
    let header = Header {
        cas: AtomicU64::new(from.cas()),
        life: AtomicU64::new(life),
        shape: old.shape,
        // Relaxed: a statistic.
        access_s: AtomicU32::new(old.access_s.load(Ordering::Relaxed)),
    };
    let rest = from.tail(0, from.bytes() - size_of::<ItemNode<L>>());
    // SAFETY: the memory has room for a copy of the item, by 1.
    unsafe {
        lay_out(
            memory,
            ItemNode { links, header },
            [rest, &[], &[], &[], &[]],
        )
    }
}

/// # Safety
///
/// 1. `memory` is valid for writes of the node and the parts, one after the other, aligned to
///    [`ITEM_ALIGN`], and not used by anything else.
unsafe fn lay_out<L>(
    memory: NonNull<u8>,
    head: ItemNode<L>,
    parts: [&[u8]; 5],
) -> NonNull<ItemNode<L>> {
    const { assert!(align_of::<ItemNode<L>>() == ITEM_ALIGN) };
    let node = memory.cast::<ItemNode<L>>();
    // SAFETY: the memory has room for the node and the parts, and is aligned as the assertion
    // demands, by 1.
    unsafe {
        node.write(head);
        let mut to = node.as_ptr().add(1).cast::<u8>();
        for part in parts {
            to.copy_from_nonoverlapping(part.as_ptr(), part.len());
            to = to.add(part.len());
        }
    }
    node
}

/// Frees an item.
///
/// # Safety
///
/// `node` came from [`create`] with the same allocator, nothing else can reach it, and it is not
/// used afterwards.
pub unsafe fn destroy<L, A: ItemAllocator>(allocator: &A, node: NonNull<ItemNode<L>>) {
    // SAFETY: the item came from the allocator and nothing else can reach it, as the caller
    // guarantees; it is alive until `dealloc` below.
    unsafe {
        let bytes = Item::from_raw(node).bytes();
        node.drop_in_place();
        allocator.dealloc(node.cast(), bytes);
    }
}

/// A reference to an item: its header and the bytes behind it.
pub struct Item<'a, L> {
    node: NonNull<ItemNode<L>>,
    _alive: PhantomData<&'a ItemNode<L>>,
}

impl<L> Clone for Item<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for Item<'_, L> {}

impl<'a, L> Item<'a, L> {
    /// Creates a reference to the item at `node`.
    ///
    /// # Safety
    ///
    /// `node` came from [`create`] and is not destroyed during `'a`.
    #[inline]
    #[must_use]
    pub unsafe fn from_raw(node: NonNull<ItemNode<L>>) -> Self {
        Self {
            node,
            _alive: PhantomData,
        }
    }

    #[inline]
    fn header(self) -> &'a Header {
        // SAFETY: the item is alive during 'a (`from_raw`), and of its header only atomics change,
        // so a shared reference to it is always valid.
        unsafe { &*addr_of!((*self.node.as_ptr()).header) }
    }

    /// The `len` bytes from `start` behind the header.
    #[inline]
    fn tail(self, start: usize, len: usize) -> &'a [u8] {
        // SAFETY: called with ranges inside what `create` wrote behind the node (flags, length of
        // the key, key, value, by the lengths in the header and before the key), which change in
        // `overwrite_value` only; the pointer carries the provenance of the whole
        // allocation.
        unsafe {
            let base = self.node.as_ptr().add(1).cast::<u8>();
            std::slice::from_raw_parts(base.add(start), len)
        }
    }

    /// Bytes of client flags behind the header.
    #[inline]
    fn flags_bytes(self) -> usize {
        if self.header().shape & HAS_CLIENT_FLAGS == 0 {
            0
        } else {
            CLIENT_FLAGS_BYTES
        }
    }

    #[inline]
    fn life(self) -> u64 {
        // Relaxed: the word is read on its own; the engine's lock or publication already ordered
        // the item's contents before the reader reached it.
        self.header().life.load(Ordering::Relaxed)
    }

    /// Where the key lies behind the header, and its length.
    #[inline]
    fn key_range(self) -> (usize, usize) {
        let flags = self.flags_bytes();
        match (self.life() >> KEY_LEN_SHIFT) as usize {
            LONG_KEY => self.long_key_range(flags),
            len => (flags, len),
        }
    }

    /// [`key_range`](Self::key_range) of an item whose header does not have the length.
    #[cold]
    fn long_key_range(self, start: usize) -> (usize, usize) {
        let mut bytes = [0; LONG_KEY_LEN_BYTES];
        bytes.copy_from_slice(self.tail(start, LONG_KEY_LEN_BYTES));
        (
            start + LONG_KEY_LEN_BYTES,
            u32::from_ne_bytes(bytes) as usize,
        )
    }

    /// The key.
    #[inline]
    #[must_use]
    pub fn key(self) -> &'a [u8] {
        let (start, len) = self.key_range();
        self.tail(start, len)
    }

    /// Length of the value in bytes.
    #[inline]
    #[must_use]
    pub fn value_len(self) -> usize {
        (self.header().shape & VALUE_LEN_MASK) as usize
    }

    /// What the value is.
    #[inline]
    #[must_use]
    pub fn kind(self) -> ItemKind {
        match self.header().shape >> KIND_SHIFT {
            0 => ItemKind::String,
            1 => ItemKind::FlatSet,
            2 => ItemKind::Set,
            _ => ItemKind::Filter,
        }
    }

    /// Whether the value is a string.
    #[inline]
    #[must_use]
    pub fn is_string(self) -> bool {
        self.header().shape >> KIND_SHIFT == 0
    }

    /// The bytes of the value, whatever its kind is.
    #[inline]
    #[must_use]
    pub fn value(self) -> &'a [u8] {
        let (start, len) = self.key_range();
        self.tail(start + len, self.value_len())
    }

    /// Writes other bytes in place of the value.
    ///
    /// # Safety
    ///
    /// 1. The value has as many bytes, no reference to them exists, and no other thread reads or
    ///    writes them at the same time.
    pub unsafe fn overwrite_value(self, bytes: &[u8]) {
        debug_assert_eq!(bytes.len(), self.value_len());
        let (start, len) = self.key_range();
        // SAFETY: as in `tail`; the bytes of the value are exclusively ours, by 1.
        unsafe {
            let value = self.node.as_ptr().add(1).cast::<u8>().add(start + len);
            value.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// The client flags.
    #[inline]
    #[must_use]
    pub fn client_flags(self) -> u32 {
        if self.flags_bytes() == 0 {
            return 0;
        }
        let mut bytes = [0; CLIENT_FLAGS_BYTES];
        bytes.copy_from_slice(self.tail(0, CLIENT_FLAGS_BYTES));
        u32::from_ne_bytes(bytes)
    }

    /// Bytes requested from the allocator.
    #[must_use]
    pub fn bytes(self) -> usize {
        let (start, len) = self.key_range();
        size_of::<ItemNode<L>>() + start + len + self.value_len()
    }

    /// The cas value.
    #[inline]
    #[must_use]
    pub fn cas(self) -> u64 {
        // Relaxed: compared under the engine's writer exclusion only.
        self.header().cas.load(Ordering::Relaxed)
    }

    /// Sets the cas value. Writers of one key exclude each other.
    #[inline]
    pub fn set_cas(self, cas: u64) {
        // Relaxed: see `cas`.
        self.header().cas.store(cas, Ordering::Relaxed);
    }

    /// When the item expires.
    #[inline]
    #[must_use]
    pub fn deadline(self) -> Deadline {
        Deadline::from_bits(self.life() & EXPIRY_MASK)
    }

    /// The state bits.
    #[inline]
    #[must_use]
    pub fn state(self) -> u8 {
        (self.life() >> STATE_SHIFT) as u8
    }

    /// Replaces deadline and state bits together. Writers of one key exclude each other.
    #[inline]
    pub fn set_life(self, deadline: Deadline, state: u8) {
        let key_len = self.life() >> KEY_LEN_SHIFT << KEY_LEN_SHIFT;
        let life = deadline.to_bits() | u64::from(state) << STATE_SHIFT | key_len;
        // Relaxed: see `life`.
        self.header().life.store(life, Ordering::Relaxed);
    }

    /// Begins the item's life now. No other thread can reach the item yet.
    pub fn begin_life(self, deadline: Deadline, state: u8, now: Now) {
        self.set_life(deadline, state);
        // Relaxed: a statistic.
        self.header()
            .access_s
            .store(now.seconds(), Ordering::Relaxed);
    }

    /// Replaces the deadline, if one is given, and adds state bits, while readers may [record
    /// hits](Self::record_shared_hit). Writers of one key exclude each other.
    #[inline]
    pub fn update_life(self, deadline: Option<Deadline>, add: u8) {
        let life = |old: u64| {
            let expiry = deadline.map_or(old & EXPIRY_MASK, Deadline::to_bits);
            old & !EXPIRY_MASK | expiry | u64::from(add) << STATE_SHIFT
        };
        // Relaxed, both: see `life`.
        let _ = self
            .header()
            .life
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| Some(life(old)));
    }

    /// Replaces the state bits selected by a mask, while readers may record hits.
    #[inline]
    pub fn set_state(self, mask: u8, bits: u8) {
        let mask = u64::from(mask) << STATE_SHIFT;
        let bits = u64::from(bits) << STATE_SHIFT & mask;
        // Relaxed, both: see `life`.
        let _ = self
            .header()
            .life
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |life| {
                Some(life & !mask | bits)
            });
    }

    /// Records a read by a thread that excludes no other thread.
    ///
    /// Sets the fetched bit if it is clear, adds a hit if there are fewer than three, and then sets
    /// the access time. If neither changes, sets the access time only if it is at least
    /// [`ACCESS_STEP_S`] old. Concurrent hits may be counted as one.
    #[inline]
    pub fn record_shared_hit(self, now: Now) {
        self.record_use(now, state::FETCHED);
    }

    /// As [`record_shared_hit`](Self::record_shared_hit), with the state bits `add` instead of the
    /// fetched bit.
    #[inline]
    pub fn record_use(self, now: Now, add: u8) {
        const HIT: u64 = 1 << (STATE_SHIFT + state::HITS_SHIFT);
        const ALL: u64 = (state::HITS as u64) << STATE_SHIFT;
        let add = u64::from(add) << STATE_SHIFT;
        let header = self.header();
        let life = self.life();
        let more = add | if life & ALL == ALL { life } else { life + HIT };
        // Relaxed, all: statistics and eviction hints.
        if life != more {
            let _ = header
                .life
                .compare_exchange(life, more, Ordering::Relaxed, Ordering::Relaxed);
            header.access_s.store(now.seconds(), Ordering::Relaxed);
        } else if self.idle_s(now) >= ACCESS_STEP_S {
            // Relaxed: as above.
            header.access_s.store(now.seconds(), Ordering::Relaxed);
        }
    }

    /// Seconds since the last recorded access.
    #[inline]
    #[must_use]
    pub fn idle_s(self, now: Now) -> u32 {
        // Relaxed: a statistic.
        now.seconds()
            .saturating_sub(self.header().access_s.load(Ordering::Relaxed))
    }

    /// Records a read: writes access time and fetched bit, each only if it changes. Writers of one
    /// key exclude each other.
    #[inline]
    pub fn record_hit(self, now: Now) {
        let header = self.header();
        // Relaxed: statistics and eviction hints.
        if header.access_s.load(Ordering::Relaxed) != now.seconds() {
            header.access_s.store(now.seconds(), Ordering::Relaxed);
        }
        if self.state() & state::FETCHED == 0 {
            self.set_life(self.deadline(), self.state() | state::FETCHED);
        }
    }

    /// The part of the item that a sink may see.
    ///
    /// `flags` adds what only this operation knows. Staleness and the fetched bit come from
    /// `before`, the state bits as they stood before the operation.
    #[inline]
    #[must_use]
    pub fn view(self, before: Before, flags: ItemFlags, footprint: usize) -> ItemView<'a> {
        if self.is_string() {
            self.view_of_string(before, flags, footprint)
        } else {
            self.view_without_value(before, flags, footprint)
        }
    }

    /// As [`view`](Self::view), of an item that is a string.
    #[inline]
    #[must_use]
    pub fn view_of_string(
        self,
        before: Before,
        flags: ItemFlags,
        footprint: usize,
    ) -> ItemView<'a> {
        debug_assert!(self.is_string());
        self.view_with(self.value(), ItemKind::String, (before, flags), footprint)
    }

    /// As [`view`](Self::view), of an item that is not a string, whose value no sink may see.
    #[cold]
    fn view_without_value(
        self,
        before: Before,
        flags: ItemFlags,
        footprint: usize,
    ) -> ItemView<'a> {
        self.view_with(b"", self.kind(), (before, flags), footprint)
    }

    #[inline(always)]
    fn view_with(
        self,
        value: &'a [u8],
        kind: ItemKind,
        (before, mut flags): (Before, ItemFlags),
        footprint: usize,
    ) -> ItemView<'a> {
        if before.state & state::FETCHED != 0 {
            flags = flags.with(ItemFlags::FETCHED);
        }
        if self.state() & state::STALE != 0 {
            flags = flags.with(ItemFlags::STALE);
        }
        ItemView {
            key: self.key(),
            value,
            kind,
            client_flags: self.client_flags(),
            cas: self.cas(),
            deadline: self.deadline(),
            idle_s: before.idle_s,
            flags,
            footprint,
            size_class: crate::size_class::of(footprint),
        }
    }

    /// The item's state that an operation is about to change.
    #[inline]
    #[must_use]
    pub fn before(self, now: Now) -> Before {
        Before {
            state: self.state(),
            idle_s: self.idle_s(now),
        }
    }
}

/// An item's history as it stood before an operation on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Before {
    /// State bits.
    pub state: u8,
    /// Seconds since the last access.
    pub idle_s: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::GlobalHeap;

    const NOW: Now = Now::new(7_500, 0);

    fn with_item(contents: &Contents<'_>, f: impl FnOnce(Item<'_, u64>)) {
        let (node, footprint) = create(&GlobalHeap, 0u64, contents, NOW).unwrap();
        assert!(footprint >= contents.bytes::<u64>());
        // SAFETY: just created, destroyed below after the last use.
        unsafe {
            f(Item::from_raw(node));
            destroy(&GlobalHeap, node);
        }
    }

    fn contents<'a>(key: &'a [u8], value: &'a [u8]) -> Contents<'a> {
        Contents::new(key, value, 0, Deadline::NEVER)
    }

    #[test]
    fn key_and_value_come_back_with_and_without_client_flags() {
        for client_flags in [0, 1, u32::MAX] {
            let c = Contents {
                client_flags,
                ..contents(b"key", b"value")
            };
            with_item(&c, |item| {
                assert_eq!(item.key(), b"key");
                assert_eq!(item.value(), b"value");
                assert_eq!(item.client_flags(), client_flags);
                assert_eq!(item.bytes(), c.bytes::<u64>());
            });
        }
    }

    #[test]
    fn the_two_parts_of_a_value_are_laid_one_behind_the_other() {
        let c = Contents {
            value: [b"ab", b"cd"],
            ..contents(b"k", b"")
        };
        with_item(&c, |item| assert_eq!(item.value(), b"abcd"));
    }

    #[test]
    fn keys_of_every_length_come_back() {
        let bytes: Vec<u8> = (0..=MAX_KEY_BYTES).map(|i| (i % 251) as u8).collect();
        for len in [0, 1, 250, 253, 254, 255, 256, 257, 65_535, MAX_KEY_BYTES] {
            for client_flags in [0, 7] {
                let c = Contents {
                    client_flags,
                    ..contents(&bytes[..len], b"value")
                };
                with_item(&c, |item| {
                    item.set_life(Deadline::MAX, 0xff);
                    assert_eq!(item.key(), &bytes[..len]);
                    assert_eq!(item.value(), b"value");
                    assert_eq!(item.client_flags(), client_flags);
                    assert_eq!(item.bytes(), c.bytes::<u64>());
                    let escape = if len < 255 { 0 } else { 4 };
                    let flags = if client_flags == 0 { 0 } else { 4 };
                    assert_eq!(item.bytes(), 32 + flags + escape + len + 5);
                });
            }
        }
    }

    #[test]
    fn deadline_and_state_change_without_touching_the_key() {
        let key = [b'x'; 250];
        with_item(&contents(&key, b""), |item| {
            item.set_life(Deadline::MAX, 0xff);
            assert_eq!(item.deadline(), Deadline::MAX);
            assert_eq!(item.state(), 0xff);
            assert_eq!(item.key(), key);
            assert_eq!(item.value(), b"");
        });
    }

    #[test]
    fn a_hit_marks_the_item_fetched_and_accessed() {
        with_item(&contents(b"k", b"v"), |item| {
            let later = Now {
                ms: NOW.ms + 3_000,
                ..NOW
            };
            assert_eq!(item.idle_s(later), 3);
            let before = item.before(later);
            item.record_hit(later);
            assert_eq!(item.idle_s(later), 0);
            let view = item.view(before, ItemFlags::NONE, 64);
            assert_eq!(view.idle_s, 3, "the view tells the time before this hit");
            assert!(!view.flags.contains(ItemFlags::FETCHED));
            let again = item.view(item.before(later), ItemFlags::NONE, 64);
            assert!(again.flags.contains(ItemFlags::FETCHED));
        });
    }

    #[test]
    fn lengths_that_do_not_fit_the_header_are_refused() {
        let long = [b'x'; MAX_KEY_BYTES + 1];
        assert!(create(&GlobalHeap, 0u64, &contents(&long, b""), NOW).is_none());
        let of_database = [7; MAX_KEY_BYTES + 1];
        with_item(&contents(&of_database, b""), |item| {
            assert_eq!(item.key(), of_database);
        });
        let long = [7; MAX_KEY_BYTES + 2];
        assert!(create(&GlobalHeap, 0u64, &contents(&long, b""), NOW).is_none());
    }
}
