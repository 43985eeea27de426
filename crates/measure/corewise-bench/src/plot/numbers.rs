//! Tables of numbers below plots, and formats of ratios.

use maud::{Markup, html};

use corewise_measure::number::three_digits;

use crate::record::Interval;
use crate::results::by_key;
use crate::table::Contention;

/// Columns that have their heads on a phone, where each row is a list.
pub(crate) const MOST_HEADS: usize = 24;

/// A table with a row for each of `lines`, whose first field is its head; nothing without lines.
pub(crate) fn table(class: &str, heads: &[&str], lines: &[Vec<String>]) -> Markup {
    let named = heads.iter().zip(1..=MOST_HEADS);
    let names: String = named
        .map(|(head, at)| format!("--h{at}:{head:?};"))
        .collect();
    html! {
        @if !lines.is_empty() {
            div.scroll {
                table class=(class) style=[(!names.is_empty()).then_some(names)] {
                    @if !heads.is_empty() {
                        thead { tr { @for head in heads { th scope="col" { (head) } } } }
                    }
                    tbody {
                        @for line in lines {
                            tr {
                                @for field in line.iter().take(1) { th scope="row" { (field) } }
                                @for field in line.iter().skip(1) { td { (field) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Formats a ratio with its interval.
pub(crate) fn ratio(of: Interval) -> String {
    format!("{} ({})", three_digits(of.value), interval(&of))
}

/// Formats the ends of an interval.
pub(crate) fn interval(of: &Interval) -> String {
    format!("{} – {}", three_digits(of.low), three_digits(of.high))
}

/// Returns the geometric mean of each name's values, and the number of its values, in order of
/// first appearance. Values that have no logarithm are left out.
pub(crate) fn geometric_means<'a>(
    values: impl IntoIterator<Item = (&'a str, f64)>,
) -> Vec<(&'a str, f64, usize)> {
    let logs = values.into_iter().map(|(name, value)| (name, value.ln()));
    let mean = |(name, logs): (&'a str, Vec<f64>)| {
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        (name, mean.exp(), logs.len())
    };
    let by_name = by_key(logs.filter(|(_, log)| log.is_finite()));
    by_name.into_iter().map(mean).collect()
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
