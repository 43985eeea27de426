//! Times at which requests are due: the staggered start of the closed loop, the arrivals of the
//! open loop, and a timer finer than the millisecond of `epoll_wait`.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rand::seq::SliceRandom;
use rand::{Rng, RngExt};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::config::Arrivals;

/// Connections of the closed loop start over this time, in random order, so that they do not run in
/// lockstep.
const STAGGER_NS: u64 = 2_000_000;

/// The staggered starts of one slice.
#[derive(Debug)]
pub(crate) struct Stagger {
    order: Vec<u32>,
    next: usize,
    start: u64,
    span: u64,
}

impl Stagger {
    /// Starting takes at most a tenth of the slice.
    pub(crate) fn new(conns: usize, start: u64, slice_ns: u64, rng: &mut impl Rng) -> Self {
        let mut order: Vec<u32> = (0..conns as u32).collect();
        order.shuffle(rng);
        Self {
            order,
            next: 0,
            start,
            span: STAGGER_NS.min(slice_ns / 10),
        }
    }

    /// The next connection whose start is not after `now`.
    #[inline]
    pub(crate) fn due(&mut self, now: u64) -> Option<usize> {
        let conn = *self.order.get(self.next)?;
        let at = self.start + self.span * self.next as u64 / self.order.len() as u64;
        if at > now {
            return None;
        }
        self.next += 1;
        Some(conn as usize)
    }

    #[inline]
    pub(crate) fn done(&self) -> bool {
        self.next == self.order.len()
    }
}

/// The endless schedule of one client thread in the open loop.
#[derive(Debug)]
pub(crate) struct Schedule {
    mean_gap_ns: f64,
    arrivals: Arrivals,
    next_ns: f64,
    turn: usize,
    conns: usize,
}

impl Schedule {
    /// `rate` requests per second over `conns` connections, from `start` on.
    pub(crate) fn new(
        rate: f64,
        arrivals: Arrivals,
        start: u64,
        conns: usize,
        rng: &mut impl Rng,
    ) -> Self {
        let mut schedule = Self {
            mean_gap_ns: 1e9 / rate,
            arrivals,
            next_ns: start as f64,
            turn: 0,
            conns,
        };
        // The first request is not at the very start, which all threads share.
        schedule.next_ns += match arrivals {
            Arrivals::Poisson => schedule.gap(rng),
            Arrivals::Constant => schedule.mean_gap_ns * rng.random::<f64>(),
        };
        schedule
    }

    /// When the next request is due.
    #[inline]
    pub(crate) fn next_at(&self) -> u64 {
        self.next_ns as u64
    }

    /// Takes the next request, and returns the connection that sends it.
    #[inline]
    pub(crate) fn take(&mut self, rng: &mut impl Rng) -> usize {
        self.next_ns += self.gap(rng);
        match self.arrivals {
            Arrivals::Poisson => rng.random_range(0..self.conns),
            Arrivals::Constant => {
                self.turn = (self.turn + 1) % self.conns;
                self.turn
            }
        }
    }

    #[inline]
    fn gap(&self, rng: &mut impl Rng) -> f64 {
        match self.arrivals {
            // 1 - [0, 1) is never zero, so the logarithm is finite.
            Arrivals::Poisson => -(1.0 - rng.random::<f64>()).ln() * self.mean_gap_ns,
            Arrivals::Constant => self.mean_gap_ns,
        }
    }
}

/// A one-shot timer that wakes a poll with nanosecond resolution.
#[derive(Debug)]
pub(crate) struct Timer {
    fd: OwnedFd,
}

impl Timer {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        registry.register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self { fd })
    }

    /// Wakes the poll once, `after` from now. Replaces an earlier setting.
    pub(crate) fn arm(&self, after: Duration) -> io::Result<()> {
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let value = Timespec {
            tv_sec: after.as_secs() as i64,
            tv_nsec: i64::from(after.subsec_nanos()).max(1),
        };
        let spec = Itimerspec {
            it_interval: zero,
            it_value: value,
        };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &spec)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn gaps(arrivals: Arrivals) -> Vec<f64> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut schedule = Schedule::new(1e5, arrivals, 0, 50, &mut rng);
        let mut last = schedule.next_ns;
        (0..100_000)
            .map(|_| {
                assert!(schedule.take(&mut rng) < 50);
                let gap = schedule.next_ns - last;
                last = schedule.next_ns;
                gap
            })
            .collect()
    }

    #[test]
    fn poisson_gaps_have_their_mean_and_an_equal_deviation() {
        let gaps = gaps(Arrivals::Poisson);
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let var = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 10_000.0 - 1.0).abs() < 0.02, "{mean}");
        assert!((var.sqrt() / mean - 1.0).abs() < 0.02, "{}", var.sqrt());
    }

    #[test]
    fn constant_gaps_are_equal() {
        assert!(
            gaps(Arrivals::Constant)
                .iter()
                .all(|g| (g - 10_000.0).abs() < 1e-3)
        );
    }

    #[test]
    fn every_connection_starts_once_within_the_span() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut stagger = Stagger::new(10, 1000, 1000, &mut rng);
        assert!(stagger.due(999).is_none());
        let mut seen: Vec<usize> = std::iter::from_fn(|| stagger.due(1050)).collect();
        assert!(seen.len() == 6 && !stagger.done(), "{seen:?}");
        seen.extend(std::iter::from_fn(|| stagger.due(1100)));
        seen.sort_unstable();
        assert!(stagger.done());
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
    }
}
