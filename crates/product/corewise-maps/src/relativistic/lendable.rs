//! Data that its owner changes without a lock, and that other threads may take all the same.
//!
//! The owner accesses the data inside its sections, after it has seen that the data is not lent. A
//! collector lends the data to itself, waits for a grace period, takes what it wants and gives the
//! data back. So the fast path is a load and a branch, and the owner never waits: while the data is
//! lent, the owner does without it.
//!
//! 1. *Lending.* [`Lendable::lend`] marks the data. A section of the owner that began before the
//!    mark is over when the grace period is, and all its accesses happened before. A section that
//!    the grace period does not wait for sees the mark, as it sees everything that was unlinked
//!    before (guarantee 1 of `corewise_rcu`).
//! 2. *Giving back.* [`Lendable::take_back`] clears the mark with Release; the owner reads it with
//!    Acquire, and so finds the data as the collector left it.
//! 3. *One collector.* The caller guarantees that data that is lent is not lent a second time.

use corewise_atomic::cell::DataCell;
use corewise_atomic::sync::atomic::AtomicBool;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::{mutant, ordering};

/// See the [module](self).
pub(super) struct Lendable<T> {
    data: DataCell<T>,
    is_lent: AtomicBool,
}

impl<T> Lendable<T> {
    pub(super) fn new(data: T) -> Self {
        Self {
            data: DataCell::new(data),
            is_lent: AtomicBool::new(false),
        }
    }

    /// Calls `f` with the data unless it is lent.
    ///
    /// # Safety
    ///
    /// 1. The calling thread owns the data, and is in a section of the domain whose grace periods
    ///    collectors wait for.
    #[inline(always)]
    pub(super) unsafe fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        // Acquire: pairs with the Release in `take_back`, see 2 above.
        let is_lent = self.is_lent.load(ordering!(Acquire, "relaxed_given_back"));
        if is_lent && !mutant!("owner_ignores_lending") {
            return None;
        }
        // SAFETY: the calling thread owns the data, by 1. It is not lent, and if it is lent from
        // now on, no collector takes it before this section ends, by 1 of the module.
        Some(self.data.with_mut(|data| f(unsafe { &mut *data })))
    }

    /// Lends the data to the calling thread, which may take it a grace period later.
    pub(super) fn lend(&self) {
        // Relaxed: ordered by the grace period, see 1 above.
        self.is_lent.store(true, Relaxed);
    }

    /// Calls `f` with data that was lent, and gives it back to its owner.
    ///
    /// # Safety
    ///
    /// 1. The data is lent, and no other thread calls this function until it is lent again.
    /// 2. A grace period has passed that began after it was lent.
    pub(super) unsafe fn take_back<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: no other collector takes the data, by 1, and no section of the owner uses it any
        // more, by 2 and 1 of the module.
        let result = self.data.with_mut(|data| f(unsafe { &mut *data }));
        // Release: pairs with the Acquire in `with`.
        self.is_lent
            .store(false, ordering!(Release, "relaxed_give_back"));
        result
    }

    /// The data, for the exclusive owner of everything.
    pub(super) fn with_exclusive<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: no other thread has it.
        self.data.with_mut(|data| f(unsafe { &mut *data }))
    }
}

#[cfg(test)]
mod tests {
    use corewise_atomic::lock::Mutex;
    use corewise_atomic::mutant;
    use corewise_atomic::sync::Arc;
    use corewise_atomic::thread;
    use corewise_rcu::Domain;

    use super::*;

    struct Shared {
        domain: Domain,
        list: Lendable<Vec<u32>>,
        /// Where the owner puts what it cannot put into its list.
        others: Mutex<Vec<u32>>,
    }

    /// The owner pushes in two sections while a collector takes what there is: nothing is lost or
    /// taken twice, and no two accesses overlap.
    #[test]
    fn a_collector_takes_what_its_owner_has_left() {
        corewise_atomic::model_bounded(3, || {
            let shared = Arc::new(Shared {
                domain: Domain::new(),
                list: Lendable::new(Vec::new()),
                others: Mutex::new(Vec::new()),
            });
            let owner = shared.clone();
            let pushes = thread::spawn(move || {
                for item in [1, 2] {
                    let _section = owner.domain.pin();
                    // SAFETY: only this thread calls `with` until it ends, in a section of the
                    // domain (1).
                    let pushed = unsafe { owner.list.with(|list| list.push(item)) };
                    if pushed.is_none() {
                        owner.others.lock().push(item);
                    }
                }
            });
            shared.list.lend();
            if !mutant!("collector_does_not_wait") {
                shared.domain.synchronize();
            }
            // SAFETY: the data was lent above, by the only collector (1), and a grace period has
            // passed since (2).
            let mut taken = unsafe { shared.list.take_back(std::mem::take) };
            pushes.join().unwrap();
            let _section = shared.domain.pin();
            // SAFETY: the owner has ended, so this thread owns the data, and it is in a section
            // (1).
            let left = unsafe { shared.list.with(std::mem::take) };
            taken.extend(left.unwrap());
            taken.extend(shared.others.lock().drain(..));
            taken.sort_unstable();
            assert_eq!(taken, [1, 2]);
        });
    }
}
