//! A made-up result with every section, the same at every run.

#![allow(dead_code, unreachable_pub)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use corewise_bench::latencies::OUTCOMES;
use corewise_bench::params::Params;
use corewise_bench::payload::{RowFields, SliceFields};
use corewise_bench::record::{
    CacheFacts, Cell, End, HardwareCounters, Histogram, Interval, MachineFacts, Manifest,
    OutcomeCounts, Record, Role, Row, SCHEMA, Slice, Verdicts,
};
use corewise_bench::registry::Registry;
use corewise_bench::results::Results;
use corewise_bench::runner::Runner;
use corewise_bench::sections::batch::BatchSummary;
use corewise_bench::sections::growth::Timeline;
use corewise_bench::sections::growth::{SlowCount, Tail};
use corewise_bench::sections::memory::{Garbage, MemoryPoint};
use corewise_bench::sections::resize::ResizeSummary;
use corewise_bench::sink::Sink;
use corewise_bench::suite::Suite;
use corewise_bench::table::{Contention, TableInfo};
use corewise_bench::task::Task;
use corewise_topology::Topology;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A text that pages must escape.
pub const NASTY: &str = "<script>alert(\"a & b\")</script>";

/// Tables with the throughput of one thread and the gain of a second one.
pub const TABLES: [(&str, f64, f64); 9] = [
    ("dashmap", 14.0e6, 0.86),
    ("corewise-rp", 21.0e6, 0.97),
    ("papaya", 19.5e6, 0.95),
    ("flurry", 9.0e6, 0.90),
    ("scc", 14.6e6, 0.86),
    ("cuckoo-elided", 17.2e6, 0.94),
    ("std-rwlock", 12.0e6, 0.18),
    ("urcu-lfht", 18.4e6, 0.96),
    ("broken<&map>", 25.0e6, 0.97),
];

/// The states of a table's buckets in the cells of the section `resize`.
pub const VARIANTS: [&str; 3] = [
    "8192 buckets",
    "16384 buckets",
    "resizing between 8192 and 16384 buckets",
];

/// The table whose rows are void in some cells.
pub const BROKEN: &str = "broken<&map>";

/// The records of a made-up run.
pub struct Run {
    rng: Xoshiro256PlusPlus,
    pub records: Vec<Record>,
    /// Factor of all rates.
    pub speed: f64,
    repetitions: usize,
    /// The median rate of the latest reference.
    reference: f64,
    rows: usize,
    void: usize,
}

impl Run {
    /// A run without rows.
    pub fn empty() -> Self {
        Self {
            rng: Xoshiro256PlusPlus::seed_from_u64(7),
            records: vec![Record::Manifest(Box::new(manifest()))],
            speed: 1.0,
            repetitions: 7,
            reference: 1e6,
            rows: 0,
            void: 0,
        }
    }

    /// A run with every section.
    pub fn full() -> Self {
        let mut run = Self::empty();
        run.scaling();
        run.dimensions();
        run.sync();
        run.latencies();
        run.growth();
        run.tails();
        run.memory();
        run.end();
        run
    }

    pub fn end(&mut self) {
        self.records.push(Record::End(End {
            rows: self.rows,
            void: self.void,
            seconds: 754,
        }));
    }

    pub fn lines(&self) -> String {
        let lines = self.records.iter().map(|record| {
            let mut line = serde_json::to_string(record).expect("a record is JSON");
            line.push('\n');
            line
        });
        lines.collect()
    }

    pub fn results(&self) -> Results {
        Results::parse(Path::new("made up/results.jsonl"), self.lines().as_bytes())
            .expect("the records are well formed")
    }

    /// A run of whole suites: for each table of each cell a row with several repetitions and all
    /// records of its section.
    pub fn of_tasks(tasks: &[Task], tables: &[&str]) -> Self {
        let mut run = Self::empty();
        for task in tasks {
            run.repetitions = task.repetitions;
            let workload = &task.workload;
            for id in workload.ids() {
                let cell = Cell {
                    id,
                    ..workload.cell(vec![0, 1])
                };
                run.cell_of(&cell, tables);
            }
        }
        run.summarise_resizes();
        run.end();
        run
    }

    fn cell_of(&mut self, cell: &Cell, tables: &[&str]) {
        let timed = matches!(&*cell.section, "latency" | "paced");
        for (at, &table) in tables.iter().enumerate() {
            let (name, role) = match (at, table) {
                (0, _) => (format!("{table} (again)"), Role::Again),
                (1, _) => (table.to_owned(), Role::Reference),
                (_, "null" | "peer-null") => (table.to_owned(), Role::Null),
                _ => (table.to_owned(), Role::DynTable),
            };
            self.row(cell, &name, role, 1e7 + 1e6 * at as f64, None);
            for (place, operation) in OUTCOMES.iter().enumerate().filter(|_| timed) {
                self.histogram(cell, &name, operation, 30.0 + (at + 9 * place) as f64);
            }
            match &*cell.section {
                "growth" => (0..self.repetitions).for_each(|_| self.timeline(cell, &name, 40)),
                "memory" => self.remembered(cell, &name, at),
                _ => {}
            }
        }
    }

    fn timeline(&mut self, cell: &Cell, table: &str, bins: u64) {
        let operations = (0..bins).map(|_| (3e5 * self.noise(0.3)) as u64).collect();
        let longest_ns = (0..bins).map(|_| (3e5 * self.noise(0.9)) as u64).collect();
        self.records.push(Record::Timeline(Box::new(Timeline {
            cell: cell.id.clone(),
            table: table.to_owned(),
            repetition: 0,
            bin_ms: 10.0,
            operations,
            longest_ns,
        })));
    }

    fn remembered(&mut self, cell: &Cell, table: &str, at: usize) {
        let point = memory_point(cell, table, cell.initial, 22.0 + 3.0 * at as f64);
        self.records.push(Record::Memory(Box::new(point)));
        let over_bytes = (0..50).map(|_| (1e6 * self.noise(0.4)) as i64).collect();
        self.records.push(Record::Garbage(Box::new(Garbage {
            cell: cell.id.clone(),
            table: table.to_owned(),
            entries: cell.initial,
            interval_ms: 10.0,
            over_bytes,
            source: "live".to_owned(),
            settled_bytes: 1000,
        })));
    }

    fn noise(&mut self, much: f64) -> f64 {
        1.0 + (self.rng.random::<f64>() - 0.5) * 2.0 * much
    }

    fn scaling(&mut self) {
        for updates in [0.0, 20.0] {
            for threads in [1, 2, 4, 6, 8, 12, 16] {
                let mut cell = cell("scaling", &format!("u={updates},n={threads}"));
                cell.threads = threads;
                set_updates(&mut cell, updates);
                self.tables(&cell, |name, cell| name == BROKEN && cell.threads > 4);
            }
        }
    }

    fn dimensions(&mut self) {
        for updates in [0.0, 1.0, 10.0, 50.0, 100.0] {
            let mut cell = cell("updates", &format!("u={updates}"));
            set_updates(&mut cell, updates);
            self.tables(&cell, |name, cell| {
                name == BROKEN && cell.update_percent > 0.0
            });
        }
        for power in (10..=24).step_by(2) {
            let mut cell = cell("workingset", &format!("i={}", 1u64 << power));
            cell.initial = 1 << power;
            cell.range = 2 << power;
            self.tables(&cell, |name, _| name == BROKEN);
        }
        for distribution in ["single", "uniform"] {
            let mut cell = cell("hot", distribution);
            cell.distribution = distribution.to_owned();
            cell.range = cell.initial;
            set_updates(&mut cell, 0.0);
            self.tables(&cell, |name, _| name == BROKEN);
        }
        for keys in [1, 16] {
            let mut cell = cell("batch", &format!("batch={keys}"));
            cell.variant = format!("batches of {keys}");
            set_updates(&mut cell, 0.0);
            self.tables(&cell, |name, _| name == BROKEN);
        }
        self.summarise_batches();
        for (updates, readers) in [(0.0, 1), (0.0, 4), (0.0, 8), (10.0, 1), (10.0, 4)] {
            for variant in VARIANTS {
                let id = format!("u={updates},n={readers},{variant}");
                let mut cell = cell("resize", &id);
                cell.threads = readers;
                cell.variant = variant.to_owned();
                set_updates(&mut cell, updates);
                self.tables(&cell, |name, cell| name == BROKEN && cell.threads > 1);
            }
        }
        self.summarise_resizes();
        for distribution in ["uniform", "zipf 0.99", "hotspot 90/10"] {
            let mut cell = cell("distribution", distribution);
            cell.distribution = distribution.to_owned();
            self.tables(&cell, |name, _| name == BROKEN);
        }
        self.tables(&cell("resizing", "between 2^16 and 2^20"), |name, _| {
            name == BROKEN
        });
        for (pin, cpus) in [
            ("compact", vec![0, 1, 2, 3]),
            ("balanced", vec![0, 4, 8, 12]),
            ("none", vec![]),
        ] {
            let mut cell = cell("pinning", pin);
            (cell.pin, cell.cpus) = (pin.to_owned(), cpus);
            self.tables(&cell, |_, _| false);
        }
    }

    fn sync(&mut self) {
        let cell = cell("sync", "locks");
        for (at, name) in ["ttas", "ticket", "mcs", "elided"].into_iter().enumerate() {
            let rate = 4e6 + 1.3e6 * at as f64;
            let role = if at == 0 {
                Role::Reference
            } else {
                Role::DynTable
            };
            self.row(&cell, name, role, rate, None);
            let taken = Contention {
                acquisitions: 1_000_000,
                contended: 420_000 / (at as u64 + 1),
                elided: if name == "elided" { 800_000 } else { 0 },
                aborts: if name == "elided" { 91_000 } else { 0 },
                conflicts: if name == "elided" { 60_000 } else { 0 },
                fallbacks: if name == "elided" { 200_000 } else { 0 },
                ..Contention::default()
            };
            if let Some(Record::Row(row)) = self.records.last_mut() {
                row.contention = Some(taken);
            }
        }
    }

    fn latencies(&mut self) {
        let mut closed = cell("latency", "closed");
        let mut open = cell("paced", "1M/s");
        set_updates(&mut closed, 20.0);
        (open.mode, open.rate_per_s) = ("open".into(), Some(1e6));
        for (cell, least) in [(&closed, 60.0), (&open, 120.0)] {
            self.tables(cell, |name, _| name == BROKEN);
            let operations = [
                "get hit",
                "get miss",
                "insert ok",
                "insert fail",
                "remove ok",
                "remove fail",
            ];
            for (at, operation) in operations.into_iter().enumerate() {
                for (index, (table, ..)) in TABLES.iter().enumerate() {
                    let least = least * (1.0 + 0.2 * at as f64) * (1.0 + 0.13 * index as f64);
                    self.histogram(cell, table, operation, least);
                }
            }
        }
    }

    /// Adds the summaries of rows with batches.
    fn summarise_batches(&mut self) {
        for record in &mut self.records {
            if let Record::Row(row) = record
                && row.cell.section == "batch"
            {
                let rate = row.rate.expect("a rate");
                row.fields.batch = Some(BatchSummary {
                    keys: 16,
                    pairs: 21,
                    single: rate,
                    ratio: Interval {
                        value: 1.75,
                        low: 1.5,
                        high: 2.0,
                    },
                });
            }
        }
    }

    /// Adds the summaries of rows in resizing cells; dashmap pauses.
    pub fn summarise_resizes(&mut self) {
        let rows = self.records.iter_mut().filter_map(|record| match record {
            Record::Row(row) if row.cell.variant.starts_with("resizing") => Some(row),
            _ => None,
        });
        for row in rows {
            let Some(rate) = row.rate else { continue };
            row.fields.resize = Some(ResizeSummary {
                buckets: (8192, 16384),
                pairs: 75,
                small: rate,
                large: rate,
                resizing: rate,
                to_slower: rate,
                to_faster: rate,
                position: "between".to_owned(),
                machine: rate,
                resizes_per_s: rate,
                busy_share: Interval {
                    value: if row.table == "dashmap" { 0.812 } else { 0.97 },
                    ..rate
                },
                own_cpu: false,
            });
        }
    }

    fn histogram(&mut self, cell: &Cell, table: &str, operation: &str, least: f64) {
        let latencies = latencies();
        let ns = |latency: f64| (least * latency) as u64;
        let mut buckets: Vec<(u64, u64)> = Vec::new();
        for &latency in latencies {
            match buckets.last_mut() {
                Some((last, count)) if *last == ns(latency) => *count += 1,
                _ => buckets.push((ns(latency), 1)),
            }
        }
        let percentile = |percent: f64| {
            let rank = (latencies.len() as f64 * percent / 100.0).ceil() as usize;
            (percent.to_string(), ns(latencies[rank - 1]) as f64)
        };
        self.records.push(Record::Histogram(Box::new(Histogram {
            cell: cell.id.clone(),
            table: table.to_owned(),
            operation: operation.to_owned(),
            count: LATENCIES as u64,
            mean_ns: least * 2.0,
            min_ns: least,
            max_ns: ns(latencies[LATENCIES - 1]) as f64,
            percentiles_ns: [50.0, 90.0, 99.0, 99.9, 99.99].map(percentile).into(),
            buckets,
        })));
    }

    fn growth(&mut self) {
        let mut cell = cell("growth", "from empty");
        cell.initial = 0;
        self.tables(&cell, |name, _| name == BROKEN);
        for (index, (table, rate, _)) in TABLES.iter().enumerate() {
            let mut operations = Vec::new();
            let mut longest_ns = Vec::new();
            for bin in 0..900u64 {
                let doubling = (bin + 40).is_power_of_two() && index % 2 == 0;
                let share = if doubling { 0.05 } else { self.noise(0.08) };
                operations.push((rate / 1e3 * share) as u64);
                let usual = 9e3 * self.noise(0.5);
                longest_ns.push(if doubling { bin * 90_000 } else { usual as u64 });
            }
            self.records.push(Record::Timeline(Box::new(Timeline {
                cell: cell.id.clone(),
                table: (*table).to_owned(),
                repetition: 0,
                bin_ms: 1.0,
                operations,
                longest_ns,
            })));
        }
    }

    fn tails(&mut self) {
        let mut cell = cell("tails", "from empty");
        cell.initial = 0;
        self.tables(&cell, |name, _| name == BROKEN);
        for record in &mut self.records {
            if let Record::Row(row) = record
                && row.cell.section == "tails"
            {
                row.fields.tails = ["writer", "reader"].map(tail).into();
            }
        }
    }

    fn memory(&mut self) {
        let by_size = cell("memory", "by size");
        let churn = cell("memory", "churn");
        self.rateless(&by_size);
        self.rateless(&churn);
        for (index, (table, ..)) in TABLES.iter().enumerate() {
            for power in (10..=22).step_by(3) {
                let point = memory_point(&by_size, table, 1 << power, 22.0 + 7.0 * index as f64);
                self.records.push(Record::Memory(Box::new(point)));
            }
            let swing = (index % 4) as f64 * 3e6;
            let over = |at: u32| {
                (swing * (1.0 - (-f64::from(at) / 12.0).exp()) + 2e5 * f64::from(at % 5)) as i64
            };
            self.records.push(Record::Garbage(Box::new(Garbage {
                cell: churn.id.clone(),
                table: (*table).to_owned(),
                entries: 1 << 20,
                interval_ms: 50.0,
                over_bytes: (0..80).map(over).collect(),
                source: "live".to_owned(),
                settled_bytes: (swing / 9.0) as i64 - 100_000,
            })));
        }
    }

    fn rateless(&mut self, cell: &Cell) {
        for (index, (name, ..)) in TABLES.iter().enumerate() {
            let role = if index == 0 {
                Role::Reference
            } else {
                Role::DynTable
            };
            let mut row = row(cell, name, role, self.repetitions);
            if *name == BROKEN {
                row.verdict = "void".into();
                row.problems = vec!["leaks".to_owned()];
                self.void += 1;
            }
            self.rows += 1;
            self.records.push(Record::Row(Box::new(row)));
        }
    }

    /// Adds all tables, the reference again, and the null table to a cell.
    fn tables(&mut self, cell: &Cell, void: impl Fn(&str, &Cell) -> bool) {
        for (index, (name, one, more)) in TABLES.iter().enumerate() {
            let rate = rate(cell, *one, *more);
            let role = if index == 0 {
                Role::Reference
            } else {
                Role::DynTable
            };
            let why = void(name, cell).then_some(NASTY);
            self.row(cell, name, role, rate, why);
        }
        let (reference, one, more) = TABLES[0];
        self.row(cell, reference, Role::Again, rate(cell, one, more), None);
        self.row(cell, "null", Role::Null, 120e6 * cell.threads as f64, None);
    }

    /// Adds a row with its repetitions.
    pub fn row(&mut self, cell: &Cell, table: &str, role: Role, rate: f64, why: Option<&str>) {
        let mut rates = Vec::new();
        for repetition in 0..self.repetitions {
            let rate = rate * self.speed * self.noise(0.02);
            rates.push(rate);
            let mut slice = slice(cell, table, role, repetition, rate);
            slice.checks.problems = why.iter().map(|why| (*why).to_owned()).collect();
            self.records.push(Record::Slice(Box::new(slice)));
        }
        rates.sort_by(f64::total_cmp);
        let value = rates[rates.len() / 2];
        let interval = |value: f64| Interval {
            value,
            low: value * 0.985,
            high: value * 1.015,
        };
        let mut row = row(cell, table, role, self.repetitions);
        row.rate = Some(interval(value));
        if role == Role::Reference {
            self.reference = value;
        } else {
            let ratio = value / self.reference;
            row.ratio = Some(interval(ratio));
            row.verdict = verdict(ratio).to_owned();
        }
        if let Some(why) = why {
            row.verdict = "void".to_owned();
            row.problems = vec![why.to_owned()];
            self.void += 1;
        }
        self.rows += 1;
        self.records.push(Record::Row(Box::new(row)));
    }
}

/// Latencies in a histogram.
const LATENCIES: usize = 20_000;

/// Random latencies with a long tail, as multiples of the least one; ascending. All histograms have
/// these: drawing them for each takes most of the time of the tests.
fn latencies() -> &'static [f64] {
    static DRAWN: OnceLock<Vec<f64>> = OnceLock::new();
    DRAWN.get_or_init(|| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
        let mut drawn: Vec<f64> = (0..LATENCIES)
            .map(|_| (1.0 / (1.0 - rng.random::<f64>())).powf(0.55))
            .collect();
        drawn.sort_unstable_by(f64::total_cmp);
        drawn
    })
}

fn tail(side: &str) -> Tail {
    let slow = |over_us| SlowCount {
        over_us,
        count: 7,
        counts: vec![3, 4],
        empty_count: 8,
        empty_counts: vec![8, 0],
        expected: 7.5,
        allowed: 15.7,
        within: true,
    };
    Tail {
        side: side.to_owned(),
        operations: 2_000_000,
        elapsed_ns: 500_000_000,
        p999_ns: 900.0,
        max_ns: 3e6,
        slow: vec![slow(50), slow(100)],
        empty_operations: 9_000_000,
        empty_elapsed_ns: 510_000_000,
        empty_max_ns: 2e6,
    }
}

fn verdict(ratio: f64) -> &'static str {
    match ratio {
        much if much > 1.05 => "faster",
        little if little < 0.9 => "slower",
        near if (0.97..1.03).contains(&near) => "equivalent",
        _ => "undecided",
    }
}

/// Returns the rate of a table in a cell: less with updates and with more entries, more with
/// threads.
fn rate(cell: &Cell, one: f64, more: f64) -> f64 {
    let threads = 1.0 + more * (cell.threads as f64 - 1.0) / (1.0 + 0.02 * cell.threads as f64);
    let writing = 1.0 / (1.0 + cell.update_percent / 40.0);
    let missing = 1.0 / (1.0 + (cell.initial as f64 / 3e5).sqrt() * 0.35);
    let popular = if cell.distribution == "uniform" {
        1.0
    } else {
        1.3
    };
    one * threads * writing * missing * popular
}

fn row(cell: &Cell, table: &str, role: Role, repetitions: usize) -> Row {
    Row {
        cell: cell.clone(),
        table: table.to_owned(),
        role,
        repetitions,
        rate: None,
        ratio: None,
        verdict: String::new(),
        version: "1.0".into(),
        allocator: "mimalloc".into(),
        pages: "default".into(),
        problems: Vec::new(),
        contention: None,
        per_operation: BTreeMap::new(),
        fields: RowFields::default(),
    }
}

fn slice(cell: &Cell, table: &str, role: Role, repetition: usize, rate: f64) -> Slice {
    Slice {
        cell: cell.id.clone(),
        table: table.to_owned(),
        role,
        repetition,
        rate,
        rates: vec![rate; 3],
        operations: rate as u64,
        elapsed_ns: 1_000_000_000,
        counts: OutcomeCounts::default(),
        prefill_ns: 80_000_000,
        checks: Verdicts::default(),
        hardware: HardwareCounters::default(),
        contention: None,
        ran_on: vec![0, 1],
        fields: SliceFields::default(),
    }
}

fn memory_point(cell: &Cell, table: &str, entries: u64, each: f64) -> MemoryPoint {
    let live = (entries as f64 * each) as u64 + 3_000;
    MemoryPoint {
        cell: cell.id.clone(),
        table: table.to_owned(),
        entries,
        payload_bytes: entries * 16,
        live_bytes: Some(live),
        peak_live_bytes: Some(live * 3 / 2),
        resident_bytes: live + live / 4 + 60_000,
        peak_resident_bytes: live * 2 + 60_000,
        emptied_bytes: Some(live / 10),
        dropped_bytes: Some(0),
    }
}

/// Runs a suite on two processors; returns its rows as they are shown, and the file of results.
pub fn run_suite(registry: &Registry, suite: &str, patience: Duration) -> (Vec<Row>, String, End) {
    let suite = Suite::parse(suite).expect("a valid suite");
    let tasks = suite.tasks(&Params::default(), &Topology::flat(2), true);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("results.jsonl");
    let sink = Sink::create(&path, false, false).expect("a file");
    let rows = RefCell::new(Vec::new());
    let show = Box::new(|row: &Row| rows.borrow_mut().push(row.clone()));
    let facts = Manifest {
        plan: suite.to_toml(),
        seed: 5,
        ..corewise_bench::manifest::manifest(&suite.name)
    };
    let end = Runner::new(registry, sink, 5, facts, None, show)
        .with_patience(patience)
        .run(&tasks.expect("valid cells"))
        .expect("a run");
    let text = std::fs::read_to_string(&path).expect("results");
    (rows.into_inner(), text, end)
}

/// A cell of that section with the usual parameters.
pub fn cell(section: &str, rest: &str) -> Cell {
    Cell {
        id: format!("{section}/{rest}"),
        section: section.to_owned(),
        threads: 4,
        duration_ms: 500.0,
        update_percent: 10.0,
        insert_percent: 5.0,
        remove_percent: 5.0,
        initial: 1 << 20,
        range: 2 << 20,
        distribution: "uniform".into(),
        kind: "u64".into(),
        key_bytes: (8, 8),
        value_bytes: 8,
        keys: corewise_bench::plan::KeyMap::Mixed,
        hash: "common".into(),
        prefill: "all".into(),
        pin: "compact".into(),
        cpus: vec![0, 1, 2, 3],
        mode: "closed".into(),
        rate_per_s: None,
        variant: String::new(),
        left_out: Vec::new(),
    }
}

pub fn set_updates(cell: &mut Cell, percent: f64) {
    cell.update_percent = percent;
    cell.insert_percent = percent / 2.0;
    cell.remove_percent = percent / 2.0;
}

/// The manifest of the run.
pub fn manifest() -> Manifest {
    let words = [
        "corewise",
        "bench",
        "run",
        "--suite",
        "paper suite",
        "--note",
        NASTY,
    ];
    Manifest {
        schema: SCHEMA,
        date: "2026-11-24T09:12:44Z".into(),
        command: words.map(str::to_owned).into(),
        suite: "paper".into(),
        plan: format!("# {NASTY}\n[[section]]\nname = \"scaling\"\n"),
        seed: 42,
        commit: "3f9c2ab1".into(),
        dirty: true,
        rustc: "rustc 1.95.0".into(),
        build: "x86_64-unknown-linux-gnu, release, target-cpu=native".into(),
        features: vec!["bench".into(), "peers".into()],
        allocator: "mimalloc 2.1.7".into(),
        pages: "transparent: madvise".into(),
        machine: machine(),
        cards: TABLES.iter().map(|(name, ..)| card(name)).collect(),
    }
}

fn machine() -> MachineFacts {
    let cache = |level, size_bytes, shared_by| CacheFacts {
        level,
        size_bytes,
        shared_by,
    };
    MachineFacts {
        cpu: "Example CPU 9000 @ 3.0 GHz".into(),
        cpus: 12,
        cores: 12,
        sockets: 1,
        node_ends: vec![6, 12],
        kernel: "6.8.0-example".into(),
        memory_bytes: 64 << 30,
        caches: vec![
            cache(1, 48 << 10, 1),
            cache(2, 2 << 20, 1),
            cache(3, 32 << 20, 12),
        ],
        load_1min: 0.21,
        virtual_machine: true,
        tsc_hz: 3.0e9,
        timing_overhead_ns: 11.5,
    }
}

pub fn card(name: &str) -> TableInfo {
    TableInfo {
        name: name.to_owned(),
        about: format!("a table called {name}; {NASTY}"),
        version: "1.2.3".into(),
        language: "Rust".into(),
        hasher: "foldhash".into(),
        reclamation: "epochs".into(),
        guarantees: "linearizable".into(),
        settings: "none".into(),
        adapter: "pins an epoch for each operation".into(),
        memory: "global allocator".into(),
        batch: "groups of 16".into(),
    }
}
