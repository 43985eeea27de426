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

/// A read guard stays on its thread.
///
/// ```compile_fail,E0277
/// use corewise_locks::DistributedRwLock;
/// let lock = DistributedRwLock::new(0);
/// let guard = lock.read();
/// std::thread::scope(|scope| { scope.spawn(move || drop(guard)); });
/// ```
pub struct SendReadGuard;

/// A write guard stays on its thread.
///
/// ```compile_fail,E0277
/// use corewise_locks::DistributedRwLock;
/// let lock = DistributedRwLock::new(0);
/// let guard = lock.write();
/// std::thread::scope(|scope| { scope.spawn(move || drop(guard)); });
/// ```
pub struct SendWriteGuard;

/// Readers share a value only if it may be shared.
///
/// ```compile_fail,E0277
/// use corewise_locks::DistributedRwLock;
/// let lock = DistributedRwLock::new(std::cell::Cell::new(0));
/// std::thread::scope(|scope| { scope.spawn(|| lock.read().set(1)); });
/// ```
pub struct ShareCell;

/// Sections that share the value with others require that it may be shared.
///
/// ```compile_fail,E0277
/// use corewise_locks::{Mcs, elide::{Elided, Retry}};
/// use std::cell::Cell;
/// let value: Elided<Cell<u32>, Mcs, Retry> = Elided::new(Cell::new(0), None);
/// value.run(|value, _| value.set(1));
/// ```
pub struct RunOnCell;

/// Only policies that are opaque give exclusive access.
///
/// ```compile_fail,E0599
/// use corewise_locks::{Mcs, elide::{Elided, Slr}};
/// let value: Elided<u32, Mcs, Slr> = Elided::new(0, None);
/// value.run_mut(|value| *value += 1);
/// ```
pub struct RunMutWithSlr;

/// The value does not leave the section.
///
/// ```compile_fail
/// use corewise_locks::{Mcs, elide::{Elided, Retry}};
/// let value: Elided<Vec<u32>, Mcs, Retry> = Elided::new(vec![1], None);
/// let escaped: &u32 = value.run(|value, _| &value[0]);
/// ```
pub struct EscapeFromRun;

/// An exclusive reference does not leave the section either.
///
/// ```compile_fail
/// use corewise_locks::{Mcs, elide::{Elided, Retry}};
/// let value: Elided<Vec<u32>, Mcs, Retry> = Elided::new(vec![1], None);
/// let escaped: &mut u32 = value.run_mut(|value| &mut value[0]);
/// ```
pub struct EscapeFromRunMut;

/// What a transaction stores to lives as long as the value.
///
/// ```compile_fail,E0597
/// use corewise_locks::{Mcs, elide::{Elided, Retry, Scripted}};
/// use std::sync::atomic::AtomicU32;
/// let value: Elided<(), Mcs, Retry, Scripted> = Elided::new((), Some(Scripted::new()));
/// value.run(|_, tx| {
///     let short = AtomicU32::new(0);
///     tx.store(&short, 1);
/// });
/// ```
pub struct StoreToLocal;
