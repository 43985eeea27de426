//! The oracle passes an honest server and detects one that loses items, returns old ones, or counts
//! wrongly.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use corewise_load::config::{Address, Protocol, Target};
use corewise_load::{Check, LoadError, OracleConfig, OracleReport, Sizes, check_server};

/// What the server does wrong, at every thousandth opportunity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    Nothing,
    /// A get returns the previous value.
    Stale,
    /// A get returns a deleted value.
    Resurrect,
    /// A set is acknowledged and not executed.
    Lose,
    /// `flush_all` is acknowledged and not executed.
    IgnoreFlush,
    /// Items never expire.
    Immortal,
    /// `incr` returns a number that is one too large.
    Miscount,
    /// A byte of a value is wrong.
    WrongByte,
    /// Replies stop coming.
    Hang,
}

struct Item {
    value: Vec<u8>,
    dies: Option<Instant>,
}

/// The store behind all connections.
struct Store {
    items: HashMap<String, Item>,
    /// The value of each key before its last change.
    before: HashMap<String, Vec<u8>>,
    /// Bytes of values; a store that would exceed them is refused.
    room: usize,
    used: usize,
    chances: u32,
    lie: Lie,
}

/// One of this many opportunities is used to lie.
const CHANCE: u32 = 1_000;

impl Store {
    /// Whether to use this opportunity for `lie`.
    fn lies(&mut self, lie: Lie) -> bool {
        if self.lie != lie {
            return false;
        }
        self.chances += 1;
        self.chances.is_multiple_of(CHANCE)
    }

    fn live(&mut self, key: &str) -> Option<Vec<u8>> {
        let item = self.items.get(key)?;
        if item.dies.is_some_and(|dies| Instant::now() >= dies) && self.lie != Lie::Immortal {
            self.remove(key);
            return None;
        }
        Some(item.value.clone())
    }

    fn remove(&mut self, key: &str) {
        if let Some(old) = self.items.remove(key) {
            self.used -= old.value.len();
            self.before.insert(key.into(), old.value);
        }
    }

    fn store(&mut self, key: &str, value: Vec<u8>, ttl: &str) -> &'static str {
        let old = self.items.get(key).map_or(0, |item| item.value.len());
        if self.used - old + value.len() > self.room {
            self.remove(key);
            return "SERVER_ERROR out of memory storing object";
        }
        if self.lies(Lie::Lose) {
            self.remove(key);
            return "STORED";
        }
        self.remove(key);
        self.used += value.len();
        let dies = dies(ttl);
        self.items.insert(key.into(), Item { value, dies });
        "STORED"
    }

    /// The reply to a command line and its data.
    fn answer(&mut self, words: &[&str], data: Vec<u8>) -> Vec<u8> {
        let key = words.get(1).copied().unwrap_or_default();
        let old = self.live(key);
        let reply = match (words[0], old) {
            ("get", old) => return self.get(key, old),
            ("set", _) | ("add", None) | ("replace", Some(_)) => self.store(key, data, words[3]),
            ("append", Some(old)) => self.join(key, &[&old, &data]),
            ("prepend", Some(old)) => self.join(key, &[&data, &old]),
            ("add" | "replace" | "append" | "prepend", _) => "NOT_STORED",
            ("delete", Some(_)) => {
                self.remove(key);
                "DELETED"
            }
            ("touch", Some(_)) => {
                self.items.get_mut(key).expect("it is live").dies = dies(words[2]);
                "TOUCHED"
            }
            ("incr" | "decr", Some(old)) => return self.count(words, key, &old),
            ("delete" | "touch" | "incr" | "decr", None) => "NOT_FOUND",
            ("flush_all", _) => {
                if self.lie != Lie::IgnoreFlush {
                    let keys: Vec<_> = self.items.keys().cloned().collect();
                    keys.iter().for_each(|key| self.remove(key));
                }
                "OK"
            }
            ("cache_memlimit", _) => "OK",
            ("version", _) => "VERSION fake 1",
            ("stats", _) => {
                let (n, bytes) = (self.items.len(), self.used);
                return format!("STAT curr_items {n}\r\nSTAT bytes {bytes}\r\nEND\r\n").into();
            }
            _ => "ERROR",
        };
        format!("{reply}\r\n").into()
    }

    /// Replaces the value by the joined pieces; the expiry time of the item stays.
    fn join(&mut self, key: &str, pieces: &[&[u8]]) -> &'static str {
        let value = pieces.concat();
        let item = self.items.get_mut(key).expect("it is live");
        self.used += value.len() - item.value.len();
        item.value = value;
        "STORED"
    }

    fn count(&mut self, words: &[&str], key: &str, old: &[u8]) -> Vec<u8> {
        let number = |text: &[u8]| -> u64 {
            let text = std::str::from_utf8(text).expect("a number");
            text.parse().expect("a number")
        };
        let (old, by) = (number(old), number(words[2].as_bytes()));
        let mut new = if words[0] == "incr" {
            old + by
        } else {
            old - by
        };
        new += u64::from(self.lies(Lie::Miscount));
        self.join(key, &[new.to_string().as_bytes()]);
        format!("{new}\r\n").into()
    }

    fn get(&mut self, key: &str, value: Option<Vec<u8>>) -> Vec<u8> {
        let mut value = value;
        let before = self.before.get(key).cloned();
        match (&mut value, before) {
            (Some(value), Some(before)) if before != *value && self.lies(Lie::Stale) => {
                *value = before;
            }
            (value @ None, Some(before)) if self.lies(Lie::Resurrect) => *value = Some(before),
            (Some(value), _) if value.len() > 9 && self.lies(Lie::WrongByte) => value[9] ^= 1,
            _ => {}
        }
        let Some(value) = value else {
            return b"END\r\n".into();
        };
        let mut reply = format!("VALUE {key} 0 {}\r\n", value.len()).into_bytes();
        reply.extend_from_slice(&value);
        reply.extend_from_slice(b"\r\nEND\r\n");
        reply
    }
}

/// The expiry time of an item with this time to live.
fn dies(ttl: &str) -> Option<Instant> {
    let ttl: u64 = ttl.parse().expect("a time to live");
    (ttl != 0).then(|| Instant::now() + Duration::from_secs(ttl))
}

/// Starts a server with room for `room` bytes of values; it ends with the test program.
fn start(lie: Lie, room: usize) -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = Address::Tcp(listener.local_addr().expect("bound"));
    let store = Arc::new(Mutex::new(Store {
        items: HashMap::new(),
        before: HashMap::new(),
        room,
        used: 0,
        chances: 0,
        lie,
    }));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let store = Arc::clone(&store);
            std::thread::spawn(move || serve(stream, &store));
        }
    });
    Target {
        address,
        protocol: Protocol::Memcached,
        pid: Some(std::process::id()),
    }
}

/// Serves one connection until it fails.
fn serve(stream: TcpStream, store: &Mutex<Store>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut out = stream.try_clone()?;
    let mut input = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let words: Vec<&str> = line.trim_end().split(' ').collect();
        let mut data = Vec::new();
        if ["set", "add", "replace", "append", "prepend"].contains(&words[0]) {
            data.resize(words[4].parse::<usize>().expect("a length") + 2, 0);
            input.read_exact(&mut data)?;
            data.truncate(data.len() - 2);
        }
        let mut store = store.lock().expect("no panic");
        if store.lies(Lie::Hang) {
            std::thread::park();
        }
        let reply = store.answer(&words, data);
        drop(store);
        out.write_all(&reply)?;
    }
}

const LIMIT: u64 = 1 << 20;

fn mixed(lie: Lie, room: usize, evicts: bool, seconds: f64) -> Result<OracleReport, LoadError> {
    check(&mixed_config(lie, room, evicts, seconds))
}

fn mixed_config(lie: Lie, room: usize, evicts: bool, seconds: f64) -> OracleConfig {
    OracleConfig {
        target: start(lie, room),
        check: Check::Mixed,
        sizes: Sizes::Spread(50, 2_000),
        seconds,
        evicts,
        ..config()
    }
}

fn config() -> OracleConfig {
    OracleConfig {
        limit_bytes: LIMIT,
        connections: 4,
        pipeline: 8,
        reply_timeout_ms: 1_000,
        ..OracleConfig::default()
    }
}

fn check(config: &OracleConfig) -> Result<OracleReport, LoadError> {
    check_server(config, &mut |_| {})
}

/// Longer than a lie goes unnoticed on a busy machine; the check ends when it notices one.
const PATIENCE_S: f64 = 60.0;

/// Runs against a server that lies and returns the error, which must have exit code 3.
fn caught(lie: Lie, evicts: bool) -> String {
    let error = mixed(lie, usize::MAX, evicts, PATIENCE_S).expect_err("a lie went unnoticed");
    assert_eq!(error.exit_code(), 3, "{error}");
    error.to_string()
}

#[test]
fn an_honest_server_passes() {
    for (room, evicts) in [(usize::MAX, true), (usize::MAX, false), (100_000, false)] {
        let report = mixed(Lie::Nothing, room, evicts, 3.0).expect("honest");
        let report = report.mixed.expect("mixed");
        assert!(report.commands > 5_000 && report.hits > 500, "{report:?}");
        assert!(report.flushes + report.flushes_beside > 0, "{report:?}");
        assert!(report.memlimits > 0 && report.sweeps > 0);
        assert_eq!(report.refused > 0, room == 100_000, "{report:?}");
    }
}

#[test]
fn old_and_deleted_values_are_caught() {
    assert!(caught(Lie::Stale, true).contains("not the"));
    assert!(caught(Lie::Resurrect, true).contains("absent"));
    assert!(caught(Lie::WrongByte, true).contains("last acknowledged"));
}

#[test]
fn a_lost_item_is_caught_where_nothing_is_evicted() {
    assert!(caught(Lie::Lose, false).contains("lost"));
    mixed(Lie::Lose, usize::MAX, true, 1.0).expect("a server that evicts may lose items");
}

#[test]
fn a_flush_that_is_not_done_is_caught() {
    assert!(caught(Lie::IgnoreFlush, true).contains("absent"));
}

#[test]
fn items_that_do_not_expire_are_caught() {
    // Enough keys that most are not written again before they expire.
    let error = check(&OracleConfig {
        limit_bytes: 32 * LIMIT,
        ..mixed_config(Lie::Immortal, usize::MAX, true, PATIENCE_S)
    });
    let error = error.expect_err("a lie went unnoticed");
    assert_eq!(error.exit_code(), 3, "{error}");
    assert!(error.to_string().contains("expired"), "{error}");
}

#[test]
fn a_wrong_count_and_a_server_that_hangs_are_caught() {
    assert!(caught(Lie::Miscount, true).contains("by an incr"));
    assert!(caught(Lie::Hang, true).contains("no reply"));
}

#[test]
fn a_fill_finds_what_is_live() {
    for sizes in [Sizes::One(1_000), Sizes::Mix(50, 3_000)] {
        let report = check(&OracleConfig {
            target: start(Lie::Nothing, usize::MAX),
            sizes,
            turnovers: 2.0,
            ..config()
        });
        let fill = report.expect("honest").fill.expect("a fill");
        // Nothing is evicted: everything stored is live, including keys.
        assert!((1.99..2.2).contains(&fill.end_live), "{fill:?}");
        assert!((0.99..1.2).contains(&fill.min_live), "{fill:?}");
        assert_eq!((fill.end_items, fill.refused), (fill.stored, 0));
        assert!(fill.sample_error < 0.01 && fill.samples >= 16, "{fill:?}");
    }
}

#[test]
fn a_fill_ends_where_a_server_refuses_all_large_values() {
    let report = check(&OracleConfig {
        target: start(Lie::Nothing, LIMIT as usize / 8),
        sizes: Sizes::Grow(50, 200_000),
        turnovers: 2.0,
        ..config()
    });
    let fill = report.expect("honest").fill.expect("a fill");
    assert!(
        fill.refused > 0 && fill.stored + fill.refused < 20_000,
        "{fill:?}"
    );
}

#[test]
fn refusals_and_losses_are_counted() {
    let refuse = |lie| {
        let report = check(&OracleConfig {
            target: start(lie, LIMIT as usize * 9 / 10),
            check: Check::Refuse,
            sizes: Sizes::One(500),
            ..config()
        });
        report.expect("counted").refuse.expect("refuse")
    };
    let honest = refuse(Lie::Nothing);
    assert!((0.85..0.95).contains(&honest.first_refusal.expect("refused")));
    assert_eq!((honest.lost, honest.lost_later), (0, 0), "{honest:?}");
    assert_eq!(
        honest.incr_failed + honest.decr_failed + honest.touch_failed,
        0
    );
    assert!(honest.overwrites > 30 && honest.overwrites_failed == 0);
    assert!(refuse(Lie::Lose).lost > 0);
}

#[test]
fn items_that_a_flush_takes_with_it_are_counted() {
    let refill = |lie| {
        let report = check(&OracleConfig {
            target: start(lie, usize::MAX),
            check: Check::Refill,
            sizes: Sizes::One(200),
            ..config()
        });
        report.expect("counted").refill.expect("refill")
    };
    let honest = refill(Lie::Nothing);
    assert_eq!((honest.found, honest.flushed_found), (honest.stored, 0));
    let liar = refill(Lie::Lose);
    assert!(liar.found < liar.stored);
    assert!(refill(Lie::IgnoreFlush).flushed_found > 0);
}
