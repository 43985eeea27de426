//! Operations on a sorted set of 40,000 members, for counting instructions: run it with two
//! numbers of operations, and divide the difference.
//!
//! ```sh
//! cargo build --release -p corewise-nr --example sorted_set_instructions
//! for n in 20000 220000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!         target/release/examples/sorted_set_instructions score $n
//! done
//! ```
//!
//! The seed of the hashes differs from run to run, so a small difference is noise. The number that
//! the program prints last is the time of an operation in nanoseconds.

use std::hint::black_box;
use std::time::Instant;

use corewise_nr::SortedSet;
use corewise_nr::sorted_set::{Bounds, Direction};

const MEMBERS: u64 = 40_000;
/// The most operations.
const MOST: u64 = 400_000;

fn member(number: u64) -> [u8; 20] {
    let mut text = *b"member:0000000000000";
    let mut left = number;
    for digit in text.iter_mut().rev().take(13) {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    text
}

/// A score far from those of the neighbouring numbers.
fn score(number: u64) -> f64 {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as f64
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = args.iter().skip(1).flat_map(|text| text.parse()).collect();
    let (Some(what), Some(&operations)) = (args.first(), numbers.first()) else {
        eprintln!(
            "usage: sorted_set_instructions add|remove|score|rank|increment|range N [MEMBERS]"
        );
        std::process::exit(2);
    };
    let members = numbers.get(1).copied().unwrap_or(MEMBERS);
    let names: Vec<[u8; 20]> = (0..members + MOST).map(member).collect();
    let name = |number: u64| black_box(&names[number as usize]);
    let mut set = SortedSet::new();
    for number in 0..members {
        set.insert(name(number), score(number)).expect("a number");
    }
    let start = Instant::now();
    let mut found = 0;
    let mut number = 0;
    for n in 0..operations.min(MOST) {
        // A prime, so that the members are all different, in an order far from theirs.
        number += 7_919;
        if number >= members {
            number -= members;
        }
        let direction = Direction::Ascending;
        found += match what.as_str() {
            "add" => usize::from(set.insert(name(members + n), score(members + n)).is_ok()),
            "remove" => usize::from(set.remove(name(number)).is_some()),
            "score" => usize::from(set.score(name(number)).is_some()),
            "rank" => set.rank(name(number), direction).unwrap_or(0),
            "increment" => usize::from(set.increment(name(number), 1e6).is_ok()),
            "range" => {
                let bounds = Bounds::Rank(number as i64, number as i64 + 99);
                set.range(bounds, direction)
                    .map(|(member, _)| member.len())
                    .sum()
            }
            _ => panic!("add, remove, score, rank, increment or range"),
        };
    }
    let each = start.elapsed().as_nanos() as f64 / operations as f64;
    println!("{found} {each:.1}");
}
