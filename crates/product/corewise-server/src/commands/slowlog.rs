//! `SLOWLOG`: the latest requests that took long.
//!
//! Calls are timed, and so are requests that `EXEC` executes. Operations are not, unless the
//! threshold is below [`CALLS_ONLY_US`]: then every request becomes a call.
//!
//! # Bounds
//!
//! The log has at most [`MAX_ENTRIES`] entries, each with at most [`MAX_ARGUMENTS`] arguments of
//! [`MAX_ARGUMENT`] bytes.

use super::table::Command;
use super::{Context, first};
use crate::shared::ConnInfo;
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::{AtomicU64, Ordering};
use corewise_engine::Engine;
use corewise_wire::resp::{Args, Request, parse_integer};
use std::collections::VecDeque;
use std::time::Duration;

/// The most entries that a log can be made to have.
pub(super) const MAX_ENTRIES: usize = 1_024;
/// The entries that a log has at first, at most.
const ENTRIES: usize = 128;
/// A request is slow if it takes longer, at first.
const SLOW_US: i64 = 10_000;
/// Operations are not timed if only longer requests are slow: none takes so long.
const CALLS_ONLY_US: i64 = 1_000;
/// The most arguments of an entry, with the name; a note stands for the rest of them.
const MAX_ARGUMENTS: usize = 32;
/// The longest argument of an entry; a note stands for the rest of it.
const MAX_ARGUMENT: usize = 128;
/// The entries that `SLOWLOG GET` prints if no number is given.
const SHOWN: i64 = 10;

/// The log of a server.
pub(crate) struct SlowLog {
    /// A request is slow if it takes longer; none is if this, as an `i64`, is negative.
    threshold_us: AtomicU64,
    log: Mutex<Log>,
}

struct Log {
    /// The latest is the first.
    entries: VecDeque<Entry>,
    most: usize,
    next_id: i64,
}

/// A slow request.
#[derive(Clone)]
struct Entry {
    id: i64,
    unix_s: u64,
    us: i64,
    arguments: Vec<Vec<u8>>,
    peer: String,
    name: Vec<u8>,
}

impl Default for SlowLog {
    fn default() -> Self {
        Self {
            threshold_us: AtomicU64::new(SLOW_US as u64),
            log: Mutex::new(Log {
                entries: VecDeque::new(),
                most: ENTRIES,
                next_id: 0,
            }),
        }
    }
}

impl SlowLog {
    pub(super) fn threshold_us(&self) -> i64 {
        // Relaxed: a setting, which needs no order with other memory.
        self.threshold_us.load(Ordering::Relaxed) as i64
    }

    pub(super) fn set_threshold_us(&self, us: i64) {
        // Relaxed: as above.
        self.threshold_us.store(us as u64, Ordering::Relaxed);
    }

    pub(super) fn most(&self) -> usize {
        self.log.lock().most
    }

    pub(super) fn set_most(&self, most: usize) {
        let mut log = self.log.lock();
        log.most = most.min(MAX_ENTRIES);
        let kept = log.most;
        log.entries.truncate(kept);
    }

    /// Whether every request must become a call to be timed.
    pub(crate) fn times_operations(&self) -> bool {
        (0..CALLS_ONLY_US).contains(&self.threshold_us())
    }

    /// Whether a request that took this long is slow.
    pub(super) fn is_slow(&self, time: Duration) -> bool {
        let threshold = self.threshold_us();
        threshold >= 0 && time.as_micros() as i64 >= threshold
    }

    /// Adds a request that took this long.
    #[cold]
    pub(super) fn add(
        &self,
        request: Request<'_>,
        command: Command,
        client: &ConnInfo,
        (unix_s, time): (u64, Duration),
    ) {
        let mut log = self.log.lock();
        let id = log.next_id;
        log.next_id += 1;
        let most = log.most;
        log.entries.truncate(most.saturating_sub(1));
        if most > 0 {
            log.entries.push_front(Entry {
                id,
                unix_s,
                us: time.as_micros() as i64,
                arguments: shown(request, command),
                peer: super::client::peer(client).to_owned(),
                name: client.client_name.lock().clone(),
            });
        }
    }
}

/// The name and the arguments as the log shows them: short, and without passwords.
fn shown(request: Request<'_>, command: Command) -> Vec<Vec<u8>> {
    let count = 1 + request.args().len();
    let kept = if count > MAX_ARGUMENTS {
        MAX_ARGUMENTS - 1
    } else {
        count
    };
    let mut arguments = Vec::with_capacity(kept + 1);
    let mut secrets = if command.name == "auth" {
        usize::MAX
    } else {
        0
    };
    arguments.push(shortened(request.name()));
    for argument in request.args().take(kept - 1) {
        arguments.push(if secrets > 0 {
            b"(redacted)".to_vec()
        } else {
            shortened(argument)
        });
        secrets = secrets.saturating_sub(1);
        if command.name == "hello" && argument.eq_ignore_ascii_case(b"auth") {
            secrets = 2;
        }
    }
    if kept < count {
        let note = format!("... ({} more arguments)", count - kept);
        arguments.push(note.into_bytes());
    }
    arguments
}

fn shortened(argument: &[u8]) -> Vec<u8> {
    let Some((start, rest)) = argument.split_at_checked(MAX_ARGUMENT) else {
        return argument.to_vec();
    };
    if rest.is_empty() {
        return argument.to_vec();
    }
    let note = format!("... ({} more bytes)", rest.len());
    [start, note.as_bytes()].concat()
}

/// `SLOWLOG GET [count]`, `SLOWLOG LEN`, `SLOWLOG RESET`.
pub(super) fn slowlog<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [subcommand] = first(&mut args);
    let shared = cx.shared;
    match subcommand.to_ascii_lowercase().as_slice() {
        b"get" => get(cx, args),
        b"len" => {
            let len = shared.slow_log.log.lock().entries.len();
            cx.reply().integer(len as i64);
        }
        b"reset" => {
            shared.slow_log.log.lock().entries.clear();
            cx.reply().simple("OK");
        }
        _ => cx.help("SLOWLOG", "GET, LEN, RESET"),
    }
}

fn get<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let given = args.len();
    let [count] = first(&mut args);
    let count = match parse_integer(count) {
        _ if given == 0 => SHOWN,
        _ if given > 1 => return cx.unknown_arguments("SLOWLOG", b"get"),
        Some(-1) => i64::MAX,
        Some(count @ 0..) => count,
        Some(_) | None => {
            return cx.error("ERR count should be greater than or equal to -1");
        }
    };
    let log = cx.shared.slow_log.log.lock();
    let entries: Vec<Entry> = log.entries.iter().take(count as usize).cloned().collect();
    drop(log);
    let mut reply = cx.reply();
    reply.array(entries.len());
    for entry in &entries {
        reply.array(6);
        reply.integer(entry.id);
        reply.integer(entry.unix_s as i64);
        reply.integer(entry.us);
        reply.array(entry.arguments.len());
        entry.arguments.iter().for_each(|text| reply.bulk(text));
        reply.bulk(entry.peer.as_bytes());
        reply.bulk(&entry.name);
    }
}
