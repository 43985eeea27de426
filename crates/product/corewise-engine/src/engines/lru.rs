//! The eviction order of the engines that have an LRU list for each shard or partition.
//!
//! The list runs from the most to the least recently used item. Moving an item to the front on
//! every hit would write to three cold cache lines per read. So a hit moves its item only if it has
//! not been moved for [`refresh_after_s`]: a minute, or an eighth of the idle time at which items
//! are being evicted if that is less. Where eviction is urgent (items leave within seconds), every
//! hit moves its item and the order is exact. In general a position is wrong by at most an eighth
//! of the time an item spends in the list. An item that was read since it was last moved is moved
//! when its turn to be evicted comes, so items in use also survive the first evictions.

/// The longest time for which a hit leaves an item in its place in the eviction order.
pub(super) const REFRESH_AT_MOST_S: u32 = 60;

/// Items that one eviction passes over because they were read since they were last moved.
pub(super) const SECOND_CHANCES: usize = 8;

/// Live items that one store passes over, when it may not evict, in search of an expired one.
pub(super) const PASSED_OVER: usize = 64;

/// How long a hit leaves an item in its place while items of this idle time are evicted.
pub(super) fn refresh_after_s(evicted_idle_s: u32) -> u32 {
    (evicted_idle_s / 8).min(REFRESH_AT_MOST_S)
}

/// Items that one search for a victim passes over.
pub(super) fn chances(may_evict: bool) -> usize {
    if may_evict {
        SECOND_CHANCES
    } else {
        PASSED_OVER
    }
}
