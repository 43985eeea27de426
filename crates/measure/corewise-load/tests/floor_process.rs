//! The empty responder as a separate process, beside two honest servers.
//!
//! This test has its own `main`, because the responder is this test program, started again.

mod common;

use std::process::ExitCode;

use common::{Lie, start};
use corewise_load::config::{FloorOptions, Protocol, ValueSize};
use corewise_load::report::TargetReport;
use corewise_load::{LoadConfig, Report, TargetRole, floor, run};

fn config(protocol: Protocol, multiget: u32) -> LoadConfig {
    LoadConfig {
        target: start(protocol, Lie::Nothing),
        floor: Some(FloorOptions {
            threads: 2,
            pin: Vec::new(),
        }),
        connections: 5,
        pipeline: 4,
        multiget,
        keys: 50,
        set_ratio: 0.3,
        seconds: 0.2,
        warmup_seconds: 0.0,
        slice_ms: 50,
        slice_warm_ms: 5,
        prefill: true,
        ..LoadConfig::default()
    }
}

/// The responder's part of a report.
fn floor_of(report: &Report) -> &TargetReport {
    let mut targets = report.targets.iter();
    let floor = targets.find(|target| target.role == TargetRole::Floor);
    floor.expect("asked for")
}

fn one(protocol: Protocol, multiget: u32, size: ValueSize) {
    let run_for = |seconds| {
        let config = LoadConfig {
            value_size: size,
            seconds,
            ..config(protocol, multiget)
        };
        run(&config, &mut |_| {}).expect("an honest server and a floor")
    };
    let is_enough = |report: &Report| floor_of(report).requests > 100 && floor_of(report).sets > 0;
    // A busy machine may leave the threads next to nothing of a short run.
    let mut reports = [0.2, 2.0, 20.0].into_iter().map(run_for);
    let report = reports.find(is_enough);
    let report = report.unwrap_or_else(|| panic!("{protocol} {multiget}: few requests"));
    let floor = floor_of(&report);
    assert_eq!(floor.hit_rate, Some(1.0));
    let cpu = floor.cpu_ns_per_request.expect("a process").median;
    assert!(cpu > 0.0 && cpu < 1e6, "{cpu}");
    assert!(report.targets[0].net_ns_per_request.is_some());
    assert!(report.to_string().contains("empty responder"));
}

fn other_protocol_gets_its_own_floor() {
    let config = LoadConfig {
        vs: Some(start(Protocol::Resp, Lie::Nothing)),
        ..config(Protocol::Memcached, 1)
    };
    let report = run(&config, &mut |_| {}).expect("honest servers");
    let roles: Vec<TargetRole> = report.targets.iter().map(|t| t.role).collect();
    assert_eq!(
        roles,
        [
            TargetRole::A,
            TargetRole::B,
            TargetRole::Floor,
            TargetRole::FloorB
        ]
    );
    assert_eq!(report.slices.len() as u64, 4 * config.rounds());
    assert!(report.to_flat().contains("ratios.cpu_net.ratio.median "));
    assert!(report.to_json().contains("\"requests_per_s\""));
}

fn main() -> ExitCode {
    floor::maybe_run_from_env();
    let fixed = ValueSize { min: 32, max: 32 };
    for protocol in [Protocol::Memcached, Protocol::Meta, Protocol::Resp] {
        one(protocol, 1, fixed);
        one(protocol, 6, fixed);
    }
    one(
        Protocol::Memcached,
        1,
        ValueSize {
            min: 1,
            max: 100_000,
        },
    );
    one(Protocol::Cphash, 1, fixed);
    other_protocol_gets_its_own_floor();
    println!("floor_process: ok");
    ExitCode::SUCCESS
}
