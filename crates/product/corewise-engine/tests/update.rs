//! Changes by a function ([`Update`], [`Edit`]), and stores that leave the present item when they
//! fail, in every engine.

use crate::common;

use common::{Cache, NOW, Seen, Setup, TestEngine, Worker, client_flags, fewer, later, store};
use corewise_engine::item::MAX_KEY_BYTES;
use corewise_engine::{Cursor, ScanStep, Session};
use corewise_ops::{
    Change, Deadline, Decided, Decision, Delete, Edit, Get, ItemView, StoreMode, StoreRule, Update,
    Updated, Verb,
};
use std::sync::Arc;

for_every_engine! {
    an_update_sees_the_item_and_may_leave_it
    an_update_writes_touches_and_removes
    an_update_of_nothing_may_only_write
    an_update_sees_neither_expired_nor_flushed_items
    an_update_that_is_refused_changes_nothing
    an_overwrite_that_is_refused_leaves_the_item
    an_overwrite_is_a_set_otherwise
    keys_that_are_too_long_are_refused_and_not_found
    keys_of_every_length_are_keys
    an_empty_key_is_a_key
    no_update_is_lost_among_other_changes
    an_update_keeps_a_deadline_that_is_set_beside_it
    an_edit_changes_the_item_and_reports_what_it_was
    an_edit_sees_neither_expired_nor_flushed_items
    an_edit_that_fails_changes_nothing
    no_edit_is_lost_among_other_changes
}

/// An update by a function, and what it saw.
struct Updating<F>(F);

impl<F: FnMut(Option<&ItemView<'_>>) -> Change<'static>> Update for Updating<F> {
    fn update(&mut self, old: Option<&ItemView<'_>>) -> Change<'_> {
        (self.0)(old)
    }
}

fn update<E: TestEngine>(
    cache: &mut Cache<E>,
    key: &[u8],
    decide: impl FnMut(Option<&ItemView<'_>>) -> Change<'static>,
) -> Updated {
    cache.session.update(cache.now, key, &mut Updating(decide))
}

fn write(value: &'static [u8]) -> Change<'static> {
    Change::Write {
        value,
        client_flags: 3,
        deadline: Deadline::after_ms(NOW, 500),
    }
}

fn an_update_sees_the_item_and_may_leave_it<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let request = store(StoreMode::Set, b"value")
        .with_flags(9)
        .until(Deadline::after_ms(NOW, 100));
    let cas = cache.store(b"k", request).cas();
    let mut seen = None;
    let updated = update(&mut cache, b"k", |old| {
        let old = old.expect("it was stored");
        seen = Some((old.value.to_vec(), old.client_flags, old.deadline, old.cas));
        Change::Keep
    });
    assert_eq!(updated, Updated::Done);
    assert_eq!(seen, Some((b"value".to_vec(), 9, request.deadline, cas)));
    assert_eq!(cache.get(b"k").cas(), cas);
}

fn an_update_writes_touches_and_removes<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let cas = cache.set(b"k", b"old").cas();
    assert_eq!(update(&mut cache, b"k", |_| write(b"new")), Updated::Done);
    let seen = cache.get(b"k");
    assert_eq!((seen.value(), client_flags(&seen)), (Some(&b"new"[..]), 3));
    assert_eq!(seen.deadline(), Deadline::after_ms(NOW, 500));
    assert_ne!(cas, seen.cas());
    let touched = update(&mut cache, b"k", |_| Change::Touch(Deadline::NEVER));
    assert_eq!(touched, Updated::Done);
    assert_eq!(cache.get(b"k").deadline(), Deadline::NEVER);
    assert_eq!(cache.get(b"k").value(), Some(&b"new"[..]));
    assert_eq!(update(&mut cache, b"k", |_| Change::Remove), Updated::Done);
    assert!(cache.get(b"k").is_absent());
}

fn an_update_of_nothing_may_only_write<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    for change in [Change::Keep, Change::Touch(Deadline::NEVER), Change::Remove] {
        let updated = update(&mut cache, b"k", |old| {
            assert!(old.is_none());
            change
        });
        assert_eq!(updated, Updated::Done);
        assert!(cache.get(b"k").is_absent());
    }
    assert_eq!(update(&mut cache, b"k", |_| write(b"new")), Updated::Done);
    assert_eq!(cache.get(b"k").value(), Some(&b"new"[..]));
}

fn an_update_sees_neither_expired_nor_flushed_items<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let absent = |old: Option<&ItemView<'_>>| {
        assert!(old.is_none());
        Change::Keep
    };
    assert_eq!(update(&mut cache, b"k", |_| write(b"short")), Updated::Done);
    cache.now = later(500);
    assert_eq!(update(&mut cache, b"k", absent), Updated::Done);
    cache.set(b"k", b"v");
    corewise_engine::Engine::flush_all(&*cache.engine, Deadline::PAST, cache.now);
    assert_eq!(update(&mut cache, b"k", absent), Updated::Done);
}

fn an_update_that_is_refused_changes_nothing<E: TestEngine>() {
    let mut cache = Cache::<E>::new(Setup {
        max_item_bytes: 1_000,
        ..Setup::roomy()
    });
    cache.set(b"k", b"v");
    assert_eq!(
        update(&mut cache, b"k", |_| write(&[1; 1_000])),
        Updated::TooLarge
    );
    assert_eq!(cache.get(b"k").value(), Some(&b"v"[..]));
}

fn an_overwrite_that_is_refused_leaves_the_item<E: TestEngine>() {
    let mut cache = Cache::<E>::new(Setup {
        max_item_bytes: 1_000,
        ..Setup::roomy()
    });
    cache.set(b"k", b"v");
    let request = store(StoreMode::Overwrite, &[1; 1_000]);
    assert_eq!(cache.store(b"k", request), Seen::TooLarge);
    assert_eq!(cache.get(b"k").value(), Some(&b"v"[..]));
}

fn an_overwrite_is_a_set_otherwise<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let cas = cache.store(b"k", store(StoreMode::Overwrite, b"1")).cas();
    assert!(
        cache
            .store(b"k", store(StoreMode::Overwrite, b"2"))
            .is_stored()
    );
    assert_eq!(cache.get(b"k").value(), Some(&b"2"[..]));
    let compared = store(StoreMode::Overwrite, b"3").if_cas(cas);
    assert_eq!(cache.store(b"k", compared), Seen::Exists);
    cache.delete(b"k", Delete::default());
    assert!(cache.store(b"k", compared).is_absent());
}

fn keys_that_are_too_long_are_refused_and_not_found<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    for len in [MAX_KEY_BYTES + 1, MAX_KEY_BYTES + 2, 200_000] {
        let key = vec![b'k'; len];
        assert!(cache.get(&key).is_absent());
        let request = store(StoreMode::Overwrite, b"v");
        assert_eq!(cache.store(&key, request), Seen::TooLarge);
        assert_eq!(update(&mut cache, &key, |_| write(b"v")), Updated::TooLarge);
        assert!(cache.delete(&key, Delete::default()).is_absent());
        assert!(cache.get(&key).is_absent());
    }
}

/// Around the lengths at which the layout of items changes. Keys that differ only in their last
/// byte, or by one byte of length, are different keys.
fn keys_of_every_length_are_keys<E: TestEngine>() {
    let lengths = [
        0, 1, 2, 249, 250, 251, 253, 254, 255, 256, 257, 65_535, 65_536,
    ];
    let bytes: Vec<u8> = (0..MAX_KEY_BYTES).map(|i| (i * 7 % 256) as u8).collect();
    let mut cache = Cache::<E>::roomy();
    for len in lengths {
        let value = len.to_string();
        assert!(cache.get(&bytes[..len]).is_absent());
        let request = store(StoreMode::Overwrite, value.as_bytes()).with_flags(len as u32 % 2);
        assert!(cache.store(&bytes[..len], request).is_stored());
    }
    for len in lengths {
        let (key, value) = (&bytes[..len], len.to_string());
        assert_eq!(cache.get(key).value(), Some(value.as_bytes()));
        let append = store(StoreMode::Append, b"+");
        assert!(cache.store(key, append).is_stored());
        let touch = Change::Touch(Deadline::after_ms(NOW, 500));
        assert_eq!(update(&mut cache, key, |_| touch), Updated::Done);
        assert_eq!(cache.get(key).value(), Some(format!("{value}+").as_bytes()));
        if let Some((last, front)) = key.split_last() {
            let other = [front, &[last ^ 1]].concat();
            assert!(cache.get(&other).is_absent());
        }
    }
    let mut shown = Vec::new();
    let mut cursor = Cursor::START;
    while let ScanStep::More(next) = cache.engine.scan(cursor, 100, NOW, &mut |item| {
        assert_eq!(item.key, &bytes[..item.key.len()]);
        shown.push(item.key.len());
    }) {
        cursor = next;
    }
    shown.sort_unstable();
    assert_eq!(shown, lengths);
    for len in lengths {
        assert_eq!(
            cache.delete(&bytes[..len], Delete::default()),
            Seen::Deleted
        );
        assert!(cache.get(&bytes[..len]).is_absent());
    }
}

fn an_empty_key_is_a_key<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    assert!(cache.get(b"").is_absent());
    assert!(
        cache
            .store(b"", store(StoreMode::Overwrite, b"v"))
            .is_stored()
    );
    assert_eq!(cache.get(b"").value(), Some(&b"v"[..]));
    assert_eq!(update(&mut cache, b"", |_| write(b"w")), Updated::Done);
    assert_eq!(cache.get(b"").value(), Some(&b"w"[..]));
    assert_eq!(cache.delete(b"", Delete::default()), Seen::Deleted);
    assert!(cache.get(b"").is_absent());
}

/// Adds to the first number of a value, and appends a byte.
struct AddAndAppend(Vec<u8>);

impl Update for AddAndAppend {
    fn update(&mut self, old: Option<&ItemView<'_>>) -> Change<'_> {
        self.0.clear();
        let (number, rest) = old.map_or((0, &b""[..]), |old| {
            let (head, rest) = old.value.split_first_chunk::<8>().expect("a number");
            (u64::from_le_bytes(*head), rest)
        });
        self.0.extend_from_slice(&(number + 1).to_le_bytes());
        self.0.extend_from_slice(rest);
        if rest.len() < 40 {
            self.0.push(b'x');
        }
        Change::Write {
            value: &self.0,
            client_flags: old.map_or(0, |old| old.client_flags),
            deadline: old.map_or(Deadline::NEVER, |old| old.deadline),
        }
    }
}

const THREADS: u64 = 3;

fn at_once<E: TestEngine, R: Send>(
    engine: &Arc<E>,
    work: impl Fn(&mut Cache<E>, &Worker<'_>) -> R + Sync,
) -> Vec<R> {
    let sessions = (0..THREADS).map(|_| Cache::over(engine));
    common::at_once(sessions, |mut cache, worker| work(&mut cache, &worker))
}

fn no_update_is_lost_among_other_changes<E: TestEngine>() {
    let engine = Arc::new(E::make(Setup::roomy()));
    let each = fewer(2_000);
    at_once(&engine, |cache, worker| {
        for i in 0..each {
            let mut add = AddAndAppend(Vec::new());
            let updated = cache.session.update(cache.now, b"k", &mut add);
            assert_eq!(updated, Updated::Done);
            if i % 7 == worker.thread {
                let request = store(StoreMode::Append, b"y");
                assert!(cache.store(b"k", request).is_stored());
            }
            cache.set(&i.to_le_bytes(), b"another key");
        }
    });
    let seen = Cache::over(&engine).get(b"k");
    let (head, _) = seen.value().unwrap().split_first_chunk::<8>().unwrap();
    assert_eq!(u64::from_le_bytes(*head), each * THREADS);
}

/// One thread sets ever later deadlines; the others rewrite the value and keep the deadline. So the
/// deadline that a thread sees never goes back.
fn an_update_keeps_a_deadline_that_is_set_beside_it<E: TestEngine>() {
    let engine = Arc::new(E::make(Setup::roomy()));
    Cache::over(&engine).set(b"k", &0_u64.to_le_bytes());
    let each = fewer(2_000);
    at_once(&engine, |cache, worker| {
        let mut latest = 0;
        for i in 1..=each {
            if worker.thread == 0 {
                let touch = Some(Deadline::after_ms(NOW, i));
                cache.run(
                    b"k",
                    Verb::Get(Get {
                        touch,
                        ..Get::default()
                    }),
                );
                continue;
            }
            let mut add = AddAndAppend(Vec::new());
            let updated = cache.session.update(cache.now, b"k", &mut add);
            assert_eq!(updated, Updated::Done);
            let left = cache.get(b"k").deadline().remaining_ms(NOW).unwrap_or(0);
            assert!(left >= latest, "{left} after {latest}");
            latest = left;
        }
    });
    let left = Cache::over(&engine).get(b"k").deadline().remaining_ms(NOW);
    assert_eq!(left, Some(each));
}

/// Carries out the change that the number names, and reports the length of the present value.
fn edit_by_number(
    edit: &Edit<'_>,
    old: Option<&ItemView<'_>>,
    new: &mut Vec<u8>,
) -> Result<Decided, &'static str> {
    assert!(new.is_empty());
    new.extend_from_slice(edit.value);
    let decision = match edit.number {
        0 => Decision::Keep,
        1 => Decision::Touch(Deadline::after_ms(NOW, 100)),
        2 => Decision::Remove,
        3 => Decision::Write {
            client_flags: 5,
            deadline: Deadline::NEVER,
        },
        _ => return Err("no such change"),
    };
    Ok(Decided {
        decision,
        number: old.map_or(-1, |old| old.value.len() as i64),
    })
}

fn edit<E: TestEngine>(cache: &mut Cache<E>, number: i64, value: &[u8]) -> Seen {
    let edit = Edit {
        decide: edit_by_number,
        value,
        number,
        rule: StoreRule::default(),
        any_kind: false,
    };
    cache.run(b"k", Verb::Edit(edit))
}

fn edited(number: i64, old: Option<&[u8]>) -> Seen {
    Seen::Edited {
        number,
        old: old.map(<[u8]>::to_vec),
    }
}

fn an_edit_changes_the_item_and_reports_what_it_was<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    for number in 0..3 {
        assert_eq!(edit(&mut cache, number, b"new"), edited(-1, None));
        assert!(cache.get(b"k").is_absent());
    }
    let long = [b'x'; 700];
    assert_eq!(edit(&mut cache, 3, &long), edited(-1, None));
    assert_eq!(edit(&mut cache, 0, b"new"), edited(700, Some(&long)));
    assert_eq!(cache.get(b"k").value(), Some(&long[..]));
    assert_eq!(edit(&mut cache, 1, b"new"), edited(700, Some(&long)));
    assert_eq!(cache.get(b"k").deadline(), Deadline::after_ms(NOW, 100));
    assert_eq!(edit(&mut cache, 3, b"new"), edited(700, Some(&long)));
    let seen = cache.get(b"k");
    assert_eq!((seen.value(), client_flags(&seen)), (Some(&b"new"[..]), 5));
    assert_eq!(seen.deadline(), Deadline::NEVER);
    assert_eq!(edit(&mut cache, 2, b""), edited(3, Some(b"new")));
    assert!(cache.get(b"k").is_absent());
}

fn an_edit_sees_neither_expired_nor_flushed_items<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    cache.set(b"k", b"v");
    assert_eq!(edit(&mut cache, 1, b""), edited(1, Some(b"v")));
    cache.now = later(100);
    assert_eq!(edit(&mut cache, 0, b""), edited(-1, None));
    cache.set(b"k", b"v");
    corewise_engine::Engine::flush_all(&*cache.engine, Deadline::PAST, cache.now);
    assert_eq!(edit(&mut cache, 0, b""), edited(-1, None));
}

fn an_edit_that_fails_changes_nothing<E: TestEngine>() {
    let mut cache = Cache::<E>::new(Setup {
        max_item_bytes: 1_000,
        ..Setup::roomy()
    });
    cache.set(b"k", b"v");
    let refused = edit(&mut cache, 4, b"new");
    assert_eq!(refused, Seen::Refused("no such change"));
    assert_eq!(edit(&mut cache, 3, &[1; 1_000]), Seen::TooLarge);
    assert_eq!(cache.get(b"k").value(), Some(&b"v"[..]));
}

/// Adds to the first number of a value, and appends a byte.
fn add_and_append(
    edit: &Edit<'_>,
    old: Option<&ItemView<'_>>,
    new: &mut Vec<u8>,
) -> Result<Decided, &'static str> {
    let mut update = AddAndAppend(Vec::new());
    let Change::Write {
        value,
        client_flags,
        deadline,
    } = update.update(old)
    else {
        return Err("it always writes");
    };
    new.extend_from_slice(value);
    Ok(Decided {
        decision: Decision::Write {
            client_flags,
            deadline,
        },
        number: edit.number,
    })
}

fn no_edit_is_lost_among_other_changes<E: TestEngine>() {
    let engine = Arc::new(E::make(Setup::roomy()));
    let each = fewer(2_000);
    at_once(&engine, |cache, worker| {
        for i in 0..each {
            let edit = Edit {
                decide: add_and_append,
                value: b"",
                number: 0,
                rule: StoreRule::default(),
                any_kind: false,
            };
            let seen = cache.run(b"k", Verb::Edit(edit));
            assert!(matches!(seen, Seen::Edited { .. }), "{seen:?}");
            if i % 7 == worker.thread {
                let request = store(StoreMode::Append, b"y");
                assert!(cache.store(b"k", request).is_stored());
            }
            cache.set(&i.to_le_bytes(), b"another key");
        }
    });
    let seen = Cache::over(&engine).get(b"k");
    let (head, _) = seen.value().unwrap().split_first_chunk::<8>().unwrap();
    assert_eq!(u64::from_le_bytes(*head), each * THREADS);
}
