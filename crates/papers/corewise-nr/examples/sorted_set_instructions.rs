//! Operations on a sorted set of 200,000 members, for counting instructions: run it with two
//! numbers of operations, and divide the difference.
//!
//! ```sh
//! cargo build --release -p corewise-nr --example sorted_set_instructions
//! for n in 50000 100000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!         target/release/examples/sorted_set_instructions score $n
//! done
//! ```

use std::hint::black_box;
use std::time::Instant;

use corewise_nr::SortedSet;
use corewise_nr::sorted_set::{Bounds, Direction};

const MEMBERS: u64 = 200_000;

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
    let mut set = SortedSet::new();
    for number in 0..members {
        set.insert(&member(number), score(number))
            .expect("a number");
    }
    let start = Instant::now();
    let mut found = 0;
    for n in 0..operations {
        // A prime, so that the members are all different, in an order far from theirs.
        let number = black_box(n * 7_919 % members);
        let member = |number| black_box(member(number));
        let direction = Direction::Ascending;
        found += match what.as_str() {
            "add" => usize::from(set.insert(&member(members + n), score(members + n)).is_ok()),
            "remove" => usize::from(set.remove(&member(number)).is_some()),
            "score" => usize::from(set.score(&member(number)).is_some()),
            "rank" => set.rank(&member(number), direction).unwrap_or(0),
            "increment" => usize::from(set.increment(&member(number), 1e6).is_ok()),
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
