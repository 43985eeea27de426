//! When a difference is a verdict: the rule of the terminal, of the page and of claims.
//!
//! Two measurements differ if the 95 % interval of their ratio lies beyond the spread of the A/A
//! row, the reference measured twice, and if there are [`LEAST_REPETITIONS`].

use crate::record::{Interval, Role};
use crate::results::CellResults;

/// Least repetitions for a verdict: with fewer, Student's interval is many times the spread.
pub(crate) const LEAST_REPETITIONS: usize = 5;

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

    /// The noise of a cell by the ratio of its A/A row.
    pub(crate) fn of_again(repetitions: usize, ratio: Option<Interval>) -> Self {
        match repetitions {
            few @ ..LEAST_REPETITIONS => Self::TooFew(few),
            _ => factor(ratio).map_or(Self::NoControl, Self::Within),
        }
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
    again
        .filter_map(|row| factor(row.row.ratio))
        .reduce(f64::max)
}

fn factor(again: Option<Interval>) -> Option<f64> {
    let factor = again.map(|of| of.high.max(1.0 / of.low));
    factor.filter(|factor| factor.is_finite())
}

/// Returns the CSS class of a row's verdict, and its words: a difference within the noise is none.
pub(crate) fn verdict(
    (role, word): (Role, &str),
    ratio: Option<Interval>,
    noise: Noise,
) -> (&str, String) {
    let wide = ratio.and_then(|ratio| noise.widen(&ratio));
    let is_beyond = |of: Interval| of.low > 1.0 || of.high < 1.0;
    match (role, word, wide) {
        (Role::Reference, "", _) => ("plain", "reference".to_owned()),
        (_, "faster" | "slower" | "equivalent" | "undecided", None) => {
            ("undecided", format!("undecided: {}", noise.reason()))
        }
        (_, "faster" | "slower", Some(of)) if !is_beyond(of) => ("within", noise.reason()),
        (_, word @ ("faster" | "slower" | "equivalent" | "undecided"), _) => {
            (word, word.to_owned())
        }
        (_, word, _) => ("plain", word.to_owned()),
    }
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

    #[test]
    fn a_difference_within_the_spread_of_the_reference_is_no_verdict() {
        let of = |low, high| {
            let value = f64::midpoint(low, high);
            Some(Interval { value, low, high })
        };
        let word = |repetitions, again, word, ratio| {
            let noise = Noise::of_again(repetitions, again);
            verdict((Role::DynTable, word), ratio, noise).1
        };
        let again = of(0.9, 1.05);
        assert_eq!(word(5, again, "faster", of(1.05, 1.1)), "within A/A");
        assert_eq!(word(5, again, "faster", of(1.2, 1.3)), "faster");
        assert_eq!(word(5, again, "slower", of(0.93, 0.97)), "within A/A");
        assert_eq!(word(5, again, "slower", of(0.5, 0.6)), "slower");
        let few = word(4, again, "slower", of(0.5, 0.6));
        assert_eq!(few, "undecided: 4 repetitions");
        let alone = word(5, None, "slower", of(0.5, 0.6));
        assert_eq!(alone, "undecided: no A/A");
        assert_eq!(word(5, again, "void", None), "void");
    }
}
