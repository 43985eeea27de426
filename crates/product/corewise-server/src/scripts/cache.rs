//! The scripts that all loops know.

use super::run_state::{Kill, RunState};
use super::{Limits, sha1};
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::{AtomicUsize, Ordering};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The most scripts of the cache.
pub(crate) const MAX_SCRIPTS: usize = 4_096;
/// The most bytes of their texts. A longer one is run and not kept.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// The SHA-1 of a script in lower-case hexadecimal digits.
pub(crate) type Digest = [u8; 40];

/// The digest that a client means; `None` if it has another length.
pub(crate) fn digest(text: &[u8]) -> Option<Digest> {
    <Digest>::try_from(text.to_ascii_lowercase()).ok()
}

/// A script that clients have sent.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) digest: Digest,
    pub(crate) text: Vec<u8>,
    /// It begins with `#!`.
    pub(crate) has_shebang: bool,
    /// It has declared that it does not write.
    pub(crate) is_read_only: bool,
}

impl Script {
    /// Reads the first line of a script; returns the error text if it is wrong.
    pub(crate) fn parse(digest: Digest, text: &[u8]) -> Result<Self, String> {
        let mut script = Self {
            digest,
            text: text.to_vec(),
            has_shebang: text.starts_with(b"#!"),
            is_read_only: false,
        };
        if !script.has_shebang {
            return Ok(script);
        }
        let Some(end) = memchr::memchr(b'\n', text) else {
            return Err("ERR Invalid script shebang".into());
        };
        let line = String::from_utf8_lossy(&text[..end]);
        let mut words = line.split_ascii_whitespace();
        let engine = words.next().unwrap_or("");
        if engine != "#!lua" {
            return Err(format!("ERR Unexpected engine in script shebang: {engine}"));
        }
        for word in words {
            let Some(flags) = word.strip_prefix("flags=") else {
                return Err(format!("ERR Unknown lua shebang option: {word}"));
            };
            for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
                match flag {
                    "no-writes" => script.is_read_only = true,
                    "allow-oom" | "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                    _ => return Err(format!("ERR Unexpected flag in script shebang: {flag}")),
                }
            }
        }
        Ok(script)
    }

    /// What Lua compiles: the lines behind the first keep their numbers.
    pub(super) fn body(&self) -> &[u8] {
        let skipped = match self.has_shebang {
            true => memchr::memchr(b'\n', &self.text).unwrap_or(0),
            false => 0,
        };
        &self.text[skipped..]
    }
}

#[derive(Default)]
struct Cache {
    /// With the time of their last use.
    scripts: HashMap<Digest, (Arc<Script>, u64)>,
    /// The scripts by the time of their last use.
    by_use: BTreeMap<u64, Digest>,
    bytes: usize,
    uses: u64,
}

impl Cache {
    fn find(&mut self, digest: &Digest) -> Option<Arc<Script>> {
        self.uses += 1;
        let (script, last) = self.scripts.get_mut(digest)?;
        self.by_use.remove(last);
        *last = self.uses;
        self.by_use.insert(self.uses, *digest);
        Some(Arc::clone(script))
    }

    fn remove_oldest(&mut self) {
        if let Some((_, digest)) = self.by_use.pop_first()
            && let Some((script, _)) = self.scripts.remove(&digest)
        {
            self.bytes -= script.text.len();
        }
    }
}

/// What all loops share of scripts.
pub(crate) struct Scripts {
    cache: Mutex<Cache>,
    /// How often they were all forgotten.
    flushes: AtomicUsize,
    states: Vec<Arc<RunState>>,
    pub(crate) limits: Limits,
}

impl Scripts {
    /// The state of a server with this number of loops.
    pub(crate) fn new(loops: usize, limits: Limits) -> Self {
        Self {
            cache: Mutex::default(),
            flushes: AtomicUsize::new(0),
            states: (0..loops).map(|_| Arc::default()).collect(),
            limits,
        }
    }

    /// What a loop does.
    pub(crate) fn run_state(&self, loop_index: usize) -> Arc<RunState> {
        self.states
            .get(loop_index)
            .map_or_else(Arc::default, Arc::clone)
    }

    /// The script of this digest.
    pub(crate) fn find(&self, digest: &Digest) -> Option<Arc<Script>> {
        self.cache.lock().find(digest)
    }

    /// The script with this text, which is kept if it is new.
    pub(crate) fn find_or_parse(&self, text: &[u8]) -> Result<Arc<Script>, String> {
        let digest = sha1::hex(text);
        if let Some(script) = self.find(&digest) {
            return Ok(script);
        }
        Script::parse(digest, text).map(Arc::new)
    }

    /// Keeps a script that has been compiled, in the place of those that were not used for longest.
    pub(crate) fn keep(&self, script: &Arc<Script>) {
        let len = script.text.len();
        let mut cache = self.cache.lock();
        if len > MAX_BYTES || cache.scripts.contains_key(&script.digest) {
            return;
        }
        while cache.scripts.len() >= MAX_SCRIPTS || cache.bytes + len > MAX_BYTES {
            cache.remove_oldest();
        }
        cache.uses += 1;
        cache.bytes += len;
        let entry = (Arc::clone(script), cache.uses);
        let uses = cache.uses;
        cache.by_use.insert(uses, script.digest);
        cache.scripts.insert(script.digest, entry);
    }

    /// The number of scripts that are kept, and the bytes of their texts.
    pub(crate) fn size(&self) -> (u64, u64) {
        let cache = self.cache.lock();
        (cache.scripts.len() as u64, cache.bytes as u64)
    }

    /// Forgets all scripts. Each loop forgets those that it has compiled before its next one.
    pub(crate) fn flush(&self) {
        *self.cache.lock() = Cache::default();
        // Relaxed: a loop that sees it late compiles or runs a script as it would otherwise.
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    /// How often all scripts were forgotten.
    pub(super) fn flushes(&self) -> usize {
        // Relaxed: see `flush`.
        self.flushes.load(Ordering::Relaxed)
    }

    /// Ends a script that runs on another loop, one that does not end already if there is one.
    pub(crate) fn kill(&self, own_loop: usize) -> Kill {
        let others = self
            .states
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != own_loop);
        let mut result = Kill::NothingRuns;
        for (_, state) in others {
            match state.kill() {
                Kill::Done => return Kill::Done,
                Kill::HasWritten => result = Kill::HasWritten,
                Kill::WasKilled if result == Kill::NothingRuns => result = Kill::WasKilled,
                Kill::WasKilled | Kill::NothingRuns => {}
            }
        }
        result
    }
}
