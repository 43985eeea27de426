//! Nodes of queue locks, and the lists in which a thread keeps its own.
//!
//! ```text
//! Node, 128 bytes: state, thread, next: shared | lock, link: owner only
//!
//! thread: free ──▶ node ──▶ node      at most KEPT nodes
//!         held ──▶ node ──▶ node      one for each MCS lock held, the newest first
//! process: pool                       nodes of threads that ended, or that had too many
//! ```
//!
//! # Guarantees
//!
//! 1. *Nodes are never freed*, so a pointer to one stays valid. Nodes exist for each lock that is
//!    held or waited for at once, plus at most `KEPT` for each thread.
//! 2. *One owner.* A node belongs to the thread that took it, until the thread gives it back or
//!    away. Only the owner accesses `lock` and `link`.
//! 3. *Waiting.* A thread that waits at a node pauses, then yields, then sleeps. `state` goes from
//!    WAITING to GRANTED, or over SLEEPING. The waiting thread writes `thread` before it sets
//!    SLEEPING; the granting thread reads it after it has seen SLEEPING, and before it sets
//!    GRANTED. So a sleeping thread is woken, and no thread accesses a node after GRANTED.
//! 4. *Exit.* A thread that ends gives its free nodes to the pool. A node in use is given to the
//!    pool at its unlock (which may follow, in the destructor of a thread-local), or never, if the
//!    lock is never unlocked.

use std::cell::Cell;
use std::ptr;

use corewise_atomic::cell::DataCell;
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use corewise_atomic::thread::{self, Thread};
use corewise_atomic::{mutant, static_cell, thread_local};

use crate::constructor;
use crate::wait::{self, QueueWait};

/// Free nodes that a thread keeps; further ones go to the pool. CLH locks move nodes between
/// threads, so one thread may collect those that another allocates.
const KEPT: u32 = if cfg!(corewise_stress) { 1 } else { 8 };

const GRANTED: u32 = 0;
const WAITING: u32 = 1;
const SLEEPING: u32 = 2;

/// A place in the queue of a lock.
#[cfg_attr(not(any(corewise_loom, corewise_shuttle)), repr(C, align(128)))]
#[derive(Debug)]
pub(crate) struct Node {
    /// MCS: whether the owner waits. CLH: whether the thread behind the owner waits.
    state: AtomicU32,
    /// The thread to wake.
    thread: DataCell<Option<Thread>>,
    /// MCS: the node behind this one.
    pub(crate) next: NodeCell,
    /// The address of the MCS lock that is held with this node.
    lock: AtomicUsize,
    /// The next node in a list of the thread.
    link: NodeCell,
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = assert!(size_of::<Node>() == 128);

/// An atomic `Option<&'static Node>`.
#[derive(Debug)]
pub(crate) struct NodeCell(AtomicPtr<Node>);

fn pointer(node: Option<&'static Node>) -> *mut Node {
    node.map_or(ptr::null_mut(), |node| ptr::from_ref(node).cast_mut())
}

/// # Safety
///
/// 1. The pointer came from [`pointer()`].
unsafe fn node(pointer: *mut Node) -> Option<&'static Node> {
    // SAFETY: by 1 it is null or was a reference that is valid for ever.
    unsafe { pointer.as_ref() }
}

constructor! { [] NodeCell,
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }
}

impl NodeCell {
    #[inline(always)]
    pub(crate) fn load(&self, order: Ordering) -> Option<&'static Node> {
        // SAFETY: a cell contains pointers from `pointer` only; so in the functions below (1).
        unsafe { node(self.0.load(order)) }
    }

    #[inline(always)]
    pub(crate) fn store(&self, node: Option<&'static Node>, order: Ordering) {
        self.0.store(pointer(node), order);
    }

    #[inline(always)]
    pub(crate) fn swap(&self, new: &'static Node, order: Ordering) -> Option<&'static Node> {
        // SAFETY: by the type of the cell (1).
        unsafe { node(self.0.swap(pointer(Some(new)), order)) }
    }

    /// Replaces `old` by `new`; whether it did. A failure orders nothing.
    #[inline(always)]
    pub(crate) fn replace(
        &self,
        old: Option<&'static Node>,
        new: Option<&'static Node>,
        order: Ordering,
    ) -> bool {
        let (old, new) = (pointer(old), pointer(new));
        // Relaxed on failure: the value is not used.
        self.0.compare_exchange(old, new, order, Relaxed).is_ok()
    }
}

impl Node {
    /// Prepares a wait at this node, for its owner.
    #[inline(always)]
    pub(crate) fn prepare(&self) {
        // Relaxed: published with the node or the link to it.
        self.state.store(WAITING, Relaxed);
    }

    /// Waits until [`grant`](Self::grant) was called. One thread may wait at a node. Returns
    /// whether it slept.
    #[inline]
    pub(crate) fn wait(&self) -> bool {
        // Acquire: pairs with the Release in `grant`.
        !QueueWait::until_or_tired(|| self.state.load(Acquire) != WAITING) && self.sleep()
    }

    #[cold]
    fn sleep(&self) -> bool {
        // SAFETY: the granting thread reads it only after SLEEPING is set below.
        unsafe { self.thread.write(Some(thread::current())) };
        // Release: pairs with the Acquire in `grant`, so the handle is seen. Acquire: as in `wait`.
        let sleeps = self
            .state
            .compare_exchange(WAITING, SLEEPING, Release, Acquire)
            .is_ok();
        if sleeps {
            // Acquire: pairs with the Release in `wake`.
            wait::sleep_until(|| self.state.load(Acquire) != SLEEPING);
        }
        // SAFETY: the granting thread has read it before GRANTED.
        unsafe { self.thread.write(None) };
        sleeps
    }

    /// Lets the thread that waits at this node, or will, go on. The node belongs to another thread
    /// from then on.
    #[inline]
    pub(crate) fn grant(&self, order: Ordering) {
        // Release: pairs with the Acquire in `wait`. Acquire: pairs with the Release in `sleep`.
        if self
            .state
            .compare_exchange(WAITING, GRANTED, order, Acquire)
            .is_err()
        {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // SAFETY: SLEEPING was seen, and the waiting thread does not access it until GRANTED.
        let thread = self.thread.with(|thread| unsafe { (*thread).clone() });
        // Release: pairs with the Acquire in `sleep`. (No mutant: loom lets no thread run between
        // this store and the `unpark`, which orders as well.)
        self.state.store(GRANTED, Release);
        if !mutant!("node_forgets_to_wake") {
            thread::unpark(&thread.expect("set before SLEEPING"));
        }
    }
}

struct Lists {
    free: Cell<Option<&'static Node>>,
    free_count: Cell<u32>,
    held: Cell<Option<&'static Node>>,
}

/// Runs [`end_thread`] when the thread ends.
struct Exit;

impl Drop for Exit {
    fn drop(&mut self) {
        end_thread();
    }
}

thread_local! {
    // Without a destructor, so that it can be used in those of other thread-locals.
    static LISTS: Lists = const {
        Lists {
            free: Cell::new(None),
            free_count: Cell::new(0),
            held: Cell::new(None),
        }
    };
    static EXIT: Exit = const { Exit };
}

static_cell! {
    static POOL: Mutex<Vec<&'static Node>> = Mutex::new(Vec::new());
}

/// Takes a node of the thread, of the pool, or a new one.
#[inline]
pub(crate) fn take() -> &'static Node {
    LISTS.with(|lists| match lists.free.get() {
        Some(node) => {
            // Relaxed: only the owner accesses the link; so below.
            lists.free.set(node.link.load(Relaxed));
            lists.free_count.set(lists.free_count.get() - 1);
            node
        }
        None => take_more(),
    })
}

#[cold]
fn take_more() -> &'static Node {
    // The model checkers drop statics before the thread-locals of the first thread. Models call
    // `end_thread` themselves.
    if !cfg!(any(corewise_loom, corewise_shuttle)) {
        // An error means that the thread has ended, so its nodes go to the pool at once.
        let _ = EXIT.try_with(|_| ());
    }
    let pooled = POOL.lock().pop();
    pooled.unwrap_or_else(|| {
        Box::leak(Box::new(Node {
            state: AtomicU32::new(GRANTED),
            thread: DataCell::new(None),
            next: NodeCell::new(),
            lock: AtomicUsize::new(0),
            link: NodeCell::new(),
        }))
    })
}

/// Gives back a node that no other thread will access.
#[inline]
pub(crate) fn give_back(node: &'static Node) {
    LISTS.with(|lists| {
        if lists.free_count.get() < KEPT {
            // Relaxed: only the owner accesses the link.
            node.link.store(lists.free.get(), Relaxed);
            lists.free.set(Some(node));
            lists.free_count.set(lists.free_count.get() + 1);
        } else {
            pool(node);
        }
    });
}

#[cold]
fn pool(node: &'static Node) {
    POOL.lock().push(node);
}

/// Records that the thread holds the lock at `lock` with its node.
#[inline]
pub(crate) fn hold(node: &'static Node, lock: usize) {
    LISTS.with(|lists| {
        // Relaxed, both: only the owner accesses them.
        node.lock.store(lock, Relaxed);
        node.link.store(lists.held.get(), Relaxed);
        lists.held.set(Some(node));
    });
}

/// The node with which the thread holds the lock at `lock`; it is recorded no more. Costs a step
/// for each lock that was locked later and is still held.
///
/// # Panics
///
/// If the thread does not hold the lock.
#[inline]
pub(crate) fn release(lock: usize) -> &'static Node {
    LISTS.with(|lists| {
        let newest = lists.held.get().expect("the thread holds a lock");
        // Relaxed: only the owner accesses `lock` and `link`; so below.
        if newest.lock.load(Relaxed) == lock {
            lists.held.set(newest.link.load(Relaxed));
            return newest;
        }
        release_older(newest, lock)
    })
}

#[cold]
fn release_older(newest: &'static Node, lock: usize) -> &'static Node {
    let mut newer = newest;
    loop {
        // Relaxed, all: as in `release`.
        let node = newer.link.load(Relaxed).expect("the thread holds the lock");
        if node.lock.load(Relaxed) == lock {
            newer.link.store(node.link.load(Relaxed), Relaxed);
            return node;
        }
        newer = node;
    }
}

/// The node with which the thread holds the lock at `lock`, if it is the last lock that it locked.
#[inline]
pub(crate) fn last_locked(lock: usize) -> Option<&'static Node> {
    LISTS.with(|lists| {
        // Relaxed: only the owner accesses it.
        lists
            .held
            .get()
            .filter(|node| node.lock.load(Relaxed) == lock)
    })
}

/// Gives the free nodes of the thread to the pool. What it gives back from now on goes there too.
fn end_thread() {
    LISTS.with(|lists| {
        let mut pool = POOL.lock();
        let mut next = lists.free.take();
        // As if the list were full, so that nothing is added any more.
        lists.free_count.set(KEPT);
        while let Some(node) = next {
            // Relaxed: only the owner accesses the link.
            next = node.link.load(Relaxed);
            pool.push(node);
        }
        if mutant!("node_reused_at_exit") {
            pool.extend(lists.held.get());
        }
    });
}

#[cfg(test)]
mod models {
    use super::*;
    use crate::{Mcs, RawLock};
    use corewise_atomic::sync::Arc;
    use corewise_atomic::{model, thread};

    /// Guarantee 3: a thread that ends keeps the node of a lock that it unlocks later.
    #[test]
    fn a_node_in_use_outlives_its_thread_s_lists() {
        model(|| {
            let locks = Arc::new((Mcs::new(), Mcs::new()));
            let shared = locks.clone();
            let ending = thread::spawn(move || {
                shared.0.lock();
                end_thread();
                // SAFETY: locked above by this thread.
                unsafe { shared.0.unlock() };
            });
            locks.1.lock();
            // SAFETY: locked above by this thread.
            unsafe { locks.1.unlock() };
            locks.0.lock();
            // SAFETY: locked above by this thread.
            unsafe { locks.0.unlock() };
            ending.join().unwrap();
        });
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    fn free_nodes() -> u32 {
        LISTS.with(|lists| lists.free_count.get())
    }

    #[test]
    fn a_thread_keeps_a_bounded_number_of_nodes() {
        std::thread::spawn(|| {
            let nodes: Vec<_> = (0..KEPT + 5).map(|_| take()).collect();
            assert_eq!(free_nodes(), 0);
            nodes.into_iter().for_each(give_back);
            assert_eq!(free_nodes(), KEPT);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn locks_are_released_in_any_order() {
        let nodes: Vec<_> = (1..=3)
            .map(|lock| {
                let node = take();
                hold(node, lock);
                node
            })
            .collect();
        for lock in [2, 3, 1] {
            assert!(ptr::eq(release(lock), nodes[lock - 1]));
        }
        nodes.into_iter().for_each(give_back);
    }

    #[test]
    fn an_ended_thread_gives_its_nodes_to_the_pool() {
        std::thread::spawn(|| {
            let (one, other) = (take(), take());
            give_back(other);
            end_thread();
            let is_empty = || LISTS.with(|lists| lists.free.get().is_none());
            assert!(is_empty());
            give_back(one);
            assert!(is_empty());
        })
        .join()
        .unwrap();
    }
}
