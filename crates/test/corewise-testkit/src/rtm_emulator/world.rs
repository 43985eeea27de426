//! Which thread is in a transaction, and the threads that it stops meanwhile.
//!
//! A thread stops in the handler of SIGUSR2: it acknowledges the number of the stop, and sleeps
//! until that number changes. A thread that has ended is taken from the list.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};

use libc::{c_int, c_void, siginfo_t};

/// Threads that executed an instruction of RTM, at a time.
const MAX_THREADS: usize = 64;
const NO_THREAD: u32 = 0;
/// A thread that has ended acknowledges nothing, so sleeps are short.
const LONGEST_SLEEP_NS: i64 = 1_000_000;

/// The thread that is in a transaction holds this.
static IS_RUNNING: AtomicU32 = AtomicU32::new(0);
/// Odd while the threads are stopped.
static STOP: AtomicU32 = AtomicU32::new(0);
static THREADS: [AtomicU32; MAX_THREADS] = [const { AtomicU32::new(NO_THREAD) }; MAX_THREADS];
static ACKNOWLEDGED: [AtomicU32; MAX_THREADS] = [const { AtomicU32::new(0) }; MAX_THREADS];
/// How often a thread acknowledged; a thread that stops others sleeps here.
static ACKNOWLEDGEMENTS: AtomicU32 = AtomicU32::new(0);
/// Whether the thread waits in `enter`. It need not be stopped.
static WAITS: [AtomicU32; MAX_THREADS] = [const { AtomicU32::new(0) }; MAX_THREADS];
/// No place of the list above is used from here on.
static USED: AtomicU32 = AtomicU32::new(0);

/// Waits until no other thread is in a transaction. `own` is the thread's place in the list, if it
/// is there.
pub(super) fn enter(own: Option<usize>) {
    let set_waiting = |waits: bool| {
        if let Some(own) = own {
            set(&WAITS[own], u32::from(waits));
        }
    };
    set_waiting(true);
    // Acquire: pairs with the Release in `leave`.
    while IS_RUNNING.swap(1, Acquire) != 0 {
        wait(&IS_RUNNING, 1);
    }
    set_waiting(false);
}

pub(super) fn leave(is_stopped: bool) {
    if is_stopped {
        add(&STOP);
        wake(&STOP);
    }
    IS_RUNNING.store(0, Release); // pairs with the Acquire in `enter`
    wake(&IS_RUNNING);
}

pub(super) fn install() {
    super::handle(
        libc::SIGUSR2,
        on_stop as *const () as usize,
        libc::SA_RESTART,
    );
}

fn get(word: &AtomicU32) -> u32 {
    word.load(SeqCst) // SeqCst, in all three: the emulator favours simplicity
}

fn set(word: &AtomicU32, value: u32) {
    word.store(value, SeqCst); // SeqCst: as above
}

/// Returns the value before.
fn add(word: &AtomicU32) -> u32 {
    word.fetch_add(1, SeqCst) // SeqCst: as above
}

fn current() -> u32 {
    // SAFETY: `gettid` may be called by any thread at any time.
    unsafe { libc::gettid().cast_unsigned() }
}

/// Adds the calling thread to those that are stopped. Returns its place in the list.
pub(super) fn register() -> usize {
    enter(None);
    let place = THREADS.iter().position(|thread| get(thread) == NO_THREAD);
    let place = place.expect("fewer threads");
    set(&THREADS[place], current());
    set(&USED, get(&USED).max(place as u32 + 1));
    leave(false);
    place
}

/// After `fork`: the child has one thread.
pub(super) fn unregister_others(place: usize) {
    for (at, thread) in THREADS.iter().enumerate() {
        set(thread, if at == place { current() } else { NO_THREAD });
    }
}

/// Sends a signal to a thread of this process; false if the thread has ended.
fn send(thread: u32, signal: c_int) -> bool {
    // SAFETY: a signal whose handler is installed, or none.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) == 0 }
}

/// Stops all threads of the list except that at `own`. The caller has entered.
pub(super) fn stop(own: usize) {
    if get(&THREADS[own]) != current() {
        unregister_others(own); // in the child of a fork
    }
    let number = add(&STOP) + 1;
    let used = get(&USED) as usize;
    let others = || (0..used).filter(|place| *place != own);
    let is_stopped = |place: usize| {
        let is_acknowledged = get(&ACKNOWLEDGED[place]) == number;
        is_acknowledged || get(&WAITS[place]) != 0
    };
    for place in others().filter(|place| get(&WAITS[*place]) == 0) {
        let thread = get(&THREADS[place]);
        if thread != NO_THREAD && !send(thread, libc::SIGUSR2) {
            set(&THREADS[place], NO_THREAD);
        }
    }
    for place in others() {
        let thread = get(&THREADS[place]);
        let mut seen = get(&ACKNOWLEDGEMENTS);
        while thread != NO_THREAD && !is_stopped(place) {
            if !send(thread, 0) {
                set(&THREADS[place], NO_THREAD);
                break;
            }
            wait(&ACKNOWLEDGEMENTS, seen);
            seen = get(&ACKNOWLEDGEMENTS);
        }
    }
}

/// Sleeps while the word has the value, or for a short time.
fn wait(word: &AtomicU32, value: u32) {
    futex(word, libc::FUTEX_WAIT, value);
}

fn wake(word: &AtomicU32) {
    futex(word, libc::FUTEX_WAKE, i32::MAX as u32);
}

fn futex(word: &AtomicU32, operation: c_int, value: u32) {
    let limit = libc::timespec {
        tv_sec: 0,
        tv_nsec: LONGEST_SLEEP_NS,
    };
    // SAFETY: the word and the limit live meanwhile.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation | libc::FUTEX_PRIVATE_FLAG,
            value,
            &raw const limit,
        )
    };
}

extern "C" fn on_stop(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the place of the thread's own error number; so below.
    let error = unsafe { *libc::__errno_location() };
    let own = current();
    let number = get(&STOP);
    let place = THREADS.iter().position(|thread| get(thread) == own);
    if let Some(place) = place.filter(|_| number % 2 == 1) {
        set(&ACKNOWLEDGED[place], number);
        add(&ACKNOWLEDGEMENTS);
        wake(&ACKNOWLEDGEMENTS);
        while get(&STOP) == number {
            wait(&STOP, number);
        }
    }
    // SAFETY: it is still that thread's.
    unsafe { *libc::__errno_location() = error };
}
