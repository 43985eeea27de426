//! `corewise bench resize`: the benchmark of \[ATC11\] §6.1 with the paper's parameters.
//!
//! It is a shorthand for the suite `resize` (`suites/resize.toml`) with the paper's durations: it
//! measures, verifies and writes the cells of the section `resize` as `bench run` does, and draws
//! the page of `bench report`, which has figures 3 to 7.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{MeasureArgs, measure, planned, read, restart_with, write_page};
use crate::error::BenchError;
use crate::params::Params;
use crate::registry::Registry;
use crate::report;
use crate::sink::Sink;
use crate::suite::Suite;

/// Look up and update while another thread resizes the table
///
/// The benchmark of "Resizable, Scalable, Concurrent Hash Tables via Relativistic Programming" (ATC
/// 2011, section 6.1): 65,536 entries and 1 to 16 readers, limited by the CPUs. The table stays at
/// 8,192 buckets, stays at 16,384, or another thread resizes it between the two without pause. A
/// lookup that misses is a failed check. The same follows with 90 % lookups, 9 % inserts and 1 %
/// removals (section 4.1). Each size has ten repetitions of ten seconds. Tables that cannot resize
/// on request are named and left out.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    corewise bench resize --quick --report resize.html\n  \
    corewise bench resize -u 0 --tables relativistic,chained:atc11,chained:rwlock -o atc11.jsonl\n  \
    corewise bench report atc11.jsonl -o atc11.html\n\n\
    With the defaults a table takes seven minutes for each number of readers and each mix, with --quick fifteen \
    seconds. Given parameters go before the suite's; `bench run --suite resize` has them all, and takes half an hour.\n\
    Exit codes: 0 measured, 1 failed, 2 bad option, 3 a check failed and its row is void.")]
pub(super) struct ResizeArgs {
    /// Three repetitions of a second
    #[arg(long, conflicts_with_all = ["repetitions", "duration_ms"])]
    quick: bool,
    /// Also draw the page with the figures
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    #[command(flatten)]
    measure: MeasureArgs,
}

/// The suite that is measured.
const SUITE: &str = "resize";
/// Milliseconds of a repetition, as in the paper. The suite's are fewer: it is to end within half
/// an hour.
const DURATION_MS: f64 = 10_000.0;
/// Repetitions and milliseconds with `--quick`.
const QUICK: (usize, f64) = (3, 1000.0);

impl ResizeArgs {
    /// Returns the parameters that override the suite's.
    fn params(&self) -> Params {
        let mut given = self.measure.params.clone().params();
        if self.quick {
            (given.repetitions, given.duration_ms) = (Some(QUICK.0), Some(QUICK.1));
        }
        given.duration_ms.get_or_insert(DURATION_MS);
        given
    }
}

/// Measures, and draws the page if requested.
pub(super) fn resize(registry: &Registry, args: &ResizeArgs) -> Result<u8, BenchError> {
    restart_with(args.measure.memory)?;
    let oversubscribe = args.measure.oversubscribe;
    let (suite, tasks) = planned(Suite::find(SUITE)?, &args.params(), oversubscribe)?;
    let output = &args.measure.output;
    if let Some(page) = &args.report {
        create_page(page, &output.output, output.replace)?;
    }
    let code = measure(registry, &suite, &tasks, args.measure.seed, output)?;
    if let Some(page) = &args.report {
        let html = report::html(&read(&[&output.output])?);
        write_page(page, &html, output.format)?;
    }
    Ok(code)
}

/// Creates the page: that it can be written shows before hours of measuring.
fn create_page(page: &Path, output: &Path, replace: bool) -> Result<(), BenchError> {
    if page == output {
        let text = format!("{} is where the results go", page.display());
        return Err(BenchError::Usage(text));
    }
    Sink::create(page, replace, false).map(drop)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use corewise_topology::Topology;

    use super::*;
    use crate::task::Task;
    use crate::workload::Buckets;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ResizeArgs,
    }

    fn args(words: &str) -> Result<ResizeArgs, clap::Error> {
        let words = std::iter::once("resize").chain(words.split_whitespace());
        Ok(Line::try_parse_from(words)?.args)
    }

    fn tasks(words: &str, cpus: usize) -> Vec<Task> {
        let args = args(words).expect("valid");
        let suite = Suite::find(SUITE).expect("it is shipped");
        let given = args.params();
        suite
            .tasks(&given, &Topology::flat(cpus), args.measure.oversubscribe)
            .expect("valid")
    }

    fn buckets(task: &Task) -> (usize, usize) {
        let Buckets { small, large } = crate::sections::resize::buckets(&task.workload);
        (small, large)
    }

    fn readers(tasks: &[Task]) -> Vec<(f64, usize)> {
        let of = |task: &Task| (task.workload.insert_percent, task.workload.threads);
        tasks.iter().map(of).collect()
    }

    #[test]
    fn the_defaults_are_the_papers() {
        let tasks = tasks("", 24);
        let both = |mix| [1, 2, 4, 8, 16].map(|readers| (mix, readers));
        assert_eq!(readers(&tasks), [both(0.0), both(9.0)].concat());
        for task in &tasks {
            let workload = &task.workload;
            assert_eq!(buckets(task), (1 << 13, 1 << 14));
            assert_eq!(workload.initial, 1 << 16);
            assert_eq!((task.repetitions, workload.duration_ms), (10, 10_000.0));
            assert_eq!(task.reference, "chained:ddds");
        }
        assert_eq!(tasks[9].workload.remove_percent, 1.0);
        for table in ["relativistic", "chained:atc11", "chained:rwlock"] {
            assert!(tasks[0].tables.iter().any(|name| name == table), "{table}");
        }
    }

    #[test]
    fn the_default_is_one_reader_for_each_cpu() {
        let lookups = |words: &str, cpus| -> Vec<usize> {
            let tasks = tasks(words, cpus);
            tasks.iter().map(|task| task.workload.threads).collect()
        };
        assert_eq!(lookups("-u 0", 1), [1]);
        assert_eq!(lookups("-u 0", 6), [1, 2, 4]);
        assert_eq!(lookups("-u 0 --oversubscribe", 1), [1, 2, 4, 8, 16]);
        assert_eq!(lookups("-u 0 -n 3", 4), [3]);
    }

    #[test]
    fn what_is_given_goes_before_the_suite() {
        let tasks = tasks(
            "--quick -u 10 --insert-share 50 -n 1 --buckets 16-32 -i 100 --tables mutex --reference rwlock",
            2,
        );
        let [task] = &tasks[..] else {
            panic!("{tasks:?}")
        };
        let workload = &task.workload;
        assert_eq!((task.repetitions, workload.duration_ms), (3, 1000.0));
        assert_eq!(
            (workload.insert_percent, workload.remove_percent),
            (5.0, 5.0)
        );
        assert_eq!(buckets(task), (16, 32));
        assert_eq!((workload.initial, workload.range), (100, 134));
        assert_eq!(
            (&task.tables[..], &*task.reference),
            (&["mutex".to_owned()][..], "rwlock")
        );
    }

    #[test]
    fn quick_excludes_options_that_change_the_duration() {
        for words in ["--quick --repetitions 2", "--quick -d 50", "--rates 5"] {
            assert!(args(words).is_err(), "{words}");
        }
    }

    #[test]
    fn a_page_that_cannot_be_written_is_refused_beforehand() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| folder.path().join(name);
        std::fs::write(file("old.html"), "").expect("written");
        let check = |page: &str, replace| create_page(&file(page), &file("r.jsonl"), replace);
        assert!(check("new.html", false).is_ok() && check("old.html", true).is_ok());
        for (page, word) in [
            ("old.html", "--replace"),
            ("r.jsonl", "results go"),
            ("none/new.html", "No such file or directory"),
        ] {
            let said = check(page, false).expect_err(page).to_string();
            assert!(said.contains(word), "{said}");
        }
    }
}
