//! Whether a map can be full, as a type.
//!
//! A map without a byte limit is full only when the allocator has no memory. As in `std`'s
//! collections, callers need not handle that: its insertions panic without memory. A map with a
//! limit is expected to be full at times: its insertions return a `Result`. A parameter of the
//! map's type distinguishes the two. It has a default, so users without a limit never see it.
//!
//! # Choices, and rejected alternatives
//!
//! - *A separate type `LimitedCopyMap`*: all operations, traits and examples twice, for maps and
//!   handles, with copies and with boxes.
//! - *Two blocks of operations for the two parameters*: the same for the operations that insert.
//! - *`insert` that panics in maps with a limit, and `try_insert`*: the first program that sets a
//!   limit and forgets to change its calls panics when the map is full.
//! - *A `Result` for all maps*: every call ends in `unwrap`.

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Unlimited {}
    impl Sealed for super::Limited {}
}

/// Whether a map can be full: [`Unlimited`] or [`Limited`]. Sealed.
pub trait Limit: sealed::Sealed {
    /// What an insertion returns: `T`, or a `Result` of `T` if the map can be full.
    type Answer<T, E>;

    #[doc(hidden)]
    fn answer<T, E>(result: Result<T, E>) -> Self::Answer<T, E>;
}

/// The map takes the memory that it needs. Insertions return what they did, and panic if the
/// allocator has no memory.
///
/// ```
/// use corewise_maps::clht::LockBased;
/// let map = LockBased::new();
/// let before: Option<u64> = map.pin().insert(1u64, 10);
/// assert_eq!(before, None);
/// ```
pub enum Unlimited {}

/// The map was built with [`Builder::max_bytes`](super::Builder::max_bytes). Insertions return a
/// `Result`.
///
/// ```
/// use corewise_maps::clht::LockBased;
/// use corewise_maps::copy_map::{Full, Limited};
/// use corewise_maps::relativistic::DefaultHasher;
///
/// type Small = LockBased<u64, u64, DefaultHasher, Limited>;
/// let map: Small = LockBased::builder().max_bytes(4096).build();
/// let before: Result<Option<u64>, Full> = map.pin().insert(1, 10);
/// assert_eq!(before, Ok(None));
/// ```
pub enum Limited {}

impl Limit for Unlimited {
    type Answer<T, E> = T;

    #[inline(always)]
    fn answer<T, E>(result: Result<T, E>) -> T {
        match result {
            Ok(answer) => answer,
            Err(_) => no_memory(),
        }
    }
}

impl Limit for Limited {
    type Answer<T, E> = Result<T, E>;

    #[inline(always)]
    fn answer<T, E>(result: Result<T, E>) -> Result<T, E> {
        result
    }
}

#[cold]
fn no_memory() -> ! {
    panic!("{}", super::Full)
}
