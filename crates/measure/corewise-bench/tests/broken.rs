//! Tables that are broken on purpose: the checks detect each, and its row is void.

use std::collections::HashMap;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use corewise_bench::dyn_table::Entry;
use corewise_bench::manifest::manifest;
use corewise_bench::params::Params;
use corewise_bench::record::{End, Manifest, Record, Row};
use corewise_bench::registry::Registry;
use corewise_bench::runner::Runner;
use corewise_bench::sections::resize::ResizeSummary;
use corewise_bench::sink::Sink;
use corewise_bench::suite::Suite;
use corewise_bench::table::{MapHandle, MeasuredMap, Resize, Setup, TableInfo, U64};
use corewise_topology::Topology;

/// A fault of a table.
trait Fault: Send + Sync + Default + 'static {
    /// Called for each handle.
    fn opens(&self) {}
    /// Whether an insert takes its key for present without looking.
    fn refuses(&self) -> bool {
        false
    }
    /// Whether an insert of a present key stores a second entry beside the first.
    fn doubles(&self, _key: u64, _stored: u64) -> bool {
        false
    }
    /// The entry below a removed one.
    fn uncovers(&self, _key: u64) -> Option<u64> {
        None
    }
    /// Whether an insert reports success without inserting.
    fn swallows(&self, _: &HashMap<u64, u64>) -> bool {
        false
    }
    /// The result of a lookup, given what is stored.
    fn bends(&self, _key: u64, stored: Option<u64>) -> Option<u64> {
        stored
    }
    /// The result of a lookup in a batch, given what is stored.
    fn bends_batched(&self, key: u64, stored: Option<u64>) -> Option<u64> {
        self.bends(key, stored)
    }
    /// The value to store for an inserted one.
    fn stores(&self, _key: u64, value: u64) -> u64 {
        value
    }
    /// Side effects of a removal.
    fn takes_along(&self, _: &mut HashMap<u64, u64>) {}
    /// Called with each value before it is removed.
    fn saw(&self, _key: u64, _value: u64) {}
    /// The result of `size`.
    fn counts(&self, entries: usize) -> usize {
        entries
    }
    /// The number of buckets after a resize to `buckets`.
    fn has(&self, buckets: usize) -> usize {
        buckets
    }
    /// Side effects of a resize; returns whether it takes place.
    fn moves(&self, _: &RwLock<HashMap<u64, u64>>) -> bool {
        true
    }
}

#[derive(Default)]
struct Broken<F> {
    map: RwLock<HashMap<u64, u64>>,
    buckets: AtomicUsize,
    fault: F,
}

impl<F: Fault> MeasuredMap<U64> for Broken<F> {
    type Handle<'t> = &'t Self;

    fn build(setup: &Setup) -> Self {
        let map = RwLock::new(HashMap::with_capacity(setup.capacity));
        Self {
            map,
            buckets: AtomicUsize::new(1),
            fault: F::default(),
        }
    }
    fn handle(&self) -> &Self {
        self.fault.opens();
        self
    }
    fn size(&self) -> Option<usize> {
        Some(self.fault.counts(self.map.read().unwrap().len()))
    }
}

/// A resize that does nothing except for its faults.
impl<F: Fault> Resize<U64> for Broken<F> {
    fn resize_to(&self, buckets: usize) {
        if self.fault.moves(&self.map) {
            self.buckets.store(buckets, Ordering::Relaxed);
        }
    }
    fn buckets(&self) -> usize {
        self.fault.has(self.buckets.load(Ordering::Relaxed))
    }
}

impl<F: Fault> MapHandle<U64> for &Broken<F> {
    fn get(&mut self, key: &u64) -> Option<u64> {
        let stored = self.map.read().unwrap().get(key).copied();
        self.fault.bends(*key, stored)
    }
    fn get_many<'q>(
        &mut self,
        keys: impl ExactSizeIterator<Item = &'q u64>,
        out: &mut [Option<u64>],
    ) {
        let map = self.map.read().unwrap();
        for (key, out) in keys.zip(out) {
            *out = self.fault.bends_batched(*key, map.get(key).copied());
        }
    }
    fn insert(&mut self, key: &u64, value: u64) -> bool {
        let mut map = self.map.write().unwrap();
        if self.fault.refuses() {
            return false;
        }
        if let Some(stored) = map.get(key)
            && !self.fault.doubles(*key, *stored)
        {
            return false;
        }
        if !self.fault.swallows(&map) {
            map.insert(*key, self.fault.stores(*key, value));
        }
        true
    }
    fn remove(&mut self, key: &u64) -> Option<u64> {
        let mut map = self.map.write().unwrap();
        let removed = map.remove(key);
        if let Some(below) = self.fault.uncovers(*key) {
            map.insert(*key, below);
        }
        self.fault.takes_along(&mut map);
        drop(map);
        removed.inspect(|&value| self.fault.saw(*key, value))
    }
}

/// No fault.
#[derive(Default)]
struct Sound;
impl Fault for Sound {}

/// Drops a single key, soon after the table has been filled.
#[derive(Default)]
struct Drops(AtomicU64);
impl Fault for Drops {
    fn swallows(&self, _: &HashMap<u64, u64>) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) == 21_000
    }
}

/// Takes every key for present: inserts nothing, and all sums agree.
#[derive(Default)]
struct DropsInserts;
impl Fault for DropsInserts {
    fn refuses(&self) -> bool {
        true
    }
}

/// Finds nothing in lookups, while inserts and removals are right.
#[derive(Default)]
struct FindsNothing;
impl Fault for FindsNothing {
    fn bends(&self, _: u64, _: Option<u64>) -> Option<u64> {
        None
    }
}

/// Stores a second entry for a present key. Removals take the last one, so the sums of inserts and
/// removals agree.
#[derive(Default)]
struct Duplicates(RwLock<HashMap<u64, Vec<u64>>>);
impl Fault for Duplicates {
    fn doubles(&self, key: u64, stored: u64) -> bool {
        self.0.write().unwrap().entry(key).or_default().push(stored);
        true
    }
    fn uncovers(&self, key: u64) -> Option<u64> {
        self.0.write().unwrap().get_mut(&key)?.pop()
    }
    fn counts(&self, entries: usize) -> usize {
        entries + self.0.read().unwrap().values().map(Vec::len).sum::<usize>()
    }
}

/// Takes 50 ms for each lookup: a chunk takes longer than the patience of the test.
#[derive(Default)]
struct SlowWarmUp;
impl Fault for SlowWarmUp {
    fn bends(&self, _: u64, stored: Option<u64>) -> Option<u64> {
        std::thread::sleep(Duration::from_millis(50));
        stored
    }
}

/// Panics when the second thread of a slice begins, before the threads start together.
#[derive(Default)]
struct PanicsAtHandle(AtomicU64);
impl Fault for PanicsAtHandle {
    fn opens(&self) {
        // Two threads have filled the table.
        assert!(
            self.0.fetch_add(1, Ordering::Relaxed) < 3,
            "three handles are enough"
        );
    }
}

/// Sometimes returns a removed value of a key that is present again.
#[derive(Default)]
struct Stale {
    removed: RwLock<HashMap<u64, u64>>,
    lookups: AtomicU64,
}
impl Fault for Stale {
    fn bends(&self, key: u64, stored: Option<u64>) -> Option<u64> {
        let due = self
            .lookups
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(1_000);
        let old = || self.removed.read().unwrap().get(&key).copied();
        stored.map(|stored| if due { old().unwrap_or(stored) } else { stored })
    }
    fn saw(&self, key: u64, value: u64) {
        self.removed.write().unwrap().insert(key, value);
    }
}

/// Loses the insert that makes it grow.
#[derive(Default)]
struct LosesOnResize;
impl Fault for LosesOnResize {
    fn swallows(&self, map: &HashMap<u64, u64>) -> bool {
        map.len() > 1_000 && map.len() == map.capacity()
    }
}

/// Sometimes keeps the value from before the last removal.
#[derive(Default)]
struct Reverts {
    last: RwLock<HashMap<u64, u64>>,
    inserts: AtomicU64,
}
impl Fault for Reverts {
    fn stores(&self, key: u64, value: u64) -> u64 {
        let due = self.inserts.fetch_add(1, Ordering::Relaxed) % 10_000 == 9_999;
        let old = self.last.read().unwrap().get(&key).copied();
        old.filter(|_| due).unwrap_or(value)
    }
    fn saw(&self, key: u64, value: u64) {
        self.last.write().unwrap().insert(key, value);
    }
}

/// One removal also removes a neighbouring key.
#[derive(Default)]
struct TakesAlong(AtomicU64);
impl Fault for TakesAlong {
    fn takes_along(&self, map: &mut HashMap<u64, u64>) {
        if self.0.fetch_add(1, Ordering::Relaxed) == 5_000 {
            let some = map.keys().next().copied();
            some.and_then(|key| map.remove(&key));
        }
    }
}

/// One lookup in a thousand misses a present key.
#[derive(Default)]
struct Hides(AtomicU64);
impl Fault for Hides {
    fn bends(&self, _: u64, stored: Option<u64>) -> Option<u64> {
        let due = self.0.fetch_add(1, Ordering::Relaxed) % 1_000 == 999;
        stored.filter(|_| !due)
    }
}

/// The same, in batches only.
#[derive(Default)]
struct HidesInBatches(Hides);
impl Fault for HidesInBatches {
    fn bends_batched(&self, key: u64, stored: Option<u64>) -> Option<u64> {
        self.0.bends(key, stored)
    }
}

/// Returns values of other keys, in batches only, and often enough for the audit alone.
#[derive(Default)]
struct MixesBatches(AtomicU64);
impl Fault for MixesBatches {
    fn bends_batched(&self, _: u64, stored: Option<u64>) -> Option<u64> {
        let due = self.0.fetch_add(1, Ordering::Relaxed) % 1_000 == 999;
        stored.map(|stored| stored ^ u64::from(due) << 40)
    }
}

/// In batches, sometimes returns an earlier value of the key.
#[derive(Default)]
struct StaleBatches(Stale);
impl Fault for StaleBatches {
    fn bends_batched(&self, key: u64, stored: Option<u64>) -> Option<u64> {
        self.0.bends(key, stored)
    }
    fn saw(&self, key: u64, value: u64) {
        self.0.saw(key, value);
    }
}

/// Loses a key for good in one resize of ten.
#[derive(Default)]
struct Forgets(AtomicU64);
impl Fault for Forgets {
    fn moves(&self, map: &RwLock<HashMap<u64, u64>>) -> bool {
        if self.0.fetch_add(1, Ordering::Relaxed) % 10 == 9 {
            let mut map = map.write().unwrap();
            let some = map.keys().next().copied();
            some.and_then(|key| map.remove(&key));
        }
        true
    }
}

/// Loses an even key for good in one resize of ten: with dense keys, one that updates go to
/// if half of the keys stay.
#[derive(Default)]
struct ForgetsUpdated(AtomicU64);
impl Fault for ForgetsUpdated {
    fn moves(&self, map: &RwLock<HashMap<u64, u64>>) -> bool {
        if self.0.fetch_add(1, Ordering::Relaxed) % 10 == 9 {
            let mut map = map.write().unwrap();
            let some = map.keys().find(|key| *key % 2 == 0).copied();
            some.and_then(|key| map.remove(&key));
        }
        true
    }
}

/// An odd key cannot be found while a resize is in progress, and is present again afterwards: with
/// dense keys, one that stays.
#[derive(Default)]
struct Blinks;
impl Fault for Blinks {
    fn moves(&self, map: &RwLock<HashMap<u64, u64>>) -> bool {
        let some = map
            .read()
            .unwrap()
            .keys()
            .find(|key| *key % 2 == 1)
            .copied();
        let Some((key, value)) = some.and_then(|key| map.write().unwrap().remove_entry(&key))
        else {
            return true;
        };
        std::thread::sleep(Duration::from_micros(100));
        map.write().unwrap().insert(key, value);
        true
    }
}

/// Grows by itself, some thousand lookups after a resize.
#[derive(Default)]
struct Drifts(AtomicU64);
impl Fault for Drifts {
    fn bends(&self, _: u64, stored: Option<u64>) -> Option<u64> {
        self.0.fetch_add(1, Ordering::Relaxed);
        stored
    }
    fn has(&self, buckets: usize) -> usize {
        buckets + usize::from(self.0.load(Ordering::Relaxed) > 5_000)
    }
    fn moves(&self, _: &RwLock<HashMap<u64, u64>>) -> bool {
        self.0.store(0, Ordering::Relaxed);
        true
    }
}

/// Reports a resize without resizing.
#[derive(Default)]
struct Idles;
impl Fault for Idles {
    fn moves(&self, _: &RwLock<HashMap<u64, u64>>) -> bool {
        false
    }
}

/// Returns values of other keys.
#[derive(Default)]
struct Mixes(AtomicU64);
impl Fault for Mixes {
    fn bends(&self, _: u64, stored: Option<u64>) -> Option<u64> {
        let due = self.0.fetch_add(1, Ordering::Relaxed) % 100 == 99;
        stored.map(|stored| stored ^ u64::from(due) << 40)
    }
}

/// Counts one too many.
#[derive(Default)]
struct Miscounts;
impl Fault for Miscounts {
    fn counts(&self, entries: usize) -> usize {
        entries + 1
    }
}

/// Panics after it has been filled and churned, which are 40,000 inserts, in a slice or the audit.
#[derive(Default)]
struct Panics(AtomicU64);
impl Fault for Panics {
    fn swallows(&self, _: &HashMap<u64, u64>) -> bool {
        assert!(
            self.0.fetch_add(1, Ordering::Relaxed) < 41_000,
            "forty-one thousand are enough"
        );
        false
    }
}

fn card(name: &str) -> TableInfo {
    let text = || "a test".to_string();
    TableInfo {
        name: name.into(),
        about: text(),
        version: text(),
        language: text(),
        hasher: text(),
        reclamation: text(),
        guarantees: text(),
        settings: text(),
        adapter: text(),
        memory: text(),
        batch: text(),
    }
}

fn entry<F: Fault>(name: &str) -> Entry {
    Entry::new(card(name))
        .map::<U64, Broken<F>>()
        .resized::<U64, Broken<F>>()
}

/// Runs a suite and returns its rows, as shown and as written.
fn measure(suite: &str) -> (Vec<Row>, Vec<Record>, End) {
    measure_within(suite, Duration::from_secs(20))
}

/// Does the same with a time limit for phases.
fn measure_within(suite: &str, patience: Duration) -> (Vec<Row>, Vec<Record>, End) {
    let registry = Registry::new(
        vec![
            entry::<Sound>("sound"),
            entry::<Drops>("drops"),
            entry::<DropsInserts>("drops inserts"),
            entry::<FindsNothing>("finds nothing"),
            entry::<Duplicates>("duplicates"),
            entry::<SlowWarmUp>("slow warm-up"),
            entry::<PanicsAtHandle>("panics at handle"),
            entry::<Stale>("stale"),
            entry::<LosesOnResize>("loses"),
            entry::<Mixes>("mixes"),
            entry::<Miscounts>("miscounts"),
            entry::<Panics>("panics"),
            entry::<Hides>("hides"),
            entry::<Forgets>("forgets"),
            entry::<ForgetsUpdated>("forgets updated"),
            entry::<Reverts>("reverts"),
            entry::<TakesAlong>("takes along"),
            entry::<Blinks>("blinks"),
            entry::<Idles>("idles"),
            entry::<HidesInBatches>("hides in batches"),
            entry::<MixesBatches>("mixes batches"),
            entry::<StaleBatches>("stale batches"),
            entry::<Drifts>("drifts"),
            Entry::new(card("fixed")).map::<U64, Broken<Sound>>(),
        ],
        Vec::new(),
    );
    let suite = Suite::parse(suite).expect("a valid suite");
    let tasks = suite
        .tasks(&Params::default(), &Topology::flat(2), true)
        .expect("valid cells");
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
    let end = Runner::new(&registry, sink, 5, facts, None, show)
        .with_patience(patience)
        .run(&tasks)
        .expect("a run");
    let text = std::fs::read_to_string(&path).expect("results");
    let records = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a record"))
        .collect();
    (rows.into_inner(), records, end)
}

fn problems(rows: &[Row], table: &str) -> String {
    let row = rows.iter().find(|row| row.table == table).expect(table);
    assert_eq!(
        row.verdict == "void",
        !row.problems.is_empty(),
        "{table}: {row:?}"
    );
    row.problems.join("; ")
}

/// Asserts that a row is void because of this.
fn voided(rows: &[Row], table: &str, word: &str) {
    let said = problems(rows, table);
    assert!(said.contains(word), "{table}: {said}");
}

/// Asserts that the rows of the reference are not void.
fn sound(rows: &[Row]) {
    assert_eq!(problems(rows, "sound"), "");
    assert_eq!(problems(rows, "sound (again)"), "");
}

const STEADY: &str = "
    name = 'steady'
    [[section]]
    kind = 'updates'
    threads = [2]
    initial = [20000]
    updates = [50.0]
    repetitions = 2
    duration-ms = 100
    slices = 2
    pin = ['default']
    reference = 'sound'
    tables = ['stale', 'mixes', 'miscounts', 'panics']
";

#[test]
fn wrong_answers_void_their_rows_and_no_other() {
    let (rows, records, end) = measure(STEADY);
    sound(&rows);
    voided(&rows, "stale", "stored was");
    voided(&rows, "mixes", "other keys");
    voided(&rows, "miscounts", "counts");
    voided(&rows, "panics", "panic in");
    assert_eq!((end.rows, end.void), (6, 4));
    assert!(matches!(records.first(), Some(Record::Manifest(_))));
    assert!(matches!(records.last(), Some(Record::End(end)) if end.void == 4));
}

#[test]
fn what_others_measured_without_noticing_voids_the_row() {
    let suite = STEADY
        .replace(
            "'stale', 'mixes', 'miscounts', 'panics'",
            "'drops inserts', 'finds nothing', 'duplicates', 'panics at handle'",
        )
        .replace("repetitions = 2", "repetitions = 1\n    churn = 0.0")
        .replace("duration-ms = 100", "duration-ms = 40")
        .replace("20000", "4000");
    let (rows, _, end) = measure(&suite);
    for (table, words) in [
        ("drops inserts", ["hit rate 0.00 %", "a steady state has"]),
        ("finds nothing", ["hit rate 0.00 %", "entries found"]),
        ("duplicates", ["entries found", "the table counts"]),
        ("panics at handle", ["panic in a slice", "three handles"]),
    ] {
        for word in words {
            voided(&rows, table, word);
        }
    }
    sound(&rows);
    assert_eq!((end.rows, end.void), (6, 4));
}

#[test]
fn a_warm_up_that_does_not_end_voids_the_row() {
    let suite = STEADY
        .replace("'stale', 'mixes', 'miscounts', 'panics'", "'slow warm-up'")
        .replace("repetitions = 2", "repetitions = 1\n    churn = 0.0")
        .replace("duration-ms = 100", "duration-ms = 20")
        .replace("updates = [50.0]", "updates = [0.0]")
        .replace("20000", "100");
    let (rows, ..) = measure_within(&suite, Duration::from_secs(2));
    voided(&rows, "slow warm-up", "took too long and was given up");
}

const BATCHES: &str = "
    name = 'batches'
    [[section]]
    kind = 'batch'
    threads = [1]
    initial = [20000]
    batch = [7]
    repetitions = 2
    duration-ms = 100
    slices = 2
    pin = ['default']
    reference = 'sound'
    tables = ['hides in batches', 'mixes batches', 'stale batches', 'hides']
";

#[test]
fn wrong_answers_in_batches_void_their_rows_and_no_other() {
    let (rows, _, end) = measure(BATCHES);
    let missed = "missed keys that were there all the time";
    // The measurement finds it; if the measurement was too short, the audit does.
    for (table, words) in [
        ("hides in batches", [missed, "get in a batch of key"]),
        ("hides", [missed, "of key"]),
        ("mixes batches", ["other keys", "get in a batch of key"]),
        ("stale batches", ["get in a batch of key"; 2]),
    ] {
        let said = problems(&rows, table);
        let is_found = words.iter().any(|word| said.contains(word));
        assert!(is_found, "{table}: {said}");
    }
    assert_eq!(problems(&rows, "sound"), "");
    assert_eq!((end.rows, end.void), (6, 4));
    let sound = rows.iter().find(|row| row.table == "sound").expect("a row");
    assert_eq!(
        sound.cell.id,
        "batch/i=20000,u=0,uniform,n=1,default,batch=7"
    );
    let summary = sound.fields.batch.as_ref().expect("a summary");
    assert_eq!((summary.keys, summary.pairs), (7, 4));
    assert!(summary.ratio.low <= summary.ratio.value && summary.ratio.value <= summary.ratio.high);
    assert!(
        rows.iter()
            .all(|row| row.fields.batch.is_some() == (row.verdict != "void"))
    );
    // The audit also looks up batches where batches are not measured.
    let (rows, ..) =
        measure(&STEADY.replace("'stale', 'mixes', 'miscounts', 'panics'", "'stale batches'"));
    voided(&rows, "stale batches", "get in a batch of key");
    assert_eq!(problems(&rows, "sound"), "");
}

#[test]
fn a_single_lost_key_is_missed() {
    // Half of the inserts find their key.
    let (rows, ..) = measure(
        &STEADY
            .replace("'stale', 'mixes', 'miscounts', 'panics'", "'drops'")
            .replace("repetitions = 2", "repetitions = 1")
            .replace("50.0", "100.0"),
    );
    assert_eq!(problems(&rows, "sound"), "");
    voided(&rows, "drops", "entries found");
}

#[test]
fn an_insert_lost_in_a_resize_is_missed() {
    // Where it is built for its entries, the map has room for 114,688: it grows after few inserts.
    for kind in ["growth", "resizing", "tails"] {
        let (rows, ..) = measure(&format!(
            "name = 'x'
            [[section]]
            kind = '{kind}'
            threads = [2]
            initial = [114500]
            load = 99.9
            repetitions = 1
            pin = ['default']
            reference = 'sound'
            tables = ['loses']"
        ));
        assert_eq!(problems(&rows, "sound"), "", "{kind}");
        voided(&rows, "loses", "entries found");
    }
}

const RESIZE: &str = "
    name = 'resize'
    [[section]]
    kind = 'resize'
    threads = [1]
    initial = [1000]
    repetitions = 3
    duration-ms = 100
    slices = 5
    pin = ['default']
    reference = 'sound'
    tables = ['forgets', 'blinks', 'idles', 'drifts', 'fixed']
";

#[test]
fn a_key_that_is_lost_in_a_resize_voids_the_row() {
    let (rows, _, end) = measure(RESIZE);
    for (table, word) in [
        ("forgets", "missed keys that were there"),
        (
            "blinks",
            "lookups missed keys that were there all the time, while it was resized",
        ),
        ("idles", "resizes left as many buckets"),
        (
            "drifts",
            "from 8192 to 8193 buckets by itself, at the smaller size",
        ),
    ] {
        voided(&rows, table, word);
    }
    sound(&rows);
    // Three cells of six tables; the seventh cannot resize on request.
    assert_eq!((end.rows, end.void), (18, 12));
    assert!(rows.iter().all(|row| row.table != "fixed"));
    assert_eq!(rows.last().expect("rows").cell.left_out, ["fixed"]);
}

#[test]
fn a_key_that_is_lost_beside_updates_voids_the_row() {
    let mix = RESIZE
        .replace(
            "threads = [1]",
            "threads = [2]\n    updates = [10.0]\n    keys = 'dense'",
        )
        .replace("'idles', 'drifts', 'fixed'", "'forgets updated'");
    let (rows, records, end) = measure(&mix);
    let misses = "lookups missed keys that were there all the time";
    voided(&rows, "forgets", misses);
    let said = problems(&rows, "blinks");
    assert!(
        said.contains(misses) && said.contains("while it was resized"),
        "{said}"
    );
    // No lookup detects it; the sums do.
    let said = problems(&rows, "forgets updated");
    assert!(
        said.contains("entries found") && !said.contains(misses),
        "{said}"
    );
    sound(&rows);
    assert_eq!((end.rows, end.void), (15, 9));

    let of_sound = |record: &Record| match record {
        Record::Slice(slice) if slice.table == "sound" => Some(slice.clone()),
        _ => None,
    };
    for slice in records.iter().filter_map(of_sound) {
        let counts = slice.counts;
        assert!(
            slice
                .cell
                .starts_with("resize/i=1000,r=1052,u=10(9+1),uniform,n=2,dense,b=")
        );
        // All kinds of outcomes occur in their shares, and the size of the table is unchanged.
        let share = |part: u64| part as f64 / counts.total() as f64;
        assert!((share(counts.inserts()) - 0.09).abs() < 0.01, "{counts:?}");
        assert!((share(counts.removes()) - 0.01).abs() < 0.005, "{counts:?}");
        assert!(counts.get_misses > 0 && counts.removed > 0 && counts.inserted > 0);
        let size = slice.checks.size.expect("counted");
        assert!((900..=1052).contains(&size), "{size}");
    }
}

#[test]
fn a_resize_row_says_where_its_rate_lies() {
    let (rows, records, _) = measure(
        &RESIZE
            .replace("'forgets', 'blinks', 'idles', 'drifts', 'fixed'", "'fixed'")
            .replace("duration-ms = 100", "duration-ms = 40"),
    );
    let with = rows
        .iter()
        .filter_map(|row| Some((row, row.fields.resize.as_ref()?)));
    let with: Vec<(&Row, &ResizeSummary)> = with.collect();
    assert!(with.iter().any(|(row, _)| row.table == "sound"));
    for (row, of) in with {
        assert_eq!(row.cell.id, "resize/i=1000,n=1,b=8192-16384");
        assert_eq!((of.buckets, of.pairs), ((8192, 16384), 15));
        assert!(of.resizes_per_s.value > 0.0 && of.busy_share.value <= 1.0);
        assert!(of.small.value > 0.0 && of.resizing.value > 0.0 && of.machine.value > 0.0);
    }
    let cell = |id: &str| {
        let of = |record: &&Record| matches!(record, Record::Slice(slice) if slice.cell == id && slice.table == "sound");
        records.iter().filter(of).count()
    };
    for buckets in ["8192", "16384", "8192-16384"] {
        assert_eq!(
            cell(&format!("resize/i=1000,n=1,b={buckets}")),
            3,
            "{buckets}"
        );
    }
}

#[test]
fn a_wrong_outcome_of_a_hot_key_voids_the_row() {
    let (rows, records, end) = measure(
        "name = 'hot'
        [[section]]
        kind = 'hot'
        threads = [2]
        initial = [1000]
        repetitions = 1
        duration-ms = 100
        pin = ['default']
        reference = 'sound'
        tables = ['reverts', 'takes along']",
    );
    // One hot key and random keys: each with the reference twice and both tables.
    assert_eq!((end.rows, end.void), (8, 4));
    for row in &rows {
        let said = row.problems.join("; ");
        let expected = match &*row.table {
            "reverts" => "stored was",
            "takes along" => "entries found",
            _ => {
                assert_eq!(said, "");
                assert!(row.rate.is_some_and(|rate| rate.value > 0.0));
                continue;
            }
        };
        assert!(said.contains(expected), "{}: {said}", row.table);
    }
    for record in records {
        if let Record::Slice(slice) = record
            && slice.table == "sound"
        {
            let counts = slice.counts;
            assert_eq!((counts.remove_failed, counts.insert_failed), (0, 0));
            assert_eq!(counts.removed, counts.inserted);
            assert!(counts.removed >= slice.operations && slice.operations > 0);
        }
    }
}

#[test]
fn a_key_that_is_inserted_and_not_found_at_once_voids_the_row() {
    let (rows, _, end) = measure(
        "name = 'tails'
        [[section]]
        kind = 'tails'
        initial = [200000]
        repetitions = 2
        pin = ['default']
        reference = 'sound'
        tables = ['hides']",
    );
    assert_eq!((end.rows, end.void), (3, 1));
    voided(&rows, "hides", "missed keys that had been inserted");
    let sound = rows.iter().find(|row| row.table == "sound").expect("a row");
    let tails = &sound.fields.tails;
    let sides: Vec<&str> = tails.iter().map(|tail| &*tail.side).collect();
    assert_eq!(sides, ["writer", "reader"]);
    assert_eq!(tails[0].operations, 400_000);
    for tail in tails {
        let limits: Vec<u64> = tail.slow.iter().map(|slow| slow.over_us).collect();
        assert_eq!(limits, [3, 50, 100]);
        let ratio = tail.empty_elapsed_ns as f64 / tail.elapsed_ns as f64;
        assert!((0.01..100.0).contains(&ratio), "{ratio}");
        assert!(tail.empty_operations > 0 && tail.max_ns >= tail.p999_ns);
        assert!(tail.slow.iter().all(|slow| slow.counts.len() == 2));
    }
}
