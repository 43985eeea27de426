//! What the targets share: input at once and in pieces, compared.

use crate::common::{Session, transcript};

/// Feeds `input` to one session at once and to another in pieces of `sizes` bytes and one: nothing
/// panics, every step makes progress, and neither the replies nor the unread rest depend on how the
/// input was cut.
pub(crate) fn compare(session: impl Fn() -> Session, sizes: [u8; 4], input: &[u8]) {
    let mut whole = session();
    whole.feed(input);

    let mut pieces = session();
    let mut rest = input;
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, tail) = rest.split_at(rest.len().min(1 + usize::from(*size)));
        pieces.feed(piece);
        rest = tail;
    }

    assert_eq!(pieces.out, whole.out);
    assert_eq!(transcript(&pieces), transcript(&whole));
    if !whole.closed {
        assert_eq!(pieces.unread, whole.unread);
    }
}
