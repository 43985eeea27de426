//! The functions that replace those of the C library. The crate's root says how they work.

#![allow(clippy::missing_safety_doc)] // the interface is that of POSIX

use std::io::{Write, stderr};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicI32, AtomicU8};

use corewise_locks::elide::{Cause, Rtm};
use libc::{c_int, clockid_t, pthread_cond_t, pthread_mutex_t, timespec};

use crate::{detect, real};

/// Attempts of a section.
const ATTEMPTS: u32 = 3;
/// Locks without an attempt after a failure.
const SKIPPED: u8 = 3;
/// Pauses of a thread that waits until the mutex is free before an attempt.
const PAUSES: u32 = 256;

/// Codes of explicit aborts: the mutex is held; the section needs the mutex.
const HELD: u8 = 1;
const NEEDS_MUTEX: u8 = 2;

/// Offsets in glibc's `pthread_mutex_t` on x86-64.
const LOCK_AT: usize = 0;
const KIND_AT: usize = 16;
/// The kinds that are elided: PTHREAD_MUTEX_TIMED_NP and PTHREAD_MUTEX_ADAPTIVE_NP.
const DEFAULT_KIND: c_int = 0;
const ADAPTIVE_KIND: c_int = 3;

/// Set by the constructor; without a value or with `None`, nothing is elided.
static BACKEND: OnceLock<Option<Rtm>> = OnceLock::new();
/// Locks that are to skip their attempts, by the address of the mutex.
static SKIPS: [AtomicU8; 1_024] = [const { AtomicU8::new(0) }; 1_024];

/// The system's loader calls this when it has loaded the library.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;

extern "C" fn construct() {
    real::look_up();
    let backend = if !cfg!(target_arch = "x86_64") || !is_layout_known() {
        Err("the layout of mutexes is not known".to_owned())
    } else {
        detect().map_err(|error| error.to_string())
    };
    if std::env::var_os("COREWISE_ELIDE").is_some_and(|value| value == "verbose") {
        // A program whose standard error cannot be written goes on.
        let _ = match &backend {
            Ok(_) => writeln!(stderr(), "corewise-elide: mutexes are elided"),
            Err(reason) => writeln!(stderr(), "corewise-elide: mutexes are not elided: {reason}"),
        };
    }
    let _ = BACKEND.set(backend.ok());
}

/// # Safety
///
/// 1. The pointer is to an initialised mutex.
unsafe fn word<'m>(mutex: *const pthread_mutex_t, offset: usize) -> &'m AtomicI32 {
    // SAFETY: both offsets are those of aligned integers inside of the mutex. Other threads access
    // them atomically.
    unsafe { &*mutex.byte_add(offset).cast::<AtomicI32>() }
}

/// Whether the two words are where they are expected.
fn is_layout_known() -> bool {
    const { assert!(size_of::<pthread_mutex_t>() >= KIND_AT + size_of::<c_int>()) };
    let kinds = [
        libc::PTHREAD_MUTEX_NORMAL,
        libc::PTHREAD_MUTEX_RECURSIVE,
        libc::PTHREAD_MUTEX_ERRORCHECK,
    ];
    kinds.into_iter().all(|kind| {
        let mut mutex = libc::PTHREAD_MUTEX_INITIALIZER;
        let mutex = &raw mut mutex;
        // SAFETY: the attributes are initialised before they are used, and destroyed; so is the
        // mutex, which does not move and which no other thread knows.
        unsafe {
            let mut attributes = std::mem::zeroed::<libc::pthread_mutexattr_t>();
            libc::pthread_mutexattr_init(&raw mut attributes);
            libc::pthread_mutexattr_settype(&raw mut attributes, kind);
            libc::pthread_mutex_init(mutex, &raw const attributes);
            libc::pthread_mutexattr_destroy(&raw mut attributes);
            // Relaxed, all: one thread.
            let is_free = || word(mutex, LOCK_AT).load(Relaxed) == 0;
            // PTHREAD_MUTEX_NORMAL forbids elision with a flag, which is above the low bits.
            let has_kind = word(mutex, KIND_AT).load(Relaxed) & 3 == kind;
            let was_free = is_free();
            real::lock(mutex);
            let is_held = !is_free();
            real::unlock(mutex);
            let is_known = has_kind && was_free && is_held && is_free();
            libc::pthread_mutex_destroy(mutex);
            is_known
        }
    })
}

#[inline(always)]
fn backend() -> Option<Rtm> {
    BACKEND.get().copied().flatten()
}

/// Whether the mutex is of a kind that is elided.
///
/// # Safety
///
/// 1. The pointer is to an initialised mutex.
#[inline(always)]
unsafe fn is_elidable(mutex: *const pthread_mutex_t) -> bool {
    // Relaxed: the kind of an initialised mutex does not change.
    // SAFETY: the mutex is initialised (1).
    let kind = unsafe { word(mutex, KIND_AT) }.load(Relaxed);
    kind == DEFAULT_KIND || kind == ADAPTIVE_KIND
}

/// Whether a thread holds the mutex.
///
/// # Safety
///
/// 1. The pointer is to an initialised mutex.
#[inline(always)]
unsafe fn is_held(mutex: *const pthread_mutex_t) -> bool {
    // Acquire: pairs with the release of the C library's unlock. In a transaction it puts the word
    // into the read set.
    // SAFETY: the mutex is initialised (1).
    unsafe { word(mutex, LOCK_AT) }.load(Acquire) != 0
}

fn skips(mutex: *const pthread_mutex_t) -> &'static AtomicU8 {
    let hash = (mutex.addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &SKIPS[(hash >> 54) as usize]
}

/// Tries to run the section as a transaction; true in that transaction, false if it failed.
///
/// # Safety
///
/// 1. The pointer is to an initialised mutex of a kind that is elided.
/// 2. The caller returns to the program at once, which unlocks the mutex.
#[inline(always)]
unsafe fn elide(rtm: Rtm, mutex: *const pthread_mutex_t) -> bool {
    let skips = skips(mutex);
    // In a transaction the table is neither read, which would conflict with other threads, nor
    // written. An abort goes to the outermost begin.
    if !rtm.is_in_transaction() {
        // Relaxed, both: a hint, which threads may overwrite.
        let left = skips.load(Relaxed);
        if left > 0 {
            skips.store(left - 1, Relaxed);
            return false;
        }
    }
    for _ in 0..ATTEMPTS {
        // SAFETY: the callers are the functions of POSIX below, which return to the program (2).
        // What they and the program wrote to the stack since is undone by an abort (1 of `begin`).
        match unsafe { rtm.begin() } {
            Ok(()) => {
                // SAFETY: the mutex is initialised (1).
                if unsafe { !is_held(mutex) } {
                    return true;
                }
                rtm.leave::<HELD>();
            }
            Err(abort) => match abort.cause {
                // SAFETY: the mutex is initialised (1).
                Cause::Explicit(HELD) if unsafe { waits_until_free(mutex) } => {}
                Cause::Conflict => {}
                _ => break,
            },
        }
    }
    skips.store(SKIPPED, Relaxed); // Relaxed: a hint
    false
}

/// # Safety
///
/// 1. The pointer is to an initialised mutex.
unsafe fn waits_until_free(mutex: *const pthread_mutex_t) -> bool {
    (0..PAUSES).any(|_| {
        std::hint::spin_loop();
        // SAFETY: the mutex is initialised (1).
        unsafe { !is_held(mutex) }
    })
}

/// Leaves a transaction, so that the section runs again with its mutexes held.
#[inline(always)]
fn need_mutex() {
    if let Some(rtm) = backend() {
        rtm.leave::<NEEDS_MUTEX>();
    }
}

/// Replaces the function of the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    if let Some(rtm) = backend()
        // SAFETY: POSIX requires that the mutex is initialised; so below. 2 of `elide`: here (1).
        && unsafe { is_elidable(mutex) && elide(rtm, mutex) }
    {
        return 0;
    }
    // SAFETY: the caller's obligations are passed on; so below.
    unsafe { real::lock(mutex) }
}

/// Replaces the function of the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_mutex_trylock(mutex: *mut pthread_mutex_t) -> c_int {
    // Inside of a transaction the answer would depend on which mutexes it stands for.
    need_mutex();
    // SAFETY: as in `pthread_mutex_lock`.
    unsafe { real::trylock(mutex) }
}

/// Replaces the function of the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_mutex_timedlock(
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    need_mutex();
    // SAFETY: as in `pthread_mutex_lock`.
    unsafe { real::timedlock(mutex, until) }
}

/// Replaces the function of the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_mutex_clocklock(
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    need_mutex();
    // SAFETY: as in `pthread_mutex_lock`.
    unsafe { real::clocklock(mutex, clock, until) }
}

/// Replaces the function of the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    if let Some(rtm) = backend()
        && rtm.is_in_transaction()
        // SAFETY: as in `pthread_mutex_lock`.
        && unsafe { is_elidable(mutex) && !is_held(mutex) }
    {
        // SAFETY: in a transaction, by the check; the mutex is free, so it was elided (1).
        unsafe { rtm.commit() };
        return 0;
    }
    // SAFETY: as in `pthread_mutex_lock`.
    unsafe { real::unlock(mutex) }
}

/// Replaces the function of the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_cond_wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
) -> c_int {
    need_mutex();
    // SAFETY: as in `pthread_mutex_lock`.
    unsafe { real::cond_wait(condition, mutex) }
}

/// Replaces the function of the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_cond_timedwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    need_mutex();
    // SAFETY: as in `pthread_mutex_lock`.
    unsafe { real::cond_timedwait(condition, mutex, until) }
}

/// Replaces the function of the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_cond_clockwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    need_mutex();
    // SAFETY: as in `pthread_mutex_lock`.
    unsafe { real::cond_clockwait(condition, mutex, clock, until) }
}
