//! The form in which a command prints, and the names of its files.

use std::path::PathBuf;

use clap::ValueEnum;

/// The format of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// Returns the name of a value on the command line.
pub(crate) fn name_of(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or(String::new(), |value| value.get_name().into())
}

/// Returns a file name with the date.
pub(crate) fn dated(name: &str, extension: &str) -> PathBuf {
    let date = corewise_measure::machine::Machine::look().date;
    format!("{name}-{}.{extension}", date.replace([':', '-'], "")).into()
}
