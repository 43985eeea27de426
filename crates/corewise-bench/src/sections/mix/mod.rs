//! Throughput of a mix of operations. Each preset varies one parameter, and has its own plots.

mod measured;
mod scaling;
mod sync;
mod updates;
mod workingset;

use crate::figure::Figure;
use crate::plot::style::Looks;
use crate::plot::svg::{count, shorten};
use crate::plot::{Part, Plot, dots};
use crate::record::{Cell, Row};
use crate::results::{CellResults, Results, RowResults};
use crate::sections::Section;
use crate::subject::Capability;
use crate::suite::{Params, Threads, words};
use crate::workload::{Check, Rules, Variant, Workload};

/// A section that measures a mix.
#[derive(Debug)]
pub(crate) struct MixSection {
    name: &'static str,
    about: &'static str,
    /// Its heading on the page, and the line below.
    heading: &'static str,
    lead: &'static str,
    page_rank: u32,
    defaults: fn() -> Params,
    plots: fn(&Results, &Looks) -> Vec<Plot>,
    /// What its subjects can do.
    capability: Capability,
    /// Describes the work beside an operation.
    work: fn(u32) -> String,
}

/// What sections of maps have in common.
const MAPS: MixSection = MixSection {
    name: "",
    about: "",
    heading: "",
    lead: "",
    page_rank: 0,
    defaults: Params::default,
    plots: |_, _| Vec::new(),
    capability: Capability::Map,
    work: |_| String::new(),
};

/// Maximum number of operations that a thread has in flight, the pipeline's of a `CpHash`.
const MOST_IN_FLIGHT: usize = 1 << 14;
/// Maximum work beside an operation.
const MOST_WORK: u32 = 1_000_000;

/// Operations that a thread of a cache has in flight.
#[derive(Clone, Copy, Debug)]
struct InFlight(usize);

/// Work beside an operation.
#[derive(Clone, Copy, Debug)]
struct BesideWork(u32);

pub(crate) static SCALING: MixSection = MixSection {
    name: "scaling",
    about: "throughput against threads (thesis 3.4.2)",
    heading: "Scaling",
    lead: "What more threads bring.",
    page_rank: 1,
    defaults: || Params {
        threads: Some(vec![Threads::Words("1..cpus".into())]),
        ..Params::default()
    },
    plots: scaling::plots,
    ..MAPS
};

pub(crate) static UPDATES: MixSection = MixSection {
    name: "updates",
    about: "throughput against the share of updates (3.4.3)",
    heading: "Updates",
    lead: "What writing costs.",
    page_rank: 2,
    defaults: || Params {
        updates: Some(vec![0.0, 1.0, 5.0, 10.0, 20.0, 40.0, 50.0, 80.0, 100.0]),
        ..Params::default()
    },
    plots: updates::plots,
    ..MAPS
};

pub(crate) static WORKING_SET: MixSection = MixSection {
    name: "workingset",
    about: "throughput against entries, from the first cache to memory (3.4.4)",
    heading: "Working set",
    lead: "What happens as tables outgrow the caches.",
    page_rank: 3,
    defaults: || Params {
        initial: Some((8..=24).step_by(2).map(|bit| 1 << bit).collect()),
        ..Params::default()
    },
    plots: workingset::plots,
    ..MAPS
};

pub(crate) static DISTRIBUTION: MixSection = MixSection {
    name: "distribution",
    about: "throughput by distribution of keys (3.4.2)",
    heading: "Distributions",
    lead: "What popular keys do.",
    page_rank: 4,
    defaults: || Params {
        distribution: words(&[
            "uniform",
            "zipf:0.5",
            "zipf:0.8",
            "zipf:0.99",
            "zipf:1.2",
            "zipf:1.5",
            "hotspot",
            "single",
            "sequential",
        ]),
        ..Params::default()
    },
    plots: |results, looks| {
        let what = ("distribution", "distribution", "Throughput by distribution");
        let heading = |cell: &CellResults| cell.cell.distribution.clone();
        dots::by(results, looks, what, &["distribution"], heading)
    },
    ..MAPS
};

pub(crate) static RESIZING: MixSection = MixSection {
    name: "resizing",
    about: "throughput while the table grows: load 90 %, 35 % inserts, 5 % removes (3.4.2)",
    heading: "Resizing",
    lead: "Operations while the table grows and shrinks underneath.",
    page_rank: 5,
    defaults: || Params {
        updates: Some(vec![40.0]),
        insert_share: Some(87.5),
        load: Some(90.0),
        churn: Some(0.0),
        slices: Some(1),
        warm_ms: Some(0.0),
        duration_ms: Some(300.0),
        ..Params::default()
    },
    plots: |results, looks| {
        let what = ("resizing", "resizing", "Throughput while resizing");
        dots::all(results, looks, what).into_iter().collect()
    },
    ..MAPS
};

pub(crate) static PINNING: MixSection = MixSection {
    name: "pinning",
    about: "throughput by placement of threads (3.4.6)",
    heading: "Pinning",
    lead: "Where the threads were put.",
    page_rank: 15,
    defaults: || Params {
        pin: words(&["default", "compact", "balanced", "smt-pair"]),
        ..Params::default()
    },
    plots: |results, looks| {
        let what = ("pinning", "pinning", "Throughput by pin policy");
        dots::by(results, looks, what, &["pin"], pin_heading)
    },
    ..MAPS
};

pub(crate) static SYNC: MixSection = MixSection {
    name: "sync",
    about: "one table under different locks and elision, and their contention (3.4.7)",
    heading: "Synchronisation",
    lead: "One table under different locks, and how often they were found taken.",
    page_rank: 16,
    defaults: || Params {
        tables: words(&[
            "lock:tas",
            "lock:ttas",
            "lock:ticket",
            "lock:mcs",
            "lock:clh",
            "lock:std-mutex",
            "lock:parking-mutex",
            "lock:parking-rwlock",
            "lock:sharded-rwlock",
            "lock:elided-ttas",
        ]),
        reference: Some("lock:std-mutex".into()),
        initial: Some(vec![1 << 10, 1 << 20]),
        ..Params::default()
    },
    plots: sync::plots,
    ..MAPS
};

pub(crate) static FILTER: MixSection = MixSection {
    name: "filter",
    about: "filters that are half full: lookups with updates, false positives (thesis 5.7 to 5.9)",
    heading: "Filters",
    lead: "Half of the lookups are of items that are present; no item is inserted twice.",
    page_rank: 17,
    defaults: || Params {
        tables: words(&[
            "cuckoo-filter-8",
            "cuckoo-filter",
            "cuckoo-filter-semi",
            "cuckoo-filter-16",
            "cuckoofilter-mutex?",
            "atomic-cuckoo-filter?",
        ]),
        reference: Some("cuckoo-filter".into()),
        initial: Some(vec![1 << 22]),
        load: Some(50.0),
        updates: Some(vec![0.0, 10.0, 40.0]),
        threads: Some(vec![Threads::Words("1..cpus".into())]),
        ..Params::default()
    },
    plots: |results, looks| scaling::over(results, looks, ("filter", "Filters")),
    capability: Capability::Filter,
    ..MAPS
};

pub(crate) static LOCK: MixSection = MixSection {
    name: "lock",
    about: "sections of locks, exclusive and shared, and their fairness",
    heading: "Locks",
    lead: "Sections a second. An update is an exclusive section, a lookup a shared one.",
    page_rank: 18,
    defaults: || Params {
        tables: words(&[
            "lock:tas",
            "lock:ttas",
            "lock:ttas-backoff",
            "lock:ticket",
            "lock:anderson",
            "lock:clh",
            "lock:mcs",
            "lock:parking",
            "lock:adaptive",
            "lock:std-mutex",
            "lock:parking-mutex",
            "lock:parking-fair",
            "lock:elided-ttas",
        ]),
        reference: Some("lock:std-mutex".into()),
        initial: Some(vec![1]),
        updates: Some(vec![100.0]),
        work: Some(vec![0, 100]),
        threads: Some(vec![Threads::Words("1..cpus".into())]),
        ..Params::default()
    },
    plots: |results, looks| scaling::over(results, looks, ("lock", "Locks")),
    capability: Capability::Lock,
    work: |ns| format!("sections of {ns} ns"),
};

/// Methods of \[NR\], and lock-free structures.
const METHODS: [&str; 8] = [
    "nr:1",
    "nr:2",
    "nr:sl",
    "nr:rwl",
    "nr:fc",
    "nr:fc+",
    "nr:lf",
    "nr:crossbeam?",
];

pub(crate) static QUEUE: MixSection = MixSection {
    name: "queue",
    about: "priority queues: insert and remove the least key, find it (NR figure 5)",
    heading: "Priority queues",
    lead: "Half of the updates insert a key, half remove the least; a lookup finds the least key.",
    page_rank: 19,
    defaults: || Params {
        tables: words(&METHODS),
        initial: Some(vec![200_000]),
        work: Some(vec![0]),
        ..concurrent()
    },
    plots: |results, looks| scaling::over(results, looks, ("queue", "Priority queues")),
    capability: Capability::Queue,
    work: |writes| format!("{writes} external writes an operation"),
};

pub(crate) static SORTED_SET: MixSection = MixSection {
    name: "sortedset",
    about: "sorted sets: the rank of a member, increments of scores (NR figure 7)",
    heading: "Sorted sets",
    lead: "An update adds one to the score of a member, or takes one away; a lookup finds a rank.",
    page_rank: 20,
    defaults: || Params {
        tables: words(&METHODS[..6]),
        initial: Some(vec![10_000]),
        density: Some(100.0),
        work: Some(vec![0]),
        ..concurrent()
    },
    plots: |results, looks| scaling::over(results, looks, ("sortedset", "Sorted sets")),
    capability: Capability::SortedSet,
    work: |writes| format!("{writes} external writes an operation"),
};

pub(crate) static CACHE: MixSection = MixSection {
    name: "cache",
    about: "caches: lookups and inserts that replace or evict, in batches (CPHASH figures 5 to 12)",
    heading: "Caches",
    lead: "An update stores a value in place of another one, or of an evicted key. The threads of \
           a table that serves itself are among those counted.",
    page_rank: 21,
    defaults: || Params {
        tables: words(&[
            "cphash:dedicated",
            "cphash:colocated",
            "cphash:lockhash",
            "cphash:lockhash-anderson",
            "cphash:lockhash-batch",
            "cphash:quick-cache?",
            "cphash:mutex-lru?",
        ]),
        reference: Some("cphash:lockhash".into()),
        initial: Some(vec![1 << 17]),
        density: Some(100.0),
        updates: Some(vec![30.0]),
        insert_share: Some(100.0),
        batch: Some(vec![1024]),
        threads: Some(vec![Threads::Number(2)]),
        ..Params::default()
    },
    plots: |results, looks| {
        let heading = |cell: &CellResults| {
            let cell = &cell.cell;
            format!("{} keys, {}", count(cell.initial), cell.variant)
        };
        let vary = ["initial", "range", "variant"];
        dots::by(results, looks, ("cache", "cache", "Caches"), &vary, heading)
    },
    capability: Capability::Cache,
    ..MAPS
};

/// Parameters of structures made concurrent.
fn concurrent() -> Params {
    Params {
        reference: Some("nr:rwl".into()),
        updates: Some(vec![0.0, 10.0, 100.0]),
        threads: Some(vec![Threads::Words("1..cpus".into())]),
        ..Params::default()
    }
}

impl Rules for MixSection {
    fn name(&self) -> &'static str {
        self.name
    }

    fn checks(&self, workload: &Workload) -> Vec<Check> {
        let (batch, work) = (self.batch(workload), self.work(workload));
        let most = MOST_IN_FLIGHT;
        let mut checks = vec![
            (
                (1..=most).contains(&batch),
                format!("batch: {batch} operations (1 to {most})"),
            ),
            (
                work <= MOST_WORK,
                format!("work: {work} (up to {MOST_WORK})"),
            ),
        ];
        if matches!(self.capability, Capability::Cache | Capability::SortedSet) {
            checks.push((
                workload.range == workload.initial,
                format!("range: {} (all keys are stored at first)", workload.range),
            ));
        }
        checks
    }

    fn batch(&self, workload: &Workload) -> usize {
        match self.capability {
            Capability::Cache => workload.variant.get::<InFlight>().0,
            _ => 1,
        }
    }

    fn work(&self, workload: &Workload) -> u32 {
        match self.capability {
            Capability::Cache => 0,
            _ => workload.variant.get::<BesideWork>().0,
        }
    }

    fn id_suffix(&self, workload: &Workload) -> String {
        let mut suffix = String::new();
        if self.has_work() {
            suffix += &format!(",w={}", self.work(workload));
        }
        if self.capability == Capability::Cache {
            suffix += &format!(",batch={}", self.batch(workload));
        }
        if self.capability != Capability::Map && workload.capacity != self.usual_capacity() {
            suffix += &format!(",load={:.0}", 100.0 / workload.capacity);
        }
        suffix
    }

    fn describe(&self, workload: &Workload, cell: &mut Cell) {
        if self.has_work() {
            cell.variant = (self.work)(self.work(workload));
        }
        if self.capability == Capability::Cache {
            let (batch, percent) = (self.batch(workload), workload.capacity * 100.0);
            cell.variant = format!("batches of {batch}, capacity {percent:.0} %");
        }
    }
}

impl Section for MixSection {
    fn about(&self) -> &'static str {
        self.about
    }

    fn defaults(&self) -> Params {
        (self.defaults)()
    }

    fn variants(&self, params: &Params) -> Vec<Variant> {
        if self.capability == Capability::Cache {
            let sizes = params.batch.iter().flatten();
            return sizes.map(|&size| Variant::of(InFlight(size))).collect();
        }
        let work = params.work.as_deref().filter(|_| self.has_work());
        let works = work.unwrap_or(&[0]).iter();
        works.map(|&work| Variant::of(BesideWork(work))).collect()
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

    fn remark(&self, row: &Row) -> String {
        let figures = measured::figures(row).into_iter();
        let texts = figures.map(|of| format!("  {} {}", of.name, of.unit.text(of.value)));
        texts.collect()
    }

    fn figures(&self, row: &RowResults) -> Vec<Figure> {
        measured::figures(&row.row)
    }

    fn page_rank(&self) -> u32 {
        self.page_rank
    }

    fn parts(&self, results: &Results, looks: &Looks) -> Vec<Part> {
        let plots = (self.plots)(results, looks);
        vec![Part {
            below: measured::summaries(results, self.name),
            ..Part::new(self.name, self.heading, self.lead, plots)
        }]
    }
}

impl MixSection {
    /// The capacity over the entries by default.
    fn usual_capacity(&self) -> f64 {
        100.0 / self.defaults().load.unwrap_or(100.0)
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
