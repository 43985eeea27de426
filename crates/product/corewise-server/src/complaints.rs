//! A rate limit for a repeated log message.

use std::time::{Duration, Instant};

/// Minimum interval between two messages.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// When a message was logged last.
#[derive(Default)]
pub(crate) struct Complaints {
    last: Option<Instant>,
    unsaid: u64,
}

impl Complaints {
    /// Whether to log the message at `now`: if so, how often it was left out since the last time.
    pub(crate) fn due(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now - last < COMPLAIN_EVERY) {
            self.unsaid += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_logged_once_in_an_interval() {
        let mut complaints = Complaints::default();
        let start = Instant::now();
        assert_eq!(complaints.due(start), Some(0));
        for _ in 0..7 {
            let soon = start + COMPLAIN_EVERY - Duration::from_millis(1);
            assert_eq!(complaints.due(soon), None);
        }
        assert_eq!(complaints.due(start + COMPLAIN_EVERY), Some(7));
        assert_eq!(complaints.due(start + COMPLAIN_EVERY), None);
        assert_eq!(complaints.due(start + 2 * COMPLAIN_EVERY), Some(1));
    }
}
