//! Programs that must not compile, each followed by a twin that compiles.
//!
//! A twin differs in one line, which shows that the program is rejected for the intended reason.
//! Doctests need no recorded compiler output, which changes with the compiler. The error codes are
//! checked with `RUSTDOC=.ci/rustdoc`; without it any error passes, and only the twin ensures that
//! the reason is right. `tests/auto_traits.rs` states for every public type whether it is `Send`
//! and `Sync`.

/// A `ReplyEncoder` prints the key from the input, so it borrows the input.
///
/// ```compile_fail,E0505
/// use bumpalo::Bump;
/// use corewise_ops::Now;
/// use corewise_wire::memcached::{Codec, Limits, ReplyWriter, Step};
/// let now = Now { ms: 1, unix_s: 1 };
/// let (limits, scratch) = (Limits::default(), Bump::new());
/// let input = Vec::from(*b"get key\r\n");
/// let Step::Op { form, .. } = Codec::new(false).next(&input, &limits, now, &scratch)
/// else {
///     panic!()
/// };
/// drop(input);
/// println!("{form:?}");
/// ```
///
/// ```
/// use bumpalo::Bump;
/// use corewise_ops::Now;
/// use corewise_wire::memcached::{Codec, Limits, ReplyWriter, Step};
/// let now = Now { ms: 1, unix_s: 1 };
/// let (limits, scratch) = (Limits::default(), Bump::new());
/// let input = Vec::from(*b"get key\r\n");
/// let Step::Op { form, .. } = Codec::new(false).next(&input, &limits, now, &scratch)
/// else {
///     panic!()
/// };
/// let _ = &input;
/// println!("{form:?}");
/// ```
struct FormBorrowsTheInput;

/// A decoded key lies in the scratch arena and borrows it.
///
/// ```compile_fail,E0505
/// use bumpalo::Bump;
/// use corewise_ops::Now;
/// use corewise_wire::memcached::{Codec, Limits, ReplyWriter, Step};
/// let now = Now { ms: 1, unix_s: 1 };
/// let (limits, scratch) = (Limits::default(), Bump::new());
/// let Step::Op { key, .. } = Codec::new(false).next(b"mg a2V5 b\r\n", &limits, now, &scratch)
/// else {
///     panic!()
/// };
/// drop(scratch);
/// assert_eq!(key, b"key");
/// ```
///
/// ```
/// use bumpalo::Bump;
/// use corewise_ops::Now;
/// use corewise_wire::memcached::{Codec, Limits, ReplyWriter, Step};
/// let now = Now { ms: 1, unix_s: 1 };
/// let (limits, scratch) = (Limits::default(), Bump::new());
/// let Step::Op { key, .. } = Codec::new(false).next(b"mg a2V5 b\r\n", &limits, now, &scratch)
/// else {
///     panic!()
/// };
/// let _ = &scratch;
/// assert_eq!(key, b"key");
/// ```
struct FormBorrowsTheScratch;

/// A `ReplyWriter` borrows its output exclusively.
///
/// ```compile_fail,E0499
/// use bumpalo::Bump;
/// use corewise_ops::Now;
/// use corewise_wire::memcached::{Codec, Limits, ReplyWriter, Step};
/// let now = Now { ms: 1, unix_s: 1 };
/// let (limits, scratch) = (Limits::default(), Bump::new());
/// use corewise_ops::{Outcome, ReplySink};
/// let Step::Op { form, .. } = Codec::new(false).next(b"delete k\r\n", &limits, now, &scratch)
/// else {
///     panic!()
/// };
/// let (mut out, mut other) = (Vec::new(), Vec::<u8>::new());
/// let mut sink = ReplyWriter::new(std::slice::from_ref(&form), now, &mut out);
/// out.clear();
/// let _ = sink.complete(0, Outcome::Deleted);
/// ```
///
/// ```
/// use bumpalo::Bump;
/// use corewise_ops::Now;
/// use corewise_wire::memcached::{Codec, Limits, ReplyWriter, Step};
/// let now = Now { ms: 1, unix_s: 1 };
/// let (limits, scratch) = (Limits::default(), Bump::new());
/// use corewise_ops::{Outcome, ReplySink};
/// let Step::Op { form, .. } = Codec::new(false).next(b"delete k\r\n", &limits, now, &scratch)
/// else {
///     panic!()
/// };
/// let (mut out, mut other) = (Vec::new(), Vec::<u8>::new());
/// let mut sink = ReplyWriter::new(std::slice::from_ref(&form), now, &mut out);
/// other.clear();
/// let _ = sink.complete(0, Outcome::Deleted);
/// ```
struct ReplyWriterBorrowsTheOutput;

/// A `StatsWriter` borrows its output exclusively.
///
/// ```compile_fail,E0499
/// use corewise_wire::memcached::StatsWriter;
/// let (mut out, mut other) = (Vec::new(), Vec::<u8>::new());
/// let mut stats = StatsWriter::new(&mut out);
/// out.clear();
/// stats.stat("pid", 42);
/// ```
///
/// ```
/// use corewise_wire::memcached::StatsWriter;
/// let (mut out, mut other) = (Vec::new(), Vec::<u8>::new());
/// let mut stats = StatsWriter::new(&mut out);
/// other.clear();
/// stats.stat("pid", 42);
/// ```
struct StatsWriterBorrowsTheOutput;
