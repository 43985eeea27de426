//! Lock elision: every path, on scripted transactions, and the same sections on real ones where the
//! processor has them.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};

use corewise_locks::elide::{
    AttemptOutcome, Cause, Cop, Counts, Elided, ElidedParts, NoTransactions, Policy, Retry, Rtm,
    Scm, ScmOpt, Scripted, Slr, SlrScm, Subscribe, Transaction, Tx,
};
use corewise_locks::{Clh, DistributedRw, Mcs, Tas, Ticket, Ttas, TtasBackoff};
use corewise_testkit::history::models::{EntryOp, EntryOutcome, MapEntry};
use corewise_testkit::history::record_threads;
use corewise_testkit::random::{Random, is_short};

const THREADS: usize = 8;

fn rounds() -> usize {
    match (std::env::var_os("COREWISE_MANY").is_some(), is_short()) {
        (true, _) => 20_000,
        (_, true) => 60,
        _ => 200,
    }
}

type Pair = [AtomicU64; 2];

fn pair<L: Subscribe, P: Policy>() -> Elided<Pair, L, P, Scripted> {
    Elided::new(Pair::default(), Some(Scripted::new()))
}

/// Adds one to both halves.
fn add<L: Subscribe, P: Policy, B: Transaction>(pair: &Elided<Pair, L, P, B>) {
    pair.run(|[one, other], tx| {
        tx.store(one, tx.load(one) + 1);
        tx.store(other, tx.load(other) + 1);
    });
}

fn halves<L: Subscribe, P: Policy, B: Transaction>(pair: &Elided<Pair, L, P, B>) -> (u64, u64) {
    pair.run(|[one, other], tx| (tx.load(one), tx.load(other)))
}

/// Runs one section whose attempts all end as `outcome`, and returns the counts.
fn always<P: Policy>(outcome: AttemptOutcome) -> Counts {
    let pair = pair::<Mcs, P>();
    let script = Scripted::play([], outcome);
    add(&pair);
    drop(script);
    assert!(!pair.is_locked());
    let counts = pair.counts();
    assert_eq!(halves(&pair), (1, 1), "the section took effect once");
    counts
}

/// The exact number of attempts for each cause that never ends, for each policy.
#[track_caller]
fn attempts_are_bounded<P: Policy>() {
    let all = u64::from(P::ALONE + P::AIDED);
    let counted = [Cause::Conflict, Cause::BadPrefix, Cause::Panicked];
    let expected = counted.map(|cause| (cause, all)).into_iter().chain([
        (Cause::Capacity, 2.min(all)),
        (Cause::Unspecified, 3.min(all)),
        (Cause::Nested, 1),
        (Cause::Explicit(7), 1),
        (Cause::Debug, 1),
        // 64 that are not counted as attempts, and the last one.
        (Cause::Locked, 65),
    ]);
    for (cause, attempts) in expected {
        for outcome in [
            AttemptOutcome::AbortAtBegin(cause),
            AttemptOutcome::AbortAtAccess(0, cause),
            AttemptOutcome::AbortAtAccess(3, cause),
            AttemptOutcome::AbortAtCommit(cause),
        ] {
            let counts = always::<P>(outcome);
            assert_eq!(counts.started, attempts, "{outcome:?}: {counts:?}");
            assert_eq!(
                counts.aborted_by(cause),
                attempts,
                "{outcome:?}: {counts:?}"
            );
            assert_eq!(counts.all_aborted(), attempts, "{outcome:?}: {counts:?}");
            assert_eq!((counts.committed, counts.fallbacks), (0, 1), "{outcome:?}");
            let is_aided = P::AIDED > 0 && attempts > u64::from(P::ALONE) && cause != Cause::Locked;
            assert_eq!(counts.aided, u64::from(is_aided), "{outcome:?}: {counts:?}");
        }
    }
}

#[test]
fn attempts_of_retry_are_bounded() {
    attempts_are_bounded::<Retry<1>>();
    attempts_are_bounded::<Retry<5>>();
    attempts_are_bounded::<Retry<10>>();
    attempts_are_bounded::<Retry<20>>();
}

#[test]
fn attempts_of_scm_are_bounded() {
    attempts_are_bounded::<Scm>();
}

#[test]
fn attempts_of_optimistic_scm_are_bounded() {
    attempts_are_bounded::<ScmOpt>();
}

#[test]
fn attempts_of_slr_are_bounded() {
    attempts_are_bounded::<Slr>();
}

#[test]
fn attempts_of_slr_and_scm_are_bounded() {
    attempts_are_bounded::<SlrScm>();
}

/// A section commits in each attempt that the policy has, and not after the last one.
fn commits_in_the_last_attempt<P: Policy>() {
    let conflict = AttemptOutcome::AbortAtCommit(Cause::Conflict);
    for failures in 0..=P::ALONE + P::AIDED {
        let pair = pair::<Ttas, P>();
        let script = Scripted::play(vec![conflict; failures as usize], AttemptOutcome::Commit);
        add(&pair);
        assert_eq!(Scripted::outcomes_left(), 0);
        drop(script);
        let counts = pair.counts();
        let is_in_time = failures < P::ALONE + P::AIDED;
        assert_eq!(
            counts.committed,
            u64::from(is_in_time),
            "{failures} failures"
        );
        assert_eq!(
            counts.fallbacks,
            u64::from(!is_in_time),
            "{failures} failures"
        );
        let is_aided = P::AIDED > 0 && failures >= P::ALONE;
        assert_eq!(counts.aided, u64::from(is_aided), "{failures} failures");
        assert_eq!(halves(&pair), (1, 1));
    }
}

#[test]
fn every_attempt_can_commit() {
    commits_in_the_last_attempt::<Retry<5>>();
    commits_in_the_last_attempt::<Scm>();
    commits_in_the_last_attempt::<ScmOpt>();
    commits_in_the_last_attempt::<Slr>();
    commits_in_the_last_attempt::<SlrScm>();
}

/// Without a back end every section takes the lock.
#[test]
fn without_transactions_the_lock_is_taken() {
    let pair: Elided<Pair, Mcs, SlrScm> = Elided::new(Pair::default(), None);
    add(&pair);
    assert_eq!(halves(&pair), (1, 1));
    let counts = pair.counts();
    assert_eq!((counts.started, counts.fallbacks), (0, 2));
}

/// One thread holds the lock, until sections of the other were aborted for that reason this number
/// of times.
fn beside_a_holder<P: Policy>(pair: &Elided<Pair, Mcs, P, Scripted>, at_least_aborts: u64) {
    let is_inside = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _script = Scripted::play([], AttemptOutcome::AbortAtBegin(Cause::Debug));
            pair.run(|[one, other], tx| {
                tx.store(one, tx.load(one) + 1);
                is_inside.store(1, SeqCst);
                // Until the other thread has taken notice of the lock.
                while pair.counts().aborted_by(Cause::Locked) < at_least_aborts
                    && is_inside.load(SeqCst) == 1
                {
                    std::thread::yield_now();
                }
                tx.store(other, tx.load(other) + 1);
            });
        });
        while is_inside.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        if at_least_aborts == 0 {
            is_inside.store(2, SeqCst);
        }
        add(pair);
    });
    assert_eq!(halves(pair), (2, 2));
}

/// §4.2.3, first behaviour that worsens the lemming effect: retrying too fast. A thread that finds
/// the lock held waits until it is free; that costs none of its attempts.
#[test]
fn lemming_1_a_held_lock_costs_no_attempt() {
    let locked = AttemptOutcome::AbortAtCommit(Cause::Locked);
    for times in [1, 10, 64] {
        let pair = pair::<Mcs, Retry<1>>();
        let script = Scripted::play(vec![locked; times], AttemptOutcome::Commit);
        add(&pair);
        drop(script);
        let counts = pair.counts();
        assert_eq!(
            (counts.committed, counts.fallbacks),
            (1, 0),
            "{times} times"
        );
    }
    // With a real holder: sections that read the lock at commit run beside it, and commit later.
    let pair = pair::<Mcs, Slr>();
    beside_a_holder(&pair, 1);
    let counts = pair.counts();
    assert!(counts.aborted_by(Cause::Locked) >= 1, "{counts:?}");
    // Sections that read it at begin do not even start.
    let pair = self::pair::<Mcs, Retry<1>>();
    beside_a_holder(&pair, 0);
    assert_eq!(pair.counts().aborted_by(Cause::Conflict), 0);
}

/// Second: too many retries. The bound holds for threads that abort each other all the time.
#[test]
fn lemming_2_threads_that_abort_each_other_end() {
    let pair = pair::<Mcs, SlrScm>();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let _script = Scripted::play([], AttemptOutcome::AbortAtCommit(Cause::Conflict));
                (0..20).for_each(|_| add(&pair));
            });
        }
    });
    let counts = pair.counts();
    assert_eq!(
        (counts.committed, counts.fallbacks, counts.aided),
        (0, 80, 80)
    );
    // Those that found the lock held are on top.
    assert!(counts.started <= 80 * (20 + 64), "{counts:?}");
    assert_eq!(halves(&pair), (80, 80));
}

/// Third: no fallback. A section that can never commit ends under the lock.
#[test]
fn lemming_3_a_section_that_never_commits_takes_the_lock() {
    let pair = pair::<Mcs, Scm>();
    let value = pair.run(|_, tx| {
        tx.leave_transaction::<5>(); // such as for a system call
        assert!(!tx.is_transaction());
        7
    });
    let counts = pair.counts();
    assert_eq!((value, counts.fallbacks), (7, 1));
    assert_eq!(counts.aborted_by(Cause::Explicit(5)), 1);
}

/// Fourth: the lock is not in the read set. Fifth: XTEST instead of a check of the lock. A
/// transaction that has seen half of a section under the lock does not commit. (`models.rs` has the
/// mutants.)
#[test]
fn lemming_4_and_5_no_transaction_commits_beside_a_holder() {
    fn check<P: Policy>() {
        let pair = pair::<Mcs, P>();
        let threads_seen = AtomicUsize::new(0);
        let stage = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _script = Scripted::play([], AttemptOutcome::AbortAtBegin(Cause::Debug));
                pair.run(|[one, other], tx| {
                    tx.store(one, 1);
                    stage.store(1, SeqCst);
                    while stage.load(SeqCst) == 1 {
                        std::thread::yield_now();
                    }
                    tx.store(other, 1);
                });
            });
            while stage.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            let both = pair.run(|[one, other], tx| {
                threads_seen.fetch_add(1, SeqCst);
                let torn = (tx.load(one), tx.load(other));
                stage.store(2, SeqCst);
                torn
            });
            assert_eq!(both, (1, 1));
        });
        // With SLR the section ran beside the holder, saw a torn pair, and was aborted.
        assert!(threads_seen.into_inner() >= 1);
    }
    check::<Slr>();
    check::<SlrScm>();
}

/// A panic in a transaction aborts it; the section panics once, under the lock, and unlocks it.
#[test]
fn a_panic_is_raised_from_under_the_lock() {
    fn check<P: Policy>() {
        let pair = pair::<Mcs, P>();
        let under_lock = Cell::new(0);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            pair.run(|[one, _], tx| {
                tx.store(one, tx.load(one) + 1);
                under_lock.set(under_lock.get() + u32::from(!tx.is_transaction()));
                panic!("expected");
            })
        }));
        let payload = panicked.expect_err("the section panics");
        assert_eq!(payload.downcast_ref(), Some(&"expected"));
        assert_eq!(under_lock.get(), 1);
        assert!(!pair.is_locked());
        let counts = pair.counts();
        let attempts = u64::from(P::ALONE + P::AIDED);
        assert_eq!(counts.aborted_by(Cause::Panicked), attempts);
        // There is no poison: what the section did under the lock remains.
        assert_eq!(halves(&pair), (1, 0));
        add(&pair);
        assert_eq!(halves(&pair), (2, 1));
    }
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    check::<Retry<3>>();
    check::<SlrScm>();
    std::panic::set_hook(hook);
}

/// A section that catches the unwinding of an abort cannot commit.
#[test]
fn an_abort_cannot_be_caught() {
    let pair = pair::<Mcs, Retry<2>>();
    let script = Scripted::play(
        [AttemptOutcome::AbortAtAccess(1, Cause::Conflict)],
        AttemptOutcome::Commit,
    );
    pair.run(|[one, other], tx| {
        let _ = catch_unwind(AssertUnwindSafe(|| {
            tx.store(one, tx.load(one) + 1);
            tx.store(other, tx.load(other) + 1);
        }));
    });
    drop(script);
    assert_eq!(halves(&pair), (1, 1));
    assert_eq!(pair.counts().aborted_by(Cause::Conflict), 1);
}

/// A section of another lock inside: scripted transactions do not nest, so the outer section runs
/// under its lock, and the inner one as a transaction.
#[test]
fn sections_of_two_locks_nest() {
    let (outer, inner) = (pair::<Mcs, Retry<3>>(), pair::<Ticket, Slr>());
    outer.run(|[one, other], tx| {
        tx.store(one, 1);
        add(&inner);
        tx.store(other, 1);
    });
    let (of_outer, of_inner) = (outer.counts(), inner.counts());
    assert_eq!(
        (of_outer.aborted_by(Cause::Nested), of_outer.fallbacks),
        (1, 1),
        "no attempt follows"
    );
    assert_eq!((of_inner.committed, of_inner.fallbacks), (1, 0));
    assert_eq!((halves(&outer), halves(&inner)), ((1, 1), (1, 1)));
}

/// Each part has its own locks: under the lock of one, sections of the other go on. Those of the
/// same part, of several threads, take effect one after the other.
#[test]
fn parts_do_not_wait_for_each_other() {
    let locked: ElidedParts<Pair, Ttas, Retry<0>> = ElidedParts::new(Pair::default(), 2, None);
    locked.run(0, |_, _| locked.run(1, |[one, _], tx| tx.store(one, 7)));
    assert_eq!(locked.get()[0].load(SeqCst), 7);
    assert_eq!(locked.counts().fallbacks, 2);

    fn sums<P: Policy>() {
        let pair = Pair::default();
        let parts: ElidedParts<Pair, Mcs, P, _> = ElidedParts::new(pair, 2, Some(Scripted::new()));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let parts = &parts;
                scope.spawn(move || {
                    let mut random = Random::from_seed(thread as u64);
                    for _ in 0..rounds() {
                        let script: Vec<_> = (0..4).map(|_| random_outcome(&mut random)).collect();
                        let _script = Scripted::play(script, AttemptOutcome::Commit);
                        let part = random.index(2);
                        parts.run(part, |pair, tx| {
                            tx.store(&pair[part], tx.load(&pair[part]) + 1)
                        });
                    }
                });
            }
        });
        let sum: u64 = parts.get().iter().map(|half| half.load(SeqCst)).sum();
        let counts = parts.counts();
        let sections = (THREADS * rounds()) as u64;
        assert_eq!(
            (sum, counts.committed + counts.fallbacks),
            (sections, sections)
        );
        assert!(counts.all_aborted() > 0, "{counts:?}");
    }
    sums::<Retry<3>>();
    sums::<SlrScm>();
}

/// Loads after stores in one section see them, of any type.
#[test]
fn a_section_reads_its_own_writes() {
    type Mixed = (
        AtomicU64,
        std::sync::atomic::AtomicBool,
        std::sync::atomic::AtomicPtr<u8>,
    );
    let mut byte = 3u8;
    let mixed: Elided<Mixed, Ttas, Retry, Scripted> =
        Elided::new(Default::default(), Some(Scripted::new()));
    let pointer = &raw mut byte as usize;
    let seen = mixed.run(|(word, flag, place), tx| {
        tx.store(word, u64::MAX);
        tx.store(flag, true);
        tx.store(place, pointer as *mut u8);
        (tx.load(word), tx.load(flag), tx.load(place) as usize)
    });
    assert_eq!(seen, (u64::MAX, true, pointer));
    assert_eq!(mixed.counts().committed, 1);
    let (word, flag, place) = mixed.into_inner();
    assert_eq!((word.into_inner(), flag.into_inner()), (u64::MAX, true));
    assert_eq!(place.into_inner() as usize, pointer);
}

/// Sections that only read: the fallback shares the lock, and a writer's transaction does not
/// commit beside it.
#[test]
fn readers_share_the_lock() {
    let pair = pair::<DistributedRw, SlrScm>();
    let is_inside = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _script = Scripted::play([], AttemptOutcome::AbortAtBegin(Cause::Debug));
            let both = pair.read(|[one, other], tx| {
                let first = tx.load(one);
                is_inside.store(1, SeqCst);
                // Until a writer's transaction was aborted because of this reader.
                while pair.counts().aborted_by(Cause::Locked) == 0 {
                    std::thread::yield_now();
                }
                (first, tx.load(other))
            });
            assert_eq!(both, (0, 0), "no writer in between");
        });
        while is_inside.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        // Beside the reader: a reader's transaction commits, and one under the lock shares it.
        assert_eq!(pair.read(|[one, _], tx| tx.load(one)), 0);
        let script = Scripted::play([], AttemptOutcome::AbortAtBegin(Cause::Debug));
        assert_eq!(pair.read(|[one, _], tx| tx.load(one)), 0);
        drop(script);
        assert_eq!(pair.counts().aborted_by(Cause::Locked), 0);
        add(&pair);
    });
    assert_eq!(halves(&pair), (1, 1));
    assert!(pair.counts().aborted_by(Cause::Locked) >= 1);
}

/// Adds one to the first free cell after a hint, for [`Cop`].
struct Increment<'a> {
    prefixes: &'a AtomicUsize,
    verifications: &'a AtomicUsize,
    outdated: usize,
    gives_up: bool,
}

impl<B: Transaction> Cop<Pair, B> for Increment<'_> {
    type Plan = u64;
    type Output = (u64, bool);

    fn prefix(&self, data: &Pair) -> Option<u64> {
        self.prefixes.fetch_add(1, SeqCst);
        (!self.gives_up).then(|| data[0].load(SeqCst))
    }

    fn verify<'t>(&self, data: &'t Pair, tx: &Tx<'t, B>, plan: &u64) -> bool {
        let number = self.verifications.fetch_add(1, SeqCst);
        number >= self.outdated && tx.load(&data[0]) == *plan
    }

    fn complete<'t>(&self, data: &'t Pair, tx: &Tx<'t, B>, plan: &u64) -> (u64, bool) {
        tx.store(&data[0], plan + 1);
        tx.store(&data[1], plan + 1);
        (plan + 1, true)
    }

    fn serial<'t>(&self, data: &'t Pair, tx: &Tx<'t, B>) -> (u64, bool) {
        let next = tx.load(&data[0]) + 1;
        tx.store(&data[0], next);
        tx.store(&data[1], next);
        (next, false)
    }
}

/// The prefixes that were run, the counts and the output of one operation.
fn planned<P: Policy>(
    script: &[AttemptOutcome],
    outdated: usize,
    gives_up: bool,
) -> (usize, Counts, bool) {
    let pair = pair::<Mcs, P>();
    let (prefixes, verifications) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let script = Scripted::play(script.iter().copied(), AttemptOutcome::Commit);
    let (value, is_planned) = pair.cop(&Increment {
        prefixes: &prefixes,
        verifications: &verifications,
        outdated,
        gives_up,
    });
    drop(script);
    let counts = pair.counts();
    assert_eq!((value, halves(&pair)), (1, (1, 1)));
    (prefixes.into_inner(), counts, is_planned)
}

/// §5.4: what a prefix has found is used again after all aborts except a failed verification.
#[test]
fn a_prefix_runs_again_only_if_it_was_outdated() {
    let (prefixes, counts, is_planned) = planned::<Slr>(&[], 0, false);
    assert_eq!((prefixes, counts.committed, is_planned), (1, 1, true));

    let aborts = [
        Cause::Locked,
        Cause::Conflict,
        Cause::Unspecified,
        Cause::Capacity,
    ];
    let aborts = aborts.map(AttemptOutcome::AbortAtCommit);
    let (prefixes, counts, is_planned) = planned::<Slr>(&aborts, 0, false);
    assert_eq!((prefixes, counts.started, is_planned), (1, 5, true));

    let (prefixes, counts, is_planned) = planned::<Slr>(&[], 3, false);
    assert_eq!((prefixes, counts.committed, is_planned), (4, 1, true));
    assert_eq!(counts.aborted_by(Cause::BadPrefix), 3);

    // The attempts of the policy, then under the lock.
    let (prefixes, counts, is_planned) = planned::<Slr>(&[], usize::MAX, false);
    assert_eq!((prefixes, counts.fallbacks, is_planned), (10, 1, false));

    let (prefixes, counts, is_planned) = planned::<Slr>(&[], 0, true);
    assert_eq!(
        (prefixes, counts.started, counts.fallbacks, is_planned),
        (1, 0, 1, false)
    );
}

/// An outcome of each kind now and then.
fn random_outcome(random: &mut Random) -> AttemptOutcome {
    let cause = match random.below(4) {
        0 => Cause::Conflict,
        1 => Cause::Capacity,
        2 => Cause::Unspecified,
        _ => Cause::Explicit(1),
    };
    match random.below(8) {
        0 => AttemptOutcome::AbortAtBegin(cause),
        1 => AttemptOutcome::AbortAtAccess(random.below(4) as u32, cause),
        2 => AttemptOutcome::AbortAtCommit(cause),
        _ => AttemptOutcome::Commit,
    }
}

/// Threads move amounts between accounts; the sum is the same at all times.
fn sums_are_kept<L: Subscribe, P: Policy, B: Transaction>(backend: Option<B>) -> Counts {
    const ACCOUNTS: usize = 6;
    let bank: Elided<[AtomicU64; ACCOUNTS], L, P, B> =
        Elided::new(std::array::from_fn(|_| AtomicU64::new(100)), backend);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let bank = &bank;
            scope.spawn(move || {
                let mut random = Random::from_seed(thread as u64);
                for _ in 0..rounds() {
                    let script: Vec<_> = (0..4).map(|_| random_outcome(&mut random)).collect();
                    let _script = Scripted::play(script, AttemptOutcome::Commit);
                    let from = random.index(ACCOUNTS);
                    let to = random.index(ACCOUNTS);
                    let sum = bank.run(|accounts, tx| {
                        let amount = tx.load(&accounts[from]).min(3);
                        tx.store(&accounts[from], tx.load(&accounts[from]) - amount);
                        tx.store(&accounts[to], tx.load(&accounts[to]) + amount);
                        accounts.iter().map(|account| tx.load(account)).sum::<u64>()
                    });
                    assert_eq!(sum, 100 * ACCOUNTS as u64);
                }
            });
        }
    });
    let counts = bank.counts();
    assert_eq!(
        counts.committed + counts.fallbacks,
        (THREADS * rounds()) as u64
    );
    assert_eq!(counts.started, counts.committed + counts.all_aborted());
    counts
}

macro_rules! sums {
    ($($name:ident: $lock:ty, $policy:ty);* $(;)?) => {$(
        #[test]
        fn $name() {
            let counts = sums_are_kept::<$lock, $policy, _>(Some(Scripted::new()));
            assert!(counts.all_aborted() > 0 && counts.fallbacks > 0, "{counts:?}");
            let (rtm, back_end) = (Rtm::detect(), if Rtm::detect().is_ok() { "RTM" } else { "none" });
            println!("{}: scripted transactions, and real ones: {back_end}", stringify!($name));
            let counts = sums_are_kept::<$lock, $policy, Rtm>(rtm.ok());
            assert_eq!(counts.started == 0, rtm.is_err());
        }
    )*};
}
sums! {
    sums_are_kept_by_retry: Ttas, Retry<5>;
    sums_are_kept_by_scm: Ttas, Scm;
    sums_are_kept_by_optimistic_scm: Ttas, ScmOpt;
    sums_are_kept_by_optimistic_scm_over_mcs: Mcs, ScmOpt;
    sums_are_kept_by_slr: Mcs, Slr;
    sums_are_kept_by_slr_and_scm: Mcs, SlrScm;
    sums_are_kept_over_ticket: Ticket, SlrScm;
    sums_are_kept_over_clh: Clh, Slr;
    sums_are_kept_over_tas: Tas, Retry;
    sums_are_kept_over_backoff: TtasBackoff, Scm;
    sums_are_kept_over_the_distributed_lock: DistributedRw, SlrScm;
}

/// Recorded histories of a small map are linearizable.
#[test]
fn sections_are_linearizable() {
    fn check<P: Policy>() {
        let map: Elided<[AtomicU64; 2], Mcs, P, Scripted> =
            Elided::new(Default::default(), Some(Scripted::new()));
        let history = record_threads(4, 60, |thread, recorder| {
            let mut random = Random::from_seed(thread);
            for round in 0..60 {
                let script = [random_outcome(&mut random), random_outcome(&mut random)];
                let _script = Scripted::play(script, AttemptOutcome::Commit);
                let key = random.below(2) as usize;
                let value = thread * 1_000 + round + 1;
                let held = |old: u64| EntryOutcome::Held((old != 0).then_some(old));
                if random.below(2) == 0 {
                    recorder.record(key, EntryOp::Insert(value), || {
                        held(map.run(|cells, tx| {
                            let old = tx.load(&cells[key]);
                            tx.store(&cells[key], value);
                            old
                        }))
                    });
                } else {
                    recorder.record(key, EntryOp::Get, || {
                        held(map.run(|cells, tx| tx.load(&cells[key])))
                    });
                }
            }
        });
        history.check(&MapEntry::new()).assert_linearizable();
    }
    check::<Retry<5>>();
    check::<Scm>();
    check::<ScmOpt>();
    check::<Slr>();
    check::<SlrScm>();
}

/// Exclusive sections: with transactions where the processor has them, and with the lock otherwise.
#[test]
fn exclusive_sections_keep_increments() {
    let total: Elided<[u64; 2], Ttas, Scm> = Elided::new([0; 2], Rtm::detect().ok());
    println!("back end: {:?}", Rtm::detect());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..rounds() {
                    total.run_mut(|both| {
                        both[0] += 1;
                        both[1] += 1;
                    });
                }
            });
        }
    });
    let counts = total.counts();
    let sections = (THREADS * rounds()) as u64;
    assert_eq!(counts.committed + counts.fallbacks, sections);
    assert_eq!(total.into_inner(), [sections; 2]);
}

/// The switch: the test runs itself with the variable set.
#[test]
fn transactions_can_be_switched_off() {
    const CHILD: &str = "COREWISE_TEST_IS_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let error = Rtm::detect().expect_err("switched off, or absent");
        assert!(
            matches!(error, NoTransactions::SwitchedOff | NoTransactions::Absent),
            "{error}"
        );
        return;
    }
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "elide::transactions_can_be_switched_off"])
        .env(CHILD, "1")
        .env("COREWISE_RTM", "off")
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
}
