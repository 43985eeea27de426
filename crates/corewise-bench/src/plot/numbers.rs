//! Tables of numbers below plots, and formats of ratios.

use maud::{Markup, html};

use crate::record::Interval;
use crate::table::Contention;

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

/// Returns the geometric mean of each name's values, and the number of its values, in order of
/// first appearance. Values that have no logarithm are left out.
pub(crate) fn geometric_means<'a>(
    values: impl IntoIterator<Item = (&'a str, f64)>,
) -> Vec<(&'a str, f64, usize)> {
    let mut means: Vec<(&str, f64, usize)> = Vec::new();
    for (name, value) in values {
        let log = value.ln();
        match means.iter_mut().find(|(known, ..)| *known == name) {
            _ if !log.is_finite() => {}
            Some(mean) => (mean.1, mean.2) = (mean.1 + log, mean.2 + 1),
            None => means.push((name, log, 1)),
        }
    }
    for (_, mean, times) in &mut means {
        *mean = (*mean / *times as f64).exp();
    }
    means
}

/// Formats the shares of critical sections that found the lock taken, and of transactions that
/// aborted.
pub(crate) fn contention(seen: Contention) -> String {
    let share = |part: u64, all: u64, what: &str| {
        (all > 0).then(|| format!("{:.1} % {what}", part as f64 * 100.0 / all as f64))
    };
    let shares = [
        share(seen.contended, seen.acquisitions, "contended"),
        share(seen.aborts, seen.elided + seen.aborts, "aborted"),
    ];
    shares.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
