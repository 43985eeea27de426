//! Chains: nodes, the translation of node IDs to addresses, and walks along chains.

use std::ptr::{self, NonNull};

use corewise_atomic::ordering;
use corewise_atomic::sync::atomic::AtomicU64;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed};

use super::table::{BucketArray, load, publish, store};
use super::word::{Header, NodeId, ShiftedHash, fold, hash_bits};

/// The memory in which the nodes of a table live.
///
/// Words hold 32-bit node IDs, not addresses. So a node's link and its hash share one word, and up
/// to 2^32 - 1 nodes can be distinguished.
///
/// # Safety
///
/// From the insertion of a node until a grace period after its removal, `link` returns the same
/// address for the same ID: that of a [`Link`] that stays alive and is not moved during this time.
pub unsafe trait Arena: Send + Sync {
    /// The node with this ID.
    ///
    /// # Safety
    ///
    /// 1. `id` was read from a word of a table that uses this arena, by a caller for which removed
    ///    nodes are kept, or is the ID of a node that the caller owns.
    unsafe fn link(&self, id: NodeId) -> NonNull<Link>;
}

/// The header of a node: its link to the next node and its hash, in 8 bytes.
#[repr(transparent)]
pub struct Link(AtomicU64);

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = assert!(size_of::<Link>() == 8);

impl Link {
    /// Creates the link of a node with this hash that is in no table.
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

    /// The hash given to [`Link::new`], as far as the table uses it: its [`reduce`](Link::reduce).
    #[inline(always)]
    pub fn reduced_hash(&self) -> u64 {
        u64::from(self.hash())
    }

    /// The part of a hash that a table uses: 31 bits. Tables treat the result like the hash itself.
    #[inline(always)]
    pub fn reduce(hash: u64) -> u64 {
        u64::from(hash_bits(fold(hash)))
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

    /// Marks a node that was never in a table as removed, for owners that check for that mark.
    pub fn abandon(&mut self) {
        let header = self.header().gone();
        *self = Self(AtomicU64::new(header.0));
    }

    /// Links an unpublished node to the next one.
    #[inline(always)]
    pub(super) fn prepare(&self, next: Option<NodeId>) {
        // Relaxed, both: published by the store or exchange that links the node.
        let header = Header(self.0.load(Relaxed));
        self.0.store(header.with_next(next).0, Relaxed);
    }

    /// Changes the node's next link. The caller holds the lock that covers it.
    #[inline]
    pub(super) fn set_next(&self, next: Option<NodeId>) {
        // Release: pairs with the Acquire in `header`.
        self.0.store(self.header().with_next(next).0, publish());
    }

    /// Marks the node as removed. The caller holds the lock that covers it.
    pub(super) fn remove(&self) {
        // Release: as in `set_next`. A reader that is on the node and sees the mark still follows
        // the link to the next node, which another thread may have stored.
        let release = ordering!(publish(), "relaxed_mark");
        self.0.store(self.header().gone().0, release);
    }
}

/// A word that leads to a node.
#[derive(Clone, Copy)]
pub(super) enum Predecessor<'t> {
    Bucket(&'t AtomicU64),
    Node(&'t Link),
}

impl<'t> Predecessor<'t> {
    #[inline]
    pub(super) fn leads_to(self) -> Option<NodeId> {
        match self {
            Predecessor::Bucket(word) => load(word).first(),
            Predecessor::Node(link) => link.next(),
        }
    }

    /// Changes the next link. The caller holds the lock that covers it.
    #[inline]
    pub(super) fn set_next(self, node: Option<NodeId>) {
        match self {
            Predecessor::Bucket(word) => store(word, load(word).with_first(node)),
            Predecessor::Node(link) => link.set_next(node),
        }
    }

    pub(super) fn is(self, other: Predecessor<'_>) -> bool {
        match (self, other) {
            (Predecessor::Bucket(one), Predecessor::Bucket(other)) => ptr::eq(one, other),
            (Predecessor::Node(one), Predecessor::Node(other)) => ptr::eq(one, other),
            _ => false,
        }
    }

    /// Walks on along the chain, to the predecessor of `node`.
    ///
    /// # Safety
    ///
    /// 1. As for [`nodes`].
    #[inline]
    pub(super) unsafe fn to<A: Arena>(
        mut self,
        arena: &'t A,
        node: &Link,
    ) -> Option<Predecessor<'t>> {
        loop {
            // SAFETY: the chain's nodes are kept, by 1, and the ID was read from a link of the
            // chain (1).
            let link = unsafe { arena.link(self.leads_to()?).as_ref() };
            if ptr::eq(link, node) {
                return Some(self);
            }
            self = Predecessor::Node(link);
        }
    }
}

/// Searches the chain of a bucket, which starts at `first`.
///
/// # Safety
///
/// 1. The caller is in a section that began before `first` was read.
#[inline(always)]
pub(super) unsafe fn search<A: Arena>(
    arena: &A,
    first: Option<NodeId>,
    hash: ShiftedHash,
    mut eq: impl FnMut(NonNull<Link>) -> bool,
) -> Option<NonNull<Link>> {
    let mut next = first;
    while let Some(id) = next {
        // SAFETY: it lives as long as the section, by 1.
        let node = unsafe { arena.link(id) };
        // SAFETY: it lives as long as the section.
        let header = unsafe { node.as_ref() }.header();
        if header.has_hash(hash) && eq(node) {
            return Some(node);
        }
        next = header.next();
    }
    None
}

/// A walk along a chain. It reads a node's next link before it yields the node.
pub(super) struct ChainNodes<'t, A> {
    arena: &'t A,
    next: Option<NodeId>,
}

/// The nodes of a chain, starting at `first`.
///
/// # Safety
///
/// 1. A section (or a lock, together with a section for nodes that the chain led to earlier) keeps
///    the chain's nodes for as long as the walk and the nodes it yields are used.
#[inline]
pub(super) unsafe fn nodes<A: Arena>(arena: &A, first: Option<NodeId>) -> ChainNodes<'_, A> {
    ChainNodes { arena, next: first }
}

impl<'t, A: Arena> Iterator for ChainNodes<'t, A> {
    type Item = (NodeId, &'t Link);

    #[inline]
    fn next(&mut self) -> Option<(NodeId, &'t Link)> {
        let id = self.next?;
        // SAFETY: the caller of `nodes` keeps the nodes.
        let link = unsafe { self.arena.link(id).as_ref() };
        self.next = link.next();
        Some((id, link))
    }
}

/// The first node from `first` on that belongs to a bucket of `table`.
///
/// # Safety
///
/// 1. As for [`nodes`].
pub(super) unsafe fn first_of_child<A: Arena>(
    arena: &A,
    first: Option<NodeId>,
    table: &BucketArray,
    bucket: usize,
) -> Option<NodeId> {
    // SAFETY: the chain's nodes are kept while they are used, by 1.
    let mut nodes = unsafe { nodes(arena, first) };
    let own = nodes.find(|(_, link)| table.index(link.hash()) == bucket);
    own.map(|(id, _)| id)
}
