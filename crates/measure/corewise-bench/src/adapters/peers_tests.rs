//! What the tests of all tables (`tests.rs`) leave open for peers: contended keys, many handles of
//! a thread, memory, and resizes beside other threads.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::*;
use crate::hash::hash_u64;

/// Bytes that peers have allocated and not freed.
static LIVE: AtomicI64 = AtomicI64::new(0);

/// Held by each test, so that `LIVE` counts one test at a time.
static TURN: Mutex<()> = Mutex::new(());

pub(super) fn allocated(bytes: usize) {
    LIVE.fetch_add(bytes as i64, Ordering::Relaxed);
}

pub(super) fn freed(bytes: usize) {
    LIVE.fetch_sub(bytes as i64, Ordering::Relaxed);
}

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn build<P: PeerApi>(capacity: usize) -> Peer<P> {
    Peer::build(&Setup {
        capacity,
        threads: 4,
        value_bytes: 8,
        key_bytes: 8,
        ..Setup::default()
    })
}

/// A value of a key, in the harness's format: the key in the upper half, a random number in the
/// lower.
fn value_of(key: u64, random: u64) -> u64 {
    key << 32 | random & 0xffff_ffff
}

/// Runs `work(number, handle)` on several threads at once and returns their results.
fn together<P: PeerApi, R: Send>(
    table: &Peer<P>,
    threads: u64,
    work: impl Fn(u64, &mut PeerHandle<'_, P>) -> R + Sync,
) -> Vec<R> {
    let start = Barrier::new(threads as usize);
    thread::scope(|scope| {
        let run = |number| {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                // All handles are open at once.
                let mut handle = table.handle();
                start.wait();
                work(number, &mut handle)
            })
        };
        let running: Vec<_> = (0..threads).map(run).collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    })
}

fn churn_keeps_keys_and_values_together<P: PeerApi>() {
    const KEYS: u64 = 64;
    let table = build::<P>(KEYS as usize);
    let net: i64 = together(&table, 4, |thread, handle| churn(thread, KEYS, handle))
        .into_iter()
        .sum();
    table.settle();
    assert_eq!(table.size(), Some(net as usize));
    let mut handle = table.handle();
    let found = (1..=KEYS).filter(|key| handle.get(key).is_some()).count();
    assert_eq!(found as i64, net);
}

/// Inserts and removes at random; returns inserts minus removes.
fn churn<P: PeerApi>(thread: u64, keys: u64, handle: &mut PeerHandle<'_, P>) -> i64 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(thread);
    let mut net = 0;
    for _ in 0..100_000 {
        let word = random.next_u64();
        let key = (word >> 8) % keys + 1;
        let found = match word & 3 {
            0 => {
                net += i64::from(handle.insert(&key, value_of(key, word)));
                None
            }
            1 => handle.remove(&key).inspect(|_| net -= 1),
            _ => handle.get(&key),
        };
        assert_eq!(found.map_or(key, |value| value >> 32), key);
    }
    net
}

fn a_thread_may_have_many_handles<P: PeerApi>() {
    let (one, other) = (build::<P>(8), build::<P>(8));
    let (mut first, mut second) = (one.handle(), other.handle());
    let mut third = one.handle();
    assert!(first.insert(&1, 10) && second.insert(&1, 20));
    drop(first);
    assert_eq!((third.get(&1), second.get(&1)), (Some(10), Some(20)));
    drop(third);
    assert_eq!(second.remove(&1), Some(20));
    // Drops `one` while this thread still has a handle of `other`.
    drop(one);
    assert!(second.insert(&2, 30));
    assert_eq!(second.get(&2), Some(30));
}

fn nothing_is_left_of_a_dropped_table<P: PeerApi>() {
    let fill_and_drop = || {
        let table = build::<P>(1_000);
        together(&table, 4, |thread, handle| {
            for key in thread * 1_000 + 1..=(thread + 1) * 1_000 {
                assert!(handle.insert(&key, key));
                assert!(!handle.insert(&key, key));
                if key % 2 == 0 {
                    assert!(handle.remove(&key).is_some());
                }
            }
        });
        let held = LIVE.load(Ordering::Relaxed);
        drop(table);
        held - LIVE.load(Ordering::Relaxed)
    };
    // Hazard pointers of threads stay allocated for the next threads.
    fill_and_drop();
    let before = LIVE.load(Ordering::Relaxed);
    // 2,000 entries of at least 16 bytes.
    assert!(fill_and_drop() >= 32_000);
    let left = LIVE.load(Ordering::Relaxed) - before;
    assert_eq!(left, 0, "bytes left");
}

fn it_has_the_buckets_it_is_told_to_have_while_others_use_it<P: ResizeApi>() {
    const KEYS: u64 = 20_000;
    let table = Peer::<P>::build(&Setup {
        capacity: KEYS as usize,
        threads: 4,
        value_bytes: 8,
        key_bytes: 8,
        ..Setup::default()
    });
    let mut handle = table.handle();
    (1..=KEYS).for_each(|key| assert!(handle.insert(&key, !key)));
    drop(handle);
    let done = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let use_it = |thread: u64| {
            let mut handle = table.handle();
            let mut rounds = 0;
            // Even keys stay; each thread inserts and removes its own odd keys.
            while !done.load(Ordering::Relaxed) || rounds == 0 {
                for key in (1..=KEYS).filter(|key| key / 2 % 2 == thread) {
                    assert_eq!(handle.get(&key), Some(!key), "key {key}");
                    if key % 2 == 1 {
                        assert_eq!(handle.remove(&key), Some(!key), "key {key}");
                        assert!(handle.insert(&key, !key), "key {key}");
                    }
                }
                rounds += 1;
            }
        };
        let users = [0, 1].map(|thread| scope.spawn(move || use_it(thread)));
        for buckets in [2_048, 8_192].repeat(10) {
            table.resize_to(buckets);
            assert_eq!(table.buckets(), buckets);
        }
        done.store(true, Ordering::Relaxed);
        for user in users {
            user.join().expect("no panic");
        }
    });
    table.settle();
    assert_eq!(table.size(), Some(KEYS as usize));
}

/// The conformance tests for one peer.
macro_rules! conformance {
    ($cfg:literal, $module:ident, $Api:ident) => {
        #[cfg(corewise_peer = $cfg)]
        mod $module {
            use super::*;

            conformance! { $Api: churn_keeps_keys_and_values_together() }
            conformance! { $Api: a_thread_may_have_many_handles() }
            conformance! { $Api: nothing_is_left_of_a_dropped_table() }
        }
    };
    (resize $cfg:literal, $module:ident, $Api:ident) => {
        #[cfg(corewise_peer = $cfg)]
        mod $module {
            use super::*;

            conformance! { $Api: it_has_the_buckets_it_is_told_to_have_while_others_use_it() }
        }
    };
    ($Api:ident: $statement:ident()) => {
        #[test]
        fn $statement() {
            let _turn = turn();
            super::$statement::<$Api>();
        }
    };
}

conformance! { "tbb", tbb, Tbb }
conformance! { "urcu_memb", urcu_memb, UrcuMemb }
conformance! { "urcu_qsbr", urcu_qsbr, UrcuQsbr }
conformance! { "cuckoo", libcuckoo, Cuckoo }
conformance! { resize "urcu_memb", urcu_memb_resized, UrcuMembResized }
conformance! { resize "urcu_qsbr", urcu_qsbr_resized, UrcuQsbrResized }
conformance! { resize "cuckoo", libcuckoo_resized, CuckooResized }
conformance! { "cds", cds_michael, CdsMichael }
conformance! { "cds", cds_split, CdsSplit }
conformance! { "cds", cds_feldman, CdsFeldman }

#[cfg(corewise_peer = "null")]
#[test]
fn the_null_peer_has_every_other_key() {
    let table = build::<Null>(0);
    let mut handle = table.handle();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
    for _ in 0..1_000 {
        let key = random.next_u64();
        let stamp = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 << 32;
        let expected = (key & 1 == 1).then_some(stamp);
        assert_eq!(handle.get(&key), expected);
        assert_eq!(handle.remove(&key), expected);
        assert_eq!(handle.insert(&key, stamp), expected.is_none());
    }
}

#[cfg(corewise_peer = "null")]
#[test]
fn c_hashes_as_rust_does() {
    unsafe extern "C" {
        safe fn peer_hash_exported(key: u64) -> u64;
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let keys = (0..100_000).map(|_| random.next_u64());
    for key in keys.chain([0, 1, u64::MAX]) {
        assert_eq!(peer_hash_exported(key), hash_u64(key), "key {key}");
    }
}

#[test]
fn every_peer_is_listed_or_missing() {
    let listed = entries().into_iter().map(|entry| entry.card.name);
    let absent = missing();
    assert!(absent.iter().all(|(_, reason)| !reason.is_empty()));
    let mut names: Vec<String> = listed
        .chain(absent.iter().map(|(name, _)| (*name).to_owned()))
        .collect();
    names.sort();
    let expected = [
        "cds-feldman",
        "cds-michael",
        "cds-split",
        "libcuckoo",
        "peer-null",
        "tbb",
        "urcu-memb",
        "urcu-qsbr",
        "urcu-sync",
    ];
    assert_eq!(names, expected);
}
