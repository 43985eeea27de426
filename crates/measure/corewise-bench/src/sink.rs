//! Output of results: appended to a file line by line, and as text to the terminal.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::BenchError;
use crate::record::Record;

/// A result file under construction.
#[derive(Debug)]
pub struct Sink {
    path: PathBuf,
    file: File,
    /// Whether records also go to standard output.
    json: bool,
    rows: Kept,
}

/// The number of rows in a file, locked while a record is written.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<usize>>);

impl Kept {
    fn lock(&self) -> MutexGuard<'_, usize> {
        // A number is whole even if a thread panicked beside it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink {
    /// Creates a file, which must not exist unless it may be replaced. No other run writes to it
    /// until the sink is dropped.
    pub fn create(path: &Path, replace: bool, json: bool) -> Result<Self, BenchError> {
        let mut options = File::options();
        options.append(true).create(true).create_new(!replace);
        let file = options.open(path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => BenchError::Usage(format!(
                "{} exists; name another file or say --replace",
                path.display()
            )),
            _ => BenchError::Usage(format!("{}: {error}", path.display())),
        })?;
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            let text = format!("{}: another run writes to it", path.display());
            return Err(BenchError::Usage(text));
        }
        let emptied = if replace { file.set_len(0) } else { Ok(()) };
        emptied.map_err(|error| BenchError::of_file(path, error))?;
        let path = path.to_path_buf();
        Ok(Self {
            path,
            file,
            json,
            rows: Kept::default(),
        })
    }

    /// Appends a record in one write, so that only the last line can be incomplete.
    pub fn write(&mut self, record: &Record) -> Result<(), BenchError> {
        let line = serde_json::to_string(record)
            .map_err(|error| BenchError::Failed(format!("cannot write a record: {error}")))?;
        let mut rows = self.rows.lock();
        let written = self.file.write_all(format!("{line}\n").as_bytes());
        *rows += usize::from(matches!(record, Record::Row(_)));
        drop(rows);
        if self.json {
            say(&line);
        }
        written.map_err(|error| BenchError::of_file(&self.path, error))
    }

    /// From now on, SIGINT and SIGTERM end the program with a line that names what the file keeps.
    pub(crate) fn report_interrupts(&self) -> Result<(), BenchError> {
        let failed = |error| BenchError::Failed(format!("signals: {error}"));
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
        let (path, kept) = (self.path.display().to_string(), self.rows.clone());
        std::thread::spawn(move || {
            let Some(signal) = signals.forever().next() else {
                return;
            };
            // Locked until the program ends: no record is cut off.
            let rows = kept.lock();
            let what = match *rows {
                0 => format!("no cell was finished; {path} has no row"),
                rows => format!(
                    "{path} keeps {rows} rows of finished cells: corewise bench report {path}"
                ),
            };
            let _ = writeln!(std::io::stderr(), "\ncorewise bench: interrupted: {what}");
            signal_hook::low_level::exit(128 + signal);
        });
        Ok(())
    }

    /// Flushes to disk, so that the file survives a crash of the machine.
    pub fn sync(&mut self) -> Result<(), BenchError> {
        let synced = self.file.sync_data();
        synced.map_err(|error| BenchError::of_file(&self.path, error))
    }
}

/// The first error of standard output.
static LOST: OnceLock<std::io::Error> = OnceLock::new();

/// Prints a line, or several.
pub(crate) fn say(line: &str) {
    if let Err(error) = writeln!(std::io::stdout().lock(), "{line}") {
        let _ = LOST.set(error); // the first is kept
    }
}

/// Returns an error if output was lost other than by a closed pipe.
pub(crate) fn check_output() -> Result<(), BenchError> {
    let lost = LOST
        .get()
        .filter(|error| error.kind() != ErrorKind::BrokenPipe);
    lost.map_or(Ok(()), |error| {
        Err(BenchError::Failed(format!("standard output: {error}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::End;

    #[test]
    fn two_runs_do_not_write_to_one_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("r.jsonl");
        let first = Sink::create(&path, true, false).expect("created");
        let second = Sink::create(&path, true, false).expect_err("in use");
        assert!(second.to_string().contains("another run"), "{second}");
        drop(first);
        assert!(Sink::create(&path, true, false).is_ok());
    }

    #[test]
    fn a_file_is_not_overwritten_unless_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("r.jsonl");
        let end = Record::End(End {
            rows: 1,
            void: 0,
            seconds: 2,
        });
        for (replace, works) in [(false, true), (false, false), (true, true)] {
            let sink = Sink::create(&path, replace, false);
            assert_eq!(sink.is_ok(), works);
            if let Ok(mut sink) = sink {
                sink.write(&end)
                    .and_then(|()| sink.sync())
                    .expect("written");
            }
        }
        let text = std::fs::read_to_string(&path).expect("text");
        assert_eq!(text.lines().count(), 1);
        assert_eq!(
            serde_json::from_str::<Record>(text.trim()).expect("a record"),
            end
        );
    }
}
