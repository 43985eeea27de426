//! The memory that tables take, by a count of the bytes of the global allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use corewise_cphash::{
    CacheRequest, Config, CpHash, Entry, Eviction, InsertError, Key, LockHash, Replace, Reply,
};
use corewise_testkit::random::Random;

struct Counting;

thread_local! {
    /// Bytes that this thread has allocated and not freed. The test needs no other thread.
    static LIVE: Cell<usize> = const { Cell::new(0) };
}

fn add(bytes: usize) {
    // While a thread ends, its count does not matter.
    let _ = LIVE.try_with(|live| live.set(live.get().wrapping_add(bytes)));
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's conditions are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        add(layout.size().wrapping_neg());
        // SAFETY: the caller's conditions are those of the system's allocator, here as well.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn live() -> usize {
    LIVE.with(Cell::get)
}

/// Panics, without the message and the backtrace of a panic that is a mistake.
fn expected_panic() -> ! {
    std::panic::resume_unwind(Box::new("expected"))
}

/// Lengths from 1 byte to 1 MiB: ascending, descending, all equal for a while, and random.
fn lengths(order: u64, random: &mut Random, step: u64) -> usize {
    let scale = 1
        << match order {
            0 => step * 20 / 400,
            1 => 20 - step * 20 / 400,
            2 => step / 40 * 7 % 21,
            _ => random.below(21),
        };
    (scale + random.below(scale)).min(1 << 20) as usize
}

fn a_lock_hash_keeps_to_its_budget(value: &[u8]) {
    for eviction in [Eviction::Lru, Eviction::Random] {
        for (order, budget) in (0..4).flat_map(|order| [(order, 1 << 16), (order, 3 << 20)]) {
            let partitions = 1 + order as usize % 2;
            let config = Config::new(budget)
                .partitions(partitions)
                .eviction(eviction);
            let table = LockHash::new(&config).unwrap();
            let mut held = Vec::with_capacity(8);
            let (before, mut random) = (live(), Random(budget as u64 + order));
            for step in 0..400 {
                let len = lengths(order, &mut random, step);
                let key = random.below(100);
                match table.insert(key, &value[..len]) {
                    Ok(()) => assert_eq!(table.get(key, <[u8]>::len), Some(len)),
                    Err(InsertError::TooLarge) => assert!(len + 112 > budget / partitions),
                    Err(error) => assert!(!held.is_empty(), "{error}"),
                }
                if random.below(8) == 0 {
                    held.truncate(random.below(8) as usize);
                    held.extend(table.get_ref(key));
                }
                assert!(
                    live() - before <= budget,
                    "{order}: {} bytes",
                    live() - before
                );
                assert!(table.stats().held_bytes as usize <= budget);
            }
            held.clear();
            table.clear();
            table.set_budget_bytes(128 * partitions).unwrap();
            assert!(live() - before <= 128 * partitions);
        }
    }
}

fn a_cp_hash_keeps_to_its_budget(value: &[u8]) {
    for (order, replace) in
        (0..4).flat_map(|order| [(order, Replace::WhenReady), (order, Replace::AtAllocation)])
    {
        let budget = 3 << 20;
        let config = Config::new(budget)
            .partitions(2)
            .pipeline(64)
            .replace(replace);
        let table = CpHash::new(&config.moving_budgets(order > 1), 0).unwrap();
        let mut server = table.server(|| ());
        let mut client = table.client();
        let mut random = Random(order + 7);
        for step in 0..400 {
            let len = lengths(order, &mut random, step);
            let key = random.below(100);
            let _ = match random.below(3) {
                0 => client.submit(0, CacheRequest::Get(key.into())),
                _ => client.submit(0, CacheRequest::Insert(key.into(), &value[..len])),
            };
            if random.below(3) == 0 {
                client.poll(|_, _| ());
            }
            server.poll();
            let stats = table.stats();
            assert!(stats.held_bytes <= stats.budget_bytes, "{stats:?}");
            assert!(stats.budget_bytes <= budget as u64, "{stats:?}");
        }
    }
}

/// What clients leave behind, in all states of their requests, is given back.
fn clients_that_leave_or_panic_leak_nothing(inline: bool) {
    let config = Config::new(1 << 20).partitions(2).pipeline(64);
    let table = CpHash::new(&config.inline_values(inline), 0).unwrap();
    let mut server = table.server(|| ());
    let mut expected = None;
    for round in 0..300u64 {
        let mut client = table.client();
        let mut random = Random(round + 1);
        let leave = AssertUnwindSafe(|| {
            for token in 0..random.below(300) {
                let text = random.below(30).to_string();
                let _ = match random.below(8) {
                    0..3 => client.submit(token, CacheRequest::Insert((&*text).into(), b"value")),
                    3 | 4 => client.submit(token, CacheRequest::Get((&*text).into())),
                    5 => client.submit_execute(token, &*text, |entry| {
                        if entry.get().is_some() {
                            expected_panic();
                        }
                        vec![1; 1000]
                    }),
                    6 => {
                        client.poll(|token, reply| match reply {
                            Reply::Executed(result) => drop(result),
                            Reply::Found(_) if token % 50 == 0 => expected_panic(),
                            _ => {}
                        });
                        Ok(())
                    }
                    _ => {
                        server.poll();
                        Ok(())
                    }
                };
            }
            let _client = client;
            if round % 2 > 0 {
                expected_panic();
            }
        });
        let _ = catch_unwind(leave);
        (0..2).for_each(|_| _ = server.poll());
        if round % 50 == 0 {
            // Elements may stay; everything else is gone.
            let mut last = table.client();
            for key in 0..30 {
                let text = key.to_string();
                last.submit(key, CacheRequest::Remove((&*text).into()))
                    .unwrap();
            }
            while last.outstanding() > 0 {
                last.poll(|_, _| ());
                server.poll();
            }
            drop(last);
            server.poll();
            let stats = table.stats();
            assert_eq!((stats.elements, stats.used_bytes), (0, 0));
            // Blocks that are kept for reuse.
            let now = live() - stats.held_bytes as usize;
            assert_eq!(*expected.get_or_insert(now), now, "round {round}");
        }
    }
}

/// Blocking operations within a closure panic, and leave nothing behind.
fn operations_that_are_refused_leak_nothing() {
    let table = CpHash::new(&Config::new(1 << 20).partitions(2), 0).unwrap();
    let mut colocated = table.colocated(|| ());
    let mut inner = table.client();
    let run = move |_: &mut Entry<'_>| {
        let mut leaked = Vec::with_capacity(3);
        for key in [Key::from(7), Key::from(u64::MAX), Key::from("key")] {
            let before = live();
            let attempt = |operation: &mut dyn FnMut()| {
                assert!(catch_unwind(AssertUnwindSafe(operation)).is_err());
            };
            attempt(&mut || _ = inner.get(key, |_| ()));
            attempt(&mut || _ = inner.get_ref(key).is_some());
            attempt(&mut || _ = inner.insert(key, b"value"));
            attempt(&mut || _ = inner.insert(key, &[1; 500]));
            attempt(&mut || _ = inner.remove(key));
            let text = vec![7; 1000];
            attempt(&mut || {
                inner.execute_batch(&[CacheRequest::Remove((&text).into())], |_, _| ())
            });
            let mut closure = Some(move |_: &mut Entry<'_>| drop(text));
            attempt(&mut || inner.execute(key, closure.take().unwrap()));
            leaked.push(live() - before);
        }
        leaked
    };
    colocated.submit_execute(0, 1, run).unwrap();
    colocated.poll(|_, reply| {
        let Reply::Executed(Ok(leaked)) = reply else {
            panic!("{reply:?}");
        };
        assert_eq!(leaked.downcast_ref(), Some(&vec![0_usize; 3]));
    });
}

#[test]
fn tables_take_the_memory_that_they_may() {
    let value = vec![7; 1 << 20];
    a_lock_hash_keeps_to_its_budget(&value);
    a_cp_hash_keeps_to_its_budget(&value);
    [false, true]
        .into_iter()
        .for_each(clients_that_leave_or_panic_leak_nothing);
    // The messages of panics would be kept, as the output of this test.
    std::panic::set_hook(Box::new(|_| ()));
    operations_that_are_refused_leak_nothing();
    drop(std::panic::take_hook());
}
