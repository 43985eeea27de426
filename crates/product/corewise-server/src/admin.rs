//! Commands that the engine does not execute: statistics, flushing, limits, authentication.

use crate::absent;
use crate::classes::{self, Column, Sums};
use crate::config::{Config, Eviction};
use crate::counters::Counters;
use crate::dump::Dump;
use crate::protocol::ProtocolKind;
use crate::shared::Shared;
use corewise_atomic::sync::atomic::{AtomicU64, Ordering};
use corewise_cache::{ClassStats, Engine, EngineStats, ORIGIN_MS, size_class};
use corewise_ops::{Deadline, Now};
use corewise_wire::memcached::{
    Admin, BinaryRequest, StatsRequest, StatsWriter, credentials, reply,
};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::path::Path;
use std::time::Instant;

/// What happens to the connection after an administrative command.
#[derive(Debug)]
pub(crate) enum After {
    /// The connection stays open.
    GoOn,
    /// The connection stays open, and the command was a flush at once.
    Flushed,
    /// The connection stays open and is now authenticated.
    Admitted,
    /// A dump is printed in steps before the next request is executed.
    Dumps(Dump),
    /// The connection is closed.
    Close,
}

/// What is needed to answer an administrative command.
pub(crate) struct Context<'c, E: Engine> {
    pub(crate) shared: &'c Shared,
    pub(crate) engine: &'c E,
    pub(crate) counters: &'c mut Counters,
    pub(crate) now: Now,
    /// Descriptor of the connection that sent the command.
    pub(crate) fd: RawFd,
    pub(crate) out: &'c mut Vec<u8>,
    /// The command directly follows a flush of the same connection.
    pub(crate) follows_flush: bool,
}

impl<E: Engine> Context<'_, E> {
    /// Executes the command and prints the reply.
    pub(crate) fn answer(&mut self, admin: Admin<'_>) -> After {
        match admin {
            Admin::Stats(request) => return self.stats(request),
            Admin::FlushAll { at, noreply } => return self.flush(at, noreply),
            Admin::Verbosity { noreply, .. } => self.say(reply::OK, noreply),
            Admin::CacheMemlimit { megabytes, noreply } => {
                let bytes = u64::from(megabytes) << 20;
                if bytes > self.engine.most_memory() {
                    self.say(reply::MEMLIMIT_FAILED, noreply);
                } else {
                    self.engine.set_memory_limit(bytes);
                    self.say(reply::OK, noreply);
                }
            }
            Admin::Shutdown { .. } => {
                self.shared.stop();
                return After::Close;
            }
            Admin::Authenticate { payload } => return self.authenticate(payload),
            Admin::Binary(request) => return self.refuse_binary(&request),
            Admin::Crawler(_) => self.say(reply::OK, false),
            Admin::Dump { format, classes } => return After::Dumps(Dump::of_keys(format, classes)),
            _ => self.say(reply::ERROR, false),
        }
        After::GoOn
    }

    fn flush(&mut self, at: Option<Deadline>, noreply: bool) -> After {
        self.counters.cmd_flush += 1;
        let at = at.unwrap_or(Deadline::PAST);
        let is_at_once = at.is_past(self.now);
        if !is_at_once {
            self.engine.flush_all(at, self.now);
        } else if !self.follows_flush {
            let all = self.shared.isolation.begin_all(self.now);
            self.engine.flush_all(at, self.now);
            drop(all);
        }
        self.say(reply::OK, noreply);
        if is_at_once {
            After::Flushed
        } else {
            After::GoOn
        }
    }

    fn say(&mut self, bytes: &[u8], noreply: bool) {
        if !noreply {
            self.out.extend_from_slice(bytes);
        }
    }

    #[cold]
    fn refuse_binary(&mut self, request: &BinaryRequest) -> After {
        self.say(&request.refusal(), false);
        let unsaid = self.shared.binary_clients.lock().due(Instant::now());
        if let Some(unsaid) = unsaid {
            let connections = self.shared.connections.lock();
            let client = connections.get(&self.fd).map_or("", |card| &card.peer);
            tracing::warn!(
                client,
                unsaid,
                "refused a client that speaks memcached's binary protocol; use the text protocol"
            );
        }
        After::Close
    }

    fn authenticate(&mut self, payload: &[u8]) -> After {
        self.counters.auth_cmds += 1;
        let users = self.shared.users.lock().clone();
        let admitted = match (users, credentials(payload)) {
            (Some(users), Some((user, password))) => users.admit(user, password),
            (None, _) => true,
            (Some(_), None) => false,
        };
        if admitted {
            self.say(reply::STORED, false);
            After::Admitted
        } else {
            self.counters.auth_errors += 1;
            self.say(reply::AUTH_FAILURE, false);
            After::GoOn
        }
    }

    fn stats(&mut self, request: StatsRequest<'_>) -> After {
        match request {
            StatsRequest::General => self.general(),
            StatsRequest::Settings => self.settings(),
            StatsRequest::Items => self.items(),
            StatsRequest::Slabs => self.slabs(),
            StatsRequest::Sizes => self.sizes(),
            StatsRequest::SizesEnable => self.sizes_status("enabled"),
            StatsRequest::SizesDisable => self.sizes_status("error sizes are always counted"),
            StatsRequest::Conns => self.conns(),
            StatsRequest::Reset => self.reset(),
            StatsRequest::DetailOn => self.set_detail(true),
            StatsRequest::DetailOff => self.set_detail(false),
            StatsRequest::DetailDump => self.detail_dump(),
            StatsRequest::Cachedump { class, limit } => return self.cachedump(class, limit),
            _ => self.say(reply::ERROR, false),
        }
        After::GoOn
    }

    fn reset(&mut self) {
        self.shared.reset_stats();
        self.engine.reset_stats();
        StatsWriter::new(self.out).reset();
    }

    fn set_detail(&mut self, on: bool) {
        // Relaxed: a switch.
        self.shared.detail.store(on, Ordering::Relaxed);
        self.say(reply::OK, false);
    }

    fn detail_dump(&mut self) {
        let prefixes = self.shared.prefixes.lock();
        let mut w = StatsWriter::new(self.out);
        for (prefix, [get, hit, set, del]) in prefixes.iter() {
            w.prefix(prefix, *get, *hit, *set, *del);
        }
        w.end();
    }

    fn cachedump(&mut self, class: u32, limit: u32) -> After {
        let classes = self.engine.size_classes();
        if classes
            .iter()
            .any(|other| other.class == class && other.items > 0)
        {
            return After::Dumps(Dump::of_class(class, limit));
        }
        self.say(reply::END, false);
        After::GoOn
    }

    fn general(&mut self) {
        let counts = self.shared.counters_since_reset();
        let engine = self.engine.stats();
        let (shared, now, limit) = (self.shared, self.now, self.engine.memory_limit());
        let mut w = StatsWriter::new(self.out);
        process_stats(&mut w, shared, now);
        connection_stats(&mut w, shared, &counts);
        command_stats(&mut w, &counts);
        w.stat("limit_maxbytes", limit);
        engine_stats(&mut w, &engine);
        crawler_stats(&mut w, shared, &counts);
        for (name, value) in absent::GENERAL {
            w.stat(name, value);
        }
        w.end();
    }

    fn settings(&mut self) {
        let (shared, c) = (self.shared, &self.shared.config);
        let limit = self.engine.memory_limit();
        let name = self.engine.name();
        let mut w = StatsWriter::new(self.out);
        w.stat("maxbytes", limit);
        listening_settings(&mut w, c);
        w.stat("growth_factor", "1.12");
        w.stat("chunk_size", 48);
        w.stat("num_threads", c.threads);
        w.stat("stat_key_prefix", char::from(c.prefix_delimiter));
        // Relaxed: a switch.
        let detail = shared.detail.load(Ordering::Relaxed);
        w.stat("detail_enabled", yes_no(detail));
        w.stat("reqs_per_event", crate::shared::BATCH);
        w.stat("item_size_max", c.max_item_size);
        w.stat("read_buf_mem_limit", shared.buffer_limit);
        w.stat("idle_timeout", c.idle_timeout.map_or(0, |t| t.as_secs()));
        w.stat("slow_reader_timeout", c.slow_reader_timeout.as_secs());
        w.stat("evictions", on_off(c.eviction != Eviction::None));
        w.stat("hash_algorithm", "foldhash");
        switches(&mut w, c);
        w.stat("engine", name);
        w.stat("eviction_policy", c.eviction);
        w.stat("pinning", &c.pin);
        for (name, value) in absent::SETTINGS {
            w.stat(name, value);
        }
        w.end();
    }

    fn items(&mut self) {
        let classes = self.engine.size_classes();
        let counts = ClassSums::of(self.shared);
        let mut w = StatsWriter::new(self.out);
        for class in &classes {
            let name = |stat: &str| format!("items:{}:{stat}", class.class);
            let age_s = self.shared.ages.age_s(class.class, self.now);
            let stats = [
                ("number", class.items),
                // Each class has one queue, which stands for memcached's COLD queue.
                ("number_cold", class.items),
                ("age", u64::from(age_s)),
                ("mem_requested", class.bytes),
                ("evicted", class.evictions),
                ("evicted_nonzero", class.evicted_with_deadline),
                ("evicted_time", u64::from(class.evicted_idle_s)),
                ("evicted_unfetched", class.evicted_unfetched),
                ("outofmemory", counts.get(class, Column::OutOfMemory)),
                ("reclaimed", class.reclaimed),
                ("expired_unfetched", class.expired_unfetched),
                ("hits_to_cold", counts.get(class, Column::GetHits)),
            ];
            for (stat, value) in stats {
                w.stat(name(stat), value);
            }
            for stat in absent::OF_ITEMS {
                w.stat(name(stat), 0);
            }
        }
        w.end();
    }

    fn slabs(&mut self) {
        let classes = self.engine.size_classes();
        let counts = ClassSums::of(self.shared);
        let engine = self.engine.stats();
        // Engines without segments get their memory from the allocator.
        let page = engine.segment_bytes.max(1 << 20);
        let mut w = StatsWriter::new(self.out);
        for class in &classes {
            let name = |stat: &str| format!("{}:{stat}", class.class);
            let stats = [
                ("chunk_size", class.max_bytes),
                ("chunks_per_page", (page / class.max_bytes).max(1)),
                ("total_pages", class.bytes.div_ceil(page)),
                ("used_chunks", class.items),
                ("total_chunks", class.items),
                ("mem_requested", class.bytes),
                ("get_hits", counts.get(class, Column::GetHits)),
                ("cmd_set", counts.get(class, Column::CmdSet)),
                ("incr_hits", counts.get(class, Column::IncrHits)),
                ("decr_hits", counts.get(class, Column::DecrHits)),
                ("cas_hits", counts.get(class, Column::CasHits)),
                ("touch_hits", counts.get(class, Column::TouchHits)),
            ];
            for (stat, value) in stats {
                w.stat(name(stat), value);
            }
            for stat in absent::OF_SLABS {
                w.stat(name(stat), 0);
            }
        }
        w.stat(
            "active_slabs",
            classes.iter().filter(|class| class.items > 0).count(),
        );
        w.stat("total_malloced", engine.bytes);
        w.end();
    }

    fn sizes(&mut self) {
        let classes = self.engine.size_classes();
        let mut w = StatsWriter::new(self.out);
        for class in classes.iter().filter(|class| class.items > 0) {
            w.stat(size_class::max_bytes(class.class), class.items);
        }
        w.end();
    }

    fn sizes_status(&mut self, status: &str) {
        let mut w = StatsWriter::new(self.out);
        w.stat("sizes_status", status);
        w.end();
    }

    fn conns(&mut self) {
        let mut cards: Vec<_> = self.shared.connections.lock().values().cloned().collect();
        cards.sort_by_key(|card| card.fd);
        let mut w = StatsWriter::new(self.out);
        for card in &cards {
            // Relaxed: a statistic.
            let active_ms = card.active_ms.load(Ordering::Relaxed);
            w.stat(format_args!("{}:addr", card.fd), &card.peer);
            if let Some(listener) = &card.listener {
                w.stat(format_args!("{}:listen_addr", card.fd), listener);
            }
            let asks = card.fd == self.fd;
            let state = if asks { "conn_parse_cmd" } else { card.state() };
            w.stat(format_args!("{}:state", card.fd), state);
            let idle_s = self.now.ms.saturating_sub(active_ms) / 1_000;
            w.stat(format_args!("{}:secs_since_last_cmd", card.fd), idle_s);
        }
        w.end();
    }
}

/// Counts per size class since the last `stats reset`.
struct ClassSums {
    now: Sums,
    base: Sums,
}

impl ClassSums {
    fn of(shared: &Shared) -> Self {
        let sums = || shared.class_sums();
        let (now, base) = shared.class_baseline.counts_and_base(sums);
        Self { now, base }
    }

    fn get(&self, class: &ClassStats, column: Column) -> u64 {
        classes::since(&self.now, &self.base, class.class, column)
    }
}

fn yes_no(on: bool) -> &'static str {
    if on { "yes" } else { "no" }
}

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Settings of listeners and authentication.
fn listening_settings(w: &mut StatsWriter<'_>, c: &Config) {
    w.stat("maxconns", c.max_connections);
    let tcp: Vec<SocketAddr> = c.addresses_of(ProtocolKind::Memcached).collect();
    w.stat("tcpport", tcp.first().map_or(0, SocketAddr::port));
    w.stat("udpport", 0);
    let inter: Vec<String> = tcp.iter().map(|address| address.ip().to_string()).collect();
    w.stat("inter", inter.join(","));
    w.stat("verbosity", c.verbosity);
    w.stat("oldest", 0);
    let shown = |path: &Path| path.display().to_string();
    w.stat("domain_socket", c.unix_path().map_or("NULL".into(), shown));
    w.stat("umask", format_args!("{:o}", c.unix_mode));
    w.stat("tcp_backlog", c.backlog);
    w.stat("binding_protocol", "ascii");
    w.stat("auth_enabled_sasl", "no");
    let users = c.auth_file.as_deref().map_or("no".into(), shown);
    w.stat("auth_enabled_ascii", users);
    w.stat("maxconns_fast", yes_no(c.maxconns_fast));
    for other in ProtocolKind::ALL
        .into_iter()
        .filter(|kind| *kind != ProtocolKind::Memcached)
    {
        let of_other = c.listeners.iter().filter(|at| at.protocol == other);
        let addresses: Vec<String> = of_other.map(|at| at.address.to_string()).collect();
        let name = format_args!("{other}_listen");
        if addresses.is_empty() {
            w.stat(name, "no");
        } else {
            w.stat(name, addresses.join(","));
        }
    }
}

/// Writes the boolean settings. The setting of a feature that this server lacks is off.
fn switches(w: &mut StatsWriter<'_>, c: &Config) {
    w.stat("cas_enabled", yes_no(c.enable_cas));
    w.stat("flush_enabled", yes_no(c.enable_flush));
    w.stat("dump_enabled", yes_no(c.enable_dump));
    w.stat("shutdown_command", yes_no(c.enable_shutdown));
    w.stat("track_sizes", "yes");
    let absent = [
        "slab_reassign",
        "lru_crawler",
        "lru_maintainer_thread",
        "lru_segmented",
        "temp_lru",
        "ssl_enabled",
    ];
    for name in absent {
        w.stat(name, "no");
    }
}

fn process_stats(w: &mut StatsWriter<'_>, shared: &Shared, now: Now) {
    w.stat("pid", std::process::id());
    w.stat("uptime", (now.ms - ORIGIN_MS) / 1_000);
    w.stat("time", now.unix_s);
    let version = shared.limits.memcached.version.trim_ascii_end();
    let version = version.strip_prefix(b"VERSION ").unwrap_or(version);
    w.stat("version", String::from_utf8_lossy(version));
    w.stat("pointer_size", usize::BITS);
    if let Ok((user, system)) = crate::process::cpu_time() {
        w.time("rusage_user", user.as_secs(), user.subsec_micros());
        w.time("rusage_system", system.as_secs(), system.subsec_micros());
    }
}

fn connection_stats(w: &mut StatsWriter<'_>, shared: &Shared, counts: &Counters) {
    let open = shared.open_connections();
    // Relaxed: a statistic.
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    w.stat("max_connections", shared.config.max_connections);
    w.stat("curr_connections", open);
    w.stat("total_connections", read(&shared.total_connections));
    w.stat("rejected_connections", read(&shared.rejected_connections));
    w.stat("connection_structures", open);
    w.stat("connection_buffer_bytes", shared.buffer_bytes());
    w.stat("connection_buffer_limit", shared.buffer_limit);
    w.stat("read_buf_bytes", shared.sum(|card| &card.input_bytes));
    w.stat("read_buf_oom", counts.read_buf_oom);
    w.stat("response_obj_oom", counts.replies_refused);
    w.stat("response_obj_bytes", shared.sum(|card| &card.output_bytes));
    // Relaxed: a statistic.
    let accepting = shared.accepting.load(Ordering::Relaxed);
    w.stat(
        "accepting_conns",
        u8::from(accepting && open < shared.config.max_connections),
    );
    w.stat("listen_disabled_num", read(&shared.listen_disabled));
    w.stat(
        "time_in_listen_disabled_us",
        read(&shared.listen_disabled_us),
    );
    w.stat("reserved_fds", shared.config.reserved_files());
    // Each loop has one arena. A connection has a buffer only while a request is incomplete.
    w.stat("read_buf_count", shared.config.threads);
    w.stat("threads", shared.config.threads);
    w.stat("conn_yields", counts.conn_yields);
    w.stat("idle_kicks", counts.idle_kicks);
    w.stat("slow_reader_kicks", counts.slow_kicks);
    w.stat("bytes_read", counts.bytes_read);
    w.stat("bytes_written", counts.bytes_written);
    w.stat("loop_turns", counts.turns);
    w.stat("engine_batches", counts.batches);
    w.stat("engine_operations", counts.operations);
}

fn command_stats(w: &mut StatsWriter<'_>, c: &Counters) {
    let stats = [
        ("cmd_get", c.cmd_get),
        ("cmd_set", c.cmd_set),
        ("cmd_flush", c.cmd_flush),
        ("cmd_touch", c.cmd_touch),
        ("cmd_meta", c.cmd_meta),
        ("get_hits", c.get_hits),
        ("get_misses", c.get_misses),
        ("get_expired", c.get_expired),
        ("get_flushed", c.get_flushed),
        ("delete_misses", c.delete_misses),
        ("delete_hits", c.delete_hits),
        ("incr_misses", c.incr_misses),
        ("incr_hits", c.incr_hits),
        ("decr_misses", c.decr_misses),
        ("decr_hits", c.decr_hits),
        ("cas_misses", c.cas_misses),
        ("cas_hits", c.cas_hits),
        ("cas_badval", c.cas_badval),
        ("touch_hits", c.touch_hits),
        ("touch_misses", c.touch_misses),
        ("store_too_large", c.store_too_large),
        ("store_no_memory", c.store_no_memory),
        ("auth_cmds", c.auth_cmds),
        ("auth_errors", c.auth_errors),
    ];
    for (name, value) in stats {
        w.stat(name, value);
    }
}

/// Statistics of memcached's crawler. Here, dumps list the items, and the loops reclaim expired
/// ones.
fn crawler_stats(w: &mut StatsWriter<'_>, shared: &Shared, counts: &Counters) {
    // Relaxed: a gauge.
    let dumps = shared.dumps.load(Ordering::Relaxed);
    w.stat("lru_crawler_running", u8::from(dumps > 0));
    w.stat("lru_crawler_starts", counts.dumps);
    w.stat("crawler_items_checked", counts.dumped_items);
}

fn engine_stats(w: &mut StatsWriter<'_>, e: &EngineStats) {
    w.stat("hash_bytes", e.table_bytes);
    w.stat("hash_buckets", e.buckets);
    w.stat("hash_power_level", e.buckets.max(1).ilog2());
    w.stat("hash_is_expanding", e.table_resizing);
    w.stat("hash_zipped", e.zipped_tables);
    w.stat("hash_longest_chain", e.longest_chain);
    w.stat("rcu_backlog_bytes", e.backlog_bytes);
    w.stat("rcu_grace_periods", e.grace_periods);
    w.stat("segments_total", e.segments);
    w.stat("segments_free", e.segments_free);
    w.stat("segments_size", e.segment_bytes);
    w.stat("engine_shards", e.shards);
    w.stat("lock_waits", e.lock_waits);
    w.stat("lock_wait_us", e.lock_wait_ns / 1_000);
    w.stat("bytes", e.bytes - e.table_bytes);
    w.stat("bytes_flushed_waiting", e.dead_bytes);
    w.stat("curr_items", e.items);
    w.stat("total_items", e.total_items);
    w.stat("expired_unfetched", e.expired_unfetched);
    w.stat("evicted_unfetched", e.evicted_unfetched);
    w.stat("evicted_time", e.evicted_idle_s);
    w.stat("evictions", e.evictions);
    w.stat("reclaimed", e.reclaimed);
    // All of it is done by the loops that serve requests.
    w.stat("direct_reclaims", e.evictions + e.reclaimed);
    w.stat("slab_global_page_pool", e.segments_free);
    w.stat("crawler_reclaimed", e.expired_reclaimed);
    w.stat("outofmemory", e.out_of_memory);
}
