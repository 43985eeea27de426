//! Checks of the system's files. A limit is the value from which on an effect shows in results.

use std::fs;
use std::path::Path;

use corewise_measure::machine::chosen;
use corewise_topology::Topology;
use itertools::Itertools;

use super::Severity::{Note, Warn};
use super::{Finding, Judged, over, when};
use crate::manifest::{is_virtual, load_1min, meminfo_kib};
use crate::record::MOST_LOAD;

/// What is checked, the judgement of `proc` and `sys` below a root, and the advice unless the
/// severity is `Ok`.
type Check = (&'static str, fn(&Path) -> Judged, &'static str);

/// Returns a finding for each check whose files the system has.
pub(super) fn findings(root: &Path) -> Vec<Finding> {
    let found = |(about, judge, advice): &Check| Some(Finding::new(about, judge(root)?, advice));
    CHECKS.iter().filter_map(found).collect()
}

const CHECKS: [Check; 10] = [
    (
        "governor",
        governor,
        "set it: cpupower frequency-set -g performance",
    ),
    (
        "turbo",
        |root| {
            let off =
                number(root, "sys/devices/system/cpu/intel_pstate/no_turbo").map(|no| no == 0);
            let boost = || number(root, "sys/devices/system/cpu/cpufreq/boost").map(|on| on == 1);
            Some(switch(off.or_else(boost)?, Warn))
        },
        "off it holds one frequency whatever the temperature and the number of threads: \
         echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo, or echo 0 > .../cpufreq/boost",
    ),
    (
        "SMT",
        |root| {
            let on = number(root, "sys/devices/system/cpu/smt/active")?;
            Some(switch(on == 1, Note))
        },
        "pin one thread to a core first (compact, scatter), or echo off > /sys/devices/system/cpu/smt/control",
    ),
    (
        "CPU quota",
        |root| {
            let topology = Topology::read_from(root, None);
            let quota = topology.cpu_quota?;
            let short = quota < topology.allowed().count() as f64;
            Some((when(short, Warn), format!("{quota} CPUs' worth of time")))
        },
        "threads are stopped when it is used up: raise cpu.max of the control group, or use fewer threads",
    ),
    (
        "load",
        |root| {
            let (load, cpus) = (load_1min(root)?, Topology::read_from(root, None).cpus.len());
            let severity = over(load / cpus.max(1) as f64, 0.1, MOST_LOAD);
            Some((severity, format!("{load} over a minute")))
        },
        "something else runs here: stop it, or wait a minute if it was you",
    ),
    (
        "huge pages",
        |root| {
            let modes = text(root, "sys/kernel/mm/transparent_hugepage/enabled")?;
            let mode = chosen(&modes);
            Some((when(mode != "madvise", Note), mode.to_owned()))
        },
        "allocators differ in what they make of it: compare under --pages huge or --pages small",
    ),
    (
        "NUMA balancing",
        |root| {
            let on = number(root, "proc/sys/kernel/numa_balancing")? != 0;
            let nodes = Topology::read_from(root, None).nodes.len();
            let state = if on { "on" } else { "off" };
            let severity = when(on && nodes > 1, Warn);
            Some((severity, format!("{state}, {nodes} nodes")))
        },
        "pages move while you measure: echo 0 > /proc/sys/kernel/numa_balancing",
    ),
    (
        "memory",
        |root| {
            let available = meminfo_kib(root, "MemAvailable")?;
            let total = meminfo_kib(root, "MemTotal")?;
            let evidence = format!("{} of {} MiB available", available / 1024, total / 1024);
            Some((when(available < total / 10, Warn), evidence))
        },
        "the kernel reclaims pages while you measure: free some, or measure smaller tables",
    ),
    (
        "swap",
        |root| {
            let free = meminfo_kib(root, "SwapFree")?;
            let used = meminfo_kib(root, "SwapTotal")?.checked_sub(free)?;
            Some((when(used > 0, Warn), format!("{used} KiB in use")))
        },
        "pages may come from disk: swapoff -a, or free memory",
    ),
    (
        "virtual machine",
        |root| {
            let found = is_virtual(root);
            let evidence = if found {
                "a hypervisor is present"
            } else {
                "none seen"
            };
            Some((when(found, Note), evidence.into()))
        },
        "neighbours share caches and memory: interleave, repeat, and believe only small intervals",
    ),
];

fn governor(root: &Path) -> Judged {
    let topology = Topology::read_from(root, None);
    let file = |cpu| format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
    let names = topology
        .allowed()
        .filter_map(|cpu| text(root, &file(cpu.id)));
    let names = names.sorted().dedup().join(", ");
    let slow = when(names != "performance", Warn);
    (!names.is_empty()).then_some((slow, names))
}

fn switch(on: bool, bad: super::Severity) -> (super::Severity, String) {
    (when(on, bad), if on { "on" } else { "off" }.into())
}

fn text(root: &Path, file: &str) -> Option<String> {
    let text = fs::read_to_string(root.join(file)).ok()?;
    Some(text.trim().to_owned())
}

fn number(root: &Path, file: &str) -> Option<u64> {
    text(root, file)?.parse().ok()
}
