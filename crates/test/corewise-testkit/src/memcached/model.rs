//! The model.

use std::collections::BTreeMap;

use corewise_ops::filter::FilterResult;
use corewise_ops::sorted::{Members, Scores, SortedOp, SortedRead, SortedResult, SortedWrite};
use corewise_ops::{
    Absence, Arith, Change, Deadline, Decided, Delete, Edit, Flow, Get, ItemFlags, ItemKind,
    ItemView, Now, Op, Outcome, ReplySink, Store, StoreMode, Update, Verb,
};

/// Longest value that is a number, in bytes.
const MAX_DIGITS: usize = 20;

/// An item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelItem {
    /// The value.
    pub value: Vec<u8>,
    /// Not interpreted.
    pub client_flags: u32,
    /// The cas value.
    pub cas: u64,
    /// When the item expires.
    pub deadline: Deadline,
    /// Whether the item is stale, was fetched, and was won.
    pub flags: ItemFlags,
}

impl ModelItem {
    /// An item without flags.
    fn new(value: Vec<u8>, client_flags: u32, deadline: Deadline, cas: u64) -> Self {
        Self {
            value,
            client_flags,
            cas,
            deadline,
            flags: ItemFlags::NONE,
        }
    }

    /// The item as an outcome shows it.
    #[must_use]
    pub fn view<'v>(&'v self, key: &'v [u8]) -> ItemView<'v> {
        ItemView {
            key,
            value: &self.value,
            client_flags: self.client_flags,
            cas: self.cas,
            deadline: self.deadline,
            idle_s: 0,
            flags: self.flags,
            footprint: 64 + key.len() + self.value.len(),
            size_class: 1,
            kind: ItemKind::String,
        }
    }

    /// The number whose decimal form the value is: blanks may follow it.
    fn number(&self) -> Option<u64> {
        let is_short = self.value.len() <= MAX_DIGITS;
        let digits = self.value.split(u8::is_ascii_whitespace).next()?;
        let is_number = is_short && digits.iter().all(u8::is_ascii_digit);
        let text = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
        text.parse().ok()
    }
}

/// This number of members that are absent.
struct Absent(usize);

impl Members for Absent {
    fn len(&self) -> usize {
        self.0
    }

    fn show(&self, _: &mut dyn FnMut(&[u8], f64) -> bool) {}
}

impl Scores for Absent {
    fn len(&self) -> usize {
        self.0
    }

    fn show(&self, show: &mut dyn FnMut(Option<f64>)) {
        (0..self.0).for_each(|_| show(None));
    }
}

/// A table of items without eviction and without limit.
#[derive(Clone, Debug)]
pub struct MemcachedModel {
    /// The items, also expired ones that no operation has met since.
    pub items: BTreeMap<Vec<u8>, ModelItem>,
    last_cas: u64,
}

impl Default for MemcachedModel {
    /// Cas values start at a number that no test guesses.
    fn default() -> Self {
        Self {
            items: BTreeMap::new(),
            last_cas: 1000,
        }
    }
}

impl MemcachedModel {
    /// The item of a key, unless it has expired.
    pub fn live(&mut self, key: &[u8], now: Now) -> Option<&mut ModelItem> {
        if self.items.get(key)?.deadline.is_past(now) {
            self.items.remove(key);
        }
        self.items.get_mut(key)
    }

    /// Executes an operation.
    ///
    /// ```
    /// use corewise_ops::{Deadline, Now, Op, Store, StoreMode, Verb};
    /// use corewise_testkit::memcached::{MemcachedModel, Seen};
    ///
    /// let now = Now { ms: 10_000, unix_s: 1_700_000_000 };
    /// let store = Store::new(StoreMode::Append, b"2");
    /// let mut model = MemcachedModel::default();
    /// let seen = Seen::by(|sink| model.run(now, &Op { token: 0, key: b"k", verb: Verb::Store(store) }, sink));
    /// assert_eq!(seen, Seen::NotStored);
    /// ```
    pub fn run(&mut self, now: Now, op: &Op<'_>, sink: &mut dyn ReplySink) -> Flow {
        self.live(op.key, now);
        match op.verb {
            Verb::Get(get) => self.get(now, op, get, sink),
            Verb::Store(store) => self.store(op, &store, sink),
            Verb::Delete(delete) => self.delete(op, delete, sink),
            Verb::Arith(arith) => self.arith(op, arith, sink),
            Verb::Edit(edit) => self.edit(op, &edit, sink),
            Verb::Sorted(sorted) => self.sorted(op, sorted, sink),
            Verb::Filter(_) => self.no_filter(op, sink),
        }
    }

    /// Executes an update.
    pub fn update(&mut self, now: Now, key: &[u8], update: &mut dyn Update) {
        self.live(key, now);
        let old = self.items.get(key).map(|item| item.view(key));
        let change = update.update(old.as_ref());
        self.carry_out(key, change);
    }

    /// There are no filters, and none is made.
    fn no_filter(&self, op: &Op<'_>, sink: &mut dyn ReplySink) -> Flow {
        let outcome = if self.items.contains_key(op.key) {
            Outcome::WrongKind
        } else {
            Outcome::Filter {
                result: FilterResult::Missing,
                is_found: false,
                is_changed: false,
            }
        };
        sink.complete(op.token, outcome)
    }

    /// There are no sorted sets, and no room for any: each key without a string has an empty one.
    fn sorted(&self, op: &Op<'_>, sorted: &SortedOp<'_>, sink: &mut dyn ReplySink) -> Flow {
        if self.items.contains_key(op.key) {
            return sink.complete(op.token, Outcome::WrongKind);
        }
        let absent;
        let result = match *sorted {
            SortedOp::Read(SortedRead::Score(_)) => SortedResult::Score(None),
            SortedOp::Read(SortedRead::Rank(..)) => SortedResult::Rank(None),
            SortedOp::Read(SortedRead::Range(_)) => SortedResult::Members(&Absent(0)),
            SortedOp::Read(SortedRead::Scores(members)) => {
                absent = Absent(members.len());
                SortedResult::Scores(&absent)
            }
            SortedOp::Write(SortedWrite::Add { .. } | SortedWrite::Increment { .. }) => {
                return sink.complete(op.token, Outcome::OutOfMemory);
            }
            SortedOp::Read(_) | SortedOp::Write(_) => SortedResult::Number(0),
        };
        let outcome = Outcome::Sorted {
            result,
            is_found: false,
            is_changed: false,
        };
        sink.complete(op.token, outcome)
    }

    fn next_cas(&mut self, wanted: Option<u64>) -> u64 {
        self.last_cas += 1;
        wanted.unwrap_or(self.last_cas)
    }

    fn get(&mut self, now: Now, op: &Op<'_>, get: Get, sink: &mut dyn ReplySink) -> Flow {
        let Some(item) = self.items.get_mut(op.key) else {
            return self.get_absent(op, get, sink);
        };
        item.deadline = get.touch.unwrap_or(item.deadline);
        let mut shown = item.clone();
        let remaining_ms = item.deadline.remaining_ms(now);
        let is_due = get
            .recache_below_ms
            .is_some_and(|below| remaining_ms.is_some_and(|left| left < below));
        let is_stale = get.claim_stale && item.flags.contains(ItemFlags::STALE);
        if (is_due || is_stale) && !item.flags.contains(ItemFlags::WIN_SENT) {
            shown.flags = shown.flags.with(ItemFlags::WON);
            item.flags = item.flags.with(ItemFlags::WIN_SENT);
        }
        if !get.quiet {
            item.flags = item.flags.with(ItemFlags::FETCHED);
        }
        sink.complete(op.token, Outcome::Found(shown.view(op.key)))
    }

    fn get_absent(&mut self, op: &Op<'_>, get: Get, sink: &mut dyn ReplySink) -> Flow {
        let Some(vivify) = get.vivify else {
            return sink.complete(op.token, Outcome::Missing(Absence::Unknown));
        };
        let cas = self.next_cas(vivify.new_cas);
        let mut item = ModelItem::new(Vec::new(), 0, vivify.deadline, cas);
        item.flags = ItemFlags::WON;
        let flow = sink.complete(op.token, Outcome::Found(item.view(op.key)));
        item.flags = ItemFlags::WIN_SENT.with(ItemFlags::FETCHED);
        self.items.insert(op.key.to_vec(), item);
        flow
    }

    fn store(&mut self, op: &Op<'_>, store: &Store<'_>, sink: &mut dyn ReplySink) -> Flow {
        let old = self.items.get(op.key).cloned();
        let made = match old {
            None => stored_new(store),
            Some(old) => stored_over(&old, store),
        };
        let mut item = match made {
            Ok(item) => item,
            Err(outcome) => return sink.complete(op.token, outcome),
        };
        item.cas = self.next_cas(store.new_cas);
        let flow = sink.complete(op.token, Outcome::Stored(item.view(op.key)));
        self.items.insert(op.key.to_vec(), item);
        flow
    }

    fn delete(&mut self, op: &Op<'_>, delete: Delete, sink: &mut dyn ReplySink) -> Flow {
        let Some(item) = self.items.get_mut(op.key) else {
            return sink.complete(op.token, Outcome::Missing(Absence::Unknown));
        };
        if delete.compare_cas.is_some_and(|cas| cas != item.cas) {
            return sink.complete(op.token, Outcome::Exists);
        }
        if !delete.mark_stale && !delete.drop_value {
            self.items.remove(op.key);
            return sink.complete(op.token, Outcome::Deleted);
        }
        if delete.drop_value {
            item.value.clear();
            item.client_flags = 0;
        }
        if delete.mark_stale {
            item.flags = without_win(item.flags).with(ItemFlags::STALE);
            item.deadline = delete.touch.unwrap_or(item.deadline);
        }
        self.last_cas += 1;
        item.cas = delete.new_cas.unwrap_or(self.last_cas);
        sink.complete(op.token, Outcome::Stored(item.view(op.key)))
    }

    fn arith(&mut self, op: &Op<'_>, arith: Arith, sink: &mut dyn ReplySink) -> Flow {
        let cas = self.next_cas(arith.new_cas);
        let (value, item) = match (self.items.get(op.key), arith.vivify) {
            (Some(old), _) if arith.compare_cas.is_some_and(|cas| cas != old.cas) => {
                return sink.complete(op.token, Outcome::Exists);
            }
            (Some(old), _) => {
                let Some(number) = old.number() else {
                    return sink.complete(op.token, Outcome::NonNumeric);
                };
                let value = if arith.decrement {
                    number.saturating_sub(arith.delta)
                } else {
                    number.wrapping_add(arith.delta)
                };
                let mut item = old.clone();
                item.value = format!("{value:<width$}", width = old.value.len()).into_bytes();
                item.deadline = arith.touch.unwrap_or(item.deadline);
                item.cas = cas;
                (value, item)
            }
            (None, Some((value, deadline))) => {
                let text = value.to_string().into_bytes();
                (value, ModelItem::new(text, 0, deadline, cas))
            }
            (None, None) => {
                return sink.complete(op.token, Outcome::Missing(Absence::Unknown));
            }
        };
        let view = item.view(op.key);
        let flow = sink.complete(op.token, Outcome::Counter { value, view });
        self.items.insert(op.key.to_vec(), item);
        flow
    }

    fn edit(&mut self, op: &Op<'_>, edit: &Edit<'_>, sink: &mut dyn ReplySink) -> Flow {
        let old = self.items.get(op.key).cloned();
        let seen = old.as_ref().map(|item| item.view(op.key));
        let mut new = Vec::new();
        let outcome = match (edit.decide)(edit, seen.as_ref(), &mut new) {
            Err(why) => Outcome::Refused(why),
            Ok(Decided { decision, number }) => {
                self.carry_out(op.key, decision.with(&new));
                Outcome::Edited {
                    number,
                    old: old.as_ref().map(|item| &item.value[..]),
                    is_changed: decision.is_change(old.is_some()),
                }
            }
        };
        sink.complete(op.token, outcome)
    }

    fn carry_out(&mut self, key: &[u8], change: Change<'_>) {
        match change {
            Change::Keep => {}
            Change::Touch(deadline) => {
                if let Some(item) = self.items.get_mut(key) {
                    item.deadline = deadline;
                }
            }
            Change::Remove => {
                self.items.remove(key);
            }
            Change::Write {
                value,
                client_flags,
                deadline,
            } => {
                let cas = self.next_cas(None);
                let item = ModelItem::new(value.to_vec(), client_flags, deadline, cas);
                self.items.insert(key.to_vec(), item);
            }
        }
    }
}

/// The item after a store of an absent key, without its cas value.
fn stored_new(store: &Store<'_>) -> Result<ModelItem, Outcome<'static>> {
    let deadline = match store.mode {
        StoreMode::Set | StoreMode::Overwrite if store.compare_cas.is_some() => {
            return Err(Outcome::Missing(Absence::Unknown));
        }
        StoreMode::Set | StoreMode::Overwrite | StoreMode::Add => store.deadline,
        StoreMode::Replace => return Err(Outcome::NotStored),
        StoreMode::Append | StoreMode::Prepend => store.vivify.ok_or(Outcome::NotStored)?,
    };
    let value = store.value.to_vec();
    Ok(ModelItem::new(value, store.client_flags, deadline, 0))
}

/// The item after a store over another one, without its cas value.
fn stored_over(old: &ModelItem, store: &Store<'_>) -> Result<ModelItem, Outcome<'static>> {
    if store.mode == StoreMode::Add {
        return Err(Outcome::NotStored);
    }
    let (mut flags, mut deadline) = (ItemFlags::NONE, store.deadline);
    if let Some(cas) = store.compare_cas.filter(|cas| *cas != old.cas) {
        if !store.stale_if_older || cas > old.cas {
            return Err(Outcome::Exists);
        }
        flags = old.flags.with(ItemFlags::STALE);
        deadline = old.deadline;
    }
    let value = match store.mode {
        StoreMode::Append => [&old.value, store.value].concat(),
        StoreMode::Prepend => [store.value, &old.value].concat(),
        _ => {
            let value = store.value.to_vec();
            let item = ModelItem::new(value, store.client_flags, deadline, 0);
            return Ok(ModelItem { flags, ..item });
        }
    };
    Ok(ModelItem {
        flags,
        ..ModelItem::new(value, old.client_flags, old.deadline, 0)
    })
}

/// The flags without a win.
fn without_win(flags: ItemFlags) -> ItemFlags {
    [ItemFlags::STALE, ItemFlags::FETCHED]
        .into_iter()
        .filter(|flag| flags.contains(*flag))
        .fold(ItemFlags::NONE, ItemFlags::with)
}
