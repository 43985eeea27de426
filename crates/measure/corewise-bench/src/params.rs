//! The parameters of a suite, which are options of the command line too. Each is declared once.

use std::sync::LazyLock;

use clap::Args;
use corewise_measure::number::{parse_count, parse_rate, parse_size};
use corewise_topology::Topology;
use serde::{Deserialize, Serialize};

use crate::plan::KeyMap;
use crate::workload::MAX_THREADS;

/// Declares the parameters: the type that a suite has, and the groups of options. A field's text is
/// its documentation and the help of its option.
macro_rules! params {
    ($(
        $(#[$group_attribute:meta])*
        $group:ident {$(
            $(#[$about:meta])*
            arg($($arg:tt)*) $(+ serde($($serde:tt)*))?
            $field:ident: [$($type:tt)*],
        )*}
    )*) => {
        /// Parameters; those absent are taken from elsewhere.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        pub struct Params {$($(
            $(#[$about])*
            #[serde(skip_serializing_if = "Option::is_none")]
            $(#[serde($($serde)*)])?
            pub $field: Option<$($type)*>,
        )*)*}

        impl Params {
            /// Returns these parameters, completed from `other`; a range goes before a density
            /// of the other, and the reverse. So do rates and loads.
            pub fn or(&self, other: &Self) -> Self {
                let mut all = Self {$($(
                    $field: self.$field.clone().or_else(|| other.$field.clone()),
                )*)*};
                if self.range.is_some() || self.density.is_some() {
                    (all.range, all.density) = (self.range, self.density);
                }
                if self.rates.is_some() || self.loads.is_some() {
                    (all.rates, all.loads) = (self.rates.clone(), self.loads.clone());
                }
                all
            }
        }

        $(
            #[derive(Clone, Debug, Args)]
            $(#[$group_attribute])*
            pub(crate) struct $group {$(
                $(#[$about])*
                #[arg(long, $($arg)*)]
                $field: Option<$($type)*>,
            )*}

            impl $group {
                /// Returns the parameters that were given.
                pub(crate) fn params(self) -> Params {
                    Params {
                        $($field: self.$field,)*
                        ..Params::default()
                    }
                }
            }
        )*
    };
}

params! {
    /// Parameters that every section has: those of CHTBench and ours.
    #[command(
        next_help_heading = "Parameters (lists are comma-separated; all combinations are measured)"
    )]
    ParamArgs {
        /// Tables to compare [default: the suite's or the section's, or all]
        arg(value_delimiter = ',', value_name = "TABLES")
        tables: [Vec<String>],
        /// The table that the others are compared with
        arg(value_name = "TABLE")
        reference: [String],
        /// Repetitions
        arg(value_name = "N")
        repetitions: [usize],
        /// n: threads: numbers, cpus, cpus/2, 2*cpus, 1..cpus, 1..16, 2s (the CPUs of two sockets),
        /// nodes (those of one NUMA node, of two, and so on)
        arg(short = 'n', value_delimiter = ',', value_name = "LIST")
        threads: [Vec<Threads>],
        /// d: measured milliseconds of a repetition
        arg(short = 'd', value_name = "MS")
        duration_ms: [f64],
        /// Short slices that make up a repetition
        arg(value_name = "N")
        slices: [usize],
        /// Unmeasured milliseconds before each slice
        arg(value_name = "MS")
        warm_ms: [f64],
        /// u: percentage of updates
        arg(short = 'u', value_delimiter = ',', value_name = "LIST")
        updates: [Vec<f64>],
        /// Percentage of the updates that are inserts; the rest are removes
        arg(value_name = "PERCENT")
        insert_share: [f64],
        /// i: entries at the start, as 100k, 1.5M, 64Ki
        arg(short = 'i', value_delimiter = ',', value_name = "LIST", value_parser = parse_count)
        initial: [Vec<u64>],
        /// uniform, zipf:0.99, hotspot:90%:10%, single, sequential
        arg(value_delimiter = ',', value_name = "LIST")
        distribution: [Vec<String>],
        /// u64 or bytes (in a suite `entry-kind`, since a section has a kind, too)
        arg(value_name = "KIND") + serde(rename = "entry-kind", alias = "kind")
        kind: [String],
        /// Length of byte keys, as 16 or 16-250
        arg(value_name = "MIN-MAX", value_parser = key_bytes)
        key_bytes: [(usize, usize)],
        /// Length of byte values
        arg(value_delimiter = ',', value_name = "LIST")
        value_bytes: [Vec<usize>],
        /// mixed or dense
        arg(value_name = "MAP", value_enum)
        keys: [KeyMap],
        /// common, or native: each table's own default
        arg(value_name = "HASH")
        hash: [String],
        /// all threads fill the table, or one
        arg(value_name = "WHO")
        prefill: [String],
        /// Entries replaced before measuring, over i
        arg(value_name = "TIMES")
        churn: [f64],
        /// default, compact, balanced, smt-pair (comma-separated), or list:0,2-3
        arg(value_name = "POLICIES")
        pin: [Vec<String>],
        /// Numbers of buckets of the resize section, as 8192-16384
        arg(value_name = "LESS-MORE", value_parser = buckets)
        buckets: [(usize, usize)],
        /// Keys of a batch in the batch section; operations in flight of a thread in the cache
        /// section, all together at most half of the capacity
        arg(value_delimiter = ',', value_name = "LIST", value_parser = parse_size)
        batch: [Vec<usize>],
        /// Work beside an operation: nanoseconds in and outside of a lock, writes beside a queue
        arg(value_delimiter = ',', value_name = "LIST")
        work: [Vec<u32>],
    }

    /// Parameters that sections with a fixed set of keys and no rate lack.
    #[command(next_help_heading = "Parameters of some sections")]
    MoreParamArgs {
        /// r: number of keys [default: 2i]
        arg(short = 'r', value_name = "N", value_parser = parse_count)
        range: [u64],
        /// Entries at the start in percent of the keys, instead of r
        arg(value_name = "PERCENT")
        density: [f64],
        /// Entries at the start in percent of the announced capacity
        arg(value_name = "PERCENT")
        load: [f64],
        /// Rates of the paced section, operations per second, as 250k
        arg(value_delimiter = ',', value_name = "LIST", value_parser = parse_rate)
        rates: [Vec<f64>],
        /// Rates of the paced section in percent of the reference's throughput
        arg(value_delimiter = ',', value_name = "LIST")
        loads: [Vec<f64>],
    }
}

/// The parameters of all sections, where a suite and the section's preset have none: those of
/// \[CHTBench\], where it names them.
pub(crate) static BUILT_IN: LazyLock<Params> = LazyLock::new(|| {
    toml::from_str(include_str!("../defaults.toml")).expect("a test reads the defaults")
});

impl Params {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the pin policies, of which one option may name several.
    pub(crate) fn pins(&self) -> Vec<String> {
        self.pin
            .iter()
            .flatten()
            .flat_map(|word| pins(word))
            .collect()
    }
}

/// A number of threads: `4`, `cpus`, `cpus/2`, `2*cpus`, `1..cpus` for powers of two and the number
/// of CPUs, `1..16` for powers of two and 16, as far as there are CPUs, `2s` for the CPUs of two
/// sockets, if there are two, or `nodes` for those of one NUMA node, of two, and so on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Threads {
    /// A number.
    Number(usize),
    /// An expression.
    Words(String),
}

impl Threads {
    pub(crate) fn resolve(&self, topology: &Topology, oversubscribe: bool) -> Option<Vec<usize>> {
        let cpus = topology.allowed().count().max(1);
        let words = match self {
            Self::Number(number) => return Some(vec![*number]),
            Self::Words(words) => words.as_str(),
        };
        if words == "nodes" {
            return Some(topology.node_ends());
        }
        if let Some(Ok(sockets)) = words.strip_suffix('s').map(str::parse) {
            let ends = topology.group_ends(|cpu| cpu.package).into_iter();
            let skipped: usize = usize::checked_sub(sockets, 1)?;
            return Some(ends.skip(skipped).take(1).collect());
        }
        if let Some(most) = words.strip_prefix("1..") {
            let most = match most {
                "cpus" => cpus,
                number => number
                    .parse()
                    .ok()
                    .filter(|most| (1..=MAX_THREADS).contains(most))?,
            };
            let powers = (0..).map(|bit| 1 << bit).take_while(|&n| n < most);
            let allowed = |n: &usize| oversubscribe || *n <= cpus;
            return Some(powers.chain([most]).filter(allowed).collect());
        }
        if let Some(factor) = words.strip_suffix("*cpus") {
            return factor
                .parse()
                .ok()
                .map(|factor: usize| vec![factor.saturating_mul(cpus)]);
        }
        let divisor: usize = match words.strip_prefix("cpus")? {
            "" => 1,
            rest => rest.strip_prefix('/')?.parse().ok()?,
        };
        (divisor > 0).then(|| vec![(cpus / divisor).max(1)])
    }
}

impl From<&str> for Threads {
    fn from(word: &str) -> Self {
        let number = word.parse().map(Self::Number);
        number.unwrap_or_else(|_| Self::Words(word.to_owned()))
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

fn key_bytes(word: &str) -> Result<(usize, usize), String> {
    let (least, most) = word.split_once('-').unwrap_or((word, word));
    let both = least.parse().ok().zip(most.parse().ok());
    both.ok_or_else(|| format!("key-bytes: `{word}` (16, or 16-250)"))
}

fn buckets(word: &str) -> Result<(usize, usize), String> {
    let (less, more) = word.split_once('-').unwrap_or((word, ""));
    let both = parse_size(less).ok().zip(parse_size(more).ok());
    both.ok_or_else(|| format!("buckets: `{word}` (8192-16384, 8Ki-16Ki)"))
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
        Ok(line.params.params().or(&line.more.params()))
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
    fn what_excludes_a_default_replaces_it() {
        let defaults = params("--density 50 --loads 20,80").expect("valid");
        let given = params("-r 100 --rates 1k").expect("valid").or(&defaults);
        assert_eq!((given.range, given.density), (Some(100), None));
        assert_eq!((given.rates, given.loads), (Some(vec![1e3]), None));
        let given = params("--loads 50").expect("valid").or(&defaults);
        assert_eq!((given.density, given.loads), (Some(50.0), Some(vec![50.0])));
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

    #[test]
    fn a_list_of_cpus_is_one_pin_policy() {
        let given = |words: &str| params(words).expect("valid").pins();
        assert_eq!(given("--pin compact,smt-pair"), ["compact", "smt-pair"]);
        assert_eq!(given("--pin list:0,2-3"), ["list:0,2-3"]);
    }
}
