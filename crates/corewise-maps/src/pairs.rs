//! Pairs of operations for models: what two threads do with a set of keys beside each other, and what may come
//! of it.

use std::collections::BTreeSet;

use corewise_atomic::sync::Arc;
use corewise_atomic::thread;

/// What a thread does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Find(u64),
    Insert(u64),
    Remove(u64),
    /// Puts another node in the place of the key's.
    Replace(u64),
    /// Asks for all keys.
    Iterate,
    /// Moves a resize on.
    Resize,
}

/// What it is told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Whether it has found what it needs: the key, or its place.
    Found(bool),
    /// Sorted, each as often as it was met.
    Keys(Vec<u64>),
    Done,
}

/// What is operated on.
pub(crate) trait Operated: Send + Sync + 'static {
    fn operate(&self, operation: Operation) -> Answer;

    /// The keys that are left when nobody else is there. Fails if one of them is not found, or if what was
    /// removed is met, now or at the end of the resize.
    fn settle(self) -> Vec<u64>;
}

use Operation::{Find, Insert, Iterate, Remove, Replace, Resize};

impl Operation {
    /// What an operation is told that nobody disturbs, and what becomes of the keys.
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

/// Runs two operations on a set of these keys beside each other. They must answer, and leave keys behind, as if
/// one had come after the other. (An iteration is not linearizable, but beside one update it is: it meets the key
/// in question or not.)
pub(crate) fn pair(
    set: impl Operated,
    keys: impl IntoIterator<Item = u64>,
    operations: [Operation; 2],
) {
    let set = Arc::new(set);
    // On threads of their own: what the first thread of a model does after spawning another, loom does not try in
    // all orders.
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

/// The five keys of a model: the first three are there, in the order of their chain; the first, the third and the
/// fifth stay together when the chain is divided, the second and the fourth go to another.
pub(crate) type Keys = [u64; 5];

/// Each kind of pair in which one may notice the other: of one key, of neighbours in a chain, of those who stay
/// together, and of those who part. Finding beside finding is none.
pub(crate) fn pairs([first, second, third, fourth, fifth]: Keys) -> Vec<[Operation; 2]> {
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

/// As [`pairs`], where there are replacements and iterations too.
pub(crate) fn pairs_with_replacements(keys: Keys) -> Vec<[Operation; 2]> {
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

/// Each operation, to run beside a step of a resize.
pub(crate) fn beside_a_resize(
    operations: &[Operation],
) -> impl Iterator<Item = [Operation; 2]> + '_ {
    operations.iter().map(|operation| [*operation, Resize])
}
