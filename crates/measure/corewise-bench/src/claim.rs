//! Claims of papers.
//!
//! A suite names claims beside its sections. They travel with the results, in the plan of the
//! manifest, so that every page of the suite has their verdicts:
//!
//! ```toml
//! [[claim]]
//! figure = "ATC'11, figure 4"
//! says = "lookups during a resize: faster than DDDS"
//! cell = "resize/"           # part of the names of the cells
//! of = "relativistic"
//! to = "chained:ddds"        # in the same cell; absent: the same table in the cell `base`
//! least = 1.0
//! processors = 16
//! ```

use serde::{Deserialize, Serialize};

/// A claim about the ratio of two rates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Claim {
    /// The paper and its figure.
    pub figure: String,
    /// The claim, in words.
    pub says: String,
    /// Part of the names of the cells it is about.
    pub cell: String,
    /// The table.
    pub of: String,
    /// The table whose rate is the base, in the same cell; the same table if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// What replaces `cell` in the name of the cell with the base; the same cell if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The least ratio that the claim allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least: Option<f64>,
    /// The greatest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<f64>,
    /// The processors that a machine needs to decide it.
    #[serde(default)]
    pub processors: usize,
    /// Whether sections of the table must have run as hardware transactions to decide it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub transactions: bool,
}

impl Claim {
    /// Checks that the claim can be decided; the error is one line.
    pub(crate) fn check(&self) -> Result<(), String> {
        let what = if self.least.is_none() && self.most.is_none() {
            "it needs `least` or `most`"
        } else if self.to.is_none() && self.base.is_none() {
            "it needs `to` or `base`"
        } else {
            return Ok(());
        };
        Err(format!("claim `{}`: {what}", self.says))
    }
}
