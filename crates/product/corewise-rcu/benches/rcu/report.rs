//! Options, repetitions in random order, and output lines.

use std::process::Command;

use corewise_measure::draw::mix;
use corewise_measure::machine::Machine;
use corewise_measure::stats::{Ratio, Spread};

pub(crate) struct Options {
    parts: Vec<String>,
    pub(crate) repetitions: usize,
}

impl Options {
    pub(crate) fn of_command_line() -> Self {
        let mut options = Self {
            parts: Vec::new(),
            repetitions: 31,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                // Passed by cargo.
                "--bench" => {}
                "--repetitions" => {
                    let number = words.next().and_then(|text| text.parse().ok());
                    options.repetitions = number.expect("--repetitions NUMBER");
                }
                _ => options.parts.push(word),
            }
        }
        options
    }

    pub(crate) fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|wanted| wanted == part)
    }
}

/// The machine, the versions and the commit.
pub(crate) fn print_head(options: &Options) {
    let machine = Machine::look();
    println!(
        "{}; {} CPUs; Linux {}; {}",
        machine.cpu, machine.cpus, machine.kernel, machine.date
    );
    println!(
        "{}; commit {}; crossbeam-epoch {}; seize {}; arc-swap {}; membarrier {}; {} repetitions",
        output_of("rustc", &["--version"]),
        output_of("git", &["describe", "--always", "--dirty"]),
        locked_version("crossbeam-epoch"),
        locked_version("seize"),
        locked_version("arc-swap"),
        if corewise_atomic::barrier::prepare() {
            "available"
        } else {
            "missing: fences"
        },
        options.repetitions,
    );
}

fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_else(|_| "unknown".to_owned())
}

/// The newest version in the lock file, which is the version that the benchmarks use.
fn locked_version(name: &str) -> &'static str {
    let lock = include_str!("../../../../../Cargo.lock");
    let head = format!("name = \"{name}\"\nversion = \"");
    let versions = lock.split(head.as_str()).skip(1);
    let versions = versions.filter_map(|rest| rest.split('"').next());
    versions.last().unwrap_or("unknown")
}

/// A candidate: measures one slice and returns its value.
pub(crate) struct Candidate<'a> {
    pub(crate) name: String,
    pub(crate) slice: Box<dyn FnMut() -> f64 + 'a>,
}

impl<'a> Candidate<'a> {
    pub(crate) fn new(name: impl Into<String>, slice: impl FnMut() -> f64 + 'a) -> Self {
        Self {
            name: name.into(),
            slice: Box::new(slice),
        }
    }
}

/// A candidate's values, one for each repetition.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) values: Vec<f64>,
}

/// Lets candidates take turns, `slices` of each in a repetition.
pub(crate) fn take_turns(
    options: &Options,
    slices: usize,
    mut candidates: Vec<Candidate<'_>>,
) -> Vec<Row> {
    let mut rows: Vec<Row> = candidates
        .iter()
        .map(|candidate| Row {
            name: candidate.name.clone(),
            values: Vec::new(),
        })
        .collect();
    // Warms up thread-locals, caches and branch prediction.
    candidates.iter_mut().for_each(|candidate| {
        (candidate.slice)();
    });
    for repetition in 0..options.repetitions {
        let mut seen = vec![Vec::new(); candidates.len()];
        for turn in turns(candidates.len() * slices, repetition) {
            let at = turn % candidates.len();
            seen[at].push((candidates[at].slice)());
        }
        for (row, seen) in rows.iter_mut().zip(seen) {
            row.values
                .extend(Spread::of(seen).map(|spread| spread.median));
        }
    }
    rows
}

/// A permutation of `0..count`.
fn turns(count: usize, repetition: usize) -> Vec<usize> {
    let mut turns: Vec<usize> = (0..count).collect();
    turns.sort_by_key(|&turn| mix(((repetition as u64) << 32) | turn as u64));
    turns
}

pub(crate) fn print_row(row: &Row, unit: &str) {
    let Some(spread) = Spread::of(row.values.iter().copied()) else {
        return;
    };
    println!(
        "  {:<44} {:>9.2} {unit}   [{:.2}, {:.2}]",
        row.name, spread.median, spread.low, spread.high
    );
}

/// Prints the ratio of two rows, and whether it is at most `bar`.
pub(crate) fn print_ratio(one: &Row, other: &Row, bar: Option<f64>) {
    let pairs = one.values.iter().copied().zip(other.values.iter().copied());
    let Some(ratio) = Ratio::paired(pairs) else {
        return;
    };
    let verdict = match bar {
        None => String::new(),
        Some(bar) if ratio.high <= bar => format!("; bar {bar:.1}: holds"),
        Some(bar) if ratio.low > bar => format!("; bar {bar:.1}: MISSED"),
        Some(bar) => format!("; bar {bar:.1}: undecided"),
    };
    println!(
        "  {} / {}: {:.3} [{:.3}, {:.3}]{verdict}",
        one.name, other.name, ratio.value, ratio.low, ratio.high
    );
}
