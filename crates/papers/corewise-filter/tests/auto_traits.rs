//! Which public types are `Send` and `Sync`. Compiling is the test.

use corewise_filter::{BuildError, Builder, CuckooFilter, FilterHasher, InsertError};
use static_assertions::assert_impl_all;

assert_impl_all!(CuckooFilter: Send, Sync, std::fmt::Debug);
assert_impl_all!(Builder: Send, Sync, Copy);
assert_impl_all!(FilterHasher: Send, Sync, Clone);
assert_impl_all!(BuildError: Send, Sync, std::error::Error);
assert_impl_all!(InsertError: Send, Sync, std::error::Error);
