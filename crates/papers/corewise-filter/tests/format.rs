//! The byte format: what was stored is loaded, and nothing else is.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use std::hash::Hasher;
use std::io::{self, Read};

use corewise_filter::{Builder, CuckooFilter, FilterHasher, LoadError};
use corewise_testkit::random::{Random, is_short};

fn filled(builder: Builder) -> CuckooFilter {
    let filter = builder.build().unwrap();
    let items = filter.slots() * 3 / 4;
    (0..items).for_each(|item| _ = filter.insert(&item));
    filter
}

fn all_shapes() -> impl Iterator<Item = Builder> {
    let packed = [2, 4, 8]
        .into_iter()
        .flat_map(|b| (1..=32).map(move |f| (b, f, false)));
    let shapes = packed.chain((5..=32).map(|f| (4, f, true)));
    shapes.map(|(b, f, is_sorted)| {
        let builder = CuckooFilter::builder()
            .bucket_slots(b)
            .bits(f)
            .semi_sorted(is_sorted);
        builder
            .slots(100)
            .seed(u64::from(f))
            .search_limit(50 + b as usize)
    })
}

/// Replaces the checksum by the right one.
fn correct(bytes: &mut [u8]) {
    let mut hasher = FilterHasher::new(0);
    bytes[56..64].fill(0);
    for word in bytes.as_chunks().0 {
        hasher.write_u64(u64::from_le_bytes(*word));
    }
    bytes[56..64].copy_from_slice(&hasher.finish().to_le_bytes());
}

#[test]
fn every_shape_is_loaded_as_it_was() {
    for builder in all_shapes() {
        let filter = filled(builder);
        let bytes = filter.to_bytes();
        let loaded = [
            CuckooFilter::from_bytes(&bytes).unwrap(),
            CuckooFilter::read_from(&bytes[..], bytes.len() as u64).unwrap(),
            filter.clone(),
        ];
        for loaded in &loaded {
            assert_eq!(format!("{loaded:?}"), format!("{filter:?}"));
            assert!(loaded.to_bytes() == bytes);
            assert!((0..300).all(|item| loaded.count(&item) == filter.count(&item)));
        }
        // All go on alike.
        for item in 1_000..1_040 {
            let inserted = filter.insert(&item);
            assert!(loaded.iter().all(|loaded| loaded.insert(&item) == inserted));
        }
        let bytes = filter.to_bytes();
        assert!(loaded.iter().all(|loaded| loaded.to_bytes() == bytes));
    }
}

/// Frozen: these are the bytes of version 2.
#[test]
fn the_format_never_changes() {
    let filter = CuckooFilter::builder()
        .slots(16)
        .bits(12)
        .seed(7)
        .build()
        .unwrap();
    (0..10u64).for_each(|item| filter.insert(&item).unwrap());
    let bytes = filter.to_bytes();
    assert_eq!(bytes[..16], *b"CWCF\x02\0\x04\x0c\0\0\0\0\0\x04\0\0");
    assert_eq!(
        bytes[16..48],
        [7u64, 4, 10, 4].map(u64::to_le_bytes).concat()
    );
    assert_eq!(bytes.len(), 64 + 32);
    let sums: Vec<u64> = bytes[56..]
        .as_chunks()
        .0
        .iter()
        .map(|w| u64::from_le_bytes(*w))
        .collect();
    let frozen = [
        0x8726_6a49_4969_3f06,
        0x06c1_85fb_d1e4_092a,
        0x0000_0b76_0000_0000,
        0x2e02_6ee3_5f32_0000,
        0,
    ];
    assert_eq!(sums, frozen);
}

#[test]
fn a_cleared_filter_equals_a_new_one() {
    for builder in all_shapes() {
        let mut filter = filled(builder);
        let (again, copy) = (filter.to_bytes(), filter.clone());
        filter.clear();
        assert_eq!((filter.len(), filter.fpr()), (0, 0.0));
        assert!(filter.to_bytes() == builder.build().unwrap().to_bytes());
        (0..filter.slots() * 3 / 4).for_each(|item| _ = filter.insert(&item));
        assert!(filter.to_bytes() == again && copy.to_bytes() == again);
    }
}

#[test]
fn changed_bytes_are_an_error() {
    for is_semi_sorted in [false, true] {
        let builder = CuckooFilter::builder()
            .slots(20)
            .bits(13)
            .semi_sorted(is_semi_sorted);
        let bytes = filled(builder).to_bytes();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(CuckooFilter::from_bytes(&changed).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            let short = CuckooFilter::from_bytes(&bytes[..length]);
            assert!(matches!(short, Err(LoadError::Length)), "{length} bytes");
            let short = CuckooFilter::read_from(&bytes[..length], u64::MAX);
            assert!(matches!(short, Err(LoadError::Length)), "{length} bytes");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(matches!(
            CuckooFilter::from_bytes(&longer),
            Err(LoadError::Length)
        ));
    }
}

#[test]
fn errors_tell_what_is_wrong() {
    let bytes = filled(CuckooFilter::builder().slots(20).bits(13)).to_bytes();
    let error = |at: usize, byte: u8| {
        let mut changed = bytes.clone();
        changed[at] ^= byte;
        correct(&mut changed);
        CuckooFilter::from_bytes(&changed).expect_err("it was changed")
    };
    assert!(matches!(error(0, 1), LoadError::Magic));
    for version in (0..=u16::MAX).filter(|&version| version != 2) {
        let mut changed = bytes.clone();
        changed[4..6].copy_from_slice(&version.to_le_bytes());
        let error = CuckooFilter::from_bytes(&changed).expect_err("another version");
        assert!(matches!(error, LoadError::Version(found) if found == version));
        let told = format!("version {version} of the format is unknown");
        assert_eq!(error.to_string(), told);
    }
    for (at, byte) in [
        (6, 1),
        (7, 13),
        (8, 2),
        (12, 2),
        (15, 1),
        (24, 1),
        (40, 1),
        (48, 1),
    ] {
        // The search limit is 1,024: without that bit it is zero.
        let at = if at == 12 { 13 } else { at };
        let byte = if at == 13 { 4 } else { byte };
        assert!(matches!(error(at, byte), LoadError::Content), "byte {at}");
    }
    // Items that are not there, and bits behind the last bucket.
    assert!(matches!(error(32, 1), LoadError::Content));
    assert!(matches!(error(bytes.len() - 1, 0x80), LoadError::Content));
    let mut changed = bytes.clone();
    changed[70] ^= 1;
    assert!(matches!(
        CuckooFilter::from_bytes(&changed),
        Err(LoadError::Checksum)
    ));
}

/// Random changes under a right checksum: an error, or a filter that stores itself as those bytes
/// and that works.
#[test]
fn consistent_bytes_are_a_working_filter() {
    let rounds = if is_short() { 20 } else { 150 };
    let mut random = Random(1);
    let mut loaded = 0;
    for builder in all_shapes() {
        let bytes = filled(builder).to_bytes();
        for _ in 0..rounds {
            let mut changed = bytes.clone();
            for _ in 0..1 + random.index(3) {
                let end = [64, changed.len()][random.index(2)];
                let at = random.index(end);
                changed[at] = [0, 1, 0xff, random.index(256) as u8][random.index(4)];
            }
            if random.index(8) == 0 {
                let end = random.index(changed.len());
                changed.truncate(end / 8 * 8);
            }
            if changed.len() >= 64 {
                correct(&mut changed);
            }
            loaded += u32::from(use_if_loaded(&changed));
        }
    }
    assert!(loaded > 100, "{loaded}: the changes are too crude");
}

fn use_if_loaded(bytes: &[u8]) -> bool {
    let Ok(filter) = CuckooFilter::from_bytes(bytes) else {
        return false;
    };
    assert!(filter.to_bytes() == bytes);
    let before = filter.len();
    let inserted = (5_000..5_020).filter(|item| filter.insert(item).is_ok());
    let inserted: Vec<u32> = inserted.collect();
    assert!(inserted.iter().all(|item| filter.contains(item)));
    assert!(inserted.iter().all(|item| filter.remove(item)));
    assert_eq!(filter.len(), before);
    true
}

/// Returns a few bytes at a time, and an error at the end.
struct Pieces<'a>(&'a [u8]);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Err(io::Error::other("broken"));
        }
        let bytes = buffer.len().min(7).min(self.0.len());
        let (read, rest) = self.0.split_at(bytes);
        buffer[..bytes].copy_from_slice(read);
        self.0 = rest;
        Ok(bytes)
    }
}

#[test]
fn readers_are_read_up_to_the_end_of_the_filter() {
    // Larger than the buffer of the loader.
    let filter = filled(CuckooFilter::builder().slots(1 << 20).bits(10));
    let bytes = filter.to_bytes();
    assert!(bytes.len() > 1 << 20);
    let two = [&bytes[..], &bytes[..]].concat();
    let mut reader = &two[..];
    for _ in 0..2 {
        let loaded = CuckooFilter::read_from(&mut reader, bytes.len() as u64).unwrap();
        assert!(loaded.to_bytes() == bytes);
    }
    assert!(reader.is_empty());
    assert!(CuckooFilter::read_from(Pieces(&bytes), u64::MAX).is_ok());
    let broken = CuckooFilter::read_from(Pieces(&bytes[..bytes.len() - 1]), u64::MAX);
    assert!(matches!(broken, Err(LoadError::Io(_))));
}

/// A header may claim any size: no more memory is allocated than the caller allows.
#[test]
fn a_filter_that_is_too_large_is_refused_early() {
    let huge = CuckooFilter::builder()
        .slots(1 << 20)
        .bits(10)
        .build()
        .unwrap();
    let mut header = huge.to_bytes()[..64].to_vec();
    header[24..32].copy_from_slice(&(1u64 << 31).to_le_bytes());
    header[40..48].copy_from_slice(&((1u64 << 31) * 40 / 64 + 1).to_le_bytes());
    correct(&mut header);
    let refused = CuckooFilter::read_from(&header[..], 1 << 30);
    let bytes = 64 + (1 << 31) * 40 / 8 + 8;
    assert!(matches!(refused, Err(LoadError::TooLarge { bytes: b }) if b == bytes));
    assert!(matches!(
        CuckooFilter::from_bytes(&header),
        Err(LoadError::Length)
    ));
}

/// A copy that is taken beside updates has every item that is present all the time.
#[test]
fn copies_beside_updates_are_complete() {
    let filter = CuckooFilter::builder().slots(2_048).build().unwrap();
    (0..1_800u64).for_each(|item| filter.insert(&item).unwrap());
    std::thread::scope(|scope| {
        let updates = scope.spawn(|| {
            let mut present = Vec::new();
            for item in 10_000..40_000u64 {
                if filter.insert(&item).is_ok() {
                    present.push(item);
                }
                if present.len() == 100 {
                    present
                        .drain(..)
                        .for_each(|item| assert!(filter.remove(&item)));
                }
            }
        });
        let mut copies = 0;
        while copies < 10 || !updates.is_finished() {
            let copy = CuckooFilter::from_bytes(&filter.to_bytes()).unwrap();
            assert!((0..1_800u64).all(|item| copy.contains(&item)));
            copies += 1;
        }
        updates.join().unwrap();
    });
}

#[cfg(feature = "serde")]
#[test]
fn serde_stores_the_same_bytes() {
    let filter = filled(CuckooFilter::builder().slots(64));
    let json = serde_json::to_string(&filter).unwrap();
    let loaded: CuckooFilter = serde_json::from_str(&json).unwrap();
    assert!(loaded.to_bytes() == filter.to_bytes());
    let broken = json.replacen("67,87", "67,88", 1);
    let error = serde_json::from_str::<CuckooFilter>(&broken).unwrap_err();
    assert!(
        error.to_string().contains("not the bytes of a filter"),
        "{error}"
    );
    assert!(serde_json::from_str::<CuckooFilter>("\"text\"").is_err());
}
