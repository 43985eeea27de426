//! The invariants of the model in random programs, on small machines of all kinds.

use std::collections::HashMap;

use super::*;

const LINES: u32 = 96;

/// Two sockets of three cores with two threads, and caches of a few lines.
fn small(protocol: CoherenceProtocol, shared_cache: SharedCachePolicy) -> MachineParameters {
    let size = |entries, ways| CacheShape { entries, ways };
    let preset = SimMachine::preset("nehalem-ep-2").expect("a preset");
    let mut machine = preset.at(ParameterSample::Middle);
    machine.shape = MachineShape {
        sockets: 2,
        cores: 3,
        threads: 2,
        protocol,
        shared_cache,
        l1: size(4, 2),
        l2: size(8, 2),
        l3: size(32, 4),
        tlb: size(2, 1),
        store_buffer: 4,
        fill_buffers: 2,
        memory_banks: 2,
        ..machine.shape
    };
    machine
}

fn machines() -> impl Iterator<Item = MachineParameters> {
    use CoherenceProtocol::{Mesi, Mesif, Moesi};
    use SharedCachePolicy::{Inclusive, None, Victim};
    let policies = [Inclusive, Victim, None];
    let pairs = [Mesi, Mesif, Moesi].map(|protocol| policies.map(|policy| (protocol, policy)));
    pairs
        .into_iter()
        .flatten()
        .map(|(one, two)| small(one, two))
}

/// A model with what it must remember for the invariants.
struct Checked {
    model: Model,
    lines: Vec<Line>,
    /// Of each line: the writes so far, and when the last one was visible.
    writes: Vec<(u64, u64)>,
    /// Of each copy in a core: the writes that it has seen.
    copies: HashMap<(usize, u32), u64>,
    random: u64,
}

impl Checked {
    fn new(machine: MachineParameters, seed: u64) -> Self {
        let home = |number: u32| {
            let mut line = Line::default();
            line.home = (number / 8 % 2) as u8;
            line
        };
        Self {
            model: Model::new(machine),
            lines: (0..LINES).map(home).collect(),
            writes: vec![(0, 0); LINES as usize],
            copies: HashMap::new(),
            random: seed << 1 | 1,
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(0x5851_F42D_4C95_7F2D)
            .wrapping_add(0x1405_7B7E_F767_814F);
        (self.random >> 33) % limit
    }

    /// An access at a time, by the short way if it is one. Returns its end.
    fn access(&mut self, processor: usize, line: u32, kind: AccessKind, clock: u64) -> Timing {
        let request = Request {
            processor,
            line,
            kind,
            clock,
            now: clock,
            random: self.below(1 << 20),
        };
        let core = self.model.core_of(processor);
        let had = has(&self.lines[line as usize].sharers, core);
        let hit = self.model.hit(&mut self.lines, request);
        let is_hit = hit.is_some();
        let timing = hit.unwrap_or_else(|| self.model.access(&mut self.lines, request));
        assert!(timing.resumes > clock && timing.visible >= clock);
        let writes = &mut self.writes[line as usize];
        if !had {
            self.copies.insert((core, line), writes.0);
        }
        // Invariant 2, of a copy that the core had, and reads or is to write.
        assert_eq!(self.copies[&(core, line)], writes.0, "an old copy was read");
        if kind.writes() {
            *writes = (writes.0 + 1, timing.visible);
            self.copies.insert((core, line), writes.0);
            // Invariant 1: no other core can read an older value.
            let other = cores(&self.lines[line as usize].sharers).find(|&other| other != core);
            assert_eq!(other, None);
        } else if !had && kind == AccessKind::Load {
            // Nobody sees a value before it is visible.
            assert!(timing.resumes >= writes.1, "read before it was written");
            assert!(!is_hit);
        }
        timing
    }

    /// Invariants 1 and 3, of all lines and caches.
    fn check(&self) -> Result<(), &'static str> {
        let model = &self.model;
        let policy = model.machine.shape.shared_cache;
        let is = |condition: bool, what| if condition { Ok(()) } else { Err(what) };
        for (index, core) in model.cores.iter().enumerate() {
            let in_l2: Vec<_> = core.l2.numbers().collect();
            let sharers = |line: &Line| has(&line.sharers, index);
            is(
                in_l2.iter().all(|&n| sharers(&self.lines[n as usize])),
                "a copy unknown",
            )?;
            let known = self.lines.iter().filter(|line| sharers(line)).count();
            is(known == in_l2.len(), "a sharer without a copy")?;
            is(
                core.l1.numbers().all(|n| in_l2.contains(&n)),
                "L1 without L2",
            )?;
        }
        for (socket, shared) in model.shared.iter().enumerate() {
            let known = |line: &Line| line.shared >> socket & 1 != 0;
            is(
                shared.numbers().all(|n| known(&self.lines[n as usize])),
                "L3 unknown",
            )?;
            let count = self.lines.iter().filter(|line| known(line)).count();
            is(
                count == shared.numbers().count(),
                "a line that L3 does not have",
            )?;
        }
        for line in &self.lines {
            let is_anywhere = line.sharers != [0, 0] || line.shared != 0;
            is(!line.is_dirty || is_anywhere, "a write was lost")?;
            if let Some(owner) = owner_of(line) {
                is(has(&line.sharers, owner), "an owner without a copy")?;
                let alone = cores(&line.sharers).count() == 1;
                let shares = model.machine.shape.protocol == CoherenceProtocol::Moesi;
                is(alone || shares && line.is_dirty, "an owner beside sharers")?;
            }
            if policy == SharedCachePolicy::Inclusive {
                let mut sockets = cores(&line.sharers).map(|core| model.socket_of(core));
                is(
                    sockets.all(|s| line.shared >> s & 1 != 0),
                    "L3 does not include",
                )?;
            }
        }
        Ok(())
    }
}

/// Rounds of a test, an eighth of them if the tests are to be short.
fn rounds(all: u64) -> u64 {
    let is_short = std::env::var_os("COREWISE_FEWER").is_some();
    if is_short { all / 8 } else { all }
}

/// Threads that access a few lines, each going on when its access has ended.
fn random_program(machine: MachineParameters, seed: u64, rounds: u64) -> Checked {
    let processors = machine.processors();
    let mut checked = Checked::new(machine, seed);
    let mut clocks = vec![0; processors];
    for _ in 0..rounds {
        let processor = (0..processors)
            .min_by_key(|&p| clocks[p])
            .expect("processors");
        // Some lines are hot, most are not.
        let limit = if checked.below(2) == 0 {
            6
        } else {
            u64::from(LINES)
        };
        let line = checked.below(limit) as u32;
        let kind = match checked.below(10) {
            0 | 1 => AccessKind::Store,
            2 => AccessKind::Rmw,
            3 => AccessKind::Prefetch,
            4 => AccessKind::PrefetchForWrite,
            _ => AccessKind::Load,
        };
        let timing = checked.access(processor, line, kind, clocks[processor]);
        clocks[processor] = timing.resumes + checked.below(20);
        assert_eq!(checked.check(), Ok(()));
    }
    checked
}

#[test]
fn the_invariants_hold_in_random_programs() {
    for machine in machines() {
        let inclusive = machine.shape.shared_cache == SharedCachePolicy::Inclusive;
        let what = format!("{:?}", machine.shape);
        let counts = random_program(machine, 1, rounds(16_000)).model.counts;
        // Each case has come.
        let AccessCounts {
            l1,
            l2,
            peer,
            remote,
            memory,
            remote_memory,
            ..
        } = counts;
        for count in [l1, l2, peer, remote, memory, remote_memory] {
            assert!(count > 0, "{counts:?} of {what}");
        }
        let AccessCounts {
            upgrades,
            invalidations,
            write_backs,
            conflicts,
            tlb_walks,
            ..
        } = counts;
        for count in [upgrades, invalidations, write_backs, conflicts, tlb_walks] {
            assert!(count > 0, "{counts:?} of {what}");
        }
        assert!(counts.store_stalls > 0 && (counts.l3 > 0 || !inclusive));
    }
}

/// A check that accepts everything would be none.
#[test]
fn a_directory_that_is_wrong_is_found() {
    let found = |change: fn(&mut Checked)| {
        let inclusive = small(CoherenceProtocol::Mesif, SharedCachePolicy::Inclusive);
        let mut checked = Checked::new(inclusive, 1);
        for (processor, kind) in [(0, AccessKind::Store), (4, AccessKind::Load)] {
            checked.access(processor, 9, kind, 1_000 * processor as u64);
        }
        assert_eq!(checked.check(), Ok(()));
        change(&mut checked);
        checked.check().expect_err("it is wrong")
    };
    let forgets = |checked: &mut Checked| take(&mut checked.lines[9].sharers, 0);
    assert_eq!(found(forgets), "a copy unknown");
    assert_eq!(
        found(|c| add(&mut c.lines[9].sharers, 1)),
        "a sharer without a copy"
    );
    assert_eq!(
        found(|c| c.model.cores[0].l2.remove(9)),
        "a sharer without a copy"
    );
    assert_eq!(found(|c| c.lines[9].owner = 2), "an owner without a copy");
    assert_eq!(found(|c| c.lines[9].owner = 1), "an owner beside sharers");
    assert_eq!(found(|c| c.lines[9].shared = 1), "L3 unknown");
    assert_eq!(found(|c| c.lines[5].is_dirty = true), "a write was lost");
    assert_eq!(
        found(|c| _ = c.model.cores[0].l1.insert(7)),
        "L1 without L2"
    );
}

#[test]
#[should_panic(expected = "an old copy was read")]
fn a_copy_that_is_not_invalidated_is_found() {
    let mut checked = Checked::new(machines().next().expect("a machine"), 1);
    checked.access(0, 9, AccessKind::Load, 0);
    checked.access(1, 9, AccessKind::Load, 1_000);
    // As if the directory had forgotten the first core, which then is not told of the write.
    take(&mut checked.lines[9].sharers, 0);
    checked.access(1, 9, AccessKind::Rmw, 2_000);
    add(&mut checked.lines[9].sharers, 0);
    checked.access(0, 9, AccessKind::Load, 3_000);
}

#[test]
fn stores_leave_the_buffer_in_order_and_hold_up_a_thread_when_it_is_full() {
    let machine = small(CoherenceProtocol::Mesif, SharedCachePolicy::Inclusive);
    let memory = machine.memory;
    let mut checked = Checked::new(machine, 1);
    let mut clock = 0;
    let mut visible = 0;
    // A processor has two of the four places.
    for line in 0..4 {
        let timing = checked.access(0, line, AccessKind::Store, clock);
        assert!(timing.visible >= visible);
        // The third one waits for the first; when that has ended, the second has almost.
        let goes_on = timing.resumes - clock < memory / 2;
        assert_eq!(goes_on, line != 2, "store {line}");
        (clock, visible) = (timing.resumes, timing.visible);
    }
    assert_eq!(checked.model.drained_at(0), visible);
    // A hit waits behind them for others, not for its own thread.
    let hit = checked.access(0, 0, AccessKind::Store, clock);
    assert!(hit.visible >= visible);
    let exchange = checked.access(0, 0, AccessKind::Rmw, hit.resumes);
    assert!(exchange.resumes > hit.visible);
}
