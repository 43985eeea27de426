//! Throughput against entries, from the first cache to memory (\[CHTBench\] §3.4.4).

mod plot;

use crate::plot::Part;
use crate::plot::style::Looks;
use crate::results::Results;
use crate::sections::Section;
use crate::suite::Params;
use crate::work::Drive;

/// The section.
#[derive(Debug)]
pub(crate) struct WorkingSetSection;

impl Section for WorkingSetSection {
    type Loop = Drive;

    fn name(&self) -> &'static str {
        "workingset"
    }

    fn about(&self) -> &'static str {
        "throughput against entries, from the first cache to memory (3.4.4)"
    }

    fn defaults(&self) -> Params {
        Params {
            initial: Some((8..=24).step_by(2).map(|bit| 1 << bit).collect()),
            ..Params::default()
        }
    }

    fn page_rank(&self) -> u32 {
        3
    }

    fn parts(&self, results: &Results, looks: &Looks) -> Vec<Part> {
        let plots = plot::plots(results, looks);
        vec![Part::new(
            "workingset",
            "Working set",
            "What happens as tables outgrow the caches.",
            plots,
        )]
    }
}
