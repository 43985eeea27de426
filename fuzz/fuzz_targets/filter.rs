//! Arbitrary bytes as a stored cuckoo filter: an error, or a filter that works and stores itself as
//! the same bytes. Never a panic, and no more memory than the input warrants.
//!
//! If the first byte is odd, the checksum is corrected, so that the checks behind it are reached.
#![no_main]

use std::hash::Hasher;

use corewise_filter::{CuckooFilter, FilterHasher};
use libfuzzer_sys::fuzz_target;

/// Replaces the checksum by the right one, which is that of the words with zero in its place.
fn correct(bytes: &mut [u8]) {
    if bytes.len() < 64 {
        return;
    }
    let mut hasher = FilterHasher::new(0);
    bytes[56..64].fill(0);
    for word in bytes.as_chunks().0 {
        hasher.write_u64(u64::from_le_bytes(*word));
    }
    bytes[56..64].copy_from_slice(&hasher.finish().to_le_bytes());
}

fuzz_target!(|data: &[u8]| {
    let Some((&kind, bytes)) = data.split_first() else {
        return;
    };
    let mut bytes = bytes.to_vec();
    if kind % 2 == 1 {
        correct(&mut bytes);
    }
    let read = CuckooFilter::read_from(&bytes[..], 1 << 20);
    let Ok(filter) = CuckooFilter::from_bytes(&bytes) else {
        // The reader stops behind the filter; all else it judges alike.
        assert!(read.is_err() || bytes.len() > 64);
        return;
    };
    assert!(filter.to_bytes() == bytes);
    assert!(read.expect("the same bytes").to_bytes() == bytes);
    let before = filter.len();
    let inserted: Vec<u32> = (0..8).filter(|item| filter.insert(item).is_ok()).collect();
    assert!(inserted.iter().all(|item| filter.contains(item)));
    assert!(inserted.iter().all(|item| filter.remove(item)));
    assert_eq!(filter.len(), before);
});
