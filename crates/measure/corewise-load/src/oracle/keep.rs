//! `refuse` and `refill`: checks that acknowledged items are not lost.

use serde::Serialize;

use super::{Fleet, OracleConfig, Reply, SizePlan};
use crate::error::LoadError;

/// Counters that `refuse` stores first, for `incr`, `decr` and `touch` on a full server.
const COUNTERS: u32 = 32;
/// Number of items that `refuse` overwrites with values of the same size.
const OVERWRITES: usize = 64;
/// `refuse` gives up when this multiple of the limit is stored and nothing was refused.
pub(super) const NEVER_REFUSED: f64 = 3.0;
/// After the first refusal, `refuse` stores this share of the limit in addition.
const BEYOND: f64 = 0.25;
/// `refill` stores this share of the limit before the flush.
const FIRST_FILL: f64 = 1.2;
/// With at least this limit, the second fill stores [`LARGE_REFILL`] of the limit, otherwise
/// [`SMALL_REFILL`].
const LARGE_LIMIT_BYTES: u64 = 16 << 20;
const LARGE_REFILL: f64 = 0.6;
const SMALL_REFILL: f64 = 0.4;

/// Behaviour of a full server that does not evict.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RefuseReport {
    /// Acknowledged sets of new keys.
    pub stored: u64,
    /// Refused sets of new keys.
    pub refused: u64,
    /// Live bytes at the first refusal, as a share of the limit; absent if nothing was refused.
    pub first_refusal: Option<f64>,
    /// Acknowledged items that were missing when the server was full.
    pub lost: u64,
    /// `incr` commands that failed or returned a wrong number.
    pub incr_failed: u32,
    /// `decr` commands that failed or returned a wrong number.
    pub decr_failed: u32,
    /// `touch` commands that failed.
    pub touch_failed: u32,
    /// Overwrites, each with a value of the same size.
    pub overwrites: u64,
    /// Overwrites that were refused.
    pub overwrites_failed: u64,
    /// Items that were present before these commands and missing after them.
    pub lost_later: u64,
    /// The server's peak resident set, in KiB.
    pub peak_rss_kib: Option<u64>,
}

/// Survival of items that were stored right after `flush_all`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RefillReport {
    /// Items stored before the flush.
    pub flushed: u64,
    /// Flushed items that were still present.
    pub flushed_found: u64,
    /// Items stored after the flush.
    pub stored: u64,
    /// Sets after the flush that the server refused.
    pub refused: u64,
    /// Items stored after the flush that were present at the end.
    pub found: u64,
    /// Their bytes as a share of the limit.
    pub live: f64,
    /// Evictions during the whole check, as the server reports them.
    pub evictions: u64,
}

pub(super) fn refuse(
    config: &OracleConfig,
    fleet: &mut Fleet,
    progress: &mut dyn FnMut(&str),
) -> Result<RefuseReport, LoadError> {
    let limit = config.limit_bytes as f64;
    // Few bytes in flight, so that the first refusal is known to about 2 % of the limit.
    fleet.window = config.limit_bytes / 64;
    let plan = SizePlan::new(config.sizes, config.key_size, config.limit_bytes);
    let mut report = RefuseReport::default();
    store_counters(fleet)?;
    let (mut kept, mut bytes, mut tried) = (Vec::new(), 0, 0);
    let mut first_refusal: Option<u64> = None;
    let mut next = 0..u32::MAX;
    while match first_refusal {
        None => (tried as f64) < NEVER_REFUSED * limit,
        Some(at) => ((tried - at) as f64) < BEYOND * limit,
    } {
        fleet.set_round(&plan, &mut next, &mut |key, stored| {
            tried += plan.bytes(key);
            if stored {
                kept.push(key);
                bytes += plan.bytes(key);
            } else {
                report.refused += 1;
                first_refusal.get_or_insert(tried);
                report.first_refusal.get_or_insert(bytes as f64 / limit);
            }
        })?;
    }
    report.stored = kept.len() as u64;
    progress(&format!(
        "{} stored, {} refused",
        report.stored, report.refused
    ));
    let there = still_there(fleet, &plan, &kept)?;
    report.lost = (kept.len() - there.len()) as u64;
    change_in_place(fleet, &mut report)?;
    overwrite(fleet, &plan, &there, &mut report)?;
    let later = still_there(fleet, &plan, &there)?;
    report.lost_later = (there.len() - later.len()) as u64;
    report.peak_rss_kib = fleet.status_kib("VmHWM");
    Ok(report)
}

/// The keys that are still present.
fn still_there(fleet: &mut Fleet, plan: &SizePlan, keys: &[u32]) -> Result<Vec<u32>, LoadError> {
    let mut there = Vec::new();
    fleet.read_back(plan, &mut keys.iter().copied(), &mut |key, found| {
        if found {
            there.push(key);
        }
    })?;
    Ok(there)
}

/// Initial value of a counter; its number of digits does not change.
const COUNT: u64 = 1_000_000_000;

fn store_counters(fleet: &mut Fleet) -> Result<(), LoadError> {
    for n in 0..COUNTERS {
        let set = format!("set counter:{n} 0 0 10\r\n{COUNT}");
        match fleet.control.ask(&set)? {
            Reply::Stored => {}
            other => return Err(fleet.control.wrong(format!("{other:?} to a set"))),
        }
    }
    Ok(())
}

/// Increments, decrements and touches every counter.
fn change_in_place(fleet: &mut Fleet, report: &mut RefuseReport) -> Result<(), LoadError> {
    for n in 0..COUNTERS {
        let mut fails = |command: &str, right: Reply| {
            fleet
                .control
                .ask(command)
                .map(|reply| u32::from(reply != right))
        };
        report.incr_failed += fails(&format!("incr counter:{n} 7"), Reply::Number(COUNT + 7))?;
        report.decr_failed += fails(&format!("decr counter:{n} 7"), Reply::Number(COUNT))?;
        report.touch_failed += fails(&format!("touch counter:{n} 0"), Reply::Touched)?;
    }
    Ok(())
}

/// Overwrites some of the keys with their current values.
fn overwrite(
    fleet: &mut Fleet,
    plan: &SizePlan,
    there: &[u32],
    report: &mut RefuseReport,
) -> Result<(), LoadError> {
    let step = there.len().div_ceil(OVERWRITES).max(1);
    let mut keys = there.iter().copied().step_by(step);
    let (mut done, mut failed) = (0, 0);
    while fleet.set_round(plan, &mut keys, &mut |_, stored| {
        done += 1;
        failed += u64::from(!stored);
    })? {}
    (report.overwrites, report.overwrites_failed) = (done, failed);
    Ok(())
}

pub(super) fn refill(
    config: &OracleConfig,
    fleet: &mut Fleet,
    progress: &mut dyn FnMut(&str),
) -> Result<RefillReport, LoadError> {
    let limit = config.limit_bytes as f64;
    let share = if config.limit_bytes >= LARGE_LIMIT_BYTES {
        LARGE_REFILL
    } else {
        SMALL_REFILL
    };
    let plan = SizePlan::new(config.sizes, config.key_size, config.limit_bytes);
    let mut report = RefillReport::default();
    let old = store(fleet, &plan, 0, limit * FIRST_FILL, &mut |_| ())?;
    match fleet.control.ask("flush_all")? {
        Reply::Ok => {}
        other => return Err(fleet.control.wrong(format!("{other:?} to flush_all"))),
    }
    let new = store(fleet, &plan, old, limit * share, &mut |stored| {
        report.stored += u64::from(stored);
        report.refused += u64::from(!stored);
    })?;
    report.flushed = u64::from(old);
    progress(&format!("{} stored after the flush", report.stored));
    let mut bytes = 0;
    fleet.read_back(&plan, &mut (old..new), &mut |key, found| {
        report.found += u64::from(found);
        bytes += if found { plan.bytes(key) } else { 0 };
    })?;
    fleet.read_back(&plan, &mut (0..old), &mut |_, found| {
        report.flushed_found += u64::from(found);
    })?;
    report.live = bytes as f64 / limit;
    report.evictions = fleet.sample(0)?.evictions;
    Ok(report)
}

/// Sets keys from `from` on until `bytes` were sent. Returns the first key that was not set.
fn store(
    fleet: &mut Fleet,
    plan: &SizePlan,
    from: u32,
    bytes: f64,
    done: &mut dyn FnMut(bool),
) -> Result<u32, LoadError> {
    let mut left = bytes as i64;
    let mut next = from;
    while left > 0 {
        // The keys end where the bytes end, also within a round.
        let mut keys = std::iter::from_fn(|| {
            (left > 0).then(|| {
                left -= plan.bytes(next) as i64;
                next += 1;
                next - 1
            })
        });
        fleet.set_round(plan, &mut keys, &mut |_, stored| done(stored))?;
    }
    Ok(next)
}
