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

use crate::contender::{CellContext, PhaseError, RunningTable, SliceTotals};
use crate::dyn_table::{Entry, Maker};
use crate::error::BenchError;
use crate::figure::{Figure, Unit};
use crate::plan::Kept;
use crate::plot::style::Looks;
use crate::plot::{Plot, dots, group};
use crate::results::{CellResults, Results, RowResults};
use crate::runner::CellRun;
use crate::sections::Section;
use crate::sections::closed_loop::{self, Slices};
use crate::work::Sums;
use crate::work::iterate::Iterate;
use crate::workload::{Rules, Workload};

/// The section.
#[derive(Debug)]
pub(crate) struct IterateSection;

impl Rules for IterateSection {
    fn name(&self) -> &'static str {
        "iterate"
    }

    fn kept(&self, _: &Workload) -> Kept {
        Kept::All
    }
}

impl Section for IterateSection {
    /// Every key is always present.
    fn range(&self, initial: u64, _: f64, _: f64) -> Option<u64> {
        Some(initial)
    }

    fn adapt(&self, workload: &mut Workload) {
        (workload.insert_percent, workload.remove_percent) = (0.0, 0.0);
    }

    fn maker(&self, entry: &Entry, workload: &Workload) -> Option<Maker> {
        let maker = entry.maker(&workload.kind, workload.native_hash);
        maker.filter(|_| entry.iterates)
    }

    fn run(&self, run: &mut CellRun<'_, '_>) -> Result<(), BenchError> {
        let mut measured = closed_loop::measure::<IterateSlices>(run)?;
        measured.cell.left_out = run.left_out();
        closed_loop::write(run, measured)
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

    fn plots(&self, results: &Results, looks: &Looks) -> Vec<Plot> {
        let what = ("iterate", "iterate", "Entries visited");
        let heading = |cell: &CellResults| group::threads(cell.cell.threads);
        dots::by(results, looks, what, &["threads"], heading)
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

    fn run(
        &self,
        context: &CellContext<'_>,
        table: &mut RunningTable,
        (): &mut (),
    ) -> Result<(), PhaseError> {
        let expected = self.expected;
        let done = context.slice(table, move |times, _| Iterate {
            expected,
            times: times.clone(),
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
    use crate::plan::{KeyMap, Plan};
    use crate::table::{Setup, Shape};
    use crate::work::{Part, SliceTimes, Start};

    const KEYS: u32 = 3_000;

    fn job(plan: &Plan, keys: u32) -> Iterate {
        let mut expected = Sums::default();
        for index in 0..keys {
            expected.gain(plan.key(index), 0);
        }
        Iterate {
            expected,
            times: SliceTimes {
                start: Start::of(1),
                warm_ticks: 0,
                run_ticks: 1,
            },
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
            ..Setup::default()
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
                let maker = entry.maker(kind, false);
                let Some(maker) = maker.filter(|_| entry.iterates) else {
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
