//! A workload: the parameters of the thesis (section 3.3.1), checked.

use corewise_topology::PinPolicy;

use crate::law::Law;
use crate::plan::{Kept, KeyMap, Plan};
use crate::record::Cell;
use crate::table::{MOST_BATCHED, Setup, Shape};

/// Most threads of a run.
pub const MAX_THREADS: usize = 512;
/// Most keys of a run.
pub const MAX_RANGE: u64 = 1 << 31;

/// What is measured in a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// Operations per second.
    Throughput,
    /// Latencies of a sample of the operations, at full load.
    Latency,
    /// Latencies from the intended start, at a rate: operations per second, or a share of what
    /// the reference reaches in closed loop.
    Paced(Pacing),
    /// Growth from empty.
    Growth,
    /// Slow operations of one writer that grows the table from empty and of one reader beside.
    Tails,
    /// Memory, in a process of its own.
    Memory,
    /// Pairs of a remove and an insert of the same key, per second.
    Hot,
    /// Lookups, or a mix with updates, while a thread besides resizes between these numbers of
    /// buckets.
    Resize((usize, usize)),
    /// Lookups in batches of so many keys, and single ones in turn.
    Batch(usize),
}

/// A rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pacing {
    /// Operations per second of all threads.
    Rate(f64),
    /// Share of the reference's closed-loop throughput.
    Load(f64),
}

/// A workload at a number of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The section it belongs to.
    pub section: String,
    /// What is measured.
    pub method: Method,
    /// Threads (n).
    pub threads: usize,
    /// Measured milliseconds of a repetition (d), over all its slices.
    pub duration_ms: f64,
    /// Short slices of a repetition.
    pub slices: usize,
    /// Milliseconds before each slice that are not measured.
    pub warm_ms: f64,
    /// Percentage of inserts.
    pub insert_percent: f64,
    /// Percentage of removes.
    pub remove_percent: f64,
    /// Entries at the start (i).
    pub initial: u64,
    /// Keys (r).
    pub range: u64,
    /// What the table is built for, over `initial`.
    pub capacity: f64,
    /// The law keys are drawn by.
    pub law: Law,
    /// `u64` or `bytes`.
    pub kind: String,
    /// Bytes of keys.
    pub key_bytes: (usize, usize),
    /// Bytes of values.
    pub value_bytes: usize,
    /// How keys are made.
    pub keys: KeyMap,
    /// Whether tables use their own hash functions.
    pub native_hash: bool,
    /// Whether one thread fills the table.
    pub prefill_by_one: bool,
    /// Entries replaced before measuring, over `initial`.
    pub churn: f64,
    /// Where threads go.
    pub pin: PinPolicy,
}

/// What has to hold, and what is said if it does not.
type Check = (bool, String);

impl Workload {
    /// Says what is wrong with it, if anything.
    pub fn validate(&self) -> Result<(), String> {
        let numbers = self.checks_of_numbers().into_iter();
        let method = self.checks_of_method().into_iter();
        let entries = self.checks_of_entries().into_iter();
        let mut checks = numbers.chain(method).chain(entries);
        match checks.find(|(holds, _)| !holds) {
            Some((_, what)) => Err(what),
            None => Ok(()),
        }
    }

    /// Of what every method goes by.
    fn checks_of_numbers(&self) -> [Check; 8] {
        let updates = self.updates();
        [
            (
                self.threads >= 1 && self.threads <= MAX_THREADS,
                format!("threads: {} (1 to {MAX_THREADS})", self.threads),
            ),
            (
                self.duration_ms >= 1.0 && self.duration_ms <= 3_600_000.0,
                format!("duration: {} ms (1 to 3600000)", self.duration_ms),
            ),
            (
                self.slices >= 1 && self.slices <= 1_000,
                format!("slices: {} (1 to 1000)", self.slices),
            ),
            (
                self.warm_ms >= 0.0 && self.warm_ms <= 60_000.0,
                format!("warm: {} ms (0 to 60000)", self.warm_ms),
            ),
            (
                self.insert_percent >= 0.0 && self.remove_percent >= 0.0 && updates <= 100.0,
                format!(
                    "updates: {}+{} % (0 to 100 together)",
                    self.insert_percent, self.remove_percent
                ),
            ),
            (
                self.range >= 1 && self.range <= MAX_RANGE,
                format!("range: {} (1 to {MAX_RANGE})", self.range),
            ),
            (
                self.initial <= self.range,
                format!(
                    "initial: {} is more than the range, {}",
                    self.initial, self.range
                ),
            ),
            (
                self.capacity > 0.0 && self.capacity <= 64.0,
                format!(
                    "capacity: {} (times the initial size, up to 64)",
                    self.capacity
                ),
            ),
        ]
    }

    /// Of what a method asks for besides.
    fn checks_of_method(&self) -> [Check; 7] {
        let batch = match self.method {
            Method::Batch(keys) => keys,
            _ => 1,
        };
        let (small, large) = match self.method {
            Method::Resize(buckets) => buckets,
            _ => (1, 2),
        };
        [
            (
                small < large && small >= 1 && large as u64 <= MAX_RANGE,
                format!("buckets: {small}-{large} (1 to {MAX_RANGE}, the smaller first)"),
            ),
            (
                self.method != Method::Hot || matches!(self.law, Law::Single | Law::Uniform),
                format!("distribution: {} (single, uniform)", self.law),
            ),
            (
                (1..=MOST_BATCHED).contains(&batch),
                format!("batch: {batch} keys (1 to {MOST_BATCHED})"),
            ),
            (
                self.method != Method::Hot || self.initial >= self.threads as u64,
                format!("initial: {} (a key for each thread)", self.initial),
            ),
            (
                self.kept() != Kept::Half || self.law == Law::Uniform,
                format!(
                    "distribution: {} (uniform, where half of the keys stay)",
                    self.law
                ),
            ),
            (
                self.kept() != Kept::Half
                    || self.range.is_multiple_of(2) && self.initial >= self.range / 2,
                format!(
                    "initial: {} of {} keys (half of an even number stay)",
                    self.initial, self.range
                ),
            ),
            (
                self.method != Method::Tails || self.threads == 2,
                format!("threads: {} (2: a writer and a reader)", self.threads),
            ),
        ]
    }

    /// Of the entries.
    fn checks_of_entries(&self) -> [Check; 4] {
        [
            (
                (0.0..=100.0).contains(&self.churn),
                format!("churn: {} (0 to 100)", self.churn),
            ),
            (
                matches!(&*self.kind, "u64" | "bytes"),
                format!("kind: `{}` (u64, bytes)", self.kind),
            ),
            (
                self.kind == "u64"
                    || (16 <= self.key_bytes.0
                        && self.key_bytes.0 <= self.key_bytes.1
                        && self.key_bytes.1 <= 250),
                format!(
                    "key-bytes: {}-{} (16 to 250)",
                    self.key_bytes.0, self.key_bytes.1
                ),
            ),
            (
                self.kind == "u64" || (8..=4096).contains(&self.value_bytes),
                format!("value-bytes: {} (8 to 4096)", self.value_bytes),
            ),
        ]
    }

    /// Sizes of keys and values.
    pub fn shape(&self) -> Shape {
        match &*self.kind {
            "u64" => Shape {
                key_bytes: (8, 8),
                value_bytes: 8,
            },
            _ => Shape {
                key_bytes: self.key_bytes,
                value_bytes: self.value_bytes,
            },
        }
    }

    /// The keys.
    pub fn plan(&self) -> Plan {
        Plan::new(
            self.shape(),
            self.range as u32,
            self.initial as u32,
            self.threads,
            self.keys,
        )
        .keeping(self.kept())
    }

    /// Which keys stay while it runs.
    fn kept(&self) -> Kept {
        match self.method {
            Method::Resize(_) if self.updates() > 0.0 => Kept::Half,
            Method::Resize(_) => Kept::All,
            Method::Batch(_) => Kept::Half,
            _ => Kept::None,
        }
    }

    /// Percentage of inserts and removes.
    fn updates(&self) -> f64 {
        self.insert_percent + self.remove_percent
    }

    /// What the table is told to expect.
    pub fn announced(&self) -> usize {
        match self.method {
            Method::Growth | Method::Tails | Method::Memory => 0,
            _ => (self.initial as f64 * self.capacity).ceil() as usize,
        }
    }

    /// What the table is told.
    pub fn setup(&self) -> Setup {
        let shape = self.shape();
        Setup {
            capacity: self.announced(),
            threads: self.threads,
            value_bytes: shape.value_bytes,
            key_bytes: shape.key_bytes.1,
        }
    }

    /// Bytes of keys and values of an entry.
    pub fn payload_bytes(&self) -> u64 {
        let shape = self.shape();
        ((shape.key_bytes.0 + shape.key_bytes.1) / 2 + shape.value_bytes) as u64
    }

    /// Whether all keys are present at the start and at the end.
    fn is_full(&self) -> bool {
        self.method == Method::Hot || self.kept() == Kept::All
    }

    /// Its name within a file.
    pub fn id(&self) -> String {
        let mut id = format!("{}/i={}", self.section, self.initial);
        if self.range != 2 * self.initial && !self.is_full() {
            id += &format!(",r={}", self.range);
        }
        if !matches!(self.method, Method::Growth | Method::Tails | Method::Memory)
            && !self.is_full()
        {
            id += &format!(",u={}", self.updates());
            if self.insert_percent != self.remove_percent {
                id += &format!("({}+{})", self.insert_percent, self.remove_percent);
            }
            id += &format!(",{}", self.law);
        }
        if self.method == Method::Hot || self.is_full() && self.law != Law::Uniform {
            id += &format!(",{}", self.law);
        }
        id += &format!(",n={}", self.threads);
        if self.kind != "u64" {
            id += &format!(
                ",k={}-{},v={}",
                self.key_bytes.0, self.key_bytes.1, self.value_bytes
            );
        }
        if self.keys == KeyMap::Dense {
            id += ",dense";
        }
        if self.native_hash {
            id += ",native";
        }
        if self.section == "pinning" {
            id += &format!(",{}", self.pin_name());
        }
        match self.method {
            Method::Paced(Pacing::Rate(rate)) => id + &format!(",{rate}/s"),
            Method::Paced(Pacing::Load(load)) => id + &format!(",load={load}"),
            Method::Resize((small, large)) => id + &format!(",b={small}-{large}"),
            Method::Batch(keys) => id + &format!(",batch={keys}"),
            _ => id,
        }
    }

    /// The names of all cells that are measured together, its own the first.
    pub fn ids(&self) -> Vec<String> {
        let id = self.id();
        let Method::Resize((small, large)) = self.method else {
            return vec![id];
        };
        let base = id.trim_end_matches(&format!("{small}-{large}"));
        vec![
            id.clone(),
            format!("{base}{small}"),
            format!("{base}{large}"),
        ]
    }

    /// The pin policy by the name that the thesis gives it.
    pub fn pin_name(&self) -> String {
        match &self.pin {
            PinPolicy::None => "default".into(),
            policy => policy.to_string(),
        }
    }

    /// As it goes into results.
    pub fn cell(&self, cpus: Vec<usize>) -> Cell {
        let shape = self.shape();
        Cell {
            id: self.id(),
            section: self.section.clone(),
            threads: self.threads,
            duration_ms: self.duration_ms,
            update_percent: self.updates(),
            insert_percent: self.insert_percent,
            remove_percent: self.remove_percent,
            initial: self.initial,
            range: self.range,
            distribution: self.law.to_string(),
            kind: self.kind.clone(),
            key_bytes: shape.key_bytes,
            value_bytes: shape.value_bytes,
            keys: if self.keys == KeyMap::Dense {
                "dense"
            } else {
                "mixed"
            }
            .into(),
            hash: if self.native_hash { "native" } else { "common" }.into(),
            prefill: if self.prefill_by_one { "one" } else { "all" }.into(),
            pin: self.pin_name(),
            cpus,
            mode: if matches!(self.method, Method::Paced(_)) {
                "open"
            } else {
                "closed"
            }
            .into(),
            rate_per_s: match self.method {
                Method::Paced(Pacing::Rate(rate)) => Some(rate),
                _ => None,
            },
            variant: match self.method {
                Method::Batch(keys) => format!("batches of {keys}"),
                _ => String::new(),
            },
            left_out: Vec::new(),
        }
    }
}
