//! What keeps a found item alive while its reply is made: the lock, or a reference count.

use corewise_atomic::mutant;

/// How a hit keeps its item alive. There is a [`Locked`](super::Locked) engine for each
/// implementation.
///
/// # Safety
///
/// 1. `unlink` returns true if nothing keeps the item alive. Otherwise the `release` that ends the
///    last reference does, once.
/// 2. If not [`COUNTED`](Self::COUNTED), no references are taken.
pub unsafe trait References: sealed::Sealed + Default + Send + Sync + 'static {
    /// The engine's name.
    const ENGINE: &'static str;

    /// Whether there is one lock for everything and replies are made outside it.
    const COUNTED: bool;

    /// Takes a reference to the item.
    fn acquire(&mut self);

    /// Drops a reference. Returns true if it was the last and the item has been unlinked, so it
    /// must be freed.
    fn release(&mut self) -> bool;

    /// Marks the item unlinked. Returns true if there are no references, so it must be freed.
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

// SAFETY: nothing counts references: `unlink` finds none and returns true (1), and `acquire` takes
// none (2).
unsafe impl References for NoReferences {
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
    /// Sessions that hold the item; at most the number of threads.
    holders: u32,
    unlinked: bool,
}

// SAFETY: there are `holders` references (1), and each is counted (2).
unsafe impl References for ReferenceCount {
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
