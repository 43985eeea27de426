//! `corewise bench`: the command line.

mod resize;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use corewise_topology::MemoryPolicy;

use self::resize::ResizeArgs;
use crate::allocator::{self, Choice, Pages};
use crate::error::{BenchError, one_line};
use crate::format::{Format, dated};
use crate::params::{MoreParamArgs, ParamArgs, Params};
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
use crate::{adapters, compare, list, manifest, replay, report, text};

/// Exit status of a run with void rows, and of a failed comparison.
const VOID: u8 = 3;

/// Measure concurrent hash tables.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    corewise bench run --suite quick -o quick.jsonl\n  \
    corewise bench run --section scaling -i 1000000 -u 10 --tables papaya,dashmap\n  \
    corewise bench resize --quick --report resize.html\n  \
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
    Resize(Box<ResizeArgs>),
    /// Draw a page from result files
    Report(ReportArgs),
    /// Print the figures of result files, and their ratios
    Show(ShowArgs),
    /// Compare two result files
    Compare(CompareArgs),
    /// Measure a row of a result file again
    Replay(ReplayArgs),
    /// Measure servers as papers did
    Server(Box<ServerArgs>),
    /// Find what makes this machine noisy
    Doctor(ListArgs),
    /// One table at one size, for `run`
    #[command(hide = true)]
    MemoryCell {
        job: String,
    },
}

#[derive(Clone, Debug, Args)]
struct ListArgs {
    /// How to print it
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// Allocator and page policy of the tables.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct MemoryArgs {
    /// Memory allocator
    #[arg(long, value_enum, default_value = "mimalloc")]
    pub(crate) allocator: Choice,
    /// Page policy
    #[arg(long, value_enum, default_value = "default")]
    pub(crate) pages: Pages,
    /// NUMA nodes of new pages, in numactl's words: localalloc, interleave:all, membind:0, ...
    /// [default: as the program was started]
    #[arg(long, value_name = "POLICY")]
    pub(crate) numa: Option<MemoryPolicy>,
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

/// Options of every command that measures cells.
#[derive(Clone, Debug, Args)]
struct MeasureArgs {
    #[command(flatten)]
    output: OutputArgs,
    /// Seed of all random streams
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Allow more threads than CPUs
    #[arg(long)]
    oversubscribe: bool,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    params: ParamArgs,
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
    measure: MeasureArgs,
    #[command(flatten)]
    more: MoreParamArgs,
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
    /// Write a smaller page: no single repetitions, no tooltips
    #[arg(long, conflicts_with = "svg")]
    brief: bool,
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
struct CompareArgs {
    /// Results to compare with
    old: PathBuf,
    /// Results to judge
    new: PathBuf,
    /// Exit with status 3 if a row is slower
    #[arg(long, value_parser = ["slower"])]
    fail_on: Option<String>,
    #[command(flatten)]
    print: ListArgs,
}

#[derive(Clone, Debug, Args)]
struct ReplayArgs {
    /// A result file and a row: FILE#CELL#TABLE, FILE#CELL, or FILE#NUMBER, counted from 1
    row: String,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    memory: MemoryArgs,
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
        Command::Resize(args) => resize::resize(&registry, &args),
        Command::Report(args) => report(&args),
        Command::Show(args) => show(args),
        Command::Compare(args) => compare(&args),
        Command::Replay(args) => {
            restart_with(args.memory)?;
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

/// Restarts the program if it runs with another allocator or page policy than requested.
fn restart_with(memory: MemoryArgs) -> Result<(), BenchError> {
    if let Some(policy) = memory.numa {
        // Threads that start later, and the restarted program, have the same policy.
        policy
            .set(&corewise_topology::Topology::detect())
            .map_err(|error| BenchError::Usage(format!("--numa {policy}: {error}")))?;
    }
    allocator::reexec(memory.allocator, memory.pages)
        .map_err(|error| BenchError::Usage(error.to_string()))
}

fn run(registry: &Registry, args: RunArgs) -> Result<u8, BenchError> {
    restart_with(args.measure.memory)?;
    let params = args.measure.params.params().or(&args.more.params());
    let mut suite = suite(args.suite.as_deref(), &args.section)?;
    if args.quick {
        suite = suite.quickly();
    }
    let (suite, tasks) = planned(suite, &params, args.measure.oversubscribe)?;
    if args.dry_run {
        return Ok(print(&crate::estimate::text(registry, &tasks)?));
    }
    measure(
        registry,
        &suite,
        &tasks,
        args.measure.seed,
        &args.measure.output,
    )
}

/// Overrides the suite's parameters with the given ones, and returns its cells on this machine.
fn planned(
    suite: Suite,
    params: &Params,
    oversubscribe: bool,
) -> Result<(Suite, Vec<Task>), BenchError> {
    let topology = corewise_topology::Topology::detect();
    let tasks = suite.tasks(params, &topology, oversubscribe);
    let tasks =
        tasks.map_err(|what| BenchError::Usage(format!("suite `{}`: {what}", suite.name)))?;
    if tasks.is_empty() {
        let text = "no cell that this machine can measure: see --threads";
        return Err(BenchError::Usage(text.into()));
    }
    Ok((suite.with(params), tasks))
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
    let results = Results::read(files).map_err(|error| BenchError::Usage(error.to_string()))?;
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
        None if args.brief => report::brief(&results),
        None => report::html(&results),
    };
    Sink::create(&args.output, args.replace, false)?;
    write_page(&args.output, &page, Format::Text)
}

/// Writes a page, and prints its path unless records are printed.
fn write_page(output: &Path, page: &str, format: Format) -> Result<u8, BenchError> {
    std::fs::write(output, page).map_err(|error| BenchError::of_file(output, error))?;
    Ok(match format {
        Format::Text => print(&output.display().to_string()),
        Format::Json => 0,
    })
}

fn show(args: ShowArgs) -> Result<u8, BenchError> {
    let lines = show::show(&read(&args.files)?, &args.query)
        .map_err(|what| BenchError::Usage(format!("show: {what}")))?;
    Ok(print(&match args.print.format {
        Format::Text => show::text(&lines),
        Format::Json => serde_json::to_string_pretty(&lines).unwrap_or_default(),
    }))
}

fn compare(args: &CompareArgs) -> Result<u8, BenchError> {
    let comparison = compare::compare(&read(&[&args.old])?, &read(&[&args.new])?);
    print(&match args.print.format {
        Format::Text => comparison.text(),
        Format::Json => comparison.json(),
    });
    let failed = args.fail_on.is_some() && comparison.fails();
    Ok(if failed { VOID } else { 0 })
}
