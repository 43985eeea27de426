//! Replays a generated cache trace against a server, cache-aside.
//!
//! A get that misses is followed by a set of the value, with the trace's size and time to live. Any
//! idle connection takes the next requests of the trace, up to `pipeline` at a time. What a batch
//! missed is stored at the start of the connection's next batch. So requests overtake each other by
//! at most `connections * pipeline`, and a key that is read again within that window misses again,
//! on every server alike.
//!
//! With a rate, requests are due at the trace's virtual times, even if the server is late. Without
//! a rate, the trace runs as fast as the server answers; this is refused for traces with times to
//! live.
//!
//! Guarantees: (1) every byte of every hit is compared; (2) counts belong to drained stretches: no
//! request is outstanding between two tenths of the trace; (3) a set for which the server has no
//! memory is counted and is not an error; (4) memory is bounded by what the connections hold and
//! one bit for each key of the trace.

mod report;

use crate::clients::{name, pin};
use crate::codec::Codec;
use crate::config::ReplayConfig;
use crate::driver::Driver;
use crate::error::LoadError;
use crate::load_stats::LoadStats;
use crate::player::Player;
use crate::probe::identify;
use crate::slices::check;
use corewise_measure::machine::{Machine, Memory};

pub use report::{LiveBytes, ReplayReport};

/// Number of parts of a trace that are counted separately.
pub(crate) const TENTHS: u64 = 10;

/// Replays the trace and returns the report. `progress` gets a line after each tenth.
///
/// # Errors
///
/// [`LoadError::Config`] before anything is started; any other error later. A wrong reply ends the
/// replay: at once if the stream can no longer be followed, otherwise at the end of its tenth.
pub fn replay(
    config: &ReplayConfig,
    progress: &mut dyn FnMut(&str),
) -> Result<ReplayReport, LoadError> {
    config.validate()?;
    corewise_measure::machine::raise_file_limit();
    let identity = identify(&config.target)?;
    pin(&config.pin, 0)?;
    let address = config.target.address.to_string();
    let codec = Codec::for_trace(config);
    let conns = config.connections as usize;
    let mut driver = Driver::connect(
        &config.target.address,
        codec,
        conns,
        config.reply_timeout_ms,
    )
    .map_err(|source| LoadError::Connect {
        target: address.clone(),
        source,
    })?;
    let mut player = Player::new(config);
    let mut run = |player: &mut Player| -> Result<LoadStats, LoadError> {
        let stats = driver
            .replay(player)
            .map_err(|fault| name(fault, &address, config.reply_timeout_ms))?;
        check(&address, &stats)?;
        Ok(stats)
    };
    let mut tenths = Vec::new();
    for tenth in 1..=TENTHS {
        player.play_until(config.trace.requests * tenth / TENTHS);
        tenths.push(run(&mut player)?);
        progress(&report::progress(tenth, &tenths));
    }
    let memory = config.target.pid.map(Memory::of).unwrap_or_default();
    let stored = player.stored();
    let live = if config.read_back {
        progress("asking for every key that was stored");
        player.read_back();
        Some(run(&mut player)?)
    } else {
        None
    };
    let machine = Machine::look();
    Ok(ReplayReport::new(
        config,
        machine,
        identity,
        memory,
        &tenths,
        stored,
        live.as_ref(),
    ))
}
