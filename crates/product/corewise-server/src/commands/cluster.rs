//! `CLUSTER`, `READONLY`, `READWRITE`, `ROLE`, `WAIT`: what clients ask about other servers. There
//! are none: the server is a master without replicas, as a redis-server that stands alone.

use super::{Context, first, text};
use corewise_engine::Engine;
use corewise_wire::resp::{Args, parse_integer};

/// `CLUSTER subcommand …`, `READONLY`, `READWRITE`.
pub(super) fn cluster<E: Engine>(cx: &mut Context<'_, E>, _: Args<'_>) {
    cx.error("ERR This instance has cluster support disabled");
}

/// `ROLE`.
pub(super) fn role<E: Engine>(cx: &mut Context<'_, E>, _: Args<'_>) {
    let mut reply = cx.reply();
    reply.array(3);
    reply.bulk(b"master");
    reply.integer(0);
    reply.array(0);
}

/// `WAIT replicas timeout`: there is no replica to wait for, so the reply comes at once.
pub(super) fn wait<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [replicas, timeout] = first(&mut args);
    match (parse_integer(replicas), parse_integer(timeout)) {
        (None, _) => cx.error(text::NOT_AN_INTEGER),
        (_, None) => cx.error("ERR timeout is not an integer or out of range"),
        (_, Some(..0)) => cx.error("ERR timeout is negative"),
        (Some(_), Some(_)) => cx.reply().integer(0),
    }
}
