//! The cache engine `locked` as a table: sixteen shards a thread, separately allocated items, LRU,
//! deadlines, a memory budget.
//!
//! It does more than the other tables and is measured through its whole interface, one operation a
//! batch. These rows show what a lookup costs the server, not what the best table could reach.

use std::sync::Arc;

use corewise_cache::engines::locked::{Config, Eviction, Locked, LockedSession};
use corewise_cache::{Engine, Session};
use corewise_ops::{
    Deadline, Delete, Flow, Get, Now, Op, Outcome, ReplySink, Store, StoreMode, Token, Verb,
};

use crate::adapters::rust;
use crate::dyn_table::Entry;
use crate::table::{Handle, Kind, Setup, Table};

/// An arbitrary time: nothing expires here.
const NOW: Now = Now {
    ms: 1_000_000,
    unix_s: 1_700_000_000,
};
/// Bytes of an entry besides key and value, tables included, with a wide margin.
const OVERHEAD: usize = 256;
/// Memory budget of a table that is to grow: large enough that nothing is ever evicted.
const GROWING: u64 = 64 << 30;

/// The engine as a table.
pub(crate) struct Engined {
    engine: Arc<Locked>,
}

impl<K: Kind> Table<K> for Engined {
    type Handle<'t> = EngineHandle;

    fn build(setup: &Setup) -> Self {
        let entry = setup.key_bytes + setup.value_bytes + OVERHEAD;
        let steady = (setup.capacity as u64 * entry as u64 * 8).max(1 << 30);
        let engine = Locked::new(Config {
            memory: if setup.capacity == 0 { GROWING } else { steady },
            max_item_bytes: 1 << 16,
            eviction: Eviction::Refuse,
            threads: setup.threads,
        });
        Self {
            engine: Arc::new(engine),
        }
    }
    fn handle(&self) -> EngineHandle {
        EngineHandle {
            session: self.engine.session(),
        }
    }
    fn size(&self) -> Option<usize> {
        usize::try_from(self.engine.stats().items).ok()
    }
}

/// A handle: a session of the engine.
pub(crate) struct EngineHandle {
    session: LockedSession,
}

/// Receives one answer of the engine.
struct Answer<F, R> {
    read: F,
    result: Option<R>,
}

impl<R, F: Fn(Outcome<'_>) -> R> ReplySink for Answer<F, R> {
    #[inline]
    fn complete(&mut self, _: Token, outcome: Outcome<'_>) -> Flow {
        self.result = Some((self.read)(outcome));
        Flow::Continue
    }
}

impl EngineHandle {
    #[inline]
    fn ask<R>(&mut self, key: &[u8], verb: Verb<'_>, read: impl Fn(Outcome<'_>) -> R) -> R {
        let mut sink = Answer { read, result: None };
        self.session.submit(
            NOW,
            &[Op {
                token: 0,
                key,
                verb,
            }],
            &mut sink,
        );
        while sink.result.is_none() {
            self.session.poll(NOW, &mut sink);
        }
        sink.result.expect("the loop ends with an answer")
    }

    /// Returns the value's stamp and the item's cas.
    #[inline]
    fn look<K: Kind>(&mut self, key: &K::Query) -> Option<(u64, u64)> {
        self.ask(
            K::key_bytes(key),
            Verb::Get(Get::default()),
            |outcome| match outcome {
                Outcome::Found(view) => Some((K::stamp_of_bytes(view.value), view.cas)),
                _ => None,
            },
        )
    }
}

impl<K: Kind> Handle<K> for EngineHandle {
    #[inline]
    fn get(&mut self, key: &K::Query) -> Option<u64> {
        self.look::<K>(key).map(|(stamp, _)| stamp)
    }

    #[inline]
    fn insert(&mut self, key: &K::Query, value: K::Value) -> bool {
        let store = Store {
            mode: StoreMode::Add,
            value: K::value_bytes(&value),
            client_flags: 0,
            deadline: Deadline::NEVER,
            compare_cas: None,
            stale_if_older: false,
            new_cas: None,
            vivify: None,
        };
        self.ask(
            K::key_bytes(key),
            Verb::Store(store),
            |outcome| match outcome {
                Outcome::Stored(_) => true,
                Outcome::NotStored => false,
                other => panic!("an add was answered {other:?}"),
            },
        )
    }

    /// A removal of the engine does not return the value. So this reads the value first, and
    /// removes the item only if it is unchanged.
    #[inline]
    fn remove(&mut self, key: &K::Query) -> Option<u64> {
        loop {
            let (stamp, cas) = self.look::<K>(key)?;
            let delete = Delete {
                compare_cas: Some(cas),
                ..Delete::default()
            };
            let gone = self.ask(
                K::key_bytes(key),
                Verb::Delete(delete),
                |outcome| match outcome {
                    Outcome::Deleted => Some(true),
                    Outcome::Missing(_) => Some(false),
                    _ => None, // the item has changed
                },
            );
            match gone {
                Some(true) => return Some(stamp),
                Some(false) => return None,
                None => {}
            }
        }
    }
}

pub(super) fn entry() -> Entry {
    let version = env!("CARGO_PKG_VERSION");
    let mut card = rust(
        "locked",
        version,
        "the cache engine `locked` through its whole interface",
    );
    card.hasher = "foldhash with a random seed, always: its keys come from the network".into();
    card.reclamation = "at once, after the lock is released".into();
    card.guarantees = "linearizable; readers and writers of a shard alone".into();
    card.settings =
        "a budget that is never reached; sixteen shards a thread; grows from empty, as servers do"
            .into();
    card.adapter =
        "one operation a batch; keys and values as bytes; a removal is a get and a delete by cas"
            .into();
    Entry::new(card)
        .u64::<Engined>()
        .bytes::<Engined>()
        .u64_native::<Engined>()
        .bytes_native::<Engined>()
}
