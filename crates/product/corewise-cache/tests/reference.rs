//! The cache beside S3-FIFO as plain lists, in one thread.

use std::collections::HashMap;

use corewise_cache::{Cache, TooHeavy};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

#[derive(Clone, Copy)]
struct Item {
    key: u64,
    weight: u64,
    reads: u8,
}

/// S3-FIFO (Yang et al., SOSP 2023, algorithm 1) by weight, with promotion after one read. A queue
/// begins with its oldest item.
struct Reference {
    max_weight: u64,
    small: Vec<Item>,
    main: Vec<Item>,
    /// `None` is a key that came back.
    ghost: Vec<Option<u64>>,
    entered_main: u64,
    went_round: u64,
}

fn weight(queue: &[Item]) -> u64 {
    queue.iter().map(|item| item.weight).sum()
}

impl Reference {
    fn new(max_weight: u64) -> Self {
        Self {
            max_weight,
            small: Vec::new(),
            main: Vec::new(),
            ghost: Vec::new(),
            entered_main: 0,
            went_round: 0,
        }
    }

    fn weight(&self) -> u64 {
        weight(&self.small) + weight(&self.main)
    }

    fn item(&mut self, key: u64) -> Option<&mut Item> {
        let mut all = self.small.iter_mut().chain(&mut self.main);
        all.find(|item| item.key == key)
    }

    fn get(&mut self, key: u64) -> bool {
        let item = self.item(key);
        item.map(|item| item.reads = 3.min(item.reads + 1))
            .is_some()
    }

    fn remove(&mut self, key: u64) -> bool {
        let before = self.small.len() + self.main.len();
        self.small.retain(|item| item.key != key);
        self.main.retain(|item| item.key != key);
        self.small.len() + self.main.len() < before
    }

    fn insert(&mut self, key: u64, weight: u64) -> Result<(), TooHeavy> {
        if weight > self.max_weight {
            self.remove(key);
            return Err(TooHeavy);
        }
        if let Some(item) = self.item(key) {
            item.weight = weight;
            self.make_room(0, Some(key));
            return Ok(());
        }
        self.make_room(weight, None);
        let remembered = self.ghost.iter_mut().find(|ghost| **ghost == Some(key));
        let queue = match remembered {
            Some(ghost) => {
                *ghost = None;
                self.entered_main += 1;
                &mut self.main
            }
            None => &mut self.small,
        };
        queue.push(Item {
            key,
            weight,
            reads: 0,
        });
        Ok(())
    }

    fn make_room(&mut self, more: u64, keep: Option<u64>) {
        while self.weight() + more > self.max_weight {
            if weight(&self.small) > self.max_weight / 10 || self.main.is_empty() {
                let item = self.small[0];
                if item.reads >= 1 || Some(item.key) == keep {
                    self.small.remove(0);
                    self.main.push(Item { reads: 0, ..item });
                } else {
                    self.remember(item.key);
                    self.small.remove(0);
                }
            } else {
                let item = self.main.remove(0);
                if item.reads >= 1 || Some(item.key) == keep {
                    let reads = item.reads.saturating_sub(1);
                    self.main.push(Item { reads, ..item });
                    self.went_round += 1;
                }
            }
        }
    }

    fn remember(&mut self, key: u64) {
        let entries = (self.small.len() + self.main.len()) as u64;
        let limit = (entries * self.max_weight / self.weight().max(1)).max(1) as usize;
        self.ghost.iter_mut().for_each(|ghost| {
            if *ghost == Some(key) {
                *ghost = None;
            }
        });
        self.ghost.push(Some(key));
        let surplus = self.ghost.len().saturating_sub(limit);
        self.ghost.drain(..surplus);
    }

    fn contents(&self) -> HashMap<u64, u64> {
        let all = self.small.iter().chain(&self.main);
        all.map(|item| (item.key, item.weight)).collect()
    }
}

/// Draws operations on `keys` keys, the small ones more often, and compares the contents after
/// each.
fn compare(seed: u64, max_weight: u64, heaviest: u64, keys: f64) -> Reference {
    let mut rng = SmallRng::seed_from_u64(seed);
    let cache = Cache::builder(max_weight)
        .weigher(|_: &u64, weight: &u64| *weight)
        .build();
    let mut reference = Reference::new(max_weight);
    for step in 0..3000 {
        let key = (keys * rng.random::<f64>().powi(3)) as u64;
        match rng.random_range(0..20) {
            0 => assert_eq!(cache.remove(&key).is_some(), reference.remove(key)),
            // Replaces, or inserts without a lookup before it.
            1..3 => {
                let weight = rng.random_range(heaviest.min(1)..=heaviest);
                assert_eq!(cache.insert(key, weight), reference.insert(key, weight));
            }
            // As a program uses a cache.
            _ => {
                let hit = cache.get(&key).is_some();
                assert_eq!(hit, reference.get(key), "seed {seed}, step {step}");
                if !hit {
                    let weight = rng.random_range(1..=heaviest.min(max_weight));
                    assert_eq!(cache.insert(key, weight), reference.insert(key, weight));
                }
            }
        }
        let contents: HashMap<u64, u64> = cache.entries().into_iter().collect();
        assert_eq!(contents, reference.contents(), "seed {seed}, step {step}");
        assert_eq!(cache.weight(), reference.weight());
    }
    reference
}

#[test]
fn the_contents_are_those_of_s3_fifo() {
    for seed in 0..4 {
        let reference = compare(seed, 40, 1, 150.0);
        assert!(reference.entered_main > 20 && reference.went_round > 20);
    }
}

#[test]
fn the_contents_are_those_of_s3_fifo_by_weight() {
    for seed in 0..4 {
        compare(seed, 100, 12, 60.0);
        // Some entries are heavier than the cache; the small queue's share is below one entry.
        compare(seed, 9, 11, 20.0);
    }
}
