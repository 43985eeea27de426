//! Node replication: turns a sequential data structure into a linearizable concurrent one, with a
//! replica for each NUMA node.

pub mod baseline;
mod combining;
mod compare;
mod concurrent;
mod handle;
mod lock;
mod log;
mod members;
#[cfg(test)]
mod models;
mod registration;
mod replica;
mod replicated;
mod sequential;

pub use compare::{Checkpoint, Divergence};
pub use concurrent::{Concurrent, Operation};
pub use handle::{Handle, NoReplica};
pub use members::{
    BuildError, Builder, MAX_LOG, MAX_REPLICAS, MAX_SLOTS, RemoveError, ReplicaId, ReplicaStats,
    Stats, TooMany,
};
pub use replicated::NodeReplicated;
pub use sequential::Sequential;
