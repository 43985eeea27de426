//! What keeps an item that was found while its reply is made: the lock, or a reference.

use corewise_atomic::mutant;

/// How a hit keeps its item. [`Locked`](super::Locked) is an engine for each.
pub trait References: sealed::Sealed + Default + Send + Sync + 'static {
    /// The engine's name.
    const ENGINE: &'static str;

    /// Whether there is one lock for everything, and replies are made outside of it.
    const COUNTED: bool;

    /// Somebody holds the item from now on.
    fn acquire(&mut self);

    /// Somebody holds it no longer. True: nobody does, and it has been unlinked, so it is to be freed.
    fn release(&mut self) -> bool;

    /// The item has been unlinked. True: nobody holds it, so it is to be freed.
    fn unlink(&mut self) -> bool;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::NoReferences {}
    impl Sealed for super::ReferenceCount {}
}

/// The shard's lock is held until the reply is made: `locked`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoReferences;

impl References for NoReferences {
    const ENGINE: &'static str = "locked";
    const COUNTED: bool = false;

    #[inline]
    fn acquire(&mut self) {}

    #[inline]
    fn release(&mut self) -> bool {
        false
    }

    #[inline]
    fn unlink(&mut self) -> bool {
        true
    }
}

/// A count in the item, changed under the one lock: [`global_lock`](crate::engines::global_lock).
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceCount {
    /// Sessions that hold the item; no more than there are threads.
    holders: u32,
    unlinked: bool,
}

impl References for ReferenceCount {
    const ENGINE: &'static str = "global-lock";
    const COUNTED: bool = true;

    fn acquire(&mut self) {
        self.holders += 1;
    }

    fn release(&mut self) -> bool {
        self.holders -= 1;
        self.holders == 0 && self.unlinked
    }

    fn unlink(&mut self) -> bool {
        self.unlinked = true;
        mutant!("frees_what_is_held") || self.holders == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_freed_once_it_is_unlinked_and_nobody_holds_it() {
        let mut held = ReferenceCount::default();
        held.acquire();
        held.acquire();
        assert!(!held.unlink());
        assert!(!held.release());
        assert!(held.release());
        let mut idle = ReferenceCount::default();
        idle.acquire();
        assert!(!idle.release());
        assert!(idle.unlink());
    }
}
