//! One table in one repetition, from its construction to its last check.

use std::sync::Arc;
use std::time::Duration;

use corewise_measure::stats::Spread;

use crate::clock;
use crate::counters;
use crate::distribution::{Distribution, Sampler};
use crate::dyn_table::DynTable;
use crate::entry::{Entry, Maker};
use crate::payload::SliceFields;
use crate::plan::Plan;
use crate::record::{Role, Slice, Verdicts};
use crate::stamp::Numbers;
use crate::stream::{Stream, StreamCursor};
use crate::table::{Contention, Setup};
use crate::verify;
use crate::work::loops::Dispatch;
use crate::work::{Drive, DriveReport, Evidence, OpCounts, Part, SliceTimes, Start, Sums, drive};
use crate::workload::Workload;
pub(crate) use corewise_measure::thread_pool::PhaseError;
use corewise_measure::thread_pool::ThreadPool;

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
            ..Slice::default()
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

/// A table that has been filled.
pub(crate) struct RunningTable {
    pub(crate) dyn_table: Arc<dyn DynTable>,
    prefill_ns: u64,
    workers: Vec<(StreamCursor, Numbers)>,
    /// Wrong outcomes among those known beforehand.
    problems: Vec<String>,
    before: Sums,
    /// The operations since the prefill, which are checked at the end.
    pub(crate) stream: OpCounts,
    /// The sums of each short slice, and their rates.
    slices: Vec<DriveReport>,
    rates: Vec<f64>,
    /// Lookups that missed a key that is never removed.
    kept_misses: u64,
    /// Lock statistics before the slices, and of the slices.
    contention_before: Option<Contention>,
    contention: Option<Contention>,
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
        let limit = self.patience + PATIENCE_PER_KEY * plan.range + extra;
        let task = move |part| task(&*dyn_table, &plan, part);
        self.pool.run(phase, active, limit, task)
    }

    /// Returns the threads of the harness that use a subject: all but those that it brings.
    fn active(&self, dyn_table: &dyn DynTable) -> usize {
        self.workload.threads - dyn_table.own_threads()
    }

    /// Constructs a table.
    pub(crate) fn make(&self, contender: &Contender) -> Arc<dyn DynTable> {
        let setup = self.workload.setup();
        let workers = setup.threads - contender.own_threads;
        let places = &self.pool.places()[workers..setup.threads];
        let own_cpus = places.iter().flatten().map(|cpu| cpu.0).collect();
        (contender.maker)(&Setup { own_cpus, ..setup })
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
            (true, 0) => dyn_table.fill(plan, Part::ALONE),
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
            slices: Vec::new(),
            rates: Vec::new(),
            kept_misses: 0,
            contention_before: dyn_table.contention(),
            contention: None,
            dyn_table,
        })
    }

    /// Runs a loop of a table on all threads. `job` makes the job of a thread. Returns the reports
    /// and the jobs.
    pub(crate) fn run<L: Dispatch>(
        &self,
        phase: &'static str,
        dyn_table: &Arc<dyn DynTable>,
        extra: Duration,
        job: impl Fn(Part) -> L + Send + Sync + 'static,
    ) -> Result<(Vec<DriveReport>, Vec<L>), PhaseError> {
        let done = self.all(phase, dyn_table, extra, move |dyn_table, plan, part| {
            let mut job = job(part);
            (dyn_table.run(plan, part, &mut job), job)
        })?;
        Ok(done.into_iter().unzip())
    }

    /// Returns the times of a short slice in which `threads` threads start together.
    pub(crate) fn times(&self, threads: usize) -> SliceTimes {
        let ticks = |ms: f64| clock::ticks((ms * 1e6) as u64);
        SliceTimes {
            start: Start::of(threads),
            warm_ticks: ticks(self.workload.warm_ms),
            run_ticks: ticks(self.workload.duration_ms / self.workload.slices as f64),
        }
    }

    /// Returns a bound for the duration of a short slice, twice its times.
    pub(crate) fn slice_limit(&self) -> Duration {
        let run_ms = self.workload.duration_ms / self.workload.slices as f64;
        Duration::from_millis((2.0 * (run_ms + self.workload.warm_ms)) as u64)
    }

    /// Runs one short slice of a section's loop on all threads, with the measured times of the
    /// workload. `job` makes the job of a thread.
    pub(crate) fn slice<L: Dispatch>(
        &self,
        table: &RunningTable,
        job: impl Fn(&SliceTimes, Part) -> L + Send + Sync + 'static,
    ) -> Result<(Vec<DriveReport>, Vec<L>), PhaseError> {
        let times = self.times(self.active(&*table.dyn_table));
        let job = move |part| job(&times, part);
        self.run("a slice", &table.dyn_table, self.slice_limit(), job)
    }

    /// Returns the jobs that continue the streams of a table, by thread.
    pub(crate) fn drives(
        &self,
        table: &RunningTable,
    ) -> impl Fn(&SliceTimes, Part) -> Drive + Send + Sync + use<> {
        let (streams, workers) = (self.streams.clone(), table.workers.clone());
        move |times, part| {
            let (cursor, numbers) = workers[part.thread].clone();
            Drive {
                stream: streams[part.thread].clone(),
                cursor,
                numbers,
                times: times.clone(),
            }
        }
    }

    /// Runs one short slice of all threads' streams. `job` makes a loop of the job that runs the
    /// stream.
    pub(crate) fn drive<L: Dispatch>(
        &self,
        table: &RunningTable,
        job: impl Fn(Drive) -> L + Send + Sync + 'static,
    ) -> Result<(Vec<DriveReport>, Vec<L>), PhaseError> {
        let drives = self.drives(table);
        self.slice(table, move |times, part| job(drives(times, part)))
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
        table: &mut RunningTable,
        seed: u64,
    ) -> Result<Verdicts, PhaseError> {
        let contention = table.dyn_table.contention();
        let pair = contention.zip(table.contention_before);
        table.contention = pair.map(|(now, then)| now.combine(then, |now, then| now - then));
        if contender.entry.null {
            return Ok(Verdicts::default());
        }
        let mut booked = table.stream;
        booked.sums.add(&table.before);
        let evidence = self.evidence(&table.dyn_table, &booked)?;
        let mut verdicts = match table.dyn_table.problems(&self.plan, &evidence) {
            Some(problems) => Verdicts {
                problems,
                ..Verdicts::default()
            },
            None => verify::check(self.workload, &self.plan, &self.sampler, &evidence),
        };
        verdicts.problems.extend(table.problems.iter().cloned());
        if table.kept_misses > 0 {
            verdicts.problems.push(format!(
                "{} of {} lookups missed keys that were there all the time",
                table.kept_misses,
                table.stream.counts.gets()
            ));
        }
        self.audit(&table.dyn_table, seed, &mut verdicts)?;
        Ok(verdicts)
    }

    /// Returns the record of a repetition, after the checks.
    pub(crate) fn record(
        &self,
        contender: &Contender,
        repetition: usize,
        table: &RunningTable,
        mut verdicts: Verdicts,
    ) -> Slice {
        let ran_on = self.whereabouts(&mut verdicts);
        let mut fields = SliceFields::default();
        if !contender.entry.null {
            fields.measurements = table.dyn_table.measurements();
            if self.workload.section_name() == "filter" {
                let rate = f64::from(self.plan.initial) * 1e9 / table.prefill_ns as f64;
                fields.measurements.insert("construction".into(), rate);
            }
        }
        Slice {
            rate: table.rate(),
            rates: table.rates.clone(),
            operations: table.slices.iter().map(|of| of.operations).sum(),
            elapsed_ns: clock::ns(table.slices.iter().map(|of| of.ticks).sum()) as u64,
            counts: table.stream.counts,
            prefill_ns: table.prefill_ns,
            checks: verdicts,
            hardware: counters::sum(table.slices.iter().map(|of| of.hardware)),
            contention: table.contention,
            ran_on,
            fields,
            ..contender.slice(&self.workload.id(), repetition)
        }
    }

    /// Looks up every key.
    fn evidence(
        &self,
        dyn_table: &Arc<dyn DynTable>,
        booked: &OpCounts,
    ) -> Result<Evidence, PhaseError> {
        let probe = |dyn_table: &dyn DynTable, plan: &Plan, part| dyn_table.probe(plan, part);
        let mut found = Sums::default();
        for sums in self.all("the final lookups", dyn_table, Duration::ZERO, probe)? {
            found.add(&sums);
        }
        Ok(Evidence {
            booked: booked.sums,
            found,
            stream: booked.counts,
            reported: dyn_table.size(),
            is_uniform: self.workload.distribution == Distribution::Uniform,
        })
    }

    /// Checks that the entries found are those inserted minus those removed.
    pub(crate) fn conservation(
        &self,
        dyn_table: &Arc<dyn DynTable>,
        booked: &OpCounts,
    ) -> Result<Verdicts, PhaseError> {
        let evidence = self.evidence(dyn_table, booked)?;
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
    /// Adds a slice to what is checked, but not to the rates of the table. Returns its sums and its
    /// rate.
    pub(crate) fn check_slice(&mut self, reports: &[DriveReport]) -> (DriveReport, f64) {
        let total = drive::total(reports);
        self.kept_misses += total.kept_misses;
        self.stream.add(&total.tally);
        let problems = reports.iter().filter_map(|report| report.problem.clone());
        self.problems.extend(problems);
        (total, reports.iter().map(DriveReport::rate).sum())
    }

    /// Adds a slice.
    pub(crate) fn add_slice(&mut self, reports: &[DriveReport]) {
        let (total, rate) = self.check_slice(reports);
        self.slices.push(total);
        self.rates.push(rate);
    }

    /// Stores the positions in the streams.
    pub(crate) fn store_positions(&mut self, drives: impl Iterator<Item = Drive>) {
        self.workers = drives.map(|drive| (drive.cursor, drive.numbers)).collect();
    }

    /// Returns the median over the short slices, of which some lose time to the hypervisor.
    pub(crate) fn rate(&self) -> f64 {
        Spread::of(self.rates.iter().copied()).map_or(f64::NAN, |rates| rates.median)
    }
}
