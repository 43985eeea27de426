//! Replies to memcached's text protocol, as `conversations.txt` lists them.

use crate::common::{Session, transcript};
use corewise_testkit::conversation::{bytes, rows};
use corewise_wire::memcached::Limits;

#[test]
fn conversations_have_exact_replies() {
    for (row, [request, reply]) in rows(include_str!("conversations.txt")) {
        let of_guarded = request.strip_prefix("secret: ");
        let request = of_guarded.unwrap_or(request);
        let mut session = Session::new(of_guarded.is_some(), Limits::default());
        let request = request.strip_prefix("a: ").map_or(request, |request| {
            session.feed(b"set a 5 100 2\r\nhi\r\n");
            session.out.clear();
            request
        });
        session.feed(&bytes(request));
        let expected = String::from_utf8(bytes(reply)).expect("a reply is text");
        assert_eq!(transcript(&session), expected, "{row}");
    }
}
