//! The relativistic split-ordered list that \[ATC11\] §2 announces as future work: lock-free
//! updates, wait-free lookups, and a table that doubles by one store.
//!
//! Papers: \[SplitOrdered\]; the list is that of Michael, *High Performance Dynamic Lock-Free Hash
//! Tables and List-Based Sets*, SPAA 2002; \[ATC11\] §2 describes the use of RCU for it.
//!
//! # Layout
//!
//! All entries are in one list, sorted by their hashes with the bits reversed. So the entries of a
//! bucket are adjacent for every number of buckets that is a power of two, and dividing a bucket
//! divides its entries at one place. A bucket is a *dummy* node in the list, in front of the
//! bucket's entries. The dummy of bucket b is placed like an entry of hash b, before the entries
//! that have that hash.
//!
//! ```text
//! directory ─▶ segment 0: dummy 0
//!           ─▶ segment 1: dummy 1
//!           ─▶ segment 2: dummies 2, 3       segment s > 0: dummies 2^(s-1) to 2^s - 1
//!
//! [0] ─▶ (..000) ─▶ (..100) ─▶ [2] ─▶ (..010) ─▶ [1] ─▶ (..101) ─▶ [3] ─▶ (..111) ─▶ end  (hashes)
//!
//! dummy: 16 bytes                      entry: a `ChainLink`
//!   next   as in an entry                next   address | to a dummy or the end (bit 1) | mark (bit 0)
//!   state  number | ready | claimed      hash
//! ```
//!
//! A node is marked in its own next word, when it is removed, not in the word that points to it.
//! Segments never move, so adding buckets requires no wait for readers.
//!
//! # Operations
//!
//! *A lookup* starts at its bucket's dummy or, if that is not ready, at the dummy of the nearest
//! ancestor that is ready. (The parent of a bucket is its number without the highest bit.) The
//! ancestor is at most log2 of the number of buckets away, and bucket 0 is always ready. The lookup
//! follows next words past dummies and marked nodes alike. It never helps and never restarts: a
//! removed node is freed a grace period after it was unlinked, and its next word does not change,
//! so the way on always exists.
//!
//! *An insertion* searches for the first node that is not before the entries of its hash, and
//! unlinks marked nodes on the way. It searches these entries for the key, and inserts the new
//! entry in front of them by one compare-and-swap of the word before them.
//!
//! *A removal* marks the entry's next word, so that no insertion can change it, then leads the word
//! before it to the next node. If that word has changed, it walks past all entries of the hash once
//! more and unlinks the marked ones. So a thread that has marked an entry knows that it is unlinked
//! when the removal returns. Other threads may have unlinked it before, but only this thread frees
//! it.
//!
//! *A bucket* is made ready after its ancestors, by the first update that reaches it or by the
//! resize. The thread that claims it puts the dummy into the list; the others do not wait for that
//! but start from an ancestor.
//!
//! *A resize to more buckets* allocates segments and stores the new number. After that it makes the
//! new buckets ready, which no other thread waits for.
//!
//! *A resize to fewer* stores the new number, waits for readers, removes the dummies of the dropped
//! buckets (as entries are removed), waits for readers again, and frees their segments. The first
//! wait is for threads that know only the old number: after it no thread starts from these dummies,
//! and none makes one ready.
//!
//! # Guarantees
//!
//! 1. *Lookups* are wait-free: the number of steps is the number of nodes before the entry's place
//!    in the bucket, including those that are inserted there during the walk. (Only before the
//!    place: each step reaches a greater reversed hash or, among equal ones, an older entry.)
//! 2. *Updates* are lock-free: an update restarts only if another update or a resize has changed
//!    the list. No lock is held, not even while keys are compared. A thread that stops while it
//!    makes a bucket ready only makes that bucket's operations longer, by the entries of its parent
//!    that come before it.
//! 3. *Linearizable*; see below.
//! 4. *A resize to more* does not wait; a resize to fewer waits twice for readers. Lookups and
//!    updates proceed during both.
//! 5. A section that begins after a removal has returned does not encounter the removed link.
//!
//! # Memory
//!
//! 16 bytes for each bucket. While a table shrinks, and only then, the buckets of the larger table
//! remain as well. If their dummies stayed, they would slow down every lookup: there would be 2^k
//! of them for each bucket of a table that has become 2^k times smaller.
//!
//! # Linearizability
//!
//! An entry is *present* from the compare-and-swap that points to it until its next word is marked.
//! The list at some moment is what can be reached from bucket 0's dummy. Only an unmarked node's
//! word can be changed. So the node that an unmarked node of the list points to is in the list, and
//! a node that was unlinked never comes back.
//!
//! 1. *An insertion* takes effect with its compare-and-swap of the word before the entries of its
//!    hash. The word has not changed since these were searched (if it was changed and changed back,
//!    what came between has been removed again), and new entries of this hash are inserted there
//!    and nowhere else. So no entry of this key is present right before. An insertion that finds
//!    the key takes effect when it loads that entry's next word and sees no mark.
//! 2. *A removal* takes effect with the mark. One that finds nothing takes effect as a lookup does.
//!    One that finds the entry, but another thread marks it first, takes effect right after that
//!    mark.
//! 3. *A lookup that finds* an entry takes effect when it loads its next word, without a mark.
//! 4. *A lookup that finds nothing*, or an entry with a mark: at some moment during the lookup its
//!    key was absent. Suppose it was always present. Then it was the same entry N all the time,
//!    since by 1 there is a moment without the key between two of them. Every node X on which the
//!    lookup stands was in the list before N at some moment since the lookup began. The dummy was.
//!    And if X was, then the node that X points to is N or was before N: either X is still in the
//!    list, or X was marked, and its next word has not changed since X was in the list for the last
//!    time. So the lookup reaches N. And it does not stop before: nodes before N are not of greater
//!    rank; and an entry of the same key before N was inserted after N, while N was present, which
//!    contradicts 1.
//!
//! So a lookup need not look behind a marked entry of its key: this is the newest entry of the key
//! that the lookup could have reached, and a newer one is in front of it.
//!
//! # Differences to the papers
//!
//! 1. Michael's lookups unlink marked nodes, and restart when they lose a race; these do neither.
//! 2. Equal hashes do not imply equal keys: all entries of a hash are searched, and insertions
//!    happen in front of them. (Behind them, insertions could keep a lookup walking, and two
//!    insertions of a key would have to detect each other there.)
//! 3. Dummies are stored in the buckets, which saves a pointer and a cache miss. Shalev and Shavit
//!    allocate them. Therefore one thread claims a bucket; with separate dummies, several threads
//!    could try.
//! 4. The word that points to a node tells whether it is a dummy, so hashes keep all of their bits.
//! 5. Dummies are removed: Shalev and Shavit's tables do not shrink.
//! 6. Segments have doubling lengths instead of one length, so that the directory is small.

mod list;
#[cfg(test)]
mod models;

use std::ptr::{self, NonNull};

use corewise_atomic::lock::Mutex;
use corewise_atomic::mutant;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicU32};
use corewise_atomic::{Backoff, Slots, hint};
use corewise_maps::relativistic::ResizeError;
use corewise_rcu::{Domain, Section};

use self::list::{Dummy, NextWord, Position, Target, mark, seek, seek_entry, walk};
use super::Resized;
use super::algorithm::{Algorithm, ChainLink, Head, Lookups, log2_of};

/// The maximum number of buckets, as a logarithm.
const MOST_LOG2: u32 = if cfg!(any(corewise_loom, corewise_shuttle)) {
    3
} else if usize::BITS < 64 {
    24
} else {
    40
};
/// The number of buckets that a resize processes in one section.
const SECTION_BUCKETS: usize = 64;

/// The relativistic split-ordered list (\[ATC11\] §2): lock-free updates, wait-free lookups. The
/// number of buckets doubles by one store and without a wait. 16 bytes a bucket.
pub struct SplitOrdered {
    domain: Domain,
    /// The logarithm of the number of buckets. Changed by the thread that resizes.
    log2: AtomicU32,
    /// The segments: two words a bucket.
    directory: [AtomicPtr<Head>; MOST_LOG2 as usize + 1],
    /// The owners of the segments, in the same order. For the thread that resizes.
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
    /// 1. `bucket` is below a number of buckets that the caller loaded in a section that lasts, or
    ///    the caller is the thread that resizes and has not freed the bucket's segment.
    #[inline(always)]
    unsafe fn dummy(&self, bucket: usize) -> &Dummy {
        let segment = usize::BITS - bucket.leading_zeros();
        debug_assert!(segment <= MOST_LOG2);
        // Relaxed: it was stored before the number of buckets, with Release, which was loaded with
        // Acquire.
        // SAFETY: the bucket exists or existed, so it is below the maximum.
        let base = unsafe { self.directory.get_unchecked(segment as usize) }.load(Relaxed);
        debug_assert!(!base.is_null());
        // SAFETY: the segment has two words for each bucket from its first bucket on, and is freed
        // a grace period after the number of buckets has become too small for it.
        unsafe { &*base.add(2 * (bucket - first_of(segment))).cast::<Dummy>() }
    }

    #[inline(always)]
    fn log2(&self) -> u32 {
        // Acquire: pairs with the Release in `set_log2`.
        self.log2.load(Acquire)
    }

    /// # Safety
    ///
    /// 1. The caller is the only thread that resizes; the segments of these buckets exist.
    unsafe fn set_log2(&self, log2: u32) {
        // Release: pairs with the Acquire in `log2`: the segments are in the directory, and zeroed.
        self.log2.store(log2, Release);
    }

    /// The dummy of a bucket or of its nearest ancestor that is ready: at most log2 of the buckets
    /// away.
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

    /// The dummy at which an update starts: its bucket's, which is made ready unless another thread
    /// is doing so.
    ///
    /// # Safety
    ///
    /// 1. The caller is in a section that lasts for `'s`.
    unsafe fn ready(&self, bucket: usize) -> &Dummy {
        // SAFETY: the caller has loaded the number of buckets in its section, so the bucket and all
        // of its ancestors exist.
        let dummy = unsafe { self.dummy(bucket) };
        if dummy.is_ready() {
            return dummy;
        }
        // Bucket 0 is ready. From there, go from ancestor to ancestor: each has one bit more.
        // SAFETY: bucket 0 always exists.
        let (mut at, mut from) = (0, unsafe { self.dummy(0) });
        while at != bucket {
            let rest = bucket ^ at;
            at |= rest & rest.wrapping_neg();
            // SAFETY: an ancestor of `bucket`, or `bucket` itself, so it exists.
            let child = unsafe { self.dummy(at) };
            // SAFETY: both exist, as above, and `from` is ready.
            if child.is_ready() || unsafe { Self::link(child, at, from) } {
                from = child;
            }
        }
        from
    }

    /// Puts a dummy into the list, unless another thread has claimed it; returns whether it is
    /// ready.
    ///
    /// # Safety
    ///
    /// 1. As for [`SplitOrdered::ready`].
    /// 2. `from` is the dummy of an ancestor, is ready, and is not removed during the caller's
    ///    section.
    unsafe fn link(dummy: &Dummy, number: usize, from: &Dummy) -> bool {
        if !dummy.claim(number) {
            return dummy.is_ready();
        }
        if mutant!("split_ready_early") {
            // SAFETY: the caller's section.
            if let Ok(cursor) = unsafe { seek(from, number as u64, Position::Dummy) } {
                // Relaxed: the dummy is not in the list.
                dummy.next().store(cursor.to.0, Relaxed);
                dummy.set_ready(number);
            }
        }
        loop {
            // SAFETY: the caller's section.
            let place = unsafe { seek(from, number as u64, Position::Dummy) };
            let Ok(mut cursor) = place else { continue };
            // Relaxed: no other thread sees the dummy before `lead`.
            dummy.next().store(cursor.to.0, Relaxed);
            if cursor.lead(NextWord::of_dummy(dummy)).is_ok() {
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
    /// 1. The caller is the thread that resizes, and is in a section.
    /// 2. No thread will start from this dummy or make it ready. Its ancestors are not removed yet.
    unsafe fn unlink(&self, bucket: usize) {
        // SAFETY: the caller frees the segment later.
        let dummy = unsafe { self.dummy(bucket) };
        if !dummy.is_ready() {
            return;
        }
        mark(dummy.next(), NextWord::load(dummy.next()));
        // SAFETY: the caller is in a section, and the ancestors are not removed yet, by 2.
        let from = unsafe { self.nearest(parent(bucket)) };
        let mut backoff = Backoff::new();
        // It is right behind this place, unless another thread has unlinked it already.
        // SAFETY: the caller's section.
        while unsafe { seek(from, bucket as u64, Position::Dummy) }.is_err() {
            backoff.spin();
        }
    }
}

// ---- resize

impl SplitOrdered {
    /// Makes the segments `from` to `to`.
    ///
    /// # Safety
    ///
    /// 1. The caller is the only thread that resizes; there are `from` segments.
    unsafe fn add_segments(&self, from: u32, to: u32) -> Result<(), ResizeError> {
        let mut segments = self.segments.lock();
        for segment in from..=to {
            let buckets = (1 << segment) - first_of(segment);
            let Some(words) = Slots::<Head>::try_zeroed(2 * buckets) else {
                drop(segments);
                // SAFETY: by our 1, the number of buckets is not yet that of these segments (1).
                unsafe { self.free_segments(from) };
                return Err(ResizeError::NoMemory);
            };
            // Relaxed: the number of buckets publishes it.
            self.directory[segment as usize].store(words.as_ptr().cast_mut(), Relaxed);
            segments.push(words);
        }
        Ok(())
    }

    /// Frees the segments from `from` on.
    ///
    /// # Safety
    ///
    /// 1. The caller is the only thread that resizes; no thread is in these segments or can find
    ///    them.
    unsafe fn free_segments(&self, from: u32) {
        let mut segments = self.segments.lock();
        for place in &self.directory[from as usize..segments.len()] {
            // Relaxed: no thread looks there, because the number of buckets is too small.
            place.store(ptr::null_mut(), Relaxed);
        }
        let freed = segments.split_off(from as usize);
        drop(segments);
        if cfg!(debug_assertions) {
            for words in freed.iter().flat_map(|segment| segment.as_chunks().0) {
                let [next, state]: &[Head; 2] = words;
                // Relaxed, all: readers have left, and the directory leads here no more.
                let used = !state.load(Relaxed).is_null();
                assert!(
                    !used || NextWord(next.load(Relaxed)).is_marked(),
                    "a dummy of a bucket that is no more is in the list"
                );
                // A reader that is wrongly still here will fail. Relaxed: as above.
                next.store(ptr::null_mut(), Relaxed);
            }
        }
    }

    /// Calls `each` for buckets, in sections of [`SECTION_BUCKETS`] buckets each.
    fn in_sections(&self, mut buckets: impl Iterator<Item = usize>, mut each: impl FnMut(usize)) {
        let mut more = true;
        while more {
            let _section = self.domain.pin();
            let mut some = buckets.by_ref().take(SECTION_BUCKETS).peekable();
            more = some.peek().is_some();
            some.for_each(&mut each);
        }
    }

    /// # Safety
    ///
    /// 1. The caller is the only thread that resizes, and in no section; there are `1 << from`
    ///    buckets.
    unsafe fn expand(&self, from: u32, to: u32) -> Result<Resized, ResizeError> {
        // SAFETY: 1, both; the segments exist after the first line.
        unsafe {
            self.add_segments(from + 1, to)?;
            self.set_log2(to);
        }
        self.in_sections(1 << from..1 << to, |bucket| {
            // SAFETY: in a section; the number of buckets stays `1 << to` until this thread changes
            // it.
            unsafe { self.ready(bucket) };
        });
        Ok(Resized {
            passes: 1,
            waits: 0,
        })
    }

    /// # Safety
    ///
    /// 1. The caller is the only thread that resizes, and in no section; there are `1 << from`
    ///    buckets.
    unsafe fn shrink(&self, from: u32, to: u32) -> Resized {
        // SAFETY: 1, both; the segments of fewer buckets exist.
        unsafe {
            self.set_log2(to);
            self.remove_buckets(from, to);
        }
        Resized {
            passes: 1,
            waits: 2,
        }
    }

    /// Removes the buckets that are no longer used, and frees them.
    ///
    /// # Safety
    ///
    /// 1. The caller is the only thread that resizes, and in no section. There were `1 << from`
    ///    buckets, and are `1 << to`.
    unsafe fn remove_buckets(&self, from: u32, to: u32) {
        if !mutant!("split_no_wait_before_dummies") {
            self.domain.synchronize();
        }
        // The last one first: a bucket's parent comes before it.
        self.in_sections((1 << to..1 << from).rev(), |bucket| {
            // SAFETY: in a section; after the wait above, no thread knows of the bucket.
            unsafe { self.unlink(bucket) };
        });
        if !mutant!("split_no_wait_before_free") {
            self.domain.synchronize();
        }
        // SAFETY: after the wait above, no thread is in them or can find them (1).
        unsafe { self.free_segments(to + 1) };
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
    unsafe fn first(&self, section: &impl Section, hash: u64) -> *const ChainLink {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller is in a section.
        let start = unsafe { self.nearest(bucket_of(hash, self.log2())) };
        // An entry, or the next bucket.
        NextWord::load(start.next()).address()
    }

    #[inline(always)]
    unsafe fn second(&self, _: &impl Section, _: u64) -> *const ChainLink {
        // The first may be a bucket.
        ptr::null()
    }

    #[inline(always)]
    unsafe fn look_up(
        &self,
        section: &impl Section,
        hash: u64,
        eq: impl FnMut(NonNull<ChainLink>) -> bool,
    ) -> Option<NonNull<ChainLink>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller's section.
        let start = unsafe { self.nearest(bucket_of(hash, self.log2())) };
        // SAFETY: the caller's section keeps what it finds.
        unsafe { walk(NextWord::load(start.next()), hash, eq) }
    }
}

// SAFETY: see the header; a returned link was seen in the list without a mark, or was marked by the
// caller (1). `remove` returns when the link is no longer in the list, and a reader encounters only
// nodes that were in the list since its section began (2).
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
        // SAFETY: we have the table alone, and it has no segments (1).
        unsafe { table.add_segments(0, log2) }.ok()?;
        // SAFETY: the first segment exists, and we have the table alone.
        let first = unsafe { table.dummy(0) };
        // Relaxed: the thread that shares the table publishes it.
        first.next().store(NextWord::END.0, Relaxed);
        first.set_ready(0);
        Some(table)
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
        loop {
            // SAFETY: the caller's section; here and below.
            let start = unsafe { self.ready(bucket_of(hash, self.log2())) };
            // SAFETY: the caller's section keeps what it finds.
            let place = unsafe { seek(start, hash, Position::Front) };
            let Ok(mut cursor) = place else { continue };
            // SAFETY: the caller's section keeps what it finds.
            if let Some(found) = unsafe { walk(cursor.to, hash, &mut eq) } {
                return Err(found);
            }
            // Relaxed: no other thread sees the node before `lead`.
            new.next.store(cursor.to.0, Relaxed);
            if mutant!("split_blind_insert") {
                // Release: publishes the node, as `lead` does.
                cursor.word.store(link.as_ptr(), Release);
                return Ok(());
            }
            if cursor.lead(NextWord(link.as_ptr())).is_ok() {
                return Ok(());
            }
        }
    }

    unsafe fn remove(
        &self,
        section: &impl Section,
        hash: u64,
        mut eq: impl FnMut(NonNull<ChainLink>) -> bool,
    ) -> Option<NonNull<ChainLink>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        loop {
            // SAFETY: the caller's section; here and below.
            let start = unsafe { self.ready(bucket_of(hash, self.log2())) };
            // SAFETY: the caller's section keeps what it finds.
            let place = unsafe { seek(start, hash, Position::Front) };
            let Ok(mut cursor) = place else { continue };
            // SAFETY: the caller's section keeps what it finds.
            let found = unsafe { seek_entry(&mut cursor, hash, &mut eq) };
            let Ok(found) = found else { continue };
            let (link, step) = found?;
            let next = mark(step.word, step.next)?;
            let mut unlinked = cursor.lead(next);
            while unlinked.is_err() && !mutant!("split_leaves_marked") {
                // SAFETY: the caller is in a section.
                unlinked = unsafe {
                    let start = self.ready(bucket_of(hash, self.log2()));
                    seek(start, hash, Position::Behind).map(drop)
                };
            }
            return Some(link);
        }
    }

    fn buckets(&self) -> usize {
        1 << self.log2()
    }

    unsafe fn resize(&self, buckets: usize) -> Result<Resized, ResizeError> {
        let to = log2_of(buckets).filter(|log2| *log2 <= MOST_LOG2);
        let to = to.ok_or(ResizeError::NoMemory)?;
        if self.domain.is_pinned() {
            return Err(ResizeError::Pinned);
        }
        let from = self.log2();
        match from.cmp(&to) {
            std::cmp::Ordering::Equal => Ok(Resized::default()),
            // SAFETY: the caller lets only us resize; not pinned, see above (1).
            std::cmp::Ordering::Less => unsafe { self.expand(from, to) },
            // SAFETY: as for `expand`: only we resize, and not pinned (1).
            std::cmp::Ordering::Greater => Ok(unsafe { self.shrink(from, to) }),
        }
    }

    fn take_all(&mut self, mut each: impl FnMut(NonNull<ChainLink>)) {
        // SAFETY: bucket 0 always exists; we have the table alone; here and below.
        let mut word = unsafe { self.dummy(0) }.next();
        let mut at = NextWord::load(word);
        loop {
            // SAFETY: as above: only `each` frees nodes, and a node passed to it is not used again.
            match unsafe { at.target() } {
                Target::Entry(link) => {
                    // SAFETY: it was not passed to `each` yet, which frees nodes.
                    at = NextWord::load(unsafe { &link.as_ref().next });
                    each(link);
                }
                Target::Dummy(dummy) => {
                    // Relaxed: we have the table alone.
                    word.store(at.0, Relaxed);
                    word = dummy.next();
                    at = NextWord::load(word);
                }
                Target::End => {
                    // Relaxed: as above.
                    word.store(NextWord::END.0, Relaxed);
                    return;
                }
            }
        }
    }
}
