//! Client processes: `corewise load`, which verifies every reply.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Operation;
use super::args::ServerPlan;
use super::process::{Guarded, Program, last_line};
use crate::error::BenchError;

/// Exit status of `corewise load` after a wrong or missing reply.
const WRONG: i32 = 3;
/// Time that a client runs beyond warm-up and samples, since they begin with the first request of
/// all clients and end a little late; and the same for each further client.
const SLACK: Duration = Duration::from_secs(1);
const SLACK_EACH: Duration = Duration::from_millis(100);

/// Running client processes.
pub(super) struct Clients(Vec<Guarded>);

fn load(program: &Program, address: SocketAddr, plan: &ServerPlan) -> Command {
    let mut command = Command::new(program);
    command
        .args(["load", &address.to_string()])
        .args(["--keys", &plan.keys.to_string()])
        .args(["--value-size", &plan.value_size.to_string()])
        .args(["--warmup", "0", "--slice-warm-ms", "0"])
        .args(["--format", "flat"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Sets one slice of this duration.
fn lasting(command: &mut Command, time: Duration) {
    let ms = time.as_millis().max(2);
    command.args(["--slice-ms", &ms.to_string()]);
    command.args(["--seconds", &format!("{:.3}", ms as f64 / 1e3)]);
}

/// Stores every key.
pub(super) fn fill(
    program: &Program,
    address: SocketAddr,
    plan: &ServerPlan,
) -> Result<(), BenchError> {
    let mut command = load(program, address, plan);
    command.args(["--prefill", "--set-ratio", "0"]);
    command.args(["--pipeline", "16", "--connections", "8"]);
    lasting(&mut command, Duration::from_millis(20));
    let output = command.output().map_err(|error| cannot_start(&error))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(BenchError::Failed(format!(
            "the keys could not be stored: {}",
            last_line(&String::from_utf8_lossy(&output.stderr))
        )))
    }
}

fn cannot_start(error: &std::io::Error) -> BenchError {
    BenchError::Failed(format!("cannot start a client: {error}"))
}

impl Clients {
    /// Starts `count` clients, each of which runs longer than warm-up and samples take.
    pub(super) fn start(
        program: &Program,
        address: SocketAddr,
        plan: &ServerPlan,
        operation: Operation,
        count: usize,
    ) -> Result<Self, BenchError> {
        let time = plan.warmup + plan.sampled() + SLACK + SLACK_EACH * count as u32;
        let mut clients = Self(Vec::new());
        for number in 0..count {
            let mut command = load(program, address, plan);
            command
                .args(["--set-ratio", operation.share_of_sets()])
                .args(["--connections", &plan.connections.to_string()])
                .args(["--seed", &(number + 1).to_string()]);
            lasting(&mut command, time);
            let child = command.spawn().map_err(|error| cannot_start(&error))?;
            clients.0.push(Guarded(child));
        }
        Ok(clients)
    }

    /// Returns whether a client has ended.
    pub(super) fn is_one_gone(&mut self) -> bool {
        let mut clients = self.0.iter_mut();
        clients.any(|client| !matches!(client.0.try_wait(), Ok(None)))
    }

    /// Waits until all have ended; returns the problems with their replies.
    pub(super) fn finish(mut self) -> Result<Vec<String>, BenchError> {
        let mut problems = Vec::new();
        for client in &mut self.0 {
            let (mut report, mut said) = (String::new(), String::new());
            read(client.0.stdout.take(), &mut report);
            read(client.0.stderr.take(), &mut said);
            let status = client.0.wait().map_err(|error| cannot_start(&error))?;
            match status.code() {
                Some(0) => {}
                Some(WRONG) => problems.push(last_line(&said).to_owned()),
                _ => {
                    let line = last_line(&said);
                    return Err(BenchError::Failed(format!("a client failed: {line}")));
                }
            }
        }
        Ok(problems)
    }
}

/// Reads the remaining output of a child; ignores errors.
fn read(from: Option<impl std::io::Read>, to: &mut String) {
    if let Some(mut from) = from {
        let _ = from.read_to_string(to);
    }
}
