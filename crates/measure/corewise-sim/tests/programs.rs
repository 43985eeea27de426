//! What needs its own program: the global allocator, and a stack that overflows.

use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corewise_sim::{AccessKind, Config, SimHeap, engine, run};

#[global_allocator]
static HEAP: SimHeap = SimHeap;

fn address_of<T>(value: &T) -> usize {
    (&raw const *value).addr()
}

/// The heap's first address differs from simulation to simulation.
const WITHIN: usize = (4 << 30) - 1;

#[test]
fn objects_are_at_the_same_places_in_every_simulation() {
    let places = || {
        let finished = run(Config::default(), || {
            let places = Arc::new(std::sync::Mutex::new(Vec::new()));
            for size in [1usize, 24, 100, 5_000, 100_000] {
                let places = places.clone();
                let allocate = move || {
                    let mut all = Vec::new();
                    for round in 0..40 {
                        let bytes = vec![round as u8; size + round];
                        places.lock().unwrap().push(bytes.as_ptr().addr() & WITHIN);
                        if round % 3 == 0 {
                            all.clear();
                        }
                        all.push(bytes);
                        engine::work(50);
                        let clock = engine::now_cycles();
                        assert!(clock > 0);
                    }
                };
                engine::spawn(None, allocate).unwrap();
            }
            engine::sleep(1_000_000);
            places.lock().unwrap().clone()
        });
        finished.unwrap().value
    };
    let first = places();
    assert_eq!(first.len(), 200);
    assert_eq!(first, places());
}

#[test]
fn threads_share_no_line_of_small_objects() {
    let finished = run(Config::default(), || {
        let lines = Arc::new(std::sync::Mutex::new(Vec::new()));
        for thread in 0..8 {
            let lines = lines.clone();
            let allocate = move || {
                for _ in 0..100 {
                    let small = Box::leak(Box::new(0u64));
                    let line = address_of(small) / 64;
                    lines.lock().unwrap().push((line, thread));
                    engine::yield_now();
                }
            };
            engine::spawn(None, allocate).unwrap();
        }
        engine::sleep(1_000_000);
        let mut lines = lines.lock().unwrap().clone();
        lines.sort_unstable();
        lines.dedup();
        lines
    });
    let lines = finished.unwrap().value;
    assert!(lines.len() >= 8 * 100 * 8 / 64 / 2);
    assert!(lines.windows(2).all(|two| two[0].0 != two[1].0));
}

#[test]
fn memory_outlives_its_simulation() {
    let mut kept = Vec::new();
    for round in 0..20u64 {
        let numbers = run(Config::default(), move || {
            let numbers: Vec<Box<u64>> = (0..1_000).map(|n| Box::new(n * round)).collect();
            engine::access(numbers.as_ptr().cast(), 8, AccessKind::Load);
            numbers
        });
        kept.push(numbers.unwrap().value);
        if round % 4 == 3 {
            kept.remove(0);
        }
    }
    for numbers in kept {
        let step = *numbers[1];
        assert!(
            (0..1_000)
                .zip(&numbers)
                .all(|(n, number)| **number == n * step)
        );
    }
}

#[test]
fn a_region_is_used_again_when_all_of_it_is_given_back() {
    let place = || {
        let finished = run(Config::default(), || address_of(&*Box::new(0u64)) & !WITHIN);
        finished.unwrap().value
    };
    let mut places: Vec<_> = (0..50).map(|_| place()).collect();
    places.sort_unstable();
    places.dedup();
    // Other tests run beside this one.
    assert!(places.len() < 25, "{} regions", places.len());
}

#[test]
fn alignment_and_zeroes_are_as_wanted() {
    let finished = run(Config::default(), || {
        for shift in 0..14 {
            for size in [1usize, 17, 1_000, 1_025, 3_000, 20_000] {
                let layout = std::alloc::Layout::from_size_align(size, 1 << shift).unwrap();
                for _ in 0..3 {
                    // SAFETY: the layout has a size; the bytes are used and given back once.
                    unsafe {
                        let bytes = std::alloc::alloc_zeroed(layout);
                        assert_eq!(bytes.addr() % (1 << shift), 0);
                        assert!(
                            std::slice::from_raw_parts(bytes, size)
                                .iter()
                                .all(|&b| b == 0)
                        );
                        bytes.write_bytes(0xff, size);
                        std::alloc::dealloc(bytes, layout);
                    }
                }
            }
        }
    });
    assert!(finished.is_ok());
}

/// Runs an ignored test in a process of its own.
pub(crate) fn child(test: &str) -> Output {
    let program = std::env::current_exe().unwrap();
    let child = Command::new(program)
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(output.contains("running 1 test"), "{output}");
    child
}

/// What an ignored test prints behind a mark, in a process of its own.
pub(crate) fn told_by_child(test: &str) -> String {
    let child = child(test);
    assert!(child.status.success(), "{child:?}");
    let output = String::from_utf8_lossy(&child.stdout);
    let told = output.lines().find_map(|line| line.split_once("told: "));
    told.expect("a line with the mark").1.to_owned()
}

/// Threads that share lines and memory; the digest, and how long it took.
fn digest() -> String {
    let finished = run(Config::default(), || {
        let words: Arc<Vec<_>> = Arc::new((0..100).map(AtomicU64::new).collect());
        for _ in 0..16 {
            let words = words.clone();
            let body = move || {
                for round in 0..200 {
                    let fresh = Box::new(AtomicU64::new(round));
                    for word in [&words[round as usize % 100], &*fresh] {
                        engine::access((&raw const *word).cast(), 8, AccessKind::Rmw);
                        word.fetch_add(1, Relaxed);
                    }
                }
            };
            engine::spawn(None, body).unwrap();
        }
        engine::sleep(10_000_000);
        words.iter().map(|word| word.load(Relaxed)).sum::<u64>()
    });
    let finished = finished.unwrap();
    assert!(finished.has_region && finished.value == 16 * 200 + 99 * 50);
    format!("{} {}", finished.digest, finished.switches)
}

#[test]
#[ignore = "a child process of `every_process_makes_the_same_run`; no test by itself"]
fn tells_its_digest() {
    println!("told: {}", digest());
}

/// With other addresses of the program, its stacks and its heap.
#[test]
fn every_process_makes_the_same_run() {
    let other = told_by_child("programs::tells_its_digest");
    assert_eq!(other, digest());
    assert_eq!(other, told_by_child("programs::tells_its_digest"));
}

#[test]
#[ignore = "a child process of `a_run_without_a_region_is_told`; no test by itself"]
fn uses_up_all_regions() {
    let has_region = || {
        // What it leaks keeps its region.
        let finished = run(Config::default(), || {
            _ = std::hint::black_box(Box::leak(Box::new(0u64)))
        });
        finished.unwrap().has_region
    };
    let regions = (0..10_000).take_while(|_| has_region()).count();
    println!("told: {regions} {}", has_region());
}

#[test]
fn a_run_without_a_region_is_told() {
    let told = told_by_child("programs::uses_up_all_regions");
    assert_eq!(told, "8192 false");
}

/// What the child of the next test does.
#[test]
#[ignore = "a child process of `a_stack_that_overflows_ends_the_process`; no test by itself"]
fn overflow() {
    #[inline(never)]
    fn recurse(depth: u64) -> u64 {
        let bytes = std::hint::black_box([depth; 64]);
        if depth == u64::MAX {
            return 0;
        }
        recurse(depth + 1) + bytes[depth as usize % 64]
    }
    let finished = run(Config::default(), || recurse(1));
    println!("returned {:?}", finished.map(|finished| finished.value));
}

#[test]
fn a_stack_that_overflows_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;
    let child = child("programs::overflow");
    let signal = child.status.signal();
    assert!(
        matches!(signal, Some(libc::SIGSEGV | libc::SIGABRT)),
        "{signal:?}"
    );
}

#[test]
fn engines_on_several_threads_of_the_host_do_not_meet() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let all: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                let finished = run(Config::default(), || {
                    for _ in 0..3 {
                        engine::spawn(None, || engine::work(10)).unwrap();
                    }
                    engine::sleep(1_000);
                    engine::current()
                });
                RUNS.fetch_add(1, Relaxed);
                finished.unwrap().digest
            })
        })
        .collect();
    let digests: Vec<_> = all.into_iter().map(|one| one.join().unwrap()).collect();
    assert!(digests.windows(2).all(|two| two[0] == two[1]));
    assert_eq!(RUNS.load(Relaxed), 4);
}
