//! What is measured at once: a cell, and the tables that it has.

use crate::workload::Workload;

/// A cell and its tables.
#[derive(Clone, Debug)]
pub struct Task {
    /// What to measure.
    pub workload: Workload,
    /// The tables; empty for all that fit.
    pub tables: Vec<String>,
    /// The table that the others are compared with.
    pub reference: String,
    /// Repetitions.
    pub repetitions: usize,
}

impl Task {
    /// Checks that a task of the same name measures the same: it is then measured once. Two cells
    /// with one name would be mixed up in results.
    pub(crate) fn check_same(&self, other: &Self) -> Result<(), String> {
        if format!("{self:?}") == format!("{other:?}") {
            return Ok(());
        }
        Err(format!(
            "two cells are called {}: they differ in a parameter that no name holds (times, \
             repetitions, churn, tables), which must be the same for both",
            self.workload.id()
        ))
    }
}
