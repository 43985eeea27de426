//! Prints the metrics for Prometheus, in its text format 0.0.4 or as OpenMetrics 1.0.
//!
//! The counters are those since the start, whatever was reset: they never fall, because one thread
//! prints them, each is stored by one thread and only grows, and an engine adds those of a session
//! that ends to a sum under the lock under which it reads both.

use super::{Reading, Sample, Source, table};
use crate::shared::Shared;
use corewise_engine::Engine;
use corewise_ops::Now;
use std::fmt::{Display, Write as _};

/// The format of a page of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus' text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// The value of `Content-Type`.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format that a client prefers, from the value of its `Accept`.
    pub(crate) fn preferred(accept: &str) -> Self {
        let quality = |names: &[&str]| {
            let accepted = accept.split(',').filter_map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let name = parts.next()?;
                if !names.iter().any(|one| name.eq_ignore_ascii_case(one)) {
                    return None;
                }
                let quality = parts.find_map(|part| part.strip_prefix("q="));
                Some(quality.map_or(1.0, |q| q.parse::<f32>().unwrap_or(0.0)))
            });
            accepted.fold(0.0, f32::max)
        };
        let open = quality(&["application/openmetrics-text"]);
        if open > 0.0 && open >= quality(&["text/plain", "text/*"]) {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }
}

/// A page of metrics that grows.
struct Page {
    text: String,
    format: Format,
}

impl Page {
    /// Begins a family.
    fn family(&mut self, name: &str, help: &str) {
        let kind = if name.ends_with("_total") {
            "counter"
        } else {
            "gauge"
        };
        let title = match self.format {
            Format::Text => name,
            Format::OpenMetrics => name.strip_suffix("_total").unwrap_or(name),
        };
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(self.text, "# HELP {title} {help}");
        let _ = writeln!(self.text, "# TYPE {title} {kind}");
    }

    /// Adds a sample of the family.
    fn sample(&mut self, family: &str, labels: Option<&str>, value: impl Display) {
        let _ = match labels {
            None => writeln!(self.text, "{family} {value}"),
            Some(labels) => writeln!(self.text, "{family}{{{labels}}} {value}"),
        };
    }

    /// Adds the samples of a row.
    fn row(&mut self, row: Sample, reading: &Reading, source: &Source<'_>) {
        match (reading, row.divisor) {
            (Reading::Counter(read), None) => self.sample(row.family, row.labels, read(source)),
            (Reading::Counter(read), Some(divisor)) => {
                let value = read(source) as f64 / f64::from(divisor);
                self.sample(row.family, row.labels, value);
            }
            (Reading::Other(read), _) => {
                if let Some(value) = read(source) {
                    self.sample(row.family, row.labels, value);
                }
            }
            (Reading::Series(read), _) => {
                for (labels, value) in read(source) {
                    self.sample(row.family, Some(&labels), value);
                }
            }
        }
    }
}

/// Prints all metrics, those of a family together where its first row stands.
pub(crate) fn exposition<E: Engine>(
    shared: &Shared,
    engine: &E,
    now: Now,
    format: Format,
) -> String {
    let source = Source {
        classes: engine.size_classes(),
        ..Source::of(shared, engine, now)
    };
    let mut page = Page {
        text: String::with_capacity(32 << 10),
        format,
    };
    let rows = || {
        let rows = table::METRICS.iter();
        rows.filter_map(|metric| Some((metric.prom?, &metric.reading)))
    };
    for (first, _) in rows() {
        let Some(help) = first.help else {
            continue; // the family has an earlier row
        };
        page.family(first.family, help);
        for (row, reading) in rows().filter(|(row, _)| row.family == first.family) {
            page.row(row, reading, &source);
        }
    }
    if format == Format::OpenMetrics {
        page.text.push_str("# EOF\n");
    }
    page.text
}
