//! Batched lookups: the memory accesses of a group of keys overlap.
//!
//! A lookup in a table that is larger than the caches mostly waits: for the cache line of its
//! bucket, and in tables of nodes, for that of a node after it. A processor overlaps consecutive
//! lookups only as far as it looks ahead: a few hundred instructions, and not beyond a branch that
//! it has mispredicted, which it notices when the cache line arrives. So a batch prefetches first,
//! and reads afterwards.
//!
//! # Stages
//!
//! ```text
//!  key     1 hash, bucket          2 entry                 3 second                4 look up
//!  0       hash, prefetch bucket   read bucket, prefetch   read node, prefetch     find
//!                                  node                    the next
//!  1       hash, prefetch bucket   read bucket, ...        read node, ...          find
//!  ..
//!  n - 1   hash, prefetch bucket   read bucket, ...        read node, ...          find
//! ```
//!
//! A stage runs for all keys of a group, up to [`GROUP`], before the next stage begins. When stage
//! 2 reads the first bucket, the others are being loaded. Stage 3 reads a node only if the bucket
//! leads to one for this hash, and prefetches the next node only if this one has another hash.
//! Tables with entries in place prefetch the bucket's overflow in stage 2, or do nothing, and have
//! no stage 3.
//!
//! # How a table uses this
//!
//! A table of `CopyMap` implements `prefetch` and `prefetch_more` for stages 1 and 2, hints that do
//! nothing by default. The handle of any other table has a `get_many`, which calls [`in_groups`].
//! For each group, this calls back, and the table passes its stages to [`in_stages`] as closures
//! over a hash. Stage 4 is the table's ordinary lookup and uses nothing that the other stages read.
//! So each lookup of a batch has the guarantees of that lookup, and takes effect at some time
//! during its stage. Stages 2 and 3 dereference bucket and node, which therefore must be kept as
//! for a lookup: all stages are in one section.
//!
//! A table whose lookups lock takes its lock for a group, around [`in_stages`].
//!
//! # Guarantees
//!
//! 1. Each lookup of a batch is linearizable by itself, and takes effect between the call and the
//!    return of `get_many`. A batch is not a snapshot: its lookups take effect at different times,
//!    and updates of other threads may take effect between them.
//! 2. A lookup of a batch makes progress as a lookup does.
//! 3. If foreign code (`Hash`, `Eq`) panics, some places are written and the others are unchanged.
//!
//! # Design choices and rejected alternatives
//!
//! Example `batched` of `corewise-maps-lab` in commit `d11e241`; now the benchmark's section
//! `batch` (2026-11-22, `batched -- 10000000 9`: 10^7 entries, one thread, a two-core virtual
//! machine under heavy load from other users). Each cell has the medians of the ratios of a lookup
//! alone to one in batches of 16 and 64, all under one handle, with the lowest and highest.
//!
//! | | `RelativisticMap` | `clht::LockBased` | `OutOfPlace` of `corewise-maps-lab` |
//! |---|---|---|---|
//! | as it is | 1.11 (1.03 - 1.16), 1.47 (1.39 - 1.57) | 1.20 (1.15 - 1.32), 1.73 (1.64 - 1.93) | 1.08 (0.96 - 1.25), 1.44 (0.99 - 1.98) |
//! | without stage 3 | 1.14 (0.92 - 1.45), 1.38 (0.98 - 1.86) | 1.16 (1.07 - 1.48), 2.05 (1.60 - 2.20) | 1.07 (0.99 - 1.11), 1.29 (1.25 - 1.35) |
//!
//! - *Groups of 64.* Each group waits once for its buckets and once for its nodes, whatever its
//!   size, and single lookups overlap by themselves: batches of 4 and 8 are slower than those.
//! - *Groups of 16* (rejected): a batch of 64 gained no more than one of 16.
//! - *Clearing the arrays of hashes and keys first* (rejected): a kilobyte of stores for each
//!   group.

use std::mem::MaybeUninit;

use corewise_atomic::hint;

/// Number of keys of a group.
pub(crate) const GROUP: usize = 64;
/// Bytes of an entry that are prefetched, at most; the beginning of a larger one.
const MOST_BYTES: usize = 256;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Calls `look_up` with the keys and the places of each group. It must take one key for each place.
///
/// # Panics
///
/// If `out` and `keys` differ in length.
#[inline(always)]
pub fn in_groups<I: IntoIterator<IntoIter: ExactSizeIterator>, T>(
    keys: I,
    out: &mut [T],
    mut look_up: impl FnMut(&mut I::IntoIter, &mut [T]),
) {
    let mut keys = keys.into_iter();
    let (wanted, places) = (keys.len(), out.len());
    assert!(wanted == places, "{places} places for {wanted} keys");
    for out in out.chunks_mut(GROUP) {
        look_up(&mut keys, out);
    }
}

/// Looks up a key for each place, up to `GROUP`, in stages if there is more than one place.
#[inline(always)]
pub fn in_stages<'q, Q: ?Sized + 'q, T>(
    keys: &mut impl Iterator<Item = &'q Q>,
    out: &mut [T],
    hash: impl Fn(&Q) -> u64,
    fetch_bucket: impl Fn(u64),
    fetch_entry: impl Fn(u64),
    fetch_second: impl Fn(u64),
    mut look_up: impl FnMut(u64, &'q Q) -> T,
) {
    if let [place] = out {
        *place = keys.next().map(|key| look_up(hash(key), key)).expect(FEWER);
        return;
    }
    // Left uninitialized: clearing it would be a kilobyte of stores, which wait for the loads
    // before them and would keep the processor from looking ahead.
    let mut group = [const { MaybeUninit::<(u64, &'q Q)>::uninit() }; GROUP];
    let mut len = 0;
    for (place, key) in group[..out.len()].iter_mut().zip(keys) {
        let hash = hash(key);
        fetch_bucket(hash);
        place.write((hash, key));
        len += 1;
    }
    assert!(len == out.len(), "{FEWER}");
    // SAFETY: the first `len` elements are written: the assertion above has checked that they are
    // one per place.
    let group = unsafe { std::slice::from_raw_parts(group.as_ptr().cast::<(u64, &'q Q)>(), len) };
    group.iter().for_each(|(hash, _)| fetch_entry(*hash));
    group.iter().for_each(|(hash, _)| fetch_second(*hash));
    for (out, (hash, key)) in out.iter_mut().zip(group) {
        *out = look_up(*hash, key);
    }
}

const FEWER: &str = "an iterator of fewer keys than it says";

/// Prefetches the cache lines of the first `bytes` bytes of an entry, up to `MOST_BYTES`; does
/// nothing for null.
#[inline(always)]
pub fn prefetch_entry<T>(entry: *const T, bytes: usize) {
    if entry.is_null() {
        return;
    }
    let last = bytes.clamp(1, MOST_BYTES) - 1;
    let entry = entry.cast::<u8>();
    for at in (0..last).step_by(LINE).chain([last]) {
        hint::prefetch(entry.wrapping_add(at));
    }
}
