//! Memory for a value that is still to come, inside of the item that it will belong to.
//!
//! A caller that knows the length of a value before it has the value (a server that has read the line of a
//! store) can [reserve](crate::Session::reserve) the item, receive the value into it, and have it
//! [stored](crate::Session::submit_reserved) without another copy.
//!
//! ```text
//!  reserve ─▶ spare ─▶ advance ─▶ … ─▶ submit_reserved      the item is linked
//!    │                   │                   └──────────▶ the item is not wanted: given up
//!    └───────────────────┴─▶ drop                          given up
//! ```
//!
//! # Guarantees
//!
//! 1. Nobody finds the item, and nobody evicts it, before it is stored.
//! 2. Memory that was not written is never read: only a reservation that is full is stored as it lies.
//! 3. A reservation that is dropped, on any thread, gives its memory back at once.
//! 4. Engines bound what is reserved. One that has no more room for reservations, or none at all,
//!    grants none, and values are stored by copying them.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

/// An engine that grants reservations.
pub(crate) trait Reserver: Send + Sync {
    /// Gives up an item.
    ///
    /// # Safety
    ///
    /// The item is that of a reservation of this engine, was not linked, and is not used afterwards.
    unsafe fn release(&self, item: NonNull<u8>);
}

/// See the [module](self).
pub struct Reservation {
    owner: Arc<dyn Reserver>,
    /// The item, until it is linked.
    item: Cell<Option<NonNull<u8>>>,
    value: NonNull<u8>,
    len: usize,
    /// How much of the value, from its beginning, has been written.
    filled: usize,
}

// SAFETY: the memory is the reservation's alone as long as `item` has it, and its owner may be told from any
// thread.
unsafe impl Send for Reservation {}

impl Reservation {
    /// The reservation of `item`, whose value is to be written to `len` bytes at `value`.
    ///
    /// # Safety
    ///
    /// 1. Both are valid until `owner` is told to release the item, or the item is
    ///    [forgotten](Self::forget_item).
    /// 2. The value's memory is nobody else's until then.
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

    /// Bytes of the whole value.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the value has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether all of the value has been written.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.filled == self.len
    }

    /// Memory for what is missing of the value.
    pub fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: `new` 1 and 2: a reservation that can be called has its item.
        unsafe {
            let at = self.value.add(self.filled).cast().as_ptr();
            std::slice::from_raw_parts_mut(at, self.len - self.filled)
        }
    }

    /// The next `count` bytes of the value have been written.
    ///
    /// # Safety
    ///
    /// The first `count` bytes of [`spare`](Self::spare) are initialised.
    pub unsafe fn advance(&mut self, count: usize) {
        debug_assert!(count <= self.len - self.filled);
        self.filled += count;
    }

    /// Writes the next bytes of the value; those that it has no room for are left. Returns how many were
    /// taken.
    pub fn extend(&mut self, bytes: &[u8]) -> usize {
        let spare = self.spare();
        let count = bytes.len().min(spare.len());
        // SAFETY: `spare` has room for these bytes, and is nobody else's; they are initialised then.
        unsafe {
            let to = spare.as_mut_ptr().cast::<u8>();
            to.copy_from_nonoverlapping(bytes.as_ptr(), count);
            self.advance(count);
        }
        count
    }

    /// What has been written of the value.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        // SAFETY: `new` 1 and 2, and `advance`.
        unsafe { std::slice::from_raw_parts(self.value.as_ptr(), self.filled) }
    }

    /// The item, if it is whole and this owner's.
    pub(crate) fn item_of(&self, owner: *const ()) -> Option<NonNull<u8>> {
        let is_owner = std::ptr::addr_eq(Arc::as_ptr(&self.owner), owner);
        self.item.get().filter(|_| is_owner && self.is_full())
    }

    /// The item was linked, and is the engine's. The reservation may only be dropped now.
    pub(crate) fn forget_item(&self) {
        self.item.set(None);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            // SAFETY: `new`, and the item was not forgotten.
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
