//! A thread's record: one word that holds whether the thread is in a section, and in which one.
//!
//! ```text
//!  63                                   16 15        14                              0
//! ┌────────────────────────────────────────┬──────────┬────────────────────────────────┐
//! │ number of the section, wraps           │ ONE_SHOT │ nesting; 0 = in no section     │
//! └────────────────────────────────────────┴──────────┴────────────────────────────────┘
//! ```
//!
//! 1. Only the owner writes the word. A record without an owner is the exception.
//! 2. Every store to the word is a Release and every load by a grace period an Acquire: if a load
//!    sees a value later than that of a section, all accesses of that section happened before the
//!    load.
//! 3. After the store that enters, the owner calls the light half of the barrier pair; a grace
//!    period calls the heavy half before it loads the words. So either the grace period sees the
//!    section, or the section sees all that was unlinked before (guarantee 1 of
//!    `corewise_atomic::barrier`).
//! 4. A section that is paused keeps its place: nesting + paused <= [`MAX_NESTED`], and paused <=
//!    [`MAX_PAUSED`]. So `resume` never fails. `enter` checks the sum only if the nesting is over
//!    half of its range; below that, the bound of `paused` suffices.
//! 5. A record passes to another thread only when both counts are zero.
//!
//! A guard is one pointer, to its record, so a record leads to its domain, and the last guard of an
//! ended thread gives the record back there. That is why `domain`, `grace`, `registry`, `local` and
//! this module use each other.

use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use corewise_atomic::thread::{self, ThreadId};
use corewise_atomic::{CachePadded, barrier, mutant, ordering};

use crate::backlog::RetireList;
use crate::deferred::Deferred;
use crate::domain::DomainState;

/// The bits that count nesting.
const NEST: u64 = (1 << 15) - 1;
/// The record goes back to its domain when the last section ends.
const ONE_SHOT: u64 = 1 << 15;
/// Added to the word by each new section.
const SECTION: u64 = 1 << 16;

/// The upper bit of the nesting.
const DEEP: u64 = 1 << 14;

/// Maximum nesting depth of the sections of one thread and domain. [`Qsbr`](crate::Qsbr) handles
/// count, also while they are offline.
pub const MAX_NESTED: usize = NEST as usize;
/// Maximum number of paused sections of one thread and domain.
const MAX_PAUSED: u32 = DEEP as u32 - 1;

const _: () = assert!(DEEP + MAX_PAUSED as u64 <= NEST);

/// A thread's record in a domain. Records pass from thread to thread, and are not freed before
/// their domain.
pub(crate) struct Reader {
    word: CachePadded<AtomicU64>,
    /// Number of paused sections; accessed by the owner only.
    paused: AtomicU32,
    /// Whether a thread has the record.
    pub(crate) claimed: AtomicBool,
    /// The next record of the domain; written before the record is published.
    pub(crate) next: AtomicPtr<Reader>,
    /// The number of records made before this one.
    pub(crate) index: usize,
    /// The thread that has the record, or had it last.
    pub(crate) owner: Mutex<RecordOwner>,
    /// What that thread deferred.
    pub(crate) retire_list: Mutex<RetireList<Deferred>>,
    /// The domain, which lives as long as its records.
    shared: *const DomainState,
}

/// The owner of a record.
#[derive(Default)]
pub(crate) struct RecordOwner {
    /// The thread's name, or its thread ID if it has none.
    pub(crate) name: String,
    pub(crate) thread: Option<ThreadId>,
}

impl RecordOwner {
    /// The calling thread.
    pub(crate) fn current() -> Self {
        let thread = thread::current();
        let unnamed = || format!("{:?}", thread.id());
        Self {
            name: thread.name().map_or_else(unnamed, str::to_owned),
            thread: Some(thread.id()),
        }
    }
}

// SAFETY: the pointer is to a domain, which is `Sync`, and is used according to guarantee 7 of the
// crate; the other fields are `Send` and `Sync`.
unsafe impl Send for Reader {}
// SAFETY: the pointer is to a domain, which is `Sync`, and the other fields are `Sync`.
unsafe impl Sync for Reader {}

impl Reader {
    /// # Safety
    ///
    /// 1. `shared` lives as long as the record, and is not moved.
    pub(crate) unsafe fn new(index: usize, shared: *const DomainState) -> Self {
        Self {
            word: CachePadded::new(AtomicU64::new(0)),
            paused: AtomicU32::new(0),
            claimed: AtomicBool::new(true),
            next: AtomicPtr::new(std::ptr::null_mut()),
            index,
            owner: Mutex::new(RecordOwner::default()),
            retire_list: Mutex::new(RetireList::new()),
            shared,
        }
    }

    /// Enters a section.
    ///
    /// # Safety
    ///
    /// 1. The calling thread owns the record.
    #[inline]
    pub(crate) unsafe fn enter(&self) {
        if self.count_in() {
            light();
        }
    }

    /// Enters a section; the caller knows that the light half of the barrier is free.
    ///
    /// # Safety
    ///
    /// 1. The calling thread has the record at hand, see [`local`](crate::local).
    #[inline(always)]
    pub(crate) unsafe fn enter_at_hand(&self) {
        if self.count_in() && !mutant!("no_light") {
            // SAFETY: the record is at hand, so `barrier::prepare` has returned true on this thread
            // (1).
            unsafe { barrier::light_prepared() };
        }
    }

    /// Counts one more section of the thread; true if the thread was in none.
    #[inline(always)]
    fn count_in(&self) -> bool {
        // Relaxed: the owner reads its own word.
        let word = self.word.load(Relaxed);
        let outermost = word & NEST == 0;
        if outermost {
            // Release: pairs with the Acquire in `section`, see 2 above.
            let release = ordering!(Release, "relaxed_enter");
            self.word.store(word.wrapping_add(SECTION + 1), release);
        } else {
            self.enter_nested(word);
        }
        outermost
    }

    #[inline]
    fn enter_nested(&self, word: u64) {
        if word & DEEP != 0 {
            self.check_depth(word);
        }
        // Release: as in `enter`.
        self.word.store(word + 1, Release);
    }

    /// Panics if there is no room for one more section.
    #[cold]
    #[inline(never)]
    fn check_depth(&self, word: u64) {
        let kept = if mutant!("place_not_kept") {
            0
        } else {
            self.paused()
        };
        if (word & NEST) + u64::from(kept) >= NEST {
            panic!("more than {MAX_NESTED} nested guards");
        }
    }

    fn paused(&self) -> u32 {
        // Relaxed: the owner reads its own count; `Registry::release` passes it on.
        self.paused.load(Relaxed)
    }

    /// Leaves a section.
    ///
    /// # Safety
    ///
    /// 1. The calling thread owns the record.
    /// 2. It is in the section, and does not use what the section protects afterwards.
    #[inline(always)]
    pub(crate) unsafe fn leave(&self) {
        // Relaxed: the owner reads its own word.
        let word = self.word.load(Relaxed).wrapping_sub(1);
        // Release: pairs with the Acquire in `section`, see 2 above.
        self.word.store(word, ordering!(Release, "relaxed_leave"));
        if word & ONE_SHOT != 0 {
            // SAFETY: the calling thread owns the record, by 1.
            unsafe { self.give_back_if_last(word) };
        }
    }

    /// Gives the record back if the section that ended with `word` was the last one.
    ///
    /// # Safety
    ///
    /// 1. The calling thread owns the record.
    #[cold]
    #[inline(never)]
    unsafe fn give_back_if_last(&self, word: u64) {
        let is_paused = self.paused() != 0 && !mutant!("paused_is_given_back");
        if word & NEST == 0 && !is_paused {
            // Release: as in `enter`.
            self.word.store(word & !ONE_SHOT, Release);
            // SAFETY: it is a record of this domain, which the thread owns, by 1. The thread is in
            // no section of it and has none paused.
            unsafe { self.shared().give_back(self) };
        }
    }

    /// Leaves a section that [`Reader::resume`] enters again: the record and the section's place in
    /// the nesting are kept.
    ///
    /// # Panics
    ///
    /// If [`MAX_PAUSED`] sections are paused already; nothing has changed then.
    ///
    /// # Safety
    ///
    /// 1. and 2. of [`Reader::leave`].
    pub(crate) unsafe fn pause(&self) {
        let paused = self.paused();
        assert!(
            paused < MAX_PAUSED,
            "more than {MAX_PAUSED} handles offline"
        );
        // Relaxed: accessed by the owner only.
        self.paused.store(paused + 1, Relaxed);
        // Relaxed, Release: as in `leave`.
        let word = self.word.load(Relaxed).wrapping_sub(1);
        self.word.store(word, ordering!(Release, "relaxed_leave"));
    }

    /// Enters the section that was paused. Cannot fail, see 4 above.
    ///
    /// # Safety
    ///
    /// 1. The calling thread owns the record.
    /// 2. The section was paused, and not resumed since.
    pub(crate) unsafe fn resume(&self) {
        // Relaxed: accessed by the owner only.
        self.paused.store(self.paused() - 1, Relaxed);
        // SAFETY: the calling thread owns the record, by 1.
        unsafe { self.enter() };
    }

    /// Ends one section and begins the next with one store: a quiescent state. Returns false, and
    /// does nothing, if the thread is also in other sections.
    ///
    /// # Safety
    ///
    /// 1. and 2. of [`Reader::leave`].
    #[inline]
    pub(crate) unsafe fn quiescent(&self) -> bool {
        // Relaxed: the owner reads its own word.
        let word = self.word.load(Relaxed);
        if word & NEST != 1 {
            return false;
        }
        // Release: as in `leave`, and then as in `enter`.
        let release = ordering!(Release, "relaxed_quiescent");
        self.word.store(word.wrapping_add(SECTION), release);
        if !mutant!("quiescent_without_light") {
            light();
        }
        true
    }

    /// Called when the thread ends: true if the record can be given back now; otherwise its last
    /// guard gives it back.
    ///
    /// # Safety
    ///
    /// 1. The calling thread owns the record.
    pub(crate) unsafe fn end_thread(&self) -> bool {
        // Relaxed: the owner reads its own word.
        let word = self.word.load(Relaxed);
        if word & NEST == 0 && self.paused() == 0 {
            return true;
        }
        // Release: as in `enter`.
        self.word.store(word | ONE_SHOT, Release);
        false
    }

    /// Marks the record for one section of a thread whose thread-locals are gone: the end of the
    /// section gives the record back.
    ///
    /// # Safety
    ///
    /// 1. The calling thread owns the record.
    pub(crate) unsafe fn set_one_shot(&self) {
        // Relaxed, Release: as in `end_thread`.
        self.word.store(self.word.load(Relaxed) | ONE_SHOT, Release);
    }

    /// The number of sections that the thread is in; called by the owner.
    #[inline]
    pub(crate) fn nesting(&self) -> usize {
        // Relaxed: the owner reads its own word.
        (self.word.load(Relaxed) & NEST) as usize
    }

    /// The section that the owner is in; called by grace periods.
    pub(crate) fn section(&self) -> Option<u64> {
        // Acquire: pairs with the Release stores of the owner, see 2 above.
        let word = self.word.load(ordering!(Acquire, "relaxed_look"));
        (word & NEST != 0).then_some(word / SECTION)
    }

    #[inline]
    pub(crate) fn shared(&self) -> &DomainState {
        // SAFETY: a record lives no longer than its domain, by the contract of `new`.
        unsafe { &*self.shared }
    }
}

#[inline(always)]
fn light() {
    if !mutant!("no_light") {
        barrier::light();
    }
}
