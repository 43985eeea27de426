//! Random operations on partitions of many sizes, compared with an oracle; the guarantees have the
//! numbers of the module's header.

use std::hash::RandomState;

use super::*;
use crate::key::{Identifier, Key};

/// An element as the oracle sees it.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    number: usize,
    serial: u64,
    value: Vec<u8>,
    lines: usize,
    refs: usize,
}

/// The same cache without pointers: elements from the oldest to the newest.
struct Oracle {
    budget: usize,
    layout: Layout,
    linked: Vec<Known>,
    detached: Vec<Known>,
    evictions: u64,
    next_serial: u64,
}

impl Oracle {
    fn used(&self) -> usize {
        let all = self.linked.iter().chain(&self.detached);
        all.map(|known| known.lines * LINE).sum()
    }

    fn position(&self, number: usize) -> Option<usize> {
        self.linked.iter().position(|known| known.number == number)
    }

    fn refresh(&mut self, position: usize) {
        let known = self.linked.remove(position);
        self.linked.push(known);
    }

    fn lookup(&mut self, number: usize) -> Option<&mut Known> {
        let position = self.position(number)?;
        self.refresh(position);
        self.linked.last_mut()
    }

    fn evict_one(&mut self) -> bool {
        for _ in 0..self.linked.len() {
            if self.linked[0].refs == 0 {
                self.linked.remove(0);
                self.evictions += 1;
                return true;
            }
            self.refresh(0);
        }
        false
    }

    fn allocate(&mut self, key: &Key<'_>, number: usize, len: usize) -> Result<u64, InsertError> {
        let lines = self.lines(key, len);
        if lines * LINE > self.budget {
            return Err(InsertError::TooLarge);
        }
        while self.used() + lines * LINE > self.budget {
            if !self.evict_one() {
                return Err(InsertError::NoRoom);
            }
        }
        self.next_serial += 1;
        self.detached.push(Known {
            number,
            serial: self.next_serial,
            value: Vec::new(),
            lines,
            refs: 1,
        });
        Ok(self.next_serial)
    }

    fn lines(&self, key: &Key<'_>, value_len: usize) -> usize {
        let key_len = match key {
            Key::Number(number) if *number < 1 << 60 => 0,
            Key::Number(_) => 8,
            Key::Bytes(bytes) => bytes.len(),
        };
        let header = if self.layout == Layout::Packed {
            40
        } else {
            64
        };
        (header + 8 + key_len + value_len).div_ceil(LINE)
    }

    fn publish(&mut self, serial: u64, value: Vec<u8>) {
        let is_it = |known: &Known| known.serial == serial;
        let position = self.detached.iter().position(is_it).unwrap();
        let mut known = self.detached.remove(position);
        self.remove(known.number);
        known.value = value;
        self.linked.push(known);
        self.release(serial);
    }

    fn set_budget(&mut self, bytes: usize) {
        self.budget = bytes;
        while self.used() > self.budget && self.evict_one() {}
    }

    fn insert(&mut self, key: &Key<'_>, number: usize, value: Vec<u8>) -> Result<(), InsertError> {
        let lines = self.lines(key, value.len());
        if let Some(position) = self.position(number)
            && self.linked[position].refs == 0
            && self.linked[position].lines == lines
        {
            self.linked[position].value = value;
            self.refresh(position);
            return Ok(());
        }
        let serial = self.allocate(key, number, value.len())?;
        self.publish(serial, value);
        Ok(())
    }

    fn remove(&mut self, number: usize) -> bool {
        let Some(position) = self.position(number) else {
            return false;
        };
        let known = self.linked.remove(position);
        if known.refs > 0 {
            self.detached.push(known);
        }
        true
    }

    fn release(&mut self, serial: u64) {
        let is_it = |known: &Known| known.serial == serial;
        if let Some(position) = self.linked.iter().position(is_it) {
            self.linked[position].refs -= 1;
            if self.linked[position].refs == 0 && self.used() > self.budget {
                self.linked.remove(position);
                self.evictions += 1;
            }
            return;
        }
        let known = self.detached.iter_mut().find(|known| is_it(known)).unwrap();
        known.refs -= 1;
        self.detached.retain(|known| known.refs > 0);
    }
}

/// What a test holds: a reference to a value, or an element that is not complete.
enum HeldElement {
    Value(Element, u64, Vec<u8>),
    Incomplete(Element, u64, usize),
}

struct Pair {
    random: Random,
    identifier: Identifier<RandomState>,
    partition: Partition,
    oracle: Oracle,
    keys: Vec<Key<'static>>,
    held: Vec<HeldElement>,
    /// The budgets among which a step may choose.
    budgets: Vec<usize>,
}

const NAMES: [&[u8]; 6] = [b"", b"a", b"ab", b"b", &[7; 100], &[8; 8]];

impl Pair {
    fn new(seed: u64, budget: usize, eviction: Eviction, layout: Layout) -> Self {
        let identifier = Identifier::new(RandomState::new());
        let settings = Settings {
            budget,
            buckets: 4,
            eviction,
            replace: Replace::WhenReady,
            layout,
            mixer: identifier.mixer,
            seed,
        };
        let mut keys: Vec<Key<'static>> = (0..20).map(Key::Number).collect();
        keys.extend((0..3).map(|number| Key::Number(u64::MAX - number)));
        keys.extend(NAMES.map(Key::Bytes));
        Self {
            random: Random::new(seed),
            identifier,
            partition: Partition::new(&settings).unwrap(),
            oracle: Oracle {
                budget,
                layout,
                linked: Vec::new(),
                detached: Vec::new(),
                evictions: 0,
                next_serial: 0,
            },
            keys,
            held: Vec::new(),
            budgets: Vec::new(),
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.next() as usize % bound
    }

    /// From 0 to twice the budget, small ones more often.
    fn random_value(&mut self) -> Vec<u8> {
        let scale = [1, 20, 100, self.oracle.budget / 4, self.oracle.budget * 2];
        let choice = self.below(scale.len());
        let len = self.below(scale[choice] + 1);
        let byte = self.random.next() as u8;
        (0..len)
            .map(|index| byte.wrapping_add(index as u8))
            .collect()
    }

    fn step(&mut self) {
        let number = self.below(self.keys.len());
        let key = self.keys[number];
        let identity = self.identifier.identify(key).unwrap();
        let hash = self.identifier.mixer.mix(identity.id);
        match self.below(12) {
            0..3 => {
                let value = self.random_value();
                let result = self.partition.insert(hash, &identity, &value);
                assert_eq!(result, self.oracle.insert(&key, number, value));
            }
            3..5 => self.begin_insert(&identity, number),
            5..8 => {
                let found = self.partition.get(hash, &identity).map(<[u8]>::to_vec);
                let expected = self.oracle.lookup(number).map(|known| known.value.clone());
                assert_eq!(found, expected);
            }
            8..10 => self.hold(hash, &identity, number),
            10 => {
                let removed = self.partition.remove(hash, &identity);
                assert_eq!(removed, self.oracle.remove(number));
            }
            _ => self.end_one(),
        }
        if self.held.len() > 6 {
            self.end_one();
        }
        if !self.budgets.is_empty() && self.below(8) == 0 {
            let choice = self.below(self.budgets.len());
            self.partition.set_budget(self.budgets[choice]);
            self.oracle.set_budget(self.budgets[choice]);
        }
        self.check();
    }

    fn begin_insert(&mut self, identity: &Identity<'_>, number: usize) {
        let len = self.random_value().len();
        let key = self.keys[number];
        let allocated = self.partition.allocate(identity, len);
        match (allocated, self.oracle.allocate(&key, number, len)) {
            (Ok(element), Ok(serial)) => {
                let value = vec![serial as u8; len];
                // SAFETY: allocated for these lengths, and this is the inserting thread.
                unsafe { element.fill(self.oracle.layout, identity.bytes(), &value) };
                self.held
                    .push(HeldElement::Incomplete(element, serial, len));
            }
            (result, expected) => assert_eq!(result.err(), expected.err()),
        }
    }

    fn hold(&mut self, hash: u64, identity: &Identity<'_>, number: usize) {
        let found = self.partition.lookup(hash, identity);
        let expected = self.oracle.lookup(number);
        assert_eq!(found.is_some(), expected.is_some());
        if let (Some(element), Some(known)) = (found, expected) {
            self.partition.acquire(element);
            known.refs += 1;
            let (serial, value) = (known.serial, known.value.clone());
            self.held.push(HeldElement::Value(element, serial, value));
        }
    }

    /// Ends a reference, or an insertion, in any order.
    fn end_one(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let index = self.below(self.held.len());
        let publish = self.below(3) > 0;
        // SAFETY: the references are ours, and given up once; the values are complete.
        unsafe {
            match self.held.swap_remove(index) {
                HeldElement::Incomplete(element, serial, len) if publish => {
                    self.partition.publish(element);
                    self.oracle.publish(serial, vec![serial as u8; len]);
                }
                HeldElement::Incomplete(element, serial, _) => {
                    self.partition.release(element);
                    self.oracle.release(serial);
                }
                HeldElement::Value(element, serial, value) => {
                    assert_eq!(element.parts(self.oracle.layout).1, value);
                    self.partition.release(element);
                    self.oracle.release(serial);
                }
            }
        }
    }

    /// Guarantees 1 to 3.
    fn check(&self) {
        let stats = self.partition.stats();
        assert_eq!(stats.used_bytes as usize, self.oracle.used());
        assert_eq!(stats.elements as usize, self.oracle.linked.len());
        assert_eq!(stats.evictions, self.oracle.evictions);
        if stats.used_bytes > stats.budget_bytes {
            // Only what has references is beyond the budget.
            assert!(self.oracle.linked.iter().all(|known| known.refs > 0));
            assert_eq!(stats.held_bytes, stats.used_bytes);
        } else {
            assert!(stats.held_bytes <= stats.budget_bytes);
        }
        if self.held.is_empty() {
            assert!(stats.held_bytes <= stats.budget_bytes);
        }
    }
}

/// Guarantees 1 to 5, for budgets from one element to hundreds.
#[test]
fn a_partition_does_what_the_oracle_does() {
    let steps = if cfg!(miri) { 200 } else { 4000 };
    for (seed, budget) in (1..).zip([128, 192, 320, 1000, 4096, 20_000, 100_000]) {
        for layout in [Layout::Packed, Layout::Split] {
            let mut pair = Pair::new(seed, budget, Eviction::Lru, layout);
            (0..steps).for_each(|_| pair.step());
        }
    }
}

/// The same while the budget shrinks and grows, between all steps of insertions and lookups.
#[test]
fn a_partition_whose_budget_changes_does_what_the_oracle_does() {
    let steps = if cfg!(miri) { 200 } else { 4000 };
    for (seed, budget) in (50..).zip([320, 4096, 20_000]) {
        for layout in [Layout::Packed, Layout::Split] {
            let mut pair = Pair::new(seed, budget, Eviction::Lru, layout);
            pair.budgets = vec![128, budget / 8, budget / 2, budget, 2 * budget];
            (0..steps).for_each(|_| pair.step());
            while !pair.held.is_empty() {
                pair.end_one();
                pair.check();
            }
        }
    }
}

/// Any interleaving of reductions, insertions and lookups ends within the budget, once everything
/// that they hold is given up.
#[test]
fn what_is_given_up_after_a_reduction_is_evicted() {
    for eviction in [Eviction::Lru, Eviction::Random] {
        for replace in [Replace::WhenReady, Replace::AtAllocation] {
            for order in 0..if cfg!(miri) { 20 } else { 2000 } {
                let mut pair = Pair::new(order + 1, 64 * 64, eviction, Layout::Split);
                pair.partition.replace = replace;
                interleave(&mut pair);
            }
        }
    }
}

fn interleave(pair: &mut Pair) {
    let mut unread: Vec<Element> = Vec::new();
    let mut incomplete = Vec::new();
    for _ in 0..30 {
        let key = Identity::narrow(pair.below(6) as u64);
        let hash = pair.partition.hash(key.id);
        let len = pair.below(1200);
        match pair.below(7) {
            0 | 1 => {
                let allocated = pair.partition.allocate(&key, len);
                incomplete.extend(allocated.ok().map(|element| (element, len)));
            }
            2 => {
                if let Some(element) = pair.partition.lookup(hash, &key) {
                    pair.partition.acquire(element);
                    unread.push(element);
                }
            }
            3 => _ = pair.partition.insert(hash, &key, &vec![1; len]),
            4 => {
                let bytes = [128, 256, 1024, 4096][pair.below(4)];
                pair.partition.set_budget(bytes);
            }
            5 if !unread.is_empty() => {
                let element = unread.swap_remove(pair.below(unread.len()));
                // SAFETY: our reference, which is given up once.
                unsafe { pair.partition.release(element) };
            }
            _ if !incomplete.is_empty() => {
                let (element, len) = incomplete.swap_remove(pair.below(incomplete.len()));
                // SAFETY: allocated for these lengths; the reference is given up once.
                unsafe {
                    element.fill(Layout::Split, b"", &vec![2; len]);
                    match pair.below(4) {
                        0 => pair.partition.release(element),
                        _ => pair.partition.publish(element),
                    }
                }
            }
            _ => {}
        }
    }
    // SAFETY: our references, given up once; the elements are not made READY.
    unsafe {
        unread
            .iter()
            .for_each(|&element| pair.partition.release(element));
        incomplete
            .iter()
            .for_each(|&(element, _)| pair.partition.release(element));
    }
    let stats = pair.partition.stats();
    assert!(stats.held_bytes <= stats.budget_bytes, "{stats:?}");
}

/// With random eviction only the victims are free: the rest is checked without an oracle.
#[test]
fn random_eviction_keeps_the_budget_and_evicts_only_for_room() {
    for (seed, budget) in (1..).zip([128, 320, 4096, 50_000]) {
        let mut pair = Pair::new(seed, budget, Eviction::Random, Layout::Packed);
        for step in 0..5000 {
            let value = pair.random_value();
            let number = pair.below(pair.keys.len());
            let identity = pair.identifier.identify(pair.keys[number]).unwrap();
            let hash = pair.identifier.mixer.mix(identity.id);
            let before = pair.partition.stats();
            let lines = Layout::Packed.lines(identity.bytes().len(), value.len());
            let bytes = lines.unwrap() * LINE;
            match pair.partition.insert(hash, &identity, &value) {
                Ok(()) => assert_eq!(pair.partition.get(hash, &identity), Some(&*value)),
                Err(error) => assert_eq!((error, bytes > budget), (InsertError::TooLarge, true)),
            }
            let after = pair.partition.stats();
            assert!(after.held_bytes <= budget as u64, "step {step}");
            let fits = before.used_bytes as usize + bytes <= budget;
            assert!(!fits || after.evictions == before.evictions, "step {step}");
        }
        assert!(pair.partition.stats().evictions > 0);
    }
}

/// Every size from one byte to the budget and above it.
#[test]
fn the_largest_element_is_the_whole_partition() {
    for layout in [Layout::Packed, Layout::Split] {
        let mut pair = Pair::new(1, 1024, Eviction::Lru, layout);
        let identity = Identity::narrow(1);
        let largest = match layout {
            Layout::Packed => 1024 - 48,
            Layout::Split => 1024 - 72,
        };
        let hash = pair.partition.mixer.mix(1);
        for len in 0..1200 {
            let value = vec![len as u8; len];
            let result = pair.partition.insert(hash, &identity, &value);
            if len <= largest {
                assert_eq!(result, Ok(()));
                assert_eq!(pair.partition.get(hash, &identity), Some(&*value));
            } else {
                assert_eq!(result, Err(InsertError::TooLarge));
            }
        }
    }
}

/// As if 2^32 references had been forgotten.
#[test]
fn a_full_reference_count_pins_its_element() {
    let mut pair = Pair::new(1, 4096, Eviction::Lru, Layout::Packed);
    let (key, hash) = (Identity::narrow(3), pair.partition.mixer.mix(3));
    pair.partition.insert(hash, &key, b"value").unwrap();
    let element = pair.partition.lookup(hash, &key).unwrap();
    // SAFETY: we own the partition, and the element is linked; see `Header::add_ref` for the
    // references that are given up without having been counted.
    unsafe {
        element.header().refs = u32::MAX - 1;
        (0..3).for_each(|_| pair.partition.acquire(element));
        (0..10).for_each(|_| pair.partition.release(element));
        pair.partition.remove(hash, &key);
        pair.partition.release(element);
        assert_eq!(element.parts(Layout::Packed).1, b"value");
    }
    assert_eq!(pair.partition.stats().used_bytes, 64);
}

#[test]
fn the_papers_replacement_hides_the_old_value_at_once() {
    for (replace, visible) in [(Replace::WhenReady, true), (Replace::AtAllocation, false)] {
        let mut pair = Pair::new(1, 4096, Eviction::Lru, Layout::Split);
        pair.partition.replace = replace;
        let key = Identity::narrow(3);
        let hash = pair.partition.mixer.mix(3);
        pair.partition.insert(hash, &key, b"old").unwrap();
        let element = pair.partition.allocate(&key, 3).unwrap();
        assert_eq!(pair.partition.get(hash, &key).is_some(), visible);
        // SAFETY: allocated for these lengths; the reference is given up.
        unsafe {
            element.fill(Layout::Split, b"", b"new");
            pair.partition.publish(element);
        }
        assert_eq!(pair.partition.get(hash, &key), Some(&b"new"[..]));
    }
}

/// Two byte keys with one ID are two keys.
#[test]
fn keys_with_the_same_id_are_kept_apart() {
    /// Everything collides.
    #[derive(Clone, Default)]
    struct Zero;
    impl std::hash::Hasher for Zero {
        fn finish(&self) -> u64 {
            0
        }
        fn write(&mut self, _: &[u8]) {}
    }
    let identifier = Identifier::new(std::hash::BuildHasherDefault::<Zero>::default());
    let mut pair = Pair::new(1, 4096, Eviction::Lru, Layout::Packed);
    let hash = pair.partition.mixer.mix(0);
    let keys = [
        Key::from("one"),
        Key::from("two"),
        Key::from(""),
        Key::from(0),
    ];
    for (value, key) in (0u8..).zip(keys) {
        let key = identifier.identify(key).unwrap();
        assert_eq!(key.id, 0);
        pair.partition.insert(hash, &key, &[value]).unwrap();
        pair.partition.insert(hash, &key, &[value; 40]).unwrap();
    }
    for (value, key) in (0u8..).zip(keys) {
        let key = identifier.identify(key).unwrap();
        assert_eq!(pair.partition.get(hash, &key), Some(&[value; 40][..]));
    }
    assert_eq!(pair.partition.stats().elements, 4);
    for key in keys {
        assert!(
            pair.partition
                .remove(hash, &identifier.identify(key).unwrap())
        );
    }
    assert_eq!(pair.partition.stats().used_bytes, 0);
}

/// Null pointers, of which the last one's page was never used, and no memory for too many.
#[test]
fn buckets_are_empty_or_refused() {
    for count in [1, 2, 1 << 20] {
        let buckets = empty_buckets(count).unwrap();
        assert_eq!(buckets.len(), count);
        assert!(buckets.iter().all(|head| head.is_null()));
    }
    assert!(empty_buckets(usize::MAX / 4).is_none());
}
