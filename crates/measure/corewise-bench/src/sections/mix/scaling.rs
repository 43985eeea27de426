//! Throughput against threads.

use crate::plot::Plot;
use crate::plot::group::{Group, groups, named, threads};
use crate::plot::over_threads::{NOTE, by_threads, node_ends, over_threads};
use crate::plot::rates::curves;
use crate::plot::style::Looks;
use crate::results::{CellResults, Results};

/// A plot for each workload of a section, over its numbers of threads.
pub(crate) fn over(
    results: &Results,
    looks: &Looks,
    (section, what): (&'static str, &str),
) -> Vec<Plot> {
    let groups = groups(named(&results.sections, section), &["threads"]);
    let draw = |group: &Group<'_>| {
        let title = format!("{what}: {}", group.title);
        let words = |cell: &CellResults| threads(cell.cell.threads);
        let curves = curves(group.rows(), looks, by_threads, words);
        let about = (section, title, NOTE.to_owned());
        let ends = node_ends(results, &group.cells[0].cell.pin);
        over_threads(about, "threads", &curves, &ends)
    };
    groups.iter().filter_map(draw).collect()
}
