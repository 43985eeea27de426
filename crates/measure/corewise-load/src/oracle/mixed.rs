//! `mixed`: all commands with values of random sizes, expiry, `flush_all` and `cache_memlimit`.
//! Each reply is checked against a model of its key.

use std::time::Instant;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use super::model::{Command, Content, Model, Piece, When};
use super::{Fleet, OracleConfig, Reply};
use crate::error::LoadError;
use corewise_measure::draw::{mean_of_spread, mix, spread};

/// Bytes of all keys together, as a multiple of the limit: on a server that evicts, and on one that
/// does not.
const EVICTING_FOOTPRINT: f64 = 3.0;
const REFUSING_FOOTPRINT: f64 = 1.5;
/// One of this many keys is a counter.
const COUNTERS: usize = 8;
/// Initial value of a counter; its number of digits never changes.
const COUNT: u64 = 5_000_000_000;
/// Maximum number of pieces of a value.
const PIECES: usize = 4;
/// Maximum time to live in seconds.
const TTL_S: u32 = 6;
/// Mean time between two flushes, and between two changes of the limit, in milliseconds.
const FLUSH_MS: u64 = 4_000;
const MEMLIMIT_MS: u64 = 1_500;
/// Interval at which the resident set is sampled, and at which every key is read, in milliseconds.
const RSS_MS: u64 = 250;
const SWEEP_MS: u64 = 15_000;

/// Counts of a mixed run. A reply that the model does not allow fails the run instead.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MixedReport {
    /// Keys of all connections.
    pub keys: u64,
    /// Commands that were answered.
    pub commands: u64,
    /// Gets that hit.
    pub hits: u64,
    /// Gets that missed.
    pub misses: u64,
    /// Stores that were acknowledged.
    pub stored: u64,
    /// Commands that the server refused for lack of memory.
    pub refused: u64,
    /// `flush_all` commands between two rounds.
    pub flushes: u64,
    /// `flush_all` commands while other connections were storing.
    pub flushes_beside: u64,
    /// `cache_memlimit` commands.
    pub memlimits: u64,
    /// How often every key was read.
    pub sweeps: u64,
    /// The longest round, in milliseconds.
    pub longest_round_ms: u64,
    /// The largest resident set sampled in the first half, in KiB.
    pub first_half_rss_kib: u64,
    /// The largest resident set sampled in the second half, in KiB.
    pub second_half_rss_kib: u64,
    /// The server's peak resident set, in KiB.
    pub peak_rss_kib: Option<u64>,
    /// Evictions, as the server reports them.
    pub evictions: u64,
    /// Time under load, in milliseconds.
    pub elapsed_ms: u64,
}

/// The commands of one round, by session: key and command.
type Round = Vec<Vec<(usize, Command)>>;

struct Mixed<'a> {
    fleet: &'a mut Fleet,
    /// Models of the keys of each session.
    models: Vec<Vec<Model>>,
    rng: Xoshiro256PlusPlus,
    sizes: (u32, u32),
    evicts: bool,
    writes: u32,
    round: u64,
    start: Instant,
    report: MixedReport,
}

pub(super) fn run(
    config: &OracleConfig,
    fleet: &mut Fleet,
    progress: &mut dyn FnMut(&str),
) -> Result<MixedReport, LoadError> {
    let mut mixed = Mixed::new(config, fleet);
    let end_ms = (config.seconds * 1000.0) as u64;
    // The first flush and change come early, for the sake of short runs.
    let (mut flush, mut memlimit, mut rss, mut sweep) =
        (FLUSH_MS / 4, MEMLIMIT_MS / 4, 0, SWEEP_MS);
    while mixed.now_ms() < end_ms {
        let now = mixed.now_ms();
        let beside = now >= flush && mixed.rng.random_bool(0.5);
        mixed.play(beside)?;
        if now >= flush {
            flush = now + mixed.rng.random_range(1..2 * FLUSH_MS);
            if !beside {
                mixed.flush_alone()?;
            }
        }
        if now >= memlimit {
            memlimit = now + mixed.rng.random_range(1..2 * MEMLIMIT_MS);
            mixed.change_limit(config.limit_bytes >> 20)?;
        }
        if now >= rss {
            rss = now + RSS_MS;
            mixed.note_rss(now < end_ms / 2);
        }
        if now >= sweep {
            sweep = now + SWEEP_MS;
            mixed.ask_all()?;
            progress(&mixed.progress());
        }
        mixed.fleet.verdict()?;
    }
    mixed.ask_all()?;
    mixed.finish()
}

impl<'a> Mixed<'a> {
    fn new(config: &OracleConfig, fleet: &'a mut Fleet) -> Self {
        let sizes = (config.sizes.smallest(), config.sizes.largest());
        let mean = mean_of_spread(sizes.0, sizes.1) + config.key_size as f64;
        let footprint = if config.evicts {
            EVICTING_FOOTPRINT
        } else {
            REFUSING_FOOTPRINT
        };
        let sessions = fleet.sessions.len();
        let keys = config.limit_bytes as f64 * footprint / mean / sessions as f64;
        let keys = (keys as usize).max(2 * COUNTERS);
        Self {
            fleet,
            models: vec![vec![Model::default(); keys]; sessions],
            rng: Xoshiro256PlusPlus::seed_from_u64(mix(config.seed)),
            sizes,
            evicts: config.evicts,
            writes: 0,
            round: 0,
            start: Instant::now(),
            report: MixedReport {
                keys: (keys * sessions) as u64,
                ..MixedReport::default()
            },
        }
    }

    fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Plays one round of random commands, with `flush_all` beside them if `flush`.
    fn play(&mut self, flush: bool) -> Result<(), LoadError> {
        let round: Round = (0..self.models.len())
            .map(|session| {
                let commands = 0..self.fleet.pipeline;
                // A command is chosen by the model at the beginning of the round, which earlier
                // commands of the round may change. The replies are checked against the changed
                // model.
                commands.map(|_| self.draw(session)).collect()
            })
            .collect();
        self.exchange(round, flush)
    }

    /// Draws a key, popular ones more often, and a command for it.
    fn draw(&mut self, session: usize) -> (usize, Command) {
        let unit: f64 = self.rng.random();
        let keys = self.models[session].len();
        let key = ((unit * unit * keys as f64) as usize).min(keys - 1);
        let roll = self.rng.random_range(0..100);
        let command = match key % COUNTERS {
            0 => self.draw_counting(roll),
            _ => self.draw_storing(session, key, roll),
        };
        (key, command)
    }

    fn draw_counting(&mut self, roll: u32) -> Command {
        let by = self.rng.random_range(1..1000);
        match roll {
            0..35 => Command::Incr(by),
            35..60 => Command::Decr(by),
            60..75 => Command::Set(Content::Number(COUNT), self.ttl()),
            75..95 => Command::Get,
            _ => Command::Delete,
        }
    }

    fn draw_storing(&mut self, session: usize, key: usize, roll: u32) -> Command {
        let model = &self.models[session][key];
        let joins = model.pieces() < PIECES;
        // An absent key is stored half of the time, so that the cache fills.
        if !model.may_exist() && roll < 50 {
            return Command::Set(self.content(), self.ttl());
        }
        match roll {
            0..45 => Command::Get,
            45..75 => Command::Set(self.content(), self.ttl()),
            75..80 => Command::Add(self.content(), self.ttl()),
            80..85 => Command::Replace(self.content(), self.ttl()),
            85..88 if joins => Command::Append(self.piece()),
            88..90 if joins => Command::Prepend(self.piece()),
            90..95 => Command::Touch(self.ttl()),
            95..100 => Command::Delete,
            _ => Command::Get,
        }
    }

    fn piece(&mut self) -> Piece {
        self.writes = self.writes.wrapping_add(1);
        Piece {
            write: self.writes,
            len: spread(self.rng.random(), self.sizes.0, self.sizes.1),
        }
    }

    fn content(&mut self) -> Content {
        Content::Pieces(vec![self.piece()])
    }

    /// A time to live; most items have none.
    fn ttl(&mut self) -> u32 {
        match self.rng.random_range(0..4) {
            0 => self.rng.random_range(1..=TTL_S),
            _ => 0,
        }
    }

    /// Sends a round and checks its replies.
    fn exchange(&mut self, round: Round, flush: bool) -> Result<(), LoadError> {
        let started = self.now_ms();
        for (session, commands) in round.iter().enumerate() {
            for (key, command) in commands {
                let name = key_name(session, *key);
                let out = &mut self.fleet.sessions[session].out;
                render(&name, command, &self.fleet.values, out);
            }
            self.fleet.sessions[session].flush()?;
        }
        if flush {
            self.fleet.control.out.extend_from_slice(b"flush_all\r\n");
            self.fleet.control.flush()?;
        }
        for (session, commands) in round.into_iter().enumerate() {
            for (key, command) in commands {
                self.check(session, key, command, started, flush)?;
            }
        }
        if flush {
            let reply = self.fleet.control.reply(b"")?;
            self.flushed(reply)?;
            self.report.flushes_beside += 1;
        }
        self.round += 1;
        let took = self.now_ms() - started;
        self.report.longest_round_ms = self.report.longest_round_ms.max(took);
        Ok(())
    }

    /// Reads and checks the reply to one command. If `flush_all` runs beside it, any item may be
    /// missing.
    fn check(
        &mut self,
        session: usize,
        key: usize,
        command: Command,
        sent_ms: u64,
        flush: bool,
    ) -> Result<(), LoadError> {
        let may_miss = self.evicts || flush;
        let name = key_name(session, key);
        let model = &mut self.models[session][key];
        let when = |start: &Instant| When {
            sent_ms,
            answered_ms: start.elapsed().as_millis() as u64,
            round: self.round,
        };
        let link = &mut self.fleet.sessions[session];
        let verb = verb(&command);
        let verdict = if command == Command::Get {
            let value = link.value(name.as_bytes())?;
            let when = when(&self.start);
            self.report.hits += u64::from(value.is_some());
            self.report.misses += u64::from(value.is_none());
            match value {
                Some(bytes) => model.hit(&self.fleet.values, bytes, when),
                None => model.miss(may_miss, when),
            }
        } else {
            let reply = link.reply(name.as_bytes())?;
            self.report.stored += u64::from(reply == Reply::Stored);
            self.report.refused += u64::from(reply == Reply::NoMemory);
            model.answered(command, &reply, may_miss, when(&self.start))
        };
        self.report.commands += 1;
        if let Err(text) = verdict {
            self.fleet.mismatch(format!("{verb} {name}: {text}"));
        }
        Ok(())
    }

    /// Sends `flush_all` while no other request is outstanding.
    fn flush_alone(&mut self) -> Result<(), LoadError> {
        let reply = self.fleet.control.ask("flush_all")?;
        self.report.flushes += 1;
        self.flushed(reply)?;
        self.round += 1;
        Ok(())
    }

    fn flushed(&mut self, reply: Reply) -> Result<(), LoadError> {
        if reply != Reply::Ok {
            return Err(self.fleet.control.wrong(format!("{reply:?} to flush_all")));
        }
        let round = self.round;
        let models = self.models.iter_mut().flatten();
        models.for_each(|model| model.flushed(round));
        Ok(())
    }

    /// Sets the limit to a random value between half of `most` and `most`.
    fn change_limit(&mut self, most: u64) -> Result<(), LoadError> {
        let limit = self.rng.random_range((most / 2).max(1)..=most);
        match self.fleet.control.ask(&format!("cache_memlimit {limit}"))? {
            Reply::Ok => self.report.memlimits += 1,
            other => {
                let text = format!("{other:?} to cache_memlimit");
                return Err(self.fleet.control.wrong(text));
            }
        }
        Ok(())
    }

    /// Reads every key.
    fn ask_all(&mut self) -> Result<(), LoadError> {
        let (keys, batch) = (self.models[0].len(), self.fleet.pipeline as usize);
        for first in (0..keys).step_by(batch) {
            let ask = || {
                (first..keys.min(first + batch))
                    .map(|key| (key, Command::Get))
                    .collect()
            };
            let round = self.models.iter().map(|_| ask()).collect();
            self.exchange(round, false)?;
        }
        self.report.sweeps += 1;
        Ok(())
    }

    fn note_rss(&mut self, first_half: bool) {
        let kib = self.fleet.status_kib("VmRSS").unwrap_or(0);
        let largest = if first_half {
            &mut self.report.first_half_rss_kib
        } else {
            &mut self.report.second_half_rss_kib
        };
        *largest = kib.max(*largest);
    }

    fn progress(&self) -> String {
        let r = &self.report;
        format!(
            "{} s: {} commands, {} hits, {} misses, {} refused, {} flushes, resident {} KiB",
            self.now_ms() / 1000,
            r.commands,
            r.hits,
            r.misses,
            r.refused,
            r.flushes + r.flushes_beside,
            r.second_half_rss_kib.max(r.first_half_rss_kib)
        )
    }

    fn finish(mut self) -> Result<MixedReport, LoadError> {
        self.report.elapsed_ms = self.now_ms();
        self.report.peak_rss_kib = self.fleet.status_kib("VmHWM");
        self.report.evictions = self.fleet.sample(0)?.evictions;
        Ok(self.report)
    }
}

/// Each session has its own keys, so that one connection sends all commands for a key.
fn key_name(session: usize, key: usize) -> String {
    format!("m{session}:{key}")
}

/// The name of a command.
fn verb(command: &Command) -> &'static str {
    match command {
        Command::Get => "get",
        Command::Set(..) => "set",
        Command::Add(..) => "add",
        Command::Replace(..) => "replace",
        Command::Append(_) => "append",
        Command::Prepend(_) => "prepend",
        Command::Delete => "delete",
        Command::Touch(_) => "touch",
        Command::Incr(_) => "incr",
        Command::Decr(_) => "decr",
    }
}

/// Appends the request.
fn render(key: &str, command: &Command, values: &crate::value::Values, out: &mut Vec<u8>) {
    let verb = verb(command);
    let mut store = |content: &Content, ttl: u32| {
        let line = format!("{verb} {key} 0 {ttl} {}\r\n", content.len());
        out.extend_from_slice(line.as_bytes());
        content.render(values, out);
        out.extend_from_slice(b"\r\n");
    };
    let number = match command {
        Command::Set(content, ttl)
        | Command::Add(content, ttl)
        | Command::Replace(content, ttl) => {
            return store(content, *ttl);
        }
        Command::Append(piece) | Command::Prepend(piece) => {
            return store(&Content::Pieces(vec![*piece]), 0);
        }
        Command::Get | Command::Delete => String::new(),
        Command::Touch(ttl) => format!(" {ttl}"),
        Command::Incr(by) | Command::Decr(by) => format!(" {by}"),
    };
    let line = format!("{verb} {key}{number}\r\n");
    out.extend_from_slice(line.as_bytes());
}
