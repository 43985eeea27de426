use super::*;
use crate::engine::Engine;
use crate::engines::global_lock::GlobalLock;
use crate::engines::locked::Locked;
use crate::engines::lockhash::LockHashEngine;
use crate::engines::relativistic::Relativistic;
use corewise_ops::{
    Arith, Change, Deadline, Delete, Flow, Get, ItemView, Outcome, Store, StoreMode, Verb, Vivify,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

const NOW: Now = Now::new(5_000, 1_800_000_000);

fn at(ms: u64) -> Now {
    Now { ms, ..NOW }
}

fn store(mode: StoreMode, value: &[u8]) -> Verb<'_> {
    Verb::Store(Store::new(mode, value))
}

fn set(value: &[u8]) -> Verb<'_> {
    store(StoreMode::Overwrite, value)
}

/// Keeps the value that is found.
#[derive(Default)]
struct Keep(Option<Vec<u8>>);

impl ReplySink for Keep {
    fn complete(&mut self, _: u32, outcome: Outcome<'_>) -> Flow {
        if let Outcome::Found(item) = outcome {
            self.0 = Some(item.value.to_vec());
        }
        Flow::Continue
    }
}

fn op<'o>(key: &'o [u8], verb: Verb<'o>) -> Op<'o> {
    Op::new(0, key, verb)
}

/// One thread's member and session.
struct Client<S> {
    member: Member,
    session: S,
}

impl<S: Session> Client<S> {
    fn run(&mut self, now: Now, key: &[u8], verb: Verb<'_>) -> Option<Vec<u8>> {
        let mut keep = Keep::default();
        let progress = self
            .member
            .run(&mut self.session, now, &[op(key, verb)], &mut keep);
        assert_eq!((progress.accepted, progress.pending), (1, 0));
        keep.0
    }

    fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        self.run(NOW, key, Verb::Get(Get::default()))
    }
}

/// The engine, its isolation, and two clients.
fn start<E: Engine>(engine: E) -> (Arc<E>, Arc<Isolation>, [Client<E::Session>; 2]) {
    let engine = Arc::new(engine);
    let isolation = Arc::new(Isolation::new());
    let client = || Client {
        member: isolation.member(),
        session: engine.session(),
    };
    let clients = [client(), client()];
    (engine, isolation, clients)
}

/// Calls `check` with each engine.
macro_rules! with_every_engine {
    ($check:ident) => {
        $check(Relativistic::new(Default::default()));
        $check(<Locked>::new(Default::default()));
        $check(LockHashEngine::new(Default::default()));
        $check(GlobalLock::new(Default::default()));
    };
}

/// Whether `change`, by another client, is seen by a watch of the key `k`, whose value is 5.
fn is_seen<E: Engine>(
    engine: &Arc<E>,
    isolation: &Arc<Isolation>,
    [one, other]: &mut [Client<E::Session>; 2],
    change: impl FnOnce(&Arc<E>, &mut Client<E::Session>),
) -> bool {
    one.run(NOW, b"k", set(b"5"));
    let mut watches = Watches::new(isolation, NOW);
    watches.add(&mut one.session, NOW, b"k");
    watches.add(&mut one.session, NOW, b"absent");
    change(engine, other);
    let transaction = isolation.begin(NOW, watches.keys());
    !watches.are_unchanged(&transaction, &mut one.session, NOW)
}

/// Longer than the value of any item.
const TOO_LARGE: usize = 2 << 20;

/// A read that creates the item if it is absent, and wins it if it is stale or expires soon.
const VIVIFY: Get = Get {
    touch: None,
    vivify: Some(Vivify {
        deadline: Deadline::NEVER,
        new_cas: None,
    }),
    recache_below_ms: Some(1),
    claim_stale: true,
    quiet: false,
    any_kind: false,
};

#[test]
fn a_watch_sees_changes_and_nothing_else() {
    fn check<E: Engine>(engine: E) {
        type Change<S> = fn(&mut Client<S>);
        let (engine, isolation, mut clients) = start(engine);
        let cases: [(&str, bool, Change<E::Session>); 18] = [
            ("nothing", false, |_| ()),
            ("get", false, |c| _ = c.get(b"k")),
            ("set", true, |c| _ = c.run(NOW, b"k", set(b"6"))),
            ("the same value", true, |c| _ = c.run(NOW, b"k", set(b"5"))),
            ("another key", false, |c| _ = c.run(NOW, b"l", set(b"5"))),
            ("create", true, |c| _ = c.run(NOW, b"absent", set(b"5"))),
            ("create and delete", true, |c| {
                c.run(NOW, b"absent", set(b"5"));
                c.run(NOW, b"absent", Verb::Delete(Delete::default()));
            }),
            ("add", false, |c| {
                _ = c.run(NOW, b"k", store(StoreMode::Add, b"6"));
            }),
            ("append", true, |c| {
                _ = c.run(NOW, b"k", store(StoreMode::Append, b"6"));
            }),
            ("overwrite with too much", false, |c| {
                _ = c.run(NOW, b"k", store(StoreMode::Overwrite, &[0; TOO_LARGE]));
            }),
            ("set to too much, which removes the item", true, |c| {
                _ = c.run(NOW, b"k", store(StoreMode::Set, &[0; TOO_LARGE]));
            }),
            ("delete", true, |c| {
                _ = c.run(NOW, b"k", Verb::Delete(Delete::default()));
            }),
            ("delete nothing", false, |c| {
                _ = c.run(NOW, b"absent", Verb::Delete(Delete::default()));
            }),
            ("count", true, |c| {
                let one = Arith::new(1);
                _ = c.run(NOW, b"k", Verb::Arith(one));
            }),
            ("touch", true, |c| {
                let touch = Get::touching(Deadline::at_ms(1 << 40));
                _ = c.run(NOW, b"k", Verb::Get(touch));
            }),
            ("create by a read", true, |c| {
                _ = c.run(NOW, b"absent", Verb::Get(VIVIFY));
            }),
            ("a read that may create and claim", false, |c| {
                _ = c.run(NOW, b"k", Verb::Get(VIVIFY));
            }),
            ("update", true, |c| {
                let _ = c.member.update(&mut c.session, NOW, b"k", &mut Remove);
            }),
        ];
        for (name, expected, change) in cases {
            let seen = is_seen(&engine, &isolation, &mut clients, |_, c| change(c));
            assert_eq!(seen, expected, "{name} in {}", engine.name());
            clients[0].run(NOW, b"absent", Verb::Delete(Delete::default()));
        }
        let flush = |engine: &Arc<E>, _: &mut Client<_>| engine.flush_all(Deadline::PAST, NOW);
        assert!(is_seen(&engine, &isolation, &mut clients, flush), "flush");
    }
    with_every_engine!(check);
}

struct Remove;

impl Update for Remove {
    fn update(&mut self, _: Option<&ItemView<'_>>) -> Change<'_> {
        Change::Remove
    }
}

#[test]
fn a_watch_sees_that_an_item_expires() {
    fn check<E: Engine>(engine: E) {
        let (_engine, isolation, [mut one, _]) = start(engine);
        let Verb::Store(plain) = set(b"5") else {
            unreachable!("it is a store");
        };
        let verb = Verb::Store(plain.until(Deadline::at_ms(NOW.ms + 10)));
        one.run(NOW, b"k", verb);
        let mut watches = Watches::new(&isolation, NOW);
        watches.add(&mut one.session, NOW, b"k");
        for (ms, expected) in [(9, true), (10, false), (11, false)] {
            let transaction = isolation.begin(NOW, watches.keys());
            let now = at(NOW.ms + ms);
            let seen = watches.are_unchanged(&transaction, &mut one.session, now);
            assert_eq!(seen, expected, "{ms}");
        }
    }
    with_every_engine!(check);
}

#[test]
fn the_gate_is_guarded_as_long_as_it_is_used_and_a_while_longer() {
    let (_engine, isolation, [mut client, _]) = start(<Locked>::new(Default::default()));
    assert!(!isolation.gate.is_guarded());
    let watches = Watches::new(&isolation, NOW);
    drop(isolation.begin(at(NOW.ms + 5), [&b"k"[..]]));
    client.run(at(NOW.ms + 1_000), b"k", set(b"1"));
    assert!(isolation.gate.is_guarded(), "keys are watched");
    drop(watches);
    client.run(at(NOW.ms + 5 + LINGER_MS - 1), b"k", set(b"1"));
    assert!(isolation.gate.is_guarded(), "too early");
    client.run(at(NOW.ms + 5 + LINGER_MS), b"k", set(b"1"));
    assert!(!isolation.gate.is_guarded());
    client.run(NOW, b"k", set(b"2"));
    assert_eq!(client.get(b"k").unwrap(), b"2");
}

struct Panic;

impl Update for Panic {
    fn update(&mut self, _: Option<&ItemView<'_>>) -> Change<'_> {
        panic!("on purpose")
    }
}

impl ReplySink for Panic {
    fn complete(&mut self, _: u32, _: Outcome<'_>) -> Flow {
        panic!("on purpose")
    }
}

/// Guarantee 5.
#[test]
fn a_panic_leaves_nothing_locked() {
    let (_engine, isolation, [mut one, mut other]) = start(<Locked>::new(Default::default()));
    one.run(NOW, b"k", set(b"1"));
    let in_transaction = catch_unwind(AssertUnwindSafe(|| {
        let mut transaction = isolation.begin(NOW, [&b"k"[..], b"l"]);
        transaction.update(&mut one.session, NOW, b"k", &mut Panic)
    }));
    assert!(in_transaction.is_err());
    assert_eq!(isolation.gate.users(), 0);
    other.run(NOW, b"k", set(b"2")); // with its stripe locked
    other.run(at(NOW.ms + LINGER_MS), b"l", set(b"2"));
    assert!(!isolation.gate.is_guarded());
    for _ in 0..2 {
        let in_batch = catch_unwind(AssertUnwindSafe(|| {
            let ops = [op(b"k", Verb::Get(Get::default()))];
            one.member.run(&mut one.session, NOW, &ops, &mut Panic)
        }));
        assert!(in_batch.is_err());
        // It would wait for a member that is inside.
        drop(isolation.begin(NOW, [&b"k"[..]]));
    }
    assert_eq!(other.get(b"k").unwrap(), b"2");
}

#[test]
fn a_transaction_may_lock_some_keys_or_all() {
    let (_engine, isolation, [mut one, _]) = start(<Locked>::new(Default::default()));
    drop(isolation.begin::<&[u8]>(NOW, []));
    let keys: Vec<Vec<u8>> = (0..3 * STRIPES).map(|i| i.to_string().into()).collect();
    let mut some = isolation.begin(NOW, keys.iter().map(Vec::as_slice));
    assert!(some.locked.len() <= STRIPES && some.locked.len() > STRIPES / 2);
    for key in &keys {
        some.run(
            &mut one.session,
            NOW,
            &op(key, set(b"1")),
            &mut Keep::default(),
        );
    }
    drop(some);
    let mut all = isolation.begin_all(NOW);
    for key in &keys {
        let mut keep = Keep::default();
        let get = op(key, Verb::Get(Get::default()));
        all.run(&mut one.session, NOW, &get, &mut keep);
        assert_eq!(keep.0.unwrap(), b"1");
    }
    assert_eq!(all.locked.len(), STRIPES);
}

/// Transactions move an amount between two keys while other threads read and write: no reader of
/// both keys in one transaction, and no pair of reads in order, sees half of one.
#[test]
fn threads_see_whole_transactions() {
    const ROUNDS: u32 = 300;
    fn check<E: Engine>(engine: E) {
        let (engine, isolation, [mut one, _]) = start(engine);
        for key in [b"a", b"b"] {
            one.run(NOW, key, set(b"0"));
        }
        let (engine, isolation) = (&engine, &isolation);
        std::thread::scope(|scope| {
            // The gate opens in between: time goes on.
            let writer = move || {
                let mut session = engine.session();
                for round in 1..=ROUNDS {
                    let now = at(NOW.ms + u64::from(round) * 7);
                    let value = round.to_string();
                    let mut transaction = isolation.begin(now, [&b"b"[..], b"a"]);
                    for key in [b"a", b"b"] {
                        let set = op(key, set(value.as_bytes()));
                        transaction.run(&mut session, now, &set, &mut Keep::default());
                    }
                }
            };
            let reader = move || {
                let mut client = Client {
                    member: isolation.member(),
                    session: engine.session(),
                };
                let number = |value: Option<Vec<u8>>| -> u32 {
                    String::from_utf8(value.unwrap()).unwrap().parse().unwrap()
                };
                for round in 0..=u64::from(2 * ROUNDS) {
                    let now = at(NOW.ms + round * LINGER_MS);
                    let b = number(client.run(now, b"b", Verb::Get(Get::default())));
                    let a = number(client.run(now, b"a", Verb::Get(Get::default())));
                    assert!(a >= b, "{a} before {b}");
                }
            };
            scope.spawn(writer);
            scope.spawn(reader);
            scope.spawn(reader);
        });
        assert_eq!(one.get(b"a"), one.get(b"b"));
    }
    with_every_engine!(check);
}
