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
#[derive(Clone, Copy, Debug)]
pub(crate) struct Swatch {
    /// The name of the table; empty if the colour is spare.
    name: &'static str,
    pub(crate) light: &'static str,
    pub(crate) dark: &'static str,
}

impl Swatch {
    const fn new(name: &'static str, light: &'static str, dark: &'static str) -> Self {
        Self { name, light, dark }
    }
}

/// The colours. The order is the order of preference for tables that a page shows in colour. To add
/// a table, name a spare colour: those of other tables stay as they are.
pub(crate) const SWATCHES: [Swatch; 58] = [
    Swatch::new("relativistic", "#0068b0", "#5aaef0"),
    Swatch::new("papaya", "#d1540a", "#ff8a4a"),
    Swatch::new("scc", "#008a63", "#3cc79a"),
    Swatch::new("dashmap", "#c24c93", "#ee8cc4"),
    Swatch::new("clht-lb", "#a87900", "#e8b93a"),
    Swatch::new("sharded64", "#5a48b0", "#a79bff"),
    Swatch::new("cuckoo", "#0080ef", "#a5bfdf"),
    Swatch::new("scc-index", "#ff0680", "#dc0a6e"),
    Swatch::new("flurry", "#ff041c", "#ca958e"),
    Swatch::new("clht-lf", "#01613c", "#0d8253"),
    Swatch::new("hopscotch", "#9701a1", "#e803f7"),
    Swatch::new("rwlock", "#833f6f", "#d500ac"),
    Swatch::new("tbb", "#c00000", "#a1766f"),
    Swatch::new("urcu-memb", "#038dab", "#0c7b95"),
    Swatch::new("urcu-qsbr", "#0045d6", "#3d71dc"),
    Swatch::new("libcuckoo", "#4a5371", "#7d88ab"),
    Swatch::new("cds-michael", "#666801", "#a7aa02"),
    Swatch::new("cds-split", "#986056", "#dd1e04"),
    Swatch::new("cds-feldman", "#884003", "#c86311"),
    Swatch::new("locked", "#0aa603", "#099403"),
    Swatch::new("mutex", "#b40362", "#b35176"),
    Swatch::new("hashbrown", "#759d5c", "#78da00"),
    Swatch::new("parking-rwlock", "#007369", "#018075"),
    Swatch::new("slowed", "#8f9a02", "#818b07"),
    Swatch::new("unslowed", "#7f7a04", "#ccc400"),
    Swatch::new("lock:tas", "#e1030f", "#fb0111"),
    Swatch::new("lock:ttas", "#007543", "#00a460"),
    Swatch::new("lock:ticket", "#00a658", "#03924d"),
    Swatch::new("lock:mcs", "#875b00", "#a97301"),
    Swatch::new("lock:std-mutex", "#5a7a45", "#56990f"),
    Swatch::new("lock:parking-mutex", "#695100", "#8c6e0e"),
    Swatch::new("lock:parking-rwlock", "#475c0c", "#80a504"),
    Swatch::new("lock:sharded-rwlock", "#a90f39", "#a25c62"),
    Swatch::new("lock:elided-ttas", "#00598d", "#087bbf"),
    Swatch::new("chained:out-of-place", "#009000", "#05d502"),
    Swatch::new("chained:atc11", "#894644", "#bc6966"),
    Swatch::new("chained:in-place", "#a94607", "#fb6900"),
    Swatch::new("chained:no-auxiliary", "#cd0944", "#df034a"),
    Swatch::new("chained:sorted-reversed", "#619601", "#78b800"),
    Swatch::new("chained:sorted-high-bits", "#455a45", "#04b12f"),
    Swatch::new("chained:split-ordered", "#538103", "#528000"),
    Swatch::new("chained:per-entry", "#026701", "#028300"),
    Swatch::new("chained:ddds", "#0c6d8a", "#07c0f2"),
    Swatch::new("chained:rwlock", "#a02600", "#ed4414"),
    Swatch::new("global-lock", "#ae6107", "#9c6535"),
    Swatch::new("memcached", "#684f41", "#b55502"),
    Swatch::new("lock:clh", "#036065", "#418d92"),
    Swatch::new("urcu-sync", "#007b02", "#00c105"),
    Swatch::new("relativistic:qsbr", "#4d68b0", "#07a5fa"),
    Swatch::new("chained:ddds-literal", "#4d7080", "#57cdfc"),
    Swatch::new("elided:mcs", "#f101fd", "#9013fe"),
    Swatch::new("elided:slr-mcs", "#a872fb", "#9e65da"),
    Swatch::new("elided:retry-ttas", "#8b0bfe", "#ffb9aa"),
    Swatch::new("elided:scm-ttas", "#9f8dac", "#6c5b99"),
    Swatch::new("elided:slr-scm-mcs", "#57227a", "#ff4cac"),
    Swatch::new("elided:scm-ttas-opt", "#e96b7a", "#e271ff"),
    Swatch::new("elided:fine", "#b830dc", "#abd79e"),
    Swatch::new("elided:versioned", "#8468ab", "#9a3caa"),
];

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
    use crate::dyn_table::Entry;
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
                let light = distance(one.light, other.light);
                let dark = distance(one.dark, other.dark);
                assert!(light >= least, "{one:?} {other:?}: {light}");
                assert!(dark >= least, "{one:?} {other:?}: {dark}");
            }
        }
    }

    #[test]
    fn colours_stand_out_from_the_background() {
        let (light, dark) = BACKGROUNDS;
        for swatch in SWATCHES {
            assert!(contrast(swatch.light, light) >= 3.0, "{swatch:?}");
            assert!(contrast(swatch.dark, dark) >= 3.0, "{swatch:?}");
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
        let names = SWATCHES.iter().map(|swatch| swatch.name);
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
