//! CLHT-lf: one exchange of a word decides an insertion or a removal.
//!
//! Paper: David, Guerraoui, Trigonakis, *Asynchronized Concurrency: The Secret to Scaling Concurrent Search Data
//! Structures*, ASPLOS 2015, and *Concurrent Hashing on Multi-core Systems*, Hunan University 2017, §3.2.1 and
//! §4.4.2. There a bucket has a `snapshot_t` of 8 bytes, a version and the state of each slot. An insertion claims a
//! free slot by compare-and-swap, writes value and key, and makes the slot valid by another, which raises the
//! version; if the version is not the one of its search, it searches again. A removal is one compare-and-swap.
//!
//! That form has neither buckets that overflow, nor values that are replaced, nor a sound way to resize. Here are all
//! three, for words of any kind. What both forms share, and the proof of lookups, is in the [module above](super).
//!
//! # Layout
//!
//! ```text
//!  bucket: 64 bytes at a multiple of 64
//! ┌──────────┬───────┬───────┬───────┬─────────┬─────────┬─────────┬──────┐
//! │ snapshot │ key 0 │ key 1 │ key 2 │ value 0 │ value 1 │ value 2 │ next ├──▶ a bucket that overflows
//! └────┬─────┴───────┴───────┴───────┴─────────┴─────────┴─────────┴──────┘    from this one, or null
//!      │  bit 63 .............. 24  23 ....... 8  7 .... 2     1      0
//!      └▶ version                   pending       3 slots   FROZEN  MOVED
//!
//!  a slot:   00 FREE ──claim──▶ 01 INSERTING ──commit──▶ 10 VALID ──▶ 11 REPLACING
//!              ▲ ▲                   │                    │  ▲             │
//!              │ └─────give back─────┘                    │  └──version+1──┘
//!              └────────────────removal, version+1────────┘
//! ```
//!
//! The higher bit of a slot says that there is an entry; it is all that lookups care for. `pending` is not 0 only in
//! the first bucket of a chain: three times the number of a bucket that overflows, and a slot of it. MOVED is set
//! there, too.
//!
//! # Operations
//!
//! An *insertion* reads the first snapshot of its chain, which it calls *seen*, and looks for the key through all
//! buckets. It claims a free slot in one of them, or hangs another bucket on the last one, with a slot claimed in it,
//! and writes the pair. Then it *commits*, in the first snapshot, if nothing was inserted in the chain since *seen*:
//!
//! - A slot of the first bucket is made valid.
//! - For a slot of another one, its position is made pending, and the version raised. After that the insertion is
//!   certain, and anybody can *finish* it: read the snapshot of the other bucket; see that the first one is still the
//!   same; make the slot valid; clear what is pending. Who reads a first snapshot in order to insert finishes first
//!   what is pending there.
//!
//! If something was inserted, it keeps its slot and looks again. If the key is there now, it gives the slot back.
//!
//! A *removal* makes the slot free and raises the version of its bucket. In a bucket that overflows, it sees to it
//! before that the slot is not pending.
//!
//! A *replacement* makes the slot REPLACING, stores the value, and makes the slot VALID again with a higher version.
//!
//! To *move* buckets, FROZEN is set: in first buckets when nothing is pending there, in each bucket when no slot is
//! REPLACING. No commit, removal or replacement succeeds from then on; their threads wait for MOVED, and begin again
//! in the new table. If the move is given up, FROZEN is cleared in reverse order.
//!
//! # Why it is right
//!
//! An exchange succeeds if the snapshot is bit by bit what it was. A snapshot comes back only when a slot is claimed
//! and given back, or a chain frozen and thawed: neither changes what is in the map. All else adds an entry's bit,
//! which goes only with a higher version, or raises the version itself.
//!
//! - *A key is inserted once.* Say an insertion commits that has *seen* a first snapshot with nothing pending. Until
//!   then no other one has committed in this chain: the versions and the entries of the first bucket are the same,
//!   and a commit changes one of them for good. So a key that is there at the commit was there when *seen* was read,
//!   in a slot that was valid by then, since what was pending before is finished before that is cleared. It stayed
//!   there all the time that the insertion searched, and was found.
//! - *A helper that is late does nothing.* It has read a first snapshot with something pending, then the other
//!   bucket's, in which the slot is INSERTING, then the first one again, unchanged. So the insertion was not finished
//!   yet when the first one was read again: the slot cannot have been removed before that (a removal sees to it that
//!   its slot is not pending), and not claimed again. It was INSERTING for this insertion, and a later INSERTING has
//!   a higher version: the exchange fails.
//! - *A removal or replacement knows the value it takes.* Whoever changes a value raises the version. The value was
//!   read between a snapshot and an exchange of this very snapshot.
//! - *Nothing is lost in a move.* FROZEN in the first bucket stops commits in the whole chain, and FROZEN in each
//!   bucket its removals and replacements. What is copied of a bucket is copied after that. A slot that was claimed
//!   before has no entry, nor has a bucket that is hung on the chain later.
//! - *Hits and misses* are those of the module above. The version grows at every removal and replacement, and, in a
//!   first bucket, when an insertion becomes pending. Both VALID and REPLACING are entries.
//!
//! An operation takes effect within its call: a *hit* when it reads the value; a *miss* when the key was not there
//! (above); an *insertion* when its slot becomes valid, which whoever inserts sees to before it returns; one that is
//! *refused* as the hit that it is; a *removal* at its exchange; a *replacement* when it stores the value, before
//! which nobody can read it, and after which everybody does. In a chain that is moved, reads take effect before MOVED
//! is set, or find it and are elsewhere.
//!
//! # Guarantees
//!
//! 1. *Lookups* write nothing and wait for nobody (ASCY 1). They are lock-free: a bucket is looked at again if
//!    the key was there and its version was raised between two looks.
//! 2. *Updates* look before they write (ASCY 2). Those that look in order to insert help an insertion that is
//!    pending.
//! 3. *An update without effect writes nothing*: `try_insert` of a key that is there, a removal or `update` of one
//!    that is not (ASCY 3). Only if another thread was faster, `try_insert` has claimed a slot and given it back.
//! 4. *An update with effect* writes three words to insert, one to remove, two to replace, in one line unless the
//!    bucket has overflowed (ASCY 4): two exchanges to insert, one to remove, an exchange and an addition to replace.
//! 5. *Insertions and removals are lock-free*, but for the two cases below: whoever fails an exchange does so because
//!    another's has succeeded, and of these an operation has a few between two commits, removals or replacements.
//! 6. *An update waits* in two cases. While its bucket is moved, for the group (with hashing, and allocation of what
//!    overflows). And if it removes or replaces an entry whose value another thread is storing, for that one store,
//!    as does a move. Insertions of other keys, and all else in the bucket, go on meanwhile.
//! 7. *A thread that stops* in the middle of an insertion holds nobody up; its slot is not used by others, who take
//!    another one, until it goes on or the bucket is moved.
//!
//! Besides, what [`copy_map`](crate::copy_map) promises of all its tables.
//!
//! # Limits
//!
//! | what | bound | beyond |
//! |---|---|---|
//! | buckets that overflow in one chain | 21,844 (65,535 entries with the first) | [`Full`]; a resize to so few buckets says that there is no memory |
//! | changes of a bucket's version during one operation | 2^40 | a wrong pair, or two of a key |
//! | slots claimed at once | one for each thread that inserts | |
//!
//! # Choices, and what was rejected
//!
//! - *One word decides all insertions of a chain.* Were each decided in its own bucket, two of a key in different
//!   buckets would both succeed. Entries that are found twice and sorted out later would have to be sorted out by
//!   lookups.
//! - *Insertions do not raise the version of the first bucket* but when pending: the entry's bit already tells of
//!   one. In the original each raises it.
//! - *Values are replaced in place.* The other way is to claim a second slot, and to exchange both in one: that is
//!   lock-free only if the bucket has a free slot, and with 1 to 1.9 entries a bucket a quarter to a half of them are
//!   in buckets that have none; it takes slots from insertions meanwhile, so that replacements alone make buckets
//!   overflow and the table grow. With a slot of a later bucket, made pending, it is lock-free for all; but then
//!   entries that are often replaced wander from the first cache line to others, and need memory for it.
//! - *A compare-and-swap of the value alone* is not sound: the slot may belong to another key by then, with the same
//!   value.
//! - *Updates wait for a move, instead of helping with it*: helpers would have to agree on who fills which slot of
//!   the new table.
//! - *Claims are not taken back from others*: it would take an owner's word that it does not write any more.

mod chain;
#[cfg(test)]
mod models;
mod snapshot;

use self::chain::{Bucket, Claim, Found, Frozen};
use self::snapshot::Snapshot;
use super::table::{Form, Memory};
use crate::copy_map::{Full, Moved, Put};
use crate::waiting::Waiting;
use crate::word::Raw;

/// The form.
pub struct LockFreeForm;

impl Form for LockFreeForm {
    type State = Snapshot;
    type Stopped<'b> = Frozen<'b>;
    const LONGEST: usize = Snapshot::LONGEST;

    fn put(
        head: &Bucket,
        memory: &mut Memory<'_, Snapshot>,
        pair: (Raw, Raw),
        replace: bool,
    ) -> Result<Result<Put<Raw>, Full>, Moved> {
        let (mut claim, mut crowded) = (None, false);
        let mut waiting = Waiting::default();
        loop {
            let seen = head.settled()?;
            match head.find(seen, pair.0) {
                Found::At(entry) if !replace => return Ok(Ok(Put::There(entry.value))),
                Found::At(entry) => {
                    if entry.is_busy() {
                        waiting.a_moment();
                    } else if entry.replace(pair.1) {
                        return Ok(Ok(Put::There(entry.value)));
                    }
                    continue;
                }
                Found::Free(_) | Found::Full(..) if claim.is_some() => {}
                Found::Free(vacancy) => claim = vacancy.claim(pair.0, pair.1),
                Found::Full(last, number) => {
                    if number == Self::LONGEST || memory.reserve().is_err() {
                        return Ok(Err(Full));
                    }
                    claim = append(last, number, memory, pair);
                    crowded |= claim.is_some();
                }
            }
            // An insertion that has a slot is decided, unless another was: it may have been of this key.
            let Some(claimed) = claim.take() else {
                continue;
            };
            match claimed.commit(head, seen) {
                Ok(()) => return Ok(Ok(Put::New { crowded })),
                Err(claimed) => claim = Some(claimed),
            }
        }
    }

    fn remove(head: &Bucket, key: Raw) -> Result<Option<Raw>, Moved> {
        let mut waiting = Waiting::default();
        while let Some(entry) = head.entry(key)? {
            if entry.is_busy() {
                waiting.a_moment();
            } else if entry.remove() {
                return Ok(Some(entry.value));
            }
        }
        Ok(None)
    }

    fn update(
        head: &Bucket,
        key: Raw,
        mut new: impl FnMut(Raw) -> Raw,
    ) -> Result<Option<Raw>, Moved> {
        let mut waiting = Waiting::default();
        let mut known = None;
        while let Some(entry) = head.entry(key)? {
            // Not called again for the same value.
            let value = match known {
                Some((old, value)) if old == entry.value => value,
                _ => new(entry.value),
            };
            known = Some((entry.value, value));
            if entry.is_busy() {
                waiting.a_moment();
            } else if entry.replace(value) {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    fn try_stop(head: &Bucket) -> Option<Frozen<'_>> {
        head.try_freeze()
    }

    fn stop(head: &Bucket) -> Frozen<'_> {
        head.freeze()
    }
}

/// Hangs another bucket on the last one, the `number`th, with a slot claimed for the pair.
fn append<'b>(
    last: &'b Bucket,
    number: usize,
    memory: &mut Memory<'_, Snapshot>,
    pair: (Raw, Raw),
) -> Option<Claim<'b>> {
    let spare = memory.take()?;
    match Claim::append(last, number, spare, pair) {
        Ok(claim) => Some(claim),
        Err(spare) => {
            memory.give_back(spare);
            None
        }
    }
}
