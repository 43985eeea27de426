//! The same tests for every type.

/// Makes a module for each type, with a test for each named function, which is generic over the
/// types.
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
#[macro_export]
macro_rules! for_every {
    ($($module:ident: $type:ty,)+ => $tests:tt) => {
        $($crate::for_every!(@ $module: $type, $tests);)+
    };
    (@ $module:ident: $type:ty, { $($(#[$attribute:meta])* $test:ident)+ }) => {
        mod $module {
            // What the type's name refers to.
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
