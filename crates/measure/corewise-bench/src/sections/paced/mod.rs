//! Latency at a rate, from the intended start of each operation (open loop).

mod cells;

use maud::Markup;

use crate::cell_run::CellRun;
use crate::error::BenchError;
use crate::params::Params;
use crate::plot::style::Looks;
use crate::plot::{Plot, latencies};
use crate::record::Cell;
use crate::results::Results;
use crate::section::Section;
use crate::workload::{Check, Rules, Variant, Workload, within};

/// The section.
#[derive(Debug)]
pub(crate) struct PacedSection;

impl Rules for PacedSection {
    fn name(&self) -> &'static str {
        "paced"
    }

    fn checks(&self, workload: &Workload) -> Vec<Check> {
        match workload.variant {
            Variant::Load(load) => vec![within("loads", load * 100.0, (0.01, 1_000.0), " %")],
            Variant::Rate(rate) => vec![within("rates", rate, (1.0, 1e12), "/s")],
            _ => Vec::new(),
        }
    }

    fn id_suffix(&self, workload: &Workload) -> String {
        match workload.variant {
            Variant::Load(load) => format!(",load={load}"),
            Variant::Rate(rate) => format!(",{rate}/s"),
            _ => String::new(),
        }
    }

    fn describe(&self, workload: &Workload, cell: &mut Cell) {
        cell.mode = "open".into();
        cell.rate_per_s = match workload.variant {
            Variant::Rate(rate) => Some(rate),
            _ => None,
        };
    }
}

impl Section for PacedSection {
    fn variants(&self, params: &Params) -> Vec<Variant> {
        let rates = params.rates.iter().flatten();
        let rates = rates.map(|&rate| Variant::Rate(rate));
        let loads = params.loads.iter().flatten();
        let loads = loads.map(|&load| Variant::Load(load / 100.0));
        rates.chain(loads).collect()
    }

    /// A repetition is one slice: every operation has its time in it.
    fn adapt(&self, workload: &mut Workload) {
        workload.slices = 1;
    }

    fn run(&self, run: &mut CellRun<'_, '_>) -> Result<(), BenchError> {
        cells::run(run)
    }

    fn plots(&self, results: &Results, looks: &Looks) -> Vec<Plot> {
        let what = (self.name(), &*self.preset().title);
        latencies::plots(results, looks, what, true)
    }

    fn below(&self, results: &Results, looks: &Looks) -> Markup {
        latencies::summaries(results, looks, true)
    }
}
