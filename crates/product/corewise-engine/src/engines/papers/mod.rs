//! Engines that exist for comparison, as papers describe them.
//!
//! They stay in this crate and not in one beside the papers, because a figure of several engines
//! must differ in nothing but what it compares: they share locks, items, verbs, accounting and
//! search for expired items with [`locked`](super::locked), which would all have to be public.
//!
//! - [`global_lock`]: the baseline of \[ATC11\];
//! - [`lockhash`]: LOCKHASH of \[CPHASH\].

pub mod global_lock;
pub mod lockhash;
