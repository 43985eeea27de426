//! Code and values of users, which may panic where the panic concerns none of the threads involved.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc as StdArc;

/// Wakes a server. (loom's `Arc` has no trait objects.)
pub(super) type Waker = StdArc<dyn Fn() + Send + Sync>;

/// A waker that any thread may drop: the last of its clones is perhaps that of a client.
pub(super) fn waker(wake: impl Fn() + Send + Sync + 'static) -> Waker {
    let wake = Contained(ManuallyDrop::new(wake));
    StdArc::new(move || wake.get()())
}

/// Calls a waker, outside of all locks. Its panic does not concern the client that calls it.
pub(super) fn call(waker: &Waker) {
    contain_panic(|| waker());
}

/// Payloads of panics that are dropped, each of which is the panic of dropping the one before.
const PAYLOADS: usize = 8;

/// Calls code whose panic does not concern the caller.
///
/// The payload of its panic may panic when it is dropped, with another payload. The last of
/// [`PAYLOADS`] is leaked.
pub(super) fn contain_panic(foreign: impl FnOnce()) {
    let mut ended = catch_unwind(AssertUnwindSafe(foreign));
    for _ in 0..PAYLOADS {
        match ended {
            Ok(()) => return,
            Err(payload) => ended = catch_unwind(AssertUnwindSafe(|| drop(payload))),
        }
    }
    std::mem::forget(ended);
}

/// A value whose panic in `Drop` does not concern the thread that drops it.
struct Contained<T>(ManuallyDrop<T>);

impl<T> Contained<T> {
    fn get(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for Contained<T> {
    fn drop(&mut self) {
        // SAFETY: dropped once, here, and not used afterwards.
        contain_panic(|| unsafe { ManuallyDrop::drop(&mut self.0) });
    }
}
