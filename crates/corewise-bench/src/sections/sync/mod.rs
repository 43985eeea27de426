//! One table under different locks and lock elision (\[CHTBench\] §3.4.7).

mod plot;

use crate::plot::Part;
use crate::plot::style::Looks;
use crate::results::Results;
use crate::sections::Section;
use crate::suite::{Params, words};
use crate::work::Drive;

/// The section.
#[derive(Debug)]
pub(crate) struct SyncSection;

impl Section for SyncSection {
    type Loop = Drive;

    fn name(&self) -> &'static str {
        "sync"
    }

    fn about(&self) -> &'static str {
        "one table under different locks and elision, and their contention (3.4.7)"
    }

    fn defaults(&self) -> Params {
        Params {
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
        }
    }

    fn page_rank(&self) -> u32 {
        16
    }

    fn parts(&self, results: &Results, looks: &Looks) -> Vec<Part> {
        let plots = plot::plots(results, looks);
        vec![Part::new(
            "sync",
            "Synchronisation",
            "One table under different locks, and how often they were found taken.",
            plots,
        )]
    }
}
