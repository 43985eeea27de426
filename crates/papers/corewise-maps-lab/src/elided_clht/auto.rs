//! The table that suits the processor.
//!
//! CLHT-lb is the best table without transactions: [`Versioned`](super::Versioned) had 0.73 to
//! 1.02 of its throughput, the median ratio of seven repetitions in each of twelve cells, in ten of
//! them less than all of it (2 AMD EPYC CPUs, shared with other programs, 2026-11-25;
//! `--example elision -- 40 7` of commit `d6f25cd`; today `bench run --suite elision` measures
//! both). That the elided table is better where there are transactions is a result of the thesis
//! (at 10⁶ entries), and not measured by this project.

use corewise_locks::elide::NoTransactions;
#[cfg(doc)]
use corewise_locks::elide::Rtm;
use corewise_maps::clht::LockBased;

use super::{SlrScmMcs, TableFull, elided};

/// The elided table where there are transactions, and CLHT-lb, the best table that needs none,
/// elsewhere.
pub enum Auto {
    /// With transactions.
    Elided(Box<SlrScmMcs>),
    /// Without; the reason, and the table.
    LockBased(NoTransactions, LockBased<u64, u64>),
}

/// Creates the table that suits the processor: the elided one if [`Rtm::detect`] finds that the
/// processor commits transactions, and CLHT-lb otherwise.
///
/// ```
/// let table = corewise_maps_lab::elided_clht::auto(1_000);
/// assert_eq!(table.insert(1, 2), Ok(None));
/// assert_eq!((table.get(1), table.remove(1), table.get(1)), (Some(2), Some(2), None));
/// ```
pub fn auto(capacity: usize) -> Auto {
    match elided(capacity) {
        Ok(table) => Auto::Elided(Box::new(table)),
        Err(reason) => Auto::LockBased(reason, LockBased::with_capacity(capacity)),
    }
}

impl Auto {
    /// The value of a key.
    pub fn get(&self, key: u64) -> Option<u64> {
        match self {
            Self::Elided(table) => table.get(key),
            Self::LockBased(_, table) => table.pin().get(&key),
        }
    }

    /// Inserts a pair, and returns the value that it replaces.
    ///
    /// # Errors
    ///
    /// If an elided table has grown [`GENERATIONS`](super::GENERATIONS) times.
    pub fn insert(&self, key: u64, value: u64) -> Result<Option<u64>, TableFull> {
        match self {
            Self::Elided(table) => table.insert(key, value),
            Self::LockBased(_, table) => Ok(table.pin().insert(key, value)),
        }
    }

    /// Removes a key and returns its value.
    pub fn remove(&self, key: u64) -> Option<u64> {
        match self {
            Self::Elided(table) => table.remove(key),
            Self::LockBased(_, table) => table.pin().remove(&key),
        }
    }
}
