//! Programs that must not compile, each followed by a twin that compiles.
//!
//! A twin differs in one line, which shows that the program is rejected for the intended reason.
//! The error codes are checked with `RUSTDOC=.ci/rustdoc`; without it any error passes, and only
//! the twin ensures that the reason is right. `tests/auto_traits.rs` states for public types
//! whether they are `Send` and `Sync`.

/// Operations are executed by other threads, by several at a time.
///
/// ```compile_fail,E0277
/// use corewise_nr::Sequential;
/// type Number = std::rc::Rc<u64>;
/// struct Sum(u64);
/// impl Sequential for Sum {
///     type Read = ();
///     type Write = Number;
///     type Response = u64;
///     fn read(&self, (): &()) -> u64 { self.0 }
///     fn write(&mut self, more: &Number) -> u64 { self.0 += **more; self.0 }
/// }
/// ```
///
/// ```
/// use corewise_nr::Sequential;
/// type Number = std::sync::Arc<u64>;
/// struct Sum(u64);
/// impl Sequential for Sum {
///     type Read = ();
///     type Write = Number;
///     type Response = u64;
///     fn read(&self, (): &()) -> u64 { self.0 }
///     fn write(&mut self, more: &Number) -> u64 { self.0 += **more; self.0 }
/// }
/// ```
struct WritesAreShared;

/// A combiner hands responses over to other threads.
///
/// ```compile_fail,E0277
/// use corewise_nr::Sequential;
/// type Number = std::rc::Rc<u64>;
/// struct Sum(u64);
/// impl Sequential for Sum {
///     type Read = ();
///     type Write = u64;
///     type Response = Number;
///     fn read(&self, (): &()) -> Number { self.0.into() }
///     fn write(&mut self, more: &u64) -> Number { self.0 += more; self.0.into() }
/// }
/// ```
///
/// ```
/// use corewise_nr::Sequential;
/// type Number = std::sync::Arc<u64>;
/// struct Sum(u64);
/// impl Sequential for Sum {
///     type Read = ();
///     type Write = u64;
///     type Response = Number;
///     fn read(&self, (): &()) -> Number { self.0.into() }
///     fn write(&mut self, more: &u64) -> Number { self.0 += more; self.0.into() }
/// }
/// ```
struct ResponsesAreSent;

/// Several threads read a replica at a time.
///
/// ```compile_fail,E0277
/// use corewise_nr::Sequential;
/// type Reads = std::cell::Cell<u64>;
/// struct Counted(Reads);
/// impl Sequential for Counted {
///     type Read = ();
///     type Write = ();
///     type Response = ();
///     fn read(&self, (): &()) {}
///     fn write(&mut self, (): &()) {}
/// }
/// ```
///
/// ```
/// use corewise_nr::Sequential;
/// type Reads = std::sync::atomic::AtomicU64;
/// struct Counted(Reads);
/// impl Sequential for Counted {
///     type Read = ();
///     type Write = ();
///     type Response = ();
///     fn read(&self, (): &()) {}
///     fn write(&mut self, (): &()) {}
/// }
/// ```
struct StructuresAreShared;

/// What a closure borrows from a replica ends with the closure: the next write changes it.
///
/// ```compile_fail,E0521
/// use corewise_nr::{NodeReplicated, SortedSet};
/// let set = NodeReplicated::new(|_| SortedSet::new());
/// let mut first = None;
/// set.read(|set| first = set.iter().next());
/// assert!(first.is_none());
/// ```
///
/// ```
/// use corewise_nr::{NodeReplicated, SortedSet};
/// let set = NodeReplicated::new(|_| SortedSet::new());
/// let mut first = None;
/// set.read(|set| first = set.iter().next().map(|(member, score)| (member.to_vec(), score)));
/// assert!(first.is_none());
/// ```
struct BorrowsEndWithTheRead;

/// A handle borrows the structure.
///
/// ```compile_fail,E0505
/// use corewise_nr::{NodeReplicated, SortedSet};
/// let set = NodeReplicated::new(|_| SortedSet::new());
/// let handle = set.handle(None).unwrap();
/// drop(set);
/// assert!(handle.read(SortedSet::is_empty));
/// ```
///
/// ```
/// use corewise_nr::{NodeReplicated, SortedSet};
/// let set = NodeReplicated::new(|_| SortedSet::new());
/// let handle = set.handle(None).unwrap();
/// drop(set.handle(None));
/// assert!(handle.read(SortedSet::is_empty));
/// ```
struct HandlesBorrow;

/// A handle has a slot to itself, so one thread uses it at a time.
///
/// ```compile_fail,E0277
/// use corewise_nr::{NodeReplicated, SortedSet};
/// let set = NodeReplicated::new(|_| SortedSet::new());
/// let handle = set.handle(None).unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(|| handle.read(SortedSet::len));
/// });
/// ```
///
/// ```
/// use corewise_nr::{NodeReplicated, SortedSet};
/// let set = NodeReplicated::new(|_| SortedSet::new());
/// let handle = set.handle(None).unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(move || handle.read(SortedSet::len));
/// });
/// ```
struct HandlesAreNotShared;

/// A replica that joins is a copy of another one.
///
/// ```compile_fail,E0277
/// use corewise_nr::{NodeReplicated, Sequential};
/// struct Unit;
/// impl Sequential for Unit {
///     type Read = ();
///     type Write = ();
///     type Response = ();
///     fn read(&self, (): &()) {}
///     fn write(&mut self, (): &()) {}
/// }
/// assert!(NodeReplicated::new(|_| Unit).add_replica(None).is_ok());
/// ```
///
/// ```
/// use corewise_nr::{NodeReplicated, Sequential};
/// #[derive(Clone)] struct Unit;
/// impl Sequential for Unit {
///     type Read = ();
///     type Write = ();
///     type Response = ();
///     fn read(&self, (): &()) {}
///     fn write(&mut self, (): &()) {}
/// }
/// assert!(NodeReplicated::new(|_| Unit).add_replica(None).is_ok());
/// ```
struct JoiningReplicasAreCopies;
