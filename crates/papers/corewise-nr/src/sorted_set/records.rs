//! The records of a sorted set: a score and a member each, side by side in chunks of 64 KiB.
//!
//! ```text
//! record | score 8 | length of the member, varint | member |     padded to 2, at least 12 bytes
//! free   | previous 4 | size 2 | FFFF | next 4 | … |             in the list of its size
//! dead   | - 4        | size 2 | FFFE | … |                      in no list
//! ```
//!
//! A record's *id* is its address in units of two bytes: the number of its chunk, and the place in
//! it. So a set has at most 8 GiB of records. The top bits of a free block are those of a NaN,
//! which no score is; so the blocks of a chunk can be walked from its start. A record of more than
//! a quarter of a chunk has a chunk to itself, of its size.
//!
//! # Guarantees
//!
//! 1. *Room.* A record takes the room of a freed one of its size, else a part of a larger one, else
//!    the end of the last chunk. The last chunk grows by an eighth of all chunks until it is full.
//! 2. *Steps.* An insertion, removal or move changes a bounded number of blocks, and copies a chunk
//!    at most.
//! 3. *Compaction.* While a quarter of the room is free, [`next_to_move`](Records::next_to_move)
//!    names records of the chunk with the most free room. Once they have moved, it frees the chunk.
//! 4. *Determinism.* Ids depend on the history alone: clones and equal histories give equal ids.
//! 5. *Accounting.* [`memory`](Records::memory) is what was requested from the allocator.

use std::cmp::Ordering;

use corewise_atomic::hint::prefetch;

use super::mover::Mover;
use super::score::key;
use super::{Array, TINY, grow_by_an_eighth};
use crate::SetMemory;

/// Bits of an id that are the place in a chunk. Small in tests, so that chunks come and go.
const PLACE_BITS: u32 = if TINY { 7 } else { 15 };
/// Bytes of an address unit.
const UNIT: usize = 2;
/// Units of a full chunk.
const CHUNK: usize = 1 << PLACE_BITS;
/// The most units of a record that shares its chunk.
const SHARING: usize = CHUNK / 4;
/// Numbers of chunks.
const MAX_CHUNKS: usize = 1 << (32 - PLACE_BITS);
/// Units of the smallest record: what a free block needs for its size and its two links.
const LEAST: usize = 6;
/// Units of the first chunk at the start.
const FIRST: usize = if TINY { 16 } else { 128 };

/// No record, no chunk.
const NONE: u32 = u32::MAX;

/// The top bits of a free block that is in a list.
const FREE: u64 = 0xffff;
/// The top bits of a free block that is in no list, because its chunk is to be freed.
const DEAD: u64 = 0xfffe;

/// Sizes that have a list to themselves, from [`LEAST`] on: members of up to 64 bytes.
const EXACT: usize = if TINY { 4 } else { 32 };
/// Lists of free blocks.
const LISTS: usize = 64;
/// Lists of chunks, by the sixteenths of a full chunk that are free.
const CLASSES: usize = 17;
/// The list of the numbers that have no chunk.
const VACANT: usize = LISTS + CLASSES;
/// Heads of lists.
const HEADS: usize = VACANT + 1;

/// Blocks of the chunk to be freed that an insertion may find at the head of a list.
const SKIPPED: usize = 16;
/// Blocks of the chunk to be freed that are looked at for the next record to move.
const WALKED: usize = 32;
/// Vacant numbers at the end that are forgotten when a chunk is freed.
const FORGOTTEN: usize = 64;

/// A chunk with one record, which is larger than [`SHARING`].
const LARGE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Chunk {
    /// Empty if the number is vacant.
    bytes: Array<u8>,
    /// Units from the start that have blocks, or [`LARGE`].
    end: u32,
    /// Units of free and dead blocks.
    freed: u32,
    /// The neighbours in a list of chunks.
    previous: u32,
    next: u32,
}

const _: () = assert!(size_of::<Chunk>() == 48 || size_of::<usize>() != 8);

/// What begins at a place.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Block {
    Record { units: usize },
    Free { units: usize, previous: u32 },
    Dead { units: usize },
}

/// What there is to do for guarantee 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compaction<T> {
    /// A record has to move.
    Move(T),
    /// A step without a record is done, and there may be more to do: blocks without records were
    /// looked at, or a chunk was freed.
    Stepped,
    /// There is nothing to do, or no room to do it.
    Done,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Records {
    chunks: Array<Chunk>,
    /// Heads of the lists of free blocks, of chunks by class, and of vacant numbers; empty until
    /// something is freed.
    heads: Array<u32>,
    /// Which lists of free blocks are not empty.
    filled: u64,
    /// The chunk at whose end new records are put.
    last: u32,
    /// The chunk that is to be freed; it is in no list.
    victim: u32,
    /// The victim's blocks below this place have no records.
    walked: u32,
    /// Units of all blocks in shared chunks.
    units: usize,
    /// Units of the free and the dead ones among them.
    freed: usize,
    /// Bytes of all chunks.
    chunk_bytes: usize,
    /// Numbers that have a chunk.
    used: usize,
    /// The most chunks; lower in a test.
    most: usize,
}

fn id_of(chunk: usize, place: usize) -> u32 {
    (chunk << PLACE_BITS | place) as u32
}

#[inline(always)]
fn chunk_of(id: u32) -> usize {
    (id >> PLACE_BITS) as usize
}

#[inline(always)]
fn place_of(id: u32) -> usize {
    id as usize & (CHUNK - 1)
}

/// Bytes of the length of a member.
fn length_bytes(len: usize) -> usize {
    (len.max(1).ilog2() / 7 + 1) as usize
}

/// Units of the record of a member.
fn units_of(len: usize) -> usize {
    (8 + length_bytes(len) + len).div_ceil(UNIT).max(LEAST)
}

/// The list of the free blocks of this size.
fn list_of(units: usize) -> usize {
    if units < LEAST + EXACT {
        return units - LEAST;
    }
    // Two for each power of two.
    let power = units.ilog2();
    let half = units >> (power - 1) & 1;
    EXACT + 2 * (power - (LEAST + EXACT).ilog2()) as usize + half
}

/// The first list in which all blocks can be cut into one of this size and a free block.
fn first_list_to_cut(units: usize) -> usize {
    let least = units + LEAST;
    if least < LEAST + EXACT {
        list_of(least)
    } else {
        list_of(least) + 1
    }
}

const _: () = assert!(CHUNK <= 1 << 15 && 2 * (16 - 5) + EXACT <= LISTS && FIRST <= CHUNK);

/// Reads a member's length, and returns where the member begins.
#[inline(always)]
fn length(record: &[u8]) -> (usize, usize) {
    let first = record[8];
    if first < 0x80 {
        (first as usize, 9)
    } else {
        long_length(record)
    }
}

#[cold]
fn long_length(record: &[u8]) -> (usize, usize) {
    let (mut len, mut at, mut shift) = (0, 8, 0);
    loop {
        len |= usize::from(record[at] & 0x7f) << shift;
        shift += 7;
        at += 1;
        if record[at - 1] < 0x80 {
            return (len, at);
        }
    }
}

/// Writes a record at the start of these bytes.
fn write_record(bytes: &mut [u8], member: &[u8], score: f64) {
    bytes[..8].copy_from_slice(&score.to_bits().to_le_bytes());
    let (mut at, mut left) = (8, member.len());
    while left >= 0x80 {
        bytes[at] = left as u8 | 0x80;
        left >>= 7;
        at += 1;
    }
    bytes[at] = left as u8;
    bytes[at + 1..][..member.len()].copy_from_slice(member);
}

impl Chunk {
    fn new(units: usize, memory: &SetMemory) -> Self {
        let mut bytes = Array::with_capacity_in(units * UNIT, memory.clone());
        bytes.resize(units * UNIT, 0);
        Self {
            bytes,
            end: 0,
            freed: 0,
            previous: NONE,
            next: NONE,
        }
    }

    fn capacity(&self) -> usize {
        self.bytes.len() / UNIT
    }

    fn is_vacant(&self) -> bool {
        self.bytes.is_empty()
    }

    fn class(&self) -> usize {
        self.freed as usize * (CLASSES - 1) / CHUNK
    }

    fn word(&self, place: usize) -> u64 {
        let bytes = self.bytes[place * UNIT..][..8].try_into();
        u64::from_le_bytes(bytes.expect("8 bytes"))
    }

    fn set_word(&mut self, place: usize, word: u64) {
        self.bytes[place * UNIT..][..8].copy_from_slice(&word.to_le_bytes());
    }

    fn next(&self, place: usize) -> u32 {
        let bytes = self.bytes[place * UNIT + 8..][..4].try_into();
        u32::from_le_bytes(bytes.expect("4 bytes"))
    }

    fn set_next(&mut self, place: usize, next: u32) {
        self.bytes[place * UNIT + 8..][..4].copy_from_slice(&next.to_le_bytes());
    }

    fn block(&self, place: usize) -> Block {
        let word = self.word(place);
        let units = (word >> 32 & 0xffff) as usize;
        match word >> 48 {
            FREE => Block::Free {
                units,
                previous: word as u32,
            },
            DEAD => Block::Dead { units },
            _ => Block::Record {
                units: units_of(length(&self.bytes[place * UNIT..]).0),
            },
        }
    }

    fn set_free(&mut self, place: usize, units: usize, (previous, next): (u32, u32)) {
        let word = FREE << 48 | (units as u64) << 32 | u64::from(previous);
        self.set_word(place, word);
        self.set_next(place, next);
    }

    fn set_dead(&mut self, place: usize, units: usize) {
        self.set_word(place, DEAD << 48 | (units as u64) << 32);
    }

    fn grow(&mut self, units: usize) {
        let more = (units * UNIT).saturating_sub(self.bytes.len());
        self.bytes.reserve_exact(more);
        self.bytes.resize(units * UNIT, 0);
    }
}

impl Records {
    pub(super) fn new(memory: &SetMemory) -> Self {
        Self {
            chunks: Array::new_in(memory.clone()),
            heads: Array::new_in(memory.clone()),
            filled: 0,
            last: NONE,
            victim: NONE,
            walked: 0,
            units: 0,
            freed: 0,
            chunk_bytes: 0,
            used: 0,
            most: MAX_CHUNKS,
        }
    }

    /// Where the records take their memory from.
    pub(super) fn source(&self) -> &SetMemory {
        self.chunks.allocator()
    }

    /// Bytes requested from the allocator.
    pub(super) fn memory(&self) -> usize {
        self.chunk_bytes
            + self.chunks.capacity() * size_of::<Chunk>()
            + self.heads.capacity() * size_of::<u32>()
    }

    pub(super) fn move_arrays(&mut self, mover: &mut Mover<'_>) {
        mover.visit(&mut self.chunks);
        mover.visit(&mut self.heads);
        for chunk in &mut self.chunks {
            mover.visit(&mut chunk.bytes);
        }
    }

    #[inline(always)]
    fn bytes(&self, id: u32) -> &[u8] {
        &self.chunks[chunk_of(id)].bytes[place_of(id) * UNIT..]
    }

    /// The member and the score of a record.
    #[inline(always)]
    pub(super) fn item(&self, id: u32) -> (&[u8], f64) {
        let bytes = self.bytes(id);
        let score = bytes[..8].try_into().expect("8 bytes");
        let (len, start) = length(bytes);
        let member = &bytes[start..][..len];
        (member, f64::from_bits(u64::from_le_bytes(score)))
    }

    /// The member of a record.
    #[inline(always)]
    pub(super) fn member(&self, id: u32) -> &[u8] {
        let bytes = self.bytes(id);
        let (len, start) = length(bytes);
        &bytes[start..][..len]
    }

    /// The score of a record.
    #[inline]
    pub(super) fn score(&self, id: u32) -> f64 {
        let score = self.bytes(id)[..8].try_into().expect("8 bytes");
        f64::from_bits(u64::from_le_bytes(score))
    }

    /// The [key] of the score of a record.
    #[inline]
    pub(super) fn key(&self, id: u32) -> u64 {
        key(self.score(id))
    }

    /// Orders a record relative to a score's key and a member.
    #[inline]
    pub(super) fn compare(&self, id: u32, wanted: (u64, &[u8])) -> Ordering {
        let (member, score) = self.item(id);
        let by_key = key(score).cmp(&wanted.0);
        by_key.then_with(|| member.cmp(wanted.1))
    }

    pub(super) fn set_score(&mut self, id: u32, score: f64) {
        let chunk = &mut self.chunks[chunk_of(id)];
        chunk.set_word(place_of(id), score.to_bits());
    }

    /// Lets the record's first line arrive in the cache.
    pub(super) fn prefetch(&self, id: u32) {
        prefetch(self.bytes(id).as_ptr());
    }

    /// Adds a record. Returns `None` if no number is left for another chunk.
    pub(super) fn insert(&mut self, member: &[u8], score: f64) -> Option<u32> {
        let id = self.allocate(units_of(member.len()))?;
        let chunk = &mut self.chunks[chunk_of(id)];
        write_record(&mut chunk.bytes[place_of(id) * UNIT..], member, score);
        Some(id)
    }

    /// Removes a record.
    pub(super) fn remove(&mut self, id: u32) {
        let (number, place) = (chunk_of(id), place_of(id));
        if self.chunks[number].end == LARGE {
            return self.release(id >> PLACE_BITS);
        }
        let Block::Record { units } = self.chunks[number].block(place) else {
            unreachable!("the caller's id is in use");
        };
        self.freed += units;
        if number as u32 == self.victim {
            let chunk = &mut self.chunks[number];
            chunk.freed += units as u32;
            chunk.set_dead(place, units);
        } else {
            self.count_freed(number, units as i64);
            self.link_block(id, units);
        }
    }

    /// A bounded step of the compaction of guarantee 3. The caller moves the record that it names,
    /// if any, with [`copy`](Self::copy) and [`bury`](Self::bury).
    pub(super) fn next_to_move(&mut self) -> Compaction<u32> {
        if self.victim == NONE && !self.choose_victim() {
            return Compaction::Done;
        }
        let number = self.victim as usize;
        for _ in 0..WALKED {
            let place = self.walked as usize;
            let chunk = &self.chunks[number];
            if place + LEAST > chunk.end as usize {
                self.units -= chunk.end as usize;
                self.freed -= chunk.freed as usize;
                self.victim = NONE;
                self.release(number as u32);
                return Compaction::Stepped;
            }
            match chunk.block(place) {
                Block::Record { .. } => return Compaction::Move(id_of(number, place)),
                Block::Free { units, .. } => {
                    self.unlink_block(id_of(number, place));
                    self.chunks[number].set_dead(place, units);
                    self.walked += units as u32;
                }
                Block::Dead { units } => self.walked += units as u32,
            }
        }
        Compaction::Stepped
    }

    /// Copies a record. Returns the id of the copy, or `None` if there is no room.
    pub(super) fn copy(&mut self, id: u32) -> Option<u32> {
        let Block::Record { units } = self.chunks[chunk_of(id)].block(place_of(id)) else {
            unreachable!("the caller's id is in use");
        };
        let new = self.allocate(units)?;
        let from = place_of(id) * UNIT;
        let to = place_of(new) * UNIT;
        let pair = [chunk_of(id), chunk_of(new)];
        let [source, target] = self
            .chunks
            .get_disjoint_mut(pair)
            .expect("a record leaves its chunk");
        target.bytes[to..][..units * UNIT].copy_from_slice(&source.bytes[from..][..units * UNIT]);
        Some(new)
    }

    /// Removes a record that was copied. Nothing refers to it any more.
    pub(super) fn bury(&mut self, id: u32) {
        debug_assert_eq!(
            id >> PLACE_BITS,
            self.victim,
            "only the victim's records move"
        );
        self.remove(id);
    }

    /// Frees a chunk with all its records, and returns whether there was one. What is left is of no
    /// use any more.
    pub(super) fn drop_chunk(&mut self) -> bool {
        let Some(chunk) = self.chunks.pop() else {
            return false;
        };
        self.chunk_bytes -= chunk.bytes.len();
        true
    }

    /// Room for a record.
    fn allocate(&mut self, units: usize) -> Option<u32> {
        if units > SHARING {
            let number = self.open(units)?;
            self.chunks[number as usize].end = LARGE;
            return Some(id_of(number as usize, 0));
        }
        if self.filled != 0
            && let Some(id) = self.reuse(units)
        {
            return Some(id);
        }
        self.append(units)
    }

    /// Room in a free block of this size, or of a larger one.
    fn reuse(&mut self, units: usize) -> Option<u32> {
        let mut skipped = 0;
        let (own, cut) = (list_of(units), first_list_to_cut(units));
        loop {
            let own = self.filled & 1 << own;
            let larger = self.filled & u64::MAX.checked_shl(cut as u32).unwrap_or(0);
            let list = [own, larger].into_iter().find(|lists| *lists != 0)?;
            let list = list.trailing_zeros() as usize;
            let id = self.heads[list];
            let (number, place) = (chunk_of(id), place_of(id));
            let Block::Free { units: found, .. } = self.chunks[number].block(place) else {
                unreachable!("lists have free blocks only");
            };
            if number as u32 == self.victim {
                self.unlink_block(id);
                self.chunks[number].set_dead(place, found);
                skipped += 1;
                if skipped == SKIPPED {
                    return None;
                }
                continue;
            }
            if found != units && found < units + LEAST {
                // Of the blocks whose sizes share a list, only the first is looked at.
                return self.cut_larger(cut, units);
            }
            self.take(id, found, units);
            return Some(id);
        }
    }

    /// Room in a block of the lists from `cut` on, if its chunk is to stay.
    fn cut_larger(&mut self, cut: usize, units: usize) -> Option<u32> {
        let lists = self.filled & u64::MAX.checked_shl(cut as u32).unwrap_or(0);
        let id = *self.heads[..LISTS].get(lists.trailing_zeros() as usize)?;
        if id >> PLACE_BITS == self.victim {
            return None;
        }
        let Block::Free { units: found, .. } = self.chunks[chunk_of(id)].block(place_of(id)) else {
            unreachable!("lists have free blocks only");
        };
        self.take(id, found, units);
        Some(id)
    }

    /// Takes the first `units` of a free block.
    fn take(&mut self, id: u32, found: usize, units: usize) {
        self.unlink_block(id);
        if found > units {
            self.link_block(id + units as u32, found - units);
        }
        self.freed -= units;
        self.count_freed(chunk_of(id), -(units as i64));
    }

    /// Room at the end of the last chunk, or in a new one.
    fn append(&mut self, units: usize) -> Option<u32> {
        if self.last != NONE {
            let number = self.last as usize;
            let chunk = &mut self.chunks[number];
            let place = chunk.end as usize;
            let (end, capacity) = (place + units, chunk.capacity());
            if end > capacity && end <= CHUNK {
                let more = self.chunk_bytes / UNIT / 8;
                let wanted = end.max(capacity + more).min(CHUNK);
                chunk.grow(wanted);
                self.chunk_bytes += (wanted - capacity) * UNIT;
            }
            if end <= CHUNK {
                chunk.end = end as u32;
                self.units += units;
                return Some(id_of(number, place));
            }
        }
        // A new chunk first: without one, the last stays as it is.
        let more = self.chunk_bytes / UNIT / 8;
        let new = self.open(more.max(FIRST).max(units).min(CHUNK))?;
        self.close_last();
        self.last = new;
        self.chunks[new as usize].end = units as u32;
        self.units += units;
        Some(id_of(new as usize, 0))
    }

    /// Makes a free block of the rest of the last chunk.
    fn close_last(&mut self) {
        let number = std::mem::replace(&mut self.last, NONE) as usize;
        let Some(chunk) = self.chunks.get_mut(number) else {
            return;
        };
        let place = chunk.end as usize;
        let left = chunk.capacity() - place;
        if left >= LEAST {
            chunk.end += left as u32;
            self.units += left;
            self.freed += left;
            self.count_freed(number, left as i64);
            self.link_block(id_of(number, place), left);
        }
    }

    /// A new chunk without blocks.
    fn open(&mut self, units: usize) -> Option<u32> {
        let chunk = Chunk::new(units, self.source());
        let vacant = self.heads.get(VACANT).copied().unwrap_or(NONE);
        let number = if vacant != NONE {
            self.unlink_chunk(vacant, VACANT);
            self.chunks[vacant as usize] = chunk;
            vacant
        } else if self.chunks.len() < self.most {
            grow_by_an_eighth(&mut self.chunks);
            self.chunks.push(chunk);
            (self.chunks.len() - 1) as u32
        } else {
            return None;
        };
        self.chunk_bytes += units * UNIT;
        self.used += 1;
        Some(number)
    }

    /// Frees a chunk that is in no list and has no record.
    fn release(&mut self, number: u32) {
        let vacant = Chunk::new(0, self.source());
        let chunk = std::mem::replace(&mut self.chunks[number as usize], vacant);
        self.chunk_bytes -= chunk.bytes.len();
        self.used -= 1;
        self.link_chunk(number, VACANT);
        for _ in 0..FORGOTTEN {
            match self.chunks.last() {
                Some(chunk) if chunk.is_vacant() => {
                    self.unlink_chunk((self.chunks.len() - 1) as u32, VACANT);
                    self.chunks.pop();
                }
                _ => break,
            }
        }
        if self.chunks.capacity() > 2 * self.chunks.len() + 8 {
            self.chunks
                .shrink_to(self.chunks.len() + self.chunks.len() / 8);
        }
    }

    /// Chooses the chunk to be freed: that with the highest number while most numbers are vacant,
    /// else one of those with the most free room.
    fn choose_victim(&mut self) -> bool {
        if self.freed * 4 < self.units || self.units <= FIRST {
            return false;
        }
        let highest = self.chunks.len() - 1;
        let number = if self.used * 2 < self.chunks.len() && self.is_shared(highest) {
            highest as u32
        } else {
            let classes = self.heads[LISTS..LISTS + CLASSES].iter().rev();
            let mut numbers = classes.copied().filter(|number| *number != NONE);
            let Some(number) = numbers.next() else {
                return false;
            };
            number
        };
        let chunk = &self.chunks[number as usize];
        if chunk.freed > 0 {
            self.unlink_chunk(number, LISTS + chunk.class());
        }
        if number == self.last {
            self.last = NONE;
        }
        (self.victim, self.walked) = (number, 0);
        true
    }

    fn is_shared(&self, number: usize) -> bool {
        let chunk = &self.chunks[number];
        chunk.end != LARGE && !chunk.is_vacant()
    }

    /// The heads of the lists, which exist from now on.
    fn heads(&mut self) -> &mut [u32] {
        if self.heads.is_empty() {
            self.heads.reserve_exact(HEADS);
            self.heads.resize(HEADS, NONE);
        }
        &mut self.heads
    }

    /// Changes the number of a chunk's free units, and moves it to the list for it. A chunk without
    /// free units, and the victim, are in no list.
    fn count_freed(&mut self, number: usize, units: i64) {
        let chunk = &mut self.chunks[number];
        let (freed, class) = (chunk.freed, chunk.class());
        chunk.freed = (i64::from(freed) + units) as u32;
        let (is_in, new) = (chunk.freed > 0, chunk.class());
        let was_in = freed > 0;
        if was_in && !(is_in && class == new) {
            self.unlink_chunk(number as u32, LISTS + class);
        }
        if is_in && !(was_in && class == new) {
            self.link_chunk(number as u32, LISTS + new);
        }
    }

    fn link_chunk(&mut self, number: u32, list: usize) {
        let next = std::mem::replace(&mut self.heads()[list], number);
        if next != NONE {
            self.chunks[next as usize].previous = number;
        }
        let chunk = &mut self.chunks[number as usize];
        (chunk.previous, chunk.next) = (NONE, next);
    }

    fn unlink_chunk(&mut self, number: u32, list: usize) {
        let Chunk { previous, next, .. } = self.chunks[number as usize];
        match previous {
            NONE => self.heads[list] = next,
            _ => self.chunks[previous as usize].next = next,
        }
        if next != NONE {
            self.chunks[next as usize].previous = previous;
        }
    }

    fn link_block(&mut self, id: u32, units: usize) {
        let list = list_of(units);
        let next = std::mem::replace(&mut self.heads()[list], id);
        self.filled |= 1 << list;
        if next != NONE {
            self.set_previous(next, id);
        }
        self.chunks[chunk_of(id)].set_free(place_of(id), units, (NONE, next));
    }

    fn unlink_block(&mut self, id: u32) {
        let (chunk, place) = (&self.chunks[chunk_of(id)], place_of(id));
        let Block::Free { units, previous } = chunk.block(place) else {
            unreachable!("lists have free blocks only");
        };
        let (next, list) = (chunk.next(place), list_of(units));
        match previous {
            NONE => self.heads[list] = next,
            _ => self.chunks[chunk_of(previous)].set_next(place_of(previous), next),
        }
        if next != NONE {
            self.set_previous(next, previous);
        }
        if self.heads[list] == NONE {
            self.filled &= !(1 << list);
        }
    }

    fn set_previous(&mut self, id: u32, previous: u32) {
        let (chunk, place) = (&mut self.chunks[chunk_of(id)], place_of(id));
        let word = chunk.word(place);
        chunk.set_word(place, word >> 32 << 32 | u64::from(previous));
    }

    /// Panics unless the blocks, the lists and the counters agree. Returns the number of records.
    pub(super) fn assert_valid(&self) -> usize {
        let (mut records, mut units, mut freed, mut linked) = (0, 0, 0, 0);
        for (number, chunk) in self.chunks.iter().enumerate() {
            if !self.is_shared(number) {
                records += usize::from(!chunk.is_vacant());
                continue;
            }
            let (mut place, mut freed_here) = (0, 0);
            while place < chunk.end as usize {
                let is_victim = number as u32 == self.victim;
                let walked = is_victim && place < self.walked as usize;
                let (size, is_free) = match chunk.block(place) {
                    Block::Record { units } => (units, false),
                    Block::Free { units, .. } => (units, true),
                    Block::Dead { units } => (units, true),
                };
                assert!(!walked || is_free, "a record was walked past");
                linked += usize::from(matches!(chunk.block(place), Block::Free { .. }));
                let is_dead = matches!(chunk.block(place), Block::Dead { .. });
                assert!(!is_dead || is_victim, "a block is lost");
                records += usize::from(!is_free);
                freed_here += if is_free { size } else { 0 };
                place += size;
            }
            assert_eq!(place, chunk.end as usize, "blocks overlap");
            assert!(place <= chunk.capacity() && chunk.capacity() <= CHUNK);
            assert_eq!(freed_here, chunk.freed as usize);
            (units, freed) = (units + place, freed + freed_here);
        }
        assert_eq!((units, freed), (self.units, self.freed));
        let bytes = self.chunks.iter().map(|chunk| chunk.bytes.len());
        assert_eq!(bytes.sum::<usize>(), self.chunk_bytes);
        self.assert_lists(linked);
        records
    }

    /// Panics unless each free block, each chunk with free room and each vacant number is in its
    /// list.
    fn assert_lists(&self, linked: usize) {
        let mut blocks = 0;
        for (list, &head) in self.heads.iter().enumerate().take(LISTS) {
            assert_eq!(self.filled >> list & 1 == 1, head != NONE);
            let (mut id, mut before) = (head, NONE);
            while id != NONE {
                let chunk = &self.chunks[chunk_of(id)];
                let Block::Free { units, previous } = chunk.block(place_of(id)) else {
                    panic!("a list has a block that is not free");
                };
                assert_eq!((list_of(units), previous), (list, before));
                (before, id) = (id, chunk.next(place_of(id)));
                blocks += 1;
            }
        }
        assert_eq!(blocks, linked, "a free block is in no list");
        let mut listed = 0;
        for (list, &head) in self.heads.iter().enumerate().skip(LISTS) {
            let (mut number, mut before) = (head, NONE);
            while number != NONE {
                let chunk = &self.chunks[number as usize];
                assert_eq!(chunk.previous, before);
                assert_eq!(chunk.is_vacant(), list == VACANT);
                let fits = list == VACANT || LISTS + chunk.class() == list && chunk.freed > 0;
                assert!(fits, "a chunk is in a wrong list");
                (before, number) = (number, chunk.next);
                listed += 1;
            }
        }
        let has_list = |(number, chunk): &(usize, &Chunk)| {
            chunk.is_vacant() || chunk.freed > 0 && *number as u32 != self.victim
        };
        let expected = self.chunks.iter().enumerate().filter(has_list).count();
        assert_eq!(listed, expected, "a chunk is in no list");
        let used = self.chunks.iter().filter(|chunk| !chunk.is_vacant());
        assert_eq!(used.count(), self.used);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(Vec<u8>),
        /// Removes one of the records, and then moves as many records as a removal may.
        Remove(usize),
        Score(usize, f64),
    }

    /// Sizes that share a list, sizes of both kinds of chunks, and lengths of two bytes.
    fn member() -> impl Strategy<Value = Vec<u8>> {
        let size = prop_oneof![4 => 0..24_usize, 2 => 24..60_usize, 1 => 60..400_usize];
        size.prop_flat_map(|size| prop::collection::vec(any::<u8>(), size))
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = |inserts: u32| {
            prop_oneof![
                inserts => member().prop_map(Step::Insert),
                4 => any::<usize>().prop_map(Step::Remove),
                1 => (any::<usize>(), -1e9..1e9).prop_map(|(index, score)| Step::Score(index, score)),
            ]
        };
        let grow = prop::collection::vec(step(12), 0..150);
        let shrink = prop::collection::vec(step(1), 0..150);
        let churn = prop::collection::vec(step(5), 0..150);
        (grow, shrink, churn).prop_map(|(a, b, c)| [a, b, c].concat())
    }

    /// Moves records as a removal does. Returns their ids before and after.
    fn compact(records: &mut Records) -> Vec<(u32, u32)> {
        let mut moved = Vec::new();
        while moved.len() < 4
            && let Compaction::Move(old) = records.next_to_move()
        {
            let new = records.copy(old).expect("chunks are left");
            records.bury(old);
            moved.push((old, new));
        }
        moved
    }

    type Oracle = BTreeMap<u32, (Vec<u8>, f64)>;

    fn rename(oracle: &mut Oracle, moved: Vec<(u32, u32)>) {
        for (old, new) in moved {
            let item = oracle.remove(&old).expect("records move");
            assert_eq!(oracle.insert(new, item), None, "an id is used twice");
        }
    }

    fn assert_equal(records: &Records, oracle: &Oracle) {
        assert_eq!(records.assert_valid(), oracle.len());
        for (&id, (member, score)) in oracle {
            assert_eq!(records.item(id), (&member[..], *score));
            assert_eq!(records.member(id), &member[..]);
            assert_eq!(records.score(id), *score);
        }
    }

    proptest! {
        /// Guarantees 1 and 3 to 5 beside a map of ids, and beside records of equal history.
        #[test]
        fn records_keep_their_content(steps in steps()) {
            let (mut records, mut oracle) = (Records::new(&SetMemory::default()), Oracle::new());
            let mut clone = records.clone();
            let nth = |oracle: &Oracle, index: usize| {
                let index = index.checked_rem(oracle.len())?;
                oracle.keys().nth(index).copied()
            };
            for (number, step) in steps.into_iter().enumerate() {
                if number % 64 == 0 {
                    clone = records.clone();
                }
                match step {
                    Step::Insert(member) => {
                        let id = records.insert(&member, 1.5).expect("chunks are left");
                        prop_assert_eq!(clone.insert(&member, 1.5), Some(id));
                        prop_assert_eq!(oracle.insert(id, (member, 1.5)), None);
                    }
                    Step::Remove(index) => if let Some(id) = nth(&oracle, index) {
                        records.remove(id);
                        clone.remove(id);
                        oracle.remove(&id);
                        let moved = compact(&mut records);
                        prop_assert_eq!(&compact(&mut clone), &moved);
                        rename(&mut oracle, moved);
                    },
                    Step::Score(index, score) => if let Some(id) = nth(&oracle, index) {
                        records.set_score(id, score);
                        clone.set_score(id, score);
                        oracle.get_mut(&id).expect("it is there").1 = score;
                    },
                }
                assert_equal(&records, &oracle);
            }
        }
    }

    /// Guarantee 3: in any order of removal, the room follows what is left.
    #[test]
    fn room_follows_the_records() {
        let orders: [fn(usize, usize) -> usize; 3] =
            [|i, _| i, |i, n| n - 1 - i, |i, n| i * 7_919 % n];
        for order in orders {
            let mut records = Records::new(&SetMemory::default());
            let count = 6_000;
            let name = |number: usize| vec![b'x'; 11 + number % 3];
            let mut ids: Vec<u32> = (0..count)
                .map(|number| records.insert(&name(number), number as f64).expect("room"))
                .collect();
            let full = records.memory();
            for i in 0..count - 4 {
                records.remove(ids[order(i, count)]);
                for (_, new) in compact(&mut records) {
                    ids[records.score(new) as usize] = new;
                }
                // A third more than the records, and some chunks that are filled or emptied.
                let left = count - 1 - i;
                let most = left * 22 * 4 / 3 + 3 * CHUNK * UNIT;
                assert!(
                    records.chunk_bytes < most,
                    "{left}: {}",
                    records.chunk_bytes
                );
                let numbers = 8 * records.used + 64;
                assert!(records.chunks.capacity() < numbers, "{left}: {numbers}");
            }
            records.assert_valid();
            assert!(records.memory() < full / 50);
        }
    }

    /// Room that is freed is used again: the memory of a set that changes does not grow.
    #[test]
    fn freed_room_is_used_again() {
        let mut records = Records::new(&SetMemory::default());
        let name = |number: usize| vec![b'x'; number % 16];
        let mut ids: Vec<u32> = (0..4_000)
            .map(|number| records.insert(&name(number), number as f64).expect("room"))
            .collect();
        let full = records.memory();
        for round in 0..20_000 {
            let number = round * 7_919 % ids.len();
            records.remove(ids[number]);
            for (_, new) in compact(&mut records) {
                ids[records.score(new) as usize] = new;
            }
            let new = records.insert(&name(number + round), number as f64);
            ids[number] = new.expect("room");
        }
        records.assert_valid();
        let most = full * 4 / 3 + 3 * CHUNK * UNIT + HEADS * 4;
        assert!(records.memory() < most, "{full}, {}", records.memory());
    }

    #[test]
    fn without_a_number_for_a_chunk_nothing_is_inserted() {
        let mut records = Records::new(&SetMemory::default());
        records.most = 3;
        let large = records.insert(&[b'l'; 4 * SHARING], 0.0).expect("a chunk");
        let mut ids = vec![large];
        while let Some(id) = records.insert(b"eleven byte", 1.0) {
            ids.push(id);
        }
        assert_eq!(records.assert_valid(), ids.len());
        assert_eq!(ids.len(), 1 + 2 * (CHUNK / units_of(11)));
        assert_eq!(records.insert(&[b'l'; 4 * SHARING], 0.0), None);
        records.remove(large);
        assert!(records.insert(&[b'm'; 4 * SHARING], 0.0).is_some());
        records.remove(ids[1]);
        assert_eq!(records.insert(b"another one", 1.0), Some(ids[1]));
        records.assert_valid();
    }

    #[test]
    fn lists_hold_the_sizes_that_they_name() {
        for units in LEAST..=CHUNK {
            assert!(list_of(units) < LISTS && list_of(units) <= list_of(units + 1));
            let fits = (LEAST..=CHUNK).filter(|&block| list_of(block) >= first_list_to_cut(units));
            assert!(fits.min().is_none_or(|block| block >= units + LEAST));
        }
        for (len, bytes) in [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3)] {
            assert_eq!(length_bytes(len), bytes);
        }
    }
}
