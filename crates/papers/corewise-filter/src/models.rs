//! Models of threads on filters of a few buckets, in which insertions must move fingerprints.
//!
//! Buckets of two slots and 32 bits are a word each, with one stripe for each. Four buckets are
//! enough: a fingerprint whose sum is 1 belongs to 0 and 1 or to 2 and 3, one whose sum is 3 to 0
//! and 3 or to 1 and 2.
//!
//! The thread that only reads is spawned, and the main thread updates. loom begins with the main
//! thread and looks for races with the *last* access to a word only: if the reader came first,
//! loads by the updater would hide those of the reader, and loom would try a single schedule.

use corewise_atomic::sync::Arc;
use corewise_atomic::{model_bounded, thread};

use crate::pairing::ItemClass;
use crate::{CuckooFilter, GrowingFilter, Growth};

/// A filter whose items are given as fingerprint and bucket.
struct SmallFilter {
    filter: CuckooFilter,
}

/// The fingerprints of a kind are numbered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pair {
    /// In buckets 0 and 1.
    ZeroOne,
    /// In buckets 1 and 2.
    OneTwo,
    /// In buckets 2 and 3.
    TwoThree,
}

impl SmallFilter {
    /// Four buckets of two slots, each with a stripe.
    fn new() -> Self {
        let builder = CuckooFilter::builder().slots(8).bucket_slots(2).bits(32);
        Self {
            filter: builder.stripes(4).build().unwrap(),
        }
    }

    fn class(&self, pair: Pair, number: usize) -> ItemClass {
        let (first, second) = match pair {
            Pair::ZeroOne => (0, 1),
            Pair::OneTwo => (1, 2),
            Pair::TwoThree => (2, 3),
        };
        let pairing = &self.filter.table.pairing;
        let fits = |&fingerprint: &u32| pairing.other(fingerprint, first) == second;
        let fingerprint = (1..).filter(fits).nth(number).expect("infinitely many");
        pairing.class_at(fingerprint, first)
    }

    fn insert(&self, class: &ItemClass) {
        self.filter.table.insert(class, 64).unwrap();
    }

    fn contains(&self, class: &ItemClass) -> bool {
        self.filter.table.contains(class)
    }

    fn remove(&self, class: &ItemClass) -> bool {
        self.filter.table.remove(class)
    }

    fn count(&self, class: &ItemClass) -> usize {
        self.filter.table.count(class)
    }
}

/// The same item, with the other bucket first.
fn turned(class: &ItemClass) -> ItemClass {
    ItemClass {
        first: class.second,
        second: class.first,
        ..*class
    }
}

/// Buckets 0 and 1 are full, and one item of bucket 1 can move to bucket 2. Returns the item that
/// will have to move when another of buckets 0 and 1 is inserted.
fn with_a_movable_item(filter: &SmallFilter) -> ItemClass {
    let movable = filter.class(Pair::OneTwo, 0);
    filter.insert(&movable);
    (0..3).for_each(|n| filter.insert(&filter.class(Pair::ZeroOne, n)));
    movable
}

/// Lets another thread look up an item that is present all the time.
fn look_up(filter: &Arc<SmallFilter>, class: ItemClass) -> thread::JoinHandle<()> {
    let filter = filter.clone();
    thread::spawn(move || assert!(filter.contains(&class), "an item is missing"))
}

#[test]
fn an_item_that_moves_is_never_missed() {
    model_bounded(3, || {
        let filter = Arc::new(SmallFilter::new());
        let movable = with_a_movable_item(&filter);
        // It moves from the bucket that is read second to the one that is read first.
        let reader = look_up(&filter, turned(&movable));
        filter.insert(&filter.class(Pair::ZeroOne, 3));
        reader.join().unwrap();
        assert!(filter.contains(&movable));
        assert!((0..4).all(|n| filter.contains(&filter.class(Pair::ZeroOne, n))));
        assert_eq!(filter.filter.len(), 5);
    });
}

/// An item moves from bucket 1 to 2 and back, so that both buckets have lost it at some time.
#[test]
fn an_item_that_moves_to_and_fro_is_never_missed() {
    model_bounded(3, || {
        let filter = Arc::new(SmallFilter::new());
        let movable = with_a_movable_item(&filter);
        let reader = look_up(&filter, movable);
        filter.insert(&filter.class(Pair::ZeroOne, 3));
        assert!(filter.remove(&filter.class(Pair::ZeroOne, 3)));
        let back = filter.class(Pair::OneTwo, 0);
        filter.filter.table.move_for_models(back.fingerprint, 2, 1);
        reader.join().unwrap();
        assert!(filter.contains(&movable));
    });
}

/// y is present in the bucket that is read last. An equal x is inserted into the other, and removed
/// from that of y: nothing moves, and a copy is present at all times.
#[test]
fn removing_one_of_two_equal_items_does_not_hide_the_other() {
    model_bounded(3, || {
        let filter = Arc::new(SmallFilter::new());
        let x = filter.class(Pair::ZeroOne, 0);
        filter.insert(&turned(&x));
        let reader = look_up(&filter, x);
        filter.insert(&x);
        assert!(filter.filter.table.take(x.second, &x));
        reader.join().unwrap();
        assert_eq!(filter.count(&x), 1);
    });
}

/// A removal finds the item although it moves from the bucket that is searched last to the first.
#[test]
fn a_removal_finds_an_item_that_moves() {
    model_bounded(3, || {
        let filter = Arc::new(SmallFilter::new());
        let movable = with_a_movable_item(&filter);
        let shared = filter.clone();
        let remover = thread::spawn(move || assert!(shared.remove(&turned(&movable))));
        filter.insert(&filter.class(Pair::ZeroOne, 3));
        remover.join().unwrap();
        assert!(!filter.contains(&movable));
        assert_eq!(filter.filter.len(), 4);
    });
}

/// Two insertions whose paths overlap: both want the last slot of bucket 2, and lock the same
/// buckets.
#[test]
fn overlapping_paths_lose_nothing() {
    model_bounded(2, || {
        let filter = Arc::new(SmallFilter::new());
        let movable = with_a_movable_item(&filter);
        filter.insert(&filter.class(Pair::TwoThree, 0));
        let shared = filter.clone();
        let inserter = thread::spawn(move || shared.insert(&shared.class(Pair::ZeroOne, 3)));
        filter.insert(&filter.class(Pair::TwoThree, 1));
        inserter.join().unwrap();
        assert!(filter.contains(&movable));
        assert!((0..4).all(|n| filter.contains(&filter.class(Pair::ZeroOne, n))));
        assert!((0..2).all(|n| filter.contains(&filter.class(Pair::TwoThree, n))));
        assert_eq!(filter.filter.len(), 7);
    });
}

/// Updates of buckets 1 and 2, named in opposite orders, lock them in the same order.
#[test]
fn opposite_orders_do_not_deadlock() {
    model_bounded(2, || {
        let filter = Arc::new(SmallFilter::new());
        let classes = [0, 1].map(|n| filter.class(Pair::OneTwo, n));
        let shared = filter.clone();
        filter.insert(&classes[0]);
        filter.insert(&turned(&classes[1]));
        let counter = thread::spawn(move || shared.count(&classes[0]));
        assert_eq!(filter.count(&turned(&classes[1])), 1);
        assert_eq!(counter.join().unwrap(), 1);
    });
}

/// Two threads insert an item unless it is present, one of them with the buckets swapped: one
/// copy.
#[test]
fn a_unique_item_is_inserted_once() {
    model_bounded(2, || {
        let filter = Arc::new(SmallFilter::new());
        let x = filter.class(Pair::ZeroOne, 0);
        let shared = filter.clone();
        let other = thread::spawn(move || shared.filter.table.insert_unique(&turned(&x), 64));
        let one = filter.filter.table.insert_unique(&x, 64).unwrap();
        let other = other.join().unwrap().unwrap();
        assert!(one != other);
        assert_eq!(filter.count(&x), 1);
    });
}

/// A lookup, an insertion that moves the item, and a removal of another, at once.
#[test]
fn three_threads_hide_no_item() {
    model_bounded(2, || {
        let filter = Arc::new(SmallFilter::new());
        let movable = with_a_movable_item(&filter);
        let reader = look_up(&filter, turned(&movable));
        let shared = filter.clone();
        let remover =
            thread::spawn(move || assert!(shared.remove(&shared.class(Pair::ZeroOne, 0))));
        filter.insert(&filter.class(Pair::ZeroOne, 3));
        reader.join().unwrap();
        remover.join().unwrap();
        assert!(filter.contains(&movable));
        assert_eq!(filter.filter.len(), 4);
    });
}

/// A semi-sorted bucket that crosses words is rewritten, while a lookup reads an item in it that
/// stays.
#[test]
fn a_rewrite_of_two_words_hides_no_item() {
    model_bounded(3, || {
        // Buckets of 60 bits: the second crosses words.
        let builder = CuckooFilter::builder().slots(8).bits(16).semi_sorted(true);
        let filter = builder.stripes(1).build().unwrap();
        let filter = Arc::new(SmallFilter { filter });
        let pairing = &filter.filter.table.pairing;
        let stays = pairing.class_at(0x7777, 1);
        filter.insert(&stays);
        let reader = look_up(&filter, stays);
        // Sorted after the other, which changes its place.
        filter.insert(&pairing.class_at(0x888f, 1));
        reader.join().unwrap();
        assert_eq!(filter.filter.len(), 2);
    });
}

/// A copy of the filter has an item that moves meanwhile, from a word that is copied late to one
/// that is copied early.
#[test]
fn a_copy_has_an_item_that_moves() {
    model_bounded(2, || {
        let filter = Arc::new(SmallFilter::new());
        let movable = turned(&filter.class(Pair::OneTwo, 0));
        filter.insert(&movable);
        (0..3).for_each(|n| filter.insert(&filter.class(Pair::TwoThree, n)));
        let shared = filter.clone();
        let copier = thread::spawn(move || {
            let (words, items) = shared.filter.table.snapshot();
            let slots = words
                .iter()
                .flat_map(|word| [*word as u32, (word >> 32) as u32]);
            let slots: Vec<u32> = slots.filter(|&slot| slot != 0).collect();
            assert!(
                slots.contains(&movable.fingerprint),
                "the copy lacks an item"
            );
            assert_eq!(slots.len(), items);
        });
        filter.insert(&filter.class(Pair::TwoThree, 3));
        copier.join().unwrap();
        assert!(filter.contains(&movable));
    });
}

/// Four threads insert, remove and look up in full buckets, under shuttle.
#[test]
fn four_threads_hide_no_item() {
    model_bounded(1, || {
        let filter = Arc::new(SmallFilter::new());
        let movable = with_a_movable_item(&filter);
        let threads = [3, 4].map(|n| {
            let filter = filter.clone();
            thread::spawn(move || {
                let class = filter.class(Pair::ZeroOne, n);
                if filter.filter.table.insert(&class, 64).is_ok() {
                    assert!(filter.remove(&class));
                }
            })
        });
        let reader = {
            let filter = filter.clone();
            thread::spawn(move || assert!(filter.contains(&turned(&movable))))
        };
        assert!(filter.contains(&movable));
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        reader.join().unwrap();
        assert!(filter.contains(&movable));
        assert_eq!(filter.filter.len(), 4);
    });
}

/// A growing filter whose first link, of four buckets of two slots, has this number of items.
fn growing(items: usize) -> Arc<GrowingFilter> {
    let builder = CuckooFilter::builder().slots(8).bucket_slots(2);
    let growth = Growth {
        max_links: 3,
        ..Growth::default()
    };
    let filter = GrowingFilter::with_builder(&builder, 0.5, growth).unwrap();
    let hashes = (1..).map(hash_number);
    let first = filter.links().next().unwrap();
    hashes
        .take(100)
        .filter(|hash| first.len() < items && first.insert_hash(*hash).is_ok())
        .for_each(drop);
    assert_eq!(filter.len(), items);
    Arc::new(filter)
}

/// Hashes that are spread.
fn hash_number(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Two threads find the filter full: one of them adds a link, and both use it.
#[test]
fn a_full_filter_grows_once() {
    model_bounded(2, || {
        let filter = growing(8);
        let [one, other] = [200, 201].map(hash_number);
        let shared = filter.clone();
        let thread = thread::spawn(move || shared.insert_hash(other).unwrap());
        filter.insert_hash(one).unwrap();
        thread.join().unwrap();
        assert!(
            [one, other]
                .into_iter()
                .all(|hash| filter.contains_hash(hash))
        );
        assert_eq!((filter.len(), filter.link_count()), (10, 2));
    });
}

/// Two threads insert an item unless it is present, while the filter grows.
#[test]
fn a_unique_item_is_inserted_once_into_all_links() {
    model_bounded(2, || {
        let filter = growing(8);
        let hash = (200..)
            .map(hash_number)
            .find(|hash| !filter.contains_hash(*hash))
            .unwrap();
        let shared = filter.clone();
        let thread = thread::spawn(move || shared.insert_unique_hash(hash).unwrap());
        let one = filter.insert_unique_hash(hash).unwrap();
        assert!(one != thread.join().unwrap());
        assert_eq!(filter.len(), 9);
    });
}

/// A copy is in the newest link. Another is inserted into an older one, and the first is removed:
/// a copy is present at all times.
#[test]
fn links_are_searched_from_the_newest() {
    model_bounded(2, || {
        let filter = growing(8);
        filter.insert_hash(hash_number(200)).unwrap();
        let newest = hash_number(201);
        filter.links().nth(1).unwrap().insert_hash(newest).unwrap();
        let first = filter.links().next().unwrap();
        // Room in the first link, for the copy.
        let mut old = (1..)
            .map(hash_number)
            .filter(|hash| first.contains_hash(*hash));
        while !first.table.place_in_room(&first.class(newest)) {
            assert!(first.remove_hash(old.next().unwrap()));
        }
        assert!(first.remove_hash(newest) && !first.contains_hash(newest));
        let shared = filter.clone();
        let reader = thread::spawn(move || {
            assert!(shared.contains_hash(newest), "an item is missing");
        });
        assert!(first.table.place_in_room(&first.class(newest)));
        assert!(filter.remove_hash(newest));
        reader.join().unwrap();
        assert!(filter.contains_hash(newest));
    });
}
