//! Cache engines: items, expiry, eviction, memory budget.
//!
//! An [`Engine`] executes protocol-neutral operations ([`corewise_ops::Op`]) in batches and reports
//! each outcome to a [`corewise_ops::ReplySink`] from inside its critical section. It knows no
//! protocol and does no I/O.
//!
//! | engine | table | reads | eviction | use |
//! |---|---|---|---|---|
//! | [`relativistic`](engines::relativistic) | the relativistic table; its nodes are the items | in a read-side section, no lock | S3-FIFO, on segments | the server's default |
//! | [`locked`](engines::locked) | hashbrown, one per shard | under the shard's lock | LRU per shard | the baseline of every figure |
//! | [`lockhash`](engines::lockhash) | [`corewise_cphash`]'s, one per partition | under the partition's lock | LRU per partition | comparison: LOCKHASH of \[CPHASH\] |
//! | [`global_lock`](engines::global_lock) | hashbrown, one in all | under the one lock, taken twice | LRU | comparison: the baseline of \[ATC11\] |
//!
//! ```
//! use corewise_engine::{TimeSource, Engine, ManualClock, Session};
//! use corewise_engine::engines::relativistic::{Config, Relativistic};
//! use corewise_ops::*;
//! use std::sync::Arc;
//!
//! /// Keeps what a reply would be made from.
//! #[derive(Default)]
//! struct Values(Vec<Vec<u8>>);
//! impl ReplySink for Values {
//!     fn complete(&mut self, _: Token, outcome: Outcome<'_>) -> Flow {
//!         if let Outcome::Found(item) = outcome {
//!             self.0.push(item.value.to_vec());
//!         }
//!         Flow::Continue
//!     }
//! }
//!
//! let clock = ManualClock::new(1_700_000_000);
//! let cache = Arc::new(Relativistic::new(Config::default()));
//! let mut session = cache.session();
//! let mut sink = Values::default();
//! let set = Verb::Store(Store::new(StoreMode::Set, b"world"));
//! let ops = [
//!     Op::new(0, b"hello", set),
//!     Op::new(1, b"hello", Verb::Get(Get::default())),
//! ];
//! assert_eq!(session.submit(clock.now(), &ops, &mut sink), 2);
//! assert_eq!(session.poll(clock.now(), &mut sink), 0);
//! assert_eq!(sink.0, [b"world"]);
//! ```

pub mod alloc;
mod clock;
mod contention;
mod counter;
mod engine;
pub mod engines;

pub mod isolation;
pub mod item;
mod objects;
pub mod reservation;
pub mod size_class;

pub use clock::{ManualClock, ORIGIN_MS, SystemClock, TimeSource};
pub use engine::{ClassStats, Cursor, Engine, EngineStats, ScanStep, Session};
pub use reservation::Reservation;
