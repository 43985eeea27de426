//! Co-located mode: a thread that serves partitions and is a client at the same time.

use std::any::Any;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use super::client::{Client, EarlierOperations, PipelineFull};
use super::foreign::contain_panic;
use super::server::PartitionServer;
use super::task::{Action, Entry, Outcome, Task};
use crate::element::{Element, Layout};
use crate::key::{Identity, Key};
use crate::lockhash::{CacheRequest, Reply};
use crate::partition::Partition;

/// A [`PartitionServer`] and a [`Client`] in one, for event loops: the loop serves its partitions
/// between its own polls, so no core only spins, and executes operations on its own partitions
/// without a message. (Not in \[CPHASH\], which dedicates threads to serving.)
///
/// Such a loop should [`poll`](Self::poll) whenever it has something to do, and before it waits for
/// events ask whether it [`may_sleep`](Self::may_sleep).
///
/// ```
/// use corewise_cphash::{Config, CpHash, Reply, CacheRequest};
///
/// let table = CpHash::new(&Config::new(1 << 20).partitions(8), 0)?;
/// let mut event_loop = table.colocated(|| { /* write to an eventfd */ });
/// event_loop.submit(1, CacheRequest::Insert("key".into(), b"value"))?;
/// event_loop.submit(2, CacheRequest::Get("key".into()))?;
/// let mut found = 0;
/// while event_loop.outstanding() > 0 {
///     event_loop.poll(|_, reply| found += usize::from(matches!(reply, Reply::Found(b"value"))));
/// }
/// assert_eq!(found, 1);
/// assert!(event_loop.may_sleep());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Operations take effect in the order of submission for each key. Outcomes may arrive in another
/// order than the operations were submitted in. Outcomes that were not delivered are dropped with
/// this value; panics of their drop are caught.
pub struct Colocated<S = RandomState> {
    server: PartitionServer,
    client: Client<S>,
    /// Outcomes of operations on partitions of this thread.
    local: VecDeque<(u64, Local)>,
}

enum Local {
    /// A referenced element of this partition.
    Found(usize, Element),
    Other(Reply<'static>),
}

// SAFETY: an element here is a counted reference, which may move between threads; the other parts
// are `Send` if `S` is.
unsafe impl<S: Send + Sync> Send for Colocated<S> {}

impl<S> Colocated<S> {
    pub(super) fn new(server: PartitionServer, client: Client<S>) -> Self {
        Self {
            server,
            client,
            local: VecDeque::new(),
        }
    }

    /// The number of operations whose outcome was not delivered yet.
    pub fn outstanding(&self) -> usize {
        self.client.outstanding() + self.local.len()
    }

    /// The number of partitions that this thread serves at the moment.
    pub fn partitions(&self) -> usize {
        self.server.partitions()
    }

    /// Whether the thread may sleep: no outcome is outstanding, and nothing waits to be served.
    /// After `true`, the waker is called when there is something to do, until the next
    /// [`poll`](Self::poll).
    ///
    /// While outcomes are outstanding the thread must poll, because servers do not wake clients.
    /// Costs a system call (`membarrier`) if no outcome is outstanding.
    pub fn may_sleep(&mut self) -> bool {
        self.outstanding() == 0 && self.server.may_sleep()
    }

    /// Gives up a reference to an element of a partition.
    fn give_up(&mut self, index: usize, element: Element) {
        // SAFETY: the reference was taken by `execute`, and is given up here.
        let release = |partition: &mut Partition| unsafe { partition.release(element) };
        if self.server.with_partition(index, release).is_none() {
            // Another server has the partition now.
            self.client.decref(index, element);
        }
    }
}

impl<S: BuildHasher> Colocated<S> {
    /// Submits an operation, as [`Client::submit`]. An operation on a partition of this thread is
    /// executed at once; its outcome is delivered by the next [`poll`](Self::poll) like all others.
    ///
    /// # Errors
    ///
    /// [`PipelineFull`]: nothing was submitted; poll and submit again.
    #[inline]
    pub fn submit(&mut self, token: u64, request: CacheRequest<'_>) -> Result<(), PipelineFull> {
        self.admit()?;
        let Some(key) = self.client.identify(request.key()) else {
            return self.client.submit(token, request);
        };
        let Some(index) = self.local_partition_of(&key) else {
            return self.client.submit(token, request);
        };
        let execute = |partition: &mut Partition| execute(partition, index, &key, request);
        if let Some(outcome) = self.server.with_partition(index, execute) {
            self.local.push_back((token, outcome));
        }
        Ok(())
    }

    /// Submits a closure that the key's partition executes, as [`Client::submit_execute`].
    ///
    /// # Errors
    ///
    /// [`PipelineFull`] if the operation cannot be accepted now. The closure is then dropped.
    pub fn submit_execute<'k, R: Any + Send>(
        &mut self,
        token: u64,
        key: impl Into<Key<'k>>,
        closure: impl FnOnce(&mut Entry<'_>) -> R + Send + 'static,
    ) -> Result<(), PipelineFull> {
        self.admit()?;
        let key = key.into();
        let Some(identity) = self.client.identify(key) else {
            return self.client.submit_execute(token, key, closure);
        };
        let Some(index) = self.local_partition_of(&identity) else {
            return self.client.submit_execute(token, key, closure);
        };
        let action = Action::Run(Box::new(|entry| Box::new(closure(entry))));
        let mut task = Task::new(Some(&identity), action);
        let run = |partition: &mut Partition| task.run(partition.hash(identity.id), partition);
        self.server.with_partition(index, run);
        if let Outcome::Ran(result) = task.outcome {
            let outcome = Local::Other(Reply::Executed(result));
            self.local.push_back((token, outcome));
        }
        Ok(())
    }

    /// Whether another operation may be outstanding.
    #[inline]
    fn admit(&self) -> Result<(), PipelineFull> {
        let is_full = self.outstanding() >= self.client.pipeline();
        if is_full { Err(PipelineFull) } else { Ok(()) }
    }

    /// The key's partition, if this thread serves it and earlier operations of this thread have
    /// been executed there.
    #[inline]
    fn local_partition_of(&mut self, key: &Identity<'_>) -> Option<usize> {
        let index = self.client.partition_of(key.id);
        if !self.server.owns(index) {
            return None;
        }
        match self.client.progress(index) {
            EarlierOperations::Executed => {}
            EarlierOperations::Outstanding => return None,
            EarlierOperations::Sent => {
                self.client.flush_for(index);
                self.server.serve(index);
            }
        }
        Some(index)
    }

    /// Serves the partitions of this thread, and delivers outcomes as [`Client::poll`] does.
    /// Returns the number of messages served and outcomes delivered.
    pub fn poll(&mut self, mut deliver: impl FnMut(u64, Reply<'_>)) -> usize {
        let mut count = self.server.poll();
        for _ in 0..self.local.len() {
            let Some((token, outcome)) = self.local.pop_front() else {
                break;
            };
            count += 1;
            match outcome {
                Local::Other(reply) => deliver(token, reply),
                Local::Found(index, element) => {
                    let found = Borrowed {
                        owner: self,
                        index,
                        element,
                    };
                    // SAFETY: a READY element of a split table; `found` has a reference to it.
                    deliver(
                        token,
                        Reply::Found(unsafe { element.parts(Layout::Split).1 }),
                    );
                    drop(found);
                }
            }
        }
        count + self.client.poll(deliver)
    }
}

/// A reference to an element that is given up when this is dropped.
struct Borrowed<'a, S> {
    owner: &'a mut Colocated<S>,
    index: usize,
    element: Element,
}

impl<S> Drop for Borrowed<'_, S> {
    #[inline]
    fn drop(&mut self) {
        self.owner.give_up(self.index, self.element);
    }
}

#[inline]
fn execute(
    partition: &mut Partition,
    index: usize,
    key: &Identity<'_>,
    request: CacheRequest<'_>,
) -> Local {
    let hash = partition.hash(key.id);
    match request {
        CacheRequest::Get(_) => match partition.lookup(hash, key) {
            Some(element) => {
                partition.acquire(element);
                Local::Found(index, element)
            }
            None => Local::Other(Reply::Missing),
        },
        CacheRequest::Insert(_, value) => {
            Local::Other(Reply::Inserted(partition.insert(hash, key, value)))
        }
        CacheRequest::Remove(_) => Local::Other(Reply::Removed(partition.remove(hash, key))),
    }
}

impl<S> Drop for Colocated<S> {
    fn drop(&mut self) {
        for (_, outcome) in std::mem::take(&mut self.local) {
            match outcome {
                Local::Found(index, element) => self.give_up(index, element),
                // What a closure returned may panic when it is dropped.
                Local::Other(reply) => contain_panic(|| drop(reply)),
            }
        }
    }
}

impl<S> std::fmt::Debug for Colocated<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Colocated")
            .field("partitions", &self.partitions())
            .field("outstanding", &self.outstanding())
            .finish()
    }
}
