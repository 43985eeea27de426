//! When a difference is a verdict: the rule of the page and of claims.
//!
//! Two measurements differ if the 95 % interval of their ratio lies beyond the spread of the A/A
//! row, the reference measured twice, and if there are [`LEAST_REPETITIONS`].

use crate::record::{Interval, Role};
use crate::results::CellResults;

/// Least repetitions for a verdict: with fewer, Student's interval is many times the spread.
pub const LEAST_REPETITIONS: usize = 5;

/// What the noise of some cells allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Noise {
    /// Fewer repetitions than [`LEAST_REPETITIONS`].
    TooFew(usize),
    /// A cell has no valid row of the reference measured again.
    NoControl,
    /// The reference differs from itself by up to this factor.
    Within(f64),
}

impl Noise {
    /// The noise of all these cells together.
    pub(crate) fn of<'a>(cells: impl IntoIterator<Item = &'a CellResults>) -> Self {
        let each = cells.into_iter().map(Self::of_cell);
        each.reduce(Self::and).unwrap_or(Self::NoControl)
    }

    fn of_cell(cell: &CellResults) -> Self {
        let repetitions = cell.rows.iter().map(|row| row.row.repetitions).min();
        if let Some(few) = repetitions.filter(|few| *few < LEAST_REPETITIONS) {
            return Self::TooFew(few);
        }
        spread([cell]).map_or(Self::NoControl, Self::Within)
    }

    /// The greater of two.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::TooFew(one), Self::TooFew(other)) => Self::TooFew(one.min(other)),
            (Self::TooFew(few), _) | (_, Self::TooFew(few)) => Self::TooFew(few),
            (Self::NoControl, _) | (_, Self::NoControl) => Self::NoControl,
            (Self::Within(one), Self::Within(other)) => Self::Within(one.max(other)),
        }
    }

    /// Returns the factor within which nothing differs; `None` if there is no verdict at all.
    pub(crate) fn factor(self) -> Option<f64> {
        match self {
            Self::Within(factor) => Some(factor),
            _ => None,
        }
    }

    /// Returns the interval of a ratio with the noise added; `None` if there is no verdict at all.
    pub(crate) fn widen(self, of: &Interval) -> Option<Interval> {
        let factor = self.factor()?;
        Some(Interval {
            low: of.low / factor,
            high: of.high * factor,
            ..*of
        })
    }

    /// Returns why there is no verdict; within the noise, if there could be one.
    pub(crate) fn reason(self) -> String {
        match self {
            Self::TooFew(1) => "1 repetition".to_owned(),
            Self::TooFew(few) => format!("{few} repetitions"),
            Self::NoControl => "no A/A".to_owned(),
            Self::Within(_) => "within A/A".to_owned(),
        }
    }
}

/// Returns the factor that the reference differs from itself by, over the cells; `None` if no cell
/// measured the reference again.
pub(crate) fn spread<'a>(cells: impl IntoIterator<Item = &'a CellResults>) -> Option<f64> {
    let rows = cells.into_iter().flat_map(|cell| &cell.rows);
    let again = rows.filter(|row| row.row.role == Role::Again && !row.void());
    let factors = again.filter_map(|row| row.row.ratio.map(|r| r.high.max(1.0 / r.low)));
    factors.filter(|factor| factor.is_finite()).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_noise_of_cells_is_that_of_the_worst() {
        use Noise::{NoControl, TooFew, Within};
        for (one, other, both) in [
            (Within(1.1), Within(1.3), Within(1.3)),
            (Within(1.1), NoControl, NoControl),
            (TooFew(3), NoControl, TooFew(3)),
            (TooFew(3), TooFew(1), TooFew(1)),
        ] {
            assert_eq!((one.and(other), other.and(one)), (both, both));
        }
        assert_eq!(Noise::of([]), NoControl);
    }

    #[test]
    fn noise_widens_an_interval_on_both_sides() {
        let of = Interval {
            value: 1.0,
            low: 0.9,
            high: 1.2,
        };
        let wide = Noise::Within(1.5).widen(&of).expect("a verdict");
        assert!((wide.low - 0.6).abs() < 1e-12 && (wide.high - 1.8).abs() < 1e-12);
        assert_eq!(Noise::TooFew(4).widen(&of), None);
    }
}
