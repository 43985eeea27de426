//! Scans: an iteration in steps, each in a separate section, across resizes.
//!
//! Between two steps nothing protects nodes and tables, so a cursor can be neither a node nor a
//! bucket index. It is a *position*: a number of [`HASH_BITS`] bits that is compared with the
//! bit-reversed hashes of nodes. Redis walks its tables in the same order (`SCAN`).
//!
//! ```text
//!  position   0        1/4        1/2        3/4        1      (of 2^31)
//!  4 buckets  │ 00     │ 10       │ 01       │ 11       │
//!  8 buckets  │000 │100│ 010 │110 │ 001 │101 │ 011 │111 │
//! ```
//!
//! In a table of 2^k buckets, the bucket of a node is the lowest k bits of its hash, which are the
//! highest k bits of its position. So a bucket is an interval of positions for every k. A resize
//! splits or joins intervals but moves no node to another position.
//!
//! # Guarantees
//!
//! 1. *Complete*: a node that is in the table from the first step to the last is visited exactly
//!    once. Each step visits whole buckets of the table that it finds, and of their nodes those
//!    whose positions are not below the cursor; the next cursor is the end of the last bucket. So
//!    the intervals of all visits are disjoint and cover all positions, and a node's position is in
//!    one of them.
//! 2. A node that is inserted or removed meanwhile is visited once or not at all. A replacement has
//!    the hash of the node that it replaces, so one of the two is visited.
//! 3. *Progress*: wait-free. A step looks at `most` buckets and nodes and the rest of one chain.
//!    The cursor only grows, so a scan ends however the table is resized.

use std::ptr::NonNull;

use corewise_atomic::mutant;
use corewise_rcu::Section;

use super::chain::{Arena, Link, nodes};
use super::raw::RawTable;
use super::table::load;
use super::word::HASH_BITS;

/// The end of all positions.
const END: u32 = 1 << HASH_BITS;

/// Converts a hash to its position, or a position to its hash.
#[inline]
fn reversed(bits: u32) -> u32 {
    if mutant!("scan_counts_buckets") {
        return bits;
    }
    bits.reverse_bits() >> (u32::BITS - HASH_BITS)
}

impl<A: Arena> RawTable<A> {
    /// Visits nodes from the position `from` on until it has looked at `most` buckets and nodes.
    ///
    /// Returns the position to continue at, which is above 0, or `None` after the last bucket. A
    /// scan begins at 0; any number is a valid position. A node that is in the table during the
    /// whole scan is visited exactly once; see the guarantees at the top of `scan.rs`.
    ///
    /// # Panics
    ///
    /// If the number of buckets is not a power of two.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of this table's domain. The visited nodes are not used after it.
    pub unsafe fn scan(
        &self,
        section: &impl Section,
        from: u32,
        most: usize,
        mut visit: impl FnMut(NonNull<Link>),
    ) -> Option<u32> {
        debug_assert_eq!(section.domain_id(), self.domain().id());
        // SAFETY: the caller is in a section, by 1.
        let table = unsafe { self.current() };
        assert!(table.len().is_power_of_two(), "a scan needs a power of two");
        // No table has more buckets than there are positions.
        let width = END >> table.len().ilog2();
        let (mut at, mut looks) = (from, 0);
        while at < END {
            if looks >= most.max(1) {
                return Some(at);
            }
            let bucket = table.index(reversed(at));
            let first = load(table.slot_at(bucket)).first();
            // SAFETY: the caller's section keeps the nodes, by 1.
            for (_, link) in unsafe { nodes(self.arena(), first) } {
                let hash = link.hash();
                // A zipped chain contains nodes of other buckets.
                let is_own = table.index(hash) == bucket;
                if is_own && (reversed(hash) >= at || mutant!("scan_repeats")) {
                    visit(NonNull::from(link));
                }
                looks += 1;
            }
            looks += 1;
            at = (at | (width - 1)) + 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_a_hash_from_its_lowest_bit_up() {
        for (hash, position) in [(0, 0), (1, END / 2), (2, END / 4), (END - 1, END - 1)] {
            assert_eq!((reversed(hash), reversed(position)), (position, hash));
        }
    }
}
