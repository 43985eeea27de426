//! Small made-up results for tests.

use std::collections::BTreeMap;
use std::path::Path;

use corewise_measure::stats::Spread;

use super::Results;
use crate::record::{
    CacheFacts, Cell, Counts, End, Garbage, Histogram, Interval, MachineFacts, Manifest,
    MemoryPoint, Record, Role, Row, SCHEMA, Slice, Timeline, Verdicts,
};

/// A result file that is made line by line.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Its head.
    pub(crate) manifest: Manifest,
    /// What follows, without the end.
    pub(crate) records: Vec<Record>,
}

impl Sample {
    /// Nothing but the head.
    pub(crate) fn new() -> Self {
        Self {
            manifest: manifest(),
            records: Vec::new(),
        }
    }

    /// Adds a record.
    pub(crate) fn with(mut self, record: Record) -> Self {
        self.records.push(record);
        self
    }

    /// Adds a row of the cell of these names, with a slice for each of its rates. A row without
    /// rates is one of a section that measures something else.
    pub(crate) fn row(self, section: &str, threads: usize, table: &str, rates: &[f64]) -> Self {
        self.row_in(cell(section, threads), table, rates)
    }

    /// Adds a row of a cell.
    pub(crate) fn row_in(mut self, cell: Cell, table: &str, rates: &[f64]) -> Self {
        for (repetition, &rate) in rates.iter().enumerate() {
            let slice = slice(&cell.id, table, repetition, rate);
            self.records.push(Record::Slice(Box::new(slice)));
        }
        self.with(Record::Row(Box::new(row(cell, table, rates))))
    }

    /// Makes the last row void.
    pub(crate) fn void(mut self, problem: &str) -> Self {
        if let Some(Record::Row(row)) = self.records.last_mut() {
            row.verdict = "void".into();
            row.problems.push(problem.into());
        }
        self
    }

    /// Changes the head.
    pub(crate) fn head(mut self, change: impl FnOnce(&mut Manifest)) -> Self {
        change(&mut self.manifest);
        self
    }

    /// The lines of a file without its end.
    pub(crate) fn cut(&self) -> String {
        let head = Record::Manifest(Box::new(self.manifest.clone()));
        let records = [&head].into_iter().chain(&self.records);
        records.map(line).collect()
    }

    /// The lines of the whole file.
    pub(crate) fn text(&self) -> String {
        let rows = || self.records.iter().filter_map(as_row);
        let end = End {
            rows: rows().count(),
            void: rows().filter(|row| row.verdict == "void").count(),
            seconds: 1,
        };
        self.cut() + &line(&Record::End(end))
    }

    /// Writes the whole file.
    pub(crate) fn write(&self, path: &Path) {
        std::fs::write(path, self.text()).expect("the sample is written");
    }

    /// What reading the whole file gives; it is called `sample.jsonl`.
    pub(crate) fn results(&self) -> Results {
        let mut results = Results::default();
        results
            .add_file("sample.jsonl", self.text().as_bytes())
            .expect("the sample is read");
        results
    }
}

fn as_row(record: &Record) -> Option<&Row> {
    match record {
        Record::Row(row) => Some(row),
        _ => None,
    }
}

fn line(record: &Record) -> String {
    serde_json::to_string(record).expect("a record") + "\n"
}

/// A head.
pub(crate) fn manifest() -> Manifest {
    Manifest {
        schema: SCHEMA,
        date: "2026-01-02T03:04:05Z".into(),
        command: ["corewise", "bench", "run"].map(String::from).into(),
        suite: "command line".into(),
        plan: String::new(),
        seed: 1,
        commit: "0123456789012345678901234567890123456789".into(),
        dirty: false,
        rustc: "rustc 1.95.0".into(),
        build: "x86_64, release, opt-level 3".into(),
        features: Vec::new(),
        allocator: "mimalloc 2".into(),
        pages: "system (madvise)".into(),
        machine: machine(),
        cards: Vec::new(),
    }
}

fn machine() -> MachineFacts {
    MachineFacts {
        cpu: "A CPU".into(),
        cpus: 4,
        cores: 2,
        sockets: 1,
        kernel: "6.1".into(),
        memory_bytes: 16 << 30,
        caches: [(1, 32 << 10, 2), (3, 16 << 20, 4)]
            .map(|(level, size_bytes, shared_by)| CacheFacts {
                level,
                size_bytes,
                shared_by,
            })
            .into(),
        load_1min: 0.25,
        virtual_machine: false,
        tsc_hz: 3e9,
        timing_overhead_ns: 8.0,
    }
}

/// A cell in closed loop with 10 % of updates.
pub(crate) fn cell(section: &str, threads: usize) -> Cell {
    Cell {
        id: format!("{section}/i=1024,u=10,uniform,n={threads}"),
        section: section.into(),
        threads,
        duration_ms: 100.0,
        update_percent: 10.0,
        insert_percent: 5.0,
        remove_percent: 5.0,
        initial: 1024,
        range: 2048,
        distribution: "uniform".into(),
        kind: "u64".into(),
        key_bytes: (8, 8),
        value_bytes: 8,
        keys: "mixed".into(),
        hash: "common".into(),
        prefill: "all".into(),
        pin: "compact".into(),
        cpus: (0..threads).collect(),
        mode: "closed".into(),
        rate_per_s: None,
    }
}

/// The summary of a row of a table to be compared: the median of its rates, without a ratio.
pub(crate) fn row(cell: Cell, table: &str, rates: &[f64]) -> Row {
    Row {
        cell,
        table: table.into(),
        role: Role::Subject,
        repetitions: rates.len().max(1),
        rate: Spread::of(rates.iter().copied()).map(|spread| Interval {
            value: spread.median,
            low: spread.low,
            high: spread.high,
        }),
        ratio: None,
        verdict: String::new(),
        version: "1.0.0".into(),
        allocator: "mimalloc 2".into(),
        pages: "system (madvise)".into(),
        problems: Vec::new(),
        contention: None,
        per_operation: BTreeMap::new(),
    }
}

/// A repetition in which nothing was wrong.
pub(crate) fn slice(cell_id: &str, table: &str, repetition: usize, rate: f64) -> Slice {
    Slice {
        cell: cell_id.into(),
        table: table.into(),
        role: Role::Subject,
        repetition,
        rate,
        rates: vec![rate; 3],
        operations: (rate / 10.0) as u64,
        elapsed_ns: 100_000_000,
        counts: Counts {
            get_hits: (rate / 10.0) as u64,
            ..Counts::default()
        },
        prefill_ns: 1_000_000,
        checks: Verdicts::default(),
        hardware: Default::default(),
        contention: None,
        ran_on: vec![0],
    }
}

/// Latencies from 40 to 1200 ns.
pub(crate) fn histogram(cell_id: &str, table: &str, operation: &str) -> Histogram {
    let percentiles = [
        ("50", 50.0),
        ("90", 80.0),
        ("99", 300.0),
        ("99.9", 1000.0),
        ("99.99", 1200.0),
    ];
    Histogram {
        cell: cell_id.into(),
        table: table.into(),
        operation: operation.into(),
        count: 100,
        mean_ns: 70.0,
        min_ns: 40.0,
        max_ns: 1200.0,
        percentiles_ns: percentiles.map(|(name, ns)| (name.into(), ns)).into(),
        buckets: vec![(40, 30), (50, 55), (80, 13), (300, 1), (1200, 1)],
    }
}

/// Six bins, one of which is slow.
pub(crate) fn timeline(cell_id: &str, table: &str) -> Timeline {
    Timeline {
        cell: cell_id.into(),
        table: table.into(),
        repetition: 0,
        bin_ms: 10.0,
        operations: vec![900, 1000, 100, 1000, 1100, 500],
        longest_ns: vec![300, 400, 9_000_000, 500, 400, 300],
    }
}

/// Memory at twice the payload.
pub(crate) fn memory(cell_id: &str, table: &str, entries: u64) -> MemoryPoint {
    MemoryPoint {
        cell: cell_id.into(),
        table: table.into(),
        entries,
        payload_bytes: 16 * entries,
        live_bytes: Some(32 * entries),
        peak_live_bytes: Some(40 * entries),
        resident_bytes: 33 * entries,
        peak_resident_bytes: 41 * entries,
        emptied_bytes: Some(4096),
        dropped_bytes: Some(0),
    }
}

/// Garbage that comes and goes.
pub(crate) fn garbage(cell_id: &str, table: &str) -> Garbage {
    Garbage {
        cell: cell_id.into(),
        table: table.into(),
        entries: 1024,
        interval_ms: 10.0,
        over_bytes: vec![0, 4096, 8192, 2048, -64],
        source: "live".into(),
        settled_bytes: 0,
    }
}
