//! Words through a ring from one thread to another, in batches of 512.

use std::thread::yield_now;
use std::time::Instant;

use corewise_cphash::ring;

use crate::report::{Candidate, Options, compare};

const BATCH: usize = 512;
const WORDS: usize = 1 << 22;
const CAPACITY: usize = 4096;

fn ours() -> f64 {
    let (mut producer, mut consumer) = ring::with_capacity(CAPACITY);
    measure(
        move || {
            let batch = [7; BATCH];
            let mut sent = 0;
            while sent < WORDS {
                if producer.room(BATCH) < BATCH {
                    yield_now();
                    continue;
                }
                sent += producer.push_all(&batch);
            }
        },
        move || {
            let (mut received, mut sum) = (0, 0u64);
            while received < WORDS {
                if consumer.readable(BATCH) < BATCH {
                    yield_now();
                    continue;
                }
                received += consumer.pop_all(BATCH, |word| sum = sum.wrapping_add(word));
            }
            sum
        },
    )
}

#[cfg(feature = "peers")]
fn theirs() -> f64 {
    let (mut producer, mut consumer) = rtrb::RingBuffer::new(CAPACITY);
    measure(
        move || {
            let batch = [7u64; BATCH];
            let mut sent = 0;
            while sent < WORDS {
                match producer.write_chunk_uninit(BATCH) {
                    Ok(chunk) => sent += chunk.fill_from_iter(batch.iter().copied()),
                    Err(_) => yield_now(),
                }
            }
        },
        move || {
            let (mut received, mut sum) = (0, 0u64);
            while received < WORDS {
                match consumer.read_chunk(BATCH) {
                    Ok(chunk) => {
                        received += BATCH;
                        sum = chunk.into_iter().fold(sum, u64::wrapping_add);
                    }
                    Err(_) => yield_now(),
                }
            }
            sum
        },
    )
}

/// Millions of words per second.
fn measure(send: impl FnOnce() + Send, receive: impl FnOnce() -> u64 + Send) -> f64 {
    std::thread::scope(|scope| {
        let sender = scope.spawn(send);
        let start = Instant::now();
        let sum = receive();
        let seconds = start.elapsed().as_secs_f64();
        assert_eq!(sum, 7 * WORDS as u64);
        sender.join().expect("it does not panic");
        WORDS as f64 / seconds / 1e6
    })
}

pub(crate) fn run(options: &Options) {
    let candidates = vec![
        Candidate::new("ring", ours),
        #[cfg(feature = "peers")]
        Candidate::new("rtrb chunks", theirs),
    ];
    compare("ring: millions of words per second", options, 1, candidates);
}
