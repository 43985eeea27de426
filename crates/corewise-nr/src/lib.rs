//! Node replication: turns a sequential data structure into a linearizable concurrent one, with a
//! replica for each NUMA node (Calciu, Sen, Balakrishnan, Aguilera: *How to implement any concurrent
//! data structure*, CACM 2018).

mod sequential;

pub use sequential::Sequential;
