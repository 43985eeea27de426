//! The versions of stripes of buckets: how lookups notice that fingerprints moved.
//!
//! ```text
//! version  AtomicU64: changes:62 MOVING:1 UNSETTLED:1
//! ```
//!
//! The stripe of bucket i is i mod S, where S is a power of two of at most 64 that divides the
//! buckets of every subfilter. So the two buckets of an item have the same two stripes in all
//! subfilters.
//!
//! Only the holder of the filter's lock stores versions.
//!
//! 1. Every store of a version is *Release*, every first look at it *Acquire*: a lookup that reads
//!    a version sees all slots that were stored before it.
//! 2. A *Release* fence stands between a version and the slots that are stored after it, an
//!    *Acquire* fence between the slots and the second look: a lookup that saw one of these slots
//!    sees the version, or a later one.

use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicU64, fence};
use corewise_atomic::{Slots, mutant, ordering};

/// The most stripes: a set of them is one word.
pub(super) const MAX_STRIPES: u64 = if cfg!(corewise_loom) { 4 } else { 64 };

/// Set while slots are stored of which a lookup may see a mixture that lacks an item.
pub(super) const UNSETTLED: u64 = 1;
/// Set while a fingerprint may be in two slots. A miss is right, a count may not be.
pub(super) const MOVING: u64 = 2;
const CHANGE: u64 = 4;

pub(super) struct StripeVersions {
    words: Slots<AtomicU64>,
}

/// The versions of an item's stripes, as a lookup has read them.
#[derive(Clone, Copy)]
pub(super) struct SeenStripes([u64; 2]);

impl StripeVersions {
    /// `None` if there is no memory.
    pub(super) fn new(buckets: u64) -> Option<Self> {
        let words = Slots::try_zeroed(buckets.min(MAX_STRIPES) as usize)?;
        Some(Self { words })
    }

    pub(super) fn bytes(&self) -> u64 {
        size_of_val::<[_]>(&self.words) as u64
    }

    #[inline(always)]
    pub(super) fn stripe(&self, bucket: u64) -> usize {
        // Less than the number of words.
        (bucket & (self.words.len() as u64 - 1)) as usize
    }

    /// All stripes, as a set.
    pub(super) fn all(&self) -> u64 {
        u64::MAX >> (64 - self.words.len())
    }

    /// Reads the versions of two buckets, before a lookup reads slots.
    #[inline(always)]
    pub(super) fn read(&self, buckets: [u64; 2]) -> SeenStripes {
        // Acquire: pairs with every Release store of a version, see 1.
        let acquire = ordering!(Acquire, "redis_relaxed_version");
        SeenStripes(buckets.map(|bucket| self.words[self.stripe(bucket)].load(acquire)))
    }

    /// Whether the buckets that were read since `seen` lost nothing, and were in none of these
    /// states.
    #[inline(always)]
    pub(super) fn is_unchanged(&self, buckets: [u64; 2], seen: SeenStripes, states: u64) -> bool {
        if mutant!("redis_no_second_look") {
            return true;
        }
        // Acquire: pairs with the fences in `announce` and `open`, see 2.
        fence(Acquire);
        // Relaxed: ordered by the fence above.
        let now = buckets.map(|bucket| self.words[self.stripe(bucket)].load(Relaxed));
        let second = if mutant!("redis_one_stripe") {
            seen.0[1]
        } else {
            now[1]
        };
        let changed = (now[0] ^ seen.0[0]) | (second ^ seen.0[1]);
        let states = if mutant!("redis_ignores_states") {
            0
        } else {
            states
        };
        (changed | ((now[0] | second) & states)) == 0
    }

    /// Tells lookups that a slot of this stripe will be cleared or overwritten by a store that
    /// follows.
    pub(super) fn announce(&self, stripe: usize) {
        let version = &self.words[stripe];
        // Relaxed: only the holder of the lock stores versions.
        let next = version.load(Relaxed).wrapping_add(CHANGE);
        // Release: pairs with the Acquire in `read`. A lookup that reads this version sees where
        // the fingerprint went.
        version.store(next, ordering!(Release, "redis_relaxed_announce"));
        if !mutant!("redis_no_fence") {
            // Release: pairs with the fence in `is_unchanged`.
            fence(Release);
        }
    }

    /// Puts a set of stripes into a state, until `close`.
    pub(super) fn open(&self, stripes: u64, state: u64) {
        for stripe in members(stripes) {
            let version = &self.words[stripe];
            // Relaxed: only the holder of the lock stores versions.
            let next = version.load(Relaxed) | state;
            // Release: pairs with the Acquire in `read`. The store ends the release sequence of the
            // version before, so it must publish what that one did.
            version.store(next, ordering!(Release, "redis_relaxed_open"));
        }
        // Release: pairs with the fence in `is_unchanged`. A lookup that sees one of the slots that
        // follow sees the state.
        fence(Release);
    }

    /// Ends the state of a set of stripes.
    pub(super) fn close(&self, stripes: u64) {
        for stripe in members(stripes) {
            let version = &self.words[stripe];
            // Relaxed: only the holder of the lock stores versions.
            let settled = version.load(Relaxed) & !(UNSETTLED | MOVING);
            // Release: pairs with the Acquire in `read`. A lookup that reads this version sees all
            // slots.
            version.store(settled.wrapping_add(CHANGE), Release);
        }
    }
}

/// The members of a set of stripes.
fn members(mut stripes: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let stripe = (stripes != 0).then(|| stripes.trailing_zeros() as usize)?;
        stripes &= stripes - 1;
        Some(stripe)
    })
}
