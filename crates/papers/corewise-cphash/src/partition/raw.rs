//! A partition for engines that decide themselves what a key is and what is evicted.
//!
//! An element's value is a block of bytes that the engine writes and reads through pointers, and
//! its ID is a hash that the engine chooses. The partition owns memory, chains and LRU list; the
//! engine compares keys, chooses victims, and calls all methods from one thread at a time.
//!
//! ```text
//!  block   │ header, 40 │ lengths, 8 │ value: the engine's, aligned to 8 bytes │ unused │
//! ```
//!
//! # Guarantees
//!
//! 1. *Budget.* The partition neither evicts nor exceeds its budget by itself: the engine asks
//!    [`has_room`](RawPartition::has_room) before it allocates. The budget covers the blocks in use
//!    and the buckets.
//! 2. *References.* A block stays where it is, and is not freed, while the partition counts a
//!    reference to its element.
//! 3. *Buckets.* Their number only grows, by [`grow`](RawPartition::grow), which takes time
//!    proportional to the elements. Chains have one element on average if the engine calls
//!    it when [`wants_to_grow`](RawPartition::wants_to_grow) is true.

use std::ptr::{self, NonNull};

use super::{Eviction, Partition, Replace, Settings};
use crate::chain;
use crate::element::{Element, Header, LINE, Layout, Lengths, flag};
use crate::key::{KeyKind, Mixer};

/// Buckets of an empty partition.
const FIRST_BUCKETS: usize = 16;

/// Bytes in front of the value of an element without key bytes.
const VALUE_AT: usize = Layout::Packed.offset() + size_of::<Lengths>();

/// The bits of a hash that are an ID.
const ID_MASK: u64 = (1 << crate::key::ID_BITS) - 1;

/// The end of all positions, see [`RawPartition::visit`].
pub const END: u64 = 1 << 32;

/// See the [module](self).
///
/// # Safety of the methods
///
/// 1. The element is of this partition, and allocated: linked, or a reference to it is counted.
pub struct RawPartition {
    partition: Partition,
    budget: usize,
}

/// An element of a [`RawPartition`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawElement(Element);

impl RawElement {
    /// The element's value, with access to all its bytes.
    #[inline(always)]
    #[must_use]
    pub fn value(self) -> NonNull<u8> {
        // SAFETY: every block is longer than this.
        unsafe { NonNull::new_unchecked(self.0.as_ptr().cast::<u8>().add(VALUE_AT)) }
    }

    /// The element whose value begins at `value`.
    ///
    /// # Safety
    ///
    /// 1. `value` came from [`value`](Self::value), or was derived from it.
    #[inline(always)]
    #[must_use]
    pub unsafe fn of_value(value: NonNull<u8>) -> Self {
        // SAFETY: by 1 the value lies `VALUE_AT` bytes behind the header, in the same block.
        let header = unsafe { value.sub(VALUE_AT) };
        Self(Element::from_ptr(header.cast::<Header>().as_ptr()).expect("not null"))
    }
}

/// Bytes of the block of an element with a value of this length; `None` if there is no such
/// element.
#[inline]
#[must_use]
pub fn block_bytes(value_len: usize) -> Option<usize> {
    Some(Layout::Packed.lines(0, value_len)? * LINE)
}

impl RawPartition {
    /// An empty partition.
    ///
    /// # Panics
    ///
    /// If the system has no memory for the first buckets, 128 bytes.
    #[must_use]
    pub fn new(budget: usize) -> Self {
        let mixer = Mixer::new();
        let partition = Partition::new(&Settings {
            budget: 0,
            buckets: FIRST_BUCKETS,
            eviction: Eviction::Lru,
            replace: Replace::WhenReady,
            layout: Layout::Packed,
            mixer,
            seed: mixer.mix(0),
        });
        let partition = partition.expect("there is memory for the first buckets");
        let mut made = Self {
            partition,
            budget: 0,
        };
        made.set_budget(budget);
        made
    }

    // ---- memory

    /// Changes the budget; evicts nothing.
    #[inline]
    pub fn set_budget(&mut self, bytes: usize) {
        if self.budget != bytes {
            self.budget = bytes;
            self.share_budget();
        }
    }

    #[cold]
    fn share_budget(&mut self) {
        let left = self.budget.saturating_sub(self.table_bytes());
        self.partition.heap.set_budget(left);
    }

    /// Bytes of the buckets.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.buckets() * size_of::<*mut Header>()
    }

    /// The number of buckets.
    #[must_use]
    pub fn buckets(&self) -> usize {
        self.partition.buckets.len()
    }

    /// Bytes of all blocks in use and of the buckets.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.partition.heap.used() + self.table_bytes()
    }

    /// Linked elements.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.partition.elements
    }

    /// Whether a block of these bytes is within the budget once `returned` bytes are freed.
    #[inline]
    #[must_use]
    pub fn has_room(&self, bytes: usize, returned: usize) -> bool {
        self.used_bytes() + bytes <= self.budget + returned
    }

    /// Whether there are more elements than buckets, and the budget has room for more buckets.
    #[inline]
    #[must_use]
    pub fn wants_to_grow(&self) -> bool {
        self.elements() > self.buckets()
            && self.buckets() < 1 << 31
            && self.has_room(self.table_bytes(), 0)
    }

    /// Doubles the number of buckets. Changes nothing if the system has no memory.
    #[cold]
    pub fn grow(&mut self) {
        let count = 2 * self.buckets();
        let mut buckets = Vec::new();
        if buckets.try_reserve_exact(count).is_err() {
            return;
        }
        buckets.resize(count, ptr::null_mut());
        let old = std::mem::replace(&mut self.partition.buckets, buckets.into_boxed_slice());
        for &head in &old {
            let mut next = head;
            while let Some(element) = Element::from_ptr(next) {
                // SAFETY: we own the partition, and elements of chains are allocated. The next one
                // is read before the element is moved to another chain.
                unsafe {
                    let header = element.header();
                    next = header.next;
                    let bucket = self
                        .partition
                        .bucket_of(self.partition.mixer.mix(header.id));
                    chain::push(&mut self.partition.buckets[bucket], element);
                }
            }
        }
        self.share_budget();
    }

    /// Allocates a detached element with one reference, the caller's, for a value of this length,
    /// whatever the budget is. `None` if the system has no memory. The ID is the lower part of
    /// `hash`.
    #[inline]
    pub fn allocate(&mut self, hash: u64, value_len: usize) -> Option<RawElement> {
        let lines = Layout::Packed.lines(0, value_len)?;
        let block = self.partition.heap.take(lines)?;
        let key = (hash & ID_MASK, KeyKind::Narrow);
        // SAFETY: the block is ours, and has the lines that the layout needs for the lengths. The
        // element is in no list.
        unsafe {
            let element = Element::create(block, Layout::Packed, lines, key, (0, value_len));
            self.partition.detached.push(element);
            Some(RawElement(element))
        }
    }

    /// Bytes of the element's block.
    ///
    /// # Safety
    ///
    /// 1. As described for the type.
    #[inline]
    #[must_use]
    pub unsafe fn block_bytes_of(&self, element: RawElement) -> usize {
        // SAFETY: we own the partition, and the element is allocated (1).
        unsafe { element.0.lines() * LINE }
    }

    // ---- chains

    /// Brings the bucket of a hash closer to the processor.
    #[inline]
    pub fn prefetch_bucket(&self, hash: u64) {
        self.partition.prefetch(hash & ID_MASK);
    }

    /// Brings the first element of the hash's bucket closer to the processor.
    #[inline]
    pub fn prefetch_element(&self, hash: u64) {
        let bucket = self
            .partition
            .bucket_of(self.partition.mixer.mix(hash & ID_MASK));
        let first = self.partition.buckets[bucket].cast_const().cast::<u8>();
        corewise_atomic::hint::prefetch(first);
        corewise_atomic::hint::prefetch(first.wrapping_add(LINE));
    }

    /// The first linked element with this hash that passes the test, which is given its value.
    #[inline]
    pub fn find(&self, hash: u64, test: impl Fn(NonNull<u8>) -> bool) -> Option<RawElement> {
        let id = hash & ID_MASK;
        let test = |element: Element| test(RawElement(element).value());
        self.partition
            .find(self.partition.mixer.mix(id), id, test)
            .map(RawElement)
    }

    /// Links a detached element as the newest.
    ///
    /// # Safety
    ///
    /// 1. As described for the type; the element was not linked before.
    /// 2. Its value is written.
    #[inline]
    pub unsafe fn link(&mut self, element: RawElement) {
        // SAFETY: we own the partition, and the element is allocated (1), so it may be READY by 2.
        unsafe {
            element.0.set(flag::READY, true);
            let hash = self.partition.mixer.mix(element.0.header().id);
            self.partition.link(element.0, hash);
        }
    }

    /// Unlinks an element; frees it unless there are references.
    ///
    /// # Safety
    ///
    /// 1. As described for the type; the element is linked.
    #[inline]
    pub unsafe fn unlink(&mut self, element: RawElement) {
        // SAFETY: we own the partition, and the element is allocated (1).
        let id = unsafe { element.0.header().id };
        self.partition
            .unlink(element.0, self.partition.mixer.mix(id));
    }

    // ---- references

    /// Adds a reference.
    ///
    /// # Safety
    ///
    /// 1. As described for the type.
    #[inline]
    pub unsafe fn acquire(&mut self, element: RawElement) {
        self.partition.acquire(element.0);
    }

    /// Gives up a reference; frees the element if it was the last one and the element is not
    /// linked.
    ///
    /// # Safety
    ///
    /// 1. As described for the type; the reference is the caller's.
    #[inline]
    pub unsafe fn release(&mut self, element: RawElement) {
        // SAFETY: the element is of this partition, and the reference is the caller's, by 1. The
        // engine chooses what is evicted.
        let _ = unsafe { self.partition.drop_reference(element.0) };
    }

    /// The number of references.
    ///
    /// # Safety
    ///
    /// 1. As described for the type.
    #[inline]
    #[must_use]
    pub unsafe fn references(&self, element: RawElement) -> u32 {
        // SAFETY: we own the partition, and the element is allocated (1).
        unsafe { (*element.0.as_ptr()).refs }
    }

    // ---- the LRU list

    /// The linked element that became the newest longest ago.
    #[inline]
    #[must_use]
    pub fn oldest(&self) -> Option<RawElement> {
        self.partition.lru.oldest().map(RawElement)
    }

    /// Makes an element the newest.
    ///
    /// # Safety
    ///
    /// 1. As described for the type; the element is linked.
    #[inline]
    pub unsafe fn refresh(&mut self, element: RawElement) {
        self.partition.refresh(element.0);
    }

    // ---- scans

    /// Shows the values of a bucket, and returns the position of the next one.
    ///
    /// A scan begins at position 0 and is over at [`END`]. Positions are those of bit-reversed
    /// bucket numbers, so growth does not change which elements lie behind a position.
    pub fn visit(&self, position: u64, show: &mut dyn FnMut(NonNull<u8>)) -> u64 {
        let bits = self.buckets().trailing_zeros();
        let place = (position & (END - 1)) >> (32 - bits);
        let bucket = place.reverse_bits() >> (64 - bits);
        let mut next = self.partition.buckets[bucket as usize];
        while let Some(element) = Element::from_ptr(next) {
            show(RawElement(element).value());
            // SAFETY: we own the partition, and elements of chains are allocated.
            next = unsafe { (*element.as_ptr()).next };
        }
        (place + 1) << (32 - bits)
    }
}

const _: () = assert!(
    FIRST_BUCKETS > 1,
    "`visit` shifts by the bits of a bucket number"
);
const _: () = assert!(VALUE_AT.is_multiple_of(8) && LINE.is_multiple_of(8));

impl std::fmt::Debug for RawPartition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RawPartition({} elements)", self.elements())
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Links an element whose value is this number.
    fn add(partition: &mut RawPartition, hash: u64, number: u64) -> RawElement {
        let element = partition.allocate(hash, 8).unwrap();
        // SAFETY: the value has eight bytes, and is aligned to them; the element was just made,
        // and its reference is given up once.
        unsafe {
            element.value().cast::<u64>().write(number);
            partition.link(element);
            partition.release(element);
        }
        element
    }

    fn number(value: NonNull<u8>) -> u64 {
        // SAFETY: `add` has written a number to every value.
        unsafe { value.cast::<u64>().read() }
    }

    #[test]
    fn two_keys_with_one_hash_are_two_elements() {
        let mut partition = RawPartition::new(1 << 16);
        let first = add(&mut partition, u64::MAX, 1);
        let second = add(&mut partition, u64::MAX, 2);
        assert_eq!(partition.find(u64::MAX, |v| number(v) == 1), Some(first));
        assert_eq!(partition.find(u64::MAX, |v| number(v) == 2), Some(second));
        assert_eq!(partition.find(u64::MAX, |v| number(v) == 3), None);
        assert_eq!(partition.oldest(), Some(first));
        // SAFETY: both elements are linked until the second one is unlinked here (1, both).
        unsafe {
            partition.refresh(first);
            assert_eq!(partition.oldest(), Some(second));
            partition.unlink(second);
        }
        assert_eq!((partition.elements(), partition.oldest()), (1, Some(first)));
    }

    #[test]
    fn an_unlinked_element_is_freed_with_its_last_reference() {
        let mut partition = RawPartition::new(1 << 16);
        let empty = partition.used_bytes();
        let element = add(&mut partition, 7, 9);
        // SAFETY: the element is linked until `unlink`, and a reference to it is counted until
        // `release` (1, all).
        unsafe {
            partition.acquire(element);
            partition.unlink(element);
            assert_eq!(partition.references(element), 1);
            assert_eq!(number(element.value()), 9);
            assert_eq!(RawElement::of_value(element.value()), element);
            assert_eq!(partition.used_bytes(), empty + 64);
            partition.release(element);
        }
        assert_eq!(partition.used_bytes(), empty);
    }

    #[test]
    fn room_is_what_the_budget_leaves_and_what_will_be_returned() {
        let mut partition = RawPartition::new(16 * 8 + 3 * 64);
        add(&mut partition, 1, 1);
        assert!(partition.has_room(128, 0) && !partition.has_room(129, 0));
        assert!(partition.has_room(192, 64));
        partition.set_budget(0);
        assert!(!partition.has_room(64, 64));
        assert_eq!(partition.elements(), 1, "nothing is evicted");
        assert_eq!(block_bytes(16), Some(64));
        assert_eq!(block_bytes(17), Some(128));
    }

    #[test]
    fn a_scan_shows_each_element_once_although_the_table_grows() {
        let mut partition = RawPartition::new(1 << 20);
        let mix = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..40).for_each(|i| _ = add(&mut partition, mix(i), i));
        let mut seen = BTreeMap::new();
        let (mut position, mut added) = (0, 1_000);
        while position < END {
            position = partition.visit(position, &mut |value| {
                *seen.entry(number(value)).or_insert(0) += 1;
            });
            for _ in 0..30 {
                added += 1;
                add(&mut partition, mix(added), added);
                if partition.wants_to_grow() {
                    partition.grow();
                }
            }
        }
        assert!(partition.buckets() > 64);
        assert!((0..40).all(|i| seen.get(&i) == Some(&1)), "{seen:?}");
        assert!(seen.values().all(|&times| times == 1));
        for i in 0..40 {
            assert!(partition.find(mix(i), |value| number(value) == i).is_some());
        }
    }
}
