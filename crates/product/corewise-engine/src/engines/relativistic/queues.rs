//! The order of the segments: queues as doubly linked lists of indices.
//!
//! Every operation takes constant time and runs under the pool's lock. A segment stays in its queue
//! while it is claimed; it leaves the queue when it is retired.

/// The index of a segment.
pub(super) type Segment = u32;

/// No segment.
const NONE: Segment = Segment::MAX;

/// The queues of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// Recently stored items, if the policy distinguishes them.
    Small,
    /// Everything else.
    Main,
}

const COUNT: usize = 2;

#[derive(Clone, Copy)]
struct Ends {
    oldest: Segment,
    newest: Segment,
    bytes: u64,
}

pub(super) struct Queues {
    newer: Vec<Segment>,
    older: Vec<Segment>,
    /// The segment's queue, plus one; 0 for none.
    of: Vec<u8>,
    ends: [Ends; COUNT],
}

impl Queues {
    pub(super) fn new(segments: usize) -> Self {
        let none = Ends {
            oldest: NONE,
            newest: NONE,
            bytes: 0,
        };
        // Zeroed vectors, whose pages are allocated when touched: most segments are never used.
        Self {
            newer: vec![0; segments],
            older: vec![0; segments],
            of: vec![0; segments],
            ends: [none; COUNT],
        }
    }

    /// Bytes that the segments of a queue hold.
    pub(super) fn bytes(&self, queue: Queue) -> u64 {
        self.ends[queue as usize].bytes
    }

    pub(super) fn oldest(&self, queue: Queue) -> Option<Segment> {
        some(self.ends[queue as usize].oldest)
    }

    pub(super) fn newer(&self, segment: Segment) -> Option<Segment> {
        some(self.newer[segment as usize])
    }

    /// Adds a segment that holds `bytes` bytes, as the newest of `queue`.
    pub(super) fn insert(&mut self, segment: Segment, queue: Queue, bytes: u64) {
        debug_assert_eq!(self.of[segment as usize], 0);
        let ends = &mut self.ends[queue as usize];
        let before = std::mem::replace(&mut ends.newest, segment);
        match some(before) {
            Some(before) => self.newer[before as usize] = segment,
            None => ends.oldest = segment,
        }
        ends.bytes += bytes;
        self.older[segment as usize] = before;
        self.newer[segment as usize] = NONE;
        self.of[segment as usize] = queue as u8 + 1;
    }

    /// Removes a segment from its queue, if it is in one. It holds the same number of bytes as when
    /// it was inserted.
    pub(super) fn remove(&mut self, segment: Segment, bytes: u64) {
        let index = segment as usize;
        let Some(queue) = std::mem::take(&mut self.of[index]).checked_sub(1) else {
            return;
        };
        let (older, newer) = (self.older[index], self.newer[index]);
        let ends = &mut self.ends[queue as usize];
        match some(older) {
            Some(older) => self.newer[older as usize] = newer,
            None => ends.oldest = newer,
        }
        match some(newer) {
            Some(newer) => self.older[newer as usize] = older,
            None => ends.newest = older,
        }
        ends.bytes -= bytes;
    }
}

fn some(segment: Segment) -> Option<Segment> {
    (segment != NONE).then_some(segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(queues: &Queues, queue: Queue) -> Vec<Segment> {
        std::iter::successors(queues.oldest(queue), |at| queues.newer(*at)).collect()
    }

    #[test]
    fn segments_keep_their_order_wherever_one_leaves() {
        let queue = Queue::Main;
        for gone in 0..4 {
            let mut queues = Queues::new(4);
            (0..4).for_each(|segment| queues.insert(segment, queue, 10 + u64::from(segment)));
            queues.remove(gone, 10 + u64::from(gone));
            queues.remove(gone, 10 + u64::from(gone));
            let rest: Vec<_> = (0..4).filter(|segment| *segment != gone).collect();
            assert_eq!(order(&queues, Queue::Main), rest);
            queues.insert(gone, queue, 1);
            assert_eq!(order(&queues, Queue::Main), [rest, vec![gone]].concat());
            assert_eq!(queues.bytes(Queue::Main), 46 - 10 - u64::from(gone) + 1);
        }
    }

    #[test]
    fn queues_are_apart() {
        let mut queues = Queues::new(4);
        queues.insert(1, Queue::Small, 1);
        queues.insert(2, Queue::Main, 2);
        queues.insert(3, Queue::Small, 3);
        assert_eq!(order(&queues, Queue::Small), [1, 3]);
        queues.remove(1, 1);
        assert_eq!(order(&queues, Queue::Small), [3]);
        assert_eq!(order(&queues, Queue::Main), [2]);
        assert_eq!(
            (queues.bytes(Queue::Small), queues.bytes(Queue::Main)),
            (3, 2)
        );
    }
}
