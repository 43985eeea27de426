//! Tests of what prevents readers that have strayed from missing their key: the order of moves, or
//! the marker.
//!
//! The future of a reader depends only on its position. So after every single store of a move all
//! possible readers advance as far as they can go. This covers every interleaving of a lookup with
//! the move of a bucket, in the order of the stores.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::*;

thread_local! {
    static READERS: RefCell<Option<Readers>> = const { RefCell::new(None) };
}

/// Called after every store to a word of a chain.
pub(super) fn after_store() {
    READERS.with_borrow_mut(|readers| readers.as_mut().map(Readers::walk));
}

/// The position of a reader: the word that it follows next, in a walk over the old or the new
/// bucket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stand {
    Old(*const Head),
    New(*const Head),
}

/// The positions of the readers of one hash.
struct Readers {
    hash: u64,
    old: *const Head,
    new: *const Head,
    checks_marker: bool,
    stands: BTreeSet<Stand>,
    missed: bool,
    /// Whether a reader has reached another bucket's end marker.
    strayed: bool,
}

impl Readers {
    fn walk(&mut self) {
        let mut todo: Vec<Stand> = self.stands.iter().copied().collect();
        while let Some(stand) = todo.pop() {
            let Some(next) = self.step(stand) else {
                continue;
            };
            if self.stands.insert(next) {
                todo.push(next);
            }
        }
    }

    /// One load, as in `walk` and `look_up`; `None` if the lookup is over.
    fn step(&mut self, stand: Stand) -> Option<Stand> {
        let (Stand::Old(word) | Stand::New(word)) = stand;
        let (bucket, is_old) = match stand {
            Stand::Old(_) => (self.old, true),
            Stand::New(_) => (self.new, false),
        };
        // SAFETY: words of the test's nodes and buckets, which outlive it.
        let (at, end) = unsafe { (Next::first_of(&*word), Next::end_of(&*bucket)) };
        let to = |word: *const Head| {
            if is_old {
                Stand::Old(word)
            } else {
                Stand::New(word)
            }
        };
        if let Some(link) = at.entry() {
            // SAFETY: a node of the test, which outlives it.
            let link = unsafe { link.as_ref() };
            return (link.hash() != self.hash).then(|| to(&link.next));
        }
        self.strayed |= at != end;
        if at != end && self.checks_marker {
            return Some(to(bucket));
        }
        self.missed |= !is_old;
        is_old.then_some(Stand::New(self.new))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Front,
    End,
}

struct Outcome {
    missed: bool,
    strayed: bool,
}

/// Moves the entries with these hashes from one bucket to two, beside all readers of one of them.
fn move_all(hashes: &[u64], sought: u64, from: From, checks_marker: bool) -> Outcome {
    let (old, new) = (
        PerEntryBuckets::try_new(0).unwrap(),
        PerEntryBuckets::try_new(1).unwrap(),
    );
    let links: Vec<ChainLink> = hashes.iter().map(|hash| ChainLink::new(*hash)).collect();
    let bucket = &old.buckets[0];
    let mut word = bucket;
    let mut chain = Vec::new();
    for link in &links {
        let link = NonNull::from(link);
        Next(link.as_ptr()).store(word);
        chain.push((word, link));
        // SAFETY: one of `links`.
        word = unsafe { &link.as_ref().next };
    }
    Next::end_of(bucket).store(word);
    let readers = Readers {
        hash: sought,
        old: bucket,
        new: new.bucket(sought),
        checks_marker,
        stands: BTreeSet::from([Stand::Old(bucket)]),
        missed: false,
        strayed: false,
    };
    READERS.set(Some(readers));
    after_store();
    if from == From::End {
        chain.reverse();
    }
    for (before, link) in chain {
        // SAFETY: one of `links`; no other thread is here.
        let (entry, target) = unsafe { (link.as_ref(), new.bucket(link.as_ref().hash())) };
        match from {
            From::End => {
                // SAFETY: of the test; no other thread is here.
                unsafe { move_entry(before, link, Next::end_of(bucket), target) };
            }
            From::Front => {
                let behind = Next::load(&entry.next);
                // SAFETY: of the test; no other thread is here.
                unsafe { move_entry(bucket, link, behind, target) };
            }
        }
    }
    let readers = READERS.take().expect("it was set");
    Outcome {
        missed: readers.missed,
        strayed: readers.strayed,
    }
}

/// Moves chains of each pattern, with readers of each of their keys; returns whether one missed,
/// and whether one strayed.
fn move_chains(from: From, checks_marker: bool) -> Outcome {
    let mut all = Outcome {
        missed: false,
        strayed: false,
    };
    for length in 1..=5u32 {
        for pattern in 0..1u64 << length {
            let hash = |n| u64::from(n) << 1 | pattern >> n & 1;
            let hashes: Vec<u64> = (0..length).map(hash).collect();
            for sought in &hashes {
                let outcome = move_all(&hashes, *sought, from, checks_marker);
                all.missed |= outcome.missed;
                all.strayed |= outcome.strayed;
            }
        }
    }
    all
}

#[test]
fn moves_from_the_end_or_markers_are_enough() {
    assert!(!move_chains(From::End, true).missed);
    assert!(!move_chains(From::End, false).missed);
    assert!(!move_chains(From::Front, true).missed);
    assert!(move_chains(From::Front, false).missed);
}

#[test]
fn readers_do_stray() {
    assert!(move_chains(From::End, true).strayed);
    assert!(move_chains(From::Front, true).strayed);
}
