//! Subjects that are not maps: sound ones pass the checks of their capability, and those that are
//! broken on purpose do not.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use corewise_bench::adapters;
use corewise_bench::dyn_table::Entry;
use corewise_bench::manifest::manifest;
use corewise_bench::params::Params;
use corewise_bench::record::{Manifest, Record, Row};
use corewise_bench::registry::Registry;
use corewise_bench::results::Results;
use corewise_bench::runner::Runner;
use corewise_bench::sink::Sink;
use corewise_bench::subject::{
    Answers, CacheHandle, CacheSubject, Capability, FilterSubject, LockSubject, MeasuredFilter,
    MeasuredLock, QueueHandle, QueueSubject, SortedSetHandle, SortedSetSubject, WithHandles,
};
use corewise_bench::suite::Suite;
use corewise_bench::table::{Setup, TableInfo};
use corewise_bench::work::Part;
use corewise_topology::Topology;

fn card(name: &str) -> TableInfo {
    let text = || "a test".to_string();
    TableInfo {
        name: name.into(),
        about: text(),
        version: text(),
        language: "Rust".into(),
        hasher: text(),
        reclamation: text(),
        guarantees: text(),
        settings: text(),
        adapter: text(),
        memory: text(),
        batch: text(),
    }
}

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
    let suite = Suite::parse(&text).expect("a valid suite");
    let tasks = suite.tasks(&Params::default(), &Topology::flat(2), true);
    let tasks = tasks.expect("valid cells");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("results.jsonl");
    let sink = Sink::create(&path, false, false).expect("a file");
    let rows = std::cell::RefCell::new(Vec::new());
    let show = Box::new(|row: &Row| rows.borrow_mut().push(row.clone()));
    let facts = Manifest {
        plan: suite.to_toml(),
        seed: 5,
        ..manifest(&suite.name)
    };
    let end = Runner::new(registry, sink, 5, facts, None, show).run(&tasks);
    end.expect("a run");
    let results = Results::read(&[&path]).expect("the file is readable");
    let text = std::fs::read_to_string(&path).expect("results");
    let is_record = |line| serde_json::from_str::<Record>(line).is_ok();
    assert!(text.lines().all(is_record));
    (rows.into_inner(), results)
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

/// A fault of a filter.
trait FilterFault: Send + Sync + Default + 'static {
    /// What a lookup of an item returns, given whether it is present.
    fn bends(&self, _item: u64, is_present: bool) -> bool {
        is_present
    }
    /// Whether an insert reports success without inserting.
    fn swallows(&self) -> bool {
        false
    }
    /// Whether an insert is refused.
    fn refuses(&self) -> bool {
        false
    }
    /// Whether a removed item is still found.
    const KEEPS_REMOVED: bool = false;
}

/// Slots of a [`Set`], and the items that it takes.
const SLOTS: usize = 4_000;
const MOST_ITEMS: usize = 3_800;

/// A set of items, as if it were a filter.
#[derive(Default)]
struct Set<F> {
    items: Mutex<HashMap<u64, u32>>,
    removed: Mutex<BTreeSet<u64>>,
    fault: F,
}

impl<F: FilterFault> MeasuredFilter for Set<F> {
    fn build(_: &Setup) -> Self {
        Self::default()
    }
    fn insert(&self, item: u64) -> bool {
        let mut items = self.items.lock().unwrap();
        let has_room = items.len() < MOST_ITEMS && !self.fault.refuses();
        if has_room && !self.fault.swallows() {
            *items.entry(item).or_default() += 1;
        }
        has_room
    }
    fn remove(&self, item: u64) -> bool {
        if F::KEEPS_REMOVED {
            self.removed.lock().unwrap().insert(item);
        }
        self.items.lock().unwrap().remove(&item).is_some()
    }
    fn contains(&self, item: u64) -> bool {
        let is_present = self.items.lock().unwrap().contains_key(&item)
            || self.removed.lock().unwrap().contains(&item);
        self.fault.bends(item, is_present)
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

#[derive(Default)]
struct Sound;
impl FilterFault for Sound {}
impl LockFault for Sound {}
impl CacheFault for Sound {}
impl QueueFault for Sound {}
impl SetFault for Sound {}

/// Denies an item that is present, once in a hundred lookups.
#[derive(Default)]
struct FalseNegative(AtomicU64);
impl FilterFault for FalseNegative {
    fn bends(&self, _: u64, is_present: bool) -> bool {
        is_present && self.0.fetch_add(1, Ordering::Relaxed) % 100 != 99
    }
}

/// Affirms every item.
#[derive(Default)]
struct AlwaysThere;
impl FilterFault for AlwaysThere {
    fn bends(&self, _: u64, _: bool) -> bool {
        true
    }
}

/// Loses an insert in a hundred.
#[derive(Default)]
struct LosesInserts(AtomicU64);
impl FilterFault for LosesInserts {
    fn swallows(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) % 100 == 99
    }
}

/// Refuses an insert in a thousand, also while it is filled.
#[derive(Default)]
struct Refuses(AtomicU64);
impl FilterFault for Refuses {
    fn refuses(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) % 1000 == 999
    }
}

/// Finds what was removed.
#[derive(Default)]
struct KeepsRemoved;
impl FilterFault for KeepsRemoved {
    const KEEPS_REMOVED: bool = true;
}

fn filter<F: FilterFault>(name: &str) -> Entry {
    Entry::new(card(name)).subject::<FilterSubject<Set<F>>>()
}

#[test]
fn a_filter_may_affirm_a_few_absent_items_and_deny_no_present_one() {
    let entries = vec![
        filter::<Sound>("sound"),
        filter::<FalseNegative>("false negative"),
        filter::<AlwaysThere>("always there"),
        filter::<LosesInserts>("loses inserts"),
        filter::<Refuses>("refuses"),
        filter::<KeepsRemoved>("keeps removed"),
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
    let registry = Registry::new(vec![filter::<Sound>("sound")], Vec::new());
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

/// A fault of a lock.
trait LockFault: Send + Sync + Default + 'static {
    /// Called when an exclusive section begins; returns whether the lock is not taken.
    fn leaks(&self) -> bool {
        false
    }
}

#[derive(Default)]
struct Guard<F> {
    is_taken: AtomicBool,
    fault: F,
}

impl<F> Guard<F> {
    fn with(&self, mut section: impl FnMut()) {
        // Acquire: pairs with the Release below, so that sections see what earlier ones wrote.
        while self.is_taken.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        section();
        self.is_taken.store(false, Ordering::Release); // Release: pairs with the Acquire above
    }
}

impl<F: LockFault> MeasuredLock for Guard<F> {
    fn build() -> Self {
        Self::default()
    }
    fn exclusive(&self, mut section: impl FnMut()) {
        if self.fault.leaks() {
            section();
        }
        self.with(section);
    }
}

/// Runs a section in a thousand twice, which counts like a second thread inside.
#[derive(Default)]
struct Leaky(AtomicU64);
impl LockFault for Leaky {
    fn leaks(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) % 1000 == 999
    }
}

fn lock<F: LockFault>(name: &str) -> Entry {
    Entry::new(card(name)).subject::<LockSubject<Guard<F>>>()
}

#[test]
fn a_lock_whose_sections_do_not_add_up_is_void() {
    let entries = vec![lock::<Sound>("sound"), lock::<Leaky>("leaky")];
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

/// A fault of a priority queue.
trait QueueFault: Send + Sync + Default + 'static {
    /// Returns the key to remove.
    fn picks(&self, keys: &BTreeSet<u64>) -> Option<u64> {
        keys.first().copied()
    }
    /// Returns whether a removed key stays.
    fn keeps(&self) -> bool {
        false
    }
}

#[derive(Default)]
struct Keys<F> {
    keys: Mutex<BTreeSet<u64>>,
    fault: F,
}

impl<F: QueueFault> WithHandles for Keys<F> {
    type Handle<'s> = &'s Self;
    fn build(_: &Setup) -> Self {
        Self::default()
    }
    fn handle(&self, _: Part) -> &Self {
        self
    }
}

impl<F: QueueFault> QueueHandle for &Keys<F> {
    fn insert(&mut self, key: u64) -> bool {
        self.keys.lock().unwrap().insert(key)
    }
    fn delete_min(&mut self) -> Option<u64> {
        let mut keys = self.keys.lock().unwrap();
        let key = self.fault.picks(&keys)?;
        if !self.fault.keeps() {
            keys.remove(&key);
        }
        Some(key)
    }
    fn find_min(&mut self) -> Option<u64> {
        self.keys.lock().unwrap().first().copied()
    }
}

/// Removes a key twice, once in a hundred.
#[derive(Default)]
struct DoubleMin(AtomicU64);
impl QueueFault for DoubleMin {
    fn keeps(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) % 100 == 99
    }
}

/// Removes the greatest key.
#[derive(Default)]
struct Reversed;
impl QueueFault for Reversed {
    fn picks(&self, keys: &BTreeSet<u64>) -> Option<u64> {
        keys.last().copied()
    }
}

fn queue<F: QueueFault>(name: &str) -> Entry {
    Entry::new(card(name)).subject::<QueueSubject<Keys<F>>>()
}

#[test]
fn a_priority_queue_gives_back_each_key_once_and_in_order() {
    let entries = vec![
        queue::<Sound>("sound"),
        queue::<DoubleMin>("double min"),
        queue::<Reversed>("reversed"),
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

/// A fault of a sorted set.
trait SetFault: Send + Sync + Default + 'static {
    /// Returns the rank that is reported.
    fn ranks(&self, rank: u64) -> u64 {
        rank
    }
    /// Returns whether an increment is lost.
    fn loses(&self) -> bool {
        false
    }
}

#[derive(Default)]
struct Scores<F> {
    scores: Mutex<HashMap<u32, i64>>,
    fault: F,
}

impl<F: SetFault> WithHandles for Scores<F> {
    type Handle<'s> = &'s Self;
    fn build(_: &Setup) -> Self {
        Self::default()
    }
    fn handle(&self, _: Part) -> &Self {
        self
    }
}

impl<F: SetFault> SortedSetHandle for &Scores<F> {
    fn rank(&mut self, member: u32) -> Option<u64> {
        let scores = self.scores.lock().unwrap();
        let its = (*scores.get(&member)?, member);
        let lower = scores
            .iter()
            .filter(|(member, score)| (**score, **member) < its);
        Some(self.fault.ranks(lower.count() as u64))
    }
    fn increment(&mut self, member: u32, delta: i64) -> Option<i64> {
        let is_lost = delta.abs() == 1 && self.fault.loses();
        let mut scores = self.scores.lock().unwrap();
        let score = scores.entry(member).or_default();
        *score += if is_lost { 0 } else { delta };
        Some(*score)
    }
}

/// Reports a rank that is one too low.
#[derive(Default)]
struct WrongRank;
impl SetFault for WrongRank {
    fn ranks(&self, rank: u64) -> u64 {
        rank.saturating_sub(1)
    }
}

/// Loses an increment by one in ten. A decrement is lost as often, so only the scores tell.
#[derive(Default)]
struct LosesIncrements(AtomicU64);
impl SetFault for LosesIncrements {
    fn loses(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) % 10 == 9
    }
}

fn sorted_set<F: SetFault>(name: &str) -> Entry {
    Entry::new(card(name)).subject::<SortedSetSubject<Scores<F>>>()
}

#[test]
fn a_sorted_set_has_a_rank_for_each_member_and_keeps_scores() {
    let entries = vec![
        sorted_set::<Sound>("sound"),
        sorted_set::<WrongRank>("wrong rank"),
        sorted_set::<LosesIncrements>("loses increments"),
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

/// A fault of a cache.
trait CacheFault: Send + Sync + Default + 'static {
    /// Returns how often an operation is answered.
    fn answers(&self) -> usize {
        1
    }
    /// Returns whether a value is not replaced.
    fn keeps_old(&self) -> bool {
        false
    }
    /// Whether nothing is ever evicted.
    const IS_UNBOUNDED: bool = false;
    /// Whether nothing is ever stored.
    const IS_EMPTY: bool = false;
}

/// A cache that evicts any key, for half of the keys.
#[derive(Default)]
struct Values<F> {
    values: Mutex<HashMap<u64, u64>>,
    capacity: usize,
    fault: F,
}

impl<F: CacheFault> WithHandles for Values<F> {
    type Handle<'s> = &'s Self;
    fn build(setup: &Setup) -> Self {
        let capacity = match F::IS_UNBOUNDED {
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

impl<F: CacheFault> CacheHandle for &Values<F> {
    fn submit(&mut self, key: u64, value: Option<u64>, answers: &mut Answers) {
        let mut values = self.values.lock().unwrap();
        let Some(value) = value else {
            let value = values.get(&key).copied();
            return (0..self.fault.answers()).for_each(|_| answers.looked_up(key, value));
        };
        if !values.contains_key(&key) && values.len() >= self.capacity {
            let victim = values.keys().next().copied();
            victim.map(|victim| values.remove(&victim));
        }
        if !(F::IS_EMPTY || values.contains_key(&key) && self.fault.keeps_old()) {
            values.insert(key, value);
        }
        (0..self.fault.answers()).for_each(|_| answers.stored(true));
    }
}

/// Does not replace.
#[derive(Default)]
struct Stale;
impl CacheFault for Stale {
    fn keeps_old(&self) -> bool {
        true
    }
}

/// Does not evict.
#[derive(Default)]
struct Overfull;
impl CacheFault for Overfull {
    const IS_UNBOUNDED: bool = true;
}

/// Stores nothing.
#[derive(Default)]
struct Empty;
impl CacheFault for Empty {
    const IS_EMPTY: bool = true;
}

/// Answers one operation in a hundred not at all.
#[derive(Default)]
struct LosesAnswer(AtomicU64);
impl CacheFault for LosesAnswer {
    fn answers(&self) -> usize {
        usize::from(self.0.fetch_add(1, Ordering::Relaxed) % 100 != 99)
    }
}

/// Answers one operation in a hundred twice.
#[derive(Default)]
struct DoublesAnswer(AtomicU64);
impl CacheFault for DoublesAnswer {
    fn answers(&self) -> usize {
        1 + usize::from(self.0.fetch_add(1, Ordering::Relaxed) % 100 == 99)
    }
}

fn cache<F: CacheFault>(name: &str) -> Entry {
    Entry::new(card(name)).subject::<CacheSubject<Values<F>>>()
}

#[test]
fn a_cache_answers_each_operation_and_holds_what_it_has_room_for() {
    let entries = vec![
        cache::<Sound>("sound"),
        cache::<Stale>("stale"),
        cache::<Overfull>("overfull"),
        cache::<Empty>("empty"),
        cache::<LosesAnswer>("loses answer"),
        cache::<DoublesAnswer>("doubles answer"),
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
