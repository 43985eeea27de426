//! Deferred closures, and the rules for running them.
//!
//! 1. *Panics are contained.* A closure that panics neither prevents other closures of its batch
//!    from running nor unwinds the thread that runs it, which is hardly ever the thread that
//!    deferred it. The panic hook reports the panic.
//! 2. *No recursion.* A closure that runs may defer more. These closures are only stored then, for
//!    a later call; a chain of objects, each of which defers the next, needs no stack.

use std::cell::Cell;
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

/// A closure to run after a grace period; runs when dropped.
pub(crate) struct Deferred {
    data: *mut (),
    run: unsafe fn(*mut ()),
}

// SAFETY: made of a box whose contents are `Send`.
unsafe impl Send for Deferred {}

impl Deferred {
    pub(crate) fn call<F: FnOnce() + Send + 'static>(f: F) -> Self {
        /// # Safety
        ///
        /// 1. `data` is a `Box<F>` turned into a pointer, and is owned by the caller.
        unsafe fn run<F: FnOnce()>(data: *mut ()) {
            // SAFETY: `data` was made from a box of this type, and the caller owns it, by 1.
            let f = unsafe { Box::from_raw(data.cast::<F>()) };
            f();
        }
        Self {
            data: Box::into_raw(Box::new(f)).cast(),
            run: run::<F>,
        }
    }

    /// Drops a boxed object. It stays a pointer until then: a `Box` would assert exclusive access
    /// to the object, which readers may still use.
    ///
    /// # Safety
    ///
    /// 1. `object` comes from [`Box::into_raw`] or the like, and nothing else frees it.
    /// 2. No thread uses it when the value is dropped.
    pub(crate) unsafe fn drop_box<T: Send + 'static>(object: NonNull<T>) -> Self {
        /// # Safety
        ///
        /// 1. `data` was a `Box<T>`, and no other code uses or frees it.
        unsafe fn run<T>(data: *mut ()) {
            // SAFETY: `data` was made from a box of this type, and nothing else uses or frees it,
            // by 1.
            drop(unsafe { Box::from_raw(data.cast::<T>()) });
        }
        Self {
            data: object.cast().as_ptr(),
            run: run::<T>,
        }
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        // SAFETY: `data` was made for `run`, and this runs once.
        unsafe { (self.run)(self.data) };
    }
}

/// Runs all closures of a batch and leaves it empty; see 1 above.
pub(crate) fn run_all(batch: &mut Vec<Deferred>) {
    let mut rest = batch.drain(..);
    while rest.len() > 0 {
        contain(|| rest.by_ref().for_each(drop));
    }
}

/// Calls a function whose panics must not reach the caller. The panic hook reports them.
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
pub(crate) fn contain(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        // The panic payload may itself panic when dropped.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(again);
        }
    }
}

/// loom and shuttle must see every panic.
#[cfg(any(corewise_loom, corewise_shuttle))]
pub(crate) fn contain(f: impl FnOnce()) {
    f();
}

corewise_atomic::thread_local! {
    /// The innermost [`reclaiming`] call of the calling thread; null if there is none.
    static INNERMOST: Cell<*const Reclaiming> = const { Cell::new(ptr::null()) };
}

/// One [`reclaiming`] call on the stack of a thread.
struct Reclaiming {
    owner: *const (),
    outer: *const Reclaiming,
}

/// Whether the calling thread is inside [`reclaiming`] for this owner.
pub fn is_reclaiming(owner: *const ()) -> bool {
    let mut at = innermost();
    // SAFETY: the entries lie on this thread's stack, in calls that have not returned.
    while let Some(entry) = unsafe { at.as_ref() } {
        if entry.owner == owner {
            return true;
        }
        at = entry.outer;
    }
    false
}

/// Calls `work`, which reclaims from a [`RetireList`](crate::RetireList) of this owner.
///
/// Destructors that run meanwhile can check [`is_reclaiming`] and leave reclamation to the outer
/// call: otherwise a chain of objects, each of which retires the next, would need stack for all of
/// them. The owner is an address that identifies it; it is not dereferenced.
pub fn reclaiming<R>(owner: *const (), work: impl FnOnce() -> R) -> R {
    /// Removes the entry when dropped.
    struct Leave(*const Reclaiming);
    impl Drop for Leave {
        fn drop(&mut self) {
            // SAFETY: this is null or the outer entry, which lies on this thread's stack in a call
            // that has not returned (1).
            unsafe { set_innermost(self.0) };
        }
    }
    let outer = innermost();
    let entry = Reclaiming { owner, outer };
    let _leave = Leave(outer);
    // SAFETY: the entry lies on this thread's stack, and `_leave` replaces it before this call
    // returns (1).
    unsafe { set_innermost(&entry) };
    work()
}

/// Null if loom or shuttle has dropped the thread's locals already; this cannot happen in the
/// normal build.
fn innermost() -> *const Reclaiming {
    INNERMOST.try_with(Cell::get).unwrap_or(ptr::null())
}

/// # Safety
///
/// 1. The entry is null, or it lies on this thread's stack and is replaced before it is dropped.
unsafe fn set_innermost(entry: *const Reclaiming) {
    let _ = INNERMOST.try_with(|innermost| innermost.set(entry));
}
