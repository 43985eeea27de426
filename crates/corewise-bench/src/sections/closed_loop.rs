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

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::contender::{CellContext, Contender, PhaseError, RunningTable};
use crate::error::BenchError;
use crate::record::{Cell, Fields, Record, Slice, Verdicts};
use crate::runner::{CellRun, RowAccumulator};
use crate::workload::Workload;

/// Share of the available memory that tables may take together.
const MEMORY_SHARE: f64 = 0.5;
/// Estimated bytes of an entry besides its key and value.
const ENTRY_BYTES: u64 = 112;

/// How the short slices of a cell run.
pub(crate) trait Slices: Sized {
    /// What is known of one table in one repetition, besides what every table has.
    type Progress: Default;

    /// Prepares a cell.
    fn start(context: &CellContext<'_>, seed: u64) -> Result<Self, BenchError>;

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

    /// Adds the results of a repetition to its row, and to the fields of its slice.
    fn finish(_: Self::Progress, _: &mut RowAccumulator, _: &mut Fields) {}
}

/// Slices of the mix of a workload.
#[derive(Debug)]
pub(crate) struct MixSlices;

impl Slices for MixSlices {
    type Progress = ();

    fn start(_: &CellContext<'_>, _: u64) -> Result<Self, BenchError> {
        Ok(Self)
    }

    fn run(
        &self,
        context: &CellContext<'_>,
        table: &mut RunningTable,
        (): &mut (),
    ) -> Result<(), PhaseError> {
        let done = context.drive(table, |drive| drive)?;
        table.book(done);
        Ok(())
    }
}

/// The results of a cell, before its rows are written.
pub(crate) struct Measured {
    pub(crate) cell: Cell,
    /// For each contender.
    pub(crate) accumulators: Vec<RowAccumulator>,
    pub(crate) slices: Vec<Slice>,
    /// Records of the section.
    pub(crate) details: Vec<Record>,
    /// Whether there is a histogram of all operations, too.
    pub(crate) together: bool,
}

impl Measured {
    /// Nothing yet.
    pub(crate) fn new(cell: Cell, contenders: usize) -> Self {
        Self {
            cell,
            accumulators: (0..contenders).map(|_| RowAccumulator::default()).collect(),
            slices: Vec::new(),
            details: Vec::new(),
            together: false,
        }
    }

    /// Adds a repetition of a contender that is measured no more if it has a problem.
    pub(crate) fn add(&mut self, at: usize, slice: Slice) {
        let accumulator = &mut self.accumulators[at];
        accumulator.add(&slice);
        accumulator.out = !accumulator.problems.is_empty();
        self.slices.push(slice);
    }
}

/// Measures the throughput of the mix and writes the rows.
pub(crate) fn run(run: &mut CellRun<'_, '_>) -> Result<(), BenchError> {
    let measured = measure::<MixSlices>(run)?;
    write(run, measured)
}

/// Measures a cell.
pub(crate) fn measure<S: Slices>(run: &mut CellRun<'_, '_>) -> Result<Measured, BenchError> {
    let (task, contenders) = (run.task, run.contenders);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(run.runner.seed ^ 0x0f0e);
    let (seed, progress) = (run.runner.seed, run.runner.progress.clone());
    let together = fits(&task.workload, contenders.len());
    let mut context = run.runner.cell_context(&task.workload)?;
    let mut measured = Measured::new(task.workload.cell(context.cpus()), contenders.len());
    let accumulators = &mut measured.accumulators;
    let ways = S::start(&context, seed)?;
    for repetition in 0..task.repetitions {
        let mut order: Vec<usize> = (0..contenders.len())
            .filter(|&at| !accumulators[at].out)
            .collect();
        order.shuffle(&mut rng);
        let groups: Vec<Vec<usize>> = if together {
            vec![order]
        } else {
            order.into_iter().map(|at| vec![at]).collect()
        };
        for group in groups {
            let number = (repetition, seed);
            for (at, outcome) in repeat(&context, &ways, (contenders, &group), number, &mut rng) {
                match outcome {
                    Ok(done) => {
                        let (contender, accumulator) = (&contenders[at], &mut accumulators[at]);
                        let slice = book::<S>(&context, contender, accumulator, repetition, done);
                        measured.slices.push(slice);
                    }
                    Err(error) => accumulators[at].fail(&contenders[at], error)?,
                }
                progress.inc(1);
            }
        }
        context.renew();
    }
    accumulators.iter_mut().for_each(RowAccumulator::summarise);
    Ok(measured)
}

/// Writes the slices, the latencies and the rows of a cell.
pub(crate) fn write(run: &mut CellRun<'_, '_>, measured: Measured) -> Result<(), BenchError> {
    for slice in measured.slices {
        run.runner.sink.write(&Record::Slice(Box::new(slice)))?;
    }
    for detail in &measured.details {
        run.runner.sink.write(detail)?;
    }
    let (cell, together) = (&measured.cell, measured.together);
    run.histograms(&measured.accumulators, cell, together)?;
    run.rows(&measured.accumulators, &measured.cell)
}

/// A table after its last slice, its checks, and the section's results.
type Done<S> = (RunningTable, Verdicts, <S as Slices>::Progress);

/// A contender and the result of its repetition.
type Outcome<S> = (usize, Result<Done<S>, PhaseError>);

/// A contender that has been filled.
type TableInProgress<S> = (RunningTable, <S as Slices>::Progress);

/// Runs one repetition of some contenders, alternating.
fn repeat<S: Slices>(
    context: &CellContext<'_>,
    ways: &S,
    (contenders, group): (&[Contender], &[usize]),
    (repetition, seed): (usize, u64),
    rng: &mut Xoshiro256PlusPlus,
) -> Vec<Outcome<S>> {
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
            let seed = seed ^ repetition as u64;
            let verdicts = context.finish(&contenders[at], &mut table, seed)?;
            Ok((table, verdicts, progress))
        });
        (at, outcome)
    };
    lives.into_iter().map(finish).collect()
}

/// Adds a repetition to its row and returns its record.
fn book<S: Slices>(
    context: &CellContext<'_>,
    contender: &Contender,
    accumulator: &mut RowAccumulator,
    repetition: usize,
    (table, mut checks, progress): Done<S>,
) -> Slice {
    let ran_on = context.whereabouts(&mut checks);
    let mut fields = Fields::default();
    S::finish(progress, accumulator, &mut fields);
    let measurements = table.dyn_table.measurements();
    if !contender.entry.null && !measurements.0.is_empty() {
        fields.set(&measurements);
        accumulator.measurements.push(measurements);
    }
    let slice = Slice {
        rate: table.rate(),
        rates: table.rates.clone(),
        operations: table.operations,
        elapsed_ns: table.elapsed_ns,
        counts: table.counts(),
        prefill_ns: table.prefill_ns,
        checks,
        hardware: table.hardware,
        contention: table.contention,
        ran_on,
        fields,
        ..contender.slice(&context.workload.id(), repetition)
    };
    accumulator.add(&slice);
    accumulator.add_contention(slice.contention);
    accumulator.add_hardware(&slice.hardware);
    slice
}

/// Returns whether all tables of a cell fit into memory together.
fn fits(workload: &Workload, contenders: usize) -> bool {
    let each = workload.range * (workload.payload_bytes() + ENTRY_BYTES);
    (each * contenders as u64) as f64 <= available_bytes() as f64 * MEMORY_SHARE
}

/// Returns the available memory.
fn available_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok());
    kib.map_or(4 << 30, |kib: u64| kib << 10)
}
