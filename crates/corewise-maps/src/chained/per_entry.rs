//! Entries moved one by one, as Linux's rhashtable does it since it gave unzipping up.
//!
//! The algorithm: `lib/rhashtable.c` and `include/linux/rhashtable.h` of Linux since 4.1 (2015), and the markers
//! as they are since 2018. Facts from there, code from here.
//!
//! # Layout
//!
//! ```text
//! current ─▶ old table: [0] ─▶ a ─▶ b ─▶ end of [0]      [1] ─▶ (nothing)
//!            │ future
//!            ▼
//!            new table: [0] (nothing)   [1] ─▶ c ─▶ end of [1]   [2] ...   [3] ─▶ d ─▶ e ─▶ end of [3]
//! ```
//!
//! A chain does not end with null but with a *nulls marker*, an odd address that tells which bucket it is the
//! end of. (A bucket that holds null is empty: its marker goes without saying, so new arrays are zeroed
//! memory.) While a table is being replaced it leads to the next one, its *future table*.
//!
//! # Moving an entry
//!
//! The *last* entry of an old chain: its next word is led to the first entry of its new bucket, the new bucket
//! to it, and then the word before it in the old chain to the old bucket's marker. Between the last two it is
//! in both chains. So an entry that is there can be found in the old table or, if it is not there any more,
//! in the new one: lookups try them in this order.
//!
//! A reader that stands on an entry while it is moved walks on in another chain, and comes to another bucket's
//! marker. It starts again at its bucket.
//!
//! # Operations
//!
//! *A lookup* walks the bucket's chain, again if it ends with a wrong marker, then goes on to the future table
//! if there is one.
//!
//! *An update* locks the stripe of the key's bucket, of the smaller table if there are two, and looks for the
//! key in both. New entries enter the newer one, so old chains become only shorter.
//!
//! *A resize* makes the new table its future under all locks (no walk: a moment), moves the entries of one old
//! bucket after the other, with its stripe locked, publishes the new table under all locks, waits for
//! readers, and frees the old one. By any factor at once.
//!
//! # What the marker is for
//!
//! Where entries are moved from the end it is not what keeps lookups from missing. A reader strays only from
//! an entry that was moved, and then all that was behind it has been moved before: the reader has passed
//! everything that was left in the old chain, and it looks in the new table next. If entries were moved from
//! the front, as in tables that let their users do it, the marker is what is needed. Either is enough, and
//! without both keys are missed: the test `from_the_end_or_with_a_marker` shows all four. Linux has checked
//! the whole marker since 2018, for users who move objects between *tables*. It is checked here because that is
//! the scheme, and its cost is part of what is compared.
//!
//! # Guarantees
//!
//! 1. *Lookups* are not wait-free as the relativistic ones are: what a resizer does can send a reader back. But
//!    each time that happens an entry was moved on which it stood. An entry of the old bucket is moved once,
//!    and no second resize begins to move entries until readers of the first one have left; so it is at
//!    most n + 1 walks over an old bucket of n entries, stray ways into new chains included, and one over
//!    the new one. (In Linux the next resize need not wait for readers.) Beside no resize: one walk.
//! 2. *Updates* are linearizable. They lock one of up to 1,024 stripes of buckets, in which keys are compared
//!    (`K::eq` must not use the map). Nobody waits for readers with a lock in hand.
//! 3. *A resize* is one walk and one wait for readers. An update waits at most for the entries of one old
//!    bucket to be moved, and for the moments in which all locks are taken.
//! 4. Each move writes three words, in three cache lines; of the paper's algorithms only cuts write.
//!
//! # Why it is linearizable
//!
//! Insertions and removals of a key take effect under its stripe's lock, with the store that links or unlinks.
//! A lookup that finds an entry: it was in a chain when the lookup began, or was linked since; its moment is
//! before the removal, if there was one. A lookup that finds nothing: suppose its key was there all the time.
//! Then the same entry N was. As long as N is not linked to the new table, it is in the old chain, and so is
//! all before it, as entries are moved from the end: a walk over this chain comes to N, also from removed
//! entries, whose next words still lead on. So when the reader has been to the end of its old bucket, N is in
//! the new table; the reader has seen what came after (the stores are Release, the loads Acquire), so it sees
//! the future table, and N in it.
//!
//! # Differences to Linux
//!
//! 1. The entries of an old bucket are noted in one walk and then moved from the end; there each move walks
//!    over the chain for its last entry.
//! 2. Locks are stripes instead of a bit in each bucket; old and new bucket share one.
//! 3. The resize is done by its caller instead of a work item, by any factor, and one at a time: there a
//!    future table may have a future table.
//! 4. Updates find their key in the older table first and then in the newer, under one lock.
//!
//! # Limits
//!
//! Buckets: memory, 8 bytes for each; those of both tables until readers have left the old one. A resizer
//! notes as many addresses as the longest chain has entries.

use std::ptr::{self, NonNull};

use corewise_atomic::Slots;
use corewise_atomic::hint;
use corewise_atomic::mutant;
use corewise_atomic::sync::atomic::AtomicPtr;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_rcu::{Domain, Section};

use super::Resized;
use super::algorithm::{Algorithm, Head, Link, Lookups, Stripes, log2_of};
use crate::relativistic::ResizeError;

/// More than there can be.
const MOST_LOG2: u32 = if usize::BITS < 64 { 24 } else { 40 };

/// What a word leads to: an entry, or the end of a bucket, as the address of its word and one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Next(*mut Link);

const _: () = assert!(align_of::<Link>() >= 2 && align_of::<Head>() >= 2);

impl Next {
    /// The end of a bucket: its nulls marker.
    fn end_of(bucket: &Head) -> Self {
        let address = ptr::from_ref(bucket).addr() | 1;
        Self(ptr::without_provenance_mut(address))
    }

    /// What a bucket leads to.
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
        // Acquire: pairs with the Release in `store`: the entry is seen as it was made, and all that was done
        // before it came to be linked here.
        Self(word.load(Acquire))
    }

    /// Makes a word lead there, for readers too.
    fn store(self, word: &Head) {
        // Release: pairs with the Acquire in `load`.
        word.store(self.0, Release);
        #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
        strays::after_store();
    }

    #[inline(always)]
    fn entry(self) -> Option<NonNull<Link>> {
        match self.0.addr() & 1 {
            0 => NonNull::new(self.0),
            _ => None,
        }
    }
}

/// As many buckets as there are words.
struct Table {
    log2: u32,
    buckets: Slots<Head>,
    /// The table that entries are moved to, or null.
    future: AtomicPtr<Table>,
}

impl Table {
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

    /// The table that entries are moved to.
    #[inline(always)]
    fn future(&self) -> Option<&Self> {
        // Acquire: pairs with the Release in `attach`: its buckets are seen. (Who has seen that an entry is not
        // here any more sees that there is such a table: see `move_entry`.)
        // SAFETY: null or a table, which is freed a grace period after the one behind it was published; so
        // not before this one.
        unsafe { self.future.load(Acquire).as_ref() }
    }
}

#[inline(always)]
fn low_bits(hash: u64, log2: u32) -> usize {
    hash as usize & ((1 << log2) - 1)
}

/// An entry in its chain: the word that leads to it, and what it leads to.
struct Found<'t> {
    word: &'t Head,
    link: NonNull<Link>,
    next: Next,
}

/// Looks through the chain of a bucket whose stripe is locked.
///
/// # Safety
///
/// 1. The bucket's stripe is locked for as long as what is found is used.
unsafe fn look<'t>(
    bucket: &'t Head,
    hash: u64,
    is_it: &mut impl FnMut(NonNull<Link>) -> bool,
) -> Option<Found<'t>> {
    let (mut word, mut at) = (bucket, Next::first_of(bucket));
    while let Some(link) = at.entry() {
        // SAFETY: entries are freed after they were unlinked, under the lock.
        let entry = unsafe { link.as_ref() };
        let next = Next::load(&entry.next);
        if entry.hash() == hash && is_it(link) {
            return Some(Found { word, link, next });
        }
        (word, at) = (&entry.next, next);
    }
    None
}

/// Moves an entry that `before` leads to, and that leads to `behind`: to the front of bucket `new`.
///
/// # Safety
///
/// 1. The stripe of both buckets is locked.
unsafe fn move_entry(before: &Head, entry: NonNull<Link>, behind: Next, new: &Head) {
    // SAFETY: under the lock it is not freed.
    let next = unsafe { &entry.as_ref().next };
    if mutant!("per_entry_unlinks_first") {
        behind.store(before);
    }
    // Readers that stand on the entry go on in the new chain from now on.
    Next::first_of(new).store(next);
    Next(entry.as_ptr()).store(new);
    // A reader that does not see the entry here any more has seen all of this.
    behind.store(before);
}

/// The table of rhashtable: a resize moves entry by entry, from the ends of the old chains; lookups try the old
/// table, then the new one.
pub struct PerEntry {
    domain: Domain,
    /// The table that lookups begin with.
    current: AtomicPtr<Table>,
    stripes: Stripes,
}

impl PerEntry {
    /// # Safety
    ///
    /// 1. The caller is in a section, has a lock, or is the only one to resize, while the reference is used.
    #[inline(always)]
    unsafe fn current(&self) -> &Table {
        // Acquire: pairs with the Release in `publish`.
        // SAFETY: never null; freed a grace period after it was replaced, which happens under all locks.
        unsafe { &*self.current.load(Acquire) }
    }

    /// Gives the table a future one, which updates use from now on.
    fn attach(&self, old: &Table, new: Box<Table>) {
        let all = self.stripes.lock_all();
        all.suit(old.log2.min(new.log2));
        // Release: pairs with the Acquire in `future`.
        old.future.store(Box::into_raw(new), Release);
    }

    /// Moves all entries of an old bucket.
    ///
    /// # Safety
    ///
    /// 1. The caller is the one to resize, from `old` to `new`.
    unsafe fn move_bucket<'t>(
        &self,
        (old, new): (&'t Table, &Table),
        number: usize,
        chain: &mut Vec<(&'t Head, NonNull<Link>)>,
    ) {
        let bucket = &old.buckets[number];
        let _locked = self.stripes.lock(|log2| low_bits(number as u64, log2));
        let mut word = bucket;
        while let Some(link) = Next::first_of(word).entry() {
            chain.push((word, link));
            // SAFETY: the stripe is locked until all is moved, and what is noted is not used after that.
            word = unsafe { &link.as_ref().next };
        }
        while let Some((before, link)) = chain.pop() {
            // It is the last one: those behind it have been moved.
            // SAFETY: as above.
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

    /// Moves everything to the future table, sends lookups there, and frees the old one.
    ///
    /// # Safety
    ///
    /// 1. The caller is the one to resize.
    unsafe fn move_on(&self) {
        // SAFETY: 1; here and below.
        let old = unsafe { self.current() };
        let new = old.future().expect("it is attached");
        let mut chain = Vec::new();
        for number in 0..old.buckets.len() {
            // SAFETY: as above.
            unsafe { self.move_bucket((old, new), number, &mut chain) };
        }
        // Relaxed: our own store.
        let old = self.publish(old.future.load(Relaxed));
        if !mutant!("per_entry_no_wait") {
            self.domain.synchronize();
        }
        // SAFETY: made from a box; updates left it when all locks were taken, and readers by now.
        let old = unsafe { Box::from_raw(old.as_ptr()) };
        // Relaxed: it is ours alone. Whoever were still here would find nothing.
        old.future.store(ptr::null_mut(), Relaxed);
    }

    /// Sends lookups to the new table, all entries being there; the old one, to be freed when readers left.
    fn publish(&self, new: *mut Table) -> NonNull<Table> {
        let all = self.stripes.lock_all();
        // SAFETY: the caller's, who resizes.
        all.suit(unsafe { (*new).log2 });
        // Relaxed: only who resizes changes it, and that is us.
        let old = self.current.load(Relaxed);
        // Release: pairs with the Acquire in `current`: entries are where they were moved to.
        self.current.store(new, Release);
        NonNull::new(old).expect("there always is a table")
    }
}

/// Walks a bucket's chain without a lock; starts again when it has strayed.
///
/// # Safety
///
/// 1. The caller is in a section that lasts.
#[inline(always)]
unsafe fn walk(
    bucket: &Head,
    hash: u64,
    is_it: &mut impl FnMut(NonNull<Link>) -> bool,
) -> Option<NonNull<Link>> {
    let end = Next::end_of(bucket);
    loop {
        let mut at = Next::first_of(bucket);
        while let Some(link) = at.entry() {
            // SAFETY: entries are freed a grace period after they were unlinked.
            let entry = unsafe { link.as_ref() };
            if entry.hash() == hash && is_it(link) {
                return Some(link);
            }
            at = Next::load(&entry.next);
        }
        // Another bucket's marker: the walk has left the chain with an entry that was moved.
        if at == end {
            return None;
        }
        hint::spin_loop();
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
    unsafe fn first(&self, section: &impl Section, hash: u64) -> *const Link {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: as above.
        let bucket = unsafe { self.current() }.bucket(hash);
        let first = Next::first_of(bucket).entry();
        first.map_or(ptr::null(), |link| link.as_ptr().cast_const())
    }

    #[inline(always)]
    unsafe fn second(&self, section: &impl Section, hash: u64) -> *const Link {
        // SAFETY: the caller is in a section.
        let first = unsafe { self.first(section, hash).as_ref() };
        let is_other = |link: &&Link| link.hash() != hash;
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
        mut is_it: impl FnMut(NonNull<Link>) -> bool,
    ) -> Option<NonNull<Link>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller's section; here and below.
        let mut table = unsafe { self.current() };
        if mutant!("per_entry_new_first")
            && let Some(new) = table.future()
        {
            // SAFETY: as above.
            let found = unsafe { walk(new.bucket(hash), hash, &mut is_it) };
            // SAFETY: as above.
            return found.or_else(|| unsafe { walk(table.bucket(hash), hash, &mut is_it) });
        }
        loop {
            // SAFETY: as above.
            let found = unsafe { walk(table.bucket(hash), hash, &mut is_it) };
            if found.is_some() || mutant!("per_entry_old_only") {
                return found;
            }
            // After the walk: who misses an entry because it was moved sees where to.
            table = table.future()?;
        }
    }
}

// SAFETY: 1: see the header. 2: a removed link is in no chain, and no link of a chain leads to it.
unsafe impl Algorithm for PerEntry {
    const NAME: &'static str = "per-entry";

    type Lookups = Self;

    #[inline(always)]
    fn hold<R>(&self, act: impl FnOnce(&Self) -> R) -> R {
        act(self)
    }

    fn try_new(buckets: usize, domain: &Domain) -> Option<Self> {
        let log2 = log2_of(buckets).filter(|log2| *log2 <= MOST_LOG2)?;
        let table = Table::try_new(log2)?;
        Some(Self {
            domain: domain.clone(),
            current: AtomicPtr::new(Box::into_raw(table)),
            stripes: Stripes::new(log2),
        })
    }

    unsafe fn insert(
        &self,
        section: &impl Section,
        link: NonNull<Link>,
        mut is_it: impl FnMut(NonNull<Link>) -> bool,
    ) -> Result<(), NonNull<Link>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller's link, which nobody else has yet.
        let new = unsafe { link.as_ref() };
        let hash = new.hash();
        let _locked = self.stripes.lock(|log2| low_bits(hash, log2));
        // SAFETY: a lock is held; here and below.
        let mut table = unsafe { self.current() };
        let bucket = loop {
            let bucket = table.bucket(hash);
            // SAFETY: as above.
            if let Some(found) = unsafe { look(bucket, hash, &mut is_it) }
                && !(mutant!("per_entry_inserts_blindly") && table.future().is_some())
            {
                return Err(found.link);
            }
            match table.future() {
                Some(newer) => table = newer,
                None => break bucket,
            }
        };
        // Relaxed: nobody sees the entry before it is linked.
        new.next.store(Next::first_of(bucket).0, Relaxed);
        Next(link.as_ptr()).store(bucket);
        Ok(())
    }

    unsafe fn remove(
        &self,
        section: &impl Section,
        hash: u64,
        mut is_it: impl FnMut(NonNull<Link>) -> bool,
    ) -> Option<NonNull<Link>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        let _locked = self.stripes.lock(|log2| low_bits(hash, log2));
        // SAFETY: a lock is held; here and below.
        let mut table = unsafe { self.current() };
        loop {
            // SAFETY: as above.
            if let Some(found) = unsafe { look(table.bucket(hash), hash, &mut is_it) } {
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

    fn resize(&self, buckets: usize) -> Result<Resized, ResizeError> {
        let to = log2_of(buckets).filter(|log2| *log2 <= MOST_LOG2);
        let to = to.ok_or(ResizeError::NoMemory)?;
        if self.domain.is_pinned() {
            return Err(ResizeError::Pinned);
        }
        // SAFETY: only one resizes; here and below.
        let old = unsafe { self.current() };
        if old.log2 == to {
            return Ok(Resized::default());
        }
        self.attach(old, Table::try_new(to).ok_or(ResizeError::NoMemory)?);
        // SAFETY: as above.
        unsafe { self.move_on() };
        Ok(Resized {
            passes: 1,
            waits: 1,
        })
    }

    fn take_all(&mut self, mut each: impl FnMut(NonNull<Link>)) {
        // SAFETY: the table is ours alone, and no resize is under way.
        let table = unsafe { self.current() };
        for bucket in &*table.buckets {
            let mut at = Next::first_of(bucket);
            // Relaxed: the table is ours alone.
            bucket.store(ptr::null_mut(), Relaxed);
            while let Some(link) = at.entry() {
                // SAFETY: nobody has freed it; `each` may.
                at = Next::load(unsafe { &link.as_ref().next });
                each(link);
            }
        }
    }
}

impl Drop for PerEntry {
    fn drop(&mut self) {
        // Relaxed: it is ours alone.
        // SAFETY: made from a box, and the only pointer to it; no resize is under way.
        drop(unsafe { Box::from_raw(self.current.load(Relaxed)) });
    }
}

#[cfg(test)]
mod models;
#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod strays;
