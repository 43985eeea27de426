//! Two or three threads above a session whose items are plain memory: loom reports every access
//! that the gate and the stripes do not order.

use super::*;
use corewise_atomic::cell::DataCell;
use corewise_atomic::{model, model_bounded, thread};
use corewise_ops::{Change, Deadline, Flow, Get, ItemFlags, ItemKind, ItemView, Op, Outcome, Verb};

const NOW: Now = Now::new(0, 0);
/// The gate may be opened by now.
const LATER: Now = Now::new(LINGER_MS, 0);
const A: &[u8] = b"a";
const B: &[u8] = b"b";

/// One byte for each key, without any synchronisation.
struct Memory([DataCell<u8>; 2]);

#[derive(Clone)]
struct Plain(Arc<Memory>);

impl Plain {
    fn new() -> Self {
        Self(Arc::new(Memory([DataCell::new(0), DataCell::new(0)])))
    }

    fn cell(&self, key: &[u8]) -> &DataCell<u8> {
        &self.0.0[usize::from(key == B)]
    }
}

fn view<'v>(key: &'v [u8], value: &'v [u8]) -> ItemView<'v> {
    ItemView {
        key,
        value,
        client_flags: 0,
        cas: 1, // always, so that only the marks of writers show that an item has changed
        deadline: Deadline::NEVER,
        idle_s: 0,
        flags: ItemFlags::NONE,
        footprint: 1,
        size_class: 0,
        kind: ItemKind::String,
    }
}

impl Session for Plain {
    fn submit<S: ReplySink>(&mut self, _: Now, ops: &[Op<'_>], sink: &mut S) -> usize {
        for op in ops {
            assert!(matches!(op.verb, Verb::Get(_)));
            // SAFETY: no other thread writes it now, which is what the models check.
            let value = [unsafe { self.cell(op.key).read() }];
            let _ = sink.complete(op.token, Outcome::Found(view(op.key, &value)));
        }
        ops.len()
    }

    fn update(&mut self, _: Now, key: &[u8], update: &mut dyn Update) -> Updated {
        self.cell(key).with_mut(|cell| {
            // SAFETY: no other thread accesses it now, which is what the models check.
            let cell = unsafe { &mut *cell };
            let old = [*cell];
            if let Change::Write { value, .. } = update.update(Some(&view(key, &old))) {
                *cell = value[0];
            }
        });
        Updated::Done
    }

    fn poll<S: ReplySink>(&mut self, _: Now, _: &mut S) -> usize {
        0
    }

    fn maintain(&mut self, _: Now) -> bool {
        false
    }
}

/// Adds one, and notes the old value.
#[derive(Default)]
struct Increment {
    old: u8,
    new: [u8; 1],
}

impl Update for Increment {
    fn update(&mut self, old: Option<&ItemView<'_>>) -> Change<'_> {
        self.old = old.unwrap().value[0];
        self.new = [self.old + 1];
        Change::Write {
            value: &self.new,
            client_flags: 0,
            deadline: Deadline::NEVER,
        }
    }
}

struct Read(u8);

impl ReplySink for Read {
    fn complete(&mut self, _: u32, outcome: Outcome<'_>) -> Flow {
        let Outcome::Found(view) = outcome else {
            panic!("every key has an item");
        };
        self.0 = view.value[0];
        Flow::Continue
    }
}

fn get(key: &[u8]) -> Op<'_> {
    Op::new(0, key, Verb::Get(Get::default()))
}

impl IsolatedTransaction<'_> {
    /// Increments the byte of a key and returns the old one.
    fn increment(&mut self, session: &mut Plain, key: &[u8]) -> u8 {
        let mut increment = Increment::default();
        assert_eq!(
            self.update(session, NOW, key, &mut increment),
            Updated::Done
        );
        increment.old
    }
}

impl Member {
    fn read(&mut self, session: &mut Plain, now: Now, key: &[u8]) -> u8 {
        let mut read = Read(0);
        let progress = self.run(session, now, &[get(key)], &mut read);
        assert_eq!((progress.accepted, progress.pending), (1, 0));
        read.0
    }

    fn increment(&mut self, session: &mut Plain, now: Now, key: &[u8]) {
        let updated = self.update(session, now, key, &mut Increment::default());
        assert_eq!(updated, Updated::Done);
    }
}

/// Guarantee 1, and the orderings of the gate. Mutants `passes_a_guarded_gate`,
/// `enters_without_barrier`, `does_not_wait`, `relaxed_end_of_batch`.
#[test]
fn an_operation_comes_before_a_transaction_or_after_it() {
    model(|| {
        let isolation = Arc::new(Isolation::new());
        let session = Plain::new();
        let mut member = isolation.member();
        let mut its_session = session.clone();
        let writer = thread::spawn(move || member.increment(&mut its_session, NOW, A));
        let mut session = session;
        let mut transaction = isolation.begin(NOW, [A]);
        let first = transaction.increment(&mut session, A);
        let second = transaction.increment(&mut session, A);
        assert_eq!(second, first + 1, "a write came in between");
        drop(transaction);
        writer.join().unwrap();
        let last = isolation.begin(NOW, [A]).increment(&mut session, A);
        assert_eq!(last, 3);
    });
}

/// Operations that find the gate open again see the transaction. Mutants `relaxed_opening`,
/// `relaxed_look_at_gate`.
#[test]
fn an_operation_in_an_open_gate_sees_the_transaction_before() {
    model(|| {
        let isolation = Arc::new(Isolation::new());
        let session = Plain::new();
        let mut member = isolation.member();
        let mut its_session = session.clone();
        let reader = thread::spawn(move || {
            let b = member.read(&mut its_session, NOW, B);
            let a = member.read(&mut its_session, NOW, A);
            assert!(a >= b, "half of a transaction");
        });
        let mut session = session;
        let mut transaction = isolation.begin(NOW, [A, B]);
        transaction.increment(&mut session, A);
        transaction.increment(&mut session, B);
        drop(transaction);
        isolation.gate.open_if_unused(LATER);
        reader.join().unwrap();
    });
}

/// Mutant `opens_a_used_gate`.
#[test]
fn the_gate_stays_guarded_while_a_transaction_runs() {
    model(|| {
        let isolation = Arc::new(Isolation::new());
        let session = Plain::new();
        let mut member = isolation.member();
        let mut its_session = session.clone();
        let writer = thread::spawn(move || {
            member.increment(&mut its_session, LATER, B); // opens it, if it may
            member.increment(&mut its_session, LATER, A);
        });
        let mut session = session;
        let mut transaction = isolation.begin(NOW, [A]);
        let first = transaction.increment(&mut session, A);
        let second = transaction.increment(&mut session, A);
        assert_eq!(second, first + 1, "a write came in between");
        drop(transaction);
        writer.join().unwrap();
    });
}

/// Guarantee 3. Mutant `locks_in_the_order_of_keys`.
#[test]
fn transactions_with_keys_in_opposite_orders_end() {
    model_bounded(3, || {
        let isolation = Arc::new(Isolation::new());
        let session = Plain::new();
        let other = (Arc::clone(&isolation), session.clone());
        let thread = thread::spawn(move || {
            let (isolation, mut session) = other;
            let mut transaction = isolation.begin(NOW, [B, A]);
            transaction.increment(&mut session, B);
            transaction.increment(&mut session, A);
        });
        let mut session = session;
        let mut transaction = isolation.begin(NOW, [A, B]);
        let a = transaction.increment(&mut session, A);
        let b = transaction.increment(&mut session, B);
        assert_eq!(a, b);
        drop(transaction);
        thread.join().unwrap();
    });
}

/// Guarantee 2. Mutants `misses_a_write`, `passes_a_guarded_gate`.
#[test]
fn a_watch_sees_every_write() {
    model(|| {
        let isolation = Arc::new(Isolation::new());
        let session = Plain::new();
        let mut member = isolation.member();
        let mut its_session = session.clone();
        let writer = thread::spawn(move || member.increment(&mut its_session, NOW, A));
        let mut session = session;
        let mut watches = Watches::new(&isolation, NOW);
        watches.add(&mut session, NOW, A);
        let before = isolation.begin(NOW, [A]).read_a(&mut session);
        let mut transaction = isolation.begin(NOW, [A]);
        let is_unchanged = watches.are_unchanged(&transaction, &mut session, NOW);
        let after = transaction.read_a(&mut session);
        assert!(!is_unchanged || before == after, "a write was missed");
        drop(transaction);
        drop(watches);
        writer.join().unwrap();
    });
}

impl IsolatedTransaction<'_> {
    /// The byte of the key `A`.
    fn read_a(&mut self, session: &mut Plain) -> u8 {
        let mut read = Read(0);
        self.run(session, NOW, &get(A), &mut read);
        read.0
    }
}
