//! How many accesses are simulated in a second, by the number of threads, and how much slower it
//! gets as threads share lines less: `scripts/sim --speed`.

use std::sync::Arc;
use std::time::Instant;

use corewise_sim::{AccessKind, Config, engine, run};

#[global_allocator]
static HEAP: corewise_sim::SimHeap = corewise_sim::SimHeap;

/// Accesses of all threads together.
const ACCESSES: u64 = 4_000_000;

/// Millions of accesses a second: of 8, five are loads, two stores and one is a read-modify-write,
/// of lines drawn at random.
fn measure(threads: u64, lines: usize) -> f64 {
    let begin = Instant::now();
    let finished = run(Config::default(), move || {
        let memory: Arc<[u64]> = vec![0u64; lines * 8].into();
        for thread in 0..threads {
            let memory = memory.clone();
            let body = move || access_at_random(&memory, thread, ACCESSES / threads);
            engine::spawn(None, body).expect("a thread");
        }
        // Longer than all of them.
        engine::sleep(1_000_000_000);
    });
    let finished = finished.expect("the program ends");
    assert!(finished.abandoned == 0 && finished.accesses >= ACCESSES / threads * threads);
    finished.accesses as f64 / begin.elapsed().as_secs_f64() / 1e6
}

fn access_at_random(memory: &[u64], seed: u64, accesses: u64) {
    let mut random = seed << 1 | 1;
    for step in 0..accesses {
        random = random
            .wrapping_mul(0x5851_F42D_4C95_7F2D)
            .wrapping_add(0x1405_7B7E_F767_814F);
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
    println!("threads      lines   accesses/s");
    for threads in [1, 2, 16, 64, 160] {
        for lines in [1 << 8, 1 << 14, 1 << 20] {
            let speed = measure(threads, lines);
            println!("{threads:>7} {lines:>10} {speed:>10.1} M");
        }
    }
}
