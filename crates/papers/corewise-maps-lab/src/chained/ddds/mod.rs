//! Dynamic Dynamic Data Structures (DDDS): the second baseline of \[ATC11\] §5, *a more competitive
//! comparison*.
//!
//! Nick Piggin's algorithm (proposed for the Linux kernel's directory cache) moves entries one by
//! one from an old table to a new one. A sequence counter tells lookups that they have raced with a
//! move. RCU tells when no reader looks at the old table only, and when none looks at it at all.
//!
//! ```text
//!              current ─▶ new ─ old ─▶ old             readers            updates
//!  at rest     T                                       T                  T
//!  waiting     N               O, has all entries      N, then O          O
//!  moving      N               O                       N, then O          move bucket, then N
//!  at rest     N               (O empty: freed after a grace period)      N
//! ```
//!
//! # Lookups
//!
//! 1. Without an old table, a lookup searches the current one. That is one load (of a field beside
//!    the mask) and one branch more than in a table that is never resized.
//! 2. With an old table, it reads the counter, searches the new table, then the old one. It returns
//!    a hit. If both miss, it reads the counter again: if the counter is unchanged and even, the
//!    key is absent; otherwise the lookup restarts.
//!
//! *A hit is always right*: a link is in the table from its insertion to its removal, and moves
//! happen in between. It does not matter in which chain the lookup was, or assumed to be.
//!
//! *A miss is retried if it may be wrong.* A lookup misses a present key for two reasons. Either
//! the key's link was not yet in the new chain when the lookup read that one, and no longer in the
//! old chain. Or the lookup stood on another link of the old chain when that link was moved, and
//! *strayed*: it continued along a chain of the new table, which does not contain the rest of the
//! old chain. Both require a move out of the key's old bucket between the two reads of that
//! bucket's counter. (It does not matter which table is searched first, because the counter
//! decides. This is the paper's order.) In the new table no reader strays: links are moved to it,
//! and none leaves it before the next resize has waited for readers.
//!
//! *Lookups are not wait-free*, nor even lock-free. While a thread is between the two increments,
//! lookups in that bucket that do not find their key wait for it, even while it is preempted; they
//! yield then. A lookup that finds its key never waits. Apart from that waiting, a lookup is
//! repeated at most once for each entry that is moved out of its stripe meanwhile.
//!
//! # Orderings
//!
//! On machines that reorder either, a sequence lock needs its first increment ordered before its
//! writes, and its last read after its reads: two fences. Here the words in between are links,
//! stored with Release and loaded with Acquire as everywhere in a chain, and these orderings are
//! enough:
//!
//! 1. A move stores the odd number (Relaxed) and then links (Release). A lookup that reads one of
//!    these links (Acquire) reads the odd number, or a later one, in its second read of the counter
//!    (Relaxed).
//! 2. A move stores the even number with Release. A lookup whose first read of the counter
//!    (Acquire) returns it sees the link in its new chain, and the old chain without it.
//!
//! So if both reads return the same even number, everything that the lookup has read between them
//! is as the moves up to that number left it, and as none of the later ones.
//!
//! # Moves
//!
//! Entries are moved by a thread that has the bucket's stripe locked: the thread that resizes,
//! bucket by bucket, and an update, before it does anything in a bucket (so an update never has two
//! chains to search). A link is put into its new chain by two stores, after the one that takes it
//! out of the old chain, while readers may stand on it. The counter detects that, so no grace
//! period is needed between these stores. Moves begin a grace period after the new table was
//! published: from then on no reader looks at the old table only.
//!
//! # Differences to the paper's version
//!
//! [`LiteralDdds`] is the paper's version, except in point 3. [`Ddds`] differs in all four:
//!
//! 1. *Counters*: one for each of up to 1,024 stripes of the old table's buckets, where the paper
//!    (and the kernel) have one for all. With a single counter, a miss is repeated whenever any
//!    entry was moved meanwhile, and moving threads must exclude each other: with the lock `moves`.
//!    A lookup does the same work. The counters are adjacent: 8 KiB that stay in a cache.
//! 2. *One pointer*: the old table is reached through the new one, so a lookup sees both or
//!    neither. With two pointers, as in the kernel, a lookup reads the one to the old table first,
//!    and a resize sets it a grace period before the other: else a lookup could find no old table
//!    and then an empty current one. In that grace period both pointers lead to one table.
//! 3. *Updates proceed* during a resize. The paper's benchmark has none.
//! 4. *The first read of the counter does not wait* for an even number, as the kernel's
//!    `read_seqbegin` does, because a lookup that hits does not need one. So lookups of
//!    [`LiteralDdds`] wait during a move also if they find their key.
//!
//! # Guarantees
//!
//! 1. *Lookups* without a resize are wait-free; for those during one see above. They find what is
//!    in the table.
//! 2. *Updates* are linearizable, and block for updates of their stripe. They move up to a bucket's
//!    entries.
//! 3. *A resize* moves every entry once, and waits for readers twice ([`LiteralDdds`]: three
//!    times).

use std::ptr::{self, NonNull};

use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};
use corewise_atomic::{Backoff, Slots, hint, mutant, ordering};
use corewise_maps::relativistic::ResizeError;
use corewise_rcu::{Domain, Section};

use super::algorithm::{
    Algorithm, ChainLink, Head, Lookups, Resized, Stripes, as_ptr, follow, log2_of,
};
use super::bucket_array::Heads;
use super::unsorted::{insert, prepend, remove, search, take_all};

/// Nick Piggin's Dynamic Dynamic Data Structures (\[ATC11\] §5), with a counter for each stripe of
/// buckets; the [module](crate::baseline) describes its costs.
pub type Ddds = DddsTable<false>;

/// Nick Piggin's Dynamic Dynamic Data Structures as \[ATC11\] §5 describes them: one counter for
/// all moves, for whose even value every lookup waits during a resize, and two pointers to tables.
pub type LiteralDdds = DddsTable<true>;

/// [`Ddds`], or [`LiteralDdds`] if `LITERAL`.
pub struct DddsTable<const LITERAL: bool> {
    /// The table that readers use, or search first.
    current: AtomicPtr<DddsBuckets>,
    /// If `LITERAL`: the table from which entries are moved, or are about to be; null unless a
    /// resize is under way.
    old: AtomicPtr<DddsBuckets>,
    domain: Domain,
    stripes: Stripes,
    /// Odd while an entry is in neither of its chains. Changed under the stripe's lock, and `moves`
    /// if there is only one.
    counters: Slots<AtomicU64>,
    /// If `LITERAL`: held by the thread that moves entries.
    moves: Mutex<()>,
}

/// One cache line, without the buckets.
#[repr(align(64))]
struct DddsBuckets {
    mask: usize,
    heads: Heads,
    /// Unless `LITERAL`: the table from which entries are moved; null unless a resize is under way.
    old: AtomicPtr<DddsBuckets>,
    /// Set when no reader looks at the old table only.
    is_moving: AtomicBool,
}

impl DddsBuckets {
    fn try_new(log2: u32, old: *mut DddsBuckets) -> Option<Box<Self>> {
        let len = 1usize << log2;
        Some(Box::new(Self {
            mask: len - 1,
            heads: Heads::try_new(len)?,
            old: AtomicPtr::new(old),
            is_moving: AtomicBool::new(false),
        }))
    }

    fn log2(&self) -> u32 {
        self.heads.len().ilog2()
    }

    #[inline(always)]
    fn head(&self, hash: u64) -> &Head {
        // SAFETY: the mask is one less than the length of the array.
        unsafe { self.heads.at(hash as usize & self.mask) }
    }
}

impl<const LITERAL: bool> DddsTable<LITERAL> {
    /// Number of counters. Unless `LITERAL`, the maximum number of locks, so that a thread that
    /// holds a lock has all counters of its stripe alone.
    const COUNTERS: usize = if LITERAL { 1 } else { 1 << Stripes::MOST_LOG2 };

    /// # Safety
    ///
    /// 1. The caller is in a section, or resizes, while the reference is used.
    #[inline(always)]
    unsafe fn current(&self) -> &DddsBuckets {
        // Acquire: pairs with the Release in `begin`: the table is seen as it was made.
        // SAFETY: never null; freed a grace period after it has become the old one, by the thread
        // that resizes.
        unsafe { &*self.current.load(Acquire) }
    }

    /// The pointer to the old table of a resize to `current`.
    #[inline(always)]
    fn old<'t>(&'t self, current: &'t DddsBuckets) -> &'t AtomicPtr<DddsBuckets> {
        if LITERAL { &self.old } else { &current.old }
    }

    /// The current table, and the old one if a resize is under way. If `LITERAL`, both may be the
    /// same: while the resize waits before it publishes the new table.
    ///
    /// # Safety
    ///
    /// 1. As for [`Self::current`].
    #[inline(always)]
    unsafe fn tables(&self) -> (&DddsBuckets, Option<&DddsBuckets>) {
        // Acquire, before the load in `current`: pairs with the Release in `finish`. A thread that
        // sees null sees a current table with all entries, because `begin` waits for the thread
        // before it publishes the next one.
        let literal = LITERAL.then(|| self.old.load(Acquire));
        // SAFETY: the caller is in a section (1).
        let current = unsafe { self.current() };
        // Acquire: pairs with the Release in `finish`: a thread that sees null sees all entries in
        // the current table.
        let old = literal.unwrap_or_else(|| current.old.load(Acquire));
        // SAFETY: freed a grace period after it was set to null, by the thread that resizes.
        (current, unsafe { old.as_ref() })
    }

    /// The counter of the moves out of a bucket of `old`; `hash` may also be the number of a
    /// bucket.
    #[inline]
    fn counter(&self, old: &DddsBuckets, hash: u64) -> &AtomicU64 {
        &self.counters[hash as usize & old.mask & (Self::COUNTERS - 1)]
    }

    /// A lookup that has found an old table.
    ///
    /// # Safety
    ///
    /// 1. The caller is in a section.
    #[cold]
    #[inline(never)]
    unsafe fn find_in_both(
        &self,
        hash: u64,
        mut eq: impl FnMut(NonNull<ChainLink>) -> bool,
    ) -> Option<NonNull<ChainLink>> {
        let mut backoff = Backoff::new();
        loop {
            // SAFETY: the caller is in a section.
            let (table, old) = unsafe { self.tables() };
            let Some(old) = old else {
                // SAFETY: the caller is in a section.
                return unsafe { search(table.head(hash), hash, eq) };
            };
            let counter = self.counter(old, hash);
            // Acquire: pairs with the Release in `move_bucket`.
            let before = counter.load(ordering!(Acquire, "ddds_relaxed_look"));
            if LITERAL && !before.is_multiple_of(2) {
                backoff.snooze();
                continue;
            }
            for table in [table, old] {
                // SAFETY: the caller is in a section.
                let found = unsafe { search(table.head(hash), hash, &mut eq) };
                if found.is_some() {
                    return found;
                }
            }
            // Relaxed: ordered after the Acquire of each link, see *Orderings*.
            let after = counter.load(Relaxed);
            let is_undisturbed = before == after && before.is_multiple_of(2);
            if is_undisturbed || mutant!("ddds_one_look") {
                return None;
            }
            backoff.snooze();
        }
    }

    /// The bucket in which an update of this hash is done. Called under the stripe's lock.
    ///
    /// # Safety
    ///
    /// 1. The caller is in a section, and holds the lock of the hash's stripe.
    unsafe fn head_for_update(&self, hash: u64) -> &Head {
        // SAFETY: the caller is in a section.
        let (table, old) = unsafe { self.tables() };
        // Before the new table is published, entries stay where they are.
        let Some(old) = old.filter(|old| !ptr::eq(*old, table)) else {
            return table.head(hash);
        };
        // Acquire: pairs with the Release in `start_to_move`: readers of the old table alone have
        // left before we move.
        if !table.is_moving.load(Acquire) {
            return old.head(hash);
        }
        if !mutant!("ddds_update_moves_nothing") {
            // SAFETY: the stripe is locked, and all readers look at both tables.
            unsafe { self.move_bucket(old, table, hash) };
        }
        table.head(hash)
    }

    /// Moves the entries of the bucket of `old` for `hash`, which may also be the number of a
    /// bucket.
    ///
    /// # Safety
    ///
    /// 1. The caller holds the lock of the bucket's stripe.
    /// 2. All readers look at both tables.
    unsafe fn move_bucket(&self, old: &DddsBuckets, new: &DddsBuckets, hash: u64) {
        let _alone = LITERAL.then(|| self.moves.lock());
        let head = old.head(hash);
        let counter = self.counter(old, hash);
        // Relaxed: under the lock of the stripe, or of all moves.
        let mut moves = counter.load(Relaxed);
        while let Some(node) = follow(head) {
            // SAFETY: no other thread unlinks it (1).
            let link = unsafe { node.as_ref() };
            if !mutant!("ddds_not_odd") {
                // Relaxed: ordered before the Release of each link, see *Orderings*.
                counter.store(moves + 1, Relaxed);
            }
            // Not `lead`, because of the mutant. Release: pairs with the Acquire in `follow`: a
            // lookup that reads it reads the odd number in its second read of the counter.
            let release = ordering!(Release, "ddds_relaxed_unlink");
            head.store(link.next.load(Acquire), release);
            // SAFETY: the stripe also covers the bucket of the new table (1), and the link is in no
            // chain now.
            unsafe { prepend(new.head(link.hash()), node) };
            moves += 2;
            // Release: pairs with the Acquire of the first read of the counter.
            counter.store(moves, ordering!(Release, "ddds_relaxed_move"));
        }
    }
}

/// The steps of a resize, for the thread that does it.
impl<const LITERAL: bool> DddsTable<LITERAL> {
    /// Publishes a new table, so that readers look at it as well.
    ///
    /// # Safety
    ///
    /// 1. The caller is the only thread that resizes, and no resize is in progress.
    unsafe fn begin(&self, log2: u32) -> Result<(), ResizeError> {
        // Relaxed: only the thread that resizes changes it.
        let old = self.current.load(Relaxed);
        let within = if LITERAL { ptr::null_mut() } else { old };
        let new = DddsBuckets::try_new(log2, within).ok_or(ResizeError::NoMemory)?;
        if LITERAL {
            // Release: pairs with the Acquire in `tables`.
            self.old.store(old, Release);
            if !mutant!("ddds_pointers_at_once") {
                self.domain.synchronize();
            }
        }
        let all = self.stripes.lock_all();
        // SAFETY: we resize, by 1.
        all.set_for_buckets(log2.min(unsafe { self.current() }.log2()));
        // Release: pairs with the Acquire in `current`.
        self.current.store(Box::into_raw(new), Release);
        Ok(())
    }

    /// Waits until all readers look at both tables.
    ///
    /// # Safety
    ///
    /// 1. The caller is the thread that resizes, and [`begin`](Self::begin) was the last step.
    unsafe fn start_to_move(&self) {
        if !mutant!("ddds_moves_early") {
            self.domain.synchronize();
        }
        // SAFETY: we resize, by 1.
        let table = unsafe { self.current() };
        // Release: pairs with the Acquire in `head_for_update`.
        table.is_moving.store(true, Release);
    }

    /// Moves all entries to the new table.
    ///
    /// # Safety
    ///
    /// 1. The caller is the thread that resizes, and [`start_to_move`](Self::start_to_move) was the
    ///    last step.
    unsafe fn move_all(&self) {
        // SAFETY: we resize, by 1, so no other thread replaces a table.
        let (table, Some(old)) = (unsafe { self.tables() }) else {
            return;
        };
        for bucket in 0..old.heads.len() as u64 {
            let _locked = self.lock_stripe(bucket);
            // SAFETY: the stripe is locked, and `start_to_move` has waited for readers.
            unsafe { self.move_bucket(old, table, bucket) };
        }
    }

    /// Detaches the old table from readers, and frees it.
    ///
    /// # Safety
    ///
    /// 1. The caller is the thread that resizes, and [`move_all`](Self::move_all) was the last
    ///    step.
    unsafe fn finish(&self) {
        // SAFETY: we resize, by 1.
        let table = unsafe { self.current() };
        let place = self.old(table);
        // Relaxed: only the thread that resizes stores it.
        let old = place.load(Relaxed);
        // Release: pairs with the Acquire in `tables`.
        place.store(ptr::null_mut(), Release);
        self.stripes.lock_all().set_for_buckets(table.log2());
        self.domain.synchronize();
        // SAFETY: there is an old table, made from a box by `try_new`; readers and updates have
        // left it (1).
        drop(unsafe { Box::from_raw(old) });
    }

    fn lock_stripe(&self, hash: u64) -> impl Sized + '_ {
        self.stripes.lock(|log2| hash as usize & ((1 << log2) - 1))
    }
}

// SAFETY: as for `Algorithm`, below.
unsafe impl<const LITERAL: bool> Lookups for DddsTable<LITERAL> {
    #[inline(always)]
    unsafe fn fetch_bucket(&self, section: &impl Section, hash: u64) {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller is in a section.
        hint::prefetch(unsafe { self.current() }.head(hash));
    }

    #[inline(always)]
    unsafe fn first(&self, section: &impl Section, hash: u64) -> *const ChainLink {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller is in a section.
        as_ptr(follow(unsafe { self.current() }.head(hash)))
    }

    #[inline(always)]
    unsafe fn look_up(
        &self,
        section: &impl Section,
        hash: u64,
        eq: impl FnMut(NonNull<ChainLink>) -> bool,
    ) -> Option<NonNull<ChainLink>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller is in a section.
        unsafe {
            match self.tables() {
                (table, None) => search(table.head(hash), hash, eq),
                (_, Some(_)) => self.find_in_both(hash, eq),
            }
        }
    }
}

// SAFETY: a returned link was found in a chain, where it is from its insertion to its removal
// except during its moves; when it is removed, under its stripe's lock, one link points to it,
// which is led past it.
unsafe impl<const LITERAL: bool> Algorithm for DddsTable<LITERAL> {
    const NAME: &'static str = if LITERAL { "ddds-literal" } else { "ddds" };

    type Lookups = Self;

    #[inline(always)]
    fn hold<R>(&self, act: impl FnOnce(&Self) -> R) -> R {
        act(self)
    }

    fn try_new(buckets: usize, domain: &Domain) -> Option<Self> {
        let log2 = log2_of(buckets)?;
        let table = DddsBuckets::try_new(log2, ptr::null_mut())?;
        Some(Self {
            current: AtomicPtr::new(Box::into_raw(table)),
            old: AtomicPtr::new(ptr::null_mut()),
            domain: domain.clone(),
            stripes: Stripes::new(log2),
            counters: Slots::try_zeroed(Self::COUNTERS)?,
            moves: Mutex::new(()),
        })
    }

    unsafe fn insert(
        &self,
        section: &impl Section,
        link: NonNull<ChainLink>,
        eq: impl FnMut(NonNull<ChainLink>) -> bool,
    ) -> Result<(), NonNull<ChainLink>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller's link, which no other thread has yet.
        let hash = unsafe { link.as_ref() }.hash();
        let _locked = self.lock_stripe(hash);
        // SAFETY: the caller is in a section, the stripe is locked, and the link is in no table.
        unsafe { insert(self.head_for_update(hash), link, eq) }
    }

    unsafe fn remove(
        &self,
        section: &impl Section,
        hash: u64,
        eq: impl FnMut(NonNull<ChainLink>) -> bool,
    ) -> Option<NonNull<ChainLink>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        let _locked = self.lock_stripe(hash);
        // SAFETY: the caller is in a section, and the stripe is locked.
        unsafe { remove(self.head_for_update(hash), hash, eq) }
    }

    fn buckets(&self) -> usize {
        let _section = self.domain.pin();
        // SAFETY: we are in a section.
        unsafe { self.current() }.heads.len()
    }

    unsafe fn resize(&self, buckets: usize) -> Result<Resized, ResizeError> {
        let log2 = log2_of(buckets).ok_or(ResizeError::NoMemory)?;
        // SAFETY: we resize.
        if unsafe { self.current() }.log2() == log2 {
            return Ok(Resized::default());
        }
        // SAFETY: the caller lets only us resize, and these are the steps in order (1).
        unsafe {
            self.begin(log2)?;
            self.start_to_move();
            self.move_all();
            self.finish();
        }
        Ok(Resized {
            passes: 1,
            waits: if LITERAL { 3 } else { 2 },
        })
    }

    fn take_all(&mut self, each: impl FnMut(NonNull<ChainLink>)) {
        // SAFETY: we have the table alone, and no resize is under way.
        unsafe { take_all(&self.current().heads, each) };
    }
}

impl<const LITERAL: bool> Drop for DddsTable<LITERAL> {
    fn drop(&mut self) {
        // Relaxed: we have it alone.
        // SAFETY: made from a box, and the only pointer to it: no resize is under way.
        drop(unsafe { Box::from_raw(self.current.load(Relaxed)) });
    }
}

#[cfg(test)]
mod models;
