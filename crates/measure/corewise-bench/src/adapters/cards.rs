//! The cards of the tables, from `cards.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use toml::{Table, Value};

use crate::table::TableInfo;

/// What the file says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cards {
    /// Versions of crates, by their names.
    pub(super) versions: BTreeMap<String, String>,
    /// Fields that several cards share.
    like: BTreeMap<String, Table>,
    /// What the tables of a family are about, by their names.
    family: BTreeMap<String, BTreeMap<String, String>>,
    card: BTreeMap<String, Table>,
}

pub(super) static CARDS: LazyLock<Cards> = LazyLock::new(|| {
    let text = include_str!("../../cards.toml");
    let mut all: Cards = toml::from_str(text).expect("a test reads every card");
    for (family, tables) in std::mem::take(&mut all.family) {
        for (name, about) in tables {
            let fields = [("like", family.clone()), ("about", about)];
            let fields = fields.map(|(field, text)| (field.to_owned(), text.into()));
            all.card.insert(name, fields.into_iter().collect());
        }
    }
    all
});

impl Cards {
    /// Returns the fields of a card, with those that it shares.
    fn fields(&self, name: &str) -> Table {
        let own = self.card.get(name);
        let mut fields = own
            .unwrap_or_else(|| panic!("`{name}` has no card"))
            .clone();
        let like = fields.remove("like");
        for shared in [like.as_ref().and_then(Value::as_str), Some("usual")] {
            for (field, value) in shared.iter().flat_map(|shared| &self.like[*shared]) {
                fields.entry(field).or_insert_with(|| value.clone());
            }
        }
        fields
    }

    /// Returns a text with versions and names in place of words in braces.
    fn fill_in(&self, text: &str) -> String {
        let others = [
            ("ours", env!("CARGO_PKG_VERSION")),
            ("common", crate::hash::COMMON),
        ];
        let versions = self.versions.iter().map(|(name, of)| (&**name, &**of));
        versions
            .chain(others)
            .fold(text.to_owned(), |text, (word, of)| {
                text.replace(&format!("{{{word}}}"), of)
            })
    }

    /// Returns the tables that need a feature, and the feature.
    pub(super) fn features(&self) -> impl Iterator<Item = (&str, String)> {
        self.card.keys().filter_map(|name| {
            let feature = self.fields(name).remove("feature")?;
            Some((&**name, feature.as_str()?.to_owned()))
        })
    }
}

/// Returns the card of a table.
///
/// # Panics
///
/// Panics if there is none of that name.
pub(super) fn card(name: &str) -> TableInfo {
    let mut fields = CARDS.fields(name);
    for (_, value) in &mut fields {
        *value = CARDS.fill_in(value.as_str().unwrap_or_default()).into();
    }
    fields.insert("name".to_owned(), name.into());
    fields.try_into().expect("a card has all fields")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_card_has_known_fields_and_no_word_in_braces() {
        let known = serde_json::to_value(card("null")).expect("a card");
        for name in CARDS.card.keys() {
            let mut fields = CARDS.fields(name);
            fields.remove("feature");
            for field in fields.keys() {
                assert!(known.get(field).is_some(), "{name}: {field}");
            }
            let text = format!("{:?}", card(name)).replace("TableInfo {", "");
            assert!(!text.contains('{'), "{text}");
        }
    }
}
