//! Prints the metrics for Prometheus, in its text format 0.0.4 or as OpenMetrics 1.0.
//!
//! A family whose name ends with `_total` is a counter, and any other a gauge. Units are seconds
//! and bytes. Labels have values from small fixed sets, such as the size classes; never keys.
//!
//! The counters are those since the start, whatever was reset: they never fall, because one thread
//! prints them, each is stored by one thread and only grows, and an engine adds those of a session
//! that ends to a sum under the lock under which it reads both.

use super::{Counters, Reading, Sample, Source, table};
use crate::classes::{COLUMNS, Column};
use crate::process;
use crate::shared::Shared;
use corewise_atomic::sync::atomic::Ordering;
use corewise_engine::{ClassStats, Engine};
use corewise_ops::Now;
use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

/// The format of a page of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus' text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// The value of `Content-Type`.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format that a client prefers, from the value of its `Accept`.
    pub(crate) fn preferred(accept: &str) -> Self {
        let quality = |names: &[&str]| {
            let accepted = accept.split(',').filter_map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let name = parts.next()?;
                if !names.iter().any(|one| name.eq_ignore_ascii_case(one)) {
                    return None;
                }
                let quality = parts.find_map(|part| part.strip_prefix("q="));
                Some(quality.map_or(1.0, |q| q.parse::<f32>().unwrap_or(0.0)))
            });
            accepted.fold(0.0, f32::max)
        };
        let open = quality(&["application/openmetrics-text"]);
        if open > 0.0 && open >= quality(&["text/plain", "text/*"]) {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }
}

/// The families and what they mean.
pub(super) const FAMILIES: &[(&str, &str)] = &[
    ("corewise_build_info", "Version and engine; the value is 1."),
    ("corewise_uptime_seconds", "Time since the start."),
    ("corewise_connections", "Open connections."),
    (
        "corewise_listener_connections",
        "Open connections of a listener.",
    ),
    (
        "corewise_loop_connections",
        "Open connections of an event loop.",
    ),
    (
        "corewise_max_connections",
        "Maximum number of open connections.",
    ),
    (
        "corewise_connections_accepted_total",
        "Connections accepted.",
    ),
    (
        "corewise_connections_rejected_total",
        "Connections closed at once, beyond the maximum.",
    ),
    (
        "corewise_connections_closed_total",
        "Connections that the server closed, by reason.",
    ),
    (
        "corewise_connection_yields_total",
        "Turns after which a busy connection had to let others go first.",
    ),
    (
        "corewise_connection_buffer_bytes",
        "Memory of all connections that the limit bounds.",
    ),
    (
        "corewise_connection_resident_bytes",
        "The part of it that is resident.",
    ),
    (
        "corewise_connection_buffer_limit_bytes",
        "The limit of the memory of all connections.",
    ),
    (
        "corewise_input_buffer_bytes",
        "Memory of unfinished requests.",
    ),
    (
        "corewise_output_buffer_bytes",
        "Memory of replies that clients have not taken.",
    ),
    (
        "corewise_requests_refused_total",
        "Requests refused for lack of memory in buffers.",
    ),
    (
        "corewise_replies_refused_total",
        "Replies that could not be kept; their connections were closed.",
    ),
    (
        "corewise_accepting_connections",
        "1 while connections are accepted, otherwise 0.",
    ),
    (
        "corewise_accept_pauses_total",
        "Pauses of accepting connections.",
    ),
    (
        "corewise_accept_paused_seconds_total",
        "Time of these pauses.",
    ),
    ("corewise_loops", "Event loops."),
    (
        "corewise_turns_total",
        "Turns of the event loops that served a connection.",
    ),
    ("corewise_batches_total", "Batches of operations."),
    (
        "corewise_loop_operations_total",
        "Operations of an event loop.",
    ),
    ("corewise_operations_total", "Operations on items."),
    (
        "corewise_received_bytes_total",
        "Bytes received from clients.",
    ),
    ("corewise_sent_bytes_total", "Bytes sent to clients."),
    ("corewise_commands_total", "Commands, by kind."),
    (
        "corewise_lookups_total",
        "Items that commands looked up, by command and result.",
    ),
    (
        "corewise_get_expired_total",
        "Misses of get on an item that had expired.",
    ),
    (
        "corewise_get_flushed_total",
        "Misses of get on an item that was flushed and still in memory.",
    ),
    (
        "corewise_stores_refused_total",
        "Stores that were refused, by reason.",
    ),
    (
        "corewise_authentications_total",
        "Attempts to authenticate.",
    ),
    (
        "corewise_authentication_failures_total",
        "Attempts that failed.",
    ),
    (
        "corewise_resp_calls_total",
        "Calls of RESP that are not operations on one item.",
    ),
    ("corewise_memory_used_bytes", "Memory of items and tables."),
    (
        "corewise_memory_limit_bytes",
        "The limit of the memory of items, tables and connections.",
    ),
    ("corewise_item_bytes", "Memory of items."),
    (
        "corewise_flushed_bytes",
        "Memory of flushed items that is not yet given back.",
    ),
    ("corewise_items", "Items."),
    ("corewise_items_stored_total", "Items stored."),
    ("corewise_evictions_total", "Items evicted to make room."),
    (
        "corewise_evicted_unfetched_total",
        "Evicted items that were never read.",
    ),
    (
        "corewise_evicted_idle_seconds",
        "Time since the last use of the item that was evicted last.",
    ),
    (
        "corewise_reclaimed_total",
        "Expired items whose memory a store has taken.",
    ),
    (
        "corewise_expired_reclaimed_total",
        "Expired items that the server removed by itself.",
    ),
    (
        "corewise_expired_unfetched_total",
        "Expired items that were never read.",
    ),
    (
        "corewise_out_of_memory_total",
        "Stores for which the engine had no memory.",
    ),
    ("corewise_table_bytes", "Memory of the tables."),
    ("corewise_table_buckets", "Buckets of the tables."),
    (
        "corewise_table_resizing",
        "1 while a table is resized, otherwise 0.",
    ),
    (
        "corewise_table_zipped",
        "Expansions whose chains are not yet unzipped.",
    ),
    (
        "corewise_table_longest_chain",
        "Items of the longest chain that was found.",
    ),
    (
        "corewise_reclamation_backlog_bytes",
        "Memory that waits for a grace period.",
    ),
    (
        "corewise_grace_periods_total",
        "Grace periods that have ended.",
    ),
    ("corewise_segments", "Segments of memory."),
    ("corewise_segments_free", "Segments that are unused."),
    ("corewise_segment_bytes", "Size of a segment."),
    ("corewise_shards", "Independent locks or partitions."),
    (
        "corewise_lock_waits_total",
        "Times that a thread found a lock of items held.",
    ),
    (
        "corewise_lock_wait_seconds_total",
        "Time that threads waited for these locks.",
    ),
    (
        "corewise_dump_running",
        "1 while a client lists the items, otherwise 0.",
    ),
    (
        "corewise_dumps_total",
        "Listings of the items that were begun.",
    ),
    ("corewise_dumped_items_total", "Items listed."),
    (
        "corewise_class_max_bytes",
        "The largest footprint of an item in a size class.",
    ),
    ("corewise_class_items", "Items of a size class."),
    (
        "corewise_class_bytes",
        "Memory of the items of a size class.",
    ),
    (
        "corewise_class_evictions_total",
        "Evictions from a size class.",
    ),
    (
        "corewise_class_get_hits_total",
        "Hits of get in a size class.",
    ),
    ("corewise_class_stores_total", "Stores into a size class."),
    (
        "process_cpu_seconds_total",
        "Total user and system CPU time spent in seconds.",
    ),
    ("process_open_fds", "Number of open file descriptors."),
    (
        "process_max_fds",
        "Maximum number of open file descriptors.",
    ),
    (
        "process_virtual_memory_bytes",
        "Virtual memory size in bytes.",
    ),
    (
        "process_resident_memory_bytes",
        "Resident memory size in bytes.",
    ),
    (
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
    ),
];

/// A page of metrics that grows, a family at a time.
struct Page {
    text: String,
    format: Format,
    family: &'static str,
}

impl Page {
    /// Begins a family.
    fn family(&mut self, name: &'static str) -> &mut Self {
        self.family = name;
        let kind = if name.ends_with("_total") {
            "counter"
        } else {
            "gauge"
        };
        let title = match self.format {
            Format::Text => name,
            Format::OpenMetrics => name.strip_suffix("_total").unwrap_or(name),
        };
        let help = FAMILIES.iter().find(|(family, _)| *family == name);
        // Writing to a String cannot fail, here and below.
        if let Some((_, help)) = help {
            let _ = writeln!(self.text, "# HELP {title} {help}");
        }
        let _ = writeln!(self.text, "# TYPE {title} {kind}");
        self
    }

    /// Adds a sample of the family.
    fn sample(&mut self, labels: Option<&str>, value: impl Display) -> &mut Self {
        let name = self.family;
        let _ = match labels {
            None => writeln!(self.text, "{name} {value}"),
            Some(labels) => writeln!(self.text, "{name}{{{labels}}} {value}"),
        };
        self
    }

    /// Adds a family of one sample.
    fn single(&mut self, name: &'static str, value: impl Display) {
        self.family(name).sample(None, value);
    }

    /// Adds a family with a sample for each value of a label.
    fn by_label(
        &mut self,
        name: &'static str,
        label: &str,
        samples: impl Iterator<Item = (String, u64)>,
    ) {
        self.family(name);
        for (of, value) in samples {
            self.sample(Some(&format!("{label}=\"{}\"", escaped(&of))), value);
        }
    }
}

/// All metrics.
pub(crate) fn exposition<E: Engine>(
    shared: &Shared,
    engine: &E,
    now: Now,
    format: Format,
) -> String {
    let source = Source::of(shared, engine, now);
    let mut page = Page {
        text: String::with_capacity(32 << 10),
        format,
        family: "",
    };
    print_info(&source, &mut page);
    print_table(&source, &mut page);
    print_connections(shared, &mut page);
    print_loops(shared, &mut page);
    print_classes(&engine.size_classes(), shared, &mut page);
    print_process(&mut page);
    if format == Format::OpenMetrics {
        page.text.push_str("# EOF\n");
    }
    page.text
}

fn print_info(source: &Source<'_>, page: &mut Page) {
    let (version, engine) = (env!("CARGO_PKG_VERSION"), source.engine_name);
    let labels = format!("version=\"{version}\",engine=\"{engine}\"");
    page.family("corewise_build_info").sample(Some(&labels), 1);
}

/// Prints the rows of the table, those of a family together where its first row stands.
fn print_table(source: &Source<'_>, page: &mut Page) {
    let rows = || {
        let rows = table::METRICS.iter();
        rows.filter_map(|metric| Some((metric.prom?, &metric.reading)))
    };
    for (index, (first, _)) in rows().enumerate() {
        if rows()
            .take(index)
            .any(|(row, _)| row.family == first.family)
        {
            continue;
        }
        page.family(first.family);
        for (row, reading) in rows().filter(|(row, _)| row.family == first.family) {
            if let Some(value) = value(row, reading, source) {
                page.sample(row.labels, value);
            }
        }
    }
}

/// The value of a row in its base unit.
fn value(row: Sample, reading: &Reading, source: &Source<'_>) -> Option<String> {
    match (reading, row.divisor) {
        (Reading::Counter(read), None) => Some(read(source).to_string()),
        (Reading::Counter(read), Some(divisor)) => {
            Some((read(source) as f64 / f64::from(divisor)).to_string())
        }
        (Reading::Other(read), _) => read(source),
    }
}

fn print_connections(shared: &Shared, page: &mut Page) {
    let mut counts = BTreeMap::new();
    for info in shared.connections.lock().values() {
        let (listener, open) = match &info.listener {
            Some(listener) => (listener, 1),
            None => (&info.peer, 0), // a listening socket
        };
        match counts.get_mut(listener) {
            Some(count) => *count += open,
            None => {
                counts.insert(listener.clone(), open);
            }
        }
    }
    page.by_label(
        "corewise_listener_connections",
        "listener",
        counts.into_iter(),
    );
}

fn print_loops(shared: &Shared, page: &mut Page) {
    let loops = || {
        (0..)
            .map(|index: usize| index.to_string())
            .zip(&shared.loops)
    };
    page.by_label(
        "corewise_loop_connections",
        "loop",
        // Relaxed: a statistic.
        loops().map(|(index, state)| (index, state.connections.load(Ordering::Relaxed) as u64)),
    );
    let operations = loops().map(|(index, state)| {
        let mut counts = Counters::default();
        state.counts.add_to(&mut counts);
        (index, counts.operations)
    });
    page.by_label("corewise_loop_operations_total", "loop", operations);
}

/// A family with a sample for each size class.
type ClassFamily = (&'static str, fn(&ClassStats, &[u64; COLUMNS]) -> u64);

const CLASS_FAMILIES: &[ClassFamily] = &[
    ("corewise_class_max_bytes", |class, _| class.max_bytes),
    ("corewise_class_items", |class, _| class.items),
    ("corewise_class_bytes", |class, _| class.bytes),
    ("corewise_class_evictions_total", |class, _| class.evictions),
    ("corewise_class_get_hits_total", |_, counts| {
        counts[Column::GetHits as usize]
    }),
    ("corewise_class_stores_total", |_, counts| {
        counts[Column::CmdSet as usize]
    }),
];

/// Prints the size classes that hold items or have evicted some.
fn print_classes(classes: &[ClassStats], shared: &Shared, page: &mut Page) {
    let sums = shared.class_sums();
    for (family, read) in CLASS_FAMILIES {
        let samples = classes.iter().map(|class| {
            let row = (class.class as usize).wrapping_sub(1);
            let counts = sums.get(row).copied().unwrap_or_default();
            (class.class.to_string(), read(class, &counts))
        });
        page.by_label(family, "class", samples);
    }
}

/// Prints what the client libraries of Prometheus print about their process.
fn print_process(page: &mut Page) {
    if let Ok(usage) = process::usage() {
        let cpu = usage.user + usage.system;
        page.single("process_cpu_seconds_total", cpu.as_secs_f64());
        page.single("process_virtual_memory_bytes", usage.virtual_bytes);
        page.single("process_resident_memory_bytes", usage.resident_bytes);
        if let Some(start) = usage.start_time() {
            page.single("process_start_time_seconds", start.as_secs_f64());
        }
    }
    if let Ok(open) = process::open_files() {
        page.single("process_open_fds", open);
    }
    if let Some(most) = process::max_files() {
        page.single("process_max_fds", most);
    }
}

/// A label's value with the characters escaped that the format reserves.
fn escaped(value: &str) -> String {
    let escaped = value.replace('\\', r"\\").replace('"', r#"\""#);
    escaped.replace('\n', r"\n")
}
