//! Suites: what a run measures, from a TOML file or the command line.
//!
//! ```toml
//! name = "example"
//! about = "what it shows"
//! [defaults]                 # any parameter, for all sections
//! tables = ["papaya", "dashmap"]
//! reference = "sharded64"
//! [[section]]
//! kind = "scaling"           # the dimension; it brings its own defaults
//! threads = ["1..cpus"]
//! initial = [1000, 1000000]
//! updates = [10.0]
//! [quick]                    # with `--quick`, in place of the parameters above
//! initial = [1000]
//! ```
//!
//! Every list is a dimension: a section measures all combinations. A parameter that a section omits
//! is taken from `[defaults]`, then from the section's kind, then from `defaults.toml`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::str::FromStr;

use corewise_topology::{PinPolicy, Topology};
use itertools::{Itertools, iproduct};
use serde::{Deserialize, Serialize};

use crate::claim::Claim;
use crate::distribution::Distribution;
use crate::error::{BenchError, one_line};
use crate::params::{BUILT_IN, Params};
use crate::section::Section;
use crate::sections;
use crate::subject::Capability;
use crate::task::Task;
use crate::workload::{OwnPlacement, Variant, Workload};

/// Maximum number of cells of a suite.
const MAX_CELLS: usize = 10_000;

/// A section of a suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "toml::Table")]
pub struct SuiteSection {
    /// The name of the section.
    pub kind: String,
    /// Its parameters.
    #[serde(flatten)]
    pub params: Params,
}

/// Manual, because serde's flattening would accept unknown fields.
impl TryFrom<toml::Table> for SuiteSection {
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

impl SuiteSection {
    /// Returns the section of that name.
    fn find(&self) -> Result<&'static dyn Section, String> {
        sections::find(&self.kind).ok_or_else(|| {
            format!(
                "there is no section kind `{}` ({})",
                self.kind,
                sections::names()
            )
        })
    }
}

/// A suite.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// Its name.
    pub name: String,
    /// A description.
    #[serde(default)]
    pub about: String,
    /// Parameters for all sections.
    #[serde(default)]
    pub defaults: Params,
    /// The sections.
    #[serde(default)]
    pub section: Vec<SuiteSection>,
    /// Parameters of a quick run, in place of those of all sections.
    #[serde(default, skip_serializing_if = "Params::is_empty")]
    pub quick: Params,
    /// What its paper claims about the results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claim: Vec<Claim>,
}

/// Repetitions of a quick run.
const QUICK_REPETITIONS: usize = 5;

macro_rules! suites {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../suites/", $name, ".toml")))),*]
    };
}

/// The built-in suites.
pub const SUITES: [(&str, &str); 9] = suites! {
    "quick" "choosing" "thesis" "relativistic" "resize" "cphash" "nr" "filter" "elision"
};

impl Suite {
    /// Returns the suite of a name, or in a file.
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

    /// Parses a suite.
    pub fn parse(text: &str) -> Result<Self, String> {
        let suite: Self = toml::from_str(text).map_err(|error| located(text, &error))?;
        if suite.section.is_empty() {
            return Err("it has no [[section]]".into());
        }
        for section in &suite.section {
            section.find()?;
        }
        suite.claim.iter().try_for_each(Claim::check)?;
        Ok(suite)
    }

    /// Returns the suite of a quick run: with at most five repetitions, unless it says otherwise.
    pub fn quickly(mut self) -> Self {
        let quick = std::mem::take(&mut self.quick);
        for section in &mut self.section {
            let own = section.params.repetitions.or(self.defaults.repetitions);
            let few = own.map_or(QUICK_REPETITIONS, |own| own.min(QUICK_REPETITIONS));
            let repetitions = quick.repetitions.or(Some(few));
            let quick = Params {
                repetitions,
                ..quick.clone()
            };
            section.params = quick.or(&section.params);
        }
        self
    }

    /// Returns the suite with parameters that override its own.
    pub fn with(mut self, given: &Params) -> Self {
        for section in &mut self.section {
            section.params = given.or(&section.params);
        }
        self
    }

    /// Returns the cell of a name, of those that a suite in TOML has on this machine.
    pub(crate) fn task_named(plan: &str, cell: &str) -> Result<(Self, Task), String> {
        let suite = Self::parse(plan)?;
        let tasks = suite.tasks(&Params::default(), &Topology::detect(), true)?;
        let mut tasks = tasks.into_iter();
        let task = tasks.find(|task| task.workload.is_called(cell));
        let task = task.ok_or_else(|| format!("no cell `{cell}` that this machine can measure"))?;
        Ok((suite, task))
    }

    /// Formats the suite as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// Returns all cells; `given` overrides the suite. Where it makes one cell of two that the
    /// suite distinguishes, as one number of entries for two sections, the first is measured.
    pub fn tasks(
        &self,
        given: &Params,
        topology: &Topology,
        oversubscribe: bool,
    ) -> Result<Vec<Task>, String> {
        let mut tasks: Vec<Task> = Vec::new();
        let mut named: HashMap<String, usize> = HashMap::new();
        let mut conflict = Ok(());
        for section in &self.section {
            let kind = section.find()?;
            let said = given.or(&section.params).or(&self.defaults);
            let params = said.or(&kind.preset().params).or(&BUILT_IN);
            for task in expand(kind, &params, topology, oversubscribe)
                .map_err(|what| format!("section `{}`: {what}", kind.name()))?
            {
                match named.entry(task.workload.id()) {
                    Entry::Vacant(free) => {
                        free.insert(tasks.len());
                        tasks.push(task);
                    }
                    Entry::Occupied(taken) => {
                        let same = tasks[*taken.get()].check_same(&task);
                        conflict = conflict.and(same);
                    }
                }
            }
            if tasks.len() > MAX_CELLS {
                return Err(format!("more than {MAX_CELLS} cells"));
            }
        }
        if conflict.is_err() && !given.is_empty() {
            conflict = self.tasks(&Params::default(), topology, true).map(drop);
        }
        conflict.map(|()| tasks)
    }
}

fn located(text: &str, error: &toml::de::Error) -> String {
    let line = error
        .span()
        .map(|span| text[..span.start.min(text.len())].lines().count().max(1));
    let message = one_line(error.message());
    line.map_or(message.clone(), |line| format!("line {line}: {message}"))
}

/// Returns all combinations of a section.
fn expand(
    section: &'static dyn Section,
    params: &Params,
    topology: &Topology,
    oversubscribe: bool,
) -> Result<Vec<Task>, String> {
    let mut tasks = Vec::new();
    let counts = thread_counts(section, params, topology, oversubscribe)?;
    let distributions = parse_all::<Distribution>(params.distribution.as_deref())?;
    let pins = parse_all::<PinPolicy>(Some(&params.pins()))?;
    let most = counts.iter().max().copied().unwrap_or(0);
    for pin in &pins {
        if let PinPolicy::List(cpus) = pin {
            let is_allowed = |id: &usize| topology.allowed().any(|cpu| cpu.id.0 == *id);
            if let Some(cpu) = cpus.iter().find(|cpu| !is_allowed(cpu)) {
                return Err(format!("pin: {pin}: this process may not use CPU {cpu}"));
            }
            if cpus.iter().unique().count() < most && !oversubscribe {
                return Err(format!(
                    "pin: {pin} has fewer than {most} CPUs; say --threads"
                ));
            }
        }
    }
    let combinations = iproduct!(
        section.variants(params),
        params.initial.iter().flatten(),
        params.value_bytes.iter().flatten(),
        params.updates.iter().flatten(),
        &distributions,
        &pins,
        &counts
    );
    for (variant, &initial, &value_bytes, &update, &distribution, pin, &threads) in combinations {
        let point = Point {
            initial,
            value_bytes,
            update,
            distribution,
            pin,
            threads,
        };
        tasks.push(task((section, variant), params, &point)?);
    }
    Ok(tasks)
}

/// One combination.
struct Point<'a> {
    initial: u64,
    value_bytes: usize,
    update: f64,
    distribution: Distribution,
    pin: &'a PinPolicy,
    threads: usize,
}

fn parse_all<T: FromStr<Err: std::fmt::Display>>(
    words: Option<&[String]>,
) -> Result<Vec<T>, String> {
    words
        .unwrap_or_default()
        .iter()
        .map(|word| word.parse().map_err(|error: T::Err| error.to_string()))
        .collect()
}

/// Returns the numbers of threads of a section.
fn thread_counts(
    section: &dyn Section,
    params: &Params,
    topology: &Topology,
    oversubscribe: bool,
) -> Result<Vec<usize>, String> {
    let cpus = topology.allowed().count().max(1);
    if let Some(counts) = section.thread_counts(cpus, oversubscribe) {
        return Ok(counts);
    }
    let mut counts = Vec::new();
    for threads in params.threads.as_deref().unwrap_or_default() {
        let some = threads.resolve(topology, oversubscribe).ok_or_else(|| {
            format!(
                "threads: {threads:?} (a number, cpus, cpus/2, 2*cpus, 1..cpus, 1..16, 2s, nodes)"
            )
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

fn task(
    (section, variant): (&'static dyn Section, Variant),
    params: &Params,
    point: &Point<'_>,
) -> Result<Task, String> {
    let one_of =
        |name: &str, value: &Option<String>, usual: &str, other: &str| match value.as_deref() {
            None => Ok(false),
            Some(word) if word == usual => Ok(false),
            Some(word) if word == other => Ok(true),
            Some(word) => Err(format!("{name}: `{word}` ({usual}, {other})")),
        };
    let share = params.insert_share.unwrap_or(50.0) / 100.0;
    let own = section.range(point.initial, point.update, share);
    let mut workload = Workload {
        rules: section,
        variant,
        own_placement: own_placement(section),
        threads: point.threads,
        duration_ms: params.duration_ms.unwrap_or_default(),
        slices: params.slices.unwrap_or_default(),
        warm_ms: params.warm_ms.unwrap_or_default(),
        insert_percent: round(point.update * share),
        remove_percent: round(point.update * (1.0 - share)),
        initial: point.initial,
        range: own.map_or_else(|| range(params, point.initial), Ok)?,
        capacity: 100.0 / params.load.unwrap_or(100.0),
        distribution: point.distribution,
        kind: params.kind.clone().unwrap_or_default(),
        key_bytes: params.key_bytes.unwrap_or_default(),
        value_bytes: point.value_bytes,
        keys: params.keys.unwrap_or_default(),
        native_hash: one_of("hash", &params.hash, "common", "native")?,
        prefill_by_one: one_of("prefill", &params.prefill, "all", "one")?,
        churn: params.churn.unwrap_or_default(),
        pin: point.pin.clone(),
    };
    section.adapt(&mut workload);
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

fn own_placement(section: &dyn Section) -> OwnPlacement {
    let own = section.preset().params.or(&BUILT_IN);
    let is_map = section.capability() == Capability::Map;
    OwnPlacement {
        pins: own.pin.unwrap_or_default(),
        occupancy: is_map.then_some(own.load.unwrap_or(100.0)),
    }
}

/// Returns the number of keys for `initial` entries, as the parameters decide it.
fn range(params: &Params, initial: u64) -> Result<u64, String> {
    match (params.range, params.density) {
        (Some(range), None) => Ok(range),
        (None, Some(density)) if density > 0.0 && density <= 100.0 => {
            Ok((initial as f64 / (density / 100.0)).round() as u64)
        }
        (None, None) => Ok(initial.saturating_mul(2)),
        (Some(_), Some(_)) => Err("range and density exclude each other".into()),
        (None, Some(density)) => Err(format!("density: {density} % (above 0, up to 100)")),
    }
}

/// Rounds to a billionth: percentages are printed.
fn round(percent: f64) -> f64 {
    (percent * 1e9).round() / 1e9
}

#[cfg(test)]
mod tests;
