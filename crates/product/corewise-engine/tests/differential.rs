//! Random operations, executed by every engine and by a model of memcached.

use crate::common;

use common::{Cache, Seen, TestEngine, later};
use corewise_ops::{Arith, Deadline, Delete, Get, Op, Store, StoreMode, Verb};
use corewise_testkit::memcached::{MemcachedModel, ModelItem};
use proptest::prelude::*;

for_every_engine! {
    an_engine_does_what_a_plain_map_would
}

/// A step of a history. There are few keys, so that steps interact.
#[derive(Clone, Debug)]
enum Step {
    Get {
        key: u8,
        touch: Option<u16>,
    },
    Store {
        key: u8,
        mode: StoreMode,
        value: Vec<u8>,
        ttl: Option<u16>,
        cas: Cas,
    },
    Delete {
        key: u8,
        cas: Cas,
    },
    Arith {
        key: u8,
        delta: u64,
        decrement: bool,
        vivify: bool,
    },
    Wait(u16),
    Flush,
}

/// The cas value of an operation.
#[derive(Clone, Copy, Debug)]
enum Cas {
    None,
    Right,
    Wrong,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0u8..4;
    let ttl = proptest::option::of(1u16..50);
    let cas = prop_oneof![3 => Just(Cas::None), 1 => Just(Cas::Right), 1 => Just(Cas::Wrong)];
    let mode = prop_oneof![
        Just(StoreMode::Set),
        Just(StoreMode::Add),
        Just(StoreMode::Replace),
        Just(StoreMode::Append),
        Just(StoreMode::Prepend)
    ];
    let value = prop_oneof![
        "[0-9]{0,3}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..40)
    ];
    let step = prop_oneof![
        4 => (key.clone(), ttl.clone()).prop_map(|(key, touch)| Step::Get { key, touch }),
        6 => (key.clone(), mode, value, ttl, cas.clone()).prop_map(
            |(key, mode, value, ttl, cas)| Step::Store { key, mode, value, ttl, cas }
        ),
        2 => (key.clone(), cas).prop_map(|(key, cas)| Step::Delete { key, cas }),
        3 => (key, 0u64..200, any::<bool>(), any::<bool>()).prop_map(
            |(key, delta, decrement, vivify)| Step::Arith { key, delta, decrement, vivify }
        ),
        1 => (1u16..30).prop_map(Step::Wait),
        1 => Just(Step::Flush),
    ];
    proptest::collection::vec(step, 1..120)
}

/// A key of a length that differs in how items store it.
fn name(key: u8) -> Vec<u8> {
    let len = [0, 254, 255, 300][usize::from(key)];
    vec![b'k'; len]
}

/// An engine and the model that it must agree with.
struct Compared<E: TestEngine> {
    cache: Cache<E>,
    model: MemcachedModel,
    ms: u64,
}

impl<E: TestEngine> Compared<E> {
    fn new() -> Self {
        Self {
            cache: Cache::roomy(),
            model: MemcachedModel::default(),
            ms: 0,
        }
    }

    fn deadline(&self, ttl: Option<u16>) -> Deadline {
        let at = |ttl| Deadline::after_ms(self.cache.now, u64::from(ttl));
        ttl.map_or(Deadline::NEVER, at)
    }

    fn cas(&mut self, key: u8, cas: Cas) -> Option<u64> {
        let item = self.model.live(&name(key), self.cache.now);
        let present = item.map_or(12_345, |item| item.cas);
        match cas {
            Cas::None => None,
            Cas::Right => Some(present),
            Cas::Wrong => Some(present + 1),
        }
    }

    /// Executes an operation on both. The outcomes must be the same, except that each has its own
    /// cas values; the model then takes over those of the engine.
    fn run(&mut self, key: u8, verb: Verb<'_>) {
        let key = &name(key)[..];
        let now = self.cache.now;
        let old_cas = self.model.live(key, now).map(|item| item.cas);
        let seen = self.cache.run(key, verb);
        let op = Op::new(0, key, verb);
        let expected = Seen::by(|sink| self.model.run(now, &op, sink));
        match (&seen, &expected) {
            (Seen::Found { .. }, Seen::Found { .. }) => {
                let of = |seen: &Seen| (seen.value().map(<[u8]>::to_vec), seen.cas());
                assert_eq!(of(&seen), of(&expected));
                assert_eq!(seen.deadline(), expected.deadline());
            }
            (Seen::Stored { cas, .. }, Seen::Stored { .. }) => {
                assert_eq!(seen.value(), expected.value());
                assert!(old_cas < Some(*cas), "cas values of a key grow");
                self.item(key).cas = *cas;
            }
            (Seen::Counter { .. }, Seen::Counter { .. }) => {
                assert_eq!(seen, expected);
                // The outcome does not tell the cas value.
                self.item(key).cas = self.cache.get(key).cas();
            }
            (Seen::Missing(_), Seen::Missing(_)) => {}
            _ => assert_eq!(seen, expected),
        }
    }

    fn item(&mut self, key: &[u8]) -> &mut ModelItem {
        self.model.items.get_mut(key).expect("the key has an item")
    }

    fn check(&mut self, step: Step) {
        match step {
            Step::Get { key, touch } => {
                let touch = touch.map(|ttl| self.deadline(Some(ttl)));
                let get = Get {
                    touch,
                    ..Get::default()
                };
                self.run(key, Verb::Get(get));
            }
            Step::Store {
                key,
                mode,
                value,
                ttl,
                cas,
            } => {
                let store = Store {
                    deadline: self.deadline(ttl),
                    compare_cas: self.cas(key, cas),
                    ..Store::new(mode, &value)
                };
                self.run(key, Verb::Store(store));
            }
            Step::Delete { key, cas } => {
                let delete = Delete {
                    compare_cas: self.cas(key, cas),
                    ..Delete::default()
                };
                self.run(key, Verb::Delete(delete));
            }
            Step::Arith {
                key,
                delta,
                decrement,
                vivify,
            } => {
                let arith = Arith {
                    decrement,
                    vivify: vivify.then_some((delta, Deadline::NEVER)),
                    ..Arith::new(delta)
                };
                self.run(key, Verb::Arith(arith));
            }
            Step::Wait(ms) => {
                self.ms += u64::from(ms);
                self.cache.now = later(self.ms);
            }
            Step::Flush => {
                self.cache.engine.flush_all(Deadline::PAST, self.cache.now);
                self.model.items.clear();
            }
        }
    }
}

fn an_engine_does_what_a_plain_map_would<E: TestEngine>() {
    let config = ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(steps in steps())| {
        let mut compared = Compared::<E>::new();
        for step in steps {
            compared.check(step);
        }
        let Compared { cache, model, .. } = compared;
        let live = model.items.values().filter(|item| !item.deadline.is_past(cache.now));
        prop_assert!(cache.engine.stats().items >= live.count() as u64);
    });
}
