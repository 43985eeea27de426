//! What the lock on resizing protects: when a table resizes, and how far it is.

use std::collections::VecDeque;
use std::ptr::NonNull;

use corewise_rcu::Cookie;

use super::shares::{Pass, PassKind, Shares};
use super::table::BucketArray;

/// The most tables in use at a time: doublings while no grace period ends.
pub(super) const MAX_LEVELS: usize = 48;

/// Buckets below which a table that would quadruple grows by a factor of 8: to 16 KiB of buckets at
/// most. In so small a table the growth costs as much by its grace periods as by its visits to
/// buckets: each interrupts the other threads, and an expansion takes about four.
const OCTUPLE_BELOW: usize = 1 << 9;

/// Maximum factor of one automatic shrink.
const MAX_SHRINK: usize = 16;

/// When a table resizes by itself.
#[derive(Clone, Copy, Debug)]
pub struct ResizePolicy {
    /// The table never shrinks below this number of buckets by itself.
    pub min_buckets: usize,
    /// Whether the table grows above three entries for four buckets, and shrinks below one entry
    /// for eight buckets; below 4,096 buckets, for sixteen.
    pub automatic: bool,
    /// The number of buckets below which the table grows by a factor of 4 or more, and not 2: most
    /// of the cost of growing is in visits to buckets, whose number is then a third.
    pub quadruple_below: usize,
    /// Whether bucket arrays of 2 MiB and more request huge pages. They mean fewer TLB misses, but
    /// an operation that is the first to touch one waits until the system has cleared 2 MiB.
    pub huge_pages: bool,
}

impl ResizePolicy {
    /// The factor by which a table of `buckets` grows at least, if it may have `most` of them.
    pub(super) fn least_factor(&self, buckets: usize, most: usize) -> usize {
        let factor = if buckets >= self.quadruple_below {
            2
        } else if buckets < OCTUPLE_BELOW {
            8
        } else {
            4
        };
        if buckets <= most / factor { factor } else { 2 }
    }

    /// The number of entries below which `buckets` are too many: two thirds of the entries that a
    /// table has after the largest growth to that size, so that it does not alternately grow and
    /// shrink.
    pub(super) fn fewest_entries(buckets: usize) -> usize {
        if buckets < 8 * OCTUPLE_BELOW {
            buckets / 16
        } else {
            buckets / 8
        }
    }

    /// How many changes of the number of entries a thread counts before it reports them. The number
    /// is small where the table grows by a large factor, because changes that threads have not
    /// reported delay the growth.
    pub(super) fn report_after(buckets: usize) -> usize {
        let part = if buckets < OCTUPLE_BELOW { 128 } else { 64 };
        (buckets / part).clamp(1, 64)
    }

    /// The number of entries above which `buckets` are too few.
    ///
    /// Three quarters: 11 to 21 bytes of buckets per entry, in tables that quadruple up to 43, and
    /// up to 85 in small ones. A load of 1 made chains longer where it costs most, just before a
    /// doubling.
    pub(super) fn most_entries(buckets: usize) -> usize {
        buckets - buckets / 4
    }

    /// Smallest power of two >= the buckets needed for `entries`.
    pub(super) fn buckets_for(entries: usize) -> usize {
        let wanted = entries.saturating_add(entries / 3 + 1);
        // No array has more buckets; allocating it fails.
        wanted
            .checked_next_power_of_two()
            .unwrap_or(1 << (usize::BITS - 1))
    }
}

/// State of resizing.
pub(super) struct Resizer {
    pub(super) policy: ResizePolicy,
    /// The number of buckets that was requested, and how often a request failed for lack of memory.
    pub(super) wanted: Option<usize>,
    pub(super) refused: u64,
    /// The pass that builds a new table, or opens it.
    pub(super) build: Option<Pass>,
    /// The number of published tables in use; more than one while buckets are zipped.
    pub(super) levels: usize,
    /// The sweep over the oldest table, and the grace period after which the next one may begin, or
    /// a shrink if no expansion is left.
    pub(super) sweep: Option<Pass>,
    pub(super) after: Cookie,
    /// Estimate, from the previous sweep over the oldest table, of how many buckets the next sweep
    /// visits for each one that has something to cut.
    pub(super) sparse: usize,
    /// Whether a shrink is due and only
    /// [`may_shrink`](super::resize::LockedResizer::may_shrink) delays it.
    pub(super) shrink_waits: bool,
    pub(super) garbage: VecDeque<Garbage>,
    /// Completed resizes: expansions that are unzipped, and shrinks.
    pub(super) completed: u64,
    #[cfg(corewise_stress)]
    pub(super) turn: usize,
}

/// The shares of the passes that may be under way at the same time.
pub(super) struct Passes {
    pub(super) build: Shares,
    pub(super) sweep: Shares,
}

/// A retired table that readers may still use.
pub(super) struct Garbage {
    /// From a box. It stays a pointer, because a `Box` would assert that no reader uses the table.
    pub(super) table: NonNull<BucketArray>,
    pub(super) after: Cookie,
    pub(super) discarded: usize,
}

impl Drop for Garbage {
    fn drop(&mut self) {
        // SAFETY: made from a box; dropped by `collect` when readers have left it, or with the
        // resizer, which no other thread has then.
        drop(unsafe { Box::from_raw(self.table.as_ptr()) });
    }
}

// SAFETY: the pointers are to tables of the `RawTable` that owns the resizer.
unsafe impl Send for Resizer {}

impl Passes {
    pub(super) fn new() -> Self {
        Self {
            build: Shares::new(),
            sweep: Shares::new(),
        }
    }

    pub(super) fn of(&self, kind: PassKind) -> &Shares {
        match kind {
            PassKind::Unzip => &self.sweep,
            _ => &self.build,
        }
    }
}

impl Resizer {
    pub(super) fn new(policy: ResizePolicy) -> Self {
        Self {
            policy,
            wanted: None,
            refused: 0,
            build: None,
            levels: 1,
            sweep: None,
            after: Cookie::DONE,
            sparse: 1,
            shrink_waits: false,
            garbage: VecDeque::new(),
            completed: 0,
            #[cfg(corewise_stress)]
            turn: 0,
        }
    }

    /// Requests `buckets` buckets.
    #[cfg(test)]
    pub(super) fn ask(&mut self, buckets: usize) {
        self.wanted = Some(buckets);
    }

    pub(super) fn is_settled(&self) -> bool {
        self.build.is_none() && self.levels == 1
    }

    /// Whether a resize is under way, requested or delayed, or garbage waits.
    pub(super) fn has_more(&self) -> bool {
        let is_due = self.wanted.is_some() || self.shrink_waits;
        !self.is_settled() || !self.garbage.is_empty() || is_due
    }

    /// The next number of buckets on the way from `buckets` to `wanted` by integer factors; `None`
    /// if the table has that size, or too many tables are in use.
    pub(super) fn next_size_towards(&mut self, wanted: usize, buckets: usize) -> Option<usize> {
        if wanted == buckets {
            // The request is fulfilled when the chains are unzipped, too.
            if self.is_settled() {
                self.wanted = None;
            }
            return None;
        }
        if wanted.is_multiple_of(buckets) {
            return (self.levels < MAX_LEVELS - 2).then_some(wanted);
        }
        // Shrink to the greatest common divisor: directly to `wanted` if it divides `buckets`,
        // otherwise an expansion to `wanted` follows.
        Some(greatest_common_divisor(wanted, buckets))
    }

    /// The size to shrink to from `buckets`: divided by the largest power of two, up to
    /// [`MAX_SHRINK`], that leaves two buckets for each of `count` entries and the minimum of the
    /// policy. `None` if not even half of the buckets would do, or their number is odd.
    pub(super) fn smaller_size(&self, buckets: usize, count: usize) -> Option<usize> {
        let fits = |factor: &usize| {
            buckets.is_multiple_of(*factor)
                && buckets / factor >= (2 * count).max(self.policy.min_buckets)
        };
        let factors = std::iter::successors(Some(2), |factor| Some(factor * 2));
        let factors = factors.take_while(|factor| *factor <= MAX_SHRINK);
        // If a factor does not fit, no larger one does.
        factors
            .take_while(fits)
            .last()
            .map(|factor| buckets / factor)
    }

    /// Under the stress build, resizes at every opportunity, up and down, by factors of two and
    /// three.
    #[cfg(corewise_stress)]
    pub(super) fn next_size_under_stress(&mut self, buckets: usize) -> Option<usize> {
        self.turn += 1;
        let factor = 2 + self.turn / 3 % 2;
        if !self.turn.is_multiple_of(3) && buckets < 64 {
            return Some(buckets * factor);
        }
        let shrinks = buckets.is_multiple_of(factor) && buckets > factor;
        shrinks.then(|| buckets / factor)
    }
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    match a % b {
        0 => b,
        rest => greatest_common_divisor(b, rest),
    }
}
