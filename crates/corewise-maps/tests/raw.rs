//! The table under the map, with nodes of the caller's: what owners with a budget of memory rely on.

use std::num::NonZeroU32;
use std::ptr::NonNull;

use corewise_maps::relativistic::{Arena, Link, NodeId, Policy, RawTable};
use corewise_rcu::Domain;

/// Nodes that are nothing but links, named by their places.
struct Nodes(Vec<Link>);

// SAFETY: the vector is never changed, and lives as long as the table.
unsafe impl Arena for Nodes {
    unsafe fn link(&self, id: NodeId) -> NonNull<Link> {
        NonNull::from(&self.0[id.0.get() as usize - 1])
    }
}

fn hash(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn table(nodes: u64) -> RawTable<Nodes> {
    let links = (0..nodes).map(|n| Link::new(hash(n))).collect();
    let policy = Policy {
        min_buckets: 64,
        automatic: true,
    };
    RawTable::new(64, policy, Domain::new(), Nodes(links))
}

fn insert(table: &RawTable<Nodes>, n: u64) {
    let name = NodeId(NonZeroU32::new(n as u32 + 1).unwrap());
    let guard = table.domain().pin();
    // SAFETY: the guard is of the table's domain; each node is inserted once and never freed.
    unsafe { table.insert(&guard, name, |_| false).unwrap() };
    drop(guard);
    table.adjust(1);
    table.step(64);
}

fn settle(table: &RawTable<Nodes>) {
    for _ in 0..10_000 {
        table.step(1 << 12);
    }
}

fn has(table: &RawTable<Nodes>, n: u64) -> bool {
    let guard = table.domain().pin();
    // SAFETY: as above.
    unsafe { table.find(&guard, hash(n), |_| true).is_some() }
}

/// Not under the stress build, which resizes whatever the policy says.
#[cfg(not(corewise_stress))]
#[test]
fn a_table_grows_no_further_than_its_owner_allows_and_says_what_it_wants() {
    let table = table(10_000);
    table.set_most_buckets(256);
    (0..5_000).for_each(|n| insert(&table, n));
    settle(&table);
    assert_eq!(table.buckets(), 256);
    assert!(table.wanted_buckets() >= 512, "{}", table.wanted_buckets());
    assert!((0..5_000).all(|n| has(&table, n)));
    let wanted = table.wanted_buckets();
    table.set_most_buckets(wanted);
    assert_eq!(table.wanted_buckets(), 0);
    settle(&table);
    assert!(table.buckets() > 256 && table.buckets() <= wanted);
    table.set_most_buckets(usize::MAX);
    (5_000..10_000).for_each(|n| insert(&table, n));
    settle(&table);
    assert_eq!(table.wanted_buckets(), 0);
    assert!(table.buckets() * 3 / 4 >= 10_000);
    assert!((0..10_000).all(|n| has(&table, n)));
}

#[test]
fn the_bytes_of_all_arrays_are_known() {
    let table = table(10_000);
    assert_eq!(table.array_bytes(), 64 * 8);
    (0..10_000).for_each(|n| insert(&table, n));
    assert!(table.array_bytes() >= table.buckets() * 8);
    settle(&table);
    assert_eq!(table.array_bytes(), table.buckets() * 8);
}

#[test]
fn the_longest_chain_is_found_in_steps() {
    let table = table(1_000);
    table.set_automatic(false);
    (0..1_000).for_each(|n| insert(&table, n));
    let guard = table.domain().pin();
    // SAFETY: the guard is of the table's domain.
    let whole = unsafe { table.longest_chain(&guard) };
    let (mut longest, mut at, mut steps) = (0, 0, 0);
    loop {
        // SAFETY: as above.
        let (found, next) = unsafe { table.longest_chain_of(&guard, at, 10) };
        (longest, at, steps) = (longest.max(found), next, steps + 1);
        if at == 0 {
            break;
        }
    }
    assert_eq!((longest, steps), (whole, 7));
    assert!(whole >= 1_000 / 64);
}

#[test]
fn a_reduced_hash_stands_for_the_hash() {
    for n in 0..100 {
        let reduced = Link::reduce(hash(n));
        assert_eq!(Link::reduce(reduced), reduced);
        assert_eq!(Link::new(hash(n)).reduced_hash(), reduced);
    }
    let mut link = Link::new(7);
    assert!(!link.is_removed());
    link.abandon();
    assert!(link.is_removed());
    assert_eq!(link.reduced_hash(), 7);
}
