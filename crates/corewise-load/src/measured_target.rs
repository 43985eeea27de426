//! One server of a run, or an empty responder, and what is measured of it.

use crate::config::{FloorOptions, LoadConfig, Target};
use crate::cpu::CpuMeter;
use crate::error::LoadError;
use crate::floor::{Floor, FloorSpec};
use crate::load_stats::LoadStats;
use crate::probe::{Identity, identify};
use corewise_measure::machine::Memory;

/// The role of a target in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The first server.
    A,
    /// The server of `--vs`.
    B,
    /// The empty responder in A's protocol.
    Floor,
    /// The empty responder for B, if its protocol or socket family differs from A's.
    FloorB,
}

/// One target and all data gathered about it.
pub(crate) struct MeasuredTarget {
    pub(crate) role: Role,
    pub(crate) target: Target,
    pub(crate) identity: Identity,
    pub(crate) meter: Option<CpuMeter>,
    pub(crate) memory: Memory,
    pub(crate) total: LoadStats,
    pub(crate) notes: Vec<String>,
    _floor: Option<Floor>,
}

impl MeasuredTarget {
    pub(crate) fn server(role: Role, target: &Target) -> Result<Self, LoadError> {
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

    pub(crate) fn floor(
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
        let (memory, total) = (Memory::default(), LoadStats::new());
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

    pub(crate) fn address(&self) -> String {
        self.target.address.to_string()
    }

    pub(crate) fn is_floor(&self) -> bool {
        self._floor.is_some()
    }

    pub(crate) fn cpu_ns(&self) -> Result<Option<u64>, LoadError> {
        self.meter.map(|meter| meter.read_ns()).transpose()
    }
}
