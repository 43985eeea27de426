//! Microbenchmarks on the modelled machines: what is put in as a parameter must come out as it
//! would be measured, and what no parameter says must have the shape that machines have.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corewise_sim::{
    AccessKind, Config, Finished, MachineParameters, ParameterSample, SimMachine, engine, run,
};

const LINE: usize = 64;

/// A machine without the random part of its latencies.
fn machine(name: &str) -> MachineParameters {
    let mut machine = SimMachine::preset(name)
        .unwrap()
        .at(ParameterSample::Middle);
    machine.jitter = 0;
    machine
}

fn all() -> impl Iterator<Item = MachineParameters> {
    SimMachine::PRESETS.into_iter().map(machine)
}

fn simulate<R: Send + 'static>(
    machine: &MachineParameters,
    body: impl FnOnce() -> R + Send + 'static,
) -> Finished<R> {
    let mut config = Config {
        machine: Some(machine.clone()),
        ..Config::default()
    };
    // Measuring costs nothing.
    config.costs.clock = 0;
    run(config, body).expect("the program ends")
}

/// Lines of memory, which are announced and never read.
struct Memory(Vec<u8>);

impl Memory {
    fn lines(lines: usize) -> Arc<Self> {
        Arc::new(Self(Vec::with_capacity((lines + 1) * LINE)))
    }

    fn access(&self, line: usize, kind: AccessKind) {
        let first = self.0.as_ptr().addr().next_multiple_of(LINE);
        engine::access((first + line * LINE) as *const u8, 8, kind);
    }
}

/// Starts a thread on a processor.
fn on(processor: usize, body: impl FnOnce() + Send + 'static) {
    let body = move || {
        engine::pin(processor);
        body();
    };
    engine::spawn(None, body).expect("a thread");
}

/// The first processor of a socket's core.
fn processor(machine: &MachineParameters, socket: usize, core: usize) -> usize {
    socket * machine.shape.cores + core
}

fn assert_near(measured: f64, expected: f64, percent: f64, what: &str) {
    let error = (measured / expected - 1.0).abs() * 100.0;
    assert!(error <= percent, "{what}: {measured:.1}, not {expected:.1}");
}

/// Cycles a load of a thread that loads lines one after the other, in an order without a pattern,
/// when it has loaded all of them before.
fn chase(machine: &MachineParameters, lines: usize, node: usize) -> f64 {
    let first = processor(machine, node, 0);
    let finished = simulate(machine, move || {
        let memory = Memory::lines(lines);
        // A step that is prime to all these numbers of lines visits all.
        let all = |kind| (0..lines).for_each(|n| memory.access(n * 7_919 % lines, kind));
        engine::pin(first);
        // The pages are of this node, and few lines are in its caches.
        (0..lines)
            .step_by(64)
            .for_each(|line| memory.access(line, AccessKind::Store));
        engine::pin(0);
        all(AccessKind::Load);
        let begin = engine::now_cycles();
        all(AccessKind::Load);
        engine::now_cycles() - begin
    });
    finished.value as f64 / lines as f64
}

#[test]
fn a_pointer_chase_takes_the_latency_of_the_level_that_has_the_lines() {
    for mut machine in all() {
        // A smaller one than the machine's, which takes less time to overflow.
        machine.shape.l3.entries = 1 << 15;
        let (l1, l2) = (machine.shape.l1.entries, machine.shape.l2.entries);
        for (lines, latency, what) in [
            (l1 / 2, machine.l1, "L1"),
            (l2 / 2, machine.l2, "L2"),
            (1 << 13, machine.l3, "L3"),
            // Each line is on another page than the one before, which the TLB has lost.
            (1 << 17, machine.memory + machine.tlb_walk, "memory"),
        ] {
            assert_near(chase(&machine, lines, 0), latency as f64, 5.0, what);
        }
        let last = machine.shape.sockets - 1;
        let hops = machine.shape.hops.first().map_or(1, |row| row[last]);
        let latency = [machine.memory, machine.memory_1, machine.memory_2][usize::from(hops)];
        let expected = (latency + machine.tlb_walk) as f64;
        assert_near(
            chase(&machine, 1 << 17, last),
            expected,
            5.0,
            "remote memory",
        );
    }
}

/// Cycles of a round in which two threads write a line in turn.
fn ping_pong(machine: &MachineParameters, one: usize, other: usize) -> f64 {
    const ROUNDS: u64 = 500;
    let finished = simulate(machine, move || {
        let memory = Memory::lines(1);
        let turn = Arc::new(AtomicU64::new(0));
        let ended = Arc::new(AtomicU64::new(0));
        for (me, processor) in [(0, one), (1, other)] {
            let (memory, turn, ended) = (memory.clone(), turn.clone(), ended.clone());
            on(processor, move || {
                for round in 0..ROUNDS {
                    loop {
                        memory.access(0, AccessKind::Load);
                        if turn.load(Relaxed) == 2 * round + me {
                            break;
                        }
                        engine::pause(1);
                    }
                    memory.access(0, AccessKind::Store);
                    turn.fetch_add(1, Relaxed);
                }
                ended.store(engine::now_cycles(), Relaxed);
            });
        }
        engine::sleep(1_000_000_000);
        ended.load(Relaxed)
    });
    finished.value as f64 / ROUNDS as f64
}

/// Each half of a round is the other's transfer of the line, and taking it for the write.
#[test]
fn a_ping_pong_takes_two_transfers_and_two_upgrades_a_round() {
    for machine in all() {
        let store = |latency: u64| latency + machine.store;
        for (other, latency, what) in [
            (processor(&machine, 0, 1), machine.peer, "in the socket"),
            (
                processor(&machine, 1, 0),
                machine.remote_1,
                "across one link",
            ),
        ] {
            let (lookup, home) = (machine.home_lookup, machine.peer != latency);
            // The line's memory is one of the two: of half of the transfers not the owner's.
            let lookup = if home { lookup } else { 0 };
            let upgrade = store(latency.max(machine.l3));
            let expected = 2 * (latency + upgrade) + lookup;
            let measured = ping_pong(&machine, 0, other);
            assert_near(measured, expected as f64, 10.0, what);
        }
    }
}

/// Operations in 1,000 cycles of all threads, each with a body that is called again and again.
/// Those count that have ended in time, but for three of each thread.
fn rate(
    machine: &MachineParameters,
    processors: Vec<usize>,
    lines: usize,
    body: impl Fn(&Memory, usize, u64) + Send + Sync + 'static,
) -> f64 {
    const CYCLES: u64 = 200_000;
    // When all threads have started.
    const START_NS: u64 = 1_000_000;
    let finished = simulate(machine, move || {
        let shared = Arc::new((Memory::lines(lines), body, AtomicU64::new(0)));
        for (thread, processor) in processors.into_iter().enumerate() {
            let shared = shared.clone();
            on(processor, move || {
                engine::sleep(START_NS - engine::now_ns());
                let begin = engine::now_cycles();
                let mut done = 0;
                loop {
                    for operation in done..done + 4 {
                        shared.1(&shared.0, thread, operation);
                    }
                    if engine::now_cycles() > begin + CYCLES {
                        break;
                    }
                    done += 4;
                }
                shared.2.fetch_add(done, Relaxed);
            });
        }
        engine::sleep(1_000_000_000);
        shared.2.load(Relaxed)
    });
    finished.value as f64 * 1000.0 / CYCLES as f64
}

/// All processors of a core count, socket after socket.
fn first_cores(machine: &MachineParameters, cores: usize) -> Vec<usize> {
    let of_socket = machine.shape.cores;
    (0..cores)
        .map(|n| processor(machine, n / of_socket, n % of_socket))
        .collect()
}

#[test]
fn increments_of_one_counter_are_never_faster_with_more_cores() {
    for machine in all() {
        let increments = |cores| {
            let processors = first_cores(&machine, cores);
            rate(&machine, processors, 1, |memory, _, _| {
                memory.access(0, AccessKind::Rmw)
            })
        };
        let one = increments(1);
        assert_near(
            one,
            1000.0 / (machine.l1 + machine.rmw) as f64,
            10.0,
            "one core",
        );
        let two = increments(2);
        let expected = 1000.0 / (machine.peer + machine.rmw + machine.conflict) as f64;
        assert_near(two, expected, 25.0, "two cores");
        let socket = increments(machine.shape.cores);
        let sockets = increments(2 * machine.shape.cores);
        assert!(two < one && socket <= two * 1.02, "{one} {two} {socket}");
        assert!(sockets < socket * 0.9, "{socket} {sockets}");
        let last = increments(machine.shape.sockets * machine.shape.cores);
        assert!(last <= sockets * 1.02, "{sockets} {last}");
    }
}

/// A thread reads its part of the memory line by line, some lines at once.
fn read_at_once(memory: &Memory, thread: usize, done: u64, at_once: u64) {
    let base = thread << 14;
    let at = (done * at_once) as usize;
    for line in 1..at_once as usize {
        memory.access(base + (at + line) % (1 << 14), AccessKind::Prefetch);
    }
    memory.access(base + at % (1 << 14), AccessKind::Load);
}

#[test]
fn one_socket_reads_no_more_than_its_memory_serves() {
    for machine in all() {
        let cores = machine.shape.cores;
        let lines = cores << 14;
        let bandwidth = |cores| {
            // Lines are new: no cache has them.
            let read = |memory: &Memory, thread, done| read_at_once(memory, thread, done, 8);
            8.0 * rate(&machine, first_cores(&machine, cores), lines, read)
        };
        let most = 1000.0 / machine.memory_service as f64;
        let all = bandwidth(cores);
        assert!(all <= most * 1.02, "{all} of {most}");
        let one = bandwidth(1);
        assert!(one <= all * 1.02 && one > most / 40.0, "{one} of {all}");
        let needs = most * machine.memory as f64 / 1000.0;
        // With far more requests at once than that, no bank is idle for long.
        if needs < 8.0 * cores as f64 * 0.4 {
            assert!(all > most * 0.65, "{all} of {most}");
        }
    }
}

/// A load takes longer the more the other cores read, and the more so near the limit.
#[test]
fn the_latency_of_memory_rises_with_its_load() {
    let mut machine = machine("broadwell-ep-2");
    // What its prefetchers have in progress, too.
    machine.shape.fill_buffers = 16;
    let cores = machine.shape.cores;
    let latency = |pause: u32| {
        let lines = cores << 14;
        let chased = Arc::new(AtomicU64::new(0));
        let copy = chased.clone();
        let read = move |memory: &Memory, thread: usize, done: u64| {
            if thread > 0 {
                read_at_once(memory, thread, done, 16);
                engine::work(pause);
                return;
            }
            memory.access((done * 127) as usize % (1 << 14), AccessKind::Load);
            copy.fetch_add(1, Relaxed);
        };
        let all = rate(&machine, first_cores(&machine, cores), lines, read);
        let chases = chased.load(Relaxed) as f64;
        let bandwidth = (all - chases / 200.0) * 16.0 + chases / 200.0;
        (
            bandwidth * machine.memory_service as f64 / 1000.0,
            200_000.0 / chases,
        )
    };
    let curve = [3_000, 500, 200, 0].map(latency);
    assert!(curve[0].0 < 0.2 && curve[3].0 > 0.8, "{curve:?}");
    assert!(
        curve.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1 * 1.01),
        "{curve:?}"
    );
    let unloaded = (machine.memory + machine.tlb_walk) as f64;
    assert_near(curve[0].1, unloaded, 15.0, "a load without others");
    assert!(curve[3].1 > 1.3 * unloaded, "{curve:?}");
}

#[test]
fn two_threads_of_a_core_do_more_than_one_and_less_than_two_cores() {
    for machine in all() {
        let sibling = machine.shape.sockets * machine.shape.cores;
        let work = |processors| rate(&machine, processors, 1, |_, _, _| engine::work(100));
        let [one, core, cores] = [vec![0], vec![0, sibling], vec![0, 1]].map(work);
        assert!((1.2..1.52).contains(&(core / one)), "{}", core / one);
        assert_near(cores, 2.0 * one, 1.0, "two cores");
        // Threads of one processor have half of its time each.
        assert_near(work(vec![0, 0]), one, 3.0, "one processor");
    }
}

#[test]
fn the_gain_of_prefetches_ends_at_the_fill_buffers() {
    for mut machine in all() {
        // The memory is not what limits it.
        machine.memory_service = 1;
        let buffers = machine.shape.fill_buffers as u64;
        let rate_with = |at_once: u64| {
            let read = move |memory: &Memory, _, done| read_at_once(memory, 0, done, at_once);
            at_once as f64 * rate(&machine, vec![0], 1 << 14, read)
        };
        let [one, half, full, twice] = [1, buffers / 2, buffers, 2 * buffers].map(rate_with);
        assert!(half > 0.7 * one * (buffers / 2) as f64, "{one} {half}");
        assert!(full > 1.4 * half, "{half} {full}");
        assert!(twice < 1.25 * full, "{full} {twice}");
    }
}

/// The cost of one line that all write, against lines that each thread has for itself.
#[test]
fn false_sharing_costs_a_transfer_a_write() {
    for machine in all() {
        let writes = |stride: usize| {
            let body = move |memory: &Memory, thread: usize, _| {
                memory.access(thread * stride, AccessKind::Rmw);
            };
            rate(&machine, first_cores(&machine, 4), 4, body)
        };
        let (shared, own) = (writes(0), writes(1));
        let expected =
            4.0 * (machine.peer + machine.rmw) as f64 / (machine.l1 + machine.rmw) as f64;
        assert!(
            (expected * 0.7..expected * 2.0).contains(&(own / shared)),
            "{own} {shared}"
        );
    }
}

/// The same line, read across a link: the home is asked if it is not the owner's.
#[test]
fn a_line_at_its_writers_home_is_read_sooner() {
    let mut machine = machine("broadwell-ep-2");
    machine.home_lookup = 143;
    let (near, far) = (processor(&machine, 0, 0), processor(&machine, 1, 0));
    let read = |home: usize| {
        let finished = simulate(&machine, move || {
            let memory = Memory::lines(64);
            engine::pin(home);
            memory.access(8, AccessKind::Load);
            engine::pin(far);
            memory.access(8, AccessKind::Rmw);
            engine::pin(near);
            // The page is in the TLB.
            memory.access(9, AccessKind::Load);
            let begin = engine::now_cycles();
            memory.access(8, AccessKind::Load);
            engine::now_cycles() - begin
        });
        finished.value
    };
    assert_eq!(read(near) - read(far), machine.home_lookup);
}

#[test]
fn the_seed_decides_a_run_on_a_machine_and_counts_add_up() {
    let once = |seed| {
        let config = Config {
            machine: SimMachine::preset("westmere-ex-8").map(|m| m.at(ParameterSample::High)),
            seed,
            ..Config::default()
        };
        let finished = run(config, || {
            let memory = Memory::lines(512);
            for thread in 0..160usize {
                let memory = memory.clone();
                let body = move || {
                    for round in 0..50 {
                        let line = (thread * 31 + round * 7) % 512;
                        memory.access(line, [AccessKind::Load, AccessKind::Rmw][round % 2]);
                    }
                };
                engine::spawn(None, body).unwrap();
            }
            engine::sleep(1_000_000_000);
        });
        finished.unwrap()
    };
    let [one, same, other] = [3, 3, 4].map(once);
    assert_eq!((one.digest, &one.counts), (same.digest, &same.counts));
    assert_ne!(one.digest, other.digest);
    let counts = &one.counts;
    let served = counts.l1 + counts.l2 + counts.l3 + counts.peer + counts.remote;
    let served = served + counts.memory + counts.remote_memory + counts.upgrades;
    assert_eq!(served, 160 * 50);
    assert!(
        counts.remote > 1_000 && counts.invalidations > 1_000,
        "{counts:?}"
    );
}
