//! Programs that must not compile, each before a twin that does.
//!
//! A twin differs in one line, so that a program is not refused for another reason than the one
//! meant. Doctests need no recorded compiler output, which changes with the compiler. The error
//! codes are looked at with `RUSTDOC=.ci/rustdoc`; without that any error counts, and the
//! twin is what keeps the reason right. Which types are `Send` and `Sync` is in
//! `tests/auto_traits.rs`, for every public type.

/// An operation borrows its key.
///
/// ```compile_fail,E0597
/// use corewise_ops::{Get, Op, Verb};
/// let op: Op;
/// {
///     let key = Vec::from(*b"key");
///     op = Op { token: 0, key: &key, verb: Verb::Get(Get::default()) };
/// }
/// assert_eq!(op.key, b"key");
/// ```
///
/// ```
/// use corewise_ops::{Get, Op, Verb};
/// let op: Op;
/// {
///     let key = Vec::from(*b"key");
///     op = Op { token: 0, key: b"key", verb: Verb::Get(Get::default()) };
/// }
/// assert_eq!(op.key, b"key");
/// ```
struct OpBorrowsItsKey;

/// A sink may not keep what it is shown: that lives as long as the engine's critical section.
///
/// ```compile_fail,E0521
/// use corewise_ops::{Flow, Outcome, ReplySink, Token};
/// struct Printer;
/// impl ReplySink for Printer {
///     fn complete(&mut self, _: Token, outcome: Outcome<'_>) -> Flow {
///         if let Outcome::Found(view) = outcome {
///             std::thread::spawn(move || println!("{view:?}"));
///         }
///         Flow::Continue
///     }
/// }
/// ```
///
/// ```
/// use corewise_ops::{Flow, Outcome, ReplySink, Token};
/// struct Printer;
/// impl ReplySink for Printer {
///     fn complete(&mut self, _: Token, outcome: Outcome<'_>) -> Flow {
///         if let Outcome::Found(view) = outcome {
///             std::thread::spawn({ let view = format!("{view:?}"); move || println!("{view:?}") });
///         }
///         Flow::Continue
///     }
/// }
/// ```
struct SinkKeepsNothing;
