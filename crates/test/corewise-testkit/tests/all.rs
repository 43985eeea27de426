//! Verdicts about histories: one test program, since each links for itself.

mod brute_force;
mod recorded;
mod verdicts;
