//! The sections: kinds of experiment, one folder each.
//!
//! A `Section` owns everything that only its experiment has:
//!
//! | part | in the trait | usual file |
//! |---|---|---|
//! | name, purpose, default parameters | `Rules::name`, `Section::preset` | `mod.rs`, `presets.toml` |
//! | what it varies besides the common parameters | `Section::variants` | `mod.rs` |
//! | checks of parameters, number of keys, names of cells | `Rules::checks`, `Section::range`, `Rules::id_suffix`, ... | `mod.rs` |
//! | the loop of its threads, compiled for each table | a `Loop` | in `work` |
//! | how a cell is measured and verified | `Section::run` | `cells.rs` |
//! | what it adds to results | fields of rows and slices, records | in `payload` |
//! | text, figures and plots of results | `Section::row_figures`, `Section::plots` | `plot.rs` |
//!
//! Everything else is shared. `closed_loop` measures a mix of operations in interleaved slices,
//! which is what a section does unless it overrides `Section::run`; `in_turn` measures tables one
//! after the other. `contender` makes, fills, verifies and drops tables, `runner` accumulates rows
//! and writes them, `work` has the phases that every repetition has, and `plot` has what plots are
//! drawn with.
//!
//! Sections that measure nothing but a mix are presets of one type, in `mix`. The plots and figures
//! of each are listed in `docs/METHODOLOGY.md`.
//!
//! # Adding a section
//!
//! Write a preset in `presets.toml` and `mix`, or a module with a unit struct that implements
//! `Section`; add it to `SECTIONS`, and name it in `suites/choosing.toml`. A parameter that no
//! section has yet is a line in `suite/params.rs`, and a case of `workload::Variant` if it has
//! several values.
//!
//! # Measured loops
//!
//! The loops are in `work`, below the table whose type is hidden: a loop implements
//! [`Loop`](crate::work::Loop) and has a method in [`Loops`](crate::work::loops::Loops), which is
//! called once for each slice of each thread. Inside the loop there is no indirect call.

pub mod batch;
pub mod growth;
pub mod hot;
pub(crate) mod latency;
pub mod memory;
pub(crate) mod mix;
pub mod resize;

use itertools::Itertools;

use crate::section::Section;
use crate::workload::Workload;

/// All sections, in the order in which `bench list` names them.
pub(crate) static SECTIONS: &[&dyn Section] = &[
    &mix::SCALING,
    &mix::DISTRIBUTION,
    &mix::RESIZING,
    &mix::UPDATES,
    &mix::WORKING_SET,
    &latency::LatencySection,
    &mix::PINNING,
    &mix::SYNC,
    &memory::MemorySection,
    &growth::GROWTH,
    &growth::TAILS,
    &hot::HotSection,
    &resize::ResizeSection,
    &batch::BatchSection,
    &mix::FILTER,
    &mix::LOCK,
    &mix::QUEUE,
    &mix::SORTED_SET,
    &mix::CACHE,
];

pub(crate) fn find(name: &str) -> Option<&'static dyn Section> {
    SECTIONS
        .iter()
        .copied()
        .find(|section| section.name() == name)
}

/// Returns the section that a workload belongs to.
pub(crate) fn section_of(workload: &Workload) -> &'static dyn Section {
    find(workload.section_name()).expect("each workload is of a section")
}

/// Returns the names of all sections, comma-separated.
pub(crate) fn names() -> String {
    SECTIONS.iter().map(|section| section.name()).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::PRESETS;

    #[test]
    fn names_differ_and_each_has_a_preset() {
        let names: Vec<&str> = SECTIONS.iter().map(|section| section.name()).collect();
        let different: std::collections::HashSet<&str> = names.iter().copied().collect();
        assert_eq!(different.len(), names.len(), "{names:?}");
        let presets: std::collections::HashSet<&str> = PRESETS.keys().map(|name| &**name).collect();
        assert_eq!(different, presets);
    }
}
