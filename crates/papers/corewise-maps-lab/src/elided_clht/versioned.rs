//! The stand-in for processors without transactions: the same table with optimistic versioned
//! sections.
//!
//! ```text
//! versions: 64 × 128 bytes, one for each group of buckets | main lock, in its own line
//!           even: no section in the group | odd: one thread changes the group
//! ```
//!
//! # An update
//!
//! 1. It notes the version of the key's group, which must be even.
//! 2. It searches the chain without synchronisation, and so finds the slot to write.
//! 3. It makes the version odd by one exchange, which fails if the version is not the noted one. So
//!    success means that no section changed the group since step 1, and that none will.
//! 4. It writes, and makes the version even again, two above the noted one.
//!
//! An update that fails [`ATTEMPTS`] times takes the main lock. Its holder waits for the version
//! to be even and makes it odd; others begin no attempt while the main lock is held. A resize takes
//! the main lock and then all versions.
//!
//! # Guarantees
//!
//! 1. *Linearizable.* An update that writes takes effect while its version is odd; a removal of an
//!    absent key when it finds the version unchanged; a lookup as in CLHT.
//! 2. *Lookups* write nothing and never wait; see the [module](super).
//! 3. *Updates* block. An update makes at most [`ATTEMPTS`] attempts. The holder of the main lock
//!    waits only for sections that began before it held the lock, so no update waits for ever.
//! 4. *Bounds.* As [`Coarse`](super::Coarse). There are 2^63 sections of a group before its
//!    version wraps.

use corewise_atomic::sync::atomic::AtomicU64;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::fence;
use corewise_atomic::{Backoff, CachePadded, Slots, mutant, ordering};
use corewise_locks::elide::{Rtm, Tx};
use corewise_locks::{Lock, Mcs, RawLock};

use super::{KeyLocation, Put, TableFull, Tables, hash_of, table_of_words};

/// Groups of buckets, each with a version.
const STRIPES: usize = if cfg!(any(corewise_loom, corewise_shuttle)) {
    1
} else {
    64
};

/// Attempts of an update before it takes the main lock.
pub const ATTEMPTS: u32 = if cfg!(any(corewise_loom, corewise_shuttle)) {
    1
} else {
    8
};

/// The accesses of a section. They are in no transaction.
type Direct<'t> = Tx<'t, Rtm>;

/// The version of a group.
struct Version(AtomicU64);

/// A version that this thread has made odd, until this is dropped.
struct Claim<'t> {
    version: &'t Version,
    noted: u64,
}

impl Version {
    /// The version, if no section runs.
    fn note(&self) -> Option<u64> {
        // Acquire: pairs with the Release in `Claim::drop`, so the changes of that section are
        // seen.
        let noted = self.0.load(Acquire);
        noted.is_multiple_of(2).then_some(noted)
    }

    /// Whether no section began since the version was noted.
    fn is_still(&self, noted: u64) -> bool {
        // Acquire: pairs with the Release stores of a section. If one of them was read, the odd
        // version that was set before is seen below.
        fence(Acquire);
        // Relaxed: the fence orders it after the reads of the search.
        self.0.load(Relaxed) == noted
    }

    /// Begins a section, if none began since the version was noted.
    fn claim(&self, noted: u64) -> Option<Claim<'_>> {
        let noted = if mutant!("versioned_claims_any") {
            self.note()?
        } else {
            noted
        };
        // Acquire: as in `is_still`.
        fence(Acquire);
        // Acquire: pairs with the Release in `Claim::drop`. Relaxed on failure: nothing is read.
        let claimed = self
            .0
            .compare_exchange(noted, noted + 1, Acquire, Relaxed)
            .is_ok();
        // Lazily: a claim that is dropped ends a section.
        claimed.then(|| Claim {
            version: self,
            noted,
        })
    }

    /// Waits until a section can begin. For the holder of the main lock, whose waiting is bounded.
    fn wait(&self) -> Claim<'_> {
        let mut backoff = Backoff::new();
        loop {
            let claim = self.note().and_then(|noted| self.claim(noted));
            match claim {
                Some(claim) => return claim,
                None => backoff.snooze(),
            }
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let new = if mutant!("versioned_restores") {
            self.noted
        } else {
            self.noted.wrapping_add(2)
        };
        // Release: pairs with the Acquire in `note` and `claim`.
        let release = ordering!(Release, "versioned_relaxed_release");
        self.version.0.store(new, release);
    }
}

/// A table whose updates are optimistic versioned sections, for processors without transactions.
/// Keys and values are words; `L` is the main lock.
///
/// ```
/// use corewise_maps_lab::elided_clht::Versioned;
///
/// let table: Versioned = Versioned::new(1_000);
/// assert_eq!(table.insert(1, 2), Ok(None));
/// assert_eq!((table.get(1), table.remove(1), table.get(1)), (Some(2), Some(2), None));
/// ```
pub struct Versioned<L = Mcs> {
    tables: Tables,
    main: CachePadded<Lock<(), L>>,
    versions: Slots<CachePadded<Version>>,
}

table_of_words! {
    [L: RawLock] Versioned<L>, tables,
    "If the table has grown [`GENERATIONS`](super::GENERATIONS) times."
}

impl<L: RawLock> Versioned<L> {
    /// Creates a table for `capacity` entries.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            tables: Tables::new(capacity, STRIPES),
            main: CachePadded::new(Lock::new(())),
            versions: Slots::from_fn(STRIPES, |_| CachePadded::new(Version(AtomicU64::new(0)))),
        }
    }

    /// Removes a key and returns its value.
    pub fn remove(&self, key: u64) -> Option<u64> {
        let attempt = |version: &Version, noted| {
            let KeyLocation::Key(bucket, slot) = self.tables.place(&Direct::direct(), key).1 else {
                return version.is_still(noted).then_some(None);
            };
            let _claim = version.claim(noted)?;
            Some(Some(bucket.remove(&Direct::direct(), slot)))
        };
        self.update(key, attempt, || self.tables.remove(&Direct::direct(), key))
    }

    /// Inserts, and lets the table grow while that finds no room.
    fn put(&self, pair: (u64, u64), replaces: bool) -> Result<Option<u64>, TableFull> {
        loop {
            let attempt = |version: &Version, noted| {
                let place = self.tables.place(&Direct::direct(), pair.0);
                // The claim succeeds only if the place is still right.
                let _claim = version.claim(noted)?;
                let tx = Direct::direct();
                Some(self.tables.put_at(&tx, place, pair, replaces))
            };
            let serial = || self.tables.put(&Direct::direct(), pair, replaces);
            match self.update(pair.0, attempt, serial) {
                Put::New => return Ok(None),
                Put::There(old) => return Ok(Some(old)),
                Put::Crowded(generation) => self.grow(generation)?,
            }
        }
    }

    /// Some attempts, then `serial` as a section under the main lock.
    fn update<R>(
        &self,
        key: u64,
        attempt: impl Fn(&Version, u64) -> Option<R>,
        serial: impl Fn() -> R,
    ) -> R {
        let version: &Version = &self.versions[hash_of(key) as usize & (STRIPES - 1)];
        let mut backoff = Backoff::new();
        for _ in 0..ATTEMPTS {
            // A section of the main lock has priority.
            let noted = if self.main.is_locked() {
                None
            } else {
                version.note()
            };
            if let Some(done) = noted.and_then(|noted| attempt(version, noted)) {
                return done;
            }
            backoff.snooze();
        }
        let _main = self.main.lock();
        let _claim = version.wait();
        serial()
    }

    /// Copies all entries to a larger array, unless another thread did.
    #[cold]
    fn grow(&self, generation: usize) -> Result<(), TableFull> {
        let _main = self.main.lock();
        let mut claims = Vec::new();
        if !mutant!("versioned_grows_unclaimed") {
            claims.extend(self.versions.iter().map(|version| version.wait()));
        }
        self.tables.grow(&Direct::direct(), generation)
    }
}

#[cfg(test)]
mod models {
    use super::*;
    use corewise_atomic::sync::Arc;
    use corewise_atomic::{model_bounded, thread};

    /// Runs the bodies beside each other on a table with one bucket and these keys, then `check`.
    fn beside(
        keys: &'static [u64],
        bodies: [fn(&Versioned); 2],
        check: impl Fn(&Versioned) + Send + Sync + Copy + 'static,
    ) {
        model_bounded(3, move || {
            let table: Arc<Versioned> = Arc::new(Versioned::new(0));
            for key in keys {
                assert_eq!(table.insert(*key, 10 * key), Ok(None));
            }
            let [here, there] = bodies;
            let other = {
                let table = table.clone();
                thread::spawn(move || there(&table))
            };
            here(&table);
            other.join().unwrap();
            check(&table);
        });
    }

    fn holds(table: &Versioned, keys: &[u64]) {
        for key in keys {
            assert_eq!(table.get(*key), Some(10 * key), "{key}");
        }
        assert_eq!(table.len(), keys.len());
    }

    fn insert(table: &Versioned, key: u64) {
        assert_eq!(table.insert(key, 10 * key), Ok(None));
    }

    /// Both searches find the same free slot; one of the updates must search again.
    #[test]
    fn two_insertions_get_two_slots() {
        let bodies: [fn(&Versioned); 2] = [|table| insert(table, 1), |table| insert(table, 2)];
        beside(&[], bodies, |table| holds(table, &[1, 2]));
    }

    /// A slot that is removed and used again is not the one that the other search found.
    #[test]
    fn a_slot_that_was_used_again_is_not_removed() {
        let replace: fn(&Versioned) = |table| {
            table.remove(1);
            insert(table, 2);
        };
        let remove: fn(&Versioned) = |table| {
            table.remove(1);
        };
        beside(&[1], [replace, remove], |table| holds(table, &[2]));
    }

    /// Each key is removed by one of two threads.
    #[test]
    fn one_of_two_removals_finds_the_key() {
        model_bounded(3, || {
            let table: Arc<Versioned> = Arc::new(Versioned::new(0));
            insert(&table, 1);
            let other = {
                let table = table.clone();
                thread::spawn(move || table.remove(1).is_some())
            };
            let here = table.remove(1).is_some();
            assert!(here != other.join().unwrap(), "exactly one");
            assert!(table.is_empty());
        });
    }

    /// An entry that is inserted beside a resize is in the new array.
    #[test]
    fn a_resize_loses_no_insertion() {
        let grow: fn(&Versioned) = |table| table.grow(0).unwrap();
        let bodies: [fn(&Versioned); 2] = [grow, |table| insert(table, 2)];
        beside(&[1], bodies, |table| holds(table, &[1, 2]));
    }

    /// A lookup finds a key that stays, whatever its neighbours do.
    #[test]
    fn lookups_find_what_stays() {
        let look: fn(&Versioned) = |table| {
            assert_eq!(table.get(1), Some(10));
            let other = table.get(3);
            assert!(other.is_none() || other == Some(30));
        };
        let change: fn(&Versioned) = |table| {
            assert_eq!(table.remove(2), Some(20));
            insert(table, 3);
        };
        beside(&[1, 2], [change, look], |table| holds(table, &[1, 3]));
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_section_begins_only_at_the_noted_version() {
        let version = Version(AtomicU64::new(0));
        let noted = version.note().unwrap();
        let claim = version.claim(noted).unwrap();
        assert!(version.note().is_none() && version.claim(noted).is_none());
        assert!(
            version.note().is_none(),
            "a claim that failed ends no section"
        );
        assert!(!version.is_still(noted));
        drop(claim);
        assert!(version.claim(noted).is_none(), "a section ran since");
        assert_eq!(version.note(), Some(2));
    }

    /// While a group is claimed, its updates wait; while the main lock is held, all do. They go on
    /// afterwards, under the main lock.
    #[test]
    fn updates_wait_for_sections_and_end() {
        let table: Versioned = Versioned::new(100);
        table.insert(1, 10).unwrap();
        let version = &table.versions[hash_of(1) as usize & (STRIPES - 1)];
        let claim = version.wait();
        std::thread::scope(|scope| {
            let update = scope.spawn(|| table.remove(1));
            // The update has failed all its attempts when it holds the main lock.
            while !table.main.is_locked() {
                std::thread::yield_now();
            }
            assert_eq!(table.get(1), Some(10), "lookups go on");
            drop(claim);
            assert_eq!(update.join().unwrap(), Some(10));
        });
        assert!(!table.main.is_locked() && table.is_empty());
    }

    #[test]
    fn a_table_grows_under_the_main_lock() {
        let table: Versioned = Versioned::new(0);
        for key in 0..5_000 {
            assert_eq!(table.insert(key, key + 1), Ok(None));
        }
        assert!((0..5_000).all(|key| table.get(key) == Some(key + 1)));
        assert_eq!(table.len(), 5_000);
    }
}
