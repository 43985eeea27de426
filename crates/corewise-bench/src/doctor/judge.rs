//! Judges facts. A limit is the value from which on an effect shows in results.

use corewise_measure::cpu::Rtm;

use super::Severity::{self, Note, Ok, Warn};
use super::{Facts, Finding, Measured};

/// Judges every known fact. Measures and reads nothing.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let of_files = [
        governor(facts),
        turbo(facts),
        smt(facts),
        Some(cpus(facts)),
        quota(facts),
        load(facts),
        huge_pages(facts),
        numa_balancing(facts),
        aslr(facts),
        memory(facts),
        swap(facts),
        Some(virtual_machine(facts)),
        mitigations(facts),
        Some(counter_rate(facts)),
        rtm(facts),
    ];
    let of_measured = facts.measured.iter().flat_map(|measured| {
        [
            clock(measured),
            counter_agreement(measured),
            jitter(measured),
            steal(measured),
            Some(noise(measured)),
            Some(perf_events(facts, measured)),
        ]
    });
    of_files.into_iter().chain(of_measured).flatten().collect()
}

/// A finding; its advice is given unless its severity is `Ok`.
fn finding(
    about: &'static str,
    severity: Severity,
    evidence: impl Into<String>,
    advice: &'static str,
) -> Finding {
    Finding {
        about,
        severity,
        evidence: evidence.into(),
        advice: if severity == Ok { "" } else { advice },
    }
}

/// Returns `bad` if `holds`.
fn when(holds: bool, bad: Severity) -> Severity {
    if holds { bad } else { Ok }
}

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

fn governor(facts: &Facts) -> Option<Finding> {
    let all = &facts.governors;
    let slow = all.iter().any(|governor| governor != "performance");
    let advice = "set it: cpupower frequency-set -g performance";
    (!all.is_empty()).then(|| finding("governor", when(slow, Warn), all.join(", "), advice))
}

fn turbo(facts: &Facts) -> Option<Finding> {
    let on = facts.turbo?;
    let advice = "off it holds one frequency whatever the temperature and the number of threads: \
                  echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo, or echo 0 > .../cpufreq/boost";
    Some(finding("turbo", when(on, Warn), on_off(on), advice))
}

fn smt(facts: &Facts) -> Option<Finding> {
    let on = facts.smt?;
    let advice = "pin one thread to a core first (compact, scatter), or echo off > /sys/devices/system/cpu/smt/control";
    Some(finding("SMT", when(on, Note), on_off(on), advice))
}

fn cpus(facts: &Facts) -> Finding {
    let Facts {
        cpus_online,
        cpus_allowed,
        ..
    } = facts;
    let mut evidence = format!("{cpus_allowed} of {cpus_online} may be used");
    let asked = facts.cpus_asked.unwrap_or(0);
    if asked > 0 {
        evidence.push_str(&format!(", {asked} asked for"));
    }
    let advice =
        "more threads than CPUs measure the scheduler: ask for fewer, or widen the affinity mask";
    finding("CPUs", when(asked > *cpus_allowed, Warn), evidence, advice)
}

fn quota(facts: &Facts) -> Option<Finding> {
    let quota = facts.cpu_quota?;
    let short = quota < facts.cpus_asked.unwrap_or(facts.cpus_allowed) as f64;
    let advice = "threads are stopped when it is used up: raise cpu.max of the control group, or use fewer threads";
    let evidence = format!("{quota} CPUs' worth of time");
    Some(finding("CPU quota", when(short, Warn), evidence, advice))
}

fn load(facts: &Facts) -> Option<Finding> {
    let load = facts.load_1min?;
    let share = load / facts.cpus_online.max(1) as f64;
    let severity = match share {
        _ if share > 0.5 => Warn,
        _ if share > 0.1 => Note,
        _ => Ok,
    };
    let advice = "something else runs here: stop it, or wait a minute if it was you";
    Some(finding(
        "load",
        severity,
        format!("{load} over a minute"),
        advice,
    ))
}

fn huge_pages(facts: &Facts) -> Option<Finding> {
    let mode = facts.huge_pages.as_deref()?;
    let advice =
        "allocators differ in what they make of it: compare under --pages huge or --pages small";
    Some(finding(
        "huge pages",
        when(mode != "madvise", Note),
        mode,
        advice,
    ))
}

fn numa_balancing(facts: &Facts) -> Option<Finding> {
    let on = facts.numa_balancing?;
    let advice = "pages move while you measure: echo 0 > /proc/sys/kernel/numa_balancing";
    let evidence = format!("{}, {} nodes", on_off(on), facts.numa_nodes);
    let matters = on && facts.numa_nodes > 1;
    Some(finding(
        "NUMA balancing",
        when(matters, Warn),
        evidence,
        advice,
    ))
}

fn aslr(facts: &Facts) -> Option<Finding> {
    let level = facts.aslr?;
    let advice = "addresses differ from run to run, so repeat runs and not only slices; setarch -R turns it off";
    Some(finding(
        "ASLR",
        when(level != 0, Note),
        format!("level {level}"),
        advice,
    ))
}

fn memory(facts: &Facts) -> Option<Finding> {
    let (available, total) = (facts.memory_available_kib?, facts.memory_total_kib?);
    let evidence = format!("{} of {} MiB available", available / 1024, total / 1024);
    let advice =
        "the kernel reclaims pages while you measure: free some, or measure smaller tables";
    Some(finding(
        "memory",
        when(available < total / 10, Warn),
        evidence,
        advice,
    ))
}

fn swap(facts: &Facts) -> Option<Finding> {
    let used = facts.swap_used_kib?;
    let advice = "pages may come from disk: swapoff -a, or free memory";
    Some(finding(
        "swap",
        when(used > 0, Warn),
        format!("{used} KiB in use"),
        advice,
    ))
}

fn virtual_machine(facts: &Facts) -> Finding {
    let advice =
        "neighbours share caches and memory: interleave, repeat, and believe only small intervals";
    let evidence = if facts.virtual_machine {
        "a hypervisor is present"
    } else {
        "none seen"
    };
    finding(
        "virtual machine",
        when(facts.virtual_machine, Note),
        evidence,
        advice,
    )
}

fn mitigations(facts: &Facts) -> Option<Finding> {
    if facts.mitigations.is_empty() {
        return None;
    }
    let names: Vec<&str> = facts.mitigations.keys().map(String::as_str).collect();
    let advice = "system calls and page faults are slower for it; compare only with machines that have the same";
    Some(finding("mitigations", Note, names.join(", "), advice))
}

fn counter_rate(facts: &Facts) -> Finding {
    let clocksource = facts.clocksource.as_deref().unwrap_or("unknown");
    let is = if facts.invariant_counter {
        "invariant"
    } else {
        "not invariant"
    };
    let evidence = format!("{is}, the kernel's clock is {clocksource}");
    let advice =
        "latencies are taken with the slower system clock; nothing to be done on this processor";
    finding(
        "counter rate",
        when(!facts.invariant_counter, Warn),
        evidence,
        advice,
    )
}

fn rtm(facts: &Facts) -> Option<Finding> {
    let (severity, evidence) = match facts.rtm? {
        Rtm::Present => (Ok, "CPUID says it is there"),
        Rtm::AlwaysAborts => (Note, "there, but every transaction aborts"),
        Rtm::Absent => (Note, "none"),
    };
    let advice = "locks that elide run as plain locks here";
    Some(finding("transactions", severity, evidence, advice))
}

fn clock(measured: &Measured) -> Option<Finding> {
    let evidence = format!(
        "{} at {:.1} MHz, resolves {:.1} ns, costs {:.1} ns",
        measured.clock,
        measured.clock_hz / 1e6,
        measured.clock_resolution_ns,
        measured.clock_overhead_ns
    );
    let slow = measured.clock == "Instant" || measured.clock_overhead_ns > 100.0;
    let advice =
        "latencies below a few hundred nanoseconds mean little here; rates are not touched";
    Some(finding("clock", when(slow, Warn), evidence, advice))
}

fn counter_agreement(measured: &Measured) -> Option<Finding> {
    let offset = measured.counter_offset_ns?;
    let evidence = format!("{offset:.0} ns of disagreement between CPUs proven");
    let advice = "do not compare times of different threads; one thread's own latencies are right";
    Some(finding(
        "counter agreement",
        when(offset > 200.0, Warn),
        evidence,
        advice,
    ))
}

fn jitter(measured: &Measured) -> Option<Finding> {
    let worst = measured
        .jitter
        .iter()
        .max_by(|a, b| a.lost_share.total_cmp(&b.lost_share))?;
    let severity = match worst.lost_share {
        lost if lost > 0.01 => Warn,
        lost if lost > 0.002 || worst.longest_ns > 1e6 => Note,
        _ => Ok,
    };
    let evidence = format!(
        "CPU {} lost {} of its time in {} gaps over 10 µs, the longest {:.0} µs",
        worst.cpu,
        percent(worst.lost_share),
        worst.gaps,
        worst.longest_ns / 1e3
    );
    let advice = "others run on these CPUs: stop them, or isolate CPUs (isolcpus=, nohz_full=) and pin to those";
    Some(finding("jitter", severity, evidence, advice))
}

fn steal(measured: &Measured) -> Option<Finding> {
    let share = measured.steal_share?;
    let severity = match share {
        _ if share > 0.01 => Warn,
        _ if share > 0.001 => Note,
        _ => Ok,
    };
    let advice = "the hypervisor runs others on your CPUs: use a machine with dedicated ones, or repeat more";
    Some(finding("steal time", severity, percent(share), advice))
}

fn noise(measured: &Measured) -> Finding {
    let noise = measured.noise;
    let severity = match noise.spread {
        spread if spread > 0.05 => Warn,
        spread if spread > 0.01 => Note,
        _ => Ok,
    };
    let evidence = format!(
        "{} runs of the same {:.1} ms loop: 90 % within {}, all within {}",
        noise.repetitions,
        noise.median_ns / 1e6,
        percent(noise.spread),
        percent(noise.range)
    );
    let advice = "differences between tables below this need many repetitions to be seen";
    finding("A/A noise", severity, evidence, advice)
}

fn perf_events(facts: &Facts, measured: &Measured) -> Finding {
    let level = match facts.perf_paranoid {
        Some(level) => format!("paranoid level {level}"),
        None => "paranoid level unknown".into(),
    };
    let advice = "rows have no instruction counts; where it is a matter of permission: \
                  sysctl kernel.perf_event_paranoid=2";
    let (severity, evidence) = match &measured.no_counters {
        Some(reason) => (Note, format!("{reason}; {level}")),
        None => (Ok, format!("instructions are counted; {level}")),
    };
    finding("perf events", severity, evidence, advice)
}
