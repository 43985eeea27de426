//! Work that a thread does between two operations.

/// Words of the memory that is written, 1 MiB.
const WORDS: usize = 1 << 17;

/// External work (\[NR\] §4.1): writes to random words of the thread's own memory.
#[derive(Debug)]
pub(crate) struct External {
    writes: u32,
    memory: Box<[u64]>,
    /// The state of a random number generator (xorshift).
    random: u64,
}

impl External {
    /// Writes `writes` times after each operation; if that is zero, there is no memory.
    pub(crate) fn new(writes: u32) -> Self {
        let words = if writes > 0 { WORDS } else { 0 };
        Self {
            writes,
            memory: vec![1; words].into(),
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Does the work after one operation.
    #[inline(always)]
    pub(crate) fn work(&mut self) {
        for _ in 0..self.writes {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            self.memory[(self.random >> 32) as usize % WORDS] += 1;
        }
    }
}
