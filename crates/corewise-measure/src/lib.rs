//! What every measurement of Corewise shares: statistics with their uncertainty, draws of random
//! keys, and facts about the machine. `corewise-load` and `corewise-bench` are built on it.

pub mod cpu;
pub mod draw;
pub mod machine;
pub mod stats;
pub mod ticks;
