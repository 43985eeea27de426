//! The thread that resizes a table back and forth without pause. It calls the table through
//! pointers: a resize is not a measured operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::clock;
use crate::work::{Start, is_given_up};

/// The number of running readers; the resizing thread stops when none is left.
#[derive(Clone, Debug)]
pub(crate) struct Readers(Arc<AtomicUsize>);

impl Readers {
    /// A count of `readers` readers.
    pub(crate) fn of(readers: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(readers)))
    }

    /// Returns a guard that decrements the count on drop, also after a panic.
    pub(crate) fn leave_at_end(&self) -> impl Drop + use<> {
        Leaving(self.clone())
    }

    fn any(&self) -> bool {
        // Relaxed: the count publishes no other data, and a late read costs one more resize.
        self.0.load(Ordering::Relaxed) != 0
    }
}

struct Leaving(Readers);

impl Drop for Leaving {
    fn drop(&mut self) {
        (self.0).0.fetch_sub(1, Ordering::Relaxed); // Relaxed: see `Readers::any`
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ResizeJob {
    /// All threads start here.
    pub(crate) start: Start,
    /// The threads that run concurrently with the resizes.
    pub(crate) readers: Readers,
    /// The two sizes.
    pub(crate) buckets: (usize, usize),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResizeReport {
    /// Number of resizes.
    pub(crate) resizes: u64,
    /// Resizes that left the number of buckets unchanged.
    pub(crate) unmoved: u64,
    /// Time in which a resize was in progress.
    pub(crate) busy_ticks: u64,
    /// Total time.
    pub(crate) ticks: u64,
}

/// Resizes to one size and the other until no reader is left, at least once each.
pub(crate) fn resize(
    resize_to: impl Fn(usize),
    buckets: impl Fn() -> usize,
    job: &ResizeJob,
) -> ResizeReport {
    let mut report = ResizeReport::default();
    let mut had = buckets();
    let mut shrink = had > job.buckets.0;
    job.start.wait();
    let begin = clock::coarse();
    while report.resizes < 2 || job.readers.any() && !is_given_up() {
        let next = if shrink { job.buckets.0 } else { job.buckets.1 };
        shrink = !shrink;
        let from = clock::coarse();
        resize_to(next);
        report.busy_ticks += clock::coarse().wrapping_sub(from);
        let has = buckets();
        report.resizes += 1;
        report.unmoved += u64::from(has == had);
        had = has;
    }
    report.ticks = clock::coarse().wrapping_sub(begin);
    report
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn run(resize_to: impl Fn(usize), buckets: impl Fn() -> usize) -> ResizeReport {
        let job = ResizeJob {
            start: Start::of(1),
            readers: Readers::of(0),
            buckets: (8, 16),
        };
        resize(resize_to, buckets, &job)
    }

    #[test]
    fn a_table_that_moves_is_resized_back_and_forth() {
        let (size, seen) = (Cell::new(16), Cell::new(Vec::new()));
        let report = run(
            |to| {
                size.set(to);
                seen.set([seen.take(), vec![to]].concat());
            },
            || size.get(),
        );
        assert_eq!(seen.take(), [8, 16]);
        assert_eq!((report.resizes, report.unmoved), (2, 0));
        assert!(report.busy_ticks <= report.ticks);
    }

    #[test]
    fn a_table_that_does_nothing_is_noticed() {
        assert_eq!(run(|_| {}, || 16).unmoved, 2);
    }

    #[test]
    fn a_reader_that_panics_has_left() {
        let readers = Readers::of(2);
        drop(readers.leave_at_end());
        let at_it = readers.leave_at_end();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _at_it = at_it;
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(caught.is_err() && !readers.any());
    }
}
