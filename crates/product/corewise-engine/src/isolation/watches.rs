//! Watches: whether keys have changed since a client looked at them.
//!
//! While a key is watched, the gate is guarded, so each operation that changes the key finds the
//! watch in the key's stripe and marks it. Removals that are no operations (eviction, expiry, a
//! flush) leave no mark; a watch therefore also remembers the cas value of the item, or that there
//! was none, and compares it at the end.

use super::{IsolatedTransaction, Isolation};
use crate::engine::Session;
use corewise_atomic::sync::atomic::{AtomicBool, Ordering};
use corewise_ops::{Flow, Get, Now, Op, Outcome, ReplySink, Token, Verb};
use std::sync::Arc;

/// One watched key, in its stripe.
pub(super) struct Watch {
    key: Arc<[u8]>,
    /// Shared by the watches of one client.
    is_changed: Arc<AtomicBool>,
}

impl Watch {
    #[inline]
    pub(super) fn is_of(&self, key: &[u8]) -> bool {
        *self.key == *key
    }

    pub(super) fn set_changed(&self) {
        // Relaxed: the lock of the stripe orders it before the look in `are_unchanged`.
        self.is_changed.store(true, Ordering::Relaxed);
    }
}

/// The keys that one client watches. Dropping it ends the watches.
///
/// Neither [`add`](Self::add) nor the drop may happen while the thread has a transaction, or the
/// thread waits for itself.
pub struct Watches {
    isolation: Arc<Isolation>,
    /// One of the keys was changed by an operation.
    is_changed: Arc<AtomicBool>,
    keys: Vec<(Arc<[u8]>, Version)>,
    /// The time of the last call.
    now: Now,
}

/// The cas value of an item; `None` if there is none.
type Version = Option<u64>;

impl Watches {
    /// Watches no key yet. Waits as [`Isolation::begin`] does.
    #[must_use]
    pub fn new(isolation: &Arc<Isolation>, now: Now) -> Self {
        isolation.gate.guard();
        Self {
            isolation: Arc::clone(isolation),
            is_changed: Arc::new(AtomicBool::new(false)),
            keys: Vec::new(),
            now,
        }
    }

    /// Watches a key from now on. A key that is watched stays so. Takes time in proportion to the
    /// number of watched keys.
    pub fn add<S: Session>(&mut self, session: &mut S, now: Now, key: &[u8]) {
        if self.keys.iter().any(|(watched, _)| **watched == *key) {
            return;
        }
        let name: Arc<[u8]> = key.into();
        let mut stripe = self.isolation.lock(key);
        let version = version(session, now, key);
        stripe.watches.push(Watch {
            key: Arc::clone(&name),
            is_changed: Arc::clone(&self.is_changed),
        });
        self.keys.push((name, version));
        self.now = now;
    }

    /// About the number of bytes that the watch of a key takes.
    #[must_use]
    pub fn bytes_of(key: &[u8]) -> usize {
        /// Entries in two vectors, which double, and the counts of an `Arc`.
        const EACH: usize =
            2 * (size_of::<(Arc<[u8]>, Version)>() + size_of::<Watch>()) + 2 * size_of::<usize>();
        key.len() + EACH
    }

    /// About the number of bytes that the watches take.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.keys().map(Self::bytes_of).sum()
    }

    /// The watched keys.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.keys.iter().map(|(key, _)| &**key)
    }

    /// Whether no key has changed since it was watched: guarantee 2 of the [module](super).
    ///
    /// The transaction must have the watched keys; then the answer holds until its first operation.
    pub fn are_unchanged<S: Session>(
        &self,
        transaction: &IsolatedTransaction<'_>,
        session: &mut S,
        now: Now,
    ) -> bool {
        debug_assert!(std::ptr::eq(&*self.isolation, transaction.isolation));
        // Relaxed: see `set_changed`.
        if self.is_changed.load(Ordering::Relaxed) {
            return false;
        }
        self.keys
            .iter()
            .all(|(key, seen)| version(session, now, key) == *seen)
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        for (key, _) in &self.keys {
            let mut stripe = self.isolation.lock(key);
            stripe
                .watches
                .retain(|watch| !Arc::ptr_eq(&watch.is_changed, &self.is_changed));
            if stripe.watches.is_empty() {
                stripe.watches = Vec::new();
            }
        }
        self.isolation.gate.leave(self.now);
    }
}

/// The version of the item of a key. Does not count as a use of the item.
fn version<S: Session>(session: &mut S, now: Now, key: &[u8]) -> Version {
    struct VersionSink(Version);
    impl ReplySink for VersionSink {
        fn complete(&mut self, _: Token, outcome: Outcome<'_>) -> Flow {
            if let Outcome::Found(item) = outcome {
                self.0 = Some(item.cas);
            }
            Flow::Continue
        }
    }
    let verb = Verb::Get(Get::QUIET);
    let op = Op::new(0, key, verb);
    let mut sink = VersionSink(None);
    let accepted = session.submit(now, &[op], &mut sink);
    debug_assert_eq!(accepted, 1, "nothing is pending");
    super::finish(session, now, &mut sink);
    sink.0
}
