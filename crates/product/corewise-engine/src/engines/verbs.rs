//! The meaning of each verb, for every engine whose sessions execute operations themselves.
//!
//! An engine finds, makes, links and unlinks items ([`ItemStore`]). This module decides what an
//! operation answers, which conditions it checks and in which order. Every function follows the
//! steps *find, decide, make, publish, report*, and runs while the writers of its key are excluded.

use crate::counter;
use crate::item::{Before, Contents, Item, ItemNode, state};
use crate::objects::ObjectMemory;
use corewise_ops::{
    Absence, Arith, Change, Decided, Delete, Edit, Flow, Get, ItemFlags, ItemKind, ItemView, Now,
    Outcome, Store, StoreMode, Update, Updated,
};
use std::cell::Cell;
use std::mem;
use std::ptr::{self, NonNull};

/// A pointer to an item of an engine with these links.
pub(crate) type Ptr<L> = NonNull<ItemNode<L>>;

/// Why an item could not be made or linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoItem {
    TooLarge,
    OutOfMemory,
    /// There may be room for this number of bytes, but not while writers are excluded. Nothing has
    /// been changed; retry once there is room.
    NotYet(usize),
}

/// The operation needs this number of bytes before it can be executed; it has changed and reported
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeedsRoom(pub(crate) usize);

/// The result of an attempt to execute an operation.
pub(crate) type Attempt = Result<Flow, NeedsRoom>;

/// Receives outcomes.
pub(crate) type Report<'r> = &'r mut dyn FnMut(Outcome<'_>) -> Flow;

/// An engine while it executes one operation on one key, whose other writers are excluded.
///
/// Its *items* are those that [`find`](Self::find) has returned, and those that were made for it
/// and not discarded. The methods that take an item have one condition:
///
/// 1. `node` is one of this store's items, and was not unlinked or replaced. (A `fresh` one was not
///    linked either.)
///
/// # Safety
///
/// 1. The items are alive, and their keys and values do not change, until the store is dropped,
///    whether they are unlinked or not.
/// 2. `publish` has linked `fresh` if it returns no error, and has discarded it otherwise.
/// 3. While the store exists, no other thread follows the pointer in an item of its key that owns
///    a [set](crate::objects), or takes that set. `publish` and `unlink` take the set of the item
///    that they unlink, and discharge it.
pub(crate) unsafe trait ItemStore {
    /// The engine's links in its items.
    type Links;

    /// The operation's key.
    fn key(&self) -> &[u8];

    /// The present time.
    fn now(&self) -> Now;

    /// Finds the live item of the key. A dead one is unlinked on the way.
    fn find(&mut self) -> Result<Ptr<Self::Links>, Absence>;

    /// Whether the item is not too large for [`create`](Self::create).
    fn may_create(&self, _contents: &Contents<'_>) -> bool {
        true
    }

    /// Makes an item that is not linked.
    fn create(&mut self, contents: &Contents<'_>) -> Result<Ptr<Self::Links>, NoItem>;

    /// Gives up an item that was not linked.
    ///
    /// # Safety
    ///
    /// 1. As described for the trait.
    unsafe fn discard(&mut self, fresh: Ptr<Self::Links>);

    /// Links `fresh` under the key, replacing `old` if there is one, with this cas value or the
    /// next one; or gives it up if there is no room.
    ///
    /// # Safety
    ///
    /// 1. As described for the trait, of both. `old` is what `find` returned last, if it found one.
    unsafe fn publish(
        &mut self,
        fresh: Ptr<Self::Links>,
        old: Option<Ptr<Self::Links>>,
        cas: Option<u64>,
    ) -> Result<(), NoItem>;

    /// Whether a set that takes `bytes` bytes may take `growth` more as things are.
    fn has_set_room(&mut self, bytes: usize, growth: usize) -> bool;

    /// Makes sure that a set that takes `bytes` bytes may take `growth` more.
    fn make_set_room(&mut self, bytes: usize, growth: usize) -> Result<(), NoItem>;

    /// Counts the bytes of a set that a linked item owns, which took `before` and takes `after`
    /// bytes.
    fn charge_set(&mut self, before: usize, after: usize);

    /// Notes that the key's set has memory of removed members, which
    /// [maintenance](crate::Session::maintain) then frees in [steps](crate::objects::settle).
    fn note_unsettled_set(&mut self);

    /// What counts the bytes of the key's set, as a number: there may be one for each shard.
    fn set_account(&self) -> usize;

    /// What the key's object takes its memory from.
    fn object_memory(&self) -> &ObjectMemory;

    /// A cas value greater than those of the key's earlier items.
    fn next_cas(&mut self) -> u64;

    /// Removes the item.
    ///
    /// # Safety
    ///
    /// 1. As described for the trait.
    unsafe fn unlink(&mut self, node: Ptr<Self::Links>);

    /// Records that the item was read.
    ///
    /// # Safety
    ///
    /// 1. As described for the trait.
    unsafe fn hit(&mut self, node: Ptr<Self::Links>);

    /// Reports an item that was found. An engine that keeps the item alive may report it later,
    /// when it no longer excludes other threads.
    ///
    /// # Safety
    ///
    /// 1. As described for the trait.
    #[inline]
    unsafe fn show(
        &mut self,
        node: Ptr<Self::Links>,
        before: Before,
        flags: ItemFlags,
        report: &mut impl FnMut(Outcome<'_>) -> Flow,
    ) -> Flow {
        // SAFETY: the node is one of this store's items and still linked, by 1.
        report(Outcome::Found(unsafe { self.view(node, before, flags) }))
    }

    /// Notes that the item's deadline has changed.
    ///
    /// # Safety
    ///
    /// 1. As described for the trait.
    unsafe fn touched(&mut self, _node: Ptr<Self::Links>) {}

    /// Called when an `add` found the key present.
    ///
    /// # Safety
    ///
    /// 1. As described for the trait.
    unsafe fn touch_on_add(&mut self, node: Ptr<Self::Links>);

    /// The item.
    ///
    /// # Safety
    ///
    /// 1. As described for the trait.
    unsafe fn item(&self, node: Ptr<Self::Links>) -> Item<'_, Self::Links>;

    /// Bytes that the item takes.
    ///
    /// # Safety
    ///
    /// 1. As described for the trait.
    unsafe fn footprint(&self, node: Ptr<Self::Links>) -> usize;

    /// The part of the item that a sink may see.
    ///
    /// # Safety
    ///
    /// 1. As described for the trait.
    unsafe fn view(
        &self,
        node: Ptr<Self::Links>,
        before: Before,
        flags: ItemFlags,
    ) -> ItemView<'_> {
        // SAFETY: the node is one of this store's items and still linked, by 1.
        unsafe { self.item(node).view(before, flags, self.footprint(node)) }
    }

    /// The outcome for a string that was written.
    ///
    /// # Safety
    ///
    /// 1. As described for the trait.
    unsafe fn stored(&self, node: Ptr<Self::Links>) -> Outcome<'_> {
        // SAFETY: the node is one of this store's items and still linked, by 1.
        let (stored, footprint) = unsafe { (self.item(node), self.footprint(node)) };
        Outcome::Stored(stored.view_of_string(Before::default(), ItemFlags::NONE, footprint))
    }
}

/// Reports why there is no item, or asks for another attempt.
pub(crate) fn refusal(why: NoItem, report: Report<'_>) -> Attempt {
    match why {
        NoItem::TooLarge => Ok(report(Outcome::TooLarge)),
        NoItem::OutOfMemory => Ok(report(Outcome::OutOfMemory)),
        NoItem::NotYet(bytes) => Err(NeedsRoom(bytes)),
    }
}

/// Finds the item of the key for an operation on a string: the outcome if there is none.
#[inline]
fn find_string<K: ItemStore>(
    items: &mut K,
    any_kind: bool,
) -> Result<Ptr<K::Links>, Outcome<'static>> {
    let node = items.find().map_err(Outcome::Missing)?;
    // SAFETY: `find` has just returned the node (1).
    if any_kind || unsafe { items.item(node) }.is_string() {
        Ok(node)
    } else {
        Err(Outcome::WrongKind)
    }
}

// ---- reads

/// `get`, `gat`, `mg`.
#[inline]
pub(crate) fn get<K: ItemStore>(
    items: &mut K,
    get: Get,
    mut report: impl FnMut(Outcome<'_>) -> Flow,
) -> Attempt {
    let node = match find_string(items, get.any_kind) {
        Ok(node) => node,
        Err(Outcome::Missing(absence)) => return miss(items, &get, absence, &mut report),
        Err(outcome) => return Ok(report(outcome)),
    };
    // SAFETY: `find` returned the node, and nothing has unlinked it since (1).
    unsafe {
        let before = items.item(node).before(items.now());
        let flags = take_win_token(items, node, &get);
        if !get.quiet {
            items.hit(node);
        }
        Ok(items.show(node, before, flags, &mut report))
    }
}

/// Touches the item, and hands out its win token or reports its state.
///
/// # Safety
///
/// 1. As described for [`ItemStore`].
#[inline]
unsafe fn take_win_token<K: ItemStore>(items: &mut K, node: Ptr<K::Links>, get: &Get) -> ItemFlags {
    // SAFETY: the node is one of the store's items and still linked, by 1.
    let found = unsafe { items.item(node) };
    let (was, remaining) = (found.state(), found.deadline().remaining_ms(items.now()));
    // The token is for one client: of a stale item, or of one that expires soon.
    let claim = get.claim_stale && was & state::STALE != 0;
    let recache = get
        .recache_below_ms
        .is_some_and(|below| remaining.is_some_and(|remaining_ms| remaining_ms < below));
    let sent = was & state::WIN_SENT != 0;
    let won = (claim || recache) && !sent;
    if won || get.touch.is_some() {
        found.update_life(get.touch, if won { state::WIN_SENT } else { 0 });
    }
    if get.touch.is_some() {
        // SAFETY: the node is one of the store's items and still linked, by 1.
        unsafe { items.touched(node) };
    }
    win_flags(won, sent)
}

/// The flags that describe an item's win token to a reader.
#[inline]
pub(crate) fn win_flags(won: bool, sent: bool) -> ItemFlags {
    match (won, sent) {
        (true, _) => ItemFlags::WON,
        (false, true) => ItemFlags::WIN_SENT,
        (false, false) => ItemFlags::NONE,
    }
}

#[cold]
fn miss<K: ItemStore>(items: &mut K, get: &Get, absence: Absence, report: Report<'_>) -> Attempt {
    let Some(vivify) = get.vivify else {
        return Ok(report(Outcome::Missing(absence)));
    };
    let made = {
        let key = items.key().to_owned();
        let contents = Contents {
            key: &key,
            value: [b"", b""],
            client_flags: 0,
            deadline: vivify.deadline,
            state: if get.quiet {
                state::WIN_SENT
            } else {
                state::WIN_SENT | state::FETCHED // the client that created it has seen it
            },
            kind: ItemKind::String,
        };
        // SAFETY: `find` has found no item of the key, so there is no old one (1).
        unsafe { rewrite(items, &contents, None, vivify.new_cas) }
    };
    match made {
        Ok(node) => {
            // SAFETY: `rewrite` has just linked the node (1).
            let view = unsafe { items.view(node, Before::default(), ItemFlags::WON) };
            Ok(report(Outcome::Found(view)))
        }
        Err(why) => refusal(why, report),
    }
}

// ---- writes

/// Set, add, replace, cas. `fresh` is the new item, if it could be made.
///
/// # Safety
///
/// 1. `fresh` was made for this store and is not linked.
pub(crate) unsafe fn put<K: ItemStore>(
    items: &mut K,
    store: &Store<'_>,
    fresh: Result<Ptr<K::Links>, NoItem>,
    report: Report<'_>,
) -> Attempt {
    let fresh = match fresh {
        Ok(fresh) => fresh,
        Err(why) => return refuse(items, store, why, report),
    };
    let old = items.find().ok();
    // SAFETY: `old` is what `find` returned, and nothing has unlinked it since (1).
    if let Some(refusal) = unsafe { condition(items, store, old) } {
        // SAFETY: `fresh` was made for this store and is not linked, by 1.
        unsafe { items.discard(fresh) };
        return Ok(report(refusal));
    }
    if let (Some(old), Some(cas)) = (old, store.compare_cas) {
        // SAFETY: `old` is what `find` returned, and nothing has unlinked it since. `fresh` was
        // made for this store and is not linked, by 1.
        let (old, fresh) = unsafe { (items.item(old), items.item(fresh)) };
        if old.cas() != cas {
            // A store marked stale keeps the deadline, and the win token if it was sent.
            let kept = old.state() & state::WIN_SENT;
            fresh.set_life(old.deadline(), state::STALE | kept);
        }
    }
    // SAFETY: `old` is what `find` returned last, and nothing has unlinked it since. `fresh` was
    // made for this store and is not linked, by 1.
    match unsafe { items.publish(fresh, old, store.new_cas) } {
        // SAFETY: `publish` has just linked the node (1).
        Ok(()) => Ok(report(unsafe { items.stored(fresh) })),
        Err(why) => refuse(items, store, why, report),
    }
}

/// Set, add, replace, cas, for an engine that makes items where writers are excluded.
pub(crate) fn make_and_put<K: ItemStore>(
    items: &mut K,
    key: &[u8],
    store: &Store<'_>,
    report: Report<'_>,
) -> Attempt {
    let contents = Contents::new(key, store.value, store.client_flags, store.deadline);
    let old = items.find().ok();
    // Checked before room is made, so that a store that is refused evicts nothing.
    if items.may_create(&contents) {
        // SAFETY: `old` is what `find` returned, and nothing has unlinked it since (1).
        if let Some(refusal) = unsafe { condition(items, store, old) } {
            return Ok(report(refusal));
        }
    }
    let fresh = items.create(&contents);
    // SAFETY: `create` has just made the item for this store (1).
    unsafe { put(items, store, fresh, report) }
}

/// The reason why a store must not happen, if there is one.
///
/// # Safety
///
/// 1. As described for [`ItemStore`], of `old`.
unsafe fn condition<K: ItemStore>(
    items: &mut K,
    store: &Store<'_>,
    old: Option<Ptr<K::Links>>,
) -> Option<Outcome<'static>> {
    let Some(old) = old else {
        // A set that compares cas values requires an item, and so does a replace. An add makes one,
        // and `extend` decides about append and prepend.
        return match (store.compare_cas, store.mode) {
            (Some(_), StoreMode::Set | StoreMode::Overwrite) => {
                Some(Outcome::Missing(Absence::Unknown))
            }
            (_, StoreMode::Replace) => Some(Outcome::NotStored),
            _ => None,
        };
    };
    // An add that finds an item counts as a use of it, as in memcached.
    if store.mode == StoreMode::Add {
        // SAFETY: `old` is one of the store's items and still linked, by 1.
        unsafe { items.touch_on_add(old) };
        return Some(Outcome::NotStored);
    }
    let wanted = store.compare_cas?;
    // SAFETY: `old` is one of the store's items and still linked, by 1.
    let old = unsafe { items.item(old) };
    if !old.is_string() {
        return Some(Outcome::WrongKind);
    }
    let present = old.cas();
    let acceptable = wanted == present || (store.stale_if_older && wanted < present);
    (!acceptable).then_some(Outcome::Exists)
}

/// Handles a store that found no memory: removes the item that a `set` would have overwritten.
#[cold]
fn refuse<K: ItemStore>(
    items: &mut K,
    store: &Store<'_>,
    why: NoItem,
    report: Report<'_>,
) -> Attempt {
    // If there is no room yet, the store is tried again.
    let is_final = !matches!(why, NoItem::NotYet(_));
    if is_final
        && store.mode == StoreMode::Set
        && store.compare_cas.is_none()
        && let Ok(old) = items.find()
    {
        // SAFETY: `find` has just returned the node (1).
        unsafe { items.unlink(old) };
    }
    refusal(why, report)
}

/// Append and prepend.
pub(crate) fn extend<K: ItemStore>(
    items: &mut K,
    store: &Store<'_>,
    report: Report<'_>,
) -> Attempt {
    let old = items.find().ok();
    // SAFETY: `old` is what `find` returned, and nothing has unlinked it since (1).
    if let Some(refusal) = unsafe { condition(items, store, old) } {
        return Ok(report(refusal));
    }
    let made = match (old, store.vivify) {
        // SAFETY: `old` is what `find` returned, and nothing has unlinked it since (1).
        (Some(old), _) if !unsafe { items.item(old) }.is_string() => {
            return Ok(report(Outcome::WrongKind));
        }
        // SAFETY: `old` is what `find` returned last, and nothing has unlinked it since (1).
        (Some(old), _) => unsafe { extended(items, store, old) },
        (None, Some(deadline)) => {
            let key = items.key().to_owned();
            let contents = Contents::new(&key, store.value, store.client_flags, deadline);
            // SAFETY: `find` has found no item of the key, so there is no old one (1).
            unsafe { rewrite(items, &contents, None, store.new_cas) }
        }
        (None, None) => return Ok(report(Outcome::NotStored)),
    };
    match made {
        // SAFETY: `rewrite` has just linked the node (1).
        Ok(node) => Ok(report(unsafe { items.stored(node) })),
        Err(why) => refusal(why, report),
    }
}

/// # Safety
///
/// 1. As described for [`ItemStore`], of `old`.
unsafe fn extended<K: ItemStore>(
    items: &mut K,
    store: &Store<'_>,
    old: Ptr<K::Links>,
) -> Result<Ptr<K::Links>, NoItem> {
    // SAFETY: by 1 of this function, `old` is an item of the store. By 1 of `ItemStore`, it lives
    // until the store is dropped; the reference ends with this function.
    let item = unsafe { Item::from_raw(old) };
    let parts = [item.value(), store.value];
    let contents = Contents {
        key: item.key(),
        value: if store.mode == StoreMode::Append {
            parts
        } else {
            [parts[1], parts[0]]
        },
        client_flags: item.client_flags(),
        deadline: item.deadline(),
        state: 0, // a new item, as in memcached
        kind: ItemKind::String,
    };
    // SAFETY: `old` is the item of the key and still linked, by 1.
    unsafe { rewrite(items, &contents, Some(old), store.new_cas) }
}

/// Makes an item and links it in place of `old`.
///
/// # Safety
///
/// 1. As described for [`ItemStore`], of `old`, which the key has.
pub(crate) unsafe fn rewrite<K: ItemStore>(
    items: &mut K,
    contents: &Contents<'_>,
    old: Option<Ptr<K::Links>>,
    cas: Option<u64>,
) -> Result<Ptr<K::Links>, NoItem> {
    let node = items.create(contents)?;
    // SAFETY: `create` has just made the node for this store, and `old` is the item of the key, by
    // 1.
    unsafe { items.publish(node, old, cas) }?;
    Ok(node)
}

/// `delete`, `md`.
pub(crate) fn delete<K: ItemStore>(items: &mut K, delete: Delete, report: Report<'_>) -> Attempt {
    let keeps = delete.mark_stale || delete.drop_value;
    // Clients that know cas values see strings only.
    let node = match find_string(items, !keeps && delete.compare_cas.is_none()) {
        Ok(node) => node,
        Err(outcome) => return Ok(report(outcome)),
    };
    // SAFETY: `find` returned the node, and nothing has unlinked it since (1).
    let differs = |cas| cas != unsafe { items.item(node) }.cas();
    if delete.compare_cas.is_some_and(differs) {
        return Ok(report(Outcome::Exists));
    }
    // A plain delete; the others keep an item.
    if !keeps {
        // SAFETY: `find` returned the node, and nothing has unlinked it since (1).
        unsafe { items.unlink(node) };
        return Ok(report(Outcome::Deleted));
    }
    // SAFETY: `find` returned the node, and nothing has unlinked it since (1).
    match unsafe { keep_deleted(items, node, delete) } {
        // SAFETY: `keep_deleted` has just linked the node (1).
        Ok(node) => Ok(report(unsafe { items.stored(node) })),
        Err(why) => refusal(why, report),
    }
}

/// A delete that keeps the item: stale, without its value, or both. It makes a new item, so that
/// readers without a lock see state and cas value change together.
///
/// # Safety
///
/// 1. As described for [`ItemStore`].
unsafe fn keep_deleted<K: ItemStore>(
    items: &mut K,
    node: Ptr<K::Links>,
    delete: Delete,
) -> Result<Ptr<K::Links>, NoItem> {
    // SAFETY: the item is one of the store's and lives until the store is dropped, by 1; the
    // reference ends with this function.
    let old = unsafe { Item::from_raw(node) };
    let (mut deadline, mut state) = (old.deadline(), old.state());
    if delete.mark_stale {
        deadline = delete.touch.unwrap_or(deadline);
        state = (state | state::STALE) & !state::WIN_SENT;
    }
    let (value, client_flags) = if delete.drop_value {
        (&b""[..], 0)
    } else {
        (old.value(), old.client_flags())
    };
    let contents = Contents {
        key: old.key(),
        value: [value, b""],
        client_flags,
        deadline,
        state,
        kind: ItemKind::String,
    };
    // SAFETY: the node is the item of the key and still linked, by 1.
    unsafe { rewrite(items, &contents, Some(node), delete.new_cas) }
}

/// `incr`, `decr`, `ma`.
pub(crate) fn arith<K: ItemStore>(items: &mut K, arith: Arith, report: Report<'_>) -> Attempt {
    let node = match find_string(items, false) {
        Ok(node) => node,
        Err(Outcome::Missing(absence)) => return new_counter(items, arith, absence, report),
        Err(outcome) => return Ok(report(outcome)),
    };
    // SAFETY: the item was just found, and lives until the store is dropped (1 of `ItemStore`); the
    // reference ends with this function.
    let old = unsafe { Item::from_raw(node) };
    if old.value_len() == 0 {
        // Checked before the cas value, as in memcached.
        return Ok(report(Outcome::NonNumeric));
    }
    if arith.compare_cas.is_some_and(|cas| cas != old.cas()) {
        return Ok(report(Outcome::Exists));
    }
    let Some(value) = counter::parse(old.value()) else {
        return Ok(report(Outcome::NonNumeric));
    };
    let value = counter::apply(value, arith.delta, arith.decrement);
    let text = counter::Text::new(value, old.value_len());
    // As in memcached, a counter that outgrows its text becomes a new item.
    let grown = text.as_bytes().len() > old.value_len();
    let contents = Contents {
        key: old.key(),
        value: [text.as_bytes(), b""],
        client_flags: old.client_flags(),
        deadline: arith.touch.unwrap_or(old.deadline()),
        state: if grown { 0 } else { old.state() },
        kind: ItemKind::String,
    };
    // SAFETY: `find` returned the node, and nothing has unlinked it since. `rewrite` has just
    // linked the one that it made.
    unsafe {
        let made = rewrite(items, &contents, Some(node), arith.new_cas);
        counted(items, value, made, report)
    }
}

/// # Safety
///
/// 1. As described for [`ItemStore`], of the item that was made.
unsafe fn counted<K: ItemStore>(
    items: &K,
    value: u64,
    made: Result<Ptr<K::Links>, NoItem>,
    report: Report<'_>,
) -> Attempt {
    match made {
        Ok(node) => {
            // SAFETY: the node that was made is one of the store's items and still linked, by 1.
            let view = unsafe { items.view(node, Before::default(), ItemFlags::NONE) };
            Ok(report(Outcome::Counter { value, view }))
        }
        Err(why) => refusal(why, report),
    }
}

#[cold]
fn new_counter<K: ItemStore>(
    items: &mut K,
    arith: Arith,
    absence: Absence,
    report: Report<'_>,
) -> Attempt {
    let Some((value, deadline)) = arith.vivify else {
        return Ok(report(Outcome::Missing(absence)));
    };
    let text = counter::Text::new(value, 0);
    let key = items.key().to_owned();
    let contents = Contents::new(&key, text.as_bytes(), 0, deadline);
    // SAFETY: `find` has found no item of the key, so there is no old one. `rewrite` has just
    // linked the one that it made.
    unsafe {
        let made = rewrite(items, &contents, None, arith.new_cas);
        counted(items, value, made, report)
    }
}

// ---- other changes

/// An [`Update`].
pub(crate) fn update<K: ItemStore>(
    items: &mut K,
    key: &[u8],
    update: &mut dyn Update,
) -> Result<Updated, NeedsRoom> {
    let old = items.find().ok();
    // SAFETY: `old` is what `find` has just returned (1).
    if !update.takes_any_kind() && unsafe { is_other_kind(items, old) } {
        return Ok(Updated::WrongKind);
    }
    // SAFETY: `old` is what `find` returned last, and nothing has unlinked it since (1).
    unsafe {
        let change = update.update(view_read_item(items, old).as_ref());
        carry_out(items, key, old, change)
    }
}

/// An [`Edit`].
pub(crate) fn edit<K: ItemStore>(
    items: &mut K,
    key: &[u8],
    edit: &Edit<'_>,
    report: Report<'_>,
) -> Attempt {
    let old = items.find().ok();
    // SAFETY: `old` is what `find` has just returned (1).
    if !edit.any_kind && unsafe { is_other_kind(items, old) } {
        return Ok(report(Outcome::WrongKind));
    }
    let mut new = NewValue::take();
    let (decided, old_value) = {
        // SAFETY: `old` is what `find` returned, and nothing has unlinked it since (1).
        let view = unsafe { view_read_item(items, old) };
        let decided = (edit.decide)(edit, view.as_ref(), &mut new.0);
        (decided, view.map(|view| ptr::from_ref(view.value)))
    };
    let Decided { decision, number } = match decided {
        Ok(decided) => decided,
        Err(why) => return Ok(report(Outcome::Refused(why))),
    };
    let is_changed = decision.is_change(old.is_some());
    // SAFETY: `old` is what `find` returned last, and nothing has unlinked it since (1).
    let updated = unsafe { carry_out(items, key, old, decision.with(&new.0))? };
    Ok(report(match updated {
        Updated::TooLarge => Outcome::TooLarge,
        Updated::OutOfMemory => Outcome::OutOfMemory,
        Updated::WrongKind => Outcome::WrongKind,
        Updated::Done => Outcome::Edited {
            number,
            // SAFETY: `items`, which is borrowed here, keeps the item that was found alive and its
            // value unchanged until it is dropped, even if the item was replaced (guarantee 1).
            old: old_value.map(|value| unsafe { &*value }),
            is_changed,
        },
    }))
}

/// A thread's buffer for new values, which keeps its memory from one edit to the next.
struct NewValue(Vec<u8>);

impl NewValue {
    /// Most bytes that a thread keeps.
    const KEPT: usize = 4 << 10;

    thread_local! {
        static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }

    fn take() -> Self {
        Self(Self::SPARE.take())
    }
}

impl Drop for NewValue {
    fn drop(&mut self) {
        if self.0.capacity() <= Self::KEPT {
            self.0.clear();
            Self::SPARE.set(mem::take(&mut self.0));
        }
    }
}

/// Whether there is an item that is not a string.
///
/// # Safety
///
/// 1. As described for [`ItemStore`].
#[inline]
unsafe fn is_other_kind<K: ItemStore>(items: &K, old: Option<Ptr<K::Links>>) -> bool {
    // SAFETY: the node is one of the store's items and still linked, by 1.
    old.is_some_and(|node| !unsafe { items.item(node) }.is_string())
}

/// The item that was found, which counts as read.
///
/// # Safety
///
/// 1. As described for [`ItemStore`].
unsafe fn view_read_item<K: ItemStore>(
    items: &mut K,
    old: Option<Ptr<K::Links>>,
) -> Option<ItemView<'_>> {
    let node = old?;
    // SAFETY: the node is one of the store's items and still linked, by 1.
    unsafe {
        let before = items.item(node).before(items.now());
        items.hit(node);
        Some(items.view(node, before, ItemFlags::NONE))
    }
}

/// Changes the item of the key, which is `old`.
///
/// # Safety
///
/// 1. As described for [`ItemStore`]; `old` is what `find` returned last, if it found one.
unsafe fn carry_out<K: ItemStore>(
    items: &mut K,
    key: &[u8],
    old: Option<Ptr<K::Links>>,
    change: Change<'_>,
) -> Result<Updated, NeedsRoom> {
    match (change, old) {
        (Change::Keep, _) | (Change::Touch(_) | Change::Remove, None) => {}
        // SAFETY: the node is what `find` returned last, and it is still linked, by 1.
        (Change::Touch(deadline), Some(node)) => unsafe {
            items.item(node).update_life(Some(deadline), 0);
            items.touched(node);
        },
        // SAFETY: the node is what `find` returned last, and it is still linked, by 1.
        (Change::Remove, Some(node)) => unsafe { items.unlink(node) },
        (
            Change::Write {
                value,
                client_flags,
                deadline,
            },
            _,
        ) => {
            let contents = Contents::new(key, value, client_flags, deadline);
            // SAFETY: `old` is what `find` returned last, and it is still linked, by 1.
            match unsafe { rewrite(items, &contents, old, None) } {
                Ok(_) => {}
                Err(NoItem::TooLarge) => return Ok(Updated::TooLarge),
                Err(NoItem::OutOfMemory) => return Ok(Updated::OutOfMemory),
                Err(NoItem::NotYet(bytes)) => return Err(NeedsRoom(bytes)),
            }
        }
    }
    Ok(Updated::Done)
}
