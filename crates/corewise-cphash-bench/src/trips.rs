//! Round trips: lookups, and insertions, that a client sends to a server thread.

use std::hint::spin_loop;
use std::time::Instant;

use corewise_cphash::{CacheRequest, Client, Config, CpHash, Reply};
use corewise_measure::draw::mix;

use crate::report::{Candidate, Options, SLICE, compare};

/// Operations between two looks at the clock.
const ROUND: u64 = 1 << 14;

fn table(keys: u64, pipeline: usize) -> (CpHash, Client) {
    let config = Config::new(keys as usize * 256)
        .partitions(1)
        .element_bytes(128);
    let table = CpHash::new(&config.pipeline(pipeline), 1).expect("within the limits");
    let mut client = table.client();
    for key in 0..keys {
        submit(
            &mut client,
            CacheRequest::Insert(key.into(), &key.to_le_bytes()),
        );
    }
    while client.outstanding() > 0 {
        client.poll(|_, _| ());
    }
    (table, client)
}

fn submit(client: &mut Client, request: CacheRequest<'_>) -> u64 {
    let mut found = 0;
    while client.submit(0, request).is_err() {
        let done = client.poll(|_, reply| found += u64::from(matches!(reply, Reply::Found(_))));
        if done == 0 {
            spin_loop();
        }
    }
    found
}

/// Millions of operations per second.
fn measure(client: &mut Client, keys: u64, inserts_percent: u64) -> f64 {
    let (start, mut count, mut draw) = (Instant::now(), 0, mix(keys));
    while start.elapsed() < SLICE {
        for _ in 0..ROUND {
            draw = draw
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let key = ((draw >> 32) * keys) >> 32;
            let request = if (draw >> 20) % 100 < inserts_percent {
                CacheRequest::Insert(key.into(), b"8 bytes!")
            } else {
                CacheRequest::Get(key.into())
            };
            submit(client, request);
        }
        count += ROUND;
    }
    while client.outstanding() > 0 {
        client.poll(|_, _| ());
    }
    count as f64 / start.elapsed().as_secs_f64() / 1e6
}

pub(crate) fn run(options: &Options) {
    for keys in [1000, 1_000_000] {
        for inserts in [0, 30] {
            let candidates = [64, 1000, 8192].map(|pipeline| {
                let (table, mut client) = table(keys, pipeline);
                Candidate::new(format!("pipeline {pipeline}"), move || {
                    let _table = &table;
                    measure(&mut client, keys, inserts)
                })
            });
            let title = format!(
                "trips: millions of operations per second, client and server thread, {keys} keys, \
                 {inserts} % insertions"
            );
            compare(&title, options, 3, candidates.into());
        }
    }
    let (table, mut client) = table(1000, 64);
    let blocking = Candidate::new("blocking, single buffer", || {
        let _table = &table;
        let (start, mut count) = (Instant::now(), 0u64);
        while start.elapsed() < SLICE {
            for key in 0..100 {
                assert!(client.get(key, |_| ()).is_some());
            }
            count += 100;
        }
        count as f64 / start.elapsed().as_secs_f64() / 1e6
    });
    compare("trips: one operation at a time", options, 1, vec![blocking]);
}
