//! Prints the metrics.

use super::{command_sums, values};
use crate::shared::Shared;
use corewise_engine::Engine;
use corewise_ops::Now;
use corewise_wire::memcached::StatsWriter;
use std::fmt::Write as _;

/// A section of `INFO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Server,
    Clients,
    Memory,
    Persistence,
    Stats,
    Replication,
    Cpu,
    Modules,
    Commandstats,
    Errorstats,
    Latencystats,
    Cluster,
    Keyspace,
}

impl Section {
    /// In the order of Redis.
    pub(crate) const ALL: [Self; 13] = [
        Self::Server,
        Self::Clients,
        Self::Memory,
        Self::Persistence,
        Self::Stats,
        Self::Replication,
        Self::Cpu,
        Self::Modules,
        Self::Commandstats,
        Self::Errorstats,
        Self::Latencystats,
        Self::Cluster,
        Self::Keyspace,
    ];

    pub(super) fn title(self) -> String {
        match self {
            Self::Cpu => "CPU".to_owned(),
            other => format!("{other:?}"),
        }
    }

    /// Whether `INFO` with this argument prints the section; with none, it is `default`.
    pub(crate) fn is_in(self, name: &[u8]) -> bool {
        match name.to_ascii_lowercase().as_slice() {
            b"all" | b"everything" => true,
            b"default" => !matches!(self, Self::Commandstats | Self::Latencystats),
            b"module_list" => self == Self::Modules,
            other => self.title().to_ascii_lowercase().as_bytes() == other,
        }
    }
}

/// Prints `stats`.
pub(crate) fn stats<E: Engine>(shared: &Shared, engine: &E, now: Now, out: &mut Vec<u8>) {
    let mut w = StatsWriter::new(out);
    for (metric, value) in values(shared, engine, now, |metric| metric.stats.is_some()) {
        if let (Some(name), Some(value)) = (metric.stats, value) {
            w.stat(name, value);
        }
    }
    w.end();
}

/// The text of `INFO`, of the sections that are wanted.
pub(crate) fn info<E: Engine>(
    shared: &Shared,
    engine: &E,
    now: Now,
    is_wanted: impl Fn(Section) -> bool,
) -> String {
    let mut text = String::new();
    let values = values(shared, engine, now, |metric| {
        metric.info.is_some_and(|(section, _)| is_wanted(section))
    });
    for section in Section::ALL {
        if !is_wanted(section) {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        // Writing to a String cannot fail, here and below.
        let _ = write!(text, "# {}\r\n", section.title());
        for (metric, value) in &values {
            match (metric.info, value) {
                (Some((of, name)), Some(value)) if of == section => {
                    let _ = write!(text, "{name}:{value}\r\n");
                }
                _ => {}
            }
        }
        match section {
            Section::Commandstats => command_sums(shared).print_commands(&mut text),
            Section::Errorstats => command_sums(shared).print_errors(&mut text),
            _ => {}
        }
    }
    text
}
