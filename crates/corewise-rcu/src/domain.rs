//! Domains, guards, and what writers call.

use std::fmt;
use std::io::Write as _;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::time::Duration;

use corewise_atomic::barrier;
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
use corewise_atomic::hint;
use corewise_atomic::lock::Mutex;
use corewise_atomic::mutant;
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::{AcqRel, Relaxed};
use corewise_atomic::sync::atomic::{AtomicU64, AtomicUsize};
use corewise_atomic::thread::{self, ThreadId};
use corewise_atomic::time::now_ns;

use crate::backlog::{Budget, Limbo, Limits, Pressure};
use crate::deferred::{Deferred, is_reclaiming, reclaiming, run_all};
use crate::fork;
use crate::grace::{Cookie, Grace, Stall};
use crate::local;
use crate::qsbr::Qsbr;
use crate::reader::Reader;
use crate::registry::Registry;

corewise_atomic::static_cell! {
    static GLOBAL: Domain = Domain::make("global", true, Builder::default());
    static NEXT_ID: AtomicU64 = const { AtomicU64::new(1) };
}

/// A set of readers and the writers that wait for them.
///
/// Readers of one domain do not hold up the grace periods of another. There is a
/// [global](Domain::global) one, whose guards are the cheapest. Cloning gives another handle of
/// the same domain. The last handle to be dropped reclaims what is still deferred.
pub struct Domain {
    shared: Arc<Shared>,
}

/// What the handles of a domain share.
pub(crate) struct Shared {
    pub(crate) id: u64,
    pub(crate) is_global: bool,
    /// The values of type [`Domain`]; threads that were members share ownership without one.
    handles: AtomicUsize,
    name: String,
    stall_after: Duration,
    on_stall: fn(&Stall),
    pub(crate) registry: Registry,
    pub(crate) grace: Grace,
    budget: Budget,
    /// Deferred by threads that have ended, or are about to.
    pub(crate) orphans: Mutex<Limbo<Deferred>>,
}

/// The caller is in a read-side critical section and would wait for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pinned;

impl fmt::Display for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the calling thread is in a read-side critical section of this domain")
    }
}

impl std::error::Error for Pinned {}

/// The backlog is over its hard limit; what was to be deferred comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BacklogFull<T>(pub T);

impl<T> fmt::Debug for BacklogFull<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BacklogFull(..)")
    }
}

impl<T> fmt::Display for BacklogFull<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too much memory is waiting for readers to leave their sections")
    }
}

impl<T> std::error::Error for BacklogFull<T> {}

/// Proof that the calling thread is in a read-side critical section for as long as the value lives.
///
/// # Safety
///
/// 1. The thread is in a section of the domain called `domain_id` while the value lives, and the
///    value can neither be sent to another thread nor shared with one.
/// 2. `reader_index` is that of the thread's record: no other thread has it at the same time, and
///    the next one to get it sees all that this one did.
pub unsafe trait Section {
    /// The domain's number, different for each domain of this process.
    fn domain_id(&self) -> u64;
    /// The place of the thread's record in the domain: below [`Domain::readers`], and this
    /// thread's alone until it ends. Data indexed by it needs no lock.
    fn reader_index(&self) -> usize;
}

// SAFETY: what is borrowed lives longer, and a reference to what cannot be shared cannot be sent.
unsafe impl<S: Section> Section for &S {
    #[inline(always)]
    fn domain_id(&self) -> u64 {
        (**self).domain_id()
    }
    #[inline(always)]
    fn reader_index(&self) -> usize {
        (**self).reader_index()
    }
}

/// A read-side critical section, until dropped. Belongs to its thread: it is not `Send`.
#[must_use = "the section ends when the guard is dropped"]
pub struct Guard<'d> {
    reader: &'d Reader,
    _not_send: PhantomData<*mut ()>,
}

/// Enters a read-side critical section of the global domain.
///
/// Wait-free, two nanoseconds or so together with leaving; see [`Domain::pin`].
///
/// # Panics
///
/// Beyond [`MAX_NESTED`](crate::MAX_NESTED) sections at a time.
#[inline(always)]
pub fn pin() -> Guard<'static> {
    match local::global() {
        // SAFETY: at hand; records of the global domain live for ever.
        Some(reader) => unsafe { Guard::enter_at_hand(reader.as_ref()) },
        None => pin_global_first(),
    }
}

#[cold]
#[inline(never)]
fn pin_global_first() -> Guard<'static> {
    let reader = local::join(&global_domain().shared);
    // SAFETY: as in `pin`.
    Guard::enter(unsafe { &*reader })
}

fn global_domain() -> &'static Domain {
    &GLOBAL
}

impl<'d> Guard<'d> {
    #[inline]
    fn enter(reader: &'d Reader) -> Self {
        reader.enter();
        Self {
            reader,
            _not_send: PhantomData,
        }
    }

    /// # Safety
    ///
    /// 1. The calling thread has the record at hand.
    #[inline(always)]
    unsafe fn enter_at_hand(reader: &'d Reader) -> Self {
        // SAFETY: 1.
        unsafe { reader.enter_at_hand() };
        Self {
            reader,
            _not_send: PhantomData,
        }
    }

    #[inline(always)]
    pub(crate) fn reader(&self) -> &'d Reader {
        self.reader
    }

    #[inline(always)]
    pub(crate) fn shared(&self) -> &'d Shared {
        self.reader.shared()
    }
}

impl Drop for Guard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.reader.leave();
    }
}

impl fmt::Debug for Guard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guard({})", self.shared().name)
    }
}

// SAFETY: the record is the thread's from the guard's making to its dropping, and in a section;
// `_not_send` keeps the guard there. The registry hands records over with Release and Acquire.
unsafe impl Section for Guard<'_> {
    #[inline(always)]
    fn domain_id(&self) -> u64 {
        self.shared().id
    }
    #[inline(always)]
    fn reader_index(&self) -> usize {
        self.reader.index
    }
}

/// How a [`Domain`] is to be.
///
/// ```
/// use corewise_rcu::{Builder, Limits};
/// let domain = Builder::default()
///     .limits(Limits { soft: 1 << 20, hard: 1 << 24 })
///     .on_stall(|stall| eprintln!("{stall}"))
///     .build("sessions");
/// assert_eq!(domain.name(), "sessions");
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    limits: Limits,
    stall_after: Duration,
    on_stall: fn(&Stall),
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            limits: Limits::DEFAULT,
            stall_after: Duration::from_secs(1),
            on_stall: print_stall,
        }
    }
}

fn print_stall(stall: &Stall) {
    // Not eprintln, which panics when there is nobody to read.
    let _ = writeln!(std::io::stderr(), "corewise-rcu: {stall}");
}

impl Builder {
    /// The limits of what is deferred; 16 MiB and 1 GiB if not set.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How long a reader may keep a grace period waiting before it is reported, and before callers
    /// over the soft limit go on without; one second if not set.
    pub fn stall_after(mut self, after: Duration) -> Self {
        self.stall_after = after;
        self
    }

    /// Whom to tell, once in a grace period, on the thread that waits for it; a line to standard
    /// error if not set.
    pub fn on_stall(mut self, tell: fn(&Stall)) -> Self {
        self.on_stall = tell;
        self
    }

    /// The domain.
    pub fn build(self, name: &str) -> Domain {
        Domain::make(name, false, self)
    }
}

impl Clone for Domain {
    fn clone(&self) -> Self {
        // Relaxed: as `Arc` does it; who has a handle can tell others of it in any order.
        self.shared.handles.fetch_add(1, Relaxed);
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl Drop for Domain {
    /// The last handle reclaims what is left: guards borrow a handle, so there are none.
    fn drop(&mut self) {
        // AcqRel: the last drop is after all that was done with other handles, the accesses of
        // sections included.
        if self.shared.handles.fetch_sub(1, AcqRel) == 1 {
            self.shared.reclaim_rest();
        }
    }
}

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

impl Domain {
    /// A domain of its own, with default limits.
    pub fn new() -> Self {
        Builder::default().build("unnamed")
    }

    /// The domain that everything uses unless told otherwise.
    pub fn global() -> &'static Domain {
        global_domain()
    }

    fn make(name: &str, is_global: bool, builder: Builder) -> Self {
        barrier::prepare();
        let shared = Shared {
            // Relaxed: a number that publishes nothing.
            id: NEXT_ID.fetch_add(1, Relaxed),
            is_global,
            handles: AtomicUsize::new(1),
            name: name.to_owned(),
            stall_after: builder.stall_after,
            on_stall: builder.on_stall,
            registry: Registry::new(),
            grace: Grace::new(),
            budget: Budget::new(builder.limits),
            orphans: Mutex::new(Limbo::new()),
        };
        let shared = Arc::new(shared);
        fork::remember(&shared);
        Self { shared }
    }

    /// Enters a read-side critical section.
    ///
    /// Wait-free but for the thread's first one, which claims a record (lock-free).
    ///
    /// # Panics
    ///
    /// Beyond [`MAX_NESTED`](crate::MAX_NESTED) sections at a time.
    #[inline(always)]
    pub fn pin(&self) -> Guard<'_> {
        match local::at_hand(&self.shared) {
            // SAFETY: at hand; a record of this domain, which outlives the guard.
            Some(reader) => unsafe { Guard::enter_at_hand(reader.as_ref()) },
            None => self.pin_elsewhere(),
        }
    }

    #[cold]
    #[inline(never)]
    fn pin_elsewhere(&self) -> Guard<'_> {
        let reader = local::join(&self.shared);
        // SAFETY: a record of this domain, which outlives the guard; it is this thread's.
        Guard::enter(unsafe { &*reader })
    }

    /// Makes the calling thread one that announces quiescent states.
    pub fn qsbr(&self) -> Qsbr<'_> {
        Qsbr::new(self.pin())
    }

    /// Whether the calling thread is in a section of this domain.
    pub fn is_pinned(&self) -> bool {
        self.shared.is_pinned()
    }

    /// The domain's number, as [`Section::domain_id`] has it.
    #[inline]
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// The name it was built with.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The number of records: more than any [`Section::reader_index`] handed out so far.
    pub fn readers(&self) -> usize {
        self.shared.registry.len()
    }

    /// Waits until every section that was running has ended (*wait-for-readers*).
    ///
    /// Blocks for as long as the longest of them. If there is none: half a microsecond beside threads
    /// that sleep, up to some 20 µs beside threads that run.
    ///
    /// # Panics
    ///
    /// If the caller is in a section of this domain.
    pub fn synchronize(&self) {
        if let Err(pinned) = self.try_synchronize() {
            panic!("synchronize: {pinned}");
        }
    }

    /// As [`Domain::synchronize`].
    ///
    /// # Errors
    ///
    /// [`Pinned`], at once, if the caller is in a section of this domain.
    pub fn try_synchronize(&self) -> Result<(), Pinned> {
        self.shared.synchronize()
    }

    /// As [`Domain::try_synchronize`], but gives up after `timeout`: true if the grace period was
    /// complete by then. For callers whom a reader might be waiting for.
    ///
    /// # Errors
    ///
    /// [`Pinned`], at once, if the caller is in a section of this domain.
    pub fn synchronize_timeout(&self, timeout: Duration) -> Result<bool, Pinned> {
        if self.is_pinned() {
            return Err(Pinned);
        }
        let cookie = self.start_poll();
        let deadline = now_ns().saturating_add(saturating_ns(timeout));
        self.shared.wait(cookie, deadline);
        Ok(self.is_complete(cookie))
    }

    /// The grace period that whatever was unlinked before now must wait for. Wait-free, one fence.
    pub fn start_poll(&self) -> Cookie {
        self.shared.grace.cookie()
    }

    /// Moves grace periods on, as far as that goes without waiting; true if the cookie's is
    /// complete. Lock-free; beginning one costs a system call.
    pub fn poll(&self, cookie: Cookie) -> bool {
        self.shared.advance(cookie)
    }

    /// As [`Domain::poll`], but tells nobody of stalls: for callers that hold a lock or have
    /// something borrowed, which whoever is told might want too.
    pub fn poll_quietly(&self, cookie: Cookie) -> bool {
        self.shared.grace.advance(&self.shared.registry, cookie)
    }

    /// Whether the cookie's grace period is complete, without moving anything on. One load.
    #[inline]
    pub fn is_complete(&self, cookie: Cookie) -> bool {
        self.shared.grace.is_complete(cookie)
    }

    /// Runs `reclaim` once all sections that are running now have ended: some time during a later
    /// `defer` or [`Domain::barrier`], on the thread that calls that.
    ///
    /// `bytes` is what waits for it. Over the soft limit a caller outside of sections waits for a
    /// grace period and reclaims, as long as no reader [stalls](Builder::stall_after); inside, the
    /// answer says so.
    ///
    /// What a closure defers runs in a later call, so that one may defer itself again.
    ///
    /// A panic in `reclaim` is reported by the panic hook and goes no further. `reclaim` may use the
    /// domain, and defer more; it must not wait for the thread that it happens to run on.
    ///
    /// What `reclaim` captures is moved now. So it must not capture a `Box`, or another type that
    /// asserts to be the only way to its contents, of something that readers may still use:
    /// capture the pointer, or use [`Domain::defer_drop`].
    pub fn defer(&self, bytes: usize, reclaim: impl FnOnce() + Send + 'static) -> Pressure {
        self.push(Deferred::call(reclaim), bytes)
    }

    /// As [`Domain::defer`], to drop a boxed object that readers may still use.
    ///
    /// It takes a pointer because a `Box` asserts that nobody else uses its contents: turning the
    /// pointer back into a box, or moving a box, is undefined behaviour while readers have
    /// references.
    ///
    /// ```
    /// use std::ptr::NonNull;
    ///
    /// let domain = corewise_rcu::Domain::new();
    /// let object = NonNull::from(Box::leak(Box::new(7)));
    /// let guard = domain.pin();
    /// // SAFETY: freed after our section.
    /// let reference = unsafe { object.as_ref() };
    /// // SAFETY: from a box; nobody finds it any more, and it is deferred once.
    /// unsafe { domain.defer_drop(object) };
    /// assert_eq!(*reference, 7);
    /// drop(guard);
    /// domain.barrier();
    /// ```
    ///
    /// # Safety
    ///
    /// 1. `object` comes from [`Box::into_raw`] or [`Box::leak`], and nothing else frees it.
    /// 2. Sections of this domain that begin after the call cannot reach it, and nobody uses it
    ///    outside of a section of this domain.
    pub unsafe fn defer_drop<T: Send + 'static>(&self, object: NonNull<T>) -> Pressure {
        // SAFETY: 1, and 2: it is dropped after a grace period.
        let deferred = unsafe { Deferred::drop_box(object) };
        self.push(deferred, size_of::<T>())
    }

    fn push(&self, deferred: Deferred, bytes: usize) -> Pressure {
        match local::record(&self.shared) {
            // SAFETY: a record of this domain.
            Some(reader) => self
                .shared
                .defer(unsafe { &(*reader).limbo }, deferred, bytes),
            None => self.shared.defer(&self.shared.orphans, deferred, bytes),
        }
    }

    /// As [`Domain::defer_drop`].
    ///
    /// # Errors
    ///
    /// [`BacklogFull`] with the object if the backlog is over its hard limit. The object must be
    /// linked again, or kept; readers may still use it.
    ///
    /// # Safety
    ///
    /// 1. and 2. of [`Domain::defer_drop`].
    pub unsafe fn try_defer_drop<T: Send + 'static>(
        &self,
        object: NonNull<T>,
    ) -> Result<Pressure, BacklogFull<NonNull<T>>> {
        if self.pressure() == Pressure::OverHard && !self.shared.relieve() {
            return Err(BacklogFull(object));
        }
        // SAFETY: 1 and 2.
        Ok(unsafe { self.defer_drop(object) })
    }

    /// Waits until all that was deferred before now, by any thread, has been reclaimed. (Other
    /// threads may still be at it with the last of it.)
    ///
    /// # Panics
    ///
    /// If the caller is in a section of this domain.
    pub fn barrier(&self) {
        if let Err(pinned) = self.shared.barrier() {
            panic!("barrier: {pinned}");
        }
    }

    /// Bytes deferred and not reclaimed, but for each thread's last few
    /// ([`Limbo::BATCH`] objects or [`Limbo::BATCH_BYTES`]).
    pub fn backlog_bytes(&self) -> usize {
        self.shared.budget.bytes()
    }

    /// How full the backlog is.
    pub fn pressure(&self) -> Pressure {
        self.shared.budget.pressure()
    }

    /// The readers that keep the grace period under way waiting for longer than
    /// [`Builder::stall_after`].
    pub fn stalls(&self) -> Vec<Stall> {
        let shared = &self.shared;
        shared.grace.stalls(&shared.name, shared.stall_after, false)
    }

    /// Grace periods completed so far.
    pub fn grace_periods(&self) -> u64 {
        self.shared.grace.completed()
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain")
            .field("name", &self.shared.name)
            .field("readers", &self.readers())
            .field("grace_periods", &self.grace_periods())
            .field("backlog_bytes", &self.backlog_bytes())
            .finish()
    }
}

impl Shared {
    fn address(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    fn is_pinned(&self) -> bool {
        let is_pinned = |reader: &Reader| reader.nesting() > 0;
        self.own_reader().is_some_and(is_pinned)
            || (local::are_gone() && self.entered_reader_of(thread::current().id()).is_some())
    }

    /// A record in which the calling thread, which is `thread`, has a section.
    ///
    /// A record that another thread has just entered cannot still name this one: a thread writes the
    /// owner, under the lock, before it enters the record; here the nesting is read before the owner.
    #[cold]
    pub(crate) fn entered_reader_of(&self, thread: ThreadId) -> Option<&Reader> {
        let is_its = |reader: &&Reader| {
            let is_owner = || reader.owner.lock().thread == Some(thread);
            reader.nesting() > 0 && (mutant!("record_of_another") || is_owner())
        };
        self.registry.iter().find(is_its)
    }

    /// Nobody has a handle any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        // Relaxed: nothing is done with it but to let go of it.
        self.handles.load(Relaxed) == 0
    }

    /// The record that the calling thread has already.
    fn own_reader(&self) -> Option<&Reader> {
        let reader = match local::at_hand(self) {
            Some(reader) => reader.as_ptr(),
            None => local::find(self)?,
        };
        // SAFETY: a record of this domain.
        Some(unsafe { &*reader })
    }

    fn advance(&self, cookie: Cookie) -> bool {
        let done = self.grace.advance(&self.registry, cookie);
        if !done {
            self.report_stalls();
        }
        done
    }

    fn report_stalls(&self) {
        let stalls = self.grace.stalls(&self.name, self.stall_after, true);
        for stall in &stalls {
            (self.on_stall)(stall);
        }
    }

    pub(crate) fn synchronize(&self) -> Result<(), Pinned> {
        if self.is_pinned() {
            return Err(Pinned);
        }
        self.wait(self.grace.cookie(), NEVER);
        Ok(())
    }

    fn wait(&self, cookie: Cookie, deadline_ns: u64) {
        let mut backoff = Backoff::default();
        while !self.advance(cookie) && now_ns() < deadline_ns {
            backoff.wait();
        }
    }

    fn defer(&self, limbo: &Mutex<Limbo<Deferred>>, deferred: Deferred, bytes: usize) -> Pressure {
        if limbo.lock().push(deferred, bytes) {
            self.batch_is_full(limbo);
        }
        self.budget.pressure()
    }

    fn batch_is_full(&self, limbo: &Mutex<Limbo<Deferred>>) {
        self.close(limbo);
        // Otherwise the loop that we are called from would need stack for each of a chain.
        if !is_reclaiming(self.address()) {
            self.reclaim_ready(limbo);
            self.reclaim_ready(&self.orphans);
            self.report_stalls();
            self.settle_if_needed();
        }
    }

    fn close(&self, limbo: &Mutex<Limbo<Deferred>>) {
        let mut limbo = limbo.lock();
        if limbo.has_open() {
            limbo.close(self.grace.cookie(), &self.budget);
        }
    }

    /// Reclaims what waits no longer; the limbo is not borrowed meanwhile.
    ///
    /// A closure may defer itself again, so the loop must not wait until the limbo is empty. It ends
    /// at the newest batch that it finds at the start: each later batch has a larger cookie than the
    /// one that was just reclaimed, so its cookie passes `newest` after a few rounds.
    fn reclaim_ready(&self, limbo: &Mutex<Limbo<Deferred>>) {
        let newest = limbo.lock().newest();
        reclaiming(self.address(), || {
            while let Some(mut batch) = self.take_ready(limbo, newest) {
                run_all(&mut batch);
                limbo.lock().recycle(batch);
            }
        });
    }

    /// The oldest batch, if it is ready and its cookie not beyond `newest`.
    fn take_ready(
        &self,
        limbo: &Mutex<Limbo<Deferred>>,
        newest: Option<Cookie>,
    ) -> Option<Vec<Deferred>> {
        // Without a word about stalls: whoever is told may defer something himself.
        let advance = |cookie| Some(cookie) <= newest && self.grace.advance(&self.registry, cookie);
        limbo.lock().take_ready(&self.budget, advance)
    }

    fn settle_if_needed(&self) {
        if self.budget.pressure() != Pressure::Fine {
            self.relieve();
        }
    }

    /// Waits for a grace period and reclaims, unless the caller would wait for itself; whether the
    /// backlog is below its hard limit now.
    ///
    /// It waits for as long as a reader may stay before it counts as stalled, and no longer: such a
    /// reader may be waiting for the caller.
    fn relieve(&self) -> bool {
        if !self.is_pinned() && !is_reclaiming(self.address()) {
            let deadline = now_ns().saturating_add(saturating_ns(self.stall_after));
            self.reclaim_after_a_grace_period(deadline);
        }
        self.budget.pressure() != Pressure::OverHard
    }

    fn barrier(&self) -> Result<(), Pinned> {
        if self.is_pinned() {
            return Err(Pinned);
        }
        self.reclaim_after_a_grace_period(NEVER);
        Ok(())
    }

    fn reclaim_after_a_grace_period(&self, deadline_ns: u64) {
        if !mutant!("barrier_leaves_open") {
            self.limbos().for_each(|limbo| self.close(limbo));
        }
        self.wait(self.grace.cookie(), deadline_ns);
        self.limbos().for_each(|limbo| self.reclaim_ready(limbo));
    }

    /// Reclaims everything, when no handle is left and so no guard: nothing needs to wait.
    fn reclaim_rest(&self) {
        for limbo in self.limbos() {
            let mut rest = limbo.lock().take_all(&self.budget);
            run_all(&mut rest);
        }
    }

    /// Of the threads that are, then of those that were.
    fn limbos(&self) -> impl Iterator<Item = &Mutex<Limbo<Deferred>>> {
        let readers = self.registry.iter().map(|reader| &reader.limbo);
        readers.chain([&self.orphans])
    }

    /// Takes a record back from a thread that has no use for it any more.
    pub(crate) fn give_back(&self, reader: &Reader) {
        self.close(&reader.limbo);
        self.orphans.lock().adopt(&mut reader.limbo.lock());
        self.registry.release(reader);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.reclaim_rest();
        fork::forget(self);
    }
}

/// A deadline.
const NEVER: u64 = u64::MAX;

fn saturating_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}

/// Waiting for readers: first politely, then asleep.
#[derive(Default)]
struct Backoff {
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    rounds: u32,
}

impl Backoff {
    /// The checkers have no use for rounds: each would be a schedule more.
    #[cfg(any(corewise_loom, corewise_shuttle))]
    fn wait(&mut self) {
        thread::yield_now();
    }

    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    fn wait(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
        match self.rounds {
            ..=6 => (0..1 << self.rounds).for_each(|_| hint::spin_loop()),
            7..=20 => thread::yield_now(),
            rounds => {
                let micros = 50u64 << (rounds - 20).min(5);
                thread::sleep(Duration::from_micros(micros));
            }
        }
    }
}
