//! How many keys have a deadline, for `INFO keyspace`.

use corewise_engine::{Cursor, Engine, ScanStep};
use corewise_ops::Now;

/// Items and buckets that are visited in one critical section of the engine.
const LOOKS: usize = 1_024;
/// The critical sections, at most: a table that has more buckets may be nearly empty.
const STEPS: usize = 128;
/// The items that are enough. If there are more, the numbers are estimates.
const ENOUGH: u64 = 2_048;

/// What was found of the items that were visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Keyspace {
    visited: u64,
    with_deadline: u64,
    /// The sum of the times to the deadlines, in milliseconds.
    left_ms: u128,
    /// All items were visited.
    is_whole: bool,
}

impl Keyspace {
    /// Visits items from the beginning of the table: their order is that of a hash.
    pub(super) fn sample<E: Engine>(engine: &E, now: Now) -> Self {
        let (mut sample, mut cursor) = (Self::default(), Cursor::START);
        for _ in 0..STEPS {
            let step = engine.scan(cursor, LOOKS, now, &mut |item| {
                sample.visited += 1;
                if let Some(left_ms) = item.deadline.remaining_ms(now) {
                    sample.with_deadline += 1;
                    sample.left_ms += u128::from(left_ms);
                }
            });
            match step {
                ScanStep::More(next) if sample.visited < ENOUGH => cursor = next,
                ScanStep::More(_) => break,
                ScanStep::Done | ScanStep::Lost => {
                    sample.is_whole = step == ScanStep::Done;
                    break;
                }
            }
        }
        sample
    }

    /// The line of a database with this many keys.
    pub(super) fn describe(&self, keys: u64) -> String {
        let expires = if self.is_whole || self.visited == 0 {
            self.with_deadline
        } else {
            let share = u128::from(keys) * u128::from(self.with_deadline);
            (share / u128::from(self.visited)) as u64
        };
        let avg_ttl = self.left_ms / u128::from(self.with_deadline.max(1));
        format!(
            "keys={keys},expires={},avg_ttl={avg_ttl}",
            expires.min(keys)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Keyspace;

    #[test]
    fn few_keys_are_counted_and_many_are_estimated() {
        let part = Keyspace {
            visited: 1_000,
            with_deadline: 250,
            left_ms: 2_500,
            is_whole: false,
        };
        assert_eq!(part.describe(8_000), "keys=8000,expires=2000,avg_ttl=10");
        let whole = Keyspace {
            is_whole: true,
            ..part
        };
        // Some were removed meanwhile.
        assert_eq!(whole.describe(999), "keys=999,expires=250,avg_ttl=10");
        let none = Keyspace::default();
        assert_eq!(none.describe(1), "keys=1,expires=0,avg_ttl=0");
    }
}
