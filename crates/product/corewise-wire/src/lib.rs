//! Sans-I/O codecs for cache protocols.
//!
//! A codec turns bytes into [`corewise_ops`] operations and outcomes back into bytes. It owns no
//! socket, no buffer and no clock, and allocates nothing once its caller's buffers have grown to
//! size. A test, a fuzzer and an event loop can all drive it.
//!
//! | module | protocol |
//! |---|---|
//! | [`memcached`] | memcached's text protocol, classic and meta commands |
//! | [`binary`] | memcached's binary protocol |
//! | [`cphash`] | LOOKUP and INSERT of \[CPHASH\], binary |
//! | [`resp`] | RESP2 and RESP3, the protocols of Redis |
//!
//! A [`Step`] is what a codec asks its caller to do, in any protocol.
//!
//! ```
//! use bumpalo::Bump;
//! use corewise_ops::{Absence, Now, Outcome};
//! use corewise_wire::memcached::{Codec, Limits, Step};
//!
//! let now = Now::new(1_000, 1_800_000_000);
//! let (limits, scratch) = (Limits::default(), Bump::new());
//! let mut codec = Codec::new(false);
//!
//! let Step::Op { consumed, key, form, .. } =
//!     codec.next(b"get hello\r\n", &limits, now, &scratch)
//! else {
//!     panic!("a complete get is an operation")
//! };
//! assert_eq!((consumed, key), (11, &b"hello"[..]));
//!
//! let mut out = Vec::new();
//! form.encode(&Outcome::Missing(Absence::Unknown), now, &mut out);
//! assert_eq!(out, b"END\r\n");
//! ```

#![forbid(unsafe_code)]

pub mod binary;
pub mod cphash;
pub mod memcached;
pub mod resp;
mod step;

pub use step::{Announced, Step, Tally};
