//! Tables that are broken on purpose: the checks detect each, and its row is void.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::marker::PhantomData;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use corewise_bench::entry::Entry;
use corewise_bench::record::{End, Record, Row};
use corewise_bench::registry::Registry;
use corewise_bench::sections::growth::SlowCount;
use corewise_bench::sections::resize::ResizeSummary;
use corewise_bench::table::{MapHandle, MeasuredMap, Resize, Setup, U64};

use crate::common::{card, run_suite};

type Map = HashMap<u64, u64>;
type Lookup = fn(&State, u64, Option<u64>) -> Option<u64>;

/// What a table does that differs from a sound one: [`SOUND`] in all but the fields of the fault.
struct Fault {
    /// Called for each handle.
    open: fn(&State),
    /// The result of a lookup, given the key and what is stored.
    get: Lookup,
    /// The same in a batch; `get` if absent.
    get_in_batch: Option<Lookup>,
    insert: fn(&State, &mut Map, u64, u64) -> bool,
    remove: fn(&State, &mut Map, u64) -> Option<u64>,
    /// The result of `size`, given the number of entries.
    size: fn(&State, usize) -> usize,
    /// The number of buckets, given that of the last resize.
    buckets: fn(&State, usize) -> usize,
    /// What a resize does to entries, and whether it changes the number of buckets.
    resize: fn(&State) -> bool,
}

const SOUND: Fault = Fault {
    open: |_| (),
    get: |_, _, stored| stored,
    get_in_batch: None,
    insert: |_, map, key, value| put(map, key, value),
    remove: |_, map, key| map.remove(&key),
    size: |_, entries| entries,
    buckets: |_, buckets| buckets,
    resize: |_| true,
};

/// The entries of a table, and what its fault needs.
#[derive(Default)]
struct State {
    map: RwLock<Map>,
    calls: AtomicU64,
    /// Earlier values of keys, or values below those in the map.
    others: RwLock<HashMap<u64, Vec<u64>>>,
}

impl State {
    /// Counts a call; returns the number of earlier ones.
    fn call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }
    /// Counts a call; returns whether it is the last of that many.
    fn is_due(&self, every: u64) -> bool {
        self.call() % every == every - 1
    }
    fn note(&self, key: u64, value: u64) {
        let mut others = self.others.write().unwrap();
        others.entry(key).or_default().push(value);
    }
    fn last_noted(&self, key: u64) -> Option<u64> {
        self.others.read().unwrap().get(&key)?.last().copied()
    }
    /// Loses a key of this kind in one resize of ten.
    fn forget(&self, is_meant: fn(u64) -> bool) -> bool {
        if self.is_due(10) {
            take_any(&mut self.map.write().unwrap(), is_meant);
        }
        true
    }
}

fn put(map: &mut Map, key: u64, value: u64) -> bool {
    match map.entry(key) {
        Occupied(_) => false,
        Vacant(entry) => {
            entry.insert(value);
            true
        }
    }
}

fn take_any(map: &mut Map, is_meant: fn(u64) -> bool) -> Option<(u64, u64)> {
    let some = map.keys().copied().find(|&key| is_meant(key));
    map.remove_entry(&some?)
}

/// Misses one lookup in a thousand of a present key.
fn hide(state: &State, _: u64, stored: Option<u64>) -> Option<u64> {
    let is_due = state.is_due(1_000);
    stored.filter(|_| !is_due)
}

/// Sometimes returns a removed value of a key that is present again.
fn get_stale(state: &State, key: u64, stored: Option<u64>) -> Option<u64> {
    let is_due = state.is_due(1_000);
    let stale = || state.last_noted(key).filter(|_| is_due);
    stored.map(|stored| stale().unwrap_or(stored))
}

fn remove_noted(state: &State, map: &mut Map, key: u64) -> Option<u64> {
    let removed = map.remove(&key);
    removed.inspect(|&value| state.note(key, value))
}

/// A type for each fault, and the entries of their tables.
macro_rules! faults {
    ($($(#[$about:meta])* $name:ident $label:literal { $($field:ident: $does:expr),* })*) => {
        $($(#[$about])* struct $name;
        impl Faulty for $name {
            const FAULT: Fault = Fault { $($field: $does,)* ..SOUND };
        })*
        fn entries() -> Vec<Entry> {
            vec![$(entry::<$name>($label).resized::<U64, Broken<$name>>()),*]
        }
    };
}

faults! {
    /// No fault.
    Sound "sound" {}
    /// Drops a single key, soon after the table has been filled.
    Drops "drops" {
        insert: |state, map, key, value| {
            !map.contains_key(&key) && state.call() == 21_000 || put(map, key, value)
        }
    }
    /// Takes every key for present: inserts nothing, and all sums agree.
    DropsInserts "drops inserts" { insert: |_, _, _, _| false }
    /// Finds nothing in lookups, while inserts and removals are right.
    FindsNothing "finds nothing" { get: |_, _, _| None }
    /// Stores a second entry for a present key. Removals take the last one, so the sums of inserts
    /// and removals agree.
    Duplicates "duplicates" {
        insert: |state, map, key, value| {
            let below = map.insert(key, value);
            below.inspect(|&below| state.note(key, below));
            true
        },
        remove: |state, map, key| {
            let removed = map.remove(&key);
            let below = state.others.write().unwrap().get_mut(&key).and_then(Vec::pop);
            below.map(|below| map.insert(key, below));
            removed
        },
        size: |state, entries| {
            entries + state.others.read().unwrap().values().map(Vec::len).sum::<usize>()
        }
    }
    /// Takes 50 ms for each lookup: a chunk takes longer than the patience of the test.
    SlowWarmUp "slow warm-up" {
        get: |_, _, stored| {
            std::thread::sleep(Duration::from_millis(50));
            stored
        }
    }
    /// Panics when the second thread of a slice begins, before the threads start together: two
    /// threads have filled the table.
    PanicsAtHandle "panics at handle" {
        open: |state| assert!(state.call() < 3, "three handles are enough")
    }
    Stale "stale" { get: get_stale, remove: remove_noted }
    /// Loses the insert that makes it grow.
    LosesOnResize "loses" {
        insert: |_, map, key, value| {
            let grows = map.len() > 1_000 && map.len() == map.capacity();
            grows && !map.contains_key(&key) || put(map, key, value)
        }
    }
    /// Returns values of other keys.
    Mixes "mixes" {
        get: |state, _, stored| {
            let is_due = state.is_due(100);
            stored.map(|stored| stored ^ u64::from(is_due) << 40)
        }
    }
    /// Counts one too many.
    Miscounts "miscounts" { size: |_, entries| entries + 1 }
    /// Panics after it has been filled and churned, which are 40,000 inserts, in a slice or the
    /// audit.
    Panics "panics" {
        insert: |state, map, key, value| {
            let is_late = !map.contains_key(&key) && state.call() >= 41_000;
            assert!(!is_late, "forty-one thousand are enough");
            put(map, key, value)
        }
    }
    Hides "hides" { get: hide }
    /// Loses a key for good in one resize of ten.
    Forgets "forgets" { resize: |state| state.forget(|_| true) }
    /// The same of an even key: with dense keys, one that updates go to if half of the keys stay.
    ForgetsUpdated "forgets updated" { resize: |state| state.forget(|key| key % 2 == 0) }
    /// Sometimes keeps the value from before the last removal.
    Reverts "reverts" {
        insert: |state, map, key, value| {
            let is_due = !map.contains_key(&key) && state.is_due(10_000);
            let old = state.last_noted(key).filter(|_| is_due);
            put(map, key, old.unwrap_or(value))
        },
        remove: remove_noted
    }
    /// One removal also removes a neighbouring key.
    TakesAlong "takes along" {
        remove: |state, map, key| {
            let removed = map.remove(&key);
            if state.call() == 5_000 {
                take_any(map, |_| true);
            }
            removed
        }
    }
    /// An odd key cannot be found while a resize is in progress, and is present again afterwards:
    /// with dense keys, one that stays.
    Blinks "blinks" {
        resize: |state| {
            let taken = take_any(&mut state.map.write().unwrap(), |key| key % 2 == 1);
            std::thread::sleep(Duration::from_micros(100));
            state.map.write().unwrap().extend(taken);
            true
        }
    }
    /// Reports a resize without resizing.
    Idles "idles" { resize: |_| false }
    HidesInBatches "hides in batches" { get_in_batch: Some(hide) }
    /// Returns values of other keys, in batches only, and often enough for the audit alone.
    MixesBatches "mixes batches" {
        get_in_batch: Some(|state, _, stored| {
            let is_due = state.is_due(1_000);
            stored.map(|stored| stored ^ u64::from(is_due) << 40)
        })
    }
    StaleBatches "stale batches" { get_in_batch: Some(get_stale), remove: remove_noted }
    /// Grows by itself, some thousand lookups after a resize.
    Drifts "drifts" {
        get: |state, _, stored| {
            state.call();
            stored
        },
        buckets: |state, buckets| {
            buckets + usize::from(state.calls.load(Ordering::Relaxed) > 5_000)
        },
        resize: |state| {
            state.calls.store(0, Ordering::Relaxed);
            true
        }
    }
}

trait Faulty: Send + Sync + 'static {
    const FAULT: Fault;
}

struct Broken<F> {
    state: State,
    buckets: AtomicUsize,
    fault: PhantomData<F>,
}

impl<F: Faulty> MeasuredMap<U64> for Broken<F> {
    type Handle<'t> = &'t Self;

    fn build(setup: &Setup) -> Self {
        let state = State::default();
        state.map.write().unwrap().reserve(setup.capacity);
        Self {
            state,
            buckets: AtomicUsize::new(1),
            fault: PhantomData,
        }
    }
    fn handle(&self) -> &Self {
        (F::FAULT.open)(&self.state);
        self
    }
    fn size(&self) -> Option<usize> {
        let entries = self.state.map.read().unwrap().len();
        Some((F::FAULT.size)(&self.state, entries))
    }
}

/// A resize that does nothing except for its faults.
impl<F: Faulty> Resize<U64> for Broken<F> {
    fn resize_to(&self, buckets: usize) {
        if (F::FAULT.resize)(&self.state) {
            self.buckets.store(buckets, Ordering::Relaxed);
        }
    }
    fn buckets(&self) -> usize {
        (F::FAULT.buckets)(&self.state, self.buckets.load(Ordering::Relaxed))
    }
}

impl<F: Faulty> MapHandle<U64> for &Broken<F> {
    fn get(&mut self, key: &u64) -> Option<u64> {
        let stored = self.state.map.read().unwrap().get(key).copied();
        (F::FAULT.get)(&self.state, *key, stored)
    }
    fn get_many<'q>(
        &mut self,
        keys: impl ExactSizeIterator<Item = &'q u64>,
        out: &mut [Option<u64>],
    ) {
        let map = self.state.map.read().unwrap();
        let get = F::FAULT.get_in_batch.unwrap_or(F::FAULT.get);
        for (key, out) in keys.zip(out) {
            *out = get(&self.state, *key, map.get(key).copied());
        }
    }
    fn insert(&mut self, key: &u64, value: u64) -> bool {
        let mut map = self.state.map.write().unwrap();
        (F::FAULT.insert)(&self.state, &mut map, *key, value)
    }
    fn remove(&mut self, key: &u64) -> Option<u64> {
        let mut map = self.state.map.write().unwrap();
        (F::FAULT.remove)(&self.state, &mut map, *key)
    }
}

fn entry<F: Faulty>(name: &str) -> Entry {
    Entry::new(card(name)).map::<U64, Broken<F>>()
}

/// Runs a suite and returns its rows, as shown and as written.
fn measure(suite: &str) -> (Vec<Row>, Vec<Record>, End) {
    measure_within(suite, Duration::from_secs(20))
}

/// Does the same with a time limit for phases.
fn measure_within(suite: &str, patience: Duration) -> (Vec<Row>, Vec<Record>, End) {
    let mut all = entries();
    all.push(entry::<Sound>("fixed"));
    let (rows, text, end) = run_suite(&Registry::new(all, Vec::new()), suite, patience);
    let record = |line| serde_json::from_str(line).expect("a record");
    (rows, text.lines().map(record).collect(), end)
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
    assert!(tails[0].max_ns > 0.0 && tails[0].empty_max_ns > 0.0);
    for tail in tails {
        let limits: Vec<u64> = tail.slow.iter().map(|slow| slow.over_us).collect();
        assert_eq!(limits, [3, 50, 100]);
        let is_less = |pair: &[SlowCount]| pair[0].count >= pair[1].count;
        assert!(tail.slow.windows(2).all(is_less), "{tail:?}");
    }
}
