//! Dumps: lists of keys that are printed in steps between the turns of a loop.
//!
//! A dump is a state of its connection. While it is in progress, the connection is not read and
//! none of its requests is executed, so replies stay in order. The loop advances one dump each
//! turn, and only if the client has taken what was printed before.
//!
//! # Guarantees
//!
//! 1. *Complete*: every item that lives from the first step to the last is printed; see
//!    [`Engine::scan`].
//! 2. *Latency*: a turn visits [`LOOKS_PER_TURN`] items and buckets for all dumps of its loop
//!    together, so the other connections of the loop wait some hundred microseconds at most.
//! 3. *Memory*: a dump holds this state and what its last step printed, at most the lines of
//!    [`LOOKS_PER_STEP`] items beyond [`ENOUGH_BYTES`]. A client that does not read is paused, and
//!    closed after [`Config::slow_reader_timeout`](crate::Config::slow_reader_timeout).

use corewise_engine::{Cursor, Engine, ScanStep, size_class};
use corewise_ops::{ItemKind, ItemView, Now, database};
use corewise_wire::memcached::{Classes, DumpFormat, MAX_KEY_LEN, StatsWriter, reply};

/// Items and buckets visited in one step.
const LOOKS_PER_STEP: usize = 256;
/// Items and buckets visited in one turn of a loop.
const LOOKS_PER_TURN: usize = 1_024;
/// A turn that has printed this many bytes begins no further step.
const ENOUGH_BYTES: usize = 16 << 10;

const WORDS: usize = size_class::COUNT / 64 + 1;

/// A set of size classes.
#[derive(Clone, Copy, Debug)]
struct ClassSet([u64; WORDS]);

impl ClassSet {
    fn of(has: impl Fn(u32) -> bool) -> Self {
        let mut words = [0; WORDS];
        for class in (1..=size_class::COUNT).filter(|class| has(*class as u32)) {
            words[class / 64] |= 1 << (class % 64);
        }
        Self(words)
    }

    fn contains(&self, class: u32) -> bool {
        let word = self.0.get(class as usize / 64).copied().unwrap_or(0);
        word >> (class % 64) & 1 != 0
    }
}

/// Format of a line.
#[derive(Clone, Copy, Debug)]
enum LineFormat {
    Metadump,
    Mgdump,
    /// `stats cachedump`, with the number of items that may still be printed.
    Cachedump {
        left: usize,
    },
}

/// The progress of a dump.
#[derive(Debug)]
pub(crate) struct Dump {
    format: LineFormat,
    classes: ClassSet,
    cursor: Cursor,
    /// Items visited so far.
    pub(crate) looked_at: u64,
}

impl Dump {
    /// `lru_crawler metadump` or `mgdump`.
    pub(crate) fn of_keys(format: DumpFormat, classes: Classes<'_>) -> Self {
        Self {
            format: match format {
                DumpFormat::Metadump => LineFormat::Metadump,
                DumpFormat::Mgdump => LineFormat::Mgdump,
            },
            classes: ClassSet::of(|class| classes.contains(class)),
            cursor: Cursor::START,
            looked_at: 0,
        }
    }

    /// `stats cachedump`; a `limit` of 0 means no limit.
    pub(crate) fn of_class(class: u32, limit: u32) -> Self {
        let left = match limit {
            0 => usize::MAX,
            limit => limit as usize,
        };
        Self {
            format: LineFormat::Cachedump { left },
            classes: ClassSet::of(|other| other == class),
            cursor: Cursor::START,
            looked_at: 0,
        }
    }

    /// Prints the next lines, and the end if it is reached. Returns whether the dump is complete.
    pub(crate) fn advance<E: Engine>(&mut self, engine: &E, now: Now, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        for _ in 0..LOOKS_PER_TURN / LOOKS_PER_STEP {
            let step = engine.scan(self.cursor, LOOKS_PER_STEP, now, &mut |item| {
                self.looked_at += 1;
                let is_string = item.kind == ItemKind::String;
                if is_string && self.classes.contains(item.size_class) {
                    self.format.print(item, now, out);
                }
            });
            match step {
                ScanStep::More(_) if self.format.has_enough() => return self.end(out),
                ScanStep::More(cursor) => self.cursor = cursor,
                ScanStep::Done => return self.end(out),
                ScanStep::Lost => {
                    out.extend_from_slice(reply::DUMP_LOST);
                    return true;
                }
            }
            if out.len() - before >= ENOUGH_BYTES {
                break;
            }
        }
        false
    }

    fn end(&self, out: &mut Vec<u8>) -> bool {
        let w = StatsWriter::new(out);
        match self.format {
            LineFormat::Mgdump => w.end_mgdump(),
            LineFormat::Metadump | LineFormat::Cachedump { .. } => w.end(),
        }
        true
    }
}

impl LineFormat {
    /// Prints a line, unless the key is one of RESP that memcached's protocol cannot name, for its
    /// length or its database, or that would break the line.
    fn print(&mut self, item: &ItemView<'_>, now: Now, out: &mut Vec<u8>) {
        let (database, key) = database::split(item.key);
        let item = &ItemView { key, ..*item };
        let breaks_line = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let is_raw = matches!(self, Self::Cachedump { .. });
        if database != 0
            || !(1..=MAX_KEY_LEN).contains(&item.key.len())
            || is_raw && item.key.iter().any(breaks_line)
        {
            return;
        }
        let mut w = StatsWriter::new(out);
        match self {
            Self::Metadump => w.metadump(item, now),
            Self::Mgdump => w.mgdump(item.key),
            Self::Cachedump { left: 0 } => {}
            Self::Cachedump { left } => {
                *left -= 1;
                w.cachedump(item, now);
            }
        }
    }

    fn has_enough(self) -> bool {
        matches!(self, Self::Cachedump { left: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_engine::engines::relativistic::{Config, Relativistic};
    use corewise_engine::{ManualClock, Session, TimeSource};
    use corewise_ops::{Flow, Op, Outcome, ReplySink, Store, StoreMode, Token, Verb};
    use std::sync::Arc;

    struct Ignore;

    impl ReplySink for Ignore {
        fn complete(&mut self, _: Token, _: Outcome<'_>) -> Flow {
            Flow::Continue
        }
    }

    fn filled(items: usize) -> (Arc<Relativistic>, Now) {
        let engine = Arc::new(Relativistic::new(Config::default()));
        let now = ManualClock::new(1_700_000_000).now();
        let mut session = engine.session();
        for i in 0..items {
            let store = Store::new(StoreMode::Set, b"v");
            let key = format!("{i:0250}");
            let op = Op::new(0, key.as_bytes(), Verb::Store(store));
            assert_eq!(session.submit(now, &[op], &mut Ignore), 1);
        }
        (engine, now)
    }

    /// Guarantees 1 to 3.
    #[test]
    fn a_dump_is_complete_and_each_turn_of_it_is_bounded() {
        const ITEMS: usize = 20_000;
        let (engine, now) = filled(ITEMS);
        for classes in [Classes::ALL, Classes::parse(b"1", 63).unwrap()] {
            let mut dump = Dump::of_keys(DumpFormat::Mgdump, classes);
            let (mut out, mut lines, mut turns) = (Vec::new(), 0, 0);
            loop {
                let is_over = dump.advance(&*engine, now, &mut out);
                turns += 1;
                assert!(out.len() <= ENOUGH_BYTES + 300 * LOOKS_PER_STEP);
                lines += out.split(|&byte| byte == b'\n').count() - 1;
                out.clear();
                if is_over {
                    break;
                }
            }
            let all = classes == Classes::ALL;
            assert_eq!(lines, if all { ITEMS + 1 } else { 1 });
            assert!(turns > ITEMS / LOOKS_PER_TURN, "{turns}");
        }
    }

    #[test]
    fn a_cachedump_ends_at_its_limit() {
        let (engine, now) = filled(5_000);
        let class = engine.size_classes()[0].class;
        for (limit, lines) in [(1, 1), (700, 700), (0, 5_000)] {
            let (mut dump, mut out) = (Dump::of_class(class, limit), Vec::new());
            while !dump.advance(&*engine, now, &mut out) {}
            let shown = out.split(|&byte| byte == b'\n').count() - 2;
            assert_eq!(shown, lines);
        }
    }

    #[test]
    fn a_class_set_contains_only_the_named_classes() {
        let last = size_class::COUNT as u32;
        let classes = Classes::parse(b"1,64,185", last).unwrap();
        let set = ClassSet::of(|class| classes.contains(class));
        let there: Vec<u32> = (0..=2 * last)
            .filter(|class| set.contains(*class))
            .collect();
        assert_eq!(there, [1, 64, 185]);
        let all = ClassSet::of(|class| Classes::ALL.contains(class));
        assert!((1..=last).all(|class| all.contains(class)));
    }
}
