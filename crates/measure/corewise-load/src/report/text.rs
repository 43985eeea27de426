//! The report as text.

use std::fmt::{Formatter, Result};

use super::{LoadSummary, Percentiles, Report, TargetReport};
use crate::config::LoadMode;
use crate::measured_target::TargetRole;
use corewise_measure::stats::Spread;

/// Writes the whole report.
pub(crate) fn write(report: &Report, f: &mut Formatter<'_>) -> Result {
    let m = &report.machine;
    writeln!(
        f,
        "machine  {}, {} CPUs, Linux {}, {}",
        m.cpu, m.cpus, m.kernel, m.date
    )?;
    writeln!(
        f,
        "pages    transparent huge pages: {}",
        m.transparent_hugepages
    )?;
    write_load(&report.load, f)?;
    for target in &report.targets {
        write_identity(target, f)?;
    }
    writeln!(f)?;
    write_table(report, f)?;
    if !report.ratios.is_empty() {
        write_ratios(report, f)?;
    }
    for note in &report.notes {
        writeln!(f, "note: {note}")?;
    }
    Ok(())
}

fn write_load(summary: &LoadSummary, f: &mut Formatter<'_>) -> Result {
    let load = &summary.config;
    match load.mode {
        LoadMode::Closed => write!(f, "load     closed loop, pipeline {}", load.pipeline)?,
        LoadMode::Open { rate, .. } => write!(f, "load     open loop, {rate} requests/s")?,
    }
    writeln!(
        f,
        ", {} connections, {} client thread(s) {}, multiget {}, {:.1} % sets",
        load.connections,
        load.threads,
        cpus(&load.pin),
        load.multiget,
        load.set_ratio * 100.0
    )?;
    let all = if load.prefill {
        ", all stored first"
    } else {
        ""
    };
    writeln!(
        f,
        "keys     {} of {} bytes, {}{all}; values {} bytes; seed {}",
        load.keys, load.key_size, load.distribution, load.value_size, load.seed
    )?;
    writeln!(
        f,
        "slices   {} rounds of {} ms each, the first {} ms discarded, random order",
        summary.rounds, load.slice_ms, load.slice_warm_ms
    )
}

fn cpus(pin: &[usize]) -> String {
    if pin.is_empty() {
        "not pinned".into()
    } else {
        format!("on CPU {pin:?}")
    }
}

/// The name of a role in the report.
fn name(role: TargetRole) -> &'static str {
    match role {
        TargetRole::A => "A",
        TargetRole::B => "B",
        TargetRole::Floor => "floor",
        TargetRole::FloorB => "floor B",
    }
}

fn write_identity(target: &TargetReport, f: &mut Formatter<'_>) -> Result {
    let id = &target.identity;
    let version = id.version.as_deref().unwrap_or("version unknown");
    write!(
        f,
        "{:<8} {} {}, {version}",
        name(target.role),
        target.address,
        target.protocol
    )?;
    if let Some(threads) = id.threads {
        write!(f, ", {threads} thread(s)")?;
    }
    if let Some(allocator) = &id.allocator {
        write!(f, ", {allocator}")?;
    }
    if let (Some(pid), Some(source)) = (target.pid, target.cpu_source) {
        write!(f, ", process {pid}, CPU time by {source}")?;
    }
    if let Some(kib) = target.memory.rss_kib {
        write!(f, ", {} MiB resident", kib >> 10)?;
    }
    if let Some(kib) = target.memory.huge_kib {
        write!(f, " ({} MiB in huge pages)", kib >> 10)?;
    }
    writeln!(f)
}

fn us(ns: f64) -> String {
    format!("{:.3}", ns / 1000.0)
}

/// A median and its interval in microseconds.
fn spread_us(spread: Option<Spread>) -> String {
    spread.map_or("-".into(), |s| {
        format!("{} [{}-{}]", us(s.median), us(s.low), us(s.high))
    })
}

fn write_table(report: &Report, f: &mut Formatter<'_>) -> Result {
    writeln!(
        f,
        "{:<8} {:>10} {:>10} {:>8}  {:<22} {:<22} {:<10} {:<10}",
        "",
        "requests/s",
        "keys/s",
        "hits",
        "cpu/req us [95 %]",
        "net us [95 %]",
        "cpu/key us",
        "client us"
    )?;
    for t in &report.targets {
        let median = |s: Option<Spread>| s.map_or(0.0, |s| s.median);
        let single = |s: Option<Spread>| s.map_or("-".into(), |s| us(s.median));
        writeln!(
            f,
            "{:<8} {:>10.0} {:>10.0} {:>8}  {:<22} {:<22} {:<10} {:<10}",
            name(t.role),
            median(t.requests_per_s),
            median(t.keys_per_s),
            t.hit_rate
                .map_or("-".into(), |r| format!("{:.2} %", r * 100.0)),
            spread_us(t.cpu_ns_per_request),
            spread_us(t.net_ns_per_request),
            single(t.cpu_ns_per_key),
            single(t.client_ns_per_request),
        )?;
    }
    writeln!(f, "\nlatency in us, {}", report.load.latency_is)?;
    let heads = ["p50", "p90", "p99", "p99.9", "p99.99", "max"];
    write!(f, "{:<18}", "")?;
    heads.iter().try_for_each(|head| write!(f, " {head:>10}"))?;
    writeln!(f)?;
    for t in &report.targets {
        write_percentiles(name(t.role), &t.latency, f)?;
        if let Some(lag) = &t.lag {
            write_percentiles(&format!("{} sent late", name(t.role)), lag, f)?;
        }
    }
    Ok(())
}

fn write_percentiles(name: &str, p: &Percentiles, f: &mut Formatter<'_>) -> Result {
    write!(f, "{name:<18}")?;
    for ns in [
        p.p50_ns, p.p90_ns, p.p99_ns, p.p999_ns, p.p9999_ns, p.max_ns,
    ] {
        write!(f, " {:>10.1}", ns as f64 / 1000.0)?;
    }
    writeln!(f)
}

fn write_ratios(report: &Report, f: &mut Formatter<'_>) -> Result {
    writeln!(f, "\nA / B, by round: median [95 %] (least to greatest)")?;
    for ratio in &report.ratios {
        let Some(s) = ratio.ratio else {
            writeln!(f, "{:<16} no round had one", ratio.metric)?;
            continue;
        };
        write!(
            f,
            "{:<16} {:.3} [{:.3}-{:.3}] ({:.3} to {:.3}), {} rounds",
            ratio.metric, s.median, s.low, s.high, s.min, s.max, s.rounds
        )?;
        match ratio.rounds_left_out {
            0 => writeln!(f)?,
            n => writeln!(f, ", {n} left out (not above the floor)")?,
        }
    }
    Ok(())
}
