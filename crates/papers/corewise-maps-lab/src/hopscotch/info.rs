//! The info word of a home: which cells hold its keys, and whether that has changed.

use corewise_atomic::mutant;

/// Cells in a neighbourhood, and hop bits. With few, models and stress tests displace and overflow
/// all the time.
#[cfg(not(any(corewise_loom, corewise_shuttle, corewise_stress)))]
pub(super) const H: usize = 32;
#[cfg(all(corewise_stress, not(any(corewise_loom, corewise_shuttle))))]
pub(super) const H: usize = 4;
#[cfg(any(corewise_loom, corewise_shuttle))]
pub(super) const H: usize = 2;

/// With few bits, versions wrap around all the time.
#[cfg(not(any(corewise_loom, corewise_shuttle, corewise_stress)))]
const VERSION_BITS: u32 = 28;
#[cfg(any(corewise_loom, corewise_shuttle, corewise_stress))]
const VERSION_BITS: u32 = 1;

/// The info of a home, drawn in the module's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Info(pub(super) u64);

impl Info {
    const HOPS: u64 = (1 << H) - 1;
    const LOCK: u64 = 1 << 32;
    const MOVED: u64 = 1 << 33;
    const OVERFLOW: u64 = 1 << 34;
    const CHANGING: u64 = 1 << 35;
    const VERSION: u64 = 1 << 36;
    const VERSIONS: u64 = ((1 << VERSION_BITS) - 1) * Self::VERSION;

    #[inline(always)]
    pub(super) fn is_locked(self) -> bool {
        self.0 & Self::LOCK != 0
    }

    #[inline(always)]
    pub(super) fn is_moved(self) -> bool {
        self.0 & Self::MOVED != 0
    }

    /// Whether keys of this home are in nodes.
    #[inline(always)]
    pub(super) fn overflows(self) -> bool {
        self.0 & Self::OVERFLOW != 0
    }

    /// Whether a key of this home has its pair in the scratch.
    #[inline(always)]
    pub(super) fn is_changing(self) -> bool {
        self.0 & Self::CHANGING != 0
    }

    /// Whether a lookup has to look in nodes or the scratch.
    #[inline(always)]
    pub(super) fn goes_further(self) -> bool {
        self.0 & (Self::OVERFLOW | Self::CHANGING) != 0
    }

    /// Which cells of the neighbourhood have keys of this home.
    #[inline(always)]
    pub(super) fn hops(self) -> Hops {
        Hops((self.0 & Self::HOPS) as u32)
    }

    #[inline(always)]
    pub(super) fn has_version_of(self, other: Self) -> bool {
        (self.0 ^ other.0) & Self::VERSIONS == 0
    }

    pub(super) fn with_hop(self, offset: usize) -> Self {
        Self(self.0 | 1 << offset)
    }

    pub(super) fn without_hop(self, offset: usize) -> Self {
        Self(self.0 & !(1 << offset))
    }

    pub(super) fn without_hops(self) -> Self {
        Self(self.0 & !Self::HOPS)
    }

    pub(super) fn locked(self) -> Self {
        Self(self.0 | Self::LOCK)
    }

    pub(super) fn moved(self) -> Self {
        Self(self.0 | Self::MOVED)
    }

    pub(super) fn overflowing(self, overflows: bool) -> Self {
        if overflows {
            Self(self.0 | Self::OVERFLOW)
        } else {
            Self(self.0 & !Self::OVERFLOW)
        }
    }

    pub(super) fn changing(self) -> Self {
        Self(self.0 | Self::CHANGING)
    }

    /// The same info with the next version.
    pub(super) fn changed(self) -> Self {
        let next = self.0.wrapping_add(Self::VERSION) & Self::VERSIONS;
        Self(self.0 & !Self::VERSIONS | next)
    }

    /// Whether the version has wrapped around to this one.
    pub(super) fn is_first_version(self) -> bool {
        self.0 & Self::VERSIONS == 0 && !mutant!("hop_wraps_uncounted")
    }
}

/// Offsets in a neighbourhood, the nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hops(u32);

impl Hops {
    /// The offsets before another.
    pub(super) fn before(self, offset: usize) -> Self {
        Self(self.0 & ((1 << offset) - 1))
    }
}

impl Iterator for Hops {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let first = self.0.trailing_zeros();
        // Removes the first one, if there is one.
        self.0 &= self.0.wrapping_sub(1);
        (first < u32::BITS).then_some(first as usize)
    }
}
