//! Colours and type, for the page and for standalone plots; and the colour and shape of each table
//! in all plots.

use std::collections::{HashMap, HashSet};

use crate::plot::palette::{self, SWATCHES, Swatch};
use crate::plot::svg::Shape;
use crate::record::Role;
use crate::results::{Results, RowResults, distinct};

/// The backgrounds of the light and of the dark scheme.
#[cfg(test)]
pub(crate) const BACKGROUNDS: (&str, &str) = ("#ffffff", "#14181d");

/// The colours of the element `ROOT` in both schemes, and the rules for plots.
const PLOT: &str = include_str!("plot.css");

/// The pattern of void rows.
pub(crate) const DEFS: &str = "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" \
patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
<line class=\"hatchline\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\"/></pattern></defs>";

/// Colours by scheme and the rules for plots; `root` is the selector that defines the colours.
pub(crate) fn plot_css(root: &str, looks: &Looks) -> String {
    let (light, dark) = looks.colours();
    let plot = PLOT.replace("ROOT", root);
    format!("{plot}{light}@media(prefers-color-scheme:dark){{{dark}}}")
}

/// The appearance of a table in all plots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// Its number on this page.
    index: Option<usize>,
    /// Its colour among [`SWATCHES`].
    swatch: usize,
    /// The file, if several files measured the table.
    file: usize,
    again: bool,
    /// The index of one of several lines of the same table.
    line: Option<usize>,
}

impl Look {
    /// Returns the same colour with other dashes and marks, for a plot of one table.
    pub(crate) fn line(self, line: usize) -> Self {
        Self {
            line: Some(line),
            ..self
        }
    }

    /// Returns the number that selects shape and dashes.
    fn form_number(self) -> usize {
        self.line.unwrap_or(self.swatch + 7 * self.file)
    }

    /// Returns the CSS classes of the table's elements.
    pub(crate) fn class(self) -> String {
        let again = if self.again { " again" } else { "" };
        let (colour, dashes) = (self.colour(), self.dashes());
        match self.index {
            Some(index) => format!("series s{index} {colour} d{dashes}{again}"),
            None => format!("series cn{again}"),
        }
    }

    /// Returns the index of its pattern of dashes.
    fn dashes(self) -> usize {
        let number = self.form_number() / SHAPES.len();
        self.line.unwrap_or(number) % DASHES
    }

    /// Returns the CSS class of its colour.
    pub(crate) fn colour(self) -> String {
        format!("c{}", self.swatch)
    }

    /// Returns the shape of its marks.
    pub(crate) fn shape(self) -> Shape {
        match self.index {
            Some(_) => SHAPES[self.form_number() % SHAPES.len()],
            None => Shape::Cross,
        }
    }

    /// Returns shape and dashes.
    #[cfg(test)]
    pub(crate) fn form(self) -> (Shape, usize) {
        (self.shape(), self.dashes())
    }
}

/// The shapes of tables.
const SHAPES: [Shape; 6] = [
    Shape::Circle,
    Shape::Square,
    Shape::Triangle,
    Shape::Diamond,
    Shape::Wedge,
    Shape::Plus,
];

/// The number of patterns of dashes.
const DASHES: usize = 4;

/// The number of tables that a page shows in colour until a reader selects others.
pub(crate) const CHOSEN: usize = 6;

/// A table on a page.
#[derive(Debug)]
struct Shown {
    label: String,
    look: Look,
    /// Its place in the palette, or `usize::MAX`.
    rank: usize,
    chosen: bool,
}

/// The looks of all tables.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    shown: Vec<Shown>,
}

impl Looks {
    /// Assigns looks in the order of the rows; `first` is chosen with the references.
    pub(crate) fn of(results: &Results, first: Option<&str>) -> Self {
        let shown = |row: &&RowResults| !matches!(row.row.role, Role::Null | Role::Again);
        let rows: Vec<_> = results.rows().filter(shown).collect();
        let mut labels: Vec<(&str, &str, usize)> = Vec::new();
        for row in &rows {
            let is_alone = row.label == row.row.table;
            let file = if is_alone { 0 } else { row.file };
            if !labels.iter().any(|(label, ..)| *label == row.label) {
                labels.push((&row.label, &row.row.table, file));
            }
        }
        let mut looks = Self::assigned(&labels);
        let references = rows.iter().filter(|row| row.row.role == Role::Reference);
        let references = references.map(|row| &*row.label);
        looks.choose(&references.chain(first).collect());
        looks
    }

    /// Assigns looks to these names, in order.
    pub(crate) fn named<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let labels = names.into_iter().map(|name| (name, name, 0));
        let mut looks = Self::assigned(&distinct(labels));
        looks.choose(&HashSet::new());
        looks
    }

    /// Assigns looks to labels, each with its table and file. Tables of the palette come first.
    fn assigned(labels: &[(&str, &str, usize)]) -> Self {
        let mut swatches: HashMap<&str, usize> = HashMap::new();
        for (_, table, _) in labels {
            swatches.extend(palette::of_table(table).map(|at| (*table, at)));
        }
        for (_, table, _) in labels {
            if !swatches.contains_key(table) {
                let used: HashSet<usize> = swatches.values().copied().collect();
                swatches.insert(table, palette::spare(table, |at| used.contains(&at)));
            }
        }
        let shown = |(index, &(label, table, file)): (usize, &(&str, &str, usize))| Shown {
            label: label.to_owned(),
            look: Look {
                index: Some(index),
                swatch: swatches[table],
                file,
                ..UNKNOWN
            },
            rank: palette::of_table(table).unwrap_or(usize::MAX),
            chosen: false,
        };
        let shown = labels.iter().enumerate().map(shown).collect();
        Self { shown }
    }

    /// Chooses [`CHOSEN`] tables and [`CHOSEN`] locks: the named ones first, then in the order of
    /// the palette, then those that are not in it.
    fn choose(&mut self, named: &HashSet<&str>) {
        let mut order: Vec<usize> = (0..self.shown.len()).collect();
        let rank = |at: &usize| {
            let of = &self.shown[*at];
            let is_named = named.contains(&*of.label);
            (!is_named, of.rank, of.look.file)
        };
        order.sort_by_key(rank);
        let is_lock = |shown: &Shown| shown.label.starts_with("lock:");
        for lock in [false, true] {
            let of_kind = order.iter().filter(|at| is_lock(&self.shown[**at]) == lock);
            let chosen: Vec<usize> = of_kind.take(CHOSEN).copied().collect();
            chosen
                .into_iter()
                .for_each(|at| self.shown[at].chosen = true);
        }
    }

    /// Returns the look of a row's table.
    pub(crate) fn look(&self, row: &RowResults) -> Look {
        let index = self.index(measured_once(&row.label));
        Look {
            again: row.row.role == Role::Again,
            ..index.map_or(UNKNOWN, |index| self.shown[index].look)
        }
    }

    /// Returns all tables with their looks.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, Look)> {
        self.shown.iter().map(|of| (&*of.label, of.look))
    }

    /// Returns the number of a table on this page.
    pub(crate) fn index(&self, label: &str) -> Option<usize> {
        self.shown.iter().position(|of| of.label == label)
    }

    /// Returns whether the page shows a table in colour at first.
    pub(crate) fn is_chosen(&self, label: &str) -> bool {
        self.index(label).is_some_and(|at| self.shown[at].chosen)
    }

    /// Returns the rank of a table, for a stable order: chosen tables first.
    pub(crate) fn place(&self, label: &str) -> usize {
        let index = self.index(measured_once(label));
        index.map_or(usize::MAX, |at| {
            let of = &self.shown[at];
            at + 10_000 * of.look.swatch + usize::from(!of.chosen) * 1_000_000
        })
    }

    /// Returns the rules of the colours of all tables, for the light and for the dark scheme.
    fn colours(&self) -> (String, String) {
        let mut swatches: Vec<usize> = self.shown.iter().map(|of| of.look.swatch).collect();
        swatches.sort_unstable();
        swatches.dedup();
        let rules = |colour: fn(&Swatch) -> &String| -> String {
            let rule = |at: &usize| format!(".c{at}{{--c:{}}}", colour(&SWATCHES[*at]));
            swatches.iter().map(rule).collect()
        };
        (rules(|of| &of.light), rules(|of| &of.dark))
    }
}

/// Returns the label of a table without the mark of its second measurement.
pub(crate) fn measured_once(label: &str) -> &str {
    label.strip_suffix(" (again)").unwrap_or(label)
}

/// The look of a table that is not on the page.
const UNKNOWN: Look = Look {
    index: None,
    swatch: 0,
    file: 0,
    again: false,
    line: None,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str]) -> Vec<String> {
        let looks = Looks::named(names.iter().copied());
        let all = looks.all().map(|(name, _)| name.to_owned());
        all.filter(|name| looks.is_chosen(name)).collect()
    }

    #[test]
    fn six_tables_and_six_locks_are_in_colour_at_first() {
        let few = ["cuckoo", "tbb", "flurry"];
        assert_eq!(chosen(&few), few);
        let many = [
            "cuckoo",
            "hopscotch",
            "flurry",
            "rwlock",
            "papaya",
            "tbb",
            "scc",
            "relativistic",
            "dashmap",
            "clht-lb",
            "lock:tas",
            "unknown",
        ];
        let first = [
            "cuckoo",
            "papaya",
            "scc",
            "relativistic",
            "dashmap",
            "clht-lb",
            "lock:tas",
        ];
        assert_eq!(chosen(&many), first);
    }

    #[test]
    fn backgrounds_are_those_of_the_page() {
        assert!(PLOT.contains(&format!("light dark;--bg:{};", BACKGROUNDS.0)));
        assert!(PLOT.contains(&format!("ROOT{{--bg:{};", BACKGROUNDS.1)));
    }

    #[test]
    fn the_chosen_tables_come_first() {
        let looks = Looks::named([
            "tbb", "cuckoo", "rwlock", "flurry", "scc", "papaya", "dashmap",
        ]);
        assert!(!looks.is_chosen("tbb"));
        assert!(looks.place("cuckoo") < looks.place("tbb"));
        assert_eq!(looks.place("absent"), usize::MAX);
        assert_eq!(measured_once("scc (again)"), "scc");
    }
}
