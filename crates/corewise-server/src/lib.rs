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
//!                    └────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! # Guarantees
//!
//! 1. Replies of a connection leave in the order of its requests.
//! 2. Everything received before SIGTERM or SIGINT is executed, and answered if the client reads
//!    within five seconds. A client that keeps sending, without a pause of more than 100 ms, is
//!    served for up to another second. Then the connection is closed, and `run` returns when all
//!    connections are closed.
//! 3. No request makes a loop wait for a client: sockets are non-blocking, each buffer is bounded
//!    (`conn`, `event_loop`), and so is the memory of all buffers together (`buffer_accounting`).
//! 4. A client that does not read its replies is paused, and closed after
//!    [`Config::slow_reader_timeout`].
//!
//! Out of scope: UDP, SASL, TLS, and memcached's binary protocol.

mod absent;
mod admin;
mod auth;
mod buffer_accounting;
mod classes;
mod config;
mod conn;
mod counters;
mod dump;
mod event_loop;
#[cfg(test)]
mod fake_engine;
mod memory;
mod process;
mod receiving;
mod server;
mod shared;
mod stream;
mod turn;
mod unix_socket;

pub use config::{Config, EngineKind, Eviction, RunError, StartError};
pub use server::Server;
