//! One table in one repetition, from its making to its last check.

use std::sync::Arc;
use std::time::Duration;

use corewise_measure::draw::mix;

use crate::clock;
use crate::counters;
use crate::crew::{Crew, CrewError};
use crate::latencies::Latencies;
use crate::law::{Drawer, Law};
use crate::plan::Plan;
use crate::record::{HardwareCounters, Role, Verdicts};
use crate::stamp::Numbers;
use crate::stream::{Cursor, Stream};
use crate::subject::{Entry, Maker, Subject};
use crate::table::Contention;
use crate::verify::{self, Evidence};
use crate::work::{Drive, DriveReport, Hot, HotReport, Part, Place, Start, Sums, Tally};
use crate::workload::{Method, Workload};

/// Operations of an audit, per thread.
const AUDITED: u64 = 20_000;
/// Longest time for a phase, beyond what it is expected to take, and for each key.
const PATIENCE: Duration = Duration::from_secs(20);
const PATIENCE_PER_KEY: Duration = Duration::from_micros(10);

/// A table that takes part in a cell.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) entry: Entry,
    pub(crate) role: Role,
    pub(crate) maker: Maker,
}

/// What all lanes of a cell share.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) plan: Plan,
    pub(crate) drawer: Drawer,
    pub(crate) crew: &'a Crew,
    /// One for each thread.
    pub(crate) streams: Vec<Arc<Stream>>,
    /// The keys that each thread has for itself, in random order; only for [`Method::Hot`].
    pub(crate) own_keys: Vec<Arc<[u32]>>,
}

/// A phase that has no result: the table's name is added by the caller.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// A thread panicked or took too long: the row is void.
    Failed(String),
    /// A thread did not come back: the run is over.
    Stuck(&'static str),
}

/// What a thread comes back with from a stretch of its stream.
type Driven = (DriveReport, Cursor, Numbers, Option<Latencies>);

/// A table that has been filled.
pub(crate) struct Live {
    pub(crate) subject: Arc<dyn Subject>,
    pub(crate) prefill_ns: u64,
    seats: Vec<(Cursor, Numbers)>,
    /// Where each thread is in its own keys.
    places: Vec<Place>,
    /// What was wrong with outcomes that were known.
    problems: Vec<String>,
    before: Sums,
    stream: Tally,
    pub(crate) rates: Vec<f64>,
    /// Of single lookups, one for each of `rates`; only for [`Method::Batch`].
    pub(crate) singles: Vec<f64>,
    /// Lookups that missed a key that stays.
    kept_misses: u64,
    pub(crate) operations: u64,
    pub(crate) elapsed_ns: u64,
    pub(crate) hardware: HardwareCounters,
    pub(crate) latencies: Option<Latencies>,
    contention: Option<Contention>,
}

impl Scene<'_> {
    /// Lets every thread do something with a table.
    pub(crate) fn all<R: Send + 'static>(
        &self,
        phase: &'static str,
        subject: &Arc<dyn Subject>,
        extra: Duration,
        task: impl Fn(&dyn Subject, &Plan, Part) -> R + Send + Sync + 'static,
    ) -> Result<Vec<R>, Trouble> {
        let (subject, plan) = (subject.clone(), self.plan);
        self.crew
            .run(
                self.workload.threads,
                self.patience() + extra,
                move |part| task(&*subject, &plan, part),
            )
            .map_err(|error| match error {
                CrewError::Panicked(message) => {
                    Trouble::Failed(format!("panic in {phase}: {message}"))
                }
                CrewError::Slow => {
                    Trouble::Failed(format!("{phase} took too long and was given up"))
                }
                CrewError::Stuck => Trouble::Stuck(phase),
            })
    }

    /// The longest that a phase may take.
    fn patience(&self) -> Duration {
        PATIENCE + PATIENCE_PER_KEY * self.plan.range
    }

    /// Makes a table.
    pub(crate) fn make(&self, lane: &Lane) -> Arc<dyn Subject> {
        (lane.maker)(&self.workload.setup())
    }

    /// Makes a table and fills it.
    pub(crate) fn prepare(
        &self,
        lane: &Lane,
        repetition: usize,
        seed: u64,
    ) -> Result<Live, Trouble> {
        let subject = self.make(lane);
        let begin = clock::now();
        let one = self.workload.prefill_by_one;
        let fill = move |subject: &dyn Subject, plan: &Plan, part: Part| match (one, part.thread) {
            (true, 0) => subject.fill(
                plan,
                Part {
                    thread: 0,
                    threads: 1,
                },
            ),
            (true, _) => Tally::default(),
            (false, _) => subject.fill(plan, part),
        };
        let filled = verify::sum(&self.all("prefill", &subject, Duration::ZERO, fill)?);
        let prefill_ns = clock::ns(clock::now().wrapping_sub(begin)) as u64;
        let entries = (self.workload.churn * self.workload.initial as f64) as u64;
        let churn = move |subject: &dyn Subject, plan: &Plan, part: Part| {
            subject.churn(plan, part, entries)
        };
        let churned = match entries {
            0 => Tally::default(),
            _ => verify::sum(&self.all("churn", &subject, Duration::ZERO, churn)?),
        };
        let mut before = filled.sums;
        before.add(&churned.sums);
        let place = seed ^ (repetition as u64) << 32;
        let cursors = self.streams.iter().map(|stream| stream.cursor(place));
        let numbers = (0..).map(|thread| Numbers::of_thread(1_000 + thread));
        let places = self
            .own_keys
            .iter()
            .map(|keys| Place::new(mix(place) as usize % keys.len()));
        Ok(Live {
            prefill_ns,
            seats: cursors.zip(numbers).collect(),
            places: places.collect(),
            problems: Vec::new(),
            before,
            stream: Tally::default(),
            rates: Vec::new(),
            singles: Vec::new(),
            kept_misses: 0,
            operations: 0,
            elapsed_ns: 0,
            hardware: HardwareCounters::default(),
            latencies: None,
            contention: subject.contention(),
            subject,
        })
    }

    /// One short slice of removing and reinserting.
    fn hot_slice(&self, live: &mut Live) -> Result<(), Trouble> {
        let run_ms = self.workload.duration_ms / self.workload.slices as f64;
        let ticks = |ms: f64| clock::ticks((ms * 1e6) as u64);
        let (warm_ticks, run_ticks) = (ticks(self.workload.warm_ms), ticks(run_ms));
        let (own_keys, places) = (self.own_keys.clone(), live.places.clone());
        let stay = self.workload.law == Law::Single;
        let start = Start::of(self.workload.threads);
        let time = Duration::from_millis((run_ms + self.workload.warm_ms) as u64);
        let reports = self.all(
            "a slice",
            &live.subject,
            time,
            move |subject, plan, part| {
                let mut job = Hot {
                    keys: own_keys[part.thread].clone(),
                    place: places[part.thread],
                    stay,
                    start: start.clone(),
                    warm_ticks,
                    run_ticks,
                };
                let report = subject.hot(plan, part, &mut job);
                (report, job.place)
            },
        )?;
        live.book_hot(reports);
        Ok(())
    }

    /// One short slice.
    pub(crate) fn slice(&self, live: &mut Live, sample: bool) -> Result<(), Trouble> {
        match self.workload.method {
            Method::Hot => self.hot_slice(live),
            Method::Batch(keys) => self.batch_slice(live, keys),
            _ => {
                let reports = self.drive(live, sample, None)?;
                live.book(reports);
                Ok(())
            }
        }
    }

    /// One short slice of lookups in batches and one of single lookups, in turn the one and the other first.
    fn batch_slice(&self, live: &mut Live, keys: usize) -> Result<(), Trouble> {
        let first = live.rates.len().is_multiple_of(2);
        for batched in [first, !first] {
            let reports = self.drive(live, false, batched.then_some(keys))?;
            if batched {
                live.book(reports);
            } else {
                live.book_singles(reports);
            }
        }
        Ok(())
    }

    /// Lets all threads go on with their streams for a short time, or look up in batches what the streams say.
    fn drive(
        &self,
        live: &Live,
        sample: bool,
        batch: Option<usize>,
    ) -> Result<Vec<Driven>, Trouble> {
        let slices = self.workload.slices as f64;
        let run_ms = self.workload.duration_ms / slices;
        let ticks = |ms: f64| clock::ticks((ms * 1e6) as u64);
        let (warm_ticks, run_ticks) = (ticks(self.workload.warm_ms), ticks(run_ms));
        let (streams, seats) = (self.streams.clone(), live.seats.clone());
        let start = Start::of(self.workload.threads);
        let time = Duration::from_millis((run_ms + self.workload.warm_ms) as u64);
        self.all(
            "a slice",
            &live.subject,
            time,
            move |subject, plan, part| {
                let (cursor, numbers) = seats[part.thread].clone();
                let mut job = Drive {
                    stream: streams[part.thread].clone(),
                    cursor,
                    numbers,
                    start: start.clone(),
                    warm_ticks,
                    run_ticks,
                    latencies: sample.then(Latencies::new),
                    batch,
                };
                let report = subject.drive(plan, part, &mut job);
                (report, job.cursor, job.numbers, job.latencies)
            },
        )
    }

    /// Checks everything and gives up the table.
    pub(crate) fn finish(&self, lane: &Lane, live: &Live, seed: u64) -> Result<Verdicts, Trouble> {
        if lane.entry.null {
            return Ok(Verdicts::default());
        }
        let found = self.probe(&live.subject)?;
        let mut booked = live.before;
        booked.add(&live.stream.sums);
        let evidence = Evidence {
            booked,
            found,
            stream: live.stream.counts,
            reported: live.subject.size(),
        };
        let mut verdicts = verify::check(self.workload, &self.plan, &self.drawer, &evidence);
        verdicts.problems.extend(live.problems.iter().cloned());
        if live.kept_misses > 0 {
            verdicts.problems.push(format!(
                "{} of {} lookups missed keys that were there all the time",
                live.kept_misses,
                live.stream.counts.gets()
            ));
        }
        self.audit(&live.subject, seed, &mut verdicts)?;
        Ok(verdicts)
    }

    /// Looks up every key.
    fn probe(&self, subject: &Arc<dyn Subject>) -> Result<Sums, Trouble> {
        let mut found = Sums::default();
        for sums in self.all(
            "the final lookups",
            subject,
            Duration::ZERO,
            |subject, plan, part| subject.probe(plan, part),
        )? {
            found.add(&sums);
        }
        Ok(found)
    }

    /// Whether what was booked is what is there now.
    pub(crate) fn conservation(
        &self,
        subject: &Arc<dyn Subject>,
        booked: &Tally,
    ) -> Result<Verdicts, Trouble> {
        let evidence = Evidence {
            booked: booked.sums,
            found: self.probe(subject)?,
            stream: booked.counts,
            reported: subject.size(),
        };
        Ok(verify::conservation(&self.plan, &evidence))
    }

    /// Operations whose outcome is known.
    pub(crate) fn audit(
        &self,
        subject: &Arc<dyn Subject>,
        seed: u64,
        verdicts: &mut Verdicts,
    ) -> Result<(), Trouble> {
        let operations = AUDITED.min(u64::from(self.plan.range) * 8);
        let audits = self.all(
            "the audit",
            subject,
            Duration::ZERO,
            move |subject, plan, part| subject.audit(plan, part, operations, seed),
        )?;
        for report in audits {
            verdicts.audited += report.audited;
            verdicts.problems.extend(report.problem);
        }
        Ok(())
    }

    /// Whether the threads are where they should be; they are asked where they are.
    pub(crate) fn whereabouts(&self, verdicts: &mut Verdicts) -> Vec<usize> {
        let mut ran_on = self.crew.whereabouts();
        ran_on.truncate(self.workload.threads);
        for (thread, (at, place)) in ran_on.iter().zip(self.crew.places()).enumerate() {
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

impl Live {
    /// Of single lookups beside batches: their rate and their outcomes.
    fn book_singles(&mut self, reports: Vec<Driven>) {
        let mut rate = 0.0;
        for (seat, (report, cursor, numbers, _)) in self.seats.iter_mut().zip(reports) {
            *seat = (cursor, numbers);
            rate += report.operations as f64 / clock::ns(report.ticks) * 1e9;
            self.kept_misses += report.kept_misses;
            self.stream.add(&report.tally);
        }
        self.singles.push(rate);
    }

    fn book(&mut self, reports: Vec<Driven>) {
        let hardware = counters::sum(reports.iter().map(|(report, ..)| report.hardware));
        self.hardware = match self.rates.is_empty() {
            true => hardware,
            false => counters::sum([self.hardware, hardware]),
        };
        let (mut rate, mut longest) = (0.0, 0);
        for (seat, (report, cursor, numbers, latencies)) in self.seats.iter_mut().zip(reports) {
            *seat = (cursor, numbers);
            rate += report.operations as f64 / clock::ns(report.ticks) * 1e9;
            longest = longest.max(report.ticks);
            self.operations += report.operations;
            self.kept_misses += report.kept_misses;
            self.stream.add(&report.tally);
            match (&mut self.latencies, latencies) {
                (Some(all), Some(more)) => all.add(&more),
                (all @ None, more) => *all = more,
                (Some(_), None) => {}
            }
        }
        self.elapsed_ns += clock::ns(longest) as u64;
        self.rates.push(rate);
    }

    fn book_hot(&mut self, reports: Vec<(HotReport, Place)>) {
        let (mut rate, mut longest) = (0.0, 0);
        for (place, (report, at)) in self.places.iter_mut().zip(reports) {
            *place = at;
            rate += report.pairs as f64 / clock::ns(report.ticks) * 1e9;
            longest = longest.max(report.ticks);
            self.operations += report.pairs;
            self.stream.add(&report.tally);
            self.problems.extend(report.problem);
        }
        self.elapsed_ns += clock::ns(longest) as u64;
        self.rates.push(rate);
    }

    /// The median of the short slices: what a hypervisor takes away hits some of them.
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

    /// A stretch of `seats`, cloned for the threads that use them.
    pub(crate) fn seats(&self) -> Vec<(Cursor, Numbers)> {
        self.seats.clone()
    }

    /// Goes on from there.
    pub(crate) fn sit(&mut self, thread: usize, cursor: Cursor, numbers: Numbers) {
        self.seats[thread] = (cursor, numbers);
    }

    /// Adds operations of a stream that was not run in short slices.
    pub(crate) fn book_tally(&mut self, tally: &Tally) {
        self.stream.add(tally);
    }

    /// Outcomes of the stream.
    pub(crate) fn counts(&self) -> crate::record::Counts {
        self.stream.counts
    }

    /// What the locks saw since the table was filled.
    pub(crate) fn contention(&self) -> Option<Contention> {
        let (now, then) = (self.subject.contention()?, self.contention?);
        Some(Contention {
            acquisitions: now.acquisitions - then.acquisitions,
            contended: now.contended - then.contended,
            elided: now.elided - then.elided,
            aborts: now.aborts - then.aborts,
        })
    }
}
