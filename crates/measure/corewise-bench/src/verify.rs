//! The checks of a repetition. A row whose checks fail is void.
//!
//! | check | guarantees |
//! |---|---|
//! | entries, keys and values found one by one are those inserted minus those removed | nothing was lost, doubled or replaced |
//! | every value read belongs to its key | no value went to another key |
//! | the table's own count is the number found | its size is conserved |
//! | the hit rate and the final size are within a point of what the workload implies | the workload is what its name says |
//! | audited operations came out as known beforehand | no stale value, no wrong answer |
//! | threads ran where they were pinned | the placement is what its name says |
//!
//! # Expected hit rate and size
//!
//! Take a key that gets a share p of the operations, of which a share a are inserts and b removes.
//! Each operation makes it present with probability a, absent with b; so after N operations it is
//! present with probability x∞ + (x₀ − x∞)·exp(−λ), where x∞ = a/(a+b), λ = (a+b)·p·N and x₀ is 1
//! if the key was present at the start, else 0. Over the time the mean is x∞ + (x₀ − x∞)·(1 −
//! exp(−λ))/λ. The expected hit rate is the sum over the keys, weighted by p; the expected size is
//! the plain sum. The tolerance is a point plus four standard deviations, as few keys under few
//! updates are truly random. With n threads a lookup of a hot key meets updates of the same key,
//! and their duration decides what it sees: a key with share p adds p/4·min(1, n·p) to the
//! tolerance (a quarter for a single key, 0.3 points for a Zipf distribution of 0.99).
//!
//! If half of the keys stay ([`Kept::Half`]), all updates go to the other half, each of whose keys
//! gets twice its share of them; half of the lookups hit for certain.

use itertools::Itertools;

use crate::distribution::{Group, Sampler};
use crate::plan::{Kept, Plan};
use crate::record::Verdicts;
use crate::work::{Evidence, OpCounts};
use crate::workload::Workload;

/// Tolerance of a rate.
const TOLERANCE: f64 = 0.01;

/// Least share of the expected number of different keys that a stream has, besides five standard
/// deviations.
const LEAST_DRAWN: f64 = 0.95;

/// A share or a number with its standard deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expected {
    /// Its mean.
    pub mean: f64,
    /// Its standard deviation.
    pub deviation: f64,
    /// Further tolerance.
    pub slack: f64,
}

/// Returns the expected hit rate over a number of operations, and the expected size at the end.
pub fn expectation(
    workload: &Workload,
    plan: &Plan,
    groups: &[Group],
    operations: u64,
) -> (Expected, Expected) {
    let inserts = workload.insert_percent / 100.0;
    let updates = inserts + workload.remove_percent / 100.0;
    let limit = inserts / updates.max(f64::MIN_POSITIVE);
    let density = plan.initial as f64 / plan.range as f64;
    let (mut hits, mut size) = (Expected::default(), Expected::default());
    let mut rest = (plan.range as f64, plan.initial as f64);
    for group in groups {
        let (keys, lambda) = (group.keys as f64, updates * group.share * operations as f64);
        // Presence at the start, and its variance.
        let (first, unknown) = match group.index {
            Some(index) => (f64::from(u8::from(plan.prefilled(index as u32))), 0.0),
            None => (density, density * (1.0 - density)),
        };
        let left = (-lambda).exp();
        let changes = lambda > 1e-9;
        let mean_left = if changes { (1.0 - left) / lambda } else { 1.0 };
        let mean = limit + (first - limit) * mean_left;
        let last = limit + (first - limit) * left;
        // Variance of the mean over time of a key that is inserted and removed.
        let wanders = limit * (1.0 - limit) * lambda.min(2.0 / lambda.max(1e-9)).min(1.0);
        hits.mean += keys * group.share * mean;
        if workload.threads > 1 && updates > 0.0 {
            let meets = (workload.threads as f64 * group.share).min(1.0);
            hits.slack += keys * group.share * 0.25 * meets;
        }
        hits.deviation += keys * group.share.powi(2) * (wanders + unknown * left);
        size.mean += keys * last;
        size.deviation += keys * last * (1.0 - last);
        rest = (rest.0 - keys, rest.1 - keys * first);
    }
    // Keys that are never drawn keep their state.
    size.mean += if rest.0 > 0.5 { rest.1 } else { 0.0 };
    hits.deviation = (hits.deviation + 0.25 / operations.max(1) as f64).sqrt();
    size.deviation = size.deviation.sqrt();
    (hits, size)
}

/// The same if half of the keys stay and the distribution is uniform.
fn expectation_beside_kept(
    workload: &Workload,
    plan: &Plan,
    operations: u64,
) -> (Expected, Expected) {
    let kept = plan.range / 2;
    let others = plan.updated_half();
    let group = Group {
        keys: kept.into(),
        share: 1.0 / f64::from(kept),
        index: None,
    };
    let (mut hits, mut size) = expectation(workload, &others, &[group], operations);
    hits.mean = 0.5 + hits.mean / 2.0;
    hits.deviation /= 2.0;
    hits.slack /= 2.0;
    size.mean += f64::from(kept);
    (hits, size)
}

/// Checks that keys which were drawn cover what their distribution covers. A generator that
/// returns a part of the keys makes a smaller working set, on which every other check passes.
pub(crate) fn drawn(groups: &[Group], keys: &[u32]) -> Result<(), String> {
    let draws = keys.len() as f64;
    let missed = |group: &Group| (-group.share * draws).exp();
    let each = |group: &Group| group.keys as f64 * (1.0 - missed(group));
    let expected: f64 = groups.iter().map(each).sum();
    let variance: f64 = groups.iter().map(|group| each(group) * missed(group)).sum();
    let distinct = keys.iter().unique().count();
    if (distinct as f64) < LEAST_DRAWN * expected - 5.0 * variance.sqrt() {
        return Err(format!(
            "{} draws have {} different keys, {expected:.0} are expected: the distribution covers \
             a part of the keys",
            keys.len(),
            distinct
        ));
    }
    Ok(())
}

/// Compares what was found with what was booked and with what is expected.
pub fn check(workload: &Workload, plan: &Plan, sampler: &Sampler, evidence: &Evidence) -> Verdicts {
    let mut verdicts = conservation(plan, evidence);
    let operations = evidence.stream.total();
    let (hits, size) = match plan.kept {
        Kept::Half => expectation_beside_kept(workload, plan, operations),
        Kept::None | Kept::All => expectation(workload, plan, &sampler.groups(), operations),
    };
    if evidence.stream.gets() > 1_000 {
        let seen = evidence.stream.get_hits as f64 / evidence.stream.gets() as f64;
        let deviation = hits.deviation + (0.25 / evidence.stream.gets() as f64).sqrt();
        (verdicts.expected_hit_rate, verdicts.hit_rate) = (Some(hits.mean), Some(seen));
        if (seen - hits.mean).abs() > TOLERANCE + hits.slack + 4.0 * deviation {
            verdicts.problems.push(format!(
                "hit rate {:.2} %, expected {:.2} %",
                seen * 100.0,
                hits.mean * 100.0
            ));
        }
    }
    let off = (evidence.found.entries as f64 - size.mean).abs();
    if off > TOLERANCE * plan.range as f64 + 4.0 * size.deviation {
        verdicts.problems.push(format!(
            "{} entries, a steady state has {:.0}",
            evidence.found.entries, size.mean
        ));
    }
    verdicts
}

/// Checks that nothing was lost, doubled or mixed up.
pub fn conservation(plan: &Plan, evidence: &Evidence) -> Verdicts {
    let (booked, found, reported) = (&evidence.booked, &evidence.found, &evidence.reported);
    let mut problems = Vec::new();
    let wrong = booked.wrong + found.wrong;
    if wrong > 0 {
        let mut keys = [booked.wrong_key, found.wrong_key].into_iter();
        let key = keys.find(|key| *key != 0).unwrap_or(0);
        problems.push(format!(
            "{wrong} values of other keys were read, one at key {key:#x}"
        ));
    }
    if booked.entries != found.entries {
        problems.push(format!(
            "{} entries found, {} were put in and not taken out",
            found.entries, booked.entries
        ));
    } else if booked.keys != found.keys {
        problems.push("the keys found are not those that were put in".into());
    } else if booked.values != found.values {
        problems.push("the values found are not those that were put in".into());
    }
    if let Some(reported) = reported
        && *reported as i64 != found.entries
    {
        problems.push(format!(
            "the table counts {reported} entries, {} are there",
            found.entries
        ));
    }
    Verdicts {
        problems,
        probed: plan.range.into(),
        expected_size: u64::try_from(booked.entries).ok(),
        size: u64::try_from(found.entries).ok(),
        reported_size: reported.map(|reported| reported as u64),
        ..Verdicts::default()
    }
}

/// Adds all counts.
pub fn sum<'a>(tallies: impl IntoIterator<Item = &'a OpCounts>) -> OpCounts {
    let mut sum = OpCounts::default();
    tallies.into_iter().for_each(|tally| sum.add(tally));
    sum
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::params::Params;
    use crate::suite::Suite;

    /// A mix beside a resizing thread, with a share of inserts among its updates.
    fn mix(insert_share: f64) -> Workload {
        let text = "name='x'\n[[section]]\nkind='resize'\nthreads=[2]\nupdates=[10.0]";
        let given = Params {
            insert_share: Some(insert_share),
            ..Params::default()
        };
        let topology = corewise_topology::Topology::flat(2);
        let tasks = Suite::parse(text)
            .and_then(|suite| suite.tasks(&given, &topology, false))
            .expect("valid");
        tasks.into_iter().next().expect("a task").workload
    }

    #[test]
    fn a_mix_stays_as_large_as_it_starts_and_hits_what_stays() {
        for (share, hit) in [(90.0, 0.95), (50.0, 0.75), (0.0, 0.5), (100.0, 1.0)] {
            let workload = mix(share);
            let plan = workload.plan();
            for operations in [1, 1_000_000, 1_000_000_000] {
                let (hits, size) = expectation_beside_kept(&workload, &plan, operations);
                assert!((hits.mean - hit).abs() < 1e-4, "{share}: {hits:?}");
                assert!(
                    (size.mean - workload.initial as f64).abs() < 2.0,
                    "{share}: {size:?}"
                );
            }
        }
    }

    #[test]
    fn a_zipf_that_covers_a_part_of_the_keys_is_found_out() {
        let draw = |sampler: &Sampler| -> Vec<u32> {
            let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(4);
            (0..1 << 14).map(|_| sampler.draw(&mut rng)).collect()
        };
        for name in ["zipf:0.99", "zipf:0.5", "uniform", "hotspot", "single"] {
            let distribution = name.parse().expect("a distribution");
            for range in [1, 100, 20_000, 1 << 20] {
                let sampler = Sampler::new(distribution, range);
                let keys = draw(&sampler);
                assert_eq!(drawn(&sampler.groups(), &keys), Ok(()), "{name} of {range}");
                if range < 10_000 || name == "single" {
                    continue;
                }
                // A tenth of the keys instead of all of them.
                let part = draw(&Sampler::new(distribution, range / 10));
                let said = drawn(&sampler.groups(), &part);
                let is_found = said.is_err_and(|what| what.contains("a part of the keys"));
                // Few draws do not tell a million keys from a tenth of them.
                assert!(is_found || range > 1 << 16, "{name} of {range}");
            }
        }
    }

    #[test]
    fn few_keys_that_are_drawn_vary_in_number() {
        for (name, range) in [("zipf:2", 10_000), ("zipf:5", 1_000), ("zipf:1.8", 100_000)] {
            let sampler = Sampler::new(name.parse().expect("a distribution"), range);
            for seed in 0..64 {
                let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
                let keys: Vec<u32> = (0..1 << 14).map(|_| sampler.draw(&mut rng)).collect();
                assert_eq!(drawn(&sampler.groups(), &keys), Ok(()), "{name}, {seed}");
            }
        }
    }

    #[test]
    fn updates_go_to_half_of_the_keys_twice_as_often() {
        let mut workload = mix(90.0);
        workload.initial = workload.range / 2;
        let plan = workload.plan();
        // One update for each key means two for each key that is updated.
        let operations = workload.range * 10;
        let (_, size) = expectation_beside_kept(&workload, &plan, operations);
        let expected = workload.range as f64 / 2.0 * (1.0 + 0.9 * (1.0 - (-2.0f64).exp()));
        assert!(
            (size.mean - expected).abs() < 1.0,
            "{size:?}, not {expected}"
        );
    }
}
