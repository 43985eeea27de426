//! What requests wait for: ports, and places in buffers.

use std::collections::VecDeque;

/// Serves one request after the other.
#[derive(Clone, Default)]
pub(super) struct Port {
    free_at: u64,
}

impl Port {
    /// How long a request that arrives at this time waits for its service to begin.
    #[inline]
    pub(super) fn wait(&mut self, at: u64, service: u64) -> u64 {
        let begin = at.max(self.free_at);
        self.free_at = begin + service;
        begin - at
    }
}

/// A buffer of requests that end in their order, or of which at least the first one is waited for.
pub(super) struct InFlight {
    limit: usize,
    requests: VecDeque<(u32, u64)>,
    /// The latest end.
    last: u64,
}

impl InFlight {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            requests: VecDeque::with_capacity(limit),
            last: 0,
        }
    }

    /// When there is a place for a request that comes at this time.
    #[inline]
    pub(super) fn place_at(&mut self, now: u64) -> u64 {
        while self.requests.front().is_some_and(|&(_, end)| end <= now) {
            self.requests.pop_front();
        }
        if self.requests.len() < self.limit {
            return now;
        }
        self.requests.pop_front().map_or(now, |(_, end)| end)
    }

    /// Adds one after [`place_at`](Self::place_at).
    #[inline]
    pub(super) fn add(&mut self, line: u32, end: u64) {
        self.requests.push_back((line, end));
        self.last = self.last.max(end);
    }

    /// When the request for this line ends, if there is one.
    #[inline]
    pub(super) fn end_of(&self, line: u32) -> Option<u64> {
        let of_line = self.requests.iter().rev().find(|request| request.0 == line);
        of_line.map(|&(_, end)| end)
    }

    /// When all have ended.
    #[inline]
    pub(super) fn empty_at(&self) -> u64 {
        self.last
    }

    #[inline]
    pub(super) fn is_empty_at(&self, now: u64) -> bool {
        self.last <= now
    }
}
