//! `corewise serve`: turns options into a configuration, then runs the server.

mod address;
mod extended;
mod options;
mod pages;
mod plan;
mod process;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;

use corewise_server::{Config, EngineKind, Server};
use sd_notify::NotifyState;
use tracing::level_filters::LevelFilter;

pub(crate) use options::{ServeOptions, switches};
use plan::{ProcessPlan, ServePlan};
use process::{Daemon, Identity, Pidfile};

use crate::cli::print;
use crate::failure::{Failure, complain};

/// Text at the end of the help.
pub(crate) const EXAMPLES: &str = "\
Examples:
  corewise serve --memory 1g --threads 4 --pin balanced
  corewise serve --listen 127.0.0.1:0 --listen '[::1]:11211' --idle-timeout 5m
  corewise serve --config /etc/corewise.toml
  corewise serve --cphash-listen 127.0.0.1:11311
  corewise serve --resp 127.0.0.1:6379
  corewise serve -d -m 64 -p 11211 -u memcache -l 127.0.0.1 -P /run/memcached/memcached.pid

Signals: SIGTERM, SIGINT and SIGUSR1 answer what was received and stop, SIGHUP reads --auth-file again.
Environment: the TCP ports are written to the file that MEMCACHED_PORT_FILENAME names.";

/// Which program's behaviour to follow where corewise and memcached differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CliMode {
    /// Called corewise: listens on this machine only by default.
    Corewise,
    /// Called memcached: by default listens on all addresses and takes 64 MiB, a Unix socket turns
    /// TCP off, and root must name a user to become.
    Memcached,
}

/// Serves until asked to stop.
pub(crate) fn run(options: ServeOptions, mode: CliMode) -> Result<ExitCode, Failure> {
    if options.license {
        return print("corewise: MIT or Apache-2.0, at your choice.\n");
    }
    let check_only = options.check_config;
    let ServePlan {
        config,
        process,
        notes,
        about_memory,
    } = plan::make(options, mode)?;
    if config.engine == EngineKind::Relativistic && !check_only {
        pages::configure_allocator();
    }
    let identity = identity(&process, mode)?;
    notes
        .iter()
        .for_each(|note| complain(&format!("note: {note}")));
    let warnings = [open_to_all(&config), about_memory];
    warnings.iter().flatten().for_each(|line| complain(line));
    if check_only {
        Server::check(config).map_err(Failure::usage)?;
        return print("corewise: the configuration is valid\n");
    }
    let daemon = prepare(&config, &process)?;
    serve(config, &process, identity, daemon)
}

/// The user to become; `None` unless this process is root.
fn identity(process: &ProcessPlan, mode: CliMode) -> Result<Option<Identity>, Failure> {
    match &process.user {
        _ if !process::is_root() => Ok(None),
        Some(name) => process::find_user(name).map(Some),
        None if mode == CliMode::Corewise => Ok(None),
        None => Err(Failure::usage("root must name a user to become (-u)")),
    }
}

/// The steps that come before any thread is started.
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
    let mut server = bind_as(config, identity)?;
    process::tell_watchdog(&mut server);
    if process.lock_memory {
        process::lock_memory();
    }
    let _pidfile = process.pidfile.as_deref().and_then(Pidfile::write);
    process::write_ports(&server.addresses());
    let banner = format!("{}\n", server.banner().trim_end());
    let ready = || {
        // A server whose output is closed serves on.
        let _ = print(&banner);
        if let Some(daemon) = daemon {
            daemon.started(keep_output);
        }
        process::notify(NotifyState::Ready);
    };
    server.run(ready).map_err(Failure::start)?;
    Ok(ExitCode::SUCCESS)
}

/// Binds as the user, as memcached does, because a socket in the user's directory would otherwise
/// belong to root. If a port is below 1024, binds as root and becomes the user afterwards.
fn bind_as(config: Config, identity: Option<Identity>) -> Result<Server, Failure> {
    let Some(identity) = identity else {
        return bind(config);
    };
    let privileged = config
        .tcp_addresses()
        .any(|(_, address)| (1..1024).contains(&address.port()));
    if !privileged {
        identity.assume(&[])?;
        return bind(config);
    }
    let paths = config.unix_paths().map(|(_, path)| path.to_owned());
    let sockets: Vec<PathBuf> = paths.collect();
    let server = bind(config)?;
    identity.assume(&sockets)?;
    Ok(server)
}

fn bind(config: Config) -> Result<Server, Failure> {
    Server::bind(config).map_err(|error| {
        if error.is_usage() {
            Failure::usage(error)
        } else {
            Failure::start(error)
        }
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

/// A warning if other machines can reach the cache without authentication.
fn open_to_all(config: &Config) -> Option<String> {
    let (protocol, reachable) = config
        .tcp_addresses()
        .find(|(_, address)| !address.ip().to_canonical().is_loopback())?;
    let remedy = if protocol.authenticates() {
        "see --auth-file".into()
    } else {
        format!("the {protocol} protocol has none")
    };
    config.auth_file.is_none().then(|| {
        format!(
            "warning: listening on {reachable} without authentication: any client that \
             reaches it can read and change everything ({remedy})"
        )
    })
}
