//! The memory of the sets of an engine: a heap that knows which of its pages are resident.
//!
//! A general allocator keeps a page for one size of block while a single block of it is in use, and
//! does not tell how many such pages there are. So an engine that counts the bytes of its sets
//! exceeds its limit when it evicts some of them. This heap has blocks of all sizes side by side,
//! and counts what the system counts.
//!
//! ```text
//!  reserved addresses
//! ┌────────────┬────────────┬────────────┬────────────┬─ ─ ─ ─
//! │ region     │ region     │ region     │ region     │ not yet used
//! └─────┬──────┴────────────┴────────────┴────────────┴─ ─ ─ ─
//!   64 KiB: │ block │ free │ block │ block │ free │ …     blocks begin at multiples of 32 bytes
//!
//!  beside it, for each region:
//!   used     a bit for each unit of 32 bytes
//!   touched  a bit for each page that may be resident
//!   longest  units of the longest free run: which list of regions it is in
//! ```
//!
//! A block lies in the region, of the first few of a list, whose longest free run fits it best. A
//! block of more than a region lies in several that follow one another. Where the system reserves
//! no addresses, or they are exhausted, blocks come from the global allocator.
//!
//! # Guarantees
//!
//! 1. *Footprint.* [`footprint`](SetHeap::footprint) is no less than the resident pages of the
//!    range and the heap's own memory. Blocks from the global allocator count as they were
//!    requested.
//! 2. *Pages go back.* A page without blocks goes back to the system, except for [`SPARE`] ones: up
//!    to 1/32 of the most that there were.
//! 3. *Waste.* A block wastes less than a unit, so what exceeds the bytes requested are free runs
//!    that share their pages with blocks.
//! 4. *Steps.* To allocate or free a block takes a look at the bits of each region that it touches,
//!    at a few other regions, and at most one system call for each run of pages that goes back.
//!    Only blocks of more than a region, and the begin and end of a compaction, look at all
//!    regions.
//! 5. *Compaction.* [`begin`](SetHeap::begin) condemns the sparsest regions, in which no block is
//!    put until [`end`](SetHeap::end), so that their pages go back once the sets have moved their
//!    blocks elsewhere. These blocks have at most 1/16 of the footprint, or a region, which is how
//!    far the footprint may grow before it falls.

use corewise_atomic::alloc::{self, Layout, MemoryNode};
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::{AtomicUsize, Ordering};
use corewise_nr::{BlockSource, SetMemory};
use std::ops::{Range, RangeInclusive};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes in which blocks are counted, and to which they are aligned.
const UNIT: usize = 32;
/// Bytes of a region: a full chunk of a set's records takes one.
const REGION: usize = 64 << 10;
const UNITS: usize = REGION / UNIT;
const WORD: usize = u64::BITS as usize;
const WORDS: usize = UNITS / WORD;
/// Pages without blocks that stay resident, at least and at most.
const SPARE: RangeInclusive<usize> = 4..=64;
/// They are at most this share of the pages that may be resident.
const SPARE_SHARE: usize = 32;
/// A compaction is due when more than this share of the footprint is not in blocks.
const SPARSE_SHARE: usize = 8;
/// The blocks of the condemned regions have at most this share of the footprint.
const CONDEMNED_SHARE: usize = 16;
/// In sixteenths of their touched pages, the blocks of a region that is condemned are at most this.
const MOST_FILLED: usize = 12;
/// A compaction that gave back less than this share of the footprint is not tried again until the
/// slack has grown by as much.
const GAIN_SHARE: usize = 32;
/// Bytes of addresses for a small memory, which may be raised.
const LEAST_ADDRESSES: u64 = 1 << 30;
/// Regions of a list that are looked at for a run that is just long enough.
const LOOKS: usize = 4;
/// Lists of regions: four for each power of two units.
const LISTS: usize = list_of(UNITS) + 1;
const _: () = assert!(LISTS <= WORD);
/// No region.
const NONE: u32 = u32::MAX;

/// The list of the regions whose longest free run has this number of units, one at least.
const fn list_of(units: usize) -> usize {
    if units < 4 {
        return units;
    }
    let power = units.ilog2() as usize;
    4 * (power - 1) + (units >> (power - 2) & 3)
}

/// See the [module](self). A region is as large as a set's full chunk of records.
struct Region {
    used: [u64; WORDS],
    /// Units in use.
    units: u16,
    /// Pages that may be resident, by bits.
    touched: u16,
    longest: u16,
    /// Whether the region is to be emptied; it is in no list then.
    is_condemned: bool,
    /// The neighbours in the list of `longest`, unless that is 0.
    previous: u32,
    next: u32,
}

impl Region {
    fn new() -> Self {
        Self {
            used: [0; WORDS],
            units: 0,
            touched: 0,
            longest: UNITS as u16,
            is_condemned: false,
            previous: NONE,
            next: NONE,
        }
    }

    /// The first unit from `from` on that is in use or not; [`UNITS`] if there is none.
    fn next(&self, from: usize, in_use: bool) -> usize {
        let mut at = from;
        while at < UNITS {
            let word = self.used[at / WORD];
            let wanted = if in_use { word } else { !word } >> (at % WORD);
            if wanted != 0 {
                return at + wanted.trailing_zeros() as usize;
            }
            at = (at / WORD + 1) * WORD;
        }
        UNITS
    }

    /// The first free run of at least `units` units, else the longest one.
    fn run(&self, units: usize) -> Range<usize> {
        let (mut longest, mut at) = (0..0, 0);
        while longest.len() < units && UNITS - at > longest.len() {
            let start = self.next(at, false);
            at = self.next(start, true);
            if at - start > longest.len() {
                longest = start..at;
            }
        }
        longest
    }

    fn mark(&mut self, units: Range<usize>, in_use: bool) {
        let count = units.len() as u16;
        self.units = if in_use {
            self.units + count
        } else {
            self.units - count
        };
        let mut at = units.start;
        while at < units.end {
            let end = units.end.min((at / WORD + 1) * WORD);
            let mask = u64::MAX >> (WORD - (end - at)) << (at % WORD);
            let word = &mut self.used[at / WORD];
            debug_assert_eq!(*word & mask, if in_use { 0 } else { mask });
            *word ^= mask;
            at = end;
        }
    }
}

/// What the lock protects.
struct Regions {
    /// The reserved range, and its regions; none before the first block, or if there is none.
    base: Option<NonNull<u8>>,
    most: usize,
    is_reserved: bool,
    page_units: usize,
    /// The regions used so far.
    #[expect(clippy::vec_box, reason = "the list grows without copying them")]
    regions: Vec<Box<Region>>,
    heads: [u32; LISTS],
    /// Lists that are not empty, by bits.
    filled: u64,
    /// Pages that may be resident, and those of them without blocks.
    touched: usize,
    spare: usize,
}

// SAFETY: the range belongs to the heap, and only the lock's owner changes which blocks are in use.
unsafe impl Send for Regions {}

/// A heap for the sets of an engine. See the [module](self).
pub(crate) struct SetHeap {
    shared: Arc<Shared>,
    memory: SetMemory,
    /// The slack from which on another compaction is worth a try, and the footprint when the
    /// present one began.
    worthwhile: AtomicUsize,
    begun_at: AtomicUsize,
}

struct Shared {
    /// Sums that are read without the lock: see [`SetHeap::footprint`].
    footprint: AtomicUsize,
    /// Bytes of blocks, in whole units.
    used: AtomicUsize,
    regions: Mutex<Regions>,
}

impl SetHeap {
    /// A heap for an engine with this memory. It reserves addresses when it is first used.
    pub(crate) fn new(memory: u64) -> Self {
        let addresses = (memory.saturating_mul(2)).max(LEAST_ADDRESSES);
        let most = usize::try_from(addresses).map_or(0, |bytes| bytes.div_ceil(REGION));
        let shared = Arc::new(Shared {
            footprint: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            regions: Mutex::new(Regions::new(most.min(NONE as usize))),
        });
        Self {
            memory: SetMemory::new(Source(Arc::clone(&shared))),
            shared,
            worthwhile: AtomicUsize::new(0),
            begun_at: AtomicUsize::new(0),
        }
    }

    /// What sets are made with.
    pub(crate) fn memory(&self) -> &SetMemory {
        &self.memory
    }

    /// Bytes that are resident for the sets.
    pub(crate) fn footprint(&self) -> usize {
        // Relaxed: a number that others change at any time.
        self.shared.footprint.load(Ordering::Relaxed)
    }

    /// Bytes of the footprint that are not in blocks.
    pub(crate) fn slack(&self) -> usize {
        // Relaxed: see `footprint`.
        let used = self.shared.used.load(Ordering::Relaxed);
        self.footprint().saturating_sub(used)
    }

    /// Whether a compaction is due.
    pub(crate) fn is_sparse(&self) -> bool {
        let slack = self.slack();
        // Relaxed: a number that only decides when something is tried.
        let worthwhile = self.worthwhile.load(Ordering::Relaxed);
        // What was tried with twice the slack says nothing about the present.
        slack > self.footprint() / SPARSE_SHARE && !(slack..=2 * slack).contains(&worthwhile)
    }

    /// Begins a compaction, unless no region is sparse enough. One is made at a time.
    pub(crate) fn begin(&self) -> bool {
        let begins = self.shared.regions.lock().condemn();
        // Relaxed: only the thread that makes the compaction looks at it.
        self.begun_at.store(self.footprint(), Ordering::Relaxed);
        if !begins {
            self.end();
        }
        begins
    }

    /// Whether a block is to be moved. Its address is that of a block of this heap.
    pub(crate) fn is_condemned(&self, address: usize) -> bool {
        let regions = self.shared.regions.lock();
        let place = regions.place_of(address);
        place.is_some_and(|first| regions.regions[first / UNITS].is_condemned)
    }

    /// Ends a compaction.
    pub(crate) fn end(&self) {
        self.shared.regions.lock().pardon_all();
        let footprint = self.footprint();
        let gain = footprint / GAIN_SHARE;
        // Relaxed, both: see `begin` and `is_sparse`.
        let gained = footprint + gain <= self.begun_at.load(Ordering::Relaxed);
        let least = if gained { 0 } else { self.slack() + gain };
        self.worthwhile.store(least, Ordering::Relaxed);
    }
}

struct Source(Arc<Shared>);

// Nothing that may panic is called while the regions are changed.
impl UnwindSafe for Source {}
impl RefUnwindSafe for Source {}

impl Regions {
    fn new(most: usize) -> Self {
        Self {
            base: None,
            most,
            is_reserved: false,
            page_units: (alloc::page_bytes() / UNIT).min(UNITS),
            regions: Vec::new(),
            heads: [NONE; LISTS],
            filled: 0,
            touched: 0,
            spare: 0,
        }
    }

    /// Reserves the addresses, unless that was tried before.
    fn prepare(&mut self) {
        if self.is_reserved || self.most == 0 {
            return;
        }
        self.is_reserved = true;
        self.base = alloc::reserve(self.most * REGION);
        match self.base {
            // SAFETY: the range comes from `reserve` and has this number of bytes (1).
            Some(base) => unsafe { alloc::prefer_small(base, self.most * REGION) },
            None => self.most = 0,
        }
    }

    /// The pages of a region that a run of units touches.
    fn pages(&self, units: &Range<usize>) -> Range<usize> {
        units.start / self.page_units..units.end.div_ceil(self.page_units)
    }

    fn is_empty_page(&self, number: usize, page: usize) -> bool {
        let words = self.page_units / WORD;
        let words = &self.regions[number].used[page * words..][..words];
        words.iter().all(|word| *word == 0)
    }

    /// Bytes that are resident.
    fn footprint(&self) -> usize {
        let own = self.regions.len() * size_of::<Region>()
            + self.regions.capacity() * size_of::<Box<Region>>();
        self.touched * self.page_units * UNIT + own
    }

    /// Changes whether the units of a region are in use.
    fn mark(&mut self, number: usize, units: Range<usize>, in_use: bool) {
        if units.is_empty() {
            return;
        }
        if in_use {
            for page in self.pages(&units) {
                if self.regions[number].touched & 1 << page == 0 {
                    self.regions[number].touched |= 1 << page;
                    self.touched += 1;
                } else if self.is_empty_page(number, page) {
                    self.spare -= 1;
                }
            }
        }
        self.regions[number].mark(units.clone(), in_use);
        if !in_use {
            let pages = self.pages(&units);
            self.spare += pages
                .filter(|page| self.is_empty_page(number, *page))
                .count();
            let most = self.touched / SPARE_SHARE;
            if self.spare > most.clamp(*SPARE.start(), *SPARE.end()) {
                self.give_back(number);
            }
        }
        self.list(number);
    }

    /// Gives the pages of a region without blocks back to the system.
    fn give_back(&mut self, number: usize) {
        let all = 0..UNITS / self.page_units;
        let is_spare = |page: usize| {
            self.regions[number].touched & 1 << page != 0 && self.is_empty_page(number, page)
        };
        let spare: Vec<bool> = all.map(is_spare).collect();
        let Some(base) = self.base else { return };
        let page_bytes = self.page_units * UNIT;
        let mut page = 0;
        for run in spare.chunk_by(|one, next| one == next) {
            if run[0] {
                // SAFETY: the region lies within the range.
                let start = unsafe { base.add(number * REGION + page * page_bytes) };
                // SAFETY: the pages are some of a range from `reserve` (1), and no block uses them
                // (2).
                unsafe { alloc::discard(start.as_ptr(), run.len() * page_bytes) };
                let pages = (page..page + run.len()).map(|page| 1_u16 << page);
                self.regions[number].touched &= !pages.sum::<u16>();
                self.touched -= run.len();
                self.spare -= run.len();
            }
            page += run.len();
        }
    }

    /// Moves a region to the list of its longest free run.
    fn list(&mut self, number: usize) {
        let region = &self.regions[number];
        let (before, after) = (region.longest as usize, region.run(UNITS).len());
        if region.is_condemned {
            self.regions[number].longest = after as u16;
            if after == UNITS {
                self.pardon(number);
            }
            return;
        }
        if before != 0 && list_of(before) == list_of(after.max(1)) && after != 0 {
            self.regions[number].longest = after as u16;
            return;
        }
        self.unlist(number);
        self.regions[number].longest = after as u16;
        self.enlist(number);
    }

    fn unlist(&mut self, number: usize) {
        let Region {
            longest,
            previous,
            next,
            ..
        } = *self.regions[number];
        if longest == 0 {
            return;
        }
        let list = list_of(longest as usize);
        match previous {
            NONE => self.heads[list] = next,
            _ => self.regions[previous as usize].next = next,
        }
        if next != NONE {
            self.regions[next as usize].previous = previous;
        }
        if self.heads[list] == NONE {
            self.filled &= !(1 << list);
        }
    }

    fn enlist(&mut self, number: usize) {
        let longest = self.regions[number].longest as usize;
        if longest == 0 {
            return;
        }
        let list = list_of(longest);
        let next = std::mem::replace(&mut self.heads[list], number as u32);
        self.filled |= 1 << list;
        if next != NONE {
            self.regions[next as usize].previous = number as u32;
        }
        let region = &mut self.regions[number];
        (region.previous, region.next) = (NONE, next);
    }

    /// Adds a region without blocks.
    fn add_region(&mut self) -> Option<usize> {
        let number = self.regions.len();
        (number < self.most).then(|| {
            self.regions.push(Box::new(Region::new()));
            self.enlist(number);
            number
        })
    }

    /// A region with a free run of this number of units.
    fn choose(&mut self, units: usize) -> Option<usize> {
        let list = list_of(units);
        let mut number = self.heads[list];
        for _ in 0..LOOKS {
            let Some(region) = self.regions.get(number as usize) else {
                break;
            };
            if region.longest as usize >= units {
                return Some(number as usize);
            }
            number = region.next;
        }
        // Longer runs than those of the list.
        let lists = self.filled & u64::MAX.checked_shl(list as u32 + 1).unwrap_or(0);
        match self.heads.get(lists.trailing_zeros() as usize) {
            Some(&number) => Some(number as usize),
            None => self.add_region(),
        }
    }

    /// Regions without blocks that follow one another: the number of the first.
    fn choose_many(&mut self, count: usize) -> Option<usize> {
        let mut empty = 0;
        for number in 0.. {
            if number == self.regions.len() {
                self.add_region()?;
            }
            let region = &self.regions[number];
            let is_empty = region.longest as usize == UNITS && !region.is_condemned;
            empty = if is_empty { empty + 1 } else { 0 };
            if empty == count {
                return Some(number + 1 - count);
            }
        }
        None
    }

    /// Takes room for a block; returns its place in the range.
    fn take(&mut self, units: usize) -> Option<usize> {
        let (number, start) = if units > UNITS {
            (self.choose_many(units.div_ceil(UNITS))?, 0)
        } else {
            let number = self.choose(units)?;
            (number, self.regions[number].run(units).start)
        };
        let first = number * UNITS + start;
        self.mark_all(first..first + units, true);
        Some(first)
    }

    /// Changes whether the units of the range, counted from its start, are in use.
    fn mark_all(&mut self, units: Range<usize>, in_use: bool) {
        let mut at = units.start;
        while at < units.end {
            let region = at / UNITS;
            let end = units.end.min((region + 1) * UNITS);
            self.mark(region, at - region * UNITS..end - region * UNITS, in_use);
            at = end;
        }
    }

    /// How full the touched pages of a region are, in sixteenths; `None` if they have no blocks, or
    /// belong to a block of several regions.
    fn filled(&self, number: usize) -> Option<usize> {
        let region = &self.regions[number];
        let touched = region.touched.count_ones() as usize * self.page_units;
        let units = region.units as usize;
        (units > 0 && units < UNITS).then(|| units * 16 / touched.max(1))
    }

    /// Condemns the sparsest regions. Returns whether there are any.
    fn condemn(&mut self) -> bool {
        let mut units = [0; 17];
        for number in 0..self.regions.len() {
            if let Some(filled) = self.filled(number) {
                units[filled.min(16)] += self.regions[number].units as usize;
            }
        }
        let mut left = (self.touched * self.page_units / CONDEMNED_SHARE).max(UNITS);
        // Regions that are filled less are all condemned, and some of those that are filled so.
        let mut filled_most = 0;
        while filled_most < MOST_FILLED && units[filled_most] <= left {
            left -= units[filled_most];
            filled_most += 1;
        }
        let mut is_any = false;
        for number in 0..self.regions.len() {
            let Some(filled) = self.filled(number) else {
                continue;
            };
            let units = self.regions[number].units as usize;
            if filled > filled_most || filled == filled_most && units > left {
                continue;
            }
            if filled == filled_most {
                left -= units;
            }
            self.unlist(number);
            self.regions[number].is_condemned = true;
            is_any = true;
        }
        is_any
    }

    /// Lets a region that was condemned have blocks again.
    fn pardon(&mut self, number: usize) {
        self.regions[number].is_condemned = false;
        self.enlist(number);
    }

    fn pardon_all(&mut self) {
        for number in 0..self.regions.len() {
            if self.regions[number].is_condemned {
                self.pardon(number);
            }
        }
    }

    /// The first unit of a block, unless it came from the global allocator.
    fn place_of(&self, address: usize) -> Option<usize> {
        let offset = address.checked_sub(self.base?.addr().get())?;
        (offset < self.most * REGION).then_some(offset / UNIT)
    }
}

fn units_of(layout: Layout) -> usize {
    layout.size().div_ceil(UNIT)
}

impl Shared {
    /// Counts a change by the lock's owner: bytes of blocks, and bytes from the global allocator.
    fn count(&self, regions: &Regions, used: isize, outside: isize, before: usize) {
        let footprint = (regions.footprint() as isize - before as isize) + outside;
        // Relaxed, both: see `SetHeap::footprint`. They wrap to lower numbers.
        self.footprint
            .fetch_add(footprint as usize, Ordering::Relaxed);
        self.used.fetch_add(used as usize, Ordering::Relaxed);
    }
}

// SAFETY: a block is a run of units that were free, which its mark keeps from others until it is
// deallocated (1), within a range that is released when the source is dropped; `resize` changes the
// marks behind the block only (2). Other blocks are those of the global allocator.
unsafe impl BlockSource for Source {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        let units = units_of(layout);
        let bytes = (units * UNIT) as isize;
        let mut regions = self.0.regions.lock();
        regions.prepare();
        let before = regions.footprint();
        let place = (layout.align() <= UNIT).then(|| regions.take(units));
        if let (Some(base), Some(first)) = (regions.base, place.flatten()) {
            self.0.count(&regions, bytes, 0, before);
            // SAFETY: the block lies within the range.
            return Some(unsafe { base.add(first * UNIT) });
        }
        let block = alloc::alloc(layout, MemoryNode::Local)?;
        self.0.count(&regions, bytes, bytes, before);
        Some(block)
    }

    unsafe fn resize(&self, block: NonNull<u8>, old: Layout, new: Layout) -> bool {
        let mut regions = self.0.regions.lock();
        let Some(first) = regions.place_of(block.addr().get()) else {
            // The global allocator knows the bytes of a block, not our units.
            return old == new;
        };
        let (old, new) = (units_of(old), units_of(new));
        let (number, start) = (first / UNITS, first % UNITS);
        let before = regions.footprint();
        if new > old {
            let end = start + new;
            let region = &regions.regions[number];
            if end > UNITS || region.is_condemned || region.next(start + old, true) < end {
                return false;
            }
            regions.mark_all(first + old..first + new, true);
        } else {
            regions.mark_all(first + new..first + old, false);
        }
        let bytes = (new as isize - old as isize) * UNIT as isize;
        self.0.count(&regions, bytes, 0, before);
        true
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        let units = units_of(layout);
        let bytes = (units * UNIT) as isize;
        let mut regions = self.0.regions.lock();
        let before = regions.footprint();
        if let Some(first) = regions.place_of(block.addr().get()) {
            regions.mark_all(first..first + units, false);
            self.0.count(&regions, -bytes, 0, before);
        } else {
            self.0.count(&regions, -bytes, -bytes, before);
            // SAFETY: the block lies outside the range, so it came from the global allocator with
            // this layout, by the caller's contract (1), which does not use it afterwards (2).
            unsafe { alloc::dealloc(block, layout) };
        }
    }
}

impl Drop for Regions {
    fn drop(&mut self) {
        if let Some(base) = self.base {
            // SAFETY: `reserve` has returned this range with this number of bytes (1). A block
            // keeps the heap alive, so there is none (2).
            unsafe { alloc::release(base, self.most * REGION) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Allocate(usize),
        /// Of one of the blocks.
        Resize(usize, usize),
        Free(usize),
        /// A compaction: blocks that are condemned move.
        Compact,
    }

    fn size() -> impl Strategy<Value = usize> {
        prop_oneof![8 => 1..300_usize, 4 => 300..6_000_usize, 1 => 6_000..200_000_usize]
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = |frees: u32| {
            prop_oneof![
                8 => size().prop_map(Step::Allocate),
                2 => (any::<usize>(), size()).prop_map(|(index, size)| Step::Resize(index, size)),
                frees => any::<usize>().prop_map(Step::Free),
                1 => Just(Step::Compact),
            ]
        };
        let count = if cfg!(miri) { 20 } else { 300 };
        let grow = prop::collection::vec(step(4), 0..count);
        let shrink = prop::collection::vec(step(20), 0..count);
        (grow, shrink).prop_map(|(grow, shrink)| [grow, shrink].concat())
    }

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).expect("a small layout")
    }

    /// A block that is filled with one byte.
    struct Block {
        memory: NonNull<u8>,
        size: usize,
        byte: u8,
    }

    /// A heap and its blocks.
    struct Oracle {
        heap: SetHeap,
        source: Source,
        blocks: Vec<Block>,
        made: usize,
    }

    impl Oracle {
        /// Without addresses all blocks come from the global allocator.
        fn new(has_addresses: bool) -> Self {
            let heap = SetHeap::new(1 << 20);
            if !has_addresses {
                heap.shared.regions.lock().most = 0;
            }
            let source = Source(Arc::clone(&heap.shared));
            let blocks = Vec::new();
            Self {
                heap,
                source,
                blocks,
                made: 0,
            }
        }

        fn allocate(&mut self, size: usize) {
            let memory = self.source.allocate(layout(size)).expect("memory");
            self.made += 1;
            let byte = self.made as u8;
            // SAFETY: the block has this size.
            unsafe { memory.write_bytes(byte, size) };
            self.blocks.push(Block { memory, size, byte });
        }

        fn assert_untouched(block: &Block, size: usize) {
            // SAFETY: the block has this size, and was filled.
            let bytes = unsafe { std::slice::from_raw_parts(block.memory.as_ptr(), size) };
            assert!(bytes.iter().all(|byte| *byte == block.byte), "overwritten");
        }

        fn free(&mut self, index: usize) {
            let block = self.blocks.swap_remove(index);
            Self::assert_untouched(&block, block.size);
            // SAFETY: the block is one of this source's, has this layout, and is forgotten.
            unsafe { self.source.deallocate(block.memory, layout(block.size)) };
        }

        fn resize(&mut self, index: usize, size: usize) {
            let block = &mut self.blocks[index];
            let (old, new) = (layout(block.size), layout(size));
            // SAFETY: the block is one of this source's and has the old layout.
            if unsafe { self.source.resize(block.memory, old, new) } {
                let is_ours = self.heap.shared.regions.lock().base.is_some();
                assert!(is_ours || old == new, "a block of the global allocator");
                Self::assert_untouched(block, size.min(block.size));
                // SAFETY: the block has the new size.
                unsafe { block.memory.write_bytes(block.byte, size) };
                block.size = size;
            }
        }

        /// Moves what is condemned. Returns whether there was something.
        fn compact(&mut self) -> bool {
            let begins = self.heap.begin();
            for index in (0..self.blocks.len()).rev() {
                if self
                    .heap
                    .is_condemned(self.blocks[index].memory.addr().get())
                {
                    self.allocate(self.blocks[index].size);
                    let new = self.blocks.last().expect("the new one");
                    let address = new.memory.addr().get();
                    assert!(
                        !self.heap.is_condemned(address),
                        "moved to a region to leave"
                    );
                    self.free(index);
                }
            }
            self.heap.end();
            begins
        }

        /// Fails unless sums, bits and lists agree with each other and with the blocks.
        fn assert_valid(&self) {
            let used = self.blocks.iter().map(|block| units_of(layout(block.size)));
            let used = used.sum::<usize>() * UNIT;
            assert_eq!(self.heap.footprint() - self.heap.slack(), used);
            let regions = self.heap.shared.regions.lock();
            let (mut units, mut touched, mut with_blocks) = (0, 0, 0);
            let mut listed = 0;
            for (number, region) in regions.regions.iter().enumerate() {
                let bits = region
                    .used
                    .iter()
                    .map(|word| word.count_ones())
                    .sum::<u32>();
                assert_eq!(bits, u32::from(region.units));
                assert_eq!(region.run(UNITS).len(), region.longest as usize);
                assert!(!region.is_condemned);
                listed += usize::from(region.longest > 0);
                units += bits as usize;
                touched += region.touched.count_ones() as usize;
                for page in 0..UNITS / regions.page_units {
                    let has_blocks = !regions.is_empty_page(number, page);
                    let is_touched = region.touched & 1 << page != 0;
                    assert!(
                        is_touched || !has_blocks,
                        "a block is on a page not counted"
                    );
                    with_blocks += usize::from(has_blocks);
                }
            }
            assert_eq!(
                (touched, touched - with_blocks),
                (regions.touched, regions.spare)
            );
            assert!(
                regions.spare <= *SPARE.end(),
                "{} spare pages",
                regions.spare
            );
            if regions.base.is_some() {
                assert_eq!(units * UNIT, used);
                assert_eq!(regions.footprint(), self.heap.footprint());
            }
            for (list, &head) in regions.heads.iter().enumerate() {
                assert_eq!(regions.filled >> list & 1 != 0, head != NONE);
                let (mut number, mut previous) = (head, NONE);
                while let Some(region) = regions.regions.get(number as usize) {
                    assert_eq!(list_of(region.longest as usize), list);
                    assert_eq!(region.previous, previous);
                    (previous, number) = (number, region.next);
                    listed -= 1;
                }
            }
            assert_eq!(listed, 0, "a region with room is in no list");
        }
    }

    impl Drop for Oracle {
        fn drop(&mut self) {
            while !self.blocks.is_empty() {
                self.free(self.blocks.len() - 1);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 48 }))]

        /// Guarantees 1 to 3 and 5, and that no block overlaps another.
        #[test]
        fn blocks_and_pages_are_counted(has_addresses in any::<bool>(), steps in steps()) {
            let mut oracle = Oracle::new(has_addresses);
            for step in steps {
                let nth = |index: usize| index.checked_rem(oracle.blocks.len());
                match step {
                    Step::Allocate(size) => oracle.allocate(size),
                    Step::Resize(index, size) => if let Some(index) = nth(index) {
                        oracle.resize(index, size);
                    },
                    Step::Free(index) => if let Some(index) = nth(index) {
                        oracle.free(index);
                    },
                    Step::Compact => {
                        oracle.compact();
                    }
                }
                oracle.assert_valid();
            }
        }
    }

    /// Pages of the heap's range that the system has made resident, if it tells.
    #[cfg(target_os = "linux")]
    fn resident_bytes(heap: &SetHeap) -> Option<usize> {
        use std::io::{Read, Seek, SeekFrom};
        const PRESENT_OR_SWAPPED: u64 = 3 << 62;
        let regions = heap.shared.regions.lock();
        let (page, first) = (alloc::page_bytes(), regions.base?.addr().get());
        let mut map = std::fs::File::open("/proc/self/pagemap").ok()?;
        map.seek(SeekFrom::Start((first / page * 8) as u64)).ok()?;
        let mut words = vec![0; regions.regions.len() * REGION / page * 8];
        map.read_exact(&mut words).ok()?;
        let words = words
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().expect("8")));
        Some(words.filter(|word| word & PRESENT_OR_SWAPPED != 0).count() * page)
    }

    /// Guarantees 1, 2 and 5, by what the system says.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn what_is_resident_is_counted_and_compaction_gives_pages_back() {
        let mut oracle = Oracle::new(true);
        for number in 0..6_000 {
            oracle.allocate(60 + number * 7_919 % 2_000);
        }
        let is_counted = |oracle: &Oracle| {
            let resident = resident_bytes(&oracle.heap);
            assert!(
                resident.is_none_or(|bytes| bytes <= oracle.heap.footprint()),
                "{resident:?}"
            );
        };
        is_counted(&oracle);
        let full = oracle.heap.footprint();
        assert!(
            oracle.heap.slack() < full / 10,
            "{} of {full}",
            oracle.heap.slack()
        );
        // Three of four, in an order that leaves a block on nearly each page.
        let mut at = 0;
        for _ in 0..4_500 {
            at = (at + 7_919) % oracle.blocks.len();
            oracle.free(at);
        }
        is_counted(&oracle);
        assert!(
            oracle.heap.is_sparse(),
            "{} of {full}",
            oracle.heap.footprint()
        );
        let mut most = 0;
        for _ in 0..100 {
            if !oracle.heap.is_sparse() || !oracle.compact() {
                break;
            }
            most = most.max(oracle.heap.footprint());
        }
        is_counted(&oracle);
        oracle.assert_valid();
        let (slack, left) = (oracle.heap.slack(), oracle.heap.footprint());
        assert!(
            slack < left / 4,
            "{slack} of {left} bytes are in no block, {most} at most"
        );
        assert!(most < full, "{most} of {full}");
        while !oracle.blocks.is_empty() {
            oracle.free(0);
        }
        is_counted(&oracle);
        let spare = oracle.heap.shared.regions.lock().spare;
        assert!(spare <= *SPARE.end(), "{spare} pages");
    }

    #[test]
    fn lists_are_ordered_by_the_runs_in_them() {
        for units in 1..UNITS {
            assert!(list_of(units) <= list_of(units + 1) && list_of(units) < LISTS);
        }
    }
}
