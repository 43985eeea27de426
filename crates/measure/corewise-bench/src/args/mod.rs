//! `corewise bench`: the command line.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::error::{BenchError, one_line};
use crate::format::{Format, dated};
use crate::params::{ParamArgs, Params};
use crate::record::{Manifest, Row};
use crate::registry::Registry;
use crate::results::Results;
use crate::runner::{Runner, contenders};
use crate::sections::memory::{self, MemoryJob};
use crate::server::{self, ServerArgs};
use crate::show::{self, Query};
use crate::sink::{self, Sink};
use crate::suite::{Suite, SuiteSection};
use crate::task::Task;
use crate::{adapters, list, manifest, replay, report, text};
use clap::{Args, Subcommand};

/// Exit status of a run with void rows.
const VOID: u8 = 3;

/// Measure concurrent hash tables.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    corewise bench run --suite quick -o quick.jsonl\n  \
    corewise bench run --section scaling -i 1000000 -u 10 --tables papaya,dashmap\n  \
    corewise bench run --suite resize --quick -o resize.jsonl\n  \
    corewise bench report quick.jsonl -o quick.html\n\n\
    Exit codes: 0 measured, 1 failed, 2 bad option, 3 a check failed and its row is void.")]
pub struct BenchArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Name the tables, sections, suites and CPUs
    List(ListArgs),
    /// Measure
    Run(Box<RunArgs>),
    /// Draw a page from result files
    Report(ReportArgs),
    /// Print the figures of result files, and their ratios
    Show(ShowArgs),
    /// Measure a row of a result file again
    Replay(ReplayArgs),
    /// Measure servers as papers did
    Server(Box<ServerArgs>),
    /// Find what makes this machine noisy
    Doctor(ListArgs),
    /// One table at one size, for `run`
    #[command(hide = true)]
    MemoryCell { job: String },
}

#[derive(Clone, Debug, Args)]
struct ListArgs {
    /// How to print it
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// Where the results of a run go.
#[derive(Clone, Debug, Args)]
struct OutputArgs {
    /// Result file [default: bench-DATE.jsonl]
    #[arg(short, long, value_name = "FILE", hide_default_value = true)]
    #[arg(default_value_os_t = dated("bench", "jsonl"))]
    output: PathBuf,
    /// Overwrite the file
    #[arg(long)]
    replace: bool,
    /// json prints the records of the result file
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Clone, Debug, Args)]
struct RunArgs {
    /// A suite by name, or a TOML file
    #[arg(long, value_name = "SUITE")]
    suite: Option<String>,
    /// Sections; with --suite, of the suite (comma-separated) [default: all, or scaling]
    #[arg(long, value_delimiter = ',', value_name = "SECTIONS")]
    section: Vec<String>,
    /// Five repetitions instead of fifteen, and what the suite says of quick runs
    #[arg(long, conflicts_with = "repetitions")]
    quick: bool,
    /// List the cells and their estimated time; measure nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
    /// Seed of all random streams
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Allow more threads than CPUs
    #[arg(long)]
    oversubscribe: bool,
    #[command(flatten)]
    params: ParamArgs,
}

#[derive(Clone, Debug, Args)]
struct ReportArgs {
    /// Result files
    #[arg(required = true, value_name = "FILES")]
    files: Vec<PathBuf>,
    /// Output file
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    /// Overwrite the file
    #[arg(long)]
    replace: bool,
    /// Write only this plot, as SVG, by its id in the page
    #[arg(long, value_name = "ID")]
    svg: Option<String>,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    corewise bench show quick.jsonl --cell updates/ --figure rate --to dashmap\n  \
    corewise bench show quick.jsonl --cell u=50,uniform --to-cell updates/i=65536,u=0,uniform,n=2\n  \
    corewise bench show quick.jsonl --cell latency/ --figure 'get hit 99 %' --tables papaya,scc")]
struct ShowArgs {
    /// Result files
    #[arg(required = true, value_name = "FILES")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    query: Query,
    #[command(flatten)]
    print: ListArgs,
}

#[derive(Clone, Debug, Args)]
struct ReplayArgs {
    /// A result file and a row: FILE#CELL#TABLE, FILE#CELL, or FILE#NUMBER, counted from 1
    row: String,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the command and returns the exit status.
pub fn main(args: BenchArgs) -> ExitCode {
    let done = dispatch(args.command);
    match done.and_then(|code| sink::check_output().map(|()| code)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let line = one_line(&error.to_string());
            let _ = writeln!(std::io::stderr(), "corewise bench: {line}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn dispatch(command: Command) -> Result<u8, BenchError> {
    let registry = adapters::registry();
    match command {
        Command::List(args) => Ok(print(&list::list(&registry, args.format))),
        Command::Run(args) => run(&registry, *args),
        Command::Report(args) => report(&args),
        Command::Show(args) => show(args),
        Command::Replay(args) => {
            let (suite, tasks, seed) = replay::tasks(&args.row)?;
            measure(&registry, &suite, &tasks, seed, &args.output)
        }
        Command::Server(args) => server::run(&args),
        Command::Doctor(args) => Ok(print(&doctor(args.format))),
        Command::MemoryCell { job } => memory_cell(&registry, &job),
    }
}

/// Prints a text; returns the exit status.
fn print(output: &str) -> u8 {
    text::say(output);
    0
}

/// Runs a table's process of the section `memory`.
fn memory_cell(registry: &Registry, job: &str) -> Result<u8, BenchError> {
    let wrong = |what: String| BenchError::Usage(format!("memory-cell: {what}"));
    let job: MemoryJob = serde_json::from_str(job).map_err(|error| wrong(error.to_string()))?;
    let (_, task) = Suite::task_named(&job.plan, &job.cell).map_err(wrong)?;
    Ok(print(&memory::child_main(registry, &job, task)?))
}

fn doctor(format: Format) -> String {
    let report = crate::doctor::doctor();
    match format {
        Format::Text => report.to_string(),
        Format::Json => report.to_json(),
    }
}

fn run(registry: &Registry, args: RunArgs) -> Result<u8, BenchError> {
    let params = args.params.params();
    let mut suite = suite(args.suite.as_deref(), &args.section)?;
    if args.quick {
        suite = suite.quickly();
    }
    let topology = corewise_topology::Topology::detect();
    let tasks = suite.tasks(&params, &topology, args.oversubscribe);
    let tasks =
        tasks.map_err(|what| BenchError::Usage(format!("suite `{}`: {what}", suite.name)))?;
    if tasks.is_empty() {
        let text = "no cell that this machine can measure: see --threads";
        return Err(BenchError::Usage(text.into()));
    }
    if args.dry_run {
        return Ok(print(&crate::estimate::text(registry, &tasks)?));
    }
    let suite = suite.with(&params);
    measure(registry, &suite, &tasks, args.seed, &args.output)
}

fn suite(name: Option<&str>, sections: &[String]) -> Result<Suite, BenchError> {
    let Some(name) = name else {
        let usual = sections.is_empty().then(|| "scaling".to_string());
        let kinds = usual.into_iter().chain(sections.iter().cloned());
        let section = |kind| SuiteSection {
            kind,
            params: Params::default(),
        };
        return Ok(Suite {
            name: "command line".into(),
            section: kinds.map(section).collect(),
            ..Suite::default()
        });
    };
    let mut suite = Suite::find(name)?;
    if !sections.is_empty() {
        suite
            .section
            .retain(|section| sections.contains(&section.kind));
    }
    if suite.section.is_empty() {
        let text = format!("suite `{name}` has no section {}", sections.join(", "));
        return Err(BenchError::Usage(text));
    }
    Ok(suite)
}

fn measure(
    registry: &Registry,
    suite: &Suite,
    tasks: &[Task],
    seed: u64,
    output: &OutputArgs,
) -> Result<u8, BenchError> {
    // An error in names is found before the file is created.
    for task in tasks {
        contenders(registry, task)?;
    }
    let text = output.format == Format::Text;
    let sink = Sink::create(&output.output, output.replace, !text)?;
    let cards = registry.entries().iter().map(|entry| entry.card.clone());
    let facts = Manifest {
        plan: suite.to_toml(),
        seed,
        cards: cards.collect(),
        ..manifest::manifest(&suite.name)
    };
    let mut table = text.then(|| text::Table::new(&facts));
    let show: Box<dyn FnMut(&Row)> = Box::new(move |row| {
        table.iter_mut().for_each(|table| table.row(row));
    });
    if let Some(warning) = facts.machine.loaded() {
        let _ = writeln!(std::io::stderr(), "warning: {warning}");
    }
    sink.report_interrupts()?;
    let program = std::env::current_exe().ok();
    let end = Runner::new(registry, sink, seed, facts, program, show).run(tasks)?;
    if text {
        print(&format!(
            "\n{} rows, {} void, {} s; to see them: corewise bench report {}",
            end.rows,
            end.void,
            end.seconds,
            output.output.display()
        ));
    }
    Ok(if end.void > 0 { VOID } else { 0 })
}

/// Reads result files; says of each that is not whole what is wrong with it.
fn read<P: AsRef<Path>>(files: &[P]) -> Result<Results, BenchError> {
    let results = Results::read(files)?;
    for file in &results.files {
        for note in file.notes() {
            let _ = writeln!(std::io::stderr(), "note: {}: {note}", file.path.display());
        }
    }
    Ok(results)
}

/// Draws the page of result files, or one of its plots.
fn report(args: &ReportArgs) -> Result<u8, BenchError> {
    let results = read(&args.files)?;
    let page = match &args.svg {
        Some(id) => report::svg(&results, id)
            .ok_or_else(|| BenchError::Usage(format!("these results have no plot `{id}`")))?,
        None => report::html(&results),
    };
    Sink::create(&args.output, args.replace, false)?;
    let written = std::fs::write(&args.output, page);
    written.map_err(|error| BenchError::of_file(&args.output, error))?;
    Ok(print(&args.output.display().to_string()))
}

fn show(args: ShowArgs) -> Result<u8, BenchError> {
    let lines = show::show(&read(&args.files)?, &args.query)
        .map_err(|what| BenchError::Usage(format!("show: {what}")))?;
    Ok(print(&match args.print.format {
        Format::Text => show::text(&lines),
        Format::Json => serde_json::to_string_pretty(&lines).unwrap_or_default(),
    }))
}
