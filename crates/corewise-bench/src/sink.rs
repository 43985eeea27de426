//! Output of results: appended to a file line by line, and as text to the terminal.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::BenchError;
use crate::record::Record;

/// A result file under construction.
#[derive(Debug)]
pub struct Sink {
    file: Option<(PathBuf, File)>,
    /// Whether records also go to standard output.
    json: bool,
}

impl Sink {
    /// Creates a file, which must not exist unless it may be replaced.
    pub fn create(path: Option<&Path>, replace: bool, json: bool) -> Result<Self, BenchError> {
        let open = |path: &Path| {
            let mut options = File::options();
            options.append(true).create(true).create_new(!replace);
            let file = options.open(path).map_err(|error| match error.kind() {
                std::io::ErrorKind::AlreadyExists => BenchError::Usage(format!(
                    "{} exists; name another file or say --replace",
                    path.display()
                )),
                _ => BenchError::Usage(format!("{}: {error}", path.display())),
            })?;
            if replace {
                file.set_len(0)
                    .map_err(|error| BenchError::of_file(path, error))?;
            }
            Ok((path.to_path_buf(), file))
        };
        Ok(Self {
            file: path.map(open).transpose()?,
            json,
        })
    }

    /// Appends a record in one write, so that only the last line can be incomplete.
    pub fn write(&mut self, record: &Record) -> Result<(), BenchError> {
        let mut line = serde_json::to_vec(record)
            .map_err(|error| BenchError::Failed(format!("cannot write a record: {error}")))?;
        line.push(b'\n');
        if let Some((path, file)) = &mut self.file {
            file.write_all(&line)
                .map_err(|error| BenchError::of_file(path, error))?;
        }
        if self.json {
            let _ = std::io::stdout().lock().write_all(&line); // a closed pipe is no error
        }
        Ok(())
    }

    /// Flushes to disk, so that the file survives a crash of the machine.
    pub fn sync(&mut self) -> Result<(), BenchError> {
        match &self.file {
            Some((path, file)) => file
                .sync_data()
                .map_err(|error| BenchError::of_file(path, error)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::End;

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
            let sink = Sink::create(Some(&path), replace, false);
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
