//! Throughput against threads.

use crate::plot::Plot;
use crate::plot::group::{Group, groups, named, threads};
use crate::plot::over_threads::{NOTE, Spec, by_threads, most_cpus, over_threads};
use crate::plot::rates::curves;
use crate::plot::style::Looks;
use crate::results::{CellResults, Results};

/// A plot for each workload of the section `scaling`.
pub(crate) fn plots(results: &Results, looks: &Looks) -> Vec<Plot> {
    let cells = named(&results.sections, "scaling");
    let groups = groups(cells, &["threads"]);
    let draw = |group| plot(group, looks, most_cpus(results));
    groups.iter().filter_map(draw).collect()
}

fn plot(group: &Group<'_>, looks: &Looks, cpus: usize) -> Option<Plot> {
    let spec = Spec {
        kind: "scaling",
        title: format!("Throughput against threads: {}", group.title),
        note: NOTE.to_owned(),
        threads: "threads",
    };
    let words = |cell: &CellResults| threads(cell.cell.threads);
    over_threads(spec, &curves(group.rows(), looks, by_threads, words), cpus)
}
