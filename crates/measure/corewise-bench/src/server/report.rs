//! Requests per second against clients, for each operation.

use itertools::Itertools;

use crate::plot::Plot;
use crate::plot::chart::{Curve, Spot};
use crate::plot::lines::{Axis, Lines};
use crate::plot::style::Looks;
use crate::plot::svg::rate;
use crate::report::page;
use crate::server::args::Operation;
use crate::server::row::Row;

/// The page: a plot for each operation, and the rows as text.
pub(super) fn page(mut lead: Vec<String>, rows: &[Row], listing: &str) -> String {
    let looks = Looks::named(rows.iter().map(|row| &*row.engine));
    let operations = [Operation::Get, Operation::Set].into_iter();
    let plots = operations.filter_map(|operation| plot(rows, operation, &looks));
    let plots: Vec<Plot> = plots.collect();
    let versions = rows.iter();
    let versions = versions.map(|row| format!("{} {}", row.engine, row.version));
    lead.push(versions.sorted().dedup().join(", "));
    let title = "Figure 8 of the USENIX ATC 2011 paper, on this machine";
    page::plain(title, &lead, (&looks, &plots), listing)
}

fn plot(rows: &[Row], operation: Operation, looks: &Looks) -> Option<Plot> {
    let of_operation = rows.iter().filter(|row| row.operation == operation);
    let rows: Vec<&Row> = of_operation.collect();
    let lines = Lines {
        kind: "server",
        title: format!("{operation} requests against clients"),
        note: "Dots are samples; lines join the greatest at each point, as in the paper."
            .to_owned(),
        x: Axis::At(rows.iter().map(|row| row.clients as f64).collect()),
        x_title: "clients",
    };
    let curve = |(name, look)| {
        let mut curve = Curve::new(look, name);
        let of_engine = rows.iter().filter(|row| row.engine == name);
        of_engine.for_each(|row| add(&mut curve, row));
        curve
    };
    lines.draw(&looks.all().map(curve).collect::<Vec<_>>(), |_, _| {})
}

/// Adds the samples and their maximum; for a void row, only a mark.
fn add(curve: &mut Curve, row: &Row) {
    let x = row.clients as f64;
    if !row.problems.is_empty() {
        curve.voids.push((x, row.problems.join("; ")));
        return;
    }
    let what = format!("{}, clients: {}", row.engine, row.clients);
    let samples = row.samples_per_s.iter().enumerate();
    curve.dots.extend(samples.map(|(at, &of)| Spot {
        at: (x, of),
        text: format!("{what}, sample {at}: {}", rate(of)),
    }));
    let (greatest, median) = (rate(row.max_per_s), rate(row.median_per_s));
    curve.medians.push(Spot {
        at: (x, row.max_per_s),
        text: format!("{what}: {greatest} (median {median})"),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::row::tests::row;

    #[test]
    fn each_operation_has_a_plot_and_void_rows_are_no_points() {
        let mut rows = vec![
            row("relativistic", Operation::Get, 1, 10_000.0),
            row("relativistic", Operation::Get, 12, 90_000.0),
            row("global-lock", Operation::Get, 12, 60_000.0),
        ];
        let page = |rows: &[Row]| page(vec!["a <note>".into()], rows, "the <rows>");
        let html = page(&rows);
        assert!(html.contains("id=\"plot-server-1\"") && !html.contains("plot-server-2"));
        for word in [
            "a &lt;note&gt;",
            "the &lt;rows&gt;",
            "relativistic 1",
            "22.5 k/s",
        ] {
            assert!(html.contains(word), "{word}");
        }
        rows[2].problems.push("wrong value".into());
        rows.push(row("locked", Operation::Set, 1, 5_000.0));
        let html = page(&rows);
        assert!(html.contains("void: wrong value") && html.contains("plot-server-2"));
        assert!(!html.contains("global-lock, clients: 12: 60"));
    }
}
