//! Throughput against threads (\[CHTBench\] §3.4.2).

mod plot;

use crate::plot::Part;
use crate::plot::style::Looks;
use crate::results::Results;
use crate::sections::Section;
use crate::suite::{Params, Threads};
use crate::work::Drive;

/// The section.
#[derive(Debug)]
pub(crate) struct ScalingSection;

impl Section for ScalingSection {
    type Loop = Drive;

    fn name(&self) -> &'static str {
        "scaling"
    }

    fn about(&self) -> &'static str {
        "throughput against threads (thesis 3.4.2)"
    }

    fn defaults(&self) -> Params {
        Params {
            threads: Some(vec![Threads::Words("1..cpus".into())]),
            ..Params::default()
        }
    }

    fn page_rank(&self) -> u32 {
        1
    }

    fn parts(&self, results: &Results, looks: &Looks) -> Vec<Part> {
        let plots = plot::plots(results, looks);
        vec![Part::new(
            "scaling",
            "Scaling",
            "What more threads bring.",
            plots,
        )]
    }
}
