//! Emulates the instructions of RTM where the processor has none, in the handler of SIGILL.
//!
//! A processor without RTM raises SIGILL at `xbegin`, `xend`, `xabort` and `xtest`. The handler
//! decodes the instruction and changes the interrupted thread's registers and memory as a
//! processor would.
//!
//! # What is emulated
//!
//! - All registers are restored by an abort: general, flags, and the state that XSAVE saves.
//! - Memory is restored by an abort: the thread's stack from the call of [`emulated`], and the
//!   regions that the test names. Other memory is not, such as the heap and thread-locals.
//! - Transactions of all threads run one after the other, so they are isolated from each other.
//!   They are *not* isolated from code outside of transactions: what a thread writes under the
//!   lock does not abort a transaction. Tests must exclude such pairs, or expect them.
//! - An abort happens where the test's script says: at `xbegin`, at `xend`, at `xabort`, or after
//!   a number of instructions, which the trap flag counts.
//!
//! Two modes: [`emulated`] runs a closure on an emulated processor, and [`emulate_process`] makes
//! one of every thread of a process that does not know of it, in a preloaded library. The second
//! mode differs:
//!
//! - A transaction stops all other threads that have executed an instruction of RTM, from begin
//!   to end. So transactions are isolated from code outside, which sees all of them or nothing.
//! - An abort restores the thread's whole stack, and the writable data of the program. It does not
//!   restore the heap, nor the data of libraries.
//! - A system call aborts the transaction before it is made.
//! - The first such instruction of a thread allocates, so it must not come from an allocator. The
//!   program must not block SIGUSR2, nor use it, nor fork while other threads lock.

mod process;
mod world;

use std::arch::asm;
use std::cell::Cell;
use std::ptr;
use std::sync::Once;

use libc::{c_int, c_void, siginfo_t, ucontext_t};

pub use process::{emulate_process, parse_fates};

/// Bit of the status word: `xabort`, with its operand in the highest byte.
pub const EXPLICIT: u32 = 1;
/// Bit of the status word: another attempt may commit.
pub const RETRY: u32 = 1 << 1;
/// Bit of the status word: another thread accessed the same memory.
pub const CONFLICT: u32 = 1 << 2;
/// Bit of the status word: it accessed too much memory.
pub const CAPACITY: u32 = 1 << 3;
/// Bit of the status word: a breakpoint.
pub const DEBUG: u32 = 1 << 4;
/// Bit of the status word: a nested transaction was aborted.
pub const NESTED: u32 = 1 << 5;

/// The instruction of a system call.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Lengths of the instructions.
const XBEGIN_LEN: usize = 6;
const OTHER_LEN: usize = 3;
/// Bits of the flags: carry, parity, auxiliary, zero, sign, overflow; and the trap flag.
const ARITHMETIC_FLAGS: i64 = 0x8d5;
const ZERO_FLAG: i64 = 0x40;
const TRAP_FLAG: i64 = 0x100;
/// The general registers, RIP and the flags come first in `gregs`.
const REGISTERS: usize = libc::REG_EFL as usize + 1;
/// Below the stack pointer, functions use this number of bytes.
const RED_ZONE: usize = 128;
/// The state that FXSAVE saves; where it tells how long the state of XSAVE is, and the magic number
/// in front of that.
const FXSAVE_LEN: usize = 512;
const XSAVE_MAGIC_AT: usize = 464;
const XSAVE_LEN_AT: usize = 468;
const XSAVE_MAGIC: u32 = 0x4650_5853;
/// Room for the saved state, and for the signal's own stack.
const XSAVE_ROOM: usize = 16 << 10;
const MEMORY_ROOM: usize = 256 << 10;
const SIGNAL_STACK: usize = 128 << 10;

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It commits, unless it executes `xabort`.
    Commit,
    /// It is aborted at `xbegin` with a status word.
    AbortAtBegin(u32),
    /// It is aborted at `xend` with a status word.
    AbortAtEnd(u32),
    /// It is aborted after a number of instructions, if it is longer.
    AbortAfter(u32, u32),
}

/// What a thread's transactions did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traps {
    /// `xbegin` outside of a transaction.
    pub began: u64,
    /// Outermost `xend`.
    pub committed: u64,
    /// Transactions that were undone.
    pub aborted: u64,
    /// `xtest`.
    pub tests: u64,
}

/// Memory that an abort restores.
#[derive(Clone, Copy)]
pub struct Region {
    address: usize,
    len: usize,
}

/// The bytes of a value.
pub fn region<T>(value: &T) -> Region {
    Region {
        address: ptr::from_ref(value).expose_provenance(),
        len: size_of::<T>(),
    }
}

/// Where a machine takes the fates of its transactions from.
enum Fates {
    /// Of a closure: the script, reversed, and what follows it.
    Script(Vec<Fate>, Fate),
    /// Of a process, with the thread's place in the list of threads.
    Process(usize),
}

/// The emulated processor of a thread.
struct Machine {
    fates: Fates,
    regions: Vec<Region>,
    stack_end: usize,
    traps: Traps,
    /// Of nested transactions.
    depth: u32,
    fate: Fate,
    instructions: u32,
    fallback: usize,
    registers: [i64; REGISTERS],
    vectors: Vec<u8>,
    stack: Region,
    memory: Vec<u8>,
}

thread_local! {
    static MACHINE: Cell<*mut Machine> = const { Cell::new(ptr::null_mut()) };
}

/// Whether the emulator executes the instructions of RTM: false if the processor does, whatever
/// CPUID reports.
pub fn is_emulated() -> bool {
    let test = || {
        // SAFETY: the instruction only sets flags, and the emulator executes it if the processor
        // does not.
        unsafe { std::arch::asm!("xtest", options(nostack, nomem)) }
    };
    emulated(&[], Fate::Commit, &[], test).1.tests == 1
}

/// Runs a closure with transactions that end as scripted, then `otherwise`.
#[inline(never)]
pub fn emulated<R>(
    script: &[Fate],
    otherwise: Fate,
    regions: &[Region],
    run: impl FnOnce() -> R,
) -> (R, Traps) {
    let stack_end: usize;
    // A local variable has an address elsewhere if AddressSanitizer keeps it on its fake stack.
    // SAFETY: this reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) stack_end, options(nomem, nostack, preserves_flags)) };
    let script = script.iter().rev().copied().collect();
    let mut machine = Box::new(Machine::new(
        Fates::Script(script, otherwise),
        regions,
        stack_end,
    ));
    let machine = &raw mut *machine;
    let _installed = Installed::new(machine);
    let result = call(run);
    // SAFETY: the box lives, and the handler runs in emulated instructions only.
    (result, unsafe { (*machine).traps })
}

/// Has a stack frame below that of its caller.
#[inline(never)]
fn call<R>(run: impl FnOnce() -> R) -> R {
    run()
}

/// The thread has a machine and a stack for signals, until this is dropped.
struct Installed {
    before: libc::stack_t,
    _stack: Vec<u8>,
}

impl Installed {
    fn new(machine: *mut Machine) -> Self {
        install_handlers();
        let mut stack = vec![0u8; SIGNAL_STACK];
        let new = libc::stack_t {
            ss_sp: stack.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: stack.len(),
        };
        let mut before = new;
        // SAFETY: the stack lives until `drop` has put the former one back.
        let error = unsafe { libc::sigaltstack(&raw const new, &raw mut before) };
        assert_eq!(error, 0);
        MACHINE.set(machine);
        Self {
            before,
            _stack: stack,
        }
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        MACHINE.set(ptr::null_mut());
        // SAFETY: what the system returned above.
        unsafe { libc::sigaltstack(&raw const self.before, ptr::null_mut()) };
    }
}

fn install_handlers() {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        for signal in [libc::SIGILL, libc::SIGTRAP] {
            handle(signal, on_signal as *const () as usize, libc::SA_ONSTACK);
        }
    });
}

fn handle(signal: c_int, handler: usize, flags: c_int) {
    // SAFETY: all zeros is a valid value; the handlers are for SA_SIGINFO.
    let error = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_SIGINFO | flags;
        libc::sigaction(signal, &raw const action, ptr::null_mut())
    };
    assert_eq!(error, 0);
}

/// Calls nothing that allocates or locks, except for the first instruction of a thread in a process
/// that is emulated.
extern "C" fn on_signal(signal: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes the context, and the thread waits for this function.
    let context = unsafe { &mut *context.cast::<ucontext_t>() };
    // SAFETY: the place of the thread's own error number; so below.
    let error = unsafe { *libc::__errno_location() };
    let machine = MACHINE.get();
    let is_known = if machine.is_null() {
        process::admit(context)
    } else {
        // SAFETY: the machine lives while it is installed. The code outside of the handler does
        // not use it meanwhile.
        unsafe { (*machine).trap(signal, context) }
    };
    // SAFETY: it is still that thread's.
    unsafe { *libc::__errno_location() = error };
    if !is_known {
        // The instruction raises the signal again, which then ends the process.
        // SAFETY: `signal` has no obligations for the default action.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

fn registers(context: &mut ucontext_t) -> &mut [i64; 23] {
    &mut context.uc_mcontext.gregs
}

/// The state of FXSAVE or XSAVE in the context.
fn vectors(context: &ucontext_t) -> Region {
    let state = context.uc_mcontext.fpregs.cast::<u8>();
    // SAFETY: the state has at least the length of FXSAVE; the system fills these words.
    let (magic, len) = unsafe {
        let word = |at| state.add(at).cast::<u32>().read_unaligned();
        (word(XSAVE_MAGIC_AT), word(XSAVE_LEN_AT))
    };
    let len = if magic == XSAVE_MAGIC {
        len as usize
    } else {
        FXSAVE_LEN
    };
    if len > XSAVE_ROOM {
        std::process::abort();
    }
    Region {
        address: state.expose_provenance(),
        len,
    }
}

/// Copies between a region and the memory that saves it.
///
/// # Safety
///
/// 1. The region can be read and written, and no other thread writes it.
unsafe fn copy(region: Region, saved: &mut [u8], is_restored: bool) {
    let place = ptr::with_exposed_provenance_mut::<u8>(region.address);
    if saved.len() < region.len {
        std::process::abort();
    }
    let (from, to) = if is_restored {
        (saved.as_ptr(), place)
    } else {
        (place.cast_const(), saved.as_mut_ptr())
    };
    // By an instruction, because AddressSanitizer forbids a copy of what lies between variables.
    // SAFETY: nobody else writes the region (1), and the saved bytes are beside it.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") region.len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

impl Machine {
    fn new(fates: Fates, regions: &[Region], stack_end: usize) -> Self {
        Self {
            fates,
            regions: regions.to_vec(),
            stack_end,
            traps: Traps::default(),
            depth: 0,
            fate: Fate::Commit,
            instructions: 0,
            fallback: 0,
            registers: [0; REGISTERS],
            vectors: vec![0; XSAVE_ROOM],
            stack: Region { address: 0, len: 0 },
            memory: vec![0; MEMORY_ROOM],
        }
    }

    /// Emulates an instruction; false if it is not one of RTM.
    fn trap(&mut self, signal: c_int, context: &mut ucontext_t) -> bool {
        if signal == libc::SIGTRAP {
            self.step(context);
            return true;
        }
        let at = registers(context)[libc::REG_RIP as usize] as usize;
        let code = ptr::with_exposed_provenance::<[u8; 3]>(at);
        // SAFETY: the processor has read an instruction here; more code follows all of them.
        match unsafe { code.read() } {
            [0xc7, 0xf8, _] => self.begin(context, at),
            [0x0f, 0x01, 0xd5] => return self.end(context),
            [0x0f, 0x01, 0xd6] => self.test(context),
            [0xc6, 0xf8, code] => {
                registers(context)[libc::REG_RIP as usize] += OTHER_LEN as i64;
                if self.depth > 0 {
                    self.abort(context, EXPLICIT | u32::from(code) << 24);
                }
            }
            _ => return false,
        }
        true
    }

    fn begin(&mut self, context: &mut ucontext_t, at: usize) {
        self.depth += 1;
        if self.depth == 1 {
            world::enter(match self.fates {
                Fates::Process(place) => Some(place),
                Fates::Script(..) => None,
            });
            self.traps.began += 1;
            self.fate = match &mut self.fates {
                Fates::Script(script, otherwise) => script.pop().unwrap_or(*otherwise),
                Fates::Process(place) => {
                    world::stop(*place);
                    process::next_fate()
                }
            };
            let offset = ptr::with_exposed_provenance::<i32>(at + 2);
            // SAFETY: the four bytes behind the opcode of `xbegin`, which was just fetched, are its
            // operand.
            let offset = unsafe { offset.read_unaligned() };
            self.fallback = (at + XBEGIN_LEN).wrapping_add_signed(offset as isize);
            self.save(context);
        }
        registers(context)[libc::REG_RIP as usize] += XBEGIN_LEN as i64;
        match self.fate {
            Fate::AbortAtBegin(status) | Fate::AbortAfter(0, status) => {
                self.abort(context, status);
            }
            Fate::AbortAfter(instructions, _) if self.depth == 1 => {
                self.instructions = instructions;
                registers(context)[libc::REG_EFL as usize] |= TRAP_FLAG;
            }
            _ if self.is_of_process() => {
                registers(context)[libc::REG_EFL as usize] |= TRAP_FLAG;
            }
            _ => {}
        }
    }

    fn save(&mut self, context: &mut ucontext_t) {
        self.registers
            .copy_from_slice(&registers(context)[..REGISTERS]);
        let start = registers(context)[libc::REG_RSP as usize] as usize - RED_ZONE;
        self.stack = Region {
            address: start,
            len: self.stack_end.saturating_sub(start),
        };
        // SAFETY: the context is of this thread, which waits for the handler (1).
        unsafe { copy(vectors(context), &mut self.vectors, false) };
        self.copy_memory(false);
    }

    fn copy_memory(&mut self, is_restored: bool) {
        let mut from = 0;
        for region in self.regions.iter().copied().chain([self.stack]) {
            // SAFETY: the stack is of this thread, and the handler has its own. The regions belong
            // to the test, whose other threads write them in transactions only, or wait (1).
            unsafe { copy(region, &mut self.memory[from..], is_restored) };
            from += region.len;
        }
    }

    fn is_of_process(&self) -> bool {
        matches!(self.fates, Fates::Process(_))
    }

    /// Counts an instruction.
    fn step(&mut self, context: &mut ucontext_t) {
        if self.depth > 0 && self.is_of_process() {
            let at = registers(context)[libc::REG_RIP as usize] as usize;
            // SAFETY: the processor reads an instruction here next; more code follows all of them.
            let code = unsafe { ptr::with_exposed_provenance::<[u8; 2]>(at).read() };
            if code == SYSCALL {
                return self.abort(context, 0);
            }
        }
        match self.fate {
            Fate::AbortAfter(_, status) if self.depth > 0 => {
                self.instructions -= 1;
                if self.instructions == 0 {
                    self.abort(context, status);
                }
            }
            _ if self.depth > 0 && self.is_of_process() => {}
            _ => registers(context)[libc::REG_EFL as usize] &= !TRAP_FLAG,
        }
    }

    /// False outside of a transaction, where the instruction faults.
    fn end(&mut self, context: &mut ucontext_t) -> bool {
        match (self.depth, self.fate) {
            (0, _) => return false,
            (1, Fate::AbortAtEnd(status)) => {
                self.abort(context, status);
                return true;
            }
            (1, _) => {
                self.traps.committed += 1;
                registers(context)[libc::REG_EFL as usize] &= !TRAP_FLAG;
                self.finish();
            }
            _ => self.depth -= 1,
        }
        registers(context)[libc::REG_RIP as usize] += OTHER_LEN as i64;
        true
    }

    fn test(&mut self, context: &mut ucontext_t) {
        self.traps.tests += 1;
        let flags = &mut registers(context)[libc::REG_EFL as usize];
        *flags &= !ARITHMETIC_FLAGS;
        if self.depth == 0 {
            *flags |= ZERO_FLAG;
        }
        registers(context)[libc::REG_RIP as usize] += OTHER_LEN as i64;
    }

    /// Undoes the transaction and goes on at the fallback of the outermost one.
    fn abort(&mut self, context: &mut ucontext_t, status: u32) {
        let nested = if self.depth > 1 { NESTED } else { 0 };
        self.traps.aborted += 1;
        self.copy_memory(true);
        // SAFETY: the context is of this thread, which waits for the handler (1).
        unsafe { copy(vectors(context), &mut self.vectors, true) };
        let all = registers(context);
        all[..REGISTERS].copy_from_slice(&self.registers);
        all[libc::REG_RIP as usize] = self.fallback as i64;
        all[libc::REG_RAX as usize] = i64::from(status | nested);
        self.finish();
    }

    fn finish(&mut self) {
        self.depth = 0;
        if self.is_of_process() {
            process::count(&mut self.traps);
        }
        world::leave(self.is_of_process());
    }
}
