//! Locks that are FIFO hand over in the order of arrival.

use std::sync::Mutex;
use std::thread;

use corewise_atomic::sync::atomic::Ordering::Relaxed;
use corewise_testkit::for_every;

use crate::node::NodeCell;
use crate::{Anderson, Clh, Mcs, RawLock, Ticket};

/// A lock whose arrivals a test can see.
trait Queue: RawLock {
    /// A value that changes with each arrival.
    fn arrivals(&self) -> usize;
}

macro_rules! queues {
    ($($lock:ty, |$it:ident| $arrivals:expr;)+) => {$(
        impl Queue for $lock {
            fn arrivals(&self) -> usize {
                let $it = self;
                $arrivals
            }
        }
    )+};
}
queues! {
    Ticket, |lock| lock.next_ticket() as usize;
    Anderson<4>, |lock| lock.next_ticket() as usize;
    Clh, |lock| address(lock.tail());
    Mcs, |lock| address(lock.tail());
}

fn address(tail: &NodeCell) -> usize {
    // Relaxed: only compared.
    let node = tail.load(Relaxed);
    node.map_or(0, |node| std::ptr::from_ref(node).addr())
}

fn threads_get_the_lock_in_the_order_of_arrival<L: Queue>() {
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

for_every! {
    ticket: Ticket,
    anderson_with_fewer_slots_than_threads: Anderson<4>,
    clh: Clh,
    mcs: Mcs,
    => { threads_get_the_lock_in_the_order_of_arrival }
}
