//! CPUs, caches and NUMA nodes of the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

/// The system's number of a hardware thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CpuId(pub usize);

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One hardware thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub id: CpuId,
    /// The socket that contains it.
    pub package: usize,
    /// The core that contains it, identified by the lowest CPU of that core.
    pub core: CpuId,
    /// Its index among the hardware threads of its core, from 0.
    pub smt: usize,
    /// The NUMA node that is local to it.
    pub node: usize,
    /// Whether this process may run on it.
    pub allowed: bool,
}

/// The contents of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CacheKind {
    /// Data only.
    Data,
    /// Instructions only.
    Instruction,
    /// Both.
    Unified,
}

/// One cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// The level; 1 is closest to the core.
    pub level: u8,
    /// Its contents.
    pub kind: CacheKind,
    /// Its size; 0 if the system does not report it.
    pub size_bytes: u64,
    /// The size of a cache line; 0 if the system does not report it.
    pub line_bytes: u32,
    /// The CPUs that share it, ascending.
    pub cpus: Vec<CpuId>,
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    /// Its number.
    pub id: usize,
    /// The CPUs local to it, ascending; empty for a node with memory only.
    pub cpus: Vec<CpuId>,
}

/// The machine as this process sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// The online CPUs, by number; at least one.
    pub cpus: Vec<Cpu>,
    /// The caches, from the core outwards.
    pub caches: Vec<Cache>,
    /// The NUMA nodes, by number; at least one.
    pub nodes: Vec<NumaNode>,
    /// The CPU time that a control group grants, in CPUs; `None` if there is no limit.
    pub cpu_quota: Option<f64>,
    /// The bytes of memory that this process may use: those of the machine, or the limit of a
    /// control group if it is smaller; `None` if the system reports neither.
    pub memory_bytes: Option<u64>,
}

impl Topology {
    /// Reads this machine's present state. Reads a dozen small files per CPU: call it once.
    pub fn detect() -> Self {
        Self::read_from(Path::new("/"), crate::allowed_cpus().as_deref())
    }

    /// The machine described by `sys` and `proc` under `root`, on which a process may use the
    /// CPUs `allowed` (`None`: all).
    pub fn read_from(root: &Path, allowed: Option<&[usize]>) -> Self {
        let mut topology = crate::sysfs::read(root, allowed);
        topology.cpu_quota = crate::cgroup::cpu_quota(root);
        let memory = [
            crate::sysfs::memory(root),
            crate::cgroup::memory_limit(root),
        ];
        topology.memory_bytes = memory.into_iter().flatten().min();
        topology
    }

    /// A machine of `count` CPUs (at least one) of which nothing else is known.
    pub fn flat(count: usize) -> Self {
        let ids: Vec<CpuId> = (0..count.max(1)).map(CpuId).collect();
        let cpu = |&id| Cpu {
            id,
            package: 0,
            core: id,
            smt: 0,
            node: 0,
            allowed: true,
        };
        Self {
            cpus: ids.iter().map(cpu).collect(),
            caches: Vec::new(),
            nodes: vec![NumaNode { id: 0, cpus: ids }],
            cpu_quota: None,
            memory_bytes: None,
        }
    }

    /// A machine of `sockets` sockets, each of `nodes` NUMA nodes of `cores` cores of `smt`
    /// hardware threads (each at least one), numbered as Linux does: the first hardware threads of
    /// all cores come first. Nothing else is known of it.
    ///
    /// ```
    /// let machine = corewise_topology::Topology::regular(2, 1, 4, 2);
    /// assert_eq!(machine.to_string(), "2 sockets, 8 cores, 16 CPUs, 2 NUMA nodes");
    /// ```
    pub fn regular(sockets: usize, nodes: usize, cores: usize, smt: usize) -> Self {
        let all_cores = sockets * nodes * cores;
        let mut machine = Self::flat(all_cores * smt);
        for cpu in &mut machine.cpus {
            let core = cpu.id.0 % all_cores;
            cpu.core = CpuId(core);
            cpu.smt = cpu.id.0 / all_cores;
            cpu.node = core / cores;
            cpu.package = cpu.node / nodes;
        }
        let of_node = |id| NumaNode {
            id,
            cpus: (machine.cpus.iter().filter(|cpu| cpu.node == id))
                .map(|cpu| cpu.id)
                .collect(),
        };
        machine.nodes = (0..sockets * nodes).map(of_node).collect();
        machine
    }

    /// The CPUs that this process may use; at least one.
    pub fn allowed(&self) -> impl Iterator<Item = &Cpu> {
        self.cpus.iter().filter(|cpu| cpu.allowed)
    }

    /// The number of sockets with a CPU that this process may use.
    pub fn packages(&self) -> usize {
        self.allowed()
            .map(|cpu| cpu.package)
            .collect::<BTreeSet<_>>()
            .len()
    }

    /// The number of cores with a CPU that this process may use.
    pub fn cores(&self) -> usize {
        self.allowed()
            .map(|cpu| cpu.core)
            .collect::<BTreeSet<_>>()
            .len()
    }

    /// The numbers of CPUs that this process may use of the first group, of the first two, and so
    /// on, up to all; a CPU belongs to the group of its key, such as its socket. Threads that are
    /// placed compactly are in one more socket or NUMA node beyond each of these numbers.
    pub fn group_ends<K: Ord>(&self, key: impl Fn(&Cpu) -> K) -> Vec<usize> {
        let mut sizes = BTreeMap::new();
        for cpu in self.allowed() {
            *sizes.entry(key(cpu)).or_insert(0) += 1;
        }
        let ends = sizes.into_values().scan(0, |end, size| {
            *end += size;
            Some(*end)
        });
        ends.collect()
    }

    /// [`group_ends`](Self::group_ends) of NUMA nodes.
    pub fn node_ends(&self) -> Vec<usize> {
        self.group_ends(|cpu| (cpu.package, cpu.node))
    }

    /// The number of threads that a server should start: one per allowed CPU, but no more than the
    /// quota, rounded up, and at least one.
    pub fn default_threads(&self) -> usize {
        let allowed = self.allowed().count();
        match self.cpu_quota {
            Some(quota) => allowed.min(quota.ceil() as usize).max(1),
            None => allowed,
        }
    }

    /// The data or unified cache of `level` that `cpu` uses.
    pub fn cache_of(&self, cpu: CpuId, level: u8) -> Option<&Cache> {
        self.caches.iter().find(|cache| {
            cache.level == level
                && cache.kind != CacheKind::Instruction
                && cache.cpus.contains(&cpu)
        })
    }
}

/// One line for people: `2 sockets, 16 cores, 32 CPUs (4 allowed), 2 NUMA nodes, quota 1.5`.
impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sockets: BTreeSet<_> = self.cpus.iter().map(|cpu| cpu.package).collect();
        let cores: BTreeSet<_> = self.cpus.iter().map(|cpu| cpu.core).collect();
        write!(f, "{}, ", counted(sockets.len(), "socket"))?;
        write!(f, "{}, ", counted(cores.len(), "core"))?;
        write!(f, "{}", counted(self.cpus.len(), "CPU"))?;
        if self.allowed().count() < self.cpus.len() {
            write!(f, " ({} allowed)", self.allowed().count())?;
        }
        write!(f, ", {}", counted(self.nodes.len(), "NUMA node"))?;
        match self.cpu_quota {
            Some(quota) => write!(f, ", quota {quota}"),
            None => Ok(()),
        }
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
