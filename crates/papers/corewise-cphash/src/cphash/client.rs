//! Clients: they send operations to partitions and receive the outcomes.

use std::any::Any;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::panic::resume_unwind;
use std::time::Duration;

use corewise_atomic::sync::Arc;
use corewise_atomic::{Backoff, Sleeps, mutant, thread};

use super::foreign::contain_panic;
use super::lane::{Lane, LaneState};
use super::message::{self, Candidates, Word, answer, op, op_of};
use super::outbox::{Outbox, Pending, What};
use super::server::is_serving;
use super::table::PartitionTable;
use super::task::{Action, Entry, Outcome, Task};
use crate::element::{Element, Layout};
use crate::key::{Identifier, Identity, Key, KeyKind, Mixer};
use crate::lockhash::{CacheRequest, Reply};
use crate::partition::InsertError;
use crate::ring;

/// Bytes of keys and values that a client may have waiting, unless it is a single operation.
pub const MAX_WAITING_BYTES: usize = 64 << 20;

/// How a client waits for a server that may have to be scheduled first.
const WAITING: Sleeps = Sleeps {
    after_rounds: 200,
    shortest: Duration::from_micros(20),
    longest: Duration::from_millis(1),
};

/// The operation was not accepted: poll, and submit it again.
///
/// The client has the most outstanding operations that its pipeline allows, a ring is full, or the
/// memory for an insertion of the same key has not arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipelineFull;

impl std::fmt::Display for PipelineFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the operation must wait until others are complete")
    }
}

impl std::error::Error for PipelineFull {}

/// One thread's way to send operations to a [`CpHash`](crate::CpHash).
///
/// *Asynchronous:* [`submit`](Self::submit) operations with tokens, [`flush`](Self::flush) the last
/// ones, and [`poll`](Self::poll) for outcomes. Operations are executed in the order of submission
/// for each key. Outcomes may arrive in another order.
///
/// *Blocking:* [`get`](Self::get), [`insert`](Self::insert), [`remove`](Self::remove) and
/// [`execute`](Self::execute) wait for the outcome. They use the single buffer of \[CPHASH\] §3.4,
/// which has a lower latency than the rings and a lower throughput. They first wait for the
/// outcomes of everything that was submitted, and keep them for the next `poll`, with copies of
/// values.
///
/// A client may be dropped at any time; its partitions execute what it has sent. Outcomes that were
/// not delivered are dropped with it or by a server; panics of their drop are caught. If no server
/// exists, waiting clients serve the partitions themselves.
pub struct Client<S = RandomState> {
    table: Arc<PartitionTable>,
    identifier: Arc<Identifier<S>>,
    /// Created when they are used first.
    lanes: Vec<Option<Box<Outbox>>>,
    outstanding: usize,
    /// Bytes of keys and values of outstanding operations.
    waiting: usize,
    /// Outstanding insertions, counted by some bits of their IDs.
    inserting: Box<[u16; FILTER]>,
    /// Outcomes that arrived during a blocking operation.
    early: VecDeque<(u64, Kept)>,
}

/// Counters of the filter that tells whether a key may be being inserted.
const FILTER: usize = 1024;

/// An outcome that outlives its element.
enum Kept {
    Found(Vec<u8>),
    Other(Reply<'static>),
}

impl Kept {
    fn new(reply: Reply<'_>) -> Self {
        Self::Other(match reply {
            Reply::Found(value) => return Self::Found(value.to_vec()),
            Reply::Missing => Reply::Missing,
            Reply::Inserted(result) => Reply::Inserted(result),
            Reply::Removed(removed) => Reply::Removed(removed),
            Reply::Executed(result) => Reply::Executed(result),
        })
    }
}

impl<S> Client<S> {
    pub(super) fn new(table: Arc<PartitionTable>, identifier: Arc<Identifier<S>>) -> Self {
        let lanes = table.shards.iter().map(|_| None).collect();
        Self {
            table,
            identifier,
            lanes,
            outstanding: 0,
            waiting: 0,
            inserting: Box::new([0; FILTER]),
            early: VecDeque::new(),
        }
    }

    /// The number of operations whose outcome was not delivered yet.
    pub fn outstanding(&self) -> usize {
        self.outstanding + self.early.len()
    }

    /// Sends the operations that were submitted. Full cache lines are sent at once, so this is for
    /// the last ones of a batch; [`poll`](Self::poll) does it, too.
    pub fn flush(&mut self) {
        for (lane, shard) in self.lanes.iter_mut().zip(self.table.shards.iter()) {
            if let Some(lane) = lane {
                lane.send_unsent();
                lane.flush();
                if lane.must_call() {
                    self.table.call(shard);
                }
            }
        }
    }

    fn lane(&mut self, index: usize) -> &mut Outbox {
        self.lanes[index].get_or_insert_with(|| {
            let pipeline = self.table.pipeline;
            // The read index is published line by line, so up to a line is not known to be free.
            let (replies, reply_reader) = ring::with_capacity(pipeline + ring::LINE_WORDS);
            let (request_writer, requests) = ring::with_capacity(2 * pipeline);
            let shared = LaneState::new();
            self.table.shards[index].connect(Lane {
                requests,
                replies,
                shared: shared.clone(),
            });
            Box::new(Outbox::new(request_writer, reply_reader, shared))
        })
    }
}

/// How far a client's earlier operations on a partition are.
#[derive(PartialEq, Eq)]
pub(super) enum EarlierOperations {
    /// Replies are outstanding.
    Outstanding,
    /// Messages without a reply may be on their way.
    Sent,
    Executed,
}

/// For `Colocated`.
impl<S> Client<S> {
    #[inline]
    pub(super) fn partition_of(&self, id: u64) -> usize {
        Mixer::partition_of(self.identifier.mixer.mix(id), self.lanes.len())
    }

    pub(super) fn pipeline(&self) -> usize {
        self.table.pipeline
    }

    /// What the partition does not know of this client's earlier operations.
    #[inline]
    pub(super) fn progress(&self, index: usize) -> EarlierOperations {
        match &self.lanes[index] {
            Some(lane) if !lane.is_settled() => EarlierOperations::Outstanding,
            Some(lane) if lane.is_used => EarlierOperations::Sent,
            _ => EarlierOperations::Executed,
        }
    }

    /// Sends what is left for the partition, which executes it before anything else happens there.
    pub(super) fn flush_for(&mut self, index: usize) {
        if let Some(lane) = &mut self.lanes[index] {
            lane.flush();
            lane.is_used = false;
        }
    }

    /// Gives up a reference to an element of a partition.
    pub(super) fn decref(&mut self, index: usize, element: Element) {
        self.post(index, message::pointer(op::DECREF, element.as_ptr()));
    }

    /// Sends a message that has no reply, at once.
    fn post(&mut self, index: usize, word: Word) {
        let lane = self.lane(index);
        lane.post(word);
        lane.flush();
        self.table.call(&self.table.shards[index]);
    }
}

impl<S: BuildHasher> Client<S> {
    #[inline]
    pub(super) fn identify<'k>(&self, key: Key<'k>) -> Option<Identity<'k>> {
        self.identifier.identify(key)
    }

    /// Submits an operation, whose outcome [`poll`](Self::poll) will deliver with `token`. Copies
    /// key and value.
    ///
    /// A lookup, a removal, and an insertion of up to 40 bytes of key and value take one round
    /// trip. (A number below 2^60 has no bytes.) Another insertion takes two: one for the memory,
    /// which [`poll`](Self::poll) fills, and one to make the value visible. Until the first is
    /// over, other operations on its key are refused. After the outcome of an insertion all
    /// clients find the value. For the paper's way see
    /// [`Config::inline_values`](crate::Config::inline_values) and
    /// [`Config::early_outcomes`](crate::Config::early_outcomes).
    ///
    /// Nothing is sent for a key of more than [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES), or a value
    /// that is too long for any table; the next [`poll`](Self::poll) delivers the outcome.
    ///
    /// Wait-free, but for the first operation on a partition, which allocates two rings.
    ///
    /// # Errors
    ///
    /// [`PipelineFull`]: nothing was submitted; poll and submit again.
    #[inline]
    pub fn submit(&mut self, token: u64, request: CacheRequest<'_>) -> Result<(), PipelineFull> {
        let Some(key) = self.identifier.identify(request.key()) else {
            return self.submit_early(token, request.outcome_of_long_key());
        };
        match request {
            CacheRequest::Get(_) => self.submit_with(token, What::Get, &key, &[], get_request),
            CacheRequest::Insert(_, value) => self.submit_insert(token, &key, value),
            CacheRequest::Remove(_) => {
                self.submit_with(token, What::Remove, &key, &[], remove_request)
            }
        }
    }

    #[inline]
    fn submit_insert(
        &mut self,
        token: u64,
        key: &Identity<'_>,
        value: &[u8],
    ) -> Result<(), PipelineFull> {
        if let Err(error) = check_lengths(key, value) {
            return self.submit_early(token, Reply::Inserted(Err(error)));
        }
        if self.is_inline(key, value) {
            return self.submit_inline(token, key, value);
        }
        let len = value.len();
        self.submit_with(token, What::Insert, key, value, |key| {
            insert_request(key, len)
        })?;
        self.inserting[key.id as usize % FILTER] += 1;
        Ok(())
    }

    /// Submits an operation whose outcome is known without its partition.
    #[cold]
    fn submit_early(&mut self, token: u64, outcome: Reply<'static>) -> Result<(), PipelineFull> {
        if self.outstanding() >= self.table.pipeline {
            return Err(PipelineFull);
        }
        self.early.push_back((token, Kept::Other(outcome)));
        Ok(())
    }

    /// Submits a closure that the key's partition executes: an atomic read-modify-write. Its result
    /// is delivered as [`Reply::Executed`].
    ///
    /// The closure runs on a server thread and delays all operations on its partition, so it should
    /// be short. It must not wait for this table.
    ///
    /// # Errors
    ///
    /// [`PipelineFull`]: the closure was dropped.
    pub fn submit_execute<'k, R: Any + Send>(
        &mut self,
        token: u64,
        key: impl Into<Key<'k>>,
        closure: impl FnOnce(&mut Entry<'_>) -> R + Send + 'static,
    ) -> Result<(), PipelineFull> {
        let key = self.identifier.identify(key.into());
        let place = key.unwrap_or(Identity::narrow(0));
        self.submit_with(token, What::Execute, &place, &[], |_| {
            [task_request(key.as_ref(), boxed(closure)), 0]
        })
    }

    #[inline]
    fn submit_with(
        &mut self,
        token: u64,
        what: What,
        key: &Identity<'_>,
        value: &[u8],
        request: impl FnOnce(&Identity<'_>) -> [Word; 2],
    ) -> Result<(), PipelineFull> {
        let bytes = key.bytes().len() + value.len();
        let (index, lane) = self.admit(key.id, 2, bytes)?;
        lane.expect(token, what, key, value);
        let words = request(key);
        lane.send(words[0]);
        if message::words_of(words[0]) == 2 {
            lane.send(words[1]);
        }
        self.count_sent(index, bytes);
        Ok(())
    }

    /// Whether an insertion fits into one message.
    #[inline]
    fn is_inline(&self, key: &Identity<'_>, value: &[u8]) -> bool {
        self.table.is_inline && key.bytes().len() + value.len() <= message::INLINE_BYTES
    }

    #[inline]
    fn submit_inline(
        &mut self,
        token: u64,
        key: &Identity<'_>,
        value: &[u8],
    ) -> Result<(), PipelineFull> {
        let (words, count) = message::insert_inline((key.id, key.kind), key.bytes(), value);
        let (index, lane) = self.admit(key.id, count, 0)?;
        lane.expect(token, What::InsertInline, &Identity::narrow(key.id), &[]);
        for &word in &words[..count] {
            lane.send(word);
        }
        self.count_sent(index, 0);
        Ok(())
    }

    /// The lane for an operation, if one with these words may be sent and with these bytes wait.
    #[inline]
    fn admit(
        &mut self,
        id: u64,
        words: usize,
        bytes: usize,
    ) -> Result<(usize, &mut Outbox), PipelineFull> {
        if self.outstanding() >= self.table.pipeline {
            return Err(PipelineFull);
        }
        let index = self.partition_of(id);
        let may_be_inserted = self.inserting[id as usize % FILTER] > 0;
        let waiting = self.waiting;
        let lane = self.lane(index);
        if !lane.has_room(words)
            || (may_be_inserted && lane.is_inserting(id))
            || (waiting > 0 && waiting + bytes > MAX_WAITING_BYTES)
        {
            return Err(PipelineFull);
        }
        Ok((index, lane))
    }

    /// Counts an operation that was sent, and calls the server if it must be.
    #[inline]
    fn count_sent(&mut self, index: usize, bytes: usize) {
        self.outstanding += 1;
        self.waiting += bytes;
        if let Some(lane) = &mut self.lanes[index]
            && lane.must_call()
        {
            self.table.call(&self.table.shards[index]);
        }
    }

    /// Sends what was submitted, calls `deliver` with the token and the outcome of each completed
    /// operation, and returns their number. Does not wait.
    ///
    /// A value that was found may be read during the call. If `deliver` panics, the outcome counts
    /// as delivered.
    pub fn poll(&mut self, mut deliver: impl FnMut(u64, Reply<'_>)) -> usize {
        let mut delivered = 0;
        while let Some((token, kept)) = self.early.pop_front() {
            delivered += 1;
            match kept {
                Kept::Found(value) => deliver(token, Reply::Found(&value)),
                Kept::Other(reply) => deliver(token, reply),
            }
        }
        delivered + self.poll_lanes(&mut deliver)
    }

    fn poll_lanes(&mut self, deliver: &mut impl FnMut(u64, Reply<'_>)) -> usize {
        self.flush();
        let before = self.outstanding;
        if before > 0 {
            let mut received = 0;
            for index in 0..self.lanes.len() {
                received += self.poll_lane(index, deliver);
            }
            if received == 0 {
                self.help();
            } else {
                // Values become READY, and memory is given back, without another poll.
                self.flush();
            }
        }
        before - self.outstanding
    }

    /// Returns the number of replies.
    #[inline]
    fn poll_lane(&mut self, index: usize, deliver: &mut impl FnMut(u64, Reply<'_>)) -> usize {
        let early_outcomes = self.table.early_outcomes || mutant!("outcome_before_ready");
        let mut received = 0;
        while let Some(lane) = &mut self.lanes[index]
            && let Some(reply) = lane.replies.pop()
        {
            received += 1;
            let pending = lane.pop();
            self.waiting -= pending.bytes();
            if pending.what == What::Insert {
                self.inserting[pending.id as usize % FILTER] -= 1;
            }
            if op_of(reply) == answer::ALLOCATED && !early_outcomes {
                // Still outstanding.
                fill(lane, &pending, message::element_of(reply), op::PUBLISH);
                lane.expect(pending.token, What::Publish, &Identity::narrow(0), &[]);
            } else {
                self.outstanding -= 1;
                complete(lane, &pending, reply, deliver);
            }
            if lane.must_call() {
                self.table.call(&self.table.shards[index]);
            }
        }
        received
    }

    /// Serves the partitions with outstanding operations that nobody serves.
    #[cold]
    fn help(&self) {
        for (lane, shard) in self.lanes.iter().zip(self.table.shards.iter()) {
            if lane.is_some() {
                self.table.help(shard);
            }
        }
    }

    /// Waits until no operation is outstanding, and keeps the outcomes for the next poll.
    #[cold]
    fn settle(&mut self) {
        let mut early = std::mem::take(&mut self.early);
        let mut backoff = Backoff::new();
        while self.outstanding > 0 {
            let done = self.poll_lanes(&mut |token, reply| {
                early.push_back((token, Kept::new(reply)));
            });
            match done {
                0 => backoff.snooze_or_sleep(&WAITING),
                _ => backoff.reset(),
            }
        }
        self.early = early;
    }

    /// Submits a batch of operations, and calls `each` with the index and the outcome of every one
    /// as they arrive. Returns when all are complete. Outcomes of operations that were submitted
    /// before are kept for the next [`poll`](Self::poll).
    ///
    /// Operations on one key are executed in the order of the batch. The batch as a whole is not
    /// atomic, and it may be longer than the pipeline. If `each` panics, the rest of what was
    /// submitted is executed, and its outcomes are dropped.
    ///
    /// ```
    /// use corewise_cphash::{Config, CpHash, Reply, CacheRequest};
    /// let table = CpHash::new(&Config::new(1 << 20).partitions(2), 1)?;
    /// let mut client = table.client();
    /// let batch = [CacheRequest::Insert(1.into(), b"one"), CacheRequest::Get(1.into())];
    /// client.execute_batch(&batch, |index, reply| match index {
    ///     0 => assert!(matches!(reply, Reply::Inserted(Ok(())))),
    ///     _ => assert!(matches!(reply, Reply::Found(b"one"))),
    /// });
    /// # Ok::<(), corewise_cphash::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// In a closure that a partition executes, and if `each` panics.
    pub fn execute_batch(
        &mut self,
        batch: &[CacheRequest<'_>],
        mut each: impl FnMut(usize, Reply<'_>),
    ) {
        must_not_serve();
        self.settle();
        let earlier = std::mem::take(&mut self.early);
        let mut running = Batch {
            client: self,
            earlier,
        };
        for (token, &request) in (0..).zip(batch) {
            let mut backoff = Backoff::new();
            while running.client.submit(token, request).is_err() {
                running.poll(&mut backoff, &mut each);
            }
        }
        let mut backoff = Backoff::new();
        while running.client.outstanding() > 0 {
            running.poll(&mut backoff, &mut each);
        }
    }

    /// Sends a request through the single buffer and waits for the reply.
    fn call(&mut self, id: u64, request: &[Word]) -> (usize, Word) {
        must_not_serve();
        if self.outstanding > 0 {
            self.settle();
        }
        let index = self.partition_of(id);
        self.lane(index);
        let shard = &self.table.shards[index];
        let Some(lane) = &mut self.lanes[index] else {
            unreachable!("it was just created")
        };
        let mut backoff = Backoff::new();
        let mut is_sent = false;
        loop {
            // What was sent before is executed before.
            if !is_sent && lane.send_unsent() {
                lane.flush();
                lane.shared.send(request);
                self.table.call(shard);
                is_sent = true;
            }
            if is_sent && let Some(reply) = lane.shared.receive() {
                return (index, reply);
            }
            self.table.help(shard);
            backoff.snooze_or_sleep(&WAITING);
        }
    }

    /// Looks a key up, waits for the outcome, and calls `read` with the value.
    ///
    /// # Panics
    ///
    /// In a closure that a partition executes; so do all methods that wait.
    pub fn get<'k, R>(
        &mut self,
        key: impl Into<Key<'k>>,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        self.get_ref(key).map(|value| read(&value))
    }

    /// Looks a key up, waits for the outcome, and returns a reference to the value.
    ///
    /// # Panics
    ///
    /// As [`get`](Self::get).
    pub fn get_ref<'k>(&mut self, key: impl Into<Key<'k>>) -> Option<RemoteRef<'_, S>> {
        let key = self.identifier.identify(key.into())?;
        let (index, reply) = self.call(key.id, &get_request(&key));
        // SAFETY: a reply to a lookup, whose references are ours.
        let found = unsafe { found_in(reply, key.kind, key.bytes()) };
        match (found.element, found.decref) {
            (Some(element), Some(decref)) => Some(RemoteRef {
                client: self,
                index,
                element,
                decref,
            }),
            (_, decref) => {
                decref.into_iter().for_each(|word| self.post(index, word));
                None
            }
        }
    }

    fn call_task(&mut self, key: Option<&Identity<'_>>, action: Action) -> Outcome {
        // Before the message owns the task, which would not be dropped by a panic then.
        must_not_serve();
        let (_, reply) = self.call(key.map_or(0, |key| key.id), &[task_request(key, action)]);
        debug_assert_eq!(op_of(reply), answer::EXECUTED);
        // SAFETY: from `Box::into_raw` in `task_request`, and given back with the reply.
        unsafe { Box::from_raw(message::pointer_of::<Task>(reply)) }.outcome
    }

    /// Inserts or replaces a value, and waits until all clients find it.
    ///
    /// # Errors
    ///
    /// As [`LockHash::insert`](crate::LockHash::insert).
    ///
    /// # Panics
    ///
    /// As [`get`](Self::get).
    pub fn insert<'k>(&mut self, key: impl Into<Key<'k>>, value: &[u8]) -> Result<(), InsertError> {
        let key = self.identifier.identify(key.into());
        let key = key.ok_or(InsertError::TooLarge)?;
        check_lengths(&key, value)?;
        if self.is_inline(&key, value) {
            let (words, count) = message::insert_inline((key.id, key.kind), key.bytes(), value);
            let (_, reply) = self.call(key.id, &words[..count]);
            return match op_of(reply) {
                answer::PUBLISHED => Ok(()),
                _ => Err(message::refusal_of(reply)),
            };
        }
        let (index, reply) = self.call(key.id, &insert_request(&key, value.len()));
        if op_of(reply) != answer::ALLOCATED {
            return Err(message::refusal_of(reply));
        }
        let element = message::element_of(reply);
        // SAFETY: a NOT READY element of a split table, allocated for these lengths by our request.
        unsafe { element.fill(Layout::Split, key.bytes(), value) };
        // Through the single buffer, so that the server has executed it when this returns.
        let publish = message::pointer(op::PUBLISH, element.as_ptr());
        let (_, reply) = self.call(key.id, &[publish]);
        debug_assert_eq!(
            (op_of(reply), index),
            (answer::PUBLISHED, self.partition_of(key.id))
        );
        Ok(())
    }

    /// Removes a key and waits for the outcome: whether it was present.
    ///
    /// # Panics
    ///
    /// As [`get`](Self::get).
    pub fn remove<'k>(&mut self, key: impl Into<Key<'k>>) -> bool {
        let Some(key) = self.identifier.identify(key.into()) else {
            return false;
        };
        if key.kind == KeyKind::Narrow {
            let (_, reply) = self.call(key.id, &remove_request(&key));
            return message::payload_of(reply) == 1;
        }
        matches!(
            self.call_task(Some(&key), Action::Remove),
            Outcome::Removed(true)
        )
    }

    /// Executes a closure at the key's partition and waits for its result. The closure is an atomic
    /// read-modify-write; see [`submit_execute`](Self::submit_execute).
    ///
    /// ```
    /// use corewise_cphash::{Config, CpHash};
    /// let table = CpHash::new(&Config::new(1 << 20).partitions(2), 1)?;
    /// let mut client = table.client();
    /// let count = client.execute("visits", |entry| {
    ///     let count = entry.get().map_or(0, |value| value[0]) + 1;
    ///     entry.insert(&[count]).map(|()| count)
    /// });
    /// assert_eq!(count, Ok(1));
    /// # Ok::<(), corewise_cphash::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// As [`get`](Self::get), and if the closure panics.
    pub fn execute<'k, R: Any + Send>(
        &mut self,
        key: impl Into<Key<'k>>,
        closure: impl FnOnce(&mut Entry<'_>) -> R + Send + 'static,
    ) -> R {
        let key = self.identifier.identify(key.into());
        match self.call_task(key.as_ref(), boxed(closure)) {
            Outcome::Ran(Ok(result)) => match result.downcast() {
                Ok(result) => *result,
                Err(_) => unreachable!("the closure returns this type"),
            },
            Outcome::Ran(Err(payload)) => resume_unwind(payload),
            _ => unreachable!("the task was to run a closure"),
        }
    }
}

/// A batch that is being executed.
struct Batch<'c, S: BuildHasher> {
    client: &'c mut Client<S>,
    /// Outcomes of operations that were submitted before.
    earlier: VecDeque<(u64, Kept)>,
}

impl<S: BuildHasher> Batch<'_, S> {
    fn poll(&mut self, backoff: &mut Backoff, each: &mut impl FnMut(usize, Reply<'_>)) {
        let deliver = |token, reply: Reply<'_>| each(token as usize, reply);
        match self.client.poll(deliver) {
            0 => backoff.snooze_or_sleep(&WAITING),
            _ => backoff.reset(),
        }
    }
}

impl<S: BuildHasher> Drop for Batch<'_, S> {
    fn drop(&mut self) {
        // Only if `each` has panicked is anything left.
        self.client.settle();
        drop_early(&mut self.client.early);
        self.client.early = std::mem::take(&mut self.earlier);
    }
}

fn must_not_serve() {
    assert!(
        !is_serving(),
        "a closure that a partition executes must not wait for a table"
    );
}

/// Delivers one outcome.
#[inline]
fn complete(
    lane: &mut Outbox,
    pending: &Pending,
    reply: Word,
    deliver: &mut impl FnMut(u64, Reply<'_>),
) {
    let token = pending.token;
    match op_of(reply) {
        answer::FOUND | answer::CANDIDATES => {
            // SAFETY: a reply to a lookup, whose references are ours; `decref` gives them up at the
            // end of this arm.
            let found = unsafe { found_in(reply, pending.kind, lane.parts(pending).0) };
            lane.pop_bytes(pending);
            let decref = found.decref.map(|word| Decref { lane, word });
            let Some(element) = found.element else {
                return deliver(token, Reply::Missing);
            };
            if mutant!("decref_before_reading") {
                if let Some(decref) = decref {
                    decref.now();
                }
                // SAFETY: none: this is the mistake that a model must find.
                let (_, value) = unsafe { element.parts(Layout::Split) };
                return deliver(token, Reply::Found(value));
            }
            // SAFETY: a READY element of a split table, to which we have a reference.
            let (_, value) = unsafe { element.parts(Layout::Split) };
            deliver(token, Reply::Found(value));
        }
        answer::ALLOCATED => {
            fill(lane, pending, message::element_of(reply), op::READY);
            deliver(token, Reply::Inserted(Ok(())));
        }
        answer::PUBLISHED => {
            lane.pop_bytes(pending);
            deliver(token, Reply::Inserted(Ok(())));
        }
        answer::REFUSED => {
            lane.pop_bytes(pending);
            deliver(token, Reply::Inserted(Err(message::refusal_of(reply))));
        }
        answer::REMOVED => {
            lane.pop_bytes(pending);
            deliver(token, Reply::Removed(message::payload_of(reply) == 1));
        }
        answer::EXECUTED => {
            lane.pop_bytes(pending);
            // SAFETY: from `Box::into_raw` in `task_request`, and given back with the reply.
            let task = unsafe { Box::from_raw(message::pointer_of::<Task>(reply)) };
            complete_task(token, task.outcome, deliver);
        }
        _ => {
            lane.pop_bytes(pending);
            deliver(token, Reply::Missing);
        }
    }
}

/// What the reply to a lookup has found.
struct FoundElement {
    element: Option<Element>,
    /// The message that gives up the references of the reply.
    decref: Option<Word>,
}

/// Looks for a key among the elements of a reply to a lookup.
///
/// # Safety
///
/// 1. The references that the reply carries were not given up.
#[inline]
unsafe fn found_in(reply: Word, kind: KeyKind, key: &[u8]) -> FoundElement {
    let is_it = |element: &Element| {
        // SAFETY: a READY element of a split table, to which the reply has given a reference (1).
        kind == KeyKind::Narrow || unsafe { element.parts(Layout::Split).0.has(kind, key) }
    };
    match op_of(reply) {
        answer::FOUND => {
            let element = message::element_of(reply);
            FoundElement {
                element: Some(element).filter(is_it),
                decref: Some(message::pointer(op::DECREF, element.as_ptr())),
            }
        }
        answer::CANDIDATES => {
            let list = message::pointer_of::<Candidates>(reply);
            // SAFETY: the list is ours until it is given up (1).
            let elements = unsafe { &*list };
            FoundElement {
                element: elements.iter().copied().find(is_it),
                decref: Some(message::pointer(op::DECREF_ALL, list)),
            }
        }
        _ => FoundElement {
            element: None,
            decref: None,
        },
    }
}

/// Copies key and value into their element and makes it READY by this message.
#[inline]
fn fill(lane: &mut Outbox, pending: &Pending, element: Element, op: u64) {
    let ready = message::pointer(op, element.as_ptr());
    let is_early = mutant!("ready_before_filling");
    if is_early {
        lane.send(ready);
        lane.flush();
        thread::yield_now();
    }
    let (key, value) = lane.parts(pending);
    // SAFETY: a NOT READY element of a split table, allocated for these lengths.
    unsafe { element.fill(Layout::Split, key, value) };
    lane.pop_bytes(pending);
    if !is_early {
        lane.post(ready);
    }
}

fn complete_task(token: u64, outcome: Outcome, deliver: &mut impl FnMut(u64, Reply<'_>)) {
    match outcome {
        Outcome::None => deliver(token, Reply::Missing),
        Outcome::Removed(removed) => deliver(token, Reply::Removed(removed)),
        Outcome::Ran(result) => deliver(token, Reply::Executed(result)),
    }
}

/// Gives references up when dropped.
struct Decref<'a> {
    lane: &'a mut Outbox,
    word: Word,
}

impl Decref<'_> {
    /// Gives them up at once, and lets the server run.
    #[cold]
    fn now(self) {
        self.lane.post(self.word);
        self.lane.flush();
        thread::yield_now();
        std::mem::forget(self);
    }
}

impl Drop for Decref<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lane.post(self.word);
    }
}

#[inline]
fn get_request(key: &Identity<'_>) -> [Word; 2] {
    let op = match key.kind {
        KeyKind::Narrow => op::LOOKUP,
        _ => op::LOOKUP_BYTES,
    };
    [message::word(op, key.id), 0]
}

#[inline]
fn insert_request(key: &Identity<'_>, value_len: usize) -> [Word; 2] {
    let op = match key.kind {
        KeyKind::Narrow => op::INSERT,
        _ => op::INSERT_BYTES,
    };
    let lengths = message::lengths(key.kind, key.bytes().len(), value_len);
    [message::word(op, key.id), lengths]
}

fn remove_request(key: &Identity<'_>) -> [Word; 2] {
    match key.kind {
        KeyKind::Narrow => [message::word(op::REMOVE, key.id), 0],
        _ => [task_request(Some(key), Action::Remove), 0],
    }
}

fn task_request(key: Option<&Identity<'_>>, action: Action) -> Word {
    message::pointer(op::EXECUTE, Box::into_raw(Task::new(key, action)))
}

fn boxed<R: Any + Send>(closure: impl FnOnce(&mut Entry<'_>) -> R + Send + 'static) -> Action {
    Action::Run(Box::new(|entry| Box::new(closure(entry))))
}

/// What a message cannot express is too large for any partition.
fn check_lengths(key: &Identity<'_>, value: &[u8]) -> Result<(), InsertError> {
    let lines = Layout::Split.lines(key.bytes().len(), value.len());
    lines.map(|_| ()).ok_or(InsertError::TooLarge)
}

impl<S> Drop for Client<S> {
    fn drop(&mut self) {
        // A forked child serves nobody: what other clients have sent is executed in the parent, and
        // a thread that the child does not have may hold the lock of new lanes.
        let is_inherited = self.table.is_inherited();
        for (lane, shard) in self.lanes.iter_mut().zip(self.table.shards.iter()) {
            if let Some(lane) = lane.take() {
                lane.close();
                shard.leave();
                self.table.call(shard);
                if !is_inherited {
                    self.table.help(shard);
                }
            }
        }
        drop_early(&mut self.early);
    }
}

/// Drops outcomes that no `poll` will deliver. What a closure returned may panic then.
fn drop_early(early: &mut VecDeque<(u64, Kept)>) {
    for (_, kept) in std::mem::take(early) {
        contain_panic(|| drop(kept));
    }
}

impl<S> std::fmt::Debug for Client<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({} outstanding)", self.outstanding())
    }
}

/// A reference to a value of a [`CpHash`](crate::CpHash), which dereferences to its bytes.
///
/// The value stays as it is and in memory until this is dropped.
pub struct RemoteRef<'c, S: BuildHasher = RandomState> {
    client: &'c mut Client<S>,
    index: usize,
    element: Element,
    /// The message that gives the reference up.
    decref: Word,
}

// SAFETY: the element is only read; the reference is given up through the client, which is `Send`
// if `S` is.
unsafe impl<S: BuildHasher + Send + Sync> Send for RemoteRef<'_, S> {}
// SAFETY: shared references give bytes only.
unsafe impl<S: BuildHasher + Send + Sync> Sync for RemoteRef<'_, S> {}

impl<S: BuildHasher> std::ops::Deref for RemoteRef<'_, S> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: a READY element of a split table; our reference keeps it as it is.
        unsafe { self.element.parts(Layout::Split).1 }
    }
}

impl<S: BuildHasher> Drop for RemoteRef<'_, S> {
    fn drop(&mut self) {
        self.client.post(self.index, self.decref);
    }
}

impl<S: BuildHasher> std::fmt::Debug for RemoteRef<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RemoteRef({} bytes)", self.len())
    }
}
