//! Models of messages, hand-off, sleep and departure, with two threads.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc as StdArc;
use std::sync::atomic::AtomicUsize;

use corewise_atomic::cell::DataCell;
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::AtomicBool;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::{model_bounded, thread};

use super::shard::{OwnerId, Shard};
use super::{Client, CpHash, PartitionServer};
use crate::config::Config;
use crate::element::Layout;
use crate::key::Mixer;
use crate::lockhash::{CacheRequest, Reply};

type Hasher = BuildHasherDefault<DefaultHasher>;

/// One partition with one bucket.
fn config() -> Config {
    // The model checkers are to see the ends of small rings.
    let pipeline = if cfg!(any(corewise_loom, corewise_shuttle)) {
        4
    } else {
        64
    };
    let config = Config::new(1024).partitions(1).element_bytes(1024);
    // Clients copy all values.
    config.pipeline(pipeline).inline_values(false)
}

fn table() -> CpHash<Hasher> {
    CpHash::with_hasher(&config(), 0, Hasher::default()).unwrap()
}

/// Runs a client on another thread while this one polls the server.
fn beside_a_server(use_client: impl FnOnce(Client<Hasher>) + Send + 'static) {
    let table = table();
    let mut server = table.server(|| {});
    let client = table.client();
    let is_done = Arc::new(AtomicBool::new(false));
    let done = is_done.clone();
    let user = thread::spawn(move || {
        use_client(client);
        done.store(true, Release); // pairs with the Acquire below
    });
    // Pairs with the Release above.
    while !is_done.load(Acquire) {
        server.poll();
        thread::yield_now();
    }
    user.join().unwrap();
}

/// A short value travels in the message, which may cross lines and fill the ring.
#[test]
fn messages_carry_short_values() {
    model_bounded(2, || {
        let config = config().inline_values(true);
        let table = CpHash::with_hasher(&config, 0, Hasher::default()).unwrap();
        let mut server = table.server(|| {});
        let mut client = table.client();
        let user = thread::spawn(move || {
            client.submit(0, CacheRequest::Get(1.into())).unwrap();
            client
                .submit(1, CacheRequest::Insert(1.into(), b"value in messages"))
                .unwrap();
            client.flush();
            client
        });
        server.poll();
        let mut client = user.join().unwrap();
        server.poll();
        assert_eq!(client.poll(|_, _| ()), 2);
        client.submit(2, CacheRequest::Get(1.into())).unwrap();
        client.flush();
        server.poll();
        client.poll(|_, reply| assert!(matches!(reply, Reply::Found(b"value in messages"))));
    });
}

fn settle(client: &mut Client<Hasher>, mut deliver: impl FnMut(u64, Reply<'_>)) {
    while client.outstanding() > 0 {
        if client.poll(&mut deliver) == 0 {
            thread::yield_now();
        }
    }
}

/// The server compares the keys that the client writes, and frees the value that it reads.
#[test]
fn values_are_complete_when_ready_and_kept_until_the_decref() {
    model_bounded(2, || {
        beside_a_server(|mut client| {
            for value in [b"1", b"2"] {
                client
                    .submit(0, CacheRequest::Insert("key".into(), value))
                    .unwrap();
                settle(&mut client, |_, _| ());
            }
            client.submit(1, CacheRequest::Get("key".into())).unwrap();
            // The decref is the last user's.
            client
                .submit(2, CacheRequest::Remove("key".into()))
                .unwrap();
            settle(&mut client, |token, reply| match token {
                1 => assert!(matches!(reply, Reply::Found(b"2")), "{reply:?}"),
                _ => assert!(matches!(reply, Reply::Removed(true)), "{reply:?}"),
            });
        });
    });
}

#[test]
fn the_single_buffer_carries_requests_and_replies() {
    model_bounded(2, || {
        beside_a_server(|mut client| {
            client.insert(7, b"value").unwrap();
            assert_eq!(client.get(7, <[u8]>::len), Some(5));
            assert_eq!(client.get(0, <[u8]>::len), None);
        });
    });
}

/// What a client has sent is executed after it has left, exactly once.
#[test]
fn a_client_that_leaves_is_served() {
    model_bounded(2, || {
        let table = table();
        let mut server = table.server(|| {});
        let mut client = table.client();
        let executed = StdArc::new(AtomicUsize::new(0));
        let count = executed.clone();
        let user = thread::spawn(move || {
            client
                .submit(0, CacheRequest::Insert(1.into(), b"value"))
                .unwrap();
            client
                .submit_execute(1, 2, move |_| count.fetch_add(1, Relaxed))
                .unwrap();
        });
        server.poll();
        server.poll();
        user.join().unwrap();
        server.poll();
        assert_eq!(executed.load(Relaxed), 1);
        assert_eq!(table.stats().used_bytes, 0);
    });
}

/// Without servers, what two clients have sent is executed when both have left, although one may
/// find that the other one serves the partition.
#[test]
fn the_last_of_two_clients_leaves_nothing_behind() {
    model_bounded(2, || {
        let table = table();
        let executed = StdArc::new(AtomicUsize::new(0));
        let mut clients = [table.client(), table.client()].map(|mut client| {
            let count = executed.clone();
            client
                .submit_execute(1, 2, move |_| count.fetch_add(1, Relaxed))
                .unwrap();
            Some(client)
        });
        let other = clients[0].take();
        let leaving = thread::spawn(move || drop(other));
        drop(clients);
        leaving.join().unwrap();
        assert_eq!(executed.load(Relaxed), 2);
    });
}

/// After the outcome of an insertion another client finds the value, also if the server looks at
/// its lane first.
#[test]
fn a_published_value_is_found_by_others() {
    model_bounded(2, || {
        let table = table();
        let mut server = table.server(|| {});
        let (mut writer, mut reader) = (table.client(), table.client());
        reader.submit(0, CacheRequest::Get(2.into())).unwrap();
        reader.flush();
        server.poll();
        assert_eq!(reader.poll(|_, _| ()), 1);
        let user = thread::spawn(move || {
            writer
                .submit(0, CacheRequest::Insert(1.into(), b"new"))
                .unwrap();
            writer.poll(|_, _| ());
            thread::yield_now();
            let is_done = writer.poll(|_, _| ()) + writer.poll(|_, _| ()) > 0;
            reader.submit(1, CacheRequest::Get(1.into())).unwrap();
            reader.flush();
            (is_done, writer, reader)
        });
        server.poll();
        server.poll();
        let (is_done, _writer, mut reader) = user.join().unwrap();
        server.poll();
        reader.poll(|_, reply| assert!(!is_done || matches!(reply, Reply::Found(b"new"))));
    });
}

fn shard() -> Arc<Shard> {
    let (_, settings) = config()
        .settings(1, Layout::Split, Mixer::with_seeds(1, 1))
        .unwrap();
    Arc::new(Shard::new(&settings).unwrap())
}

/// Hand-off 1.
#[test]
fn one_thread_at_a_time_owns_a_partition() {
    model_bounded(3, || {
        let shared = Arc::new((shard(), DataCell::new(0)));
        let serve_once = |shared: &(Arc<Shard>, DataCell<i32>), slot| {
            if shared.0.claim(OwnerId::server(slot)) {
                // SAFETY: this thread has claimed the partition, and does not use it after
                // `release` (1, both).
                unsafe {
                    shared.0.serve();
                    shared.1.with_mut(|value| *value += 1);
                    shared.0.release();
                }
            }
        };
        let other = shared.clone();
        let server = thread::spawn(move || serve_once(&other, 1));
        serve_once(&shared, 0);
        server.join().unwrap();
    });
}

/// Messages that are on their way while a partition moves to a server that joins are executed once,
/// and find the partition as the former server left it.
#[test]
fn messages_move_with_their_partition() {
    model_bounded(2, || {
        let config = config().partitions(2);
        let table = StdArc::new(CpHash::with_hasher(&config, 0, Hasher::default()).unwrap());
        let mut old = table.server(|| {});
        let mut client = table.client();
        let executed = StdArc::new(AtomicUsize::new(0));
        for partition in 0..2 {
            let count = executed.clone();
            let key = (0..).find(|&key| client.partition_of(key) == partition);
            client
                .submit_execute(0, key.unwrap(), move |_| count.fetch_add(1, Relaxed))
                .unwrap();
        }
        client.flush();
        let shared = table.clone();
        let joining = thread::spawn(move || {
            let mut new = shared.server(|| {});
            new.poll();
            new
        });
        old.poll();
        old.poll();
        let mut new = joining.join().unwrap();
        old.poll();
        new.poll();
        assert_eq!(executed.load(Relaxed), 2);
        assert_eq!((old.partitions(), new.partitions()), (1, 1));
        assert_eq!(client.poll(|_, _| ()), 2);
    });
}

/// Hand-off 2: either the new owner's claim succeeds, or the old one is told to wake it.
#[test]
fn a_server_that_finds_its_partition_owned_is_woken() {
    model_bounded(3, || {
        let shard = shard();
        assert!(shard.claim(OwnerId::server(0)));
        let old = shard.clone();
        // SAFETY: server 0 has claimed the partition, and does not use it afterwards (1).
        let releasing = thread::spawn(move || unsafe { old.release() });
        shard.set_desired(Some(1));
        let claimed = shard.claim(OwnerId::server(1));
        let woken = releasing.join().unwrap();
        assert!(claimed || woken == Some(1));
    });
}

/// A message that arrives while the server falls asleep is served, or wakes the server.
#[test]
fn no_message_is_slept_through() {
    model_bounded(3, || {
        let table = table();
        let is_woken = Arc::new(AtomicBool::new(false));
        let woken = is_woken.clone();
        let mut server: PartitionServer = table.server(move || woken.store(true, Relaxed));
        let mut client = table.client();
        // The lane exists before the server falls asleep.
        client.submit(0, CacheRequest::Get(1.into())).unwrap();
        client.flush();
        server.poll();
        // When it joined it was woken, too.
        is_woken.store(false, Relaxed);
        let user = thread::spawn(move || {
            client.submit(1, CacheRequest::Get(1.into())).unwrap();
            client.flush();
            client
        });
        let mut served = server.poll();
        let sleeps = server.may_sleep();
        if !sleeps {
            served += server.poll();
        }
        let client = user.join().unwrap();
        // The thread is over, so a wake-up has happened by now.
        assert!(served > 0 || is_woken.load(Relaxed));
        drop(client);
    });
}
