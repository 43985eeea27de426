//! Commands that are not about one key, and authentication.

use crate::common;

use bumpalo::Bump;
use common::{NOW, Session, talk, talk_with, transcript};
use corewise_ops::Deadline;
use corewise_wire::memcached::{
    Admin, Classes, Codec, Crawl, DumpFormat, Limits, StatsRequest, Step, VERSION_LINE,
};

#[track_caller]
fn says(input: &str, expected: &str) {
    assert_eq!(talk(input.as_bytes()), expected, "to {input:?}");
}

/// Checks the admin command that a line is parsed into.
#[track_caller]
fn asks(limits: &Limits, line: &str, expected: Admin<'_>) {
    let input = format!("{line}\r\n");
    match Codec::new(false).next(input.as_bytes(), limits, NOW, &Bump::new()) {
        Step::Call {
            consumed,
            call: admin,
        } => {
            assert_eq!((consumed, admin), (input.len(), expected), "{line}");
        }
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn unknown_commands_are_errors() {
    for line in [
        "", " ", "a", "foo", "getx a", "mgx", "mx a", "bget a", "SET a",
    ] {
        says(&format!("{line}\r\n"), "ERROR\r\n");
    }
}

#[test]
fn an_http_request_hangs_up() {
    says("GET / HTTP/1.1\r\nHost: x\r\n", "<closed>");
    says("DELETE HTTP/1.1\r\n", "<closed>");
    says("POST /a b c d e f g h i j k l HTTP/1.0\r\n", "<closed>");
    says("get HTTP/1.1\r\n", "END\r\n");
}

#[test]
fn quit_hangs_up_and_nothing_behind_it_is_answered() {
    says("mn\r\nquit\r\nmn\r\n", "MN\r\n<closed>");
}

#[test]
fn version_says_what_the_limits_say() {
    says("version\r\n", std::str::from_utf8(VERSION_LINE).unwrap());
    let limits = Limits {
        version: b"VERSION 9\r\n",
        ..Limits::default()
    };
    assert_eq!(talk_with(limits, b"version\r\n"), "VERSION 9\r\n");
}

#[test]
fn stats_names_what_is_wanted() {
    let limits = Limits::default();
    for (line, request) in [
        ("stats", StatsRequest::General),
        ("stats settings", StatsRequest::Settings),
        ("stats items", StatsRequest::Items),
        ("stats slabs", StatsRequest::Slabs),
        ("stats sizes", StatsRequest::Sizes),
        ("stats sizes_enable", StatsRequest::SizesEnable),
        ("stats sizes_disable", StatsRequest::SizesDisable),
        ("stats conns", StatsRequest::Conns),
        ("stats reset", StatsRequest::Reset),
        ("stats detail on", StatsRequest::DetailOn),
        ("stats detail off", StatsRequest::DetailOff),
        ("stats detail dump", StatsRequest::DetailDump),
        (
            "stats cachedump 5 100",
            StatsRequest::Cachedump {
                class: 5,
                limit: 100,
            },
        ),
        ("stats foo", StatsRequest::Unknown(b"foo")),
    ] {
        asks(&limits, line, Admin::Stats(request));
    }
    says(
        "stats detail\r\n",
        "CLIENT_ERROR usage: stats detail on|off|dump\r\n",
    );
    says(
        "stats detail x\r\n",
        "CLIENT_ERROR usage: stats detail on|off|dump\r\n",
    );
    says("stats cachedump 1\r\n", "CLIENT_ERROR bad command line\r\n");
    says(
        "stats cachedump 1 x\r\n",
        "CLIENT_ERROR bad command line format\r\n",
    );
    says(
        "stats cachedump 64 1\r\n",
        "CLIENT_ERROR Illegal slab id\r\n",
    );
}

#[test]
fn dumps_can_be_forbidden() {
    let limits = Limits {
        dump_enabled: false,
        ..Limits::default()
    };
    for (line, reply) in [
        (
            "stats cachedump 1 1",
            "CLIENT_ERROR stats cachedump not allowed\r\n",
        ),
        (
            "stats detail on",
            "CLIENT_ERROR stats detail not allowed\r\n",
        ),
        ("lru_crawler metadump all", "ERROR metadump not allowed\r\n"),
        ("lru_crawler mgdump all", "ERROR key dump not allowed\r\n"),
    ] {
        assert_eq!(talk_with(limits, format!("{line}\r\n").as_bytes()), reply);
    }
}

#[test]
fn flush_all_takes_a_delay_and_noreply() {
    let limits = Limits::default();
    let later = Some(Deadline::after_ms(NOW, 5_000));
    for (line, at, noreply) in [
        ("flush_all", None, false),
        ("flush_all 0", None, false),
        ("flush_all -3", None, false),
        ("flush_all noreply", None, true),
        ("flush_all 0 noreply", None, true),
        ("flush_all 5", later, false),
        ("flush_all 5 noreply", later, true),
        ("flush_all 1800000005", later, false),
        ("flush_all 1700000000", None, false),
        ("flush_all 2147483648", None, false),
        ("flush_all 4294967295", None, false),
        ("flush_all 4294967296", None, false),
        ("flush_all 4294967301", later, false),
        ("flush_all -4294967291", later, false),
        ("flush_all 9223372036854775807", None, false),
    ] {
        asks(&limits, line, Admin::FlushAll { at, noreply });
    }
    says(
        "flush_all x\r\nflush_all 9223372036854775808\r\n",
        &"CLIENT_ERROR invalid exptime argument\r\n".repeat(2),
    );
    says("flush_all x noreply\r\nmn\r\n", "MN\r\n");
    says("flush_all 1 2 3\r\n", "ERROR\r\n");
    let off = Limits {
        flush_enabled: false,
        ..Limits::default()
    };
    assert_eq!(
        talk_with(off, b"flush_all\r\n"),
        "CLIENT_ERROR flush_all not allowed\r\n"
    );
    assert_eq!(talk_with(off, b"flush_all noreply\r\n"), "");
}

#[test]
fn verbosity_and_memory_limit_are_checked() {
    let limits = Limits::default();
    asks(
        &limits,
        "verbosity 1",
        Admin::Verbosity {
            level: 1,
            noreply: false,
        },
    );
    asks(
        &limits,
        "verbosity 0 noreply",
        Admin::Verbosity {
            level: 0,
            noreply: true,
        },
    );
    says(
        "verbosity x\r\n",
        "CLIENT_ERROR bad command line format\r\n",
    );
    says("verbosity\r\nverbosity 1 2 3\r\n", "ERROR\r\nERROR\r\n");
    asks(
        &limits,
        "cache_memlimit 64",
        Admin::CacheMemlimit {
            megabytes: 64,
            noreply: false,
        },
    );
    says(
        "cache_memlimit 7\r\n",
        "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n",
    );
    says(
        "cache_memlimit 1000000001\r\n",
        "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n",
    );
    says(
        "cache_memlimit x\r\ncache_memlimit\r\n",
        "ERROR\r\nERROR\r\n",
    );
    says("cache_memlimit 1 noreply\r\n", "");
}

#[test]
fn shutdown_must_be_enabled() {
    says("shutdown\r\n", "ERROR: shutdown not enabled\r\n");
    let limits = Limits {
        shutdown_enabled: true,
        ..Limits::default()
    };
    asks(&limits, "shutdown", Admin::Shutdown { graceful: false });
    asks(
        &limits,
        "shutdown graceful",
        Admin::Shutdown { graceful: true },
    );
    assert_eq!(
        talk_with(limits, b"shutdown foo\r\n"),
        "CLIENT_ERROR invalid shutdown mode\r\n"
    );
}

#[test]
fn the_crawler_takes_orders() {
    let limits = Limits::default();
    for (line, crawl) in [
        ("lru_crawler enable", Crawl::Enable),
        ("lru_crawler disable", Crawl::Disable),
        ("lru_crawler sleep 1000000", Crawl::SleepMicros(1_000_000)),
        ("lru_crawler tocrawl 7", Crawl::Limit(7)),
        (
            "lru_crawler crawl 1,2",
            Crawl::Crawl(Classes::parse(b"1,2", 63).unwrap()),
        ),
    ] {
        asks(&limits, line, Admin::Crawler(crawl));
    }
    let (format, classes) = (DumpFormat::Metadump, Classes::ALL);
    asks(
        &limits,
        "lru_crawler metadump all",
        Admin::Dump { format, classes },
    );
    let format = DumpFormat::Mgdump;
    asks(
        &limits,
        "lru_crawler mgdump all",
        Admin::Dump { format, classes },
    );
    for classes in ["0", "64", "300", "1,x", "x", "-1"] {
        for order in ["metadump", "mgdump", "crawl"] {
            says(
                &format!("lru_crawler {order} {classes}\r\n"),
                "BADCLASS invalid class id\r\n",
            );
        }
    }
    says(
        "lru_crawler sleep 1000001\r\n",
        "CLIENT_ERROR sleep must be one second or less\r\n",
    );
    says(
        "lru_crawler sleep x\r\n",
        "CLIENT_ERROR bad command line format\r\n",
    );
    says(
        "lru_crawler tocrawl x\r\n",
        "CLIENT_ERROR bad command line format\r\n",
    );
    says("lru_crawler\r\nlru_crawler foo\r\n", "ERROR\r\nERROR\r\n");
}

/// Commands for parts that do not exist here, and the replies of memcached 1.6.18.
const IDLE_ORDERS: &[(&str, &str)] = &[
    ("slabs", "ERROR"),
    ("slabs foo 1 2", "ERROR"),
    ("slabs reassign 1", "ERROR"),
    (
        "slabs reassign 1 2",
        "NOSPARE source class has no spare pages",
    ),
    (
        "slabs reassign 0 1",
        "NOSPARE source class has no spare pages",
    ),
    ("slabs reassign 1 1", "SAME src and dst class are identical"),
    (
        "slabs reassign -1 2",
        "BADCLASS invalid src or dst class id",
    ),
    (
        "slabs reassign 99 98",
        "BADCLASS invalid src or dst class id",
    ),
    ("slabs reassign x y", "CLIENT_ERROR bad command line format"),
    ("slabs reassign 1 2 noreply", "ERROR"),
    ("slabs automove", "ERROR"),
    ("slabs automove 0", "OK"),
    ("slabs automove 1", "OK"),
    ("slabs automove 2", "OK"),
    ("slabs automove 3", "ERROR"),
    ("slabs automove x", "CLIENT_ERROR bad command line format"),
    ("slabs automove ratio 0.8", "OK"),
    ("slabs automove ratio", "ERROR"),
    ("slabs automove ratio x", "ERROR"),
    (
        "slabs automove window 30",
        "CLIENT_ERROR bad command line format",
    ),
    ("lru", "ERROR"),
    ("lru foo 1", "ERROR"),
    ("lru mode flat", "OK"),
    ("lru mode segmented", "OK"),
    ("lru mode foo", "ERROR"),
    ("lru mode", "ERROR"),
    ("lru tune 10 25 0.1 2.0", "OK"),
    ("lru tune 10 25", "ERROR"),
    (
        "lru tune 50 50 0.1 2.0",
        "ERROR hot and warm pcts must not exceed 80",
    ),
    (
        "lru tune 10 25 0 0",
        "ERROR hot/warm age factors must be greater than 0",
    ),
    ("lru tune 10 25 x y", "ERROR"),
    ("lru tune x 25 0.1 2", "ERROR"),
    ("lru temp_ttl 30", "OK"),
    ("lru temp_ttl -1", "OK"),
    ("lru temp_ttl x", "ERROR"),
    ("lru temp_ttl", "ERROR"),
    ("watch mutations", "CLIENT_ERROR watch commands not allowed"),
];

#[test]
fn orders_to_parts_that_are_not_there_are_checked_and_change_nothing() {
    for (line, reply) in IDLE_ORDERS {
        says(&format!("{line}\r\n"), &format!("{reply}\r\n"));
    }
    for line in [
        "slabs automove 0",
        "lru mode flat",
        "lru tune 10 25 0.1 2.0",
        "lru temp_ttl 3",
    ] {
        says(&format!("{line} noreply\r\nmn\r\n"), "MN\r\n");
    }
}

/// Checks a conversation with a server that requires `ann secret`.
#[track_caller]
fn guarded(input: &str, expected: &str) {
    let mut session = Session::new(true, Limits::default());
    session.feed(input.as_bytes());
    assert_eq!(transcript(&session), expected, "to {input:?}");
}

#[test]
fn nothing_but_credentials_is_understood_before_authentication() {
    let refusal = "CLIENT_ERROR unauthenticated\r\n";
    guarded("get a\r\nmn\r\nversion\r\nquit\r\n\r\n", &refusal.repeat(5));
    guarded(
        "set a 0 0\r\nset a 0 0 x\r\nadd a 0 0 1\r\n",
        &refusal.repeat(3),
    );
}

#[test]
fn authentication_opens_the_connection() {
    guarded(
        "set any 0 0 10\r\nann secret\r\nset a 0 0 1\r\nx\r\nget a\r\n",
        "STORED\r\nSTORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
    );
}

#[test]
fn bad_credentials_can_be_tried_again() {
    guarded(
        "set a 0 0 7\r\nann foo\r\nget a\r\nset a 0 0 10\r\nann secret\r\nget a\r\n",
        "CLIENT_ERROR authentication failure\r\nCLIENT_ERROR unauthenticated\r\nSTORED\r\nEND\r\n",
    );
}

#[test]
fn malformed_credentials_are_named() {
    guarded(
        "set a 0 0 2\r\nhi\r\n",
        "CLIENT_ERROR bad authentication token format\r\n",
    );
    guarded(
        "set a 0 0 3\r\nabcde",
        "CLIENT_ERROR bad command line termination\r\n",
    );
    let long = format!("set a 0 0 5000\r\n{}\r\nmn\r\n", "x ".repeat(2500));
    guarded(
        &long,
        "CLIENT_ERROR bad authentication token format\r\nCLIENT_ERROR unauthenticated\r\n",
    );
}

#[test]
fn a_multiget_gets_no_long_line_before_authentication() {
    guarded(&format!("get {}", "a ".repeat(1100)), "<closed>");
}
