//! Link words: a pointer to a node, what the rest of its chain may hold, and four flags.
//!
//! ```text
//!  63            48 47                                         4  3    2    1    0
//! ┌────────────────┬─────────────────────────────────────────────┬────┬────┬────┬────┐
//! │ filter, 16 bit │ address of a node, aligned to 16 bytes      │HOLD│INIT│BUSY│LOCK│
//! └────────────────┴─────────────────────────────────────────────┴────┴────┴────┴────┘
//! ```
//!
//! *Filter.* A Bloom filter with one hash function (the upper four bits of the hash) over all nodes
//! that can be reached through the word. Insertion at the head makes it from the old head's, so
//! that every link on a chain has a filter of its own suffix for free. It may say too much, never
//! too little; a null pointer's is empty, so testing it is also the test for the chain's end.
//! Where pointers have 32 bits, or bits above 47, the test is for the end alone.
//!
//! *Flags* of a bucket's word are in [`table`](super::table). In a node's link, `LOCK` says that
//! the node has been removed: the link is frozen and only those who are on the node already follow
//! it.

use super::raw::Link;

pub(super) const LOCK: usize = 1;
pub(super) const BUSY: usize = 2;
pub(super) const INIT: usize = 4;
pub(super) const HOLD: usize = 8;
/// In a node's own link.
pub(super) const REMOVED: usize = LOCK;

const FLAGS: usize = 15;
#[cfg(target_pointer_width = "64")]
const ADDRESS: usize = ((1 << 48) - 1) & !FLAGS;
#[cfg(not(target_pointer_width = "64"))]
const ADDRESS: usize = !FLAGS;
const FILTER: usize = !(ADDRESS | FLAGS);

/// A value of a link word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Word(pub(super) *mut Link);

/// What a lookup tests words with.
#[derive(Clone, Copy)]
pub(super) struct Probe(usize);

impl Probe {
    #[inline(always)]
    pub(super) fn new(hash: u64) -> Self {
        #[cfg(target_pointer_width = "64")]
        return Self(1 << (48 + (hash >> 60)));
        #[cfg(not(target_pointer_width = "64"))]
        {
            let _ = hash;
            Self(ADDRESS)
        }
    }

    /// What an inserted node adds to a filter.
    #[inline(always)]
    fn bits(self) -> usize {
        self.0 & FILTER
    }
}

impl Word {
    pub(super) const NULL: Word = Word(std::ptr::null_mut());

    /// Whether a node may have the address that a word can hold.
    #[inline(always)]
    pub(super) fn can_hold(node: *mut Link) -> bool {
        node.addr() & !ADDRESS == 0
    }

    #[inline(always)]
    pub(super) fn node(self) -> *mut Link {
        self.0.map_addr(|addr| addr & ADDRESS)
    }

    #[inline(always)]
    pub(super) fn is_null(self) -> bool {
        self.0.addr() & ADDRESS == 0
    }

    /// Whether the chain may hold what the probe is for; never true at its end.
    #[inline(always)]
    pub(super) fn may_hold(self, probe: Probe) -> bool {
        self.0.addr() & probe.0 != 0
    }

    #[inline(always)]
    pub(super) fn flags(self) -> usize {
        self.0.addr() & FLAGS
    }

    #[inline(always)]
    pub(super) fn has(self, flags: usize) -> bool {
        self.0.addr() & flags == flags
    }

    /// The pointer and the filter, with these flags.
    #[inline(always)]
    pub(super) fn with_flags(self, flags: usize) -> Word {
        Word(self.0.map_addr(|addr| addr & !FLAGS | flags))
    }

    #[inline(always)]
    pub(super) fn and_flags(self, flags: usize) -> Word {
        Word(self.0.map_addr(|addr| addr | flags))
    }

    /// The word that puts `node` in front of this one's chain. Without flags.
    #[inline(always)]
    pub(super) fn prepend(self, node: *mut Link, probe: Probe) -> Word {
        let filter = self.0.addr() & FILTER | probe.bits();
        Word(node.map_addr(|addr| addr | filter))
    }

    /// This word with another pointer.
    #[inline(always)]
    pub(super) fn with_node(self, node: *mut Link) -> Word {
        let rest = self.0.addr() & !ADDRESS;
        Word(node.map_addr(|addr| addr | rest))
    }

    /// This word, its filter widened by that of `other`. (A null pointer's stays empty.)
    #[inline]
    pub(super) fn covering(self, other: Word) -> Word {
        Word(self.0.map_addr(|addr| addr | other.0.addr() & FILTER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(addr: usize) -> *mut Link {
        std::ptr::without_provenance_mut(addr)
    }

    #[test]
    fn a_word_keeps_its_parts_apart() {
        let word = Word::NULL.prepend(node(0x7fff_1230), Probe::new(7 << 60));
        let word = word.and_flags(LOCK | HOLD);
        assert_eq!(word.node(), node(0x7fff_1230));
        assert_eq!(word.flags(), LOCK | HOLD);
        assert!(word.may_hold(Probe::new(7 << 60)));
        assert_eq!(word.with_flags(0).with_node(node(0x40)).node(), node(0x40));
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn the_filter_says_what_cannot_be_there() {
        let word = Word::NULL.prepend(node(0x10), Probe::new(0));
        assert!(!word.may_hold(Probe::new(u64::MAX)));
        let word = word.prepend(node(0x20), Probe::new(u64::MAX));
        assert!(word.may_hold(Probe::new(0)) && word.may_hold(Probe::new(u64::MAX)));
        assert!(!word.may_hold(Probe::new(3 << 60)));
    }

    #[test]
    fn the_end_of_a_chain_holds_nothing() {
        for bits in 0..16 {
            assert!(!Word::NULL.and_flags(15).may_hold(Probe::new(bits << 60)));
        }
    }
}
