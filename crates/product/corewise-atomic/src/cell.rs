//! Plain data shared between threads.
//!
//! A [`DataCell`] holds a value that several threads access and whose accesses something else keeps
//! apart: a lock, a flag, a grace period. loom and shuttle fail a run in which accesses overlap.
//!
//! # Guarantees
//!
//! 1. *No cost.* In the normal build a `DataCell<T>` has the layout of `T`, and `with` and
//!    `with_mut` only pass the pointer.
//! 2. *Races are found.* Under loom a write that is not ordered with another access fails the
//!    model. Under shuttle a write that overlaps another access in the schedule does.

use std::ops::Range;

#[cfg(corewise_loom)]
use loom::cell::UnsafeCell;
#[cfg(corewise_shuttle)]
use overlap::UnsafeCell;
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
use real::UnsafeCell;

/// A value that several threads access, and whose owner keeps the accesses apart.
///
/// The closures get raw pointers, so creating a pointer is safe, and the code that dereferences it
/// states why the access is safe.
///
/// ```
/// # corewise_atomic::model(|| {
/// let cell = corewise_atomic::cell::DataCell::new(1);
/// // SAFETY: no other thread knows the cell.
/// cell.with_mut(|value| unsafe { *value += 1 });
/// assert_eq!(cell.into_inner(), 2);
/// # });
/// ```
#[repr(transparent)]
pub struct DataCell<T>(UnsafeCell<T>);

// SAFETY: the safe interface hands out raw pointers only; code that dereferences one must state why
// the accesses are kept apart. `Send + Sync` excludes values that belong to one thread.
unsafe impl<T: Send + Sync> Sync for DataCell<T> {}
// SAFETY: the value moves with its cell.
unsafe impl<T: Send> Send for DataCell<T> {}

impl<T> DataCell<T> {
    /// Creates a cell that holds `value`.
    #[inline(always)]
    #[track_caller]
    pub fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Calls `read` with a pointer that is valid for reading until `read` returns, provided that no
    /// write happens at the same time.
    #[inline(always)]
    #[track_caller]
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        self.0.with(read)
    }

    /// Calls `write` with a pointer that is valid for reading and writing until `write` returns,
    /// provided that no other access happens at the same time.
    #[inline(always)]
    #[track_caller]
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        self.0.with_mut(write)
    }

    /// Returns a copy of the value.
    ///
    /// # Safety
    ///
    /// 1. No write happens at the same time.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn read(&self) -> T
    where
        T: Copy,
    {
        // SAFETY: no write happens at the same time, as the caller guarantees (1).
        self.with(|value| unsafe { *value })
    }

    /// Drops the old value and stores `value`.
    ///
    /// # Safety
    ///
    /// 1. No other access happens at the same time.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn write(&self, value: T) {
        // SAFETY: no other access happens at the same time, as the caller guarantees (1).
        self.with_mut(|place| unsafe { *place = value });
    }

    /// Consumes the cell and returns the value.
    #[inline(always)]
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: Default> Default for DataCell<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> std::fmt::Debug for DataCell<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DataCell(..)")
    }
}

/// The kind of an access to plain memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The memory is read.
    Read,
    /// The memory is written.
    Write,
}

/// Announces a plain access to shared memory that lives outside any [`DataCell`], such as the bytes
/// of an item. Generates no code in any build but for a simulation.
#[inline(always)]
pub fn touch(range: Range<*const u8>, access: Access) {
    #[cfg(corewise_sim)]
    if let Some(simulator) = crate::sim::simulator() {
        let class = match access {
            Access::Read => crate::sim::AccessClass::Load,
            Access::Write => crate::sim::AccessClass::Store,
        };
        simulator.access(range.start, range.end.addr() - range.start.addr(), class);
    }
    let _ = (range, access);
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
mod real {
    /// `std`'s cell with loom's interface.
    #[repr(transparent)]
    pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        #[inline(always)]
        pub(super) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            #[cfg(corewise_sim)]
            crate::sim::announce(self.0.get(), crate::sim::AccessClass::Load);
            read(self.0.get())
        }

        #[inline(always)]
        pub(super) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            #[cfg(corewise_sim)]
            let _written = crate::sim::Writing::begin(self.0.get());
            write(self.0.get())
        }

        #[inline(always)]
        pub(super) fn into_inner(self) -> T {
            self.0.into_inner()
        }
    }

    // Guarantee 1.
    const _: () = {
        assert!(size_of::<super::DataCell<u8>>() == size_of::<u8>());
        assert!(size_of::<super::DataCell<[u64; 3]>>() == size_of::<[u64; 3]>());
        assert!(align_of::<super::DataCell<u64>>() == align_of::<u64>());
    };
}

/// A cell that lets the scheduler run at the start and the end of every access, and panics if a
/// write overlaps another access.
#[cfg(corewise_shuttle)]
mod overlap {
    use shuttle::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    /// The state while one thread writes; otherwise it counts the readers.
    const WRITING: usize = 1 << 32;

    pub(super) struct UnsafeCell<T> {
        state: AtomicUsize,
        value: std::cell::UnsafeCell<T>,
    }

    impl<T> UnsafeCell<T> {
        pub(super) fn new(value: T) -> Self {
            Self {
                state: AtomicUsize::new(0),
                value: value.into(),
            }
        }

        #[track_caller]
        pub(super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            // SeqCst, as all of shuttle's atomics are; the counts alone tell an overlap.
            let before = self.state.fetch_add(1, SeqCst);
            assert!(before < WRITING, "a DataCell is read while it is written");
            let result = read(self.value.get());
            self.state.fetch_sub(1, SeqCst);
            result
        }

        #[track_caller]
        pub(super) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            // SeqCst: as in `with`.
            let before = self.state.fetch_add(WRITING, SeqCst);
            assert!(
                before == 0,
                "a DataCell is written while it is read or written"
            );
            let result = write(self.value.get());
            // SeqCst: as in `with`.
            self.state.fetch_sub(WRITING, SeqCst);
            result
        }

        pub(super) fn into_inner(self) -> T {
            self.value.into_inner()
        }
    }
}
