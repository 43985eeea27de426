//! Programs that must not compile, each followed by a twin that compiles.
//!
//! A twin differs in one line, which shows that the program is rejected for the intended reason.
//! Doctests need no recorded compiler output, which changes with the compiler. The error codes are
//! checked with `RUSTDOC=.ci/rustdoc`; without it any error passes, and only the twin ensures that
//! the reason is right. `tests/auto_traits.rs` states for every public type whether it is `Send`
//! and `Sync`.

/// A guard stays on its thread.
///
/// ```compile_fail,E0277
/// fn send<T: Send>(_: T) {}
/// let domain = corewise_rcu::Domain::new();
/// let guard = domain.pin();
/// send(guard);
/// ```
///
/// ```
/// fn send<T: Send>(_: T) {}
/// let domain = corewise_rcu::Domain::new();
/// let guard = domain.pin();
/// drop(guard);
/// ```
struct GuardIsNotSend;

/// Another thread cannot use a reference to a guard.
///
/// ```compile_fail,E0277
/// let guard = corewise_rcu::pin();
/// let guard = &guard;
/// std::thread::scope(|scope| {
///     scope.spawn(move || println!("{guard:?}"));
/// });
/// ```
///
/// ```
/// let guard = corewise_rcu::pin();
/// let guard = &format!("{guard:?}");
/// std::thread::scope(|scope| {
///     scope.spawn(move || println!("{guard:?}"));
/// });
/// ```
struct GuardIsNotSync;

/// A QSBR handle stays on its thread, and so do its sections.
///
/// ```compile_fail,E0277
/// fn send<T: Send>(_: T) {}
/// let domain = corewise_rcu::Domain::new();
/// let qsbr = domain.qsbr();
/// send(qsbr);
/// ```
///
/// ```compile_fail,E0277
/// fn send<T: Send>(_: T) {}
/// let domain = corewise_rcu::Domain::new();
/// let qsbr = domain.qsbr();
/// send(qsbr.section());
/// ```
///
/// ```compile_fail,E0277
/// fn send<T: Send>(_: T) {}
/// let domain = corewise_rcu::Domain::new();
/// let qsbr = domain.qsbr();
/// send(&qsbr);
/// ```
///
/// ```
/// fn send<T: Send>(_: T) {}
/// let domain = corewise_rcu::Domain::new();
/// let qsbr = domain.qsbr();
/// send(&domain);
/// ```
struct QsbrIsNotSend;

/// A guard does not outlive the handle of its domain that it borrows.
///
/// ```compile_fail,E0505
/// let domain = corewise_rcu::Domain::new();
/// let guard = domain.pin();
/// drop(domain);
/// drop(guard);
/// ```
///
/// ```
/// let domain = corewise_rcu::Domain::new();
/// let guard = domain.pin();
/// drop(domain.clone());
/// drop(guard);
/// ```
struct GuardBorrowsTheDomain;

/// The lifetime of a guard can be shortened, but not lengthened.
///
/// ```compile_fail,E0597
/// use corewise_rcu::{Domain, Guard};
/// let domain = Domain::new();
/// let guard: Guard<'static> = domain.pin();
/// ```
///
/// ```
/// use corewise_rcu::{Domain, Guard};
/// let domain = Domain::new();
/// let guard: Guard<'_> = domain.pin();
/// ```
struct GuardIsNotLengthened;

/// The lifetimes of a handle and of its sections cannot be lengthened either.
///
/// ```compile_fail,E0597
/// use corewise_rcu::{Domain, Qsbr};
/// let domain = Domain::new();
/// let qsbr: Qsbr<'static> = domain.qsbr();
/// ```
///
/// ```
/// use corewise_rcu::{Domain, Qsbr};
/// let domain = Domain::new();
/// let qsbr: Qsbr<'_> = domain.qsbr();
/// ```
///
/// ```compile_fail,E0597
/// use corewise_rcu::{Domain, QsbrGuard};
/// let qsbr = Domain::global().qsbr();
/// let section: QsbrGuard<'static> = qsbr.section();
/// ```
///
/// ```
/// use corewise_rcu::{Domain, QsbrGuard};
/// let qsbr = Domain::global().qsbr();
/// let section: QsbrGuard<'_> = qsbr.section();
/// ```
struct QsbrIsNotLengthened;

/// No section lives across a quiescent state.
///
/// ```compile_fail,E0502
/// use corewise_rcu::Section;
/// let mut qsbr = corewise_rcu::Domain::global().qsbr();
/// let section = qsbr.section();
/// qsbr.quiescent();
/// section.reader_index();
/// ```
///
/// ```compile_fail,E0502
/// use corewise_rcu::Section;
/// let mut qsbr = corewise_rcu::Domain::global().qsbr();
/// let section = qsbr.section();
/// qsbr.offline(|| ());
/// section.reader_index();
/// ```
///
/// ```compile_fail,E0502
/// use corewise_rcu::Section;
/// let mut qsbr = corewise_rcu::Domain::global().qsbr();
/// let section = qsbr.section();
/// let _ = qsbr.synchronize();
/// section.reader_index();
/// ```
///
/// ```
/// use corewise_rcu::Section;
/// let mut qsbr = corewise_rcu::Domain::global().qsbr();
/// let section = qsbr.section();
/// let _ = &qsbr;
/// section.reader_index();
/// ```
struct QuiescentStatesEndSections;

/// The closure of `offline` cannot use a section of the handle.
///
/// ```compile_fail,E0502
/// let mut qsbr = corewise_rcu::Domain::global().qsbr();
/// qsbr.offline(|| drop(qsbr.section()));
/// ```
///
/// ```
/// let mut qsbr = corewise_rcu::Domain::global().qsbr();
/// qsbr.offline(|| drop(corewise_rcu::pin()));
/// ```
struct OfflineHasNoSection;

/// `defer_drop` does not accept a box: moving a box asserts exclusive access to its contents, which
/// readers may still use.
///
/// ```compile_fail,E0308
/// let object = Box::new(1);
/// unsafe { corewise_rcu::Domain::global().defer_drop(object) };
/// ```
///
/// ```
/// let object = std::ptr::NonNull::from(Box::leak(Box::new(1)));
/// unsafe { corewise_rcu::Domain::global().defer_drop(object) };
/// ```
///
/// ```compile_fail,E0308
/// let object = Box::new(1);
/// let _ = unsafe { corewise_rcu::Domain::global().try_defer_drop(object) };
/// ```
///
/// ```
/// let object = std::ptr::NonNull::from(Box::leak(Box::new(1)));
/// let _ = unsafe { corewise_rcu::Domain::global().try_defer_drop(object) };
/// ```
struct DeferDropTakesNoBox;

/// `defer_drop` is unsafe: the caller must guarantee that the pointer is valid.
///
/// ```compile_fail,E0133
/// let object = std::ptr::NonNull::from(Box::leak(Box::new(1)));
/// corewise_rcu::Domain::global().defer_drop(object);
/// ```
///
/// ```
/// let object = std::ptr::NonNull::from(Box::leak(Box::new(1)));
/// unsafe { corewise_rcu::Domain::global().defer_drop(object) };
/// ```
struct DeferDropIsUnsafe;

/// A deferred closure may run on another thread.
///
/// ```compile_fail,E0277
/// let object = std::rc::Rc::new(1);
/// corewise_rcu::Domain::global().defer(8, move || drop(object));
/// ```
///
/// ```
/// let object = std::sync::Arc::new(1);
/// corewise_rcu::Domain::global().defer(8, move || drop(object));
/// ```
///
/// ```compile_fail,E0277
/// let object = std::ptr::NonNull::from(Box::leak(Box::new(std::rc::Rc::new(1))));
/// unsafe { corewise_rcu::Domain::global().defer_drop(object) };
/// ```
///
/// ```
/// let object = std::ptr::NonNull::from(Box::leak(Box::new(std::sync::Arc::new(1))));
/// unsafe { corewise_rcu::Domain::global().defer_drop(object) };
/// ```
struct DeferredIsSend;

/// A deferred closure may run after the caller's frame is gone, and after the domain's handle.
///
/// ```compile_fail,E0597
/// let text = String::from("short");
/// let text = text.as_str();
/// corewise_rcu::Domain::global().defer(8, move || drop(text));
/// ```
///
/// ```
/// let text = String::from("short");
/// let text = text.clone();
/// corewise_rcu::Domain::global().defer(8, move || drop(text));
/// ```
struct DeferredIsStatic;

/// `Section` is unsafe to implement: reclamation relies on its promises.
///
/// ```compile_fail,E0200
/// struct Mine;
/// impl corewise_rcu::Section for Mine {
///     fn domain_id(&self) -> u64 { 1 }
///     fn reader_index(&self) -> usize { 0 }
/// }
/// ```
///
/// ```
/// struct Mine;
/// unsafe impl corewise_rcu::Section for Mine {
///     fn domain_id(&self) -> u64 { 1 }
///     fn reader_index(&self) -> usize { 0 }
/// }
/// ```
struct SectionIsUnsafe;

/// A reference from a cell does not outlive the guard that it was found under.
///
/// ```compile_fail,E0505
/// let cell = corewise_rcu::RcuCell::new(1);
/// let guard = corewise_rcu::pin();
/// let value = cell.load(&guard);
/// drop(guard);
/// assert_eq!(*value, 1);
/// ```
///
/// ```
/// let cell = corewise_rcu::RcuCell::new(1);
/// let guard = corewise_rcu::pin();
/// let value = *cell.load(&guard);
/// drop(guard);
/// assert_eq!(value, 1);
/// ```
///
/// ```compile_fail,E0515
/// use corewise_rcu::RcuCell;
/// fn find(cell: &RcuCell<u8>) -> &u8 { &*cell.pin() }
/// ```
///
/// ```
/// use corewise_rcu::RcuCell;
/// fn find(cell: &RcuCell<u8>) -> u8 { *cell.pin() }
/// ```
struct CellValueBorrowsTheGuard;

/// Nor does it outlive the cell, which drops its value without waiting.
///
/// ```compile_fail,E0505
/// let guard = corewise_rcu::pin();
/// let cell = corewise_rcu::RcuCell::new(1);
/// let value = cell.load(&guard);
/// drop(cell);
/// assert_eq!(*value, 1);
/// ```
///
/// ```
/// let guard = corewise_rcu::pin();
/// let cell = corewise_rcu::RcuCell::new(1);
/// let value = *cell.load(&guard);
/// drop(cell);
/// assert_eq!(value, 1);
/// ```
///
/// ```compile_fail,E0502
/// let mut cell = corewise_rcu::RcuCell::new(1);
/// let value = cell.pin();
/// *cell.get_mut() = 2;
/// assert_eq!(*value, 1);
/// ```
///
/// ```
/// let mut cell = corewise_rcu::RcuCell::new(1);
/// let value = cell.cloned();
/// *cell.get_mut() = 2;
/// assert_eq!(value, 1);
/// ```
struct CellValueBorrowsTheCell;

/// The value does not leave the closure of `read`.
///
/// ```compile_fail
/// let cell = corewise_rcu::RcuCell::new(1);
/// let value: &i32 = cell.read(|value| value);
/// assert_eq!(*value, 1);
/// ```
///
/// ```
/// let cell = corewise_rcu::RcuCell::new(1);
/// let value: i32 = cell.read(|value| *value);
/// assert_eq!(value, 1);
/// ```
struct CellValueStaysInTheClosure;

/// A replaced value may be dropped by another thread.
///
/// ```compile_fail,E0599
/// let cell = corewise_rcu::RcuCell::new(std::rc::Rc::new(1));
/// cell.store(std::rc::Rc::new(2));
/// ```
///
/// ```
/// let cell = corewise_rcu::RcuCell::new(std::sync::Arc::new(1));
/// cell.store(std::sync::Arc::new(2));
/// ```
struct CellValueIsSend;

/// A replaced value may be dropped after what the caller has borrowed is gone.
///
/// ```compile_fail,E0597
/// let text = String::from("short");
/// let cell = corewise_rcu::RcuCell::new("long");
/// cell.store(text.as_str());
/// ```
///
/// ```
/// let text = "short";
/// let cell = corewise_rcu::RcuCell::new("long");
/// cell.store(text);
/// ```
struct CellValueIsStatic;

/// Neither a longer nor a shorter lifetime may be put into the place of that of a cell's value.
///
/// ```compile_fail
/// use corewise_rcu::RcuCell;
/// fn shorten<'s>(cell: &'s RcuCell<&'static str>) -> &'s RcuCell<&'s str> { cell }
/// ```
///
/// ```
/// use corewise_rcu::RcuCell;
/// fn shorten<'s>(cell: &'s RcuCell<&'static str>) -> &'s RcuCell<&'static str> { cell }
/// ```
struct CellIsInvariant;

/// A stall hook is called by any thread, for as long as the process runs.
///
/// ```compile_fail,E0277
/// let count = std::rc::Rc::new(());
/// let _ = corewise_rcu::set_stall_hook(move |_| { let _ = &count; });
/// ```
///
/// ```
/// let count = std::sync::Arc::new(());
/// let _ = corewise_rcu::set_stall_hook(move |_| { let _ = &count; });
/// ```
struct StallHookIsShared;
