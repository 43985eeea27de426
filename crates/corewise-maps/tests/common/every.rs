//! The same tests for every table, for the unit tests too.

/// Makes a module of each type with a test for each function named, which is generic over such types.
///
/// ```text
/// for_every! {
///     vectors: Vec<u64>,
///     queues: VecDeque<u64>,
///     => {
///         what_is_put_in_comes_out
///         #[should_panic]
///         there_is_no_second_without_a_first
///     }
/// }
/// ```
macro_rules! for_every {
    ($($module:ident: $type:ty,)+ => $tests:tt) => {
        $(for_every!(@ $module: $type, $tests);)+
    };
    (@ $module:ident: $type:ty, { $($(#[$attribute:meta])* $test:ident)+ }) => {
        mod $module {
            // What the type is called by.
            use super::*;
            $(
                $(#[$attribute])*
                #[test]
                fn $test() {
                    super::$test::<$type>();
                }
            )+
        }
    };
}

pub(crate) use for_every;
