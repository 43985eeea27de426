//! The cost of a grace period to the writer that waits for it.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use corewise_rcu::Domain;

use crate::report::{Candidate, Options, print_row, take_turns};

const READERS: [usize; 5] = [0, 1, 2, 4, 8];
/// Minimum number of grace periods in a slice.
const PERIODS: u32 = 50;
/// Minimum length of a slice: some grace periods wait for a reader that the scheduler has
/// preempted, and their share should not depend on luck.
const SLICE: Duration = Duration::from_millis(20);

/// Microseconds per grace period, beside threads that have a record and, if `busy`, enter and leave
/// sections all the time.
fn measure(readers: usize, busy: bool) -> f64 {
    let domain = Domain::new();
    let (ready, over) = (Barrier::new(readers + 1), Barrier::new(readers + 1));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(|| {
                drop(domain.pin());
                ready.wait();
                while busy && !stop.load(Relaxed) {
                    drop(domain.pin());
                }
                over.wait();
            });
        }
        ready.wait();
        let micros = micros_a_period(&domain);
        stop.store(true, Relaxed);
        over.wait();
        micros
    })
}

fn micros_a_period(domain: &Domain) -> f64 {
    let (start, mut periods) = (Instant::now(), 0);
    while periods < PERIODS || start.elapsed() < SLICE {
        domain.synchronize();
        periods += 1;
    }
    start.elapsed().as_secs_f64() * 1e6 / f64::from(periods)
}

pub(crate) fn run(options: &Options) {
    println!("\nGrace periods: Domain::synchronize");
    let kinds = [("idle", false), ("entering and leaving", true)];
    let candidates = kinds.into_iter().flat_map(|(kind, busy)| {
        READERS.into_iter().filter_map(move |readers| {
            // Without readers, idle and busy are the same.
            let is_new = readers > 0 || !busy;
            let name = format!("{readers} readers, {kind}");
            is_new.then(|| Candidate::new(name, move || measure(readers, busy)))
        })
    });
    let rows = take_turns(options, 1, candidates.collect());
    rows.iter().for_each(|row| print_row(row, "µs"));
}
