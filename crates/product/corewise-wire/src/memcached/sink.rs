//! Prints replies directly from the engine into the output buffer.

use corewise_ops::{Flow, Now, Outcome, ReplySink, Token};

use super::ReplyEncoder;

/// Prints outcomes as they arrive, each with the [`ReplyEncoder`] that its token identifies.
///
/// Backpressure: once the output has grown past a limit ([`ReplyWriter::pause_above`]), the writer
/// asks the engine to pause; the current outcome is still printed in full.
///
/// ```
/// # use bumpalo::Bump;
/// # use corewise_ops::{Absence, Now, Outcome, ReplySink, Flow};
/// # use corewise_wire::memcached::{Codec, Limits, ReplyWriter, Step};
/// # let now = Now::new(1, 1);
/// # let (limits, scratch) = (Limits::default(), Bump::new());
/// let Step::Op { form, .. } =
///     Codec::new(false).next(b"delete k\r\n", &limits, now, &scratch)
/// else { panic!() };
/// let mut out = Vec::new();
/// let mut sink = ReplyWriter::new(std::slice::from_ref(&form), now, &mut out);
/// assert_eq!(sink.complete(0, Outcome::Deleted), Flow::Continue);
/// assert_eq!(out, b"DELETED\r\n");
/// ```
#[derive(Debug)]
pub struct ReplyWriter<'a, 'i> {
    forms: &'a [ReplyEncoder<'i>],
    now: Now,
    out: &'a mut Vec<u8>,
    pause_above: usize,
    completed: usize,
}

impl<'a, 'i> ReplyWriter<'a, 'i> {
    /// Creates a sink that prints into `out`; tokens are indices into `forms`.
    #[must_use]
    pub fn new(forms: &'a [ReplyEncoder<'i>], now: Now, out: &'a mut Vec<u8>) -> Self {
        Self {
            forms,
            now,
            out,
            pause_above: usize::MAX,
            completed: 0,
        }
    }

    /// Asks the engine to pause once `out` holds more than `bytes` bytes.
    #[must_use]
    pub fn pause_above(mut self, bytes: usize) -> Self {
        self.pause_above = bytes;
        self
    }

    /// The number of outcomes printed (silent ones included).
    #[must_use]
    pub fn completed(&self) -> usize {
        self.completed
    }
}

impl ReplySink for ReplyWriter<'_, '_> {
    /// Prints the outcome of `token`. A token without an encoder is a bug in the engine: debug
    /// builds panic, release builds print nothing.
    #[inline]
    fn complete(&mut self, token: Token, outcome: Outcome<'_>) -> Flow {
        debug_assert!(
            (token as usize) < self.forms.len(),
            "no form for token {token}"
        );
        if let Some(form) = self.forms.get(token as usize) {
            form.encode(&outcome, self.now, self.out);
            self.completed += 1;
        }
        if self.out.len() > self.pause_above {
            Flow::Pause
        } else {
            Flow::Continue
        }
    }
}
