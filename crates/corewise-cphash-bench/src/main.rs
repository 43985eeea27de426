//! Benchmark of `corewise-cphash`: its ring, round trips of messages, and `LockHash`, beside rtrb,
//! quick_cache and sharded locks around lru; and `CpHash` beside `LockHash` as in \[CPHASH\] §6.
//!
//! ```text
//! cargo run --release -p corewise-cphash-bench --features peers              everything
//! cargo run --release -p corewise-cphash-bench --features peers -- PART      ring, trips,
//!                                                                            lockhash, locks
//!                                                                            costs or figures
//!     --repetitions N    11 by default
//!     --threads N        of a cell of `figures`: the number of CPUs by default
//! ```
//!
//! Candidates take turns in slices of some ten milliseconds, in a new random order in every
//! repetition; ratios compare values of the same repetition.
//!
//! # What may be unfair
//!
//! - All tables have u64 keys and 8-byte values, foldhash where they hash, mimalloc, and room for
//!   all keys, so nothing is evicted. `LockHash` uses bytes as values; the others use u64.
//! - quick_cache's policy is not LRU: a hit only sets a bit. `LockHash` and lru maintain an exact
//!   LRU list; "random" is `LockHash` without one.
//! - `ring`: both sides move 512 words at once, from and to arrays.

mod figures;
mod lockhash;
mod report;
mod ring;
mod trips;

use report::Options;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let options = Options::of_command_line();
    report::print_head(&options);
    for (name, run) in [
        ("ring", ring::run as fn(&Options)),
        ("trips", trips::run),
        ("lockhash", lockhash::run),
        ("locks", lockhash::run_locks),
        ("costs", figures::run_costs),
        ("figures", figures::run),
    ] {
        if options.wants(name) {
            run(&options);
        }
    }
}
