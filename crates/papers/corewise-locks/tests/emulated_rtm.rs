//! The instructions of `Rtm`, and the policies on them, on an emulator; this is no evidence about
//! real transactions.
//!
//! On a processor without RTM the [`emulator`] executes `xbegin`, `xend`, `xabort` and `xtest` in
//! a signal handler. So the tests show that the inline assembly is encoded as intended and
//! declares its operands and clobbers, that status words are decoded, and that every policy
//! survives an abort at each instruction. They do not show isolation from threads that hold the
//! lock, which only the hardware gives, nor the undoing of a panic. Where the processor executes
//! the instructions, they say SKIPPED; `elide.rs` then runs on real transactions.

#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    target_arch = "x86_64",
    not(any(corewise_loom, corewise_shuttle, corewise_tsan, miri))
))]

use std::arch::asm;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use corewise_locks::elide::{
    Abort, Cause, Counts, Elided, NoTransactions, Opaque, Policy, Retry, Rtm, Scm, ScmOpt, Slr,
    SlrScm, Subscribe,
};
use corewise_locks::{Mcs, Ticket, Ttas};
use corewise_testkit::random::Random;
use corewise_testkit::rtm_emulator::{
    self as emulator, CAPACITY, CONFLICT, DEBUG, EXPLICIT, Fate, NESTED, RETRY, Traps, emulated,
    region,
};

const OFTEN: u32 = CONFLICT | RETRY;
/// More than the instructions of any section here.
const MAX_INSTRUCTIONS: u32 = 5_000;

const fn explicit(code: u8) -> u32 {
    EXPLICIT | (code as u32) << 24
}

/// Status words that processors report, and what they mean.
const STATUSES: [(u32, Cause); 14] = [
    (0, Cause::Unspecified),
    (RETRY, Cause::Unspecified),
    (NESTED, Cause::Unspecified),
    (CONFLICT, Cause::Conflict),
    (CONFLICT | RETRY, Cause::Conflict),
    (CONFLICT | NESTED, Cause::Conflict),
    (CONFLICT | CAPACITY, Cause::Conflict),
    (CAPACITY, Cause::Capacity),
    (DEBUG, Cause::Debug),
    (explicit(7), Cause::Explicit(7)),
    (explicit(0xff), Cause::Locked),
    (explicit(0xfe), Cause::Nested),
    (explicit(0xfd), Cause::BadPrefix),
    (explicit(0xfc), Cause::Panicked),
];

/// Proof of RTM for tests inside of [`emulated`]. None if the processor executes the instructions,
/// whatever CPUID reports.
fn rtm() -> Option<Rtm> {
    if matches!(Rtm::detect(), Err(NoTransactions::Absent)) && emulator::is_emulated() {
        // SAFETY: the type has no size. What it proves is that the instructions can be executed:
        // tests do that in `emulated` only.
        return Some(unsafe { std::mem::transmute::<(), Rtm>(()) });
    }
    println!("SKIPPED: the processor executes the instructions of RTM");
    None
}

type Pair = [AtomicU64; 2];

fn add<L: Subscribe, P: Policy>(pair: &Elided<Pair, L, P>) {
    pair.run(|[one, other], tx| {
        tx.store(one, tx.load(one) + 1);
        tx.store(other, tx.load(other) + 1);
    });
}

/// Runs one section and checks that it took effect once.
fn section<L: Subscribe, P: Policy>(rtm: Rtm, script: &[Fate], otherwise: Fate) -> Counts {
    let pair = Elided::<Pair, L, P>::new(Pair::default(), Some(rtm));
    let ((), traps) = emulated(script, otherwise, &[region(&pair)], || add(&pair));
    let counts = pair.counts();
    let context = format!("{script:?}, {otherwise:?}: {counts:?}, {traps:?}");
    assert!(!pair.is_locked(), "{context}");
    assert_eq!(
        pair.into_inner().map(AtomicU64::into_inner),
        [1, 1],
        "{context}"
    );
    assert_eq!(counts.committed + counts.fallbacks, 1, "{context}");
    assert_eq!(counts.started, traps.began, "{context}");
    assert_eq!(counts.committed, traps.committed, "{context}");
    assert_eq!(counts.all_aborted(), traps.aborted, "{context}");
    counts
}

#[test]
fn a_status_word_reaches_the_caller() {
    let Some(rtm) = rtm() else { return };
    for (status, cause) in STATUSES {
        for fate in [
            Fate::AbortAtBegin(status),
            Fate::AbortAfter(1, status),
            Fate::AbortAtEnd(status),
        ] {
            let ((), traps) = emulated(&[fate], Fate::Commit, &[], || {
                // SAFETY: nothing that runs until the commit has an effect (1 of `begin`), and the
                // commit runs in the transaction (1 of `commit`).
                let result = unsafe { rtm.begin().map(|()| rtm.commit()) };
                assert_eq!(result, Err(Abort { cause, status }), "{fate:?}");
                // SAFETY: nothing happens between `begin` and `commit` (1 of both).
                let result = unsafe { rtm.begin().map(|()| rtm.commit()) };
                assert_eq!(result, Ok(()), "{fate:?}");
            });
            let (began, committed, aborted, tests) = (2, 1, 1, 0);
            let expected = Traps {
                began,
                committed,
                aborted,
                tests,
            };
            assert_eq!(traps, expected, "{fate:?}");
        }
    }
}

/// Begins a transaction that overwrites all registers and is aborted. Many values are alive over
/// that, and the compiler keeps them in registers.
#[inline(never)]
fn values_after_an_abort(rtm: Rtm, seed: u64) -> (Option<Abort>, [u64; 12], [f64; 14]) {
    let integers: [u64; 12] = std::array::from_fn(|at| black_box(seed + at as u64));
    let floats: [f64; 14] = std::array::from_fn(|at| black_box(seed as f64 + at as f64));
    // SAFETY: the assembly aborts, so nothing that runs has an effect (1).
    match unsafe { rtm.begin() } {
        // SAFETY: the code does not return: `xabort` goes to the fallback of `begin`. It writes
        // registers only.
        Ok(()) => unsafe {
            asm!(
                "xor ebx, ebx",
                "xor ecx, ecx",
                "xor edx, edx",
                "xor esi, esi",
                "xor edi, edi",
                "xor ebp, ebp",
                "xor r8d, r8d",
                "xor r9d, r9d",
                "xor r10d, r10d",
                "xor r11d, r11d",
                "xor r12d, r12d",
                "xor r13d, r13d",
                "xor r14d, r14d",
                "xor r15d, r15d",
                "pxor xmm0, xmm0",
                "pxor xmm1, xmm1",
                "pxor xmm2, xmm2",
                "pxor xmm3, xmm3",
                "pxor xmm4, xmm4",
                "pxor xmm5, xmm5",
                "pxor xmm6, xmm6",
                "pxor xmm7, xmm7",
                "pxor xmm8, xmm8",
                "pxor xmm9, xmm9",
                "pxor xmm10, xmm10",
                "pxor xmm11, xmm11",
                "pxor xmm12, xmm12",
                "pxor xmm13, xmm13",
                "pxor xmm14, xmm14",
                "pxor xmm15, xmm15",
                "xabort 9",
                "ud2",
                options(noreturn)
            )
        },
        Err(abort) => (Some(abort), integers, floats),
    }
}

#[test]
fn no_value_is_lost_over_an_abort() {
    let Some(rtm) = rtm() else { return };
    for (fate, status) in [
        (Fate::Commit, explicit(9)), // up to `xabort`
        (Fate::AbortAtBegin(OFTEN), OFTEN),
        (Fate::AbortAfter(25, CAPACITY), CAPACITY),
    ] {
        let run = || values_after_an_abort(rtm, black_box(1_000));
        let ((abort, integers, floats), _) = emulated(&[], fate, &[], run);
        assert_eq!(abort, Some(Abort::from_status(status)));
        assert_eq!(integers, std::array::from_fn(|at| 1_000 + at as u64));
        assert_eq!(floats, std::array::from_fn(|at| 1_000.0 + at as f64));
    }
}

#[test]
fn begins_nest_and_an_abort_leaves_all() {
    let Some(rtm) = rtm() else { return };
    let cell = AtomicU64::new(0);
    let (abort, traps) = emulated(&[], Fate::Commit, &[region(&cell)], || {
        assert!(!rtm.is_in_transaction());
        rtm.leave::<3>(); // does nothing
        // SAFETY: what runs until a commit writes the cell, which is undone (1 of `begin`), and
        // each commit runs in a transaction (1 of `commit`).
        unsafe {
            assert_eq!(rtm.begin(), Ok(()));
            assert_eq!(rtm.begin(), Ok(()));
            cell.store(1, SeqCst);
            rtm.commit();
            assert!(rtm.is_in_transaction());
            rtm.commit();
            assert!(!rtm.is_in_transaction());
            match rtm.begin() {
                Ok(()) => {
                    cell.store(2, SeqCst);
                    assert_eq!(rtm.begin(), Ok(()));
                    cell.store(3, SeqCst);
                    rtm.leave::<5>();
                    unreachable!();
                }
                Err(abort) => abort,
            }
        }
    });
    let (cause, status) = (Cause::Explicit(5), explicit(5) | NESTED);
    assert_eq!(abort, Abort { cause, status });
    assert_eq!((traps.began, traps.committed, traps.aborted), (2, 1, 1));
    assert_eq!(
        cell.into_inner(),
        1,
        "the commit remains, and the abort undid its stores"
    );
}

/// For each cause that never ends, the number of attempts is that on scripted transactions.
fn attempts_are_bounded<P: Policy>(rtm: Rtm) {
    let all = u64::from(P::ALONE + P::AIDED);
    for (status, cause) in STATUSES {
        let attempts = match cause {
            Cause::Locked => 65,
            Cause::Nested | Cause::Explicit(_) | Cause::Debug => 1,
            Cause::Capacity => 2.min(all),
            Cause::Unspecified => 3.min(all),
            _ => all,
        };
        for fate in [
            Fate::AbortAtBegin(status),
            Fate::AbortAfter(7, status),
            Fate::AbortAtEnd(status),
        ] {
            let counts = section::<Ttas, P>(rtm, &[], fate);
            assert_eq!(counts.started, attempts, "{fate:?}: {counts:?}");
            assert_eq!(counts.aborted_by(cause), attempts, "{fate:?}: {counts:?}");
            assert_eq!((counts.committed, counts.fallbacks), (0, 1), "{fate:?}");
        }
    }
    for failures in 0..all {
        let script = vec![Fate::AbortAtEnd(OFTEN); failures as usize];
        let counts = section::<Ttas, P>(rtm, &script, Fate::Commit);
        assert_eq!((counts.started, counts.committed), (failures + 1, 1));
    }
}

#[test]
fn attempts_are_those_of_the_policies() {
    let Some(rtm) = rtm() else { return };
    attempts_are_bounded::<Retry<1>>(rtm);
    attempts_are_bounded::<Retry<5>>(rtm);
    attempts_are_bounded::<Scm>(rtm);
    attempts_are_bounded::<ScmOpt>(rtm);
    attempts_are_bounded::<Slr>(rtm);
    attempts_are_bounded::<SlrScm>(rtm);
}

/// Aborts an attempt after each of its instructions in turn, until it commits.
fn at_each_instruction(mut run: impl FnMut(Fate) -> Counts) {
    for instructions in 0..MAX_INSTRUCTIONS {
        let counts = run(Fate::AbortAfter(instructions, OFTEN));
        if counts.all_aborted() == 0 {
            assert!(instructions > 5, "{instructions} instructions");
            return;
        }
    }
    panic!("more than {MAX_INSTRUCTIONS} instructions");
}

fn shared_sections<L: Subscribe, P: Policy>(rtm: Rtm) {
    at_each_instruction(|fate| section::<L, P>(rtm, &[fate], Fate::Commit));
}

fn exclusive_sections<P: Opaque>(rtm: Rtm) {
    at_each_instruction(|fate| {
        let pair = Elided::<[u64; 2], Ttas, P>::new([0; 2], Some(rtm));
        let regions = [region(&pair)];
        let (before, _) = emulated(&[fate], Fate::Commit, &regions, || {
            pair.run_mut(|[one, other]| {
                *one += 1;
                *other += 10;
                *other - 10
            })
        });
        let counts = pair.counts();
        assert_eq!((before, pair.into_inner()), (0, [1, 10]), "{fate:?}");
        counts
    });
}

#[test]
fn a_section_survives_an_abort_at_each_instruction() {
    let Some(rtm) = rtm() else { return };
    shared_sections::<Mcs, Retry<5>>(rtm);
    shared_sections::<Ticket, Scm>(rtm);
    shared_sections::<Ttas, ScmOpt>(rtm);
    shared_sections::<Mcs, Slr>(rtm);
    shared_sections::<Mcs, SlrScm>(rtm);
    exclusive_sections::<Retry<5>>(rtm);
    exclusive_sections::<Scm>(rtm);
}

/// The attempts of optimistic conflict management that lock the main lock inside.
#[test]
fn a_lock_inside_of_a_transaction_is_undone_with_it() {
    let Some(rtm) = rtm() else { return };
    at_each_instruction(|fate| {
        let mut script = vec![Fate::AbortAtEnd(OFTEN); ScmOpt::ALONE as usize];
        script.push(fate);
        let mut counts = section::<Ttas, ScmOpt>(rtm, &script, Fate::Commit);
        assert_eq!((counts.aided, counts.committed), (1, 1));
        counts.aborted[Cause::Conflict.kind()] -= u64::from(ScmOpt::ALONE);
        counts
    });
}

/// Two locks are one transaction; with the inner lock held, the outer section is aborted.
#[test]
fn sections_of_two_locks_nest() {
    let Some(rtm) = rtm() else { return };
    let outer = Elided::<Pair, Mcs, Retry<3>>::new(Pair::default(), Some(rtm));
    let inner = Elided::<Pair, Ticket, Retry<3>>::new(Pair::default(), Some(rtm));
    let both = || {
        outer.run(|[one, other], tx| {
            tx.store(one, tx.load(one) + 1);
            add(&inner);
            tx.store(other, tx.load(other) + 1);
        });
    };
    let ((), traps) = emulated(&[], Fate::Commit, &[region(&outer), region(&inner)], both);
    assert_eq!((traps.began, traps.committed), (1, 1));
    assert_eq!((outer.counts().committed, inner.counts().started), (1, 0));

    let is_inside = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            emulated(&[], Fate::AbortAtBegin(DEBUG), &[], || {
                inner.run(|_, _| {
                    is_inside.store(1, SeqCst);
                    while outer.counts().fallbacks == 0 {
                        std::thread::yield_now();
                    }
                });
            });
        });
        while is_inside.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        emulated(&[], Fate::Commit, &[region(&outer)], both);
    });
    let (of_outer, of_inner) = (outer.counts(), inner.counts());
    assert_eq!(of_outer.aborted_by(Cause::Nested), 1);
    // The holder's section and this one, which takes the lock if the holder is slow.
    assert_eq!(of_inner.committed + of_inner.fallbacks, 2);
    assert_eq!(of_outer.fallbacks, 1);
    for pair in [outer.into_inner(), inner.into_inner()] {
        assert_eq!(pair.map(AtomicU64::into_inner), [2, 2]);
    }
}

/// With SLR a transaction runs beside the lock's holder, finds the lock held, and is undone. The
/// holder does not write meanwhile, because the emulator would not notice.
#[test]
fn no_transaction_commits_beside_a_holder() {
    let Some(rtm) = rtm() else { return };
    let mut pair = Elided::<Pair, Mcs, Slr>::new(Pair::default(), Some(rtm));
    let data = [region(pair.get_mut())];
    let is_inside = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            emulated(&[], Fate::AbortAtBegin(DEBUG), &[], || {
                pair.run(|[one, other], tx| {
                    tx.store(one, 1);
                    is_inside.store(1, SeqCst);
                    // Until the other thread was aborted, has committed, or waits for the lock.
                    while pair.counts().aborted_by(Cause::Locked) == 0
                        && is_inside.load(SeqCst) == 1
                        && pair.counts().fallbacks == 1
                    {
                        std::thread::yield_now();
                    }
                    assert_eq!((tx.load(one), tx.load(other)), (1, 0), "it was undone");
                    tx.store(other, 1);
                });
            });
        });
        while is_inside.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        emulated(&[], Fate::Commit, &data, || add(&pair));
        is_inside.store(2, SeqCst);
    });
    assert_eq!(pair.into_inner().map(AtomicU64::into_inner), [2, 2]);
}

/// A section that leaves its transaction runs under the lock.
#[test]
fn a_section_leaves_its_transaction() {
    let Some(rtm) = rtm() else { return };
    let pair = Elided::<Pair, Mcs, Slr>::new(Pair::default(), Some(rtm));
    let (is_transaction, _) = emulated(&[], Fate::Commit, &[region(&pair)], || {
        pair.run(|[one, _], tx| {
            tx.store(one, tx.load(one) + 1);
            tx.leave_transaction::<5>();
            tx.is_transaction()
        })
    });
    let counts = pair.counts();
    assert!(!is_transaction);
    assert_eq!(
        (counts.aborted_by(Cause::Explicit(5)), counts.fallbacks),
        (1, 1)
    );
    assert_eq!(pair.into_inner().map(AtomicU64::into_inner), [1, 0]);
}

/// Threads move amounts between accounts, in transactions that are aborted at random places and
/// never fall back to the lock.
fn sums_are_kept<P: Policy>(rtm: Rtm) {
    const ACCOUNTS: usize = 6;
    const THREADS: u64 = 4;
    const SECTIONS: u64 = 100;
    let accounts: [AtomicU64; ACCOUNTS] = std::array::from_fn(|_| AtomicU64::new(100));
    let bank = Elided::<_, Mcs, P>::new(&accounts, Some(rtm));
    let aborts = AtomicU64::new(0);
    let work = |thread: u64| {
        let mut random = Random::from_seed(thread);
        let mut script = vec![];
        for _ in 0..SECTIONS {
            for _ in 0..random.below(4) {
                script.push(Fate::AbortAtEnd(OFTEN));
                aborts.fetch_add(1, SeqCst);
            }
            script.push(Fate::Commit);
        }
        emulated(&script, Fate::Commit, &[region(&accounts)], || {
            for _ in 0..SECTIONS {
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
    };
    std::thread::scope(|scope| {
        (0..THREADS).for_each(|thread| {
            drop(scope.spawn({
                let work = &work;
                move || work(thread)
            }))
        });
    });
    let counts = bank.counts();
    assert_eq!(
        (counts.committed, counts.fallbacks),
        (THREADS * SECTIONS, 0)
    );
    assert_eq!(counts.aborted_by(Cause::Conflict), aborts.into_inner());
}

#[test]
fn transactions_of_several_threads_keep_sums() {
    let Some(rtm) = rtm() else { return };
    sums_are_kept::<Retry<10>>(rtm);
    sums_are_kept::<Scm>(rtm);
    sums_are_kept::<Slr>(rtm);
    sums_are_kept::<SlrScm>(rtm);
}
