//! Exhaustive exploration of the algorithms of \[ATC11\].
//!
//! # All readers at once
//!
//! The future of a reader depends only on its position: the word that it follows next. So the
//! [`Explorer`] keeps, for each key, the set of words at which a reader that looks for the key may
//! stand. After every single store of an update or a resize it advances all readers as far as they
//! can go, and fails if one reaches the end of its chain without the key. A wait for readers
//! discards those that began before it. This covers every interleaving of lookups with a resize,
//! and with updates between its steps, in the order of the stores. Weaker memory orders are covered
//! by the models under loom.

use corewise_atomic::mutant;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;

use corewise_rcu::Domain;

use super::algorithm::{Algorithm, ChainLink, Head, follow};
use super::order::Order;
use super::paper::{
    Atc11Form, Cut, InPlaceForm, NoAuxiliaryForm, OutOfPlaceForm, Paper, Replaced, ResizeVariant,
    ReversedForm,
};
use corewise_testkit::for_every;
use corewise_testkit::random::is_short;

type Position = *const Head;

thread_local! {
    static EXPLORER: RefCell<Option<Explorer>> = const { RefCell::new(None) };
}

/// Called after every store to a link.
pub(super) fn after_store() {
    // Not while the explorer itself runs.
    EXPLORER.with(|explorer| {
        if let Ok(mut explorer) = explorer.try_borrow_mut()
            && let Some(explorer) = explorer.as_mut()
        {
            explorer.begin();
        }
    });
}

/// The positions of readers.
struct Explorer {
    /// The position at which a new reader that looks for a hash begins.
    start: Box<dyn Fn(u64) -> Position>,
    /// The hashes that must be found.
    present: BTreeSet<u64>,
    /// The readers that began after each of the last passes, newest last: for each hash, the
    /// positions of the readers that look for it.
    generations: Vec<BTreeMap<u64, BTreeSet<Position>>>,
    /// The events so far, for the message of a failure.
    story: Vec<String>,
}

impl Explorer {
    /// Starts readers of every key, and advances all readers.
    fn begin(&mut self) {
        let newest = self.generations.last_mut().unwrap();
        for hash in &self.present {
            let start = (self.start)(*hash);
            newest.entry(*hash).or_default().insert(start);
        }
        self.walk();
    }

    /// Advances every reader as far as it can go.
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
                        // SAFETY: a node, and none is freed while a reader may stand in it.
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
struct ModelState<F: ResizeVariant> {
    /// Boxed, because the explorer has its address.
    table: Box<Paper<F>>,
    domain: Domain,
    present: BTreeSet<u64>,
    /// All nodes, including the removed ones, on which readers may stand.
    nodes: Vec<NonNull<ChainLink>>,
    replaced: Vec<Replaced>,
}

impl<F: ResizeVariant> ModelState<F> {
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
            // SAFETY: the explorer is dropped with the state; only this state resizes.
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

    fn add_to_story(&self, what: impl FnOnce() -> String) {
        self.explore(|explorer| explorer.story.push(what()));
    }

    /// Starts readers of every key now.
    fn begin(&self) {
        self.explore(|explorer| {
            explorer.present.clone_from(&self.present);
            explorer.begin();
        });
    }

    fn start(&self, hash: u64) -> Position {
        // SAFETY: only this thread resizes, and it does not while the position is read (1).
        unsafe { self.table.head(hash) }
    }

    /// Ends a step: readers that begin from now on belong to the next generation.
    fn step_done(&self) {
        self.explore(|explorer| explorer.generations.push(BTreeMap::new()));
        self.begin();
    }

    /// A wait for the readers that began before the last step was done.
    fn wait(&self) {
        self.explore(|explorer| {
            let newest = explorer.generations.len() - 1;
            explorer.generations.drain(..newest);
        });
    }

    fn insert(&mut self, hash: u64) {
        self.add_to_story(|| format!("insert {hash:#x}"));
        let link = NonNull::from(Box::leak(Box::new(ChainLink::new(hash))));
        self.nodes.push(link);
        // SAFETY: a section of the table's domain; a new node, freed when the table is gone.
        let inserted = unsafe { self.table.insert(&self.domain.pin(), link, |_| true) };
        assert_eq!(inserted.is_ok(), self.present.insert(hash));
        self.begin();
    }

    fn remove(&mut self, hash: u64) {
        self.add_to_story(|| format!("remove {hash:#x}"));
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
        // Readers that begin now must not find the removed node.
        for other in self.present.iter() {
            let mut at = self.start(*other);
            // SAFETY: no node and no table is freed while a reader may stand in it.
            while let Some(link) = follow(unsafe { &*at }) {
                assert_ne!(link, removed, "a removed node is met");
                // SAFETY: a node, and none is freed while a reader may stand in it.
                at = unsafe { &link.as_ref().next };
            }
        }
    }

    fn expand(&mut self, to: u32, between: &mut impl FnMut(&mut Self, usize)) -> usize {
        self.add_to_story(|| format!("expand to {}", 1 << to));
        // SAFETY: no other thread resizes (1). Kept as long as the scene (2).
        let replaced = unsafe { self.table.zip(to) }.unwrap();
        self.replaced.extend(replaced);
        self.step_done();
        between(self, 0);
        if !mutant!("chained_no_wait_after_publish") {
            self.wait();
        }
        for pass in 1.. {
            self.add_to_story(|| format!("pass {pass}"));
            // SAFETY: no other thread resizes (1). Zipped above (2).
            let cut = unsafe { self.table.unzip() };
            self.step_done();
            between(self, pass);
            if cut == Cut::Done {
                // The next operation does not wait for readers that are still on their way.
                // SAFETY: no other thread resizes (1). Nothing was left to cut (2).
                unsafe { self.table.end_unzip(to) };
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
        self.add_to_story(|| format!("shrink to {}", 1 << to));
        // SAFETY: no other thread resizes (1). Kept as long as the scene (2).
        let replaced = unsafe { self.table.join_all(to) }.unwrap();
        self.replaced.extend(replaced);
        self.step_done();
        between(self, 0);
        self.wait();
    }

    /// Checks that each chain has its own keys and no others, each once.
    fn check(&self) {
        for hash in &self.present {
            let mut at = self.start(*hash);
            let (mut seen, mut last) = (0, 0);
            // SAFETY: no node and no table is freed while a reader may stand in it.
            while let Some(link) = follow(unsafe { &*at }) {
                // SAFETY: a node, and none is freed while a reader may stand in it.
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

impl<F: ResizeVariant> Drop for ModelState<F> {
    fn drop(&mut self) {
        EXPLORER.with(|explorer| *explorer.borrow_mut() = None);
        self.table.take_all(|_| {});
        for node in self.nodes.drain(..) {
            // SAFETY: made from a box in `insert`, and in no table.
            drop(unsafe { Box::from_raw(node.as_ptr()) });
        }
    }
}

/// Hashes that differ in the bits that the first two doublings use. `pattern` has two
/// bits for each hash.
fn hashes(pattern: usize, count: usize) -> Vec<u64> {
    let hash = |n: usize| {
        let bits = (pattern >> (2 * n)) as u64 & 3;
        bits | (n as u64 + 1) << 8
    };
    (0..count).map(hash).collect()
}

/// All readers during an expansion and a shrink, in tables of a few nodes, with up to two updates
/// at any of the steps.
fn resizes<F: ResizeVariant>(nodes: usize, doublings: u32) {
    // A single thread; under the sanitizers fewer nodes and updates are enough.
    let (nodes, updates) = if is_short() {
        (nodes - 1, 1)
    } else {
        (nodes, 2)
    };
    // Patterns in which the second doubling divides no chain are enough for one doubling.
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
            let mut scene = ModelState::<F>::new(0, &hashes);
            let mut between = |scene: &mut ModelState<F>, step: usize| {
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
    => {
        no_reader_misses
    }
}

fn no_reader_misses<F: ResizeVariant>() {
    resizes::<F>(4, 1);
    resizes::<F>(3, 2);
}

/// §4.3: no more passes than the factor, whatever the chains are like. Here: one.
#[test]
fn a_sorted_table_is_expanded_in_one_pass() {
    fn passes<F: ResizeVariant>(pattern: usize) -> usize {
        let mut scene = ModelState::<F>::new(0, &hashes(pattern, 8));
        scene.expand(2, &mut |_, _| {})
    }
    // Each node belongs to another child than the one before it.
    let pattern = 0b11_10_01_00_11_10_01_00;
    assert_eq!(passes::<ReversedForm>(pattern), 1);
    assert!(passes::<OutOfPlaceForm>(pattern) > 4);
    assert!(passes::<NoAuxiliaryForm>(pattern) > 1);
}
