//! Sockets, cores, hardware threads and caches of this machine, and pinning of threads to CPUs.
//!
//! ```
//! use corewise_topology::{PinPolicy, Topology, pin_current_thread, plan};
//!
//! let machine = Topology::detect();
//! let places = plan(&machine, &PinPolicy::Compact, machine.default_threads());
//! if let Some(cpu) = places[0] {
//!     // A refusal costs speed, not correctness.
//!     let _ = pin_current_thread(cpu);
//! }
//! ```
//!
//! Sources of the facts, and the fallback if one is missing:
//!
//! | fact | Linux | otherwise |
//! |---|---|---|
//! | CPUs | `/sys/devices/system/cpu/online` | the standard library's count |
//! | cores | `topology/thread_siblings_list` | each CPU is a core |
//! | packages | `topology/physical_package_id` | one package |
//! | NUMA nodes | `/sys/devices/system/node/node*/cpulist` | one node |
//! | caches | `cpu*/cache/index*` | none known |
//! | allowed CPUs | `sched_getaffinity` | all |
//! | CPU quota | cgroup v2 `cpu.max`, v1 `cpu.cfs_quota_us`, up to the root | none |
//! | memory | `MemTotal`; cgroup v2 `memory.max`, v1 `memory.limit_in_bytes`, up to the root | unknown |
//!
//! # Guarantees
//!
//! 1. [`Topology::detect`] never panics, and returns at least one CPU.
//! 2. A plan contains allowed CPUs only, except for an explicit list, which is not checked.
//! 3. A plan for more threads than CPUs starts over, so no CPU runs more than one thread more than
//!    another.

mod affinity;
mod cgroup;
mod cpu_list;
mod memory_policy;
mod plan;
mod policy;
mod sysfs;
mod topology;

pub use affinity::{allowed_cpus, current_cpu, pin_current_thread, run_on};
pub use cpu_list::{MAX_CPUS, ParseError, format_cpu_list, parse_cpu_list};
pub use memory_policy::MemoryPolicy;
pub use plan::plan;
pub use policy::PinPolicy;
pub use topology::{Cache, CacheKind, Cpu, CpuId, NumaNode, Topology};
