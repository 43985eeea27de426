//! Operations on one thread, to count their instructions with callgrind.
//!
//! ```sh
//! cargo build --release -p corewise-nr --example costs
//! valgrind --tool=callgrind target/release/examples/costs nr2 write 20000
//! ```
//!
//! The instructions of an operation are the difference of two runs, divided by the difference of
//! their numbers of operations. The structure is an array of 16 words: executing an operation costs
//! a few instructions, the rest is the method. The operations are writes, reads, or `mixed`: a
//! write and a read in turn, at different replicas if there are two, so that each read finds a
//! replica that is behind. `nr1` and `nr2` are node replication with one and two replicas; the
//! second one is idle, and writers execute the log on it. `both` are two replicas that one thread
//! writes to in turn. `own` is `nr2` through a handle. `rwl`, `fc` and `fc+` are baselines, `crate`
//! is the crate `node-replication` 0.1.1 with one replica, and `crate2` with two that are written
//! to in turn. `locked` is a mutex.

use std::hint::black_box;
use std::sync::{Arc, Mutex};

use corewise_nr::baseline::{FlatCombining, FlatCombiningPlus, ReadersWriterLocked};
use corewise_nr::{Builder, Concurrent, NodeReplicated, Operation, Sequential};
use node_replication::{Dispatch, Log, Replica};

#[derive(Clone, Default)]
struct Words([u64; 16]);

impl Sequential for Words {
    type Read = u64;
    type Write = u64;
    type Response = u64;
    fn read(&self, place: &u64) -> u64 {
        self.0[*place as usize % 16]
    }
    fn write(&mut self, place: &u64) -> u64 {
        self.0[*place as usize % 16] += 1;
        self.0[*place as usize % 16]
    }
}

impl Dispatch for Words {
    type ReadOperation = u64;
    type WriteOperation = u64;
    type Response = u64;
    fn dispatch(&self, place: u64) -> u64 {
        self.read(&place)
    }
    fn dispatch_mut(&mut self, place: u64) -> u64 {
        self.write(&place)
    }
}

fn build(replicas: usize) -> NodeReplicated<Words> {
    let builder = Builder::new().replicas(replicas);
    builder.build(|_| Words::default()).expect("valid sizes")
}

fn repeat(count: u64, mut operation: impl FnMut(u64) -> u64) {
    (0..count).for_each(|number| _ = black_box(operation(black_box(number))));
}

/// Which operations are writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Write,
    Read,
    Mixed,
}

impl Kind {
    #[inline]
    fn is_write(self, number: u64) -> bool {
        match self {
            Self::Write => true,
            Self::Read => false,
            Self::Mixed => number.is_multiple_of(2),
        }
    }
}

fn concurrent(subject: impl Concurrent<Words>, kind: Kind, count: u64) {
    repeat(count, |number| match kind.is_write(number) {
        true => subject.execute(Operation::Write(number)),
        false => subject.execute(Operation::Read(number)),
    });
}

fn handles(shared: &NodeReplicated<Words>, turns: usize, kind: Kind, count: u64) {
    let ids = shared.replicas();
    let handles: Vec<_> = ids[..turns]
        .iter()
        .map(|&id| shared.handle(Some(id)).expect("live"))
        .collect();
    repeat(count, |number| {
        let handle = &handles[number as usize % turns];
        match kind.is_write(number) {
            true => handle.write(number),
            false => handle.read(|words| words.read(&number)),
        }
    });
}

fn peer(replicas: usize, kind: Kind, count: u64) {
    let log = Arc::new(Log::<u64>::new(2 << 20));
    let replicas: Vec<_> = (0..replicas)
        .map(|_| Replica::with_data(&log, Words::default()))
        .collect();
    let register = |it: &Arc<Replica<'_, Words>>| it.register().expect("one thread");
    let tokens: Vec<_> = replicas.iter().map(register).collect();
    repeat(count, |number| {
        let turn = number as usize % replicas.len();
        match kind.is_write(number) {
            true => replicas[turn].execute_mut(number, tokens[turn]),
            false => replicas[turn].execute(number, tokens[turn]),
        }
    });
}

fn locked(kind: Kind, count: u64) {
    let words = Mutex::new(Words::default());
    repeat(count, |number| {
        let mut words = words.lock().unwrap();
        match kind.is_write(number) {
            true => words.write(&number),
            false => words.read(&number),
        }
    });
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [method, kind, count] = &arguments[..] else {
        panic!("usage: costs METHOD write|read|mixed COUNT");
    };
    let count = count.parse().expect("a number");
    let kind = match kind.as_str() {
        "write" => Kind::Write,
        "read" => Kind::Read,
        "mixed" => Kind::Mixed,
        _ => panic!("no such kind"),
    };
    let words = Words::default();
    match method.as_str() {
        "nr1" => concurrent(build(1), kind, count),
        "nr2" => concurrent(build(2), kind, count),
        "own" => handles(&build(2), 1, kind, count),
        "both" => handles(&build(2), 2, kind, count),
        "rwl" => concurrent(ReadersWriterLocked::new(words), kind, count),
        "fc" => concurrent(FlatCombining::new(words), kind, count),
        "fc+" => concurrent(FlatCombiningPlus::new(words), kind, count),
        "crate" => peer(1, kind, count),
        "crate2" => peer(2, kind, count),
        "locked" => locked(kind, count),
        _ => panic!("no such method"),
    }
}
