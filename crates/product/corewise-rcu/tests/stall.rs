//! To which functions a stalled reader is reported. The hook of the process can be set once, so
//! each test runs itself again in a separate process.

use std::process::Output;
use std::sync::Mutex;
use std::time::Duration;

use crate::common;
use corewise_rcu::{Builder, Domain, RcuCell, Stall, StallHookIsSet, set_stall_hook};

/// Set in the child.
const CHILD: &str = "COREWISE_STALL_CHILD";

/// Runs the named test in a separate process; `None` in that process.
fn in_a_process(test: &str) -> Option<Output> {
    if std::env::var_os(CHILD).is_some() {
        return None;
    }
    let output = common::in_a_process(test, CHILD, "1");
    assert!(output.status.success(), "{output:?}");
    Some(output)
}

static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn see(by: &str, stall: &Stall) {
    SEEN.lock().unwrap().push(format!("{by} {}", stall.domain));
}

fn seen() -> Vec<String> {
    std::mem::take(&mut SEEN.lock().unwrap())
}

fn builder() -> Builder {
    Builder::default().stall_after(Duration::ZERO)
}

/// The calling thread keeps a grace period of the domain waiting.
fn stall(domain: &Domain) {
    let guard = domain.pin();
    let cookie = domain.start_poll();
    // Each grace period is reported once.
    assert!(!domain.poll(cookie));
    assert!(!domain.poll(cookie));
    assert_eq!(domain.stalls().len(), 1);
    drop(guard);
    domain.synchronize();
}

#[test]
fn no_stall_is_reported_by_default() {
    match in_a_process("stall::no_stall_is_reported_by_default") {
        None => stall(&builder().build("silent")),
        Some(output) => assert_eq!(String::from_utf8_lossy(&output.stderr), ""),
    }
}

#[test]
fn the_hook_of_the_process_is_told_unless_the_domain_has_a_function() {
    if in_a_process("stall::the_hook_of_the_process_is_told_unless_the_domain_has_a_function")
        .is_some()
    {
        return;
    }
    let before = builder().build("before");
    let own = builder().on_stall(|stall| see("own", stall)).build("own");
    stall(&before);
    stall(&own);
    assert_eq!(seen(), ["own own"]);
    let program = String::from("program");
    assert_eq!(set_stall_hook(move |stall| see(&program, stall)), Ok(()));
    assert_eq!(
        set_stall_hook(|stall| see("late", stall)),
        Err(StallHookIsSet)
    );
    stall(&before);
    stall(&own);
    stall(&builder().build("after"));
    assert_eq!(seen(), ["program before", "own own", "program after"]);
}

#[test]
fn many_threads_set_the_hook_and_one_succeeds() {
    if in_a_process("stall::many_threads_set_the_hook_and_one_succeeds").is_some() {
        return;
    }
    let set = || set_stall_hook(|stall| see("hook", stall)).is_ok();
    let succeeded = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|number| {
                scope.spawn(move || {
                    stall(&builder().build(&number.to_string()));
                    set()
                })
            })
            .collect();
        let results = threads.into_iter().map(|thread| thread.join().unwrap());
        results.filter(|is_set| *is_set).count()
    });
    assert_eq!(succeeded, 1);
    SEEN.lock().unwrap().clear();
    stall(&builder().build("last"));
    assert_eq!(seen(), ["hook last"]);
}

/// Panics when its panic is dropped, too.
struct PanicsAgain;

impl Drop for PanicsAgain {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new(()));
    }
}

#[test]
fn a_panic_in_a_hook_reaches_no_caller() {
    if in_a_process("stall::a_panic_in_a_hook_reaches_no_caller").is_some() {
        return;
    }
    let fail = |stall: &Stall| {
        see("hook", stall);
        // Bypasses the panic hook, whose output would be useless here.
        std::panic::resume_unwind(Box::new(PanicsAgain));
    };
    set_stall_hook(fail).unwrap();
    let domain = builder().build("process");
    stall(&domain);
    let cell = RcuCell::in_domain(1, domain);
    let guard = cell.load();
    cell.store(2);
    assert_eq!((*guard, *cell.load()), (1, 2));
    drop(guard);
    stall(&builder().on_stall(fail).build("own"));
    assert_eq!(seen(), ["hook process", "hook process", "hook own"]);
}

#[test]
fn a_hook_may_use_the_domain() {
    if in_a_process("stall::a_hook_may_use_the_domain").is_some() {
        return;
    }
    static CELL: std::sync::LazyLock<RcuCell<u32>> =
        std::sync::LazyLock::new(|| RcuCell::in_domain(0, builder().build("used")));
    set_stall_hook(|stall| {
        see("hook", stall);
        CELL.rcu(|value| value + 1);
        assert_eq!(CELL.domain().stalls().len(), 1);
    })
    .unwrap();
    let guard = CELL.load();
    CELL.store(1);
    assert_eq!((*guard, *CELL.load(), seen().len()), (0, 2, 1));
    drop(guard);
    CELL.domain().barrier();
}
