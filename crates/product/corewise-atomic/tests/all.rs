//! The façade in the normal build, and the auto traits of its types.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

mod auto_traits;
mod facade;
