//! Replies to commands on items, where their number or their length is what matters.

use crate::common;

use common::{says, talk, talk_with};
use corewise_wire::memcached::Limits;

#[test]
fn many_keys_are_stepped_through() {
    let keys: Vec<_> = (0..100).map(|i| format!("key:{i:09}")).collect();
    says(&format!("get {}\r\n", keys.join(" ")), "END\r\n");
    says(&format!("get {}\r\n", keys.join("   ")), "END\r\n");
}

#[test]
fn a_store_over_the_limit_is_refused_swallowed_and_a_set_removes_the_old_item() {
    let limits = Limits {
        max_item_size: 100,
        ..Limits::default()
    };
    let big = "x".repeat(90);
    let too_large = "SERVER_ERROR object too large for cache\r\n";
    let hit = "VALUE a 0 1\r\n1\r\nEND\r\n";
    for (request, left) in [
        (format!("set a 0 0 90\r\n{big}\r\n"), "END\r\n"),
        (format!("add a 0 0 90\r\n{big}\r\n"), hit),
        (format!("append a 0 0 90\r\n{big}\r\n"), hit),
        (format!("cas a 0 0 90 1\r\n{big}\r\n"), hit),
    ] {
        let input = format!("set a 0 0 1\r\n1\r\n{request}get a\r\n");
        assert_eq!(
            talk_with(limits, input.as_bytes()),
            format!("STORED\r\n{too_large}{left}"),
            "{request}"
        );
    }
    let quiet = format!("set a 0 0 1\r\n1\r\nset a 0 0 90 noreply\r\n{big}\r\nget a\r\n");
    assert_eq!(talk_with(limits, quiet.as_bytes()), "STORED\r\nEND\r\n");
}

#[test]
fn ms_over_the_limit_removes_the_old_item_whatever_its_mode() {
    let limits = Limits {
        max_item_size: 100,
        ..Limits::default()
    };
    let big = "x".repeat(90);
    for flags in ["", " ME", " MA", " q k"] {
        let input = format!("set a 0 0 1\r\n1\r\nms a 90{flags}\r\n{big}\r\nmg a\r\n");
        assert_eq!(
            talk_with(limits, input.as_bytes()),
            "STORED\r\nSERVER_ERROR object too large for cache\r\nEN\r\n"
        );
    }
}

#[test]
fn the_size_limit_counts_header_key_flags_and_cas_as_memcached_does() {
    let store = |flags, len| format!("set key {flags} 0 {len}\r\n{}\r\n", "x".repeat(len));
    assert_eq!(talk(store(0, 1_048_514).as_bytes()), "STORED\r\n");
    assert!(talk(store(0, 1_048_515).as_bytes()).starts_with("SERVER_ERROR"));
    assert_eq!(talk(store(7, 1_048_510).as_bytes()), "STORED\r\n");
    assert!(talk(store(7, 1_048_511).as_bytes()).starts_with("SERVER_ERROR"));
    let no_cas = Limits {
        cas_enabled: false,
        ..Limits::default()
    };
    assert_eq!(
        talk_with(no_cas, store(0, 1_048_522).as_bytes()),
        "STORED\r\n"
    );
}

/// Expiry times at and around every power of two and every limit, and some that are no numbers.
fn boundary_exptimes() -> Vec<i128> {
    let powers = [15, 16, 31, 32, 33, 62, 63, 64, 65].map(|power| 1i128 << power);
    let limits = [0, 2_592_000, 1_800_000_000, i128::from(u64::MAX / 7)];
    let sums = powers
        .iter()
        .flat_map(|power| limits.map(|limit| power + limit));
    let near = |value: i128| [-1000, -1, 0, 1, 1000].map(|offset| value + offset);
    let all = limits.into_iter().chain(sums).flat_map(near);
    all.flat_map(|value| [value, -value]).collect()
}

/// What memcached does with an expiry time: the seconds left, or -1 for never; `None` if the item
/// has expired.
fn seconds_left(exptime: i64) -> Option<i64> {
    let low = exptime as i32;
    match i64::from(low) {
        0 => Some(-1),
        relative @ 1..=2_592_000 => Some(relative),
        date if date > 1_800_000_000 => Some(date - 1_800_000_000),
        _ => None,
    }
}

#[test]
fn expiry_times_are_the_low_32_bits_of_their_numbers() {
    let requests = [
        "set k 0 @ 1\r\n1\r\n",
        "set  k 0 @ 1\r\n1\r\n",
        "add k 0 @ 1\r\n1\r\n",
        "set k 0 0 1\r\n1\r\nreplace k 0 @ 1\r\n1\r\n",
        "set k 0 0 1\r\n1\r\ncas k 0 @ 1 1001\r\n1\r\n",
        "set k 0 0 1\r\n1\r\ntouch k @\r\n",
        "set k 0 0 1\r\n1\r\ngat @ k\r\n",
        "set k 0 0 1\r\n1\r\ngats @ k\r\n",
        "ms k 1 T@\r\n1\r\n",
        "ms k 1 MA N@\r\n1\r\n",
        "set k 0 0 1\r\n1\r\nmg k T@\r\n",
        "mg k N@\r\n",
        "set k 0 0 1\r\n1\r\nmd k I T@\r\n",
        "set k 0 0 1\r\n1\r\nma k T@\r\n",
        "ma k N@\r\n",
    ];
    for request in requests {
        for exptime in boundary_exptimes() {
            let input = request.replace('@', &exptime.to_string()) + "mg k t\r\n";
            let reply = talk(input.as_bytes());
            let Ok(exptime) = i64::try_from(exptime) else {
                assert!(reply.contains("CLIENT_ERROR"), "{input:?} {reply:?}");
                continue;
            };
            let last = reply.lines().last().unwrap();
            let expected = seconds_left(exptime).map(|left| format!("t{left}"));
            assert_eq!(last.split(' ').nth(1), expected.as_deref(), "{input:?}");
        }
    }
}

#[test]
fn the_expiry_time_of_an_append_is_checked_and_ignored() {
    for exptime in boundary_exptimes() {
        let input = format!("set k 0 0 1\r\n1\r\nappend k 0 {exptime} 1\r\n2\r\nmg k t\r\n");
        let reply = match i64::try_from(exptime) {
            Ok(_) => "STORED",
            Err(_) => "CLIENT_ERROR bad command line format",
        };
        says(&input, &format!("STORED\r\n{reply}\r\nHD t-1\r\n"));
    }
}

#[test]
fn a_recache_time_is_the_low_32_bits_of_its_number() {
    for exptime in boundary_exptimes() {
        let input = format!("set k 0 60 1\r\n1\r\nmg k R{exptime}\r\n");
        let reply = match i64::try_from(exptime) {
            Err(_) => "CLIENT_ERROR bad token in command line format",
            Ok(exptime) if seconds_left(exptime).is_some_and(|left| left > 60) => "HD W",
            Ok(_) => "HD",
        };
        says(&input, &format!("STORED\r\n{reply}\r\n"));
    }
}
