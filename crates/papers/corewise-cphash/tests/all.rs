//! The guarantees of both tables: one test program, since each links for itself.

mod budgets;
mod cphash;
mod linearizable;
mod lockhash;
mod panics;
