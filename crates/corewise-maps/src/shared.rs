//! Boxes whose addresses others may have.

use std::ptr::NonNull;

/// The owner of a value in a box, beside readers who have its address.
///
/// A `Box` is its value's only way in: moving one, as into a closure, ends what was borrowed by other ways, and the
/// compiler may assume that nobody reads the value behind its back. This is an address and says nothing of the
/// kind, until it is dropped and frees the value.
pub(crate) struct Shared<T>(NonNull<T>);

// SAFETY: it is the box.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(NonNull::from(Box::leak(Box::new(value))))
    }

    /// The owner of a value whose address was [kept](Self::keep) somewhere.
    ///
    /// # Safety
    ///
    /// 1. The address is from `keep`, and there is no other owner.
    /// 2. When this is dropped nobody else uses the value any more.
    pub(crate) unsafe fn of(address: NonNull<T>) -> Self {
        Self(address)
    }

    /// The address, which is valid as long as the value has an owner or was kept.
    pub(crate) fn address(&self) -> NonNull<T> {
        self.0
    }

    /// Gives up the value without freeing it: the owner of the address owns the value.
    pub(crate) fn keep(self) -> NonNull<T> {
        let address = self.0;
        std::mem::forget(self);
        address
    }

    /// The value itself.
    ///
    /// # Safety
    ///
    /// 1. Nobody else has the address.
    pub(crate) unsafe fn into_inner(self) -> T {
        // SAFETY: made by `new`, and ours alone, by 1.
        *unsafe { Box::from_raw(self.keep().as_ptr()) }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: made by `new`; nobody else uses it: it was never shared, or the caller of `of` answers for that.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
