//! Which bucket a hash belongs to, and where in its chain.

use std::fmt;

/// How buckets are chosen and chains are ordered.
pub trait Order: fmt::Debug + Send + Sync + 'static {
    /// Whether chains are sorted by [`Order::rank`].
    const SORTED: bool;

    /// The bucket of a hash, of 2^`log2`.
    fn index(hash: u64, log2: u32) -> usize;

    /// The bucket of 2^`smaller` that bucket `bucket` of 2^`larger` is a part of.
    fn parent(bucket: usize, larger: u32, smaller: u32) -> usize;

    /// Where a hash belongs in a sorted chain: before those with a greater one.
    fn rank(hash: u64) -> u64;

    /// The `nth` bucket of 2^`larger` that bucket `bucket` of 2^`smaller` is divided into, in the order in
    /// which their chains are put one behind the other.
    fn child(bucket: usize, nth: usize, smaller: u32, larger: u32) -> usize;
}

/// The lowest bits of the hash; chains in no order.
#[derive(Debug)]
pub struct Unsorted;

/// The lowest bits of the hash; chains by the hash with its bits reversed. What comes to lie in one bucket of
/// a larger table then lies together (Shalev and Shavit, *Split-Ordered Lists*, JACM 2006).
#[derive(Debug)]
pub struct Reversed;

/// The highest bits of the hash; chains by the hash.
#[derive(Debug)]
pub struct HighBits;

#[inline(always)]
fn low_bits(hash: u64, log2: u32) -> usize {
    hash as usize & ((1 << log2) - 1)
}

impl Order for Unsorted {
    const SORTED: bool = false;

    #[inline(always)]
    fn index(hash: u64, log2: u32) -> usize {
        low_bits(hash, log2)
    }
    fn parent(bucket: usize, _: u32, smaller: u32) -> usize {
        low_bits(bucket as u64, smaller)
    }
    #[inline(always)]
    fn rank(_: u64) -> u64 {
        0
    }
    fn child(bucket: usize, nth: usize, smaller: u32, _: u32) -> usize {
        bucket | nth << smaller
    }
}

impl Order for Reversed {
    const SORTED: bool = true;

    #[inline(always)]
    fn index(hash: u64, log2: u32) -> usize {
        low_bits(hash, log2)
    }
    fn parent(bucket: usize, _: u32, smaller: u32) -> usize {
        low_bits(bucket as u64, smaller)
    }
    #[inline(always)]
    fn rank(hash: u64) -> u64 {
        hash.reverse_bits()
    }
    fn child(bucket: usize, nth: usize, smaller: u32, larger: u32) -> usize {
        let bits = larger - smaller;
        let reversed = match bits {
            0 => 0,
            _ => nth.reverse_bits() >> (usize::BITS - bits),
        };
        bucket | reversed << smaller
    }
}

impl Order for HighBits {
    const SORTED: bool = true;

    #[inline(always)]
    fn index(hash: u64, log2: u32) -> usize {
        // In two steps: a shift by all 64 bits is none.
        (hash >> 1 >> (63 - log2)) as usize
    }
    fn parent(bucket: usize, larger: u32, smaller: u32) -> usize {
        bucket >> (larger - smaller)
    }
    #[inline(always)]
    fn rank(hash: u64) -> u64 {
        hash
    }
    fn child(bucket: usize, nth: usize, smaller: u32, larger: u32) -> usize {
        bucket << (larger - smaller) | nth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes() -> impl Iterator<Item = u64> {
        (0..1_000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17))
    }

    /// What a bucket is divided into has all of its hashes, in the order of their ranks.
    fn children_follow_each_other<O: Order>() {
        for (smaller, larger) in [(0, 0), (0, 1), (0, 3), (2, 5), (4, 5)] {
            for bucket in 0..1 << smaller {
                let mut all: Vec<u64> = hashes()
                    .filter(|hash| O::index(*hash, smaller) == bucket)
                    .collect();
                all.sort_by_key(|hash| O::rank(*hash));
                let children =
                    (0..1 << (larger - smaller)).map(|nth| O::child(bucket, nth, smaller, larger));
                let mut joined: Vec<u64> = Vec::new();
                for child in children {
                    assert_eq!(O::parent(child, larger, smaller), bucket);
                    joined.extend(all.iter().filter(|hash| O::index(**hash, larger) == child));
                }
                if O::SORTED {
                    assert_eq!(joined, all, "{smaller} {larger} {bucket}");
                } else {
                    assert_eq!(joined.len(), all.len());
                }
            }
        }
    }

    #[test]
    fn chains_of_children_make_the_chain_of_their_parent() {
        children_follow_each_other::<Unsorted>();
        children_follow_each_other::<Reversed>();
        children_follow_each_other::<HighBits>();
    }
}
