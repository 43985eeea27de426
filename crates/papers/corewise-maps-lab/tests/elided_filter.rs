//! The elided cuckoo filter against `std`, with scripted transactions, and with real ones where the
//! processor has them.

use std::collections::HashMap;

use crate::common::script;
use corewise_locks::elide::{AttemptOutcome, Cause, Policy, Rtm, Scripted, Subscribe, Transaction};
use corewise_maps_lab::elided_filter::{
    ElidedFilter, RetryFilter, ScmFilter, SlrFilter, SlrScmFilter,
};
use corewise_testkit::random::Random;

/// No item that is there is missed, whatever moves for others.
fn agrees_with_std<L: Subscribe, P: Policy, B: Transaction>(filter: &ElidedFilter<L, P, B>) {
    let (mut random, mut copies) = (Random(5), HashMap::<u64, u32>::new());
    for _ in 0..4_000 {
        let _script = Scripted::play(
            script(&mut random, Cause::BadPrefix, 4),
            AttemptOutcome::Commit,
        );
        let key = random.below(600);
        let number = copies.entry(key).or_default();
        match random.below(4) {
            0 if *number < 3 && filter.insert(key).is_ok() => *number += 1,
            1 if *number < 3 && filter.insert_cop(key).is_ok() => *number += 1,
            2 if *number > 0 => {
                assert!(filter.remove(key));
                *number -= 1;
            }
            _ => assert!(filter.contains(key) || *number == 0),
        }
    }
    assert_eq!(filter.len() as u32, copies.values().sum());
    assert!(
        copies
            .iter()
            .all(|(key, n)| *n == 0 || filter.contains(*key))
    );
}

/// Threads insert and remove their own items; no item is lost.
fn threads_agree<L: Subscribe, P: Policy, B: Transaction>(filter: &ElidedFilter<L, P, B>) {
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                let mut random = Random(thread + 1);
                let keys = thread * 1_000..thread * 1_000 + 300;
                for key in keys.clone() {
                    let _script = Scripted::play(
                        script(&mut random, Cause::BadPrefix, 4),
                        AttemptOutcome::Commit,
                    );
                    let insert = if key % 2 == 0 {
                        ElidedFilter::insert
                    } else {
                        ElidedFilter::insert_cop
                    };
                    insert(filter, key).expect("it is large enough");
                    assert!(filter.contains(key));
                    if key % 3 == 0 {
                        assert!(filter.remove(key));
                    }
                }
                assert!(keys.clone().all(|key| key % 3 == 0 || filter.contains(key)));
            });
        }
    });
    assert_eq!(filter.len(), 3 * 200);
}

macro_rules! filters {
    ($($name:ident: $filter:ident $(<$tries:literal>)?);* $(;)?) => {$(
        #[test]
        fn $name() {
            let scripted = Some(Scripted::new());
            // Nearly full, so that items move.
            let filter = $filter::<$($tries,)? _>::new(950, scripted);
            agrees_with_std(&filter);
            let counts = filter.counts();
            assert!(counts.committed > 0 && counts.fallbacks > 0, "{counts:?}");
            threads_agree(&$filter::<$($tries,)? _>::new(950, scripted));
            println!("scripted transactions, and real ones: {:?}", Rtm::detect());
            agrees_with_std(&$filter::<$($tries,)?>::new(950, Rtm::detect().ok()));
        }
    )*};
}
filters! {
    five_retries: RetryFilter<5>;
    ten_retries: RetryFilter<10>;
    twenty_retries: RetryFilter<20>;
    lock_removal: SlrFilter;
    conflict_management: ScmFilter;
    both: SlrScmFilter;
}

/// An item is in a fraction of the absent ones: two buckets of four fingerprints of 16 bits.
#[test]
fn few_absent_items_are_found() {
    let filter: SlrFilter<Scripted> = SlrFilter::new(10_000, Some(Scripted::new()));
    for key in 0..10_000 {
        filter.insert_cop(key).expect("it is large enough");
    }
    assert!((0..10_000).all(|key| filter.contains(key)));
    let found = (10_000..110_000)
        .filter(|key| filter.contains(*key))
        .count();
    // 8 / 65,536 at most, which is 12 of 100,000; more than 40 have a probability below 10⁻¹⁰.
    assert!(found <= 40, "{found}");
}
