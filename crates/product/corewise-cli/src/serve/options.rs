//! The options of `serve`, on the command line and in the configuration file.
//!
//! One struct serves both: clap fills it from the command line, and serde from the file, whose keys
//! are the long names. Every option may be absent, so that one layer can override the other.

use std::any::TypeId;
use std::fmt;
use std::path::PathBuf;

use clap::{ArgAction, Args};
use corewise_server::{BindingProtocol, EngineKind, Eviction, ScriptKeys};
use corewise_topology::PinPolicy;
use serde::de::{self, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use crate::value::{Bytes, Delimiter, Megabytes, Mode, Parsed, Port, Positive, Span};

/// The heading of the options that do nothing here. SASL and TLS are left out of the short help,
/// because scripts search that help for their names to find out whether a memcached supports them.
pub(super) const OTHERS: &str =
    "Options of memcached that change nothing here, or are refused by name";

/// Options of `serve`.
#[derive(Args, Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ServeOptions {
    /// Address to listen on: HOST, HOST:PORT or * for all; IPv6 in brackets. Separate several by
    /// commas, or repeat the option. Port 0 lets the system choose. [default: 127.0.0.1:11211]
    #[arg(short = 'l', long, value_name = "ADDR[:PORT]")]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) listen: Option<Vec<String>>,

    /// TCP port of addresses without one; 0 turns TCP off, -1 lets the system choose. [default:
    /// 11211]
    #[arg(short = 'p', long, value_name = "PORT", allow_hyphen_values = true)]
    pub(crate) port: Option<Parsed<Port>>,

    /// Address for the binary protocol of CPHASH (docs/CPHASH-PROTOCOL.md), as in --listen, with a
    /// port. It has no authentication, so it excludes --auth-file. [default: none]
    #[arg(long, value_name = "ADDR:PORT")]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) cphash_listen: Option<Vec<String>>,

    /// Address for RESP, the protocol of Redis (strings and keys; docs/RESP.md), as in --listen.
    /// [default: none; port 6379]
    #[arg(long, value_name = "ADDR[:PORT]")]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) resp: Option<Vec<String>>,

    /// Address for HTTP requests of metrics and probes (/metrics, /healthz, /readyz), with a port;
    /// without a host it is 127.0.0.1. It has no authentication. [default: none]
    #[arg(long, value_name = "[ADDR]:PORT")]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) metrics: Option<Vec<String>>,

    /// Unix socket to listen on; without --listen it replaces TCP.
    #[arg(short = 's', long, visible_alias = "unix-socket", value_name = "PATH")]
    #[serde(alias = "unix-socket")]
    pub(crate) unix: Option<PathBuf>,

    /// Unix socket to listen on for RESP, beside TCP.
    #[arg(long, value_name = "PATH")]
    pub(crate) unixsocket: Option<PathBuf>,

    /// Permissions of the Unix sockets, in octal. [default: 700]
    #[arg(short = 'a', long, visible_alias = "unix-mask", value_name = "MODE")]
    #[serde(alias = "unix-mask")]
    pub(crate) unix_mode: Option<Parsed<Mode>>,

    /// memcached's protocol: auto (the first byte of a connection tells), ascii or binary. With
    /// --auth-file only ascii. [default: auto]
    #[arg(short = 'B', long, value_name = "PROTOCOL")]
    pub(crate) protocol: Option<Parsed<BindingProtocol>>,

    /// Number of event loops. [default: one per CPU this process may use]
    #[arg(short = 't', long, value_name = "N")]
    pub(crate) threads: Option<Parsed<Positive>>,

    /// Memory for items and connections, such as 512m or 1g. [default: 1g, or 64m if called
    /// memcached; less if the machine or a control group allows less]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Parsed<Bytes>>,

    /// The same in megabytes.
    #[arg(short = 'm', long, value_name = "MB", conflicts_with = "memory")]
    pub(crate) memory_limit: Option<Parsed<Megabytes>>,

    /// Largest item, 1k to 128m. [default: 1m]
    #[arg(short = 'I', long, value_name = "SIZE")]
    pub(crate) max_item_size: Option<Parsed<Bytes>>,

    /// Part of the memory that all connections together may take; beyond that, large stores wait
    /// for a second and are then refused. [default: an eighth, at least 16m (a quarter, if that is
    /// less), and room for the largest item; and 2m for each thread, a quarter at most]
    #[arg(long, value_name = "SIZE")]
    pub(crate) connection_memory: Option<Parsed<Bytes>>,

    /// Maximum number of open connections. [default: 1024]
    #[arg(short = 'c', long, visible_alias = "conn-limit", value_name = "N")]
    #[serde(alias = "conn-limit")]
    pub(crate) max_connections: Option<Parsed<Positive>>,

    /// Close connections beyond the limit at once instead of letting them wait. [default: true]
    #[arg(long)]
    pub(crate) maxconns_fast: Option<bool>,

    /// Close connections that are idle for this long; 0 for never. [default: 0]
    #[arg(long, value_name = "TIME")]
    pub(crate) idle_timeout: Option<Parsed<Span>>,

    /// Close connections that leave replies unread for this long.
    #[arg(long, value_name = "TIME")]
    pub(crate) slow_reader_timeout: Option<Parsed<Span>>,

    /// Number of databases of RESP, 1 to 16; memcached's protocols see the first. [default: 16]
    #[arg(long, value_name = "N")]
    pub(crate) databases: Option<Parsed<Positive>>,

    /// Refuse the scripts of RESP: EVAL and its relatives.
    #[arg(long)]
    pub(crate) disable_scripts: Option<bool>,

    /// How long a script of RESP may run, 1ms to 60s, and the scripts of one transaction together.
    /// [default: 5s]
    #[arg(long, value_name = "TIME")]
    pub(crate) script_time: Option<Parsed<Span>>,

    /// Memory that the scripts of one thread may take, 1m to 1g. [default: 64m]
    #[arg(long, value_name = "SIZE")]
    pub(crate) script_memory: Option<Parsed<Bytes>>,

    /// The keys that a script may use: declared, those in its KEYS; or all, and then every script
    /// excludes all other operations while it runs. [default: declared]
    #[arg(long, value_name = "KEYS")]
    pub(crate) script_keys: Option<Parsed<ScriptKeys>>,

    /// relativistic: lookups without locks, items in segments; locked: a lock for each shard, the
    /// baseline; lockhash: a lock for each partition of a LOCKHASH table; global-lock: one lock for
    /// everything, for comparison only. [default: relativistic]
    #[arg(long, value_name = "ENGINE")]
    pub(crate) engine: Option<Parsed<EngineKind>>,

    /// What to evict when memory is full: s3-fifo, lru or random; with none, stores are answered
    /// with an error. [default: s3-fifo; lru with the other engines than relativistic, which
    /// support only lru and none]
    #[arg(long, value_name = "POLICY")]
    pub(crate) eviction: Option<Parsed<Eviction>>,

    /// The same as --eviction none.
    #[arg(short = 'M', long, conflicts_with = "eviction")]
    pub(crate) disable_evictions: Option<bool>,

    /// Bind event loops to CPUs: none, compact, balanced, smt-pair or list:0,2-5. [default: none]
    #[arg(long, value_name = "POLICY")]
    pub(crate) pin: Option<Parsed<PinPolicy>>,

    /// File of user:password lines; clients authenticate with a first `set`. SIGHUP reads it again.
    #[arg(short = 'Y', long, value_name = "FILE")]
    pub(crate) auth_file: Option<PathBuf>,

    /// File of options as `name = value` under their long names; the command line takes precedence.
    #[arg(long, value_name = "FILE.toml")]
    #[serde(skip)]
    pub(crate) config: Option<PathBuf>,

    /// Check the options and the configuration file, and exit.
    #[arg(long)]
    #[serde(skip)]
    pub(crate) check_config: bool,

    /// Connections that the kernel may queue. [default: 1024]
    #[arg(short = 'b', long, visible_alias = "listen-backlog", value_name = "N")]
    #[serde(alias = "listen-backlog")]
    pub(crate) backlog: Option<Parsed<Positive>>,

    /// Obey the `shutdown` command.
    #[arg(short = 'A', long)]
    pub(crate) enable_shutdown: Option<bool>,

    /// Refuse `flush_all`.
    #[arg(short = 'F', long)]
    pub(crate) disable_flush_all: Option<bool>,

    /// Keep no CAS numbers.
    #[arg(short = 'C', long)]
    pub(crate) disable_cas: Option<bool>,

    /// Refuse commands that list keys.
    #[arg(short = 'X', long)]
    pub(crate) disable_dumping: Option<bool>,

    /// Count statistics per key prefix, which ends at this character. [default: off; ':' when a
    /// client turns them on]
    #[arg(short = 'D', long, value_name = "CHAR", allow_hyphen_values = true)]
    pub(crate) prefix_delimiter: Option<Parsed<Delimiter>>,

    /// Log more to standard error; up to three times.
    #[arg(short = 'v', long, action = ArgAction::Count)]
    #[serde(deserialize_with = "times")]
    pub(crate) verbose: u8,

    /// Run in the background, once the addresses are bound.
    #[arg(short = 'd', long)]
    pub(crate) daemon: Option<bool>,

    /// User to become when started as root; ports below 1024 are bound first.
    #[arg(short = 'u', long, value_name = "USER")]
    pub(crate) user: Option<String>,

    /// File that contains the process id while the server runs.
    #[arg(short = 'P', long, value_name = "FILE")]
    pub(crate) pidfile: Option<PathBuf>,

    /// Lock all memory so that none is swapped out.
    #[arg(short = 'k', long)]
    pub(crate) lock_memory: Option<bool>,

    /// Raise the limit of core files.
    #[arg(short = 'r', long)]
    pub(crate) enable_coredumps: Option<bool>,

    /// memcached's extended options, separated by commas: idle_timeout=SECONDS, maxconns_fast,
    /// no_maxconns_fast; others are ignored with a note, or refused by name.
    #[arg(short = 'o', long, value_name = "WORDS")]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) extended: Option<Vec<String>>,

    /// Print the licence and exit.
    #[arg(short = 'i', long)]
    #[serde(skip)]
    pub(crate) license: bool,

    /// Only 0, which turns UDP off; UDP is out of scope.
    #[arg(short = 'U', long, value_name = "PORT", allow_hyphen_values = true, help_heading = OTHERS)]
    pub(crate) udp_port: Option<Parsed<i64>>,

    /// No effect: items are not stored in slabs of growing chunks.
    #[arg(short = 'f', long, value_name = "FACTOR", help_heading = OTHERS)]
    pub(crate) slab_growth_factor: Option<Parsed<f64>>,

    /// No effect: see -f.
    #[arg(short = 'n', long, value_name = "BYTES", help_heading = OTHERS)]
    pub(crate) slab_min_size: Option<Parsed<Positive>>,

    /// No effect: the server bounds its batches itself.
    #[arg(short = 'R', long, value_name = "N", help_heading = OTHERS)]
    pub(crate) max_reqs_per_event: Option<Parsed<Positive>>,

    /// Ask for huge pages for items; --huge-pages=false turns them off. [default: true]
    #[arg(short = 'L', long, visible_alias = "huge-pages")]
    #[serde(alias = "huge-pages")]
    pub(crate) enable_largepages: Option<bool>,

    /// No effect: there are no watch commands.
    #[arg(short = 'W', long, help_heading = OTHERS)]
    pub(crate) disable_watch: Option<bool>,

    /// No effect: connections are not distributed by network queue.
    #[arg(short = 'N', long, value_name = "N", help_heading = OTHERS)]
    pub(crate) napi_ids: Option<Parsed<Positive>>,

    /// Refused: a cache in a file is out of scope.
    #[arg(short = 'e', long, value_name = "FILE", help_heading = OTHERS)]
    pub(crate) memory_file: Option<PathBuf>,

    /// Refused: SASL is out of scope.
    #[arg(short = 'S', long, hide_short_help = true, help_heading = OTHERS)]
    pub(crate) enable_sasl: Option<bool>,

    /// Refused: TLS is out of scope.
    #[arg(short = 'Z', long, hide_short_help = true, help_heading = OTHERS)]
    pub(crate) enable_ssl: Option<bool>,
}

/// Lets boolean options stand without a value, which means true.
pub(crate) fn switches(command: clap::Command) -> clap::Command {
    command.mut_args(|option| {
        let truth = option.get_value_parser().type_id() == TypeId::of::<bool>();
        if !truth || !matches!(option.get_action(), ArgAction::Set) {
            return option;
        }
        let option = option.value_name("BOOL").hide_possible_values(true);
        option
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
    })
}

/// Names every field, so that the compiler reports a missing one.
macro_rules! lay_over {
    ($over:ident, $under:ident; $($field:ident)*; $($plain:ident = $value:expr),*) => {
        ServeOptions {
            $($field: $over.$field.or($under.$field),)*
            $($plain: $value,)*
        }
    };
}

impl ServeOptions {
    /// Merges two layers: these options override those of `under`.
    pub(crate) fn over(self, under: Self) -> Self {
        lay_over!(self, under;
            listen port cphash_listen resp metrics unix unixsocket unix_mode threads memory memory_limit
            max_item_size connection_memory
            max_connections
            maxconns_fast idle_timeout slow_reader_timeout engine eviction disable_evictions pin
            auth_file config backlog enable_shutdown disable_flush_all disable_cas disable_dumping
            prefix_delimiter databases disable_scripts script_time script_memory script_keys daemon user pidfile lock_memory enable_coredumps extended protocol
            udp_port slab_growth_factor slab_min_size max_reqs_per_event enable_largepages
            disable_watch napi_ids memory_file enable_sasl enable_ssl;
            verbose = self.verbose.max(under.verbose),
            check_config = self.check_config || under.check_config,
            license = self.license || under.license
        )
    }
}

/// Accepts both `listen = "a"` and `listen = ["a", "b"]`.
fn one_or_many<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Vec<String>>, D::Error> {
    struct OneOrMany;

    impl<'de> Visitor<'de> for OneOrMany {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text or a list of texts")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<String>, E> {
            Ok(vec![text.to_owned()])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<String>, A::Error> {
            let mut texts = Vec::new();
            while let Some(text) = list.next_element()? {
                texts.push(text);
            }
            Ok(texts)
        }
    }

    source.deserialize_any(OneOrMany).map(Some)
}

/// The number of times `-v` is given.
fn times<'de, D: Deserializer<'de>>(source: D) -> Result<u8, D::Error> {
    struct Times;

    impl Visitor<'_> for Times {
        type Value = u8;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a whole number from 0 to 3")
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<u8, E> {
            let times = u8::try_from(number).ok().filter(|times| *times <= 3);
            times.ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
        }
    }

    source.deserialize_any(Times)
}
