//! Size classes for statistics: eight classes per doubling of an item's footprint, from 64 bytes
//! up.
//!
//! They do not steer allocation in the `locked` engine. `stats items`, `stats slabs` and `stats
//! sizes` report by them.

/// Footprints up to this many bytes share the first class.
const SMALLEST: usize = 64;
const SMALLEST_LOG2: u32 = SMALLEST.trailing_zeros();
const STEPS_LOG2: u32 = 3;

/// Approximate bytes that an item takes beside its key and value.
pub const HEADER: usize = 32;

/// The number of classes: enough for a footprint of 2^29 bytes.
pub const COUNT: usize = ((29 - SMALLEST_LOG2) << STEPS_LOG2) as usize + 1;

/// The class of an item that takes `footprint` bytes; the first class is 1, as in memcached.
/// Constant time.
#[inline]
#[must_use]
pub fn of(footprint: usize) -> u32 {
    if footprint <= SMALLEST {
        return 1;
    }
    // A class includes its upper bound, so an exact bound belongs to the class below it.
    let below = footprint - 1;
    let log2 = below.ilog2();
    let step = (below >> (log2 - STEPS_LOG2)) & ((1 << STEPS_LOG2) - 1);
    let class = ((log2 - SMALLEST_LOG2) << STEPS_LOG2) + step as u32 + 2;
    class.min(COUNT as u32)
}

/// The largest footprint of a class, in bytes.
#[must_use]
pub fn max_bytes(class: u32) -> u64 {
    let step = u64::from(class.saturating_sub(1));
    let (log2, eighths) = (step >> STEPS_LOG2, step & ((1 << STEPS_LOG2) - 1));
    ((8 + eighths) << log2) * (SMALLEST as u64 >> STEPS_LOG2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_footprint_lies_within_its_class() {
        for footprint in (1..5_000).chain([1 << 20, (1 << 20) + 1, 1 << 27, (1 << 28) + 4_096]) {
            let class = of(footprint);
            assert!(
                footprint as u64 <= max_bytes(class),
                "{footprint} in {class}"
            );
            assert!(
                class == 1 || footprint as u64 > max_bytes(class - 1),
                "{footprint} in {class}"
            );
        }
    }

    #[test]
    fn the_largest_item_has_a_class() {
        assert!(of(1 << 29) as usize <= COUNT);
        assert_eq!(of(usize::MAX) as usize, COUNT);
    }
}
