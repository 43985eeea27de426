//! Figures of rows: named numbers with a unit.

use serde::{Deserialize, Serialize};

use crate::plot::svg::{rate, time};
use crate::record::Interval;

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// Operations per second.
    Rate,
    Nanoseconds,
    Bytes,
    /// A share of 1.
    Share,
    /// A ratio or a count.
    Plain,
}

impl Unit {
    /// Formats a value; what the machine does not measure is no finite number.
    pub(crate) fn text(self, value: f64) -> String {
        match self {
            _ if !value.is_finite() => "n/a".to_owned(),
            Self::Rate => rate(value),
            Self::Nanoseconds => time(value),
            Self::Bytes if value > 0.0 && value < 0.1 => format!("{value:.4} B"),
            Self::Bytes => format!("{value:.1} B"),
            Self::Share if value > 0.0 && value < 0.01 => format!("{:.3} %", value * 100.0),
            Self::Share => format!("{:.1} %", value * 100.0),
            Self::Plain if value >= 99.95 => format!("{value:.0}"),
            Self::Plain => format!("{value:.2}"),
        }
    }
}

/// A figure of a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: Unit,
    pub(crate) value: f64,
    /// Its 95 % interval, if any.
    pub(crate) spread: Option<(f64, f64)>,
}

impl Figure {
    /// A figure without an interval.
    pub(crate) fn new(name: &str, unit: Unit, value: f64) -> Self {
        Self {
            name: name.to_owned(),
            unit,
            value,
            spread: None,
        }
    }

    /// A figure with its interval.
    pub(crate) fn of_interval(name: &str, unit: Unit, of: Interval) -> Self {
        Self {
            name: name.to_owned(),
            unit,
            value: of.value,
            spread: Some((of.low, of.high)),
        }
    }

    /// Formats its value and the ends of its interval.
    pub(crate) fn text(&self) -> String {
        let text = |value| self.unit.text(value);
        match self.spread {
            Some((low, high)) => format!("{} ({} – {})", text(self.value), text(low), text(high)),
            None => text(self.value),
        }
    }
}
