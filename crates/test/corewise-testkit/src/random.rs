//! Reproducible choices, and how much work a test does.

/// A small pseudo-random sequence (xorshift) with a seed that is not zero. Not for statistics.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// A sequence for any seed, also 0.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        Self((seed << 1 | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A number below `bound`.
    ///
    /// ```
    /// use corewise_testkit::random::Random;
    /// let (mut one, mut other) = (Random(7), Random(7));
    /// assert!((0..100).all(|_| one.below(10) == other.below(10)));
    /// assert!((0..1_000).any(|_| one.below(10) == 9));
    /// ```
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % bound
    }

    /// An index of a slice of this length.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// One of `choices`.
    pub fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }
}

/// Whether tests are to do less, as under a sanitizer: `COREWISE_FEWER` is set.
#[must_use]
pub fn is_short() -> bool {
    std::env::var_os("COREWISE_FEWER").is_some()
}

/// `count`, or an eighth of it if [tests are to do less](is_short).
#[must_use]
pub fn fewer(count: u64) -> u64 {
    if is_short() { count.div_ceil(8) } else { count }
}
