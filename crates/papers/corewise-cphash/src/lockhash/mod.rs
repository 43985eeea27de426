//! `LockHash`: partitions behind locks (\[CPHASH\] §4.2).
//!
//! ```text
//!  Eviction::Lru                               Eviction::Random
//!  ┌──────┬───────────┐                        bucket: pointer and lock bit in one word
//!  │ lock │ partition │  × partitions          ┌───┬───┬───┬───┐
//!  └──────┴───────────┘                        │ ● │ ○ │ ● │ ○ │ × buckets, and a byte count
//!  one lock for an operation, or for a batch   └───┴───┴───┴───┘ for each partition
//! ```
//!
//! # Guarantees
//!
//! 1. *Atomicity.* Operations on one key are linearizable. An insertion of more than 256 bytes
//!    under `Eviction::Lru` allocates, copies without a lock, and takes effect when the copy is
//!    complete.
//! 2. *No foreign code under a lock.* Hashers and closures of users run outside of all locks, so
//!    they may panic and may use the table.
//! 3. *Progress.* Blocking: a preempted lock holder delays threads that use its partition or
//!    bucket.
//! 4. *References.* A value stays in memory while a [`ValueRef`] exists, even if it is replaced,
//!    removed or evicted meanwhile. Its bytes count against the budget of the partition until then.
//!    So a forgotten `ValueRef` costs memory until the table is dropped, and nothing else.

mod batch;
mod bucketed;
#[cfg(test)]
mod models;
mod shelves;

use std::hash::{BuildHasher, RandomState};
use std::mem::MaybeUninit;
use std::ops::Deref;

use crate::config::{Config, ConfigError};
use crate::element::{Element, Layout};
use crate::key::{Identifier, Key};
use crate::partition::{Eviction, InsertError, Stats};
use crate::{RawLock, Ttas};
pub use batch::{CacheRequest, Reply};
use bucketed::Bucketed;
use shelves::Shelves;

/// Values of up to this length are copied while the lock is held, rather than referenced: for them
/// a copy costs less than locking again.
const COPIED_BYTES: usize = 256;

/// A cache in which every operation locks the partition of its key: LOCKHASH of \[CPHASH\] §4.2.
///
/// Under [`Eviction::Random`] it locks single buckets instead, and hits and misses are not counted.
/// `L` is the lock of a partition: [`Ttas`], which takes one cache miss if it is free,
/// [`Anderson`](crate::Anderson), which takes two and 2 KiB, or another one; the locks of buckets
/// are bits.
///
/// ```
/// use corewise_cphash::{Config, LockHash};
///
/// let table = LockHash::new(&Config::new(1 << 20).partitions(16))?;
/// table.insert("greeting", b"hello")?;
/// assert_eq!(table.get("greeting", |value| value.len()), Some(5));
/// table.insert(7, b"a number as a key")?;
/// let value = table.get_ref(7).unwrap();
/// assert!(table.remove(7));
/// assert_eq!(&*value, b"a number as a key"); // removed, but not freed yet
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LockHash<S = RandomState, L: RawLock = Ttas> {
    pub(crate) identifier: Identifier<S>,
    inner: Inner<L>,
}

enum Inner<L: RawLock> {
    Shelves(Shelves<L>),
    Bucketed(Bucketed),
}

/// Where a lookup found its value.
enum FoundValue<'t, L: RawLock> {
    /// In the buffer, which has this number of bytes.
    Copied(usize),
    Referenced(ValueRef<'t, L>),
}

/// A buffer for short values.
struct Buffer([MaybeUninit<u8>; COPIED_BYTES]);

impl Buffer {
    #[inline(always)]
    fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; COPIED_BYTES])
    }

    /// Copies a value of up to [`COPIED_BYTES`]; false if it is longer.
    #[inline(always)]
    fn copy(&mut self, value: &[u8]) -> bool {
        let Some(place) = self.0.get_mut(..value.len()) else {
            return false;
        };
        // Without a call for the shortest values, which are the most frequent ones.
        match (value.first_chunk::<8>(), value.last_chunk::<8>()) {
            (Some(first), Some(last)) if value.len() <= 16 => {
                let end = place.len();
                place[..8].write_copy_of_slice(first);
                place[end - 8..].write_copy_of_slice(last);
            }
            _ => drop(place.write_copy_of_slice(value)),
        }
        true
    }

    /// # Safety
    ///
    /// 1. The last copied value has `len` bytes.
    #[inline(always)]
    unsafe fn bytes(&self, len: usize) -> &[u8] {
        // SAFETY: `copy` has written the first `len` bytes (1).
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), len) }
    }
}

/// Calls a method of the table inside of a [`LockHash`].
macro_rules! on {
    ($hash:expr, $table:ident => $call:expr) => {
        match &$hash.inner {
            Inner::Shelves($table) => $call,
            Inner::Bucketed($table) => $call,
        }
    };
}

impl LockHash {
    /// Creates an empty table with spin locks and the standard library's hasher.
    ///
    /// # Errors
    ///
    /// If the configuration exceeds its limits, or the system has no memory for the buckets.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        Self::with_hasher(config, RandomState::new())
    }
}

impl<S: BuildHasher, L: RawLock> LockHash<S, L> {
    /// Creates an empty table with a lock and a hasher of the caller's choice. The hasher is used
    /// for byte keys only.
    ///
    /// ```
    /// use corewise_cphash::{Anderson, Config, LockHash};
    /// let config = Config::new(1 << 20).partitions(4);
    /// let hasher = std::hash::RandomState::new();
    /// let table = LockHash::<_, Anderson>::with_hasher(&config, hasher)?;
    /// # Ok::<(), corewise_cphash::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the configuration exceeds its limits, or the system has no memory for the buckets.
    pub fn with_hasher(config: &Config, hasher: S) -> Result<Self, ConfigError> {
        let identifier = Identifier::new(hasher);
        let (count, settings) = config.settings(usize::MAX, Layout::Packed, identifier.mixer)?;
        let inner = match config.eviction {
            Eviction::Lru => Inner::Shelves(Shelves::new(count, &settings)?),
            Eviction::Random => Inner::Bucketed(Bucketed::new(count, &settings)?),
        };
        Ok(Self { identifier, inner })
    }

    /// Looks a key up and calls `read` with its value, outside of all locks.
    ///
    /// Constant expected time. Values of up to 256 bytes are copied under the lock; a longer value
    /// is referenced, which takes the lock a second time afterwards.
    #[inline]
    pub fn get<'k, R>(&self, key: impl Into<Key<'k>>, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let key = self.identifier.identify(key.into())?;
        let hash = self.identifier.mixer.mix(key.id);
        let mut buffer = Buffer::new();
        let found = on!(self, table => table.fetch(hash, &key, &mut buffer));
        Some(match found? {
            // SAFETY: a value of this length was copied.
            FoundValue::Copied(len) => read(unsafe { buffer.bytes(len) }),
            FoundValue::Referenced(value) => read(&value),
        })
    }

    /// Looks a key up and returns a reference to its value, which is not copied. Dropping it locks
    /// the partition again.
    ///
    /// Constant expected time.
    #[inline]
    pub fn get_ref<'k>(&self, key: impl Into<Key<'k>>) -> Option<ValueRef<'_, L>> {
        let key = self.identifier.identify(key.into())?;
        let hash = self.identifier.mixer.mix(key.id);
        on!(self, table => table.reference(hash, &key))
    }

    /// Whether the key is present. Counts as a use of its element.
    #[inline]
    pub fn contains<'k>(&self, key: impl Into<Key<'k>>) -> bool {
        self.get(key, |_| ()).is_some()
    }

    /// Inserts a value, in place of another one with this key if there is one, and evicts elements
    /// to make room.
    ///
    /// Constant expected time, and that of the copy; see [`Eviction`] for that of eviction.
    ///
    /// # Errors
    ///
    /// [`InsertError::TooLarge`] if the element can never fit; then nothing has changed.
    /// [`InsertError::NoRoom`] if nothing more can be evicted; the former value remains unless it
    /// was evicted.
    #[inline]
    pub fn insert<'k>(&self, key: impl Into<Key<'k>>, value: &[u8]) -> Result<(), InsertError> {
        let Some(key) = self.identifier.identify(key.into()) else {
            return Err(InsertError::TooLarge);
        };
        let hash = self.identifier.mixer.mix(key.id);
        on!(self, table => table.insert(hash, &key, value))
    }

    /// Removes a key. Whether it was present.
    ///
    /// Constant expected time.
    #[inline]
    pub fn remove<'k>(&self, key: impl Into<Key<'k>>) -> bool {
        let Some(key) = self.identifier.identify(key.into()) else {
            return false;
        };
        let hash = self.identifier.mixer.mix(key.id);
        on!(self, table => table.remove(hash, &key))
    }

    /// Changes the budget of the whole table, and evicts what is too much.
    ///
    /// An element with a reference is evicted when its last reference is given up, if the table
    /// exceeds its budget then, and so is an element whose insertion began with a larger budget. So
    /// once no reference is left and no operation is in progress, the table keeps to its budget.
    /// The number of buckets does not change, so a table that grows tenfold has chains that are ten
    /// times as long.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Budget`], as for [`new`](LockHash::new).
    pub fn set_budget_bytes(&self, bytes: usize) -> Result<(), ConfigError> {
        on!(self, table => table.set_budget(bytes))
    }

    /// Removes everything that was inserted before the call; what other threads insert meanwhile
    /// may remain. Locks one partition or bucket after the other.
    pub fn clear(&self) {
        on!(self, table => table.clear())
    }

    /// Sums over the partitions, one after the other: not a snapshot of one instant.
    pub fn stats(&self) -> Stats {
        on!(self, table => table.stats())
    }
}

impl<S, L: RawLock> std::fmt::Debug for LockHash<S, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LockHash(..)")
    }
}

/// A reference to a value of a [`LockHash`], which dereferences to its bytes.
///
/// The value stays as it is and in memory until this is dropped, even if its key gets another value
/// meanwhile. It may be sent to other threads.
pub struct ValueRef<'t, L: RawLock = Ttas> {
    element: Element,
    owner: Owner<'t, L>,
}

/// Where a reference is given up.
enum Owner<'t, L: RawLock> {
    Shelf(&'t shelves::Shelf<L>),
    Bucket(&'t Bucketed, u64),
}

// SAFETY: the element is only read, and the reference is given up under the lock, on any thread.
unsafe impl<L: RawLock> Send for ValueRef<'_, L> {}
// SAFETY: the element is only read: shared references give its bytes and nothing else.
unsafe impl<L: RawLock> Sync for ValueRef<'_, L> {}

impl<L: RawLock> Deref for ValueRef<'_, L> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the element was READY when it was found; our reference keeps it as it is. All
        // elements of these tables are packed.
        unsafe { self.element.parts(Layout::Packed).1 }
    }
}

impl<L: RawLock> Drop for ValueRef<'_, L> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the reference is ours, and is given up here.
        unsafe {
            match self.owner {
                Owner::Shelf(shelf) => shelf.with(|partition| partition.release(self.element)),
                Owner::Bucket(buckets, hash) => buckets.release(hash, self.element),
            }
        }
    }
}

impl<L: RawLock> std::fmt::Debug for ValueRef<'_, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ValueRef({} bytes)", self.len())
    }
}
