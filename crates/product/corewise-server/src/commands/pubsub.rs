//! `PUBLISH`, `PUBSUB`, `SUBSCRIBE`, `UNSUBSCRIBE` and their kin: no client can subscribe, so a
//! message has no receivers.

use super::{Context, first};
use corewise_engine::Engine;
use corewise_wire::resp::Args;

/// `PUBLISH channel message`, `SPUBLISH channel message`: the number of its receivers.
pub(super) fn publish<E: Engine>(cx: &mut Context<'_, E>, _: Args<'_>) {
    cx.reply().integer(0);
}

/// `SUBSCRIBE`, `PSUBSCRIBE`, `SSUBSCRIBE`.
pub(super) fn subscribe<E: Engine>(cx: &mut Context<'_, E>, _: Args<'_>) {
    cx.error("ERR this server has no publish and subscribe");
}

/// `UNSUBSCRIBE [channel …]`.
pub(super) fn unsubscribe<E: Engine>(cx: &mut Context<'_, E>, channels: Args<'_>) {
    end_subscriptions(cx, b"unsubscribe", channels);
}

/// `PUNSUBSCRIBE [pattern …]`.
pub(super) fn punsubscribe<E: Engine>(cx: &mut Context<'_, E>, patterns: Args<'_>) {
    end_subscriptions(cx, b"punsubscribe", patterns);
}

/// `SUNSUBSCRIBE [channel …]`.
pub(super) fn sunsubscribe<E: Engine>(cx: &mut Context<'_, E>, channels: Args<'_>) {
    end_subscriptions(cx, b"sunsubscribe", channels);
}

/// One message for each channel, or one for none, that no subscription is left. They are messages
/// and no replies, so a client gets them even if it wants no replies.
fn end_subscriptions<E: Engine>(cx: &mut Context<'_, E>, kind: &[u8], channels: Args<'_>) {
    cx.is_silent = false;
    let mut message = |channel: Option<&[u8]>| {
        let mut reply = cx.reply();
        reply.push(3);
        reply.bulk(kind);
        match channel {
            Some(channel) => reply.bulk(channel),
            None => reply.null(),
        }
        reply.integer(0);
    };
    if channels.len() == 0 {
        message(None);
    }
    for channel in channels {
        message(Some(channel));
    }
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
