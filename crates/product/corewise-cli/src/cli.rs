//! The subcommands.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::failure::Failure;
use crate::serve::{self, CliMode, ServeOptions};

/// A memcached-compatible cache server that keeps scaling as cores are added.
#[derive(Debug, Parser)]
#[command(
    name = "corewise",
    version,
    propagate_version = true,
    after_help = "Example: corewise serve --memory 1g"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the cache server.
    ///
    /// Takes its own long options and memcached's short ones. Called through a link named
    /// memcached, `corewise` takes memcached's command line and needs no `serve`.
    #[command(args_override_self = true, after_help = serve::EXAMPLES)]
    Serve(Box<ServeOptions>),
    /// Put load on a memcached or Redis server and report what it took.
    ///
    /// Closed loop by default, open loop with --rate; compares two servers in interleaved slices
    /// with --vs; replays cache traces with --trace. Every reply is verified.
    Load(Box<corewise_load::LoadArgs>),
    /// Measure concurrent hash tables.
    #[cfg(feature = "bench")]
    Bench(Box<corewise_bench::args::BenchArgs>),
    /// Measure concurrent hash tables (not in this build).
    #[cfg(not(feature = "bench"))]
    #[command(disable_help_flag = true)]
    Bench {
        #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// Write the manual pages to a directory, for packages.
    Man {
        /// The directory, which must exist.
        directory: PathBuf,
    },
    /// Print the completions of a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Executes the command line.
pub(crate) fn run(mut arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let mode = manner_of(arguments.first());
    if mode == CliMode::Memcached {
        arguments.insert(1, "serve".into());
    }
    match parse(arguments) {
        Ok(cli) => match cli.command {
            Command::Serve(options) => serve::run(*options, mode),
            Command::Load(args) => Ok(corewise_load::args::main(*args)),
            #[cfg(feature = "bench")]
            Command::Bench(args) => Ok(corewise_bench::args::main(*args)),
            #[cfg(not(feature = "bench"))]
            Command::Bench { .. } => Err(Failure::usage(
                "this build has no benchmark: cargo run --release --features bench -- bench list",
            )),
            Command::Man { directory } => write_manual(&directory),
            Command::Completions { shell } => print(&completions(shell)),
        },
        Err(error) => answer(&error),
    }
}

/// The whole command line.
pub(crate) fn command() -> clap::Command {
    Cli::command().mut_subcommand("serve", serve::switches)
}

fn parse(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&command().try_get_matches_from(arguments)?)
}

/// Writes a page for the command and one for each subcommand, named `corewise-serve.1`.
fn write_manual(directory: &Path) -> Result<ExitCode, Failure> {
    clap_mangen::generate_to(command(), directory).map_err(|error| {
        let shown = directory.display();
        Failure::start(format!("cannot write manual pages to {shown}: {error}"))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A script that completes the command line in a shell.
fn completions(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "corewise", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Called as memcached, or as memcached-debug in memcached's tests, it behaves like memcached.
fn manner_of(program: Option<&OsString>) -> CliMode {
    let name = program
        .and_then(|path| Path::new(path).file_name())
        .and_then(OsStr::to_str);
    match name {
        Some(name) if name.starts_with("memcached") => CliMode::Memcached,
        _ => CliMode::Corewise,
    }
}

/// Help and version are answers, not errors.
fn answer(error: &clap::Error) -> Result<ExitCode, Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp => print(&error.to_string()),
        ErrorKind::DisplayVersion => print(&version_line()),
        _ => Err(Failure::from_clap(error)),
    }
}

fn version_line() -> String {
    concat!("corewise ", env!("CARGO_PKG_VERSION"), "\n").into()
}

/// Writes to standard output at once. A closed reader is no error.
pub(crate) fn print(text: &str) -> Result<ExitCode, Failure> {
    use std::io::{ErrorKind, Write};
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::start(format!(
            "cannot write to standard output: {error}"
        ))),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Parses the options of `corewise serve ARGUMENTS`.
#[cfg(test)]
pub(crate) fn parse_serve(arguments: &[&str]) -> Result<ServeOptions, Failure> {
    let words = ["corewise", "serve"].iter().chain(arguments);
    match parse(words.map(OsString::from).collect()) {
        Ok(Cli {
            command: Command::Serve(options),
        }) => Ok(*options),
        Ok(_) => Err(Failure::usage("not `serve`")),
        Err(error) => Err(Failure::from_clap(&error)),
    }
}
