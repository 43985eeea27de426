//! Pairs of operations for models: which operations two threads run concurrently on a set of keys,
//! and which outcomes are allowed.

use std::collections::BTreeSet;

use corewise_atomic::sync::Arc;
use corewise_atomic::thread;

/// An operation of one thread.
#[derive(Clone, Copy, Debug)]
pub enum SetOperation {
    /// Looks a key up.
    Find(u64),
    /// Inserts an absent key.
    Insert(u64),
    /// Removes a key.
    Remove(u64),
    /// Replaces the key's node by another one.
    Replace(u64),
    /// Collects all keys.
    Iterate,
    /// Advances a resize.
    Resize,
}

/// The result of an operation.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// Whether it found what it needs: the key, or room for it.
    Found(bool),
    /// Sorted, each key once for every time it was yielded.
    Keys(Vec<u64>),
    /// Nothing that another operation could change.
    Done,
}

/// The structure that is operated on.
pub trait Operated: Send + Sync + 'static {
    /// Runs one operation.
    fn operate(&self, operation: SetOperation) -> Answer;

    /// The keys that are left after the operations. Fails if one of them is not found, or if a
    /// removed key is found, now or after the end of the resize.
    fn settle(self) -> Vec<u64>;
}

use SetOperation::{Find, Insert, Iterate, Remove, Replace, Resize};

impl SetOperation {
    /// The result of an operation that runs alone, and its effect on the keys.
    fn alone(self, keys: &mut BTreeSet<u64>) -> Answer {
        Answer::Found(match self {
            Find(key) | Replace(key) => keys.contains(&key),
            Insert(key) => keys.insert(key),
            Remove(key) => keys.remove(&key),
            Iterate => return Answer::Keys(keys.iter().copied().collect()),
            Resize => return Answer::Done,
        })
    }
}

/// Runs two operations concurrently on a set of these keys. Their results and the keys that are
/// left must be as if one had run after the other. (Iteration is not linearizable in general, but
/// next to one update it is: it yields the key in question or it does not.)
pub fn pair(
    set: impl Operated,
    keys: impl IntoIterator<Item = u64>,
    operations: [SetOperation; 2],
) {
    let set = Arc::new(set);
    // Both on spawned threads: loom does not try all orders of what the first thread of a model
    // does after it spawns another.
    let threads = operations.map(|operation| {
        let set = set.clone();
        thread::spawn(move || set.operate(operation))
    });
    let answers = threads.map(|thread| thread.join().unwrap());
    let set = Arc::try_unwrap(set).ok();
    let left = set.expect("both are done").settle();
    let before: BTreeSet<u64> = keys.into_iter().collect();
    let is_as_if = |first: usize| {
        let mut keys = before.clone();
        [first, 1 - first]
            .iter()
            .all(|nth| operations[*nth].alone(&mut keys) == answers[*nth])
            && keys.iter().eq(&left)
    };
    assert!(
        is_as_if(0) || is_as_if(1),
        "{operations:?} in {before:?}: {answers:?}, and {left:?} are left"
    );
}

/// The five keys of a model. The first three are present, in the order of their chain. When the
/// chain is divided, the first, third and fifth stay together; the second and fourth move to
/// another.
pub type PairKeys = [u64; 5];

/// Each kind of pair in which one operation may affect the other: on one key, on neighbours in a
/// chain, on keys that stay together, and on keys that are separated. Two lookups never do.
pub fn pairs([first, second, third, fourth, fifth]: PairKeys) -> Vec<[SetOperation; 2]> {
    vec![
        [Find(second), Insert(second)],
        [Find(fourth), Insert(fourth)],
        [Find(third), Insert(fifth)],
        [Find(second), Remove(second)],
        [Find(third), Remove(second)],
        [Find(third), Remove(first)],
        [Insert(fourth), Insert(fourth)],
        [Insert(fourth), Insert(fifth)],
        [Insert(second), Remove(second)],
        [Insert(fourth), Remove(second)],
        [Remove(second), Remove(second)],
        [Remove(first), Remove(second)],
    ]
}

/// As [`pairs`], for structures that also have replacements and iterations.
pub fn pairs_with_replacements(keys: PairKeys) -> Vec<[SetOperation; 2]> {
    let [first, second, third, fourth, _] = keys;
    let mut all = vec![
        [Replace(second), Replace(second)],
        [Replace(first), Replace(second)],
        [Find(second), Replace(second)],
        [Find(third), Replace(second)],
        [Insert(second), Replace(second)],
        [Remove(second), Replace(second)],
        [Remove(first), Replace(second)],
        [Iterate, Insert(fourth)],
        [Iterate, Remove(second)],
        [Iterate, Replace(second)],
    ];
    all.extend(pairs(keys));
    all
}

/// Each operation, paired with a step of a resize.
pub fn beside_a_resize(
    operations: &[SetOperation],
) -> impl Iterator<Item = [SetOperation; 2]> + '_ {
    operations.iter().map(|operation| [*operation, Resize])
}
