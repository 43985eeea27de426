//! The colour of each table, the same on every page.
//!
//! | guarantee | checked by |
//! |---|---|
//! | a table of the registry has its own colour, whichever other tables are on the page | `a_table_keeps_its_colour` |
//! | all colours differ by at least `LEAST_DISTANCE`, those of the tables of other libraries and ours by `MAIN_DISTANCE` | `colours_are_distinguishable` |
//! | colours stand out from the background by 3:1 or more (WCAG 2.2, 1.4.11) | `colours_stand_out_from_the_background` |
//! | the first 24 tables differ in shape or dashes, too | `the_first_tables_differ_without_colour` |
//!
//! Distances are Euclidean in OKLab (Ottosson, 2020), where lightness goes from 0 to 1. A
//! difference of 0.02 is just noticeable side by side.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// The least distance of two colours.
#[cfg(test)]
const LEAST_DISTANCE: f64 = 0.05;

/// The least distance of two of the first [`MAIN`] colours.
#[cfg(test)]
const MAIN_DISTANCE: f64 = 0.095;

/// The number of tables that suites compare with each other; locks and variants follow.
#[cfg(test)]
const MAIN: usize = 22;

/// The colours of a table on light and on dark backgrounds.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Swatch {
    /// The name of the table; empty if the colour is spare.
    name: String,
    pub(crate) light: String,
    pub(crate) dark: String,
}

/// The colours in their order of preference, from `palette.toml`.
pub(crate) static SWATCHES: LazyLock<Vec<Swatch>> = LazyLock::new(|| {
    let text = include_str!("../../palette.toml");
    let mut lists: BTreeMap<String, Vec<Swatch>> = toml::from_str(text).expect("tests read it");
    lists.remove("swatches").unwrap_or_default()
});

/// Returns the colour of a table; `None` if the table is not in the list.
pub(crate) fn of_table(name: &str) -> Option<usize> {
    let named = |swatch: &Swatch| swatch.name == name && !name.is_empty();
    SWATCHES.iter().position(named)
}

/// Returns a colour for a table that is not in the list: one that is not in use, if there is one.
/// It depends on the name first, so that it is mostly the same on every page.
pub(crate) fn spare(name: &str, in_use: impl Fn(usize) -> bool) -> usize {
    let hash = name.bytes().fold(7_usize, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(usize::from(byte))
    });
    let candidates = (0..SWATCHES.len()).map(|step| (hash + step) % SWATCHES.len());
    let mut free = candidates.filter(|&at| !in_use(at));
    free.next().unwrap_or(hash % SWATCHES.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Entry;
    use crate::plot::style::{BACKGROUNDS, Look, Looks};
    use crate::subject::Capability;

    /// Red, green and blue as linear light.
    fn linear(colour: &str) -> [f64; 3] {
        [1, 3, 5].map(|at| {
            let byte = u8::from_str_radix(&colour[at..at + 2], 16).expect("hexadecimal");
            let share = f64::from(byte) / 255.0;
            if share <= 0.04045 {
                share / 12.92
            } else {
                ((share + 0.055) / 1.055).powf(2.4)
            }
        })
    }

    fn oklab(colour: &str) -> [f64; 3] {
        let of = |[a, b, c]: [f64; 3], [x, y, z]: [f64; 3]| a * x + b * y + c * z;
        let light = linear(colour);
        let cones = [
            [0.412_221_470_8, 0.536_332_536_3, 0.051_445_992_9],
            [0.211_903_498_2, 0.680_699_545_1, 0.107_396_956_6],
            [0.088_302_461_9, 0.281_718_837_6, 0.629_978_700_5],
        ];
        let cones = cones.map(|row| of(row, light).cbrt());
        let axes = [
            [0.210_454_255_3, 0.793_617_785_0, -0.004_072_046_8],
            [1.977_998_495_1, -2.428_592_205_0, 0.450_593_709_9],
            [0.025_904_037_1, 0.782_771_766_2, -0.808_675_766_0],
        ];
        axes.map(|row| of(row, cones))
    }

    fn distance(one: &str, other: &str) -> f64 {
        let (one, other) = (oklab(one), oklab(other));
        let squares = one.iter().zip(other).map(|(a, b)| (a - b).powi(2));
        squares.sum::<f64>().sqrt()
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let luminance = |colour: &str| {
            let [red, green, blue] = linear(colour);
            0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05
        };
        let (one, other) = (luminance(one), luminance(other));
        one.max(other) / one.min(other)
    }

    #[test]
    fn colours_are_distinguishable() {
        for (at, one) in SWATCHES.iter().enumerate() {
            for (before, other) in SWATCHES[..at].iter().enumerate() {
                let least = if at.max(before) < MAIN {
                    MAIN_DISTANCE
                } else {
                    LEAST_DISTANCE
                };
                let light = distance(&one.light, &other.light);
                let dark = distance(&one.dark, &other.dark);
                assert!(light >= least, "{one:?} {other:?}: {light}");
                assert!(dark >= least, "{one:?} {other:?}: {dark}");
            }
        }
    }

    #[test]
    fn colours_stand_out_from_the_background() {
        let (light, dark) = BACKGROUNDS;
        for swatch in SWATCHES.iter() {
            assert!(contrast(&swatch.light, light) >= 3.0, "{swatch:?}");
            assert!(contrast(&swatch.dark, dark) >= 3.0, "{swatch:?}");
        }
    }

    #[test]
    fn every_map_of_the_registry_has_its_own_colour() {
        let registry = crate::adapters::registry();
        let entries = registry.entries().iter();
        let is_map = |entry: &&Entry| entry.capabilities().contains(&Capability::Map);
        let maps = entries.filter(|entry| !entry.null).filter(is_map);
        let maps = maps.filter(|entry| !entry.card.name.starts_with("nr:"));
        let there = maps.map(|entry| entry.card.name.clone());
        let missing = registry.missing().iter().map(|of| of.name.clone());
        let missing = missing.filter(|name| of_table(name).is_some());
        let mut seen = std::collections::HashSet::new();
        for name in there.chain(missing).filter(|name| name != "peer-null") {
            let at = of_table(&name).unwrap_or_else(|| panic!("no colour for {name}"));
            assert!(seen.insert(at), "{name}");
        }
    }

    #[test]
    fn a_table_keeps_its_colour() {
        let looks = |names: &[&str]| -> Vec<String> {
            let looks = Looks::named(names.iter().copied());
            looks.all().map(|(_, look)| look.colour()).collect()
        };
        let all = looks(&["dashmap", "a new one", "papaya", "another", "lock:mcs"]);
        let some = looks(&["lock:mcs", "papaya"]);
        assert_eq!([&all[4], &all[2]], [&some[0], &some[1]]);
        let different: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{all:?}");
    }

    #[test]
    fn the_first_tables_differ_without_colour() {
        let names = SWATCHES.iter().map(|swatch| &*swatch.name);
        let looks = Looks::named(names.take(24));
        let kinds = looks
            .all()
            .map(|(_, look): (_, Look)| format!("{:?}", look.form()));
        let different: std::collections::HashSet<_> = kinds.collect();
        assert_eq!(different.len(), 24);
    }

    #[test]
    fn a_spare_colour_is_free_if_any_is() {
        assert!((0..SWATCHES.len()).all(|only| spare("x", |at| at != only) == only));
        assert!(spare("x", |_| true) < SWATCHES.len());
    }
}
