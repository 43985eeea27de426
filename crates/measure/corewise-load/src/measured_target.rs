//! One server of a run, or an empty responder, and what is measured of it.

use crate::config::{FloorOptions, LoadConfig, Target};
use crate::cpu::CpuMeter;
use crate::error::LoadError;
use crate::floor::{Floor, FloorSpec};
use crate::load_stats::LoadStats;
use crate::probe::{Identity, identify, statistic};
use corewise_measure::machine::{CpuTimes, Memory};

/// The role of a target in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetRole {
    /// The first server.
    A,
    /// The server of `--vs`.
    B,
    /// The empty responder in A's protocol.
    Floor,
    /// The empty responder for B, if its protocol or socket family differs from A's.
    FloorB,
}

/// Times that are read at both ends of the rounds only.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerTimes {
    cpu: Option<CpuTimes>,
    lock_wait_us: Option<u64>,
}

impl ServerTimes {
    /// Returns the share of the CPU time since `earlier` that was spent in the kernel.
    pub(crate) fn kernel_share(&self, earlier: &Self) -> Option<f64> {
        let (now, then) = (self.cpu?, earlier.cpu?);
        let kernel = now.kernel_ns.saturating_sub(then.kernel_ns) as f64;
        let user = now.user_ns.saturating_sub(then.user_ns) as f64;
        (kernel + user > 0.0).then(|| kernel / (kernel + user))
    }

    /// Returns the time since `earlier` that the server's threads waited for locks.
    pub(crate) fn lock_wait_us(&self, earlier: &Self) -> Option<u64> {
        Some(self.lock_wait_us?.saturating_sub(earlier.lock_wait_us?))
    }
}

/// One target and all data gathered about it.
pub(crate) struct MeasuredTarget {
    pub(crate) role: TargetRole,
    pub(crate) target: Target,
    pub(crate) identity: Identity,
    pub(crate) meter: Option<CpuMeter>,
    pub(crate) memory: Memory,
    pub(crate) kernel_share: Option<f64>,
    pub(crate) lock_wait_us: Option<u64>,
    pub(crate) total: LoadStats,
    pub(crate) notes: Vec<String>,
    _floor: Option<Floor>,
}

impl MeasuredTarget {
    pub(crate) fn server(role: TargetRole, target: &Target) -> Result<Self, LoadError> {
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
        role: TargetRole,
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
        role: TargetRole,
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
            kernel_share: None,
            lock_wait_us: None,
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

    /// Reads what is compared at both ends of the rounds.
    pub(crate) fn times(&self) -> ServerTimes {
        ServerTimes {
            cpu: self.target.pid.and_then(|pid| CpuTimes::of(pid).ok()),
            lock_wait_us: (!self.is_floor())
                .then(|| statistic(&self.target, "lock_wait_us"))
                .flatten(),
        }
    }

    pub(crate) fn cpu_ns(&self) -> Result<Option<u64>, LoadError> {
        self.meter.map(|meter| meter.read_ns()).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_compared_with_earlier_ones() {
        let times = |user_ns, kernel_ns, lock_wait_us| ServerTimes {
            cpu: Some(CpuTimes { user_ns, kernel_ns }),
            lock_wait_us,
        };
        let (before, after) = (times(10, 10, Some(5)), times(20, 40, Some(12)));
        assert_eq!(after.kernel_share(&before), Some(0.75));
        assert_eq!(after.lock_wait_us(&before), Some(7));
        assert_eq!(before.kernel_share(&before), None);
        assert_eq!(after.lock_wait_us(&times(0, 0, None)), None);
    }
}
