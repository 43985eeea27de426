//! Iteration over all entries, at rest: entries per second.
//!
//! Every thread iterates over the whole table again and again. The table holds all keys of the
//! range, so each iteration must visit them once: their number, the sum of their keys, and the key
//! that each value belongs to are checked. Tables that cannot iterate are named and left out; so is
//! the null table, as there is nothing to visit.
//!
//! # Bias
//!
//! 1. *Byte keys are read.* The number of a key is parsed from its first 16 bytes, for every table
//!    alike.
//! 2. *The interfaces differ.* One table visits references under a lock or a guard that is held for
//!    the whole iteration, another copies each bucket. What an iteration guarantees beside updates
//!    is on no scale here: see the card.

use corewise_measure::stats::Spread;

use crate::clock;
use crate::contender::{CellContext, Contender, PhaseError, RunningTable, SliceTotals};
use crate::dyn_table::{Entry, Maker};
use crate::error::BenchError;
use crate::figure::{Figure, Unit};
use crate::plan::{Kept, Plan};
use crate::plot::style::Looks;
use crate::plot::{Part as PagePart, dots, group};
use crate::results::{CellResults, Results, RowResults};
use crate::runner::Runner;
use crate::sections::Section;
use crate::sections::closed_loop::{self, Slices};
use crate::suite::{Params, Task, Threads};
use crate::table::{Handle, Kind, Table};
use crate::work::worker::Worker;
use crate::work::{Loop, Part, Start, Sums, is_given_up};
use crate::workload::Workload;

/// The section.
#[derive(Debug)]
pub(crate) struct IterateSection;

impl Section for IterateSection {
    fn name(&self) -> &'static str {
        "iterate"
    }

    fn about(&self) -> &'static str {
        "iteration over all entries, in tables that can"
    }

    fn defaults(&self) -> Params {
        Params {
            threads: Some(vec![Threads::Number(1)]),
            initial: Some(vec![1_000, 1_000_000]),
            ..Params::default()
        }
    }

    /// Every key is always present.
    fn range(&self, initial: u64, _: f64, _: f64) -> Option<u64> {
        Some(initial)
    }

    fn adapt(&self, workload: &mut Workload) {
        (workload.insert_percent, workload.remove_percent) = (0.0, 0.0);
    }

    fn kept(&self, _: &Workload) -> Kept {
        Kept::All
    }

    fn maker(&self, entry: &Entry, kind: &str, native: bool) -> Option<Maker> {
        entry.maker(kind, native).filter(|_| entry.iterates)
    }

    fn run(
        &self,
        runner: &mut Runner<'_>,
        task: &Task,
        contenders: &[Contender],
    ) -> Result<(), BenchError> {
        let mut measured = closed_loop::measure::<IterateSlices>(runner, task, contenders)?;
        measured.cell.left_out = runner.left_out(task, contenders);
        closed_loop::write(runner, task, contenders, measured)
    }

    fn left_out(&self) -> &'static str {
        "cannot iterate"
    }

    /// Nanoseconds of a thread per entry.
    fn figures(&self, row: &RowResults) -> Vec<Figure> {
        let ns = |rate: f64| row.row.cell.threads as f64 * 1e9 / rate;
        let entry = Spread::of(row.rates()).map(|rate| Figure {
            name: "entry".to_owned(),
            unit: Unit::Nanoseconds,
            value: ns(rate.median),
            spread: Some((ns(rate.high), ns(rate.low))),
        });
        entry.into_iter().collect()
    }

    fn operations(&self) -> Option<&'static str> {
        Some("each entry visited")
    }

    fn page_rank(&self) -> u32 {
        9
    }

    fn parts(&self, results: &Results, looks: &Looks) -> Vec<PagePart> {
        let what = ("iterate", "iterate", "Entries visited");
        let heading = |cell: &CellResults| group::threads(cell.cell.threads);
        let plots = dots::by(results, looks, what, &["threads"], heading);
        vec![PagePart::new(
            "iterate",
            "Iteration",
            "Every thread iterates over the whole table, which no thread changes.",
            plots,
        )]
    }
}

/// One thread's part of a short slice.
#[derive(Debug)]
pub(crate) struct Iterate {
    /// The sums of all keys.
    expected: Sums,
    start: Start,
    warm_ticks: u64,
    run_ticks: u64,
}

/// The report of a slice.
#[derive(Debug)]
pub(crate) struct IterateReport {
    /// Entries visited in the measured time, and that time.
    entries: u64,
    ticks: u64,
    /// The first wrong iteration, in words.
    problem: Option<String>,
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

/// Slices of iterations.
struct IterateSlices {
    expected: Sums,
}

impl Slices for IterateSlices {
    type Progress = ();

    fn start(context: &CellContext<'_>, _: u64) -> Result<Self, BenchError> {
        let mut expected = Sums::default();
        for index in 0..context.plan.range {
            expected.gain(context.plan.key(index), 0);
        }
        Ok(Self { expected })
    }

    fn begin(&self, _: u64) {}

    fn run(
        &self,
        context: &CellContext<'_>,
        table: &mut RunningTable,
        (): &mut (),
    ) -> Result<(), PhaseError> {
        let expected = self.expected;
        let done = context.slice(table, move |times, _| Iterate {
            expected,
            start: times.start.clone(),
            warm_ticks: times.warm_ticks,
            run_ticks: times.run_ticks,
        })?;
        let mut slice = SliceTotals::default();
        for (report, _) in done {
            slice.add(report.entries, report.ticks.max(1));
            table.problems.extend(report.problem);
        }
        table.book_totals(&slice);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::KeyMap;
    use crate::table::{Setup, Shape};

    const KEYS: u32 = 3_000;

    fn job(plan: &Plan, keys: u32) -> Iterate {
        let mut expected = Sums::default();
        for index in 0..keys {
            expected.gain(plan.key(index), 0);
        }
        Iterate {
            expected,
            start: Start::of(1),
            warm_ticks: 0,
            run_ticks: 1,
        }
    }

    #[test]
    fn every_table_that_iterates_visits_each_entry_once() {
        let shape = Shape {
            key_bytes: (16, 64),
            value_bytes: 24,
        };
        let setup = Setup {
            capacity: KEYS as usize,
            threads: 1,
            value_bytes: 24,
            key_bytes: 64,
        };
        let plan = Plan::new(shape, KEYS, KEYS, 1, KeyMap::Mixed);
        let part = Part {
            thread: 0,
            threads: 1,
        };
        let mut visited = 0;
        for entry in crate::adapters::registry().entries() {
            for kind in ["u64", "bytes"] {
                let name = format!("{} {kind}", entry.card.name);
                let Some(maker) = IterateSection.maker(entry, kind, false) else {
                    continue;
                };
                let table = maker(&setup);
                table.fill(&plan, part);
                let report = table.run(&plan, part, &mut job(&plan, KEYS));
                assert_eq!(report.problem, None, "{name}");
                assert!(report.entries >= u64::from(KEYS), "{name}");
                let fewer = table.run(&plan, part, &mut job(&plan, KEYS - 1));
                assert!(fewer.problem.is_some(), "{name}");
                visited += 1;
            }
        }
        assert!(visited > 8, "{visited}");
    }
}
