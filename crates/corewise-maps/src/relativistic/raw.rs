//! The intrusive table: reads, updates, and the locks between updates and resizing.
//!
//! Nodes are the caller's: each has a [`Link`] at a place that the caller knows, and the table
//! knows links only. So it is compiled once for all types, and a cache's items can be its nodes.
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
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};
use corewise_atomic::thread;
use corewise_rcu::{Domain, Section};

use super::resize::{Left, Resizer};
use super::table::{Table, exchange, is_forwarded, load, store};
use super::word::{HOLD, INIT, LOCK, Probe, REMOVED, Word};

/// What a node must have: its place in a chain, and its hash.
#[repr(C, align(16))]
pub struct Link {
    next: AtomicPtr<Link>,
    hash: u64,
}

#[cfg(all(target_pointer_width = "64", not(any(corewise_loom, corewise_shuttle))))]
const _: () = assert!(size_of::<Link>() == 16);

impl Link {
    /// The link of a node with this hash that is in no table.
    #[inline]
    pub fn new(hash: u64) -> Self {
        Self {
            next: AtomicPtr::new(ptr::null_mut()),
            hash,
        }
    }

    /// The hash.
    #[inline(always)]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    #[inline(always)]
    pub(super) fn next(&self) -> Word {
        load(&self.next)
    }

    #[inline(always)]
    pub(super) fn slot(&self) -> &AtomicPtr<Link> {
        &self.next
    }

    fn is_removed(&self) -> bool {
        self.next().has(REMOVED)
    }
}

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
pub struct RawTable {
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
    pub(super) resizer: Mutex<Resizer>,
    pub(super) left: Left,
    domain: Domain,
}

// SAFETY: the pointers are to tables that the `RawTable` owns and to nodes that its users link
// under the contract of `insert`; everything shared is atomic or under the lock.
unsafe impl Send for RawTable {}
// SAFETY: as above.
unsafe impl Sync for RawTable {}

/// The locked lineage of a hash.
pub(super) struct Lineage<'t> {
    /// The table whose word is locked.
    root: &'t Table,
    /// The larger table that readers still use while the smaller one is being linked.
    mirror: Option<&'t Table>,
    hash: u64,
}

/// The links that lead to a node, oldest level first.
struct Links<'t> {
    /// Bit n: the trunk of the nth level has the node.
    trunks: u64,
    found: [Option<(&'t AtomicPtr<Link>, Word)>; MAX_LEVELS + 1],
    len: usize,
}

impl RawTable {
    /// An empty table of `buckets` buckets in a domain.
    ///
    /// # Panics
    ///
    /// If `buckets` is 0, or there is no memory.
    pub fn new(buckets: usize, policy: Policy, domain: Domain) -> Self {
        assert!(buckets > 0, "a table needs a bucket");
        let table = Table::try_new(buckets, true).expect("no memory for the bucket array");
        let table = Box::into_raw(table);
        let raw = Self {
            current: AtomicPtr::new(table),
            oldest: AtomicPtr::new(table),
            work: AtomicBool::new(false),
            count: AtomicUsize::new(0),
            grow_above: AtomicUsize::new(usize::MAX),
            shrink_below: AtomicUsize::new(0),
            report_after: AtomicUsize::new(1),
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
        self.current.store(table, super::table::PUBLISH);
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
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller is in a section, by 1.
        let table = unsafe { self.current() };
        // SAFETY: as above.
        unsafe { search(table.word(hash), hash, is_it) }
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
        hint::prefetch(unsafe { self.current() }.slot(hash));
    }

    /// Inserts `node` unless there is one for which `is_it` says so, which is then returned.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of this table's domain.
    /// 2. `node` is in no table, stays where it is and is not freed until a grace period after it
    ///    was removed; nor is it inserted anywhere before that.
    /// 3. Its address is a multiple of 16 and, where pointers have 64 bits, below 2^48.
    #[inline]
    pub unsafe fn insert(
        &self,
        section: &impl Section,
        node: NonNull<Link>,
        mut is_it: impl FnMut(NonNull<Link>) -> bool,
    ) -> Result<(), NonNull<Link>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        assert!(
            Word::can_hold(node.as_ptr()),
            "the node's address is out of range"
        );
        // SAFETY: nobody else has the node yet, by 2.
        let link = unsafe { node.as_ref() };
        let hash = link.hash;
        let probe = Probe::new(hash);
        loop {
            // SAFETY: the caller is in a section, by 1.
            let table = unsafe { self.current() };
            let slot = table.slot(hash);
            let seen = load(slot);
            // SAFETY: as above.
            if let Some(found) = unsafe { search(seen, hash, &mut is_it) } {
                return Err(found);
            }
            let inserted = if seen.flags() == 0 {
                // Relaxed: published by the exchange.
                link.next.store(seen.0, Relaxed);
                exchange(slot, seen, seen.prepend(node.as_ptr(), probe))
            } else {
                self.insert_slowly(link, table, seen)
            };
            if inserted {
                return Ok(());
            }
        }
    }

    /// Inserts into a bucket that is locked or being resized, if nothing was inserted since
    /// `seen`.
    #[cold]
    fn insert_slowly(&self, link: &Link, table: &Table, seen: Word) -> bool {
        let lineage = self.lock_slowly(link.hash);
        // SAFETY: the callers are in a section.
        let unchanged = ptr::eq(unsafe { self.current() }, table)
            && table.word(link.hash).node() == seen.node();
        if unchanged {
            lineage.insert(link);
        }
        lineage.unlock();
        unchanged
    }

    /// Removes a node that was found; false if somebody else did. The caller may free it after a
    /// grace period.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of this table's domain, and the node was found in it.
    #[inline]
    pub unsafe fn remove(&self, section: &impl Section, node: NonNull<Link>) -> bool {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the node lives while the section does, by 1.
        let link = unsafe { node.as_ref() };
        let lineage = self.lock(link.hash);
        let present = !link.is_removed();
        if present {
            lineage.remove(link);
        }
        lineage.unlock();
        present
    }

    /// Puts `new` in the place of a node that was found; false if somebody else removed or replaced
    /// it. Readers find one of the two at any time.
    ///
    /// # Safety
    ///
    /// 1. As for [`RawTable::remove`], of `old`.
    /// 2. As for [`RawTable::insert`] 2 and 3, of `new`; both have the same hash.
    #[inline]
    pub unsafe fn replace(
        &self,
        section: &impl Section,
        old: NonNull<Link>,
        new: NonNull<Link>,
    ) -> bool {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        assert!(
            Word::can_hold(new.as_ptr()),
            "the node's address is out of range"
        );
        // SAFETY: the node lives while the section does, by 1.
        let old = unsafe { old.as_ref() };
        // SAFETY: nobody else has the node yet, by 2.
        let new = unsafe { new.as_ref() };
        debug_assert_eq!(old.hash, new.hash);
        let lineage = self.lock(old.hash);
        let present = !old.is_removed();
        if present {
            lineage.replace(old, new);
        }
        lineage.unlock();
        present
    }

    /// Locks the lineage of a hash.
    #[inline]
    fn lock(&self, hash: u64) -> Lineage<'_> {
        // SAFETY: the callers are in a section.
        let table = unsafe { self.current() };
        let slot = table.slot(hash);
        let word = load(slot);
        if word.flags() == 0 && exchange(slot, word, word.with_flags(LOCK)) {
            return Lineage {
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
    pub(super) fn lock_slowly(&self, hash: u64) -> Lineage<'_> {
        // SAFETY: the callers are in a section, or are the resizer.
        let mut table = unsafe { self.oldest() };
        let mut came_from = None;
        let mut spins = 0;
        loop {
            let slot = table.slot(hash);
            let word = load(slot);
            if is_forwarded(word) {
                came_from = Some(table);
                table = table.follow();
            } else if word.has(LOCK) {
                wait_for_lock(&mut spins);
            } else if exchange(slot, word, word.and_flags(LOCK)) {
                break;
            }
        }
        let mirror = came_from.filter(|from| from.len() > table.len() && !table.is_published());
        Lineage {
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

    /// Whether [`RawTable::step`] has something to do.
    #[inline(always)]
    pub fn has_work(&self) -> bool {
        // Relaxed: a hint.
        self.work.load(Relaxed)
    }

    /// Visits every node once, for an owner that nobody else shares the table with. A node may be
    /// freed when it is visited: a resize under way is completed first, so that no chain leads
    /// through the nodes of another bucket.
    pub fn for_each_mut(&mut self, mut visit: impl FnMut(NonNull<Link>)) {
        self.finish_alone();
        // SAFETY: the table is ours alone.
        let table = unsafe { self.current() };
        for bucket in 0..table.len() {
            let mut cursor = Cursor::new(table, bucket);
            // SAFETY: as above; the next node is found before this one is given away.
            while let Some(node) = unsafe { cursor.advance() } {
                visit(node);
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
    pub unsafe fn iter(&self, section: &impl Section) -> RawIter<'_> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller is in a section, by 1.
        let table = unsafe { self.current() };
        RawIter {
            table,
            bucket: 0,
            end: table.len(),
            cursor: Cursor::new(table, 0),
        }
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
        let length = |bucket| {
            let first = load(table.slot_at(bucket));
            let next = |word: &Word| {
                // SAFETY: as above.
                unsafe { word.node().as_ref() }.map(Link::next)
            };
            std::iter::successors(Some(first), next).count() - 1
        };
        (0..table.len()).map(length).max().unwrap_or(0)
    }
}

impl Drop for RawTable {
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

/// Looks through a chain.
///
/// # Safety
///
/// 1. The caller is in a section that began before `word` was read.
#[inline(always)]
unsafe fn search(
    mut word: Word,
    hash: u64,
    mut is_it: impl FnMut(NonNull<Link>) -> bool,
) -> Option<NonNull<Link>> {
    let probe = Probe::new(hash);
    while word.may_hold(probe) {
        // SAFETY: a word that may hold something has a node; it lives as long as the section, by 1.
        let node = unsafe { NonNull::new_unchecked(word.node()) };
        // SAFETY: as above.
        let link = unsafe { node.as_ref() };
        if link.hash == hash && is_it(node) {
            return Some(node);
        }
        word = link.next();
    }
    None
}

fn wait_for_lock(spins: &mut u32) {
    *spins += 1;
    if *spins < 64 && !cfg!(any(corewise_loom, corewise_shuttle)) {
        hint::spin_loop();
    } else {
        thread::yield_now();
    }
}

impl<'t> Lineage<'t> {
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

    /// Puts a node that nobody has in front.
    fn insert(&self, link: &Link) {
        let probe = Probe::new(self.hash);
        let (mut newest, mut before) = (self.root, self.mirror);
        for level in self.levels().skip(1) {
            (newest, before) = (level, Some(newest));
        }
        // While readers do not use the newest table, both words must lead to the node, and on to
        // what can be found through either: the smaller table's chain.
        let other = before.filter(|_| !newest.is_published());
        #[cfg(corewise_mutant = "insert_newest_only")]
        let other = other.filter(|_| false);
        let whole = match other {
            Some(other) if other.len() < newest.len() => other,
            _ => newest,
        };
        let rest = whole.word(self.hash);
        // Relaxed: published by the store below.
        link.next.store(rest.with_flags(0).0, Relaxed);
        let first = rest.prepend(ptr::from_ref(link).cast_mut(), probe);
        for table in [Some(newest), other].into_iter().flatten() {
            let slot = table.slot(self.hash);
            store(slot, first.with_flags(load(slot).flags()));
        }
    }

    fn remove(&self, link: &Link) {
        if self.is_plain() {
            let slot = link_to(self.root.slot(self.hash), link).expect(LINKED);
            let flags = load(slot).flags();
            store(slot, link.next().with_flags(flags));
        } else {
            self.remove_from_all(link);
        }
        #[cfg(not(corewise_mutant = "no_mark"))]
        store(&link.next, link.next().and_flags(REMOVED));
    }

    #[cold]
    fn remove_from_all(&self, link: &Link) {
        let links = self.links_to(link);
        #[cfg(not(corewise_mutant = "one_link"))]
        let all = links.newest_first();
        #[cfg(corewise_mutant = "one_link")]
        let all = links.newest_first().take(1);
        for (slot, target) in all {
            store(slot, target.with_flags(load(slot).flags()));
        }
        // Those levels wait before they cut again.
        #[cfg(not(corewise_mutant = "no_hold"))]
        for (_, table) in self
            .levels()
            .enumerate()
            .filter(|(n, _)| links.trunks >> n & 1 != 0)
        {
            let slot = table.slot(self.hash);
            store(slot, load(slot).and_flags(HOLD));
        }
    }

    fn replace(&self, old: &Link, new: &Link) {
        let node = ptr::from_ref(new).cast_mut();
        // Relaxed: published by the stores below.
        new.next.store(old.next().with_flags(0).0, Relaxed);
        if self.is_plain() {
            let slot = link_to(self.root.slot(self.hash), old).expect(LINKED);
            store(slot, load(slot).with_node(node));
        } else {
            for (slot, _) in self.links_to(old).newest_first() {
                store(slot, load(slot).with_node(node));
            }
        }
        store(&old.next, old.next().and_flags(REMOVED));
    }

    /// All links to a node, and where each should lead when the node is gone.
    fn links_to(&self, link: &Link) -> Links<'t> {
        let mut links = Links::new();
        // The mirror has at most its own word leading there, into a chain that is the root's. It must
        // go on to a node of its own bucket: updates of others do not look for links here.
        if let Some(mirror) = self.mirror {
            let slot = mirror.slot(self.hash);
            if ptr::eq(load(slot).node(), link) {
                #[cfg(not(corewise_mutant = "mirror_strays"))]
                links.push(slot, next_of_child(link, mirror));
                #[cfg(corewise_mutant = "mirror_strays")]
                links.push(slot, link.next());
            }
        }
        // The last level so far whose trunk has the node, and the table of its children.
        let mut into_trunk: Option<&Table> = None;
        for (level, table) in self.levels().enumerate() {
            let children = table.word(self.hash).has(INIT).then(|| table.follow());
            let Some(slot) = link_to(table.slot(self.hash), link) else {
                continue;
            };
            if !links.has(slot) {
                let target = match into_trunk {
                    Some(children) => next_of_child(link, children),
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

/// The slot on the way from `slot` that holds a link to a node.
fn link_to<'t>(slot: &'t AtomicPtr<Link>, link: &Link) -> Option<&'t AtomicPtr<Link>> {
    let mut slot = slot;
    loop {
        let node = load(slot).node();
        if ptr::eq(node, link) {
            return Some(slot);
        }
        // SAFETY: the lock keeps the chain, and the caller's section its nodes.
        slot = &unsafe { node.as_ref() }?.next;
    }
}

/// The word that leads from a node to the next one of the same bucket of `children`.
fn next_of_child(link: &Link, children: &Table) -> Word {
    let bucket = children.index(link.hash);
    first_of_child(link.next(), children, bucket)
}

/// The word on the way from `word` that leads to the first node of a bucket of `table`, or to the
/// end.
pub(super) fn first_of_child(mut word: Word, table: &Table, bucket: usize) -> Word {
    // SAFETY: as in `link_to`.
    while let Some(link) = unsafe { word.node().as_ref() } {
        if table.index(link.hash) == bucket {
            break;
        }
        word = link.next();
    }
    word.with_flags(0)
}

impl<'t> Links<'t> {
    fn new() -> Self {
        Self {
            trunks: 0,
            found: [None; MAX_LEVELS + 1],
            len: 0,
        }
    }

    fn push(&mut self, slot: &'t AtomicPtr<Link>, target: Word) {
        self.found[self.len] = Some((slot, target));
        self.len += 1;
    }

    fn has(&self, slot: &AtomicPtr<Link>) -> bool {
        let found = self.found[..self.len].iter().flatten();
        found.into_iter().any(|(other, _)| ptr::eq(*other, slot))
    }

    fn newest_first(&self) -> impl Iterator<Item = (&'t AtomicPtr<Link>, Word)> {
        self.found[..self.len].iter().rev().flatten().copied()
    }
}

/// A walk along the nodes of one bucket, passing by those that are in its chain but not its own.
struct Cursor<'t> {
    table: &'t Table,
    bucket: usize,
    word: Word,
}

impl<'t> Cursor<'t> {
    fn new(table: &'t Table, bucket: usize) -> Self {
        Self {
            table,
            bucket,
            word: load(table.slot_at(bucket)),
        }
    }

    /// # Safety
    ///
    /// 1. The nodes are kept, by a section or otherwise.
    unsafe fn advance(&mut self) -> Option<NonNull<Link>> {
        let word = first_of_child(self.word, self.table, self.bucket);
        let node = NonNull::new(word.node())?;
        // SAFETY: 1.
        self.word = unsafe { node.as_ref() }.next();
        Some(node)
    }
}

/// Iterator over the nodes of a [`RawTable`]; from [`RawTable::iter`].
pub struct RawIter<'t> {
    table: &'t Table,
    bucket: usize,
    end: usize,
    cursor: Cursor<'t>,
}

impl RawIter<'_> {
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
        let second = RawIter {
            table: self.table,
            bucket: middle,
            end: self.end,
            cursor: Cursor::new(self.table, middle),
        };
        self.end = middle;
        Some(second)
    }
}

impl Iterator for RawIter<'_> {
    type Item = NonNull<Link>;

    fn next(&mut self) -> Option<NonNull<Link>> {
        while self.bucket < self.end {
            // SAFETY: the maker of the iterator keeps its section.
            if let Some(node) = unsafe { self.cursor.advance() } {
                return Some(node);
            }
            self.bucket += 1;
            if self.bucket < self.end {
                self.cursor = Cursor::new(self.table, self.bucket);
            }
        }
        None
    }
}
