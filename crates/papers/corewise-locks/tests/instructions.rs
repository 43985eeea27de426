//! Where the instructions of RTM are in this program, which has every policy and back end.
//!
//! A processor without RTM raises an illegal instruction at `xbegin`, `xend` and `xtest`. So they
//! may only be in functions that get an [`Rtm`] or an `Option<Rtm>`, and in the trial that
//! [`Rtm::detect`] runs after CPUID. Needs `objdump`; says SKIPPED without it.

#![cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    not(any(corewise_loom, corewise_shuttle, corewise_tsan, miri))
))]

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::AtomicU64;

use corewise_locks::elide::{
    Elided, NoTransactions, Opaque, Policy, Retry, Rtm, Scm, ScmOpt, Slr, SlrScm,
};
use corewise_locks::{DistributedRw, Mcs};

/// The functions of the crate that get a back end, by parts of their names.
const GUARDED: [&str; 7] = [
    "corewise_locks::elide::Elided<",
    "corewise_locks::elide::LockPair<",
    "corewise_locks::elide::Exclusive",
    "as corewise_locks::elide::Section<",
    "corewise_locks::elide::rtm::AbortOnUnwind",
    "corewise_locks::elide::rtm::trial",
    "instructions::guarded::",
];

/// What uses the back end in this program. The sections are inlined into [`GUARDED`]'s functions.
mod guarded {
    use super::*;

    #[inline(never)]
    pub(super) fn sections<P: Policy>(backend: Option<Rtm>) -> u64 {
        let count: Elided<AtomicU64, DistributedRw<3>, P> = Elided::new(AtomicU64::new(0), backend);
        count.run(|count, tx| tx.store(count, tx.load(count) + 1));
        let nested: Elided<AtomicU64, Mcs, P> = Elided::new(AtomicU64::new(0), backend);
        count.run(|count, tx| {
            nested.run(|nested, tx| tx.store(nested, tx.load(nested) + 1));
            tx.store(count, tx.load(count) + 1);
        });
        count.read(|count, tx| tx.load(count)) + nested.into_inner().into_inner()
    }

    #[inline(never)]
    pub(super) fn exclusive<P: Opaque>(backend: Option<Rtm>) -> u64 {
        let count: Elided<u64, Mcs, P> = Elided::new(0, backend);
        count.run_mut(|count| *count += 1);
        count.into_inner()
    }
}

/// The lines of each function in the output of objdump. Functions of one name are joined.
fn functions(listing: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut functions = BTreeMap::<_, Vec<_>>::new();
    let mut current = "";
    for line in listing.lines() {
        let head = line.split_once(" <").and_then(|(address, rest)| {
            let is_address = address.bytes().all(|byte| byte.is_ascii_hexdigit());
            rest.strip_suffix(">:").filter(|_| is_address)
        });
        match head {
            Some(name) => current = name,
            None => functions.entry(current).or_default().push(line),
        }
    }
    functions
}

/// The mnemonic of a line, and its operands.
fn instruction(line: &str) -> (&str, &str) {
    let text = line.split_once('\t').map_or("", |(_, text)| text).trim();
    text.split_once(char::is_whitespace).unwrap_or((text, ""))
}

fn is_rtm(line: &str) -> bool {
    matches!(instruction(line).0, "xbegin" | "xend" | "xtest" | "xabort")
}

/// The names of functions with such instructions that no entry of `GUARDED` permits.
fn unguarded<'l>(functions: &BTreeMap<&'l str, Vec<&str>>) -> Vec<&'l str> {
    let has_rtm = |lines: &[&str]| lines.iter().any(|line| is_rtm(line));
    let is_guarded = |name: &str| GUARDED.iter().any(|part| name.contains(part));
    let found = functions
        .iter()
        .filter(|(name, lines)| has_rtm(lines) && !is_guarded(name));
    found.map(|(name, _)| *name).collect()
}

/// Nothing that the test looks for escapes it.
#[test]
fn an_unguarded_instruction_is_found() {
    let listing = "\
0000000000001000 <corewise_locks::elide::rtm::trial>:
    1000:\txbegin 1010 <corewise_locks::elide::rtm::trial+0x10>
    1006:\txend
0000000000002000 <corewise_locks::mcs::Mcs::lock>:
    2000:\tmov    $0x1,%eax
    2005:\txtest
    2008:\tret
0000000000003000 <main>:
    3000:\tcall   1000 <corewise_locks::elide::rtm::trial>
";
    let functions = functions(listing);
    assert_eq!(functions.len(), 3);
    assert_eq!(unguarded(&functions), ["corewise_locks::mcs::Mcs::lock"]);
    assert_eq!(instruction(functions["main"][0]).0, "call");
}

#[test]
fn rtm_instructions_run_only_after_the_check() {
    // Also keeps the sections in the program. On a processor without RTM, it shows that none of
    // the instructions runs: each would end the program.
    let backend = Rtm::detect().ok();
    let counts = [
        guarded::sections::<Retry<5>>(backend),
        guarded::sections::<Scm>(backend),
        guarded::sections::<ScmOpt>(backend),
        guarded::sections::<Slr>(backend),
        guarded::sections::<SlrScm>(backend),
    ];
    assert_eq!(counts, [3; 5]);
    let counts = [
        guarded::exclusive::<Retry<5>>(backend),
        guarded::exclusive::<Scm>(backend),
        guarded::exclusive::<ScmOpt>(backend),
    ];
    assert_eq!(counts, [1; 3]);

    let program = std::env::current_exe().expect("the program has a path");
    let arguments = ["-d", "-C", "--no-show-raw-insn"];
    let output = match Command::new("objdump")
        .args(arguments)
        .arg(program)
        .output()
    {
        Ok(output) if output.status.success() => output,
        problem => return println!("SKIPPED: objdump is missing or fails: {:?}", problem.err()),
    };
    let listing = String::from_utf8_lossy(&output.stdout);
    let functions = functions(&listing);
    assert_eq!(unguarded(&functions), [""; 0]);

    // The test sees the instructions at all, and each kind.
    let all: Vec<&str> = functions.values().flatten().copied().collect();
    for mnemonic in ["xbegin", "xend", "xtest", "xabort"] {
        let count = all
            .iter()
            .filter(|line| instruction(line).0 == mnemonic)
            .count();
        println!("{mnemonic}: {count}");
        assert!(count > 0, "{mnemonic} is in the sections");
    }
    the_trial_follows_cpuid(&functions);
}

/// The trial is the only code that needs no back end. One function calls it, behind CPUID.
fn the_trial_follows_cpuid(functions: &BTreeMap<&str, Vec<&str>>) {
    let calls_trial = |line: &&str| {
        let (mnemonic, operands) = instruction(line);
        matches!(mnemonic, "call" | "jmp") && operands.ends_with("elide::rtm::trial>")
    };
    let callers: Vec<_> = functions
        .values()
        .filter(|lines| lines.iter().any(&calls_trial))
        .collect();
    let [caller] = callers[..] else {
        panic!("{} functions call the trial", callers.len());
    };
    let cpuid = caller
        .iter()
        .position(|line| instruction(line).0 == "cpuid");
    let cpuid = cpuid.expect("the caller of the trial asks CPUID");
    let calls: Vec<usize> = (0..caller.len())
        .filter(|at| calls_trial(&caller[*at]))
        .collect();
    assert!(
        calls.len() == 1 && calls[0] > cpuid,
        "{calls:?} after {cpuid}"
    );
}

/// Without RTM the constructor returns an error that tells why; the kernel knows the same.
#[test]
fn without_rtm_the_back_end_is_a_typed_error() {
    let info = std::fs::read_to_string("/proc/cpuinfo").expect("Linux has it");
    let flags = info
        .lines()
        .find(|line| line.starts_with("flags"))
        .unwrap_or("");
    let has = |wanted: &str| flags.split_whitespace().any(|flag| flag == wanted);
    match Rtm::detect() {
        Ok(_) => assert!(has("rtm"), "detected where the kernel reports none"),
        Err(error) => {
            // The kernel hides the flag where transactions always abort, too.
            let is_expected = match error {
                NoTransactions::Absent | NoTransactions::AlwaysAborts => !has("rtm"),
                NoTransactions::SwitchedOff => true,
                _ => has("rtm"),
            };
            assert!(
                is_expected,
                "{error:?}, and the kernel reports rtm: {}",
                has("rtm")
            );
            assert!(
                error.to_string().starts_with("no transactions: "),
                "{error}"
            );
            println!("transactions: {error}");
        }
    }
}
