//! Measures `SortedSet` beside the data structures of Redis 7: memory, and operations in a second.
//!
//! `cargo run --release -p corewise-nr --example sorted_set [MEMBERS [OPERATIONS]]`
//!
//! The rival has the algorithms of Redis 7: a hash table, and a skip list with spans (p = 1/4, 32
//! levels) that updates a score in its place if the neighbours allow it. It is kinder to the
//! skip list than Redis is: nodes lie in one array with links of 32 bits, and the hash table is
//! `hashbrown`'s. Both are called directly, without a protocol. Members have 16 bytes.
//!
//! Each figure is the median of nine rounds in which the two alternate, in operations for a second
//! of CPU time.

use std::hint::black_box;
use std::time::Instant;

use corewise_nr::sorted_set::{Direction, SortedSet};
use rival::SkipListSet;

const ROUNDS: usize = 9;

/// Redis's sorted set, as far as it is measured.
mod rival {
    use std::cmp::Ordering;

    use foldhash::fast::RandomState;
    use hashbrown::HashMap;

    const MAX_LEVEL: usize = 32;
    /// Words of a node before its links: score, member.
    const HEADER: usize = 2;

    /// Nodes are runs of words: score bits, index of the member, then a link for each level, with
    /// the offset of the next node in the upper half and the span in the lower one. The head is at
    /// offset 0, which also stands for the end.
    pub(super) struct SkipListSet {
        words: Vec<u64>,
        members: Vec<Box<[u8]>>,
        nodes: HashMap<Box<[u8]>, u32, RandomState>,
        free: Vec<Vec<u32>>,
        level: usize,
        len: usize,
        random: u64,
    }

    type Path = ([usize; MAX_LEVEL], [usize; MAX_LEVEL]);

    impl SkipListSet {
        pub(super) fn new() -> Self {
            Self {
                words: vec![0; HEADER + MAX_LEVEL],
                members: Vec::new(),
                nodes: HashMap::default(),
                free: vec![Vec::new(); MAX_LEVEL + 1],
                level: 1,
                len: 0,
                random: 0x9e37_79b9_7f4a_7c15,
            }
        }

        fn next(&self, node: usize, level: usize) -> usize {
            (self.words[node + HEADER + level] >> 32) as usize
        }

        fn span(&self, node: usize, level: usize) -> usize {
            self.words[node + HEADER + level] as u32 as usize
        }

        fn link(&mut self, node: usize, level: usize, next: usize, span: usize) {
            self.words[node + HEADER + level] = (next as u64) << 32 | span as u64;
        }

        fn score(&self, node: usize) -> f64 {
            f64::from_bits(self.words[node])
        }

        fn member(&self, node: usize) -> &[u8] {
            &self.members[self.words[node + 1] as usize]
        }

        fn compare(&self, node: usize, score: f64, member: &[u8]) -> Ordering {
            let by_score = self.score(node).total_cmp(&score);
            by_score.then_with(|| self.member(node).cmp(member))
        }

        /// The last node before a place on each level, and its rank.
        fn path(&self, score: f64, member: &[u8]) -> Path {
            let (mut path, mut ranks) = ([0; MAX_LEVEL], [0; MAX_LEVEL]);
            let (mut node, mut rank) = (0, 0);
            for level in (0..self.level).rev() {
                loop {
                    let next = self.next(node, level);
                    if next == 0 || self.compare(next, score, member).is_ge() {
                        break;
                    }
                    rank += self.span(node, level);
                    node = next;
                }
                (path[level], ranks[level]) = (node, rank);
            }
            (path, ranks)
        }

        fn random_level(&mut self) -> usize {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let zeros = self.random.trailing_zeros() as usize / 2;
            (zeros + 1).min(MAX_LEVEL)
        }

        fn link_in(&mut self, score: f64, index: u64) -> usize {
            let level = self.random_level();
            let member = std::mem::take(&mut self.members[index as usize]);
            let (mut path, mut ranks) = self.path(score, &member);
            self.members[index as usize] = member;
            for new in self.level..level {
                (path[new], ranks[new]) = (0, 0);
                self.link(0, new, 0, self.len);
            }
            self.level = self.level.max(level);
            let node = self.free[level]
                .pop()
                .map_or(self.words.len(), |node| node as usize);
            self.words
                .resize(self.words.len().max(node + HEADER + level), 0);
            self.words[node] = score.to_bits();
            self.words[node + 1] = index;
            for at in 0..self.level {
                let (next, span) = (self.next(path[at], at), self.span(path[at], at));
                if at < level {
                    let before = ranks[0] - ranks[at];
                    self.link(node, at, next, span - before.min(span));
                    self.link(path[at], at, node, before + 1);
                } else {
                    self.link(path[at], at, next, span + 1);
                }
            }
            self.len += 1;
            node
        }

        fn link_out(&mut self, node: usize, path: &Path) {
            let mut height = 0;
            for at in 0..self.level {
                let previous = path.0[at];
                let (next, span) = (self.next(previous, at), self.span(previous, at));
                if next == node {
                    height += 1;
                    let (next, own) = (self.next(node, at), self.span(node, at));
                    self.link(previous, at, next, span + own - 1);
                } else {
                    self.link(previous, at, next, span.saturating_sub(1));
                }
            }
            self.free[height].push(node as u32);
            self.len -= 1;
        }

        pub(super) fn insert(&mut self, member: &[u8], score: f64) {
            assert!(
                !self.nodes.contains_key(member),
                "members are inserted once"
            );
            self.members.push(member.into());
            let node = self.link_in(score, self.members.len() as u64 - 1);
            self.nodes.insert(member.into(), node as u32);
        }

        pub(super) fn rank(&self, member: &[u8]) -> Option<usize> {
            let &node = self.nodes.get(member)?;
            Some(self.path(self.score(node as usize), member).1[0])
        }

        pub(super) fn at(&self, rank: usize) -> Option<(&[u8], f64)> {
            let (mut node, mut traversed) = (0, 0);
            for level in (0..self.level).rev() {
                while self.next(node, level) != 0 && traversed + self.span(node, level) <= rank + 1
                {
                    traversed += self.span(node, level);
                    node = self.next(node, level);
                }
                if traversed == rank + 1 {
                    return Some((self.member(node), self.score(node)));
                }
            }
            None
        }

        pub(super) fn increment(&mut self, member: &[u8], delta: f64) -> f64 {
            let node = self.nodes[member] as usize;
            let old = self.score(node);
            let new = old + delta;
            let path = self.path(old, member);
            let (previous, next) = (path.0[0], self.next(node, 0));
            let stays = (previous == 0 || self.score(previous) < new)
                && (next == 0 || self.score(next) > new);
            if stays {
                self.words[node] = new.to_bits();
            } else {
                let index = self.words[node + 1];
                self.link_out(node, &path);
                let node = self.link_in(new, index);
                *self.nodes.get_mut(member).unwrap() = node as u32;
            }
            new
        }
    }
}

/// The number as 16 hexadecimal digits.
fn name(number: usize) -> [u8; 16] {
    std::array::from_fn(|at| b"0123456789abcdef"[number >> (60 - 4 * at) & 15])
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % bound as u64) as usize
    }
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}

/// The CPU time of this thread in seconds, or wall time where the system does not tell it.
fn cpu_seconds(start: Instant) -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text
        .split(' ')
        .next()
        .and_then(|number| number.parse::<f64>().ok());
    nanoseconds.map_or(start.elapsed().as_secs_f64(), |time| time / 1e9)
}

/// Millions of calls in a second of CPU time.
fn speed(operations: usize, mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    let before = cpu_seconds(start);
    for _ in 0..operations {
        call();
    }
    operations as f64 / (cpu_seconds(start) - before) / 1e6
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints the medians of both, and that of the ratios of the rounds.
fn row(name: &str, mut round: impl FnMut() -> (f64, f64)) {
    let rounds: Vec<(f64, f64)> = (0..ROUNDS).map(|_| round()).collect();
    let ours = median(rounds.iter().map(|round| round.0).collect());
    let rival = median(rounds.iter().map(|round| round.1).collect());
    let ratio = median(rounds.iter().map(|round| round.0 / round.1).collect());
    println!("{name:<28} {ours:>10.3} {rival:>12.3} {ratio:>8.2}");
}

fn compare(members: usize, operations: usize, equal_scores: bool) {
    let kind = if equal_scores {
        "equal scores"
    } else {
        "different scores"
    };
    println!("\n{members} members, {kind}");
    let mut random = Random(88_172_645_463_325_252);
    let scores: Vec<f64> = (0..members)
        .map(|_| {
            if equal_scores {
                0.0
            } else {
                random.below(16 * members) as f64
            }
        })
        .collect();
    let before = resident_bytes();
    let mut set = SortedSet::new();
    for (number, score) in scores.iter().enumerate() {
        set.insert(&name(number), *score).expect("a number");
    }
    let resident = resident_bytes().saturating_sub(before) as f64 / members as f64;
    let requested = set.bytes() as f64 / members as f64;
    println!("bytes a member: {requested:.1} requested, {resident:.1} resident");
    let mut rival = SkipListSet::new();
    for (number, score) in scores.iter().enumerate() {
        rival.insert(&name(number), *score);
    }
    println!(
        "{:<28} {:>10} {:>12} {:>8}",
        "", "M ops/s", "skip list", "ratio"
    );
    compare_reads(&set, &rival, operations, &mut random);
    compare_writes(&mut set, &mut rival, operations, &mut random);
    for rank in (0..members).step_by(members / 100 + 1) {
        let name = name(rank);
        assert_eq!(set.rank(&name, Direction::Ascending), rival.rank(&name));
        let entry = rival.at(rank).expect("the rank of a member");
        assert_eq!(set.at(rank, Direction::Ascending), Some(entry));
    }
}

fn compare_reads(set: &SortedSet, rival: &SkipListSet, operations: usize, random: &mut Random) {
    let members = set.len();
    row("rank", || {
        let mut member = || name(random.below(members));
        let ours = speed(operations, || {
            black_box(set.rank(&member(), Direction::Ascending));
        });
        let theirs = speed(operations, || {
            black_box(rival.rank(&member()));
        });
        (ours, theirs)
    });
    row("member of a rank", || {
        let mut rank = || random.below(members);
        let ours = speed(operations, || {
            black_box(set.at(rank(), Direction::Ascending));
        });
        let theirs = speed(operations, || {
            black_box(rival.at(rank()));
        });
        (ours, theirs)
    });
}

fn compare_writes(
    set: &mut SortedSet,
    rival: &mut SkipListSet,
    operations: usize,
    random: &mut Random,
) {
    let members = set.len();
    for (title, most) in [
        ("increment by 1", 1),
        ("increment to any place", 16 * members),
    ] {
        row(title, || {
            // The same sequence for both, so that they stay equal.
            let seed = random.below(usize::MAX) as u64 | 1;
            let step = |random: &mut Random| {
                let sign = if random.below(2) == 0 { 1.0 } else { -1.0 };
                (
                    random.below(members),
                    sign * (1 + random.below(most)) as f64,
                )
            };
            let mut steps = Random(seed);
            let ours = speed(operations, || {
                let (number, delta) = step(&mut steps);
                black_box(set.increment(&name(number), delta)).expect("a number");
            });
            let mut steps = Random(seed);
            let theirs = speed(operations, || {
                let (number, delta) = step(&mut steps);
                black_box(rival.increment(&name(number), delta));
            });
            (ours, theirs)
        });
    }
}

/// Runs each configuration in a new process, so that none uses memory that another has freed.
fn main() {
    let arguments: Vec<usize> = std::env::args()
        .skip(1)
        .map(|argument| {
            argument
                .parse()
                .expect("MEMBERS and OPERATIONS are numbers")
        })
        .collect();
    if let [members, operations, equal_scores] = arguments[..] {
        return compare(members, operations, equal_scores == 1);
    }
    let sizes = arguments
        .first()
        .map_or(vec![10_000, 1_000_000], |&members| vec![members.max(1)]);
    let operations = arguments.get(1).copied().unwrap_or(100_000).max(1);
    let program = std::env::current_exe().expect("the path of this program");
    for size in sizes {
        for equal_scores in [0, 1] {
            let arguments = [size, operations, equal_scores].map(|argument| argument.to_string());
            let status = std::process::Command::new(&program)
                .args(arguments)
                .status();
            assert!(status.expect("this program runs").success());
        }
    }
}
