//! Replies to the meta commands.

use crate::common;

use common::{talk, talk_with};
use corewise_wire::memcached::Limits;

#[track_caller]
fn says(input: &str, expected: &str) {
    assert_eq!(talk(input.as_bytes()), expected, "to {input:?}");
}

/// Checks a conversation about a key `a` that holds `hi`, client flags 5, cas 1001.
#[track_caller]
fn with_a(input: &str, expected: &str) {
    says(
        &format!("set a 5 100 2\r\nhi\r\n{input}"),
        &format!("STORED\r\n{expected}"),
    );
}

#[test]
fn mn_answers_mn() {
    says("mn\r\nmn foo\r\n", "MN\r\nMN\r\n");
}

#[test]
fn mg_answers_flags_in_the_order_asked() {
    with_a("mg a\r\n", "HD\r\n");
    with_a("mg a v\r\n", "VA 2\r\nhi\r\n");
    with_a(
        "mg a t s f c k Oq1 v h l\r\n",
        "VA 2 t100 s2 f5 c1001 ka Oq1 h0 l0\r\nhi\r\n",
    );
    with_a("mg a Oq1 k c f s t\r\n", "HD Oq1 ka c1001 f5 s2 t100\r\n");
}

#[test]
fn mg_misses_with_en_opaque_and_key() {
    says("mg a\r\n", "EN\r\n");
    says("mg a k v Oxy c t\r\n", "EN ka Oxy\r\n");
    says("mg a k q Oxy\r\nmn\r\n", "MN\r\n");
}

#[test]
fn mg_quiet_still_answers_hits() {
    with_a("mg a q v\r\nmg b q v\r\nmn\r\n", "VA 2\r\nhi\r\nMN\r\n");
}

#[test]
fn mg_h_says_whether_the_item_was_hit_and_u_leaves_no_trace() {
    with_a(
        "mg a h u\r\nmg a h\r\nmg a h\r\n",
        "HD h0\r\nHD h0\r\nHD h1\r\n",
    );
}

#[test]
fn mg_touches() {
    with_a(
        "mg a T30 t\r\nmg a T0 t\r\nmg a T-1\r\nmg a\r\n",
        "HD t30\r\nHD t-1\r\nHD\r\nEN\r\n",
    );
}

#[test]
fn mg_vivifies_and_one_caller_wins() {
    says(
        "mg a N60 v t\r\nmg a N60 s q\r\n",
        "VA 0 t60 W\r\n\r\nHD s0 Z\r\n",
    );
    says("mg a N60 E777 c q\r\n", "HD c777 W\r\n");
}

#[test]
fn mg_recache_is_won_once_below_the_mark() {
    with_a(
        "mg a R30\r\nmg a R101\r\nmg a R101\r\n",
        "HD\r\nHD W\r\nHD Z\r\n",
    );
    with_a("mg a R-5\r\nmg a R0\r\n", "HD\r\nHD\r\n");
}

#[test]
fn a_stale_item_is_won_by_the_first_mg() {
    with_a(
        "md a I T30\r\nmg a v t\r\nmg a v\r\n",
        "HD\r\nVA 2 t30 X W\r\nhi\r\nVA 2 Z X\r\nhi\r\n",
    );
}

#[test]
fn ms_stores_with_flags_and_answers_in_order() {
    says(
        "ms a 2\r\nhi\r\nmg a v f t\r\n",
        "HD\r\nVA 2 f0 t-1\r\nhi\r\n",
    );
    says(
        "ms a 2 T60 F9 Oq c k s\r\nhi\r\nmg a v f t\r\n",
        "HD Oq c1001 ka s2\r\nVA 2 f9 t60\r\nhi\r\n",
    );
    says("ms a 0\r\n\r\nmg a v\r\n", "HD\r\nVA 0\r\n\r\n");
}

#[test]
fn ms_modes() {
    with_a("ms a 1 ME\r\nx\r\nms b 1 ME\r\nx\r\n", "NS\r\nHD\r\n");
    with_a("ms a 1 MA s\r\n!\r\nmg a v\r\n", "HD s3\r\nVA 3\r\nhi!\r\n");
    with_a("ms a 1 MP s\r\n!\r\nmg a v\r\n", "HD s3\r\nVA 3\r\n!hi\r\n");
    with_a("ms a 1 MR\r\nx\r\nms b 1 MR\r\nx\r\n", "HD\r\nNS\r\n");
    with_a("ms a 1 MS\r\nx\r\n", "HD\r\n");
    says("ms a 1 MA k s c\r\nx\r\n", "NS ka s1 c0\r\n");
    says(
        "ms a 1 MA N30\r\nx\r\nmg a v t\r\n",
        "HD\r\nVA 1 t30\r\nx\r\n",
    );
    says(
        "ms a 2 MZ\r\nxx\r\nmn\r\n",
        "CLIENT_ERROR invalid mode for ms M token\r\nMN\r\n",
    );
    says(
        "ms a 2 M\r\nxx\r\nmn\r\n",
        "CLIENT_ERROR incorrect length for M token\r\nMN\r\n",
    );
    says(
        "ms a 2 MSS\r\nxx\r\nmn\r\n",
        "CLIENT_ERROR incorrect length for M token\r\nMN\r\n",
    );
}

#[test]
fn ms_compares_and_sets_cas_values() {
    says("ms a 1 C5\r\nx\r\n", "NF\r\n");
    with_a("ms a 1 C5 c\r\nx\r\n", "EX c0\r\n");
    with_a("ms a 1 C1001 c E9\r\nx\r\nmg a c\r\n", "HD c9\r\nHD c9\r\n");
    with_a("ms a 1 C1001 MR\r\nx\r\n", "HD\r\n");
    says("ms b 1 C1 MR\r\nx\r\n", "NF\r\n");
    with_a("ms a 1 C7 MA\r\nx\r\nms a 1 C0 MA\r\nx\r\n", "EX\r\nHD\r\n");
    says("ms b 1 C7 MA\r\nx\r\n", "NS\r\n");
    with_a(
        "ms a 1 C1001 ME\r\nx\r\nms b 1 C7 ME\r\nx\r\n",
        "NS\r\nHD\r\n",
    );
    with_a("ms a 1 C0\r\nx\r\n", "EX\r\n");
}

#[test]
fn ms_i_stores_an_older_value_as_stale() {
    with_a(
        "ms a 3 I C7 T5\r\nold\r\nmg a v t\r\n",
        "HD\r\nVA 3 t100 X W\r\nold\r\n",
    );
    with_a("ms a 3 I C9999\r\nnew\r\n", "EX\r\n");
}

#[test]
fn ms_quiet_hides_success_only() {
    with_a(
        "ms a 1 q\r\nx\r\nms a 1 q ME\r\nx\r\nms a 1 q C5\r\nx\r\nmn\r\n",
        "NS\r\nEX\r\nMN\r\n",
    );
    says(
        "ms a 1 q\r\nxyz\r\nmn\r\n",
        "CLIENT_ERROR bad data chunk\r\nERROR\r\nMN\r\n",
    );
}

#[test]
fn ms_swallows_its_data_after_an_error_in_the_flags() {
    for (flags, error) in [
        ("z", "CLIENT_ERROR invalid flag"),
        ("k k", "CLIENT_ERROR duplicate flag"),
        ("Cx", "CLIENT_ERROR bad token in command line format"),
        ("Fx", "CLIENT_ERROR bad command line format"),
        ("b", "CLIENT_ERROR error decoding key"),
    ] {
        says(
            &format!("ms a 2 {flags}\r\nxx\r\nmn\r\n"),
            &format!("{error}\r\nMN\r\n"),
        );
    }
    let long = "k".repeat(251);
    let error = "CLIENT_ERROR bad command line format\r\n";
    says(
        &format!("ms {long} 2\r\nxx\r\nmn\r\n"),
        &format!("{error}MN\r\n"),
    );
    says(
        "ms\r\nms a\r\nms a x\r\nms a -1\r\nms a 2147483646\r\n",
        &error.repeat(5),
    );
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
fn md_removes_marks_or_empties() {
    says("md a\r\nmd a k Oq\r\n", "NF\r\nNF ka Oq\r\n");
    with_a("md a k Oq\r\nmg a\r\n", "HD ka Oq\r\nEN\r\n");
    with_a("md a q\r\nmd a q\r\nmn\r\n", "NF\r\nMN\r\n");
    with_a("md a C5 k\r\nmd a C1001\r\n", "EX ka\r\nHD\r\n");
    with_a("md a x\r\nmg a v f t\r\n", "HD\r\nVA 0 f0 t100\r\n\r\n");
    with_a("md a I E99\r\nmg a c\r\n", "HD\r\nHD c99 X W\r\n");
}

#[test]
fn ma_counts() {
    says("ma n\r\nma n D1 k Oq\r\n", "NF\r\nNF kn Oq\r\n");
    says(
        "ma n N0\r\nma n v\r\nma n v D10\r\n",
        "HD\r\nVA 1\r\n1\r\nVA 2\r\n11\r\n",
    );
    says(
        "ma n N60 J13 v t c k Oq\r\n",
        "VA 2 t60 c1001 kn Oq\r\n13\r\n",
    );
    says(
        "ma n N0 J13\r\nma n MD D3 v\r\nma n M- v\r\nma n MI v\r\nma n M+ v\r\n",
        "HD\r\nVA 2\r\n10\r\nVA 1\r\n9\r\nVA 2\r\n10\r\nVA 2\r\n11\r\n",
    );
    says("ma n N0 J5\r\nma n MD D9 v\r\n", "HD\r\nVA 1\r\n0\r\n");
    says(
        "ma n N0\r\nma n T70 t\r\nma n N9 t\r\n",
        "HD\r\nHD t70\r\nHD t70\r\n",
    );
    says("ma n N0 q\r\nma n q v\r\nma m q\r\nmn\r\n", "NF\r\nMN\r\n");
    says(
        "ma n N0 c\r\nma n C9\r\nma n C1001 c E50\r\nma n C0 c\r\n",
        "HD c1001\r\nEX\r\nHD c50\r\nHD c1004\r\n",
    );
    with_a(
        "ma a\r\n",
        "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    );
}

#[test]
fn ma_value_is_the_number_without_padding() {
    says(
        "ma n N0 J100\r\nma n MD D95 v\r\nmg n v\r\n",
        "HD\r\nVA 1\r\n5\r\nVA 3\r\n5  \r\n",
    );
}

#[test]
fn ma_errors() {
    says(
        "ma n MX\r\n",
        "CLIENT_ERROR invalid mode for ma M token\r\n",
    );
    says(
        "ma n Dx\r\n",
        "CLIENT_ERROR invalid numeric delta value\r\n",
    );
    says(
        "ma n D-1\r\n",
        "CLIENT_ERROR invalid numeric delta value\r\n",
    );
    says(
        "ma n Jx\r\n",
        "CLIENT_ERROR invalid numeric initial value\r\n",
    );
    says(
        "ma n Nx\r\n",
        "CLIENT_ERROR bad token in command line format\r\n",
    );
}

#[test]
fn me_shows_what_is_known_of_an_item() {
    says("me a\r\n", "EN\r\n");
    with_a(
        "me a\r\n",
        "ME a exp=100 la=0 cas=1001 fetch=no cls=1 size=67\r\n",
    );
    says(
        "set a 0 0 0\r\n\r\nget a\r\nme a\r\n",
        "STORED\r\nVALUE a 0 0\r\n\r\nEND\r\nME a exp=-1 la=0 cas=1001 fetch=yes cls=1 size=65\r\n",
    );
    says(
        "set abc 0 0 0\r\n\r\nme YWJj b\r\n",
        "STORED\r\nME YWJj exp=-1 la=0 cas=1001 fetch=no cls=1 size=67\r\n",
    );
    let error = "CLIENT_ERROR bad command line format\r\n";
    says("me\r\nme a b\r\n", &error.repeat(2));
    says(&format!("me {}\r\n", "k".repeat(251)), error);
}

#[test]
fn base64_keys_are_decoded_and_echoed_as_sent() {
    says(
        "ms YWJj 2 b k\r\nhi\r\nmg abc v k\r\nmg YWJj b v k\r\nmd YWJj k b\r\nmg YWJj k b\r\n",
        "HD kYWJj b\r\nVA 2 kabc\r\nhi\r\nVA 2 kYWJj b\r\nhi\r\nHD kYWJj b\r\nEN kYWJj b\r\n",
    );
    says(
        "ma YWI= b N0 k\r\nget ab\r\n",
        "HD kYWI= b\r\nVALUE ab 0 1\r\n0\r\nEND\r\n",
    );
    for bad in ["a", "YWJ", "====", "YW!j", "YWK="] {
        says(
            &format!("mg {bad} b\r\n"),
            "CLIENT_ERROR error decoding key\r\n",
        );
    }
}

#[test]
fn every_command_knows_every_flag_and_ignores_p_and_l() {
    let all = "c f h k l s t L P1 u x T0 N0 R0 F1 C1001 E2";
    with_a(
        &format!("mg a {all}\r\n"),
        "HD c1001 f5 h0 ka l0 s2 t-1\r\n",
    );
    with_a(&format!("md a {all}\r\n"), "HD ka\r\n");
    with_a(&format!("ms a 1 {all}\r\nx\r\n"), "HD c2 ka s1\r\n");
    says(
        &format!("set n 0 0 1\r\n1\r\nma n {all}\r\n"),
        "STORED\r\nHD c2 kn t-1\r\n",
    );
}

#[test]
fn a_repeated_or_unknown_flag_wins_else_the_last_error_does() {
    says("mg a t t\r\n", "CLIENT_ERROR duplicate flag\r\n");
    says("mg a T1 T2\r\n", "CLIENT_ERROR duplicate flag\r\n");
    says("mg a S1\r\n", "CLIENT_ERROR invalid flag\r\n");
    says("mg a Tx z\r\n", "CLIENT_ERROR invalid flag\r\n");
    says(
        "mg a Tx Dx\r\n",
        "CLIENT_ERROR invalid numeric delta value\r\n",
    );
    says("mg a \u{e9}\r\n", "CLIENT_ERROR duplicate flag\r\n");
    says("mg a \x7f\r\n", "CLIENT_ERROR duplicate flag\r\n");
    says(
        "md a z\r\nma a z\r\n",
        "CLIENT_ERROR invalid flag\r\nCLIENT_ERROR invalid flag\r\n",
    );
    for flag in ["T", "N", "R", "C", "E", "Tx", "N1x", "C-1"] {
        says(
            &format!("mg a {flag}\r\n"),
            "CLIENT_ERROR bad token in command line format\r\n",
        );
    }
}

#[test]
fn opaques_have_up_to_31_bytes() {
    let opaque = format!("O{}", "x".repeat(31));
    says(&format!("mg a {opaque}\r\n"), &format!("EN {opaque}\r\n"));
    says(
        &format!("mg a {opaque}x\r\n"),
        "CLIENT_ERROR opaque token too long\r\n",
    );
    says("mg a O\r\n", "EN O\r\n");
}

#[test]
fn a_line_has_up_to_twenty_tokens() {
    let eighteen = "b c f h k l s t v q u I x T0 N0 R0 F0 C0";
    says(
        &format!("mg YWJj {eighteen}\r\n"),
        "VA 0 c1001 f0 h0 kYWJj b l0 s0 t-1 W\r\n\r\n",
    );
    says(
        &format!("mg YWJj {eighteen} E1\r\n"),
        "CLIENT_ERROR options flags are too long\r\n",
    );
}

#[test]
fn a_meta_command_without_a_key_is_a_client_error() {
    let error = "CLIENT_ERROR bad command line format\r\n";
    says("mg\r\nmd\r\nma \r\n", &error.repeat(3));
    let long = "k".repeat(251);
    for word in ["mg", "md", "ma"] {
        says(&format!("{word} {long}\r\n"), error);
    }
}
