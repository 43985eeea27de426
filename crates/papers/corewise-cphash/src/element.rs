//! One element: a header, the lengths, the key and the value, in one block of whole cache lines.
//!
//! ```text
//!  offset 0      8      16      24      32     36       40         64
//!         ┌──────┬──────┬───────┬───────┬──────┬────────┬──────────┐
//!  split  │  id  │ next │ newer │ older │ refs │ flags, │ (unused) │ lengths, key, value …
//!         │      │      │       │       │      │ lines  │          │
//!         ├──────┴──────┴───────┴───────┴──────┴────────┼──────────┴───────
//!  packed │ the same                                    │ lengths, key, value …
//!         └─────────────────────────────────────────────┴──────────────────
//! ```
//!
//! *Split* is the paper's layout (\[CPHASH\] §3.1): the header has a cache line to itself, which
//! stays in the cache of the server thread, and clients touch the lines behind it only. `CpHash`
//! uses it. *Packed* saves memory and a cache miss where the thread that uses the header also reads
//! the value, as in `LockHash`: a narrow key and a value of 16 bytes take one line.
//!
//! # Who may touch what
//!
//! 1. The owner of the partition (a lock holder or a server thread) reads and writes the header.
//! 2. The data part (lengths, key, value) is written once: the lengths by the owner when the
//!    element is allocated, key and value by the inserting thread while the element is NOT READY.
//!    From READY on, every thread that holds a reference may read it.
//! 3. The block is freed by the owner when no reference is left and no chain leads to it.
//!
//! An exception to 2: an owner that finds a READY element without references may write its value,
//! because no other thread can read it then.

use std::ptr::NonNull;

use corewise_atomic::cell::{Access, touch};

use crate::key::{Identity, KeyKind};

/// Bytes of a cache line, and the unit of blocks.
pub(crate) const LINE: usize = 64;

/// The first part of an element. All of it belongs to the owner of the partition.
#[repr(C)]
pub(crate) struct Header {
    /// The ID of the key. Never changes.
    pub(crate) id: u64,
    /// The next element of the chain.
    pub(crate) next: *mut Header,
    /// The LRU list's neighbours.
    pub(crate) newer: *mut Header,
    pub(crate) older: *mut Header,
    /// References that threads hold, the inserting thread of a NOT READY element included.
    /// Changed by [`add_ref`](Self::add_ref) and [`drop_ref`](Self::drop_ref) only.
    pub(crate) refs: u32,
    /// [`flag`]s, and the number of lines of the block.
    word: u32,
    /// Lets model checkers see the accesses to the data part.
    #[cfg(any(corewise_loom, corewise_shuttle))]
    shadow: corewise_atomic::cell::DataCell<()>,
}

impl Header {
    /// Counts a reference. A count that has reached its maximum stays there, so references that
    /// were forgotten in such numbers cost their element until the table is dropped, and nothing
    /// else.
    #[inline(always)]
    pub(crate) fn add_ref(&mut self) {
        self.refs = self.refs.saturating_add(1);
    }

    /// Counts a reference less. Whether none is left.
    #[inline(always)]
    pub(crate) fn drop_ref(&mut self) -> bool {
        debug_assert_ne!(self.refs, 0);
        if self.refs != u32::MAX {
            self.refs -= 1;
        }
        self.refs == 0
    }
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = assert!(size_of::<Header>() == 40 && align_of::<Header>() <= LINE);

/// Flags of an element.
pub(crate) mod flag {
    /// The value is complete.
    pub(crate) const READY: u32 = 1 << 31;
    /// A chain leads to the element.
    pub(crate) const LINKED: u32 = 1 << 30;
    /// The key is a number that is its own ID.
    pub(crate) const NARROW: u32 = 1 << 29;
    /// The data part begins directly behind the header.
    pub(crate) const PACKED: u32 = 1 << 28;
    /// Another key that is not narrow may have the same ID. Once set, it stays.
    pub(crate) const SHARED_ID: u32 = 1 << 27;
    pub(super) const LINES: u32 = SHARED_ID - 1;
}

/// The most lines of a block.
pub(crate) const MAX_LINES: usize = flag::LINES as usize;

/// Marks the key of a wide number among the lengths.
const WIDE: u32 = 1 << 31;

/// Where the data part of an element begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Packed,
    Split,
}

impl Layout {
    pub(crate) const fn offset(self) -> usize {
        match self {
            Self::Packed => size_of::<Header>(),
            Self::Split => size_of::<Header>().next_multiple_of(LINE),
        }
    }

    /// Lines of an element with a key and a value of these lengths; `None` if there is no such
    /// element.
    #[inline]
    pub(crate) fn lines(self, key_len: usize, value_len: usize) -> Option<usize> {
        let bytes = (self.offset() + size_of::<Lengths>())
            .checked_add(key_len)?
            .checked_add(value_len)?;
        let lines = bytes.div_ceil(LINE);
        let fits = lines <= MAX_LINES
            && key_len <= crate::MAX_KEY_BYTES
            && u32::try_from(value_len).is_ok();
        fits.then_some(lines)
    }
}

/// The beginning of the data part.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Lengths {
    /// Bytes of the key, and [`WIDE`].
    key: u32,
    value: u32,
}

/// A pointer to an element whose block is allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub(crate) struct Element(NonNull<Header>);

impl Element {
    #[inline]
    pub(crate) fn from_ptr(header: *mut Header) -> Option<Self> {
        NonNull::new(header).map(Self)
    }

    #[inline]
    pub(crate) fn as_ptr(self) -> *mut Header {
        self.0.as_ptr()
    }

    /// Writes the header and the lengths of a NOT READY element with one reference, whose key is
    /// to have these properties.
    ///
    /// # Safety
    ///
    /// 1. `block` has `lines` lines, is aligned to a line, and the caller owns it.
    /// 2. `lines` is what `layout` needs for the lengths.
    pub(crate) unsafe fn create(
        block: NonNull<u8>,
        layout: Layout,
        lines: usize,
        (id, kind): (u64, KeyKind),
        (key_len, value_len): (usize, usize),
    ) -> Self {
        let mut word = lines as u32;
        if kind == KeyKind::Narrow {
            word |= flag::NARROW;
        }
        if layout == Layout::Packed {
            word |= flag::PACKED;
        }
        let wide = if kind == KeyKind::Wide { WIDE } else { 0 };
        let element = Self(block.cast());
        let none = std::ptr::null_mut();
        let header = Header {
            id,
            next: none,
            newer: none,
            older: none,
            refs: 1,
            word,
            #[cfg(any(corewise_loom, corewise_shuttle))]
            shadow: corewise_atomic::cell::DataCell::new(()),
        };
        let lengths = Lengths {
            key: key_len as u32 | wide,
            value: value_len as u32,
        };
        // SAFETY: the caller owns the block (1), and both parts lie in it (2).
        unsafe {
            element.0.write(header);
            element.announce(Access::Write);
            element.data(layout).cast::<Lengths>().write(lengths);
        }
        element
    }

    /// Ends the element and returns its block.
    ///
    /// # Safety
    ///
    /// 1. The caller owns the partition, and nothing refers to the element: not a thread, a chain
    ///    or a list.
    pub(crate) unsafe fn destroy(self) -> (NonNull<u8>, usize) {
        // SAFETY: the last user (1).
        unsafe {
            self.announce(Access::Write);
            let lines = self.lines();
            self.0.drop_in_place();
            (self.0.cast(), lines)
        }
    }

    /// # Safety
    ///
    /// 1. The caller owns the partition, and the element's block is allocated.
    /// 2. No other reference to the header lives as long as the result.
    #[inline(always)]
    pub(crate) unsafe fn header<'a>(mut self) -> &'a mut Header {
        // SAFETY: the caller owns the header (1) and has no other reference to it (2).
        unsafe { self.0.as_mut() }
    }

    /// # Safety
    ///
    /// 1. The caller owns the partition, and the element's block is allocated.
    #[inline(always)]
    pub(crate) unsafe fn has(self, flag: u32) -> bool {
        // SAFETY: headers belong to the owner, which is the caller (1).
        unsafe { (*self.as_ptr()).word & flag != 0 }
    }

    /// Sets or clears a flag.
    ///
    /// # Safety
    ///
    /// 1. The caller owns the partition, and the element's block is allocated.
    #[inline(always)]
    pub(crate) unsafe fn set(self, flag: u32, on: bool) {
        // SAFETY: headers belong to the owner, which is the caller (1).
        let word = unsafe { &mut (*self.as_ptr()).word };
        *word = if on { *word | flag } else { *word & !flag };
    }

    /// # Safety
    ///
    /// 1. The caller owns the partition, and the element's block is allocated.
    #[inline(always)]
    pub(crate) unsafe fn lines(self) -> usize {
        // SAFETY: headers belong to the owner, which is the caller (1).
        unsafe { ((*self.as_ptr()).word & flag::LINES) as usize }
    }

    /// # Safety
    ///
    /// 1. The caller owns the partition, and the element's block is allocated.
    #[inline(always)]
    pub(crate) unsafe fn layout(self) -> Layout {
        // SAFETY: the caller owns the header of an allocated block (1).
        match unsafe { self.has(flag::PACKED) } {
            true => Layout::Packed,
            false => Layout::Split,
        }
    }

    #[inline(always)]
    fn data(self, layout: Layout) -> NonNull<u8> {
        // SAFETY: every block is longer than this offset, see `Layout::lines`.
        unsafe { self.0.cast::<u8>().add(layout.offset()) }
    }

    /// Key and value.
    ///
    /// # Safety
    ///
    /// 1. The element is READY and of this layout, and remains allocated while the result lives.
    /// 2. Its value is not written while the result lives.
    #[inline(always)]
    pub(crate) unsafe fn parts<'a>(self, layout: Layout) -> (StoredKey<'a>, &'a [u8]) {
        // SAFETY: all bytes were written before the element became READY (1), none changes (2).
        unsafe {
            self.announce(Access::Read);
            let data = self.data(layout);
            let Lengths { key, value } = data.cast::<Lengths>().read();
            let (key_len, value_len) = ((key & !WIDE) as usize, value as usize);
            let first = data.add(size_of::<Lengths>());
            let bytes = NonNull::slice_from_raw_parts(first, key_len).as_ref();
            let value = NonNull::slice_from_raw_parts(first.add(key_len), value_len).as_ref();
            let is_wide = key & WIDE != 0;
            (StoredKey { is_wide, bytes }, value)
        }
    }

    /// Writes key and value.
    ///
    /// # Safety
    ///
    /// 1. The element is of this layout and was created for the lengths of `key` and `value`.
    /// 2. Either it is NOT READY and the caller is its inserting thread, or the caller owns the
    ///    partition and no reference is left.
    #[inline(always)]
    pub(crate) unsafe fn fill(self, layout: Layout, key: &[u8], value: &[u8]) {
        // SAFETY: the block is long enough (1), and no other thread accesses it (2).
        unsafe {
            self.announce(Access::Write);
            let first = self.data(layout).add(size_of::<Lengths>()).as_ptr();
            first.copy_from_nonoverlapping(key.as_ptr(), key.len());
            first
                .add(key.len())
                .copy_from_nonoverlapping(value.as_ptr(), value.len());
        }
    }

    /// Writes another value into an element of sufficient lines.
    ///
    /// # Safety
    ///
    /// 1. The caller owns the partition, the element is of this layout and READY, and no reference
    ///    is left.
    /// 2. The element's lines suffice for its key and `value`.
    pub(crate) unsafe fn overwrite(self, layout: Layout, value: &[u8]) {
        // SAFETY: no other thread accesses the element (1), and the value fits (2).
        unsafe {
            self.announce(Access::Write);
            let mut data = self.data(layout).cast::<Lengths>();
            let lengths = data.as_mut();
            lengths.value = value.len() as u32;
            let key_len = (lengths.key & !WIDE) as usize;
            let place = data.cast::<u8>().add(size_of::<Lengths>() + key_len);
            place
                .as_ptr()
                .copy_from_nonoverlapping(value.as_ptr(), value.len());
        }
    }

    /// Whether the element, which has the ID of `wanted`, has its key.
    ///
    /// # Safety
    ///
    /// 1. The caller owns the partition, and the element is READY.
    #[inline(always)]
    pub(crate) unsafe fn has_key(self, wanted: &Identity<'_>) -> bool {
        // SAFETY: the owner may read header and data of a READY element, and does not write while
        // the bytes are borrowed (1).
        unsafe {
            if wanted.kind == KeyKind::Narrow || self.has(flag::NARROW) {
                return self.has(flag::NARROW) == (wanted.kind == KeyKind::Narrow);
            }
            self.parts(self.layout()).0.is(wanted)
        }
    }

    /// Whether the element, which has the ID of an element with the key `key`, has this key, which
    /// is not narrow.
    ///
    /// # Safety
    ///
    /// 1. The caller owns the partition, and the element is READY.
    pub(crate) unsafe fn has_stored_key(self, key: StoredKey<'_>) -> bool {
        // SAFETY: the owner may read header and data of a READY element (1).
        unsafe { !self.has(flag::NARROW) && self.parts(self.layout()).0 == key }
    }

    /// Tells model checkers about an access to the data part.
    ///
    /// # Safety
    ///
    /// 1. The element's block is allocated.
    #[inline(always)]
    unsafe fn announce(self, access: Access) {
        #[cfg(any(corewise_loom, corewise_shuttle))]
        {
            // SAFETY: the field is never written, and the block is allocated (1).
            let shadow = unsafe { &(*self.as_ptr()).shadow };
            match access {
                Access::Read => shadow.with(|_| ()),
                Access::Write => shadow.with_mut(|_| ()),
            }
        }
        let start = self.as_ptr().cast_const().cast::<u8>();
        touch(start..start.wrapping_add(1), access);
    }
}

/// What an element stores of its key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredKey<'a> {
    is_wide: bool,
    bytes: &'a [u8],
}

impl StoredKey<'_> {
    /// Whether this is the key of an element with the same ID: its kind, which is not narrow, and
    /// its bytes.
    pub(crate) fn has(&self, kind: KeyKind, bytes: &[u8]) -> bool {
        self.is_wide == (kind == KeyKind::Wide) && self.bytes == bytes
    }

    /// Whether this is the key `wanted`, which is not narrow and has the same ID.
    #[inline(always)]
    pub(crate) fn is(&self, wanted: &Identity<'_>) -> bool {
        self.has(wanted.kind, wanted.bytes())
    }
}
