//! Backing off in loops that wait for another thread, or that retry after losing to one.

use std::time::Duration;

use crate::{hint, thread};

/// Rounds that spin: once, twice, four times and so on.
const SPIN_ROUNDS: u32 = 7;
/// Rounds after which a [`Backoff`] is completed: a few have yielded.
const COMPLETED_ROUNDS: u32 = SPIN_ROUNDS + 4;

/// Exponential backoff: longer pauses from round to round of a loop.
///
/// The shape is that of `crossbeam_utils::Backoff`. Which method a loop calls depends on what it
/// does:
///
/// | the loop | method | first rounds | later |
/// |---|---|---|---|
/// | retries, because another thread was faster | [`spin`](Self::spin) | spin, up to 64 times | the same |
/// | waits until another thread has done something short | [`snooze`](Self::snooze) | spin | yield the processor |
/// | waits for something that may take long | [`snooze_or_sleep`](Self::snooze_or_sleep) | spin | yield, then sleep |
///
/// A loop that can park should do so when [`is_completed`](Self::is_completed) is true. Backing off
/// limits nothing: a loop that must end counts its own rounds.
///
/// Under loom and shuttle each pause is a single yield. They explore schedules and have no use for
/// further spins or sleeps, each of which would be one more schedule.
///
/// ```
/// use corewise_atomic::sync::atomic::{AtomicBool, Ordering};
/// use corewise_atomic::{Backoff, sync::Arc, thread};
///
/// corewise_atomic::model(|| {
///     let is_ready = Arc::new(AtomicBool::new(false));
///     let other = is_ready.clone();
///     let thread = thread::spawn(move || other.store(true, Ordering::Release)); // pairs with below
///     let mut backoff = Backoff::new();
///     while !is_ready.load(Ordering::Acquire) { // pairs with the Release above
///         backoff.snooze();
///     }
///     thread.join().unwrap();
/// });
/// ```
#[derive(Clone, Debug, Default)]
pub struct Backoff {
    /// The number of pauses so far.
    round: u32,
}

/// When and for how long [`Backoff::snooze_or_sleep`] sleeps.
///
/// ```
/// use std::time::Duration;
///
/// use corewise_atomic::{Backoff, Sleeps};
///
/// /// 13 yields, and then 100 µs, 200 µs, 400 µs, 400 µs, ...
/// const SLEEPS: Sleeps = Sleeps {
///     after_rounds: 20,
///     shortest: Duration::from_micros(100),
///     longest: Duration::from_micros(400),
/// };
/// let mut backoff = Backoff::new();
/// (0..25).for_each(|_| backoff.snooze_or_sleep(&SLEEPS));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleeps {
    /// Rounds before the first sleep; the first seven spin, the others yield.
    pub after_rounds: u32,
    /// The first sleep. Each further one is twice as long as the one before.
    pub shortest: Duration,
    /// The longest sleep.
    pub longest: Duration,
}

/// What a thread does in a round.
#[derive(Debug, PartialEq, Eq)]
enum Pause {
    /// Spins this number of times.
    Spin(u32),
    Yield,
    Sleep(Duration),
}

impl Backoff {
    /// Creates a backoff that begins with the shortest pause.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self { round: 0 }
    }

    /// Begins with the shortest pause again, for a loop that has made progress.
    #[inline]
    pub fn reset(&mut self) {
        self.round = 0;
    }

    /// Pauses before the next attempt of a lock-free loop, whose last attempt failed because
    /// another thread made progress.
    #[inline]
    pub fn spin(&mut self) {
        Pause::Spin(spins(self.advance())).take();
    }

    /// Pauses in a loop that waits for another thread. Spins first, and yields when the other
    /// thread may have been preempted.
    #[inline]
    pub fn snooze(&mut self) {
        self.next_pause(None).take();
    }

    /// Pauses in a loop that may wait for long, such as for a grace period. As
    /// [`snooze`](Self::snooze), and after a number of rounds it sleeps.
    #[inline]
    pub fn snooze_or_sleep(&mut self, sleeps: &Sleeps) {
        self.next_pause(Some(sleeps)).take();
    }

    /// Whether the loop has waited for so long that it should park, if it can. Under loom and
    /// shuttle this is always true, so that models cover what the loop does then.
    #[inline]
    #[must_use]
    pub fn is_completed(&self) -> bool {
        cfg!(any(corewise_loom, corewise_shuttle)) || self.round >= COMPLETED_ROUNDS
    }

    #[inline]
    fn advance(&mut self) -> u32 {
        let round = self.round;
        self.round = round.saturating_add(1);
        round
    }

    #[inline]
    fn next_pause(&mut self, sleeps: Option<&Sleeps>) -> Pause {
        let round = self.advance();
        match sleeps {
            Some(sleeps) if round >= sleeps.after_rounds => Pause::Sleep(sleeps.length(round)),
            _ if round < SPIN_ROUNDS => Pause::Spin(spins(round)),
            _ => Pause::Yield,
        }
    }
}

impl Sleeps {
    /// The length of the sleep in a round that is not before the first sleep.
    fn length(&self, round: u32) -> Duration {
        let factor = 1u32.checked_shl(round - self.after_rounds);
        let length = self.shortest.saturating_mul(factor.unwrap_or(u32::MAX));
        length.min(self.longest)
    }
}

/// How often a round spins.
#[inline]
fn spins(round: u32) -> u32 {
    1 << round.min(SPIN_ROUNDS - 1)
}

impl Pause {
    #[inline]
    fn take(self) {
        match self {
            _ if cfg!(any(corewise_loom, corewise_shuttle)) => thread::yield_now(),
            #[cfg(corewise_sim)]
            Pause::Spin(times) => hint::spin_times(times),
            #[cfg(not(corewise_sim))]
            Pause::Spin(times) => (0..times).for_each(|_| hint::spin_loop()),
            Pause::Yield => thread::yield_now(),
            Pause::Sleep(length) => thread::sleep(length),
        }
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::Pause::{Sleep, Spin, Yield};
    use super::*;

    const SLEEPS: Sleeps = Sleeps {
        after_rounds: 9,
        shortest: Duration::from_micros(30),
        longest: Duration::from_micros(100),
    };

    #[test]
    fn a_waiting_thread_spins_then_yields_then_sleeps() {
        let mut backoff = Backoff::new();
        let mut pauses = |sleeps, rounds| -> Vec<Pause> {
            (0..rounds).map(|_| backoff.next_pause(sleeps)).collect()
        };
        assert_eq!(pauses(None, 7), [1, 2, 4, 8, 16, 32, 64].map(Spin));
        assert_eq!(pauses(Some(&SLEEPS), 2), [Yield, Yield]);
        let lengths = [30, 60, 100, 100].map(Duration::from_micros);
        assert_eq!(pauses(Some(&SLEEPS), 4), lengths.map(Sleep));
        assert_eq!(pauses(None, 1), [Yield]);
        backoff.reset();
        assert_eq!(backoff.next_pause(Some(&SLEEPS)), Spin(1));
    }

    #[test]
    fn a_retrying_thread_only_spins() {
        let mut backoff = Backoff::new();
        let all: Vec<u32> = (0..10).map(|_| spins(backoff.advance())).collect();
        assert_eq!(all, [1, 2, 4, 8, 16, 32, 64, 64, 64, 64]);
    }

    #[test]
    fn a_backoff_is_completed_after_some_yields() {
        let mut backoff = Backoff::new();
        let mut rounds = 0;
        while !backoff.is_completed() {
            backoff.snooze();
            rounds += 1;
        }
        assert_eq!(rounds, 11);
        backoff.reset();
        assert!(!backoff.is_completed());
    }

    #[test]
    fn rounds_and_sleeps_do_not_overflow() {
        let mut backoff = Backoff { round: u32::MAX };
        assert_eq!(
            backoff.next_pause(Some(&SLEEPS)),
            Sleep(Duration::from_micros(100))
        );
        assert_eq!(spins(backoff.advance()), 64);
        assert_eq!(backoff.next_pause(None), Yield);
        let endless = Sleeps {
            longest: Duration::MAX,
            ..SLEEPS
        };
        assert!(endless.length(u32::MAX) >= Duration::from_secs(3600));
    }
}
