//! Common parts of all measurements of Corewise: statistics with their uncertainty, random keys,
//! generated cache traces, threads, and facts about the machine. `corewise-load` and
//! `corewise-bench` use it.

pub mod cpu;
pub mod draw;
pub mod machine;
pub mod number;
pub mod stats;
pub mod thread_pool;
pub mod ticks;
pub mod trace;
