//! Whether an operation has changed its item.

use corewise_ops::{
    Change, Flow, ItemFlags, ItemView, Outcome, ReplySink, StoreMode, Token, Update, Verb,
};

/// Notes what becomes of one operation, and passes it on.
pub(super) struct NotingSink<'s, K> {
    sink: &'s mut K,
    /// The operation is a read that replaces the deadline.
    touches: bool,
    /// The operation removes the item if it fails, as a `set` of memcached does.
    removes_on_failure: bool,
    /// The operation has changed the item, or may have.
    pub(super) is_changed: bool,
    /// What the sink answered.
    pub(super) flow: Flow,
}

impl<'s, K> NotingSink<'s, K> {
    pub(super) fn new(verb: &Verb<'_>, sink: &'s mut K) -> Self {
        let touches = matches!(verb, Verb::Get(get) if get.touch.is_some());
        let removes_on_failure = matches!(verb, Verb::Store(store)
            if store.mode == StoreMode::Set && store.compare_cas.is_none());
        Self {
            sink,
            touches,
            removes_on_failure,
            is_changed: false,
            flow: Flow::Continue,
        }
    }
}

impl<K: ReplySink> ReplySink for NotingSink<'_, K> {
    fn complete(&mut self, token: Token, outcome: Outcome<'_>) -> Flow {
        self.is_changed |= match &outcome {
            // A get that wins an item has created or marked it.
            Outcome::Found(item) => self.touches || item.flags.contains(ItemFlags::WON),
            Outcome::Edited { is_changed, .. }
            | Outcome::Sorted { is_changed, .. }
            | Outcome::Filter { is_changed, .. } => *is_changed,
            Outcome::Stored(_) | Outcome::Counter { .. } | Outcome::Deleted => true,
            Outcome::TooLarge | Outcome::OutOfMemory => self.removes_on_failure,
            Outcome::Missing(_)
            | Outcome::NotStored
            | Outcome::Exists
            | Outcome::NonNumeric
            | Outcome::Refused(_)
            | Outcome::WrongKind => false,
        };
        self.flow = self.sink.complete(token, outcome);
        self.flow
    }
}

/// Notes what an update decides.
pub(super) struct NotingUpdate<'u> {
    update: &'u mut dyn Update,
    /// The last decision changes the item.
    pub(super) is_changed: bool,
}

impl<'u> NotingUpdate<'u> {
    pub(super) fn new(update: &'u mut dyn Update) -> Self {
        Self {
            update,
            is_changed: false,
        }
    }
}

impl Update for NotingUpdate<'_> {
    fn update(&mut self, old: Option<&ItemView<'_>>) -> Change<'_> {
        let is_present = old.is_some();
        let change = self.update.update(old);
        self.is_changed = match change {
            Change::Keep => false,
            Change::Touch(_) | Change::Remove => is_present,
            Change::Write { .. } => true,
        };
        change
    }

    fn takes_any_kind(&self) -> bool {
        self.update.takes_any_kind()
    }
}
