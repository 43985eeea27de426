//! Event loops, connections and sessions of the Corewise cache server.
//!
//! ```text
//!                    ┌───────────────────────────── process ─────────────────────────────┐
//!   SIGTERM, SIGHUP ▶│ main thread: listeners, signals                                    │
//!   clients ──accept▶│      │ each connection to the loop with the fewest                 │
//!                    │      ▼                                                             │
//!   clients ◀───────▶│ loop-0 … loop-N: epoll ▶ read ▶ codec ▶ batch ─┐                   │
//!                    │                  ▲ one write per connection     │ submit / poll     │
//!                    │                  └──── replies ◀── ReplySink ◀──┤                   │
//!                    │                                     engine (shared by all loops)   │
//!   scrapers ◀──────▶│ metrics: HTTP; reads what the loops publish, asks whether they run │
//!                    └────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! # Guarantees
//!
//! 1. Replies of a connection leave in the order of its requests.
//! 2. Everything received before SIGTERM, SIGINT or SIGUSR1 is executed, and answered if the client
//!    reads, within five seconds; what takes longer is not. This includes connections that the
//!    server has not accepted yet, up to [`Config::max_connections`]. A client that keeps sending,
//!    without a pause of more than 100 ms, is served for up to another second. Then the connection
//!    is closed, and `run` returns when all connections are closed.
//! 3. No request makes a loop wait for a client, with one exception: sockets are non-blocking, each
//!    buffer is bounded (`conn`, `event_loop`), and so is the memory of all buffers together
//!    (`buffer_accounting`). The exception is a reply of 1 MiB or more that a client does not read:
//!    before it is copied, its loop waits for the socket about as long as the copy will take, 1 ms
//!    for each MiB, and 64 ms at most for all replies of a turn.
//! 4. A client that does not read its replies is paused, and closed after
//!    [`Config::slow_reader_timeout`], or earlier, in the middle of a reply, when the memory of
//!    waiting replies is exhausted (half of the memory limit; with [`Eviction::None`] that of
//!    [`Config::connection_memory`]).
//! 5. A client waits for at most 2 ms and one unit of work for each other client of its loop that
//!    is busy, whatever the others send (`budget`); and for a transaction of the others, whose cost
//!    is bounded (`commands`).
//! 6. If an event loop panics or its poller fails, the connections of that loop are closed. The
//!    server stops as in 2, with the loops that are left, and `run` returns an error.
//! 7. Clients of the metrics cost a loop no more than clients of `stats` and `stats conns` do, and
//!    the answer whether it runs, once a second at most (`metrics::http`).
//!
//! A connection speaks the protocol of the listener that accepted it ([`ListenAt`]). memcached's
//! listeners have two, and the first byte determines which ([`BindingProtocol`]).
//!
//! Out of scope: UDP, SASL, TLS.

mod admin;
mod auth;
mod budget;
mod buffer_accounting;
mod classes;
mod codec;
mod commands;
mod complaints;
mod config;
mod conn;
mod dump;
mod event_loop;
#[cfg(test)]
mod fake_engine;
mod front;
mod listener;
mod memory;
mod metrics;
mod process;
mod protocol;
mod receiving;
mod scripts;
mod server;
mod shared;
mod spare_inputs;
mod transport;
mod turn;

pub use config::{
    BindAddress, BindingProtocol, Config, EngineKind, Eviction, ListenAt, RunError, ScriptKeys,
    StartError,
};
pub use protocol::ProtocolKind;
pub use server::Server;
