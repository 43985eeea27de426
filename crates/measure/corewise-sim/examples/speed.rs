//! How many accesses are simulated in a second, by the number of threads, and how much slower it
//! gets as more of them miss: `scripts/sim --speed`. Seconds are those of the process on its
//! processor, so that what else runs there matters less.

use std::sync::Arc;

use corewise_sim::{AccessKind, Config, Finished, ParameterSample, SimMachine, engine, run};

#[global_allocator]
static HEAP: corewise_sim::SimHeap = corewise_sim::SimHeap;

/// Accesses of all threads together.
const ACCESSES: u64 = 2_000_000;

/// What the threads access.
#[derive(Clone, Copy)]
enum Pattern {
    /// Lines drawn at random: of 8 accesses, five are loads, two stores and one is a
    /// read-modify-write.
    AllAtRandom,
    /// The same, but five of eight are of 64 lines that a thread has for itself, as its stack, its
    /// records and the roots of tables are.
    ThreeOfEight,
}

/// The time that the process has computed for.
fn seconds() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes the time to the place that it is given, and to nothing else.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Millions of accesses a second, and what the machine has counted.
fn measure(machine: bool, threads: u64, lines: usize, pattern: Pattern) -> (f64, Finished<()>) {
    let preset = SimMachine::preset("westmere-ex-8").filter(|_| machine);
    let config = Config {
        machine: preset.map(|preset| preset.at(ParameterSample::Middle)),
        ..Config::default()
    };
    let begin = seconds();
    let finished = run(config, move || {
        let memory: Arc<[u64]> = vec![0u64; lines * 8].into();
        for thread in 0..threads {
            let memory = memory.clone();
            let body = move || access_lines(&memory, thread, ACCESSES / threads, pattern);
            engine::spawn(None, body).expect("a thread");
        }
        // Longer than all of them.
        engine::sleep(10_000_000_000);
    });
    let finished = finished.expect("the program ends");
    assert!(finished.abandoned == 0 && finished.accesses >= ACCESSES / threads * threads);
    let speed = finished.accesses as f64 / (seconds() - begin) / 1e6;
    (speed, finished)
}

fn access_lines(memory: &[u64], seed: u64, accesses: u64, pattern: Pattern) {
    let own = vec![0u64; 64 * 8];
    let mut random = seed << 1 | 1;
    for step in 0..accesses {
        random = random
            .wrapping_mul(0x5851_F42D_4C95_7F2D)
            .wrapping_add(0x1405_7B7E_F767_814F);
        let is_own = matches!(pattern, Pattern::ThreeOfEight) && (random >> 20) % 8 >= 3;
        let memory = if is_own { &own[..] } else { memory };
        let line = (random >> 33) as usize % (memory.len() / 8);
        let kind = match step % 8 {
            0 => AccessKind::Rmw,
            1 | 2 => AccessKind::Store,
            _ => AccessKind::Load,
        };
        engine::access((&raw const memory[line * 8]).cast(), 8, kind);
    }
}

fn main() {
    println!("                               accesses/s, 3 of 8 at random      all at random");
    println!("costs    threads      lines");
    for machine in [false, true] {
        let name = if machine { "machine" } else { "flat" };
        for threads in [1, 2, 16, 64, 160] {
            for lines in [1 << 8, 1 << 14, 1 << 20] {
                let [three, all] = [Pattern::ThreeOfEight, Pattern::AllAtRandom]
                    .map(|pattern| measure(machine, threads, lines, pattern).0);
                println!("{name:7} {threads:>8} {lines:>10} {three:>16.1} M {all:>18.1} M");
            }
        }
    }
    let (_, finished) = measure(true, 64, 1 << 14, Pattern::ThreeOfEight);
    println!("64 threads, 16384 lines, 3 of 8: {:?}", finished.counts);
}
