//! A map whose entries can be given another key: in one step, without a copy of the value.
//!
//! Paper: Triplett, McKenney, Walpole, *Resizable, Scalable, Concurrent Hash Tables via Relativistic
//! Programming*, USENIX ATC 2011, §2 and §8, which cite the authors' move algorithm: *Scalable concurrent
//! hash tables via relativistic programming*, ACM SIGOPS Operating Systems Review 44(3), 2010, and US patent
//! 7,668,851 (Triplett, *Lockless hash table lookups while performing key update on hash table element*,
//! granted in 2010). What is below works otherwise, but whether it is covered by the patent's claims
//! nobody has examined: hence the feature `rename`, which is off by default.
//!
//! # Layout
//!
//! ```text
//!   table        Name                              Object
//!  ┌ ─ ─ ┐      ┌──────────┬───┬──────────┐       ┌─────────┬────────┬───────┐
//!     old ─────▶│ number 1 │ — │ object   ├──────▶│ current │ issued │ value │
//!  └ ─ ─ ┘      └──────────┴───┴──────────┘   ┌──▶│    1    │   2    │       │
//!  ┌ ─ ─ ┐      ┌──────────┬───┬──────────┐   │   └─────────┴────────┴───────┘
//!     new ─────▶│ number 2 │ 1 │ object   ├───┘
//!  └ ─ ─ ┘      └──────────┴───┴──────────┘
//! ```
//!
//! The table leads from keys to *names*. A name has a number that no other name of its *object* has, and
//! counts only while the object says so: while `current` is its number. So an object has one name at any
//! time, or none if it was removed, and every change of names is one exchange of `current`:
//!
//! | | in the table | the step |
//! |---|---|---|
//! | insert | a new object's name, unless the key has one | the insertion |
//! | remove | | `current`: number to 0 |
//! | rename | the new name, which does not count yet, unless the key has one that does | `current`: old number to new |
//!
//! Names that have ceased to count are taken out of the table afterwards, by who made them cease or by who
//! finds them in the way. Who finds a name in the way that does not count *yet* makes the exchange for it:
//! it carries the number that it is to follow.
//!
//! # Why not as in the paper
//!
//! The paper links the chain of the new key to the entry itself, changes the key in it, waits for readers
//! and takes it out of the chain of the old key. Between the change and the wait the entry leads from the
//! new key's chain into the old one's. So either both buckets are locked while readers are waited for, and
//! updaters that wait for a bucket are readers; or every removal knows of such entries, beside all the
//! states that a resize brings. An insertion, too, must notice an entry that came to the end of its
//! chain. And a key that changes under readers must be one word, and can be lent to nobody. Here keys are
//! of any type and never change, nobody waits for readers, and no bucket is locked together with another. The
//! price is an object apart from its name: lookups follow one more pointer, and an entry takes 64 bytes
//! and an allocation more.
//!
//! # Guarantees
//!
//! 1. *Lookups* are wait-free: that of the table, and one load.
//! 2. *Everything is linearizable*, over all keys together. In particular, who does not find an entry under
//!    its old key finds it under the new one afterwards, and who finds it under the new one does not find
//!    it under the old one afterwards. The other way round there is no such promise, nor can there be: an
//!    entry may be renamed between a look at the new key and one at the old one.
//! 3. *Values* are not moved, copied or cloned. A reference to one is good as long as the handle, however
//!    often it is renamed.
//! 4. *Updates* make progress as those of the table; a stopped thread's rename is completed by others.
//! 5. *Panics* in `Hash` and `Eq` leave the map as it was.

#[cfg(test)]
mod models;

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};

use corewise_atomic::mutant;
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use corewise_atomic::sync::atomic::{AtomicBool, AtomicU64};
use corewise_rcu::{Domain, Guard, Section};

use super::iter::Nodes;
use super::map::{DefaultHasher, Fresh, MapRef, Node, RelativisticMap};
use super::ops::OccupiedError;

/// The number of no name.
const NONE: u64 = 0;
/// The number of an object's first name.
const FIRST: u64 = 1;

/// What is stored, whatever it is called.
struct Object<V> {
    /// The number of the name that counts.
    current: AtomicU64,
    /// The last number that was given to a name.
    issued: AtomicU64,
    value: V,
}

/// What the table has for a key.
struct Name<V> {
    number: u64,
    /// The name that this one is to follow; [`NONE`] for the first.
    after: u64,
    /// Set by who is about to end that the name counts.
    has_counted: AtomicBool,
    object: Arc<Object<V>>,
}

impl<V> Object<V> {
    /// Lets one name count no longer, and another instead; false if it did not count.
    fn pass_on(&self, from: u64, to: u64) -> bool {
        if mutant!("rename_blind") {
            // Relaxed: wrong anyway.
            self.current.store(to, Relaxed);
            return true;
        }
        // Release: who sees the number sees the name in the table, and what became of the one before.
        // Acquire: pairs with it. Both pair with the load in `counts`.
        let (done, failed) = match mutant!("rename_relaxed") {
            true => (Relaxed, Relaxed),
            false => (AcqRel, Acquire),
        };
        self.current
            .compare_exchange(from, to, done, failed)
            .is_ok()
    }
}

impl<V> Name<V> {
    fn first(value: V) -> Self {
        let object = Object {
            current: AtomicU64::new(FIRST),
            issued: AtomicU64::new(FIRST),
            value,
        };
        Self {
            number: FIRST,
            after: NONE,
            has_counted: AtomicBool::new(false),
            object: Arc::new(object),
        }
    }

    /// A name that is to follow this one.
    fn successor(&self) -> Self {
        // Relaxed: only that numbers differ matters.
        let number = self.object.issued.fetch_add(1, Relaxed) + 1;
        Self {
            number,
            after: self.number,
            has_counted: AtomicBool::new(false),
            object: Arc::clone(&self.object),
        }
    }

    #[inline(always)]
    fn counts(&self) -> bool {
        // Acquire: pairs with the Release in `pass_on`.
        self.object.current.load(Acquire) == self.number
    }

    /// Whether it counts; if it was to, from now on. If not, it never will again.
    fn settle(&self) -> bool {
        self.counts() || self.after != NONE && self.object.pass_on(self.after, self.number)
            // Somebody else may have been faster.
            || self.counts()
    }

    /// To be called of a name that counts, before anything is done that ends this.
    fn note(&self) {
        if !mutant!("rename_forgets") {
            // Relaxed: published by the insertion of the next name, or by the exchange.
            self.has_counted.store(true, Relaxed);
        }
    }

    /// Whether it counts or has counted, of a name that another one has tried to follow.
    fn has_counted(&self) -> bool {
        // Relaxed: who has ended it set this before, and `counts` has seen that exchange.
        self.counts() || self.has_counted.load(Relaxed)
    }
}

/// A concurrent hash map whose entries can be renamed: see the [module](self).
///
/// All access is through a handle, which [`pin`](Self::pin) makes.
///
/// ```
/// use corewise_maps::relativistic::rename::RenameMap;
///
/// let files = RenameMap::new();
/// let files = files.pin();
/// files.insert("draft.txt", "text").unwrap();
/// assert_eq!(files.rename("draft.txt", "final.txt"), Ok(&"text"));
/// assert_eq!(files.get("draft.txt"), None);
/// assert_eq!(files.get("final.txt"), Some(&"text"));
/// ```
pub struct RenameMap<K, V, S = DefaultHasher> {
    names: RelativisticMap<K, Name<V>, S>,
}

/// Why an entry was not renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RenameError {
    /// The old key has no entry.
    NotFound,
    /// The new key has one.
    Occupied,
}

impl fmt::Display for RenameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RenameError::NotFound => "there is no entry of the old key",
            RenameError::Occupied => "the new key has a value already",
        })
    }
}

impl std::error::Error for RenameError {}

#[cfg(feature = "foldhash")]
impl<K, V> RenameMap<K, V> {
    /// An empty map.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<K, V, S: Default> Default for RenameMap<K, V, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<K, V, S> RenameMap<K, V, S> {
    /// An empty map with this hasher.
    pub fn with_hasher(hasher: S) -> Self {
        Self::in_domain(hasher, Domain::global().clone())
    }

    /// An empty map with this hasher in a domain.
    pub fn in_domain(hasher: S, domain: Domain) -> Self {
        let builder = RelativisticMap::<K, Name<V>>::builder();
        Self {
            names: builder.hasher(hasher).domain(domain).build(),
        }
    }

    /// A handle, which enters a read-side critical section. Wait-free; as
    /// [`RelativisticMap::pin`](super::RelativisticMap::pin).
    pub fn pin(&self) -> RenameRef<'_, K, V, S> {
        RenameRef(self.names.pin())
    }

    /// A handle in a section that the caller has; as
    /// [`RelativisticMap::within`](super::RelativisticMap::within).
    ///
    /// # Panics
    ///
    /// If the section is not one of this map's domain.
    pub fn within<'g, G: Section>(&'g self, section: &'g G) -> RenameRef<'g, K, V, S, &'g G> {
        RenameRef(self.names.within(section))
    }

    /// The number of entries: exact if nobody changes anything meanwhile, otherwise give or take two for each
    /// thread that writes. Linear in the number of threads.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are no entries; as exact as [`len`](Self::len).
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The number of buckets is changed, as by
    /// [`RelativisticMap::resize_to`](super::RelativisticMap::resize_to).
    ///
    /// # Errors
    ///
    /// [`ResizeError`](super::ResizeError), with nothing changed.
    pub fn resize_to(&self, buckets: usize) -> Result<(), super::ResizeError> {
        self.names.resize_to(buckets)
    }
}

/// A handle of a [`RenameMap`]: a read-side critical section in which the map is used. What it lends lives as
/// long as the handle is borrowed.
pub struct RenameRef<'m, K, V, S = DefaultHasher, G: Section = Guard<'m>>(
    MapRef<'m, K, Name<V>, S, G>,
);

impl<'m, K, V, S, G> RenameRef<'m, K, V, S, G>
where
    K: Eq + Hash,
    S: BuildHasher,
    G: Section,
{
    /// The value of a key. Wait-free, constant time expected.
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        Self::value(self.0.find(self.0.map().hash(key), key))
    }

    /// The values of several keys, in their order: what [`get`](Self::get) would say of each. Wait-free; as
    /// [`MapRef::get_many`](super::MapRef::get_many), which says what a batch is and what it is not.
    ///
    /// # Panics
    ///
    /// If there are not as many places in `out` as keys; then nothing is looked up.
    pub fn get_many<'h, 'q, Q>(
        &'h self,
        keys: impl IntoIterator<Item = &'q Q, IntoIter: ExactSizeIterator>,
        out: &mut [Option<&'h V>],
    ) where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash + 'q,
    {
        self.0.find_many(keys, out, |node| Self::value(node));
    }

    /// The value of the name that was found, if it counts.
    #[inline(always)]
    fn value(node: Option<&Node<K, Name<V>>>) -> Option<&V> {
        let name = &node?.value;
        name.counts().then_some(&name.object.value)
    }

    /// Whether the key has a value. Wait-free.
    #[inline]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        self.get(key).is_some()
    }

    /// Gives a key a value if it has none; the value as stored. Constant time expected; makes progress as
    /// [`MapRef::insert`](super::MapRef::insert).
    ///
    /// # Errors
    ///
    /// [`OccupiedError`] with both values if it has one.
    pub fn insert(&self, key: K, value: V) -> Result<&V, OccupiedError<'_, V>> {
        let hash = self.0.map().hash(&key);
        match self.put(self.0.make(hash, key, Name::first(value))) {
            Ok(node) => Ok(&node.value.object.value),
            Err((found, fresh)) => {
                let object = Arc::try_unwrap(fresh.into_value().object);
                let object = object.ok().expect("nobody else has seen it");
                Err(OccupiedError {
                    current: &found.value.object.value,
                    not_inserted: object.value,
                })
            }
        }
    }

    /// Removes a key; the value it had. Constant time expected.
    pub fn remove<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        let hash = self.0.map().hash(key);
        loop {
            let node = self.find(hash, key)?;
            let name = &node.value;
            name.note();
            if name.object.pass_on(name.number, NONE) {
                self.0.unlink(node);
                return Some(&name.object.value);
            }
        }
    }

    /// Gives the entry of one key another key, in one step: its value, which is neither moved nor cloned.
    /// Nothing is changed if both keys are the same. Constant time expected; waits for no readers.
    ///
    /// Who does not find the old key finds the new one afterwards.
    ///
    /// # Errors
    ///
    /// [`RenameError`] if the old key has no entry, or the new one has; the new key is dropped.
    pub fn rename<Q>(&self, old: &Q, new: K) -> Result<&V, RenameError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        let map = self.0.map();
        let node = self.find(map.hash(old), old).ok_or(RenameError::NotFound)?;
        if new.borrow() == old {
            return Ok(&node.value.object.value);
        }
        // Before the next name can be seen, and followed by somebody else.
        node.value.note();
        let fresh = (self.0).make(map.hash(&new), new, node.value.successor());
        if mutant!("rename_unlinks_first") {
            self.0.unlink(node);
        }
        let Ok(next) = self.put(fresh) else {
            // If it counts still, it did when the other one was found to count.
            return Err(match node.value.counts() || mutant!("rename_hasty") {
                true => RenameError::Occupied,
                false => RenameError::NotFound,
            });
        };
        let (name, follower) = (&node.value, &next.value);
        if name.object.pass_on(name.number, follower.number) || follower.has_counted() {
            self.0.unlink(node);
            return Ok(&name.object.value);
        }
        // Somebody has removed it, or given it another name.
        self.0.unlink(next);
        Err(RenameError::NotFound)
    }

    /// The node of a key whose name counts. Others are taken out of the way.
    fn find<Q>(&self, hash: u64, key: &Q) -> Option<&Node<K, Name<V>>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq,
    {
        loop {
            let node = self.0.find(hash, key)?;
            if node.value.settle() {
                return Some(node);
            }
            self.0.unlink(node);
        }
    }

    /// Puts a name into the table unless its key has one that counts.
    #[expect(clippy::type_complexity, reason = "as in `MapRef::link`")]
    fn put<'h>(
        &'h self,
        mut fresh: Fresh<'h, 'm, K, Name<V>, S, G>,
    ) -> Result<&'h Node<K, Name<V>>, (&'h Node<K, Name<V>>, Fresh<'h, 'm, K, Name<V>, S, G>)> {
        loop {
            match self.0.link(fresh) {
                Ok(node) => return Ok(node),
                Err((found, back)) if found.value.settle() => return Err((found, back)),
                Err((stale, back)) => {
                    self.0.unlink(stale);
                    fresh = back;
                }
            }
        }
    }
}

impl<K, V, S, G: Section> RenameRef<'_, K, V, S, G> {
    /// The entries, in no order. Every entry that is there under one key from the beginning to the end is
    /// yielded once; one that is inserted or removed meanwhile, once or not at all; one that is renamed
    /// meanwhile, not at all, once, or once under each key.
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter(self.0.nodes())
    }
}

/// Iterator over the entries of a [`RenameMap`], in no order; from [`RenameRef::iter`].
pub struct Iter<'h, K, V>(Nodes<'h, K, Name<V>>);

impl<'h, K, V> Iterator for Iter<'h, K, V> {
    type Item = (&'h K, &'h V);

    fn next(&mut self) -> Option<Self::Item> {
        let node = self.0.find(|node| node.value.counts())?;
        Some((&node.key, &node.value.object.value))
    }
}
