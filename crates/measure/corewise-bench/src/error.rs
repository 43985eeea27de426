//! Errors of a run.

use std::path::Path;

use corewise_measure::thread_pool::PoolError;

/// Why a run did not happen or did not end. Every message is one line.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// An error in the options or the suite: nothing was measured.
    #[error("{0}")]
    Usage(String),
    /// A thread of a table did not return.
    #[error(
        "`{table}` does not come back from {phase}; its threads cannot be stopped, so the run ends here"
    )]
    Stuck {
        /// The table.
        table: String,
        /// The phase.
        phase: &'static str,
    },
    /// A file could not be read or written.
    #[error("{path}: {error}")]
    File {
        /// Its name.
        path: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// A child process failed.
    #[error("{0}")]
    Failed(String),
}

impl From<PoolError> for BenchError {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Spawn(..) => Self::Failed(error.to_string()),
            PoolError::Pin(..) => Self::Usage(error.to_string()),
        }
    }
}

impl BenchError {
    /// An error of the system about a file.
    pub(crate) fn of_file(path: &Path, error: std::io::Error) -> Self {
        let path = path.display().to_string();
        Self::File { path, error }
    }

    /// Returns its exit status.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            _ => 1,
        }
    }
}

/// Returns a text with all white space in it as single spaces.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
