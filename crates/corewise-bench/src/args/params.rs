//! The parameters of a workload as options; each overrides the suite.

use clap::Args;
use corewise_measure::number::{parse_count, parse_rate, parse_size};

use crate::error::BenchError;
use crate::plan::KeyMap;
use crate::suite::{Params, Threads};

/// Parameters that every section has: those of CHTBench and ours.
#[derive(Clone, Debug, Args)]
#[command(
    next_help_heading = "Parameters (lists are comma-separated; all combinations are measured)"
)]
pub(super) struct ParamArgs {
    /// Tables to compare [default: the suite's or the section's, or all]
    #[arg(long, value_delimiter = ',', value_name = "TABLES")]
    tables: Option<Vec<String>>,
    /// The table that the others are compared with
    #[arg(long, value_name = "TABLE")]
    reference: Option<String>,
    /// Repetitions
    #[arg(long, value_name = "N")]
    repetitions: Option<usize>,
    /// n: threads: numbers, cpus, cpus/2, 2*cpus, 1..cpus, 1..16, 2s (the CPUs of two sockets)
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
    /// Percentage of the updates that are inserts; the rest are removes
    #[arg(long, value_name = "PERCENT")]
    insert_share: Option<f64>,
    /// i: entries at the start, as 100k, 1.5M, 64Ki
    #[arg(short = 'i', long, value_delimiter = ',', value_name = "LIST", value_parser = parse_count)]
    initial: Option<Vec<u64>>,
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
    /// Numbers of buckets of the resize section, as 8192-16384
    #[arg(long, value_name = "LESS-MORE")]
    buckets: Option<String>,
    /// Keys of a batch in the batch section
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = parse_size)]
    batch: Option<Vec<usize>>,
    /// Work beside an operation: nanoseconds in and outside of a lock, writes beside a queue
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    work: Option<Vec<u32>>,
}

/// Parameters that sections with a fixed set of keys and no rate lack.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Parameters of some sections")]
pub(super) struct MoreParamArgs {
    /// r: number of keys [default: 2i]
    #[arg(short = 'r', long, value_name = "N", value_parser = parse_count)]
    range: Option<u64>,
    /// Entries at the start in percent of the keys, instead of r
    #[arg(long, value_name = "PERCENT")]
    density: Option<f64>,
    /// Entries at the start in percent of the announced capacity
    #[arg(long, value_name = "PERCENT")]
    load: Option<f64>,
    /// Rates of the paced section, operations per second, as 250k
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = parse_rate)]
    rates: Option<Vec<f64>>,
    /// Rates of the paced section in percent of the reference's throughput
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    loads: Option<Vec<f64>>,
}

impl ParamArgs {
    /// Returns the parameters that were given.
    pub(super) fn params(self) -> Result<Params, BenchError> {
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
            buckets: self
                .buckets
                .map(|word| buckets(&word).map_err(usage))
                .transpose()?,
            batch: self.batch,
            work: self.work,
            ..Params::default()
        })
    }
}

impl MoreParamArgs {
    /// Returns the parameters that were given.
    pub(super) fn params(self) -> Params {
        Params {
            range: self.range,
            density: self.density,
            load: self.load,
            rates: self.rates,
            loads: self.loads,
            ..Params::default()
        }
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
    match (parse_size(less), parse_size(more)) {
        (Ok(less), Ok(more)) => Ok((less, more)),
        _ => Err(format!("buckets: `{word}` (8192-16384, 8Ki-16Ki)")),
    }
}

fn key_map(word: &str) -> Result<KeyMap, String> {
    match word {
        "mixed" => Ok(KeyMap::Mixed),
        "dense" => Ok(KeyMap::Dense),
        _ => Err(format!("keys: `{word}` (mixed, dense)")),
    }
}

/// Splits a list of pin policies; a CPU list contains commas itself.
fn pins(word: &str) -> Vec<String> {
    if word.starts_with("list:") {
        vec![word.into()]
    } else {
        word.split(',').map(Into::into).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        params: ParamArgs,
        #[command(flatten)]
        more: MoreParamArgs,
    }

    fn params(words: &str) -> Result<Params, String> {
        let words = std::iter::once("run").chain(words.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let own = line.params.params().map_err(|error| error.to_string())?;
        Ok(own.or(&line.more.params()))
    }

    #[test]
    fn counts_are_given_as_the_page_prints_them() {
        let given = params("-i 100k,1.5M,64Ki -r 3M --batch 1Ki --buckets 8Ki-16Ki --rates 250k");
        let given = given.expect("valid");
        assert_eq!(given.initial, Some(vec![100_000, 1_500_000, 65_536]));
        assert_eq!(given.range, Some(3_000_000));
        assert_eq!(given.batch, Some(vec![1024]));
        assert_eq!(given.buckets, Some((8192, 16384)));
        assert_eq!(given.rates, Some(vec![250e3]));
    }

    #[test]
    fn wrong_counts_are_refused_with_a_reason() {
        for (words, reason) in [
            ("-i 1.5", "not a whole number"),
            ("-i 99999999999G", "too large"),
            ("-i 100q", "not a count"),
            ("-r 1e6", "not a count"),
            ("--buckets 8Ki", "buckets"),
            ("--rates fast", "not a rate"),
        ] {
            let said = params(words).expect_err(words);
            assert!(said.contains(reason), "{words}: {said}");
        }
    }
}
