//! The result of a check, as data and as text.

use std::fmt;

use serde::Serialize;

use super::{Check, FillReport, MixedReport, OracleConfig, RefillReport, RefuseReport};
use crate::probe::Identity;
use crate::report::{flatten, to_value};
use corewise_measure::machine::Machine;

/// The result of a check; one of the optional parts is present.
#[derive(Clone, Debug, Serialize)]
pub struct OracleReport {
    /// The machine and the date.
    pub machine: Machine,
    /// The server's address.
    pub address: String,
    /// What the server says about itself.
    pub identity: Identity,
    /// What was checked.
    pub check: Check,
    /// The server's limit in bytes.
    pub limit_bytes: u64,
    /// Sizes of the values.
    pub sizes: String,
    /// Connections.
    pub connections: u32,
    /// Maximum number of requests in a batch.
    pub pipeline: u32,
    /// The result of [`Check::Fill`].
    pub fill: Option<FillReport>,
    /// The result of [`Check::Refuse`].
    pub refuse: Option<RefuseReport>,
    /// The result of [`Check::Refill`].
    pub refill: Option<RefillReport>,
    /// The result of [`Check::Mixed`].
    pub mixed: Option<MixedReport>,
}

impl OracleReport {
    pub(super) fn new(config: &OracleConfig, machine: Machine, identity: Identity) -> Self {
        Self {
            machine,
            address: config.target.address.to_string(),
            identity,
            check: config.check,
            limit_bytes: config.limit_bytes,
            sizes: config.sizes.to_string(),
            connections: config.connections,
            pipeline: config.pipeline,
            fill: None,
            refuse: None,
            refill: None,
            mixed: None,
        }
    }

    /// One `path value` per line, for scripts: `oracle.fill.min_live 0.9`.
    pub fn to_flat(&self) -> String {
        let mut out = String::new();
        flatten("oracle", &to_value(self), &mut out);
        out
    }
}

impl fmt::Display for OracleReport {
    /// One line for each figure.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_flat()
            .lines()
            .filter_map(|line| line.split_once(' '))
            .try_for_each(|(name, value)| {
                let name = name.trim_start_matches("oracle.");
                writeln!(f, "{name:<32} {value}")
            })
    }
}
