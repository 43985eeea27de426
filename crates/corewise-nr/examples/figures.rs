//! Figures 5 to 7 of \[NR\] as ratios: a map, a dictionary, a priority queue and a sorted set, made
//! concurrent in several ways, with 0, 10 and 100 % updates.
//!
//! ```sh
//! cargo run --release -p corewise-nr --example figures -- [threads] [ms of a slice] [rounds] \
//!     [part of a title] [rows]
//! ```
//!
//! Every row is measured in slices; the slices of the rows alternate, and a row's figure is its
//! median and its best slice. The ratio to `NR 2` is the median of the ratios within a round, with
//! the least and the largest. The last column is the same ratio of operations for each second of
//! processor time, which depends less on what else the machine does: a thread that spins keeps its
//! processor, and one that yields or parks loses it to other programs. (Linux only; 0 elsewhere.)
//! `rows` are names with commas in between, `NR 2` first. Rows: `NR 1` and `NR 2` are node
//! replication with one and two replicas, `NR 2/own` has a handle for each thread, SL to FC+ are
//! the baselines, `FC/c` is FC with structure-specific combining (of the queue: it takes all that
//! is to be removed out at once), `LF` is the paper's lock-free baseline, the skip list of Herlihy
//! and Shavit without reclamation, `SkipMap` is crossbeam-skiplist, which reclaims, `crate 1` and
//! `crate 2` are the crate `node-replication` 0.1.1 with one and two replicas (not on one thread:
//! an idle replica stops its writers), `unsync` is the sequential structure on one thread.
//!
//! Figure 7 measures a sorted set of Redis: 10,000 members, a read is `ZRANK` and an update
//! `ZINCRBY`, by one or by minus one.
//!
//! Choices that the paper leaves open: keys are drawn from twice the number of items; as many
//! updates add as remove; keys of `zipf` have parameter 1.5; `e` writes go to random lines of 1 MiB
//! of the thread; batches and the log have their default sizes.
//!
//! Placement: on a machine with two NUMA nodes or more, the replicas of `NR 2` are made on the
//! nodes' CPUs, and the threads of all rows run on them, as many on the one as on the other. On
//! other machines threads run where the system puts them.
//!
//! Memory: `LF` frees nothing before its mix ends. Each insertion of an absent key costs about 100
//! bytes, up to 6 GB in all; a longer run ends with a panic.
//!
//! Bias: with fewer than two nodes, `NR 2` pays for a second replica and gains nothing from it
//! but a shorter wait for the combiner. Threads of the crate that wait for a combiner or for the
//! log spin and never yield; those of node replication here spin, yield and then park. With more
//! threads than processors a spinning thread keeps the one that it waits for from running, which
//! costs the crate up to a time slice of the system each time. Ratios with at most as many
//! threads as processors do not have this bias.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::time::{Duration, Instant};

use corewise_nr::baseline::{
    Batch, Combine, FlatCombining, FlatCombiningPlus, ReadersWriterLocked, SpinLocked,
};
use corewise_nr::sorted_set::Direction;
use corewise_nr::structures::lock_free::{LockFreePriorityQueue, LockFreeSkipList};
use corewise_nr::{Builder, Concurrent, NodeReplicated, Operation, Sequential, SortedSet};
use corewise_topology::{CpuId, Topology, run_on};
use crossbeam_skiplist::{SkipMap, SkipSet};
use node_replication::{Dispatch, Log, Replica};

/// Insertions that a row `LF` may execute: about 6 GB.
const MAX_LOCK_FREE_NODES: usize = 1 << 26;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 32) * bound) >> 32
    }
}

/// Keys of a distribution, drawn ahead of time.
#[derive(Clone)]
enum Keys {
    Uniform(u64),
    Drawn(Arc<[u64]>),
}

impl Keys {
    fn zipf(bound: u64) -> Self {
        let mut sum = 0.0;
        let weight = |rank| (rank as f64).powf(-1.5);
        let sums: Vec<f64> = (1..=bound)
            .map(|rank| {
                sum += weight(rank);
                sum
            })
            .collect();
        let mut random = Random(0x1234_5678_9abc_def1);
        let draw = |_| {
            let at = random.below(1 << 30) as f64 / (1u64 << 30) as f64 * sum;
            let rank = sums.partition_point(|&sum| sum < at) as u64;
            // Hot keys are not neighbours.
            rank.wrapping_mul(0x9e37_79b9) % bound
        };
        Self::Drawn((0..1 << 17).map(draw).collect())
    }

    #[inline]
    fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Self::Uniform(bound) => random.below(*bound),
            Self::Drawn(keys) => keys[random.below(keys.len() as u64) as usize],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Update {
    Add(u64),
    Remove(u64),
}

/// A structure with the operations of the flat combining benchmark.
trait Structure: Sequential<Read = u64, Write = Update, Response = Option<u64>> + Clone {
    fn filled(items: u64) -> Self;
    /// Flat combining with combining that knows the structure, if there is any.
    fn combining<'a>(&self) -> Option<Subject<'a>>
    where
        Self: 'a,
    {
        None
    }
}

#[derive(Clone)]
struct Map<M>(M);

macro_rules! map {
    ($type:ty) => {
        impl Sequential for Map<$type> {
            type Read = u64;
            type Write = Update;
            type Response = Option<u64>;
            fn read(&self, key: &u64) -> Option<u64> {
                self.0.get(key).copied()
            }
            fn write(&mut self, update: &Update) -> Option<u64> {
                match *update {
                    Update::Add(key) => self.0.insert(key, key),
                    Update::Remove(key) => self.0.remove(&key),
                }
            }
        }
        impl Structure for Map<$type> {
            fn filled(items: u64) -> Self {
                Self((0..items).map(|key| (2 * key, key)).collect())
            }
        }
    };
}

map!(HashMap<u64, u64>);
map!(BTreeMap<u64, u64>);

/// `Add` inserts a key, `Remove` removes the least one, a read finds the least one.
#[derive(Clone)]
struct Queue(BTreeSet<u64>);

impl Sequential for Queue {
    type Read = u64;
    type Write = Update;
    type Response = Option<u64>;
    fn read(&self, _: &u64) -> Option<u64> {
        self.0.first().copied()
    }
    fn write(&mut self, update: &Update) -> Option<u64> {
        match *update {
            Update::Add(key) => self.0.insert(key).then_some(key),
            Update::Remove(_) => self.0.pop_first(),
        }
    }
}

impl Structure for Queue {
    fn filled(items: u64) -> Self {
        Self((0..items).map(|key| 2 * key).collect())
    }
    fn combining<'a>(&self) -> Option<Subject<'a>> {
        Some(concurrent(FlatCombining::with_combining(self.clone())))
    }
}

impl Combine for Queue {
    fn combine(&mut self, batch: &mut Batch<Self>) {
        let is_removal = |place: &usize| {
            let operation = batch.operation(*place);
            matches!(operation, Operation::Write(Update::Remove(_)))
        };
        let removals: Vec<usize> = (0..batch.len()).filter(is_removal).collect();
        if removals.len() < 2 {
            return;
        }
        let removed = match self.0.iter().nth(removals.len()).copied() {
            Some(least_kept) => {
                let kept = self.0.split_off(&least_kept);
                std::mem::replace(&mut self.0, kept)
            }
            None => std::mem::take(&mut self.0),
        };
        let mut removed = removed.into_iter();
        for place in removals {
            batch.answer(place, removed.next());
        }
    }
}

/// `Add` and `Remove` change the score of a member, a read finds its rank.
#[derive(Clone)]
struct Ranking(SortedSet);

impl Sequential for Ranking {
    type Read = u64;
    type Write = Update;
    type Response = Option<u64>;
    fn read(&self, key: &u64) -> Option<u64> {
        let rank = self.0.rank(&key.to_be_bytes(), Direction::Ascending);
        rank.map(|rank| rank as u64)
    }
    fn write(&mut self, update: &Update) -> Option<u64> {
        let (key, delta) = match *update {
            Update::Add(key) => (key, 1.0),
            Update::Remove(key) => (key, -1.0),
        };
        let score = self.0.increment(&key.to_be_bytes(), delta).ok()?;
        Some(score as u64)
    }
}

impl Structure for Ranking {
    fn filled(items: u64) -> Self {
        let mut set = SortedSet::new();
        for key in 0..items {
            let inserted = set.insert(&key.to_be_bytes(), key as f64);
            inserted.expect("a number, and a small set");
        }
        Self(set)
    }
}

/// The crate `node-replication` executes the same structures.
#[derive(Clone)]
struct Peer<D>(D);

impl<D: Structure> Dispatch for Peer<D> {
    type ReadOperation = u64;
    type WriteOperation = Update;
    type Response = Option<u64>;
    fn dispatch(&self, key: u64) -> Option<u64> {
        self.0.read(&key)
    }
    fn dispatch_mut(&mut self, update: Update) -> Option<u64> {
        self.0.write(&update)
    }
}

/// What is measured.
#[derive(Clone)]
struct Mix {
    keys: Keys,
    updates: u64,
    /// External writes between operations.
    external: u64,
}

/// A thread of a slice.
struct Worker<'a> {
    number: usize,
    random: Random,
    mix: &'a Mix,
    memory: Vec<u64>,
    stop: &'a AtomicBool,
    running: &'a AtomicUsize,
    /// Nanoseconds of processor time of all workers.
    processor_ns: &'a AtomicU64,
}

/// Nanoseconds that the calling thread has run.
fn processor_time_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split(' ').next().map(str::parse);
    first.and_then(Result::ok).unwrap_or(0)
}

impl Worker<'_> {
    /// Executes operations until the slice ends, and returns their number.
    fn run(&mut self, mut execute: impl FnMut(Result<u64, Update>) -> Option<u64>) -> u64 {
        let mut done = 0;
        let begun_ns = processor_time_ns();
        while !self.stop.load(SeqCst) {
            for _ in 0..64 {
                let key = self.mix.keys.draw(&mut self.random);
                let face = self.random.below(200);
                let operation = match face {
                    _ if face >= 2 * self.mix.updates => Ok(key),
                    _ if face.is_multiple_of(2) => Err(Update::Add(key)),
                    _ => Err(Update::Remove(key)),
                };
                black_box(execute(operation));
                for _ in 0..self.mix.external {
                    let place = self.random.below(self.memory.len() as u64);
                    self.memory[place as usize] += 1;
                }
            }
            done += 64;
        }
        let taken_ns = processor_time_ns() - begun_ns;
        self.processor_ns.fetch_add(taken_ns, SeqCst);
        self.running.fetch_sub(1, SeqCst);
        done
    }
}

/// Executes a slice's operations on a thread.
type Subject<'a> = Box<dyn Fn(&mut Worker<'_>) -> u64 + Sync + 'a>;

fn operation<D: Structure>(operation: Result<u64, Update>) -> Operation<D> {
    operation.map_or_else(Operation::Write, Operation::Read)
}

fn concurrent<'a, D: Structure + 'a>(subject: impl Concurrent<D> + 'a) -> Subject<'a> {
    Box::new(move |worker| worker.run(|it| subject.execute(operation::<D>(it))))
}

/// The CPUs of two groups of NUMA nodes; none on machines with fewer than two.
fn groups() -> &'static [Vec<CpuId>] {
    static GROUPS: OnceLock<Vec<Vec<CpuId>>> = OnceLock::new();
    GROUPS.get_or_init(|| {
        let machine = Topology::detect();
        let mut groups = vec![Vec::new(); 2];
        for (number, node) in machine.nodes.iter().enumerate() {
            let is_allowed = |cpu: &&CpuId| machine.allowed().any(|allowed| allowed.id == **cpu);
            groups[number % 2].extend(node.cpus.iter().filter(is_allowed));
        }
        groups.retain(|cpus| !cpus.is_empty());
        if groups.len() == 2 {
            groups
        } else {
            Vec::new()
        }
    })
}

fn replicated<D: Structure>(replicas: usize, data: &D) -> NodeReplicated<D> {
    let builder = match (replicas, groups()) {
        (2, groups) if !groups.is_empty() => Builder::new().nodes(groups.to_vec()),
        _ => Builder::new().replicas(replicas),
    };
    builder.build(|_| data.clone()).expect("valid sizes")
}

fn peer<'a, D: Structure + 'a>(replicas: usize, data: &D) -> Subject<'a> {
    let log = Arc::new(Log::<Update>::new(2 << 20));
    let make = |_| Replica::with_data(&log, Peer(data.clone()));
    let replicas: Vec<_> = (0..replicas).map(make).collect();
    // Registrations are never given back, so a thread number keeps its own.
    let tokens: Vec<Mutex<HashMap<usize, _>>> = replicas.iter().map(|_| Mutex::default()).collect();
    Box::new(move |worker| {
        let place = worker.number % replicas.len();
        let replica = &replicas[place];
        let token = {
            let mut tokens = tokens[place].lock().unwrap();
            let register = || replica.register().expect("a few threads");
            *tokens.entry(worker.number).or_insert_with(register)
        };
        let done = worker.run(|it| match it {
            Ok(key) => replica.execute(key, token),
            Err(update) => replica.execute_mut(update, token),
        });
        // A replica that does not go on stops the writers of others.
        while worker.running.load(SeqCst) > 0 {
            replica.sync(token);
        }
        done
    })
}

fn subjects<'a, D: Structure + 'a>(data: &D) -> Vec<(&'static str, Subject<'a>)> {
    let own = replicated(2, data);
    let own: Subject<'a> = Box::new(move |worker| {
        let ids = own.replicas();
        let handle = own.handle(Some(ids[worker.number % 2])).expect("live");
        worker.run(|it| match it {
            Ok(key) => handle.read(|data| data.read(&key)),
            Err(update) => handle.write(update),
        })
    });
    let mut all = vec![
        ("NR 2", concurrent(replicated(2, data))),
        ("NR 2/own", own),
        ("NR 1", concurrent(replicated(1, data))),
        ("SL", concurrent(SpinLocked::new(data.clone()))),
        ("RWL", concurrent(ReadersWriterLocked::new(data.clone()))),
        ("FC", concurrent(FlatCombining::new(data.clone()))),
        ("FC+", concurrent(FlatCombiningPlus::new(data.clone()))),
        ("crate 1", peer(1, data)),
    ];
    all.extend(data.combining().map(|subject| ("FC/c", subject)));
    all
}

/// The lock-free dictionary does not replace the value of a key that is there; all values of a key
/// are equal here.
fn lock_free_map<'a>(items: u64) -> Subject<'a> {
    let list = LockFreeSkipList::with_limit(MAX_LOCK_FREE_NODES);
    (0..items).for_each(|key| _ = list.insert(2 * key, 2 * key));
    Box::new(move |worker| {
        worker.run(|it| match it {
            Ok(key) => list.get(&key).copied(),
            Err(Update::Add(key)) => {
                let is_new = list.insert(key, key).expect("fewer nodes than the limit");
                (!is_new).then_some(key)
            }
            Err(Update::Remove(key)) => list.remove(&key).copied(),
        })
    })
}

fn lock_free_queue<'a>(items: u64) -> Subject<'a> {
    let queue = LockFreePriorityQueue::with_limit(MAX_LOCK_FREE_NODES);
    (0..items).for_each(|key| queue.insert(2 * key).expect("fewer nodes than the limit"));
    Box::new(move |worker| {
        worker.run(|it| match it {
            Ok(_) => queue.min().copied(),
            Err(Update::Add(key)) => {
                queue.insert(key).expect("fewer nodes than the limit");
                Some(key)
            }
            Err(Update::Remove(_)) => queue.remove_min().copied(),
        })
    })
}

fn skip_map<'a>(items: u64) -> Subject<'a> {
    let map: SkipMap<u64, u64> = (0..items).map(|key| (2 * key, key)).collect();
    Box::new(move |worker| {
        worker.run(|it| match it {
            Ok(key) => map.get(&key).map(|entry| *entry.value()),
            Err(Update::Add(key)) => Some(*map.insert(key, key).value()),
            Err(Update::Remove(key)) => map.remove(&key).map(|entry| *entry.value()),
        })
    })
}

fn skip_queue<'a>(items: u64) -> Subject<'a> {
    let set: SkipSet<u64> = (0..items).map(|key| 2 * key).collect();
    Box::new(move |worker| {
        worker.run(|it| match it {
            Ok(_) => set.front().map(|entry| *entry.value()),
            Err(Update::Add(key)) => Some(*set.insert(key).value()),
            Err(Update::Remove(_)) => set.pop_front().map(|entry| *entry.value()),
        })
    })
}

/// Runs a slice, and returns the operations a second, and those a second of processor time.
fn slice(subject: &Subject<'_>, mix: &Mix, threads: usize, length: Duration) -> [f64; 2] {
    let (stop, running) = (AtomicBool::new(false), AtomicUsize::new(threads));
    let processor_ns = AtomicU64::new(0);
    let start = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                let (start, stop, running) = (&start, &stop, &running);
                let processor_ns = &processor_ns;
                scope.spawn(move || {
                    let mut worker = Worker {
                        number,
                        random: Random(0x9e37_79b9_7f4a_7c15 ^ (number as u64 + 1) << 20),
                        mix,
                        memory: vec![0; 1 << 17],
                        stop,
                        running,
                        processor_ns,
                    };
                    let cpus = groups().get(number % 2).map_or(&[][..], Vec::as_slice);
                    start.wait();
                    run_on(cpus, || subject(&mut worker))
                })
            })
            .collect();
        start.wait();
        let begun = Instant::now();
        std::thread::sleep(length);
        stop.store(true, SeqCst);
        let taken = begun.elapsed().as_secs_f64();
        let done: u64 = workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .sum();
        let processor_time = processor_ns.load(SeqCst) as f64 / 1e9;
        [done as f64 / taken, done as f64 / processor_time]
    })
}

#[derive(Clone)]
struct Options {
    threads: usize,
    length: Duration,
    rounds: usize,
    /// Part of the titles that are wanted.
    title: String,
    /// Rows that are wanted; all if it is empty.
    rows: Vec<String>,
}

/// The least, the median and the largest.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    [
        sorted[0],
        sorted[sorted.len() / 2],
        sorted[sorted.len() - 1],
    ]
}

/// Prints a line for each subject: Mops/s, and how many times as fast the first one is.
fn measure(title: &str, mut subjects: Vec<(&str, Subject<'_>)>, mix: &Mix, options: &Options) {
    let is_wanted = |name: &str| options.rows.iter().any(|row| row == name);
    subjects.retain(|(name, _)| options.rows.is_empty() || is_wanted(name));
    let mut rates = vec![Vec::new(); subjects.len()];
    for _ in 0..options.rounds {
        for (rates, (_, subject)) in rates.iter_mut().zip(&subjects) {
            rates.push(slice(subject, mix, options.threads, options.length));
        }
    }
    println!("{title}, {} % updates, e = {}", mix.updates, mix.external);
    for ((name, _), its) in subjects.iter().zip(&rates) {
        let [_, rate, best] = spread(its.iter().map(|[rate, _]| rate / 1e6));
        let ratios = |of: usize| {
            let pairs = rates[0].iter().zip(its);
            spread(pairs.map(move |(first, its)| first[of] / its[of]))
        };
        let ([least, ratio, largest], [low, ratio_of_time, high]) = (ratios(0), ratios(1));
        println!(
            "  {name:9} {rate:8.2} Mops/s (best {best:6.2})   \
             NR 2 is {ratio:6.2} × ({least:.2} to {largest:.2})   \
             by processor time {ratio_of_time:6.2} × ({low:.2} to {high:.2})"
        );
    }
}

fn sequential<D: Structure>(data: &D) -> Subject<'_> {
    let data = Mutex::new(data.clone());
    Box::new(move |worker| {
        let mut data = data.lock().unwrap();
        worker.run(|it| match it {
            Ok(key) => data.read(&key),
            Err(update) => data.write(&update),
        })
    })
}

/// Makes rows that need no [`Sequential`] structure, filled with a number of items.
type Others = fn(u64) -> Vec<(&'static str, Subject<'static>)>;

fn maps(items: u64) -> Vec<(&'static str, Subject<'static>)> {
    vec![("LF", lock_free_map(items)), ("SkipMap", skip_map(items))]
}

fn queues(items: u64) -> Vec<(&'static str, Subject<'static>)> {
    vec![
        ("LF", lock_free_queue(items)),
        ("SkipMap", skip_queue(items)),
    ]
}

/// One structure with all mixes, on all threads and then on one.
fn figure<D: Structure>(
    title: &str,
    (items, keys): (u64, Keys),
    external: u64,
    others: Option<Others>,
    options: &Options,
) {
    if !title.contains(&options.title) {
        return;
    }
    let data = D::filled(items);
    for updates in [0, 10, 100] {
        let mix = Mix {
            keys: keys.clone(),
            updates,
            external,
        };
        let mut all = subjects(&data);
        if options.threads > 1 {
            all.push(("crate 2", peer(2, &data)));
        }
        all.extend(others.iter().flat_map(|others| others(items)));
        let described = format!("{title}, {} threads", options.threads);
        measure(&described, all, &mix, options);
        let mut alone = subjects(&data);
        alone.extend(others.iter().flat_map(|others| others(items)));
        alone.push(("unsync", sequential(&data)));
        let single = Options {
            threads: 1,
            ..options.clone()
        };
        measure(&format!("{title}, one thread"), alone, &mix, &single);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, usual: usize| match arguments.get(place) {
        Some(text) => text.parse().expect("a number"),
        None => usual,
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let rows = arguments.get(4).map(|rows| rows.split(','));
    let options = Options {
        threads: number(0, cpus),
        length: Duration::from_millis(number(1, 200) as u64),
        rounds: number(2, 5),
        title: arguments.get(3).cloned().unwrap_or_default(),
        rows: rows.into_iter().flatten().map(String::from).collect(),
    };
    let uniform = |items| (items, Keys::Uniform(2 * items));
    let zipf = |items| (items, Keys::zipf(2 * items));
    let (maps, queues): (Option<Others>, Option<Others>) = (Some(maps), Some(queues));
    figure::<Map<HashMap<u64, u64>>>("hash map", uniform(65_536), 0, maps, &options);
    figure::<Queue>("priority queue", uniform(200_000), 0, queues, &options);
    figure::<Queue>("priority queue", uniform(200_000), 512, queues, &options);
    figure::<Map<BTreeMap<u64, u64>>>("dictionary", uniform(200_000), 0, maps, &options);
    figure::<Map<BTreeMap<u64, u64>>>("dictionary (zipf)", zipf(200_000), 0, maps, &options);
    let members = (10_000, Keys::Uniform(10_000));
    figure::<Ranking>("sorted set", members, 0, None, &options);
}
