//! `PUBLISH`, `PUBSUB`, `SUBSCRIBE`: nobody can subscribe, so a message has no receivers.

use super::{Context, first};
use corewise_engine::Engine;
use corewise_wire::resp::Args;

/// `PUBLISH channel message`: the number of its receivers.
pub(super) fn publish<E: Engine>(cx: &mut Context<'_, E>, _: Args<'_>) {
    cx.reply().integer(0);
}

/// `SUBSCRIBE`, `PSUBSCRIBE`, `SSUBSCRIBE`.
pub(super) fn subscribe<E: Engine>(cx: &mut Context<'_, E>, _: Args<'_>) {
    cx.error("ERR this server has no publish and subscribe");
}

/// `PUBSUB CHANNELS [pattern]`, `PUBSUB NUMPAT`, `PUBSUB NUMSUB [channel …]`, and the same for
/// shards.
pub(super) fn pubsub<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [subcommand] = first(&mut args);
    match subcommand.to_ascii_lowercase().as_slice() {
        b"channels" | b"shardchannels" if args.len() > 1 => {
            cx.unknown_arguments("PUBSUB", subcommand);
        }
        b"channels" | b"shardchannels" => cx.reply().array(0),
        b"numpat" => cx.reply().integer(0),
        b"numsub" | b"shardnumsub" => {
            let mut reply = cx.reply();
            reply.array(2 * args.len());
            for channel in args {
                reply.bulk(channel);
                reply.integer(0);
            }
        }
        _ => cx.help(
            "PUBSUB",
            "CHANNELS, NUMPAT, NUMSUB, SHARDCHANNELS, SHARDNUMSUB",
        ),
    }
}
