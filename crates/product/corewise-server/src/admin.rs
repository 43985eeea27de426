//! Commands that the engine does not execute: statistics, flushing, limits, authentication.

use crate::classes::Column;
use crate::config::{BindingProtocol, Config, Eviction, ProtocolKind};
use crate::dump::Dump;
use crate::metrics::{self, Counters};
use crate::shared::Shared;
use corewise_atomic::sync::atomic::Ordering;
use corewise_engine::{Engine, size_class};
use corewise_ops::{Deadline, Now};
use corewise_wire::memcached::{
    Admin, BinaryRequest, StatsRequest, StatsWriter, credentials, reply,
};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::path::Path;
use std::time::Instant;

// Statistics and settings of memcached 1.6 for parts that Corewise does not have are printed with
// values that are true, so that programs that require all of them find them.

/// In `stats items`, for each class; all are 0.
const ABSENT_OF_ITEMS: &str = "number_hot number_warm age_hot age_warm tailrepairs evicted_active \
    crawler_reclaimed crawler_items_checked lrutail_reflocked moves_to_cold moves_to_warm \
    moves_within_lru direct_reclaims hits_to_hot hits_to_warm hits_to_temp";

/// In `stats slabs`, for each class; all are 0. Deletions and cas mismatches are counted for all
/// classes together.
const ABSENT_OF_SLABS: &str = "free_chunks free_chunks_end delete_hits cas_badval";

/// In `stats settings`: values, and the settings that have them.
const ABSENT_SETTINGS: [(&str, &str); 5] = [
    (
        "0",
        "num_threads_per_udp hashpower_init slab_automove slab_automove_ratio \
         slab_automove_window slab_automove_freeratio slab_chunk_max lru_crawler_sleep \
         lru_crawler_tocrawl tail_repair_time hot_lru_pct warm_lru_pct hot_max_factor \
         warm_max_factor temporary_ttl watcher_logbuf_size worker_logbuf_size ext_item_size \
         ext_item_age ext_low_ttl ext_recache_rate ext_wbuf_size ext_compact_under \
         ext_drop_under ext_max_sleep ext_max_frag ssl_verify_mode ssl_keyformat ssl_wbuf_size",
    ),
    (
        "no",
        "inline_ascii_response ext_drop_unread ssl_session_cache ssl_kernel_tls",
    ),
    ("(null)", "ssl_chain_cert ssl_key num_napi_ids memory_file"),
    ("NULL", "ssl_ciphers ssl_ca_cert"),
    ("none", "ssl_min_version"),
];

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
            let client = connections.get(&self.fd).map_or("", |info| &info.peer);
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
            StatsRequest::General => {
                metrics::stats(self.shared, self.engine, self.now, self.out);
            }
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
        metrics::reset(self.shared, self.engine, self.now);
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
        for (value, names) in ABSENT_SETTINGS {
            for name in names.split_ascii_whitespace() {
                w.stat(name, value);
            }
        }
        w.end();
    }

    fn items(&mut self) {
        let mut w = StatsWriter::new(self.out);
        for (class, counts) in metrics::classes(self.shared, self.engine) {
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
                ("outofmemory", counts[Column::OutOfMemory as usize]),
                ("reclaimed", class.reclaimed),
                ("expired_unfetched", class.expired_unfetched),
                ("hits_to_cold", counts[Column::GetHits as usize]),
            ];
            for (stat, value) in stats {
                w.stat(name(stat), value);
            }
            for stat in ABSENT_OF_ITEMS.split_ascii_whitespace() {
                w.stat(name(stat), 0);
            }
        }
        w.end();
    }

    fn slabs(&mut self) {
        let classes = metrics::classes(self.shared, self.engine);
        let engine = self.engine.stats();
        // Engines without segments get their memory from the allocator.
        let page = engine.segment_bytes.max(1 << 20);
        let mut w = StatsWriter::new(self.out);
        for (class, counts) in &classes {
            let name = |stat: &str| format!("{}:{stat}", class.class);
            let stats = [
                ("chunk_size", class.max_bytes),
                ("chunks_per_page", (page / class.max_bytes).max(1)),
                ("total_pages", class.bytes.div_ceil(page)),
                ("used_chunks", class.items),
                ("total_chunks", class.items),
                ("get_hits", counts[Column::GetHits as usize]),
                ("cmd_set", counts[Column::CmdSet as usize]),
                ("incr_hits", counts[Column::IncrHits as usize]),
                ("decr_hits", counts[Column::DecrHits as usize]),
                ("cas_hits", counts[Column::CasHits as usize]),
                ("touch_hits", counts[Column::TouchHits as usize]),
            ];
            for (stat, value) in stats {
                w.stat(name(stat), value);
            }
            for stat in ABSENT_OF_SLABS.split_ascii_whitespace() {
                w.stat(name(stat), 0);
            }
        }
        w.stat(
            "active_slabs",
            classes.iter().filter(|(class, _)| class.items > 0).count(),
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
        let mut infos: Vec<_> = self.shared.connections.lock().values().cloned().collect();
        infos.sort_by_key(|info| info.fd);
        let mut w = StatsWriter::new(self.out);
        for info in &infos {
            // Relaxed: a statistic.
            let active_ms = info.active_ms.load(Ordering::Relaxed);
            w.stat(format_args!("{}:addr", info.fd), &info.peer);
            if let Some(listener) = &info.listener {
                w.stat(format_args!("{}:listen_addr", info.fd), listener);
            }
            let asks = info.fd == self.fd;
            let state = if asks { "conn_parse_cmd" } else { info.state() };
            w.stat(format_args!("{}:state", info.fd), state);
            let idle_s = self.now.ms.saturating_sub(active_ms) / 1_000;
            w.stat(format_args!("{}:secs_since_last_cmd", info.fd), idle_s);
        }
        w.end();
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
    let binding = match c.binding {
        _ if c.auth_file.is_some() => "ascii",
        BindingProtocol::Auto => "auto-negotiate",
        BindingProtocol::Ascii => "ascii",
        BindingProtocol::Binary => "binary",
    };
    w.stat("binding_protocol", binding);
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
