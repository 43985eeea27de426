//! Commands on the server.

use super::{Context, first, glob, text, until_nul};
use crate::codec::Answered;
use crate::config::Eviction;
use crate::metrics;
use corewise_engine::Engine;
use corewise_ops::Deadline;
use corewise_wire::resp::{Args, parse_integer};

/// The longest patterns of one `CONFIG GET`, in bytes: each is matched with each parameter.
const MAX_PATTERNS: usize = 4 * glob::MAX_PATTERN;

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

/// `DBSIZE`.
pub(super) fn dbsize<E: Engine>(cx: &mut Context<'_, E>, _: Args<'_>) {
    let items = cx.engine.stats().items;
    cx.reply().integer(items as i64);
}

/// `FLUSHALL [ASYNC | SYNC]`, `FLUSHDB [ASYNC | SYNC]`: all items are hidden at once, and their
/// memory is given back in steps.
pub(super) fn flush<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let is_known = match (args.next(), args.next()) {
        (None, _) => true,
        (Some(word), None) => {
            word.eq_ignore_ascii_case(b"async") || word.eq_ignore_ascii_case(b"sync")
        }
        _ => false,
    };
    if !is_known {
        return cx.error(text::SYNTAX);
    }
    if !cx.shared.config.enable_flush {
        return cx.error("ERR flushing is disabled");
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

/// The parameters of `CONFIG GET`, and their values.
fn parameters<E: Engine>(cx: &Context<'_, E>) -> [(&'static str, String); 9] {
    let config = &cx.shared.config;
    let policy = match config.eviction {
        Eviction::None => "noeviction",
        Eviction::Random => "allkeys-random",
        Eviction::Lru => "allkeys-lru",
        // The closest that Redis has: items that are not used again are evicted first.
        Eviction::Default | Eviction::S3Fifo => "allkeys-lfu",
    };
    let timeout_s = config.idle_timeout.map_or(0, |timeout| timeout.as_secs());
    [
        ("appendonly", "no".into()),
        ("databases", "1".into()),
        ("io-threads", config.threads.to_string()),
        ("maxclients", config.max_connections.to_string()),
        ("maxmemory", cx.engine.memory_limit().to_string()),
        ("maxmemory-policy", policy.into()),
        (
            "proto-max-bulk-len",
            cx.shared.limits.resp.max_bulk.to_string(),
        ),
        ("save", String::new()),
        ("timeout", timeout_s.to_string()),
    ]
}

/// `CONFIG GET pattern …`, `CONFIG SET maxmemory bytes`, `CONFIG RESETSTAT`.
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
    let is_wanted = |name: &str| {
        let mut patterns = patterns;
        patterns.any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
    };
    let wanted: Vec<_> = all.iter().filter(|(name, _)| is_wanted(name)).collect();
    let mut reply = cx.reply();
    reply.map(wanted.len());
    for (name, value) in wanted {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
}

/// `CONFIG SET parameter value …`, of which there is one parameter.
fn config_set<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    if !args.len().is_multiple_of(2) {
        return cx.error(text::SYNTAX);
    }
    let is_known = |name: &&[u8]| name.eq_ignore_ascii_case(b"maxmemory");
    if let Some(name) = args.step_by(2).find(|name| !is_known(name)) {
        return cx.reply().error(&[
            b"ERR Unknown option or number of arguments for CONFIG SET - '",
            until_nul(name),
            b"'",
        ]);
    }
    let given = args.len();
    let [_, value] = first(&mut args);
    // As in `cache_memlimit` of memcached, 0 does not mean that there is no limit.
    let why = match memory(value) {
        _ if given > 2 => "duplicate parameter",
        None => "argument must be a memory value",
        Some(..MIN_MEMORY) => "argument must be at least 1mb",
        Some(bytes) if bytes > cx.engine.most_memory() => {
            "argument is more than can be set at run time"
        }
        Some(bytes) => {
            cx.engine.set_memory_limit(bytes);
            return cx.reply().simple("OK");
        }
    };
    cx.reply().error(&[
        b"ERR CONFIG SET failed (possibly related to argument 'maxmemory') - ",
        why.as_bytes(),
    ]);
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
    let card = &cx.shared.loops[cx.loop_index];
    card.counts.publish(cx.counters);
    let is_wanted = |section: &str| {
        let names = [section, "all", "default", "everything"];
        let mut words = args;
        let is_name = |word: &[u8]| {
            names
                .iter()
                .any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
        };
        args.len() == 0 || words.any(is_name)
    };
    let text = metrics::info(cx.shared, &**cx.engine, cx.parse.now, is_wanted);
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
