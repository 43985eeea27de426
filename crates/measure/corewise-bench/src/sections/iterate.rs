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

use maud::Markup;

use crate::cell_run::CellRun;
use crate::closed_loop;
use crate::contender::{CellContext, RunningTable};
use crate::entry::{Entry, Maker};
use crate::error::BenchError;
use crate::plan::Kept;
use crate::plot::style::Looks;
use crate::plot::{Plot, dots, group};
use crate::results::{CellResults, Results};
use crate::section::Section;
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
    fn adapt(&self, workload: &mut Workload) {
        (workload.insert_percent, workload.remove_percent) = (0.0, 0.0);
    }

    fn maker(&self, entry: &Entry, workload: &Workload) -> Option<Maker> {
        let maker = entry.maker(&workload.kind, workload.native_hash);
        maker.filter(|_| entry.iterates)
    }

    fn run(&self, run: &mut CellRun<'_, '_>) -> Result<(), BenchError> {
        let mut measured = closed_loop::measure(run, |context, _| {
            let mut expected = Sums::default();
            for index in 0..context.plan.range {
                expected.gain(context.plan.key(index), 0);
            }
            Ok(move |context: &CellContext<'_>, table: &mut RunningTable| {
                let (reports, _) = context.slice(table, move |times, _| Iterate {
                    expected,
                    times: times.clone(),
                })?;
                table.add_slice(&reports);
                Ok(())
            })
        })?;
        measured.cell.left_out = run.left_out();
        run.write(measured)
    }

    fn plots(&self, results: &Results, looks: &Looks) -> Vec<Plot> {
        let what = (self.name(), &*self.preset().title);
        let heading = |cell: &CellResults| group::threads(cell.cell.threads);
        dots::by(results, looks, what, &["threads"], heading)
    }

    /// The rates are in the verdicts.
    fn below(&self, _: &Results, _: &Looks) -> Markup {
        Markup::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
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
                run_ticks: clock::ticks(100_000),
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
                // Again if the thread was not running in the measured time.
                let problem = |keys| loop {
                    let report = table.run(&plan, part, &mut job(&plan, keys));
                    if report.operations > 0 || report.problem.is_some() {
                        return report.problem;
                    }
                };
                assert_eq!(problem(KEYS), None, "{name}");
                assert!(problem(KEYS - 1).is_some(), "{name}");
                visited += 1;
            }
        }
        assert!(visited > 8, "{visited}");
    }
}
