//! Threads that work at once, of which each hears if another one fails.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What the threads share.
struct Crew {
    size: u64,
    arrived: AtomicU64,
    over: AtomicBool,
}

/// One of the threads. If it panics, it is over for the others, too.
pub struct Seat<'a> {
    /// Its number, from 0 on.
    pub thread: u64,
    crew: &'a Crew,
}

impl Seat<'_> {
    /// Whether one of the threads has said that it is over, or has panicked.
    pub fn is_over(&self) -> bool {
        // Acquire: pairs with the Release in `finish`.
        self.crew.over.load(Ordering::Acquire)
    }

    /// Tells the others that it is over.
    pub fn finish(&self) {
        // Release: pairs with the Acquire in `is_over`.
        self.crew.over.store(true, Ordering::Release);
    }

    /// Waits until all others have come here as often as this one.
    pub fn meet(&self) {
        let size = self.crew.size;
        // AcqRel: pairs with the Acquire below and with itself; who has met sees what the others did.
        let arrived = self.crew.arrived.fetch_add(1, Ordering::AcqRel);
        let all = (arrived / size + 1) * size;
        // Acquire: see above.
        while self.crew.arrived.load(Ordering::Acquire) < all {
            assert!(!self.is_over(), "another thread has failed");
            std::thread::yield_now();
        }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.finish();
        }
    }
}

/// Runs `work` in a thread for each of `given`, which start together; their results in order.
pub fn at_once<G: Send, R: Send>(
    given: impl IntoIterator<Item = G>,
    work: impl Fn(G, Seat<'_>) -> R + Sync,
) -> Vec<R> {
    let given: Vec<G> = given.into_iter().collect();
    let crew = Crew {
        size: given.len() as u64,
        arrived: AtomicU64::new(0),
        over: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let (crew, work) = (&crew, &work);
        let start = |(thread, given)| {
            scope.spawn(move || {
                let seat = Seat { thread, crew };
                seat.meet();
                work(given, seat)
            })
        };
        let running: Vec<_> = (0..).zip(given).map(start).collect();
        let results = running.into_iter().map(|thread| thread.join());
        results.map(|result| result.expect("no panic")).collect()
    })
}
