//! The phases before and after the measured time.

use corewise_measure::draw::Scramble;

use crate::plan::Plan;
use crate::table::{Kind, MapHandle, MeasuredMap};
use crate::work::worker::Worker;
use crate::work::{OpCounts, Part, Sums, indices, is_given_up};

/// Inserts a part of the initial entries.
pub(crate) fn fill<K: Kind, T: MeasuredMap<K>>(map: &T, plan: &Plan, part: Part) -> OpCounts {
    let mut worker = Worker::<K, T>::new(map, plan, part, None);
    for index in indices(plan, part) {
        if plan.prefilled(index) {
            worker.insert_number(plan.key(index), plan.first_number(index));
        }
    }
    worker.tally()
}

/// Removes and reinserts about `entries` entries of a part, in random order. The set of keys is
/// unchanged, but the table has seen deletions, and its memory has been reused in another order.
pub(crate) fn churn<K: Kind, T: MeasuredMap<K>>(
    map: &T,
    plan: &Plan,
    part: Part,
    entries: u64,
) -> OpCounts {
    let mut worker = Worker::<K, T>::new(map, plan, part, None);
    let (thread, threads) = (part.thread as u64, part.threads as u64);
    let mine = (u64::from(plan.range) + threads - 1 - thread) / threads;
    if mine == 0 {
        return worker.tally();
    }
    let order = Scramble::new(mine);
    let mut left = entries / threads;
    for place in (0..mine).map(|place| order.apply(place)) {
        if left == 0 || is_given_up() {
            break;
        }
        let key = plan.key((place * threads + thread) as u32);
        if worker.remove(key) {
            worker.insert(key);
            left -= 1;
        }
    }
    worker.tally()
}

/// Looks up a part of the keys and sums the entries found.
pub(crate) fn probe<K: Kind, T: MeasuredMap<K>>(map: &T, plan: &Plan, part: Part) -> Sums {
    let mut worker = Worker::<K, T>::new(map, plan, part, None);
    let mut sums = Sums::default();
    for index in indices(plan, part) {
        let key = plan.key(index);
        if let Some(stamp) = worker.handle.get(K::query(&mut worker.scratch, key)) {
            sums.gain(key, stamp);
            sums.check_if(true, key, stamp);
        }
    }
    sums
}

/// Removes a part of all keys.
pub(crate) fn empty<K: Kind, T: MeasuredMap<K>>(map: &T, plan: &Plan, part: Part) -> OpCounts {
    let mut worker = Worker::<K, T>::new(map, plan, part, None);
    for index in indices(plan, part) {
        worker.remove(plan.key(index));
    }
    worker.tally()
}
