//! Flat combining of all operations, FC, and of writes only, FC+.

use std::panic::{AssertUnwindSafe, catch_unwind};

use corewise_atomic::CachePadded;
use corewise_atomic::cell::DataCell;
use corewise_atomic::sync::Arc;
use corewise_locks::FlagRw;

use super::{OWN_SLOTS, SHARED_SLOTS};
use crate::combining::{Held, Publications};
use crate::registration::Registry;
use crate::replica::{OWN, Outcome, discard};
use crate::replicated::unwrap;
use crate::{Concurrent, Operation, Sequential};

/// The most operations of a batch.
const MAX_BATCH: usize = 64;

/// Structure-specific combining: a structure that executes a batch faster than its operations one
/// by one, such as a priority queue that removes several minima in one pass.
pub trait Combine: Sequential + Sized {
    /// Executes operations of the batch, in any order. What it leaves is executed one by one.
    ///
    /// If it panics, the operations that it has not answered are executed one by one.
    fn combine(&mut self, batch: &mut Batch<Self>);
}

/// Operations that are executed together.
pub struct Batch<D: Sequential>(Vec<Item<D>>);

struct Item<D: Sequential> {
    slot: usize,
    operation: Operation<D>,
    outcome: Option<Outcome<D>>,
}

impl<D: Sequential> Batch<D> {
    /// The number of operations.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The operation at a place.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn operation(&self, place: usize) -> &Operation<D> {
        &self.0[place].operation
    }

    /// Answers the operation at a place, which the structure has executed. A second answer
    /// replaces the first.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn answer(&mut self, place: usize, response: D::Response) {
        self.0[place].outcome = Some(Ok(response));
    }

    /// Whether the operation at a place is answered.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn is_answered(&self, place: usize) -> bool {
        self.0[place].outcome.is_some()
    }

    /// Executes what is not answered.
    fn execute_rest(&mut self, data: &mut D) {
        for item in self.0.iter_mut().filter(|item| item.outcome.is_none()) {
            let execute = || match &item.operation {
                Operation::Read(operation) => data.read(operation),
                Operation::Write(operation) => data.write(operation),
            };
            item.outcome = Some(catch_unwind(AssertUnwindSafe(execute)));
        }
    }
}

/// What the holder of the combiner's lock owns.
struct State<D: Sequential> {
    batch: Batch<D>,
    next_slot: usize,
}

/// What FC and FC+ have in common.
struct Combiner<D: Sequential> {
    publications: Publications<Operation<D>, Outcome<D>>,
    registry: Arc<Registry>,
    state: DataCell<State<D>>,
    data: DataCell<D>,
    /// Structure-specific combining, if there is any.
    combine: Option<fn(&mut D, &mut Batch<D>)>,
}

// SAFETY: `state` belongs to the holder of the combiner's lock, so it only moves between threads,
// as its contents may. `data` is read by several threads at a time under a readers-writer lock, and
// changed under locks that exclude them; `D` is `Send + Sync`.
unsafe impl<D: Sequential> Sync for Combiner<D> {}
// SAFETY: all parts may be sent.
unsafe impl<D: Sequential> Send for Combiner<D> {}

impl<D: Sequential> Combiner<D> {
    fn new(data: D, combine: Option<fn(&mut D, &mut Batch<D>)>) -> Self {
        let registry = Registry::single(OWN_SLOTS, SHARED_SLOTS);
        Self {
            publications: Publications::new(registry.slots()),
            registry,
            state: DataCell::new(State {
                batch: Batch(Vec::with_capacity(MAX_BATCH)),
                next_slot: 0,
            }),
            data: DataCell::new(data),
            combine,
        }
    }

    /// Executes an operation in a batch. `lock` protects the data while a batch is executed.
    fn execute<G>(&self, operation: Operation<D>, lock: impl Fn() -> G) -> D::Response {
        let mut garbage = Vec::new();
        let outcome = self.registry.enter(|| {
            let lead = |held: Held<'_>, own: Option<Operation<D>>| {
                // SAFETY: the lock is held.
                let own = unsafe { self.lead(own, &lock, &mut garbage) };
                drop(held);
                own.map(Ok)
            };
            let place = Registry::place(&self.registry);
            let result = self.publications.execute(place, operation, false, lead);
            result.unwrap_or_else(|_| unreachable!("no replica leaves"))
        });
        garbage.into_iter().for_each(discard);
        unwrap(outcome)
    }

    /// # Safety
    ///
    /// 1. The caller holds the combiner's lock.
    unsafe fn lead<G>(
        &self,
        own: Option<Operation<D>>,
        lock: impl Fn() -> G,
        garbage: &mut Vec<Operation<D>>,
    ) -> Option<Outcome<D>> {
        self.state.with_mut(|state| {
            // SAFETY: 1: the state is the holder's.
            let State { batch, next_slot } = unsafe { &mut *state };
            let item = |slot, operation| Item {
                slot,
                operation,
                outcome: None,
            };
            batch.0.extend(own.map(|own| item(OWN, own)));
            let accept = |slot, operation| batch.0.push(item(slot, operation));
            // SAFETY: 1.
            *next_slot = unsafe { self.publications.take(*next_slot, MAX_BATCH - 1, accept) };
            let guard = lock();
            self.data.with_mut(|data| {
                // SAFETY: 1, and `guard` excludes readers that do not need the combiner.
                let data = unsafe { &mut *data };
                if let Some(combine) = self.combine {
                    let combined = catch_unwind(AssertUnwindSafe(|| combine(data, batch)));
                    combined.unwrap_or_else(discard);
                }
                batch.execute_rest(data);
            });
            drop(guard);
            let mut own = None;
            for item in batch.0.drain(..) {
                let outcome = item.outcome.expect("executed");
                if item.slot == OWN {
                    own = Some(outcome);
                } else {
                    // SAFETY: 1; taken above, and answered and delivered once.
                    unsafe {
                        self.publications.answer(item.slot, outcome);
                        self.publications.deliver(item.slot);
                    }
                }
                if std::mem::needs_drop::<Operation<D>>() {
                    garbage.push(item.operation);
                }
            }
            own
        })
    }
}

impl<D: Sequential> Drop for Combiner<D> {
    fn drop(&mut self) {
        self.registry.close();
    }
}

/// FC: flat combining of all operations. An operation that calls the structure that executes it
/// gets a panic.
///
/// ```
/// # use corewise_nr::{Concurrent, Operation, Sequential, baseline::FlatCombining};
/// # struct Counter(u64);
/// # impl Sequential for Counter {
/// #     type Read = ();
/// #     type Write = u64;
/// #     type Response = u64;
/// #     fn read(&self, (): &()) -> u64 { self.0 }
/// #     fn write(&mut self, more: &u64) -> u64 { self.0 += more; self.0 }
/// # }
/// let counter = FlatCombining::new(Counter(0));
/// assert_eq!(counter.execute(Operation::Write(3)), 3);
/// ```
pub struct FlatCombining<D: Sequential>(Combiner<D>);

impl<D: Sequential> FlatCombining<D> {
    /// Combines operations of a structure, and executes them one by one.
    pub fn new(data: D) -> Self {
        Self(Combiner::new(data, None))
    }

    /// Combines operations of a structure, which executes a batch in [`Combine::combine`].
    pub fn with_combining(data: D) -> Self
    where
        D: Combine,
    {
        Self(Combiner::new(data, Some(D::combine)))
    }
}

impl<D: Sequential> Concurrent<D> for FlatCombining<D> {
    fn execute(&self, operation: Operation<D>) -> D::Response {
        self.0.execute(operation, || ())
    }
}

/// FC+: flat combining of writes, and a readers-writer lock for reads. An operation that calls the
/// structure that executes it gets a panic.
///
/// ```
/// # use corewise_nr::{Concurrent, Operation, Sequential, baseline::FlatCombiningPlus};
/// # struct Counter(u64);
/// # impl Sequential for Counter {
/// #     type Read = ();
/// #     type Write = u64;
/// #     type Response = u64;
/// #     fn read(&self, (): &()) -> u64 { self.0 }
/// #     fn write(&mut self, more: &u64) -> u64 { self.0 += more; self.0 }
/// # }
/// let counter = FlatCombiningPlus::new(Counter(0));
/// assert_eq!(counter.execute(Operation::Write(3)), 3);
/// assert_eq!(counter.execute(Operation::Read(())), 3);
/// ```
pub struct FlatCombiningPlus<D: Sequential> {
    combiner: Combiner<D>,
    lock: CachePadded<FlagRw>,
}

impl<D: Sequential> FlatCombiningPlus<D> {
    /// Combines writes of a structure.
    pub fn new(data: D) -> Self {
        let combiner = Combiner::new(data, None);
        let slots = combiner.registry.slots();
        Self {
            combiner,
            lock: CachePadded::new(FlagRw::new(slots)),
        }
    }
}

impl<D: Sequential> Concurrent<D> for FlatCombiningPlus<D> {
    fn execute(&self, operation: Operation<D>) -> D::Response {
        let Operation::Read(operation) = operation else {
            return self.combiner.execute(operation, || self.lock.write());
        };
        let registry = &self.combiner.registry;
        registry.enter(|| {
            // SAFETY: 1: the thread's place, inside one operation.
            let flag = unsafe { Registry::place(registry).flag() };
            let _guard = self.lock.read(flag);
            let data = &self.combiner.data;
            // SAFETY: the lock is held for reading; batches are executed under it.
            data.with(|data| unsafe { &*data }.read(&operation))
        })
    }
}
