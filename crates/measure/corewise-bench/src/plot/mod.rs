//! What plots are drawn with: SVG, scales, curves, and the groups of cells that share a plot.
//!
//! The sections and the server's report draw with these modules; `report` puts what they draw on
//! a page.

pub(crate) mod chart;
pub(crate) mod dots;
pub(crate) mod group;
pub(crate) mod latencies;
pub(crate) mod lines;
pub(crate) mod numbers;
pub(crate) mod over_threads;
pub(crate) mod palette;
pub(crate) mod rates;
pub(crate) mod style;
pub(crate) mod svg;

use maud::{Markup, html};

/// A plot, without its enclosing element.
#[derive(Debug)]
pub(crate) struct Plot {
    pub(crate) kind: &'static str,
    pub(crate) title: String,
    pub(crate) note: String,
    pub(crate) height: f64,
    pub(crate) body: String,
}

impl Plot {
    pub(crate) fn id(&self, number: usize) -> String {
        format!("plot-{}-{number}", self.kind)
    }
}

/// A part of the page: plots under a heading.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) id: String,
    pub(crate) heading: String,
    pub(crate) lead: String,
    pub(crate) plots: Vec<Plot>,
    /// Tables below the plots, as HTML.
    pub(crate) below: Markup,
}

impl Part {
    pub(crate) fn new(id: &str, heading: &str, lead: &str, plots: Vec<Plot>) -> Self {
        Self {
            id: id.to_owned(),
            heading: heading.to_owned(),
            lead: lead.to_owned(),
            plots,
            below: html! {},
        }
    }
}
