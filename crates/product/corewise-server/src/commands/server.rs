//! Commands on the server.

use super::glob::{self, Glob};
use super::keyspace::Removal;
use super::{Context, Progress, first, slowlog, text, until_nul};
use crate::codec::Answered;
use crate::metrics::{self, Sections};
use corewise_engine::Engine;
use corewise_ops::Deadline;
use corewise_ops::database::DATABASES;
use corewise_wire::resp::{Args, parse_integer};

/// The longest patterns of one `CONFIG GET`, in bytes: each is matched with each parameter.
const MAX_PATTERNS: usize = 4 * glob::MAX_PATTERN;

/// The most entries of the slow log that `CONFIG SET` accepts.
const MAX_SLOW_ENTRIES: i64 = slowlog::MAX_ENTRIES as i64;

/// The least memory that `CONFIG SET maxmemory` accepts.
const MIN_MEMORY: u64 = 1 << 20;

/// `TIME`.
pub(super) fn time<E: Engine>(cx: &mut Context<'_, E>, _: Args<'_>) {
    let now = cx.shared.clock.unix_time();
    let mut reply = cx.reply();
    reply.array(2);
    reply.bulk(now.as_secs().to_string().as_bytes());
    reply.bulk(now.subsec_micros().to_string().as_bytes());
}

/// `LASTSAVE`: the server never saves, and Redis tells when it started if it has not.
pub(super) fn lastsave<E: Engine>(cx: &mut Context<'_, E>, _: Args<'_>) {
    let started_s = cx.shared.started_s;
    cx.reply().integer(started_s as i64);
}

/// `MODULE LIST`.
pub(super) fn module<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [subcommand] = first(&mut args);
    if subcommand.eq_ignore_ascii_case(b"list") {
        cx.reply().array(0);
    } else {
        cx.help("MODULE", "LIST");
    }
}

/// `DBSIZE`.
pub(super) fn dbsize<E: Engine>(cx: &mut Context<'_, E>, _: Args<'_>) {
    let items = cx.engine.stats().items_of(cx.codec.database());
    cx.reply().integer(items as i64);
}

/// `FLUSHALL [ASYNC | SYNC]`: all items are hidden at once, and their memory is given back in steps.
pub(super) fn flushall<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    if !may_flush(cx, args) {
        return;
    }
    cx.counters.cmd_flush += 1;
    if !cx.follows_flush {
        cx.atomically_on_all(|cx| cx.engine.flush_all(Deadline::PAST, cx.parse.now));
    }
    if cx.transaction.is_none() {
        cx.answered = Answered::ByFlush;
    }
    cx.reply().simple("OK");
}

/// `FLUSHDB [ASYNC | SYNC]`: as [`flushall`] in database 0 if no other one has keys. Otherwise the
/// keys are deleted one after the other, in steps, and all keys of all databases are visited.
pub(super) fn flushdb<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    if !may_flush(cx, args) {
        return;
    }
    let mut is_of_all = cx.follows_flush;
    let removal = match cx.take_progress() {
        Some(Progress::Removal(removal)) => Some(removal),
        _ if is_of_all => None,
        _ => cx.atomically_on_all(|cx| {
            let (stats, selected) = (cx.engine.stats(), cx.codec.database());
            if selected > 0 {
                return (!stats.is_empty(selected)).then(Removal::new);
            }
            if !(1..DATABASES as u8).all(|other| stats.is_empty(other)) {
                return Some(Removal::new());
            }
            cx.engine.flush_all(Deadline::PAST, cx.parse.now);
            is_of_all = true;
            None
        }),
    };
    if removal.is_none_or(|removal| removal.finish(cx)) {
        if is_of_all && cx.transaction.is_none() {
            cx.answered = Answered::ByFlush;
        }
        cx.counters.cmd_flush += 1;
        cx.reply().simple("OK");
    }
}

/// Checks the arguments of a flush. Prints an error and returns false if it is not to be made.
fn may_flush<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) -> bool {
    let is_known = match (args.next(), args.next()) {
        (None, _) => true,
        (Some(word), None) => {
            word.eq_ignore_ascii_case(b"async") || word.eq_ignore_ascii_case(b"sync")
        }
        _ => false,
    };
    if !is_known {
        cx.error(text::SYNTAX);
        return false;
    }
    if !cx.shared.config.enable_flush {
        cx.error("ERR flushing is disabled");
        return false;
    }
    true
}

/// How `CONFIG SET` changes a parameter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Setting {
    /// Not at all: the value that it has is the only one that is accepted.
    Fixed,
    Memory,
    SlowerThan,
    SlowEntries,
}

/// A parameter of `CONFIG GET`.
struct Parameter {
    name: &'static str,
    value: String,
    setting: Setting,
}

/// The parameters of `CONFIG GET`, and their values.
fn parameters<E: Engine>(cx: &Context<'_, E>) -> Vec<Parameter> {
    let (config, slow_log) = (&cx.shared.config, &cx.shared.slow_log);
    let timeout_s = config.idle_timeout.map_or(0, |timeout| timeout.as_secs());
    let max_bulk = cx.shared.limits.resp.max_bulk;
    let fixed = [
        ("appendonly", "no".into()),
        ("databases", config.databases.to_string()),
        ("io-threads", config.threads.to_string()),
        ("latency-monitor-threshold", "0".into()),
        ("latency-tracking", "no".into()),
        ("maxclients", config.max_connections.to_string()),
        ("maxmemory-policy", config.eviction.policy().into()),
        ("notify-keyspace-events", String::new()),
        ("port", cx.shared.resp_port().to_string()),
        ("proto-max-bulk-len", max_bulk.to_string()),
        ("save", String::new()),
        ("timeout", timeout_s.to_string()),
    ];
    let changing = [
        (
            "maxmemory",
            cx.engine.memory_limit().to_string(),
            Setting::Memory,
        ),
        (
            "slowlog-log-slower-than",
            slow_log.threshold_us().to_string(),
            Setting::SlowerThan,
        ),
        (
            "slowlog-max-len",
            slow_log.most().to_string(),
            Setting::SlowEntries,
        ),
    ];
    let fixed = fixed.map(|(name, value)| (name, value, Setting::Fixed));
    let all = fixed.into_iter().chain(changing);
    let mut all: Vec<Parameter> = all
        .map(|(name, value, setting)| Parameter {
            name,
            value,
            setting,
        })
        .collect();
    all.sort_by_key(|parameter| parameter.name);
    all
}

/// `CONFIG GET pattern …`, `CONFIG SET parameter value …`, `CONFIG RESETSTAT`.
pub(super) fn config<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let subcommand = args.next().unwrap_or(b"");
    match subcommand.to_ascii_lowercase().as_slice() {
        b"get" => config_get(cx, args),
        b"set" => config_set(cx, args),
        b"resetstat" => {
            metrics::reset(cx.shared, &**cx.engine, cx.parse.now);
            cx.reply().simple("OK");
        }
        _ => cx.help("CONFIG", "GET, RESETSTAT, SET"),
    }
}

fn config_get<E: Engine>(cx: &mut Context<'_, E>, patterns: Args<'_>) {
    let (longest, sum) = patterns.fold((0, 0), |(longest, sum): (usize, usize), pattern| {
        (longest.max(pattern.len()), sum + pattern.len())
    });
    if longest > glob::MAX_PATTERN || sum > MAX_PATTERNS {
        return cx.error(text::LONG_PATTERN);
    }
    let all = parameters(cx);
    let patterns: Vec<_> = patterns.map(<[u8]>::to_ascii_lowercase).collect();
    let globs: Vec<_> = patterns.iter().map(|pattern| Glob::new(pattern)).collect();
    let is_wanted = |name: &str| globs.iter().any(|glob| glob.matches(name.as_bytes()));
    let wanted: Vec<_> = all.iter().filter(|one| is_wanted(one.name)).collect();
    let mut reply = cx.reply();
    reply.map(wanted.len());
    for parameter in wanted {
        reply.bulk(parameter.name.as_bytes());
        reply.bulk(parameter.value.as_bytes());
    }
}

/// `CONFIG SET parameter value …`: all are changed, or none.
fn config_set<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    if !args.len().is_multiple_of(2) {
        return cx.error(text::SYNTAX);
    }
    let all = parameters(cx);
    let mut changes: Vec<(&Parameter, &[u8])> = Vec::new();
    while args.len() > 0 {
        let [name, value] = first(&mut args);
        let is_named = |one: &&Parameter| name.eq_ignore_ascii_case(one.name.as_bytes());
        let Some(parameter) = all.iter().find(is_named) else {
            return cx.reply().error(&[
                b"ERR Unknown option or number of arguments for CONFIG SET - '",
                until_nul(name),
                b"'",
            ]);
        };
        if changes
            .iter()
            .any(|(other, _)| other.name == parameter.name)
        {
            return refuse(cx, parameter, "duplicate parameter");
        }
        changes.push((parameter, value));
    }
    let mut accepted = Vec::new();
    for (parameter, value) in changes {
        match number(cx, parameter, value) {
            Ok(number) => accepted.push((parameter.setting, number)),
            Err(why) => return refuse(cx, parameter, why),
        }
    }
    for (setting, number) in accepted {
        match setting {
            Setting::Fixed => {}
            Setting::Memory => cx.engine.set_memory_limit(number as u64),
            Setting::SlowerThan => cx.shared.slow_log.set_threshold_us(number),
            Setting::SlowEntries => cx.shared.slow_log.set_most(number as usize),
        }
    }
    cx.reply().simple("OK");
}

fn refuse<E: Engine>(cx: &mut Context<'_, E>, parameter: &Parameter, why: &str) {
    cx.reply().error(&[
        b"ERR CONFIG SET failed (possibly related to argument '",
        parameter.name.as_bytes(),
        b"') - ",
        why.as_bytes(),
    ]);
}

/// The number that a value means for a parameter, or why it cannot have that value.
fn number<E: Engine>(
    cx: &Context<'_, E>,
    parameter: &Parameter,
    value: &[u8],
) -> Result<i64, &'static str> {
    const NO_INTEGER: &str = "argument couldn't be parsed into an integer";
    match parameter.setting {
        Setting::Fixed if value.eq_ignore_ascii_case(parameter.value.as_bytes()) => Ok(0),
        Setting::Fixed => Err("can't set immutable config"),
        // As in `cache_memlimit` of memcached, 0 does not mean that there is no limit.
        Setting::Memory => match memory(value) {
            None => Err("argument must be a memory value"),
            Some(..MIN_MEMORY) => Err("argument must be at least 1mb"),
            Some(bytes) if bytes > cx.engine.most_memory() => {
                Err("argument is more than can be set at run time")
            }
            Some(bytes) => i64::try_from(bytes).map_err(|_| "argument must be a memory value"),
        },
        Setting::SlowerThan => match parse_integer(value) {
            Some(us @ -1..) => Ok(us),
            Some(_) => Err("argument must be between -1 and 9223372036854775807 inclusive"),
            None => Err(NO_INTEGER),
        },
        Setting::SlowEntries => match parse_integer(value) {
            Some(most @ 0..=MAX_SLOW_ENTRIES) => Ok(most),
            Some(_) => Err("argument must be between 0 and 1024 inclusive"),
            None => Err(NO_INTEGER),
        },
    }
}

/// Bytes with a unit as Redis has them: `1kb` is 1,024 bytes, `1k` is 1,000.
fn memory(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1_000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    let number = u64::try_from(parse_integer(number)?).ok()?;
    number.checked_mul(factor)
}

/// `INFO [section …]`.
pub(super) fn info<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    // What this transaction has counted so far.
    let state = &cx.shared.loops[cx.loop_index];
    state.counts.publish(cx.counters);
    let wanted = Sections::asked(args);
    let text = metrics::info(cx.shared, &**cx.engine, cx.parse.now, wanted);
    cx.reply().verbatim(*b"txt", text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::memory;

    #[test]
    fn units_of_memory_are_those_of_redis() {
        for (text, expected) in [
            ("1", Some(1)),
            ("2b", Some(2)),
            ("1k", Some(1_000)),
            ("1KB", Some(1_024)),
            ("3mb", Some(3 << 20)),
            ("1g", Some(1_000_000_000)),
            ("", None),
            ("mb", None),
            ("1tb", None),
            ("-1", None),
            ("99999999999gb", None),
        ] {
            assert_eq!(memory(text.as_bytes()), expected, "{text:?}");
        }
    }
}
