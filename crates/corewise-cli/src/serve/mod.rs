//! `corewise serve`: options to configuration, then the server.

mod address;
mod extended;
mod options;
mod pages;
mod plan;
mod process;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use corewise_server::{Config, EngineKind, Server};
use tracing::level_filters::LevelFilter;

pub(crate) use options::{ServeOptions, switches};
use plan::{Plan, ProcessPlan};
use process::{Daemon, Identity, Pidfile};

use crate::cli::print;
use crate::failure::{Failure, complain};

/// For the end of the help.
pub(crate) const EXAMPLES: &str = "\
Examples:
  corewise serve --memory 1g --threads 4 --pin balanced
  corewise serve --listen 127.0.0.1:0 --listen '[::1]:11211' --idle-timeout 5m
  corewise serve --config /etc/corewise.toml
  corewise serve -d -m 64 -p 11211 -u memcache -l 127.0.0.1 -P /run/memcached/memcached.pid

Signals: SIGTERM and SIGINT answer what was received and stop, SIGHUP reads --auth-file again.
Environment: the TCP ports are written to the file that MEMCACHED_PORT_FILENAME names.";

/// Whose manners to have where the two differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Called by our own name: listens on this machine only unless told otherwise.
    Corewise,
    /// Called memcached: listens everywhere and takes 64 MiB unless told otherwise, a Unix socket
    /// turns TCP off, and root must say whom to become.
    Memcached,
}

/// Serves until told to stop.
pub(crate) fn run(options: ServeOptions, manner: Manner) -> Result<ExitCode, Failure> {
    if options.license {
        return print("corewise: MIT or Apache-2.0, at your choice.\n");
    }
    let Plan {
        config,
        process,
        notes,
    } = plan::make(options, manner)?;
    if config.engine == EngineKind::Relativistic {
        pages::configure_allocator();
    }
    let identity = identity(&process, manner)?;
    notes
        .iter()
        .for_each(|note| complain(&format!("note: {note}")));
    if let Some(warning) = open_to_all(&config) {
        complain(&warning);
    }
    let daemon = prepare(&config, &process)?;
    serve(config, &process, identity, daemon)
}

/// Whom to become: nobody else unless this is root.
fn identity(process: &ProcessPlan, manner: Manner) -> Result<Option<Identity>, Failure> {
    match &process.user {
        _ if !process::is_root() => Ok(None),
        Some(name) => process::find_user(name).map(Some),
        None if manner == Manner::Corewise => Ok(None),
        None => Err(Failure::usage("root must name a user to become (-u)")),
    }
}

/// What comes before any thread.
fn prepare(config: &Config, process: &ProcessPlan) -> Result<Option<Daemon>, Failure> {
    if process.core_dumps {
        process::raise_core_files()?;
    }
    if process.lock_memory {
        process::raise_locked_memory();
    }
    process::raise_open_files(config.max_connections, config.reserved_files());
    let daemon = process.daemon.then(process::daemonise).transpose()?;
    start_log(config.verbosity);
    Ok(daemon)
}

fn serve(
    config: Config,
    process: &ProcessPlan,
    identity: Option<Identity>,
    daemon: Option<Daemon>,
) -> Result<ExitCode, Failure> {
    let keep_output = config.verbosity > 0;
    let server = bind_as(config, identity)?;
    if process.lock_memory {
        process::lock_memory();
    }
    let _pidfile = process.pidfile.as_deref().and_then(Pidfile::write);
    process::write_ports(server.addresses());
    print(&format!("{}\n", server.banner().trim_end()))?;
    if let Some(daemon) = daemon {
        daemon.started(keep_output);
    }
    server.run().map_err(Failure::start)?;
    Ok(ExitCode::SUCCESS)
}

/// Root is needed for ports below 1024 only. So the identity changes before the rest, as in
/// memcached, or else a socket in the user's directory would be root's; but after such a port.
fn bind_as(config: Config, identity: Option<Identity>) -> Result<Server, Failure> {
    let Some(identity) = identity else {
        return bind(config);
    };
    let privileged = config
        .listen
        .iter()
        .any(|address| (1..1024).contains(&address.port()));
    if !privileged {
        identity.assume(None)?;
        return bind(config);
    }
    let socket = config.unix.clone();
    let server = bind(config)?;
    identity.assume(socket.as_deref())?;
    Ok(server)
}

fn bind(config: Config) -> Result<Server, Failure> {
    Server::bind(config).map_err(|error| match error.is_usage() {
        true => Failure::usage(error),
        false => Failure::start(error),
    })
}

fn start_log(verbosity: u8) {
    let level = match verbosity {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .init();
}

/// A warning if strangers can reach the cache.
fn open_to_all(config: &Config) -> Option<String> {
    let reachable = config
        .listen
        .iter()
        .find(|address| !address.ip().to_canonical().is_loopback())?;
    config.auth_file.is_none().then(|| {
        format!(
            "warning: listening on {reachable} without authentication: whoever reaches it can \
             read and change everything (see --auth-file)"
        )
    })
}
