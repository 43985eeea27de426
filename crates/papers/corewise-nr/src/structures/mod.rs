//! Data structures to replicate, and one that is concurrent without replication.
//!
//! | structure | kind | paper |
//! |---|---|---|
//! | [`SkipListQueue`](priority_queue::SkipListQueue) | priority queue, skip list | §4.1 |
//! | [`SkipListDictionary`](dictionary::SkipListDictionary) | dictionary, skip list | §4.1 |
//! | [`LockFreeSkipList`](lock_free::LockFreeSkipList) | concurrent dictionary, the baseline LF | §4.1 |
//! | [`LockFreePriorityQueue`](lock_free::LockFreePriorityQueue) | concurrent priority queue, the baseline LF | §4.1 |
//!
//! All but the last two are sequential and implement [`Sequential`](crate::Sequential). The sorted
//! set of §4.2 is in [`sorted_set`](crate::sorted_set).

pub mod dictionary;
pub mod lock_free;
pub mod priority_queue;
pub mod skip_list;
