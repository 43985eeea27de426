//! A request has the same answer as part of a batch, as a call, and in a transaction.

use super::*;
use crate::commands::{self, RespSession};
use corewise_engine::ManualClock;
use corewise_testkit::random::Random;
use corewise_wire::resp::encode_request;

/// Rows whose answers differ for a reason.
const EXCLUDED: &[&str] = &[
    // They are executed between `MULTI` and `EXEC`, not kept.
    "discard",
    "exec",
    "multi",
    "quit",
    "reset",
    "watch",
    // Refused between `MULTI` and `EXEC`.
    "client|reply",
    // They tell what the connection and the server have done.
    "slowlog",
    "slowlog|get",
    "slowlog|len",
    "client|info",
    "client|list",
    "info",
    // By chance.
    "randomkey",
];

/// Keys, numbers, options and words of all commands, and what none of them accepts.
const WORDS: &[&str] = &[
    "k",
    "l",
    "none",
    "",
    "0",
    "1",
    "2",
    "3",
    "-1",
    "7",
    "100",
    "99999",
    "4294967295",
    "9223372036854775807",
    "-9223372036854775808",
    "1.5",
    "2e1",
    "nan",
    " 1",
    "nx",
    "xx",
    "gt",
    "LT",
    "get",
    "set",
    "incrby",
    "overflow",
    "sat",
    "fail",
    "u8",
    "i5",
    "u64",
    "#1",
    "ex",
    "PX",
    "exat",
    "pxat",
    "keepttl",
    "persist",
    "and",
    "or",
    "NOT",
    "bit",
    "byte",
    "match",
    "*",
    "count",
    "type",
    "string",
    "replace",
    "db",
    "len",
    "idx",
    "minmatchlen",
    "withmatchlen",
    "help",
    "auth",
    "async",
    "samples",
];

/// A server, and a client whose requests take one of the ways.
struct Way {
    server: TestServer,
    client: Client,
}

impl Way {
    fn new(session: RespSession) -> Self {
        let clock = Arc::new(ManualClock::new(1_800_000_000));
        let mut server = TestServer::on(clock, Completion::InSubmit, Config::default());
        let client = server.connect_with(session);
        Self { server, client }
    }

    fn talk(&mut self, request: &[u8]) -> Vec<u8> {
        let replies = self.server.talk_bytes(&mut self.client, request);
        assert!(!self.client.is_closed, "{}", request.escape_ascii());
        replies
    }

    /// The reply to a request that a transaction consists of, or that is refused for it.
    fn talk_in_transaction(&mut self, request: &[u8]) -> Vec<u8> {
        let replies = self.talk(&[b"MULTI\r\n", request, b"EXEC\r\n"].concat());
        let refused = b"-EXECABORT Transaction discarded because of previous errors.\r\n";
        let reply = match replies.strip_prefix(b"+OK\r\n+QUEUED\r\n*1\r\n") {
            Some(reply) => Some(reply),
            None => {
                let refusal = replies.strip_prefix(b"+OK\r\n");
                refusal.and_then(|refusal| refusal.strip_suffix(refused))
            }
        };
        let Some(reply) = reply else {
            panic!("{}: {}", request.escape_ascii(), replies.escape_ascii());
        };
        reply.to_vec()
    }

    /// `Commandstats` and `Errorstats`, without the times.
    fn commands(&self) -> String {
        let sums = self.server.event_loop.shared.command_sums();
        let (mut commands, mut text) = (String::new(), String::new());
        sums.print_commands(&mut commands);
        for line in commands.lines() {
            let fields = line.split(',').filter(|field| !field.starts_with("usec"));
            text.push_str(&fields.collect::<Vec<_>>().join(","));
            text.push('\n');
        }
        sums.print_errors(&mut text);
        text
    }

    /// What all its requests have counted as.
    fn tallies(&self) -> [u64; 9] {
        let counters = self.server.counters();
        [
            counters.cmd_get,
            counters.get_hits,
            counters.get_misses,
            counters.cmd_touch,
            counters.touch_hits,
            counters.touch_misses,
            counters.cmd_set,
            counters.delete_hits,
            counters.delete_misses,
        ]
    }
}

/// A random request of a row: about half of them have a number of arguments that it accepts.
fn request_of(name: &str, arity: i8, random: &mut Random) -> Vec<u8> {
    let mut words: Vec<&str> = name.split('|').collect();
    let least = usize::from(arity.unsigned_abs()).saturating_sub(words.len());
    let args = match random.below(2) {
        0 => random.below(10) as usize,
        _ => least + random.below(3) as usize,
    };
    for arg in 0..args {
        let end = if arg == 0 { 3 } else { WORDS.len() };
        let word = match random.below(8) {
            0 => random.below(WORDS.len() as u64),
            _ => random.below(end as u64),
        };
        words.push(WORDS[word as usize]);
    }
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let mut request = Vec::new();
    encode_request(&words, &mut request);
    request
}

#[test]
fn a_request_is_answered_and_counted_the_same_on_each_way() {
    for seed in 0..3 {
        let mut random = Random::from_seed(seed);
        let mut calls = RespSession::new(true);
        calls.begin_calls();
        let mut batched = Way::new(RespSession::new(true));
        let mut called = Way::new(calls);
        let mut kept = Way::new(RespSession::new(true));
        let rows = commands::rows().filter(|(name, _)| !EXCLUDED.contains(name));
        for (name, arity) in rows {
            for _ in 0..ROUNDS {
                let requests: Vec<Vec<u8>> = (0..PIPELINE)
                    .map(|_| match random.below(4) {
                        0 => request_of("set", -3, &mut random),
                        _ => request_of(name, arity, &mut random),
                    })
                    .collect();
                let pipeline = requests.concat();
                let expected: Vec<Vec<u8>> = requests
                    .iter()
                    .map(|request| called.talk(request))
                    .collect();
                let shown = |replies: &[u8]| replies.escape_ascii().to_string();
                for (request, expected) in requests.iter().zip(&expected) {
                    let reply = kept.talk_in_transaction(request);
                    assert_eq!(shown(&reply), shown(expected), "EXEC: {}", shown(request));
                }
                let replies = batched.talk(&pipeline);
                assert_eq!(
                    shown(&replies),
                    shown(&expected.concat()),
                    "{}",
                    shown(&pipeline)
                );
            }
            assert_eq!(batched.tallies(), called.tallies(), "{name}");
            assert_eq!(kept.tallies(), called.tallies(), "EXEC: {name}");
        }
        let calls = |way: &Way| way.server.counters().resp_calls;
        let (batched_calls, all) = (calls(&batched), calls(&called));
        assert!(batched_calls * 20 < all * 19, "{batched_calls} of {all}");
        assert_eq!(batched.commands(), called.commands());
    }
}

/// Pipelines of each row, and requests of each pipeline.
const ROUNDS: usize = 12;
const PIPELINE: usize = 6;
