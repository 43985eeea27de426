//! `LATENCY`: the events that a monitor of latency has recorded. None is recorded, and times of
//! commands are in `Commandstats` of `INFO`.

use super::{Context, first, until_nul};
use corewise_engine::Engine;
use corewise_wire::resp::Args;

const REPORT: &str = "Latency is not monitored. SLOWLOG has the slowest requests, and INFO \
                      commandstats the times of commands.\n";

/// `LATENCY subcommand …`.
pub(super) fn latency<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [subcommand] = first(&mut args);
    match subcommand.to_ascii_lowercase().as_slice() {
        b"latest" | b"history" => cx.reply().array(0),
        b"reset" => cx.reply().integer(0),
        b"histogram" => cx.reply().map(0),
        b"doctor" => cx.reply().verbatim(*b"txt", REPORT.as_bytes()),
        b"graph" => {
            let [event] = first(&mut args);
            let shown = until_nul(event);
            cx.reply()
                .error(&[b"ERR No samples available for event '", shown, b"'"]);
        }
        _ => cx.help(
            "LATENCY",
            "DOCTOR, GRAPH, HISTOGRAM, HISTORY, LATEST, RESET",
        ),
    }
}
