//! The relativistic split-ordered list that §2 of the paper announces as future work: lock-free updates,
//! wait-free lookups, and a table that doubles by one store.
//!
//! Papers: Shalev and Shavit, *Split-Ordered Lists: Lock-Free Extensible Hash Tables*, JACM 53 (2006); the
//! list is that of Michael, *High Performance Dynamic Lock-Free Hash Tables and List-Based Sets*, SPAA 2002;
//! what RCU is good for there says Triplett, McKenney, Walpole, USENIX ATC 2011, §2.
//!
//! # Layout
//!
//! All entries are in one list, sorted by their hashes with the bits reversed. So the entries of a bucket
//! follow each other, whatever power of two the number of buckets is, and a bucket that is divided is divided
//! at one place. A bucket is a *dummy* node in the list, before the entries that are its own; the dummy of
//! bucket b comes where the hash b would come, and before entries that have that hash.
//!
//! ```text
//! directory ─▶ segment 0: dummy 0
//!           ─▶ segment 1: dummy 1
//!           ─▶ segment 2: dummies 2, 3       segment s > 0: dummies 2^(s-1) to 2^s - 1
//!
//! [0] ─▶ (hash ..000) ─▶ (hash ..100) ─▶ [2] ─▶ (hash ..010) ─▶ [1] ─▶ (hash ..101) ─▶ [3] ─▶ (hash ..111) ─▶ end
//!
//! dummy: 16 bytes                      entry: a `Link`
//!   next   as in an entry                next   address | to a dummy or the end (bit 1) | mark (bit 0)
//!   state  number | ready | claimed      hash
//! ```
//!
//! The mark is in the word of the node that was removed, not in the one that leads to it. Segments never
//! move, so nobody waits for readers in order to have more buckets.
//!
//! # Operations
//!
//! *A lookup* starts at its bucket's dummy, or, if that is not ready, at the nearest ancestor's that is (the
//! parent of a bucket is its number without the highest bit): at most log2 of the buckets away, and bucket 0
//! is always ready. It follows next words past dummies and marked nodes alike. It helps nobody and never
//! starts again: a removed node is freed a grace period after it was unlinked, and its next word does not
//! change any more, so the way on is always there.
//!
//! *An insertion* looks for the first node that is not before the entries of its hash, and on the way unlinks
//! what is marked. It searches these entries for the key, and puts the new one in front of them: one
//! compare-and-swap of the word before them.
//!
//! *A removal* marks the entry's next word, so that no insertion can change it, then leads the word before it
//! to the next one. If that word has changed it walks past all entries of the hash once more, which unlinks
//! them if they are marked. So whoever has marked an entry knows that it is unlinked when it returns; until
//! then others may have unlinked it, but nobody else frees it.
//!
//! *A bucket* is made ready by the first update that comes to it, or by whoever resizes, after its ancestors.
//! Who claims it puts the dummy into the list; the others do not wait for that but start from an ancestor.
//!
//! *A resize to more buckets* allocates segments and stores the new number. After that it makes the new
//! buckets ready, which nobody needs to wait for.
//!
//! *A resize to fewer* stores the new number, waits for readers, removes the dummies of the buckets that are
//! no more (as entries are removed), waits for readers again, and frees their segments. The first wait is for
//! those who know the old number only: after it nobody starts from these dummies, and nobody makes one ready.
//!
//! # Guarantees
//!
//! 1. *Lookups* are wait-free: as many steps as there are nodes before the entry's place in the bucket, those
//!    included that are inserted there while it walks. (Before the place only: each step comes to a greater
//!    reversed hash, or among equal ones to an older entry.)
//! 2. *Updates* are lock-free: an update starts again only if another one, or a resizer, has changed the list.
//!    No lock is held, also not while keys are compared. A thread that stops while it makes a bucket ready
//!    makes that bucket's operations longer, by the entries of its parent that come before, and no more.
//! 3. *Linearizable*; see below.
//! 4. *A resize to more* waits for nobody; to fewer, twice for readers. Lookups and updates go on in both.
//! 5. A removed link is met by nobody who enters a section after the removal has returned.
//!
//! # Memory
//!
//! 16 bytes for each bucket. While a table becomes smaller, and in all that time only, those of the larger
//! one: dummies that stayed would be in the way of every lookup, 2^k of them for each bucket of a table that
//! has become 2^k times smaller.
//!
//! # Why it is linearizable
//!
//! An entry is *present* from the compare-and-swap that leads to it until its next word is marked; the list
//! at some moment is what bucket 0's dummy leads to. Only an unmarked node's word can be changed, so what an
//! unmarked node of the list leads to is in the list, and a node that was unlinked never comes back.
//!
//! 1. *An insertion* takes effect with its compare-and-swap of the word before the entries of its hash. The
//!    word has not changed since these were searched (were it changed and changed back, what came between has
//!    been removed again), and new ones of this hash are put there and nowhere else. So no entry of this key
//!    is present at the moment before. An insertion that finds the key, when it loads that entry's next word
//!    and sees no mark.
//! 2. *A removal* takes effect with the mark. One that finds nothing, as a lookup does. One that finds the
//!    entry but sees another's mark come first: right after that mark.
//! 3. *A lookup that finds* an entry takes effect when it loads its next word, without a mark.
//! 4. *A lookup that finds nothing*, or an entry with a mark: at some moment while it ran its key was not
//!    present. Suppose it always was. Then it was the same entry N all the time, since by 1 there is a moment
//!    without the key between two of them. Whatever node X the lookup stands on was in the list before N at
//!    some moment since the lookup began: its dummy was; and if X was, then what X leads to is N or was, for
//!    either X is still in the list, or X was marked, and its next word has not changed since X was in the
//!    list for the last time. So it comes to N. And it does not stop before: nodes before N are not of
//!    greater rank; and an entry of the same key before N was inserted after N, while N was present, which
//!    contradicts 1.
//!
//! So one need not look on behind a marked entry of the key: it is the newest that the lookup could have met,
//! and a still newer one is in front of it.
//!
//! # Differences to the papers
//!
//! 1. Michael's lookups unlink what is marked, and start again when they lose; these do neither.
//! 2. Equal hashes are not equal keys: a run of entries of one hash is searched whole, and insertions happen
//!    at its front. (At its end a lookup could be kept walking, and two insertions of a key would have to
//!    meet there.)
//! 3. Dummies are in the buckets, which saves a pointer and a cache miss. Shalev and Shavit allocate them.
//!    Therefore one thread claims a bucket; with dummies of their own, several could try.
//! 4. Dummies are told apart by the word that leads to them, so hashes have all of their bits.
//! 5. Removed dummies: Shalev and Shavit's tables do not shrink.
//! 6. Segments are of doubling lengths instead of one length, so that the directory is small.

mod list;
#[cfg(test)]
mod models;

use std::ptr::{self, NonNull};

use corewise_atomic::lock::Mutex;
use corewise_atomic::mutant;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicU32};
use corewise_atomic::{Slots, hint};
use corewise_rcu::{Domain, Section};

use self::list::{Dummy, Place, Target, Word, mark, seek, seek_entry, walk};
use super::Resized;
use super::algorithm::{Algorithm, Head, Link, Lookups, log2_of};
use crate::relativistic::ResizeError;

/// The most buckets.
const MOST_LOG2: u32 = if cfg!(any(corewise_loom, corewise_shuttle)) {
    3
} else if usize::BITS < 64 {
    24
} else {
    40
};
/// Buckets that a resizer goes through in one section.
const SECTION_BUCKETS: usize = 64;

/// The relativistic split-ordered list (§2): lock-free updates, wait-free lookups. Its buckets double by one
/// store and without a wait. 16 bytes a bucket.
pub struct SplitOrdered {
    domain: Domain,
    /// The number of buckets. Changed by who resizes.
    log2: AtomicU32,
    /// Where segments begin: two words a bucket.
    directory: [AtomicPtr<Head>; MOST_LOG2 as usize + 1],
    /// Their owners, in the same order. For who resizes.
    segments: Mutex<Vec<Slots<Head>>>,
}

/// The first bucket of a segment.
#[inline(always)]
fn first_of(segment: u32) -> usize {
    1 << segment >> 1
}

/// The bucket that this one was divided from. Not for bucket 0.
fn parent(bucket: usize) -> usize {
    bucket & !(1 << bucket.ilog2())
}

#[inline(always)]
fn bucket_of(hash: u64, log2: u32) -> usize {
    hash as usize & ((1 << log2) - 1)
}

impl SplitOrdered {
    /// The dummy of a bucket.
    ///
    /// # Safety
    ///
    /// 1. `bucket` is below a number of buckets that the caller loaded in a section that lasts, or the caller is
    ///    the one to resize and has not freed its segment.
    #[inline(always)]
    unsafe fn dummy(&self, bucket: usize) -> &Dummy {
        let segment = usize::BITS - bucket.leading_zeros();
        debug_assert!(segment <= MOST_LOG2);
        // Relaxed: it was stored before the number of buckets, with Release, which was loaded with Acquire.
        // SAFETY: a bucket that there was or is, so below the most there can be.
        let base = unsafe { self.directory.get_unchecked(segment as usize) }.load(Relaxed);
        debug_assert!(!base.is_null());
        // SAFETY: the segment has two words for each bucket from its first on, and is freed a grace period after
        // the number of buckets has become too small for it.
        unsafe { &*base.add(2 * (bucket - first_of(segment))).cast::<Dummy>() }
    }

    #[inline(always)]
    fn log2(&self) -> u32 {
        // Acquire: pairs with the Release in `set_log2`.
        self.log2.load(Acquire)
    }

    fn set_log2(&self, log2: u32) {
        // Release: pairs with the Acquire in `log2`: segments are in the directory, and zeroed.
        self.log2.store(log2, Release);
    }

    /// The dummy of a bucket, or of its nearest ancestor that is ready: at most log2 of the buckets away.
    ///
    /// # Safety
    ///
    /// 1. As for [`SplitOrdered::dummy`].
    #[inline(always)]
    unsafe fn nearest(&self, mut bucket: usize) -> &Dummy {
        loop {
            // SAFETY: the caller's; an ancestor's number is less.
            let dummy = unsafe { self.dummy(bucket) };
            // Bucket 0 is ready.
            if dummy.is_ready() || mutant!("split_no_ancestor") {
                return dummy;
            }
            bucket = parent(bucket);
        }
    }

    /// Where an update starts: its bucket, which is made ready if nobody else is at it.
    ///
    /// # Safety
    ///
    /// 1. The caller is in a section that lasts for `'s`.
    unsafe fn ready(&self, bucket: usize) -> &Dummy {
        // SAFETY: the caller has loaded the number of buckets in its section; so are all ancestors there.
        let dummy = unsafe { self.dummy(bucket) };
        if dummy.is_ready() {
            return dummy;
        }
        // Bucket 0 is ready. From there, ancestor by ancestor: each has one bit more.
        // SAFETY: as above; here and below.
        let (mut at, mut from) = (0, unsafe { self.dummy(0) });
        while at != bucket {
            let rest = bucket ^ at;
            at |= rest & rest.wrapping_neg();
            // SAFETY: as above.
            let child = unsafe { self.dummy(at) };
            // SAFETY: as above; `from` is ready.
            if child.is_ready() || unsafe { Self::link(child, at, from) } {
                from = child;
            }
        }
        from
    }

    /// Puts a dummy into the list, unless another is at it; whether it is ready.
    ///
    /// # Safety
    ///
    /// 1. As for [`SplitOrdered::ready`].
    /// 2. `from` is an ancestor's that is ready, and is not removed in the caller's section.
    unsafe fn link(dummy: &Dummy, number: usize, from: &Dummy) -> bool {
        if !dummy.claim(number) {
            return dummy.is_ready();
        }
        if mutant!("split_ready_early") {
            // SAFETY: the caller's section.
            if let Ok(cursor) = unsafe { seek(from, number as u64, Place::Dummy) } {
                dummy.next().store(cursor.to.0, Relaxed);
                dummy.set_ready(number);
            }
        }
        loop {
            // SAFETY: the caller's section.
            let place = unsafe { seek(from, number as u64, Place::Dummy) };
            let Ok(mut cursor) = place else { continue };
            // Relaxed: nobody sees the dummy before `lead`.
            dummy.next().store(cursor.to.0, Relaxed);
            if cursor.lead(Word::of_dummy(dummy)).is_ok() {
                break;
            }
        }
        dummy.set_ready(number);
        true
    }

    /// Removes a dummy, if it was ever made ready.
    ///
    /// # Safety
    ///
    /// 1. The caller resizes, and is in a section.
    /// 2. Nobody starts from this dummy any more, or makes it ready. Its ancestors are not removed yet.
    unsafe fn unlink(&self, bucket: usize) {
        // SAFETY: the segment is freed by the caller.
        let dummy = unsafe { self.dummy(bucket) };
        if !dummy.is_ready() {
            return;
        }
        mark(dummy.next(), Word::load(dummy.next()));
        // SAFETY: as above.
        let from = unsafe { self.nearest(parent(bucket)) };
        // It is right behind this place, if nobody has unlinked it already.
        // SAFETY: the caller's section.
        while unsafe { seek(from, bucket as u64, Place::Dummy) }.is_err() {
            hint::spin_loop();
        }
    }
}

// ---- resize

impl SplitOrdered {
    fn add_segments(&self, from: u32, to: u32) -> Result<(), ResizeError> {
        let mut segments = self.segments.lock();
        for segment in from..=to {
            let buckets = (1 << segment) - first_of(segment);
            let Some(words) = Slots::<Head>::try_zeroed(2 * buckets) else {
                drop(segments);
                self.free_segments(from);
                return Err(ResizeError::NoMemory);
            };
            // Relaxed: the number of buckets publishes it.
            self.directory[segment as usize].store(words.as_ptr().cast_mut(), Relaxed);
            segments.push(words);
        }
        Ok(())
    }

    /// Frees the segments from this one on. Nobody is in them.
    fn free_segments(&self, from: u32) {
        let mut segments = self.segments.lock();
        for place in &self.directory[from as usize..segments.len()] {
            // Relaxed: nobody looks there, as the number of buckets says.
            place.store(ptr::null_mut(), Relaxed);
        }
        let freed = segments.split_off(from as usize);
        drop(segments);
        if cfg!(debug_assertions) {
            for words in freed.iter().flat_map(|segment| segment.as_chunks().0) {
                let [next, state]: &[Head; 2] = words;
                let used = !state.load(Relaxed).is_null();
                assert!(
                    !used || Word(next.load(Relaxed)).is_marked(),
                    "a dummy of a bucket that is no more is in the list"
                );
                // Whoever is still here fails.
                next.store(ptr::null_mut(), Relaxed);
            }
        }
    }

    /// Calls `each` with buckets, in a section that is left now and then.
    fn in_sections(&self, mut buckets: impl Iterator<Item = usize>, mut each: impl FnMut(usize)) {
        let mut more = true;
        while more {
            let _section = self.domain.pin();
            let mut some = buckets.by_ref().take(SECTION_BUCKETS).peekable();
            more = some.peek().is_some();
            some.for_each(&mut each);
        }
    }

    fn expand(&self, from: u32, to: u32) -> Result<Resized, ResizeError> {
        self.add_segments(from + 1, to)?;
        self.set_log2(to);
        self.in_sections(1 << from..1 << to, |bucket| {
            // SAFETY: in a section; there are so many buckets until we change that.
            unsafe { self.ready(bucket) };
        });
        Ok(Resized {
            passes: 1,
            waits: 0,
        })
    }

    fn shrink(&self, from: u32, to: u32) -> Resized {
        self.set_log2(to);
        self.remove_buckets(from, to);
        Resized {
            passes: 1,
            waits: 2,
        }
    }

    /// Removes the buckets that nobody is to use any more, and frees them.
    fn remove_buckets(&self, from: u32, to: u32) {
        if !mutant!("split_no_wait_before_dummies") {
            self.domain.synchronize();
        }
        // The last first: a bucket's parent comes before it.
        self.in_sections((1 << to..1 << from).rev(), |bucket| {
            // SAFETY: in a section; whoever knew of the bucket has left, as we have waited.
            unsafe { self.unlink(bucket) };
        });
        if !mutant!("split_no_wait_before_free") {
            self.domain.synchronize();
        }
        self.free_segments(to + 1);
    }
}

// SAFETY: as for `Algorithm`, below.
unsafe impl Lookups for SplitOrdered {
    #[inline(always)]
    unsafe fn fetch_bucket(&self, section: &impl Section, hash: u64) {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller is in a section.
        hint::prefetch(unsafe { self.dummy(bucket_of(hash, self.log2())) });
    }

    #[inline(always)]
    unsafe fn first(&self, section: &impl Section, hash: u64) -> *const Link {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: as above.
        let start = unsafe { self.nearest(bucket_of(hash, self.log2())) };
        // An entry, or the next bucket.
        Word::load(start.next()).address()
    }

    #[inline(always)]
    unsafe fn second(&self, _: &impl Section, _: u64) -> *const Link {
        // The first may be a bucket.
        ptr::null()
    }

    #[inline(always)]
    unsafe fn look_up(
        &self,
        section: &impl Section,
        hash: u64,
        is_it: impl FnMut(NonNull<Link>) -> bool,
    ) -> Option<NonNull<Link>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller's section.
        let start = unsafe { self.nearest(bucket_of(hash, self.log2())) };
        // SAFETY: as above.
        unsafe { walk(Word::load(start.next()), hash, is_it) }
    }
}

// SAFETY: 1: see the header; what is returned was seen in the list without a mark, or was marked by the caller.
// 2: `remove` returns when the link is not in the list any more, and a reader meets what was in the list since
// its section began.
unsafe impl Algorithm for SplitOrdered {
    const NAME: &'static str = "split-ordered";

    type Lookups = Self;

    #[inline(always)]
    fn hold<R>(&self, act: impl FnOnce(&Self) -> R) -> R {
        act(self)
    }

    fn try_new(buckets: usize, domain: &Domain) -> Option<Self> {
        let log2 = log2_of(buckets).filter(|log2| *log2 <= MOST_LOG2)?;
        let table = Self {
            domain: domain.clone(),
            log2: AtomicU32::new(log2),
            directory: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            segments: Mutex::new(Vec::new()),
        };
        table.add_segments(0, log2).ok()?;
        // SAFETY: the first segment is there, and the table is ours alone.
        let first = unsafe { table.dummy(0) };
        // Relaxed: who shares the table shows it.
        first.next().store(Word::END.0, Relaxed);
        first.set_ready(0);
        Some(table)
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
        loop {
            // SAFETY: the caller's section; here and below.
            let start = unsafe { self.ready(bucket_of(hash, self.log2())) };
            // SAFETY: as above.
            let place = unsafe { seek(start, hash, Place::Front) };
            let Ok(mut cursor) = place else { continue };
            // SAFETY: as above.
            if let Some(found) = unsafe { walk(cursor.to, hash, &mut is_it) } {
                return Err(found);
            }
            // Relaxed: nobody sees the node before `lead`.
            new.next.store(cursor.to.0, Relaxed);
            if mutant!("split_blind_insert") {
                cursor.word.store(link.as_ptr(), Release);
                return Ok(());
            }
            if cursor.lead(Word(link.as_ptr())).is_ok() {
                return Ok(());
            }
        }
    }

    unsafe fn remove(
        &self,
        section: &impl Section,
        hash: u64,
        mut is_it: impl FnMut(NonNull<Link>) -> bool,
    ) -> Option<NonNull<Link>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        loop {
            // SAFETY: the caller's section; here and below.
            let start = unsafe { self.ready(bucket_of(hash, self.log2())) };
            // SAFETY: as above.
            let place = unsafe { seek(start, hash, Place::Front) };
            let Ok(mut cursor) = place else { continue };
            // SAFETY: as above.
            let found = unsafe { seek_entry(&mut cursor, hash, &mut is_it) };
            let Ok(found) = found else { continue };
            let (link, step) = found?;
            let next = mark(step.word, step.next)?;
            let mut unlinked = cursor.lead(next);
            while unlinked.is_err() && !mutant!("split_leaves_marked") {
                // SAFETY: as above.
                unlinked = unsafe {
                    let start = self.ready(bucket_of(hash, self.log2()));
                    seek(start, hash, Place::Behind).map(drop)
                };
            }
            return Some(link);
        }
    }

    fn buckets(&self) -> usize {
        1 << self.log2()
    }

    fn resize(&self, buckets: usize) -> Result<Resized, ResizeError> {
        let to = log2_of(buckets).filter(|log2| *log2 <= MOST_LOG2);
        let to = to.ok_or(ResizeError::NoMemory)?;
        if self.domain.is_pinned() {
            return Err(ResizeError::Pinned);
        }
        let from = self.log2();
        match from.cmp(&to) {
            std::cmp::Ordering::Equal => Ok(Resized::default()),
            std::cmp::Ordering::Less => self.expand(from, to),
            std::cmp::Ordering::Greater => Ok(self.shrink(from, to)),
        }
    }

    fn take_all(&mut self, mut each: impl FnMut(NonNull<Link>)) {
        // SAFETY: bucket 0 always is; the table is ours alone; here and below.
        let mut word = unsafe { self.dummy(0) }.next();
        let mut at = Word::load(word);
        loop {
            // SAFETY: as above: nobody has freed anything but what `each` has, which is not looked at again.
            match unsafe { at.target() } {
                Target::Entry(link) => {
                    // SAFETY: as above.
                    at = Word::load(unsafe { &link.as_ref().next });
                    each(link);
                }
                Target::Dummy(dummy) => {
                    // Relaxed: the table is ours alone.
                    word.store(at.0, Relaxed);
                    word = dummy.next();
                    at = Word::load(word);
                }
                Target::End => {
                    // Relaxed: as above.
                    word.store(Word::END.0, Relaxed);
                    return;
                }
            }
        }
    }
}
