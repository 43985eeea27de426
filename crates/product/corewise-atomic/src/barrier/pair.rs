//! The state behind `light` and `heavy`, separate from the system calls so that tests can deny
//! them.

use std::io::Write as _;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed, Ordering::SeqCst, compiler_fence, fence};

/// The system has not been asked yet.
const UNKNOWN: u8 = 0;
/// The system fences other threads for us; final.
const AVAILABLE: u8 = 1;
/// It does not, and both sides execute fences; final.
const MISSING: u8 = 2;

/// The system calls behind the heavy half.
#[derive(Clone, Copy)]
pub(super) struct System {
    /// Registers for the fences; false if the system does not support them.
    pub(super) register: fn() -> bool,
    /// Makes every running thread execute a full fence; false if that failed.
    pub(super) fence_all: fn() -> bool,
}

#[cfg(target_os = "linux")]
pub(super) const SYSTEM: System = System {
    register: super::membarrier::register,
    fence_all: super::membarrier::run,
};

#[cfg(not(target_os = "linux"))]
pub(super) const SYSTEM: System = System {
    register: || false,
    fence_all: || false,
};

pub(super) struct Pair {
    state: AtomicU8,
    system: System,
}

impl Pair {
    pub(super) const fn new(system: System) -> Self {
        Self {
            state: AtomicU8::new(UNKNOWN),
            system,
        }
    }

    #[inline(always)]
    pub(super) fn light(&self) {
        // Relaxed: any state that was ever true is safe, see "How it works" in the module above.
        if self.state.load(Relaxed) == AVAILABLE {
            // SeqCst: keeps the compiler from moving accesses across; `fence_all` in `heavy` orders
            // them in the processor.
            compiler_fence(SeqCst);
        } else {
            light_without_help();
        }
    }

    pub(super) fn heavy(&self) {
        // SeqCst: pairs with `light_without_help`, and orders this thread's own accesses.
        fence(SeqCst);
        if self.prepare() && !(self.system.fence_all)() {
            abort_without_help();
        }
        // SeqCst: as above, for the accesses that follow.
        fence(SeqCst);
    }

    pub(super) fn prepare(&self) -> bool {
        // Relaxed: the state publishes nothing; the kernel orders its registration itself.
        match self.state.load(Relaxed) {
            UNKNOWN => self.decide(),
            state => state == AVAILABLE,
        }
    }

    /// The first call decides for all.
    #[cold]
    fn decide(&self) -> bool {
        let found = if (self.system.register)() {
            AVAILABLE
        } else {
            MISSING
        };
        // Relaxed, both: as in `prepare`.
        match self
            .state
            .compare_exchange(UNKNOWN, found, Relaxed, Relaxed)
        {
            Ok(_) => found == AVAILABLE,
            Err(decided) => decided == AVAILABLE,
        }
    }
}

#[cold]
#[inline(never)]
fn light_without_help() {
    // SeqCst: pairs with the fences in `heavy`.
    fence(SeqCst);
}

/// Threads may be relying on `fence_all`, so the process cannot continue.
#[cold]
fn abort_without_help() -> ! {
    // Not eprintln, which panics if standard error is closed: a panic must not prevent the abort.
    let _ = std::io::stderr().write_all(
        b"corewise: membarrier worked and then stopped working; is a filter being installed?\n",
    );
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENIED: System = System {
        register: || false,
        fence_all: || panic!("not to be called"),
    };
    const GRANTED: System = System {
        register: || true,
        fence_all: || true,
    };

    #[test]
    fn a_system_that_refuses_leaves_the_fences() {
        let pair = Pair::new(DENIED);
        pair.light();
        pair.heavy();
        assert_eq!(pair.state.load(Relaxed), MISSING);
        assert!(!pair.prepare());
        pair.light();
    }

    #[test]
    fn a_system_that_helps_is_asked_once() {
        let pair = Pair::new(GRANTED);
        pair.heavy();
        assert_eq!(pair.state.load(Relaxed), AVAILABLE);
        assert!(
            Pair {
                state: AtomicU8::new(AVAILABLE),
                system: DENIED
            }
            .prepare()
        );
    }

    #[test]
    fn the_first_to_decide_decides_for_all() {
        let pair = Pair {
            state: AtomicU8::new(MISSING),
            system: GRANTED,
        };
        assert!(!pair.decide());
    }
}
