//! The tables of this build.

use itertools::Itertools;

use crate::entry::Entry;
use crate::error::BenchError;
use crate::subject::Capability;

/// A table that was not compiled in.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Missing {
    /// Its name.
    pub name: String,
    /// What it needs.
    pub reason: String,
}

/// All tables.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    entries: Vec<Entry>,
    missing: Vec<Missing>,
}

impl Registry {
    /// A registry of these tables, and the tables that were not compiled in.
    pub fn new(entries: Vec<Entry>, missing: Vec<Missing>) -> Self {
        Self { entries, missing }
    }

    /// Returns the table of a name, or one line that says why it is missing.
    pub fn find(&self, name: &str) -> Result<&Entry, BenchError> {
        let missing = || self.missing.iter().find(|missing| missing.name == name);
        let entry = self.entries.iter().find(|entry| entry.card.name == name);
        entry.ok_or_else(|| {
            BenchError::Usage(match missing() {
                Some(missing) => format!("table `{name}` is not in this build: {}", missing.reason),
                None => format!("there is no table `{name}`; `corewise bench list` names them"),
            })
        })
    }

    /// Returns the requested tables, without those that end in `?` and are not in this build. If
    /// none are requested, returns all maps except those of a group, whose names have a colon:
    /// those that represent a lock, the chained tables (they do not grow by themselves), and the
    /// sequential dictionaries made concurrent.
    pub fn chosen(&self, names: &[String]) -> Vec<String> {
        if !names.is_empty() {
            let there = |name: &str| self.entries.iter().any(|entry| entry.card.name == name);
            let is_wanted = |name: &&String| name.strip_suffix('?').is_none_or(there);
            let some = names.iter().filter(is_wanted);
            let some = some.map(|name| name.trim_end_matches('?'));
            return some.unique().map(str::to_owned).collect();
        }
        let is_map = |entry: &&Entry| entry.capabilities().contains(&Capability::Map);
        let maps = self.entries.iter().filter(is_map);
        let names = maps.map(|entry| &entry.card.name);
        names.filter(|name| !name.contains(':')).cloned().collect()
    }

    /// Returns whether the table of that name stores nothing.
    pub fn is_null(&self, name: &str) -> bool {
        let mut nulls = self.entries.iter().filter(|entry| entry.null);
        nulls.any(|entry| entry.card.name == name)
    }

    /// Returns the tables.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the tables that were not compiled in.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }
}
