//! Programs that must not compile, each before a twin that does.
//!
//! A twin differs in one line, so that a program is not refused for another reason than the one
//! meant. Doctests need no recorded compiler output, which changes with the compiler. The error
//! codes are looked at with `RUSTDOC=.ci/rustdoc`; without that any error counts, and the
//! twin is what keeps the reason right. Which types are `Send` and `Sync` is in
//! `tests/auto_traits.rs`, for every public type.

/// A form prints the key from the input, and so borrows it.
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

/// A key that was decoded lies in the scratch arena, and so the form borrows that.
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

/// A writer of replies has its output to itself.
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

/// A writer of statistics has its output to itself.
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
