//! Input buffers of completed requests, kept for the next ones of the same loop.
//!
//! A request of some kilobytes often arrives in two reads, so its connection needs a buffer for a
//! moment. The allocator returns freed pages to the system at once (the program configures it so),
//! and a new buffer would fault its pages in again: three faults for each value of 10 KB.
//!
//! Guarantees: a loop keeps at most `limit` bytes, in buffers of [`LEAST`] to [`FREE`] bytes; a
//! buffer that is handed out is empty and has no more room than any connection may hold.

use crate::conn::FREE;

/// Smaller buffers are left to the allocator, which keeps their pages.
const LEAST: usize = 4 << 10;

/// The spare input buffers of a loop.
#[derive(Debug)]
pub(crate) struct SpareInputs {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
    limit: usize,
}

impl SpareInputs {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            buffers: Vec::new(),
            bytes: 0,
            limit,
        }
    }

    /// Bytes of all spare buffers.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps `buffer`, without its content, or frees it if it is unsuitable or the limit is
    /// reached.
    pub(crate) fn put(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if (LEAST..=FREE).contains(&capacity) && self.bytes + capacity <= self.limit {
            buffer.clear();
            self.bytes += capacity;
            self.buffers.push(buffer);
        }
    }

    /// Takes the newest spare buffer with room for `bytes`.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        if bytes < LEAST {
            return None;
        }
        let fits = |buffer: &Vec<u8>| buffer.capacity() >= bytes;
        let buffer = self
            .buffers
            .swap_remove(self.buffers.iter().rposition(fits)?);
        self.bytes -= buffer.capacity();
        Some(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacities(spares: &SpareInputs) -> Vec<usize> {
        spares.buffers.iter().map(Vec::capacity).collect()
    }

    #[test]
    fn buffers_are_kept_up_to_the_limit_and_come_back_empty() {
        let mut spares = SpareInputs::new(40 << 10);
        for capacity in [LEAST - 1, FREE + 1, 20 << 10, 16 << 10, 8 << 10, LEAST] {
            let mut buffer = Vec::with_capacity(capacity);
            buffer.extend_from_slice(b"set k 0 0 10000");
            spares.put(buffer);
        }
        // 8 KiB would exceed the limit; too small and too large buffers are not kept.
        assert_eq!(capacities(&spares), [20 << 10, 16 << 10, LEAST]);
        assert_eq!(spares.bytes(), 40 << 10);

        let buffer = spares.take(10_000).expect("two fit");
        assert_eq!((buffer.len(), buffer.capacity()), (0, 16 << 10));
        assert_eq!(spares.bytes(), 24 << 10);
        assert!(spares.take(FREE).is_none());
        assert!(spares.take(LEAST - 1).is_none(), "left to the allocator");
    }
}
