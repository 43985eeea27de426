//! What a filter is built from.

use crate::filter::CuckooFilter;
use crate::path::MAX_SEARCH_LIMIT;
use crate::shape::{BuildError, FilterShape};

/// Buckets that a search for room visits by default. With 512 a filter of 2^24 slots fills to 0.5 %
/// less.
pub const DEFAULT_SEARCH_LIMIT: usize = 1_024;

/// Sizes and policies of a [`CuckooFilter`].
///
/// ```
/// use corewise_filter::CuckooFilter;
///
/// let filter = CuckooFilter::builder()
///     .capacity(10_000)
///     .bits(13)
///     .semi_sorted(true)
///     .seed(42)
///     .build()?;
/// filter.insert("item")?;
/// assert!(filter.contains("item"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Defaults
///
/// | what | default |
/// |---|---|
/// | capacity | 65,536 items |
/// | fingerprints | 12 bits: 0.2 % of false positives when full |
/// | slots in a bucket | 4 |
/// | semi-sorted | no |
/// | seed | 0 |
/// | search limit | [`DEFAULT_SEARCH_LIMIT`] |
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Builder {
    room: Room,
    precision: Precision,
    bucket_slots: u32,
    is_semi_sorted: bool,
    pub(crate) seed: u64,
    pub(crate) search_limit: usize,
    stripes: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Room {
    Items(usize),
    Slots(u64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Precision {
    Bits(u32),
    Fpr(f64),
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            room: Room::Items(1 << 16),
            precision: Precision::Bits(12),
            bucket_slots: 4,
            is_semi_sorted: false,
            seed: 0,
            search_limit: DEFAULT_SEARCH_LIMIT,
            stripes: None,
        }
    }
}

impl Builder {
    /// The number of items that the filter takes with high probability. Replaces
    /// [`slots`](Self::slots). 0 is taken for 1.
    ///
    /// The number of slots follows: items / 0.95 for buckets of four slots (0.84 for two, 0.98 for
    /// eight), and a few more, which matter to small filters. Fingerprints below 6 bits need more
    /// slots, by measurements of up to a million items; larger filters may not take all of theirs.
    #[must_use]
    pub fn capacity(mut self, items: usize) -> Self {
        self.room = Room::Items(items.max(1));
        self
    }

    /// The number of slots, rounded up to two buckets. Replaces [`capacity`](Self::capacity).
    #[must_use]
    pub fn slots(mut self, slots: usize) -> Self {
        self.room = Room::Slots(slots as u64);
        self
    }

    /// The width of fingerprints, 1 to [`MAX_FINGERPRINT_BITS`](crate::MAX_FINGERPRINT_BITS).
    /// Replaces [`fpr`](Self::fpr). A full filter finds one in 2^`bits` / 2b absent items, with b
    /// slots in a bucket.
    #[must_use]
    pub fn bits(mut self, bits: u32) -> Self {
        self.precision = Precision::Bits(bits);
        self
    }

    /// The rate of false positives when the filter holds its capacity, above 0 and below 1, from
    /// which the width of fingerprints follows. Replaces [`bits`](Self::bits). With
    /// [`slots`](Self::slots), it is the rate when every slot is taken.
    #[must_use]
    pub fn fpr(mut self, rate: f64) -> Self {
        self.precision = Precision::Fpr(rate);
        self
    }

    /// The slots of a bucket: 2, 4 or 8. Two have half the false positives of four and fill to
    /// 84 %, eight have twice as many and fill to 98 %. An item can be inserted twice this often.
    #[must_use]
    pub fn bucket_slots(mut self, slots: u32) -> Self {
        self.bucket_slots = slots;
        self
    }

    /// Whether buckets are semi-sorted (Fan et al., §5.2), which saves a bit for each slot and
    /// makes updates and hits slower. For buckets of four slots and fingerprints of 5 bits or more.
    #[must_use]
    pub fn semi_sorted(mut self, is_semi_sorted: bool) -> Self {
        self.is_semi_sorted = is_semi_sorted;
        self
    }

    /// Selects the hash function of items. It is stored with the filter. Has no effect on the
    /// `*_hash` methods.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Buckets that an insertion into full buckets visits in search of room, from 2 (none but its
    /// own) to 65,536; other values are taken for the nearest of these. With more the filter gets
    /// fuller, and an insertion into a full filter takes longer.
    #[must_use]
    pub fn search_limit(mut self, buckets: usize) -> Self {
        self.search_limit = buckets.clamp(2, MAX_SEARCH_LIMIT);
        self
    }

    /// The number of stripes, for models.
    #[cfg(test)]
    pub(crate) fn stripes(mut self, stripes: u32) -> Self {
        self.stripes = Some(stripes);
        self
    }

    /// Builds an empty filter.
    ///
    /// Complexity: a large filter costs no time until it is used, as its memory comes zeroed from
    /// the system.
    ///
    /// # Errors
    ///
    /// See [`BuildError`].
    pub fn build(&self) -> Result<CuckooFilter, BuildError> {
        let shape = self.shape()?;
        let stripes = self.stripes.unwrap_or_else(|| shape.stripes());
        CuckooFilter::with_shape(shape, self.seed, self.search_limit, stripes)
    }

    pub(crate) fn shape(&self) -> Result<FilterShape, BuildError> {
        let (b, sorted) = (self.bucket_slots, self.is_semi_sorted);
        match (self.room, self.precision) {
            (Room::Items(items), Precision::Bits(bits)) => {
                FilterShape::with_capacity(items, b, bits, sorted)
            }
            (Room::Items(items), Precision::Fpr(rate)) => FilterShape::with_fpr(
                |bits| {
                    let shape = FilterShape::with_capacity(items, b, bits, sorted)?;
                    Ok((shape, items as u64))
                },
                b,
                rate,
            ),
            (Room::Slots(slots), Precision::Bits(bits)) => {
                FilterShape::with_slots(slots, b, bits, sorted)
            }
            (Room::Slots(slots), Precision::Fpr(rate)) => FilterShape::with_fpr(
                |bits| {
                    let shape = FilterShape::with_slots(slots, b, bits, sorted)?;
                    Ok((shape, shape.slots()))
                },
                b,
                rate,
            ),
        }
    }
}
