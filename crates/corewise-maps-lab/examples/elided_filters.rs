//! Cuckoo filters under an elided lock beside the filter of `corewise-filter` (thesis §5.5.3 to
//! §5.5.5, figures 5.7 to 5.9).
//!
//! ```text
//! cargo run --release -p corewise-maps-lab --example elided_filters -- [ms per cell] [repetitions]
//! ```
//!
//! Millions of operations a second, the median of the repetitions, for filters that are half full,
//! 0, 10 and 40 % updates, and one thread and one and four for each CPU. Each thread inserts and
//! removes its own keys. After each run the number of items must be that before plus what was
//! inserted less what was removed; otherwise the program panics.
//!
//! Without RTM the transactions are scripted: they run in software under one mutex, so the rates of
//! all rows but the last say nothing about a processor. The head of the output says which it was.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use corewise_filter::CuckooFilter;
use corewise_locks::elide::{Policy, Rtm, Scripted, Subscribe, Transaction};
use corewise_maps_lab::elided_filter::{
    ElidedFilter, RetryFilter, ScmFilter, SlrFilter, SlrScmFilter,
};

/// Slots of each filter: four in each of 2¹⁶ buckets.
const SLOTS: usize = 1 << 18;
const UPDATES: [u64; 3] = [0, 10, 40];

trait Filter: Sync {
    fn insert(&self, key: u64) -> bool;
    fn remove(&self, key: u64) -> bool;
    fn contains(&self, key: u64) -> bool;
    fn len(&self) -> usize;
}

impl<L: Subscribe, P: Policy, B: Transaction> Filter for ElidedFilter<L, P, B> {
    fn insert(&self, key: u64) -> bool {
        self.insert_cop(key).is_ok()
    }
    fn remove(&self, key: u64) -> bool {
        ElidedFilter::remove(self, key)
    }
    fn contains(&self, key: u64) -> bool {
        ElidedFilter::contains(self, key)
    }
    fn len(&self) -> usize {
        ElidedFilter::len(self)
    }
}

impl Filter for CuckooFilter {
    fn insert(&self, key: u64) -> bool {
        CuckooFilter::insert(self, &key).is_ok()
    }
    fn remove(&self, key: u64) -> bool {
        CuckooFilter::remove(self, &key)
    }
    fn contains(&self, key: u64) -> bool {
        CuckooFilter::contains(self, &key)
    }
    fn len(&self) -> usize {
        CuckooFilter::len(self)
    }
}

/// The filters, half full.
fn filters<B: Transaction>(backend: B) -> Vec<(&'static str, Box<dyn Filter>)> {
    // As many items as fit into this number of slots at 94 %.
    let (items, backend) = (SLOTS - SLOTS / 16, Some(backend));
    let plain = CuckooFilter::builder().slots(SLOTS).bits(16).build();
    let filters: Vec<(_, Box<dyn Filter>)> = vec![
        (
            "retry 5",
            Box::new(RetryFilter::<5, B>::new(items, backend)),
        ),
        (
            "retry 10",
            Box::new(RetryFilter::<10, B>::new(items, backend)),
        ),
        (
            "retry 20",
            Box::new(RetryFilter::<20, B>::new(items, backend)),
        ),
        ("slr", Box::new(SlrFilter::<B>::new(items, backend))),
        ("scm", Box::new(ScmFilter::<B>::new(items, backend))),
        ("slr, scm", Box::new(SlrScmFilter::<B>::new(items, backend))),
        ("corewise-filter", Box::new(plain.expect("a valid shape"))),
    ];
    for (_, filter) in &filters {
        (0..SLOTS as u64 / 2).for_each(|key| assert!(filter.insert(key)));
    }
    filters
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
}

/// The operations of a thread until the end: how many, and how many items it leaves. Updates insert
/// a key of the thread and remove it again, in turn.
fn operate(filter: &dyn Filter, updates: u64, thread: u64, is_over: &AtomicBool) -> (u64, usize) {
    let mut random = Random(thread.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut mine = None;
    let mut operations = 0;
    // Relaxed: a flag.
    while !is_over.load(Relaxed) {
        operations += 1;
        if random.below(100) >= updates {
            // Half of them are present.
            let key = random.below(SLOTS as u64);
            let is_found = filter.contains(key);
            assert!(is_found || key >= SLOTS as u64 / 2, "no item is missed");
        } else if let Some(key) = mine.take() {
            assert!(filter.remove(key), "it was inserted");
        } else {
            let key = (thread + 1) << 40 | operations;
            assert!(filter.insert(key), "it is half full");
            mine = Some(key);
        }
    }
    (operations, usize::from(mine.is_some()))
}

/// Millions of operations a second.
fn run(filter: &dyn Filter, threads: u64, updates: u64, length: Duration, round: u64) -> f64 {
    let (is_over, before) = (AtomicBool::new(false), filter.len());
    let (rate, left) = std::thread::scope(|scope| {
        let begin = Instant::now();
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let (is_over, thread) = (&is_over, round << 8 | thread);
                scope.spawn(move || operate(filter, updates, thread, is_over))
            })
            .collect();
        std::thread::sleep(length);
        is_over.store(true, Relaxed); // Relaxed: a flag
        let (mut operations, mut left) = (0, 0);
        for thread in threads {
            let done = thread.join().expect("no thread panics");
            operations += done.0;
            left += done.1;
        }
        let rate = operations as f64 / begin.elapsed().as_secs_f64() / 1e6;
        (rate, left)
    });
    assert_eq!(filter.len(), before + left, "no update is lost");
    rate
}

fn measure<B: Transaction>(backend: B) {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| match arguments.next() {
        Some(argument) => argument.parse().expect("a number"),
        None => default,
    };
    let length = Duration::from_millis(number(100));
    let repetitions = number(5).max(1);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let filters = filters(backend);
    for updates in UPDATES {
        let counts = [1, cpus, 4 * cpus];
        let mut rates = vec![[const { Vec::new() }; 3]; filters.len()];
        // All filters take turns, so that other programs on the machine affect all of them.
        for round in 0..repetitions {
            for ((_, filter), rates) in filters.iter().zip(&mut rates) {
                for (threads, rates) in counts.iter().zip(rates) {
                    rates.push(run(&**filter, *threads, updates, length, round));
                }
            }
        }
        println!("\n{updates} % updates, millions of operations a second");
        let heads = counts.map(|count| format!("{count} threads"));
        println!(
            "{:<15} {:>10} {:>10} {:>10}",
            "", heads[0], heads[1], heads[2]
        );
        for ((name, _), rates) in filters.iter().zip(rates) {
            let medians = rates.map(|mut rates| {
                rates.sort_by(f64::total_cmp);
                rates[rates.len() / 2]
            });
            let [one, some, many] = medians;
            println!("{name:<15} {one:>10.2} {some:>10.2} {many:>10.2}");
        }
    }
}

fn main() {
    match Rtm::detect() {
        Ok(rtm) => {
            println!("transactions: RTM");
            measure(rtm);
        }
        Err(error) => {
            println!("{error}");
            println!("transactions: SCRIPTED, in software; rates are not those of a processor");
            measure(Scripted::new());
        }
    }
}
