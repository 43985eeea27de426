//! memcached's `-o`: words separated by commas, some with a value.

use super::options::ServeOptions;
use crate::value::{Parsed, Span};

/// Words that tune parts of memcached that work differently here. They are accepted, so that
/// existing configurations keep working.
const NOTED: &[&str] = &[
    "drop_privileges",
    "hash_algorithm",
    "hashpower",
    "hot_lru_pct",
    "hot_max_factor",
    "inline_ascii_resp",
    "lru_crawler",
    "lru_crawler_sleep",
    "lru_crawler_tocrawl",
    "lru_maintainer",
    "modern",
    "no_chunked_items",
    "no_drop_privileges",
    "no_hashexpand",
    "no_inline_ascii_resp",
    "no_lru_crawler",
    "no_lru_maintainer",
    "no_modern",
    "no_slab_automove",
    "no_slab_reassign",
    "read_buf_mem_limit",
    "relaxed_privileges",
    "resp_obj_mem_limit",
    "slab_automove",
    "slab_automove_freeratio",
    "slab_automove_ratio",
    "slab_automove_window",
    "slab_chunk_max",
    "slab_reassign",
    "slab_sizes",
    "sock_cookie_id",
    "tail_repair_time",
    "temporary_ttl",
    "track_sizes",
    "warm_lru_pct",
    "warm_max_factor",
    "watcher_logbuf_size",
    "worker_logbuf_size",
];

/// Prefixes of words that ask for an unsupported feature, and the name of the feature.
const REFUSED: &[(&str, &str)] = &[
    ("ext_", "external storage"),
    ("ssl_", "TLS"),
    ("proxy_", "the proxy"),
];

/// Applies the words of `options.extended` to `options`, and returns notes about words that have no
/// effect.
///
/// # Errors
///
/// A word is unknown or asks for an unsupported feature.
pub(super) fn apply(options: &mut ServeOptions) -> Result<Vec<String>, String> {
    let mut notes = Vec::new();
    for words in options.extended.take().unwrap_or_default() {
        for word in words.split(',').filter(|word| !word.is_empty()) {
            notes.extend(apply_word(options, word)?);
        }
    }
    Ok(notes)
}

fn apply_word(options: &mut ServeOptions, word: &str) -> Result<Option<String>, String> {
    let (name, value) = word
        .split_once('=')
        .map_or((word, None), |(name, v)| (name, Some(v)));
    match name {
        "maxconns_fast" => options.maxconns_fast = Some(true),
        "no_maxconns_fast" => options.maxconns_fast = Some(false),
        "idle_timeout" => {
            let value = value.ok_or("-o idle_timeout lacks a number of seconds")?;
            let span: Span = value
                .parse()
                .map_err(|error| format!("-o idle_timeout: {error}"))?;
            options.idle_timeout = Some(Parsed(span));
        }
        _ if NOTED.contains(&name) => {
            return Ok(Some(format!("-o {name} changes nothing here")));
        }
        _ => return Err(refusal(name)),
    }
    Ok(None)
}

fn refusal(name: &str) -> String {
    match REFUSED.iter().find(|(start, _)| name.starts_with(start)) {
        Some((_, what)) => format!("-o {name} is refused: {what} is out of scope"),
        None => format!("-o {name} is not an option of memcached"),
    }
}
