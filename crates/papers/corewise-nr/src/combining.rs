//! Flat combining within a replica (\[NR\] §3.3; Hendler, Incze, Shavit, Tzafrir: *Flat combining
//! and the synchronization-parallelism tradeoff*, SPAA 2010): slots in which threads post requests,
//! the lock of the combiner, and parking of threads that wait.
//!
//! ```text
//!  slot: EMPTY ─▶ (CLAIMED ─▶) POSTED ─▶ TAKEN ─▶ DONE ─▶ EMPTY      CLAIMED: shared slots only
//!                                 └────────▶ BOUNCED ─▶ EMPTY        the replica has left
//! ```
//!
//! The owner of the slot makes the steps to CLAIMED, POSTED and EMPTY, the combiner the others.
//!
//! # Guarantees
//!
//! 1. *One answer.* A request is taken by one combiner and gets one answer, or comes back.
//! 2. *Order.* What the poster did happens before the request is taken; what the combiner did
//!    before [`Publications::deliver`] happens before [`Publications::execute`] returns. All that a
//!    combiner did happens before all that the next one does.
//! 3. *Progress.* Blocking. Waiting threads spin, yield, and then park until the combiner unlocks.
//!
//! # Why no wake-up is lost
//!
//! A thread parks after it has changed the lock's word from HELD to WAITERS, or found it so, and
//! added itself to the sleepers, both under their mutex. The combiner frees the word with a swap;
//! if it finds WAITERS, it takes the sleepers under the mutex and wakes all of them. What a thread
//! waits for is done before the unlock, or by a combiner after it, which the thread may become.
//!
//! The unpark token of a thread may belong to other code. A thread that has parked here leaves a
//! token when it stops waiting: see [`Wait`].

use corewise_atomic::cell::DataCell;
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::AtomicU32;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::thread::{self, Thread};
use corewise_atomic::{Backoff, CachePadded, Slots, mutant, ordering};

use crate::registration::SlotAddress;

/// loom remembers only the last access to an atomic. A look before an exchange would hide that the
/// exchange conflicts with an access of another thread, so models do without.
pub(crate) const LOOK_IS_HIDDEN: bool = cfg!(corewise_loom);

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and threads are parked.
const WAITERS: u32 = 2;

/// The lock of the combiner.
pub(crate) struct CombinerLock {
    word: CachePadded<AtomicU32>,
    sleepers: Mutex<Vec<Thread>>,
}

/// The combiner's lock is held until this is dropped.
pub(crate) struct CombinerGuard<'a>(&'a CombinerLock);

impl CombinerLock {
    fn new() -> Self {
        Self {
            word: CachePadded::new(AtomicU32::new(FREE)),
            sleepers: Mutex::new(Vec::new()),
        }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<CombinerGuard<'_>> {
        // Acquire: pairs with the Release in `unlock`. Relaxed: the exchange decides.
        let acquire = ordering!(Acquire, "combiner_relaxed_lock");
        let is_ours = (LOOK_IS_HIDDEN || self.word.load(Relaxed) == FREE)
            && self
                .word
                .compare_exchange(FREE, HELD, acquire, Relaxed)
                .is_ok();
        // Not `then_some`, which would make, drop and so unlock one in any case.
        is_ours.then(|| CombinerGuard(self))
    }

    pub(crate) fn lock(&self) -> CombinerGuard<'_> {
        let mut wait = Wait::new();
        loop {
            match self.try_lock() {
                Some(held) => return held,
                None => wait.pause(self),
            }
        }
    }

    /// Parks until the holder unlocks. May return early. False if there is no holder.
    #[cold]
    fn park(&self) -> bool {
        let this = thread::current();
        {
            let mut sleepers = self.sleepers.lock();
            // Relaxed, both: the word only says whether a holder is left that will unlock; what
            // the caller waits for it reads with an Acquire.
            let now = self
                .word
                .compare_exchange(HELD, WAITERS, Relaxed, Relaxed)
                .unwrap_or_else(|now| now);
            if now == FREE {
                return false;
            }
            if !sleepers.iter().any(|sleeper| sleeper.id() == this.id()) {
                sleepers.push(this);
            }
        }
        thread::park();
        true
    }

    #[inline]
    fn unlock(&self) {
        // Release: pairs with the Acquire in `try_lock`.
        let release = ordering!(Release, "combiner_relaxed_unlock");
        if self.word.swap(FREE, release) == WAITERS && !mutant!("park_forgets_waiters") {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let sleepers = std::mem::take(&mut *self.sleepers.lock());
        sleepers.iter().for_each(thread::unpark);
    }
}

impl Drop for CombinerGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// A thread that waits for the holder of a combiner's lock.
///
/// A thread has one unpark token for all purposes, and code around the structure may wait for it as
/// well: it checks its condition, calls the structure, and parks. If the structure took the token
/// of that other wake-up, the thread would sleep for ever. So a thread that has parked leaves a
/// token when it ends its wait. At worst its next `park` returns early, which callers of `park`
/// must expect.
pub(crate) struct Wait {
    backoff: Backoff,
    has_parked: bool,
}

impl Wait {
    #[inline]
    pub(crate) fn new() -> Self {
        Self {
            backoff: Backoff::new(),
            has_parked: false,
        }
    }

    /// Waits for a moment, and at last until the holder unlocks.
    #[inline]
    pub(crate) fn pause(&mut self, lock: &CombinerLock) {
        if self.backoff.is_completed() {
            self.has_parked |= lock.park();
        } else {
            self.backoff.snooze();
        }
    }

    /// Whether the next pause parks.
    fn is_long(&self) -> bool {
        self.backoff.is_completed()
    }

    /// Begins with short pauses again.
    fn shorten(&mut self) {
        self.backoff.reset();
    }
}

impl Drop for Wait {
    #[inline]
    fn drop(&mut self) {
        if self.has_parked && !mutant!("combiner_takes_token") {
            thread::unpark(&thread::current());
        }
    }
}

const EMPTY: u32 = 0;
const CLAIMED: u32 = 1;
const POSTED: u32 = 2;
const TAKEN: u32 = 3;
const DONE: u32 = 4;
const BOUNCED: u32 = 5;

enum Mail<Q, A> {
    Empty,
    Request(Q),
    Answer(A),
}

struct Mailbox<Q, A> {
    state: AtomicU32,
    mail: DataCell<Mail<Q, A>>,
}

// SAFETY: no two threads look at a mail at the same time: `state` says whether it is the poster's
// or the combiner's, so it only moves between threads.
unsafe impl<Q: Send, A: Send> Sync for Mailbox<Q, A> {}

impl<Q, A> Mailbox<Q, A> {
    fn new() -> Self {
        Self {
            state: AtomicU32::new(EMPTY),
            mail: DataCell::new(Mail::Empty),
        }
    }

    /// # Safety
    ///
    /// 1. The mail is the caller's: by the state, and the caller's role.
    #[inline]
    unsafe fn replace(&self, mail: Mail<Q, A>) -> Mail<Q, A> {
        // SAFETY: the mail is the caller's (1).
        self.mail
            .with_mut(|place| unsafe { std::mem::replace(&mut *place, mail) })
    }
}

/// The slots of a replica, and its combiner's lock.
pub(crate) struct Publications<Q, A> {
    pub(crate) lock: CombinerLock,
    /// One more than the highest slot that was ever used.
    high: AtomicU32,
    slots: Slots<CachePadded<Mailbox<Q, A>>>,
}

impl<Q: Send, A: Send> Publications<Q, A> {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            lock: CombinerLock::new(),
            high: AtomicU32::new(0),
            slots: Slots::from_fn(slots, |_| CachePadded::new(Mailbox::new())),
        }
    }

    /// Has a request executed: by the caller if the lock is free, else by the combiner. Returns the
    /// request if the replica has left.
    ///
    /// `lead` is called with the lock held, which it releases. It takes the posted requests and
    /// delivers the answers. If it is given a request that was not posted, it returns its answer.
    ///
    /// With `is_patient` the caller leaves combining to another thread for a while.
    #[inline]
    pub(crate) fn execute(
        &self,
        place: SlotAddress,
        request: Q,
        is_patient: bool,
        mut lead: impl FnMut(CombinerGuard<'_>, Option<Q>) -> Option<Result<A, Q>>,
    ) -> Result<A, Q> {
        if !is_patient && let Some(held) = self.lock.try_lock() {
            return lead(held, Some(request)).expect("an answer to the own request");
        }
        self.execute_posted(place, request, is_patient, lead)
    }

    fn execute_posted(
        &self,
        place: SlotAddress,
        request: Q,
        is_patient: bool,
        mut lead: impl FnMut(CombinerGuard<'_>, Option<Q>) -> Option<Result<A, Q>>,
    ) -> Result<A, Q> {
        let slot = &*self.slots[place.slot()];
        let mut wait = Wait::new();
        // Another thread uses the shared slot. Without a slot the request cannot be posted, but it
        // can be executed under the lock.
        while !self.try_claim(slot, place) {
            match self.lock.try_lock() {
                Some(held) => return lead(held, Some(request)).expect("an answer"),
                None => wait.pause(&self.lock),
            }
        }
        self.post(slot, place, request);
        wait.shorten();
        loop {
            if let Some(result) = self.collect_answer(slot) {
                return result;
            }
            let may_lead = !is_patient || wait.is_long();
            match may_lead.then(|| self.lock.try_lock()).flatten() {
                // The batch takes the posted request along, unless the last combiner has answered
                // it, or the batch is full.
                Some(held) => _ = lead(held, None),
                None => wait.pause(&self.lock),
            }
        }
    }

    /// Makes a slot the caller's. Own slots always are.
    fn try_claim(&self, slot: &Mailbox<Q, A>, place: SlotAddress) -> bool {
        // Acquire: pairs with the Release in `collect_answer` of the last user. Relaxed on failure:
        // nothing is read then.
        let claim = || {
            slot.state
                .compare_exchange(EMPTY, CLAIMED, Acquire, Relaxed)
        };
        !place.is_shared() || claim().is_ok() || mutant!("slot_is_not_claimed")
    }

    fn post(&self, slot: &Mailbox<Q, A>, place: SlotAddress, request: Q) {
        // Relaxed, both: a combiner that misses the slot leaves the request to the next one, which
        // its poster becomes at the latest.
        if LOOK_IS_HIDDEN || self.high.load(Relaxed) <= place.slot() as u32 {
            self.high.fetch_max(place.slot() as u32 + 1, Relaxed);
        }
        // SAFETY: empty, and the slot is our own or claimed (1).
        unsafe { slot.replace(Mail::Request(request)) };
        // Release: pairs with the Acquire in `take`.
        slot.state
            .store(POSTED, ordering!(Release, "slot_relaxed_post"));
    }

    /// The answer to the posted request, or the request, if either is there.
    #[inline]
    fn collect_answer(&self, slot: &Mailbox<Q, A>) -> Option<Result<A, Q>> {
        // Acquire: pairs with the Release in `deliver` and in `bounce`.
        let state = slot.state.load(ordering!(Acquire, "slot_relaxed_collect"));
        if state != DONE && state != BOUNCED {
            return None;
        }
        // SAFETY: the combiner is done with the mail (1).
        let mail = unsafe { slot.replace(Mail::Empty) };
        // Release: pairs with the Acquire in `try_claim`.
        slot.state.store(EMPTY, Release);
        match mail {
            Mail::Answer(answer) => Some(Ok(answer)),
            Mail::Request(request) => Some(Err(request)),
            Mail::Empty => unreachable!("a slot that is done has mail"),
        }
    }

    /// Takes posted requests, at most `most`, and passes each to `accept` with the number of its
    /// slot. Begins at slot `from`, and returns where to begin next time, so that no slot starves.
    ///
    /// # Safety
    ///
    /// 1. The caller holds the lock.
    #[inline]
    pub(crate) unsafe fn take(
        &self,
        from: usize,
        most: usize,
        mut accept: impl FnMut(usize, Q),
    ) -> usize {
        // Relaxed: as in `post`.
        let high = self.high.load(Relaxed) as usize;
        let mut left = most;
        for step in 0..high {
            let index = (from + step) % high;
            if left == 0 {
                return index;
            }
            let slot = &*self.slots[index];
            // Acquire: pairs with the Release in `post`.
            if slot.state.load(Acquire) != POSTED {
                continue;
            }
            // Relaxed: a note for combiners; the poster waits for a later state.
            slot.state.store(TAKEN, Relaxed);
            // SAFETY: posted, and the caller is the combiner (1).
            let Mail::Request(request) = (unsafe { slot.replace(Mail::Empty) }) else {
                unreachable!("a posted slot has a request");
            };
            accept(index, request);
            left -= 1;
        }
        from
    }

    /// Leaves an answer in a slot; [`Publications::deliver`] hands it over.
    ///
    /// # Safety
    ///
    /// 1. The caller holds the lock, has taken the slot's request, and has not delivered an answer.
    #[inline]
    pub(crate) unsafe fn answer(&self, slot: usize, answer: A) {
        // SAFETY: the combiner has taken the request and not delivered an answer, so the mail is
        // its own, by 1.
        unsafe { self.slots[slot].replace(Mail::Answer(answer)) };
    }

    /// Hands the answer over to the poster, which may return at once.
    ///
    /// # Safety
    ///
    /// 1. As for [`Publications::answer`], which was called.
    #[inline]
    pub(crate) unsafe fn deliver(&self, slot: usize) {
        // Release: pairs with the Acquire in `collect_answer`.
        let release = ordering!(Release, "slot_relaxed_deliver");
        self.slots[slot].state.store(DONE, release);
    }

    /// Whether a request is posted; a hint.
    pub(crate) fn is_any_posted(&self) -> bool {
        // Relaxed, both: a hint.
        let high = self.high.load(Relaxed) as usize;
        self.slots[..high]
            .iter()
            .any(|slot| slot.state.load(Relaxed) == POSTED)
    }

    /// Gives all posted requests back, because the replica has left.
    ///
    /// # Safety
    ///
    /// 1. The caller holds the lock, and has no taken request.
    pub(crate) unsafe fn bounce(&self) {
        for slot in self.slots.iter() {
            // Acquire: pairs with the Release in `post`, and passes it on. Release: pairs with the
            // Acquire in `collect_answer`, so that the poster sees that the replica has left.
            if slot.state.load(Acquire) == POSTED {
                slot.state.store(BOUNCED, Release);
            }
        }
    }
}

/// Publications alone; see the models of the log.
#[cfg(test)]
mod models {
    use super::*;
    use corewise_atomic::sync::Arc;
    use corewise_atomic::{model, model_bounded, thread};

    type Doubling = Publications<Box<u64>, Box<u64>>;

    fn double(doubling: &Doubling, slot: usize, is_shared: bool, value: u64) -> u64 {
        let place = SlotAddress::new(0, slot, is_shared);
        let lead = |held: CombinerGuard<'_>, own: Option<Box<u64>>| {
            let mut taken = Vec::new();
            let accept = |slot, request| taken.push((slot, request));
            // SAFETY: `held` is the guard of the combiner's lock (1).
            unsafe { doubling.take(0, 2, accept) };
            for (slot, request) in taken {
                // SAFETY: the lock is held; taken above.
                unsafe { doubling.answer(slot, Box::new(*request * 2)) };
                // SAFETY: the lock is held; answered above.
                unsafe { doubling.deliver(slot) };
            }
            drop(held);
            own.map(|own| Ok(Box::new(*own * 2)))
        };
        let answer = doubling.execute(place, Box::new(value), false, lead);
        *answer.expect("no replica leaves")
    }

    #[test]
    fn each_request_gets_its_answer() {
        model_bounded(3, || {
            let doubling = Arc::new(Doubling::new(2));
            let other = doubling.clone();
            let doubled = thread::spawn(move || double(&other, 1, false, 1));
            assert_eq!(double(&doubling, 0, false, 2), 4);
            assert_eq!(doubled.join().unwrap(), 2);
        });
    }

    /// A wait leaves the unpark token that its thread had before. (In loom a yield drops the token,
    /// so the wait begins with parking.)
    #[test]
    fn a_wait_keeps_the_unpark_token() {
        model(|| {
            let lock = Arc::new(CombinerLock::new());
            let held = lock.try_lock().expect("no other thread");
            let shared = lock.clone();
            let waiting = thread::spawn(move || {
                thread::unpark(&thread::current());
                let mut wait = Wait::new();
                while !wait.is_long() {
                    wait.backoff.snooze();
                }
                while shared.try_lock().is_none() {
                    wait.pause(&shared);
                }
                drop(wait);
                // If the token is gone, the model ends as a deadlock.
                thread::park();
            });
            drop(held);
            waiting.join().unwrap();
        });
    }

    #[test]
    fn threads_share_a_slot() {
        model_bounded(2, || {
            let doubling = Arc::new(Doubling::new(1));
            // Held, so that both must post.
            let held = doubling.lock.lock();
            let others = [1, 2].map(|value| {
                let other = doubling.clone();
                thread::spawn(move || double(&other, 0, true, value))
            });
            drop(held);
            let doubled = others.map(|other| other.join().unwrap());
            assert_eq!(doubled, [2, 4]);
        });
    }
}
