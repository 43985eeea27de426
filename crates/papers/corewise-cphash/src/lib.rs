//! Hash tables with eviction and a memory budget, for caches: CPHASH, in which a thread owns each
//! partition and executes the operations that other threads send to it, and LOCKHASH, in which an
//! operation locks the partition of its key.
//!
//! ```
//! use corewise_cphash::{Config, CpHash, LockHash};
//!
//! let table = LockHash::new(&Config::new(16 << 20))?; // 16 MiB for keys and values
//! table.insert("key", b"value")?;
//! table.insert("large", &[0; 1_000_000])?;
//! assert_eq!(table.get("key", |value| value.to_vec()), Some(b"value".to_vec()));
//!
//! let table = CpHash::new(&Config::new(16 << 20), 1)?; // one server thread
//! let mut client = table.client();
//! client.insert("key", b"value")?;
//! assert_eq!(client.get("key", |value| value.to_vec()), Some(b"value".to_vec()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Which table
//!
//! | if | use |
//! |---|---|
//! | threads wait for each operation | [`LockHash`]: a message and its reply take longer than a lock |
//! | there are few cores, or few threads at a time | [`LockHash`] |
//! | many cores send batches of operations, and values are small | [`CpHash`]: measure both |
//! | an event loop has operations of many connections | [`CpHash`] and [`Colocated`] |
//! | nothing is ever evicted | another crate: `corewise-maps` |
//!
//! # Where `CpHash` loses
//!
//! On few cores. A thread that serves does nothing else, so with equal numbers of clients and
//! servers an operation of [`LockHash`] must take more than twice the slower side of [`CpHash`]
//! before messages pay, and with [`Colocated`] more than both sides together. On one thread, so
//! without the transfers between cores that both tables pay for, the client took 40 ns, the server
//! 155 ns and `LockHash` 191 ns (1 MiB of values, 30 % insertions, AMD EPYC, 2026-11-24,
//! `corewise-cphash-bench costs` of commit d6f25cd; today `bench run --suite cphash -n 1`). So two
//! threads with a dedicated server reach at most 0.62 of two threads with `LockHash`. The paper's
//! 160 threads took 1,126 cycles at a client and 3,664 under a lock, which is 1.63 times the other
//! way (\[CPHASH\] §6.2). A hot partition is no exception: one thread serves it, whatever the
//! number of cores.
//!
//! Source: \[CPHASH\] (Z. Metreveli, N. Zeldovich, M. F. Kaashoek, *CPHash: A Cache-Partitioned
//! Hash Table*, PPoPP 2012).
//!
//! # Limits
//!
//! | what | limit |
//! |---|---|
//! | partitions | [`MAX_PARTITIONS`]; by default they follow the budget, see [`Config::partitions`] |
//! | a partition | 128 bytes to 16 TiB |
//! | buckets | [`MAX_BUCKETS`], see [`Config::element_bytes`] |
//! | server threads of a [`CpHash`] | [`MAX_SERVER_THREADS`] |
//! | an element | its partition: by default 1 MiB or more, or a sixteenth of the budget |
//! | a key | [`MAX_KEY_BYTES`] |
//! | a value | 2^32 − 1 bytes |
//! | overhead of an element in a [`LockHash`] | 48 bytes, and up to 63 to fill its last line |
//! | overhead of an element in a [`CpHash`] | 72 bytes, and up to 63 to fill its last line |
//! | operations that a client has outstanding | 64 to 16,384, see [`Config::pipeline`] |
//! | keys and values that a client has waiting | [`MAX_WAITING_BYTES`] |
//! | clients and servers | memory: 16 to 48 bytes for each operation of the pipeline, client and partition |
//! | bytes beside the budget | buckets, see [`Config`]; about 400 for each partition of a [`LockHash`], 1 KiB of a [`CpHash`] |
//!
//! Targets: those of `corewise-atomic`. Tested on x86-64 Linux.

mod chain;
#[cfg(doctest)]
mod compile_fail;
mod config;
mod cphash;
mod element;
mod heap;
mod key;
mod list;
mod lockhash;
#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod long_keys;
mod partition;
pub mod ring;
/// Its program, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub use config::{Config, ConfigError, MAX_BUCKETS, MAX_PARTITIONS, MAX_SERVER_THREADS};
/// The locks of \[CPHASH\] §6.2, and what any other needs.
pub use corewise_locks::{Anderson, RawLock, Ttas};
pub use corewise_topology::{CpuId, PinPolicy};
pub use cphash::{
    Client, Colocated, CpHash, Entry, MAX_WAITING_BYTES, PartitionServer, PipelineFull, RemoteRef,
    TaskResult,
};
pub use key::{Key, MAX_KEY_BYTES};
pub use lockhash::{CacheRequest, LockHash, Reply, ValueRef};
#[cfg(feature = "raw")]
#[doc(hidden)]
pub use partition::raw;
pub use partition::{Eviction, InsertError, Replace, Stats};
