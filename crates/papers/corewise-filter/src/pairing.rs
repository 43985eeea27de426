//! The two buckets of an item, each of which follows from the other and the fingerprint.
//!
//! Fan et al. use i2 = i1 ⊕ hash(φ), which needs a power of two. Here i1 + i2 = H(φ) modulo the
//! number of buckets, which may be any even number. H(φ) is odd, so one of the buckets is even and
//! the other odd: they always differ, and all 2b copies of an item have room.
//!
//! The buckets of a fingerprint are one of m/2 pairs, all equally likely.
//!
//! # Doublings
//!
//! The links of a [`GrowingFilter`](crate::GrowingFilter) have m, 2m, 4m, ... buckets. Bucket and
//! sum are those of the first link plus m times some further bits, k in link k. So modulo the
//! buckets of an older link they are that link's: two items with equal buckets and fingerprints
//! have equal ones in all older links too.
//!
//! # Which bits of a hash choose what
//!
//! Let m·2^d be the buckets of the largest possible link, at most 2^32. The integer part of hash /
//! 2^64 · m·2^d is below m·2^d, and at least 2^32 consecutive hashes share each value. Its quotient
//! by 2^d is the bucket in the first link, and its lowest d bits are the further bits, of which
//! link k uses the lowest k. The fingerprint is chosen by the lower 32 bits of the hash, which take
//! all values equally often among those consecutive hashes, except at the two ends. So the bucket,
//! the further bits and the fingerprint are independent, whatever m is.

use corewise_atomic::mutant;

use crate::shape::{FilterShape, MAX_DOUBLINGS};

/// All that a filter stores of an item: its fingerprint and its two buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ItemClass {
    /// Not zero.
    pub(crate) fingerprint: u32,
    /// The bucket that is tried first.
    pub(crate) first: u32,
    pub(crate) second: u32,
}

/// Computes buckets and fingerprints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketPairing {
    buckets: u32,
    fingerprints: u32,
    /// Half of the buckets of the first link.
    half: u32,
    /// The further bits of a bucket; none in a filter that is no link.
    doublings: u16,
    /// The further bits of all possible links: d.
    further_bits: u16,
}

impl BucketPairing {
    pub(crate) fn new(shape: &FilterShape) -> Self {
        let first_link = shape.buckets >> shape.doublings;
        // The same in all links of a filter: m·2^d is at most 2^32, and no link has more buckets.
        let further_bits = (first_link - 1).leading_zeros().min(MAX_DOUBLINGS);
        debug_assert!(shape.doublings <= further_bits);
        Self {
            buckets: shape.buckets,
            fingerprints: shape.fingerprints(),
            half: first_link / 2,
            // At most 30, both.
            doublings: shape.doublings as u16,
            further_bits: further_bits as u16,
        }
    }

    /// The number of buckets of the first link, or of this filter if it is no link.
    #[inline(always)]
    fn first_link(&self) -> u32 {
        2 * self.half
    }

    /// Mask of the further bits of a bucket.
    #[inline(always)]
    fn further_mask(&self) -> u32 {
        (1 << self.doublings) - 1
    }

    /// The class of an item, from a hash that is uniform in all bits: the bucket from the upper
    /// bits, the fingerprint from the lower 32.
    #[inline(always)]
    pub(crate) fn class(&self, hash: u64) -> ItemClass {
        match self.class_outside_links(hash) {
            Some(class) => class,
            None => self.class_in_link(hash),
        }
    }

    /// The same, except that there is none in a link but the first.
    #[inline(always)]
    pub(crate) fn class_outside_links(&self, hash: u64) -> Option<ItemClass> {
        if self.doublings != 0 {
            return None;
        }
        let first = ((u128::from(hash) * u128::from(self.buckets)) >> 64) as u32;
        let fingerprint = self.fingerprint(hash);
        let sum = self.odd_sum(Self::mix(fingerprint));
        Some(ItemClass {
            fingerprint,
            first,
            second: self.difference(sum, first),
        })
    }

    /// The class in a link that is not the first. A call, so that lookups in other filters have
    /// fewer instructions.
    #[inline(never)]
    fn class_in_link(&self, hash: u64) -> ItemClass {
        let product = u128::from(hash) * u128::from(self.first_link());
        // The highest bits of the lower half: those that follow the bucket.
        let further = if mutant!("overlapping_bits") {
            (product >> 40) as u32
        } else {
            (product >> (64 - self.further_bits)) as u32
        };
        let further = further & self.further_mask();
        let first = (product >> 64) as u32 + further * self.first_link();
        self.class_at(self.fingerprint(hash), first)
    }

    #[inline(always)]
    fn fingerprint(&self, hash: u64) -> u32 {
        let scaled = u64::from(hash as u32) * u64::from(self.fingerprints);
        1 + (scaled >> 32) as u32
    }

    #[inline(always)]
    pub(crate) fn class_at(&self, fingerprint: u32, first: u32) -> ItemClass {
        ItemClass {
            fingerprint,
            first,
            second: self.other(fingerprint, first),
        }
    }

    /// The other bucket of a fingerprint that is in `bucket`. An involution.
    #[inline(always)]
    pub(crate) fn other(&self, fingerprint: u32, bucket: u32) -> u32 {
        self.difference(self.sum(fingerprint), bucket)
    }

    /// `sum` - `bucket`, modulo the buckets.
    #[inline(always)]
    fn difference(&self, sum: u32, bucket: u32) -> u32 {
        let (other, has_wrapped) = sum.overflowing_sub(bucket);
        if has_wrapped {
            other.wrapping_add(self.buckets)
        } else {
            other
        }
    }

    #[inline(always)]
    fn mix(fingerprint: u32) -> u32 {
        let mixed = fingerprint.wrapping_mul(0x9e37_79b1);
        (mixed ^ (mixed >> 15)).wrapping_mul(0x85eb_ca77)
    }

    /// An odd number below the buckets of the first link.
    #[inline(always)]
    fn odd_sum(&self, mixed: u32) -> u32 {
        2 * ((u64::from(mixed) * u64::from(self.half)) >> 32) as u32 + 1
    }

    /// H: an odd number below the number of buckets.
    #[inline(always)]
    fn sum(&self, fingerprint: u32) -> u32 {
        let mixed = Self::mix(fingerprint);
        let sum = self.odd_sum(mixed);
        if self.doublings == 0 {
            return sum;
        }
        if mutant!("unrelated_links") {
            return sum ^ (self.further_mask() << 1 & self.half);
        }
        // The best bits of the product come first: few links need more than 16.
        let further = mixed.wrapping_mul(0xc2b2_ae3d).rotate_left(16) & self.further_mask();
        sum + further * self.first_link()
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;
    use crate::shape::MAX_BUCKETS;

    fn pairing(buckets: u32, bits: u32) -> BucketPairing {
        let shape = FilterShape::with_slots(u64::from(buckets) * 2, 2, bits, false).unwrap();
        assert_eq!(shape.buckets, buckets);
        BucketPairing::new(&shape)
    }

    #[test]
    fn each_bucket_follows_from_the_other() {
        for buckets in [2, 4, 6, 10, 62, 64, 1_000_002, MAX_BUCKETS] {
            for bits in [1, 5, 8, 13, 32] {
                let pairing = pairing(buckets, bits);
                let most = pairing.fingerprints;
                let fingerprints = [1, 2, 3, most / 2, most - 1, most];
                for fingerprint in fingerprints.into_iter().filter(|&f| f > 0) {
                    for bucket in [0, 1, buckets / 2, buckets - 2, buckets - 1] {
                        let other = pairing.other(fingerprint, bucket);
                        assert!(other < buckets);
                        assert_ne!(other % 2, bucket % 2);
                        assert_eq!(pairing.other(fingerprint, other), bucket);
                    }
                }
            }
        }
    }

    /// The classes of a link refine those of the older ones.
    #[test]
    fn links_agree_about_buckets_and_pairs() {
        let mut random = crate::testing::Random::new(3);
        for (buckets, count) in [(1_002, 8), (2, MAX_DOUBLINGS + 1), (6, 30)] {
            let shape = FilterShape::with_slots(4 * buckets, 4, 9, false).unwrap();
            let links: Vec<_> = (0..count)
                .map(|k| BucketPairing::new(&shape.doubled(k).unwrap()))
                .collect();
            check_links(&links, &mut random);
        }
    }

    fn check_links(links: &[BucketPairing], random: &mut crate::testing::Random) {
        for _ in 0..3_000 {
            let hash = random.next();
            let newest = links[links.len() - 1].class(hash);
            for link in links {
                let class = link.class(hash);
                assert!(class.first < link.buckets && class.second < link.buckets);
                assert_eq!(class.fingerprint, newest.fingerprint);
                assert_eq!(class.first, newest.first % link.buckets);
                assert_eq!(class.second, newest.second % link.buckets);
                assert_eq!(link.other(class.fingerprint, class.second), class.first);
            }
        }
    }

    /// Takes pairs of random hashes that have the same bucket in the first link. After `k`
    /// doublings a link has to confuse one pair in `f * 2^k`, for `f` fingerprints: its rate of
    /// false positives depends on that. The sizes of the first link are powers of two, multiples of
    /// them, and odd multiples of two.
    #[test]
    fn links_tell_items_apart_whatever_the_size_of_the_first() {
        let mut random = crate::testing::Random::new(9);
        let sizes = (1..=29).map(|shift| 1u32 << shift);
        let multiples = (1..=26).map(|shift| 5 << shift);
        let others = [6, 514, 1_002, 50_002, 1_000_002, (1 << 24) + 2, 300_000_002];
        for buckets in sizes.chain(multiples).chain(others) {
            for (doublings, bits) in [(1, 5), (2, 3), (3, 2), (2, 1), (4, 1)] {
                let most = (u64::from(MAX_BUCKETS) / u64::from(buckets)).ilog2();
                let shape = FilterShape::with_slots(u64::from(buckets) * 2, 2, bits, false);
                let link = shape.unwrap().doubled(u32::min(doublings, most)).unwrap();
                check_link(&BucketPairing::new(&link), buckets, &mut random);
            }
        }
    }

    fn check_link(link: &BucketPairing, buckets: u32, random: &mut crate::testing::Random) {
        let pairs = crate::testing::times(8_000);
        // The hashes with one bucket of the first link are these many, from `start`.
        let width = u64::MAX / u64::from(buckets);
        let equal = (0..pairs).filter(|_| {
            let start = width * random.below(buckets.into());
            let [one, other] = [0; 2].map(|_| link.class(start + random.below(width)));
            one.fingerprint == other.fingerprint && one.first == other.first
        });
        let equal = equal.count() as f64;
        let classes = f64::from(link.fingerprints) * (f64::from(link.further_mask()) + 1.0);
        let mean = pairs as f64 / classes;
        // One of thousands of these checks may be far off; the false bits differ by factors.
        assert!(
            (equal - mean).abs() < 6.0 * mean.sqrt() + 6.0,
            "{buckets} buckets, {link:?}: {equal} pairs are equal, {mean} expected"
        );
    }

    #[test]
    fn extreme_hashes_stay_in_range() {
        for buckets in [2, 10, MAX_BUCKETS] {
            for bits in [1, 12, 32] {
                let pairing = pairing(buckets, bits);
                for hash in [0, 1, u64::MAX, u64::MAX << 32, u64::from(u32::MAX)] {
                    let class = pairing.class(hash);
                    assert!(class.first < buckets && class.second < buckets);
                    assert!((1..=pairing.fingerprints).contains(&class.fingerprint));
                }
                let last = pairing.class(u64::MAX);
                assert_eq!(last.first, buckets - 1);
                assert_eq!(last.fingerprint, pairing.fingerprints);
            }
        }
    }

    /// The pairs of all fingerprints of 16 bits, by chi-square: the sum that decides the partner
    /// takes all its values equally often.
    #[test]
    fn pairs_are_equally_likely() {
        let pairing = pairing(512, 16);
        let mut counts = [0u32; 512];
        for fingerprint in 1..=pairing.fingerprints {
            counts[pairing.sum(fingerprint) as usize] += 1;
        }
        let expected = f64::from(pairing.fingerprints) / 256.0;
        let odd = counts.iter().skip(1).step_by(2);
        let chi: f64 = odd
            .map(|&count| (f64::from(count) - expected).powi(2) / expected)
            .sum();
        // 255 degrees of freedom: the mean is 255, the standard deviation 22.6.
        assert!(chi < 255.0 + 4.0 * 22.6, "{chi}");
        assert!(counts.iter().step_by(2).all(|&count| count == 0));
    }
}
