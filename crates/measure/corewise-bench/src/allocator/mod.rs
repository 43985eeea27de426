//! The memory allocator of a benchmark process, and its page policy.
//!
//! A program that measures declares
//!
//! ```
//! use corewise_bench::allocator::BenchAllocator;
//!
//! #[global_allocator]
//! static ALLOCATOR: BenchAllocator = BenchAllocator;
//! ```
//!
//! Its memory then comes from mimalloc, or from the system's allocator if the environment sets
//! `COREWISE_ALLOCATOR=system`. A process keeps its allocator for life; [`reexec`] restarts the
//! program with another one.
//!
//! # Guarantees
//!
//! 1. The choice is made once, at the first allocation: a pointer is returned to the allocator that
//!    allocated it.
//! 2. A call costs one relaxed load and a predictable branch more than the chosen allocator, as
//!    long as nothing is counted.
//! 3. Counting, once switched on, stays on. Bytes are those requested, not those that the allocator
//!    rounds them to, so they do not depend on the allocator. [`Counted`] states the error bounds.
//! 4. C and C++ code in the process calls `malloc` and is not counted.

mod count;
mod pages;

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU8, Ordering};

use clap::ValueEnum;
use mimalloc::MiMalloc;

pub use count::{Counted, DRIFT_BYTES};
pub use pages::{Pages, ReexecError, pages_line, reexec};

/// The environment variable that names the allocator.
pub const ALLOCATOR_VARIABLE: &str = "COREWISE_ALLOCATOR";
const ALLOCATOR_VARIABLE_C: &CStr = c"COREWISE_ALLOCATOR";

/// State of the process: the choice in the low bits, the counting flag above them.
static STATE: AtomicU8 = AtomicU8::new(UNDECIDED);

const UNDECIDED: u8 = 0;
const MIMALLOC: u8 = 1;
const SYSTEM: u8 = 2;
const CHOICE: u8 = 3;
const COUNTING: u8 = 4;

/// A memory allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// mimalloc, the default.
    Mimalloc,
    /// The C library's `malloc`.
    System,
}

/// The global allocator of a program that measures.
#[derive(Clone, Copy, Debug, Default)]
pub struct BenchAllocator;

impl BenchAllocator {
    /// Returns the state of the process; decides it on the first call.
    #[inline(always)]
    fn state() -> u8 {
        // Relaxed: the byte guards no other memory, and every thread that finds it undecided
        // decides the same.
        let state = STATE.load(Ordering::Relaxed);
        if state & CHOICE == UNDECIDED {
            decide()
        } else {
            state
        }
    }
}

/// Defines a function that allocates.
macro_rules! allocate {
    ($alloc:ident) => {
        #[inline]
        unsafe fn $alloc(&self, layout: Layout) -> *mut u8 {
            let state = Self::state();
            // SAFETY: the caller guarantees that the layout is not of size 0.
            let block = unsafe {
                match state & CHOICE {
                    SYSTEM => System.$alloc(layout),
                    _ => MiMalloc.$alloc(layout),
                }
            };
            if state & COUNTING != 0 && !block.is_null() {
                count::add(layout.size() as i64);
            }
            block
        }
    };
}

// SAFETY: each block goes to the allocator that the process chose at its first allocation and never
// changes. Both are correct `GlobalAlloc`s that get the caller's own arguments. Counting neither
// allocates nor unwinds.
unsafe impl GlobalAlloc for BenchAllocator {
    allocate!(alloc);
    allocate!(alloc_zeroed);

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let state = Self::state();
        // SAFETY: the caller guarantees that the block came from this allocator with this layout,
        // hence from the one that the state names.
        unsafe {
            match state & CHOICE {
                SYSTEM => System.dealloc(block, layout),
                _ => MiMalloc.dealloc(block, layout),
            }
        }
        if state & COUNTING != 0 {
            count::add(-(layout.size() as i64));
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let state = Self::state();
        // SAFETY: as for `dealloc`; and the new size is not 0 and does not overflow.
        let moved = unsafe {
            match state & CHOICE {
                SYSTEM => System.realloc(block, layout, size),
                _ => MiMalloc.realloc(block, layout, size),
            }
        };
        if state & COUNTING != 0 && !moved.is_null() {
            count::add(size as i64 - layout.size() as i64);
        }
        moved
    }
}

/// Reads the environment. Runs inside the first allocation, so it must not allocate.
#[cold]
fn decide() -> u8 {
    // SAFETY: the name is a C string. The first allocation of a Rust program happens before its
    // main function, so no other thread can change the environment meanwhile; the string is read
    // before anything else runs.
    let wish = unsafe {
        let wish = libc::getenv(ALLOCATOR_VARIABLE_C.as_ptr());
        (!wish.is_null()).then(|| CStr::from_ptr(wish).to_bytes())
    };
    let choice = match wish {
        Some(b"system") => SYSTEM,
        _ => MIMALLOC,
    };
    // Relaxed: see `state`. `fetch_or` keeps the counting bit; two threads set the same bits.
    STATE.fetch_or(choice, Ordering::Relaxed) | choice
}

/// Returns the allocator of this process; `None` if the program does not run on [`BenchAllocator`].
pub fn current() -> Option<Choice> {
    // Relaxed: see `BenchAllocator::state`.
    match STATE.load(Ordering::Relaxed) & CHOICE {
        MIMALLOC => Some(Choice::Mimalloc),
        SYSTEM => Some(Choice::System),
        _ => None,
    }
}

/// Returns the name of the allocator: `mimalloc`, `system`, or `other` for a program that does not
/// run on [`BenchAllocator`].
pub fn name() -> String {
    current().map_or("other".into(), |choice| name_of(&choice))
}

/// Returns the name of a value on the command line and in the environment.
pub(crate) fn name_of(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or(String::new(), |value| value.get_name().into())
}

/// Returns the version of the allocator: `3.3.2`, `glibc 2.36`; `unknown` if it reports none.
pub fn version() -> String {
    match current() {
        Some(Choice::Mimalloc) => mimalloc_version(MiMalloc.version()),
        Some(Choice::System) => system_version(),
        None => "unknown".into(),
    }
}

/// Returns name and version, for the manifest.
pub fn line() -> String {
    format!("{} {}", name(), version())
}

/// Decodes mimalloc's version: 1.8.6 is 186, and since 3.3 version 3.3.2 is 30302.
fn mimalloc_version(number: u32) -> String {
    let base = if number < 10_000 { 10 } else { 100 };
    let (major, minor) = (number / (base * base), number / base % base);
    format!("{major}.{minor}.{}", number % base)
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn system_version() -> String {
    // SAFETY: glibc returns a C string that it never frees or changes.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn system_version() -> String {
    "unknown".into()
}

/// Switches counting on for good. Call it before the tables are made: earlier allocations are not
/// counted, and count negative when they are freed.
pub fn start_counting() {
    // Relaxed: a thread that sees the bit late does not count its allocations until then, and
    // threads started later see it.
    STATE.fetch_or(COUNTING, Ordering::Relaxed);
}

/// Returns the live bytes, and their peak since counting began or [`reset_peak`]; `None` if nothing
/// is counted, or the program does not run on [`BenchAllocator`].
pub fn counted() -> Option<Counted> {
    current()?;
    // Relaxed: see `BenchAllocator::state`.
    let counting = STATE.load(Ordering::Relaxed) & COUNTING != 0;
    counting.then(|| count::COUNTER.read())
}

/// Resets the peak to the bytes that are live now. Call it while other threads do not allocate.
pub fn reset_peak() {
    count::COUNTER.reset_peak();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_both_schemes_are_read() {
        assert_eq!(mimalloc_version(186), "1.8.6");
        assert_eq!(mimalloc_version(30_302), "3.3.2");
    }

    #[test]
    fn names_are_read_back() {
        for choice in [Choice::Mimalloc, Choice::System] {
            assert_eq!(Choice::from_str(&name_of(&choice), false), Ok(choice));
        }
        assert!(Choice::from_str("jemalloc", false).is_err());
    }

    /// The test program has the standard allocator; `tests/allocator.rs` runs on
    /// [`BenchAllocator`].
    #[test]
    fn without_the_allocator_nothing_is_claimed() {
        assert_eq!((&*name(), counted()), ("other", None));
    }
}
