//! Comparing replicas: the debug mode that finds operations that are not deterministic.
//!
//! Every replica that has executed the log up to a multiple of
//! [`Builder::compare_every`](crate::Builder::compare_every) leaves its digest and the number of
//! its panics there. The first one to come leaves a checkpoint, and the others compare with it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use corewise_atomic::lock::Mutex;

use crate::discard::discard;
use crate::replica::{CombinerState, Replica};
use crate::{NodeReplicated, Sequential};

/// What a replica was at a place of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The replica's number.
    pub replica: usize,
    /// [`Sequential::digest`]; `None` if the structure has none, or if it panicked.
    pub digest: Option<u64>,
    /// Writes that have panicked.
    pub panics: u64,
}

/// Two replicas that differ although they have executed the same writes: an operation is not
/// deterministic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The place of the log at which they were compared. The reason is at most
    /// [`compare_every`](crate::Builder::compare_every) entries before it, unless a checkpoint was
    /// missed.
    pub log_index: u64,
    /// The two replicas.
    pub replicas: [Checkpoint; 2],
}

impl std::fmt::Display for Divergence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [one, other] = self.replicas.map(|it| it.replica);
        let index = self.log_index;
        write!(
            f,
            "replicas {one} and {other} differ at index {index} of the log"
        )
    }
}

impl std::error::Error for Divergence {}

#[derive(Default)]
pub(crate) struct Comparisons(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// By index. Those that every replica has passed are removed.
    checkpoints: BTreeMap<u64, Checkpoint>,
    first: Option<Divergence>,
}

impl<D: Sequential> NodeReplicated<D> {
    /// The first difference between replicas that was found. Always `None` unless
    /// [`Builder::compare_every`](crate::Builder::compare_every) is set.
    ///
    /// ```
    /// use corewise_nr::{Builder, Sequential};
    ///
    /// /// Not deterministic: what it adds depends on the replica.
    /// struct Bad(u64, usize);
    /// impl Sequential for Bad {
    ///     type Read = ();
    ///     type Write = ();
    ///     type Response = ();
    ///     fn read(&self, (): &()) {}
    ///     fn write(&mut self, (): &()) {
    ///         self.0 += self.1 as u64;
    ///     }
    ///     fn digest(&self) -> Option<u64> {
    ///         Some(self.0)
    ///     }
    /// }
    ///
    /// let bad = Builder::new().replicas(2).compare_every(1).build(|number| Bad(0, number))?;
    /// bad.write(());
    /// bad.refresh();
    /// assert!(bad.divergence().is_some());
    /// # Ok::<(), corewise_nr::BuildError>(())
    /// ```
    pub fn divergence(&self) -> Option<Divergence> {
        self.comparisons.0.lock().first
    }

    /// Compares a replica, which is at a multiple of `compare_every`.
    ///
    /// # Safety
    ///
    /// 1. The caller holds the combiner's lock, `state` is the replica's, and it is live.
    #[cold]
    pub(crate) unsafe fn compare(&self, replica: &Replica<D>, state: &CombinerState<D>) {
        let digest = || {
            // SAFETY: the caller holds the combiner's lock of a live replica (1).
            unsafe { replica.with_data(Sequential::digest) }
        };
        let this = Checkpoint {
            replica: state.index,
            digest: catch_unwind(AssertUnwindSafe(digest)).unwrap_or_else(|payload| {
                discard(payload);
                None
            }),
            panics: state.panics,
        };
        let index = state.applied;
        let min = self.log.min();
        let mut known = self.comparisons.0.lock();
        known.checkpoints = known.checkpoints.split_off(&min);
        let other = *known.checkpoints.entry(index).or_insert(this);
        let is_same = (other.digest, other.panics) == (this.digest, this.panics);
        if !is_same && known.first.is_none() {
            known.first = Some(Divergence {
                log_index: index,
                replicas: [other, this],
            });
        }
    }
}
