//! Cache lines: their numbers, their versions, and the threads that wait for a write.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Bytes of a line, as a shift.
pub(crate) const LINE_SHIFT: u32 = 6;
/// Lines of a page, as a shift.
const PAGE_SHIFT: u32 = 6;
const PAGE: usize = 1 << PAGE_SHIFT;
/// Pages in the direct-mapped table in front of the hash table: 64 MiB of memory, in 512 KiB.
const RECENT: usize = 1 << 15;

/// Who waits: the thread, and which of its waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watcher {
    pub(crate) thread: u32,
    pub(crate) wait: u32,
}

#[derive(Default)]
struct Line {
    version: u32,
    /// At most one entry a thread; those of waits that are over are skipped by the engine.
    watchers: Vec<Watcher>,
}

/// All lines of pages that were accessed. Numbers, not addresses, decide what happens, because
/// addresses differ between runs. Pages are numbered in the order of their first use, so a line's
/// number is that of its page and its place in the page.
pub(crate) struct Lines {
    numbers: HashMap<usize, u32, BuildHasherDefault<AddressHasher>>,
    recent: Box<[(usize, u32)]>,
    lines: Vec<Line>,
    limit: usize,
}

impl Lines {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            numbers: HashMap::default(),
            recent: vec![(usize::MAX, 0); RECENT].into(),
            lines: Vec::new(),
            limit,
        }
    }

    /// The number of a line (an address without its lowest bits); `None` at the limit.
    #[inline]
    pub(crate) fn number(&mut self, line: usize) -> Option<u32> {
        let page = line >> PAGE_SHIFT;
        let recent = self.recent[page % RECENT];
        let first = if recent.0 == page {
            recent.1
        } else {
            self.find(page)?
        };
        Some(first + (line % PAGE) as u32)
    }

    /// The number of the first line of a page.
    fn find(&mut self, page: usize) -> Option<u32> {
        let next = self.lines.len();
        let is_full = next + PAGE > self.limit.next_multiple_of(PAGE);
        let number = match self.numbers.get(&page) {
            Some(&number) => number,
            None if is_full => return None,
            None => {
                let number = next as u32;
                self.numbers.insert(page, number);
                self.lines.resize_with(next + PAGE, Line::default);
                number
            }
        };
        self.recent[page % RECENT] = (page, number);
        Some(number)
    }

    #[inline]
    pub(crate) fn version(&self, number: u32) -> u32 {
        self.lines[number as usize].version
    }

    /// Notes a write; returns the threads to wake.
    #[inline]
    pub(crate) fn write(&mut self, number: u32) -> Vec<Watcher> {
        let line = &mut self.lines[number as usize];
        line.version = line.version.wrapping_add(1);
        std::mem::take(&mut line.watchers)
    }

    pub(crate) fn watch(&mut self, number: u32, watcher: Watcher) {
        let watchers = &mut self.lines[number as usize].watchers;
        match watchers.iter_mut().find(|w| w.thread == watcher.thread) {
            Some(old) => *old = watcher,
            None => watchers.push(watcher),
        }
    }
}

/// Multiplicative hashing (Knuth, TAOCP 3 §6.4); the same in every run, unlike `std`'s.
#[derive(Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_usize(byte.into());
        }
    }

    fn write_usize(&mut self, number: usize) {
        let mixed = (self.0 ^ number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ mixed >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_numbered_in_the_order_of_their_first_use() {
        let mut lines = Lines::new(3 * PAGE);
        let numbers = [9 * PAGE + 3, 5 * PAGE, 9 * PAGE].map(|line| lines.number(line));
        assert_eq!(numbers, [3, 64, 0].map(Some));
        // Two pages in one place of the table of recent ones.
        assert_eq!(lines.number((9 + RECENT) * PAGE + 1), Some(129));
        assert_eq!(lines.number(9 * PAGE), Some(0));
        assert_eq!(lines.number(7 * PAGE), None);
        assert_eq!(lines.number(5 * PAGE + 63), Some(127));
    }

    #[test]
    fn a_write_hands_out_the_last_wait_of_each_thread_once() {
        let mut lines = Lines::new(1);
        lines.number(1);
        for (thread, wait) in [(4, 1), (6, 1), (4, 2)] {
            lines.watch(0, Watcher { thread, wait });
        }
        let [four, six] = [(4, 2), (6, 1)].map(|(thread, wait)| Watcher { thread, wait });
        assert_eq!(lines.write(0), [four, six]);
        assert_eq!(lines.write(0), []);
        assert_eq!(lines.version(0), 2);
    }
}
