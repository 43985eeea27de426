//! Thread-locals and statics of the simulated program: values that the façade keeps in the engine.

use std::ptr::NonNull;

use super::{stop_if_ended, with};

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

/// When a value of a thread is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropTime {
    /// When the thread ends, in its time: the value has a destructor. It is gone for those that run
    /// after it.
    AtEnd,
    /// After all destructors, which can use the value: it has none, and only its memory is freed.
    AfterEnd,
}

/// The values of a thread, or of a simulation, by the numbers of their keys.
#[derive(Default)]
pub(super) struct Locals {
    slots: Vec<Slot>,
    /// In the order in which they were stored.
    drops: Vec<(usize, DropValue)>,
    /// Those without a destructor.
    frees: Vec<(usize, DropValue)>,
}

impl Locals {
    pub(super) fn forget(&mut self) {
        self.drops.clear();
        self.frees.clear();
    }

    /// Takes the next value to drop at this time out of its slot.
    fn take(&mut self, time: DropTime) -> Option<(Slot, DropValue)> {
        let (queue, left) = match time {
            DropTime::AtEnd => (&mut self.drops, Slot::Dropped),
            DropTime::AfterEnd => (&mut self.frees, Slot::Empty),
        };
        let (key, drop) = queue.pop()?;
        Some((std::mem::replace(&mut self.slots[key], left), drop))
    }

    fn set(&mut self, key: usize, slot: Slot) {
        if self.slots.len() <= key {
            self.slots.resize(key + 1, Slot::Empty);
        }
        self.slots[key] = slot;
    }
}

/// The slot of a key, a number that the façade has given out. Costs
/// [`local`](crate::FlatCosts::local); lets no other thread run.
#[inline]
#[must_use]
pub fn local(key: usize, per_thread: PerThread) -> Slot {
    let find = |locals: &Locals| locals.slots.get(key).copied().unwrap_or(Slot::Empty);
    let slot = with(|sim| {
        sim.count();
        let cost = sim.config.costs.local;
        sim.here().clock += cost;
        match per_thread {
            PerThread::Yes => find(&sim.here().locals),
            PerThread::No => find(&sim.statics),
        }
    });
    stop_if_ended();
    slot.unwrap_or(Slot::Empty)
}

/// Stores a value in an empty slot. `drop` is called when `time` says; never for a static.
///
/// # Safety
///
/// 1. `drop` may be called with `value`, once, on this OS thread.
/// 2. Code that reads this key knows the type of `value`.
pub unsafe fn set_local(
    key: usize,
    per_thread: PerThread,
    value: NonNull<()>,
    drop: DropValue,
    time: DropTime,
) {
    with(|sim| match per_thread {
        PerThread::Yes => {
            let locals = &mut sim.here().locals;
            locals.set(key, Slot::Full(value));
            match time {
                DropTime::AtEnd => locals.drops.push((key, drop)),
                DropTime::AfterEnd => locals.frees.push((key, drop)),
            }
        }
        PerThread::No => sim.statics.set(key, Slot::Full(value)),
    });
}

/// Drops the values of the calling thread, which ends, that have destructors: the last one first,
/// and those stored meanwhile. The engine does so at the end of the thread's body, too.
pub(crate) fn drop_locals() {
    drop_all(DropTime::AtEnd);
}

/// Frees the values without destructors of the calling thread, in which no user code runs any more.
pub(super) fn free_locals() {
    drop_all(DropTime::AfterEnd);
}

fn drop_all(time: DropTime) {
    while let Some((slot, drop)) = with(|sim| sim.here().locals.take(time)).flatten() {
        if let Slot::Full(value) = slot {
            // SAFETY: the slot was full, and now it is not, so this is the only call (1).
            unsafe { drop(value) };
        }
    }
}
