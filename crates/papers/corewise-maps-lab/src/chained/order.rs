//! The bucket of a hash, and the order of a chain.

use std::fmt;

/// How chains are sorted.
pub trait Order: fmt::Debug + Send + Sync + 'static {
    /// Whether chains are sorted by [`Order::is_after`].
    const SORTED: bool;

    /// Whether `hash` comes after `other` in a sorted chain.
    fn is_after(hash: u64, other: u64) -> bool;

    /// The `nth` bucket of 2^`larger` that bucket `bucket` of 2^`smaller` is divided into, in the
    /// order in which their chains are concatenated.
    fn child(bucket: usize, nth: usize, smaller: u32, larger: u32) -> usize;
}

/// Chains are unsorted.
#[derive(Debug)]
pub struct Unsorted;

/// Chains are sorted by the hash with its bits reversed. So the entries that share a bucket of a
/// larger table are adjacent, as in \[SplitOrdered\].
#[derive(Debug)]
pub struct Reversed;

/// Whether `a` precedes `b` when the bits of both are reversed: the lowest bit that differs
/// decides. (Some machines have no instruction that reverses bits.)
#[inline(always)]
pub(super) fn precedes(a: u64, b: u64) -> bool {
    let differ = a ^ b;
    b & differ & differ.wrapping_neg() != 0
}

/// The bucket of a hash, out of 2^`log2`. The bucket of a bucket's number is the bucket of the
/// smaller table that contains it.
#[inline(always)]
pub(super) fn bucket_of(hash: u64, log2: u32) -> usize {
    hash as usize & ((1 << log2) - 1)
}

impl Order for Unsorted {
    const SORTED: bool = false;

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
                    .filter(|hash| bucket_of(*hash, smaller) == bucket)
                    .collect();
                all.sort_by(compare::<O>);
                let children =
                    (0..1 << (larger - smaller)).map(|nth| O::child(bucket, nth, smaller, larger));
                let mut joined: Vec<u64> = Vec::new();
                for child in children {
                    assert_eq!(bucket_of(child as u64, smaller), bucket);
                    joined.extend(all.iter().filter(|hash| bucket_of(**hash, larger) == child));
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
    }
}
