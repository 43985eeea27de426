//! Reads the machine from Linux's `/sys`. Every file may be missing or malformed; the fallback in
//! the table of the crate's documentation then applies.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Cache, CacheKind, Cpu, CpuId, NumaNode, Topology, parse_cpu_list};

/// Reads the machine under `root`, without the quota.
pub(crate) fn read(root: &Path, allowed: Option<&[usize]>) -> Topology {
    let system = root.join("sys/devices/system");
    let online = online_cpus(&system.join("cpu"));
    if online.is_empty() {
        return fallback(allowed);
    }
    let nodes = nodes(&system.join("node"), &online);
    let mut cpus: Vec<Cpu> = online
        .iter()
        .map(|&id| cpu(&system.join("cpu"), id, &online, &nodes))
        .collect();
    mark_allowed(&mut cpus, allowed);
    let caches = caches(&system.join("cpu"), &online);
    Topology {
        cpus,
        caches,
        nodes,
        cpu_quota: None,
        memory_bytes: None,
    }
}

/// The machine's memory in bytes.
pub(crate) fn memory(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib: u64 = total?.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1 << 10)
}

/// Fallback if nothing is known except, perhaps, which CPUs the process may use.
fn fallback(allowed: Option<&[usize]>) -> Topology {
    let counted = || std::thread::available_parallelism().map_or(1, usize::from);
    let count = allowed
        .and_then(|cpus| cpus.iter().max())
        .map_or_else(counted, |max| max + 1);
    let mut topology = Topology::flat(count);
    mark_allowed(&mut topology.cpus, allowed);
    topology
}

/// Marks the allowed CPUs. If none of them is online, the two sources contradict each other, and
/// all CPUs count as allowed.
fn mark_allowed(cpus: &mut [Cpu], allowed: Option<&[usize]>) {
    let Some(allowed) = allowed else { return };
    if cpus.iter().any(|cpu| allowed.contains(&cpu.id.0)) {
        for cpu in cpus {
            cpu.allowed = allowed.contains(&cpu.id.0);
        }
    }
}

fn online_cpus(cpu_dir: &Path) -> Vec<CpuId> {
    let listed = cpu_list(&cpu_dir.join("online"));
    let mut cpus = match listed {
        Some(cpus) if !cpus.is_empty() => cpus,
        _ => numbered(cpu_dir, "cpu")
            .into_iter()
            .map(|(id, _)| CpuId(id))
            .collect(),
    };
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

fn cpu(cpu_dir: &Path, id: CpuId, online: &[CpuId], nodes: &[NumaNode]) -> Cpu {
    let topology = cpu_dir.join(format!("cpu{id}/topology"));
    let siblings = siblings(&topology, id, online);
    Cpu {
        id,
        // Machines that have no packages report -1.
        package: number(&topology.join("physical_package_id")).unwrap_or(0),
        core: siblings[0],
        smt: siblings
            .iter()
            .position(|&sibling| sibling == id)
            .unwrap_or(0),
        node: nodes
            .iter()
            .find(|node| node.cpus.contains(&id))
            .map_or(0, |node| node.id),
        allowed: true,
    }
}

/// The online hardware threads of a core, `id` among them.
fn siblings(topology: &Path, id: CpuId, online: &[CpuId]) -> Vec<CpuId> {
    // The newer name first.
    let listed = ["core_cpus_list", "thread_siblings_list"]
        .iter()
        .find_map(|name| cpu_list(&topology.join(name)))
        .unwrap_or_default();
    let mut siblings: Vec<CpuId> = listed
        .into_iter()
        .filter(|cpu| online.contains(cpu))
        .collect();
    if !siblings.contains(&id) {
        siblings.push(id);
    }
    siblings.sort_unstable();
    siblings
}

fn nodes(node_dir: &Path, online: &[CpuId]) -> Vec<NumaNode> {
    let node = |(id, dir): (usize, PathBuf)| {
        let listed = cpu_list(&dir.join("cpulist"))?;
        let mut cpus: Vec<CpuId> = listed
            .into_iter()
            .filter(|cpu| online.contains(cpu))
            .collect();
        cpus.sort_unstable();
        Some(NumaNode { id, cpus })
    };
    let nodes: Vec<NumaNode> = numbered(node_dir, "node")
        .into_iter()
        .filter_map(node)
        .collect();
    if nodes.is_empty() {
        vec![NumaNode {
            id: 0,
            cpus: online.to_vec(),
        }]
    } else {
        nodes
    }
}

/// Each cache once, although every CPU that shares it lists it.
fn caches(cpu_dir: &Path, online: &[CpuId]) -> Vec<Cache> {
    let mut found = BTreeMap::new();
    for &id in online {
        for (_, dir) in numbered(&cpu_dir.join(format!("cpu{id}/cache")), "index") {
            if let Some(cache) = cache(&dir, id, online) {
                found.insert((cache.level, cache.kind, cache.cpus[0]), cache);
            }
        }
    }
    found.into_values().collect()
}

fn cache(dir: &Path, id: CpuId, online: &[CpuId]) -> Option<Cache> {
    let kind = match text(&dir.join("type"))?.as_str() {
        "Data" => CacheKind::Data,
        "Instruction" => CacheKind::Instruction,
        "Unified" => CacheKind::Unified,
        _ => return None,
    };
    let shared = cpu_list(&dir.join("shared_cpu_list")).unwrap_or_default();
    let mut cpus: Vec<CpuId> = shared
        .into_iter()
        .filter(|cpu| online.contains(cpu))
        .collect();
    if !cpus.contains(&id) {
        cpus.push(id);
    }
    cpus.sort_unstable();
    Some(Cache {
        level: number(&dir.join("level"))?,
        kind,
        size_bytes: text(&dir.join("size"))
            .as_deref()
            .and_then(parse_size)
            .unwrap_or(0),
        line_bytes: number(&dir.join("coherency_line_size")).unwrap_or(0),
        cpus,
    })
}

/// `48K` or `32M`.
fn parse_size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// The entries of `dir` named `prefix` followed by a number, by number.
fn numbered(dir: &Path, prefix: &str) -> Vec<(usize, PathBuf)> {
    let mut entries: Vec<(usize, PathBuf)> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let number = name.strip_prefix(prefix)?.parse().ok()?;
            (number < crate::MAX_CPUS).then(|| (number, entry.path()))
        })
        .collect();
    entries.sort_unstable();
    entries
}

fn cpu_list(path: &Path) -> Option<Vec<CpuId>> {
    let cpus = parse_cpu_list(&text(path)?).ok()?;
    Some(cpus.into_iter().map(CpuId).collect())
}

fn number<N: std::str::FromStr>(path: &Path) -> Option<N> {
    text(path)?.parse().ok()
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}
