//! Batched lookups: the keys of a group wait for memory together.
//!
//! A lookup in a table that is larger than the caches is waiting: for the cache line of its bucket, and where
//! entries are in nodes, for that of a node after it. A processor overlaps the waits of lookups that follow each
//! other only as far as it looks ahead: some hundred instructions, and not beyond a branch that it has mispredicted,
//! which it finds out when the line has come. So a batch asks first, and reads then.
//!
//! # Stages
//!
//! ```text
//!  key     1 hash, bucket          2 entry                       3 second                       4 look up
//!  0       hash, prefetch bucket   read bucket, prefetch node    read node, prefetch the next   find
//!  1       hash, prefetch bucket   read bucket, prefetch node    read node, prefetch the next   find
//!  ..
//!  n - 1   hash, prefetch bucket   read bucket, prefetch node    read node, prefetch the next   find
//! ```
//!
//! A stage is done for all keys of a group, up to [`GROUP`], then the next one. When stage 2 reads the first bucket,
//! the others are on their way. Stage 3 reads a node only if the bucket leads to one for this hash, and asks for the next
//! only if it has another hash. Tables with entries in place ask for what overflows from the bucket in stage 2, or do
//! nothing, and have no stage 3.
//!
//! # How a table joins
//!
//! A table of `CopyMap` has `prefetch` and `prefetch_more` for stages 1 and 2, hints that do nothing by default.
//! Another's handle has a `get_many`, which calls [`in_groups`]; for each group that calls back, and the table says by
//! closures over a hash what its stages are: [`in_stages`]. Nothing that the others have read is used in stage
//! 4, which is the table's lookup as it stands; so what holds for that holds for each lookup of a batch: it takes effect
//! at some time during its stage 4. Stages 2 and 3 dereference bucket and node, which therefore must be kept as for a
//! lookup: all stages are in one section.
//!
//! A table whose lookups lock takes its lock for a group, around [`in_stages`].
//!
//! # Guarantees
//!
//! 1. Each lookup of a batch is linearizable by itself, and takes effect between the call and the return of
//!    `get_many`. A batch is no snapshot: its lookups take effect at different times, and another thread's updates may
//!    come between them.
//! 2. A lookup of a batch makes progress as a lookup does.
//! 3. Foreign code (`Hash`, `Eq`) may panic: then some places are written and the others are as they were.
//!
//! # Choices, and what was rejected
//!
//! `cargo run --release -p corewise-maps --example batched -- 10000000 9` (2026-11-22, 10^7 entries, one thread, a two-core
//! virtual machine under heavy load of others): medians of the ratios of a lookup alone to one in batches of 16 and
//! 64, all under one handle, with the lowest and highest.
//!
//! | | `RelativisticMap` | `clht::LockBased` | `chained::OutOfPlace` |
//! |---|---|---|---|
//! | as it is | 1.11 (1.03 - 1.16), 1.47 (1.39 - 1.57) | 1.20 (1.15 - 1.32), 1.73 (1.64 - 1.93) | 1.08 (0.96 - 1.25), 1.44 (0.99 - 1.98) |
//! | without stage 3 | 1.14 (0.92 - 1.45), 1.38 (0.98 - 1.86) | 1.16 (1.07 - 1.48), 2.05 (1.60 - 2.20) | 1.07 (0.99 - 1.11), 1.29 (1.25 - 1.35) |
//!
//! - *Groups of 64.* Each group waits once for its buckets and once for its nodes, whatever its size, and lookups alone
//!   overlap by themselves: batches of 4 and 8 are slower than those.
//! - *Groups of 16*: a batch of 64 had no more than one of 16.
//! - *Arrays of hashes and keys that are cleared first*: a kilobyte of stores for each group.

use std::mem::MaybeUninit;

use corewise_atomic::hint;

/// Keys of a group.
pub(crate) const GROUP: usize = 64;
/// What is asked for of an entry, at most: of a larger one the beginning.
const MOST_BYTES: usize = 256;
/// Of a cache line.
const LINE: usize = 64;

/// Calls `look_up` with the keys and the places of each group: it is to take a key for each place.
///
/// # Panics
///
/// If there are not as many places as keys.
#[inline(always)]
pub(crate) fn in_groups<I: IntoIterator<IntoIter: ExactSizeIterator>, T>(
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

/// Looks up a key for each place, up to [`GROUP`], in stages if there is more than one.
#[inline(always)]
pub(crate) fn in_stages<'q, Q: ?Sized + 'q, T>(
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
    // Not written beforehand: a kilobyte of stores, which wait for the loads before them, would keep the processor from
    // looking ahead.
    let mut group = [const { MaybeUninit::<(u64, &'q Q)>::uninit() }; GROUP];
    let mut len = 0;
    for (place, key) in group[..out.len()].iter_mut().zip(keys) {
        let hash = hash(key);
        fetch_bucket(hash);
        place.write((hash, key));
        len += 1;
    }
    assert!(len == out.len(), "{FEWER}");
    // SAFETY: the first `len` are written, which is as many as there are places, or we would not be here.
    let group = unsafe { std::slice::from_raw_parts(group.as_ptr().cast::<(u64, &'q Q)>(), len) };
    group.iter().for_each(|(hash, _)| fetch_entry(*hash));
    group.iter().for_each(|(hash, _)| fetch_second(*hash));
    for (out, (hash, key)) in out.iter_mut().zip(group) {
        *out = look_up(*hash, key);
    }
}

const FEWER: &str = "an iterator of fewer keys than it says";

/// Asks for the cache lines of an entry, if it has an address: of so many bytes, or the first ones.
#[inline(always)]
pub(crate) fn prefetch_entry<T>(entry: *const T, bytes: usize) {
    if entry.is_null() {
        return;
    }
    let last = bytes.clamp(1, MOST_BYTES) - 1;
    let entry = entry.cast::<u8>();
    for at in (0..last).step_by(LINE).chain([last]) {
        hint::prefetch(entry.wrapping_add(at));
    }
}
