//! Entering a section, one load, and leaving it.

use std::hint::black_box;
use std::sync::atomic::{AtomicPtr, Ordering::Acquire};
use std::time::Instant;

use corewise_rcu::{Domain, Qsbr};
use crossbeam_epoch::Atomic;
use seize::{Collector, Guard as _};

use crate::report::{Candidate, Options, Row, print_ratio, print_row, take_turns};

/// Rounds of a slice: about 500 µs at most.
const ROUNDS: u32 = 50_000;
/// Slices of each candidate in a repetition.
const SLICES: usize = 15;

static PLACE: AtomicPtr<u64> = AtomicPtr::new(std::ptr::null_mut());
static EPOCH_PLACE: Atomic<u64> = Atomic::null();

/// Nanoseconds per round.
#[inline(always)]
fn time(mut round: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..ROUNDS).for_each(|_| round());
    start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
}

#[inline(always)]
fn load() {
    black_box(PLACE.load(Acquire));
}

#[inline(never)]
fn nothing() -> f64 {
    time(load)
}

#[inline(never)]
fn global() -> f64 {
    time(|| {
        let _guard = corewise_rcu::pin();
        load();
    })
}

#[inline(never)]
fn own_domain(domain: &Domain) -> f64 {
    time(|| {
        let _guard = domain.pin();
        load();
    })
}

#[inline(never)]
fn nested() -> f64 {
    let _outer = corewise_rcu::pin();
    global()
}

#[inline(never)]
fn quiescent(qsbr: &mut Qsbr<'_>) -> f64 {
    time(|| {
        black_box(qsbr.section());
        load();
        qsbr.quiescent();
    })
}

#[inline(never)]
fn crossbeam() -> f64 {
    time(|| {
        let guard = crossbeam_epoch::pin();
        black_box(EPOCH_PLACE.load(Acquire, &guard));
    })
}

#[inline(never)]
fn seize(collector: &Collector) -> f64 {
    time(|| {
        let guard = collector.enter();
        black_box(guard.protect(&PLACE, Acquire));
    })
}

pub(crate) fn run(options: &Options) {
    println!("\nGuards: enter, load, leave");
    let (domain, online, collector) = (Domain::new(), Domain::new(), Collector::new());
    let mut qsbr = online.qsbr();
    let rows = take_turns(
        options,
        SLICES,
        vec![
            Candidate::new("corewise_rcu::pin", global),
            Candidate::new("crossbeam_epoch::pin", crossbeam),
            Candidate::new("seize::Collector::enter", || seize(&collector)),
            Candidate::new("Domain::pin, a separate domain", || own_domain(&domain)),
            Candidate::new("corewise_rcu::pin, nested", nested),
            Candidate::new("Qsbr::section and quiescent", || quiescent(&mut qsbr)),
            Candidate::new("the load alone", nothing),
        ],
    );
    rows.iter().for_each(|row| print_row(row, "ns"));
    let [global, crossbeam, seize, own, ..] = &rows[..] else {
        unreachable!("seven candidates");
    };
    compare(global, crossbeam, seize, [Some(0.5), Some(1.0)]);
    compare(own, crossbeam, seize, [None; 2]);
}

fn compare(one: &Row, crossbeam: &Row, seize: &Row, bars: [Option<f64>; 2]) {
    print_ratio(one, crossbeam, bars[0]);
    print_ratio(one, seize, bars[1]);
}
