//! Guarantee 2, checked in the machine code: entering and leaving a section has no atomic
//! read-modify-write and no fence.
//!
//! `machine_code/probe.rs` is compiled as a separate program, optimised, to assembly. A probe may
//! contain no forbidden instruction on any path, and may call only the functions named in [`COLD`],
//! which are out of line and behind branches that are hardly ever taken.

#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The functions that a probe may call.
const COLD: [&str; 8] = [
    // The first section of a thread; the first in a domain that is not the one used last.
    "pin_global_first",
    "pin_elsewhere",
    "local4join",
    // The last section of a thread that ends.
    "give_back_if_last",
    // No `membarrier`.
    "light_without_help",
    // Deep nesting, possibly beyond the limit.
    "check_depth",
    "_Unwind_Resume",
    "panic_in_cleanup",
];

static ASSEMBLY: LazyLock<String> = LazyLock::new(compile);

/// Compiles the probe in its own folder, to assembly.
fn compile() -> String {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("machine_code");
    fs::create_dir_all(&folder).unwrap();
    let probe = crate_dir.join("tests/machine_code/probe.rs");
    let manifest = format!(
        "[package]\nname = 'probe'\nedition = '2024'\n\n\
         [[bin]]\nname = 'probe'\npath = '{}'\n\n\
         [dependencies]\ncorewise-rcu.path = '{}'\n\n\
         [profile.release]\ncodegen-units = 1\n\n[workspace]\n",
        probe.display(),
        crate_dir.display()
    );
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    // Uses the versions that are downloaded already.
    fs::copy(
        crate_dir.join("../../../Cargo.lock"),
        folder.join("Cargo.lock"),
    )
    .unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["rustc", "--release", "--offline", "--target-dir", "target"])
        .args(["--", "--emit=asm", "-Cdebuginfo=0"])
        .current_dir(&folder)
        // Clears the flags that the test itself was built with, possibly for a sanitizer.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("cargo runs");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    newest_assembly(&folder.join("target/release/deps"))
}

fn newest_assembly(folder: &Path) -> String {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    let newest = files
        .filter(|file| file.path().extension().is_some_and(|ending| ending == "s"))
        .max_by_key(|file| file.metadata().unwrap().modified().unwrap())
        .expect("there is assembly");
    fs::read_to_string(newest.path()).unwrap()
}

/// The instructions of a function.
fn instructions<'a>(assembly: &'a str, function: &str) -> Vec<&'a str> {
    let label = format!("{function}:");
    let body = assembly.lines().skip_while(|line| *line != label).skip(1);
    let body = body.take_while(|line| !line.contains(".size") && !line.starts_with(".Lfunc_end"));
    let instructions: Vec<&str> = body
        .filter(|line| line.starts_with(char::is_whitespace))
        .map(str::trim)
        .filter(|line| !line.starts_with(['.', '#', '/']))
        .collect();
    assert!(instructions.len() > 8, "{function}: {instructions:?}");
    instructions
}

/// The forbidden instructions in a function.
fn offences<'a>(assembly: &'a str, function: &str) -> Vec<&'a str> {
    let offends = if cfg!(target_arch = "aarch64") {
        offends_on_aarch64
    } else {
        offends_on_x86_64
    };
    let mut found = instructions(assembly, function);
    found.retain(|instruction| offends(instruction));
    found
}

/// Splits an instruction into the mnemonic and the operands.
fn split(instruction: &str) -> (&str, &str) {
    instruction
        .split_once(char::is_whitespace)
        .unwrap_or((instruction, ""))
}

fn is_cold(target: &str) -> bool {
    COLD.iter().any(|name| target.contains(name))
}

/// Works for both syntaxes. A jump that is not a call stays in the function, or is a tail call.
fn offends_on_x86_64(instruction: &str) -> bool {
    let (mnemonic, operands) = split(instruction);
    let is_memory = operands.contains(['(', '[']);
    let leaves = !operands.contains(".L") && !is_cold(operands);
    match mnemonic {
        _ if mnemonic.starts_with("lock") => true,
        _ if mnemonic.starts_with("xchg") => is_memory,
        "mfence" | "lfence" | "sfence" => true,
        _ if mnemonic.starts_with("call") || mnemonic.starts_with('j') => leaves,
        _ => false,
    }
}

/// Barriers, exclusive accesses, LSE's read-modify-writes, and calls of the library functions that
/// choose between the latter two. `ldar`, `ldapr` and `stlr` are loads and stores.
fn offends_on_aarch64(instruction: &str) -> bool {
    const ATOMIC: [&str; 14] = [
        "ldx", "ldax", "stx", "stlx", "cas", "swp", "ldadd", "ldclr", "ldeor", "ldset", "ldsmax",
        "ldsmin", "ldumax", "ldumin",
    ];
    // The forms without a result: st instead of ld.
    const ATOMIC_STORE: [&str; 8] = [
        "stadd", "stclr", "steor", "stset", "stsmax", "stsmin", "stumax", "stumin",
    ];
    let (mnemonic, operands) = split(instruction);
    let is_atomic = |prefix: &&str| mnemonic.starts_with(prefix);
    match mnemonic {
        "dmb" | "dsb" | "isb" | "clrex" => true,
        "bl" | "b" | "blr" | "br" => !operands.contains(".L") && !is_cold(operands),
        _ => ATOMIC.iter().any(is_atomic) || ATOMIC_STORE.iter().any(is_atomic),
    }
}

#[test]
fn reading_has_no_atomic_read_modify_write_and_no_fence() {
    for probe in [
        "probe_guard",
        "probe_nested_guards",
        "probe_domain_guard",
        "probe_cell",
        "probe_qsbr",
    ] {
        let offences = offences(&ASSEMBLY, probe);
        assert!(offences.is_empty(), "{probe}: {offences:#?}");
    }
}

#[test]
fn a_probe_that_has_one_is_rejected() {
    for probe in [
        "broken_by_a_fence",
        "broken_by_a_swap",
        "broken_by_an_addition",
        "broken_by_a_call",
    ] {
        let offences = offences(&ASSEMBLY, probe);
        assert!(!offences.is_empty(), "{probe} passes");
    }
    // On aarch64 it is a plain store (`stlr`).
    if cfg!(target_arch = "x86_64") {
        assert!(!offences(&ASSEMBLY, "broken_by_a_store").is_empty());
    }
}

/// Checks the rules for both architectures on any machine.
#[test]
fn instructions_are_told_apart() {
    for (instruction, offends) in [
        ("lock", true),
        ("lock addq $1, (%rdi)", true),
        ("xchgq %rax, (%rdi)", true),
        ("xchg qword ptr [rdi], rax", true),
        ("xchgq %rax, %rbx", false),
        ("mfence", true),
        ("movq %fs:(%rax), %rbx", false),
        ("jne .LBB7_3", false),
        ("jmp some_function", true),
        ("callq *some_function@GOTPCREL(%rip)", true),
        ("callq *pair18light_without_help17h@GOTPCREL(%rip)", false),
    ] {
        assert_eq!(offends_on_x86_64(instruction), offends, "{instruction}");
    }
    for (instruction, offends) in [
        ("dmb\tish", true),
        ("ldaxr\tx8, [x0]", true),
        ("stlxr\tw9, x8, [x0]", true),
        ("swpal\tx1, x0, [x0]", true),
        ("ldadd\tx8, x0, [x0]", true),
        ("stadd\tx8, [x0]", true),
        ("bl\t__aarch64_swp8_relax", true),
        ("bl\tpair18light_without_help17h", false),
        ("stlr\tx8, [x0]", false),
        ("ldar\tx8, [x0]", false),
        ("ldr\tx8, [x0]", false),
        ("cbz\tx8, .LBB0_2", false),
        ("b\t.LBB0_2", false),
    ] {
        assert_eq!(offends_on_aarch64(instruction), offends, "{instruction}");
    }
}
