//! The bucket of a hash, and the order of a chain.

use std::fmt;

/// How buckets are chosen and chains are sorted.
pub trait Order: fmt::Debug + Send + Sync + 'static {
    /// Whether chains are sorted by [`Order::is_after`].
    const SORTED: bool;

    /// The bucket of a hash, out of 2^`log2`.
    fn index(hash: u64, log2: u32) -> usize;

    /// The bucket of 2^`smaller` that contains bucket `bucket` of 2^`larger`.
    fn parent(bucket: usize, larger: u32, smaller: u32) -> usize;

    /// Whether `hash` comes after `other` in a sorted chain.
    fn is_after(hash: u64, other: u64) -> bool;

    /// The `nth` bucket of 2^`larger` that bucket `bucket` of 2^`smaller` is divided into, in the
    /// order in which their chains are concatenated.
    fn child(bucket: usize, nth: usize, smaller: u32, larger: u32) -> usize;
}

/// Buckets by the lowest bits of the hash; chains are unsorted.
#[derive(Debug)]
pub struct Unsorted;

/// Buckets by the lowest bits of the hash; chains are sorted by the hash with its bits reversed. So
/// the entries that share a bucket of a larger table are adjacent, as in \[SplitOrdered\].
#[derive(Debug)]
pub struct Reversed;

/// Buckets by the highest bits of the hash; chains are sorted by the hash.
#[derive(Debug)]
pub struct HighBits;

/// Whether `a` precedes `b` when the bits of both are reversed: the lowest bit that differs
/// decides. (Some machines have no instruction that reverses bits.)
#[inline(always)]
pub(super) fn precedes(a: u64, b: u64) -> bool {
    let differ = a ^ b;
    b & differ & differ.wrapping_neg() != 0
}

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
    fn is_after(_: u64, _: u64) -> bool {
        false
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
    fn is_after(hash: u64, other: u64) -> bool {
        precedes(other, hash)
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
        // In two steps: a shift by all 64 bits is not allowed.
        (hash >> 1 >> (63 - log2)) as usize
    }
    fn parent(bucket: usize, larger: u32, smaller: u32) -> usize {
        bucket >> (larger - smaller)
    }
    #[inline(always)]
    fn is_after(hash: u64, other: u64) -> bool {
        hash > other
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

    fn compare<O: Order>(one: &u64, other: &u64) -> std::cmp::Ordering {
        O::is_after(*one, *other).cmp(&O::is_after(*other, *one))
    }

    /// The children of a bucket have all of its hashes, in the same order.
    fn children_follow_each_other<O: Order>() {
        for (smaller, larger) in [(0, 0), (0, 1), (0, 3), (2, 5), (4, 5)] {
            for bucket in 0..1 << smaller {
                let mut all: Vec<u64> = hashes()
                    .filter(|hash| O::index(*hash, smaller) == bucket)
                    .collect();
                all.sort_by(compare::<O>);
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
    fn reversed_hashes_are_compared_without_reversing_them() {
        let some: Vec<u64> = hashes().take(64).chain(0..64).chain([u64::MAX]).collect();
        for a in &some {
            for b in &some {
                assert_eq!(precedes(*a, *b), a.reverse_bits() < b.reverse_bits());
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
