//! Small numbers for threads.
//!
//! # Guarantees
//!
//! 1. *Dense.* A thread that asks gets the lowest number that no living thread has.
//! 2. *One owner.* At most one thread has a number, except [`SHARED`]. A number is reused when its
//!    thread has ended and holds nothing that is recorded under the number ([`hold`]); a thread
//!    that leaks such a thing never gives its number back.
//! 3. *Late calls.* A thread that ends has [`SHARED`] once its number was given back.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use corewise_atomic::lock::Mutex;
use corewise_atomic::{static_cell, thread_local};

/// The number of threads that have none.
pub(crate) const SHARED: u32 = u32::MAX;
/// A thread that has not asked yet.
const UNKNOWN: u32 = u32::MAX - 1;

struct ThreadSlot {
    index: Cell<u32>,
    holds: Cell<u64>,
    has_ended: Cell<bool>,
}

struct Exit;

impl Drop for Exit {
    fn drop(&mut self) {
        SLOT.with(|slot| {
            slot.has_ended.set(true);
            give_back(slot);
        });
    }
}

thread_local! {
    // Without a destructor, so that it can be used in those of other thread-locals.
    static SLOT: ThreadSlot = const {
        ThreadSlot {
            index: Cell::new(UNKNOWN),
            holds: Cell::new(0),
            has_ended: Cell::new(false),
        }
    };
    static EXIT: Exit = const { Exit };
}

#[derive(Default)]
struct Indices {
    free: BinaryHeap<Reverse<u32>>,
    next: u32,
}

static_cell! {
    static INDICES: Mutex<Indices> = Mutex::new(Indices::default());
}

/// The number of the calling thread.
#[inline]
pub(crate) fn current() -> u32 {
    SLOT.with(|slot| match slot.index.get() {
        UNKNOWN => ask(slot),
        index => index,
    })
}

#[cold]
fn ask(slot: &ThreadSlot) -> u32 {
    // The model checkers drop statics before the thread-locals of the first thread; no model needs
    // that a number is reused.
    let is_ended = !cfg!(any(corewise_loom, corewise_shuttle)) && EXIT.try_with(|_| ()).is_err();
    let index = if is_ended {
        slot.has_ended.set(true);
        SHARED
    } else {
        let mut indices = INDICES.lock();
        let Indices { free, next } = &mut *indices;
        free.pop().map_or_else(
            || {
                *next += 1;
                *next - 1
            },
            |Reverse(index)| index,
        )
    };
    slot.index.set(index);
    index
}

/// Records that the thread holds something under its number, until [`let_go`].
#[inline]
pub(crate) fn hold() {
    SLOT.with(|slot| slot.holds.set(slot.holds.get() + 1));
}

/// Ends what [`hold`] began.
#[inline]
pub(crate) fn let_go() {
    SLOT.with(|slot| {
        slot.holds.set(slot.holds.get() - 1);
        if slot.has_ended.get() {
            give_back(slot);
        }
    });
}

#[cold]
fn give_back(slot: &ThreadSlot) {
    if slot.holds.get() == 0 && slot.index.get() < UNKNOWN {
        INDICES.lock().free.push(Reverse(slot.index.get()));
        slot.index.set(SHARED);
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;
    use std::cell::OnceCell;
    use std::sync::mpsc;

    /// Runs in one test, because other tests of this process take numbers, too.
    #[test]
    fn numbers_are_unique_and_reused_once_their_thread_holds_nothing() {
        let both = std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel::<()>();
            let one = scope.spawn(move || {
                let index = current();
                receiver.recv().unwrap();
                assert_eq!(current(), index);
                index
            });
            let other = scope.spawn(move || {
                let index = current();
                sender.send(()).unwrap();
                index
            });
            [one.join().unwrap(), other.join().unwrap()]
        });
        assert!(both[0] != SHARED && both[1] != SHARED);

        let leaked = std::thread::spawn(|| {
            let index = current();
            hold();
            index
        })
        .join()
        .unwrap();
        let is_free = |index| INDICES.lock().free.iter().any(|free| free.0 == index);
        assert!(!is_free(leaked), "held when its thread ended");
    }

    /// Asks when the thread's other locals are dropped.
    struct Late(mpsc::Sender<u32>);
    impl Drop for Late {
        fn drop(&mut self) {
            self.0.send(current()).unwrap();
        }
    }

    #[test]
    fn a_thread_that_ends_has_no_number() {
        std::thread_local! { static LATE: OnceCell<Late> = const { OnceCell::new() }; }
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            // Registered before `EXIT`; the standard library drops the last one first.
            LATE.with(|late| {
                let _ = late.set(Late(sender));
            });
            assert_ne!(current(), SHARED);
        })
        .join()
        .unwrap();
        let late = receiver.recv().unwrap();
        // The order of destructors is not specified: either its number, or none.
        assert!(late < UNKNOWN || late == SHARED);
    }
}
