//! The adapters of tables, one small file each.
//!
//! Without the feature `bench` only the tables of this workspace and of the standard library are
//! compiled in. `bench` adds tables of other crates, and `peers` those of C and C++ libraries.

mod caches;
mod chained;
#[cfg(feature = "bench")]
mod dashmap;
mod filters;
#[cfg(feature = "bench")]
mod flurry;
mod global;
mod hashbrown;
mod in_place;
#[cfg(feature = "bench")]
mod library;
#[cfg(feature = "bench")]
mod locks;
mod nr;
mod null;
#[cfg(feature = "bench")]
mod papaya;
#[cfg(feature = "peers")]
mod peers;
mod relativistic;
#[cfg(feature = "bench")]
mod scc;
#[cfg(feature = "bench")]
mod sharded;
mod slowed;

pub(crate) use chained::NAMES as CHAINED;
#[cfg(feature = "bench")]
use library::library_map;

use crate::registry::{Missing, Registry};
use crate::table::TableInfo;

/// All tables of this build.
pub fn registry() -> Registry {
    let mut entries = vec![null::entry(), hashbrown::entry()];
    entries.extend(global::entries());
    entries.push(relativistic::entry());
    entries.extend(in_place::entries());
    entries.extend(chained::entries());
    entries.extend(slowed::entries());
    entries.extend(filters::entries());
    entries.extend(nr::entries());
    entries.extend(caches::entries());
    #[cfg(feature = "bench")]
    entries.extend([
        sharded::entry(),
        papaya::entry(),
        dashmap::entry(),
        scc::map(),
        scc::index(),
        flurry::entry(),
    ]);
    #[cfg(feature = "bench")]
    entries.extend(locks::entries());
    #[cfg(feature = "peers")]
    entries.extend(peers::entries());
    let missing = OTHERS
        .iter()
        .filter(|(name, _)| !entries.iter().any(|entry| entry.card.name == *name));
    let missing = missing.map(|&(name, feature)| Missing {
        name: name.into(),
        reason: format!("it needs the feature `{feature}`: cargo run --release --features {feature} -- bench ..."),
    });
    let missing: Vec<Missing> = missing.collect();
    #[cfg(feature = "peers")]
    let missing = {
        let not_installed = peers::missing().into_iter();
        let not_installed = not_installed.map(|(name, reason)| Missing {
            name: name.into(),
            reason,
        });
        missing
            .into_iter()
            .filter(|other| {
                !OTHERS
                    .iter()
                    .any(|(name, feature)| other.name == *name && *feature == "peers")
            })
            .chain(not_installed)
            .collect()
    };
    Registry::new(entries, missing)
}

/// Tables that need a feature, and the feature.
const OTHERS: [(&str, &str); 39] = [
    ("cphash:quick-cache", "bench"),
    ("cphash:mutex-lru", "bench"),
    ("cphash:sharded-lru", "bench"),
    ("nr:crossbeam", "bench"),
    ("cuckoofilter-mutex", "bench"),
    ("atomic-cuckoo-filter", "bench"),
    ("lock:ttas-backoff", "bench"),
    ("lock:anderson", "bench"),
    ("lock:clh", "bench"),
    ("lock:parking", "bench"),
    ("lock:adaptive", "bench"),
    ("lock:distributed", "bench"),
    ("lock:std-rwlock", "bench"),
    ("lock:parking-fair", "bench"),
    ("lock:tas", "bench"),
    ("lock:ttas", "bench"),
    ("lock:ticket", "bench"),
    ("lock:mcs", "bench"),
    ("lock:std-mutex", "bench"),
    ("lock:parking-mutex", "bench"),
    ("lock:parking-rwlock", "bench"),
    ("lock:sharded-rwlock", "bench"),
    ("lock:elided-ttas", "bench"),
    ("peer-null", "peers"),
    ("tbb", "peers"),
    ("urcu-memb", "peers"),
    ("urcu-sync", "peers"),
    ("urcu-qsbr", "peers"),
    ("libcuckoo", "peers"),
    ("cds-michael", "peers"),
    ("cds-split", "peers"),
    ("cds-feldman", "peers"),
    ("sharded64", "bench"),
    ("papaya", "bench"),
    ("dashmap", "bench"),
    ("scc", "bench"),
    ("scc-index", "bench"),
    ("flurry", "bench"),
    ("parking-rwlock", "bench"),
];

/// A partial card of a Rust table.
fn rust(name: &str, version: &str, about: &str) -> TableInfo {
    TableInfo {
        name: name.into(),
        about: about.into(),
        version: version.into(),
        language: "Rust".into(),
        hasher: crate::hash::COMMON.into(),
        reclamation: String::new(),
        guarantees: String::new(),
        settings: "built with_capacity for the announced entries".into(),
        adapter: "nothing".into(),
        memory: "the program's allocator".into(),
        batch: crate::table::no_batch(),
    }
}

/// Versions of the measured crates; a test compares them with `Cargo.lock`.
mod versions {
    /// Version of the tables of this workspace.
    pub(super) const OURS: &str = env!("CARGO_PKG_VERSION");
    pub(super) const HASHBROWN: &str = "0.17.1";
    #[cfg(feature = "bench")]
    pub(super) const PAPAYA: &str = "0.2.5";
    #[cfg(feature = "bench")]
    pub(super) const DASHMAP: &str = "6.2.1";
    #[cfg(feature = "bench")]
    pub(super) const SCC: &str = "3.8.8";
    #[cfg(feature = "bench")]
    pub(super) const FLURRY: &str = "0.5.2";
    #[cfg(feature = "bench")]
    pub(super) const PARKING_LOT: &str = "0.12.5";
    #[cfg(feature = "bench")]
    pub(super) const CROSSBEAM: &str = "0.8.23";
    #[cfg(feature = "bench")]
    pub(super) const CROSSBEAM_SKIPLIST: &str = "0.1.3";
    #[cfg(feature = "bench")]
    pub(super) const QUICK_CACHE: &str = "0.6.24";
    #[cfg(feature = "bench")]
    pub(super) const LRU: &str = "0.16.4";
    #[cfg(feature = "bench")]
    pub(super) const CUCKOOFILTER: &str = "0.5.0";
    #[cfg(feature = "bench")]
    pub(super) const ATOMIC_CUCKOO_FILTER: &str = "0.3.0";
}

#[cfg(test)]
mod tests;
