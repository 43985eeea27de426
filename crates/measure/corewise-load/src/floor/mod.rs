//! The empty responder: the minimum that a server can do.
//!
//! It reads what a server would read, counts requests by their lines, and answers each with a
//! canned reply of the size of a real one, in one write per read. Its CPU time is what the kernel
//! charges any server for this traffic; what a server uses beyond it is the server's own cost. With
//! a range of value sizes it answers with the mean size. It is not the least possible cost of a
//! server that gathers several connections into one system call, nor for values above a few KiB: it
//! copies its reply where a server may send from the item itself.
//!
//! It runs as a child process, so its CPU time is read like a server's. The child is the same
//! program, started again with an environment variable: a program that wants a floor calls
//! [`maybe_run_from_env`] first in `main`.

pub(crate) mod count;
mod serve;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::codec::Codec;
use crate::config::{Address, FloorOptions, LoadConfig, Protocol, ValueSize};
use crate::error::LoadError;

/// The environment variable that turns a program into the empty responder.
pub const FLOOR_ENV: &str = "COREWISE_LOAD_FLOOR";

/// Configuration of the responder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FloorSpec {
    pub(crate) protocol: Protocol,
    pub(crate) multiget: u32,
    pub(crate) key_prefix: String,
    pub(crate) key_size: usize,
    pub(crate) value_bytes: u32,
    pub(crate) threads: u32,
    pub(crate) pin: Vec<usize>,
    /// Listen on this Unix path instead of a port.
    pub(crate) unix: Option<String>,
}

impl FloorSpec {
    pub(crate) fn new(config: &LoadConfig, options: &FloorOptions, protocol: Protocol) -> Self {
        Self {
            protocol,
            multiget: config.multiget,
            key_prefix: config.key_prefix.clone(),
            key_size: config.key_size,
            value_bytes: config.value_size.mean(),
            threads: options.threads.max(1),
            pin: options.pin.clone(),
            unix: None,
        }
    }

    /// The replies to a get and to a set.
    pub(crate) fn replies(&self) -> (Vec<u8>, Vec<u8>) {
        let config = LoadConfig {
            multiget: self.multiget,
            key_prefix: self.key_prefix.clone(),
            key_size: self.key_size,
            value_size: ValueSize {
                min: self.value_bytes,
                max: self.value_bytes,
            },
            ..LoadConfig::default()
        };
        Codec::new(&config, self.protocol, false).canned(self.value_bytes)
    }
}

/// Runs the empty responder and never returns, if [`FLOOR_ENV`] is set; otherwise does nothing.
/// Call it first in `main`.
pub fn maybe_run_from_env() {
    let Ok(text) = std::env::var(FLOOR_ENV) else {
        return;
    };
    let outcome = serde_json::from_str::<FloorSpec>(&text)
        .map_err(|e| format!("bad {FLOOR_ENV}: {e}"))
        .and_then(|spec| serve::run(&spec));
    if let Err(e) = outcome {
        eprintln!("empty responder: {e}");
        std::process::exit(1);
    }
    std::process::exit(0);
}

/// A running responder; it ends when this value is dropped, or with this process.
#[derive(Debug)]
pub(crate) struct Floor {
    child: Child,
    pub(crate) address: Address,
    unix: Option<String>,
}

impl Floor {
    /// Starts the current program again as a responder, on the same kind of socket as `like`.
    pub(crate) fn start(mut spec: FloorSpec, like: &Address) -> Result<Self, LoadError> {
        let fail = |what: &str, e: &dyn std::fmt::Display| LoadError::Floor(format!("{what}: {e}"));
        if matches!(like, Address::Unix(_)) {
            let file = format!("corewise-floor-{}-{}", std::process::id(), spec.protocol);
            spec.unix = Some(
                std::env::temp_dir()
                    .join(file)
                    .to_string_lossy()
                    .into_owned(),
            );
        }
        let unix = spec.unix.clone();
        let text = serde_json::to_string(&spec).map_err(|e| fail("cannot describe it", &e))?;
        let program = std::env::current_exe().map_err(|e| fail("cannot find the program", &e))?;
        let mut child = Command::new(program)
            .env(FLOOR_ENV, text)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| fail("cannot start", &e))?;
        let address = read_address(&mut child);
        let mut floor = Self {
            child,
            address: like.clone(),
            unix,
        };
        floor.address = address?;
        Ok(floor)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

fn read_address(child: &mut Child) -> Result<Address, LoadError> {
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        let read = BufReader::new(out).read_line(&mut line);
        read.map_err(|e| LoadError::Floor(format!("cannot read its address: {e}")))?;
    }
    let hint = "it did not start; does the program call floor::maybe_run_from_env first?";
    match line.trim_end().strip_prefix("listening ") {
        Some(address) => address.parse().map_err(LoadError::Floor),
        None => Err(LoadError::Floor(hint.into())),
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(path) = &self.unix {
            let _ = std::fs::remove_file(path);
        }
    }
}
