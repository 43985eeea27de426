//! Reading result files: reassembles every [`Record`] of one or several files.
//!
//! ```text
//! Results
//!   files     build, machine and defects of each file
//!   sections  in the order in which they were measured
//!     cells   a workload at a number of threads
//!       rows  a table in it, with its slices, histograms, timelines, memory and garbage
//! ```
//!
//! A cell that occurs in several files is one cell here, with the rows of all of them. If a table
//! then occurs twice, [`RowResults::label`] distinguishes the files.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use corewise_measure::stats::Ratio;

use crate::counters;
use crate::payload::{Garbage, MemoryPoint, Timeline};
use crate::record::{
    Cell, End, HardwareCounters, Histogram, Interval, Manifest, Record, Role, Row, SCHEMA, Slice,
};

/// Why a result file cannot be read. Every message is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResultsError {
    /// No file was given.
    #[error("no result file given")]
    NoFiles,
    /// The system cannot read the file.
    #[error("{}: {}", path.display(), unreadable(source))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file does not begin with a manifest.
    #[error("{}: not a result file: {detail}", path.display())]
    NotResults {
        /// The file.
        path: PathBuf,
        /// What it begins with.
        detail: String,
    },
    /// A newer program wrote the file.
    #[error("{}: written in format {found}, this program reads up to {SCHEMA}; use a newer one", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// A line before the last cannot be parsed.
    #[error("{}: line {line} is damaged: {detail}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        detail: String,
    },
}

/// The results of one or several files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// The files, in the order given.
    pub files: Vec<SourceFile>,
    /// Sections in the order in which they first appear.
    pub sections: Vec<SectionResults>,
}

/// A result file.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceFile {
    /// Its path.
    pub path: PathBuf,
    /// Build and machine of the run.
    pub manifest: Manifest,
    /// The end marker; `None` if the run did not finish.
    pub end: Option<End>,
    /// Whether the last line was cut off and skipped.
    pub truncated: bool,
    /// Number of its rows.
    pub rows: usize,
    /// Number of other records without a row, because the run ended before the row did.
    pub orphans: usize,
}

/// A section of a run: cells that study one dimension.
#[derive(Clone, Debug, PartialEq)]
pub struct SectionResults {
    /// Its name.
    pub name: String,
    /// Its cells, in the order in which they were measured.
    pub cells: Vec<CellResults>,
}

/// A cell and its results.
#[derive(Clone, Debug, PartialEq)]
pub struct CellResults {
    /// The workload.
    pub cell: Cell,
    /// The tables in it.
    pub rows: Vec<RowResults>,
}

/// A row and all its records.
#[derive(Clone, Debug, PartialEq)]
pub struct RowResults {
    /// Index of its file in [`Results::files`].
    pub file: usize,
    /// Its number among the rows of its file, from 1, as in `corewise bench replay`.
    pub number: usize,
    /// The table's name, with the file's number if several files measured it in one cell.
    pub label: String,
    /// The summary.
    pub row: Row,
    /// The repetitions.
    pub slices: Vec<Slice>,
    /// Latencies by operation.
    pub histograms: Vec<Histogram>,
    /// Its progress, for each repetition of a growth.
    pub timelines: Vec<Timeline>,
    /// Its memory by size.
    pub memory: Vec<MemoryPoint>,
    /// Its memory while it was churned.
    pub garbage: Vec<Garbage>,
}

impl SourceFile {
    /// Returns the file's name without its directories.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Returns notes about the state of the file, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.truncated {
            notes.push("the last line is cut off and was skipped".to_owned());
        }
        match self.end {
            None => notes.push("there is no end marker: the run did not finish".to_owned()),
            Some(end) if end.rows != self.rows => notes.push(format!(
                "the end marker counts {} rows, the file has {}",
                end.rows, self.rows
            )),
            Some(_) => {}
        }
        notes.extend(self.manifest.machine.loaded());
        if self.orphans > 0 {
            notes.push(format!(
                "{} records belong to no row and were left out",
                self.orphans
            ));
        }
        notes
    }
}

impl RowResults {
    /// Returns the ratio of two rows' rates with its interval, if both have repetitions.
    pub(crate) fn rate_ratio(&self, base: &Self) -> Option<Interval> {
        let beside = self.file == base.file && self.row.cell.id == base.row.cell.id;
        if !beside {
            return Ratio::unpaired(&self.rates(), &base.rates()).map(Interval::from);
        }
        let pairs = self.slices.iter().filter_map(|slice| {
            let mut others = base.slices.iter();
            let other = others.find(|other| other.repetition == slice.repetition)?;
            Some((slice.rate, other.rate))
        });
        Ratio::paired(pairs).map(Interval::from)
    }

    /// Returns whether a check failed, so that its numbers must not be used.
    pub fn void(&self) -> bool {
        self.row.verdict == "void"
            || !self.row.problems.is_empty()
            || self.slices.iter().any(|s| !s.checks.problems.is_empty())
    }

    /// Returns its first problem.
    pub fn problem(&self) -> Option<&str> {
        let sliced = self.slices.iter().flat_map(|s| &s.checks.problems);
        let first = self.row.problems.iter().chain(sliced).next();
        first
            .map(String::as_str)
            .or_else(|| self.void().then_some("void"))
    }

    /// Returns what was counted, by name: the events of the processor for an operation, and what
    /// the threads used. `None` if the machine does not count it.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (&'static str, Option<f64>)> {
        let names = HardwareCounters::default().named();
        let each = names.map(|(name, _)| (name, self.row.per_operation.get(name).copied()));
        let elapsed_ns = self.slices.iter().map(|slice| slice.elapsed_ns);
        let elapsed_ns = elapsed_ns.fold(0, u64::saturating_add);
        let counted = counters::sum(self.slices.iter().map(|slice| slice.hardware));
        each.into_iter().chain(counters::used(&counted, elapsed_ns))
    }

    /// Returns the operations per second of each repetition.
    pub fn rates(&self) -> Vec<f64> {
        let rates = self.slices.iter().map(|slice| slice.rate);
        rates.filter(|rate| rate.is_finite()).collect()
    }
}

impl Results {
    /// Reads and combines result files.
    ///
    /// # Errors
    ///
    /// A [`ResultsError`] for the first file that is missing, is not a result file, is too new, or
    /// is damaged before its last line. A last line that is cut off, and a missing end marker, are
    /// no errors: see [`SourceFile::notes`].
    pub fn read<P: AsRef<Path>>(paths: &[P]) -> Result<Self, ResultsError> {
        if paths.is_empty() {
            return Err(ResultsError::NoFiles);
        }
        let mut results = Self::default();
        for path in paths {
            let path = path.as_ref();
            let bytes = std::fs::read(path).map_err(|source| {
                let path = path.to_owned();
                ResultsError::Unreadable { path, source }
            })?;
            results.add(path, &bytes)?;
        }
        results.name_rows();
        Ok(results)
    }

    /// Parses a result file in memory; `path` is its name in messages.
    ///
    /// # Errors
    ///
    /// As [`Results::read`].
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, ResultsError> {
        let mut results = Self::default();
        results.add(path, bytes)?;
        results.name_rows();
        Ok(results)
    }

    /// Returns the distinct values of a fact about the files.
    pub(crate) fn each(&self, fact: impl Fn(&SourceFile) -> String) -> String {
        distinct(self.files.iter().map(fact)).join(" and ")
    }

    /// Returns all cells.
    pub fn cells(&self) -> impl Iterator<Item = &CellResults> {
        self.sections.iter().flat_map(|section| &section.cells)
    }

    /// Returns all rows.
    pub fn rows(&self) -> impl Iterator<Item = &RowResults> {
        self.cells().flat_map(|cell| &cell.rows)
    }

    fn add(&mut self, path: &Path, bytes: &[u8]) -> Result<(), ResultsError> {
        let is_whole = bytes.ends_with(b"\n");
        let mut lines = bytes
            .strip_suffix(b"\n")
            .unwrap_or(bytes)
            .split(|b| *b == b'\n');
        let mut file = SourceFile {
            path: path.to_owned(),
            manifest: manifest(path, lines.next().unwrap_or_default())?,
            end: None,
            truncated: false,
            rows: 0,
            orphans: 0,
        };
        let (mut places, mut loose) = (HashMap::new(), Vec::new());
        let mut lines = (2..).zip(lines).peekable();
        while let Some((line, text)) = lines.next() {
            match record(text, file.end) {
                Ok(Record::Row(row)) => {
                    file.rows += 1;
                    self.place(*row, file.rows, &mut places);
                }
                Ok(Record::End(end)) => file.end = Some(end),
                Ok(other) => loose.push(other),
                Err(_) if !is_whole && lines.peek().is_none() => file.truncated = true,
                Err(detail) => {
                    let path = file.path;
                    return Err(ResultsError::Damaged { path, line, detail });
                }
            }
        }
        let attached = loose.into_iter().map(|other| self.attach(other, &places));
        file.orphans = attached.filter(Option::is_none).count();
        self.files.push(file);
        Ok(())
    }

    /// Adds a row of the next file to its cell; creates the cell if it is new.
    fn place(&mut self, row: Row, number: usize, places: &mut Places) {
        let section = find_or_push(
            &mut self.sections,
            |section| section.name == row.cell.section,
            || SectionResults {
                name: row.cell.section.clone(),
                cells: Vec::new(),
            },
        );
        let cells = &mut self.sections[section].cells;
        let cell = find_or_push(
            cells,
            |cell| cell.cell.id == row.cell.id,
            || CellResults {
                cell: row.cell.clone(),
                rows: Vec::new(),
            },
        );
        let rows = &mut cells[cell].rows;
        let key = (row.cell.id.clone(), row.table.clone());
        let place = (row.role, [section, cell, rows.len()]);
        places.entry(key).or_default().push(place);
        rows.push(RowResults {
            file: self.files.len(),
            number,
            label: row.table.clone(),
            row,
            slices: Vec::new(),
            histograms: Vec::new(),
            timelines: Vec::new(),
            memory: Vec::new(),
            garbage: Vec::new(),
        });
    }

    /// Adds a record to its row; `None` if the row does not exist.
    fn attach(&mut self, record: Record, at: &Places) -> Option<()> {
        match record {
            Record::Slice(of) => self
                .row(at, &of.cell, &of.table, Some(of.role))?
                .slices
                .push(*of),
            Record::Histogram(of) => self
                .row(at, &of.cell, &of.table, None)?
                .histograms
                .push(*of),
            Record::Timeline(of) => self.row(at, &of.cell, &of.table, None)?.timelines.push(*of),
            Record::Memory(of) => self.row(at, &of.cell, &of.table, None)?.memory.push(*of),
            Record::Garbage(of) => self.row(at, &of.cell, &of.table, None)?.garbage.push(*of),
            Record::Manifest(_) | Record::Row(_) | Record::End(_) => {}
        }
        Some(())
    }

    /// Returns the row of a table in a cell, as [`choose`] chooses it.
    fn row(
        &mut self,
        places: &Places,
        cell: &str,
        table: &str,
        role: Option<Role>,
    ) -> Option<&mut RowResults> {
        let places = places.get(&(cell.to_owned(), table.to_owned()))?;
        let &[section, cell, row] = choose(places, role)?;
        Some(&mut self.sections[section].cells[cell].rows[row])
    }

    /// Labels the rows of one table in one cell if several files have them.
    fn name_rows(&mut self) {
        let mut seen: HashMap<(&str, &str, bool), usize> = HashMap::new();
        let mut twice: HashSet<String> = HashSet::new();
        for row in self.rows() {
            let again = row.row.role == Role::Again;
            let key = (&*row.row.cell.id, &*row.row.table, again);
            if *seen.entry(key).or_insert(row.file) != row.file {
                twice.insert(row.row.table.clone());
            }
        }
        let cells = self.sections.iter_mut().flat_map(|s| &mut s.cells);
        for row in cells.flat_map(|cell| &mut cell.rows) {
            if twice.contains(&row.row.table) {
                row.label = format!("{} [{}]", row.row.table, row.file + 1);
            }
        }
    }
}

/// The positions of the rows of a cell and table, by role.
type Places = HashMap<(String, String), Vec<(Role, [usize; 3])>>;

/// Returns the row of that role; without a role, the table itself before its second measurement.
fn choose(places: &[(Role, [usize; 3])], role: Option<Role>) -> Option<&[usize; 3]> {
    let wanted = |&&(found, _): &&(Role, _)| match role {
        Some(role) => found == role,
        None => found != Role::Again,
    };
    let fallback = || places.first().filter(|_| role.is_none());
    let place = places.iter().rev().find(wanted).or_else(fallback);
    place.map(|(_, place)| place)
}

fn find_or_push<T>(list: &mut Vec<T>, is: impl Fn(&T) -> bool, make: impl Fn() -> T) -> usize {
    list.iter().position(is).unwrap_or_else(|| {
        list.push(make());
        list.len() - 1
    })
}

fn unreadable(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        _ => format!("cannot be read: {source}"),
    }
}

/// Parses a line after the first, which must not follow the end marker.
fn record(text: &[u8], end: Option<End>) -> Result<Record, String> {
    if end.is_some() {
        return Err("it comes after the end marker".to_owned());
    }
    match serde_json::from_slice(text) {
        Ok(Record::Manifest(_)) => Err("a second manifest".to_owned()),
        Ok(record) => Ok(record),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses the manifest of a file's first line; checks its version before anything else.
fn manifest(path: &Path, line: &[u8]) -> Result<Manifest, ResultsError> {
    let not = |detail: &str| ResultsError::NotResults {
        path: path.to_owned(),
        detail: detail.to_owned(),
    };
    if line.is_empty() {
        return Err(not("it is empty, or its first line is"));
    }
    let head: serde_json::Value =
        serde_json::from_slice(line).map_err(|_| not("its first line is not JSON"))?;
    if head["type"] != "manifest" {
        return Err(not("it does not begin with a manifest"));
    }
    let schema = head["schema"].as_u64();
    let found = schema.ok_or_else(|| not("its manifest names no format"))?;
    if found > u64::from(SCHEMA) {
        let path = path.to_owned();
        return Err(ResultsError::Newer { path, found });
    }
    serde_json::from_value(head).map_err(|error| ResultsError::Damaged {
        path: path.to_owned(),
        line: 1,
        detail: error.to_string(),
    })
}

/// Returns the values in order of first appearance, each once.
pub(crate) fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let keys = by_key(values.into_iter().map(|value| (value, ())));
    keys.into_iter().map(|(key, _)| key).collect()
}

/// Returns the values of each key, the keys in order of first appearance.
pub(crate) fn by_key<K: PartialEq, V>(pairs: impl IntoIterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in pairs {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}
