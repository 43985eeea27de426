//! Statistics. One [`table`] of metrics is printed by `stats` of memcached, by `INFO` of Redis, and
//! for Prometheus, which fetches it from the [responder](http).
//!
//! Each loop counts in plain integers and publishes them once a turn, before its replies leave: a
//! client that has received a reply finds its request counted. Publishing is a plain store to
//! memory that no other thread writes.
//!
//! # Guarantees
//!
//! 1. Counters only grow. A reset keeps what they were as the baseline, which `stats` and `INFO`
//!    subtract; Prometheus is told the counters themselves, so that none ever falls.
//! 2. The lock of the baseline orders all reads of counters, so no baseline exceeds the counters
//!    from which it is subtracted.

pub(crate) mod health;
pub(crate) mod http;
mod keyspace;
mod prometheus;
mod rates;
mod series;
mod table;
#[cfg(test)]
mod tests;
mod text;

use crate::classes::{COLUMNS, Sums};
use crate::commands::CommandSums;
use crate::process::{self, Usage};
use crate::shared::Shared;
use corewise_atomic::mutant;
use corewise_atomic::sync::atomic::Ordering;
use corewise_engine::{ClassStats, Engine, EngineStats};
use corewise_ops::{Absence, Now, Outcome};
use corewise_wire::Tally;
pub(crate) use prometheus::{Format, exposition};
pub(crate) use rates::Rates;
use rates::{Totals, TotalsGrowth};
use series::Series;
use std::cell::OnceCell;
pub(crate) use table::{Counters, Published, REDIS_VERSION};
use text::Section;
pub(crate) use text::{Sections, info, stats};

/// One row of the table.
struct Metric {
    /// Its name in `stats`.
    stats: Option<&'static str>,
    /// Its section and its name in `INFO`.
    info: Option<(Section, &'static str)>,
    /// What it is for Prometheus.
    prom: Option<Sample>,
    reading: Reading,
}

/// A sample of a family of Prometheus' metrics.
#[derive(Clone, Copy)]
struct Sample {
    family: &'static str,
    labels: Option<&'static str>,
    /// What to divide the value by to get the base unit.
    divisor: Option<u32>,
    /// What the family means, in its first row only.
    help: Option<&'static str>,
}

/// How a metric is read.
enum Reading {
    /// A number that only grows.
    Counter(fn(&Source<'_>) -> u64),
    /// A gauge or a text; `None` is not printed.
    Other(fn(&Source<'_>) -> Option<String>),
    /// Numbers with labels, for Prometheus only.
    Series(fn(&Source<'_>) -> Series),
}

/// What metrics are read from.
pub(crate) struct Source<'s> {
    shared: &'s Shared,
    now: Now,
    engine_name: &'static str,
    memory_limit: u64,
    counts: Counters,
    commands: CommandSums,
    engine: EngineStats,
    growth: TotalsGrowth,
    /// Present for Prometheus only.
    classes: Vec<ClassStats>,
    usage: OnceCell<Option<Usage>>,
}

/// What counters were at the last reset.
#[derive(Default)]
pub(crate) struct Baseline {
    /// A number for each metric.
    metrics: Vec<u64>,
    classes: Vec<ClassStats>,
    counts: Sums,
    commands: CommandSums,
}

impl<'s> Source<'s> {
    fn of<E: Engine>(shared: &'s Shared, engine: &E, now: Now) -> Self {
        let (counts, commands) = (shared.counters(), shared.command_sums());
        let totals = totals(&counts, &commands);
        Self {
            shared,
            now,
            engine_name: engine.name(),
            memory_limit: engine.memory_limit(),
            counts,
            commands,
            engine: engine.stats(),
            growth: shared.rates.growth(now.ms, totals),
            classes: Vec::new(),
            usage: OnceCell::new(),
        }
    }

    /// What the process has used so far, if the system tells.
    fn usage(&self) -> Option<&Usage> {
        let usage = self.usage.get_or_init(|| process::usage().ok());
        usage.as_ref()
    }

    /// Bytes of the process that are resident.
    fn resident(&self) -> u64 {
        self.usage().map_or(0, |usage| usage.resident_bytes)
    }

    /// The most memory that items and tables have taken, as far as it was looked at.
    fn peak(&self) -> u64 {
        note_peak(self.shared, self.engine.bytes)
    }
}

fn totals(counts: &Counters, commands: &CommandSums) -> Totals {
    [commands.calls(), counts.bytes_read, counts.bytes_written]
}

/// Records how much memory is used, and returns the most that was.
fn note_peak(shared: &Shared, bytes: u64) -> u64 {
    // Relaxed: a statistic.
    shared
        .peak_bytes
        .fetch_max(bytes, Ordering::Relaxed)
        .max(bytes)
}

/// Takes a sample of what changes with time. Called every half a second.
pub(crate) fn sample<E: Engine>(shared: &Shared, engine: &E, now: Now) {
    let totals = totals(&shared.counters(), &shared.command_sums());
    shared.rates.note(now.ms, totals);
    note_peak(shared, engine.stats().bytes);
}

/// Begins all counts anew: `stats reset` of memcached and `CONFIG RESETSTAT` of Redis.
pub(crate) fn reset<E: Engine>(shared: &Shared, engine: &E, now: Now) {
    if mutant!("resets_totals") {
        let none = Counters::default();
        return shared
            .loops
            .iter()
            .for_each(|one| one.counts.publish(&none));
    }
    let mut base = shared.baseline.lock();
    let source = Source::of(shared, engine, now);
    let totals = table::METRICS.iter().map(|metric| match metric.reading {
        Reading::Counter(read) => read(&source),
        Reading::Other(_) | Reading::Series(_) => 0,
    });
    base.metrics = totals.collect();
    base.classes = engine.size_classes();
    base.counts = shared.class_sums();
    base.commands = shared.command_sums();
    shared.prefixes.lock().clear();
}

/// The metrics that are wanted, with their values, counters since the last reset.
fn values<E: Engine>(
    shared: &Shared,
    engine: &E,
    now: Now,
    is_wanted: impl Fn(&Metric) -> bool,
) -> Vec<(&'static Metric, Option<String>)> {
    let metrics = table::METRICS.iter().enumerate();
    let metrics = metrics.filter(|(_, metric)| is_wanted(metric));
    let base = shared.baseline.lock();
    let source = Source::of(shared, engine, now);
    let values = metrics.map(|(index, metric)| match metric.reading {
        Reading::Counter(read) => {
            let before = base.metrics.get(index).copied().unwrap_or(0);
            let since = read(&source).saturating_sub(before);
            (metric, Some(since.to_string()))
        }
        Reading::Other(read) => (metric, read(&source)),
        Reading::Series(_) => (metric, None),
    });
    values.collect()
}

/// The counts of all commands since the last reset.
fn command_sums(shared: &Shared) -> CommandSums {
    let base = shared.baseline.lock();
    shared.command_sums().since(&base.commands)
}

/// The statistics of the size classes that are in use, and the loops' counts in them, since the
/// last reset.
pub(crate) fn classes<E: Engine>(shared: &Shared, engine: &E) -> Vec<(ClassStats, [u64; COLUMNS])> {
    let base = shared.baseline.lock();
    let sums = shared.class_sums();
    let mut classes = engine.size_classes();
    for class in &mut classes {
        let before = base
            .classes
            .iter()
            .find(|before| before.class == class.class);
        let before = before.copied().unwrap_or_default();
        for (count, before) in [
            (&mut class.evictions, before.evictions),
            (&mut class.evicted_unfetched, before.evicted_unfetched),
            (
                &mut class.evicted_with_deadline,
                before.evicted_with_deadline,
            ),
            (&mut class.reclaimed, before.reclaimed),
            (&mut class.expired_unfetched, before.expired_unfetched),
        ] {
            *count = count.saturating_sub(before);
        }
    }
    classes.retain(|class| class.items != 0 || class.evictions != 0);
    let counts = |class: &ClassStats| {
        let row = (class.class as usize).wrapping_sub(1);
        let of = |sums: &Sums| sums.get(row).copied().unwrap_or_default();
        let (total, before) = (of(&sums), of(&base.counts));
        std::array::from_fn(|column| total[column].saturating_sub(before[column]))
    };
    classes
        .into_iter()
        .map(|class| (class, counts(&class)))
        .collect()
}

impl Counters {
    /// Counts one completed operation.
    #[inline]
    pub(crate) fn count(&mut self, tally: Tally, outcome: &Outcome<'_>) {
        self.operations += 1;
        // The most frequent one.
        if tally == Tally::Get
            && let Outcome::Found(_) = outcome
        {
            self.cmd_get += 1;
            self.get_hits += 1;
            return;
        }
        // A call would save and restore what the caller has.
        match tally {
            Tally::None => {}
            Tally::Store => self.count_store(outcome),
            _ => self.count_other(tally, outcome),
        }
    }

    #[inline(never)]
    fn count_other(&mut self, tally: Tally, outcome: &Outcome<'_>) {
        match tally {
            Tally::None | Tally::Store => {} // not counted, or before
            Tally::Get => self.count_lookup(1, 0, outcome),
            Tally::Touch => self.count_lookup(0, 1, outcome),
            Tally::Gat => self.count_lookup(1, 1, outcome),
            Tally::Cas => {
                self.count_store(outcome);
                self.cas_badval += u64::from(matches!(outcome, Outcome::Exists));
                count_found(&mut self.cas_hits, &mut self.cas_misses, outcome);
            }
            Tally::GetSet => {
                self.count_lookup(1, 0, outcome);
                self.count_store(outcome);
            }
            Tally::Delete => count_found(&mut self.delete_hits, &mut self.delete_misses, outcome),
            Tally::Incr => count_found(&mut self.incr_hits, &mut self.incr_misses, outcome),
            Tally::Decr => count_found(&mut self.decr_hits, &mut self.decr_misses, outcome),
            Tally::Refused => self.store_too_large += 1,
            Tally::Unread => self.store_no_memory += 1,
        }
    }

    /// Counts a look-up as `gets` and as `touches`, each 0 or 1.
    #[inline]
    fn count_lookup(&mut self, gets: u64, touches: u64, outcome: &Outcome<'_>) {
        self.cmd_get += gets;
        self.cmd_touch += touches;
        match outcome {
            Outcome::Edited { old: Some(_), .. } => self.get_hits += gets,
            Outcome::Edited { old: None, .. } => self.get_misses += gets,
            Outcome::Sorted { is_found: true, .. } | Outcome::Filter { is_found: true, .. } => {
                self.get_hits += gets;
            }
            Outcome::Sorted { .. } | Outcome::Filter { .. } => self.get_misses += gets,
            // If it is of the wrong kind, the key has an item, which is what Redis counts.
            Outcome::Found(_) | Outcome::WrongKind => {
                self.get_hits += gets;
                self.touch_hits += touches;
            }
            Outcome::Missing(absence) => {
                self.get_misses += gets;
                self.touch_misses += touches;
                self.get_expired += u64::from(*absence == Absence::Expired);
                self.get_flushed += u64::from(*absence == Absence::Flushed);
            }
            _ => {}
        }
    }

    #[inline]
    fn count_store(&mut self, outcome: &Outcome<'_>) {
        self.cmd_set += 1;
        match outcome {
            Outcome::TooLarge => self.store_too_large += 1,
            Outcome::OutOfMemory => self.store_no_memory += 1,
            _ => {}
        }
    }
}

/// Counts whether an operation that writes found its item.
fn count_found(hits: &mut u64, misses: &mut u64, outcome: &Outcome<'_>) {
    match outcome {
        Outcome::Stored(_) | Outcome::Deleted | Outcome::Counter { .. } => *hits += 1,
        Outcome::Missing(_) | Outcome::WrongKind => *misses += 1,
        _ => {}
    }
}
