//! The functions of the C library, which the loader finds behind this library.

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use libc::{c_char, c_int, c_void, clockid_t, pthread_cond_t, pthread_mutex_t, timespec};

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
}

/// The version of the current interface of condition variables on x86-64. Without one, the loader
/// may return that of 2002.
const CONDITIONS: &CStr = c"GLIBC_2.3.2";

/// A function, once it was looked up.
struct Symbol {
    name: &'static CStr,
    version: Option<&'static CStr>,
    place: AtomicPtr<c_void>,
}

impl Symbol {
    const fn new(name: &'static CStr, version: Option<&'static CStr>) -> Self {
        let place = AtomicPtr::new(ptr::null_mut());
        Self {
            name,
            version,
            place,
        }
    }

    /// Ends the process if the C library has no such function.
    #[inline(always)]
    fn get(&self) -> *mut c_void {
        // Acquire: pairs with the Release in `find`.
        let place = self.place.load(Acquire);
        if place.is_null() {
            self.demand()
        } else {
            place
        }
    }

    #[cold]
    fn demand(&self) -> *mut c_void {
        let place = self.find();
        if place.is_null() {
            std::process::abort();
        }
        place
    }

    /// Null if the C library has no such function.
    fn find(&self) -> *mut c_void {
        let name = self.name.as_ptr();
        let mut place = ptr::null_mut();
        if let Some(version) = self.version {
            // SAFETY: the name and the version are static strings of C, which end with a zero.
            place = unsafe { dlvsym(libc::RTLD_NEXT, name, version.as_ptr()) };
        }
        if place.is_null() {
            // SAFETY: the name is a string of C.
            place = unsafe { libc::dlsym(libc::RTLD_NEXT, name) };
        }
        // Release: pairs with the Acquire in `get`. Threads that look at once find the same.
        self.place.store(place, Release);
        place
    }
}

macro_rules! real {
    ($($name:ident = $symbol:literal, $version:expr, ($($argument:ident: $type:ty),*);)*) => {
        #[allow(non_upper_case_globals)]
        mod symbols {
            use super::{CONDITIONS, Symbol};
            $(pub(super) static $name: Symbol = Symbol::new($symbol, $version);)*
        }

        /// Looks all functions up before the program runs: a search resets the error that `dlerror`
        /// returns, so a later one could hide an error from the program.
        pub(crate) fn look_up() {
            $(symbols::$name.find();)*
            // The program must not see an error of these searches.
            // SAFETY: the returned text is not used.
            unsafe { libc::dlerror() };
        }

        $(
        /// The C library's function, with its obligations.
        ///
        /// # Safety
        ///
        /// 1. What POSIX requires of its callers.
        #[inline(always)]
        pub(crate) unsafe fn $name($($argument: $type),*) -> c_int {
            type Function = unsafe extern "C" fn($($type),*) -> c_int;
            // SAFETY: the function of this name has this type in POSIX.
            let function = unsafe { std::mem::transmute::<*mut c_void, Function>(symbols::$name.get()) };
            // SAFETY: the caller upholds the contract of the C function (1).
            unsafe { function($($argument),*) }
        }
    )*};
}

real! {
    lock = c"pthread_mutex_lock", None, (mutex: *mut pthread_mutex_t);
    trylock = c"pthread_mutex_trylock", None, (mutex: *mut pthread_mutex_t);
    timedlock = c"pthread_mutex_timedlock", None,
        (mutex: *mut pthread_mutex_t, until: *const timespec);
    clocklock = c"pthread_mutex_clocklock", None,
        (mutex: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec);
    unlock = c"pthread_mutex_unlock", None, (mutex: *mut pthread_mutex_t);
    cond_wait = c"pthread_cond_wait", Some(CONDITIONS),
        (condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t);
    cond_timedwait = c"pthread_cond_timedwait", Some(CONDITIONS),
        (condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, until: *const timespec);
    cond_clockwait = c"pthread_cond_clockwait", None,
        (condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, clock: clockid_t,
         until: *const timespec);
}
