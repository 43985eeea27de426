//! Memory cells: each table at each size in a separate process.
//!
//! The parent starts its own program with a [`MemoryJob`]. The child fills one table from empty,
//! churns it, empties it and drops it. At each step it reads the counting allocator and its
//! resident set, and prints one [`MemoryAnswer`] at the end. So no table is charged for memory that
//! another left behind.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use corewise_topology::Topology;

use super::{Garbage, MemoryPoint};
use crate::allocator;
use crate::clock;
use crate::contender::{CellContext, PhaseError};
use crate::distribution::{Distribution, Sampler};
use crate::dyn_table::DynTable;
use crate::error::BenchError;
use crate::plan::Plan;
use crate::record::{Record, Verdicts};
use crate::registry::Registry;
use crate::runner::{CellRun, RowAccumulator};
use crate::stamp::Numbers;
use crate::stream::Stream;
use crate::suite::{Params, Suite, Task};
use crate::thread_pool::ThreadPool;
use crate::verify;
use crate::work::{Drive, OpCounts, Part, SliceTimes, Start};
use crate::workload::Workload;

/// Duration of the churn.
const CHURN: Duration = Duration::from_millis(500);
/// Time between two samples.
const INTERVAL: Duration = Duration::from_millis(10);
/// Time limit of a phase of the child.
const LIMIT: Duration = Duration::from_secs(300);

/// The task of a child process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryJob {
    /// The suite as run, in TOML.
    pub plan: String,
    /// The cell's id.
    pub cell: String,
    /// The table.
    pub table: String,
    /// Its name in results.
    pub name: String,
    /// Seed.
    pub seed: u64,
}

/// The answer of a child process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryAnswer {
    /// Memory at full size.
    pub point: MemoryPoint,
    /// Memory over time.
    pub garbage: Garbage,
    /// The checks.
    pub checks: Verdicts,
}

/// Runs a process for each table. The row has no rate.
pub(super) fn run(run: &mut CellRun<'_, '_>) -> Result<(), BenchError> {
    let (task, contenders) = (run.task, run.contenders);
    let program = run.runner.program.clone();
    let program = program.ok_or_else(|| {
        BenchError::Usage("memory is measured by the corewise program only".into())
    })?;
    let mut accumulators = Vec::new();
    for contender in contenders {
        let mut accumulator = RowAccumulator::default();
        let job = MemoryJob {
            plan: run.runner.manifest.plan.clone(),
            cell: task.workload.id(),
            table: contender.entry.card.name.clone(),
            name: contender.name(),
            seed: run.runner.seed,
        };
        match child(&program, &job) {
            Ok(answer) => {
                accumulator.problems = answer.checks.problems;
                let sink = &mut run.runner.sink;
                sink.write(&Record::Memory(Box::new(answer.point)))?;
                sink.write(&Record::Garbage(Box::new(answer.garbage)))?;
            }
            Err(problem) => accumulator.problems.push(problem),
        }
        accumulators.push(accumulator);
    }
    run.runner.progress.inc(task.repetitions as u64);
    let cell = task.workload.cell(Vec::new());
    run.rows(&accumulators, &cell)
}

/// Starts the program again with the allocator and page policy of this process.
fn child(program: &Path, job: &MemoryJob) -> Result<MemoryAnswer, String> {
    let text = serde_json::to_string(job).map_err(|error| error.to_string())?;
    let output = Command::new(program)
        .args(["bench", "memory-cell", &text])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let last = words
            .lines()
            .rfind(|line| !line.trim().is_empty())
            .unwrap_or("no message");
        return Err(format!(
            "the process of the table failed ({}): {last}",
            output.status
        ));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("unreadable answer: {error}"))
}

/// Runs the child's part and returns its answer.
pub fn child_main(registry: &Registry, job: &str) -> Result<String, BenchError> {
    let wrong = |what: String| BenchError::Usage(format!("memory-cell: {what}"));
    let job: MemoryJob = serde_json::from_str(job).map_err(|error| wrong(error.to_string()))?;
    let task = task_of(&job).map_err(wrong)?;
    let Workload {
        initial, threads, ..
    } = task.workload;
    // The churn has all keys.
    let workload = &Workload {
        range: initial,
        ..task.workload
    };
    let maker = task.section.maker(registry.find(&job.table)?, workload);
    let maker = maker.ok_or_else(|| wrong(format!("`{}` has no such keys", job.table)))?;
    let sampler = Sampler::new(Distribution::Uniform, initial);
    let shares = (0.5, 0.5);
    let stream = Arc::new(Stream::new(
        job.seed,
        (0, 1),
        sampler.clone(),
        initial as u32,
        shares,
    ));
    let pool = &ThreadPool::start(vec![None; threads])?;
    let context = CellContext {
        workload,
        plan: workload.plan(),
        sampler,
        pool,
        streams: (0..threads).map(|_| stream.clone()).collect(),
        patience: LIMIT,
    };
    let failed = |error: PhaseError| BenchError::Failed(format!("{error:?}"));
    let start = pool.run(threads, LIMIT, |_| ());
    start.map_err(|error| BenchError::Failed(format!("{error:?}")))?;
    allocator::start_counting();
    let make = || maker(&workload.setup());
    let answer = measure(&job, &context, make).map_err(failed)?;
    serde_json::to_string(&answer).map_err(|error| BenchError::Failed(error.to_string()))
}

/// Finds the cell of a job in its suite.
fn task_of(job: &MemoryJob) -> Result<Task, String> {
    let suite = Suite::parse(&job.plan)?;
    let tasks = suite.tasks(&Params::default(), &Topology::detect(), true)?;
    let task = tasks
        .into_iter()
        .find(|task| task.workload.is_called(&job.cell));
    task.ok_or_else(|| format!("no cell `{}`", job.cell))
}

fn measure(
    job: &MemoryJob,
    context: &CellContext<'_>,
    make: impl FnOnce() -> Arc<dyn DynTable>,
) -> Result<MemoryAnswer, PhaseError> {
    let zero = Reading::take();
    allocator::reset_peak();
    let table = make();
    let each = |phase, task: fn(&dyn DynTable, &Plan, Part) -> OpCounts| {
        let tallies = context.all(phase, &table, Duration::ZERO, task)?;
        Ok(verify::sum(&tallies))
    };
    let watch = Watch::start(Source::Resident);
    let filled = each("prefill", |table, plan, part| table.fill(plan, part))?;
    let resident = watch.stop();
    let full = Reading::take();
    let peak = allocator::counted().map(|counted| counted.peak_bytes);
    let booked = OpCounts {
        sums: filled.sums,
        ..OpCounts::default()
    };
    let mut checks = context.conservation(&table, &booked)?;
    let mut garbage = churn(job, context, &table)?;
    context.audit(&table, job.seed, &mut checks)?;
    table.settle();
    garbage.record.settled_bytes = Reading::take().over(&garbage.before);
    each("emptying", |table, plan, part| table.empty(plan, part))?;
    table.settle();
    let emptied = Reading::take();
    drop(table);
    let life = Life {
        zero,
        full,
        peak,
        resident,
        emptied,
        dropped: Reading::take(),
    };
    Ok(MemoryAnswer {
        point: life.point(job, context.workload),
        garbage: garbage.record,
        checks,
    })
}

/// Memory over the life of a table.
struct Life {
    /// Before it was constructed.
    zero: Reading,
    /// After it was filled.
    full: Reading,
    /// Peaks of allocated and of resident memory up to then.
    peak: Option<i64>,
    resident: i64,
    emptied: Reading,
    dropped: Reading,
}

impl Life {
    fn point(&self, job: &MemoryJob, workload: &Workload) -> MemoryPoint {
        let over_zero = |now: i64, then: i64| (now - then).max(0) as u64;
        let live = |now: Option<i64>| Some(over_zero(now?, self.zero.live?));
        let resident = |now: i64| over_zero(now, self.zero.resident);
        MemoryPoint {
            cell: job.cell.clone(),
            table: job.name.clone(),
            entries: workload.initial,
            payload_bytes: workload.payload_bytes() * workload.initial,
            live_bytes: live(self.full.live),
            peak_live_bytes: live(self.peak),
            resident_bytes: resident(self.full.resident),
            peak_resident_bytes: resident(self.resident.max(self.full.resident)),
            emptied_bytes: live(self.emptied.live),
            dropped_bytes: live(self.dropped.live),
        }
    }
}

/// Garbage over time, and its baseline.
struct Churned {
    record: Garbage,
    before: Reading,
}

/// Runs half inserts, half removes on all threads and samples memory.
fn churn(
    job: &MemoryJob,
    context: &CellContext<'_>,
    table: &Arc<dyn DynTable>,
) -> Result<Churned, PhaseError> {
    let before = Reading::take();
    let source = if before.live.is_some() {
        Source::RunningTable
    } else {
        Source::Resident
    };
    let watch = Watch::start(source);
    let streams = context.streams.clone();
    let times = SliceTimes {
        start: Start::of(context.workload.threads),
        warm_ticks: 0,
        run_ticks: clock::ticks(CHURN.as_nanos() as u64),
    };
    context.all("churn", table, CHURN, move |table, plan, part| {
        let stream = streams[part.thread].clone();
        let mut drive = Drive {
            cursor: stream.cursor(part.thread as u64),
            stream,
            numbers: Numbers::of_thread(2_000 + part.thread),
            times: times.clone(),
        };
        table.run(plan, part, &mut drive).tally
    })?;
    let base = match source {
        Source::RunningTable => before.live.unwrap_or(0),
        Source::Resident => before.resident,
    };
    let record = Garbage {
        cell: job.cell.clone(),
        table: job.name.clone(),
        entries: context.workload.initial,
        interval_ms: INTERVAL.as_secs_f64() * 1e3,
        over_bytes: watch
            .samples()
            .into_iter()
            .map(|sample| sample - base)
            .collect(),
        source: if source == Source::RunningTable {
            "live"
        } else {
            "resident"
        }
        .into(),
        settled_bytes: 0,
    };
    Ok(Churned { record, before })
}

/// Memory at one time.
#[derive(Clone, Copy, Debug)]
struct Reading {
    live: Option<i64>,
    resident: i64,
}

impl Reading {
    fn take() -> Self {
        Self {
            live: allocator::counted().map(|counted| counted.live_bytes),
            resident: resident_bytes(),
        }
    }

    fn over(&self, before: &Self) -> i64 {
        match (self.live, before.live) {
            (Some(now), Some(then)) => now - then,
            _ => self.resident - before.resident,
        }
    }
}

/// Returns the resident set of this process.
fn resident_bytes() -> i64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: i64 = text
        .split_ascii_whitespace()
        .nth(1)
        .and_then(|word| word.parse().ok())
        .unwrap_or(0);
    pages * rustix::param::page_size() as i64
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    RunningTable,
    Resident,
}

/// A thread that samples memory every [`INTERVAL`].
struct Watch {
    over: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<i64>>,
}

impl Watch {
    fn start(source: Source) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let seen = over.clone();
        let thread = std::thread::spawn(move || {
            let mut samples = Vec::with_capacity(4096);
            // Relaxed: joining the thread hands over the samples.
            while !seen.load(Ordering::Relaxed) {
                let begin = Instant::now();
                samples.push(match source {
                    Source::RunningTable => {
                        allocator::counted().map_or(0, |counted| counted.live_bytes)
                    }
                    Source::Resident => resident_bytes(),
                });
                std::thread::sleep(INTERVAL.saturating_sub(begin.elapsed()));
            }
            samples
        });
        Self { over, thread }
    }

    /// Stops the thread and returns the greatest sample.
    fn stop(self) -> i64 {
        self.samples().into_iter().max().unwrap_or(0)
    }

    fn samples(self) -> Vec<i64> {
        // Relaxed: only tells the thread to end; joining it hands over the samples.
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}
