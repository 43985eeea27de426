//! The progress of a run: the time left, by the estimates that `bench run --dry-run` prints.

use std::fmt::Write;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Estimated milliseconds that outweigh what was measured so far in the error of the estimates.
const TRUSTED_MS: f64 = 10_000.0;

/// A progress bar of estimated milliseconds, on a terminal; nothing elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Estimated milliseconds of all cells before the present one.
    before: f64,
    /// Those of a repetition of the present one, and of the whole cell.
    repetition: f64,
    cell: f64,
}

impl Default for Progress {
    fn default() -> Self {
        Self::over(ProgressBar::hidden())
    }
}

impl Progress {
    /// The progress of a run, whose length is an estimate.
    pub(crate) fn of_run(seconds: f64) -> Self {
        let target = ProgressDrawTarget::stderr();
        let bar = ProgressBar::with_draw_target(Some((seconds * 1e3) as u64), target);
        let left = |state: &ProgressState, out: &mut dyn Write| {
            let whole = state.len().unwrap_or_default() as f64;
            let seconds = left_ms(whole, state.pos() as f64, state.elapsed()) / 1e3;
            let _ = write!(
                out,
                "{:#}",
                HumanDuration(Duration::from_secs(seconds as u64))
            );
        };
        if let Ok(style) = ProgressStyle::with_template("{bar:30} about {left} left  {wide_msg}") {
            bar.set_style(style.with_key("left", left));
        }
        bar.enable_steady_tick(Duration::from_millis(500));
        Self::over(bar)
    }

    fn over(bar: ProgressBar) -> Self {
        Self {
            bar,
            before: 0.0,
            repetition: 0.0,
            cell: 0.0,
        }
    }

    /// Goes on to a cell, whose length is an estimate.
    pub(crate) fn begin(&mut self, id: String, repetitions: usize, seconds: f64) {
        self.before += self.cell;
        self.cell = seconds * 1e3;
        self.repetition = self.cell / repetitions.max(1) as f64;
        self.bar.set_position(self.before as u64);
        self.bar.set_message(id);
    }

    /// A repetition of the cell is done.
    pub(crate) fn repeated(&self) {
        self.bar.inc(self.repetition as u64);
    }

    /// Runs a function that prints, with the bar out of the way.
    pub(crate) fn suspend(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Returns the milliseconds left: the estimate of what is left, corrected by how long the rest took
/// beside its estimate.
fn left_ms(whole: f64, done: f64, elapsed: Duration) -> f64 {
    let factor = (elapsed.as_secs_f64() * 1e3 + TRUSTED_MS) / (done + TRUSTED_MS);
    (whole - done).max(0.0) * factor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_estimate_and_follows_what_was_measured() {
        let left = |done, elapsed| left_ms(100_000.0, done, Duration::from_millis(elapsed));
        assert_eq!(left(0.0, 0), 100_000.0);
        assert_eq!(left(50_000.0, 50_000), 50_000.0);
        let late = left(90_000.0, 180_000);
        assert!((18_000.0..20_000.0).contains(&late), "{late}");
        assert_eq!((left(100_000.0, 1), left(120_000.0, 1)), (0.0, 0.0));
    }

    #[test]
    fn a_short_cell_beside_a_long_one_moves_the_bar_by_its_estimate() {
        let mut progress = Progress::default();
        progress.bar.set_length(110_000);
        progress.begin("short".into(), 10, 10.0);
        (0..5).for_each(|_| progress.repeated());
        assert_eq!(progress.bar.position(), 5_000);
        progress.begin("long".into(), 4, 100.0);
        assert_eq!(progress.bar.position(), 10_000);
        progress.repeated();
        assert_eq!(progress.bar.position(), 35_000);
    }
}
