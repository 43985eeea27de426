//! Keys: the encoding of an index, and the sequence of indices.
//!
//! A key is a prefix and a zero-padded index, so all keys have one length. Uniform draws are made
//! on demand. Zipf draws are slow (about 100 ns), so each client thread keeps a table of [`TABLE`]
//! draws and renews a part of it between slices, while no server is under load.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use corewise_measure::draw::{Scramble, ZipfRanks, mix};
use corewise_wire::cphash;

use crate::config::KeyDistribution;

/// Zipf draws kept per client thread.
pub(crate) const TABLE: usize = 1 << 21;
/// Zipf draws renewed between two slices.
const RENEWED: usize = 1 << 16;

/// Encodes an index as a key and parses it back.
#[derive(Clone, Debug)]
pub(crate) struct KeyFormat {
    template: Vec<u8>,
    prefix: usize,
}

impl KeyFormat {
    pub(crate) fn new(prefix: &str, size: usize) -> Self {
        let mut template = prefix.as_bytes().to_vec();
        template.resize(size, b'0');
        Self {
            template,
            prefix: prefix.len(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.template.len()
    }

    /// Appends the key of `index`.
    pub(crate) fn render(&self, index: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.template);
        let mut rest = index;
        for byte in out.iter_mut().rev() {
            if rest == 0 {
                break;
            }
            *byte = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }

    /// Parses the index, if `key` is a key of this format.
    pub(crate) fn parse(&self, key: &[u8]) -> Option<u32> {
        if key.len() != self.template.len() || key[..self.prefix] != self.template[..self.prefix] {
            return None;
        }
        let mut index = 0u64;
        for &byte in &key[self.prefix..] {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 || index > u64::from(u32::MAX) {
                return None;
            }
            index = index * 10 + u64::from(digit);
        }
        u32::try_from(index).ok()
    }
}

/// The hash key of an index in the protocol of \[CPHASH\]. Different indices have different keys:
/// the factor is odd, so it has an inverse modulo 2^60.
#[inline]
pub(crate) fn hash_key(index: u32) -> cphash::KeyNumber {
    cphash::KeyNumber::of_hash(u64::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The endless sequence of keys and of get-or-set decisions of one client thread.
#[derive(Debug)]
pub(crate) struct KeyStream {
    rng: Xoshiro256PlusPlus,
    keys: u64,
    /// A request is a set if 32 random bits are below this.
    set_below: u64,
    zipf: Option<ZipfTable>,
}

#[derive(Debug)]
struct ZipfTable {
    draws: Vec<u32>,
    next: usize,
    renew: usize,
    ranks: ZipfRanks,
    scramble: Scramble,
}

impl KeyStream {
    /// Each `(seed, thread)` has a different stream.
    pub(crate) fn new(
        seed: u64,
        thread: u64,
        keys: u64,
        distribution: KeyDistribution,
        set_ratio: f64,
    ) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(mix(seed) ^ thread);
        let zipf = match distribution {
            KeyDistribution::Uniform => None,
            KeyDistribution::Zipf(exponent) => ZipfTable::new(keys, exponent, &mut rng),
        };
        Self {
            rng,
            keys,
            set_below: (set_ratio * (1u64 << 32) as f64) as u64,
            zipf,
        }
    }

    pub(crate) fn rng(&mut self) -> &mut Xoshiro256PlusPlus {
        &mut self.rng
    }

    /// Whether the next request is a set.
    #[inline]
    pub(crate) fn next_is_set(&mut self) -> bool {
        match self.set_below {
            0 => false,
            below => u64::from(self.rng.random::<u32>()) < below,
        }
    }

    /// The index of the next key.
    #[inline]
    pub(crate) fn next_key(&mut self) -> u32 {
        match &mut self.zipf {
            None => {
                let wide = u128::from(self.rng.random::<u64>()) * u128::from(self.keys);
                (wide >> 64) as u32
            }
            Some(table) => table.next_key(),
        }
    }

    /// Renews a part of the table. Call it between slices.
    pub(crate) fn renew(&mut self) {
        if let Some(table) = &mut self.zipf {
            table.renew(&mut self.rng);
        }
    }
}

impl ZipfTable {
    /// `None` if the distribution cannot be built, which validated options exclude.
    fn new(keys: u64, exponent: f64, rng: &mut Xoshiro256PlusPlus) -> Option<Self> {
        let mut table = Self {
            draws: Vec::new(),
            next: 0,
            renew: 0,
            ranks: ZipfRanks::new(keys, exponent)?,
            scramble: Scramble::new(keys),
        };
        table.draws = (0..TABLE).map(|_| table.draw(rng)).collect();
        Some(table)
    }

    fn draw(&self, rng: &mut Xoshiro256PlusPlus) -> u32 {
        self.scramble.apply(self.ranks.draw(rng)) as u32
    }

    #[inline]
    fn next_key(&mut self) -> u32 {
        let key = self.draws[self.next];
        self.next = (self.next + 1) % TABLE;
        key
    }

    fn renew(&mut self, rng: &mut Xoshiro256PlusPlus) {
        for _ in 0..RENEWED {
            self.draws[self.renew] = self.draw(rng);
            self.renew = (self.renew + 1) % TABLE;
        }
        // Continue at a random place, so that short slices do not repeat the same draws.
        self.next = rng.random_range(0..TABLE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_one_length_and_parse_back() {
        let format = KeyFormat::new("key:", 12);
        for index in [0, 1, 1234, 99_999_999] {
            let mut out = b"x".to_vec();
            format.render(index, &mut out);
            assert_eq!(out.len(), 13);
            assert_eq!(format.parse(&out[1..]), Some(index));
        }
        let mut out = Vec::new();
        format.render(1234, &mut out);
        assert_eq!(out, b"key:00001234");
        for bad in [&b"key:0000123"[..], b"kex:00001234", b"key:0000123x"] {
            assert_eq!(format.parse(bad), None);
        }
    }

    #[test]
    fn hash_keys_differ_and_use_all_bits() {
        let keys = (0..1_000).chain(u32::MAX - 1_000..=u32::MAX).map(hash_key);
        let (mut seen, mut bits) = (std::collections::HashSet::new(), 0);
        for key in keys {
            assert!(seen.insert(key));
            bits |= key.get();
        }
        assert_eq!(bits, cphash::KeyNumber::MAX);
    }

    #[test]
    fn long_keys_hold_the_largest_index() {
        let format = KeyFormat::new("", 250);
        let mut out = Vec::new();
        format.render(u32::MAX, &mut out);
        assert_eq!((out.len(), format.parse(&out)), (250, Some(u32::MAX)));
        out[0] = b'9';
        assert_eq!(format.parse(&out), None);
    }

    #[test]
    fn zipf_frequencies_follow_the_law() {
        const KEYS: u64 = 1000;
        let mut stream = KeyStream::new(1, 0, KEYS, KeyDistribution::Zipf(0.99), 0.0);
        let mut counts = vec![0u64; KEYS as usize];
        for _ in 0..TABLE {
            counts[stream.next_key() as usize] += 1;
        }
        let scramble = Scramble::new(KEYS);
        let sum: f64 = (1..=KEYS).map(|r| (r as f64).powf(-0.99)).sum();
        for rank in [1u64, 2, 3, 10, 100, 1000] {
            let expected = TABLE as f64 * (rank as f64).powf(-0.99) / sum;
            let seen = counts[scramble.apply(rank - 1) as usize] as f64;
            let tolerance = 5.0 * expected.sqrt();
            assert!(
                (seen - expected).abs() < tolerance,
                "rank {rank}: {seen} for {expected}"
            );
        }
    }

    #[test]
    fn uniform_draws_reach_the_whole_space_evenly() {
        let mut stream = KeyStream::new(1, 0, 100, KeyDistribution::Uniform, 0.0);
        let mut counts = [0u32; 100];
        for _ in 0..100_000 {
            counts[stream.next_key() as usize] += 1;
        }
        assert!(
            counts.iter().all(|&c| (800..1200).contains(&c)),
            "{counts:?}"
        );
    }

    #[test]
    fn the_share_of_sets_is_as_asked() {
        for (ratio, low, high) in [(0.0, 0, 0), (0.1, 9_500, 10_500), (1.0, 100_000, 100_000)] {
            let mut stream = KeyStream::new(7, 0, 10, KeyDistribution::Uniform, ratio);
            let sets = (0..100_000).filter(|_| stream.next_is_set()).count();
            assert!((low..=high).contains(&sets), "{ratio}: {sets}");
        }
    }

    #[test]
    fn renewal_changes_the_table() {
        let mut stream = KeyStream::new(1, 0, 1 << 32, KeyDistribution::Zipf(0.5), 0.0);
        let before = stream.zipf.as_ref().expect("zipf").draws.clone();
        stream.renew();
        let after = &stream.zipf.as_ref().expect("zipf").draws;
        let changed = before.iter().zip(after).filter(|(a, b)| a != b).count();
        assert!(
            (RENEWED - RENEWED / 50..=RENEWED).contains(&changed),
            "{changed}"
        );
    }
}
