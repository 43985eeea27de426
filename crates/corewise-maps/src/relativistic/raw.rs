//! The intrusive table: reads, updates, and the locks between updates and resizing.
//!
//! Nodes are the caller's: each has a [`Link`], a name, and a place that the caller's [`Arena`] knows.
//! The table knows names and links only. So a cache's items can be its nodes.
//!
//! # Who may change what
//!
//! The *lineage* of a hash is its bucket in each table from the oldest to the newest in use. It is
//! covered by one lock: the `LOCK` bit of its word in the oldest table in which it is not forwarded.
//! For a plain bucket that is the bucket's own word, found in one step. While buckets are zipped it
//! is the parent's, made of the hash bits that all its children share (DESIGN decision 3); while a
//! bucket is cross-linked it is that of the smaller table.
//!
//! Under the lock, and only there, links of nodes in the lineage's chains and all words of the
//! lineage are written. One exception: an insertion into a plain, unlocked bucket exchanges the
//! bucket's word.
//!
//! | | find | insert | remove, replace | resize step |
//! |---|---|---|---|---|
//! | waits for | nothing | updates and steps on its lineage | same | updates on its lineage |
//! | progress | wait-free: bounded by the chain | lock-free on plain buckets, else blocking | blocking | blocking |
//!
//! Nothing waits for a grace period, and nobody calls foreign code, while a lock is held.
//!
//! # Several predecessors
//!
//! While chains are zipped a node may be reached through more links than one: through its own
//! chain, and through nodes of other buckets that unzipping has not come to. Let the *trunk* of a
//! level be what can be reached from the parent's word, whose pointer moves along as unzipping
//! goes. Before it, every link leads to a node of the same child; in it, links are as they were
//! before the expansion. So the links to a node are at most one in each level's trunk, and one on
//! its own chain; [`Lineage::links_to`] finds them by one walk for each level. A link from before a
//! trunk into it must go on to a node of its own child, a link in the trunk to the next node.
//! Readers that stand on the removed node still follow the old trunk, so the level is told to let a
//! grace period pass before it cuts there again (`HOLD`). A replacement takes its
//! predecessor's place in all links and changes no path.
//!
//! Links are changed in the order newest table first: whoever sees a change through an older one
//! and looks again sees it too.

use std::ptr::{self, NonNull};

use corewise_atomic::hint;
use corewise_atomic::lock::Mutex;
use corewise_atomic::mutant;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};
use corewise_rcu::{Domain, Section};

use super::chain::{Arena, Link, Nodes, Slot, first_of_child, nodes, search};
use super::resize::{Left, Resizer};
use super::table::{Table, exchange, is_forwarded, load, publish, store};
use super::word::{HOLD, INIT, LOCK, NodeId, Probe, Word, fold};
use crate::waiting::Waiting;

/// The most tables that may be in use at a time: doublings while no grace period ends.
pub(super) const MAX_LEVELS: usize = 48;

/// How a table behaves as entries come and go.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// It is never shrunk below this many buckets by itself.
    pub min_buckets: usize,
    /// It grows when there are more entries than three for four buckets, and shrinks below one for
    /// eight.
    pub automatic: bool,
}

impl Policy {
    /// The entries above which so many buckets are too few.
    ///
    /// Three quarters: 11 to 21 bytes of buckets an entry. A load of 1 made chains longer where it
    /// is felt most, just before a doubling.
    pub(super) fn most_entries(buckets: usize) -> usize {
        buckets - buckets / 4
    }

    /// The power of two of buckets that so many entries fit into.
    pub(super) fn buckets_for(entries: usize) -> usize {
        let wanted = entries.saturating_add(entries / 3 + 1);
        // No array has more; making it fails.
        wanted
            .checked_next_power_of_two()
            .unwrap_or(1 << (usize::BITS - 1))
    }
}

/// A resizable hash table of the caller's nodes.
pub struct RawTable<A> {
    arena: A,
    /// What readers use.
    current: AtomicPtr<Table>,
    /// Where the search for a lineage's lock begins.
    oldest: AtomicPtr<Table>,
    /// There is something for [`RawTable::step`] to do.
    pub(super) work: AtomicBool,
    /// Entries, give or take what callers have not reported yet: an `isize`.
    count: AtomicUsize,
    /// The counts at which to grow and to shrink.
    pub(super) grow_above: AtomicUsize,
    pub(super) shrink_below: AtomicUsize,
    pub(super) report_after: AtomicUsize,
    /// It does not grow beyond so many buckets by itself, and how many it wanted when it came there.
    pub(super) most_buckets: AtomicUsize,
    pub(super) wanted_buckets: AtomicUsize,
    /// Bytes of all bucket arrays, of those too that wait for readers.
    pub(super) array_bytes: AtomicUsize,
    pub(super) resizer: Mutex<Resizer>,
    pub(super) left: Left,
    domain: Domain,
}

// SAFETY: the pointers are to tables that the `RawTable` owns and to nodes that its users link
// under the contract of `insert`; everything shared is atomic or under the lock.
unsafe impl<A: Send> Send for RawTable<A> {}
// SAFETY: as above.
unsafe impl<A: Sync> Sync for RawTable<A> {}

/// The locked lineage of a hash.
pub(super) struct Lineage<'t, A> {
    arena: &'t A,
    /// The table whose word is locked.
    root: &'t Table,
    /// The larger table that readers still use while the smaller one is being linked.
    mirror: Option<&'t Table>,
    hash: u32,
}

/// The links that lead to a node, oldest level first.
struct Links<'t> {
    /// Bit n: the trunk of the nth level has the node.
    trunks: u64,
    found: [Option<(Slot<'t>, Option<NodeId>)>; MAX_LEVELS + 1],
    len: usize,
}

impl<A: Arena> RawTable<A> {
    /// An empty table of `buckets` buckets in a domain, for nodes of an arena.
    ///
    /// # Panics
    ///
    /// If `buckets` is 0, or there is no memory.
    pub fn new(buckets: usize, policy: Policy, domain: Domain, arena: A) -> Self {
        assert!(buckets > 0, "a table needs a bucket");
        let table = Table::try_new(buckets, true).expect("no memory for the bucket array");
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
            most_buckets: AtomicUsize::new(usize::MAX),
            wanted_buckets: AtomicUsize::new(0),
            array_bytes: AtomicUsize::new(buckets * size_of::<u64>()),
            resizer: Mutex::new(Resizer::new(policy)),
            left: Left::new(),
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

    /// Where its nodes are.
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
    /// 1. The reference is not used after the caller's section, or after what keeps the table from
    ///    being replaced.
    #[inline(always)]
    pub(super) unsafe fn current(&self) -> &Table {
        // Acquire: pairs with the Release in `publish`, so the table's fields are seen.
        // SAFETY: the pointer is never null, and a table is freed a grace period after it was
        // replaced; the caller answers for the rest.
        unsafe { &*self.current.load(Acquire) }
    }

    /// # Safety
    ///
    /// 1. As for [`RawTable::current`].
    pub(super) unsafe fn oldest(&self) -> &Table {
        // Acquire: pairs with the Release in `set_oldest`.
        // SAFETY: as in `current`.
        unsafe { &*self.oldest.load(Acquire) }
    }

    pub(super) fn set_oldest(&self, table: *mut Table) {
        // Release: pairs with the Acquire in `oldest`.
        self.oldest.store(table, Release);
    }

    /// Sends readers to a table in which they find everything.
    pub(super) fn publish(&self, table: *mut Table) {
        // Release: pairs with the Acquire in `current`.
        self.current.store(table, publish());
    }

    /// The node with this hash for which `is_it` says so.
    ///
    /// Wait-free: bounded by the length of the chain. A node that is in the table during the whole
    /// call is found, whatever else goes on. §4 of the paper, *RP hash lookup reader*.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of this table's domain.
    #[inline(always)]
    pub unsafe fn find(
        &self,
        section: &impl Section,
        hash: u64,
        is_it: impl FnMut(NonNull<Link>) -> bool,
    ) -> Option<NonNull<Link>> {
        // SAFETY: the caller's.
        unsafe { self.find_by(&self.arena, section, hash, is_it) }
    }

    /// As [`RawTable::find`], with another view of the arena, which may know more at compile time.
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
        is_it: impl FnMut(NonNull<Link>) -> bool,
    ) -> Option<NonNull<Link>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller is in a section, by 1.
        let table = unsafe { self.current() };
        let hash = fold(hash);
        // SAFETY: as above.
        unsafe { search(view, table.word(hash), hash, is_it) }
    }

    /// Asks for the cache lines that a `find` of this hash will read first.
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

    /// Asks for the cache lines of the node that a `find` of this hash will look at first: `lines` of 64
    /// bytes. Reads the bucket, so let [`RawTable::prefetch`] go before.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of this table's domain.
    #[inline]
    pub unsafe fn prefetch_first(&self, section: &impl Section, hash: u64, lines: usize) {
        // SAFETY: the caller's.
        if let Some(first) = unsafe { self.first_by(&self.arena, section, hash) } {
            prefetch_lines(first, lines);
        }
    }

    /// The node that a `find_by` of this hash looks at first, if it looks at any.
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
        let word = unsafe { self.current() }.word(hash);
        let first = word.first_for(Probe::new(hash))?;
        // SAFETY: as above: the node is kept.
        Some(unsafe { view.link(first) })
    }

    /// Asks for the node behind the one that [`RawTable::prefetch_first`] asks for, if that one has another
    /// hash. Reads the first node, so let that go before.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of this table's domain.
    #[inline]
    pub unsafe fn prefetch_second(&self, section: &impl Section, hash: u64, lines: usize) {
        // SAFETY: the caller's.
        if let Some(second) = unsafe { self.second_by(&self.arena, section, hash) } {
            prefetch_lines(second, lines);
        }
    }

    /// The node that a `find_by` of this hash looks at after the [first](Self::first_by), if that has another hash.
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
        // SAFETY: 1; the section keeps the node.
        let header = unsafe { self.first_by(view, section, hash)?.as_ref() }.header();
        if header.has_hash(fold(hash)) {
            return None;
        }
        // SAFETY: as above.
        header.next().map(|second| unsafe { view.link(second) })
    }

    /// Inserts `node` unless there is one for which `is_it` says so, which is then returned.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of this table's domain.
    /// 2. `node` is one of the arena's, is in no table, and is not freed until a grace period after
    ///    it was removed; nor is it inserted anywhere before that.
    #[inline]
    pub unsafe fn insert(
        &self,
        section: &impl Section,
        node: NodeId,
        mut is_it: impl FnMut(NonNull<Link>) -> bool,
    ) -> Result<(), NonNull<Link>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: nobody else has the node yet, by 2.
        let link = unsafe { self.arena.link(node).as_ref() };
        let hash = link.hash();
        let probe = Probe::new(hash);
        loop {
            // SAFETY: the caller is in a section, by 1.
            let table = unsafe { self.current() };
            let slot = table.slot(hash);
            let seen = load(slot);
            // SAFETY: as above.
            if let Some(found) = unsafe { search(&self.arena, seen, hash, &mut is_it) } {
                return Err(found);
            }
            let inserted = if seen.flags() == 0 || mutant!("insert_ignores_flags") {
                link.prepare(seen.first());
                exchange(slot, seen, seen.prepend(node, probe))
            } else {
                self.insert_slowly(node, link, table, seen)
            };
            if inserted {
                return Ok(());
            }
        }
    }

    /// Inserts into a bucket that is locked or being resized, if nothing was inserted since
    /// `seen`.
    #[cold]
    fn insert_slowly(&self, node: NodeId, link: &Link, table: &Table, seen: Word) -> bool {
        let lineage = self.lock_slowly(link.hash());
        // SAFETY: the callers are in a section.
        let unchanged = ptr::eq(unsafe { self.current() }, table)
            && table.word(link.hash()).first() == seen.first()
            || mutant!("insert_blind");
        if unchanged {
            lineage.insert(node, link);
        }
        lineage.unlock();
        unchanged
    }

    /// Removes a node that was found; its name, or `None` if somebody else did. The caller may free
    /// it after a grace period.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of this table's domain, and the node was found in it.
    #[inline]
    pub unsafe fn remove(&self, section: &impl Section, node: NonNull<Link>) -> Option<NodeId> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the node lives while the section does, by 1.
        let link = unsafe { node.as_ref() };
        let lineage = self.lock(link.hash());
        let present = !link.is_removed();
        let removed = present.then(|| lineage.remove(link));
        lineage.unlock();
        removed
    }

    /// Puts `new` in the place of a node that was found; the name of that, or `None` if somebody else
    /// removed or replaced it. Readers find one of the two at any time.
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
        let lineage = self.lock(old.hash());
        let present = !old.is_removed();
        let replaced = present.then(|| lineage.replace(old, new));
        lineage.unlock();
        replaced
    }

    /// Locks the lineage of a hash.
    #[inline]
    fn lock(&self, hash: u32) -> Lineage<'_, A> {
        // SAFETY: the callers are in a section.
        let table = unsafe { self.current() };
        let slot = table.slot(hash);
        let word = load(slot);
        if word.flags() == 0 && exchange(slot, word, word.with_flags(LOCK)) {
            return Lineage {
                arena: &self.arena,
                root: table,
                mirror: None,
                hash,
            };
        }
        self.lock_slowly(hash)
    }

    /// As [`RawTable::lock`], whatever the state of the bucket. Also takes, for the hash, a bucket
    /// number of the newest table of which no bucket has been forwarded.
    #[cold]
    pub(super) fn lock_slowly(&self, hash: u32) -> Lineage<'_, A> {
        // SAFETY: the callers are in a section, or are the resizer.
        let mut table = unsafe { self.oldest() };
        let mut came_from = None;
        let mut waiting = Waiting::default();
        loop {
            let slot = table.slot(hash);
            let word = load(slot);
            if is_forwarded(word) {
                came_from = Some(table);
                table = table.follow();
            } else if word.has(LOCK) && !mutant!("no_exclusion") {
                waiting.a_moment();
            } else if exchange(slot, word, word.and_flags(LOCK)) {
                break;
            }
        }
        let mirror = came_from.filter(|from| from.len() > table.len() && !table.is_published());
        Lineage {
            arena: &self.arena,
            root: table,
            mirror,
            hash,
        }
    }

    /// Changes the count of entries, and asks for a resize if it is due.
    #[inline]
    pub fn adjust(&self, by: isize) {
        // Relaxed, all: numbers that publish nothing; the resizer looks again under its lock.
        let before = self.count.fetch_add(by.cast_unsigned(), Relaxed);
        let count = before.cast_signed().wrapping_add(by).max(0).cast_unsigned();
        if count > self.grow_above.load(Relaxed) || count < self.shrink_below.load(Relaxed) {
            self.work.store(true, Relaxed);
        }
    }

    /// How many entries more or fewer a thread may keep to itself before it calls
    /// [`RawTable::adjust`]: few enough not to matter.
    #[inline(always)]
    pub fn report_after(&self) -> usize {
        // Relaxed: as in `adjust`.
        self.report_after.load(Relaxed)
    }

    /// Entries, as far as they were reported.
    pub(super) fn count(&self) -> usize {
        // Relaxed: as in `adjust`.
        self.count
            .load(Relaxed)
            .cast_signed()
            .max(0)
            .cast_unsigned()
    }

    /// Bytes of all bucket arrays: of the one in use, of those under construction, and of those that
    /// readers may still be in.
    #[inline]
    pub fn array_bytes(&self) -> usize {
        // Relaxed: a number that publishes nothing, here and where it changes.
        self.array_bytes.load(Relaxed)
    }

    /// From now on the table does not grow beyond `buckets` by itself: for an owner with a budget of
    /// memory, who raises this when there is room for what [`RawTable::wanted_buckets`] says.
    /// Chains get longer meanwhile.
    pub fn set_most_buckets(&self, buckets: usize) {
        let mut resizer = self.resizer.lock();
        // Relaxed, both: read and written under the lock, or hints.
        self.most_buckets.store(buckets, Relaxed);
        self.wanted_buckets.store(0, Relaxed);
        resizer.reconsider(self);
        self.adjust(0);
    }

    /// The number of buckets that the table should have by the number of its entries and may not; 0 if
    /// it has them. A new array of so many words of 8 bytes is needed then, beside the present one.
    #[inline]
    pub fn wanted_buckets(&self) -> usize {
        // Relaxed: a hint.
        self.wanted_buckets.load(Relaxed)
    }

    /// Whether [`RawTable::step`] has something to do.
    #[inline(always)]
    pub fn has_work(&self) -> bool {
        // Relaxed: a hint.
        self.work.load(Relaxed)
    }

    /// Visits every node once, for an owner that nobody else shares the table with. A node may be
    /// freed when it is visited: a resize under way is completed first, so that no chain leads
    /// through the nodes of another bucket.
    pub fn for_each_mut(&mut self, mut visit: impl FnMut(&A, NodeId)) {
        self.finish_alone();
        // SAFETY: the table is ours alone.
        let table = unsafe { self.current() };
        for bucket in 0..table.len() {
            let first = load(table.slot_at(bucket)).first();
            // SAFETY: as above; the way on is read before a node is given away.
            for (id, _) in unsafe { nodes(&self.arena, first) } {
                visit(&self.arena, id);
            }
        }
    }

    /// An iterator over the nodes that are there.
    ///
    /// Every node that is in the table during the whole iteration is visited once; one that is
    /// inserted or removed meanwhile, once or not at all. Amortised constant time, wait-free.
    ///
    /// # Safety
    ///
    /// 1. The iterator and what it yields are not used after the section.
    pub unsafe fn iter(&self, section: &impl Section) -> RawIter<'_, A> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller is in a section, by 1.
        let table = unsafe { self.current() };
        RawIter::new(&self.arena, table, 0..table.len())
    }

    /// The longest chain among `count` buckets from `from` on, imprecise members included, and the bucket
    /// to go on at: 0 if they were the last ones.
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
        // SAFETY: as above.
        let length = |bucket| unsafe { self.chain_length(table, bucket) };
        let longest = (from.min(end)..end).map(length).max().unwrap_or(0);
        (longest, if end == table.len() { 0 } else { end })
    }

    /// # Safety
    ///
    /// 1. The caller is in a section that began before the table was found.
    unsafe fn chain_length(&self, table: &Table, bucket: usize) -> usize {
        let first = load(table.slot_at(bucket)).first();
        // SAFETY: 1.
        unsafe { nodes(&self.arena, first) }.count()
    }

    /// The number of nodes of the longest chain, imprecise members included. Linear time.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of this table's domain.
    pub unsafe fn longest_chain(&self, section: &impl Section) -> usize {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller is in a section, by 1.
        let table = unsafe { self.current() };
        // SAFETY: as above.
        let length = |bucket| unsafe { self.chain_length(table, bucket) };
        (0..table.len()).map(length).max().unwrap_or(0)
    }
}

impl<A> Drop for RawTable<A> {
    fn drop(&mut self) {
        // Relaxed: the table is ours alone.
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
    fn levels(&self) -> impl Iterator<Item = &'t Table> {
        let hash = self.hash;
        std::iter::successors(Some(self.root), move |table| {
            // `follow`: the word says so, and the lock keeps it.
            table.word(hash).has(INIT).then(|| table.follow())
        })
    }

    fn is_plain(&self) -> bool {
        self.root.word(self.hash).flags() == LOCK
    }

    pub(super) fn unlock(self) {
        let slot = self.root.slot(self.hash);
        let word = load(slot);
        store(slot, word.with_flags(word.flags() & !LOCK));
    }

    /// The slot in a table's chain that leads to a node.
    #[inline]
    fn slot_of(&self, link: &Link, table: &'t Table) -> Option<Slot<'t>> {
        let bucket = Slot::Bucket(table.slot(self.hash));
        // SAFETY: the lock keeps the chain, and the caller's section its nodes.
        unsafe { bucket.to(self.arena, link) }
    }

    /// Puts a node that nobody has in front.
    fn insert(&self, node: NodeId, link: &Link) {
        let probe = Probe::new(self.hash);
        let (mut newest, mut before) = (self.root, self.mirror);
        for level in self.levels().skip(1) {
            (newest, before) = (level, Some(newest));
        }
        // While readers do not use the newest table, both words must lead to the node, and on to
        // what can be found through either: the smaller table's chain.
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
            store(slot, first.with_flags(load(slot).flags()));
        }
    }

    /// Unlinks a node that is there; its name.
    fn remove(&self, link: &Link) -> NodeId {
        let node = if self.is_plain() {
            let slot = self.slot_of(link, self.root).expect(LINKED);
            let node = slot.leads_to();
            slot.lead_to(link.next());
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
        for (slot, target) in links.newest_first() {
            slot.lead_to(target);
            if mutant!("one_link") {
                break;
            }
        }
        // Those levels wait before they cut again.
        let trunks = if mutant!("no_hold") { 0 } else { links.trunks };
        for (_, table) in self
            .levels()
            .enumerate()
            .filter(|(n, _)| trunks >> n & 1 != 0)
        {
            let slot = table.slot(self.hash);
            store(slot, load(slot).and_flags(HOLD));
        }
        node
    }

    /// Puts a node that nobody has in the place of one that is there; the name of that.
    fn replace(&self, old: &Link, new: NodeId) -> NodeId {
        // SAFETY: the caller's own.
        let link = unsafe { self.arena.link(new).as_ref() };
        debug_assert_eq!(old.hash(), link.hash());
        link.prepare(old.next());
        let mut node = None;
        let mut put = |slot: Slot<'_>| {
            node = slot.leads_to();
            slot.lead_to(Some(new));
        };
        if self.is_plain() {
            put(self.slot_of(old, self.root).expect(LINKED));
        } else {
            let links = self.links_to(old);
            for (slot, _) in links.newest_first() {
                put(slot);
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

    /// All links to a node, and where each should lead when the node is gone.
    fn links_to(&self, link: &Link) -> Links<'t> {
        let mut links = Links::new();
        let next_of_child = |children: &Table| {
            let bucket = children.index(link.hash());
            // SAFETY: the lock keeps the chain, and the caller's section its nodes.
            unsafe { first_of_child(self.arena, link.next(), children, bucket) }
        };
        // The mirror has at most its own word leading there, into a chain that is the root's. It must
        // go on to a node of its own bucket: updates of others do not look for links here.
        if let Some(mirror) = self.mirror
            && !mutant!("no_mirror")
        {
            let slot = Slot::Bucket(mirror.slot(self.hash));
            // SAFETY: as above.
            let first = slot.leads_to().map(|id| unsafe { self.arena.link(id) });
            if first == Some(NonNull::from(link)) {
                let target = match mutant!("mirror_strays") {
                    true => link.next(),
                    false => next_of_child(mirror),
                };
                links.push(slot, target);
            }
        }
        // The last level so far whose trunk has the node, and the table of its children.
        let mut into_trunk: Option<&Table> = None;
        for (level, table) in self.levels().enumerate() {
            let children = table.word(self.hash).has(INIT).then(|| table.follow());
            let Some(slot) = self.slot_of(link, table) else {
                continue;
            };
            if !links.has(slot) {
                let target = match into_trunk {
                    Some(children) => next_of_child(children),
                    None => link.next(),
                };
                links.push(slot, target);
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

impl<'t> Links<'t> {
    fn new() -> Self {
        Self {
            trunks: 0,
            found: [None; MAX_LEVELS + 1],
            len: 0,
        }
    }

    fn push(&mut self, slot: Slot<'t>, target: Option<NodeId>) {
        self.found[self.len] = Some((slot, target));
        self.len += 1;
    }

    fn has(&self, slot: Slot<'_>) -> bool {
        let found = self.found[..self.len].iter().flatten();
        found.into_iter().any(|(other, _)| other.is(slot))
    }

    fn newest_first(&self) -> impl Iterator<Item = (Slot<'t>, Option<NodeId>)> {
        self.found[..self.len].iter().rev().flatten().copied()
    }
}

/// Iterator over the nodes of a [`RawTable`]; from [`RawTable::iter`].
pub struct RawIter<'t, A> {
    arena: &'t A,
    table: &'t Table,
    /// The bucket that is being visited; its chain may have nodes that are not its own.
    bucket: usize,
    end: usize,
    rest: Nodes<'t, A>,
}

impl<'t, A: Arena> RawIter<'t, A> {
    fn new(arena: &'t A, table: &'t Table, buckets: std::ops::Range<usize>) -> Self {
        let first = load(table.slot_at(buckets.start)).first();
        Self {
            arena,
            table,
            bucket: buckets.start,
            end: buckets.end,
            // SAFETY: the maker of the iterator keeps its section.
            rest: unsafe { nodes(arena, first) },
        }
    }

    /// Buckets not begun yet.
    pub fn buckets_left(&self) -> usize {
        self.end - self.bucket
    }

    /// Leaves this iterator the first half of its buckets and returns one over the second, if there
    /// are two.
    pub fn split(&mut self) -> Option<Self> {
        let middle = self.bucket + (self.end - self.bucket).div_ceil(2);
        if middle >= self.end {
            return None;
        }
        let second = RawIter::new(self.arena, self.table, middle..self.end);
        self.end = middle;
        Some(second)
    }
}

impl<A: Arena> Iterator for RawIter<'_, A> {
    type Item = NonNull<Link>;

    fn next(&mut self) -> Option<NonNull<Link>> {
        while self.bucket < self.end {
            let is_own = |(_, link): &(NodeId, &Link)| {
                self.table.index(link.hash()) == self.bucket || mutant!("iterates_strays")
            };
            if let Some((_, link)) = self.rest.find(is_own) {
                return Some(NonNull::from(link));
            }
            self.bucket += 1;
            if self.bucket < self.end {
                *self = RawIter::new(self.arena, self.table, self.bucket..self.end);
            }
        }
        None
    }
}
