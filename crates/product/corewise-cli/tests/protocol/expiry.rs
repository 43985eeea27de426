//! Expiry times at the limits of their numbers, also sent to memcached: an item must live as long.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::conversation::is_old;
use crate::common::{Client, Kind, TestServer, skip};

/// `@` stands for the expiry time, `#` for the cas value of the item. Each request is sent to an
/// item that lives for a minute.
const REQUESTS: [&str; 17] = [
    "set k 0 @ 1\r\n1\r\n",
    "set  k 0 @ 1\r\n1\r\n",
    "delete k\r\nadd k 0 @ 1\r\n1\r\n",
    "replace k 0 @ 1\r\n1\r\n",
    "cas k 0 @ 1 #\r\n1\r\n",
    "append k 0 @ 1\r\n1\r\n",
    "prepend k 0 @ 1\r\n1\r\n",
    "touch k @\r\n",
    "gat @ k\r\n",
    "gats @ k\r\n",
    "ms k 1 T@\r\n1\r\n",
    "mg k T@\r\n",
    "delete k\r\nmg k N@\r\n",
    "mg k R@\r\n",
    "md k I T@\r\n",
    "delete k\r\nma k N@\r\n",
    "flush_all @\r\n",
];

/// More than the servers' clocks and the test's pauses differ by, less than two of the times.
const TOLERANCE_S: u64 = 300;

/// What became of an item.
#[derive(Debug)]
struct Fate {
    is_refused: bool,
    /// Whether the last reply claims a recache.
    is_won: bool,
    /// The flag `t` of its reply; `None` if the item is gone.
    seconds_left: Option<i64>,
}

impl Fate {
    fn is_like(&self, other: &Self) -> bool {
        let lives = match (self.seconds_left, other.seconds_left) {
            (Some(one @ 0..), Some(two @ 0..)) => one.abs_diff(two) < TOLERANCE_S,
            (one, two) => one == two,
        };
        self.is_refused == other.is_refused && self.is_won == other.is_won && lives
    }
}

#[test]
fn expiry_times_are_understood_as_by_memcached() {
    if !Kind::memcached_is_installed() {
        return skip("memcached is not installed");
    }
    let servers = [TestServer::of(Kind::Memcached, &[]), TestServer::start()];
    if !is_old(&servers[0]) {
        return skip("memcached 1.6.45 refuses some of the numbers that 1.6.18 truncates");
    }
    let mut clients = servers.each_ref().map(TestServer::connect);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    for request in REQUESTS {
        for exptime in exptimes(i128::from(now.as_secs())) {
            // A deviation: see the documentation of the codec.
            let low = i128::from(exptime as i32);
            if request.starts_with("flush_all") && (2_592_001..=now.as_secs().into()).contains(&low)
            {
                continue;
            }
            let request = request.replace('@', &exptime.to_string());
            let [theirs, ours] = clients.each_mut().map(|client| fate(client, &request));
            assert!(
                ours.is_like(&theirs),
                "{request:?}: memcached {theirs:?}, corewise {ours:?}"
            );
        }
    }
}

/// Times around the limits. None is so near to an item's last second that it matters when the
/// test runs.
fn exptimes(now: i128) -> Vec<i128> {
    let limits = [0, 2_592_000, now];
    let powers = [31, 32, 33, 62, 63, 64].map(|power| 1i128 << power);
    let near = |limit: i128| [-4_000, 0, 4_000].map(|offset| limit + offset);
    let mut all: Vec<i128> = limits.into_iter().flat_map(near).collect();
    all.retain(|exptime| *exptime != now);
    all.extend([-1, 2_592_001]);
    for power in powers {
        let low = all.clone().into_iter().take(10);
        all.extend(low.map(|exptime| power + exptime));
    }
    let signed = all.iter().flat_map(|exptime| [*exptime, -exptime]);
    signed.filter(|exptime| *exptime as i32 != 1).collect()
}

/// Sends a request to an item that lives for a minute, and looks at the item.
fn fate(client: &mut Client, request: &str) -> Fate {
    ask(client, "flush_all\r\nset k 0 60 1\r\n1\r\n");
    let cas = ask(client, "mg k c\r\n");
    let cas = cas.trim().strip_prefix("HD c").expect("a cas value");
    let reply = ask(client, &request.replace('#', cas));
    let item = ask(client, "mg k t\r\n");
    let mut words = item.split_whitespace();
    let left = words.find_map(|word| word.strip_prefix('t'));
    Fate {
        is_refused: reply.contains("ERROR"),
        is_won: reply.ends_with(" W\r\n"),
        seconds_left: left.map(|left| left.parse().expect("a number")),
    }
}

/// The replies to a request.
fn ask(client: &mut Client, request: &str) -> String {
    client.send(request.as_bytes());
    client.send(b"mn\r\n");
    let reply = client.read_until(b"MN\r\n");
    String::from_utf8(reply).unwrap().replace("MN\r\n", "")
}
