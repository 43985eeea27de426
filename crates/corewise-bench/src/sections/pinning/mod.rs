//! Throughput by placement of threads (\[CHTBench\] §3.4.6).

use crate::plot::style::Looks;
use crate::plot::svg::shorten;
use crate::plot::{Part, dots};
use crate::results::{CellResults, Results};
use crate::sections::Section;
use crate::suite::{Params, words};
use crate::work::Drive;

/// The section.
#[derive(Debug)]
pub(crate) struct PinningSection;

impl Section for PinningSection {
    type Loop = Drive;

    fn name(&self) -> &'static str {
        "pinning"
    }

    fn about(&self) -> &'static str {
        "throughput by placement of threads (3.4.6)"
    }

    fn defaults(&self) -> Params {
        Params {
            pin: words(&["default", "compact", "balanced", "smt-pair"]),
            ..Params::default()
        }
    }

    fn page_rank(&self) -> u32 {
        15
    }

    fn parts(&self, results: &Results, looks: &Looks) -> Vec<Part> {
        let what = ("pinning", "pinning", "Throughput by pin policy");
        let plots = dots::by(results, looks, what, &["pin"], heading);
        vec![Part::new(
            "pinning",
            "Pinning",
            "Where the threads were put.",
            plots,
        )]
    }
}

/// The heading of a block: the pin policy and its CPUs.
fn heading(cell: &CellResults) -> String {
    let cpus = &cell.cell.cpus;
    if cpus.is_empty() {
        return format!("pin {}", cell.cell.pin);
    }
    let list: Vec<_> = cpus.iter().map(usize::to_string).collect();
    let on = shorten(&list.join(", "), 60);
    format!("pin {} (CPUs {on})", cell.cell.pin)
}
