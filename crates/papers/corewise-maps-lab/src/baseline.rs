//! The tables that the paper on the relativistic hash table compares it with (\[ATC11\] §5:
//! Triplett, McKenney, Walpole, USENIX ATC 2011). They are baselines for ours; use
//! [`RelativisticMap`](corewise_maps::RelativisticMap) for everything else.
//!
//! All are tables of [`ChainedMap`](crate::chained::ChainedMap). Their nodes, hashing, reclamation
//! and update locks are those of the resize variations in [`chained`](crate::chained), so they
//! differ only in the resize and in what lookups pay for it.
//!
//! | | lookup at rest | lookup during a resize | a resize |
//! |---|---|---|---|
//! | [`RwLocked`] | two changes of one shared word: lookups on several processors slow each other down | waits until all entries are moved | stops all operations |
//! | [`LiteralDdds`] | one load and one branch more than without resizes | in two tables; it waits for a thread that moves any entry, and a miss is repeated if one was moved: not wait-free | moves entries one by one; three waits for readers |
//! | [`Ddds`] | the same | in two tables; a miss may be repeated or wait for a thread that moves an entry of its stripe: not wait-free | moves entries one by one; two waits for readers |
//! | [`RelativisticMap`](corewise_maps::RelativisticMap) | | wait-free, as at rest | changes links of chains; waits for readers in passes |
//!
//! ```
//! use corewise_maps_lab::baseline::{Ddds, RwLocked};
//! use corewise_maps_lab::chained::ChainedMap;
//!
//! let map: ChainedMap<u64, u64, Ddds> = ChainedMap::with_buckets(64);
//! assert!(map.pin().insert(1, 10));
//! let took = map.resize_to(1024).unwrap();
//! assert_eq!((took.passes, took.waits), (1, 2));
//! assert_eq!(map.pin().get(&1), Some(&10));
//!
//! let map: ChainedMap<u64, u64, RwLocked> = ChainedMap::with_buckets(64);
//! assert!(map.pin().insert(1, 10));
//! assert_eq!(map.resize_to(16).unwrap().waits, 0);
//! assert_eq!(map.pin().remove(&1), Some(&10));
//! ```

pub use crate::chained::{Ddds, LiteralDdds, RwLocked};
