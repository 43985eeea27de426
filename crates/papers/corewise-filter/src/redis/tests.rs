//! The filter beside one that is written the plain way, by one thread.

use super::*;
use crate::testing::{Random, times};

const REFUSE: WhileCompacting = WhileCompacting::Refuse;
const PROCEED: WhileCompacting = WhileCompacting::Proceed;

/// The most slots of a subfilter that the tests permit.
const MOST_SLOTS: usize = 1 << 13;

fn no_bound() -> impl FnMut(u64) -> bool {
    |_| true
}

/// The permission for a subfilter of [`MOST_SLOTS`].
fn bound() -> impl FnMut(u64) -> bool {
    let size = SubfilterSize {
        buckets: MOST_SLOTS as u64,
        bucket_slots: 1,
    };
    move |bytes| bytes <= size.bytes().unwrap()
}

/// RedisBloom's filter: swaps are made at once, and made again in the other direction.
#[derive(Clone, Debug, PartialEq)]
struct PlainFilter {
    subfilters: Vec<Vec<u8>>,
    buckets: u64,
    bucket_slots: usize,
    max_iterations: u16,
    expansion: u64,
    items: u64,
    deletions: u64,
}

impl PlainFilter {
    fn new(settings: CuckooSettings) -> Self {
        let slots = u64::from(settings.bucket_slots);
        let expansion = u64::from(settings.expansion);
        let mut filter = Self {
            subfilters: Vec::new(),
            buckets: (settings.capacity / slots).next_power_of_two(),
            bucket_slots: slots as usize,
            max_iterations: settings.max_iterations,
            expansion: if expansion == 0 {
                0
            } else {
                expansion.next_power_of_two()
            },
            items: 0,
            deletions: 0,
        };
        filter.grow().unwrap();
        filter
    }

    fn grow(&mut self) -> Result<(), AddError> {
        let growth = self.expansion.checked_pow(self.subfilters.len() as u32);
        let buckets = growth.and_then(|growth| self.buckets.checked_mul(growth));
        let slots = buckets.and_then(|buckets| buckets.checked_mul(self.bucket_slots as u64));
        let slots = slots.filter(|slots| *slots <= MOST_SLOTS as u64);
        let slots = slots.ok_or(AddError::NoMemory)?;
        self.subfilters.push(vec![0; slots as usize]);
        Ok(())
    }

    /// The slots of a bucket, in a subfilter.
    fn bucket(&self, subfilter: usize, number: u64) -> std::ops::Range<usize> {
        let buckets = self.subfilters[subfilter].len() / self.bucket_slots;
        let first = (number % buckets as u64) as usize * self.bucket_slots;
        first..first + self.bucket_slots
    }

    fn both(hash: u64) -> (u8, [u64; 2]) {
        let fingerprint = (hash % 255 + 1) as u8;
        let other = hash ^ (u64::from(fingerprint) * 0x5bd1_e995);
        (fingerprint, [hash, other])
    }

    fn position(&self, subfilter: usize, buckets: [u64; 2], value: u8) -> Option<usize> {
        let mut slots = buckets
            .into_iter()
            .flat_map(|bucket| self.bucket(subfilter, bucket));
        slots.find(|&slot| self.subfilters[subfilter][slot] == value)
    }

    fn count(&self, hash: u64) -> u64 {
        let (fingerprint, buckets) = Self::both(hash);
        let mut count = 0;
        for subfilter in 0..self.subfilters.len() {
            for slot in buckets
                .into_iter()
                .flat_map(|bucket| self.bucket(subfilter, bucket))
            {
                count += u64::from(self.subfilters[subfilter][slot] == fingerprint);
            }
        }
        count
    }

    fn kick(&mut self, fingerprint: u8, buckets: [u64; 2]) -> bool {
        let newest = self.subfilters.len() - 1;
        let (mut fingerprint, mut bucket, mut victim) = (fingerprint, buckets[0], 0);
        let mut swapped = Vec::new();
        for _ in 0..self.max_iterations {
            let slot = self.bucket(newest, bucket).start + victim;
            std::mem::swap(&mut fingerprint, &mut self.subfilters[newest][slot]);
            swapped.push(slot);
            bucket ^= u64::from(fingerprint) * 0x5bd1_e995;
            if let Some(free) = self.position(newest, [bucket; 2], 0) {
                self.subfilters[newest][free] = fingerprint;
                return true;
            }
            victim = (victim + 1) % self.bucket_slots;
        }
        for slot in swapped.into_iter().rev() {
            std::mem::swap(&mut fingerprint, &mut self.subfilters[newest][slot]);
        }
        false
    }

    fn add(&mut self, hash: u64) -> Result<(), AddError> {
        if self.subfilters.len() == MAX_SUBFILTERS {
            return Err(AddError::MaxSubfilters);
        }
        let (fingerprint, buckets) = Self::both(hash);
        loop {
            for subfilter in (0..self.subfilters.len()).rev() {
                if let Some(slot) = self.position(subfilter, buckets, 0) {
                    self.subfilters[subfilter][slot] = fingerprint;
                    self.items = self.items.saturating_add(1);
                    return Ok(());
                }
            }
            if self.kick(fingerprint, buckets) {
                self.items = self.items.saturating_add(1);
                return Ok(());
            }
            if self.expansion == 0 {
                return Err(AddError::Full);
            }
            self.grow()?;
        }
    }

    fn add_nx(&mut self, hash: u64) -> Result<bool, AddError> {
        if self.subfilters.len() < MAX_SUBFILTERS && self.count(hash) > 0 {
            return Ok(false);
        }
        self.add(hash).map(|()| true)
    }

    fn remove(&mut self, hash: u64) -> bool {
        let (fingerprint, buckets) = Self::both(hash);
        for subfilter in (0..self.subfilters.len()).rev() {
            if let Some(slot) = self.position(subfilter, buckets, fingerprint) {
                self.subfilters[subfilter][slot] = 0;
                self.items = self.items.saturating_sub(1);
                self.deletions = self.deletions.saturating_add(1);
                if self.subfilters.len() > 1 && self.deletions as f64 > self.items as f64 * 0.1 {
                    self.compact(false);
                }
                return true;
            }
        }
        false
    }

    fn compact(&mut self, goes_on: bool) {
        for subfilter in (1..self.subfilters.len()).rev() {
            let mut keeps = false;
            for slot in 0..self.subfilters[subfilter].len() {
                let fingerprint = self.subfilters[subfilter][slot];
                if fingerprint == 0 {
                    continue;
                }
                let bucket = (slot / self.bucket_slots) as u64;
                let buckets = [bucket, bucket ^ (u64::from(fingerprint) * 0x5bd1_e995)];
                let mut older = 0..subfilter;
                let free = older.find_map(|older| Some((older, self.position(older, buckets, 0)?)));
                if let Some((older, free)) = free {
                    self.subfilters[older][free] = fingerprint;
                    self.subfilters[subfilter][slot] = 0;
                } else {
                    keeps = true;
                }
            }
            if !keeps && subfilter + 1 == self.subfilters.len() {
                self.subfilters.pop();
            } else if keeps && !goes_on {
                break;
            }
        }
        self.deletions = 0;
    }

    fn header(&self) -> Vec<u8> {
        let wide = [
            self.items,
            self.buckets,
            self.deletions,
            self.subfilters.len() as u64,
        ];
        let narrow = [
            self.bucket_slots as u16,
            self.max_iterations,
            self.expansion as u16,
        ];
        let mut bytes: Vec<u8> = wide.into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.extend(narrow.into_iter().flat_map(u16::to_le_bytes));
        bytes
    }
}

/// The header, and the slots of all chunks.
fn dump(filter: &RedisCuckoo, max_chunk: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut header, mut slots) = (Vec::new(), Vec::new());
    let chunk =
        |iterator, out: &mut Vec<u8>| filter.dump(iterator, max_chunk, REFUSE, out).unwrap();
    let mut iterator = chunk(0, &mut header);
    while iterator != 0 {
        let before = slots.len();
        iterator = chunk(iterator, &mut slots);
        assert!(slots.len() - before <= max_chunk);
        assert_eq!(iterator != 0, slots.len() > before);
    }
    (header, slots)
}

fn assert_same(filter: &RedisCuckoo, plain: &PlainFilter, max_chunk: usize) {
    let (header, slots) = dump(filter, max_chunk);
    if plain.items == 0 {
        assert!(header.is_empty() && slots.is_empty());
    } else {
        assert_eq!(header, plain.header());
        assert!(slots == plain.subfilters.concat());
    }
    let info = filter.info(REFUSE).unwrap();
    let slots: usize = plain.subfilters.iter().map(Vec::len).sum();
    assert_eq!(info.size, (40 + 16 * plain.subfilters.len() + slots) as u64);
    assert_eq!((info.items, info.deletions), (plain.items, plain.deletions));
}

fn random_settings(random: &mut Random) -> CuckooSettings {
    let sizes = [1, 1, 2, 2, 3, 4, 5, 7, 8, 9, 16, 31, 255];
    let bucket_slots = sizes[random.below(sizes.len() as u64) as usize];
    let iterations = [1, 2, 20, 100, 1_000];
    CuckooSettings {
        capacity: random.below(100),
        bucket_slots,
        max_iterations: iterations[random.below(5) as usize],
        expansion: [0, 1, 1, 2, 3, 4][random.below(6) as usize],
    }
}

/// One call of both filters, and the answers.
fn call(filter: &RedisCuckoo, plain: &mut PlainFilter, random: &mut Random, hash: u64) {
    let may = &mut bound();
    match random.below(16) {
        0..7 => assert_eq!(filter.add(hash, REFUSE, may), plain.add(hash)),
        7 => assert_eq!(filter.add_nx(hash, REFUSE, may), plain.add_nx(hash)),
        8..13 => {
            let removal = filter.remove(hash, REFUSE).unwrap();
            assert_eq!(removal.is_removed, plain.remove(hash));
            assert_eq!(removal.must_compact, filter.is_compacting());
            while filter.compact_step(1) {}
        }
        13 => assert_eq!(filter.contains(hash), plain.count(hash) > 0),
        14 => assert_eq!(filter.count(hash), plain.count(hash)),
        _ if random.below(32) == 0 => {
            filter.start_compaction().unwrap();
            while filter.compact_step(random.below(9)) {
                // Reads go on. An older subfilter tells fewer items apart.
                assert!(filter.contains(hash) || plain.count(hash) == 0);
                assert!(filter.count(hash) >= plain.count(hash));
                assert_eq!(filter.add(hash, REFUSE, may), Err(AddError::Busy));
                assert_eq!(filter.info(REFUSE), Err(CompactionRuns));
                assert_eq!(filter.start_compaction(), Err(CompactionRuns));
            }
            plain.compact(true);
        }
        _ => {}
    }
}

#[test]
fn random_calls_answer_as_the_plain_filter_and_leave_its_bytes() {
    let mut random = Random::new(1);
    let (mut most_subfilters, mut refused) = (0, 0);
    for round in 0..times(300) {
        // The first round reaches the most subfilters.
        let grows_to_the_end = round == 0;
        let settings = match grows_to_the_end {
            true => CuckooSettings {
                capacity: 1,
                bucket_slots: 1,
                max_iterations: 1,
                expansion: 1,
            },
            false => random_settings(&mut random),
        };
        let filter = RedisCuckoo::new(settings, &mut no_bound()).unwrap();
        let mut plain = PlainFilter::new(settings);
        let slots = plain.subfilters[0].len() as u64;
        let hashes: Vec<u64> = (0..1 + random.below(4 * slots))
            .map(|_| random.next())
            .collect();
        let calls = match grows_to_the_end {
            true => 2_000,
            false => 200 + random.below(1_000),
        };
        for n in 0..calls {
            let hash = hashes[random.below(hashes.len() as u64) as usize];
            call(&filter, &mut plain, &mut random, hash);
            if n % 64 == 0 {
                assert_same(&filter, &plain, 1 + random.below(300) as usize);
            }
        }
        assert_same(&filter, &plain, usize::MAX);
        most_subfilters = most_subfilters.max(plain.subfilters.len());
        let is_full = plain.clone().add(random.next()).is_err();
        refused += u32::from(is_full);
    }
    assert_eq!(most_subfilters, MAX_SUBFILTERS);
    assert!(refused > 0, "{refused}");
}

/// A filter and a plain one with the same random bytes in their slots, of which no call has put any
/// there, and these numbers of items and deletions.
fn crafted(random: &mut Random, items: u64, deletions: u64) -> (RedisCuckoo, PlainFilter) {
    let sizes = [(1, 1), (2, 2), (4, 3), (16, 8), (1, 255)];
    let (buckets, bucket_slots) = sizes[random.below(5) as usize];
    let mut plain = PlainFilter::new(CuckooSettings {
        capacity: buckets * u64::from(bucket_slots),
        bucket_slots,
        max_iterations: [1, 50, u16::MAX][random.below(3) as usize],
        expansion: [1, 2][random.below(2) as usize],
    });
    for _ in 0..random.below(5) {
        plain.grow().unwrap();
    }
    (plain.items, plain.deletions) = (items, deletions);
    let free = random.below(256);
    for slot in plain.subfilters.iter_mut().flatten() {
        let value = random.next() as u8;
        *slot = if random.below(256) < free { 0 } else { value };
    }
    let filter = RedisCuckoo::from_header(&plain.header(), &mut no_bound()).unwrap();
    let mut iterator = 1;
    for slots in &plain.subfilters {
        for chunk in slots.chunks(1 + random.below(50) as usize) {
            iterator += chunk.len() as i64;
            filter.load_chunk(iterator, chunk, REFUSE).unwrap();
        }
    }
    (filter, plain)
}

#[test]
fn a_filter_with_crafted_bytes_goes_on_as_the_plain_one() {
    let mut random = Random::new(2);
    for round in 0..times(100) {
        let counts = [0, 1, 40, u64::MAX - 1, u64::MAX];
        let [items, deletions] = [0; 2].map(|_| counts[random.below(5) as usize]);
        let (filter, mut plain) = crafted(&mut random, items, deletions);
        for n in 0..300 {
            let hash = random.below(200);
            call(&filter, &mut plain, &mut random, hash);
            if n % 32 == 0 {
                assert_same(&filter, &plain, 1 + random.below(300) as usize);
            }
        }
        assert_same(&filter, &plain, 1_000 + round as usize);
    }
}

/// A header of these words and half words.
fn header_with(wide: [u64; 4], narrow: [u16; 3]) -> Vec<u8> {
    let mut bytes: Vec<u8> = wide.into_iter().flat_map(u64::to_le_bytes).collect();
    bytes.extend(narrow.into_iter().flat_map(u16::to_le_bytes));
    bytes
}

#[test]
fn headers_of_no_filter_are_refused_before_anything_is_asked() {
    let mut never = |_: u64| -> bool { panic!("memory was asked for") };
    let mut refused = |wide, narrow| {
        let header = header_with(wide, narrow);
        let error = RedisCuckoo::from_header(&header, &mut never).unwrap_err();
        assert_eq!(error, HeaderError::Content, "{wide:?} {narrow:?}");
    };
    let right = [2, 20, 1];
    for buckets in [0, 3, 6, u64::MAX, (1 << 40) + 1] {
        refused([5, buckets, 0, 1], right);
    }
    for subfilters in [0, 33, 256, 1 << 32, u64::MAX] {
        refused([5, 8, 0, subfilters], right);
    }
    for narrow in [
        [0, 20, 1],
        [256, 20, 1],
        [u16::MAX, 20, 1],
        [2, 0, 1],
        [2, 20, 3],
        [2, 20, u16::MAX],
    ] {
        refused([5, 8, 0, 1], narrow);
    }
    // It does not grow, but has grown; more slots than numbers.
    refused([5, 8, 0, 2], [2, 20, 0]);
    refused([5, 1 << 63, 0, 1], [1, 20, 1]);
    refused([5, 1 << 60, 0, 1], [255, 20, 1]);
    refused([5, 1 << 61, 0, 4], [1, 20, 1]);
    refused([5, 1 << 31, 0, 32], [2, 20, 2]);
    refused([5, 2, 0, 32], [2, 20, 1 << 15]);
    for length in [0, 1, 37, 39, 64] {
        let error = RedisCuckoo::from_header(&vec![1; length], &mut never).unwrap_err();
        assert_eq!(error, HeaderError::Length);
    }
}

#[test]
fn nothing_is_allocated_that_was_not_permitted() {
    let mut asked = 0;
    let mut refuse = |bytes| {
        asked = bytes;
        false
    };
    let header = header_with([u64::MAX, 1 << 50, u64::MAX, 3], [16, u16::MAX, 2]);
    let error = RedisCuckoo::from_header(&header, &mut refuse).unwrap_err();
    assert_eq!(error, HeaderError::NoMemory);
    let settings = CuckooSettings {
        capacity: 1 << 62,
        bucket_slots: 2,
        ..CuckooSettings::default()
    };
    let error = RedisCuckoo::new(settings, &mut refuse).unwrap_err();
    assert_eq!(error, CreateError::NoMemory);
    assert!(asked >= 1 << 62);
}

#[test]
fn settings_out_of_range_are_refused() {
    let right = CuckooSettings::default();
    let wrong = [
        CuckooSettings {
            capacity: u64::MAX,
            bucket_slots: 1,
            ..right
        },
        CuckooSettings {
            bucket_slots: 0,
            ..right
        },
        CuckooSettings {
            bucket_slots: 256,
            ..right
        },
        CuckooSettings {
            max_iterations: 0,
            ..right
        },
        CuckooSettings {
            expansion: MAX_EXPANSION + 1,
            ..right
        },
    ];
    for settings in wrong {
        let error = RedisCuckoo::new(settings, &mut no_bound()).unwrap_err();
        assert_eq!(error, CreateError::Range, "{settings:?}");
    }
    let most = CuckooSettings {
        capacity: 0,
        bucket_slots: MAX_BUCKET_SLOTS,
        max_iterations: u16::MAX,
        expansion: MAX_EXPANSION,
    };
    let filter = RedisCuckoo::new(most, &mut no_bound()).unwrap();
    assert_eq!(filter.info(REFUSE).unwrap().buckets, 1);
}

#[test]
fn chunks_that_lie_in_no_subfilter_are_refused() {
    let header = header_with([1, 4, 0, 3], [3, 20, 1]);
    let filter = RedisCuckoo::from_header(&header, &mut no_bound()).unwrap();
    let numbers = [
        i64::MIN,
        -1,
        0,
        1,
        2,
        11,
        12,
        13,
        14,
        25,
        36,
        37,
        38,
        i64::MAX,
    ];
    for iterator in numbers {
        for len in [0, 1, 2, 11, 12, 13, 24, 36, 40] {
            let loaded = filter.load_chunk(iterator, &vec![7; len], REFUSE);
            let first = iterator.checked_sub(1 + len as i64);
            let is_right = len > 0
                && first.is_some_and(|first| {
                    let end = first % 12 + len as i64;
                    (0..36).contains(&first) && end <= 12
                });
            let expected = is_right.then_some(()).ok_or(ChunkError::Place);
            assert_eq!(loaded, expected, "{iterator} {len}");
        }
        let mut out = Vec::new();
        let next = filter.dump(iterator, 5, REFUSE, &mut out).unwrap();
        assert_eq!(next > 0, !out.is_empty());
    }
}

/// Inserts different hashes until there is another subfilter, at most this many.
fn fill(filter: &RedisCuckoo, random: &mut Random, subfilters: usize) -> Vec<u64> {
    let mut hashes = Vec::new();
    while filter.in_use().count() < subfilters {
        let hash = random.next();
        filter.add(hash, REFUSE, &mut no_bound()).unwrap();
        hashes.push(hash);
    }
    hashes
}

#[test]
fn memory_is_counted_asked_for_once_and_given_back() {
    let mut random = Random::new(3);
    let mut permitted = 0;
    let mut may = |bytes: u64| {
        permitted += bytes;
        true
    };
    let filter = RedisCuckoo::new(CuckooSettings::default(), &mut may).unwrap();
    assert_eq!(filter.bytes(), permitted);
    let before = filter.bytes();
    let mut hashes = fill(&filter, &mut random, 2);
    let growth = filter.bytes() - before;
    assert_eq!(growth, filter.growth_bytes());

    // A refusal changes nothing.
    let refused = (0..10_000).find_map(|_| {
        let hash = random.next();
        let before = dump(&filter, usize::MAX);
        match filter.add(hash, REFUSE, &mut |_| false) {
            Ok(()) => hashes.push(hash),
            Err(error) => return Some((error, before)),
        }
        None
    });
    let (error, bytes) = refused.unwrap();
    assert_eq!(error, AddError::NoMemory);
    assert!(dump(&filter, usize::MAX) == bytes);
    assert_eq!(filter.bytes(), before + growth);

    // The emptied subfilter is spare, and taken again without a question.
    for hash in hashes.drain(300..) {
        assert!(filter.remove(hash, REFUSE).unwrap().is_removed);
    }
    assert_eq!(filter.in_use().count(), 1);
    assert_eq!(
        (filter.growth_bytes(), filter.bytes()),
        (0, before + growth)
    );
    while filter.in_use().count() < 2 {
        let hash = random.next();
        filter.add(hash, REFUSE, &mut |_| false).unwrap();
        hashes.push(hash);
    }
    hashes.drain(300..).for_each(|hash| {
        filter.remove(hash, REFUSE).unwrap();
    });

    let mut filter = filter;
    let mut memory = filter.take_spares();
    assert_eq!(filter.bytes(), before);
    assert!(memory.free_some(10) && !memory.free_some(1_000));
    assert!(hashes.iter().all(|hash| filter.contains(*hash)));
    assert_eq!(filter.growth_bytes(), growth);
}

/// Updates that do not wait for a compaction: no item is lost, and no subfilter that has one.
#[test]
fn updates_beside_a_compaction_lose_nothing() {
    let mut random = Random::new(4);
    let mut popped = 0;
    for _ in 0..times(200) {
        let settings = CuckooSettings {
            capacity: 64,
            bucket_slots: 1 + random.below(4) as u16,
            max_iterations: 50,
            expansion: 1 + random.below(2) as u16,
        };
        let filter = RedisCuckoo::new(settings, &mut no_bound()).unwrap();
        let mut present = fill(&filter, &mut random, 4);
        let before = filter.in_use().count();
        let wanted = present.len() / (1 + random.below(4) as usize);
        while present.len() > wanted {
            let hash = present.swap_remove(random.below(present.len() as u64) as usize);
            assert!(filter.remove(hash, PROCEED).unwrap().is_removed);
        }
        let _ = filter.start_compaction();
        while filter.compact_step(1) {
            if random.below(3) > 0 {
                let hash = random.next();
                filter.add(hash, PROCEED, &mut no_bound()).unwrap();
                present.push(hash);
            } else if !present.is_empty() {
                let hash = present.swap_remove(random.below(present.len() as u64) as usize);
                assert!(filter.remove(hash, PROCEED).unwrap().is_removed);
            }
            assert!(present.iter().all(|hash| filter.contains(*hash)));
        }
        popped += before.saturating_sub(filter.in_use().count());
        let info = filter.info(REFUSE).unwrap();
        assert_eq!(info.items, present.len() as u64);
        let slots = dump(&filter, usize::MAX).1;
        let used = slots.iter().filter(|slot| **slot != 0).count();
        assert!(used == present.len() || present.is_empty());
        // What is spare is free.
        let spares = filter.subfilters[filter.in_use().count()..].iter();
        for spare in spares.filter_map(OnceLock::get) {
            assert!((0..spare.slots()).all(|slot| spare.get(slot) == 0));
        }
        for hash in present {
            assert!(filter.remove(hash, PROCEED).unwrap().is_removed);
        }
    }
    assert!(popped > 10, "{popped}");
}

#[test]
fn slots_are_found_and_counted_in_buckets_that_cross_words_and_pieces() {
    let mut random = Random::new(5);
    for bucket_slots in 1..=255 {
        let size = SubfilterSize {
            buckets: 8,
            bucket_slots,
        };
        let subfilter = Subfilter::new(size).unwrap();
        let mut data = vec![0; subfilter.slots() as usize];
        // Bytes that differ by one carry or borrow.
        data.fill_with(|| [0, 1, 2, 0x7f, 0x80, 0x81, 0xff][random.below(7) as usize]);
        subfilter.overwrite(0, &data);
        for (number, bucket) in (0..).zip(data.chunks(bucket_slots as usize)) {
            for value in [0, 1, 2, 3, 0x7f, 0x80, 0x81, 0xfe, 0xff] {
                let place = bucket.iter().position(|slot| *slot == value);
                let place = place.map(|place| number * bucket_slots + place as u64);
                assert_eq!(subfilter.find(number, value), place);
                let count = bucket.iter().filter(|slot| **slot == value).count();
                assert_eq!(subfilter.count(number, value), count as u64);
            }
        }
        for _ in 0..20 {
            let first = random.below(subfilter.slots());
            let end = first + random.below(subfilter.slots() - first + 1);
            let range = first as usize..end as usize;
            data[range.clone()].fill(random.next() as u8);
            subfilter.overwrite(first, &data[range.clone()]);
            let mut out = Vec::new();
            subfilter.append_to(&mut out, 0, subfilter.slots());
            assert!(out == data);
            out.clear();
            subfilter.append_to(&mut out, first, end);
            assert!(out == data[range]);
        }
    }
}

/// Items with the same fingerprint and bucket: the worst that a client can send.
#[test]
fn many_look_alikes_are_refused_or_grow_the_filter_within_its_bounds() {
    for expansion in [0, 1, 2] {
        let settings = CuckooSettings {
            max_iterations: 2_000,
            expansion,
            ..CuckooSettings::default()
        };
        let filter = RedisCuckoo::new(settings, &mut no_bound()).unwrap();
        let mut plain = PlainFilter::new(settings);
        let may = &mut bound();
        let results = (0..200).map(|_| {
            let result = filter.add(7, REFUSE, may);
            assert_eq!(result, plain.add(7));
            result.is_ok()
        });
        // Four slots in each subfilter.
        let added = results.filter(|is_added| *is_added).count();
        assert_eq!(
            added,
            4 * plain.subfilters.len() - usize::from(expansion == 1) * 3
        );
        assert_same(&filter, &plain, 1_000);
    }
}
