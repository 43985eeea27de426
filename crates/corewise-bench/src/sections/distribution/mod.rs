//! Throughput by distribution of keys (\[CHTBench\] §3.4.2).

use crate::plot::style::Looks;
use crate::plot::{Part, dots};
use crate::results::{CellResults, Results};
use crate::sections::Section;
use crate::suite::{Params, words};
use crate::work::Drive;

/// The section.
#[derive(Debug)]
pub(crate) struct DistributionSection;

impl Section for DistributionSection {
    type Loop = Drive;

    fn name(&self) -> &'static str {
        "distribution"
    }

    fn about(&self) -> &'static str {
        "throughput by distribution of keys (3.4.2)"
    }

    fn defaults(&self) -> Params {
        Params {
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
        }
    }

    fn page_rank(&self) -> u32 {
        4
    }

    fn parts(&self, results: &Results, looks: &Looks) -> Vec<Part> {
        let what = ("distribution", "distribution", "Throughput by distribution");
        let heading = |cell: &CellResults| cell.cell.distribution.clone();
        let plots = dots::by(results, looks, what, &["distribution"], heading);
        vec![Part::new(
            "distribution",
            "Distributions",
            "What popular keys do.",
            plots,
        )]
    }
}
