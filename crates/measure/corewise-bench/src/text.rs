//! Output of rows on the terminal.

use crate::judge::{self, Noise};
use crate::plot::numbers::contention;
use crate::record::{Interval, Manifest, Role, Row};
use crate::sections;
pub(crate) use crate::sink::say;

/// Formats machine, date, commit and memory of a run in a line.
pub(crate) fn heading(manifest: &Manifest) -> String {
    format!(
        "{}, {}; commit {}; allocator {}; pages {}",
        manifest.machine.named(),
        manifest.date,
        manifest.named_commit(),
        manifest.allocator,
        manifest.pages
    )
}

/// Prints rows as they arrive.
#[derive(Debug, Default)]
pub(crate) struct Table {
    cell: String,
    /// The noise of the cell, from its A/A row, which is the first.
    noise: Option<Noise>,
}

impl Table {
    pub(crate) fn new(manifest: &Manifest) -> Self {
        say(&heading(manifest));
        if let Err(reason) = crate::counters::probe() {
            say(&format!("hardware counters: n/a ({reason})"));
        }
        Self::default()
    }

    pub(crate) fn row(&mut self, row: &Row) {
        let section = sections::find(&row.cell.section);
        if self.cell != row.cell.id {
            self.cell.clone_from(&row.cell.id);
            self.noise = None;
            let (id, repetitions) = (&row.cell.id, row.repetitions);
            say(&format!("\n{id}  ({repetitions} repetitions)"));
            if !row.cell.left_out.is_empty() {
                let names = row.cell.left_out.join(", ");
                let reason = section.map_or("left out", |section| &section.preset().left_out);
                say(&format!("  {reason}: {names}"));
            }
            say(&format!(
                "  {:<22} {:>9} {:>17}  {:>6} {:>15}  verdict",
                "table", "Mops/s", "95 %", "ratio", "95 %"
            ));
        }
        let remark = section.map_or(String::new(), |section| section.remark(row));
        if row.role == Role::Again && row.verdict != "void" {
            self.noise = Some(Noise::of_again(row.repetitions, row.ratio));
        }
        say(&line(row, self.noise.unwrap_or(Noise::NoControl), &remark));
        for problem in &row.problems {
            say(&format!("    ! {problem}"));
        }
    }
}

fn line(row: &Row, noise: Noise, remark: &str) -> String {
    let mops = |interval: Interval| {
        let [value, low, high] = [interval.value, interval.low, interval.high].map(|v| v / 1e6);
        format!("{value:>9.2} {:>17}", format!("{low:.2} - {high:.2}"))
    };
    let rate = row.rate.map_or_else(|| format!("{:>27}", "n/a"), mops);
    let ratio = match row.ratio {
        Some(r) => format!(
            "{:>6.2} {:>15}",
            r.value,
            format!("{:.2} - {:.2}", r.low, r.high)
        ),
        None if row.role == Role::Reference => format!("{:>22}", "reference"),
        None => " ".repeat(22),
    };
    let verdict = match row.role {
        Role::Null if row.verdict.is_empty() => "cost of the harness".to_owned(),
        Role::Reference if row.verdict.is_empty() => String::new(),
        _ => judge::verdict((row.role, &row.verdict), row.ratio, noise).1,
    };
    let contention = row.contention.map(contention);
    let contention = contention.filter(|words| !words.is_empty());
    let contention = contention.map_or(String::new(), |words| format!("  {words}"));
    let counters = row.per_operation.iter();
    let counters: String = counters
        .map(|(name, value)| format!("  {value:.2} {name}/op"))
        .collect();
    format!(
        "  {:<22} {rate}  {ratio}  {verdict}{remark}{contention}{counters}",
        row.table
    )
}
