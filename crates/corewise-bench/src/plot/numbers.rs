//! Tables of numbers below plots.

use maud::{Markup, html};

use crate::record::Interval;

/// A table of numbers with a row for each of `lines`, whose first field is its head.
pub(crate) fn numbers(heads: &[&str], lines: &[Vec<String>]) -> Markup {
    html! {
        @if !lines.is_empty() {
            div.scroll {
                table.numbers {
                    thead { tr { @for head in heads { th { (head) } } } }
                    tbody { @for line in lines { (row(line)) } }
                }
            }
        }
    }
}

fn row(line: &[String]) -> Markup {
    html! {
        @if let Some((first, rest)) = line.split_first() {
            tr {
                th scope="row" { (first) }
                @for field in rest { td { (field) } }
            }
        }
    }
}

/// Formats a ratio with its interval.
pub(crate) fn ratio(of: Interval) -> String {
    format!("{} ({})", plain_ratio(of.value), interval(&of))
}

/// Formats the ends of an interval.
pub(crate) fn interval(of: &Interval) -> String {
    format!("{} – {}", plain_ratio(of.low), plain_ratio(of.high))
}

/// Formats a ratio with as many digits as it deserves.
pub(crate) fn plain_ratio(ratio: f64) -> String {
    match ratio {
        large if large >= 99.5 => format!("{ratio:.0}"),
        middle if middle >= 9.95 => format!("{ratio:.1}"),
        _ => format!("{ratio:.2}"),
    }
}
