//! Readers that keep a grace period waiting, and the functions to which they are reported.
//!
//! 1. *Silent by default.* A stall is passed to the function of its domain, see
//!    [`Builder::on_stall`](crate::Builder::on_stall); if the domain has none, to the hook of the
//!    process, see [`set_stall_hook`]; if there is no hook either, it is not reported.
//! 2. *Contained.* A panic in such a function is reported by the panic hook and goes no further.
//! 3. *No lock.* No lock of this crate is held while such a function runs, so it may use any
//!    domain.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use crate::deferred::contain;

/// A reader that keeps a grace period waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The name of its thread, or the thread ID if it has no name.
    pub thread: String,
    /// How long the grace period has been waiting.
    pub waited: Duration,
    /// The name of the domain.
    pub domain: String,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "thread {} has been in a read-side critical section of domain {} for {:.1} s or more",
            self.thread,
            self.domain,
            self.waited.as_secs_f64()
        )
    }
}

/// A stall hook was set before; returned by [`set_stall_hook`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallHookIsSet;

impl fmt::Display for StallHookIsSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stall hook of this process is set already")
    }
}

impl std::error::Error for StallHookIsSet {}

type Hook = Box<dyn Fn(&Stall) + Send + Sync>;

/// Not a `static_cell`: no model sets it.
static HOOK: OnceLock<Hook> = OnceLock::new();

/// Sets the function to which stalled readers are reported, for all domains that have no function
/// of their own ([`Builder::on_stall`](crate::Builder::on_stall)), the global domain included. It
/// can be set once in a process, and is meant for the program, not for libraries.
///
/// Without it stalls are not reported; [`Domain::stalls`](crate::Domain::stalls) lists them.
///
/// A thread that waits for a grace period calls the function, once in that grace period for each
/// reader. Several threads may call it at the same time. It may use any domain. A panic in it is
/// reported by the panic hook and goes no further.
///
/// # Errors
///
/// [`StallHookIsSet`] if a hook was set before; that one stays.
///
/// ```
/// corewise_rcu::set_stall_hook(|stall| eprintln!("{stall}")).unwrap();
/// assert!(corewise_rcu::set_stall_hook(|_| ()).is_err());
/// ```
pub fn set_stall_hook(hook: impl Fn(&Stall) + Send + Sync + 'static) -> Result<(), StallHookIsSet> {
    HOOK.set(Box::new(hook)).map_err(|_| StallHookIsSet)
}

/// Reports a stall of a domain whose own function is `own`.
pub(crate) fn report(own: Option<fn(&Stall)>, stall: &Stall) {
    match (own, HOOK.get()) {
        (Some(own), _) => contain(|| own(stall)),
        (None, Some(hook)) => contain(|| hook(stall)),
        (None, None) => (),
    }
}
