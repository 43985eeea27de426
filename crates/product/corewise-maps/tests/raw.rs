//! The table under the map, with the caller's nodes: guarantees for owners with a memory budget.

use std::num::NonZeroU32;
use std::ptr::NonNull;

use corewise_maps::relativistic::{Arena, Link, NodeId, RawTable, ResizePolicy};
use corewise_rcu::Domain;

/// Nodes that consist only of links; their IDs are their positions.
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
    let policy = ResizePolicy {
        quadruple_below: 1 << 12,
        min_buckets: 64,
        automatic: true,
        huge_pages: true,
    };
    RawTable::new(64, policy, Domain::new(), Nodes(links))
}

fn insert(table: &RawTable<Nodes>, n: u64) {
    let id = NodeId(NonZeroU32::new(n as u32 + 1).unwrap());
    let guard = table.domain().pin();
    // SAFETY: the guard is of the table's domain; each node is inserted once and never freed.
    unsafe { table.insert(&guard, id, |_| false).unwrap() };
    drop(guard);
    table.adjust(1);
    table.step(64);
}

fn settle(table: &RawTable<Nodes>) {
    for _ in 0..10_000 {
        table.step(1 << 12);
    }
}

#[cfg(not(corewise_stress))]
fn has(table: &RawTable<Nodes>, n: u64) -> bool {
    let guard = table.domain().pin();
    // SAFETY: the guard is of the table's domain.
    unsafe { table.find(&guard, hash(n), |_| true).is_some() }
}

/// Not under the stress build, which resizes whatever the policy says.
#[cfg(not(corewise_stress))]
#[test]
fn a_table_grows_up_to_its_limit_and_reports_the_size_it_wants() {
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
    // Under the stress build, another resize is under way.
    table.set_automatic(false);
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
        // SAFETY: the guard is of the table's domain.
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

fn remove(table: &RawTable<Nodes>, n: u64) {
    let guard = table.domain().pin();
    // SAFETY: the guard is of the table's domain, and the node is found under it.
    let removed = unsafe {
        let node = table.find(&guard, hash(n), |_| true).unwrap();
        table.remove(&guard, node)
    };
    assert!(removed.is_some());
    drop(guard);
    table.adjust(-1);
    table.step(64);
}

/// Makes one step of a scan, and counts the visits of each of the first nodes.
fn scan(table: &RawTable<Nodes>, from: u32, most: usize, visits: &mut [u32]) -> Option<u32> {
    let guard = table.domain().pin();
    let first = NonNull::from(&table.arena().0[0]).addr().get();
    let visit = |link: NonNull<Link>| {
        let n = (link.addr().get() - first) / size_of::<Link>();
        if let Some(visits) = visits.get_mut(n) {
            *visits += 1;
        }
    };
    // SAFETY: the guard is of the table's domain, and `visit` keeps no node.
    unsafe { table.scan(&guard, from, most, visit) }
}

/// Guarantee 1 of `scan`: 4,000 nodes stay while the table goes between 64 and 16,384 buckets.
#[test]
fn a_scan_visits_what_stays_exactly_once_while_the_table_is_resized() {
    const STAY: u64 = 4_000;
    let table = table(STAY);
    table.set_automatic(false);
    (0..STAY).for_each(|n| insert(&table, n));
    for seed in 0..40u64 {
        let (mut visits, mut from, mut steps) = (vec![0; STAY as usize], Some(0), 0u64);
        while let Some(at) = from {
            let drawn = hash(seed << 32 | steps) >> 40;
            from = scan(&table, at, 1 + drawn as usize % 700, &mut visits);
            if drawn.is_multiple_of(3) {
                table.resize_to(64 << (drawn / 3 % 9)).unwrap();
            }
            steps += 1;
        }
        let wrong = visits.iter().filter(|visits| **visits != 1).count();
        assert_eq!(wrong, 0, "seed {seed}, {steps} steps");
        assert!(steps > 5, "{steps}");
    }
}

/// The same while other threads insert and remove, and so resize, and buckets are zipped.
#[test]
fn a_scan_beside_updates_visits_what_stays_exactly_once() {
    const STAY: u64 = 2_000;
    const CHUNK: u64 = 20_000;
    const ALL: u64 = STAY + 25 * CHUNK;
    let table = table(ALL);
    // The stress build also resizes by factors of three, but a scan needs powers of two.
    table.set_automatic(cfg!(not(corewise_stress)));
    (0..STAY).for_each(|n| insert(&table, n));
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use std::sync::atomic::Ordering::Relaxed;
            // A removed node is not inserted again.
            let mut chunks = (STAY..ALL).step_by(CHUNK as usize);
            while let Some(first) = chunks.next().filter(|_| !over.load(Relaxed)) {
                (first..first + CHUNK).for_each(|n| insert(&table, n));
                if cfg!(corewise_stress) {
                    table.resize_to(64 << (first / CHUNK % 9)).unwrap();
                }
                (first..first + CHUNK).for_each(|n| remove(&table, n));
            }
        });
        for round in 0..30 {
            let (mut visits, mut from) = (vec![0; STAY as usize], Some(0));
            while let Some(at) = from {
                from = scan(&table, at, 50, &mut visits);
                std::thread::yield_now();
            }
            let wrong = visits.iter().filter(|visits| **visits != 1).count();
            assert_eq!(wrong, 0, "round {round}");
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_scan_takes_any_position_and_ends() {
    let table = table(100);
    (0..100).for_each(|n| insert(&table, n));
    for from in [1, 7, 1 << 30, (1 << 31) - 1, 1 << 31, u32::MAX] {
        let (mut next, mut steps) = (Some(from), 0);
        while let Some(at) = next {
            next = scan(&table, at, 1, &mut []);
            steps += 1;
        }
        assert!(steps <= 1_000, "{steps} from {from}");
    }
}
