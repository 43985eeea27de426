//! Traces are replayed cache-aside, every value is checked, and the counts are correct.

use crate::common;

use common::{Lie, start};
use corewise_load::config::Protocol;
use corewise_load::{LoadError, ReplayConfig, ReplayReport, replay};
use corewise_measure::trace::{RequestKind, Trace, TraceConfig};

fn config(protocol: Protocol, model: &str, lie: Lie) -> ReplayConfig {
    ReplayConfig {
        target: start(protocol, lie),
        trace: TraceConfig {
            model: model.parse().expect("a model"),
            keys: 300,
            requests: 5_000,
            overwrites: 0.05,
            ..TraceConfig::default()
        },
        connections: 3,
        pipeline: 8,
        read_back: true,
        reply_timeout_ms: 2_000,
        ..ReplayConfig::default()
    }
}

fn play(config: &ReplayConfig) -> Result<ReplayReport, LoadError> {
    replay(config, &mut |_| {})
}

/// Distinct keys of the trace, their bytes, gets and overwrites.
fn expected(config: &ReplayConfig) -> (u64, u64, u64, u64) {
    let mut keys = std::collections::HashSet::new();
    let (mut bytes, mut gets) = (0, 0);
    for request in Trace::new(config.trace) {
        gets += u64::from(request.kind == RequestKind::Fetch);
        if keys.insert(request.key) {
            bytes += config.key_size as u64 + u64::from(request.value_bytes);
        }
    }
    (keys.len() as u64, bytes, gets, config.trace.requests - gets)
}

#[test]
fn an_unlimited_server_misses_each_key_about_once_and_holds_all() {
    for protocol in [Protocol::Memcached, Protocol::Meta, Protocol::Resp] {
        for model in [
            "zipf:1",
            "zipf-scan:1",
            "size-shift:1",
            "correlated",
            "drift:1",
        ] {
            let config = config(protocol, model, Lie::Nothing);
            let report = play(&config).expect("honest");
            let (keys, bytes, gets, overwrites) = expected(&config);
            assert_eq!(report.hits + report.misses, gets, "{protocol} {model}");
            assert_eq!(
                report.stores,
                report.misses + overwrites,
                "{protocol} {model}"
            );
            assert_eq!(report.latency.count, gets + report.stores);
            // A key may miss again until it is stored, at most a window later.
            let window = u64::from(config.connections * config.pipeline);
            assert!(report.misses <= keys + window * 40, "{}", report.misses);
            assert!(report.misses + overwrites >= keys);
            assert!(report.stored_bytes >= bytes);
            let live = report.live.expect("read back");
            assert_eq!((live.asked, live.found, live.bytes), (keys, keys, bytes));
            assert_eq!((report.refused, report.tenths.len()), (0, 10));
        }
    }
}

#[test]
fn turnover_stores_and_never_asks() {
    let report = play(&config(Protocol::Memcached, "turnover", Lie::Nothing)).expect("honest");
    assert_eq!((report.stores, report.hit_ratio), (5_000, None));
    assert_eq!(report.live.expect("read back").found, 5_000);
}

#[test]
fn a_rate_paces_the_trace() {
    let mut config = config(Protocol::Meta, "short-ttl:1", Lie::Nothing);
    config.paced = true;
    config.trace.rate_per_s = 10_000;
    let report = play(&config).expect("honest");
    // 5000 requests at 10000 per second; the last is due half a second after the first.
    assert!(report.elapsed_ns > 450_000_000, "{}", report.elapsed_ns);
    assert_eq!(report.lag.expect("paced").count, 5_000);
    assert!(report.to_flat().contains("replay.rate_per_s 10000"));
}

#[test]
fn a_wrong_byte_is_caught() {
    for (lie, words) in [
        (Lie::WrongByte, "not what was stored"),
        (Lie::ShortValue, "has 5 bytes"),
        (Lie::HangUp, "closed a connection"),
        (Lie::Refuse, "SERVER_ERROR out of memory"),
    ] {
        let mut config = config(Protocol::Memcached, "correlated:large", lie);
        // Popular keys have values much longer than the offset of the wrong byte.
        config.trace.keys = 5;
        let error = play(&config).expect_err("a lie went unnoticed");
        assert_eq!(error.exit_code(), 3, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_store_without_memory_is_counted() {
    for protocol in [Protocol::Memcached, Protocol::Meta, Protocol::Resp] {
        let report = play(&config(protocol, "zipf:1", Lie::NoMemory)).expect("honest");
        assert!(report.refused > 0, "{protocol}");
        assert!(report.to_string().contains("refused for lack of memory"));
    }
}

#[test]
fn both_formats_name_the_hit_ratio() {
    let report = play(&config(Protocol::Memcached, "zipf:1", Lie::Nothing)).expect("honest");
    assert!(report.to_flat().contains("\nreplay.hit_ratio 0."));
    assert!(report.to_json().contains("\"warm_hit_ratio\": 0."));
    assert!(report.to_string().contains("after the first two tenths"));
}
