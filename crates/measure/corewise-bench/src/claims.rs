//! Whether a result confirms the claims of its suite.

use maud::{Markup, html};

use crate::claim::Claim;
use crate::judge::Noise;
use crate::plot::group::counted;
use crate::plot::numbers::ratio;
use crate::plot::over_threads::most_cpus;
use crate::record::{Interval, Role};
use crate::results::{CellResults, Results, RowResults, by_key, distinct};
use crate::suite::Suite;

/// What a result says about a claim.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Decided {
    Confirmed,
    Refuted,
    /// An interval contains a bound.
    Undecided,
    /// An interval contains a bound if the noise is added, or there is too little to judge by.
    Noisy(Noise),
    /// No cell has both rates.
    NotMeasured,
    NeedsProcessors(usize),
    NeedsTransactions,
}

/// The ratio that a claim is about in a cell, with the cell's name and its noise.
type CellRatio<'a> = (&'a str, Interval, Noise);

impl Claim {
    /// Returns the ratios of all cells that it is about.
    fn ratios<'a>(&self, results: &'a Results) -> Vec<CellRatio<'a>> {
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
            Some((&*cell.cell.id, ratio, Noise::of([cell, base])))
        };
        cells.filter_map(ratio).collect()
    }

    /// Decides the claim by the ratios of all cells: each must confirm it, and one refutes it. An
    /// interval must do so with the noise added.
    fn decide(&self, ratios: &[CellRatio<'_>], processors: usize) -> Decided {
        if processors < self.processors {
            return Decided::NeedsProcessors(self.processors);
        }
        let least = self.least.unwrap_or(f64::NEG_INFINITY);
        let most = self.most.unwrap_or(f64::INFINITY);
        let refutes = |of: &Interval| of.high < least || of.low > most;
        let confirms = |of: &Interval| of.low >= least && of.high <= most;
        let with_noise = |judge: &dyn Fn(&Interval) -> bool, (_, of, noise): &CellRatio<'_>| {
            noise.widen(of).is_some_and(|wide| judge(&wide))
        };
        if ratios.iter().any(|of| with_noise(&refutes, of)) {
            return Decided::Refuted;
        }
        let is_noisy =
            |of: &&CellRatio<'_>| !with_noise(&confirms, of) && (confirms(&of.1) || refutes(&of.1));
        let noises = ratios.iter().filter(is_noisy).map(|(.., noise)| *noise);
        match noises.reduce(Noise::and) {
            _ if ratios.is_empty() => Decided::NotMeasured,
            Some(noise) => Decided::Noisy(noise),
            None if ratios.iter().all(|of| with_noise(&confirms, of)) => Decided::Confirmed,
            None => Decided::Undecided,
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
            Self::Noisy(noise) => ("undecided", format!("undecided: {}", noise.reason())),
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

/// The claims of the suites of a result, each with its verdict, and in one line those that need
/// more processors; nothing if there are none.
pub(crate) fn verdicts(results: &Results) -> Markup {
    let plans = results.files.iter().map(|file| &file.manifest.plan);
    let suites = plans.filter_map(|plan| Suite::parse(plan).ok());
    let claims = distinct(suites.flat_map(|suite| suite.claim));
    let processors = most_cpus(results);
    let (here, larger): (Vec<_>, Vec<_>) =
        (claims.iter()).partition(|claim| claim.processors <= processors);
    html! {
        @if !claims.is_empty() {
            section #claims {
                h2 { "Claims of the paper" }
                p.lead {
                    "Ratios of rates with 95 % intervals. All cells must confirm a claim; one whose \
                     whole interval lies outside the bounds refutes it. An interval counts with the \
                     A/A spread of its cell added, and five repetitions are the least."
                }
                table.lines {
                    tbody {
                        @for claim in here { (line(claim, results, processors)) }
                        @if !larger.is_empty() { (too_large(&larger)) }
                    }
                }
            }
        }
    }
}

/// The claims that this machine is too small for, by the processors that they need.
fn too_large(claims: &[&Claim]) -> Markup {
    let mut needs = by_key(
        claims
            .iter()
            .map(|claim| (claim.processors, &*claim.figure)),
    );
    needs.sort_unstable_by_key(|(processors, _)| *processors);
    html! {
        tr.plain {
            th scope="row" { (counted(claims.len(), "claim")) }
            td colspan="3" {
                @for (processors, figures) in needs {
                    span.word { (Decided::NeedsProcessors(processors).words().1) }
                    small { (distinct(figures).join("; ")) }
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
                @for (cell, of, _) in &ratios { small title=(cell) { (ratio(*of)) } }
            }
            td { span.word { (word) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::LEAST_REPETITIONS;

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
            let noise = Noise::Within(1.0);
            let ratios = spans
                .iter()
                .map(|(low, high)| ("x", interval(*low, *high), noise));
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
    fn noise_leaves_a_claim_undecided() {
        let decide = |spans: &[(f64, f64, Noise)]| {
            let ratios = spans
                .iter()
                .map(|(low, high, noise)| ("x", interval(*low, *high), *noise));
            claim(Some(1.0), None, 2).decide(&ratios.collect::<Vec<_>>(), 2)
        };
        let (quiet, loud) = (Noise::Within(1.05), Noise::Within(1.2));
        let few = Noise::TooFew(LEAST_REPETITIONS - 1);
        for (spans, decided) in [
            (&[(1.1, 1.3, quiet)][..], Decided::Confirmed),
            (&[(1.1, 1.3, loud)], Decided::Noisy(loud)),
            (&[(0.7, 0.9, quiet)], Decided::Refuted),
            (&[(0.7, 0.9, loud)], Decided::Noisy(loud)),
            (&[(0.9, 1.3, loud)], Decided::Undecided),
            (&[(1.1, 1.3, few)], Decided::Noisy(few)),
            (&[(0.1, 0.2, few)], Decided::Noisy(few)),
            (
                &[(0.1, 0.2, Noise::NoControl)],
                Decided::Noisy(Noise::NoControl),
            ),
            (&[(1.1, 1.3, few), (0.7, 0.9, quiet)], Decided::Refuted),
            (&[(1.1, 1.3, quiet), (1.1, 1.3, loud)], Decided::Noisy(loud)),
        ] {
            assert_eq!(decide(spans), decided, "{spans:?}");
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
