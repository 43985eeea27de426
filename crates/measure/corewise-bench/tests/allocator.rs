//! The benchmark's allocator as the global allocator of a program. Each test restarts this program
//! with another environment and checks its output, since a process has one allocator for life.

use std::process::Command;

use clap::ValueEnum;
use corewise_bench::allocator::{self, BenchAllocator, Choice, DRIFT_BYTES, Pages};

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
fn the_environment_chooses() {
    assert!(run("child_line", &[]).starts_with("mimalloc 3."));
    let system = run("child_line", &[("COREWISE_ALLOCATOR", "system")]);
    assert!(system.starts_with("system "), "{system}");
}

#[test]
#[ignore = "a child process of `the_environment_chooses`, which starts it; no test by itself"]
fn child_line() {
    println!("[{}]", allocator::line());
}

#[test]
fn bytes_are_counted() {
    for choice in ["mimalloc", "system"] {
        let said = run("child_counts", &[("COREWISE_ALLOCATOR", choice)]);
        assert_eq!(said, "counted", "{choice}");
    }
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
    let rise = counted.peak_bytes - start;
    assert!(rise >= 4_000_000 - 4 * DRIFT_BYTES, "{rise}");
    assert!(rise <= 4_000_000 + 5 * DRIFT_BYTES, "{rise}");
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

#[test]
fn the_program_restarts_with_the_requested_settings() {
    for (wish, pages) in [
        ("system", "small"),
        ("mimalloc", "huge"),
        ("system", "default"),
    ] {
        let environment = [("WISH", wish), ("WISHED_PAGES", pages)];
        let said = run("child_reexec", &environment);
        assert!(
            said.starts_with(wish) && said.contains(&format!(" on {pages} (")),
            "{said}"
        );
    }
}

#[test]
#[ignore = "a child process of the tests of restarts, which start it; no test by itself"]
fn child_reexec() {
    let wish = |name| std::env::var(name).expect("a wish");
    let choice = Choice::from_str(&wish("WISH"), false).expect("an allocator");
    let pages = Pages::from_str(&wish("WISHED_PAGES"), false).expect("pages");
    if let Err(error) = allocator::reexec(choice, pages) {
        println!("[{error}]");
        return;
    }
    assert_eq!(
        (allocator::current(), Pages::current()),
        (Some(choice), pages)
    );
    println!("[{} on {}]", allocator::line(), allocator::pages_line());
}

#[test]
fn a_setting_that_a_restart_does_not_apply_is_an_error() {
    let environment = [
        ("WISH", "system"),
        ("WISHED_PAGES", "default"),
        ("COREWISE_REEXEC", "system/default"),
    ];
    let said = run("child_reexec", &environment);
    assert!(said.ends_with("is not in force"), "{said}");
}
