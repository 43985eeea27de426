//! Macros for programs that must not compile. Their documentation tests are the tests.

/// A program with `$accepted` compiles and runs, and with `$refused` in its place it does not
/// compile.
#[macro_export]
macro_rules! refused {
    ($($name:ident: $code:literal, $before:expr, $accepted:expr, $refused:expr, $after:expr;)+) => {
        $(
            #[doc = concat!("```\n", $before, "\n", $accepted, "\n", $after, "\n```\n")]
            #[doc = concat!("```compile_fail,", $code, "\n", $before, "\n", $refused, "\n", $after, "\n```")]
            pub mod $name {}
        )+
    };
}

/// A type whose contents can be changed through `&self` must be invariant in their type: otherwise
/// a short-lived reference could be stored where a `'static` one is taken out. `$wide` and
/// `$narrow` are the type with `Wide` and with `Narrow` in the place in question. A `Wide` is a
/// `Narrow`, but a map of the one is not a map of the other, in either direction. `$imports` is the
/// line that imports the types.
#[macro_export]
macro_rules! invariant {
    ($imports:literal; $($name:ident: $wide:literal, $narrow:literal;)+) => {
        $crate::refused! {
            $(
                $name: "E0308",
                concat!("#![allow(dead_code, unused_imports)]
use std::ptr::NonNull;
type Wide = for<'a> fn(&'a String);
type Narrow = fn(&'static String);
", $imports),
                concat!("fn narrow<'m>(one: ", $wide, ") -> ", $wide, " { one }"),
                concat!("fn narrow<'m>(one: ", $wide, ") -> ", $narrow, " { one }"),
                "fn main() {}";
            )+
        }
    };
}
