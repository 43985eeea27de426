//! Domains, guards, and the operations of writers.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::time::Duration;

use corewise_atomic::barrier;
use corewise_atomic::lock::{Mutex, MutexGuard};
use corewise_atomic::mutant;
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::{AcqRel, Relaxed};
use corewise_atomic::sync::atomic::{AtomicU64, AtomicUsize};
use corewise_atomic::thread::{self, ThreadId};
use corewise_atomic::time::now_ns;
use corewise_atomic::{Backoff, Sleeps};

use crate::backlog::{Budget, Limits, Pressure, RetireList, default_weight};
use crate::deferred::{Deferred, is_reclaiming, reclaiming, run_all};
use crate::grace::{Cookie, Grace};
use crate::local;
use crate::reader::Reader;
use crate::registry::Registry;
use crate::stall::{self, Stall};

corewise_atomic::static_cell! {
    static GLOBAL: Domain = Domain::make("global", true, Builder::default());
    static NEXT_ID: AtomicU64 = const { AtomicU64::new(1) };
}

/// A set of readers and the writers that wait for them.
///
/// Readers of one domain do not hold up the grace periods of another. The [global](Domain::global)
/// domain has the cheapest guards. Cloning gives another handle to the same domain. Dropping the
/// last handle reclaims what is still deferred.
pub struct Domain {
    shared: Arc<DomainState>,
}

/// The state that the handles of a domain share.
pub(crate) struct DomainState {
    pub(crate) id: u64,
    pub(crate) is_global: bool,
    /// The number of [`Domain`] values; threads that were members share ownership without one.
    handles: AtomicUsize,
    name: String,
    stall_after: Duration,
    on_stall: Option<fn(&Stall)>,
    pub(crate) registry: Registry,
    pub(crate) grace: Grace,
    budget: Budget,
    /// Deferred by threads that have ended, or are about to.
    pub(crate) orphans: Mutex<RetireList<Deferred>>,
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

/// The backlog is over its hard limit; returns the object that was to be deferred.
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

/// Proof that its holder is in a read-side critical section for as long as the value lives.
///
/// # Safety
///
/// 1. A section of the domain with ID `domain_id` lasts while the value lives. The value cannot be
///    shared with another thread. It can be sent to one only if `is_bound_to_thread` returns false.
/// 2. `reader_index` is that of the record of the section, which the thread has, or an
///    [`OwnedGuard`](crate::OwnedGuard): no other thread and no other guard has the record at the
///    same time, and the next one to claim it sees all that this one did.
pub unsafe trait Section {
    /// The domain's ID, unique among the domains of this process.
    fn domain_id(&self) -> u64;
    /// The index of the section's record in the domain: below [`Domain::readers`], and exclusive to
    /// this thread until it ends, or to this guard until it is dropped. Data indexed by it needs no
    /// lock.
    fn reader_index(&self) -> usize;
    /// Whether the record is that of the calling thread, so that its next sections have the same
    /// index.
    #[inline(always)]
    fn is_bound_to_thread(&self) -> bool {
        true
    }
}

// SAFETY: the borrowed section lives longer, and a reference to a value that cannot be shared
// cannot be sent.
unsafe impl<S: Section> Section for &S {
    #[inline(always)]
    fn domain_id(&self) -> u64 {
        (**self).domain_id()
    }
    #[inline(always)]
    fn reader_index(&self) -> usize {
        (**self).reader_index()
    }
    #[inline(always)]
    fn is_bound_to_thread(&self) -> bool {
        (**self).is_bound_to_thread()
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
/// Wait-free; entering and leaving together take about two nanoseconds; see [`Domain::pin`].
///
/// # Panics
///
/// If the thread is in [`MAX_NESTED`](crate::MAX_NESTED) sections already.
#[inline(always)]
pub fn pin() -> Guard<'static> {
    match local::global() {
        // SAFETY: the record is at hand; records of the global domain live for ever.
        Some(reader) => unsafe { Guard::enter_at_hand(reader.as_ref()) },
        None => pin_global_first(),
    }
}

#[cold]
#[inline(never)]
fn pin_global_first() -> Guard<'static> {
    let reader = local::join(&global_domain().shared);
    // SAFETY: the thread owns the record, with which it has just joined (1). Records of the global
    // domain live for ever.
    unsafe { Guard::enter(&*reader) }
}

fn global_domain() -> &'static Domain {
    &GLOBAL
}

impl<'d> Guard<'d> {
    /// # Safety
    ///
    /// 1. The calling thread owns the record.
    #[inline]
    unsafe fn enter(reader: &'d Reader) -> Self {
        // SAFETY: the caller's thread owns the record, by the contract of this function.
        unsafe { reader.enter() };
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
        // SAFETY: the caller's thread has the record at hand, by the contract of this function.
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
    pub(crate) fn shared(&self) -> &'d DomainState {
        self.reader.shared()
    }
}

impl Drop for Guard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the guard entered the section on this thread, which it cannot leave, and what the
        // section protects borrows the guard.
        unsafe { self.reader.leave() };
    }
}

impl fmt::Debug for Guard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guard({})", self.shared().name)
    }
}

// SAFETY: the record belongs to the thread, and is in a section, from the guard's creation to its
// drop; `_not_send` keeps the guard on the thread. The registry hands records over with Release and
// Acquire.
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

/// Options of a new [`Domain`].
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
    on_stall: Option<fn(&Stall)>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            limits: Limits::DEFAULT,
            stall_after: Duration::from_secs(1),
            on_stall: None,
        }
    }
}

impl Builder {
    /// The limits of the backlog; 16 MiB and 1 GiB by default.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How long a reader may keep a grace period waiting before it is reported, and before callers
    /// over the soft limit continue without waiting further; one second by default.
    pub fn stall_after(mut self, after: Duration) -> Self {
        self.stall_after = after;
        self
    }

    /// The function that is called for each stall of this domain. A thread that waits for a grace
    /// period calls it, once in that grace period for each reader; it may use any domain, and a
    /// panic in it goes no further. By default it is the hook of the process, see
    /// [`set_stall_hook`](crate::set_stall_hook); if that is not set, stalls are not reported.
    pub fn on_stall(mut self, hook: fn(&Stall)) -> Self {
        self.on_stall = Some(hook);
        self
    }

    /// Creates the domain.
    pub fn build(self, name: &str) -> Domain {
        Domain::make(name, false, self)
    }
}

impl Clone for Domain {
    fn clone(&self) -> Self {
        // Relaxed: as in `Arc`; a thread that has a handle can pass others on in any order.
        self.shared.handles.fetch_add(1, Relaxed);
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl Drop for Domain {
    /// The last handle reclaims what is left: guards borrow a handle, so no guard exists.
    fn drop(&mut self) {
        // AcqRel: the last drop comes after everything done with other handles, the accesses of
        // sections included.
        if self.shared.handles.fetch_sub(1, AcqRel) == 1 {
            // SAFETY: this was the last handle, and guards borrow handles (1).
            unsafe { self.shared.reclaim_rest() };
        }
    }
}

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

impl Domain {
    /// Creates a new domain with default limits.
    pub fn new() -> Self {
        Builder::default().build("unnamed")
    }

    /// The domain that code uses unless it is given another.
    pub fn global() -> &'static Domain {
        global_domain()
    }

    fn make(name: &str, is_global: bool, builder: Builder) -> Self {
        barrier::prepare();
        let shared = DomainState {
            // Relaxed: an ID that publishes nothing.
            id: NEXT_ID.fetch_add(1, Relaxed),
            is_global,
            handles: AtomicUsize::new(1),
            name: name.to_owned(),
            stall_after: builder.stall_after,
            on_stall: builder.on_stall,
            registry: Registry::new(),
            grace: Grace::new(),
            budget: Budget::new(builder.limits),
            orphans: Mutex::new(RetireList::new()),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Enters a read-side critical section.
    ///
    /// Wait-free, except for the thread's first section, which claims a record (lock-free).
    ///
    /// # Panics
    ///
    /// If the thread is in [`MAX_NESTED`](crate::MAX_NESTED) sections of the domain already.
    #[inline(always)]
    pub fn pin(&self) -> Guard<'_> {
        match local::at_hand(&self.shared) {
            // SAFETY: the record is at hand; it belongs to this domain, which outlives the guard.
            Some(reader) => unsafe { Guard::enter_at_hand(reader.as_ref()) },
            None => self.pin_elsewhere(),
        }
    }

    #[cold]
    #[inline(never)]
    fn pin_elsewhere(&self) -> Guard<'_> {
        let reader = local::join(&self.shared);
        // SAFETY: the thread owns the record, with which it has just joined (1). The record lives
        // as long as the domain, which outlives the guard.
        unsafe { Guard::enter(&*reader) }
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Arc<DomainState> {
        &self.shared
    }

    /// Whether the calling thread is in a section of this domain.
    pub fn is_pinned(&self) -> bool {
        self.shared.is_pinned()
    }

    /// The domain's ID, as in [`Section::domain_id`].
    #[inline]
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// The name that the domain was built with.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The number of records: more than any [`Section::reader_index`] handed out so far.
    pub fn readers(&self) -> usize {
        self.shared.registry.len()
    }

    /// Waits until every section that was running has ended (*wait-for-readers*).
    ///
    /// Blocks for as long as the longest of them runs. If no section is running, it takes half a
    /// microsecond when the other threads sleep, and up to about 20 µs when they run.
    ///
    /// # Panics
    ///
    /// If the caller is in a section of this domain.
    pub fn synchronize(&self) {
        if let Err(pinned) = self.try_synchronize() {
            panic!("synchronize: {pinned}");
        }
    }

    /// Like [`Domain::synchronize`], but returns an error instead of panicking.
    ///
    /// # Errors
    ///
    /// [`Pinned`], at once, if the caller is in a section of this domain.
    pub fn try_synchronize(&self) -> Result<(), Pinned> {
        self.shared.synchronize()
    }

    /// Like [`Domain::try_synchronize`], but gives up after `timeout`: true if the grace period was
    /// complete by then. For callers that a reader might be waiting for.
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

    /// Returns a cookie for the grace period that everything unlinked before the call must wait
    /// for. Wait-free, one fence.
    pub fn start_poll(&self) -> Cookie {
        self.shared.grace.cookie()
    }

    /// Advances grace periods as far as possible without waiting; true if the cookie's grace period
    /// is complete. Lock-free; beginning a grace period costs a system call.
    pub fn poll(&self, cookie: Cookie) -> bool {
        self.shared.advance(cookie)
    }

    /// Like [`Domain::poll`], but reports no stalls: for callers that hold a lock or a borrow that
    /// the callback of [`Builder::on_stall`] might need too.
    pub fn poll_quietly(&self, cookie: Cookie) -> bool {
        self.shared.advance_quietly(cookie)
    }

    /// Whether the cookie's grace period is complete; advances nothing. One load.
    #[inline]
    pub fn is_complete(&self, cookie: Cookie) -> bool {
        self.shared.grace.is_complete(cookie)
    }

    /// Runs `reclaim` once all sections that are running now have ended, during a later call to
    /// `defer` or [`Domain::barrier`], on the thread that makes that call.
    ///
    /// A thread closes its batch of deferred closures when they have [`RetireList::BATCH_BYTES`],
    /// or when there are [`RetireList::BATCH`]. Each time it also closes the batch of one other
    /// thread, of each in turn, and runs what no longer waits of both. So what a thread has
    /// deferred is run by others if that thread ends or does nothing.
    ///
    /// `bytes` is the amount of memory that `reclaim` will free. Over the soft limit, a caller
    /// outside all sections waits for a grace period and reclaims, as long as no reader
    /// [stalls](Builder::stall_after); a caller inside a section learns of it from the returned
    /// [`Pressure`].
    ///
    /// What a closure defers runs in a later call, so a closure may defer itself again.
    ///
    /// A panic in `reclaim` is reported by the panic hook and goes no further. `reclaim` may use
    /// the domain, and defer more; it must not wait for the thread that it happens to run on.
    ///
    /// The captures of `reclaim` are moved now. So `reclaim` must not capture a `Box`, or another
    /// type that asserts exclusive access to its contents, of an object that readers may still use:
    /// capture the pointer, or use [`Domain::defer_drop`].
    pub fn defer(&self, bytes: usize, reclaim: impl FnOnce() + Send + 'static) -> Pressure {
        self.push(Deferred::call(reclaim), bytes)
    }

    /// Like [`Domain::defer`], to drop a boxed object that readers may still use. It weighs
    /// [`default_weight`].
    ///
    /// It takes a pointer because a `Box` asserts exclusive access to its contents: turning the
    /// pointer back into a box, or moving a box, is undefined behaviour while readers have
    /// references.
    ///
    /// ```
    /// use std::ptr::NonNull;
    ///
    /// let domain = corewise_rcu::Domain::new();
    /// let object = NonNull::from(Box::leak(Box::new(7)));
    /// let guard = domain.pin();
    /// // SAFETY: the object is freed after our section, which began before.
    /// let reference = unsafe { object.as_ref() };
    /// // SAFETY: from a box; no new section finds it, and it is deferred once.
    /// unsafe { domain.defer_drop(object) };
    /// assert_eq!(*reference, 7);
    /// drop(guard);
    /// domain.barrier();
    /// ```
    ///
    /// # Safety
    ///
    /// 1. `object` comes from [`Box::into_raw`] or [`Box::leak`], and nothing else frees it.
    /// 2. Sections of this domain that begin after the call cannot reach it, and no code uses it
    ///    outside a section of this domain.
    pub unsafe fn defer_drop<T: Send + 'static>(&self, object: NonNull<T>) -> Pressure {
        // SAFETY: the object comes from a box that nothing else frees, by 1. It is dropped after a
        // grace period, when no thread uses it, by 2.
        let deferred = unsafe { Deferred::drop_box(object) };
        self.push(deferred, default_weight::<T>())
    }

    fn push(&self, deferred: Deferred, bytes: usize) -> Pressure {
        self.with_retire_list(|retire_list| self.shared.defer(retire_list, deferred, bytes))
    }

    /// Calls `f` with the list where the calling thread retires.
    fn with_retire_list<R>(&self, f: impl FnOnce(&Mutex<RetireList<Deferred>>) -> R) -> R {
        match local::record(&self.shared) {
            // SAFETY: the record is one of this domain, which frees it at its own end.
            Some(reader) => f(unsafe { &(*reader).retire_list }),
            None => f(&self.shared.orphans),
        }
    }

    /// Like [`Domain::defer_drop`], but reclaims at once what is ready: the object too, if no
    /// reader is in a section. For objects that are few, and whose size says little about what they
    /// own.
    ///
    /// # Safety
    ///
    /// 1. and 2. of [`Domain::defer_drop`].
    pub(crate) unsafe fn drop_soon<T: Send + 'static>(
        &self,
        object: NonNull<T>,
        bytes: usize,
    ) -> Pressure {
        // SAFETY: the object comes from a box that nothing else frees, by 1. It is dropped after a
        // grace period, when no thread uses it, by 2.
        let deferred = unsafe { Deferred::drop_box(object) };
        self.with_retire_list(|retire_list| {
            retire_list.lock().push(deferred, bytes);
            self.shared.batch_is_full(retire_list);
        });
        self.shared.budget.pressure()
    }

    /// Waits for the cookie's grace period.
    ///
    /// # Errors
    ///
    /// [`Pinned`], at once, if the caller is in a section of this domain.
    pub(crate) fn wait_for(&self, cookie: Cookie) -> Result<(), Pinned> {
        if self.is_pinned() {
            return Err(Pinned);
        }
        self.shared.wait(cookie, NEVER);
        Ok(())
    }

    /// Makes room for one more object if the backlog is over its hard limit; false if that fails.
    pub(crate) fn has_room(&self) -> bool {
        self.shared.budget.pressure() != Pressure::OverHard || self.shared.relieve()
    }

    /// Like [`Domain::defer_drop`], but fails if the backlog is over its hard limit.
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
        if !self.has_room() {
            return Err(BacklogFull(object));
        }
        // SAFETY: the contract of `defer_drop` is the one of this function.
        Ok(unsafe { self.defer_drop(object) })
    }

    /// Waits until all that any thread deferred before the call has been reclaimed. (Other threads
    /// may still be running the last deferred closures.)
    ///
    /// What a structure keeps itself until readers have left, such as the removed entries of a
    /// `RelativisticMap` of `corewise-maps`, is not deferred: the map's `settle` drops it.
    ///
    /// # Panics
    ///
    /// If the caller is in a section of this domain.
    pub fn barrier(&self) {
        if let Err(pinned) = self.shared.barrier() {
            panic!("barrier: {pinned}");
        }
    }

    /// Bytes deferred and not yet reclaimed. Linear in the number of records.
    pub fn backlog_bytes(&self) -> usize {
        let lists = self.shared.retire_lists();
        let open = lists.map(|retire_list| retire_list.lock().open_bytes());
        open.fold(self.shared.budget.bytes(), usize::saturating_add)
    }

    /// How full the backlog is. Linear in the number of records.
    ///
    /// The [`Pressure`] that other calls return does not count open batches, which have 64 KiB each
    /// at most, or one object that is larger.
    pub fn pressure(&self) -> Pressure {
        let limits = self.shared.budget.limits();
        limits.pressure(self.backlog_bytes())
    }

    /// The readers that have kept the current grace period waiting for longer than
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

impl DomainState {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

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
    /// A record that another thread has just entered cannot still name this thread as its owner: a
    /// thread writes the owner, under the lock, before it enters the record, and this function
    /// reads the nesting before the owner.
    #[cold]
    pub(crate) fn entered_reader_of(&self, thread: ThreadId) -> Option<&Reader> {
        let is_its = |reader: &&Reader| {
            let is_owner = || reader.owner.lock().thread == Some(thread);
            reader.nesting() > 0 && (mutant!("record_of_another") || is_owner())
        };
        self.registry.iter().find(is_its)
    }

    /// Whether no handle is left.
    pub(crate) fn is_abandoned(&self) -> bool {
        // Relaxed: the caller only gives up its membership.
        self.handles.load(Relaxed) == 0
    }

    /// The record that the calling thread already has.
    fn own_reader(&self) -> Option<&Reader> {
        let reader = match local::at_hand(self) {
            Some(reader) => reader.as_ptr(),
            None => local::find(self)?,
        };
        // SAFETY: the record is one of this domain, which frees it at its own end.
        Some(unsafe { &*reader })
    }

    /// As [`DomainState::advance`], but reports no stalls.
    fn advance_quietly(&self, cookie: Cookie) -> bool {
        // SAFETY: the registry is that of this domain, to which `grace` belongs, and both are freed
        // with it (1).
        unsafe { self.grace.advance(&self.registry, cookie) }
    }

    fn advance(&self, cookie: Cookie) -> bool {
        let done = self.advance_quietly(cookie);
        if !done {
            self.report_stalls();
        }
        done
    }

    fn report_stalls(&self) {
        let stalls = self.grace.stalls(&self.name, self.stall_after, true);
        for stall in &stalls {
            stall::report(self.on_stall, stall);
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
        let mut backoff = Backoff::new();
        while !self.advance(cookie) && now_ns() < deadline_ns {
            backoff.snooze_or_sleep(&SLEEPS);
        }
    }

    fn defer(
        &self,
        retire_list: &Mutex<RetireList<Deferred>>,
        deferred: Deferred,
        bytes: usize,
    ) -> Pressure {
        if retire_list.lock().push(deferred, bytes) {
            self.batch_is_full(retire_list);
        }
        self.budget.pressure()
    }

    fn batch_is_full(&self, retire_list: &Mutex<RetireList<Deferred>>) {
        self.close(retire_list);
        // Otherwise, a chain of objects that defer each other would recurse through the calling
        // loop.
        if !is_reclaiming(self.address()) {
            self.reclaim_ready(retire_list);
            self.reclaim_ready(&self.orphans);
            self.reclaim_of_another(retire_list);
            self.report_stalls();
            self.relieve_if_needed();
        }
    }

    /// Reclaims what the owner of another record has deferred, because that thread may be idle.
    /// Calls take the records in turn.
    fn reclaim_of_another(&self, own: &Mutex<RetireList<Deferred>>) {
        let Some(reader) = self.registry.next_in_turn() else {
            return;
        };
        let theirs = &reader.retire_list;
        // If it is locked, its owner is using it, and so is not idle.
        let is_empty = |list: MutexGuard<'_, RetireList<_>>| list.is_empty();
        let has_some = !std::ptr::eq(theirs, own) && !theirs.try_lock().is_none_or(is_empty);
        if has_some && !mutant!("visits_nobody") {
            self.close(theirs);
            self.reclaim_ready(theirs);
        }
    }

    fn close(&self, retire_list: &Mutex<RetireList<Deferred>>) {
        let mut retire_list = retire_list.lock();
        if retire_list.has_open() {
            retire_list.close(self.grace.cookie(), &self.budget);
        }
    }

    /// Reclaims the batches that are ready; the retire list is not borrowed meanwhile.
    ///
    /// A closure may defer itself again, so the loop must not wait until the list is empty. It ends
    /// at the newest batch that it finds at the start: each later batch has a larger cookie than
    /// the one that was just reclaimed, so its cookie passes `newest` after a few rounds.
    fn reclaim_ready(&self, retire_list: &Mutex<RetireList<Deferred>>) {
        let newest = retire_list.lock().newest();
        reclaiming(self.address(), || {
            while let Some(mut batch) = self.take_ready(retire_list, newest) {
                run_all(&mut batch);
                retire_list.lock().recycle(batch);
            }
        });
    }

    /// The oldest batch, if it is ready and its cookie is not beyond `newest`.
    fn take_ready(
        &self,
        retire_list: &Mutex<RetireList<Deferred>>,
        newest: Option<Cookie>,
    ) -> Option<Vec<Deferred>> {
        // Reports no stalls: the callback may defer something itself.
        let advance = |cookie| Some(cookie) <= newest && self.advance_quietly(cookie);
        retire_list.lock().take_ready(&self.budget, advance)
    }

    fn relieve_if_needed(&self) {
        if self.budget.pressure() != Pressure::Fine {
            self.relieve();
        }
    }

    /// Waits for a grace period and reclaims, unless the caller would wait for itself; true if the
    /// backlog is now at or below its hard limit.
    ///
    /// It waits no longer than the time after which a reader counts as stalled: such a reader may
    /// be waiting for the caller.
    fn relieve(&self) -> bool {
        let is_stalled = || {
            let stalls = self.grace.stalls(&self.name, self.stall_after, false);
            !stalls.is_empty()
        };
        if !self.is_pinned() && !is_reclaiming(self.address()) && !is_stalled() {
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
            self.retire_lists()
                .for_each(|retire_list| self.close(retire_list));
        }
        self.wait(self.grace.cookie(), deadline_ns);
        self.retire_lists()
            .for_each(|retire_list| self.reclaim_ready(retire_list));
    }

    /// Reclaims everything. Nothing needs to wait.
    ///
    /// # Safety
    ///
    /// 1. No handle is left, and so no guard.
    unsafe fn reclaim_rest(&self) {
        for retire_list in self.retire_lists() {
            let mut rest = retire_list.lock().take_all(&self.budget);
            run_all(&mut rest);
        }
    }

    /// The retire lists of all records, then the orphans.
    fn retire_lists(&self) -> impl Iterator<Item = &Mutex<RetireList<Deferred>>> {
        let readers = self.registry.iter().map(|reader| &reader.retire_list);
        readers.chain([&self.orphans])
    }

    /// Takes a record back from a thread that no longer needs it.
    ///
    /// # Safety
    ///
    /// 1. It is a record of this domain, which the calling thread owns and no longer uses.
    /// 2. The thread is in no section of it and has none paused.
    pub(crate) unsafe fn give_back(&self, reader: &Reader) {
        self.close(&reader.retire_list);
        self.orphans.lock().adopt(&mut reader.retire_list.lock());
        // SAFETY: the thread owns the record, no longer uses it, and is in no section of it,
        // running or paused, by the contract of this function.
        unsafe { self.registry.release(reader) };
    }
}

impl Drop for DomainState {
    fn drop(&mut self) {
        // SAFETY: every handle shares ownership of this value, so none is left (1).
        unsafe { self.reclaim_rest() };
    }
}

/// A deadline that never passes.
const NEVER: u64 = u64::MAX;

/// How a thread sleeps while it waits for readers.
const SLEEPS: Sleeps = Sleeps {
    after_rounds: 20,
    shortest: Duration::from_micros(100),
    longest: Duration::from_micros(1_600),
};

fn saturating_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}
