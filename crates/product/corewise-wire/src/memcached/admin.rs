//! The commands that only a server can execute, and authentication.

use corewise_ops::Deadline;

use super::MAX_COMMAND_LINE;
use super::Step;
use super::binary::BinaryRequest;
use super::codec::{Codec, CommandLine, Context};
use super::reply;
use super::scan::{Args, exptime_token, i64_token, u32_token};
use super::time::flush_at;

/// Largest share of the memory, in percent, that memcached gives its hot and warm queues together.
const MOST_HOT_AND_WARM: u64 = 80;

/// A command that only the server can execute. Its arguments are checked; the server executes it,
/// and replies unless `noreply` is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admin<'i> {
    /// `stats`: print with [`StatsWriter`](super::StatsWriter).
    Stats(StatsRequest<'i>),
    /// `flush_all`: every item written before expires. Reply `OK`.
    FlushAll {
        /// When; `None` means at once.
        at: Option<Deadline>,
        /// Whether to send no reply.
        noreply: bool,
    },
    /// `verbosity`: set the log level. Reply `OK`.
    Verbosity {
        /// The level; memcached treats anything larger than 2 as 2.
        level: u32,
        /// Whether to send no reply.
        noreply: bool,
    },
    /// `cache_memlimit`: change the memory limit. Reply `OK` or [`reply::MEMLIMIT_FAILED`].
    CacheMemlimit {
        /// The new limit, 8 to 10^9.
        megabytes: u32,
        /// Whether to send no reply.
        noreply: bool,
    },
    /// `shutdown`: close this connection and stop.
    Shutdown {
        /// Whether to finish the current requests first.
        graceful: bool,
    },
    /// Credentials: `user password` (see [`credentials`]). Reply [`reply::STORED`] and call
    /// [`Codec::set_authenticated`], or reply [`reply::AUTH_FAILURE`].
    Authenticate {
        /// The data block.
        payload: &'i [u8],
    },
    /// The first request of a client that speaks the binary protocol. Parse it again with
    /// [`binary::Codec`](crate::binary::Codec), or reply [`refusal`](BinaryRequest::refusal), and
    /// close the connection.
    Binary(BinaryRequest),
    /// `lru_crawler` except the dumps. Reply `OK`.
    Crawler(Crawl<'i>),
    /// `lru_crawler metadump` or `mgdump`: print all keys.
    Dump {
        /// The format.
        format: DumpFormat,
        /// The size classes to dump.
        classes: Classes<'i>,
    },
}

/// The requested group of statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatsRequest<'i> {
    /// `stats`.
    General,
    /// `stats settings`.
    Settings,
    /// `stats items`.
    Items,
    /// `stats slabs`.
    Slabs,
    /// `stats sizes`.
    Sizes,
    /// `stats sizes_enable`.
    SizesEnable,
    /// `stats sizes_disable`.
    SizesDisable,
    /// `stats conns`.
    Conns,
    /// `stats reset`: reply `RESET`.
    Reset,
    /// `stats detail on`: reply `OK`.
    DetailOn,
    /// `stats detail off`: reply `OK`.
    DetailOff,
    /// `stats detail dump`.
    DetailDump,
    /// `stats cachedump CLASS LIMIT`.
    Cachedump {
        /// The size class, at most [`Limits::size_classes`](super::Limits::size_classes).
        class: u32,
        /// Maximum number of items; zero means all.
        limit: u32,
    },
    /// Any other word. Reply `ERROR`, unless the server has such a group.
    Unknown(&'i [u8]),
}

/// An order to the crawler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Crawl<'i> {
    /// Start the crawler.
    Enable,
    /// Stop the crawler.
    Disable,
    /// Sleep for this many microseconds between items (at most a second).
    SleepMicros(u32),
    /// Maximum number of items to examine per class.
    Limit(u32),
    /// Reclaim the expired items of these classes.
    Crawl(Classes<'i>),
}

/// Size classes: `all`, or numbers separated by commas; `hash`, which requests a walk over the hash
/// table, also means all of them.
///
/// ```
/// use corewise_wire::memcached::Classes;
/// let classes = Classes::parse(b"1,3", 63).unwrap();
/// assert!(classes.contains(3) && !classes.contains(2));
/// assert!(Classes::parse(b"all", 63).unwrap().contains(2));
/// assert_eq!(Classes::parse(b"1,64", 63), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes<'i> {
    /// A checked list; `None` means all.
    list: Option<&'i [u8]>,
}

impl<'i> Classes<'i> {
    /// Every class.
    pub const ALL: Self = Self { list: None };

    /// Parses `all`, `hash`, or numbers from 1 to `last` separated by commas; `None` for any other
    /// text.
    #[must_use]
    pub fn parse(text: &'i [u8], last: u32) -> Option<Self> {
        if matches!(text, b"all" | b"hash") {
            return Some(Self::ALL);
        }
        let list = Self { list: Some(text) };
        let is_class = |class: Option<u32>| class.is_some_and(|class| (1..=last).contains(&class));
        list.numbers().all(is_class).then_some(list)
    }

    /// Whether a class is included.
    #[must_use]
    pub fn contains(self, class: u32) -> bool {
        self.list.is_none() || self.numbers().any(|number| number == Some(class))
    }

    fn numbers(self) -> impl Iterator<Item = Option<u32>> {
        let parts = self.list.unwrap_or_default().split(|&byte| byte == b',');
        parts.filter(|part| !part.is_empty()).map(u32_token)
    }
}

/// The format of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpFormat {
    /// [`StatsWriter::metadump`](super::StatsWriter::metadump).
    Metadump,
    /// [`StatsWriter::mgdump`](super::StatsWriter::mgdump).
    Mgdump,
}

/// Splits credentials at the first blank: a user and a password, which may itself contain blanks.
///
/// ```
/// use corewise_wire::memcached::credentials;
/// assert_eq!(credentials(b"ann se cret"), Some((&b"ann"[..], &b"se cret"[..])));
/// assert_eq!(credentials(b"ann"), None);
/// ```
#[must_use]
pub fn credentials(payload: &[u8]) -> Option<(&[u8], &[u8])> {
    let blank = memchr::memchr(b' ', payload)?;
    Some((&payload[..blank], &payload[blank + 1..]))
}

/// Parses a request of a connection that has not authenticated.
pub(super) fn authenticate<'i>(codec: &mut Codec, line: CommandLine<'i>) -> Step<'i> {
    let args = Args::split(line.args);
    let length = match line.word {
        b"set" if args.count >= 4 => u32_token(args.get(3)),
        _ => None,
    };
    let Some(length) = length else {
        return Step::frame(line.len, reply::UNAUTHENTICATED);
    };
    if length as usize > MAX_COMMAND_LINE {
        codec.swallow(u64::from(length) + 2);
        return Step::frame(line.len, reply::AUTH_BAD_TOKEN);
    }
    let consumed = line.len + length as usize + 2;
    let bytes = match line.input.get(line.len..consumed) {
        None => return Step::Incomplete { need: consumed },
        Some([payload @ .., b'\r', b'\n']) if credentials(payload).is_some() => {
            return Step::Call {
                consumed,
                call: Admin::Authenticate { payload },
            };
        }
        Some([.., b'\r', b'\n']) => reply::AUTH_BAD_TOKEN,
        Some(_) => reply::AUTH_BAD_TERMINATION,
    };
    Step::frame(consumed, bytes)
}

/// The result of parsing a command line.
enum ParsedLine<'i> {
    Do(Admin<'i>),
    Say(&'static [u8]),
    HangUp,
}

use ParsedLine::{Do, HangUp, Say};

/// Parses any command that is not about one key.
pub(super) fn command<'i>(line: CommandLine<'i>, cx: Context<'_, 'i>) -> Step<'i> {
    let consumed = line.len;
    let args = Args::split(line.args);
    let noreply = args.noreply();
    let verdict = match line.word {
        b"version" => {
            return Step::frame(consumed, cx.limits.version);
        }
        b"quit" => HangUp,
        b"stats" => stats(&args, cx),
        b"shutdown" => shutdown(&args, cx),
        b"lru_crawler" => crawler(&args, cx),
        b"flush_all" if args.count <= 2 => silenced(flush_all(&args, cx), noreply),
        b"verbosity" if (1..=2).contains(&args.count) => silenced(verbosity(&args), noreply),
        b"cache_memlimit" if (1..=2).contains(&args.count) => silenced(memlimit(&args), noreply),
        b"slabs" => slabs(&args, cx),
        b"lru" => silenced(Say(lru(&args)), noreply),
        b"watch" => silenced(Say(reply::WATCH_NOT_ALLOWED), noreply),
        _ if args.last.starts_with(b"HTTP/") => HangUp,
        _ => Say(reply::ERROR),
    };
    match verdict {
        Do(admin) => Step::Call {
            consumed,
            call: admin,
        },
        Say(b"") => Step::Skip { consumed },
        Say(bytes) => Step::frame(consumed, bytes),
        HangUp => Step::Close { reply: b"" },
    }
}

/// Suppresses a reply if `noreply` is set.
fn silenced(verdict: ParsedLine<'_>, noreply: bool) -> ParsedLine<'_> {
    match verdict {
        Say(_) if noreply => Say(b""),
        verdict => verdict,
    }
}

/// `stats [WORD …]`.
fn stats<'i>(args: &Args<'i>, cx: Context<'_, 'i>) -> ParsedLine<'i> {
    Do(Admin::Stats(match args.get(0) {
        b"" => StatsRequest::General,
        b"reset" => StatsRequest::Reset,
        b"settings" => StatsRequest::Settings,
        b"items" => StatsRequest::Items,
        b"slabs" => StatsRequest::Slabs,
        b"sizes" => StatsRequest::Sizes,
        b"sizes_enable" => StatsRequest::SizesEnable,
        b"sizes_disable" => StatsRequest::SizesDisable,
        b"conns" => StatsRequest::Conns,
        b"detail" if !cx.limits.dump_enabled => return Say(reply::STATS_DETAIL_NOT_ALLOWED),
        b"detail" => match args.get(1) {
            b"on" => StatsRequest::DetailOn,
            b"off" => StatsRequest::DetailOff,
            b"dump" => StatsRequest::DetailDump,
            _ => return Say(reply::STATS_DETAIL_USAGE),
        },
        b"cachedump" => return cachedump(args, cx),
        other => StatsRequest::Unknown(other),
    }))
}

/// `stats cachedump CLASS LIMIT`.
fn cachedump<'i>(args: &Args<'i>, cx: Context<'_, 'i>) -> ParsedLine<'i> {
    if !cx.limits.dump_enabled {
        return Say(reply::CACHEDUMP_NOT_ALLOWED);
    }
    if args.count < 3 {
        return Say(reply::STATS_BAD_LINE);
    }
    match (u32_token(args.get(1)), u32_token(args.get(2))) {
        (Some(class), Some(_)) if class > cx.limits.size_classes => Say(reply::CACHEDUMP_BAD_CLASS),
        (Some(class), Some(limit)) => Do(Admin::Stats(StatsRequest::Cachedump { class, limit })),
        _ => Say(reply::BAD_FORMAT),
    }
}

/// `flush_all [DELAY] [noreply]`.
fn flush_all<'i>(args: &Args<'i>, cx: Context<'_, 'i>) -> ParsedLine<'i> {
    if !cx.limits.flush_enabled {
        return Say(reply::FLUSH_NOT_ALLOWED);
    }
    let noreply = args.noreply();
    if args.count == usize::from(noreply) {
        return Do(Admin::FlushAll { at: None, noreply });
    }
    match exptime_token(args.get(0)) {
        Some(seconds) => Do(Admin::FlushAll {
            at: flush_at(seconds, cx.now),
            noreply,
        }),
        None => Say(reply::BAD_EXPTIME),
    }
}

/// `verbosity LEVEL [noreply]`.
fn verbosity<'i>(args: &Args<'i>) -> ParsedLine<'i> {
    match u32_token(args.get(0)) {
        Some(level) => Do(Admin::Verbosity {
            level,
            noreply: args.noreply(),
        }),
        None => Say(reply::BAD_FORMAT),
    }
}

/// `cache_memlimit MEGABYTES [noreply]`.
fn memlimit<'i>(args: &Args<'i>) -> ParsedLine<'i> {
    match u32_token(args.get(0)) {
        None => Say(reply::ERROR),
        Some(..8) => Say(reply::MEMLIMIT_TOO_SMALL),
        Some(1_000_000_001..) => Say(reply::MEMLIMIT_IN_BYTES),
        Some(megabytes) => Do(Admin::CacheMemlimit {
            megabytes,
            noreply: args.noreply(),
        }),
    }
}

/// `shutdown [graceful]`.
fn shutdown<'i>(args: &Args<'i>, cx: Context<'_, 'i>) -> ParsedLine<'i> {
    if !cx.limits.shutdown_enabled {
        return Say(reply::SHUTDOWN_NOT_ENABLED);
    }
    match (args.count, args.get(0)) {
        (0, _) => Do(Admin::Shutdown { graceful: false }),
        (1, b"graceful") => Do(Admin::Shutdown { graceful: true }),
        _ => Say(reply::BAD_SHUTDOWN_MODE),
    }
}

/// `lru_crawler …`.
fn crawler<'i>(args: &Args<'i>, cx: Context<'_, 'i>) -> ParsedLine<'i> {
    let classes = args.get(1);
    let crawl = match (args.count, args.get(0)) {
        (1, b"enable") => Crawl::Enable,
        (1, b"disable") => Crawl::Disable,
        (2, b"crawl") if classes == b"hash" => return Say(reply::CRAWLER_BAD_CLASS),
        (2, b"crawl") => match Classes::parse(classes, cx.limits.size_classes) {
            Some(classes) => Crawl::Crawl(classes),
            None => return Say(reply::CRAWLER_BAD_CLASS),
        },
        (2, b"tocrawl") => match u32_token(classes) {
            Some(items) => Crawl::Limit(items),
            None => return Say(reply::BAD_FORMAT),
        },
        (2, b"sleep") => match u32_token(classes) {
            Some(micros @ ..=1_000_000) => Crawl::SleepMicros(micros),
            Some(_) => return Say(reply::CRAWLER_BAD_SLEEP),
            None => return Say(reply::BAD_FORMAT),
        },
        (2, b"metadump" | b"mgdump") => return dump(args.get(0), classes, cx),
        _ => return Say(reply::ERROR),
    };
    Do(Admin::Crawler(crawl))
}

/// `lru_crawler metadump|mgdump CLASSES`.
fn dump<'i>(word: &[u8], classes: &'i [u8], cx: Context<'_, 'i>) -> ParsedLine<'i> {
    let (format, refusal) = match word {
        b"metadump" => (DumpFormat::Metadump, reply::METADUMP_NOT_ALLOWED),
        _ => (DumpFormat::Mgdump, reply::MGDUMP_NOT_ALLOWED),
    };
    if !cx.limits.dump_enabled {
        return Say(refusal);
    }
    match Classes::parse(classes, cx.limits.size_classes) {
        Some(classes) => Do(Admin::Dump { format, classes }),
        None => Say(reply::CRAWLER_BAD_CLASS),
    }
}

/// `slabs …`: the arguments are checked as in memcached, but nothing changes: there are no slabs.
fn slabs<'i>(args: &Args<'i>, cx: Context<'_, 'i>) -> ParsedLine<'i> {
    match (args.count, args.get(0)) {
        (3, b"reassign") => Say(reassign(args, cx)),
        (2.., b"automove") => silenced(Say(automove(args)), args.noreply()),
        _ => Say(reply::ERROR),
    }
}

/// `slabs reassign SOURCE DESTINATION`: no class has a page to spare.
fn reassign(args: &Args<'_>, cx: Context<'_, '_>) -> &'static [u8] {
    let (Some(from), Some(to)) = (i64_token(args.get(1)), i64_token(args.get(2))) else {
        return reply::BAD_FORMAT;
    };
    // Class 0 is memcached's pool of free pages.
    let is_class = |class: i64| (0..=i64::from(cx.limits.size_classes)).contains(&class);
    if from == to {
        reply::SLABS_SAME
    } else if is_class(from) && is_class(to) {
        reply::SLABS_NO_SPARE
    } else {
        reply::SLABS_BAD_CLASS
    }
}

/// `slabs automove 0|1|2` or `slabs automove ratio NUMBER`.
fn automove(args: &Args<'_>) -> &'static [u8] {
    match (args.get(1), u32_token(args.get(1))) {
        (b"ratio", _) if number_token(args.get(2)).is_some() => reply::OK,
        (b"ratio", _) | (_, Some(3..)) => reply::ERROR,
        (_, Some(_)) => reply::OK,
        (_, None) => reply::BAD_FORMAT,
    }
}

/// `lru mode|tune|temp_ttl …`: the arguments are checked as in memcached, but nothing changes:
/// there are no such queues.
fn lru(args: &Args<'_>) -> &'static [u8] {
    match (args.count, args.get(0)) {
        (2.., b"mode") if matches!(args.get(1), b"flat" | b"segmented") => reply::OK,
        (2.., b"temp_ttl") if i64_token(args.get(1)).is_some() => reply::OK,
        (5.., b"tune") => lru_tune(args).unwrap_or(reply::ERROR),
        _ => reply::ERROR,
    }
}

/// `lru tune HOT WARM HOT_FACTOR WARM_FACTOR`: two percentages and two factors.
fn lru_tune(args: &Args<'_>) -> Option<&'static [u8]> {
    let percent = |index| u32_token(args.get(index)).map(u64::from);
    let (hot, warm) = (percent(1)?, percent(2)?);
    let factors = [number_token(args.get(3))?, number_token(args.get(4))?];
    Some(if hot + warm > MOST_HOT_AND_WARM {
        reply::LRU_TOO_MUCH
    } else if factors.iter().any(|factor| *factor <= 0.0) {
        reply::LRU_BAD_FACTOR
    } else {
        reply::OK
    })
}

/// A decimal number, with or without a fraction.
fn number_token(token: &[u8]) -> Option<f64> {
    let number = str::from_utf8(token).ok()?.parse();
    number.ok().filter(|number: &f64| number.is_finite())
}
