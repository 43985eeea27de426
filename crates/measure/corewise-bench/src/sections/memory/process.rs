//! Memory cells: each table at each size in a separate process.
//!
//! The parent starts its own program with a [`MemoryJob`]. The child fills one table from empty,
//! churns it, empties it and drops it. At each step it reads the counting allocator and its
//! resident set, and prints one [`MemoryAnswer`] at the end. So no table is charged for memory that
//! another left behind.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::{Garbage, MemoryPoint, MemorySection};
use crate::allocator;
use crate::cell_run::{CellRun, Measured};
use crate::clock;
use crate::contender::{CellContext, PhaseError};
use crate::distribution::{Distribution, Sampler};
use crate::dyn_table::DynTable;
use crate::error::BenchError;
use crate::plan::Plan;
use crate::record::{Record, Verdicts};
use crate::registry::Registry;
use crate::section::Section;
use crate::stamp::Numbers;
use crate::stream::Stream;
use crate::task::Task;
use crate::verify;
use crate::work::{Drive, OpCounts, Part, SliceTimes, Start};
use crate::workload::Workload;
use corewise_measure::thread_pool::ThreadPool;

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
    let cell = task.workload.cell(Vec::new());
    let mut measured = Measured::new(cell, contenders.len());
    for (contender, accumulator) in contenders.iter().zip(&mut measured.accumulators) {
        let job = MemoryJob {
            plan: run.runner.manifest.plan.clone(),
            cell: task.workload.id(),
            table: contender.entry.card.name.clone(),
            seed: run.runner.seed,
        };
        match child(&program, &job) {
            Ok(answer) => {
                accumulator.problems = answer.checks.problems;
                let point = Record::Memory(Box::new(answer.point));
                let garbage = Record::Garbage(Box::new(answer.garbage));
                measured.details.extend([point, garbage]);
            }
            Err(problem) => accumulator.problems.push(problem),
        }
    }
    run.write(measured)
}

/// Starts the program again with the allocator and page policy of this process.
fn child(program: &Path, job: &MemoryJob) -> Result<MemoryAnswer, String> {
    let text = serde_json::to_string(job).map_err(|error| error.to_string())?;
    let output = Command::new(program)
        .args(["bench", "memory-cell", &text])
        .stdin(Stdio::null())
        .process_group(0) // Ctrl-C ends the parent, and so the child, but fails no row
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
pub fn child_main(registry: &Registry, job: &MemoryJob, task: Task) -> Result<String, BenchError> {
    let wrong = |what: String| BenchError::Usage(format!("memory-cell: {what}"));
    // If the parent is killed, so is this process; if that fails, it ends by itself.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let Workload {
        initial, threads, ..
    } = task.workload;
    // The churn has all keys.
    let workload = &Workload {
        range: initial,
        ..task.workload
    };
    let maker = MemorySection.maker(registry.find(&job.table)?, workload);
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
    let pool = &ThreadPool::start("bench", vec![None; threads])?;
    let context = CellContext {
        workload,
        plan: workload.plan(),
        sampler,
        pool,
        streams: (0..threads).map(|_| stream.clone()).collect(),
        patience: LIMIT,
    };
    let failed = |error: PhaseError| BenchError::Failed(format!("{error:?}"));
    let start = pool.run("the start", threads, LIMIT, |_| ());
    start.map_err(failed)?;
    allocator::start_counting();
    let make = || maker(&workload.setup());
    let answer = measure(job, &context, make).map_err(failed)?;
    serde_json::to_string(&answer).map_err(|error| BenchError::Failed(error.to_string()))
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
    let watch = Watch::start();
    let filled = each("prefill", |table, plan, part| table.fill(plan, part))?;
    let samples = watch.stop();
    let full = Reading::take();
    let peak = Reading {
        live: allocator::counted().map(|counted| counted.peak_bytes),
        resident: samples
            .iter()
            .map(|of| of.resident)
            .fold(full.resident, i64::max),
    };
    let booked = OpCounts {
        sums: filled.sums,
        ..OpCounts::default()
    };
    let mut checks = context.conservation(&table, &booked)?;
    let before = Reading::take();
    let samples = churn(context, &table)?;
    context.audit(&table, job.seed, &mut checks)?;
    table.settle();
    let settled = Reading::take();
    each("emptying", |table, plan, part| table.empty(plan, part))?;
    table.settle();
    let emptied = Reading::take();
    drop(table);
    let dropped = Reading::take();
    let live = |of: &Reading| Some((of.live? - zero.live?).max(0) as u64);
    let resident = |of: &Reading| (of.resident - zero.resident).max(0) as u64;
    let workload = context.workload;
    let source = before.live.map_or("resident", |_| "live");
    Ok(MemoryAnswer {
        point: MemoryPoint {
            cell: job.cell.clone(),
            table: job.table.clone(),
            entries: workload.initial,
            payload_bytes: workload.payload_bytes() * workload.initial,
            live_bytes: live(&full),
            peak_live_bytes: live(&peak),
            resident_bytes: resident(&full),
            peak_resident_bytes: resident(&peak),
            emptied_bytes: live(&emptied),
            dropped_bytes: live(&dropped),
        },
        garbage: Garbage {
            cell: job.cell.clone(),
            table: job.table.clone(),
            entries: workload.initial,
            interval_ms: INTERVAL.as_secs_f64() * 1e3,
            over_bytes: samples.iter().map(|of| of.over(&before)).collect(),
            source: source.into(),
            settled_bytes: settled.over(&before),
        },
        checks,
    })
}

/// Runs half inserts, half removes on all threads and samples memory.
fn churn(context: &CellContext<'_>, table: &Arc<dyn DynTable>) -> Result<Vec<Reading>, PhaseError> {
    let watch = Watch::start();
    let streams = context.streams.clone();
    let times = SliceTimes {
        start: Start::of(context.workload.threads),
        warm_ticks: 0,
        run_ticks: clock::ticks(CHURN.as_nanos() as u64),
    };
    context.run("churn", table, CHURN, move |part| {
        let stream = streams[part.thread].clone();
        Drive {
            cursor: stream.cursor(part.thread as u64),
            stream,
            numbers: Numbers::of_thread(2_000 + part.thread),
            times: times.clone(),
        }
    })?;
    Ok(watch.stop())
}

/// Memory at one time.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// `None` if the allocator does not count.
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

    /// Returns the live bytes beyond those of another time, or the resident ones.
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

/// A thread that samples memory every [`INTERVAL`].
struct Watch {
    over: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<Reading>>,
}

impl Watch {
    fn start() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let seen = over.clone();
        let thread = std::thread::spawn(move || {
            let mut samples = Vec::with_capacity(4096);
            // Relaxed: joining the thread hands over the samples.
            while !seen.load(Ordering::Relaxed) {
                let begin = Instant::now();
                samples.push(Reading::take());
                std::thread::sleep(INTERVAL.saturating_sub(begin.elapsed()));
            }
            samples
        });
        Self { over, thread }
    }

    /// Stops the thread and returns its samples.
    fn stop(self) -> Vec<Reading> {
        // Relaxed: only tells the thread to end; joining it hands over the samples.
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}
