//! Programs that must not compile, each before a twin that does.
//!
//! A twin differs in one line, so that a program is not refused for another reason than the one
//! meant. Doctests need no recorded compiler output, which changes with the compiler. The error
//! codes are looked at with `RUSTDOC=.ci/rustdoc`; without that any error counts, and the
//! twin is what keeps the reason right. Which types are `Send` and `Sync` is in
//! `tests/auto_traits.rs`, for every public type.

/// A cell is written through shared references, so its type is not covariant: what is put in must
/// live as long as what is taken out.
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

/// No reference to what a mutex guards outlives the lock.
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

/// A cell is read by unsafe code: something else keeps accesses apart.
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

/// Safe code makes zeroed slots only of types for which all zero bits are a value.
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

/// `light_prepared` is unsafe: the caller must have seen that the barrier is prepared.
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
