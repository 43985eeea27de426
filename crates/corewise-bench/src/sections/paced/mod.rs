//! Latency at a rate, from the intended start of each operation (open loop).

mod cells;

use crate::contender::Contender;
use crate::error::BenchError;
use crate::plot::style::Looks;
use crate::plot::{Part, latencies};
use crate::record::Cell;
use crate::results::Results;
use crate::runner::Runner;
use crate::sections::Section;
use crate::suite::{Params, Task};
use crate::workload::{Rules, Variant, Workload};

/// The section.
#[derive(Debug)]
pub(crate) struct PacedSection;

/// A rate.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pacing {
    /// Operations per second of all threads.
    Rate(f64),
    /// Share of the reference's closed-loop throughput.
    Load(f64),
}

fn pacing(workload: &Workload) -> Pacing {
    *workload.variant.get()
}

impl Rules for PacedSection {
    fn name(&self) -> &'static str {
        "paced"
    }

    fn id_suffix(&self, workload: &Workload) -> String {
        match pacing(workload) {
            Pacing::Rate(rate) => format!(",{rate}/s"),
            Pacing::Load(load) => format!(",load={load}"),
        }
    }

    fn describe(&self, workload: &Workload, cell: &mut Cell) {
        cell.mode = "open".into();
        cell.rate_per_s = match pacing(workload) {
            Pacing::Rate(rate) => Some(rate),
            Pacing::Load(_) => None,
        };
    }
}

impl Section for PacedSection {
    fn about(&self) -> &'static str {
        "latency at a rate, from the intended start (open loop)"
    }

    fn defaults(&self) -> Params {
        Params {
            loads: Some(vec![50.0, 80.0]),
            duration_ms: Some(500.0),
            ..Params::default()
        }
    }

    fn variants(&self, params: &Params) -> Vec<Variant> {
        let rates = params.rates.iter().flatten();
        let rates = rates.map(|&rate| Pacing::Rate(rate));
        let loads = params.loads.iter().flatten();
        let loads = loads.map(|&load| Pacing::Load(load / 100.0));
        rates.chain(loads).map(Variant::of).collect()
    }

    fn run(
        &self,
        runner: &mut Runner<'_>,
        task: &Task,
        contenders: &[Contender],
    ) -> Result<(), BenchError> {
        cells::run(runner, task, contenders, pacing(&task.workload))
    }

    fn page_rank(&self) -> u32 {
        11
    }

    fn parts(&self, results: &Results, looks: &Looks) -> Vec<Part> {
        let what = ("paced", "Latency from the due time");
        let plots = latencies::plots(results, looks, what, true);
        let lead = "Operations fall due at a rate; latency counts from the due time, so that waiting \
                    behind a stall is seen.";
        vec![Part {
            below: latencies::summaries(results, looks, true),
            ..Part::new("paced", "Latency at a rate", lead, plots)
        }]
    }
}
