//! What each verb means, for every engine whose sessions execute operations themselves.
//!
//! An engine finds, makes, links and unlinks items ([`Keeper`]); what an operation answers, which
//! conditions it checks and in which order, is here, once. Every function is written as *find, decide,
//! make, publish, report*, and runs while the writers of its key are excluded.

use crate::counter;
use crate::item::{Before, Contents, Item, Node, state};
use corewise_ops::{
    Absence, Arith, Delete, Flow, Get, ItemFlags, ItemView, Now, Outcome, Store, StoreMode,
};
use std::ptr::NonNull;

/// An item of an engine with such links.
pub(crate) type Ptr<L> = NonNull<Node<L>>;

/// Why an item could not be made or linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoItem {
    TooLarge,
    OutOfMemory,
    /// There may be room for so many bytes, but not while writers are excluded: nothing has been
    /// changed, begin again when they are there.
    NotYet(usize),
}

/// So many bytes must be had before the operation can be executed; it has changed and reported
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeedsRoom(pub(crate) usize);

/// What became of an attempt to execute an operation.
pub(crate) type Attempt = Result<Flow, NeedsRoom>;

/// Where outcomes are told.
pub(crate) type Report<'r> = &'r mut dyn FnMut(Outcome<'_>) -> Flow;

/// An engine while it executes one operation: one key, whose other writers are excluded.
///
/// Pointers that it gives out are good until it is dropped.
pub(crate) trait Keeper {
    /// The engine's links in its items.
    type Links;

    /// The operation's key.
    fn key(&self) -> &[u8];

    /// The time.
    fn now(&self) -> Now;

    /// The live item of the key. A dead one is unlinked on the way.
    fn find(&mut self) -> Result<Ptr<Self::Links>, Absence>;

    /// Makes an item that is not linked.
    fn create(&mut self, contents: &Contents<'_>) -> Result<Ptr<Self::Links>, NoItem>;

    /// Gives up an item that was not linked.
    fn discard(&mut self, fresh: Ptr<Self::Links>);

    /// Links `fresh` under the key, in the place of `old` if there is one, with this cas value or the
    /// next one; or gives it up for lack of room.
    fn publish(
        &mut self,
        fresh: Ptr<Self::Links>,
        old: Option<Ptr<Self::Links>>,
        cas: Option<u64>,
    ) -> Result<(), NoItem>;

    /// Takes the item out.
    fn unlink(&mut self, node: Ptr<Self::Links>);

    /// The item has been read.
    fn hit(&mut self, node: Ptr<Self::Links>);

    /// Tells of an item that was found. An engine that keeps it alive may do so later, when it excludes
    /// nobody any more.
    #[inline]
    fn show(
        &mut self,
        node: Ptr<Self::Links>,
        before: Before,
        flags: ItemFlags,
        report: &mut impl FnMut(Outcome<'_>) -> Flow,
    ) -> Flow {
        report(Outcome::Found(self.view(node, before, flags)))
    }

    /// The item has another deadline.
    fn touched(&mut self, _node: Ptr<Self::Links>) {}

    /// An `add` has met the item.
    fn met(&mut self, node: Ptr<Self::Links>);

    /// The item.
    fn item(&self, node: Ptr<Self::Links>) -> Item<'_, Self::Links>;

    /// Bytes that it takes.
    fn footprint(&self, node: Ptr<Self::Links>) -> usize;

    /// What a sink may see of it.
    fn view(&self, node: Ptr<Self::Links>, before: Before, flags: ItemFlags) -> ItemView<'_> {
        self.item(node).view(before, flags, self.footprint(node))
    }

    /// What is told of an item that was written.
    fn stored(&self, node: Ptr<Self::Links>) -> Outcome<'_> {
        Outcome::Stored(self.view(node, Before::default(), ItemFlags::NONE))
    }
}

/// Tells why there is no item, or asks for another attempt.
fn refusal(why: NoItem, report: Report<'_>) -> Attempt {
    match why {
        NoItem::TooLarge => Ok(report(Outcome::TooLarge)),
        NoItem::OutOfMemory => Ok(report(Outcome::OutOfMemory)),
        NoItem::NotYet(bytes) => Err(NeedsRoom(bytes)),
    }
}

// ---- reads

/// `get`, `gat`, `mg`.
#[inline]
pub(crate) fn get<K: Keeper>(
    keeper: &mut K,
    get: Get,
    mut report: impl FnMut(Outcome<'_>) -> Flow,
) -> Attempt {
    let node = match keeper.find() {
        Ok(node) => node,
        Err(absence) => return miss(keeper, &get, absence, &mut report),
    };
    let before = keeper.item(node).before(keeper.now());
    let flags = win(keeper, node, &get);
    if !get.quiet {
        keeper.hit(node);
    }
    Ok(keeper.show(node, before, flags, &mut report))
}

/// Touches the item and hands out or reports its win token.
#[inline]
fn win<K: Keeper>(keeper: &mut K, node: Ptr<K::Links>, get: &Get) -> ItemFlags {
    let found = keeper.item(node);
    let (was, remaining) = (found.state(), found.deadline().remaining_ms(keeper.now()));
    let claim = get.claim_stale && was & state::STALE != 0;
    let recache = get
        .recache_below_ms
        .is_some_and(|below| remaining.is_some_and(|r| r < below));
    let sent = was & state::WIN_SENT != 0;
    let won = (claim || recache) && !sent;
    if won || get.touch.is_some() {
        found.update_life(get.touch, if won { state::WIN_SENT } else { 0 });
    }
    if get.touch.is_some() {
        keeper.touched(node);
    }
    win_flags(won, sent)
}

/// What a reader is told of an item's win token.
#[inline]
pub(crate) fn win_flags(won: bool, sent: bool) -> ItemFlags {
    match (won, sent) {
        (true, _) => ItemFlags::WON,
        (false, true) => ItemFlags::WIN_SENT,
        (false, false) => ItemFlags::NONE,
    }
}

#[cold]
fn miss<K: Keeper>(keeper: &mut K, get: &Get, absence: Absence, report: Report<'_>) -> Attempt {
    let Some(vivify) = get.vivify else {
        return Ok(report(Outcome::Missing(absence)));
    };
    let made = {
        let key = keeper.key().to_owned();
        let contents = Contents {
            key: &key,
            value: [b"", b""],
            client_flags: 0,
            deadline: vivify.deadline,
            state: if get.quiet {
                state::WIN_SENT
            } else {
                state::WIN_SENT | state::FETCHED // its creator has seen it
            },
        };
        rewrite(keeper, &contents, None, vivify.new_cas)
    };
    match made {
        Ok(node) => {
            let view = keeper.view(node, Before::default(), ItemFlags::WON);
            Ok(report(Outcome::Found(view)))
        }
        Err(why) => refusal(why, report),
    }
}

// ---- writes

/// Set, add, replace, cas: `fresh` is the new item, if one could be made.
pub(crate) fn put<K: Keeper>(
    keeper: &mut K,
    store: &Store<'_>,
    fresh: Result<Ptr<K::Links>, NoItem>,
    report: Report<'_>,
) -> Attempt {
    let fresh = match fresh {
        Ok(fresh) => fresh,
        Err(why) => return refuse(keeper, store, why, report),
    };
    let old = keeper.find().ok();
    if let Some(refusal) = condition(keeper, store, old) {
        keeper.discard(fresh);
        return Ok(report(refusal));
    }
    if let (Some(old), Some(cas)) = (old, store.compare_cas)
        && keeper.item(old).cas() != cas
    {
        // Stored as stale: keeps the deadline, and the win token if sent.
        let old = keeper.item(old);
        let kept = old.state() & state::WIN_SENT;
        keeper
            .item(fresh)
            .set_life(old.deadline(), state::STALE | kept);
    }
    match keeper.publish(fresh, old, store.new_cas) {
        Ok(()) => Ok(report(keeper.stored(fresh))),
        Err(why) => refuse(keeper, store, why, report),
    }
}

/// Why a store must not happen, if so.
fn condition<K: Keeper>(
    keeper: &mut K,
    store: &Store<'_>,
    old: Option<Ptr<K::Links>>,
) -> Option<Outcome<'static>> {
    let Some(old) = old else {
        return match (store.compare_cas, store.mode) {
            (Some(_), StoreMode::Set) => Some(Outcome::Missing(Absence::Unknown)),
            (_, StoreMode::Replace) => Some(Outcome::NotStored),
            _ => None,
        };
    };
    if store.mode == StoreMode::Add {
        keeper.met(old);
        return Some(Outcome::NotStored);
    }
    let wanted = store.compare_cas?;
    let present = keeper.item(old).cas();
    let acceptable = wanted == present || (store.stale_if_older && wanted < present);
    (!acceptable).then_some(Outcome::Exists)
}

/// A store that found no memory. What a `set` meant to overwrite goes.
#[cold]
fn refuse<K: Keeper>(
    keeper: &mut K,
    store: &Store<'_>,
    why: NoItem,
    report: Report<'_>,
) -> Attempt {
    let final_word = !matches!(why, NoItem::NotYet(_));
    if final_word
        && store.mode == StoreMode::Set
        && store.compare_cas.is_none()
        && let Ok(old) = keeper.find()
    {
        keeper.unlink(old);
    }
    refusal(why, report)
}

/// Append and prepend.
pub(crate) fn extend<K: Keeper>(keeper: &mut K, store: &Store<'_>, report: Report<'_>) -> Attempt {
    let old = keeper.find().ok();
    if let Some(refusal) = condition(keeper, store, old) {
        return Ok(report(refusal));
    }
    let made = match (old, store.vivify) {
        (Some(old), _) => extended(keeper, store, old),
        (None, Some(deadline)) => {
            let key = keeper.key().to_owned();
            let contents = Contents {
                key: &key,
                value: [store.value, b""],
                client_flags: store.client_flags,
                deadline,
                state: 0,
            };
            rewrite(keeper, &contents, None, store.new_cas)
        }
        (None, None) => return Ok(report(Outcome::NotStored)),
    };
    match made {
        Ok(node) => Ok(report(keeper.stored(node))),
        Err(why) => refusal(why, report),
    }
}

fn extended<K: Keeper>(
    keeper: &mut K,
    store: &Store<'_>,
    old: Ptr<K::Links>,
) -> Result<Ptr<K::Links>, NoItem> {
    // SAFETY: `old` was found by this keeper, which keeps it until it is dropped; the reference ends
    // with this function.
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
        state: 0, // as in memcached: a new item
    };
    rewrite(keeper, &contents, Some(old), store.new_cas)
}

/// Makes an item and links it in the place of `old`.
fn rewrite<K: Keeper>(
    keeper: &mut K,
    contents: &Contents<'_>,
    old: Option<Ptr<K::Links>>,
    cas: Option<u64>,
) -> Result<Ptr<K::Links>, NoItem> {
    let node = keeper.create(contents)?;
    keeper.publish(node, old, cas)?;
    Ok(node)
}

/// `delete`, `md`.
pub(crate) fn delete<K: Keeper>(keeper: &mut K, delete: Delete, report: Report<'_>) -> Attempt {
    let node = match keeper.find() {
        Ok(node) => node,
        Err(absence) => return Ok(report(Outcome::Missing(absence))),
    };
    if delete
        .compare_cas
        .is_some_and(|cas| cas != keeper.item(node).cas())
    {
        return Ok(report(Outcome::Exists));
    }
    if !delete.mark_stale && !delete.drop_value {
        keeper.unlink(node);
        return Ok(report(Outcome::Deleted));
    }
    match keep_deleted(keeper, node, delete) {
        Ok(node) => Ok(report(keeper.stored(node))),
        Err(why) => refusal(why, report),
    }
}

/// A delete that keeps the item: stale, without its value, or both. It is made anew, so that readers
/// without a lock see its state and its cas value change together.
fn keep_deleted<K: Keeper>(
    keeper: &mut K,
    node: Ptr<K::Links>,
    delete: Delete,
) -> Result<Ptr<K::Links>, NoItem> {
    // SAFETY: as in `extended`.
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
    };
    rewrite(keeper, &contents, Some(node), delete.new_cas)
}

/// `incr`, `decr`, `ma`.
pub(crate) fn arith<K: Keeper>(keeper: &mut K, arith: Arith, report: Report<'_>) -> Attempt {
    let node = match keeper.find() {
        Ok(node) => node,
        Err(absence) => return new_counter(keeper, arith, absence, report),
    };
    // SAFETY: as in `extended`.
    let old = unsafe { Item::from_raw(node) };
    if old.value_len() == 0 {
        // Before the cas value is looked at, as in memcached.
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
    // As in memcached, a counter that outgrows its text is a new item.
    let grown = text.as_bytes().len() > old.value_len();
    let contents = Contents {
        key: old.key(),
        value: [text.as_bytes(), b""],
        client_flags: old.client_flags(),
        deadline: arith.touch.unwrap_or(old.deadline()),
        state: if grown { 0 } else { old.state() },
    };
    let made = rewrite(keeper, &contents, Some(node), arith.new_cas);
    counted(keeper, value, made, report)
}

fn counted<K: Keeper>(
    keeper: &K,
    value: u64,
    made: Result<Ptr<K::Links>, NoItem>,
    report: Report<'_>,
) -> Attempt {
    match made {
        Ok(node) => {
            let view = keeper.view(node, Before::default(), ItemFlags::NONE);
            Ok(report(Outcome::Counter { value, view }))
        }
        Err(why) => refusal(why, report),
    }
}

#[cold]
fn new_counter<K: Keeper>(
    keeper: &mut K,
    arith: Arith,
    absence: Absence,
    report: Report<'_>,
) -> Attempt {
    let Some((value, deadline)) = arith.vivify else {
        return Ok(report(Outcome::Missing(absence)));
    };
    let text = counter::Text::new(value, 0);
    let key = keeper.key().to_owned();
    let contents = Contents {
        key: &key,
        value: [text.as_bytes(), b""],
        client_flags: 0,
        deadline,
        state: 0,
    };
    let made = rewrite(keeper, &contents, None, arith.new_cas);
    counted(keeper, value, made, report)
}
