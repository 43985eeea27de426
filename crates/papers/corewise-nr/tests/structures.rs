//! The sequential structures against those of the standard library, and the lock-free ones against
//! recorded histories.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use corewise_nr::baseline::{Batch, Combine};
use corewise_nr::sorted_set::{self, Conditions, Direction};
use corewise_nr::structures::dictionary::{self, SkipListDictionary};
use corewise_nr::structures::lock_free::{LockFreePriorityQueue, LockFreeSkipList, OutOfNodes};
use corewise_nr::structures::priority_queue::{self, SkipListQueue};
use corewise_nr::structures::skip_list::SkipList;
use corewise_nr::{Operation, Sequential, SortedSet};
use corewise_testkit::history::models::{EntryOp, EntryOutcome, MapEntry};
use corewise_testkit::history::record_threads;
use corewise_testkit::random::{Random, fewer};
use static_assertions::{assert_impl_all, assert_not_impl_any};

assert_impl_all!(LockFreeSkipList<u64, String>: Send, Sync);
assert_impl_all!(LockFreePriorityQueue<u64>: Send, Sync);
assert_not_impl_any!(LockFreeSkipList<Rc<u8>, u8>: Send, Sync);
assert_not_impl_any!(LockFreeSkipList<u8, Rc<u8>>: Send, Sync);
assert_not_impl_any!(LockFreePriorityQueue<Rc<u8>>: Send, Sync);
// A cell may move to another thread, but not be shared.
assert_impl_all!(LockFreeSkipList<u8, std::cell::Cell<u8>>: Send);
assert_not_impl_any!(LockFreeSkipList<u8, std::cell::Cell<u8>>: Sync);

/// Executes a write, and as a read first.
fn write<D>(data: &mut D, write: &D::Write) -> D::Response
where
    D: Sequential<Response: PartialEq + std::fmt::Debug>,
{
    let (before, as_read) = (data.digest(), data.write_as_read(write));
    let response = data.write(write);
    if let Some(as_read) = as_read {
        assert_eq!(response, as_read);
        assert_eq!(data.digest(), before);
    }
    response
}

#[test]
fn a_dictionary_agrees_with_a_map() {
    use dictionary::{Read, Response, Write};
    for keys in [1, 3, 20, 500] {
        let (mut list, mut map) = (SkipListDictionary::new(), BTreeMap::new());
        let mut random = Random(keys);
        for step in 0..fewer(8_000) {
            let key = random.below(keys);
            let inserts = if step / 1_000 % 2 == 0 { 70 } else { 30 };
            let (operation, old) = if random.below(100) < inserts {
                (Write::Insert(key, step), map.insert(key, step))
            } else {
                (Write::Remove(key), map.remove(&key))
            };
            assert_eq!(write(&mut list, &operation), Response::Value(old));
            let key = random.below(keys);
            let value = Response::Value(map.get(&key).copied());
            assert_eq!(list.read(&Read::Get(key)), value);
            assert_eq!(list.read(&Read::Len), Response::Len(map.len()));
        }
        let clone = list.clone();
        list.write(&Write::Insert(keys, 0));
        assert_ne!(list.digest(), clone.digest());
    }
}

#[test]
fn a_skip_list_is_sorted() {
    let (mut list, mut map) = (SkipList::new(), BTreeMap::new());
    let mut random = Random(9);
    for step in 0..fewer(20_000) {
        let key = random.below(3_000);
        if random.below(3) == 0 {
            assert_eq!(list.remove(&key), map.remove(&key));
        } else {
            assert_eq!(list.insert(key, step), map.insert(key, step));
        }
        if step % 512 == 0 {
            assert!(list.iter().eq(map.iter()));
        }
        assert_eq!(list.first(), map.first_key_value());
        assert_eq!(list.len(), map.len());
    }
    while let Some(first) = map.pop_first() {
        assert_eq!(list.pop_first(), Some(first));
    }
    assert!(list.is_empty() && list.pop_first().is_none());
}

/// Compares by the key only.
#[derive(Clone, Copy, Debug)]
struct Job {
    urgency: u64,
    number: u64,
}

impl PartialEq for Job {
    fn eq(&self, other: &Self) -> bool {
        self.urgency == other.urgency
    }
}

impl Eq for Job {}

impl std::hash::Hash for Job {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        self.urgency.hash(hasher);
    }
}

impl Ord for Job {
    fn cmp(&self, other: &Self) -> Ordering {
        self.urgency.cmp(&other.urgency)
    }
}

impl PartialOrd for Job {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[test]
fn a_priority_queue_returns_the_lowest_key_and_the_oldest_of_equals() {
    use priority_queue::{Read, Response, Write};
    let number_of = |response| match response {
        Response::Key(job) => job.map(|job: Job| job.number),
        other => panic!("{other:?}"),
    };
    for urgencies in [1, 5, 1_000_000] {
        let (mut list, mut oracle) = (SkipListQueue::new(), Vec::<Job>::new());
        let mut random = Random(urgencies);
        for number in 0..fewer(4_000) {
            let inserts = if number / 500 % 2 == 0 { 70 } else { 30 };
            if random.below(100) < inserts {
                let urgency = random.below(urgencies);
                let job = Job { urgency, number };
                write(&mut list, &Write::Insert(job));
                let at = oracle.partition_point(|other| *other <= job);
                oracle.insert(at, job);
            } else {
                let expected = (!oracle.is_empty()).then(|| oracle.remove(0).number);
                for response in [
                    list.clone().write(&Write::RemoveMin),
                    write(&mut list, &Write::RemoveMin),
                ] {
                    assert_eq!(number_of(response), expected);
                }
            }
            let min = oracle.first().map(|job| job.number);
            assert_eq!(number_of(list.read(&Read::Min)), min);
            assert_eq!(list.read(&Read::Len), Response::Len(oracle.len()));
        }
    }
}

#[test]
fn one_thread_finds_a_lock_free_list_like_a_map() {
    for keys in [1, 10, 700] {
        let (list, mut map) = (LockFreeSkipList::new(), BTreeMap::new());
        let mut random = Random(keys);
        for step in 0..fewer(10_000) {
            let key = random.below(keys);
            if random.below(2) == 0 {
                let is_new = !map.contains_key(&key);
                map.entry(key).or_insert(step);
                assert_eq!(list.insert(key, step), Ok(is_new));
            } else {
                assert_eq!(list.remove(&key).copied(), map.remove(&key));
            }
            let key = random.below(keys);
            assert_eq!(list.get(&key), map.get(&key));
            if step % 128 == 0 {
                assert!(list.iter().eq(map.iter()));
            }
        }
    }
}

/// Guarantee 1 of the module. Few keys side by side, so that insertions and removals of neighbours
/// meet.
#[test]
fn lock_free_lists_are_linearizable() {
    const THREADS: u64 = 3;
    const KEYS: u64 = 4;
    let calls = fewer(3_000);
    for round in 0..3 {
        let list = LockFreeSkipList::new();
        let history = record_threads(THREADS, calls as usize, |thread, recorder| {
            let mut random = Random(round * 31 + thread + 1);
            for call in 0..calls {
                let key = random.below(KEYS);
                let op = match random.below(4) {
                    0 | 1 => EntryOp::Get,
                    2 => EntryOp::TryInsert(thread * calls + call),
                    _ => EntryOp::Remove,
                };
                recorder.record(key, op.clone(), || match op {
                    EntryOp::Get => EntryOutcome::Held(list.get(&key).copied()),
                    EntryOp::TryInsert(value) => {
                        EntryOutcome::Done(list.insert(key, value).unwrap())
                    }
                    _ => EntryOutcome::Held(list.remove(&key).copied()),
                });
            }
        });
        history.check(&MapEntry::new()).assert_linearizable();
    }
}

/// Threads insert all keys of a part, and remove every second one; the rest stays.
#[test]
fn no_insertion_or_removal_is_lost() {
    const THREADS: u64 = 4;
    let keys = fewer(4_000);
    let list = LockFreeSkipList::new();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let list = &list;
            scope.spawn(move || {
                for key in (0..keys).map(|key| key * THREADS + thread) {
                    assert_eq!(list.insert(key, key), Ok(true));
                    // A key of a neighbour's, which may be there or not.
                    let _ = list.get(&(key + 1));
                    if key / THREADS % 2 == 1 {
                        assert_eq!(list.remove(&key), Some(&key));
                    }
                }
            });
        }
    });
    let expected = (0..keys * THREADS).filter(|key| (key / THREADS).is_multiple_of(2));
    assert!(list.iter().map(|(key, _)| *key).eq(expected.clone()));
    expected.for_each(|key| assert_eq!(list.get(&key), Some(&key)));
}

#[test]
fn each_key_of_a_lock_free_queue_is_removed_once() {
    const THREADS: u64 = 4;
    let keys = fewer(2_000);
    let queue = LockFreePriorityQueue::new();
    let mut removed: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let queue = &queue;
                scope.spawn(move || {
                    let mut random = Random(thread + 1);
                    let mut removed = Vec::new();
                    for _ in 0..keys {
                        // Many are equal.
                        queue.insert(random.below(keys)).unwrap();
                        if random.below(2) == 0 {
                            removed.extend(queue.remove_min());
                        }
                    }
                    removed
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    // At rest, the lowest comes first.
    let rest: Vec<u64> = std::iter::from_fn(|| queue.remove_min().copied()).collect();
    assert!(rest.is_sorted());
    assert!(!removed.is_empty() && queue.min().is_none());
    removed.extend(rest);
    removed.sort();
    let mut inserted: Vec<u64> = (0..THREADS)
        .flat_map(|thread| {
            let mut random = Random(thread + 1);
            let mut key = || (random.below(keys), random.below(2)).0;
            (0..keys).map(|_| key()).collect::<Vec<_>>()
        })
        .collect();
    inserted.sort();
    assert_eq!(removed, inserted);
}

/// The limit counts all insertions that add a key; failed insertions do not count.
#[test]
fn a_lock_free_list_refuses_insertions_beyond_its_limit() {
    for limit in [0, 1, 63, 64, 65, 1_000] {
        let list = LockFreeSkipList::with_limit(limit);
        for key in 0..limit {
            assert_eq!(list.insert(key, ()), Ok(true));
            assert_eq!(list.insert(key, ()), Ok(false));
        }
        assert_eq!(list.insert(limit, ()), Err(OutOfNodes));
        if limit > 0 {
            assert!(list.remove(&0).is_some());
            assert_eq!(list.insert(0, ()), Err(OutOfNodes));
        }
        // Another thread cannot either, and one may use what another thread's shard has left.
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(list.insert(limit, ()), Err(OutOfNodes)));
        });
    }
    let list = LockFreeSkipList::with_limit(100);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(list.insert(0, ()), Ok(true)));
    });
    for key in 1..100 {
        assert_eq!(list.insert(key, ()), Ok(true));
    }
    assert_eq!(list.insert(100, ()), Err(OutOfNodes));
}

/// Counts drops.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_lock_free_list_drops_each_value_once() {
    let drops = AtomicUsize::new(0);
    let list = LockFreeSkipList::with_limit(3_000);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (list, drops) = (&list, &drops);
            scope.spawn(move || {
                for key in 0..500_usize {
                    // Two of three threads meet on a key.
                    let _ = list.insert(key * 2 + thread / 2, Counted(drops));
                    if key % 3 == 0 {
                        list.remove(&(key * 2));
                    }
                }
            });
        }
    });
    assert!(drops.load(Relaxed) <= 1_500);
    drop(list);
    assert_eq!(drops.load(Relaxed), 1_500);
}

/// Guarantee 4.
#[test]
fn a_panic_in_a_comparison_harms_nothing() {
    #[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Number(u64);
    /// Compares with panics.
    #[derive(Debug, PartialEq, Eq)]
    struct Key(Number);
    impl Ord for Key {
        fn cmp(&self, other: &Self) -> Ordering {
            assert!(self.0.0 < 1_000 && other.0.0 < 1_000, "expected");
            self.0.cmp(&other.0)
        }
    }
    impl PartialOrd for Key {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }
    let list = LockFreeSkipList::with_limit(20);
    for key in 0..10 {
        list.insert(Key(Number(key)), key).unwrap();
    }
    for _ in 0..30 {
        let insert = std::panic::AssertUnwindSafe(|| list.insert(Key(Number(1_000)), 0));
        assert!(std::panic::catch_unwind(insert).is_err());
        let remove = std::panic::AssertUnwindSafe(|| list.remove(&Key(Number(1_000))));
        assert!(std::panic::catch_unwind(remove).is_err());
    }
    for key in 10..20 {
        assert_eq!(list.insert(Key(Number(key)), key), Ok(true));
    }
    assert_eq!(list.iter().count(), 20);
}

/// All orders of some places.
fn orders(places: &[usize]) -> Vec<Vec<usize>> {
    if places.is_empty() {
        return vec![Vec::new()];
    }
    let first_of = |at: usize| {
        let mut rest = places.to_vec();
        let first = rest.remove(at);
        let behind = orders(&rest).into_iter();
        behind.map(move |rest| [vec![first], rest].concat())
    };
    (0..places.len()).flat_map(first_of).collect()
}

/// Batches of random operations are executed as in one of the orders of their operations: with its
/// responses, and its structure in the end.
fn is_combined_in_some_order<D>(
    mut data: D,
    mut operation: impl FnMut(&mut Random) -> Operation<D>,
    is_same: impl Fn(&D, &D) -> bool,
) where
    D: Combine + Clone,
    D: Sequential<Read: Clone, Write: Clone, Response: PartialEq + std::fmt::Debug>,
{
    let (mut random, mut combined) = (Random(3), 0);
    for _ in 0..fewer(400) {
        let operations: Vec<Operation<D>> = (0..5).map(|_| operation(&mut random)).collect();
        let copy = |operation: &Operation<D>| match operation {
            Operation::Read(read) => Operation::Read(read.clone()),
            Operation::Write(write) => Operation::Write(write.clone()),
        };
        let before = data.clone();
        let mut batch = Batch::of(operations.iter().map(copy).collect());
        data.clone().combine(&mut batch);
        combined += (0..batch.len())
            .filter(|place| batch.is_answered(*place))
            .count();
        let responses = Batch::of(operations.iter().map(copy).collect()).execute(&mut data);
        let found = orders(&[0, 1, 2, 3, 4]).into_iter().any(|order| {
            let mut one_by_one = before.clone();
            let agrees = order.into_iter().all(|place| {
                let response = match &operations[place] {
                    Operation::Read(read) => one_by_one.read(read),
                    Operation::Write(write) => one_by_one.write(write),
                };
                response == responses[place]
            });
            agrees && is_same(&one_by_one, &data)
        });
        assert!(found, "{responses:?}");
    }
    assert!(combined > 0, "no operation was combined");
}

#[test]
fn combined_operations_of_a_queue_have_an_order() {
    use priority_queue::{Read, Write};
    let operation = |random: &mut Random| match random.below(8) {
        0 => Operation::Read(Read::Min),
        1 => Operation::Read(Read::Len),
        2..=4 => Operation::Write(Write::RemoveMin),
        _ => Operation::Write(Write::Insert(random.below(6))),
    };
    let is_same = |one: &SkipListQueue<u64>, other: &_| one.digest() == Sequential::digest(other);
    is_combined_in_some_order(SkipListQueue::new(), operation, is_same);
}

#[test]
fn combined_operations_of_a_dictionary_have_an_order() {
    use dictionary::{Read, Write};
    let mut value = 0;
    let operation = |random: &mut Random| {
        let keys = if random.below(2) == 0 { 4 } else { 60 };
        let key = random.below(keys);
        value += 1;
        match random.below(8) {
            0 => Operation::Read(Read::Len),
            1 => Operation::Read(Read::Get(key)),
            2 | 3 => Operation::Write(Write::TryInsert(key, value)),
            4 | 5 => Operation::Write(Write::Insert(key, value)),
            _ => Operation::Write(Write::Remove(key)),
        }
    };
    let is_same = |one: &SkipListDictionary<u64, u64>, other: &SkipListDictionary<_, _>| {
        one.digest() == other.digest()
    };
    is_combined_in_some_order(SkipListDictionary::new(), operation, is_same);
}

#[test]
fn combined_operations_of_a_sorted_set_have_an_order() {
    use sorted_set::operation::{Read, Write};
    let operation = |random: &mut Random| {
        let member: Box<[u8]> = Box::new([random.below(3) as u8]);
        let conditions = Conditions::default();
        match random.below(10) {
            0 => Operation::Read(Read::Rank(member, Direction::Ascending)),
            1 => Operation::Write(Write::Remove(member)),
            kind => Operation::Write(Write::Increment {
                member,
                delta: match kind {
                    2 => f64::INFINITY,
                    3 => f64::NEG_INFINITY,
                    _ => random.below(5) as f64 - 2.0,
                },
                conditions,
            }),
        }
    };
    is_combined_in_some_order(SortedSet::new(), operation, SortedSet::eq);
}

/// Increments of one member are combined, which the test above cannot tell.
#[test]
fn increments_of_one_member_are_combined() {
    use sorted_set::operation::{Response, Write};
    let increment = |member: &[u8], delta| {
        Operation::Write(Write::Increment {
            member: member.into(),
            delta,
            conditions: Conditions::default(),
        })
    };
    let operations = || {
        vec![
            increment(b"a", 2.0),
            increment(b"b", 3.0),
            increment(b"a", 5.0),
        ]
    };
    let mut set = SortedSet::new();
    let mut batch: Batch<SortedSet> = Batch::of(operations());
    set.combine(&mut batch);
    assert_eq!(
        [0, 1, 2].map(|place| batch.is_answered(place)),
        [true, false, true]
    );
    assert_eq!((set.score(b"a"), set.score(b"b")), (Some(7.0), None));
    let responses = Batch::of(operations()).execute(&mut SortedSet::new());
    let scores = [2.0, 3.0, 7.0].map(|score| Response::Incremented(Ok(Some(score))));
    assert_eq!(responses, scores);
}

type Hook = Box<dyn FnMut()>;

thread_local! {
    /// Called by each comparison of this thread, but by those within the call.
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// A key whose comparisons let other things happen meanwhile.
#[derive(PartialEq, Eq)]
struct Hooked(u64);

impl Ord for Hooked {
    fn cmp(&self, other: &Self) -> Ordering {
        if let Some(mut hook) = HOOK.take() {
            hook();
            HOOK.set(Some(hook));
        }
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Hooked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Inserts a key while others come to its place: the lower neighbour of what it is compared with.
fn insert_beside(insert: impl Fn(u64) + Clone + 'static) {
    const OTHERS: u64 = 50;
    insert(OTHERS);
    let (mut others, of_hook) = ((1..OTHERS).rev(), insert.clone());
    let hook = move || others.next().into_iter().for_each(&of_hook);
    HOOK.set(Some(Box::new(hook)));
    insert(0);
    HOOK.set(None);
}

#[test]
fn failed_exchanges_are_counted() {
    let (list, queue) = (
        Rc::new(LockFreeSkipList::new()),
        Rc::new(LockFreePriorityQueue::new()),
    );
    list.insert(Hooked(51), ()).unwrap();
    queue.insert(Hooked(51)).unwrap();
    assert_eq!((list.failed_exchanges(), queue.failed_exchanges()), (0, 0));
    let (of_list, of_queue) = (list.clone(), queue.clone());
    insert_beside(move |key| assert_eq!(of_list.insert(Hooked(key), ()), Ok(true)));
    insert_beside(move |key| of_queue.insert(Hooked(key)).unwrap());
    assert!(list.failed_exchanges() > 0 && queue.failed_exchanges() > 0);
    assert_eq!(list.iter().count(), 52);
    assert!(list.iter().map(|(key, ())| key.0).eq(0..52));
}
