//! How often each command was called and failed, and how long it took: `Commandstats` and
//! `Errorstats` of `INFO`.
//!
//! Each loop counts its own requests, and any thread sums them up. A call is timed. An operation is
//! not, because reading the clock would cost as much as a hit. Instead, a loop times its first
//! [`TIMED_BATCHES`] batches and one in as many of the others, and divides the time among their
//! operations. So the time of a command is its calls times the average of its timed calls.

use super::form::ReplyForm;
use super::table::{self, Command};
use corewise_atomic::sync::atomic::{AtomicU64, Ordering};
use corewise_ops::Outcome;
use std::fmt::Write as _;
use std::time::Duration;

/// The first batches that are timed; of the others, one in this many is.
const TIMED_BATCHES: u64 = 64;

/// Whether a batch is timed before which its loop has executed this many.
#[inline]
pub(crate) fn is_timed(batches: u64) -> bool {
    batches < TIMED_BATCHES || batches.is_multiple_of(TIMED_BATCHES)
}

/// The first words of all error texts of the server. The last one stands for words that scripts
/// have chosen.
const CODES: [&str; 11] = [
    "ERR",
    "EXECABORT",
    "NOAUTH",
    "NOPERM",
    "NOPROTO",
    "NOSCRIPT",
    "NOTBUSY",
    "OOM",
    "UNKILLABLE",
    "WRONGPASS",
    "OTHER",
];

/// What is counted of each command.
#[derive(Clone, Copy)]
enum Column {
    Calls,
    /// Calls whose reply was an error.
    Failed,
    /// Requests that were refused before they were executed.
    Rejected,
    /// Calls that were timed, and how long they took.
    Timed,
    Nanoseconds,
}

const COLUMNS: usize = 5;

/// The counts of one loop, written by that loop only.
pub(crate) struct CommandCounts {
    rows: Box<[[AtomicU64; COLUMNS]]>,
    errors: [AtomicU64; CODES.len()],
}

impl Default for CommandCounts {
    fn default() -> Self {
        let row = |_| std::array::from_fn(|_| AtomicU64::new(0));
        Self {
            rows: table::rows().map(row).collect(),
            errors: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

/// Adds to a count.
#[inline]
fn add(count: &AtomicU64, more: u64) {
    // Relaxed, both: a statistic with one writer.
    let before = count.load(Ordering::Relaxed);
    count.store(before.wrapping_add(more), Ordering::Relaxed);
}

#[cfg(test)]
impl CommandCounts {
    /// Sets the sum of all calls to `calls`, and that of all errors to one more.
    pub(crate) fn set_distinct(&self, calls: u64) {
        // Relaxed, both: read by the same thread.
        self.rows[0][Column::Calls as usize].store(calls, Ordering::Relaxed);
        self.errors[0].store(calls + 1, Ordering::Relaxed);
    }
}

impl CommandCounts {
    #[inline]
    fn add(&self, command: Command, column: Column, more: u64) {
        // A key of an `MGET` belongs to no row; the last one counts for all.
        if let Some(row) = self.rows.get(command.row()) {
            add(&row[column as usize], more);
        }
    }

    /// Counts an operation of a batch that has completed.
    #[inline]
    pub(crate) fn completed(&self, form: &ReplyForm<'_>, outcome: &Outcome<'_>) {
        self.add(form.command(), Column::Calls, 1);
        if matches!(
            outcome,
            Outcome::OutOfMemory | Outcome::TooLarge | Outcome::NonNumeric | Outcome::Refused(_)
        ) {
            self.failed(form.command(), ReplyForm::error_text(outcome).as_bytes());
        }
    }

    /// Counts that an operation of a timed batch took this long.
    pub(crate) fn timed(&self, form: &ReplyForm<'_>, time: Duration) {
        self.took(form.command(), time);
        self.add(form.command(), Column::Timed, 1);
    }

    /// Counts a call that has ended.
    pub(super) fn called(&self, command: Command) {
        self.add(command, Column::Calls, 1);
        self.add(command, Column::Timed, 1);
    }

    /// Counts the time of a call, or of a part of it.
    pub(super) fn took(&self, command: Command, time: Duration) {
        self.add(command, Column::Nanoseconds, time.as_nanos() as u64);
    }

    /// Counts that a call was answered with this error.
    #[cold]
    pub(super) fn failed(&self, command: Command, error: &[u8]) {
        self.add(command, Column::Failed, 1);
        self.error(error);
    }

    /// Counts a request that was refused with this error.
    #[cold]
    pub(super) fn rejected(&self, command: Command, error: &[u8]) {
        self.add(command, Column::Rejected, 1);
        self.error(error);
    }

    /// Counts a reply that is this error, or that a command is not known.
    #[cold]
    pub(super) fn error(&self, text: &[u8]) {
        let word = text.split(|byte| *byte == b' ').next();
        let code = CODES.iter().position(|code| Some(code.as_bytes()) == word);
        add(&self.errors[code.unwrap_or(CODES.len() - 1)], 1);
    }

    /// Adds these counts to `sums`.
    pub(crate) fn add_to(&self, sums: &mut CommandSums) {
        sums.rows.resize(self.rows.len(), [0; COLUMNS]);
        for (sums, row) in sums.rows.iter_mut().zip(&self.rows) {
            for (sum, count) in sums.iter_mut().zip(row) {
                // Relaxed: a statistic.
                *sum += count.load(Ordering::Relaxed);
            }
        }
        for (sum, count) in sums.errors.iter_mut().zip(&self.errors) {
            // Relaxed: a statistic.
            *sum += count.load(Ordering::Relaxed);
        }
    }
}

/// The counts of all loops.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommandSums {
    rows: Vec<[u64; COLUMNS]>,
    errors: [u64; CODES.len()],
}

impl CommandSums {
    /// The calls of all commands.
    pub(crate) fn calls(&self) -> u64 {
        self.rows
            .iter()
            .map(|row| row[Column::Calls as usize])
            .sum()
    }

    /// The replies that were errors.
    pub(crate) fn errors(&self) -> u64 {
        self.errors.iter().sum()
    }

    /// What was counted since `before`.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        for (row, before) in self.rows.iter_mut().zip(&before.rows) {
            for (count, before) in row.iter_mut().zip(before) {
                *count = count.saturating_sub(*before);
            }
        }
        for (count, before) in self.errors.iter_mut().zip(&before.errors) {
            *count = count.saturating_sub(*before);
        }
        self
    }

    /// Prints `Commandstats`: the commands that were called or refused.
    pub(crate) fn print_commands(&self, text: &mut String) {
        for (command, row) in table::rows().zip(&self.rows) {
            let [calls, failed, rejected, timed, ns] = *row;
            if calls + rejected == 0 {
                continue;
            }
            let each_us = if timed == 0 {
                0.0
            } else {
                ns as f64 / timed as f64 / 1_000.0
            };
            // Writing to a String cannot fail, here and below.
            let _ = write!(
                text,
                "cmdstat_{}:calls={calls},usec={},usec_per_call={each_us:.2},\
                 rejected_calls={rejected},failed_calls={failed}\r\n",
                command.name,
                (each_us * calls as f64).round() as u64,
            );
        }
    }

    /// Prints `Errorstats`: the errors that were sent.
    pub(crate) fn print_errors(&self, text: &mut String) {
        for (code, count) in CODES.iter().zip(self.errors) {
            if count > 0 {
                let _ = write!(text, "errorstat_{code}:count={count}\r\n");
            }
        }
    }
}
