//! One entry for all checkers.

/// Checks `body` in every way this build can, so that a test is written once.
///
/// - normal build: calls it once;
/// - loom: every schedule and every weak-memory outcome (bound it with `LOOM_MAX_PREEMPTIONS`);
/// - shuttle: as many random schedules as `COREWISE_SHUTTLE_ITERATIONS` says, 2,000 if unset.
///
/// `body` makes all its shared state itself; a checker calls it many times.
///
/// # Panics
///
/// When `body` does in any schedule, or when a checker finds a race, a leak or a deadlock.
pub fn model(body: impl Fn() + Send + Sync + 'static) {
    #[cfg(corewise_loom)]
    loom::model(with_reset_clock(body));
    #[cfg(corewise_shuttle)]
    shuttle::check_random(with_reset_clock(body), shuttle_iterations());
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    body();
}

/// As [`model`], but loom leaves out schedules in which threads are interrupted more than
/// `preemptions` times, unless `LOOM_MAX_PREEMPTIONS` says otherwise.
///
/// For models of three threads, which have too many schedules. Most mistakes show with two
/// interruptions; a model should have one more.
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
    // Of one schedule; loom's own 1,000 is too few for a table that is made, resized and dropped.
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

#[cfg(corewise_shuttle)]
fn shuttle_iterations() -> usize {
    std::env::var("COREWISE_SHUTTLE_ITERATIONS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2_000)
}
