//! Steps of the wall clock: absolute times follow it, and deadlines do not.

use super::*;
use crate::commands::RespSession;
use corewise_engine::ManualClock;

/// Where the wall clock stands at first.
const START_S: u64 = 1_800_000_000;

/// Steps in milliseconds.
const STEPS: [i64; 8] = [
    1,
    -1,
    999,
    -1_001,
    3_600_000,
    -3_600_000,
    300_000_000_000,
    -1_500_000_000_000,
];

/// A server whose clock stepped after its clients had connected and stored something.
struct Stepped {
    server: TestServer,
    clock: Arc<ManualClock>,
    memcached: Client,
    resp: Client,
}

impl Stepped {
    fn new(before: (&str, &str), step_ms: i64) -> Self {
        let clock = Arc::new(ManualClock::new(START_S));
        let mut server = TestServer::on(clock.clone(), Completion::InSubmit, Config::default());
        let (memcached, resp) = (
            server.connect(),
            server.connect_with(RespSession::new(true)),
        );
        let mut stepped = Self {
            server,
            clock,
            memcached,
            resp,
        };
        stepped.memcached(before.0);
        stepped.resp(before.1);
        stepped.clock.step_wall_clock_ms(step_ms);
        stepped.server.now = stepped.clock.now();
        stepped
    }

    fn memcached(&mut self, request: &str) -> String {
        self.server.talk(&mut self.memcached, request.as_bytes())
    }

    fn resp(&mut self, request: &str) -> String {
        self.server.talk(&mut self.resp, request.as_bytes())
    }

    fn advance_ms(&mut self, ms: u64) {
        self.clock.advance_ms(ms);
        self.server.now = self.clock.now();
    }

    /// The wall clock.
    fn unix_ms(&self) -> u64 {
        self.clock.unix_ms(self.server.now)
    }
}

/// A server for each step, on which `before` was executed, by
/// memcached's protocol and by RESP.
fn after_steps(before: (&str, &str), mut test: impl FnMut(&mut Stepped)) {
    for step_ms in STEPS {
        test(&mut Stepped::new(before, step_ms));
    }
}

#[test]
fn absolute_times_of_resp_follow_the_wall_clock() {
    after_steps(("", "set k v\r\n"), |server| {
        let unix_ms = server.unix_ms() + 50_000;
        let unix_s = unix_ms / 1000;
        for (request, at_ms) in [
            (format!("set k v exat {unix_s}"), unix_s * 1000),
            (format!("set k v pxat {unix_ms}"), unix_ms),
            (format!("getex k exat {unix_s}"), unix_s * 1000),
            (format!("getex k pxat {unix_ms}"), unix_ms),
            (format!("expireat k {unix_s}"), unix_s * 1000),
            (format!("pexpireat k {unix_ms}"), unix_ms),
        ] {
            let left_ms = at_ms - server.unix_ms();
            let replies = server.resp(&format!(
                "{request}\r\npttl k\r\npexpiretime k\r\nexpiretime k\r\n"
            ));
            let expected = format!(
                "\r\n:{left_ms}\r\n:{at_ms}\r\n:{}\r\n",
                (at_ms + 500) / 1000
            );
            assert!(
                replies.ends_with(&expected),
                "{request}: {replies:?} {expected:?}"
            );
            // It is the same later on, and the item expires then.
            server.advance_ms(left_ms - 1);
            let replies = server.resp("pexpiretime k\r\npttl k\r\n");
            assert_eq!(replies, format!(":{at_ms}\r\n:1\r\n"), "{request}");
            server.advance_ms(1);
            assert_eq!(
                server.resp("get k\r\nset k v\r\n"),
                "$-1\r\n+OK\r\n",
                "{request}"
            );
            server.clock.step_wall_clock_ms(-(left_ms as i64));
            server.server.now = server.clock.now();
        }
    });
}

#[test]
fn a_date_in_the_past_of_the_wall_clock_has_passed() {
    after_steps(("", "set k v\r\n"), |server| {
        let unix_s = server.unix_ms() / 1000;
        let removed = server.resp(&format!("expireat k {unix_s}\r\nexists k\r\n"));
        assert_eq!(removed, ":1\r\n:0\r\n");
        let gone = server.memcached(&format!("set k 0 {unix_s} 1\r\n1\r\nget k\r\n"));
        assert_eq!(gone, "STORED\r\nEND\r\n");
    });
}

#[test]
fn dates_of_memcacheds_protocol_follow_the_wall_clock() {
    after_steps(("", ""), |server| {
        let unix_s = server.unix_ms() / 1000 + 50;
        for request in [
            format!("set k 0 {unix_s} 1\r\n1\r\n"),
            format!("touch k {unix_s}\r\n"),
            format!("gat {unix_s} k\r\n"),
            format!("ms k 1 T{unix_s}\r\n1\r\n"),
            format!("mg k T{unix_s}\r\n"),
            format!("delete k\r\nmg k N{unix_s}\r\n"),
        ] {
            let replies = server.memcached(&format!("{request}mg k t\r\n"));
            let ends_well = replies.ends_with("HD t50\r\n") || replies.ends_with("HD t50 Z\r\n");
            assert!(ends_well, "{request:?}: {replies:?}");
        }
    });
}

#[test]
fn a_step_does_not_move_deadlines() {
    let before = (
        "set a 0 100 1\r\n1\r\nset b 0 1800000100 1\r\n1\r\n",
        "set c v ex 100\r\nset d v exat 1800000100\r\nset e v\r\nexpire e 100\r\n",
    );
    after_steps(before, |server| {
        server.advance_ms(1_000);
        let replies = server.memcached("mg a t\r\nmg b t\r\n");
        assert_eq!(replies, "HD t99\r\n".repeat(2));
        let replies = server.resp("pttl c\r\npttl d\r\npttl e\r\n");
        assert_eq!(replies, ":99000\r\n".repeat(3));
        // By the wall clock as it is now.
        let at_ms = server.unix_ms() + 99_000;
        let replies = server.resp("pexpiretime c\r\npexpiretime d\r\n");
        assert_eq!(replies, format!(":{at_ms}\r\n").repeat(2));
        server.advance_ms(99_000);
        assert_eq!(server.memcached("get a b c d e\r\n"), "END\r\n");
    });
}

#[test]
fn relative_times_do_not_depend_on_the_wall_clock() {
    after_steps(("", ""), |server| {
        let replies = server.memcached("set a 0 100 1\r\n1\r\nmg a t\r\n");
        assert_eq!(replies, "STORED\r\nHD t100\r\n");
        for request in [
            "set a v ex 100",
            "expire a 100",
            "getex a px 100000",
            "setex a 100 v",
        ] {
            let replies = server.resp(&format!("{request}\r\npttl a\r\n"));
            assert!(
                replies.ends_with("\r\n:100000\r\n"),
                "{request}: {replies:?}"
            );
        }
    });
}

#[test]
fn the_time_that_is_shown_is_that_of_deadlines() {
    after_steps(("", ""), |server| {
        let (s, us) = (server.unix_ms() / 1000, server.unix_ms() % 1000 * 1000);
        let bulk = |number: u64| format!("${}\r\n{number}\r\n", number.to_string().len());
        let expected = format!("*2\r\n{}{}", bulk(s), bulk(us));
        assert_eq!(server.resp("time\r\n"), expected);
        let stats = server.memcached("stats\r\n");
        assert!(stats.contains(&format!("\r\nSTAT time {s}\r\n")), "{stats}");
    });
}
