//! Good and bad hashers of numbers.

use std::hash::{BuildHasher, Hasher};

/// How keys are hashed.
#[derive(Clone, Copy, Debug)]
pub enum Hashing {
    /// Well distributed.
    Mixed,
    /// A number is its own hash: neighbours stay neighbours.
    Own,
    /// The same hash for all keys.
    Alike,
    /// The low bits, which select the bucket, are all zero.
    High,
}

impl Hashing {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Mixed, Self::Own, Self::Alike, Self::High];
}

impl BuildHasher for Hashing {
    type Hasher = NumberHasher;

    fn build_hasher(&self) -> NumberHasher {
        NumberHasher(*self, 0)
    }
}

/// Hashes one number.
#[derive(Debug)]
pub struct NumberHasher(Hashing, u64);

impl Hasher for NumberHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }
    fn write_u64(&mut self, number: u64) {
        self.1 = number;
    }
    fn finish(&self) -> u64 {
        let Self(hashing, number) = *self;
        match hashing {
            Hashing::Mixed => {
                let product = u128::from(number ^ 0x9e37_79b9_7f4a_7c15) * 0xbf58_476d_1ce4_e5b9;
                (product ^ product >> 64) as u64
            }
            Hashing::Own => number,
            Hashing::Alike => 0x1234_5678_9abc_def0,
            Hashing::High => number << 40,
        }
    }
}
