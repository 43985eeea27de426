//! A pass of a resize, divided into shares that threads take without a lock.
//!
//! ```text
//!                      ┌ part 0 ────────────┬ part 1 ────────────┬ ─ ─ ─ ─ ─┬ part n ────────────┐
//! buckets of a pass:   │ given out ▶ left   │ given out ▶ left   │          │ given out ▶ left   │
//!                      └────────────────────┴────────────────────┴ ─ ─ ─ ─ ─┴────────────────────┘
//! ```
//!
//! The buckets of a pass are divided into parts. A thread takes shares from the part that its index
//! selects, and from the following parts when that one is empty. A part's words are alone
//! on their cache line, so threads that work on different parts write no line in common.
//!
//! # Passes and numbers
//!
//! The owner of the resizer's lock starts a pass when the one before it is done. A thread may
//! have read the old pass and be about to take a share of it. So each pass has a number, and a
//! part's word consists of the number and of how many buckets are left to give out. An exchange
//! that takes buckets of pass `n` succeeds only while some of them are not given out, so the pass
//! is not done, and its description, which was read before, is not overwritten before the share is
//! done. Whether a part has something left can be read from its word alone.
//!
//! Numbers wrap after 2^32 passes. A thread that takes shares is in a section, during which fewer
//! than a hundred passes can begin: a table can be expanded
//! [`MAX_LEVELS`](super::resizer::MAX_LEVELS) times, and halved as often as its size allows, before
//! a resize has to wait for readers.
//!
//! Taking a share and reporting it done are lock-free: an exchange fails only if another thread's
//! has succeeded, or the pass is over.

use std::ptr::{self, NonNull};

use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};
use corewise_atomic::{CachePadded, Slots, mutant, ordering};

use super::table::BucketArray;

/// The most parts of a pass: a bit each in half of a word.
const MOST_PARTS: usize = if cfg!(any(corewise_loom, corewise_shuttle)) {
    2
} else {
    16
};
/// The least number of buckets of a part, so that small passes have one.
#[cfg(not(corewise_stress))]
const LEAST_BUCKETS: usize = 512;
#[cfg(corewise_stress)]
const LEAST_BUCKETS: usize = 2;
/// Parts begin at multiples of this number of buckets: a cache line of their words.
const ALIGN: usize = if cfg!(corewise_stress) { 1 } else { 8 };
/// Bits of a number of buckets, and of a mask of parts, below the number of the pass.
const LOW_BITS: u32 = u32::BITS;

/// What a pass does with the buckets of two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassKind {
    /// Points the buckets of a larger table into the chains of the table in use.
    Zip,
    /// Links the chains of the table in use for the buckets of a smaller table.
    CrossLink,
    /// Makes the buckets of the smaller table plain.
    Open,
    /// Cuts zipped chains.
    Unzip,
}

/// One operation on a number of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    pub(super) kind: PassKind,
    pub(super) from: NonNull<BucketArray>,
    pub(super) to: NonNull<BucketArray>,
    /// The number of buckets.
    pub(super) end: usize,
    /// Buckets of a share for each bucket of a step's budget.
    pub(super) per_budget: Ratio,
}

/// A factor: `times / by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ratio {
    pub(super) times: usize,
    pub(super) by: usize,
}

/// Consecutive buckets of a pass that one thread works on. It must report them done.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) pass: Pass,
    pub(super) buckets: std::ops::Range<usize>,
    part: usize,
}

/// The shares of one pass at a time.
pub(super) struct Shares {
    /// The number of the newest pass, and a bit for each part that may have buckets to give out.
    open: AtomicU64,
    /// The pass, and how many parts it has.
    kind: AtomicUsize,
    from: AtomicPtr<BucketArray>,
    to: AtomicPtr<BucketArray>,
    end: AtomicUsize,
    times: AtomicUsize,
    by: AtomicUsize,
    parts: AtomicUsize,
    /// Parts that have buckets that are not done.
    not_done: AtomicUsize,
    /// The part of a pass with one part, and the parts of larger passes: null before the first of
    /// these.
    one: CachePadded<PassPart>,
    many: AtomicPtr<Parts>,
}

type Parts = Slots<CachePadded<PassPart>>;

struct PassPart {
    /// The number of the pass, and how many buckets are left to give out.
    left: AtomicU64,
    /// Buckets that are not done.
    not_done: AtomicUsize,
    /// What was reported for the shares that are done.
    unfinished: AtomicUsize,
}

impl PassPart {
    fn new() -> Self {
        Self {
            left: AtomicU64::new(0),
            not_done: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(0),
        }
    }
}

/// The number of a pass in a word.
fn number(word: u64) -> u64 {
    word >> LOW_BITS
}

fn low(word: u64) -> usize {
    (word & u64::from(u32::MAX)) as usize
}

fn word(number: u64, low: usize) -> u64 {
    debug_assert!(low <= u32::MAX as usize);
    number << LOW_BITS | low as u64
}

/// The buckets of a part.
fn buckets_of(end: usize, parts: usize, part: usize) -> std::ops::Range<usize> {
    let each = end.div_ceil(parts).next_multiple_of(ALIGN);
    (part * each).min(end)..((part + 1) * each).min(end)
}

impl Shares {
    pub(super) fn new() -> Self {
        Self {
            open: AtomicU64::new(0),
            kind: AtomicUsize::new(0),
            from: AtomicPtr::new(ptr::null_mut()),
            to: AtomicPtr::new(ptr::null_mut()),
            end: AtomicUsize::new(0),
            times: AtomicUsize::new(1),
            by: AtomicUsize::new(1),
            parts: AtomicUsize::new(1),
            not_done: AtomicUsize::new(0),
            one: CachePadded::new(PassPart::new()),
            many: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Starts a pass. The caller has the resizer's lock, and the pass before is done.
    pub(super) fn start(&self, pass: Pass) {
        let parts = if cfg!(any(corewise_loom, corewise_shuttle)) {
            1
        } else {
            (pass.end / LEAST_BUCKETS).clamp(1, MOST_PARTS)
        };
        self.start_with(pass, parts);
    }

    /// As [`Shares::start`], with a number of parts.
    fn start_with(&self, pass: Pass, parts: usize) {
        debug_assert!(self.is_done());
        if parts > 1 {
            self.make_parts();
        }
        // Relaxed, all: a thread that reads them has read `open` with Acquire; see `take`.
        self.kind.store(pass.kind as usize, Relaxed);
        self.from.store(pass.from.as_ptr(), Relaxed);
        self.to.store(pass.to.as_ptr(), Relaxed);
        self.end.store(pass.end, Relaxed);
        self.times.store(pass.per_budget.times, Relaxed);
        self.by.store(pass.per_budget.by, Relaxed);
        // Release: pairs with the Acquire in `take`: a thread that reads the number of parts of a
        // later pass than it expects must not find `many` null.
        self.parts.store(parts, Release);
        // Relaxed, all: as above.
        let number = (number(self.open.load(Relaxed)) + 1) & u64::from(u32::MAX);
        let (mut mask, mut not_done) = (0, 0);
        for at in 0..parts {
            let buckets = buckets_of(pass.end, parts, at).len();
            if buckets > 0 {
                mask |= 1 << at;
                not_done += 1;
            }
            let part = self.part(at, parts);
            // Relaxed, all: as above.
            part.not_done.store(buckets, Relaxed);
            part.unfinished.store(0, Relaxed);
            part.left.store(word(number, buckets), Relaxed);
        }
        self.not_done.store(not_done, Relaxed);
        // Release: pairs with the Acquire in `take`.
        let release = ordering!(Release, "relaxed_pass");
        self.open.store(word(number, mask), release);
    }

    #[cold]
    fn make_parts(&self) {
        // Relaxed: written under the lock that the caller has.
        if self.many.load(Relaxed).is_null() {
            let parts = Slots::from_fn(MOST_PARTS, |_| CachePadded::new(PassPart::new()));
            // Relaxed: a thread that reads it has read `parts` with Acquire.
            self.many.store(Box::into_raw(Box::new(parts)), Relaxed);
        }
    }

    /// A part of a pass that has `parts` of them.
    fn part(&self, at: usize, parts: usize) -> &PassPart {
        if parts == 1 {
            return &self.one;
        }
        // Relaxed: as in `make_parts`.
        let many = self.many.load(Relaxed);
        // SAFETY: a pass with several parts was started, so it is not null; freed in `drop` only.
        let many = unsafe { &*many };
        &many[at]
    }

    /// Takes the next buckets: `budget` times the ratio of the pass, at least one, from the part
    /// that `home` selects if it has any. The caller is in a section, which it leaves after the
    /// share is done.
    #[inline]
    pub(super) fn take(&self, home: usize, budget: usize) -> Option<Share> {
        // Acquire: pairs with the Release in `start_with`, so the pass and its parts are seen.
        let mut open = self.open.load(Acquire);
        while low(open) != 0 {
            // Acquire: pairs with the Release in `start_with`, so that `many` is seen.
            let parts = self.parts.load(Acquire);
            // This describes the pass or a later one. If the exchange below succeeds, the pass is
            // not done, so no later one has begun, and none begins before the share is done.
            let pass = self.newest()?;
            let (part, end) = (nearest(low(open), home % parts), pass.end);
            let most = budget.saturating_mul(pass.per_budget.times) / pass.per_budget.by;
            let Some(taken) = self.take_from(self.part(part, parts), number(open), most.max(1))
            else {
                open = self.close_part(open, part);
                continue;
            };
            let buckets = buckets_of(end, parts, part);
            let first = buckets.end - taken.end;
            if taken.start == 0 {
                self.close_part(open, part);
            }
            return Some(Share {
                pass,
                buckets: first..buckets.end - taken.start,
                part,
            });
        }
        None
    }

    /// The newest pass; it may be mixed with one that begins meanwhile. `None` before the first.
    #[inline(always)]
    fn newest(&self) -> Option<Pass> {
        // Relaxed, all: see `take`.
        let from = NonNull::new(self.from.load(Relaxed))?;
        let to = NonNull::new(self.to.load(Relaxed))?;
        let kind = kind(self.kind.load(Relaxed));
        // Relaxed, all: as above.
        let end = self.end.load(Relaxed);
        let (times, by) = (self.times.load(Relaxed), self.by.load(Relaxed));
        Some(Pass {
            kind,
            from,
            to,
            end,
            per_budget: Ratio { times, by },
        })
    }

    /// Takes up to `most` buckets of a part; returns how many were left after and before. `None` if
    /// none is left of this pass.
    fn take_from(&self, part: &PassPart, pass: u64, most: usize) -> Option<std::ops::Range<usize>> {
        // Relaxed: see `take`.
        let mut seen = part.left.load(Relaxed);
        loop {
            if (number(seen) != pass && !mutant!("unnumbered_share")) || low(seen) == 0 {
                return None;
            }
            let rest = low(seen).saturating_sub(most);
            let next = word(number(seen), rest);
            let left = &part.left;
            // Relaxed, both: as above.
            match left.compare_exchange_weak(seen, next, Relaxed, Relaxed) {
                Ok(_) => return Some(rest..low(seen)),
                Err(now) => seen = now,
            }
        }
    }

    /// Records that a part of the pass in `open` has nothing left; returns the newest `open`.
    fn close_part(&self, mut open: u64, part: usize) -> u64 {
        let pass = number(open);
        while number(open) == pass && low(open) & 1 << part != 0 {
            let without = open & !(1 << part);
            // Acquire on failure: as in `take`, for a pass that has begun since.
            match self
                .open
                .compare_exchange_weak(open, without, Acquire, Acquire)
            {
                Ok(_) => return without,
                Err(now) => open = now,
            }
        }
        open
    }

    /// Reports a share done, and a number that the pass sums up.
    pub(super) fn done(&self, share: &Share, unfinished: usize) {
        // Relaxed: the pass of the share is not done, so this is its number.
        let part = self.part(share.part, self.parts.load(Relaxed));
        // Relaxed: ordered by the Release below.
        if unfinished > 0 {
            part.unfinished.fetch_add(unfinished, Relaxed);
        }
        let buckets = share.buckets.len();
        // Release: pairs with the Acquire of the part's last share, which passes it on to
        // `is_done`.
        let both = ordering!(AcqRel, "relaxed_part");
        if part.not_done.fetch_sub(buckets, both) == buckets {
            // Release: pairs with the Acquire in `is_done`. Release sequences join the parts.
            let release = ordering!(Release, "relaxed_done");
            self.not_done.fetch_sub(1, release);
        }
    }

    /// Whether all shares are done; their threads' changes are seen then.
    pub(super) fn is_done(&self) -> bool {
        // Acquire: pairs with the Release in `done`.
        self.not_done.load(Acquire) == 0
    }

    /// Whether no share is left to take. A hint, unless no thread takes any.
    pub(super) fn is_given_out(&self) -> bool {
        // Relaxed: a hint.
        low(self.open.load(Relaxed)) == 0
    }

    /// The sum of what was reported for the shares of a pass that is done.
    pub(super) fn unfinished(&self) -> usize {
        // Relaxed, both: ordered by the Acquire in `is_done`.
        let parts = self.parts.load(Relaxed);
        let of = |at| self.part(at, parts).unfinished.load(Relaxed);
        (0..parts).map(of).sum()
    }
}

impl Drop for Shares {
    fn drop(&mut self) {
        // Relaxed: nobody else has it.
        let many = self.many.load(Relaxed);
        if !many.is_null() {
            // SAFETY: made by `make_parts`, freed once.
            drop(unsafe { Box::from_raw(many) });
        }
    }
}

/// The first part of a mask at or after `home`, or of those before if there is none.
fn nearest(mask: usize, home: usize) -> usize {
    let after = mask >> home << home;
    if after == 0 { mask } else { after }.trailing_zeros() as usize
}

fn kind(number: usize) -> PassKind {
    [
        PassKind::Zip,
        PassKind::CrossLink,
        PassKind::Open,
        PassKind::Unzip,
    ][number & 3]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use corewise_atomic::cell::DataCell;
    use corewise_atomic::sync::Arc;
    use corewise_atomic::thread;

    use super::*;

    /// A pass whose description can be checked: its tables and its ratio are those of its kind.
    fn pass(kind: PassKind, end: usize) -> Pass {
        let table = |at: usize| NonNull::new(ptr::without_provenance_mut(at * 64)).unwrap();
        Pass {
            kind,
            from: table(kind as usize + 1),
            to: table(kind as usize + 2),
            end,
            per_budget: Ratio { times: 1, by: 1 },
        }
    }

    #[test]
    fn every_bucket_is_given_out_once() {
        let shares = Shares::new();
        let kinds = [
            PassKind::Zip,
            PassKind::Unzip,
            PassKind::Open,
            PassKind::CrossLink,
        ];
        let sizes = (1..40).chain([511, 512, 513, 1023, 1024, 1025, 8191, 8192, 100_003]);
        for (turn, end) in sizes.enumerate() {
            let pass = pass(kinds[turn % 4], end);
            let parts = 1 + turn % MOST_PARTS;
            shares.start_with(pass, parts);
            let mut given = BTreeSet::new();
            let mut home = 0;
            while let Some(share) = shares.take(home, 1 + end / 50 + turn % 3) {
                assert_eq!(share.pass, pass);
                assert!(!shares.is_done());
                assert!(share.buckets.clone().all(|bucket| given.insert(bucket)));
                shares.done(&share, 1);
                home = home.wrapping_mul(31) + 7;
            }
            assert!(given.into_iter().eq(0..end), "{end} buckets, {parts} parts");
            assert!(shares.is_done() && shares.is_given_out());
            assert!((1..=end).contains(&shares.unfinished()));
        }
    }

    #[test]
    fn a_share_follows_budget_and_ratio() {
        let shares = Shares::new();
        for (times, by, budget, buckets) in [
            (1, 1, 8, 8),
            (2, 4, 8, 4),
            (64, 1, 8, 512),
            (2, 4, 1, 1),
            (64, 1, usize::MAX, 600),
        ] {
            let per_budget = Ratio { times, by };
            shares.start_with(
                Pass {
                    per_budget,
                    ..pass(PassKind::Zip, 600)
                },
                1,
            );
            let share = shares.take(3, budget).unwrap();
            assert_eq!(share.buckets, 0..buckets);
            shares.done(&share, 0);
            while let Some(share) = shares.take(0, 600) {
                shares.done(&share, 0);
            }
        }
    }

    /// Two threads take shares of a pass and write to what belongs to the buckets; the one that
    /// finds the pass done reads all of it.
    fn workers(parts: usize) {
        corewise_atomic::model(move || {
            let shares = Arc::new((Shares::new(), [0; 2].map(DataCell::new)));
            let work = |home: usize| {
                let shared = shares.clone();
                move || {
                    let (shares, cells) = &*shared;
                    while let Some(share) = shares.take(home, 1) {
                        for bucket in share.buckets.clone() {
                            // SAFETY: the bucket is this thread's; the checkers report violations.
                            unsafe { cells[bucket].write(bucket + 1) };
                        }
                        shares.done(&share, 0);
                    }
                    if shares.is_done() {
                        // SAFETY: all writers are done; the checkers report violations.
                        let sum: usize = cells.iter().map(|cell| unsafe { cell.read() }).sum();
                        assert_eq!(sum, 3, "a bucket was left out");
                    }
                }
            };
            shares.0.start_with(pass(PassKind::Zip, 2), parts);
            let threads = [0, 1].map(|home| thread::spawn(work(home)));
            let [(), ()] = threads.map(|thread| thread.join().unwrap());
            assert!(shares.0.is_done());
        });
    }

    #[test]
    fn a_thread_that_sees_a_finished_pass_sees_its_changes() {
        workers(1);
    }

    #[test]
    fn a_thread_that_sees_a_finished_pass_of_several_parts_sees_its_changes() {
        workers(2);
    }

    /// A thread takes shares while another, which has the lock, finishes a pass and starts the next
    /// one.
    fn successors(parts: usize) {
        corewise_atomic::model(move || {
            let shares = Arc::new(Shares::new());
            let take = |shares: &Shares| {
                let Some(share) = shares.take(0, 1) else {
                    return [0, 0];
                };
                let kind = share.pass.kind;
                assert_eq!(
                    share.pass,
                    pass(kind, if kind == PassKind::Zip { 1 } else { 2 })
                );
                assert!(share.buckets.end <= share.pass.end);
                shares.done(&share, 0);
                let taken = share.buckets.len();
                if kind == PassKind::Zip {
                    [taken, 0]
                } else {
                    [0, taken]
                }
            };
            shares.start_with(pass(PassKind::Zip, 1), 1);
            let late = shares.clone();
            let late = thread::spawn(move || take(&late));
            let owner = shares.clone();
            let owner = thread::spawn(move || {
                let mut taken = take(&owner);
                if owner.is_done() {
                    owner.start_with(pass(PassKind::Unzip, 2), parts);
                    taken[1] += take(&owner)[1] + take(&owner)[1];
                }
                taken
            });
            let [late, owner] = [late, owner].map(|thread| thread.join().unwrap());
            assert_eq!(
                late[0] + owner[0],
                1,
                "a bucket was given out twice, or never"
            );
            assert!(late[1] + owner[1] <= 2, "a bucket was given out twice");
        });
    }

    #[test]
    fn a_late_thread_takes_no_share_of_another_pass() {
        successors(1);
    }

    #[test]
    fn a_late_thread_takes_no_share_of_another_pass_with_parts() {
        successors(2);
    }
}
