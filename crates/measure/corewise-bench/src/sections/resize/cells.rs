//! Cells of the section `resize`: lookups, or a mix with updates, in a table that is resized back
//! and forth without pause (\[ATC11\] §6.1 and §4.1).
//!
//! ```text
//! repetition   make and fill a table, and a second one of its kind
//!              [ moving ][ small ][ elsewhere ][ large ]   a round: all variants, order drawn anew
//!              [ large ][ elsewhere ][ moving ][ small ]
//!              ...
//!              look up every key, audit, drop
//! ```
//!
//! Readers look up random keys of a table that holds all of them; one miss voids the row. In a mix
//! they also insert and remove. `Small` and `Large` are the table at rest at its two sizes.
//! `Moving` is the same table, with the same entries in the same places, while an additional thread
//! resizes it. Each variant is a cell; the cell of `Moving` has the summary. The paired ratios are
//! of variants of one round.
//!
//! The mix, and what biases the rates, are in `docs/METHODOLOGY.md`.

use std::sync::Arc;
use std::time::Duration;

use corewise_measure::stats::{Ratio, Spread};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::ResizeSummary;
use super::worker::{self, Readers, ResizeJob, ResizeReport};
use crate::cell_run::{CellRun, Done, Measured};
use crate::clock;
use crate::contender::{CellContext, PhaseError, RunningTable};
use crate::dyn_table::DynTable;
use crate::error::BenchError;
use crate::in_turn::{self, Turn};
use crate::plan::Plan;
use crate::record::{Cell, Interval, Slice};
use crate::verify;
use crate::work::{Drive, DriveReport, Part, drive};
use crate::workload::{Buckets, Workload};

/// Prefix of the description of the cell of [`Moving`].
pub(super) const MOVING: &str = "resizing between";

/// What the additional thread does, and which table the readers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Small,
    Large,
    Moving,
    Elsewhere,
}

use Variant::{Elsewhere, Large, Moving, Small};

impl Variant {
    fn words(self) -> &'static str {
        match self {
            Small => "at the smaller size",
            Large => "at the larger size",
            Moving => "while it was resized",
            Elsewhere => "while another was resized",
        }
    }
}

/// All variants, in the order of [`Variant`].
const ALL: [Variant; 4] = [Small, Large, Moving, Elsewhere];

/// A table and a second one of its kind, both filled.
struct Pair {
    live: RunningTable,
    other: Arc<dyn DynTable>,
}

/// The report of a reader, or of the resizing thread.
type Answer = (Option<(DriveReport, Drive)>, Option<ResizeReport>);

/// The result of a variant in a round.
#[derive(Clone, Debug, Default)]
struct Ran {
    rate: f64,
    /// The operations of all readers.
    reads: DriveReport,
    resizes: ResizeReport,
    /// Buckets at rest, at the beginning and at the end.
    buckets: usize,
    buckets_after: usize,
}

/// The results of a round, by [`Variant`].
type Round = [Ran; 4];

/// Measures the three cells of a workload.
pub(super) fn run(run: &mut CellRun<'_, '_>, buckets: Buckets) -> Result<(), BenchError> {
    let (task, contenders) = (run.task, run.contenders);
    let crowd = Workload {
        threads: task.workload.threads + 1,
        ..task.workload.clone()
    };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(run.runner.seed ^ 0x8e512e);
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); contenders.len()];
    let mut cells = cells(&task.workload, &run.runner.cell_context(&crowd)?);
    cells[Moving as usize].left_out = run.left_out();
    let at_rest =
        |variant: Variant| Measured::new(cells[variant as usize].clone(), contenders.len());
    let (mut small, mut large, mut own_cpu) = (at_rest(Small), at_rest(Large), false);
    let mut moving = in_turn::measure(run, &crowd, |turn| {
        own_cpu = has_own_cpu(turn.context);
        let (done, whole) = repetition_of(turn, buckets, &mut rng)?;
        let slice = |variant: Variant| slice(variant, &cells[variant as usize], &done, &whole);
        small.add_slice(turn.at, slice(Small));
        large.add_slice(turn.at, slice(Large));
        rounds[turn.at].extend_from_slice(&done);
        Ok(Done {
            slice: slice(Moving),
            latencies: None,
        })
    })?;
    moving.cell = cells[Moving as usize].clone();
    for (at, accumulator) in moving.accumulators.iter_mut().enumerate() {
        if let Some(summary) = summary(&rounds[at], own_cpu) {
            accumulator.fields.resize = Some(summary);
        }
        // Any problem voids all three cells, since they share one table.
        for other in [&mut small.accumulators[at], &mut large.accumulators[at]] {
            (other.out, other.problems) = (accumulator.out, accumulator.problems.clone());
        }
    }
    for measured in [small, large, moving] {
        run.write(measured)?;
    }
    Ok(())
}

/// Returns the record of a variant, by that of all variants.
fn slice(variant: Variant, cell: &Cell, rounds: &[Round], slice: &Slice) -> Slice {
    let runs = || rounds.iter().map(|round| &round[variant as usize]);
    let rates: Vec<f64> = runs().map(|ran| ran.rate).collect();
    let elapsed_ns = |ran: &Ran| clock::ns(ran.reads.ticks) as u64;
    Slice {
        cell: cell.id.clone(),
        rate: Spread::of(rates.iter().copied()).map_or(f64::NAN, |spread| spread.median),
        rates,
        operations: runs().map(|ran| ran.reads.operations).sum(),
        elapsed_ns: runs().map(elapsed_ns).sum(),
        counts: verify::sum(runs().map(|ran| &ran.reads.tally)).counts,
        contention: None, // it is that of all variants
        ..slice.clone()
    }
}

/// Returns the cells, each with the description of its variant.
fn cells(workload: &Workload, context: &CellContext<'_>) -> [Cell; 3] {
    let [moving, small, large] = <[String; 3]>::try_from(workload.ids()).unwrap_or_default();
    let suffix = |id: &str| id.rsplit_once("b=").map_or("", |(_, b)| b).to_owned();
    let cell = |id: String, variant: String, threads: usize| {
        let places = context.pool.places().iter().take(threads).flatten();
        let mut cell = workload.cell(places.map(|cpu| cpu.0).collect());
        (cell.id, cell.variant) = (id, variant);
        cell
    };
    let words = [&small, &large].map(|id| format!("{} buckets", suffix(id)));
    let both = format!("{MOVING} {} and {} buckets", suffix(&small), suffix(&large));
    let readers = workload.threads;
    let [at_small, at_large] = words;
    [
        cell(small, at_small, readers),
        cell(large, at_large, readers),
        cell(moving, both, readers + 1),
    ]
}

/// Returns whether the last thread shares its CPU with no other.
fn has_own_cpu(context: &CellContext<'_>) -> bool {
    match context.pool.places() {
        [readers @ .., Some(last)] => !readers.contains(&Some(*last)),
        unpinned => std::thread::available_parallelism().is_ok_and(|n| unpinned.len() <= n.get()),
    }
}

fn repetition_of(
    turn: &Turn<'_>,
    buckets: Buckets,
    rng: &mut Xoshiro256PlusPlus,
) -> Result<(Vec<Round>, Slice), PhaseError> {
    let (context, contender) = (turn.context, turn.contender);
    let (number, seed) = (turn.repetition, turn.seed);
    let mut pair = Pair {
        live: context.prepare(contender, number, seed)?,
        other: context.prepare(contender, number, seed)?.dyn_table,
    };
    let mut rounds = Vec::new();
    let mut order = ALL;
    for _ in 0..context.workload.slices {
        let mut round = Round::default();
        order.shuffle(rng);
        for variant in order {
            round[variant as usize] = run_variant(context, &mut pair, variant, buckets)?;
        }
        rounds.push(round);
    }
    let mut checks = context.finish(contender, &mut pair.live, seed ^ number as u64)?;
    checks.problems.extend(problems(&rounds, buckets));
    let slice = context.record(contender, number, &pair.live, checks);
    Ok((rounds, slice))
}

/// Runs one variant: the resizing thread brings the table to its size, then the readers run.
fn run_variant(
    context: &CellContext<'_>,
    pair: &mut Pair,
    variant: Variant,
    buckets: Buckets,
) -> Result<Ran, PhaseError> {
    let size = match variant {
        Small => Some(buckets.small),
        Large | Elsewhere => Some(buckets.large),
        Moving => None,
    };
    let rest = move |dyn_table: &dyn DynTable, _: &Plan, part: Part| {
        let size = size.filter(|_| part.thread + 1 == part.threads)?;
        dyn_table.resize_to(size)?;
        dyn_table.buckets()
    };
    let came_to = context.all("a resize", &pair.live.dyn_table, Duration::ZERO, rest)?;
    let mut ran = read(context, pair, variant, buckets)?;
    ran.buckets = came_to.into_iter().flatten().next().unwrap_or(0);
    ran.buckets_after = pair.live.dyn_table.buckets().unwrap_or(0);
    Ok(ran)
}

fn read(
    context: &CellContext<'_>,
    pair: &mut Pair,
    variant: Variant,
    buckets: Buckets,
) -> Result<Ran, PhaseError> {
    let readers = context.workload.threads - 1;
    let resizes = matches!(variant, Moving | Elsewhere);
    let times = context.times(readers + usize::from(resizes));
    let job = ResizeJob {
        start: times.start.clone(),
        readers: Readers::of(readers),
        buckets: (buckets.small, buckets.large),
    };
    let (drives, other) = (context.drives(&pair.live), pair.other.clone());
    let answers = context.all(
        "lookups",
        &pair.live.dyn_table,
        context.slice_limit(),
        move |dyn_table, plan, part| {
            if part.thread == readers {
                let resized = match variant {
                    Small | Large => None,
                    Moving => resize_table(dyn_table, &job),
                    Elsewhere => resize_table(&*other, &job),
                };
                return (None, resized);
            }
            let _at_it = job.readers.leave_at_end();
            let mut drive = drives(&times, part);
            let report = dyn_table.run(plan, part, &mut drive);
            (Some((report, drive)), None)
        },
    )?;
    Ok(add_up(&mut pair.live, answers))
}

/// Resizes a table back and forth until all readers are done. `None` if it cannot resize on
/// request.
fn resize_table(dyn_table: &dyn DynTable, job: &ResizeJob) -> Option<ResizeReport> {
    dyn_table.buckets()?;
    let resize_to = |buckets| {
        dyn_table.resize_to(buckets);
    };
    let buckets = || dyn_table.buckets().unwrap_or(0);
    Some(worker::resize(resize_to, buckets, job))
}

fn add_up(live: &mut RunningTable, answers: Vec<Answer>) -> Ran {
    let (read, resized): (Vec<_>, Vec<_>) = answers.into_iter().unzip();
    let (reports, drives): (Vec<_>, Vec<_>) = read.into_iter().flatten().unzip();
    let reads = drive::total(&reports);
    live.store_positions(drives.into_iter());
    live.stream.add(&reads.tally);
    Ran {
        rate: reports.iter().map(DriveReport::rate).sum(),
        reads,
        resizes: resized.into_iter().flatten().next().unwrap_or_default(),
        ..Ran::default()
    }
}

/// Returns the problems of rounds, besides those of any table.
fn problems(rounds: &[Round], buckets: Buckets) -> Vec<String> {
    let mut problems = Vec::new();
    for variant in ALL {
        let runs = || rounds.iter().map(|round| &round[variant as usize]);
        let misses: u64 = runs().map(|ran| ran.reads.kept_misses).sum();
        if misses > 0 {
            let gets: u64 = runs().map(|ran| ran.reads.tally.counts.gets()).sum();
            problems.push(format!(
                "{misses} of {gets} lookups missed keys that were there all the time, {}",
                variant.words()
            ));
        }
        let resizes: u64 = runs().map(|ran| ran.resizes.resizes).sum();
        let unmoved: u64 = runs().map(|ran| ran.resizes.unmoved).sum();
        if unmoved > 0 {
            problems.push(format!(
                "{unmoved} of {resizes} resizes left as many buckets as there were"
            ));
        }
    }
    for variant in [Small, Large] {
        let runs = || rounds.iter().map(|round| &round[variant as usize]);
        if let Some(ran) = runs().find(|ran| ran.buckets_after != ran.buckets) {
            problems.push(format!(
                "it went from {} to {} buckets by itself, {}",
                ran.buckets,
                ran.buckets_after,
                variant.words()
            ));
        }
    }
    let (small, large) = came_to(rounds);
    if small >= large {
        problems.push(format!(
            "asked for {} and {} buckets it took {small} and {large}",
            buckets.small, buckets.large
        ));
    }
    problems
}

/// Returns the most buckets at the smaller size and the fewest at the larger.
fn came_to(rounds: &[Round]) -> (usize, usize) {
    let of = |variant: Variant| {
        rounds
            .iter()
            .map(move |round| round[variant as usize].buckets)
    };
    (of(Small).max().unwrap_or(0), of(Large).min().unwrap_or(0))
}

fn summary(rounds: &[Round], own_cpu: bool) -> Option<ResizeSummary> {
    let rates = |variant: Variant| rounds.iter().map(move |round| round[variant as usize].rate);
    let spread = |variant| Spread::of(rates(variant)).map(Interval::from);
    let ratio = |one, other| Ratio::paired(rates(one).zip(rates(other))).map(Interval::from);
    let (small, large) = (spread(Small)?, spread(Large)?);
    let (slower, faster) = if small.value <= large.value {
        (Small, Large)
    } else {
        (Large, Small)
    };
    let (to_slower, to_faster) = (ratio(Moving, slower)?, ratio(Moving, faster)?);
    let moving = || rounds.iter().map(|round| round[Moving as usize].resizes);
    let per_s = moving().map(|r| r.resizes as f64 / clock::ns(r.ticks) * 1e9);
    let busy = moving().map(|r| r.busy_ticks as f64 / r.ticks as f64);
    Some(ResizeSummary {
        buckets: came_to(rounds),
        pairs: rounds.len(),
        small,
        large,
        resizing: spread(Moving)?,
        to_slower,
        to_faster,
        machine: ratio(Elsewhere, Large)?,
        resizes_per_s: Spread::of(per_s)?.into(),
        busy_share: Spread::of(busy)?.into(),
        own_cpu,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Buckets = Buckets { small: 4, large: 8 };

    fn round(rates: [f64; 4]) -> Round {
        rates.map(|rate| Ran {
            rate,
            resizes: ResizeReport {
                resizes: 4,
                unmoved: 0,
                busy_ticks: 90,
                ticks: 100,
            },
            buckets: 8,
            buckets_after: 8,
            ..Ran::default()
        })
    }

    #[test]
    fn ratios_are_to_the_slower_and_the_faster_size_whichever_that_is() {
        for rates in [[1.0, 2.0, 1.5, 1.8], [2.0, 1.0, 1.5, 0.9]] {
            let summary = summary(&vec![round(rates); 15], true).expect("rates");
            assert!((summary.to_slower.value - 1.5).abs() < 1e-9);
            assert!((summary.to_faster.value - 0.75).abs() < 1e-9);
            assert!((summary.machine.value - 0.9).abs() < 1e-9);
            assert!((summary.busy_share.value - 0.9).abs() < 1e-9);
        }
        assert!(summary(&[], true).is_none());
    }

    #[test]
    fn misses_and_resizes_that_do_nothing_are_problems() {
        let mut bad = round([1.0; 4]);
        (
            bad[Small as usize].buckets,
            bad[Small as usize].buckets_after,
        ) = (4, 4);
        let rounds = std::slice::from_ref;
        assert_eq!(problems(rounds(&bad), ASKED), Vec::<String>::new());
        bad[Moving as usize].reads.tally.counts.get_misses = 1; // of a key that is updated
        assert_eq!(problems(rounds(&bad), ASKED), Vec::<String>::new());
        bad[Moving as usize].reads.kept_misses = 1;
        bad[Elsewhere as usize].resizes.unmoved = 2;
        bad[Small as usize].buckets = 8;
        bad[Large as usize].buckets_after = 16;
        let said = problems(&[bad], ASKED).join("; ");
        for word in [
            "1 of 1 lookups",
            "2 of 4 resizes",
            "8 and 8",
            "from 8 to 4 buckets by itself, at the smaller size",
            "from 8 to 16 buckets by itself, at the larger size",
        ] {
            assert!(said.contains(word), "{said}");
        }
    }
}
