//! Memory for a value that is still to be received, inside the item that it will belong to.
//!
//! A caller that knows the length of a value before it has the value (such as a server that has
//! read the line of a store command) can [reserve](crate::Session::reserve) the item, receive the
//! value into it, and [store](crate::Session::submit_reserved) it without another copy.
//!
//! ```text
//!  reserve ─▶ spare ─▶ advance ─▶ … ─▶ submit_reserved      the item is linked
//!    │                   │                   └──────────▶ the item is not wanted: given up
//!    └───────────────────┴─▶ drop                          given up
//! ```
//!
//! # Guarantees
//!
//! 1. No operation finds the item, and nothing evicts it, before it is stored.
//! 2. Memory that was not written is never read: a reservation is stored in place only if it is
//!    full.
//! 3. A reservation that is dropped, on any thread, gives its memory back at once.
//! 4. Engines bound the reserved memory. An engine that has no more room for reservations, or that
//!    never has any, grants none, and values are stored by copying them.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

/// An engine that grants reservations.
pub(crate) trait Reserver: Send + Sync {
    /// Gives up an item that was not linked.
    ///
    /// # Safety
    ///
    /// The item belongs to a reservation of this engine, was not linked, and is not used
    /// afterwards.
    unsafe fn release(&self, item: NonNull<u8>);
}

/// Memory for a value that is still to be received. See the [module](self).
pub struct Reservation {
    owner: Arc<dyn Reserver>,
    /// The item, until it is linked.
    item: Cell<Option<NonNull<u8>>>,
    value: NonNull<u8>,
    len: usize,
    /// The number of bytes of the value, from its beginning, that have been written.
    filled: usize,
}

// SAFETY: only the reservation can reach the memory as long as `item` has it, and `release` of its
// owner may be called from any thread.
unsafe impl Send for Reservation {}

impl Reservation {
    /// Creates the reservation of `item`, whose value is to be written to `len` bytes at `value`.
    ///
    /// # Safety
    ///
    /// 1. Both are valid until the reservation is dropped, which releases the item, or the item is
    ///    [disowned](Self::disown_item).
    /// 2. Nothing else uses the value's memory until then.
    pub(crate) unsafe fn new(
        owner: Arc<dyn Reserver>,
        item: NonNull<u8>,
        value: NonNull<u8>,
        len: usize,
    ) -> Self {
        Self {
            owner,
            item: Cell::new(Some(item)),
            value,
            len,
            filled: 0,
        }
    }

    /// Length of the whole value in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the value is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the whole value has been written.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.filled == self.len
    }

    /// Memory for the part of the value that is not yet written.
    pub fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the item and its value are valid, and only the reservation uses them, by the
        // contract of `new`: a reservation whose methods can be called has its item.
        unsafe {
            let at = self.value.add(self.filled).cast().as_ptr();
            std::slice::from_raw_parts_mut(at, self.len - self.filled)
        }
    }

    /// Declares that the next `count` bytes of the value have been written.
    ///
    /// # Safety
    ///
    /// The first `count` bytes of [`spare`](Self::spare) are initialised.
    pub unsafe fn advance(&mut self, count: usize) {
        debug_assert!(count <= self.len - self.filled);
        self.filled += count;
    }

    /// Writes the next bytes of the value and returns how many were taken. Bytes for which there is
    /// no room are left.
    pub fn extend(&mut self, bytes: &[u8]) -> usize {
        let spare = self.spare();
        let count = bytes.len().min(spare.len());
        // SAFETY: `spare` has room for these bytes, and nothing else uses it; they are initialised
        // by the copy.
        unsafe {
            let to = spare.as_mut_ptr().cast::<u8>();
            to.copy_from_nonoverlapping(bytes.as_ptr(), count);
            self.advance(count);
        }
        count
    }

    /// The part of the value that has been written.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        // SAFETY: the item and its value are valid, and only the reservation uses them, by the
        // contract of `new`; callers of `advance` have initialised the first `filled` bytes.
        unsafe { std::slice::from_raw_parts(self.value.as_ptr(), self.filled) }
    }

    /// The item, if it is full and belongs to this owner.
    pub(crate) fn item_of(&self, owner: *const ()) -> Option<NonNull<u8>> {
        let is_owner = std::ptr::addr_eq(Arc::as_ptr(&self.owner), owner);
        self.item.get().filter(|_| is_owner && self.is_full())
    }

    /// Notes that the item was linked and now belongs to the engine.
    ///
    /// # Safety
    ///
    /// 1. Afterwards the reservation is only dropped, unless the caller keeps the item.
    pub(crate) unsafe fn disown_item(&self) {
        self.item.set(None);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            // SAFETY: by the contract of `new`, and because the item was not disowned.
            unsafe { self.owner.release(item) };
        }
    }
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (len, filled) = (self.len, self.filled);
        f.debug_struct("Reservation")
            .field("len", &len)
            .field("filled", &filled)
            .finish_non_exhaustive()
    }
}
