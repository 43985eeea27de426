//! memcached's binary protocol, server side, without SASL.
//!
//! ```text
//!  request  0      1        2            4            5           6        8
//!           │ 0x80 │ opcode │ key length │ extras len │ data type │ vbucket │ body length │
//!           12       16    24
//!           │ opaque │ cas  │ extras │ key │ value │
//!  response the same with 0x81, and a status instead of the vbucket
//! ```
//!
//! All numbers are big-endian. The body is extras, key and value. [`Codec`] is the state of one
//! connection. An operation comes with a [`ReplyForm`], which prints the response once the outcome
//! is known. A [`Call`] is a command that the server executes as a text command; it translates the
//! text reply.
//!
//! # Protocol facts
//!
//! All of this is as in memcached 1.6.18:
//!
//! * The first byte of a connection determines its protocol, once.
//! * A quiet command (`GetQ`, `SetQ`, …) omits the common response: that of a read to a miss, and
//!   that of any other command to success. All errors are sent.
//! * A response repeats the opcode and the opaque value. Its text explains an error.
//! * A request of a wrong shape (lengths that its command does not have, a key over 250 bytes) is
//!   answered with an error, and the connection is closed. A wrong first byte closes it silently.
//! * A store over [`Limits::max_item_size`](crate::memcached::Limits::max_item_size) is refused
//!   when its header is read; its value is discarded as it arrives, and `Set` removes the old item.
//! * A store with a cas value replaces an item with that cas value and nothing else, whichever of
//!   `Set`, `Add` and `Replace` it is.
//! * `Increment` and `Decrement` create a missing counter with the initial value, unless the expiry
//!   time is 0xffffffff. A cas value counts only if there is an item.
//! * Expiry times are unsigned: up to thirty days are relative, larger ones are Unix seconds, and
//!   zero means never.
//! * `Touch`, `GAT`, `GATK`, `Stat` have no value; if a body is longer than their extras and key,
//!   the rest is read as the next request.
//! * The SASL commands are unknown.
//!
//! Deviations, all deliberate:
//!
//! 1. The body of an unknown command is discarded. memcached 1.6.18 discards the body after it has
//!    skipped extras and key, and so loses the beginning of the next request.
//! 2. `Verbosity` succeeds, as the protocol's description has it; to memcached it is unknown.
//! 3. Replies to earlier requests are sent before a wrong first byte closes the connection.
//! 4. A body over 1 GiB is an invalid argument, as in newer releases.
//! 5. A concatenation that finds no memory is answered as not stored.
//! 6. `Stat` with the key `detail` fails if dumps are disabled, as in newer releases.
//!
//! # Guarantees
//!
//! 1. **Total.** No input causes a panic; every call consumes bytes, asks for more, or closes.
//! 2. **Independent of splits.** Operations and replies do not depend on how the input was split
//!    into reads.
//! 3. **In step.** A request is consumed whole, with the exception of the longer bodies above, or
//!    the connection is closed.
//! 4. **No allocation.** Parsing allocates only fixed responses, in the scratch arena.
//! 5. **Rewindable.** [`Codec`] is a value, as in [`memcached`](crate::memcached).
//! 6. **Values may be received separately**, as in [`memcached`](crate::memcached).

mod call;
mod codec;
mod reply_form;
mod request;
mod response;

pub use call::Call;
pub use codec::Codec;
pub use reply_form::ReplyForm;

/// Bytes of a request and of a response before the body.
pub const HEADER_LEN: usize = 24;
/// The first byte of a request.
pub const REQUEST: u8 = 0x80;
/// The first byte of a response.
pub const RESPONSE: u8 = 0x81;
