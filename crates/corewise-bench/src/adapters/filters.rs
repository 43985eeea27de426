//! The cuckoo filters of this workspace, and those of other crates.

use corewise_filter::{Builder, CuckooFilter};

use crate::adapters::listed;
use crate::dyn_table::Entry;
use crate::subject::{FilterSubject, MeasuredFilter};
use crate::table::Setup;

/// A cuckoo filter, by the bits of a slot.
#[derive(Debug)]
struct Ours<const BITS: u32, const SEMI_SORTED: bool>(CuckooFilter);

impl<const BITS: u32, const SEMI_SORTED: bool> MeasuredFilter for Ours<BITS, SEMI_SORTED> {
    fn build(setup: &Setup) -> Self {
        let builder: Builder = CuckooFilter::builder()
            .bits(BITS)
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
    fn bytes(&self) -> usize {
        self.0.size_in_bytes()
    }
}

fn ours<const BITS: u32, const SEMI_SORTED: bool>(name: &str) -> Entry {
    listed(name).subject::<FilterSubject<Ours<BITS, SEMI_SORTED>>>()
}

/// All filters.
pub(super) fn entries() -> Vec<Entry> {
    vec![
        ours::<8, false>("cuckoo-filter-8"),
        ours::<12, false>("cuckoo-filter"),
        ours::<13, true>("cuckoo-filter-semi"),
        ours::<16, false>("cuckoo-filter-16"),
        #[cfg(feature = "bench")]
        listed("cuckoofilter-mutex").subject::<FilterSubject<peers::Locked>>(),
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

    /// A sequential filter behind a lock.
    pub(super) struct Locked(parking_lot::Mutex<cuckoofilter::CuckooFilter<FilterHasher>>);

    impl MeasuredFilter for Locked {
        fn build(setup: &Setup) -> Self {
            Self(cuckoofilter::CuckooFilter::with_capacity(setup.capacity.max(1)).into())
        }
        #[inline]
        fn insert(&self, item: u64) -> bool {
            self.0.lock().add(&item).is_ok()
        }
        #[inline]
        fn remove(&self, item: u64) -> bool {
            self.0.lock().delete(&item)
        }
        #[inline]
        fn contains(&self, item: u64) -> bool {
            self.0.lock().contains(&item)
        }
        fn false_positive_rate(&self) -> f64 {
            let filter = self.0.lock();
            let load = filter.len() as f64 / filter.memory_usage() as f64; // a byte a slot
            SLOTS_OF_A_LOOKUP * load / 255.0
        }
        fn bytes(&self) -> usize {
            self.0.lock().memory_usage()
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
        fn bytes(&self) -> usize {
            2 * self.0.capacity()
        }
    }
}
