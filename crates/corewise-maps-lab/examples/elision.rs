//! HTM-CLHT with the global locks of the thesis (figures 4.4 to 4.7; tables 4.2 to 4.4).
//!
//! ```text
//! cargo run --release -p corewise-maps-lab --example elision -- [ms per cell] [repetitions]
//! ```
//!
//! - *Rates*: millions of operations a second, the median of the repetitions, for tables of 10³
//!   and 10⁶ entries, keys from twice that range, 10 % updates (half of them insertions), and one
//!   thread and one and four for each CPU. `htm-fine` is the variant with a lock for each group of
//!   buckets (figure 4.4). `versioned` and `clht-lb` need no transactions; their ratio in each
//!   repetition, median (least - most), shows which of them [`auto`] should choose. Then the same
//!   with pinned threads that fill one socket after the other (figure 4.6).
//! - *Counts* for each thousand updates with four threads for each CPU, for 10 and 80 % updates:
//!   how many transactions began and committed, how many updates took the main lock or the
//!   auxiliary one, and the aborts by cause. Lookups are no transactions, so 0 % updates have none.
//!
//! Without RTM the transactions are scripted: they run in software under one mutex, and one in four
//! aborts for a cause drawn at random. The head of the output says which it was. The rates are then
//! those of the software and say nothing about a processor; the counts show how the policies react.
//!
//! After each run the number of entries must be that before plus what was inserted less what was
//! removed; otherwise the program panics.
//!
//! [`auto`]: corewise_maps_lab::elided_clht::auto

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use corewise_locks::elide::{
    Cause, Counts, Outcome, Policy, Retry, Rtm, Scm, ScmOpt, Scripted, Slr, SlrScm, Subscribe,
    Transaction,
};
use corewise_locks::{Mcs, Ttas};
use corewise_maps::clht::LockBased;
use corewise_maps_lab::elided_clht::{Coarse, Fine, Versioned};
use corewise_topology::{CpuId, PinPolicy, Topology, pin_current_thread, plan};

trait Table: Sync {
    fn get(&self, key: u64) -> Option<u64>;
    /// Returns whether the key was absent.
    fn insert(&self, key: u64) -> bool;
    /// Returns whether the key was there.
    fn remove(&self, key: u64) -> bool;
    fn len(&self) -> usize;
    fn counts(&self) -> Counts;
}

impl<L: Subscribe, P: Policy, B: Transaction> Table for Coarse<L, P, B> {
    fn get(&self, key: u64) -> Option<u64> {
        Coarse::get(self, key)
    }
    fn insert(&self, key: u64) -> bool {
        Coarse::insert(self, key, key)
            .expect("the table grows")
            .is_none()
    }
    fn remove(&self, key: u64) -> bool {
        Coarse::remove(self, key).is_some()
    }
    fn len(&self) -> usize {
        Coarse::len(self)
    }
    fn counts(&self) -> Counts {
        Coarse::counts(self)
    }
}

impl<P: Policy, B: Transaction> Table for Fine<P, B> {
    fn get(&self, key: u64) -> Option<u64> {
        Fine::get(self, key)
    }
    fn insert(&self, key: u64) -> bool {
        Fine::insert(self, key, key)
            .expect("the table is large enough")
            .is_none()
    }
    fn remove(&self, key: u64) -> bool {
        Fine::remove(self, key).is_some()
    }
    fn len(&self) -> usize {
        Fine::len(self)
    }
    fn counts(&self) -> Counts {
        Fine::counts(self)
    }
}

impl Table for Versioned {
    fn get(&self, key: u64) -> Option<u64> {
        Versioned::get(self, key)
    }
    fn insert(&self, key: u64) -> bool {
        let old = Versioned::insert(self, key, key).expect("the table grows");
        old.is_none()
    }
    fn remove(&self, key: u64) -> bool {
        Versioned::remove(self, key).is_some()
    }
    fn len(&self) -> usize {
        Versioned::len(self)
    }
    fn counts(&self) -> Counts {
        Counts::default()
    }
}

impl Table for LockBased<u64, u64> {
    fn get(&self, key: u64) -> Option<u64> {
        self.pin().get(&key)
    }
    fn insert(&self, key: u64) -> bool {
        self.pin().insert(key, key).is_none()
    }
    fn remove(&self, key: u64) -> bool {
        self.pin().remove(&key).is_some()
    }
    fn len(&self) -> usize {
        LockBased::len(self)
    }
    fn counts(&self) -> Counts {
        Counts::default()
    }
}

/// Kinds of tables.
const KINDS: usize = 9;
/// Those with transactions come first.
const TRANSACTIONAL: usize = 7;

const NAMES: [&str; KINDS] = [
    "mcs",
    "slr-mcs",
    "htm-retry",
    "scm-ttas",
    "slr-scm-mcs",
    "scm-ttas-opt",
    "htm-fine",
    "versioned",
    "clht-lb",
];

/// A table of each kind, in the order of the names.
fn tables<B: Transaction>(capacity: usize, backend: B) -> [Box<dyn Table>; KINDS] {
    let backend = Some(backend);
    [
        Box::new(Coarse::<Mcs, Slr, B>::new(capacity, None)),
        Box::new(Coarse::<Mcs, Slr, B>::new(capacity, backend)),
        Box::new(Coarse::<Ttas, Retry<10>, B>::new(capacity, backend)),
        Box::new(Coarse::<Ttas, Scm, B>::new(capacity, backend)),
        Box::new(Coarse::<Mcs, SlrScm, B>::new(capacity, backend)),
        Box::new(Coarse::<Ttas, ScmOpt, B>::new(capacity, backend)),
        // Groups are not equally full, and this table does not grow.
        Box::new(Fine::<SlrScm, B>::new(2 * capacity, backend)),
        Box::new(Versioned::<Mcs>::new(capacity)),
        Box::new(LockBased::with_capacity(capacity)),
    ]
}

/// A small generator of numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    /// Aborts before the next commit: none in three of four attempts.
    fn aborts(&mut self) -> impl Iterator<Item = Outcome> + use<> {
        let mut aborts = [None; 4];
        for abort in &mut aborts {
            let cause = match self.below(40) {
                0..=6 => Cause::Conflict,
                7 => Cause::Capacity,
                8 => Cause::Unspecified,
                9 => Cause::Locked,
                _ => break,
            };
            *abort = Some(Outcome::AbortAtCommit(cause));
        }
        aborts.into_iter().flatten()
    }
}

/// What is measured.
#[derive(Clone, Copy)]
struct Cell {
    threads: usize,
    entries: u64,
    updates: u64,
    is_scripted: bool,
    is_compact: bool,
}

impl Cell {
    fn placement(self) -> PinPolicy {
        if self.is_compact {
            PinPolicy::Compact
        } else {
            PinPolicy::None
        }
    }
}

/// What a thread, or all threads, did.
#[derive(Default)]
struct Done {
    operations: u64,
    updates: u64,
    /// Entries inserted less entries removed.
    added: i64,
}

/// The operations of a thread until the end.
fn operate(table: &dyn Table, cell: Cell, seed: u64, is_over: &AtomicBool) -> Done {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut done = Done::default();
    // Relaxed: a flag.
    while !is_over.load(Relaxed) {
        done.operations += 1;
        let key = 1 + random.below(2 * cell.entries);
        let choice = random.below(200);
        if choice >= 2 * cell.updates {
            std::hint::black_box(table.get(key));
            continue;
        }
        done.updates += 1;
        let script = cell
            .is_scripted
            .then(|| Scripted::play(random.aborts(), Outcome::Commit));
        if choice.is_multiple_of(2) {
            done.added += i64::from(table.insert(key));
        } else {
            done.added -= i64::from(table.remove(key));
        }
        drop(script);
    }
    done
}

/// Millions of operations a second, and the number of updates. Verifies the number of entries.
fn run(table: &dyn Table, cell: Cell, length: Duration, seed: u64) -> (f64, u64) {
    let is_over = AtomicBool::new(false);
    let before = table.len() as i64;
    let places: Vec<Option<CpuId>> = plan(&Topology::detect(), &cell.placement(), cell.threads);
    let (rate, done) = std::thread::scope(|scope| {
        let begin = Instant::now();
        let threads: Vec<_> = (0u64..)
            .zip(places)
            .map(|(thread, place)| {
                let is_over = &is_over;
                scope.spawn(move || {
                    if let Some(cpu) = place {
                        pin_current_thread(cpu).expect("the CPU is allowed");
                    }
                    operate(table, cell, seed * 1_000 + thread, is_over)
                })
            })
            .collect();
        std::thread::sleep(length);
        is_over.store(true, Relaxed); // Relaxed: a flag
        let done = threads.into_iter().fold(Done::default(), |sum, thread| {
            let done = thread.join().expect("no thread panics");
            Done {
                operations: sum.operations + done.operations,
                updates: sum.updates + done.updates,
                added: sum.added + done.added,
            }
        });
        let rate = done.operations as f64 / begin.elapsed().as_secs_f64() / 1e6;
        (rate, done)
    });
    assert_eq!(
        table.len() as i64,
        before + done.added,
        "no update is lost, and none has effect twice"
    );
    (rate, done.updates)
}

/// Tables of a size that are half full.
fn filled<B: Transaction>(entries: u64, backend: B) -> [Box<dyn Table>; KINDS] {
    let tables = tables(2 * entries as usize, backend);
    for table in &tables {
        for key in 1..=entries {
            table.insert(2 * key);
        }
    }
    tables
}

/// One thread, one for each CPU, and four for each.
fn thread_counts() -> [usize; 3] {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    [1, cpus, 4 * cpus]
}

fn rates<B: Transaction>(backend: B, is_scripted: bool, length: Duration, repetitions: usize) {
    let counts = thread_counts();
    let sizes = [1_000, 1_000_000];
    for (entries, is_compact) in sizes.into_iter().flat_map(|n| [(n, false), (n, true)]) {
        let tables = filled(entries, backend);
        let mut rates = [const { [const { Vec::new() }; 3] }; KINDS];
        // All tables take turns, so that other programs on the machine affect all of them.
        for repetition in 0..repetitions {
            for (table, rates) in tables.iter().zip(&mut rates) {
                for (threads, rates) in counts.iter().zip(rates) {
                    let (threads, updates) = (*threads, 10);
                    let cell = Cell {
                        threads,
                        entries,
                        updates,
                        is_scripted,
                        is_compact,
                    };
                    rates.push(run(&**table, cell, length, repetition as u64 + 1).0);
                }
            }
        }
        let placement = if is_compact { "compact" } else { "not pinned" };
        println!("\n{entries} entries, 10 % updates, {placement}, millions of operations a second");
        let heads = counts.map(|count| format!("{count} threads"));
        println!(
            "{:<13} {:>10} {:>10} {:>10}",
            "", heads[0], heads[1], heads[2]
        );
        let [.., versioned, lock_based] = &rates;
        let ratios = versioned
            .iter()
            .zip(lock_based)
            .map(|(one, other)| ratio(one, other));
        let ratios: Vec<String> = ratios.collect();
        for (name, rates) in NAMES.iter().zip(rates) {
            print!("{name:<13}");
            for mut rates in rates {
                rates.sort_by(f64::total_cmp);
                print!(" {:>10.2}", rates[rates.len() / 2]);
            }
            println!();
        }
        println!("versioned over clht-lb: {}", ratios.join(", "));
    }
}

/// The ratio of the rates of two tables in each repetition: median (least - most).
fn ratio(one: &[f64], other: &[f64]) -> String {
    let mut ratios: Vec<f64> = one.iter().zip(other).map(|(a, b)| a / b).collect();
    ratios.sort_by(f64::total_cmp);
    let [.., most] = *ratios else {
        unreachable!("a repetition at least")
    };
    format!(
        "{:.2} ({:.2} - {most:.2})",
        ratios[ratios.len() / 2],
        ratios[0]
    )
}

fn counts<B: Transaction>(backend: B, is_scripted: bool, length: Duration) {
    let threads = 4 * std::thread::available_parallelism().map_or(1, usize::from);
    let entries = 1_000;
    let kinds = [
        Cause::Locked,
        Cause::Nested,
        Cause::Explicit(0),
        Cause::Conflict,
        Cause::Capacity,
        Cause::Debug,
        Cause::Unspecified,
    ];
    for updates in [10, 80] {
        println!("\n{entries} entries, {updates} % updates, {threads} threads: in 1,000 updates");
        print!("{:<13}", "");
        for head in ["began", "committed", "main lock", "aux lock"] {
            print!(" {head:>9}");
        }
        kinds
            .iter()
            .for_each(|kind| print!(" {:>11}", format!("{kind:?}").replace("(0)", "")));
        println!();
        let tables = filled(entries, backend);
        for (name, table) in NAMES.iter().zip(tables).take(TRANSACTIONAL) {
            let before = table.counts();
            let cell = Cell {
                threads,
                entries,
                updates,
                is_scripted,
                is_compact: false,
            };
            let (_, number) = run(&*table, cell, length, 1);
            let after = table.counts();
            let share = |count: fn(&Counts) -> u64| {
                (count(&after) - count(&before)) as f64 * 1_000.0 / number.max(1) as f64
            };
            print!("{name:<13} {:>9.1}", share(|counts| counts.started));
            print!(" {:>9.1}", share(|counts| counts.committed));
            print!(" {:>9.1}", share(|counts| counts.fallbacks));
            print!(" {:>9.1}", share(|counts| counts.aided));
            for kind in kinds {
                let aborts = after.aborted_by(kind) - before.aborted_by(kind);
                print!(" {:>11.1}", aborts as f64 * 1_000.0 / number.max(1) as f64);
            }
            println!();
        }
    }
}

fn measure<B: Transaction>(backend: B, is_scripted: bool) {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| match arguments.next() {
        Some(argument) => argument.parse().expect("a number"),
        None => default,
    };
    let length = Duration::from_millis(number(200));
    let repetitions = number(5).max(1) as usize;
    rates(backend, is_scripted, length, repetitions);
    counts(backend, is_scripted, length);
}

fn main() {
    match Rtm::detect() {
        Ok(rtm) => {
            println!("transactions: RTM");
            measure(rtm, false);
        }
        Err(error) => {
            println!("{error}");
            println!("transactions: SCRIPTED, in software; rates are not those of a processor");
            measure(Scripted::new(), true);
        }
    }
}
