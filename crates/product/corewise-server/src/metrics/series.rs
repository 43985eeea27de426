//! Metrics with a number for each listener, event loop or size class, and the labels of each.

use super::Source;
use crate::classes::COLUMNS;
use crate::shared::LoopState;
use corewise_engine::ClassStats;
use std::collections::BTreeMap;

/// Numbers, each with its labels.
pub(super) type Series = Vec<(String, u64)>;

/// The number 1, with the version and the engine.
pub(super) fn build(source: &Source<'_>) -> Series {
    let version = label("version", env!("CARGO_PKG_VERSION"));
    let engine = label("engine", source.engine_name);
    vec![(format!("{version},{engine}"), 1)]
}

/// The open connections of each listener.
pub(super) fn listener_connections(source: &Source<'_>) -> Series {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for card in source.shared.connections.lock().values() {
        let (listener, open) = match &card.listener {
            Some(listener) => (listener, 1),
            None => (&card.peer, 0), // a listening socket
        };
        match counts.get_mut(listener) {
            Some(count) => *count += open,
            None => {
                counts.insert(listener.clone(), open);
            }
        }
    }
    let counts = counts.into_iter();
    counts
        .map(|(listener, open)| (label("listener", &listener), open))
        .collect()
}

/// A number of each event loop.
pub(super) fn of_loops(source: &Source<'_>, read: fn(&LoopState) -> u64) -> Series {
    let loops = source.shared.loops.iter().enumerate();
    loops
        .map(|(index, state)| (label("loop", &index.to_string()), read(state)))
        .collect()
}

/// A number of each size class that holds items or has evicted some, which may depend on what the
/// loops have counted in it.
pub(super) fn of_classes(
    source: &Source<'_>,
    read: fn(&ClassStats, &[u64; COLUMNS]) -> u64,
) -> Series {
    let sums = source.shared.class_sums();
    let classes = source.classes.iter().map(|class| {
        let row = (class.class as usize).wrapping_sub(1);
        let counts = sums.get(row).copied().unwrap_or_default();
        let label = label("class", &class.class.to_string());
        (label, read(class, &counts))
    });
    classes.collect()
}

/// A label whose value has the characters escaped that the format reserves.
fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', r"\\").replace('"', r#"\""#);
    format!("{name}=\"{}\"", value.replace('\n', r"\n"))
}
