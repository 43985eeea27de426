//! Bytes per entry, peak and garbage (\[CHTBench\] §3.4.8).

mod plot;
mod process;

pub use process::{MemoryAnswer, MemoryJob, child_main};

use crate::cell_run::CellRun;
use crate::contender::Contender;
use crate::error::BenchError;
use crate::figure::{Figure, Unit};
pub use crate::payload::MemoryPoint;
use crate::plot::Plot;
use crate::plot::style::Looks;
use crate::price;
use crate::record::Role;
use crate::results::{Results, RowResults};
use crate::section::Section;
use crate::task::Task;
use crate::workload::Rules;

/// Seconds of a process besides its operations; most of them churn.
const PROCESS_S: f64 = 0.65;

#[derive(Debug)]
pub(crate) struct MemorySection;

impl Rules for MemorySection {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn is_presized(&self) -> bool {
        false
    }
}

impl Section for MemorySection {
    /// Only tables that store something, once each.
    fn takes_part(&self, contender: &Contender) -> bool {
        contender.role != Role::Again && !contender.entry.null
    }

    fn run(&self, run: &mut CellRun<'_, '_>) -> Result<(), BenchError> {
        process::run(run)
    }

    /// One process for each table.
    fn seconds(&self, task: &Task, rows: usize) -> f64 {
        let of = &task.workload;
        (PROCESS_S + 4.0 * price::on_all(of, of.initial)) * rows as f64
    }

    /// Bytes per entry, up to what stays allocated after all entries are removed and after the
    /// table is dropped; and the most garbage.
    fn figures(&self, row: &RowResults) -> Vec<Figure> {
        let points = row.memory.iter().filter(|point| point.entries > 0);
        let figures = points.flat_map(|point| {
            let bytes = [
                ("live", point.live_bytes),
                ("live, most", point.peak_live_bytes),
                ("resident", Some(point.resident_bytes)),
                ("resident, most", Some(point.peak_resident_bytes)),
                ("emptied", point.emptied_bytes),
                ("dropped", point.dropped_bytes),
                ("garbage, most", Some(point.garbage_bytes)),
            ];
            let each = |bytes: u64| bytes as f64 / point.entries as f64;
            bytes.map(|(name, bytes)| Some(Figure::new(name, Unit::Bytes, each(bytes?))))
        });
        figures.flatten().collect()
    }
    fn plots(&self, results: &Results, looks: &Looks) -> Vec<Plot> {
        plot::plots(results, looks)
    }
}
