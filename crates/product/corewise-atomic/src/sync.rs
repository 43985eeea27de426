//! Atomics, fences and reference counts.

/// Atomic integers, booleans and pointers, with the operations that `std`, loom and shuttle share.
pub mod atomic {
    #[cfg(corewise_sim)]
    pub use crate::sim::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence,
    };
    #[cfg(corewise_loom)]
    pub use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence,
    };
    #[cfg(corewise_shuttle)]
    pub use shuttle::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence,
    };
    #[cfg(not(any(corewise_loom, corewise_shuttle, corewise_sim)))]
    pub use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence,
    };

    /// Orders the compiler only; loom and shuttle, which do not reorder, ignore it.
    pub use std::sync::atomic::{Ordering, compiler_fence};
}

#[cfg(corewise_loom)]
pub use loom::sync::Arc;
#[cfg(not(corewise_loom))]
pub use std::sync::Arc;
