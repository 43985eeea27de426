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
//!  key     1 hash   2 bucket          3 entry                        4 look up
//!  0       h0       prefetch bucket   read bucket, prefetch node     find
//!  1       h1       prefetch bucket   read bucket, prefetch node     find
//!  ..
//!  n - 1   hn       prefetch bucket   read bucket, prefetch node     find
//!          ─────────────────────────▶ ──────────────────────────────▶ ─────▶
//!                    n lines come      n lines come
//! ```
//!
//! A stage is done for all keys of a [`Group`], then the next one. When stage 3 reads the first bucket, the others
//! are on their way. Tables with entries in place ask for what overflows from the bucket in stage 3, or do nothing.
//!
//! # How a table joins
//!
//! A table of `CopyMap` has `prefetch` and `prefetch_more` for stages 2 and 3, hints that do nothing by default.
//! Another's handle has a `get_many` that calls [`in_groups`] with its hash function. For each group that calls back, and
//! the table says with three closures over a hash how to do stages 2 to 4: [`Group::in_stages`]. Stages 2 and 3 are
//! hints. Nothing that they have read is used in stage 4, which is the table's lookup as it stands; so what holds for
//! that holds for each lookup of a batch: it takes effect at some time during its stage 4. Stage 3 dereferences the
//! bucket, which therefore must be kept as for a lookup: all stages are in one section.
//!
//! A table whose lookups lock takes its lock for a group, around [`Group::in_stages`]; keys are hashed before that.
//!
//! # Guarantees
//!
//! 1. Each lookup of a batch is linearizable by itself, and takes effect between the call and the return of
//!    `get_many`. A batch is no snapshot: its lookups take effect at different times, not in order, and another
//!    thread's updates may come between them.
//! 2. A lookup of a batch makes progress as a lookup does.
//! 3. Foreign code (`Hash`, `Eq`) may panic: then some places are written and the others are as they were.

use corewise_atomic::hint;

/// Keys of a group.
pub(crate) const GROUP: usize = 16;
/// What is asked for of an entry, at most: of a larger one the beginning.
const MOST_BYTES: usize = 256;
/// Of a cache line.
const LINE: usize = 64;

/// Up to [`GROUP`] keys of a batch, and their hashes.
pub(crate) struct Group<'g, 'q, Q: ?Sized> {
    hashes: &'g [u64],
    keys: &'g [Option<&'q Q>],
}

/// Hashes the keys and calls `look_up` with each group, and with its places in `out`.
///
/// # Panics
///
/// If there are not as many places as keys.
#[inline(always)]
pub(crate) fn in_groups<'q, Q: ?Sized + 'q, T>(
    keys: impl IntoIterator<Item = &'q Q, IntoIter: ExactSizeIterator>,
    out: &mut [T],
    hash: impl Fn(&Q) -> u64,
    mut look_up: impl FnMut(&Group<'_, 'q, Q>, &mut [T]),
) {
    let mut keys = keys.into_iter();
    let (wanted, places) = (keys.len(), out.len());
    assert!(wanted == places, "{places} places for {wanted} keys");
    let mut hashes = [0; GROUP];
    let mut group = [None; GROUP];
    for out in out.chunks_mut(GROUP) {
        let mut len = 0;
        for ((key, hash_of_it), place) in keys
            .by_ref()
            .zip(&mut hashes)
            .zip(&mut group)
            .take(out.len())
        {
            *hash_of_it = hash(key);
            *place = Some(key);
            len += 1;
        }
        assert!(len == out.len(), "an iterator of fewer keys than it says");
        let group = Group {
            hashes: &hashes[..len],
            keys: &group[..len],
        };
        look_up(&group, out);
    }
}

impl<'q, Q: ?Sized> Group<'_, 'q, Q> {
    /// Stages 2 to 4, the former two if there is more than one key.
    #[inline(always)]
    pub(crate) fn in_stages<T>(
        &self,
        out: &mut [T],
        fetch_bucket: impl Fn(u64),
        fetch_entry: impl Fn(u64),
        mut look_up: impl FnMut(u64, &'q Q) -> T,
    ) {
        if self.hashes.len() > 1 {
            self.hashes.iter().for_each(|hash| fetch_bucket(*hash));
            self.hashes.iter().for_each(|hash| fetch_entry(*hash));
        }
        let keys = self.keys.iter().flatten();
        for ((out, hash), key) in out.iter_mut().zip(self.hashes).zip(keys) {
            *out = look_up(*hash, key);
        }
    }
}

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
