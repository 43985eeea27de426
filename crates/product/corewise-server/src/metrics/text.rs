//! Prints the metrics.

use super::values;
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
    Stats,
    Keyspace,
}

impl Section {
    const ALL: [Self; 5] = [
        Self::Server,
        Self::Clients,
        Self::Memory,
        Self::Stats,
        Self::Keyspace,
    ];
}

/// Prints `stats`.
pub(crate) fn stats<E: Engine>(shared: &Shared, engine: &E, now: Now, out: &mut Vec<u8>) {
    let mut w = StatsWriter::new(out);
    for (metric, value) in values(shared, engine, now) {
        if let (Some(name), Some(value)) = (metric.stats, value) {
            w.stat(name, value);
        }
    }
    w.end();
}

/// The text of `INFO`, of the sections whose names are wanted.
pub(crate) fn info<E: Engine>(
    shared: &Shared,
    engine: &E,
    now: Now,
    is_wanted: impl Fn(&str) -> bool,
) -> String {
    let (mut text, values) = (String::new(), values(shared, engine, now));
    for section in Section::ALL {
        let title = format!("{section:?}");
        if !is_wanted(&title) {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        // Writing to a String cannot fail, here and below.
        let _ = write!(text, "# {title}\r\n");
        for (metric, value) in &values {
            match (metric.info, value) {
                (Some((of, name)), Some(value)) if of == section => {
                    let _ = write!(text, "{name}:{value}\r\n");
                }
                _ => {}
            }
        }
    }
    text
}
