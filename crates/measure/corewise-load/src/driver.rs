//! The event loop of one client thread for one target.
//!
//! Each thread has a separate poll for each target, so connections of targets whose slice it is not
//! cost nothing. Work ends drained: no request is outstanding when [`Driver::run`] returns. So the
//! counts and the CPU time of a slice belong together.

use std::io;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

use crate::codec::Codec;
use crate::config::{Address, Arrivals};
use crate::conn::{Conn, Fault};
use corewise_measure::draw::Scramble;

use crate::keys::KeyStream;
use crate::load_stats::LoadStats;
use crate::player::Player;
use crate::schedule::{Schedule, Stagger, Timer};

/// Size in bytes of a driver's shared read buffer; must exceed the longest line.
const READ_BYTES: usize = 256 << 10;
/// Maximum number of events taken from the kernel at once.
const EVENTS: usize = 256;
/// The driver spins for shorter waits than this, and sleeps on the timer for longer ones.
const SPIN_BELOW_NS: u64 = 50_000;
/// Maximum sleep in a poll.
const NAP: Duration = Duration::from_millis(100);
/// The timer's token; connections count from zero.
const TIMER: Token = Token(usize::MAX - 1);

/// The work of a driver.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Store every key of the permuted range `next..end`, in batches.
    Prefill {
        next: u64,
        end: u64,
        keys: u64,
        batch: u32,
    },
    /// Closed loop with batches of `pipeline` requests, until `ns` have passed.
    Closed { ns: u64, pipeline: u32 },
    /// Open loop for `ns`.
    Open {
        ns: u64,
        rate: f64,
        arrivals: Arrivals,
        max_outstanding: usize,
    },
}

pub(crate) struct Driver {
    poll: Poll,
    events: Events,
    timer: Timer,
    net: Net,
}

/// The connections and their shared state.
struct Net {
    conns: Vec<Conn>,
    codec: Codec,
    buf: Vec<u8>,
    epoch: Instant,
    stats: LoadStats,
    /// Connections with requests outstanding.
    busy: usize,
    last_reply: u64,
    timeout_ns: u64,
}

/// The source of the closed loop's requests.
enum Feed<'a> {
    Mix {
        stream: &'a mut KeyStream,
        until: u64,
        pipeline: u32,
    },
    Prefill {
        next: u64,
        end: u64,
        order: Scramble,
        batch: u32,
    },
}

impl Driver {
    /// Opens `conns` connections, one after another.
    pub(crate) fn connect(
        address: &Address,
        codec: Codec,
        conns: usize,
        timeout_ms: u64,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let timer = Timer::new(poll.registry(), TIMER)?;
        let conns = (0..conns)
            .map(|i| Conn::open(address, poll.registry(), Token(i)))
            .collect::<io::Result<Vec<_>>>()?;
        let net = Net {
            conns,
            codec,
            buf: vec![0; READ_BYTES],
            epoch: Instant::now(),
            stats: LoadStats::new(),
            busy: 0,
            last_reply: 0,
            timeout_ns: timeout_ms * 1_000_000,
        };
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS),
            timer,
            net,
        })
    }

    /// Executes the work and waits for the last reply.
    pub(crate) fn run(&mut self, work: &Work, stream: &mut KeyStream) -> Result<LoadStats, Fault> {
        self.net.stats = LoadStats::new();
        let start = self.net.now();
        self.net.last_reply = start;
        match *work {
            Work::Prefill {
                next,
                end,
                keys,
                batch,
            } => {
                let stagger = Stagger::new(self.net.conns.len(), start, 0, stream.rng());
                let order = Scramble::new(keys);
                self.closed(
                    stagger,
                    &mut Feed::Prefill {
                        next,
                        end,
                        order,
                        batch,
                    },
                )?;
            }
            Work::Closed { ns, pipeline } => {
                let stagger = Stagger::new(self.net.conns.len(), start, ns, stream.rng());
                let until = start + ns;
                self.closed(
                    stagger,
                    &mut Feed::Mix {
                        stream,
                        until,
                        pipeline,
                    },
                )?;
            }
            Work::Open {
                ns,
                rate,
                arrivals,
                max_outstanding,
            } => {
                let conns = self.net.conns.len();
                let schedule = Schedule::new(rate, arrivals, start, conns, stream.rng());
                self.open(schedule, start + ns, max_outstanding, stream)?;
            }
        }
        Ok(self.net.finish(start))
    }

    /// Each connection sends its next batch when its last one is answered.
    fn closed(&mut self, mut stagger: Stagger, feed: &mut Feed<'_>) -> Result<(), Fault> {
        loop {
            if !stagger.done() {
                let now = self.net.now();
                while let Some(conn) = stagger.due(now) {
                    self.net.refill(conn, now, feed, &self.poll)?;
                }
            } else if self.net.busy == 0 {
                return Ok(());
            }
            let wait = if stagger.done() { NAP } else { Duration::ZERO };
            wait_for(&mut self.poll, &mut self.events, wait)?;
            if self.events.is_empty() {
                self.net.check_stall()?;
            }
            for event in &self.events {
                let Token(conn) = event.token();
                if conn >= self.net.conns.len() {
                    continue;
                }
                if event.is_writable() {
                    self.net.flush(conn, &self.poll)?;
                }
                if let Some(now) = self.net.receive(conn)?
                    && self.net.conns[conn].is_idle()
                {
                    self.net.refill(conn, now, feed, &self.poll)?;
                }
            }
        }
    }

    /// Replays a stretch of a trace: an idle connection takes the next requests that are due.
    pub(crate) fn replay(&mut self, player: &mut Player) -> Result<LoadStats, Fault> {
        self.net.stats = LoadStats::new();
        let start = self.net.now();
        self.net.last_reply = start;
        let mut idle: Vec<usize> = (0..self.net.conns.len()).collect();
        loop {
            while let Some(conn) = idle.pop() {
                if !self.net.load(conn, player, &self.poll)? {
                    idle.push(conn);
                    break;
                }
            }
            let next = player.next_at(self.net.now());
            if next.is_none() && self.net.busy == 0 {
                break;
            }
            self.sleep_until(next.filter(|_| !idle.is_empty()))?;
            for event in &self.events {
                let Token(conn) = event.token();
                if conn >= self.net.conns.len() {
                    continue;
                }
                if event.is_writable() {
                    self.net.flush(conn, &self.poll)?;
                }
                if self.net.receive(conn)?.is_some()
                    && self.net.conns[conn].is_idle()
                    && !self.net.load(conn, player, &self.poll)?
                {
                    idle.push(conn);
                }
            }
        }
        Ok(self.net.finish(start))
    }

    /// Requests are sent when they are due, whether or not earlier ones have been answered.
    fn open(
        &mut self,
        mut schedule: Schedule,
        end: u64,
        max_outstanding: usize,
        stream: &mut KeyStream,
    ) -> Result<(), Fault> {
        let mut dirty: Vec<(usize, u64)> = Vec::new();
        loop {
            let now = self.net.now();
            while schedule.next_at() <= now && schedule.next_at() < end {
                let at = schedule.next_at();
                let conn = schedule.take(stream.rng());
                if self.net.arrive(conn, at, max_outstanding, stream) {
                    dirty.push((conn, at));
                }
            }
            self.net.send(&mut dirty, &self.poll)?;
            let next = schedule.next_at();
            if next >= end && self.net.busy == 0 {
                return Ok(());
            }
            self.sleep_until(if next < end { Some(next) } else { None })?;
            for event in &self.events {
                let Token(conn) = event.token();
                if conn >= self.net.conns.len() {
                    continue;
                }
                if event.is_writable() {
                    self.net.flush(conn, &self.poll)?;
                }
                self.net.receive(conn)?;
            }
        }
    }

    /// Waits for an event or for the time `at`.
    fn sleep_until(&mut self, at: Option<u64>) -> Result<(), Fault> {
        let wait = match at.map(|at| at.saturating_sub(self.net.now())) {
            Some(ns) if ns < SPIN_BELOW_NS => Duration::ZERO,
            Some(ns) => {
                let early = Duration::from_nanos(ns - SPIN_BELOW_NS / 2);
                self.timer.arm(early).map_err(|e| Fault::Io("timer", e))?;
                NAP
            }
            None => NAP,
        };
        wait_for(&mut self.poll, &mut self.events, wait)?;
        if self.events.is_empty() {
            self.net.check_stall()
        } else {
            Ok(())
        }
    }
}

fn wait_for(poll: &mut Poll, events: &mut Events, wait: Duration) -> Result<(), Fault> {
    match poll.poll(events, Some(wait)) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(Fault::Io("poll", e)),
        _ => Ok(()),
    }
}

impl Net {
    #[inline]
    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Sends the next batch, if there is one.
    fn refill(
        &mut self,
        conn: usize,
        now: u64,
        feed: &mut Feed<'_>,
        poll: &Poll,
    ) -> Result<(), Fault> {
        let conn = &mut self.conns[conn];
        match feed {
            Feed::Mix {
                stream,
                until,
                pipeline,
            } if now < *until => {
                for _ in 0..*pipeline {
                    conn.push_next(&self.codec, stream, now);
                }
            }
            Feed::Prefill {
                next,
                end,
                order,
                batch,
            } if *next < *end => {
                let stop = (*next + u64::from(*batch)).min(*end);
                for key in *next..stop {
                    conn.push_set(&self.codec, order.apply(key) as u32, now);
                }
                *next = stop;
            }
            _ => return Ok(()),
        }
        self.busy += 1;
        conn.flush(&self.codec, poll.registry())
    }

    /// Sends the next batch of a trace, if any request is due.
    fn load(&mut self, conn: usize, player: &mut Player, poll: &Poll) -> Result<bool, Fault> {
        let now = self.now();
        let conn = &mut self.conns[conn];
        if !player.load(conn, &self.codec, now, &mut self.stats) {
            return Ok(false);
        }
        if self.busy == 0 {
            // No reply was expected until now.
            self.last_reply = now;
        }
        self.busy += 1;
        conn.flush(&self.codec, poll.registry())?;
        Ok(true)
    }

    /// The counts since `start`.
    fn finish(&mut self, start: u64) -> LoadStats {
        self.stats.flush();
        self.stats.elapsed_ns = self.last_reply.saturating_sub(start).max(1);
        std::mem::replace(&mut self.stats, LoadStats::new())
    }

    /// Prepares a request of the open loop. Returns whether it may be sent.
    fn arrive(&mut self, conn: usize, at: u64, limit: usize, stream: &mut KeyStream) -> bool {
        let conn = &mut self.conns[conn];
        if conn.pending.requests.len() >= limit {
            self.stats.overload += 1;
            return false;
        }
        self.busy += usize::from(conn.is_idle());
        conn.push_next(&self.codec, stream, at);
        true
    }

    /// Writes prepared requests, and records how late they are.
    fn send(&mut self, dirty: &mut Vec<(usize, u64)>, poll: &Poll) -> Result<(), Fault> {
        for (conn, at) in dirty.drain(..) {
            let late = self.now().saturating_sub(at);
            self.stats.lag.saturating_record(late);
            self.flush(conn, poll)?;
        }
        Ok(())
    }

    /// Sends the prepared requests of `conn`.
    fn flush(&mut self, conn: usize, poll: &Poll) -> Result<(), Fault> {
        self.conns[conn].flush(&self.codec, poll.registry())
    }

    /// Reads the replies of `conn`. Returns the time of the last read, if there were any.
    fn receive(&mut self, conn: usize) -> Result<Option<u64>, Fault> {
        let conn = &mut self.conns[conn];
        let was_idle = conn.is_idle();
        let epoch = self.epoch;
        let clock = || epoch.elapsed().as_nanos() as u64;
        let now = conn.receive(&self.codec, &mut self.buf, clock, &mut self.stats)?;
        if let Some(now) = now {
            self.last_reply = now;
            self.busy -= usize::from(!was_idle && conn.is_idle());
        }
        Ok(now)
    }

    /// Fails if requests are outstanding and no reply has arrived for too long.
    fn check_stall(&self) -> Result<(), Fault> {
        if self.busy == 0 || self.now() - self.last_reply < self.timeout_ns {
            return Ok(());
        }
        let outstanding = self
            .conns
            .iter()
            .map(|c| c.pending.requests.len() as u64)
            .sum();
        Err(Fault::Stall { outstanding })
    }
}
