//! One row: a fresh server, clients, samples.

use std::time::{Duration, Instant};

use corewise_measure::machine::Memory;

use super::args::{Engine, ServerPlan};
use super::clients::{self, Clients};
use super::process::{Program, Server};
use super::row::{Operation, Row};
use super::stats::{Asker, Reading};
use crate::error::BenchError;

/// Connections besides those of the clients: for `stats`, and for clients that start while others
/// end.
const SPARE: usize = 64;

/// Longest wait for the first request of a client.
const PATIENCE: Duration = Duration::from_secs(20);

/// The parameters of a row.
pub(super) struct Point<'p> {
    pub(super) plan: &'p ServerPlan,
    pub(super) program: &'p Program,
    pub(super) engine: Engine,
    pub(super) operation: Operation,
    pub(super) clients: usize,
}

/// Starts everything, samples, and waits for the clients' results.
pub(super) fn measure(point: &Point<'_>) -> Result<Row, BenchError> {
    let (plan, program) = (point.plan, point.program);
    let connections = point.clients * plan.connections + SPARE;
    let mut server = Server::start(program, point.engine, plan, connections)?;
    clients::fill(program, server.address, plan)?;
    let mut asker = Asker::connect(server.address)?;
    let before = asker.read(server.pid())?;
    let mut clients = Clients::start(
        program,
        server.address,
        plan,
        point.operation,
        point.clients,
    )?;
    wait_for_load(point, &mut asker, &mut server, &before)?;
    let start = Instant::now();
    let mut readings = Vec::new();
    for sample in 0..=plan.samples {
        let due = plan.warmup + plan.sample * sample as u32;
        std::thread::sleep(due.saturating_sub(start.elapsed()));
        server.check()?;
        readings.push(asker.read(server.pid())?);
    }
    let too_short = clients.is_one_gone();
    let memory = Memory::of(server.pid());
    let mut problems = clients.finish()?;
    if too_short && problems.is_empty() {
        problems.push("a client ended before the last sample".into());
    }
    row(point, &readings, memory, problems)
}

/// Waits until the first requests are counted. Processes start slowly if many start at once.
fn wait_for_load(
    point: &Point<'_>,
    asker: &mut Asker,
    server: &mut Server,
    before: &Reading,
) -> Result<(), BenchError> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let now = asker.read(server.pid())?;
        if now.grown(point.operation.counter(), before) > Some(0) {
            return Ok(());
        }
        server.check()?;
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(BenchError::Failed("no client sends a request".into()))
}

fn row(
    point: &Point<'_>,
    readings: &[Reading],
    memory: Memory,
    mut problems: Vec<String>,
) -> Result<Row, BenchError> {
    let [first, .., last] = readings else {
        return Err(BenchError::Failed("there are no samples".into()));
    };
    let counter = point.operation.counter();
    let pairs = readings.iter().zip(readings.iter().skip(1));
    let samples = pairs.map(|(before, after)| after.rate(counter, before));
    let samples_per_s = samples.collect::<Result<Vec<_>, _>>()?;
    if samples_per_s.iter().any(|rate| *rate <= 0.0) {
        problems.push("there is a sample without a request".into());
    }
    let requests = last.grown(counter, first).unwrap_or_default().max(1) as f64;
    let (user_ns, kernel_ns) = last.cpu_ns(first);
    let available = Duration::from_secs_f64(last.seconds(first)) * point.plan.threads as u32;
    let lock_wait_us = last.grown("lock_wait_us", first);
    let hits = last.grown("get_hits", first).unwrap_or_default() as f64;
    let misses = last.grown("get_misses", first).unwrap_or_default() as f64;
    let limit = last.number("limit_maxbytes").filter(|bytes| *bytes > 0);
    Ok(Row {
        engine: point.engine.to_string(),
        version: last.version(),
        operation: point.operation,
        clients: point.clients,
        threads: point.plan.threads,
        samples_per_s,
        user_ns_per_request: user_ns as f64 / requests,
        kernel_ns_per_request: kernel_ns as f64 / requests,
        lock_wait_share: lock_wait_us.map(|us| us as f64 / 1e6 / available.as_secs_f64()),
        hit_ratio: (hits + misses > 0.0).then(|| hits / (hits + misses)),
        resident_over_limit: memory
            .rss_kib
            .zip(limit)
            .map(|(kib, limit)| (kib << 10) as f64 / limit as f64),
        problems,
    })
}
