//! Errors of a run, and their exit codes.

use std::io;

/// Why a run ended without a report. Every message is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// An option is out of range or contradicts another one.
    #[error("{0}")]
    Config(String),
    /// A connection cannot be opened.
    #[error("cannot connect to {target}: {source}")]
    Connect {
        /// The server's address.
        target: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A system call other than a connect failed.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted, and on which target.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A reply violates the protocol, or a store was refused.
    #[error("{target}: wrong reply: {detail}")]
    Protocol {
        /// The server's address.
        target: String,
        /// The reply, shortened, and what was expected.
        detail: String,
    },
    /// Well-formed replies contain a wrong key or value.
    #[error("{target}: {count} replies with a wrong key or value; the first: {first}")]
    Mismatch {
        /// The server's address.
        target: String,
        /// Number of wrong replies until the slice ended.
        count: u64,
        /// The first of them.
        first: String,
    },
    /// Replies stopped coming.
    #[error("{target}: no reply for {waited_ms} ms with {outstanding} requests outstanding")]
    Stall {
        /// The server's address.
        target: String,
        /// The limit that was reached.
        waited_ms: u64,
        /// Requests sent and not answered.
        outstanding: u64,
    },
    /// The CPU time of a server cannot be read.
    #[error("cannot read the CPU time of process {pid}: {detail}")]
    Cpu {
        /// The process.
        pid: u32,
        /// The reason.
        detail: String,
    },
    /// The empty responder did not start.
    #[error("empty responder: {0}")]
    Floor(String),
}

impl LoadError {
    /// 2 for bad options, 3 for a server that answered wrongly or not at all, 1 for everything
    /// else.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) => 2,
            Self::Protocol { .. } | Self::Mismatch { .. } | Self::Stall { .. } => 3,
            _ => 1,
        }
    }

    pub(crate) fn config(text: impl Into<String>) -> Self {
        Self::Config(text.into())
    }

    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            what: what.into(),
            source,
        }
    }
}
