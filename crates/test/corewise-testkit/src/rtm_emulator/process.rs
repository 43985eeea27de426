//! The emulator for all threads of a process that does not know of it.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use libc::{c_int, c_void, ucontext_t};

use super::{Fate, Fates, MACHINE, Machine, Region, SIGNAL_STACK, Traps, world};

struct Process {
    fates: Vec<Fate>,
    /// The writable data of the program.
    regions: Vec<Region>,
}

static PROCESS: OnceLock<Process> = OnceLock::new();
/// Transactions that began, committed and were aborted.
static BEGAN: AtomicU64 = AtomicU64::new(0);
static COMMITTED: AtomicU64 = AtomicU64::new(0);
static ABORTED: AtomicU64 = AtomicU64::new(0);

/// Emulates RTM in all threads of this process from now on. The transactions of all threads
/// together end as the list of fates says, which is repeated. When the process exits, it prints
/// how many began, committed and were aborted, in one line on the standard error.
///
/// # Panics
///
/// If the list is empty, or this was called before.
pub fn emulate_process(fates: Vec<Fate>) {
    assert!(!fates.is_empty());
    let regions = regions_of_program();
    let is_first = PROCESS.set(Process { fates, regions }).is_ok();
    assert!(is_first, "the process is emulated already");
    super::install_handlers();
    world::install();
    // SAFETY: the function may run at exit.
    unsafe { libc::atexit(report) };
}

/// Reads a list such as `commit 6@begin 8@end 4@17`: a transaction that commits, some that are
/// aborted with a status word in hexadecimal at begin, at their end, and after 17 instructions.
///
/// # Panics
///
/// If the list is none.
#[must_use]
pub fn parse_fates(text: &str) -> Vec<Fate> {
    let parse = |word: &str| {
        let Some((status, place)) = word.split_once('@') else {
            assert_eq!(word, "commit");
            return Fate::Commit;
        };
        let status = u32::from_str_radix(status, 16).expect("a status word");
        match place {
            "begin" => Fate::AbortAtBegin(status),
            "end" => Fate::AbortAtEnd(status),
            number => Fate::AbortAfter(number.parse().expect("a number"), status),
        }
    };
    text.split_whitespace().map(parse).collect()
}

extern "C" fn report() {
    // Relaxed, all: other threads are not waited for.
    let [began, committed, aborted] = [&BEGAN, &COMMITTED, &ABORTED].map(|n| n.load(Relaxed));
    eprintln!("emulated: {began} began, {committed} committed, {aborted} aborted");
}

/// The loader's first object is the program.
fn regions_of_program() -> Vec<Region> {
    unsafe extern "C" fn add(
        object: *mut libc::dl_phdr_info,
        _: usize,
        regions: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes an object with its headers, and the vector below.
        let (object, regions) = unsafe { (&*object, &mut *regions.cast::<Vec<Region>>()) };
        // SAFETY: the object has this number of headers.
        let headers =
            unsafe { std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
        let loaded = headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD);
        let written = loaded.filter(|header| header.p_flags & libc::PF_W != 0);
        // The loader makes the beginning read-only once it has written it.
        let fixed = headers
            .iter()
            .find(|header| header.p_type == libc::PT_GNU_RELRO);
        let fixed_end = fixed.map_or(0, |header| (header.p_vaddr + header.p_memsz) as usize);
        regions.extend(written.map(|header| {
            let start = (header.p_vaddr as usize).max(fixed_end);
            let end = (header.p_vaddr + header.p_memsz) as usize;
            Region {
                address: object.dlpi_addr as usize + start,
                len: end.saturating_sub(start),
            }
        }));
        1 // no further object
    }
    let mut regions = Vec::new();
    // SAFETY: the function gets the vector, which lives until the end of this call.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut regions).cast()) };
    regions
}

/// Gives the calling thread a machine, and a stack for signals from the next one on. The
/// instruction is executed again then. False if the process is not emulated.
pub(super) fn admit(context: &mut ucontext_t) -> bool {
    let Some(process) = PROCESS.get() else {
        return false;
    };
    let stack = Box::leak(vec![0u8; SIGNAL_STACK].into_boxed_slice());
    context.uc_stack = libc::stack_t {
        ss_sp: stack.as_mut_ptr().cast(),
        ss_flags: 0,
        ss_size: stack.len(),
    };
    let fates = Fates::Process(world::register());
    let machine = Machine::new(fates, &process.regions, stack_end());
    MACHINE.set(Box::into_raw(Box::new(machine)));
    true
}

/// Where the stack of the calling thread ends, with its thread-locals if they are there. What the C
/// library knows of the thread lies behind them; other threads write that.
fn stack_end() -> usize {
    let (mut start, mut len) = (ptr::null_mut(), 0);
    // SAFETY: the attributes are initialised by the first call, and destroyed.
    let error = unsafe {
        let mut attributes = std::mem::zeroed();
        let error = libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes);
        libc::pthread_attr_getstack(&raw const attributes, &raw mut start, &raw mut len);
        libc::pthread_attr_destroy(&raw mut attributes);
        error
    };
    assert_eq!(error, 0);
    let end = start.addr() + len;
    // SAFETY: `pthread_self` may be called by any thread at any time.
    let descriptor = unsafe { libc::pthread_self() } as usize;
    let is_inside = (start.addr()..end).contains(&descriptor);
    if is_inside { descriptor } else { end }
}

pub(super) fn next_fate() -> Fate {
    let fates = &PROCESS.get().expect("the thread was admitted").fates;
    // Relaxed: one thread at a time.
    fates[BEGAN.load(Relaxed) as usize % fates.len()]
}

/// Adds what a transaction did, at its end.
pub(super) fn count(traps: &mut Traps) {
    let Traps {
        began,
        committed,
        aborted,
        ..
    } = std::mem::take(traps);
    // Relaxed, all: one thread at a time.
    BEGAN.fetch_add(began, Relaxed);
    COMMITTED.fetch_add(committed, Relaxed);
    ABORTED.fetch_add(aborted, Relaxed);
}
