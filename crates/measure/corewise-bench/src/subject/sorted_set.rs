//! Sorted sets: the rank of a member by its score, and increments of scores (\[NR\] §4.2).
//!
//! All members are present all the time; at the start, the score of a member is its index. The
//! inserts of the stream add one to a score, its removes take one away. In the end the scores must
//! add up, and the ranks must be those of a permutation.

use crate::dyn_table::DynTable;
use crate::plan::Plan;
use crate::stream::{GET, INSERT};
use crate::subject::{Capability, External, Measurements, Operate, WithHandles, Work};
use crate::table::Setup;
use crate::work::{Evidence, OpCounts, Part, Sums, indices};

/// A thread's handle to a sorted set.
pub trait SortedSetHandle {
    /// Returns the number of members of lower rank; `None` if the member is absent.
    fn rank(&mut self, member: u32) -> Option<u64>;
    /// Adds to the score of a member, which is 0 if the member is absent, and returns the new
    /// score.
    fn increment(&mut self, member: u32, delta: i64) -> Option<i64>;
}

/// A sorted set.
#[derive(Debug)]
pub struct SortedSetSubject<S>(S);

/// A thread at a sorted set.
#[derive(Debug)]
pub struct SortedSetWorker<H> {
    handle: H,
    members: u64,
    external: External,
    missed: u64,
    tally: OpCounts,
}

impl<H: SortedSetHandle> SortedSetWorker<H> {
    /// The sum of values counts scores, modulo 2^64.
    #[inline(always)]
    fn increment(&mut self, member: u32, delta: i64) {
        let done = self.handle.increment(member, delta).is_some();
        self.tally.counts.count_insert(done);
        let delta = if done { delta } else { 0 };
        self.tally.sums.values = self.tally.sums.values.wrapping_add(delta as u64);
    }
}

impl<H: SortedSetHandle> Work for SortedSetWorker<H> {
    #[inline(always)]
    fn step(&mut self, index: u32, operation: u8) {
        if operation == GET {
            let rank = self.handle.rank(index);
            let found = rank.is_some_and(|rank| rank < self.members);
            self.tally.counts.count_get(found);
            self.missed += u64::from(!found);
        } else {
            self.increment(index, if operation == INSERT { 1 } else { -1 });
        }
        self.external.work();
    }

    fn end(&mut self) -> OpCounts {
        self.tally
    }

    fn kept_misses(&self) -> u64 {
        self.missed
    }
}

impl<S: WithHandles> Operate for SortedSetSubject<S>
where
    for<'s> S::Handle<'s>: SortedSetHandle,
{
    const CAPABILITY: Capability = Capability::SortedSet;
    type Worker<'s> = SortedSetWorker<S::Handle<'s>>;

    fn build(setup: &Setup) -> Self {
        Self(S::build(setup))
    }

    fn worker(&self, plan: &Plan, part: Part) -> SortedSetWorker<S::Handle<'_>> {
        SortedSetWorker {
            handle: self.0.handle(part),
            members: plan.range.into(),
            external: External::new(plan.work),
            missed: 0,
            tally: OpCounts::default(),
        }
    }
}

impl<S: WithHandles> DynTable for SortedSetSubject<S>
where
    for<'s> S::Handle<'s>: SortedSetHandle,
{
    fn fill(&self, plan: &Plan, part: Part) -> OpCounts {
        let mut worker = self.worker(plan, part);
        indices(plan, part).for_each(|member| worker.increment(member, member.into()));
        worker.end()
    }

    /// The sum of keys counts ranks.
    fn probe(&self, plan: &Plan, part: Part) -> Sums {
        let mut worker = self.worker(plan, part);
        let mut found = Sums::default();
        for member in indices(plan, part) {
            if let Some(rank) = worker.handle.rank(member) {
                let score = worker.handle.increment(member, 0).unwrap_or(0);
                found.gain(rank, score as u64);
            }
        }
        found
    }

    fn measurements(&self) -> Measurements {
        self.0.measurements()
    }

    fn problems(&self, plan: &Plan, evidence: &Evidence) -> Option<Vec<String>> {
        let (found, members) = (&evidence.found, u64::from(plan.range));
        let ranked = found.entries;
        let is_ranked = ranked == i64::from(plan.range);
        let off = found.values.wrapping_sub(evidence.booked.values) as i64;
        let refused = evidence.stream.insert_failed;
        Some(problems! {
            !is_ranked => "{ranked} of {members} members have a rank";
            is_ranked && found.keys != members * members.saturating_sub(1) / 2 =>
                "two members have the same rank, or one has a wrong rank";
            off != 0 => "the scores differ from their increments by {off}";
            refused > 0 => "{refused} increments were refused";
        })
    }
}
