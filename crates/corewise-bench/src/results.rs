//! Reading result files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::record::{
    Cell, Garbage, Histogram, Manifest, MemoryPoint, Record, Row, SCHEMA, Slice, Timeline,
};

/// Everything that some files hold, in the order in which it was measured.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Names of the files.
    pub files: Vec<String>,
    /// Their heads, one each.
    pub manifests: Vec<Manifest>,
    /// Summaries.
    pub rows: Vec<Row>,
    /// Repetitions.
    pub slices: Vec<Slice>,
    /// Latencies.
    pub histograms: Vec<Histogram>,
    /// Growth over time.
    pub timelines: Vec<Timeline>,
    /// Memory by size.
    pub memory: Vec<MemoryPoint>,
    /// Memory over time.
    pub garbage: Vec<Garbage>,
    /// Files that were cut off: their runs did not end.
    pub truncated: Vec<String>,
}

/// Why files cannot be read. One line each.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// The system says so.
    #[error("{0}: {1}")]
    Unreadable(String, std::io::Error),
    /// It begins with something else than a manifest.
    #[error("{0} is no result file of `corewise bench run`")]
    Foreign(String),
    /// It was written by a later version.
    #[error("{0} has format {1}, this program reads up to {SCHEMA}")]
    Newer(String, u32),
    /// A line in its middle is no record.
    #[error("{0}, line {1}: damaged ({2})")]
    Damaged(String, usize, serde_json::Error),
}

impl Results {
    /// Reads some files. A last line that is not whole is left out and noted.
    ///
    /// # Errors
    ///
    /// The first file that cannot be read, is no result file, is newer than this program or
    /// damaged.
    pub fn read(paths: &[PathBuf]) -> Result<Self, ResultsError> {
        let mut results = Self::default();
        for path in paths {
            results.add(path)?;
        }
        Ok(results)
    }

    fn add(&mut self, path: &Path) -> Result<(), ResultsError> {
        let name = path.display().to_string();
        let text = fs::read(path).map_err(|error| ResultsError::Unreadable(name.clone(), error))?;
        let text = String::from_utf8_lossy(&text);
        let mut ended = false;
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            if at == 0 {
                self.manifests.push(manifest(&name, line)?);
                continue;
            }
            match serde_json::from_str::<Record>(line) {
                Ok(Record::End(_)) => ended = true,
                Ok(record) => self.keep(record),
                Err(_) if at + 1 == lines.len() => {}
                Err(error) => return Err(ResultsError::Damaged(name, at + 1, error)),
            }
        }
        if lines.is_empty() {
            return Err(ResultsError::Foreign(name));
        }
        if !ended {
            self.truncated.push(name.clone());
        }
        self.files.push(name);
        Ok(())
    }

    fn keep(&mut self, record: Record) {
        match record {
            Record::Slice(slice) => self.slices.push(*slice),
            Record::Row(row) => self.rows.push(*row),
            Record::Histogram(histogram) => self.histograms.push(*histogram),
            Record::Timeline(timeline) => self.timelines.push(*timeline),
            Record::Memory(point) => self.memory.push(*point),
            Record::Garbage(garbage) => self.garbage.push(*garbage),
            Record::Manifest(_) | Record::End(_) => {}
        }
    }

    /// The sections, in the order of their appearance.
    pub fn sections(&self) -> Vec<&str> {
        let mut sections: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !sections.contains(&row.cell.section.as_str()) {
                sections.push(&row.cell.section);
            }
        }
        sections
    }

    /// The cells of a section, each once.
    pub fn cells(&self, section: &str) -> Vec<&Cell> {
        let mut cells: Vec<&Cell> = Vec::new();
        for row in self.rows.iter().filter(|row| row.cell.section == section) {
            if !cells.iter().any(|cell| cell.id == row.cell.id) {
                cells.push(&row.cell);
            }
        }
        cells
    }

    /// The rates of a row's repetitions.
    pub fn rates<'r>(&'r self, row: &'r Row) -> impl Iterator<Item = f64> + 'r {
        let slices = self.slices.iter();
        slices
            .filter(|slice| slice.cell == row.cell.id && slice.table == row.table)
            .map(|slice| slice.rate)
    }
}

/// The first line, whose format is looked at before anything else is read.
fn manifest(name: &str, line: &str) -> Result<Manifest, ResultsError> {
    let foreign = || ResultsError::Foreign(name.to_string());
    let value: serde_json::Value = serde_json::from_str(line).map_err(|_| foreign())?;
    if value["type"] != "manifest" {
        return Err(foreign());
    }
    match value["schema"].as_u64() {
        Some(schema) if schema > u64::from(SCHEMA) => {
            Err(ResultsError::Newer(name.into(), schema as u32))
        }
        Some(_) => match serde_json::from_value(value) {
            Ok(Record::Manifest(manifest)) => Ok(*manifest),
            _ => Err(foreign()),
        },
        None => Err(foreign()),
    }
}
