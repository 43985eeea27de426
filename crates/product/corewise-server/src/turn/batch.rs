//! The batch that a turn gathers: operations for the engine, and the replies that they stand for.

use crate::codec::{Codec, Form};
use crate::receiving::Receiving;
use corewise_ops::{Op, Token, Verb};
use std::ops::Range;

/// A connection's part in this turn.
#[derive(Default)]
pub(crate) struct ConnectionInput {
    /// The connection's key in the loop's slab.
    pub(crate) conn: usize,
    /// The connection's buffer, if it has one; otherwise it was read into the arena.
    pub(crate) buffered: Vec<u8>,
    /// The connection's part of the arena; empty if `buffered` is used.
    pub(crate) in_arena: Range<usize>,
    /// How much of the input has been consumed.
    pub(crate) consumed: usize,
    /// There is no memory for the rest of its incomplete request.
    pub(crate) refused: bool,
    /// A store whose value was received in place; executed before the input.
    pub(crate) received: Option<Box<Receiving>>,
}

impl ConnectionInput {
    /// Its bytes.
    pub(super) fn bytes<'a>(&'a self, arena: &'a [u8]) -> &'a [u8] {
        if self.in_arena.is_empty() {
            &self.buffered
        } else {
            &arena[self.in_arena.clone()]
        }
    }
}

/// What a [`PendingReply`] stands for.
#[derive(Clone, Copy)]
pub(super) enum ReplyKind<'i> {
    /// An operation, and how to print its outcome.
    Outcome(Form<'i>, Verb<'i>),
    /// Bytes between the replies to operations.
    Bytes(&'i [u8]),
    /// An error that is counted; and what is printed of it: nothing if the client does not want the
    /// reply.
    Error { line: &'i [u8], printed: &'i [u8] },
    /// Rewound: neither executed nor answered.
    Rewound,
}

/// One request of the batch: what to answer, and where to rewind to.
#[derive(Clone, Copy)]
pub(super) struct PendingReply<'i> {
    pub(super) input: usize,
    /// Offset in the input at which the request begins, and the codec's state there.
    pub(super) start: usize,
    pub(super) codec_before: Codec,
    pub(super) kind: ReplyKind<'i>,
}

impl<'i> PendingReply<'i> {
    #[inline]
    pub(super) fn new(
        input: usize,
        start: usize,
        codec_before: Codec,
        kind: ReplyKind<'i>,
    ) -> Self {
        Self {
            input,
            start,
            codec_before,
            kind,
        }
    }
}

/// Where a connection's replies begin in the output.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    pub(super) input: usize,
    pub(super) start: usize,
}

/// The batch being gathered.
pub(super) struct Batch<'i> {
    pub(super) ops: Vec<Op<'i>>,
    pub(super) replies: Vec<PendingReply<'i>>,
    pub(super) segments: Vec<Segment>,
    /// For each input: how much of it is consumed.
    pub(super) consumed: Vec<usize>,
    /// The input that was rewound last.
    pub(super) rewound: Option<usize>,
    /// The last request was a flush, and nothing has been executed since.
    pub(super) has_flushed: bool,
}

impl<'i> Batch<'i> {
    #[inline]
    pub(super) fn push_op(&mut self, key: &'i [u8], verb: Verb<'i>, reply: PendingReply<'i>) {
        let token = self.replies.len() as Token;
        self.ops.push(Op::new(token, key, verb));
        self.replies.push(reply);
    }

    /// Adds what the codec answers itself to the request at `start`, before which it was in this
    /// state.
    #[inline]
    pub(super) fn push_answer(&mut self, input: usize, start: usize, codec: Codec, line: &'i [u8]) {
        let kind = match codec.counted_error(line) {
            Some(printed) => ReplyKind::Error { line, printed },
            None => ReplyKind::Bytes(line),
        };
        self.replies
            .push(PendingReply::new(input, start, codec, kind));
    }

    /// The vectors for the next batch.
    pub(super) fn recycle(self) -> RecycledBatch {
        RecycledBatch {
            ops: reuse(self.ops),
            replies: reuse(self.replies),
            segments: self.segments,
            consumed: self.consumed,
        }
    }
}

/// The vectors of a batch between turns, which belong to the loop. All but `consumed` are empty.
#[derive(Default)]
pub(crate) struct RecycledBatch {
    ops: Vec<Op<'static>>,
    replies: Vec<PendingReply<'static>>,
    segments: Vec<Segment>,
    consumed: Vec<usize>,
}

impl RecycledBatch {
    /// Bytes of memory that they take.
    pub(crate) fn held(&self) -> usize {
        self.ops.capacity() * size_of::<Op<'static>>()
            + self.replies.capacity() * size_of::<PendingReply<'static>>()
            + self.segments.capacity() * size_of::<Segment>()
            + self.consumed.capacity() * size_of::<usize>()
    }

    /// An empty batch for this many inputs.
    pub(super) fn take<'i>(&mut self, inputs: usize) -> Batch<'i> {
        let old = std::mem::take(self);
        let mut consumed = old.consumed;
        consumed.clear();
        consumed.resize(inputs, 0);
        Batch {
            ops: reuse(old.ops),
            replies: reuse(old.replies),
            segments: old.segments,
            consumed,
            rewound: None,
            has_flushed: false,
        }
    }

    /// For each input of the last batch: how much of it is consumed.
    pub(super) fn consumed(&self) -> &[usize] {
        &self.consumed
    }
}

/// Clears a vector and reuses its allocation with another lifetime.
fn reuse<A, B>(mut vec: Vec<A>) -> Vec<B> {
    vec.clear();
    // Collecting in place reuses the allocation; there are no elements to map.
    vec.into_iter()
        .map(|_| -> B { unreachable!("the vector is empty") })
        .collect()
}
