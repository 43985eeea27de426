//! Counts words on several threads, in one map: an upsert for each word.
//!
//! ```text
//! cargo run --release -p corewise-maps --example word_count
//! ```

use std::collections::HashMap;

use corewise_maps::RelativisticMap;

const TEXT: &str = "a rose is a rose is a rose, and a tulip is not a rose";
const THREADS: usize = 4;
/// How often each thread counts the text.
const TIMES: usize = 2_000;

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphabetic())
        .filter(|word| !word.is_empty())
}

fn main() {
    let counts: RelativisticMap<String, usize> = RelativisticMap::new();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..TIMES {
                    // One handle for a text: it holds up reclamation no longer than that.
                    let counts = counts.pin();
                    for word in words(TEXT) {
                        counts.update_or_insert(word.to_owned(), |count| count + 1, 1);
                    }
                }
            });
        }
    });

    let mut expected = HashMap::new();
    for word in words(TEXT) {
        *expected.entry(word.to_owned()).or_insert(0) += THREADS * TIMES;
    }
    // No thread has the map any more, so it can be taken apart.
    let counted: HashMap<String, usize> = counts.into_iter().collect();
    assert_eq!(counted, expected);

    let mut by_count: Vec<_> = counted.iter().collect();
    by_count.sort_by_key(|(word, count)| (std::cmp::Reverse(**count), *word));
    for (word, count) in by_count {
        println!("{count:6} {word}");
    }
}
