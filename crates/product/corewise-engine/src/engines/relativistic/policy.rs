//! Which items leave when memory is short.
//!
//! All policies work on whole segments, oldest first, and decide for each item whether it is copied
//! into another segment or evicted. An item counts its hits, up to three; further hits write
//! nothing.
//!
//! *S3-FIFO* (\[S3-FIFO\] §4): a new item enters a small queue. An item that was not read when its
//! turn comes is evicted, and its fingerprint stays in a *ghost* for a while. An item that was read
//! enters the main queue, and circulates there as long as it is read between two turns. An item
//! that is stored again while the ghost remembers it enters the main queue at once. So a scan
//! passes through the small queue and evicts nothing else.
//!
//! Differences from the paper: queues consist of segments, so an item's turn comes some items early
//! or late, and the queues' shares are shares of bytes. An item larger than twice the mean needs
//! two hits instead of one, to enter the main queue and in every round there, because it takes the
//! place of several others. An item that is overwritten keeps its queue and its hits. The ghost
//! forgets by collision, not in order.
//!
//! An item smaller than half of the mean stays for some turns without being read, in inverse
//! proportion to its size: it takes little memory from others, and a miss on it costs a request
//! like any other (the idea of GreedyDual-Size: Cao, Irani, *Cost-aware WWW proxy caching
//! algorithms*, USITS 1997). The effect bounds itself: the more such items stay, the smaller the
//! mean; they take half of the memory at most. With values of 50 to 200,000 bytes, each power of
//! two equally often, zipf 0.8, `-m 64` and a footprint of three times that, 0.847 of the gets hit;
//! without this, 0.791 (2026-11-22; memcached 0.842; `bench server hits --sweep -m 64 --exponents
//! 0.8 --values 50-200000`). Popular large items lose less than a hundredth of their hits.
//!
//! So an item of any size that is read twice between two of its turns stays.
//!
//! # Why S3-FIFO
//!
//! `cargo run --release -p corewise-maps-lab --example memory_policies -- --share 20 --seeds 1` in
//! commit `d11e241` replays generated traces against segments and size classes under several
//! policies. The table gives miss ratios with room for a fifth of the footprint (2026-11-21;
//! `--design seg-s3+thr=1+unit=2+small=25+clean=85`, `small=10`, without `unit`,
//! `seg-sieve+clean=85`, `class-sieve`, `class-lru`):
//!
//! | trace | this | small queue of 10 % | hits alike | SIEVE, segments | SIEVE, size classes | LRU, size classes |
//! |---|---|---|---|---|---|---|
//! | zipf 1 | 0.168 | 0.163 | 0.174 | 0.173 | 0.175 | 0.208 |
//! | zipf 1 and scans | 0.382 | 0.378 | 0.387 | 0.388 | 0.389 | 0.441 |
//! | short expiries | 0.268 | 0.269 | 0.270 | 0.277 | 0.279 | 0.302 |
//! | sizes shift twice | 0.180 | 0.188 | 0.182 | 0.207 | 0.217 | 0.194 |
//! | popular items small | 0.136 | 0.133 | 0.138 | 0.140 | 0.150 | 0.182 |
//! | popular items large | 0.234 | 0.228 | 0.234 | 0.235 | 0.238 | 0.260 |
//!
//! *Size classes* (growth 1.25, pages moved from the coldest class) lose what they round up, and
//! adapt slowly when sizes shift. *\[SIEVE\]* leaves items that were read once in front of the hand
//! when popularity shifts. *Segments per range of expiry* (\[Segcache\] §3.2) gain nothing once
//! sparse segments are compacted, and cost open segments. Compacting segments whose live share is
//! below 85 % is the knee: a lower threshold keeps dead bytes, a higher one copies more than it
//! gains. The engine compacts below 7/8, so that overwriting 90 % of the memory evicts nothing.

use super::queues::Segment;
use super::queues::{Queue, Queues};
use crate::item::state;
use corewise_atomic::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use corewise_atomic::{Slots, mutant};

/// What to do when the budget is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// Resistant to scans. The default: see the module's header.
    #[default]
    S3Fifo,
    /// First in, first out, except that an item that was read since it was stored or since its last
    /// turn stays: an approximation of LRU (the *clock* policy).
    Lru,
    /// Evicts any segment, with everything in it.
    Random,
    /// Refuses new items (memcached's `-M`).
    Refuse,
}

/// The small queue's share of the bytes, in percent.
///
/// The paper has 10. When the whole working set dies at once, the main queue is full of dead items
/// for a while and only the small queue serves: 25 has 4 % fewer misses than 10 there, and up to 3
/// % more where popularity is stable; see the module's header.
const SMALL_PERCENT: u64 = 25;
/// Bytes of memory per ghost entry of two bytes.
const BYTES_PER_GHOST: u64 = 256;
/// The most ghost entries. Beyond 64 GiB of memory, items are larger and not more numerous.
const MOST_GHOSTS: u64 = 1 << 28;
/// Most segments at the old end of a queue that may be claimed, or still be written to, by other
/// threads.
const CLAIMED_AT_MOST: usize = 256;
/// An item of more than this many mean sizes needs two hits to stay. Never more than two: otherwise
/// large items would leave however often they are read.
const MEANS_OF_LARGE: usize = 2;

/// An item that is smaller than the mean by more than this factor stays for some turns without
/// being read. (Where all sizes are similar, no item is so small.)
const SMALLER_THAN_MEAN: u64 = 2;

/// State bits that belong to the policy.
pub(super) const BITS: u8 = state::HITS | state::KEPT;

/// What happens to a live item when its segment's turn comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The item is copied to a segment of this queue, with these bits of the policy's state.
    Keep(Queue, u8),
    Evict,
}

/// A policy and its state.
pub(super) struct Policy {
    eviction: Eviction,
    ghost: Option<Ghost>,
    /// Number of random draws so far, for `Random`.
    draws: AtomicU64,
}

impl Policy {
    pub(super) fn new(eviction: Eviction, memory: u64) -> Self {
        let ghost = eviction == Eviction::S3Fifo;
        Self {
            eviction,
            ghost: ghost
                .then(|| Ghost::new((memory / BYTES_PER_GHOST).min(MOST_GHOSTS)))
                .flatten(),
            draws: AtomicU64::new(0),
        }
    }

    pub(super) fn eviction(&self) -> Eviction {
        self.eviction
    }

    /// Bytes of the policy's own data.
    pub(super) fn bytes(&self) -> u64 {
        let ghost = self.ghost.as_ref();
        ghost.map_or(0, |ghost| size_of_val(&*ghost.entries) as u64)
    }

    /// The queue and the initial state bits for an item that is stored under a hash, replacing an
    /// item with the state bits `old`, or none.
    #[inline]
    pub(super) fn entrance(&self, hash: u64, old: Option<u8>) -> (Queue, u8) {
        match (&self.ghost, old) {
            (Some(_), Some(old)) => (self.queue(old), old & BITS),
            (Some(ghost), None) if !ghost.remembers(hash) => (Queue::Small, 0),
            (Some(_), None) => (Queue::Main, state::KEPT),
            // Overwriting an item that was read counts as a read.
            (None, old) => (Queue::Main, old.unwrap_or(0) & BITS),
        }
    }

    /// The queue of an item with these state bits.
    #[inline]
    pub(super) fn queue(&self, state: u8) -> Queue {
        if self.ghost.is_some() && state & state::KEPT == 0 {
            Queue::Small
        } else {
            Queue::Main
        }
    }

    /// The segment whose turn it is, unless turns are drawn at random.
    pub(super) fn choose(
        &self,
        queues: &Queues,
        may_claim: &dyn Fn(Segment) -> bool,
    ) -> Option<Segment> {
        let (small, main) = (queues.bytes(Queue::Small), queues.bytes(Queue::Main));
        let first = if small * 100 > (small + main) * SMALL_PERCENT {
            [Queue::Small, Queue::Main]
        } else {
            [Queue::Main, Queue::Small]
        };
        first.into_iter().find_map(|queue| {
            let all = std::iter::successors(queues.oldest(queue), |at| queues.newer(*at));
            all.take(CLAIMED_AT_MOST)
                .find(|segment| may_claim(*segment))
        })
    }

    /// A random number.
    pub(super) fn draw(&self) -> u64 {
        // Relaxed: the numbers need not even be distinct.
        let draw = self.draws.fetch_add(1, Ordering::Relaxed);
        mix(draw + 1) >> 32
    }

    /// Decides what happens to a live item of `bytes` bytes, where the mean size is `mean`. `draw`
    /// is a random number, a new one at each of the item's turns.
    #[inline]
    pub(super) fn judge(&self, state: u8, bytes: usize, mean: usize, draw: u32) -> Fate {
        let hits = (state & state::HITS) >> state::HITS_SHIFT;
        // The hits that an item needs beyond one, and those that it keeps for its next turn.
        let (surcharge, kept) = match self.eviction {
            Eviction::Random => return Fate::Evict,
            Eviction::S3Fifo if self.ghost.is_some() => {
                let surcharge = if mutant!("taxes_large_items") {
                    (bytes / (MEANS_OF_LARGE * mean.max(1))) as u8
                } else {
                    u8::from(bytes > MEANS_OF_LARGE * mean)
                };
                // An item that enters the main queue starts there without hits.
                let is_new = self.queue(state) == Queue::Small;
                let left = hits.saturating_sub(surcharge.saturating_add(1));
                (surcharge, if is_new { 0 } else { left })
            }
            _ => (0, 0),
        };
        if hits > surcharge {
            Fate::Keep(Queue::Main, kept << state::HITS_SHIFT | state::KEPT)
        } else if self.ghost.is_some() && stays_for_its_size(bytes, mean, draw) {
            Fate::Keep(self.queue(state), state & state::KEPT)
        } else {
            Fate::Evict
        }
    }

    /// Notes that an item with these state bits was evicted.
    #[inline]
    pub(super) fn evicted(&self, hash: u64, state: u8) {
        if let Some(ghost) = &self.ghost
            && self.queue(state) == Queue::Small
        {
            ghost.note(hash);
        }
    }
}

/// Whether an item that was not read is small enough to stay for this turn. On average it stays for
/// `2 × mean / bytes` turns.
#[inline]
fn stays_for_its_size(bytes: usize, mean: usize, draw: u32) -> bool {
    let (bytes, mean) = (bytes as u64, mean as u64);
    bytes * SMALLER_THAN_MEAN < mean && (u64::from(draw) * mean) >> 31 > bytes
}

/// A pseudo-random number derived from `number`.
pub(super) fn random(number: u64) -> u32 {
    let mixed = mix(number ^ number >> 29);
    (mix(mixed ^ mixed >> 32) >> 32) as u32
}

fn mix(number: u64) -> u64 {
    // An odd number near 2^64 / φ, whose multiples are spread evenly (Knuth, TAOCP 3, §6.4).
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Fingerprints of recently evicted items, one per place. A new fingerprint overwrites the one in
/// its place, so the mean lifetime of an entry, in evictions, is the number of places.
struct Ghost {
    entries: Slots<AtomicU16>,
}

impl Ghost {
    /// Returns `None` if there is no memory; then nothing is remembered.
    fn new(entries: u64) -> Option<Self> {
        let entries = entries.next_power_of_two().max(64) as usize;
        Slots::try_zeroed(entries).map(|entries| Self { entries })
    }

    #[inline]
    fn entry(&self, hash: u64) -> (&AtomicU16, u16) {
        let mixed = mix(hash);
        let index = (mixed >> 32) as usize & (self.entries.len() - 1);
        // 0 stands for an empty place.
        (&self.entries[index], (mixed >> 16) as u16 | 1)
    }

    fn note(&self, hash: u64) {
        let (entry, fingerprint) = self.entry(hash);
        // Relaxed: a hint.
        entry.store(fingerprint, Ordering::Relaxed);
    }

    /// Whether an item with this hash was evicted lately. The entry is removed.
    fn remembers(&self, hash: u64) -> bool {
        let (entry, fingerprint) = self.entry(hash);
        // Relaxed, both: a hint.
        let found = entry.load(Ordering::Relaxed) == fingerprint;
        if found {
            entry.store(0, Ordering::Relaxed);
        }
        found
    }
}
