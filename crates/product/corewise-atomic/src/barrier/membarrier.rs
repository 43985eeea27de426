//! The two `membarrier` commands in use, by their numbers in the kernel's interface.

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED`
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

/// Announces that this process will use [`run`]; false if the kernel or a filter refuses.
pub(super) fn register() -> bool {
    call(REGISTER_PRIVATE_EXPEDITED)
}

/// Makes every running thread of this process execute a full fence; false if refused.
pub(super) fn run() -> bool {
    call(PRIVATE_EXPEDITED)
}

fn call(command: libc::c_int) -> bool {
    // SAFETY: the call takes three integers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
