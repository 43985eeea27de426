//! What can go wrong with a run.

/// Why a run did not happen or did not end. One line each.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Something about the options or the suite: nothing was measured.
    #[error("{0}")]
    Usage(String),
    /// A thread of a table did not come back.
    #[error(
        "`{table}` does not come back from {phase}; its threads cannot be stopped, so the run ends here"
    )]
    Stuck {
        /// The table.
        table: String,
        /// What it was doing.
        phase: &'static str,
    },
    /// A file could not be read or written.
    #[error("{path}: {error}")]
    File {
        /// Its name.
        path: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// A part of the program that was started failed.
    #[error("{0}")]
    Failed(String),
}

impl BenchError {
    /// The exit status that goes with it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            _ => 1,
        }
    }
}
