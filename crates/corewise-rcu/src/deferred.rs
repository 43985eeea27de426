//! What is done after a grace period, and by whom.
//!
//! 1. *Panics stay where they are.* A closure that panics keeps no other of its batch from running,
//!    and unwinds nobody: who reclaims it is hardly ever who deferred it. The panic hook reports it.
//! 2. *No recursion.* What is reclaimed may defer more. It is only put aside then, for a later call;
//!    a chain of objects, each of which defers the next, needs no stack.

use std::cell::Cell;
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

/// What to do after a grace period; done when dropped.
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
        /// 1. `data` is a `Box<F>` turned into a pointer, and nobody else's.
        unsafe fn run<F: FnOnce()>(data: *mut ()) {
            // SAFETY: 1.
            let f = unsafe { Box::from_raw(data.cast::<F>()) };
            f();
        }
        Self {
            data: Box::into_raw(Box::new(f)).cast(),
            run: run::<F>,
        }
    }

    /// Drops a boxed object. It stays a pointer until then: a `Box` would assert that nobody else
    /// uses the object, while readers do.
    ///
    /// # Safety
    ///
    /// 1. `object` comes from [`Box::into_raw`] or the like, and nothing else frees it.
    /// 2. Nobody uses it any more when the value is dropped.
    pub(crate) unsafe fn drop_box<T: Send + 'static>(object: NonNull<T>) -> Self {
        /// # Safety
        ///
        /// 1. `data` was a `Box<T>`, and nobody uses or frees it.
        unsafe fn run<T>(data: *mut ()) {
            // SAFETY: 1.
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

/// Runs all of a batch, which is empty then; see 1 above.
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
pub(crate) fn run_all(batch: &mut Vec<Deferred>) {
    let mut rest = batch.drain(..);
    while let Err(payload) = catch_unwind(AssertUnwindSafe(|| rest.by_ref().for_each(drop))) {
        // What was thrown may throw again when dropped.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(again);
        }
    }
}

/// The checkers must hear of every panic.
#[cfg(any(corewise_loom, corewise_shuttle))]
pub(crate) fn run_all(batch: &mut Vec<Deferred>) {
    batch.clear();
}

corewise_atomic::thread_local! {
    /// The innermost reclaiming of the calling thread, null if there is none.
    static INNERMOST: Cell<*const Reclaiming> = const { Cell::new(ptr::null()) };
}

/// One reclaiming on the stack of a thread.
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

/// Calls `work`, which reclaims from a [`Limbo`](crate::Limbo) of this owner, so that what is dropped
/// meanwhile can find out by [`is_reclaiming`] that it need not: a chain of objects, each of which
/// retires the next, would need stack for all of them. The owner is an address that tells it from
/// others, and is not followed.
pub fn reclaiming<R>(owner: *const (), work: impl FnOnce() -> R) -> R {
    /// Takes the entry out when dropped.
    struct Leave(*const Reclaiming);
    impl Drop for Leave {
        fn drop(&mut self) {
            set_innermost(self.0);
        }
    }
    let outer = innermost();
    let entry = Reclaiming { owner, outer };
    let _leave = Leave(outer);
    set_innermost(&entry);
    work()
}

/// Null when the checkers have dropped the thread's locals already; in the normal build that
/// cannot be.
fn innermost() -> *const Reclaiming {
    INNERMOST.try_with(Cell::get).unwrap_or(ptr::null())
}

fn set_innermost(entry: *const Reclaiming) {
    let _ = INNERMOST.try_with(|innermost| innermost.set(entry));
}
