//! The patterns of asynchronized concurrency: who writes and who waits. Guarantees 1 to 4 of the module.

use corewise_rcu::Domain;

use super::LockBased;
use crate::copy_map::TryInsertError;
use crate::hashing::Hashing;

type Map = LockBased<u64, u64, Hashing>;

fn map(buckets: usize, keys: impl Iterator<Item = u64>) -> Map {
    let builder = LockBased::<u64, u64>::builder().buckets(buckets);
    let builder = builder.automatic_resize(false).domain(Domain::new());
    let map = builder.hasher(Hashing::Own).build();
    keys.for_each(|key| assert_eq!(map.pin().insert(key, !key), Ok(None)));
    map
}

/// All that changes nothing; `keys` are there and `absent` are not.
fn look_and_fail(map: &Map, keys: impl Iterator<Item = u64>, absent: impl Iterator<Item = u64>) {
    let map = map.pin();
    for key in keys {
        assert_eq!(map.get(&key), Some(!key));
        assert!(map.contains_key(&key));
        assert_eq!(map.try_insert(key, 0), Err(TryInsertError::Occupied(!key)));
    }
    for key in absent {
        assert_eq!(map.get(&key), None);
        assert_eq!(map.remove(&key), None);
        assert_eq!(map.update(&key, |_| unreachable!("there is none")), None);
    }
}

/// All words of all buckets.
fn words(map: &Map) -> Vec<[usize; 8]> {
    let section = map.domain().pin();
    let table = map.stage(&section).table();
    let chains = table.heads().iter().flat_map(|head| head.chain());
    chains.map(|bucket| bucket.words()).collect()
}

/// How many words differ.
fn written(before: &[[usize; 8]], after: &[[usize; 8]]) -> usize {
    let pairs = before.iter().flatten().zip(after.iter().flatten());
    pairs.filter(|(before, after)| before != after).count()
}

/// ASCY 1 to 3, by the processor: a write to memory that may only be read would end the process. (A lock that is
/// taken and given back leaves no trace in the words.)
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn lookups_and_failed_updates_write_nothing() {
    /// Whether the bucket array may be written.
    fn allow(map: &Map, access: libc::c_int) {
        let section = map.domain().pin();
        let heads = map.stage(&section).table().heads();
        let first = heads.as_ptr().cast_mut().cast();
        // SAFETY: the array has pages of its own, being as large as it is; until access is given back
        // nobody writes to it, which is what is tested.
        let answer = unsafe { libc::mprotect(first, size_of_val(heads), access) };
        assert_eq!(answer, 0);
    }
    const BUCKETS: u64 = 1 << 14;
    // Four to some buckets, so that they overflow.
    let map = map(
        BUCKETS as usize,
        (0..BUCKETS).chain(BUCKETS * 2..BUCKETS * 5),
    );
    allow(&map, libc::PROT_READ);
    look_and_fail(
        &map,
        (0..BUCKETS).chain(BUCKETS * 2..BUCKETS * 5),
        (BUCKETS..BUCKETS * 2).chain(BUCKETS * 6..BUCKETS * 7),
    );
    assert_eq!(map.pin().iter().count() as u64, BUCKETS * 4);
    allow(&map, libc::PROT_READ | libc::PROT_WRITE);
    assert_eq!(map.pin().remove(&0), Some(!0));
}

#[test]
fn lookups_and_failed_updates_leave_every_word() {
    let map = map(4, 0..40);
    let before = words(&map);
    look_and_fail(&map, 0..40, 40..80);
    assert_eq!(words(&map), before);
}

/// ASCY 1 to 3: whoever has the lock holds nobody up who changes nothing. (If one waited, this would not end.)
#[test]
fn lookups_and_failed_updates_do_not_wait_for_a_lock() {
    let map = map(1, 0..5);
    let section = map.domain().pin();
    let head = &map.stage(&section).table().heads()[0];
    let locked = head.lock().unwrap();
    look_and_fail(&map, 0..5, 5..10);
    drop(locked);
    assert_eq!(map.pin().remove(&1), Some(!1));
}

/// ASCY 4.
#[test]
fn updates_write_few_words() {
    let map = map(1, 0..2);
    let mut before = words(&map);
    let mut step = |what: &str, most: usize, update: &dyn Fn()| {
        update();
        let after = words(&map);
        let count = written(&before, &after);
        assert!((1..=most).contains(&count), "{what}: {count} words");
        before = after;
    };
    let map = map.pin();
    step("an insertion", 3, &|| assert!(map.insert(2, 7).is_ok()));
    step("a replacement", 1, &|| assert!(map.insert(2, 8).is_ok()));
    step("a change", 1, &|| {
        assert!(map.update(&2, |value| value + 1).is_some())
    });
    step("a removal", 1, &|| assert!(map.remove(&2).is_some()));
}

/// A removal is counted in the state; nothing else is, or lookups would look twice for it.
#[test]
fn only_removals_are_counted() {
    let map = map(1, 0..2);
    let removals = || words(&map)[0][0] >> 5;
    map.pin().insert(2, 0).unwrap();
    map.pin().insert(2, 1).unwrap();
    map.pin().update(&2, |value| value + 1);
    assert_eq!(removals(), 0);
    map.pin().remove(&2);
    assert_eq!(removals(), 1);
}

/// A reader that has seen the first bucket of a chain goes on in it, whatever is moved: the chain stays as it is.
#[test]
fn a_chain_that_was_moved_stays_as_it_was() {
    let map = map(1, 0..5);
    let section = map.domain().pin();
    let old = map.stage(&section).table();
    let before: Vec<_> = old.heads()[0]
        .chain()
        .map(|bucket| bucket.words())
        .collect();
    map.resize_to(4).unwrap();
    assert!((0..5).all(|key| map.pin().remove(&key) == Some(!key)));
    let after: Vec<_> = old.heads()[0]
        .chain()
        .map(|bucket| bucket.words())
        .collect();
    // The mark, bit 1, and nothing else.
    assert_eq!(written(&before, &after), 1);
    assert_eq!(before[0][0] | 2, after[0][0]);
    assert!(old.heads()[0].look_up(std::ptr::null_mut()).is_err());
}
