//! memcached's text protocol: classic and meta commands, server side.
//!
//! ```text
//!            ┌────────────────────── Codec::next ──────────────────────┐
//!  input ──▶ │ Incomplete   Skip   Reply   Admin   Close   Op          │
//!            └───────────────────────────────────────────│─────────────┘
//!                                       key, Verb ──▶ engine
//!                              ReplyEncoder ─┐          │ Outcome
//!                                            ▼          ▼
//!                                         ReplyEncoder::encode(outcome) ──▶ output
//! ```
//!
//! [`Codec`] is the state of one connection, at most 32 bytes and `Copy`. [`Codec::next`] reads
//! unread input and returns what to do with its first bytes ([`Step`]). An operation comes with a
//! [`ReplyEncoder`], a small value that prints the reply once the
//! [`Outcome`](corewise_ops::Outcome) is known; [`ReplyWriter`] prints replies inside the engine's
//! critical section.
//!
//! # Protocol facts
//!
//! * A line ends in `\n`; one `\r` before it is dropped. Only blanks separate tokens; all other
//!   bytes, control bytes included, may be part of a key.
//! * Keys have 1 to 250 bytes. The whole line of a multiget is checked before its first key is
//!   looked up, so a bad key yields an error and no values.
//! * `set k f e n` stores `n` bytes, which `\r\n` must follow. If other bytes follow, the reply is
//!   `CLIENT_ERROR bad data chunk`, and parsing continues right behind them. A sixth token is
//!   ignored unless it is `noreply`.
//! * Expiry times up to thirty days are relative, larger ones are Unix seconds, negative ones mean
//!   expired on arrival, zero means never. Only the low 32 bits of the number count, as a signed
//!   number; a number that does not fit into a signed 64-bit one is refused.
//! * `noreply` silences a classic command completely, errors included. The meta flag `q` silences
//!   only the common reply (`EN` of `mg`, `HD` of `ms` and `md`, `HD` and `VA` of `ma`) and never
//!   an error.
//! * A store over [`Limits::max_item_size`] is refused when its line is read; its data is discarded
//!   as it arrives, and the old item is removed (`set` and every `ms`), so that no client reads a
//!   value that its owner meant to replace.
//! * Meta flags are echoed in the order of the request: `c f h k l O s t` for `mg`, `O k c s` for
//!   `ms`, `O k` for `md`, `O k c t` for `ma`; then `Z`, `X`, `W`. With `b` the key comes back as
//!   it was sent, followed by ` b`.
//! * Every meta command accepts the flags of all of them and ignores those that do not apply to it;
//!   `P` and `L` are ignored everywhere.
//! * If the first byte of a connection is 0x80, its client speaks the binary protocol. The caller
//!   either reads the same request with [`binary::Codec`](crate::binary::Codec), or refuses it
//!   ([`BinaryRequest`]) and closes the connection.
//! * With authentication on, the first request must be a `set` whose data is `user password`; no
//!   other command is accepted until it has succeeded.
//!
//! # Which memcached
//!
//! Classic commands reply byte for byte as 1.6.18 does, except as listed below; meta commands
//! follow the newest release (1.6.45): flags `C E` on `mg`, `E s N` on `ms`, `E x` on `md`, `E O k`
//! on `ma`, up to twenty tokens per line, `CLIENT_ERROR bad command line format` if arguments are
//! missing, quiet `ma` also when it creates the counter, `exp=` of `me` as seconds left.
//!
//! Deviations, all deliberate:
//!
//! 1. A store whose line has a valid length but is refused for another reason (key too long, flags
//!    not a number) discards its data, as newer releases do; 1.6.18 parses the data as a command.
//! 2. Numbers other than expiry times are refused if they do not fit; memcached 1.6.18 truncates
//!    them to their low 32 bits. 1.6.45 truncates the expiry times of stores and refuses others.
//! 3. NUL bytes are part of a token (as in newer releases); they end the line in 1.6.18.
//! 4. Every unknown command whose last token starts with `HTTP/` closes the connection; the replies
//!    to earlier requests are still sent.
//! 5. A line without a line break in its first 2,048 bytes closes the connection however it
//!    arrives; memcached closes it only if those bytes arrive alone. Multigets (`get gets`, and
//!    here `gat gats`) may have [`Limits::max_line`] bytes.
//! 6. Base64 keys must be canonical; memcached skips stray characters.
//! 7. The replies to `q` and `k` depend on the request alone: a key that was stored with `b` and is
//!    requested without it is returned without it.
//! 8. All meta commands name the flag error; older ones had one message for `md` and `ma`. An
//!    opaque that is too long is detected before anything is executed.
//! 9. `t` prints whole seconds left, rounded up, after the operation, even if it precedes `T` or
//!    `N`.
//! 10. Authentication data over 2,048 bytes is refused and discarded.
//! 11. The reply to a multiget with a bad key is the error alone; memcached then also drops the
//!     replies to earlier requests of the same batch.
//! 12. `bget`, `extstore`, `refresh_certs` reply `ERROR`; `watch` and `slabs reassign` reply
//!     as a memcached with these features off.
//! 13. `flush_all` with a date in the past takes effect at once; if the date precedes the start of
//!     the server, memcached flushes nothing.
//!
//! # Guarantees
//!
//! 1. **Total.** No input causes a panic; every call consumes bytes, asks for more, or closes.
//! 2. **Independent of splits.** The concatenation of steps does not depend on how the input was
//!    split into reads ([`Step::Skip`]s may be split differently).
//! 3. **Linear.** Bytes of an unfinished line are searched for its end once; a value is not read
//!    before it is complete.
//! 4. **No allocation.** Parsing allocates only decoded keys, in the scratch arena; encoding
//!    reserves once per reply in the caller's buffer.
//! 5. **Rewindable.** [`Codec`] is a value: a caller that cannot execute a step restores the copy
//!    taken before it and repeats the call later.
//! 6. **No unsafe code.**
//! 7. **Values may be received separately.** A caller may receive the value of an
//!    [announced](Codec::announced) store elsewhere, for example in the memory of the item;
//!    [`Codec::next_apart`] then returns what [`Codec::next`] would.

mod admin;
mod binary;
mod classic;
mod codec;
mod meta;
pub mod reply;
mod reply_encoder;
mod scan;
mod sink;
mod stats;
mod time;

pub use admin::{Admin, Classes, Crawl, DumpFormat, StatsRequest, credentials};
pub use binary::BinaryRequest;
pub use codec::{Codec, Limits};
pub(crate) use reply_encoder::Command;
pub use reply_encoder::ReplyEncoder;
pub use sink::ReplyWriter;
pub use stats::StatsWriter;

pub use crate::step::Announced;

/// What to do with the first bytes of the input.
pub type Step<'i> = crate::step::Step<'i, ReplyEncoder<'i>, Admin<'i>>;

/// Maximum length of a key in bytes (before base64 decoding).
pub const MAX_KEY_LEN: usize = 250;

/// Maximum number of bytes before the line break of a line that is not a multiget.
pub const MAX_COMMAND_LINE: usize = 2048;

/// The default of [`Limits::version`]. Clients use the number to learn which commands are
/// available.
pub const VERSION_LINE: &[u8] = concat!(
    "VERSION 1.6.45-corewise-",
    env!("CARGO_PKG_VERSION"),
    "\r\n"
)
.as_bytes();
