//! The intrusive table: lookups, updates, and the locking between updates and resizing.
//!
//! The caller provides the nodes: each has a [`Link`], a node ID, and an address that the caller's
//! [`Arena`] knows. The table handles only IDs and links, so a cache's items can be its nodes.
//!
//! # Locking
//!
//! The *lineage* of a hash is its bucket in each table from the oldest to the newest in use. One
//! lock covers it: the `LOCK` bit of its word in the oldest table in which it is not forwarded. For
//! a plain bucket that is the bucket's own word, found in one step. While buckets are zipped it is
//! the word of the parent, which is selected by the hash bits that all its children share. While a
//! bucket is cross-linked it is the word in the smaller table.
//!
//! The links of nodes in the lineage's chains and all words of the lineage are written only under
//! this lock, with one exception: an insertion into a plain, unlocked bucket exchanges the bucket's
//! word.
//!
//! | | find | insert | remove, replace | resize step |
//! |---|---|---|---|---|
//! | waits for | nothing | updates and steps on its lineage | same | updates on its lineage |
//! | progress | wait-free: bounded by the chain | lock-free on plain buckets, else blocking | blocking | blocking |
//!
//! No thread waits for a grace period or calls foreign code while it holds a lock.
//!
//! # Several predecessors
//!
//! While chains are zipped, several links may lead to a node: one from its own chain, and others
//! from nodes of other buckets that unzipping has not reached yet. The *trunk* of a level is what
//! can be reached from the parent's word, whose pointer advances during unzipping. Before the
//! trunk, every link leads to a node of the same child; inside it, links are as they were before
//! the expansion. So at most one link in each level's trunk and one link on its own chain lead to a
//! node; [`Lineage::links_to`] finds them with one walk per level. A link from before a trunk into
//! it must be redirected to a node of the same child, a link in the trunk to the next node. Readers
//! on the removed node still follow the old trunk, so `HOLD` makes the level wait for a grace
//! period before it cuts there again. A replacement takes over all links of the node that it
//! replaces and changes no path.
//!
//! Links are changed in the order newest table first: a reader that sees a change through an older
//! table sees it again when it repeats the lookup.

use std::ptr::{self, NonNull};

use corewise_atomic::Backoff;
use corewise_atomic::hint;
use corewise_atomic::lock::Mutex;
use corewise_atomic::mutant;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};
use corewise_rcu::{Domain, Section};

use super::chain::{Arena, ChainNodes, Link, Predecessor, first_of_child, nodes, search};
use super::resizer::{MAX_LEVELS, Passes, ResizePolicy, Resizer};
use super::table::{BucketArray, exchange, is_forwarded, load, publish, store};
use super::word::{BucketWord, HOLD, INIT, LOCK, NodeId, PURE, Probe, ShiftedHash, fold};

/// A resizable hash table of the caller's nodes.
pub struct RawTable<A> {
    arena: A,
    /// The table that readers use.
    current: AtomicPtr<BucketArray>,
    /// The table in which the search for a lineage's lock begins.
    oldest: AtomicPtr<BucketArray>,
    /// Whether [`RawTable::step`] has work to do.
    pub(super) work: AtomicBool,
    /// The number of entries, without changes that callers have not reported yet: an `isize`.
    count: AtomicUsize,
    /// The counts of entries that trigger growing and shrinking.
    pub(super) grow_above: AtomicUsize,
    pub(super) shrink_below: AtomicUsize,
    pub(super) report_after: AtomicUsize,
    /// The number of updates of a thread that advance a resize together; a power of two.
    pub(super) batch: AtomicUsize,
    /// The limit for automatic growth, and the buckets that the table wanted when it reached the
    /// limit.
    pub(super) most_buckets: AtomicUsize,
    pub(super) wanted_buckets: AtomicUsize,
    /// Bytes of all bucket arrays, including those that wait for readers.
    pub(super) array_bytes: AtomicUsize,
    pub(super) resizer: Mutex<Resizer>,
    pub(super) passes: Passes,
    domain: Domain,
}

// SAFETY: the pointers are to tables that the `RawTable` owns and to nodes that its users link
// under the contract of `insert`; everything shared is atomic or under the lock.
unsafe impl<A: Send> Send for RawTable<A> {}
// SAFETY: what threads share is atomic or under the lock.
unsafe impl<A: Sync> Sync for RawTable<A> {}

/// The locked lineage of a hash. Its owner is in a section, by the contract of [`RawTable::lock`].
pub(super) struct Lineage<'t, A> {
    arena: &'t A,
    /// The table whose word is locked.
    root: &'t BucketArray,
    /// The larger table that readers still use while the smaller one is being linked.
    mirror: Option<&'t BucketArray>,
    hash: u32,
}

/// The links that lead to a node, oldest level first.
struct IncomingLinks<'t> {
    /// Bit n: the trunk of the nth level contains the node.
    trunks: u64,
    /// Each link, and the node that it should lead to after the removal.
    found: [Option<(Predecessor<'t>, Option<NodeId>)>; MAX_LEVELS + 1],
    len: usize,
}

impl<A: Arena> RawTable<A> {
    /// Creates an empty table of `buckets` buckets in a domain, for the nodes of an arena.
    ///
    /// # Panics
    ///
    /// If `buckets` is 0, or memory is not available.
    pub fn new(buckets: usize, policy: ResizePolicy, domain: Domain, arena: A) -> Self {
        assert!(buckets > 0, "a table needs a bucket");
        let table = BucketArray::try_new(buckets, true, policy.huge_pages)
            .expect("no memory for the bucket array");
        let table = Box::into_raw(table);
        let raw = Self {
            arena,
            current: AtomicPtr::new(table),
            oldest: AtomicPtr::new(table),
            work: AtomicBool::new(false),
            count: AtomicUsize::new(0),
            grow_above: AtomicUsize::new(usize::MAX),
            shrink_below: AtomicUsize::new(0),
            report_after: AtomicUsize::new(1),
            batch: AtomicUsize::new(1),
            most_buckets: AtomicUsize::new(usize::MAX),
            wanted_buckets: AtomicUsize::new(0),
            array_bytes: AtomicUsize::new(buckets * size_of::<u64>()),
            resizer: Mutex::new(Resizer::new(policy)),
            passes: Passes::new(),
            domain,
        };
        raw.set_thresholds(policy, buckets);
        raw
    }

    /// The domain whose sections protect readers.
    #[inline(always)]
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// The arena that its nodes live in.
    #[inline(always)]
    pub fn arena(&self) -> &A {
        &self.arena
    }

    /// The number of buckets that readers use.
    pub fn buckets(&self) -> usize {
        let _guard = self.domain.pin();
        // SAFETY: the guard lives longer than the reference.
        unsafe { self.current() }.len()
    }

    /// # Safety
    ///
    /// 1. The reference is not used after the caller's section, or after whatever prevents the
    ///    table from being replaced has ended.
    #[inline(always)]
    pub(super) unsafe fn current(&self) -> &BucketArray {
        // Acquire: pairs with the Release in `publish`, so the table's fields are seen.
        // SAFETY: the pointer is never null, and a table is freed a grace period after it was
        // replaced; the caller guarantees the rest.
        unsafe { &*self.current.load(Acquire) }
    }

    /// # Safety
    ///
    /// 1. As for [`RawTable::current`].
    pub(super) unsafe fn oldest(&self) -> &BucketArray {
        // Acquire: pairs with the Release in `set_oldest`.
        // SAFETY: the pointer is never null, and a table is freed a grace period after `set_oldest`
        // has replaced it; the caller guarantees the rest.
        unsafe { &*self.oldest.load(Acquire) }
    }

    /// # Safety
    ///
    /// 1. `table` follows the oldest table, and no bucket of that one has a lock any more.
    pub(super) unsafe fn set_oldest(&self, table: *mut BucketArray) {
        // Release: pairs with the Acquire in `oldest`.
        self.oldest.store(table, Release);
    }

    /// Publishes a table in which readers find all entries.
    ///
    /// # Safety
    ///
    /// 1. `table` follows the current table, and is freed a grace period after it was replaced.
    pub(super) unsafe fn publish(&self, table: *mut BucketArray) {
        // Release: pairs with the Acquire in `current`.
        self.current.store(table, publish());
    }

    /// Finds the node with this hash for which `eq` returns true.
    ///
    /// Wait-free: bounded by the length of the chain. A node that is in the table during the whole
    /// call is found, whatever other threads do. \[ATC11\] §4, *RP hash lookup reader*.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of this table's domain.
    #[inline(always)]
    pub unsafe fn find(
        &self,
        section: &impl Section,
        hash: u64,
        eq: impl FnMut(NonNull<Link>) -> bool,
    ) -> Option<NonNull<Link>> {
        // SAFETY: the caller upholds 1; the view is the table's arena.
        unsafe { self.find_by(&self.arena, section, hash, eq) }
    }

    /// As [`RawTable::find`], with another view of the arena that may know more at compile time.
    ///
    /// # Safety
    ///
    /// 1. As there.
    /// 2. `view` gives the same addresses as the table's arena.
    #[inline(always)]
    pub unsafe fn find_by<V: Arena>(
        &self,
        view: &V,
        section: &impl Section,
        hash: u64,
        eq: impl FnMut(NonNull<Link>) -> bool,
    ) -> Option<NonNull<Link>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller is in a section, by 1.
        let table = unsafe { self.current() };
        let hash = fold(hash);
        let shifted = ShiftedHash::new(hash);
        // SAFETY: the section began before the word is read (1).
        unsafe { search(view, table.first_for(hash, shifted), shifted, eq) }
    }

    /// Prefetches the cache line that a `find` of this hash reads first.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of this table's domain.
    #[inline]
    pub unsafe fn prefetch(&self, section: &impl Section, hash: u64) {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller is in a section, by 1.
        hint::prefetch(unsafe { self.current() }.slot(fold(hash)));
    }

    /// Prefetches `lines` cache lines of 64 bytes of the node that a `find` of this hash looks at
    /// first. This reads the bucket, so call [`RawTable::prefetch`] earlier.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of this table's domain.
    #[inline]
    pub unsafe fn prefetch_first(&self, section: &impl Section, hash: u64, lines: usize) {
        // SAFETY: the caller upholds 1; the view is the table's arena.
        if let Some(first) = unsafe { self.first_by(&self.arena, section, hash) } {
            prefetch_lines(first, lines);
        }
    }

    /// The node that a `find_by` of this hash looks at first, if any.
    ///
    /// # Safety
    ///
    /// 1. As for [`RawTable::find_by`].
    #[inline(always)]
    pub(super) unsafe fn first_by<V: Arena>(
        &self,
        view: &V,
        section: &impl Section,
        hash: u64,
    ) -> Option<NonNull<Link>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        let hash = fold(hash);
        // SAFETY: the caller is in a section, by 1.
        let first = unsafe { self.current() }.first_for(hash, ShiftedHash::new(hash))?;
        // SAFETY: the ID was read in the section, which keeps the node (1).
        Some(unsafe { view.link(first) })
    }

    /// Prefetches the node after the one that [`RawTable::prefetch_first`] prefetches, if that one
    /// has another hash. This reads the first node, so call `prefetch_first` earlier.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of this table's domain.
    #[inline]
    pub unsafe fn prefetch_second(&self, section: &impl Section, hash: u64, lines: usize) {
        // SAFETY: the caller upholds 1; the view is the table's arena.
        if let Some(second) = unsafe { self.second_by(&self.arena, section, hash) } {
            prefetch_lines(second, lines);
        }
    }

    /// The node that a `find_by` of this hash looks at after the [first](Self::first_by), if the
    /// first has another hash.
    ///
    /// # Safety
    ///
    /// 1. As for [`RawTable::find_by`].
    #[inline(always)]
    pub(super) unsafe fn second_by<V: Arena>(
        &self,
        view: &V,
        section: &impl Section,
        hash: u64,
    ) -> Option<NonNull<Link>> {
        // SAFETY: the section is one of this table's domain, by 1. It keeps the node while the
        // header is read.
        let header = unsafe { self.first_by(view, section, hash)?.as_ref() }.header();
        // Most likely the node that is sought: the lookup ends there.
        if header.has_hash(ShiftedHash::new(fold(hash))) {
            return None;
        }
        // SAFETY: the section keeps the second node, too.
        header.next().map(|second| unsafe { view.link(second) })
    }

    /// Inserts `node`, unless a node for which `eq` returns true is present: the error is that
    /// node.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of this table's domain.
    /// 2. `node` belongs to the arena and is in no table. It is not freed or inserted again before
    ///    a grace period after its removal.
    #[inline]
    pub unsafe fn insert(
        &self,
        section: &impl Section,
        node: NodeId,
        mut eq: impl FnMut(NonNull<Link>) -> bool,
    ) -> Result<(), NonNull<Link>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: no other thread has the node yet, by 2.
        let link = unsafe { self.arena.link(node).as_ref() };
        let hash = link.hash();
        let shifted = ShiftedHash::new(hash);
        let probe = shifted.probe();
        loop {
            // SAFETY: the caller is in a section, by 1.
            let table = unsafe { self.current() };
            let slot = table.slot(hash);
            let seen = load(slot);
            let first = seen.first_for(probe);
            // SAFETY: the section began before the word was read (1).
            if let Some(found) = unsafe { search(&self.arena, first, shifted, &mut eq) } {
                return Err(found);
            }
            let inserted = if seen.flags() == 0 || mutant!("insert_ignores_flags") {
                // A plain, unlocked bucket needs no lock: the exchange fails if its word has
                // changed since the search.
                link.prepare(seen.first());
                exchange(slot, seen, seen.prepend(node, probe))
            } else {
                // SAFETY: the caller is in a section (1), and the node fulfils the contract of this
                // function; `link` is its link (2).
                unsafe { self.insert_slowly(node, link, table, seen) }
            };
            if inserted {
                return Ok(());
            }
        }
    }

    /// Inserts into a bucket that is locked or being resized, if nothing was inserted since `seen`.
    ///
    /// # Safety
    ///
    /// 1. The caller is in a section of this table's domain.
    /// 2. As for [`RawTable::insert`]; `link` is that of `node`.
    #[cold]
    unsafe fn insert_slowly(
        &self,
        node: NodeId,
        link: &Link,
        table: &BucketArray,
        seen: BucketWord,
    ) -> bool {
        // SAFETY: the caller is in a section, and the lineage is unlocked below, by 1.
        let lineage = unsafe { self.lock_slowly(link.hash()) };
        // SAFETY: the caller is in a section, by 1, and the reference is only compared.
        let unchanged = ptr::eq(unsafe { self.current() }, table)
            && table.word(link.hash()).first() == seen.first()
            || mutant!("insert_blind");
        if unchanged {
            // SAFETY: the node fulfils 2 of `RawTable::insert`, and `link` is its link, by our 2
            // (1).
            unsafe { lineage.insert(node, link) };
        }
        lineage.unlock();
        unchanged
    }

    /// Removes a node that was found and returns its ID, or `None` if another thread removed it.
    /// The caller may free it after a grace period.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of this table's domain, and the node was found in it.
    #[inline]
    pub unsafe fn remove(&self, section: &impl Section, node: NonNull<Link>) -> Option<NodeId> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the node lives while the section does, by 1.
        let link = unsafe { node.as_ref() };
        // SAFETY: the caller is in a section, by 1, and the lineage is unlocked below.
        let lineage = unsafe { self.lock(link.hash()) };
        let present = !link.is_removed();
        let removed = present.then(|| lineage.remove(link));
        lineage.unlock();
        removed
    }

    /// Replaces a node that was found by `new` and returns the old node's ID, or `None` if another
    /// thread removed or replaced it. At any time, readers find one of the two.
    ///
    /// # Safety
    ///
    /// 1. As for [`RawTable::remove`], of `old`.
    /// 2. As for [`RawTable::insert`] 2, of `new`; both have the same hash.
    #[inline]
    pub unsafe fn replace(
        &self,
        section: &impl Section,
        old: NonNull<Link>,
        new: NodeId,
    ) -> Option<NodeId> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the node lives while the section does, by 1.
        let old = unsafe { old.as_ref() };
        // SAFETY: the caller is in a section, by 1, and the lineage is unlocked below.
        let lineage = unsafe { self.lock(old.hash()) };
        let present = !old.is_removed();
        // SAFETY: the old node is not removed, and the lineage of its hash is locked, so it is in
        // the table (1). The new node fulfils 2 of `RawTable::insert` and has the same hash, by our
        // 2 (2).
        let replaced = present.then(|| unsafe { lineage.replace(old, new) });
        lineage.unlock();
        replaced
    }

    /// Locks the lineage of a hash. In place of a hash, `hash` may also be a bucket index of the
    /// table that readers use.
    ///
    /// # Safety
    ///
    /// 1. The caller is in a section of this table's domain until it has unlocked the lineage.
    #[inline]
    pub(super) unsafe fn lock(&self, hash: u32) -> Lineage<'_, A> {
        // SAFETY: the caller is in a section until it has unlocked the lineage, by 1.
        let table = unsafe { self.current() };
        let slot = table.slot(hash);
        let word = load(slot);
        if word.flags() == 0 && exchange(slot, word, word.replace_flags(LOCK)) {
            return Lineage {
                arena: &self.arena,
                root: table,
                mirror: None,
                hash,
            };
        }
        // SAFETY: the caller is in a section until it has unlocked the lineage, by 1.
        unsafe { self.lock_slowly(hash) }
    }

    /// As [`RawTable::lock`], whatever the state of the bucket.
    ///
    /// # Safety
    ///
    /// 1. As for [`RawTable::lock`].
    #[cold]
    unsafe fn lock_slowly(&self, hash: u32) -> Lineage<'_, A> {
        // SAFETY: the caller is in a section until it has unlocked the lineage, by 1.
        let mut table = unsafe { self.oldest() };
        let mut came_from = None;
        let mut backoff = Backoff::new();
        loop {
            let slot = table.slot(hash);
            let word = load(slot);
            if is_forwarded(word) {
                // The lock is that of the bucket in the next table.
                came_from = Some(table);
                table = table.follow();
            } else if word.has(LOCK) && !mutant!("no_exclusion") {
                backoff.snooze();
            } else if exchange(slot, word, word.set_flags(LOCK)) {
                break;
            }
        }
        // A shrink has forwarded the bucket to a table that is not published yet: readers use the
        // larger one.
        let mirror = came_from.filter(|from| from.len() > table.len() && !table.is_published());
        Lineage {
            arena: &self.arena,
            root: table,
            mirror,
            hash,
        }
    }

    /// Changes the count of entries, and requests a resize if one is due.
    #[inline]
    pub fn adjust(&self, by: isize) {
        // Relaxed, all but the last: numbers that publish nothing; the resizer checks again under
        // its lock.
        let before = self.count.fetch_add(by.cast_unsigned(), Relaxed);
        let count = before.cast_signed().wrapping_add(by).max(0).cast_unsigned();
        if count > self.grow_above.load(Relaxed) || count < self.shrink_below.load(Relaxed) {
            // Release: pairs with the Acquire in `LockedResizer::advance_all`.
            self.work.store(true, Release);
        }
    }

    /// The number of entries by which a thread's unreported count may differ from 0 before the
    /// thread calls [`RawTable::adjust`]: small enough not to matter.
    #[inline(always)]
    pub fn report_after(&self) -> usize {
        // Relaxed: as in `adjust`.
        self.report_after.load(Relaxed)
    }

    /// The number of entries [reported](RawTable::adjust) so far. One load.
    pub fn reported_len(&self) -> usize {
        self.count()
    }

    /// As [`RawTable::reported_len`].
    pub(super) fn count(&self) -> usize {
        // Relaxed: as in `adjust`.
        self.count
            .load(Relaxed)
            .cast_signed()
            .max(0)
            .cast_unsigned()
    }

    /// Bytes of all bucket arrays: of the one in use, those under construction, and those that
    /// readers may still use.
    #[inline]
    pub fn array_bytes(&self) -> usize {
        // Relaxed: a number that publishes nothing, here and where it changes.
        self.array_bytes.load(Relaxed)
    }

    /// Limits automatic growth to `buckets` from now on.
    ///
    /// This is for an owner with a memory budget, which raises the limit when it has room for
    /// [`RawTable::wanted_buckets`]. Chains get longer meanwhile.
    pub fn set_most_buckets(&self, buckets: usize) {
        let resizer = self.resizer();
        // Relaxed, both: read and written under the lock, or hints.
        self.most_buckets.store(buckets, Relaxed);
        self.wanted_buckets.store(0, Relaxed);
        // A table that had reached the old limit has no threshold left; see `within_bound`.
        resizer.reconsider();
        // Requests growth at once if it is due under the new limit.
        self.adjust(0);
    }

    /// The number of buckets that the table needs for its entries but may not have; 0 if it has
    /// enough. Growing to it takes a new array of that number of 8-byte words, beside the present
    /// array.
    #[inline]
    pub fn wanted_buckets(&self) -> usize {
        // Relaxed: a hint.
        self.wanted_buckets.load(Relaxed)
    }

    /// Whether [`RawTable::step`] has work to do.
    #[inline(always)]
    pub fn has_work(&self) -> bool {
        // Relaxed: a hint.
        self.work.load(Relaxed)
    }

    /// Visits every node once, for the exclusive owner of the table. The visitor may free the node:
    /// a resize under way is completed first, so no chain leads through nodes of another bucket.
    pub fn for_each_mut(&mut self, mut visit: impl FnMut(&A, NodeId)) {
        self.finish_alone();
        // SAFETY: the table is ours alone.
        let table = unsafe { self.current() };
        for bucket in 0..table.len() {
            let first = load(table.slot_at(bucket)).first();
            // SAFETY: only this thread has the table, so each node stays until it is given to
            // `visit`. Its next link is read before (1).
            for (id, _) in unsafe { nodes(&self.arena, first) } {
                visit(&self.arena, id);
            }
        }
    }

    /// An iterator over the nodes of the table, for its exclusive owner, who needs no section. It
    /// yields every node once.
    ///
    /// # Safety
    ///
    /// 1. While the iterator and the nodes that it yields are used, no other thread uses the table,
    ///    and no resize of it goes on. The caller may remove nodes that were yielded.
    pub(super) unsafe fn iter_alone(&self) -> RawIter<'_, A> {
        // SAFETY: nothing replaces or frees the table, by 1.
        let table = unsafe { self.current() };
        // SAFETY: the iterator has left a node before it yields it, so the caller may remove that
        // one. Other nodes stay, by 1, as in a section.
        unsafe { RawIter::new(&self.arena, table, 0..table.len()) }
    }

    /// An iterator over the nodes of the table.
    ///
    /// It yields every node that is in the table during the whole iteration once. It may or may not
    /// yield a node that is inserted or removed meanwhile. Amortised constant time, wait-free.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of this table's domain. The iterator and the nodes that it yields are
    ///    not used after it.
    pub unsafe fn iter(&self, section: &impl Section) -> RawIter<'_, A> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller is in a section, by 1.
        let table = unsafe { self.current() };
        // SAFETY: the section is one of this table's domain, and the table was found in it, by 1.
        unsafe { RawIter::new(&self.arena, table, 0..table.len()) }
    }

    /// The longest chain among the `count` buckets from `from` on, nodes of other buckets included,
    /// and the bucket to continue at: 0 if these were the last ones.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of this table's domain.
    pub unsafe fn longest_chain_of(
        &self,
        section: &impl Section,
        from: usize,
        count: usize,
    ) -> (usize, usize) {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller is in a section, by 1.
        let table = unsafe { self.current() };
        let end = table.len().min(from.saturating_add(count));
        // SAFETY: the section began before the table was found (1).
        let length = |bucket| unsafe { self.chain_length(table, bucket) };
        let longest = (from.min(end)..end).map(length).max().unwrap_or(0);
        (longest, if end == table.len() { 0 } else { end })
    }

    /// # Safety
    ///
    /// 1. The caller is in a section that began before the table was found.
    unsafe fn chain_length(&self, table: &BucketArray, bucket: usize) -> usize {
        let first = load(table.slot_at(bucket)).first();
        // SAFETY: the caller's section keeps the nodes, by 1.
        unsafe { nodes(&self.arena, first) }.count()
    }

    /// The number of nodes of the longest chain, nodes of other buckets included. Linear time.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of this table's domain.
    pub unsafe fn longest_chain(&self, section: &impl Section) -> usize {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller is in a section, by 1.
        let table = unsafe { self.current() };
        // SAFETY: the section began before the table was found (1).
        let length = |bucket| unsafe { self.chain_length(table, bucket) };
        (0..table.len()).map(length).max().unwrap_or(0)
    }
}

impl<A> Drop for RawTable<A> {
    fn drop(&mut self) {
        // Relaxed: the caller owns the table exclusively.
        let mut at = self.oldest.load(Relaxed);
        while let Some(table) = NonNull::new(at) {
            // SAFETY: every table was made from a box, is in this list once, and is not in the
            // resizer's garbage, which holds what came before `oldest`.
            let table = unsafe { Box::from_raw(table.as_ptr()) };
            at = table.next().map_or(ptr::null_mut(), NonNull::as_ptr);
        }
    }
}

#[inline]
fn prefetch_lines(node: NonNull<Link>, lines: usize) {
    let node = node.as_ptr().cast::<u8>();
    (0..lines).for_each(|line| hint::prefetch(node.wrapping_add(64 * line)));
}

impl<'t, A: Arena> Lineage<'t, A> {
    /// The tables in use for this hash, oldest first.
    fn levels(&self) -> impl Iterator<Item = &'t BucketArray> {
        let hash = self.hash;
        std::iter::successors(Some(self.root), move |table| {
            // `follow`: the word has `INIT`, and the lock keeps it so.
            table.word(hash).has(INIT).then(|| table.follow())
        })
    }

    fn is_plain(&self) -> bool {
        self.root.word(self.hash).flags() == LOCK
    }

    pub(super) fn unlock(self) {
        let slot = self.root.slot(self.hash);
        let word = load(slot);
        store(slot, word.replace_flags(word.flags() & !LOCK));
    }

    /// The predecessor of a node in a table's chain, if the chain contains the node.
    #[inline]
    fn predecessor_of(&self, link: &Link, table: &'t BucketArray) -> Option<Predecessor<'t>> {
        let bucket = Predecessor::Bucket(table.slot(self.hash));
        // SAFETY: the lock keeps the chain as it is, and the section of its owner keeps the nodes
        // (1).
        unsafe { bucket.to(self.arena, link) }
    }

    /// Inserts a node at the front.
    ///
    /// # Safety
    ///
    /// 1. 2 of [`RawTable::insert`] holds for the node; `link` is its link.
    unsafe fn insert(&self, node: NodeId, link: &Link) {
        let probe = Probe::new(self.hash);
        // The two newest tables with a bucket for this hash; during a shrink, the mirror is older.
        let (mut newest, mut before) = (self.root, self.mirror);
        for level in self.levels().skip(1) {
            (newest, before) = (level, Some(newest));
        }
        // While readers do not use the newest table, both words must lead to the node, and its next
        // link to everything that either word leads to: the chain of the smaller table.
        let other = before.filter(|_| !newest.is_published() && !mutant!("insert_newest_only"));
        let whole = match other {
            Some(other) if other.len() < newest.len() => other,
            _ => newest,
        };
        let rest = whole.word(self.hash);
        link.prepare(rest.first());
        let first = rest.prepend(node, probe);
        for table in [Some(newest), other].into_iter().flatten() {
            let slot = table.slot(self.hash);
            // The parent's chain may have nodes of several children from now on.
            let lost = if mutant!("stays_pure") { 0 } else { PURE };
            store(slot, first.replace_flags(load(slot).flags() & !lost));
        }
    }

    /// Unlinks a node that is in the table and returns its ID.
    fn remove(&self, link: &Link) -> NodeId {
        let node = if self.is_plain() {
            let predecessor = self.predecessor_of(link, self.root).expect(LINKED);
            let node = predecessor.leads_to();
            predecessor.set_next(link.next());
            node
        } else {
            self.remove_from_all(link)
        };
        if !mutant!("no_mark") {
            link.remove();
        }
        node.expect(LINKED)
    }

    #[cold]
    fn remove_from_all(&self, link: &Link) -> Option<NodeId> {
        let links = self.links_to(link);
        let node = links.newest_first().next()?.0.leads_to();
        for (predecessor, target) in links.newest_first() {
            predecessor.set_next(target);
            if mutant!("one_link") {
                break;
            }
        }
        // These levels wait for a grace period before they cut again.
        let trunks = if mutant!("no_hold") { 0 } else { links.trunks };
        for (_, table) in self
            .levels()
            .enumerate()
            .filter(|(n, _)| trunks >> n & 1 != 0)
        {
            let slot = table.slot(self.hash);
            store(slot, load(slot).set_flags(HOLD));
        }
        node
    }

    /// Replaces a node; returns the old ID.
    ///
    /// # Safety
    ///
    /// 1. `old` is in the table and has the lineage's hash.
    /// 2. 2 of [`RawTable::insert`] holds for `new`; both have the same hash.
    unsafe fn replace(&self, old: &Link, new: NodeId) -> NodeId {
        // SAFETY: the node is the caller's, by 2.
        let link = unsafe { self.arena.link(new).as_ref() };
        debug_assert_eq!(old.hash(), link.hash());
        link.prepare(old.next());
        let mut node = None;
        let mut redirect = |predecessor: Predecessor<'_>| {
            node = predecessor.leads_to();
            predecessor.set_next(Some(new));
        };
        if self.is_plain() {
            redirect(self.predecessor_of(old, self.root).expect(LINKED));
        } else {
            let links = self.links_to(old);
            for (predecessor, _) in links.newest_first() {
                redirect(predecessor);
                if mutant!("replace_one_link") {
                    break;
                }
            }
        }
        if !mutant!("replace_no_mark") {
            old.remove();
        }
        node.expect(LINKED)
    }

    /// All links to a node, each with the node that it should lead to after the removal. See
    /// [*Several predecessors*](self#several-predecessors).
    fn links_to(&self, link: &Link) -> IncomingLinks<'t> {
        let mut links = IncomingLinks::new();
        let next_of_child = |children: &BucketArray| {
            let bucket = children.index(link.hash());
            // SAFETY: the lock keeps the chain as it is, and the section of its owner keeps the
            // nodes (1).
            unsafe { first_of_child(self.arena, link.next(), children, bucket) }
        };
        // In the mirror, at most the bucket's own word leads to the node, into a chain of the root.
        if let Some(mirror) = self.mirror
            && !mutant!("no_mirror")
        {
            let predecessor = Predecessor::Bucket(mirror.slot(self.hash));
            // SAFETY: read from a word, in the owner's section.
            let first = predecessor
                .leads_to()
                .map(|id| unsafe { self.arena.link(id) });
            if first == Some(NonNull::from(link)) {
                // The word must lead to a node of the same bucket of the mirror: updates of other
                // buckets do not look for links in the mirror.
                let target = if mutant!("mirror_strays") {
                    link.next()
                } else {
                    next_of_child(mirror)
                };
                links.push(predecessor, target);
            }
        }
        // The children of the last level so far whose trunk contains the node.
        let mut into_trunk: Option<&BucketArray> = None;
        for (level, table) in self.levels().enumerate() {
            // The newest level has no children, so its chain is no trunk.
            let children = table.word(self.hash).has(INIT).then(|| table.follow());
            // The node lies before the part of the chain that this level's word leads to.
            let Some(predecessor) = self.predecessor_of(link, table) else {
                continue;
            };
            // The walks of two levels may reach the node by the same link.
            if !links.has(predecessor) {
                let target = match into_trunk {
                    // A link from before the trunk into it: all links before it lead to nodes of
                    // one child.
                    Some(children) => next_of_child(children),
                    None => link.next(),
                };
                links.push(predecessor, target);
            }
            if children.is_some() {
                links.trunks |= 1 << level;
            }
            into_trunk = children;
        }
        links
    }
}

const LINKED: &str = "a node that is not removed is in the chain of its bucket";

impl<'t> IncomingLinks<'t> {
    fn new() -> Self {
        Self {
            trunks: 0,
            found: [None; MAX_LEVELS + 1],
            len: 0,
        }
    }

    fn push(&mut self, predecessor: Predecessor<'t>, target: Option<NodeId>) {
        self.found[self.len] = Some((predecessor, target));
        self.len += 1;
    }

    fn has(&self, predecessor: Predecessor<'_>) -> bool {
        let found = self.found[..self.len].iter().flatten();
        found.into_iter().any(|(other, _)| other.is(predecessor))
    }

    fn newest_first(&self) -> impl Iterator<Item = (Predecessor<'t>, Option<NodeId>)> {
        self.found[..self.len].iter().rev().flatten().copied()
    }
}

/// Iterator over the nodes of a [`RawTable`]; returned by [`RawTable::iter`].
pub struct RawIter<'t, A> {
    arena: &'t A,
    table: &'t BucketArray,
    /// The current bucket; its chain may contain nodes of other buckets.
    bucket: usize,
    end: usize,
    rest: ChainNodes<'t, A>,
}

impl<'t, A: Arena> RawIter<'t, A> {
    /// # Safety
    ///
    /// 1. As for [`RawTable::iter`]; the table was found in the section.
    unsafe fn new(arena: &'t A, table: &'t BucketArray, buckets: std::ops::Range<usize>) -> Self {
        let first = load(table.slot_at(buckets.start)).first();
        Self {
            arena,
            table,
            bucket: buckets.start,
            end: buckets.end,
            // SAFETY: the caller's section keeps the nodes while the iterator and what it yields
            // are used, by 1.
            rest: unsafe { nodes(arena, first) },
        }
    }

    /// The number of buckets that are not finished.
    pub fn buckets_left(&self) -> usize {
        self.end - self.bucket
    }

    /// Splits off an iterator over the second half of the remaining buckets, if there are at least
    /// two.
    pub fn split(&mut self) -> Option<Self> {
        let middle = self.bucket + (self.end - self.bucket).div_ceil(2);
        if middle >= self.end {
            return None;
        }
        // SAFETY: the new iterator borrows as this one does, and the contract of `iter` covers both
        // (1).
        let second = unsafe { RawIter::new(self.arena, self.table, middle..self.end) };
        self.end = middle;
        Some(second)
    }

    /// Reads one link, or the next bucket at the end of a chain. Returns the node that the link
    /// belongs to, unless that is one of another bucket.
    #[inline]
    pub(super) fn step(&mut self) -> Option<NonNull<Link>> {
        if let Some((_, link)) = self.rest.next() {
            let is_own = self.table.index(link.hash()) == self.bucket;
            return (is_own || mutant!("iterates_strays")).then(|| NonNull::from(link));
        }
        self.bucket += 1;
        if self.bucket < self.end {
            // SAFETY: the contract of `iter` still covers this iterator (1).
            *self = unsafe { RawIter::new(self.arena, self.table, self.bucket..self.end) };
        }
        None
    }
}

impl<A: Arena> Iterator for RawIter<'_, A> {
    type Item = NonNull<Link>;

    #[inline]
    fn next(&mut self) -> Option<NonNull<Link>> {
        while self.bucket < self.end {
            if let Some(link) = self.step() {
                return Some(link);
            }
        }
        None
    }
}
