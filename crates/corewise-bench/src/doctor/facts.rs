//! Facts from the system's files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use corewise_measure::cpu::{self, Rtm};
use corewise_measure::machine::{chosen, field};
use corewise_topology::Topology;
use serde::Serialize;

use super::measure::Measured;
use crate::manifest::{is_virtual, load_1min, meminfo_kib};

/// Facts about the machine; `None` where the system does not report them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Facts {
    /// CPU model.
    pub cpu: String,
    /// CPUs online.
    pub cpus_online: usize,
    /// CPUs this process may use.
    pub cpus_allowed: usize,
    /// CPU quota of the control group, in CPUs.
    pub cpu_quota: Option<f64>,
    /// CPUs that the run is to use.
    pub cpus_asked: Option<usize>,
    /// Distinct frequency governors in use.
    pub governors: Vec<String>,
    /// Whether the processor may exceed its nominal frequency.
    pub turbo: Option<bool>,
    /// Whether two hardware threads share a core.
    pub smt: Option<bool>,
    /// Runnable processes averaged over a minute.
    pub load_1min: Option<f64>,
    /// Mode of transparent huge pages.
    pub huge_pages: Option<String>,
    /// NUMA nodes.
    pub numa_nodes: usize,
    /// Whether the kernel moves pages between nodes by itself.
    pub numa_balancing: Option<bool>,
    /// Level of address space layout randomisation.
    pub aslr: Option<u64>,
    /// The value of `perf_event_paranoid`.
    pub perf_paranoid: Option<i64>,
    /// Swap in use.
    pub swap_used_kib: Option<u64>,
    /// Memory available without swapping.
    pub memory_available_kib: Option<u64>,
    /// Physical memory.
    pub memory_total_kib: Option<u64>,
    /// Whether a hypervisor is detected.
    pub virtual_machine: bool,
    /// The kernel's clock.
    pub clocksource: Option<String>,
    /// Active mitigations of processor flaws, by flaw.
    pub mitigations: BTreeMap<String, String>,
    /// Whether the timestamp counter ticks at a constant rate.
    pub invariant_counter: bool,
    /// Transactional memory.
    pub rtm: Option<Rtm>,
    /// Measurements; `None` before they are made.
    pub measured: Option<Measured>,
}

impl Facts {
    /// Reads `proc` and `sys` under `root` and, where `root` is this machine's, the processor
    /// itself. Measures nothing.
    pub fn read(root: &Path, allowed: Option<&[usize]>) -> Self {
        let topology = Topology::read_from(root, allowed);
        let cpuinfo = text(root, "proc/cpuinfo").unwrap_or_default();
        let is_here = root == Path::new("/");
        Self {
            cpu: field(&cpuinfo, "model name").unwrap_or("unknown").into(),
            cpus_online: topology.cpus.len(),
            cpus_allowed: topology.allowed().count(),
            cpu_quota: topology.cpu_quota,
            cpus_asked: None,
            governors: governors(root, &topology),
            turbo: turbo(root),
            smt: number(root, "sys/devices/system/cpu/smt/active").map(|on: u64| on == 1),
            load_1min: load_1min(root),
            huge_pages: huge_pages(root),
            numa_nodes: topology.nodes.len(),
            numa_balancing: number(root, "proc/sys/kernel/numa_balancing").map(|on: u64| on != 0),
            aslr: number(root, "proc/sys/kernel/randomize_va_space"),
            perf_paranoid: number(root, "proc/sys/kernel/perf_event_paranoid"),
            swap_used_kib: swap_used_kib(root),
            memory_available_kib: meminfo_kib(root, "MemAvailable"),
            memory_total_kib: meminfo_kib(root, "MemTotal"),
            virtual_machine: is_virtual(root),
            clocksource: text(
                root,
                "sys/devices/system/clocksource/clocksource0/current_clocksource",
            ),
            mitigations: mitigations(root),
            invariant_counter: if is_here {
                cpu::has_invariant_counter()
            } else {
                cpuinfo.contains("nonstop_tsc")
            },
            rtm: is_here.then(cpu::rtm),
            measured: None,
        }
    }
}

fn text(root: &Path, file: &str) -> Option<String> {
    let text = fs::read_to_string(root.join(file)).ok()?;
    Some(text.trim().to_owned())
}

fn number<N: FromStr>(root: &Path, file: &str) -> Option<N> {
    text(root, file)?.parse().ok()
}

fn governors(root: &Path, topology: &Topology) -> Vec<String> {
    let file = |cpu| format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
    let all = topology
        .allowed()
        .filter_map(|cpu| text(root, &file(cpu.id)));
    let mut all: Vec<String> = all.collect();
    all.sort();
    all.dedup();
    all
}

fn turbo(root: &Path) -> Option<bool> {
    let off = number(root, "sys/devices/system/cpu/intel_pstate/no_turbo").map(|no: u64| no == 0);
    off.or_else(|| number(root, "sys/devices/system/cpu/cpufreq/boost").map(|on: u64| on == 1))
}

fn huge_pages(root: &Path) -> Option<String> {
    let text = text(root, "sys/kernel/mm/transparent_hugepage/enabled")?;
    Some(chosen(&text).to_owned())
}

fn swap_used_kib(root: &Path) -> Option<u64> {
    meminfo_kib(root, "SwapTotal")?.checked_sub(meminfo_kib(root, "SwapFree")?)
}

fn mitigations(root: &Path) -> BTreeMap<String, String> {
    let directory = fs::read_dir(root.join("sys/devices/system/cpu/vulnerabilities"));
    let files = directory.into_iter().flatten().flatten();
    files
        .filter_map(|file| {
            let text = fs::read_to_string(file.path()).ok()?;
            let how = text.trim().strip_prefix("Mitigation: ")?.to_owned();
            Some((file.file_name().to_string_lossy().into(), how))
        })
        .collect()
}
