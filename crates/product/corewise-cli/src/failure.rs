//! Failures of the command: one line on standard error, and an exit status.

use std::fmt::Display;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};

/// The exit status for bad options.
const USAGE: u8 = 2;
/// The exit status for all later failures.
const START: u8 = 1;

/// A message for the user, and the exit status.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    line: String,
    code: u8,
}

impl Failure {
    /// A bad option.
    pub(crate) fn usage(what: impl Display) -> Self {
        Self {
            line: one_line(&what.to_string()),
            code: USAGE,
        }
    }

    /// A failure while executing valid options.
    pub(crate) fn start(what: impl Display) -> Self {
        Self {
            line: one_line(&what.to_string()),
            code: START,
        }
    }

    /// The first paragraph of clap's message as one line, with what the user may have meant, and a
    /// reference to `--help`.
    pub(crate) fn from_clap(error: &clap::Error) -> Self {
        let text = error.to_string();
        let paragraph = text.split("\n\n").next().unwrap_or_default();
        let message = paragraph.strip_prefix("error: ").unwrap_or(paragraph);
        let kinds = [
            ContextKind::SuggestedArg,
            ContextKind::SuggestedSubcommand,
            ContextKind::SuggestedValue,
        ];
        let meant = kinds.into_iter().find_map(|kind| match error.get(kind)? {
            ContextValue::String(one) => Some(one.clone()),
            ContextValue::Strings(several) => Some(several.join("` or `")),
            _ => None,
        });
        let question = meant.map_or_else(String::new, |meant| did_you_mean(&meant));
        Self::usage(format!("{message}{question} (see --help)"))
    }

    /// Prints the message and returns the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        complain(&self.line);
        ExitCode::from(self.code)
    }

    #[cfg(test)]
    pub(crate) fn line(&self) -> &str {
        &self.line
    }
}

/// What follows a message about a word that is unknown.
pub(crate) fn did_you_mean(word: &str) -> String {
    format!("; did you mean `{word}`?")
}

/// Prints one line about a problem. Ignores a closed standard error.
pub(crate) fn complain(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "corewise: {line}");
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
