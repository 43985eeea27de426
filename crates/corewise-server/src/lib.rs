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
//! 1. Replies of a connection are in the order of its requests.
//! 2. Everything received before SIGTERM or SIGINT is executed, and answered if
//!    the client reads within five seconds; so is what a client sends on while it
//!    pauses for no more than 100 ms, for a second. Then the connection is closed,
//!    and `run` returns when all are.
//! 3. No request makes a loop wait for a client: sockets never block, and every
//!    buffer has a bound (`conn`, `event_loop`), all together another (`ledger`).
//! 4. A client that does not read is paused and closed after
//!    [`Config::slow_reader_timeout`].
//!
//! Out of scope: UDP, SASL, TLS, and memcached's binary protocol.

mod absent;
mod admin;
mod auth;
mod classes;
mod config;
mod conn;
mod counters;
mod dump;
mod event_loop;
mod ledger;
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
