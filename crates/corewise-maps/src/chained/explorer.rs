//! Models of the paper's algorithms.
//!
//! # All readers at once
//!
//! What a reader does depends on where it stands and on nothing else: on the word that it follows next. So the
//! [`Explorer`] keeps, for each key, the set of words at which some reader that looks for it may stand; after
//! every single store of an update or a resize it lets all of them walk on as far as they like, and fails if
//! one comes to the end of its chain without the key. A wait for readers ends those that began before it. This
//! is every interleaving of lookups with a resize, and updates between its steps, in the order of the stores;
//! what weaker orders of memory allow is the affair of the models under loom.

use corewise_atomic::mutant;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;

use corewise_rcu::Domain;

use super::algorithm::{Algorithm, Head, Link, follow};
use super::order::Order;
use super::paper::{
    Atc11Form, Cut, Form, HighBitsForm, InPlaceForm, NoAuxiliaryForm, OutOfPlaceForm, Paper,
    Replaced, ReversedForm,
};
use crate::every::for_every;

type Position = *const Head;

thread_local! {
    static EXPLORER: RefCell<Option<Explorer>> = const { RefCell::new(None) };
}

/// Called after every store to a link.
pub(super) fn after_store() {
    // Not at all if the explorer itself is at work.
    EXPLORER.with(|explorer| {
        if let Ok(mut explorer) = explorer.try_borrow_mut()
            && let Some(explorer) = explorer.as_mut()
        {
            explorer.begin();
        }
    });
}

/// Where readers stand.
struct Explorer {
    /// Where a reader begins now that looks for a hash.
    start: Box<dyn Fn(u64) -> Position>,
    /// The hashes that must be found.
    present: BTreeSet<u64>,
    /// The readers that began after each of the last passes, newest last: where those stand that look for a
    /// hash.
    generations: Vec<BTreeMap<u64, BTreeSet<Position>>>,
    /// What happened, for the message of a failure.
    story: Vec<String>,
}

impl Explorer {
    /// Readers of every key begin, and all walk.
    fn begin(&mut self) {
        let newest = self.generations.last_mut().unwrap();
        for hash in &self.present {
            let start = (self.start)(*hash);
            newest.entry(*hash).or_default().insert(start);
        }
        self.walk();
    }

    /// Lets every reader walk as far as it can.
    fn walk(&mut self) {
        for generation in &mut self.generations {
            for (hash, positions) in generation {
                for start in positions.clone() {
                    let mut at = start;
                    loop {
                        // SAFETY: no node and no table is freed while a reader may stand in it.
                        let Some(link) = follow(unsafe { &*at }) else {
                            panic!("a reader misses {hash:#x}: {:?}", self.story);
                        };
                        // SAFETY: as above.
                        let link = unsafe { link.as_ref() };
                        if link.hash() == *hash {
                            break;
                        }
                        at = &link.next;
                        if !positions.insert(at) {
                            break;
                        }
                    }
                }
            }
        }
    }
}

/// A table whose keys are their hashes, and the readers in it.
struct Scene<F: Form> {
    /// In a place of its own: the explorer looks into it.
    table: Box<Paper<F>>,
    domain: Domain,
    present: BTreeSet<u64>,
    /// Every node, also those that are removed: readers stand on them.
    nodes: Vec<NonNull<Link>>,
    replaced: Vec<Replaced>,
}

impl<F: Form> Scene<F> {
    /// A table of 2^`log2` buckets with these hashes, the first in front.
    fn new(log2: u32, hashes: &[u64]) -> Self {
        let domain = Domain::new();
        let mut scene = Self {
            table: Box::new(Paper::try_new(1 << log2, &domain).unwrap()),
            domain,
            present: BTreeSet::new(),
            nodes: Vec::new(),
            replaced: Vec::new(),
        };
        EXPLORER.with(|explorer| *explorer.borrow_mut() = None);
        for hash in hashes.iter().rev() {
            scene.insert(*hash);
        }
        let table: *const Paper<F> = &*scene.table;
        let explorer = Explorer {
            // SAFETY: the explorer goes when the scene does; only it resizes.
            start: Box::new(move |hash| unsafe { (*table).head(hash) }),
            present: scene.present.clone(),
            generations: vec![BTreeMap::new()],
            story: vec![format!("{} {hashes:x?}", F::NAME)],
        };
        EXPLORER.with(|place| *place.borrow_mut() = Some(explorer));
        scene.begin();
        scene
    }

    fn explore<R>(&self, look: impl FnOnce(&mut Explorer) -> R) -> Option<R> {
        EXPLORER.with(|explorer| explorer.borrow_mut().as_mut().map(look))
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        self.explore(|explorer| explorer.story.push(what()));
    }

    /// Readers of every key begin now.
    fn begin(&self) {
        self.explore(|explorer| {
            explorer.present.clone_from(&self.present);
            explorer.begin();
        });
    }

    fn start(&self, hash: u64) -> Position {
        // SAFETY: nobody else resizes.
        unsafe { self.table.head(hash) }
    }

    /// A step is done: those who begin from now on are of another generation.
    fn step_done(&self) {
        self.explore(|explorer| explorer.generations.push(BTreeMap::new()));
        self.begin();
    }

    /// A wait for readers that began before the last step was done.
    fn wait(&self) {
        self.explore(|explorer| {
            let newest = explorer.generations.len() - 1;
            explorer.generations.drain(..newest);
        });
    }

    fn insert(&mut self, hash: u64) {
        self.tell(|| format!("insert {hash:#x}"));
        let link = NonNull::from(Box::leak(Box::new(Link::new(hash))));
        self.nodes.push(link);
        // SAFETY: a section of the table's domain; a new node, freed when the table is gone.
        let inserted = unsafe { self.table.insert(&self.domain.pin(), link, |_| true) };
        assert_eq!(inserted.is_ok(), self.present.insert(hash));
        self.begin();
    }

    fn remove(&mut self, hash: u64) {
        self.tell(|| format!("remove {hash:#x}"));
        self.present.remove(&hash);
        // From now on a reader may miss it.
        self.explore(|explorer| {
            explorer.present.remove(&hash);
            for generation in &mut explorer.generations {
                generation.remove(&hash);
            }
        });
        // SAFETY: a section of the table's domain.
        let removed = unsafe { self.table.remove(&self.domain.pin(), hash, |_| true) };
        let removed = removed.expect("it was there");
        self.begin();
        // Nobody who begins now may meet it.
        for other in self.present.iter() {
            let mut at = self.start(*other);
            // SAFETY: as in `walk`.
            while let Some(link) = follow(unsafe { &*at }) {
                assert_ne!(link, removed, "a removed node is met");
                // SAFETY: as above.
                at = unsafe { &link.as_ref().next };
            }
        }
    }

    fn expand(&mut self, to: u32, between: &mut impl FnMut(&mut Self, usize)) -> usize {
        self.tell(|| format!("expand to {}", 1 << to));
        let replaced = self.table.zip(to).unwrap();
        self.replaced.extend(replaced);
        self.step_done();
        between(self, 0);
        if !mutant!("chained_no_wait_after_publish") {
            self.wait();
        }
        for pass in 1.. {
            self.tell(|| format!("pass {pass}"));
            let cut = self.table.unzip();
            self.step_done();
            between(self, pass);
            if cut == Cut::Done {
                // What comes next does not wait for those who are on their way.
                self.table.end_unzip(to);
                return pass;
            }
            if !mutant!("chained_no_wait_between_passes") {
                self.wait();
            }
            assert!(pass < 50, "it ends");
        }
        unreachable!()
    }

    fn shrink(&mut self, to: u32, between: &mut impl FnMut(&mut Self, usize)) {
        self.tell(|| format!("shrink to {}", 1 << to));
        let replaced = self.table.join_all(to).unwrap();
        self.replaced.extend(replaced);
        self.step_done();
        between(self, 0);
        self.wait();
    }

    /// Each chain has its own keys and no other, once.
    fn check(&self) {
        for hash in &self.present {
            let mut at = self.start(*hash);
            let (mut seen, mut last) = (0, 0);
            // SAFETY: as in `walk`.
            while let Some(link) = follow(unsafe { &*at }) {
                // SAFETY: as above.
                let link = unsafe { link.as_ref() };
                assert_eq!(
                    self.start(link.hash()),
                    self.start(*hash),
                    "of another bucket"
                );
                seen += usize::from(link.hash() == *hash);
                assert!(!F::Order::is_after(last, link.hash()), "not sorted");
                last = link.hash();
                at = &link.next;
            }
            assert_eq!(seen, 1);
        }
    }
}

impl<F: Form> Drop for Scene<F> {
    fn drop(&mut self) {
        EXPLORER.with(|explorer| *explorer.borrow_mut() = None);
        self.table.take_all(|_| {});
        for node in self.nodes.drain(..) {
            // SAFETY: made from a box in `insert`, and in no table any more.
            drop(unsafe { Box::from_raw(node.as_ptr()) });
        }
    }
}

/// Hashes that differ in the bits that the first two doublings look at, low or high, as `pattern` says, two
/// bits for each.
fn hashes(pattern: usize, count: usize) -> Vec<u64> {
    let hash = |n: usize| {
        let bits = (pattern >> (2 * n)) as u64 & 3;
        // The same bits, from above reversed, for tables that look at the high ones.
        bits | (n as u64 + 1) << 8 | bits.reverse_bits()
    };
    (0..count).map(hash).collect()
}

/// All readers beside a resize there and back again, in tables of a few nodes, with up to two updates at any of its
/// steps.
fn resizes<F: Form>(nodes: usize, doublings: u32) {
    // One thread: the sanitizers have enough with less.
    let (nodes, updates) = match std::env::var_os("COREWISE_FEWER") {
        Some(_) => (nodes - 1, 1),
        None => (nodes, 2),
    };
    // Chains of which a child has all are all alike.
    for pattern in 0..1 << (2 * nodes) {
        let wide = (0..nodes).all(|n| pattern >> (2 * n) & 2 == 0);
        if doublings == 1 && !wide {
            continue;
        }
        let hashes = hashes(pattern, nodes);
        let mut schedules: Vec<Vec<(usize, usize)>> = vec![vec![]];
        let steps = 0..nodes + 1;
        let one = || {
            steps
                .clone()
                .flat_map(|step| (0..nodes + 1).map(move |what| (step, what)))
        };
        schedules.extend(one().map(|update| vec![update]));
        if updates > 1 {
            schedules.extend(one().flat_map(|a| one().map(move |b| vec![a, b])));
        }
        for schedule in schedules {
            let mut scene = Scene::<F>::new(0, &hashes);
            let mut between = |scene: &mut Scene<F>, step: usize| {
                for (at, what) in &schedule {
                    match hashes.get(*what) {
                        _ if *at != step => {}
                        Some(hash) if scene.present.contains(hash) => scene.remove(*hash),
                        Some(hash) => scene.insert(*hash),
                        None => scene.insert(0xff00 | scene.nodes.len() as u64 & 3),
                    }
                }
            };
            scene.expand(doublings, &mut between);
            scene.check();
            scene.shrink(0, &mut between);
            scene.check();
            scene.expand(doublings, &mut |_, _| {});
            scene.check();
        }
    }
}

for_every! {
    out_of_place: OutOfPlaceForm,
    atc11: Atc11Form,
    in_place: InPlaceForm,
    no_auxiliary: NoAuxiliaryForm,
    sorted_by_reversed_hash: ReversedForm,
    sorted_by_high_bits: HighBitsForm,
    => {
        no_reader_misses
    }
}

fn no_reader_misses<F: Form>() {
    resizes::<F>(4, 1);
    resizes::<F>(3, 2);
}

/// §4.3: as many passes as the factor at most, whatever the chains are like. Here: one.
#[test]
fn a_sorted_table_is_expanded_in_one_pass() {
    fn passes<F: Form>(pattern: usize) -> usize {
        let mut scene = Scene::<F>::new(0, &hashes(pattern, 8));
        scene.expand(2, &mut |_, _| {})
    }
    // Each node of another child than the one before it.
    let pattern = 0b11_10_01_00_11_10_01_00;
    assert_eq!(passes::<ReversedForm>(pattern), 1);
    assert_eq!(passes::<HighBitsForm>(pattern), 1);
    assert!(passes::<OutOfPlaceForm>(pattern) > 4);
    assert!(passes::<NoAuxiliaryForm>(pattern) > 1);
}
