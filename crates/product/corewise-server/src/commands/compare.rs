//! Removals that compare the value first, which Redis 7 has scripts for.
//!
//! Source: [`DELEX`](https://redis.io/commands/delex) of Redis 8.4, without digests, and
//! [`DELIFEQ`](https://valkey.io/commands/delifeq) of Valkey 9.0.

use super::operation::{Operation, Parsed, decided};
use super::{first, text};
use crate::codec::Parse;
use crate::commands::form::ReplyShape;
use corewise_ops::{Decided, Decision, Edit, ItemView, StoreRule};
use corewise_wire::resp::Args;

/// What the number of the edit says of the values.
const EQUAL: i64 = 0;
const DIFFERENT: i64 = 1;

/// `DELEX key [IFEQ value | IFNE value]`.
pub(super) fn delex<'i>(mut args: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    let [key] = first(&mut args);
    let condition = match (args.next(), args.next(), args.next()) {
        (None, ..) => return Operation::delete(key, ReplyShape::Flag).into(),
        (Some(word), Some(value), None) if word.eq_ignore_ascii_case(b"ifeq") => (EQUAL, value),
        (Some(word), Some(value), None) if word.eq_ignore_ascii_case(b"ifne") => (DIFFERENT, value),
        _ => return Err(text::SYNTAX.into()),
    };
    removal(key, condition).into()
}

/// `DELIFEQ key value`.
pub(super) fn delifeq<'i>(mut args: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    let [key, value] = first(&mut args);
    removal(key, (EQUAL, value)).into()
}

fn removal<'i>(key: &'i [u8], (number, value): (i64, &'i [u8])) -> Operation<'i> {
    let edit = Edit {
        decide: remove,
        value,
        number,
        rule: StoreRule::default(),
    };
    Operation::edit_with(key, edit, ReplyShape::Number)
}

/// Removes the item if its value is equal or different, and reports 1 if it was removed.
fn remove(
    edit: &Edit<'_>,
    old: Option<&ItemView<'_>>,
    _: &mut Vec<u8>,
) -> Result<Decided, &'static str> {
    let wants_equal = edit.number == EQUAL;
    match old {
        Some(old) if (old.value == edit.value) == wants_equal => decided(Decision::Remove, 1),
        _ => decided(Decision::Keep, 0),
    }
}
