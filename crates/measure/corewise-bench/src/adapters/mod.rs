//! The adapters of tables: a small file each, and one for maps of other crates.
//!
//! Without the feature `bench` only the tables of this workspace and of the standard library are
//! compiled in. `bench` adds tables of other crates, and `peers` those of C and C++ libraries.

/// The handles of a subject that is used as it is: references to it.
macro_rules! shared_by_threads {
    ($($part:ty)?) => {
        type Handle<'s> = &'s Self;
        fn handle(&self $(, _: $part)?) -> &Self {
            self
        }
    };
}

/// The handle of a map of nodes that RCU reclaims: each operation pins the map, and an insertion is
/// `$insert` of the pinned one.
macro_rules! pins_each_time {
    ([$($of:tt)*] $table:ty, |$map:ident, $key:ident, $value:ident| $insert:expr) => {
        impl<$($of)*> MapHandle<K> for &$table {
            #[inline]
            fn get(&mut self, key: &K::Query) -> Option<u64> {
                self.map.pin().get(key).map(K::stamp)
            }
            #[inline]
            fn get_many<'q>(
                &mut self,
                keys: impl ExactSizeIterator<Item = &'q K::Query>,
                out: &mut [Option<u64>],
            ) where
                K::Query: 'q,
            {
                let map = self.map.pin();
                stamps_of::<K>(out, |found| map.get_many(keys, found));
            }
            #[inline]
            fn insert(&mut self, key: &K::Query, $value: K::Value) -> bool {
                let ($map, $key) = (self.map.pin(), K::own(key));
                $insert
            }
            #[inline]
            fn remove(&mut self, key: &K::Query) -> Option<u64> {
                self.map.pin().remove(key).map(K::stamp)
            }
        }
    };
}

mod caches;
mod cards;
mod chained;
#[cfg(feature = "bench")]
mod elided;
mod filters;
mod global;
mod hashbrown;
mod in_place;
#[cfg(feature = "bench")]
mod library;
#[cfg(feature = "bench")]
mod locks;
mod nr;
pub(crate) mod null;
#[cfg(feature = "peers")]
mod peers;
mod relativistic;
#[cfg(feature = "bench")]
mod sharded;
mod slowed;

use self::cards::{CARDS, card};
use crate::entry::Entry;
use crate::registry::{Missing, Registry};
use crate::table::{Kind, MOST_BATCHED};

/// All tables of this build.
pub fn registry() -> Registry {
    let mut entries = vec![null::entry(), hashbrown::entry()];
    entries.extend(global::entries());
    entries.extend(relativistic::entries());
    entries.extend(in_place::entries());
    entries.extend(chained::entries());
    entries.extend(slowed::entries());
    entries.extend(filters::entries());
    entries.extend(nr::entries());
    entries.extend(caches::entries());
    #[cfg(feature = "bench")]
    {
        entries.push(sharded::entry());
        entries.extend(library::entries());
        entries.extend(locks::entries());
        entries.extend(elided::entries());
    }
    #[cfg(feature = "peers")]
    entries.extend(peers::entries());
    let is_absent = |name: &str| !entries.iter().any(|entry| entry.card.name == name);
    let absent = CARDS.features().filter(|(name, _)| is_absent(name));
    let missing = absent.map(|(name, feature)| Missing {
        name: name.into(),
        reason: why_missing(name, &feature),
    });
    let missing = missing.collect();
    Registry::new(entries, missing)
}

/// Returns why this build lacks a table that needs a feature.
fn why_missing(_name: &str, feature: &str) -> String {
    #[cfg(feature = "peers")]
    if let Some((_, why)) = peers::missing()
        .into_iter()
        .find(|(name, _)| *name == _name)
    {
        return why;
    }
    format!(
        "it needs the feature `{feature}`: cargo run --release --features {feature} -- bench ..."
    )
}

/// An entry of the table of a name, without any maker.
fn listed(name: &str) -> Entry {
    Entry::new(card(name))
}

/// Adds the makers of a map for both kinds of keys.
macro_rules! with_makers {
    ($entry:expr, $map:ident) => {
        $entry.map::<U64, $map<U64>>().map::<Bytes, $map<Bytes>>()
    };
    (resize $entry:expr, $map:ident) => {
        with_makers!($entry, $map)
            .resized::<U64, $map<U64>>()
            .resized::<Bytes, $map<Bytes>>()
    };
}

use with_makers;

/// Writes the stamps of a batch of values, to which `look_up` finds references.
#[inline(always)]
fn stamps_of<'v, K: Kind>(
    out: &mut [Option<u64>],
    look_up: impl FnOnce(&mut [Option<&'v K::Value>]),
) {
    let mut found = [None; MOST_BATCHED];
    let found = &mut found[..out.len()];
    look_up(found);
    for (out, value) in out.iter_mut().zip(found) {
        *out = value.map(K::stamp);
    }
}

#[cfg(test)]
mod tests;
