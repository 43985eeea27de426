//! Commands that read or change several keys at once.

use super::ReplyForm;
use super::connection::database;
use super::operation::{Action, Parsed};
use super::{Context, Decision, first, keyspace, text};
use crate::codec::Parse;
use crate::shared::BATCH;
use corewise_engine::Engine;
use corewise_engine::item::Contents;
use corewise_ops::sorted::{SetSlot, SortedOp, SortedWrite, Taken};
use corewise_ops::{Deadline, Delete, ItemKind, Op, Outcome, Store, StoreMode, Token, Verb};
use corewise_wire::Tally;
use corewise_wire::resp::Args;

/// `MGET key …`.
pub(super) fn mget<'i>(_: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    Ok(Action::GetEach)
}

/// Keys and values in turn.
#[derive(Clone)]
struct Pairs<'i>(Args<'i>);

impl<'i> Iterator for Pairs<'i> {
    type Item = (&'i [u8], &'i [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.next()?, self.0.next()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.len() / 2, Some(self.0.len() / 2))
    }
}

impl<'i> Pairs<'i> {
    /// The pairs among the arguments; `None` after it has printed an error.
    fn parse<E: Engine>(cx: &mut Context<'_, E>, args: Args<'i>, command: &str) -> Option<Self> {
        if !args.len().is_multiple_of(2) {
            cx.wrong_arguments(command);
            return None;
        }
        // Before the first is set, so that a command that fails changes nothing.
        let most = cx.shared.limits.memcached.max_payload();
        let fits = |(key, value)| {
            let contents = Contents {
                key: &cx.stored(key),
                value: [value, b""],
                client_flags: 0,
                deadline: Deadline::NEVER,
                state: 0,
                kind: ItemKind::String,
            };
            contents.payload() <= most && contents.fits_header()
        };
        if !Self(args).all(fits) {
            cx.error(ReplyForm::error_text(&Outcome::TooLarge));
            return None;
        }
        Some(Self(args))
    }

    fn keys(&self) -> impl Iterator<Item = &'i [u8]> + use<'i> {
        self.clone().map(|(key, _)| key)
    }
}

/// Sets keys to values, in a transaction. Returns false after it has printed an error.
fn set_all<E: Engine>(cx: &mut Context<'_, E>, mut pairs: Pairs<'_>) -> bool {
    let mut batch = Vec::with_capacity(pairs.size_hint().0.min(BATCH));
    let mut failure = None;
    while failure.is_none() {
        batch.clear();
        let part = (0..BATCH as Token).zip(pairs.by_ref());
        batch.extend(part.map(|(token, (key, value))| {
            Op::new(
                token,
                key,
                Verb::Store(Store::new(StoreMode::Overwrite, value)),
            )
        }));
        if batch.is_empty() {
            return true;
        }
        cx.operate_on_all(&batch, |outcome| {
            if !matches!(outcome, Outcome::Stored(_)) {
                failure = Some(ReplyForm::error_text(outcome));
            }
        });
    }
    cx.error(failure.unwrap_or_default());
    false
}

/// `MSET key value …`.
pub(super) fn mset<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    let Some(pairs) = Pairs::parse(cx, args, "mset") else {
        return;
    };
    if cx.atomically(pairs.keys(), |cx| set_all(cx, pairs)) {
        cx.reply().simple("OK");
    }
}

/// `MSETNX key value …`.
pub(super) fn msetnx<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    let Some(pairs) = Pairs::parse(cx, args, "msetnx") else {
        return;
    };
    cx.atomically(pairs.keys(), |cx| {
        if pairs.keys().any(|key| cx.exists(Tally::None, key)) {
            cx.reply().integer(0);
        } else if set_all(cx, pairs) {
            cx.reply().integer(1);
        }
    });
}

/// What becomes of the item at the other key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transfer {
    /// There is no item at the first key.
    NoSource,
    /// There is one at the second key, which may not be replaced.
    Taken,
    Done,
    /// An error has been printed.
    Failed,
}

/// A key of a database.
type Place<'k> = (u8, &'k [u8]);

/// Moves a set, or copies it, with its deadline.
fn transfer_set<E: Engine>(
    cx: &mut Context<'_, E>,
    [from, to]: [Place<'_>; 2],
    (kind, deadline): (ItemKind, Deadline),
    transferred: Transferred,
) -> Transfer {
    let Transferred { replaces, keeps } = transferred;
    if !replaces && cx.in_database(to.0, |cx| cx.exists(Tally::None, to.1)) {
        return Transfer::Taken;
    }
    if kind == ItemKind::Filter && keeps {
        let bytes = cx.in_database(from.0, |cx| keyspace::set_usage(cx, from.1));
        if bytes.is_some_and(|bytes| bytes > MOST_COPIED) {
            cx.error(NOT_COPIED);
            return Transfer::Failed;
        }
    }
    let slot = &SetSlot::new();
    let take = |taken| SortedWrite::Take { slot, taken };
    let put = SortedWrite::Put { slot, deadline };
    let first = if keeps { Taken::Copy } else { Taken::Claim };
    let done = write_set(cx, from, take(first)).and_then(|is_found| {
        if !is_found {
            return Ok(Transfer::NoSource);
        }
        let put_first = write_set(cx, to, put);
        if keeps {
            write_set(cx, from, SortedWrite::EndCopy(slot))?;
            return put_first.map(|_| Transfer::Done);
        }
        put_first?;
        // Neither fails; but either item may have been evicted since.
        write_set(cx, from, take(Taken::Set))?;
        Ok(match write_set(cx, to, put)? {
            true => Transfer::Done,
            false => Transfer::NoSource,
        })
    });
    done.unwrap_or_else(|text| {
        cx.error(text);
        Transfer::Failed
    })
}

/// Executes a write on a set: whether there was one, or the error text.
pub(super) fn write_set<E: Engine>(
    cx: &mut Context<'_, E>,
    (database, key): Place<'_>,
    write: SortedWrite<'_>,
) -> Result<bool, &'static str> {
    let op = SortedOp::Write(write);
    let mut result = Ok(false);
    cx.in_database(database, |cx| {
        cx.operate(Tally::None, key, Verb::Sorted(&op), |outcome| {
            result = match outcome {
                Outcome::Sorted { is_found, .. } => Ok(*is_found),
                outcome => Err(ReplyForm::error_text(outcome)),
            };
        });
    });
    result
}

/// How an item is transferred.
#[derive(Clone, Copy)]
struct Transferred {
    /// Also if there is an item at the second key.
    replaces: bool,
    /// The item stays at the first key. (If it does not, a string has yet to be deleted there.)
    keeps: bool,
}

/// Stores a copy of the item of one key, its deadline included, under another; moves a set unless
/// it `keeps` the item.
fn transfer<E: Engine>(
    cx: &mut Context<'_, E>,
    [from, to]: [Place<'_>; 2],
    transferred: Transferred,
) -> Transfer {
    let mut source = None;
    cx.in_database(from.0, |cx| {
        cx.peek(cx.tally, from.1, |item| {
            source = item.map(|item| {
                let value = item.value.to_vec();
                (value, item.client_flags, item.deadline, item.kind)
            });
        });
    });
    let Some((value, client_flags, deadline, kind)) = source else {
        return Transfer::NoSource;
    };
    if kind != ItemKind::String {
        return transfer_set(cx, [from, to], (kind, deadline), transferred);
    }
    let mut is_taken = false;
    let done = cx.in_database(to.0, |cx| {
        cx.update_any_kind(to.1, |old, new| {
            is_taken = old.is_some() && !transferred.replaces;
            if is_taken {
                return Decision::Keep;
            }
            new.extend_from_slice(&value);
            Decision::Write {
                client_flags,
                deadline,
            }
        })
    });
    match (done, is_taken) {
        (false, _) => Transfer::Failed,
        (true, true) => Transfer::Taken,
        (true, false) => Transfer::Done,
    }
}

/// Moves the item of a key to another key. There is no error to print if the result is no
/// [`Transfer::Failed`].
fn move_item<E: Engine>(
    cx: &mut Context<'_, E>,
    places: [Place<'_>; 2],
    replaces: bool,
) -> Transfer {
    cx.atomically_on(places, |cx| {
        let [from, to] = places;
        cx.in_database(from.0, |cx| {
            if from == to {
                return match (cx.exists(Tally::None, from.1), replaces) {
                    (false, _) => Transfer::NoSource,
                    (true, true) => Transfer::Done,
                    (true, false) => Transfer::Taken,
                };
            }
            let moved = Transferred {
                replaces,
                keeps: false,
            };
            let transfer = transfer(cx, places, moved);
            if transfer == Transfer::Done {
                let delete = Verb::Delete(Delete::default());
                cx.operate(Tally::None, from.1, delete, |_| ());
            }
            transfer
        })
    })
}

/// Two keys of the database that is selected.
fn places<'i, E: Engine>(cx: &Context<'_, E>, mut args: Args<'i>) -> [Place<'i>; 2] {
    first::<2>(&mut args).map(|key| (cx.codec.database(), key))
}

/// `RENAME key newkey`.
pub(super) fn rename<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    match move_item(cx, places(cx, args), true) {
        Transfer::NoSource => cx.error(text::NO_SUCH_KEY),
        Transfer::Done | Transfer::Taken => cx.reply().simple("OK"),
        Transfer::Failed => {}
    }
}

/// `RENAMENX key newkey`.
pub(super) fn renamenx<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    match move_item(cx, places(cx, args), false) {
        Transfer::NoSource => cx.error(text::NO_SUCH_KEY),
        Transfer::Done => cx.reply().integer(1),
        Transfer::Taken => cx.reply().integer(0),
        Transfer::Failed => {}
    }
}

/// `MOVE key db`.
pub(super) fn move_key<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key, index] = first(&mut args);
    let from = cx.codec.database();
    let to = match database(index, cx.shared.config.databases) {
        Ok(to) => to,
        Err(text) => return cx.error(text),
    };
    if from == to {
        return cx.error(SAME_OBJECT);
    }
    match move_item(cx, [(from, key), (to, key)], false) {
        Transfer::NoSource | Transfer::Taken => cx.reply().integer(0),
        Transfer::Done => cx.reply().integer(1),
        Transfer::Failed => {}
    }
}

/// The bytes of the largest filter that is copied: it is copied in one operation.
const MOST_COPIED: u64 = 1 << 20;
/// What Redis replies to `COPY` of any filter of RedisBloom.
const NOT_COPIED: &str = "ERR not supported for this module key";
const SAME_OBJECT: &str = "ERR source and destination objects are the same";

/// `COPY source destination [DB index] [REPLACE]`.
pub(super) fn copy<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [from, mut to] = places(cx, args);
    args.nth(1); // the keys
    let mut replaces = false;
    while let Some(option) = args.next() {
        if option.eq_ignore_ascii_case(b"replace") {
            replaces = true;
        } else if option.eq_ignore_ascii_case(b"db") && args.len() > 0 {
            let [index] = first(&mut args);
            match database(index, cx.shared.config.databases) {
                Ok(index) => to.0 = index,
                Err(text) => return cx.error(text),
            }
        } else {
            return cx.error(text::SYNTAX);
        }
    }
    if from == to {
        return cx.error(SAME_OBJECT);
    }
    let copied = Transferred {
        replaces,
        keeps: true,
    };
    let transfer = cx.atomically_on([from, to], |cx| transfer(cx, [from, to], copied));
    match transfer {
        Transfer::NoSource | Transfer::Taken => cx.reply().integer(0),
        Transfer::Done => cx.reply().integer(1),
        Transfer::Failed => {}
    }
}
