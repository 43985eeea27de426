//! One table in one repetition, from its construction to its last check.

use std::sync::Arc;
use std::time::Duration;

use crate::clock;
use crate::counters;
use crate::distribution::{Distribution, Sampler};
use crate::dyn_table::{DynTable, Entry, Maker};
use crate::plan::Plan;
use crate::record::{Counts, Fields, HardwareCounters, Role, Slice, Verdicts};
use crate::stamp::Numbers;
use crate::stream::{Cursor, Stream};
use crate::table::{Contention, Setup};
use crate::thread_pool::{PoolError, ThreadPool};
use crate::verify;
use crate::work::loops::Dispatch;
use crate::work::{Drive, DriveReport, Evidence, OpCounts, Part, SliceTimes, Start, Sums};
use crate::workload::Workload;

/// Operations of an audit, per thread.
const AUDITED: u64 = 20_000;
/// Time limit of a phase, beyond its expected duration, for each key.
const PATIENCE_PER_KEY: Duration = Duration::from_micros(10);

/// A table that takes part in a cell.
#[derive(Clone, Debug)]
pub(crate) struct Contender {
    pub(crate) entry: Entry,
    pub(crate) role: Role,
    pub(crate) maker: Maker,
    /// Threads that it brings, among those of the workload.
    pub(crate) own_threads: usize,
}

impl Contender {
    /// Returns its name in results; the second instance of the reference is marked.
    pub(crate) fn name(&self) -> String {
        match self.role {
            Role::Again => format!("{} (again)", self.entry.card.name),
            _ => self.entry.card.name.clone(),
        }
    }

    /// Returns the record of a repetition in which nothing was measured yet.
    pub(crate) fn slice(&self, cell: &str, repetition: usize) -> Slice {
        Slice {
            cell: cell.to_owned(),
            table: self.name(),
            role: self.role,
            repetition,
            rate: f64::NAN,
            rates: Vec::new(),
            operations: 0,
            elapsed_ns: 0,
            counts: Counts::default(),
            prefill_ns: 0,
            checks: Verdicts::default(),
            hardware: HardwareCounters::default(),
            contention: None,
            ran_on: Vec::new(),
            fields: Fields::default(),
        }
    }
}

/// What all contenders of a cell share.
#[derive(Debug)]
pub(crate) struct CellContext<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) plan: Plan,
    pub(crate) sampler: Sampler,
    pub(crate) pool: &'a ThreadPool,
    /// A stream for each thread.
    pub(crate) streams: Vec<Arc<Stream>>,
    /// Time limit of a phase, beyond its expected duration.
    pub(crate) patience: Duration,
}

/// Why a phase has no result; the caller adds the table's name.
#[derive(Debug)]
pub(crate) enum PhaseError {
    /// A thread panicked or timed out: the row is void.
    Failed(String),
    /// A thread did not return: the run ends.
    Stuck(&'static str),
}

/// The operations of all threads in a short slice.
#[derive(Debug, Default)]
pub(crate) struct SliceTotals {
    operations: u64,
    /// Operations per second.
    rate: f64,
    /// The time of the last thread.
    longest_ticks: u64,
}

impl SliceTotals {
    /// Adds the operations of a thread and their time.
    pub(crate) fn add(&mut self, operations: u64, ticks: u64) {
        self.operations += operations;
        self.rate += operations as f64 / clock::ns(ticks) * 1e9;
        self.longest_ticks = self.longest_ticks.max(ticks);
    }
}

/// A table that has been filled.
pub(crate) struct RunningTable {
    pub(crate) dyn_table: Arc<dyn DynTable>,
    pub(crate) prefill_ns: u64,
    workers: Vec<(Cursor, Numbers)>,
    /// Wrong outcomes among those known beforehand.
    pub(crate) problems: Vec<String>,
    before: Sums,
    stream: OpCounts,
    pub(crate) rates: Vec<f64>,
    /// Lookups that missed a key that is never removed.
    kept_misses: u64,
    pub(crate) operations: u64,
    pub(crate) elapsed_ns: u64,
    pub(crate) hardware: HardwareCounters,
    /// Lock statistics before the slices, and of the slices.
    contention_before: Option<Contention>,
    pub(crate) contention: Option<Contention>,
}

impl CellContext<'_> {
    /// Runs a phase of a table on all threads.
    pub(crate) fn all<R: Send + 'static>(
        &self,
        phase: &'static str,
        dyn_table: &Arc<dyn DynTable>,
        extra: Duration,
        task: impl Fn(&dyn DynTable, &Plan, Part) -> R + Send + Sync + 'static,
    ) -> Result<Vec<R>, PhaseError> {
        let active = self.active(&**dyn_table);
        let (dyn_table, plan) = (dyn_table.clone(), self.plan);
        self.pool
            .run(active, self.patience() + extra, move |part| {
                task(&*dyn_table, &plan, part)
            })
            .map_err(|error| match error {
                PoolError::Panicked(message) => {
                    PhaseError::Failed(format!("panic in {phase}: {message}"))
                }
                PoolError::Slow => {
                    PhaseError::Failed(format!("{phase} took too long and was given up"))
                }
                PoolError::Stuck => PhaseError::Stuck(phase),
            })
    }

    /// Returns the threads of the harness that use a subject: all but those that it brings.
    fn active(&self, dyn_table: &dyn DynTable) -> usize {
        self.workload.threads - dyn_table.own_threads()
    }

    /// Returns the time limit of a phase.
    fn patience(&self) -> Duration {
        self.patience + PATIENCE_PER_KEY * self.plan.range
    }

    /// Constructs a table.
    pub(crate) fn make(&self, contender: &Contender) -> Arc<dyn DynTable> {
        let setup = self.workload.setup();
        let workers = setup.threads - contender.own_threads;
        let places = &self.pool.places()[workers..setup.threads];
        let own_cpus = places.iter().flatten().map(|cpu| cpu.0).collect();
        (contender.maker)(&Setup { own_cpus, ..setup })
    }

    fn is_uniform(&self) -> bool {
        self.workload.distribution == Distribution::Uniform
    }

    /// Constructs a table and fills it.
    pub(crate) fn prepare(
        &self,
        contender: &Contender,
        repetition: usize,
        seed: u64,
    ) -> Result<RunningTable, PhaseError> {
        let dyn_table = self.make(contender);
        let begin = clock::now();
        let one = self.workload.prefill_by_one;
        let fill = move |dyn_table: &dyn DynTable, plan: &Plan, part: Part| match (one, part.thread)
        {
            (true, 0) => dyn_table.fill(
                plan,
                Part {
                    thread: 0,
                    threads: 1,
                },
            ),
            (true, _) => OpCounts::default(),
            (false, _) => dyn_table.fill(plan, part),
        };
        let filled = verify::sum(&self.all("prefill", &dyn_table, Duration::ZERO, fill)?);
        let prefill_ns = clock::ns(clock::now().wrapping_sub(begin)) as u64;
        let entries = (self.workload.churn * self.workload.initial as f64) as u64;
        let churn = move |dyn_table: &dyn DynTable, plan: &Plan, part: Part| {
            dyn_table.churn(plan, part, entries)
        };
        let churned = match entries {
            0 => OpCounts::default(),
            _ => verify::sum(&self.all("churn", &dyn_table, Duration::ZERO, churn)?),
        };
        let mut before = filled.sums;
        before.add(&churned.sums);
        let place = seed ^ (repetition as u64) << 32;
        let cursors = self.streams.iter().map(|stream| stream.cursor(place));
        let numbers = (0..).map(|thread| Numbers::of_thread(1_000 + thread));
        Ok(RunningTable {
            prefill_ns,
            workers: cursors.zip(numbers).collect(),
            problems: Vec::new(),
            before,
            stream: OpCounts::default(),
            rates: Vec::new(),
            kept_misses: 0,
            operations: 0,
            elapsed_ns: 0,
            hardware: HardwareCounters::default(),
            contention_before: dyn_table.contention(),
            contention: None,
            dyn_table,
        })
    }

    /// Runs one short slice of a section's loop on all threads, with the measured times of the
    /// workload. `job` makes the job of a thread. Returns each report with its job.
    pub(crate) fn slice<L: Dispatch>(
        &self,
        table: &RunningTable,
        job: impl Fn(&SliceTimes, Part) -> L + Send + Sync + 'static,
    ) -> Result<Vec<(L::Report, L)>, PhaseError> {
        let run_ms = self.workload.duration_ms / self.workload.slices as f64;
        let ticks = |ms: f64| clock::ticks((ms * 1e6) as u64);
        let times = SliceTimes {
            start: Start::of(self.active(&*table.dyn_table)),
            warm_ticks: ticks(self.workload.warm_ms),
            run_ticks: ticks(run_ms),
        };
        let time = Duration::from_millis((run_ms + self.workload.warm_ms) as u64);
        self.all(
            "a slice",
            &table.dyn_table,
            time,
            move |dyn_table, plan, part| {
                let mut job = job(&times, part);
                (dyn_table.run(plan, part, &mut job), job)
            },
        )
    }

    /// Runs one short slice of all threads' streams. `job` makes a loop of the job that runs the
    /// stream.
    pub(crate) fn drive<L: Dispatch>(
        &self,
        table: &RunningTable,
        job: impl Fn(Drive) -> L + Send + Sync + 'static,
    ) -> Result<Vec<(L::Report, L)>, PhaseError> {
        let (streams, workers) = (self.streams.clone(), table.workers.clone());
        self.slice(table, move |times, part| {
            let (cursor, numbers) = workers[part.thread].clone();
            job(Drive {
                stream: streams[part.thread].clone(),
                cursor,
                numbers,
                times: times.clone(),
            })
        })
    }

    /// Redraws a part of the streams, between two repetitions.
    pub(crate) fn renew(&mut self) {
        for stream in &mut self.streams {
            if let Some(stream) = Arc::get_mut(stream) {
                stream.renew();
            }
        }
    }

    /// Returns the CPUs that threads are pinned to.
    pub(crate) fn cpus(&self) -> Vec<usize> {
        let places = self.pool.places().iter().flatten();
        places.map(|cpu| cpu.0).collect()
    }

    /// Ends the slices and runs all checks.
    pub(crate) fn finish(
        &self,
        contender: &Contender,
        live: &mut RunningTable,
        seed: u64,
    ) -> Result<Verdicts, PhaseError> {
        let contention = live.dyn_table.contention();
        let pair = contention.zip(live.contention_before);
        live.contention = pair.map(|(now, then)| now.combine(then, |now, then| now - then));
        if contender.entry.null {
            return Ok(Verdicts::default());
        }
        let found = self.probe(&live.dyn_table)?;
        let mut booked = live.before;
        booked.add(&live.stream.sums);
        let evidence = Evidence {
            booked,
            found,
            stream: live.stream.counts,
            reported: live.dyn_table.size(),
            is_uniform: self.is_uniform(),
        };
        let mut verdicts = match live.dyn_table.problems(&self.plan, &evidence) {
            Some(problems) => Verdicts {
                problems,
                ..Verdicts::default()
            },
            None => verify::check(self.workload, &self.plan, &self.sampler, &evidence),
        };
        verdicts.problems.extend(live.problems.iter().cloned());
        if live.kept_misses > 0 {
            verdicts.problems.push(format!(
                "{} of {} lookups missed keys that were there all the time",
                live.kept_misses,
                live.stream.counts.gets()
            ));
        }
        self.audit(&live.dyn_table, seed, &mut verdicts)?;
        Ok(verdicts)
    }

    /// Looks up every key.
    fn probe(&self, dyn_table: &Arc<dyn DynTable>) -> Result<Sums, PhaseError> {
        let mut found = Sums::default();
        for sums in self.all(
            "the final lookups",
            dyn_table,
            Duration::ZERO,
            |dyn_table, plan, part| dyn_table.probe(plan, part),
        )? {
            found.add(&sums);
        }
        Ok(found)
    }

    /// Checks that the entries found are those inserted minus those removed.
    pub(crate) fn conservation(
        &self,
        dyn_table: &Arc<dyn DynTable>,
        booked: &OpCounts,
    ) -> Result<Verdicts, PhaseError> {
        let evidence = Evidence {
            booked: booked.sums,
            found: self.probe(dyn_table)?,
            stream: booked.counts,
            reported: dyn_table.size(),
            is_uniform: self.is_uniform(),
        };
        Ok(verify::conservation(&self.plan, &evidence))
    }

    /// Runs operations whose outcomes are known.
    pub(crate) fn audit(
        &self,
        dyn_table: &Arc<dyn DynTable>,
        seed: u64,
        verdicts: &mut Verdicts,
    ) -> Result<(), PhaseError> {
        let operations = AUDITED.min(u64::from(self.plan.range) * 8);
        let audits = self.all(
            "the audit",
            dyn_table,
            Duration::ZERO,
            move |dyn_table, plan, part| dyn_table.audit(plan, part, operations, seed),
        )?;
        for report in audits {
            verdicts.audited += report.audited;
            verdicts.problems.extend(report.problem);
        }
        Ok(())
    }

    /// Checks that each thread runs on its CPU; returns the CPUs that the threads report.
    pub(crate) fn whereabouts(&self, verdicts: &mut Verdicts) -> Vec<usize> {
        let mut ran_on = self.pool.whereabouts();
        ran_on.truncate(self.workload.threads);
        for (thread, (at, place)) in ran_on.iter().zip(self.pool.places()).enumerate() {
            if let Some(place) = place
                && place.0 != *at
            {
                verdicts
                    .problems
                    .push(format!("thread {thread} ran on CPU {at}, not on {place}"));
            }
        }
        ran_on
    }
}

impl RunningTable {
    /// Adds a slice of streams, outside the rates of the table, and returns its rate.
    pub(crate) fn book_beside(&mut self, reports: Vec<(DriveReport, Drive)>) -> f64 {
        let mut rate = 0.0;
        for (worker, (report, drive)) in self.workers.iter_mut().zip(reports) {
            *worker = (drive.cursor, drive.numbers);
            rate += report.operations as f64 / clock::ns(report.ticks) * 1e9;
            self.kept_misses += report.kept_misses;
            self.stream.add(&report.tally);
        }
        rate
    }

    /// Adds a slice of streams.
    pub(crate) fn book(&mut self, reports: Vec<(DriveReport, Drive)>) {
        let hardware = counters::sum(reports.iter().map(|(report, _)| report.hardware));
        self.hardware = if self.rates.is_empty() {
            hardware
        } else {
            counters::sum([self.hardware, hardware])
        };
        let longest = reports.iter().map(|(report, _)| report.ticks).max();
        self.operations += reports
            .iter()
            .map(|(report, _)| report.operations)
            .sum::<u64>();
        let rate = self.book_beside(reports);
        self.elapsed_ns += clock::ns(longest.unwrap_or(0)) as u64;
        self.rates.push(rate);
    }

    /// Adds the rate of a slice that ran no streams.
    pub(crate) fn book_totals(&mut self, slice: &SliceTotals) {
        self.operations += slice.operations;
        self.elapsed_ns += clock::ns(slice.longest_ticks) as u64;
        self.rates.push(slice.rate);
    }

    /// Returns the median over the short slices, of which some lose time to the hypervisor.
    pub(crate) fn rate(&self) -> f64 {
        let mut rates = self.rates.clone();
        rates.sort_by(f64::total_cmp);
        let middle = rates.len() / 2;
        match rates.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => rates[middle],
            _ => (rates[middle - 1] + rates[middle]) / 2.0,
        }
    }

    /// Returns a copy of the threads' stream positions.
    pub(crate) fn workers(&self) -> Vec<(Cursor, Numbers)> {
        self.workers.clone()
    }

    /// Stores a thread's stream position.
    pub(crate) fn sit(&mut self, thread: usize, cursor: Cursor, numbers: Numbers) {
        self.workers[thread] = (cursor, numbers);
    }

    /// Adds the operations of a stream that did not run in short slices.
    pub(crate) fn book_tally(&mut self, tally: &OpCounts) {
        self.stream.add(tally);
    }

    /// Returns the outcomes of the stream.
    pub(crate) fn counts(&self) -> Counts {
        self.stream.counts
    }
}
