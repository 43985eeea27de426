//! A run, the cell that it measures, and what becomes of its slices: sums, rows, records.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use corewise_measure::stats::{Ratio, SpeedVerdict, Spread};
use corewise_topology::{Topology, plan as place_threads};
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::contender::{CellContext, Contender, PhaseError};
use crate::distribution::Sampler;
use crate::error::BenchError;
use crate::judge::LEAST_REPETITIONS;
use crate::latencies::Latencies;
use crate::payload::RowFields;
use crate::progress::Progress;
use crate::record::{Cell, End, Interval, Manifest, Record, Role, Row, Slice};
use crate::registry::Registry;
use crate::sink::Sink;
use crate::stream::Stream;
use crate::subject::Measurements;
use crate::table::Contention;
use crate::task::Task;
use crate::verify;
use crate::workload::Workload;
use corewise_measure::thread_pool::ThreadPool;

/// Time limit of a phase, beyond its expected duration.
const PATIENCE: Duration = Duration::from_secs(20);

/// A run.
pub struct Runner<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) sink: Sink,
    pub(crate) seed: u64,
    pub(crate) manifest: Manifest,
    topology: Topology,
    pool: Option<ThreadPool>,
    patience: Duration,
    pub(crate) progress: Progress,
    /// The program to start for cells that need a separate process.
    pub(crate) program: Option<PathBuf>,
    pub(crate) end: End,
    /// Called with each row.
    pub(crate) show: Box<dyn FnMut(&Row) + 'a>,
}

/// Accumulated results of a contender over its repetitions.
#[derive(Debug, Default)]
pub(crate) struct RowAccumulator {
    /// Rates by repetition; NaN if there is none.
    pub(crate) rates: Vec<f64>,
    pub(crate) problems: Vec<String>,
    pub(crate) contention: Option<Contention>,
    pub(crate) operations: u64,
    pub(crate) hardware: BTreeMap<&'static str, u64>,
    pub(crate) latencies: Option<Latencies>,
    /// What the subject measured, by repetition.
    pub(crate) measurements: Vec<Measurements>,
    /// What the section adds to the row.
    pub(crate) fields: RowFields,
    /// Excluded from the cell: it panicked or took too long.
    pub(crate) out: bool,
}

impl<'a> Runner<'a> {
    /// A run that writes to `sink` and calls `show` with each row.
    pub fn new(
        registry: &'a Registry,
        sink: Sink,
        seed: u64,
        manifest: Manifest,
        program: Option<PathBuf>,
        show: Box<dyn FnMut(&Row) + 'a>,
    ) -> Self {
        Self {
            registry,
            sink,
            seed,
            manifest,
            topology: Topology::detect(),
            pool: None,
            patience: PATIENCE,
            progress: Progress::default(),
            program,
            end: End::default(),
            show,
        }
    }

    /// Sets the time limit of a phase, beyond its expected duration: 20 s unless it is set. A table
    /// that takes longer is given up, and its row is void.
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Returns the context of a cell, with its threads placed.
    pub(crate) fn cell_context<'s>(
        &'s mut self,
        workload: &'s Workload,
    ) -> Result<CellContext<'s>, BenchError> {
        let places = place_threads(&self.topology, &workload.pin, workload.threads);
        let reused = self.pool.take().filter(|pool| pool.places() == places);
        let pool = match reused {
            Some(pool) => pool,
            None => ThreadPool::start("bench", places)?, // the old threads have ended
        };
        let pool = self.pool.insert(pool);
        let sampler = Sampler::new(workload.distribution, workload.range);
        let streams = draw_streams(pool, workload, &sampler, self.seed)?;
        for stream in &streams {
            verify::drawn(&sampler.groups(), stream.first_keys()).map_err(BenchError::Failed)?;
        }
        Ok(CellContext {
            workload,
            plan: workload.plan(),
            sampler,
            pool,
            streams,
            patience: self.patience,
        })
    }
}

/// The results of a repetition of a contender.
pub(crate) struct Done {
    pub(crate) slice: Slice,
    pub(crate) latencies: Option<Latencies>,
    pub(crate) detail: Option<Record>,
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

/// A cell that is measured.
pub(crate) struct CellRun<'r, 'a> {
    pub(crate) runner: &'r mut Runner<'a>,
    pub(crate) task: &'r Task,
    pub(crate) contenders: &'r [Contender],
}

impl CellRun<'_, '_> {
    /// Returns the requested tables that are not among these contenders.
    pub(crate) fn left_out(&self) -> Vec<String> {
        let registry = self.runner.registry;
        let mut names = registry.chosen(&self.task.tables);
        let is_in = |name: &str| self.contenders.iter().any(|of| of.entry.card.name == name);
        names.retain(|name| !is_in(name) && !registry.is_null(name));
        names
    }

    /// Writes the records and the rows of a cell.
    pub(crate) fn write(&mut self, mut measured: Measured) -> Result<(), BenchError> {
        if !self.task.tables.is_empty() {
            measured.cell.left_out = self.left_out();
        }
        let accumulators = &mut measured.accumulators;
        accumulators.iter_mut().for_each(RowAccumulator::summarise);
        let (cell, together) = (&measured.cell, measured.together);
        let contenders = || self.contenders.iter().zip(&measured.accumulators);
        let histograms = contenders().flat_map(|(contender, accumulator)| {
            let latencies = accumulator.latencies.iter();
            latencies.flat_map(|all| all.records(&cell.id, &contender.name(), together))
        });
        let slices = measured
            .slices
            .into_iter()
            .map(|of| Record::Slice(Box::new(of)));
        let histograms = histograms.map(|of| Record::Histogram(Box::new(of)));
        for record in slices.chain(measured.details).chain(histograms) {
            self.runner.sink.write(&record)?;
        }
        let is_reference = |contender: &Contender| contender.role == Role::Reference;
        let mut references = contenders().filter(|(contender, _)| is_reference(contender));
        let reference = references.next().map(|(_, accumulator)| accumulator);
        for (contender, accumulator) in contenders() {
            let against = reference.filter(|_| !is_reference(contender));
            let row = self.row(contender, accumulator, against, cell);
            let runner = &mut *self.runner;
            runner.end.rows += 1;
            runner.end.void += usize::from(row.verdict == "void");
            runner.sink.write(&Record::Row(Box::new(row.clone())))?;
            let show = &mut runner.show;
            runner.progress.suspend(|| show(&row));
        }
        Ok(())
    }

    fn row(
        &self,
        contender: &Contender,
        accumulator: &RowAccumulator,
        against: Option<&RowAccumulator>,
        cell: &Cell,
    ) -> Row {
        let rates = |of: &RowAccumulator| of.rates.clone().into_iter();
        let ratio = against.and_then(|of| Ratio::paired(rates(accumulator).zip(rates(of))));
        let void = accumulator.out || !accumulator.problems.is_empty();
        let spread = Spread::of(rates(accumulator));
        let mut problems = accumulator.problems.clone();
        problems.truncate(5);
        let operations = accumulator.operations.max(1) as f64;
        let per = |(name, sum): (&&str, &u64)| ((*name).to_owned(), *sum as f64 / operations);
        Row {
            cell: cell.clone(),
            table: contender.name(),
            role: contender.role,
            repetitions: self.task.repetitions,
            rate: spread.map(Interval::from),
            ratio: ratio.map(Interval::from),
            verdict: match ratio {
                _ if void => "void".into(),
                Some(_) if self.task.repetitions < LEAST_REPETITIONS => {
                    SpeedVerdict::Undecided.word().into()
                }
                Some(ratio) if contender.role != Role::Null => ratio.verdict.word().into(),
                _ => String::new(),
            },
            version: contender.entry.card.version.clone(),
            allocator: self.runner.manifest.allocator.clone(),
            pages: self.runner.manifest.pages.clone(),
            problems,
            contention: accumulator.contention,
            per_operation: accumulator.hardware.iter().map(per).collect(),
            fields: if void {
                RowFields::default()
            } else {
                accumulator.fields.clone()
            },
        }
    }
}

impl RowAccumulator {
    /// Records a phase without a result; returns an error if the run cannot go on.
    fn fail(&mut self, contender: &Contender, error: PhaseError) -> Result<(), BenchError> {
        match error {
            PhaseError::Failed(message) => {
                self.problems.push(message);
                self.out = true;
                Ok(())
            }
            PhaseError::Stuck(phase) => Err(BenchError::Stuck {
                table: contender.entry.card.name.clone(),
                phase,
            }),
        }
    }

    /// Adds a repetition.
    fn add(&mut self, slice: &Slice) {
        self.rates.resize(slice.repetition, f64::NAN);
        self.rates.push(slice.rate);
        let problems = slice.checks.problems.iter();
        self.problems.extend(problems.cloned());
        self.operations += slice.operations;
        if !slice.fields.measurements.is_empty() {
            self.measurements.push(slice.fields.measurements.clone());
        }
        if let Some(more) = slice.contention {
            let sum = self.contention.unwrap_or_default();
            self.contention = Some(sum.combine(more, |sum, more| sum + more));
        }
        for (name, value) in slice.hardware.named() {
            if let Some(value) = value {
                *self.hardware.entry(name).or_default() += value;
            }
        }
    }

    /// Sets the field of the row with the medians of all measurements.
    fn summarise(&mut self) {
        let names = self.measurements.iter().flat_map(|all| all.keys());
        let median = |name: &String| {
            let values = self.measurements.iter().filter_map(|all| all.get(name));
            let spread = Spread::of(values.copied())?;
            Some((name.clone(), Interval::from(spread)))
        };
        self.fields.measured = names.filter_map(median).collect();
    }
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

    /// Returns the contenders of the next repetition, in random order.
    pub(crate) fn order(&self, rng: &mut Xoshiro256PlusPlus) -> Vec<usize> {
        let all = 0..self.accumulators.len();
        let mut order: Vec<usize> = all.filter(|&at| !self.accumulators[at].out).collect();
        order.shuffle(rng);
        order
    }

    /// Adds a repetition of a contender, or its failure; returns an error if the run cannot go on.
    pub(crate) fn add(
        &mut self,
        at: usize,
        contender: &Contender,
        outcome: Result<Done, PhaseError>,
    ) -> Result<(), BenchError> {
        match outcome {
            Ok(done) => {
                if let Some(latencies) = &done.latencies {
                    let all = &mut self.accumulators[at].latencies;
                    all.get_or_insert_default().add(latencies);
                }
                self.details.extend(done.detail);
                self.add_slice(at, done.slice);
                Ok(())
            }
            Err(error) => self.accumulators[at].fail(contender, error),
        }
    }

    /// Adds the record of a repetition.
    pub(crate) fn add_slice(&mut self, at: usize, slice: Slice) {
        self.accumulators[at].add(&slice);
        self.slices.push(slice);
    }
}

/// Draws streams on the threads that use them, on their own CPUs.
fn draw_streams(
    pool: &ThreadPool,
    workload: &Workload,
    sampler: &Sampler,
    seed: u64,
) -> Result<Vec<Arc<Stream>>, BenchError> {
    let (sampler, range) = (sampler.clone(), workload.range as u32);
    let shares = (
        workload.insert_percent / 100.0,
        workload.remove_percent / 100.0,
    );
    let limit = Duration::from_secs(600);
    pool.run("drawing", workload.threads, limit, move |part| {
        Arc::new(Stream::new(
            seed,
            (part.thread, part.threads),
            sampler.clone(),
            range,
            shares,
        ))
    })
    .map_err(|error| BenchError::Failed(format!("cannot draw the streams: {error:?}")))
}
