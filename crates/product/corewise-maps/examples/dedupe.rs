//! Several threads receive messages, many of them more than once: a set tells who sees one first.
//!
//! ```text
//! cargo run --release -p corewise-maps --example dedupe
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corewise_maps::RelativisticSet;

const THREADS: u64 = 4;
const MESSAGES: u64 = 20_000;
const SENDERS: u64 = 7;

fn main() {
    let seen = RelativisticSet::with_capacity(MESSAGES as usize);
    let senders: RelativisticSet<Arc<str>> = RelativisticSet::new();
    let (delivered, dropped) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (seen, senders, delivered, dropped) = (&seen, &senders, &delivered, &dropped);
            scope.spawn(move || {
                // Each thread receives all messages, in another order.
                for n in 0..MESSAGES {
                    let id = (n * 7_919 + thread * 5_000) % MESSAGES;
                    if !seen.insert(id) {
                        dropped.fetch_add(1, Relaxed);
                        continue;
                    }
                    delivered.fetch_add(1, Relaxed);
                    // Equal names share one allocation.
                    let name = Arc::from(format!("sender {}", id % SENDERS));
                    let name: Arc<str> = Arc::clone(senders.pin().get_or_insert(name));
                    assert!(Arc::strong_count(&name) >= 2);
                }
            });
        }
    });
    assert_eq!(delivered.into_inner(), MESSAGES);
    assert_eq!(dropped.into_inner(), (THREADS - 1) * MESSAGES);
    assert_eq!(senders.len() as u64, SENDERS);

    // Old messages are forgotten.
    let forgotten = seen.pin().extract_if(|id| id % 2 == 0).count();
    assert_eq!(forgotten as u64, MESSAGES / 2);
    assert!(!seen.contains(&0) && seen.contains(&1));
    println!("{} of {MESSAGES} messages are remembered", seen.len());
}
