//! The crate's programs, and the project's code inside a simulation.

mod programs;
