//! The `corewise` command: parses the command line, and nothing else.
//!
//! | exit status | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | it could not start, or stopped with an error |
//! | 2 | a bad option: one line on standard error names it |
//! | 3 | `load` received a wrong reply, or a check of `bench` failed |
//!
//! Called by a name that starts with `memcached`, it takes memcached's command line.

mod cli;
mod failure;
mod serve;
mod value;

use std::io::Write as _;
use std::process::ExitCode;

#[cfg(not(feature = "bench"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// mimalloc by default; a benchmark may choose another allocator or count its bytes.
#[cfg(feature = "bench")]
#[global_allocator]
static ALLOCATOR: corewise_bench::allocator::BenchAllocator =
    corewise_bench::allocator::BenchAllocator;

fn main() -> ExitCode {
    corewise_load::floor::maybe_run_from_env(); // the load generator's empty responder
    corewise_rcu::set_stall_hook(print_stall).expect("no library sets it");
    match cli::run(std::env::args_os().collect()) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// Reports a thread that keeps memory from being reclaimed.
fn print_stall(stall: &corewise_rcu::Stall) {
    // Not eprintln, which panics if standard error is closed.
    let _ = writeln!(std::io::stderr(), "corewise-rcu: {stall}");
}
