//! Flat combining of all operations, FC, and of writes only, FC+.

use std::panic::{AssertUnwindSafe, catch_unwind};

use corewise_atomic::CachePadded;
use corewise_atomic::cell::DataCell;
use corewise_atomic::sync::Arc;
use corewise_locks::FlagRw;

use super::{OWN_SLOTS, SHARED_SLOTS};
use crate::combining::{CombinerGuard, Publications};
use crate::discard::discard;
use crate::registration::Registry;
use crate::replica::{OWN, Outcome};
use crate::replicated::unwrap;
use crate::{Concurrent, Operation, Sequential};

/// The most operations of a batch.
const MAX_BATCH: usize = 64;

/// What a call panics with if the batch has no operation left for it.
const EXCHANGED: &str = "the batch was exchanged";

/// Structure-specific combining: a structure that executes a batch faster than its operations one
/// by one, such as a priority queue that removes several minima in one pass.
pub trait Combine: Sequential + Sized {
    /// Executes operations of the batch, in any order. What it leaves is executed one by one.
    ///
    /// If it panics, the operations that it has not answered are executed one by one.
    ///
    /// The batch must not be exchanged with that of another structure, as [`std::mem::swap`] could
    /// if `combine` calls that structure. Each structure then executes the operations of the batch
    /// it was left with, so callers may get the responses of other operations. If the batch has
    /// too few operations, calls panic; what it has too many of is executed, and the responses are
    /// dropped.
    fn combine(&mut self, batch: &mut Batch<Self>);
}

/// Operations that are executed together.
pub struct Batch<D: Sequential>(Vec<Item<D>>);

struct Item<D: Sequential> {
    operation: Operation<D>,
    outcome: Option<Outcome<D>>,
}

impl<D: Sequential> Batch<D> {
    /// A batch to execute outside of a combiner, as in a test of [`Combine`].
    #[must_use]
    pub fn of(operations: Vec<Operation<D>>) -> Self {
        let item = |operation| Item {
            operation,
            outcome: None,
        };
        Self(operations.into_iter().map(item).collect())
    }

    /// Executes the operations, and returns their responses in order.
    ///
    /// # Panics
    ///
    /// If one of them does.
    pub fn execute(mut self, data: &mut D) -> Vec<D::Response>
    where
        D: Combine,
    {
        data.combine(&mut self);
        self.execute_rest(data);
        let outcomes = self.0.into_iter().filter_map(|item| item.outcome);
        outcomes.map(unwrap).collect()
    }

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

    /// The places of operations with the same key, in order, where there are several of them.
    pub fn groups<K: Ord>(&self, key: impl Fn(&Self, usize) -> Option<K>) -> Vec<Vec<usize>> {
        if self.len() < 2 {
            return Vec::new();
        }
        let keyed = |place| Some((key(self, place)?, place));
        let mut all: Vec<(K, usize)> = (0..self.len()).filter_map(keyed).collect();
        all.sort();
        let groups = all.chunk_by(|one, other| one.0 == other.0);
        let groups = groups.filter(|group| group.len() > 1);
        let places = |group: &[(K, usize)]| group.iter().map(|(_, place)| *place).collect();
        groups.map(places).collect()
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
struct BatchState<D: Sequential> {
    batch: Batch<D>,
    /// The slots that the batch was taken from. They are not in the batch, because safe code can
    /// exchange it with that of another structure.
    slots: Vec<usize>,
    next_slot: usize,
}

/// What FC and FC+ have in common.
struct Combiner<D: Sequential> {
    publications: Publications<Operation<D>, Outcome<D>>,
    registry: Arc<Registry>,
    state: DataCell<BatchState<D>>,
    data: DataCell<D>,
    /// Structure-specific combining, if there is any.
    combine: Option<fn(&mut D, &mut Batch<D>)>,
}

// SAFETY: `state` belongs to the holder of the combiner's lock, so it only moves between threads,
// as its contents may. `data` is read by several threads at a time under a readers-writer lock, and
// changed under locks that exclude them; `D` is `Send + Sync`.
unsafe impl<D: Sequential> Sync for Combiner<D> {}
// SAFETY: a combiner has no tie to a thread, and all its parts may be sent.
unsafe impl<D: Sequential> Send for Combiner<D> {}

impl<D: Sequential> Combiner<D> {
    fn new(data: D, combine: Option<fn(&mut D, &mut Batch<D>)>) -> Self {
        let registry = Registry::single(OWN_SLOTS, SHARED_SLOTS);
        Self {
            publications: Publications::new(registry.slots()),
            registry,
            state: DataCell::new(BatchState {
                batch: Batch(Vec::with_capacity(MAX_BATCH)),
                slots: Vec::with_capacity(MAX_BATCH),
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
            let lead = |held: CombinerGuard<'_>, own: Option<Operation<D>>| {
                // SAFETY: `held` is the guard of the combiner's lock (1).
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
            // SAFETY: the state is the holder's (1).
            let BatchState {
                batch,
                slots,
                next_slot,
            } = unsafe { &mut *state };
            let item = |operation| Item {
                operation,
                outcome: None,
            };
            slots.extend(own.as_ref().map(|_| OWN));
            batch.0.extend(own.map(item));
            let accept = |slot, operation| {
                slots.push(slot);
                batch.0.push(item(operation));
            };
            // SAFETY: the combiner's lock is held (1).
            *next_slot = unsafe { self.publications.take(*next_slot, MAX_BATCH - 1, accept) };
            let guard = lock();
            self.data.with_mut(|data| {
                // SAFETY: the combiner's lock is held (1), and `guard` excludes readers that do not
                // need the combiner.
                let data = unsafe { &mut *data };
                if let Some(combine) = self.combine {
                    let combined = catch_unwind(AssertUnwindSafe(|| combine(data, batch)));
                    combined.unwrap_or_else(discard);
                }
                batch.execute_rest(data);
            });
            drop(guard);
            let mut own = None;
            let mut items = batch.0.drain(..);
            for slot in slots.drain(..) {
                let outcome = match items.next() {
                    Some(item) => {
                        if std::mem::needs_drop::<Operation<D>>() {
                            garbage.push(item.operation);
                        }
                        item.outcome.expect("executed")
                    }
                    None => Err(Box::new(EXCHANGED) as _),
                };
                if slot == OWN {
                    own = Some(outcome);
                } else {
                    // SAFETY: the lock is held (1); the request was taken above, as no other code
                    // changes `slots`, and is answered and delivered once.
                    unsafe {
                        self.publications.answer(slot, outcome);
                        self.publications.deliver(slot);
                    }
                }
            }
            for item in items {
                garbage.push(item.operation);
                discard(item.outcome);
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
/// use corewise_nr::structures::priority_queue::{Read, Response, SkipListQueue, Write};
/// use corewise_nr::{Concurrent, Operation, baseline::FlatCombining};
/// let queue = FlatCombining::new(SkipListQueue::new());
/// assert_eq!(queue.execute(Operation::Write(Write::Insert(3))), Response::Inserted);
/// assert_eq!(queue.execute(Operation::Read(Read::Min)), Response::Key(Some(3)));
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
/// use corewise_nr::structures::priority_queue::{Read, Response, SkipListQueue, Write};
/// use corewise_nr::{Concurrent, Operation, baseline::FlatCombiningPlus};
/// let queue = FlatCombiningPlus::new(SkipListQueue::new());
/// assert_eq!(queue.execute(Operation::Write(Write::Insert(3))), Response::Inserted);
/// assert_eq!(queue.execute(Operation::Read(Read::Min)), Response::Key(Some(3)));
/// ```
pub struct FlatCombiningPlus<D: Sequential> {
    combiner: Combiner<D>,
    lock: CachePadded<FlagRw>,
}

impl<D: Sequential> FlatCombiningPlus<D> {
    /// Combines writes of a structure, and executes them one by one.
    pub fn new(data: D) -> Self {
        Self::with(Combiner::new(data, None))
    }

    /// Combines writes of a structure, which executes a batch in [`Combine::combine`].
    pub fn with_combining(data: D) -> Self
    where
        D: Combine,
    {
        Self::with(Combiner::new(data, Some(D::combine)))
    }

    fn with(combiner: Combiner<D>) -> Self {
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
            // SAFETY: the thread's place, inside one operation (1).
            let flag = unsafe { Registry::place(registry).flag() };
            let _guard = self.lock.read(flag);
            let data = &self.combiner.data;
            // SAFETY: the lock is held for reading; batches are executed under it.
            data.with(|data| unsafe { &*data }.read(&operation))
        })
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use std::cell::RefCell;
    use std::mem::swap;
    use std::sync::mpsc::{Sender, channel};
    use std::{array, thread};

    use super::*;

    /// Exchanges the batches of two structures: combining of the outer one calls the inner one.
    struct Exchange {
        inner: Option<(Call, Sender<thread::Result<()>>)>,
    }

    type Call = Box<dyn Fn() + Send + Sync>;

    thread_local! {
        /// The batch of the outer structure, while it combines.
        static OUTER: RefCell<Batch<Exchange>> = const { RefCell::new(Batch(Vec::new())) };
    }

    impl Sequential for Exchange {
        type Read = ();
        type Write = Arc<()>;
        type Response = Arc<()>;
        fn read(&self, (): &()) -> Arc<()> {
            Arc::new(())
        }
        fn write(&mut self, operation: &Arc<()>) -> Arc<()> {
            operation.clone()
        }
    }

    impl Combine for Exchange {
        fn combine(&mut self, batch: &mut Batch<Self>) {
            OUTER.with_borrow_mut(|outer| swap(outer, batch));
            if let Some((call, results)) = &self.inner {
                let result = catch_unwind(AssertUnwindSafe(call));
                OUTER.with_borrow_mut(|outer| swap(outer, batch));
                results.send(result).unwrap();
            }
        }
    }

    fn is_exchanged<T>(result: &thread::Result<T>) -> bool {
        let payload = result.as_ref().err();
        payload.is_some_and(|payload| payload.downcast_ref() == Some(&EXCHANGED))
    }

    /// Exchanges a batch of posted operations, none or one, and one of the caller's own.
    fn exchange(posted: usize, own: usize) {
        let operations: [_; 2] = array::from_fn(|_| Arc::new(()));
        let (sender, results) = channel();
        let inner = FlatCombining::with_combining(Exchange { inner: None });
        let operation = (own == 1).then(|| operations[0].clone());
        let call = Box::new(move || {
            let held = inner.0.publications.lock.lock();
            let mut garbage = Vec::new();
            let operation = operation.clone().map(Operation::Write);
            // SAFETY: `held` is the guard of the combiner's lock (1).
            let outcome = unsafe { inner.0.lead(operation, || (), &mut garbage) };
            drop(held);
            assert_eq!(outcome.is_some(), own == 1);
            outcome.map(unwrap);
        });
        let inner = Some((call as Call, sender));
        let outer = Arc::new(FlatCombining::with_combining(Exchange { inner }));
        let held = outer.0.publications.lock.lock();
        if posted == 1 {
            let (shared, operation) = (outer.clone(), operations[1].clone());
            let poster = thread::spawn(move || shared.execute(Operation::Write(operation)));
            while !outer.0.publications.is_any_posted() {
                thread::yield_now();
            }
            drop(held); // the poster leads
            assert_eq!(is_exchanged(&results.recv().unwrap()), own > posted);
            assert_eq!(is_exchanged(&poster.join()), posted > own);
        } else {
            let mut garbage = Vec::new();
            // SAFETY: `held` is the guard of the combiner's lock (1).
            assert!(unsafe { outer.0.lead(None, || (), &mut garbage) }.is_none());
            drop(held);
            assert_eq!(is_exchanged(&results.recv().unwrap()), own > posted);
        }
        drop(outer);
        assert!(operations.iter().all(|it| Arc::strong_count(it) == 1));
    }

    #[test]
    fn batches_may_be_exchanged() {
        exchange(0, 1);
        exchange(1, 0);
        exchange(1, 1);
    }
}
