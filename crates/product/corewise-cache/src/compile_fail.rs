//! Programs that must not compile, each followed by a twin that does.
//!
//! A twin differs in one line, which shows that the program is not rejected for another reason than
//! the intended one. Doctests need no recorded compiler output, which changes with the compiler.
//! The error codes are checked with `RUSTDOC=.ci/rustdoc`; without it any error counts, and the
//! twin is what keeps the reason right. `tests/auto_traits.rs` checks which types are `Send` and
//! `Sync`, for every public type.

/// A reference to an item stays in the section, or under the lock, in which it was found.
///
/// ```compile_fail,E0277
/// fn send<T: Send>(_: T) {}
/// use corewise_cache::alloc::GlobalHeap;
/// use corewise_cache::item::{Contents, Item, create, destroy};
/// use corewise_ops::{Deadline, Now};
/// let contents = Contents {
///     key: b"key",
///     value: [b"value", b""],
///     client_flags: 0,
///     deadline: Deadline::NEVER,
///     state: 0,
/// };
/// let now = Now { ms: 1, unix_s: 1 };
/// let (node, _) = create(&GlobalHeap, 0_u64, &contents, now).unwrap();
/// send(unsafe { Item::from_raw(node) });
/// unsafe { destroy(&GlobalHeap, node) };
/// ```
///
/// ```
/// fn send<T: Send>(_: T) {}
/// use corewise_cache::alloc::GlobalHeap;
/// use corewise_cache::item::{Contents, Item, create, destroy};
/// use corewise_ops::{Deadline, Now};
/// let contents = Contents {
///     key: b"key",
///     value: [b"value", b""],
///     client_flags: 0,
///     deadline: Deadline::NEVER,
///     state: 0,
/// };
/// let now = Now { ms: 1, unix_s: 1 };
/// let (node, _) = create(&GlobalHeap, 0_u64, &contents, now).unwrap();
/// send(unsafe { Item::from_raw(node) }.value());
/// unsafe { destroy(&GlobalHeap, node) };
/// ```
struct ItemIsNotSend;

/// No safe code turns a pointer into a reference to an item.
///
/// ```compile_fail,E0133
/// use corewise_cache::alloc::GlobalHeap;
/// use corewise_cache::item::{Contents, Item, create, destroy};
/// use corewise_ops::{Deadline, Now};
/// let contents = Contents {
///     key: b"key",
///     value: [b"value", b""],
///     client_flags: 0,
///     deadline: Deadline::NEVER,
///     state: 0,
/// };
/// let now = Now { ms: 1, unix_s: 1 };
/// let (node, _) = create(&GlobalHeap, 0_u64, &contents, now).unwrap();
/// let item = Item::from_raw(node);
/// assert_eq!(item.key(), b"key");
/// unsafe { destroy(&GlobalHeap, node) };
/// ```
///
/// ```
/// use corewise_cache::alloc::GlobalHeap;
/// use corewise_cache::item::{Contents, Item, create, destroy};
/// use corewise_ops::{Deadline, Now};
/// let contents = Contents {
///     key: b"key",
///     value: [b"value", b""],
///     client_flags: 0,
///     deadline: Deadline::NEVER,
///     state: 0,
/// };
/// let now = Now { ms: 1, unix_s: 1 };
/// let (node, _) = create(&GlobalHeap, 0_u64, &contents, now).unwrap();
/// let item = unsafe { Item::from_raw(node) };
/// assert_eq!(item.key(), b"key");
/// unsafe { destroy(&GlobalHeap, node) };
/// ```
struct ItemFromRawIsUnsafe;

/// No safe code frees an item.
///
/// ```compile_fail,E0133
/// use corewise_cache::alloc::GlobalHeap;
/// use corewise_cache::item::{Contents, Item, create, destroy};
/// use corewise_ops::{Deadline, Now};
/// let contents = Contents {
///     key: b"key",
///     value: [b"value", b""],
///     client_flags: 0,
///     deadline: Deadline::NEVER,
///     state: 0,
/// };
/// let now = Now { ms: 1, unix_s: 1 };
/// let (node, _) = create(&GlobalHeap, 0_u64, &contents, now).unwrap();
/// destroy(&GlobalHeap, node);
/// ```
///
/// ```
/// use corewise_cache::alloc::GlobalHeap;
/// use corewise_cache::item::{Contents, Item, create, destroy};
/// use corewise_ops::{Deadline, Now};
/// let contents = Contents {
///     key: b"key",
///     value: [b"value", b""],
///     client_flags: 0,
///     deadline: Deadline::NEVER,
///     state: 0,
/// };
/// let now = Now { ms: 1, unix_s: 1 };
/// let (node, _) = create(&GlobalHeap, 0_u64, &contents, now).unwrap();
/// unsafe { destroy(&GlobalHeap, node) };
/// ```
struct DestroyIsUnsafe;

/// Links that need more than the alignment of items are refused.
///
/// ```compile_fail,E0080
/// use corewise_cache::alloc::GlobalHeap;
/// use corewise_cache::item::{Contents, Item, create, destroy};
/// use corewise_ops::{Deadline, Now};
/// let contents = Contents {
///     key: b"key",
///     value: [b"value", b""],
///     client_flags: 0,
///     deadline: Deadline::NEVER,
///     state: 0,
/// };
/// let now = Now { ms: 1, unix_s: 1 };
/// #[repr(align(16))]
/// struct Wide(u64);
/// let wide = Wide(0);
/// let links = wide;
/// let (node, _) = create(&GlobalHeap, links, &contents, now).unwrap();
/// unsafe { destroy(&GlobalHeap, node) };
/// ```
///
/// ```
/// use corewise_cache::alloc::GlobalHeap;
/// use corewise_cache::item::{Contents, Item, create, destroy};
/// use corewise_ops::{Deadline, Now};
/// let contents = Contents {
///     key: b"key",
///     value: [b"value", b""],
///     client_flags: 0,
///     deadline: Deadline::NEVER,
///     state: 0,
/// };
/// let now = Now { ms: 1, unix_s: 1 };
/// #[repr(align(16))]
/// struct Wide(u64);
/// let wide = Wide(0);
/// let links = wide.0;
/// let (node, _) = create(&GlobalHeap, links, &contents, now).unwrap();
/// unsafe { destroy(&GlobalHeap, node) };
/// ```
struct LinksAreAligned;

/// An allocator must be `unsafe` to implement: safe code cannot make its promises.
///
/// ```compile_fail,E0200
/// use corewise_cache::alloc::ItemAllocator;
/// use std::ptr::NonNull;
/// struct Empty;
/// impl ItemAllocator for Empty {
///     fn alloc(&self, _: usize) -> Option<(NonNull<u8>, usize)> {
///         None
///     }
///     unsafe fn dealloc(&self, _: NonNull<u8>, _: usize) {}
///     fn name(&self) -> &'static str {
///         "empty"
///     }
/// }
/// ```
///
/// ```
/// use corewise_cache::alloc::ItemAllocator;
/// use std::ptr::NonNull;
/// struct Empty;
/// unsafe impl ItemAllocator for Empty {
///     fn alloc(&self, _: usize) -> Option<(NonNull<u8>, usize)> {
///         None
///     }
///     unsafe fn dealloc(&self, _: NonNull<u8>, _: usize) {}
///     fn name(&self) -> &'static str {
///         "empty"
///     }
/// }
/// ```
struct ItemAllocatorIsUnsafe;

/// Users cannot add another reference discipline: when an item is freed depends on it.
///
/// ```compile_fail,E0277
/// use corewise_cache::alloc::GlobalHeap;
/// use corewise_cache::engines::locked::{Config, Locked, NoReferences};
/// #[derive(Default)]
/// struct Mine;
/// Locked::<GlobalHeap, Mine>::new(Config::default());
/// let _ = Mine;
/// ```
///
/// ```
/// use corewise_cache::alloc::GlobalHeap;
/// use corewise_cache::engines::locked::{Config, Locked, NoReferences};
/// #[derive(Default)]
/// struct Mine;
/// Locked::<GlobalHeap, NoReferences>::new(Config::default());
/// let _ = Mine;
/// ```
struct ReferencesAreSealed;

/// A session executes one batch at a time.
///
/// ```compile_fail,E0596
/// use corewise_cache::engines::locked::{Config, Locked, NoReferences};
/// use corewise_cache::{Engine, Session};
/// use corewise_ops::*;
/// use std::sync::Arc;
/// struct Nothing;
/// impl ReplySink for Nothing {
///     fn complete(&mut self, _: Token, _: Outcome<'_>) -> Flow {
///         Flow::Continue
///     }
/// }
/// let engine = Arc::new(<Locked>::new(Config::default()));
/// let session = engine.session();
/// session.submit(Now { ms: 1, unix_s: 1 }, &[], &mut Nothing);
/// ```
///
/// ```
/// use corewise_cache::engines::locked::{Config, Locked, NoReferences};
/// use corewise_cache::{Engine, Session};
/// use corewise_ops::*;
/// use std::sync::Arc;
/// struct Nothing;
/// impl ReplySink for Nothing {
///     fn complete(&mut self, _: Token, _: Outcome<'_>) -> Flow {
///         Flow::Continue
///     }
/// }
/// let engine = Arc::new(<Locked>::new(Config::default()));
/// let mut session = engine.session();
/// session.submit(Now { ms: 1, unix_s: 1 }, &[], &mut Nothing);
/// ```
struct SessionIsExclusive;
