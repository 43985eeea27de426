//! One partition: a hash table with chains, an LRU list and a memory budget, used by one thread at
//! a time (\[CPHASH\] §3.1, figure 2). `LockHash` locks it; `CpHash` gives it to a server thread.
//!
//! ```text
//!  buckets           elements (one block each)
//!  ┌───┐   next   ┌─────────┐  next  ┌─────────┐
//!  │ 0 │────────▶ │ header  │──────▶ │ header  │     newest ◀─▶ … ◀─▶ oldest
//!  ├───┤          │ lengths │        │ lengths │     one list of all linked elements (LRU only)
//!  │ 1 │          │ key     │        │ key     │
//!  ├───┤          │ value   │        │ value   │     detached ◀─▶ …
//!  │ … │          └─────────┘        └─────────┘     elements that no chain leads to
//! ```
//!
//! # States of an element
//!
//! ```text
//!              allocate            publish              evicted, removed, replaced
//!   (nothing) ─────────▶ NOT READY ────────▶ READY, LINKED ─────────▶ READY, detached
//!                          │ release                 ▲ acquire, release │ last release
//!                          ▼                                            ▼
//!                        freed                                        freed
//! ```
//!
//! # Guarantees
//!
//! 1. *Exact.* With `Eviction::Lru` the partition evicts the element that was looked up or inserted
//!    longest ago. An element that a thread holds a reference to counts as used just now when
//!    eviction meets it, because evicting it would free no memory. (The paper does not mention this
//!    case.)
//! 2. *Budget.* See `heap`: the bytes of all elements, detached ones included, never exceed the
//!    budget, except after the budget was reduced, and then only while every element has a
//!    reference. Then an element is evicted as soon as its last reference is given up.
//! 3. *No needless eviction.* Elements are evicted only while the new one does not fit.
//! 4. *References.* The block of an element is not freed or changed while a reference exists.
//! 5. *Readiness.* A lookup finds READY elements only. An element that is being replaced stays
//!    visible until its successor is READY. (\[CPHASH\] §3.2 removes it when the successor is
//!    allocated; `Replace::AtAllocation` does this.)
//!
//! # Costs
//!
//! Constant expected time, but eviction takes one step for each element evicted, for each
//! referenced element met, and, with `Eviction::Random`, for each empty bucket between elements.
//! A bucket takes 8 bytes; there is one for each 128 bytes of the budget unless configured
//! otherwise, rounded up to a power of two, and they do not count against the budget.

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests;

#[cfg(feature = "raw")]
pub mod raw;

use std::cell::RefCell;
use std::ptr::NonNull;

use crate::chain::{self, Random};
use crate::config::ConfigError;
use crate::element::{Element, Header, LINE, Layout, flag};
use crate::heap::Heap;
use crate::key::{Identity, KeyKind, Mixer};
use crate::list::List;

/// Which element makes room for a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// The one that was looked up or inserted longest ago, exactly.
    #[default]
    Lru,
    /// A random one: no list is maintained (\[CPHASH\] §6.3).
    Random,
}

/// When an insertion removes the element that it replaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replace {
    /// When the new value is complete, so lookups find the old value until then.
    #[default]
    WhenReady,
    /// When memory for the new value is allocated, as in \[CPHASH\] §3.2: lookups find nothing
    /// until the new value is complete.
    AtAllocation,
}

/// Why a value was not inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InsertError {
    /// The element is larger than the budget of its partition, or its key or value is longer than
    /// the limits of the crate.
    TooLarge,
    /// Threads hold references to the elements that would have to be evicted, insertions are in
    /// progress that take the whole budget, or the system has no memory.
    NoRoom,
}

impl std::fmt::Display for InsertError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "the element is larger than its partition",
            Self::NoRoom => "the partition has no memory that could be freed",
        })
    }
}

impl std::error::Error for InsertError {}

/// Counters of a partition, or sums over partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Elements that lookups can find.
    pub elements: u64,
    /// Bytes of all elements, with their headers, rounded up to cache lines.
    pub used_bytes: u64,
    /// `used_bytes`, and free blocks that are kept for reuse. At most the budget, unless the budget
    /// was reduced while elements had references.
    pub held_bytes: u64,
    /// The budget in bytes.
    pub budget_bytes: u64,
    /// Lookups that found an element.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// Elements that were evicted to make room.
    pub evictions: u64,
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.elements += other.elements;
        self.used_bytes += other.used_bytes;
        self.held_bytes += other.held_bytes;
        self.budget_bytes += other.budget_bytes;
        self.hits += other.hits;
        self.misses += other.misses;
        self.evictions += other.evictions;
    }
}

/// The elements with an ID, see [`Partition::lookup_id`].
pub(crate) enum ById {
    None,
    One(Element),
    /// One or more: some were removed perhaps.
    Several(Vec<Element>),
}

/// How a partition is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) budget: usize,
    /// A power of two.
    pub(crate) buckets: usize,
    pub(crate) eviction: Eviction,
    pub(crate) replace: Replace,
    pub(crate) layout: Layout,
    pub(crate) mixer: Mixer,
    /// The seed of random eviction.
    pub(crate) seed: u64,
}

#[repr(C)]
pub(crate) struct Partition {
    // What a lookup uses comes first and shares a cache line with the lock.
    buckets: Box<[*mut Header]>,
    lru: List,
    eviction: Eviction,
    replace: Replace,
    layout: Layout,
    hits: u64,
    misses: u64,
    elements: usize,
    evictions: u64,
    mixer: Mixer,
    detached: List,
    random: Random,
    heap: Heap,
}

// SAFETY: it owns its elements; references that other threads hold are counted, and those threads
// only read the data parts.
unsafe impl Send for Partition {}

impl Partition {
    /// # Errors
    ///
    /// [`ConfigError::Memory`] if the system has no memory for the buckets.
    pub(crate) fn new(settings: &Settings) -> Result<Self, ConfigError> {
        debug_assert!(settings.buckets.is_power_of_two());
        Ok(Self {
            buckets: empty_buckets(settings.buckets).ok_or(ConfigError::Memory)?,
            lru: List::new(),
            hits: 0,
            misses: 0,
            eviction: settings.eviction,
            replace: settings.replace,
            layout: settings.layout,
            elements: 0,
            evictions: 0,
            mixer: settings.mixer,
            detached: List::new(),
            random: Random::new(settings.seed),
            heap: Heap::new(settings.budget),
        })
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            elements: self.elements as u64,
            used_bytes: self.heap.used() as u64,
            held_bytes: self.heap.held() as u64,
            budget_bytes: self.heap.budget() as u64,
            hits: self.hits,
            misses: self.misses,
            evictions: self.evictions,
        }
    }

    /// Changes the budget, and evicts what is too much.
    pub(crate) fn set_budget(&mut self, bytes: usize) {
        self.heap.set_budget(bytes);
        while self.heap.used() > self.heap.budget() && self.evict_one() {}
        // Evicted blocks are kept while they fit.
        self.heap.set_budget(bytes);
    }

    #[inline(always)]
    pub(crate) fn hash(&self, id: u64) -> u64 {
        self.mixer.mix(id)
    }

    /// Brings the bucket of an ID closer to the processor.
    #[inline(always)]
    pub(crate) fn prefetch(&self, id: u64) {
        let bucket = self.bucket_of(self.mixer.mix(id));
        corewise_atomic::hint::prefetch(&raw const self.buckets[bucket]);
    }

    /// Looks a key up, counts that, and makes its element the newest.
    #[inline]
    pub(crate) fn lookup(&mut self, hash: u64, key: &Identity<'_>) -> Option<Element> {
        self.count_lookup(self.find_key(hash, key))
    }

    /// Looks an ID up that is not a narrow key. The caller compares the keys: an element that is
    /// found may have another key with this ID, and counts as used nevertheless.
    #[inline]
    pub(crate) fn lookup_id(&mut self, hash: u64, id: u64) -> ById {
        // SAFETY: we own the partition.
        let is_wanted = |element: Element| unsafe { !element.has(flag::NARROW) };
        let found = self.find(hash, id, is_wanted);
        // SAFETY: the same.
        let is_shared = |element: Element| unsafe { element.has(flag::SHARED_ID) };
        if found.is_some_and(is_shared) {
            return self.lookup_shared_id(hash, id);
        }
        self.count_lookup(found).map_or(ById::None, ById::One)
    }

    #[cold]
    fn lookup_shared_id(&mut self, hash: u64, id: u64) -> ById {
        let elements = RefCell::new(Vec::new());
        let collect = |element: Element| {
            // SAFETY: we own the partition.
            if !unsafe { element.has(flag::NARROW) } {
                elements.borrow_mut().push(element);
            }
            false
        };
        self.find(hash, id, collect);
        let elements = elements.into_inner();
        for &element in &elements {
            self.refresh(element);
        }
        self.hits += 1;
        ById::Several(elements)
    }

    #[inline]
    fn count_lookup(&mut self, found: Option<Element>) -> Option<Element> {
        match found {
            Some(element) => {
                self.hits += 1;
                self.refresh(element);
            }
            None => self.misses += 1,
        }
        found
    }

    /// Makes a linked element the newest.
    #[inline]
    fn refresh(&mut self, element: Element) {
        if self.eviction == Eviction::Lru {
            // SAFETY: linked elements are in the list, and we own the partition.
            unsafe { self.lru.make_newest(element) };
        }
    }

    /// The key's value, for as long as the partition is borrowed.
    pub(crate) fn get(&mut self, hash: u64, key: &Identity<'_>) -> Option<&[u8]> {
        let element = self.lookup(hash, key)?;
        Some(self.value(element))
    }

    /// The value of a linked element.
    #[inline]
    pub(crate) fn value(&self, element: Element) -> &[u8] {
        // SAFETY: linked elements are READY; they change only while the partition is borrowed
        // exclusively.
        unsafe { element.parts(self.layout).1 }
    }

    /// Inserts a complete value at once.
    pub(crate) fn insert(
        &mut self,
        hash: u64,
        key: &Identity<'_>,
        value: &[u8],
    ) -> Result<(), InsertError> {
        if self.overwrite(hash, key, value) {
            return Ok(());
        }
        let element = self.allocate(key, value.len())?;
        // SAFETY: allocated for these lengths in this layout, and we have its only reference, which
        // is given up.
        unsafe {
            element.fill(self.layout, key.bytes(), value);
            self.publish(element);
        }
        Ok(())
    }

    /// Replaces a value in its place if its block has the right number of lines and no thread has a
    /// reference to it.
    fn overwrite(&mut self, hash: u64, key: &Identity<'_>, value: &[u8]) -> bool {
        let Some(element) = self.find_key(hash, key) else {
            return false;
        };
        let lines = self.layout.lines(key.bytes().len(), value.len());
        // SAFETY: we own the partition and found the element in it. Its lines suffice, and no
        // reference to it is left.
        unsafe {
            if element.header().refs != 0 || lines != Some(element.lines()) {
                return false;
            }
            element.overwrite(self.layout, value);
        }
        self.refresh(element);
        true
    }

    /// Allocates a NOT READY element with one reference, the caller's.
    #[inline]
    pub(crate) fn allocate(
        &mut self,
        key: &Identity<'_>,
        value_len: usize,
    ) -> Result<Element, InsertError> {
        self.allocate_for((key.id, key.kind), key.bytes().len(), value_len)
    }

    /// As [`allocate`](Self::allocate), for a key whose bytes are not known yet.
    #[inline]
    pub(crate) fn allocate_for(
        &mut self,
        key: (u64, KeyKind),
        key_len: usize,
        value_len: usize,
    ) -> Result<Element, InsertError> {
        let lines = self.layout.lines(key_len, value_len);
        let lines = lines.ok_or(InsertError::TooLarge)?;
        self.make_room(lines)?;
        let block = self.heap.allocate(lines).ok_or(InsertError::NoRoom)?;
        let lengths = (key_len, value_len);
        // SAFETY: the block is ours, and has the lines that the layout needs for the lengths. The
        // element is in no list.
        let element = unsafe {
            let element = Element::create(block, self.layout, lines, key, lengths);
            self.detached.push(element);
            element
        };
        if self.replace == Replace::AtAllocation {
            self.remove_id(key);
        }
        Ok(element)
    }

    /// Removes the element with this ID, among narrow keys or among others. Another key with the
    /// same ID may be hit, which is as if it had been evicted.
    #[cold]
    fn remove_id(&mut self, (id, kind): (u64, KeyKind)) {
        let hash = self.hash(id);
        // SAFETY: we own the partition.
        let is_wanted =
            |element: Element| unsafe { element.has(flag::NARROW) == (kind == KeyKind::Narrow) };
        if let Some(element) = self.find(hash, id, is_wanted) {
            self.unlink(element, hash);
        }
    }

    fn make_room(&mut self, lines: usize) -> Result<(), InsertError> {
        if lines * LINE > self.heap.budget() {
            return Err(InsertError::TooLarge);
        }
        while !self.heap.has_room(lines) {
            if !self.evict_one() {
                return Err(InsertError::NoRoom);
            }
        }
        Ok(())
    }

    /// Makes an element READY and visible in place of another one with its key, and gives up its
    /// inserting thread's reference.
    ///
    /// # Safety
    ///
    /// 1. The element came from `allocate` of this partition, and key and value were filled in.
    /// 2. The reference that came with it is given up here.
    #[inline]
    pub(crate) unsafe fn publish(&mut self, element: Element) {
        // SAFETY: we own the partition, and the reference keeps the element allocated (1). Its data
        // is complete (1), so it may be READY. Detached elements are in that list.
        unsafe {
            element.set(flag::READY, true);
            let hash = self.mixer.mix(element.header().id);
            self.unlink_key_of(element, hash);
            self.link(element, hash);
            // Linked, so it is not freed.
            if element.header().drop_ref() {
                self.keep_to_budget(element);
            }
        }
    }

    /// Makes a READY element visible whose key has no other element.
    ///
    /// # Safety
    ///
    /// 1. The element is of this partition, READY and detached, and `hash` is that of its ID.
    #[inline]
    unsafe fn link(&mut self, element: Element, hash: u64) {
        // SAFETY: we own the partition, and the element is allocated (1). Detached elements are in
        // that list.
        unsafe {
            self.detached.remove(element);
            let bucket = self.bucket_of(hash);
            chain::push(&mut self.buckets[bucket], element);
            element.set(flag::LINKED, true);
            self.elements += 1;
            if self.eviction == Eviction::Lru {
                self.lru.push(element);
            }
        }
    }

    /// Removes the element with the key of `element`, which is not linked. If other keys that are
    /// not narrow have its ID, it and all of theirs get [`flag::SHARED_ID`]: those that the search
    /// passes get it here, and if it ends at an element with the key, that one has it already.
    ///
    /// # Safety
    ///
    /// 1. `element` is READY and of this partition.
    #[inline]
    unsafe fn unlink_key_of(&mut self, element: Element, hash: u64) {
        // SAFETY: we own the partition, and the element is READY (1), as are those of chains.
        let old = unsafe {
            let id = element.header().id;
            if element.has(flag::NARROW) {
                self.find_key(hash, &Identity::narrow(id))
            } else {
                let (key, _) = element.parts(self.layout);
                let is_it = |other: Element| {
                    let is_it = other.has_stored_key(key);
                    if !is_it && !other.has(flag::NARROW) {
                        other.set(flag::SHARED_ID, true);
                        element.set(flag::SHARED_ID, true);
                    } else if is_it && other.has(flag::SHARED_ID) {
                        element.set(flag::SHARED_ID, true);
                    }
                    is_it
                };
                self.find(hash, id, is_it)
            }
        };
        if let Some(old) = old {
            self.unlink(old, hash);
        }
    }

    /// Adds a reference to a linked element.
    #[inline]
    pub(crate) fn acquire(&mut self, element: Element) {
        // SAFETY: we own the partition, and the element is linked.
        unsafe { element.header().add_ref() };
    }

    /// Gives up a reference: that of a lookup, or that of an insertion which is abandoned. Frees
    /// the element if that was the last one and no chain leads to it, and evicts it if that was the
    /// last one and the budget is exceeded.
    ///
    /// # Safety
    ///
    /// 1. The element is of this partition, and the reference was the caller's.
    #[inline]
    pub(crate) unsafe fn release(&mut self, element: Element) {
        // SAFETY: the reference to an element of ours is the caller's to give up (1).
        let is_unused = unsafe { self.drop_reference(element) };
        if is_unused {
            self.keep_to_budget(element);
        }
    }

    /// Evicts a linked element that has no reference any more, if the budget is exceeded. Then it
    /// is the only one without a reference: `set_budget` has evicted the others.
    #[inline(always)]
    fn keep_to_budget(&mut self, element: Element) {
        if self.heap.used() > self.heap.budget() {
            self.evict_excess(element);
        }
    }

    #[cold]
    #[inline(never)]
    fn evict_excess(&mut self, element: Element) {
        self.evict_unused(element);
    }

    /// As [`release`](Self::release), but evicts nothing. True if the element is linked and has no
    /// reference, so it may be evicted.
    ///
    /// # Safety
    ///
    /// 1. The element is of this partition, and the reference was the caller's.
    #[inline]
    unsafe fn drop_reference(&mut self, element: Element) -> bool {
        // SAFETY: we own the partition, and the reference keeps the element allocated until here
        // (1). Elements that are not linked are in the list of detached ones.
        unsafe {
            let is_last = element.header().drop_ref();
            let is_linked = element.has(flag::LINKED);
            if is_last && !is_linked {
                self.detached.remove(element);
                self.free(element);
            }
            is_last && is_linked
        }
    }

    /// Evicts a linked element that has no reference.
    #[inline]
    fn evict_unused(&mut self, element: Element) {
        // SAFETY: we own the partition, and the element is linked.
        let id = unsafe { element.header().id };
        self.unlink(element, self.mixer.mix(id));
        self.evictions += 1;
    }

    /// Removes a key. Whether it was there.
    pub(crate) fn remove(&mut self, hash: u64, key: &Identity<'_>) -> bool {
        let found = self.find_key(hash, key);
        if let Some(element) = found {
            self.unlink(element, hash);
        }
        found.is_some()
    }

    /// Removes all elements; those with references are freed when these are given up.
    pub(crate) fn clear(&mut self) {
        for bucket in 0..self.buckets.len() {
            while let Some(element) = Element::from_ptr(self.buckets[bucket]) {
                self.unlink_from(bucket, element);
            }
        }
    }

    #[inline(always)]
    fn bucket_of(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    /// The first element of the hash's chain that has the ID and passes the test.
    #[inline(always)]
    fn find(&self, hash: u64, id: u64, test: impl Fn(Element) -> bool) -> Option<Element> {
        // SAFETY: we own the partition.
        unsafe { chain::find(self.buckets[self.bucket_of(hash)], id, test) }
    }

    /// The element with this key.
    #[inline(always)]
    fn find_key(&self, hash: u64, key: &Identity<'_>) -> Option<Element> {
        // SAFETY: we own the partition, and elements of chains are READY.
        self.find(hash, key.id, |element| unsafe { element.has_key(key) })
    }

    /// Takes an element out of the hash's chain and out of the LRU list.
    #[inline]
    fn unlink(&mut self, element: Element, hash: u64) {
        self.unlink_from(self.bucket_of(hash), element);
    }

    fn unlink_from(&mut self, bucket: usize, element: Element) {
        // SAFETY: we own the partition, `element` is in this chain, and linked elements are in the
        // LRU list if there is one. Without references nothing leads to it any more; otherwise it
        // becomes one of the detached.
        unsafe {
            chain::unlink(&mut self.buckets[bucket], element);
            element.set(flag::LINKED, false);
            if self.eviction == Eviction::Lru {
                self.lru.remove(element);
            }
            self.elements -= 1;
            if (*element.as_ptr()).refs == 0 {
                self.free(element);
            } else {
                self.detached.push(element);
            }
        }
    }

    /// # Safety
    ///
    /// 1. Nothing refers to the element: no thread, chain or list.
    unsafe fn free(&mut self, element: Element) {
        // SAFETY: nothing refers to the element (1), whose block came from this heap.
        unsafe {
            let (block, lines) = element.destroy();
            self.heap.free(block, lines);
        }
    }

    /// Evicts one element without references; false if there is none.
    fn evict_one(&mut self) -> bool {
        let victim = match self.eviction {
            Eviction::Lru => self.oldest_unused(),
            Eviction::Random => self.random_unused(),
        };
        if let Some(victim) = victim {
            self.evict_unused(victim);
        }
        victim.is_some()
    }

    /// The oldest element without references, after all older ones have become the newest.
    fn oldest_unused(&mut self) -> Option<Element> {
        for _ in 0..self.elements {
            let oldest = self.lru.oldest()?;
            // SAFETY: we own the partition, and elements of the list are allocated.
            if unsafe { oldest.header().refs } == 0 {
                return Some(oldest);
            }
            self.refresh(oldest);
        }
        None
    }

    /// An element without references from the first bucket, from a random one on, that has one; a
    /// random one of its chain.
    fn random_unused(&mut self) -> Option<Element> {
        let first = self.random.next() as usize;
        for step in 0..self.buckets.len() {
            let bucket = first.wrapping_add(step) & (self.buckets.len() - 1);
            // SAFETY: we own the partition.
            let chosen = unsafe { chain::choose_unused(self.buckets[bucket], &mut self.random) };
            if chosen.is_some() {
                return chosen;
            }
        }
        None
    }
}

/// Buckets without elements; `None` if the system has no memory for them. It maps their pages when
/// they are used first.
fn empty_buckets(count: usize) -> Option<Box<[*mut Header]>> {
    assert_ne!(count, 0);
    let layout = std::alloc::Layout::array::<*mut Header>(count).ok()?;
    // SAFETY: the layout has a size, because there is a bucket.
    let memory = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
    let buckets = NonNull::slice_from_raw_parts(memory.cast(), count);
    // SAFETY: the global allocator gave this memory with the layout of the slice, which is a
    // number of null pointers, and nothing else uses it.
    Some(unsafe { Box::from_raw(buckets.as_ptr()) })
}

impl Drop for Partition {
    /// Frees also the elements to which references were never given up. The owner of the table
    /// ensures that no thread can use them any more.
    fn drop(&mut self) {
        self.clear();
        while let Some(element) = self.detached.oldest() {
            // SAFETY: we own the partition; the element is in the list, and nothing else uses it.
            unsafe {
                self.detached.remove(element);
                self.free(element);
            }
        }
    }
}
