//! Code and values of users that panic wherever a `CpHash` calls or drops them: nothing hangs, and
//! nothing is lost.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use corewise_cphash::{
    CacheRequest, Client, Colocated, Config, CpHash, Entry, PartitionServer, Reply,
};

/// Panics, without the message and the backtrace of a panic that is a mistake.
fn expected_panic() -> ! {
    resume_unwind(Box::new("expected"))
}

fn config() -> Config {
    Config::new(400_000).partitions(4).pipeline(64)
}

/// Counts its drops, and panics then.
#[derive(Clone)]
struct Bomb(Arc<AtomicUsize>);

impl Bomb {
    /// Makes a closure capture the bomb.
    fn touch(&self) {}
}

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
        if !std::thread::panicking() {
            expected_panic();
        }
    }
}

/// Reaches all partitions by all kinds of operations.
fn use_all_partitions(client: &mut Client) {
    for key in 0..40u64 {
        client.insert(key, b"value").unwrap();
        client.insert(key, &[7; 500]).unwrap();
        assert_eq!(client.get(key, <[u8]>::len), Some(500));
        assert!(client.execute(key, |entry| entry.remove()));
        assert!(!client.remove(key));
        client.submit(key, CacheRequest::Get(key.into())).unwrap();
    }
    let mut missing = 0;
    while client.outstanding() > 0 {
        client.poll(|_, reply| missing += usize::from(matches!(reply, Reply::Missing)));
    }
    assert_eq!(missing, 40);
}

/// What ends with a server.
enum Serving {
    Polled(PartitionServer),
    Colocated(Colocated),
}

impl Serving {
    fn new(table: &CpHash, is_colocated: bool, wake: impl Fn() + Send + Sync + 'static) -> Self {
        match is_colocated {
            false => Self::Polled(table.server(wake)),
            true => Self::Colocated(table.colocated(wake)),
        }
    }

    fn partitions(&self) -> usize {
        match self {
            Self::Polled(server) => server.partitions(),
            Self::Colocated(colocated) => colocated.partitions(),
        }
    }

    fn poll(&mut self) {
        match self {
            Self::Polled(server) => server.poll(),
            Self::Colocated(colocated) => colocated.poll(|_, _| ()),
        };
    }

    fn may_sleep(&mut self) -> bool {
        match self {
            Self::Polled(server) => server.may_sleep(),
            Self::Colocated(colocated) => colocated.may_sleep(),
        }
    }
}

/// For servers that are polled, and that are clients, too.
fn both(test: impl Fn(bool)) {
    [false, true].into_iter().for_each(test);
}

#[test]
fn a_waker_may_panic_when_it_is_dropped() {
    both(|is_colocated| {
        for threads in [0, 1] {
            let table = CpHash::new(&config(), threads).unwrap();
            let drops = Arc::new(AtomicUsize::new(0));
            for round in 1..5 {
                let bomb = Bomb(drops.clone());
                let server = Serving::new(&table, is_colocated, move || bomb.touch());
                drop(server);
                // A server thread that joins may have the last clone of the waker.
                while drops.load(Relaxed) < round {
                    std::thread::yield_now();
                }
                use_all_partitions(&mut table.client());
            }
            while table.servers() != threads {
                std::thread::yield_now();
            }
        }
    });
}

/// The client has the last clone of the waker, whose call drops its server.
#[test]
fn a_waker_may_drop_its_server_and_panic() {
    both(|is_colocated| {
        let table = CpHash::new(&config(), 0).unwrap();
        let drops = Arc::new(AtomicUsize::new(0));
        let place: Arc<Mutex<Option<Serving>>> = Arc::default();
        let (bomb, taken) = (Bomb(drops.clone()), place.clone());
        let wake = move || {
            bomb.touch();
            let server = taken.lock().unwrap().take();
            drop(server);
            expected_panic();
        };
        let mut server = Serving::new(&table, is_colocated, wake);
        server.poll();
        assert!(server.may_sleep());
        *place.lock().unwrap() = Some(server);
        let mut client = table.client();
        client.submit(1, CacheRequest::Get(1.into())).unwrap();
        client.flush();
        assert_eq!((drops.load(Relaxed), table.servers()), (1, 0));
        while client.outstanding() > 0 {
            client.poll(|_, _| ());
        }
        use_all_partitions(&mut client);
    });
}

/// A server joins and leaves while others, whose wakers panic, have partitions.
#[test]
fn panics_of_wakers_do_not_concern_other_servers() {
    both(|is_colocated| {
        let table = CpHash::new(&config(), 0).unwrap();
        let drops = Arc::new(AtomicUsize::new(0));
        let payload = drops.clone();
        let mut stays = Serving::new(&table, is_colocated, move || {
            // The payload panics when it is dropped.
            resume_unwind(Box::new(Bomb(payload.clone())))
        });
        for _ in 0..3 {
            let called = drops.load(Relaxed);
            let leaves = Serving::new(&table, is_colocated, || expected_panic());
            assert!(drops.load(Relaxed) > called);
            stays.poll();
            assert_eq!((stays.partitions(), table.servers()), (2, 2));
            drop(leaves);
            stays.poll();
            assert_eq!((stays.partitions(), table.servers()), (4, 1));
        }
        // A client wakes it.
        let called = drops.load(Relaxed);
        assert!(stays.may_sleep());
        let mut client = table.client();
        client.submit(1, CacheRequest::Get(1.into())).unwrap();
        client.flush();
        assert_eq!(drops.load(Relaxed), called + 1);
        drop(stays);
        while client.outstanding() > 0 {
            client.poll(|_, _| ());
        }
        use_all_partitions(&mut client);
    });
}

/// Wakers are called and dropped outside of all locks, by threads that own no partition then.
#[test]
fn a_waker_may_use_its_table() {
    struct InsertAtLast(Mutex<Client>);
    impl InsertAtLast {
        fn touch(&self) {}
    }
    impl Drop for InsertAtLast {
        fn drop(&mut self) {
            let client = self.0.get_mut().unwrap();
            (0..40).for_each(|key| client.insert(key, b"last").unwrap());
        }
    }
    both(|is_colocated| {
        let config = config().moving_budgets(is_colocated);
        let table = Arc::new(CpHash::new(&config, 0).unwrap());
        let last = InsertAtLast(Mutex::new(table.client()));
        let calls = Arc::new(AtomicUsize::new(0));
        let (weak, count) = (Arc::downgrade(&table), calls.clone());
        let mut server = Serving::new(&table, is_colocated, move || {
            last.touch();
            // One call sets the budget again, which calls nothing, as the server is awake.
            count.fetch_add(1, Relaxed);
            weak.upgrade().unwrap().set_budget_bytes(300_000).unwrap();
        });
        // It was called when the server joined.
        assert_eq!(calls.swap(0, Relaxed), 1);
        server.poll();
        assert!(server.may_sleep());
        table.set_budget_bytes(200_000).unwrap();
        assert!((1..=4).contains(&calls.load(Relaxed)));
        server.poll();
        assert_eq!(table.stats().budget_bytes, 300_000);
        drop(server);
        let mut client = table.client();
        assert!((0..40).all(|key| client.get(key, |value| value == b"last") == Some(true)));
    });
}

/// A closure and its result may panic in every place where they end.
#[test]
fn closures_and_results_may_panic_wherever_they_end() {
    for servers in [0, 1] {
        let table = CpHash::new(&config(), servers).unwrap();
        let drops = Arc::new(AtomicUsize::new(0));
        let mut client = table.client();
        // Captured, and dropped at the end of the closure; as its result; as its payload.
        let bomb = Bomb(drops.clone());
        let run = AssertUnwindSafe(|| client.execute(1, move |_| bomb.touch()));
        assert!(catch_unwind(run).is_err());
        let bomb = Bomb(drops.clone());
        let run = AssertUnwindSafe(|| drop(client.execute(1, move |_| bomb)));
        assert!(catch_unwind(run).is_err());
        let bomb = Bomb(drops.clone());
        let run = AssertUnwindSafe(|| client.execute(1, move |_| resume_unwind(Box::new(bomb))));
        let payload = catch_unwind(run).unwrap_err();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(payload))).is_err());
        assert_eq!(drops.load(Relaxed), 3);
        use_all_partitions(&mut client);
    }
}

/// All elements that were inserted can be freed, so no reference to them is left.
fn assert_no_reference_is_left(table: &CpHash, keys: std::ops::Range<u64>) {
    let mut client = table.client();
    keys.for_each(|key| _ = client.remove(key));
    // Servers end the lanes of clients that have left when they poll next.
    while table.stats().used_bytes > 0 {
        client.remove(0);
    }
}

/// Lookups and results that panic when they are dropped, in all orders, and a client of each kind
/// that is dropped before it has read them.
#[test]
fn undelivered_results_that_panic_cost_no_reference() {
    const KEYS: u64 = 5;
    for (servers, early, order) in (0..2)
        .flat_map(|servers| (0..2).flat_map(move |early| (0..32).map(move |o| (servers, early, o))))
    {
        let table = CpHash::new(&config(), servers).unwrap();
        let drops = Arc::new(AtomicUsize::new(0));
        let mut client = table.client();
        (0..KEYS).for_each(|key| client.insert(key, &[1; 300]).unwrap());
        let is_bomb = |key: u64| order >> key & 1 > 0;
        for key in 0..KEYS {
            if is_bomb(key) {
                let bomb = Bomb(drops.clone());
                client.submit_execute(key, key, move |_| bomb).unwrap();
            } else {
                client.submit(key, CacheRequest::Get(key.into())).unwrap();
            }
        }
        if early > 0 {
            // Keeps all outcomes for the next poll.
            client.get(0, |_| ());
        }
        drop(client);
        assert_no_reference_is_left(&table, 0..KEYS);
        assert_eq!(drops.load(Relaxed) as u32, u32::count_ones(order));

        // The same for a client that executes its operations itself.
        drops.store(0, Relaxed);
        let mut colocated = table.colocated(|| ());
        let mut tokens = 0..;
        let poll = |colocated: &mut Colocated| {
            while colocated.outstanding() > 0 {
                colocated.poll(|_, _| ());
            }
        };
        for key in 0..KEYS {
            let insert = CacheRequest::Insert(key.into(), &[1; 300]);
            colocated.submit(tokens.next().unwrap(), insert).unwrap();
        }
        poll(&mut colocated);
        for key in 0..KEYS {
            if is_bomb(key) {
                let bomb = Bomb(drops.clone());
                colocated.submit_execute(key, key, move |_| bomb).unwrap();
            } else {
                colocated
                    .submit(key, CacheRequest::Get(key.into()))
                    .unwrap();
            }
        }
        drop(colocated);
        assert_no_reference_is_left(&table, 0..KEYS);
        assert_eq!(drops.load(Relaxed) as u32, u32::count_ones(order));
    }
}

/// A panic while an outcome is delivered concerns this outcome only.
#[test]
fn outcomes_that_panic_when_they_are_delivered_cost_no_reference() {
    for servers in [0, 1] {
        let table = CpHash::new(&config(), servers).unwrap();
        let drops = Arc::new(AtomicUsize::new(0));
        let mut delivered = 0;
        let mut poll = |client: &mut Client, colocated: &mut Colocated| {
            let mut deliver = |_: u64, _: Reply<'_>| {
                delivered += 1;
                expected_panic();
            };
            let _ = catch_unwind(AssertUnwindSafe(|| client.poll(&mut deliver)));
            let _ = catch_unwind(AssertUnwindSafe(|| colocated.poll(&mut deliver)));
            delivered
        };
        let (mut client, mut colocated) = (table.client(), table.colocated(|| ()));
        for key in 0..10 {
            for request in [
                CacheRequest::Insert(key.into(), &[1; 300]),
                CacheRequest::Get(key.into()),
            ] {
                while client.submit(0, request).is_err() {
                    poll(&mut client, &mut colocated);
                }
                while colocated.submit(0, request).is_err() {
                    poll(&mut client, &mut colocated);
                }
            }
            // Another key: those of insertions may have to wait.
            let bombs = [Bomb(drops.clone()), Bomb(drops.clone())];
            let [one, other] = bombs.map(|bomb| move |_: &mut Entry<'_>| bomb);
            client.submit_execute(0, 1000 + key, one).unwrap();
            colocated.submit_execute(0, 1000 + key, other).unwrap();
        }
        while client.outstanding() + colocated.outstanding() > 0 {
            poll(&mut client, &mut colocated);
        }
        assert_eq!(poll(&mut client, &mut colocated), 60);
        assert_eq!(drops.load(Relaxed), 20);
        drop((client, colocated));
        assert_no_reference_is_left(&table, 0..10);
    }
}

/// A child of `fork` has no server threads, whatever they did when it began: it neither waits for
/// them nor panics.
#[test]
#[cfg(target_os = "linux")]
#[cfg_attr(miri, ignore = "forks")]
fn a_forked_child_drops_a_table_whose_threads_it_does_not_have() {
    for servers in [0, 1, 3] {
        for is_adaptive in [false, true] {
            let mut table = CpHash::new(&config(), servers).unwrap();
            if is_adaptive {
                table.adapt_server_threads(1..=3).unwrap();
            }
            let mut client = table.client();
            use_all_partitions(&mut client);
            client.submit(1, CacheRequest::Get(1.into())).unwrap();
            let status = in_child(|| drop((client, table)));
            assert_eq!(status, 0, "{servers} servers, adaptive: {is_adaptive}");
        }
    }
}

/// The status of a forked child that calls `drops`, which drops what the child has of a table. The
/// parent drops its own afterwards.
#[cfg(target_os = "linux")]
fn in_child(drops: impl FnOnce()) -> i32 {
    /// The child ends by a signal if it waits for longer.
    const MOST_SECONDS: u32 = 20;
    // SAFETY: the child drops what it has, which takes no lock that another thread may hold, and
    // ends without running destructors of the test program.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(MOST_SECONDS);
            let code = catch_unwind(AssertUnwindSafe(drops)).is_err();
            libc::_exit(i32::from(code));
        }
        assert!(child > 0, "fork");
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        status
    }
}

/// Without servers, a client that is dropped serves its partitions, but not in a forked child:
/// there, the other clients' threads do not exist, and the parent executes what they have sent.
#[test]
#[cfg(target_os = "linux")]
#[cfg_attr(miri, ignore = "forks")]
fn a_forked_child_executes_nothing_that_other_clients_have_sent() {
    let table = CpHash::new(&config().partitions(1), 0).unwrap();
    let [mut client, mut other] = [table.client(), table.client()];
    client.insert(1, b"value").unwrap();
    let executed = Arc::new(AtomicUsize::new(0));
    let count = executed.clone();
    let add = move |_: &mut Entry<'_>| count.fetch_add(1, Relaxed);
    other.submit_execute(0, 1, add).unwrap();
    other.flush();
    let dropped = &mut Some(client);
    let status = in_child(|| {
        drop(dropped.take());
        assert_eq!(executed.load(Relaxed), 0);
    });
    assert_eq!(status, 0);
    drop(dropped.take());
    assert_eq!(executed.load(Relaxed), 1);
}
