//! What operations on sorted sets do, for every engine.

use super::draft::{Changeable, Claimed, Draft, Slotted};
use super::flat::{self, FlatView};
use super::{Object, ObjectRef, Set, bytes, bytes_of, growth, object_of, set_of};
use crate::engines::verbs::{Attempt, ItemStore, NoItem, Ptr, Report, refusal, rewrite};
use crate::item::{Contents, Item};
use corewise_nr::sorted_set::{Bounds, Direction, Inserted, SortedSet, SortedSetError};
use corewise_ops::sorted::{
    Conditions, MemberRange, MemberScan, Members, Scores, SetSlot, SortedOp, SortedRead,
    SortedResult, SortedWrite, Taken,
};
use corewise_ops::{Deadline, ItemKind, Outcome};
use std::cell::Cell;
use std::collections::HashSet;

/// Executes an operation on the set of a key.
pub(crate) fn execute<K: ItemStore>(
    items: &mut K,
    key: &[u8],
    op: &SortedOp<'_>,
    report: Report<'_>,
) -> Attempt {
    if let SortedOp::Write(SortedWrite::EndCopy(slot)) = op {
        end_copy(items, slot);
        return Ok(report(outcome(Ok((SortedResult::Number(0), false)), false)));
    }
    if let SortedOp::Write(SortedWrite::Gather { slot, pairs }) = op {
        return gather(items, slot, pairs, report);
    }
    let old = items.find().ok();
    // SAFETY: `old` is what `find` returned, and nothing has unlinked it since (1).
    let kind = old.map(|node| unsafe { items.item(node) }.kind());
    let is_for_kind = match kind {
        None | Some(ItemKind::FlatSet | ItemKind::Set) => true,
        Some(ItemKind::String) => matches!(op, SortedOp::Write(SortedWrite::Put { .. })),
        // Of any object.
        Some(ItemKind::Filter) => matches!(
            op,
            SortedOp::Write(SortedWrite::Put { .. } | SortedWrite::Take { .. })
                | SortedOp::Read(SortedRead::Usage)
        ),
    };
    if !is_for_kind {
        return Ok(report(Outcome::WrongKind));
    }
    // SAFETY: as above, of all.
    unsafe {
        match op {
            SortedOp::Read(read) => self::read(items, old, read, report),
            SortedOp::Write(SortedWrite::Take { slot, taken }) => {
                take_to_slot(items, old, slot, *taken, report)
            }
            SortedOp::Write(SortedWrite::Put { slot, deadline }) => {
                put_from_slot(items, key, old, slot, *deadline, report)
            }
            SortedOp::Write(write) => match (old, kind) {
                (Some(node), Some(ItemKind::Set)) => change(items, node, write, report),
                _ => redraft(items, key, old, write, report),
            },
        }
    }
}

// ---- reads

/// The set of a key.
#[derive(Clone, Copy)]
enum View<'s> {
    Flat(&'s [u8]),
    Set(&'s SortedSet),
}

impl View<'_> {
    fn len(self) -> usize {
        match self {
            Self::Flat(bytes) => flat::entries(bytes).count(),
            Self::Set(set) => set.len(),
        }
    }

    fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            Self::Flat(bytes) => flat::score_and_rank(bytes, member).map(|(score, _)| score),
            Self::Set(set) => set.score(member),
        }
    }

    fn rank(self, member: &[u8], direction: Direction) -> Option<usize> {
        match self {
            Self::Flat(bytes) => {
                let (_, rank) = flat::score_and_rank(bytes, member)?;
                Some(match direction {
                    Direction::Ascending => rank,
                    Direction::Descending => self.len() - 1 - rank,
                })
            }
            Self::Set(set) => set.rank(member, direction),
        }
    }

    fn count(self, bounds: Bounds<'_>) -> usize {
        match self {
            Self::Flat(bytes) => {
                let view = FlatView::new(bytes);
                view.ranks(bounds, Direction::Ascending).len()
            }
            Self::Set(set) => set.count(bounds),
        }
    }
}

/// Members of a set within a range.
struct Shown<'s> {
    view: View<'s>,
    range: MemberRange<'s>,
}

impl Members for Shown<'_> {
    fn len(&self) -> usize {
        let MemberRange {
            bounds, direction, ..
        } = self.range;
        let within = match self.view {
            View::Flat(bytes) => FlatView::new(bytes).ranks(bounds, direction).len(),
            View::Set(set) => set.range(bounds, direction).len(),
        };
        within.saturating_sub(self.range.skip).min(self.range.most)
    }

    fn show(&self, show: &mut dyn FnMut(&[u8], f64) -> bool) {
        let MemberRange {
            bounds,
            direction,
            skip,
            most,
        } = self.range;
        match self.view {
            View::Set(set) => {
                let range = set.range(bounds, direction).skip(skip).take(most);
                let _ = { range }.try_for_each(|(member, score)| show(member, score).then_some(()));
            }
            View::Flat(bytes) => {
                let view = FlatView::new(bytes);
                let ranks = view.ranks(bounds, direction);
                let mut show_all = |ranks: &mut dyn Iterator<Item = usize>| {
                    let shown = ranks.skip(skip).take(most);
                    let _ = { shown }.try_for_each(|rank| {
                        let (member, score) = view.at(rank);
                        show(member, score).then_some(())
                    });
                };
                match direction {
                    Direction::Ascending => show_all(&mut { ranks }),
                    Direction::Descending => show_all(&mut ranks.rev()),
                }
            }
        }
    }
}

/// Members drawn at random.
struct Drawn<'s> {
    view: View<'s>,
    count: u64,
    are_distinct: bool,
    seed: u64,
}

impl Drawn<'_> {
    /// Calls `show` with drawn ranks, of which there are `len`, until it returns false.
    fn draw(&self, len: usize, show: &mut dyn FnMut(usize) -> bool) {
        let mut seed = self.seed;
        let mut below = |bound: usize| {
            // SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^= mixed >> 31;
            ((u128::from(mixed) * bound as u128) >> 64) as usize
        };
        if !self.are_distinct {
            for _ in 0..self.count {
                if !show(below(len)) {
                    return;
                }
            }
            return;
        }
        let count = Members::len(self);
        if count == len {
            let _ = (0..len).try_for_each(|rank| show(rank).then_some(()));
            return;
        }
        // Algorithm F2 of Bentley and Floyd, CACM 30 (9), 1987.
        let mut drawn = Ranks::new(count, len);
        for last in len - count..len {
            let draw = below(last + 1);
            let rank = if drawn.insert(draw) { draw } else { last };
            drawn.insert(rank);
            if !show(rank) {
                return;
            }
        }
    }
}

/// Different ranks: a hash set of a few, or a bit for each rank there is, whichever takes less.
enum Ranks {
    Few(HashSet<usize>),
    Many(Vec<u64>),
}

impl Ranks {
    /// The bits that a hash set takes for a number, at most.
    const HASHED_BITS: usize = 192;

    /// No ranks, with room for `count` of `len`.
    fn new(count: usize, len: usize) -> Self {
        if count < len / Self::HASHED_BITS {
            Self::Few(HashSet::new())
        } else {
            Self::Many(vec![0; len.div_ceil(64)])
        }
    }

    /// Adds a rank; returns whether it was not there.
    fn insert(&mut self, rank: usize) -> bool {
        match self {
            Self::Few(ranks) => ranks.insert(rank),
            Self::Many(words) => {
                let (word, bit) = (&mut words[rank / 64], 1 << (rank % 64));
                let is_new = *word & bit == 0;
                *word |= bit;
                is_new
            }
        }
    }
}

impl Members for Drawn<'_> {
    fn len(&self) -> usize {
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        match self.view.len() {
            0 => 0,
            len if self.are_distinct => count.min(len),
            _ => count,
        }
    }

    fn show(&self, show: &mut dyn FnMut(&[u8], f64) -> bool) {
        let len = self.view.len();
        if len == 0 {
            return;
        }
        match self.view {
            View::Flat(bytes) => {
                let view = FlatView::new(bytes);
                self.draw(len, &mut |rank| {
                    let (member, score) = view.at(rank);
                    show(member, score)
                });
            }
            View::Set(set) => self.draw(len, &mut |rank| {
                let found = set.at(rank, Direction::Ascending);
                found.is_some_and(|(member, score)| show(member, score))
            }),
        }
    }
}

/// A set that is scanned. A flat one is shown in one step.
struct Scanned<'s>(View<'s>);

impl MemberScan for Scanned<'_> {
    fn step(&self, cursor: u64, count: usize, show: &mut dyn FnMut(&[u8], f64)) -> u64 {
        match self.0 {
            View::Set(set) => set.scan(cursor, count, show),
            View::Flat(bytes) => {
                flat::entries(bytes).for_each(|(score, member)| show(member, score));
                0
            }
        }
    }

    fn is_flat(&self) -> bool {
        matches!(self.0, View::Flat(_))
    }
}

/// The scores of some members of a set.
struct ScoresOf<'s> {
    view: View<'s>,
    members: &'s [&'s [u8]],
}

impl Scores for ScoresOf<'_> {
    fn len(&self) -> usize {
        self.members.len()
    }

    fn show(&self, show: &mut dyn FnMut(Option<f64>)) {
        if let View::Set(set) = self.view {
            set.prefetch(self.members.iter().copied());
        }
        for member in self.members {
            show(self.view.score(member));
        }
    }
}

/// # Safety
///
/// 1. As described for [`ItemStore`], of the node, which is a set. The view ends before the store
///    is dropped, and before the set is changed.
unsafe fn view_of<'s, K: ItemStore>(node: Ptr<K::Links>) -> View<'s>
where
    K::Links: 's,
{
    // SAFETY: by 1 the node is an item of the store. By 1 of `ItemStore`, it lives until the store
    // is dropped; the reference ends before.
    let item = unsafe { Item::from_raw(node) };
    match item.kind() {
        // SAFETY: the item is linked, so it owns its set (1). The store excludes all others that
        // may follow the pointer, until it is dropped (2).
        ItemKind::Set => View::Set(unsafe { set_of(item) }),
        ItemKind::FlatSet => View::Flat(item.value()),
        _ => View::Flat(b""),
    }
}

/// # Safety
///
/// 1. As described for [`ItemStore`], of `old`, which is a set, or a filter if its usage is read.
unsafe fn read<K: ItemStore>(
    items: &mut K,
    old: Option<Ptr<K::Links>>,
    read: &SortedRead<'_>,
    report: Report<'_>,
) -> Attempt {
    let mut footprint = 0;
    if let Some(node) = old {
        // SAFETY: by 1 (1, all).
        unsafe {
            footprint = items.footprint(node);
            let item = items.item(node);
            if item.kind().owns_object() {
                // The item is linked, so it owns its object (1). The store excludes all others
                // that may follow the pointer; the reference ends here (2).
                footprint += bytes_of(item);
            }
            if !matches!(read, SortedRead::Usage) {
                items.hit(node);
            }
        }
    }
    if let Some(node) = old {
        // SAFETY: by 1.
        unsafe { free_detached(items, node) };
    }
    // SAFETY: by 1, and it ends before the store is dropped.
    let view = old.map_or(View::Flat(b""), |node| unsafe { view_of::<K>(node) });
    let (shown, scores, drawn, scanned);
    let number = |number: usize| SortedResult::Number(number as u64);
    let result = match *read {
        SortedRead::Len => number(view.len()),
        SortedRead::Usage => number(footprint),
        SortedRead::Score(member) => SortedResult::Score(view.score(member)),
        SortedRead::Scores(members) => {
            scores = ScoresOf { view, members };
            SortedResult::Scores(&scores)
        }
        SortedRead::Rank(member, direction) => {
            SortedResult::Rank(view.rank(member, direction).map(|rank| rank as u64))
        }
        SortedRead::Count(bounds) => number(view.count(bounds)),
        SortedRead::Range(range) => {
            shown = Shown { view, range };
            SortedResult::Members(&shown)
        }
        SortedRead::Random {
            count,
            are_distinct,
            seed,
        } => {
            drawn = Drawn {
                view,
                count,
                are_distinct,
                seed,
            };
            SortedResult::Members(&drawn)
        }
        SortedRead::Scan => {
            scanned = Scanned(view);
            SortedResult::Scan(&scanned)
        }
    };
    Ok(report(Outcome::Sorted {
        result,
        is_found: old.is_some(),
        is_changed: false,
    }))
}

/// Frees some members of a set that a long range had. Others are freed by writes, and by
/// maintenance.
///
/// # Safety
///
/// 1. As described for [`ItemStore`], of the node, which is a set.
unsafe fn free_detached<K: ItemStore>(items: &mut K, node: Ptr<K::Links>) {
    // SAFETY: as in `view_of`, by 1.
    let item = unsafe { Item::from_raw(node) };
    if item.kind() != ItemKind::Set {
        return;
    }
    // SAFETY: as in `view_of` (1 and 2). The reference ends here.
    let set = unsafe { set_of(item) };
    if set.has_detached() {
        let before = bytes(set);
        set.free_detached(FREED_BY_READ);
        items.charge_set(before, bytes(set));
    }
}

/// Members that a read frees: they take about as long as some look-ups.
const FREED_BY_READ: usize = 16;

// ---- writes

/// The members that a write may add, and their bytes.
fn most_added(write: &SortedWrite<'_>) -> (usize, usize) {
    match write {
        SortedWrite::Add { pairs, .. } => {
            let bytes = pairs.iter().map(|(_, member)| member.len()).sum();
            (pairs.len(), bytes)
        }
        SortedWrite::Increment { member, .. } => (1, member.len()),
        SortedWrite::Remove(_)
        | SortedWrite::RemoveRange(_)
        | SortedWrite::Pop { .. }
        | SortedWrite::Take { .. }
        | SortedWrite::Put { .. }
        | SortedWrite::Gather { .. }
        | SortedWrite::EndCopy(_) => (0, 0),
    }
}

/// The members that a write adds, and their bytes; `None` if it changes nothing. Members that a
/// write names several times count as often.
fn added(view: View<'_>, write: &SortedWrite<'_>) -> Option<(usize, usize)> {
    let (mut count, mut bytes, mut changes) = (0, 0, false);
    let mut look = |member: &[u8], conditions: Conditions, new: &dyn Fn(f64) -> f64| match view
        .score(member)
    {
        Some(old) => changes |= conditions.allow(old, new(old)) && new(old) != old,
        None if conditions.allow_adding() => {
            (count, bytes, changes) = (count + 1, bytes + member.len(), true);
        }
        None => {}
    };
    match *write {
        SortedWrite::Add { pairs, conditions } => {
            for (score, member) in pairs {
                look(member, conditions, &|_| *score);
            }
        }
        SortedWrite::Increment {
            delta,
            member,
            conditions,
        } => look(member, conditions, &|old| old + delta),
        SortedWrite::Remove(_)
        | SortedWrite::RemoveRange(_)
        | SortedWrite::Pop { .. }
        | SortedWrite::Take { .. }
        | SortedWrite::Put { .. }
        | SortedWrite::Gather { .. }
        | SortedWrite::EndCopy(_) => {}
    }
    changes.then_some((count, bytes))
}

/// Makes room for a write to a set, unless it stays flat. Evicts nothing for members that are not
/// added.
fn make_room_to_add<K: ItemStore>(
    items: &mut K,
    view: View<'_>,
    write: &SortedWrite<'_>,
) -> Result<(), NoItem> {
    let (before, moved) = match view {
        View::Set(set) => (bytes(set), 0),
        // Its members are added to a new set.
        View::Flat(flat) => (0, flat.len()),
    };
    let growth = |(count, bytes): (usize, usize)| growth(before, count, moved + bytes);
    let most = most_added(write);
    let stays_flat = matches!(view, View::Flat(_)) && moved + most.1 <= flat::MOST_BYTES;
    if most.0 == 0 || stays_flat || items.has_set_room(before, growth(most)) {
        return Ok(());
    }
    match (added(view, write), view) {
        (None, _) | (Some((0, _)), View::Flat(_)) => Ok(()),
        (Some(added), _) => items.make_set_room(before, growth(added)),
    }
}

/// Changes a set: the result, and whether anything was changed.
fn apply(
    set: &mut impl Changeable,
    write: &SortedWrite<'_>,
) -> Result<(SortedResult<'static>, bool), SortedSetError> {
    match *write {
        SortedWrite::Add { pairs, conditions } => {
            let (mut added, mut changed) = (0, 0);
            for (score, member) in pairs {
                match set.insert(member, *score, conditions)? {
                    Inserted::Added => added += 1,
                    Inserted::Changed { .. } => changed += 1,
                    Inserted::Unchanged | Inserted::Refused => {}
                }
            }
            let result = SortedResult::Inserted { added, changed };
            Ok((result, added + changed > 0))
        }
        SortedWrite::Increment {
            delta,
            member,
            conditions,
        } => match set.increment(member, delta + 0.0, conditions) {
            Ok(None) => Ok((SortedResult::Score(None), false)),
            // With the sign of a zero, which the set has without one.
            Ok(Some((None, _))) => Ok((SortedResult::Score(Some(delta)), true)),
            Ok(Some((old, score))) => Ok((SortedResult::Score(Some(score)), old != Some(score))),
            Err(SortedSetError::NotANumber) => Ok((SortedResult::NotANumber, false)),
            Err(SortedSetError::Full) => Err(SortedSetError::Full),
        },
        SortedWrite::Remove(members) => {
            let removed = members.iter().filter(|member| set.remove(member)).count();
            Ok((SortedResult::Number(removed as u64), removed > 0))
        }
        SortedWrite::RemoveRange(bounds) => {
            let removed = set.remove_range(bounds);
            Ok((SortedResult::Number(removed as u64), removed > 0))
        }
        SortedWrite::Pop { direction, most } => {
            let bounds = first_of(direction, most);
            let removed = bounds.map_or(0, |bounds| set.remove_range(bounds));
            Ok((SortedResult::Number(removed as u64), removed > 0))
        }
        SortedWrite::Take { .. }
        | SortedWrite::Put { .. }
        | SortedWrite::Gather { .. }
        | SortedWrite::EndCopy(_) => Ok((SortedResult::Number(0), false)),
    }
}

/// The ranks, counted from the lowest score, of the first `count` members of an order.
fn first_of(direction: Direction, count: usize) -> Option<Bounds<'static>> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    (count > 0).then_some(match direction {
        Direction::Ascending => Bounds::Rank(0, count - 1),
        Direction::Descending => Bounds::Rank(-count, -1),
    })
}

/// Members that are popped.
struct Popped<'s> {
    shown: Shown<'s>,
    /// There was no room for all of them.
    is_cut: Cell<bool>,
}

impl<'s> Popped<'s> {
    fn new(view: View<'s>, direction: Direction, most: usize) -> Self {
        let range = MemberRange {
            bounds: Bounds::ALL,
            direction,
            skip: 0,
            most,
        };
        Self {
            shown: Shown { view, range },
            is_cut: Cell::new(false),
        }
    }
}

impl Members for Popped<'_> {
    fn len(&self) -> usize {
        self.shown.len()
    }

    fn show(&self, show: &mut dyn FnMut(&[u8], f64) -> bool) {
        self.shown.show(&mut |member, score| {
            let has_room = show(member, score);
            self.is_cut.set(!has_room);
            has_room
        });
    }
}

/// Changes a set in place.
///
/// # Safety
///
/// 1. As described for [`ItemStore`]; the item is of the kind `Set`.
unsafe fn change<K: ItemStore>(
    items: &mut K,
    node: Ptr<K::Links>,
    write: &SortedWrite<'_>,
    report: Report<'_>,
) -> Attempt {
    // SAFETY: as in `read`, by 1.
    let item = unsafe { Item::from_raw(node) };
    // SAFETY: the item is linked, so it owns its set (1). The store excludes all others that may
    // follow the pointer, and `make_set_room`, `hit` and `charge_set` do not; the reference ends
    // before `replace_set` and `unlink` (2).
    let set = unsafe { set_of(item) };
    let before = bytes(set);
    // Before others are evicted for it.
    // SAFETY: the node is one of the store's items and still linked, by 1.
    unsafe { items.hit(node) };
    if let Err(why) = make_room_to_add(items, View::Set(set), write) {
        return refusal(why, report);
    }
    let mut flow = None;
    if let SortedWrite::Pop { direction, most } = *write {
        // Shown before they are removed, without a copy.
        let popped = Popped::new(View::Set(set), direction, most);
        let applied = Ok((SortedResult::Members(&popped), popped.len() > 0));
        let after = report(outcome(applied, true));
        if popped.is_cut.get() {
            return Ok(after);
        }
        flow = Some(after);
    }
    let (removed, len) = (removed_bounds(write), set.len());
    let count = removed.map_or(0, |bounds| set.count(bounds));
    if let Some(bounds) = removed
        && count >= MANY_REMOVED
        && len - count <= FEW_KEPT
        && count < len
    {
        let kept = set.without(bounds).boxed();
        // SAFETY: the node is one of the store's items and still linked, by 1.
        if unsafe { replace_set(items, node, kept) } {
            let applied = Ok((SortedResult::Number(count as u64), true));
            return Ok(flow.unwrap_or_else(|| report(outcome(applied, true))));
        }
    }
    // SAFETY: as above: where the set was not replaced, the item is linked and owns it.
    let set = unsafe { set_of(item) };
    let (is_empty, applied) = if removed.is_some() && count == len {
        // The set is freed in steps then.
        (true, Ok((SortedResult::Number(len as u64), true)))
    } else {
        let had_detached = set.has_detached();
        let applied = apply(set, write);
        items.charge_set(before, bytes(set));
        if set.has_detached() && !had_detached {
            items.note_unsettled_set();
        }
        (set.is_empty(), applied)
    };
    // SAFETY: the node is one of the store's items and still linked, by 1.
    unsafe {
        if is_empty {
            items.unlink(node);
        } else if !matches!(applied, Ok((_, false))) {
            // What watches compare, where the item stays the same.
            item.set_cas(items.next_cas());
        }
    }
    Ok(flow.unwrap_or_else(|| report(outcome(applied, true))))
}

/// A write that removes at least this number of members moves the others to another set, if they
/// are few: maintenance frees the old one, in steps. Otherwise the set frees the removed members,
/// also in steps, when it is used and by maintenance.
const MANY_REMOVED: usize = 4 << 10;
const FEW_KEPT: usize = 1 << 10;

/// The members that a write removes, if they are a range.
fn removed_bounds<'w>(write: &SortedWrite<'w>) -> Option<Bounds<'w>> {
    match *write {
        SortedWrite::RemoveRange(bounds) => Some(bounds),
        SortedWrite::Pop { direction, most } => first_of(direction, most),
        _ => None,
    }
}

/// Replaces the item of a set by one with another set, if there is room for both as things are.
/// Otherwise the item stays: a store passes over it when it evicts, and so do other sessions, which
/// take no set while the store has its stripe.
///
/// # Safety
///
/// 1. As described for [`ItemStore`], of the node, which is a set. No reference to the set is used
///    afterwards.
unsafe fn replace_set<K: ItemStore>(items: &mut K, node: Ptr<K::Links>, set: Set) -> bool {
    if !items.has_set_room(0, bytes(&set)) {
        return false;
    }
    // SAFETY: as in `read`, by 1.
    let item = unsafe { Item::from_raw(node) };
    let place = Place {
        key: item.key(),
        client_flags: item.client_flags(),
        deadline: item.deadline(),
    };
    // SAFETY: the node is the item of its key and still linked, by 1.
    unsafe { store_object(items, &place, Some(node), Object::Set(set)) }.is_ok()
}

fn outcome<'r>(
    applied: Result<(SortedResult<'r>, bool), SortedSetError>,
    is_found: bool,
) -> Outcome<'r> {
    match applied {
        Ok((result, is_changed)) => Outcome::Sorted {
            result,
            is_found,
            is_changed,
        },
        Err(SortedSetError::Full | SortedSetError::NotANumber) => Outcome::OutOfMemory,
    }
}

/// Replaces a flat set, or none, by a changed copy.
///
/// # Safety
///
/// 1. As described for [`ItemStore`], of `old`, which is a flat set.
unsafe fn redraft<K: ItemStore>(
    items: &mut K,
    key: &[u8],
    old: Option<Ptr<K::Links>>,
    write: &SortedWrite<'_>,
    report: Report<'_>,
) -> Attempt {
    let (mut present, mut client_flags, mut deadline) = (&b""[..], 0, Deadline::NEVER);
    if let Some(node) = old {
        // SAFETY: as in `read`, by 1.
        let item = unsafe { Item::from_raw(node) };
        (present, client_flags, deadline) = (item.value(), item.client_flags(), item.deadline());
    }
    if let Err(why) = make_room_to_add(items, View::Flat(present), write) {
        return refusal(why, report);
    }
    let mut draft = Draft::Flat(present.to_vec(), items.object_memory().sets().clone());
    let applied = apply(&mut draft, write);
    if matches!(applied, Ok((_, true))) {
        if draft.is_empty() {
            if let Some(node) = old {
                // SAFETY: the node is one of the store's items and still linked, by 1.
                unsafe { items.unlink(node) };
            }
        } else {
            let place = Place {
                key,
                client_flags,
                deadline,
            };
            // SAFETY: `old` is what `find` returned last, and it is still linked, by 1.
            if let Err(why) = unsafe { store(items, &place, old, draft) } {
                return refusal(why, report);
            }
        }
    }
    if let SortedWrite::Pop { direction, most } = *write {
        // The old item is there until the store is dropped.
        let popped = Popped::new(View::Flat(present), direction, most);
        let applied = applied.map(|(_, changes)| (SortedResult::Members(&popped), changes));
        return Ok(report(outcome(applied, old.is_some())));
    }
    Ok(report(outcome(applied, old.is_some())))
}

/// What an item has beside its object.
pub(super) struct Place<'p> {
    pub(super) key: &'p [u8],
    pub(super) client_flags: u32,
    pub(super) deadline: Deadline,
}

/// Makes an item of a draft and links it in place of `old`.
///
/// # Safety
///
/// 1. As described for [`ItemStore`], of `old`, which the key has.
unsafe fn store<K: ItemStore>(
    items: &mut K,
    place: &Place<'_>,
    old: Option<Ptr<K::Links>>,
    draft: Draft,
) -> Result<(), NoItem> {
    match draft {
        Draft::Flat(flat, _) => {
            // SAFETY: `old` is the item of the key and still linked, by 1.
            unsafe { store_flat(items, place, old, flat) }.map_err(|(_, why)| why)
        }
        Draft::Set(set) => {
            // SAFETY: `old` is the item of the key and still linked, by 1.
            unsafe { store_copy(items, place, old, Object::Set(set), false) }
                .map_err(|(_, why)| why)
        }
    }
}

/// As [`store`], of a flat set; gives it back if that fails.
///
/// # Safety
///
/// 1. As described for [`ItemStore`], of `old`, which the key has.
unsafe fn store_flat<K: ItemStore>(
    items: &mut K,
    place: &Place<'_>,
    old: Option<Ptr<K::Links>>,
    flat: Vec<u8>,
) -> Result<(), (Vec<u8>, NoItem)> {
    let mut contents = Contents::new(place.key, &flat, place.client_flags, place.deadline);
    contents.kind = ItemKind::FlatSet;
    // SAFETY: `old` is the item of the key and still linked, by 1.
    match unsafe { rewrite(items, &contents, old, None) } {
        Ok(_) => Ok(()),
        Err(why) => Err((flat, why)),
    }
}

/// As [`store_flat`], of an object, which `has_room` if its bytes are counted already.
///
/// # Safety
///
/// 1. As described for [`ItemStore`], of `old`, which the key has.
unsafe fn store_copy<K: ItemStore>(
    items: &mut K,
    place: &Place<'_>,
    old: Option<Ptr<K::Links>>,
    object: Object,
    has_room: bool,
) -> Result<(), (Object, NoItem)> {
    if !has_room && let Err(why) = items.make_set_room(0, object.bytes()) {
        return Err((object, why));
    }
    // SAFETY: `old` is the item of the key and still linked, by 1.
    unsafe { store_object(items, place, old, object) }
}

/// As [`store_copy`], of an object that has room.
///
/// # Safety
///
/// 1. As described for [`ItemStore`], of `old`, which the key has.
pub(super) unsafe fn store_object<K: ItemStore>(
    items: &mut K,
    place: &Place<'_>,
    old: Option<Ptr<K::Links>>,
    object: Object,
) -> Result<(), (Object, NoItem)> {
    let (bytes, has_detached) = (object.bytes(), object.has_detached());
    let pointer = object.into_pointer();
    let (value, kind) = pointer.value();
    let mut contents = Contents::new(place.key, &value, place.client_flags, place.deadline);
    contents.kind = kind;
    // SAFETY: `old` is the item of the key and still linked, by 1.
    match unsafe { rewrite(items, &contents, old, None) } {
        Ok(_) => {
            items.charge_set(0, bytes);
            if has_detached {
                items.note_unsettled_set();
            }
            Ok(())
        }
        // SAFETY: no item that points to the object was linked (1).
        Err(why) => Err((unsafe { pointer.object() }, why)),
    }
}

/// # Safety
///
/// 1. As described for [`ItemStore`], of `old`, which is a set or a filter.
unsafe fn take_to_slot<K: ItemStore>(
    items: &mut K,
    old: Option<Ptr<K::Links>>,
    slot: &SetSlot,
    taken: Taken,
    report: Report<'_>,
) -> Attempt {
    let mut len = 0;
    if let Some(node) = old {
        // SAFETY: as in `read`, by 1.
        let item = unsafe { Item::from_raw(node) };
        // SAFETY: the node is one of the store's items and still linked, by 1. A set that is about
        // to move is not to be evicted for its new item.
        unsafe { items.hit(node) };
        if item.kind().owns_object() {
            // SAFETY: as in `change` (1 and 2).
            let object = unsafe { object_of(item) };
            len = object.len();
            // A set that another is to move to is not copied.
            if len > 0 || taken != Taken::Copy {
                match take_object(items, object, slot, taken) {
                    Ok(slotted) => slot.fill(Box::new(slotted)),
                    Err(why) => return refusal(why, report),
                }
            }
        } else {
            len = flat::entries(item.value()).count();
            if taken != Taken::Set {
                slot.fill(Box::new(Slotted::Flat(item.value().to_vec())));
            }
        }
        if taken == Taken::Set {
            // SAFETY: the node is one of the store's items and still linked, by 1.
            unsafe { items.unlink(node) };
        }
    }
    Ok(report(Outcome::Sorted {
        result: SortedResult::Number(len as u64),
        is_found: old.is_some(),
        is_changed: old.is_some() && taken == Taken::Set,
    }))
}

/// What a slot gets of the object of an item.
fn take_object<K: ItemStore>(
    items: &mut K,
    mut object: ObjectRef<'_>,
    slot: &SetSlot,
    taken: Taken,
) -> Result<Slotted, NoItem> {
    let before = object.bytes();
    match taken {
        Taken::Copy => {
            items.make_set_room(0, before)?;
            let copy = object.copy().ok_or(NoItem::OutOfMemory)?;
            recount(items, 0, before);
            Ok(Slotted::Copy {
                object: Some(copy),
                bytes: before,
                account: items.set_account(),
            })
        }
        Taken::Claim => Ok(Slotted::Claim(Claimed {
            kind: object.kind(),
            bytes: before,
            account: items.set_account(),
        })),
        Taken::Set => {
            let contents = object.take_contents(items.object_memory());
            let contents = contents.ok_or(NoItem::OutOfMemory)?;
            let after = object.bytes();
            // In one account, the bytes stay counted while the set is in the slot.
            let carried = match emptied(slot) {
                Some(Slotted::Ready {
                    is_same_account: true,
                }) => before - after,
                _ => {
                    items.charge_set(before, after);
                    0
                }
            };
            Ok(Slotted::Moved {
                object: contents,
                carried,
            })
        }
    }
}

/// Counts bytes of sets that no item has.
fn recount<K: ItemStore>(items: &mut K, before: usize, after: usize) {
    // None at all would stand for a new set.
    let empty = size_of::<SortedSet>();
    items.charge_set(empty + before, empty + after);
}

/// Empties a slot, and counts the bytes of a copy that was taken from this key no longer.
fn end_copy<K: ItemStore>(items: &mut K, slot: &SetSlot) {
    if let Some(Slotted::Copy { bytes, account, .. }) = emptied(slot) {
        debug_assert_eq!(account, items.set_account(), "another key has counted it");
        recount(items, bytes, 0);
    }
}

/// Adds members to the set in a slot.
fn gather<K: ItemStore>(
    items: &mut K,
    slot: &SetSlot,
    pairs: &[(f64, &[u8])],
    report: Report<'_>,
) -> Attempt {
    let (mut draft, before) = match emptied(slot) {
        Some(Slotted::Copy {
            object: Some(Object::Set(set)),
            bytes,
            account,
        }) => {
            debug_assert_eq!(account, items.set_account(), "another key has counted it");
            (Draft::Set(set), bytes)
        }
        Some(Slotted::Flat(flat)) => (Draft::Flat(flat, items.object_memory().sets().clone()), 0),
        other => {
            debug_assert!(other.is_none(), "a set that is moved");
            (
                Draft::Flat(Vec::new(), items.object_memory().sets().clone()),
                0,
            )
        }
    };
    let added = pairs.iter().map(|(_, member)| member.len()).sum::<usize>();
    let (flat, stays_flat) = match &draft {
        Draft::Flat(flat, _) => {
            let members = pairs.iter().map(|(_, member)| *member);
            (flat.len(), flat::has_room(flat, members))
        }
        Draft::Set(_) => (0, false),
    };
    let room = match stays_flat {
        true => Ok(()),
        false => items.make_set_room(before, growth(before, pairs.len(), flat + added)),
    };
    let mut gathered = Ok(());
    if room.is_ok() {
        let mut insert = |(score, member): &(f64, &[u8])| draft.set_score(member, *score);
        gathered = pairs.iter().try_for_each(&mut insert);
    }
    let len = match draft {
        Draft::Flat(flat, _) => {
            let len = flat::entries(&flat).count();
            slot.fill(Box::new(Slotted::Flat(flat)));
            len
        }
        Draft::Set(set) => {
            let (len, bytes) = (set.len(), bytes(&set));
            recount(items, before, bytes);
            slot.fill(Box::new(Slotted::Copy {
                object: Some(Object::Set(set)),
                bytes,
                account: items.set_account(),
            }));
            len
        }
    };
    if let Err(why) = room {
        return refusal(why, report);
    }
    let result = SortedResult::Number(len as u64);
    Ok(report(outcome(gathered.map(|()| (result, false)), false)))
}

/// What a slot had.
fn emptied(slot: &SetSlot) -> Option<Slotted> {
    let slotted = slot.take()?.downcast::<Slotted>().ok()?;
    Some(*slotted)
}

/// # Safety
///
/// 1. As described for [`ItemStore`], of `old`.
unsafe fn put_from_slot<K: ItemStore>(
    items: &mut K,
    key: &[u8],
    old: Option<Ptr<K::Links>>,
    slot: &SetSlot,
    deadline: Deadline,
    report: Report<'_>,
) -> Attempt {
    let place = Place {
        key,
        client_flags: 0,
        deadline,
    };
    let (mut len, mut is_found, mut is_changed) = (0, old.is_some(), true);
    match emptied(slot) {
        Some(Slotted::Flat(flat)) => {
            len = flat::entries(&flat).count();
            // SAFETY: `old` is what `find` returned last, and it is still linked, by 1.
            if let Err((flat, why)) = unsafe { store_flat(items, &place, old, flat) } {
                slot.fill(Box::new(Slotted::Flat(flat)));
                return refusal(why, report);
            }
        }
        Some(Slotted::Copy {
            object: Some(object),
            bytes,
            account,
        }) => {
            len = object.len();
            let counted = (bytes, account);
            // SAFETY: `old` is what `find` returned last, and it is still linked, by 1.
            if let Err(why) = unsafe { put_copy(items, &place, old, object, counted, slot) } {
                return refusal(why, report);
            }
        }
        Some(Slotted::Claim(claimed)) => {
            // SAFETY: `old` is what `find` returned last, and it is still linked, by 1.
            match unsafe { claim(items, &place, old, claimed) } {
                Ok(ready) => slot.fill(Box::new(ready)),
                Err(why) => {
                    slot.fill(Box::new(Slotted::Claim(claimed)));
                    return refusal(why, report);
                }
            }
        }
        Some(Slotted::Moved { object, carried }) => {
            len = object.len();
            // SAFETY: `old` is what `find` returned last, and it is still linked, by 1.
            unsafe { fill(items, old, object, carried) };
        }
        // The set was evicted before it could be moved.
        Some(Slotted::Ready { .. }) => {
            if let Some(node) = old {
                // SAFETY: the node is one of the store's items and still linked, by 1.
                unsafe { items.unlink(node) };
            }
            is_found = false;
        }
        Some(Slotted::Copy { object: None, .. }) | None => is_changed = false,
    }
    Ok(report(Outcome::Sorted {
        result: SortedResult::Number(len as u64),
        is_found,
        is_changed,
    }))
}

/// Puts a copy, for which an account counts these bytes. The slot keeps what is left of it.
///
/// # Safety
///
/// 1. As described for [`ItemStore`], of `old`, which the key has.
unsafe fn put_copy<K: ItemStore>(
    items: &mut K,
    place: &Place<'_>,
    old: Option<Ptr<K::Links>>,
    object: Object,
    (bytes, account): (usize, usize),
    slot: &SetSlot,
) -> Result<(), NoItem> {
    let is_counted = account == items.set_account();
    // SAFETY: `old` is the item of the key and still linked, by 1.
    let (object, result) = match unsafe { store_copy(items, place, old, object, is_counted) } {
        Ok(()) if is_counted => {
            // The item counts them now.
            recount(items, bytes, 0);
            return Ok(());
        }
        Ok(()) => (None, Ok(())),
        Err((object, why)) => (Some(object), Err(why)),
    };
    slot.fill(Box::new(Slotted::Copy {
        object,
        bytes,
        account,
    }));
    result
}

/// Links an item with an empty object for the one that is claimed.
///
/// # Safety
///
/// 1. As described for [`ItemStore`], of `old`, which the key has.
unsafe fn claim<K: ItemStore>(
    items: &mut K,
    place: &Place<'_>,
    old: Option<Ptr<K::Links>>,
    claimed: Claimed,
) -> Result<Slotted, NoItem> {
    let is_same_account = claimed.account == items.set_account();
    if !is_same_account {
        items.make_set_room(0, claimed.bytes)?;
    }
    let empty = Object::empty(claimed.kind, items.object_memory()).ok_or(NoItem::OutOfMemory)?;
    // SAFETY: `old` is the item of the key and still linked, by 1.
    unsafe { store_object(items, place, old, empty) }.map_err(|(_, why)| why)?;
    Ok(Slotted::Ready { is_same_account })
}

/// Gives its contents to the item that [`claim`] has made.
///
/// # Safety
///
/// 1. As described for [`ItemStore`], of `old`.
unsafe fn fill<K: ItemStore>(
    items: &mut K,
    old: Option<Ptr<K::Links>>,
    moved: Object,
    carried: usize,
) {
    // SAFETY: as in `read`, by 1.
    let claimed = old.map(|node| unsafe { Item::from_raw(node) });
    let Some(item) = claimed.filter(|item| item.kind().owns_object()) else {
        // The item was evicted, and so the object is.
        return recount(items, carried, 0);
    };
    // SAFETY: as in `change` (1 and 2).
    let mut object = unsafe { object_of(item) };
    let before = object.bytes() + carried;
    let rest = object.fill(moved);
    debug_assert!(rest.is_none(), "the claim was of this kind");
    items.charge_set(before, object.bytes());
    if object.has_detached() {
        items.note_unsettled_set();
    }
    // What watches compare, where the item stays the same.
    item.set_cas(items.next_cas());
}
