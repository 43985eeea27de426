//! Reading result files.
//!
//! A run that died leaves a file that is valid up to its last line. So a last line that is not
//! whole is skipped, and a file without its end is taken for what it holds; both are noted in
//! [`Results::truncated`]. Anything else that is wrong with a file is an error: a reader never
//! leaves out what it does not understand.

use std::collections::HashSet;
use std::path::PathBuf;

use serde::de::IgnoredAny;
use serde_json::Value;

use crate::record::{
    Cell, Garbage, Histogram, Manifest, MemoryPoint, Record, Row, SCHEMA, Slice, Timeline,
};

#[cfg(test)]
pub(crate) mod sample;

/// Why result files cannot be read. One line each.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// The file is not there or cannot be read.
    #[error("{path}: {error}")]
    File {
        /// Its name.
        path: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// The first line is no manifest.
    #[error("{path} is not a result file: its first line is no manifest")]
    NotResults {
        /// Its name.
        path: String,
    },
    /// A newer program wrote it.
    #[error("{path} has schema {schema}; this program reads schemas up to {SCHEMA}")]
    Newer {
        /// Its name.
        path: String,
        /// Its schema.
        schema: u64,
    },
    /// A line before the last is no record.
    #[error("{path} is damaged in line {line}: {what}")]
    Damaged {
        /// Its name.
        path: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
}

/// The records of one or more result files, by kind, each in the order of the files.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Heads, one for each of [`Self::files`].
    pub manifests: Vec<Manifest>,
    /// Names of the files.
    pub files: Vec<String>,
    /// Summaries.
    pub rows: Vec<Row>,
    /// Repetitions.
    pub slices: Vec<Slice>,
    /// Latencies.
    pub histograms: Vec<Histogram>,
    /// Progress over time.
    pub timelines: Vec<Timeline>,
    /// Memory at a size.
    pub memory: Vec<MemoryPoint>,
    /// Memory over time.
    pub garbage: Vec<Garbage>,
    /// Names of the files that were cut off: their last line is not whole, or is no end.
    pub truncated: Vec<String>,
}

impl Results {
    /// Reads files.
    pub fn read(paths: &[PathBuf]) -> Result<Self, ResultsError> {
        let mut results = Self::default();
        for path in paths {
            let name = path.display().to_string();
            match std::fs::read(path) {
                Ok(bytes) => results.add_file(&name, &bytes)?,
                Err(error) => return Err(ResultsError::File { path: name, error }),
            }
        }
        Ok(results)
    }

    /// Sections of the rows, in the order of their first rows.
    pub fn sections(&self) -> Vec<&str> {
        let sections = self.rows.iter().map(|row| row.cell.section.as_str());
        let mut seen = HashSet::new();
        sections.filter(|section| seen.insert(*section)).collect()
    }

    /// Cells of a section, each once, in the order of their first rows.
    pub fn cells(&self, section: &str) -> Vec<&Cell> {
        let cells = self.rows.iter().map(|row| &row.cell);
        let mut seen = HashSet::new();
        cells
            .filter(|cell| cell.section == section && seen.insert(cell.id.as_str()))
            .collect()
    }

    /// Rows of a cell, of all files.
    pub fn rows_of(&self, cell_id: &str) -> Vec<&Row> {
        let rows = self.rows.iter();
        rows.filter(|row| row.cell.id == cell_id).collect()
    }

    /// The rates of a row's repetitions.
    pub fn rates<'r>(&'r self, row: &'r Row) -> impl Iterator<Item = f64> + 'r {
        let mine = |slice: &&Slice| slice.cell == row.cell.id && slice.table == row.table;
        self.slices.iter().filter(mine).map(|slice| slice.rate)
    }

    /// Repetitions of a row, of all files.
    pub fn slices_of(&self, cell_id: &str, table: &str) -> Vec<&Slice> {
        let slices = self.slices.iter();
        slices
            .filter(|slice| slice.cell == cell_id && slice.table == table)
            .collect()
    }

    /// Adds what a file holds.
    fn add_file(&mut self, name: &str, bytes: &[u8]) -> Result<(), ResultsError> {
        let mut lines = bytes
            .split_inclusive(|&byte| byte == b'\n')
            .enumerate()
            .filter(|(_, line)| !line.trim_ascii().is_empty())
            .peekable();
        let (_, first) = lines.next().unwrap_or_default();
        self.manifests.push(manifest(name, first)?);
        self.files.push(name.into());
        let mut ended = false;
        while let Some((at, line)) = lines.next() {
            let last = lines.peek().is_none();
            match record(line, last) {
                Ok(Some(record)) => ended |= self.add(record),
                Ok(None) => ended = false,
                Err(what) => {
                    return Err(ResultsError::Damaged {
                        path: name.into(),
                        line: at + 1,
                        what,
                    });
                }
            }
        }
        if !ended {
            self.truncated.push(name.into());
        }
        Ok(())
    }

    /// Adds a record; whether it is the end of its file.
    fn add(&mut self, record: Record) -> bool {
        match record {
            Record::Manifest(manifest) => self.manifests.push(*manifest),
            Record::Slice(slice) => self.slices.push(*slice),
            Record::Row(row) => self.rows.push(*row),
            Record::Histogram(histogram) => self.histograms.push(*histogram),
            Record::Timeline(timeline) => self.timelines.push(*timeline),
            Record::Memory(point) => self.memory.push(*point),
            Record::Garbage(garbage) => self.garbage.push(*garbage),
            Record::End(_) => return true,
        }
        false
    }
}

/// The head of a file. The schema is looked at before anything that may have changed with it.
fn manifest(name: &str, line: &[u8]) -> Result<Manifest, ResultsError> {
    let path = || name.to_string();
    let value: Value = serde_json::from_slice(line).unwrap_or_default();
    let schema = value.get("schema").and_then(Value::as_u64);
    let is_manifest = value.get("type").and_then(Value::as_str) == Some("manifest");
    let Some(schema) = schema.filter(|_| is_manifest) else {
        return Err(ResultsError::NotResults { path: path() });
    };
    if schema > u64::from(SCHEMA) {
        return Err(ResultsError::Newer {
            path: path(),
            schema,
        });
    }
    serde_json::from_value(value).map_err(|error| ResultsError::Damaged {
        path: path(),
        line: 1,
        what: error.to_string(),
    })
}

/// A line after the first; `None` if it is the last and not whole.
fn record(line: &[u8], last: bool) -> Result<Option<Record>, String> {
    if last && !line.ends_with(b"\n") {
        return Ok(None);
    }
    match serde_json::from_slice(line) {
        Ok(Record::Manifest(_)) => Err("a second manifest".into()),
        Ok(record) => Ok(Some(record)),
        Err(_) if last && serde_json::from_slice::<IgnoredAny>(line).is_err() => Ok(None),
        Err(error) => Err(place_in_line(&error)),
    }
}

/// What is wrong, with the column alone: the reader has seen one line only.
fn place_in_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or(&text);
    match error.column() {
        0 => what.to_string(),
        column => format!("{what} (column {column})"),
    }
}

#[cfg(test)]
mod tests {
    use super::sample::{self, Sample};
    use super::*;

    fn read(text: &str) -> Result<Results, ResultsError> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("r.jsonl");
        std::fs::write(&path, text).expect("written");
        Results::read(&[path])
    }

    /// The error's line, without the name of the folder.
    fn error(text: &str) -> String {
        let line = read(text).expect_err("an error").to_string();
        assert!(!line.contains('\n'), "{line}");
        line[line.find("r.jsonl").expect("the file's name")..].to_string()
    }

    fn two_rows() -> Sample {
        Sample::new()
            .row("scaling", 1, "corewise", &[2e6, 2.1e6])
            .row("scaling", 2, "corewise", &[4e6, 4.1e6])
    }

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = ["a.jsonl", "b.jsonl"].map(|name| folder.path().join(name));
        let cell = sample::cell("latency", 2);
        let histogram = sample::histogram(&cell.id, "corewise", "get hit");
        let timeline = sample::timeline(&cell.id, "corewise");
        let memory = sample::memory(&cell.id, "corewise", 1 << 20);
        let garbage = sample::garbage(&cell.id, "corewise");
        two_rows()
            .with(Record::Histogram(Box::new(histogram.clone())))
            .with(Record::Timeline(Box::new(timeline.clone())))
            .with(Record::Memory(Box::new(memory.clone())))
            .with(Record::Garbage(Box::new(garbage.clone())))
            .write(&paths[0]);
        let other = Sample::new().row("latency", 2, "dashmap", &[1e6]);
        other.write(&paths[1]);
        let results = Results::read(&paths).expect("results");
        assert_eq!(results.manifests, [sample::manifest(), sample::manifest()]);
        assert!(results.truncated.is_empty() && results.files.len() == 2);
        assert_eq!(results.histograms, [histogram]);
        assert_eq!(results.timelines, [timeline]);
        assert_eq!(results.memory, [memory]);
        assert_eq!(results.garbage, [garbage]);
        assert_eq!(results.rows.len(), 3);
        assert_eq!(results.rows[2], other.results().rows[0]);
        assert_eq!(results.slices[4], other.results().slices[0]);
    }

    #[test]
    fn sections_and_cells_are_in_order_and_once() {
        let results = two_rows()
            .row("updates", 1, "corewise", &[1e6])
            .row("scaling", 1, "dashmap", &[1e6, 1e6, 1e6])
            .results();
        assert_eq!(results.sections(), ["scaling", "updates"]);
        let threads = |section| -> Vec<usize> {
            let cells = results.cells(section);
            cells.iter().map(|cell| cell.threads).collect()
        };
        assert_eq!(
            (threads("scaling"), threads("updates")),
            (vec![1, 2], vec![1])
        );
        assert!(results.cells("nothing").is_empty());
        let id = sample::cell("scaling", 1).id;
        let tables: Vec<_> = results.rows_of(&id).iter().map(|row| &row.table).collect();
        assert_eq!(tables, ["corewise", "dashmap"]);
        assert_eq!(results.slices_of(&id, "dashmap").len(), 3);
        assert!(results.slices_of(&id, "papaya").is_empty());
    }

    #[test]
    fn a_file_that_was_cut_off_anywhere_is_read_up_to_there() {
        let text = two_rows().text();
        let head = text.find('\n').expect("a line") + 1;
        let whole = read(&text).expect("results");
        assert!(whole.truncated.is_empty());
        for end in head..text.len() {
            let results = read(&text[..end]).expect("results");
            assert_eq!(results.truncated.len(), 1, "cut at {end}");
            let lines = text[head..end].matches('\n').count();
            assert_eq!(results.rows.len() + results.slices.len(), lines);
        }
    }

    #[test]
    fn a_last_line_of_rubbish_is_a_cut() {
        for tail in ["{\"type\":\"row\",\n", "\0\0\0\0", "\0\0\n", "{}{\n"] {
            let results = read(&(two_rows().cut() + tail)).expect("results");
            assert_eq!((results.rows.len(), results.truncated.len()), (2, 1));
        }
        let results = read(&(two_rows().text() + "\n \n")).expect("blank lines are nothing");
        assert!(results.truncated.is_empty());
        let results = read(&(two_rows().text() + "{\"ty")).expect("results");
        assert_eq!(results.truncated.len(), 1, "something after the end");
    }

    #[test]
    fn damage_before_the_last_line_is_an_error() {
        let mut lines: Vec<_> = two_rows().text().lines().map(String::from).collect();
        let (half, kept) = (lines[2].len() / 2, lines[2].clone());
        lines[2].truncate(half);
        assert!(error(&lines.join("\n")).starts_with("r.jsonl is damaged in line 3: "));
        lines[2] = "{\"type\":\"novelty\"}".into();
        assert!(error(&lines.join("\n")).contains("line 3: unknown variant `novelty`"));
        lines[2] = lines[0].clone();
        assert!(error(&lines.join("\n")).ends_with("line 3: a second manifest"));
        lines[2] = kept;
        lines.push("{\"type\":\"row\"}\n".into());
        assert!(error(&lines.join("\n")).contains("is damaged in line 9: missing field"));
    }

    #[test]
    fn a_newer_schema_is_refused_whatever_else_it_has() {
        let line = format!("{{\"type\":\"manifest\",\"schema\":{}}}\n", SCHEMA + 1);
        let want = format!(
            "r.jsonl has schema {}; this program reads schemas up to {SCHEMA}",
            SCHEMA + 1
        );
        assert_eq!(error(&line), want);
    }

    #[test]
    fn other_files_are_no_results() {
        let no_manifest = two_rows().text().split_once('\n').expect("a line").1.into();
        let cut = two_rows().text()[..40].to_string();
        for text in [
            String::new(),
            "\n".into(),
            "date,rate\n".into(),
            no_manifest,
            cut,
        ] {
            let want = "r.jsonl is not a result file: its first line is no manifest";
            assert_eq!(error(&text), want);
        }
        let old = format!("{{\"type\":\"manifest\",\"schema\":{SCHEMA}}}\n");
        assert!(error(&old).starts_with("r.jsonl is damaged in line 1: missing field"));
        assert!(read("\u{fffd}\0").is_err());
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Results::read(&["/nowhere/r.jsonl".into()]).expect_err("an error");
        assert!(
            error
                .to_string()
                .starts_with("/nowhere/r.jsonl: No such file")
        );
    }
}
