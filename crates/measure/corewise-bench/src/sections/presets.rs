//! What the sections measure by default and how the page introduces them, from `presets.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::figure::Unit;
use crate::suite::Params;

/// The defaults of a section.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Preset {
    /// What the section measures, in a line.
    pub(crate) about: String,
    /// Its heading on the page, and the text below.
    pub(crate) heading: String,
    pub(crate) lead: String,
    /// The beginning of the titles of its plots, unless each has its own.
    #[serde(default)]
    pub(crate) title: String,
    /// The name of the time of an operation of a thread, if that is a figure.
    pub(crate) operation: Option<String>,
    /// The units of the measurements of its subjects; those of the others are plain numbers.
    #[serde(default)]
    pub(crate) units: BTreeMap<String, Unit>,
    /// Whether every key is present at the start, or is inserted: there is one for each entry.
    #[serde(default)]
    pub(crate) all_keys: bool,
    /// Why requested tables have no row, for the line that names them.
    #[serde(default = "left_out")]
    pub(crate) left_out: String,
    /// Its rank among the sections of the page, the least first.
    pub(crate) rank: u32,
    /// Its parameters, where they differ from those of all sections.
    #[serde(default)]
    pub(crate) params: Params,
}

fn left_out() -> String {
    "left out".to_owned()
}

pub(super) static PRESETS: LazyLock<BTreeMap<String, Preset>> = LazyLock::new(|| {
    let text = include_str!("../../presets.toml");
    toml::from_str(text).expect("a test reads every preset")
});
