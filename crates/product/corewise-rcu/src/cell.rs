//! A cell with one value, which many threads read and few replace.
//!
//! 1. *One box for each value.* The cell holds the address of a box; it is null only in the middle
//!    of [`RcuCell::into_inner`]. A box is put into the cell once, when it is made, and never put
//!    back. So while a reference to a value lives, an equal address in the cell means that the
//!    value was in the cell all the time: compare-exchange has no ABA problem.
//! 2. *Publication.* A value is put into the cell with Release and found with Acquire.
//! 3. *One owner.* The exchange that takes an address out of the cell makes its caller the owner of
//!    the box: a [`Replaced`], which frees it or gives its value away after a grace period. The
//!    value in the cell is owned by the cell.
//! 4. *References.* A reference from [`RcuCell::within`] borrows the cell and a section of its
//!    domain. So `&mut RcuCell` and dropping the cell need not wait for readers of the value in the
//!    cell: there are none.
//! 5. *No section around a drop.* The cell drops no value inside a section that it enters itself.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};

use corewise_atomic::sync::atomic::AtomicPtr;
use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use corewise_atomic::{Backoff, mutant, ordering};

use crate::backlog::{Pressure, default_weight};
use crate::domain::{BacklogFull, Domain, Guard, Pinned, Section};
use crate::grace::Cookie;

/// Bytes that a replaced value takes in the backlog beside its own, rounded up: its batch, the
/// deferred drop, and the allocator's header.
const OVERHEAD: usize = 128;

/// A cell with one value of `T`, which many threads read and few replace.
///
/// Reading costs a section and a load: there is no reference count, no lock and no retry, and
/// readers on different CPUs share no cache line that anyone writes. A replaced value stays valid
/// for the readers that have found it, and is dropped after they have left their sections.
///
/// | | progress | cost |
/// |---|---|---|
/// | [`load`](Self::load), [`within`](Self::within), [`read`](Self::read) | wait-free | a section, see [`Domain::pin`], and a load |
/// | [`store`](Self::store), [`swap`](Self::swap) | lock-free, apart from waiting over the soft limit | a box; then a try to end a grace period: a system call |
/// | [`rcu`](Self::rcu) | the same; a retry means that another thread has replaced the value | a box for each try; then the same |
///
/// A replacement drops the values that readers have left: the value that it replaces too, if no
/// thread is in a section of the domain. A value that is still read is dropped by a later
/// replacement on the same thread, by some later one on any thread ([`Domain::defer`]), by
/// [`Domain::barrier`], or with the last handle of the domain. To drop a value at a certain time,
/// wait for it: `drop(cell.swap(new).into_inner())`.
///
/// So a replaced value may outlive the cell, and may be dropped by any thread that uses the domain:
/// to replace values, `T` must be `Send + 'static`. (A cell that is only read takes any `T`.) A
/// panic of such a drop is reported by the panic hook and goes no further.
///
/// Replaced values that wait for readers count in the domain's backlog, see
/// [`Limits`](crate::Limits), with their [`default_weight`] and 128 bytes.
/// Over the soft limit a replacement outside sections waits for readers, until one
/// [stalls](crate::Builder::stall_after); [`try_store`](Self::try_store) fails over the hard limit.
///
/// ```
/// use corewise_rcu::RcuCell;
///
/// let limits = RcuCell::new(vec![10, 20]);
/// std::thread::scope(|scope| {
///     scope.spawn(|| assert!(limits.read(|limits| limits.len()) >= 2));
///     scope.spawn(|| limits.rcu(|old| [old.as_slice(), &[30]].concat()));
/// });
/// assert_eq!(*limits.load(), [10, 20, 30]);
/// ```
pub struct RcuCell<T> {
    /// From a box; see 1 above. (Makes the type invariant in `T`.)
    value: AtomicPtr<T>,
    domain: Domain,
    _owned: PhantomData<T>,
}

// SAFETY: the owner of the cell owns its value: no other thread has a reference to it, by 4 above.
// Replaced values are `Send`, by the bounds of the methods that replace.
unsafe impl<T: Send> Send for RcuCell<T> {}
// SAFETY: threads that share the cell share references to its values, and take and drop values that
// others have put there.
unsafe impl<T: Send + Sync> Sync for RcuCell<T> {}

/// A section, and the value that a cell had when it began; returned by [`RcuCell::load`]. Or a part
/// of that value, by [`CellGuard::map`].
///
/// While it lives, nothing that is replaced or removed in the cell's domain is freed: keep it for
/// as long as a function runs, and not while it waits. It belongs to its thread.
#[must_use = "the section ends when the guard is dropped"]
pub struct CellGuard<'c, T: ?Sized> {
    /// Not a reference: it would assert that the value lives until a function that takes the guard
    /// returns.
    value: NonNull<T>,
    /// Keeps the value.
    guard: Guard<'c>,
    _value: PhantomData<&'c T>,
}

/// A part of the value of an [`RcuCell`], whatever that value is; made by [`RcuCell::map`].
pub struct MappedCell<'c, T, F> {
    cell: &'c RcuCell<T>,
    f: F,
}

/// A value that was taken out of an [`RcuCell`]; readers may still use it.
///
/// It gives a reference to the value at once, and the value itself after a grace period. Dropping
/// it hands the value to the cell's domain, which drops it after a grace period.
///
/// ```
/// use corewise_rcu::RcuCell;
/// let name = RcuCell::new(String::from("ada"));
/// let old = name.swap("grace".into());
/// assert_eq!(*old, "ada");
/// let old: String = old.into_inner();
/// ```
pub struct Replaced<'c, T: Send + 'static> {
    /// From a box that was taken out of a cell of the domain, and is owned by this value.
    value: NonNull<T>,
    domain: &'c Domain,
    /// Of a grace period that begins after the value was taken out.
    cookie: Cookie,
    _owned: PhantomData<T>,
}

// SAFETY: it owns the value, which readers on other threads may be using.
unsafe impl<T: Send + Sync> Send for Replaced<'_, T> {}
// SAFETY: a shared reference gives shared references to the value.
unsafe impl<T: Send + Sync> Sync for Replaced<'_, T> {}

impl<T> RcuCell<T> {
    /// Creates a cell whose readers use sections of the [global domain](Domain::global).
    pub fn new(value: T) -> Self {
        Self::in_domain(value, Domain::global().clone())
    }

    /// Creates a cell whose readers use sections of `domain`. A cell with its own domain does not
    /// wait for readers of other structures.
    pub fn in_domain(value: T, domain: Domain) -> Self {
        Self {
            value: AtomicPtr::new(Box::into_raw(Box::new(value))),
            domain,
            _owned: PhantomData,
        }
    }

    /// The domain whose sections protect readers.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Enters a section and returns a guard that dereferences to the value. Wait-free; see
    /// [`Domain::pin`].
    ///
    /// The guard shows the same value for as long as it lives, also if the value is replaced.
    ///
    /// # Panics
    ///
    /// As [`Domain::pin`].
    ///
    /// ```
    /// # use corewise_rcu::RcuCell;
    /// let cell = RcuCell::new((1, 2));
    /// let pair = cell.load();
    /// cell.store((3, 4));
    /// assert_eq!((pair.0, pair.1), (1, 2));
    /// ```
    #[inline(always)]
    pub fn load(&self) -> CellGuard<'_, T> {
        let guard = self.domain.pin();
        CellGuard {
            value: self.find(),
            guard,
            _value: PhantomData,
        }
    }

    /// Returns the value, in a section that the caller already has: a [`Guard`], or a
    /// [`QsbrGuard`](crate::QsbrGuard) of an event loop. One load, and the check of the section.
    ///
    /// # Panics
    ///
    /// If the section belongs to another domain than the cell.
    ///
    /// ```
    /// # use corewise_rcu::RcuCell;
    /// let (low, high) = (RcuCell::new(1), RcuCell::new(9));
    /// let guard = corewise_rcu::pin();
    /// assert!(low.within(&guard) < high.within(&guard));
    /// ```
    #[inline]
    pub fn within<'g, G: Section>(&'g self, section: &'g G) -> &'g T {
        assert_eq!(
            section.domain_id(),
            self.domain.id(),
            "the section is one of another domain"
        );
        // SAFETY: found in a section of the domain, which lasts as long as the reference; and the
        // reference borrows the cell.
        unsafe { self.find().as_ref() }
    }

    /// Calls `f` with the value, in a section. Wait-free apart from `f`.
    ///
    /// # Panics
    ///
    /// As [`Domain::pin`]. A panic of `f` leaves the section.
    #[inline]
    pub fn read<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        f(&self.load())
    }

    /// Returns a clone of the value, made in a section. In a cell with an [`Arc`](std::sync::Arc),
    /// this is one more owner of what it points to, which outlives the section.
    ///
    /// # Panics
    ///
    /// As [`Domain::pin`].
    ///
    /// ```
    /// # use corewise_rcu::RcuCell;
    /// use std::sync::Arc;
    /// let names = RcuCell::new(Arc::new(vec!["ada"]));
    /// let kept: Arc<Vec<&str>> = names.load_full(); // to keep, or to hold over an `.await`
    /// names.store(Arc::default());
    /// assert_eq!(*kept, ["ada"]);
    /// ```
    pub fn load_full(&self) -> T
    where
        T: Clone,
    {
        self.read(T::clone)
    }

    /// Returns a view of a part of the value, for code that is to read no more than that part. `f`
    /// finds the part in the value of the moment, each time that it is [loaded](MappedCell::load).
    ///
    /// ```
    /// # use corewise_rcu::RcuCell;
    /// struct Config {
    ///     port: u16,
    ///     root: String,
    /// }
    /// let config = RcuCell::new(Config { port: 80, root: "/srv".into() });
    /// let root = config.map(|config| config.root.as_str());
    /// assert_eq!(&*root.load(), "/srv");
    /// config.store(Config { port: 80, root: "/var".into() });
    /// assert_eq!(&*root.load(), "/var");
    /// # assert_eq!(config.load().port, 80);
    /// ```
    pub fn map<P: ?Sized, F: Fn(&T) -> &P>(&self, f: F) -> MappedCell<'_, T, F> {
        MappedCell { cell: self, f }
    }

    /// The value, without a section: no other thread uses the cell.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: by 4 above no reference to the value is left.
        unsafe { self.find_owned().as_mut() }
    }

    /// The value. Does not wait, even if others that were replaced still wait for readers.
    pub fn into_inner(mut self) -> T {
        let value = self.find_owned();
        // Relaxed: the cell is not shared.
        self.value.store(ptr::null_mut(), Relaxed);
        // SAFETY: from a box, which the cell no longer owns; by 4 above no reference is left.
        *unsafe { Box::from_raw(value.as_ptr()) }
    }

    /// The address of the value.
    #[inline(always)]
    fn find(&self) -> NonNull<T> {
        // Acquire: pairs with the Release in `exchange` and `compare_exchange`, see 2 above.
        let acquire = ordering!(Acquire, "relaxed_cell_load");
        // SAFETY: not null while the cell is shared, see 1 above.
        unsafe { NonNull::new_unchecked(self.value.load(acquire)) }
    }

    fn find_owned(&mut self) -> NonNull<T> {
        // Relaxed: the cell is not shared.
        // SAFETY: not null: only `into_inner`, which consumes the cell, stores null; see 1 above.
        unsafe { NonNull::new_unchecked(self.value.load(Relaxed)) }
    }
}

impl<T: Send + 'static> RcuCell<T> {
    /// Replaces the value, and drops the old one after a grace period; see the
    /// [type](RcuCell) for when and where.
    ///
    /// Inside a section of the domain it never waits. Outside sections it waits only while the
    /// domain's backlog is over its soft limit.
    pub fn store(&self, value: T) {
        let old = self.exchange(value);
        // SAFETY: the value was in this cell and was just taken out, so the caller owns it (1).
        unsafe { retire(&self.domain, old) };
    }

    /// Like [`RcuCell::store`], but fails if the backlog of the domain is over its hard limit.
    ///
    /// # Errors
    ///
    /// [`BacklogFull`] with the new value; the cell is unchanged.
    pub fn try_store(&self, value: T) -> Result<Pressure, BacklogFull<T>> {
        if !self.domain.has_room() {
            return Err(BacklogFull(value));
        }
        let old = self.exchange(value);
        // SAFETY: the value was in this cell and was just taken out, so the caller owns it (1).
        Ok(unsafe { retire(&self.domain, old) })
    }

    /// Replaces the value. The returned [`Replaced`] gives a reference to the old one, and the old
    /// one itself after a grace period.
    pub fn swap(&self, value: T) -> Replaced<'_, T> {
        let old = self.exchange(value);
        // SAFETY: the value was in this cell and was just taken out, so the caller owns it (1).
        unsafe { Replaced::new(old, &self.domain) }
    }

    /// Replaces the value by one made from it: calls `f` with the value, and again with the new
    /// value if another thread has replaced it meanwhile. Returns the value that was replaced, to
    /// which the last call of `f` was.
    ///
    /// `f` runs in a section and may use the cell, but if it replaces the value it is called again.
    ///
    /// # Panics
    ///
    /// As [`Domain::pin`]. If `f` panics, the cell is unchanged.
    ///
    /// ```
    /// # use corewise_rcu::RcuCell;
    /// let count = RcuCell::new(7);
    /// let old = count.rcu(|count| count + 1);
    /// assert_eq!((*old, count.load_full()), (7, 8));
    /// ```
    pub fn rcu(&self, mut f: impl FnMut(&T) -> T) -> Replaced<'_, T> {
        let replaced: Result<_, Never> = self.try_rcu(|value| Ok(f(value)));
        replaced.unwrap_or_else(|never| match never {})
    }

    /// Like [`RcuCell::rcu`], but `f` may decide against a replacement.
    ///
    /// # Errors
    ///
    /// The error of `f`; the cell is unchanged.
    pub fn try_rcu<E>(&self, mut f: impl FnMut(&T) -> Result<T, E>) -> Result<Replaced<'_, T>, E> {
        let mut backoff = Backoff::new();
        loop {
            let guard = self.load();
            let exchanged = self.compare_exchange(&guard, f(&guard)?);
            drop(guard);
            // A value that was not stored is dropped here, outside the section.
            match exchanged {
                Ok(replaced) => return Ok(replaced),
                Err(lost) => drop(lost),
            }
            backoff.spin();
        }
    }

    /// Replaces the value if it is still `current`: the same value, not an equal one. `current` is
    /// a reference from [`load`](Self::load), [`within`](Self::within) or the like.
    ///
    /// Values of a zero-sized type cannot be told apart: they are always replaced.
    ///
    /// # Errors
    ///
    /// The new value, if the cell has another value than `current`.
    ///
    /// ```
    /// # use corewise_rcu::RcuCell;
    /// let cell = RcuCell::new(String::from("a"));
    /// let seen = cell.load();
    /// assert!(cell.compare_exchange(&seen, "b".into()).is_ok());
    /// assert_eq!(cell.compare_exchange(&seen, "c".into()).unwrap_err(), "c");
    /// ```
    pub fn compare_exchange(&self, current: &T, value: T) -> Result<Replaced<'_, T>, T> {
        let new = Box::into_raw(Box::new(value));
        // By 1 above: `current` is alive, so no later value has its address.
        let current = ptr::from_ref(current).cast_mut();
        // Release: pairs with the Acquire in `find`. Relaxed otherwise: the caller found `current`
        // with Acquire.
        let release = ordering!(Release, "relaxed_cell_exchange");
        let exchanged = if mutant!("cell_exchanges_always") {
            Ok(self.value.swap(new, release))
        } else {
            self.value.compare_exchange(current, new, release, Relaxed)
        };
        match exchanged {
            // SAFETY: the value was in this cell and was just taken out, so the caller owns it. It
            // is not null while the cell is shared, see 1 above.
            Ok(old) => Ok(unsafe { Replaced::new(NonNull::new_unchecked(old), &self.domain) }),
            // SAFETY: from a box, and not in the cell.
            Err(_) => Err(*unsafe { Box::from_raw(new) }),
        }
    }

    /// Puts a value into the cell; the caller owns the returned one.
    fn exchange(&self, value: T) -> NonNull<T> {
        let new = Box::into_raw(Box::new(value));
        // AcqRel: pairs with the Acquire in `find`, and with itself: the caller uses the old value.
        let old = self.value.swap(new, ordering!(AcqRel, "relaxed_cell_swap"));
        // SAFETY: not null while the cell is shared, see 1 above.
        unsafe { NonNull::new_unchecked(old) }
    }
}

/// The error of a closure that returns none.
enum Never {}

/// Hands a value to the domain, which drops it after a grace period.
///
/// # Safety
///
/// 1. The caller owns the value, which was taken out of a cell of the domain.
unsafe fn retire<T: Send + 'static>(domain: &Domain, value: NonNull<T>) -> Pressure {
    if mutant!("cell_drops_at_once") {
        // SAFETY: none, which is the mistake.
        drop(unsafe { Box::from_raw(value.as_ptr()) });
        return Pressure::Fine;
    }
    let bytes = default_weight::<T>().saturating_add(OVERHEAD);
    // SAFETY: the value comes from a box, and the caller owns it, by 1. It is no longer in the
    // cell, so no later section finds it, and references to it borrow sections.
    unsafe { domain.drop_soon(value, bytes) }
}

impl<T> Drop for RcuCell<T> {
    fn drop(&mut self) {
        // Relaxed: the cell is not shared.
        let value = self.value.load(Relaxed);
        // Null after `into_inner`.
        if !value.is_null() {
            // SAFETY: from a box that the cell owns; by 4 above no reference is left.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

impl<T: Default> Default for RcuCell<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for RcuCell<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: fmt::Debug> fmt::Debug for RcuCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RcuCell").field(&*self.load()).finish()
    }
}

impl<T, F> MappedCell<'_, T, F> {
    /// Enters a section and returns a guard that dereferences to the part; see [`RcuCell::load`].
    /// Wait-free apart from the closure that finds the part, which runs in the section.
    ///
    /// # Panics
    ///
    /// As [`Domain::pin`].
    pub fn load<P: ?Sized>(&self) -> CellGuard<'_, P>
    where
        F: Fn(&T) -> &P,
    {
        CellGuard::map(self.cell.load(), &self.f)
    }
}

impl<'c, T: ?Sized> CellGuard<'c, T> {
    /// Narrows a guard to a part of its value. The whole value is kept.
    ///
    /// An associated function, called as `CellGuard::map(guard, ..)`: a method would hide one of
    /// the value.
    ///
    /// ```
    /// use corewise_rcu::{CellGuard, RcuCell};
    /// let cell = RcuCell::new((1, String::from("one")));
    /// let name: CellGuard<str> = CellGuard::map(cell.load(), |pair| pair.1.as_str());
    /// assert_eq!(&*name, "one");
    /// ```
    pub fn map<P: ?Sized>(guard: Self, f: impl FnOnce(&T) -> &P) -> CellGuard<'c, P> {
        // `f` accepts every lifetime, so what it returns lives as long as the value, which the
        // section keeps.
        let value = NonNull::from(f(&guard));
        CellGuard {
            value,
            guard: guard.guard,
            _value: PhantomData,
        }
    }
}

impl<T: ?Sized> Deref for CellGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: found in the section of the guard, which lives longer than the reference.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for CellGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for CellGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

impl<'c, T: Send + 'static> Replaced<'c, T> {
    /// # Safety
    ///
    /// 1. The caller owns the value, which was taken out of a cell of the domain, and gives it up.
    unsafe fn new(value: NonNull<T>, domain: &'c Domain) -> Self {
        Self {
            value,
            domain,
            cookie: domain.start_poll(),
            _owned: PhantomData,
        }
    }

    /// Waits until no reader uses the value, and returns it. Blocks for as long as the longest
    /// section that was running when the value was replaced; see [`Domain::synchronize`].
    ///
    /// A guard that was passed to [`std::mem::forget`] never ends its section. If it is one of the
    /// calling thread, this panics, as below. If it is one of another thread, or an
    /// [`OwnedGuard`](crate::OwnedGuard), this waits for ever: a domain with
    /// [`Builder::on_stall`](crate::Builder::on_stall) reports that, and
    /// [`try_into_inner`](Self::try_into_inner) does not wait.
    ///
    /// # Panics
    ///
    /// If the caller is in a section of the domain: it would wait for itself. The value is dropped
    /// after a grace period then.
    pub fn into_inner(self) -> T {
        if let Err(pinned) = self.wait() {
            panic!("into_inner: {pinned}");
        }
        // SAFETY: the wait has returned, so the grace period of the cookie is complete (1).
        unsafe { self.take() }
    }

    /// Returns the value if no reader uses it any more. Never waits.
    ///
    /// # Errors
    ///
    /// The value as it was, if a reader is left.
    pub fn try_into_inner(self) -> Result<T, Self> {
        if !self.domain.poll(self.cookie) {
            return Err(self);
        }
        // SAFETY: the poll has found the grace period of the cookie complete (1).
        Ok(unsafe { self.take() })
    }

    fn wait(&self) -> Result<(), Pinned> {
        if mutant!("cell_skips_wait") {
            return Ok(());
        }
        self.domain.wait_for(self.cookie)
    }

    /// # Safety
    ///
    /// 1. The grace period of the cookie is complete.
    unsafe fn take(self) -> T {
        let value = self.value;
        std::mem::forget(self);
        // SAFETY: from a box, and owned by the value that is abandoned. Sections that could find it
        // have ended, by 1.
        *unsafe { Box::from_raw(value.as_ptr()) }
    }
}

impl<T: Send + 'static> Drop for Replaced<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this value owns the old one of the cell, and does not use it after the call (1).
        unsafe { retire(self.domain, self.value) };
    }
}

impl<T: Send + 'static> Deref for Replaced<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: owned by this value; readers have shared references only.
        unsafe { self.value.as_ref() }
    }
}

impl<T: Send + fmt::Debug + 'static> fmt::Debug for Replaced<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Replaced").field(&**self).finish()
    }
}
