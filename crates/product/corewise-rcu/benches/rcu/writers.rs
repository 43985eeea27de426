//! Writers that replace an object and retire the old one as fast as possible.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Barrier;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use corewise_atomic::CachePadded;
use corewise_rcu::Domain;
use crossbeam_epoch::{Atomic, Owned};
use seize::{Collector, Guard as _};

use crate::report::{Candidate, Options, Row, print_ratio, print_row, take_turns};

const SLICE: Duration = Duration::from_millis(20);
/// Replacements between two reads of the clock and the backlog.
const STRIDE: u64 = 64;
/// Number of threads that create and drop objects.
const LANES: usize = 4;

thread_local! {
    /// Index of the counters that the thread uses; 0 is the main thread's.
    static LANE: Cell<usize> = const { Cell::new(0) };
}

/// Objects created and dropped by one thread, the only one that writes these counters.
struct PaddedCounts {
    made: AtomicU64,
    dropped: AtomicU64,
}

/// The lanes of each candidate.
static COUNTS: [[CachePadded<PaddedCounts>; LANES]; Scheme::ALL.len()] = [const {
    [const {
        CachePadded::new(PaddedCounts {
            made: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        })
    }; LANES]
}; Scheme::ALL.len()];

fn count_one(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}

/// An object of 64 bytes that stores its scheme.
struct Object {
    scheme: Scheme,
    _content: [u64; 7],
}

const _: () = assert!(size_of::<Object>() == 64);

impl Object {
    fn new(scheme: Scheme) -> Self {
        count_one(&COUNTS[scheme as usize][LANE.get()].made);
        let _content = [0; 7];
        Self { scheme, _content }
    }

    /// Bytes of objects that are retired and not yet dropped, and of the one in place.
    fn backlog(scheme: Scheme) -> u64 {
        let lanes = &COUNTS[scheme as usize];
        // `dropped` first, so that the difference is not negative.
        let dropped: u64 = lanes.iter().map(|lane| lane.dropped.load(Relaxed)).sum();
        let made: u64 = lanes.iter().map(|lane| lane.made.load(Relaxed)).sum();
        made.saturating_sub(dropped) * size_of::<Self>() as u64
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        count_one(&COUNTS[self.scheme as usize][LANE.get()].dropped);
    }
}

#[derive(Clone, Copy)]
enum Scheme {
    Corewise,
    CorewisePinned,
    Crossbeam,
    Seize,
    SeizePinned,
}

/// The object of each scheme.
struct Places {
    domain: Domain,
    collector: Collector,
    plain: AtomicPtr<Object>,
    epoch: Atomic<Object>,
}

impl Scheme {
    const ALL: [Scheme; 5] = [
        Self::Corewise,
        Self::CorewisePinned,
        Self::Crossbeam,
        Self::Seize,
        Self::SeizePinned,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Corewise => "Domain::defer_drop",
            Self::CorewisePinned => "Domain::defer_drop in a guard",
            Self::Crossbeam => "crossbeam_epoch::Guard::defer_destroy",
            Self::Seize => "seize::Collector::retire",
            Self::SeizePinned => "seize::Guard::defer_retire",
        }
    }

    /// Replaces the object once.
    #[inline(always)]
    fn replace(self, places: &Places) {
        match self {
            Self::Corewise => {
                // SAFETY: made by `Box`; new sections do not find it, and it is deferred once.
                unsafe { places.domain.defer_drop(places.swap(self)) };
            }
            Self::CorewisePinned => {
                let _guard = places.domain.pin();
                // SAFETY: made by `Box`; new sections do not find it, and it is deferred once.
                unsafe { places.domain.defer_drop(places.swap(self)) };
            }
            Self::Crossbeam => {
                let guard = crossbeam_epoch::pin();
                let new = Owned::new(Object::new(self));
                let old = places.epoch.swap(new, AcqRel, &guard);
                // SAFETY: new sections do not find it, and it is retired once.
                unsafe { guard.defer_destroy(old) };
            }
            Self::Seize => {
                let old = places.swap(self).as_ptr();
                // SAFETY: new sections do not find it, it is retired once, and it comes from a box.
                unsafe { places.collector.retire(old, seize::reclaim::boxed) };
            }
            Self::SeizePinned => {
                let guard = places.collector.enter();
                let old = places.swap(self).as_ptr();
                // SAFETY: made by `Box`; new sections do not find it, and it is retired once.
                unsafe { guard.defer_retire(old, seize::reclaim::boxed) };
            }
        }
    }

    /// Replaces the object for the length of a slice; returns the count and the largest backlog
    /// seen.
    #[inline(always)]
    fn work(self, places: &Places) -> (u64, u64) {
        let (mut count, mut peak) = (0, 0);
        let end = Instant::now() + SLICE;
        while Instant::now() < end {
            (0..STRIDE).for_each(|_| self.replace(places));
            count += STRIDE;
            peak = peak.max(Object::backlog(self));
        }
        (count, peak)
    }

    /// Like `work`, compiled separately for each scheme.
    #[inline(never)]
    fn work_apart(self, places: &Places) -> (u64, u64) {
        match self {
            Self::Corewise => Self::Corewise.work(places),
            Self::CorewisePinned => Self::CorewisePinned.work(places),
            Self::Crossbeam => Self::Crossbeam.work(places),
            Self::Seize => Self::Seize.work(places),
            Self::SeizePinned => Self::SeizePinned.work(places),
        }
    }
}

impl Places {
    fn new(scheme: Scheme) -> Self {
        let object = Box::into_raw(Box::new(Object::new(scheme)));
        Self {
            domain: Domain::new(),
            collector: Collector::new(),
            plain: AtomicPtr::new(object),
            epoch: Atomic::new(Object::new(scheme)),
        }
    }

    /// Puts a new object into the plain place.
    #[inline(always)]
    fn swap(&self, scheme: Scheme) -> NonNull<Object> {
        let new = Box::into_raw(Box::new(Object::new(scheme)));
        NonNull::new(self.plain.swap(new, AcqRel)).expect("there always is one")
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        // SAFETY: the places are not shared.
        unsafe {
            drop(Box::from_raw(*self.plain.get_mut()));
            drop(std::mem::take(&mut self.epoch).into_owned());
        }
    }
}

/// Millions of replacements per second by `writers` threads; updates the peak.
fn measure(scheme: Scheme, places: &Places, writers: usize, peak: &Cell<u64>) -> f64 {
    let start = Barrier::new(writers);
    let counts = thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|number| {
                let start = &start;
                scope.spawn(move || {
                    LANE.set(number + 1);
                    start.wait();
                    scheme.work_apart(places)
                })
            })
            .collect();
        let results = threads.into_iter().map(|thread| thread.join().unwrap());
        results.collect::<Vec<_>>()
    });
    peak.set(
        counts
            .iter()
            .map(|(_, peak)| *peak)
            .fold(peak.get(), u64::max),
    );
    let total: u64 = counts.iter().map(|(count, _)| count).sum();
    total as f64 / SLICE.as_secs_f64() / 1e6
}

pub(crate) fn run(options: &Options) {
    for writers in [1, 2] {
        println!("\nWriters: allocate, swap, retire; {writers} at a time");
        let places = Scheme::ALL.map(Places::new);
        let peaks: [Cell<u64>; Scheme::ALL.len()] = Default::default();
        let candidates = Scheme::ALL.map(|scheme| {
            let (places, peak) = (&places[scheme as usize], &peaks[scheme as usize]);
            Candidate::new(scheme.name(), move || {
                measure(scheme, places, writers, peak)
            })
        });
        let rows = take_turns(options, 2, candidates.into());
        for (row, peak) in rows.iter().zip(&peaks) {
            print_row(row, "M/s");
            println!("  {:<44} {:>9} KiB", "    peak backlog", peak.get() / 1024);
        }
        compare(&rows);
    }
}

fn compare(rows: &[Row]) {
    let of = |scheme: Scheme| &rows[scheme as usize];
    print_ratio(of(Scheme::CorewisePinned), of(Scheme::Crossbeam), None);
    print_ratio(of(Scheme::CorewisePinned), of(Scheme::SeizePinned), None);
    print_ratio(of(Scheme::Corewise), of(Scheme::Seize), None);
}
