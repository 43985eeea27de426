//! Measures the filter beside others: memory, errors, loads, and speed.
//!
//! ```text
//! cargo run --release -p corewise-filter --features peers --example filters -- [SECTION...]
//!     [--log2-slots 24] [--rounds 9] [--builds 3]
//! ```
//!
//! | section | what it prints | source |
//! |---|---|---|
//! | `size` | bits per item and false positives of filters of 95 % (10^6 absent items) | thesis, table 5.3 |
//! | `load` | the load at the first refusal, by width and slots in a bucket | fig. 5.4 |
//! | `space` | bits per item for a rate of false positives, at these loads | fig. 5.5 |
//! | `speed` | lookups by one thread and two, builds, batches, beside other crates | |
//! | `updates` | lookups mixed with 0, 10 and 40 % of updates; lookups beside a writer | fig. 5.7, 5.8 |
//!
//! All filters hash the same keys with the same function, [`FilterHasher`]. Filters that are
//! compared are measured in turns, in an order that alternates, and their ratios are those of
//! rounds. Rates are operations in a second of a thread's *processor* time, so that other programs
//! matter less; those of two threads are sums. The wall clock is printed too: it decides on an idle
//! machine.
//!
//! What may be unfair: `cuckoofilter` has fingerprints of 8 bits only and is not concurrent;
//! `fastbloom` sizes itself by the rate of false positives (0.2 %); `xorf` is static; the
//! lookups of a thread do not depend on each other, so processors overlap them.

use std::error::Error;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Instant;

use corewise_filter::{Builder, CuckooFilter, InsertError};
use corewise_measure::stats::{Ratio, Spread};
use rustix::time::{ClockId, clock_gettime};

/// Keys that a thread looks up in a round.
const LOOKUPS: u64 = 1 << 20;

struct Settings {
    sections: Vec<String>,
    log2_slots: u32,
    rounds: usize,
    builds: usize,
}

/// Prints a section.
type Section = fn(&Settings);

fn settings() -> Result<Settings, Box<dyn Error>> {
    let mut settings = Settings {
        sections: Vec::new(),
        log2_slots: 24,
        rounds: 9,
        builds: 3,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().ok_or(format!("{argument} needs a number"));
        match argument.as_str() {
            "--log2-slots" => settings.log2_slots = number()?.parse()?,
            "--builds" => settings.builds = number()?.parse()?,
            "--rounds" => settings.rounds = number()?.parse()?,
            "size" | "load" | "space" | "speed" | "updates" => settings.sections.push(argument),
            _ => return Err(format!("unknown argument {argument}").into()),
        }
    }
    if !(12..=32).contains(&settings.log2_slots) || settings.rounds.min(settings.builds) == 0 {
        return Err("--log2-slots is 12 to 32, --rounds and --builds 1 or more".into());
    }
    Ok(settings)
}

fn main() -> Result<(), Box<dyn Error>> {
    let settings = settings()?;
    let is_wanted = |section: &str| {
        settings.sections.is_empty() || settings.sections.iter().any(|wanted| wanted == section)
    };
    let sections: [(&str, Section); 5] = [
        ("size", sizes),
        ("load", loads),
        ("space", space),
        ("speed", speed),
        ("updates", updates),
    ];
    for (name, section) in sections {
        if is_wanted(name) {
            println!("\n## {name}\n");
            section(&settings);
        }
    }
    Ok(())
}

/// A filter that was built, as the sections use it.
trait Subject: Send + Sync {
    fn hits(&self, keys: Range<u64>) -> u64;
    fn bytes(&self) -> usize;
}

struct Ours(CuckooFilter);

impl Subject for Ours {
    fn hits(&self, keys: Range<u64>) -> u64 {
        keys.map(|key| u64::from(self.0.contains(&key))).sum()
    }

    fn bytes(&self) -> usize {
        self.0.size_in_bytes()
    }
}

/// The same, by batches of 1,024.
struct Batched(CuckooFilter);

impl Subject for Batched {
    fn hits(&self, keys: Range<u64>) -> u64 {
        let (mut hashes, mut found) = ([0; 1024], [false; 1024]);
        let mut hits = 0;
        for start in keys.step_by(1024) {
            let hash = |(n, hash): (u64, &mut u64)| *hash = self.0.hash(&(start + n));
            (0..).zip(&mut hashes).for_each(hash);
            self.0.contains_hashes(&hashes, &mut found);
            hits += found.iter().map(|&found| u64::from(found)).sum::<u64>();
        }
        hits
    }

    fn bytes(&self) -> usize {
        self.0.size_in_bytes()
    }
}

type Build = fn(slots: usize, items: u64) -> Box<dyn Subject>;

fn filled(builder: Builder, slots: usize, items: u64) -> CuckooFilter {
    let filter = builder.slots(slots).build().expect("there is memory");
    (0..items).for_each(|key| filter.insert(&key).expect("95 % fit"));
    filter
}

/// All filters that are compared, by name.
fn subjects() -> Vec<(&'static str, Build)> {
    let mut all: Vec<(&'static str, Build)> = vec![
        ("8 bits", |slots, items| {
            Box::new(Ours(filled(CuckooFilter::builder().bits(8), slots, items)))
        }),
        ("12 bits", |slots, items| {
            Box::new(Ours(filled(CuckooFilter::builder().bits(12), slots, items)))
        }),
        ("13 bits, semi-sorted", |slots, items| {
            let builder = CuckooFilter::builder().bits(13).semi_sorted(true);
            Box::new(Ours(filled(builder, slots, items)))
        }),
        ("16 bits", |slots, items| {
            Box::new(Ours(filled(CuckooFilter::builder().bits(16), slots, items)))
        }),
        ("12 bits, in batches", |slots, items| {
            Box::new(Batched(filled(
                CuckooFilter::builder().bits(12),
                slots,
                items,
            )))
        }),
    ];
    all.extend(peers());
    all
}

#[cfg(not(feature = "peers"))]
fn peers() -> Vec<(&'static str, Build)> {
    println!("(without the feature `peers`: this crate only)");
    Vec::new()
}

#[cfg(feature = "peers")]
use peers::peers;

/// The other crates.
#[cfg(feature = "peers")]
mod peers {
    use std::hash::{BuildHasherDefault, Hasher};
    use std::ops::Range;

    use corewise_filter::FilterHasher;
    use xorf::Filter as _;

    use super::{Build, Subject};

    type Same = BuildHasherDefault<FilterHasher>;

    struct Cuckoo(cuckoofilter::CuckooFilter<FilterHasher>);
    impl Subject for Cuckoo {
        fn hits(&self, keys: Range<u64>) -> u64 {
            keys.map(|key| u64::from(self.0.contains(&key))).sum()
        }
        fn bytes(&self) -> usize {
            self.0.memory_usage()
        }
    }

    struct Atomic(atomic_cuckoo_filter::CuckooFilter<FilterHasher>);
    impl Subject for Atomic {
        fn hits(&self, keys: Range<u64>) -> u64 {
            keys.map(|key| u64::from(self.0.contains(&key))).sum()
        }
        fn bytes(&self) -> usize {
            2 * self.0.capacity()
        }
    }

    struct Bloom(fastbloom::BloomFilter<Same>);
    impl Subject for Bloom {
        fn hits(&self, keys: Range<u64>) -> u64 {
            keys.map(|key| u64::from(self.0.contains(&key))).sum()
        }
        fn bytes(&self) -> usize {
            self.0.num_bits() / 8
        }
    }

    struct Quotient(qfilter::Filter<Box<[u8]>, Same>);
    impl Subject for Quotient {
        fn hits(&self, keys: Range<u64>) -> u64 {
            keys.map(|key| u64::from(self.0.contains(key))).sum()
        }
        fn bytes(&self) -> usize {
            self.0.memory_usage()
        }
    }

    struct Fuse(xorf::BinaryFuse8);
    fn hash(key: u64) -> u64 {
        let mut hasher = FilterHasher::default();
        hasher.write_u64(key);
        hasher.finish()
    }
    impl Subject for Fuse {
        fn hits(&self, keys: Range<u64>) -> u64 {
            keys.map(|key| u64::from(self.0.contains(&hash(key)))).sum()
        }
        fn bytes(&self) -> usize {
            self.0.fingerprints.len()
        }
    }

    pub(super) fn peers() -> Vec<(&'static str, Build)> {
        vec![
            ("cuckoofilter", |slots, items| {
                let mut filter = cuckoofilter::CuckooFilter::with_capacity(slots);
                // When it is full it replaces another item.
                (0..items).for_each(|key| _ = filter.add(&key));
                Box::new(Cuckoo(filter))
            }),
            ("atomic-cuckoo-filter", |slots, items| {
                let builder = atomic_cuckoo_filter::CuckooFilterBuilder::default();
                let filter = builder.capacity(slots).build().expect("a valid builder");
                (0..items).for_each(|key| _ = filter.insert(&key));
                Box::new(Atomic(filter))
            }),
            ("fastbloom", |_, items| {
                let builder = fastbloom::BloomFilter::with_false_pos(0.002).hasher(Same::default());
                let mut filter = builder.expected_items(items as usize);
                (0..items).for_each(|key| _ = filter.insert(&key));
                Box::new(Bloom(filter))
            }),
            ("qfilter", |_, items| {
                let filter = qfilter::Filter::new_with_hasher(items, 0.002, Same::default());
                let mut filter = filter.expect("a valid rate");
                (0..items).for_each(|key| _ = filter.insert_duplicated(key));
                Box::new(Quotient(filter))
            }),
            ("xorf BinaryFuse8", |_, items| {
                let keys: Vec<u64> = (0..items).map(hash).collect();
                Box::new(Fuse(keys.try_into().expect("different hashes")))
            }),
        ]
    }
}

fn sizes(settings: &Settings) {
    let slots = 1usize << settings.log2_slots;
    let items = slots as u64 * 95 / 100;
    println!("{items} items, 10^6 absent ones\n");
    println!("| filter | bits per item | false positives | missed items |\n|---|---|---|---|");
    for (name, build) in subjects() {
        let filter = build(slots, items);
        let bits = filter.bytes() as f64 * 8.0 / items as f64;
        let absent = items..items + 1_000_000 / 1024 * 1024;
        let rate = filter.hits(absent.clone()) as f64 / absent.count() as f64;
        let present = items / 1024 * 1024;
        let missed = present - filter.hits(0..present);
        println!("| {name} | {bits:.2} | {:.4} % | {missed} |", 100.0 * rate);
    }
}

/// The load at the first refusal.
fn first_refusal(bucket_slots: u32, bits: u32, log2_slots: u32, seed: u64) -> f64 {
    let builder = CuckooFilter::builder()
        .bucket_slots(bucket_slots)
        .bits(bits)
        .seed(seed);
    let filter = builder
        .slots(1 << log2_slots)
        .build()
        .expect("there is memory");
    let is_refused = |key: &u64| filter.insert(key) == Err(InsertError::Full);
    // Copies of an item may be refused otherwise.
    (0u64..).find(is_refused);
    filter.load_factor()
}

fn loads(settings: &Settings) {
    let log2_slots = settings.log2_slots.min(20);
    println!("filters of 2^{log2_slots} slots; the least of three\n");
    println!("| bits | b = 2 | b = 4 | b = 8 |\n|---|---|---|---|");
    for bits in 1..=20 {
        let least = |b| {
            let loads = (0..3).map(|seed| first_refusal(b, bits, log2_slots, seed));
            loads.fold(1.0, f64::min)
        };
        println!(
            "| {bits} | {:.3} | {:.3} | {:.3} |",
            least(2),
            least(4),
            least(8)
        );
    }
}

fn space(_: &Settings) {
    println!("| bits | b = 2 | b = 4 | semi-sorted | b = 8 |\n|---|---|---|---|---|");
    for bits in [6, 8, 10, 12, 14, 16, 20] {
        let cell = |b: u32, load: f64, is_semi_sorted: bool| {
            let builder = CuckooFilter::builder()
                .bucket_slots(b)
                .bits(bits)
                .slots(1 << 16);
            let filter = builder
                .semi_sorted(is_semi_sorted)
                .build()
                .expect("there is memory");
            let items = (load * filter.slots() as f64) as u64;
            (0..items).for_each(|key| filter.insert(&key).expect("it fits"));
            format!("{:.2} for {:.1e}", filter.bits_per_item(), filter.fpr())
        };
        let row = [
            cell(2, 0.84, false),
            cell(4, 0.95, false),
            cell(4, 0.95, true),
        ];
        println!(
            "| {bits} | {} | {} |",
            row.join(" | "),
            cell(8, 0.98, false)
        );
    }
}

/// Operations in a second: of processor time, and of the wall clock.
#[derive(Clone, Copy)]
struct Rate {
    cpu: f64,
    wall: f64,
}

/// The processor time of this thread in seconds.
fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Runs `work` of each thread at once; it returns its number of operations.
fn timed(threads: u64, work: impl Fn(u64) -> u64 + Sync) -> Rate {
    let barrier = Barrier::new(threads as usize);
    let run = |thread| {
        barrier.wait();
        let (start, cpu) = (Instant::now(), cpu_time());
        let operations = work(thread) as f64;
        let cpu = operations / (cpu_time() - cpu);
        (cpu, operations / start.elapsed().as_secs_f64())
    };
    thread::scope(|scope| {
        let run = &run;
        let others: Vec<_> = (1..threads)
            .map(|thread| scope.spawn(move || run(thread)))
            .collect();
        let (mut cpu, mut wall) = run(0);
        for other in others {
            let (its_cpu, its_wall) = other.join().expect("no thread panics");
            cpu += its_cpu;
            wall += its_wall;
        }
        Rate { cpu, wall }
    })
}

fn print_rates(name: &str, rates: &[Rate], base: &[Rate]) {
    let millions = |rate: fn(&Rate) -> f64| {
        Spread::of(rates.iter().map(|r| rate(r) / 1e6)).expect("there are rounds")
    };
    let (cpu, wall) = (millions(|r| r.cpu), millions(|r| r.wall));
    let ratio = Ratio::paired(
        rates
            .iter()
            .zip(base)
            .map(|(one, other)| (one.cpu, other.cpu)),
    );
    let ratio = ratio.expect("there are rounds");
    println!(
        "| {name} | {:.1} ({:.1} to {:.1}) | {:.1} | {:.2} ({:.2} to {:.2}) |",
        cpu.median, cpu.min, cpu.max, wall.median, ratio.value, ratio.low, ratio.high
    );
}

fn print_head(what: &str, base: &str) {
    println!("\n{what}\n");
    println!("| filter | M/s of CPU (range) | M/s of the clock | ratio to {base} (95 %) |");
    println!("|---|---|---|---|");
}

/// Measures all subjects in turns; prints their rates beside those of the base.
fn compare(
    what: &str,
    names: &[&'static str],
    base: &str,
    rounds: usize,
    measure: impl Fn(usize) -> Rate,
) {
    let mut rates: Vec<Vec<Rate>> = vec![Vec::new(); names.len()];
    for round in 0..rounds {
        let order: Vec<usize> = (0..names.len()).collect();
        let turn = |index: &usize| {
            // Every other round backwards.
            let index = *index;
            if round % 2 == 0 {
                index
            } else {
                names.len() - 1 - index
            }
        };
        for index in order.iter().map(turn) {
            rates[index].push(measure(index));
        }
    }
    let base_index = names.iter().position(|name| *name == base).unwrap_or(0);
    print_head(what, names[base_index]);
    for (name, rates_of_one) in names.iter().zip(&rates) {
        print_rates(name, rates_of_one, &rates[base_index]);
    }
}

fn speed(settings: &Settings) {
    let slots = 1usize << settings.log2_slots;
    let items = slots as u64 * 95 / 100;
    let rounds = settings.rounds;
    let all = subjects();
    let names: Vec<&'static str> = all.iter().map(|(name, _)| *name).collect();
    // The filters that were built last, for the lookups.
    let filters: Vec<_> = all.iter().map(|_| Mutex::new(None)).collect();
    let builds = |index: usize| {
        timed(1, |_| {
            let built = all[index].1(slots, items);
            *filters[index].lock().expect("no panic") = Some(built);
            items
        })
    };
    let what = "Builds of 95 %, one item after the other";
    compare(what, &names, "cuckoofilter", settings.builds, builds);
    let into_filter = |filter: Mutex<Option<Box<dyn Subject>>>| filter.into_inner();
    let filters: Vec<_> = filters
        .into_iter()
        .filter_map(|filter| into_filter(filter).expect("no panic"))
        .collect();
    for threads in [1, 2] {
        for (what, first) in [("absent", items), ("present", 0)] {
            let lookups = |index: usize| {
                timed(threads, |thread| {
                    let start = first + thread * LOOKUPS;
                    black_box(filters[index].hits(start..start + LOOKUPS));
                    LOOKUPS
                })
            };
            let what = format!("Lookups of {what} items, {threads} thread(s)");
            compare(&what, &names, "cuckoofilter", rounds, lookups);
        }
    }
    drop(filters);
    parallel_builds(slots, items, settings.builds);
}

/// Builds from hashes by one and two threads. Their wall clock decides.
fn parallel_builds(slots: usize, items: u64, rounds: usize) {
    let empty = || {
        CuckooFilter::builder()
            .slots(slots)
            .build()
            .expect("there is memory")
    };
    let filter = empty();
    let hashes: Vec<u64> = (0..items).map(|key| filter.hash(&key)).collect();
    let names = [
        "insert_hashes",
        "insert_parallel, 1 thread",
        "insert_parallel, 2 threads",
    ];
    compare(
        "Builds of 95 % from hashes",
        &names,
        names[1],
        rounds.min(3),
        |index| {
            let filter = empty();
            let (start, cpu) = (Instant::now(), cpu_time());
            match NonZeroUsize::new(index) {
                None => filter.insert_hashes(&hashes).expect("95 % fit"),
                Some(threads) => filter.insert_parallel(&hashes, threads).expect("95 % fit"),
            }
            // The time of the calling thread, which does its share of the work.
            let rate = |seconds: f64| items as f64 / seconds;
            Rate {
                cpu: rate(cpu_time() - cpu),
                wall: rate(start.elapsed().as_secs_f64()),
            }
        },
    );
}

/// Lookups and updates of a thread: the keys above the items are its, at any time half of them
/// present.
fn mixed(filter: &CuckooFilter, items: u64, thread: u64, percent: u64) -> u64 {
    let first = items + (1 + thread) * (1 << 32);
    let (mut inserted, mut removed, mut hits) = (0, 0, 0);
    for operation in 0..LOOKUPS {
        // A multiplication spreads the updates.
        if operation * 37 % 100 < percent {
            if inserted - removed < 1024 && filter.insert(&(first + inserted)).is_ok() {
                inserted += 1;
            } else if removed < inserted {
                assert!(filter.remove(&(first + removed)));
                removed += 1;
            }
        } else {
            hits += u64::from(filter.contains(&(operation * 2 % items)));
        }
    }
    (removed..inserted).for_each(|n| assert!(filter.remove(&(first + n))));
    assert!(hits > 0, "half of the lookups find");
    LOOKUPS
}

fn updates(settings: &Settings) {
    let slots = 1usize << settings.log2_slots;
    for load in [50, 95] {
        let items = slots as u64 * load / 100;
        let filter = filled(CuckooFilter::builder(), slots, items);
        for threads in [1, 2] {
            let names = ["0 % updates", "10 % updates", "40 % updates"];
            let what = format!("A filter of {load} %, {threads} thread(s)");
            compare(&what, &names, names[0], settings.rounds, |index| {
                timed(threads, |thread| {
                    mixed(&filter, items, thread, [0, 10, 40][index])
                })
            });
        }
        let names = ["lookups alone", "lookups beside a writer"];
        let what = format!("Lookups in a filter of {load} %");
        compare(&what, &names, names[0], settings.rounds, |index| {
            beside_a_writer(&filter, items, index == 1)
        });
    }
}

fn beside_a_writer(filter: &CuckooFilter, items: u64, has_writer: bool) -> Rate {
    let is_over = AtomicBool::new(!has_writer);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                mixed(filter, items, 7, 100);
            }
        });
        let rate = timed(1, |_| {
            let half = LOOKUPS / 2;
            let hits = Ours::hits_in(filter, 0..half) + Ours::hits_in(filter, items..items + half);
            assert!(hits >= half, "{hits} hits of {half} present items");
            LOOKUPS
        });
        is_over.store(true, Relaxed);
        rate
    })
}

impl Ours {
    fn hits_in(filter: &CuckooFilter, keys: Range<u64>) -> u64 {
        keys.map(|key| u64::from(filter.contains(&key))).sum()
    }
}
