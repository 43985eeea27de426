//! Locks that are FIFO hand over in the order of arrival.

use std::sync::Mutex;
use std::thread;

use corewise_atomic::sync::atomic::Ordering::Relaxed;

use crate::{Anderson, Clh, Mcs, RawLock, Ticket};

/// A lock whose arrivals a test can see.
trait Queue: RawLock {
    /// A value that changes with each arrival.
    fn arrivals(&self) -> usize;
}

impl Queue for Ticket {
    fn arrivals(&self) -> usize {
        self.next_ticket() as usize
    }
}

impl Queue for Anderson<4> {
    fn arrivals(&self) -> usize {
        self.next_ticket() as usize
    }
}

impl Queue for Clh {
    fn arrivals(&self) -> usize {
        // Relaxed: only compared; so below.
        self.tail()
            .load(Relaxed)
            .map_or(0, |node| std::ptr::from_ref(node).addr())
    }
}

impl Queue for Mcs {
    fn arrivals(&self) -> usize {
        self.tail()
            .load(Relaxed)
            .map_or(0, |node| std::ptr::from_ref(node).addr())
    }
}

fn is_fifo<L: Queue>() {
    const WAITING: usize = 6;
    let (lock, order) = (L::new(), Mutex::new(Vec::new()));
    lock.lock();
    thread::scope(|scope| {
        for number in 0..WAITING {
            let before = lock.arrivals();
            let (lock, order) = (&lock, &order);
            scope.spawn(move || {
                lock.lock();
                order.lock().unwrap().push(number);
                // SAFETY: locked above by this thread.
                unsafe { lock.unlock() };
            });
            while lock.arrivals() == before {
                thread::yield_now();
            }
        }
        // SAFETY: locked above by this thread.
        unsafe { lock.unlock() };
    });
    assert!(order.into_inner().unwrap().into_iter().eq(0..WAITING));
}

#[test]
fn a_ticket_lock_is_fifo() {
    is_fifo::<Ticket>();
}

#[test]
fn an_anderson_lock_is_fifo_also_with_fewer_slots_than_threads() {
    is_fifo::<Anderson<4>>();
}

#[test]
fn a_clh_lock_is_fifo() {
    is_fifo::<Clh>();
}

#[test]
fn an_mcs_lock_is_fifo() {
    is_fifo::<Mcs>();
}
