//! The manifest of a result file: program, build and machine of a run.

use std::fs;
use std::path::Path;

use corewise_measure::cpu;
use corewise_measure::machine::{Machine, field};
use corewise_measure::ticks::Ticks;
use corewise_topology::{CacheKind, Topology};

use crate::allocator;
use crate::record::{CacheFacts, MachineFacts, Manifest, SCHEMA};

/// Returns the manifest of a run of a suite, or of `command line`, that starts now in this process.
/// Unknown facts are "unknown"; the plan, the seed and the cards are the caller's to fill in.
pub fn manifest(suite: &str) -> Manifest {
    let now = Machine::look();
    let arguments = std::env::args_os();
    Manifest {
        schema: SCHEMA,
        date: now.date.clone(),
        command: arguments
            .map(|word| word.to_string_lossy().into())
            .collect(),
        suite: suite.into(),
        plan: String::new(),
        seed: 0,
        commit: env!("COREWISE_COMMIT").into(),
        dirty: env!("COREWISE_DIRTY") == "true",
        rustc: env!("COREWISE_RUSTC").into(),
        build: env!("COREWISE_BUILD").into(),
        features: features(),
        allocator: allocator::line(),
        pages: allocator::pages_line(),
        machine: machine_facts(&now, &Topology::detect(), Path::new("/")),
        cards: Vec::new(),
    }
}

/// Returns the features that were compiled in.
pub fn features() -> Vec<String> {
    let all = [
        ("bench", cfg!(feature = "bench")),
        ("peers", cfg!(feature = "peers")),
    ];
    let on = all.iter().filter(|(_, on)| *on);
    on.map(|(name, _)| (*name).to_owned()).collect()
}

/// Returns the facts of the machine: from `topology`, `proc` under `root` and the processor itself.
pub fn machine_facts(machine: &Machine, topology: &Topology, root: &Path) -> MachineFacts {
    let clock = Ticks::get();
    MachineFacts {
        cpu: machine.cpu.clone(),
        cpus: topology.allowed().count(),
        cores: topology.cores(),
        sockets: topology.packages(),
        node_ends: topology.node_ends(),
        kernel: machine.kernel.clone(),
        memory_bytes: memory_bytes(root).unwrap_or(0),
        caches: caches(topology),
        load_1min: load_1min(root).unwrap_or(0.0),
        virtual_machine: is_virtual(root),
        tsc_hz: clock.hz(),
        timing_overhead_ns: clock.ns_f64(clock.overhead()),
    }
}

/// Returns the data and unified caches of the first CPU that this process may use, from the core
/// outwards.
pub fn caches(topology: &Topology) -> Vec<CacheFacts> {
    let Some(first) = topology.allowed().next().map(|cpu| cpu.id) else {
        return Vec::new();
    };
    let mine = topology
        .caches
        .iter()
        .filter(|cache| cache.kind != CacheKind::Instruction && cache.cpus.contains(&first));
    let mut caches: Vec<_> = mine
        .map(|cache| CacheFacts {
            level: cache.level,
            size_bytes: cache.size_bytes,
            shared_by: cache.cpus.len(),
        })
        .collect();
    caches.sort_by_key(|cache| cache.level);
    caches
}

/// Returns the bytes of physical memory.
pub(crate) fn memory_bytes(root: &Path) -> Option<u64> {
    meminfo_kib(root, "MemTotal").map(|kib| kib * 1024)
}

/// Returns a value of `/proc/meminfo`.
pub(crate) fn meminfo_kib(root: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    field(&text, name)?.strip_suffix(" kB")?.trim().parse().ok()
}

/// Returns the load average over a minute.
pub(crate) fn load_1min(root: &Path) -> Option<f64> {
    let text = fs::read_to_string(root.join("proc/loadavg")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Returns whether a hypervisor is detected, by the flags of the CPU or by the kernel.
pub(crate) fn is_virtual(root: &Path) -> bool {
    let cpuinfo = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let flagged = field(&cpuinfo, "flags")
        .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    let told = ["sys/hypervisor/type", "proc/device-tree/hypervisor"];
    let asked = root == Path::new("/") && cpu::has_hypervisor();
    flagged || asked || told.iter().any(|file| root.join(file).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_of_a_run_is_filled_in() {
        let manifest = manifest("a suite");
        assert_eq!((manifest.schema, &*manifest.suite), (SCHEMA, "a suite"));
        assert!(manifest.rustc.starts_with("rustc 1."), "{}", manifest.rustc);
        assert!(manifest.build.contains("opt-level"), "{}", manifest.build);
        assert!(manifest.commit == "unknown" || manifest.commit.len() >= 40);
        assert!(!manifest.command.is_empty());
        assert!(manifest.pages.contains("system"));
        let machine = &manifest.machine;
        assert!(machine.cpus >= machine.cores && machine.cores >= machine.sockets);
        assert!(machine.tsc_hz > 1e6 && machine.timing_overhead_ns >= 0.0);
        let text = serde_json::to_string(&manifest).expect("it is written");
        let mut parsed: Manifest = serde_json::from_str(&text).expect("it is read");
        // Without its feature `float_roundtrip`, serde_json may read the last digit differently.
        let (read, written) = (parsed.machine.tsc_hz, manifest.machine.tsc_hz);
        assert!((read / written - 1.0).abs() < 1e-12, "{read} {written}");
        parsed.machine.tsc_hz = written;
        parsed.machine.timing_overhead_ns = manifest.machine.timing_overhead_ns;
        assert_eq!(parsed, manifest);
    }

    #[test]
    fn features_are_those_compiled_in() {
        assert_eq!(
            features().contains(&"bench".to_owned()),
            cfg!(feature = "bench")
        );
    }

    #[test]
    fn files_of_another_machine_are_read() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        assert_eq!((memory_bytes(root), load_1min(root)), (None, None));
        assert!(!is_virtual(root));
        fs::create_dir(root.join("proc")).expect("a directory");
        let write = |name: &str, text| fs::write(root.join("proc").join(name), text).expect(name);
        write("meminfo", "MemTotal:        2048 kB\nMemFree: 1 kB\n");
        write("loadavg", "1.25 0.5 0.1 1/86 3512\n");
        write("cpuinfo", "processor : 0\nflags : fpu hypervisor sse\n");
        assert_eq!(memory_bytes(root), Some(2 << 20));
        assert_eq!(load_1min(root), Some(1.25));
        assert!(is_virtual(root));
    }

    #[test]
    fn a_machine_without_caches_has_none() {
        assert!(caches(&Topology::flat(4)).is_empty());
        let mut topology = Topology::flat(4);
        let cache = |level, kind| corewise_topology::Cache {
            level,
            kind,
            size_bytes: 1 << (10 + level),
            line_bytes: 64,
            cpus: topology.cpus.iter().map(|cpu| cpu.id).collect(),
        };
        let caches_there = vec![
            cache(3, CacheKind::Unified),
            cache(1, CacheKind::Data),
            cache(1, CacheKind::Instruction),
        ];
        topology.caches = caches_there;
        let levels: Vec<_> = caches(&topology)
            .iter()
            .map(|c| (c.level, c.shared_by))
            .collect();
        assert_eq!(levels, [(1, 4), (3, 4)]);
    }
}
