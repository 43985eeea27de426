//! Statics and thread-locals: in a simulation each run, and each of its threads, has its values.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread as real;

use super::{LocalSlot, Simulator, simulator};

/// The number of a key, given out at its first use; the same in all simulations of the process.
struct Key(AtomicUsize);

impl Key {
    const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    #[inline]
    fn number(&self) -> usize {
        // Relaxed: a number that publishes nothing.
        match self.0.load(Relaxed) {
            0 => self.give_out(),
            number => number,
        }
    }

    #[cold]
    fn give_out(&self) -> usize {
        static LAST: AtomicUsize = AtomicUsize::new(0);
        // Relaxed, all: whichever thread is first decides, and the number publishes nothing.
        let number = LAST.fetch_add(1, Relaxed) + 1;
        match self.0.compare_exchange(0, number, Relaxed, Relaxed) {
            Ok(_) => number,
            Err(number) => number,
        }
    }
}

/// The thread ends, and has dropped the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessError;

/// A thread-local of [`thread_local!`](crate::thread_local).
pub struct LocalKey<T: 'static> {
    key: Key,
    outside: &'static real::LocalKey<T>,
    make: fn() -> T,
}

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn new(outside: &'static real::LocalKey<T>, make: fn() -> T) -> Self {
        Self {
            key: Key::new(),
            outside,
            make,
        }
    }

    /// Calls `read` with the value.
    ///
    /// # Panics
    ///
    /// If the thread ends, and has dropped the value.
    pub fn with<R>(&'static self, read: impl FnOnce(&T) -> R) -> R {
        self.try_with(read)
            .expect("a thread-local that is not dropped yet")
    }

    /// As [`with`](Self::with), with an error instead of the panic.
    ///
    /// # Errors
    ///
    /// If the thread ends, and has dropped the value.
    #[inline]
    pub fn try_with<R>(&'static self, read: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        match simulator() {
            Some(simulator) => {
                let value = self.inside(simulator)?;
                // SAFETY: by 1 of `Simulator` the value of this key is a `T`, as only `inside`
                // stores one. By 2 it is not dropped before the thread's body, or a destructor,
                // returns.
                Ok(read(unsafe { value.as_ref() }))
            }
            None => self.outside.try_with(read).map_err(|_| AccessError),
        }
    }

    fn inside(&self, simulator: &dyn Simulator) -> Result<NonNull<T>, AccessError> {
        let key = self.key.number();
        match simulator.local(key, false) {
            LocalSlot::Full(value) => Ok(value.cast()),
            LocalSlot::Dropped => Err(AccessError),
            LocalSlot::Empty => {
                let value = NonNull::from(Box::leak(Box::new((self.make)())));
                let (drop, has_destructor) = (drop_box::<T>, std::mem::needs_drop::<T>());
                // SAFETY: `drop_box` may be called once with a leaked box of its type (1). Only
                // this function reads the key (2).
                unsafe { simulator.set_local(key, false, value.cast(), drop, has_destructor) };
                Ok(value)
            }
        }
    }
}

/// # Safety
///
/// 1. `value` is that of a leaked `Box<T>`, and is not used again.
unsafe fn drop_box<T>(value: NonNull<()>) {
    // SAFETY: the value is a leaked `Box<T>` that is not used again, as the caller guarantees (1).
    drop(unsafe { Box::from_raw(value.cast::<T>().as_ptr()) });
}

impl<T: 'static> LocalKey<Cell<T>> {
    /// The value.
    pub fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    /// Replaces the value.
    pub fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }

    /// Replaces the value and returns the old one.
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }

    /// Replaces the value by the default one and returns the old one.
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(Cell::take)
    }
}

impl<T: 'static> LocalKey<RefCell<T>> {
    /// Calls `read` with the value.
    pub fn with_borrow<R>(&'static self, read: impl FnOnce(&T) -> R) -> R {
        self.with(|cell| read(&cell.borrow()))
    }

    /// Calls `write` with the value.
    pub fn with_borrow_mut<R>(&'static self, write: impl FnOnce(&mut T) -> R) -> R {
        self.with(|cell| write(&mut cell.borrow_mut()))
    }
}

/// A static of [`static_cell!`](crate::static_cell).
pub struct StaticKey<T: 'static> {
    key: Key,
    outside: LazyLock<T>,
    make: fn() -> T,
}

/// The value of a static in a simulation, and whether a thread makes it at this time.
struct Made<T> {
    is_making: Cell<bool>,
    value: std::cell::OnceCell<T>,
}

impl<T: 'static> StaticKey<T> {
    #[doc(hidden)]
    pub const fn new(make: fn() -> T) -> Self {
        Self {
            key: Key::new(),
            outside: LazyLock::new(make),
            make,
        }
    }

    fn inside(&self, simulator: &dyn Simulator) -> &'static T {
        let key = self.key.number();
        let made: NonNull<Made<T>> = match simulator.local(key, true) {
            LocalSlot::Full(made) => made.cast(),
            LocalSlot::Empty | LocalSlot::Dropped => {
                let made = NonNull::from(Box::leak(Box::new(Made {
                    is_making: Cell::new(false),
                    value: std::cell::OnceCell::new(),
                })));
                // SAFETY: `drop_box` may be called once with a leaked box of its type (1). Only
                // this function reads the key (2).
                unsafe { simulator.set_local(key, true, made.cast(), drop_box::<Made<T>>, false) };
                made
            }
        };
        // SAFETY: by 1 of `Simulator` the value of this key is a `Made<T>`, and by 2 never dropped.
        // By 3 it needs no `Sync`.
        let made: &'static Made<T> = unsafe { made.as_ref() };
        loop {
            if let Some(value) = made.value.get() {
                return value;
            }
            let address = (&raw const *made).cast();
            if made.is_making.replace(true) {
                simulator.wait(address);
                continue;
            }
            // May let other threads run, which then wait.
            let value = (self.make)();
            let _ = made.value.set(value);
            simulator.wake(address, true);
        }
    }
}

impl<T: 'static> Deref for StaticKey<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match simulator() {
            Some(simulator) => self.inside(simulator),
            None => &self.outside,
        }
    }
}

/// Declares statics that each simulation makes anew; see the documentation of the normal build.
#[macro_export]
macro_rules! static_cell {
    () => {};
    ($(#[$attr:meta])* $vis:vis static $name:ident: $type:ty = const $init:block; $($rest:tt)*) => {
        $(#[$attr])* $vis static $name: $crate::__private::StaticKey<$type> =
            $crate::__private::StaticKey::new(|| $init);
        $crate::static_cell! { $($rest)* }
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident: $type:ty = $init:expr; $($rest:tt)*) => {
        $(#[$attr])* $vis static $name: $crate::__private::StaticKey<$type> =
            $crate::__private::StaticKey::new(|| $init);
        $crate::static_cell! { $($rest)* }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __local {
    ($(#[$attr:meta])* $vis:vis static $name:ident: $type:ty = $init:expr) => {
        $(#[$attr])* $vis static $name: $crate::__private::LocalKey<$type> = {
            fn make() -> $type {
                $init
            }
            ::std::thread_local! { static OUTSIDE: $type = make(); }
            $crate::__private::LocalKey::new(&OUTSIDE, make)
        };
    };
}
