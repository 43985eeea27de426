//! `corewise bench doctor`: finds sources of noise on this machine, and how to remove them.
//!
//! [`Facts`] reads files and [`Measured`] measures; [`findings`] only judges them, so that tests
//! can use made-up machines.

mod facts;
mod judge;
mod measure;

use std::fmt;
use std::path::Path;

use serde::Serialize;

pub use facts::Facts;
pub use judge::findings;
pub use measure::{Jitter, Measured, Noise, measure};

/// How much a finding matters to measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// No effect on measurements.
    Ok,
    /// Relevant for the interpretation of results.
    Note,
    /// Affects results.
    Warn,
}

impl Severity {
    /// Returns its name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warn => "warn",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was checked, in a word or two.
    pub about: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What was found, with its figures.
    pub evidence: String,
    /// What to do; empty if nothing is to be done.
    pub advice: &'static str,
}

/// The doctor's report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The facts behind the findings.
    pub facts: Facts,
    /// One for each check that was possible, worst first.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Judges the facts.
    pub fn of(facts: Facts) -> Self {
        let mut findings = findings(&facts);
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        Self { facts, findings }
    }

    /// Counts the findings of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        let same = self.findings.iter().filter(|f| f.severity == severity);
        same.count()
    }

    /// Returns the report as a JSON document, with all facts.
    pub fn to_json(&self) -> String {
        // Strings, numbers and lists always serialise.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

/// Text output: a line for each finding, the advice below it.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.facts.cpu)?;
        for finding in &self.findings {
            let Finding {
                about, evidence, ..
            } = finding;
            writeln!(f, "{:<5} {about:<18} {evidence}", finding.severity.name())?;
            if !finding.advice.is_empty() {
                writeln!(f, "{:25}-> {}", "", finding.advice)?;
            }
        }
        let (warn, note) = (self.count(Severity::Warn), self.count(Severity::Note));
        write!(f, "{warn} to mend, {note} to know")
    }
}

/// Checks this machine and measures it, which takes about two seconds with all CPUs busy at times.
/// `cpus_asked` is the number of CPUs that the next run is to use.
pub fn doctor(cpus_asked: Option<usize>) -> Report {
    let allowed = corewise_topology::allowed_cpus();
    // Facts are read first: measuring raises the load.
    let mut facts = Facts::read(Path::new("/"), allowed.as_deref());
    facts.cpus_asked = cpus_asked;
    facts.measured = Some(measure());
    Report::of(facts)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A made-up machine: each file name under `root` with its text.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Facts) {
        let root = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, text).expect("a file");
        }
        let facts = Facts::read(root.path(), None);
        (root, facts)
    }

    fn severity(facts: &Facts, about: &str) -> Option<Severity> {
        let all = findings(facts);
        let found = all.iter().find(|finding| finding.about == about);
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
        ("proc/sys/kernel/perf_event_paranoid", "1\n"),
        ("proc/sys/kernel/numa_balancing", "0\n"),
        ("proc/sys/kernel/randomize_va_space", "0\n"),
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
            "sys/devices/system/cpu/vulnerabilities/spectre_v2",
            "Mitigation: Retpolines\n",
        ),
        (
            "sys/devices/system/cpu/vulnerabilities/meltdown",
            "Not affected\n",
        ),
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
        ("proc/sys/kernel/perf_event_paranoid", "4\n"),
        ("proc/sys/kernel/numa_balancing", "1\n"),
        ("proc/sys/kernel/randomize_va_space", "2\n"),
    ];

    #[test]
    fn a_quiet_machine_has_nothing_to_mend() {
        let (_root, facts) = machine(QUIET);
        let report = Report::of(facts);
        assert!(report.findings.len() >= 10, "{report}");
        assert_eq!(report.count(Severity::Warn), 0, "{report}");
        assert_eq!(report.count(Severity::Note), 0, "{report}");
    }

    #[test]
    fn a_loud_machine_is_told_all_its_faults() {
        let (_root, mut facts) = machine(LOUD);
        facts.cpus_asked = Some(8);
        for about in [
            "governor",
            "turbo",
            "CPUs",
            "CPU quota",
            "load",
            "NUMA balancing",
            "memory",
            "swap",
            "counter rate",
        ] {
            assert_eq!(severity(&facts, about), Some(Severity::Warn), "{about}");
        }
        for about in [
            "SMT",
            "huge pages",
            "ASLR",
            "virtual machine",
            "mitigations",
        ] {
            assert_eq!(severity(&facts, about), Some(Severity::Note), "{about}");
        }
        assert_eq!(facts.mitigations.len(), 1);
        assert!(
            findings(&facts)
                .iter()
                .all(|f| f.severity != Severity::Warn || !f.advice.is_empty())
        );
    }

    #[test]
    fn what_the_system_does_not_say_is_no_finding() {
        let (_root, facts) = machine(&[]);
        assert_eq!(facts.governors, Vec::<String>::new());
        assert_eq!(severity(&facts, "turbo"), None);
        assert_eq!(severity(&facts, "swap"), None);
        assert_eq!(severity(&facts, "jitter"), None);
    }

    fn measured(change: impl FnOnce(&mut Measured)) -> Facts {
        let mut measured = Measured {
            clock: "rdtsc".into(),
            clock_hz: 2e9,
            clock_resolution_ns: 10.0,
            clock_overhead_ns: 12.0,
            steal_share: Some(0.0),
            jitter: vec![Jitter::default(); 2],
            ..Measured::default()
        };
        change(&mut measured);
        Facts {
            measured: Some(measured),
            ..Facts::default()
        }
    }

    #[test]
    fn what_was_measured_is_judged() {
        let calm = measured(|_| {});
        for about in ["jitter", "steal time", "A/A noise", "clock", "perf events"] {
            assert_eq!(severity(&calm, about), Some(Severity::Ok), "{about}");
        }
        let warned = |about: &str, change: fn(&mut Measured)| {
            assert_eq!(
                severity(&measured(change), about),
                Some(Severity::Warn),
                "{about}"
            );
        };
        warned("jitter", |m| m.jitter[1].lost_share = 0.05);
        warned("steal time", |m| m.steal_share = Some(0.02));
        warned("A/A noise", |m| m.noise.spread = 0.2);
        warned("clock", |m| m.clock = "Instant".into());
        let no_counters = measured(|m| m.no_counters = Some("none here".into()));
        assert_eq!(severity(&no_counters, "perf events"), Some(Severity::Note));
    }

    #[test]
    fn this_machine_gets_a_report() {
        let report = doctor(Some(1));
        let measured = report.facts.measured.as_ref().expect("measured");
        assert!(!measured.jitter.is_empty());
        assert_eq!(measured.noise.repetitions, 100);
        let text = report.to_string();
        assert!(text.ends_with("to know"), "{text}");
        println!("{text}");
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("JSON");
        assert!(
            json["findings"]
                .as_array()
                .is_some_and(|all| all.len() >= 10)
        );
    }
}
