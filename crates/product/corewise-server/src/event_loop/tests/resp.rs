//! RESP: operations of a batch, frames and calls in one pipeline.

use super::*;
use crate::budget::BUDGET;
use crate::commands::RespSession;
use corewise_atomic::sync::atomic::AtomicU32;
use std::collections::HashMap;

fn connect(server: &mut TestServer) -> Client {
    server.connect_with(RespSession::new(true))
}

#[test]
fn a_pipeline_of_commands_on_one_key_is_one_batch() {
    let mut server = TestServer::new();
    let mut client = connect(&mut server);
    let round = "incr n\r\nappend s ab\r\nsetrange s 0 x\r\nexpire s 100\r\ngetdel s\r\n\
                 set l v nx\r\ndel l\r\nget n\r\nttl n\r\n";
    let replies = server.talk(&mut client, round.repeat(5).as_bytes());
    let expected: String = (1..=5)
        .map(|n| {
            format!(
                ":{n}\r\n:2\r\n:2\r\n:1\r\n$2\r\nxb\r\n+OK\r\n:1\r\n$1\r\n{n}\r\n\
                 :-1\r\n"
            )
        })
        .collect();
    assert_eq!(replies, expected);
    let counters = server.counters();
    assert_eq!((counters.batches, counters.resp_calls), (1, 0));
    assert_eq!(counters.operations, 45);
}

#[test]
fn a_call_is_executed_at_its_place_between_operations() {
    let mut server = TestServer::new();
    let (mut one, mut other) = (connect(&mut server), connect(&mut server));
    other.send(b"incr n\r\nincr n\r\n");
    let replies = server.talk(
        &mut one,
        b"set k 1\r\nincr k\r\nexists k k none\r\nincr k\r\ngetrange k 0 -1\r\ndel k x\r\nget k\r\n",
    );
    assert_eq!(replies, "+OK\r\n:2\r\n:2\r\n:3\r\n$1\r\n3\r\n:1\r\n$-1\r\n");
    assert_eq!(server.talk(&mut other, b""), ":1\r\n:2\r\n");
    let executed = server.executed();
    let of_k = executed.iter().filter(|line| line.ends_with(" k"));
    let verbs: Vec<&str> = of_k.map(|line| line.split(' ').next().unwrap()).collect();
    let expected = "store edit get get edit get delete get";
    assert_eq!(verbs.join(" "), expected);
}

/// A generator of numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % end
    }
}

/// What the server must answer: items of the keys of one connection.
#[derive(Default)]
struct Oracle(HashMap<String, String>);

impl Oracle {
    /// A random request on these keys, and its reply. Some are operations and some are calls.
    fn next(&mut self, random: &mut Numbers, keys: &[String]) -> (String, String) {
        let key = &keys[random.below(keys.len() as u64) as usize];
        let other = &keys[random.below(keys.len() as u64) as usize];
        let items = &mut self.0;
        let present = items.get(key).cloned();
        let value = present.clone().unwrap_or_default();
        let number = random.below(1_000);
        let integer = |number: usize| format!(":{number}\r\n");
        match random.below(12) {
            0 => {
                items.insert(key.clone(), number.to_string());
                (format!("set {key} {number}"), "+OK\r\n".to_owned())
            }
            1 | 2 => self.incr(key),
            3 => {
                let longer = value + "x";
                let reply = integer(longer.len());
                items.insert(key.clone(), longer);
                (format!("append {key} x"), reply)
            }
            4 => (format!("getdel {key}"), bulk(&items.remove(key))),
            5 => {
                let old = items.insert(key.clone(), number.to_string());
                (format!("getset {key} {number}"), bulk(&old))
            }
            6 => {
                let count = [key, other]
                    .into_iter()
                    .filter(|key| items.remove(*key).is_some());
                let reply = integer(count.count());
                (format!("del {key} {other}"), reply)
            }
            7 => {
                let count = [key, other, key]
                    .into_iter()
                    .filter(|key| items.contains_key(*key));
                let reply = integer(count.count());
                (format!("exists {key} {other} {key}"), reply)
            }
            8 => {
                let values = [
                    bulk(&items.get(key).cloned()),
                    bulk(&items.get(other).cloned()),
                ];
                (
                    format!("mget {key} {other}"),
                    format!("*2\r\n{}", values.concat()),
                )
            }
            9 => (format!("echo {number}"), bulk(&Some(number.to_string()))),
            10 => (format!("strlen {key}"), integer(value.len())),
            _ => (format!("get {key}"), bulk(&present)),
        }
    }

    /// An increment, and its reply.
    fn incr(&mut self, key: &String) -> (String, String) {
        let present = self.0.get(key).cloned();
        let sum = match present.as_deref().map(str::parse::<i64>) {
            None => Some(1),
            Some(Ok(value)) if !value_is_padded(&present) => Some(value + 1),
            Some(_) => None,
        };
        let reply = match sum {
            Some(sum) => {
                self.0.insert(key.clone(), sum.to_string());
                format!(":{sum}\r\n")
            }
            None => "-ERR value is not an integer or out of range\r\n".to_owned(),
        };
        (format!("incr {key}"), reply)
    }
}

/// A value as it is sent, or null.
fn bulk(value: &Option<String>) -> String {
    match value {
        Some(value) => format!("${}\r\n{value}\r\n", value.len()),
        None => "$-1\r\n".to_owned(),
    }
}

/// Whether a value is not in the form in which Redis prints an integer.
fn value_is_padded(value: &Option<String>) -> bool {
    value.as_ref().is_some_and(|value| {
        value
            .parse::<i64>()
            .is_ok_and(|number| number.to_string() != *value)
    })
}

#[test]
fn random_pipelines_of_operations_and_calls_are_answered_in_order() {
    for index in 0..6 {
        let mut server = TestServer::new();
        if index % 2 == 1 {
            // Each unit takes the budget of a connection.
            let steps = AtomicU32::new(0);
            // Relaxed: one thread.
            let clock = move || BUDGET * steps.fetch_add(1, Ordering::Relaxed);
            server.event_loop.budget.clock = Box::new(clock);
        }
        let mut random = Numbers(index as u64);
        let mut clients: Vec<(Client, Oracle, Vec<String>)> = (0..3)
            .map(|client| {
                let keys = (0..3).map(|key| format!("{client}-{key}")).collect();
                (connect(&mut server), Oracle::default(), keys)
            })
            .collect();
        for _ in 0..40 {
            // All of them have requests in the same turn.
            let mut expected = Vec::new();
            for (client, oracle, keys) in &mut clients {
                let (mut pipeline, mut replies) = (String::new(), String::new());
                for _ in 0..random.below(30) {
                    let (request, reply) = oracle.next(&mut random, keys);
                    pipeline += &format!("{request}\r\n");
                    replies += &reply;
                }
                client.send(pipeline.as_bytes());
                expected.push(replies);
            }
            for ((client, ..), expected) in clients.iter_mut().zip(&expected) {
                assert_eq!(&server.talk(client, b""), expected);
            }
        }
    }
}

#[test]
fn edits_that_a_full_socket_rewinds_are_executed_once() {
    let mut server = TestServer::new();
    let mut client = connect(&mut server);
    server.set("large", "v".repeat(OUTPUT_PAUSE / 4).as_bytes());
    let requests = "incr n\r\nget large\r\n".repeat(40);
    let replies = server.talk(&mut client, requests.as_bytes());
    let large = format!(
        "${}\r\n{}\r\n",
        OUTPUT_PAUSE / 4,
        "v".repeat(OUTPUT_PAUSE / 4)
    );
    let expected: String = (1..=40).map(|n| format!(":{n}\r\n{large}")).collect();
    assert!(replies == expected);
}
