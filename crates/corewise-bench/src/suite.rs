//! Suites: what a run measures, as a TOML file or from the command line.
//!
//! ```toml
//! name = "example"
//! about = "what it shows"
//! [defaults]                 # any parameter, for all sections
//! tables = ["papaya", "dashmap"]
//! reference = "sharded64"
//! [[section]]
//! kind = "scaling"           # the dimension; it brings defaults of its own
//! threads = ["1..cpus"]
//! initial = [1000, 1000000]
//! updates = [10.0]
//! ```
//!
//! Every list is a dimension: a section measures all combinations. What a section does not say is
//! taken from `[defaults]`, then from the section's kind, then from what is built in.

use std::path::Path;

use corewise_topology::{PinPolicy, Topology};
use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::law::Law;
use crate::plan::KeyMap;
use crate::workload::{MAX_THREADS, Method, Pacing, Workload};

/// Most cells of a suite.
const MAX_CELLS: usize = 10_000;

/// The dimensions, by the names of their sections.
pub const SECTIONS: [(&str, &str); 15] = [
    ("scaling", "throughput against threads (thesis 3.4.2)"),
    ("distribution", "throughput by distribution of keys (3.4.2)"),
    (
        "resizing",
        "throughput while the table grows: load 90 %, 35 % inserts, 5 % removes (3.4.2)",
    ),
    ("updates", "throughput against the share of updates (3.4.3)"),
    (
        "workingset",
        "throughput against entries, from the first cache to memory (3.4.4)",
    ),
    (
        "latency",
        "latency of get, put and remove, by success and failure (3.4.5)",
    ),
    ("pinning", "throughput by placement of threads (3.4.6)"),
    (
        "sync",
        "one table under different locks and elision, and their contention (3.4.7)",
    ),
    ("memory", "bytes per entry, peak and garbage (3.4.8)"),
    ("growth", "growth from empty: a time line of stalls"),
    (
        "tails",
        "growth by one writer beside one reader: slow operations against an empty loop's",
    ),
    (
        "hot",
        "remove and reinsert: one hot key for each thread, or random ones",
    ),
    (
        "resize",
        "lookups, or a mix, beside a thread that resizes without pause, and at both sizes at rest (Triplett 6.1)",
    ),
    (
        "batch",
        "lookups in batches against single ones, in tables that are larger than the caches",
    ),
    (
        "paced",
        "latency at a rate, from the intended start (open loop)",
    ),
];

/// A number of threads: `4`, `cpus`, `cpus/2`, `2*cpus`, `1..cpus` for powers of two and the number
/// of CPUs, or `1..16` for powers of two and 16, as far as there are CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Threads {
    /// So many.
    Number(usize),
    /// In words.
    Words(String),
}

impl Threads {
    fn resolve(&self, cpus: usize, oversubscribe: bool) -> Option<Vec<usize>> {
        let words = match self {
            Self::Number(number) => return Some(vec![*number]),
            Self::Words(words) => words.as_str(),
        };
        if let Some(most) = words.strip_prefix("1..") {
            let most = match most {
                "cpus" => cpus,
                number => number
                    .parse()
                    .ok()
                    .filter(|most| (1..=MAX_THREADS).contains(most))?,
            };
            let powers = (0..).map(|bit| 1 << bit).take_while(|&n| n < most);
            let allowed = |n: &usize| oversubscribe || *n <= cpus;
            return Some(powers.chain([most]).filter(allowed).collect());
        }
        if let Some(factor) = words.strip_suffix("*cpus") {
            return factor
                .parse()
                .ok()
                .map(|factor: usize| vec![factor.saturating_mul(cpus)]);
        }
        let divisor: usize = match words.strip_prefix("cpus")? {
            "" => 1,
            rest => rest.strip_prefix('/')?.parse().ok()?,
        };
        (divisor > 0).then(|| vec![(cpus / divisor).max(1)])
    }
}

/// Parameters; what is absent is taken from elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Params {
    /// Tables to compare.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tables: Option<Vec<String>>,
    /// The table that the others are compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Repetitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repetitions: Option<usize>,
    /// Threads (n).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<Vec<Threads>>,
    /// Measured milliseconds of a repetition (d).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<f64>,
    /// Short slices of a repetition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slices: Option<usize>,
    /// Unmeasured milliseconds before each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_ms: Option<f64>,
    /// Percentages of updates (u).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updates: Option<Vec<f64>>,
    /// Share of the updates that insert, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insert_share: Option<f64>,
    /// Entries at the start (i).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial: Option<Vec<u64>>,
    /// Keys (r).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<u64>,
    /// Entries at the start over keys, in percent; instead of `range`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub density: Option<f64>,
    /// Load of the table at the start in percent of what it is built for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// Laws keys are drawn by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Vec<String>>,
    /// `u64` or `bytes`. A section has a `kind` of its own, so in a suite it is `entry-kind`.
    #[serde(rename = "entry-kind", alias = "kind")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Least and most bytes of keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_bytes: Option<(usize, usize)>,
    /// Bytes of values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_bytes: Option<Vec<usize>>,
    /// `mixed` or `dense` keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<KeyMap>,
    /// `common` or `native` hash functions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// `all` threads or `one` fill the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill: Option<String>,
    /// Entries replaced before measuring, over `initial`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub churn: Option<f64>,
    /// Placements of threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<Vec<String>>,
    /// Rates of the open loop, operations per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rates: Option<Vec<f64>>,
    /// Rates of the open loop, in percent of the reference's throughput in closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loads: Option<Vec<f64>>,
    /// The two numbers of buckets of the section `resize`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buckets: Option<(usize, usize)>,
    /// Keys of a batch in the section `batch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<Vec<usize>>,
}

/// Takes each field from the first that has it.
macro_rules! first_of {
    ($one:expr, $other:expr; $($field:ident),*) => { Params { $($field: $one.$field.clone().or_else(|| $other.$field.clone())),* } };
}

impl Params {
    /// These, and where they are silent those.
    pub fn or(&self, other: &Self) -> Self {
        first_of!(self, other; tables, reference, repetitions, threads, duration_ms, slices, warm_ms, updates,
            insert_share, initial, range, density, load, distribution, kind, key_bytes, value_bytes, keys, hash,
            prefill, churn, pin, rates, loads, buckets, batch)
    }

    /// What is taken if nobody says anything: the thesis's, where it names something.
    fn built_in() -> Self {
        Self {
            repetitions: Some(15),
            threads: Some(vec![Threads::Words("cpus".into())]),
            duration_ms: Some(100.0),
            slices: Some(5),
            warm_ms: Some(4.0),
            updates: Some(vec![10.0]),
            insert_share: Some(50.0),
            initial: Some(vec![1 << 20]),
            distribution: Some(vec!["uniform".into()]),
            kind: Some("u64".into()),
            key_bytes: Some((16, 250)),
            value_bytes: Some(vec![32]),
            churn: Some(1.0),
            pin: Some(vec!["compact".into()]),
            reference: Some("rwlock".into()),
            ..Self::default()
        }
    }

    /// What the section `resize` brings along: the paper's sizes, and every table that can be told to
    /// resize.
    fn of_resize() -> Self {
        const OTHERS: [&str; 8] = [
            "relativistic",
            "sharded64?",
            "dashmap?",
            "urcu-memb?",
            "urcu-qsbr?",
            "libcuckoo?",
            "mutex",
            "rwlock",
        ];
        let tables = OTHERS.iter().chain(&crate::adapters::CHAINED);
        Self {
            threads: Some(vec![Threads::Words("1..cpus".into())]),
            initial: Some(vec![1 << 16]),
            buckets: Some((1 << 13, 1 << 14)),
            // With -u 10, the mix of section 4.1.
            updates: Some(vec![0.0]),
            insert_share: Some(90.0),
            tables: Some(tables.map(|name| (*name).to_string()).collect()),
            ..Self::default()
        }
    }

    /// What the section `batch` brings along: tables that batch, and others beside them.
    fn of_batch() -> Self {
        const TABLES: [&str; 9] = [
            "relativistic",
            "clht-lb",
            "sharded64?",
            "papaya?",
            "dashmap?",
            "scc-index?",
            "urcu-memb?",
            "libcuckoo?",
            "rwlock",
        ];
        let tables = TABLES.iter().chain(&crate::adapters::CHAINED);
        Self {
            threads: Some(vec![Threads::Number(1)]),
            initial: Some(vec![10_000_000]),
            batch: Some(vec![1, 16, 64]),
            tables: Some(tables.map(|name| (*name).to_string()).collect()),
            ..Self::default()
        }
    }

    /// What a section brings along.
    fn of_kind(kind: &str) -> Self {
        let words = |words: &[&str]| Some(words.iter().map(|word| word.to_string()).collect());
        let mut params = Self::default();
        match kind {
            "scaling" => params.threads = Some(vec![Threads::Words("1..cpus".into())]),
            "distribution" => {
                params.distribution = words(&[
                    "uniform",
                    "zipf:0.5",
                    "zipf:0.8",
                    "zipf:0.99",
                    "zipf:1.2",
                    "zipf:1.5",
                    "hotspot",
                    "single",
                    "sequential",
                ]);
            }
            "resizing" => {
                (params.updates, params.insert_share) = (Some(vec![40.0]), Some(87.5));
                (params.load, params.churn) = (Some(90.0), Some(0.0));
                (params.slices, params.warm_ms, params.duration_ms) =
                    (Some(1), Some(0.0), Some(300.0));
            }
            "updates" => {
                params.updates = Some(vec![0.0, 1.0, 5.0, 10.0, 20.0, 40.0, 50.0, 80.0, 100.0])
            }
            "workingset" => {
                params.initial = Some((8..=24).step_by(2).map(|bit| 1 << bit).collect());
            }
            "pinning" => params.pin = words(&["default", "compact", "balanced", "smt-pair"]),
            "sync" => {
                params.tables = words(&[
                    "lock:tas",
                    "lock:ttas",
                    "lock:ticket",
                    "lock:mcs",
                    "lock:std-mutex",
                    "lock:parking-mutex",
                    "lock:parking-rwlock",
                    "lock:sharded-rwlock",
                    "lock:elided-ttas",
                ]);
                params.reference = Some("lock:std-mutex".into());
                params.initial = Some(vec![1 << 10, 1 << 20]);
            }
            "memory" => {
                params.initial = Some((3..=7).map(|zeros| 10u64.pow(zeros)).collect());
                (params.repetitions, params.threads) =
                    (Some(1), Some(vec![Threads::Words("cpus".into())]));
            }
            "growth" => params.repetitions = Some(5),
            "tails" => {
                params.repetitions = Some(5);
                params.initial = Some(vec![10_000_000]);
            }
            "hot" => {
                params.threads = Some(vec![Threads::Words("1..cpus".into())]);
                params.initial = Some(vec![1_000, 100_000, 1_000_000]);
                params.distribution = words(&["single", "uniform"]);
            }
            "resize" => params = Self::of_resize(),
            "batch" => params = Self::of_batch(),
            "paced" => (params.loads, params.duration_ms) = (Some(vec![50.0, 80.0]), Some(500.0)),
            _ => {}
        }
        params
    }
}

/// A section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "toml::Table")]
pub struct Section {
    /// The dimension.
    pub kind: String,
    /// Its parameters.
    #[serde(flatten)]
    pub params: Params,
}

/// By hand, because serde's flattening would let unknown fields pass.
impl TryFrom<toml::Table> for Section {
    type Error = String;

    fn try_from(mut table: toml::Table) -> Result<Self, String> {
        let kind = match table.remove("kind") {
            Some(toml::Value::String(kind)) => kind,
            _ => return Err("a section needs a kind".into()),
        };
        let params = table
            .try_into()
            .map_err(|error: toml::de::Error| format!("section `{kind}`: {}", error.message()))?;
        Ok(Self { kind, params })
    }
}

/// A suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// Its name.
    pub name: String,
    /// What it shows.
    #[serde(default)]
    pub about: String,
    /// Parameters for all sections.
    #[serde(default)]
    pub defaults: Params,
    /// The sections.
    #[serde(default)]
    pub section: Vec<Section>,
}

/// The suites that are part of the program.
pub const SUITES: [(&str, &str); 7] = [
    ("quick", include_str!("../suites/quick.toml")),
    ("choosing", include_str!("../suites/choosing.toml")),
    ("thesis", include_str!("../suites/thesis.toml")),
    ("relativistic", include_str!("../suites/relativistic.toml")),
    ("resize", include_str!("../suites/resize.toml")),
    ("cphash", include_str!("../suites/cphash.toml")),
    ("nr", include_str!("../suites/nr.toml")),
];

/// A cell and who takes part.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// What to measure.
    pub workload: Workload,
    /// The tables; empty for all that can.
    pub tables: Vec<String>,
    /// The one they are compared with.
    pub reference: String,
    /// Repetitions.
    pub repetitions: usize,
}

impl Suite {
    /// The suite of a name, or in a file.
    pub fn find(name: &str) -> Result<Self, BenchError> {
        let known = SUITES.iter().find(|(known, _)| *known == name);
        let (text, from) = match known {
            Some((_, text)) => ((*text).to_string(), format!("suite `{name}`")),
            None if name.ends_with(".toml") || Path::new(name).exists() => {
                let text = std::fs::read_to_string(name)
                    .map_err(|error| BenchError::Usage(format!("suite {name}: {error}")))?;
                (text, format!("suite {name}"))
            }
            None => {
                let names: Vec<&str> = SUITES.iter().map(|(name, _)| *name).collect();
                return Err(BenchError::Usage(format!(
                    "there is no suite `{name}` ({}, or a .toml file)",
                    names.join(", ")
                )));
            }
        };
        Self::parse(&text).map_err(|what| BenchError::Usage(format!("{from}: {what}")))
    }

    /// Reads a suite.
    pub fn parse(text: &str) -> Result<Self, String> {
        let suite: Self = toml::from_str(text).map_err(|error| one_line(text, &error))?;
        if suite.section.is_empty() {
            return Err("it has no [[section]]".into());
        }
        for section in &suite.section {
            if !SECTIONS.iter().any(|(kind, _)| *kind == section.kind) {
                let kinds: Vec<&str> = SECTIONS.iter().map(|(kind, _)| *kind).collect();
                return Err(format!(
                    "there is no section kind `{}` ({})",
                    section.kind,
                    kinds.join(", ")
                ));
            }
        }
        Ok(suite)
    }

    /// With parameters that go before its own.
    pub fn with(mut self, given: &Params) -> Self {
        for section in &mut self.section {
            section.params = given.or(&section.params);
        }
        self
    }

    /// As text.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// All cells, `given` going before what the suite says.
    pub fn tasks(
        &self,
        given: &Params,
        topology: &Topology,
        oversubscribe: bool,
    ) -> Result<Vec<Task>, String> {
        let mut tasks: Vec<Task> = Vec::new();
        for section in &self.section {
            let kind = section.kind.as_str();
            let said = given.or(&section.params).or(&self.defaults);
            let params = said.or(&Params::of_kind(kind)).or(&Params::built_in());
            for task in expand(kind, &params, topology, oversubscribe)
                .map_err(|what| format!("section `{kind}`: {what}"))?
            {
                if !tasks
                    .iter()
                    .any(|other| other.workload.id() == task.workload.id())
                {
                    tasks.push(task);
                }
            }
            if tasks.len() > MAX_CELLS {
                return Err(format!("more than {MAX_CELLS} cells"));
            }
        }
        Ok(tasks)
    }
}

fn one_line(text: &str, error: &toml::de::Error) -> String {
    let line = error
        .span()
        .map(|span| text[..span.start.min(text.len())].lines().count().max(1));
    let message = error
        .message()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    line.map_or(message.clone(), |line| format!("line {line}: {message}"))
}

/// All combinations of a section.
fn expand(
    kind: &str,
    params: &Params,
    topology: &Topology,
    oversubscribe: bool,
) -> Result<Vec<Task>, String> {
    let cpus = topology.allowed().count().max(1);
    let mut tasks = Vec::new();
    let laws = parse_all::<Law>(params.distribution.as_deref())?;
    let pins = parse_all::<PinPolicy>(params.pin.as_deref())?;
    for methods in methods(kind, params) {
        for &initial in params.initial.as_deref().unwrap_or_default() {
            for &value_bytes in params.value_bytes.as_deref().unwrap_or_default() {
                for &update in params.updates.as_deref().unwrap_or_default() {
                    for &law in &laws {
                        for pin in &pins {
                            for threads in crews(kind, params, cpus, oversubscribe)? {
                                let point = Point {
                                    initial,
                                    value_bytes,
                                    update,
                                    law,
                                    pin,
                                    threads,
                                };
                                tasks.push(task(kind, methods, params, &point)?);
                            }
                        }
                    }
                }
            }
        }
    }
    Ok(tasks)
}

/// One combination.
struct Point<'a> {
    initial: u64,
    value_bytes: usize,
    update: f64,
    law: Law,
    pin: &'a PinPolicy,
    threads: usize,
}

fn parse_all<T: std::str::FromStr<Err: std::fmt::Display>>(
    words: Option<&[String]>,
) -> Result<Vec<T>, String> {
    words
        .unwrap_or_default()
        .iter()
        .map(|word| word.parse().map_err(|error: T::Err| error.to_string()))
        .collect()
}

/// The numbers of threads of a section. A writer and a reader are two, whatever is asked for; on one
/// CPU they would measure the scheduler, and there is no such cell.
fn crews(
    kind: &str,
    params: &Params,
    cpus: usize,
    oversubscribe: bool,
) -> Result<Vec<usize>, String> {
    match kind {
        "tails" if cpus >= 2 || oversubscribe => Ok(vec![2]),
        "tails" => Ok(Vec::new()),
        _ => thread_counts(params, cpus, oversubscribe),
    }
}

fn thread_counts(params: &Params, cpus: usize, oversubscribe: bool) -> Result<Vec<usize>, String> {
    let mut counts = Vec::new();
    for threads in params.threads.as_deref().unwrap_or_default() {
        let some = threads.resolve(cpus, oversubscribe).ok_or_else(|| {
            format!("threads: {threads:?} (a number, cpus, cpus/2, 2*cpus, 1..cpus, 1..16)")
        })?;
        counts.extend(some);
    }
    match counts.iter().find(|&&count| count > cpus) {
        Some(count) if !oversubscribe => Err(format!(
            "{count} threads on {cpus} CPUs measure the scheduler; say --oversubscribe if that is what you want"
        )),
        _ => Ok(counts),
    }
}

fn methods(kind: &str, params: &Params) -> Vec<Method> {
    match kind {
        "latency" => vec![Method::Latency],
        "memory" => vec![Method::Memory],
        "growth" => vec![Method::Growth],
        "tails" => vec![Method::Tails],
        "hot" => vec![Method::Hot],
        "resize" => vec![Method::Resize(params.buckets.unwrap_or_default())],
        "batch" => {
            let sizes = params.batch.iter().flatten();
            sizes.map(|&keys| Method::Batch(keys)).collect()
        }
        "paced" => {
            let rates = params
                .rates
                .iter()
                .flatten()
                .map(|&rate| Pacing::Rate(rate));
            let loads = params
                .loads
                .iter()
                .flatten()
                .map(|&load| Pacing::Load(load / 100.0));
            rates.chain(loads).map(Method::Paced).collect()
        }
        _ => vec![Method::Throughput],
    }
}

fn task(kind: &str, method: Method, params: &Params, point: &Point<'_>) -> Result<Task, String> {
    let one_of =
        |name: &str, value: &Option<String>, usual: &str, other: &str| match value.as_deref() {
            None => Ok(false),
            Some(word) if word == usual => Ok(false),
            Some(word) if word == other => Ok(true),
            Some(word) => Err(format!("{name}: `{word}` ({usual}, {other})")),
        };
    let share = params.insert_share.unwrap_or(50.0) / 100.0;
    let resizes = matches!(method, Method::Resize(_));
    let grows = matches!(method, Method::Growth | Method::Tails);
    let batches = matches!(method, Method::Batch(_));
    let update = match method {
        Method::Hot | Method::Batch(_) => 0.0,
        _ => point.update,
    };
    let range = match (params.range, params.density) {
        _ if resizes && update > 0.0 => beside_kept(point.initial, share),
        // Half of the keys are there from the start to the end, the others never.
        _ if batches => point.initial.saturating_mul(2),
        // Every key is there from the start to the end.
        _ if resizes || method == Method::Hot || grows => point.initial,
        (Some(range), None) => range,
        (None, Some(density)) if density > 0.0 && density <= 100.0 => {
            (point.initial as f64 / (density / 100.0)).round() as u64
        }
        (None, None) => point.initial.saturating_mul(2),
        (Some(_), Some(_)) => return Err("range and density exclude each other".into()),
        (None, Some(density)) => return Err(format!("density: {density} % (above 0, up to 100)")),
    };
    let workload = Workload {
        section: kind.into(),
        method,
        threads: point.threads,
        duration_ms: params.duration_ms.unwrap_or_default(),
        slices: params.slices.unwrap_or_default(),
        warm_ms: params.warm_ms.unwrap_or_default(),
        insert_percent: round(update * share),
        remove_percent: round(update * (1.0 - share)),
        initial: if grows { 0 } else { point.initial },
        range,
        capacity: 100.0 / params.load.unwrap_or(100.0),
        law: point.law,
        kind: params.kind.clone().unwrap_or_default(),
        key_bytes: params.key_bytes.unwrap_or_default(),
        value_bytes: point.value_bytes,
        keys: params.keys.unwrap_or_default(),
        native_hash: one_of("hash", &params.hash, "common", "native")?,
        prefill_by_one: one_of("prefill", &params.prefill, "all", "one")?,
        churn: match method {
            Method::Hot => 0.0, // it is all churn, and must know what is stored
            _ => params.churn.unwrap_or_default(),
        },
        pin: point.pin.clone(),
    };
    workload.validate()?;
    let repetitions = params.repetitions.unwrap_or_default();
    if !(1..=10_000).contains(&repetitions) {
        return Err(format!("repetitions: {repetitions} (1 to 10000)"));
    }
    Ok(Task {
        workload,
        tables: params.tables.clone().unwrap_or_default(),
        reference: params.reference.clone().unwrap_or_default(),
        repetitions,
    })
}

/// The keys of which so many are there when half of all stay and the others are in the steady state
/// of updates of which a share inserts: as large as it is at the start the table then stays.
fn beside_kept(initial: u64, insert_share: f64) -> u64 {
    2 * (initial as f64 / (1.0 + insert_share)).round() as u64
}

/// To a billionth: percentages are printed.
fn round(percent: f64) -> f64 {
    (percent * 1e9).round() / 1e9
}

#[cfg(test)]
mod tests;
