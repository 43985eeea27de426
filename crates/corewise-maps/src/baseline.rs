//! The two tables that the paper of the relativistic hash table compares it with (Triplett, McKenney, Walpole,
//! USENIX ATC 2011, §5), to compare ours with. For everything else there is [`RelativisticMap`](crate::RelativisticMap).
//!
//! Both are tables of [`ChainedMap`](crate::chained::ChainedMap): nodes, hashing, reclamation and locks of updates are those of the
//! resize variations in [`chained`](crate::chained), so what differs is the resize, and what lookups pay for it.
//!
//! | | lookup at rest | lookup beside a resize | a resize |
//! |---|---|---|---|
//! | [`RwLocked`] | two changes of one shared word: lookups on several processors slow each other down | waits until all is moved | stops everything |
//! | [`Ddds`] | one load and one branch more than without resizes | in two tables; a miss may be repeated or wait for a thread that moves an entry: not wait-free | moves entries one by one; two waits for readers |
//! | [`RelativisticMap`](crate::RelativisticMap) | | wait-free, as at rest | by links of chains; waits for readers in passes |
//!
//! ```
//! use corewise_maps::baseline::{Ddds, RwLocked};
//! use corewise_maps::chained::ChainedMap;
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

pub use crate::chained::{Ddds, RwLocked};
