//! Who writes, and how many lines a lookup reads.

use corewise_rcu::Domain;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::home::Home;
use super::{HopscotchMap, HopscotchTable};
use crate::copy_map::{Table, TryInsertError};
use crate::hashing::Hashing;

type Map = HopscotchMap<u64, u64, Hashing>;

fn map(buckets: usize, hashing: Hashing, mut keys: impl Iterator<Item = u64>) -> Map {
    let builder = HopscotchMap::<u64, u64>::builder().buckets(buckets);
    let builder = builder.automatic_resize(false).domain(Domain::new());
    let map = builder.hasher(hashing).build();
    assert!(keys.all(|key| map.pin().insert(key, !key) == Ok(None)));
    map
}

/// All that changes nothing; the first `keys` numbers are there.
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

/// Guarantees 1 and 3, by the processor: a write to memory that may only be read would end the process.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn lookups_and_failed_updates_write_nothing() {
    /// Whether the array of buckets may be written.
    fn allow(map: &Map, access: libc::c_int) {
        let section = map.domain().pin();
        let (first, bytes) = map.stage(&section).table().memory();
        // SAFETY: the array has pages of its own, being as large as it is; until access is given back
        // nobody writes to it, which is what is tested.
        let answer = unsafe { libc::mprotect(first.cast(), bytes, access) };
        assert_eq!(answer, 0);
    }
    const BUCKETS: u64 = 1 << 16;
    let map = map(BUCKETS as usize, Hashing::Mixed, 0..BUCKETS);
    assert!(map.overflowing() > 0);
    allow(&map, libc::PROT_READ);
    look_and_fail(&map, BUCKETS);
    assert_eq!(map.pin().iter().count() as u64, BUCKETS);
    allow(&map, libc::PROT_READ | libc::PROT_WRITE);
    assert_eq!(map.pin().remove(&0), Some(!0));
}

/// Whoever has the lock holds nobody up who changes nothing. (If one waited, this would not end.)
#[test]
fn lookups_and_failed_updates_do_not_wait_for_a_lock() {
    let map = map(1, Hashing::Own, 0..5);
    let section = map.domain().pin();
    let table = map.stage(&section).table();
    let locked = Home::new(table, 0).wait_and_lock().ok().unwrap();
    look_and_fail(&map, 5);
    drop(locked);
    assert_eq!(map.pin().remove(&1), Some(!1));
}

/// What disturbs a lookup of a home: see guarantee 1.
#[test]
fn versions_change_with_removals_and_displacements() {
    let map = map(64, Hashing::Own, [0, 64].into_iter());
    let section = map.domain().pin();
    let table = map.stage(&section).table();
    let home = |index| Home::new(table, index);
    let disturbs = |index: usize, update: &dyn Fn()| {
        let seen = home(index).look(&99).ok().unwrap();
        update();
        !home(index).is_as_seen(&seen)
    };
    let map = map.pin();
    assert!(!disturbs(0, &|| assert_eq!(map.insert(128, 0), Ok(None))));
    assert!(!disturbs(0, &|| assert_eq!(
        map.insert(128, 1),
        Ok(Some(0))
    )));
    assert!(!disturbs(1, &|| assert_eq!(map.remove(&128), Some(1))));
    assert!(disturbs(0, &|| assert_eq!(map.remove(&64), Some(!64))));
}

/// Averages of cache lines.
struct Lines {
    hit: f64,
    miss: f64,
    /// With infos and cells in an array each.
    hit_if_apart: f64,
}

/// Counts the lines that lookups read, if the first bucket begins one.
fn lines(table: &HopscotchTable<u64, u64>) -> Lines {
    const LINE: usize = 64;
    let (mut hits, mut hit, mut miss, mut apart) = (0.0, 0, 0, 0);
    for home in 0..table.buckets() {
        // Of the info, and of the words of cells, up to the one that has the key.
        let (mut lines, mut cells) = (vec![home * 24 / LINE], Vec::new());
        for offset in Home::new(table, home).hops() {
            let cell = home + offset;
            lines.extend([cell * 24 + 8, cell * 24 + 16].map(|byte| byte / LINE));
            cells.push(cell * 16 / LINE);
            lines.dedup();
            cells.dedup();
            hits += 1.0;
            hit += lines.len();
            apart += 1 + cells.len();
        }
        miss += lines.len();
    }
    Lines {
        hit: hit as f64 / hits,
        miss: miss as f64 / table.buckets() as f64,
        hit_if_apart: apart as f64 / hits,
    }
}

/// The figures of the header, printed and compared.
#[test]
fn lines_of_a_lookup() {
    const BUCKETS: u64 = 1 << 16;
    let map = map(BUCKETS as usize, Hashing::Own, 0..0);
    let mut keys = SmallRng::seed_from_u64(7);
    for (percent, expected) in [
        (50, [1.41, 1.17, 2.10]),
        (75, [1.56, 1.32, 2.18]),
        (90, [1.74, 1.49, 2.26]),
        (95, [1.89, 1.60, 2.29]),
    ] {
        while (map.len() as u64) < BUCKETS * percent / 100 {
            assert_eq!(map.pin().insert(keys.random(), 0), Ok(None));
        }
        let section = map.domain().pin();
        let lines = lines(map.stage(&section).table());
        let overflow = map.overflowing() as f64 / map.len() as f64;
        let Lines {
            hit,
            miss,
            hit_if_apart,
        } = lines;
        println!(
            "{percent} %: {hit:.2} lines a hit, {hit_if_apart:.2} if apart; {miss:.2} a miss; {overflow:.4} in nodes"
        );
        if !cfg!(corewise_stress) {
            let seen = [hit, miss, hit_if_apart].into_iter().zip(expected);
            assert!(
                seen.into_iter()
                    .all(|(seen, expected)| (seen - expected).abs() < 0.05)
            );
            assert!(overflow < 0.005);
        }
    }
}
