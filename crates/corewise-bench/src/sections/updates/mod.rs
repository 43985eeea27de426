//! Throughput against the share of updates (\[CHTBench\] §3.4.3).

mod plot;

use crate::plot::Part;
use crate::plot::style::Looks;
use crate::results::Results;
use crate::sections::Section;
use crate::suite::Params;
use crate::work::Drive;

/// The section.
#[derive(Debug)]
pub(crate) struct UpdatesSection;

impl Section for UpdatesSection {
    type Loop = Drive;

    fn name(&self) -> &'static str {
        "updates"
    }

    fn about(&self) -> &'static str {
        "throughput against the share of updates (3.4.3)"
    }

    fn defaults(&self) -> Params {
        let shares = [0.0, 1.0, 5.0, 10.0, 20.0, 40.0, 50.0, 80.0, 100.0];
        Params {
            updates: Some(shares.into()),
            ..Params::default()
        }
    }

    fn page_rank(&self) -> u32 {
        2
    }

    fn parts(&self, results: &Results, looks: &Looks) -> Vec<Part> {
        let plots = plot::plots(results, looks);
        vec![Part::new(
            "updates",
            "Updates",
            "What writing costs.",
            plots,
        )]
    }
}
