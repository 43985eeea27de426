//! Lookups beside writers in full filters: no item that is present is ever missed.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use corewise_filter::CuckooFilter;
use corewise_testkit::random::{Random, is_short};

const SLOTS: usize = 1 << 14;
const WRITERS: u64 = 2;
const READERS: u64 = 2;

/// The number of operations of each filter: `COREWISE_STRESS_OPERATIONS` replaces it.
fn operations() -> u64 {
    let wanted = std::env::var("COREWISE_STRESS_OPERATIONS").ok();
    let short = if is_short() { 200_000 } else { 1_500_000 };
    wanted.map_or(short, |text| text.parse().expect("a number"))
}

/// Inserts and removes items, and looks them up while they are present. Each call is an operation.
fn write(filter: &CuckooFilter, writer: u64, operations: u64) -> u64 {
    let mut random = Random(writer + 1);
    let mut present: Vec<(u64, u64)> = Vec::new();
    let (mut done, mut refused, mut next) = (0, 0, 0);
    // Both writers together keep the filter at up to 95 %.
    let most = SLOTS as u64 / 20;
    while done < operations {
        done += 1;
        let is_full = present.len() as u64 >= most;
        match random.below(4) {
            0 | 1 if !is_full => {
                let item = (writer, next);
                next += 1;
                match filter.insert(&item) {
                    Ok(()) => present.push(item),
                    Err(_) => refused += 1,
                }
            }
            2 if !present.is_empty() => {
                let item = present.swap_remove(random.below(present.len() as u64) as usize);
                assert!(filter.remove(&item), "{item:?} was not removed");
            }
            _ if !present.is_empty() => {
                let item = present[random.below(present.len() as u64) as usize];
                if random.below(16) == 0 {
                    assert!(filter.count(&item) > 0, "{item:?} was not counted");
                } else {
                    assert!(filter.contains(&item), "{item:?} was missed");
                }
            }
            _ => {}
        }
    }
    assert!(
        refused * 4 < next,
        "{refused} of {next} insertions were refused"
    );
    present.iter().for_each(|item| assert!(filter.remove(item)));
    next - refused
}

fn stress(filter: &CuckooFilter) {
    let stable = SLOTS as u64 * 85 / 100;
    let stable_item = |n: u64| (u64::MAX, n);
    (0..stable).for_each(|n| filter.insert(&stable_item(n)).unwrap());
    let each = operations() / (WRITERS + READERS);
    let (is_over, reads, writes) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let writes = &writes;
                scope.spawn(move || writes.fetch_add(write(filter, writer, each), Relaxed))
            })
            .collect();
        for reader in 0..READERS {
            let (is_over, reads) = (&is_over, &reads);
            scope.spawn(move || {
                let mut n = reader * stable / READERS;
                let mut done = 0;
                // Until the writers are done, and no fewer operations than they do.
                while done < each || !is_over.load(Relaxed) {
                    assert!(filter.contains(&stable_item(n)), "item {n} was missed");
                    n = (n + 1) % stable;
                    done += 1;
                }
                reads.fetch_add(done, Relaxed);
            });
        }
        let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, Relaxed);
        results.into_iter().for_each(|result| _ = result.unwrap());
    });
    assert!((0..stable).all(|n| filter.contains(&stable_item(n))));
    assert_eq!(filter.len() as u64, stable);
    println!(
        "{filter:?}: {reads:?} lookups beside {} operations of writers, {writes:?} insertions",
        WRITERS * each
    );
}

#[test]
fn no_item_is_missed_in_packed_buckets() {
    stress(&CuckooFilter::builder().slots(SLOTS).build().unwrap());
}

#[test]
fn no_item_is_missed_in_semi_sorted_buckets() {
    let builder = CuckooFilter::builder()
        .slots(SLOTS)
        .bits(16)
        .semi_sorted(true);
    stress(&builder.build().unwrap());
}

#[test]
fn no_item_is_missed_in_wide_buckets() {
    let builder = CuckooFilter::builder()
        .slots(SLOTS)
        .bits(19)
        .bucket_slots(8);
    stress(&builder.build().unwrap());
}

/// All threads insert the same items unless they are present: each once.
#[test]
fn unique_items_are_inserted_once() {
    let filter = CuckooFilter::builder()
        .capacity(20_000)
        .bits(24)
        .build()
        .unwrap();
    let inserted = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let new = (0..20_000u64).filter(|item| filter.insert_unique(item).unwrap());
                inserted.fetch_add(new.count() as u64, Relaxed);
            });
        }
    });
    assert_eq!(filter.len() as u64, inserted.into_inner());
    assert!((0..20_000u64).all(|item| filter.count(&item) == 1));
}
