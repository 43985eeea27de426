//! The sorted list that buckets and entries are in: its words, its order, and how it is walked and changed.
//! The header of the module above is about it, too.

use std::ptr::{self, NonNull};

use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use corewise_atomic::{hint, mutant, ordering};

use crate::chained::algorithm::{Head, Link};
use crate::chained::order::precedes;

// ---- words and nodes

/// In a next word: its node was removed.
const MARK: usize = 1;
/// In a next word: it leads to a dummy, or, without an address, to the end.
const DUMMY: usize = 2;
const _: () = assert!(align_of::<Link>() >= 4 && align_of::<Head>() >= 4);

/// What a next word holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(pub(super) *mut Link);

#[derive(Clone, Copy)]
pub(super) enum Target<'s> {
    Entry(NonNull<Link>),
    Dummy(&'s Dummy),
    End,
}

impl Word {
    pub(super) const END: Self = Self(ptr::without_provenance_mut(DUMMY));

    #[inline(always)]
    pub(super) fn load(head: &Head) -> Self {
        // Acquire: pairs with the Release in `Cursor::lead`: what the node was made of is seen.
        Self(head.load(Acquire))
    }

    pub(super) fn of_dummy(dummy: &Dummy) -> Self {
        let link = ptr::from_ref(dummy).cast_mut().cast::<Link>();
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

    /// The address of what it leads to, an entry or a dummy; null at the end.
    #[inline(always)]
    pub(super) fn address(self) -> *mut Link {
        self.0.map_addr(|address| address & !(MARK | DUMMY))
    }

    /// What it leads to.
    ///
    /// # Safety
    ///
    /// 1. It was loaded from a next word that leads to something, in a section that lasts for `'s`.
    #[inline(always)]
    pub(super) unsafe fn target<'s>(self) -> Target<'s> {
        let address = self.address();
        if self.0.addr() & DUMMY == 0 {
            debug_assert!(!address.is_null(), "a word that leads nowhere is followed");
            // SAFETY: such a word leads to an entry.
            return Target::Entry(unsafe { NonNull::new_unchecked(address) });
        }
        // SAFETY: such a word leads to a dummy, whose segment is freed a grace period after it was unlinked.
        match unsafe { address.cast::<Dummy>().as_ref() } {
            Some(dummy) => Target::Dummy(dummy),
            None => Target::End,
        }
    }
}

/// A bucket: two words of a segment.
#[repr(transparent)]
pub(super) struct Dummy([Head; 2]);

/// In a state: somebody is putting the dummy into the list.
const CLAIMED: usize = 1;
/// In a state: it is there.
const READY: usize = 2;
/// Where the number begins. A state of zero: nothing was done yet.
const NUMBER_SHIFT: u32 = 2;

impl Dummy {
    #[inline(always)]
    pub(super) fn next(&self) -> &Head {
        &self.0[0]
    }

    /// A number: no address.
    #[inline(always)]
    pub(super) fn state(&self) -> &Head {
        &self.0[1]
    }

    #[inline(always)]
    pub(super) fn is_ready(&self) -> bool {
        // Acquire: pairs with the Release in `set_ready`: it is in the list, and its next word leads on.
        self.state().load(Acquire).addr() & READY != 0
    }

    /// The bucket's number, if it is in the list.
    #[inline(always)]
    pub(super) fn number(&self) -> u64 {
        // Relaxed: it was there before the dummy was put into the list, with Release.
        (self.state().load(Relaxed).addr() >> NUMBER_SHIFT) as u64
    }

    pub(super) fn claim(&self, number: usize) -> bool {
        let claimed = ptr::without_provenance_mut(number << NUMBER_SHIFT | CLAIMED);
        // Relaxed: whoever claims it has nothing to see or to show yet.
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

/// A place in the list that has to do with a hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Where the dummy of the bucket is that has this hash for its number.
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
    /// 1. The section it was found in lasts.
    pub(super) unsafe fn is_before(self, hash: u64, place: Place) -> bool {
        let (own, is_dummy) = match self {
            // SAFETY: the caller's.
            Target::Entry(link) => (unsafe { link.as_ref() }.hash(), false),
            Target::Dummy(dummy) => (dummy.number(), true),
            Target::End => return false,
        };
        match place {
            _ if own != hash => precedes(own, hash),
            Place::Dummy => false,
            Place::Front => is_dummy,
            Place::Behind => true,
        }
    }
}

// ---- walks of updates

/// The list has changed where an update was at work: it must start again.
pub(super) struct Lost;

/// Where an update is: a word of a node that was not marked, and what it held.
pub(super) struct Cursor<'s> {
    pub(super) word: &'s Head,
    pub(super) to: Word,
}

/// A node that comes next, was not marked, and led to `next`.
#[derive(Clone, Copy)]
pub(super) struct Step<'s> {
    pub(super) node: Target<'s>,
    pub(super) word: &'s Head,
    pub(super) next: Word,
}

impl<'s> Cursor<'s> {
    /// At the beginning of a bucket.
    pub(super) fn at(dummy: &'s Dummy) -> Result<Self, Lost> {
        let word = dummy.next();
        let to = Word::load(word);
        if to.is_marked() {
            return Err(Lost);
        }
        Ok(Self { word, to })
    }

    /// What comes next, once all that is marked there is unlinked; none: the end.
    ///
    /// # Safety
    ///
    /// 1. The caller is in a section that lasts for `'s`, since before the cursor was made.
    pub(super) unsafe fn step(&mut self) -> Result<Option<Step<'s>>, Lost> {
        loop {
            // SAFETY: the caller's section.
            let node = unsafe { self.to.target::<'s>() };
            let word = match node {
                // SAFETY: as above.
                Target::Entry(link) => unsafe { &link.as_ref().next },
                Target::Dummy(dummy) => dummy.next(),
                Target::End => return Ok(None),
            };
            let next = Word::load(word);
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

    /// Makes the word lead to another node, if it has not changed.
    pub(super) fn lead(&mut self, to: Word) -> Result<(), Lost> {
        // Release: pairs with the Acquire in `Word::load`: the new node, or what comes after one that is
        // unlinked, is seen whole. Relaxed: the value is not looked at.
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

/// Marks a node whose next word was `seen`; what it leads to, unless another has marked it.
pub(super) fn mark(word: &Head, mut seen: Word) -> Option<Word> {
    if mutant!("split_no_mark") {
        return Some(seen);
    }
    loop {
        // AcqRel: Release pairs with the Acquire in `Word::load`, so that whoever sees a key removed sees what
        // its remover did before; Acquire, also on failure, as there: an insertion behind the node is seen.
        match word.compare_exchange(seen.0, seen.marked().0, AcqRel, Acquire) {
            Ok(_) => return Some(seen),
            Err(now) => seen = Word(now),
        }
        if seen.is_marked() {
            return None;
        }
        hint::spin_loop();
    }
}

// ---- walks

/// The entry that is looked for, from a word on that leads to it if it is there. Wait-free.
///
/// # Safety
///
/// 1. `word` was loaded in a section that lasts.
#[inline(always)]
pub(super) unsafe fn walk(
    mut word: Word,
    hash: u64,
    mut is_it: impl FnMut(NonNull<Link>) -> bool,
) -> Option<NonNull<Link>> {
    loop {
        // SAFETY: the caller's section; here and below.
        match unsafe { word.target() } {
            Target::Entry(node) => {
                // SAFETY: as above.
                let link = unsafe { node.as_ref() };
                let next = Word::load(&link.next);
                if link.hash() != hash {
                    if !precedes(link.hash(), hash) {
                        return None;
                    }
                } else if is_it(node) {
                    let marked = next.is_marked() && !mutant!("split_finds_marked");
                    return (!marked).then_some(node);
                }
                word = next;
            }
            Target::Dummy(dummy) => {
                // SAFETY: as above.
                if !unsafe { Target::Dummy(dummy).is_before(hash, Place::Front) } {
                    return None;
                }
                word = Word::load(dummy.next());
            }
            Target::End => return None,
        }
    }
}

/// Goes from a dummy to a place behind it, and unlinks what is marked on the way and right behind it.
///
/// # Safety
///
/// 1. The caller is in a section that lasts for `'s`.
#[inline]
pub(super) unsafe fn seek<'s>(
    from: &'s Dummy,
    hash: u64,
    place: Place,
) -> Result<Cursor<'s>, Lost> {
    let mut cursor = Cursor::at(from)?;
    // SAFETY: the caller's section.
    while let Some(step) = unsafe { cursor.step() }?
        // SAFETY: as above.
        && unsafe { step.node.is_before(hash, place) }
    {
        cursor.go(step);
    }
    Ok(cursor)
}

/// Goes on, from before the entries of a hash, to the one that is looked for.
///
/// # Safety
///
/// 1. As for [`Cursor::step`].
pub(super) unsafe fn seek_entry<'s>(
    cursor: &mut Cursor<'s>,
    hash: u64,
    is_it: &mut impl FnMut(NonNull<Link>) -> bool,
) -> Result<Option<(NonNull<Link>, Step<'s>)>, Lost> {
    // SAFETY: the caller's section.
    while let Some(step) = unsafe { cursor.step() }? {
        // Dummies of this number are before the entries.
        let Target::Entry(link) = step.node else {
            break;
        };
        // SAFETY: as above.
        if unsafe { link.as_ref() }.hash() != hash {
            break;
        }
        if is_it(link) {
            return Ok(Some((link, step)));
        }
        cursor.go(step);
    }
    Ok(None)
}
