//! Iterations over a whole table.

use crate::clock;
use crate::plan::Plan;
use crate::table::{Handle, Kind, Table};
use crate::work::worker::Worker;
use crate::work::{Loop, Part, Start, Sums, is_given_up};

/// One thread's part of a short slice.
#[derive(Debug)]
pub struct Iterate {
    /// The sums of all keys.
    pub(crate) expected: Sums,
    pub(crate) start: Start,
    pub(crate) warm_ticks: u64,
    pub(crate) run_ticks: u64,
}

/// The report of a slice.
#[derive(Debug)]
pub struct IterateReport {
    /// Entries visited in the measured time, and that time.
    pub(crate) entries: u64,
    pub(crate) ticks: u64,
    /// The first wrong iteration, in words.
    pub(crate) problem: Option<String>,
}

impl Loop for Iterate {
    type Report = IterateReport;

    /// Iterates at least once in the measured time, which ends with an iteration.
    fn run<K: Kind, T: Table<K>>(&mut self, table: &T, plan: &Plan, part: Part) -> IterateReport {
        let mut worker = Worker::<K, T>::new(table, plan, part, None);
        let mut problem = None;
        let mut iterate = || {
            let mut seen = Sums::default();
            worker.handle.for_each(|key, stamp| {
                let key = K::number(key);
                seen.gain(key, 0);
                seen.check_if(true, key, stamp);
            });
            if seen != self.expected {
                problem.get_or_insert_with(|| complaint(&seen, &self.expected));
            }
            seen.entries as u64
        };
        self.start.wait();
        let begin = clock::coarse();
        while clock::coarse().wrapping_sub(begin) < self.warm_ticks && !is_given_up() {
            iterate();
        }
        let begin = clock::coarse();
        let (mut entries, mut ticks) = (0, 0);
        while ticks < self.run_ticks && !is_given_up() {
            entries += iterate();
            ticks = clock::coarse().wrapping_sub(begin);
        }
        IterateReport {
            entries,
            ticks,
            problem,
        }
    }
}

#[cold]
fn complaint(seen: &Sums, expected: &Sums) -> String {
    if seen.wrong > 0 {
        let (wrong, key) = (seen.wrong, seen.wrong_key);
        format!("an iteration gave {wrong} values of other keys, one at key {key:#x}")
    } else if seen.entries != expected.entries {
        let (seen, expected) = (seen.entries, expected.entries);
        format!("an iteration visited {seen} entries of {expected}")
    } else {
        "the keys of an iteration are not those that were put in".into()
    }
}
