//! `RcuCell` beside a model, under misuse, and under stress with objects that are poisoned when
//! they are dropped.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize};
use std::sync::{Arc, LazyLock, Weak};
use std::thread;
use std::time::Duration;

use crate::common::{Object, for_a_while};
use corewise_rcu::{BacklogFull, Builder, CellGuard, Domain, Limits, Pressure, RcuCell};
use corewise_testkit::stress::{beside, come_and_go};

/// A value that counts how many of its kind are alive.
#[derive(Debug)]
struct Counted(u64, Arc<AtomicIsize>);

impl Counted {
    fn new(number: u64, alive: &Arc<AtomicIsize>) -> Self {
        alive.fetch_add(1, Relaxed);
        Self(number, alive.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Relaxed);
    }
}

#[test]
fn a_cell_behaves_like_a_variable() {
    let (cell, mut variable) = (RcuCell::new(String::from("0")), String::from("0"));
    for number in 0..1000 {
        let next = number.to_string();
        match number % 5 {
            0 => {
                cell.store(next.clone());
                variable = next;
            }
            1 => assert_eq!(
                *cell.swap(next.clone()),
                std::mem::replace(&mut variable, next)
            ),
            2 => {
                let old = cell.rcu(|old| format!("{old}{next}"));
                assert_eq!(*old, variable);
                variable.push_str(&next);
            }
            3 => {
                let failed = cell.try_rcu(|_| Err(number)).map(drop);
                assert_eq!(failed, Err(number));
            }
            _ => {
                let old = cell
                    .compare_exchange(&cell.load(), next.clone())
                    .expect("it is the current value");
                assert_eq!(
                    old.into_inner(),
                    std::mem::replace(&mut variable, next.clone())
                );
                assert_eq!(
                    cell.compare_exchange(&variable, next.clone()).map(drop),
                    Err(next)
                );
            }
        }
        assert_eq!(*cell.load(), variable);
        assert_eq!(cell.within(&corewise_rcu::pin()), &variable);
        assert_eq!(cell.read(String::len), variable.len());
        assert_eq!(cell.load_full(), variable);
        variable.truncate(20);
        cell.store(variable.clone());
    }
    assert_eq!(cell.into_inner(), variable);
}

#[test]
fn the_owner_needs_no_section() {
    let mut cell: RcuCell<Vec<u32>> = RcuCell::default();
    cell.get_mut().push(1);
    assert_eq!(format!("{cell:?}"), "RcuCell([1])");
    assert_eq!(
        format!("{:?} {}", cell.load(), RcuCell::from(7).load()),
        "[1] 7"
    );
    assert_eq!(format!("{:?}", cell.swap(vec![2])), "Replaced([1])");
    assert_eq!(cell.into_inner(), [2]);
}

#[test]
fn a_replaced_value_without_readers_is_dropped_at_once() {
    let alive = Arc::default();
    let domain = Domain::new();
    let cell = RcuCell::in_domain(Counted::new(0, &alive), domain.clone());
    for number in 1..100 {
        cell.store(Counted::new(number, &alive));
        assert_eq!(alive.load(Relaxed), 1);
        drop(cell.swap(Counted::new(number, &alive)));
        assert_eq!(alive.load(Relaxed), 1);
    }
    assert_eq!(domain.backlog_bytes(), 0);
    drop(cell);
    assert_eq!(alive.load(Relaxed), 0);
}

#[test]
fn what_a_guard_has_found_stays_until_the_guard_is_gone() {
    let alive = Arc::default();
    let cell = RcuCell::in_domain(Counted::new(0, &alive), Domain::new());
    let first = cell.load();
    cell.store(Counted::new(1, &alive));
    let second = cell.load();
    cell.store(Counted::new(2, &alive));
    assert_eq!((first.0, second.0, cell.load().0), (0, 1, 2));
    assert_eq!(alive.load(Relaxed), 3);
    drop((first, second));
    cell.store(Counted::new(3, &alive));
    assert_eq!(alive.load(Relaxed), 1);
    assert_eq!(cell.into_inner().0, 3);
    assert_eq!(alive.load(Relaxed), 0);
}

#[test]
fn a_cell_may_be_gone_before_its_old_values() {
    let alive = Arc::default();
    let domain = Domain::new();
    let guard = domain.pin();
    let cell = RcuCell::in_domain(Counted::new(0, &alive), domain.clone());
    cell.store(Counted::new(1, &alive));
    drop(cell);
    assert_eq!(alive.load(Relaxed), 1);
    drop(guard);
    domain.barrier();
    assert_eq!(alive.load(Relaxed), 0);
}

#[test]
fn a_replaced_value_is_given_away_after_a_grace_period() {
    let domain = Domain::new();
    let cell = RcuCell::in_domain(String::from("a"), domain.clone());
    let guard = domain.pin();
    let seen = cell.within(&guard);
    let old = cell.swap("b".into()).try_into_inner().unwrap_err();
    assert_eq!((seen.as_str(), old.as_str()), ("a", "a"));
    let panic = catch_unwind(AssertUnwindSafe(|| old.into_inner())).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(
        message.starts_with("into_inner: the calling thread is in"),
        "{message}"
    );
    assert_eq!(seen, "a");
    let old = cell.swap("c".into());
    drop(guard);
    assert_eq!(old.try_into_inner().unwrap(), "b");
    assert_eq!(cell.swap("d".into()).into_inner(), "c");
}

#[test]
fn a_section_of_another_domain_is_refused() {
    let cell = RcuCell::in_domain(1, Domain::new());
    let guard = corewise_rcu::pin();
    assert!(catch_unwind(AssertUnwindSafe(|| *cell.within(&guard))).is_err());
    let mut qsbr = cell.domain().qsbr();
    assert_eq!(*cell.within(&qsbr.section()), 1);
    cell.store(2);
    assert!(qsbr.quiescent());
    assert_eq!(*cell.within(&qsbr.section()), 2);
}

#[test]
fn compare_exchange_tells_equal_values_apart() {
    let cell = RcuCell::new(5);
    let seen = cell.load();
    cell.store(6);
    cell.store(5);
    assert_eq!(cell.compare_exchange(&seen, 7).map(drop), Err(7));
    assert_eq!(cell.compare_exchange(&5, 7).map(drop), Err(7));
    let again = cell.load();
    assert_eq!(*cell.compare_exchange(&again, 7).unwrap(), 5);
    assert_eq!((*seen, *again, *cell.load()), (5, 5, 7));
}

/// All values of such a type have the same address.
#[test]
fn a_value_without_a_size_is_dropped_as_often_as_it_was_made() {
    static ALIVE: AtomicIsize = AtomicIsize::new(0);
    struct Empty;
    impl Empty {
        fn new() -> Self {
            ALIVE.fetch_add(1, Relaxed);
            Self
        }
    }
    impl Drop for Empty {
        fn drop(&mut self) {
            ALIVE.fetch_sub(1, Relaxed);
        }
    }
    let domain = Domain::new();
    let cell = RcuCell::in_domain(Empty::new(), domain.clone());
    let guard = cell.load();
    cell.store(Empty::new());
    drop(cell.rcu(|_| Empty::new()));
    drop(cell.compare_exchange(&guard, Empty::new()));
    assert_eq!(ALIVE.load(Relaxed), 4);
    drop(guard);
    drop(cell.swap(Empty::new()).into_inner());
    domain.barrier();
    assert_eq!(ALIVE.load(Relaxed), 1);
    drop(cell);
    assert_eq!(ALIVE.load(Relaxed), 0);
}

/// Only replacing needs `Send` and `'static`.
#[test]
fn a_cell_that_is_only_read_takes_any_value() {
    let text = String::from("borrowed");
    let cell = RcuCell::new((Rc::new(text.as_str()), &text));
    assert_eq!(*cell.load().0, "borrowed");
    assert_eq!(cell.into_inner().1, "borrowed");
}

#[test]
fn a_guard_of_a_part_keeps_the_whole_value() {
    let alive = Arc::default();
    let domain = Domain::new();
    let cell = RcuCell::in_domain(Counted::new(1, &alive), domain.clone());
    let number = cell.map(|counted| &counted.0);
    let first = number.load();
    cell.store(Counted::new(2, &alive));
    assert_eq!((*first, *number.load()), (1, 2));
    let same = CellGuard::map(first, |number| number);
    assert_eq!((*same, alive.load(Relaxed)), (1, 2));
    drop(same);
    domain.barrier();
    assert_eq!(alive.load(Relaxed), 1);
}

#[test]
fn a_panic_of_a_closure_changes_nothing() {
    let alive = Arc::default();
    let domain = Domain::new();
    let cell = RcuCell::in_domain(Counted::new(1, &alive), domain.clone());
    let rcu = || drop(cell.rcu(|_| resume_unwind(Box::new(()))));
    assert!(catch_unwind(AssertUnwindSafe(rcu)).is_err());
    let read = || cell.read(|_| resume_unwind(Box::new(())));
    assert!(catch_unwind(AssertUnwindSafe(read)).is_err());
    let part = cell.map(|_| -> &u64 { resume_unwind(Box::new(())) });
    assert!(catch_unwind(AssertUnwindSafe(|| *part.load())).is_err());
    // None of them left a section behind.
    domain.synchronize();
    assert_eq!((cell.load().0, alive.load(Relaxed)), (1, 1));
}

#[test]
fn a_panic_of_a_drop_reaches_no_caller_and_leaks_nothing() {
    struct Panics(Counted);
    impl Drop for Panics {
        fn drop(&mut self) {
            // Bypasses the panic hook, whose output would be useless here.
            if self.0.0 != 0 {
                resume_unwind(Box::new(()));
            }
        }
    }
    let alive = Arc::default();
    let cell = RcuCell::in_domain(Panics(Counted::new(1, &alive)), Domain::new());
    for number in (0..10).rev() {
        cell.store(Panics(Counted::new(number, &alive)));
        assert_eq!((cell.load().0.0, alive.load(Relaxed)), (number, 1));
    }
    cell.store(Panics(Counted::new(1, &alive)));
    // The value in the cell is the owner's affair.
    assert!(catch_unwind(AssertUnwindSafe(|| drop(cell))).is_err());
    assert_eq!(alive.load(Relaxed), 0);
}

/// A value whose drop replaces the value of its cell by another one of its kind, and that one.
struct StoresAgain {
    cell: Weak<RcuCell<Option<StoresAgain>>>,
    left: usize,
    dropped: Arc<AtomicUsize>,
}

impl Drop for StoresAgain {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Relaxed);
        if let (Some(cell), Some(left)) = (self.cell.upgrade(), self.left.checked_sub(1)) {
            cell.store(Some(StoresAgain {
                cell: self.cell.clone(),
                left,
                dropped: self.dropped.clone(),
            }));
            cell.store(None);
        }
    }
}

/// Nested drops would need 20 MB of stack.
#[test]
fn a_drop_may_store_into_its_cell_and_needs_no_stack() {
    let domain = Domain::new();
    let cell = Arc::new(RcuCell::in_domain(None, domain.clone()));
    let (left, dropped) = (50_000, Arc::default());
    cell.store(Some(StoresAgain {
        cell: Arc::downgrade(&cell),
        left,
        dropped: Arc::clone(&dropped),
    }));
    for number in 1..=left + 1 {
        cell.store(None);
        assert_eq!(dropped.load(Relaxed), number);
    }
    assert!(cell.read(Option::is_none));
    domain.barrier();
    assert_eq!(domain.backlog_bytes(), 0);
}

#[test]
fn a_closure_may_read_and_replace_the_value() {
    let cell = RcuCell::new(1);
    let mut calls = 0;
    let old = cell.rcu(|value| {
        calls += 1;
        if calls == 1 {
            cell.store(value + 10);
        }
        cell.load_full() * 2
    });
    assert_eq!((*old, *cell.load(), calls), (11, 22, 2));
}

#[test]
fn the_backlog_is_bounded_while_a_reader_stays() {
    let limits = Limits {
        soft: 10_000,
        hard: 20_000,
    };
    let domain = Builder::default().limits(limits).build("bounded");
    let alive = Arc::default();
    let cell = RcuCell::in_domain(Counted::new(0, &alive), domain.clone());
    let guard = cell.load();
    let mut number = 0;
    let full = loop {
        number += 1;
        match cell.try_store(Counted::new(number, &alive)) {
            Ok(Pressure::OverHard) => assert!(domain.backlog_bytes() > limits.hard),
            Ok(_) => assert!(number < 1000, "values count too little"),
            Err(BacklogFull(value)) => break value,
        }
    };
    assert_eq!((full.0, cell.load().0, guard.0), (number, number - 1, 0));
    drop(guard);
    assert_eq!(cell.try_store(full).unwrap(), Pressure::Fine);
    assert_eq!(alive.load(Relaxed), 1);
}

#[test]
fn no_update_is_lost() {
    let cell = RcuCell::in_domain(0_u64, Domain::new());
    let (threads, each) = (
        4,
        if cfg!(debug_assertions) {
            5_000
        } else {
            20_000
        },
    );
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..each {
                    let old = cell.rcu(|value| value + 1);
                    assert!(*old < threads * each);
                }
            });
        }
    });
    assert_eq!(cell.into_inner(), threads * each);
}

/// Starts readers that look at a value twice, in the ways in which a cell is read.
fn spawn_readers<'s>(scope: &'s thread::Scope<'s, '_>, cell: &'s RcuCell<Box<Object>>) {
    scope.spawn(|| {
        for_a_while(|_| {
            let value = cell.load();
            value.check();
            value.check();
        });
    });
    scope.spawn(|| {
        for_a_while(|_| {
            let guard = cell.domain().pin();
            let (one, other) = (cell.within(&guard), cell.within(&guard));
            one.check();
            other.check();
            cell.read(|value| value.check());
            one.check();
        });
    });
    scope.spawn(|| {
        let mut qsbr = cell.domain().qsbr();
        for_a_while(|_| {
            cell.within(&qsbr.section()).check();
            assert!(qsbr.quiescent());
        });
    });
}

/// Runs readers beside all ways of replacing a value.
fn read_and_replace(domain: &Domain) {
    let alive = Arc::default();
    let cell = RcuCell::in_domain(Object::new(&alive), domain.clone());
    thread::scope(|scope| {
        spawn_readers(scope, &cell);
        scope.spawn(|| for_a_while(|_| cell.store(Object::new(&alive))));
        scope.spawn(|| {
            for_a_while(|_| {
                cell.rcu(|value| {
                    value.check();
                    Object::new(&alive)
                })
                .check();
            });
        });
        scope.spawn(|| {
            for_a_while(|round| {
                let old = cell.swap(Object::new(&alive));
                old.check();
                match round % 3 {
                    0 => old.into_inner().check(),
                    1 => drop(old.try_into_inner()),
                    _ => drop(old),
                }
                let seen = cell.load();
                let exchanged = cell.compare_exchange(&seen, Object::new(&alive));
                seen.check();
                drop(seen);
                drop(exchanged);
            });
        });
    });
    cell.into_inner().check();
    domain.barrier();
    // Other threads may still be dropping the last: those of other tests, in the global domain.
    for _ in 0..10_000_000 {
        if alive.load(Relaxed) == 0 {
            return;
        }
        thread::yield_now();
    }
    panic!("{} objects are alive", alive.load(Relaxed));
}

#[test]
fn readers_never_see_a_dropped_value() {
    read_and_replace(&Domain::new());
}

#[test]
fn readers_of_the_global_domain_never_see_a_dropped_value() {
    read_and_replace(Domain::global());
}

/// Readers that stay long, and values that wait for them beyond the limits.
#[test]
fn readers_never_see_a_dropped_value_beyond_the_limits() {
    let limits = Limits {
        soft: 5_000,
        hard: 10_000,
    };
    let domain = Builder::default()
        .limits(limits)
        .stall_after(Duration::from_millis(1))
        .build("small");
    read_and_replace(&domain);
}

#[test]
fn a_cell_in_a_static_is_read_while_threads_come_and_go() {
    static CELL: LazyLock<RcuCell<Vec<u64>>> = LazyLock::new(|| RcuCell::new(vec![0; 8]));
    thread_local! {
        static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) };
    }
    // Two threads leave at the same time.
    static EXIT: std::sync::Barrier = std::sync::Barrier::new(2);
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            EXIT.wait();
            // After the thread's record, or before it.
            CELL.rcu(|value| value.iter().map(|word| word + 1).collect());
        }
    }
    let rounds = 50;
    let is_over = AtomicBool::new(false);
    let read = || {
        while !is_over.load(Relaxed) {
            let value = CELL.load();
            assert!(value.iter().all(|word| *word == value[0]));
        }
    };
    beside(1, &is_over, read, |_| {
        come_and_go(rounds, 2, |round, number| {
            if (round + number) % 2 == 0 {
                CELL.read(|value| assert_eq!(value.len(), 8));
            }
            LATE.set(Some(Late));
        })
    });
    assert_eq!(*CELL.load(), [2 * rounds; 8]);
}
