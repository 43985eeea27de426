//! Stamps: values that identify their key.
//!
//! ```text
//!  63            32 31             0
//! ┌────────────────┬────────────────┐
//! │ tag of the key │ number, odd    │
//! └────────────────┴────────────────┘
//! ```
//!
//! The number comes from the writer's value stream and differs from one insert to the next, so that
//! a stale value of the right key can be distinguished from the current one.

/// Returns the upper half of every value stored under a key.
#[inline(always)]
pub const fn tag(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// Returns the stamp of a key with a number.
#[inline(always)]
pub const fn stamp(key: u64, number: u32) -> u64 {
    tag(key) << 32 | number as u64 | 1
}

/// Returns whether a stamp can belong to a key.
#[inline(always)]
pub const fn belongs(stamp: u64, key: u64) -> bool {
    stamp >> 32 == tag(key)
}

/// A thread's sequence of numbers: any 2^31 successive numbers are distinct.
#[derive(Clone, Copy, Debug)]
pub struct Numbers(u32);

impl Numbers {
    /// A separate sequence for each thread.
    pub fn of_thread(thread: usize) -> Self {
        Self((thread as u32).wrapping_mul(0x85eb_ca6b))
    }

    /// Returns the next number.
    #[inline(always)]
    pub fn draw(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79ba); // even, so the last bit stays free
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_belongs_to_its_key_alone() {
        let mut numbers = Numbers::of_thread(3);
        for key in 1..1_000 {
            let stamp = stamp(key, numbers.draw());
            assert!(stamp != 0 && belongs(stamp, key) && !belongs(stamp, key + 1));
        }
    }

    #[test]
    fn numbers_do_not_repeat_soon() {
        let mut numbers = Numbers::of_thread(0);
        let mut seen: Vec<u32> = (0..100_000).map(|_| numbers.draw() | 1).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 100_000);
    }
}
