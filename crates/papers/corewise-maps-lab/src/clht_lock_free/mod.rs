//! CLHT-lf: one exchange of a word decides an insertion or a removal.
//!
//! Papers: \[CLHT\], and \[CHTBench\] §3.2.1 and §4.4.2. There a bucket has a `snapshot_t` of 8
//! bytes: a version, and the state of each slot. An insertion claims a free slot by
//! compare-and-swap, writes value and key, and makes the slot valid by another compare-and-swap,
//! which raises the version. If the version is not that of its search, it searches again. A removal
//! is one compare-and-swap.
//!
//! That form has no overflow buckets, no replacement of values, and no sound resize. This module
//! has all three, for arbitrary words. [`clht`](corewise_maps::clht) describes what both variants
//! share, and the correctness of lookups.
//!
//! # Layout
//!
//! ```text
//!  bucket: 64 bytes at a multiple of 64
//! ┌──────────┬───────┬───────┬───────┬─────────┬─────────┬─────────┬──────┐
//! │ snapshot │ key 0 │ key 1 │ key 2 │ value 0 │ value 1 │ value 2 │ next ├──▶ overflow bucket
//! └────┬─────┴───────┴───────┴───────┴─────────┴─────────┴─────────┴──────┘    or null
//!      │  bit 63 .............. 24  23 ....... 8  7 .... 2     1      0
//!      └▶ version                   pending       3 slots   FROZEN  MOVED
//!
//!  a slot:   00 FREE ──claim──▶ 01 INSERTING ──commit──▶ 10 VALID ──▶ 11 REPLACING
//!              ▲ ▲                   │                    │  ▲             │
//!              │ └─────give back─────┘                    │  └──version+1──┘
//!              └────────────────removal, version+1────────┘
//! ```
//!
//! The higher bit of a slot means that there is an entry; lookups read only this bit. `pending` is
//! nonzero only in the first bucket of a chain: it is three times the number of an overflow bucket,
//! plus the number of a slot of it. MOVED is set only there, too.
//!
//! # Operations
//!
//! An *insertion* reads the first snapshot of its chain, called *seen*, and searches all buckets
//! for the key. It claims a free slot in one of them, or links a new overflow bucket with a claimed
//! slot to the last one, and writes the pair. Then it *commits* in the first snapshot, if no other
//! insertion has committed in the chain since *seen*:
//!
//! - A slot of the first bucket is made valid.
//! - For a slot of another bucket, its position is made pending and the version is raised. From
//!   then on the insertion is certain, and any thread can *finish* it: read the snapshot of the
//!   other bucket; check that the first snapshot is still the same; make the slot valid; clear
//!   `pending`. A thread that reads a first snapshot in order to insert first finishes a pending
//!   insertion.
//!
//! If another insertion has committed, this one keeps its slot and searches again. If the key is
//! present now, it gives the slot back.
//!
//! A *removal* frees the slot and raises the version of its bucket. In an overflow bucket, it first
//! ensures that the slot is not pending.
//!
//! A *replacement* makes the slot REPLACING, stores the value, and makes the slot VALID again with
//! a higher version.
//!
//! To *move* buckets, FROZEN is set: in a first bucket when nothing is pending there, and in each
//! bucket when no slot is REPLACING. No commit, removal or replacement succeeds from then on; their
//! threads wait for MOVED and start again in the new table. If the move is given up, FROZEN is
//! cleared in reverse order.
//!
//! # Correctness
//!
//! A compare-and-swap succeeds if the snapshot is bit by bit what it was. A snapshot can recur only
//! when a slot is claimed and given back, or a chain frozen and thawed, and neither changes the
//! contents of the map. Every other change sets an entry's bit, which is cleared only together with
//! a higher version, or raises the version itself.
//!
//! - *A key is inserted once.* Suppose that an insertion commits whose *seen* is a first snapshot
//!   with nothing pending. Between *seen* and the commit no other insertion has committed in this
//!   chain: the version and the entries of the first bucket are unchanged, and a commit changes one
//!   of them for good. So a key that is present at the commit was present when *seen* was read, in
//!   a slot that was valid by then, since a pending insertion is finished before `pending` is
//!   cleared. It stayed there during the whole search and was found.
//! - *A late helper does nothing.* It has read a first snapshot with a pending insertion, then the
//!   other bucket's snapshot, in which the slot is INSERTING, then the first snapshot again,
//!   unchanged. So the insertion was not finished when the first snapshot was read again. Hence the
//!   slot was not removed before that (a removal ensures that its slot is not pending) and not
//!   claimed again. It was INSERTING for this insertion, and a later INSERTING has a higher
//!   version: the compare-and-swap fails.
//! - *A removal or replacement knows the value it takes.* Every change of a value raises the
//!   version. The value was read between the load of a snapshot and a compare-and-swap of that same
//!   snapshot.
//! - *A move loses nothing.* FROZEN in the first bucket stops commits in the whole chain, and
//!   FROZEN in each bucket stops its removals and replacements. The entries of a bucket are copied
//!   after that. A slot that was claimed before has no entry, nor has a bucket that is linked to
//!   the chain later.
//! - *Hits and misses* are correct as in the parent module. The version is raised by every removal
//!   and replacement and, in a first bucket, when an insertion becomes pending. Both VALID and
//!   REPLACING slots have entries.
//!
//! Every operation takes effect within its call. A *hit* takes effect when it reads the value. A
//! *miss* takes effect when the key was absent (above). An *insertion* takes effect when its slot
//! becomes valid, which the inserting thread ensures before it returns; a *refused* insertion takes
//! effect as a hit does. A *removal* takes effect at its compare-and-swap. A *replacement* takes
//! effect when it stores the value: no thread can read the value before, and every thread reads it
//! afterwards. In a chain that is moved, reads take effect before MOVED is set, or find MOVED and
//! continue elsewhere.
//!
//! # Guarantees
//!
//! 1. *Lookups* write nothing and never wait (ASCY 1). They are lock-free: a bucket is searched
//!    again if the key was found and its version was raised between the two loads of the snapshot.
//! 2. *Updates* search before they write (ASCY 2). Those that search in order to insert help a
//!    pending insertion.
//! 3. *An update without effect writes nothing* (ASCY 3): `try_insert` of a present key, and a
//!    removal or `update` of an absent one. The exception is a `try_insert` that claims a slot and
//!    gives it back because another thread was faster.
//! 4. *An update with effect* writes three words to insert, one to remove, two to replace, all in
//!    one cache line unless the bucket has overflowed (ASCY 4). It needs two exchanges to insert,
//!    one to remove, an exchange and an addition to replace.
//! 5. *Insertions and removals are lock-free*, except for the two cases below: an exchange fails
//!    only because another thread's has succeeded, and an operation makes only a few exchanges
//!    between two commits, removals or replacements.
//! 6. *An update waits* in two cases. While its bucket is moved, it waits until the group is moved,
//!    which includes hashing and the allocation of overflow buckets. And if it removes or replaces
//!    an entry whose value another thread is storing, it waits for that one store, as a move does.
//!    Insertions of other keys, and all other operations on the bucket, proceed meanwhile.
//! 7. *A thread that stops* in the middle of an insertion blocks no other thread. Its slot stays
//!    claimed, and others take another one, until the thread resumes or the bucket is moved.
//!
//! The guarantees of [`copy_map`](corewise_maps::copy_map) hold as well.
//!
//! # Limits
//!
//! | what | bound | beyond |
//! |---|---|---|
//! | overflow buckets in one chain | 21,844 (65,535 entries with the first bucket) | [`Full`]; a resize that would need more fails for lack of memory |
//! | changes of a bucket's version during one operation | 2^40 | a wrong pair, or two entries of a key |
//! | slots claimed at once | one per inserting thread | |
//!
//! # Choices and rejected designs
//!
//! - *One word decides all insertions of a chain.* If each were decided in its own bucket, two
//!   insertions of a key into different buckets could both succeed. Lookups would then have to
//!   resolve such duplicates.
//! - *Insertions do not raise the version of the first bucket* unless they are pending: the entry's
//!   bit already announces them. In the original every insertion raises it.
//! - *Values are replaced in place.* The alternative is to claim a second slot and to exchange both
//!   in one operation. That is lock-free only if the bucket has a free slot; with 1 to 1.9 entries
//!   per bucket, a quarter to a half of the entries are in buckets that have none. It also takes
//!   slots from insertions, so that replacements alone make buckets overflow and the table grow.
//!   With a slot of a later bucket, made pending, it is lock-free for all entries; but then entries
//!   that are often replaced move from the first cache line to others, and need memory for it.
//! - *Rejected: a compare-and-swap of the value alone.* It is not sound: the slot may belong to
//!   another key by then, with the same value.
//! - *Updates wait for a move instead of helping with it.* Helpers would have to agree on which
//!   thread fills which slot of the new table.
//! - *Claims are not taken away from their owners.* That would need the owner's promise that it no
//!   longer writes.

mod chain;
#[cfg(test)]
mod models;
mod snapshot;

use corewise_atomic::Backoff;

use corewise_maps::copy_map::{CopyMap, Full, Unlimited};
use corewise_maps::parts::clht::{ClhtTable, ClhtVariant, SpareMemory};
use corewise_maps::parts::{EntryChange, Moved, Put, Raw};
use corewise_maps::relativistic::DefaultHasher;

use self::chain::{Bucket, Chain, Claim, Frozen, InsertionSearch};
use self::snapshot::Snapshot;

/// The table of [`LockFree`].
pub type LockFreeTable<K, V> = ClhtTable<LockFreeForm, K, V>;

/// CLHT-lf: one exchange of a word decides an insertion or a removal; lookups cost one cache line
/// and write nothing. See the [module](self) for how it works.
///
/// Choose it over [`LockBased`](corewise_maps::clht::LockBased) if threads may be interrupted in
/// the middle of an update, for example if there are more of them than processors: no thread waits
/// for the interrupted one.
///
/// ```
/// use corewise_maps::copy_map::{Computed, Operation};
/// use corewise_maps_lab::clht_lock_free::LockFree;
///
/// let stock: LockFree<u32, u32> = LockFree::from([(7, 2), (8, 1)]);
/// let take = |left: Option<u32>| match left {
///     None => Operation::Abort("sold out"),
///     Some(1) => Operation::Remove,
///     Some(n) => Operation::Insert(n - 1),
/// };
/// assert_eq!(stock.pin().compute(7, take), Computed::Updated { old: 2, new: 1 });
/// assert_eq!(stock.pin().compute(8, take), Computed::Removed(1));
/// assert_eq!(stock.pin().compute(8, take), Computed::Aborted(Some("sold out")));
/// ```
///
/// The methods are those of [`CopyMap`] and of its handle,
/// [`CopyMapRef`](corewise_maps::copy_map::CopyMapRef).
pub type LockFree<K, V, S = DefaultHasher, L = Unlimited> = CopyMap<LockFreeTable<K, V>, S, L>;

/// The lock-free variant.
pub struct LockFreeForm;

// SAFETY: see `BucketState` and *Correctness* in the module's header (1). An exchange of the
// snapshot decides which operation takes an entry out (2).
unsafe impl ClhtVariant for LockFreeForm {
    type State = Snapshot;
    type Stopped<'b> = Frozen<'b>;
    const LONGEST: usize = Snapshot::LONGEST;

    unsafe fn put(
        head: &Bucket,
        memory: &mut SpareMemory<'_, Snapshot>,
        pair: (Raw, Raw),
        replace: bool,
    ) -> Result<Result<Put<Raw>, Full>, Moved> {
        let (mut claim, mut crowded) = (None, false);
        let (mut backoff, chain) = (Backoff::new(), Chain(head));
        loop {
            let seen = chain.at_rest()?;
            match chain.find(seen, pair.0) {
                InsertionSearch::At(entry) if !replace => return Ok(Ok(Put::There(entry.value))),
                InsertionSearch::At(entry) => {
                    if entry.is_busy() {
                        backoff.snooze();
                    } else if entry.replace(pair.1) {
                        return Ok(Ok(Put::There(entry.value)));
                    }
                    continue;
                }
                InsertionSearch::Free(_) | InsertionSearch::Full(..) if claim.is_some() => {}
                InsertionSearch::Free(vacancy) => claim = vacancy.claim(pair.0, pair.1),
                InsertionSearch::Full(last, number) => {
                    if number == Self::LONGEST || memory.reserve().is_err() {
                        // The chain may have been moved meanwhile, or have a free slot.
                        if chain.at_rest()? == seen {
                            return Ok(Err(Full));
                        }
                        continue;
                    }
                    // SAFETY: `memory` is that of the chain's table, and so of its last bucket (1).
                    claim = unsafe { append(last, number, memory, pair) };
                    crowded |= claim.is_some();
                }
            }
            // The insertion has a slot. It commits unless another insertion has: that one may have
            // been of this key.
            let Some(claimed) = claim.take() else {
                continue;
            };
            match claimed.commit(chain, seen) {
                Ok(()) => return Ok(Ok(Put::New { crowded })),
                Err(claimed) => claim = Some(claimed),
            }
        }
    }

    fn remove(head: &Bucket, key: Raw) -> Result<Option<Raw>, Moved> {
        let mut backoff = Backoff::new();
        while let Some(entry) = Chain(head).entry(key)? {
            if entry.is_busy() {
                backoff.snooze();
            } else if entry.remove() {
                return Ok(Some(entry.value));
            }
        }
        Ok(None)
    }

    fn change(
        head: &Bucket,
        key: Raw,
        mut decide: impl FnMut(Raw) -> EntryChange<Raw>,
    ) -> Result<Option<(Raw, EntryChange<Raw>)>, Moved> {
        let mut backoff = Backoff::new();
        while let Some(entry) = Chain(head).entry(key)? {
            let change = decide(entry.value);
            let is_done = match change {
                EntryChange::Keep => true,
                _ if entry.is_busy() => {
                    backoff.snooze();
                    false
                }
                EntryChange::Replace(value) => entry.replace(value),
                EntryChange::Remove => entry.remove(),
            };
            if is_done {
                return Ok(Some((entry.value, change)));
            }
        }
        Ok(None)
    }

    fn try_stop(head: &Bucket) -> Result<Option<Frozen<'_>>, Moved> {
        Chain(head).try_freeze()
    }

    fn stop(head: &Bucket) -> Frozen<'_> {
        Chain(head).freeze()
    }
}

/// Links another bucket to the last one, the `number`th, with a slot claimed for the pair.
///
/// # Safety
///
/// 1. `memory` is that of the table of `last`.
unsafe fn append<'b>(
    last: &'b Bucket,
    number: usize,
    memory: &mut SpareMemory<'_, Snapshot>,
    pair: (Raw, Raw),
) -> Option<Claim<'b>> {
    let spare = memory.take()?;
    // SAFETY: the spare bucket is memory of the table of `last` (1).
    match unsafe { Claim::append(last, number, spare, pair) } {
        Ok(claim) => Some(claim),
        Err(spare) => {
            memory.give_back(spare);
            None
        }
    }
}
