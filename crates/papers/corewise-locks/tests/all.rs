//! The guarantees of the locks and of elision.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

mod elide;
mod locks;
mod promises;
