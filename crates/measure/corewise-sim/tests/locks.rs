//! The locks of `corewise-locks`, unchanged, on many simulated processors.

use corewise_atomic::hint;
use corewise_atomic::sync::Arc;
use corewise_locks::{
    Adaptive, Anderson, Clh, DistributedRw, Lock, Mcs, Parking, RawLock, Tas, Ticket, Ttas,
    TtasBackoff,
};
use corewise_sim::{Config, run};

use super::{in_threads, on_machine, seeded};

const THREADS: u64 = 32;
const ROUNDS: u64 = 30;

/// The digest of threads that increment a plain number under a lock.
fn count_under<L: RawLock>(config: Config) -> u64 {
    let finished = run(config, || {
        let total = Arc::new(Lock::<u64, L>::new(0));
        let shared = total.clone();
        in_threads(THREADS, move |_| {
            for _ in 0..ROUNDS {
                let mut total = shared.lock();
                let before = *total;
                // Another holder would come in between.
                hint::spin_loop();
                *total = before + 1;
            }
        });
        *total.lock()
    });
    let finished = finished.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(finished.value, THREADS * ROUNDS);
    finished.digest
}

macro_rules! locks {
    ($($test:ident: $lock:ty;)*) => {$(
        #[test]
        fn $test() {
            for config in [seeded, on_machine] {
                let digests = [1, 1, 2].map(|seed| count_under::<$lock>(config(seed)));
                assert_eq!(digests[0], digests[1]);
                assert_ne!(digests[0], digests[2]);
            }
        }
    )*};
}

locks! {
    tas: Tas;
    ttas: Ttas;
    ttas_with_backoff: TtasBackoff;
    ticket: Ticket;
    anderson: Anderson;
    clh: Clh;
    mcs: Mcs;
    parking: Parking;
    adaptive: Adaptive;
    distributed_readers_writer: DistributedRw;
}
