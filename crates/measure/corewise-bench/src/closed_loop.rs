//! Cells in closed loop: every thread works as fast as the table answers, and the tables alternate
//! in short slices.
//!
//! ```text
//! repetition   make and fill all tables, order drawn anew
//!              [ b ][ d ][ a ][ c ]   short slices, order drawn anew in each round
//!              [ c ][ a ][ b ][ d ]
//!              ...
//!              look up every key, audit, drop
//! ```
//!
//! Every repetition constructs its tables anew, so that the luck of one memory layout is part of
//! the noise and not of the result. If all tables together would exceed the memory limit, they
//! alternate by repetition instead of by slice.
//!
//! A section with another loop than the mix implements [`Slices`], and runs [`measure`].

use std::path::Path;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::cell_run::{CellRun, Done, Measured};
use crate::contender::{CellContext, Contender, PhaseError, RunningTable};
use crate::error::BenchError;
use crate::manifest::meminfo_kib;
use crate::workload::Workload;

/// Share of the available memory that tables may take together.
const MEMORY_SHARE: f64 = 0.5;
/// Estimated bytes of an entry besides its key and value.
const ENTRY_BYTES: u64 = 112;

/// How the short slices of a cell run.
pub(crate) trait Slices: Sized {
    /// What is known of one table in one repetition, besides what every table has.
    type Progress: Default;

    /// Prepares a repetition; `seed` differs for each.
    fn begin(&self, _seed: u64) -> Self::Progress {
        Self::Progress::default()
    }

    /// Runs one short slice of a table.
    fn run(
        &self,
        context: &CellContext<'_>,
        table: &mut RunningTable,
        progress: &mut Self::Progress,
    ) -> Result<(), PhaseError>;

    /// Completes the results of a repetition.
    fn finish(_: Self::Progress, _: &mut Done) {}
}

/// Slices that are all alike: a function runs one of them.
impl<F: Fn(&CellContext<'_>, &mut RunningTable) -> Result<(), PhaseError>> Slices for F {
    type Progress = ();

    fn run(
        &self,
        context: &CellContext<'_>,
        table: &mut RunningTable,
        (): &mut (),
    ) -> Result<(), PhaseError> {
        self(context, table)
    }
}

/// Runs a short slice of the mix of a workload.
pub(crate) fn mix(context: &CellContext<'_>, table: &mut RunningTable) -> Result<(), PhaseError> {
    let (reports, drives) = context.drive(table, |drive| drive)?;
    table.add_slice(&reports);
    table.store_positions(drives.into_iter());
    Ok(())
}

/// Measures a cell, in the slices that `start` prepares with the seed of the run.
pub(crate) fn measure<S: Slices>(
    run: &mut CellRun<'_, '_>,
    start: impl FnOnce(&CellContext<'_>, u64) -> Result<S, BenchError>,
) -> Result<Measured, BenchError> {
    let (task, contenders) = (run.task, run.contenders);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(run.runner.seed ^ 0x0f0e);
    let (seed, progress) = (run.runner.seed, run.runner.progress.clone());
    let together = fits(&task.workload, contenders.len());
    let mut context = run.runner.cell_context(&task.workload)?;
    let mut measured = Measured::new(task.workload.cell(context.cpus()), contenders.len());
    let ways = start(&context, seed)?;
    for repetition in 0..task.repetitions {
        let order = measured.order(&mut rng);
        for group in order.chunks(if together { order.len().max(1) } else { 1 }) {
            let number = (repetition, seed);
            for (at, outcome) in repeat(&context, &ways, (contenders, group), number, &mut rng) {
                measured.add(at, &contenders[at], outcome)?;
            }
        }
        progress.repeated();
        context.renew();
    }
    Ok(measured)
}

/// A contender that has been filled.
type TableInProgress<S> = (RunningTable, <S as Slices>::Progress);

/// Runs one repetition of some contenders, alternating.
fn repeat<S: Slices>(
    context: &CellContext<'_>,
    ways: &S,
    (contenders, group): (&[Contender], &[usize]),
    (repetition, seed): (usize, u64),
    rng: &mut Xoshiro256PlusPlus,
) -> Vec<(usize, Result<Done, PhaseError>)> {
    let prepare = |at: usize| {
        let table = context.prepare(&contenders[at], repetition, seed);
        let progress = ways.begin(seed ^ (repetition as u64) << 32);
        (at, table.map(|table| (table, progress)))
    };
    let mut lives: Vec<(usize, Result<TableInProgress<S>, PhaseError>)> =
        group.iter().map(|&at| prepare(at)).collect();
    for _ in 0..context.workload.slices {
        lives.shuffle(rng);
        for (_, live) in &mut lives {
            if let Ok((table, progress)) = live
                && let Err(error) = ways.run(context, table, progress)
            {
                *live = Err(error);
            }
        }
    }
    let finish = |(at, live): (usize, Result<TableInProgress<S>, PhaseError>)| {
        let outcome = live.and_then(|(mut table, progress)| {
            let contender = &contenders[at];
            let checks = context.finish(contender, &mut table, seed ^ repetition as u64)?;
            let mut done = Done {
                slice: context.record(contender, repetition, &table, checks),
                latencies: None,
                detail: None,
            };
            S::finish(progress, &mut done);
            Ok(done)
        });
        (at, outcome)
    };
    lives.into_iter().map(finish).collect()
}

/// Returns whether all tables of a cell fit into memory together.
fn fits(workload: &Workload, contenders: usize) -> bool {
    let each = workload.range * (workload.payload_bytes() + ENTRY_BYTES);
    let available = meminfo_kib(Path::new("/"), "MemAvailable").map_or(4 << 30, |kib| kib << 10);
    (each * contenders as u64) as f64 <= available as f64 * MEMORY_SHARE
}
