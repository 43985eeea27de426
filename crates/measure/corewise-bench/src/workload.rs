//! A workload: the checked parameters of \[CHTBench\] §3.3.1 and ours.

use std::fmt::{Debug, Display};
use std::sync::Arc;

use corewise_topology::PinPolicy;

use crate::distribution::Distribution;
use crate::plan::{Kept, KeyMap, Plan};
use crate::record::Cell;
use crate::table::{Setup, Shape};

/// Maximum number of threads of a run.
pub const MAX_THREADS: usize = 512;
/// Maximum number of keys of a run.
pub const MAX_RANGE: u64 = 1 << 31;

/// The placement that a section has unless told otherwise.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnPlacement {
    /// Names of its pin policies.
    pub(crate) pins: Vec<String>,
    /// Percentage of the capacity that is occupied, if the subject is a map.
    pub(crate) occupancy: Option<f64>,
}

/// A workload at a number of threads.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The rules of the section it belongs to.
    pub(crate) rules: &'static dyn Rules,
    /// The parameters that only the section has.
    pub(crate) variant: Variant,
    /// Placement that the names of cells do not mention.
    pub(crate) own_placement: OwnPlacement,
    /// Threads (n).
    pub threads: usize,
    /// Measured milliseconds of a repetition (d), over all its slices.
    pub duration_ms: f64,
    /// Short slices of a repetition.
    pub slices: usize,
    /// Unmeasured milliseconds before each slice.
    pub warm_ms: f64,
    /// Percentage of inserts.
    pub insert_percent: f64,
    /// Percentage of removes.
    pub remove_percent: f64,
    /// Entries at the start (i).
    pub initial: u64,
    /// Number of keys (r).
    pub range: u64,
    /// Capacity that the table is built for, over `initial`.
    pub capacity: f64,
    /// Distribution of keys.
    pub distribution: Distribution,
    /// `u64` or `bytes`.
    pub kind: String,
    /// Least and greatest length of keys in bytes.
    pub key_bytes: (usize, usize),
    /// Length of values in bytes.
    pub value_bytes: usize,
    /// How keys are made.
    pub keys: KeyMap,
    /// Entries replaced before measuring, over `initial`.
    pub churn: f64,
    /// Pin policy.
    pub pin: PinPolicy,
}

/// A condition, and the message if it does not hold.
pub(crate) type Check = (bool, String);

/// The parameter of a cell that only its section has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Variant {
    #[default]
    None,
    /// Keys of a batch, or operations that a thread has in flight.
    Batch(usize),
    /// Work beside an operation.
    Work(u32),
    /// The numbers of buckets between which the table is resized.
    Buckets(Buckets),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Buckets {
    pub(crate) small: usize,
    pub(crate) large: usize,
}

/// Checks that a value is within limits.
pub(crate) fn within<T: PartialOrd + Display>(
    name: &str,
    value: T,
    (least, most): (T, T),
    unit: &str,
) -> Check {
    (
        least <= value && value <= most,
        format!("{name}: {value}{unit} ({least} to {most})"),
    )
}

/// What a section decides about its workloads: the rules by which parameters are checked, and cells
/// are named and described.
pub(crate) trait Rules: Debug + Sync {
    /// Returns its name in suites and results.
    fn name(&self) -> &'static str;

    /// Returns the conditions on its parameters, each with the message if it does not hold.
    fn checks(&self, _: &Workload) -> Vec<Check> {
        Vec::new()
    }

    /// Returns which keys stay while a cell runs.
    fn kept(&self, _: &Workload) -> Kept {
        Kept::None
    }

    /// Returns whether tables are built for the entries; if not, they start small and grow.
    fn is_presized(&self) -> bool {
        true
    }

    /// Returns whether all keys are present at the start and at the end.
    fn is_full(&self, workload: &Workload) -> bool {
        self.kept(workload) == Kept::All
    }

    /// Returns whether the name of a cell with all keys present has the distribution.
    fn names_distribution(&self) -> bool {
        false
    }

    /// Returns the end of a cell's name, which distinguishes it from the section's other cells.
    fn id_suffix(&self, _: &Workload) -> String {
        String::new()
    }

    /// Returns the names of all cells that are measured together, its own first; `id` is that.
    fn ids(&self, _: &Workload, id: String) -> Vec<String> {
        vec![id]
    }

    /// Completes the description of a cell.
    fn describe(&self, _: &Workload, _: &mut Cell) {}
}

impl Workload {
    /// Checks the parameters; the error describes the first problem.
    pub fn validate(&self) -> Result<(), String> {
        let numbers = self.checks_of_numbers().into_iter();
        let own = self.rules.checks(self).into_iter();
        let entries = self.checks_of_entries().into_iter();
        let mut checks = numbers.chain(own).chain(entries);
        let failed = checks.find(|(holds, _)| !holds);
        failed.map_or(Ok(()), |(_, what)| Err(what))
    }

    /// Checks of parameters that every section uses.
    fn checks_of_numbers(&self) -> [Check; 8] {
        let updates = self.updates();
        let (inserts, removes) = (self.insert_percent, self.remove_percent);
        let (initial, range, capacity) = (self.initial, self.range, self.capacity);
        [
            within("threads", self.threads, (1, MAX_THREADS), ""),
            within("duration", self.duration_ms, (1.0, 3_600_000.0), " ms"),
            within("slices", self.slices, (1, 1_000), ""),
            within("warm", self.warm_ms, (0.0, 60_000.0), " ms"),
            (
                inserts >= 0.0 && removes >= 0.0 && updates <= 100.0,
                format!("updates: {inserts}+{removes} % (0 to 100 together)"),
            ),
            within("range", range, (1, MAX_RANGE), ""),
            (
                initial <= range,
                format!("initial: {initial} is more than the range, {range}"),
            ),
            (
                capacity > 0.0 && capacity <= 64.0,
                format!("capacity: {capacity} (times the initial size, up to 64)"),
            ),
        ]
    }

    /// Checks of the entries.
    fn checks_of_entries(&self) -> [Check; 6] {
        let is_half = self.rules.kept(self) == Kept::Half;
        let (initial, range) = (self.initial, self.range);
        let distribution = self.distribution;
        let is_u64 = self.kind == "u64";
        let (shortest, longest) = self.key_bytes;
        let (fits, values) = within("value-bytes", self.value_bytes, (8, 4096), "");
        [
            (
                !is_half || distribution == Distribution::Uniform,
                format!("distribution: {distribution} (uniform, where half of the keys stay)"),
            ),
            (
                !is_half || range.is_multiple_of(2) && initial >= range / 2,
                format!("initial: {initial} of {range} keys (half of an even number stay)"),
            ),
            within("churn", self.churn, (0.0, 100.0), ""),
            (
                is_u64 || self.kind == "bytes",
                format!("kind: `{}` (u64, bytes)", self.kind),
            ),
            (
                is_u64 || 16 <= shortest && shortest <= longest && longest <= 250,
                format!("key-bytes: {shortest}-{longest} (16 to 250)"),
            ),
            (is_u64 || fits, values),
        ]
    }

    /// Returns the sizes of keys and values.
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

    /// Returns the keys.
    pub fn plan(&self) -> Plan {
        Plan::new(
            self.shape(),
            self.range as u32,
            self.initial as u32,
            self.threads,
            self.keys,
        )
        .keeping(self.rules.kept(self))
        .working(self.work())
    }

    /// Returns the keys of a batch, or the operations that a thread may have in flight.
    pub(crate) fn batch(&self) -> usize {
        match self.variant {
            Variant::Batch(batch) => batch,
            _ => 1,
        }
    }

    /// Returns the work beside an operation, for subjects that are not maps.
    pub(crate) fn work(&self) -> u32 {
        match self.variant {
            Variant::Work(work) => work,
            _ => 0,
        }
    }

    /// Returns the name of the section it belongs to.
    pub fn section_name(&self) -> &'static str {
        self.rules.name()
    }

    /// Returns the percentage of inserts and removes.
    pub(crate) fn updates(&self) -> f64 {
        self.insert_percent + self.remove_percent
    }

    /// Returns the number of entries announced to the table.
    pub fn announced(&self) -> usize {
        if self.rules.is_presized() {
            (self.initial as f64 * self.capacity).ceil() as usize
        } else {
            0
        }
    }

    /// Returns the parameters for constructing the table.
    pub fn setup(&self) -> Setup {
        let shape = self.shape();
        Setup {
            capacity: self.announced(),
            threads: self.threads,
            value_bytes: shape.value_bytes,
            key_bytes: shape.key_bytes.1,
            entries: self.initial as usize,
            batch: self.batch(),
            own_cpus: Arc::default(),
        }
    }

    /// Returns the bytes of key and value of an entry.
    pub fn payload_bytes(&self) -> u64 {
        let shape = self.shape();
        ((shape.key_bytes.0 + shape.key_bytes.1) / 2 + shape.value_bytes) as u64
    }

    /// Returns its name, unique within a file.
    pub fn id(&self) -> String {
        let mut id = format!("{}/i={}", self.section_name(), self.initial);
        let is_full = self.rules.is_full(self);
        if self.range != 2 * self.initial && !is_full {
            id += &format!(",r={}", self.range);
        }
        if self.rules.is_presized() && !is_full {
            id += &format!(",u={}", self.updates());
            if self.insert_percent != self.remove_percent {
                id += &format!("({}+{})", self.insert_percent, self.remove_percent);
            }
            id += &format!(",{}", self.distribution);
        }
        let names_distribution =
            self.rules.names_distribution() || self.distribution != Distribution::Uniform;
        if is_full && names_distribution {
            id += &format!(",{}", self.distribution);
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
        id + &self.placement() + &self.rules.id_suffix(self)
    }

    /// Returns the part of a name for pin policy and occupancy, as far as they are not the
    /// section's own.
    fn placement(&self) -> String {
        let own = &self.own_placement;
        let mut words = String::new();
        if own.pins != [self.pin_name()] {
            words += &format!(",{}", self.pin_name());
        }
        let occupancy = (100.0 / self.capacity * 1e6).round() / 1e6;
        if own.occupancy.is_some_and(|own| own != occupancy) {
            words += &format!(",occupancy={occupancy}");
        }
        words
    }

    /// Returns the names of all cells that are measured together, its own first.
    pub fn ids(&self) -> Vec<String> {
        self.rules.ids(self, self.id())
    }

    /// Returns whether a cell of this name is one of its cells. Names in earlier files lack what
    /// [`Self::placement`] adds.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        let ids = self.ids();
        let placement = self.placement();
        ids.iter()
            .any(|id| id == name || id.replacen(&placement, "", 1) == name)
    }

    /// Returns the pin policy by its name in \[CHTBench\].
    pub fn pin_name(&self) -> String {
        match &self.pin {
            PinPolicy::None => "default".into(),
            policy => policy.to_string(),
        }
    }

    /// Returns the cell for results.
    pub fn cell(&self, cpus: Vec<usize>) -> Cell {
        let shape = self.shape();
        let mut cell = Cell {
            id: self.id(),
            section: self.section_name().into(),
            threads: self.threads,
            duration_ms: self.duration_ms,
            update_percent: self.updates(),
            insert_percent: self.insert_percent,
            remove_percent: self.remove_percent,
            initial: self.initial,
            range: self.range,
            distribution: self.distribution.to_string(),
            kind: self.kind.clone(),
            key_bytes: shape.key_bytes,
            value_bytes: shape.value_bytes,
            keys: self.keys,
            pin: self.pin_name(),
            cpus,
            variant: String::new(),
            left_out: Vec::new(),
        };
        self.rules.describe(self, &mut cell);
        cell
    }
}
