//! Counters of a client thread during a slice.

use hdrhistogram::Histogram;

/// Shortest latency that is distinguished from zero, in nanoseconds.
const LOWEST_NS: u64 = 100;
/// Longest latency that is recorded exactly, in nanoseconds.
const HIGHEST_NS: u64 = 600_000_000_000;
/// Significant decimal digits of a percentile.
const DIGITS: u8 = 3;

/// An empty histogram of nanoseconds.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, DIGITS).expect("these bounds are valid")
}

/// Counts and latencies of one target, one thread, one slice.
#[derive(Clone, Debug)]
pub(crate) struct LoadStats {
    pub(crate) requests: u64,
    pub(crate) sets: u64,
    /// Sets for which the server had no memory.
    pub(crate) refused: u64,
    pub(crate) hits: u64,
    /// Bytes of the values of hits.
    pub(crate) hit_bytes: u64,
    pub(crate) misses: u64,
    pub(crate) mismatches: u64,
    pub(crate) first_mismatch: Option<String>,
    /// Open loop: requests dropped because the connection had too many outstanding.
    pub(crate) overload: u64,
    /// From the first request to the last reply.
    pub(crate) elapsed_ns: u64,
    /// CPU time of this client thread.
    pub(crate) client_ns: u64,
    pub(crate) latency: Histogram<u64>,
    /// Open loop: from the intended start to the write.
    pub(crate) lag: Histogram<u64>,
    /// Completed requests with the same start, to be recorded with the time of the read.
    run_at: u64,
    run: u64,
    now: u64,
}

impl LoadStats {
    pub(crate) fn new() -> Self {
        Self {
            requests: 0,
            sets: 0,
            refused: 0,
            hits: 0,
            hit_bytes: 0,
            misses: 0,
            mismatches: 0,
            first_mismatch: None,
            overload: 0,
            elapsed_ns: 0,
            client_ns: 0,
            latency: histogram(),
            lag: histogram(),
            run_at: 0,
            run: 0,
            now: 0,
        }
    }

    /// Keys read or stored.
    pub(crate) fn keys(&self) -> u64 {
        self.hits + self.misses + self.sets
    }

    /// Sets the time at which the following replies were read.
    #[inline]
    pub(crate) fn read_at(&mut self, now: u64) {
        self.flush();
        self.now = now;
    }

    /// Records that the request that started at `at` is answered.
    #[inline]
    pub(crate) fn complete(&mut self, at: u64) {
        self.requests += 1;
        if at != self.run_at {
            self.flush();
            self.run_at = at;
        }
        self.run += 1;
    }

    /// Records a hit that was read to its end.
    #[inline]
    pub(crate) fn hit(&mut self, good: bool, bytes: u32, describe: impl FnOnce() -> String) {
        self.hits += 1;
        self.hit_bytes += u64::from(bytes);
        if !good {
            self.mismatches += 1;
            self.first_mismatch.get_or_insert_with(describe);
        }
    }

    /// Records pending latencies.
    pub(crate) fn flush(&mut self) {
        if self.run > 0 {
            let latency = self.now.saturating_sub(self.run_at).min(HIGHEST_NS);
            // Cannot fail: the value is within the bounds.
            let _ = self.latency.record_n(latency, self.run);
            self.run = 0;
        }
    }

    /// Adds another thread's counts of the same slice.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.sets += other.sets;
        self.refused += other.refused;
        self.hits += other.hits;
        self.hit_bytes += other.hit_bytes;
        self.misses += other.misses;
        self.mismatches += other.mismatches;
        if self.first_mismatch.is_none() {
            self.first_mismatch.clone_from(&other.first_mismatch);
        }
        self.overload += other.overload;
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
        self.client_ns += other.client_ns;
        // Cannot fail: all histograms have the same bounds.
        let _ = self.latency.add(&other.latency);
        let _ = self.lag.add(&other.lag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_count_from_each_start_to_the_read() {
        let mut stats = LoadStats::new();
        stats.read_at(10_000);
        stats.complete(0);
        stats.complete(0);
        stats.complete(9_000);
        stats.read_at(20_000);
        stats.complete(9_000);
        stats.flush();
        assert_eq!(stats.latency.len(), 4);
        let count = |ns| stats.latency.count_at(ns);
        assert_eq!((count(10_000), count(1_000), count(11_000)), (2, 1, 1));
    }

    #[test]
    fn merging_adds_counts_and_keeps_the_longest_time() {
        let (mut a, mut b) = (LoadStats::new(), LoadStats::new());
        (a.requests, a.elapsed_ns) = (1, 5);
        (b.requests, b.elapsed_ns, b.first_mismatch) = (2, 4, Some("x".into()));
        a.merge(&b);
        assert_eq!(
            (a.requests, a.elapsed_ns, a.first_mismatch.as_deref()),
            (3, 5, Some("x"))
        );
    }
}
