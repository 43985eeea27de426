//! Judges facts. A limit is the value from which on an effect shows in results.

use corewise_measure::cpu::Rtm;

use super::Severity::{self, Note, Ok, Warn};
use super::{Facts, Finding, Measured};

/// How much a fact matters, and the evidence; `None` if it is unknown.
type Judged = Option<(Severity, String)>;

/// What is checked, the judgement, and the advice unless the severity is `Ok`.
type Check<F> = (&'static str, fn(&F) -> Judged, &'static str);

/// Judges every known fact. Measures and reads nothing.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let of_files = OF_FILES.iter().filter_map(|check| found(check, facts));
    let measured = facts.measured.iter();
    let of_measured =
        measured.flat_map(|of| OF_MEASURED.iter().filter_map(|check| found(check, of)));
    let counters = facts.measured.as_ref().map(|of| perf_events(facts, of));
    of_files.chain(of_measured).chain(counters).collect()
}

fn found<F>(&(about, judge, advice): &Check<F>, facts: &F) -> Option<Finding> {
    let (severity, evidence) = judge(facts)?;
    let advice = if severity == Ok { "" } else { advice };
    Some(Finding {
        about,
        severity,
        evidence,
        advice,
    })
}

/// Returns `bad` if `holds`.
fn when(holds: bool, bad: Severity) -> Severity {
    if holds { bad } else { Ok }
}

/// Judges a value by the limits from which on it is a note and a warning.
fn over(value: f64, note: f64, warn: f64) -> Severity {
    match value {
        _ if value > warn => Warn,
        _ if value > note => Note,
        _ => Ok,
    }
}

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

const OF_FILES: [Check<Facts>; 15] = [
    (
        "governor",
        |of| {
            let slow = of
                .governors
                .iter()
                .any(|governor| governor != "performance");
            let evidence = || (when(slow, Warn), of.governors.join(", "));
            (!of.governors.is_empty()).then(evidence)
        },
        "set it: cpupower frequency-set -g performance",
    ),
    (
        "turbo",
        |of| of.turbo.map(|on| (when(on, Warn), on_off(on).into())),
        "off it holds one frequency whatever the temperature and the number of threads: \
         echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo, or echo 0 > .../cpufreq/boost",
    ),
    (
        "SMT",
        |of| of.smt.map(|on| (when(on, Note), on_off(on).into())),
        "pin one thread to a core first (compact, scatter), or echo off > /sys/devices/system/cpu/smt/control",
    ),
    (
        "CPUs",
        |of| {
            let (allowed, asked) = (of.cpus_allowed, of.cpus_asked.unwrap_or(0));
            let mut evidence = format!("{allowed} of {} may be used", of.cpus_online);
            if asked > 0 {
                evidence.push_str(&format!(", {asked} asked for"));
            }
            Some((when(asked > allowed, Warn), evidence))
        },
        "more threads than CPUs measure the scheduler: ask for fewer, or widen the affinity mask",
    ),
    (
        "CPU quota",
        |of| {
            let quota = of.cpu_quota?;
            let short = quota < of.cpus_asked.unwrap_or(of.cpus_allowed) as f64;
            Some((when(short, Warn), format!("{quota} CPUs' worth of time")))
        },
        "threads are stopped when it is used up: raise cpu.max of the control group, or use fewer threads",
    ),
    (
        "load",
        |of| {
            let load = of.load_1min?;
            let severity = over(load / of.cpus_online.max(1) as f64, 0.1, 0.5);
            Some((severity, format!("{load} over a minute")))
        },
        "something else runs here: stop it, or wait a minute if it was you",
    ),
    (
        "huge pages",
        |of| {
            of.huge_pages
                .clone()
                .map(|mode| (when(mode != "madvise", Note), mode))
        },
        "allocators differ in what they make of it: compare under --pages huge or --pages small",
    ),
    (
        "NUMA balancing",
        |of| {
            let (on, nodes) = (of.numa_balancing?, of.numa_nodes);
            let evidence = format!("{}, {nodes} nodes", on_off(on));
            Some((when(on && nodes > 1, Warn), evidence))
        },
        "pages move while you measure: echo 0 > /proc/sys/kernel/numa_balancing",
    ),
    (
        "ASLR",
        |of| {
            of.aslr
                .map(|level| (when(level != 0, Note), format!("level {level}")))
        },
        "addresses differ from run to run, so repeat runs and not only slices; setarch -R turns it off",
    ),
    (
        "memory",
        |of| {
            let (available, total) = (of.memory_available_kib?, of.memory_total_kib?);
            let evidence = format!("{} of {} MiB available", available / 1024, total / 1024);
            Some((when(available < total / 10, Warn), evidence))
        },
        "the kernel reclaims pages while you measure: free some, or measure smaller tables",
    ),
    (
        "swap",
        |of| {
            of.swap_used_kib
                .map(|used| (when(used > 0, Warn), format!("{used} KiB in use")))
        },
        "pages may come from disk: swapoff -a, or free memory",
    ),
    (
        "virtual machine",
        |of| {
            let evidence = if of.virtual_machine {
                "a hypervisor is present"
            } else {
                "none seen"
            };
            Some((when(of.virtual_machine, Note), evidence.into()))
        },
        "neighbours share caches and memory: interleave, repeat, and believe only small intervals",
    ),
    (
        "mitigations",
        |of| {
            let names: Vec<&str> = of.mitigations.keys().map(String::as_str).collect();
            (!names.is_empty()).then(|| (Note, names.join(", ")))
        },
        "system calls and page faults are slower for it; compare only with machines that have the same",
    ),
    (
        "counter rate",
        |of| {
            let clock = of.clocksource.as_deref().unwrap_or("unknown");
            let is = if of.invariant_counter {
                "invariant"
            } else {
                "not invariant"
            };
            let evidence = format!("{is}, the kernel's clock is {clock}");
            Some((when(!of.invariant_counter, Warn), evidence))
        },
        "latencies are taken with the slower system clock; nothing to be done on this processor",
    ),
    (
        "transactions",
        |of| {
            let (severity, evidence) = match of.rtm? {
                Rtm::Present => (Ok, "CPUID says it is there"),
                Rtm::AlwaysAborts => (Note, "there, but every transaction aborts"),
                Rtm::Absent => (Note, "none"),
            };
            Some((severity, evidence.into()))
        },
        "locks that elide run as plain locks here",
    ),
];

const OF_MEASURED: [Check<Measured>; 4] = [
    (
        "clock",
        |of| {
            let (mhz, resolution_ns) = (of.clock_hz / 1e6, of.clock_resolution_ns);
            let slow = of.clock == "Instant" || of.clock_overhead_ns > 100.0;
            let evidence = format!(
                "{} at {mhz:.1} MHz, resolves {resolution_ns:.1} ns, costs {:.1} ns",
                of.clock, of.clock_overhead_ns
            );
            Some((when(slow, Warn), evidence))
        },
        "latencies below a few hundred nanoseconds mean little here; rates are not touched",
    ),
    (
        "jitter",
        |of| {
            let jitter = of.jitter.iter();
            let worst = jitter.max_by(|a, b| a.lost_share.total_cmp(&b.lost_share))?;
            let severity = over(worst.lost_share, 0.002, 0.01);
            let evidence = format!(
                "CPU {} lost {} of its time in {} gaps over 10 µs, the longest {:.0} µs",
                worst.cpu,
                percent(worst.lost_share),
                worst.gaps,
                worst.longest_ns / 1e3
            );
            Some((severity.max(when(worst.longest_ns > 1e6, Note)), evidence))
        },
        "others run on these CPUs: stop them, or isolate CPUs (isolcpus=, nohz_full=) and pin to those",
    ),
    (
        "steal time",
        |of| {
            of.steal_share
                .map(|share| (over(share, 0.001, 0.01), percent(share)))
        },
        "the hypervisor runs others on your CPUs: use a machine with dedicated ones, or repeat more",
    ),
    (
        "A/A noise",
        |of| {
            let noise = of.noise;
            let evidence = format!(
                "{} runs of the same {:.1} ms loop: 90 % within {}, all within {}",
                noise.repetitions,
                noise.median_ns / 1e6,
                percent(noise.spread),
                percent(noise.range)
            );
            Some((over(noise.spread, 0.01, 0.05), evidence))
        },
        "differences between tables below this need many repetitions to be seen",
    ),
];

/// Judges the counters, which takes both kinds of facts.
fn perf_events(facts: &Facts, measured: &Measured) -> Finding {
    let level = facts
        .perf_paranoid
        .map_or("unknown".into(), |level| level.to_string());
    let (severity, why) = match &measured.no_counters {
        Some(reason) => (Note, &**reason),
        None => (Ok, "instructions are counted"),
    };
    let advice = "rows have no instruction counts; where it is a matter of permission: \
                  sysctl kernel.perf_event_paranoid=2";
    Finding {
        about: "perf events",
        severity,
        evidence: format!("{why}; paranoid level {level}"),
        advice: if severity == Ok { "" } else { advice },
    }
}
