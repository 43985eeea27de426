//! Throughput by lock. How often a lock was found taken is below its rate in the verdicts.

use crate::plot::group::threads;
use crate::plot::style::Looks;
use crate::plot::{Plot, dots};
use crate::results::Results;

/// A plot for each workload of the section `sync`.
pub(crate) fn plots(results: &Results, looks: &Looks) -> Vec<Plot> {
    let what = ("sync", "sync", "Throughput by lock");
    dots::by(results, looks, what, &["threads"], |cell| {
        threads(cell.cell.threads)
    })
}
