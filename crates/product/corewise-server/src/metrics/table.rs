//! The table of metrics: what is counted or read, and the names under which it is printed.

use super::{Metric, Reading, Sample, Section, Source, series};
use crate::classes::Column;
use crate::process::{self, Usage};
use crate::shared::{LoopState, SWEEP_EVERY_MS};
use corewise_atomic::sync::atomic::{AtomicU64, Ordering};
use corewise_engine::ORIGIN_MS;
use std::time::Duration;

/// The version of Redis whose behaviour the commands have; clients decide by it what they send.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

/// How often a loop looks after its connections.
const SWEEPS_PER_S: u64 = 1_000 / SWEEP_EVERY_MS;
/// Redis's clock of last uses has 24 bits.
const LRU_CLOCK: u64 = (1 << 24) - 1;

/// Declares the metrics, a row each: what it is, and its names in `stats`, in a section of `INFO`,
/// and for Prometheus, with labels, what to divide by to get the base unit, and a description. The
/// rows of one family have different labels, and the first describes the family. A family whose
/// name ends with `_total` is a counter, and any other a gauge. Units are seconds and bytes.
///
/// - `count field`: a number that each loop counts; it is a field of [`Counters`].
/// - `|s| counter …`: a number that only grows and is counted elsewhere.
/// - `|s| read …`: anything else; `|s| maybe …` if it may not be there.
/// - `|s| series …`: numbers, each with its labels, for Prometheus only. Labels have values from
///   small fixed sets, such as the size classes; never keys.
/// - `absent value`: a statistic of memcached or Redis about a part that Corewise does not have. It
///   is printed with a value that is true, so that programs that require it find it.
///
/// The fields of a section of `INFO` are printed in the order of their rows, which is that of
/// Redis; those that Redis does not have come last.
macro_rules! metrics {
    ($(
        $(count $field:ident)? $(absent $absent:literal)? $(|$source:ident| $kind:ident $value:expr)?
        => $(stats $stats:literal)? $(info $section:ident $info:literal)?
           $(prom $prom:literal $($labels:literal)? $(/ $divisor:literal)? $(: $help:literal)?)?;
    )+) => {
        /// Counts of one loop, private to it, or their sums.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Counters { $($(pub(crate) $field: u64,)?)+ }

        /// Counts of one loop, readable by other threads.
        #[derive(Debug, Default)]
        pub(crate) struct Published { $($($field: AtomicU64,)?)+ }

        #[cfg(test)]
        impl Counters {
            /// Counts that all differ, and are more than `base`.
            pub(super) fn distinct(base: u64) -> Self {
                let mut numbers = base + 1..;
                let mut next = || numbers.next().unwrap_or(0);
                Self { $($($field: next(),)?)+ }
            }
        }

        impl Published {
            /// Publishes a loop's counts. Called by that loop only.
            pub(crate) fn publish(&self, counters: &Counters) {
                // Relaxed: independent statistics.
                $($(self.$field.store(counters.$field, Ordering::Relaxed);)?)+
            }

            /// Adds these counts to `sum`.
            pub(crate) fn add_to(&self, sum: &mut Counters) {
                // Relaxed: independent statistics.
                $($(sum.$field += self.$field.load(Ordering::Relaxed);)?)+
            }
        }

        /// All metrics, in the order in which they are printed.
        pub(super) const METRICS: &[Metric] = &[$(Metric {
            stats: optional(&[$($stats)?]),
            info: optional(&[$((Section::$section, $info))?]),
            prom: optional(&[$(Sample {
                family: $prom,
                labels: optional(&[$($labels)?]),
                divisor: optional(&[$($divisor)?]),
                help: optional(&[$($help)?]),
            })?]),
            reading: {
                $(Reading::Counter(|s| s.counts.$field))?
                $(Reading::Other(|_| Some($absent.to_owned())))?
                $(reading!(|$source| $kind $value))?
            },
        }),+];
    };
}

macro_rules! reading {
    (|$source:ident| counter $value:expr) => {
        Reading::Counter(|$source| $value)
    };
    (|$source:ident| read $value:expr) => {
        Reading::Other(|$source| Some($value.to_string()))
    };
    (|$source:ident| maybe $value:expr) => {
        Reading::Other(|$source| $value)
    };
    (|$source:ident| series $value:expr) => {
        Reading::Series(|$source| $value)
    };
}

metrics! {
    |s| series series::build(s) =>
        prom "corewise_build_info": "Version and engine; the value is 1.";
    |_s| read REDIS_VERSION => info Server "redis_version";
    absent "00000000" => info Server "redis_git_sha1";
    absent "0" => info Server "redis_git_dirty";
    absent "0" => info Server "redis_build_id";
    |_s| read "standalone" => info Server "redis_mode";
    |_s| read system() => info Server "os";
    |_s| read usize::BITS => info Server "arch_bits";
    absent "POSIX clock_gettime" => info Server "monotonic_clock";
    absent "epoll" => info Server "multiplexing_api";
    absent "core::sync::atomic" => info Server "atomicvar_api";
    absent "0.0.0" => info Server "gcc_version";
    // The first in `stats`, as in memcached.
    |_s| read std::process::id() => stats "pid" info Server "process_id";
    absent "no" => info Server "process_supervised";
    |s| read &s.shared.run_id => info Server "run_id";
    |s| read s.shared.resp_port() => info Server "tcp_port";
    |s| read s.shared.clock.unix_time().as_micros() => info Server "server_time_usec";
    |s| read (s.now.ms - ORIGIN_MS) / 1_000 => stats "uptime" info Server "uptime_in_seconds"
        prom "corewise_uptime_seconds": "Time since the start.";
    |s| read (s.now.ms - ORIGIN_MS) / 86_400_000 => info Server "uptime_in_days";
    |_s| read SWEEPS_PER_S => info Server "hz";
    |_s| read SWEEPS_PER_S => info Server "configured_hz";
    |s| read s.now.unix_s & LRU_CLOCK => info Server "lru_clock";
    |_s| read executable() => info Server "executable";
    absent "" => info Server "config_file";
    absent "0" => info Server "io_threads_active";
    |_s| read env!("CARGO_PKG_VERSION") => info Server "corewise_version";
    |s| read s.engine_name => info Server "corewise_engine";
    |s| read s.now.unix_s => stats "time";
    |s| read version(s) => stats "version";
    |_s| read usize::BITS => stats "pointer_size";
    |s| maybe s.usage().map(|usage| seconds(usage.user)) => stats "rusage_user";
    |s| maybe s.usage().map(|usage| seconds(usage.system)) => stats "rusage_system";
    |s| read s.shared.open_connections() => stats "curr_connections" info Clients "connected_clients"
        prom "corewise_connections": "Open connections.";
    absent "0" => info Clients "cluster_connections";
    |s| read s.shared.config.max_connections => stats "max_connections" info Clients "maxclients"
        prom "corewise_max_connections": "Maximum number of open connections.";
    |s| read s.shared.largest_buffer(|view| view.query) => info Clients "client_recent_max_input_buffer";
    |s| read s.shared.largest_buffer(|view| view.reply) => info Clients "client_recent_max_output_buffer";
    absent "0" => info Clients "blocked_clients";
    absent "0" => info Clients "tracking_clients";
    absent "0" => info Clients "clients_in_timeout_table";
    |s| counter get(&s.shared.total_connections) => stats "total_connections" info Stats "total_connections_received"
        prom "corewise_connections_accepted_total": "Connections accepted.";
    |s| counter s.commands.calls() => info Stats "total_commands_processed";
    |s| read s.growth.operations_per_s() => info Stats "instantaneous_ops_per_sec";
    |s| read s.shared.open_connections() => stats "connection_structures";
    |s| read s.shared.buffer_bytes() => stats "connection_buffer_bytes"
        prom "corewise_connection_buffer_bytes": "Memory of all connections that the limit bounds.";
    |s| read s.shared.buffer_limit => stats "connection_buffer_limit"
        prom "corewise_connection_buffer_limit_bytes": "The limit of the memory of all connections.";
    |s| read s.shared.sum(|one| &one.input_bytes) => stats "read_buf_bytes"
        prom "corewise_input_buffer_bytes": "Memory of unfinished requests.";
    count read_buf_oom => stats "read_buf_oom"
        prom "corewise_requests_refused_total": "Requests refused for lack of memory in buffers.";
    count replies_refused => stats "response_obj_oom"
        prom "corewise_replies_refused_total": "Replies that could not be kept; their connections were closed.";
    |s| read s.shared.sum(|one| &one.output_bytes) => stats "response_obj_bytes"
        prom "corewise_output_buffer_bytes": "Memory of replies that clients have not taken.";
    |s| read u8::from(accepts(s)) => stats "accepting_conns"
        prom "corewise_accepting_connections": "1 while connections are accepted, otherwise 0.";
    |s| counter get(&s.shared.listen_disabled) => stats "listen_disabled_num"
        prom "corewise_accept_pauses_total": "Pauses of accepting connections.";
    |s| counter get(&s.shared.listen_disabled_us) => stats "time_in_listen_disabled_us"
        prom "corewise_accept_paused_seconds_total" / 1_000_000: "Time of these pauses.";
    |s| read s.shared.config.reserved_files() => stats "reserved_fds";
    // Each loop has one arena. A connection has a buffer only while a request is incomplete.
    |s| read s.shared.config.threads => stats "read_buf_count";
    |s| read s.shared.config.threads => stats "threads" info Server "io_threads"
        prom "corewise_loops": "Event loops.";
    count conn_yields => stats "conn_yields"
        prom "corewise_connection_yields_total": "Turns after which a busy connection had to let others go first.";
    count idle_kicks => stats "idle_kicks"
        prom "corewise_connections_closed_total" r#"reason="idle""#: "Connections that the server closed, by reason.";
    count slow_kicks => stats "slow_reader_kicks"
        prom "corewise_connections_closed_total" r#"reason="slow_reader""#;
    count bytes_read => stats "bytes_read" info Stats "total_net_input_bytes"
        prom "corewise_received_bytes_total": "Bytes received from clients.";
    count bytes_written => stats "bytes_written" info Stats "total_net_output_bytes"
        prom "corewise_sent_bytes_total": "Bytes sent to clients.";
    absent "0" => info Stats "total_net_repl_input_bytes";
    absent "0" => info Stats "total_net_repl_output_bytes";
    |s| read s.growth.input_kib_per_s() => info Stats "instantaneous_input_kbps";
    |s| read s.growth.output_kib_per_s() => info Stats "instantaneous_output_kbps";
    absent "0.00" => info Stats "instantaneous_input_repl_kbps";
    absent "0.00" => info Stats "instantaneous_output_repl_kbps";
    |s| counter get(&s.shared.rejected_connections) => stats "rejected_connections" info Stats "rejected_connections"
        prom "corewise_connections_rejected_total": "Connections closed at once, beyond the maximum.";
    absent "0" => info Stats "sync_full";
    absent "0" => info Stats "sync_partial_ok";
    absent "0" => info Stats "sync_partial_err";
    |s| counter s.engine.reclaimed + s.engine.expired_reclaimed => info Stats "expired_keys";
    absent "0.00" => info Stats "expired_stale_perc";
    absent "0" => info Stats "expired_time_cap_reached_count";
    absent "0" => info Stats "expire_cycle_cpu_milliseconds";
    |s| counter s.engine.evictions => stats "evictions" info Stats "evicted_keys"
        prom "corewise_evictions_total": "Items evicted to make room.";
    absent "0" => info Stats "evicted_clients";
    absent "0" => info Stats "total_eviction_exceeded_time";
    absent "0" => info Stats "current_eviction_exceeded_time";
    count turns => stats "loop_turns"
        prom "corewise_turns_total": "Turns of the event loops that served a connection.";
    count batches => stats "engine_batches"
        prom "corewise_batches_total": "Batches of operations.";
    count cmd_get => stats "cmd_get"
        prom "corewise_commands_total" r#"command="get""#: "Commands, by kind.";
    count cmd_set => stats "cmd_set"
        prom "corewise_commands_total" r#"command="set""#;
    count cmd_flush => stats "cmd_flush"
        prom "corewise_commands_total" r#"command="flush""#;
    count cmd_touch => stats "cmd_touch"
        prom "corewise_commands_total" r#"command="touch""#;
    count cmd_meta => stats "cmd_meta"
        prom "corewise_commands_total" r#"command="meta""#;
    count get_hits => stats "get_hits" info Stats "keyspace_hits"
        prom "corewise_lookups_total" r#"command="get",result="hit""#: "Items that commands looked up, by command and result.";
    count get_misses => stats "get_misses" info Stats "keyspace_misses"
        prom "corewise_lookups_total" r#"command="get",result="miss""#;
    absent "0" => info Stats "pubsub_channels";
    absent "0" => info Stats "pubsub_patterns";
    absent "0" => info Stats "pubsubshard_channels";
    absent "0" => info Stats "latest_fork_usec";
    absent "0" => info Stats "total_forks";
    absent "0" => info Stats "migrate_cached_sockets";
    absent "0" => info Stats "slave_expires_tracked_keys";
    absent "0" => info Stats "active_defrag_hits";
    absent "0" => info Stats "active_defrag_misses";
    absent "0" => info Stats "active_defrag_key_hits";
    absent "0" => info Stats "active_defrag_key_misses";
    absent "0" => info Stats "total_active_defrag_time";
    absent "0" => info Stats "current_active_defrag_time";
    absent "0" => info Stats "tracking_total_keys";
    absent "0" => info Stats "tracking_total_items";
    absent "0" => info Stats "tracking_total_prefixes";
    absent "0" => info Stats "unexpected_error_replies";
    |s| counter s.commands.errors() => info Stats "total_error_replies";
    absent "0" => info Stats "dump_payload_sanitizations";
    count reads => info Stats "total_reads_processed";
    count writes => info Stats "total_writes_processed";
    absent "0" => info Stats "io_threaded_reads_processed";
    absent "0" => info Stats "io_threaded_writes_processed";
    absent "0" => info Stats "reply_buffer_shrinks";
    absent "0" => info Stats "reply_buffer_expands";
    count get_expired => stats "get_expired"
        prom "corewise_get_expired_total": "Misses of get on an item that had expired.";
    count get_flushed => stats "get_flushed"
        prom "corewise_get_flushed_total": "Misses of get on an item that was flushed and still in memory.";
    count delete_misses => stats "delete_misses"
        prom "corewise_lookups_total" r#"command="delete",result="miss""#;
    count delete_hits => stats "delete_hits"
        prom "corewise_lookups_total" r#"command="delete",result="hit""#;
    count incr_misses => stats "incr_misses"
        prom "corewise_lookups_total" r#"command="incr",result="miss""#;
    count incr_hits => stats "incr_hits"
        prom "corewise_lookups_total" r#"command="incr",result="hit""#;
    count decr_misses => stats "decr_misses"
        prom "corewise_lookups_total" r#"command="decr",result="miss""#;
    count decr_hits => stats "decr_hits"
        prom "corewise_lookups_total" r#"command="decr",result="hit""#;
    count cas_misses => stats "cas_misses"
        prom "corewise_lookups_total" r#"command="cas",result="miss""#;
    count cas_hits => stats "cas_hits"
        prom "corewise_lookups_total" r#"command="cas",result="hit""#;
    count cas_badval => stats "cas_badval"
        prom "corewise_lookups_total" r#"command="cas",result="badval""#;
    count touch_hits => stats "touch_hits"
        prom "corewise_lookups_total" r#"command="touch",result="hit""#;
    count touch_misses => stats "touch_misses"
        prom "corewise_lookups_total" r#"command="touch",result="miss""#;
    count store_too_large => stats "store_too_large"
        prom "corewise_stores_refused_total" r#"reason="too_large""#: "Stores that were refused, by reason.";
    count store_no_memory => stats "store_no_memory"
        prom "corewise_stores_refused_total" r#"reason="no_memory""#;
    count auth_cmds => stats "auth_cmds"
        prom "corewise_authentications_total": "Attempts to authenticate.";
    count auth_errors => stats "auth_errors"
        prom "corewise_authentication_failures_total": "Attempts that failed.";
    |s| read s.engine.bytes => info Memory "used_memory"
        prom "corewise_memory_used_bytes": "Memory of items and tables.";
    |s| read human(s.engine.bytes) => info Memory "used_memory_human";
    |s| read s.resident() => info Memory "used_memory_rss";
    |s| read human(s.resident()) => info Memory "used_memory_rss_human";
    |s| read s.peak() => info Memory "used_memory_peak";
    |s| read human(s.peak()) => info Memory "used_memory_peak_human";
    |s| read percent(s.engine.bytes, s.peak()) => info Memory "used_memory_peak_perc";
    |s| read s.engine.table_bytes => info Memory "used_memory_overhead";
    |s| read get(&s.shared.startup_bytes) => info Memory "used_memory_startup";
    |s| read s.engine.bytes - s.engine.table_bytes => info Memory "used_memory_dataset";
    |s| read percent(s.engine.bytes - s.engine.table_bytes, s.engine.bytes.saturating_sub(get(&s.shared.startup_bytes))) => info Memory "used_memory_dataset_perc";
    |s| read s.engine.bytes => info Memory "allocator_allocated";
    |s| read s.resident() => info Memory "allocator_active";
    |s| read s.resident() => info Memory "allocator_resident";
    |_s| read system_memory() => info Memory "total_system_memory";
    |_s| read human(system_memory()) => info Memory "total_system_memory_human";
    absent "0" => info Memory "used_memory_lua";
    absent "0" => info Memory "used_memory_vm_eval";
    absent "0B" => info Memory "used_memory_lua_human";
    |s| read s.shared.scripts.size().1 => info Memory "used_memory_scripts_eval";
    |s| read s.shared.scripts.size().0 => info Memory "number_of_cached_scripts";
    absent "0" => info Memory "number_of_functions";
    absent "0" => info Memory "number_of_libraries";
    absent "0" => info Memory "used_memory_vm_functions";
    absent "0" => info Memory "used_memory_vm_total";
    absent "0B" => info Memory "used_memory_vm_total_human";
    absent "0" => info Memory "used_memory_functions";
    |s| read s.shared.scripts.size().1 => info Memory "used_memory_scripts";
    |s| read human(s.shared.scripts.size().1) => info Memory "used_memory_scripts_human";
    |s| read s.memory_limit => stats "limit_maxbytes" info Memory "maxmemory"
        prom "corewise_memory_limit_bytes": "The limit of the memory of items, tables and connections.";
    |s| read human(s.memory_limit) => info Memory "maxmemory_human";
    |s| read s.shared.config.eviction.policy() => info Memory "maxmemory_policy";
    |s| read ratio(s.resident(), s.engine.bytes) => info Memory "allocator_frag_ratio";
    |s| read s.resident().saturating_sub(s.engine.bytes) => info Memory "allocator_frag_bytes";
    absent "1.00" => info Memory "allocator_rss_ratio";
    absent "0" => info Memory "allocator_rss_bytes";
    absent "1.00" => info Memory "rss_overhead_ratio";
    absent "0" => info Memory "rss_overhead_bytes";
    |s| read ratio(s.resident(), s.engine.bytes) => info Memory "mem_fragmentation_ratio";
    |s| read s.resident() as i64 - s.engine.bytes as i64 => info Memory "mem_fragmentation_bytes";
    absent "0" => info Memory "mem_not_counted_for_evict";
    absent "0" => info Memory "mem_replication_backlog";
    absent "0" => info Memory "mem_total_replication_buffers";
    absent "0" => info Memory "mem_clients_slaves";
    |s| read s.shared.resident_buffer_bytes() => info Memory "mem_clients_normal"
        prom "corewise_connection_resident_bytes": "The part of it that is resident.";
    absent "0" => info Memory "mem_cluster_links";
    absent "0" => info Memory "mem_aof_buffer";
    absent "mimalloc" => info Memory "mem_allocator";
    absent "0" => info Memory "active_defrag_running";
    absent "0" => info Memory "lazyfree_pending_objects";
    absent "0" => info Memory "lazyfreed_objects";
    |s| read s.engine.table_bytes => stats "hash_bytes"
        prom "corewise_table_bytes": "Memory of the tables.";
    |s| read s.engine.buckets => stats "hash_buckets"
        prom "corewise_table_buckets": "Buckets of the tables.";
    |s| read s.engine.buckets.max(1).ilog2() => stats "hash_power_level";
    |s| read s.engine.table_resizing => stats "hash_is_expanding"
        prom "corewise_table_resizing": "1 while a table is resized, otherwise 0.";
    |s| read s.engine.zipped_tables => stats "hash_zipped"
        prom "corewise_table_zipped": "Expansions whose chains are not yet unzipped.";
    |s| read s.engine.longest_chain => stats "hash_longest_chain"
        prom "corewise_table_longest_chain": "Items of the longest chain that was found.";
    |s| read s.engine.backlog_bytes => stats "rcu_backlog_bytes"
        prom "corewise_reclamation_backlog_bytes": "Memory that waits for a grace period.";
    |s| read s.engine.grace_periods => stats "rcu_grace_periods"
        prom "corewise_grace_periods_total": "Grace periods that have ended.";
    |s| read s.engine.segments => stats "segments_total"
        prom "corewise_segments": "Segments of memory.";
    |s| read s.engine.segments_free => stats "segments_free"
        prom "corewise_segments_free": "Segments that are unused.";
    |s| read s.engine.segment_bytes => stats "segments_size"
        prom "corewise_segment_bytes": "Size of a segment.";
    |s| read s.engine.shards => stats "engine_shards"
        prom "corewise_shards": "Independent locks or partitions.";
    |s| counter s.engine.lock_waits => stats "lock_waits"
        prom "corewise_lock_waits_total": "Times that a thread found a lock of items held.";
    |s| counter s.engine.lock_wait_ns / 1_000 => stats "lock_wait_us"
        prom "corewise_lock_wait_seconds_total" / 1_000_000: "Time that threads waited for these locks.";
    |s| read s.engine.bytes - s.engine.table_bytes => stats "bytes"
        prom "corewise_item_bytes": "Memory of items.";
    |s| read s.engine.dead_bytes => stats "bytes_flushed_waiting"
        prom "corewise_flushed_bytes": "Memory of flushed items that is not yet given back.";
    |s| read s.engine.items => stats "curr_items"
        prom "corewise_items": "Items.";
    |s| counter s.engine.total_items => stats "total_items"
        prom "corewise_items_stored_total": "Items stored.";
    |s| counter s.engine.expired_unfetched => stats "expired_unfetched"
        prom "corewise_expired_unfetched_total": "Expired items that were never read.";
    |s| counter s.engine.evicted_unfetched => stats "evicted_unfetched"
        prom "corewise_evicted_unfetched_total": "Evicted items that were never read.";
    |s| read s.engine.evicted_idle_s => stats "evicted_time"
        prom "corewise_evicted_idle_seconds": "Time since the last use of the item that was evicted last.";
    |s| counter s.engine.reclaimed => stats "reclaimed"
        prom "corewise_reclaimed_total": "Expired items whose memory a store has taken.";
    // All of it is done by the loops that serve requests.
    |s| counter s.engine.evictions + s.engine.reclaimed => stats "direct_reclaims";
    |s| read s.engine.segments_free => stats "slab_global_page_pool";
    |s| counter s.engine.expired_reclaimed => stats "crawler_reclaimed"
        prom "corewise_expired_reclaimed_total": "Expired items that the server removed by itself.";
    |s| counter s.engine.out_of_memory => stats "outofmemory"
        prom "corewise_out_of_memory_total": "Stores for which the engine had no memory.";
    count operations => stats "engine_operations" info Stats "corewise_operations"
        prom "corewise_operations_total": "Operations on items.";
    count resp_calls => info Stats "corewise_resp_calls"
        prom "corewise_resp_calls_total": "Calls of RESP that are not operations on one item.";
    // The crawler of memcached. Here, dumps list the items, and the loops reclaim expired ones.
    |s| read u8::from(get(&s.shared.dumps) > 0) => stats "lru_crawler_running"
        prom "corewise_dump_running": "1 while a client lists the items, otherwise 0.";
    count dumps => stats "lru_crawler_starts"
        prom "corewise_dumps_total": "Listings of the items that were begun.";
    count dumped_items => stats "crawler_items_checked"
        prom "corewise_dumped_items_total": "Items listed.";
    // Corewise polls without libevent, has no reply objects, slabs, slab mover, maintainer thread
    // or watchers, and its queues are not memcached's.
    absent "none" => stats "libevent";
    absent "0" => stats "response_obj_count";
    absent "0" => stats "read_buf_bytes_free";
    absent "0" => stats "slab_reassign_rescues";
    absent "0" => stats "slab_reassign_chunk_rescues";
    absent "0" => stats "slab_reassign_evictions_nomem";
    absent "0" => stats "slab_reassign_inline_reclaim";
    absent "0" => stats "slab_reassign_busy_items";
    absent "0" => stats "slab_reassign_busy_deletes";
    absent "0" => stats "slab_reassign_running";
    absent "0" => stats "slabs_moved";
    absent "0" => stats "lru_maintainer_juggles";
    absent "0" => stats "malloc_fails";
    absent "0" => stats "log_worker_dropped";
    absent "0" => stats "log_worker_written";
    absent "0" => stats "log_watcher_skipped";
    absent "0" => stats "log_watcher_sent";
    absent "0" => stats "log_watchers";
    absent "0" => stats "unexpected_napi_ids";
    absent "0" => stats "round_robin_fallback";
    absent "0" => stats "evicted_active";
    absent "0" => stats "lrutail_reflocked";
    absent "0" => stats "moves_to_cold";
    absent "0" => stats "moves_to_warm";
    absent "0" => stats "moves_within_lru";
    absent "0" => stats "lru_bumps_dropped";
    // What only `INFO` has.
    absent "0" => info Persistence "loading";
    absent "0" => info Persistence "async_loading";
    absent "0" => info Persistence "current_cow_peak";
    absent "0" => info Persistence "current_cow_size";
    absent "0" => info Persistence "current_cow_size_age";
    absent "0.00" => info Persistence "current_fork_perc";
    absent "0" => info Persistence "current_save_keys_processed";
    absent "0" => info Persistence "current_save_keys_total";
    |s| read s.engine.total_items => info Persistence "rdb_changes_since_last_save";
    absent "0" => info Persistence "rdb_bgsave_in_progress";
    |s| read s.shared.started_s => info Persistence "rdb_last_save_time";
    absent "ok" => info Persistence "rdb_last_bgsave_status";
    absent "-1" => info Persistence "rdb_last_bgsave_time_sec";
    absent "-1" => info Persistence "rdb_current_bgsave_time_sec";
    absent "0" => info Persistence "rdb_saves";
    absent "0" => info Persistence "rdb_last_cow_size";
    absent "0" => info Persistence "rdb_last_load_keys_expired";
    absent "0" => info Persistence "rdb_last_load_keys_loaded";
    absent "0" => info Persistence "aof_enabled";
    absent "0" => info Persistence "aof_rewrite_in_progress";
    absent "0" => info Persistence "aof_rewrite_scheduled";
    absent "-1" => info Persistence "aof_last_rewrite_time_sec";
    absent "-1" => info Persistence "aof_current_rewrite_time_sec";
    absent "ok" => info Persistence "aof_last_bgrewrite_status";
    absent "0" => info Persistence "aof_rewrites";
    absent "0" => info Persistence "aof_rewrites_consecutive_failures";
    absent "ok" => info Persistence "aof_last_write_status";
    absent "0" => info Persistence "aof_last_cow_size";
    absent "0" => info Persistence "module_fork_in_progress";
    absent "0" => info Persistence "module_fork_last_cow_size";
    absent "master" => info Replication "role";
    absent "0" => info Replication "connected_slaves";
    absent "no-failover" => info Replication "master_failover_state";
    |s| read &s.shared.replication_id => info Replication "master_replid";
    absent "0000000000000000000000000000000000000000" => info Replication "master_replid2";
    absent "0" => info Replication "master_repl_offset";
    absent "-1" => info Replication "second_repl_offset";
    absent "0" => info Replication "repl_backlog_active";
    absent "0" => info Replication "repl_backlog_size";
    absent "0" => info Replication "repl_backlog_first_byte_offset";
    absent "0" => info Replication "repl_backlog_histlen";
    |s| maybe s.usage().map(|usage| seconds(usage.system)) => info Cpu "used_cpu_sys";
    |s| maybe s.usage().map(|usage| seconds(usage.user)) => info Cpu "used_cpu_user";
    absent "0.000000" => info Cpu "used_cpu_sys_children";
    absent "0.000000" => info Cpu "used_cpu_user_children";
    |_s| maybe main_thread_time().map(|(_, system)| seconds(system)) => info Cpu "used_cpu_sys_main_thread";
    |_s| maybe main_thread_time().map(|(user, _)| seconds(user)) => info Cpu "used_cpu_user_main_thread";
    absent "0" => info Cluster "cluster_enabled";
    // What only Prometheus is told.
    |s| series series::listener_connections(s) =>
        prom "corewise_listener_connections": "Open connections of a listener.";
    |s| series series::of_loops(s, connections) =>
        prom "corewise_loop_connections": "Open connections of an event loop.";
    |s| series series::of_loops(s, operations) =>
        prom "corewise_loop_operations_total": "Operations of an event loop.";
    |s| series series::of_classes(s, |class, _| class.max_bytes) =>
        prom "corewise_class_max_bytes": "The largest footprint of an item in a size class.";
    |s| series series::of_classes(s, |class, _| class.items) =>
        prom "corewise_class_items": "Items of a size class.";
    |s| series series::of_classes(s, |class, _| class.bytes) =>
        prom "corewise_class_bytes": "Memory of the items of a size class.";
    |s| series series::of_classes(s, |class, _| class.evictions) =>
        prom "corewise_class_evictions_total": "Evictions from a size class.";
    |s| series series::of_classes(s, |_, counts| counts[Column::GetHits as usize]) =>
        prom "corewise_class_get_hits_total": "Hits of get in a size class.";
    |s| series series::of_classes(s, |_, counts| counts[Column::CmdSet as usize]) =>
        prom "corewise_class_stores_total": "Stores into a size class.";
    |s| maybe text(s.usage().map(|usage| (usage.user + usage.system).as_secs_f64())) =>
        prom "process_cpu_seconds_total": "Total user and system CPU time spent in seconds.";
    |s| maybe text(s.usage().map(|usage| usage.virtual_bytes)) =>
        prom "process_virtual_memory_bytes": "Virtual memory size in bytes.";
    |s| maybe text(s.usage().map(|usage| usage.resident_bytes)) =>
        prom "process_resident_memory_bytes": "Resident memory size in bytes.";
    |s| maybe text(s.usage().and_then(Usage::start_time).map(|time| time.as_secs_f64())) =>
        prom "process_start_time_seconds": "Start time of the process since unix epoch in seconds.";
    |_s| maybe text(process::open_files().ok()) =>
        prom "process_open_fds": "Number of open file descriptors.";
    |_s| maybe text(process::max_files()) =>
        prom "process_max_fds": "Maximum number of open file descriptors.";
}

/// The only element, if there is one.
const fn optional<T: Copy>(elements: &[T]) -> Option<T> {
    match elements {
        [element] => Some(*element),
        _ => None,
    }
}

fn get(count: &AtomicU64) -> u64 {
    // Relaxed: a statistic.
    count.load(Ordering::Relaxed)
}

fn text(value: Option<impl ToString>) -> Option<String> {
    value.map(|value| value.to_string())
}

/// Connections of a loop.
fn connections(state: &LoopState) -> u64 {
    // Relaxed: a statistic.
    state.connections.load(Ordering::Relaxed) as u64
}

/// Operations of a loop.
fn operations(state: &LoopState) -> u64 {
    let mut counts = Counters::default();
    state.counts.add_to(&mut counts);
    counts.operations
}

fn version(s: &Source<'_>) -> String {
    let version = s.shared.limits.memcached.version.trim_ascii_end();
    let version = version.strip_prefix(b"VERSION ").unwrap_or(version);
    String::from_utf8_lossy(version).into_owned()
}

/// A processor time, as memcached and Redis print it.
fn seconds(time: Duration) -> String {
    format!("{}.{:06}", time.as_secs(), time.subsec_micros())
}

/// The user and system time of the thread that accepts connections.
fn main_thread_time() -> Option<(Duration, Duration)> {
    process::main_thread_time().ok()
}

/// The operating system, as Redis prints it.
fn system() -> String {
    let uname = rustix::system::uname();
    let parts = [uname.sysname(), uname.release(), uname.machine()];
    parts.map(|part| part.to_string_lossy()).join(" ")
}

/// The path of the program.
fn executable() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.display().to_string()
}

/// The memory of the machine in bytes.
fn system_memory() -> u64 {
    let info = rustix::system::sysinfo();
    #[allow(clippy::useless_conversion, reason = "the type depends on the target")]
    u64::from(info.totalram).saturating_mul(info.mem_unit.into())
}

/// Bytes in the largest unit of which there is one.
pub(super) fn human(bytes: u64) -> String {
    let units = ["K", "M", "G", "T", "P", "E"];
    let exponent = bytes.checked_ilog2().unwrap_or(0) / 10;
    match exponent.checked_sub(1) {
        None => format!("{bytes}B"),
        Some(unit) => {
            let number = bytes as f64 / (1_u64 << (10 * exponent)) as f64;
            format!("{number:.2}{}", units[unit as usize])
        }
    }
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.2}%", 100.0 * part as f64 / whole.max(1) as f64)
}

fn ratio(part: u64, whole: u64) -> String {
    format!("{:.2}", part as f64 / whole.max(1) as f64)
}

/// Whether connections are accepted now.
fn accepts(s: &Source<'_>) -> bool {
    // Relaxed: a statistic.
    let accepting = s.shared.accepting.load(Ordering::Relaxed);
    accepting && s.shared.open_connections() < s.shared.config.max_connections
}
