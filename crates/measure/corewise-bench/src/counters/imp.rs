//! Groups of events, by `perf_event_open(2)`.

use std::io;

use corewise_measure::cpu::{self, RtmSupport};
use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware, Raw};
use perf_event::{Builder, Counter, Group};

use super::{HardwareCounters, Reading, between};

/// `RTM_RETIRED.START`: event 0xc9, mask 0x01 (Intel SDM, volume 3B, performance monitoring).
const RTM_START: Raw = Raw::new(0x01c9);
/// `RTM_RETIRED.ABORTED`: event 0xc9, mask 0x04.
const RTM_ABORTED: Raw = Raw::new(0x04c9);

const fn load_misses(which: CacheId) -> Cache {
    Cache {
        which,
        operation: CacheOp::READ,
        result: CacheResult::MISS,
    }
}

/// Returns the events by group, in the order of [`HardwareCounters::of`]. A group takes at most
/// three general counters: processors have four to eight for a hardware thread, and the
/// kernel's watchdog takes one.
fn groups() -> [Vec<Option<Builder<'static>>>; 3] {
    let rtm = |event| (cpu::rtm() == RtmSupport::Present).then(|| Builder::new(event));
    [
        vec![
            Some(Builder::new(Hardware::INSTRUCTIONS)),
            Some(Builder::new(Hardware::CPU_CYCLES)),
            Some(Builder::new(Hardware::CACHE_MISSES)),
        ],
        vec![
            Some(Builder::new(Hardware::BRANCH_MISSES)),
            Some(Builder::new(load_misses(CacheId::L1D))),
            Some(Builder::new(load_misses(CacheId::LL))),
        ],
        vec![rtm(RTM_START), rtm(RTM_ABORTED)],
    ]
}

/// Counters that count at the same time.
struct OpenGroup {
    group: Group,
    /// `None` for an event that this machine does not count.
    members: Vec<Option<Counter>>,
    /// The readings at the start.
    start: Option<Vec<Option<Reading>>>,
}

impl OpenGroup {
    fn open(events: Vec<Option<Builder<'_>>>, why_not: &mut Option<String>) -> io::Result<Self> {
        let mut group = Group::new()?;
        let mut open = |event: Builder<'_>| match group.add(&event) {
            Ok(counter) => Some(counter),
            Err(error) => {
                why_not.get_or_insert_with(|| reason(&error));
                None
            }
        };
        let members = events
            .into_iter()
            .map(|event| event.and_then(&mut open))
            .collect();
        Ok(Self {
            group,
            members,
            start: None,
        })
    }

    fn read(&mut self) -> io::Result<Vec<Option<Reading>>> {
        let data = self.group.read()?;
        let reading = |member: &Counter| {
            Some(Reading {
                count: data.get(member)?.value(),
                enabled_ns: data.time_enabled().unwrap_or_default().as_nanos(),
                running_ns: data.time_running().unwrap_or_default().as_nanos(),
            })
        };
        let members = self.members.iter();
        Ok(members
            .map(|member| member.as_ref().and_then(reading))
            .collect())
    }

    fn start(&mut self) {
        self.start = self.read().ok();
        if self.group.enable().is_err() {
            self.start = None;
        }
    }

    fn stop(&mut self) -> Vec<Option<u64>> {
        let _ = self.group.disable(); // the reading below shows whether it counted
        let (Some(start), Ok(end)) = (self.start.take(), self.read()) else {
            return vec![None; self.members.len()];
        };
        let pairs = start.into_iter().zip(end);
        pairs.map(|(start, end)| between(start?, end?)).collect()
    }
}

pub(super) struct Counters {
    groups: Vec<OpenGroup>,
    why_not: Option<String>,
}

impl std::fmt::Debug for Counters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counters")
            .field("why_not", &self.why_not)
            .finish_non_exhaustive()
    }
}

impl Counters {
    pub(super) fn open() -> Self {
        let mut why_not = None;
        let opened: io::Result<Vec<_>> = groups()
            .into_iter()
            .map(|events| OpenGroup::open(events, &mut why_not))
            .collect();
        let groups = opened.unwrap_or_else(|error| {
            why_not = Some(reason(&error));
            Vec::new()
        });
        let mut members = groups.iter().flat_map(|group| &group.members);
        let why_not = why_not.filter(|_| members.all(Option::is_none));
        Self { groups, why_not }
    }

    pub(super) fn start(&mut self) {
        self.groups.iter_mut().for_each(OpenGroup::start);
    }

    pub(super) fn stop(&mut self) -> HardwareCounters {
        HardwareCounters::of(self.groups.iter_mut().flat_map(OpenGroup::stop))
    }

    pub(super) fn why_not(&self) -> Option<&str> {
        self.why_not.as_deref()
    }
}

fn reason(error: &io::Error) -> String {
    let why = match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => {
            "this machine has no hardware counters (a virtual machine without a PMU?)"
        }
        Some(libc::EACCES | libc::EPERM) => {
            "the kernel forbids it: /proc/sys/kernel/perf_event_paranoid must be 2 or less"
        }
        Some(libc::ENOSYS) => "this kernel was built without perf events",
        _ => "perf_event_open failed",
    };
    format!("{why} ({error})")
}

#[cfg(test)]
mod tests {
    use perf_event::events::Software;

    use super::*;

    /// Events of the kernel, because not every machine has those of the processor.
    #[test]
    fn the_members_of_a_group_are_counted_together() {
        let clock = Builder::new(Software::TASK_CLOCK);
        let faults = Builder::new(Software::PAGE_FAULTS);
        let mut why_not = None;
        let events = vec![Some(clock), None, Some(faults)];
        let Ok(mut group) = OpenGroup::open(events, &mut why_not) else {
            return println!("no perf events at all");
        };
        if let Some(reason) = why_not {
            return println!("{reason}");
        }
        assert_eq!(group.stop(), [None, None, None], "not started");
        for _ in 0..2 {
            group.start();
            let page = std::hint::black_box(vec![1_u8; 1 << 22]);
            let counts = group.stop();
            drop(page);
            assert!(counts[0].is_some_and(|ns| ns > 1_000), "{counts:?}");
            assert!(counts[0] < Some(10_000_000_000), "of this turn: {counts:?}");
            assert_eq!(counts[1], None);
            assert!(counts[2].is_some(), "{counts:?}");
        }
    }
}
