//! Reading result files: every [`Record`] of one or several files, put back together.
//!
//! ```text
//! Results
//!   files     what each file was measured with, and what is wrong with it
//!   sections  in the order in which they were measured
//!     cells   a workload at a number of threads
//!       rows  a table in it, with its slices, histograms, timelines, memory and garbage
//! ```
//!
//! A cell that several files have is one cell here, with the rows of all of them. Where a table
//! would then be there twice, [`RowResults::label`] tells the files apart.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::record::{
    Cell, End, Garbage, Histogram, Manifest, MemoryPoint, Record, Role, Row, SCHEMA, Slice,
    Timeline,
};

/// Why a result file cannot be read. Every message is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResultsError {
    /// No file was named.
    #[error("no result file given")]
    NoFiles,
    /// There is no such file.
    #[error("{}: no such file", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The system does not let it be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It does not begin with a manifest.
    #[error("{}: not a result file: {detail}", path.display())]
    NotResults {
        /// The file.
        path: PathBuf,
        /// What it begins with.
        detail: String,
    },
    /// It was written by a newer program.
    #[error("{}: written in format {found}, this program reads up to {SCHEMA}; use a newer one", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// A line that is not the last cannot be understood.
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
    pub sections: Vec<Section>,
}

/// A result file as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceFile {
    /// Where it is.
    pub path: PathBuf,
    /// What it was measured with and on.
    pub manifest: Manifest,
    /// The end marker; `None` if the run did not get there.
    pub end: Option<End>,
    /// Whether the last line was cut off and skipped.
    pub truncated: bool,
    /// Rows it has.
    pub rows: usize,
    /// Other records that belong to no row, because the run ended before the row did.
    pub orphans: usize,
}

/// A section of a run: cells in which one dimension is looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Its cells, in the order in which they were measured.
    pub cells: Vec<CellResults>,
}

/// A cell and what was measured in it.
#[derive(Clone, Debug, PartialEq)]
pub struct CellResults {
    /// The workload.
    pub cell: Cell,
    /// The tables in it.
    pub rows: Vec<RowResults>,
}

/// A row and everything that was recorded for it.
#[derive(Clone, Debug, PartialEq)]
pub struct RowResults {
    /// Index of its file in [`Results::files`].
    pub file: usize,
    /// Its place among the rows of its file, from 1: what `corewise bench replay` wants.
    pub number: usize,
    /// The table's name, with the file's number if several files measured it in one cell.
    pub label: String,
    /// The summary.
    pub row: Row,
    /// The repetitions.
    pub slices: Vec<Slice>,
    /// Latencies by operation.
    pub histograms: Vec<Histogram>,
    /// Progress over time.
    pub timelines: Vec<Timeline>,
    /// Memory by size.
    pub memory: Vec<MemoryPoint>,
    /// Memory over time.
    pub garbage: Vec<Garbage>,
}

impl SourceFile {
    /// The file's name without its folders.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// What a reader should know about the state of the file, a sentence each.
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
    /// Whether a check failed, so that its numbers must not be used.
    pub fn void(&self) -> bool {
        self.row.verdict == "void"
            || !self.row.problems.is_empty()
            || self.slices.iter().any(|s| !s.checks.problems.is_empty())
    }

    /// The first thing that is wrong with it.
    pub fn problem(&self) -> Option<&str> {
        let sliced = self.slices.iter().flat_map(|s| &s.checks.problems);
        let first = self.row.problems.iter().chain(sliced).next();
        first
            .map(String::as_str)
            .or_else(|| self.void().then_some("void"))
    }

    /// Operations per second of each repetition.
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
    /// A [`ResultsError`] for the first file that is missing, no result file, too new, or damaged
    /// before its last line. A last line that is cut off, and a missing end marker, are no errors:
    /// see [`SourceFile::notes`].
    pub fn read<P: AsRef<Path>>(paths: &[P]) -> Result<Self, ResultsError> {
        if paths.is_empty() {
            return Err(ResultsError::NoFiles);
        }
        let mut results = Self::default();
        for path in paths {
            let path = path.as_ref();
            let bytes = std::fs::read(path).map_err(|source| refused(path, source))?;
            results.add(path, &bytes)?;
        }
        results.name_rows();
        Ok(results)
    }

    /// Reads a result file that is in memory already; `path` is what it is called.
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

    /// All cells.
    pub fn cells(&self) -> impl Iterator<Item = &CellResults> {
        self.sections.iter().flat_map(|section| &section.cells)
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = &RowResults> {
        self.cells().flat_map(|cell| &cell.rows)
    }

    fn add(&mut self, path: &Path, bytes: &[u8]) -> Result<(), ResultsError> {
        let parsed = Parsed::of(path, bytes)?;
        let file = self.files.len();
        let mut loose = Vec::new();
        let mut at = HashMap::new();
        let mut rows = 0;
        for record in parsed.records {
            match record {
                Record::Row(row) => {
                    rows += 1;
                    self.place(*row, file, rows, &mut at);
                }
                other => loose.push(other),
            }
        }
        let orphans = loose.into_iter().filter(|record| !self.attach(record, &at));
        let orphans = orphans.count();
        self.files.push(SourceFile {
            path: path.to_owned(),
            manifest: parsed.manifest,
            end: parsed.end,
            truncated: parsed.truncated,
            rows,
            orphans,
        });
        Ok(())
    }

    /// Puts a row into its cell, which is made if it is the first of it.
    fn place(&mut self, row: Row, file: usize, number: usize, at: &mut Places) {
        let section = find_or_push(
            &mut self.sections,
            |section| section.name == row.cell.section,
            || Section {
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
        at.entry((row.cell.id.clone(), row.table.clone()))
            .or_default()
            .push((row.role, [section, cell, rows.len()]));
        rows.push(RowResults {
            file,
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

    /// Gives a record to its row; whether there is one.
    fn attach(&mut self, record: &Record, at: &Places) -> bool {
        let (cell, table, role) = match record {
            Record::Slice(of) => (&of.cell, &of.table, Some(of.role)),
            Record::Histogram(of) => (&of.cell, &of.table, None),
            Record::Timeline(of) => (&of.cell, &of.table, None),
            Record::Memory(of) => (&of.cell, &of.table, None),
            Record::Garbage(of) => (&of.cell, &of.table, None),
            Record::Manifest(_) | Record::Row(_) | Record::End(_) => return true,
        };
        let Some(&[section, cell, row]) = at
            .get(&(cell.clone(), table.clone()))
            .and_then(|places| choose(places, role))
        else {
            return false;
        };
        let row = &mut self.sections[section].cells[cell].rows[row];
        match record {
            Record::Slice(of) => row.slices.push(Slice::clone(of)),
            Record::Histogram(of) => row.histograms.push(Histogram::clone(of)),
            Record::Timeline(of) => row.timelines.push(Timeline::clone(of)),
            Record::Memory(of) => row.memory.push(MemoryPoint::clone(of)),
            Record::Garbage(of) => row.garbage.push(Garbage::clone(of)),
            Record::Manifest(_) | Record::Row(_) | Record::End(_) => {}
        }
        true
    }

    /// Tells rows of one table in one cell apart if several files have them.
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

/// Where the rows of a cell and table are, by their part.
type Places = HashMap<(String, String), Vec<(Role, [usize; 3])>>;

/// The row of that part; without a part, the table itself before its second appearance.
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

fn refused(path: &Path, source: io::Error) -> ResultsError {
    let path = path.to_owned();
    if source.kind() == io::ErrorKind::NotFound {
        ResultsError::Missing { path }
    } else {
        ResultsError::Unreadable { path, source }
    }
}

/// The records of a file.
struct Parsed {
    manifest: Manifest,
    records: Vec<Record>,
    end: Option<End>,
    truncated: bool,
}

impl Parsed {
    fn of(path: &Path, bytes: &[u8]) -> Result<Self, ResultsError> {
        let whole = bytes.ends_with(b"\n");
        let mut lines = bytes
            .strip_suffix(b"\n")
            .unwrap_or(bytes)
            .split(|b| *b == b'\n');
        let manifest = manifest(path, lines.next().unwrap_or_default())?;
        let mut parsed = Self {
            manifest,
            records: Vec::new(),
            end: None,
            truncated: false,
        };
        let mut lines = (2..).zip(lines).peekable();
        while let Some((line, text)) = lines.next() {
            let cut = !whole && lines.peek().is_none();
            match parsed.take(text) {
                Ok(()) => {}
                Err(_) if cut => parsed.truncated = true,
                Err(detail) => {
                    let path = path.to_owned();
                    return Err(ResultsError::Damaged { path, line, detail });
                }
            }
        }
        Ok(parsed)
    }

    fn take(&mut self, text: &[u8]) -> Result<(), String> {
        if self.end.is_some() {
            return Err("it comes after the end marker".to_owned());
        }
        match serde_json::from_slice(text) {
            Ok(Record::Manifest(_)) => return Err("a second manifest".to_owned()),
            Ok(Record::End(end)) => self.end = Some(end),
            Ok(record) => self.records.push(record),
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }
}

/// The manifest of a file's first line; its version is looked at before anything else.
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
    match head["schema"].as_u64() {
        None => return Err(not("its manifest names no format")),
        Some(found) if found > u64::from(SCHEMA) => {
            let path = path.to_owned();
            return Err(ResultsError::Newer { path, found });
        }
        Some(_) => {}
    }
    serde_json::from_value(head).map_err(|error| ResultsError::Damaged {
        path: path.to_owned(),
        line: 1,
        detail: error.to_string(),
    })
}
