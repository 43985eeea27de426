//! Threads and replicas that come and go, operations that panic, and readers that check what they
//! see. For the sanitizers too. `COREWISE_STRESS_OPS` sets the operations of each thread.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use crate::common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use common::{Random, scaled};
use corewise_nr::{Builder, NodeReplicated, Sequential};
use corewise_testkit::stress::{beside, come_and_go};

/// Sums of the values and of their squares, in boxes, so that a torn or freed value shows.
#[derive(Clone, Default)]
struct Sums(Box<[u64; 2]>);

enum Write {
    Add(Box<u64>),
    AddAndPanic(Box<u64>),
}

impl Sequential for Sums {
    type Read = ();
    type Write = Write;
    type Response = Box<[u64; 2]>;

    fn read(&self, (): &()) -> Box<[u64; 2]> {
        self.0.clone()
    }

    fn write(&mut self, operation: &Write) -> Box<[u64; 2]> {
        let (Write::Add(value) | Write::AddAndPanic(value)) = operation;
        self.0[0] += **value;
        self.0[1] += **value * **value;
        assert!(matches!(operation, Write::Add(_)), "expected by the test");
        self.0.clone()
    }

    fn digest(&self) -> Option<u64> {
        Some(common::mix(self.0[0], self.0[1]))
    }
}

fn operations() -> u64 {
    let wanted = std::env::var("COREWISE_STRESS_OPS").ok();
    wanted.map_or(scaled(24_000), |text| text.parse().expect("a number"))
}

/// Executes some operations, and returns the sums of what it wrote.
fn use_for_a_while(shared: &NodeReplicated<Sums>, seed: u64, operations: u64) -> [u64; 2] {
    let mut random = Random::from_seed(seed);
    let mut written = [0; 2];
    let mut last = 0;
    for _ in 0..operations {
        let value = random.below(100);
        match random.below(8) {
            0..=2 => {
                let sums = shared.write(Write::Add(Box::new(value)));
                assert!(sums[0] >= last + value, "a write went back in time");
                last = sums[0];
            }
            3 => {
                let panicking = || shared.write(Write::AddAndPanic(Box::new(value)));
                assert!(catch_unwind(AssertUnwindSafe(panicking)).is_err());
            }
            _ => {
                let sums = shared.read_with(|sums| sums.0[0]);
                assert!(sums >= last, "a read went back in time");
                last = sums;
                continue;
            }
        }
        written[0] += value;
        written[1] += value * value;
    }
    written
}

fn stress(builder: Builder) {
    let shared = builder
        .compare_every(64)
        .build(|_| Sums::default())
        .unwrap();
    let stop = AtomicBool::new(false);
    let change_replicas = || {
        let mut random = Random::from_seed(7);
        while !stop.load(SeqCst) {
            let live = shared.replicas();
            match random.below(3) {
                0 => _ = shared.add_replica(None),
                1 => {
                    let one = live[random.below(live.len() as u64) as usize];
                    _ = shared.remove_replica(one);
                }
                _ => shared.refresh(),
            }
            thread::yield_now();
        }
    };
    // Each stage has a new thread, which registers and leaves.
    let written = beside(1, &stop, change_replicas, |_| {
        come_and_go(8, 4, |stage, number| {
            use_for_a_while(&shared, number << 16 | stage, operations() / 8)
        })
    });
    let sums = written.iter().flatten();
    let expected = sums.fold([0; 2], |[a, b], [c, d]| [a + c, b + d]);
    for id in shared.replicas() {
        assert_eq!(
            shared.handle(Some(id)).unwrap().read_with(|sums| *sums.0),
            expected
        );
    }
    assert_eq!(shared.divergence(), None);
}

/// Without the messages of expected panics.
fn quietly(body: impl FnOnce()) {
    std::panic::set_hook(Box::new(|info| {
        let message = info.payload_as_str().unwrap_or_default();
        if !message.contains("expected by the test") {
            eprintln!("{info}");
        }
    }));
    body();
}

#[test]
fn threads_and_replicas_come_and_go_with_a_tiny_log() {
    quietly(|| {
        let builder = Builder::new().replicas(2).max_replicas(3);
        stress(
            builder
                .log(4)
                .max_log(16)
                .max_batch(1)
                .slots(1)
                .shared_slots(1),
        );
    });
}

#[test]
fn threads_and_replicas_come_and_go_with_the_defaults() {
    quietly(|| stress(Builder::new().replicas(1).max_replicas(4)));
}
