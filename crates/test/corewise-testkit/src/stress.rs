//! Threads that start together, run beside another one, or come and go.
//!
//! 1. The threads of a call start together: none begins its work before all of them run.
//! 2. A call returns only after its threads have ended, including the destructors of their
//!    thread-locals.
//! 3. If a closure panics, so does the call, after all threads have ended.
//!
//! No function looks at a clock: the caller decides how much work there is.

use std::panic::resume_unwind;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};

/// Calls `work` in each of `threads` threads, with the number of the thread. Returns the results in
/// the order of the numbers.
///
/// ```
/// let squares = corewise_testkit::stress::together(3, |thread| thread * thread);
/// assert_eq!(squares, [0, 1, 4]);
/// ```
///
/// # Panics
///
/// If `work` panics.
pub fn together<R: Send>(threads: u64, work: impl Fn(u64) -> R + Sync) -> Vec<R> {
    let start = Barrier::new(threads as usize);
    returned(thread::scope(|scope| {
        start_and_join(scope, threads, &start, &work)
    }))
}

/// As [`together`], while `other` runs in another thread. It must return soon after `is_over` has
/// become true, which happens when all `work` is done. If `other` returns earlier, `is_over`
/// becomes true then.
///
/// ```
/// use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
///
/// let (is_over, count) = (AtomicBool::new(false), AtomicU64::new(0));
/// let watch = || while !is_over.load(Relaxed) { assert!(count.load(Relaxed) <= 200) };
/// corewise_testkit::stress::beside(2, &is_over, watch, |_| {
///     (0..100).for_each(|_| _ = count.fetch_add(1, Relaxed));
/// });
/// ```
///
/// # Panics
///
/// If `work` or `other` panics. If the system refuses a thread, the call does not return: those
/// that have started wait for it.
pub fn beside<R: Send>(
    threads: u64,
    is_over: &AtomicBool,
    other: impl FnOnce() + Send,
    work: impl Fn(u64) -> R + Sync,
) -> Vec<R> {
    let start = Barrier::new(threads as usize + 1);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let _over = SetOnDrop(is_over);
            start.wait();
            other();
        });
        let done = start_and_join(scope, threads, &start, &work);
        // Relaxed: the flag orders nothing; the thread is joined.
        is_over.store(true, Ordering::Relaxed);
        let other = other.join();
        let results = returned(done);
        returned([other]);
        results
    })
}

/// Calls `work(generation, thread)` for each of `threads` numbers in `generations` threads, one
/// after the other: the next one starts when the one before it has ended. Numbers do not wait for
/// each other, so threads come and go while others work, and at most `threads` of them exist at a
/// time. Returns the results of the first number, then those of the second, and so on.
///
/// ```
/// let results = corewise_testkit::stress::come_and_go(2, 2, |generation, thread| {
///     10 * thread + generation
/// });
/// assert_eq!(results, [0, 1, 10, 11]);
/// ```
///
/// # Panics
///
/// If `work` panics.
pub fn come_and_go<R: Send>(
    generations: u64,
    threads: u64,
    work: impl Fn(u64, u64) -> R + Sync,
) -> Vec<R> {
    let results = together(threads, |thread| {
        let one = |generation| together(1, |_| work(generation, thread)).remove(0);
        (0..generations).map(one).collect::<Vec<_>>()
    });
    results.into_iter().flatten().collect()
}

/// Joins each thread, because the end of a scope does not wait for destructors of thread-locals.
fn start_and_join<'scope, R: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    threads: u64,
    start: &'scope Barrier,
    work: &'scope (impl Fn(u64) -> R + Sync),
) -> Vec<thread::Result<R>> {
    let start_one = |thread| {
        scope.spawn(move || {
            start.wait();
            work(thread)
        })
    };
    let running: Vec<_> = (0..threads).map(start_one).collect();
    running.into_iter().map(|thread| thread.join()).collect()
}

/// Panics as the first thread that has panicked.
fn returned<R>(results: impl IntoIterator<Item = thread::Result<R>>) -> Vec<R> {
    let value = |result: thread::Result<R>| result.unwrap_or_else(|payload| resume_unwind(payload));
    results.into_iter().map(value).collect()
}

/// Sets a flag, also when its thread panics.
struct SetOnDrop<'f>(&'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        // Relaxed: as in `beside`.
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    struct OneLess(&'static AtomicU64);

    impl Drop for OneLess {
        fn drop(&mut self) {
            self.0.fetch_sub(1, SeqCst);
        }
    }

    #[test]
    fn all_threads_run_before_one_works() {
        let start = Barrier::new(4);
        together(4, |_| start.wait());
        let (start, is_over) = (Barrier::new(3), AtomicBool::new(false));
        let meet = || _ = start.wait();
        beside(2, &is_over, meet, |_| meet());
        assert!(is_over.into_inner());
    }

    #[test]
    fn few_threads_exist_at_a_time_and_their_destructors_have_run() {
        static ALIVE: AtomicU64 = AtomicU64::new(0);
        thread_local! {
            static LATE: RefCell<Option<OneLess>> = const { RefCell::new(None) };
        }
        let begun = AtomicU64::new(0);
        come_and_go(50, 3, |_, _| {
            begun.fetch_add(1, SeqCst);
            assert!(ALIVE.fetch_add(1, SeqCst) < 3);
            LATE.set(Some(OneLess(&ALIVE)));
        });
        assert_eq!((begun.into_inner(), ALIVE.load(SeqCst)), (150, 0));
    }

    #[test]
    fn a_panic_ends_the_run_and_reaches_the_caller() {
        let panics = |call: &dyn Fn()| {
            let payload = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
            assert_eq!(payload.downcast_ref(), Some(&"expected"));
        };
        // Bypasses the panic hook, which would print it.
        let panic = || {
            resume_unwind(Box::new("expected"));
        };
        let wait = |is_over: &AtomicBool| {
            while !is_over.load(SeqCst) {
                thread::yield_now();
            }
        };
        panics(&|| _ = together(2, |_| panic()));
        panics(&|| _ = come_and_go(2, 2, |generation, _| (generation > 0).then(panic)));
        let is_over = AtomicBool::new(false);
        panics(&|| _ = beside(2, &is_over, || wait(&is_over), |_| panic()));
        let is_over = AtomicBool::new(false);
        panics(&|| _ = beside(2, &is_over, panic, |_| wait(&is_over)));
    }
}
