//! The handle of a map: a section with the nodes that it keeps, and nodes that are about to be
//! linked.

use std::cell::Cell;
use std::hash::{BuildHasher, Hash};
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use corewise_atomic::alloc::Layout;
use corewise_rcu::{Guard, OwnedGuard, Section};

use super::chain::Link;
use super::map::{DefaultHasher, Node, Own, RelativisticMap};
use super::raw::RawIter;
use super::removed::{Pushed, Waiting};
use super::slab::{Slabs, View};
use super::word::NodeId;
use crate::{Equivalent, batch};

impl<K, V, S> RelativisticMap<K, V, S> {
    /// Creates a handle, which enters a read-side critical section. Wait-free; see
    /// [`Domain::pin`](corewise_rcu::Domain::pin).
    ///
    /// While the handle lives, nothing that is removed from any map of the domain is freed: keep it
    /// for an operation or a few.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// assert_eq!(map.pin().get("a"), Some(&1)); // for one operation
    /// let map = map.pin(); // for a few
    /// map.insert("b", map.get("a").copied().unwrap_or(0) + 1);
    /// ```
    #[inline(always)]
    pub fn pin(&self) -> MapRef<'_, K, V, S> {
        self.handle(self.domain().pin())
    }

    /// Creates a handle that may be sent to another thread, and held over an `.await`.
    ///
    /// Such a handle costs more than that of [`pin`](Self::pin): some dozen nanoseconds and an
    /// atomic read-modify-write to create it, more where hundreds of them are alive at once, and a
    /// lock or two to drop it if it has updated the map (see
    /// [`Domain::pin_owned`](corewise_rcu::Domain::pin_owned)).
    ///
    /// While it lives, no removed entry of the domain is freed. A task that waits long with one
    /// makes the backlog grow: use it where a reference must stay valid over an `.await`, and
    /// [`pin`](Self::pin) elsewhere.
    ///
    /// The thread must not call [`settle`](Self::settle) or [`resize_to`](Self::resize_to) while it
    /// holds such a handle: they would wait for it for ever. (They return an error beside a handle
    /// of `pin`.)
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// let handle = map.pin_owned();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(move || assert_eq!(handle.get("a"), Some(&1)));
    /// });
    ///
    /// async fn answer(map: &RelativisticMap<&str, u64>) -> u64 {
    ///     let handle = map.pin_owned();
    ///     let value = handle.get("a");
    ///     std::future::ready(()).await;
    ///     value.copied().unwrap_or(0)
    /// }
    /// fn send<T: Send>(_: T) {}
    /// send(answer(&map));
    /// ```
    pub fn pin_owned(&self) -> MapRef<'_, K, V, S, OwnedGuard<'_>> {
        self.handle(self.domain().pin_owned())
    }

    /// Creates a handle in a section that the caller already has: a [`Guard`], an [`OwnedGuard`],
    /// or a [`QsbrGuard`](corewise_rcu::QsbrGuard) of an event loop.
    ///
    /// # Panics
    ///
    /// If the section belongs to another domain than the map.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let (ages, towns) = (RelativisticMap::new(), RelativisticMap::new());
    /// let guard = corewise_rcu::pin();
    /// ages.within(&guard).insert("ada", 36);
    /// towns.within(&guard).insert("ada", "London");
    /// ```
    #[inline]
    pub fn within<'g, G: Section>(&'g self, section: &'g G) -> MapRef<'g, K, V, S, &'g G> {
        assert_eq!(
            section.domain_id(),
            self.domain().id(),
            "the section is one of another domain"
        );
        self.handle(section)
    }

    /// Enters a section of the map's domain, for [`within`](Self::within).
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let (ages, towns) = (RelativisticMap::new(), RelativisticMap::new());
    /// let guard = ages.guard();
    /// ages.within(&guard).insert("ada", 36);
    /// towns.within(&guard).insert("ada", "London"); // both maps are of the global domain
    /// ```
    #[inline]
    pub fn guard(&self) -> Guard<'_> {
        self.domain().pin()
    }

    /// Enters a section of the map's domain that may move to another thread; costs what
    /// [`pin_owned`](Self::pin_owned) does.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::from([("a", 1)]);
    /// let guard = map.owned_guard();
    /// let value = std::thread::scope(|scope| {
    ///     let map = &map;
    ///     scope.spawn(move || map.within(&guard).get("a").copied()).join().unwrap()
    /// });
    /// assert_eq!(value, Some(1));
    /// ```
    pub fn owned_guard(&self) -> OwnedGuard<'_> {
        self.domain().pin_owned()
    }

    /// A handle in a section of the map's domain.
    #[inline(always)]
    fn handle<G: Section>(&self, section: G) -> MapRef<'_, K, V, S, G> {
        MapRef {
            section: ManuallyDrop::new(section),
            map: self,
            due: Cell::new(false),
        }
    }
}

/// A handle of a [`RelativisticMap`]: a read-side critical section in which the map is used.
/// References that it returns are valid as long as the handle is borrowed.
///
/// Updates are visible to every handle at once, also to handles that were created earlier. `K` and
/// `V` are compared, hashed, cloned and dropped outside of all locks. If that panics, the map stays
/// consistent, and the operation has either taken effect or not.
///
/// | | cost | progress |
/// |---|---|---|
/// | `get`, `contains_key`, ... | constant, expected | wait-free |
/// | `insert`, `remove`, ... | constant, expected | lock-free except for the bucket: an update waits for another update of the same bucket, and for a resize step on it |
///
/// A handle cannot be sent to another thread, or held over an `.await` of a task that may; one of
/// [`RelativisticMap::pin_owned`] can:
///
/// ```compile_fail,E0277
/// let map = corewise_maps::RelativisticMap::from([(1, 2)]);
/// let handle = map.pin();
/// std::thread::scope(|scope| scope.spawn(move || drop(handle)));
/// ```
///
/// References cannot outlive the handle:
///
/// ```compile_fail,E0505
/// let map = corewise_maps::RelativisticMap::from([(1, 2)]);
/// let handle = map.pin();
/// let value = handle.get(&1);
/// drop(handle);
/// assert_eq!(value, Some(&2));
/// ```
///
/// Stored references must outlive the map:
///
/// ```compile_fail,E0597
/// let map = corewise_maps::RelativisticMap::new();
/// {
///     let word = String::from("short");
///     map.pin().insert(1, word.as_str());
/// }
/// assert_eq!(map.len(), 1);
/// ```
///
/// A map whose contents threads must not share cannot be shared:
///
/// ```compile_fail,E0277
/// let map = corewise_maps::RelativisticMap::from([(1, std::rc::Rc::new(2))]);
/// std::thread::scope(|scope| scope.spawn(|| map.len()));
/// ```
pub struct MapRef<'m, K, V, S = DefaultHasher, G: Section = Guard<'m>> {
    section: ManuallyDrop<G>,
    map: &'m RelativisticMap<K, V, S>,
    /// Whether a batch of removed entries may be ready when the section ends.
    due: Cell<bool>,
}

impl<K, V, S, G: Section> Drop for MapRef<'_, K, V, S, G> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.section.is_bound_to_thread() {
            self.leave_owned();
        }
        // SAFETY: the section is dropped here only, and not used again.
        unsafe { ManuallyDrop::drop(&mut self.section) };
        if self.due.get() {
            self.map.relieve();
        }
    }
}

impl<'m, K, V, S, G: Section> MapRef<'m, K, V, S, G> {
    /// The map that this is a handle of.
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// let map = RelativisticMap::<u64, u64>::new();
    /// assert!(std::ptr::eq(map.pin().map(), &map));
    /// ```
    pub fn map(&self) -> &'m RelativisticMap<K, V, S> {
        self.map
    }

    /// As [`RelativisticMap::len`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// assert_eq!(RelativisticMap::from([("a", 1)]).pin().len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// As [`RelativisticMap::is_empty`].
    ///
    /// ```
    /// # use corewise_maps::RelativisticMap;
    /// assert!(RelativisticMap::<u64, u64>::new().pin().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// # Safety
    ///
    /// 1. The iterator and the nodes that it yields are not used after this handle.
    #[inline(always)]
    pub(super) unsafe fn raw_iter(&self) -> RawIter<'m, Slabs> {
        // SAFETY: the section is of the map's domain, and nothing is used after it (1).
        unsafe { self.map.raw.iter(&*self.section) }
    }

    /// # Safety
    ///
    /// 1. `link` is that of a node of this map, found in this section.
    #[inline(always)]
    pub(super) unsafe fn node(&self, link: NonNull<Link>) -> &Node<K, V> {
        // SAFETY: all links of this map are of such nodes, and the section keeps it alive, by 1.
        unsafe { Node::of(link).as_ref() }
    }

    /// Finds the node with a key.
    #[inline(always)]
    pub(super) fn find<Q>(&self, hash: u64, key: &Q) -> Option<&Node<K, V>>
    where
        Q: ?Sized + Equivalent<K>,
    {
        let link = self.find_link(hash, key)?;
        // SAFETY: the table found the link in this handle's section (1).
        Some(unsafe { self.node(link) })
    }

    /// Finds the link of the node with a key.
    #[inline(always)]
    pub(super) fn find_link<Q>(&self, hash: u64, key: &Q) -> Option<NonNull<Link>>
    where
        Q: ?Sized + Equivalent<K>,
    {
        // SAFETY: the section is of the map's domain; links are of nodes of this map, and its slabs
        // were made for them.
        unsafe {
            let eq = |link| key.equivalent(&self.node(link).key);
            let view = View::<Node<K, V>>::new(self.map.slabs());
            let raw = &self.map.raw;
            raw.find_by(&view, &*self.section, hash, eq)
        }
    }

    /// Applies `give` to the nodes with some keys, or to `None` for absent keys. Each is found as
    /// by [`find`](Self::find), in groups as [`crate::batch`] describes.
    ///
    /// # Panics
    ///
    /// If `out` and `keys` differ in length.
    #[inline(always)]
    pub(super) fn find_many<'h, 'q, Q, T>(
        &'h self,
        keys: impl IntoIterator<Item = &'q Q, IntoIter: ExactSizeIterator>,
        out: &mut [T],
        give: impl Fn(Option<&'h Node<K, V>>) -> T,
    ) where
        Q: ?Sized + Hash + Equivalent<K> + 'q,
        S: BuildHasher,
    {
        let (raw, section) = (&self.map.raw, &*self.section);
        // SAFETY: its slabs were made for such nodes.
        let view = unsafe { View::<Node<K, V>>::new(self.map.slabs()) };
        let fetch = |node: Option<NonNull<Link>>| {
            let node = node.map_or(ptr::null(), |link| link.as_ptr().cast_const());
            batch::prefetch_entry(node, size_of::<Node<K, V>>());
        };
        batch::in_groups(keys, out, |keys, out| {
            batch::in_stages(
                keys,
                out,
                |key| self.map.hash(key),
                // SAFETY: the section is of the map's domain.
                |hash| unsafe { raw.prefetch(section, hash) },
                // SAFETY: the section is of the map's domain; the view is of the table's arena.
                |hash| fetch(unsafe { raw.first_by(&view, section, hash) }),
                // SAFETY: the section is of the map's domain; the view is of the table's arena.
                |hash| fetch(unsafe { raw.second_by(&view, section, hash) }),
                |hash, key| give(self.find(hash, key)),
            );
        });
    }

    /// Creates a node that is in no table.
    #[inline]
    pub(super) fn make(&self, hash: u64, key: K, value: V) -> FreshNode<'_, 'm, K, V, S, G> {
        let slabs = self.map.slabs();
        // SAFETY: the section is one of the map's domain, and the magazine is one of this map,
        // whose slabs these are.
        let slot = unsafe {
            let threads = &self.map.threads;
            threads.with(&*self.section, |own| slabs.alloc(&mut own.magazine))
        };
        let Some(id) = slot else {
            std::alloc::handle_alloc_error(Layout::new::<Node<K, V>>())
        };
        let link = Link::new(hash);
        // SAFETY: the slot has the layout of a node and is ours.
        let node = unsafe {
            let node = self.map.node(id);
            node.write(Node { link, key, value });
            node
        };
        FreshNode {
            handle: self,
            id,
            node,
        }
    }

    /// Removes a node that was found; returns false if it is gone.
    ///
    /// # Safety
    ///
    /// 1. The node was found or linked by this handle.
    #[inline]
    pub(super) unsafe fn unlink(&self, node: &Node<K, V>) -> bool {
        let weight = self.map.weight(node);
        let node = NonNull::from(node);
        // SAFETY: the section is of the map's domain, and the node was found in it, by 1.
        let removed = unsafe { self.map.raw.remove(&*self.section, node.cast()) };
        if let Some(removed) = removed {
            // SAFETY: the node was just removed from the table (1).
            unsafe { self.retire(removed, weight, -1) };
        }
        removed.is_some()
    }

    /// Keeps a removed node until readers have left it.
    ///
    /// # Safety
    ///
    /// 1. The caller has removed the node from this map's table.
    #[inline]
    unsafe fn retire(&self, node: NodeId, weight: usize, by: isize) {
        // SAFETY: the slot is that of the handle's section, which is one of the map's domain and of
        // this thread (1). The node was removed from the map's table, by our 1 (2).
        self.changed(by, |waiting| unsafe { waiting.push(node, weight) });
    }

    /// Counts, retires, and does a share of the resizing.
    #[inline]
    fn changed(&self, by: isize, retire: impl FnOnce(&Waiting<K, V>) -> Pushed) {
        let map = self.map;
        let update = |own: &mut Own, waiting: &Waiting<K, V>| {
            let pushed = retire(waiting);
            own.unreported += by;
            own.turn = own.turn.wrapping_add(1);
            let due = own.unreported.unsigned_abs() >= map.raw.report_after();
            let report = if due {
                std::mem::take(&mut own.unreported)
            } else {
                0
            };
            (pushed, report, own.turn)
        };
        // SAFETY: the section is of the map's domain.
        let (pushed, report, turn) = unsafe { map.threads.count(&*self.section, by, update) };
        if report != 0 {
            map.raw.adjust(report);
        }
        if map.raw.has_work() {
            let thread = self.section.reader_index();
            map.raw.step_after_update(thread, turn);
        }
        match pushed {
            Pushed::Fits => {}
            Pushed::Fills => self.close(),
            Pushed::Lent(node, weight) => {
                // SAFETY: the caller's `retire` had removed the node from the map's table (1).
                let is_full = unsafe { map.push_elsewhere(node, weight) };
                if is_full || !self.section.is_bound_to_thread() {
                    self.due.set(true);
                }
            }
        }
    }

    #[cold]
    fn close(&self) {
        // SAFETY: the section is the handle's, which is one of the map's domain (1).
        unsafe { self.map.close_batch(&*self.section) };
        self.due.set(true);
    }

    /// Hands what this handle has retired, and its free nodes, to the map: no thread comes back to
    /// its record for them.
    #[cold]
    fn leave_owned(&self) {
        // SAFETY: the magazine is one of this map, whose slabs these are (1).
        let flush = |own: &mut Own| unsafe { self.map.slabs().flush(&mut own.magazine) };
        // SAFETY: the section is one of the map's domain, as all sections of its handles (1).
        unsafe { self.map.threads.with(&*self.section, flush) };
        if self.map.threads.public(&*self.section).bytes() > 0 {
            self.close();
        }
    }
}

/// A node that is in no table yet; dropping it frees it.
pub(super) struct FreshNode<'h, 'm, K, V, S, G: Section> {
    handle: &'h MapRef<'m, K, V, S, G>,
    id: NodeId,
    node: NonNull<Node<K, V>>,
}

impl<'h, K, V, S, G: Section> FreshNode<'h, '_, K, V, S, G> {
    /// Links the node unless its key is present; otherwise returns the present node and this one.
    #[inline]
    #[expect(clippy::type_complexity, reason = "the two nodes of an occupied key")]
    pub(super) fn link(self) -> Result<&'h Node<K, V>, (&'h Node<K, V>, Self)>
    where
        K: Eq,
    {
        let (handle, node) = (self.handle, self.node);
        // SAFETY: the section is of the map's domain; the node is fresh, stays in its slot and is
        // freed by `retire` alone.
        let inserted = unsafe {
            let key = &node.as_ref().key;
            // Compares in the same direction as `find`: `Equivalent` need not be symmetric.
            let eq = |link| *key == handle.node(link).key;
            handle.map.raw.insert(&*handle.section, self.id, eq)
        };
        match inserted {
            Ok(()) => {
                std::mem::forget(self);
                handle.changed(1, |_| Pushed::Fits);
                // SAFETY: linked, and kept by the section.
                Ok(unsafe { node.as_ref() })
            }
            // SAFETY: the table found the link in this handle's section (1).
            Err(found) => Err((unsafe { handle.node(found) }, self)),
        }
    }

    /// Replaces a node; returns this one if that node is gone.
    ///
    /// # Safety
    ///
    /// 1. `old` was found by this node's handle, by the hash that this node was made with.
    #[inline]
    pub(super) unsafe fn swap(self, old: &'h Node<K, V>) -> Result<&'h Node<K, V>, Self> {
        let (handle, node) = (self.handle, self.node);
        let weight = handle.map.weight(old);
        let old = NonNull::from(old);
        // SAFETY: the section is of the map's domain, and the node is fresh; `old` was found in
        // this section and has the same hash, by 1.
        let replaced = unsafe {
            let raw = &handle.map.raw;
            raw.replace(&*handle.section, old.cast(), self.id)
        };
        let Some(replaced) = replaced else {
            return Err(self);
        };
        std::mem::forget(self);
        // SAFETY: the old node was just removed from the table (1).
        unsafe { handle.retire(replaced, weight, 0) };
        // SAFETY: linked, and kept by the section.
        Ok(unsafe { node.as_ref() })
    }

    /// Returns key and value, and frees the node's memory.
    pub(super) fn into_parts(self) -> (K, V) {
        // SAFETY: the node is ours; `forget` keeps it from being dropped again.
        let Node { key, value, .. } = unsafe { self.node.read() };
        self.free();
        std::mem::forget(self);
        (key, value)
    }

    /// Returns the value, drops the key, and frees the node's memory.
    pub(super) fn into_value(self) -> V {
        let (key, value) = self.into_parts();
        // Dropped before `value` is returned: a panic here would leak it then.
        drop(key);
        value
    }

    fn free(&self) {
        let map = self.handle.map;
        // SAFETY: the section is one of the map's domain. The slot came from these slabs, no thread
        // uses it, since its contents are gone and it was never linked, and the magazine is one of
        // this map.
        unsafe {
            map.threads.with(&*self.handle.section, |own| {
                map.slabs().free(&mut own.magazine, self.id);
            });
        }
    }
}

impl<K, V, S, G: Section> Drop for FreshNode<'_, '_, K, V, S, G> {
    fn drop(&mut self) {
        /// Frees the slot even if the drop panics.
        struct Free<'f, 'h, 'm, K, V, S, G: Section>(&'f FreshNode<'h, 'm, K, V, S, G>);
        impl<K, V, S, G: Section> Drop for Free<'_, '_, '_, K, V, S, G> {
            fn drop(&mut self) {
                self.0.free();
            }
        }
        let free = Free(self);
        // SAFETY: no other thread has seen the node.
        unsafe { free.0.node.drop_in_place() };
    }
}
