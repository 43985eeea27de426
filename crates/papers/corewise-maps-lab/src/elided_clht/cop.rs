//! An insertion whose search is not in the transaction (thesis §5.4).
//!
//! The prefix notes the state of each bucket of the chain. If all states are the same in the
//! transaction, then no entry of the chain was inserted or removed since (a state counts removals),
//! so the slot that was found still has the key, or the key is still absent and the slot free.

use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed};
use corewise_locks::elide::{Cop, Transaction, Tx};

use super::{Arc, Array, Bucket, Put, SLOTS, Tables, hash_of, is_used};

/// Buckets of a chain that a plan can have. The prefix gives up on longer chains.
const LONGEST: usize = 4;

/// An insertion.
pub(super) struct Insertion {
    pub(super) key: u64,
    pub(super) value: u64,
    /// Whether it replaces a value that is there.
    pub(super) replaces: bool,
}

/// What the prefix has found.
pub(super) struct Plan {
    generation: usize,
    /// The states of the buckets of the chain, in order.
    states: [u64; LONGEST],
    buckets: usize,
    place: SlotToWrite,
}

/// The slot to write: the number of its bucket in the chain, and its number there.
#[derive(Clone, Copy)]
enum SlotToWrite {
    Key(usize, usize),
    Free(usize, usize),
}

impl Insertion {
    /// Whether the slot has the key, in a search without synchronisation.
    fn is_at(&self, bucket: &Bucket, slot: usize) -> bool {
        // Relaxed: the verification finds out what was changed meanwhile.
        bucket.keys[slot].load(Relaxed) == self.key
    }

    /// The bucket with this number in the chain of the key.
    fn bucket<'t, B: Transaction>(
        &self,
        array: &'t Array,
        tx: &Tx<'t, B>,
        number: usize,
    ) -> Option<&'t Bucket> {
        let mut bucket = array.head(hash_of(self.key));
        for _ in 0..number {
            bucket = array.follow(tx.load(&bucket.next))?;
        }
        Some(bucket)
    }

    /// The search, without synchronisation. `None` if the chain is long, or the insertion needs an
    /// overflow bucket.
    pub(super) fn plan(&self, tables: &Tables) -> Option<Plan> {
        // Acquire: pairs with the Release store of `current`.
        let generation = tables.current.load(Acquire);
        let array = tables.array(generation);
        let mut bucket = array.head(hash_of(self.key));
        let (mut states, mut buckets) = ([0; LONGEST], 0);
        let (mut found, mut free) = (None, None);
        loop {
            if buckets == LONGEST {
                return None;
            }
            // Acquire: pairs with the Release store of the state, after that of the key.
            let state = bucket.state.load(Acquire);
            states[buckets] = state;
            for slot in 0..SLOTS {
                if !is_used(state, slot) {
                    free = free.or(Some(SlotToWrite::Free(buckets, slot)));
                } else if self.is_at(bucket, slot) {
                    found = Some(SlotToWrite::Key(buckets, slot));
                }
            }
            buckets += 1;
            // Acquire: pairs with the Release store of the link.
            match array.follow(bucket.next.load(Acquire)) {
                Some(next) => bucket = next,
                None => break,
            }
        }
        // Without a place an overflow bucket is needed, which is rare: under the lock.
        let place = found.or(free)?;
        Some(Plan {
            generation,
            states,
            buckets,
            place,
        })
    }

    /// Writes what the plan says, which must still be true.
    pub(super) fn finish<'t, B: Transaction>(
        &self,
        tables: &'t Tables,
        tx: &Tx<'t, B>,
        plan: &Plan,
    ) -> Put {
        let array = tables.array(plan.generation);
        let (SlotToWrite::Key(number, slot) | SlotToWrite::Free(number, slot)) = plan.place;
        let bucket = self.bucket(array, tx, number).expect("verified");
        if let SlotToWrite::Key(..) = plan.place {
            let old = tx.load(&bucket.values[slot]);
            if self.replaces {
                tx.store(&bucket.values[slot], self.value);
            }
            return Put::There(old);
        }
        tx.store(&bucket.keys[slot], self.key);
        tx.store(&bucket.values[slot], self.value);
        // Last: a lookup reads the slot once it has seen the bit.
        tx.store(&bucket.state, plan.states[number] | 1 << slot);
        Put::New
    }
}

impl<B: Transaction> Cop<Arc<Tables>, B> for Insertion {
    type Plan = Plan;
    type Output = Put;

    fn prefix(&self, tables: &Arc<Tables>) -> Option<Plan> {
        self.plan(tables)
    }

    fn verify<'t>(&self, tables: &'t Arc<Tables>, tx: &Tx<'t, B>, plan: &Plan) -> bool {
        if tx.load(&tables.current) != plan.generation {
            return false;
        }
        let array = tables.array(plan.generation);
        let mut next = Some(array.head(hash_of(self.key)));
        for state in &plan.states[..plan.buckets] {
            let Some(bucket) = next.filter(|bucket| tx.load(&bucket.state) == *state) else {
                return false;
            };
            next = array.follow(tx.load(&bucket.next));
        }
        // No bucket was appended, and the key is where it was.
        let has_key = |number, slot| {
            let bucket = self.bucket(array, tx, number);
            bucket.is_some_and(|bucket| tx.load(&bucket.keys[slot]) == self.key)
        };
        next.is_none()
            && match plan.place {
                SlotToWrite::Key(number, slot) => has_key(number, slot),
                SlotToWrite::Free(..) => true,
            }
    }

    fn complete<'t>(&self, tables: &'t Arc<Tables>, tx: &Tx<'t, B>, plan: &Plan) -> Put {
        self.finish(tables, tx, plan)
    }

    fn serial<'t>(&self, tables: &'t Arc<Tables>, tx: &Tx<'t, B>) -> Put {
        tables.put(tx, self.key, self.value, self.replaces)
    }
}
