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

/// Puts a link in front of a chain, unless `eq` returns true for a link of its hash, which is then
/// returned.
///
/// # Safety
///
/// 1. The caller holds the lock that covers the chain.
/// 2. The link is in no chain.
pub(super) unsafe fn insert(
    head: &Head,
    link: NonNull<ChainLink>,
    eq: impl FnMut(NonNull<ChainLink>) -> bool,
) -> Result<(), NonNull<ChainLink>> {
    // SAFETY: by 1 the chain stays as it is; by 2 no other thread has the link.
    unsafe {
        if let Some(found) = search(head, link.as_ref().hash(), eq) {
            return Err(found);
        }
        prepend(head, link);
    }
    Ok(())
}

/// Removes every link of these chains and passes it to `each`, which may free it.
///
/// # Safety
///
/// 1. The caller has the chains alone.
pub(super) unsafe fn take_all(heads: &[Head], mut each: impl FnMut(NonNull<ChainLink>)) {
    for head in heads {
        while let Some(node) = follow(head) {
            // SAFETY: by 1 only `each` frees nodes, and this one was not passed to it yet.
            lead(head, follow(unsafe { &node.as_ref().next }));
            each(node);
        }
    }
}

/// Puts a link in front of a chain. Readers that stand on the link continue along this chain.
///
/// # Safety
///
/// 1. The caller holds the lock that covers the chain.
/// 2. The link is in no chain.
pub(super) unsafe fn prepend(head: &Head, link: NonNull<ChainLink>) {
    // SAFETY: only the caller has the link, which is in no chain (2).
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
