//! A thread's record: the word that says whether it is in a section, and which one.
//!
//! ```text
//!  63                                   16 15        14                              0
//! ┌────────────────────────────────────────┬──────────┬────────────────────────────────┐
//! │ number of the section, wraps           │ ONE_SHOT │ nesting; 0 = in no section     │
//! └────────────────────────────────────────┴──────────┴────────────────────────────────┘
//! ```
//!
//! 1. The owner alone writes the word, but for records that nobody owns.
//! 2. Every store to it is a Release and every look of a grace period an Acquire: whoever sees a
//!    later value than that of a section has all accesses of that section behind it.
//! 3. After the store that enters, the owner calls the light half of the barrier pair; a grace
//!    period calls the heavy half before it looks. So either it sees the section, or the section
//!    sees all that was unlinked before (guarantee 1 of `corewise_atomic::barrier`).
//! 4. A section that is paused keeps its place: nesting + paused <= [`MAX_NESTED`], and paused <=
//!    [`MAX_PAUSED`]. So `resume` never fails. `enter` looks at the sum only where the nesting is
//!    over half of its range, since below it the bound of `paused` is enough.
//! 5. A record passes to another thread only when both counts are zero.

use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use corewise_atomic::thread::{self, ThreadId};
use corewise_atomic::{CachePadded, barrier, mutant, ordering};

use crate::backlog::Limbo;
use crate::deferred::Deferred;
use crate::domain::Shared;

/// The bits that count nesting.
const NEST: u64 = (1 << 15) - 1;
/// The record goes back to its domain when the last section ends.
const ONE_SHOT: u64 = 1 << 15;
/// One section further.
const SECTION: u64 = 1 << 16;

/// The upper bit of the nesting.
const DEEP: u64 = 1 << 14;

/// How deeply sections of one thread and domain may be nested, those of [`Qsbr`](crate::Qsbr) handles
/// included, also while these are offline.
pub const MAX_NESTED: usize = NEST as usize;
/// How many sections of one thread and domain may be paused at a time.
const MAX_PAUSED: u32 = DEEP as u32 - 1;

const _: () = assert!(DEEP + MAX_PAUSED as u64 <= NEST);

/// A thread's record in a domain. Records are never freed before their domain, but pass from
/// thread to thread.
pub(crate) struct Reader {
    word: CachePadded<AtomicU64>,
    /// Sections that are paused; for the owner alone.
    paused: AtomicU32,
    /// Taken by a thread.
    pub(crate) claimed: AtomicBool,
    /// The next record of the domain; written before the record is published.
    pub(crate) next: AtomicPtr<Reader>,
    /// The number of records made before it.
    pub(crate) index: usize,
    /// The thread that has it, or had it last.
    pub(crate) owner: Mutex<Owner>,
    /// What that thread deferred.
    pub(crate) limbo: Mutex<Limbo<Deferred>>,
    /// The domain, which lives as long as its records.
    shared: *const Shared,
}

/// Who has a record.
#[derive(Default)]
pub(crate) struct Owner {
    /// The thread's name, or its number where it has none.
    pub(crate) name: String,
    pub(crate) thread: Option<ThreadId>,
}

impl Owner {
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

// SAFETY: the pointer is to a domain, which is `Sync`, and follows guarantee 7 of the crate; all
// else is `Send` and `Sync` by itself.
unsafe impl Send for Reader {}
// SAFETY: as above.
unsafe impl Sync for Reader {}

impl Reader {
    pub(crate) fn new(index: usize, shared: *const Shared) -> Self {
        Self {
            word: CachePadded::new(AtomicU64::new(0)),
            paused: AtomicU32::new(0),
            claimed: AtomicBool::new(true),
            next: AtomicPtr::new(std::ptr::null_mut()),
            index,
            owner: Mutex::new(Owner::default()),
            limbo: Mutex::new(Limbo::new()),
            shared,
        }
    }

    /// Enters a section.
    #[inline]
    pub(crate) fn enter(&self) {
        if self.count_in() {
            light();
        }
    }

    /// Enters a section, where the barrier is known to be free.
    ///
    /// # Safety
    ///
    /// 1. The calling thread has the record at hand, see [`local`](crate::local).
    #[inline(always)]
    pub(crate) unsafe fn enter_at_hand(&self) {
        if self.count_in() && !mutant!("no_light") {
            // SAFETY: 1: whoever put the record there had seen that the barrier is prepared.
            unsafe { barrier::light_prepared() };
        }
    }

    /// Stores that the thread is in one section more; true if it was in none.
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

    /// Panics if there is no place for one section more.
    #[cold]
    #[inline(never)]
    fn check_depth(&self, word: u64) {
        let kept = match mutant!("place_not_kept") {
            true => 0,
            false => self.paused(),
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
    #[inline(always)]
    pub(crate) fn leave(&self) {
        // Relaxed: the owner reads its own word.
        let word = self.word.load(Relaxed).wrapping_sub(1);
        // Release: pairs with the Acquire in `section`, see 2 above.
        self.word.store(word, ordering!(Release, "relaxed_leave"));
        if word & ONE_SHOT != 0 {
            self.left_one_shot(word);
        }
    }

    #[cold]
    #[inline(never)]
    fn left_one_shot(&self, word: u64) {
        let is_paused = self.paused() != 0 && !mutant!("paused_is_given_back");
        if word & NEST == 0 && !is_paused {
            // Release: as in `enter`.
            self.word.store(word & !ONE_SHOT, Release);
            self.shared().give_back(self);
        }
    }

    /// Leaves a section that [`Reader::resume`] enters again: the record and the section's place in
    /// the nesting are kept.
    ///
    /// # Panics
    ///
    /// If [`MAX_PAUSED`] sections are paused already; then nothing has changed.
    pub(crate) fn pause(&self) {
        let paused = self.paused();
        assert!(
            paused < MAX_PAUSED,
            "more than {MAX_PAUSED} handles offline"
        );
        // Relaxed: for the owner alone.
        self.paused.store(paused + 1, Relaxed);
        // Relaxed, Release: as in `leave`.
        let word = self.word.load(Relaxed).wrapping_sub(1);
        self.word.store(word, ordering!(Release, "relaxed_leave"));
    }

    /// Enters the section that was paused. Cannot fail, see 4 above.
    pub(crate) fn resume(&self) {
        // Relaxed: for the owner alone.
        self.paused.store(self.paused() - 1, Relaxed);
        self.enter();
    }

    /// Ends one section and begins the next in one go: a quiescent state. False if the thread is
    /// inside other sections, so that it is none.
    #[inline]
    pub(crate) fn quiescent(&self) -> bool {
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

    /// The thread ends: true if the record can be given back now, otherwise the last guard does.
    pub(crate) fn thread_ends(&self) -> bool {
        // Relaxed: the owner reads its own word.
        let word = self.word.load(Relaxed);
        if word & NEST == 0 && self.paused() == 0 {
            return true;
        }
        // Release: as in `enter`.
        self.word.store(word | ONE_SHOT, Release);
        false
    }

    /// Makes the record of a thread whose thread-locals are gone: the end of its section gives it
    /// back.
    pub(crate) fn for_one_section(&self) {
        // Relaxed, Release: as in `thread_ends`.
        self.word.store(self.word.load(Relaxed) | ONE_SHOT, Release);
    }

    /// In the child of a fork that the owner is not in: ends its sections. The record stays claimed.
    pub(crate) fn end_sections(&self) {
        // Relaxed, both and below: the process has one thread.
        self.paused.store(0, Relaxed);
        if !mutant!("fork_keeps_sections") {
            let word = self.word.load(Relaxed);
            self.word.store(word & !(NEST | ONE_SHOT), Relaxed);
        }
    }

    /// How many sections the thread is in; for the owner.
    #[inline]
    pub(crate) fn nesting(&self) -> usize {
        // Relaxed: the owner reads its own word.
        (self.word.load(Relaxed) & NEST) as usize
    }

    /// The section that the owner is in, for a grace period.
    pub(crate) fn section(&self) -> Option<u64> {
        // Acquire: pairs with the Release stores of the owner, see 2 above.
        let word = self.word.load(ordering!(Acquire, "relaxed_look"));
        (word & NEST != 0).then_some(word / SECTION)
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: a record lives no longer than its domain.
        unsafe { &*self.shared }
    }
}

#[inline(always)]
fn light() {
    if !mutant!("no_light") {
        barrier::light();
    }
}
