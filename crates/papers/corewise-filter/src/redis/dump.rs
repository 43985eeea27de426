//! Dumps, in the bytes of `CF.SCANDUMP` and `CF.LOADCHUNK`.
//!
//! ```text
//!  0  items u64          24  subfilters u64
//!  8  buckets u64        32  slots of a bucket u16
//! 16  deletions u64      34  max iterations u16
//!                        36  expansion u16
//! ```
//!
//! Numbers are little-endian. The slots follow in chunks, subfilter by subfilter, a byte each.
//! Iterator 1 is the first slot. `CF.SCANDUMP` returns the iterator of the next chunk with each
//! chunk, and `CF.LOADCHUNK` gets that one: it names the end of its chunk.

use std::error::Error;
use std::fmt;

use super::subfilter::Subfilter;
use super::versions::UNSETTLED;
use super::{
    CompactionRuns, CuckooShape, MAX_SUBFILTERS, Permission, RedisCuckoo, WhileCompacting,
};

/// The bytes of the header of a dump.
pub const HEADER_BYTES: usize = 38;
/// The most bytes in a chunk of RedisBloom.
pub const MAX_CHUNK: usize = 16 << 20;

/// Why bytes are no header of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// They are not [`HEADER_BYTES`].
    Length,
    /// No filter has such a header.
    Content,
    /// The permission was refused, or the system has no memory.
    NoMemory,
}

/// Why a chunk was not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkError {
    /// A compaction runs: try again after its next steps.
    Busy,
    /// It is empty, or does not lie within one subfilter.
    Place,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "the header has another length",
            Self::Content => "no filter has such a header",
            Self::NoMemory => "no memory for the filter",
        })
    }
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "the filter is being compacted",
            Self::Place => "the chunk does not lie within one subfilter",
        })
    }
}

impl Error for HeaderError {}
impl Error for ChunkError {}

impl From<CompactionRuns> for ChunkError {
    fn from(_: CompactionRuns) -> Self {
        Self::Busy
    }
}

/// What the header of a dump says.
struct DumpHeader {
    items: u64,
    deletions: u64,
    subfilters: u64,
    shape: CuckooShape,
}

impl DumpHeader {
    fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let shape = &self.shape;
        let wide = [self.items, shape.buckets, self.deletions, self.subfilters];
        let narrow = [shape.bucket_slots, shape.max_iterations, shape.expansion];
        let mut bytes = [0; HEADER_BYTES];
        let (words, rest) = bytes.as_chunks_mut::<8>();
        for (to, word) in words.iter_mut().zip(wide) {
            *to = word.to_le_bytes();
        }
        for (to, half) in rest.as_chunks_mut::<2>().0.iter_mut().zip(narrow) {
            *to = half.to_le_bytes();
        }
        bytes
    }

    /// `None` if no filter has such a header.
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let word = |index: usize| u64::from_le_bytes(words[index]);
        let half = |index: usize| u16::from_le_bytes(rest.as_chunks::<2>().0[index]);
        let shape = CuckooShape {
            buckets: word(1),
            bucket_slots: half(0),
            max_iterations: half(1),
            expansion: half(2),
        };
        let header = Self {
            items: word(0),
            deletions: word(2),
            subfilters: word(3),
            shape: shape.checked()?,
        };
        let is_right = (1..=MAX_SUBFILTERS as u64).contains(&header.subfilters)
            && (header.subfilters == 1 || shape.expansion > 0)
            && header.slots().is_some();
        is_right.then_some(header)
    }

    /// The slots of all subfilters; `None` if they are too many.
    fn slots(&self) -> Option<i64> {
        (0..self.subfilters as usize).try_fold(0_i64, |sum, index| {
            let slots = self.shape.subfilter(index)?.slots()?;
            sum.checked_add_unsigned(slots)
        })
    }
}

impl RedisCuckoo {
    /// Appends a part of the dump: the header for iterator 0, else the slots from there to the end
    /// of their subfilter, but at most `max_chunk`, which RedisBloom has as [`MAX_CHUNK`]. Returns
    /// the next iterator; 0 without bytes after the end, for negative iterators, and if there are
    /// no items.
    ///
    /// The parts are of one filter if nothing is changed between the calls.
    ///
    /// # Errors
    ///
    /// If a compaction runs.
    ///
    /// Complexity: copies the part, under the lock.
    pub fn dump(
        &self,
        iterator: i64,
        max_chunk: usize,
        beside: WhileCompacting,
        out: &mut Vec<u8>,
    ) -> Result<i64, CompactionRuns> {
        let state = self.writer.lock();
        state.ready(beside)?;
        if state.items == 0 || iterator < 0 {
            return Ok(0);
        }
        if iterator == 0 {
            let header = DumpHeader {
                items: state.items,
                deletions: state.deletions,
                subfilters: self.in_use().count() as u64,
                shape: self.shape,
            };
            out.extend_from_slice(&header.to_bytes());
            return Ok(1);
        }
        let Some((subfilter, first)) = self.place(iterator as u64 - 1) else {
            return Ok(0);
        };
        let len = (subfilter.slots() - first).min(max_chunk.max(1) as u64);
        subfilter.append_to(out, first, first + len);
        // No more than all slots, which an i64 can count.
        Ok(iterator + len as i64)
    }

    /// The subfilter and the slot in it of a slot of the dump.
    fn place(&self, mut slot: u64) -> Option<(&Subfilter, u64)> {
        for subfilter in self.in_use() {
            if slot < subfilter.slots() {
                return Some((subfilter, slot));
            }
            slot -= subfilter.slots();
        }
        None
    }

    /// A filter with this header, whose slots are free until they are loaded.
    ///
    /// # Errors
    ///
    /// If no filter has such a header, the permission for its bytes is refused, or the system has
    /// no memory. Nothing is allocated before.
    pub fn from_header(header: &[u8], may: Permission<'_>) -> Result<Self, HeaderError> {
        let header = header.try_into().map_err(|_| HeaderError::Length)?;
        let header = DumpHeader::parse(header).ok_or(HeaderError::Content)?;
        let filter = Self::with_subfilters(header.shape, header.subfilters as usize, may);
        let mut filter = filter.ok_or(HeaderError::NoMemory)?;
        let state = filter.writer.get_mut();
        state.items = header.items;
        state.deletions = header.deletions;
        Ok(filter)
    }

    /// Stores a chunk that ends before `iterator`, which [`dump`](Self::dump) has returned with it.
    ///
    /// # Errors
    ///
    /// If a compaction runs, or the chunk is empty or does not lie within one subfilter.
    ///
    /// Complexity: copies the chunk, under the lock. Lookups of absent items wait meanwhile.
    pub fn load_chunk(
        &self,
        iterator: i64,
        chunk: &[u8],
        beside: WhileCompacting,
    ) -> Result<(), ChunkError> {
        let mut state = self.writer.lock();
        state.ready(beside)?;
        let len = chunk.len() as u64;
        let first = u64::try_from(iterator).ok();
        let first = first.and_then(|iterator| iterator.checked_sub(1)?.checked_sub(len));
        let place = first.and_then(|first| self.place(first));
        let place = place.filter(|(subfilter, slot)| (1..=subfilter.slots() - slot).contains(&len));
        let (subfilter, slot) = place.ok_or(ChunkError::Place)?;
        self.versions.open(self.versions.all(), UNSETTLED);
        subfilter.overwrite(slot, chunk);
        self.versions.close(self.versions.all());
        state.keep_subfilter();
        Ok(())
    }
}
