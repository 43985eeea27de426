//! Generates the requests of a replay: those of a trace in order, or a get of every stored key.

use std::iter::Peekable;

use corewise_measure::trace::{RequestKind, Trace, TraceRequest};

use crate::codec::Codec;
use crate::config::ReplayConfig;
use crate::conn::Conn;
use crate::load_stats::LoadStats;

/// Takes requests from the trace and records what it stored. It does no I/O.
pub(crate) struct Player {
    trace: Peekable<Trace>,
    /// Requests taken.
    taken: u64,
    /// The stretch ends before this request.
    until: u64,
    pipeline: u32,
    /// Nanoseconds between two requests, if they wait for their virtual times.
    gap_ns: Option<f64>,
    /// When the first request was due.
    start: Option<u64>,
    stored: Stored,
    /// The next key to read at the end; keys that miss are not stored then.
    reading: Option<u32>,
}

/// The sets that were sent, and their keys.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub(crate) sets: u64,
    /// Bytes of keys and values.
    pub(crate) bytes: u64,
    bits: Vec<u64>,
}

impl Stored {
    fn add(&mut self, codec: &Codec, key: u32) {
        self.sets += 1;
        self.bytes += codec.bytes(key);
        let word = key as usize / 64;
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= 1 << (key % 64);
    }

    /// The first stored key that is not less than `key`.
    fn next(&self, key: u32) -> Option<u32> {
        let mut word = key as usize / 64;
        let mut bits = self.bits.get(word)? & (u64::MAX << (key % 64));
        while bits == 0 {
            word += 1;
            bits = *self.bits.get(word)?;
        }
        Some(word as u32 * 64 + bits.trailing_zeros())
    }
}

impl Player {
    pub(crate) fn new(config: &ReplayConfig) -> Self {
        let gap_ns = 1e9 / config.trace.rate_per_s as f64;
        Self {
            trace: Trace::new(config.trace).peekable(),
            taken: 0,
            until: 0,
            pipeline: config.pipeline,
            gap_ns: config.paced.then_some(gap_ns),
            start: None,
            stored: Stored::default(),
            reading: None,
        }
    }

    /// Ends the stretch before request number `until`.
    pub(crate) fn play_until(&mut self, until: u64) {
        self.until = until;
    }

    /// The sets and bytes so far.
    pub(crate) fn stored(&self) -> (u64, u64) {
        (self.stored.sets, self.stored.bytes)
    }

    /// From now on, reads every stored key once, in the order of keys.
    pub(crate) fn read_back(&mut self) {
        self.reading = Some(0);
    }

    /// When the next request is due; `None` at the end of the stretch. A request that need not wait
    /// is due at 0.
    pub(crate) fn next_at(&mut self, now: u64) -> Option<u64> {
        if let Some(key) = self.reading {
            return self.stored.next(key).map(|_| 0);
        }
        if self.taken == self.until || self.trace.peek().is_none() {
            return None;
        }
        let start = *self.start.get_or_insert(now);
        let due = |gap: f64| start + (self.taken as f64 * gap) as u64;
        Some(self.gap_ns.map_or(0, due))
    }

    /// Prepares the next batch of an idle connection: sets of the keys that its last batch missed,
    /// then requests that are due. Returns whether there were any.
    pub(crate) fn load(
        &mut self,
        conn: &mut Conn,
        codec: &Codec,
        now: u64,
        stats: &mut LoadStats,
    ) -> bool {
        let missed = std::mem::take(&mut conn.pending.missed);
        if self.reading.is_none() {
            for &key in &missed {
                self.stored.add(codec, key);
                conn.push_set(codec, key, now);
            }
        }
        for _ in 0..self.pipeline {
            match self.next_at(now) {
                Some(due) if due <= now => self.push(conn, codec, now, due, stats),
                _ => break,
            }
        }
        !conn.is_idle()
    }

    /// Prepares the next request, which must exist.
    fn push(&mut self, conn: &mut Conn, codec: &Codec, now: u64, due: u64, stats: &mut LoadStats) {
        if let Some(key) = self.reading {
            if let Some(key) = self.stored.next(key) {
                self.reading = Some(key + 1);
                conn.push_get(codec, key, now);
            }
            return;
        }
        let Some(TraceRequest { key, kind, .. }) = self.trace.next() else {
            return;
        };
        let (key, mut at) = (key as u32, now);
        self.taken += 1;
        if self.gap_ns.is_some() {
            at = due;
            stats.lag.saturating_record(now - due);
        }
        match kind {
            RequestKind::Fetch => conn.push_get(codec, key, at),
            RequestKind::Overwrite => {
                self.stored.add(codec, key);
                conn.push_set(codec, key, at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn player(paced: bool) -> Player {
        let mut config = ReplayConfig {
            paced,
            ..ReplayConfig::default()
        };
        config.trace.rate_per_s = 1000;
        config.trace.requests = 10;
        Player::new(&config)
    }

    #[test]
    fn stored_keys_are_found_again_in_order() {
        let codec = Codec::for_trace(&ReplayConfig::default());
        let mut stored = Stored::default();
        let keys = [0, 1, 63, 64, 700, 6_400];
        keys.iter().for_each(|&key| stored.add(&codec, key));
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(key) = stored.next(at) {
            found.push(key);
            at = key + 1;
        }
        assert_eq!(found, keys);
        let bytes: u64 = keys.iter().map(|&key| codec.bytes(key)).sum();
        assert_eq!((stored.sets, stored.bytes), (6, bytes));
        assert_eq!(Stored::default().next(0), None);
    }

    #[test]
    fn a_stretch_ends_where_it_was_told() {
        let mut player = player(false);
        assert_eq!(player.next_at(5), None);
        player.play_until(10);
        assert_eq!(player.next_at(5), Some(0));
        player.taken = 10;
        assert_eq!(player.next_at(5), None);
    }

    #[test]
    fn a_paced_request_is_due_at_its_virtual_time() {
        let mut player = player(true);
        player.play_until(10);
        assert_eq!(player.next_at(7_000), Some(7_000));
        player.taken = 3;
        assert_eq!(player.next_at(9_000), Some(3_007_000));
    }
}
