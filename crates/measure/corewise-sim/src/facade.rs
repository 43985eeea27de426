//! The engine as the simulator of `corewise-atomic`'s façade.

use std::ptr::NonNull;

use corewise_atomic::sim::{AccessClass, LocalSlot, Simulator, install};

use crate::AccessKind;
use crate::engine::{self, DropTime, PerThread, Slot};

/// From now on the façade of this OS thread calls the engine.
pub(crate) fn enter() {
    install(Some(&Engine));
}

/// From now on it does what it does in a normal build.
pub(crate) fn leave() {
    install(None);
}

struct Engine;

fn per_thread(is_static: bool) -> PerThread {
    if is_static {
        PerThread::No
    } else {
        PerThread::Yes
    }
}

// SAFETY: the engine keeps the values of a key by thread, or by simulation for a static (1). It
// drops those of a thread in `drop_locals` and after its body, and takes each out of its place
// before (2). Threads of a simulation are coroutines of one OS thread (3).
unsafe impl Simulator for Engine {
    #[inline]
    fn access(&self, address: *const u8, bytes: usize, class: AccessClass) {
        let kind = match class {
            AccessClass::Load => AccessKind::Load,
            AccessClass::Store => AccessKind::Store,
            AccessClass::Rmw => AccessKind::Rmw,
            AccessClass::Prefetch => AccessKind::Prefetch,
            AccessClass::PrefetchForWrite => AccessKind::PrefetchForWrite,
        };
        engine::access(address, bytes, kind);
    }

    fn written(&self, address: *const u8, bytes: usize) {
        engine::written(address, bytes);
    }

    fn fence(&self) {
        engine::fence();
    }

    fn fence_all(&self) {
        engine::fence_all();
    }

    fn pause(&self, hints: u32) {
        engine::pause(hints);
    }

    fn yield_now(&self) {
        engine::yield_now();
    }

    fn sleep(&self, ns: u64) {
        engine::sleep(ns);
    }

    fn park(&self, ns: Option<u64>) {
        engine::park(ns);
    }

    fn unpark(&self, thread: u32) {
        engine::unpark(thread);
    }

    fn wait(&self, address: *const u8) {
        engine::wait(address);
    }

    fn wake(&self, address: *const u8, all: bool) {
        engine::wake(address, all);
    }

    fn simulation(&self) -> u64 {
        engine::simulation()
    }

    fn current(&self) -> u32 {
        engine::current()
    }

    fn name(&self, thread: u32) -> Option<String> {
        engine::name_of(thread)
    }

    fn spawn(&self, name: Option<String>, body: Box<dyn FnOnce() + Send>) -> Option<u32> {
        engine::spawn(name, body).ok()
    }

    fn now_ns(&self) -> u64 {
        engine::now_ns()
    }

    fn number_of(&self, address: *const u8) -> usize {
        engine::number_of(address)
    }

    unsafe fn drop_locals(&self) {
        engine::drop_locals();
    }

    fn local(&self, key: usize, is_static: bool) -> LocalSlot {
        match engine::local(key, per_thread(is_static)) {
            Slot::Empty => LocalSlot::Empty,
            Slot::Full(value) => LocalSlot::Full(value),
            Slot::Dropped => LocalSlot::Dropped,
        }
    }

    unsafe fn set_local(
        &self,
        key: usize,
        is_static: bool,
        value: NonNull<()>,
        drop: unsafe fn(NonNull<()>),
        has_destructor: bool,
    ) {
        let time = if has_destructor {
            DropTime::AtEnd
        } else {
            DropTime::AfterEnd
        };
        // SAFETY: the caller guarantees 1 and 2.
        unsafe { engine::set_local(key, per_thread(is_static), value, drop, time) };
    }
}
