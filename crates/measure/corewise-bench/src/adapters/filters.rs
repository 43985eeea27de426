//! The cuckoo filters of this workspace, and those of other crates.

use corewise_filter::{Builder, CuckooFilter};

use crate::adapters::listed;
use crate::entry::Entry;
use crate::subject::{FilterSubject, MeasuredFilter};
use crate::table::Setup;

/// A cuckoo filter, by the bits of a fingerprint and the slots of a bucket.
#[derive(Debug)]
struct Ours<const BITS: u32, const BUCKET_SLOTS: u32, const SEMI_SORTED: bool>(CuckooFilter);

impl<const BITS: u32, const BUCKET_SLOTS: u32, const SEMI_SORTED: bool> MeasuredFilter
    for Ours<BITS, BUCKET_SLOTS, SEMI_SORTED>
{
    fn build(setup: &Setup) -> Self {
        let builder: Builder = CuckooFilter::builder()
            .bits(BITS)
            .bucket_slots(BUCKET_SLOTS)
            .semi_sorted(SEMI_SORTED)
            .slots(setup.capacity.max(1));
        Self(builder.build().expect("a valid width, and there is memory"))
    }
    #[inline(always)]
    fn insert(&self, item: u64) -> bool {
        self.0.insert(&item).is_ok()
    }
    #[inline(always)]
    fn remove(&self, item: u64) -> bool {
        self.0.remove(&item)
    }
    #[inline(always)]
    fn contains(&self, item: u64) -> bool {
        self.0.contains(&item)
    }
    fn false_positive_rate(&self) -> f64 {
        self.0.fpr()
    }
    fn slots(&self) -> usize {
        self.0.slots()
    }
    fn bytes(&self) -> usize {
        self.0.size_in_bytes()
    }
}

fn ours<const BITS: u32, const BUCKET_SLOTS: u32, const SEMI_SORTED: bool>(name: &str) -> Entry {
    listed(name).subject::<FilterSubject<Ours<BITS, BUCKET_SLOTS, SEMI_SORTED>>>()
}

pub(super) fn entries() -> Vec<Entry> {
    vec![
        ours::<8, 4, false>("cuckoo-filter-8"),
        ours::<12, 4, false>("cuckoo-filter"),
        ours::<13, 4, true>("cuckoo-filter-semi"),
        ours::<16, 4, false>("cuckoo-filter-16"),
        ours::<6, 4, false>("cuckoo-filter-6"),
        ours::<7, 4, false>("cuckoo-filter-7"),
        ours::<9, 4, false>("cuckoo-filter-9"),
        ours::<10, 4, false>("cuckoo-filter-10"),
        ours::<11, 4, false>("cuckoo-filter-11"),
        ours::<14, 4, false>("cuckoo-filter-14"),
        ours::<18, 4, false>("cuckoo-filter-18"),
        ours::<20, 4, false>("cuckoo-filter-20"),
        ours::<8, 2, false>("cuckoo-filter-8x2"),
        ours::<12, 2, false>("cuckoo-filter-12x2"),
        ours::<16, 2, false>("cuckoo-filter-16x2"),
        ours::<8, 8, false>("cuckoo-filter-8x8"),
        ours::<12, 8, false>("cuckoo-filter-12x8"),
        ours::<16, 8, false>("cuckoo-filter-16x8"),
        #[cfg(feature = "bench")]
        listed("cuckoofilter-mutex").subject::<FilterSubject<peers::Sequential<true>>>(),
        #[cfg(feature = "bench")]
        listed("cuckoofilter")
            .subject::<FilterSubject<peers::Sequential<false>>>()
            .max_threads(1),
        #[cfg(feature = "bench")]
        listed("atomic-cuckoo-filter").subject::<FilterSubject<peers::Atomic>>(),
    ]
}

/// The filters of other crates. Both take any hash function; they have the one of ours.
#[cfg(feature = "bench")]
mod peers {
    use corewise_filter::FilterHasher;

    use super::{MeasuredFilter, Setup};

    /// Two buckets of four slots are looked up.
    const SLOTS_OF_A_LOOKUP: f64 = 8.0;

    type Cuckoo = cuckoofilter::CuckooFilter<FilterHasher>;

    /// A sequential filter behind a lock, or for one thread: without a lock, its entry has
    /// [`Entry::max_threads`](crate::entry::Entry::max_threads) of one.
    pub(super) struct Sequential<const LOCKS: bool>(parking_lot::Mutex<Cuckoo>);

    impl<const LOCKS: bool> Sequential<LOCKS> {
        #[inline(always)]
        fn with<R>(&self, action: impl FnOnce(&mut Cuckoo) -> R) -> R {
            if LOCKS {
                return action(&mut self.0.lock());
            }
            // SAFETY: one thread uses the filter at a time, see above, and `action` does not call
            // this.
            action(unsafe { &mut *self.0.data_ptr() })
        }
    }

    impl<const LOCKS: bool> MeasuredFilter for Sequential<LOCKS> {
        fn build(setup: &Setup) -> Self {
            Self(Cuckoo::with_capacity(setup.capacity.max(1)).into())
        }
        #[inline]
        fn insert(&self, item: u64) -> bool {
            self.with(|filter| filter.add(&item).is_ok())
        }
        #[inline]
        fn remove(&self, item: u64) -> bool {
            self.with(|filter| filter.delete(&item))
        }
        #[inline]
        fn contains(&self, item: u64) -> bool {
            self.with(|filter| filter.contains(&item))
        }
        fn false_positive_rate(&self) -> f64 {
            let load = self.with(|filter| filter.len()) as f64 / self.slots() as f64;
            SLOTS_OF_A_LOOKUP * load / 255.0
        }
        fn slots(&self) -> usize {
            self.bytes() // a byte a slot
        }
        fn bytes(&self) -> usize {
            self.with(|filter| filter.memory_usage())
        }
    }

    pub(super) struct Atomic(atomic_cuckoo_filter::CuckooFilter<FilterHasher>);

    impl MeasuredFilter for Atomic {
        fn build(setup: &Setup) -> Self {
            let builder = atomic_cuckoo_filter::CuckooFilterBuilder::default();
            let filter = builder.capacity(setup.capacity.max(1)).build();
            Self(filter.expect("a valid capacity"))
        }
        #[inline]
        fn insert(&self, item: u64) -> bool {
            self.0.insert(&item).is_ok()
        }
        #[inline]
        fn remove(&self, item: u64) -> bool {
            self.0.remove(&item)
        }
        #[inline]
        fn contains(&self, item: u64) -> bool {
            self.0.contains(&item)
        }
        fn false_positive_rate(&self) -> f64 {
            let load = self.0.len() as f64 / self.0.capacity() as f64;
            SLOTS_OF_A_LOOKUP * load / 65_535.0
        }
        fn slots(&self) -> usize {
            self.0.capacity()
        }
        fn bytes(&self) -> usize {
            2 * self.0.capacity()
        }
    }
}
