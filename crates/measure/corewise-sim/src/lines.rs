//! Cache lines: their numbers by first use, their versions, and the threads that wait for a write.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Bytes of a line, as a shift.
pub(crate) const LINE_SHIFT: u32 = 6;
/// Entries of the direct-mapped table in front of the hash table.
const RECENT: usize = 4096;

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

/// All lines that were accessed. Numbers, not addresses, decide what happens, because addresses
/// differ between runs.
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
        let recent = &self.recent[line % RECENT];
        if recent.0 == line {
            return Some(recent.1);
        }
        self.find(line)
    }

    fn find(&mut self, line: usize) -> Option<u32> {
        let next = self.lines.len();
        let is_full = next >= self.limit;
        let number = match self.numbers.get(&line) {
            Some(&number) => number,
            None if is_full => return None,
            None => {
                let number = next as u32;
                self.numbers.insert(line, number);
                self.lines.push(Line::default());
                number
            }
        };
        self.recent[line % RECENT] = (line, number);
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
    fn lines_are_numbered_in_the_order_of_their_first_use() {
        let mut lines = Lines::new(3);
        assert_eq!(
            [9, 5, 9].map(|line| lines.number(line)),
            [0, 1, 0].map(Some)
        );
        // Two lines in one place of the table of recent ones.
        assert_eq!(lines.number(9 + RECENT), Some(2));
        assert_eq!(lines.number(9), Some(0));
        assert_eq!(lines.number(7), None);
        assert_eq!(lines.number(5), Some(1));
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
