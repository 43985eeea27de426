//! Tables of numbers below plots.

use crate::plot::svg::escape;
use crate::record::Interval;

/// A table of numbers with a row for each of `lines`, whose first field is its head.
pub(crate) fn numbers(heads: &[&str], lines: &[Vec<String>]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let cells = |tag: &str, words: &mut dyn Iterator<Item = &str>| -> String {
        words
            .map(|word| format!("<{tag}>{}</{tag}>", escape(word)))
            .collect()
    };
    let head = cells("th", &mut heads.iter().copied());
    let body: String = lines
        .iter()
        .map(|line| {
            let (first, rest) = line.split_first().map_or(("", &[][..]), |(f, r)| (f, r));
            let rest = cells("td", &mut rest.iter().map(String::as_str));
            format!("<tr><th scope=\"row\">{}</th>{rest}</tr>\n", escape(first))
        })
        .collect();
    format!(
        "<div class=\"scroll\"><table class=\"numbers\"><thead><tr>{head}</tr></thead><tbody>{body}\
         </tbody></table></div>\n"
    )
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
