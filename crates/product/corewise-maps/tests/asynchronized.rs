//! The ASCY patterns of CLHT: which operations write and which wait. Guarantees 1 to 4 of `clht`.
#![cfg(feature = "raw")]

use corewise_maps::copy_map::{CopyMap, TryInsertError};
use corewise_maps::parts::clht::{BucketState, ClhtTable, ClhtVariant, LockBasedForm};
use corewise_maps_lab::clht_lock_free::LockFreeForm;
use corewise_rcu::Domain;

use corewise_testkit::for_every;
use corewise_testkit::hashing::Hashing;

for_every! {
    lock_based: LockBasedForm,
    lock_free: LockFreeForm,
    => {
        #[cfg(all(target_os = "linux", not(miri)))]
        lookups_and_failed_updates_write_nothing
        lookups_and_failed_updates_leave_every_word
        lookups_and_failed_updates_do_not_wait_for_updates
        updates_write_few_words
        what_makes_lookups_look_twice_is_counted
        a_chain_that_was_moved_stays_as_it_was
    }
}

/// What differs between the variants.
trait Differing: ClhtVariant {
    /// The words that a replacement writes, and by how much it raises the version.
    const REPLACEMENT: (usize, u64);
}

impl Differing for LockBasedForm {
    const REPLACEMENT: (usize, u64) = (1, 0);
}

impl Differing for LockFreeForm {
    const REPLACEMENT: (usize, u64) = (2, 1);
}

type Map<F> = CopyMap<ClhtTable<F, u64, u64>, Hashing>;

fn map<F: ClhtVariant>(buckets: usize, keys: impl Iterator<Item = u64>) -> Map<F> {
    let builder = CopyMap::<ClhtTable<F, u64, u64>>::builder().buckets(buckets);
    let builder = builder.automatic_resize(false).domain(Domain::new());
    let map = builder.hasher(Hashing::Own).build();
    keys.for_each(|key| assert_eq!(map.pin().insert(key, !key), None));
    map
}

/// Runs operations that change nothing: the keys in `keys` are present and those in `absent` are
/// not.
fn look_and_fail<F: ClhtVariant>(
    map: &Map<F>,
    keys: impl Iterator<Item = u64>,
    absent: impl Iterator<Item = u64>,
) {
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
fn words<F: ClhtVariant>(map: &Map<F>) -> Vec<[usize; 8]> {
    let handle = map.pin();
    let table = handle.table_version().table();
    let chains = table.heads().iter().flat_map(|head| head.chain());
    chains.map(|bucket| bucket.words()).collect()
}

/// The number of words that differ.
fn written(before: &[[usize; 8]], after: &[[usize; 8]]) -> usize {
    let pairs = before.iter().flatten().zip(after.iter().flatten());
    pairs.filter(|(before, after)| before != after).count()
}

/// ASCY 1 to 3, checked by the processor: a write to read-only memory would end the process. (A
/// lock that is taken and released leaves no trace in the words.)
#[cfg(all(target_os = "linux", not(miri)))]
fn lookups_and_failed_updates_write_nothing<F: ClhtVariant>() {
    /// Sets the access rights of the bucket array.
    fn allow<F: ClhtVariant>(map: &Map<F>, access: libc::c_int) {
        let handle = map.pin();
        let heads = handle.table_version().table().heads();
        let first = heads.as_ptr().cast_mut().cast();
        // SAFETY: the array is large enough to have its own pages; until access is restored no
        // thread writes to it, which is what is tested.
        let answer = unsafe { libc::mprotect(first, size_of_val(heads), access) };
        assert_eq!(answer, 0);
    }
    const BUCKETS: u64 = 1 << 14;
    // Some buckets get four entries, so that they overflow.
    let map = map::<F>(
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

fn lookups_and_failed_updates_leave_every_word<F: ClhtVariant>() {
    let map = map::<F>(4, 0..40);
    let before = words(&map);
    look_and_fail(&map, 0..40, 40..80);
    assert_eq!(words(&map), before);
}

/// ASCY 1 to 3: a thread that has the lock or moves the bucket does not block operations that
/// change nothing. (If one waited, this test would not end.)
fn lookups_and_failed_updates_do_not_wait_for_updates<F: ClhtVariant>() {
    let map = map::<F>(1, 0..5);
    let handle = map.pin();
    let head = &handle.table_version().table().heads()[0];
    let stopped = F::stop(head);
    look_and_fail(&map, 0..5, 5..10);
    drop(stopped);
    assert_eq!(map.pin().remove(&1), Some(!1));
}

/// ASCY 4.
fn updates_write_few_words<F: Differing>() {
    let map = map::<F>(1, 0..2);
    let mut before = words(&map);
    let mut step = |what: &str, words_written: usize, update: &dyn Fn()| {
        update();
        let after = words(&map);
        assert_eq!(written(&before, &after), words_written, "{what}");
        before = after;
    };
    let map = map.pin();
    let replacement = F::REPLACEMENT.0;
    step("an insertion", 3, &|| assert_eq!(map.insert(2, 7), None));
    step("a replacement", replacement, &|| {
        assert!(map.insert(2, 8).is_some())
    });
    step("a change", replacement, &|| {
        assert!(map.update(&2, |value| value + 1).is_some())
    });
    step("a removal", 1, &|| assert!(map.remove(&2).is_some()));
}

/// Removals are counted, and so are lock-free replacements. If other updates were, lookups would
/// search twice because of them.
fn what_makes_lookups_look_twice_is_counted<F: Differing>() {
    let map = map::<F>(1, 0..2);
    let count = || F::State::of_bits(words(&map)[0][0] as u64).version();
    let replacement = F::REPLACEMENT.1;
    map.pin().insert(2, 0);
    assert_eq!(count(), 0);
    map.pin().insert(2, 1);
    assert_eq!(count(), replacement);
    map.pin().update(&2, |value| value + 1);
    assert_eq!(count(), 2 * replacement);
    map.pin().remove(&2);
    assert_eq!(count(), 2 * replacement + 1);
}

/// A reader that has seen the first bucket of a chain continues in that chain, whatever is moved:
/// its entries stay.
fn a_chain_that_was_moved_stays_as_it_was<F: ClhtVariant>() {
    let map = map::<F>(1, 0..5);
    let handle = map.pin();
    let old = handle.table_version().table();
    let before = words(&map);
    map.resize_to(4).unwrap();
    assert!((0..5).all(|key| map.pin().remove(&key) == Some(!key)));
    let chain = old.heads()[0].chain();
    let after: Vec<_> = chain.map(|bucket| bucket.words()).collect();
    assert_eq!(before.len(), after.len());
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before[1..], after[1..]);
        let [before, after] = [before, after].map(|words| F::State::of_bits(words[0] as u64));
        assert_eq!(before.version(), after.version());
        assert!((0..3).all(|slot| before.holds(slot) == after.holds(slot)));
    }
    assert!(F::State::of_bits(after[0][0] as u64).is_moved());
    assert!(old.heads()[0].look_up(std::ptr::null_mut()).is_err());
}
