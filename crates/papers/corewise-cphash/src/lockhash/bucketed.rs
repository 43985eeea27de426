//! Random eviction with a lock for each bucket (\[CPHASH\] §4.2).
//!
//! A bucket is one word: the pointer to the first element of its chain, and a lock bit, so a lookup
//! needs one cache line for lock and bucket. A partition is a range of buckets with a byte count.
//!
//! An insertion reserves bytes first, and evicts until they are there, then allocates and fills its
//! element, and locks its bucket at last. So no thread ever holds two locks.
//!
//! # Budget
//!
//! The byte count exceeds the budget only after the budget was reduced, and only while operations
//! are in progress or elements have references:
//!
//! 1. A thread that reduces the budget evicts afterwards. So does every thread that has linked an
//!    element, or given up the last reference to a linked one, if it finds the budget exceeded.
//! 2. Between the two parts the thread that reduces the budget issues a heavy barrier, and the
//!    others a light one. So either the others see the new budget, or it sees their elements.

use std::ptr;

use corewise_atomic::alloc::{self, Layout as BlockLayout, MemoryNode};
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};
use corewise_atomic::{Backoff, CachePadded, Slots, barrier, mutant, ordering};

use super::{Buffer, FoundValue, Owner, RawLock, ValueRef};
use crate::chain::{self, Random};
use crate::config::{ConfigError, share_of_budget};
use crate::element::{Element, Header, LINE, Layout, flag};
use crate::key::{Identity, Mixer};
use crate::list::List;
use crate::partition::{InsertError, Settings, Stats};

/// The lock bit of a bucket.
const LOCKED: usize = 1;

/// Attempts to reserve memory that other threads keep taking before an insertion gives up.
const MAX_ROUNDS: usize = 64;

pub(super) struct Bucketed {
    buckets: Slots<AtomicPtr<Header>>,
    partitions: Slots<CachePadded<Partition>>,
    /// Buckets of a partition, a power of two.
    share: usize,
    /// Of each partition.
    budget: AtomicUsize,
    mixer: Mixer,
}

struct Partition {
    /// Bytes of all elements, including bytes that an insertion has reserved.
    used: AtomicUsize,
    elements: AtomicUsize,
    evictions: AtomicU64,
    /// The seed of the next search for a victim.
    seed: AtomicU64,
    /// Elements that references keep in memory.
    detached: Mutex<Detached>,
}

struct Detached(List);

// SAFETY: the list leads to elements that the table owns; it is used under its lock.
unsafe impl Send for Detached {}

// SAFETY: the table owns its elements; headers are used under the lock of their bucket.
unsafe impl Send for Bucketed {}
// SAFETY: headers are used under the lock of their bucket, data parts as `element` describes.
unsafe impl Sync for Bucketed {}

fn block_layout(lines: usize) -> BlockLayout {
    BlockLayout::from_size_align(lines * LINE, LINE).expect("blocks are below 8 GiB")
}

/// A locked bucket: its chain.
struct Chain<'a> {
    bucket: &'a AtomicPtr<Header>,
    head: *mut Header,
}

impl<'a> Chain<'a> {
    #[inline(always)]
    fn lock(bucket: &'a AtomicPtr<Header>) -> Self {
        let mut backoff = Backoff::new();
        loop {
            // Relaxed: a guess, which the exchange confirms.
            let head = bucket.load(Relaxed);
            if head.addr() & LOCKED == 0 {
                let locked = head.map_addr(|address| address | LOCKED);
                // Acquire: pairs with the Release in `drop`. Relaxed on failure: nothing is read.
                let acquire = ordering!(Acquire, "bucket_relaxed_acquire");
                if bucket
                    .compare_exchange_weak(head, locked, acquire, Relaxed)
                    .is_ok()
                {
                    return Self { bucket, head };
                }
            }
            backoff.snooze();
        }
    }

    #[inline(always)]
    fn find(&self, key: &Identity<'_>) -> Option<Element> {
        // SAFETY: the bucket is locked, and elements of chains are READY (1). The test compares
        // keys only (2).
        unsafe { chain::find(self.head, key.id, |element| element.has_key(key)) }
    }
}

impl Drop for Chain<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the next thread that locks the bucket.
        let release = ordering!(Release, "bucket_relaxed_release");
        self.bucket.store(self.head, release);
    }
}

impl Bucketed {
    pub(super) fn new(count: usize, settings: &Settings) -> Result<Self, ConfigError> {
        barrier::prepare();
        let partition = |index| {
            CachePadded::new(Partition {
                used: AtomicUsize::new(0),
                elements: AtomicUsize::new(0),
                evictions: AtomicU64::new(0),
                seed: AtomicU64::new(settings.mixer.mix(index as u64)),
                detached: Mutex::new(Detached(List::new())),
            })
        };
        let buckets = Slots::try_zeroed(count * settings.buckets);
        Ok(Self {
            buckets: buckets.ok_or(ConfigError::Memory)?,
            partitions: Slots::from_fn(count, partition),
            share: settings.buckets,
            budget: AtomicUsize::new(settings.budget),
            mixer: settings.mixer,
        })
    }

    #[inline(always)]
    fn partition_of(&self, hash: u64) -> usize {
        Mixer::partition_of(hash, self.partitions.len())
    }

    #[inline(always)]
    fn bucket_of(&self, hash: u64) -> usize {
        self.partition_of(hash) * self.share + (hash as usize & (self.share - 1))
    }

    #[inline(always)]
    fn chain(&self, hash: u64) -> Chain<'_> {
        Chain::lock(&self.buckets[self.bucket_of(hash)])
    }

    #[inline(always)]
    pub(super) fn fetch<L: RawLock>(
        &self,
        hash: u64,
        key: &Identity<'_>,
        buffer: &mut Buffer,
    ) -> Option<FoundValue<'_, L>> {
        let chain = self.chain(hash);
        let element = chain.find(key)?;
        // SAFETY: the bucket is locked, so nothing writes the READY element.
        let value = unsafe { element.parts(Layout::Packed).1 };
        let len = value.len();
        if buffer.copy(value) {
            return Some(FoundValue::Copied(len));
        }
        Some(FoundValue::Referenced(self.referenced(hash, element)))
    }

    pub(super) fn reference<L: RawLock>(
        &self,
        hash: u64,
        key: &Identity<'_>,
    ) -> Option<ValueRef<'_, L>> {
        let chain = self.chain(hash);
        let element = chain.find(key)?;
        Some(self.referenced(hash, element))
    }

    /// Adds a reference to an element of a chain that is locked.
    fn referenced<L: RawLock>(&self, hash: u64, element: Element) -> ValueRef<'_, L> {
        // SAFETY: this thread has locked the chain, so its elements are allocated and their headers
        // its own (1); the reference ends with the statement (2).
        unsafe { element.header().add_ref() };
        let owner = Owner::Bucket(self, hash);
        ValueRef { element, owner }
    }

    pub(super) fn insert(
        &self,
        hash: u64,
        key: &Identity<'_>,
        value: &[u8],
    ) -> Result<(), InsertError> {
        let lines = Layout::Packed.lines(key.bytes().len(), value.len());
        let lines = lines.ok_or(InsertError::TooLarge)?;
        if self.overwrite(hash, key, value, lines) {
            return Ok(());
        }
        let index = self.partition_of(hash);
        let partition = &self.partitions[index];
        self.reserve(index, lines * LINE)?;
        let Some(block) = alloc::alloc(block_layout(lines), MemoryNode::Local) else {
            // Relaxed: the count orders nothing.
            partition.used.fetch_sub(lines * LINE, Relaxed);
            return Err(InsertError::NoRoom);
        };
        let lengths = (key.bytes().len(), value.len());
        // SAFETY: the block is ours, has the lines for the lengths, and is filled for them.
        let element = unsafe {
            let name = (key.id, key.kind);
            let element = Element::create(block, Layout::Packed, lines, name, lengths);
            element.fill(Layout::Packed, key.bytes(), value);
            element.header().drop_ref();
            element.set(flag::READY, true);
            element.set(flag::LINKED, true);
            element
        };
        let mut chain = self.chain(hash);
        let is_counted_late = mutant!("element_counted_late");
        if !is_counted_late {
            // Relaxed: a number for statistics. Counted before another thread can unlink the
            // element, which the lock of the bucket orders, so the number is never negative.
            partition.elements.fetch_add(1, Relaxed);
        }
        let old = chain.find(key);
        let free = old.filter(|&old| self.unlink(&mut chain, hash, old));
        // SAFETY: the bucket is locked, and the element is ours and complete.
        unsafe { chain::push(&mut chain.head, element) };
        drop(chain);
        if is_counted_late {
            // Relaxed: the mutant's.
            partition.elements.fetch_add(1, Relaxed);
        }
        if let Some(old) = free {
            // SAFETY: unlinked without references, so it is ours.
            unsafe { self.free(hash, old) };
        }
        self.keep_to_budget(index);
        Ok(())
    }

    /// Replaces a value in its place, if it has the same number of lines and no references.
    #[inline(always)]
    fn overwrite(&self, hash: u64, key: &Identity<'_>, value: &[u8], lines: usize) -> bool {
        if value.len() > super::COPIED_BYTES {
            return false;
        }
        let chain = self.chain(hash);
        let Some(element) = chain.find(key) else {
            return false;
        };
        // SAFETY: the bucket is locked, so the header is ours; without references so is the rest,
        // and its lines suffice.
        unsafe {
            if element.header().refs != 0 || element.lines() != lines {
                return false;
            }
            element.overwrite(Layout::Packed, value);
        }
        true
    }

    /// Takes bytes of a partition's budget, after evictions if necessary.
    fn reserve(&self, index: usize, bytes: usize) -> Result<(), InsertError> {
        let partition = &self.partitions[index];
        for _ in 0..MAX_ROUNDS {
            // Relaxed: it may change at any time. `keep_to_budget` looks again.
            let budget = self.budget.load(Relaxed);
            if bytes > budget {
                return Err(InsertError::TooLarge);
            }
            // Relaxed, all: the count orders nothing; locks order the elements.
            let mut used = partition.used.load(Relaxed);
            while used + bytes <= budget {
                let more = used + bytes;
                match partition
                    .used
                    .compare_exchange_weak(used, more, Relaxed, Relaxed)
                {
                    Ok(_) => return Ok(()),
                    Err(now) => used = now,
                }
            }
            // Enough for this insertion, if no other thread takes it.
            let wanted = (used + bytes).saturating_sub(budget);
            if !self.evict(index, wanted) {
                return Err(InsertError::NoRoom);
            }
        }
        Err(InsertError::NoRoom)
    }

    /// Evicts what exceeds the budget, after this thread has linked an element or given up the last
    /// reference to one.
    #[inline]
    fn keep_to_budget(&self, index: usize) {
        if mutant!("excess_is_kept") {
            return;
        }
        if !mutant!("budget_without_barrier") {
            // Pairs with the heavy barrier in `set_budget`.
            barrier::light();
        }
        if self.excess(index) > 0 {
            self.evict_excess(index);
        }
    }

    /// Bytes of a partition beyond the budget.
    #[inline]
    fn excess(&self, index: usize) -> usize {
        // Relaxed, both: ordered by the barriers in `keep_to_budget` and `set_budget`.
        let used = self.partitions[index].used.load(Relaxed);
        used.saturating_sub(self.budget.load(Relaxed))
    }

    /// Evicts elements until the budget is kept, or all that are left have references.
    #[cold]
    fn evict_excess(&self, index: usize) {
        loop {
            let excess = self.excess(index);
            if excess == 0 || !self.evict(index, excess) {
                return;
            }
        }
    }

    /// Evicts random elements of at least `wanted` bytes; false if not a single one was found.
    fn evict(&self, index: usize, wanted: usize) -> bool {
        let partition = &self.partitions[index];
        // Relaxed: any seed will do.
        let mut random = Random::new(partition.seed.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed));
        let (mut freed, mut empty) = (0, 0);
        let mut bucket = random.next() as usize;
        while freed < wanted && empty < self.share {
            bucket = bucket.wrapping_add(1) & (self.share - 1);
            match self.evict_from(index * self.share + bucket, &mut random) {
                Some(bytes) => {
                    freed += bytes;
                    empty = 0;
                    // Relaxed: a number for statistics.
                    partition.evictions.fetch_add(1, Relaxed);
                    bucket = random.next() as usize;
                }
                None => empty += 1,
            }
        }
        freed > 0
    }

    /// Evicts a random element of a bucket, and returns its bytes.
    fn evict_from(&self, bucket: usize, random: &mut Random) -> Option<usize> {
        let bucket = &self.buckets[bucket];
        // Relaxed: only skips empty buckets.
        if bucket.load(Relaxed).is_null() {
            return None;
        }
        let mut chain = Chain::lock(bucket);
        // SAFETY: the bucket is locked, so headers are ours.
        let (victim, bytes, hash) = unsafe {
            let victim = chain::choose_unused(chain.head, random)?;
            let hash = self.mixer.mix(victim.header().id);
            (victim, victim.lines() * LINE, hash)
        };
        let is_free = self.unlink(&mut chain, hash, victim);
        debug_assert!(is_free, "it has no references");
        drop(chain);
        // SAFETY: unlinked without references, so it is ours.
        unsafe { self.free(hash, victim) };
        Some(bytes)
    }

    /// Takes an element out of its chain. True if it has no references, so the caller must free it.
    fn unlink(&self, chain: &mut Chain<'_>, hash: u64, element: Element) -> bool {
        let partition = &self.partitions[self.partition_of(hash)];
        // Relaxed: a number for statistics.
        partition.elements.fetch_sub(1, Relaxed);
        // SAFETY: the bucket is locked, and the element is in its chain. The list of detached
        // elements is used under its lock.
        unsafe {
            chain::unlink(&mut chain.head, element);
            element.set(flag::LINKED, false);
            let is_free = element.header().refs == 0;
            if !is_free {
                partition.detached.lock().0.push(element);
            }
            is_free
        }
    }

    /// # Safety
    ///
    /// 1. Nothing refers to the element, whose hash this is.
    unsafe fn free(&self, hash: u64, element: Element) {
        // SAFETY: nothing refers to the element (1), whose block was allocated in `insert`.
        let bytes = unsafe {
            let (block, lines) = element.destroy();
            alloc::dealloc(block, block_layout(lines));
            lines * LINE
        };
        let partition = &self.partitions[self.partition_of(hash)];
        // Relaxed: the count orders nothing.
        partition.used.fetch_sub(bytes, Relaxed);
    }

    /// Gives up a reference.
    ///
    /// # Safety
    ///
    /// 1. The reference is the caller's, and the element's hash is `hash`.
    pub(super) unsafe fn release(&self, hash: u64, element: Element) {
        let index = self.partition_of(hash);
        let chain = self.chain(hash);
        // SAFETY: the bucket is locked, and the reference keeps the element allocated (1). Unlinked
        // elements with references are in the list, which is used under its lock.
        let (is_last, is_linked) = unsafe {
            let is_last = element.header().drop_ref();
            let is_linked = element.has(flag::LINKED);
            if is_last && !is_linked {
                self.partitions[index].detached.lock().0.remove(element);
            }
            (is_last, is_linked)
        };
        drop(chain);
        match (is_last, is_linked) {
            (true, true) => self.keep_to_budget(index),
            // SAFETY: unlinked, and the last reference is gone.
            (true, false) => unsafe { self.free(hash, element) },
            _ => {}
        }
    }

    pub(super) fn remove(&self, hash: u64, key: &Identity<'_>) -> bool {
        let mut chain = self.chain(hash);
        let Some(element) = chain.find(key) else {
            return false;
        };
        let is_free = self.unlink(&mut chain, hash, element);
        drop(chain);
        if is_free {
            // SAFETY: unlinked without references, so it is ours.
            unsafe { self.free(hash, element) };
        }
        true
    }

    pub(super) fn set_budget(&self, bytes: usize) -> Result<(), ConfigError> {
        let share = share_of_budget(bytes, self.partitions.len())?;
        // Relaxed: ordered by the barrier.
        self.budget.store(share, Relaxed);
        // Pairs with the light barrier in `keep_to_budget`.
        barrier::heavy();
        (0..self.partitions.len()).for_each(|index| self.evict_excess(index));
        Ok(())
    }

    pub(super) fn clear(&self) {
        for bucket in self.buckets.iter() {
            loop {
                let mut chain = Chain::lock(bucket);
                let Some(element) = Element::from_ptr(chain.head) else {
                    break;
                };
                // SAFETY: this thread has locked the chain, so its elements are allocated and their
                // headers its own (1); the reference ends with the statement (2).
                let hash = self.mixer.mix(unsafe { element.header().id });
                let is_free = self.unlink(&mut chain, hash, element);
                drop(chain);
                if is_free {
                    // SAFETY: unlinked without references, so it is ours.
                    unsafe { self.free(hash, element) };
                }
            }
        }
    }

    pub(super) fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        for partition in self.partitions.iter() {
            // Relaxed: a number for statistics.
            let used = partition.used.load(Relaxed) as u64;
            // Relaxed, all: numbers for statistics.
            sum += Stats {
                elements: partition.elements.load(Relaxed) as u64,
                used_bytes: used,
                held_bytes: used,
                budget_bytes: self.budget.load(Relaxed) as u64,
                evictions: partition.evictions.load(Relaxed),
                ..Stats::default()
            };
        }
        sum
    }
}

impl Drop for Bucketed {
    /// Frees also the elements to which references were forgotten; no reference outlives the table.
    fn drop(&mut self) {
        self.clear();
        for partition in self.partitions.iter() {
            loop {
                let mut detached = partition.detached.lock();
                let Some(element) = detached.0.oldest() else {
                    break;
                };
                // SAFETY: the element is in the list, and nothing uses it any more.
                unsafe {
                    detached.0.remove(element);
                    drop(detached);
                    self.free(self.mixer.mix(element.header().id), element);
                }
            }
        }
        debug_assert!(self.stats().used_bytes == 0, "{:?}", ptr::from_ref(self));
    }
}
