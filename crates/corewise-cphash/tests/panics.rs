//! Code and values of users that panic wherever a `CpHash` calls or drops them: nothing hangs, and
//! nothing is lost.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use corewise_cphash::{Client, Colocated, Config, CpHash, Reply, Request, Server};

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
        client.submit(key, Request::Get(key.into())).unwrap();
    }
    let mut missing = 0;
    while client.outstanding() > 0 {
        client.poll(|_, reply| missing += usize::from(matches!(reply, Reply::Missing)));
    }
    assert_eq!(missing, 40);
}

/// What ends with a server.
enum Serving {
    Polled(Server),
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
        client.submit(1, Request::Get(1.into())).unwrap();
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
        client.submit(1, Request::Get(1.into())).unwrap();
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
