//! Benchmark of sections, grace periods, reclamation and cells, beside crossbeam-epoch, seize and
//! arc-swap.
//!
//! ```text
//! cargo bench -p corewise-rcu                     everything, about a minute
//! cargo bench -p corewise-rcu -- guards           one part: guards, grace, writers or cells
//! cargo bench -p corewise-rcu -- --repetitions 51
//! ```
//!
//! Candidates take turns in short slices, in a new random order in every repetition. A repetition
//! has one value for each candidate, the median of its slices. The second figure of a row is the
//! ratio of the first candidate to it, of values of the same repetition (Hodges-Lehmann estimate,
//! 95 % bootstrap interval).
//!
//! # What may be unfair
//!
//! - *Guards.* Each round enters, loads one shared pointer as the library's users do
//!   (`Atomic::load`, `Guard::protect`), and leaves; every figure includes the loop and the load,
//!   which draws ratios towards 1. One thread, one domain, everything in the cache, branches
//!   predicted: the least that a guard can cost. crossbeam-epoch collects garbage on every 128th
//!   pin; that is counted, as its users pay it. seize gets its collector from a local reference and
//!   has `membarrier` too (its feature `fast-barrier`). All are inlined into the loop (fat LTO).
//! - *Grace.* seize and crossbeam-epoch free memory without grace periods that a thread waits for,
//!   so `grace` has no peers. It is measured on a machine where other threads run as well: with
//!   more readers than CPUs a grace period waits for readers that were switched out in a section,
//!   which measures the scheduler more than this crate.
//! - *Writers.* All candidates allocate, swap and retire the same boxes of 64 bytes with the same
//!   allocator. `defer_drop` here needs no guard, crossbeam-epoch's does and seize's may, so both
//!   ways are measured. Batches differ: 2,048 objects here, 64 in crossbeam-epoch, 32 in seize; so
//!   does the memory that waits. Only the writers have guards, so grace periods end at once; with
//!   readers that stay long, crossbeam-epoch and seize do not bound the memory that waits.
//! - *Cells.* A read finds the value of 64 bytes and reads one word of it. `RcuCell::load`,
//!   `ArcSwap::load` and `RwLock::read` end with the round, and while they last the reader holds up
//!   memory, holds one of eight debt slots, or holds up writers; the rows with an `Arc` may keep
//!   the value. `arc_swap::Cache` reads a copy of the `Arc` that the thread keeps, which delays the
//!   drop of an old value until that thread reads again. One value that nobody replaces meanwhile,
//!   in the cache. With 2 threads, the mean of both; beside other work on 2 CPUs they may not
//!   always run at the same time, which favours the lock and `load_full`. A replacement allocates
//!   the value; `RcuCell::store` also ends a grace period where it can and frees the old value,
//!   `ArcSwap::store` looks at the debts of all threads. The rows "again" run the same
//!   code again, for reads from another place in memory: as much as their ratio differs from 1, so
//!   much may be the place of a loop.

use std::hint::black_box;
use std::process::Command;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};
use std::sync::{Arc, Barrier, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Cache};
use corewise_measure::draw::mix;
use corewise_measure::machine::Machine;
use corewise_measure::stats::{Ratio, Spread};
use corewise_rcu::{Domain, RcuCell};
use crossbeam_epoch::{Atomic, Owned};
use seize::{Collector, Guard as _};

/// Length of a slice of writers, and the minimum of one of grace periods: some of these wait for a
/// reader that the scheduler has preempted, and their share should not depend on luck.
const SLICE: Duration = Duration::from_millis(20);
/// Replacements between two reads of the clock.
const STRIDE: u64 = 64;

type Value = [u64; 8];
/// A name, and what measures a slice.
type Candidate<'a> = (String, Box<dyn FnMut() -> f64 + 'a>);

fn candidate<'a>(name: &str, slice: impl FnMut() -> f64 + 'a) -> Candidate<'a> {
    (name.to_owned(), Box::new(slice))
}

/// Lets candidates take turns, `slices` of each in a repetition, and prints their values.
fn take_turns(repetitions: u64, slices: usize, unit: &str, mut candidates: Vec<Candidate<'_>>) {
    let count = candidates.len();
    let mut values = vec![Vec::new(); count];
    // The first repetition warms up thread-locals, caches and branch prediction.
    for repetition in 0..=repetitions {
        let mut turns: Vec<usize> = (0..count * slices).collect();
        turns.sort_by_key(|&turn| mix((repetition << 32) | turn as u64));
        let mut seen = vec![Vec::new(); count];
        for at in turns.into_iter().map(|turn| turn % count) {
            seen[at].push((candidates[at].1)());
        }
        let medians = seen.into_iter().filter_map(Spread::of);
        for (values, spread) in values.iter_mut().zip(medians).filter(|_| repetition > 0) {
            values.push(spread.median);
        }
    }
    for ((name, _), own) in candidates.iter().zip(&values) {
        let pairs = values[0].iter().copied().zip(own.iter().copied());
        let (Some(spread), Some(ratio)) = (Spread::of(own.iter().copied()), Ratio::paired(pairs))
        else {
            continue;
        };
        println!(
            "  {name:<44} {:>9.2} {unit} [{:.2}, {:.2}]   {:.3} [{:.3}, {:.3}]",
            spread.median, spread.low, spread.high, ratio.value, ratio.low, ratio.high
        );
    }
}

/// Nanoseconds per round.
#[inline(always)]
fn time(rounds: u32, mut round: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..rounds).for_each(|_| round());
    start.elapsed().as_nanos() as f64 / f64::from(rounds)
}

/// The mean of what `threads` threads measure that begin together.
fn together(threads: usize, slice: impl Fn() -> f64 + Sync) -> f64 {
    if threads == 1 {
        return slice();
    }
    let ready = AtomicUsize::new(0);
    let begun = || {
        ready.fetch_add(1, Relaxed);
        // It spins: a thread that had to be woken would begin late.
        while ready.load(Relaxed) < threads {
            std::hint::spin_loop();
        }
        slice()
    };
    let sum: f64 = thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(begun)).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    sum / threads as f64
}

/// Measures beside `readers` threads, which have a first round behind them and go on until the end;
/// `read` gets the number of its round.
fn beside(readers: usize, read: impl Fn(usize) + Sync, slice: impl FnOnce() -> f64) -> f64 {
    let (ready, stop) = (Barrier::new(readers + 1), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(|| {
                read(0);
                ready.wait();
                (1..).take_while(|_| !stop.load(Relaxed)).for_each(&read);
            });
        }
        ready.wait();
        let value = slice();
        stop.store(true, Relaxed);
        value
    })
}

fn guards(repetitions: u64) {
    println!("\nGuards: enter, load, leave");
    static PLACE: AtomicPtr<u64> = AtomicPtr::new(std::ptr::null_mut());
    static EPOCH_PLACE: Atomic<u64> = Atomic::null();
    const ROUNDS: u32 = 50_000;
    #[inline(always)]
    fn load() {
        black_box(PLACE.load(Acquire));
    }
    fn global() -> f64 {
        time(ROUNDS, || {
            let _guard = corewise_rcu::pin();
            load();
        })
    }
    fn in_domain(domain: &Domain) -> f64 {
        time(ROUNDS, || {
            let _guard = domain.pin();
            load();
        })
    }
    fn in_epoch() -> f64 {
        time(ROUNDS, || {
            let guard = crossbeam_epoch::pin();
            black_box(EPOCH_PLACE.load(Acquire, &guard));
        })
    }
    fn in_collector(collector: &Collector) -> f64 {
        time(ROUNDS, || {
            let guard = collector.enter();
            black_box(guard.protect(&PLACE, Acquire));
        })
    }
    let (domain, online, collector) = (Domain::new(), Domain::new(), Collector::new());
    let mut qsbr = online.qsbr();
    let candidates = vec![
        candidate("corewise_rcu::pin", global),
        candidate("crossbeam_epoch::pin", in_epoch),
        candidate("seize::Collector::enter", || in_collector(&collector)),
        candidate("Domain::pin, a separate domain", || in_domain(&domain)),
        candidate("corewise_rcu::pin, nested", || {
            let _outer = corewise_rcu::pin();
            global()
        }),
        candidate("Qsbr::section and quiescent", || {
            time(ROUNDS, || {
                black_box(qsbr.section());
                load();
                qsbr.quiescent();
            })
        }),
        candidate("the load alone", || time(ROUNDS, load)),
    ];
    take_turns(repetitions, 15, "ns", candidates);
}

/// Microseconds of a grace period beside threads that have a record and, if `busy`, enter and leave
/// sections all the time.
fn grace_period(readers: usize, busy: bool) -> f64 {
    let domain = Domain::new();
    let read = |round| match round {
        1.. if !busy => thread::sleep(Duration::from_millis(1)),
        _ => drop(domain.pin()),
    };
    beside(readers, read, || {
        let (start, mut periods) = (Instant::now(), 0);
        while periods < 50 || start.elapsed() < SLICE {
            domain.synchronize();
            periods += 1;
        }
        start.elapsed().as_secs_f64() * 1e6 / f64::from(periods)
    })
}

fn grace(repetitions: u64) {
    println!("\nGrace periods: Domain::synchronize");
    let mut candidates = vec![candidate("no readers", || grace_period(0, false))];
    for (kind, busy) in [("idle", false), ("entering and leaving", true)] {
        candidates.extend([1, 2, 4, 8].map(|readers| {
            let name = format!("{readers} readers, {kind}");
            candidate(&name, move || grace_period(readers, busy))
        }));
    }
    take_turns(repetitions, 1, "µs", candidates);
}

/// The objects that writers replace.
struct Places {
    domain: Domain,
    collector: Collector,
    plain: AtomicPtr<Value>,
    epoch: Atomic<Value>,
}

impl Places {
    fn new() -> Self {
        Self {
            domain: Domain::new(),
            collector: Collector::new(),
            plain: AtomicPtr::new(Box::into_raw(Box::new([0; 8]))),
            epoch: Atomic::new([0; 8]),
        }
    }

    /// Puts a new object into the plain place.
    #[inline(always)]
    fn swap(&self) -> NonNull<Value> {
        let new = Box::into_raw(Box::new([0; 8]));
        NonNull::new(self.plain.swap(new, AcqRel)).expect("there always is one")
    }

    fn defer_drop(&self) {
        // SAFETY: made by `Box`; new sections do not find it, and it is deferred once.
        unsafe { self.domain.defer_drop(self.swap()) };
    }

    fn defer_drop_in_a_guard(&self) {
        let _guard = self.domain.pin();
        self.defer_drop();
    }

    fn defer_destroy(&self) {
        let guard = crossbeam_epoch::pin();
        let old = self.epoch.swap(Owned::new([0; 8]), AcqRel, &guard);
        // SAFETY: new sections do not find it, and it is retired once.
        unsafe { guard.defer_destroy(old) };
    }

    fn retire(&self) {
        // SAFETY: made by `Box`; new sections do not find it, and it is retired once.
        unsafe {
            self.collector
                .retire(self.swap().as_ptr(), seize::reclaim::boxed)
        };
    }

    fn defer_retire(&self) {
        let guard = self.collector.enter();
        // SAFETY: made by `Box`; new sections do not find it, and it is retired once.
        unsafe { guard.defer_retire(self.swap().as_ptr(), seize::reclaim::boxed) };
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

/// Measures millions of replacements per second by `writers` threads.
fn writer<'a>(
    (name, writers): (&str, usize),
    places: &'a Places,
    replace: impl Fn(&Places) + Sync + 'a,
) -> Candidate<'a> {
    let work = move || {
        let (start, mut count) = (Instant::now(), 0);
        while start.elapsed() < SLICE {
            (0..STRIDE).for_each(|_| replace(places));
            count += STRIDE;
        }
        count as f64 / SLICE.as_secs_f64() / 1e6
    };
    candidate(name, move || together(writers, &work) * writers as f64)
}

fn writers(repetitions: u64) {
    for writers in [1, 2] {
        let [ours, epoch, seize] = [(); 3].map(|()| Places::new());
        println!("\nWriters: allocate, swap, retire in a guard; {writers} at a time");
        let candidates = vec![
            writer(
                ("Domain::defer_drop", writers),
                &ours,
                Places::defer_drop_in_a_guard,
            ),
            writer(
                ("crossbeam_epoch::Guard::defer_destroy", writers),
                &epoch,
                Places::defer_destroy,
            ),
            writer(
                ("seize::Guard::defer_retire", writers),
                &seize,
                Places::defer_retire,
            ),
        ];
        take_turns(repetitions, 2, "M/s", candidates);
        println!("\nWriters: the same without a guard; {writers} at a time");
        let candidates = vec![
            writer(("Domain::defer_drop", writers), &ours, Places::defer_drop),
            writer(
                ("seize::Collector::retire", writers),
                &seize,
                Places::retire,
            ),
        ];
        take_turns(repetitions, 2, "M/s", candidates);
    }
}

/// The same value in every kind of cell.
struct Cells {
    global: RcuCell<Value>,
    own: RcuCell<Value>,
    arc_swap: ArcSwap<Value>,
    lock: RwLock<Arc<Value>>,
}

/// Reads of a slice by each thread.
const READS: u32 = 500_000;
/// Replacements of a slice.
const STORES: u32 = 20_000;

/// What each read does with the value.
#[inline(always)]
fn look(value: &Value) {
    black_box(value[3]);
}

/// The loops that read. Those that load differ in a number only, so that each is compiled.
impl Cells {
    #[inline(never)]
    fn load<const PLACE: u8>(&self, cell: &RcuCell<Value>) -> f64 {
        black_box(PLACE);
        let cell = black_box(cell);
        time(READS, || look(&cell.load()))
    }

    fn within(&self) -> f64 {
        let cell = black_box(&self.global);
        let guard = cell.domain().pin();
        time(READS, || look(cell.within(&guard)))
    }

    fn swap_load(&self) -> f64 {
        let cell = black_box(&self.arc_swap);
        time(READS, || look(&cell.load()))
    }

    fn swap_load_full(&self) -> f64 {
        let cell = black_box(&self.arc_swap);
        time(READS, || look(&cell.load_full()))
    }

    fn swap_cache(&self) -> f64 {
        let mut cache = Cache::new(black_box(&self.arc_swap));
        time(READS, || look(cache.load()))
    }

    fn lock(&self) -> f64 {
        let cell = black_box(&self.lock);
        time(READS, || look(&cell.read().unwrap()))
    }

    fn lock_and_clone(&self) -> f64 {
        let cell = black_box(&self.lock);
        time(READS, || {
            let value = Arc::clone(&cell.read().unwrap());
            look(&value);
        })
    }

    fn store(&self) -> f64 {
        time(STORES, || self.own.store(black_box([1; 8])))
    }

    fn store_in_a_section(&self) -> f64 {
        let guard = self.own.domain().pin();
        let nanos = self.store();
        drop(guard);
        self.own.domain().barrier();
        nanos
    }
}

fn cells(repetitions: u64) {
    let cells = &Cells {
        global: RcuCell::new([1; 8]),
        own: RcuCell::in_domain([1; 8], Domain::new()),
        arc_swap: ArcSwap::from_pointee([1; 8]),
        lock: RwLock::new(Arc::new([1; 8])),
    };
    let own = |cells: &Cells| cells.load::<2>(&cells.own);
    for readers in [1, 2] {
        println!("\nCells: read one word of the value; {readers} at a time");
        let read = |name, read: fn(&Cells) -> f64| {
            candidate(name, move || together(readers, || read(cells)))
        };
        let candidates = vec![
            read("RcuCell::load", |cells| cells.load::<0>(&cells.global)),
            read("RcuCell::load, again", |cells| {
                cells.load::<1>(&cells.global)
            }),
            read("RcuCell::load, a separate domain", own),
            read("RcuCell::within a section", Cells::within),
            read("ArcSwap::load", Cells::swap_load),
            read("ArcSwap::load_full", Cells::swap_load_full),
            read("arc_swap::Cache::load", Cells::swap_cache),
            read("RwLock<Arc<_>>::read", Cells::lock),
            read("RwLock<Arc<_>>::read, clone", Cells::lock_and_clone),
        ];
        take_turns(repetitions, 3, "ns", candidates);
    }
    for readers in [0, 1] {
        println!("\nCells: replace the value; beside {readers} readers");
        let store = |name, store: fn(&Cells) -> f64, read: fn(&Cells) -> f64| {
            let slice = move || beside(readers, |_| _ = read(cells), || store(cells));
            candidate(name, slice)
        };
        let swap =
            |cells: &Cells| time(STORES, || cells.arc_swap.store(Arc::new(black_box([1; 8]))));
        let write = |cells: &Cells| {
            time(STORES, || {
                *cells.lock.write().unwrap() = Arc::new(black_box([1; 8]))
            })
        };
        let candidates = vec![
            store("RcuCell::store", Cells::store, own),
            store("RcuCell::store, again", Cells::store, own),
            store(
                "RcuCell::store in a section",
                Cells::store_in_a_section,
                own,
            ),
            store("ArcSwap::store", swap, Cells::swap_load),
            store("RwLock<Arc<_>>::write", write, Cells::lock),
        ];
        take_turns(repetitions, 3, "ns", candidates);
    }
}

fn main() {
    let (mut repetitions, mut wanted) = (31, Vec::new());
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        if word == "--repetitions" {
            let number = words.next().and_then(|text| text.parse().ok());
            repetitions = number.expect("--repetitions NUMBER");
        } else {
            wanted.push(word);
        }
    }
    let machine = Machine::look();
    let commit = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .output();
    let commit = commit.map(|output| output.stdout).unwrap_or_default();
    let has_barrier = corewise_atomic::barrier::prepare();
    println!(
        "{}; {} CPUs; Linux {}; {}; commit {}; membarrier: {has_barrier}; {repetitions} repetitions",
        machine.cpu,
        machine.cpus,
        machine.kernel,
        machine.date,
        String::from_utf8_lossy(&commit).trim()
    );
    type Run = fn(u64);
    let parts = [
        ("guards", guards as Run),
        ("grace", grace),
        ("writers", writers),
        ("cells", cells),
    ];
    let is_wanted = |name| wanted.is_empty() || wanted.iter().any(|word| word == name);
    parts
        .into_iter()
        .filter(|(name, _)| is_wanted(*name))
        .for_each(|(_, run)| run(repetitions));
}
