//! Checks with `corewise-testkit` that the replies to several connections of one server are
//! linearizable: undisturbed, with flushes, while another connection makes the table grow, and
//! while another one causes evictions, when a value may vanish at any time but must not reappear.
//! Half of the requests use the classic protocol, half the meta protocol. The check must detect a
//! client that increments by reading and writing back.

use crate::common;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Client, Engine, Kind};
use corewise_testkit::history::models::{
    CacheCall, EntryOp, EntryOutcome, EvictingEntry, ItemVersion, MapEntry,
};
use corewise_testkit::history::{History, Recorder, Recording};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

for_every_engine! {
    histories_are_linearizable
    histories_are_linearizable_while_the_table_grows
    histories_are_linearizable_while_items_are_evicted
    a_client_that_increments_in_two_steps_is_found_out
}

const CONNECTIONS: u64 = 3;
/// Values written under a key differ by multiples of this, and no counter is incremented that
/// often. So a value identifies its writer.
const APART: u64 = 1_000_000;

type Random = Xoshiro256PlusPlus;
type Outcome = EntryOutcome<u64>;
type Recorded = History<u64, EntryOp<u64>, Outcome>;

/// The requests for a call in both protocols.
trait Encode {
    fn classic(self, key: &str) -> String;
    fn meta(self, key: &str) -> String;
}

impl Encode for CacheCall {
    fn classic(self, key: &str) -> String {
        let store = |command, value: u64, cas: &str| {
            let value = value.to_string();
            format!("{command} {key} 0 0 {}{cas}\r\n{value}\r\n", value.len())
        };
        match self {
            Self::Get => format!("gets {key}\r\n"),
            Self::Touch => format!("gats 1000 {key}\r\n"),
            Self::Expire => format!("gats -1 {key}\r\n"),
            Self::Set(value) => store("set", value, ""),
            Self::Add(value) => store("add", value, ""),
            Self::Swap { seen, new } => store("cas", new, &format!(" {}", seen.cas)),
            Self::Incr => format!("incr {key} 1\r\n"),
            Self::Delete => format!("delete {key}\r\n"),
        }
    }

    fn meta(self, key: &str) -> String {
        let store = |value: u64, flags: &str| {
            let value = value.to_string();
            format!("ms {key} {}{flags}\r\n{value}\r\n", value.len())
        };
        match self {
            Self::Get => format!("mg {key} c v\r\n"),
            Self::Touch => format!("mg {key} c T1000 v\r\n"),
            Self::Expire => format!("mg {key} c T-1 v\r\n"),
            Self::Set(value) => store(value, ""),
            Self::Add(value) => store(value, " ME"),
            Self::Swap { seen, new } => store(new, &format!(" C{}", seen.cas)),
            Self::Incr => format!("ma {key} v\r\n"),
            Self::Delete => format!("md {key}\r\n"),
        }
    }
}

/// One connection and its state.
struct Connection {
    client: Client,
    /// Prefix of the keys of this history.
    prefix: String,
    /// The version read last, by key.
    seen: Vec<Option<ItemVersion>>,
    random: Random,
    /// Whether it increments by reading and writing back.
    in_two_steps: bool,
}

impl Connection {
    fn perform(&mut self, key: u64, call: CacheCall) -> Outcome {
        if self.in_two_steps && matches!(call, CacheCall::Incr) {
            return self.increment_in_two_steps(key);
        }
        let name = format!("{}{key}", self.prefix);
        let request = if self.random.random() {
            call.classic(&name)
        } else {
            call.meta(&name)
        };
        self.client.send(request.as_bytes());
        match call {
            CacheCall::Get | CacheCall::Touch | CacheCall::Expire => {
                let version = self.version();
                self.seen[key as usize] = version;
                CacheCall::read(version)
            }
            CacheCall::Incr => CacheCall::incremented(self.counter()),
            _ => match self.client.line().as_str() {
                "STORED" | "DELETED" | "HD" => EntryOutcome::Done(true),
                "NOT_STORED" | "EXISTS" | "NS" | "EX" => EntryOutcome::Done(false),
                "NOT_FOUND" | "NF" => EntryOutcome::Held(None),
                other => panic!("{other} for {request}"),
            },
        }
    }

    fn increment_in_two_steps(&mut self, key: u64) -> Outcome {
        self.perform(key, CacheCall::Get);
        let old = self.seen[key as usize].map(|version| version.value);
        let new = old.map(|old| old + 1);
        if let Some(new) = new {
            self.perform(key, CacheCall::Set(new));
        }
        EntryOutcome::Updated { old, new }
    }

    /// Parses the reply to a read.
    fn version(&mut self) -> Option<ItemVersion> {
        let line = self.client.line();
        let words: Vec<&str> = line.split(' ').collect();
        let (cas, classic) = match words[..] {
            ["END" | "EN"] => return None,
            ["VALUE", _, _, _, cas] => (cas, true),
            ["VA", _, cas] => (cas.strip_prefix('c').expect("a cas value"), false),
            _ => panic!("{line} for a value"),
        };
        let cas = cas.parse().unwrap();
        let value = self.client.line().parse().unwrap();
        if classic {
            self.client.expect("END\r\n");
        }
        Some(ItemVersion { value, cas })
    }

    /// Parses the reply to an increment.
    fn counter(&mut self) -> Option<u64> {
        match self.client.line().as_str() {
            "NOT_FOUND" | "NF" => None,
            line if line.starts_with("VA ") => Some(self.client.line().parse().unwrap()),
            line => Some(line.parse().unwrap()),
        }
    }

    fn flush(&mut self) -> Outcome {
        self.client.ask("flush_all\r\n", "OK\r\n");
        EntryOutcome::Silent
    }
}

/// The workload of a history.
#[derive(Clone, Copy)]
struct Round {
    seed: u64,
    /// Minimum number of requests of each connection.
    requests: u64,
    keys: u64,
    /// Flushes in a thousand requests.
    flushes: u64,
    in_two_steps: bool,
}

impl Round {
    fn perform(
        self,
        connection: &mut Connection,
        mut recorder: Recorder<u64, EntryOp<u64>, Outcome>,
        number: u64,
        goes_on: &AtomicBool,
    ) {
        let mut random = Random::seed_from_u64(self.seed << 8 | number);
        for i in 1.. {
            if random.random_range(0..1_000) < self.flushes {
                recorder.record_on_each(0..self.keys, EntryOp::Remove, || connection.flush());
            }
            let key = random.random_range(0..self.keys);
            let unique = (i * CONNECTIONS + number) * APART;
            let face = random.random_range(0..CacheCall::FACES);
            let call = CacheCall::draw(face, unique, connection.seen[key as usize]);
            recorder.record(key, call.op(), || connection.perform(key, call));
            if i >= self.requests && !goes_on.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Records a history while `beside` runs; the connections continue until it returns.
    fn record(self, address: SocketAddr, beside: impl FnOnce()) -> Recorded {
        let recording = Recording::new();
        let goes_on = AtomicBool::new(true);
        let start = Barrier::new(CONNECTIONS as usize + 1);
        std::thread::scope(|scope| {
            for number in 0..CONNECTIONS {
                let mut connection = Connection {
                    client: Client::connect(address),
                    prefix: format!("history{}-", self.seed),
                    seen: vec![None; self.keys as usize],
                    random: Random::seed_from_u64(!self.seed << 8 | number),
                    in_two_steps: self.in_two_steps,
                };
                let recorder = recording.recorder(self.requests as usize);
                let (start, goes_on) = (&start, &goes_on);
                scope.spawn(move || {
                    start.wait();
                    self.perform(&mut connection, recorder, number, goes_on);
                });
            }
            let _ending = Ending(&goes_on);
            start.wait();
            beside();
        });
        recording.finish().unwrap()
    }
}

/// Ends a round when dropped, so also when `beside` panics.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// A history of a few keys, with flushes, and nothing beside it.
fn quiet(seed: u64) -> Round {
    Round {
        seed,
        requests: 1_000,
        keys: 3,
        flushes: 10,
        in_two_steps: false,
    }
}

fn histories_are_linearizable(engine: Engine) {
    let server = engine.start();
    let mut concurrent = 0;
    for seed in 0..3 {
        // In the last round, a flush comes every few requests.
        let round = Round {
            flushes: if seed < 2 { 10 } else { 200 },
            ..quiet(seed)
        };
        let history = round.record(server.address(), || ());
        let verdict = history.check(&MapEntry::new());
        println!("seed {seed}: {verdict}");
        concurrent += verdict.assert_linearizable().concurrent;
    }
    assert!(concurrent > 0, "no request overlapped another");
}

fn histories_are_linearizable_while_the_table_grows(engine: Engine) {
    const ITEMS: u64 = 60_000;
    let server = engine.start();
    let mut other = server.connect();
    // A flush would empty the table, which would start to grow again.
    let round = Round {
        flushes: 0,
        ..quiet(0)
    };
    let history = round.record(server.address(), || {
        for first in (0..ITEMS).step_by(1_000) {
            let mut stores = String::new();
            for i in first..first + 1_000 {
                let _ = write!(stores, "set other{i} 0 0 1 noreply\r\nx\r\n");
            }
            other.ask(stores + "mn\r\n", "MN\r\n");
        }
    });
    let verdict = history.check(&MapEntry::new());
    println!("{verdict}");
    let summary = verdict.assert_linearizable();
    assert!(summary.concurrent > 0, "no request overlapped another");
    let items = other.stat("curr_items");
    assert!((ITEMS..=ITEMS + round.keys).contains(&items), "{items}");
}

fn histories_are_linearizable_while_items_are_evicted(engine: Engine) {
    let server = engine.with(&["-m", "16"]);
    let mut other = server.connect();
    let value = "x".repeat(500_000);
    let mut forgetful = 0;
    // Whether a request meets an eviction depends on timing, so rounds are added until one does.
    for seed in 0..40 {
        if seed >= 2 && (forgetful > 0 || Kind::under_test() == Kind::Memcached) {
            break;
        }
        // Enough keys that some are not in use when they are evicted.
        let round = Round {
            keys: 400,
            flushes: 0,
            ..quiet(seed)
        };
        let history = round.record(server.address(), || {
            for i in 0..150 {
                let store = format!("set other{} 0 0 {}\r\n{value}\r\n", i % 100, value.len());
                other.ask(store, "STORED\r\n");
            }
        });
        let verdict = history.check(&EvictingEntry::new());
        println!("seed {seed}: {verdict}");
        verdict.assert_linearizable();
        forgetful += u64::from(history.check(&MapEntry::new()).violation().is_some());
    }
    // memcached evicts small items only for small ones.
    assert!(
        forgetful > 0 || Kind::under_test() == Kind::Memcached,
        "no request met an eviction"
    );
    assert!(other.stat("evictions") > 0);
}

fn a_client_that_increments_in_two_steps_is_found_out(engine: Engine) {
    let server = engine.start();
    let caught = (0..50).any(|seed| {
        let round = Round {
            in_two_steps: true,
            ..quiet(seed)
        };
        let history = round.record(server.address(), || ());
        history.check(&MapEntry::new()).violation().is_some()
    });
    assert!(caught, "no lost increment in 50 histories");
}
