//! A ring of words between one producer and one consumer, which moves whole cache lines
//! (\[CPHASH\] §3.4).
//!
//! ```text
//!  producer's own      shared, each on its own line       consumer's own
//!  ┌────────────┐      ┌───────┐                          ┌────────────┐
//!  │ next       │─────▶│ write │ up to here is readable ─▶│ next       │
//!  │ (temporary │      ├───────┤                          │            │
//!  │ write index)◀─────│ read  │◀─ up to here is free ────│            │
//!  └────────────┘      ├───────┴──────────────────────┐   └────────────┘
//!                      │ 8 words │ 8 words │ …        │ lines of words
//!                      └──────────────────────────────┘
//! ```
//!
//! The producer publishes its write index when a line is full, or when it is told to
//! [`flush`](Producer::flush). The consumer publishes its read index when it has read a line. Each
//! side keeps a copy of the other's index and looks at the index itself only if the copy does not
//! suffice. So eight words cost about one transfer of a line of words and one of each index.
//!
//! # Guarantees
//!
//! 1. *Order.* Words are read in the order in which they were written, each exactly once.
//!    Everything before a `flush` happens before the reading of its words.
//! 2. *Room.* A ring of n words accepts n words while nothing is read. Words that were read make
//!    room when their line has been read; the last ones, fewer than eight, do so later.
//! 3. *Progress.* All operations are wait-free.
//!
//! ```
//! use corewise_cphash::ring;
//!
//! let (mut producer, mut consumer) = ring::with_capacity(64);
//! std::thread::scope(|scope| {
//!     scope.spawn(move || {
//!         assert!(producer.push(1) && producer.push(2) && producer.push(3));
//!         producer.flush(); // three words do not fill a line
//!     });
//!     let mut sum = 0;
//!     while sum < 6 {
//!         sum += consumer.pop().unwrap_or(0);
//!     }
//! });
//! ```

use corewise_atomic::cell::DataCell;
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::AtomicUsize;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::{CachePadded, Slots, ordering};

/// Words of a line. Model checkers get short ones, so that small rings have several.
pub(crate) const LINE_WORDS: usize = if cfg!(any(corewise_loom, corewise_shuttle)) {
    2
} else {
    8
};

/// The fewest words of a ring: two lines.
const LEAST: usize = 2 * LINE_WORDS;

/// The most words of a ring.
pub const MAX_CAPACITY: usize = 1 << 24;

#[repr(align(64))]
struct RingLine([DataCell<u64>; LINE_WORDS]);

struct Ring {
    /// The number of words written and flushed, ever.
    write: CachePadded<AtomicUsize>,
    /// The number of words read, ever, rounded down to lines.
    read: CachePadded<AtomicUsize>,
    lines: Slots<RingLine>,
}

impl Ring {
    #[inline(always)]
    fn word(&self, index: usize) -> &DataCell<u64> {
        let line = (index / LINE_WORDS) & (self.lines.len() - 1);
        // SAFETY: the number of lines is a power of two, so the mask keeps the index below it.
        &unsafe { self.lines.get_unchecked(line) }.0[index % LINE_WORDS]
    }
}

/// Creates a ring of at least `words` words and returns its two ends.
///
/// The capacity is rounded up to a power of two, at least 16, and takes 8 bytes a word.
///
/// # Panics
///
/// If `words` exceeds [`MAX_CAPACITY`].
pub fn with_capacity(words: usize) -> (Producer, Consumer) {
    assert!(words <= MAX_CAPACITY, "a ring has at most 2^24 words");
    let capacity = words.max(LEAST).next_power_of_two();
    let ring = Arc::new(Ring {
        write: CachePadded::new(AtomicUsize::new(0)),
        read: CachePadded::new(AtomicUsize::new(0)),
        lines: Slots::from_fn(capacity / LINE_WORDS, |_| {
            RingLine(std::array::from_fn(|_| DataCell::new(0)))
        }),
    });
    let producer = Producer {
        ring: ring.clone(),
        next: 0,
        flushed: 0,
        end: capacity,
        capacity,
    };
    let consumer = Consumer {
        ring,
        next: 0,
        end: 0,
    };
    (producer, consumer)
}

/// The end that writes. Dropping it flushes.
pub struct Producer {
    ring: Arc<Ring>,
    /// The paper's temporary write index.
    next: usize,
    /// The write index as it was published last.
    flushed: usize,
    /// Up to here the ring is known to be free.
    end: usize,
    capacity: usize,
}

impl Producer {
    /// The words that the ring has room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The number of words that can be written now. Looks at the consumer's index only if there is
    /// room for fewer than `wanted`.
    #[inline]
    pub fn room(&mut self, wanted: usize) -> usize {
        if self.end.wrapping_sub(self.next) < wanted {
            // Acquire: pairs with the Release in `Consumer::advance`, so a word is read before it
            // is overwritten.
            let acquire = ordering!(Acquire, "ring_relaxed_room");
            let read = self.ring.read.load(acquire);
            self.end = read.wrapping_add(self.capacity);
        }
        self.end.wrapping_sub(self.next)
    }

    /// Writes a word and flushes if it ends a line. False if the ring is full.
    #[inline]
    #[must_use]
    pub fn push(&mut self, word: u64) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        // SAFETY: the slot is free, and only the producer writes; see `room`.
        unsafe { self.ring.word(self.next).write(word) };
        self.next = self.next.wrapping_add(1);
        if self.next.is_multiple_of(LINE_WORDS) {
            self.flush();
        }
        true
    }

    /// Makes all written words readable.
    #[inline]
    pub fn flush(&mut self) {
        if self.is_dirty() {
            self.flushed = self.next;
            // Release: pairs with the Acquire in `Consumer::readable`, so the words are seen.
            let release = ordering!(Release, "ring_relaxed_flush");
            self.ring.write.store(self.next, release);
        }
    }

    /// Whether some written words were not flushed.
    #[inline]
    pub fn is_dirty(&self) -> bool {
        self.flushed != self.next
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.flush();
    }
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Producer({} words written)", self.next)
    }
}

/// The end that reads.
pub struct Consumer {
    ring: Arc<Ring>,
    next: usize,
    /// Up to here the words are known to be readable.
    end: usize,
}

impl Consumer {
    /// The number of words that can be read now. Looks at the producer's index only if fewer than
    /// `wanted` are known.
    #[inline]
    pub fn readable(&mut self, wanted: usize) -> usize {
        if self.end.wrapping_sub(self.next) < wanted {
            // Acquire: pairs with the Release in `Producer::flush`.
            let acquire = ordering!(Acquire, "ring_relaxed_readable");
            self.end = self.ring.write.load(acquire);
        }
        self.end.wrapping_sub(self.next)
    }

    /// Reads the word that is `ahead` words behind the next one and leaves it there; `None` if it
    /// is not among the words that [`readable`](Self::readable) has found.
    #[inline]
    pub fn peek(&self, ahead: usize) -> Option<u64> {
        if ahead >= self.end.wrapping_sub(self.next) {
            return None;
        }
        let word = self.ring.word(self.next.wrapping_add(ahead));
        // SAFETY: the word was flushed, and is not overwritten before it has been read.
        Some(unsafe { word.read() })
    }

    /// Reads a word.
    #[inline]
    pub fn pop(&mut self) -> Option<u64> {
        self.readable(1);
        let word = self.peek(0)?;
        self.advance(1);
        Some(word)
    }

    /// Marks words that were peeked at as read.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        assert!(
            count <= self.end.wrapping_sub(self.next),
            "only readable words can be read"
        );
        let before = self.next;
        self.next = before.wrapping_add(count);
        if before / LINE_WORDS != self.next / LINE_WORDS {
            let whole_lines = self.next - self.next % LINE_WORDS;
            // Release: pairs with the Acquire in `Producer::room`.
            let release = ordering!(Release, "ring_relaxed_read");
            self.ring.read.store(whole_lines, release);
        }
    }

    /// Whether words were flushed since [`readable`](Self::readable) last looked at the producer's
    /// index. Reads no words, and orders nothing.
    #[inline]
    pub fn has_news(&self) -> bool {
        // Relaxed: the caller orders this load by a barrier, or needs no order.
        self.ring.write.load(Relaxed) != self.end
    }
}

impl std::fmt::Debug for Consumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Consumer({} words read)", self.next)
    }
}

#[cfg(test)]
mod models {
    use super::*;
    use corewise_atomic::{model_bounded, thread};

    /// Guarantees 1 and 2, in a ring of two lines that is filled more than once.
    #[test]
    fn words_arrive_once_and_in_order() {
        const WORDS: u64 = 3 * LEAST as u64 / 2 + 1;
        model_bounded(3, || {
            let (mut producer, mut consumer) = with_capacity(LEAST);
            let writer = thread::spawn(move || {
                for word in 0..WORDS {
                    while !producer.push(word) {
                        thread::yield_now();
                    }
                }
            });
            for expected in 0..WORDS {
                let word = loop {
                    match consumer.pop() {
                        Some(word) => break word,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(word, expected);
            }
            writer.join().unwrap();
            assert_eq!(consumer.pop(), None);
        });
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn words_become_readable_line_by_line_or_when_flushed() {
        let (mut producer, mut consumer) = with_capacity(1);
        assert_eq!(producer.capacity(), 16);
        assert!((0..7).all(|_| producer.push(7)));
        assert_eq!(consumer.pop(), None);
        assert!(producer.push(7) && !producer.is_dirty());
        assert_eq!(consumer.readable(1), 8);
        assert!(producer.push(8) && producer.is_dirty());
        assert_eq!(consumer.readable(9), 8);
        drop(producer);
        assert_eq!(consumer.readable(9), 9);
        assert_eq!((consumer.peek(8), consumer.peek(9)), (Some(8), None));
    }

    #[test]
    fn a_full_ring_accepts_words_when_a_line_was_read() {
        let (mut producer, mut consumer) = with_capacity(16);
        assert!((0..16).all(|_| producer.push(1)));
        assert!(!producer.push(2));
        assert!((0..7).all(|_| consumer.pop() == Some(1)));
        assert!(!producer.push(2));
        assert_eq!(consumer.pop(), Some(1));
        assert_eq!(producer.room(1), 8);
    }

    #[test]
    fn indices_may_overflow() {
        let (mut producer, mut consumer) = with_capacity(16);
        let start = usize::MAX - 15;
        (producer.next, producer.flushed, consumer.next, consumer.end) =
            (start, start, start, start);
        producer.ring.write.store(start, Release);
        producer.ring.read.store(start, Release);
        producer.end = start.wrapping_add(16);
        for word in 0..100 {
            assert!(producer.push(word));
            producer.flush();
            assert_eq!(consumer.pop(), Some(word));
        }
    }
}
