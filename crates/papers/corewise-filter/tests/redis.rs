//! The filter of RedisBloom: what RedisBloom answered, and large filters.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use corewise_filter::redis::{
    AddError, CuckooSettings, RedisCuckoo, STEP_WORK, WhileCompacting, item_hash,
};
use corewise_testkit::random::fewer;

const RECORDED: &str = include_str!("data/redisbloom-2.8.2.txt");

fn settings(numbers: [u64; 4]) -> CuckooSettings {
    let [capacity, bucket_slots, max_iterations, expansion] = numbers;
    CuckooSettings {
        capacity,
        bucket_slots: bucket_slots as u16,
        max_iterations: max_iterations as u16,
        expansion: expansion as u16,
    }
}

fn new(numbers: [u64; 4]) -> RedisCuckoo {
    RedisCuckoo::new(settings(numbers), &mut |_| true).unwrap()
}

fn add(filter: &RedisCuckoo, hash: u64) -> Result<(), AddError> {
    filter.add(hash, WhileCompacting::Refuse, &mut |_| true)
}

fn remove(filter: &RedisCuckoo, hash: u64) -> bool {
    let removal = filter.remove(hash, WhileCompacting::Refuse).unwrap();
    while filter.compact_step(STEP_WORK) {
        assert!(removal.must_compact);
    }
    removal.is_removed
}

/// The header, and the slots of all chunks of this size.
fn dump(filter: &RedisCuckoo, max_chunk: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut header, mut slots) = (Vec::new(), Vec::new());
    let chunk = |iterator, out: &mut Vec<u8>| {
        filter
            .dump(iterator, max_chunk, WhileCompacting::Refuse, out)
            .unwrap()
    };
    let mut iterator = chunk(0, &mut header);
    while iterator != 0 {
        iterator = chunk(iterator, &mut slots);
    }
    (header, slots)
}

fn load(header: &[u8], slots: &[u8], max_chunk: usize) -> RedisCuckoo {
    let filter = RedisCuckoo::from_header(header, &mut |_| true).unwrap();
    let info = filter.info(WhileCompacting::Refuse).unwrap();
    let mut rest = slots;
    let mut iterator = 1;
    for index in 0..info.subfilters as u32 {
        let growth = u64::from(info.expansion).pow(index);
        let size = info.buckets * u64::from(info.bucket_slots) * growth;
        let (subfilter, others) = rest.split_at(size as usize);
        for chunk in subfilter.chunks(max_chunk) {
            iterator += chunk.len() as i64;
            filter
                .load_chunk(iterator, chunk, WhileCompacting::Refuse)
                .unwrap();
        }
        rest = others;
    }
    assert!(rest.is_empty());
    filter
}

fn hash_of_number(number: u64) -> u64 {
    let text = number.to_string();
    item_hash(text.repeat(number as usize % 4 + 1).as_bytes())
}

fn from_hex(text: &str) -> Vec<u8> {
    if text == "-" {
        return Vec::new();
    }
    let pairs = text.as_bytes().chunks(2);
    let digits = pairs.map(|pair| std::str::from_utf8(pair).unwrap());
    digits
        .map(|digits| u8::from_str_radix(digits, 16).unwrap())
        .collect()
}

fn add_reply(result: Result<bool, AddError>) -> String {
    match result {
        Ok(is_added) => u8::from(is_added).to_string(),
        Err(AddError::Full) => "full".to_owned(),
        Err(AddError::MaxSubfilters) => "max".to_owned(),
        Err(error) => panic!("{error}"),
    }
}

/// The answer to a recorded command about an item.
fn answer(filter: &RedisCuckoo, command: &str, hash: u64) -> String {
    let (refuse, may) = (WhileCompacting::Refuse, &mut |_| true);
    match command {
        "add" => add_reply(filter.add(hash, refuse, may).map(|()| true)),
        "addnx" => add_reply(filter.add_nx(hash, refuse, may)),
        "del" => u8::from(remove(filter, hash)).to_string(),
        "count" => filter.count(hash).to_string(),
        "exists" => u8::from(filter.contains(hash)).to_string(),
        _ => panic!("{command} is unknown"),
    }
}

fn info_words(filter: &RedisCuckoo) -> String {
    let info = filter.info(WhileCompacting::Refuse).unwrap();
    let first = [info.size, info.buckets, info.subfilters, info.items];
    let rest = [info.bucket_slots, info.expansion, info.max_iterations];
    let words = first.into_iter().chain([info.deletions]);
    let words = words.chain(rest.map(u64::from));
    let words: Vec<String> = words.map(|word| word.to_string()).collect();
    words.join(" ")
}

#[test]
fn redisbloom_has_answered_the_same_and_has_the_same_bytes() {
    let mut filter = new([2, 1, 1, 1]);
    let lines = (1..).zip(RECORDED.lines());
    let lines = lines.filter(|(_, line)| !line.starts_with('#'));
    let calls = lines.flat_map(|(number, line)| line.split("; ").map(move |call| (number, call)));
    let mut dumps = 0;
    for (number, call) in calls {
        let words: Vec<&str> = call.split(' ').collect();
        match words[..] {
            ["reserve", ref numbers @ ..] => {
                let numbers: Vec<u64> = numbers.iter().map(|text| text.parse().unwrap()).collect();
                filter = new(numbers.try_into().unwrap());
            }
            ["compact"] => {
                filter.start_compaction().unwrap();
                while filter.compact_step(1) {}
            }
            ["info", ..] => assert_eq!(call, format!("info {}", info_words(&filter)), "{number}"),
            ["dump", header, slots] => {
                let expected = (from_hex(header), from_hex(slots));
                assert!(dump(&filter, 16 << 20) == expected, "line {number}");
                if !expected.0.is_empty() {
                    assert!(dump(&load(&expected.0, &expected.1, 7), 5) == expected);
                }
                dumps += 1;
            }
            [command, item, reply] => {
                let hash = hash_of_number(item.parse().unwrap());
                assert_eq!(
                    answer(&filter, command, hash),
                    reply,
                    "line {number}: {call}"
                );
            }
            _ => panic!("line {number} is unknown: {call}"),
        }
    }
    assert!(dumps > 30);
}

/// Subfilters of more than one piece of memory, and chunks that end anywhere.
#[test]
fn a_filter_of_several_pieces_is_dumped_and_compacted_in_steps() {
    let items = fewer(1 << 19);
    let filter = new([items, 3, 20, 2]);
    let hash = |n: u64| item_hash(&n.to_le_bytes());
    (0..2 * items).for_each(|n| add(&filter, hash(n)).unwrap());
    assert!(filter.bytes() > 2 * items);
    let (header, slots) = dump(&filter, 1_000_003);
    for max_chunk in [16 << 20, 77_777] {
        let loaded = load(&header, &slots, max_chunk);
        assert!((0..2 * items).all(|n| loaded.contains(hash(n))));
        assert!(dump(&loaded, 16 << 20) == (header.clone(), slots.clone()));
    }
    let mut began = false;
    for n in items / 2..2 * items {
        let removal = filter.remove(hash(n), WhileCompacting::Refuse).unwrap();
        assert!(removal.is_removed);
        if removal.must_compact {
            began = true;
            assert!(filter.is_compacting() && add(&filter, 0) == Err(AddError::Busy));
            assert!(filter.contains(hash(n % (items / 2))));
            while filter.compact_step(1_000) {}
        }
    }
    assert!(began && !filter.is_compacting());
    assert!((0..items / 2).all(|n| filter.contains(hash(n))));
    let mut memory = filter.into_memory();
    while memory.free_some(1) {}
}

/// A copy, also of a filter that is being compacted, is another filter with the same bytes.
#[test]
fn a_copy_has_the_same_bytes_and_goes_on_alone() {
    let filter = new([64, 2, 20, 2]);
    let hash = |n: u64| item_hash(&n.to_le_bytes());
    (0..2_000).for_each(|n| add(&filter, hash(n)).unwrap());
    filter.start_compaction().unwrap();
    filter.compact_step(1);
    let copy = filter.try_clone().unwrap();
    assert!(copy.is_compacting() && filter.is_compacting());
    while copy.compact_step(STEP_WORK) {}
    assert!(filter.is_compacting());
    while filter.compact_step(STEP_WORK) {}
    assert!(dump(&copy, 1 << 20) == dump(&filter, 1 << 20));
    assert!((0..2_000).all(|n| remove(&copy, hash(n))));
    assert!((0..2_000).all(|n| filter.contains(hash(n))));
    let (mut memory, bytes) = (filter.into_memory(), copy.bytes());
    memory.append(copy.into_memory());
    let left = memory.bytes();
    assert!(left > 0 && bytes > 0);
    assert!(!memory.free_some(1 << 10));
    assert_eq!(memory.bytes(), 0);
}
