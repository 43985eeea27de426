//! Chains in no order, each in one bucket: what the baselines do with them.

use std::ptr::NonNull;

use super::algorithm::{Head, Link, follow, lead};

/// The link with this hash for which `is_it` says so.
///
/// # Safety
///
/// 1. The caller is in a section, or has the lock that covers the chain.
#[inline(always)]
pub(super) unsafe fn search(
    head: &Head,
    hash: u64,
    mut is_it: impl FnMut(NonNull<Link>) -> bool,
) -> Option<NonNull<Link>> {
    let mut at = follow(head);
    while let Some(node) = at {
        // SAFETY: nodes are freed a grace period after they were unlinked, which who has the lock does.
        let link = unsafe { node.as_ref() };
        if link.hash() == hash && is_it(node) {
            return at;
        }
        at = follow(&link.next);
    }
    None
}

/// Puts a link in front of a chain. Readers may be on the link, and go on along this chain then.
///
/// # Safety
///
/// 1. The caller has the lock that covers the chain.
/// 2. The link is in no chain.
pub(super) unsafe fn prepend(head: &Head, link: NonNull<Link>) {
    // SAFETY: the caller's.
    lead(unsafe { &link.as_ref().next }, follow(head));
    lead(head, Some(link));
}

/// Takes the link with this hash for which `is_it` says so out of a chain.
///
/// # Safety
///
/// 1. The caller has the lock that covers the chain.
pub(super) unsafe fn remove(
    mut head: &Head,
    hash: u64,
    mut is_it: impl FnMut(NonNull<Link>) -> bool,
) -> Option<NonNull<Link>> {
    loop {
        let node = follow(head)?;
        // SAFETY: the lock keeps others from unlinking it.
        let link = unsafe { node.as_ref() };
        if link.hash() == hash && is_it(node) {
            lead(head, follow(&link.next));
            return Some(node);
        }
        head = &link.next;
    }
}
