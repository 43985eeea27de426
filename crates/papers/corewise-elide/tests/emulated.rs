//! Unmodified programs on the library, with the instructions of RTM emulated: no evidence about
//! real transactions.
//!
//! The library is `examples/emulated.rs`: the code of the released one, with another detection. The
//! emulator (`corewise_testkit::rtm_emulator`) stops other threads during a transaction, undoes the
//! thread's stack and the program's data, and aborts at system calls. Says SKIPPED where the
//! processor executes the instructions, or where there is no compiler of C.

#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    target_arch = "x86_64",
    not(miri)
))]

mod common;

use std::path::Path;
use std::process::Command;

use corewise_testkit::rtm_emulator::is_emulated;

/// Ends of transactions, as `parse_fates` reads them: conflicts, at the begin, inside, at the end.
const CONFLICTS: [&str; 4] = ["6@begin", "6@2", "6@9", "6@end"];
/// No other attempt is made after these: no cause, with a hint to retry; capacity; a breakpoint; an
/// explicit abort of the program.
const FINAL: [&str; 5] = ["0@end", "2@begin", "8@end", "10@4", "7000001@end"];
/// More than the instructions of a section.
const MAX_INSTRUCTIONS: u32 = 5_000;

/// How many transactions of all threads began, committed and were aborted.
type Counts = [u64; 3];

/// Runs a program, which must succeed. Returns what it printed, and the counts.
fn run(program: &Path, argument: &str, fates: &str) -> (String, Counts) {
    let output = Command::new(program)
        .arg(argument)
        .env(
            "LD_PRELOAD",
            common::library(&["examples"], "libemulated.so"),
        )
        .env("COREWISE_FATES", fates)
        .output()
        .expect("it was compiled");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{argument}, {fates}: {output:?}");
    let words = errors.split_whitespace();
    let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
    let counts: Counts = numbers.try_into().expect("three counts");
    assert_eq!(counts[0], counts[1] + counts[2], "{argument}, {fates}");
    let said = String::from_utf8(output.stdout).expect("text");
    (said, counts)
}

/// Compiles a program for the test of that name.
fn compile(source: &str, test: &str) -> Option<std::path::PathBuf> {
    if is_emulated() {
        return common::compile(source, &format!("{source}-{test}"));
    }
    println!("SKIPPED: the processor executes the instructions of RTM");
    None
}

/// What a section needs of its mutexes if nothing else aborts a transaction.
#[derive(Clone, Copy, PartialEq)]
enum Section {
    /// It commits, this number of times.
    Commits(u64),
    /// It aborts its only attempt, and takes the mutex.
    Aborts,
    /// Its mutexes are not elided.
    IsNotElided,
}
use Section::{Aborts, Commits, IsNotElided};

const SECTIONS: [(&str, Section); 16] = [
    ("once", Commits(1)),
    ("five_times", Commits(5)),
    ("nested", Commits(1)),
    ("hand_over_hand", Commits(1)),
    ("unlock_inside", Commits(1)),
    ("locked_inside", Commits(1)),
    ("destroyed", Commits(1)),
    ("system_call", Aborts),
    ("trylock", Aborts),
    ("timed_lock", Aborts),
    ("clock_lock", Aborts),
    ("timed_wait", Aborts),
    ("forked", Aborts),
    ("held", Aborts),
    ("ended", Aborts),
    ("other_kinds", IsNotElided),
];

#[test]
fn sections_are_elided_unless_they_need_their_mutex() {
    let Some(program) = compile("sections", "elided") else {
        return;
    };
    for (name, section) in SECTIONS {
        let expected = match section {
            Commits(number) => [number, number, 0],
            Aborts => [1, 0, 1],
            IsNotElided => [0; 3],
        };
        assert_eq!(run(&program, name, "commit").1, expected, "{name}");
    }
}

/// The sections have the same results on the mutex; attempts are bounded, and followed by sections
/// without an attempt.
#[test]
fn sections_take_the_mutex_after_each_cause() {
    let Some(program) = compile("sections", "aborted") else {
        return;
    };
    for (name, section) in SECTIONS {
        for fates in CONFLICTS.into_iter().chain(FINAL) {
            let [_, committed, aborted] = run(&program, name, fates).1;
            assert_eq!(committed, 0, "{name}, {fates}");
            assert_eq!(aborted > 0, section != IsNotElided, "{name}, {fates}");
        }
    }
    for fates in CONFLICTS {
        assert_eq!(run(&program, "once", fates).1, [3, 0, 3], "{fates}");
        // The first section and the fifth.
        assert_eq!(run(&program, "five_times", fates).1, [6, 0, 6], "{fates}");
    }
    for fates in FINAL {
        assert_eq!(run(&program, "once", fates).1, [1, 0, 1], "{fates}");
        assert_eq!(run(&program, "five_times", fates).1, [2, 0, 2], "{fates}");
    }
    let [.., aborted] = run(&program, "once", "6@end 6@end commit").1;
    assert_eq!(aborted, 2, "the third attempt commits");
}

#[test]
fn a_section_survives_an_abort_at_each_instruction() {
    let Some(program) = compile("sections", "each") else {
        return;
    };
    for instructions in 0..MAX_INSTRUCTIONS {
        let [began, committed, aborted] =
            run(&program, "once", &format!("6@{instructions} commit")).1;
        assert_eq!((began, committed), (1 + aborted, 1), "{instructions}");
        if aborted == 0 {
            assert!(instructions > 20, "{instructions} instructions");
            return;
        }
    }
    panic!("more than {MAX_INSTRUCTIONS} instructions");
}

/// Threads that add, and threads that wait for each other at condition variables.
#[test]
fn a_program_with_threads_keeps_its_promises() {
    let Some(program) = compile("mutexes", "threads") else {
        return;
    };
    for fates in ["commit", "commit 6@end commit 8@4 commit commit 6@begin"] {
        let (said, [_, committed, aborted]) = run(&program, "10", fates);
        assert_eq!(said.lines().count(), 13, "{said}");
        assert!(said.lines().all(|line| line.ends_with(": yes")), "{said}");
        assert!(committed > 0 && aborted > 0, "{committed}, {aborted}");
    }
}
