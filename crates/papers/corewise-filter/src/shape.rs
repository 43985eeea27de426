//! Sizes of a filter: buckets, slots, fingerprints, stripes, and the error rate that follows.

use std::error::Error;
use std::fmt;

/// The widest fingerprint, in bits.
pub const MAX_FINGERPRINT_BITS: u32 = 32;
/// The most buckets of a filter. Their number is even, and fits 32 bits.
pub const MAX_BUCKETS: u32 = u32::MAX - 1;
/// The most slots of a bucket.
pub(crate) const MAX_SLOTS: usize = 8;
/// The most doublings between the first link of a growing filter and the last: one less than
/// [`MAX_LINKS`](crate::MAX_LINKS).
///
/// The smallest first link, of two buckets, then reaches half of [`MAX_BUCKETS`]; one more doubling
/// would exceed them.
pub(crate) const MAX_DOUBLINGS: u32 = 30;
/// The fewest bits of a fingerprint in semi-sorted buckets, which sort by four of its bits.
pub(crate) const MIN_SEMI_SORTED_BITS: u32 = 5;

/// Bytes of a stripe: its version and its lock.
const STRIPE_BYTES: u64 = 12;
/// The most stripes of a filter.
const MAX_STRIPES: u64 = 8_192;
/// Slots for which there is one stripe, at least.
const SLOTS_PER_STRIPE: u64 = 8_192;
/// The same in small filters, which get up to `SMALL_STRIPES`.
const SMALL_SLOTS_PER_STRIPE: u64 = 256;
const SMALL_STRIPES: u64 = 64;

/// Why a filter cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The width of fingerprints is not within 1 to [`MAX_FINGERPRINT_BITS`], the number of slots
    /// in a bucket is not 2, 4 or 8, or semi-sorted buckets have other than 4 slots or fewer than
    /// 5 bits.
    Bits,
    /// The filter would need more than [`MAX_BUCKETS`] buckets, or more memory than there are
    /// addresses.
    Size,
    /// The rate of false positives is not a number above 0 and below 1.
    Fpr,
    /// The rate of false positives needs fingerprints of more than [`MAX_FINGERPRINT_BITS`] bits.
    /// (A capacity of 0 is taken for 1: a filter for one item has a rate above 0.)
    FprTooLow,
    /// The system has no memory for the filter.
    NoMemory,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bits => {
                "fingerprints have 1 to 32 bits, and buckets 2, 4 or 8 slots; semi-sorted buckets \
                 have 4 slots and 5 bits or more"
            }
            Self::Size => "a filter has at most 2^32 - 2 buckets",
            Self::Fpr => "the rate of false positives is a number above 0 and below 1",
            Self::FprTooLow => "the rate of false positives is out of reach of 32 bits",
            Self::NoMemory => "no memory for the filter",
        })
    }
}

impl Error for BuildError {}

/// The sizes from which everything else follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilterShape {
    /// The number of buckets: even, 2 to [`MAX_BUCKETS`].
    pub(crate) buckets: u32,
    /// Slots of a bucket: 2, 4 or 8.
    pub(crate) bucket_slots: u32,
    /// Bits of a fingerprint.
    pub(crate) bits: u32,
    /// Whether buckets are semi-sorted.
    pub(crate) is_semi_sorted: bool,
    /// How often the buckets were doubled since the first link of a growing filter.
    pub(crate) doublings: u32,
}

impl FilterShape {
    /// A filter of at least this number of slots.
    pub(crate) fn with_slots(
        slots: u64,
        bucket_slots: u32,
        bits: u32,
        is_semi_sorted: bool,
    ) -> Result<Self, BuildError> {
        let is_sorted_well = bucket_slots == 4 && bits >= MIN_SEMI_SORTED_BITS;
        if !matches!(bucket_slots, 2 | 4 | 8)
            || !(1..=MAX_FINGERPRINT_BITS).contains(&bits)
            || is_semi_sorted && !is_sorted_well
        {
            return Err(BuildError::Bits);
        }
        let pairs = slots.div_ceil(2 * u64::from(bucket_slots)).max(1);
        let buckets = pairs.checked_mul(2).ok_or(BuildError::Size)?;
        let shape = Self {
            buckets: u32::try_from(buckets).map_err(|_| BuildError::Size)?,
            bucket_slots,
            bits,
            is_semi_sorted,
            doublings: 0,
        };
        shape.checked()
    }

    fn checked(self) -> Result<Self, BuildError> {
        let is_addressable = isize::try_from(self.words().saturating_mul(8)).is_ok();
        let is_small = self.buckets <= MAX_BUCKETS && is_addressable;
        is_small.then_some(self).ok_or(BuildError::Size)
    }

    /// The shape of a link after this number of doublings.
    pub(crate) fn doubled(&self, doublings: u32) -> Result<Self, BuildError> {
        let buckets = u64::from(self.buckets) << doublings;
        let shape = Self {
            buckets: u32::try_from(buckets).map_err(|_| BuildError::Size)?,
            doublings: self.doublings + doublings,
            ..*self
        };
        shape.checked()
    }

    /// A filter that takes this number of items, 1 or more, with high probability.
    pub(crate) fn with_capacity(
        items: usize,
        bucket_slots: u32,
        bits: u32,
        is_semi_sorted: bool,
    ) -> Result<Self, BuildError> {
        // The width is checked first: it selects a load.
        Self::with_slots(1, bucket_slots, bits, is_semi_sorted)?;
        let items = items as f64;
        let spare = f64::from(2 * bucket_slots) * items.log2().ceil();
        let slots = items / full_load(bucket_slots, bits) + spare;
        if slots >= 2f64.powi(40) {
            return Err(BuildError::Size);
        }
        Self::with_slots(slots.ceil() as u64, bucket_slots, bits, is_semi_sorted)
    }

    /// The filter with the narrowest fingerprints whose rate of false positives is at most `rate`.
    /// `make` gives the filter with fingerprints of a width, and the items that it should take.
    pub(crate) fn with_fpr(
        make: impl Fn(u32) -> Result<(Self, u64), BuildError>,
        bucket_slots: u32,
        rate: f64,
    ) -> Result<Self, BuildError> {
        check_fpr(rate)?;
        for bits in narrowest(bucket_slots)..=MAX_FINGERPRINT_BITS {
            let (shape, items) = make(bits)?;
            if shape.fpr(items) <= rate {
                return Ok(shape);
            }
        }
        Err(BuildError::FprTooLow)
    }

    pub(crate) fn slots(&self) -> u64 {
        u64::from(self.buckets) * u64::from(self.bucket_slots)
    }

    /// Bits of a bucket: a semi-sorted one saves one for each slot.
    pub(crate) fn bucket_bits(&self) -> u32 {
        let saved = u32::from(self.is_semi_sorted);
        self.bucket_slots * (self.bits - saved)
    }

    /// Words of the array of buckets. The last is zero: lookups read the word after that in which
    /// a bucket begins, whether or not the bucket ends there.
    pub(crate) fn words(&self) -> u64 {
        (u64::from(self.buckets) * u64::from(self.bucket_bits())).div_ceil(64) + 1
    }

    /// Bytes of the buckets and of the stripes.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.words() * 8 + u64::from(self.stripes()) * STRIPE_BYTES
    }

    /// Nonzero fingerprints.
    pub(crate) fn fingerprints(&self) -> u32 {
        u32::MAX >> (32 - self.bits)
    }

    /// The probability that an item which is not among `items` random ones is found.
    ///
    /// There are m/2 pairs of buckets for each fingerprint, all equally likely, and moves do not
    /// change the pair of a fingerprint.
    pub(crate) fn fpr(&self, items: u64) -> f64 {
        let classes = f64::from(self.buckets) / 2.0 * f64::from(self.fingerprints());
        if items == 0 {
            return 0.0;
        }
        -(items as f64 * (-1.0 / classes).ln_1p()).exp_m1()
    }

    /// The number of stripes, a power of two.
    pub(crate) fn stripes(&self) -> u32 {
        let slots = self.slots();
        let small = (slots / SMALL_SLOTS_PER_STRIPE).min(SMALL_STRIPES);
        let stripes = (slots / SLOTS_PER_STRIPE).max(small).max(1);
        // At most 2^13.
        stripes.next_power_of_two().min(MAX_STRIPES) as u32
    }

    /// The logarithm of the number of buckets that are whole words, so that one stripe has all
    /// buckets of a word. At most 5.
    pub(crate) fn group_shift(&self) -> u32 {
        group_shift(self.bucket_bits())
    }
}

/// As [`FilterShape::group_shift`], for buckets of this number of bits.
#[inline(always)]
pub(crate) const fn group_shift(bucket_bits: u32) -> u32 {
    6u32.saturating_sub(bucket_bits.trailing_zeros())
}

/// Refuses what is not a rate of false positives, NaN included.
pub(crate) fn check_fpr(rate: f64) -> Result<(), BuildError> {
    let is_rate = rate > 0.0 && rate < 1.0;
    is_rate.then_some(()).ok_or(BuildError::Fpr)
}

/// The load up to which a filter takes items with high probability, less than what fresh filters
/// reached in measurements: 0.87, 0.965 and 0.99 for 2, 4 and 8 slots in a bucket.
///
/// Narrow fingerprints have so few pairs of buckets that a few of them overflow early. Their loads
/// are those of filters of up to 2^20 slots, over some seeds.
fn full_load(bucket_slots: u32, bits: u32) -> f64 {
    let (narrow, wide): (&[f64], f64) = match bucket_slots {
        2 => (&[0.02, 0.05, 0.18, 0.25, 0.45], 0.84),
        4 => (&[0.1, 0.25, 0.5, 0.8, 0.92], 0.95),
        _ => (&[0.22, 0.6, 0.88, 0.96], 0.98),
    };
    narrow.get(bits as usize - 1).copied().unwrap_or(wide)
}

/// The narrowest fingerprints that are worth their memory: with narrower ones a filter fills so
/// badly that it takes more bits for an item.
fn narrowest(bucket_slots: u32) -> u32 {
    match bucket_slots {
        2 => 6,
        4 => 5,
        _ => 4,
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn groups_of_buckets_are_whole_words() {
        for bucket_slots in [2, 4, 8] {
            for bits in 1..=32 {
                for is_semi_sorted in [false, true] {
                    let shape = FilterShape::with_slots(100, bucket_slots, bits, is_semi_sorted);
                    let Ok(shape) = shape else { continue };
                    assert_eq!((shape.bucket_bits() << shape.group_shift()) % 64, 0);
                    assert!(shape.group_shift() <= 5);
                    let half = shape.group_shift().checked_sub(1);
                    if let Some(half) = half {
                        assert_ne!((shape.bucket_bits() << half) % 64, 0);
                    }
                }
            }
        }
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let shape = |slots, b, f, sorted| FilterShape::with_slots(slots, b, f, sorted).map(|_| ());
        for (b, f, sorted) in [
            (1, 8, false),
            (3, 8, false),
            (16, 8, false),
            (4, 0, false),
            (4, 33, false),
            (2, 8, true),
            (4, 4, true),
        ] {
            assert_eq!(shape(100, b, f, sorted), Err(BuildError::Bits), "{b} {f}");
        }
        assert_eq!(shape(u64::MAX, 4, 8, false), Err(BuildError::Size));
        let most = u64::from(MAX_BUCKETS) * 2;
        assert_eq!(shape(most, 2, 8, false), Ok(()));
        assert_eq!(shape(most + 1, 2, 8, false), Err(BuildError::Size));
        let make = |bits| {
            let shape = FilterShape::with_capacity(1_000, 4, bits, false)?;
            Ok((shape, 1_000))
        };
        let fpr = |fpr| FilterShape::with_fpr(make, 4, fpr).map(|_| ());
        for wrong in [0.0, 1.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(fpr(wrong), Err(BuildError::Fpr), "{wrong}");
        }
        assert_eq!(fpr(1e-12), Err(BuildError::FprTooLow));
        let huge = FilterShape::with_capacity(usize::MAX, 4, 8, false);
        assert_eq!(huge.map(|_| ()), Err(BuildError::Size));
    }

    #[test]
    fn twelve_bits_at_95_percent_need_12_7_bits_an_item() {
        for (bits, is_semi_sorted) in [(12, false), (13, true)] {
            let shape = FilterShape::with_slots(1 << 24, 4, bits, is_semi_sorted).unwrap();
            let bytes = shape.table_bytes() + 128;
            let per_item = bytes as f64 * 8.0 / (0.95 * shape.slots() as f64);
            assert!(per_item <= 12.7, "{per_item}");
        }
        let rate = |bits| {
            let shape = FilterShape::with_slots(1 << 24, 4, bits, bits == 13).unwrap();
            shape.fpr(shape.slots() * 95 / 100)
        };
        assert!((rate(12) / rate(13) - 2.0).abs() < 0.01);
    }

    #[test]
    fn the_rate_is_that_of_the_paper() {
        // Fan et al., §4.2: 2b/2^f is an upper bound for full filters.
        let shape = FilterShape::with_slots(1 << 20, 4, 12, false).unwrap();
        let rate = shape.fpr(1 << 20);
        assert!(rate < 8.0 / 4096.0 && rate > 0.99 * 8.0 / 4096.0, "{rate}");
        assert_eq!(shape.fpr(0), 0.0);
        let tiny = FilterShape::with_slots(1, 2, 1, false).unwrap();
        assert_eq!((tiny.fpr(0), tiny.fpr(1)), (0.0, 1.0));
    }
}
