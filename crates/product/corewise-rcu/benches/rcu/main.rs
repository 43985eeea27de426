//! Benchmark of sections, grace periods, reclamation and cells, beside crossbeam-epoch, seize and
//! arc-swap.
//!
//! ```text
//! cargo bench -p corewise-rcu                     everything, about a minute
//! cargo bench -p corewise-rcu -- guards           one part: guards, grace, writers or cells
//! cargo bench -p corewise-rcu -- --repetitions 51
//! ```
//!
//! Candidates take turns in short slices, in a new random order in every repetition. A repetition
//! has one value for each candidate, the median of its slices; ratios compare values of the same
//! repetition (Hodges-Lehmann estimate, 95 % bootstrap interval). A bar holds if the whole interval
//! is on its right side.
//!
//! # What may be unfair
//!
//! - *Guards.* Each round enters, loads one shared pointer as the library's users do
//!   (`Atomic::load`, `Guard::protect`), and leaves; every figure includes the loop and the load,
//!   which draws ratios towards 1. One thread, one domain, everything in the cache, branches
//!   predicted: the least that a guard can cost. crossbeam-epoch collects garbage on every 128th
//!   pin; that is counted, as its users pay it. seize gets its collector from a local reference and
//!   has `membarrier` too (its feature `fast-barrier`). All are inlined into the loop (fat LTO).
//! - *Grace.* seize and crossbeam-epoch free memory without grace periods that a thread waits for,
//!   so `grace` has no peers. It is measured on a machine where other threads run as well: with
//!   more readers than CPUs a grace period waits for readers that were switched out in a section,
//!   which measures the scheduler more than this crate.
//! - *Writers.* All candidates allocate, swap and retire the same boxes of 64 bytes with the same
//!   allocator. `defer_drop` here needs no guard, crossbeam-epoch's does and seize's may, so both
//!   ways are measured. Batches differ: 2,048 objects here, 64 in crossbeam-epoch, 32 in seize; so
//!   does the memory that waits (peak). Only the writers have guards, so grace periods end at once;
//!   with readers that stay long, crossbeam-epoch and seize do not bound the memory that waits.
//! - *Cells.* A read finds the value of 64 bytes and reads one word of it. `RcuCell::pin`,
//!   `ArcSwap::load` and `RwLock::read` end with the round, and while they last the reader holds up
//!   memory, holds one of eight debt slots, or holds up writers; the rows with an `Arc` may keep
//!   the value. `arc_swap::Cache` reads a copy of the `Arc` that the thread keeps, which delays the
//!   drop of an old value until that thread reads again. One value that nobody replaces meanwhile,
//!   in the cache. With 2 threads, the mean of both; beside other work on 2 CPUs they may not
//!   always run at the same time, which favours the lock and `load_full`. A replacement allocates
//!   the value; `RcuCell::store` also ends a grace period where it can and frees the old value,
//!   `ArcSwap::store` looks at the debts of all threads. The rows "again" run the same
//!   code again, for reads from another place in memory: as much as their ratio differs from 1, so
//!   much may be the place of a loop.

mod cells;
mod grace;
mod guards;
mod report;
mod writers;

use report::Options;

fn main() {
    let options = Options::of_command_line();
    report::print_head(&options);
    for (name, run) in [
        ("guards", guards::run as fn(&Options)),
        ("grace", grace::run),
        ("writers", writers::run),
        ("cells", cells::run),
    ] {
        if options.wants(name) {
            run(&options);
        }
    }
}
