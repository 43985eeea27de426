//! What both tables are built from.

use corewise_topology::PinPolicy;

use crate::element::{LINE, Layout};
use crate::key::Mixer;
use crate::partition::{Eviction, Replace, Settings};

/// The most partitions of a table, 2^16.
pub const MAX_PARTITIONS: usize = 1 << 16;

/// The most buckets of a table, 2^32, which take 32 GiB.
///
/// With the default of [`Config::element_bytes`] this is a budget of 512 GiB; a larger one needs
/// larger elements.
pub const MAX_BUCKETS: usize = 1 << 32;

/// The most partitions of a table whose configuration names no number (\[CPHASH\] §6.1).
const MOST_BY_DEFAULT: usize = 4096;

/// Bytes of a partition up to which a budget gets larger partitions, not more of them.
const LARGE_PARTITION: usize = 1 << 20;

/// Partitions of a table that is too small for large ones.
const SMALL_TABLE_PARTITIONS: usize = 16;

/// The fewest bytes of a partition.
const LEAST_PARTITION: usize = 2 * LINE;

/// The most server threads of a [`CpHash`](crate::CpHash), 2^10. Threads beyond the number of
/// partitions have nothing to serve.
pub const MAX_SERVER_THREADS: usize = 1 << 10;

/// Size and policies of a table.
///
/// ```
/// use corewise_cphash::{Config, Eviction, LockHash};
/// let config = Config::new(64 << 20).partitions(256).eviction(Eviction::Random);
/// let table = LockHash::new(&config)?;
/// # Ok::<(), corewise_cphash::ConfigError>(())
/// ```
///
/// # Limits
///
/// Every partition has an equal share of the budget, and its elements share no memory with those of
/// other partitions. So the largest element takes `budget_bytes / partitions`. Unless
/// [`partitions`](Self::partitions) names their number, this is at least 1 MiB, or a sixteenth of
/// the budget if that is less; half of that if budgets [move](Self::moving_budgets).
///
/// An element takes whole cache lines of 64 bytes: in a `LockHash` 48 bytes, in a `CpHash` 72, and
/// those of its value and of its key (none for a number below 2^60). The budget counts these lines.
/// It does not count the buckets: 8 bytes for each [`element_bytes`](Self::element_bytes), up to
/// twice as much because of rounding. A table has at most [`MAX_BUCKETS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    budget_bytes: usize,
    partitions: Option<usize>,
    pub(crate) eviction: Eviction,
    replace: Replace,
    element_bytes: usize,
    pipeline: usize,
    pub(crate) placement: PinPolicy,
    pub(crate) moving_budgets: bool,
    pub(crate) early_outcomes: bool,
    pub(crate) inline_values: bool,
}

/// Why a table cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is no partition, or there are more than the named limit.
    Partitions {
        /// The limit.
        most: usize,
    },
    /// A partition's share of the budget has no room for two cache lines, or exceeds 2^44 bytes.
    Budget,
    /// There would be more buckets than the named limit: expect larger elements, see
    /// [`Config::element_bytes`].
    Buckets {
        /// The limit.
        most: usize,
    },
    /// The system has no memory for the buckets.
    Memory,
    /// The pipeline is not within its limits.
    Pipeline,
    /// There are more server threads than the named limit, or a range of their number is empty or
    /// contains 0: the number cannot follow the load if no thread measures it.
    ServerThreads {
        /// The limit.
        most: usize,
    },
    /// The system cannot create a thread.
    Threads,
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Partitions { most } => write!(f, "a table has 1 to {most} partitions"),
            Self::Budget => f.write_str("a partition has 128 bytes to 16 TiB"),
            Self::Buckets { most } => write!(f, "a table has at most {most} buckets"),
            Self::Memory => f.write_str("the system has no memory for the buckets"),
            Self::ServerThreads { most } => {
                write!(
                    f,
                    "a table has up to {most} server threads, or 1 to {most} that adapt"
                )
            }
            Self::Threads => f.write_str("the system cannot create a thread"),
            Self::Pipeline => f.write_str("a pipeline has 64 to 16,384 operations"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Declares methods that set the field of the same name.
macro_rules! setters {
    ($($(#[$doc:meta])* $field:ident($value:ident: $type:ty);)+) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $field(mut self, $value: $type) -> Self {
            self.$field = $value.into();
            self
        }
    )+};
}

impl Config {
    /// A table whose elements take at most `budget_bytes`, with exact LRU eviction.
    #[must_use]
    pub fn new(budget_bytes: usize) -> Self {
        Self {
            budget_bytes,
            partitions: None,
            eviction: Eviction::default(),
            replace: Replace::default(),
            element_bytes: 2 * LINE,
            pipeline: 1024,
            placement: PinPolicy::None,
            moving_budgets: false,
            early_outcomes: false,
            inline_values: true,
        }
    }

    setters! {
        /// The number of partitions, up to [`MAX_PARTITIONS`].
        ///
        /// By default it follows the budget, so that large values fit: one for each MiB, but at
        /// least 16 (fewer below 2 KiB, where a partition has 128 bytes), and at most 4,096
        /// (\[CPHASH\] §6.1). A `CpHash` has no more than one for each CPU. More partitions than
        /// these mean less waiting for locks, and smaller values.
        partitions(count: usize);

        /// Which element makes room for a new one.
        eviction(eviction: Eviction);

        /// When an insertion removes the element that it replaces. Matters to `CpHash`, and to
        /// values of more than 256 bytes in a `LockHash` with [`Eviction::Lru`]; other insertions
        /// replace in one step.
        replace(replace: Replace);

        /// The expected bytes of an element, 128 by default, from which the number of buckets
        /// follows: one for each element that fits into the budget, rounded up to a power of two in
        /// each partition. The number never changes; smaller elements mean longer chains.
        element_bytes(bytes: usize);

        /// The number of operations that a client of a `CpHash` may have outstanding: 64 to 16,384,
        /// and 1,024 by default. (\[CPHASH\] §6.1 finds 512 to 8,192 equally fast.)
        pipeline(operations: usize);

        /// Where the server threads of a `CpHash` run. With [`PinPolicy::SmtPair`], server thread n
        /// runs on the second hardware thread of the nth core, and its client on the first
        /// (\[CPHASH\] §6.1); see [`CpHash::client_cpu`](crate::CpHash::client_cpu). Otherwise
        /// server threads have the first CPUs of the policy, and clients the next ones. By default
        /// the system chooses.
        placement(policy: PinPolicy);

        /// Whether the servers of a `CpHash` move memory from partitions that evict little to those
        /// that evict much. Then a partition has between half of an equal share and two of them,
        /// and so has the largest element. Off by default, because hashing makes partitions equal
        /// unless the sizes of values differ much.
        moving_budgets(on: bool);

        /// Whether the outcome of an insertion that is *submitted* to a `CpHash` is delivered as
        /// soon as the client has copied the value and sent READY, as in the paper (\[CPHASH\]
        /// §3.2). This saves the reply to READY. But other clients may then find the former value
        /// for a short time after the outcome, until the server has executed READY, so such
        /// insertions are not linearizable. Off by default. Blocking insertions always wait, and
        /// those that a message carries need no READY.
        early_outcomes(on: bool);

        /// Whether the message of an insertion into a `CpHash` carries key and value if they have
        /// up to 40 bytes together. Then the server copies them, and the insertion takes one round
        /// trip. On by default; off is the paper's way, in which clients copy all values
        /// (\[CPHASH\] §3.2).
        inline_values(on: bool);
    }

    pub(crate) fn pipeline_checked(&self) -> Result<usize, ConfigError> {
        let fits = (64..=16_384).contains(&self.pipeline);
        // Models have small rings.
        let is_model = cfg!(any(corewise_loom, corewise_shuttle));
        (fits || is_model)
            .then_some(self.pipeline)
            .ok_or(ConfigError::Pipeline)
    }

    /// The number of partitions, and how each is made.
    pub(crate) fn settings(
        &self,
        most_by_default: usize,
        layout: Layout,
        mixer: Mixer,
    ) -> Result<(usize, Settings), ConfigError> {
        let count = self
            .partitions
            .unwrap_or_else(|| default_partitions(self.budget_bytes).min(most_by_default));
        if !(1..=MAX_PARTITIONS).contains(&count) {
            return Err(ConfigError::Partitions {
                most: MAX_PARTITIONS,
            });
        }
        let budget = share_of_budget(self.budget_bytes, count)?;
        let buckets = (budget / self.element_bytes.max(1))
            .max(1)
            .next_power_of_two();
        if buckets > MAX_BUCKETS / count {
            return Err(ConfigError::Buckets { most: MAX_BUCKETS });
        }
        let settings = Settings {
            budget,
            buckets,
            eviction: self.eviction,
            replace: self.replace,
            layout,
            mixer,
            seed: mixer.mix(0),
        };
        Ok((count, settings))
    }
}

/// The number of partitions of a table with this budget.
fn default_partitions(bytes: usize) -> usize {
    (bytes / LARGE_PARTITION)
        .max(SMALL_TABLE_PARTITIONS)
        .min(bytes / LEAST_PARTITION)
        .clamp(1, MOST_BY_DEFAULT)
}

/// The budget of each of `count` partitions.
pub(crate) fn share_of_budget(bytes: usize, count: usize) -> Result<usize, ConfigError> {
    let share = bytes / count;
    let fits = share >= LEAST_PARTITION && share as u64 <= 1 << 44;
    fits.then_some(share).ok_or(ConfigError::Budget)
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    /// Every configuration has a bounded number of buckets or is refused, and nothing overflows.
    #[test]
    fn buckets_have_a_limit() {
        let powers = || (0..usize::BITS).map(|bits| 1_usize << bits);
        let numbers = || powers().flat_map(|power| [power - 1, power, power + power / 3]);
        let mixer = Mixer::with_seeds(1, 1);
        let (mut accepted, mut refused) = (0, 0);
        for budget in numbers() {
            for (partitions, element) in
                powers().flat_map(|count| numbers().map(move |e| (count, e)))
            {
                let config = Config::new(budget)
                    .partitions(partitions)
                    .element_bytes(element);
                match config.settings(1, Layout::Packed, mixer) {
                    Ok((count, settings)) => {
                        accepted += 1;
                        assert_eq!(count, partitions);
                        assert!(count * settings.buckets <= MAX_BUCKETS);
                        assert!(settings.buckets * element.max(1) >= settings.budget / 2);
                    }
                    Err(ConfigError::Buckets { most: MAX_BUCKETS }) => {
                        refused += 1;
                        assert!(budget / element.max(1) >= MAX_BUCKETS / 2);
                    }
                    Err(ConfigError::Budget | ConfigError::Partitions { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
        assert!(accepted > 1000 && refused > 1000);
    }
}
