//! The load generator as a stand-alone program.

use std::process::ExitCode;

use clap::Parser;
use corewise_load::LoadArgs;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: LoadArgs,
}

fn main() -> ExitCode {
    corewise_load::floor::maybe_run_from_env();
    corewise_load::args::main(Cli::parse().args)
}
