//! Thread-locals and statics of the simulated program: values that the façade keeps in the engine.

use std::cell::Cell;
use std::ptr::NonNull;

use super::with;

/// Whose values [`local`] finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerThread {
    /// The calling thread's.
    Yes,
    /// The simulation's: a static.
    No,
}

/// A place for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Nothing was stored.
    Empty,
    /// The value.
    Full(NonNull<()>),
    /// The thread ends, and has dropped the value.
    Dropped,
}

/// Drops a value.
pub type DropValue = unsafe fn(NonNull<()>);

/// The values of a thread, or of a simulation, by the numbers of their keys.
#[derive(Default)]
pub(super) struct Locals {
    slots: Vec<Slot>,
    /// In the order in which they were stored.
    drops: Vec<(usize, DropValue)>,
}

impl Locals {
    pub(super) fn forget(&mut self) {
        self.drops.clear();
    }

    fn set(&mut self, key: usize, slot: Slot) {
        if self.slots.len() <= key {
            self.slots.resize(key + 1, Slot::Empty);
        }
        self.slots[key] = slot;
    }
}

/// The slot of a key, a number that the façade has given out.
#[inline]
#[must_use]
pub fn local(key: usize, per_thread: PerThread) -> Slot {
    let find = |locals: &Locals| locals.slots.get(key).copied().unwrap_or(Slot::Empty);
    let slot = with(|sim| match per_thread {
        PerThread::Yes => find(&sim.here().locals),
        PerThread::No => find(&sim.statics),
    });
    slot.unwrap_or(Slot::Empty)
}

/// Stores a value in an empty slot. `drop` is called at the end of the thread, in its time; never
/// for a static.
///
/// # Safety
///
/// 1. `drop` may be called with `value`, once, on this OS thread.
/// 2. Code that reads this key knows the type of `value`.
pub unsafe fn set_local(key: usize, per_thread: PerThread, value: NonNull<()>, drop: DropValue) {
    with(|sim| match per_thread {
        PerThread::Yes => {
            let locals = &mut sim.here().locals;
            locals.set(key, Slot::Full(value));
            locals.drops.push((key, drop));
        }
        PerThread::No => sim.statics.set(key, Slot::Full(value)),
    });
}

/// Drops the values of the calling thread, which ends: the last one first, and those stored
/// meanwhile. The engine does so at the end of the thread's body, too.
pub(crate) fn drop_locals() {
    let next = || {
        with(|sim| {
            let locals = &mut sim.here().locals;
            let (key, drop) = locals.drops.pop()?;
            let old = Cell::new(Slot::Dropped);
            old.swap(Cell::from_mut(&mut locals.slots[key]));
            Some((old.get(), drop))
        })
        .flatten()
    };
    while let Some((slot, drop)) = next() {
        if let Slot::Full(value) = slot {
            // SAFETY: the slot was full, and now it is not, so this is the only call (1).
            unsafe { drop(value) };
        }
    }
}
