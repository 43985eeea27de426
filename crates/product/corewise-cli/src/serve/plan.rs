//! Turns options into the configuration of the server and of its process.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corewise_server::{BindAddress, BindingProtocol, Config, Eviction, ListenAt, ProtocolKind};
use corewise_topology::Topology;

use super::options::ServeOptions;
use super::{CliMode, address, extended};
use crate::failure::{Failure, did_you_mean};
use crate::value::{Bytes, Megabytes, Mode, Parsed, Port, Positive, Span};

/// The port of RESP addresses without one.
const RESP_PORT: u16 = 6379;
const DEFAULT_PORT: u16 = 11_211;
/// The memory that memcached takes by default.
const MEMCACHEDS_MEMORY: u64 = 64 << 20;
/// Bytes of a Unix socket's path, including the terminating zero byte.
const SOCKET_PATH: usize = 108;
const MIN_ITEM_SIZE: u64 = 1 << 10;
const MAX_ITEM_SIZE: u64 = 128 << 20;
const MIN_SCRIPT_TIME: Duration = Duration::from_millis(1);
const MAX_SCRIPT_TIME: Duration = Duration::from_secs(60);
const MIN_SCRIPT_MEMORY: u64 = 1 << 20;
const MAX_SCRIPT_MEMORY: u64 = 1 << 30;
const MOST_DATABASES: u8 = 16;
const MAX_THREADS: u32 = 1_024;

/// The resolved options.
#[derive(Debug)]
pub(super) struct ServePlan {
    /// The configuration of the server.
    pub(super) config: Config,
    /// The configuration of its process.
    pub(super) process: ProcessPlan,
    /// Messages for the user about options that have no effect.
    pub(super) notes: Vec<String>,
    /// A message about the memory limit and what this process may use.
    pub(super) about_memory: Option<String>,
}

/// What the process changes about itself before it serves.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessPlan {
    /// Run in the background.
    pub(super) daemon: bool,
    /// Become this user.
    pub(super) user: Option<String>,
    /// Write the process id to this file.
    pub(super) pidfile: Option<PathBuf>,
    /// Lock all memory.
    pub(super) lock_memory: bool,
    /// Raise the limit of core files.
    pub(super) core_dumps: bool,
}

/// Resolves the options, including those of the configuration file if there is one.
///
/// # Errors
///
/// The first invalid option.
pub(super) fn make(
    options: ServeOptions,
    mode: CliMode,
    machine: &Topology,
) -> Result<ServePlan, Failure> {
    let from_file = match &options.config {
        Some(path) => read_file(path)?,
        None => ServeOptions::default(),
    };
    let mut notes = Vec::new();
    let over = without_synonyms(options, &mut notes).map_err(Failure::usage)?;
    let under = without_synonyms(from_file, &mut notes).map_err(Failure::usage)?;
    let options = over.over(under);
    refuse_out_of_scope(&options).map_err(Failure::usage)?;
    notes.extend(notes_on_idle_options(&options));
    let process = process_plan(&options).map_err(Failure::usage)?;
    let is_default = options.memory.is_none();
    let config = server_config(options, mode, machine).map_err(Failure::usage)?;
    let usual = is_default.then_some(usual_memory(mode));
    let available = machine.memory_bytes;
    let about_memory = available.and_then(|available| about_memory(&config, usual, available));
    Ok(ServePlan {
        config,
        process,
        notes,
        about_memory,
    })
}

/// The memory limit that is used if none is given and the machine has more.
fn usual_memory(mode: CliMode) -> u64 {
    match mode {
        CliMode::Corewise => Config::default().memory,
        CliMode::Memcached => MEMCACHEDS_MEMORY,
    }
}

fn read_file(path: &Path) -> Result<ServeOptions, Failure> {
    let shown = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("cannot read {shown}: {error}")))?;
    toml::from_str(&text).map_err(|error| {
        let before = error.span().map_or("", |span| &text[..span.start]);
        let line = 1 + before.matches('\n').count();
        let message = in_file(error.message());
        // An error in a value follows its key.
        let begun = before.rsplit('\n').next().unwrap_or_default();
        let message = match begun.split_once('=') {
            Some((key, _)) => format!("{}: {message}", key.trim()),
            None => message,
        };
        Failure::usage(format!("{shown}, line {line}: {message}"))
    })
}

/// Replaces the list of all keys, which follows an unknown one, by the key that it resembles.
fn in_file(message: &str) -> String {
    let unknown = message.strip_prefix("unknown field `");
    let Some((key, rest)) = unknown.and_then(|rest| rest.split_once('`')) else {
        return message.to_owned();
    };
    let known = rest.split('`').skip(1).step_by(2);
    let similar = known
        .map(|other| (strsim::jaro(key, other), other))
        .filter(|(similarity, _)| *similarity > 0.7)
        .max_by(|one, other| one.0.total_cmp(&other.0));
    let question = similar.map_or_else(String::new, |(_, other)| did_you_mean(other));
    format!("`{key}` is not an option{question}")
}

/// Replaces options that are synonyms of another one by that one, so that one layer can override
/// another.
fn without_synonyms(
    mut options: ServeOptions,
    notes: &mut Vec<String>,
) -> Result<ServeOptions, String> {
    notes.extend(extended::apply(&mut options)?);
    if let Some(Parsed(Megabytes(megabytes))) = options.memory_limit.take() {
        if options.memory.is_some() {
            return Err("memory and memory-limit cannot both be given".into());
        }
        options.memory = Some(Parsed(Bytes(u64::from(megabytes) << 20)));
    }
    if options.disable_evictions.take() == Some(true) {
        if options.eviction.is_some() {
            return Err("eviction and disable-evictions cannot both be given".into());
        }
        options.eviction = Some(Parsed(Eviction::None));
    }
    Ok(options)
}

fn refuse_out_of_scope(options: &ServeOptions) -> Result<(), String> {
    let refuse = |what: &str| Err(format!("{what} is out of scope"));
    if options.udp_port.as_ref().is_some_and(|port| port.0 != 0) {
        return refuse("UDP (-U)");
    }
    if options.enable_sasl == Some(true) {
        return refuse("SASL (-S)");
    }
    if options.enable_ssl == Some(true) {
        return refuse("TLS (-Z)");
    }
    if options.memory_file.is_some() {
        return refuse("a cache kept in a file (-e)");
    }
    if let Some(Parsed(factor)) = options.slab_growth_factor
        && (factor.is_nan() || factor <= 1.0)
    {
        return Err(format!(
            "slab-growth-factor (-f) must be greater than 1, not {factor}"
        ));
    }
    if options.auth_file.is_some() && options.protocol == Some(Parsed(BindingProtocol::Binary)) {
        return Err(
            "the binary protocol has no authentication: protocol (-B binary) and auth-file \
             exclude each other"
                .into(),
        );
    }
    Ok(())
}

fn notes_on_idle_options(options: &ServeOptions) -> Vec<String> {
    let given = [
        (
            options.slab_growth_factor.is_some(),
            "-f: items are not kept in slabs of growing chunks",
        ),
        (
            options.slab_min_size.is_some(),
            "-n: items are not kept in slabs of growing chunks",
        ),
        (
            options.max_reqs_per_event.is_some(),
            "-R: the server bounds its batches itself",
        ),
        (
            options.napi_ids.is_some(),
            "-N: connections are not spread by network queue",
        ),
    ];
    let note = |(given, what): (bool, &str)| {
        let (name, why) = what.split_once(": ")?;
        given.then(|| format!("{name} changes nothing here: {why}"))
    };
    given.into_iter().filter_map(note).collect()
}

fn process_plan(options: &ServeOptions) -> Result<ProcessPlan, String> {
    Ok(ProcessPlan {
        daemon: options.daemon == Some(true),
        user: options.user.clone(),
        pidfile: options.pidfile.as_deref().map(absolute).transpose()?,
        lock_memory: options.lock_memory == Some(true),
        core_dumps: options.enable_coredumps == Some(true),
    })
}

/// A daemon changes its directory, so paths must be absolute.
fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("the path {}: {error}", path.display()))
}

fn socket_path(path: &Path) -> Result<PathBuf, String> {
    let path = absolute(path)?;
    if path.as_os_str().len() < SOCKET_PATH {
        Ok(path)
    } else {
        Err(format!(
            "the path of the Unix socket (-s) cannot have {SOCKET_PATH} bytes or more: {}",
            path.display()
        ))
    }
}

fn server_config(
    options: ServeOptions,
    mode: CliMode,
    machine: &Topology,
) -> Result<Config, String> {
    let mut config = Config {
        listeners: listeners(&options, mode)?,
        metrics: metrics(&options)?,
        auth_file: options.auth_file.as_deref().map(absolute).transpose()?,
        threads: threads(&options, machine)?,
        verbosity: options.verbose,
        huge_pages: options.enable_largepages != Some(false),
        ..Config::default()
    };
    if config.listeners.is_empty() {
        return Err("nothing to listen on: TCP is off (-p 0) and there is no Unix socket".into());
    }
    config.memory = usual_memory(mode);
    set_sizes(&mut config, &options, machine.memory_bytes)?;
    set_connections(&mut config, &options)?;
    set_databases(&mut config, &options)?;
    set_scripts(&mut config, &options)?;
    set_commands(&mut config, &options);
    set_kinds(&mut config, options);
    Ok(config)
}

fn threads(options: &ServeOptions, machine: &Topology) -> Result<usize, String> {
    match &options.threads {
        None => Ok(machine.default_threads()),
        Some(Parsed(Positive(count))) if *count <= MAX_THREADS => Ok(*count as usize),
        Some(_) => Err(format!("threads (-t) cannot be more than {MAX_THREADS}")),
    }
}

/// `available` is the memory that the process may use.
fn set_sizes(
    config: &mut Config,
    options: &ServeOptions,
    available: Option<u64>,
) -> Result<(), String> {
    let item = options.max_item_size.as_ref();
    let item = item.map_or(config.max_item_size as u64, |size| size.0.0);
    config.memory = match (&options.memory, available) {
        (Some(Parsed(Bytes(memory))), _) => *memory,
        (None, Some(available)) => default_memory(config.memory, available, item),
        (None, None) => config.memory,
    };
    if let Some(Parsed(Bytes(size))) = options.max_item_size {
        if !(MIN_ITEM_SIZE..=MAX_ITEM_SIZE).contains(&size) {
            return Err(format!(
                "max-item-size (-I) must be 1k to 128m, not {}",
                Bytes(size)
            ));
        }
        config.max_item_size = size as usize;
    }
    let (item, memory) = (config.max_item_size as u64, config.memory);
    if item > memory / 2 {
        let (least, item, memory) = (Bytes(2 * item), Bytes(item), Bytes(memory));
        return Err(match options.max_item_size {
            Some(_) => format!(
                "max-item-size (-I) cannot be more than half of the memory (-m): {item} of {memory}"
            ),
            None => format!(
                "memory (-m) must be at least {least}, twice the largest item ({item}), not {memory}"
            ),
        });
    }
    Ok(())
}

/// The memory limit that is used if none is given: `most`, or what leaves a fifth of the available
/// memory and 32 MiB to the rest of the process and its group, but room for two of the largest
/// items.
pub(super) fn default_memory(most: u64, available: u64, item: u64) -> u64 {
    let share = (available / 5 * 4).saturating_sub(32 << 20);
    let share = share >> 20 << 20; // whole mebibytes
    share.max(2 * item.min(MAX_ITEM_SIZE)).min(most)
}

/// What the server holds at most, which `engine/relativistic` promises and tests measure.
fn resident_bytes(config: &Config) -> u64 {
    config.memory.saturating_add(config.memory / 20 + (8 << 20))
}

/// A warning if the process may use less memory than the server takes, and a note if it has less
/// than the `usual` limit for that reason.
pub(super) fn about_memory(config: &Config, usual: Option<u64>, available: u64) -> Option<String> {
    let shown = |bytes: u64| format!("{}m", bytes >> 20);
    let (memory, allowed) = (shown(config.memory), shown(available));
    if resident_bytes(config) > available {
        let resident = shown(resident_bytes(config));
        return Some(format!(
            "warning: with a memory limit of {memory} the server takes up to {resident}, but the \
             machine or a control group allows {allowed}: the system may kill it"
        ));
    }
    let is_reduced = usual.is_some_and(|usual| config.memory < usual);
    is_reduced.then(|| {
        format!(
            "note: the memory limit is {memory}, as the machine or a control group allows \
             {allowed}; --memory sets it"
        )
    })
}

fn set_connections(config: &mut Config, options: &ServeOptions) -> Result<(), String> {
    if let Some(Parsed(Bytes(memory))) = options.connection_memory {
        let least = config.least_connection_memory();
        if memory < least {
            return Err(format!(
                "connection-memory must be at least {}: 2m for each of {} threads (a quarter of the \
                 memory at most) and one of the largest items",
                Bytes(least),
                config.threads
            ));
        }
        config.connection_memory = Some(memory);
    }
    if let Some(Parsed(Positive(count))) = options.max_connections {
        config.max_connections = count as usize;
    }
    if let Some(Parsed(Positive(backlog))) = options.backlog {
        config.backlog = backlog;
    }
    if let Some(Parsed(Span(span))) = options.idle_timeout {
        config.idle_timeout = (!span.is_zero()).then_some(span);
    }
    if let Some(Parsed(Span(span))) = options.slow_reader_timeout {
        config.slow_reader_timeout = span;
    }
    if let Some(fast) = options.maxconns_fast {
        config.maxconns_fast = fast;
    }
    if let Some(Parsed(Mode(mode))) = options.unix_mode {
        config.unix_mode = mode;
    }
    Ok(())
}

fn set_databases(config: &mut Config, options: &ServeOptions) -> Result<(), String> {
    if let Some(Parsed(Positive(count))) = options.databases {
        let fits = u8::try_from(count).ok().filter(|n| *n <= MOST_DATABASES);
        config.databases =
            fits.ok_or_else(|| format!("databases must be from 1 to {MOST_DATABASES}"))?;
    }
    Ok(())
}

fn set_scripts(config: &mut Config, options: &ServeOptions) -> Result<(), String> {
    if let Some(Parsed(Span(time))) = options.script_time {
        if !(MIN_SCRIPT_TIME..=MAX_SCRIPT_TIME).contains(&time) {
            return Err("script-time must be from 1ms to 60s".into());
        }
        config.script_time = time;
    }
    if let Some(Parsed(Bytes(memory))) = options.script_memory {
        if !(MIN_SCRIPT_MEMORY..=MAX_SCRIPT_MEMORY).contains(&memory) {
            return Err(format!(
                "script-memory must be from 1m to 1g, not {}",
                Bytes(memory)
            ));
        }
        config.script_memory = memory as usize;
    }
    if let Some(Parsed(keys)) = options.script_keys {
        config.script_keys = keys;
    }
    Ok(())
}

fn set_commands(config: &mut Config, options: &ServeOptions) {
    config.enable_shutdown = options.enable_shutdown == Some(true);
    config.enable_flush = options.disable_flush_all != Some(true);
    config.enable_cas = options.disable_cas != Some(true);
    config.enable_dump = options.disable_dumping != Some(true);
    config.enable_scripts = options.disable_scripts != Some(true);
    if let Some(Parsed(delimiter)) = options.prefix_delimiter {
        config.prefix_delimiter = delimiter.0;
        config.detail_stats = true;
    }
}

fn set_kinds(config: &mut Config, options: ServeOptions) {
    if let Some(Parsed(binding)) = options.protocol {
        config.binding = binding;
    }
    if let Some(Parsed(engine)) = options.engine {
        config.engine = engine;
    }
    if let Some(Parsed(eviction)) = options.eviction {
        config.eviction = eviction;
    }
    if let Some(Parsed(pin)) = options.pin {
        config.pin = pin;
    }
}

/// Where to listen: first for memcached's protocols over TCP, last on the Unix sockets.
fn listeners(options: &ServeOptions, mode: CliMode) -> Result<Vec<ListenAt>, String> {
    use ProtocolKind::{Cphash, Memcached, Resp};
    let mut listeners = Vec::new();
    let mut add = |protocol, option: &str, texts: &[String], default_port| {
        let addresses = resolve_all(option, texts, default_port)?;
        let addresses = addresses.into_iter().map(BindAddress::Tcp);
        listeners.extend(addresses.map(|address| ListenAt { protocol, address }));
        Ok::<_, String>(())
    };
    if let Some((texts, port)) = memcached_addresses(options, mode) {
        add(Memcached, "listen (-l)", &texts, Some(port))?;
    }
    if let Some(texts) = &options.cphash_listen {
        add(Cphash, "cphash-listen", texts, None)?;
    }
    if let Some(texts) = &options.resp {
        add(Resp, "resp", texts, Some(RESP_PORT))?;
    }
    let sockets = [(Resp, &options.unixsocket), (Memcached, &options.unix)];
    for (protocol, path) in sockets {
        if let Some(path) = path {
            let address = BindAddress::Unix(socket_path(path)?);
            listeners.push(ListenAt { protocol, address });
        }
    }
    Ok(listeners)
}

/// The addresses for metrics: on this machine only, unless another host or `*` is named.
fn metrics(options: &ServeOptions) -> Result<Vec<SocketAddr>, String> {
    let Some(texts) = &options.metrics else {
        return Ok(Vec::new());
    };
    let places = texts.iter().flat_map(|text| text.split(','));
    let places = places.map(|place| match place.trim() {
        port if port.starts_with(':') && !port[1..].contains(':') => format!("127.0.0.1{port}"),
        place => place.to_owned(),
    });
    resolve_all("metrics", &places.collect::<Vec<_>>(), None)
}

/// The TCP addresses for memcached's protocols, and the port of those that have none.
///
/// A Unix socket replaces TCP, as in memcached, but here an explicit `--listen` is honoured beside
/// it. By default memcached listens on all addresses, and corewise on this machine only.
fn memcached_addresses(options: &ServeOptions, mode: CliMode) -> Option<(Vec<String>, u16)> {
    let port = match options.port.as_ref().map(|port| &port.0) {
        None => DEFAULT_PORT,
        Some(Port::Number(port)) => *port,
        Some(Port::Any) => 0,
        Some(Port::Off) => return None,
    };
    let unix_alone = mode == CliMode::Memcached || options.listen.is_none();
    if options.unix.is_some() && unix_alone {
        return None;
    }
    let default = match mode {
        CliMode::Memcached => "*",
        CliMode::Corewise => "127.0.0.1",
    };
    let texts = options
        .listen
        .clone()
        .unwrap_or_else(|| vec![default.into()]);
    Some((texts, port))
}

/// Resolves the addresses of an option. Without a default port, each must have one.
fn resolve_all(
    option: &str,
    texts: &[String],
    default_port: Option<u16>,
) -> Result<Vec<SocketAddr>, String> {
    let text = texts.join(",");
    let named = |error| format!("{option}: {error}");
    let places = address::parse(&text).map_err(named)?;
    if places.is_empty() {
        return Err(format!("{option} names no address"));
    }
    let mut addresses = Vec::new();
    for place in places {
        let port = place.port.or(default_port);
        let port = port.ok_or_else(|| format!("{option} needs a port: {text}"))?;
        for address in address::resolve(place.host.as_deref(), port).map_err(named)? {
            // Several names may mean one address; with port 0 each is a different socket.
            if address.port() == 0 || !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
    Ok(addresses)
}
