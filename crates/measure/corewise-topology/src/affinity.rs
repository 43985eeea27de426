//! Reading and setting the CPUs that the calling thread runs on.

use std::io;

use crate::CpuId;

/// Pins the calling thread to one CPU.
///
/// # Errors
///
/// The system's error if the CPU does not exist or is not allowed; `Unsupported` on systems without
/// such a call.
pub fn pin_current_thread(cpu: CpuId) -> io::Result<()> {
    imp::restrict_current_thread(&[cpu])
}

/// Calls `f` while the calling thread runs on these CPUs only, so that memory that `f` touches
/// first is local to them. Afterwards the thread may run where it might before, also if `f` panics.
/// If the system refuses, or if there are no CPUs, `f` runs wherever the thread is.
///
/// ```
/// use corewise_topology::{Topology, run_on};
///
/// let machine = Topology::detect();
/// let table = run_on(&machine.nodes[0].cpus, || vec![1_u64; 1 << 10]);
/// assert_eq!(table.len(), 1 << 10);
/// ```
pub fn run_on<R>(cpus: &[CpuId], f: impl FnOnce() -> R) -> R {
    let before = allowed_cpus().map(|cpus| cpus.into_iter().map(CpuId).collect());
    let _restore = before
        .filter(|_| imp::restrict_current_thread(cpus).is_ok())
        .map(Restore);
    f()
}

/// Lets the calling thread run on these CPUs when it is dropped.
struct Restore(Vec<CpuId>);

impl Drop for Restore {
    fn drop(&mut self) {
        // A refusal costs speed, not correctness.
        let _ = imp::restrict_current_thread(&self.0);
    }
}

/// The CPU that the calling thread runs on at this moment; `None` if the system does not report it.
pub fn current_cpu() -> Option<CpuId> {
    imp::current_cpu()
}

/// The CPUs that the calling thread may run on, ascending; `None` if the system does not report
/// them.
pub fn allowed_cpus() -> Option<Vec<usize>> {
    imp::allowed_cpus()
}

#[cfg(target_os = "linux")]
mod imp {
    use super::*;
    use crate::MAX_CPUS;

    const WORD_BITS: usize = usize::BITS as usize;

    /// The kernel's bit set, for more CPUs than `libc::cpu_set_t` has room for.
    type Mask = [usize; MAX_CPUS / WORD_BITS];

    const _: () = assert!(align_of::<Mask>() >= align_of::<libc::cpu_set_t>());
    const _: () = assert!(size_of::<Mask>() >= size_of::<libc::cpu_set_t>());

    pub(super) fn restrict_current_thread(cpus: &[CpuId]) -> io::Result<()> {
        let mut mask: Mask = [0; _];
        for cpu in cpus {
            let word = mask
                .get_mut(cpu.0 / WORD_BITS)
                .ok_or(io::ErrorKind::InvalidInput)?;
            *word |= 1 << (cpu.0 % WORD_BITS);
        }
        // SAFETY: the kernel reads `size_of::<Mask>()` bytes of `mask`, which is that long and
        // aligned as asserted above. 0 is the calling thread.
        let status = unsafe { libc::sched_setaffinity(0, size_of::<Mask>(), mask.as_ptr().cast()) };
        if status == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    pub(super) fn current_cpu() -> Option<CpuId> {
        // SAFETY: the call takes no argument and touches no memory of ours.
        usize::try_from(unsafe { libc::sched_getcpu() })
            .ok()
            .map(CpuId)
    }

    pub(super) fn allowed_cpus() -> Option<Vec<usize>> {
        let mut mask: Mask = [0; _];
        // SAFETY: the kernel writes at most `size_of::<Mask>()` bytes of `mask`, which is that
        // long and aligned as asserted above. 0 is the calling thread.
        let status =
            unsafe { libc::sched_getaffinity(0, size_of::<Mask>(), mask.as_mut_ptr().cast()) };
        let is_set = |cpu: &usize| mask[cpu / WORD_BITS] >> (cpu % WORD_BITS) & 1 == 1;
        (status == 0).then(|| (0..MAX_CPUS).filter(is_set).collect())
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use super::*;

    pub(super) fn restrict_current_thread(_: &[CpuId]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn current_cpu() -> Option<CpuId> {
        None
    }

    pub(super) fn allowed_cpus() -> Option<Vec<usize>> {
        None
    }
}
