//! `corewise bench`: the command line.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};

use crate::allocator::{self, Choice, Pages};
use crate::error::BenchError;
use crate::plan::KeyMap;
use crate::record::Row;
use crate::registry::Registry;
use crate::runner::Runner;
use crate::server::{self, ServerArgs};
use crate::sink::Sink;
use crate::suite::{Params, SECTIONS, Section, Suite, Threads};
use crate::{adapters, list, manifest, memory, replay, text};

/// Exit status of a run with void rows, and of a failed comparison.
const VOID: u8 = 3;

/// Measure concurrent hash tables.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    corewise bench run --suite quick -o quick.jsonl\n  \
    corewise bench run --section scaling -i 1000000 -u 10 --tables papaya,dashmap\n  \
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
    /// Compare two result files
    Compare(CompareArgs),
    /// Measure a row of a result file again
    Replay(ReplayArgs),
    /// Measure servers as papers did
    Server(Box<ServerArgs>),
    /// Say what makes this machine noisy
    Doctor(ListArgs),
    /// One table at one size, for `run`
    #[command(hide = true)]
    MemoryCell { job: String },
}

/// How something is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

#[derive(Clone, Debug, Args)]
struct ListArgs {
    /// How to print it
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// Memory that tables get.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct MemoryArgs {
    /// Memory allocator
    #[arg(long, value_enum, default_value = "mimalloc")]
    pub(crate) allocator: Choice,
    /// Page policy
    #[arg(long, value_enum, default_value = "default")]
    pub(crate) pages: Pages,
}

#[derive(Clone, Debug, Args)]
struct RunArgs {
    /// A suite by name, or a TOML file
    #[arg(long, value_name = "SUITE")]
    suite: Option<String>,
    /// Sections, of the suite if there is one (comma-separated) [default: all, or scaling]
    #[arg(long, value_delimiter = ',', value_name = "SECTIONS")]
    section: Vec<String>,
    /// Where results go [default: bench-DATE.jsonl]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite the file
    #[arg(long)]
    replace: bool,
    /// Five repetitions instead of fifteen
    #[arg(long, conflicts_with = "repetitions")]
    quick: bool,
    /// Seed of all random streams
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Allow more threads than CPUs
    #[arg(long)]
    oversubscribe: bool,
    /// json prints the records of the result file
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    params: ParamArgs,
}

/// The parameters of the thesis and ours; each goes before what the suite says.
#[derive(Clone, Debug, Args)]
#[command(
    next_help_heading = "Parameters (lists are comma-separated; all combinations are measured)"
)]
struct ParamArgs {
    /// Tables to compare [default: all]
    #[arg(long, value_delimiter = ',', value_name = "TABLES")]
    tables: Option<Vec<String>>,
    /// The table that the others are compared with
    #[arg(long, value_name = "TABLE")]
    reference: Option<String>,
    /// Repetitions
    #[arg(long, value_name = "N")]
    repetitions: Option<usize>,
    /// n: threads: numbers, cpus, cpus/2, 2*cpus, 1..cpus
    #[arg(short = 'n', long, value_delimiter = ',', value_name = "LIST")]
    threads: Option<Vec<String>>,
    /// d: measured milliseconds of a repetition
    #[arg(short = 'd', long, value_name = "MS")]
    duration_ms: Option<f64>,
    /// Short slices that make up a repetition
    #[arg(long, value_name = "N")]
    slices: Option<usize>,
    /// Unmeasured milliseconds before each slice
    #[arg(long, value_name = "MS")]
    warm_ms: Option<f64>,
    /// u: percentage of updates
    #[arg(short = 'u', long, value_delimiter = ',', value_name = "LIST")]
    updates: Option<Vec<f64>>,
    /// Percentage of the updates that are inserts; the rest removes
    #[arg(long, value_name = "PERCENT")]
    insert_share: Option<f64>,
    /// i: entries at the start
    #[arg(short = 'i', long, value_delimiter = ',', value_name = "LIST")]
    initial: Option<Vec<u64>>,
    /// r: number of keys [default: 2i]
    #[arg(short = 'r', long, value_name = "N")]
    range: Option<u64>,
    /// Entries at the start in percent of the keys, instead of r
    #[arg(long, value_name = "PERCENT")]
    density: Option<f64>,
    /// Load at the start in percent of what the table is built for
    #[arg(long, value_name = "PERCENT")]
    load: Option<f64>,
    /// uniform, zipf:0.99, hotspot:90%:10%, single, sequential
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    distribution: Option<Vec<String>>,
    /// u64 or bytes
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Length of byte keys, as 16 or 16-250
    #[arg(long, value_name = "MIN-MAX")]
    key_bytes: Option<String>,
    /// Length of byte values
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    value_bytes: Option<Vec<usize>>,
    /// mixed or dense
    #[arg(long, value_name = "MAP")]
    keys: Option<String>,
    /// common, or native: each table's own default
    #[arg(long, value_name = "HASH")]
    hash: Option<String>,
    /// all threads fill the table, or one
    #[arg(long, value_name = "WHO")]
    prefill: Option<String>,
    /// Entries replaced before measuring, over i
    #[arg(long, value_name = "TIMES")]
    churn: Option<f64>,
    /// default, compact, balanced, smt-pair (comma-separated), or list:0,2-3
    #[arg(long, value_name = "POLICIES")]
    pin: Option<String>,
    /// Rates of the paced section, operations per second
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    rates: Option<Vec<f64>>,
    /// Rates of the paced section in percent of the reference's throughput
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    loads: Option<Vec<f64>>,
    /// Numbers of buckets of the resize section, as 8192-16384
    #[arg(long, value_name = "LESS-MORE")]
    buckets: Option<String>,
}

#[derive(Clone, Debug, Args)]
struct ReportArgs {
    /// Result files
    #[arg(required = true, value_name = "FILES")]
    files: Vec<PathBuf>,
    /// Where the page goes
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    /// One plot alone as SVG, by its id in the page
    #[arg(long, value_name = "ID")]
    svg: Option<String>,
}

#[derive(Clone, Debug, Args)]
struct CompareArgs {
    /// Results to compare with
    old: PathBuf,
    /// Results to judge
    new: PathBuf,
    /// Exit with status 3 if a row is slower
    #[arg(long, value_enum)]
    fail_on: Option<FailOn>,
    /// How to print it
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    Slower,
}

#[derive(Clone, Debug, Args)]
struct ReplayArgs {
    /// A result file and a row: FILE#NUMBER as in the report, FILE#CELL or FILE#CELL#TABLE
    row: String,
    /// Where results go
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite the file
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    memory: MemoryArgs,
}

/// Does what the command line says, and gives the exit status.
pub fn main(args: BenchArgs) -> ExitCode {
    match dispatch(args.command) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let line = error
                .to_string()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ");
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
        Command::Compare(args) => compare(&args),
        Command::Replay(args) => {
            settle_memory(args.memory)?;
            let (suite, tasks, seed) = replay::tasks(&args.row)?;
            let output = args.output.unwrap_or_else(default_output);
            measure(
                &registry,
                &suite,
                &tasks,
                seed,
                (&output, args.replace),
                Format::Text,
            )
        }
        Command::Server(args) => server::run(&args),
        Command::Doctor(args) => Ok(print(&doctor(args.format))),
        Command::MemoryCell { job } => Ok(print(&memory::child_main(&registry, &job)?)),
    }
}

/// Writes to standard output; a reader that went away is no error.
fn print(text: &str) -> u8 {
    let mut out = std::io::stdout().lock();
    let _ = out
        .write_all(text.as_bytes())
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush());
    0
}

fn doctor(format: Format) -> String {
    let report = crate::doctor::doctor(None);
    match format {
        Format::Text => report.to_string(),
        Format::Json => report.to_json(),
    }
}

/// Starts the program anew if it runs with other memory than asked for.
fn settle_memory(wanted: MemoryArgs) -> Result<(), BenchError> {
    allocator::reexec(wanted.allocator, wanted.pages)
        .map_err(|error| BenchError::Usage(error.to_string()))
}

fn run(registry: &Registry, args: RunArgs) -> Result<u8, BenchError> {
    settle_memory(args.memory)?;
    let mut given = args.params.params()?;
    if args.quick {
        given.repetitions = Some(5);
    }
    let suite = suite(args.suite.as_deref(), &args.section)?;
    let topology = corewise_topology::Topology::detect();
    let tasks = suite.tasks(&given, &topology, args.oversubscribe);
    let tasks =
        tasks.map_err(|what| BenchError::Usage(format!("suite `{}`: {what}", suite.name)))?;
    let suite = suite.with(&given);
    let output = args.output.unwrap_or_else(default_output);
    measure(
        registry,
        &suite,
        &tasks,
        args.seed,
        (&output, args.replace),
        args.format,
    )
}

fn suite(name: Option<&str>, sections: &[String]) -> Result<Suite, BenchError> {
    let kinds = || SECTIONS.map(|(kind, _)| kind).join(", ");
    if let Some(unknown) = sections
        .iter()
        .find(|name| !SECTIONS.iter().any(|(kind, _)| kind == name))
    {
        return Err(BenchError::Usage(format!(
            "there is no section `{unknown}` ({})",
            kinds()
        )));
    }
    let Some(name) = name else {
        let sections = if sections.is_empty() {
            vec!["scaling".to_string()]
        } else {
            sections.to_vec()
        };
        let section = |kind| Section {
            kind,
            params: Params::default(),
        };
        return Ok(Suite {
            name: "command line".into(),
            about: String::new(),
            defaults: Params::default(),
            section: sections.into_iter().map(section).collect(),
        });
    };
    let mut suite = Suite::find(name)?;
    if !sections.is_empty() {
        suite
            .section
            .retain(|section| sections.contains(&section.kind));
    }
    match suite.section.is_empty() {
        true => Err(BenchError::Usage(format!(
            "suite `{name}` has no section {}",
            sections.join(", ")
        ))),
        false => Ok(suite),
    }
}

fn measure(
    registry: &Registry,
    suite: &Suite,
    tasks: &[crate::suite::Task],
    seed: u64,
    (output, replace): (&PathBuf, bool),
    format: Format,
) -> Result<u8, BenchError> {
    check_names(registry, tasks)?;
    let sink = Sink::create(Some(output), replace, format == Format::Json)?;
    let facts = manifest::manifest(manifest::Run {
        suite: suite.name.clone(),
        plan: suite.to_toml(),
        seed,
        cards: registry
            .entries()
            .iter()
            .map(|entry| entry.card.clone())
            .collect(),
    });
    let mut table = text::Table::new(&facts, format == Format::Text);
    let show: Box<dyn FnMut(&Row)> = Box::new(move |row| table.row(row));
    let program = std::env::current_exe().ok();
    let end = Runner::new(registry, sink, seed, facts, program, show).run(tasks)?;
    if format == Format::Text {
        print(&format!(
            "\n{} rows, {} void, {} s; results in {}",
            end.rows,
            end.void,
            end.seconds,
            output.display()
        ));
    }
    Ok(if end.void > 0 { VOID } else { 0 })
}

/// Names are checked before anything is measured.
fn check_names(registry: &Registry, tasks: &[crate::suite::Task]) -> Result<(), BenchError> {
    for task in tasks {
        for name in registry
            .chosen(&task.tables)
            .iter()
            .chain([&task.reference])
        {
            registry.find(name)?;
        }
    }
    Ok(())
}

fn default_output() -> PathBuf {
    let date = corewise_measure::machine::Machine::look().date;
    format!("bench-{}.jsonl", date.replace([':', '-'], "")).into()
}

fn report(args: &ReportArgs) -> Result<u8, BenchError> {
    let results = crate::results::Results::read(&args.files)
        .map_err(|error| BenchError::Usage(error.to_string()))?;
    let page = match &args.svg {
        None => crate::report::html(&results),
        Some(id) => crate::report::svg(&results, id)
            .ok_or_else(|| BenchError::Usage(format!("these results have no plot `{id}`")))?,
    };
    std::fs::write(&args.output, page).map_err(|error| BenchError::File {
        path: args.output.display().to_string(),
        error,
    })?;
    print(&args.output.display().to_string());
    Ok(0)
}

fn compare(args: &CompareArgs) -> Result<u8, BenchError> {
    let read = |path: &PathBuf| {
        crate::results::Results::read(&[path]).map_err(|error| BenchError::Usage(error.to_string()))
    };
    let comparison = crate::compare::compare(&read(&args.old)?, &read(&args.new)?);
    print(&match args.format {
        Format::Text => comparison.text(),
        Format::Json => comparison.json(),
    });
    let failed =
        args.fail_on == Some(FailOn::Slower) && comparison.fails(crate::compare::FailOn::Slower);
    Ok(if failed { VOID } else { 0 })
}

impl ParamArgs {
    fn params(self) -> Result<Params, BenchError> {
        let usage = |what: String| BenchError::Usage(what);
        Ok(Params {
            tables: self.tables,
            reference: self.reference,
            repetitions: self.repetitions,
            threads: self
                .threads
                .map(|words| words.into_iter().map(threads).collect()),
            duration_ms: self.duration_ms,
            slices: self.slices,
            warm_ms: self.warm_ms,
            updates: self.updates,
            insert_share: self.insert_share,
            initial: self.initial,
            range: self.range,
            density: self.density,
            load: self.load,
            distribution: self.distribution,
            kind: self.kind,
            key_bytes: self
                .key_bytes
                .map(|word| key_bytes(&word).map_err(usage))
                .transpose()?,
            value_bytes: self.value_bytes,
            keys: self
                .keys
                .map(|word| key_map(&word).map_err(usage))
                .transpose()?,
            hash: self.hash,
            prefill: self.prefill,
            churn: self.churn,
            pin: self.pin.map(|word| pins(&word)),
            rates: self.rates,
            loads: self.loads,
            buckets: self
                .buckets
                .map(|word| buckets(&word).map_err(usage))
                .transpose()?,
        })
    }
}

fn threads(word: String) -> Threads {
    word.parse().map_or(Threads::Words(word), Threads::Number)
}

fn key_bytes(word: &str) -> Result<(usize, usize), String> {
    let (least, most) = word.split_once('-').unwrap_or((word, word));
    match (least.parse(), most.parse()) {
        (Ok(least), Ok(most)) => Ok((least, most)),
        _ => Err(format!("key-bytes: `{word}` (16, or 16-250)")),
    }
}

fn buckets(word: &str) -> Result<(usize, usize), String> {
    let (less, more) = word.split_once('-').unwrap_or((word, ""));
    match (less.parse(), more.parse()) {
        (Ok(less), Ok(more)) => Ok((less, more)),
        _ => Err(format!("buckets: `{word}` (8192-16384)")),
    }
}

fn key_map(word: &str) -> Result<KeyMap, String> {
    match word {
        "mixed" => Ok(KeyMap::Mixed),
        "dense" => Ok(KeyMap::Dense),
        _ => Err(format!("keys: `{word}` (mixed, dense)")),
    }
}

/// A CPU list has commas of its own.
fn pins(word: &str) -> Vec<String> {
    match word.starts_with("list:") {
        true => vec![word.into()],
        false => word.split(',').map(Into::into).collect(),
    }
}
