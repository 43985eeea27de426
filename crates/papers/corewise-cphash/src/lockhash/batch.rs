//! Batched locking: one lock acquisition for all operations of a batch on one partition
//! (\[CPHASH\] §6.2).

use std::hash::BuildHasher;

use super::{COPIED_BYTES, Inner, LockHash, Owner, ValueRef, shelves::Shelf, shelves::Shelves};
use crate::RawLock;
use crate::cphash::TaskResult;
use crate::key::{Identity, Key};
use crate::partition::{InsertError, Partition};

/// An operation of a batch, or one that is submitted.
#[derive(Clone, Copy, Debug)]
pub enum CacheRequest<'a> {
    /// Looks a key up.
    Get(Key<'a>),
    /// Inserts a value, or replaces it.
    Insert(Key<'a>, &'a [u8]),
    /// Removes a key.
    Remove(Key<'a>),
}

impl<'a> CacheRequest<'a> {
    pub(crate) fn key(&self) -> Key<'a> {
        let (Self::Get(key) | Self::Insert(key, _) | Self::Remove(key)) = *self;
        key
    }

    /// The outcome if the key is too long for any table.
    #[cold]
    pub(crate) fn outcome_of_long_key(&self) -> Reply<'static> {
        match self {
            Self::Get(_) => Reply::Missing,
            Self::Insert(..) => Reply::Inserted(Err(InsertError::TooLarge)),
            Self::Remove(_) => Reply::Removed(false),
        }
    }
}

/// The outcome of an operation.
#[derive(Debug)]
#[non_exhaustive]
pub enum Reply<'a> {
    /// The value that a lookup found.
    Found(&'a [u8]),
    /// A lookup found nothing.
    Missing,
    /// An insertion has ended. [`Client::submit`](crate::Client::submit) tells when others find the
    /// value.
    Inserted(Result<(), InsertError>),
    /// Whether the removed key was present.
    Removed(bool),
    /// What a closure returned that was executed at the partition, or the payload of its panic.
    Executed(TaskResult),
}

/// An outcome that outlives the lock.
enum Kept<'t, L: RawLock> {
    /// Bytes of the scratch buffer.
    Copied(std::ops::Range<usize>),
    Referenced(ValueRef<'t, L>),
    Other(Reply<'static>),
}

struct Planned<'a> {
    partition: usize,
    index: usize,
    hash: u64,
    key: Identity<'a>,
}

impl<S: BuildHasher, L: RawLock> LockHash<S, L> {
    /// Executes a batch with one lock acquisition for each partition that it concerns, and calls
    /// `each` with the index and the outcome of every operation, outside of all locks.
    ///
    /// Operations on one key are executed in the order of the batch; `each` is called partition by
    /// partition. The batch as a whole is not atomic. Under [`Eviction::Random`], which has a lock
    /// for each bucket, the operations are executed one by one.
    ///
    /// With thousands of partitions only large batches contain several operations for one of them
    /// (\[CPHASH\] §6.2). Sorting costs O(n log n) for n operations; insertions are executed under
    /// the lock, whatever their length.
    ///
    /// [`Eviction::Random`]: crate::Eviction::Random
    ///
    /// ```
    /// use corewise_cphash::{Config, LockHash, Reply, CacheRequest};
    /// let table = LockHash::new(&Config::new(1 << 20).partitions(1))?;
    /// let batch = [CacheRequest::Insert(1.into(), b"one"), CacheRequest::Get(1.into())];
    /// table.execute_batch(&batch, |index, reply| match index {
    ///     0 => assert!(matches!(reply, Reply::Inserted(Ok(())))),
    ///     _ => assert!(matches!(reply, Reply::Found(b"one"))),
    /// });
    /// # Ok::<(), corewise_cphash::ConfigError>(())
    /// ```
    pub fn execute_batch(
        &self,
        batch: &[CacheRequest<'_>],
        mut each: impl FnMut(usize, Reply<'_>),
    ) {
        match &self.inner {
            Inner::Shelves(shelves) => self.execute_sorted(shelves, batch, each),
            Inner::Bucketed(_) => {
                for (index, request) in batch.iter().enumerate() {
                    self.execute_one(request, |reply| each(index, reply));
                }
            }
        }
    }

    fn execute_one(&self, request: &CacheRequest<'_>, reply: impl FnOnce(Reply<'_>)) {
        match *request {
            CacheRequest::Get(key) => {
                let mut reply = Some(reply);
                let mut call = |outcome: Reply<'_>| reply.take().map(|reply| reply(outcome));
                if self.get(key, |value| call(Reply::Found(value))).is_none() {
                    call(Reply::Missing);
                }
            }
            CacheRequest::Insert(key, value) => reply(Reply::Inserted(self.insert(key, value))),
            CacheRequest::Remove(key) => reply(Reply::Removed(self.remove(key))),
        }
    }

    fn execute_sorted(
        &self,
        shelves: &Shelves<L>,
        batch: &[CacheRequest<'_>],
        mut each: impl FnMut(usize, Reply<'_>),
    ) {
        let mut plan = Vec::with_capacity(batch.len());
        for (index, request) in batch.iter().enumerate() {
            let Some(key) = self.identifier.identify(request.key()) else {
                each(index, request.outcome_of_long_key());
                continue;
            };
            let hash = self.identifier.mixer.mix(key.id);
            plan.push(Planned {
                partition: shelves.index_of(hash),
                index,
                hash,
                key,
            });
        }
        // Stable, so operations on one key keep their order.
        plan.sort_by_key(|planned| planned.partition);
        let mut scratch = Vec::new();
        let mut kept = Vec::new();
        for mut run in plan.chunk_by(|a, b| a.partition == b.partition) {
            while !run.is_empty() {
                scratch.clear();
                execute_run(
                    shelves.shelf(run[0].partition),
                    run,
                    batch,
                    &mut scratch,
                    &mut kept,
                );
                let (done, rest) = run.split_at(kept.len());
                run = rest;
                for (planned, kept) in done.iter().zip(kept.drain(..)) {
                    match kept {
                        Kept::Copied(range) => each(planned.index, Reply::Found(&scratch[range])),
                        Kept::Referenced(value) => each(planned.index, Reply::Found(&value)),
                        Kept::Other(reply) => each(planned.index, reply),
                    }
                }
            }
        }
    }
}

/// Executes the operations of one partition under its lock: all, or up to an insertion whose memory
/// is taken by values that the operations before it have found.
fn execute_run<'t, L: RawLock>(
    shelf: &'t Shelf<L>,
    run: &[Planned<'_>],
    batch: &[CacheRequest<'_>],
    scratch: &mut Vec<u8>,
    kept: &mut Vec<Kept<'t, L>>,
) {
    let mut references = 0;
    shelf.with(|partition| {
        for planned in run {
            let request = &batch[planned.index];
            let outcome = execute(partition, planned, request, scratch, || Owner::Shelf(shelf));
            match outcome {
                Kept::Other(Reply::Inserted(Err(InsertError::NoRoom))) if references > 0 => return,
                Kept::Referenced(_) => references += 1,
                _ => {}
            }
            kept.push(outcome);
        }
    });
}

fn execute<'t, L: RawLock>(
    partition: &mut Partition,
    planned: &Planned<'_>,
    request: &CacheRequest<'_>,
    scratch: &mut Vec<u8>,
    owner: impl FnOnce() -> Owner<'t, L>,
) -> Kept<'t, L> {
    let Planned { hash, ref key, .. } = *planned;
    match *request {
        CacheRequest::Get(_) => {
            let Some(element) = partition.lookup(hash, key) else {
                return Kept::Other(Reply::Missing);
            };
            let value = partition.value(element);
            if value.len() <= COPIED_BYTES {
                let start = scratch.len();
                scratch.extend_from_slice(value);
                return Kept::Copied(start..scratch.len());
            }
            partition.acquire(element);
            let owner = owner();
            Kept::Referenced(ValueRef { element, owner })
        }
        CacheRequest::Insert(_, value) => {
            Kept::Other(Reply::Inserted(partition.insert(hash, key, value)))
        }
        CacheRequest::Remove(_) => Kept::Other(Reply::Removed(partition.remove(hash, key))),
    }
}
