//! memcached's text protocol: classic and meta commands, server side.
//!
//! ```text
//!            ┌────────────────────── Codec::next ──────────────────────┐
//!  input ──▶ │ Incomplete   Skip   Reply   Admin   Close   Op          │
//!            └───────────────────────────────────────────│─────────────┘
//!                                       key, Verb ──▶ engine
//!                                       Form ─┐          │ Outcome
//!                                             ▼          ▼
//!                                         Form::encode(outcome) ──▶ output
//! ```
//!
//! [`Codec`] is the state of one connection, at most 32 bytes and `Copy`.
//! [`Codec::next`] looks at unread input and says what to do with its first
//! bytes ([`Step`]). An operation comes with a [`Form`], a small value that
//! knows how to print the reply once the [`Outcome`](corewise_ops::Outcome) is
//! there; [`ReplyWriter`] prints from inside the engine's critical section.
//!
//! # Protocol facts
//!
//! * A line ends in `\n`; one `\r` before it is dropped. Only blanks separate
//!   tokens; everything else, control bytes included, may be part of a key.
//! * Keys have 1 to 250 bytes. The whole line of a multiget is checked before
//!   its first key is looked up, so a bad key yields an error and no values.
//! * `set k f e n` stores `n` bytes, then wants `\r\n`. If other bytes stand
//!   there, `CLIENT_ERROR bad data chunk`, and reading goes on right behind
//!   them. A sixth token is ignored unless it is `noreply`.
//! * Expiry times up to thirty days are relative, later ones are Unix seconds,
//!   negative ones mean dead on arrival, zero means never.
//! * `noreply` silences a classic command altogether, errors included. The meta
//!   flag `q` silences the common answer only (`EN` of `mg`, `HD` of `ms` and
//!   `md`, `HD` and `VA` of `ma`) and never an error.
//! * A store over [`Limits::max_item_size`] is refused when its line is read;
//!   its data is swallowed as it comes, and the old item is removed (`set` and
//!   every `ms`), so that nobody reads a value its owner meant to replace.
//! * Meta flags are echoed in the order of the request: `c f h k l O s t` for
//!   `mg`, `O k c s` for `ms`, `O k` for `md`, `O k c t` for `ma`; then `Z`,
//!   `X`, `W`. With `b` the key comes back as it was sent, followed by ` b`.
//! * Every meta command knows the flags of all of them and ignores those that
//!   do not concern it; so do `P` and `L` everywhere.
//! * With authentication on, the first request must be a `set` whose data is
//!   `user password`; nothing else is understood until it succeeded.
//!
//! # Which memcached
//!
//! Classic commands answer byte for byte as 1.6.18 does, except as listed
//! below; meta commands follow the newest release (1.6.45): flags `C E` on
//! `mg`, `E s N` on `ms`, `E x` on `md`, `E O k` on `ma`, up to twenty tokens a
//! line, `CLIENT_ERROR bad command line format` where arguments are missing,
//! quiet `ma` also when it creates the counter, `exp=` of `me` as seconds left.
//!
//! Deviations, all deliberate:
//!
//! 1. A store whose line has a valid length but is refused for another reason
//!    (key too long, flags not a number) swallows its data, as newer releases
//!    do; 1.6.18 takes the data for a command.
//! 2. Numbers that do not fit are refused; memcached 1.6.18 cuts them to their
//!    low 32 bits. Expiry times keep 64 bits, so dates after 2038 work.
//! 3. NUL bytes are part of a token (newer releases agree); they end the line
//!    in 1.6.18.
//! 4. Every unknown command whose last token starts with `HTTP/` hangs up;
//!    the replies to earlier requests are still sent.
//! 5. A line without a line break in its first 2,048 bytes hangs up however it
//!    arrives; memcached hangs up only if those bytes arrive alone. Multigets
//!    (`get gets`, and here `gat gats`) may have [`Limits::max_line`] bytes.
//! 6. Base64 keys must be canonical; memcached skips stray characters.
//! 7. `q` and `k` answers depend on the request alone: a key stored through
//!    `b` and asked for in the plain comes back in the plain.
//! 8. All meta commands name the flag error; older ones had one sentence for
//!    `md` and `ma`. An opaque too long is found before anything is executed.
//! 9. `t` prints whole seconds left, rounded up, as they are after the
//!    operation, even if it stands before `T` or `N`.
//! 10. Authentication data over 2,048 bytes is refused and swallowed.
//! 11. A multiget with a bad key answers with the error alone; memcached then
//!     also drops the replies to earlier requests of the same batch.
//! 12. `bget`, `extstore`, `lru`, `refresh_certs` answer `ERROR`; `watch` and
//!     `slabs reassign` answer as a memcached with these features off.
//!
//! # Guarantees
//!
//! 1. **Total.** No input panics; every call either consumes bytes, asks for
//!    more, or closes.
//! 2. **Split-blind.** The concatenation of steps does not depend on how the
//!    input was cut into reads ([`Step::Skip`]s may be cut differently).
//! 3. **Linear.** Bytes of an unfinished line are searched for its end once;
//!    a value is not looked at before it is whole.
//! 4. **No allocation.** Parsing allocates nothing but decoded keys in the
//!    scratch arena; encoding reserves once per reply in the caller's buffer.
//! 5. **Rewindable.** [`Codec`] is a value: a caller that cannot execute a step
//!    puts back the copy taken before it and repeats the call later.
//! 6. **No unsafe code.**
//! 7. **Values may come apart.** A caller may receive the value of a store that
//!    [is announced](Codec::announced) elsewhere, in the memory of the item for
//!    example; [`Codec::next_apart`] then says what [`Codec::next`] would.

mod admin;
mod classic;
mod codec;
mod form;
mod meta;
pub mod reply;
mod scan;
mod sink;
mod stats;
mod time;

pub use admin::{Admin, Classes, Crawl, DumpFormat, StatsRequest, credentials};
pub use codec::{Announced, Codec, Limits, Step};
pub use form::{Command, Form};
pub use sink::ReplyWriter;
pub use stats::StatsWriter;

/// Keys have at most this many bytes (before base64 decoding).
pub const MAX_KEY_LEN: usize = 250;

/// A line that is not a multiget has its line break within this many bytes and
/// one.
pub const MAX_COMMAND_LINE: usize = 2048;

/// What [`Limits::version`] says unless told otherwise. Clients look at the
/// number to learn which commands there are.
pub const VERSION_LINE: &[u8] = concat!(
    "VERSION 1.6.45-corewise-",
    env!("CARGO_PKG_VERSION"),
    "\r\n"
)
.as_bytes();
