//! Position of a scan: a bucket of a shard's table.
//!
//! hashbrown moves an element only when it rehashes its table, to grow or to remove tombstones, and
//! then calls the hasher that it was given. So a shard counts its rehashes, and a cursor carries
//! the count. While the count is the same, every item that was not yet shown lies at or behind the
//! cursor's bucket, unless it was linked later. After a rehash nothing is known about the order, so
//! the scan begins the shard again; the cursor counts these restarts, too.
//!
//! ```text
//!  63         52 51        33 32      30 29                 0
//! ┌─────────────┬────────────┬──────────┬────────────────────┐
//! │ shard       │ rehashes   │ restarts │ bucket             │
//! └─────────────┴────────────┴──────────┴────────────────────┘
//! ```
//!
//! The count of rehashes is kept modulo 2^19. A scan may miss items of a shard that is rehashed
//! exactly 2^19 times, or a multiple of that, between two steps.

use super::references::References;
use super::shard::Shard;
use crate::engine::Cursor;
use corewise_ops::{ItemView, Now};

const BUCKET_BITS: u32 = 30;
const RESTART_BITS: u32 = 3;
const REHASH_BITS: u32 = 19;
const _: () = assert!(super::MAX_SHARDS <= 1 << (64 - BUCKET_BITS - RESTART_BITS - REHASH_BITS));

/// The most restarts that a scan tolerates in one shard.
const MOST_RESTARTS: u64 = (1 << RESTART_BITS) - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScanPosition {
    pub(super) shard: usize,
    rehashes: u64,
    restarts: u64,
    bucket: usize,
}

impl ScanPosition {
    pub(super) fn of(cursor: Cursor) -> Self {
        let mut bits = cursor.to_bits();
        let mut take = |width: u32| {
            let part = bits & ((1 << width) - 1);
            bits >>= width;
            part
        };
        let bucket = take(BUCKET_BITS) as usize;
        let (restarts, rehashes) = (take(RESTART_BITS), take(REHASH_BITS));
        Self {
            shard: bits as usize,
            rehashes,
            restarts,
            bucket,
        }
    }

    /// The position at a fraction of a shard.
    pub(super) fn within<R: References>(
        number: usize,
        shard: &mut Shard<R>,
        fraction: u32,
    ) -> Self {
        let buckets = shard.buckets().min(1 << BUCKET_BITS);
        Self {
            shard: number,
            rehashes: shard.rehashes() & ((1 << REHASH_BITS) - 1),
            bucket: crate::engine::scale(buckets, fraction).0,
            ..Self::of(Cursor::START)
        }
    }

    pub(super) fn cursor(self) -> Cursor {
        let bits = (self.shard as u64) << REHASH_BITS | self.rehashes;
        let bits = (bits << RESTART_BITS | self.restarts) << BUCKET_BITS;
        Cursor::from_bits(bits | self.bucket as u64)
    }

    /// Continues in its shard for at most `looks` buckets, and moves to the next shard at its end.
    /// Returns false if the shard was rehashed too often.
    pub(super) fn scan<R: References>(
        &mut self,
        shard: &mut Shard<R>,
        looks: &mut usize,
        now: Now,
        show: &mut dyn FnMut(&ItemView<'_>),
    ) -> bool {
        let rehashes = shard.rehashes() & ((1 << REHASH_BITS) - 1);
        if self.bucket > 0 && self.rehashes != rehashes {
            if self.restarts == MOST_RESTARTS {
                return false;
            }
            (self.bucket, self.restarts) = (0, self.restarts + 1);
        }
        let end = shard.buckets().min(1 << BUCKET_BITS);
        let from = self.bucket.min(end);
        let to = end.min(from + *looks);
        shard.show(from..to, now, show);
        *looks -= to - from;
        if to == end {
            *self = Self {
                shard: self.shard + 1,
                ..Self::of(Cursor::START)
            };
        } else {
            (self.bucket, self.rehashes) = (to, rehashes);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_cursor_and_back() {
        let places = [
            (0, 0, 0, 0),
            (1, 2, 3, 4),
            (4_095, (1 << REHASH_BITS) - 1, MOST_RESTARTS, (1 << 30) - 1),
        ];
        for (shard, rehashes, restarts, bucket) in places {
            let place = ScanPosition {
                shard,
                rehashes,
                restarts,
                bucket,
            };
            assert_eq!(ScanPosition::of(place.cursor()), place);
        }
    }
}
