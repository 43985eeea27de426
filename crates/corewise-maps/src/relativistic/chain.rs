//! Chains: the nodes, how their names are turned into addresses, and the walks along them.

use std::ptr::{self, NonNull};

use corewise_atomic::ordering;
use corewise_atomic::sync::atomic::AtomicU64;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed};

use super::table::{Table, load, publish, store};
use super::word::{Header, NodeId, Probe, Word, fold, pure};

/// Where the nodes of a table are. Words hold 32-bit names of nodes, not addresses: so a node's place
/// in its chain and its hash are one word, and 2^32 - 1 nodes can be told apart.
///
/// # Safety
///
/// `link` returns the same address for the same name from the insertion of a node until a grace period
/// after its removal, of a [`Link`] that lives and is moved nowhere as long.
pub unsafe trait Arena: Send + Sync {
    /// The node with this name.
    ///
    /// # Safety
    ///
    /// 1. `id` was found in a word of a table that uses this arena, by someone whom removed nodes
    ///    are kept for, or is the name of a node of the caller's own.
    unsafe fn link(&self, id: NodeId) -> NonNull<Link>;
}

/// What a node must have: its place in a chain, and its hash, in 8 bytes.
#[repr(transparent)]
pub struct Link(AtomicU64);

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = assert!(size_of::<Link>() == 8);

impl Link {
    /// The link of a node with this hash that is in no table.
    #[inline]
    pub fn new(hash: u64) -> Self {
        Self(AtomicU64::new(Header::new(fold(hash)).0))
    }

    #[inline(always)]
    pub(super) fn header(&self) -> Header {
        // Acquire: pairs with the Release in `change` and in the insertion's exchange, so that the
        // next node's fields are seen.
        Header(self.0.load(Acquire))
    }

    /// The hash as [`Link::new`] got it, as far as the table uses it: [`reduce`](Link::reduce) of it.
    #[inline(always)]
    pub fn reduced_hash(&self) -> u64 {
        u64::from(self.hash())
    }

    /// What a table uses of a hash: 31 bits. It takes the result for the hash itself.
    #[inline(always)]
    pub fn reduce(hash: u64) -> u64 {
        u64::from(pure(fold(hash)))
    }

    /// The bits of the hash that the table uses.
    #[inline(always)]
    pub(super) fn hash(&self) -> u32 {
        // Relaxed: these bits never change.
        Header(self.0.load(Relaxed)).hash()
    }

    #[inline(always)]
    pub(super) fn next(&self) -> Option<NodeId> {
        self.header().next()
    }

    /// Whether the node was removed from its table or replaced there.
    pub fn is_removed(&self) -> bool {
        self.header().is_gone()
    }

    /// Marks a node that was never in a table as removed, for an owner who tells nodes by that.
    pub fn abandon(&mut self) {
        let header = self.header().gone();
        *self = Self(AtomicU64::new(header.0));
    }

    /// Lets a node that nobody has yet lead to the next one.
    #[inline(always)]
    pub(super) fn prepare(&self, next: Option<NodeId>) {
        // Relaxed, both: published by the store or exchange that links the node.
        let header = Header(self.0.load(Relaxed));
        self.0.store(header.with_next(next).0, Relaxed);
    }

    /// Lets the node lead elsewhere. Under the lock that covers it.
    #[inline]
    pub(super) fn lead_to(&self, next: Option<NodeId>) {
        // Release: pairs with the Acquire in `header`.
        self.0.store(self.header().with_next(next).0, publish());
    }

    /// Marks the node as removed. Under the lock that covers it.
    pub(super) fn remove(&self) {
        // Release: as in `lead_to`. Who stands on the node and reads this still follows it to the next
        // one, which somebody else may have put there.
        let release = ordering!(publish(), "relaxed_mark");
        self.0.store(self.header().gone().0, release);
    }
}

/// A word that leads to a node.
#[derive(Clone, Copy)]
pub(super) enum Slot<'t> {
    Bucket(&'t AtomicU64),
    Node(&'t Link),
}

impl<'t> Slot<'t> {
    #[inline]
    pub(super) fn leads_to(self) -> Option<NodeId> {
        match self {
            Slot::Bucket(word) => load(word).first(),
            Slot::Node(link) => link.next(),
        }
    }

    /// Lets it lead elsewhere. Under the lock that covers it.
    #[inline]
    pub(super) fn lead_to(self, node: Option<NodeId>) {
        match self {
            Slot::Bucket(word) => store(word, load(word).with_first(node)),
            Slot::Node(link) => link.lead_to(node),
        }
    }

    pub(super) fn is(self, other: Slot<'_>) -> bool {
        match (self, other) {
            (Slot::Bucket(one), Slot::Bucket(other)) => ptr::eq(one, other),
            (Slot::Node(one), Slot::Node(other)) => ptr::eq(one, other),
            _ => false,
        }
    }

    /// The slot on the way from this one that leads to a node.
    ///
    /// # Safety
    ///
    /// 1. As for [`nodes`].
    #[inline]
    pub(super) unsafe fn to<A: Arena>(mut self, arena: &'t A, node: &Link) -> Option<Slot<'t>> {
        loop {
            // SAFETY: 1.
            let link = unsafe { arena.link(self.leads_to()?).as_ref() };
            if ptr::eq(link, node) {
                return Some(self);
            }
            self = Slot::Node(link);
        }
    }
}

/// Looks through a bucket.
///
/// # Safety
///
/// 1. The caller is in a section that began before `word` was read.
#[inline(always)]
pub(super) unsafe fn search<A: Arena>(
    arena: &A,
    word: Word,
    hash: u32,
    mut is_it: impl FnMut(NonNull<Link>) -> bool,
) -> Option<NonNull<Link>> {
    let mut next = word.first_for(Probe::new(hash));
    while let Some(id) = next {
        // SAFETY: it lives as long as the section, by 1.
        let node = unsafe { arena.link(id) };
        // SAFETY: as above.
        let header = unsafe { node.as_ref() }.header();
        if header.has_hash(hash) && is_it(node) {
            return Some(node);
        }
        next = header.next();
    }
    None
}

/// A walk along a chain. The way on from a node is read before the node is yielded.
pub(super) struct Nodes<'t, A> {
    arena: &'t A,
    next: Option<NodeId>,
}

/// The nodes of a chain, from the one that `first` names.
///
/// # Safety
///
/// 1. A section, or a lock and a section for what it led to before, keeps the chain's nodes as long as
///    the walk and what it yields are used.
#[inline]
pub(super) unsafe fn nodes<A: Arena>(arena: &A, first: Option<NodeId>) -> Nodes<'_, A> {
    Nodes { arena, next: first }
}

impl<'t, A: Arena> Iterator for Nodes<'t, A> {
    type Item = (NodeId, &'t Link);

    #[inline]
    fn next(&mut self) -> Option<(NodeId, &'t Link)> {
        let id = self.next?;
        // SAFETY: the maker of the walk keeps the nodes.
        let link = unsafe { self.arena.link(id).as_ref() };
        self.next = link.next();
        Some((id, link))
    }
}

/// The first node on the way from `first` that belongs to a bucket of `table`.
///
/// # Safety
///
/// 1. As for [`nodes`].
pub(super) unsafe fn first_of_child<A: Arena>(
    arena: &A,
    first: Option<NodeId>,
    table: &Table,
    bucket: usize,
) -> Option<NodeId> {
    // SAFETY: 1.
    let mut nodes = unsafe { nodes(arena, first) };
    let own = nodes.find(|(_, link)| table.index(link.hash()) == bucket);
    own.map(|(id, _)| id)
}
