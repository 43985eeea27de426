//! How many keys there are in each database, and how many have a deadline, for `INFO keyspace`.

use corewise_engine::{Cursor, Engine, EngineStats, ScanStep};
use corewise_ops::Now;
use corewise_ops::database::{self, DATABASES};
use std::fmt::Write as _;

/// Items and buckets that are visited in one critical section of the engine.
const LOOKS: usize = 1_024;
/// The critical sections, at most: a table that has more buckets may be nearly empty.
const STEPS: usize = 128;
/// The items that are enough. If there are more, the numbers are estimates.
const ENOUGH: u64 = 2_048;

/// What was found of the items that were visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Keyspace {
    databases: [Found; DATABASES],
    visited: u64,
    /// All items were visited.
    is_whole: bool,
}

/// The same in one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Found {
    visited: u64,
    with_deadline: u64,
    /// The sum of the times to the deadlines, in milliseconds.
    left_ms: u128,
}

impl Keyspace {
    /// Visits items from the beginning of the table: their order is that of a hash.
    pub(super) fn sample<E: Engine>(engine: &E, now: Now) -> Self {
        let (mut sample, mut cursor) = (Self::default(), Cursor::START);
        for _ in 0..STEPS {
            let step = engine.scan(cursor, LOOKS, now, &mut |item| {
                sample.visited += 1;
                let found = &mut sample.databases[usize::from(database::split(item.key).0)];
                found.visited += 1;
                if let Some(left_ms) = item.deadline.remaining_ms(now) {
                    found.with_deadline += 1;
                    found.left_ms += u128::from(left_ms);
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

    /// Prints a line for each database that has keys.
    pub(super) fn print(&self, stats: &EngineStats, text: &mut String) {
        for (database, found) in (0..).zip(&self.databases) {
            let keys = stats.items_of(database);
            if keys > 0 {
                let line = found.describe(keys, self.is_whole);
                // Writing to a String cannot fail.
                let _ = write!(text, "db{database}:{line}\r\n");
            }
        }
    }
}

impl Found {
    /// What is told of a database with this many keys, of which these are all if that `is_whole`.
    fn describe(&self, keys: u64, is_whole: bool) -> String {
        let expires = if is_whole || self.visited == 0 {
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
    use super::Found;

    #[test]
    fn few_keys_are_counted_and_many_are_estimated() {
        let found = Found {
            visited: 1_000,
            with_deadline: 250,
            left_ms: 2_500,
        };
        let part = |keys| found.describe(keys, false);
        assert_eq!(part(8_000), "keys=8000,expires=2000,avg_ttl=10");
        // Some were removed meanwhile.
        let whole = found.describe(999, true);
        assert_eq!(whole, "keys=999,expires=250,avg_ttl=10");
        let none = Found::default().describe(1, false);
        assert_eq!(none, "keys=1,expires=0,avg_ttl=0");
    }
}
