//! Sizes of input buffers, and buffers of completed requests, kept for the next ones of the same
//! loop.
//!
//! The allocator keeps pages for each size that a thread has used, so inputs have few
//! [sizes](input_capacity).
//!
//! A request of some kilobytes often arrives in two reads, so its connection needs a buffer for a
//! moment. The allocator returns freed pages to the system at once (the program configures it so),
//! and a new buffer would fault its pages in again: three faults for each value of 10 KB.
//!
//! Guarantees: a loop keeps at most `limit` bytes, in buffers of [`LEAST`] to [`FREE`] bytes; a
//! buffer that is handed out is empty and has no more room than any connection may hold.

/// Bytes of input that every connection may have.
pub(crate) const FREE: usize = 32 << 10;
/// Smaller buffers are left to the allocator, which keeps their pages.
const LEAST: usize = 4 << 10;

/// Bytes of the smallest input buffer.
const SMALLEST: usize = 256;

/// The capacity of an input buffer for `bytes` bytes: a power of two or, beyond [`FREE`], one and a
/// half of it. Only the pages that are written take memory.
pub(crate) fn input_capacity(bytes: usize) -> usize {
    let capacity = bytes.next_power_of_two().max(SMALLEST);
    let between = capacity / 4 * 3;
    if capacity > FREE && bytes <= between {
        between
    } else {
        capacity
    }
}

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
    fn inputs_have_few_sizes() {
        let mut sizes: Vec<usize> = (0..1 << 20).step_by(37).map(input_capacity).collect();
        sizes.dedup();
        assert!(sizes.is_sorted() && sizes.len() == 18, "{sizes:?}");
        for bytes in (0..1 << 20).step_by(37) {
            let capacity = input_capacity(bytes);
            let most = if capacity > FREE {
                bytes + bytes / 2
            } else {
                2 * bytes
            };
            assert!(
                (bytes..=most.max(SMALLEST)).contains(&capacity),
                "{bytes}: {capacity}"
            );
        }
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
