//! Detection of many kinds of machines from files.

use crate::common;

use common::Fake;
use corewise_topology::{CpuId, Topology, allowed_cpus, current_cpu, pin_current_thread, run_on};

fn read(fake: &Fake) -> Topology {
    Topology::read_from(fake.root(), None)
}

#[test]
fn two_sockets_with_smt_are_read_in_full() {
    let machine = read(&Fake::two_sockets());
    assert_eq!(
        (machine.packages(), machine.cores(), machine.cpus.len()),
        (2, 8, 16)
    );
    let cpu = &machine.cpus[11];
    assert_eq!(
        (cpu.id, cpu.core, cpu.smt, cpu.package, cpu.node),
        (CpuId(11), CpuId(3), 1, 1, 1)
    );
    assert_eq!(machine.nodes[0].cpus.len(), 8);
    assert_eq!(
        machine.to_string(),
        "2 sockets, 8 cores, 16 CPUs, 2 NUMA nodes"
    );
}

#[test]
fn each_cache_is_listed_once_with_its_sharers() {
    let machine = read(&Fake::two_sockets());
    let count = |level| {
        machine
            .caches
            .iter()
            .filter(|cache| cache.level == level)
            .count()
    };
    assert_eq!((count(1), count(2), count(3)), (16, 8, 2));
    let level2 = machine.cache_of(CpuId(3), 2).unwrap();
    assert_eq!(level2.cpus, [CpuId(3), CpuId(11)]);
    assert_eq!((level2.size_bytes, level2.line_bytes), (1 << 20, 64));
    assert_eq!(machine.cache_of(CpuId(3), 3).unwrap().size_bytes, 22 << 20);
    assert!(machine.cache_of(CpuId(3), 4).is_none());
}

#[test]
fn arm_without_smt_has_a_core_per_cpu_and_one_package() {
    let fake = Fake::new();
    fake.online("0-3");
    for cpu in 0..4 {
        fake.cpu(cpu, "-1", &cpu.to_string());
    }
    let machine = read(&fake);
    assert_eq!((machine.packages(), machine.cores()), (1, 4));
    assert!(machine.cpus.iter().all(|cpu| cpu.smt == 0));
}

#[test]
fn cpus_that_are_off_do_not_count() {
    let fake = Fake::two_sockets();
    fake.online("0-6,8-10");
    let machine = read(&fake);
    assert_eq!((machine.cpus.len(), machine.cores()), (10, 7));
    assert_eq!(machine.nodes[1].cpus, [1, 3, 5, 9].map(CpuId));
    assert_eq!(machine.cache_of(CpuId(3), 2).unwrap().cpus, [CpuId(3)]);
}

#[test]
fn a_sibling_whose_partner_is_off_names_its_own_core() {
    let fake = Fake::new();
    fake.online("1").cpu(1, "0", "0-1");
    let machine = read(&fake);
    assert_eq!((machine.cpus[0].core, machine.cpus[0].smt), (CpuId(1), 0));
}

#[test]
fn a_small_virtual_machine_with_missing_files_is_two_plain_cpus() {
    let fake = Fake::new();
    fake.file("sys/devices/system/cpu/cpu0/uevent", "")
        .online("0-1");
    let machine = read(&fake);
    assert_eq!(
        (machine.packages(), machine.cores(), machine.nodes.len()),
        (1, 2, 1)
    );
    assert!(machine.caches.is_empty());
    assert_eq!(machine.default_threads(), 2);
}

#[test]
fn without_a_list_of_cpus_the_directories_are_counted() {
    let fake = Fake::new();
    fake.cpu(0, "0", "0")
        .cpu(1, "0", "1")
        .file("sys/devices/system/cpu/cpufreq/x", "");
    assert_eq!(read(&fake).cpus.len(), 2);
}

/// Guarantee 1.
#[test]
fn without_any_files_there_is_still_a_cpu() {
    assert!(!read(&Fake::new()).cpus.is_empty());
    let machine = Topology::read_from(Fake::new().root(), Some(&[3]));
    assert_eq!(
        machine.allowed().map(|cpu| cpu.id).collect::<Vec<_>>(),
        [CpuId(3)]
    );
    assert_eq!(Topology::flat(0).cpus.len(), 1);
}

#[test]
fn files_full_of_nonsense_are_as_good_as_missing() {
    let fake = Fake::new();
    fake.online("0-1")
        .cpu(0, "first", "?")
        .cache(0, 0, ["one", "Data", "K", "-"]);
    fake.cache(1, 0, ["1", "Data", "K", "9-3"]).node(0, "all");
    let machine = read(&fake);
    assert_eq!(
        (machine.cores(), machine.nodes.len(), machine.caches.len()),
        (2, 1, 1)
    );
    assert_eq!(machine.caches[0].size_bytes, 0);
}

#[test]
fn a_forbidden_cpu_is_known_but_not_allowed() {
    let machine = Topology::read_from(Fake::two_sockets().root(), Some(&[1, 2, 9]));
    assert_eq!(
        (
            machine.default_threads(),
            machine.cores(),
            machine.packages()
        ),
        (3, 2, 2)
    );
    assert!(machine.to_string().contains("16 CPUs (3 allowed)"));
}

#[test]
fn quotas_of_every_kind_limit_the_threads() {
    let v2 = "sys/fs/cgroup";
    let v1 = "sys/fs/cgroup/cpu,cpuacct";
    // (/proc/self/cgroup, files, the quota)
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], Option<f64>);
    let cases: &[Case<'_>] = &[
        (
            "0::/app/one",
            &[("app/one/cpu.max", "150000 100000")],
            Some(1.5),
        ),
        ("0::/app/one", &[("app/one/cpu.max", "max 100000")], None),
        (
            "0::/app/one",
            &[
                ("app/one/cpu.max", "max 100000"),
                ("app/cpu.max", "50000 100000"),
            ],
            Some(0.5),
        ),
        ("0::/../gone", &[("cpu.max", "300000 100000")], Some(3.0)),
        ("0::/", &[("cpu.max", "nonsense")], None),
        ("0::/", &[], None),
        ("garbage", &[("cpu.max", "1 1")], None),
    ];
    for (groups, files, quota) in cases {
        let fake = Fake::two_sockets();
        fake.file("proc/self/cgroup", groups);
        for (path, text) in *files {
            fake.file(&format!("{v2}/{path}"), text);
        }
        assert_eq!(read(&fake).cpu_quota, *quota, "{groups} {files:?}");
    }
    let fake = Fake::two_sockets();
    fake.file(
        "proc/self/cgroup",
        "5:memory:/x\n4:cpu,cpuacct:/docker/ab\n0::/",
    );
    fake.file(&format!("{v1}/cpu.cfs_quota_us"), "250000");
    fake.file(&format!("{v1}/cpu.cfs_period_us"), "100000");
    fake.file(&format!("{v1}/docker/ab/cpu.cfs_quota_us"), "-1");
    fake.file(&format!("{v1}/docker/ab/cpu.cfs_period_us"), "100000");
    assert_eq!(
        (read(&fake).cpu_quota, read(&fake).default_threads()),
        (Some(2.5), 3)
    );
}

/// The machine has 8 MiB, and groups of both versions have more or less.
#[test]
fn the_least_limit_of_memory_counts() {
    const MIB: u64 = 1 << 20;
    let v1 = "sys/fs/cgroup/memory";
    let v2 = "sys/fs/cgroup";
    let unlimited = "9223372036854771712\n"; // version 1
    // (/proc/self/cgroup, files, the memory in bytes)
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], u64);
    let cases: &[Case<'_>] = &[
        ("0::/", &[], 8 * MIB),
        ("0::/app", &[("app/memory.max", "max\n")], 8 * MIB),
        ("0::/app", &[("app/memory.max", "5242880\n")], 5 * MIB),
        ("0::/app", &[("app/memory.max", "16777216\n")], 8 * MIB),
        (
            "0::/app/one",
            &[
                ("app/one/memory.max", "5242880"),
                ("app/memory.max", "3145728"),
            ],
            3 * MIB,
        ),
        ("0::/../gone", &[("memory.max", "4194304")], 4 * MIB),
        ("0::/", &[("memory.max", "nonsense")], 8 * MIB),
        (
            "4:memory:/docker/ab\n0::/",
            &[
                ("memory/docker/ab/memory.limit_in_bytes", unlimited),
                ("memory/docker/memory.limit_in_bytes", "2097152"),
                ("memory/memory.limit_in_bytes", unlimited),
            ],
            2 * MIB,
        ),
        (
            "3:cpuset:/x",
            &[("memory/memory.limit_in_bytes", "1")],
            8 * MIB,
        ),
    ];
    for (groups, files, bytes) in cases {
        let fake = Fake::two_sockets();
        fake.file("proc/self/cgroup", groups).file(
            "proc/meminfo",
            "MemTotal:           8192 kB\nMemFree: 1 kB\n",
        );
        for (path, text) in *files {
            fake.file(&format!("{v2}/{path}"), text);
        }
        assert_eq!(read(&fake).memory_bytes, Some(*bytes), "{groups} {files:?}");
    }
    let fake = Fake::two_sockets();
    assert_eq!(read(&fake).memory_bytes, None);
    fake.file("proc/self/cgroup", "4:memory:/");
    fake.file(&format!("{v1}/memory.limit_in_bytes"), "4096");
    assert_eq!(read(&fake).memory_bytes, Some(4096));
}

#[test]
fn a_tiny_quota_still_gives_one_thread() {
    let fake = Fake::two_sockets();
    fake.file("proc/self/cgroup", "0::/")
        .file("sys/fs/cgroup/cpu.max", "1000 100000");
    assert_eq!(read(&fake).default_threads(), 1);
}

#[test]
fn this_machine_is_detected_and_a_thread_stays_where_it_is_pinned() {
    let machine = Topology::detect();
    let last = machine.allowed().last().unwrap().id;
    std::thread::spawn(move || {
        if pin_current_thread(last).is_ok() {
            assert_eq!(current_cpu(), Some(last));
        }
        assert!(pin_current_thread(CpuId(1 << 20)).is_err());
    })
    .join()
    .unwrap();
}

#[test]
fn a_thread_runs_on_some_cpus_for_a_while() {
    let thread = || {
        let before = allowed_cpus();
        let last = Topology::detect().allowed().last().unwrap().id;
        run_on(&[last], || {
            let now = allowed_cpus();
            // The system may refuse to pin.
            let is_refused = pin_current_thread(last).is_err();
            assert!(is_refused || now == Some(vec![last.0]));
        });
        assert_eq!(allowed_cpus(), before);
        let unwound = std::panic::catch_unwind(|| {
            run_on(&[last], || std::panic::resume_unwind(Box::new(())))
        });
        assert!(unwound.is_err());
        assert_eq!(allowed_cpus(), before);
        // Refused: no CPUs, and one that does not exist.
        assert_eq!(run_on(&[], allowed_cpus), before);
        assert_eq!(run_on(&[CpuId(1 << 20)], allowed_cpus), before);
    };
    std::thread::spawn(thread).join().unwrap();
}
