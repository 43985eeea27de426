//! The loops of the sections, each behind a method: a table without its type has them all.

use std::marker::PhantomData;

use crate::plan::Plan;
use crate::table::{Kind, MeasuredMap};
use crate::work::batched::Batched;
use crate::work::grow::Grow;
use crate::work::hot::Hot;
use crate::work::timed::Timed;
use crate::work::{Drive, DriveReport, Loop, Part};

/// A loop that has a method in [`Loops`].
pub trait Dispatch: Loop {
    /// Calls the loop's method.
    fn call(&mut self, loops: &(impl Loops + ?Sized), plan: &Plan, part: Part) -> DriveReport;
}

/// A table and its type.
pub(crate) struct Erased<K, T> {
    pub(crate) table: T,
    /// The resize functions, if the table has them. Called through pointers: a resize is not a
    /// measured operation.
    pub(crate) calls: Option<ResizeCalls<T>>,
    pub(crate) kind: PhantomData<fn(K)>,
}

/// The functions of [`Resize`](crate::table::Resize), `resize_to` and `buckets`.
pub(crate) type ResizeCalls<T> = (fn(&T, usize), fn(&T) -> usize);

/// Lists the loops, with a method for each.
macro_rules! loops {
    ($($method:ident: $job:ty,)*) => {
        /// The loops of the sections on one thread, each compiled for its table.
        ///
        /// # Panics
        ///
        /// All but `mix`, if the subject is not a map: the sections of other capabilities run a
        /// mix.
        pub trait Loops {
            $(
                /// Runs the loop of a job.
                fn $method(&self, _: &Plan, _: Part, _: &mut $job) -> DriveReport {
                    panic!(concat!("no loop `", stringify!($method), "` at this subject"));
                }
            )*
        }

        impl<K: Kind, T: MeasuredMap<K>> Loops for Erased<K, T> {
            $(
                fn $method(&self, plan: &Plan, part: Part, job: &mut $job) -> DriveReport {
                    job.run(&self.table, plan, part)
                }
            )*
        }

        $(
            impl Dispatch for $job {
                fn call(
                    &mut self,
                    loops: &(impl Loops + ?Sized),
                    plan: &Plan,
                    part: Part,
                ) -> DriveReport {
                    loops.$method(plan, part, self)
                }
            }
        )*
    };
}

loops! {
    mix: Drive,
    timed: Timed,
    batched: Batched,
    hot: Hot,
    grow: Grow,
}
