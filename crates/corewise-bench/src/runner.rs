//! Cells, one after the other: in each the tables in turn, repetition by repetition.
//!
//! ```text
//! repetition   make and fill all tables, order drawn anew
//!              [ b ][ d ][ a ][ c ]   short slices, order drawn anew in each round
//!              [ c ][ a ][ b ][ d ]
//!              ...
//!              look up every key, audit, drop
//! ```
//!
//! Every repetition makes its tables anew, so that the luck of one placement in memory is part of
//! the noise and not of the result. If all tables together would take more memory than is there,
//! they take turns by repetition instead of by slice.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewise_measure::stats::{Ratio, Spread};
use corewise_topology::{Topology, plan as place_threads};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::crew::Crew;
use crate::error::BenchError;
use crate::lane::{Lane, Live, Scene, Trouble};
use crate::law::Drawer;
use crate::record::{
    BatchSummary, End, Interval, Manifest, Record, ResizeSummary, Role, Row, Slice, Tail, Verdicts,
};
use crate::registry::Registry;
use crate::sink::Sink;
use crate::stream::Stream;
use crate::suite::Task;
use crate::table::Contention;
use crate::workload::{Method, Workload};

/// Share of the available memory that tables may take together.
const MEMORY_SHARE: f64 = 0.5;
/// What an entry is reckoned to take besides its key and value.
const ENTRY_BYTES: u64 = 112;

/// A run.
pub struct Runner<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) sink: Sink,
    pub(crate) seed: u64,
    pub(crate) manifest: Manifest,
    topology: Topology,
    crew: Option<(Vec<Option<corewise_topology::CpuId>>, Crew)>,
    pub(crate) progress: ProgressBar,
    /// The program to start for cells that need a process of their own.
    pub(crate) program: Option<PathBuf>,
    pub(crate) end: End,
    /// Called with each row.
    pub(crate) show: Box<dyn FnMut(&Row) + 'a>,
}

/// What is kept of a lane over its repetitions.
#[derive(Debug, Default)]
pub(crate) struct Course {
    /// Rates by repetition; NaN where there is none.
    pub(crate) rates: Vec<f64>,
    pub(crate) problems: Vec<String>,
    pub(crate) contention: Option<Contention>,
    pub(crate) operations: u64,
    pub(crate) hardware: BTreeMap<&'static str, u64>,
    pub(crate) latencies: Option<crate::latencies::Latencies>,
    pub(crate) resize: Option<ResizeSummary>,
    /// Rates of lookups in batches and of single ones in the same round.
    pub(crate) batched: Vec<(f64, f64)>,
    pub(crate) tails: Vec<Tail>,
    /// Out of the cell: it panicked or took too long.
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
            crew: None,
            progress: ProgressBar::hidden(),
            program,
            end: End {
                rows: 0,
                void: 0,
                seconds: 0,
            },
            show,
        }
    }

    /// Measures all tasks, from the manifest to the end marker.
    pub fn run(&mut self, tasks: &[Task]) -> Result<End, BenchError> {
        let begin = Instant::now();
        self.progress = progress_bar(tasks);
        self.sink
            .write(&Record::Manifest(Box::new(self.manifest.clone())))?;
        for task in tasks {
            self.progress.set_message(task.workload.id());
            self.cell(task)?;
            self.sink.sync()?;
        }
        self.progress.finish_and_clear();
        self.end.seconds = begin.elapsed().as_secs();
        self.sink.write(&Record::End(self.end))?;
        self.sink.sync()?;
        Ok(self.end)
    }

    fn cell(&mut self, task: &Task) -> Result<(), BenchError> {
        let lanes = lanes(self.registry, task)?;
        match task.workload.method {
            Method::Throughput | Method::Latency | Method::Hot | Method::Batch(_) => {
                self.closed(task, &lanes)
            }
            Method::Paced(pacing) => self.paced(task, &lanes, pacing),
            Method::Growth => self.growth(task, &lanes),
            Method::Tails => self.tails(task, &lanes),
            Method::Memory => self.memory(task, &lanes),
            Method::Resize(buckets) => self.resize(task, &lanes, buckets),
        }
    }

    /// Tables that were asked for and are not among these lanes.
    pub(crate) fn left_out(&self, task: &Task, lanes: &[Lane]) -> Vec<String> {
        let in_it = |name: &String| lanes.iter().any(|lane| lane.entry.card.name == *name);
        let chosen = self.registry.chosen(&task.tables).into_iter();
        chosen
            .filter(|name| !in_it(name) && !self.registry.is_null(name))
            .collect()
    }

    /// The scene of a cell, with threads where they belong.
    pub(crate) fn scene<'s>(&'s mut self, workload: &'s Workload) -> Result<Scene<'s>, BenchError> {
        let places = place_threads(&self.topology, &workload.pin, workload.threads);
        if self.crew.as_ref().is_none_or(|(at, _)| *at != places) {
            self.crew = None; // the old threads go before the new ones come
            self.crew = Some((places.clone(), Crew::start(places)?));
        }
        let crew = &self
            .crew
            .as_ref()
            .ok_or_else(|| BenchError::Failed("no threads".into()))?
            .1;
        let drawer = Drawer::new(workload.law, workload.range);
        let streams = draw_streams(crew, workload, &drawer, self.seed)?;
        let own_keys = match workload.method {
            Method::Hot => draw_own_keys(crew, workload, self.seed)?,
            _ => Vec::new(),
        };
        Ok(Scene {
            workload,
            plan: workload.plan(),
            drawer,
            crew,
            streams,
            own_keys,
        })
    }

    /// Throughput, with or without a sample of latencies.
    fn closed(&mut self, task: &Task, lanes: &[Lane]) -> Result<(), BenchError> {
        let (courses, cell_cpus) = self.repetitions(task, lanes)?;
        let cell = task.workload.cell(cell_cpus);
        for (lane, course) in lanes.iter().zip(&courses) {
            if let Some(latencies) = &course.latencies {
                for histogram in latencies.records(&cell.id, &lane_name(lane), false) {
                    self.sink.write(&Record::Histogram(Box::new(histogram)))?;
                }
            }
        }
        self.rows(task, lanes, &courses, &cell)
    }

    fn repetitions(
        &mut self,
        task: &Task,
        lanes: &[Lane],
    ) -> Result<(Vec<Course>, Vec<usize>), BenchError> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ 0x0f0e);
        let mut courses: Vec<Course> = lanes.iter().map(|_| Course::default()).collect();
        let (seed, progress) = (self.seed, self.progress.clone());
        let together = fits(&task.workload, lanes.len());
        let mut scene = self.scene(&task.workload)?;
        let cpus = scene
            .crew
            .places()
            .iter()
            .flatten()
            .map(|cpu| cpu.0)
            .collect();
        let mut records = Vec::new();
        for repetition in 0..task.repetitions {
            let mut order: Vec<usize> = (0..lanes.len()).filter(|&at| !courses[at].out).collect();
            order.shuffle(&mut rng);
            let groups: Vec<Vec<usize>> = match together {
                true => vec![order],
                false => order.into_iter().map(|at| vec![at]).collect(),
            };
            for group in groups {
                let done = repetition_of(&scene, lanes, &group, repetition, seed, &mut rng);
                for (at, outcome) in done {
                    records.extend(settle(
                        &scene,
                        &lanes[at],
                        &mut courses[at],
                        repetition,
                        outcome,
                    )?);
                    progress.inc(1);
                }
            }
            renew(&mut scene);
        }
        for record in &records {
            self.sink.write(record)?;
        }
        Ok((courses, cpus))
    }

    /// Summaries.
    pub(crate) fn rows(
        &mut self,
        task: &Task,
        lanes: &[Lane],
        courses: &[Course],
        cell: &crate::record::Cell,
    ) -> Result<(), BenchError> {
        let reference = lanes.iter().position(|lane| lane.role == Role::Reference);
        for (lane, course) in lanes.iter().zip(courses) {
            let against = reference
                .map(|at| &courses[at])
                .filter(|_| lane.role != Role::Reference);
            let row = self.row(task, lane, course, against, cell);
            self.end.rows += 1;
            self.end.void += usize::from(row.verdict == "void");
            self.sink.write(&Record::Row(Box::new(row.clone())))?;
            let show = &mut self.show;
            self.progress.suspend(|| show(&row));
        }
        Ok(())
    }

    fn row(
        &self,
        task: &Task,
        lane: &Lane,
        course: &Course,
        against: Option<&Course>,
        cell: &crate::record::Cell,
    ) -> Row {
        let ratio = against.and_then(|other| {
            Ratio::paired(
                course
                    .rates
                    .iter()
                    .copied()
                    .zip(other.rates.iter().copied()),
            )
        });
        let void = course.out || !course.problems.is_empty();
        let spread = Spread::of(course.rates.iter().copied());
        let mut problems = course.problems.clone();
        problems.truncate(5);
        let per = |(name, sum): (&&'static str, &u64)| {
            (
                (*name).to_string(),
                *sum as f64 / course.operations.max(1) as f64,
            )
        };
        Row {
            cell: cell.clone(),
            table: lane_name(lane),
            role: lane.role,
            repetitions: task.repetitions,
            rate: spread.map(Interval::from),
            ratio: ratio.map(Interval::from),
            verdict: match ratio {
                _ if void => "void".into(),
                Some(ratio) if lane.role != Role::Null => ratio.verdict.word().into(),
                _ => String::new(),
            },
            version: lane.entry.card.version.clone(),
            allocator: self.manifest.allocator.clone(),
            pages: self.manifest.pages.clone(),
            problems,
            contention: course.contention,
            per_operation: course.hardware.iter().map(per).collect(),
            pair_ns: spread
                .filter(|_| task.workload.method == Method::Hot && !void)
                .map(|s| pair_ns(s, task.workload.threads)),
            tails: match void {
                true => Vec::new(),
                false => course.tails.clone(),
            },
            resize: course.resize.clone().filter(|_| !void),
            batch: batch_summary(task.workload.method, course).filter(|_| !void),
        }
    }
}

/// Who takes part in a cell: the reference, once more the reference, no table, the others.
pub(crate) fn lanes(registry: &Registry, task: &Task) -> Result<Vec<Lane>, BenchError> {
    let workload = &task.workload;
    let (kind, native) = (workload.kind.as_str(), workload.native_hash);
    let lane = |name: &str, role| -> Result<Option<Lane>, BenchError> {
        let entry = registry.find(name)?;
        let able = entry
            .max_threads
            .is_none_or(|most| workload.threads <= most);
        let maker = match workload.method {
            Method::Resize(_) => entry.resizable_maker(kind, native),
            _ => entry.maker(kind, native),
        };
        Ok(maker.filter(|_| able).map(|maker| Lane {
            entry: entry.clone(),
            role,
            maker,
        }))
    };
    let reference = lane(&task.reference, Role::Reference)?.ok_or_else(|| {
        BenchError::Usage(format!(
            "`{}` cannot be the reference of {}",
            task.reference,
            workload.id()
        ))
    })?;
    let mut lanes = vec![
        Lane {
            role: Role::Again,
            ..reference.clone()
        },
        reference,
    ];
    let chosen = registry.chosen(&task.tables);
    let names = chosen.iter().filter(|name| **name != task.reference);
    for name in names.filter(|name| !registry.is_null(name)) {
        lanes.extend(lane(name, Role::Subject)?);
    }
    let foreign = lanes.iter().any(|lane| lane.entry.card.language != "Rust");
    for (name, wanted) in [("null", true), ("peer-null", foreign)] {
        if wanted && registry.is_null(name) {
            lanes.extend(lane(name, Role::Null)?);
        }
    }
    Ok(lanes)
}

/// Batches against single lookups, round by round.
fn batch_summary(method: Method, course: &Course) -> Option<BatchSummary> {
    let Method::Batch(keys) = method else {
        return None;
    };
    let pairs = || course.batched.iter().copied();
    Some(BatchSummary {
        keys,
        pairs: course.batched.len(),
        single: Spread::of(pairs().map(|(_, single)| single))?.into(),
        ratio: Ratio::paired(pairs())?.into(),
    })
}

/// Nanoseconds that a thread takes for a pair, by the rate of all threads.
fn pair_ns(rate: Spread, threads: usize) -> Interval {
    let ns = |rate: f64| threads as f64 * 1e9 / rate;
    Interval {
        value: ns(rate.median),
        low: ns(rate.high),
        high: ns(rate.low),
    }
}

/// The name of a lane in results: the second instance of the reference is marked.
pub(crate) fn lane_name(lane: &Lane) -> String {
    match lane.role {
        Role::Again => format!("{} (again)", lane.entry.card.name),
        _ => lane.entry.card.name.clone(),
    }
}

/// A lane and what came of its repetition.
type Outcome = (usize, Result<(Live, Verdicts), Trouble>);

/// One repetition of some lanes, side by side.
fn repetition_of(
    scene: &Scene<'_>,
    lanes: &[Lane],
    group: &[usize],
    repetition: usize,
    seed: u64,
    rng: &mut Xoshiro256PlusPlus,
) -> Vec<Outcome> {
    let sample = scene.workload.method == Method::Latency;
    let mut lives: Vec<(usize, Result<Live, Trouble>)> = group
        .iter()
        .map(|&at| (at, scene.prepare(&lanes[at], repetition, seed)))
        .collect();
    for _ in 0..scene.workload.slices {
        lives.shuffle(rng);
        for (_, live) in &mut lives {
            if let Ok(some) = live
                && let Err(trouble) = scene.slice(some, sample)
            {
                *live = Err(trouble);
            }
        }
    }
    let finish = |(at, live): (usize, Result<Live, Trouble>)| {
        let outcome = live.and_then(|live| {
            let verdicts = scene.finish(&lanes[at], &live, seed ^ repetition as u64)?;
            Ok((live, verdicts))
        });
        (at, outcome)
    };
    lives.into_iter().map(finish).collect()
}

/// Books an outcome.
fn settle(
    scene: &Scene<'_>,
    lane: &Lane,
    course: &mut Course,
    repetition: usize,
    outcome: Result<(Live, Verdicts), Trouble>,
) -> Result<Option<Record>, BenchError> {
    let (live, mut checks) = match outcome {
        Ok(done) => done,
        Err(trouble) => {
            course.fail(lane, trouble)?;
            return Ok(None);
        }
    };
    let ran_on = scene.whereabouts(&mut checks);
    course.problems.extend(checks.problems.iter().cloned());
    course.rates.resize(repetition, f64::NAN);
    course.rates.push(live.rate());
    let singles = live.singles.iter().copied();
    course
        .batched
        .extend(live.rates.iter().copied().zip(singles));
    course.operations += live.operations;
    course.add_contention(live.contention());
    course.add_hardware(&live.hardware);
    match (&mut course.latencies, &live.latencies) {
        (Some(all), Some(more)) => all.add(more),
        (all @ None, more) => *all = more.clone(),
        (Some(_), None) => {}
    }
    Ok(Some(Record::Slice(Box::new(Slice {
        cell: scene.workload.id(),
        table: lane_name(lane),
        role: lane.role,
        repetition,
        rate: live.rate(),
        rates: live.rates.clone(),
        singles: live.singles.clone(),
        operations: live.operations,
        elapsed_ns: live.elapsed_ns,
        counts: live.counts(),
        prefill_ns: live.prefill_ns,
        checks,
        hardware: live.hardware,
        contention: live.contention(),
        ran_on,
    }))))
}

impl Course {
    /// Notes a phase without a result; an error if the run cannot go on.
    pub(crate) fn fail(&mut self, lane: &Lane, trouble: Trouble) -> Result<(), BenchError> {
        match trouble {
            Trouble::Failed(message) => {
                self.problems.push(message);
                self.out = true;
                Ok(())
            }
            Trouble::Stuck(phase) => Err(BenchError::Stuck {
                table: lane.entry.card.name.clone(),
                phase,
            }),
        }
    }

    pub(crate) fn add_contention(&mut self, more: Option<Contention>) {
        if let Some(more) = more {
            let sum = self.contention.get_or_insert_default();
            sum.acquisitions += more.acquisitions;
            sum.contended += more.contended;
            sum.elided += more.elided;
            sum.aborts += more.aborts;
        }
    }

    fn add_hardware(&mut self, counters: &crate::record::HardwareCounters) {
        let named = [
            ("instructions", counters.instructions),
            ("cycles", counters.cycles),
            ("cache misses", counters.cache_misses),
            ("branch misses", counters.branch_misses),
        ];
        for (name, value) in named {
            if let Some(value) = value {
                *self.hardware.entry(name).or_default() += value;
            }
        }
    }
}

fn renew(scene: &mut Scene<'_>) {
    for stream in &mut scene.streams {
        if let Some(stream) = Arc::get_mut(stream) {
            stream.renew();
        }
    }
}

/// Streams are drawn by the threads that use them, on their own CPUs.
fn draw_streams(
    crew: &Crew,
    workload: &Workload,
    drawer: &Drawer,
    seed: u64,
) -> Result<Vec<Arc<Stream>>, BenchError> {
    let (drawer, range) = (drawer.clone(), workload.range as u32);
    let shares = (
        workload.insert_percent / 100.0,
        workload.remove_percent / 100.0,
    );
    crew.run(workload.threads, Duration::from_secs(600), move |part| {
        Arc::new(Stream::new(
            seed,
            (part.thread, part.threads),
            drawer.clone(),
            range,
            shares,
        ))
    })
    .map_err(|error| BenchError::Failed(format!("cannot draw the streams: {error:?}")))
}

/// Each thread's part of the keys, in random order.
fn draw_own_keys(
    crew: &Crew,
    workload: &Workload,
    seed: u64,
) -> Result<Vec<Arc<[u32]>>, BenchError> {
    let plan = workload.plan();
    crew.run(workload.threads, Duration::from_secs(600), move |part| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x407 ^ (part.thread as u64) << 32);
        let mut keys: Vec<u32> = plan.part(part.thread, part.threads).collect();
        keys.shuffle(&mut rng);
        keys.into()
    })
    .map_err(|error| BenchError::Failed(format!("cannot draw the keys: {error:?}")))
}

/// Whether all tables of a cell fit into memory at a time.
fn fits(workload: &Workload, lanes: usize) -> bool {
    let each = workload.range * (workload.payload_bytes() + ENTRY_BYTES);
    (each * lanes as u64) as f64 <= available_bytes() as f64 * MEMORY_SHARE
}

/// Memory that can be had.
fn available_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok());
    kib.map_or(4 << 30, |kib: u64| kib << 10)
}

/// Time left on a terminal; nothing elsewhere.
fn progress_bar(tasks: &[Task]) -> ProgressBar {
    let steps: usize = tasks.iter().map(|task| task.repetitions).sum();
    let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
    if let Ok(style) =
        ProgressStyle::with_template("{bar:30} {percent:>3} % {eta:>6} left  {wide_msg}")
    {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}
