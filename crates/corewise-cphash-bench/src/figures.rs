//! Figures 5 to 12 of \[CPHASH\] as ratios: `CpHash` with dedicated server threads, and co-located,
//! beside `LockHash`, which has as many threads as both kinds of `CpHash` together.
//!
//! Keys and values have 8 bytes. A working set is named by the bytes of its values, as in the
//! paper (§6.1). All tables are filled before they are measured; the paper's start empty.

use std::hint::spin_loop;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use corewise_cphash::{
    CacheRequest, Client, Colocated, Config, CpHash, Eviction, LockHash, PartitionServer, PinPolicy,
};
use corewise_measure::draw::mix;

use crate::report::{Candidate, Options, SLICE, compare};

/// Operations between two looks at the clock.
const ROUND: usize = 1 << 12;

/// Drawn operations of a thread, which it repeats.
const DRAWS: usize = 1 << 18;

/// Marks an insertion among drawn keys.
const INSERT: u64 = 1 << 63;

/// One configuration of the paper's §6.1.
#[derive(Clone)]
struct Workload {
    keys: u64,
    /// Of the working set.
    capacity_percent: u64,
    inserts_percent: u64,
    pipeline: usize,
    eviction: Eviction,
    /// The exponent of a zipfian distribution; 0 is uniform.
    zipf: f64,
    threads: usize,
    placement: PinPolicy,
}

impl Workload {
    fn new(working_set_bytes: u64, options: &Options) -> Self {
        Self {
            keys: working_set_bytes / 8,
            capacity_percent: 100,
            inserts_percent: 30,
            pipeline: 1000,
            eviction: Eviction::Lru,
            zipf: 0.0,
            threads: options.threads,
            placement: PinPolicy::None,
        }
    }

    /// A table for the capacity in elements of these bytes. At 100 % everything fits, also into the
    /// fullest partition.
    fn config(&self, element_bytes: u64, partitions: usize) -> Config {
        let elements = match self.capacity_percent {
            100 => self.keys + self.keys / 4,
            percent => self.keys * percent / 100,
        };
        let slack = if self.capacity_percent == 100 {
            1024
        } else {
            0
        };
        let bytes = (elements * element_bytes) as usize + partitions * slack;
        Config::new(bytes.max(partitions * 256))
            .partitions(partitions)
            .element_bytes(element_bytes as usize)
            .eviction(self.eviction)
            .pipeline(self.pipeline)
            .placement(self.placement.clone())
    }

    /// What each thread does, drawn in advance: keys, some of them marked.
    fn draws(&self) -> Vec<Vec<u64>> {
        let mut cumulative = Vec::new();
        if self.zipf > 0.0 {
            let mut sum = 0.0;
            cumulative.extend((1..=self.keys).map(|rank| {
                sum += (rank as f64).powf(-self.zipf);
                sum
            }));
        }
        let key = |draw: u64| match cumulative.last() {
            None => ((u128::from(draw) * u128::from(self.keys)) >> 64) as u64,
            Some(all) => {
                let point = all * (draw >> 11) as f64 / (1u64 << 53) as f64;
                // Ranks are keys: the tables hash them.
                cumulative.partition_point(|&sum| sum < point) as u64
            }
        };
        let draws = |thread: u64| {
            let each = |index: u64| {
                let draw = mix(thread << 32 | index);
                let is_insert = mix(draw) % 100 < self.inserts_percent;
                key(draw) | if is_insert { INSERT } else { 0 }
            };
            (0..DRAWS as u64).map(each).collect()
        };
        (0..self.threads as u64).map(draws).collect()
    }
}

fn request(draw: u64) -> CacheRequest<'static> {
    match draw & INSERT {
        0 => CacheRequest::Get(draw.into()),
        _ => CacheRequest::Insert((draw & !INSERT).into(), b"8 bytes!"),
    }
}

/// The sum of the rates of some threads, in millions of operations per second: each repeats `round`
/// with its state for a slice, and calls `finish` with the number of threads that are done.
fn measure<T: Send>(
    states: &mut [T],
    round: impl Fn(&mut T, usize) + Sync,
    finish: impl Fn(&mut T, &AtomicUsize) + Sync,
) -> f64 {
    let (barrier, done) = (Barrier::new(states.len()), AtomicUsize::new(0));
    let run = |state: &mut T, thread: usize| {
        barrier.wait();
        let (start, mut count) = (Instant::now(), 0);
        while start.elapsed() < SLICE {
            round(state, thread);
            count += ROUND;
        }
        let rate = count as f64 / start.elapsed().as_secs_f64() / 1e6;
        finish(state, &done);
        rate
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = states
            .iter_mut()
            .enumerate()
            .map(|(thread, state)| {
                let run = &run;
                scope.spawn(move || run(state, thread))
            })
            .collect();
        let rate =
            |thread: std::thread::ScopedJoinHandle<'_, f64>| thread.join().expect("no panic");
        threads.into_iter().map(rate).sum()
    })
}

/// The next operations of a thread.
struct Turn {
    next: usize,
}

impl Turn {
    fn of<'d>(&mut self, draws: &'d [u64]) -> &'d [u64] {
        let start = self.next;
        self.next = (start + ROUND) % draws.len();
        &draws[start..][..ROUND]
    }
}

fn submit(client: &mut Client, request: CacheRequest<'_>) {
    while client.submit(0, request).is_err() {
        if client.poll(|_, _| ()) == 0 {
            spin_loop();
        }
    }
}

/// Half of the threads are servers.
fn dedicated<'a>(workload: &Workload, draws: &'a [Vec<u64>]) -> Candidate<'a> {
    let servers = (workload.threads / 2).max(1);
    let config = workload.config(128, servers);
    let table = CpHash::new(&config, servers).expect("within limits");
    let mut first = table.client();
    for key in 0..workload.keys {
        submit(&mut first, CacheRequest::Insert(key.into(), b"8 bytes!"));
    }
    while first.outstanding() > 0 {
        first.poll(|_, _| ());
    }
    drop(first);
    let mut clients: Vec<_> = (0..workload.threads - servers)
        .map(|index| (table.client(), table.client_cpu(index), Turn { next: 0 }))
        .collect();
    Candidate::new("CpHash, dedicated", move || {
        let round = |(client, cpu, turn): &mut (Client, Option<_>, Turn), thread: usize| {
            if let Some(cpu) = *cpu {
                // The thread is new in each slice. A refusal is what the system wants.
                let _ = corewise_topology::pin_current_thread(cpu);
            }
            for &draw in turn.of(&draws[thread]) {
                submit(client, request(draw));
            }
        };
        let _table = &table;
        measure(&mut clients, round, |(client, ..), _| {
            while client.outstanding() > 0 {
                client.poll(|_, _| ());
            }
        })
    })
}

fn submit_local(event_loop: &mut Colocated, request: CacheRequest<'_>) {
    while event_loop.submit(0, request).is_err() {
        if event_loop.poll(|_, _| ()) == 0 {
            spin_loop();
        }
    }
}

/// Every thread serves and asks.
fn colocated<'a>(workload: &Workload, draws: &'a [Vec<u64>]) -> Candidate<'a> {
    let threads = workload.threads;
    let table = CpHash::new(&workload.config(128, 4 * threads), 0).expect("within limits");
    let mut first = table.colocated(|| ());
    for key in 0..workload.keys {
        submit_local(&mut first, CacheRequest::Insert(key.into(), b"8 bytes!"));
    }
    while first.outstanding() > 0 {
        first.poll(|_, _| ());
    }
    let mut loops = vec![(first, Turn { next: 0 })];
    loops.extend((1..threads).map(|_| (table.colocated(|| ()), Turn { next: 0 })));
    Candidate::new("CpHash, co-located", move || {
        let _table = &table;
        let round = |(event_loop, turn): &mut (Colocated, Turn), thread: usize| {
            for (index, &draw) in turn.of(&draws[thread]).iter().enumerate() {
                submit_local(event_loop, request(draw));
                if index % 64 == 63 {
                    event_loop.poll(|_, _| ());
                }
            }
        };
        measure(&mut loops, round, |(event_loop, _), done| {
            while event_loop.outstanding() > 0 {
                event_loop.poll(|_, _| ());
            }
            // Others may still need its partitions. Relaxed, both: the count orders nothing.
            done.fetch_add(1, Relaxed);
            while done.load(Relaxed) < threads {
                event_loop.poll(|_, _| ());
            }
        })
    })
}

fn locked<'a>(workload: &Workload, draws: &'a [Vec<u64>]) -> Candidate<'a> {
    let table = LockHash::new(&workload.config(64, 4096)).expect("within limits");
    for key in 0..workload.keys {
        table.insert(key, b"8 bytes!").expect("it fits");
    }
    let mut turns: Vec<Turn> = draws.iter().map(|_| Turn { next: 0 }).collect();
    Candidate::new("LockHash", move || {
        let round = |turn: &mut Turn, thread: usize| {
            execute(&table, turn.of(&draws[thread]));
        };
        measure(&mut turns, round, |_, _| ())
    })
}

fn row(title: &str, options: &Options, workload: &Workload) {
    let draws = workload.draws();
    let candidates = vec![
        dedicated(workload, &draws),
        colocated(workload, &draws),
        locked(workload, &draws),
    ];
    let title = format!(
        "{title}; millions of operations per second, {} threads",
        workload.threads
    );
    compare(&title, options, 2, candidates);
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

pub(crate) fn run(options: &Options) {
    let rows = working_sets(options)
        .into_iter()
        .chain(contents(options))
        .chain(machines(options));
    rows.for_each(|(title, workload)| row(&title, options, &workload));
}

/// Figures 5 and 8: working sets.
fn working_sets(options: &Options) -> Vec<(String, Workload)> {
    let exact = [4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB].map(|bytes| {
        let title = format!("figure 5: working set {} KiB", bytes >> 10);
        (title, Workload::new(bytes, options))
    });
    let random = [MIB, 4 * MIB].map(|bytes| {
        let title = format!("figure 8: random eviction, working set {} MiB", bytes >> 20);
        let eviction = Eviction::Random;
        let workload = Workload {
            eviction,
            ..Workload::new(bytes, options)
        };
        (title, workload)
    });
    exact.into_iter().chain(random).collect()
}

/// Figures 9 and 10, and hot partitions: what the table contains, and what is done with it.
fn contents(options: &Options) -> Vec<(String, Workload)> {
    let base = || Workload::new(16 * MIB, options);
    let capacities = [25, 50, 75].map(|capacity_percent| {
        let title = format!("figure 9: capacity {capacity_percent} % of 16 MiB");
        let workload = Workload {
            capacity_percent,
            ..base()
        };
        (title, workload)
    });
    let inserts = [0, 10, 60, 100].map(|inserts_percent| {
        let title = format!("figure 10: {inserts_percent} % insertions, 16 MiB");
        let workload = Workload {
            inserts_percent,
            ..base()
        };
        (title, workload)
    });
    let hot = [0.99, 1.2].map(|zipf| {
        let title = format!("hot partitions: zipf {zipf}, 16 MiB");
        (title, Workload { zipf, ..base() })
    });
    let rows = capacities.into_iter().chain(inserts);
    rows.chain(hot).collect()
}

/// Figures 11 and 12, and pipelines: threads, where they run, and how they communicate.
fn machines(options: &Options) -> Vec<(String, Workload)> {
    let base = || Workload::new(MIB, options);
    let placements = [PinPolicy::SmtPair, PinPolicy::Compact].map(|placement| {
        let title = format!("figures 11 and 12: placement {placement:?}, 1 MiB");
        let workload = Workload {
            placement,
            ..base()
        };
        (title, workload)
    });
    let threads = [options.threads, 2 * options.threads].map(|threads| {
        let title = "figure 12: threads, 1 MiB".to_owned();
        (title, Workload { threads, ..base() })
    });
    let pipelines = [64, 512, 8192].map(|pipeline| {
        let title = format!("text of §6.2: pipeline {pipeline}, 1 MiB");
        let workload = Workload { pipeline, ..base() };
        (title, workload)
    });
    let rows = placements.into_iter().chain(threads);
    rows.chain(pipelines).collect()
}

/// Operations of a batch whose time is taken.
const BATCH: usize = 512;

/// Nanoseconds of an operation at the client, at the server, and under a lock, all on one thread,
/// so without a transfer between cores: what figures 6 and 7 split up. Medians of batches, which
/// take turns, so it does not matter if other work interrupts some of them.
pub(crate) fn run_costs(options: &Options) {
    for bytes in [64 * KIB, MIB, 16 * MIB] {
        let workload = Workload {
            threads: 1,
            ..Workload::new(bytes, options)
        };
        let draws = workload.draws().remove(0);
        let table = CpHash::new(&workload.config(128, 1), 0).expect("within limits");
        let (mut server, mut client) = (table.server(|| ()), table.client());
        let locked = LockHash::new(&workload.config(64, 4096)).expect("within limits");
        let fill: Vec<u64> = (0..workload.keys).map(|key| key | INSERT).collect();
        for batch in fill.chunks(BATCH) {
            exchange(&mut client, &mut server, batch);
            execute(&locked, batch);
        }
        let mut ns = [(); 3].map(|()| Vec::new());
        for _ in 0..options.repetitions {
            for batch in draws.chunks(BATCH) {
                let [asking, serving] = exchange(&mut client, &mut server, batch);
                let start = Instant::now();
                execute(&locked, batch);
                let spent = [asking, serving, start.elapsed()];
                for (all, spent) in ns.iter_mut().zip(spent) {
                    all.push(spent.as_nanos() as f64 / BATCH as f64);
                }
            }
        }
        let [client, server, lock] = ns.map(|mut all| {
            let middle = all.len() / 2;
            *all.select_nth_unstable_by(middle, f64::total_cmp).1
        });
        println!(
            "\ncosts: nanoseconds of an operation on one thread, working set {} KiB, 30 % \
             insertions\n  client {client:.1}, server {server:.1}, LockHash {lock:.1}\n  \
             to break even, LockHash must take {:.1} beside dedicated servers, {:.1} beside \
             co-located ones",
            bytes >> 10,
            2.0 * client.max(server),
            client + server
        );
    }
}

/// Sends a batch through the rings, and returns the time at the client and at the server.
fn exchange(client: &mut Client, server: &mut PartitionServer, batch: &[u64]) -> [Duration; 2] {
    let start = Instant::now();
    for &draw in batch {
        client
            .submit(0, request(draw))
            .expect("the pipeline has room");
    }
    client.flush();
    let (mut asking, mut serving) = (start.elapsed(), Duration::ZERO);
    while client.outstanding() > 0 {
        let start = Instant::now();
        server.poll();
        serving += start.elapsed();
        let start = Instant::now();
        client.poll(|_, _| ());
        asking += start.elapsed();
    }
    [asking, serving]
}

fn execute(table: &LockHash, batch: &[u64]) {
    for &draw in batch {
        match draw & INSERT {
            0 => _ = table.get(draw, |value| value.len()),
            _ => table.insert(draw & !INSERT, b"8 bytes!").expect("it fits"),
        }
    }
}
