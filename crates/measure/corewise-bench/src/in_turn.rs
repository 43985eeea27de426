//! Cells whose tables are measured one after the other, a whole repetition each.

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::cell_run::{CellRun, Done, Measured};
use crate::contender::{CellContext, Contender, PhaseError};
use crate::error::BenchError;
use crate::workload::Workload;

/// A repetition of a table.
pub(super) struct Turn<'a> {
    pub(super) context: &'a CellContext<'a>,
    pub(super) contender: &'a Contender,
    /// The index of the contender.
    pub(super) at: usize,
    pub(super) repetition: usize,
    /// The seed of the run.
    pub(super) seed: u64,
}

/// Measures a cell. A contender with a problem is measured no more: a second try would take as
/// long.
pub(super) fn measure(
    run: &mut CellRun<'_, '_>,
    workload: &Workload,
    mut repeat: impl FnMut(&Turn<'_>) -> Result<Done, PhaseError>,
) -> Result<Measured, BenchError> {
    let (task, contenders) = (run.task, run.contenders);
    let (seed, progress) = (run.runner.seed, run.runner.progress.clone());
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x940);
    let context = &run.runner.cell_context(workload)?;
    let mut measured = Measured::new(workload.cell(context.cpus()), contenders.len());
    for repetition in 0..task.repetitions {
        for at in measured.order(&mut rng) {
            let contender = &contenders[at];
            let outcome = repeat(&Turn {
                context,
                contender,
                at,
                repetition,
                seed,
            });
            measured.add(at, contender, outcome)?;
            let accumulator = &mut measured.accumulators[at];
            accumulator.out |= !accumulator.problems.is_empty();
        }
        progress.repeated();
    }
    Ok(measured)
}
