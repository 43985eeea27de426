//! Measures how long threads wait for locks.

use corewise_atomic::lock::{Mutex, MutexGuard};

/// Takes a lock and returns the nanoseconds it waited, if another thread held the lock.
///
/// An uncontended lock costs no more than without this: the clock is read only when the first
/// attempt fails.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> (MutexGuard<'_, T>, Option<u64>) {
    // The model checkers' clock stands still, and a second attempt is another branch for them to
    // explore.
    if cfg!(any(corewise_loom, corewise_shuttle)) {
        return (mutex.lock(), None);
    }
    match mutex.try_lock() {
        Some(guard) => (guard, None),
        None => wait(mutex),
    }
}

#[cold]
fn wait<T>(mutex: &Mutex<T>) -> (MutexGuard<'_, T>, Option<u64>) {
    let since = corewise_atomic::time::now_ns();
    let guard = mutex.lock();
    let waited = corewise_atomic::time::now_ns().saturating_sub(since);
    (guard, Some(waited))
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_a_lock_that_is_held_is_waited_for() {
        let mutex = Mutex::new(());
        assert_eq!(lock(&mutex).1, None);
        let wait_once = || {
            let guard = mutex.lock();
            std::thread::scope(|scope| {
                let other = scope.spawn(|| lock(&mutex).1);
                std::thread::sleep(Duration::from_millis(1));
                drop(guard);
                other.join().expect("no panic")
            })
        };
        // A thread that starts late finds the lock free, but not every time.
        let waited = (0..10_000).find_map(|_| wait_once());
        assert!(waited.is_some_and(|ns| ns > 0), "{waited:?}");
    }
}
