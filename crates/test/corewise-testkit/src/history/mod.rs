//! Histories of concurrent operations: recorded by threads, checked for linearizability.
//!
//! A test lets threads call an object and record their operations and outcomes ([`Recording`],
//! [`Recorder`]). The [`History`] is then checked against a [`Model`], the sequential specification
//! of the object: is there an order of the operations that respects real time and in which the
//! sequential object gives exactly these outcomes? For development only; no program links it.
//!
//! ```
//! use corewise_testkit::history::models::{EntryOp, EntryOutcome, MapEntry};
//! use corewise_testkit::history::Recording;
//! use std::{collections::HashMap, sync::Mutex, thread};
//!
//! let map = Mutex::new(HashMap::new());
//! let recording = Recording::new();
//! thread::scope(|scope| {
//!     for value in 0..3 {
//!         let (map, mut recorder) = (&map, recording.recorder(2));
//!         scope.spawn(move || {
//!             recorder.record("key", EntryOp::Insert(value), || {
//!                 EntryOutcome::Held(map.lock().unwrap().insert("key", value))
//!             });
//!             recorder.record("key", EntryOp::Get, || {
//!                 EntryOutcome::Held(map.lock().unwrap().get("key").copied())
//!             });
//!         });
//!     }
//! });
//! let history = recording.finish()?;
//! history.check(&MapEntry::new()).assert_linearizable();
//! # Ok::<(), corewise_testkit::history::StillRecording>(())
//! ```
//!
//! # Sources
//!
//! - \[HW90\]: the definition, and theorem 1, that the property is *local*. The parts of a history
//!   on different keys are therefore checked separately.
//! - \[WG93\]: the search. The next operation is any whose invocation comes before the first return
//!   among those left.
//! - \[Lowe17\]: no configuration, a pair of (operations done, state), is visited twice; and
//!   *just-in-time* linearization, which orders operations only when one of them is about to
//!   return. [`Model`] describes our additions.
//!
//! # Guarantees
//!
//! 1. *A violation is real.* [`Verdict::Violation`] is given only if no order explains the history,
//!    provided that the model is right. For a recorded history the object then broke its guarantee
//!    even to callers that are ordered by *happens before* ([`Recorder::record`] explains why).
//! 2. *A proof is real.* [`Verdict::Linearizable`] is given only if an order explains the history.
//!    It proves one history, not the object: [`Summary::concurrent`] tells how much it shows.
//! 3. *The checker terminates.* It visits at most the limit of configurations for each key (by
//!    default [`DEFAULT_LIMIT`]), and no call recurses; beyond the limit the verdict is
//!    [`Verdict::Undecided`].
//! 4. *Shortest prefix.* A violation names the operation whose return cannot be explained, given
//!    the outcomes of all operations invoked before it; everything that returned earlier can be
//!    explained.
//! 5. *Pending operations* (a thread panicked in one, or waits forever) may take effect at any time
//!    after their invocation, or never.
//!
//! # Cost
//!
//! A history of `n` operations with at most `c` open at once on a key has at most `n` times `2^c`
//! times the number of states as configurations; typical histories, whose outcomes show what was
//! overwritten, have about `n`. At a quiescent point no operation is open, so a configuration there
//! is just a state: only the set of possible states is carried over, and a long history costs the
//! sum of its stretches between such points. Configurations are kept until the key is done.

mod check;
mod model;
pub mod models;
mod operation;
mod record;
mod report;
mod threads;
mod timeline;

pub use check::DEFAULT_LIMIT;
pub use model::Model;
pub use operation::{CallRecord, CallResponse, History};
pub use record::{Recorder, Recording, StillRecording};
pub use report::{Reason, Summary, Undecided, Verdict, Violation};
pub use threads::{record_beside, record_threads};
pub use timeline::MAX_OPEN;
