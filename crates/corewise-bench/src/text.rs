//! Rows on the terminal.

use std::io::Write;

use crate::record::{Interval, Manifest, ResizeSummary, Role, Row, Tail};

/// Machine, date, commit and memory of a run, in a line.
pub(crate) fn heading(manifest: &Manifest) -> String {
    let machine = &manifest.machine;
    format!(
        "{}, {} CPUs, {}; commit {}{}; allocator {}; pages {}",
        machine.cpu,
        machine.cpus,
        manifest.date,
        manifest.commit,
        if manifest.dirty { " and changes" } else { "" },
        manifest.allocator,
        manifest.pages
    )
}

/// A table of rows that is printed as they come.
#[derive(Debug)]
pub(crate) struct Table {
    shown: bool,
    cell: String,
}

impl Table {
    /// Prints the head, if anything is to be shown.
    pub(crate) fn new(manifest: &Manifest, shown: bool) -> Self {
        if shown {
            say(&heading(manifest));
        }
        if shown && let Err(reason) = crate::counters::probe() {
            say(&format!("hardware counters: n/a ({reason})"));
        }
        Self {
            shown,
            cell: String::new(),
        }
    }

    pub(crate) fn row(&mut self, row: &Row) {
        if !self.shown {
            return;
        }
        if self.cell != row.cell.id {
            self.cell.clone_from(&row.cell.id);
            let rate = row
                .cell
                .rate_per_s
                .map(|rate| format!(" at {:.2} M/s", rate / 1e6))
                .unwrap_or_default();
            say(&format!(
                "\n{}{rate}  ({} repetitions)",
                row.cell.id, row.repetitions
            ));
            if !row.cell.left_out.is_empty() {
                let names = row.cell.left_out.join(", ");
                say(&format!("  cannot resize on request: {names}"));
            }
            say(&format!(
                "  {:<22} {:>9} {:>17}  {:>6} {:>15}  verdict",
                "table", "Mops/s", "95 %", "ratio", "95 %"
            ));
        }
        say(&line(row));
        for tail in &row.tails {
            say(&format!("    {}", slow(tail)));
        }
        for more in row.resize.iter().flat_map(resize) {
            say(&format!("    {more}"));
        }
        for problem in &row.problems {
            say(&format!("    ! {problem}"));
        }
    }
}

fn line(row: &Row) -> String {
    let mops = |interval: Interval| {
        let [value, low, high] = [interval.value, interval.low, interval.high].map(|v| v / 1e6);
        format!("{value:>9.2} {:>17}", format!("{low:.2} - {high:.2}"))
    };
    let rate = row.rate.map_or_else(|| format!("{:>27}", "n/a"), mops);
    let ratio = row.ratio.map_or_else(
        || {
            format!(
                "{:>22}",
                if row.role == Role::Reference {
                    "reference"
                } else {
                    ""
                }
            )
        },
        |r| {
            format!(
                "{:>6.2} {:>15}",
                r.value,
                format!("{:.2} - {:.2}", r.low, r.high)
            )
        },
    );
    let verdict = match row.role {
        Role::Null if row.verdict.is_empty() => "cost of the harness",
        _ => &row.verdict,
    };
    let contention = row.contention.map(contention).unwrap_or_default();
    let pair = row.pair_ns.map(|ns| {
        format!(
            "  {:.1} ns a pair ({:.1} - {:.1})",
            ns.value, ns.low, ns.high
        )
    });
    let pair = pair.unwrap_or_default();
    let counters = row.per_operation.iter();
    let counters: String = counters
        .map(|(name, value)| format!("  {value:.2} {name}/op"))
        .collect();
    format!(
        "  {:<22} {rate}  {ratio}  {verdict}{pair}{contention}{counters}",
        row.table
    )
}

/// Slow operations of a thread.
fn slow(of: &Tail) -> String {
    let time = crate::report::time_text;
    let counts = of.slow.iter().map(|slow| {
        let word = if slow.within { "within" } else { "above" };
        format!(
            ", over {} µs {} ({word}: empty loop {:.1}, at most {:.1})",
            slow.over_us, slow.count, slow.expected, slow.allowed
        )
    });
    format!(
        "{}: 99.9 % {}, longest {} (empty loop {}){}",
        of.side,
        time(of.p999_ns),
        time(of.max_ns),
        time(of.empty_max_ns),
        counts.collect::<String>()
    )
}

/// A ratio with its interval; small ones with more digits.
fn times(ratio: Interval) -> String {
    let digits = if ratio.value < 0.1 { 4 } else { 2 };
    format!(
        "{:.digits$} ({:.digits$} - {:.digits$})",
        ratio.value, ratio.low, ratio.high
    )
}

/// Operations beside a thread that resizes, in two lines.
fn resize(of: &ResizeSummary) -> [String; 2] {
    let rate = |rate: Interval| crate::report::rate_text(rate.value);
    let shared = match of.own_cpu {
        true => "",
        false => "; the thread that resizes shares a CPU with a reader",
    };
    let pauses = match of.is_continuous() {
        true => String::new(),
        false => format!(
            " (! less than {:.0} %: not resized all the time)",
            ResizeSummary::LEAST_BUSY * 100.0
        ),
    };
    [
        format!(
            "{} buckets {}, {} buckets {}, resizing {}: {} of the slower, {} of the faster, {} ({} pairs)",
            of.buckets.0,
            rate(of.small),
            of.buckets.1,
            rate(of.large),
            rate(of.resizing),
            times(of.to_slower),
            times(of.to_faster),
            of.position,
            of.pairs
        ),
        format!(
            "{:.0} resizes/s, in progress {:.1} % of the time{pauses}; beside the resizing of another table {} of the larger size{shared}",
            of.resizes_per_s.value,
            of.busy_share.value * 100.0,
            times(of.machine)
        ),
    ]
}

fn contention(seen: crate::table::Contention) -> String {
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64 * 100.0;
    let mut text = format!(
        "  contended {:.1} %",
        share(seen.contended, seen.acquisitions)
    );
    if seen.elided + seen.aborts > 0 {
        text += &format!(
            ", elided {:.1} %, {:.2} aborts per section",
            share(seen.elided, seen.acquisitions),
            seen.aborts as f64 / seen.acquisitions.max(1) as f64
        );
    }
    text
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}"); // a reader that went away is no error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_was_not_resized_all_the_time_is_marked() {
        let at = |value: f64| Interval {
            value,
            low: value,
            high: value,
        };
        let said = |busy: f64| {
            let of = ResizeSummary {
                buckets: (8, 16),
                pairs: 15,
                small: at(1e6),
                large: at(2e6),
                resizing: at(1.5e6),
                to_slower: at(1.5),
                to_faster: at(0.75),
                position: "between".into(),
                machine: at(0.9),
                resizes_per_s: at(100.0),
                busy_share: at(busy),
                own_cpu: true,
            };
            resize(&of).join("; ")
        };
        assert!(said(0.899).contains("in progress 89.9 % of the time (! less than 90 %"));
        assert!(said(0.9).contains("in progress 90.0 % of the time; beside"));
    }
}
