//! Models of whole structures: two replicas, two or three threads, a log of four entries.

use corewise_atomic::cell::DataCell;
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::AtomicU32;
use corewise_atomic::sync::atomic::Ordering::SeqCst;
use corewise_atomic::thread::{self, JoinHandle};
use corewise_atomic::{model, model_bounded};

use crate::registration::Registry;
use crate::replicated::Garbage;
use crate::{Builder, NodeReplicated, ReplicaId, Sequential};

/// A sum. Operations own memory, so that loom sees whether they are used after they are dropped.
#[derive(Clone, Default)]
struct Sum(u64);

impl Sequential for Sum {
    type Read = ();
    type Write = Box<u64>;
    type Response = u64;

    fn read(&self, (): &()) -> u64 {
        self.0
    }

    fn write(&mut self, more: &Box<u64>) -> u64 {
        self.0 += **more;
        self.0
    }
}

type SharedSum = Arc<NodeReplicated<Sum>>;

fn build(replicas: usize, max_log: usize) -> (SharedSum, Vec<ReplicaId>) {
    build_with(replicas, 4, max_log)
}

fn build_with(replicas: usize, log: usize, max_log: usize) -> (SharedSum, Vec<ReplicaId>) {
    let builder = Builder::new().replicas(replicas).max_replicas(2);
    let builder = builder.log(log).max_log(max_log);
    let builder = builder.slots(2).shared_slots(1).bypass_single(false);
    let built = builder.build(|_| Sum::default()).unwrap();
    let ids = built.replicas();
    (Arc::new(built), ids)
}

fn read(shared: &SharedSum, replica: ReplicaId) -> u64 {
    shared.handle(Some(replica)).unwrap().read_with(|sum| sum.0)
}

/// Writes with one handle.
fn write_each(shared: &SharedSum, replica: ReplicaId, values: &[u64]) -> u64 {
    let handle = shared.handle(Some(replica)).unwrap();
    let write = |&value: &u64| handle.write(Box::new(value));
    values.iter().map(write).last().unwrap()
}

fn spawn<R: Send + 'static>(
    shared: &SharedSum,
    body: impl FnOnce(&SharedSum) -> R + Send + 'static,
) -> JoinHandle<R> {
    let shared = shared.clone();
    thread::spawn(move || body(&shared))
}

#[test]
fn writers_of_two_replicas_agree() {
    model_bounded(3, || {
        let (shared, ids) = build(2, 4);
        let one = ids[0];
        let writer = spawn(&shared, move |shared| write_each(shared, one, &[1]));
        let mine = write_each(&shared, ids[1], &[2]);
        let other = writer.join().unwrap();
        assert!((mine, other) == (2, 3) || (mine, other) == (3, 1));
        assert_eq!((read(&shared, ids[0]), read(&shared, ids[1])), (3, 3));
    });
}

#[test]
fn a_write_is_seen_by_a_later_read_elsewhere() {
    model_bounded(3, || {
        let (shared, ids) = build_with(2, 8, 8);
        let one = ids[0];
        let writer = spawn(&shared, move |shared| write_each(shared, one, &[1]));
        let sum = write_each(&shared, ids[0], &[2]);
        assert!(read(&shared, ids[1]) >= sum);
        writer.join().unwrap();
    });
}

#[test]
fn what_one_read_sees_a_later_one_elsewhere_sees() {
    model_bounded(2, || {
        let (shared, ids) = build(2, 4);
        let one = ids[0];
        let writer = spawn(&shared, move |shared| write_each(shared, one, &[1]));
        let first = read(&shared, ids[0]);
        assert!(read(&shared, ids[1]) >= first);
        writer.join().unwrap();
    });
}

#[test]
fn reads_agree_while_entries_are_filled_out_of_order() {
    model_bounded(1, || {
        let (shared, ids) = build_with(2, 8, 8);
        let writers = [1, 10].map(|value| {
            let id = ids[usize::from(value == 10)];
            spawn(&shared, move |shared| write_each(shared, id, &[value]))
        });
        let first = read(&shared, ids[0]);
        let second = read(&shared, ids[1]);
        assert!(second == 11 || second == first || first == 0);
        let mut sums = writers.map(|writer| writer.join().unwrap());
        sums.sort_unstable();
        assert!(sums == [1, 11] || sums == [10, 11]);
        assert_eq!((read(&shared, ids[0]), read(&shared, ids[1])), (11, 11));
    });
}

/// A reader looks at an entry while another thread advances its replica over a GROW entry and frees
/// the ring.
#[test]
fn a_reader_holds_its_ring() {
    model_bounded(2, || {
        let (shared, ids) = build(2, 8);
        write_each(&shared, ids[0], &[1, 1]);
        assert_eq!(read(&shared, ids[1]), 2);
        shared.log.grow();
        let one = ids[0];
        let reader = spawn(&shared, move |shared| read(shared, one));
        shared.refresh();
        let mut garbage = Garbage::new();
        shared.scan(&mut garbage);
        garbage.discard();
        assert_eq!(reader.join().unwrap(), 2);
        assert_eq!(write_each(&shared, ids[1], &[1]), 3);
        assert_eq!(read(&shared, one), 3);
    });
}

#[test]
fn entries_are_used_again_after_all_have_executed_them() {
    model_bounded(2, || {
        let (shared, ids) = build(2, 4);
        let one = ids[0];
        let writer = spawn(&shared, move |shared| {
            write_each(shared, one, &[1, 1, 1, 1])
        });
        write_each(&shared, ids[1], &[1]);
        writer.join().unwrap();
        assert_eq!(read(&shared, ids[1]), 5);
        assert_eq!(read(&shared, ids[0]), 5);
    });
}

#[test]
fn the_log_grows_beside_a_reader_and_a_writer() {
    model_bounded(1, || {
        let (shared, ids) = build(2, 8);
        let one = ids[0];
        let writer = spawn(&shared, move |shared| {
            write_each(shared, one, &[1, 1, 1, 1])
        });
        let handle = shared.handle(Some(ids[1])).unwrap();
        let before = handle.read_with(|sum| {
            thread::yield_now();
            sum.0
        });
        assert!(handle.write(Box::new(1)) > before);
        writer.join().unwrap();
        assert_eq!(handle.read_with(|sum| sum.0), 5);
    });
}

#[test]
fn a_parked_thread_is_woken() {
    model_bounded(2, || {
        let (shared, ids) = build_with(1, 8, 8);
        let one = ids[0];
        let writers =
            [1, 2].map(|value| spawn(&shared, move |shared| write_each(shared, one, &[value])));
        let _ = writers.map(|writer| writer.join().unwrap());
        assert_eq!(read(&shared, one), 3);
    });
}

#[test]
fn a_reader_does_not_depend_on_a_combiner() {
    model_bounded(2, || {
        let (shared, ids) = build(2, 4);
        let one = ids[0];
        let writer = spawn(&shared, move |shared| write_each(shared, one, &[1]));
        let readers = spawn(&shared, move |shared| read(shared, one));
        let sum = read(&shared, ids[1]);
        writer.join().unwrap();
        readers.join().unwrap();
        assert!(read(&shared, ids[1]) >= sum);
        assert_eq!(read(&shared, ids[1]), 1);
    });
}

#[test]
fn a_dedicated_combiner_works_beside_a_writer() {
    model_bounded(2, || {
        let (shared, ids) = build(1, 4);
        let one = ids[0];
        let combiner = spawn(&shared, move |shared| {
            let mut rounds = 0..2;
            shared.combine_until(one, || rounds.next().is_none());
        });
        assert_eq!(write_each(&shared, one, &[1]), 1);
        combiner.join().unwrap();
        assert_eq!(write_each(&shared, one, &[1]), 2);
        assert_eq!(read(&shared, one), 2);
    });
}

#[test]
fn a_replica_joins_beside_a_writer() {
    model_bounded(1, || {
        let (shared, ids) = build(1, 64);
        let one = ids[0];
        let writer = spawn(&shared, move |shared| {
            write_each(shared, one, &[1, 1, 1, 1, 1])
        });
        let before = read(&shared, one);
        let joined = shared.add_replica(None).unwrap();
        assert!(read(&shared, joined) >= before);
        writer.join().unwrap();
        assert_eq!(read(&shared, joined), 5);
    });
}

#[test]
fn a_replica_leaves_beside_a_writer() {
    model_bounded(3, || {
        let (shared, ids) = build(2, 4);
        let handle = |shared: &SharedSum, id| {
            let handle = shared.handle(Some(id));
            handle.map(|handle| handle.write(Box::new(1)))
        };
        let last = ids[1];
        let writer = spawn(&shared, move |shared| handle(shared, last).is_ok());
        shared.remove_replica(last).unwrap();
        let has_written = writer.join().unwrap();
        assert_eq!(read(&shared, ids[0]), u64::from(has_written));
    });
}

#[test]
fn a_lone_replica_skips_the_log_until_another_joins() {
    model_bounded(2, || {
        let builder = Builder::new().replicas(1).max_replicas(2).log(4).max_log(4);
        let built = builder.slots(2).shared_slots(1).build(|_| Sum::default());
        let shared: SharedSum = Arc::new(built.unwrap());
        let one = shared.replicas()[0];
        let writer = spawn(&shared, move |shared| write_each(shared, one, &[1, 1]));
        let joined = shared.add_replica(None).unwrap();
        let sum = read(&shared, joined);
        assert!(read(&shared, one) >= sum);
        writer.join().unwrap();
        assert_eq!(read(&shared, joined), 2);
        shared.remove_replica(one).unwrap();
        assert_eq!(write_each(&shared, joined, &[1]), 3);
    });
}

#[test]
fn an_own_slot_belongs_to_one_thread_at_a_time() {
    model(|| {
        let registry = Registry::single(1, 1);
        let cell = Arc::new(DataCell::new(0));
        let use_slot = |registry: &Registry, cell: &DataCell<i32>| {
            let place = registry.claim(0);
            if !place.is_shared() {
                // SAFETY: the slot, and with it the cell, is the thread's.
                cell.with_mut(|value| unsafe { *value += 1 });
            }
            registry.release(place);
        };
        let (other_registry, other_cell) = (registry.clone(), cell.clone());
        let other = thread::spawn(move || use_slot(&other_registry, &other_cell));
        use_slot(&registry, &cell);
        other.join().unwrap();
    });
}

/// Threads of one structure that come and go, with replicas that do.
#[test]
fn threads_and_replicas_come_and_go() {
    let body = || {
        let builder = Builder::new().replicas(2).max_replicas(3).log(4).max_log(8);
        let built = builder.slots(1).shared_slots(1).build(|_| Sum::default());
        let shared: SharedSum = Arc::new(built.unwrap());
        let running = Arc::new(AtomicU32::new(3));
        let writers = [1, 10, 100].map(|value| {
            let running = running.clone();
            spawn(&shared, move |shared| {
                (0..3).for_each(|_| _ = shared.write(Box::new(value)));
                running.fetch_sub(1, SeqCst);
            })
        });
        while running.load(SeqCst) > 0 {
            let before = shared.read_with(|sum| sum.0);
            let first = shared.replicas()[0];
            _ = shared.add_replica(None);
            assert!(shared.read_with(|sum| sum.0) >= before);
            shared.remove_replica(first).unwrap();
        }
        let _ = writers.map(|writer| writer.join().unwrap());
        assert_eq!(shared.read_with(|sum| sum.0), 333);
    };
    // loom would take days.
    if !cfg!(corewise_loom) {
        model(body);
    }
}
