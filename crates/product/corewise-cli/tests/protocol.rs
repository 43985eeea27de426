//! Replies of memcached's text protocol, byte for byte.

use crate::common;
#[path = "protocol/differential.rs"]
mod differential;
#[path = "protocol/expiry.rs"]
mod expiry;

use common::conversation::converse_with;
use common::{Engine, Kind};

for_all_engines_at_once! {
    set_stores_what_get_returns
    values_may_hold_any_bytes
    a_multiget_returns_the_hits_in_the_order_asked_for
    add_and_replace_have_opposite_conditions
    append_and_prepend_keep_flags_and_expiry
    cas_stores_only_over_the_value_that_was_seen
    delete_says_whether_there_was_an_item
    incr_wraps_and_decr_stops_at_zero
    a_counter_that_loses_a_digit_is_padded_with_blanks
    only_numbers_can_be_counted
    touch_and_gat_set_the_time_to_live
    a_negative_expiry_time_is_over_at_once
    an_expiry_time_of_more_than_thirty_days_is_a_date
    an_item_is_gone_after_its_time
    flush_all_forgets_what_was_stored_before
    flush_all_can_be_refused
    noreply_silences_every_classic_command
    administrative_commands_answer
    stats_answers_end_with_end
    stats_count_what_was_done
    keys_can_be_listed
    listing_keys_can_be_refused
    shutdown_obeys_where_it_is_enabled
    a_line_that_makes_no_sense_is_an_error
    blanks_and_bare_line_feeds_are_forgiven
    data_of_another_length_than_announced_is_an_error
    keys_have_at_most_250_bytes
    an_item_larger_than_the_limit_is_refused_and_the_old_one_goes
    the_largest_item_just_below_the_limit_is_stored
    without_eviction_a_full_server_refuses_items
    with_eviction_a_full_server_forgets_something_old
    http_is_hung_up_on
    mg_returns_what_its_flags_ask_for_in_their_order
    mg_tells_whether_an_item_was_read_before
    mg_touches_with_t
    mg_vivifies_and_one_caller_wins
    md_invalidates_and_one_caller_wins
    ms_has_modes
    ms_compares_and_reports_cas_values
    ms_is_quiet_about_success_only
    ms_swallows_the_data_of_a_line_with_bad_flags
    md_deletes
    md_can_keep_the_item_and_drop_its_value
    ma_counts
    ma_refuses_what_makes_no_sense
    me_describes_an_item
    base64_keys_may_hold_any_bytes
    meta_flags_are_checked
    a_batch_of_quiet_meta_commands_ends_with_mn
    keys_of_control_and_high_bytes_are_taken_as_they_are
}

#[test]
fn every_engine_there_is_is_tested() {
    assert_eq!(Engine::all_there_are(), Engine::TESTED);
}

/// A key of the given length.
fn key(length: usize) -> String {
    "k".repeat(length)
}

fn set_stores_what_get_returns(engine: Engine) {
    engine.converse(
        r"
        > set a 5 0 3
        > abc
        < STORED

        > get a
        < VALUE a 5 3
        < abc
        < END

        > get nothing
        < END

        > set a 4294967295 0 0
        >
        < STORED

        > get a
        < VALUE a 4294967295 0
        <
        < END
        ",
    );
}

fn values_may_hold_any_bytes(engine: Engine) {
    engine.converse(
        r"
        > set a 0 0 9
        > \r\nEND\r\n\0\xff
        < STORED

        > get a
        < VALUE a 0 9
        < \r\nEND\r\n\0\xff
        < END

        > ms a 4 F1
        > \x80\n\r\x01
        < HD

        > mg a f v
        < VA 4 f1
        < \x80\n\r\x01
        ",
    );
}

fn a_multiget_returns_the_hits_in_the_order_asked_for(engine: Engine) {
    engine.converse(
        r"
        > set a 1 0 1
        > A
        > set c 3 0 1
        > C
        < STORED
        < STORED

        > get c b a c
        < VALUE c 3 1
        < C
        < VALUE a 1 1
        < A
        < VALUE c 3 1
        < C
        < END

        > gets a b c
        < VALUE a 1 1 {x}
        < A
        < VALUE c 3 1 {y}
        < C
        < END
        ",
    );
}

fn add_and_replace_have_opposite_conditions(engine: Engine) {
    engine.converse(
        r"
        > replace a 1 0 1
        > x
        < NOT_STORED

        > add a 1 0 1
        > y
        < STORED

        > add a 2 0 1
        > z
        < NOT_STORED

        > replace a 3 0 2
        > zz
        < STORED

        > get a
        < VALUE a 3 2
        < zz
        < END
        ",
    );
}

fn append_and_prepend_keep_flags_and_expiry(engine: Engine) {
    engine.converse(
        r"
        > append a 0 0 1
        > x
        > prepend a 0 0 1
        > x
        < NOT_STORED
        < NOT_STORED

        > set a 7 0 2
        > mm
        > append a 99 100 2
        > zz
        > prepend a 98 100 2
        > aa
        < STORED
        < STORED
        < STORED

        > get a
        < VALUE a 7 6
        < aammzz
        < END

        > mg a t
        < HD t-1
        ",
    );
}

fn cas_stores_only_over_the_value_that_was_seen(engine: Engine) {
    engine.converse(
        r"
        > cas a 0 0 1 1
        > x
        < NOT_FOUND

        > set a 0 0 1
        > x
        > gets a
        < STORED
        < VALUE a 0 1 {seen}
        < x
        < END

        > cas a 3 0 1 {seen}
        > y
        < STORED

        > cas a 3 0 1 {seen}
        > z
        < EXISTS

        > gets a
        < VALUE a 3 1 {new}
        < y
        < END

        > gats 0 a
        < VALUE a 3 1 {new}
        < y
        < END

        > append a 0 0 1
        > z
        > cas a 0 0 1 {new}
        > w
        < STORED
        < EXISTS
        ",
    );
}

fn delete_says_whether_there_was_an_item(engine: Engine) {
    engine.converse(
        r"
        > set a 0 0 1
        > x
        < STORED

        > delete a
        > delete a
        < DELETED
        < NOT_FOUND

        > set a 0 0 1
        > x
        > delete a 0
        < STORED
        < DELETED

        > delete a 10
        < CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]

        > delete a 0 noreply
        > delete a noreply

        > delete
        < ERROR
        ",
    );
}

fn incr_wraps_and_decr_stops_at_zero(engine: Engine) {
    engine.converse(
        r"
        > set n 0 0 20
        > 18446744073709551615
        > incr n 1
        < STORED
        < 0

        > incr n 18446744073709551615
        < 18446744073709551615

        > set n 0 0 2
        > 10
        > decr n 1
        > decr n 100
        < STORED
        < 9
        < 0

        > incr nothing 1
        > decr nothing 1
        < NOT_FOUND
        < NOT_FOUND
        ",
    );
}

fn a_counter_that_loses_a_digit_is_padded_with_blanks(engine: Engine) {
    engine.converse(
        r"
        > set n 0 0 3
        > 100
        > decr n 95
        > get n
        < STORED
        < 5
        < VALUE n 0 3
        < 5\x20\x20
        < END

        > incr n 1
        < 6

        > set n 0 0 1
        > 9
        > incr n 1
        > get n
        < STORED
        < 10
        < VALUE n 0 2
        < 10
        < END
        ",
    );
}

fn only_numbers_can_be_counted(engine: Engine) {
    engine.converse(
        r"
        > set n 0 0 1
        > x
        > incr n 1
        < STORED
        < CLIENT_ERROR cannot increment or decrement non-numeric value

        > set n 0 0 21
        > 184467440737095516150
        > incr n 1
        < STORED
        < CLIENT_ERROR cannot increment or decrement non-numeric value

        > set n 0 0 0
        >
        > decr n 1
        < STORED
        < CLIENT_ERROR cannot increment or decrement non-numeric value

        > set n 0 0 2
        > -1
        > ma n
        < STORED
        < CLIENT_ERROR cannot increment or decrement non-numeric value

        > incr n x
        > incr n -1
        > decr n 18446744073709551616
        < CLIENT_ERROR invalid numeric delta argument
        < CLIENT_ERROR invalid numeric delta argument
        < CLIENT_ERROR invalid numeric delta argument

        > incr n
        > decr
        < ERROR
        < ERROR
        ",
    );
}

fn touch_and_gat_set_the_time_to_live(engine: Engine) {
    engine.converse(
        r"
        > touch a 10
        < NOT_FOUND

        > set a 1 100 1
        > x
        > mg a t
        < STORED
        < HD t100

        > touch a 0
        > mg a t
        < TOUCHED
        < HD t-1

        > gat 50 a nothing
        < VALUE a 1 1
        < x
        < END

        > mg a t
        < HD t50

        > gats 0 a
        < VALUE a 1 1 {cas}
        < x
        < END

        > mg a t c
        < HD t-1 c{cas}

        > touch a
        > touch
        > gat
        < ERROR
        < ERROR
        < ERROR

        > touch a x
        > gat x a
        < CLIENT_ERROR invalid exptime argument
        < CLIENT_ERROR invalid exptime argument
        ",
    );
}

fn a_negative_expiry_time_is_over_at_once(engine: Engine) {
    engine.converse(
        r"
        > set a 0 -1 1
        > x
        > get a
        < STORED
        < END

        > ms a 1 T-1
        > x
        > mg a v
        < HD
        < EN

        > set a 0 0 1
        > x
        > touch a -1
        > get a
        < STORED
        < TOUCHED
        < END
        ",
    );
}

fn an_expiry_time_of_more_than_thirty_days_is_a_date(engine: Engine) {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    engine.converse(&format!(
        "
        > set past 0 2592001 1
        > x
        > get past
        < STORED
        < END

        > set days 0 2592000 1
        > x
        > mg days t
        < STORED
        < HD t2592000

        > set soon 0 {} 1
        > x
        > get soon
        < STORED
        < VALUE soon 0 1
        < x
        < END
        ",
        now + 100
    ));
}

fn an_item_is_gone_after_its_time(engine: Engine) {
    let server = engine.start();
    converse_with(
        &server,
        r"
        > set a 0 1 1
        > x
        > get a
        < STORED
        < VALUE a 0 1
        < x
        < END
        ",
    );
    // memcached's clock ticks once a second.
    std::thread::sleep(std::time::Duration::from_millis(2_100));
    converse_with(
        &server,
        r"
        > get a
        > mg a v
        > incr a 1
        > replace a 0 0 1
        > x
        < END
        < EN
        < NOT_FOUND
        < NOT_STORED

        > add a 0 0 1
        > y
        < STORED
        ",
    );
}

fn flush_all_forgets_what_was_stored_before(engine: Engine) {
    engine.converse(
        r"
        > set a 0 0 1
        > x
        > flush_all
        > get a
        < STORED
        < OK
        < END

        > set a 0 0 1
        > y
        > get a
        < STORED
        < VALUE a 0 1
        < y
        < END

        > flush_all 0
        > get a
        < OK
        < END

        > flush_all noreply
        > flush_all 0 noreply

        > flush_all x
        < CLIENT_ERROR invalid exptime argument

        > flush_all 1 2 3
        < ERROR
        ",
    );
}

fn flush_all_can_be_refused(engine: Engine) {
    converse_with(
        &engine.with(&["-F"]),
        r"
        > set a 0 0 1
        > x
        > flush_all
        > get a
        < STORED
        < CLIENT_ERROR flush_all not allowed
        < VALUE a 0 1
        < x
        < END
        ",
    );
}

fn noreply_silences_every_classic_command(engine: Engine) {
    engine.converse(
        r"
        > set a 0 0 1 noreply
        > 1
        > add a 0 0 1 noreply
        > 2
        > replace a 0 0 1 noreply
        > 3
        > append a 0 0 1 noreply
        > 4
        > prepend a 0 0 1 noreply
        > 5
        > cas a 0 0 1 12345678901 noreply
        > 6
        > incr a 1 noreply
        > decr a 2 noreply
        > touch a 0 noreply
        > touch nothing 0 noreply
        > delete nothing noreply
        > verbosity 0 noreply

        > get a
        < VALUE a 0 3
        < 533
        < END

        > delete a noreply
        > get a
        < END
        ",
    );
}

fn administrative_commands_answer(engine: Engine) {
    engine.converse(
        r"
        > mn
        < MN

        > verbosity 1
        > verbosity 0
        < OK
        < OK

        > verbosity
        < ERROR

        > cache_memlimit 64
        < OK

        > cache_memlimit
        < ERROR

        > cache_memlimit 1
        < MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m

        > cache_memlimit 64 noreply

        > shutdown
        < ERROR: shutdown not enabled

        > quit
        < closed

        > mn
        > quit
        > mn
        < MN
        < closed
        ",
    );
}

fn stats_answers_end_with_end(engine: Engine) {
    engine.converse(
        r"
        > stats reset
        < RESET

        > stats nonsense
        < ERROR

        > stats detail on
        > set one:a 0 0 1
        > x
        > get one:a
        > get one:b
        > delete one:a
        > stats detail dump
        > stats detail off
        < OK
        < STORED
        < VALUE one:a 0 1
        < x
        < END
        < END
        < DELETED
        < PREFIX one get 2 hit 1 set 1 del 1
        < END
        < OK

        > stats detail
        > stats detail x
        < CLIENT_ERROR usage: stats detail on|off|dump
        < CLIENT_ERROR usage: stats detail on|off|dump
        ",
    );
}

fn stats_count_what_was_done(engine: Engine) {
    let server = engine.start();
    let mut client = server.connect();
    client.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    client.ask("get a b\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n");
    client.ask("delete b\r\n", "NOT_FOUND\r\n");
    client.ask("touch a 0\r\n", "TOUCHED\r\n");
    client.send(b"stats\r\n");
    let stats = String::from_utf8(client.read_until(b"END\r\n")).unwrap();
    for line in [
        "curr_items 1",
        "total_items 1",
        "cmd_get 2",
        "cmd_set 1",
        "get_hits 1",
        "get_misses 1",
        "delete_misses 1",
        "cmd_touch 1",
        "touch_hits 1",
        "threads 2",
        "limit_maxbytes 67108864",
        &format!("pid {}", server.pid()),
    ] {
        let line = format!("STAT {line}\r\n");
        assert!(stats.contains(&line), "{line} is not in {stats}");
    }
    for name in [
        "uptime",
        "time",
        "version",
        "curr_connections",
        "bytes",
        "evictions",
        "bytes_read",
        "bytes_written",
        "rusage_user",
        "pointer_size",
        "cas_misses",
        "incr_misses",
        "cmd_flush",
    ] {
        assert!(
            stats.contains(&format!("STAT {name} ")),
            "{name} is not in {stats}"
        );
    }
    for (group, name) in [("settings", "maxconns 1024"), ("settings", "num_threads 2")] {
        client.send(format!("stats {group}\r\n").as_bytes());
        let stats = String::from_utf8(client.read_until(b"END\r\n")).unwrap();
        assert!(
            stats.contains(&format!("STAT {name}\r\n")),
            "{name} is not in {stats}"
        );
    }
    for group in ["items", "slabs", "conns"] {
        client.send(format!("stats {group}\r\n").as_bytes());
        let stats = String::from_utf8(client.read_until(b"END\r\n")).unwrap();
        assert!(stats.starts_with("STAT "), "{stats}");
    }
}

fn keys_can_be_listed(engine: Engine) {
    // memcached lists only one of its queues, and its maintainer moves items between them.
    let server = engine.with(&["-o", "no_lru_maintainer"]);
    converse_with(
        &server,
        r"
        > set a 0 0 1
        > x
        > me a
        < STORED
        < ME a exp=-1 la={any} cas={any} fetch=no cls={class} size={any}

        > stats cachedump {class} 0
        < ITEM a [1 b; 0 s]
        < END
        ",
    );
    let mut client = server.connect();
    client.send(b"lru_crawler metadump all\r\n");
    let keys = String::from_utf8(client.read_until(b"END\r\n")).unwrap();
    assert!(keys.starts_with("key=a exp=-1 la="), "{keys}");
    assert_eq!(keys.lines().count(), 2, "{keys}");
}

fn listing_keys_can_be_refused(engine: Engine) {
    let server = engine.with(&["-X"]);
    for (request, reply) in [
        (
            "stats cachedump 1 0",
            "CLIENT_ERROR stats cachedump not allowed",
        ),
        ("lru_crawler metadump all", "ERROR metadump not allowed"),
    ] {
        let mut client = server.connect();
        client.ask(format!("{request}\r\n"), format!("{reply}\r\n"));
    }
    converse_with(
        &server,
        r"
        newer
        > stats detail on
        < CLIENT_ERROR stats detail not allowed
        ",
    );
}

fn shutdown_obeys_where_it_is_enabled(engine: Engine) {
    for (request, code) in [("shutdown\r\n", 0), ("shutdown graceful\r\n", 0)] {
        let mut server = engine.with(&["-A"]);
        let mut client = server.connect();
        client.ask(
            "shutdown nonsense\r\n",
            "CLIENT_ERROR invalid shutdown mode\r\n",
        );
        client.send(request.as_bytes());
        let status = server.wait();
        // memcached implements plain `shutdown` by sending itself a signal.
        if Kind::under_test() == Kind::Corewise {
            assert_eq!(status.code(), Some(code), "{request}");
        }
    }
}

fn a_line_that_makes_no_sense_is_an_error(engine: Engine) {
    engine.converse(
        r"
        > nonsense
        >
        > GET a
        > get
        > gets
        > set a
        > set a 0 0
        > cas a 0 0 1
        < ERROR
        < ERROR
        < ERROR
        < ERROR
        < ERROR
        < ERROR
        < ERROR
        < ERROR

        > set a 0 0 -1
        < CLIENT_ERROR bad command line format

        > set a 0 0 2147483647
        < CLIENT_ERROR bad command line format

        > set a 0 0 18446744073709551616
        < CLIENT_ERROR bad command line format

        # The data of these is swallowed; an older memcached takes it for a line.
        newer
        > set a b 0 1
        > x
        > set a -1 0 1
        > x
        > set a 0 0x1 1
        > x
        < CLIENT_ERROR bad command line format
        < CLIENT_ERROR bad command line format
        < CLIENT_ERROR bad command line format
        ",
    );
}

fn blanks_and_bare_line_feeds_are_forgiven(engine: Engine) {
    engine.converse(
        r"
        > set  a  1  0  1\x20
        > x
        < STORED

        >.  get   a\n
        < VALUE a 1 1
        < x
        < END

        >. set b 0 0 1\nx\r\n
        < STORED

        >. set b 0 0 1\nx\nmn\r\n
        < CLIENT_ERROR bad data chunk
        < ERROR
        ",
    );
}

fn data_of_another_length_than_announced_is_an_error(engine: Engine) {
    engine.converse(
        r"
        > set a 0 0 3
        > old
        < STORED

        # Three bytes are read as data, and the rest as the next line.
        > set a 0 0 2
        > abc
        < CLIENT_ERROR bad data chunk
        < ERROR

        > ms a 2
        > abc
        < CLIENT_ERROR bad data chunk
        < ERROR
        ",
    );
}

fn keys_have_at_most_250_bytes(engine: Engine) {
    let (longest, longer) = (key(250), key(251));
    engine.converse(&format!(
        "
        > set {longest} 0 0 1
        > x
        > get {longest}
        < STORED
        < VALUE {longest} 0 1
        < x
        < END

        > get {longer}
        < CLIENT_ERROR bad command line format

        > get a {longer}
        < CLIENT_ERROR bad command line format

        > gat 0 {longer}
        < CLIENT_ERROR bad command line format

        > delete {longer}
        < CLIENT_ERROR bad command line format

        > incr {longer} 1
        < CLIENT_ERROR bad command line format

        > touch {longer} 0
        < CLIENT_ERROR bad command line format

        > mg {longer} v
        < CLIENT_ERROR bad command line format

        > md {longer}
        < CLIENT_ERROR bad command line format

        > ma {longer}
        < CLIENT_ERROR bad command line format

        > me {longer}
        < CLIENT_ERROR bad command line format

        # An older memcached takes the value for a separate line.
        newer
        > set {longer} 0 0 1
        > x
        > ms {longer} 1
        > x
        < CLIENT_ERROR bad command line format
        < CLIENT_ERROR bad command line format
        "
    ));
}

fn an_item_larger_than_the_limit_is_refused_and_the_old_one_goes(engine: Engine) {
    let server = engine.start();
    let large = "x".repeat(1024 * 1024);
    for (command, gone) in [("set", "END\r\n"), ("ms", "END\r\n")] {
        let mut client = server.connect();
        client.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
        let line = match command {
            "ms" => format!("ms a {}", large.len()),
            _ => format!("set a 0 0 {}", large.len()),
        };
        client.ask(
            format!("{line}\r\n{large}\r\n"),
            "SERVER_ERROR object too large for cache\r\n",
        );
        client.ask("get a\r\n", gone);
    }
}

fn the_largest_item_just_below_the_limit_is_stored(engine: Engine) {
    let server = engine.start();
    let mut client = server.connect();
    let large = "x".repeat(1024 * 1024 - 512);
    let length = large.len();
    client.ask(format!("set a 0 0 {length}\r\n{large}\r\n"), "STORED\r\n");
    client.ask(
        "get a\r\n",
        format!("VALUE a 0 {length}\r\n{large}\r\nEND\r\n"),
    );
}

fn without_eviction_a_full_server_refuses_items(engine: Engine) {
    let server = engine.with(&["-M", "-m", "8"]);
    let mut client = server.connect();
    let value = "x".repeat(100_000);
    let mut stored = 0;
    let refusal = loop {
        client.send(format!("set k{stored} 0 0 {}\r\n{value}\r\n", value.len()).as_bytes());
        match client.line() {
            line if line == "STORED" => stored += 1,
            line => break line,
        }
        assert!(stored < 500, "stored 50 MB in 8 MB");
    };
    assert_eq!(refusal, "SERVER_ERROR out of memory storing object");
    assert!(stored > 20, "only {stored} items of 100 kB in 8 MB");
    client.ask(
        "get k0\r\n",
        format!("VALUE k0 0 {}\r\n{value}\r\nEND\r\n", value.len()),
    );
}

fn with_eviction_a_full_server_forgets_something_old(engine: Engine) {
    let server = engine.with(&["-m", "8"]);
    let mut client = server.connect();
    let value = "x".repeat(50_000);
    for n in 0..1_000 {
        client.ask(
            format!("set k{n} 0 0 {}\r\n{value}\r\n", value.len()),
            "STORED\r\n",
        );
    }
    client.ask(
        "get k999\r\n",
        format!("VALUE k999 0 {}\r\n{value}\r\nEND\r\n", value.len()),
    );
    let hits = (0..1_000)
        .filter(|n| {
            client.send(format!("mg k{n} s\r\n").as_bytes());
            client.line().starts_with("HD")
        })
        .count();
    assert!((40..=170).contains(&hits), "{hits} items of 50 kB in 8 MB");
}

fn http_is_hung_up_on(engine: Engine) {
    engine.converse(
        r"
        > GET / HTTP/1.1
        > Host: x
        >
        < closed

        > POST / HTTP/1.1
        >
        < closed
        ",
    );
}

fn mg_returns_what_its_flags_ask_for_in_their_order(engine: Engine) {
    engine.converse(
        r"
        > set a 5 100 3
        > abc
        < STORED

        > mg a
        < HD

        > mg a v
        < VA 3
        < abc

        > mg a s v t f k Oq7
        < VA 3 s3 t100 f5 ka Oq7
        < abc

        > mg a Oq7 k f s
        < HD Oq7 ka f5 s3

        > mg a c
        < HD c{cas}

        > gets a
        < VALUE a 5 3 {cas}
        < abc
        < END

        > mg nothing v
        < EN

        > mg nothing k Ox v
        < EN knothing Ox

        > mg nothing q v k
        ",
    );
}

fn mg_tells_whether_an_item_was_read_before(engine: Engine) {
    engine.converse(
        r"
        > set a 0 0 1
        > x
        < STORED

        > mg a h u
        > mg a h u l
        > mg a h
        > mg a h
        > me a
        < HD h0
        < HD h0 l0
        < HD h0
        < HD h1
        < ME a exp=-1 la={any} cas={any} fetch=yes cls={any} size={any}
        ",
    );
}

fn mg_touches_with_t(engine: Engine) {
    engine.converse(
        r"
        > set a 0 0 1
        > x
        > mg a T30 t v
        < STORED
        < VA 1 t30
        < x

        > mg a t
        < HD t30

        > mg a T-1
        > mg a
        < HD
        < EN
        ",
    );
}

fn mg_vivifies_and_one_caller_wins(engine: Engine) {
    engine.converse(
        r"
        > mg a N30 v t
        < VA 0 t30 W
        <

        > mg a N30 v
        < VA 0 Z
        <

        > ms a 3 T100
        > new
        > mg a v
        < HD
        < VA 3
        < new

        > mg a R200 v
        > mg a R200 v
        < VA 3 W
        < new
        < VA 3 Z
        < new
        ",
    );
}

fn md_invalidates_and_one_caller_wins(engine: Engine) {
    engine.converse(
        r"
        > set a 0 0 1
        > x
        > mg a c
        < STORED
        < HD c{old}

        > md a I T30
        < HD

        > mg a t v
        < VA 1 t30 X W
        < x

        > mg a c v
        < VA 1 c{new} Z X
        < x

        # An older value than the item's: stored, stale as before, and won as before.
        > ms a 1 C{old} I
        > y
        < HD

        > mg a v
        < VA 1 Z X
        < y

        > ms a 1
        > z
        > mg a v
        < HD
        < VA 1
        < z
        ",
    );
}

fn ms_has_modes(engine: Engine) {
    engine.converse(
        r"
        > ms a 1 MR
        > x
        > ms a 1 MA
        > x
        > ms a 1 MP
        > x
        < NS
        < NS
        < NS

        > ms a 1 ME F7
        > m
        > ms a 1 ME
        > n
        < HD
        < NS

        > ms a 1 MA
        > z
        > ms a 1 MP
        > a
        > mg a f v
        < HD
        < HD
        < VA 3 f7
        < amz

        > ms a 1 MR
        > r
        > ms a 1 MS F9
        > s
        > mg a f v
        < HD
        < HD
        < VA 1 f9
        < s

        > ms a 1 MX
        > x
        < CLIENT_ERROR invalid mode for ms M token

        > ms a 1 MSS
        > x
        < CLIENT_ERROR incorrect length for M token

        newer
        > ms b 1 MA N30
        > x
        > mg b t v
        < HD
        < VA 1 t30
        < x
        ",
    );
}

fn ms_compares_and_reports_cas_values(engine: Engine) {
    engine.converse(
        r"
        > ms a 1 C5
        > x
        < NF

        > ms a 1 c k Oid
        > x
        < HD c{cas} ka Oid

        > mg a c
        < HD c{cas}

        > ms a 1 C{cas} T100
        > y
        < HD

        > ms a 1 C{cas} k Oid
        > z
        < EX ka Oid

        > ms a 1 ME c
        > z
        < NS c0

        newer
        > ms a 3 E123456 c s
        > new
        < HD c123456 s3

        newer
        > mg a c
        < HD c123456
        ",
    );
}

fn ms_is_quiet_about_success_only(engine: Engine) {
    engine.converse(
        r"
        > ms a 1 q
        > x

        > ms a 1 q ME Oid k
        > y
        < NS Oid ka

        > ms a 1 q C99999999999 Oid
        > y
        < EX Oid

        > mg a v
        < VA 1
        < x
        ",
    );
}

fn ms_swallows_the_data_of_a_line_with_bad_flags(engine: Engine) {
    engine.converse(
        r"
        > ms a 1 Tx
        > x
        < CLIENT_ERROR bad token in command line format

        > ms a 1 Cx
        > x
        < CLIENT_ERROR bad token in command line format

        > ms a 1 T1 T2
        > x
        < CLIENT_ERROR duplicate flag

        > ms a abc
        < CLIENT_ERROR bad command line format

        > ms a -1
        < CLIENT_ERROR bad command line format

        > ms a 2147483648
        < CLIENT_ERROR bad command line format

        > ms a
        < CLIENT_ERROR bad command line format

        newer
        > ms
        < CLIENT_ERROR bad command line format

        newer
        > ms a 1 $
        > x
        < CLIENT_ERROR invalid flag
        ",
    );
}

fn md_deletes(engine: Engine) {
    engine.converse(
        r"
        > set a 0 0 1
        > x
        > md a C99999999999 k Oid
        > md a k Oid
        > md a k Oid
        < STORED
        < EX ka Oid
        < HD ka Oid
        < NF ka Oid

        > set a 0 0 1
        > x
        > md a q
        < STORED

        newer
        > md
        < CLIENT_ERROR bad command line format

        newer
        > md a $
        < CLIENT_ERROR invalid flag
        ",
    );
}

fn md_can_keep_the_item_and_drop_its_value(engine: Engine) {
    engine.converse(
        r"
        newer
        > set a 5 0 3
        > abc
        > md a x
        > mg a s f v
        < STORED
        < HD
        < VA 0 s0 f0
        <

        newer
        > md a I E4711
        > mg a c v
        < HD
        < VA 0 c4711 X W
        <
        ",
    );
}

fn ma_counts(engine: Engine) {
    engine.converse(
        r"
        > ma n
        < NF

        > ma n k Oid v
        < NF kn Oid

        > ma n N0 J5
        < HD

        > ma n v
        > ma n D10 v
        > ma n MD v
        > ma n M- D100 v
        > ma n MI D3 v
        > ma n M+ v
        < VA 1
        < 6
        < VA 2
        < 16
        < VA 2
        < 15
        < VA 1
        < 0
        < VA 1
        < 3
        < VA 1
        < 4

        > ma n v t c k Oid
        < VA 1 t-1 c{cas} kn Oid
        < 5

        > ma n C99999999999
        > ma n C{cas} v
        < EX
        < VA 1
        < 6

        > ma n T30 t v
        < VA 1 t30
        < 7

        > ma n q v
        > mg n v
        < VA 2
        < 8\x20

        > ma fresh N30 t v
        < VA 1 t30
        < 0

        newer
        > ma n E777 c
        < HD c777
        ",
    );
}

fn ma_refuses_what_makes_no_sense(engine: Engine) {
    engine.converse(
        r"
        > ma n N0 J5
        < HD

        > ma n MX
        < CLIENT_ERROR invalid mode for ma M token

        newer
        > ma
        < CLIENT_ERROR bad command line format

        newer
        > ma n MII
        < CLIENT_ERROR incorrect length for M token

        newer
        > ma n Dx
        < CLIENT_ERROR invalid numeric delta value

        newer
        > ma other N0 Jx
        < CLIENT_ERROR invalid numeric initial value
        ",
    );
}

fn me_describes_an_item(engine: Engine) {
    engine.converse(
        r"
        > me a
        < EN

        > set a 0 0 1
        > x
        > me a
        < STORED
        < ME a exp=-1 la=0 cas={any} fetch=no cls={any} size={any}

        newer
        > set a 0 100 1
        > x
        > me a
        < STORED
        < ME a exp=100 la=0 cas={any} fetch=no cls={any} size={any}

        > me
        < CLIENT_ERROR bad command line format

        > ms YWJj 1 b
        > x
        > me YWJj b
        < HD
        < ME YWJj exp=-1 la={any} cas={any} fetch=no cls={any} size={any}
        ",
    );
}

fn base64_keys_may_hold_any_bytes(engine: Engine) {
    engine.converse(
        r"
        > ms YWJjZA== 1 b k
        > x
        < HD kYWJjZA== b

        > get abcd
        < VALUE abcd 0 1
        < x
        < END

        > mg YWJjZA== b k v Oq
        < VA 1 kYWJjZA== b Oq
        < x

        > ma Y250 b N0 J7 v k
        < VA 1 kY250 b
        < 7

        > md YWJjZA== b k
        > md YWJjZA== b k
        < HD kYWJjZA== b
        < NF kYWJjZA== b

        # A blank, a line break and a zero.
        > ms IA0KAA== 1 b
        > y
        > mg IA0KAA== b k v
        < HD
        < VA 1 kIA0KAA== b
        < y

        > mg !!! b
        > mg a b v
        < CLIENT_ERROR error decoding key
        < CLIENT_ERROR error decoding key

        > ms a 1 b
        > x
        < CLIENT_ERROR error decoding key
        ",
    );
}

fn meta_flags_are_checked(engine: Engine) {
    engine.converse(
        r"
        > mg a $
        < CLIENT_ERROR invalid flag

        > mg a v v
        > mg a O1 O2
        < CLIENT_ERROR duplicate flag
        < CLIENT_ERROR duplicate flag

        > mg a T
        > mg a Nx
        > mg a R
        < CLIENT_ERROR bad token in command line format
        < CLIENT_ERROR bad token in command line format
        < CLIENT_ERROR bad token in command line format

        > mg a O0123456789012345678901234567890
        < EN O0123456789012345678901234567890

        > mg a O01234567890123456789012345678901
        < CLIENT_ERROR opaque token too long

        # Room for proxies.
        > mg a P L v
        > mg a Pone Ltwo
        < EN
        < EN

        > mg a a b c d e f g h i j k l m n o p q r s t u v w x y
        < CLIENT_ERROR options flags are too long

        newer
        > mg
        < CLIENT_ERROR bad command line format
        ",
    );
}

fn a_batch_of_quiet_meta_commands_ends_with_mn(engine: Engine) {
    engine.converse(
        r"
        > ms a 1 q
        > x
        > mg a v q
        > mg nothing v q
        > md nothing-else q k
        > ma nothing q
        > mn
        < VA 1
        < x
        < NF knothing-else
        < NF
        < MN
        ",
    );
}

fn keys_of_control_and_high_bytes_are_taken_as_they_are(engine: Engine) {
    engine.converse(
        r"
        > set \x01\x7f 0 0 1
        > x
        > get \x01\x7f
        < STORED
        < VALUE \x01\x7f 0 1
        < x
        < END

        > set k\xc3\xa9\xff 0 0 1
        > x
        > get k\xc3\xa9\xff
        < STORED
        < VALUE k\xc3\xa9\xff 0 1
        < x
        < END
        ",
    );
}
