//! What commands that are not about one key are parsed into.

use crate::common;

use bumpalo::Bump;
use common::{NOW, says, talk_with};
use corewise_ops::Deadline;
use corewise_wire::memcached::{
    Admin, Classes, Codec, Crawl, DumpFormat, Limits, StatsRequest, Step, VERSION_LINE,
};

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
    asks(
        &limits,
        "cache_memlimit 64",
        Admin::CacheMemlimit {
            megabytes: 64,
            noreply: false,
        },
    );
}

#[test]
fn shutdown_must_be_enabled() {
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
}
