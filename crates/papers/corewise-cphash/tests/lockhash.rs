//! `LockHash` from outside: every way to lock, several threads, and hostile use.

use std::hash::RandomState;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use corewise_cphash::{
    Anderson, CacheRequest, Config, ConfigError, Eviction, InsertError, Key, LockHash, MAX_BUCKETS,
    RawLock, Reply, Ttas,
};
use corewise_testkit::random::{Random, fewer};

/// Panics, without the message and the backtrace of a panic that is a mistake.
fn expected_panic() -> ! {
    std::panic::resume_unwind(Box::new("expected"))
}

/// A value that reveals its key and whether it is whole.
fn value_of(key: u64, serial: u64, len: usize) -> Vec<u8> {
    let byte = (key as u8).wrapping_mul(31).wrapping_add(serial as u8);
    let mut value = vec![byte; len.max(17)];
    value[..8].copy_from_slice(&key.to_le_bytes());
    value[8..16].copy_from_slice(&serial.to_le_bytes());
    value
}

#[track_caller]
fn check(key: u64, value: &[u8]) {
    let (number, rest) = value.split_first_chunk::<8>().unwrap();
    let (serial, rest) = rest.split_first_chunk::<8>().unwrap();
    assert_eq!(u64::from_le_bytes(*number), key);
    let byte = (key as u8)
        .wrapping_mul(31)
        .wrapping_add(u64::from_le_bytes(*serial) as u8);
    assert!(rest.iter().all(|&found| found == byte));
}

fn config(eviction: Eviction) -> Config {
    Config::new(200_000).partitions(8).eviction(eviction)
}

#[test]
fn threads_find_only_whole_values() {
    find_only_whole_values::<Ttas>(Eviction::Lru);
    find_only_whole_values::<Anderson>(Eviction::Lru);
    find_only_whole_values::<Ttas>(Eviction::Random);
}

fn find_only_whole_values<L: RawLock>(eviction: Eviction) {
    let table = LockHash::<_, L>::with_hasher(&config(eviction), RandomState::new()).unwrap();
    let table = &table;
    let worker = |seed: u64| {
        let mut random = Random(seed);
        let mut kept = Vec::new();
        for serial in 0..fewer(15_000) {
            let key = random.below(600);
            let text = key.to_string();
            let name = if key < 300 {
                Key::from(key)
            } else {
                Key::from(&*text)
            };
            match random.below(10) {
                0..4 => {
                    let len = [20, 60, 300, 3000][random.below(4) as usize];
                    table.insert(name, &value_of(key, serial, len)).unwrap();
                }
                4 => {
                    table.remove(name);
                }
                5 => {
                    if let Some(value) = table.get_ref(name) {
                        kept.push((key, value));
                    }
                }
                _ => {
                    table.get(name, |value| check(key, value));
                }
            }
            if kept.len() > 3 {
                let (key, value) = kept.swap_remove(random.below(4) as usize);
                check(key, &value);
            }
        }
        kept.iter().for_each(|(key, value)| check(*key, value));
    };
    std::thread::scope(|scope| {
        (1..4).for_each(|seed| {
            scope.spawn(move || worker(seed));
        });
        for _ in 0..200 {
            let stats = table.stats();
            assert!(stats.held_bytes <= stats.budget_bytes);
            std::thread::yield_now();
        }
    });
    table.clear();
    assert_eq!((table.stats().elements, table.stats().used_bytes), (0, 0));
}

fn both(test: impl Fn(Eviction)) {
    [Eviction::Lru, Eviction::Random].into_iter().for_each(test);
}

#[test]
fn what_was_inserted_is_found_until_it_is_removed() {
    both(|eviction| {
        let table = LockHash::new(&Config::new(1 << 22).partitions(3).eviction(eviction)).unwrap();
        let keys = [0, 1, (1 << 60) - 1, 1 << 60, u64::MAX];
        for key in keys {
            table.insert(key, &value_of(key, 1, 30)).unwrap();
            table
                .insert(&key.to_le_bytes(), b"the same as bytes")
                .unwrap();
        }
        for key in keys {
            assert_eq!(table.get(key, |value| check(key, value)), Some(()));
            let bytes = key.to_le_bytes();
            assert_eq!(table.get(&bytes, <[u8]>::len), Some(17));
            assert!(table.remove(key));
            assert!(!table.remove(key));
            assert!(!table.contains(key) && table.contains(&bytes));
        }
    });
}

/// In the whole range of sizes, with values of all lengths around the limit of copying.
#[test]
fn values_of_every_length_are_kept() {
    both(|eviction| {
        let table = LockHash::new(&Config::new(8192).partitions(1).eviction(eviction)).unwrap();
        for len in (0..600).chain((600..8144).step_by(97)).chain([8143, 8144]) {
            table.insert(1, &vec![len as u8; len]).unwrap();
            let is_it = |value: &[u8]| value.len() == len && value.iter().all(|b| *b == len as u8);
            assert_eq!(table.get(1, is_it), Some(true), "{len}");
        }
        assert_eq!(table.insert(1, &[0; 8145]), Err(InsertError::TooLarge));
        assert!(table.contains(1));
    });
}

#[test]
fn references_pin_memory_until_they_are_dropped() {
    both(|eviction| {
        let table = LockHash::new(&Config::new(4096).partitions(1).eviction(eviction)).unwrap();
        table.insert(1, &[1; 2000]).unwrap();
        let pinned = table.get_ref(1).unwrap();
        let other = table.get_ref(1).unwrap();
        assert_eq!(table.insert(1, &[2; 3000]), Err(InsertError::NoRoom));
        table.insert(1, &[2; 1000]).unwrap();
        assert_eq!((&*pinned, &*other), (&[1; 2000][..], &[1; 2000][..]));
        drop(pinned);
        assert_eq!(table.insert(1, &[3; 3000]), Err(InsertError::NoRoom));
        // A reference may be given up by another thread.
        std::thread::scope(|scope| {
            scope.spawn(move || assert_eq!(other[0], 1));
        });
        table.insert(1, &[3; 3000]).unwrap();
        // A forgotten reference costs memory, and nothing else.
        std::mem::forget(table.get_ref(1));
        assert_eq!(table.insert(2, &[3; 3000]), Err(InsertError::NoRoom));
        assert!(table.remove(1));
    });
}

#[test]
fn closures_may_use_the_table_and_panic() {
    both(|eviction| {
        let table = LockHash::new(&config(eviction).partitions(1)).unwrap();
        for len in [10, 5000] {
            table.insert(1, &vec![1; len]).unwrap();
            let nested = table.get(1, |value| {
                table.insert(1, b"other").unwrap();
                table.clear();
                table.insert(2, value).unwrap();
                table.get(2, <[u8]>::len)
            });
            assert_eq!(nested, Some(Some(len)));
            let read = || table.get(2, |_| expected_panic());
            assert!(catch_unwind(AssertUnwindSafe(read)).is_err());
            table.clear();
            assert_eq!(table.stats().used_bytes, 0);
        }
    });
}

#[test]
fn a_panicking_hasher_changes_nothing() {
    struct Hostile(AtomicBool);
    impl std::hash::BuildHasher for &Hostile {
        type Hasher = std::hash::DefaultHasher;
        fn build_hasher(&self) -> Self::Hasher {
            if self.0.load(Relaxed) {
                expected_panic();
            }
            Self::Hasher::default()
        }
    }
    both(|eviction| {
        let hostile = Hostile(AtomicBool::new(false));
        let table = LockHash::<_, Ttas>::with_hasher(&config(eviction), &hostile).unwrap();
        table.insert("key", b"value").unwrap();
        hostile.0.store(true, Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| table.insert("key", b"2"))).is_err());
        hostile.0.store(false, Relaxed);
        assert_eq!(table.get("key", <[u8]>::to_vec), Some(b"value".to_vec()));
    });
}

#[test]
fn a_batch_replies_to_every_request_in_the_order_of_each_key() {
    both(|eviction| {
        let table = LockHash::new(&config(eviction)).unwrap();
        let long = vec![9; 5000];
        let batch: Vec<CacheRequest<'_>> = (0..100u64)
            .flat_map(|key| {
                let value = if key % 2 == 0 {
                    &long[..]
                } else {
                    &b"short"[..]
                };
                [
                    CacheRequest::Get(key.into()),
                    CacheRequest::Insert(key.into(), value),
                    CacheRequest::Get(key.into()),
                    CacheRequest::Remove(key.into()),
                    CacheRequest::Get(key.into()),
                ]
            })
            .collect();
        let mut seen = vec![0; batch.len()];
        table.execute_batch(&batch, |index, reply| {
            seen[index] += 1;
            let len = if index / 5 % 2 == 0 { 5000 } else { 5 };
            match (index % 5, reply) {
                (0 | 4, Reply::Missing) | (3, Reply::Removed(true)) => {}
                (1, Reply::Inserted(result)) => assert_eq!(result, Ok(())),
                (2, Reply::Found(value)) => assert_eq!(value.len(), len),
                other => panic!("{other:?}"),
            }
        });
        assert!(seen.iter().all(|&count| count == 1));
        assert_eq!(table.stats().used_bytes, 0);
    });
}

#[test]
fn configurations_beyond_the_limits_are_refused() {
    let refused = |config: &Config| LockHash::new(config).err();
    let none = Config::new(1 << 20).partitions(0);
    assert!(matches!(
        refused(&none),
        Some(ConfigError::Partitions { .. })
    ));
    let many = Config::new(1 << 20).partitions(1 << 17);
    assert!(matches!(
        refused(&many),
        Some(ConfigError::Partitions { .. })
    ));
    for bytes in [0, 1, 127] {
        assert_eq!(refused(&Config::new(bytes)), Some(ConfigError::Budget));
    }
    let small = Config::new(1000).partitions(16);
    assert_eq!(refused(&small), Some(ConfigError::Budget));
    for eviction in [Eviction::Lru, Eviction::Random] {
        let huge = Config::new(1 << 44).partitions(1).eviction(eviction);
        let most = MAX_BUCKETS;
        assert_eq!(refused(&huge), Some(ConfigError::Buckets { most }));
        // Larger elements need fewer buckets.
        let table = LockHash::new(&huge.element_bytes(1 << 34)).unwrap();
        table.insert(1, b"value").unwrap();
        assert!(table.contains(1));
    }
}

/// Budgets of every size, from the least to GiBs.
fn budgets() -> impl Iterator<Item = usize> {
    (7..=32).flat_map(|shift| [0, 1, 63].map(|more| (1 << shift) + (more << shift >> 6)))
}

/// The bytes of an element that fits into every table with this budget.
fn promised(budget: usize) -> usize {
    (budget / 16).clamp(128, 1 << 20) / 64 * 64
}

/// Without a number of partitions, an element of a sixteenth of the budget fits, or of 1 MiB, also
/// when the table is full, and one that is larger than the budget never does.
#[test]
fn a_large_value_fits_into_a_budget_of_every_size() {
    both(|eviction| {
        for budget in budgets() {
            // Few buckets, whose memory would be most of the test.
            let config = Config::new(budget).eviction(eviction).element_bytes(4096);
            let table = LockHash::new(&config).unwrap();
            let value = vec![7; promised(budget) - 48];
            for key in 0..20 {
                assert_eq!(table.insert(key, &value), Ok(()), "{key} in {budget}");
                assert_eq!(table.get(key, <[u8]>::len), Some(value.len()));
            }
            assert!(table.stats().held_bytes <= budget as u64);
            let larger = vec![7; budget.min(1 << 25)];
            if larger.len() == budget {
                assert_eq!(table.insert(0, &larger), Err(InsertError::TooLarge));
            }
        }
    });
}

#[test]
fn a_smaller_budget_takes_effect_at_once() {
    both(|eviction| {
        let table = LockHash::new(&config(eviction)).unwrap();
        (0..3000u64).for_each(|key| table.insert(key, &[1; 10]).unwrap());
        assert!(table.stats().used_bytes > 150_000);
        table.set_budget_bytes(50_000).unwrap();
        let stats = table.stats();
        assert!((40_000..=50_000).contains(&stats.held_bytes), "{stats:?}");
        assert_eq!(table.set_budget_bytes(100), Err(ConfigError::Budget));
    });
}
