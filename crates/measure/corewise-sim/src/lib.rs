//! Many hardware threads in virtual time, on one OS thread, deterministic from a seed.
//!
//! [`run`] executes a program whose threads are coroutines. Each has a clock in cycles, and the
//! thread with the smallest clock runs: so a simulation of 64 threads needs one processor, and the
//! host's scheduler has no influence. Code reaches the engine in two ways: by the functions of
//! [`engine`], or, in a build with `--cfg corewise_sim`, by the façade of `corewise-atomic`, which
//! announces each access to shared memory. So the tables and locks of this project run unchanged.
//!
//! # Guarantees
//!
//! 1. *Same seed, same run.* A program that uses the façade (or the engine) for all that threads
//!    share, and no host time, random numbers or addresses, makes the same accesses at the same
//!    clocks in every run with the same [`Config`]: [`Finished::digest`] is equal. Memory must come
//!    from a [`SimHeap`], which decides which objects share a cache line.
//! 2. *Smallest clock.* Accesses take place in the order of (clock, thread); so the values are
//!    sequentially consistent. No ordering is tested: loom does that.
//! 3. *Evaluate, then act.* A thread is suspended before an access is evaluated, never between the
//!    evaluation and the real operation.
//! 4. *Long waits cost no host time.* A thread that spins sleeps until a line that it has read is
//!    written, or until its pauses have passed; after 1,024 equal rounds, until a line is written.
//! 5. *Every end is reported.* [`run`] returns a deadlock, a panic and each limit as a
//!    [`SimError`]. A loop without any access cannot be interrupted.
//!
//! # Time
//!
//! Without a machine, costs are flat: an access costs the same whatever the caches hold, plus a
//! random number of cycles from the seed, and each thread has a processor for itself. That is for
//! finding schedules. With a [`SimMachine`] an access costs what its caches, its directory and its
//! queues say: `src/model/mod.rs` has the model, and what it leaves out. Threads share processors
//! and cores; a thread that waits, or spins without a change, leaves its share to the others.
//!
//! With a machine, guarantee 2 has an exception: a load or store that hits the first level takes
//! place up to the smallest latency between cores earlier than its clock says. No thread sees a
//! write before its time by that, and values remain sequentially consistent.
//!
//! Presets are as good as their sources, which each range names; [`SimMachine::assumed`] lists the
//! parameters without one. No preset has been compared with its machine yet.
//!
//! ```
//! use corewise_sim::{AccessKind, Config, engine, run};
//!
//! let finished = run(Config::default(), || {
//!     let word = Box::new(0u64);
//!     engine::access((&raw const *word).cast(), 8, AccessKind::Load);
//!     engine::now_cycles()
//! });
//! assert!(finished.unwrap().cycles > 0);
//! ```

pub mod engine;
#[cfg(corewise_sim)]
mod facade;
mod heap;
mod lines;
mod model;

pub use engine::run;
pub use heap::SimHeap;
pub use model::{
    AccessCounts, CacheShape, CoherenceProtocol, MachineError, MachineParameters, MachineShape,
    ParameterSample, SharedCachePolicy, SimMachine,
};

/// The kind of an access to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// Reads and writes in one step, also where the comparison fails.
    Rmw,
    /// Brings a line, for which the thread does not wait.
    Prefetch,
    /// The same for a write: other cores lose the line.
    PrefetchForWrite,
}

impl AccessKind {
    /// Whether others see another value after it.
    #[inline]
    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::Store | Self::Rmw)
    }

    #[inline]
    pub(crate) fn is_prefetch(self) -> bool {
        matches!(self, Self::Prefetch | Self::PrefetchForWrite)
    }
}

/// How a simulation runs, and what it may use.
#[derive(Clone, Debug)]
pub struct Config {
    /// Decides the random part of the costs, and so the schedule.
    pub seed: u64,
    /// The costs in cycles. With a machine, its accesses, fences and pauses cost what it says, and
    /// its clock is used.
    pub costs: FlatCosts,
    /// What accesses cost; without one, each costs the same whatever caches hold, and each thread
    /// has a processor for itself.
    pub machine: Option<MachineParameters>,
    /// Bytes of a thread's stack; below it is a page that may not be accessed.
    pub stack_bytes: usize,
    /// Accesses, pauses and other calls of the engine, of all threads together.
    pub max_accesses: u64,
    /// Cache lines of the pages of 4 KiB that are accessed.
    pub max_lines: usize,
    /// Threads, those that have ended included.
    pub max_threads: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 1,
            costs: FlatCosts::default(),
            machine: None,
            stack_bytes: 1 << 20,
            max_accesses: 1 << 32,
            max_lines: 1 << 24,
            max_threads: 1024,
        }
    }
}

/// Costs that do not depend on caches, in cycles.
///
/// The defaults are round numbers of the right order, not measurements of a machine.
#[derive(Clone, Debug)]
pub struct FlatCosts {
    /// A load or a store of one line.
    pub access: u64,
    /// An atomic read-modify-write, or a fence.
    pub rmw: u64,
    /// Each access costs up to this number of cycles more, drawn from the seed.
    pub jitter: u64,
    /// One spin hint.
    pub pause: u64,
    /// Reading the clock.
    pub clock: u64,
    /// Finding a thread-local, or a static of `static_cell!`.
    pub local: u64,
    /// A call of the system: a yield, or waking a thread.
    pub system_call: u64,
    /// From waking a thread that sleeps in the system to its first instruction.
    pub wake: u64,
    /// How long a thread spins for a lock before it sleeps in the system.
    pub lock_spin: u64,
    /// Cycles of a microsecond.
    pub per_us: u64,
}

impl Default for FlatCosts {
    fn default() -> Self {
        Self {
            access: 4,
            rmw: 20,
            jitter: 60,
            pause: 40,
            clock: 40,
            local: 1,
            system_call: 2_000,
            wake: 10_000,
            lock_spin: 4_000,
            per_us: 2_000,
        }
    }
}

/// What a simulation has made.
#[derive(Clone, Debug)]
pub struct Finished<R> {
    /// What the program has returned.
    pub value: R,
    /// The clock of the first thread when it returned.
    pub cycles: u64,
    /// A hash of all accesses: thread, line, kind and clock.
    pub digest: u64,
    /// Accesses, pauses and other calls of the engine.
    pub accesses: u64,
    /// How often the engine resumed a thread.
    pub switches: u64,
    /// Where the machine has served accesses; all 0 without one.
    pub counts: AccessCounts,
    /// Threads that had not ended when the program returned; like those of a process, they
    /// disappear, without drops.
    pub abandoned: usize,
    /// Whether [`SimHeap`] had a region for the simulation. If not, which objects share a line, and
    /// so the digest, may differ from run to run.
    pub has_region: bool,
}

/// Why a simulation has no result. Its memory and its stacks are leaked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimError {
    /// Every thread waits for another one, or repeats the same rounds for a long time: see
    /// [`engine::pause`].
    Deadlock(Vec<Blocked>),
    /// The first thread has panicked with this message.
    Panicked(String),
    /// A limit of the [`Config`] is reached.
    Limit(SimLimit),
    /// A thread would have to wait while it unwinds, which stops all threads: `std` counts panics
    /// by OS thread.
    BlockedInUnwind,
    /// The host gives no stack or no thread.
    NoMemory,
}

impl std::fmt::Display for SimError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Deadlock(blocked) => {
                f.write_str("all threads wait:")?;
                blocked.iter().try_for_each(|one| write!(f, " {one};"))
            }
            Self::Panicked(message) => write!(f, "the first thread has panicked: {message}"),
            Self::Limit(limit) => write!(f, "the limit of {limit:?} is reached"),
            Self::BlockedInUnwind => f.write_str("a thread has to wait while it unwinds"),
            Self::NoMemory => f.write_str("no memory for a stack, or no thread"),
        }
    }
}

impl std::error::Error for SimError {}

/// A limit of the [`Config`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimLimit {
    /// [`Config::max_accesses`].
    Accesses,
    /// [`Config::max_lines`].
    Lines,
    /// [`Config::max_threads`].
    Threads,
}

/// A thread of a deadlock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Its number: 0 is the program, others count in the order in which they were made.
    pub thread: u32,
    /// Its name, if it was given one.
    pub name: Option<String>,
    /// What it waits for.
    pub on: BlockedOn,
}

impl std::fmt::Display for Blocked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { thread, name, on } = self;
        let name = name.as_deref().unwrap_or("unnamed");
        write!(f, "{thread} ({name}) on {on:?}")
    }
}

/// What a thread waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockedOn {
    /// To be unparked.
    Park,
    /// For [`engine::wake`] with this address: of a lock, or of the result of a thread.
    Address(usize),
    /// That one of these cache lines is written: 64 times the number of the page, in the order of
    /// their first use, and the place in the page.
    Lines(Vec<u32>),
}
