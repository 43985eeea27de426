//! The loops of the sections, each behind a method: a table without its type has them all.

use crate::plan::Plan;
use crate::table::{Kind, Table};
use crate::work::batched::Batched;
use crate::work::grow::{Grow, GrowReport};
use crate::work::hot::{Hot, HotReport};
use crate::work::iterate::{Iterate, IterateReport};
use crate::work::pace::{Pace, PaceReport};
use crate::work::timed::Timed;
use crate::work::{Drive, DriveReport, Loop, Part};

/// A loop that has a method in [`Loops`].
pub trait Dispatch: Loop {
    /// Calls the loop's method.
    fn call(&mut self, loops: &(impl Loops + ?Sized), plan: &Plan, part: Part) -> Self::Report;
}

/// A table that runs the loops.
pub trait RunsLoops: Send + Sync {
    /// Its kind of keys.
    type Kind: Kind;
    /// Its type.
    type Table: Table<Self::Kind>;
    /// Returns it.
    fn table(&self) -> &Self::Table;
}

/// Lists the loops, with a method for each.
macro_rules! loops {
    ($($method:ident: $job:ty => $report:ty,)*) => {
        /// The loops of the sections on one thread, each compiled for its table.
        ///
        /// # Panics
        ///
        /// All but `mix`, if the subject is not a map: the sections of other capabilities run a
        /// mix.
        pub trait Loops {
            $(
                /// Runs the loop of a job.
                fn $method(&self, _: &Plan, _: Part, _: &mut $job) -> $report {
                    panic!(concat!("no loop `", stringify!($method), "` at this subject"));
                }
            )*
        }

        impl<R: RunsLoops> Loops for R {
            $(
                fn $method(&self, plan: &Plan, part: Part, job: &mut $job) -> $report {
                    job.run(self.table(), plan, part)
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
                ) -> $report {
                    loops.$method(plan, part, self)
                }
            }
        )*
    };
}

loops! {
    mix: Drive => DriveReport,
    timed: Timed => DriveReport,
    batched: Batched => DriveReport,
    hot: Hot => HotReport,
    iterate: Iterate => IterateReport,
    grow: Grow => GrowReport,
    pace: Pace => PaceReport,
}
