//! Scripts: `EVAL`, `EVALSHA`, and `SCRIPT`.
//!
//! A script is one transaction on the keys that it declares, or on all keys if the server was
//! started so. What runs it is in [`scripts`](crate::scripts).

use super::operation::integer;
use super::{Context, first, table, transactions};
use crate::config::ScriptKeys;
use crate::scripts::{self, Commands, Kill, RunState, Script, digest};
use corewise_engine::Engine;
use corewise_ops::database;
use corewise_wire::resp::{Args, Request, Version};
use std::borrow::Cow;
use std::mem;
use std::sync::Arc;

const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
/// The error for a key that a script has not declared.
const UNDECLARED: &str =
    "ERR the command needs keys that are not among the KEYS of the script, see --script-keys";

/// The commands of Redis that are absent here and that no script of Redis may call. Scripts tell
/// them from others by the error.
#[rustfmt::skip]
const ELSEWHERE: [&str; 21] = [
    "bgrewriteaof", "bgsave", "blmove", "blpop", "brpop", "brpoplpush", "bzpopmax", "bzpopmin",
    "debug", "failover", "fcall", "fcall_ro", "function", "monitor", "psync", "replconf",
    "replicaof", "save", "shutdown", "slaveof", "sync",
];

/// `EVAL script numkeys [key …] [arg …]`.
pub(super) fn eval<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    run(cx, args, false, false);
}

/// `EVAL_RO script numkeys [key …] [arg …]`.
pub(super) fn eval_ro<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    run(cx, args, false, true);
}

/// `EVALSHA sha1 numkeys [key …] [arg …]`.
pub(super) fn evalsha<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    run(cx, args, true, false);
}

/// `EVALSHA_RO sha1 numkeys [key …] [arg …]`.
pub(super) fn evalsha_ro<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    run(cx, args, true, true);
}

fn run<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>, by_digest: bool, is_ro: bool) {
    let [script, count] = first(&mut args);
    let count = match integer(count) {
        Ok(count) if count > args.len() as i64 => {
            return cx.error("ERR Number of keys can't be greater than number of args");
        }
        Ok(..0) => return cx.error("ERR Number of keys can't be negative"),
        Ok(count) => count as usize,
        Err(failure) => return cx.reply().error(&failure.0),
    };
    let shared = cx.shared;
    let script = if by_digest {
        digest(script)
            .and_then(|digest| shared.scripts.find(&digest))
            .ok_or_else(|| NO_SCRIPT.to_owned())
    } else {
        keep(cx, script)
    };
    let script = match script {
        Ok(script) => script,
        Err(error) => return cx.error(&error),
    };
    if is_ro && script.has_shebang && !script.is_read_only {
        return cx.error("ERR Can not execute a script with write flag using *_ro command.");
    }
    let elements: Vec<&[u8]> = args.collect();
    let (keys, args) = elements.split_at(count);
    let is_read_only = is_ro || script.is_read_only;
    let run = |cx: &mut Context<'_, E>| run_script(cx, &script, keys, args, is_read_only);
    if shared.config.script_keys == ScriptKeys::All {
        cx.atomically_on_all(run);
    } else {
        cx.atomically(keys.iter().copied(), run);
    }
}

/// The script with this text, compiled and kept for `EVALSHA`.
fn keep<E: Engine>(cx: &mut Context<'_, E>, text: &[u8]) -> Result<Arc<Script>, String> {
    let shared = cx.shared;
    let scripts = &shared.scripts;
    let script = scripts.find_or_parse(text)?;
    scripts::compile(scripts, cx.loop_index, &mut cx.script_time, &script)?;
    scripts.keep(&script);
    Ok(script)
}

fn run_script<E: Engine>(
    cx: &mut Context<'_, E>,
    script: &Arc<Script>,
    keys: &[&[u8]],
    args: &[&[u8]],
    is_read_only: bool,
) {
    let scripts = &cx.shared.scripts;
    let version = cx.codec.version();
    let run = scripts::Run {
        script,
        keys,
        args,
        loop_index: cx.loop_index,
        version,
        most: cx.most_replies(),
    };
    let database = cx.codec.database();
    let mut declared: Vec<_> = keys.iter().map(|key| cx.stored(key)).collect();
    declared.sort_unstable();
    let mut time = cx.script_time;
    let mut out = mem::take(cx.out);
    let mut caller = Caller {
        state: scripts.run_state(cx.loop_index),
        has_all_keys: cx.shared.config.script_keys == ScriptKeys::All,
        declared,
        is_read_only,
        cx,
    };
    let result = scripts::run(scripts, &run, &mut time, &mut caller, &mut out);
    cx.codec.set_version(version);
    cx.codec.set_database(database);
    *cx.out = out;
    cx.script_time = time;
    if let Err(error) = result {
        cx.error(&error);
    }
}

/// Executes the commands of one script.
struct Caller<'x, 'c, 'k, E: Engine> {
    cx: &'x mut Context<'c, E>,
    state: Arc<RunState>,
    /// Their stored keys, sorted.
    declared: Vec<Cow<'k, [u8]>>,
    has_all_keys: bool,
    is_read_only: bool,
}

impl<E: Engine> Caller<'_, '_, '_, E> {
    /// The command of a request and its subcommand, or why a script cannot have it.
    fn find(&self, request: Request<'_>) -> Result<[table::Command; 2], &'static str> {
        const UNKNOWN: &str = "ERR Unknown Redis command called from script";
        const NOT_ALLOWED: &str = "ERR This Redis command is not allowed from script";
        const WRONG_ARGUMENTS: &str = "ERR Wrong number of args calling Redis command from script";
        let args = request.args();
        let command = table::find(request.name()).ok_or_else(|| {
            let name = request.name();
            let is_elsewhere = ELSEWHERE
                .iter()
                .any(|other| other.as_bytes().eq_ignore_ascii_case(name));
            if is_elsewhere { NOT_ALLOWED } else { UNKNOWN }
        })?;
        if !command.accepts(args.len() + 1) {
            return Err(WRONG_ARGUMENTS);
        }
        let exact = match { args }.next() {
            Some(subcommand) if command.subcommands().next().is_some() => {
                command.subcommand(subcommand).ok_or(UNKNOWN)?
            }
            _ => command,
        };
        if !exact.accepts(args.len() + 1) {
            return Err(WRONG_ARGUMENTS);
        }
        if exact.has_flag("noscript") {
            return Err(NOT_ALLOWED);
        }
        if self.is_read_only && exact.has_flag("write") {
            return Err("ERR Write commands are not allowed from read-only scripts.");
        }
        let is_declared = |(n, key): (u8, &[u8])| {
            let stored = database::stored(n, key);
            self.declared.binary_search(&stored).is_ok()
        };
        let databases = self.cx.shared.config.databases;
        let mut keys = exact.places_of(args, self.cx.codec.database(), databases);
        // A request without the keys that it says it has is an error, which the command tells.
        let are_declared = keys.all(is_declared) || !exact.has_its_keys(args);
        if !self.has_all_keys && (exact.concerns_all_keys() || !are_declared) {
            return Err(UNDECLARED);
        }
        if exact.has_flag("write") && !self.state.may_write() {
            return Err("ERR Script killed by user with SCRIPT KILL.");
        }
        Ok([command, exact])
    }
}

impl<E: Engine> Commands for Caller<'_, '_, '_, E> {
    fn call(
        &mut self,
        request: Request<'_>,
        version: Version,
        reply: &mut Vec<u8>,
    ) -> Result<(), String> {
        let [command, exact] = self.find(request)?;
        let cx = &mut *self.cx;
        cx.counters.resp_calls += 1;
        cx.codec.set_version(version);
        // A reply that is cut is an error, which the script may catch: it concerns neither the next
        // command nor the transaction around the script.
        let were_cut = mem::take(&mut cx.replies_are_cut);
        mem::swap(cx.out, reply);
        cx.perform(command, exact, request);
        cx.replies_are_cut = were_cut;
        // Some commands end their reply early when it is too long.
        let is_too_long = transactions::is_too_long(cx);
        mem::swap(cx.out, reply);
        if is_too_long {
            return Err("ERR the reply of the command exceeds the maximum length".into());
        }
        Ok(())
    }
}

/// `SCRIPT EXISTS sha1 …`, `SCRIPT FLUSH [ASYNC | SYNC]`, `SCRIPT KILL`, `SCRIPT LOAD script`.
pub(super) fn script<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [subcommand] = first(&mut args);
    match subcommand.to_ascii_lowercase().as_slice() {
        b"exists" => exists(cx, args),
        b"flush" => flush(cx, args),
        b"kill" => kill(cx),
        b"load" => {
            let [text] = first(&mut args);
            match keep(cx, text) {
                Ok(script) => cx.reply().bulk(&script.digest),
                Err(error) => cx.error(&error),
            }
        }
        _ => cx.help("SCRIPT", "EXISTS, FLUSH, KILL, LOAD"),
    }
}

fn exists<E: Engine>(cx: &mut Context<'_, E>, digests: Args<'_>) {
    let scripts = &cx.shared.scripts;
    let mut reply = cx.reply();
    reply.array(digests.len());
    for text in digests {
        let script = digest(text).and_then(|digest| scripts.find(&digest));
        reply.integer(script.is_some().into());
    }
}

fn flush<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let is_known = match (args.next(), args.next()) {
        (None, _) => true,
        (Some(word), None) => {
            word.eq_ignore_ascii_case(b"async") || word.eq_ignore_ascii_case(b"sync")
        }
        _ => false,
    };
    if !is_known {
        return cx.error("ERR SCRIPT FLUSH only support SYNC|ASYNC option");
    }
    cx.shared.scripts.flush();
    cx.reply().simple("OK");
}

fn kill<E: Engine>(cx: &mut Context<'_, E>) {
    match cx.shared.scripts.kill(cx.loop_index) {
        Kill::Done | Kill::WasKilled => cx.reply().simple("OK"),
        Kill::NothingRuns => cx.error("NOTBUSY No scripts in execution right now."),
        Kill::HasWritten => cx.error(
            "UNKILLABLE Sorry the script already executed write commands against the dataset. You \
             can either wait the script termination or kill the server in a hard way using the \
             SHUTDOWN NOSAVE command.",
        ),
    }
}
