//! Unmodified programs with the library preloaded. Says SKIPPED where a program is missing.
//!
//! On a processor without RTM this shows that the library stays out of the way.

#![cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn library() -> PathBuf {
    common::library(&["deps", "."], "libcorewise_elide.so")
}

/// Runs a program with the library, and without; none if it is missing.
fn both(program: impl AsRef<Path>, arguments: &[&str]) -> Option<[Output; 2]> {
    let run = |preload: Option<PathBuf>| {
        let mut command = Command::new(program.as_ref());
        command.args(arguments);
        preload.map(|library| command.env("LD_PRELOAD", library));
        command.output().ok()
    };
    let without = run(None).filter(|output| output.status.success())?;
    Some([run(Some(library()))?, without])
}

#[track_caller]
fn assert_same([with, without]: [Output; 2]) -> String {
    assert!(with.status.success(), "{with:?}");
    assert_eq!(with.stdout, without.stdout);
    assert_eq!(with.stderr, without.stderr, "the library is silent");
    String::from_utf8(with.stdout).expect("text")
}

/// A program of C that checks what POSIX promises, and from where its functions are.
#[test]
fn a_program_of_c_keeps_its_promises() {
    let Some(program) = common::compile("mutexes", "mutexes") else {
        return;
    };
    let said = assert_same(both(&program, &[]).expect("it was compiled"));
    assert_eq!(said.lines().count(), 13, "{said}");
    assert!(said.lines().all(|line| line.ends_with(": yes")), "{said}");

    let [with, without] = both(&program, &["where"]).expect("it was compiled");
    let is_ours = |output: Output| String::from_utf8_lossy(&output.stdout).contains("corewise");
    assert!(
        is_ours(with) && !is_ours(without),
        "the functions are replaced"
    );

    // What was detected is printed on request.
    let output = Command::new(&program)
        .env("LD_PRELOAD", library())
        .env("COREWISE_ELIDE", "verbose")
        .output()
        .expect("it was compiled");
    let said = String::from_utf8(output.stderr).expect("text");
    let has_rtm = std::fs::read_to_string("/proc/cpuinfo")
        .is_ok_and(|info| info.split_whitespace().any(|word| word == "rtm"));
    print!("{said}");
    assert!(said.starts_with("corewise-elide: mutexes are "), "{said}");
    // Absent or switched off by microcode: either way the reason is not the layout of mutexes.
    let is_expected = if has_rtm {
        !said.contains("layout")
    } else {
        said.contains("not elided: no transactions: ")
    };
    assert!(is_expected || cfg!(not(target_arch = "x86_64")), "{said}");
}

#[test]
fn a_program_of_python_with_threads_runs() {
    let program = "
import queue, threading
items, results, lock = queue.Queue(3), [], threading.Lock()
def work():
    while (item := items.get()) is not None:
        with lock:
            results.append(item * item)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for item in range(500): items.put(item)
for _ in threads: items.put(None)
for thread in threads: thread.join()
print(sum(results), len(results))
";
    match both("python3", &["-c", program]) {
        Some(outputs) => assert_eq!(assert_same(outputs).trim(), "41541750 500"),
        None => println!("SKIPPED: no python3"),
    }
}

#[test]
fn a_parallel_sort_sorts() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lines");
    let lines: String = (0..200_000u64)
        .map(|n| format!("{}\n", n * 7_919 % 200_003))
        .collect();
    std::fs::write(&path, lines).expect("a file in the build directory");
    let path = path.to_str().expect("text");
    match both("sort", &["--parallel=4", "-n", path]) {
        Some(outputs) => assert_eq!(assert_same(outputs).lines().count(), 200_000),
        None => println!("SKIPPED: no sort"),
    }
}

/// The instructions of RTM are in the functions that get a back end, and in the trial.
#[cfg(target_arch = "x86_64")]
#[test]
fn rtm_instructions_run_only_after_the_check() {
    let arguments = ["-d", "-C", "--no-show-raw-insn"];
    let output = Command::new("objdump")
        .args(arguments)
        .arg(library())
        .output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        return println!("SKIPPED: objdump is missing");
    };
    let listing = String::from_utf8_lossy(&output.stdout);
    let (mut function, mut found) = ("", 0);
    for line in listing.lines() {
        if let Some((_, name)) = line.split_once(" <").filter(|_| line.ends_with(">:")) {
            function = name;
        }
        let text = line.split_once('\t').map_or("", |(_, text)| text);
        let mnemonic = text.split_whitespace().next().unwrap_or("");
        if ["xbegin", "xend", "xtest", "xabort"].contains(&mnemonic) {
            found += 1;
            let permitted = ["pthread_", "rtm::trial", "corewise_elide::elide"];
            assert!(
                permitted.iter().any(|part| function.contains(part)),
                "{function}"
            );
        }
    }
    assert!(found > 0, "the library has such instructions");
}
