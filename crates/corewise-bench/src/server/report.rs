//! Requests per second against client processes, for each operation.

use crate::plot::chart::Curve;
use crate::plot::lines::{Axis, Lines};
use crate::plot::style::Looks;
use crate::plot::svg::rate;
use crate::plot::{Plot, rates};
use crate::record::Manifest;
use crate::report::page;
use crate::server::row::{Operation, Row, listing, ratios};
use crate::text;

/// The page: a plot for each operation, and the rows.
pub(super) fn page(facts: &Manifest, plan: &str, notes: &[String], rows: &[Row]) -> String {
    let looks = Looks::named(rows.iter().map(|row| &*row.engine));
    let plots: Vec<Plot> = [Operation::Get, Operation::Set]
        .into_iter()
        .filter_map(|operation| plot(rows, operation, &looks))
        .collect();
    let mut lead = vec![text::heading(facts), plan.to_owned(), versions(rows)];
    lead.extend(notes.iter().map(|note| format!("Note: {note}.")));
    lead.extend(ratios(rows));
    let title = "Figure 8 of the USENIX ATC 2011 paper, on this machine";
    page::plain(title, &lead, (&looks, &plots), &listing(rows))
}

fn versions(rows: &[Row]) -> String {
    let mut seen: Vec<String> = Vec::new();
    for row in rows {
        let version = format!("{} {}", row.engine, row.version);
        if !seen.contains(&version) {
            seen.push(version);
        }
    }
    seen.join(", ")
}

fn plot(rows: &[Row], operation: Operation, looks: &Looks) -> Option<Plot> {
    let of_operation = rows.iter().filter(|row| row.operation == operation);
    let rows: Vec<&Row> = of_operation.collect();
    let lines = Lines {
        kind: "server",
        title: format!("{operation} requests against client processes"),
        note: "Dots are samples; lines join the greatest at each point, as in the paper."
            .to_owned(),
        x: Axis::At(rows.iter().map(|row| row.clients as f64).collect()),
        x_title: "client processes",
        values: None,
    };
    lines.draw(&curves(&rows, looks), |_, _| {})
}

fn curves(rows: &[&Row], looks: &Looks) -> Vec<Curve> {
    let curve = |(name, look)| {
        let mut curve = Curve::new(look, name);
        for row in rows.iter().filter(|row| row.engine == name) {
            add(&mut curve, row);
        }
        curve
    };
    looks.all().map(curve).collect()
}

/// Adds the samples and their maximum; for a void row, only a mark.
fn add(curve: &mut Curve, row: &Row) {
    let x = row.clients as f64;
    if !row.problems.is_empty() {
        curve.voids.push((x, row.problems.join("; ")));
        return;
    }
    let what = format!("{}, client processes: {}", row.engine, row.clients);
    let samples = row.samples_per_s.iter().enumerate();
    curve.dots.extend(samples.map(|(at, &rate)| {
        let what = format!("{what}, sample {at}");
        rates::spot(x, rate, &what)
    }));
    let mut greatest = rates::spot(x, row.max_per_s(), &what);
    greatest.text += &format!(" (median {})", rate(row.median_per_s()));
    curve.medians.push(greatest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::row::tests::row;

    #[test]
    fn each_operation_has_a_plot_and_void_rows_are_no_points() {
        let facts = crate::manifest::manifest(crate::manifest::Run::default());
        let mut rows = vec![
            row("relativistic", Operation::Get, 1, 10_000.0),
            row("relativistic", Operation::Get, 12, 90_000.0),
            row("global-lock", Operation::Get, 12, 60_000.0),
        ];
        let page = |rows: &[Row]| page(&facts, "the plan", &["a <note>".into()], rows);
        let html = page(&rows);
        assert!(html.contains("id=\"plot-server-1\"") && !html.contains("plot-server-2"));
        for word in [
            "the plan",
            "a &lt;note&gt;",
            "relativistic 1",
            "1.50 (1.50)",
            "22.5 k/s",
        ] {
            assert!(html.contains(word), "{word}");
        }
        rows[2].problems.push("wrong value".into());
        rows.push(row("locked", Operation::Set, 1, 5_000.0));
        let html = page(&rows);
        assert!(html.contains("void: wrong value") && html.contains("plot-server-2"));
        assert!(!html.contains("global-lock, client processes: 12: 60"));
    }
}
