//! Random operations, executed by every engine and by a plain model of it.

use crate::common;

use common::{Cache, NOW, Seen, TestEngine, later, store};
use corewise_ops::{Arith, Deadline, Delete, Get, Store, StoreMode, Verb};
use proptest::prelude::*;
use std::collections::HashMap;

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

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    value: Vec<u8>,
    deadline: Option<u64>,
    cas: u64,
}

/// The expected behaviour of an engine, in the simplest form.
#[derive(Default)]
struct Model {
    entries: HashMap<u8, Entry>,
    ms: u64,
}

impl Model {
    fn live(&mut self, key: u8) -> Option<&mut Entry> {
        let ms = self.ms;
        self.entries
            .retain(|_, entry| entry.deadline.is_none_or(|at| at > ms));
        self.entries.get_mut(&key)
    }

    fn cas(&mut self, key: u8, cas: Cas) -> Option<u64> {
        let present = self.live(key).map_or(12_345, |entry| entry.cas);
        match cas {
            Cas::None => None,
            Cas::Right => Some(present),
            Cas::Wrong => Some(present + 1),
        }
    }
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

fn deadline(model: &Model, ttl: Option<u16>) -> (Deadline, Option<u64>) {
    match ttl {
        None => (Deadline::NEVER, None),
        Some(ttl) => {
            let at = model.ms + u64::from(ttl);
            (Deadline::at_ms(NOW.ms + at), Some(at))
        }
    }
}

fn check_get<E: TestEngine>(cache: &mut Cache<E>, model: &mut Model, key: u8, touch: Option<u16>) {
    let (to, at) = deadline(model, touch);
    let get = Get {
        touch: touch.map(|_| to),
        ..Get::default()
    };
    let seen = cache.run(&name(key), Verb::Get(get));
    let expected = model.live(key).map(|entry| {
        if touch.is_some() {
            entry.deadline = at;
        }
        entry.clone()
    });
    match (seen, expected) {
        (Seen::Found { value, cas, .. }, Some(entry)) => {
            assert_eq!((value, cas), (entry.value, entry.cas));
        }
        (Seen::Missing(_), None) => {}
        (seen, expected) => panic!("{seen:?} where {expected:?} was expected"),
    }
}

fn check_store<E: TestEngine>(
    cache: &mut Cache<E>,
    model: &mut Model,
    key: u8,
    request: Store<'_>,
    at: Option<u64>,
) {
    let seen = cache.store(&name(key), request);
    let (mode, cas) = (request.mode, request.compare_cas);
    let old = model.live(key).cloned();
    let extends = matches!(mode, StoreMode::Append | StoreMode::Prepend);
    let (value, at) = match (&old, mode) {
        (None, StoreMode::Set) if cas.is_some() => {
            return assert!(matches!(seen, Seen::Missing(_)), "{seen:?}");
        }
        (None, StoreMode::Replace | StoreMode::Append | StoreMode::Prepend)
        | (Some(_), StoreMode::Add) => return assert_eq!(seen, Seen::NotStored),
        (Some(old), _) if cas.is_some_and(|cas| cas != old.cas) => {
            return assert_eq!(seen, Seen::Exists);
        }
        (Some(old), _) if extends => {
            let parts = [&old.value[..], request.value];
            let parts = if mode == StoreMode::Append {
                parts
            } else {
                [parts[1], parts[0]]
            };
            (parts.concat(), old.deadline)
        }
        _ => (request.value.to_vec(), at),
    };
    let Seen::Stored { value: stored, cas } = seen else {
        panic!("{seen:?} for a store")
    };
    assert_eq!(stored, value);
    if let Some(old) = old {
        assert!(cas > old.cas, "cas values of a key grow");
    }
    model.entries.insert(
        key,
        Entry {
            value,
            deadline: at,
            cas,
        },
    );
}

fn check_arith<E: TestEngine>(cache: &mut Cache<E>, model: &mut Model, key: u8, arith: Arith) {
    let seen = cache.arith(&name(key), arith);
    let Some(entry) = model.live(key) else {
        let Some((value, _)) = arith.vivify else {
            return assert!(matches!(seen, Seen::Missing(_)), "{seen:?}");
        };
        assert!(
            matches!(seen, Seen::Counter { value: v, .. } if v == value),
            "{seen:?}"
        );
        // The test reads the value to learn its cas value.
        let cas = cache.get(&name(key)).cas();
        let value = value.to_string().into_bytes();
        model.entries.insert(
            key,
            Entry {
                value,
                deadline: None,
                cas,
            },
        );
        return;
    };
    let digits = entry
        .value
        .split(u8::is_ascii_whitespace)
        .next()
        .unwrap_or_default();
    let number = std::str::from_utf8(digits)
        .ok()
        .filter(|text| entry.value.len() <= 20 && text.bytes().all(|c| c.is_ascii_digit()))
        .and_then(|text| text.parse::<u64>().ok());
    let Some(number) = number else {
        return assert_eq!(seen, Seen::NonNumeric);
    };
    let number = if arith.decrement {
        number.saturating_sub(arith.delta)
    } else {
        number.wrapping_add(arith.delta)
    };
    let text = format!("{number:<width$}", width = entry.value.len()).into_bytes();
    assert_eq!(
        seen,
        Seen::Counter {
            value: number,
            text: text.clone()
        }
    );
    entry.value = text;
    entry.cas = cache.get(&name(key)).cas();
}

fn check<E: TestEngine>(cache: &mut Cache<E>, model: &mut Model, step: Step) {
    match step {
        Step::Get { key, touch } => check_get(cache, model, key, touch),
        Step::Store {
            key,
            mode,
            value,
            ttl,
            cas,
        } => {
            let (deadline, at) = deadline(model, ttl);
            let compare_cas = model.cas(key, cas);
            let request = Store {
                deadline,
                compare_cas,
                ..store(mode, &value)
            };
            check_store(cache, model, key, request, at);
        }
        Step::Delete { key, cas } => {
            let compare_cas = model.cas(key, cas);
            let seen = cache.delete(
                &name(key),
                Delete {
                    compare_cas,
                    ..Delete::default()
                },
            );
            match model.live(key) {
                None => assert!(matches!(seen, Seen::Missing(_)), "{seen:?}"),
                Some(entry) if compare_cas.is_some_and(|cas| cas != entry.cas) => {
                    assert_eq!(seen, Seen::Exists);
                }
                Some(_) => {
                    assert_eq!(seen, Seen::Deleted);
                    model.entries.remove(&key);
                }
            }
        }
        Step::Arith {
            key,
            delta,
            decrement,
            vivify,
        } => {
            let vivify = vivify.then_some((delta, Deadline::NEVER));
            let arith = Arith {
                delta,
                decrement,
                compare_cas: None,
                new_cas: None,
                touch: None,
                vivify,
            };
            check_arith(cache, model, key, arith);
        }
        Step::Wait(ms) => {
            model.ms += u64::from(ms);
            cache.now = later(model.ms);
        }
        Step::Flush => {
            cache.engine.flush_all(Deadline::PAST, cache.now);
            model.entries.clear();
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
        let (mut cache, mut model) = (Cache::<E>::roomy(), Model::default());
        for step in steps {
            check(&mut cache, &mut model, step);
        }
        model.live(0);
        prop_assert!(cache.engine.stats().items >= model.entries.len() as u64);
    });
}
