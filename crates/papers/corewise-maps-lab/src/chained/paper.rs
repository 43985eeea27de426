//! The resize algorithms of \[ATC11\], unchanged except for the differences listed below.
//!
//! *A shrink* (§4) blocks all updates, links the chains that are merged, the last to the first, and
//! publishes the smaller table. Then updates proceed, and the larger table is freed when readers
//! have left it. *In place* (§4.2) the smaller table is the beginning of the larger one, and
//! publishing it means storing its number of buckets.
//!
//! *An expansion* (§4) blocks all updates, points each new bucket to its first node, and publishes
//! the larger table. Then updates proceed. When readers of the smaller table have left, chains are
//! *unzipped* in passes, with a wait for readers between two passes.
//!
//! # Unzipping
//!
//! The buckets that a bucket of the smaller table is divided into are its *children*; a child's
//! *path* is the sequence of nodes that its readers walk. A link is *foreign* if it leads from a
//! child's bucket, or from its own part of the chain, to another child's node. There are two ways
//! to find the links that may be cut:
//!
//! 1. *With auxiliary storage*, as in the paper: the bucket of the smaller table points to the rest
//!    of the zipped chain, its *trunk*. A pass cuts behind the first run of the trunk.
//! 2. *Without auxiliary storage* (§4 states that it can be done "at the cost of additional
//!    traversals", but not how): a pass cuts the first foreign link of each path, if no other path
//!    uses it to reach its own nodes. Only the chains themselves record the progress. In sorted
//!    chains one pass makes all cuts.
//!
//! # Updates while chains are zipped
//!
//! They run under the lock of the parent's stripe. An insertion goes to the front of its child's
//! path, or, in a sorted chain, to its place. A removed node may be reached through several links,
//! and all of them are led past it. With auxiliary storage, a link from before the trunk must lead
//! on to a node of the same child. A node that is removed from the trunk may have been a whole run:
//! the next pass leaves its bucket alone, because readers that stand on the node still go the old
//! way. (The paper checks the auxiliary pointer only, §4.1.) Without auxiliary storage, every link
//! to the node becomes a link to the next node: a reader on the removed node continues on the same
//! way as all others, and every link that must not be cut is on some path.
//!
//! # Differences to the paper
//!
//! 1. In place, the waits before the number of buckets is changed (§4.2, step 3 of the shrink, and
//!    the one added to the expansion) are omitted. The number is stored with Release and loaded
//!    with Acquire, so a thread that sees it also sees the chains.
//! 2. In place, an expansion needs no auxiliary storage: the bucket that both tables share is one
//!    more link that is foreign at first.
//! 3. Sorted, an expansion by any factor needs one pass: a bucket points to its own part from the
//!    beginning, so a path enters another child's part only at its end.
//! 4. An expansion step grows the table at most by a factor of 8.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32};
use corewise_atomic::{Slots, hint, mutant, ordering};
use corewise_maps::relativistic::ResizeError;
use corewise_rcu::{Domain, Section};

use super::Resized;
use super::algorithm::{
    Algorithm, ChainLink, Head, Lookups, Stripes, as_ptr, follow, lead, log2_of,
};
use super::bucket_array::Heads;
use super::order::{Order, Reversed, Unsorted, bucket_of};

/// The maximum number of doublings in one expansion step.
const MOST_DOUBLINGS: u32 = 3;
/// The maximum number of buckets of a table that is expanded in place, as a logarithm.
const MOST_IN_PLACE_LOG2: u32 = if cfg!(any(corewise_loom, corewise_shuttle)) {
    3
} else {
    26
};
/// An upper limit that no table reaches.
const MOST_LOG2: u32 = 40;

/// The properties that distinguish a resize variant.
pub trait ResizeVariant: Send + Sync + 'static {
    /// See [`Algorithm::NAME`].
    const NAME: &'static str;
    /// Whether the larger table is built in the array of the smaller one.
    const EXPANDS_IN_PLACE: bool = false;
    /// Whether the smaller table is the beginning of the larger one.
    const SHRINKS_IN_PLACE: bool = false;
    /// Whether the smaller table records how far its chains are unzipped.
    const AUXILIARY: bool = false;
    /// The choice of buckets and the order of chains.
    type Order: Order;
}

macro_rules! forms {
    ($($(#[$doc:meta])* $name:ident = $form:ident, $text:literal, $order:ty, { $($body:tt)* })+) => {
        $(
            /// The properties of the variant.
            pub enum $form {}

            impl ResizeVariant for $form {
                const NAME: &'static str = $text;
                type Order = $order;
                $($body)*
            }

            $(#[$doc])*
            pub type $name = Paper<$form>;
        )+
    };
}

forms! {
    /// Expanded and shrunk by copying (§4): the paper's main algorithm.
    OutOfPlace = OutOfPlaceForm, "out-of-place", Unsorted, {
        const AUXILIARY: bool = true;
    }
    /// Expanded by copying, shrunk in place: what the paper measured (§6.1).
    Atc11 = Atc11Form, "atc11", Unsorted, {
        const AUXILIARY: bool = true;
        const SHRINKS_IN_PLACE: bool = true;
    }
    /// Expanded and shrunk in place (§4.2). Addresses for 2^26 buckets are reserved; memory is used
    /// for the buckets in use. As the paper states, only a shrink saves memory of buckets this way:
    /// an expansion needs the old buckets and the new ones, which are adjacent.
    InPlace = InPlaceForm, "in-place", Unsorted, {
        const EXPANDS_IN_PLACE: bool = true;
        const SHRINKS_IN_PLACE: bool = true;
    }
    /// As [`OutOfPlace`], but the smaller table is freed as soon as readers have left it (§4).
    NoAuxiliary = NoAuxiliaryForm, "no-auxiliary", Unsorted, {}
    /// Chains sorted by the reversed hash (§4.3): an expansion cuts each chain once.
    SortedByReversedHash = ReversedForm, "sorted-reversed", Reversed, {}
}

/// A table that is resized as in \[ATC11\]; see the module's header.
pub struct Paper<F> {
    domain: Domain,
    /// The table that readers use.
    current: AtomicPtr<PaperBuckets>,
    /// Not null while chains are zipped. Changed under all locks.
    zipped: AtomicPtr<Zipped>,
    stripes: Stripes,
    _form: PhantomData<F>,
}

pub(super) struct PaperBuckets {
    log2: AtomicU32,
    heads: Heads,
}

/// An expansion that is published and not unzipped yet.
struct Zipped {
    smaller: u32,
    larger: u32,
    trunks: Option<Trunks>,
}

/// Auxiliary storage: the rest of each zipped chain, and whether a pass must skip it once.
struct Trunks {
    /// The table that was replaced.
    table: Replaced,
    held: Slots<AtomicU8>,
}

/// A table that was unpublished and may still have readers. To be dropped when they have left. (Not
/// a box: no other thread may access the contents of a box.)
pub(super) struct Replaced(NonNull<PaperBuckets>);

// SAFETY: it owns its table, which is already shared with readers.
unsafe impl Send for Replaced {}
// SAFETY: a table is shared with readers already.
unsafe impl Sync for Replaced {}

impl std::ops::Deref for Replaced {
    type Target = PaperBuckets;

    fn deref(&self) -> &PaperBuckets {
        // SAFETY: ours until it is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        // SAFETY: made from a box by `PaperBuckets::try_new`; readers have left, see the type.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// The result of a pass over one bucket's chain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// More is left to cut.
    More,
    /// Nothing is left to cut.
    Done,
}

/// A step on a path: the word that points to a node, the owner of that word (none: the bucket), and
/// the node.
struct Step<'p> {
    from: Option<NonNull<ChainLink>>,
    word: &'p Head,
    to: NonNull<ChainLink>,
}

/// The nodes of a chain, from a word on.
///
/// # Safety
///
/// 1. The caller is in a section, or holds the lock of the chain's stripe, while the iterator or
///    its steps are used.
unsafe fn path(head: &Head) -> impl Iterator<Item = Step<'_>> {
    let (mut from, mut word) = (None, head);
    std::iter::from_fn(move || {
        let to = follow(word)?;
        let step = Step { from, word, to };
        from = Some(to);
        // SAFETY: nodes are freed a grace period after they were unlinked, by a thread that holds
        // the lock.
        word = unsafe { &to.as_ref().next };
        Some(step)
    })
}

/// # Safety
///
/// 1. As for [`path`].
unsafe fn hash_of(link: NonNull<ChainLink>) -> u64 {
    // SAFETY: the caller's.
    unsafe { link.as_ref() }.hash()
}

/// The first node from `link` on that belongs to a bucket.
///
/// # Safety
///
/// 1. As for [`path`].
unsafe fn first_of(
    link: Option<NonNull<ChainLink>>,
    bucket: usize,
    log2: u32,
) -> Option<NonNull<ChainLink>> {
    std::iter::successors(link, |link| {
        // SAFETY: the caller's.
        follow(unsafe { &link.as_ref().next })
    })
    // SAFETY: the caller's.
    .find(|link| bucket_of(unsafe { hash_of(*link) }, log2) == bucket)
}

impl PaperBuckets {
    /// A table that uses the first 2^`log2` buckets of an array.
    ///
    /// # Panics
    ///
    /// If the array has fewer buckets.
    fn try_new(heads: Option<Heads>, log2: u32) -> Option<Box<Self>> {
        let heads = heads?;
        assert!(1 << log2 <= heads.len(), "fewer than 2^{log2} buckets");
        let log2 = AtomicU32::new(log2);
        Some(Box::new(Self { log2, heads }))
    }

    #[inline(always)]
    fn log2(&self) -> u32 {
        // Acquire: pairs with the Release in `set_log2`: the chains are seen as they were made for
        // it.
        self.log2.load(Acquire)
    }

    /// Sets the number of buckets in use.
    ///
    /// # Panics
    ///
    /// If the array has fewer buckets.
    fn set_log2(&self, log2: u32) {
        assert!(1 << log2 <= self.heads.len(), "fewer than 2^{log2} buckets");
        // Release: pairs with the Acquire above.
        let release = ordering!(Release, "chained_relaxed_log2");
        self.log2.store(log2, release);
    }

    fn len(&self) -> usize {
        1 << self.log2()
    }
}

impl Zipped {
    fn children<O: Order>(&self, parent: usize) -> impl Iterator<Item = usize> {
        let (smaller, larger) = (self.smaller, self.larger);
        (0..1 << (larger - smaller)).map(move |nth| O::child(parent, nth, smaller, larger))
    }
}

impl<F: ResizeVariant> Paper<F> {
    /// # Safety
    ///
    /// 1. The caller is in a section, holds a lock, or is the only thread that resizes, while the
    ///    reference is used.
    #[inline(always)]
    unsafe fn current(&self) -> &PaperBuckets {
        // Acquire: pairs with the AcqRel in `publish`.
        // SAFETY: never null; freed a grace period after it was replaced, which happens under all
        // locks.
        unsafe { &*self.current.load(Acquire) }
    }

    /// The bucket of a hash, as updates see it.
    ///
    /// # Safety
    ///
    /// 1. As for [`Paper::current`].
    #[inline(always)]
    pub(super) unsafe fn head(&self, hash: u64) -> &Head {
        // SAFETY: the caller's; `try_new` and `set_log2` check that the array has 2^log2 buckets.
        unsafe {
            let table = self.current();
            table.heads.at(bucket_of(hash, table.log2()))
        }
    }

    /// The zipped expansion, if there is one.
    ///
    /// # Safety
    ///
    /// 1. The caller holds a lock while the reference is used.
    unsafe fn zipped(&self) -> Option<&Zipped> {
        // Acquire: pairs with the AcqRel in `set_zipped`. (The locks would be enough.)
        // SAFETY: changed and freed under all locks, of which the caller holds one, by 1.
        unsafe { self.zipped.load(Acquire).as_ref() }
    }

    /// Replaces the zipped expansion and returns the previous one.
    ///
    /// # Safety
    ///
    /// 1. The caller holds all locks.
    unsafe fn set_zipped(&self, zipped: Option<Box<Zipped>>) -> Option<Box<Zipped>> {
        let new = zipped.map_or(ptr::null_mut(), Box::into_raw);
        // AcqRel: pairs with the Acquire above.
        let old = self.zipped.swap(new, AcqRel);
        // SAFETY: made from a box; no other thread holds a lock, by 1, so none uses it.
        (!old.is_null()).then(|| unsafe { Box::from_raw(old) })
    }

    /// Publishes a table and returns the previous one, which may still have readers.
    ///
    /// # Safety
    ///
    /// 1. The caller holds all locks.
    /// 2. The returned table is dropped when readers have left it, a grace period later.
    unsafe fn publish(&self, table: Box<PaperBuckets>) -> Replaced {
        // AcqRel: pairs with the Acquire in `current`: the buckets are seen as they were made.
        let old = self.current.swap(Box::into_raw(table), AcqRel);
        Replaced(NonNull::new(old).expect("there always is a table"))
    }

    fn new_table(&self, log2: u32) -> Result<Box<PaperBuckets>, ResizeError> {
        PaperBuckets::try_new(Heads::try_new(1 << log2), log2).ok_or(ResizeError::NoMemory)
    }

    /// Waits for readers.
    fn wait(&self, resized: &mut Resized) -> Result<(), ResizeError> {
        resized.waits += 1;
        self.domain.try_synchronize()?;
        Ok(())
    }
}

// ---- shrink

impl<F: ResizeVariant> Paper<F> {
    /// # Safety
    ///
    /// 1. The caller is the only thread that resizes, and in no section: it can wait for readers.
    unsafe fn shrink(&self, to: u32) -> Result<Resized, ResizeError> {
        let mut resized = Resized::default();
        // SAFETY: only one thread resizes.
        let from = unsafe { self.current() }.log2();
        // SAFETY: only the caller resizes (1); the old buckets are dropped after the wait (2).
        let old = unsafe { self.join_all(to) }?;
        resized.passes = 1;
        self.wait(&mut resized)?;
        drop(old);
        if F::SHRINKS_IN_PLACE {
            // SAFETY: as above. No reader that knows these buckets is left, and updates use the
            // number of buckets.
            unsafe { self.current().heads.discard(1 << to..1 << from) };
        }
        Ok(resized)
    }

    /// Merges the chains and publishes the smaller table; returns the larger one, if that is
    /// another.
    ///
    /// # Safety
    ///
    /// 1. The caller is the only thread that resizes.
    /// 2. The returned table is dropped when readers have left it, a grace period later.
    pub(super) unsafe fn join_all(&self, to: u32) -> Result<Option<Replaced>, ResizeError> {
        // SAFETY: only one thread resizes; here and below.
        let from = unsafe { self.current() }.log2();
        let new = if F::SHRINKS_IN_PLACE {
            None
        } else {
            Some(self.new_table(to)?)
        };
        let all = self.stripes.lock_all();
        // SAFETY: only one thread resizes.
        let old = unsafe { self.current() };
        if F::SHRINKS_IN_PLACE && mutant!("chained_early_publish") {
            old.set_log2(to);
        }
        let heads = new.as_ref().map_or(&old.heads, |new| &new.heads);
        for (bucket, head) in heads[..1 << to].iter().enumerate() {
            // SAFETY: all locks are held (1).
            unsafe { self.join(old, bucket, from, to, head) };
        }
        let replaced = match new {
            // SAFETY: all locks are held (1), and the caller upholds 2.
            Some(new) => Some(unsafe { self.publish(new) }),
            None => {
                old.set_log2(to);
                None
            }
        };
        all.set_for_buckets(to);
        Ok(replaced)
    }

    /// Links the chains that belong to `bucket` of the smaller table, and points `head` to the
    /// first.
    ///
    /// # Safety
    ///
    /// 1. The caller holds all locks.
    unsafe fn join(&self, table: &PaperBuckets, bucket: usize, from: u32, to: u32, head: &Head) {
        let mut rest = None;
        for nth in (0..1usize << (from - to)).rev() {
            let part = &table.heads[F::Order::child(bucket, nth, to, from)];
            // SAFETY: all stripes are locked.
            let last = unsafe { path(part) }.last();
            if let Some(last) = last {
                let first = follow(part);
                if rest.is_some() {
                    // SAFETY: all stripes are locked.
                    lead(unsafe { &last.to.as_ref().next }, rest);
                }
                rest = first;
            }
        }
        lead(head, rest);
    }
}

// ---- expand

impl<F: ResizeVariant> Paper<F> {
    /// # Safety
    ///
    /// 1. The caller is the only thread that resizes, and in no section: it can wait for readers.
    unsafe fn expand(&self, to: u32) -> Result<Resized, ResizeError> {
        let mut resized = Resized::default();
        // SAFETY: only the caller resizes (1); the old buckets are dropped after the wait (2).
        let old = unsafe { self.zip(to) }?;
        // Readers of the smaller table have left after this wait: the links that they needed may be
        // cut.
        if !mutant!("chained_no_wait_after_publish") {
            self.wait(&mut resized)?;
        }
        drop(old);
        loop {
            resized.passes += 1;
            // SAFETY: only the caller resizes (1); the chains were zipped above (2).
            if unsafe { self.unzip() } == Cut::Done {
                break;
            }
            // Before the next cut, readers that have not seen this one must have left.
            if !mutant!("chained_no_wait_between_passes") {
                self.wait(&mut resized)?;
            }
        }
        // SAFETY: only the caller resizes (1); the last pass has left nothing to cut (2).
        unsafe { self.end_unzip(to) };
        Ok(resized)
    }

    /// Ends an expansion.
    ///
    /// # Safety
    ///
    /// 1. The caller is the only thread that resizes.
    /// 2. All its chains are unzipped, and readers of the smaller table have left.
    pub(super) unsafe fn end_unzip(&self, to: u32) {
        let all = self.stripes.lock_all();
        all.set_for_buckets(to);
        // SAFETY: all locks are held (1).
        let done = unsafe { self.set_zipped(None) };
        drop(all);
        drop(done);
    }

    /// Publishes the larger table, whose buckets point into the chains of the smaller one. Returns
    /// the smaller one, if it is no longer needed.
    ///
    /// # Safety
    ///
    /// 1. The caller is the only thread that resizes.
    /// 2. The returned table is dropped when readers have left it, a grace period later.
    pub(super) unsafe fn zip(&self, to: u32) -> Result<Option<Replaced>, ResizeError> {
        // SAFETY: only one thread resizes; here and below.
        let from = unsafe { self.current() }.log2();
        let mut zipped = Box::new(Zipped {
            smaller: from,
            larger: to,
            trunks: None,
        });
        // In place: the array was reserved at its largest, and only its used part grows.
        if F::EXPANDS_IN_PLACE {
            let all = self.stripes.lock_all();
            // SAFETY: only one thread resizes.
            let table = unsafe { self.current() };
            for parent in 0..1 << from {
                // SAFETY: all locks are held (1).
                unsafe { self.lead_children(&zipped, table, table, parent) };
            }
            // SAFETY: all locks are held (1).
            unsafe { self.set_zipped(Some(zipped)) };
            table.set_log2(to);
            drop(all);
            return Ok(None);
        }
        // What can fail comes first: once children are led, readers may use the new table.
        let new = self.new_table(to)?;
        let held = F::AUXILIARY.then(|| Slots::try_zeroed(1 << from).ok_or(ResizeError::NoMemory));
        let held = held.transpose()?;
        let all = self.stripes.lock_all();
        // SAFETY: only one thread resizes.
        let old = unsafe { self.current() };
        for parent in 0..1 << from {
            // SAFETY: all locks are held (1).
            unsafe { self.lead_children(&zipped, old, &new, parent) };
        }
        // SAFETY: all locks are held (1). The caller upholds 2, or `end_unzip` drops it.
        let mut old = Some(unsafe { self.publish(new) });
        if let Some((held, table)) = held.map(|held| (held, old.take())) {
            zipped.trunks = table.map(|table| Trunks { table, held });
        }
        // SAFETY: all locks are held (1).
        unsafe { self.set_zipped(Some(zipped)) };
        drop(all);
        Ok(old)
    }

    /// Points each child's bucket to its first node. In place, the bucket that is also the parent's
    /// stays unchanged, for the readers that know the parent.
    ///
    /// # Safety
    ///
    /// 1. The caller holds all locks.
    unsafe fn lead_children(
        &self,
        zipped: &Zipped,
        old: &PaperBuckets,
        new: &PaperBuckets,
        parent: usize,
    ) {
        let chain = follow(&old.heads[parent]);
        for child in zipped.children::<F::Order>(parent) {
            if !(F::EXPANDS_IN_PLACE && child == parent) {
                // SAFETY: all stripes are locked.
                let first = unsafe { first_of(chain, child, zipped.larger) };
                lead(&new.heads[child], first);
            }
        }
    }

    /// A pass over all chains.
    ///
    /// # Safety
    ///
    /// 1. The caller is the only thread that resizes.
    /// 2. An expansion was [zipped](Self::zip) and did not end.
    pub(super) unsafe fn unzip(&self) -> Cut {
        let mut all = Cut::Done;
        // Acquire: pairs with the Release that published it, which another thread may have executed
        // if the resize was interrupted.
        // SAFETY: only one thread resizes.
        let (table, zipped) = unsafe { (self.current(), &*self.zipped.load(Acquire)) };
        for parent in 0..1 << zipped.smaller {
            let stripe = |log2| bucket_of(parent as u64, log2);
            let _locked = self.stripes.lock(stripe);
            let cut = match &zipped.trunks {
                // SAFETY: locked above (1).
                Some(trunks) => unsafe { self.cut_trunk(zipped, trunks, parent) },
                // SAFETY: locked above (1).
                None => unsafe { self.cut_foreign(table, zipped, parent) },
            };
            if cut == Cut::More {
                all = cut;
            }
        }
        all
    }

    /// Cuts behind the first run of a trunk (§4, step 6 of the expansion).
    ///
    /// # Safety
    ///
    /// 1. The caller holds the lock of the stripe of `parent`.
    unsafe fn cut_trunk(&self, zipped: &Zipped, trunks: &Trunks, parent: usize) -> Cut {
        let trunk = &trunks.table.heads[parent];
        let held = &trunks.held[parent];
        // Relaxed, both: under the stripe's lock.
        if held.load(Relaxed) != 0 {
            held.store(0, Relaxed);
            return Cut::More;
        }
        // SAFETY: the stripe is locked; here and below.
        let child = |link| bucket_of(unsafe { hash_of(link) }, zipped.larger);
        let Some(first) = follow(trunk) else {
            return Cut::Done;
        };
        let own = child(first);
        // SAFETY: the stripe is locked.
        let foreign = unsafe { path(trunk) }.find(|step| child(step.to) != own);
        let Some(foreign) = foreign else {
            lead(trunk, None);
            return Cut::Done;
        };
        // SAFETY: the stripe is locked.
        let next_own = unsafe { first_of(Some(foreign.to), own, zipped.larger) };
        lead(foreign.word, next_own);
        lead(trunk, Some(foreign.to));
        let other = child(foreign.to);
        // SAFETY: the stripe is locked.
        let is_one_run = unsafe { path(trunk) }.all(|step| child(step.to) == other);
        if next_own.is_none() && is_one_run {
            lead(trunk, None);
            Cut::Done
        } else {
            Cut::More
        }
    }

    /// Cuts the first foreign link of each path, if no other path needs it.
    ///
    /// # Safety
    ///
    /// 1. The caller holds the lock of the stripe of `parent`.
    unsafe fn cut_foreign(&self, table: &PaperBuckets, zipped: &Zipped, parent: usize) -> Cut {
        let larger = zipped.larger;
        // SAFETY: the stripe is locked; here and below.
        let child_of = |link| bucket_of(unsafe { hash_of(link) }, larger);
        let head = |child: usize| &table.heads[child];
        // Whether another child's readers may use the link to reach their own nodes behind it.
        let is_needed_by_others = |from: NonNull<ChainLink>, to: NonNull<ChainLink>, own: usize| {
            let children = zipped.children::<F::Order>(parent);
            children.filter(|child| *child != own).any(|other| {
                // SAFETY: the stripe is locked.
                let behind = unsafe { first_of(Some(to), other, larger) };
                // SAFETY: the stripe is locked.
                behind.is_some() && unsafe { path(head(other)) }.any(|step| step.to == from)
            })
        };
        let mut cuts: [Option<(usize, Step<'_>)>; 1 << MOST_DOUBLINGS] = [const { None }; 8];
        let mut left = false;
        for (place, child) in cuts.iter_mut().zip(zipped.children::<F::Order>(parent)) {
            // SAFETY: the stripe is locked.
            let foreign = unsafe { path(head(child)) }.find(|step| child_of(step.to) != child);
            let Some(step) = foreign else { continue };
            let needed = step
                .from
                .is_some_and(|from| is_needed_by_others(from, step.to, child));
            if needed && !mutant!("chained_cuts_what_others_use") {
                left = true;
            } else {
                *place = Some((child, step));
            }
        }
        // All cuts were chosen before the first is made: readers are still where the paths were.
        for (child, step) in cuts.into_iter().flatten() {
            // SAFETY: the stripe is locked.
            let own = unsafe { first_of(Some(step.to), child, larger) };
            lead(step.word, own);
            // SAFETY: the stripe is locked.
            left |= unsafe { path(head(child)) }.any(|step| child_of(step.to) != child);
        }
        if left { Cut::More } else { Cut::Done }
    }
}

// ---- updates while chains are zipped

impl<F: ResizeVariant> Paper<F> {
    /// Leads all links to a node past it.
    ///
    /// # Safety
    ///
    /// 1. The caller holds the lock of the stripe of the node.
    unsafe fn unlink_zipped(&self, zipped: &Zipped, gone: NonNull<ChainLink>) {
        // SAFETY: the stripe is locked; here and below.
        let (table, hash, next) = unsafe {
            let link = gone.as_ref();
            (self.current(), link.hash(), follow(&link.next))
        };
        let parent = bucket_of(hash, zipped.smaller);
        let trunk = zipped.trunks.as_ref().map(|trunks| {
            let head = &trunks.table.heads[parent];
            // SAFETY: the stripe is locked.
            let nodes: Vec<_> = unsafe { path(head) }.map(|step| step.to).collect();
            (trunks, head, nodes)
        });
        let own = bucket_of(hash, zipped.larger);
        for child in zipped.children::<F::Order>(parent) {
            if mutant!("chained_one_link") && child != own {
                continue;
            }
            // SAFETY: the stripe is locked.
            let mut steps = unsafe { path(&table.heads[child]) };
            let Some(step) = steps.find(|step| step.to == gone) else {
                continue;
            };
            let is_before_trunk = trunk
                .as_ref()
                .is_some_and(|(_, _, nodes)| step.from.is_none_or(|from| !nodes.contains(&from)));
            let past = match is_before_trunk {
                // SAFETY: the stripe is locked.
                true => unsafe { first_of(next, child, zipped.larger) },
                false => next,
            };
            lead(step.word, past);
        }
        let Some((trunks, head, nodes)) = trunk else {
            return;
        };
        if nodes.contains(&gone) {
            if nodes[0] == gone {
                lead(head, next);
            }
            if !mutant!("chained_no_hold") {
                // Relaxed: under the stripe's lock.
                trunks.held[parent].store(1, Relaxed);
            }
        }
    }
}

// SAFETY: as for `Algorithm`, below.
unsafe impl<F: ResizeVariant> Lookups for Paper<F> {
    #[inline(always)]
    unsafe fn fetch_bucket(&self, section: &impl Section, hash: u64) {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller is in a section.
        hint::prefetch(unsafe { self.head(hash) });
    }

    #[inline(always)]
    unsafe fn first(&self, section: &impl Section, hash: u64) -> *const ChainLink {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller is in a section.
        as_ptr(follow(unsafe { self.head(hash) }))
    }

    #[inline(always)]
    unsafe fn look_up(
        &self,
        section: &impl Section,
        hash: u64,
        mut eq: impl FnMut(NonNull<ChainLink>) -> bool,
    ) -> Option<NonNull<ChainLink>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller is in a section; here and below.
        let mut at = follow(unsafe { self.head(hash) });
        while let Some(node) = at {
            // SAFETY: as above: the node is not freed.
            let link = unsafe { node.as_ref() };
            if link.hash() == hash {
                if eq(node) {
                    return at;
                }
            } else if F::Order::is_after(link.hash(), hash) {
                return None;
            }
            at = follow(&link.next);
        }
        None
    }
}

// SAFETY: a link is returned while it is in its chain, or when it was removed from it under the
// lock; all links to it are led past it before the lock is released.
unsafe impl<F: ResizeVariant> Algorithm for Paper<F> {
    const NAME: &'static str = F::NAME;

    type Lookups = Self;

    #[inline(always)]
    fn hold<R>(&self, act: impl FnOnce(&Self) -> R) -> R {
        act(self)
    }

    fn try_new(buckets: usize, domain: &Domain) -> Option<Self> {
        let log2 = log2_of(buckets).filter(|log2| *log2 <= MOST_LOG2)?;
        let heads = if F::EXPANDS_IN_PLACE {
            let fits = log2 <= MOST_IN_PLACE_LOG2;
            fits.then(|| Heads::reserve(1 << MOST_IN_PLACE_LOG2))
                .flatten()
        } else {
            Heads::try_new(1 << log2)
        };
        let table = PaperBuckets::try_new(heads, log2)?;
        Some(Self {
            domain: domain.clone(),
            current: AtomicPtr::new(Box::into_raw(table)),
            zipped: AtomicPtr::new(ptr::null_mut()),
            stripes: Stripes::new(log2),
            _form: PhantomData,
        })
    }

    unsafe fn insert(
        &self,
        section: &impl Section,
        link: NonNull<ChainLink>,
        mut eq: impl FnMut(NonNull<ChainLink>) -> bool,
    ) -> Result<(), NonNull<ChainLink>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        // SAFETY: the caller's link, which no other thread has yet.
        let new = unsafe { link.as_ref() };
        let hash = new.hash();
        let _locked = self.stripes.lock(|log2| bucket_of(hash, log2));
        // SAFETY: the stripe is locked; here and below.
        let head = unsafe { self.head(hash) };
        let mut place = head;
        // SAFETY: the stripe is locked.
        for step in unsafe { path(head) } {
            // SAFETY: the stripe is locked.
            let other = unsafe { step.to.as_ref() };
            if F::Order::SORTED {
                if F::Order::is_after(other.hash(), hash) {
                    break;
                }
                place = &other.next;
            }
            if other.hash() == hash && eq(step.to) {
                return Err(step.to);
            }
        }
        // Relaxed: no other thread sees the node before `lead`.
        new.next.store(as_ptr(follow(place)), Relaxed);
        lead(place, Some(link));
        Ok(())
    }

    unsafe fn remove(
        &self,
        section: &impl Section,
        hash: u64,
        mut eq: impl FnMut(NonNull<ChainLink>) -> bool,
    ) -> Option<NonNull<ChainLink>> {
        debug_assert_eq!(section.domain_id(), self.domain.id());
        let _locked = self.stripes.lock(|log2| bucket_of(hash, log2));
        // SAFETY: the stripe is locked; here and below.
        let head = unsafe { self.head(hash) };
        // SAFETY: the stripe is locked.
        let mut steps = unsafe { path(head) }
            .take_while(|step| !F::Order::is_after(unsafe { hash_of(step.to) }, hash));
        // SAFETY: the stripe is locked.
        let found = steps.find(|step| unsafe { hash_of(step.to) } == hash && eq(step.to))?;
        // SAFETY: the stripe is locked (1).
        match unsafe { self.zipped() } {
            // SAFETY: the stripe is locked (1).
            // While chains are zipped, two of them may lead to the node.
            Some(zipped) => unsafe { self.unlink_zipped(zipped, found.to) },
            // SAFETY: the stripe is locked.
            None => lead(found.word, follow(unsafe { &found.to.as_ref().next })),
        }
        Some(found.to)
    }

    fn buckets(&self) -> usize {
        let _section = self.domain.pin();
        // SAFETY: we are in a section.
        unsafe { self.current() }.len()
    }

    unsafe fn resize(&self, buckets: usize) -> Result<Resized, ResizeError> {
        let most = if F::EXPANDS_IN_PLACE {
            MOST_IN_PLACE_LOG2
        } else {
            MOST_LOG2
        };
        let to = log2_of(buckets).filter(|log2| *log2 <= most);
        let to = to.ok_or(ResizeError::NoMemory)?;
        let mut resized = Resized::default();
        // In steps: one expansion zips the chains of few doublings only.
        loop {
            // SAFETY: only one thread resizes.
            let now = unsafe { self.current() }.log2();
            resized += match now.cmp(&to) {
                std::cmp::Ordering::Equal => return Ok(resized),
                // SAFETY: only the caller resizes (1).
                std::cmp::Ordering::Less => unsafe { self.expand(to.min(now + MOST_DOUBLINGS)) }?,
                // SAFETY: only the caller resizes (1).
                std::cmp::Ordering::Greater => unsafe { self.shrink(to) }?,
            };
        }
    }

    fn take_all(&mut self, mut each: impl FnMut(NonNull<ChainLink>)) {
        // SAFETY: we have the table alone.
        let table = unsafe { self.current() };
        for head in &table.heads[..table.len()] {
            let mut at = follow(head);
            lead(head, None);
            while let Some(link) = at {
                // SAFETY: the node was not freed; `each` may free it.
                at = follow(unsafe { &link.as_ref().next });
                each(link);
            }
        }
    }
}

impl<F> Drop for Paper<F> {
    fn drop(&mut self) {
        // Relaxed: we have the table alone.
        // SAFETY: made from a box, and the only pointer to it.
        drop(unsafe { Box::from_raw(self.current.load(Relaxed)) });
    }
}
