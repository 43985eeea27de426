mod http;
mod prometheus;

use super::*;
use crate::classes::Column;
use crate::config::Config;
use crate::fake_engine::{Completion, FakeEngine};
use corewise_atomic::sync::atomic::{AtomicBool, Ordering::Relaxed};
use mio::{Poll, Token, Waker};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

const NOW: Now = Now::new(5_000_000, 1_800_000_000);

/// A server that has counted nothing.
struct Server {
    shared: Shared,
    engine: Arc<FakeEngine>,
    _poll: Poll,
}

impl Server {
    fn new() -> Self {
        let poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), Token(0)).unwrap();
        let config = Config {
            threads: 2,
            ..Config::default()
        };
        Self {
            shared: crate::server::share(config, None, waker),
            engine: FakeEngine::new(Completion::InSubmit),
            _poll: poll,
        }
    }

    /// Sets all counters and gauges to numbers that differ; the counters are more than `base`.
    fn count(&self, base: u64) {
        let shared = &self.shared;
        shared.loops[0].counts.publish(&Counters::distinct(base));
        let gauges = &shared.loops[1];
        gauges.connections.store(3, Relaxed);
        gauges.buffer_bytes.store(20_000, Relaxed);
        gauges.unwritten_bytes.store(4_000, Relaxed);
        gauges.input_bytes.store(2_000, Relaxed);
        gauges.output_bytes.store(1_000, Relaxed);
        shared.dumps.store(1, Relaxed);
        shared.accepting.store(false, Relaxed);
        shared.total_connections.store(base + 100, Relaxed);
        shared.rejected_connections.store(base + 101, Relaxed);
        shared.listen_disabled.store(base + 102, Relaxed);
        shared.listen_disabled_us.store(base + 103, Relaxed);
        shared.loops[1].commands.set_distinct(base + 120);
        self.engine.script.lock().stats = EngineStats {
            items: 5,
            prefixed: [0; 16],
            dead_prefixed: [0; 16],
            total_items: base + 104,
            bytes: 900_000,
            table_bytes: 300_000,
            dead_bytes: 70_000,
            buckets: 1_024,
            evictions: base + 105,
            evicted_unfetched: base + 106,
            reclaimed: base + 107,
            expired_unfetched: base + 108,
            out_of_memory: base + 109,
            sets: 0,
            set_bytes: 0,
            set_slack_bytes: 0,
            evicted_idle_s: 60,
            shards: 7,
            expired_reclaimed: base + 110,
            backlog_bytes: 8_000,
            grace_periods: 80,
            longest_chain: 9,
            table_resizing: 1,
            zipped_tables: 2,
            segments: 50,
            segments_free: 40,
            segment_bytes: 30_000,
            lock_waits: base + 111,
            lock_wait_ns: (base + 112) * 1_000,
        };
    }

    /// The metrics with one value that does not depend on the time.
    fn values(&self) -> Vec<(&'static Metric, Option<String>)> {
        let mut values = values(&self.shared, &*self.engine, NOW, |_| true);
        values.retain(|(metric, _)| metric.is_stable());
        values
    }

    fn counter(&self, name: &str) -> u64 {
        let values = self.values();
        let value = values.iter().find(|(metric, _)| metric.name() == name);
        let value = value.and_then(|(_, value)| value.as_ref());
        value.expect(name).parse().expect(name)
    }
}

impl Metric {
    /// Whether it has one value, which does not depend on the time.
    fn is_stable(&self) -> bool {
        let is_of_process = |row: Sample| row.family.starts_with("process_");
        if matches!(self.reading, Reading::Series(_)) || self.prom.is_some_and(is_of_process) {
            return false;
        }
        let of_process = ["rusage", "used_cpu", "used_memory_rss", "server_time"];
        let of_resident = ["allocator_", "mem_fragmentation"];
        let mut with_time = of_process.iter().chain(&of_resident);
        !with_time.any(|prefix| self.name().starts_with(prefix))
    }

    fn name(&self) -> &'static str {
        let info = self.info.map(|(_, name)| name);
        let prom = self.prom.map(|row| row.family);
        let name = self.stats.or(info).or(prom);
        name.expect("a metric has a name")
    }

    fn is_counter(&self) -> bool {
        matches!(self.reading, Reading::Counter(_))
    }
}

#[test]
fn every_metric_is_printed_once_by_each_printer_that_it_names() {
    let server = Server::new();
    server.count(1_000);
    let mut out = Vec::new();
    stats(&server.shared, &*server.engine, NOW, &mut out);
    let stats = String::from_utf8(out).unwrap();
    let printed = stats
        .lines()
        .map(|line| line.split(' ').nth(1).unwrap_or(line));
    let names = table::METRICS.iter().filter_map(|metric| metric.stats);
    let names: Vec<&str> = names.chain(["END"]).collect();
    assert_eq!(printed.collect::<Vec<_>>(), names);
    assert_eq!(names[0], "pid");
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
    let info = info(
        &server.shared,
        &*server.engine,
        NOW,
        Sections::asked([&b"all"[..]].into_iter()),
    );
    let sections: Vec<&str> = info.split("\r\n\r\n").collect();
    assert_eq!(sections.len(), Section::ALL.len());
    for (section, printed) in Section::ALL.into_iter().zip(sections) {
        let mut lines = printed.lines();
        assert_eq!(lines.next(), Some(&*format!("# {}", section.title())));
        let has_rows = !matches!(
            section,
            Section::Commandstats | Section::Errorstats | Section::Keyspace
        );
        let lines = lines.filter(|_| has_rows);
        let printed = lines.map(|line| line.split(':').next().unwrap());
        let names = table::METRICS.iter().filter_map(|metric| metric.info);
        let names = names.filter_map(|(of, name)| (of == section).then_some(name));
        assert_eq!(printed.collect::<Vec<_>>(), names.collect::<Vec<_>>());
    }
    assert!(info.starts_with("# Server\r\nredis_version:7.0.15\r\n"));
    assert!(info.ends_with("# Keyspace\r\ndb0:keys=5,expires=0,avg_ttl=0\r\n"));
}

#[test]
fn every_counter_and_gauge_is_read() {
    let server = Server::new();
    let before = server.values();
    server.count(1_000);
    let (mut counts, mut gauges) = (HashMap::new(), Vec::new());
    for ((metric, after), (_, before)) in server.values().into_iter().zip(before) {
        let after = after.expect("all have a value");
        if metric.is_counter() {
            assert_eq!(before.as_deref(), Some("0"), "{}", metric.name());
            let other = counts.insert(after, metric.name());
            assert_eq!(other, None, "{} prints the same", metric.name());
        } else if Some(&after) != before.as_ref() {
            gauges.push(format!("{}:{after}", metric.name()));
        }
    }
    assert_eq!(
        gauges.join(" "),
        "curr_connections:3 connection_structures:3 connection_buffer_bytes:20000 \
         read_buf_bytes:2000 response_obj_bytes:1000 accepting_conns:0 used_memory:900000 used_memory_human:878.91K used_memory_peak:900000 \
         used_memory_peak_human:878.91K used_memory_peak_perc:100.00% \
         used_memory_overhead:300000 used_memory_dataset:600000 \
         used_memory_dataset_perc:66.67% mem_clients_normal:16000 hash_bytes:300000 hash_buckets:1024 hash_power_level:10 \
         hash_is_expanding:1 hash_zipped:2 hash_longest_chain:9 rcu_backlog_bytes:8000 \
         rcu_grace_periods:80 segments_total:50 segments_free:40 segments_size:30000 \
         engine_shards:7 bytes:600000 bytes_flushed_waiting:70000 curr_items:5 \
         evicted_time:60 slab_global_page_pool:40 lru_crawler_running:1 rdb_changes_since_last_save:1104"
    );
}

#[test]
fn a_reset_concerns_what_is_printed_of_counters_and_nothing_else() {
    let server = Server::new();
    for base in [1_000, 2_000] {
        server.count(base);
        let before = server.values();
        reset(&server.shared, &*server.engine, NOW);
        let after = server.values();
        server.count(base + 20);
        for (index, (metric, later)) in server.values().into_iter().enumerate() {
            let expected = match metric.name() {
                // Items stored, which no reset concerns.
                "rdb_changes_since_last_save" => [104, 124].map(|n| (base + n).to_string()),
                "direct_reclaims" | "expired_keys" => ["0".to_owned(), "40".to_owned()],
                _ if metric.is_counter() => ["0".to_owned(), "20".to_owned()],
                _ => [0, 1].map(|_| before[index].1.clone().unwrap()),
            };
            let seen = [after[index].1.clone(), later];
            assert_eq!(seen, expected.map(Some), "{}", metric.name());
        }
    }
    // The counters themselves never fall.
    assert_eq!(
        server.shared.counters().turns,
        Counters::distinct(2_020).turns
    );
}

#[test]
fn a_reset_concerns_the_counters_of_classes() {
    let server = Server::new();
    let class = |class, items, count| ClassStats {
        class,
        items,
        bytes: 64 * items,
        max_bytes: 64,
        evictions: count,
        evicted_unfetched: count + 1,
        evicted_with_deadline: count + 2,
        reclaimed: count + 3,
        expired_unfetched: count + 4,
        evicted_idle_s: 9,
    };
    let set_classes = |classes: &[ClassStats]| {
        server.engine.script.lock().classes = classes.to_vec();
    };
    let of_server = || classes(&server.shared, &*server.engine);
    set_classes(&[class(2, 5, 10), class(3, 0, 10)]);
    server.shared.loops[1].classes.add(2, Column::GetHits);
    let [(first, counts), (second, _)] = of_server()[..] else {
        panic!("two classes are in use");
    };
    assert_eq!((first, second), (class(2, 5, 10), class(3, 0, 10)));
    assert_eq!(counts[Column::GetHits as usize], 1);
    reset(&server.shared, &*server.engine, NOW);
    set_classes(&[class(1, 1, 0), class(2, 4, 17), class(3, 0, 10)]);
    server.shared.loops[0].classes.add(2, Column::GetHits);
    let [(first, _), (second, counts)] = of_server()[..] else {
        panic!("one class is new, and one is not in use since the reset");
    };
    assert_eq!(first, class(1, 1, 0));
    let since = ClassStats {
        evicted_unfetched: 7,
        evicted_with_deadline: 7,
        reclaimed: 7,
        expired_unfetched: 7,
        ..class(2, 4, 7)
    };
    assert_eq!((second, counts[Column::GetHits as usize]), (since, 1));
}

#[test]
fn statistics_beside_resets_count_no_more_than_happened() {
    let server = Server::new();
    let stop = AtomicBool::new(false);
    let until_stopped = |run: &dyn Fn(u64)| {
        let rounds = (1..).take_while(|_| !stop.load(Relaxed));
        rounds.for_each(run);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until_stopped(&|cmd_get| {
                let counters = Counters {
                    cmd_get,
                    ..Counters::default()
                };
                server.shared.loops[0].counts.publish(&counters);
            });
        });
        scope.spawn(|| until_stopped(&|_| reset(&server.shared, &*server.engine, NOW)));
        let reader = scope.spawn(|| {
            for _ in 0..2_000 {
                let printed = server.counter("cmd_get");
                assert!(printed <= server.shared.counters().cmd_get);
            }
        });
        let result = reader.join();
        stop.store(true, Relaxed);
        assert!(result.is_ok());
    });
}
