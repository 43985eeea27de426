//! Boxes whose addresses are shared with readers.

use std::ptr::NonNull;

/// The owner of a boxed value whose address readers may have.
///
/// A `Box` is the only access path to its value: moving one, for example into a closure,
/// invalidates borrows through other paths, and the compiler may assume that no other thread reads
/// the value. This type is a plain address without such assumptions, until it is dropped and frees
/// the value.
pub struct Shared<T>(NonNull<T>);

// SAFETY: it is equivalent to the box.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    /// Boxes a value.
    pub fn new(value: T) -> Self {
        Self(NonNull::from(Box::leak(Box::new(value))))
    }

    /// Recreates the owner of a value from an address that was [kept](Self::keep).
    ///
    /// # Safety
    ///
    /// 1. The address is from `keep`, and there is no other owner.
    /// 2. When this is dropped, no other thread uses the value any more.
    pub unsafe fn of(address: NonNull<T>) -> Self {
        Self(address)
    }

    /// The address, which is valid as long as the value has an owner or was kept.
    pub fn address(&self) -> NonNull<T> {
        self.0
    }

    /// Releases ownership without freeing the value: the holder of the address now owns it.
    pub fn keep(self) -> NonNull<T> {
        let address = self.0;
        std::mem::forget(self);
        address
    }

    /// Takes the value out of the box.
    ///
    /// # Safety
    ///
    /// 1. No other thread has the address.
    pub unsafe fn into_inner(self) -> T {
        // SAFETY: made by `new`, and ours alone, by 1.
        *unsafe { Box::from_raw(self.keep().as_ptr()) }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: made by `new`. No other thread uses it: either it was never shared, or the caller
        // of `of` guarantees this.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
