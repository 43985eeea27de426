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

use super::{Garbage, MemoryPoint};
use crate::allocator;
use crate::clock;
use crate::contender::Contender;
use crate::distribution::{Distribution, Sampler};
use crate::dyn_table::DynTable;
use crate::error::BenchError;
use crate::plan::{KeyMap, Plan};
use crate::record::{Detail, Record, Verdicts};
use crate::registry::Registry;
use crate::runner::{RowAccumulator, Runner};
use crate::stamp::Numbers;
use crate::stream::Stream;
use crate::suite::Task;
use crate::table::{Setup, Shape};
use crate::thread_pool::ThreadPool;
use crate::verify;
use crate::work::{Drive, Evidence, Part, Start, Sums};

/// Duration of the churn.
const CHURN: Duration = Duration::from_millis(500);
/// Time between two samples.
const INTERVAL: Duration = Duration::from_millis(10);
/// Time limit of a phase of the child.
const LIMIT: Duration = Duration::from_secs(300);

/// The task of a child process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryJob {
    /// The table.
    pub table: String,
    /// `u64` or `bytes`.
    pub kind: String,
    /// Whether it uses its own hash function.
    pub native_hash: bool,
    /// Entries.
    pub entries: u32,
    /// Threads.
    pub threads: usize,
    /// Bytes of keys.
    pub key_bytes: (usize, usize),
    /// Bytes of values.
    pub value_bytes: usize,
    /// How keys are made.
    pub keys: KeyMap,
    /// Bytes of key and value of an entry.
    pub payload_bytes: u64,
    /// The cell's id.
    pub cell: String,
    /// The table's name in results.
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
pub(super) fn run(
    runner: &mut Runner<'_>,
    task: &Task,
    contenders: &[Contender],
) -> Result<(), BenchError> {
    let program = runner.program.clone();
    let program = program.ok_or_else(|| {
        BenchError::Usage("memory is measured by the corewise program only".into())
    })?;
    let mut accumulators = Vec::new();
    for contender in contenders {
        let mut accumulator = RowAccumulator::default();
        match child(&program, &job(task, contender, runner.seed)) {
            Ok(answer) => {
                accumulator.problems = answer.checks.problems;
                let records = [Detail::of(&answer.point), Detail::of(&answer.garbage)];
                for record in records {
                    runner.sink.write(&Record::Detail(Box::new(record)))?;
                }
            }
            Err(problem) => accumulator.problems.push(problem),
        }
        accumulators.push(accumulator);
    }
    runner.progress.inc(task.repetitions as u64);
    let cell = task.workload.cell(Vec::new());
    runner.rows(task, contenders, &accumulators, &cell)
}

fn job(task: &Task, contender: &Contender, seed: u64) -> MemoryJob {
    let workload = &task.workload;
    let shape = workload.shape();
    MemoryJob {
        table: contender.entry.card.name.clone(),
        kind: workload.kind.clone(),
        native_hash: workload.native_hash,
        entries: workload.initial as u32,
        threads: workload.threads,
        key_bytes: shape.key_bytes,
        value_bytes: shape.value_bytes,
        keys: workload.keys,
        payload_bytes: workload.payload_bytes(),
        cell: workload.id(),
        name: contender.name(),
        seed,
    }
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
    let job: MemoryJob = serde_json::from_str(job)
        .map_err(|error| BenchError::Usage(format!("memory-cell: {error}")))?;
    let entry = registry.find(&job.table)?;
    let maker = entry
        .maker(&job.kind, job.native_hash)
        .ok_or_else(|| BenchError::Usage(format!("`{}` has no {} keys", job.table, job.kind)))?;
    let shape = Shape {
        key_bytes: job.key_bytes,
        value_bytes: job.value_bytes,
    };
    let plan = Plan::new(shape, job.entries, job.entries, job.threads, job.keys);
    let sampler = Sampler::new(Distribution::Uniform, job.entries.into());
    let stream = Arc::new(Stream::new(
        job.seed,
        (0, 1),
        sampler,
        job.entries,
        (0.5, 0.5),
    ));
    let pool = ThreadPool::start(vec![None; job.threads])?;
    let failed = |error| BenchError::Failed(format!("{error:?}"));
    pool.run(job.threads, LIMIT, |_| ()).map_err(failed)?;
    allocator::start_counting();
    let setup = Setup {
        capacity: 0,
        threads: job.threads,
        value_bytes: job.value_bytes,
        key_bytes: job.key_bytes.1,
        ..Setup::default()
    };
    let answer = measure(&job, plan, &pool, || maker(&setup), stream).map_err(failed)?;
    serde_json::to_string(&answer).map_err(|error| BenchError::Failed(error.to_string()))
}

fn measure(
    job: &MemoryJob,
    plan: Plan,
    pool: &ThreadPool,
    make: impl FnOnce() -> Arc<dyn DynTable>,
    stream: Arc<Stream>,
) -> Result<MemoryAnswer, crate::thread_pool::PoolError> {
    let zero = Reading::take();
    allocator::reset_peak();
    let dyn_table = make();
    let each = |task: fn(&dyn DynTable, &Plan, Part) -> Sums| {
        let dyn_table = dyn_table.clone();
        let sums = pool.run(job.threads, LIMIT, move |part| {
            task(&*dyn_table, &plan, part)
        })?;
        Ok(sums.iter().fold(Sums::default(), |mut all, some| {
            all.add(some);
            all
        }))
    };
    let watch = Watch::start(Source::Resident);
    let booked = each(|dyn_table, plan, part| dyn_table.fill(plan, part).sums)?;
    let resident = watch.stop();
    let (full, peak) = (
        Reading::take(),
        allocator::counted().map(|counted| counted.peak_bytes),
    );
    let found = each(|dyn_table, plan, part| dyn_table.probe(plan, part))?;
    let evidence = Evidence {
        booked,
        found,
        stream: Default::default(),
        reported: dyn_table.size(),
        is_uniform: true,
    };
    let mut checks = verify::conservation(&plan, &evidence);
    let mut garbage = churn(job, plan, pool, &dyn_table, &stream)?;
    audit(job, plan, pool, &dyn_table, &mut checks)?;
    dyn_table.settle();
    garbage.record.settled_bytes = Reading::take().over(&garbage.before);
    each(|dyn_table, plan, part| dyn_table.empty(plan, part).sums)?;
    dyn_table.settle();
    let emptied = Reading::take();
    drop(dyn_table);
    let life = Life {
        zero,
        full,
        peak,
        resident,
        emptied,
        dropped: Reading::take(),
    };
    Ok(MemoryAnswer {
        point: life.point(job),
        garbage: garbage.record,
        checks,
    })
}

/// Runs operations whose outcomes are known.
fn audit(
    job: &MemoryJob,
    plan: Plan,
    pool: &ThreadPool,
    dyn_table: &Arc<dyn DynTable>,
    checks: &mut Verdicts,
) -> Result<(), crate::thread_pool::PoolError> {
    let (dyn_table, seed) = (dyn_table.clone(), job.seed);
    let reports = pool.run(job.threads, LIMIT, move |part| {
        dyn_table.audit(&plan, part, 10_000, seed)
    })?;
    for report in reports {
        checks.audited += report.audited;
        checks.problems.extend(report.problem);
    }
    Ok(())
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
    fn point(&self, job: &MemoryJob) -> MemoryPoint {
        let over_zero = |now: i64, then: i64| (now - then).max(0) as u64;
        let live = |now: Option<i64>| Some(over_zero(now?, self.zero.live?));
        let resident = |now: i64| over_zero(now, self.zero.resident);
        MemoryPoint {
            cell: job.cell.clone(),
            table: job.name.clone(),
            entries: u64::from(job.entries),
            payload_bytes: job.payload_bytes * u64::from(job.entries),
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
    plan: Plan,
    pool: &ThreadPool,
    dyn_table: &Arc<dyn DynTable>,
    stream: &Arc<Stream>,
) -> Result<Churned, crate::thread_pool::PoolError> {
    let before = Reading::take();
    let source = if before.live.is_some() {
        Source::RunningTable
    } else {
        Source::Resident
    };
    let watch = Watch::start(source);
    let (start, dyn_table, stream) = (Start::of(job.threads), dyn_table.clone(), stream.clone());
    let run_ticks = clock::ticks(CHURN.as_nanos() as u64);
    pool.run(job.threads, LIMIT, move |part| {
        let mut drive = Drive {
            cursor: stream.cursor(part.thread as u64),
            stream: stream.clone(),
            numbers: Numbers::of_thread(2_000 + part.thread),
            start: start.clone(),
            warm_ticks: 0,
            run_ticks,
        };
        dyn_table.run(&plan, part, &mut drive).tally
    })?;
    let base = match source {
        Source::RunningTable => before.live.unwrap_or(0),
        Source::Resident => before.resident,
    };
    let record = Garbage {
        cell: job.cell.clone(),
        table: job.name.clone(),
        entries: job.entries.into(),
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
