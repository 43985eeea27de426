//! Programs that must not compile, each followed by a twin that compiles.
//!
//! A twin differs in one line, which shows that the program is rejected for the intended reason.
//! Doctests need no recorded compiler output, which changes with the compiler. The error codes are
//! checked with `RUSTDOC=.ci/rustdoc`; without it any error passes, and only the twin ensures that
//! the reason is right. `tests/auto_traits.rs` states for every public type whether it is `Send`
//! and `Sync`.

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

/// A sink must not keep the view: it lives only as long as the engine's critical section.
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
