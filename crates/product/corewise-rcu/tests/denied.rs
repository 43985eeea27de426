//! Systems without `membarrier`: the test program runs itself with a filter that denies the call.
#![cfg(target_os = "linux")]

use std::os::unix::process::ExitStatusExt;

use crate::common::in_a_process;
use corewise_atomic::barrier;
use corewise_rcu::Domain;

/// Set in the child: the error that the call returns.
const ERRNO: &str = "COREWISE_MEMBARRIER_ERRNO";

fn errno_to_give() -> Option<u32> {
    std::env::var(ERRNO).ok()?.parse().ok()
}

/// Makes `membarrier` fail with `errno` from now on, in all threads of this process.
fn deny_membarrier(errno: u32) {
    let eq = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let mut filter = [
        // The number of the call, which is at the start of `seccomp_data`.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter {
            code: eq as u16,
            jt: 0,
            jf: 1,
            k: libc::SYS_membarrier as u32,
        },
        statement(libc::BPF_RET, libc::SECCOMP_RET_ERRNO | errno),
        statement(libc::BPF_RET, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    let (mode, flags) = (
        libc::SECCOMP_SET_MODE_FILTER,
        libc::SECCOMP_FILTER_FLAG_TSYNC,
    );
    // SAFETY: the first takes integers; the second reads the program, which lives until it returns.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(libc::SYS_seccomp, mode, flags, &program) == 0
    };
    assert!(installed, "{}", std::io::Error::last_os_error());
}

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

#[test]
fn readers_fence_where_membarrier_is_denied() {
    if let Some(errno) = errno_to_give() {
        deny_membarrier(errno);
        crate::common::swap_and_read(Domain::global());
        crate::common::swap_and_read(&Domain::new());
        assert!(!barrier::prepare());
        return;
    }
    for errno in [libc::EPERM, libc::ENOSYS] {
        let test = "denied::readers_fence_where_membarrier_is_denied";
        let output = in_a_process(test, ERRNO, &errno.to_string());
        assert!(output.status.success(), "{output:?}");
    }
}

/// Readers may be running without fences already, so the process cannot continue.
#[test]
fn a_membarrier_that_stops_working_ends_the_process() {
    if let Some(errno) = errno_to_give() {
        drop(corewise_rcu::pin());
        if barrier::prepare() {
            deny_membarrier(errno);
            Domain::global().synchronize();
        } else {
            // `membarrier` was never available here.
            std::process::abort();
        }
        return;
    }
    let test = "denied::a_membarrier_that_stops_working_ends_the_process";
    let output = in_a_process(test, ERRNO, &libc::EPERM.to_string());
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
}
