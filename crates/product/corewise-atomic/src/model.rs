//! One entry point for normal runs, loom and shuttle.

/// Checks `body` in every way this build can, so that a test is written once.
///
/// - normal build: calls it once;
/// - loom: every schedule and every weak-memory outcome (bound it with `LOOM_MAX_PREEMPTIONS`);
/// - shuttle: `COREWISE_SHUTTLE_ITERATIONS` random schedules, 2,000 if unset.
///
/// `body` creates all its shared state itself; loom and shuttle call it many times.
///
/// # Panics
///
/// If `body` panics in any schedule, or if loom or shuttle finds a race, a leak or a deadlock.
pub fn model(body: impl Fn() + Send + Sync + 'static) {
    #[cfg(corewise_loom)]
    loom::model(with_reset_clock(body));
    #[cfg(corewise_shuttle)]
    check_random(with_reset_clock(body));
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    body();
}

/// Like [`model`], but loom skips schedules with more than `preemptions` preemptions, unless
/// `LOOM_MAX_PREEMPTIONS` sets another bound.
///
/// For models of three threads, which have too many schedules. Most mistakes show with two
/// preemptions; a model should allow one more.
///
/// # Panics
///
/// As [`model`].
pub fn model_bounded(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    #[cfg(corewise_loom)]
    loom_bounded(preemptions, body);
    #[cfg(not(corewise_loom))]
    let _ = preemptions;
    #[cfg(not(corewise_loom))]
    model(body);
}

#[cfg(corewise_loom)]
fn loom_bounded(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    // Branches per schedule; loom's default of 1,000 is too low for a table that is created,
    // resized and dropped.
    builder.max_branches = builder.max_branches.max(20_000);
    builder.check(with_reset_clock(body));
}

#[cfg(any(corewise_loom, corewise_shuttle))]
fn with_reset_clock(body: impl Fn() + Send + Sync + 'static) -> impl Fn() + Send + Sync + 'static {
    move || {
        crate::time::reset_model_clock();
        body();
    }
}

/// Bytes of the stack of a thread under shuttle. Its atomics are large, and a structure with
/// hundreds of them is moved over the stack while it is made.
#[cfg(corewise_shuttle)]
const SHUTTLE_STACK: usize = 1 << 20;

#[cfg(corewise_shuttle)]
fn check_random(body: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = SHUTTLE_STACK;
    let scheduler = shuttle::scheduler::RandomScheduler::new(shuttle_iterations());
    shuttle::Runner::new(scheduler, config).run(body);
}

#[cfg(corewise_shuttle)]
fn shuttle_iterations() -> usize {
    std::env::var("COREWISE_SHUTTLE_ITERATIONS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2_000)
}
