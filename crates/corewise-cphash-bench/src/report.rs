//! Options, repetitions in random order, and output lines.

use std::time::Duration;

use corewise_measure::draw::mix;
use corewise_measure::machine::Machine;
use corewise_measure::stats::{Ratio, Spread};

/// How long a slice should take.
pub(crate) const SLICE: Duration = Duration::from_millis(25);

pub(crate) struct Options {
    parts: Vec<String>,
    pub(crate) repetitions: usize,
    /// Threads of a cell of `figures`.
    pub(crate) threads: usize,
}

impl Options {
    pub(crate) fn of_command_line() -> Self {
        let mut options = Self {
            parts: Vec::new(),
            repetitions: 11,
            threads: Machine::look().cpus.max(2),
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut number = |name: &str| {
                let number = words.next().and_then(|text| text.parse().ok());
                number.unwrap_or_else(|| panic!("{name} NUMBER"))
            };
            match word.as_str() {
                "--repetitions" => options.repetitions = number("--repetitions"),
                "--threads" => options.threads = number("--threads").max(2),
                _ => options.parts.push(word),
            }
        }
        options
    }

    pub(crate) fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|wanted| wanted == part)
    }
}

pub(crate) fn print_head(options: &Options) {
    let machine = Machine::look();
    println!(
        "{}; {} CPUs; Linux {}; {}; {} repetitions",
        machine.cpu, machine.cpus, machine.kernel, machine.date, options.repetitions
    );
}

/// A candidate: measures one slice and returns millions per second.
pub(crate) struct Candidate<'a> {
    name: String,
    slice: Box<dyn FnMut() -> f64 + 'a>,
}

impl<'a> Candidate<'a> {
    pub(crate) fn new(name: impl Into<String>, slice: impl FnMut() -> f64 + 'a) -> Self {
        Self {
            name: name.into(),
            slice: Box::new(slice),
        }
    }
}

/// Lets candidates take turns in random order, and prints the median rate of each, and the ratio
/// of the first `ours` candidates to each of the others, paired by repetition, with 95 % bootstrap
/// intervals.
pub(crate) fn compare(title: &str, options: &Options, ours: usize, all: Vec<Candidate<'_>>) {
    let mut all = all;
    let mut values = vec![Vec::new(); all.len()];
    for candidate in &mut all {
        (candidate.slice)();
    }
    for repetition in 0..options.repetitions as u64 {
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by_key(|&index| mix(repetition << 32 | index as u64));
        for index in order {
            values[index].push((all[index].slice)());
        }
    }
    println!("\n{title}");
    for (candidate, values) in all.iter().zip(&values) {
        if let Some(spread) = Spread::of(values.iter().copied()) {
            println!(
                "  {:<28} {:>7.2} [{:.2} .. {:.2}]",
                candidate.name, spread.median, spread.low, spread.high
            );
        }
    }
    for one in 0..ours.min(all.len()) {
        for other in ours..all.len() {
            let pairs = values[one]
                .iter()
                .copied()
                .zip(values[other].iter().copied());
            if let Some(ratio) = Ratio::paired(pairs) {
                println!(
                    "    {} / {}: {:.2} [{:.2} .. {:.2}]",
                    all[one].name, all[other].name, ratio.value, ratio.low, ratio.high
                );
            }
        }
    }
}
