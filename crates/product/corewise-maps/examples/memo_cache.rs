//! A function that remembers its results, for all threads: they read what another thread has
//! computed without a lock, and get references.
//!
//! ```text
//! cargo run --release -p corewise-maps --example memo_cache
//! ```

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corewise_maps::RelativisticMap;

/// The prime factors of numbers.
#[derive(Default)]
struct Factors {
    known: RelativisticMap<u64, Vec<u64>>,
    computed: AtomicU64,
}

impl Factors {
    /// Calls `use_them` with the prime factors of a number.
    fn with<R>(&self, number: u64, use_them: impl FnOnce(&[u64]) -> R) -> R {
        let known = self.known.pin();
        let factors = known.get_or_insert_with(number, || {
            // Two threads may compute the same result at the same time; one of them is kept.
            self.computed.fetch_add(1, Relaxed);
            factors(number)
        });
        use_them(factors)
    }
}

fn factors(mut number: u64) -> Vec<u64> {
    let mut factors = Vec::new();
    let mut divisor = 2;
    while divisor * divisor <= number {
        while number.is_multiple_of(divisor) {
            factors.push(divisor);
            number /= divisor;
        }
        divisor += 1;
    }
    factors.extend((number > 1).then_some(number));
    factors
}

fn main() {
    const NUMBERS: u64 = 5_000;
    const THREADS: u64 = 4;
    let memo = Factors::default();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for number in 1..=NUMBERS {
                    let product: u64 = memo.with(number, |factors| factors.iter().product());
                    assert_eq!(product, number);
                }
            });
        }
    });
    let computed = memo.computed.into_inner();
    assert_eq!(memo.known.len() as u64, NUMBERS);
    assert!((NUMBERS..=THREADS * NUMBERS).contains(&computed));
    println!("{computed} computations for {} calls", THREADS * NUMBERS);
}
