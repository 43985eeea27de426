//! A table under test with its type forgotten, and the list entry that makes one.

use crate::table::{Bytes, Card, Kind, Setup, Table, U64};

/// A table whose type is known only inside.
pub trait Subject: Send + Sync {}

struct Erased<T>(#[allow(dead_code)] T);

impl<T: Send + Sync> Subject for Erased<T> {}

/// Makes a table.
pub type Maker = fn(&Setup) -> Box<dyn Subject>;

/// A table in the list: its card and the ways to make it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What it is.
    pub card: Card,
    u64_common: Option<Maker>,
    u64_native: Option<Maker>,
    bytes_common: Option<Maker>,
    bytes_native: Option<Maker>,
}

impl Entry {
    /// An entry that cannot make anything yet.
    pub fn new(card: Card) -> Self {
        Self {
            card,
            u64_common: None,
            u64_native: None,
            bytes_common: None,
            bytes_native: None,
        }
    }

    /// Integers with the common hash function.
    pub fn u64<T: Table<U64>>(mut self) -> Self {
        self.u64_common = Some(make::<U64, T>);
        self
    }

    /// Integers with the table's own hash function.
    pub fn u64_native<T: Table<U64>>(mut self) -> Self {
        self.u64_native = Some(make::<U64, T>);
        self
    }

    /// Byte strings with the common hash function.
    pub fn bytes<T: Table<Bytes>>(mut self) -> Self {
        self.bytes_common = Some(make::<Bytes, T>);
        self
    }

    /// Byte strings with the table's own hash function.
    pub fn bytes_native<T: Table<Bytes>>(mut self) -> Self {
        self.bytes_native = Some(make::<Bytes, T>);
        self
    }
}

fn make<K: Kind, T: Table<K>>(setup: &Setup) -> Box<dyn Subject> {
    Box::new(Erased(T::build(setup)))
}
