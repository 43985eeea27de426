//! Measures the locks, beside those of `parking_lot` and `std`.
//!
//! ```text
//! cargo run --release -p corewise-locks --example locks -- [ms per cell] [repetitions] [table]
//! ```
//!
//! Four tables, or the one named (`uncontended`, `exclusive`, `oversubscribed`, `readers`):
//!
//! - *Uncontended*: nanoseconds for a lock and an unlock by one thread.
//! - *Exclusive*: millions of sections a second, for each number of threads and length of section.
//!   In brackets the fairness: the sections of the slowest thread over those of the fastest.
//! - *Oversubscribed*: the sections a second of four threads for each CPU, relative to those of one
//!   thread for each CPU: the median, the least and the greatest of nine repetitions or more. In
//!   a repetition all locks take turns, and each measures both numbers of threads one after the
//!   other, so that other programs on the machine affect both.
//! - *Readers and writers*: the same as the second without fairness, for each share of writes.
//!
//! The aims of the crate are printed below the tables: MCS over `parking_lot` without contention,
//! the adaptive lock over the best other one in each cell, and the distributed lock over
//! `parking_lot` with two readers.
//!
//! After each run, the counter in the lock must have counted all sections that write; otherwise the
//! program panics.
//!
//! Uncontended figures are the shortest of 100 short runs a repetition; the others are the median
//! of the repetitions. A section of n ns spins for n ns; outside of it a thread spins for the same
//! time, so that locks can overlap with work.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use corewise_locks::{
    Adaptive, Anderson, Clh, DistributedRw, Lock, Mcs, Parking, RawLock, SharedLock, Tas, Ticket,
    Ttas, TtasBackoff,
};

/// What is measured of a lock.
trait Subject: Sync {
    fn with(&self, section: &mut dyn FnMut(&mut [u64; 8]));

    /// The number of sections so far.
    fn sections(&self) -> u64 {
        let mut number = 0;
        self.with(&mut |data| number = data[0]);
        number
    }
}

impl<L: RawLock> Subject for Lock<[u64; 8], L> {
    fn with(&self, section: &mut dyn FnMut(&mut [u64; 8])) {
        section(&mut self.lock());
    }
}

impl Subject for parking_lot::Mutex<[u64; 8]> {
    fn with(&self, section: &mut dyn FnMut(&mut [u64; 8])) {
        section(&mut self.lock());
    }
}

impl Subject for parking_lot::FairMutex<[u64; 8]> {
    fn with(&self, section: &mut dyn FnMut(&mut [u64; 8])) {
        section(&mut self.lock());
    }
}

impl Subject for std::sync::Mutex<[u64; 8]> {
    fn with(&self, section: &mut dyn FnMut(&mut [u64; 8])) {
        section(&mut self.lock().expect("no section panics"));
    }
}

trait SharedSubject: Sync {
    fn read(&self) -> u64;
    fn write(&self);
}

impl<const S: usize> SharedSubject for SharedLock<[u64; 8], DistributedRw<S>> {
    fn read(&self) -> u64 {
        SharedLock::read(self)[0]
    }
    fn write(&self) {
        SharedLock::write(self)[0] += 1;
    }
}

impl SharedSubject for parking_lot::RwLock<[u64; 8]> {
    fn read(&self) -> u64 {
        parking_lot::RwLock::read(self)[0]
    }
    fn write(&self) {
        parking_lot::RwLock::write(self)[0] += 1;
    }
}

impl SharedSubject for std::sync::RwLock<[u64; 8]> {
    fn read(&self) -> u64 {
        std::sync::RwLock::read(self).expect("no section panics")[0]
    }
    fn write(&self) {
        std::sync::RwLock::write(self).expect("no section panics")[0] += 1;
    }
}

/// Iterations of the work loop in a nanosecond, in thousandths.
fn calibrate() -> u64 {
    let rounds = 2_000_000;
    let begin = Instant::now();
    work(rounds);
    rounds * 1_000 / begin.elapsed().as_nanos() as u64
}

fn work(rounds: u64) {
    for round in 0..rounds {
        black_box(round);
    }
}

/// The number of calls of `body` by each thread.
fn run(threads: usize, length: Duration, body: impl Fn(usize, u64) + Sync) -> Vec<u64> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let (body, is_over) = (&body, &is_over);
                scope.spawn(move || {
                    let mut calls = 0;
                    // Relaxed: a flag.
                    while !is_over.load(Ordering::Relaxed) {
                        body(thread, calls);
                        calls += 1;
                    }
                    calls
                })
            })
            .collect();
        std::thread::sleep(length);
        is_over.store(true, Ordering::Relaxed); // Relaxed: a flag
        handles
            .into_iter()
            .map(|handle| handle.join().expect("no section panics"))
            .collect()
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn subjects() -> Vec<(&'static str, Box<dyn Subject>)> {
    fn ours<L: RawLock>() -> Box<dyn Subject> {
        Box::new(Lock::<[u64; 8], L>::new([0; 8]))
    }
    vec![
        ("tas", ours::<Tas>()),
        ("ttas", ours::<Ttas>()),
        ("ttas-backoff", ours::<TtasBackoff>()),
        ("ticket", ours::<Ticket>()),
        ("anderson-16", ours::<Anderson>()),
        ("clh", ours::<Clh>()),
        ("mcs", ours::<Mcs>()),
        ("parking", ours::<Parking>()),
        ("adaptive", ours::<Adaptive>()),
        ("parking_lot", Box::new(parking_lot::Mutex::new([0; 8]))),
        (
            "parking_lot-fair",
            Box::new(parking_lot::FairMutex::new([0; 8])),
        ),
        ("std", Box::new(std::sync::Mutex::new([0; 8]))),
    ]
}

/// The shortest of many short runs, because the machine may do something else meanwhile.
fn uncontended(repetitions: usize) {
    const ROUNDS: u32 = 20_000;
    println!("{:<17} ns", "uncontended");
    let subjects = subjects();
    let mut shortest = vec![f64::INFINITY; subjects.len()];
    for _ in 0..repetitions * 100 {
        for ((_, lock), shortest) in subjects.iter().zip(&mut shortest) {
            let begin = Instant::now();
            for _ in 0..ROUNDS {
                lock.with(&mut |data| data[0] += 1);
            }
            let elapsed = begin.elapsed().as_nanos() as f64 / f64::from(ROUNDS);
            *shortest = shortest.min(elapsed);
        }
    }
    for ((name, _), shortest) in subjects.iter().zip(&shortest) {
        println!("{name:<17} {shortest:.1}");
    }
    let of = |wanted| {
        let at = subjects.iter().position(|(name, _)| *name == wanted);
        shortest[at.expect("a lock has this name")]
    };
    let ratio = of("mcs") / of("parking_lot");
    println!("mcs over parking_lot: {ratio:.2} (aim: at most 1.2)");
}

fn exclusive(length: Duration, repetitions: usize) {
    let per_ns = calibrate();
    let cells: Vec<(usize, u64)> = [0, 100, 1_000]
        .into_iter()
        .flat_map(|section| [1, 2, 8].map(|threads| (threads, section)))
        .collect();
    print!("\n{:<17}", "exclusive");
    for (threads, section) in &cells {
        print!(" {:>13}", format!("{threads}t {section}ns"));
    }
    println!();
    // Of each cell, the best rate of a lock that does not adapt, and that of the one that does.
    let mut best = vec![0.0_f64; cells.len()];
    let mut adaptive = vec![0.0; cells.len()];
    for (name, lock) in subjects() {
        print!("{name:<17}");
        for (at, (threads, section)) in cells.iter().enumerate() {
            let spins = section * per_ns / 1_000;
            let (mut rates, mut fairness) = (Vec::new(), Vec::new());
            for _ in 0..repetitions {
                let before = lock.sections();
                let calls = run(*threads, length, |_, _| {
                    lock.with(&mut |data| {
                        data.iter_mut().for_each(|word| *word += 1);
                        work(spins);
                    });
                    work(spins);
                });
                assert_eq!(lock.sections() - before, calls.iter().sum(), "none is lost");
                let (least, most) = (calls.iter().min(), calls.iter().max());
                fairness.push(*least.expect("threads") as f64 / *most.expect("threads") as f64);
                rates.push(calls.iter().sum::<u64>() as f64 / length.as_secs_f64() / 1e6);
            }
            let rate = median(rates);
            if name == "adaptive" {
                adaptive[at] = rate;
            } else {
                best[at] = best[at].max(rate);
            }
            print!(" {rate:>7.2} ({:.2})", median(fairness));
        }
        println!();
    }
    print!("{:<17}", "adaptive / best");
    for (adaptive, best) in adaptive.iter().zip(&best) {
        print!(" {:>13.2}", adaptive / best);
    }
    println!(" (aim: at least 0.95)");
}

/// Sections a second, in millions, of threads that do nothing else.
fn rate(lock: &dyn Subject, threads: usize, length: Duration, spins: u64) -> f64 {
    let before = lock.sections();
    let begin = Instant::now();
    let calls = run(threads, length, |_, _| {
        lock.with(&mut |data| {
            data.iter_mut().for_each(|word| *word += 1);
            work(spins);
        });
        work(spins);
    });
    // Threads that wait in a queue end late.
    let rate = calls.iter().sum::<u64>() as f64 / begin.elapsed().as_secs_f64() / 1e6;
    assert_eq!(lock.sections() - before, calls.iter().sum(), "none is lost");
    rate
}

fn oversubscribed(length: Duration, repetitions: usize) {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let per_ns = calibrate();
    let sections = [0, 100, 1_000];
    let subjects = subjects();
    // Of each lock and section: a rate and a ratio for each repetition.
    let mut cells = vec![[const { (Vec::new(), Vec::new()) }; 3]; subjects.len()];
    for _ in 0..repetitions.max(9) {
        for ((_, lock), cells) in subjects.iter().zip(&mut cells) {
            for (section, (rates, ratios)) in sections.iter().zip(cells) {
                let spins = section * per_ns / 1_000;
                let few = rate(&**lock, cpus, length, spins);
                let many = rate(&**lock, 4 * cpus, length, spins);
                rates.push(many);
                ratios.push(many / few);
            }
        }
    }
    let heads = sections.map(|section| format!("{section}ns: M/s, ratio (least-most)"));
    println!(
        "\n{:<17} {} threads over {cpus}",
        "oversubscribed",
        4 * cpus
    );
    println!(
        "{:<17} {:>32} {:>32} {:>32}",
        "", heads[0], heads[1], heads[2]
    );
    for ((name, _), cells) in subjects.iter().zip(cells) {
        print!("{name:<17}");
        for (rates, mut ratios) in cells {
            ratios.sort_by(f64::total_cmp);
            let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
            let middle = ratios[ratios.len() / 2];
            print!(
                " {:>13.3} {middle:>6.2} ({least:.2}-{most:.2})",
                median(rates)
            );
        }
        println!();
    }
}

fn readers_and_writers(length: Duration, repetitions: usize) {
    let subjects: Vec<(&str, Box<dyn SharedSubject>)> = vec![
        (
            "distributed",
            Box::new(SharedLock::<_, DistributedRw>::new([0; 8])),
        ),
        ("parking_lot", Box::new(parking_lot::RwLock::new([0; 8]))),
        ("std", Box::new(std::sync::RwLock::new([0; 8]))),
    ];
    let cells: Vec<(usize, u64)> = [0, 1, 10]
        .into_iter()
        .flat_map(|writes| [1, 2, 8].map(|threads| (threads, writes)))
        .collect();
    print!("\n{:<17}", "readers, writers");
    for (threads, writes) in &cells {
        print!(" {:>9}", format!("{threads}t {writes}%"));
    }
    println!();
    let mut of_two_readers = Vec::new();
    for (name, lock) in subjects {
        print!("{name:<17}");
        for (threads, writes) in &cells {
            // Spread over the hundred, differently for each thread.
            let is_write =
                |thread: usize, call: u64| (call + 13 * thread as u64) * 37 % 100 < *writes;
            let rates = (0..repetitions).map(|_| {
                let before = lock.read();
                let calls = run(*threads, length, |thread, call| {
                    if is_write(thread, call) {
                        lock.write();
                    } else {
                        black_box(lock.read());
                    }
                });
                let written: usize = calls
                    .iter()
                    .enumerate()
                    .map(|(thread, calls)| (0..*calls).filter(|n| is_write(thread, *n)).count())
                    .sum();
                assert_eq!(lock.read() - before, written as u64, "none is lost");
                calls.iter().sum::<u64>() as f64 / length.as_secs_f64() / 1e6
            });
            let rate = median(rates.collect());
            if (*threads, *writes) == (2, 0) {
                of_two_readers.push(rate);
            }
            print!(" {rate:>9.1}");
        }
        println!();
    }
    let ratio = of_two_readers[0] / of_two_readers[1];
    println!("distributed over parking_lot, two readers: {ratio:.2} (aim: at least 3)");
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| match arguments.next() {
        Some(argument) => argument.parse().expect("a number"),
        None => default,
    };
    let length = Duration::from_millis(number(200));
    let repetitions = number(3).max(1) as usize;
    let wanted = arguments.next();
    let wants = |table: &str| wanted.as_deref().is_none_or(|wanted| wanted == table);
    if wants("uncontended") {
        uncontended(repetitions);
    }
    if wants("exclusive") {
        exclusive(length, repetitions);
    }
    if wants("oversubscribed") {
        oversubscribed(length, repetitions);
    }
    if wants("readers") {
        readers_and_writers(length, repetitions);
    }
}
