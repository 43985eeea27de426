//! Subjects that are not maps: sound ones pass the checks of their capability, and those that are
//! broken on purpose do not.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use corewise_bench::adapters;
use corewise_bench::entry::Entry;
use corewise_bench::record::{Record, Row};
use corewise_bench::registry::Registry;
use corewise_bench::results::Results;
use corewise_bench::subject::{
    Answers, CacheHandle, CacheSubject, Capability, FilterSubject, LockSubject, MeasuredFilter,
    MeasuredLock, QueueHandle, QueueSubject, SortedSetHandle, SortedSetSubject, WithHandles,
};
use corewise_bench::table::Setup;
use corewise_bench::work::Part;

use crate::common::{card, run_suite};

/// Runs a section in short slices on two threads; returns its rows and what a reader of the file
/// gets.
fn measure(registry: &Registry, section: &str) -> (Vec<Row>, Results) {
    let text = format!(
        "name = 'test'
        [defaults]
        threads = [2]
        repetitions = 2
        duration-ms = 20
        slices = 2
        warm-ms = 1
        pin = ['default']
        [[section]]
        {section}"
    );
    let (rows, file, _) = run_suite(registry, &text, Duration::from_secs(20));
    let is_record = |line| serde_json::from_str::<Record>(line).is_ok();
    assert!(file.lines().all(is_record));
    let results = Results::parse(Path::new("results.jsonl"), file.as_bytes());
    (rows, results.expect("the file is readable"))
}

/// Checks that rows are void with these words, and that those without words are not.
fn assert_problems(rows: &[Row], expected: &[(&str, &str)]) {
    for (table, words) in expected {
        let row = rows.iter().find(|row| row.table == *table).expect(table);
        let said = row.problems.join("; ");
        assert_eq!(row.verdict == "void", !words.is_empty(), "{table}: {said}");
        assert!(said.contains(words), "{table}: {said}");
    }
}

/// Faults, of which a subject has one.
const SOUND: usize = 0;
/// Denies an item that is present, once in a hundred lookups.
const FALSE_NEGATIVE: usize = 1;
/// Affirms every item.
const ALWAYS_THERE: usize = 2;
/// Loses an insert in a hundred.
const LOSES_INSERTS: usize = 3;
/// Refuses an insert in a thousand, also while it is filled.
const REFUSES: usize = 4;
/// Finds what was removed.
const KEEPS_REMOVED: usize = 5;
/// Runs a section in a thousand twice, which counts like a second thread inside.
const LEAKY: usize = 6;
/// Removes a key twice, once in a hundred.
const DOUBLE_MIN: usize = 7;
/// Removes the greatest key.
const REVERSED: usize = 8;
/// Reports a rank that is one too low.
const WRONG_RANK: usize = 9;
/// Loses an increment by one in ten. A decrement is lost as often, so only the scores tell.
const LOSES_INCREMENTS: usize = 10;
/// Does not replace.
const STALE: usize = 11;
/// Does not evict.
const OVERFULL: usize = 12;
/// Stores nothing.
const EMPTY: usize = 13;
/// Answers one operation in a hundred not at all.
const LOSES_ANSWER: usize = 14;
/// Answers one operation in a hundred twice.
const DOUBLES_ANSWER: usize = 15;

#[derive(Default)]
struct Fault<const FAULT: usize>(AtomicU64);

impl<const FAULT: usize> Fault<FAULT> {
    /// Returns whether the subject has this fault, and shows it in this call: in one of that many.
    fn shows(&self, fault: usize, every: u64) -> bool {
        FAULT == fault && self.0.fetch_add(1, Ordering::Relaxed) % every == every - 1
    }
}

/// Slots of a [`Set`], and the items that it takes.
const SLOTS: usize = 4_000;
const MOST_ITEMS: usize = 3_800;

/// A set of items, as if it were a filter.
#[derive(Default)]
struct Set<const FAULT: usize> {
    items: Mutex<HashMap<u64, u32>>,
    removed: Mutex<BTreeSet<u64>>,
    fault: Fault<FAULT>,
}

impl<const FAULT: usize> MeasuredFilter for Set<FAULT> {
    fn build(_: &Setup) -> Self {
        Self::default()
    }
    fn insert(&self, item: u64) -> bool {
        let mut items = self.items.lock().unwrap();
        let has_room = items.len() < MOST_ITEMS && !self.fault.shows(REFUSES, 1000);
        if has_room && !self.fault.shows(LOSES_INSERTS, 100) {
            *items.entry(item).or_default() += 1;
        }
        has_room
    }
    fn remove(&self, item: u64) -> bool {
        if self.fault.shows(KEEPS_REMOVED, 1) {
            self.removed.lock().unwrap().insert(item);
        }
        self.items.lock().unwrap().remove(&item).is_some()
    }
    fn contains(&self, item: u64) -> bool {
        let is_present = self.items.lock().unwrap().contains_key(&item)
            || self.removed.lock().unwrap().contains(&item);
        let is_denied = is_present && self.fault.shows(FALSE_NEGATIVE, 100);
        is_present && !is_denied || self.fault.shows(ALWAYS_THERE, 1)
    }
    fn false_positive_rate(&self) -> f64 {
        0.01
    }
    fn slots(&self) -> usize {
        SLOTS
    }
    fn bytes(&self) -> usize {
        1 << 20
    }
}

fn filter<const FAULT: usize>(name: &str) -> Entry {
    Entry::new(card(name)).subject::<FilterSubject<Set<FAULT>>>()
}

#[test]
fn a_filter_may_affirm_a_few_absent_items_and_deny_no_present_one() {
    let entries = vec![
        filter::<SOUND>("sound"),
        filter::<FALSE_NEGATIVE>("false negative"),
        filter::<ALWAYS_THERE>("always there"),
        filter::<LOSES_INSERTS>("loses inserts"),
        filter::<REFUSES>("refuses"),
        filter::<KEEPS_REMOVED>("keeps removed"),
    ];
    let section = "kind = 'filter'
        initial = [2000]
        updates = [20.0]
        reference = 'sound'
        tables = ['false negative', 'always there', 'loses inserts', 'refuses', 'keeps removed']";
    let (rows, _) = measure(&Registry::new(entries, Vec::new()), section);
    assert_problems(
        &rows,
        &[
            ("sound", ""),
            ("false negative", "present are not found"),
            ("always there", "of absent items are found"),
            ("loses inserts", "removes did not find"),
            ("refuses", "refused by a filter with room"),
            ("keeps removed", "of absent items are found"),
        ],
    );
    let sound = rows.iter().find(|row| row.table == "sound").expect("a row");
    assert_eq!(sound.cell.id, "filter/i=2000,u=20,uniform,n=2,default");
    let measured = &sound.fields.measured;
    assert_eq!(measured["false positives"].value, 0.0);
    assert!((2700.0..8500.0).contains(&measured["bits an item"].value));
    assert!(!measured.contains_key("load when full"));
}

#[test]
fn a_nearly_full_filter_is_filled_up_in_the_end() {
    let registry = Registry::new(vec![filter::<SOUND>("sound")], Vec::new());
    let section = "kind = 'filter'
        initial = [3200]
        load = 80.0
        updates = [0.0]
        reference = 'sound'
        tables = []";
    let (rows, _) = measure(&registry, section);
    let measured = &rows[0].fields.measured;
    let value = |name: &str| measured[name].value;
    assert_eq!(value("load when full"), MOST_ITEMS as f64 / SLOTS as f64);
    let bits = f64::from(8 << 20) / MOST_ITEMS as f64;
    assert_eq!(value("bits an item when full"), bits);
    assert_eq!(value("false positives when full"), 0.0);
}

#[test]
fn the_filters_of_the_registry_pass_and_are_drawn() {
    let registry = adapters::registry();
    let is_filter = |entry: &&Entry| entry.capabilities().contains(&Capability::Filter);
    let filters = registry.entries().iter().filter(is_filter);
    let names = filters
        .filter(|entry| !entry.null)
        .map(|entry| &*entry.card.name);
    let (elided, others): (Vec<&str>, Vec<&str>) = names.partition(|name| name.contains(':'));
    let measure = |threads: usize, tables: Vec<&str>| {
        let section = format!(
            "kind = 'filter'\ninitial = [3000]\nupdates = [40.0]\nthreads = [{threads}]\n\
             tables = {tables:?}"
        );
        let (rows, results) = measure(&registry, &section);
        let void = rows.iter().find(|row| row.verdict == "void");
        assert_eq!(void, None);
        assert!(rows.len() > tables.len(), "{rows:?}");
        results
    };
    // Where other programs use the processors, a queue lock goes from thread to thread by a turn of
    // the scheduler each, which takes longer than a phase may.
    measure(1, elided);
    let results = measure(2, others);
    let plots = corewise_bench::report::plots(&results);
    assert!(
        plots.iter().any(|(id, _)| id == "plot-filter-1"),
        "{plots:?}"
    );
    let page = corewise_bench::report::html(&results);
    assert!(page.contains("false positives") && page.contains("bits an item"));
}

#[derive(Default)]
struct Guard<const FAULT: usize> {
    is_taken: AtomicBool,
    fault: Fault<FAULT>,
}

impl<const FAULT: usize> Guard<FAULT> {
    fn with(&self, mut section: impl FnMut()) {
        // Acquire: pairs with the Release below, so that sections see what earlier ones wrote.
        while self.is_taken.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        section();
        self.is_taken.store(false, Ordering::Release); // Release: pairs with the Acquire above
    }
}

impl<const FAULT: usize> MeasuredLock for Guard<FAULT> {
    fn build() -> Self {
        Self::default()
    }
    fn exclusive(&self, mut section: impl FnMut()) {
        if self.fault.shows(LEAKY, 1000) {
            section();
        }
        self.with(section);
    }
}

fn lock<const FAULT: usize>(name: &str) -> Entry {
    Entry::new(card(name)).subject::<LockSubject<Guard<FAULT>>>()
}

#[test]
fn a_lock_whose_sections_do_not_add_up_is_void() {
    let entries = vec![lock::<SOUND>("sound"), lock::<LEAKY>("leaky")];
    let section = "kind = 'lock'
        work = [0, 50]
        updates = [50.0]
        reference = 'sound'
        tables = ['leaky']";
    let (rows, results) = measure(&Registry::new(entries, Vec::new()), section);
    let ids: Vec<_> = rows.iter().map(|row| &*row.cell.id).collect();
    assert!(
        ids.contains(&"lock/i=1,u=50,uniform,n=2,default,w=0"),
        "{ids:?}"
    );
    assert!(
        ids.contains(&"lock/i=1,u=50,uniform,n=2,default,w=50"),
        "{ids:?}"
    );
    assert_problems(
        &rows,
        &[("sound", ""), ("leaky", "exclusive sections counted")],
    );
    let sound = rows.iter().find(|row| row.table == "sound").expect("a row");
    let measured = &sound.fields.measured;
    assert!((0.0..=1.0).contains(&measured["fairness"].value));
    assert!(corewise_bench::report::html(&results).contains("sections of 50 ns"));
}

#[derive(Default)]
struct Keys<const FAULT: usize> {
    keys: Mutex<BTreeSet<u64>>,
    fault: Fault<FAULT>,
}

impl<const FAULT: usize> WithHandles for Keys<FAULT> {
    type Handle<'s> = &'s Self;
    fn build(_: &Setup) -> Self {
        Self::default()
    }
    fn handle(&self, _: Part) -> &Self {
        self
    }
}

impl<const FAULT: usize> QueueHandle for &Keys<FAULT> {
    fn insert(&mut self, key: u64) -> bool {
        self.keys.lock().unwrap().insert(key)
    }
    fn delete_min(&mut self) -> Option<u64> {
        let mut keys = self.keys.lock().unwrap();
        let is_reversed = self.fault.shows(REVERSED, 1);
        let picked = if is_reversed {
            keys.last()
        } else {
            keys.first()
        };
        let key = *picked?;
        if !self.fault.shows(DOUBLE_MIN, 100) {
            keys.remove(&key);
        }
        Some(key)
    }
    fn find_min(&mut self) -> Option<u64> {
        self.keys.lock().unwrap().first().copied()
    }
}

fn queue<const FAULT: usize>(name: &str) -> Entry {
    Entry::new(card(name)).subject::<QueueSubject<Keys<FAULT>>>()
}

#[test]
fn a_priority_queue_gives_back_each_key_once_and_in_order() {
    let entries = vec![
        queue::<SOUND>("sound"),
        queue::<DOUBLE_MIN>("double min"),
        queue::<REVERSED>("reversed"),
    ];
    let section = "kind = 'queue'
        initial = [2000]
        updates = [50.0]
        work = [0, 8]
        reference = 'sound'
        tables = ['double min', 'reversed']";
    let (rows, _) = measure(&Registry::new(entries, Vec::new()), section);
    let expected = [
        ("sound", ""),
        ("double min", "keys came out in the end"),
        ("reversed", "did not come out in order"),
    ];
    assert_problems(&rows, &expected);
    let ids: Vec<_> = rows.iter().map(|row| &*row.cell.id).collect();
    assert!(
        ids.contains(&"queue/i=2000,u=50,uniform,n=2,default,w=8"),
        "{ids:?}"
    );
}

#[derive(Default)]
struct Scores<const FAULT: usize> {
    scores: Mutex<HashMap<u32, i64>>,
    fault: Fault<FAULT>,
}

impl<const FAULT: usize> WithHandles for Scores<FAULT> {
    type Handle<'s> = &'s Self;
    fn build(_: &Setup) -> Self {
        Self::default()
    }
    fn handle(&self, _: Part) -> &Self {
        self
    }
}

impl<const FAULT: usize> SortedSetHandle for &Scores<FAULT> {
    fn rank(&mut self, member: u32) -> Option<u64> {
        let scores = self.scores.lock().unwrap();
        let its = (*scores.get(&member)?, member);
        let lower = scores
            .iter()
            .filter(|(member, score)| (**score, **member) < its);
        let missing = u64::from(self.fault.shows(WRONG_RANK, 1));
        Some((lower.count() as u64).saturating_sub(missing))
    }
    fn increment(&mut self, member: u32, delta: i64) -> Option<i64> {
        let is_lost = delta.abs() == 1 && self.fault.shows(LOSES_INCREMENTS, 10);
        let mut scores = self.scores.lock().unwrap();
        let score = scores.entry(member).or_default();
        *score += if is_lost { 0 } else { delta };
        Some(*score)
    }
}

fn sorted_set<const FAULT: usize>(name: &str) -> Entry {
    Entry::new(card(name)).subject::<SortedSetSubject<Scores<FAULT>>>()
}

#[test]
fn a_sorted_set_has_a_rank_for_each_member_and_keeps_scores() {
    let entries = vec![
        sorted_set::<SOUND>("sound"),
        sorted_set::<WRONG_RANK>("wrong rank"),
        sorted_set::<LOSES_INCREMENTS>("loses increments"),
    ];
    let section = "kind = 'sortedset'
        initial = [50]
        updates = [90.0]
        insert-share = 100.0
        reference = 'sound'
        tables = ['wrong rank', 'loses increments']";
    let (rows, _) = measure(&Registry::new(entries, Vec::new()), section);
    let expected = [
        ("sound", ""),
        ("wrong rank", "the same rank"),
        ("loses increments", "the scores differ"),
    ];
    assert_problems(&rows, &expected);
}

#[test]
fn node_replication_and_its_baselines_pass() {
    for (section, entries, subjects) in [("queue", 500, 7), ("sortedset", 100, 6)] {
        let section = format!("kind = '{section}'\ninitial = [{entries}]\nupdates = [50.0]");
        let (rows, results) = measure(&adapters::registry(), &section);
        assert_eq!(rows.iter().find(|row| row.verdict == "void"), None);
        // With the reference again and the null subject.
        assert!(rows.len() >= subjects + 2, "{section}: {}", rows.len());
        assert!(
            !corewise_bench::report::plots(&results).is_empty(),
            "{section}"
        );
    }
}

/// A cache that evicts any key, for half of the keys.
#[derive(Default)]
struct Values<const FAULT: usize> {
    values: Mutex<HashMap<u64, u64>>,
    capacity: usize,
    fault: Fault<FAULT>,
}

impl<const FAULT: usize> WithHandles for Values<FAULT> {
    type Handle<'s> = &'s Self;
    fn build(setup: &Setup) -> Self {
        let capacity = match FAULT == OVERFULL {
            true => usize::MAX,
            false => setup.capacity,
        };
        Self {
            capacity,
            ..Self::default()
        }
    }
    fn handle(&self, _: Part) -> &Self {
        self
    }
}

impl<const FAULT: usize> CacheHandle for &Values<FAULT> {
    fn submit(&mut self, key: u64, value: Option<u64>, answers: &mut Answers) {
        let mut values = self.values.lock().unwrap();
        let one_more = usize::from(self.fault.shows(DOUBLES_ANSWER, 100));
        let count = 1 + one_more - usize::from(self.fault.shows(LOSES_ANSWER, 100));
        let Some(value) = value else {
            let value = values.get(&key).copied();
            return (0..count).for_each(|_| answers.looked_up(key, value));
        };
        if !values.contains_key(&key) && values.len() >= self.capacity {
            let victim = values.keys().next().copied();
            victim.map(|victim| values.remove(&victim));
        }
        let keeps_old = values.contains_key(&key) && self.fault.shows(STALE, 1);
        if !keeps_old && FAULT != EMPTY {
            values.insert(key, value);
        }
        (0..count).for_each(|_| answers.stored(true));
    }
}

fn cache<const FAULT: usize>(name: &str) -> Entry {
    Entry::new(card(name)).subject::<CacheSubject<Values<FAULT>>>()
}

#[test]
fn a_cache_answers_each_operation_and_holds_what_it_has_room_for() {
    let entries = vec![
        cache::<SOUND>("sound"),
        cache::<STALE>("stale"),
        cache::<OVERFULL>("overfull"),
        cache::<EMPTY>("empty"),
        cache::<LOSES_ANSWER>("loses answer"),
        cache::<DOUBLES_ANSWER>("doubles answer"),
    ];
    let section = "kind = 'cache'
        initial = [2000]
        load = 200.0
        batch = [7]
        reference = 'sound'
        tables = ['stale', 'overfull', 'empty', 'loses answer', 'doubles answer']";
    let (rows, _) = measure(&Registry::new(entries, Vec::new()), section);
    let expected = [
        ("sound", ""),
        ("stale", "had been replaced"),
        ("overfull", "2000 entries in a cache for 1000"),
        ("empty", "0 of 2000 keys are in a cache for 1000"),
        ("loses answer", "had no answer, or two"),
        ("doubles answer", "had no answer, or two"),
    ];
    assert_problems(&rows, &expected);
    assert_eq!(
        rows[0].cell.id,
        "cache/i=2000,r=2000,u=30(30+0),uniform,n=2,default,batch=7,load=200"
    );
}

#[test]
fn the_caches_of_the_registry_pass_and_those_with_servers_count_them() {
    // Each of 4,096 partitions has room for four entries or more.
    let section = "kind = 'cache'\ninitial = [30000]\nbatch = [1024]\nload = 150.0";
    let (rows, results) = measure(&adapters::registry(), section);
    assert_eq!(rows.iter().find(|row| row.verdict == "void"), None);
    assert!(rows.iter().any(|row| row.table == "cphash:dedicated"));
    assert!(!corewise_bench::report::plots(&results).is_empty());
    // A single processor has no room for a server, unless its thread serves in turn.
    let tables = "tables = ['cphash:dedicated', 'cphash:one-thread']";
    let (both, _) = measure(&adapters::registry(), &format!("{section}\n{tables}"));
    assert!(both.iter().all(|row| row.table != "cphash:one-thread"));
    let alone = format!("{section}\n{tables}\nthreads = [1]");
    let (rows, _) = measure(&adapters::registry(), &alone);
    assert!(rows.iter().all(|row| row.table != "cphash:dedicated"));
    let row = rows.iter().find(|row| row.table == "cphash:one-thread");
    let row = row.expect("a row");
    assert!(row.problems.is_empty(), "{:?}", row.problems);
    let measured = &row.fields.measured;
    let sides = measured["client ns"].value + measured["server ns"].value;
    let each = 1e9 / row.rate.expect("a rate").value;
    // The rate contains the harness too; medians and a mean may differ.
    assert!(sides > 0.0 && sides < 2.0 * each, "{sides} ns of {each}");
}
