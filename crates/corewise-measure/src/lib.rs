//! What every measurement of Corewise shares: statistics with their uncertainty, draws of random
//! keys, generated cache traces, and facts about the machine. `corewise-load` and `corewise-bench`
//! are built on it.

pub mod cpu;
pub mod draw;
pub mod machine;
pub mod stats;
pub mod ticks;
pub mod trace;
