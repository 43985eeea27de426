//! Operations on unsorted chains, each in one bucket, as the baselines use them.

use std::ptr::NonNull;

use super::algorithm::{ChainLink, Head, follow, lead};

/// The link with this hash for which `eq` returns true.
///
/// # Safety
///
/// 1. The caller is in a section, or holds the lock that covers the chain.
#[inline(always)]
pub(super) unsafe fn search(
    head: &Head,
    hash: u64,
    mut eq: impl FnMut(NonNull<ChainLink>) -> bool,
) -> Option<NonNull<ChainLink>> {
    let mut at = follow(head);
    while let Some(node) = at {
        // SAFETY: nodes are freed a grace period after they were unlinked, which requires the lock.
        let link = unsafe { node.as_ref() };
        if link.hash() == hash && eq(node) {
            return at;
        }
        at = follow(&link.next);
    }
    None
}

/// Puts a link in front of a chain. Readers that stand on the link continue along this chain.
///
/// # Safety
///
/// 1. The caller holds the lock that covers the chain.
/// 2. The link is in no chain.
pub(super) unsafe fn prepend(head: &Head, link: NonNull<ChainLink>) {
    // SAFETY: the caller's.
    lead(unsafe { &link.as_ref().next }, follow(head));
    lead(head, Some(link));
}

/// Unlinks the link with this hash for which `eq` returns true.
///
/// # Safety
///
/// 1. The caller holds the lock that covers the chain.
pub(super) unsafe fn remove(
    mut head: &Head,
    hash: u64,
    mut eq: impl FnMut(NonNull<ChainLink>) -> bool,
) -> Option<NonNull<ChainLink>> {
    loop {
        let node = follow(head)?;
        // SAFETY: the lock prevents other threads from unlinking it.
        let link = unsafe { node.as_ref() };
        if link.hash() == hash && eq(node) {
            lead(head, follow(&link.next));
            return Some(node);
        }
        head = &link.next;
    }
}
