//! The benchmark's allocator as the global allocator of a program. What counts bytes, or needs
//! another environment, runs in another process.

use std::process::Command;

use corewise_bench::allocator::{self, BenchAllocator};

#[global_allocator]
static ALLOCATOR: BenchAllocator = BenchAllocator;

/// Runs the ignored test `name` in a separate process and returns what it prints between brackets.
fn run(name: &str, environment: &[(&str, &str)]) -> String {
    let program = std::env::current_exe().expect("a path");
    let output = Command::new(program)
        .args([
            "--exact",
            name,
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .envs(environment.iter().copied())
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let (_, rest) = text.split_once('[').expect("brackets");
    rest.split_once(']').expect("brackets").0.to_string()
}

#[test]
fn the_allocator_is_named() {
    assert!(allocator::line().starts_with("mimalloc 3."));
    assert!(run("child_pages", &[("MIMALLOC_ALLOW_THP", "0")]).ends_with("MIMALLOC_ALLOW_THP=0"));
}

#[test]
#[ignore = "a child process of `the_allocator_is_named`, which starts it; no test by itself"]
fn child_pages() {
    let disabled = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    assert!(!disabled.contains("THP_enabled:\t1"), "{disabled}");
    println!("[{}]", allocator::pages_line());
}

#[test]
fn bytes_are_counted() {
    assert_eq!(run("child_counts", &[]), "counted");
}

#[test]
#[ignore = "a child process of `bytes_are_counted`, which starts it; no test by itself"]
fn child_counts() {
    assert_eq!(allocator::counted(), None);
    // The thread that started this one still allocates a little afterwards.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let before = vec![1_u8; 1_000_000];
    allocator::start_counting();
    let live = || allocator::counted().expect("counting").live_bytes;
    let start = live();
    drop(before);
    assert_eq!(live() - start, -1_000_000, "freed, not allocated, since");
    let mut kept = vec![0_u8; 300_000];
    assert_eq!(live() - start, -700_000);
    kept.reserve_exact(700_000);
    assert_eq!(live() - start, 0, "realloc counts the difference");
    allocator::reset_peak();
    threads_fill_and_free();
    let counted = allocator::counted().expect("counting");
    // Besides the blocks, the threads themselves and the vectors of pointers.
    let rise = counted.peak_bytes - start;
    assert!((3_900_000..4_500_000).contains(&rise), "{rise}");
    drop(kept);
    println!("[counted]");
}

/// Four threads that each hold a megabyte in small blocks at the same time.
fn threads_fill_and_free() {
    let all_full = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut blocks = Vec::with_capacity(0);
                blocks.extend((0..1_000).map(|_| Box::new([0_u8; 1_000 - 8])));
                all_full.wait();
                drop(blocks);
            });
        }
    });
}
