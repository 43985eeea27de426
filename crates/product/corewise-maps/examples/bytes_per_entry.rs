//! Measures the bytes of buckets per entry of two words while a map grows by itself, for each table
//! with entries in place.
//!
//! ```text
//! cargo run --release -p corewise-maps --example bytes_per_entry -- [FEWEST] [MOST]
//! ```
//!
//! The map grows from 2^16 to 2^22 entries, or between other powers of two, and is measured 32
//! times per doubling. The output is the minimum, the median and the maximum. The maximum is
//! reached while two tables exist. The maps count the bytes ([`CopyMap::bytes`]), whether the
//! memory was ever touched or not.

use corewise_maps::clht::LockBasedTable;
use corewise_maps::copy_map::{CopyMap, Table};
use corewise_maps::cuckoo::CuckooTable;

type Grow = fn(u32, u32) -> Vec<f64>;

/// The measured values in ascending order.
fn grow<T: Table<Key = u64, Value = u64>>(fewest: u32, most: u32) -> Vec<f64> {
    let map = CopyMap::<T>::new();
    let mut seen = Vec::new();
    for key in 0..1u64 << most {
        map.pin().insert(key, key);
        let entries = key + 1;
        let step = (entries.next_power_of_two() / 64).max(1);
        if entries > 1 << fewest && entries.is_multiple_of(step) {
            map.settle();
            seen.push(map.bytes() as f64 / entries as f64);
        }
    }
    seen.sort_by(f64::total_cmp);
    seen
}

fn main() {
    let mut powers = std::env::args().skip(1).map(|arg| {
        let power = arg.parse().ok().filter(|power| *power < 40);
        power.unwrap_or_else(|| {
            eprintln!("{arg} is no power of two below 40");
            std::process::exit(2)
        })
    });
    let fewest = powers.next().unwrap_or(16);
    let most = powers.next().unwrap_or(22).max(fewest + 1);
    println!("bytes of buckets an entry, from 2^{fewest} to 2^{most} entries");
    println!(
        "{:<12} {:>6} {:>6} {:>6}",
        "table", "least", "median", "most"
    );
    let tables: [(&str, Grow); 2] = [
        ("clht-lb", grow::<LockBasedTable<u64, u64>>),
        ("cuckoo", grow::<CuckooTable<u64, u64>>),
    ];
    for (name, grow) in tables {
        let seen = grow(fewest, most);
        let (least, median, most) = (seen[0], seen[seen.len() / 2], seen[seen.len() - 1]);
        println!("{name:<12} {least:>6.1} {median:>6.1} {most:>6.1}");
    }
}
