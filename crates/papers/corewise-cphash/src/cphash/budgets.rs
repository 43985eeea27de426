//! Moves memory towards the partitions that need it (\[CPHASH\] §3.1 leaves partitions of different
//! sizes to future work).
//!
//! A step compares the numbers of elements that the partitions have evicted since the last step,
//! once one of them is [`LEAST_EVICTIONS`]. If the greatest is more than twice the least, 1/32 of
//! an equal share moves to the partition that has evicted most from the one that has evicted least.
//! First the giver's budget shrinks, and when it has evicted what is too much, the taker's grows,
//! so the sum never exceeds the budget of the table. Every partition keeps half of an equal share,
//! and gets at most two.

use super::shard::Shard;

/// Evictions of a partition at which partitions are compared.
const LEAST_EVICTIONS: u64 = 64;

pub(super) struct Budgets {
    /// An equal share, in bytes.
    share: usize,
    budgets: Vec<usize>,
    /// The evictions of each partition at the last step.
    evictions: Vec<u64>,
    /// Bytes on their way from a partition to another.
    moving: Option<Move>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Move {
    from: usize,
    to: usize,
    bytes: usize,
}

impl Budgets {
    pub(super) fn new(partitions: usize, share: usize) -> Self {
        Self {
            share,
            budgets: vec![share; partitions],
            evictions: vec![0; partitions],
            moving: None,
        }
    }

    /// Sets the budget of every partition to an equal share.
    pub(super) fn reset(&mut self, share: usize) {
        self.share = share;
        self.budgets.fill(share);
        self.moving = None;
    }

    /// Completes a move, or begins one. Returns the partition whose budget has changed.
    pub(super) fn step<'a>(&mut self, shards: impl Fn(usize) -> &'a Shard) -> Option<usize> {
        if let Some(Move { from, to, bytes }) = self.moving {
            let stats = shards(from).stats();
            let has_shrunk = stats.budget_bytes <= self.budgets[from] as u64
                && stats.held_bytes <= self.budgets[from] as u64;
            if !has_shrunk {
                return None;
            }
            self.moving = None;
            self.budgets[to] += bytes;
            shards(to).set_budget(self.budgets[to]);
            return Some(to);
        }
        let now: Vec<u64> = (0..self.budgets.len())
            .map(|index| shards(index).stats().evictions)
            .collect();
        let evicted = now
            .iter()
            .zip(&self.evictions)
            .map(|(now, then)| now - then);
        if evicted.max().unwrap_or(0) < LEAST_EVICTIONS {
            // The next step looks at more evictions.
            return None;
        }
        let next = self.choose(&now);
        self.evictions = now;
        let Move { from, bytes, .. } = next?;
        self.moving = next;
        self.budgets[from] -= bytes;
        shards(from).set_budget(self.budgets[from]);
        Some(from)
    }

    fn choose(&self, now: &[u64]) -> Option<Move> {
        let bytes = self.share / 32;
        let evicted = |index: usize| now[index] - self.evictions[index];
        let all = 0..self.budgets.len();
        let gives = |&index: &usize| self.budgets[index] - bytes >= self.share / 2;
        let takes = |&index: &usize| self.budgets[index] + bytes <= 2 * self.share;
        let from = all
            .clone()
            .filter(gives)
            .min_by_key(|&index| evicted(index))?;
        let to = all.filter(takes).max_by_key(|&index| evicted(index))?;
        let is_short = evicted(to) >= LEAST_EVICTIONS && evicted(to) > 2 * evicted(from);
        (is_short && bytes > 0).then_some(Move { from, to, bytes })
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn memory_moves_to_the_partition_that_evicts_most_within_bounds() {
        let mut budgets = Budgets::new(3, 3200);
        assert_eq!(budgets.choose(&[10, 10, 60]), None);
        assert_eq!(budgets.choose(&[100, 150, 199]), None);
        let moved = |from, to| {
            Some(Move {
                from,
                to,
                bytes: 100,
            })
        };
        assert_eq!(budgets.choose(&[500, 0, 60]), moved(1, 0));
        budgets.budgets = vec![3200, 1600, 4800];
        assert_eq!(budgets.choose(&[500, 0, 60]), moved(2, 0));
        budgets.budgets = vec![6400, 1600, 1600];
        assert_eq!(budgets.choose(&[500, 0, 60]), None);
    }
}
