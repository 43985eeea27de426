//! Sockets, cores, hardware threads and caches of this machine, and pinning threads to them.
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
//! Where the facts come from, and what stands in when one is missing:
//!
//! | fact | Linux | otherwise |
//! |---|---|---|
//! | CPUs | `/sys/devices/system/cpu/online` | as many as the standard library counts |
//! | cores | `topology/thread_siblings_list` | each CPU is a core |
//! | packages | `topology/physical_package_id` | one package |
//! | NUMA nodes | `/sys/devices/system/node/node*/cpulist` | one node |
//! | caches | `cpu*/cache/index*` | none known |
//! | allowed CPUs | `sched_getaffinity` | all |
//! | CPU quota | cgroup v2 `cpu.max`, v1 `cpu.cfs_quota_us`, up to the root | none |
//!
//! # Guarantees
//!
//! 1. [`Topology::detect`] always answers, with one CPU at least, and never panics.
//! 2. A plan names allowed CPUs only, except for a list, which is taken at its word.
//! 3. A plan for more threads than CPUs starts over, so no CPU carries two threads more than
//!    another.

mod affinity;
mod cgroup;
mod cpu_list;
mod plan;
mod policy;
mod sysfs;
mod topology;

pub use affinity::{allowed_cpus, current_cpu, pin_current_thread};
pub use cpu_list::{CpuListError, MAX_CPUS, format_cpu_list, parse_cpu_list};
pub use plan::plan;
pub use policy::{PinPolicy, PinPolicyError};
pub use topology::{Cache, CacheKind, Cpu, CpuId, Node, Topology};
