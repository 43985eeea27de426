//! Throughput of a mix of operations. Each preset varies one parameter, and has its own plots.

mod scaling;
mod updates;
mod workingset;

use crate::plot::group::threads;
use crate::plot::style::Looks;
use crate::plot::svg::{count, shorten};
use crate::plot::{Plot, dots};
use crate::record::Cell;
use crate::results::{CellResults, Results};
use crate::sections::Section;
use crate::subject::Capability;
use crate::suite::Params;
use crate::workload::{Check, Rules, Variant, Workload, within};

/// A section that measures a mix. `presets.toml` has its parameters and its texts.
#[derive(Debug)]
pub(crate) struct MixSection {
    name: &'static str,
    /// What its subjects can do.
    capability: Capability,
    plots: fn(&Results, &Looks) -> Vec<Plot>,
}

/// Maximum number of operations that a thread has in flight, the pipeline's of a `CpHash`.
const MOST_IN_FLIGHT: usize = 1 << 14;
/// Maximum work beside an operation.
const MOST_WORK: u32 = 1_000_000;

impl MixSection {
    const fn of(
        name: &'static str,
        capability: Capability,
        plots: fn(&Results, &Looks) -> Vec<Plot>,
    ) -> Self {
        Self {
            name,
            capability,
            plots,
        }
    }
}

pub(crate) static SCALING: MixSection =
    MixSection::of("scaling", Capability::Map, |results, looks| {
        scaling::over(results, looks, ("scaling", "Throughput against threads"))
    });

pub(crate) static UPDATES: MixSection = MixSection::of("updates", Capability::Map, updates::plots);

pub(crate) static WORKING_SET: MixSection =
    MixSection::of("workingset", Capability::Map, workingset::plots);

pub(crate) static DISTRIBUTION: MixSection =
    MixSection::of("distribution", Capability::Map, |results, looks| {
        let what = ("distribution", "distribution", "Throughput by distribution");
        let heading = |cell: &CellResults| cell.cell.distribution.clone();
        dots::by(results, looks, what, &["distribution"], heading)
    });

pub(crate) static RESIZING: MixSection =
    MixSection::of("resizing", Capability::Map, |results, looks| {
        let what = ("resizing", "resizing", "Throughput while resizing");
        dots::all(results, looks, what).into_iter().collect()
    });

pub(crate) static PINNING: MixSection =
    MixSection::of("pinning", Capability::Map, |results, looks| {
        let what = ("pinning", "pinning", "Throughput by pin policy");
        dots::by(results, looks, what, &["pin"], pin_heading)
    });

/// How often a lock was found taken is below its rate in the verdicts.
pub(crate) static SYNC: MixSection = MixSection::of("sync", Capability::Map, |results, looks| {
    let what = ("sync", "sync", "Throughput by lock");
    let heading = |cell: &CellResults| threads(cell.cell.threads);
    dots::by(results, looks, what, &["threads"], heading)
});

pub(crate) static FILTER: MixSection =
    MixSection::of("filter", Capability::Filter, |results, looks| {
        scaling::over(results, looks, ("filter", "Filters"))
    });

pub(crate) static LOCK: MixSection = MixSection::of("lock", Capability::Lock, |results, looks| {
    scaling::over(results, looks, ("lock", "Locks"))
});

pub(crate) static QUEUE: MixSection =
    MixSection::of("queue", Capability::Queue, |results, looks| {
        scaling::over(results, looks, ("queue", "Priority queues"))
    });

pub(crate) static SORTED_SET: MixSection =
    MixSection::of("sortedset", Capability::SortedSet, |results, looks| {
        scaling::over(results, looks, ("sortedset", "Sorted sets"))
    });

pub(crate) static CACHE: MixSection =
    MixSection::of("cache", Capability::Cache, |results, looks| {
        let heading = |cell: &CellResults| {
            let cell = &cell.cell;
            format!("{} keys, {}", count(cell.initial), cell.variant)
        };
        let vary = ["initial", "range", "variant"];
        dots::by(results, looks, ("cache", "cache", "Caches"), &vary, heading)
    });

impl Rules for MixSection {
    fn name(&self) -> &'static str {
        self.name
    }

    fn checks(&self, workload: &Workload) -> Vec<Check> {
        let mut checks = vec![
            within(
                "batch",
                workload.batch(),
                (1, MOST_IN_FLIGHT),
                " operations",
            ),
            within("work", workload.work(), (0, MOST_WORK), ""),
        ];
        if matches!(self.capability, Capability::Cache | Capability::SortedSet) {
            checks.push((
                workload.range == workload.initial,
                format!("range: {} (all keys are stored at first)", workload.range),
            ));
        }
        checks
    }

    fn id_suffix(&self, workload: &Workload) -> String {
        let mut suffix = String::new();
        if self.has_work() {
            suffix += &format!(",w={}", workload.work());
        }
        if self.capability == Capability::Cache {
            suffix += &format!(",batch={}", workload.batch());
        }
        if self.capability != Capability::Map && workload.capacity != self.usual_capacity() {
            suffix += &format!(",load={:.0}", 100.0 / workload.capacity);
        }
        suffix
    }

    fn describe(&self, workload: &Workload, cell: &mut Cell) {
        let work = workload.work();
        match self.capability {
            Capability::Lock => cell.variant = format!("sections of {work} ns"),
            _ if self.has_work() => cell.variant = format!("{work} external writes an operation"),
            _ => {}
        }
        if self.capability == Capability::Cache {
            let (batch, percent) = (workload.batch(), workload.capacity * 100.0);
            cell.variant = format!("batches of {batch}, capacity {percent:.0} %");
        }
    }
}

impl Section for MixSection {
    fn variants(&self, params: &Params) -> Vec<Variant> {
        if self.capability == Capability::Cache {
            let sizes = params.batch.iter().flatten();
            return sizes.map(|&size| Variant::Batch(size)).collect();
        }
        let work = params.work.as_deref().filter(|_| self.has_work());
        let works = work.unwrap_or(&[0]).iter();
        works.map(|&work| Variant::Work(work)).collect()
    }

    /// Other subjects than maps are filled by all threads, and are not churned.
    fn adapt(&self, workload: &mut Workload) {
        if self.capability != Capability::Map {
            workload.churn = 0.0;
            workload.prefill_by_one = false;
        }
    }

    fn capability(&self) -> Capability {
        self.capability
    }

    fn plots(&self, results: &Results, looks: &Looks) -> Vec<Plot> {
        (self.plots)(results, looks)
    }
}

impl MixSection {
    /// The capacity over the entries by default.
    fn usual_capacity(&self) -> f64 {
        100.0 / self.preset().params.load.unwrap_or(100.0)
    }

    /// Whether there may be work beside an operation.
    fn has_work(&self) -> bool {
        use Capability::{Lock, Queue, SortedSet};
        matches!(self.capability, Lock | Queue | SortedSet)
    }
}

/// The heading of a block: the pin policy and its CPUs.
fn pin_heading(cell: &CellResults) -> String {
    let cpus = &cell.cell.cpus;
    if cpus.is_empty() {
        return format!("pin {}", cell.cell.pin);
    }
    let list: Vec<_> = cpus.iter().map(usize::to_string).collect();
    let on = shorten(&list.join(", "), 60);
    format!("pin {} (CPUs {on})", cell.cell.pin)
}
