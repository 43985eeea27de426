//! `refuse` and `refill`: acknowledged items that must not be lost.

use serde::Serialize;

use super::{Fleet, OracleConfig, Plan, Reply};
use crate::error::LoadError;

/// Counters that `refuse` stores first, for `incr`, `decr` and `touch` on a full server.
const COUNTERS: u32 = 32;
/// Items that `refuse` overwrites with values of their own size.
const OVERWRITES: usize = 64;
/// `refuse` gives up when this many limits are stored and nothing was refused.
pub(super) const NEVER_REFUSED: f64 = 3.0;
/// After the first refusal `refuse` goes on storing for this share of the limit.
const BEYOND: f64 = 0.25;
/// What `refill` stores before the flush and after it, as shares of the limit.
const FIRST_FILL: f64 = 1.2;
/// From this limit on the second fill takes [`LARGE_REFILL`] of the limit, below [`SMALL_REFILL`].
const LARGE_LIMIT_BYTES: u64 = 16 << 20;
const LARGE_REFILL: f64 = 0.6;
const SMALL_REFILL: f64 = 0.4;

/// What a server that does not evict did when it was full.
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
    /// Of the counters: `incr` that failed or answered a wrong number.
    pub incr_failed: u32,
    /// The same for `decr`.
    pub decr_failed: u32,
    /// The same for `touch`.
    pub touch_failed: u32,
    /// Overwrites, each with a value of the same size.
    pub overwrites: u64,
    /// Overwrites that were refused.
    pub overwrites_failed: u64,
    /// Items that were there before these commands and missing after them.
    pub lost_later: u64,
    /// The largest resident set of the server's life, in KiB.
    pub peak_rss_kib: Option<u64>,
}

/// What survived of the items that were stored right after `flush_all`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RefillReport {
    /// Items stored before the flush.
    pub flushed: u64,
    /// Flushed items that were still there.
    pub flushed_found: u64,
    /// Items stored after the flush.
    pub stored: u64,
    /// Sets after the flush that the server refused.
    pub refused: u64,
    /// Items stored after the flush that were there at the end.
    pub found: u64,
    /// Their bytes as a share of the limit.
    pub live: f64,
    /// Evictions by the server's account, over the whole check.
    pub evictions: u64,
}

pub(super) fn refuse(
    config: &OracleConfig,
    fleet: &mut Fleet,
    progress: &mut dyn FnMut(&str),
) -> Result<RefuseReport, LoadError> {
    let limit = config.limit_bytes as f64;
    // Few bytes in flight: the first refusal is then known to about 2 % of the limit.
    fleet.window = config.limit_bytes / 64;
    let plan = Plan::new(config.sizes, config.key_size, config.limit_bytes);
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

/// The keys that are there.
fn still_there(fleet: &mut Fleet, plan: &Plan, keys: &[u32]) -> Result<Vec<u32>, LoadError> {
    let mut there = Vec::new();
    fleet.read_back(plan, &mut keys.iter().copied(), &mut |key, found| {
        if found {
            there.push(key);
        }
    })?;
    Ok(there)
}

/// What counters hold before `incr`; the number of digits does not change.
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

/// Changes every counter up and down again, and touches it.
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

/// Overwrites some of the keys with the values that they have.
fn overwrite(
    fleet: &mut Fleet,
    plan: &Plan,
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
    let share = match config.limit_bytes >= LARGE_LIMIT_BYTES {
        true => LARGE_REFILL,
        false => SMALL_REFILL,
    };
    let plan = Plan::new(config.sizes, config.key_size, config.limit_bytes);
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

/// Sets keys from `from` on until `bytes` were sent; the first key that was not.
fn store(
    fleet: &mut Fleet,
    plan: &Plan,
    from: u32,
    bytes: f64,
    done: &mut dyn FnMut(bool),
) -> Result<u32, LoadError> {
    let mut left = bytes as i64;
    let mut next = from;
    while left > 0 {
        // The keys stop where the bytes do, within a round too.
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
