//! RESP2 and RESP3, the protocols of Redis.
//!
//! A request is an array of bulk strings (the *multibulk* form), or a line of words (the *inline*
//! form). [`Codec`] finds requests in a connection's input, and [`Encoder`] prints replies in the
//! [`Version`] that the client has chosen; what a request means is the server's matter.
//! [`encode_request`] and [`ReplyReader`] are the client's side.
//!
//! ```text
//!   *3\r\n $3\r\nSET\r\n $1\r\nk\r\n $2\r\nv1\r\n     multibulk: parsed where it lies
//!     │      └ element 0   └ element 1 └ element 2
//!     └ count of elements
//!   set k "v1"\r\n                                    inline: rewritten as multibulk in the arena
//! ```
//!
//! # Guarantees
//!
//! 1. **Total.** No input causes a panic; every call consumes bytes, asks for more, or closes.
//! 2. **Independent of splits.** The requests and errors do not depend on how the input was split
//!    into reads ([`Parsed::Skip`]s may be split differently).
//! 3. **Linear.** Complete elements of an unfinished request are not parsed again, bytes of an
//!    unfinished line are searched for its end once, and bulk strings are not read.
//! 4. **No allocation.** Parsing allocates only the words of inline requests, in the scratch arena.
//!    Arguments are slices of the input or of the arena. The encoder appends to its caller's
//!    buffer.
//! 5. **Rewindable.** [`Codec`] is a value: a caller that cannot execute a request restores the
//!    copy taken before it and repeats the call later.
//! 6. **No recursion.** Elements of a request are bulk strings, and [`ReplyReader`] keeps a count
//!    of the values that are missing, not a stack.
//! 7. **No unsafe code.**
//!
//! # Differences to Redis
//!
//! The codec accepts what Redis 7.0 accepts, and its error texts are those of Redis. Like Redis it
//! checks neither the byte behind the `\r` of a length nor the two bytes behind a bulk string.
//!
//! 1. A NUL is an ordinary byte. Redis finds no line break behind it and waits for more input.
//! 2. A line over its limit is refused however it arrives. Redis accepts it if it arrives at once.
//! 3. A request over [`Limits::max_request`] is discarded as it arrives and answered with an error
//!    ([`Parsed::Refused`]), and the connection continues. Redis closes connections whose requests
//!    exceed `client-query-buffer-limit`.
//! 4. A request has [`Limits::max_elements`] elements at most. Redis allows 2^31 - 1.
//!
//! Source: the [protocol specification][spec], and the behaviour of redis-server 7.0.15.
//!
//! [spec]: https://redis.io/docs/latest/develop/reference/protocol-spec/

mod client;
mod codec;
mod encoder;
mod inline;
mod number;
mod queue;
mod request;

pub use client::{Malformed, ReplyReader, Value, encode_request};
pub use codec::{Codec, Limits, Parsed, Refusal};
pub use encoder::{Encoder, Version};
pub use number::{parse_integer, until_nul};
pub use queue::RequestQueue;
pub use request::{ArgForm, Args, Request};
