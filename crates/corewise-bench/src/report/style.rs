//! Colours and type, for the page and for plots that stand alone; and which colour and shape a
//! table has in all plots.

use std::collections::HashMap;

use crate::record::Role;
use crate::report::svg::Shape;
use crate::results::{Results, RowResults};

/// Colours that people with any colour vision can tell apart; shapes and dashes repeat the
/// distinction, so that nothing hangs on colour alone.
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

/// The pattern of what is void.
pub(super) const DEFS: &str = "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" \
patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
<line class=\"hatchline\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\"/></pattern></defs>";

/// Colours by scheme and the rules for plots; `root` is what holds the colours.
pub(super) fn plot_css(root: &str) -> String {
    format!(
        "{root}{{color-scheme:light dark;{LIGHT}}}\
         @media(prefers-color-scheme:dark){{{root}{{{DARK}}}}}{PLOT}"
    )
}

/// How a table looks in all plots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    index: Option<usize>,
    again: bool,
    /// Which of several lines of the same table.
    line: Option<usize>,
}

impl Look {
    /// The same colour with dashes and marks of its own, for a plot of one table.
    pub(super) fn line(self, line: usize) -> Self {
        Self {
            line: Some(line),
            ..self
        }
    }

    /// The classes of what belongs to the table.
    pub(super) fn class(self) -> String {
        let again = if self.again { " again" } else { "" };
        match self.index {
            Some(index) => {
                let dashes = self.line.unwrap_or(index / 8) % 3;
                format!("series s{index} c{} d{dashes}{again}", index % 8)
            }
            None => format!("series cn{again}"),
        }
    }

    /// The shape of its marks.
    pub(super) fn shape(self) -> Shape {
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
pub(super) struct Looks {
    names: Vec<String>,
    indices: HashMap<String, usize>,
}

impl Looks {
    /// Looks in the order of the cards, then of the rows.
    pub(super) fn of(results: &Results) -> Self {
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

    /// Looks of these names, in their order.
    pub(super) fn named<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
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

    /// The look of a row's table.
    pub(super) fn look(&self, row: &RowResults) -> Look {
        Look {
            index: self.indices.get(&row.label).copied(),
            again: row.row.role == Role::Again,
            line: None,
        }
    }

    /// All tables with their looks.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, Look)> {
        let looks = (0..).map(|index| Look {
            index: Some(index),
            again: false,
            line: None,
        });
        self.names.iter().map(String::as_str).zip(looks)
    }

    /// The place of a table among all, for a stable order.
    pub(super) fn place(&self, label: &str) -> usize {
        self.indices.get(label).copied().unwrap_or(usize::MAX)
    }
}
