//! Iterations over a whole table.

use crate::plan::Plan;
use crate::table::{Kind, MapHandle, MeasuredMap};
use crate::work::worker::Worker;
use crate::work::{DriveReport, Loop, Part, SliceTimes, Sums};

/// One thread's part of a short slice.
#[derive(Debug)]
pub struct Iterate {
    /// The sums of all keys.
    pub(crate) expected: Sums,
    pub(crate) times: SliceTimes,
}

impl Loop for Iterate {
    /// The operations of the report are entries visited; of an iteration across the end of the
    /// measured time, a part.
    fn run<K: Kind, T: MeasuredMap<K>>(&mut self, map: &T, plan: &Plan, part: Part) -> DriveReport {
        let mut worker = Worker::<K, T>::new(map, plan, part, None);
        let mut problem = None;
        let iterate = || {
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
        let (operations, ticks) = self.times.run(|| (), iterate);
        DriveReport {
            operations,
            ticks,
            problem,
            ..DriveReport::default()
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
