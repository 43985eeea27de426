//! The parameters of machines: ranges with their sources, and values drawn from them.

use serde::Deserialize;

/// A machine whose parameters are ranges, each with its source.
///
/// ```
/// use corewise_sim::{ParameterSample, SimMachine};
///
/// let machine = SimMachine::preset("westmere-ex-8").unwrap();
/// let middle = machine.at(ParameterSample::Middle);
/// assert_eq!(middle.processors(), 160);
/// assert!(middle.l1 < middle.l2 && middle.peer < middle.remote_1);
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimMachine {
    shape: MachineShape,
    ranges: ParameterRanges,
}

/// What of a machine is not a range.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineShape {
    /// Sockets; each is a node of memory.
    pub sockets: usize,
    /// Cores of a socket.
    pub cores: usize,
    /// Hardware threads of a core.
    pub threads: usize,
    /// Cycles of a microsecond.
    pub mhz: u64,
    /// How copies of a line are kept coherent.
    pub protocol: CoherenceProtocol,
    /// What the shared cache of a socket holds.
    pub shared_cache: SharedCachePolicy,
    /// The private caches of a core, and the shared one of a socket.
    pub l1: CacheShape,
    /// See `l1`. It holds all lines of the first level.
    pub l2: CacheShape,
    /// See `l1`.
    pub l3: CacheShape,
    /// Pages of 4 KiB in the last level of a core's TLB.
    pub tlb: CacheShape,
    /// Links from each socket to each other one; without it, one.
    #[serde(default)]
    pub hops: Vec<Vec<u8>>,
    /// Entries of a core's store buffer; hardware threads share them evenly.
    pub store_buffer: usize,
    /// Misses of a core that can be in progress at once.
    pub fill_buffers: usize,
    /// Requests that a node's memory serves at once.
    pub memory_banks: usize,
}

/// The size of a cache, in lines or pages.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheShape {
    /// All entries.
    pub entries: usize,
    /// Those of a set.
    pub ways: usize,
}

/// How copies of a line are kept coherent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CoherenceProtocol {
    /// A line that is read from its writer is written back. Clean copies come from memory, unless
    /// the socket has one.
    Mesi,
    /// As [`Mesi`](Self::Mesi), but one of the sockets with a clean copy forwards it.
    Mesif,
    /// The writer of a line that is read remains its owner, and forwards it.
    Moesi,
}

/// What the shared cache of a socket holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SharedCachePolicy {
    /// All that the private caches hold; what it evicts, they lose.
    Inclusive,
    /// What the private caches have evicted.
    Victim,
    /// There is none.
    None,
}

/// Which values of the ranges are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterSample {
    /// The lowest of all.
    Low,
    /// Those in the middle.
    Middle,
    /// The highest of all.
    High,
    /// One of each range, drawn from this seed.
    Seed(u64),
}

/// A range of a parameter.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ParameterRange {
    cycles: Option<[f64; 2]>,
    ns: Option<[f64; 2]>,
    /// Where the range comes from; `assumed` if from nowhere.
    source: String,
}

/// Why a description of a machine is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineError(String);

impl std::fmt::Display for MachineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MachineError {}

macro_rules! parameters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A range for each parameter.
        #[derive(Clone, Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct ParameterRanges {
            $($name: ParameterRange,)*
        }

        /// A machine with a value for each parameter, in cycles.
        #[derive(Clone, Debug)]
        pub struct MachineParameters {
            /// Sizes and structure.
            pub shape: MachineShape,
            $($(#[$doc])* pub $name: u64,)*
        }

        impl SimMachine {
            fn all(&self) -> impl Iterator<Item = (&'static str, &ParameterRange)> {
                [$((stringify!($name), &self.ranges.$name)),*].into_iter()
            }

            /// The machine with one value of each range.
            #[must_use]
            pub fn at(&self, sample: ParameterSample) -> MachineParameters {
                let mut draw = Draw::new(sample);
                let mhz = self.shape.mhz;
                MachineParameters {
                    shape: self.shape.clone(),
                    $($name: draw.from(&self.ranges.$name, mhz),)*
                }
            }
        }
    };
}

parameters! {
    /// A load that hits the first level.
    l1,
    /// A load that hits the second level.
    l2,
    /// A load that hits the shared cache of its socket.
    l3,
    /// A load of a line that another core of the socket has written.
    peer,
    /// A load of a line that a core of a socket one link away has written.
    remote_1,
    /// The same of a socket two links away.
    remote_2,
    /// A load from the memory of its node.
    memory,
    /// A load from the memory of a node one link away.
    memory_1,
    /// The same two links away.
    memory_2,
    /// What a transfer between sockets takes longer if the line's memory is not the owner's: the
    /// home has to be asked.
    home_lookup,
    /// What a miss of a store takes longer than that of a load.
    store,
    /// What an atomic read-modify-write, or a fence, takes longer than a load.
    rmw,
    /// How long a line is busy in addition if a request meets it in transfer.
    conflict,
    /// Time of the shared cache's port for each request.
    l3_service,
    /// Time of a link for each line, in one direction.
    link_service,
    /// Time of a node's memory for each line; its banks together.
    memory_service,
    /// A walk of the page table.
    tlb_walk,
    /// A spin hint.
    pause,
    /// The share of a core that a hardware thread has while another one computes, in percent.
    smt_share,
    /// A miss takes up to this much longer, at random.
    jitter,
}

/// Draws values from ranges.
enum Draw {
    At(f64),
    Random(u64),
}

impl Draw {
    fn new(sample: ParameterSample) -> Self {
        match sample {
            ParameterSample::Low => Self::At(0.0),
            ParameterSample::Middle => Self::At(0.5),
            ParameterSample::High => Self::At(1.0),
            ParameterSample::Seed(seed) => Self::Random(seed),
        }
    }

    fn from(&mut self, range: &ParameterRange, mhz: u64) -> u64 {
        let place = match self {
            Self::At(place) => *place,
            Self::Random(state) => {
                // SplitMix64 (Steele, Lea, Flood 2014).
                *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                let mut mixed = *state;
                mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
                ((mixed ^ mixed >> 31) >> 11) as f64 / (1u64 << 53) as f64
            }
        };
        let [low, high] = range.in_cycles(mhz);
        (low + (high - low) * place).round() as u64
    }
}

impl ParameterRange {
    fn in_cycles(&self, mhz: u64) -> [f64; 2] {
        let from_ns = |ns: [f64; 2]| ns.map(|ns| ns * mhz as f64 / 1000.0);
        self.cycles.or(self.ns.map(from_ns)).unwrap_or_default()
    }

    fn is_valid(&self) -> bool {
        let [low, high] = self.in_cycles(1000);
        // No latency is that long, and sums of them do not overflow.
        let is_range = (0.0..=high).contains(&low) && high < 1e6;
        is_range && self.cycles.is_some() != self.ns.is_some() && !self.source.is_empty()
    }
}

/// The most cores, because the directory has a bit for each.
const MAX_CORES: usize = 128;
/// The most sockets, because the directory has a bit for each.
const MAX_SOCKETS: usize = 8;
/// The most entries of a cache: 1 GiB of lines.
const MAX_ENTRIES: usize = 1 << 24;
/// The most entries of buffers and queues.
const MAX_BUFFERS: usize = 64;

impl SimMachine {
    /// The names of the machines that come with the crate.
    pub const PRESETS: [&str; 3] = ["nehalem-ep-2", "westmere-ex-8", "broadwell-ep-2"];

    /// A machine that comes with the crate.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        let text = match name {
            "nehalem-ep-2" => include_str!("../../machines/nehalem-ep-2.toml"),
            "westmere-ex-8" => include_str!("../../machines/westmere-ex-8.toml"),
            "broadwell-ep-2" => include_str!("../../machines/broadwell-ep-2.toml"),
            _ => return None,
        };
        Some(Self::parse(text).expect("a preset is valid, by its test"))
    }

    /// A machine from its description in TOML, like those in the folder `machines`.
    ///
    /// # Errors
    ///
    /// If a field is missing, unknown or out of its bounds.
    pub fn parse(text: &str) -> Result<Self, MachineError> {
        let machine: Self =
            toml::from_str(text).map_err(|error| MachineError(error.to_string()))?;
        machine.check().map_err(MachineError)?;
        Ok(machine)
    }

    /// The parameters whose ranges have no source.
    pub fn assumed(&self) -> impl Iterator<Item = &'static str> {
        let is_assumed = |(_, range): &(_, &ParameterRange)| range.source.starts_with("assumed");
        self.all().filter(is_assumed).map(|(name, _)| name)
    }

    fn check(&self) -> Result<(), String> {
        let shape = &self.shape;
        let cores = shape.sockets.saturating_mul(shape.cores);
        let bounded = [
            ("sockets", shape.sockets, MAX_SOCKETS),
            ("cores of all sockets", cores, MAX_CORES),
            ("threads", shape.threads, 8),
            ("mhz", shape.mhz as usize, 100_000),
            ("entries of l1", shape.l1.entries, MAX_ENTRIES),
            ("entries of l2", shape.l2.entries, MAX_ENTRIES),
            ("entries of l3", shape.l3.entries, MAX_ENTRIES),
            ("entries of tlb", shape.tlb.entries, MAX_ENTRIES),
            ("store_buffer", shape.store_buffer, MAX_BUFFERS),
            ("fill_buffers", shape.fill_buffers, MAX_BUFFERS),
            ("memory_banks", shape.memory_banks, MAX_BUFFERS),
        ];
        for (name, value, most) in bounded {
            if !(1..=most).contains(&value) {
                return Err(format!("{name} = {value} is not in 1..={most}"));
            }
        }
        let is_row = |row: &Vec<u8>| row.len() == shape.sockets && row.iter().all(|&n| n <= 2);
        let is_matrix = shape.hops.len() == shape.sockets && shape.hops.iter().all(is_row);
        if !shape.hops.is_empty() && !is_matrix {
            return Err("hops is no square matrix of 0, 1 and 2".to_owned());
        }
        match self.all().find(|(_, range)| !range.is_valid()) {
            Some((name, _)) => Err(format!("{name} is no range of cycles or ns with a source")),
            None => Ok(()),
        }
    }
}

impl MachineParameters {
    /// Hardware threads of all cores.
    #[must_use]
    pub fn processors(&self) -> usize {
        self.all_cores() * self.shape.threads
    }

    pub(crate) fn all_cores(&self) -> usize {
        self.shape.sockets * self.shape.cores
    }

    /// Links between two sockets.
    pub(super) fn hops(&self, from: usize, to: usize) -> u8 {
        match self.shape.hops.get(from) {
            Some(row) => row[to],
            None => u8::from(from != to),
        }
    }

    /// A load of what the caches of a socket have, at this distance.
    pub(super) fn transfer(&self, hops: u8) -> u64 {
        [self.peer, self.remote_1, self.remote_2][usize::from(hops)]
    }

    /// A load from memory at this distance.
    pub(super) fn memory_at(&self, hops: u8) -> u64 {
        [self.memory, self.memory_1, self.memory_2][usize::from(hops)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_valid_and_their_samples_lie_in_the_ranges() {
        for name in SimMachine::PRESETS {
            let machine = SimMachine::preset(name).unwrap();
            let [low, middle, high] = [
                ParameterSample::Low,
                ParameterSample::Middle,
                ParameterSample::High,
            ]
            .map(|sample| machine.at(sample));
            for seed in 0..20 {
                let drawn = machine.at(ParameterSample::Seed(seed));
                assert!((low.peer..=high.peer).contains(&drawn.peer));
                assert!((low.memory..=high.memory).contains(&drawn.memory));
            }
            assert!(low.memory <= middle.memory && middle.memory <= high.memory);
            assert!(low.l1 < low.l2 && low.l2 < low.l3 && low.l3 <= low.peer);
            assert!(low.memory < low.memory_1);
            // What was measured, and what was not.
            let assumed: Vec<_> = machine.assumed().collect();
            assert!(
                assumed.contains(&"jitter") && !assumed.contains(&"l3"),
                "{assumed:?}"
            );
        }
        assert!(SimMachine::preset("none").is_none());
    }

    #[test]
    fn descriptions_that_are_wrong_are_refused() {
        let text = include_str!("../../machines/nehalem-ep-2.toml");
        let error = |from: &str, to: &str| {
            assert!(text.contains(from));
            let changed = text.replacen(from, to, 1);
            SimMachine::parse(&changed).unwrap_err().to_string()
        };
        assert!(error("sockets = 2", "sockets = 9").contains("sockets = 9"));
        assert!(error("sockets = 2", "sockets = 0").contains("sockets = 0"));
        assert!(error("cores = 4", "cores = 65").contains("130"));
        assert!(error("[shape]", "[shape]\nhops = [[0, 1]]").contains("square"));
        assert!(error("l1 = { cycles = [4, 4]", "l1 = { cycles = [5, 4]").contains("l1"));
        assert!(error("l1 = { cycles = [4, 4]", "l1 = { ns = [4, nan]").contains("l1"));
        assert!(error("threads = 2", "threads = 2\nspeed = 3").contains("speed"));
    }
}
