//! Protocol-neutral cache operations and their outcomes.
//!
//! These types connect two layers: a **codec** (`corewise-wire`) turns bytes into [`Op`]s and
//! [`Outcome`]s into bytes; an **engine** (`corewise-engine`) executes [`Op`]s and reports
//! [`Outcome`]s. Neither depends on the other, so each can be tested and fuzzed alone.
//!
//! ```text
//!   bytes in ──codec──▶ Op { token, key, verb } ──engine.submit──▶ table
//!   bytes out ◀─codec── Outcome ◀── ReplySink::complete(token, outcome)
//! ```
//!
//! # Guarantees between codec and engine
//!
//! 1. **Atomic operations.** Every read-modify-write (compare-and-swap, counters, append, touch,
//!    win tokens) is *one* [`Op`]; the engine executes it atomically where the item lives. The
//!    caller never reads an item, changes it and writes it back.
//! 2. **One copy.** The engine calls [`ReplySink::complete`] inside its critical section (a lock, a
//!    read-side section, a message handler) with a *borrowed* [`ItemView`]; the sink copies the
//!    value directly into its output buffer. The view must not outlive the call; the borrow checker
//!    enforces this.
//! 3. **Order.** An engine completes the operations of one session in the order in which they were
//!    submitted, whatever happens inside the engine.
//! 4. **Backpressure.** When the sink returns [`Flow::Pause`], the engine completes no further
//!    operation in this call and reports how far it came.
//!
//! [`Verb`] and [`Outcome`] are exhaustive: engines and codecs match without a catch-all arm, so
//! the compiler finds each place that a new verb or outcome concerns. A change that no other verb
//! describes is an [`Edit`], or, if it needs more than an [`Edit`] carries, an [`Update`].

#![forbid(unsafe_code)]

pub mod database;
pub mod filter;
pub mod sorted;

use filter::{FilterOp, FilterResult};
use sorted::{SortedOp, SortedResult};

/// Identifies one operation of a session until it completes.
///
/// The submitter chooses tokens; an engine returns them unchanged.
pub type Token = u32;

/// One reading of the clock: everything executed in one turn of an event loop sees the same `Now`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Monotonic milliseconds on the engine's time line. Starts above zero, so that no live
    /// [`Deadline`] is ever zero.
    pub ms: u64,
    /// Wall-clock seconds since the Unix epoch at the same instant.
    pub unix_s: u64,
}

impl Now {
    /// These milliseconds and seconds.
    #[must_use]
    pub const fn new(ms: u64, unix_s: u64) -> Self {
        Self { ms, unix_s }
    }

    /// Whole seconds on the monotonic time line, as stored in an item's access time.
    #[inline]
    #[must_use]
    pub fn seconds(self) -> u32 {
        (self.ms / 1000) as u32
    }
}

/// When an item expires: milliseconds on the time line of [`Now::ms`], or never.
///
/// An item is expired from the instant `now.ms >= deadline`. A deadline has 48 bits (8,900 years),
/// so that it fits into an item header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deadline(u64);

impl Deadline {
    /// The item never expires.
    pub const NEVER: Self = Self(0);
    /// The item has expired already (for example, a negative expiry time).
    pub const PAST: Self = Self(1);
    /// The latest deadline that can be represented; later ones saturate to it.
    pub const MAX: Self = Self((1 << 48) - 1);

    /// A deadline at `ms` on the time line of [`Now::ms`]. Zero, which would mean *never*, becomes
    /// [`Deadline::PAST`]; values past [`Deadline::MAX`] saturate.
    #[inline]
    #[must_use]
    pub fn at_ms(ms: u64) -> Self {
        Self(ms.clamp(Self::PAST.0, Self::MAX.0))
    }

    /// `ms` milliseconds after `now`.
    #[inline]
    #[must_use]
    pub fn after_ms(now: Now, ms: u64) -> Self {
        Self::at_ms(now.ms.saturating_add(ms))
    }

    /// The packed form: zero for never, otherwise milliseconds below 2^48.
    #[inline]
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The inverse of [`Deadline::to_bits`]; bits above the 48th are dropped.
    #[inline]
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits & Self::MAX.0)
    }

    /// Whether an item with this deadline has expired at `now`.
    #[inline]
    #[must_use]
    pub fn is_past(self, now: Now) -> bool {
        self.0 != 0 && now.ms >= self.0
    }

    /// Milliseconds left, `None` for never, zero when past.
    #[inline]
    #[must_use]
    pub fn remaining_ms(self, now: Now) -> Option<u64> {
        (self.0 != 0).then(|| self.0.saturating_sub(now.ms))
    }
}

/// One operation on one key.
#[derive(Clone, Copy, Debug)]
pub struct Op<'a> {
    /// Returned with the outcome.
    pub token: Token,
    /// The [stored key](database): up to 65,536 arbitrary bytes (codecs enforce the rules of their
    /// protocol), and the prefix. Borrowed only until `submit` returns.
    pub key: &'a [u8],
    /// The operation.
    pub verb: Verb<'a>,
}

impl<'a> Op<'a> {
    /// An operation on `key`.
    #[inline]
    #[must_use]
    pub const fn new(token: Token, key: &'a [u8], verb: Verb<'a>) -> Self {
        Self { token, key, verb }
    }
}

/// The kind of an operation. Each verb is atomic with respect to every other operation on the same
/// key.
#[derive(Clone, Copy, Debug)]
pub enum Verb<'a> {
    /// Read an item, possibly touching, vivifying or winning it.
    Get(Get),
    /// Write an item.
    Store(Store<'a>),
    /// Remove an item or mark it stale.
    Delete(Delete),
    /// Add to or subtract from a decimal counter.
    Arith(Arith),
    /// Change an item by a function of it.
    Edit(Edit<'a>),
    /// Read or change a sorted set.
    Sorted(&'a SortedOp<'a>),
    /// Read or change a cuckoo filter.
    Filter(&'a FilterOp<'a>),
}

/// What the value of an item is.
///
/// [`Verb::Sorted`] is for sorted sets, [`Verb::Filter`] for filters. A [`Get`] or an [`Edit`] that
/// does not allow [any kind](Get::any_kind), a [`Verb::Arith`], an append or prepend, a store that
/// compares cas values, and a [`Delete`] that keeps the item are for strings. On an item of another
/// kind they do nothing, and the outcome is [`Outcome::WrongKind`]. All other operations treat
/// items of all kinds alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ItemKind {
    /// Bytes.
    #[default]
    String = 0,
    /// A small sorted set, whose members are in the item.
    FlatSet = 1,
    /// A larger sorted set, which the item owns.
    Set = 2,
    /// A cuckoo filter, which the item owns.
    Filter = 3,
}

impl ItemKind {
    /// Whether the item owns an object: it has a pointer to what its value is.
    #[inline]
    #[must_use]
    pub const fn owns_object(self) -> bool {
        matches!(self, Self::Set | Self::Filter)
    }
}

/// Parameters of a read.
///
/// Outcomes: [`Outcome::Found`], [`Outcome::Missing`]; [`Outcome::OutOfMemory`] if `vivify` found
/// no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Get {
    /// On a hit, replace the deadline.
    pub touch: Option<Deadline>,
    /// On a miss, create an empty item with this deadline and report it as found with
    /// [`ItemFlags::WON`].
    pub vivify: Option<Vivify>,
    /// On a hit whose remaining life is below this many milliseconds, win the right to refresh the
    /// item (once: later callers see [`ItemFlags::WIN_SENT`]).
    pub recache_below_ms: Option<u64>,
    /// On a hit of a stale item that no caller has won yet, win it (memcached's `mg` does, its
    /// `get` does not).
    pub claim_stale: bool,
    /// Do not change the item's place in the eviction order, its fetched bit and its access time.
    pub quiet: bool,
    /// Find an item of any kind. The value is not shown unless it is a string.
    pub any_kind: bool,
}

impl Get {
    /// A read of an item of any kind that leaves no trace.
    pub const QUIET: Self = Self {
        quiet: true,
        any_kind: true,
        ..Self::touch_or_not(None)
    };

    /// A read that replaces the deadline.
    #[inline]
    #[must_use]
    pub const fn touching(deadline: Deadline) -> Self {
        Self::touch_or_not(Some(deadline))
    }

    const fn touch_or_not(touch: Option<Deadline>) -> Self {
        Self {
            touch,
            vivify: None,
            recache_below_ms: None,
            claim_stale: false,
            quiet: false,
            any_kind: false,
        }
    }
}

/// How to create an item that is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vivify {
    /// Deadline of the new item.
    pub deadline: Deadline,
    /// Its cas value, if the caller supplies one.
    pub new_cas: Option<u64>,
}

/// The condition under which [`Verb::Store`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    /// Always.
    Set,
    /// Always, like `Set`, but a failed store leaves the present item.
    Overwrite,
    /// Only if the key is absent; a present item is bumped and the outcome is
    /// [`Outcome::NotStored`].
    Add,
    /// Only if the key is present; otherwise [`Outcome::NotStored`].
    Replace,
    /// Append the value to the present one; deadline and client flags stay. If the key is absent:
    /// [`Outcome::NotStored`] unless [`Store::vivify`] is set.
    Append,
    /// Prepend the value to the present one; otherwise like `Append`.
    Prepend,
}

/// Parameters of a write.
///
/// Outcomes: [`Outcome::Stored`], [`Outcome::NotStored`], [`Outcome::Exists`] (cas mismatch),
/// [`Outcome::Missing`] (`compare_cas` on an absent key), [`Outcome::TooLarge`],
/// [`Outcome::OutOfMemory`]. When a [`StoreMode::Set`] without `compare_cas` fails with one of
/// the last two, the present item is removed: a cache must not serve a value that its owner meant
/// to overwrite. All other stores leave it.
#[derive(Clone, Copy, Debug)]
pub struct Store<'a> {
    /// The condition for writing.
    pub mode: StoreMode,
    /// The value; borrowed only until `submit` returns.
    pub value: &'a [u8],
    /// Not interpreted by the cache.
    pub client_flags: u32,
    /// When the item expires.
    pub deadline: Deadline,
    /// Write only if the item's cas value is this one.
    pub compare_cas: Option<u64>,
    /// With `compare_cas`: if the item's cas value is *newer* than the one given, store anyway and
    /// mark the item stale (memcached's `I` flag).
    pub stale_if_older: bool,
    /// Give the item this cas value instead of the next one.
    pub new_cas: Option<u64>,
    /// For `Append` and `Prepend`: store the value as a new item with this deadline if the key is
    /// absent.
    pub vivify: Option<Deadline>,
}

impl<'a> Store<'a> {
    /// A store on no condition but the mode's, of an item that never expires.
    #[must_use]
    pub const fn new(mode: StoreMode, value: &'a [u8]) -> Self {
        Self {
            mode,
            value,
            client_flags: 0,
            deadline: Deadline::NEVER,
            compare_cas: None,
            stale_if_older: false,
            new_cas: None,
            vivify: None,
        }
    }

    /// The same with these client flags.
    #[must_use]
    pub const fn with_flags(mut self, client_flags: u32) -> Self {
        self.client_flags = client_flags;
        self
    }

    /// The same with this deadline.
    #[must_use]
    pub const fn until(mut self, deadline: Deadline) -> Self {
        self.deadline = deadline;
        self
    }

    /// The same if the item's cas value is `cas`.
    #[must_use]
    pub const fn if_cas(mut self, cas: u64) -> Self {
        self.compare_cas = Some(cas);
        self
    }

    /// The same with `cas` as the new cas value.
    #[must_use]
    pub const fn given_cas(mut self, cas: u64) -> Self {
        self.new_cas = Some(cas);
        self
    }
}

/// Parameters of a removal.
///
/// Outcomes: [`Outcome::Deleted`], [`Outcome::Stored`] (kept: `mark_stale` or `drop_value`),
/// [`Outcome::Missing`], [`Outcome::Exists`], [`Outcome::OutOfMemory`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delete {
    /// Delete only if the item's cas value is this one.
    pub compare_cas: Option<u64>,
    /// Keep the item, mark it stale, clear its win token, and give it a new cas value.
    pub mark_stale: bool,
    /// Keep the item, but drop its value and client flags.
    pub drop_value: bool,
    /// With `mark_stale`: the new deadline.
    pub touch: Option<Deadline>,
    /// With `mark_stale` or `drop_value`: the new cas value, instead of the next one.
    pub new_cas: Option<u64>,
}

impl Delete {
    /// Marks the item stale.
    pub const STALE: Self = Self {
        compare_cas: None,
        mark_stale: true,
        drop_value: false,
        touch: None,
        new_cas: None,
    };
}

/// Parameters of a counter operation.
///
/// Counters are the decimal ASCII form of a `u64`; a counter that gets shorter is padded with
/// blanks to its former length, as in memcached.
///
/// Outcomes: [`Outcome::Counter`], [`Outcome::Missing`], [`Outcome::NonNumeric`],
/// [`Outcome::Exists`], [`Outcome::NotStored`], [`Outcome::OutOfMemory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arith {
    /// The amount.
    pub delta: u64,
    /// Subtract (stopping at zero) instead of adding (wrapping at 2^64).
    pub decrement: bool,
    /// Change the counter only if the item's cas value is this one.
    pub compare_cas: Option<u64>,
    /// Give the item this cas value instead of the next one.
    pub new_cas: Option<u64>,
    /// On success, replace the deadline.
    pub touch: Option<Deadline>,
    /// If absent, create the counter with this value and deadline instead of reporting a miss.
    pub vivify: Option<(u64, Deadline)>,
}

impl Arith {
    /// An increment on no condition.
    #[must_use]
    pub const fn new(delta: u64) -> Self {
        Self {
            delta,
            decrement: false,
            compare_cas: None,
            new_cas: None,
            touch: None,
            vivify: None,
        }
    }
}

/// A change of one item by a function.
///
/// The function depends on nothing but its parameters, so an engine may call it again, and may copy
/// the edit and execute it later.
///
/// Outcomes: [`Outcome::Edited`], [`Outcome::Refused`], [`Outcome::TooLarge`],
/// [`Outcome::OutOfMemory`]. All but the first leave the item as it was.
///
/// ```
/// use corewise_ops::{Decided, Decision, Edit, ItemView, StoreRule};
///
/// /// Cuts a value to a number of bytes, and tells how many bytes it had.
/// fn cut(
///     edit: &Edit<'_>,
///     old: Option<&ItemView<'_>>,
///     new: &mut Vec<u8>,
/// ) -> Result<Decided, &'static str> {
///     let old = old.ok_or("there is nothing to cut")?;
///     let kept = old.value.len().min(edit.number as usize);
///     new.extend_from_slice(&old.value[..kept]);
///     Ok(Decided {
///         decision: Decision::Write { client_flags: old.client_flags, deadline: old.deadline },
///         number: old.value.len() as i64,
///     })
/// }
///
/// let rule = StoreRule::default();
/// let edit = Edit { decide: cut, value: b"", number: 3, rule, any_kind: false };
/// assert!((edit.decide)(&edit, None, &mut Vec::new()).is_err());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Edit<'a> {
    /// Decides what to do with the present item.
    pub decide: Decide,
    /// The first parameter; borrowed only until `submit` returns.
    pub value: &'a [u8],
    /// The second parameter.
    pub number: i64,
    /// The third parameter.
    pub rule: StoreRule,
    /// Whether it is for items of any kind; see [`ItemKind`].
    pub any_kind: bool,
}

/// When an [`Edit`] stores, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreRule {
    /// The condition: [`StoreMode::Overwrite`], [`StoreMode::Add`] or [`StoreMode::Replace`].
    pub mode: StoreMode,
    /// The new deadline.
    pub deadline: Deadline,
    /// A present item keeps its deadline.
    pub keeps_deadline: bool,
}

impl Default for StoreRule {
    /// Stores always, and for ever.
    fn default() -> Self {
        Self {
            mode: StoreMode::Overwrite,
            deadline: Deadline::NEVER,
            keeps_deadline: false,
        }
    }
}

/// The function of an [`Edit`]. Its parameters are the edit, the present item of the key if there
/// is one, and an empty buffer for a new value.
///
/// Runs inside the engine's critical section, in which the key has no other writer: it must neither
/// block nor call back into the engine. If it fails, nothing is changed, and the outcome is
/// [`Outcome::Refused`] with the error.
pub type Decide =
    fn(&Edit<'_>, Option<&ItemView<'_>>, &mut Vec<u8>) -> Result<Decided, &'static str>;

/// What an [`Edit`] does, and what it reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// What to do with the item.
    pub decision: Decision,
    /// Reported in [`Outcome::Edited`]; its meaning belongs to the edit.
    pub number: i64,
}

/// A [`Change`] whose new value is in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// See [`Change::Keep`].
    Keep,
    /// See [`Change::Touch`].
    Touch(Deadline),
    /// See [`Change::Remove`].
    Remove,
    /// See [`Change::Write`].
    Write {
        /// Not interpreted by the cache.
        client_flags: u32,
        /// When the item expires.
        deadline: Deadline,
    },
}

impl Decision {
    /// Whether it changes something, given whether the key has an item.
    ///
    /// ```
    /// assert!(!corewise_ops::Decision::Remove.is_change(false));
    /// ```
    #[must_use]
    pub fn is_change(self, is_present: bool) -> bool {
        match self {
            Self::Keep => false,
            Self::Touch(_) | Self::Remove => is_present,
            Self::Write { .. } => true,
        }
    }

    /// The change, with the contents of the buffer.
    ///
    /// ```
    /// use corewise_ops::{Change, Decision};
    /// assert_eq!(Decision::Remove.with(b"unused"), Change::Remove);
    /// ```
    #[inline]
    #[must_use]
    pub fn with(self, value: &[u8]) -> Change<'_> {
        match self {
            Self::Keep => Change::Keep,
            Self::Touch(deadline) => Change::Touch(deadline),
            Self::Remove => Change::Remove,
            Self::Write {
                client_flags,
                deadline,
            } => Change::Write {
                value,
                client_flags,
                deadline,
            },
        }
    }
}

/// A change of one item that no [`Verb`] describes. An engine executes it atomically, like a verb.
///
/// ```
/// use corewise_ops::{Change, Deadline, ItemView, Update};
///
/// /// Doubles a value.
/// struct Double(Vec<u8>);
///
/// impl Update for Double {
///     fn update(&mut self, old: Option<&ItemView<'_>>) -> Change<'_> {
///         let Some(old) = old else { return Change::Keep };
///         self.0 = old.value.repeat(2);
///         Change::Write {
///             value: &self.0,
///             client_flags: old.client_flags,
///             deadline: old.deadline,
///         }
///     }
/// }
///
/// assert!(matches!(Double(Vec::new()).update(None), Change::Keep));
/// ```
pub trait Update {
    /// Decides what to do with the present item of the key, `None` if there is none.
    ///
    /// Runs inside the engine's critical section, in which the key has no other writer: it must
    /// neither block nor call back into the engine. The engine may call it several times, each time
    /// with the item of that moment; only the last decision is carried out.
    fn update(&mut self, old: Option<&ItemView<'_>>) -> Change<'_>;

    /// Whether it is for items of any kind; see [`ItemKind`].
    fn takes_any_kind(&self) -> bool {
        false
    }
}

/// What an [`Update`] does with the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'u> {
    /// Nothing.
    Keep,
    /// Replace its deadline; nothing if there is no item.
    Touch(Deadline),
    /// Remove it; nothing if there is no item.
    Remove,
    /// Store this item, whether there was one or not.
    Write {
        /// The value; borrowed only until the item is stored.
        value: &'u [u8],
        /// Not interpreted by the cache.
        client_flags: u32,
        /// When the item expires.
        deadline: Deadline,
    },
}

/// What became of an [`Update`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the change may have been refused"]
pub enum Updated {
    /// The change was made.
    Done,
    /// Nothing was changed: the item is larger than the engine accepts.
    TooLarge,
    /// Nothing was changed: there is no room, and eviction is off or could not make any.
    OutOfMemory,
    /// Nothing was changed: the item is not a string.
    WrongKind,
}

/// Flags that an [`ItemView`] carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemFlags(u8);

impl ItemFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// This caller won the right to refresh the item.
    pub const WON: Self = Self(1);
    /// Another caller won it earlier.
    pub const WIN_SENT: Self = Self(2);
    /// The item was marked stale.
    pub const STALE: Self = Self(4);
    /// The item had been read before this operation.
    pub const FETCHED: Self = Self(8);

    /// Whether every bit of `other` is set.
    #[inline]
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The union of both sets of bits.
    #[inline]
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether no bit is set.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// An item as a sink sees it, for the duration of one call.
#[derive(Clone, Copy, Debug)]
pub struct ItemView<'a> {
    /// The key as stored.
    pub key: &'a [u8],
    /// The value; empty unless the item is a string.
    pub value: &'a [u8],
    /// What the value is.
    pub kind: ItemKind,
    /// Not interpreted by the cache.
    pub client_flags: u32,
    /// The item's cas value.
    pub cas: u64,
    /// When it expires (after this operation).
    pub deadline: Deadline,
    /// Seconds since it was last read or written, before this operation.
    pub idle_s: u32,
    /// Win token, staleness, fetched bit.
    pub flags: ItemFlags,
    /// Bytes that the item occupies, including the allocator's overhead.
    pub footprint: usize,
    /// The engine's size class of the item, for statistics.
    pub size_class: u32,
}

/// Why a key was not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// There is no such item.
    Unknown,
    /// There was one, but it had expired.
    Expired,
    /// There was one, but it was written before a flush.
    Flushed,
}

/// The result of an operation.
#[derive(Clone, Copy, Debug)]
// A tag of its own: one in an unused value of the view's kind makes each match longer.
#[repr(u8)]
pub enum Outcome<'a> {
    /// A read found the item (or created it: [`ItemFlags::WON`] with an empty value).
    Found(ItemView<'a>),
    /// The item was written; the view shows the item after the operation.
    Stored(ItemView<'a>),
    /// A counter was changed (or created).
    Counter {
        /// Its new value.
        value: u64,
        /// The item after the operation; `view.value` is the decimal form, possibly with trailing
        /// blanks.
        view: ItemView<'a>,
    },
    /// The item was removed.
    Deleted,
    /// There is no such item.
    Missing(Absence),
    /// The store's condition did not hold.
    NotStored,
    /// The cas value did not match.
    Exists,
    /// The item is not a decimal number.
    NonNumeric,
    /// The item is larger than the engine accepts.
    TooLarge,
    /// There is no room, and eviction is off or could not make any.
    OutOfMemory,
    /// An [`Edit`] was carried out.
    Edited {
        /// What it reports: [`Decided::number`].
        number: i64,
        /// The value that the key had before.
        old: Option<&'a [u8]>,
        /// Whether it changed the item; a write of the same value does.
        is_changed: bool,
    },
    /// An [`Edit`] failed for this reason.
    Refused(&'static str),
    /// The item is of a [kind](ItemKind) that the operation is not for.
    WrongKind,
    /// A [`SortedOp`] was carried out.
    Sorted {
        /// Its result.
        result: SortedResult<'a>,
        /// Whether there was a set before.
        is_found: bool,
        /// Whether it changed the set, or its item.
        is_changed: bool,
    },
    /// A [`FilterOp`] was carried out.
    Filter {
        /// Its result.
        result: FilterResult<'a>,
        /// Whether there was a filter before.
        is_found: bool,
        /// Whether it changed the filter, or its item.
        is_changed: bool,
    },
}

/// Whether an engine may continue to complete operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an engine that ignores Pause overruns the caller's buffers"]
pub enum Flow {
    /// Continue.
    Continue,
    /// Complete no further operation in this call.
    Pause,
}

/// Receives outcomes.
///
/// `complete` runs inside the engine's critical section: it must neither block nor call back into
/// the engine, and should only copy bytes, into a buffer or, if the value is large, to a socket
/// that does not block.
pub trait ReplySink {
    /// Reports the outcome of the operation submitted under `token`.
    fn complete(&mut self, token: Token, outcome: Outcome<'_>) -> Flow;
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now {
        ms: 5_000,
        unix_s: 1_700_000_000,
    };

    #[test]
    fn never_is_never_past() {
        assert!(!Deadline::NEVER.is_past(Now {
            ms: u64::MAX,
            ..NOW
        }));
        assert_eq!(Deadline::NEVER.remaining_ms(NOW), None);
    }

    #[test]
    fn a_deadline_at_the_present_instant_is_past() {
        assert!(Deadline::at_ms(5_000).is_past(NOW));
        assert!(!Deadline::at_ms(5_001).is_past(NOW));
        assert_eq!(Deadline::at_ms(5_001).remaining_ms(NOW), Some(1));
    }

    #[test]
    fn zero_milliseconds_is_the_past_and_not_never() {
        assert_eq!(Deadline::at_ms(0), Deadline::PAST);
        assert!(Deadline::at_ms(0).is_past(NOW));
    }

    #[test]
    fn far_deadlines_saturate_below_the_packed_width() {
        let far = Deadline::after_ms(NOW, u64::MAX);
        assert_eq!(far, Deadline::MAX);
        assert_eq!(Deadline::from_bits(far.to_bits()), far);
        assert!(far.to_bits() < 1 << 48);
    }
}
