//! Assigns a CPU to each thread according to a policy.

use std::collections::BTreeMap;

use crate::{Cpu, CpuId, PinPolicy, Topology};

/// The CPU of each of `threads` threads; `None` means that the scheduler chooses.
///
/// With more threads than CPUs the order starts over.
///
/// ```
/// use corewise_topology::{CpuId, PinPolicy, Topology, plan};
/// let places = plan(&Topology::flat(2), &PinPolicy::Compact, 3);
/// assert_eq!(places, [Some(CpuId(0)), Some(CpuId(1)), Some(CpuId(0))]);
/// ```
pub fn plan(topology: &Topology, policy: &PinPolicy, threads: usize) -> Vec<Option<CpuId>> {
    let order = match policy {
        PinPolicy::None => Vec::new(),
        PinPolicy::Compact => compact(topology),
        PinPolicy::Balanced => balanced(topology),
        PinPolicy::SmtPair => smt_pair(topology),
        PinPolicy::List(cpus) => cpus.iter().copied().map(CpuId).collect(),
    };
    if order.is_empty() {
        return vec![None; threads];
    }
    order.into_iter().cycle().map(Some).take(threads).collect()
}

fn compact(topology: &Topology) -> Vec<CpuId> {
    sorted_by_key(topology, |cpu, rank| {
        (cpu.package, cpu.node, rank, cpu.core)
    })
}

fn smt_pair(topology: &Topology) -> Vec<CpuId> {
    sorted_by_key(topology, |cpu, rank| (cpu.package, cpu.core, rank))
}

/// In each round of hardware threads: the first core of every socket, then the second, and so on.
fn balanced(topology: &Topology) -> Vec<CpuId> {
    let mut seen_in_package = BTreeMap::new();
    let mut places = Vec::new();
    for cpu in allowed_cpus(topology, compact(topology)) {
        let rank = rank_in_core(topology, cpu);
        let turn = seen_in_package.entry((cpu.package, rank)).or_insert(0usize);
        places.push(((rank, *turn, cpu.package), cpu.id));
        *turn += 1;
    }
    places.sort_unstable();
    places.into_iter().map(|(_, id)| id).collect()
}

fn allowed_cpus(topology: &Topology, ids: Vec<CpuId>) -> impl Iterator<Item = &Cpu> {
    ids.into_iter()
        .filter_map(|id| topology.cpus.iter().find(|cpu| cpu.id == id))
}

fn sorted_by_key<K: Ord>(topology: &Topology, key: impl Fn(&Cpu, usize) -> K) -> Vec<CpuId> {
    let mut cpus: Vec<&Cpu> = topology.allowed().collect();
    cpus.sort_by_key(|cpu| (key(cpu, rank_in_core(topology, cpu)), cpu.id));
    cpus.into_iter().map(|cpu| cpu.id).collect()
}

/// The index of `cpu` among the CPUs of its core that this process may use: a core whose first
/// hardware thread is forbidden still counts as free.
fn rank_in_core(topology: &Topology, cpu: &Cpu) -> usize {
    topology
        .allowed()
        .filter(|other| other.core == cpu.core && other.smt < cpu.smt)
        .count()
}
