//! Replies to the classic commands.

use crate::common;

use common::{talk, talk_with};
use corewise_wire::memcached::Limits;

/// Checks a conversation: sends all input at once and compares all replies.
#[track_caller]
fn says(input: &str, expected: &str) {
    assert_eq!(talk(input.as_bytes()), expected, "to {input:?}");
}

fn long_key() -> String {
    "k".repeat(251)
}

#[test]
fn get_prints_hits_in_order_and_end() {
    says("get a\r\n", "END\r\n");
    says(
        "set a 5 0 2\r\nhi\r\nget a\r\n",
        "STORED\r\nVALUE a 5 2\r\nhi\r\nEND\r\n",
    );
    says(
        "set a 0 0 1\r\n1\r\nset b 0 0 1\r\n2\r\nget b nil a\r\n",
        "STORED\r\nSTORED\r\nVALUE b 0 1\r\n2\r\nVALUE a 0 1\r\n1\r\nEND\r\n",
    );
    says(
        "set a 0 0 1\r\n1\r\nget nil a nil\r\n",
        "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n",
    );
}

#[test]
fn gets_prints_the_cas_value_too() {
    says(
        "set a 0 0 1\r\n1\r\ngets a\r\n",
        "STORED\r\nVALUE a 0 1 1001\r\n1\r\nEND\r\n",
    );
}

#[test]
fn gat_and_gats_touch_every_key() {
    says(
        "set a 0 0 1\r\n1\r\nset b 0 0 1\r\n2\r\ngat 60 a b\r\nmg a t\r\nmg b t\r\n",
        "STORED\r\nSTORED\r\nVALUE a 0 1\r\n1\r\nVALUE b 0 1\r\n2\r\nEND\r\nHD t60\r\nHD t60\r\n",
    );
    says(
        "set a 0 0 1\r\n1\r\ngats 60 a\r\n",
        "STORED\r\nVALUE a 0 1 1001\r\n1\r\nEND\r\n",
    );
    says("gat x k\r\n", "CLIENT_ERROR invalid exptime argument\r\n");
    says("gat x\r\n", "CLIENT_ERROR invalid exptime argument\r\n");
    says("gat 5\r\n", "END\r\n");
    says("gat\r\ngats \r\n", "ERROR\r\nERROR\r\n");
    says(
        "set a 0 0 1\r\n1\r\ngat -1 a\r\nget a\r\n",
        "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\nEND\r\n",
    );
}

#[test]
fn a_multiget_with_a_bad_key_yields_no_values() {
    let bad = long_key();
    let error = "CLIENT_ERROR bad command line format\r\n";
    says(&format!("get {bad}\r\n"), error);
    says(
        &format!("set a 0 0 1\r\n1\r\nget a {bad} a\r\n"),
        &format!("STORED\r\n{error}"),
    );
    says(&format!("get a {bad}\r\n"), error);
    says(&format!("gat 1 a {bad}\r\n"), error);
    says(&format!("get {}\r\n", &bad[1..]), "END\r\n");
}

#[test]
fn many_keys_are_stepped_through() {
    let keys: Vec<_> = (0..100).map(|i| format!("key:{i:09}")).collect();
    says(&format!("get {}\r\n", keys.join(" ")), "END\r\n");
    says(&format!("get {}\r\n", keys.join("   ")), "END\r\n");
}

#[test]
fn blanks_between_tokens_do_not_matter() {
    says("  get   a  b  \r\n", "END\r\n");
    says(
        "set  a  0 0  1 \r\nx\r\nget a \r\n",
        "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
    );
}

#[test]
fn a_bare_line_feed_ends_a_line_but_not_a_value() {
    says(
        "set a 0 0 1\nb\r\nget a\n",
        "STORED\r\nVALUE a 0 1\r\nb\r\nEND\r\n",
    );
    says(
        "set a 0 0 1\r\nb\nmn\r\n",
        "CLIENT_ERROR bad data chunk\r\nERROR\r\n",
    );
}

#[test]
fn keys_may_hold_anything_but_blanks() {
    says(
        "set a\tb 0 0 1\r\nx\r\nget a\tb\r\n",
        "STORED\r\nVALUE a\tb 0 1\r\nx\r\nEND\r\n",
    );
    says(
        "set \u{1} 0 0 1\r\nx\r\nget \u{1} a\r\n",
        "STORED\r\nVALUE \u{1} 0 1\r\nx\r\nEND\r\n",
    );
    says(
        "set a\0b 0 0 1\r\nx\r\nget a\0b\r\n",
        "STORED\r\nVALUE a\0b 0 1\r\nx\r\nEND\r\n",
    );
}

#[test]
fn storage_commands_check_their_conditions() {
    says(
        "add a 0 0 1\r\n1\r\nadd a 0 0 1\r\n2\r\n",
        "STORED\r\nNOT_STORED\r\n",
    );
    says("replace a 0 0 1\r\n1\r\n", "NOT_STORED\r\n");
    says(
        "append a 0 0 1\r\n1\r\nprepend a 0 0 1\r\n1\r\n",
        "NOT_STORED\r\nNOT_STORED\r\n",
    );
    says(
        "set a 3 0 1\r\nb\r\nappend a 9 9 1\r\nc\r\nprepend a 9 9 1\r\na\r\nget a\r\n",
        "STORED\r\nSTORED\r\nSTORED\r\nVALUE a 3 3\r\nabc\r\nEND\r\n",
    );
    says(
        "set a 0 0 0\r\n\r\nget a\r\n",
        "STORED\r\nVALUE a 0 0\r\n\r\nEND\r\n",
    );
}

#[test]
fn cas_compares() {
    says("cas a 0 0 1 5\r\n1\r\n", "NOT_FOUND\r\n");
    says(
        "set a 0 0 1\r\n1\r\ncas a 0 0 1 7\r\n2\r\ncas a 0 0 1 1001\r\n3\r\nget a\r\n",
        "STORED\r\nEXISTS\r\nSTORED\r\nVALUE a 0 1\r\n3\r\nEND\r\n",
    );
    says(
        "set a 0 0 1\r\n1\r\ncas a 0 0 1 0\r\n2\r\n",
        "STORED\r\nEXISTS\r\n",
    );
    says(
        "cas a 0 0 1 x\r\n1\r\n",
        "CLIENT_ERROR bad command line format\r\n",
    );
    says("cas a 0 0 1\r\nx1\r\n", "ERROR\r\nERROR\r\n");
}

#[test]
fn noreply_silences_a_command_altogether() {
    says(
        "set a 0 0 1 noreply\r\n1\r\nget a\r\n",
        "VALUE a 0 1\r\n1\r\nEND\r\n",
    );
    says("set a 0 0 3 noreply\r\nabcde", "");
    says("set a x 0 1 noreply\r\n1\r\nmn\r\n", "MN\r\n");
    says("cas a 0 0 1 5 noreply\r\n1\r\nmn\r\n", "MN\r\n");
    says("incr a 1 noreply\r\ndecr a x noreply\r\nmn\r\n", "MN\r\n");
    says("touch a 1 noreply\r\ntouch a x noreply\r\nmn\r\n", "MN\r\n");
    says(
        "delete a noreply\r\ndelete a 0 noreply\r\ndelete a 1 noreply\r\nmn\r\n",
        "MN\r\n",
    );
    says("incr a noreply\r\n", "");
}

#[test]
fn any_other_word_in_place_of_noreply_is_ignored() {
    says("set a 0 0 1 foo\r\n1\r\n", "STORED\r\n");
    says("delete a foo\r\n", DELETE_USAGE);
}

#[test]
fn storage_lines_are_checked() {
    let error = "CLIENT_ERROR bad command line format\r\n";
    says("set a 0 0\r\nset a 0 0 1 2 3\r\n", "ERROR\r\nERROR\r\n");
    says("set a -1 0 1\r\nx\r\nmn\r\n", &format!("{error}MN\r\n"));
    says(
        "set a 4294967296 0 1\r\nx\r\nmn\r\n",
        &format!("{error}MN\r\n"),
    );
    says("set a 0 1x 1\r\nx\r\nmn\r\n", &format!("{error}MN\r\n"));
    says(
        &format!("set {} 0 0 1\r\nx\r\nmn\r\n", long_key()),
        &format!("{error}MN\r\n"),
    );
    says(
        "set a 4294967295 0 1\r\nx\r\nget a\r\n",
        "STORED\r\nVALUE a 4294967295 1\r\nx\r\nEND\r\n",
    );
}

#[test]
fn an_impossible_length_takes_no_data() {
    for length in [
        "-1",
        "x",
        "2147483646",
        "4294967295",
        "99999999999999999999",
        "1 ",
    ] {
        let expected = if length == "1 " {
            "STORED\r\n"
        } else {
            "CLIENT_ERROR bad command line format\r\nERROR\r\n"
        };
        says(&format!("set a 0 0 {length}\r\nx\r\n"), expected);
    }
}

#[test]
fn a_bad_data_chunk_leaves_what_is_stored() {
    says(
        "set a 0 0 1\r\n1\r\nset a 0 0 2\r\nabcd\r\nget a\r\n",
        "STORED\r\nCLIENT_ERROR bad data chunk\r\nERROR\r\nVALUE a 0 1\r\n1\r\nEND\r\n",
    );
}

#[test]
fn a_value_may_hold_line_breaks() {
    says(
        "set a 0 0 4\r\n\r\n\r\n\r\nget a\r\n",
        "STORED\r\nVALUE a 0 4\r\n\r\n\r\n\r\nEND\r\n",
    );
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

#[test]
fn incr_wraps_and_decr_stops() {
    says(
        "set n 0 0 2\r\n10\r\nincr n 5\r\ndecr n 7\r\ndecr n 99\r\nget n\r\n",
        "STORED\r\n15\r\n8\r\n0\r\nVALUE n 0 2\r\n0 \r\nEND\r\n",
    );
    says(
        "set n 0 0 20\r\n18446744073709551615\r\nincr n 1\r\nincr n 18446744073709551615\r\n",
        "STORED\r\n0\r\n18446744073709551615\r\n",
    );
    says("incr n 1\r\ndecr n 1\r\n", "NOT_FOUND\r\nNOT_FOUND\r\n");
    says(
        "set n 0 0 1\r\nx\r\nincr n 1\r\n",
        "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    );
    says(
        "incr n -1\r\n",
        "CLIENT_ERROR invalid numeric delta argument\r\n",
    );
    says(
        "incr n x\r\n",
        "CLIENT_ERROR invalid numeric delta argument\r\n",
    );
    says(
        "incr n\r\ndecr\r\nincr a 1 2 3\r\n",
        "ERROR\r\nERROR\r\nERROR\r\n",
    );
    says(
        &format!("incr {} 1\r\n", long_key()),
        "CLIENT_ERROR bad command line format\r\n",
    );
}

#[test]
fn touch_sets_the_time_to_live() {
    says("touch a 1\r\n", "NOT_FOUND\r\n");
    says(
        "set a 0 0 1\r\n1\r\ntouch a 77\r\nmg a t\r\ntouch a -1\r\nget a\r\n",
        "STORED\r\nTOUCHED\r\nHD t77\r\nTOUCHED\r\nEND\r\n",
    );
    says("touch a x\r\n", "CLIENT_ERROR invalid exptime argument\r\n");
    says("touch a\r\ntouch a 1 2 3\r\n", "ERROR\r\nERROR\r\n");
    says(
        &format!("touch {} 1\r\n", long_key()),
        "CLIENT_ERROR bad command line format\r\n",
    );
}

const DELETE_USAGE: &str =
    "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";

#[test]
fn delete_takes_a_zero_for_old_clients() {
    says("delete a\r\n", "NOT_FOUND\r\n");
    says(
        "set a 0 0 1\r\n1\r\ndelete a 0\r\nget a\r\n",
        "STORED\r\nDELETED\r\nEND\r\n",
    );
    says("delete a 10\r\n", DELETE_USAGE);
    says("delete a 0 1\r\n", DELETE_USAGE);
    says("delete\r\ndelete a b c d\r\n", "ERROR\r\nERROR\r\n");
    says(
        &format!("delete {}\r\n", long_key()),
        "CLIENT_ERROR bad command line format\r\n",
    );
    says("delete noreply\r\n", "NOT_FOUND\r\n");
}

#[test]
fn expiry_times_are_relative_up_to_thirty_days() {
    for (exptime, left) in [
        ("0", "t-1"),
        ("100", "t100"),
        ("2592000", "t2592000"),
        ("1800000005", "t5"),
        ("2147483647", "t347483647"),
    ] {
        let input = format!("set a 0 {exptime} 1\r\n1\r\nmg a t\r\n");
        assert_eq!(talk(input.as_bytes()), format!("STORED\r\nHD {left}\r\n"));
    }
    for exptime in ["-1", "2592001", "1800000000"] {
        let input = format!("set a 0 {exptime} 1\r\n1\r\nget a\r\n");
        assert_eq!(talk(input.as_bytes()), "STORED\r\nEND\r\n", "{exptime}");
    }
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
