//! One value that threads read and replace: `RcuCell` beside arc-swap and `RwLock<Arc<_>>`.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::Instant;

use arc_swap::{ArcSwap, Cache};
use corewise_rcu::{Domain, RcuCell};

use crate::report::{Candidate, Options, Row, print_ratio, print_row, take_turns};

/// Reads of a slice by each thread.
const READS: u32 = 500_000;
/// Replacements of a slice.
const STORES: u32 = 20_000;
/// Slices of each candidate in a repetition.
const SLICES: usize = 3;

type Value = [u64; 8];

/// The same value in every kind of cell.
struct Cells {
    global: RcuCell<Value>,
    own: RcuCell<Value>,
    arc_swap: ArcSwap<Value>,
    lock: RwLock<Arc<Value>>,
}

impl Cells {
    fn new() -> Self {
        let value = [1; 8];
        Self {
            global: RcuCell::new(value),
            own: RcuCell::in_domain(value, Domain::new()),
            arc_swap: ArcSwap::from_pointee(value),
            lock: RwLock::new(Arc::new(value)),
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Read {
    Pin,
    PinAgain,
    PinOwn,
    Load,
    SwapLoad,
    SwapLoadFull,
    SwapCache,
    Lock,
    LockAndClone,
}

/// Nanoseconds per round.
#[inline(always)]
fn time(rounds: u32, mut round: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..rounds).for_each(|_| round());
    start.elapsed().as_nanos() as f64 / f64::from(rounds)
}

/// Waits until `count` threads are running. It spins: a thread that had to be woken would begin
/// late.
fn wait_for(ready: &AtomicUsize, count: usize) {
    while ready.load(Relaxed) < count {
        std::hint::spin_loop();
    }
}

/// What each read does with the value.
#[inline(always)]
fn look(value: &Value) {
    black_box(value[3]);
}

/// The same code twice, to show what the place of a loop in memory is worth.
#[inline(always)]
fn pin(cell: &RcuCell<Value>) -> f64 {
    time(READS, || look(&cell.pin()))
}

#[inline(never)]
fn pin_one(cell: &RcuCell<Value>) -> f64 {
    pin(black_box(cell))
}

#[inline(never)]
fn pin_other(cell: &RcuCell<Value>) -> f64 {
    black_box(1);
    pin(black_box(cell))
}

#[inline(never)]
fn pin_own(cell: &RcuCell<Value>) -> f64 {
    black_box(2);
    pin(black_box(cell))
}

#[inline(never)]
fn load(cell: &RcuCell<Value>) -> f64 {
    let cell = black_box(cell);
    let guard = cell.domain().pin();
    time(READS, || look(cell.load(&guard)))
}

#[inline(never)]
fn swap_load(cell: &ArcSwap<Value>) -> f64 {
    let cell = black_box(cell);
    time(READS, || look(&cell.load()))
}

#[inline(never)]
fn swap_load_full(cell: &ArcSwap<Value>) -> f64 {
    let cell = black_box(cell);
    time(READS, || look(&cell.load_full()))
}

#[inline(never)]
fn swap_cache(cell: &ArcSwap<Value>) -> f64 {
    let mut cache = Cache::new(black_box(cell));
    time(READS, || look(cache.load()))
}

#[inline(never)]
fn lock(cell: &RwLock<Arc<Value>>) -> f64 {
    let cell = black_box(cell);
    time(READS, || look(&cell.read().unwrap()))
}

#[inline(never)]
fn lock_and_clone(cell: &RwLock<Arc<Value>>) -> f64 {
    let cell = black_box(cell);
    time(READS, || {
        let value = Arc::clone(&cell.read().unwrap());
        look(&value);
    })
}

impl Read {
    const ALL: [Read; 9] = [
        Self::Pin,
        Self::PinAgain,
        Self::PinOwn,
        Self::Load,
        Self::SwapLoad,
        Self::SwapLoadFull,
        Self::SwapCache,
        Self::Lock,
        Self::LockAndClone,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Pin => "RcuCell::pin",
            Self::PinAgain => "RcuCell::pin, again",
            Self::PinOwn => "RcuCell::pin, a separate domain",
            Self::Load => "RcuCell::load in a section",
            Self::SwapLoad => "ArcSwap::load",
            Self::SwapLoadFull => "ArcSwap::load_full",
            Self::SwapCache => "arc_swap::Cache::load",
            Self::Lock => "RwLock<Arc<_>>::read",
            Self::LockAndClone => "RwLock<Arc<_>>::read, clone",
        }
    }

    /// Nanoseconds per read by the calling thread.
    fn time(self, cells: &Cells) -> f64 {
        match self {
            Self::Pin => pin_one(&cells.global),
            Self::PinAgain => pin_other(&cells.global),
            Self::PinOwn => pin_own(&cells.own),
            Self::Load => load(&cells.global),
            Self::SwapLoad => swap_load(&cells.arc_swap),
            Self::SwapLoadFull => swap_load_full(&cells.arc_swap),
            Self::SwapCache => swap_cache(&cells.arc_swap),
            Self::Lock => lock(&cells.lock),
            Self::LockAndClone => lock_and_clone(&cells.lock),
        }
    }

    /// Mean nanoseconds per read by `readers` threads that begin together.
    fn measure(self, cells: &Cells, readers: usize) -> f64 {
        if readers == 1 {
            return self.time(cells);
        }
        let ready = AtomicUsize::new(0);
        let nanos: f64 = thread::scope(|scope| {
            let reader = || {
                ready.fetch_add(1, Relaxed);
                wait_for(&ready, readers);
                self.time(cells)
            };
            let threads: Vec<_> = (0..readers).map(|_| scope.spawn(reader)).collect();
            let nanos = threads.into_iter().map(|thread| thread.join().unwrap());
            nanos.sum()
        });
        nanos / readers as f64
    }
}

#[derive(Clone, Copy)]
enum Store {
    Cell,
    CellAgain,
    CellInASection,
    Swap,
    Lock,
}

impl Store {
    const ALL: [Store; 5] = [
        Self::Cell,
        Self::CellAgain,
        Self::CellInASection,
        Self::Swap,
        Self::Lock,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Cell => "RcuCell::store",
            Self::CellAgain => "RcuCell::store, again",
            Self::CellInASection => "RcuCell::store in a section",
            Self::Swap => "ArcSwap::store",
            Self::Lock => "RwLock<Arc<_>>::write",
        }
    }

    /// The read that belongs to it.
    fn read(self) -> Read {
        match self {
            Self::Swap => Read::SwapLoad,
            Self::Lock => Read::Lock,
            _ => Read::PinOwn,
        }
    }

    /// Nanoseconds per replacement.
    fn time(self, cells: &Cells) -> f64 {
        let value = black_box([1; 8]);
        match self {
            Self::Cell | Self::CellAgain => time(STORES, || cells.own.store(value)),
            Self::CellInASection => {
                let guard = cells.own.domain().pin();
                let nanos = time(STORES, || cells.own.store(value));
                drop(guard);
                cells.own.domain().barrier();
                nanos
            }
            Self::Swap => time(STORES, || cells.arc_swap.store(Arc::new(value))),
            Self::Lock => time(STORES, || *cells.lock.write().unwrap() = Arc::new(value)),
        }
    }

    /// Nanoseconds per replacement, beside `readers` threads that read all the time.
    fn measure(self, cells: &Cells, readers: usize) -> f64 {
        let (stop, ready) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..readers {
                scope.spawn(|| {
                    ready.fetch_add(1, Relaxed);
                    while !stop.load(Relaxed) {
                        self.read().time(cells);
                    }
                });
            }
            wait_for(&ready, readers);
            let nanos = self.time(cells);
            stop.store(true, Relaxed);
            nanos
        })
    }
}

pub(crate) fn run(options: &Options) {
    let cells = Cells::new();
    for readers in [1, 2] {
        println!("\nCells: read one word of the value; {readers} at a time");
        let candidates = Read::ALL.map(|read| {
            let cells = &cells;
            Candidate::new(read.name(), move || read.measure(cells, readers))
        });
        let rows = take_turns(options, SLICES, candidates.into());
        rows.iter().for_each(|row| print_row(row, "ns"));
        compare_reads(&rows);
    }
    for readers in [0, 1] {
        println!("\nCells: replace the value; beside {readers} readers");
        let candidates = Store::ALL.map(|store| {
            let cells = &cells;
            Candidate::new(store.name(), move || store.measure(cells, readers))
        });
        let rows = take_turns(options, SLICES, candidates.into());
        rows.iter().for_each(|row| print_row(row, "ns"));
        let of = |store: Store| &rows[store as usize];
        print_ratio(of(Store::CellAgain), of(Store::Cell), None);
        print_ratio(of(Store::Cell), of(Store::Swap), None);
        print_ratio(of(Store::Cell), of(Store::Lock), None);
    }
}

fn compare_reads(rows: &[Row]) {
    let of = |read: Read| &rows[read as usize];
    print_ratio(of(Read::PinAgain), of(Read::Pin), None);
    for other in &Read::ALL[Read::SwapLoad as usize..] {
        print_ratio(of(Read::Pin), of(*other), None);
    }
}
