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
    imp::pin_current_thread(cpu)
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

    pub(super) fn pin_current_thread(cpu: CpuId) -> io::Result<()> {
        let mut mask: Mask = [0; _];
        let word = mask
            .get_mut(cpu.0 / WORD_BITS)
            .ok_or(io::ErrorKind::InvalidInput)?;
        *word |= 1 << (cpu.0 % WORD_BITS);
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

    pub(super) fn pin_current_thread(_: CpuId) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn current_cpu() -> Option<CpuId> {
        None
    }

    pub(super) fn allowed_cpus() -> Option<Vec<usize>> {
        None
    }
}
