//! The sorted list of buckets and entries: its words, its order, and how it is walked and changed.
//! See also the header of the parent module.

use std::ptr::{self, NonNull};

use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use corewise_atomic::{Backoff, mutant, ordering};

use crate::chained::algorithm::{ChainLink, Head};
use crate::chained::order::precedes;

// ---- words and nodes

/// In a next word: its node was removed.
const MARK: usize = 1;
/// In a next word: it points to a dummy or, without an address, to the end.
const DUMMY: usize = 2;
const _: () = assert!(align_of::<ChainLink>() >= 4 && align_of::<Head>() >= 4);

/// The value of a next word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct NextWord(pub(super) *mut ChainLink);

#[derive(Clone, Copy)]
pub(super) enum Target<'s> {
    Entry(NonNull<ChainLink>),
    Dummy(&'s Dummy),
    End,
}

impl NextWord {
    pub(super) const END: Self = Self(ptr::without_provenance_mut(DUMMY));

    #[inline(always)]
    pub(super) fn load(head: &Head) -> Self {
        // Acquire: pairs with the Release in `Cursor::lead`: the contents of the node are seen.
        Self(head.load(Acquire))
    }

    pub(super) fn of_dummy(dummy: &Dummy) -> Self {
        let link = ptr::from_ref(dummy).cast_mut().cast::<ChainLink>();
        Self(link.map_addr(|address| address | DUMMY))
    }

    #[inline(always)]
    pub(super) fn is_marked(self) -> bool {
        self.0.addr() & MARK != 0
    }

    pub(super) fn marked(self) -> Self {
        Self(self.0.map_addr(|address| address | MARK))
    }

    pub(super) fn unmarked(self) -> Self {
        Self(self.0.map_addr(|address| address & !MARK))
    }

    /// The address of the entry or dummy that it points to; null at the end.
    #[inline(always)]
    pub(super) fn address(self) -> *mut ChainLink {
        self.0.map_addr(|address| address & !(MARK | DUMMY))
    }

    /// The node that it points to.
    ///
    /// # Safety
    ///
    /// 1. It was loaded from a next word that points to something, in a section that lasts for
    ///    `'s`.
    #[inline(always)]
    pub(super) unsafe fn target<'s>(self) -> Target<'s> {
        let address = self.address();
        if self.0.addr() & DUMMY == 0 {
            debug_assert!(!address.is_null(), "a word that leads nowhere is followed");
            // SAFETY: such a word points to an entry.
            return Target::Entry(unsafe { NonNull::new_unchecked(address) });
        }
        // SAFETY: such a word points to a dummy, whose segment is freed a grace period after it was
        // unlinked.
        match unsafe { address.cast::<Dummy>().as_ref() } {
            Some(dummy) => Target::Dummy(dummy),
            None => Target::End,
        }
    }
}

/// A bucket: two words of a segment.
#[repr(transparent)]
pub(super) struct Dummy([Head; 2]);

/// In a state: a thread is putting the dummy into the list.
const CLAIMED: usize = 1;
/// In a state: the dummy is in the list.
const READY: usize = 2;
/// The position of the number in a state. A state of zero: the bucket was never claimed.
const NUMBER_SHIFT: u32 = 2;

impl Dummy {
    #[inline(always)]
    pub(super) fn next(&self) -> &Head {
        &self.0[0]
    }

    /// The state word: a number, not an address.
    #[inline(always)]
    pub(super) fn state(&self) -> &Head {
        &self.0[1]
    }

    #[inline(always)]
    pub(super) fn is_ready(&self) -> bool {
        // Acquire: pairs with the Release in `set_ready`: the dummy is in the list, and its next
        // word leads on.
        self.state().load(Acquire).addr() & READY != 0
    }

    /// The bucket's number, if it is in the list.
    #[inline(always)]
    pub(super) fn number(&self) -> u64 {
        // Relaxed: it was stored before the dummy was put into the list, with Release.
        (self.state().load(Relaxed).addr() >> NUMBER_SHIFT) as u64
    }

    pub(super) fn claim(&self, number: usize) -> bool {
        let claimed = ptr::without_provenance_mut(number << NUMBER_SHIFT | CLAIMED);
        // Relaxed: the claiming thread has nothing to see or to publish yet.
        let claim = self
            .state()
            .compare_exchange(ptr::null_mut(), claimed, Relaxed, Relaxed);
        claim.is_ok()
    }

    pub(super) fn set_ready(&self, number: usize) {
        let ready = ptr::without_provenance_mut(number << NUMBER_SHIFT | READY);
        // Release: pairs with the Acquire in `is_ready`.
        self.state().store(ready, Release);
    }
}

/// A place in the list relative to a hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// The place of the dummy whose bucket number is this hash.
    Dummy,
    /// Before the entries of this hash.
    Front,
    /// Behind the entries of this hash.
    Behind,
}

impl Target<'_> {
    /// Whether the node is before a place.
    ///
    /// # Safety
    ///
    /// 1. The section in which the node was found lasts.
    pub(super) unsafe fn is_before(self, hash: u64, place: Position) -> bool {
        let (own, is_dummy) = match self {
            // SAFETY: the caller's.
            Target::Entry(link) => (unsafe { link.as_ref() }.hash(), false),
            Target::Dummy(dummy) => (dummy.number(), true),
            Target::End => return false,
        };
        match place {
            _ if own != hash => precedes(own, hash),
            Position::Dummy => false,
            Position::Front => is_dummy,
            Position::Behind => true,
        }
    }
}

// ---- walks of updates

/// The list has changed where an update was working: it must restart.
pub(super) struct Lost;

/// The position of an update: a word of a node that was not marked, and the word's value.
pub(super) struct Cursor<'s> {
    pub(super) word: &'s Head,
    pub(super) to: NextWord,
}

/// The next node, which was not marked and pointed to `next`.
#[derive(Clone, Copy)]
pub(super) struct Step<'s> {
    pub(super) node: Target<'s>,
    pub(super) word: &'s Head,
    pub(super) next: NextWord,
}

impl<'s> Cursor<'s> {
    /// At the beginning of a bucket. [`Lost`] if the dummy is marked.
    pub(super) fn at(dummy: &'s Dummy) -> Result<Self, Lost> {
        let word = dummy.next();
        let to = NextWord::load(word);
        if to.is_marked() {
            return Err(Lost);
        }
        Ok(Self { word, to })
    }

    /// The next node, after unlinking marked nodes; `None` at the end.
    ///
    /// # Safety
    ///
    /// 1. The caller is in a section that lasts for `'s`, since before the cursor was made.
    pub(super) unsafe fn step(&mut self) -> Result<Option<Step<'s>>, Lost> {
        loop {
            // SAFETY: the caller's section.
            let node = unsafe { self.to.target::<'s>() };
            let word = match node {
                // SAFETY: the caller's section keeps what it finds.
                Target::Entry(link) => unsafe { &link.as_ref().next },
                Target::Dummy(dummy) => dummy.next(),
                Target::End => return Ok(None),
            };
            let next = NextWord::load(word);
            if !next.is_marked() {
                return Ok(Some(Step { node, word, next }));
            }
            self.lead(next.unmarked())?;
        }
    }

    pub(super) fn go(&mut self, step: Step<'s>) {
        self.word = step.word;
        self.to = step.next;
    }

    /// Points the word to another node, if the word has not changed.
    pub(super) fn lead(&mut self, to: NextWord) -> Result<(), Lost> {
        // Release: pairs with the Acquire in `NextWord::load`: the new node, or the one behind an
        // unlinked node, is seen whole. Relaxed: the value is not used.
        let release = ordering!(Release, "split_relaxed_lead");
        match self
            .word
            .compare_exchange(self.to.0, to.0, release, Relaxed)
        {
            Ok(_) => {
                self.to = to;
                Ok(())
            }
            Err(_) => Err(Lost),
        }
    }
}

/// Marks a node whose next word was `seen`; returns the unmarked word, or `None` if another thread
/// has marked it.
pub(super) fn mark(word: &Head, mut seen: NextWord) -> Option<NextWord> {
    if mutant!("split_no_mark") {
        return Some(seen);
    }
    let mut backoff = Backoff::new();
    loop {
        // AcqRel: Release pairs with the Acquire in `NextWord::load`, so a thread that sees a key
        // removed sees what its remover did before. Acquire, also on failure, as in
        // `NextWord::load`: an insertion behind the node is seen.
        match word.compare_exchange(seen.0, seen.marked().0, AcqRel, Acquire) {
            Ok(_) => return Some(seen),
            Err(now) => seen = NextWord(now),
        }
        if seen.is_marked() {
            return None;
        }
        backoff.spin();
    }
}

// ---- walks

/// The entry of a key, searched from a word before its place. Wait-free.
///
/// # Safety
///
/// 1. `word` was loaded in a section that lasts.
#[inline(always)]
pub(super) unsafe fn walk(
    mut word: NextWord,
    hash: u64,
    mut eq: impl FnMut(NonNull<ChainLink>) -> bool,
) -> Option<NonNull<ChainLink>> {
    loop {
        // SAFETY: the caller's section; here and below.
        match unsafe { word.target() } {
            Target::Entry(node) => {
                // SAFETY: the caller's section keeps what it finds.
                let link = unsafe { node.as_ref() };
                let next = NextWord::load(&link.next);
                if link.hash() != hash {
                    if !precedes(link.hash(), hash) {
                        return None;
                    }
                } else if eq(node) {
                    let marked = next.is_marked() && !mutant!("split_finds_marked");
                    return (!marked).then_some(node);
                }
                word = next;
            }
            Target::Dummy(dummy) => {
                // SAFETY: the caller's section keeps what it finds.
                if !unsafe { Target::Dummy(dummy).is_before(hash, Position::Front) } {
                    return None;
                }
                word = NextWord::load(dummy.next());
            }
            Target::End => return None,
        }
    }
}

/// Walks from a dummy to a place behind it, and unlinks marked nodes on the way and right behind
/// it.
///
/// # Safety
///
/// 1. The caller is in a section that lasts for `'s`.
#[inline]
pub(super) unsafe fn seek<'s>(
    from: &'s Dummy,
    hash: u64,
    place: Position,
) -> Result<Cursor<'s>, Lost> {
    let mut cursor = Cursor::at(from)?;
    // SAFETY: the caller's section.
    while let Some(step) = unsafe { cursor.step() }?
        // SAFETY: the caller's section keeps what it finds.
        && unsafe { step.node.is_before(hash, place) }
    {
        cursor.go(step);
    }
    Ok(cursor)
}

/// Walks from before the entries of a hash to the entry of a key.
///
/// # Safety
///
/// 1. As for [`Cursor::step`].
pub(super) unsafe fn seek_entry<'s>(
    cursor: &mut Cursor<'s>,
    hash: u64,
    eq: &mut impl FnMut(NonNull<ChainLink>) -> bool,
) -> Result<Option<(NonNull<ChainLink>, Step<'s>)>, Lost> {
    // SAFETY: the caller's section.
    while let Some(step) = unsafe { cursor.step() }? {
        // Dummies of this number are before the entries.
        let Target::Entry(link) = step.node else {
            break;
        };
        // SAFETY: the caller's section keeps what it finds.
        if unsafe { link.as_ref() }.hash() != hash {
            break;
        }
        if eq(link) {
            return Ok(Some((link, step)));
        }
        cursor.go(step);
    }
    Ok(None)
}
