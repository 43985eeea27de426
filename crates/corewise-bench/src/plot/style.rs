//! Colours and type, for the page and for standalone plots; and the colour and shape of each table
//! in all plots.

use std::collections::HashMap;

use crate::plot::svg::Shape;
use crate::record::Role;
use crate::results::{Results, RowResults};

/// Colours that people with any colour vision can distinguish. Shapes and dashes repeat the
/// distinction, so that nothing depends on colour alone.
const LIGHT: &str = "--bg:#ffffff;--card:#f7f8fa;--ink:#1b2129;--muted:#5b6572;--grid:#e4e7eb;\
--edge:#9aa3ae;--accent:#0068b0;--heat:#0068b0;--heatink:#ffffff;--good:#00714f;--bad:#b3400a;\
--same:#4a5462;--unsure:#7a6a00;--void:#8b8f96;\
--c0:#0068b0;--c1:#d1540a;--c2:#008a63;--c3:#c24c93;--c4:#a87900;--c5:#2b96cf;--c6:#5a48b0;\
--c7:#4a4f57;";

const DARK: &str = "--bg:#14181d;--card:#1c2128;--ink:#e6e9ed;--muted:#9da7b3;--grid:#2b323b;\
--edge:#616c79;--accent:#6fb7f2;--heat:#4da3e6;--heatink:#0c1116;--good:#4fce9f;--bad:#ff9861;\
--same:#b4bdc8;--unsure:#e0c64a;--void:#8b929c;\
--c0:#5aaef0;--c1:#ff8a4a;--c2:#3cc79a;--c3:#ee8cc4;--c4:#e8b93a;--c5:#8fd8ff;--c6:#a79bff;\
--c7:#c9ced6;";

const PLOT: &str = "\
.plot text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','DejaVu Sans',sans-serif;\
fill:var(--ink);font-variant-numeric:tabular-nums}\
.plot .tick,.plot .axistitle,.plot .remark,.plot .value{fill:var(--muted)}\
.plot .axistitle{font-weight:500}\
.plot .panel{font-weight:600}\
.plot .strong{font-weight:600}\
.plot .label{fill:var(--c);font-weight:600}\
.plot .gone{fill:var(--void)}\
.plot .heading{font-size:15px;font-weight:650}\
.plot .caption{font-size:11px;fill:var(--muted)}\
.grid{stroke:var(--grid);stroke-width:1}\
.axis{stroke:var(--edge);stroke-width:1}\
.curve{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round;stroke-linecap:round}\
.d1 .curve{stroke-dasharray:7 4}.d2 .curve{stroke-dasharray:2 4}\
.leader{stroke:var(--c);stroke-width:1;opacity:.45}\
.dot{fill:var(--c);opacity:.38}\
.median{fill:var(--c);stroke:var(--bg);stroke-width:1.2}\
.again .median{fill:var(--bg);stroke:var(--c);stroke-width:1.8}\
.interval{stroke:var(--c);stroke-width:3;opacity:.6;stroke-linecap:round}\
.stay{fill:none;stroke:var(--c);stroke-width:2}\
.area{fill:var(--c);opacity:.35;stroke:none}\
.areaedge{fill:none;stroke:var(--c);stroke-width:1.3}\
.bars{fill:var(--c);opacity:.85}\
.share{fill:var(--c);opacity:.8}.share.abort{opacity:.35}\
.guide{stroke:var(--muted);stroke-width:1.2;stroke-dasharray:5 4;fill:none}\
.frame{fill:var(--card);stroke:var(--grid)}\
.hatched{fill:url(#hatch);stroke:var(--void);stroke-width:1}\
.voidcross{stroke:var(--void);stroke-width:1.5;fill:none}\
.backing{fill:var(--bg)}\
.hatchline{stroke:var(--void);stroke-width:1.4}\
.heat{fill:var(--heat);stroke:var(--bg);stroke-width:2}\
.plot .heatlight{fill:var(--ink)}.plot .heatdark{fill:var(--heatink)}.plot .heatmid{fill:#0c1116}\
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}\
.c4{--c:var(--c4)}.c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}.cn{--c:var(--muted)}\
.series.off{display:none}.series.dim{opacity:.15}";

/// The pattern of void rows.
pub(crate) const DEFS: &str = "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" \
patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
<line class=\"hatchline\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\"/></pattern></defs>";

/// Colours by scheme and the rules for plots; `root` is the selector that defines the colours.
pub(crate) fn plot_css(root: &str) -> String {
    format!(
        "{root}{{color-scheme:light dark;{LIGHT}}}\
         @media(prefers-color-scheme:dark){{{root}{{{DARK}}}}}{PLOT}"
    )
}

/// The appearance of a table in all plots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    index: Option<usize>,
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

    /// Returns the CSS classes of the table's elements.
    pub(crate) fn class(self) -> String {
        let again = if self.again { " again" } else { "" };
        match self.index {
            Some(index) => {
                let dashes = self.line.unwrap_or(index / 8) % 3;
                format!("series s{index} c{} d{dashes}{again}", index % 8)
            }
            None => format!("series cn{again}"),
        }
    }

    /// Returns the shape of its marks.
    pub(crate) fn shape(self) -> Shape {
        const SHAPES: [Shape; 5] = [
            Shape::Circle,
            Shape::Square,
            Shape::Triangle,
            Shape::Diamond,
            Shape::Wedge,
        ];
        self.line
            .or(self.index)
            .map_or(Shape::Cross, |index| SHAPES[index % 5])
    }
}

/// The looks of all tables.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    names: Vec<String>,
    indices: HashMap<String, usize>,
}

impl Looks {
    /// Assigns looks in the order of the cards, then of the rows.
    pub(crate) fn of(results: &Results) -> Self {
        let mut looks = Self::default();
        let shown = |row: &&RowResults| !matches!(row.row.role, Role::Null | Role::Again);
        let labels: Vec<_> = results.rows().filter(shown).collect();
        let manifests = results.files.iter().map(|file| &file.manifest);
        for card in manifests.flat_map(|manifest| &manifest.cards) {
            let of_card = labels.iter().filter(|row| row.row.table == card.name);
            of_card.for_each(|row| looks.add(&row.label));
        }
        labels.iter().for_each(|row| looks.add(&row.label));
        looks
    }

    /// Assigns looks to these names, in order.
    pub(crate) fn named<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let mut looks = Self::default();
        names.into_iter().for_each(|name| looks.add(name));
        looks
    }

    fn add(&mut self, label: &str) {
        if !self.indices.contains_key(label) {
            self.indices.insert(label.to_owned(), self.names.len());
            self.names.push(label.to_owned());
        }
    }

    /// Returns the look of a row's table.
    pub(crate) fn look(&self, row: &RowResults) -> Look {
        Look {
            index: self.indices.get(&row.label).copied(),
            again: row.row.role == Role::Again,
            line: None,
        }
    }

    /// Returns all tables with their looks.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, Look)> {
        let looks = (0..).map(|index| Look {
            index: Some(index),
            again: false,
            line: None,
        });
        self.names.iter().map(String::as_str).zip(looks)
    }

    /// Returns the rank of a table, for a stable order.
    pub(crate) fn place(&self, label: &str) -> usize {
        self.indices.get(label).copied().unwrap_or(usize::MAX)
    }
}
