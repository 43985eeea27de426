//! Padding against false sharing.

use std::ops::{Deref, DerefMut};

/// A value that shares its cache lines with no other data.
///
/// Aligned to 128 bytes where the prefetcher or the cache works on pairs of lines (x86-64, AArch64,
/// POWER), to 64 elsewhere.
///
/// ```
/// let counters = [const { corewise_atomic::CachePadded::new(0u64) }; 2];
/// let distance = &raw const counters[1] as usize - &raw const counters[0] as usize;
/// assert!(distance >= 64);
/// ```
#[cfg_attr(
    any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "powerpc64"
    ),
    repr(align(128))
)]
#[cfg_attr(
    not(any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "powerpc64"
    )),
    repr(align(64))
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    /// Pads `value`.
    #[inline(always)]
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value without its padding.
    #[inline(always)]
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for CachePadded<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> From<T> for CachePadded<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}
