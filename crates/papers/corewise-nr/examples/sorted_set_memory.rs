//! Prints the bytes that a sorted set requests for a member, in all: record, index and tree.
//!
//! ```sh
//! cargo run --release -p corewise-nr --example sorted_set_memory -- \
//!     [all|sequence|random|integers] [MEMBERS]
//! ```
//!
//! Members of 20 bytes are added with ascending scores and with random ones. Members that are
//! decimal numbers below twice the number of members are added with random scores; then as many
//! times as there are members one leaves and another one comes, and as many scores change.

use corewise_nr::SortedSet;
use corewise_nr::sorted_set::Direction;

/// The next number of a xorshift generator.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn print(name: &str, set: &SortedSet) {
    let bytes = set.memory() as f64 / set.len() as f64;
    println!("{name:<44} {bytes:>5.1}");
}

fn add(set: &mut SortedSet, member: &[u8], score: f64) {
    set.insert(member, score).expect("a number, and room");
}

/// Members of 20 bytes, with the scores that `score` returns.
fn twenty_bytes(members: u64, mut score: impl FnMut(u64) -> f64) -> SortedSet {
    let mut set = SortedSet::new();
    for number in 0..members {
        add(&mut set, format!("{number:020}").as_bytes(), score(number));
    }
    set
}

/// Members that are decimal numbers, before and after as many exchanges and changes of scores as
/// there are members.
fn integers(members: u64, mut score: impl FnMut() -> f64) {
    let mut state = 1;
    let mut number = move || (next(&mut state) % (2 * members)).to_string();
    let mut set = SortedSet::new();
    while (set.len() as u64) < members {
        add(&mut set, number().as_bytes(), score());
    }
    print("integers, random scores", &set);
    for _ in 0..members {
        while set.remove(number().as_bytes()).is_none() {}
        while (set.len() as u64) < members {
            add(&mut set, number().as_bytes(), score());
        }
        let rank = (score() * members as f64) as usize;
        let (member, _) = set.at(rank, Direction::Ascending).expect("a rank");
        let member = member.to_vec();
        add(&mut set, &member, score());
    }
    print("integers, random scores, after churn", &set);
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_else(|| "all".into());
    let members = arguments.next().map_or(5_000_000, |text| {
        let number = text.parse().ok().filter(|number: &u64| *number > 1);
        number.unwrap_or_else(|| {
            eprintln!("{text} is no number of members");
            std::process::exit(2)
        })
    });
    println!("bytes a member, of {members}");
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let mut score = move || next(&mut state) as f64 / u64::MAX as f64;
    let is_wanted = |line: &str| what == line || what == "all";
    if is_wanted("sequence") {
        let set = twenty_bytes(members, |number| number as f64);
        print("20 bytes, ascending scores", &set);
    }
    if is_wanted("random") {
        let mut set = twenty_bytes(members, |_| score());
        print("20 bytes, random scores", &set);
        while set.len() as u64 > members / 2 {
            let rank = (score() * set.len() as f64) as usize;
            let (member, _) = set.at(rank, Direction::Ascending).expect("a rank");
            let member = member.to_vec();
            set.remove(&member);
        }
        print("20 bytes, random scores, half was removed", &set);
    }
    if is_wanted("integers") {
        integers(members, score);
    }
}
