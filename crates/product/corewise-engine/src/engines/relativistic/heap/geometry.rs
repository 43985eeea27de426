//! The units in which a heap divides its memory and its addresses.
//!
//! A node ID has 32 bits and counts *granules*. Items begin at granules, so small granules waste
//! little, and large ones reach far: the range of addresses must be a multiple of the memory,
//! because runs leave addresses unused.
//!
//! | memory up to | granule | page | segment |
//! |---|---|---|---|
//! | 8 GiB | 8 bytes | the system's | see [`segment_log2`] |
//! | 16, 32, 64 GiB | 16, 32, 64 bytes | the system's | 256 KiB |
//! | 128 GiB | 128 bytes | 2 of the system's | 512 KiB |
//! | … 1 TiB | … 1 KiB | … 16 of the system's | … 4 MiB |
//!
//! Above [`SCALED_ABOVE`] all units grow with the memory. So there are never more granules, pages
//! and segments than there, and all that grows with their number is bounded: the numbers of
//! segments, the bits of pages, the table's entries, and the walks over all of them.

use crate::engines::relativistic::MODELLED;

/// The largest memory of an engine.
pub const MAX_MEMORY: u64 = 1 << 40;
/// The smallest memory of an engine. With less, it would hold nothing but open segments.
pub const MIN_MEMORY: u64 = 1 << 20;
/// Memory above which pages and segments grow with granules.
const SCALED_ABOVE: u64 = 64 << 30;

/// Bits of a node ID.
const ID_BITS: u32 = 32;
const SMALLEST_GRANULE_LOG2: u32 = 3;
const LARGEST_GRANULE_LOG2: u32 = 10;
/// Node IDs reach this many times as far as the memory, at least.
const LEAST_REACH: u64 = 4;
/// The reservation as a multiple of the memory, where node IDs reach that far: the limit may be
/// raised, and runs leave addresses unused. (More would cost memory for the numbers of segments
/// that are never used.)
const ROOM: u64 = if MODELLED { 3 } else { 16 };
const LEAST_RESERVED: u64 = if MODELLED { 0 } else { 4 << 30 };
/// Sizes of segments.
const SMALLEST_LOG2: u32 = 15;
const LARGEST_LOG2: u32 = 18;
/// The smallest segment size from [`AMPLE`] memory on: a page is a sixteenth of it.
const SMALLEST_AMPLE_LOG2: u32 = 16;
const AMPLE: u64 = 16 << 20;
/// The most segments that the memory is divided into, unless segments have the largest size.
const SEGMENTS_LOG2: u32 = 9;

const _: () = assert!(MAX_MEMORY * LEAST_REACH == 1 << (ID_BITS + LARGEST_GRANULE_LOG2));

/// See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) granule_log2: u32,
    pub(super) page_log2: u32,
    pub(super) segment_log2: u32,
    /// Bytes of addresses to reserve.
    pub(super) reserved: u64,
}

impl Geometry {
    /// The units for `memory` bytes on a system with pages of `page` bytes.
    pub(super) fn new(memory: u64, page: usize) -> Self {
        let reach = |granule: &u32| 1 << (ID_BITS + granule);
        let reaches = |granule: &u32| reach(granule) >= LEAST_REACH * memory;
        let granule_log2 = (SMALLEST_GRANULE_LOG2..LARGEST_GRANULE_LOG2)
            .find(reaches)
            .unwrap_or(LARGEST_GRANULE_LOG2);
        let scale = memory.div_ceil(SCALED_ABOVE).next_power_of_two().ilog2();
        let page_log2 = page.ilog2() + scale;
        let reserved = (ROOM * memory).max(LEAST_RESERVED);
        Self {
            granule_log2,
            page_log2,
            segment_log2: (segment_log2(memory) + scale).max(page_log2),
            reserved: reserved.min(reach(&granule_log2)),
        }
    }
}

/// The size of segments up to [`SCALED_ABOVE`]: 1/512 of the memory, rounded up to a power of two,
/// at least 32 KiB below 16 MiB of memory, 64 KiB from there on, and at most 256 KiB.
fn segment_log2(memory: u64) -> u32 {
    let wanted = memory.next_power_of_two().ilog2() - SEGMENTS_LOG2;
    let least = if memory < AMPLE {
        SMALLEST_LOG2
    } else {
        SMALLEST_AMPLE_LOG2
    };
    wanted.clamp(least, LARGEST_LOG2)
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;
    use corewise_testkit::random::Random;

    const GIB: u64 = 1 << 30;

    /// Limits of every magnitude: around powers of two, and in between.
    fn limits() -> Vec<u64> {
        let mut random = Random::from_seed(5);
        let mut limits = Vec::new();
        for log2 in MIN_MEMORY.ilog2()..=MAX_MEMORY.ilog2() {
            let power = 1u64 << log2;
            limits.extend([power - 1, power, power + 1, power + (1 << 20)]);
            limits.extend((0..50).map(|_| power + random.below(power)));
        }
        limits.retain(|limit| (MIN_MEMORY..=MAX_MEMORY).contains(limit));
        limits.sort_unstable();
        limits
    }

    #[test]
    fn units_fit_each_other_and_the_ids_at_every_limit() {
        for page in [4 << 10, 16 << 10, 64 << 10] {
            for limit in limits() {
                let units = Geometry::new(limit, page);
                let what = format!("{limit} bytes: {units:?}");
                let reach = 1u64 << (ID_BITS + units.granule_log2);
                assert!(
                    units.reserved <= reach && units.reserved >= 3 * limit,
                    "{what}"
                );
                assert!(units.granule_log2 <= units.page_log2, "{what}");
                assert!(units.page_log2 <= units.segment_log2, "{what}");
                assert!(
                    units.reserved.is_multiple_of(page as u64) || limit < 4 * GIB,
                    "{what}"
                );
                // The ends of the range, as IDs.
                let last = (units.reserved - 1) >> units.granule_log2;
                assert!(u32::try_from(last).is_ok(), "{what}");
            }
        }
    }

    /// What is kept for each segment, page and item, and what walks over them.
    #[test]
    fn there_are_never_more_units_than_at_64_gib() {
        let count = |limit| {
            let units = Geometry::new(limit, 4 << 10);
            [
                units.reserved >> units.segment_log2,
                units.reserved >> units.page_log2,
                limit >> units.granule_log2,
            ]
        };
        let most = count(SCALED_ABOVE);
        assert_eq!(most, [1 << 20, 1 << 26, 1 << 30]);
        for limit in limits() {
            let all = count(limit).into_iter().zip(most);
            assert!(
                all.clone().all(|(count, most)| count <= most),
                "{limit}: {all:?}"
            );
        }
    }

    #[test]
    fn units_are_those_of_the_table() {
        for (limit, granule, page, segment) in [
            (MIN_MEMORY, 8, 4 << 10, 32 << 10),
            ((16 << 20) - 1, 8, 4 << 10, 32 << 10),
            (16 << 20, 8, 4 << 10, 64 << 10),
            (64 << 20, 8, 4 << 10, 128 << 10),
            (8 * GIB, 8, 4 << 10, 256 << 10),
            (8 * GIB + 1, 16, 4 << 10, 256 << 10),
            (32 * GIB, 32, 4 << 10, 256 << 10),
            (64 * GIB, 64, 4 << 10, 256 << 10),
            (64 * GIB + 1, 128, 8 << 10, 512 << 10),
            (128 * GIB, 128, 8 << 10, 512 << 10),
            (300 * GIB, 512, 32 << 10, 2 << 20),
            (MAX_MEMORY, 1 << 10, 64 << 10, 4 << 20),
        ] {
            let units = Geometry::new(limit, 4 << 10);
            let seen = [units.granule_log2, units.page_log2, units.segment_log2];
            assert_eq!(
                seen.map(|log2| 1 << log2),
                [granule, page, segment],
                "{limit}"
            );
        }
    }
}
