//! A cuckoo filter whose operations are sections of an elided lock (thesis §5.3 and §5.4), to
//! compare with the filter of `corewise-filter`, whose lookups take no lock.
//!
//! ```text
//!  bucket: 8 bytes
//! ┌────────────┬────────────┬────────────┬────────────┐
//! │ 16 bits    │ 16 bits    │ 16 bits    │ 16 bits    │  a fingerprint, or 0 if the slot is free
//! └────────────┴────────────┴────────────┴────────────┘
//! ```
//!
//! Buckets have four slots (`b = 4`), and fingerprints 16 bits. The other bucket of a fingerprint φ
//! in bucket i is i ⊕ hash(φ), so the number of buckets is a power of two.
//!
//! # Operations
//!
//! - A *lookup* is a section, as in the thesis. Without one, an item that moves to its other bucket
//!   could be missed.
//! - [`ElidedFilter::insert`] searches for room and moves fingerprints in one section.
//! - [`ElidedFilter::insert_cop`] searches without synchronisation (§5.4). Its section verifies the
//!   buckets of the path and moves, so that it is short.
//!
//! A search visits at most [`SEARCH_LIMIT`] buckets by breadth, so both kinds end after a bounded
//! number of steps. Moves are made from the end of the path.
//!
//! Deviations: algorithm 5.5 moves at random up to 500 times, from the beginning of the path, and
//! loses a fingerprint if it gives up. Here an insertion that finds no room changes nothing.
//!
//! # Guarantees
//!
//! 1. *Linearizable.* Items that the filter cannot tell apart are one item.
//! 2. *Progress* of sections of [`Elided`].
//! 3. *Full.* A refused insertion changes nothing.

use corewise_atomic::sync::atomic::AtomicU64;
use corewise_atomic::sync::atomic::Ordering::Acquire;
use corewise_atomic::{Slots, mutant};
use corewise_locks::elide::{
    Cop, Counts, Elided, Policy, Retry, Rtm, Scm, Slr, SlrScm, Subscribe, Transaction, Tx,
};
use corewise_locks::{Mcs, Ttas};

use crate::elided_clht::hash_of;

const SLOTS: u32 = 4;
const BITS: u32 = 16;
/// Buckets that a search visits.
pub const SEARCH_LIMIT: usize = 64;
/// The smallest number of buckets.
const FEWEST_BUCKETS: usize = 2;

/// `N` attempts, then a test-and-test-and-set lock; the thesis compares 5, 10 and 20.
pub type RetryFilter<const N: u32, B = Rtm> = ElidedFilter<Ttas, Retry<N>, B>;
/// Lock removal over an MCS lock.
pub type SlrFilter<B = Rtm> = ElidedFilter<Mcs, Slr, B>;
/// Conflict management over a test-and-test-and-set lock.
pub type ScmFilter<B = Rtm> = ElidedFilter<Ttas, Scm, B>;
/// Both, over an MCS lock.
pub type SlrScmFilter<B = Rtm> = ElidedFilter<Mcs, SlrScm, B>;

/// An insertion found no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterFull;

impl std::fmt::Display for FilterFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no room was found for the fingerprint")
    }
}

impl std::error::Error for FilterFull {}

fn slot_of(word: u64, slot: u32) -> u64 {
    word >> (slot * BITS) & ((1 << BITS) - 1)
}

fn with_slot(word: u64, slot: u32, fingerprint: u64) -> u64 {
    word & !(((1 << BITS) - 1) << (slot * BITS)) | fingerprint << (slot * BITS)
}

/// The first slot with this fingerprint; 0 for a free slot.
fn find(word: u64, fingerprint: u64) -> Option<u32> {
    (0..SLOTS).find(|slot| slot_of(word, *slot) == fingerprint)
}

/// The buckets, each a word.
struct Buckets(Slots<AtomicU64>);

/// What the filter stores of an item.
#[derive(Clone, Copy)]
struct Item {
    fingerprint: u64,
    buckets: [usize; 2],
}

/// A bucket that a search reached, and how.
#[derive(Clone, Copy, Default)]
struct SearchStep {
    bucket: usize,
    /// What the bucket contained.
    word: u64,
    /// The step before, and the slot there of the fingerprint that would move here; none for the
    /// item's own buckets.
    from: Option<(u8, u32)>,
}

/// The moves that make room for an item: from its bucket, which comes last, to one with a free
/// slot.
struct Plan {
    path: [SearchStep; SEARCH_LIMIT],
    len: usize,
}

const _: () = assert!(SEARCH_LIMIT <= 1 << u8::BITS);

impl Buckets {
    fn new(items: usize) -> Self {
        // At most 95 % of the slots can be used.
        let buckets = (items + items / 16).div_ceil(SLOTS as usize);
        let buckets = buckets.max(FEWEST_BUCKETS).next_power_of_two();
        Self(Slots::from_fn(buckets, |_| AtomicU64::new(0)))
    }

    fn item(&self, key: u64) -> Item {
        let hash = hash_of(key);
        let fingerprint = (hash >> (64 - BITS)).max(1);
        let first = hash as usize & (self.0.len() - 1);
        Item {
            fingerprint,
            buckets: [first, self.other(first, fingerprint)],
        }
    }

    /// The other bucket of a fingerprint.
    fn other(&self, bucket: usize, fingerprint: u64) -> usize {
        bucket ^ hash_of(fingerprint) as usize & (self.0.len() - 1)
    }

    /// Searches by breadth for a path from a bucket of the item to a free slot.
    fn search(&self, item: Item, load: impl Fn(usize) -> u64) -> Option<Plan> {
        let mut steps = [SearchStep::default(); SEARCH_LIMIT];
        let mut len = 0;
        for bucket in item.buckets {
            let word = load(bucket);
            steps[len] = SearchStep {
                bucket,
                word,
                from: None,
            };
            if find(word, 0).is_some() {
                return Some(Plan::back_from(&steps, len));
            }
            len += 1;
        }
        for at in 0..SEARCH_LIMIT {
            let SearchStep { bucket, word, .. } = steps[at];
            for slot in 0..SLOTS {
                if len == SEARCH_LIMIT {
                    return None;
                }
                let next = self.other(bucket, slot_of(word, slot));
                // A path must not visit a bucket twice: its words would be outdated.
                if steps[..len].iter().any(|step| step.bucket == next) {
                    continue;
                }
                let word = load(next);
                steps[len] = SearchStep {
                    bucket: next,
                    word,
                    from: Some((at as u8, slot)),
                };
                if find(word, 0).is_some() {
                    return Some(Plan::back_from(&steps, len));
                }
                len += 1;
            }
            if at + 1 == len {
                return None; // nothing else can be reached
            }
        }
        None
    }

    /// Moves what is on the path, and stores the fingerprint in the slot that becomes free. The
    /// words of the path must be those of the buckets.
    fn follow<'t, B: Transaction>(&'t self, tx: &Tx<'t, B>, item: Item, plan: &Plan) {
        let steps = plan.steps();
        let mut word = steps[0].word;
        for (at, step) in steps.iter().enumerate() {
            let free = find(word, 0).expect("the last bucket has room, and moves make it");
            let Some((_, slot)) = step.from else {
                let new = with_slot(word, free, item.fingerprint);
                tx.store(&self.0[step.bucket], new);
                return;
            };
            let source = steps[at + 1].word;
            let new = with_slot(word, free, slot_of(source, slot));
            tx.store(&self.0[step.bucket], new);
            word = with_slot(source, slot, 0);
        }
    }

    fn insert<'t, B: Transaction>(&'t self, tx: &Tx<'t, B>, item: Item) -> Result<(), FilterFull> {
        let plan = self.search(item, |bucket| tx.load(&self.0[bucket]));
        self.follow(tx, item, &plan.ok_or(FilterFull)?);
        Ok(())
    }
}

impl Plan {
    /// The steps from the last one to one of the item's buckets.
    fn back_from(steps: &[SearchStep; SEARCH_LIMIT], last: usize) -> Self {
        let mut plan = Self {
            path: [SearchStep::default(); SEARCH_LIMIT],
            len: 0,
        };
        let mut at = last;
        loop {
            plan.path[plan.len] = steps[at];
            plan.len += 1;
            match steps[at].from {
                Some((from, _)) => at = usize::from(from),
                None => return plan,
            }
        }
    }

    fn steps(&self) -> &[SearchStep] {
        &self.path[..self.len]
    }
}

/// An insertion whose search is not in the transaction.
struct Insertion(u64);

impl<B: Transaction> Cop<Buckets, B> for Insertion {
    type Plan = Plan;
    type Output = Result<(), FilterFull>;

    fn prefix(&self, buckets: &Buckets) -> Option<Plan> {
        // Acquire: pairs with the Release in `Tx::store`. The verification finds what has changed.
        buckets.search(buckets.item(self.0), |at| buckets.0[at].load(Acquire))
    }

    fn verify<'t>(&self, buckets: &'t Buckets, tx: &Tx<'t, B>, plan: &Plan) -> bool {
        let is_same = |step: &SearchStep| tx.load(&buckets.0[step.bucket]) == step.word;
        mutant!("filter_skips_verification") || plan.steps().iter().all(is_same)
    }

    fn complete<'t>(&self, buckets: &'t Buckets, tx: &Tx<'t, B>, plan: &Plan) -> Self::Output {
        buckets.follow(tx, buckets.item(self.0), plan);
        Ok(())
    }

    fn serial<'t>(&self, buckets: &'t Buckets, tx: &Tx<'t, B>) -> Self::Output {
        buckets.insert(tx, buckets.item(self.0))
    }
}

/// A cuckoo filter under an elided lock. Items are words.
///
/// ```
/// use corewise_locks::elide::Scripted;
/// use corewise_maps_lab::elided_filter::SlrScmFilter;
///
/// let filter: SlrScmFilter<Scripted> = SlrScmFilter::new(1_000, Some(Scripted::new()));
/// assert_eq!(filter.insert(1), Ok(()));
/// assert_eq!(filter.insert_cop(2), Ok(()));
/// assert!(filter.contains(1) && filter.contains(2) && !filter.contains(3));
/// assert!(filter.remove(1) && !filter.contains(1));
/// ```
pub struct ElidedFilter<L, P, B = Rtm> {
    buckets: Elided<Buckets, L, P, B>,
    slots: usize,
}

impl<L: Subscribe, P: Policy, B: Transaction> ElidedFilter<L, P, B> {
    /// Creates a filter for `items` items, with a source of transactions. Without one, every
    /// operation takes the lock.
    pub fn new(items: usize, backend: Option<B>) -> Self {
        let buckets = Buckets::new(items);
        Self {
            slots: buckets.0.len() * SLOTS as usize,
            buckets: Elided::new(buckets, backend),
        }
    }

    /// Inserts a copy of the item; searches for room in the section.
    ///
    /// # Errors
    ///
    /// If the search finds no room; the filter is unchanged.
    pub fn insert(&self, key: u64) -> Result<(), FilterFull> {
        self.buckets
            .run(|buckets, tx| buckets.insert(tx, buckets.item(key)))
    }

    /// Inserts a copy of the item; searches for room without synchronisation.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_cop(&self, key: u64) -> Result<(), FilterFull> {
        self.buckets.cop(&Insertion(key))
    }

    /// Whether a copy of the item, or of one with the same fingerprint and buckets, is there.
    pub fn contains(&self, key: u64) -> bool {
        self.buckets.run(|buckets, tx| {
            let item = buckets.item(key);
            let mut words = item.buckets.iter().map(|at| tx.load(&buckets.0[*at]));
            words.any(|word| find(word, item.fingerprint).is_some())
        })
    }

    /// Removes a copy of the item; returns whether there was one. Remove only items that were
    /// inserted.
    pub fn remove(&self, key: u64) -> bool {
        self.buckets.run(|buckets, tx| {
            let item = buckets.item(key);
            for bucket in item.buckets {
                let word = tx.load(&buckets.0[bucket]);
                if let Some(slot) = find(word, item.fingerprint) {
                    tx.store(&buckets.0[bucket], with_slot(word, slot, 0));
                    return true;
                }
            }
            false
        })
    }

    /// The number of fingerprints, counted one by one under the lock.
    pub fn len(&self) -> usize {
        self.buckets.run(|buckets, tx| {
            // Reading everything does not fit into a transaction.
            tx.leave_transaction::<COUNTS>();
            let used = |word: u64| (0..SLOTS).filter(|slot| slot_of(word, *slot) != 0).count();
            buckets.0.iter().map(|word| used(tx.load(word))).sum()
        })
    }

    /// Whether there is no item; as [`len`](Self::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of slots: the fingerprints that there is memory for.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The counts of the lock.
    pub fn counts(&self) -> Counts {
        self.buckets.counts()
    }
}

/// The code with which a section that counts leaves its transaction.
const COUNTS: u8 = 1;

#[cfg(test)]
mod models {
    use super::*;
    use corewise_atomic::sync::Arc;
    use corewise_atomic::{model_bounded, thread};
    use corewise_locks::elide::Scripted;

    /// Both searches find the same free slot; one of the insertions must search again.
    #[test]
    fn two_insertions_get_two_slots() {
        model_bounded(2, || {
            let first = |key| Buckets::new(0).item(key).buckets[0];
            let [here, there] = [1, (2..).find(|key| first(*key) == first(1)).unwrap()];
            let filter = Arc::new(ElidedFilter::<Ttas, Retry<1>, Scripted>::new(
                0,
                Some(Scripted::new()),
            ));
            let other = {
                let filter = filter.clone();
                thread::spawn(move || filter.insert_cop(there).unwrap())
            };
            filter.insert_cop(here).unwrap();
            other.join().unwrap();
            assert!(filter.contains(here) && filter.contains(there));
            assert_eq!(filter.len(), 2);
        });
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;
    use corewise_locks::elide::Scripted;

    type Direct<'t> = Tx<'t, Scripted>;

    fn all(buckets: &Buckets) -> Vec<u64> {
        let words = buckets.0.iter().map(|word| word.load(Acquire));
        words.collect()
    }

    /// The buckets of every fingerprint are those of its item, before and after moves.
    #[test]
    fn moves_leave_each_fingerprint_in_its_buckets() {
        let buckets = Buckets::new(1_000);
        let direct = Direct::direct();
        let inserted: Vec<Item> = (0..2_000)
            .map(|key| buckets.item(key))
            .take_while(|item| buckets.insert(&direct, *item).is_ok())
            .collect();
        let slots = buckets.0.len() * SLOTS as usize;
        assert!(
            inserted.len() * 10 >= slots * 9,
            "{} of {slots}",
            inserted.len()
        );
        for item in &inserted {
            let mut words = item.buckets.iter().map(|at| buckets.0[*at].load(Acquire));
            assert!(words.any(|word| find(word, item.fingerprint).is_some()));
        }
    }

    #[test]
    fn a_refused_insertion_changes_nothing() {
        let buckets = Buckets::new(0);
        let direct = Direct::direct();
        let mut before = all(&buckets);
        let refused = (0..1_000).find(|key| {
            before = all(&buckets);
            buckets.insert(&direct, buckets.item(*key)).is_err()
        });
        assert!(refused.is_some());
        assert_eq!(all(&buckets), before);
    }

    #[test]
    fn a_plan_is_outdated_if_a_bucket_of_its_path_changed() {
        let buckets = Buckets::new(100);
        let direct = Direct::direct();
        let insertion = Insertion(1);
        let prefix = Cop::<Buckets, Scripted>::prefix;
        let plan = prefix(&insertion, &buckets).unwrap();
        assert!(insertion.verify(&buckets, &direct, &plan));
        let other = (2..10_000)
            .map(|key| buckets.item(key))
            .find(|item| item.buckets[0] == plan.steps()[0].bucket)
            .unwrap();
        buckets.insert(&direct, other).unwrap();
        assert!(!insertion.verify(&buckets, &direct, &plan));
        let again = prefix(&insertion, &buckets).unwrap();
        assert!(insertion.verify(&buckets, &direct, &again));
    }
}
