//! An engine for tests: a model of memcached that notes what it executes, and completes
//! operations where the test says.

use corewise_atomic::lock::Mutex;
use corewise_engine::engines::relativistic::{Config, Relativistic, RelativisticSession};
use corewise_engine::{ClassStats, Cursor, Engine, EngineStats, Reservation, ScanStep, Session};
use corewise_ops::sorted::{Members, SortedOp, SortedRead, SortedResult};
use corewise_ops::{
    Deadline, Edit, Flow, ItemView, Now, Op, Outcome, ReplySink, Store, StoreMode, Update, Updated,
    Verb,
};
use corewise_testkit::memcached::{MemcachedModel, Seen};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::task::Waker;

/// The key of operations in which the engine panics.
pub(crate) const PANIC_KEY: &str = "panic";

/// Where operations complete.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Completion {
    /// In `submit`, as in an engine that looks items up.
    InSubmit,
    /// In `poll`, as in an engine that passes messages.
    InPoll {
        /// Operations that the engine holds at most.
        queue: usize,
        /// Operations that one call of `poll` completes at most.
        at_once: usize,
        /// Calls of `poll` that complete nothing before one that does.
        idle: usize,
    },
}

/// What a test sees of the engine, and what it sets.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) model: MemcachedModel,
    /// The operations that were executed, in order: `get k`, `store k`, `flush`.
    pub(crate) executed: Vec<String>,
    /// Keys for which the engine has no memory.
    pub(crate) no_memory: HashSet<Vec<u8>>,
    /// Whether the engine receives large values in place.
    pub(crate) reserves: bool,
    /// Bytes of such a value that must have arrived.
    pub(crate) least_arrived: usize,
    /// Bytes that eviction is still to give back.
    pub(crate) excess: u64,
    /// How many stores had a reservation.
    pub(crate) stored_reserved: usize,
    /// What wakes the session.
    pub(crate) waker: Option<Waker>,
    /// Nothing completes before the session is woken.
    pub(crate) is_asleep: bool,
    /// How many members of a thousand bytes the set at `big` has.
    pub(crate) members: usize,
    pub(crate) stats: EngineStats,
    pub(crate) classes: Vec<ClassStats>,
}

/// An engine that completes operations in `submit`.
pub(crate) type FakeEngine = Fake<false>;

/// The engine. With `LATE`, its caller saves the replies until operations have completed.
pub(crate) struct Fake<const LATE: bool> {
    completion: Completion,
    pub(crate) script: Mutex<Script>,
    /// Grants the reservations; it stores nothing.
    lender: Arc<Relativistic>,
}

impl<const LATE: bool> Fake<LATE> {
    pub(crate) fn new(completion: Completion) -> Arc<Self> {
        let lender = Relativistic::new(Config {
            memory: 64 << 20,
            huge_pages: false,
            ..Config::default()
        });
        Arc::new(Self {
            completion,
            script: Mutex::new(Script {
                reserves: true,
                ..Script::default()
            }),
            lender: Arc::new(lender),
        })
    }

    /// Reservations that are alive. Each keeps a reference to the engine that granted it, as do
    /// this engine and its session.
    pub(crate) fn reservations(&self) -> usize {
        Arc::strong_count(&self.lender) - 2
    }
}

impl Script {
    pub(crate) fn set(&mut self, key: &str, value: &[u8]) {
        let verb = Verb::Store(Store::new(StoreMode::Set, value));
        let op = Op::new(0, key.as_bytes(), verb);
        let now = Now::new(1, 0);
        let seen = Seen::by(|sink| self.model.run(now, &op, sink));
        assert!(seen.is_stored(), "{seen:?}");
    }

    fn execute<S: ReplySink>(&mut self, now: Now, op: &Op<'_>, sink: &mut S) -> Flow {
        let name = match op.verb {
            Verb::Get(_) => "get",
            Verb::Store(_) => "store",
            Verb::Delete(_) => "delete",
            Verb::Arith(_) => "arith",
            Verb::Edit(_) => "edit",
            Verb::Sorted(_) => "sorted",
            Verb::Filter(_) => "filter",
        };
        self.executed
            .push(format!("{name} {}", String::from_utf8_lossy(op.key)));
        assert_ne!(op.key, PANIC_KEY.as_bytes());
        if self.no_memory.contains(op.key) {
            return sink.complete(op.token, Outcome::OutOfMemory);
        }
        if let (Verb::Sorted(SortedOp::Read(read)), b"big") = (op.verb, op.key) {
            let members = LongMembers(match read {
                SortedRead::Range(range) => self.members.saturating_sub(range.skip).min(range.most),
                _ => self.members,
            });
            let result = match read {
                SortedRead::Range(_) => SortedResult::Members(&members),
                SortedRead::Count(_) | SortedRead::Len => SortedResult::Number(self.members as u64),
                _ => SortedResult::Number(self.members as u64 * 1_000),
            };
            let outcome = Outcome::Sorted {
                result,
                is_found: true,
                is_changed: false,
            };
            return sink.complete(op.token, outcome);
        }
        self.model.run(now, op, sink)
    }

    fn update(&mut self, now: Now, key: &[u8], update: &mut dyn Update) -> Updated {
        let name = String::from_utf8_lossy(key);
        self.executed.push(format!("update {name}"));
        if self.no_memory.contains(key) {
            return Updated::OutOfMemory;
        }
        self.model.update(now, key, update);
        Updated::Done
    }
}

/// This number of members of a thousand bytes.
struct LongMembers(usize);

impl Members for LongMembers {
    fn len(&self) -> usize {
        self.0
    }

    fn show(&self, show: &mut dyn FnMut(&[u8], f64) -> bool) {
        let _ = (0..self.0).all(|_| show(&[b'm'; 1_000], 1.0));
    }
}

/// An operation in the queue of the engine: copies, because keys and values are borrowed only until
/// `submit` returns.
struct Queued {
    token: u32,
    key: Vec<u8>,
    /// Its value is in `value` if it has one.
    verb: Verb<'static>,
    value: Vec<u8>,
}

impl Queued {
    fn new(op: &Op<'_>) -> Self {
        let mut value = Vec::new();
        let verb = match op.verb {
            Verb::Store(store) => {
                value.extend_from_slice(store.value);
                Verb::Store(Store {
                    value: b"",
                    ..store
                })
            }
            Verb::Delete(delete) => Verb::Delete(delete),
            Verb::Edit(edit) => {
                value.extend_from_slice(edit.value);
                Verb::Edit(Edit { value: b"", ..edit })
            }
            Verb::Arith(arith) => Verb::Arith(arith),
            Verb::Get(get) => Verb::Get(get),
            Verb::Sorted(_) => panic!("it keeps no arguments of sorted sets"),
            Verb::Filter(_) => panic!("it keeps no arguments of filters"),
        };
        Self {
            token: op.token,
            key: op.key.to_vec(),
            verb,
            value,
        }
    }

    fn op(&self) -> Op<'_> {
        let verb = match self.verb {
            Verb::Store(store) => Verb::Store(Store {
                value: &self.value,
                ..store
            }),
            Verb::Edit(edit) => Verb::Edit(Edit {
                value: &self.value,
                ..edit
            }),
            verb => verb,
        };
        Op::new(self.token, &self.key, verb)
    }
}

/// A thread's handle.
pub(crate) struct FakeSession<const LATE: bool> {
    engine: Arc<Fake<LATE>>,
    lender: RelativisticSession,
    queue: VecDeque<Queued>,
    /// Calls of `poll` since the last one that completed something.
    idle_polls: usize,
    is_online: bool,
}

impl<const LATE: bool> Session for FakeSession<LATE> {
    const LATE: bool = LATE;

    fn room(&self) -> usize {
        match self.completion() {
            Completion::InSubmit => usize::MAX,
            Completion::InPoll { queue, .. } => queue - self.queue.len(),
        }
    }

    fn set_waker(&mut self, waker: Waker) {
        self.engine.script.lock().waker = Some(waker);
    }

    fn submit<S: ReplySink>(&mut self, now: Now, ops: &[Op<'_>], sink: &mut S) -> usize {
        assert!(self.is_online, "nothing may be submitted now");
        if let Completion::InPoll { queue, .. } = self.completion() {
            let room = queue - self.queue.len();
            self.queue.extend(ops.iter().take(room).map(Queued::new));
            return ops.len().min(room);
        }
        let mut script = self.engine.script.lock();
        for (index, op) in ops.iter().enumerate() {
            if script.execute(now, op, sink) == Flow::Pause {
                return index + 1;
            }
        }
        ops.len()
    }

    fn reserve(
        &mut self,
        now: Now,
        key: &[u8],
        len: usize,
        flags: u32,
        arrived: usize,
    ) -> Option<Reservation> {
        let script = self.engine.script.lock();
        let reserves = script.reserves && arrived >= script.least_arrived;
        drop(script);
        let reservation = reserves.then(|| self.lender.reserve(now, key, len, flags, arrived));
        reservation.flatten()
    }

    fn submit_reserved<S: ReplySink>(
        &mut self,
        now: Now,
        op: &Op<'_>,
        reservation: Reservation,
        sink: &mut S,
    ) -> bool {
        self.engine.script.lock().stored_reserved += 1;
        let Verb::Store(store) = op.verb else {
            return self.submit(now, &[*op], sink) == 1;
        };
        let value = reservation.value();
        let verb = Verb::Store(Store { value, ..store });
        self.submit(now, &[Op { verb, ..*op }], sink) == 1
    }

    fn update(&mut self, now: Now, key: &[u8], update: &mut dyn Update) -> Updated {
        assert!(self.queue.is_empty(), "operations are pending");
        self.engine.script.lock().update(now, key, update)
    }

    fn poll<S: ReplySink>(&mut self, now: Now, sink: &mut S) -> usize {
        let Completion::InPoll { at_once, idle, .. } = self.completion() else {
            return 0;
        };
        if self.engine.script.lock().is_asleep {
            return self.queue.len();
        }
        if self.idle_polls < idle {
            self.idle_polls += 1;
            return self.queue.len();
        }
        self.idle_polls = 0;
        for _ in 0..at_once {
            let Some(queued) = self.queue.pop_front() else {
                break;
            };
            let mut script = self.engine.script.lock();
            if script.execute(now, &queued.op(), sink) == Flow::Pause {
                break;
            }
        }
        self.queue.len()
    }

    fn maintain(&mut self, _: Now) -> bool {
        false
    }

    fn offline(&mut self) -> bool {
        self.is_online = false;
        self.queue.is_empty() || self.engine.script.lock().is_asleep
    }

    fn online(&mut self) {
        self.is_online = true;
    }
}

impl<const LATE: bool> FakeSession<LATE> {
    fn completion(&self) -> Completion {
        self.engine.completion
    }
}

impl<const LATE: bool> Engine for Fake<LATE> {
    type Session = FakeSession<LATE>;

    fn name(&self) -> &'static str {
        "fake"
    }

    fn session(self: &Arc<Self>) -> FakeSession<LATE> {
        FakeSession {
            engine: Arc::clone(self),
            lender: self.lender.session(),
            queue: VecDeque::new(),
            idle_polls: 0,
            is_online: true,
        }
    }

    fn flush_all(&self, _: Deadline, _: Now) {
        let mut script = self.script.lock();
        script.executed.push("flush".to_owned());
        script.model.items.clear();
    }

    fn memory_limit(&self) -> u64 {
        64 << 20
    }

    fn set_memory_limit(&self, _: u64) {}

    fn excess(&self) -> u64 {
        self.script.lock().excess
    }

    fn stats(&self) -> EngineStats {
        self.script.lock().stats
    }

    fn size_classes(&self) -> Vec<ClassStats> {
        self.script.lock().classes.clone()
    }

    /// In the order of the keys. The cursor is the number of keys before it.
    fn scan(
        &self,
        cursor: Cursor,
        looks: usize,
        _: Now,
        show: &mut dyn FnMut(&ItemView<'_>),
    ) -> ScanStep {
        let mut script = self.script.lock();
        script.executed.push("scan".to_owned());
        let items = &script.model.items;
        let end = cursor.to_bits() as usize + looks;
        for (key, item) in items.iter().take(end).skip(cursor.to_bits() as usize) {
            show(&item.view(key));
        }
        if end < items.len() {
            ScanStep::More(Cursor::from_bits(end as u64))
        } else {
            ScanStep::Done
        }
    }
}
