//! Throughput of a mix of operations. Each preset varies one parameter, and has its own plots.

mod scaling;
mod workingset;

use itertools::Itertools;

use crate::params::Params;
use crate::plot::group::threads;
use crate::plot::style::Looks;
use crate::plot::svg::{count, shorten};
use crate::plot::{Plot, dots};
use crate::record::Cell;
use crate::results::{CellResults, Results};
use crate::section::Section;
use crate::subject::Capability;
use crate::workload::{Check, MAX_RANGE, Rules, Variant, Workload, within};

/// A section that measures a mix. `presets.toml` has its parameters and its texts.
#[derive(Debug)]
pub(crate) struct MixSection {
    name: &'static str,
    /// What its subjects can do.
    capability: Capability,
    plots: Plots,
}

/// The plots of a section.
#[derive(Debug)]
enum Plots {
    /// Curves over numbers of threads.
    OverThreads,
    /// Dots, with a block for each value of these fields, and its heading.
    Blocks(&'static [&'static str], fn(&CellResults) -> String),
    /// Dots of all cells.
    Cells,
    /// Its own.
    Own(fn(&Results, &Looks) -> Vec<Plot>),
}

use Capability::{Cache, Filter, Lock, Map, Queue, SortedSet};
use Plots::{Blocks, Cells, OverThreads, Own};

/// Maximum number of operations that a thread has in flight, the pipeline's of a `CpHash`.
const MOST_IN_FLIGHT: usize = 1 << 14;
/// Minimum items of a filter: it is full only by chance if it has a few buckets.
const LEAST_ITEMS: u64 = 1 << 8;
/// Maximum work beside an operation.
const MOST_WORK: u32 = 1_000_000;

const fn section(name: &'static str, capability: Capability, plots: Plots) -> MixSection {
    MixSection {
        name,
        capability,
        plots,
    }
}

pub(crate) static SCALING: MixSection = section("scaling", Map, OverThreads);
pub(crate) static UPDATES: MixSection = section("updates", Map, Own(scaling::over_updates));
pub(crate) static WORKING_SET: MixSection = section("workingset", Map, Own(workingset::plots));
pub(crate) static DISTRIBUTION: MixSection = section(
    "distribution",
    Map,
    Blocks(&["distribution"], |cell| cell.cell.distribution.clone()),
);
pub(crate) static RESIZING: MixSection = section("resizing", Map, Cells);
pub(crate) static PINNING: MixSection = section("pinning", Map, Blocks(&["pin"], pin_heading));
/// How often a lock was found taken is below its rate in the verdicts.
pub(crate) static SYNC: MixSection = section(
    "sync",
    Map,
    Blocks(&["threads"], |cell| threads(cell.cell.threads)),
);
pub(crate) static FILTER: MixSection = section("filter", Filter, OverThreads);
pub(crate) static LOCK: MixSection = section("lock", Lock, OverThreads);
pub(crate) static QUEUE: MixSection = section("queue", Queue, OverThreads);
pub(crate) static SORTED_SET: MixSection = section("sortedset", SortedSet, OverThreads);
pub(crate) static CACHE: MixSection = section(
    "cache",
    Cache,
    Blocks(&["initial", "range", "variant"], |cell| {
        format!("{} keys, {}", count(cell.cell.initial), cell.cell.variant)
    }),
);

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
        if matches!(self.capability, Cache | SortedSet) {
            checks.push((
                workload.range == workload.initial,
                format!("range: {} (all keys are stored at first)", workload.range),
            ));
        }
        if self.capability == Filter {
            checks.push(within(
                "initial",
                workload.initial,
                (LEAST_ITEMS, MAX_RANGE),
                "",
            ));
            let load = 100.0 / workload.capacity;
            checks.push(within("load", load, (0.0, 100.0), " % of a filter"));
        }
        checks
    }

    fn id_suffix(&self, workload: &Workload) -> String {
        let mut suffix = String::new();
        if self.has_work() {
            suffix += &format!(",w={}", workload.work());
        }
        if self.capability == Cache {
            suffix += &format!(",batch={}", workload.batch());
        }
        if self.capability != Map && workload.capacity != self.usual_capacity() {
            suffix += &format!(",load={:.0}", 100.0 / workload.capacity);
        }
        suffix
    }

    fn describe(&self, workload: &Workload, cell: &mut Cell) {
        let work = workload.work();
        match self.capability {
            Lock => cell.variant = format!("sections of {work} ns"),
            _ if self.has_work() => cell.variant = format!("{work} external writes an operation"),
            _ => {}
        }
        if self.capability == Cache {
            let (batch, percent) = (workload.batch(), workload.capacity * 100.0);
            cell.variant = format!("batches of {batch}, capacity {percent:.0} %");
        }
    }
}

impl Section for MixSection {
    fn variants(&self, params: &Params) -> Vec<Variant> {
        if self.capability == Cache {
            let sizes = params.batch.iter().flatten();
            return sizes.map(|&size| Variant::Batch(size)).collect();
        }
        let work = params.work.as_deref().filter(|_| self.has_work());
        let works = work.unwrap_or(&[0]).iter();
        works.map(|&work| Variant::Work(work)).collect()
    }

    /// Subjects that are not maps are not churned. The batches take at most half of a cache,
    /// because an entry with an unanswered insert is not evicted.
    fn adapt(&self, workload: &mut Workload) {
        if let Variant::Batch(batch) = workload.variant {
            let most = workload.announced() / (2 * workload.threads.max(1));
            workload.variant = Variant::Batch(batch.min(most.max(1)));
        }
        if self.capability != Map {
            workload.churn = 0.0;
        }
    }

    fn capability(&self) -> Capability {
        self.capability
    }

    fn plots(&self, results: &Results, looks: &Looks) -> Vec<Plot> {
        let title = &*self.preset().title;
        match self.plots {
            OverThreads => scaling::over_threads(results, looks, (self.name, title)),
            Blocks(vary, heading) => dots::by(results, looks, (self.name, title), vary, heading),
            Cells => Vec::from_iter(dots::all(results, looks, (self.name, self.name, title))),
            Own(plots) => plots(results, looks),
        }
    }
}

impl MixSection {
    /// The capacity over the entries by default.
    fn usual_capacity(&self) -> f64 {
        100.0 / self.preset().params.load.unwrap_or(100.0)
    }

    /// Whether there may be work beside an operation.
    fn has_work(&self) -> bool {
        matches!(self.capability, Lock | Queue | SortedSet)
    }
}

/// The heading of a block: the pin policy and its CPUs.
fn pin_heading(cell: &CellResults) -> String {
    let cpus = &cell.cell.cpus;
    if cpus.is_empty() {
        return format!("pin {}", cell.cell.pin);
    }
    let on = shorten(&cpus.iter().join(", "), 60);
    format!("pin {} (CPUs {on})", cell.cell.pin)
}
