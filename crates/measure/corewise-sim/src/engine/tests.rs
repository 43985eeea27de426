//! The engine without the façade: programs that announce their accesses themselves.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::*;
use crate::BlockedOn;

/// Places in pages are to be the same in every run.
#[global_allocator]
static HEAP: crate::SimHeap = crate::SimHeap;

/// A word on its own line, and its announced operations.
#[repr(align(64))]
#[derive(Default)]
struct Word(AtomicU64);

impl Word {
    fn announce(&self, kind: AccessKind) {
        access((&raw const self.0).cast(), 8, kind);
    }

    fn load(&self) -> u64 {
        self.announce(AccessKind::Load);
        self.0.load(Relaxed)
    }

    fn store(&self, value: u64) {
        self.announce(AccessKind::Store);
        self.0.store(value, Relaxed);
    }

    fn add(&self, value: u64) -> u64 {
        self.announce(AccessKind::Rmw);
        self.0.fetch_add(value, Relaxed)
    }

    fn address(&self) -> *const u8 {
        (&raw const self.0).cast()
    }
}

fn seed(seed: u64) -> Config {
    Config {
        seed,
        ..Config::default()
    }
}

fn start(body: impl FnOnce() + Send + 'static) -> u32 {
    spawn(None, body).expect("a thread")
}

/// Runs `body` in some threads, with their numbers from 0, and waits for all.
fn in_threads(threads: u64, body: impl Fn(u64) + Send + Sync + 'static) {
    let shared = Arc::new((body, Word::default()));
    for index in 0..threads {
        let shared = shared.clone();
        start(move || {
            shared.0(index);
            shared.1.add(1);
        });
    }
    while shared.1.load() < threads {
        pause(1);
    }
}

#[test]
fn threads_take_turns_by_their_clocks_and_the_seed_decides_how() {
    let program = |config| {
        let finished = run(config, || {
            let order = Arc::new(std::sync::Mutex::new(Vec::new()));
            let (word, log) = (Word::default(), order.clone());
            in_threads(8, move |index| {
                word.add(1);
                while word.load() < 8 {
                    pause(1);
                }
                for _ in 0..20 {
                    word.add(1);
                    // Not held across a call of the engine.
                    log.lock().unwrap().push(index);
                }
            });
            order.lock().unwrap().clone()
        });
        let finished = finished.unwrap();
        assert_eq!(finished.value.len(), 160);
        (finished.value, finished.digest, finished.cycles)
    };
    let first = program(seed(1));
    assert_eq!(first, program(seed(1)));
    let others: Vec<_> = (2..6).map(|other| program(seed(other))).collect();
    assert!(
        others
            .iter()
            .all(|other| other.0 != first.0 && other.1 != first.1)
    );
    // No thread runs alone for long: one access costs less than five others.
    let runs = first.0.chunk_by(|a, b| a == b).map(<[u64]>::len);
    assert!(runs.max() <= Some(6), "{:?}", first.0);
}

#[test]
fn accesses_take_place_in_the_order_of_the_clocks() {
    let finished = run(seed(3), || {
        let clocks = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (word, log) = (Word::default(), clocks.clone());
        in_threads(5, move |index| {
            for _ in 0..50 {
                work(index as u32 * 30);
                let at = now_cycles();
                // `now_cycles` waited for its turn, so the next step is the next in virtual time.
                log.lock().unwrap().push(at);
                word.add(1);
            }
        });
        clocks.lock().unwrap().clone()
    });
    let clocks = finished.unwrap().value;
    assert!(clocks.len() == 250 && clocks.is_sorted());
}

#[test]
fn increments_that_are_no_read_modify_writes_get_lost() {
    let lost = |atomic: bool| {
        let finished = run(seed(1), move || {
            let word = Arc::new(Word::default());
            let copy = word.clone();
            in_threads(4, move |_| {
                for _ in 0..100 {
                    if atomic {
                        copy.add(1);
                    } else {
                        let seen = copy.load();
                        copy.store(seen + 1);
                    }
                }
            });
            400 - word.load()
        });
        finished.unwrap().value
    };
    assert_eq!(lost(true), 0);
    assert!(lost(false) > 0);
}

#[test]
fn a_thread_that_spins_sleeps_until_its_line_is_written() {
    let waits = |cycles: u32| {
        let finished = run(seed(1), move || {
            let flag = Arc::new(Word::default());
            let copy = flag.clone();
            start(move || {
                work(cycles);
                copy.store(1);
            });
            while flag.load() == 0 {
                pause(1);
            }
            now_cycles()
        });
        finished.unwrap()
    };
    let (short, long) = (waits(100_000), waits(1_000_000_000));
    assert!(short.value >= 100_000 && long.value >= 1_000_000_000);
    // Woken at once, after the call that started the other thread.
    assert!(long.value < 1_000_003_000, "{}", long.value);
    // Waiting costs the host nothing after the first rounds.
    assert_eq!(short.accesses, long.accesses);
}

/// A write between the last load and the pause must not be slept through.
#[test]
fn no_write_before_the_pause_is_missed() {
    for other in 0..200 {
        let finished = run(seed(other), move || {
            let turn = Arc::new(Word::default());
            let copy = turn.clone();
            in_threads(2, move |me| {
                for round in 0..20 {
                    while copy.load() != 2 * round + me {
                        pause(1);
                    }
                    work((other * 7 % 90) as u32);
                    copy.store(2 * round + me + 1);
                }
            });
            turn.load()
        });
        assert_eq!(finished.map(|finished| finished.value), Ok(40));
    }
}

#[test]
fn pauses_pass_if_nothing_is_written() {
    let finished = run(seed(1), || {
        let word = Word::default();
        let begin = (word.load(), now_cycles());
        let costs = crate::FlatCosts::default();
        // Asked for the time: no line to wait for.
        pause(10);
        let first = now_cycles() - begin.1;
        assert_eq!(first, costs.clock + 10 * costs.pause);
        // A loop that counts its rounds ends, although no other thread is there.
        for _ in 0..2_000 {
            word.load();
            pause(1);
        }
    });
    assert_eq!(finished.map(|finished| finished.value), Ok(()));
}

/// Alone, or beside a thread that spins for ever.
#[test]
fn loops_that_count_their_rounds_are_no_deadlock() {
    let spin = |word: &Word, rounds: u32| {
        for _ in 0..rounds {
            word.load();
            pause(1);
        }
    };
    let result = |step: fn(&[Word; 3], u64), steps: u64, rounds: u32, is_alone: bool| {
        let finished = run(seed(1), move || {
            let words = Arc::new(<[Word; 3]>::default());
            let copy = words.clone();
            if !is_alone {
                start(move || spin(&copy[2], u32::MAX));
            }
            for number in 0..steps {
                spin(&words[0], rounds);
                step(&words, number);
            }
        });
        finished.map(|finished| finished.value)
    };
    assert_eq!(result(|_, _| (), 1, 25_000, true), Ok(()));
    for is_alone in [true, false] {
        let steps = |step| result(step, 80, 3_000, is_alone);
        assert_eq!(steps(|words, number| words[1].store(number)), Ok(()));
        assert_eq!(steps(|words, number| words[0].store(number)), Ok(()));
        assert_eq!(steps(|words, number| _ = words[0].add(number)), Ok(()));
    }
    // Each step has its line, and writes nothing.
    let finished = run(seed(1), move || {
        let words: Vec<_> = (0..80).map(|_| Word::default()).collect();
        words.iter().for_each(|word| spin(word, 3_000));
    });
    assert_eq!(finished.map(|finished| finished.value), Ok(()));
}

#[test]
fn a_loop_that_repeats_what_it_does_is_a_deadlock() {
    let reports = |round: fn(&[Word; 2], u64)| {
        let config = Config {
            max_accesses: 1_000_000,
            ..seed(1)
        };
        let result = run(config, move || {
            let words = <[Word; 2]>::default();
            for number in 0.. {
                round(&words, number);
                pause(1);
            }
        });
        matches!(result, Err(SimError::Deadlock(_)))
    };
    assert!(reports(|words, number| _ = words[0].add(number)));
    assert!(reports(|words, number| {
        words[0].load();
        words[1].store(number);
    }));
    // Looks elsewhere at times.
    assert!(reports(|words, number| {
        words[usize::from(number % 64 == 0)].load();
    }));
}

/// The rounds of a loop do not count for the next one.
#[test]
fn the_next_loop_of_a_thread_lasts_as_long_as_its_pauses() {
    let finished = run(seed(1), || {
        let words = Arc::new(<[Word; 3]>::default());
        let copy = words.clone();
        start(move || {
            work(1_000_000);
            copy[2].store(1);
        });
        for (word, rounds) in words.iter().zip([1_024, 10]) {
            for _ in 0..rounds {
                word.load();
                pause(1);
            }
        }
        (words[2].load(), now_cycles() < 1_000_000)
    });
    assert_eq!(finished.unwrap().value, (0, true));
}

#[test]
fn a_deadlock_is_reported_with_what_each_thread_waits_for() {
    let result = run(seed(1), || {
        let words = Arc::new([Word::default(), Word::default()]);
        let copy = words.clone();
        let named = move || {
            while copy[0].load() == 0 {
                pause(1);
            }
        };
        spawn(Some("spinner".to_owned()), named).unwrap();
        let copy = words.clone();
        start(move || wait(copy[1].address()));
        start(|| park(None));
        start(|| {});
        wait(words[0].address());
    });
    let Err(SimError::Deadlock(blocked)) = result else {
        panic!("{result:?}");
    };
    let [first, spinner, waiter, parked] = &blocked[..] else {
        panic!("{blocked:?}");
    };
    assert!(matches!(first.on, BlockedOn::Address(_)) && first.thread == 0);
    assert_eq!(spinner.name.as_deref(), Some("spinner"));
    assert!(matches!(&spinner.on, BlockedOn::Lines(lines) if lines.len() == 1));
    assert!(matches!(waiter.on, BlockedOn::Address(_)));
    assert_eq!((parked.thread, &parked.on), (3, &BlockedOn::Park));
    let text = SimError::Deadlock(blocked.clone()).to_string();
    assert!(text.contains("1 (spinner) on Lines"), "{text}");
}

#[test]
fn parked_threads_are_woken_once_for_each_unpark() {
    let finished = run(seed(1), || {
        let steps = Arc::new(Word::default());
        let copy = steps.clone();
        let parked = start(move || {
            for _ in 0..3 {
                park(None);
                copy.add(1);
            }
        });
        for step in 1..=3 {
            unpark(parked);
            while steps.load() < step {
                pause(1);
            }
        }
        let before = now_ns();
        park(Some(5_000));
        let slept = now_ns() - before;
        unpark(current());
        park(None);
        // No thread has this number.
        unpark(parked + 1);
        slept
    });
    let slept = finished.unwrap().value;
    assert!((5_000..6_000).contains(&slept), "{slept} ns");
}

#[test]
fn a_panic_of_the_program_is_returned() {
    let result = run(seed(1), || -> u8 { panic!("on {}", "purpose") });
    assert_eq!(
        result.unwrap_err(),
        SimError::Panicked("on purpose".to_owned())
    );
}

#[test]
fn no_thread_runs_while_another_one_unwinds() {
    struct Writes(Arc<Word>);
    impl Drop for Writes {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            for _ in 0..100 {
                self.0.add(1);
            }
        }
    }
    let finished = run(seed(1), || {
        let word = Arc::new(Word::default());
        let copy = word.clone();
        in_threads(4, move |index| {
            let writes = Writes(copy.clone());
            let unwound = catch_unwind(AssertUnwindSafe(|| {
                let _writes = &writes;
                std::panic::resume_unwind(Box::new(index));
            }));
            assert!(unwound.is_err() && !std::thread::panicking());
            let unwound = catch_unwind(AssertUnwindSafe(move || {
                let _writes = writes;
                std::panic::resume_unwind(Box::new(index));
            }));
            assert!(unwound.is_err() && !std::thread::panicking());
        });
        word.load()
    });
    assert_eq!(finished.map(|finished| finished.value), Ok(400));
}

#[test]
fn waiting_while_unwinding_is_an_error() {
    struct Waits;
    impl Drop for Waits {
        fn drop(&mut self) {
            park(None);
        }
    }
    let result = run(seed(1), || {
        let _waits = Waits;
        std::panic::resume_unwind(Box::new(0));
    });
    assert_eq!(result.map(drop).unwrap_err(), SimError::BlockedInUnwind);
    // The next simulation has an OS thread that does not unwind.
    assert!(run(seed(1), || in_threads(3, |_| work(1))).is_ok());
}

#[test]
fn limits_end_the_simulation() {
    let endless = || {
        let word = Word::default();
        loop {
            word.add(1);
        }
    };
    let config = Config {
        max_accesses: 10_000,
        ..seed(1)
    };
    let limit = |limit| Err(SimError::Limit(limit));
    assert_eq!(
        run(config.clone(), endless).map(drop),
        limit(SimLimit::Accesses)
    );
    // Also if only another thread goes on, or a thread only spins.
    let spins = || {
        in_threads(1, move |_| {
            loop {
                yield_now()
            }
        })
    };
    assert_eq!(run(config, spins).map(drop), limit(SimLimit::Accesses));
    let config = Config {
        max_lines: 100,
        ..seed(1)
    };
    let many = || {
        let words: Vec<_> = (0..200).map(|_| Word::default()).collect();
        words.iter().map(Word::load).sum::<u64>()
    };
    assert_eq!(run(config, many).map(drop), limit(SimLimit::Lines));
    let config = Config {
        max_threads: 10,
        ..seed(1)
    };
    let threads = || in_threads(10, |_| ());
    assert_eq!(run(config, threads).map(drop), limit(SimLimit::Threads));
}

#[test]
fn a_loop_that_only_reads_the_clock_ends() {
    let waits = |ns: u64, clock: u64| {
        let mut config = seed(1);
        config.max_accesses = 10_000;
        config.costs.clock = clock;
        let finished = run(config, move || {
            let flag = Arc::new(Word::default());
            let copy = flag.clone();
            // Runs at the same time: at the end its store is seen.
            start(move || copy.store(1));
            while now_ns() < ns {}
            flag.load()
        });
        finished.map(|finished| finished.value)
    };
    let limit = Err(SimError::Limit(SimLimit::Accesses));
    assert_eq!(waits(20_000, 40), Ok(1));
    assert_eq!(waits(u64::MAX, 40), limit);
    assert_eq!(waits(20_000, 0), limit);
}

/// Drops are user code, which may call the engine.
#[test]
fn a_body_that_gets_no_thread_is_dropped_outside_of_the_engine() {
    static DROPS: AtomicU64 = AtomicU64::new(0);
    struct Calls;
    impl Drop for Calls {
        fn drop(&mut self) {
            DROPS.fetch_add(1, Relaxed);
            access((&raw const *self).cast(), 1, AccessKind::Store);
        }
    }
    let result = |max_threads, stack_bytes| {
        let config = Config {
            max_threads,
            stack_bytes,
            ..seed(1)
        };
        let calls = Calls;
        let body = move || {
            let (_outer, inner) = (calls, Calls);
            spawn(None, move || drop(inner)).map(drop)
        };
        run(config, body).map(|finished| finished.value)
    };
    let limit = SimError::Limit(SimLimit::Threads);
    assert_eq!(result(0, 1 << 20), Err(limit.clone()));
    assert_eq!(DROPS.swap(0, Relaxed), 1);
    // The access in the drop ends the program, and so the outer one is leaked.
    assert_eq!(result(1, 1 << 20), Err(limit));
    assert_eq!(DROPS.swap(0, Relaxed), 1);
    assert_eq!(result(2, usize::MAX / 4), Err(SimError::NoMemory));
    assert_eq!(DROPS.swap(0, Relaxed), 1);
}

/// A thread that never pauses keeps no other one from running.
#[test]
fn a_thread_that_reads_in_a_loop_starves_no_other() {
    let finished = run(seed(1), || {
        let words = Arc::new([Word::default(), Word::default()]);
        let copy = words.clone();
        start(move || {
            while copy[0].load() == 0 {}
            copy[1].store(1);
        });
        work(100_000);
        words[0].store(1);
        while words[1].load() == 0 {}
    });
    assert!(finished.is_ok());
}

#[test]
fn threads_use_all_of_their_stacks() {
    #[inline(never)]
    fn recurse(depth: usize) -> u64 {
        let bytes = std::hint::black_box([depth as u8; 1024]);
        let rest = if depth == 0 { 0 } else { recurse(depth - 1) };
        rest + u64::from(bytes[depth % 1024])
    }
    let config = Config {
        stack_bytes: 4 << 20,
        ..seed(1)
    };
    // Less than 4 MiB, more than the default.
    let finished = run(config, || {
        in_threads(3, |_| assert!(recurse(1_500) > 0));
        recurse(1_500)
    });
    assert!(finished.unwrap().value > 0);
}

#[test]
fn values_of_a_thread_are_dropped_at_its_end_the_last_one_first() {
    let finished = run(seed(1), || {
        let log = Arc::new(std::sync::Mutex::new(Vec::new()));
        struct Logs(Arc<std::sync::Mutex<Vec<usize>>>, usize, Arc<Word>);
        unsafe fn drop_logs(logs: NonNull<()>) {
            // SAFETY: from the box below, once.
            let logs = unsafe { Box::from_raw(logs.cast::<Logs>().as_ptr()) };
            logs.2.add(1);
            logs.0.lock().unwrap().push(logs.1);
            assert_eq!(local(logs.1, PerThread::Yes), Slot::Dropped);
        }
        let copy = log.clone();
        let word = Arc::new(Word::default());
        in_threads(1, move |_| {
            for key in [7, 2, 5] {
                assert_eq!(local(key, PerThread::Yes), Slot::Empty);
                let value = Box::new(Logs(copy.clone(), key, word.clone()));
                let value = NonNull::from(Box::leak(value)).cast();
                // SAFETY: `drop_logs` may be called with it (1); nothing else reads the keys (2).
                unsafe { set_local(key, PerThread::Yes, value, drop_logs, DropTime::AtEnd) };
                assert_eq!(local(key, PerThread::Yes), Slot::Full(value));
            }
        });
        assert_eq!(local(7, PerThread::Yes), Slot::Empty);
        // The thread has ended when its last access, in a drop, is over.
        sleep(1_000);
        log.lock().unwrap().clone()
    });
    assert_eq!(finished.unwrap().value, [5, 2, 7]);
}

#[test]
fn threads_that_have_not_ended_disappear_with_the_program() {
    let finished = run(seed(1), || {
        start(|| park(None));
        start(|| {
            loop {
                yield_now()
            }
        });
    });
    assert_eq!(finished.unwrap().abandoned, 2);
}

#[test]
fn outside_of_a_simulation_nothing_happens() {
    let word = Word::default();
    assert_eq!((word.add(1), word.load()), (0, 1));
    pause(3);
    unpark(0);
    park(None);
    wake(word.address(), true);
    assert_eq!(
        (current(), now_cycles(), now_ns(), is_inside()),
        (0, 0, 0, false)
    );
    assert!(spawn(None, || ()).is_err());
    // Engine calls of other OS threads do not disturb a simulation.
    let inside = run(seed(1), || std::thread::spawn(is_inside).join().unwrap());
    assert_eq!(inside.map(|finished| finished.value), Ok(false));
}

/// Values that are not `Send` stay on the OS thread of the simulation.
#[test]
fn threads_share_an_os_thread() {
    let finished = run(seed(1), || {
        std::thread_local! { static SHARED: Rc<Cell<u32>> = Rc::default(); }
        in_threads(6, |_| SHARED.with(|shared| shared.set(shared.get() + 1)));
        SHARED.with(|shared| shared.get())
    });
    assert_eq!(finished.unwrap().value, 6);
}

#[test]
fn the_clock_goes_on_for_decades() {
    let finished = run(seed(1), || {
        let year = 365 * 24 * 3_600 * 1_000_000_000;
        let before = now_ns();
        sleep(50 * year);
        (now_ns() - before) / year
    });
    assert_eq!(finished.map(|finished| finished.value), Ok(50));
}

#[test]
fn waking_a_thread_that_sleeps_costs_its_waker_a_call() {
    let costs = |waits: u32| {
        let finished = run(seed(1), move || {
            let word = Arc::new(Word::default());
            let copy = word.clone();
            start(move || wait(copy.address()));
            work(waits);
            let before = now_cycles();
            wake(word.address(), true);
            now_cycles() - before
        });
        finished.unwrap().value
    };
    let flat = crate::FlatCosts::default();
    // The thread that is started waits from the end of the call that starts it on.
    let (short, long) = (flat.lock_spin / 2, flat.lock_spin * 2);
    assert_eq!(costs(short as u32), flat.clock);
    assert_eq!(costs(long as u32), flat.clock + flat.system_call);
}

/// Calls that let no other thread run count, too.
#[test]
fn a_loop_of_calls_that_give_way_to_no_thread_ends() {
    let limit = Err(SimError::Limit(SimLimit::Accesses));
    let ends = |call: fn(*const u8)| {
        let config = Config {
            max_accesses: 10_000,
            ..seed(1)
        };
        let body = move || {
            let word = Word::default();
            loop {
                call(word.address());
            }
        };
        run(config, body).map(drop) == limit
    };
    assert!(ends(|_| _ = local(1, PerThread::Yes)));
    assert!(ends(|_| _ = local(1, PerThread::No)));
    assert!(ends(|address| written(address, 8)));
    assert!(ends(|address| wake(address, true)));
}

fn on_machine(seed: u64) -> Config {
    let preset = crate::SimMachine::preset("westmere-ex-8").expect("a preset");
    Config {
        machine: Some(preset.at(crate::ParameterSample::Middle)),
        seed,
        ..Config::default()
    }
}

/// Hits of a first level take place before their time. Each word has the writer's clock at the
/// write, which no reader may see earlier.
#[test]
fn no_thread_of_another_core_sees_a_write_before_its_time() {
    let mut config = on_machine(1);
    config.costs.clock = 0;
    let l1 = config.machine.as_ref().map_or(0, |machine| machine.l1);
    let finished = run(config, move || {
        let words = Arc::new((<[Word; 8]>::default(), Word::default(), Word::default()));
        let copy = words.clone();
        in_threads(24, move |index| {
            let own = Word::default();
            for round in 0..300 {
                let word = &copy.0[(index + round) as usize % 8];
                let begin = now_cycles();
                let value = word.load();
                let end = now_cycles();
                assert!(value <= end, "{value} was read at {end}");
                copy.1.0.fetch_max(end - begin, Relaxed);
                if index % 3 == 0 {
                    // Afterwards it is in the first level, and may be written ahead.
                    word.store(now_cycles());
                    fence();
                    let hits = round * 7 % 60;
                    own.load();
                    let before = now_cycles();
                    (0..hits).for_each(|_| _ = own.load());
                    word.store(before + hits * l1);
                    copy.2.0.fetch_add(1, Relaxed);
                }
            }
        });
        (words.1.0.load(Relaxed), words.2.0.load(Relaxed))
    });
    let (longest, writes) = finished.unwrap().value;
    assert!(longest > 400 && writes > 1_000, "{longest} {writes}");
}

#[test]
fn a_thread_that_waits_leaves_its_core_to_the_other_one() {
    let cycles = |other: fn()| {
        let finished = run(on_machine(1), move || {
            start(move || {
                pin(81);
                other();
            });
            pin(1);
            sleep(10_000);
            let begin = now_cycles();
            work(100_000);
            now_cycles() - begin
        });
        finished.unwrap().value
    };
    let alone = cycles(|| ());
    assert_eq!(alone, 100_040);
    assert_eq!(cycles(|| park(None)), alone);
    assert_eq!(cycles(|| sleep(1_000_000_000)), alone);
    let spins = || {
        let word = Word::default();
        while word.load() == 0 {
            pause(1);
        }
    };
    assert!(cycles(spins) < alone * 102 / 100);
    let computes = cycles(|| (0..1_000).for_each(|_| work(1_000)));
    assert!(
        (alone * 13 / 10..alone * 17 / 10).contains(&computes),
        "{computes}"
    );
}

#[test]
fn threads_are_spread_over_sockets_and_cores_and_a_pin_outside_does_nothing() {
    let finished = run(on_machine(1), || {
        pin(usize::MAX);
        let places = Arc::new(std::sync::Mutex::new(Vec::new()));
        for _ in 0..159 {
            let places = places.clone();
            start(move || {
                let here = with(|sim| sim.here().processor);
                places.lock().unwrap().push(here.unwrap_or(usize::MAX));
                park(None);
            });
        }
        sleep(10_000_000);
        let places = places.lock().unwrap();
        places.clone()
    });
    let mut places = finished.unwrap().value;
    // Sockets in turn, beside the first thread, which has processor 0.
    assert_eq!(places[..8], [10, 20, 30, 40, 50, 60, 70, 1]);
    places.sort_unstable();
    assert!(places.into_iter().eq(1..160));
}
