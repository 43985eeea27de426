//! What must not compile.

/// A guard stays on its thread.
///
/// ```compile_fail,E0277
/// use corewise_locks::Lock;
/// let lock: Lock<u32> = Lock::new(0);
/// let guard = lock.lock();
/// std::thread::scope(|scope| { scope.spawn(move || drop(guard)); });
/// ```
pub struct SendGuard;

/// A lock is not shared if its value must stay on its thread.
///
/// ```compile_fail,E0277
/// use corewise_locks::Lock;
/// let lock: Lock<std::rc::Rc<u32>> = Lock::new(std::rc::Rc::new(0));
/// std::thread::scope(|scope| { scope.spawn(|| drop(lock.lock())); });
/// ```
pub struct ShareRc;

/// A guard does not outlive its lock.
///
/// ```compile_fail,E0597
/// use corewise_locks::{Lock, LockGuard};
/// let guard: LockGuard<'_, u32> = {
///     let lock = Lock::new(0);
///     lock.lock()
/// };
/// drop(guard);
/// ```
pub struct Outlive;
