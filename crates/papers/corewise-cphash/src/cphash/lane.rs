//! The server's end of a lane: the pair of rings between a client and a partition.
//!
//! # Guarantees
//!
//! 1. *Order.* The server executes the requests of a lane in the order in which they were sent, and
//!    replies in this order.
//! 2. *Room.* A client never has more outstanding requests than the reply ring has room for, so
//!    a server never waits for a client.
//! 3. *Departure.* A client that leaves closes its lanes. The server executes what was sent before,
//!    gives up the references in replies that the client did not read, and drops the lane.

use corewise_atomic::CachePadded;
use corewise_atomic::lock::Mutex;
use corewise_atomic::ordering;
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::AtomicU64;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::foreign::contain_panic;
use super::message::{self, Candidates, INLINE_WORDS, Word, answer, op, op_of, payload_of};
use super::task::Task;
use crate::element::Element;
use crate::key::{Identity, KeyKind};
use crate::partition::{ById, Partition};
use crate::ring::{Consumer, Producer};

/// Words that are looked at ahead of execution, to prefetch their buckets.
const AHEAD: usize = 8;

/// States of the word that client and server share beside the rings.
mod state {
    /// Nothing but the rings.
    pub(super) const RINGS: u64 = 0;
    /// The single buffer has a request.
    pub(super) const REQUEST: u64 = 1;
    /// The single buffer has a reply.
    pub(super) const REPLY: u64 = 2;
    /// The client has left.
    pub(super) const CLOSED: u64 = 3;
}

/// What a client leaves behind.
pub(super) struct Leftover {
    pub(super) replies: Consumer,
    /// Words for which the request ring had no room.
    pub(super) unsent: Vec<Word>,
}

/// The single buffer of \[CPHASH\] §3.4, and how a client says that it leaves.
pub(super) struct LaneState {
    buffer: CachePadded<Buffer>,
    leftover: Mutex<Option<Leftover>>,
}

/// One cache line: a state and a message.
#[repr(C)]
struct Buffer {
    state: AtomicU64,
    words: [AtomicU64; INLINE_WORDS],
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = assert!(size_of::<Buffer>() == 64);

impl LaneState {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            buffer: CachePadded::new(Buffer {
                state: AtomicU64::new(state::RINGS),
                words: [0; INLINE_WORDS].map(AtomicU64::new),
            }),
            leftover: Mutex::new(None),
        })
    }

    /// Client: puts a request into the single buffer.
    pub(super) fn send(&self, words: &[Word]) {
        for (place, &word) in self.buffer.words.iter().zip(words) {
            // Relaxed: published by the store below.
            place.store(word, Relaxed);
        }
        // Release: pairs with the Acquire in `Lane::serve`.
        let release = ordering!(Release, "single_relaxed_request");
        self.buffer.state.store(state::REQUEST, release);
    }

    /// Client: takes the reply out of the single buffer.
    pub(super) fn receive(&self) -> Option<Word> {
        // Acquire: pairs with the Release in `Lane::serve_single`.
        if self.buffer.state.load(Acquire) != state::REPLY {
            return None;
        }
        // Relaxed: ordered by the load above; and nothing else reads the state until the next
        // request.
        let reply = self.buffer.words[0].load(Relaxed);
        self.buffer.state.store(state::RINGS, Relaxed);
        Some(reply)
    }

    /// Client: leaves.
    pub(super) fn close(&self, leftover: Leftover) {
        *self.leftover.lock() = Some(leftover);
        // Release: pairs with the Acquire in `Lane::serve`: everything the client sent is seen.
        let release = ordering!(Release, "lane_relaxed_close");
        self.buffer.state.store(state::CLOSED, release);
    }

    /// Whether a server has something to do beside the rings. Orders nothing.
    pub(super) fn is_calling(&self) -> bool {
        // Relaxed: the caller orders this load by a barrier.
        matches!(
            self.buffer.state.load(Relaxed),
            state::REQUEST | state::CLOSED
        )
    }
}

pub(super) struct Lane {
    pub(super) requests: Consumer,
    pub(super) replies: Producer,
    pub(super) shared: Arc<LaneState>,
}

/// Whether a lane is still in use.
#[derive(PartialEq, Eq)]
pub(super) enum Life {
    Open,
    Over,
}

impl Lane {
    /// Whether the client has sent something since the lane was last served. Orders nothing.
    ///
    /// The beginning of a message does not count again: its client flushes the rest, and calls the
    /// server.
    pub(super) fn has_requests(&self) -> bool {
        self.requests.has_news() || self.shared.is_calling()
    }

    /// Executes what the client has sent. Adds the number of messages to `served`.
    #[inline]
    pub(super) fn serve(&mut self, partition: &mut Partition, served: &mut usize) -> Life {
        // Acquire: pairs with the Release in `send` and `close`. Loaded before the ring is read, so
        // everything that was sent before is served before.
        let state = self.shared.buffer.state.load(Acquire);
        *served += self.serve_ring(partition);
        match state {
            state::REQUEST => {
                self.serve_single(partition);
                *served += 1;
                Life::Open
            }
            state::CLOSED => {
                self.close(partition);
                *served += 1;
                Life::Over
            }
            _ => Life::Open,
        }
    }

    #[inline]
    fn serve_ring(&mut self, partition: &mut Partition) -> usize {
        let mut served = 0;
        // Requests that arrive meanwhile have to wait: other lanes are next.
        let mut left = self.requests.readable(usize::MAX);
        while left > 0 {
            let ahead = left.min(AHEAD);
            self.prefetch(partition, ahead);
            let mut done = 0;
            while done < ahead {
                let Some(request) = self.requests.peek(done) else {
                    break;
                };
                let mut words = message::words_of(request);
                let second = match words {
                    1 => 0,
                    // The rest of a message that crosses a line may come later.
                    _ => match self.requests.peek(done + 1) {
                        Some(second) => second,
                        None => break,
                    },
                };
                let reply = if message::is_inline(request) {
                    let Some(behind) = self.behind(done + words, second) else {
                        break;
                    };
                    words += message::words_behind(second);
                    Some(insert_inline(partition, request, second, &behind))
                } else {
                    execute(partition, request, second)
                };
                if let Some(reply) = reply {
                    self.reply(reply);
                }
                done += words;
                served += 1;
            }
            self.requests.advance(done);
            left = left.saturating_sub(done);
            if done < ahead {
                break;
            }
        }
        self.replies.flush();
        served
    }

    /// The words behind the lengths of an inline insertion, if all of them have come.
    #[inline]
    fn behind(&self, first: usize, lengths: Word) -> Option<[Word; INLINE_WORDS - 2]> {
        let mut words = [0; INLINE_WORDS - 2];
        let count = message::words_behind(lengths);
        for (index, word) in words[..count].iter_mut().enumerate() {
            *word = self.requests.peek(first + index)?;
        }
        Some(words)
    }

    #[inline(always)]
    fn prefetch(&self, partition: &Partition, words: usize) {
        for ahead in 0..words {
            if let Some(request) = self.requests.peek(ahead) {
                // Of second words and pointers this prefetches something useless.
                partition.prefetch(payload_of(request));
            }
        }
    }

    #[inline(always)]
    fn reply(&mut self, reply: Word) {
        let has_room = self.replies.push(reply);
        assert!(has_room, "a client has no more requests than replies fit");
    }

    #[cold]
    fn serve_single(&mut self, partition: &mut Partition) {
        // Relaxed: ordered by the load of the state.
        let words = &self.shared.buffer.words;
        let [first, second] = [0, 1].map(|index: usize| words[index].load(Relaxed));
        let reply = if message::is_inline(first) {
            // Relaxed: ordered by the load of the state.
            let behind = std::array::from_fn(|index| words[2 + index].load(Relaxed));
            Some(insert_inline(partition, first, second, &behind))
        } else {
            execute(partition, first, second)
        };
        let reply = reply.unwrap_or(message::word(answer::MISSING, 0));
        // Relaxed: published by the store below.
        words[0].store(reply, Relaxed);
        // Release: pairs with the Acquire in `receive`.
        let release = ordering!(Release, "single_relaxed_reply");
        self.shared.buffer.state.store(state::REPLY, release);
    }

    /// Ends the lane of a client that has left.
    #[cold]
    fn close(&mut self, partition: &mut Partition) {
        let Some(mut leftover) = self.shared.leftover.lock().take() else {
            return;
        };
        let mut unsent = leftover.unsent.into_iter();
        while let Some(request) = unsent.next() {
            let second = match message::words_of(request) {
                1 => 0,
                _ => unsent.next().unwrap_or(0),
            };
            if let Some(reply) = execute(partition, request, second) {
                give_up(partition, reply);
            }
        }
        self.replies.flush();
        while let Some(reply) = leftover.replies.pop() {
            give_up(partition, reply);
        }
    }
}

/// Gives up what a reply refers to.
fn give_up(partition: &mut Partition, reply: Word) {
    match op_of(reply) {
        // SAFETY: the reply carries a reference of the client, which has left.
        answer::FOUND | answer::ALLOCATED => unsafe {
            partition.release(message::element_of(reply))
        },
        // SAFETY: the reply carries the list, and its references, of the client, which has left.
        answer::CANDIDATES => unsafe { release_all(partition, reply) },
        answer::EXECUTED => {
            // SAFETY: from `Box::into_raw` in `Client`, and given back by `execute`.
            let task = unsafe { Box::from_raw(message::pointer_of::<Task>(reply)) };
            // What a closure returned may panic when it is dropped.
            contain_panic(|| drop(task));
        }
        _ => {}
    }
}

/// Executes one request at its partition.
#[inline(always)]
fn execute(partition: &mut Partition, request: Word, second: Word) -> Option<Word> {
    let id = payload_of(request);
    Some(match op_of(request) {
        op::LOOKUP => {
            let found = partition.lookup(partition.hash(id), &Identity::narrow(id));
            found_reply(partition, found)
        }
        op::LOOKUP_BYTES => match partition.lookup_id(partition.hash(id), id) {
            ById::None => message::word(answer::MISSING, 0),
            ById::One(element) => found_reply(partition, Some(element)),
            ById::Several(elements) => candidates(partition, elements),
        },
        op::INSERT => {
            let (_, _, value_len) = message::lengths_of(second);
            allocate(partition, (id, KeyKind::Narrow), 0, value_len)
        }
        op::INSERT_BYTES => {
            let (kind, key_len, value_len) = message::lengths_of(second);
            allocate(partition, (id, kind), key_len, value_len)
        }
        op::READY | op::PUBLISH => {
            // SAFETY: the client got the element from `allocate`, has filled it in, and gives up
            // its reference.
            unsafe { partition.publish(message::element_of(request)) };
            if op_of(request) == op::READY {
                return None;
            }
            message::word(answer::PUBLISHED, 0)
        }
        op::DECREF => {
            // SAFETY: the client got the reference in a reply, and gives it up.
            unsafe { partition.release(message::element_of(request)) };
            return None;
        }
        op::DECREF_ALL => {
            // SAFETY: the client got the list in a reply, and gives it up.
            unsafe { release_all(partition, request) };
            return None;
        }
        op::REMOVE => {
            let removed = partition.remove(partition.hash(id), &Identity::narrow(id));
            message::word(answer::REMOVED, u64::from(removed))
        }
        op::EXECUTE => {
            let task = message::pointer_of::<Task>(request);
            // SAFETY: from `Box::into_raw` in `Client`, which does not touch it before the reply.
            let running = unsafe { &mut *task };
            running.run(partition.hash(running.id()), partition);
            message::pointer(answer::EXECUTED, task)
        }
        unknown => unreachable!("no client sends {unknown}"),
    })
}

#[inline(always)]
fn found_reply(partition: &mut Partition, found: Option<Element>) -> Word {
    match found {
        Some(element) => {
            partition.acquire(element);
            message::pointer(answer::FOUND, element.as_ptr())
        }
        None => message::word(answer::MISSING, 0),
    }
}

/// Inserts a key and a value that a message carries.
#[inline]
fn insert_inline(
    partition: &mut Partition,
    request: Word,
    lengths: Word,
    behind: &[Word; INLINE_WORDS - 2],
) -> Word {
    let id = payload_of(request);
    let (kind, key_len, value_len) = message::lengths_of(lengths);
    let bytes = message::inline_bytes(behind);
    let (key, rest) = bytes.split_at(key_len);
    let key = match op_of(request) {
        op::INSERT_INLINE => Identity::narrow(id),
        _ => Identity::with_bytes(id, kind, key),
    };
    match partition.insert(partition.hash(id), &key, &rest[..value_len]) {
        Ok(()) => message::word(answer::PUBLISHED, 0),
        Err(error) => message::refused(error),
    }
}

/// Refers to all elements of a list and sends it.
#[cold]
fn candidates(partition: &mut Partition, elements: Candidates) -> Word {
    for &element in &elements {
        partition.acquire(element);
    }
    message::pointer(answer::CANDIDATES, Box::into_raw(Box::new(elements)))
}

/// Gives up a list that a message leads to, and its references.
///
/// # Safety
///
/// 1. The message came from `candidates` at this partition, or was derived from its pointer, and
///    the list is not used afterwards.
#[cold]
unsafe fn release_all(partition: &mut Partition, message: Word) {
    // SAFETY: from `Box::into_raw` in `candidates` (1).
    let elements = unsafe { Box::from_raw(message::pointer_of::<Candidates>(message)) };
    for element in elements.into_iter() {
        // SAFETY: the list has a reference to each (1).
        unsafe { partition.release(element) };
    }
}

#[inline(always)]
fn allocate(
    partition: &mut Partition,
    key: (u64, KeyKind),
    key_len: usize,
    value_len: usize,
) -> Word {
    match partition.allocate_for(key, key_len, value_len) {
        Ok(element) => message::pointer(answer::ALLOCATED, element.as_ptr()),
        Err(error) => message::refused(error),
    }
}
