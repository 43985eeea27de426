//! Budgets that change while insertions are in progress and values are referenced: once everything
//! is given up, a table keeps to its budget.

use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use corewise_cphash::{
    Anderson, CacheRequest, Client, Config, CpHash, Eviction, Key, LockHash, RawLock, Replace,
    Stats, Ttas,
};
use corewise_testkit::random::{Random, fewer};

const BUDGETS: [usize; 4] = [2 * 128, 4096, 40_000, LARGEST_BUDGET];
const LARGEST_BUDGET: usize = 300_000;
const LENGTHS: [usize; 5] = [3, 200, 2000, 9000, LONGEST];
const LONGEST: usize = 50_000;

/// A number, or its text.
fn name<'k>(number: u64, text: &'k mut String) -> Key<'k> {
    *text = number.to_string();
    match number % 2 {
        0 => Key::from(number),
        _ => Key::from(&**text),
    }
}

#[track_caller]
fn assert_within_budget(stats: Stats) {
    assert!(stats.held_bytes <= stats.budget_bytes, "{stats:?}");
    assert!(stats.elements <= stats.used_bytes / 64, "{stats:?}");
}

/// Any interleaving of the steps of clients, servers and changes of the budget, on one thread.
#[test]
fn interleaved_steps_of_a_cp_hash_end_within_the_budget() {
    let value = vec![1; LONGEST];
    for seed in 1..fewer(400) {
        let mut random = Random(seed * 0x9e37_79b9);
        let config = Config::new(LARGEST_BUDGET).partitions(1 + seed as usize % 2);
        let config = config
            .eviction([Eviction::Lru, Eviction::Random][seed as usize / 2 % 2])
            .replace([Replace::WhenReady, Replace::AtAllocation][seed as usize / 4 % 2])
            .early_outcomes(seed / 8 % 2 > 0)
            .inline_values(seed / 16 % 2 > 0)
            .moving_budgets(seed / 32 % 2 > 0);
        let table = CpHash::new(&config.pipeline(64), 0).unwrap();
        let mut server = table.server(|| ());
        let mut colocated = None;
        let mut clients = [table.client(), table.client(), table.client()];
        let mut text = String::new();
        for token in 0..200 {
            let client = &mut clients[random.below(3) as usize];
            let key = name(random.below(12), &mut text);
            let len = random.choose(&LENGTHS);
            match random.below(16) {
                0..4 => _ = client.submit(token, CacheRequest::Insert(key, &value[..len])),
                4..6 => _ = client.submit(token, CacheRequest::Get(key)),
                6 => _ = client.submit(token, CacheRequest::Remove(key)),
                7 => {
                    let insert = vec![2; len];
                    let run = move |entry: &mut corewise_cphash::Entry<'_>| {
                        let _ = entry.insert(&insert);
                    };
                    let _ = client.submit_execute(token, key, run);
                }
                8..10 => _ = server.poll(),
                10 => _ = client.poll(|_, _| ()),
                11 => client.flush(),
                12 => *client = table.client(),
                13 => {
                    let bytes = random.choose(&BUDGETS);
                    table.set_budget_bytes(bytes).unwrap();
                }
                14 => {
                    let own = colocated.get_or_insert_with(|| table.colocated(|| ()));
                    let _ = own.submit(token, CacheRequest::Insert(key, &value[..len]));
                    let _ = own.submit(token, CacheRequest::Get(key));
                    if random.below(2) > 0 {
                        own.poll(|_, _| ());
                    }
                }
                _ => colocated = None,
            }
        }
        give_everything_up(&mut server, &mut clients);
        drop(colocated);
        drop(clients);
        (0..3).for_each(|_| _ = server.poll());
        assert_within_budget(table.stats());
    }
}

fn give_everything_up(server: &mut corewise_cphash::PartitionServer, clients: &mut [Client]) {
    for client in clients {
        // Some are dropped with replies that they have not read.
        for _ in 0..2 {
            client.poll(|_, _| ());
            server.poll();
        }
    }
}

/// References, insertions and changes of the budget in any order, on one thread.
#[test]
fn interleaved_steps_of_a_lock_hash_end_within_the_budget() {
    interleave_lock_hash::<Ttas>(Eviction::Lru);
    interleave_lock_hash::<Anderson>(Eviction::Lru);
    interleave_lock_hash::<Ttas>(Eviction::Random);
}

fn interleave_lock_hash<L: RawLock>(eviction: Eviction) {
    for seed in 1..fewer(300) {
        let mut random = Random(seed * 0x9e37_79b9);
        let config = Config::new(LARGEST_BUDGET).partitions(1 + seed as usize % 2);
        let hasher = RandomState::new();
        let table = LockHash::<_, L>::with_hasher(&config.eviction(eviction), hasher).unwrap();
        let mut held = Vec::new();
        for _ in 0..200 {
            take_a_step(&table, &mut random, &mut held);
            if held.is_empty() {
                assert_within_budget(table.stats());
            }
        }
        drop(held);
        assert_within_budget(table.stats());
    }
}

fn take_a_step<'t, L: RawLock>(
    table: &'t LockHash<RandomState, L>,
    random: &mut Random,
    held: &mut Vec<corewise_cphash::ValueRef<'t, L>>,
) {
    let mut text = String::new();
    let key = name(random.below(12), &mut text);
    let value = &[1; LONGEST][..random.choose(&LENGTHS)];
    match random.below(10) {
        0..4 => _ = table.insert(key, value),
        4 => _ = table.remove(key),
        5..7 => held.extend(table.get_ref(key)),
        7 => table.set_budget_bytes(random.choose(&BUDGETS)).unwrap(),
        8 => {
            let batch = [CacheRequest::Insert(key, value), CacheRequest::Get(key)];
            table.execute_batch(&batch, |_, _| ());
        }
        _ => held.truncate(random.below(3) as usize),
    }
}

/// The same with threads that race. The budget is small at the end of each round.
#[test]
fn racing_threads_of_a_lock_hash_end_within_the_budget() {
    race_lock_hash::<Ttas>(Eviction::Lru);
    race_lock_hash::<Anderson>(Eviction::Lru);
    race_lock_hash::<Ttas>(Eviction::Random);
}

fn race_lock_hash<L: RawLock>(eviction: Eviction) {
    for round in 0..fewer(40) {
        let config = Config::new(LARGEST_BUDGET).partitions(1 + round as usize % 2);
        let hasher = RandomState::new();
        let table = LockHash::<_, L>::with_hasher(&config.eviction(eviction), hasher).unwrap();
        let table = &table;
        std::thread::scope(|scope| {
            for seed in 1..4 {
                scope.spawn(move || {
                    let mut random = Random(round * 7 + seed);
                    let mut held = Vec::new();
                    for _ in 0..60 {
                        take_a_step(table, &mut random, &mut held);
                    }
                });
            }
            let stats = table.stats();
            assert!(stats.elements <= 12, "{stats:?}");
            table.set_budget_bytes(BUDGETS[0]).unwrap();
        });
        assert_within_budget(table.stats());
    }
}

#[test]
fn racing_threads_of_a_cp_hash_end_within_the_budget() {
    for round in 0..fewer(16) {
        let config = Config::new(LARGEST_BUDGET).partitions(2).pipeline(64);
        let config = config
            .eviction([Eviction::Lru, Eviction::Random][round as usize / 2 % 2])
            .moving_budgets(round / 4 % 2 > 0)
            .inline_values(false);
        let mut table = CpHash::new(&config, round as usize % 2).unwrap();
        race_cp_hash(&table, round);
        table.set_budget_bytes(BUDGETS[0]).unwrap();
        table.set_server_threads(0).unwrap();
        // Serves both partitions: the lanes of the clients that have left end.
        let mut last = table.client();
        (0..20).for_each(|key| _ = last.get(1000 + key, |_| ()));
        assert_within_budget(table.stats());
        assert_eq!(table.stats().budget_bytes, BUDGETS[0] as u64);
    }
}

/// Two clients, and a thread that changes the budget.
fn race_cp_hash(table: &CpHash, round: u64) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (1..3)
            .map(|seed| scope.spawn(move || use_for_a_while(table.client(), seed + round)))
            .collect();
        scope.spawn(|| {
            let mut random = Random(round + 99);
            while !is_over.load(Relaxed) {
                table.set_budget_bytes(random.choose(&BUDGETS)).unwrap();
                std::thread::yield_now();
            }
        });
        clients
            .into_iter()
            .for_each(|client| client.join().unwrap());
        is_over.store(true, Relaxed);
    });
}

fn use_for_a_while(mut client: Client, seed: u64) {
    let mut random = Random(seed);
    let value = vec![1; LONGEST];
    let mut text = String::new();
    for token in 0..200 {
        let key = name(random.below(12), &mut text);
        let len = random.choose(&LENGTHS);
        match random.below(8) {
            0..4 => _ = client.submit(token, CacheRequest::Insert(key, &value[..len])),
            4..6 => _ = client.submit(token, CacheRequest::Get(key)),
            6 => drop(client.get_ref(key)),
            _ => _ = client.poll(|_, _| ()),
        }
    }
}
