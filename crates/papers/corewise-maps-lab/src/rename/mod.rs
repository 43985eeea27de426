//! A map that can give an entry another key in one step, without copying the value.
//!
//! Source: Triplett, McKenney, Walpole, *Resizable, Scalable, Concurrent Hash Tables via
//! Relativistic Programming*, USENIX ATC 2011 (\[ATC11\]), §2 and §8, which cite the authors' move
//! algorithm: *Scalable concurrent hash tables via relativistic programming*, ACM SIGOPS Operating
//! Systems Review 44(3), 2010, and US patent 7,668,851 (Triplett, *Lockless hash table lookups
//! while performing key update on hash table element*, granted in 2010). The algorithm below works
//! differently, but nobody has examined whether the patent's claims cover it. Therefore this crate,
//! which is not published, has it.
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
//! The table maps keys to *names*. A name has a number that is unique among the names of its
//! *object*. The name is *current* while the object's `current` is that number. So an object has
//! one current name at any time, or none if it was removed, and every change is one exchange of
//! `current`:
//!
//! | | in the table | the step |
//! |---|---|---|
//! | insert | a new object's name, unless the key has one | the insertion |
//! | remove | | `current`: number to 0 |
//! | rename | the new name, which is not current yet, unless the key has a current one | `current`: old number to new |
//!
//! Names that are no longer current are removed from the table afterwards, by the thread that ended
//! them or by a thread that finds them in its way. A thread that finds a name that is not current
//! *yet* performs the exchange on its behalf: the name carries the number that it follows.
//!
//! # Why not the paper's algorithm
//!
//! The paper links the entry into the chain of the new key, changes the key in the entry, waits for
//! readers, and removes the entry from the chain of the old key. Between the change and the end of
//! the wait, the entry leads from the new key's chain into the old key's chain. (The table
//! [`cross_link`](crate::cross_link) does this.) This has three consequences:
//!
//! - Either both buckets are locked while the thread waits for readers, and updaters that wait for
//!   a bucket are readers; or every removal handles such entries, in addition to all states of a
//!   resize.
//! - An insertion must notice an entry that was appended to the end of its chain.
//! - A key that changes under readers must be one word, and cannot be lent.
//!
//! Here, keys are of any type and never change, no thread waits for readers, and no two buckets are
//! locked together. The price is an object separate from its name: lookups follow one more pointer,
//! and an entry takes 64 bytes and an allocation more.
//!
//! # Guarantees
//!
//! 1. *Lookups* are wait-free: a lookup of the table and one load.
//! 2. *Operations on one key are linearizable*, including renames from it and to it. A rename that
//!    succeeds takes effect on both keys at once, by its exchange of `current`. So a thread that
//!    does not find an entry under its old key finds it under the new one afterwards, unless
//!    another update has renamed or removed it since; and a thread that finds it under the new one
//!    does not find it under the old one afterwards, unless it was renamed back. The opposite order
//!    has no such guarantee, nor can it have one: an entry may be renamed between a lookup of the
//!    new key and a lookup of the old key.
//!
//!    *Operations on different keys* are ordered by happens-before only: an operation sees every
//!    update that happens before it, such as those that happened before an update that an earlier
//!    lookup of the same thread saw. So two threads that look up the same two keys may see updates
//!    of these keys in opposite orders. And if each of two threads inserts a key and then looks up
//!    the key of the other, both lookups may miss.
//! 3. *Values* are not moved, copied or cloned. A reference to a value is valid as long as the
//!    handle, however often the entry is renamed.
//! 4. *Updates* make progress like updates of the table; other threads complete the rename of a
//!    stopped thread.
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
use corewise_maps::RelativisticMap;
use corewise_maps::relativistic::{
    DefaultHasher, FreshNode, MapRef, Node, Nodes, OccupiedError, ResizeError,
};
use corewise_rcu::{Domain, Guard, Section};

/// Means "no name". The names of an object are numbered from [`FIRST`].
const NONE: u64 = 0;
/// The number of an object's first name.
const FIRST: u64 = 1;

/// A stored value, independent of its key.
struct Object<V> {
    /// The number of the current name.
    current: AtomicU64,
    /// The last number that was given to a name.
    issued: AtomicU64,
    value: V,
}

/// The value that the table stores for a key.
struct Name<V> {
    number: u64,
    /// The number of the name that this one follows; [`NONE`] for the first.
    after: u64,
    /// Set before this name stops being current, by the thread that is about to end it.
    has_counted: AtomicBool,
    object: Arc<Object<V>>,
}

impl<V> Object<V> {
    /// Makes `to` current instead of `from`; returns false if `from` was not current.
    fn pass_on(&self, from: u64, to: u64) -> bool {
        if mutant!("rename_blind") {
            // Relaxed: this mutant is wrong anyway.
            self.current.store(to, Relaxed);
            return true;
        }
        // Release: a thread that sees the number sees the name in the table, and what became of the
        // previous name. Acquire: pairs with it. Both pair with the load in `counts`.
        let (done, failed) = if mutant!("rename_relaxed") {
            (Relaxed, Relaxed)
        } else {
            (AcqRel, Acquire)
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

    /// Creates a name that follows this one.
    fn successor(&self) -> Self {
        // Relaxed: only the uniqueness of the numbers matters.
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

    /// Makes this name current if it is not yet but can be, and returns whether it is current. If
    /// not, it never will be again.
    fn make_current(&self) -> bool {
        self.counts() || self.after != NONE && self.object.pass_on(self.after, self.number)
            // Another thread may have been faster.
            || self.counts()
    }

    /// Records that this name is current; called before anything that ends this.
    fn note(&self) {
        if !mutant!("rename_forgets") {
            // Relaxed: published by the insertion of the next name, or by the exchange.
            self.has_counted.store(true, Relaxed);
        }
    }

    /// Whether it is or was current, for a name that another one has tried to follow.
    fn has_counted(&self) -> bool {
        // Relaxed: the thread that ended it set this before, and `counts` has seen that exchange.
        self.counts() || self.has_counted.load(Relaxed)
    }
}

/// A concurrent hash map whose entries can be renamed; see the [module](self).
///
/// All access goes through a handle, which [`pin`](Self::pin) creates.
///
/// ```
/// use corewise_maps_lab::rename::RenameMap;
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
    /// The new key already has an entry.
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

impl<K, V> RenameMap<K, V> {
    /// Creates an empty map.
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
    /// Creates an empty map with this hasher.
    pub fn with_hasher(hasher: S) -> Self {
        Self::in_domain(hasher, Domain::global().clone())
    }

    /// Creates an empty map with this hasher in a domain.
    pub fn in_domain(hasher: S, domain: Domain) -> Self {
        let builder = RelativisticMap::<K, Name<V>>::builder();
        Self {
            names: builder.hasher(hasher).domain(domain).build(),
        }
    }

    /// Creates a handle, which enters a read-side critical section. Wait-free; as
    /// [`RelativisticMap::pin`].
    pub fn pin(&self) -> RenameRef<'_, K, V, S> {
        RenameRef(self.names.pin())
    }

    /// Creates a handle in a section that the caller already has; as
    /// [`RelativisticMap::within`].
    ///
    /// # Panics
    ///
    /// If the section belongs to another domain than the map.
    pub fn within<'g, G: Section>(&'g self, section: &'g G) -> RenameRef<'g, K, V, S, &'g G> {
        RenameRef(self.names.within(section))
    }

    /// The number of entries: exact if no other thread changes the map meanwhile, otherwise give or
    /// take two for each thread that writes. Linear in the number of threads.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether the map is empty; as exact as [`len`](Self::len).
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Changes the number of buckets, as
    /// [`RelativisticMap::resize_to`] does.
    ///
    /// # Errors
    ///
    /// [`ResizeError`]; nothing is changed, unless memory that was available at
    /// first runs out half-way.
    pub fn resize_to(&self, buckets: usize) -> Result<(), ResizeError> {
        self.names.resize_to(buckets)
    }
}

/// A handle of a [`RenameMap`]: a read-side critical section in which the map is used. References
/// that it returns are valid as long as the handle is borrowed.
pub struct RenameRef<'m, K, V, S = DefaultHasher, G: Section = Guard<'m>>(
    MapRef<'m, K, Name<V>, S, G>,
);

impl<'m, K, V, S, G> RenameRef<'m, K, V, S, G>
where
    K: Eq + Hash,
    S: BuildHasher,
    G: Section,
{
    /// Returns the value of a key. Wait-free, constant expected time.
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        Self::value(self.0.find_node(self.0.map().hash_of(key), key))
    }

    /// Looks up several keys: sets each place of `out` to what [`get`](Self::get) returns for the
    /// key at the same position. Wait-free; [`MapRef::get_many`] describes
    /// what a batch guarantees and what it does not.
    ///
    /// # Panics
    ///
    /// If `out` and `keys` differ in length; then nothing is looked up.
    pub fn get_many<'h, 'q, Q>(
        &'h self,
        keys: impl IntoIterator<Item = &'q Q, IntoIter: ExactSizeIterator>,
        out: &mut [Option<&'h V>],
    ) where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash + 'q,
    {
        self.0.find_nodes(keys, out, |node| Self::value(node));
    }

    /// The value of the name that was found, if the name is current.
    #[inline(always)]
    fn value(node: Option<&Node<K, Name<V>>>) -> Option<&V> {
        let name = &node?.value;
        name.counts().then_some(&name.object.value)
    }

    /// Whether the key is present. Wait-free.
    #[inline]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        self.get(key).is_some()
    }

    /// Inserts a value if the key is absent, and returns the stored value. Constant expected time;
    /// makes progress like [`MapRef::insert`].
    ///
    /// # Errors
    ///
    /// [`OccupiedError`] with both values if the key is present.
    pub fn insert(&self, key: K, value: V) -> Result<&V, OccupiedError<'_, V>> {
        let hash = self.0.map().hash_of(&key);
        match self.put(self.0.make_node(hash, key, Name::first(value))) {
            Ok(node) => Ok(&node.value.object.value),
            Err((found, fresh)) => {
                let object = Arc::try_unwrap(fresh.into_node_value().object);
                let object = object.ok().expect("nobody else has seen it");
                Err(OccupiedError {
                    current: &found.value.object.value,
                    not_inserted: object.value,
                })
            }
        }
    }

    /// Removes a key and returns its value. Constant expected time.
    pub fn remove<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        let hash = self.0.map().hash_of(key);
        loop {
            let node = self.find(hash, key)?;
            let name = &node.value;
            name.note();
            if name.object.pass_on(name.number, NONE) {
                // SAFETY: found above (1).
                unsafe { self.0.unlink_node(node) };
                return Some(&name.object.value);
            }
        }
    }

    /// Gives the entry of one key another key, in one step, and returns its value, which is neither
    /// moved nor cloned. Changes nothing if both keys are equal. Constant expected time; does not
    /// wait for readers.
    ///
    /// A thread that does not find the old key finds the new one afterwards.
    ///
    /// # Errors
    ///
    /// [`RenameError`] if the old key has no entry, or the new key has one; the new key is dropped.
    pub fn rename<Q>(&self, old: &Q, new: K) -> Result<&V, RenameError>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        let map = self.0.map();
        let node = self
            .find(map.hash_of(old), old)
            .ok_or(RenameError::NotFound)?;
        if new.borrow() == old {
            return Ok(&node.value.object.value);
        }
        // Before another thread can see the next name and follow it.
        node.value.note();
        let fresh = (self.0).make_node(map.hash_of(&new), new, node.value.successor());
        if mutant!("rename_unlinks_first") {
            // SAFETY: found above (1).
            unsafe { self.0.unlink_node(node) };
        }
        let Ok(next) = self.put(fresh) else {
            // If it is still current, it was current when the other one was found to be current.
            return Err(if node.value.counts() || mutant!("rename_hasty") {
                RenameError::Occupied
            } else {
                RenameError::NotFound
            });
        };
        let (name, follower) = (&node.value, &next.value);
        if name.object.pass_on(name.number, follower.number) || follower.has_counted() {
            // SAFETY: found above (1).
            unsafe { self.0.unlink_node(node) };
            return Ok(&name.object.value);
        }
        // Another thread has removed it, or given it another name.
        // SAFETY: linked by this handle (1).
        unsafe { self.0.unlink_node(next) };
        Err(RenameError::NotFound)
    }

    /// The node of a key whose name is current. Unlinks names that no longer are.
    fn find<Q>(&self, hash: u64, key: &Q) -> Option<&Node<K, Name<V>>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq,
    {
        loop {
            let node = self.0.find_node(hash, key)?;
            if node.value.make_current() {
                return Some(node);
            }
            // SAFETY: found just now (1).
            unsafe { self.0.unlink_node(node) };
        }
    }

    /// Puts a name into the table unless its key has a current one.
    #[expect(clippy::type_complexity, reason = "the two nodes of an occupied key")]
    fn put<'h>(
        &'h self,
        mut fresh: FreshNode<'h, 'm, K, Name<V>, S, G>,
    ) -> Result<&'h Node<K, Name<V>>, (&'h Node<K, Name<V>>, FreshNode<'h, 'm, K, Name<V>, S, G>)>
    {
        loop {
            match fresh.link_node() {
                Ok(node) => return Ok(node),
                Err((found, back)) if found.value.make_current() => return Err((found, back)),
                Err((stale, back)) => {
                    // SAFETY: found by this handle (1).
                    unsafe { self.0.unlink_node(stale) };
                    fresh = back;
                }
            }
        }
    }
}

impl<K, V, S, G: Section> RenameRef<'_, K, V, S, G> {
    /// An iterator over the entries, in no order.
    ///
    /// It yields every entry that is present under one key during the whole iteration once. It may
    /// or may not yield an entry that is inserted or removed meanwhile. It yields an entry that is
    /// renamed meanwhile not at all, once, or once under each key.
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter(self.0.all_nodes())
    }
}

/// Iterator over the entries of a [`RenameMap`], in no order; returned by [`RenameRef::iter`].
pub struct Iter<'h, K, V>(Nodes<'h, K, Name<V>>);

impl<'h, K, V> Iterator for Iter<'h, K, V> {
    type Item = (&'h K, &'h V);

    fn next(&mut self) -> Option<Self::Item> {
        let node = self.0.find(|node| node.value.counts())?;
        Some((&node.key, &node.value.object.value))
    }
}
