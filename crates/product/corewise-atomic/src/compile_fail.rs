//! Programs that must not compile, each followed by a twin that compiles.
//!
//! A twin differs in one line, which shows that the program is rejected for the intended reason.
//! Doctests need no recorded compiler output, which changes with the compiler. The error codes are
//! checked with `RUSTDOC=.ci/rustdoc`; without it any error passes, and only the twin ensures that
//! the reason is right. `tests/auto_traits.rs` states for every public type whether it is `Send`
//! and `Sync`.

/// A cell is written through shared references, so its type is not covariant: a value that is
/// stored must live as long as one that is read.
///
/// ```compile_fail,E0597
/// use corewise_atomic::cell::DataCell;
/// let place: DataCell<&'static str> = DataCell::new("");
/// {
///     let text = String::from("short");
///     unsafe { place.write(&text) };
/// }
/// assert_ne!(unsafe { place.read() }, "");
/// ```
///
/// ```
/// use corewise_atomic::cell::DataCell;
/// let place: DataCell<&'static str> = DataCell::new("");
/// {
///     let text = String::from("short");
///     unsafe { place.write("long") };
/// }
/// assert_ne!(unsafe { place.read() }, "");
/// ```
struct DataCellIsInvariant;

/// A mutex is invariant, as a cell is.
///
/// ```compile_fail,E0597
/// use corewise_atomic::lock::Mutex;
/// let place: Mutex<&'static str> = Mutex::new("");
/// {
///     let text = String::from("short");
///     *place.lock() = &text;
/// }
/// assert_ne!(*place.lock(), "");
/// ```
///
/// ```
/// use corewise_atomic::lock::Mutex;
/// let place: Mutex<&'static str> = Mutex::new("");
/// {
///     let text = String::from("short");
///     *place.lock() = "long";
/// }
/// assert_ne!(*place.lock(), "");
/// ```
struct MutexIsInvariant;

/// A readers-writer lock is invariant, as a cell is.
///
/// ```compile_fail,E0597
/// use corewise_atomic::lock::RwLock;
/// let place: RwLock<&'static str> = RwLock::new("");
/// {
///     let text = String::from("short");
///     *place.write() = &text;
/// }
/// assert_ne!(*place.read(), "");
/// ```
///
/// ```
/// use corewise_atomic::lock::RwLock;
/// let place: RwLock<&'static str> = RwLock::new("");
/// {
///     let text = String::from("short");
///     *place.write() = "long";
/// }
/// assert_ne!(*place.read(), "");
/// ```
struct RwLockIsInvariant;

/// No reference to the guarded value outlives the lock.
///
/// ```compile_fail,E0505
/// use corewise_atomic::lock::Mutex;
/// let mutex = Mutex::new(1);
/// let guard = mutex.lock();
/// let value = &*guard;
/// drop(guard);
/// assert_eq!(*value, 1);
/// ```
///
/// ```
/// use corewise_atomic::lock::Mutex;
/// let mutex = Mutex::new(1);
/// let guard = mutex.lock();
/// let value = &*guard;
/// let _ = &guard;
/// assert_eq!(*value, 1);
/// ```
struct MutexGuardBorrows;

/// A lock guard does not outlive its mutex.
///
/// ```compile_fail,E0505
/// use corewise_atomic::lock::Mutex;
/// let mutex = Mutex::new(1);
/// let guard = mutex.lock();
/// drop(mutex);
/// assert_eq!(*guard, 1);
/// ```
///
/// ```
/// use corewise_atomic::lock::Mutex;
/// let mutex = Mutex::new(1);
/// let guard = mutex.lock();
/// let _ = &mutex;
/// assert_eq!(*guard, 1);
/// ```
struct MutexIsBorrowed;

/// Reading a cell requires unsafe code: something else must keep accesses apart.
///
/// ```compile_fail,E0133
/// use corewise_atomic::cell::DataCell;
/// let cell = DataCell::new(1);
/// let value = cell.read();
/// assert_eq!(value, 1);
/// ```
///
/// ```
/// use corewise_atomic::cell::DataCell;
/// let cell = DataCell::new(1);
/// let value = unsafe { cell.read() };
/// assert_eq!(value, 1);
/// ```
struct DataCellIsUnsafe;

/// Safe code creates zeroed slots only of types for which all zero bits are a valid value.
///
/// ```compile_fail,E0277
/// use corewise_atomic::Slots;
/// use corewise_atomic::sync::atomic::AtomicPtr;
/// let slots: Slots<&u8> = Slots::zeroed(1);
/// assert_eq!(slots.len(), 1);
/// ```
///
/// ```
/// use corewise_atomic::Slots;
/// use corewise_atomic::sync::atomic::AtomicPtr;
/// let slots: Slots<AtomicPtr<u8>> = Slots::zeroed(1);
/// assert_eq!(slots.len(), 1);
/// ```
struct ZeroInitIsSealed;

/// `light_prepared` is unsafe: the caller must have seen `prepare` return true.
///
/// ```compile_fail,E0133
/// assert!(corewise_atomic::barrier::prepare() || cfg!(not(target_os = "linux")));
/// corewise_atomic::barrier::light_prepared();
/// ```
///
/// ```
/// assert!(corewise_atomic::barrier::prepare() || cfg!(not(target_os = "linux")));
/// corewise_atomic::barrier::light();
/// ```
struct LightPreparedIsUnsafe;
