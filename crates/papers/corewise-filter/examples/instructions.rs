//! Lookups, or pairs of a removal and an insertion, in a filter at 90 % of its slots, for counting
//! instructions: run it with two numbers of operations, and divide the difference.
//!
//! ```sh
//! cargo build --release -p corewise-filter --example instructions
//! for n in 100000 200000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!         target/release/examples/instructions 12 misses $n
//! done
//! ```

use corewise_filter::CuckooFilter;
use std::hint::black_box;

const SLOTS: usize = 1 << 18;
const ITEMS: u64 = SLOTS as u64 * 9 / 10;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [bits, what, operations] = &args[..] else {
        eprintln!("usage: instructions BITS hits|misses|pairs OPERATIONS");
        std::process::exit(2);
    };
    let number = |text: &String| text.parse::<u32>().expect("a number");
    let builder = CuckooFilter::builder().slots(SLOTS).bits(number(bits));
    let filter = builder.build().expect("1 to 32 bits");
    (0..ITEMS).for_each(|item| filter.insert(&item).expect("there is room"));
    let operations = u64::from(number(operations));
    // A prime, so that the items are all different, in an order far from theirs.
    let items = (0..operations).map(|n| black_box(n * 7_919 % ITEMS));
    let found = match what.as_str() {
        "hits" => items.filter(|item| filter.contains(item)).count(),
        "misses" => items
            .filter(|item| filter.contains(&(item + ITEMS)))
            .count(),
        "pairs" => items
            .filter(|item| filter.remove(item) && filter.insert(item).is_ok())
            .count(),
        _ => panic!("hits, misses or pairs"),
    };
    println!("{found} of {operations}");
}
