//! Throughput while tables grow under a mix with more inserts than removes (\[CHTBench\] §3.4.2).

use crate::plot::style::Looks;
use crate::plot::{Part, dots};
use crate::results::Results;
use crate::sections::Section;
use crate::suite::Params;
use crate::work::Drive;

/// The section.
#[derive(Debug)]
pub(crate) struct ResizingSection;

impl Section for ResizingSection {
    type Loop = Drive;

    fn name(&self) -> &'static str {
        "resizing"
    }

    fn about(&self) -> &'static str {
        "throughput while the table grows: load 90 %, 35 % inserts, 5 % removes (3.4.2)"
    }

    fn defaults(&self) -> Params {
        Params {
            updates: Some(vec![40.0]),
            insert_share: Some(87.5),
            load: Some(90.0),
            churn: Some(0.0),
            slices: Some(1),
            warm_ms: Some(0.0),
            duration_ms: Some(300.0),
            ..Params::default()
        }
    }

    fn page_rank(&self) -> u32 {
        5
    }

    fn parts(&self, results: &Results, looks: &Looks) -> Vec<Part> {
        let what = ("resizing", "resizing", "Throughput while resizing");
        let plot = dots::all(results, looks, what);
        vec![Part::new(
            "resizing",
            "Resizing",
            "Operations while the table grows and shrinks underneath.",
            plot.into_iter().collect(),
        )]
    }
}
