//! Operations whose outcome is known beforehand.
//!
//! Sums show a loss, but neither a value that is stale for a moment nor two errors that cancel out.
//! So after the measured time each thread runs for a while on keys that no other thread writes,
//! records its values in a model, and compares every outcome. The other threads use keys adjacent
//! to these, in the same buckets. Batches of lookups are among the operations.
//!
//! An audit ends early after `LONGEST`: where threads outnumber the processors, each operation
//! under a spinning lock may last until the scheduler runs its owner.

use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use corewise_measure::draw::mix;

use crate::plan::Plan;
use crate::stamp::{belongs, stamp};
use crate::table::{Kind, MOST_BATCHED, MapHandle, MeasuredMap};
use crate::work::worker::Worker;
use crate::work::{Part, is_given_up};

/// Number of keys of a thread.
const KEYS: usize = 4096;
/// Time after which a thread ends its audit, of which it may read its keys for half.
const LONGEST: Duration = Duration::from_secs(4);

/// The result of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditReport {
    /// Number of outcomes compared.
    pub audited: u64,
    /// The first wrong outcome, in words.
    pub problem: Option<String>,
}

/// A key and the value that should be stored under it.
struct Entry {
    key: u64,
    stamp: Option<u64>,
}

/// Audits a table with `operations` operations.
pub(crate) fn audit<K: Kind, T: MeasuredMap<K>>(
    map: &T,
    plan: &Plan,
    part: Part,
    operations: u64,
    seed: u64,
) -> AuditReport {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(mix(seed ^ 0xa0d17) ^ part.thread as u64);
    let mut worker = Worker::<K, T>::new(map, plan, part, None);
    let mut report = AuditReport::default();
    let mut model = own_keys(plan, part, &mut rng);
    let begin = Instant::now();
    let mut known = 0;
    for entry in &mut model {
        if begin.elapsed() > LONGEST / 2 {
            break;
        }
        entry.stamp = worker.handle.get(K::query(&mut worker.scratch, entry.key));
        known += 1;
    }
    model.truncate(known);
    for number in 0..operations {
        let is_over = is_given_up() || begin.elapsed() > LONGEST;
        if model.is_empty() || report.problem.is_some() || is_over {
            break;
        }
        let at = rng.random_range(0..model.len());
        report.problem = match number % 5 {
            0 => worker.audit_insert(&mut model[at]),
            1 => worker.audit_remove(&mut model[at]),
            2 => worker.audit_get(&model[at]),
            3 => worker.audit_get_many(&model, at, rng.random_range(1..=MOST_BATCHED)),
            _ => worker.audit_foreign(plan.key(rng.random_range(0..plan.range))),
        };
        report.audited += 1;
    }
    report
}

/// Returns keys of this thread, each once.
fn own_keys(plan: &Plan, part: Part, rng: &mut Xoshiro256PlusPlus) -> Vec<Entry> {
    let mine = plan.part(part.thread, part.threads);
    let step = (mine.len() / KEYS).max(1);
    let first = rng.random_range(0..step);
    let indices = mine.skip(first).step_by(step).take(KEYS);
    let entry = |index| Entry {
        key: plan.key(index),
        stamp: None,
    };
    indices.map(entry).collect()
}

fn complain(what: &str, key: u64, got: Option<u64>, expected: Option<u64>) -> Option<String> {
    let show = |stamp: Option<u64>| stamp.map_or("nothing".into(), |stamp| format!("{stamp:#x}"));
    (got != expected).then(|| {
        format!(
            "{what} of key {key:#x} gave {}, stored was {}",
            show(got),
            show(expected)
        )
    })
}

impl<K: Kind, T: MeasuredMap<K>> Worker<'_, K, T> {
    fn audit_get(&mut self, entry: &Entry) -> Option<String> {
        let got = self.handle.get(K::query(&mut self.scratch, entry.key));
        complain("get", entry.key, got, entry.stamp)
    }

    /// Looks up a batch of keys from a position on, cyclically.
    fn audit_get_many(&mut self, model: &[Entry], at: usize, keys: usize) -> Option<String> {
        let entries = || model.iter().cycle().skip(at).take(keys);
        let got = self.stamps(entries().map(|entry| entry.key));
        let wrong = |(entry, got): (&Entry, &Option<u64>)| {
            complain("get in a batch", entry.key, *got, entry.stamp)
        };
        entries().zip(got).find_map(wrong)
    }

    fn audit_insert(&mut self, entry: &mut Entry) -> Option<String> {
        let new = stamp(entry.key, self.numbers.draw());
        let value = K::value(&self.scratch, new);
        let key = K::query(&mut self.scratch, entry.key);
        let inserted = self.handle.insert(key, value);
        if inserted != entry.stamp.is_none() {
            let taken_for = if inserted { "absent" } else { "present" };
            return Some(format!(
                "insert of key {:#x} took it for {taken_for}, wrongly",
                entry.key
            ));
        }
        entry.stamp = entry.stamp.or(Some(new));
        self.audit_get(entry)
    }

    fn audit_remove(&mut self, entry: &mut Entry) -> Option<String> {
        let got = self.handle.remove(K::query(&mut self.scratch, entry.key));
        let expected = entry.stamp.take();
        complain("remove", entry.key, got, expected).or_else(|| self.audit_get(entry))
    }

    /// Looks up a key that other threads may write; checks only that the value belongs to the key.
    fn audit_foreign(&mut self, key: u64) -> Option<String> {
        let got = self.handle.get(K::query(&mut self.scratch, key))?;
        let wrong = || format!("get of key {key:#x} gave another key's value {got:#x}");
        (!belongs(got, key)).then(wrong)
    }
}
