//! Models: lookups and updates of homes beside each other, beside displacements, and beside their way to another
//! table. A neighbourhood has two cells here, a node two slots, and a version comes round with every other change.

use std::ptr::NonNull;

use corewise_atomic::sync::Arc;
use corewise_atomic::thread;
use corewise_rcu::Domain;

use super::{HopscotchMap, HopscotchTable};
use crate::copy_map::space::Space;
use crate::copy_map::{Put, Stage, Step, Table};
use crate::hashing::Hashing;

/// What a number is as a value.
trait Number: Copy + Send + Sync + 'static {
    fn of(number: u64) -> Self;
    /// Fails if it is of two.
    fn number(self) -> u64;
}

impl Number for u64 {
    fn of(number: u64) -> Self {
        number
    }
    fn number(self) -> u64 {
        self
    }
}

impl Number for [u64; 2] {
    fn of(number: u64) -> Self {
        [number, !number]
    }
    fn number(self) -> u64 {
        assert_eq!(self[0], !self[1], "a value of two");
        self[0]
    }
}

/// A table of numbers, each with itself times ten for a value, or that and a bit more. Keys are their hashes.
struct Numbers<V: Number = u64> {
    stage: Box<Stage<HopscotchTable<u64, V>>>,
    next: Option<NonNull<Stage<HopscotchTable<u64, V>>>>,
}

// SAFETY: it owns its tables.
unsafe impl<V: Number> Send for Numbers<V> {}
// SAFETY: as above.
unsafe impl<V: Number> Sync for Numbers<V> {}

fn hash_of(key: &u64) -> u64 {
    *key
}

impl<V: Number> Numbers<V> {
    fn new(buckets: usize, keys: &[u64]) -> Self {
        let space = Arc::new(Space::new(usize::MAX));
        let stage = Stage::new(Table::try_new(buckets, &space).unwrap());
        let numbers = Self { stage, next: None };
        keys.iter()
            .for_each(|key| assert_eq!(numbers.try_insert(*key, key * 10), Ok(())));
        numbers
    }

    /// A table whose resize has begun.
    fn resizing(buckets: usize, to: usize, keys: &[u64]) -> Self {
        let mut numbers = Self::new(buckets, keys);
        let space = Arc::new(Space::new(usize::MAX));
        let next = Stage::new(Table::try_new(to, &space).unwrap());
        let next = NonNull::from(Box::leak(next));
        // SAFETY: freed with the first table.
        unsafe { numbers.stage.link(next) };
        numbers.next = Some(next);
        numbers
    }

    fn get(&self, key: u64) -> Option<u64> {
        Table::get(&*self.stage, key, &key).map(V::number)
    }

    fn put(&self, key: u64, value: u64, replace: bool) -> Result<(), u64> {
        match Table::put(&*self.stage, key, key, V::of(value), replace, &hash_of) {
            Ok(Put::New { .. }) => Ok(()),
            Ok(Put::There(there)) => Err(there.number()),
            Err(full) => panic!("{full}"),
        }
    }

    fn try_insert(&self, key: u64, value: u64) -> Result<(), u64> {
        self.put(key, value, false)
    }

    fn replace(&self, key: u64, value: u64) -> u64 {
        self.put(key, value, true).unwrap_err()
    }

    fn remove(&self, key: u64) -> Option<u64> {
        Table::remove(&*self.stage, key, &key).map(V::number)
    }

    fn increment(&self, key: u64) -> Option<u64> {
        let more = |value: V| V::of(value.number() + 1);
        Table::update(&*self.stage, key, &key, more).map(V::number)
    }

    fn move_all(&self) {
        while self.stage.step(8, &hash_of) != Ok(Step::Last) {
            thread::yield_now();
        }
    }

    /// All pairs, sorted.
    fn pairs(&self) -> Vec<(u64, u64)> {
        let mut pairs = Vec::new();
        let each = &mut |key, value: V| pairs.push((key, value.number()));
        Table::for_each(&*self.stage, (0, 0), &hash_of, each);
        pairs.sort_unstable();
        pairs
    }

    /// Whether these are there, with ten times themselves, and no others.
    fn are(&self, keys: &[u64]) -> bool {
        let there = self.pairs();
        let wanted = keys.iter().map(|key| (*key, key * 10));
        there.into_iter().eq(wanted) && keys.iter().all(|key| self.get(*key) == Some(key * 10))
    }
}

impl<V: Number> Drop for Numbers<V> {
    fn drop(&mut self) {
        if let Some(next) = self.next {
            // SAFETY: from a box, and nobody uses it any more.
            drop(unsafe { Box::from_raw(next.as_ptr()) });
        }
    }
}

/// Runs two bodies beside each other, each on a thread of its own (what the first thread of a model does after
/// spawning another, loom does not try in all orders); what they answer.
fn beside<T, A, B>(
    what: &Arc<T>,
    one: impl FnOnce(&T) -> A + Send + 'static,
    other: impl FnOnce(&T) -> B + Send + 'static,
) -> (A, B)
where
    T: Send + Sync + 'static,
    A: Send + 'static,
    B: Send + 'static,
{
    let (its, others) = (what.clone(), what.clone());
    let one = thread::spawn(move || one(&its));
    let other = thread::spawn(move || other(&others));
    (one.join().unwrap(), other.join().unwrap())
}

/// Either way, which of the two tables is larger.
const RESIZES: [(usize, usize); 2] = [(1, 2), (2, 1)];

/// In four buckets: 4 has its home where 0 lies, and there is no room but where 1 goes on from.
const FULL_HOMES: [u64; 2] = [0, 1];

#[test]
fn a_pair_is_never_mixed() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Numbers::<u64>::new(1, &[1]));
        beside(
            &numbers,
            |numbers| {
                assert_eq!(numbers.remove(1), Some(10));
                assert_eq!(numbers.try_insert(2, 20), Ok(()));
            },
            |numbers| {
                assert!([None, Some(20)].contains(&numbers.get(2)));
                assert!([None, Some(10)].contains(&numbers.get(1)));
            },
        );
        assert!(numbers.are(&[2]));
    });
}

/// One frees a cell, another takes it for a key of another home, and somebody still has the old info.
#[test]
fn a_cell_that_was_left_is_not_taken_for_another() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Numbers::<u64>::new(2, &[0, 1]));
        let third = numbers.clone();
        let third = thread::spawn(move || {
            assert!([None, Some(0)].contains(&third.get(0)));
        });
        beside(
            &numbers,
            |numbers| assert_eq!(numbers.remove(0), Some(0)),
            |numbers| assert_eq!(numbers.try_insert(3, 30), Ok(())),
        );
        third.join().unwrap();
        assert!(numbers.are(&[1, 3]));
    });
}

/// The key is removed, and another put in its cell, twice: the info is as it was.
#[test]
fn a_version_that_came_round_is_another() {
    corewise_atomic::model_bounded(1, || {
        let numbers = Arc::new(Numbers::<u64>::new(1, &[1]));
        beside(
            &numbers,
            |numbers| {
                for (gone, new) in [(1, 2), (2, 3)] {
                    assert_eq!(numbers.remove(gone), Some(gone * 10));
                    assert_eq!(numbers.try_insert(new, new * 10), Ok(()));
                }
            },
            |numbers| assert!([None, Some(30)].contains(&numbers.get(3))),
        );
        assert!(numbers.are(&[3]));
    });
}

#[test]
fn a_displaced_key_is_never_missing() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Numbers::<u64>::new(4, &FULL_HOMES));
        beside(
            &numbers,
            |numbers| assert_eq!(numbers.try_insert(4, 40), Ok(())),
            |numbers| {
                assert_eq!(numbers.get(1), Some(10));
                assert!([None, Some(40)].contains(&numbers.get(4)));
            },
        );
        assert!(numbers.are(&[0, 1, 4]));
    });
}

#[test]
fn updates_beside_a_displacement() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Numbers::<u64>::new(4, &FULL_HOMES));
        let (_, one) = beside(
            &numbers,
            |numbers| assert_eq!(numbers.try_insert(4, 40), Ok(())),
            |numbers| {
                assert_eq!(numbers.increment(1), Some(11));
                numbers.remove(1)
            },
        );
        assert_eq!(one, Some(11));
        assert!(numbers.are(&[0, 4]));
    });
}

/// Each wants the cell that the other displaces from, or to.
#[test]
fn two_who_displace() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Numbers::<u64>::new(4, &FULL_HOMES));
        beside(
            &numbers,
            |numbers| assert_eq!(numbers.try_insert(4, 40), Ok(())),
            |numbers| assert_eq!(numbers.try_insert(5, 50), Ok(())),
        );
        assert!(numbers.are(&[0, 1, 4, 5]));
    });
}

#[test]
fn two_who_claim_a_cell() {
    corewise_atomic::model_bounded(3, || {
        let numbers = Arc::new(Numbers::<u64>::new(2, &[0]));
        beside(
            &numbers,
            |numbers| assert_eq!(numbers.try_insert(2, 20), Ok(())),
            |numbers| assert_eq!(numbers.try_insert(1, 10), Ok(())),
        );
        assert!(numbers.are(&[0, 1, 2]));
    });
}

#[test]
fn an_inserted_pair_is_seen_whole() {
    // In a free cell, in a new node, in a node that is there.
    for keys in [&[][..], &[1], &[1, 2]] {
        corewise_atomic::model_bounded(2, move || {
            let numbers = Arc::new(Numbers::<u64>::new(1, keys));
            beside(
                &numbers,
                |numbers| assert_eq!(numbers.try_insert(4, 40), Ok(())),
                |numbers| assert!([None, Some(40)].contains(&numbers.get(4))),
            );
            assert_eq!(numbers.get(4), Some(40));
        });
    }
}

/// 2 and 5 are of different homes, and take the same slot in turn.
#[test]
fn a_pair_in_a_node_is_never_mixed() {
    corewise_atomic::model_bounded(1, || {
        let numbers = Arc::new(Numbers::<u64>::new(2, &[0, 1, 2, 3]));
        beside(
            &numbers,
            |numbers| {
                assert_eq!(numbers.remove(2), Some(20));
                assert_eq!(numbers.try_insert(5, 50), Ok(()));
            },
            |numbers| assert!([None, Some(50)].contains(&numbers.get(5))),
        );
        assert!(numbers.are(&[0, 1, 3, 5]));
    });
}

#[test]
fn two_homes_overflow() {
    corewise_atomic::model_bounded(2, || {
        let numbers = Arc::new(Numbers::<u64>::new(2, &[0, 1]));
        beside(
            &numbers,
            |numbers| assert_eq!(numbers.try_insert(2, 20), Ok(())),
            |numbers| assert_eq!(numbers.try_insert(3, 30), Ok(())),
        );
        assert!(numbers.are(&[0, 1, 2, 3]));
    });
}

#[test]
fn a_replaced_value_is_never_missing_and_never_mixed() {
    // In a cell, and in a node.
    for (keys, preemptions) in [(&[1][..], 2), (&[2, 1], 1)] {
        corewise_atomic::model_bounded(preemptions, move || {
            let numbers = Arc::new(Numbers::<[u64; 2]>::new(1, keys));
            beside(
                &numbers,
                |numbers| assert_eq!(numbers.replace(1, 11), 10),
                |numbers| assert!([Some(10), Some(11)].contains(&numbers.get(1))),
            );
            assert_eq!(numbers.get(1), Some(11));
            assert_eq!(numbers.pairs().len(), keys.len());
        });
    }
}

/// Both use the scratch, and who is sent there for the first must not take the second.
#[test]
fn two_values_are_replaced_beside_a_lookup() {
    corewise_atomic::model_bounded(1, || {
        let numbers = Arc::new(Numbers::<[u64; 2]>::new(2, &[0, 1]));
        beside(
            &numbers,
            |numbers| {
                assert_eq!(numbers.replace(0, 1), 0);
                assert_eq!(numbers.replace(1, 11), 10);
            },
            |numbers| assert!([Some(0), Some(1)].contains(&numbers.get(0))),
        );
        assert_eq!(numbers.pairs(), [(0, 1), (1, 11)]);
    });
}

#[test]
fn one_of_two_insertions_wins() {
    // In a cell, and in a node.
    for keys in [&[][..], &[2]] {
        corewise_atomic::model_bounded(3, move || {
            let numbers = Arc::new(Numbers::<u64>::new(1, keys));
            let (one, other) = beside(
                &numbers,
                |numbers| numbers.try_insert(1, 10),
                |numbers| numbers.try_insert(1, 11),
            );
            let there = match (one, other) {
                (Ok(()), Err(10)) => 10,
                (Err(11), Ok(())) => 11,
                answers => panic!("{answers:?}"),
            };
            assert_eq!(numbers.pairs().len(), keys.len() + 1);
            assert_eq!(numbers.get(1), Some(there));
        });
    }
}

#[test]
fn a_removal_beside_an_insertion() {
    for keys in [&[1][..], &[2, 1]] {
        corewise_atomic::model_bounded(2, move || {
            let numbers = Arc::new(Numbers::<u64>::new(1, keys));
            let (removed, inserted) = beside(
                &numbers,
                |numbers| numbers.remove(1),
                |numbers| numbers.try_insert(1, 11),
            );
            let then = match (removed, inserted) {
                (Some(10), Ok(())) => Some(11),
                (Some(10), Err(10)) => None,
                answers => panic!("{answers:?}"),
            };
            assert_eq!(numbers.get(1), then);
        });
    }
}

#[test]
fn two_updates_have_effect() {
    corewise_atomic::model_bounded(3, || {
        let numbers = Arc::new(Numbers::<u64>::new(1, &[1]));
        let increment = |numbers: &Numbers| numbers.increment(1).unwrap();
        let (one, other) = beside(&numbers, increment, increment);
        assert_eq!([one.min(other), one.max(other)], [11, 12]);
        assert_eq!(numbers.get(1), Some(12));
    });
}

#[test]
fn lookups_do_not_notice_a_resize() {
    for (from, to) in RESIZES {
        corewise_atomic::model_bounded(2, move || {
            let numbers = Arc::new(Numbers::<u64>::resizing(from, to, &[1, 2]));
            beside(&numbers, Numbers::move_all, |numbers| {
                assert_eq!(numbers.get(1), Some(10));
                assert_eq!(numbers.get(2), Some(20));
                assert_eq!(numbers.get(3), None);
            });
            assert!(numbers.are(&[1, 2]));
        });
    }
}

#[test]
fn updates_beside_a_resize() {
    for (from, to) in RESIZES {
        corewise_atomic::model_bounded(2, move || {
            let numbers = Arc::new(Numbers::<u64>::resizing(from, to, &[1, 2]));
            beside(&numbers, Numbers::move_all, |numbers| {
                assert_eq!(numbers.remove(1), Some(10));
                assert_eq!(numbers.try_insert(3, 30), Ok(()));
                assert_eq!(numbers.increment(2), Some(21));
                assert_eq!(numbers.get(1), None);
            });
            assert_eq!(numbers.pairs(), [(2, 21), (3, 30)]);
        });
    }
}

#[test]
fn two_who_move_the_same_homes() {
    for (from, to) in RESIZES {
        corewise_atomic::model_bounded(2, move || {
            let numbers = Arc::new(Numbers::<u64>::resizing(from, to, &[1, 2]));
            let step = |numbers: &Numbers| numbers.stage.step(2, &hash_of);
            let (one, other) = beside(&numbers, step, step);
            // Who waited for nobody may have left the last one to the other, who may have done the same.
            let mut lasts = [one, other]
                .iter()
                .filter(|s| **s == Ok(Step::Last))
                .count();
            while lasts == 0 {
                lasts += usize::from(step(&numbers) == Ok(Step::Last));
            }
            assert_eq!(lasts, 1);
            assert!(numbers.are(&[1, 2]));
        });
    }
}

type Map = HopscotchMap<u64, [u64; 2], Hashing>;

#[test]
fn updates_and_lookups_beside_resizes() {
    corewise_atomic::model_bounded(3, || {
        let builder = HopscotchMap::<u64, [u64; 2]>::builder().buckets(1);
        let builder = builder.automatic_resize(false).domain(Domain::new());
        let map: Arc<Map> = Arc::new(builder.hasher(Hashing::Own).build());
        let is = |map: &Map, key: u64| map.pin().get(&key).map(Number::number) == Some(key * 10);
        (1..=6).for_each(|key| {
            assert_eq!(map.pin().insert(key, Number::of(key * 10)), Ok(None));
        });
        let updates = move |map: &Map| {
            for key in [3, 2, 5, 3, 2] {
                assert_eq!(map.pin().remove(&key).map(Number::number), Some(key * 10));
                assert_eq!(map.pin().get(&key), None);
                assert_eq!(map.pin().try_insert(key, Number::of(0)), Ok(()));
                let old = map.pin().insert(key, Number::of(key * 10));
                assert_eq!(old.unwrap().map(Number::number), Some(0));
                assert!([1, 4, 6].iter().all(|key| is(map, *key)));
            }
        };
        let resizes = |map: &Map| {
            for buckets in [2, 8, 4, 1] {
                map.resize_to(buckets).unwrap();
            }
        };
        beside(&map, resizes, updates);
        let mut pairs: Vec<_> = map
            .pin()
            .iter()
            .map(|pair| (pair.0, pair.1.number()))
            .collect();
        pairs.sort_unstable();
        let there: Vec<_> = (1..=6).map(|key| (key, key * 10)).collect();
        assert_eq!(pairs, there);
    });
}
