//! Guarantee 1: every wrong reply is detected, and an honest server passes.

use crate::common;

use common::{Lie, start};
use corewise_load::config::{Arrivals, LoadMode, Protocol, ValueSize};
use corewise_load::{LoadConfig, LoadError, Report, run};

fn config(protocol: Protocol, lie: Lie) -> LoadConfig {
    LoadConfig {
        target: start(protocol, lie),
        connections: 4,
        pipeline: 8,
        keys: 100,
        set_ratio: 0.2,
        seconds: 0.3,
        warmup_seconds: 0.0,
        slice_ms: 100,
        slice_warm_ms: 10,
        prefill: true,
        reply_timeout_ms: 500,
        ..LoadConfig::default()
    }
}

fn load(config: &LoadConfig) -> Result<Report, LoadError> {
    run(config, &mut |_| {})
}

/// Runs against a server that lies and returns the error, which must have exit code 3.
fn caught(protocol: Protocol, lie: Lie) -> String {
    let error = load(&config(protocol, lie)).expect_err("a lie went unnoticed");
    assert_eq!(error.exit_code(), 3, "{error}");
    error.to_string()
}

#[test]
fn an_honest_server_passes_in_every_protocol() {
    for protocol in [Protocol::Memcached, Protocol::Meta, Protocol::Resp] {
        for multiget in [1, 7] {
            let value_size = ValueSize { min: 0, max: 3000 };
            let config = LoadConfig {
                multiget,
                value_size,
                ..config(protocol, Lie::Nothing)
            };
            let report = load(&config).expect("honest");
            let a = &report.targets[0];
            assert_eq!(a.hit_rate, Some(1.0), "{protocol} {multiget}");
            assert!(a.requests > 100 && a.sets > 0 && a.latency.count == a.requests);
            let keys = a.sets + (a.requests - a.sets) * u64::from(multiget);
            assert_eq!(a.hits + a.misses + a.sets, keys);
        }
    }
}

fn cphash(lie: Lie) -> LoadConfig {
    config(Protocol::Cphash, lie)
}

#[test]
fn an_honest_server_of_cphash_passes() {
    for (pipeline, set_ratio) in [(1, 0.5), (8, 0.3), (5, 1.0)] {
        let config = LoadConfig {
            value_size: ValueSize { min: 1, max: 3000 },
            pipeline,
            set_ratio,
            ..cphash(Lie::Nothing)
        };
        let report = load(&config).expect("honest");
        let a = &report.targets[0];
        assert_eq!(a.hit_rate, Some(1.0));
        assert!(a.requests > 100 && a.latency.count == a.requests);
        assert_eq!(a.hits + a.misses + a.sets, a.requests);
        // A LOOKUP follows a batch that ends with an INSERT.
        let batches = f64::from(pipeline);
        let expected = batches * set_ratio / (batches + set_ratio);
        let share = a.sets as f64 / a.requests as f64;
        assert!((share - expected).abs() < 0.05, "{share}, not {expected}");
        assert!(report.notes.iter().any(|note| note.contains("INSERT")));
    }
}

#[test]
fn the_open_loop_closes_each_write_of_cphash_with_a_lookup() {
    let mode = LoadMode::Open {
        rate: 2000.0,
        arrivals: Arrivals::Poisson,
        max_outstanding: 64,
    };
    let config = LoadConfig {
        mode,
        pipeline: 1,
        set_ratio: 0.5,
        seconds: 1.0,
        ..cphash(Lie::Nothing)
    };
    let report = load(&config).expect("honest");
    let a = &report.targets[0];
    // 10 slices of 90 ms at 2000 requests per second are 1800 requests; half are INSERTs.
    assert!((2200..3100).contains(&a.requests), "{}", a.requests);
    assert!((700..1050).contains(&a.sets), "{}", a.sets);
    assert_eq!((a.overload, a.latency.count), (0, a.requests));
}

#[test]
fn lies_in_the_cphash_protocol_are_caught() {
    let caught = |lie| caught(Protocol::Cphash, lie);
    assert!(caught(Lie::WrongByte).contains("not what was stored"));
    assert!(caught(Lie::ShortValue).contains("has 5 bytes, not 32"));
    assert!(caught(Lie::HangUp).contains("closed a connection"));
    // "ERRO" is no size.
    assert!(caught(Lie::Refuse).contains("'ERRO' where"));
    let text = caught(Lie::DropReply);
    assert!(
        ["no reply for 500 ms", "wrong reply", "not what was stored"]
            .iter()
            .any(|part| text.contains(part)),
        "{text}"
    );
    // A miss and then values that answer the wrong requests, or none.
    caught(Lie::ExtraReply);
}

#[test]
fn inserts_that_a_server_refuses_show_as_misses() {
    let config = LoadConfig {
        prefill: false,
        set_ratio: 1.0,
        pipeline: 1,
        keys: 1_000_000,
        ..cphash(Lie::NoMemory)
    };
    let report = load(&config).expect("honest");
    let rate = report.targets[0].hit_rate.expect("lookups");
    assert!((rate - 0.9).abs() < 0.02, "{rate}");
}

#[test]
fn absent_keys_are_counted_as_misses() {
    for protocol in [Protocol::Memcached, Protocol::Meta, Protocol::Resp] {
        for multiget in [1, 7] {
            let base = config(protocol, Lie::Nothing);
            let config = LoadConfig {
                multiget,
                prefill: false,
                set_ratio: 0.0,
                ..base
            };
            let report = load(&config).expect("honest");
            assert_eq!(
                report.targets[0].hit_rate,
                Some(0.0),
                "{protocol} {multiget}"
            );
        }
    }
}

#[test]
fn several_threads_share_the_connections() {
    let config = LoadConfig {
        threads: 3,
        ..config(Protocol::Memcached, Lie::Nothing)
    };
    let report = load(&config).expect("honest");
    assert_eq!(report.targets[0].hit_rate, Some(1.0));
}

#[test]
fn the_open_loop_keeps_its_rate() {
    let mode = |arrivals| LoadMode::Open {
        rate: 2000.0,
        arrivals,
        max_outstanding: 64,
    };
    for arrivals in [Arrivals::Poisson, Arrivals::Constant] {
        let base = config(Protocol::Memcached, Lie::Nothing);
        let config = LoadConfig {
            mode: mode(arrivals),
            pipeline: 1,
            seconds: 1.0,
            ..base
        };
        let report = load(&config).expect("honest");
        let a = &report.targets[0];
        // 10 slices of 90 ms at 2000 requests per second are 1800 requests.
        assert!(
            (1500..2100).contains(&a.requests),
            "{arrivals:?}: {}",
            a.requests
        );
        assert_eq!(a.lag.expect("open loop").count, a.requests);
        assert_eq!(a.overload, 0);
    }
}

#[test]
fn too_many_outstanding_are_reported_as_overload() {
    let mode = LoadMode::Open {
        rate: 2e6,
        arrivals: Arrivals::Poisson,
        max_outstanding: 2,
    };
    let base = config(Protocol::Memcached, Lie::Nothing);
    let report = load(&LoadConfig {
        mode,
        pipeline: 1,
        ..base
    })
    .expect("honest");
    assert!(report.targets[0].overload > 0);
    assert!(
        report.notes.iter().any(|note| note.contains("OVERLOAD")),
        "{:?}",
        report.notes
    );
    assert!(report.to_string().contains("OVERLOAD"));
}

#[test]
fn a_wrong_byte_is_caught_in_every_protocol() {
    for protocol in [Protocol::Memcached, Protocol::Meta, Protocol::Resp] {
        assert!(caught(protocol, Lie::WrongByte).contains("not what was stored"));
        assert!(caught(protocol, Lie::ShortValue).contains("has 5 bytes, not 32"));
    }
}

#[test]
fn a_wrong_key_is_caught() {
    assert!(caught(Protocol::Memcached, Lie::WrongKey).contains("not asked for"));
}

#[test]
fn a_dropped_reply_is_caught() {
    let text = caught(Protocol::Memcached, Lie::DropReply);
    assert!(
        text.contains("no reply for 500 ms") || text.contains("wrong reply"),
        "{text}"
    );
}

#[test]
fn an_extra_reply_is_caught() {
    // The following reply answers the wrong request, or none.
    assert!(caught(Protocol::Memcached, Lie::ExtraReply).contains("wrong reply"));
}

#[test]
fn a_refusal_and_a_closed_connection_are_caught() {
    assert!(caught(Protocol::Memcached, Lie::Refuse).contains("SERVER_ERROR out of memory"));
    assert!(caught(Protocol::Memcached, Lie::HangUp).contains("closed a connection"));
}

#[test]
fn nobody_listening_is_an_error_of_one_line() {
    let mut config = config(Protocol::Memcached, Lie::Nothing);
    config.target.address = "127.0.0.1:1".parse().expect("valid");
    let error = load(&config).expect_err("nobody there");
    assert!(
        !error.to_string().contains('\n') && error.exit_code() == 1,
        "{error}"
    );
}
