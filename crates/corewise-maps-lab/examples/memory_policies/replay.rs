//! Traces packed for many replays, and the interface of a memory manager under test.

use corewise_measure::trace::{Kind, Trace, TraceConfig};

/// Length of every key.
pub(crate) const KEY_BYTES: u32 = 12;

/// One request in 12 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) key: u32,
    pub(crate) value_bytes: u32,
    pub(crate) ttl_s: u16,
    pub(crate) overwrite: bool,
}

impl Request {
    /// Bytes of key and value.
    pub(crate) fn bytes(&self) -> u32 {
        KEY_BYTES + self.value_bytes
    }
}

/// Virtual time: the number of the request, and milliseconds.
#[derive(Clone, Copy)]
pub(crate) struct Now {
    pub(crate) request: u32,
    pub(crate) ms: u32,
}

impl Now {
    /// The deadline of an item stored now with this time to live; 0 means never.
    pub(crate) fn deadline(self, ttl_s: u16) -> u32 {
        match ttl_s {
            0 => 0,
            ttl => self.ms + u32::from(ttl) * 1000,
        }
    }
}

/// Whether a deadline has passed.
pub(crate) fn expired(deadline: u32, now: Now) -> bool {
    deadline != 0 && deadline <= now.ms
}

/// The work that a memory manager has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Bytes of items moved in memory, headers included.
    pub(crate) copied_bytes: u64,
    /// Items stored by the client.
    pub(crate) stores: u64,
    /// Bytes of items stored by the client, headers included.
    pub(crate) stored_bytes: u64,
    /// The most segments one store had to reclaim (pages moved, for classes).
    pub(crate) longest_reclaim: u32,
    /// The most bytes of segments or pages in use.
    pub(crate) peak_bytes: u64,
    /// Items examined in search of expired ones.
    pub(crate) swept_items: u64,
}

/// A cache under test.
pub(crate) trait Cache {
    /// Whether the key is present. Records the request.
    fn fetch(&mut self, request: &Request, now: Now) -> bool;
    /// Stores the item, evicting others if necessary.
    fn store(&mut self, request: &Request, now: Now);
    /// Removes expired items; called once per virtual second.
    fn tick(&mut self, now: Now);
    /// Key and value bytes that a client could still read.
    fn live_bytes(&self, now: Now) -> u64;
    /// The work done so far.
    fn work(&self) -> Work;
}

/// A whole trace.
pub(crate) struct Tape {
    pub(crate) requests: Vec<Request>,
    pub(crate) key_bound: usize,
    keys: u64,
    rate_per_s: u64,
}

/// The results of a replay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) miss_ratio: f64,
    /// Mean over the second half of the trace.
    pub(crate) live_bytes: f64,
    pub(crate) work: Work,
}

impl Tape {
    pub(crate) fn record(config: TraceConfig) -> Self {
        let pack = |r: corewise_measure::trace::Request| Request {
            key: r.key as u32,
            value_bytes: r.value_bytes,
            ttl_s: (r.ttl_ms / 1000) as u16,
            overwrite: r.kind == Kind::Overwrite,
        };
        Self {
            requests: Trace::new(config).map(pack).collect(),
            key_bound: config.key_bound() as usize,
            keys: config.keys,
            rate_per_s: config.rate_per_s,
        }
    }

    fn now(&self, at: usize) -> Now {
        Now {
            request: at as u32,
            ms: (at as u64 * 1000 / self.rate_per_s) as u32,
        }
    }

    /// The most key and value bytes that are worth keeping at a time: the peak of a cache without a
    /// limit, without scanned keys and keys of former phases.
    pub(crate) fn footprint(&self, scans: bool, phases: bool) -> u64 {
        let mut deadlines = vec![u32::MAX; self.key_bound];
        let mut ends: Vec<u64> = vec![0; self.requests.len() / self.rate_per_s as usize + 70_000];
        let (mut live, mut peak, mut phase, mut second) = (0u64, 0u64, 0, 0);
        for (at, request) in self.requests.iter().enumerate() {
            let (key, now) = (u64::from(request.key), self.now(at));
            while second < now.ms / 1000 {
                live -= ends[second as usize];
                second += 1;
            }
            if scans && key >= self.keys {
                continue;
            }
            if phases && key / self.keys != phase {
                (phase, live) = (key / self.keys, 0);
            }
            let deadline = &mut deadlines[request.key as usize];
            if *deadline == u32::MAX || expired(*deadline, now) {
                *deadline = now.deadline(request.ttl_s);
                live += u64::from(request.bytes());
                if *deadline != 0 {
                    ends[*deadline as usize / 1000] += u64::from(request.bytes());
                }
                peak = peak.max(live);
            }
        }
        peak
    }

    /// Replays cache-aside; the first fifth warms up and is not counted.
    pub(crate) fn replay(&self, cache: &mut dyn Cache) -> Measured {
        let (warm, half) = (self.requests.len() / 5, self.requests.len() / 2);
        let sample = (self.requests.len() / 20).max(1);
        let (mut fetches, mut misses, mut samples, mut live) = (0u64, 0u64, 0u32, 0f64);
        let mut second = 0;
        for (at, request) in self.requests.iter().enumerate() {
            let now = self.now(at);
            if now.ms / 1000 != second {
                second = now.ms / 1000;
                cache.tick(now);
            }
            let hit = !request.overwrite && cache.fetch(request, now);
            if !hit {
                cache.store(request, now);
            }
            if at >= warm && !request.overwrite {
                fetches += 1;
                misses += u64::from(!hit);
            }
            if at >= half && at % sample == 0 {
                samples += 1;
                live += cache.live_bytes(now) as f64;
            }
        }
        Measured {
            miss_ratio: misses as f64 / fetches.max(1) as f64,
            live_bytes: live / f64::from(samples.max(1)),
            work: cache.work(),
        }
    }
}
