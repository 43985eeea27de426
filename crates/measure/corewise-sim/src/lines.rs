//! Cache lines: their numbers, their versions, the threads that wait for a write, and the directory
//! of the machine's model.

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

/// A line, and which caches of the model hold it.
///
/// ```text
/// sharers 16 | ready 8 | version 4 | watchers 4 | owner 2 | home 1 | shared caches 1 | dirty 1
/// ```
#[derive(Clone, Default)]
pub(crate) struct Line {
    /// The cores whose private caches hold it, as bits.
    pub(crate) sharers: [u64; 2],
    /// When the last transfer ends; a later request waits for it.
    pub(crate) ready: u64,
    version: u32,
    /// One more than the place of the list of watchers; 0 is none.
    watchers: u32,
    /// One more than the core whose copy others are to get; 0 is none. It may write the line if it
    /// is the only sharer.
    pub(crate) owner: u16,
    /// The node of its memory.
    pub(crate) home: u8,
    /// The sockets whose shared caches hold it, as bits.
    pub(crate) shared: u8,
    /// Whether the memory has an older value.
    pub(crate) is_dirty: bool,
}

const _: () = assert!(size_of::<Line>() == 40);

/// All lines of pages that were accessed. Numbers, not addresses, decide what happens, because
/// addresses differ between runs. Pages are numbered in the order of their first use, so a line's
/// number is that of its page and its place in the page.
pub(crate) struct Lines {
    numbers: HashMap<usize, u32, BuildHasherDefault<AddressHasher>>,
    recent: Box<[(usize, u32)]>,
    pub(crate) lines: Vec<Line>,
    /// The watchers of lines that have some: at most one entry a thread; those of waits that are
    /// over are skipped by the engine. As many lists as lines had watchers at once.
    watchers: Vec<Vec<Watcher>>,
    /// The lists that are empty and of no line.
    free: Vec<u32>,
    limit: usize,
}

impl Lines {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            numbers: HashMap::default(),
            recent: vec![(usize::MAX, 0); RECENT].into(),
            lines: Vec::new(),
            watchers: Vec::new(),
            free: Vec::new(),
            limit,
        }
    }

    /// The number of a line (an address without its lowest bits); `None` at the limit. A page that
    /// is new gets its memory from this node.
    #[inline]
    pub(crate) fn number_at(&mut self, line: usize, node: u8) -> Option<u32> {
        let page = line >> PAGE_SHIFT;
        let recent = self.recent[page % RECENT];
        let first = if recent.0 == page {
            recent.1
        } else {
            self.find(page, node)?
        };
        Some(first + (line % PAGE) as u32)
    }

    /// The number of the first line of a page.
    fn find(&mut self, page: usize, home: u8) -> Option<u32> {
        let next = self.lines.len();
        let is_full = next + PAGE > self.limit.next_multiple_of(PAGE);
        let number = match self.numbers.get(&page) {
            Some(&number) => number,
            None if is_full => return None,
            None => {
                let number = next as u32;
                self.numbers.insert(page, number);
                let line = Line {
                    home,
                    ..Line::default()
                };
                self.lines.resize(next + PAGE, line);
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
        match std::mem::take(&mut line.watchers) {
            0 => Vec::new(),
            list => {
                self.free.push(list - 1);
                std::mem::take(&mut self.watchers[list as usize - 1])
            }
        }
    }

    pub(crate) fn watch(&mut self, number: u32, watcher: Watcher) {
        let line = &mut self.lines[number as usize];
        if line.watchers == 0 {
            line.watchers = 1 + self.free.pop().unwrap_or_else(|| {
                self.watchers.push(Vec::new());
                self.watchers.len() as u32 - 1
            });
        }
        let watchers = &mut self.watchers[line.watchers as usize - 1];
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
        let numbers = [9 * PAGE + 3, 5 * PAGE, 9 * PAGE].map(|line| lines.number_at(line, 0));
        assert_eq!(numbers, [3, 64, 0].map(Some));
        // Two pages in one place of the table of recent ones.
        assert_eq!(lines.number_at((9 + RECENT) * PAGE + 1, 0), Some(129));
        assert_eq!(lines.number_at(9 * PAGE, 0), Some(0));
        assert_eq!(lines.number_at(7 * PAGE, 0), None);
        assert_eq!(lines.number_at(5 * PAGE + 63, 0), Some(127));
    }

    #[test]
    fn a_write_hands_out_the_last_wait_of_each_thread_once() {
        let mut lines = Lines::new(1);
        lines.number_at(1, 0);
        for (thread, wait) in [(4, 1), (6, 1), (4, 2)] {
            lines.watch(0, Watcher { thread, wait });
        }
        let [four, six] = [(4, 2), (6, 1)].map(|(thread, wait)| Watcher { thread, wait });
        assert_eq!(lines.write(0), [four, six]);
        assert_eq!(lines.write(0), []);
        assert_eq!(lines.version(0), 2);
    }
}
