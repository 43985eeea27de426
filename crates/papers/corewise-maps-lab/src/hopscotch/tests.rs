//! Which operations write, and how many lines a lookup reads.

use corewise_maps::copy_map::TryInsertError;
use corewise_rcu::Domain;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::home_bucket::HomeBucket;
use super::tags::Tag;
use super::{HopscotchMap, Overflowing};
use corewise_testkit::hashing::Hashing;

type Map = HopscotchMap<u64, u64, Hashing>;

fn map(buckets: usize, hashing: Hashing, mut keys: impl Iterator<Item = u64>) -> Map {
    let builder = HopscotchMap::<u64, u64>::builder().buckets(buckets);
    let builder = builder.automatic_resize(false).domain(Domain::new());
    let map = builder.hasher(hashing).build();
    assert!(keys.all(|key| map.pin().insert(key, !key).is_none()));
    map
}

/// All operations without effect; the first `keys` numbers are present.
fn look_and_fail(map: &Map, keys: u64) {
    let map = map.pin();
    for key in 0..keys {
        assert_eq!(map.get(&key), Some(!key));
        assert_eq!(map.try_insert(key, 0), Err(TryInsertError::Occupied(!key)));
    }
    for key in keys..keys * 2 {
        assert_eq!(map.get(&key), None);
        assert_eq!(map.remove(&key), None);
        assert_eq!(map.update(&key, |_| unreachable!("there is none")), None);
    }
}

/// Guarantees 1 and 3, checked with memory protection: a write to read-only memory would end the
/// process.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn lookups_and_failed_updates_write_nothing() {
    /// Sets the access to the arrays.
    fn allow(map: &Map, access: libc::c_int) {
        let handle = map.pin();
        for (first, bytes) in handle.table_version().table().memory() {
            // SAFETY: the array is large enough to have its pages to itself; until write access is
            // restored no thread writes to it, which is what is tested.
            let answer = unsafe { libc::mprotect(first.cast_mut().cast(), bytes, access) };
            assert_eq!(answer, 0);
        }
    }
    const BUCKETS: u64 = 1 << 20;
    let map = map(BUCKETS as usize, Hashing::Mixed, 0..BUCKETS);
    assert!(map.overflowing() > 0);
    allow(&map, libc::PROT_READ);
    look_and_fail(&map, BUCKETS);
    assert_eq!(map.pin().iter().count() as u64, BUCKETS);
    allow(&map, libc::PROT_READ | libc::PROT_WRITE);
    assert_eq!(map.pin().remove(&0), Some(!0));
}

/// A held lock delays no operation without effect. (If one waited, this test would not end.)
#[test]
fn lookups_and_failed_updates_do_not_wait_for_a_lock() {
    let map = map(1, Hashing::Own, 0..5);
    let handle = map.pin();
    let table = handle.table_version().table();
    let locked = HomeBucket::new(table, 0).wait_and_lock().ok().unwrap();
    look_and_fail(&map, 5);
    drop(locked);
    assert_eq!(map.pin().remove(&1), Some(!1));
}

/// Which updates disturb a lookup of a home: see guarantee 1.
#[test]
fn versions_change_with_removals_and_displacements() {
    let map = map(64, Hashing::Own, [0, 64].into_iter());
    let handle = map.pin();
    let table = handle.table_version().table();
    let home = |index| HomeBucket::new(table, index);
    let disturbs = |index: usize, update: &dyn Fn()| {
        let seen = home(index).look(&99).ok().unwrap();
        update();
        !home(index).is_as_seen(&seen)
    };
    let map = map.pin();
    assert!(!disturbs(0, &|| assert_eq!(map.insert(128, 0), None)));
    assert!(!disturbs(0, &|| assert_eq!(map.insert(128, 1), Some(0))));
    assert!(!disturbs(1, &|| assert_eq!(map.remove(&128), Some(1))));
    assert!(disturbs(0, &|| assert_eq!(map.remove(&64), Some(!64))));
}

/// Shares of a table's keys.
struct Ways {
    /// Found by tag.
    by_tag: f64,
    /// In the cache line of their home's cell, if the first cell begins a line.
    in_first_line: f64,
    in_nodes: f64,
}

fn ways(map: &Map) -> Ways {
    const CELLS_OF_A_LINE: usize = 64 / 16;
    let handle = map.pin();
    let table = handle.table_version().table();
    let (mut by_tag, mut in_first_line) = (0, 0);
    for (key, _) in map.pin().iter() {
        // Keys are their own hashes.
        let home = table.home(key);
        by_tag += usize::from(home.by_tag(&key, Tag::of(key)).is_ok());
        let cell = home.look(&key).ok().unwrap().cell(home);
        let lines = |cell| cell / CELLS_OF_A_LINE;
        in_first_line += usize::from(cell.map(lines) == Some(lines(home.index())));
    }
    let share = |of: usize| of as f64 / map.len() as f64;
    Ways {
        by_tag: share(by_tag),
        in_first_line: share(in_first_line),
        in_nodes: share(map.overflowing()),
    }
}

/// Prints the figures of the header and compares them.
#[test]
fn ways_to_a_key() {
    const BUCKETS: u64 = 1 << 16;
    let map = map(BUCKETS as usize, Hashing::Own, 0..0);
    let mut keys = SmallRng::seed_from_u64(7);
    for (percent, expected) in [
        (50, [0.991, 0.890]),
        (75, [0.976, 0.779]),
        (90, [0.928, 0.645]),
        (95, [0.876, 0.539]),
    ] {
        while (map.len() as u64) < BUCKETS * percent / 100 {
            assert_eq!(map.pin().insert(keys.random(), 0), None);
        }
        let ways = ways(&map);
        println!(
            "{percent} %: {:.3} by tag, {:.3} in the first line, {:.4} in nodes",
            ways.by_tag, ways.in_first_line, ways.in_nodes
        );
        if !cfg!(corewise_stress) {
            let seen = [ways.by_tag, ways.in_first_line].into_iter().zip(expected);
            assert!(
                seen.into_iter()
                    .all(|(seen, expected): (f64, f64)| (seen - expected).abs() < 0.02)
            );
            assert!(ways.in_nodes < 0.005);
        }
    }
}
