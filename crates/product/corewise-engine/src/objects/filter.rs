//! What operations on filters do, for every engine, and how a filter is an object.
//!
//! The filter itself is [`RedisCuckoo`], whose lookups would need no lock. Here the store excludes
//! all others that follow the pointer to it, as it does for a set (guarantee 2 of the
//! [objects](super)), so that a filter may be evicted, replaced and freed without a grace period.
//!
//! A compaction runs in steps, which the client makes that has begun it. If it has gone, or is in a
//! transaction, those that wait for the compaction make them: one of [`REFUSALS_A_STEP`] refusals
//! without a step between them, so that many that wait do no more work than few. Nothing else makes
//! steps, so a compaction that is left unfinished goes on with the next writes to the filter. Its
//! emptied subfilters are freed with the operations that follow, a piece at a time.

use super::heap::ObjectMemory;
use super::object::{Object, filter_of};
use super::verb::{Place, store_object};
use crate::engines::verbs::{Attempt, ItemStore, NoItem, Ptr, Report, refusal};
use crate::item::Item;
use corewise_filter::redis::{
    AddError, ChunkError, CompactionRuns, CreateError, CuckooMemory, CuckooSettings, HeaderError,
    Permission, RedisCuckoo, STEP_WORK,
};
use corewise_ops::filter::{FilterOp, FilterRead, FilterResult, FilterWrite};
use corewise_ops::{Deadline, ItemKind, Outcome};

/// Pieces of a filter that are freed in one step: 1 MiB each at most.
const FREED_AT_ONCE: usize = 1;

/// The refusals of which the last makes a step of the compaction, if none was made meanwhile.
const REFUSALS_A_STEP: u32 = 64;

/// The most bytes that are asked for: no engine has as many, and a sum of two is a number.
const MOST_ASKED: u64 = 1 << 60;

/// Memory from the global allocator that is counted while this lives.
struct Counted {
    memory: ObjectMemory,
    bytes: usize,
}

impl Counted {
    fn new(memory: &ObjectMemory, bytes: usize) -> Self {
        memory.count_outside(0, bytes);
        Self {
            memory: memory.clone(),
            bytes,
        }
    }

    fn set(&mut self, bytes: usize) {
        self.memory.count_outside(self.bytes, bytes);
        self.bytes = bytes;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.memory.count_outside(self.bytes, 0);
    }
}

/// A filter as the value of an item.
pub(crate) struct Filter {
    cuckoo: RedisCuckoo,
    /// Subfilters that a compaction has emptied, until they are freed.
    emptied: Option<CuckooMemory>,
    /// Operations that a compaction has refused since its last step.
    refusals: u32,
    counted: Counted,
}

/// What is left of a filter that is being freed.
pub(crate) struct Remains {
    memory: CuckooMemory,
    counted: Counted,
}

/// What a filter takes beside its [`RedisCuckoo`].
const OWN_BYTES: usize = size_of::<Filter>() - size_of::<RedisCuckoo>();
/// What the item that owns a filter takes at most, beside its key.
const ITEM_BYTES: usize = 128;

impl Filter {
    fn new(cuckoo: RedisCuckoo, memory: &ObjectMemory) -> Box<Self> {
        let bytes = OWN_BYTES + as_usize(cuckoo.bytes());
        Box::new(Self {
            cuckoo,
            emptied: None,
            refusals: 0,
            counted: Counted::new(memory, bytes),
        })
    }

    /// The smallest filter; `None` if there is no memory.
    pub(super) fn empty(memory: &ObjectMemory) -> Option<Box<Self>> {
        let settings = CuckooSettings {
            capacity: 1,
            bucket_slots: 1,
            ..CuckooSettings::default()
        };
        let cuckoo = RedisCuckoo::new(settings, &mut |_| true).ok()?;
        Some(Self::new(cuckoo, memory))
    }

    /// A copy; `None` if there is no memory.
    pub(super) fn copy(&self) -> Option<Box<Self>> {
        Some(Self::new(self.cuckoo.try_clone()?, &self.counted.memory))
    }

    /// Bytes that it took when they were last counted.
    pub(super) fn bytes(&self) -> usize {
        self.counted.bytes
    }

    fn recount(&mut self) {
        let emptied = self.emptied.as_ref().map_or(0, CuckooMemory::bytes);
        let bytes = self.cuckoo.bytes() + emptied;
        self.counted.set(OWN_BYTES + as_usize(bytes));
    }

    pub(super) fn into_remains(self) -> Remains {
        let mut memory = self.cuckoo.into_memory();
        if let Some(emptied) = self.emptied {
            memory.append(emptied);
        }
        Remains {
            memory,
            counted: self.counted,
        }
    }

    /// Does a step of the compaction that runs, if any, and takes what it has emptied. Returns
    /// whether there is more to do.
    fn step(&mut self) -> bool {
        self.refusals = 0;
        if self.cuckoo.compact_step(STEP_WORK) {
            return true;
        }
        self.take_emptied();
        self.emptied.is_some()
    }

    /// Counts an operation that the compaction has refused.
    fn note_refusal(&mut self) {
        self.refusals += 1;
        if self.refusals >= REFUSALS_A_STEP {
            self.step();
        }
    }

    /// Takes the subfilters that a compaction has emptied.
    fn take_emptied(&mut self) {
        let spares = self.cuckoo.take_spares();
        match &mut self.emptied {
            Some(emptied) => emptied.append(spares),
            None if spares.bytes() > 0 => self.emptied = Some(spares),
            None => {}
        }
    }

    /// Frees a part of what a compaction has emptied.
    fn free_some(&mut self) {
        let has_more = self
            .emptied
            .as_mut()
            .is_some_and(|emptied| emptied.free_some(FREED_AT_ONCE));
        if !has_more {
            self.emptied = None;
        }
    }

    fn read(&self, read: FilterRead, dump: &mut Vec<u8>) -> Result<FilterResult<'static>, Stop> {
        let cuckoo = &self.cuckoo;
        Ok(match read {
            FilterRead::Contains(hash) => FilterResult::Flag(cuckoo.contains(hash)),
            FilterRead::Count(hash) => FilterResult::Count(cuckoo.count(hash)),
            FilterRead::Info(beside) => FilterResult::Info(cuckoo.info(beside)?),
            FilterRead::Dump {
                iterator,
                most,
                beside,
            } => FilterResult::Dump {
                next: cuckoo.dump(iterator, most, beside, dump)?,
                bytes: b"",
            },
        })
    }

    /// The result, and whether anything was changed.
    fn write(
        &mut self,
        write: &FilterWrite<'_>,
        may: Permission<'_>,
    ) -> Result<(FilterResult<'static>, bool), Stop> {
        let cuckoo = &self.cuckoo;
        Ok(match *write {
            FilterWrite::Reserve(_) | FilterWrite::LoadHeader(_) => (FilterResult::Exists, false),
            FilterWrite::Add {
                hash,
                only_new: true,
                beside,
                ..
            } => {
                let is_added = cuckoo.add_nx(hash, beside, may)?;
                (FilterResult::Flag(is_added), is_added)
            }
            FilterWrite::Add { hash, beside, .. } => {
                cuckoo.add(hash, beside, may)?;
                (FilterResult::Flag(true), true)
            }
            FilterWrite::Remove { hash, beside } => {
                let removal = cuckoo.remove(hash, beside)?;
                self.take_emptied();
                let result = FilterResult::Removed {
                    is_removed: removal.is_removed,
                    must_compact: removal.must_compact,
                };
                (result, removal.is_removed)
            }
            FilterWrite::LoadChunk {
                iterator,
                chunk,
                beside,
            } => {
                cuckoo.load_chunk(iterator, chunk, beside)?;
                (FilterResult::Done, true)
            }
            FilterWrite::StartCompaction => {
                cuckoo.start_compaction()?;
                self.step();
                (FilterResult::Done, true)
            }
            FilterWrite::Step if self.step() => (FilterResult::Busy, false),
            FilterWrite::Step => (FilterResult::Done, false),
        })
    }
}

impl Remains {
    pub(super) fn bytes(&self) -> usize {
        self.counted.bytes
    }

    /// Frees a part; returns what is left.
    pub(super) fn free_some(mut self) -> Option<Self> {
        let has_more = self.memory.free_some(FREED_AT_ONCE);
        self.counted.set(as_usize(self.memory.bytes()));
        has_more.then_some(self)
    }
}

fn as_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Why nothing was done.
enum Stop {
    NoMemory,
    Result(FilterResult<'static>),
}

impl From<CompactionRuns> for Stop {
    fn from(_: CompactionRuns) -> Self {
        Self::Result(FilterResult::Busy)
    }
}

impl From<AddError> for Stop {
    fn from(error: AddError) -> Self {
        Self::Result(match error {
            AddError::Busy => FilterResult::Busy,
            AddError::Full => FilterResult::Full,
            AddError::MaxSubfilters => FilterResult::MaxSubfilters,
            AddError::NoMemory => return Self::NoMemory,
        })
    }
}

impl From<CreateError> for Stop {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::Range => Self::Result(FilterResult::Invalid),
            CreateError::NoMemory => Self::NoMemory,
        }
    }
}

impl From<HeaderError> for Stop {
    fn from(error: HeaderError) -> Self {
        match error {
            HeaderError::Length | HeaderError::Content => Self::Result(FilterResult::Invalid),
            HeaderError::NoMemory => Self::NoMemory,
        }
    }
}

impl From<ChunkError> for Stop {
    fn from(error: ChunkError) -> Self {
        Self::Result(match error {
            ChunkError::Busy => FilterResult::Busy,
            ChunkError::Place => FilterResult::Invalid,
        })
    }
}

/// Runs `run`, which changes nothing where its permission is refused; then makes room for a filter
/// of `before` bytes, and for `beside` bytes, and runs it again.
fn with_room<K: ItemStore, T>(
    items: &mut K,
    (before, beside): (usize, usize),
    mut run: impl FnMut(Permission<'_>) -> Result<T, Stop>,
) -> Result<Result<T, FilterResult<'static>>, NoItem> {
    let mut refused = None;
    let mut done = run(&mut |bytes| {
        let growth = OWN_BYTES + beside + as_usize(bytes.min(MOST_ASKED));
        let has_room = items.has_set_room(before, growth);
        refused = (!has_room).then_some(growth);
        has_room
    });
    if let (Err(Stop::NoMemory), Some(growth)) = (&done, refused) {
        items.make_set_room(before, growth)?;
        done = run(&mut |_| true);
    }
    match done {
        Ok(done) => Ok(Ok(done)),
        Err(Stop::Result(result)) => Ok(Err(result)),
        Err(Stop::NoMemory) => Err(NoItem::OutOfMemory),
    }
}

/// Executes an operation on the filter of a key.
pub(crate) fn execute<K: ItemStore>(
    items: &mut K,
    key: &[u8],
    op: &FilterOp<'_>,
    report: Report<'_>,
) -> Attempt {
    let Ok(node) = items.find() else {
        return match op {
            FilterOp::Write(write) => make(items, key, write, report),
            FilterOp::Read(_) => Ok(report(outcome(FilterResult::Missing, false, false))),
        };
    };
    // SAFETY: `find` has just returned the node (1).
    if unsafe { items.item(node) }.kind() != ItemKind::Filter {
        return Ok(report(Outcome::WrongKind));
    }
    // SAFETY: `find` has just returned the node, which is a filter (1).
    unsafe { on_filter(items, node, op, report) }
}

/// # Safety
///
/// 1. As described for [`ItemStore`], of the node, which is a filter.
unsafe fn on_filter<K: ItemStore>(
    items: &mut K,
    node: Ptr<K::Links>,
    op: &FilterOp<'_>,
    report: Report<'_>,
) -> Attempt {
    // SAFETY: by 1 the node is an item of the store. By 1 of `ItemStore`, it lives until the store
    // is dropped; the reference ends before.
    let item = unsafe { Item::from_raw(node) };
    // SAFETY: the item is linked, so it owns its filter (1). The store excludes all others that may
    // follow the pointer, and `hit`, `make_set_room` and `charge_set` do not; the reference ends
    // with this function, in which nothing is unlinked but other items (2).
    let filter = unsafe { filter_of(item) };
    // Before others are evicted for it.
    // SAFETY: the node is one of the store's items and still linked, by 1.
    unsafe { items.hit(node) };
    let (before, mut dump) = (filter.bytes(), Vec::new());
    let done = match op {
        FilterOp::Read(read) => Ok(match filter.read(*read, &mut dump) {
            Ok(result) => Ok((result, false)),
            Err(Stop::Result(result)) => Err(result),
            Err(Stop::NoMemory) => return Ok(report(Outcome::OutOfMemory)),
        }),
        FilterOp::Write(write) => with_room(items, (before, 0), |may| filter.write(write, may)),
    };
    let (result, is_changed) = match done {
        Ok(Ok(done)) => done,
        Ok(Err(result)) => (result, false),
        Err(why) => return refusal(why, report),
    };
    if result == FilterResult::Busy && !matches!(op, FilterOp::Write(FilterWrite::Step)) {
        filter.note_refusal();
    }
    filter.free_some();
    filter.recount();
    items.charge_set(before, filter.bytes());
    if is_changed {
        // What watches compare, where the item stays the same.
        item.set_cas(items.next_cas());
    }
    let result = match result {
        FilterResult::Dump { next, .. } => FilterResult::Dump { next, bytes: &dump },
        result => result,
    };
    Ok(report(outcome(result, true, is_changed)))
}

/// Makes a filter, if the operation does.
fn make<K: ItemStore>(
    items: &mut K,
    key: &[u8],
    write: &FilterWrite<'_>,
    report: Report<'_>,
) -> Attempt {
    // The item is linked before the filter is counted.
    let made = with_room(items, (0, ITEM_BYTES + key.len()), |may| {
        Ok(match *write {
            FilterWrite::Reserve(settings) => {
                (RedisCuckoo::new(settings, may)?, FilterResult::Done)
            }
            FilterWrite::LoadHeader(header) => {
                (RedisCuckoo::from_header(header, may)?, FilterResult::Done)
            }
            FilterWrite::Add {
                hash,
                create: Some(settings),
                beside,
                ..
            } => {
                let cuckoo = RedisCuckoo::new(settings, may)?;
                // It does not grow for its first item.
                cuckoo.add(hash, beside, &mut |_| false)?;
                (cuckoo, FilterResult::Flag(true))
            }
            _ => return Err(Stop::Result(FilterResult::Missing)),
        })
    });
    let (cuckoo, result) = match made {
        Ok(Ok(made)) => made,
        Ok(Err(result)) => return Ok(report(outcome(result, false, false))),
        Err(why) => return refusal(why, report),
    };
    let place = Place {
        key,
        client_flags: 0,
        deadline: Deadline::NEVER,
    };
    let object = Object::Filter(Filter::new(cuckoo, items.object_memory()));
    // SAFETY: the key has no item (1).
    match unsafe { store_object(items, &place, None, object) } {
        Ok(()) => Ok(report(outcome(result, false, true))),
        Err((_, why)) => refusal(why, report),
    }
}

fn outcome(result: FilterResult<'_>, is_found: bool, is_changed: bool) -> Outcome<'_> {
    Outcome::Filter {
        result,
        is_found,
        is_changed,
    }
}
