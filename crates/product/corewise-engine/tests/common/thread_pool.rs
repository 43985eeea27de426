//! Threads that run together and are notified if one of them fails.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// State that the threads share.
struct ThreadPool {
    size: u64,
    arrived: AtomicU64,
    over: AtomicBool,
}

/// One of the threads. If it panics, the run is over for the other threads, too.
pub struct Worker<'a> {
    /// The thread's number, from 0 on.
    pub thread: u64,
    pool: &'a ThreadPool,
}

impl Worker<'_> {
    /// Whether a thread has ended the run, or has panicked.
    pub fn is_over(&self) -> bool {
        // Acquire: pairs with the Release in `finish`.
        self.pool.over.load(Ordering::Acquire)
    }

    /// Ends the run for all threads.
    pub fn finish(&self) {
        // Release: pairs with the Acquire in `is_over`.
        self.pool.over.store(true, Ordering::Release);
    }

    /// Waits until all other threads have called this equally often.
    pub fn meet(&self) {
        let size = self.pool.size;
        // AcqRel: pairs with the Acquire below and with itself, so that a thread that returns sees
        // what the others did.
        let arrived = self.pool.arrived.fetch_add(1, Ordering::AcqRel);
        let all = (arrived / size + 1) * size;
        // Acquire: see above.
        while self.pool.arrived.load(Ordering::Acquire) < all {
            assert!(!self.is_over(), "another thread has failed");
            std::thread::yield_now();
        }
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.finish();
        }
    }
}

/// Runs `work` for each element of `given` in a separate thread. The threads start together.
/// Returns their results in order.
pub fn at_once<G: Send, R: Send>(
    given: impl IntoIterator<Item = G>,
    work: impl Fn(G, Worker<'_>) -> R + Sync,
) -> Vec<R> {
    let given: Vec<G> = given.into_iter().collect();
    let pool = ThreadPool {
        size: given.len() as u64,
        arrived: AtomicU64::new(0),
        over: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let (pool, work) = (&pool, &work);
        let start = |(thread, given)| {
            scope.spawn(move || {
                let worker = Worker { thread, pool };
                worker.meet();
                work(given, worker)
            })
        };
        let running: Vec<_> = (0..).zip(given).map(start).collect();
        let results = running.into_iter().map(|thread| thread.join());
        results.map(|result| result.expect("no panic")).collect()
    })
}
