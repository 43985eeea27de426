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

use crate::codec::Codec;
use crate::config::{FloorOptions, LoadConfig, Mode, Target};
use crate::cpu::CpuMeter;
use crate::crew::{Crew, Endpoint};
use crate::driver::Work;
use crate::error::LoadError;
use crate::floor::{Floor, FloorSpec};
use crate::probe::{Identity, identify};
use crate::report::{Report, SliceReport};
use crate::tally::Tally;
use corewise_measure::draw::mix;
use corewise_measure::machine::{Machine, Memory};

/// Time for the server to go to sleep after its last reply, so that the
/// scheduler has charged all of its CPU time.
const SETTLE: Duration = Duration::from_millis(1);
/// Most sets of a prefill batch, and most of its bytes.
const PREFILL_BATCH: u32 = 64;
const PREFILL_BATCH_BYTES: u32 = 256 << 10;

/// What a target is in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The first server.
    A,
    /// The server of `--vs`.
    B,
    /// The empty responder in A's protocol.
    Floor,
    /// The empty responder in B's protocol, where that is another one.
    FloorB,
}

/// One target with everything gathered about it.
pub(crate) struct Lane {
    pub(crate) role: Role,
    pub(crate) target: Target,
    pub(crate) identity: Identity,
    pub(crate) meter: Option<CpuMeter>,
    pub(crate) memory: Memory,
    pub(crate) total: Tally,
    pub(crate) notes: Vec<String>,
    _floor: Option<Floor>,
}

impl Lane {
    fn server(role: Role, target: &Target) -> Result<Self, LoadError> {
        let identity = identify(target)?;
        let mut notes = Vec::new();
        if let (Some(given), Some(said)) = (target.pid, identity.pid)
            && given != said
        {
            notes.push(format!(
                "{role:?} says its process is {said}, {given} is measured"
            ));
        }
        Self::new(role, target.clone(), identity, notes, None)
    }

    fn floor(
        role: Role,
        config: &LoadConfig,
        options: &FloorOptions,
        like: &Target,
    ) -> Result<Self, LoadError> {
        let floor = Floor::start(
            FloorSpec::new(config, options, like.protocol),
            &like.address,
        )?;
        let target = Target {
            address: floor.address.clone(),
            protocol: like.protocol,
            pid: Some(floor.pid()),
        };
        let identity = Identity {
            version: Some("empty responder".into()),
            pid: target.pid,
            threads: Some(options.threads.max(1)),
            allocator: None,
        };
        Self::new(role, target, identity, Vec::new(), Some(floor))
    }

    fn new(
        role: Role,
        target: Target,
        identity: Identity,
        notes: Vec<String>,
        floor: Option<Floor>,
    ) -> Result<Self, LoadError> {
        let meter = target.pid.map(CpuMeter::new).transpose()?;
        let (memory, total) = (Memory::default(), Tally::new());
        Ok(Self {
            role,
            target,
            identity,
            meter,
            memory,
            total,
            notes,
            _floor: floor,
        })
    }

    fn address(&self) -> String {
        self.target.address.to_string()
    }

    fn is_floor(&self) -> bool {
        self._floor.is_some()
    }

    fn cpu_ns(&self) -> Result<Option<u64>, LoadError> {
        self.meter.map(|meter| meter.read_ns()).transpose()
    }
}

/// Runs the load and reports; `progress` gets a line now and then.
///
/// # Errors
///
/// [`LoadError::Config`] before anything is started; later anything else. A
/// wrong reply ends the run: at once if the stream cannot be followed any more,
/// at the end of its slice otherwise.
pub fn run(config: &LoadConfig, progress: &mut dyn FnMut(&str)) -> Result<Report, LoadError> {
    config.validate()?;
    corewise_measure::machine::raise_file_limit();
    let machine = Machine::look();
    let mut lanes = lanes(config)?;
    one_source(&mut lanes);
    let endpoints: Vec<Endpoint> = lanes.iter().map(|lane| endpoint(config, lane)).collect();
    progress(&format!(
        "opening {} connections to each of {} targets",
        config.connections,
        lanes.len()
    ));
    let crew = Crew::start(config, &endpoints)?;
    if config.prefill {
        prefill(config, &crew, &lanes, progress)?;
    }
    warm_up(config, &crew, &lanes, progress)?;
    let slices = rounds(config, &crew, &mut lanes, progress)?;
    for lane in &mut lanes {
        lane.memory = lane.target.pid.map(Memory::of).unwrap_or_default();
    }
    Ok(Report::new(config, machine, &lanes, slices))
}

fn lanes(config: &LoadConfig) -> Result<Vec<Lane>, LoadError> {
    let mut lanes = vec![Lane::server(Role::A, &config.target)?];
    if let Some(vs) = &config.vs {
        lanes.push(Lane::server(Role::B, vs)?);
    }
    let Some(options) = &config.floor else {
        return Ok(lanes);
    };
    lanes.push(Lane::floor(Role::Floor, config, options, &config.target)?);
    match &config.vs {
        Some(vs) if needs_own_floor(&config.target, vs) => {
            lanes.push(Lane::floor(Role::FloorB, config, options, vs)?);
        }
        _ => {}
    }
    Ok(lanes)
}

/// Whether the kernel's share differs between two targets.
fn needs_own_floor(a: &Target, b: &Target) -> bool {
    let family = |t: &Target| std::mem::discriminant(&t.address);
    a.protocol != b.protocol || family(a) != family(b)
}

/// If one process offers only ticks, all are read in ticks.
fn one_source(lanes: &mut [Lane]) {
    let coarse = lanes
        .iter()
        .filter_map(|lane| lane.meter)
        .any(|meter| meter.source() == crate::cpu::CpuSource::Ticks);
    if coarse {
        for meter in lanes.iter_mut().filter_map(|lane| lane.meter.as_mut()) {
            *meter = meter.with_ticks();
        }
    }
}

fn endpoint(config: &LoadConfig, lane: &Lane) -> Endpoint {
    let codec = Codec::new(config, lane.target.protocol, !lane.is_floor());
    Endpoint {
        address: lane.target.address.clone(),
        codec,
    }
}

fn work(config: &LoadConfig, ns: u64) -> Work {
    match config.mode {
        Mode::Closed => Work::Closed {
            ns,
            pipeline: config.pipeline,
        },
        Mode::Open {
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
    crew: &Crew,
    lanes: &[Lane],
    progress: &mut dyn FnMut(&str),
) -> Result<(), LoadError> {
    let keys = config.keys;
    let batch = (PREFILL_BATCH_BYTES / (config.value_size.max + 300)).clamp(1, PREFILL_BATCH);
    for (at, lane) in lanes
        .iter()
        .enumerate()
        .filter(|(_, lane)| !lane.is_floor())
    {
        let tally = crew.run(
            at,
            &Work::Prefill {
                next: 0,
                end: keys,
                keys,
                batch,
            },
        )?;
        let seconds = tally.elapsed_ns as f64 / 1e9;
        progress(&format!(
            "{:?}: stored {} keys in {seconds:.1} s",
            lane.role, tally.sets
        ));
    }
    Ok(())
}

fn warm_up(
    config: &LoadConfig,
    crew: &Crew,
    lanes: &[Lane],
    progress: &mut dyn FnMut(&str),
) -> Result<(), LoadError> {
    let ns = (config.warmup_seconds * 1e9) as u64;
    if ns == 0 {
        return Ok(());
    }
    progress(&format!("warming up for {} s each", config.warmup_seconds));
    for (at, lane) in lanes.iter().enumerate() {
        check(&lane.address(), &crew.run(at, &work(config, ns))?)?;
    }
    Ok(())
}

fn rounds(
    config: &LoadConfig,
    crew: &Crew,
    lanes: &mut [Lane],
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<SliceReport>, LoadError> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(mix(config.seed ^ 0x51_1ce5));
    let mut order: Vec<usize> = (0..lanes.len()).collect();
    let mut slices = Vec::new();
    let rounds = config.rounds();
    for round in 0..rounds {
        order.shuffle(&mut rng);
        for &at in &order {
            crew.renew()?;
            slices.push(slice(config, crew, at, &mut lanes[at], round)?);
        }
        if (round + 1) % 20 == 0 {
            progress(&format!("round {} of {rounds}", round + 1));
        }
    }
    Ok(slices)
}

/// One slice of one target.
fn slice(
    config: &LoadConfig,
    crew: &Crew,
    at: usize,
    lane: &mut Lane,
    round: u64,
) -> Result<SliceReport, LoadError> {
    let warm_ns = config.slice_warm_ms * 1_000_000;
    if warm_ns > 0 {
        check(&lane.address(), &crew.run(at, &work(config, warm_ns))?)?;
    }
    std::thread::sleep(SETTLE);
    let before = lane.cpu_ns()?;
    let tally = crew.run(at, &work(config, config.slice_ms * 1_000_000 - warm_ns))?;
    std::thread::sleep(SETTLE);
    let after = lane.cpu_ns()?;
    check(&lane.address(), &tally)?;
    let cpu_ns = before
        .zip(after)
        .map(|(before, after)| after.saturating_sub(before));
    lane.total.merge(&tally);
    // Elapsed times of slices follow one another; merging keeps the longest.
    Ok(SliceReport::new(lane.role, round, &tally, cpu_ns))
}

/// Fails if any reply of the slice was wrong.
pub(crate) fn check(address: &str, tally: &Tally) -> Result<(), LoadError> {
    match &tally.first_mismatch {
        None => Ok(()),
        Some(first) => Err(LoadError::Mismatch {
            target: address.to_owned(),
            count: tally.mismatches,
            first: first.clone(),
        }),
    }
}

/// What a report says about the load of a protocol.
pub(crate) fn end_of_batch(config: &LoadConfig) -> String {
    match config.mode {
        Mode::Closed if config.pipeline == 1 => "service time of a request".into(),
        Mode::Closed => format!("service time within a batch of {}", config.pipeline),
        Mode::Open { .. } => "from the intended start".into(),
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
