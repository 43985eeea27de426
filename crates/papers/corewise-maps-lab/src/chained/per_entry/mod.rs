//! A table that moves entries one by one, as Linux's rhashtable has done since it gave up
//! unzipping.
//!
//! Source of the algorithm: `lib/rhashtable.c` and `include/linux/rhashtable.h` of Linux since 4.1
//! (2015), with the markers as they are since 2018. The facts are from there, the code is our own.
//!
//! # Layout
//!
//! ```text
//! current ─▶ old table: [0] ─▶ a ─▶ b ─▶ end of [0]      [1] ─▶ (nothing)
//!            │ future
//!            ▼
//!            new table: [0] (nothing)  [1] ─▶ c ─▶ end of [1]  [2] ...  [3] ─▶ d ─▶ end of [3]
//! ```
//!
//! A chain ends with a *nulls marker* instead of null: an odd address that identifies the bucket
//! whose chain ends. (A bucket that holds null is empty and implies its marker, so new arrays are
//! zeroed memory.) While a table is being replaced it points to the next one, its *future table*.
//!
//! # Moving an entry
//!
//! A move takes the *last* entry of an old chain. Its next word is pointed to the first entry of
//! its new bucket, the new bucket to the entry, and then the word before it in the old chain to the
//! old bucket's marker. Between the last two stores it is in both chains. So a present entry can be
//! found in the old table or, if it is no longer there, in the new one: lookups try them in this
//! order.
//!
//! A reader that stands on an entry while it is moved continues in another chain, and reaches
//! another bucket's marker. It then restarts at its bucket.
//!
//! # Operations
//!
//! *A lookup* walks the bucket's chain, restarts if the chain ends with a wrong marker, and
//! continues in the future table if there is one.
//!
//! *An update* locks the stripe of the key's bucket, of the smaller table if there are two, and
//! looks for the key in both tables. New entries are inserted into the newer one, so old chains
//! only become shorter.
//!
//! *A resize* attaches the new table as the future table under all locks (without a walk: a
//! moment). It moves the entries of one old bucket after the other, with its stripe locked,
//! publishes the new table under all locks, waits for readers, and frees the old one. It can change
//! the size by any factor at once.
//!
//! # The purpose of the marker
//!
//! If entries are moved from the end, lookups miss no key even without the marker. A reader strays
//! only from an entry that was moved, and then all entries behind it have been moved before. So the
//! reader has passed all that was left in the old chain, and it searches the new table next. If
//! entries were moved from the front, as in tables whose users may do so, the marker would be
//! needed. Either is enough, and without both keys are missed: the test
//! `moves_from_the_end_or_markers_are_enough` shows all four combinations. Linux has checked the
//! whole marker since 2018, for users that move objects between *tables*. This table checks it
//! because it is part of the algorithm, and its cost is part of the comparison.
//!
//! # Guarantees
//!
//! 1. *Lookups* are not wait-free as the relativistic ones are: a resize can send a reader back.
//!    But each restart means that an entry was moved on which the reader stood. An entry of the old
//!    bucket is moved once, and no second resize begins to move entries until readers of the first
//!    one have left. So a lookup takes at most n + 1 walks over an old bucket of n entries,
//!    including stray ways into new chains, and one over the new bucket. (In Linux the next resize
//!    need not wait for readers.) Without a resize it takes one walk.
//! 2. *Updates* are linearizable. They lock one of up to 1,024 stripes of buckets and compare keys
//!    under that lock (`K::eq` must not use the map). No thread waits for readers while it holds a
//!    lock.
//! 3. *A resize* takes one walk and one wait for readers. An update waits at most for the entries
//!    of one old bucket to be moved, and for the moments in which all locks are held.
//! 4. Each move writes three words, in three cache lines; of the algorithms of \[ATC11\] only cuts
//!    write.
//!
//! # Linearizability
//!
//! Insertions and removals of a key take effect under its stripe's lock, with the store that links
//! or unlinks. A lookup that finds an entry: the entry was in a chain when the lookup began, or was
//! linked since; the lookup takes effect before the removal, if there was one. A lookup that finds
//! nothing: suppose its key was present all the time. Then the same entry N was. As long as N is
//! not linked to the new table, it is in the old chain, and so are all entries before it, because
//! entries are moved from the end. A walk over this chain reaches N, also from removed entries,
//! whose next words still lead on. So when the reader has reached the end of its old bucket, N is
//! in the new table. The reader has seen the later stores (they are Release, the loads Acquire), so
//! it sees the future table, and N in it.
//!
//! # Differences to Linux
//!
//! 1. The entries of an old bucket are recorded in one walk and then moved from the end; in Linux
//!    each move walks over the chain to its last entry.
//! 2. Locks are stripes instead of a bit in each bucket; an old bucket and its new buckets share a
//!    stripe.
//! 3. The caller does the resize instead of a work item, by any factor, and one at a time; in Linux
//!    a future table may have a future table.
//! 4. Updates look for their key in the older table first and then in the newer one, under one
//!    lock.
//!
//! # Limits
//!
//! Buckets: memory, 8 bytes for each; those of both tables until readers have left the old one. A
//! resize records one address for each entry of the longest chain.

use std::ptr::{self, NonNull};

use corewise_atomic::hint;
use corewise_atomic::mutant;
use corewise_atomic::sync::atomic::AtomicPtr;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::{Backoff, Slots};
use corewise_maps::relativistic::ResizeError;
use corewise_rcu::{Domain, Section};

use super::Resized;
use super::algorithm::{Algorithm, ChainLink, Head, Lookups, Stripes, log2_of};

/// An upper limit that no table reaches.
const MOST_LOG2: u32 = if usize::BITS < 64 { 24 } else { 40 };

/// The value of a word: an entry, or the end of a bucket, encoded as the address of the bucket's
/// word plus one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Next(*mut ChainLink);

const _: () = assert!(align_of::<ChainLink>() >= 2 && align_of::<Head>() >= 2);

impl Next {
    /// The end of a bucket: its nulls marker.
    fn end_of(bucket: &Head) -> Self {
        let address = ptr::from_ref(bucket).addr() | 1;
        Self(ptr::without_provenance_mut(address))
    }

    /// The first entry of a bucket, or its end.
    #[inline(always)]
    fn first_of(bucket: &Head) -> Self {
        let first = Self::load(bucket);
        if first.0.is_null() {
            return Self::end_of(bucket);
        }
        first
    }

    #[inline(always)]
    fn load(word: &Head) -> Self {
        // Acquire: pairs with the Release in `store`: the entry is seen as it was made, and all
        // that was done before it was linked here.
        Self(word.load(Acquire))
    }

    /// Stores this value to a word that readers may follow.
    fn store(self, word: &Head) {
        // Release: pairs with the Acquire in `load`.
        word.store(self.0, Release);
        #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
        strays::after_store();
    }

    #[inline(always)]
    fn entry(self) -> Option<NonNull<ChainLink>> {
        match self.0.addr() & 1 {
            0 => NonNull::new(self.0),
            _ => None,
        }
    }
}

/// A bucket array, whose buckets are single words.
struct PerEntryBuckets {
    log2: u32,
    buckets: Slots<Head>,
    /// The table to which entries are moved, or null.
    future: AtomicPtr<PerEntryBuckets>,
}

impl PerEntryBuckets {
    fn try_new(log2: u32) -> Option<Box<Self>> {
        Some(Box::new(Self {
            log2,
            buckets: Slots::try_zeroed(1 << log2)?,
            future: AtomicPtr::new(ptr::null_mut()),
        }))
    }

    #[inline(always)]
    fn bucket(&self, hash: u64) -> &Head {
        &self.buckets[low_bits(hash, self.log2)]
    }

    /// The table to which entries are moved.
    #[inline(always)]
    fn future(&self) -> Option<&Self> {
        // Acquire: pairs with the Release in `attach`: its buckets are seen. (A thread that sees an
        // entry removed from here by a move also sees this pointer: see `move_entry`.)
        // SAFETY: null or a table, which is freed a grace period after its successor was published;
        // so not before this one.
        unsafe { self.future.load(Acquire).as_ref() }
    }
}

#[inline(always)]
fn low_bits(hash: u64, log2: u32) -> usize {
    hash as usize & ((1 << log2) - 1)
}

/// An entry in its chain: the word that points to it, and its next word's value.
struct FoundEntry<'t> {
    word: &'t Head,
    link: NonNull<ChainLink>,
    next: Next,
}

/// Searches the chain of a bucket whose stripe is locked.
///
/// # Safety
///
/// 1. The bucket's stripe is locked for as long as what is found is used.
unsafe fn look<'t>(
    bucket: &'t Head,
    hash: u64,
    eq: &mut impl FnMut(NonNull<ChainLink>) -> bool,
) -> Option<FoundEntry<'t>> {
    let (mut word, mut at) = (bucket, Next::first_of(bucket));
    while let Some(link) = at.entry() {
        // SAFETY: entries are freed after they were unlinked, which requires the lock.
        let entry = unsafe { link.as_ref() };
        let next = Next::load(&entry.next);
        if entry.hash() == hash && eq(link) {
            return Some(FoundEntry { word, link, next });
        }
        (word, at) = (&entry.next, next);
    }
    None
}

/// Moves an entry between `before`, which points to it, and `behind`, its successor, to the front
/// of bucket `new`.
///
/// # Safety
///
/// 1. The stripe of both buckets is locked.
unsafe fn move_entry(before: &Head, entry: NonNull<ChainLink>, behind: Next, new: &Head) {
    // SAFETY: under the lock it is not freed.
    let next = unsafe { &entry.as_ref().next };
    if mutant!("per_entry_unlinks_first") {
        behind.store(before);
    }
    // Readers that stand on the entry continue in the new chain from now on.
    Next::first_of(new).store(next);
    Next(entry.as_ptr()).store(new);
    // A reader that no longer sees the entry here has seen all stores above.
    behind.store(before);
}

/// A table like rhashtable: a resize moves entries one by one, from the ends of the old chains;
/// lookups try the old table, then the new one.
pub struct PerEntry {
    domain: Domain,
    /// The table at which lookups begin.
    current: AtomicPtr<PerEntryBuckets>,
    stripes: Stripes,
}

impl PerEntry {
    /// # Safety
    ///
    /// 1. The caller is in a section, holds a lock, or is the only thread that resizes, while the
    ///    reference is used.
    #[inline(always)]
    unsafe fn current(&self) -> &PerEntryBuckets {
        // Acquire: pairs with the Release in `publish`.
        // SAFETY: never null; freed a grace period after it was replaced, which happens under all
        // locks.
        unsafe { &*self.current.load(Acquire) }
    }

    /// Attaches a future table, which updates use from now on.
    ///
    /// # Safety
    ///
    /// 1. The caller is the only thread that resizes, `old` is the current table, and it has no
    ///    future table.
    unsafe fn attach(&self, old: &PerEntryBuckets, new: Box<PerEntryBuckets>) {
        let all = self.stripes.lock_all();
        all.set_for_buckets(old.log2.min(new.log2));
        // Release: pairs with the Acquire in `future`.
        old.future.store(Box::into_raw(new), Release);
    }

    /// Moves all entries of an old bucket.
    ///
    /// # Safety
    ///
    /// 1. The caller is the only thread that resizes, from `old` to `new`.
    unsafe fn move_bucket<'t>(
        &self,
        (old, new): (&'t PerEntryBuckets, &PerEntryBuckets),
        number: usize,
        chain: &mut Vec<(&'t Head, NonNull<ChainLink>)>,
    ) {
        let bucket = &old.buckets[number];
        let _locked = self.stripes.lock(|log2| low_bits(number as u64, log2));
        let mut word = bucket;
        while let Some(link) = Next::first_of(word).entry() {
            chain.push((word, link));
            // SAFETY: the stripe is locked until all entries are moved, and the recorded links are
            // not used after that.
            word = unsafe { &link.as_ref().next };
        }
        while let Some((before, link)) = chain.pop() {
            // It is the last entry of the chain: those behind it have been moved.
            // SAFETY: the stripe is locked; `link` is not used again after this.
            unsafe {
                move_entry(
                    before,
                    link,
                    Next::end_of(bucket),
                    new.bucket(link.as_ref().hash()),
                )
            };
        }
    }

    /// Moves all entries to the future table, publishes it, and frees the old one.
    ///
    /// # Safety
    ///
    /// 1. The caller is the only thread that resizes.
    unsafe fn move_on(&self) {
        // SAFETY: only the caller resizes (1), so the table stays; here and below.
        let old = unsafe { self.current() };
        let new = old.future().expect("it is attached");
        let mut chain = Vec::new();
        for number in 0..old.buckets.len() {
            // SAFETY: only the caller resizes (1).
            unsafe { self.move_bucket((old, new), number, &mut chain) };
        }
        // Relaxed: our own store.
        // SAFETY: ours, and every entry was moved (1).
        let old = unsafe { self.publish(old.future.load(Relaxed)) };
        if !mutant!("per_entry_no_wait") {
            self.domain.synchronize();
        }
        // SAFETY: made from a box; updates left it when all locks were taken, and readers have left
        // by now.
        let old = unsafe { Box::from_raw(old.as_ptr()) };
        // Relaxed: we have it alone. If a reader were still here, it would find nothing.
        old.future.store(ptr::null_mut(), Relaxed);
    }

    /// Publishes the new table. Returns the old one, to be freed when readers have left.
    ///
    /// # Safety
    ///
    /// 1. The caller is the only thread that resizes. `new` is the future table of the current one,
    ///    and all entries were moved to it.
    unsafe fn publish(&self, new: *mut PerEntryBuckets) -> NonNull<PerEntryBuckets> {
        let all = self.stripes.lock_all();
        // SAFETY: the future table lives as long as the current one (1).
        all.set_for_buckets(unsafe { (*new).log2 });
        // Relaxed: only the resizing thread, this one, changes it.
        let old = self.current.load(Relaxed);
        // Release: pairs with the Acquire in `current`: entries are seen where they were moved to.
        self.current.store(new, Release);
        NonNull::new(old).expect("there always is a table")
    }
}

/// Walks a bucket's chain without a lock; restarts when it has strayed.
///
/// # Safety
///
/// 1. The caller is in a section that outlives the result.
#[inline(always)]
unsafe fn walk(
    bucket: &Head,
    hash: u64,
    eq: &mut impl FnMut(NonNull<ChainLink>) -> bool,
) -> Option<NonNull<ChainLink>> {
    let end = Next::end_of(bucket);
    let mut backoff = Backoff::new();
    loop {
        let mut at = Next::first_of(bucket);
        while let Some(link) = at.entry() {
            // SAFETY: entries are freed a grace period after they were unlinked.
            let entry = unsafe { link.as_ref() };
            if entry.hash() == hash && eq(link) {
                return Some(link);
            }
            at = Next::load(&entry.next);
        }
        // Another bucket's marker: the walk has left the chain with an entry that was moved.
        if at == end {
            return None;
        }
        backoff.spin();
    }
}

// SAFETY: as for `Algorithm`, below.
unsafe impl Lookups for PerEntry {
    #[inline(always)]
    unsafe fn fetch_bucket(&self, section: &impl Section, hash: u64) {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller is in a section.
        hint::prefetch(unsafe { self.current() }.bucket(hash));
    }

    #[inline(always)]
    unsafe fn first(&self, section: &impl Section, hash: u64) -> *const ChainLink {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller is in a section.
        let bucket = unsafe { self.current() }.bucket(hash);
        let first = Next::first_of(bucket).entry();
        first.map_or(ptr::null(), |link| link.as_ptr().cast_const())
    }

    #[inline(always)]
    unsafe fn second(&self, section: &impl Section, hash: u64) -> *const ChainLink {
        // SAFETY: the caller is in a section.
        let first = unsafe { self.first(section, hash).as_ref() };
        let is_other = |link: &&ChainLink| link.hash() != hash;
        let next = first
            .filter(is_other)
            .and_then(|link| Next::load(&link.next).entry());
        next.map_or(ptr::null(), |link| link.as_ptr().cast_const())
    }

    #[inline(always)]
    unsafe fn look_up(
        &self,
        section: &impl Section,
        hash: u64,
        mut eq: impl FnMut(NonNull<ChainLink>) -> bool,
    ) -> Option<NonNull<ChainLink>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller's section; here and below.
        let mut table = unsafe { self.current() };
        if mutant!("per_entry_new_first")
            && let Some(new) = table.future()
        {
            // SAFETY: the caller is in a section.
            let found = unsafe { walk(new.bucket(hash), hash, &mut eq) };
            // SAFETY: the caller is in a section.
            return found.or_else(|| unsafe { walk(table.bucket(hash), hash, &mut eq) });
        }
        loop {
            // SAFETY: the caller is in a section.
            let found = unsafe { walk(table.bucket(hash), hash, &mut eq) };
            if found.is_some() || mutant!("per_entry_old_only") {
                return found;
            }
            // After the walk: a reader that misses an entry because of a move sees the table it was
            // moved to.
            table = table.future()?;
        }
    }
}

// SAFETY: see the header (1). A removed link is in no chain, and no link of a chain points to it
// (2).
unsafe impl Algorithm for PerEntry {
    const NAME: &'static str = "per-entry";

    type Lookups = Self;

    #[inline(always)]
    fn hold<R>(&self, act: impl FnOnce(&Self) -> R) -> R {
        act(self)
    }

    fn try_new(buckets: usize, domain: &Domain) -> Option<Self> {
        let log2 = log2_of(buckets).filter(|log2| *log2 <= MOST_LOG2)?;
        let table = PerEntryBuckets::try_new(log2)?;
        Some(Self {
            domain: domain.clone(),
            current: AtomicPtr::new(Box::into_raw(table)),
            stripes: Stripes::new(log2),
        })
    }

    unsafe fn insert(
        &self,
        section: &impl Section,
        link: NonNull<ChainLink>,
        mut eq: impl FnMut(NonNull<ChainLink>) -> bool,
    ) -> Result<(), NonNull<ChainLink>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller's link, which no other thread has yet.
        let new = unsafe { link.as_ref() };
        let hash = new.hash();
        let _locked = self.stripes.lock(|log2| low_bits(hash, log2));
        // SAFETY: a lock is held; here and below.
        let mut table = unsafe { self.current() };
        let bucket = loop {
            let bucket = table.bucket(hash);
            // SAFETY: a lock is held.
            if let Some(found) = unsafe { look(bucket, hash, &mut eq) }
                && !(mutant!("per_entry_inserts_blindly") && table.future().is_some())
            {
                return Err(found.link);
            }
            match table.future() {
                Some(newer) => table = newer,
                None => break bucket,
            }
        };
        // Relaxed: no other thread sees the entry before it is linked.
        new.next.store(Next::first_of(bucket).0, Relaxed);
        Next(link.as_ptr()).store(bucket);
        Ok(())
    }

    unsafe fn remove(
        &self,
        section: &impl Section,
        hash: u64,
        mut eq: impl FnMut(NonNull<ChainLink>) -> bool,
    ) -> Option<NonNull<ChainLink>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        let _locked = self.stripes.lock(|log2| low_bits(hash, log2));
        // SAFETY: a lock is held; here and below.
        let mut table = unsafe { self.current() };
        loop {
            // SAFETY: a lock is held.
            if let Some(found) = unsafe { look(table.bucket(hash), hash, &mut eq) } {
                found.next.store(found.word);
                return Some(found.link);
            }
            table = table.future()?;
        }
    }

    fn buckets(&self) -> usize {
        let _section = self.domain.pin();
        // SAFETY: we are in a section.
        1 << unsafe { self.current() }.log2
    }

    unsafe fn resize(&self, buckets: usize) -> Result<Resized, ResizeError> {
        let to = log2_of(buckets).filter(|log2| *log2 <= MOST_LOG2);
        let to = to.ok_or(ResizeError::NoMemory)?;
        if self.domain.is_pinned() {
            return Err(ResizeError::Pinned);
        }
        // SAFETY: only one thread resizes; here and below.
        let old = unsafe { self.current() };
        if old.log2 == to {
            return Ok(Resized::default());
        }
        let new = PerEntryBuckets::try_new(to).ok_or(ResizeError::NoMemory)?;
        // SAFETY: ours, and the last resize has freed the table that had a future table (1, both).
        unsafe {
            self.attach(old, new);
            self.move_on();
        }
        Ok(Resized {
            passes: 1,
            waits: 1,
        })
    }

    fn take_all(&mut self, mut each: impl FnMut(NonNull<ChainLink>)) {
        // SAFETY: we have the table alone, and no resize is under way.
        let table = unsafe { self.current() };
        for bucket in &*table.buckets {
            let mut at = Next::first_of(bucket);
            // Relaxed: we have the table alone.
            bucket.store(ptr::null_mut(), Relaxed);
            while let Some(link) = at.entry() {
                // SAFETY: the entry was not freed; `each` may free it.
                at = Next::load(unsafe { &link.as_ref().next });
                each(link);
            }
        }
    }
}

impl Drop for PerEntry {
    fn drop(&mut self) {
        // Relaxed: we have it alone.
        // SAFETY: made from a box, and the only pointer to it; no resize is under way.
        drop(unsafe { Box::from_raw(self.current.load(Relaxed)) });
    }
}

#[cfg(test)]
mod models;
#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod strays;
