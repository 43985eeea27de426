//! A run from start to end: connect, prefill, warm up, then rounds of slices.
//!
//! ```text
//! round   [ B ][ A ][ floor ] [ A ][ floor ][ B ] ...      order drawn anew
//! slice   load, drain | cpu? | load, drain | cpu?
//!         discarded            measured
//! ```

use std::time::Duration;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::clients::{Clients, Endpoint};
use crate::codec::Codec;
use crate::config::{LoadConfig, LoadMode, Target};
use crate::driver::Work;
use crate::error::LoadError;
use crate::load_stats::LoadStats;
use crate::measured_target::{MeasuredTarget, TargetRole};
use crate::report::{Report, SliceReport};
use corewise_measure::draw::mix;
use corewise_measure::machine::{Machine, Memory};

/// Time for the server to go to sleep after its last reply, so that the scheduler has charged all
/// of its CPU time.
const SETTLE: Duration = Duration::from_millis(1);
/// Maximum number of sets in a prefill batch, and maximum number of bytes.
const PREFILL_BATCH: u32 = 64;
const PREFILL_BATCH_BYTES: u32 = 256 << 10;

/// Runs the load and returns the report. `progress` occasionally gets a line.
///
/// # Errors
///
/// [`LoadError::Config`] before anything is started; any other error later. A wrong reply ends the
/// run: at once if the stream can no longer be followed, otherwise at the end of its slice.
pub fn run(config: &LoadConfig, progress: &mut dyn FnMut(&str)) -> Result<Report, LoadError> {
    config.validate()?;
    corewise_measure::machine::raise_file_limit();
    let machine = Machine::look();
    let mut measured_targets = measured_targets(config)?;
    one_source(&mut measured_targets);
    let endpoints: Vec<Endpoint> = measured_targets
        .iter()
        .map(|measured| endpoint(config, measured))
        .collect();
    progress(&format!(
        "opening {} connections to each of {} targets",
        config.connections,
        measured_targets.len()
    ));
    let clients = Clients::start(config, endpoints)?;
    if config.prefill {
        prefill(config, &clients, &measured_targets, progress)?;
    }
    warm_up(config, &clients, &measured_targets, progress)?;
    let before: Vec<_> = measured_targets.iter().map(MeasuredTarget::times).collect();
    let slices = rounds(config, &clients, &mut measured_targets, progress)?;
    for (measured, before) in measured_targets.iter_mut().zip(&before) {
        measured.memory = measured.target.pid.map(Memory::of).unwrap_or_default();
        let after = measured.times();
        measured.kernel_share = after.kernel_share(before);
        measured.lock_wait_us = after.lock_wait_us(before);
    }
    Ok(Report::new(config, machine, &measured_targets, slices))
}

fn measured_targets(config: &LoadConfig) -> Result<Vec<MeasuredTarget>, LoadError> {
    let mut measured_targets = vec![MeasuredTarget::server(TargetRole::A, &config.target)?];
    if let Some(vs) = &config.vs {
        measured_targets.push(MeasuredTarget::server(TargetRole::B, vs)?);
    }
    let Some(options) = &config.floor else {
        return Ok(measured_targets);
    };
    measured_targets.push(MeasuredTarget::floor(
        TargetRole::Floor,
        config,
        options,
        &config.target,
    )?);
    match &config.vs {
        Some(vs) if needs_own_floor(&config.target, vs) => {
            measured_targets.push(MeasuredTarget::floor(
                TargetRole::FloorB,
                config,
                options,
                vs,
            )?);
        }
        _ => {}
    }
    Ok(measured_targets)
}

/// Whether the kernel's share may differ between two targets.
fn needs_own_floor(a: &Target, b: &Target) -> bool {
    let family = |t: &Target| std::mem::discriminant(&t.address);
    a.protocol != b.protocol || family(a) != family(b)
}

/// If one process offers only ticks, all are read in ticks.
fn one_source(measured_targets: &mut [MeasuredTarget]) {
    let coarse = measured_targets
        .iter()
        .filter_map(|measured| measured.meter)
        .any(|meter| meter.source() == crate::cpu::CpuSource::Ticks);
    if coarse {
        for meter in measured_targets
            .iter_mut()
            .filter_map(|measured| measured.meter.as_mut())
        {
            *meter = meter.with_ticks();
        }
    }
}

fn endpoint(config: &LoadConfig, measured: &MeasuredTarget) -> Endpoint {
    let codec = Codec::new(config, measured.target.protocol, !measured.is_floor());
    Endpoint {
        address: measured.target.address.clone(),
        codec,
    }
}

fn work(config: &LoadConfig, ns: u64) -> Work {
    match config.mode {
        LoadMode::Closed => Work::Closed {
            ns,
            pipeline: config.pipeline,
        },
        LoadMode::Open {
            rate,
            arrivals,
            max_outstanding,
        } => Work::Open {
            ns,
            rate,
            arrivals,
            max_outstanding: max_outstanding as usize,
        },
    }
}

fn prefill(
    config: &LoadConfig,
    clients: &Clients,
    measured_targets: &[MeasuredTarget],
    progress: &mut dyn FnMut(&str),
) -> Result<(), LoadError> {
    let keys = config.keys;
    let batch = (PREFILL_BATCH_BYTES / (config.value_size.max + 300)).clamp(1, PREFILL_BATCH);
    for (at, measured) in measured_targets
        .iter()
        .enumerate()
        .filter(|(_, measured)| !measured.is_floor())
    {
        let stats = clients.run(
            at,
            &Work::Prefill {
                next: 0,
                end: keys,
                keys,
                batch,
            },
        )?;
        let seconds = stats.elapsed_ns as f64 / 1e9;
        progress(&format!(
            "{:?}: stored {} keys in {seconds:.1} s",
            measured.role, stats.sets
        ));
    }
    Ok(())
}

fn warm_up(
    config: &LoadConfig,
    clients: &Clients,
    measured_targets: &[MeasuredTarget],
    progress: &mut dyn FnMut(&str),
) -> Result<(), LoadError> {
    let ns = (config.warmup_seconds * 1e9) as u64;
    if ns == 0 {
        return Ok(());
    }
    progress(&format!("warming up for {} s each", config.warmup_seconds));
    for (at, measured) in measured_targets.iter().enumerate() {
        check(&measured.address(), &clients.run(at, &work(config, ns))?)?;
    }
    Ok(())
}

fn rounds(
    config: &LoadConfig,
    clients: &Clients,
    measured_targets: &mut [MeasuredTarget],
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<SliceReport>, LoadError> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(mix(config.seed ^ 0x51_1ce5));
    let mut order: Vec<usize> = (0..measured_targets.len()).collect();
    let mut slices = Vec::new();
    let rounds = config.rounds();
    for round in 0..rounds {
        order.shuffle(&mut rng);
        for &at in &order {
            clients.renew()?;
            slices.push(slice(
                config,
                clients,
                at,
                &mut measured_targets[at],
                round,
            )?);
        }
        if (round + 1) % 20 == 0 {
            progress(&format!("round {} of {rounds}", round + 1));
        }
    }
    Ok(slices)
}

/// Runs one slice of one target.
fn slice(
    config: &LoadConfig,
    clients: &Clients,
    at: usize,
    measured: &mut MeasuredTarget,
    round: u64,
) -> Result<SliceReport, LoadError> {
    let warm_ns = config.slice_warm_ms * 1_000_000;
    if warm_ns > 0 {
        check(
            &measured.address(),
            &clients.run(at, &work(config, warm_ns))?,
        )?;
    }
    std::thread::sleep(SETTLE);
    let before = measured.cpu_ns()?;
    let stats = clients.run(at, &work(config, config.slice_ms * 1_000_000 - warm_ns))?;
    std::thread::sleep(SETTLE);
    let after = measured.cpu_ns()?;
    check(&measured.address(), &stats)?;
    let cpu_ns = before
        .zip(after)
        .map(|(before, after)| after.saturating_sub(before));
    measured.total.merge(&stats);
    // Slices run one after another; merging keeps the longest of their elapsed times.
    Ok(SliceReport::new(measured.role, round, &stats, cpu_ns))
}

/// Fails if any reply of the slice was wrong.
pub(crate) fn check(address: &str, stats: &LoadStats) -> Result<(), LoadError> {
    match &stats.first_mismatch {
        None => Ok(()),
        Some(first) => Err(LoadError::Mismatch {
            target: address.to_owned(),
            count: stats.mismatches,
            first: first.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Protocol;

    #[test]
    fn another_protocol_or_family_needs_its_own_floor() {
        let target = |address: &str, protocol| Target {
            address: address.parse().expect("valid"),
            protocol,
            pid: None,
        };
        let a = target("127.0.0.1:1", Protocol::Memcached);
        assert!(!needs_own_floor(
            &a,
            &target("127.0.0.1:2", Protocol::Memcached)
        ));
        assert!(needs_own_floor(&a, &target("127.0.0.1:2", Protocol::Resp)));
        assert!(needs_own_floor(&a, &target("unix:/x", Protocol::Memcached)));
    }
}
