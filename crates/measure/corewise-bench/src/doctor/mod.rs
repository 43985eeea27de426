//! `corewise bench doctor`: finds sources of noise on this machine, and how to remove them.

mod files;
mod measure;

use std::fmt;
use std::path::Path;

use corewise_measure::cpu::{self, RtmSupport};
use corewise_measure::ticks::Ticks;
use serde::Serialize;

use self::Severity::{Note, Ok, Warn};
use crate::counters;

/// How much a finding matters to measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    /// No effect on measurements.
    Ok,
    /// Relevant for the interpretation of results.
    Note,
    /// Affects results.
    Warn,
}

/// How much a fact matters, and the evidence; `None` if it is unknown.
type Judged = Option<(Severity, String)>;

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

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// What was checked, in a word or two.
    about: &'static str,
    /// How much it matters.
    severity: Severity,
    /// What was found, with its figures.
    evidence: String,
    /// What to do; empty if nothing is to be done.
    advice: &'static str,
}

impl Finding {
    fn new(
        about: &'static str,
        (severity, evidence): (Severity, String),
        advice: &'static str,
    ) -> Self {
        Self {
            about,
            severity,
            evidence,
            advice: if severity == Ok { "" } else { advice },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Report {
    /// One for each check that was possible, worst first.
    findings: Vec<Finding>,
}

impl Report {
    fn of(mut findings: Vec<Finding>) -> Self {
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        Self { findings }
    }

    fn count(&self, severity: Severity) -> usize {
        let same = self.findings.iter().filter(|f| f.severity == severity);
        same.count()
    }

    /// Returns the report as a JSON document.
    pub(crate) fn to_json(&self) -> String {
        // Strings and lists always serialise.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

/// Text output: a line for each finding, the advice below it.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            let name = match finding.severity {
                Ok => "ok",
                Note => "note",
                Warn => "warn",
            };
            writeln!(f, "{name:<5} {:<18} {}", finding.about, finding.evidence)?;
            if !finding.advice.is_empty() {
                writeln!(f, "{:25}-> {}", "", finding.advice)?;
            }
        }
        write!(
            f,
            "{} to mend, {} to know",
            self.count(Warn),
            self.count(Note)
        )
    }
}

/// Checks this machine and measures it, which takes about a second with all CPUs busy.
pub(crate) fn doctor() -> Report {
    // Files are read first: measuring raises the load.
    let mut findings = files::findings(Path::new("/"));
    findings.extend(measure::findings(Ticks::get()));
    findings.extend([counter_rate(), transactions(), perf_events()]);
    Report::of(findings)
}

fn counter_rate() -> Finding {
    let clock = Ticks::get();
    let is_slow = clock.source() == "Instant" || !cpu::has_invariant_counter();
    let evidence = format!("{} at {:.1} MHz", clock.source(), clock.hz() / 1e6);
    Finding::new(
        "clock",
        (when(is_slow, Warn), evidence),
        "latencies below a few hundred nanoseconds mean little here; rates are not touched",
    )
}

fn transactions() -> Finding {
    let judged = match cpu::rtm() {
        RtmSupport::Present => (Ok, "CPUID says it is there"),
        RtmSupport::AlwaysAborts => (Note, "there, but every transaction aborts"),
        RtmSupport::Absent => (Note, "none"),
    };
    let judged = (judged.0, judged.1.to_owned());
    let advice = "locks that elide run as plain locks here";
    Finding::new("transactions", judged, advice)
}

fn perf_events() -> Finding {
    let judged = match counters::probe() {
        Err(reason) => (Note, reason),
        _ => (Ok, "instructions are counted".to_owned()),
    };
    let advice = "rows have no instruction counts; where it is a matter of permission: \
                  sysctl kernel.perf_event_paranoid=2";
    Finding::new("perf events", judged, advice)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A made-up machine: each file name under `root` with its text.
    fn machine(files: &[(&str, &str)]) -> Report {
        let root = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, text).expect("a file");
        }
        Report::of(files::findings(root.path()))
    }

    fn severity(report: &Report, about: &str) -> Option<Severity> {
        let found = report
            .findings
            .iter()
            .find(|finding| finding.about == about);
        found.map(|finding| finding.severity)
    }

    const QUIET: &[(&str, &str)] = &[
        ("sys/devices/system/cpu/online", "0-3\n"),
        (
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "performance\n",
        ),
        ("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n"),
        ("sys/devices/system/cpu/smt/active", "0\n"),
        (
            "sys/kernel/mm/transparent_hugepage/enabled",
            "always [madvise] never\n",
        ),
        ("proc/loadavg", "0.05 0.01 0.00 1/80 99\n"),
        (
            "proc/cpuinfo",
            "model name : Quiet\nflags : constant_tsc nonstop_tsc\n",
        ),
        (
            "proc/meminfo",
            "MemTotal: 8000 kB\nMemAvailable: 7000 kB\nSwapTotal: 10 kB\nSwapFree: 10 kB\n",
        ),
        ("proc/sys/kernel/numa_balancing", "0\n"),
    ];

    const LOUD: &[(&str, &str)] = &[
        ("sys/devices/system/cpu/online", "0-1\n"),
        (
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "powersave\n",
        ),
        ("sys/devices/system/cpu/intel_pstate/no_turbo", "0\n"),
        ("sys/devices/system/cpu/smt/active", "1\n"),
        ("sys/devices/system/node/node0/cpulist", "0\n"),
        ("sys/devices/system/node/node1/cpulist", "1\n"),
        (
            "sys/kernel/mm/transparent_hugepage/enabled",
            "[always] madvise never\n",
        ),
        ("sys/fs/cgroup/cpu.max", "150000 100000\n"),
        ("proc/self/cgroup", "0::/\n"),
        ("proc/loadavg", "3.50 0.01 0.00 1/80 99\n"),
        ("proc/cpuinfo", "model name : Loud\nflags : hypervisor\n"),
        (
            "proc/meminfo",
            "MemTotal: 8000 kB\nMemAvailable: 300 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n",
        ),
        ("proc/sys/kernel/numa_balancing", "1\n"),
    ];

    #[test]
    fn a_quiet_machine_has_nothing_to_mend() {
        let report = machine(QUIET);
        assert!(report.findings.len() >= 8, "{report}");
        assert_eq!(report.count(Warn), 0, "{report}");
        assert_eq!(report.count(Note), 0, "{report}");
    }

    #[test]
    fn a_loud_machine_is_told_all_its_faults() {
        let report = machine(LOUD);
        for about in [
            "governor",
            "turbo",
            "CPU quota",
            "load",
            "NUMA balancing",
            "memory",
            "swap",
        ] {
            assert_eq!(severity(&report, about), Some(Warn), "{about}");
        }
        for about in ["SMT", "huge pages", "virtual machine"] {
            assert_eq!(severity(&report, about), Some(Note), "{about}");
        }
        let mut findings = report.findings.iter();
        assert!(findings.all(|f| f.severity == Ok || !f.advice.is_empty()));
        assert_eq!(report.findings[0].severity, Warn);
    }

    #[test]
    fn what_the_system_does_not_say_is_no_finding() {
        let report = machine(&[]);
        for about in ["governor", "turbo", "swap", "load"] {
            assert_eq!(severity(&report, about), None, "{about}");
        }
    }

    #[test]
    fn this_machine_gets_a_report() {
        let report = doctor();
        for about in ["jitter", "clock", "transactions", "perf events"] {
            assert!(severity(&report, about).is_some(), "{about}: {report}");
        }
        let text = report.to_string();
        assert!(text.ends_with("to know"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("JSON");
        let all = json["findings"].as_array().expect("findings");
        assert_eq!(all.len(), report.findings.len());
    }
}
