//! The words of the table: the word of a bucket and the word in each node.
//!
//! ```text
//!  63                             32 31   21  20   19   18   17   16  15             0
//! ┌────────────────────────────────┬───────┬────┬────┬────┬────┬────┬────────────────┐
//! │ id of the chain's first node   │   0   │PURE│HOLD│INIT│BUSY│LOCK│ filter, 16 bit │  bucket
//! └────────────────────────────────┴───────┴────┴────┴────┴────┴────┴────────────────┘
//! ┌────────────────────────────────┬────┬────────────────────────────────────────────┐
//! │ id of the next node, 0 if none │GONE│ hash, 31 bit                               │  node
//! └────────────────────────────────┴────┴────────────────────────────────────────────┘
//! ```
//!
//! The fields are placed so that a lookup needs the fewest instructions to extract them: the number
//! of instructions per lookup limits how many lookups can wait for memory at the same time.
//!
//! *Filter.* A Bloom filter with one hash function (the upper four bits of the hash) over the nodes
//! of the bucket. It has false positives, never false negatives: removals leave it unchanged. The
//! filter of an empty bucket is empty, so testing it also tests for the end of the chain.
//!
//! *Flags* of a bucket are described in [`table`](super::table). `GONE`: the node has been removed.
//! Its link is frozen, and only readers that are already on the node follow it.

use std::num::NonZeroU32;

use corewise_atomic::hint;

pub(super) const LOCK: u64 = 1 << 16;
pub(super) const BUSY: u64 = 1 << 17;
pub(super) const INIT: u64 = 1 << 18;
pub(super) const HOLD: u64 = 1 << 19;
pub(super) const PURE: u64 = 1 << 20;

const FLAGS: u64 = LOCK | BUSY | INIT | HOLD | PURE;
const FILTER: u64 = 0xffff;
const ID: u64 = u64::MAX << 32;
const GONE: u64 = 1 << 31;

/// Bits of a hash that nodes keep.
pub(super) const HASH_BITS: u32 = 31;

/// The ID of a node in its [`Arena`](super::Arena).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeId(pub NonZeroU32);

/// The part of a hash that the table uses: the lower [`HASH_BITS`]. The bit above them is ignored.
#[inline(always)]
pub(super) fn fold(hash: u64) -> u32 {
    (hash ^ hash >> 32) as u32
}

/// Clears the bit that is ignored.
#[inline(always)]
pub(super) fn hash_bits(hash: u32) -> u32 {
    hash & (u32::MAX >> (u32::BITS - HASH_BITS))
}

#[inline(always)]
fn id(word: u64) -> Option<NodeId> {
    NonZeroU32::new((word >> 32) as u32).map(NodeId)
}

#[inline(always)]
fn bits(id: Option<NodeId>) -> u64 {
    id.map_or(0, |id| u64::from(id.0.get()) << 32)
}

/// The value of a bucket's word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BucketWord(pub(super) u64);

/// The filter bit of a hash.
#[derive(Clone, Copy)]
pub(super) struct Probe(u64);

impl Probe {
    #[inline(always)]
    pub(super) fn new(hash: u32) -> Self {
        Self(1 << (hash << 1 >> 28))
    }
}

/// A hash as a lookup compares it with those of nodes: without the bit that is ignored.
#[derive(Clone, Copy)]
pub(super) struct ShiftedHash(u32);

impl ShiftedHash {
    #[inline(always)]
    pub(super) fn new(hash: u32) -> Self {
        // Opaque: otherwise the compiler masks both sides of each comparison, which takes one more
        // instruction a node.
        Self(hint::opaque((hash << 1) as usize) as u32)
    }

    #[inline(always)]
    pub(super) fn probe(self) -> Probe {
        Probe(1 << (self.0 >> 28))
    }
}

impl BucketWord {
    pub(super) const EMPTY: BucketWord = BucketWord(0);

    /// The bucket's first node.
    #[inline(always)]
    pub(super) fn first(self) -> Option<NodeId> {
        id(self.0)
    }

    /// The first node of a bucket that may hold the probe's hash.
    #[inline(always)]
    pub(super) fn first_for(self, probe: Probe) -> Option<NodeId> {
        if !self.may_hold(probe) {
            return None;
        }
        // SAFETY: every function that makes a word leaves the filter of an empty bucket empty.
        unsafe { std::hint::assert_unchecked(self.first().is_some()) };
        self.first()
    }

    /// Whether the bucket may hold the probe's hash; if so, it is not empty.
    #[inline(always)]
    pub(super) fn may_hold(self, probe: Probe) -> bool {
        self.0 & probe.0 != 0
    }

    #[inline(always)]
    pub(super) fn flags(self) -> u64 {
        self.0 & FLAGS
    }

    #[inline(always)]
    pub(super) fn has(self, flags: u64) -> bool {
        self.0 & flags == flags
    }

    /// This word with its flags replaced by `flags`.
    #[inline(always)]
    pub(super) fn replace_flags(self, flags: u64) -> BucketWord {
        BucketWord(self.0 & !FLAGS | flags)
    }

    #[inline(always)]
    pub(super) fn set_flags(self, flags: u64) -> BucketWord {
        BucketWord(self.0 | flags)
    }

    /// The word that puts a node in front of this one's chain, without flags.
    #[inline(always)]
    pub(super) fn prepend(self, node: NodeId, probe: Probe) -> BucketWord {
        BucketWord(self.0 & FILTER | probe.0 | bits(Some(node)))
    }

    /// The word after a node was unlinked or replaced: this one with another first node.
    #[inline(always)]
    pub(super) fn with_first(self, first: Option<NodeId>) -> BucketWord {
        let kept = match first {
            Some(_) => self.0 & !ID,
            None => self.0 & FLAGS,
        };
        BucketWord(kept | bits(first))
    }

    /// A word that leads to a chain whose contents are unknown: its filter is full.
    #[inline]
    pub(super) fn to_any(first: NodeId) -> BucketWord {
        BucketWord(bits(Some(first)) | FILTER)
    }

    /// This word with `other`'s filter added. (The filter of an empty chain stays empty.)
    #[inline]
    pub(super) fn covering(self, other: BucketWord) -> BucketWord {
        match self.first() {
            Some(_) => BucketWord(self.0 | other.0 & FILTER),
            None => self,
        }
    }
}

/// The value of a node's word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header(pub(super) u64);

impl Header {
    #[inline(always)]
    pub(super) fn new(hash: u32) -> Self {
        Self(u64::from(hash_bits(hash)))
    }

    #[inline(always)]
    pub(super) fn hash(self) -> u32 {
        hash_bits(self.0 as u32)
    }

    /// Whether the node has this hash.
    #[inline(always)]
    pub(super) fn has_hash(self, hash: ShiftedHash) -> bool {
        (self.0 as u32) << 1 == hash.0
    }

    #[inline(always)]
    pub(super) fn next(self) -> Option<NodeId> {
        id(self.0)
    }

    #[inline(always)]
    pub(super) fn with_next(self, next: Option<NodeId>) -> Self {
        Self(self.0 & !ID | bits(next))
    }

    pub(super) fn is_gone(self) -> bool {
        self.0 & GONE != 0
    }

    pub(super) fn gone(self) -> Self {
        Self(self.0 | GONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u32) -> NodeId {
        NodeId(NonZeroU32::new(id).unwrap())
    }

    const HIGHEST: u32 = u32::MAX >> 1;

    #[test]
    fn a_word_keeps_its_parts_apart() {
        let word = BucketWord::EMPTY.prepend(node(u32::MAX), Probe::new(HIGHEST));
        let word = word.set_flags(LOCK | HOLD);
        assert_eq!(word.first(), Some(node(u32::MAX)));
        assert_eq!(word.flags(), LOCK | HOLD);
        assert!(word.may_hold(Probe::new(HIGHEST)));
        let word = word.replace_flags(BUSY).with_first(Some(node(7)));
        assert_eq!((word.first(), word.flags()), (Some(node(7)), BUSY));
        assert_eq!(word.with_first(None), BucketWord::EMPTY.set_flags(BUSY));
    }

    #[test]
    fn the_filter_excludes_absent_keys() {
        let word = BucketWord::EMPTY.prepend(node(1), Probe::new(0));
        assert!(!word.may_hold(Probe::new(HIGHEST)));
        let word = word.prepend(node(2), Probe::new(HIGHEST));
        assert!(word.may_hold(Probe::new(0)) && word.may_hold(Probe::new(HIGHEST)));
        assert!(!word.may_hold(Probe::new(3 << 27)));
    }

    #[test]
    fn an_empty_bucket_holds_nothing() {
        let full = BucketWord::to_any(node(1)).set_flags(FLAGS);
        for bits in 0..16 {
            assert!(full.may_hold(Probe::new(bits << 27)));
            assert!(!full.with_first(None).may_hold(Probe::new(bits << 27)));
            assert!(
                !BucketWord::EMPTY
                    .covering(full)
                    .may_hold(Probe::new(bits << 27))
            );
        }
    }

    #[test]
    fn a_header_keeps_its_parts_apart() {
        let has = |header: Header, hash| header.has_hash(ShiftedHash::new(hash));
        let header = Header::new(HIGHEST).with_next(Some(node(5)));
        assert_eq!((header.hash(), header.next()), (HIGHEST, Some(node(5))));
        assert!(!header.is_gone());
        let gone = header.gone().with_next(None);
        assert!(gone.is_gone() && has(gone, HIGHEST) && has(gone, u32::MAX));
        assert!(!has(gone, HIGHEST - 1));
        assert_eq!((gone.hash(), gone.next()), (HIGHEST, None));
    }
}
