//! Whether a result confirms the claims of its suite.

use maud::{Markup, html};

use crate::claim::Claim;
use crate::plot::numbers::ratio;
use crate::plot::over_threads::most_cpus;
use crate::record::{Interval, Role};
use crate::results::{CellResults, Results, RowResults, distinct};
use crate::suite::Suite;

/// What a result says about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decided {
    Confirmed,
    Refuted,
    /// An interval contains a bound.
    Undecided,
    /// No cell has both rates.
    NotMeasured,
    NeedsProcessors(usize),
    NeedsTransactions,
}

impl Claim {
    /// Returns the ratios of all cells that it is about, with the names of the cells.
    fn ratios<'a>(&self, results: &'a Results) -> Vec<(&'a str, Interval)> {
        let cells = results.cells();
        let cells = cells.filter(|cell| cell.cell.id.contains(&self.cell));
        let ratio = |cell: &'a CellResults| {
            let base = match &self.base {
                None => cell,
                Some(base) => {
                    let id = cell.cell.id.replace(&self.cell, base);
                    results.cells().find(|other| other.cell.id == id)?
                }
            };
            let to = self.to.as_ref().unwrap_or(&self.of);
            let ratio = valid(cell, &self.of)?.rate_ratio(valid(base, to)?)?;
            Some((&*cell.cell.id, ratio))
        };
        cells.filter_map(ratio).collect()
    }

    /// Decides the claim by the ratios of all cells: each must confirm it, and one refutes it.
    fn decide(&self, ratios: &[(&str, Interval)], processors: usize) -> Decided {
        if processors < self.processors {
            return Decided::NeedsProcessors(self.processors);
        }
        let least = self.least.unwrap_or(f64::NEG_INFINITY);
        let most = self.most.unwrap_or(f64::INFINITY);
        let refutes = |interval: &Interval| interval.high < least || interval.low > most;
        let confirms = |interval: &Interval| interval.low >= least && interval.high <= most;
        if ratios.iter().any(|(_, interval)| refutes(interval)) {
            Decided::Refuted
        } else if ratios.is_empty() {
            Decided::NotMeasured
        } else if ratios.iter().all(|(_, interval)| confirms(interval)) {
            Decided::Confirmed
        } else {
            Decided::Undecided
        }
    }

    /// Returns whether it is about transactions, and the table ran none.
    fn lacks_transactions(&self, results: &Results) -> bool {
        let cells = results.cells();
        let cells = cells.filter(|cell| cell.cell.id.contains(&self.cell));
        let rows = cells.filter_map(|cell| valid(cell, &self.of));
        let mut seen = rows.filter_map(|row| row.row.contention);
        self.transactions && !seen.any(|seen| seen.elided > 0)
    }

    /// Formats the bounds.
    fn bounds(&self) -> String {
        match (self.least, self.most) {
            (Some(least), Some(most)) => format!("{least} to {most}"),
            (Some(least), None) => format!("at least {least}"),
            (None, most) => format!("at most {}", most.unwrap_or_default()),
        }
    }
}

impl Decided {
    /// Returns the CSS class and the words.
    fn words(self) -> (&'static str, String) {
        match self {
            Self::Confirmed => ("faster", "confirmed".to_owned()),
            Self::Refuted => ("slower", "refuted".to_owned()),
            Self::Undecided => ("undecided", "undecided".to_owned()),
            Self::NotMeasured => ("plain", "not measured".to_owned()),
            Self::NeedsProcessors(number) => ("plain", format!("needs {number} processors")),
            Self::NeedsTransactions => ("plain", "needs hardware transactions".to_owned()),
        }
    }
}

/// Returns the valid row of a table.
fn valid<'a>(cell: &'a CellResults, table: &str) -> Option<&'a RowResults> {
    let is = |row: &&RowResults| {
        row.row.table == table && !matches!(row.row.role, Role::Again | Role::Null)
    };
    cell.rows.iter().find(is).filter(|row| !row.void())
}

/// The claims of the suites of a result, each with its verdict; nothing if they have none.
pub(crate) fn verdicts(results: &Results) -> Markup {
    let plans = results.files.iter().map(|file| &file.manifest.plan);
    let suites = plans.filter_map(|plan| Suite::parse(plan).ok());
    let claims = distinct(suites.flat_map(|suite| suite.claim));
    let processors = most_cpus(results);
    html! {
        @if !claims.is_empty() {
            section #claims {
                h2 { "Claims of the paper" }
                p.lead {
                    "Ratios of rates with 95 % intervals. All cells must confirm a claim; one whose \
                     whole interval lies outside the bounds refutes it."
                }
                table.lines {
                    tbody { @for claim in &claims { (line(claim, results, processors)) } }
                }
            }
        }
    }
}

fn line(claim: &Claim, results: &Results, processors: usize) -> Markup {
    let ratios = claim.ratios(results);
    let decided = if !ratios.is_empty() && claim.lacks_transactions(results) {
        Decided::NeedsTransactions
    } else {
        claim.decide(&ratios, processors)
    };
    let (class, word) = decided.words();
    html! {
        tr class=(class) {
            th scope="row" { (claim.figure) }
            td { (claim.says) small { (claim.bounds()) } }
            td {
                @for (cell, of) in &ratios { small title=(cell) { (ratio(*of)) } }
            }
            td { span.word { (word) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(least: Option<f64>, most: Option<f64>, processors: usize) -> Claim {
        Claim {
            figure: "1".into(),
            says: "it is fast".into(),
            cell: "scaling/".into(),
            of: "a".into(),
            to: Some("b".into()),
            base: None,
            least,
            most,
            processors,
            transactions: false,
        }
    }

    fn interval(low: f64, high: f64) -> Interval {
        let value = (low + high) / 2.0;
        Interval { value, low, high }
    }

    #[test]
    fn intervals_decide_a_claim() {
        let decide = |claim: Claim, spans: &[(f64, f64)]| {
            let ratios = spans.iter().map(|(low, high)| ("x", interval(*low, *high)));
            claim.decide(&ratios.collect::<Vec<_>>(), 2)
        };
        let faster = || claim(Some(1.0), None, 2);
        let close = || claim(Some(0.9), Some(1.1), 0);
        for (claim, spans, decided) in [
            (faster(), &[(1.1, 1.3)][..], Decided::Confirmed),
            (faster(), &[(0.9, 1.3)], Decided::Undecided),
            (faster(), &[(0.7, 0.9)], Decided::Refuted),
            (faster(), &[(1.1, 1.2), (0.9, 1.3)], Decided::Undecided),
            (faster(), &[(1.1, 1.2), (0.8, 0.9)], Decided::Refuted),
            (faster(), &[], Decided::NotMeasured),
            (close(), &[(0.95, 1.05)], Decided::Confirmed),
            (close(), &[(1.05, 1.15)], Decided::Undecided),
            (close(), &[(1.15, 1.25)], Decided::Refuted),
            (
                claim(Some(1.0), None, 16),
                &[(1.1, 1.3)],
                Decided::NeedsProcessors(16),
            ),
        ] {
            assert_eq!(decide(claim, spans), decided, "{spans:?}");
        }
    }

    #[test]
    fn a_claim_without_bounds_or_base_is_an_error() {
        assert_eq!(claim(Some(1.0), None, 0).check(), Ok(()));
        let without_bounds = claim(None, None, 0).check();
        assert!(without_bounds.is_err_and(|what| what.contains("least")));
        let mut without_base = claim(None, Some(1.0), 0);
        without_base.to = None;
        assert!(
            without_base
                .check()
                .is_err_and(|what| what.contains("base"))
        );
    }
}
