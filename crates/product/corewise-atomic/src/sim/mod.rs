//! The façade on a simulated machine: `--cfg corewise_sim`.
//!
//! Types have the layout of `std`'s. Each operation asks whether its OS thread runs a simulation.
//! If not, it does what the normal build does. If so, it announces itself to the [`Simulator`] and
//! then does the real operation: no other simulated thread runs in between.
//!
//! This crate does not depend on the simulator: `corewise-sim` hands it in, so that the published
//! crates depend on nothing more.

pub(crate) mod atomic;
pub(crate) mod lock;
pub(crate) mod statics;
pub(crate) mod thread;

use std::cell::Cell;
use std::ptr::NonNull;

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessClass {
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// Reads and writes in one step.
    Rmw,
    /// A hint that brings a line, of any address.
    Prefetch,
    /// The same for a write.
    PrefetchForWrite,
}

/// A place for a value of a thread or of a simulation.
#[derive(Clone, Copy, Debug)]
pub enum LocalSlot {
    /// Nothing was stored.
    Empty,
    /// The value.
    Full(NonNull<()>),
    /// The thread ends, and has dropped the value.
    Dropped,
}

/// What simulates the threads of this OS thread. All methods are called by simulated threads.
///
/// # Safety
///
/// 1. [`local`](Self::local) returns a value only if it is the one that
///    [`set_local`](Self::set_local) has got last with this key: for a static from a thread of the
///    same simulation, else from the calling thread.
/// 2. The simulator drops values of a thread only in [`drop_locals`](Self::drop_locals) and after
///    the thread's body, and returns none that it has begun to drop. It never drops a static's.
/// 3. One thread of a simulation runs at a time, and all of them on one OS thread.
pub unsafe trait Simulator: Sync {
    /// An access, directly before it takes place. May let other threads run first.
    fn access(&self, address: *const u8, bytes: usize, class: AccessClass);
    /// A write that began with [`access`](Self::access) has ended. Lets no other thread run.
    fn written(&self, address: *const u8, bytes: usize);
    /// A full fence of this thread.
    fn fence(&self);
    /// A fence of all running threads.
    fn fence_all(&self);
    /// Some spin hints.
    fn pause(&self, hints: u32);
    /// Gives the processor away.
    fn yield_now(&self);
    /// Sleeps.
    fn sleep(&self, ns: u64);
    /// Waits for [`unpark`](Self::unpark), at most for some nanoseconds.
    fn park(&self, ns: Option<u64>);
    /// Wakes a thread of this simulation.
    fn unpark(&self, thread: u32);
    /// Waits for [`wake`](Self::wake); lets no other thread run before it waits.
    fn wait(&self, address: *const u8);
    /// Wakes the first thread that waits for this address, or all. Lets no other thread run.
    fn wake(&self, address: *const u8, all: bool);
    /// The number of the simulation, which no other one of the process has.
    fn simulation(&self) -> u64;
    /// The number of the calling thread.
    fn current(&self) -> u32;
    /// The name of a thread.
    fn name(&self, thread: u32) -> Option<String>;
    /// Starts a thread; `None` if there is no memory for it.
    fn spawn(&self, name: Option<String>, body: Box<dyn FnOnce() + Send>) -> Option<u32>;
    /// The clock in nanoseconds.
    fn now_ns(&self) -> u64;
    /// A number for an address that is the same in every run.
    fn number_of(&self, address: *const u8) -> usize;
    /// Drops the values of the calling thread, which ends, that have destructors.
    ///
    /// # Safety
    ///
    /// 1. The calling thread has no reference to one of its values.
    unsafe fn drop_locals(&self);
    /// The value of a key: the thread's, or the simulation's.
    fn local(&self, key: usize, is_static: bool) -> LocalSlot;
    /// Stores a value in an empty slot. The simulator calls `drop` for no static. For a value of a
    /// thread it does so in [`drop_locals`](Self::drop_locals) or, if the value has no destructor,
    /// after all destructors, which can use it.
    ///
    /// # Safety
    ///
    /// 1. `drop` may be called with `value`, once, on this OS thread.
    /// 2. Code that reads this key knows the type of `value`.
    unsafe fn set_local(
        &self,
        key: usize,
        is_static: bool,
        value: NonNull<()>,
        drop: unsafe fn(NonNull<()>),
        has_destructor: bool,
    );
}

std::thread_local! {
    static SIMULATOR: Cell<Option<&'static dyn Simulator>> = const { Cell::new(None) };
}

/// Sets what simulates the threads of this OS thread from now on; `None` ends it.
pub fn install(simulator: Option<&'static dyn Simulator>) {
    SIMULATOR.set(simulator);
}

/// The simulator, if this OS thread runs a simulation.
#[inline(always)]
pub(crate) fn simulator() -> Option<&'static dyn Simulator> {
    SIMULATOR.get()
}

/// Announces an access to a value.
#[inline(always)]
pub(crate) fn announce<T>(value: *const T, class: AccessClass) {
    if let Some(simulator) = simulator() {
        simulator.access(value.cast(), size_of::<T>(), class);
    }
}

/// A write to plain memory, announced at its begin and at its end.
pub(crate) struct Writing<T>(*const T);

impl<T> Writing<T> {
    #[inline(always)]
    pub(crate) fn begin(value: *const T) -> Self {
        announce(value, AccessClass::Store);
        Self(value)
    }
}

impl<T> Drop for Writing<T> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(simulator) = simulator() {
            simulator.written(self.0.cast(), size_of::<T>());
        }
    }
}
