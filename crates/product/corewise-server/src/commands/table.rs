//! The table of commands: one row for each command and subcommand.
//!
//! A row has what Redis 7.0 tells of the command, how its requests are read, and what executes
//! those that are not one operation. A new command is a row here, and its functions in the file of
//! its family.

use super::operation::{Action, Parsed};
use super::{
    Context, acl, aggregates, bits, client, cluster, command, compare, connection, filters, keys,
    keyspace, latency, lcs, pubsub, scripting, server, several, slowlog, sorted, strings,
    transactions,
};
use crate::codec::Parse;
use corewise_engine::Engine;
use corewise_wire::Tally;
use corewise_wire::resp::{Args, Request, parse_integer};
use std::marker::PhantomData;
use std::ops::Deref;

/// Where a command has keys: the position of the first, of the last from the first (from the end,
/// if negative), and their distance; or as [`numbered`] says.
pub(super) type KeyRange = [i8; 3];

/// The range of keys whose number is in the request, at this position: they are behind it.
const fn numbered(position: i8) -> KeyRange {
    [position, 0, 0]
}

const fn is_numbered(range: &KeyRange) -> bool {
    range[2] == 0
}

/// What is known of a command or subcommand, whichever engine executes it. Words are separated by
/// blanks.
pub(crate) struct Row {
    /// In lower case. A subcommand's name begins with its command's and `|`.
    pub(super) name: &'static str,
    /// The number of elements of its requests; if negative, the least number of them.
    pub(super) arity: i8,
    pub(super) flags: &'static str,
    /// The group in Redis's documentation, and the categories that follow neither from it nor from
    /// the flags.
    pub(super) group: &'static str,
    pub(super) tips: &'static str,
    /// What the command does with keys, and where they are. What `not_key` says of is a channel.
    pub(super) keys: &'static [(&'static str, KeyRange)],
    /// What the operations count as that `parse` returns, unless they are
    /// [counted otherwise](super::operation::Operation::counting_as) for their arguments; and
    /// those of a call, unless it says that one counts as nothing.
    pub(super) tally: Tally,
    /// Reads the arguments, of which the command accepts the number.
    pub(super) parse: for<'i> fn(Args<'i>, &Parse<'i>) -> Parsed<'i>,
}

/// Executes a command and prints its reply.
type Run<E> = fn(&mut Context<'_, E>, Args<'_>);

/// The functions in the last column of the table.
struct Runs<E>(PhantomData<E>);

macro_rules! rows {
    ($($name:literal, $arity:literal, $flags:literal, $group:literal, $tips:literal,
        [$($keys:expr),*], $tally:ident, $parse:path, $run:path;)*) => {
        static ROWS: &[Row] = &[$(Row {
            name: $name,
            arity: $arity,
            flags: $flags,
            group: $group,
            tips: $tips,
            keys: &[$($keys),*],
            tally: Tally::$tally,
            parse: $parse,
        }),*];

        impl<E: Engine> Runs<E> {
            const ALL: &'static [Run<E>] = &[$($run),*];
        }
    };
}

// Name, arity, flags, group and categories, tips, keys, tally, `parse`, `run`. Subcommands follow
// their command.
rows! {
    "acl", -2, "", "server", "", [], None, calls, acl::acl;
    "acl|cat", -2, "noscript loading stale", "server", "", [], None, calls, batched;
    "acl|getuser", 3, "admin noscript loading stale", "server", "", [], None, calls, batched;
    "acl|help", 2, "loading stale", "server", "", [], None, calls, batched;
    "acl|list", 2, "admin noscript loading stale", "server", "", [], None, calls, batched;
    "acl|load", 2, "admin noscript loading stale", "server", "", [], None, calls, batched;
    "acl|log", -2, "admin noscript loading stale", "server", "", [], None, calls, batched;
    "acl|save", 2, "admin noscript loading stale", "server", "", [], None, calls, batched;
    "acl|users", 2, "admin noscript loading stale", "server", "", [], None, calls, batched;
    "acl|whoami", 2, "noscript loading stale", "server", "", [], None, calls, batched;
    "append", 3, "write denyoom fast", "string", "", [("RW insert", [1, 0, 1])], Store, strings::append, batched;
    "auth", -2, "noscript loading stale fast no_auth allow_busy", "connection", "", [], None, calls, connection::auth;
    "bitcount", -2, "readonly", "bitmap", "", [("RO access", [1, 0, 1])], Get, calls, bits::bitcount;
    "bitfield", -2, "write denyoom", "bitmap", "", [("RW access update variable_flags", [1, 0, 1])], Get, calls, bits::bitfield;
    "bitfield_ro", -2, "readonly fast", "bitmap", "", [("RO access", [1, 0, 1])], Get, calls, bits::bitfield_ro;
    "bitop", -4, "write denyoom", "bitmap", "", [("OW update", [2, 0, 1]), ("RO access", [3, -1, 1])], Get, calls, bits::bitop;
    "bitpos", -3, "readonly", "bitmap", "", [("RO access", [1, 0, 1])], Get, calls, bits::bitpos;
    "cf.add", 3, "write denyoom fast", "module", "", [("RW insert", [1, 0, 1])], None, calls, filters::add;
    "cf.addnx", 3, "write denyoom fast", "module", "", [("RW access insert", [1, 0, 1])], None, calls, filters::addnx;
    "cf.compact", 2, "write", "module", "", [("RW update", [1, 0, 1])], None, calls, filters::compact;
    "cf.count", 3, "readonly fast", "module", "", [("RO access", [1, 0, 1])], Get, calls, filters::count;
    "cf.del", 3, "write fast", "module", "", [("RW delete", [1, 0, 1])], None, calls, filters::del;
    "cf.exists", 3, "readonly fast", "module", "", [("RO access", [1, 0, 1])], Get, calls, filters::exists;
    "cf.info", 2, "readonly fast", "module", "", [("RO", [1, 0, 1])], Get, calls, filters::info;
    "cf.insert", -4, "write denyoom", "module", "", [("RW insert", [1, 0, 1])], None, calls, filters::insert;
    "cf.insertnx", -4, "write denyoom", "module", "", [("RW access insert", [1, 0, 1])], None, calls, filters::insertnx;
    "cf.loadchunk", 4, "write denyoom", "module", "", [("RW insert", [1, 0, 1])], None, calls, filters::loadchunk;
    "cf.mexists", -3, "readonly fast", "module", "", [("RO access", [1, 0, 1])], Get, calls, filters::mexists;
    "cf.reserve", -3, "write denyoom fast", "module", "", [("OW insert", [1, 0, 1])], None, calls, filters::reserve;
    "cf.scandump", 3, "readonly", "module", "", [("RO access", [1, 0, 1])], Get, calls, filters::scandump;
    "client", -2, "", "connection", "", [], None, calls, client::client_command;
    "client|caching", 3, "noscript loading stale", "connection", "", [], None, calls, batched;
    "client|getname", 2, "noscript loading stale", "connection", "", [], None, calls, batched;
    "client|getredir", 2, "noscript loading stale", "connection", "", [], None, calls, batched;
    "client|help", 2, "loading stale", "connection", "", [], None, calls, batched;
    "client|id", 2, "noscript loading stale", "connection", "", [], None, calls, batched;
    "client|info", 2, "noscript loading stale", "connection", "nondeterministic_output", [], None, calls, batched;
    "client|kill", -3, "admin noscript loading stale", "connection", "", [], None, calls, batched;
    "client|list", -2, "admin noscript loading stale", "connection", "nondeterministic_output", [], None, calls, batched;
    "client|no-evict", 3, "admin noscript loading stale", "connection", "", [], None, calls, batched;
    "client|reply", 3, "noscript loading stale", "connection", "", [], None, calls, batched;
    "client|setname", 3, "noscript loading stale", "connection", "", [], None, calls, batched;
    "client|tracking", -3, "noscript loading stale", "connection", "", [], None, calls, batched;
    "client|trackinginfo", 2, "noscript loading stale", "connection", "", [], None, calls, batched;
    "client|unblock", -3, "admin noscript loading stale", "connection", "", [], None, calls, batched;
    "cluster", -2, "", "cluster", "", [], None, calls, cluster::cluster;
    "cluster|addslots", -3, "admin stale no_async_loading", "cluster", "", [], None, calls, batched;
    "cluster|addslotsrange", -4, "admin stale no_async_loading", "cluster", "", [], None, calls, batched;
    "cluster|bumpepoch", 2, "admin stale no_async_loading", "cluster", "nondeterministic_output", [], None, calls, batched;
    "cluster|count-failure-reports", 3, "admin stale", "cluster", "nondeterministic_output", [], None, calls, batched;
    "cluster|countkeysinslot", 3, "stale", "cluster", "", [], None, calls, batched;
    "cluster|delslots", -3, "admin stale no_async_loading", "cluster", "", [], None, calls, batched;
    "cluster|delslotsrange", -4, "admin stale no_async_loading", "cluster", "", [], None, calls, batched;
    "cluster|failover", -2, "admin stale no_async_loading", "cluster", "", [], None, calls, batched;
    "cluster|flushslots", 2, "admin stale no_async_loading", "cluster", "", [], None, calls, batched;
    "cluster|forget", 3, "admin stale no_async_loading", "cluster", "", [], None, calls, batched;
    "cluster|getkeysinslot", 4, "stale", "cluster", "nondeterministic_output", [], None, calls, batched;
    "cluster|help", 2, "loading stale", "cluster", "", [], None, calls, batched;
    "cluster|info", 2, "stale", "cluster", "nondeterministic_output", [], None, calls, batched;
    "cluster|keyslot", 3, "stale", "cluster", "", [], None, calls, batched;
    "cluster|links", 2, "stale", "cluster", "nondeterministic_output", [], None, calls, batched;
    "cluster|meet", -4, "admin stale no_async_loading", "cluster", "", [], None, calls, batched;
    "cluster|myid", 2, "stale", "cluster", "", [], None, calls, batched;
    "cluster|nodes", 2, "stale", "cluster", "nondeterministic_output", [], None, calls, batched;
    "cluster|replicas", 3, "admin stale", "cluster", "nondeterministic_output", [], None, calls, batched;
    "cluster|replicate", 3, "admin stale no_async_loading", "cluster", "", [], None, calls, batched;
    "cluster|reset", -2, "admin noscript stale", "cluster", "", [], None, calls, batched;
    "cluster|saveconfig", 2, "admin stale no_async_loading", "cluster", "", [], None, calls, batched;
    "cluster|set-config-epoch", 3, "admin stale no_async_loading", "cluster", "", [], None, calls, batched;
    "cluster|setslot", -4, "admin stale no_async_loading", "cluster", "", [], None, calls, batched;
    "cluster|shards", 2, "stale", "cluster", "nondeterministic_output", [], None, calls, batched;
    "cluster|slaves", 3, "admin stale", "cluster", "nondeterministic_output", [], None, calls, batched;
    "cluster|slots", 2, "stale", "cluster", "nondeterministic_output", [], None, calls, batched;
    "command", -1, "loading stale", "server connection", "nondeterministic_output_order", [], None, calls, command::command;
    "command|count", 2, "loading stale", "server connection", "", [], None, calls, batched;
    "command|docs", -2, "loading stale", "server connection", "nondeterministic_output_order", [], None, calls, batched;
    "command|getkeys", -4, "loading stale", "server connection", "", [], None, calls, batched;
    "command|help", 2, "loading stale", "server connection", "", [], None, calls, batched;
    "command|info", -2, "loading stale", "server connection", "nondeterministic_output_order", [], None, calls, batched;
    "command|list", -2, "loading stale", "server connection", "nondeterministic_output_order", [], None, calls, batched;
    "config", -2, "", "server", "", [], None, calls, server::config;
    "config|get", -3, "admin noscript loading stale", "server", "", [], None, calls, batched;
    "config|help", 2, "loading stale", "server", "", [], None, calls, batched;
    "config|resetstat", 2, "admin noscript loading stale", "server", "", [], None, calls, batched;
    "config|set", -4, "admin noscript loading stale", "server", "request_policy:all_nodes response_policy:all_succeeded", [], None, calls, batched;
    "copy", -3, "write denyoom", "generic", "", [("RO access", [1, 0, 1]), ("OW update", [2, 0, 1])], Get, calls, several::copy;
    "dbsize", 1, "readonly fast", "server keyspace", "request_policy:all_shards response_policy:agg_sum", [], None, calls, server::dbsize;
    "decr", 2, "write denyoom fast", "string", "", [("RW access update", [1, 0, 1])], None, strings::decr, batched;
    "decrby", 3, "write denyoom fast", "string", "", [("RW access update", [1, 0, 1])], None, strings::decrby, batched;
    "del", -2, "write", "generic", "request_policy:multi_shard response_policy:agg_sum", [("RM delete", [1, -1, 1])], Delete, keys::del, batched;
    "delex", -2, "write fast", "string", "", [("RW delete variable_flags", [1, 0, 1])], None, compare::delex, batched;
    "delifeq", 3, "write fast", "string", "", [("RW access delete", [1, 0, 1])], None, compare::delifeq, batched;
    "discard", 1, "noscript loading stale fast allow_busy", "transactions", "", [], None, calls, transactions::discard;
    "echo", 2, "loading stale fast", "connection", "", [], None, calls, connection::echo;
    "eval", -3, "noscript stale skip_monitor no_mandatory_keys movablekeys", "scripting", "", [("RW access update", numbered(2))], None, calls, scripting::eval;
    "eval_ro", -3, "readonly noscript stale skip_monitor no_mandatory_keys movablekeys", "scripting", "", [("RO access", numbered(2))], None, calls, scripting::eval_ro;
    "evalsha", -3, "noscript stale skip_monitor no_mandatory_keys movablekeys", "scripting", "", [("RW access update", numbered(2))], None, calls, scripting::evalsha;
    "evalsha_ro", -3, "readonly noscript stale skip_monitor no_mandatory_keys movablekeys", "scripting", "", [("RO access", numbered(2))], None, calls, scripting::evalsha_ro;
    "exec", 1, "noscript loading stale skip_slowlog", "transactions", "", [], None, calls, transactions::exec;
    "exists", -2, "readonly fast", "generic", "request_policy:multi_shard response_policy:agg_sum", [("RO", [1, -1, 1])], Get, keys::exists, batched;
    "expire", -3, "write fast", "generic", "", [("RW update", [1, 0, 1])], Touch, keys::expire, batched;
    "expireat", -3, "write fast", "generic", "", [("RW update", [1, 0, 1])], Touch, keys::expireat, batched;
    "expiretime", 2, "readonly fast", "generic", "", [("RO access", [1, 0, 1])], Get, keys::expiretime, batched;
    "flushall", -1, "write", "server keyspace dangerous", "request_policy:all_shards response_policy:all_succeeded", [], None, calls, server::flushall;
    "flushdb", -1, "write", "server keyspace dangerous", "request_policy:all_shards response_policy:all_succeeded", [], None, calls, server::flushdb;
    "get", 2, "readonly fast", "string", "", [("RO access", [1, 0, 1])], Get, strings::get, batched;
    "getbit", 3, "readonly fast", "bitmap", "", [("RO access", [1, 0, 1])], Get, bits::getbit, batched;
    "getdel", 2, "write fast", "string", "", [("RW access delete", [1, 0, 1])], Get, strings::getdel, batched;
    "getex", -2, "write fast", "string", "", [("RW access update", [1, 0, 1])], Get, strings::getex, strings::getex_wrongly;
    "getrange", 4, "readonly", "string", "", [("RO access", [1, 0, 1])], Get, strings::getrange, batched;
    "getset", 3, "write denyoom fast", "string", "", [("RW access update", [1, 0, 1])], GetSet, strings::getset, batched;
    "hello", -1, "noscript loading stale fast no_auth allow_busy", "connection", "", [], None, calls, connection::hello;
    "incr", 2, "write denyoom fast", "string", "", [("RW access update", [1, 0, 1])], None, strings::incr, batched;
    "incrby", 3, "write denyoom fast", "string", "", [("RW access update", [1, 0, 1])], None, strings::incrby, batched;
    "incrbyfloat", 3, "write denyoom fast", "string", "", [("RW access update", [1, 0, 1])], None, calls, strings::incrbyfloat;
    "info", -1, "loading stale", "server dangerous", "nondeterministic_output request_policy:all_shards response_policy:special", [], None, calls, server::info;
    "keys", 2, "readonly", "generic dangerous", "request_policy:all_shards nondeterministic_output_order", [], None, calls, keyspace::keys;
    "lastsave", 1, "loading stale fast", "server admin dangerous", "nondeterministic_output", [], None, calls, server::lastsave;
    "latency", -2, "", "server", "", [], None, calls, latency::latency;
    "latency|doctor", 2, "admin noscript loading stale", "server", "nondeterministic_output request_policy:all_nodes response_policy:special", [], None, calls, batched;
    "latency|graph", 3, "admin noscript loading stale", "server", "nondeterministic_output request_policy:all_nodes response_policy:special", [], None, calls, batched;
    "latency|help", 2, "loading stale", "server", "", [], None, calls, batched;
    "latency|histogram", -2, "admin noscript loading stale", "server", "nondeterministic_output request_policy:all_nodes response_policy:special", [], None, calls, batched;
    "latency|history", 3, "admin noscript loading stale", "server", "nondeterministic_output request_policy:all_nodes response_policy:special", [], None, calls, batched;
    "latency|latest", 2, "admin noscript loading stale", "server", "nondeterministic_output request_policy:all_nodes response_policy:special", [], None, calls, batched;
    "latency|reset", -2, "admin noscript loading stale", "server", "request_policy:all_nodes response_policy:all_succeeded", [], None, calls, batched;
    "lcs", -3, "readonly", "string", "", [("RO access", [1, 1, 1])], Get, calls, lcs::lcs;
    "memory", -2, "", "server", "", [], None, calls, keyspace::memory;
    "memory|help", 2, "loading stale", "server", "", [], None, calls, batched;
    "memory|usage", -3, "readonly", "server", "", [("RO", [2, 0, 1])], None, calls, batched;
    "mget", -2, "readonly fast", "string", "request_policy:multi_shard", [("RO access", [1, -1, 1])], Get, several::mget, batched;
    "module", -2, "", "server", "", [], None, calls, server::module;
    "module|help", 2, "loading stale", "server", "", [], None, calls, batched;
    "module|list", 2, "admin noscript", "server", "nondeterministic_output_order", [], None, calls, batched;
    "move", 3, "write fast", "generic", "", [("RW access update", [1, 0, 1])], None, calls, several::move_key;
    "mset", -3, "write denyoom", "string", "request_policy:multi_shard response_policy:all_succeeded", [("OW update", [1, -1, 2])], Store, calls, several::mset;
    "msetnx", -3, "write denyoom", "string", "request_policy:multi_shard response_policy:agg_min", [("OW insert", [1, -1, 2])], Store, calls, several::msetnx;
    "multi", 1, "noscript loading stale fast allow_busy", "transactions", "", [], None, calls, transactions::multi;
    "object", -2, "", "generic", "", [], Get, calls, keyspace::object;
    "object|encoding", 3, "readonly", "generic", "nondeterministic_output", [("RO", [2, 0, 1])], None, calls, batched;
    "object|freq", 3, "readonly", "generic", "nondeterministic_output", [("RO", [2, 0, 1])], None, calls, batched;
    "object|help", 2, "loading stale", "generic", "", [], None, calls, batched;
    "object|idletime", 3, "readonly", "generic", "nondeterministic_output", [("RO", [2, 0, 1])], None, calls, batched;
    "object|refcount", 3, "readonly", "generic", "nondeterministic_output", [("RO", [2, 0, 1])], None, calls, batched;
    "persist", 2, "write fast", "generic", "", [("RW update", [1, 0, 1])], None, keys::persist, batched;
    "pexpire", -3, "write fast", "generic", "", [("RW update", [1, 0, 1])], Touch, keys::pexpire, batched;
    "pexpireat", -3, "write fast", "generic", "", [("RW update", [1, 0, 1])], Touch, keys::pexpireat, batched;
    "pexpiretime", 2, "readonly fast", "generic", "", [("RO access", [1, 0, 1])], Get, keys::pexpiretime, batched;
    "ping", -1, "fast", "connection", "request_policy:all_shards response_policy:all_succeeded", [], None, calls, connection::ping;
    "psetex", 4, "write denyoom", "string", "", [("OW update", [1, 0, 1])], Store, strings::psetex, batched;
    "psubscribe", -2, "pubsub noscript loading stale", "pubsub", "", [], None, calls, pubsub::subscribe;
    "pttl", 2, "readonly fast", "generic", "nondeterministic_output", [("RO access", [1, 0, 1])], Get, keys::pttl, batched;
    "publish", 3, "pubsub loading stale fast", "pubsub", "", [], None, calls, pubsub::publish;
    "pubsub", -2, "", "pubsub", "", [], None, calls, pubsub::pubsub;
    "pubsub|channels", -2, "pubsub loading stale", "pubsub", "", [], None, calls, batched;
    "pubsub|help", 2, "loading stale", "pubsub", "", [], None, calls, batched;
    "pubsub|numpat", 2, "pubsub loading stale", "pubsub", "", [], None, calls, batched;
    "pubsub|numsub", -2, "pubsub loading stale", "pubsub", "", [], None, calls, batched;
    "pubsub|shardchannels", -2, "pubsub loading stale", "pubsub", "", [], None, calls, batched;
    "pubsub|shardnumsub", -2, "pubsub loading stale", "pubsub", "", [], None, calls, batched;
    "punsubscribe", -1, "pubsub noscript loading stale", "pubsub", "", [], None, calls, pubsub::punsubscribe;
    "quit", -1, "noscript loading stale fast no_auth allow_busy", "connection", "", [], None, calls, connection::quit;
    "randomkey", 1, "readonly", "generic", "request_policy:all_shards nondeterministic_output", [], None, calls, keyspace::randomkey;
    "readonly", 1, "loading stale fast", "cluster connection", "", [], None, calls, cluster::cluster;
    "readwrite", 1, "loading stale fast", "cluster connection", "", [], None, calls, cluster::cluster;
    "rename", 3, "write", "generic", "", [("RW access delete", [1, 0, 1]), ("OW update", [2, 0, 1])], None, calls, several::rename;
    "renamenx", 3, "write fast", "generic", "", [("RW access delete", [1, 0, 1]), ("OW insert", [2, 0, 1])], None, calls, several::renamenx;
    "reset", 1, "noscript loading stale fast no_auth allow_busy", "connection", "", [], None, calls, connection::reset;
    "role", 1, "noscript loading stale fast", "server admin dangerous", "", [], None, calls, cluster::role;
    "scan", -2, "readonly", "generic", "nondeterministic_output request_policy:special", [], None, calls, keys::scan;
    "script", -2, "", "scripting", "", [], None, calls, scripting::script;
    "script|exists", -3, "noscript", "scripting", "request_policy:all_shards response_policy:agg_logical_and", [], None, calls, batched;
    "script|flush", -2, "noscript", "scripting", "request_policy:all_nodes response_policy:all_succeeded", [], None, calls, batched;
    "script|help", 2, "loading stale", "scripting", "", [], None, calls, batched;
    "script|kill", 2, "noscript allow_busy", "scripting", "request_policy:all_shards response_policy:one_succeeded", [], None, calls, batched;
    "script|load", 3, "noscript stale", "scripting", "request_policy:all_nodes response_policy:all_succeeded", [], None, calls, batched;
    "select", 2, "loading stale fast", "connection", "", [], None, calls, connection::select;
    "set", -3, "write denyoom", "string", "", [("RW access update variable_flags", [1, 0, 1])], Store, strings::set, batched;
    "setbit", 4, "write denyoom", "bitmap", "", [("RW access update", [1, 0, 1])], None, bits::setbit, batched;
    "setex", 4, "write denyoom", "string", "", [("OW update", [1, 0, 1])], Store, strings::setex, batched;
    "setnx", 3, "write denyoom fast", "string", "", [("OW insert", [1, 0, 1])], Store, strings::setnx, batched;
    "setrange", 4, "write denyoom", "string", "", [("RW update", [1, 0, 1])], None, strings::setrange, batched;
    "slowlog", -2, "", "server", "", [], None, calls, slowlog::slowlog;
    "slowlog|get", -2, "admin loading stale", "server", "request_policy:all_nodes nondeterministic_output", [], None, calls, batched;
    "slowlog|help", 2, "loading stale", "server", "", [], None, calls, batched;
    "slowlog|len", 2, "admin loading stale", "server", "request_policy:all_nodes response_policy:agg_sum nondeterministic_output", [], None, calls, batched;
    "slowlog|reset", 2, "admin loading stale", "server", "request_policy:all_nodes response_policy:all_succeeded", [], None, calls, batched;
    "spublish", 3, "pubsub loading stale fast", "pubsub", "", [("not_key", [1, 0, 1])], None, calls, pubsub::publish;
    "ssubscribe", -2, "pubsub noscript loading stale", "pubsub", "", [("not_key", [1, -1, 1])], None, calls, pubsub::subscribe;
    "strlen", 2, "readonly fast", "string", "", [("RO", [1, 0, 1])], Get, strings::strlen, batched;
    "subscribe", -2, "pubsub noscript loading stale", "pubsub", "", [], None, calls, pubsub::subscribe;
    "substr", 4, "readonly", "string", "", [("RO access", [1, 0, 1])], Get, strings::getrange, batched;
    "sunsubscribe", -1, "pubsub noscript loading stale", "pubsub", "", [("not_key", [1, -1, 1])], None, calls, pubsub::sunsubscribe;
    "time", 1, "loading stale fast", "server", "nondeterministic_output", [], None, calls, server::time;
    "touch", -2, "readonly fast", "generic", "request_policy:multi_shard response_policy:agg_sum", [("RO", [1, -1, 1])], Get, keys::touch, batched;
    "ttl", 2, "readonly fast", "generic", "nondeterministic_output", [("RO access", [1, 0, 1])], Get, keys::ttl, batched;
    "type", 2, "readonly fast", "generic", "", [("RO", [1, 0, 1])], Get, keys::type_of, batched;
    "unlink", -2, "write fast", "generic", "request_policy:multi_shard response_policy:agg_sum", [("RM delete", [1, -1, 1])], Delete, keys::del, batched;
    "unsubscribe", -1, "pubsub noscript loading stale", "pubsub", "", [], None, calls, pubsub::unsubscribe;
    "unwatch", 1, "noscript loading stale fast allow_busy", "transactions", "", [], None, calls, transactions::unwatch;
    "wait", 3, "noscript", "generic connection", "request_policy:all_shards response_policy:agg_min", [], None, calls, cluster::wait;
    "watch", -2, "noscript loading stale fast allow_busy", "transactions", "", [("RO", [1, -1, 1])], None, calls, transactions::watch;
    "zadd", -4, "write denyoom fast", "sortedset", "", [("RW update", [1, 0, 1])], None, sorted::zadd, sorted::zadd_call;
    "zcard", 2, "readonly fast", "sortedset", "", [("RO", [1, 0, 1])], Get, sorted::zcard, batched;
    "zcount", 4, "readonly fast", "sortedset", "", [("RO access", [1, 0, 1])], Get, sorted::zcount, batched;
    "zdiff", -3, "readonly movablekeys", "sortedset", "", [("RO access", numbered(1))], Get, calls, aggregates::zdiff;
    "zdiffstore", -4, "write denyoom movablekeys", "sortedset", "", [("OW update", [1, 0, 1]), ("RO access", numbered(2))], Get, calls, aggregates::zdiffstore;
    "zincrby", 4, "write denyoom fast", "sortedset", "", [("RW access update", [1, 0, 1])], None, sorted::zincrby, batched;
    "zinter", -3, "readonly movablekeys", "sortedset", "", [("RO access", numbered(1))], Get, calls, aggregates::zinter;
    "zintercard", -3, "readonly movablekeys", "sortedset", "", [("RO access", numbered(1))], Get, calls, aggregates::zintercard;
    "zinterstore", -4, "write denyoom movablekeys", "sortedset", "", [("OW update", [1, 0, 1]), ("RO access", numbered(2))], Get, calls, aggregates::zinterstore;
    "zlexcount", 4, "readonly fast", "sortedset", "", [("RO access", [1, 0, 1])], Get, sorted::zlexcount, batched;
    "zmpop", -4, "write movablekeys", "sortedset", "", [("RW access delete", numbered(1))], None, calls, aggregates::zmpop;
    "zmscore", -3, "readonly fast", "sortedset", "", [("RO access", [1, 0, 1])], Get, sorted::zmscore, sorted::zmscore_call;
    "zpopmax", -2, "write fast", "sortedset", "", [("RW access delete", [1, 0, 1])], None, sorted::zpopmax, batched;
    "zpopmin", -2, "write fast", "sortedset", "", [("RW access delete", [1, 0, 1])], None, sorted::zpopmin, batched;
    "zrandmember", -2, "readonly", "sortedset", "nondeterministic_output", [("RO access", [1, 0, 1])], Get, sorted::zrandmember, batched;
    "zrange", -4, "readonly", "sortedset", "", [("RO access", [1, 0, 1])], Get, sorted::zrange, batched;
    "zrangebylex", -4, "readonly", "sortedset", "", [("RO access", [1, 0, 1])], Get, sorted::zrangebylex, batched;
    "zrangebyscore", -4, "readonly", "sortedset", "", [("RO access", [1, 0, 1])], Get, sorted::zrangebyscore, batched;
    "zrangestore", -5, "write denyoom", "sortedset", "", [("OW update", [1, 0, 1]), ("RO access", [2, 0, 1])], Get, calls, aggregates::zrangestore;
    "zrank", 3, "readonly fast", "sortedset", "", [("RO access", [1, 0, 1])], Get, sorted::zrank, batched;
    "zrem", -3, "write fast", "sortedset", "", [("RW delete", [1, 0, 1])], None, sorted::zrem, sorted::zrem_call;
    "zremrangebylex", 4, "write", "sortedset", "", [("RW delete", [1, 0, 1])], None, sorted::zremrangebylex, batched;
    "zremrangebyrank", 4, "write", "sortedset", "", [("RW delete", [1, 0, 1])], None, sorted::zremrangebyrank, batched;
    "zremrangebyscore", 4, "write", "sortedset", "", [("RW delete", [1, 0, 1])], None, sorted::zremrangebyscore, batched;
    "zrevrange", -4, "readonly", "sortedset", "", [("RO access", [1, 0, 1])], Get, sorted::zrevrange, batched;
    "zrevrangebylex", -4, "readonly", "sortedset", "", [("RO access", [1, 0, 1])], Get, sorted::zrevrangebylex, batched;
    "zrevrangebyscore", -4, "readonly", "sortedset", "", [("RO access", [1, 0, 1])], Get, sorted::zrevrangebyscore, batched;
    "zrevrank", 3, "readonly fast", "sortedset", "", [("RO access", [1, 0, 1])], Get, sorted::zrevrank, batched;
    "zscan", -3, "readonly", "sortedset", "nondeterministic_output", [("RO access", [1, 0, 1])], Get, calls, sorted::zscan;
    "zscore", 3, "readonly fast", "sortedset", "", [("RO access", [1, 0, 1])], Get, sorted::zscore, batched;
    "zunion", -3, "readonly movablekeys", "sortedset", "", [("RO access", numbered(1))], Get, calls, aggregates::zunion;
    "zunionstore", -4, "write denyoom movablekeys", "sortedset", "", [("OW update", [1, 0, 1]), ("RO access", numbered(2))], Get, calls, aggregates::zunionstore;
}

/// For a command whose `run` reads the arguments: it needs several keys, or none; or an
/// [`Outcome`](corewise_ops::Outcome) does not have its reply, as the sum of `INCRBYFLOAT` or the
/// array of `BITFIELD`; or it takes time in proportion to the value.
fn calls<'i>(_: Args<'i>, _: &Parse<'_>) -> Parsed<'i> {
    Ok(Action::Call)
}

/// For a command whose `parse` never leaves a request to `run`, or a subcommand, which its command
/// executes.
fn batched<E: Engine>(_: &mut Context<'_, E>, _: Args<'_>) {
    debug_assert!(false, "the request is an operation");
}

/// A command or subcommand: the number of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Command(u8);

const _: () = assert!(ROWS.len() <= NO_ROW as usize);

impl Deref for Command {
    type Target = Row;

    #[inline]
    fn deref(&self) -> &Row {
        &ROWS[usize::from(self.0)]
    }
}

impl Default for Command {
    fn default() -> Self {
        Self::NONE
    }
}

impl Command {
    /// No command: its row counts nothing.
    pub(super) const NONE: Self = Self(NO_ROW);
    pub(super) const GET: Self = Self::named("get");
    pub(super) const MGET: Self = Self::named("mget");
    pub(super) const SET: Self = Self::named("set");

    /// The command of a name that the table has.
    const fn named(name: &str) -> Self {
        let mut row = 0;
        while row < ROWS.len() {
            if is_same(ROWS[row].name.as_bytes(), name.as_bytes()) {
                return Self(row as u8);
            }
            row += 1;
        }
        panic!("no such command")
    }

    /// The number of its row.
    #[inline]
    pub(super) fn row(self) -> usize {
        usize::from(self.0)
    }

    /// Its name; `NULL`, as in Redis, if it is none.
    pub(super) fn shown(self) -> &'static str {
        ROWS.get(self.row()).map_or("NULL", |row| row.name)
    }

    /// What executes its requests that are not operations.
    pub(super) fn run<E: Engine>(self) -> Run<E> {
        Runs::ALL[usize::from(self.0)]
    }

    /// Its subcommands, which follow it.
    pub(super) fn subcommands(self) -> impl Iterator<Item = Self> + Clone {
        let is_one = move |command: &Self| {
            let rest = command.name.strip_prefix(self.name);
            rest.is_some_and(|rest| rest.starts_with('|'))
        };
        let rest = self.0 + 1..ROWS.len() as u8;
        rest.map(Self).take_while(is_one)
    }

    /// Its subcommand of this name, in any case.
    pub(super) fn subcommand(self, name: &[u8]) -> Option<Self> {
        let is_named = |command: &Self| {
            let own = command.name.split_once('|').map_or("", |(_, own)| own);
            own.as_bytes().eq_ignore_ascii_case(name)
        };
        self.subcommands().find(is_named)
    }
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

impl Row {
    /// Whether a request may have this number of elements.
    #[inline]
    pub(super) fn accepts(&self, elements: usize) -> bool {
        let (elements, arity) = (elements as i64, i64::from(self.arity));
        if arity < 0 {
            elements >= -arity
        } else {
            elements == arity
        }
    }

    /// The keys among the arguments of a request, each with its database, if `database` is
    /// selected and there are `databases`.
    pub(super) fn places_of<'i>(
        &self,
        args: Args<'i>,
        database: u8,
        databases: u8,
    ) -> impl Iterator<Item = (u8, &'i [u8])> + use<'i> {
        let other = self.other_database(args, databases).unwrap_or(database);
        let moved = { args }.next().filter(|_| self.name == "move");
        let of = move |index| if index == 1 { other } else { database };
        let keys = self.keys_of(args).enumerate();
        keys.map(move |(index, key)| (of(index), key))
            .chain(moved.map(|key| (other, key)))
    }

    /// The database of the second key of a request that names one.
    fn other_database(&self, args: Args<'_>, databases: u8) -> Option<u8> {
        let mut words = args;
        match self.name {
            "move" => connection::database(words.nth(1)?, databases).ok(),
            "copy" => {
                let mut found = None;
                words.nth(1)?;
                while let Some(option) = words.next() {
                    if option.eq_ignore_ascii_case(b"db") {
                        found = connection::database(words.next()?, databases).ok();
                    }
                }
                found
            }
            _ => None,
        }
    }

    /// The database that is selected after a request, if it may select another one than `database`.
    pub(super) fn database_after(&self, mut args: Args<'_>, database: u8, databases: u8) -> u8 {
        match (self.name, args.next()) {
            ("select", Some(index)) => connection::database(index, databases).unwrap_or(database),
            _ => database,
        }
    }

    /// Whether its requests name keys.
    pub(super) fn has_keys(&self) -> bool {
        self.keys.iter().any(|(flags, _)| *flags != "not_key")
    }

    pub(super) fn has_flag(&self, flag: &str) -> bool {
        self.flags.split(' ').any(|word| word == flag)
    }

    /// Whether it has to do with keys that its arguments do not name.
    pub(super) fn concerns_all_keys(&self) -> bool {
        self.keys.is_empty() && (self.has_flag("write") || self.has_flag("readonly"))
    }

    /// Positions of the first key, of the last (from the end, if negative), and their distance, but
    /// for those whose number is in the request.
    pub(super) fn range(&self) -> KeyRange {
        let mut ranges = self.keys.iter().map(|(_, range)| range);
        let mut others = { ranges.clone() }.filter(|range| !is_numbered(range));
        let Some([first, _, step]) = ranges.next().filter(|range| !is_numbered(range)) else {
            return [0; 3];
        };
        let [start, last, _] = others.next_back().unwrap_or(&[0; 3]);
        let last = if *last < 0 { *last } else { start + last };
        [*first, last, *step]
    }

    /// Whether its requests say how many keys they have.
    pub(super) fn has_numbered_keys(&self) -> bool {
        self.numbered_at().is_some()
    }

    /// Where its requests say how many keys follow, the name being at 0.
    pub(super) fn numbered_at(&self) -> Option<usize> {
        let mut ranges = self.keys.iter().map(|(_, range)| range);
        let [position, ..] = ranges.find(|range| is_numbered(range))?;
        usize::try_from(*position).ok()
    }

    /// Whether it executes a script.
    pub(super) fn is_script(&self) -> bool {
        self.group == "scripting" && self.has_numbered_keys()
    }

    /// Whether its requests may read whole strings: Redis's flags of their keys have `access`.
    pub(super) fn reads_strings(&self) -> bool {
        let is_access = |(flags, _): &(&str, _)| flags.contains("access");
        self.group.starts_with("string") && self.keys.iter().any(is_access)
    }

    /// The keys among the arguments of a request, of which it accepts the number.
    pub(super) fn keys_of<'i>(&self, args: Args<'i>) -> impl Iterator<Item = &'i [u8]> + use<'i> {
        let [first, last, step] = self.range().map(isize::from);
        let end = match last {
            ..0 => args.len() as isize + last + 1,
            last => last,
        };
        let end = if self.has_keys() { end } else { 0 };
        let skipped = (first - 1).max(0);
        let in_range = args
            .skip(skipped as usize)
            .step_by(step.max(1) as usize)
            .take(((end - skipped).max(0) as usize).div_ceil(step.max(1) as usize));
        in_range.chain(self.numbered_keys_of(args))
    }

    /// Those keys whose number is in the request; all arguments behind it if they are fewer.
    fn numbered_keys_of<'i>(&self, args: Args<'i>) -> impl Iterator<Item = &'i [u8]> + use<'i> {
        let at = self.numbered_at();
        let count = at
            .and_then(|at| { args }.nth(at - 1))
            .and_then(parse_integer);
        let count = usize::try_from(count.unwrap_or(0)).unwrap_or(0);
        args.skip(at.unwrap_or(0)).take(count)
    }

    /// Whether a request has the keys whose number is in it, and one at least.
    pub(super) fn has_its_keys(&self, args: Args<'_>) -> bool {
        self.numbered_at().is_none_or(|at| {
            let count = { args }.nth(at - 1).and_then(parse_integer);
            (1..=args.len() as i64 - at as i64).contains(&count.unwrap_or(0))
        })
    }

    /// The keys among the arguments of a request as Redis tells them: `None` if the request has
    /// fewer than it says, or none of those that it must have.
    pub(super) fn told_keys_of<'i>(&self, args: Args<'i>) -> Option<Vec<&'i [u8]>> {
        let mut keys = Vec::new();
        for (_, range) in self.keys {
            let [start, last, step] = range.map(isize::from);
            let (mut skipped, mut end) = (start - 1, start + last);
            if is_numbered(range) {
                if !self.has_its_keys(args) {
                    return self.is_script().then(Vec::new);
                }
                let count = { args }.nth(skipped as usize).and_then(parse_integer);
                (skipped, end) = (start, start + count.unwrap_or(0) as isize);
            } else if last < 0 {
                end = args.len() as isize + 1 + last;
            }
            let count = usize::try_from(end - skipped).unwrap_or(0);
            keys.extend(
                args.skip(skipped as usize)
                    .take(count)
                    .step_by(step.max(1) as usize),
            );
        }
        Some(keys)
    }
}

/// All commands and subcommands.
pub(super) fn rows() -> impl Iterator<Item = Command> + Clone {
    (0..ROWS.len() as u8).map(Command)
}

/// All commands, without their subcommands, sorted by name.
pub(super) fn all() -> impl Iterator<Item = Command> + Clone {
    rows().filter(|command| !command.name.contains('|'))
}

/// The command of this name, in any case.
#[inline]
pub(super) fn find(name: &[u8]) -> Option<Command> {
    let word = first_word(name);
    let row = INDEX.rows[place(word, name.len(), INDEX.factor)];
    let command = Command(row);
    let is_found = row != NO_ROW
        && INDEX.words[usize::from(row)] == word
        && command.name.len() == name.len()
        && (INDEX.is_exact[usize::from(row)] || command.name.as_bytes().eq_ignore_ascii_case(name));
    is_found.then_some(command)
}

/// The command or the subcommand of a request.
pub(super) fn find_exactly(request: Request<'_>) -> Option<Command> {
    let command = find(request.name())?;
    let first = request.args().next();
    let subcommand = first.and_then(|name| command.subcommand(name));
    Some(subcommand.unwrap_or(command))
}

/// The rows of commands by a hash of their names that is different for each.
struct Index {
    /// Makes the hashes different.
    factor: u64,
    rows: [u8; PLACES],
    /// The first bytes of the names.
    words: [u64; ROWS.len()],
    /// Whether the word is the whole name: only letters become letters in it.
    is_exact: [bool; ROWS.len()],
}

const NO_ROW: u8 = u8::MAX;
/// Enough that about each tenth factor is good.
const PLACES: usize = 4096;

static INDEX: Index = index();

/// The bit that makes letters small, in each byte.
const SMALL: u64 = u64::from_ne_bytes([0x20; 8]);

/// The first eight bytes of a name, letters as small ones; 0 for a name that is too short for a
/// command.
#[inline]
fn first_word(name: &[u8]) -> u64 {
    let bits = if let Some(first) = name.first_chunk() {
        u64::from_le_bytes(*first)
    } else if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        u64::from(first) | u64::from(last) << (8 * (name.len() - 4))
    } else if let [a, b, c] = *name {
        u64::from_le_bytes([a, b, c, 0, 0, 0, 0, 0])
    } else {
        return 0;
    };
    bits | SMALL
}

#[inline]
const fn place(word: u64, len: usize, factor: u64) -> usize {
    let hash = (word ^ len as u64).wrapping_mul(factor);
    (hash >> (u64::BITS - PLACES.ilog2())) as usize
}

/// Tries factors until all commands have different places.
const fn index() -> Index {
    let words = words();
    let mut factor = 0x9e37_79b9_7f4a_7c15_u64;
    loop {
        let mut rows = [NO_ROW; PLACES];
        let (mut row, mut is_good) = (0, true);
        while row < ROWS.len() {
            if words[row] != 0 {
                let at = place(words[row], ROWS[row].name.len(), factor);
                is_good = is_good && rows[at] == NO_ROW;
                rows[at] = row as u8;
            }
            row += 1;
        }
        if is_good {
            return Index {
                factor,
                rows,
                words,
                is_exact: exact_words(),
            };
        }
        factor = factor.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(2);
    }
}

/// The first word of each command, 0 for subcommands.
const fn words() -> [u64; ROWS.len()] {
    let mut words = [0; ROWS.len()];
    let mut row = 0;
    while row < ROWS.len() {
        let name = ROWS[row].name.as_bytes();
        let (mut at, mut word) = (0, 0_u64);
        while at < name.len() && name[at] != b'|' {
            if at < 8 {
                word |= (name[at] as u64) << (8 * at);
            }
            at += 1;
        }
        if at == name.len() {
            assert!(at >= 3);
            words[row] = word | SMALL;
        }
        row += 1;
    }
    words
}

/// Which first words are whole names of letters.
const fn exact_words() -> [bool; ROWS.len()] {
    let mut exact = [false; ROWS.len()];
    let mut row = 0;
    while row < ROWS.len() {
        let name = ROWS[row].name.as_bytes();
        let mut at = 0;
        while at < name.len() && name[at].is_ascii_lowercase() {
            at += 1;
        }
        exact[row] = at == name.len() && at <= size_of::<u64>();
        row += 1;
    }
    exact
}

#[cfg(test)]
mod tests {
    use super::{all, find};
    use corewise_wire::resp::{Codec, Limits, Parsed};

    #[test]
    fn the_keys_of_a_command_are_found_among_its_arguments() {
        let (limits, scratch) = (Limits::default(), bumpalo::Bump::new());
        for (line, expected) in [
            ("ping a b", ""),
            ("get a", "a"),
            ("set a b px 1", "a"),
            ("del a b c", "abc"),
            ("mset a 1 b 2 c 3", "abc"),
            ("mset a 1 b", "ab"),
            ("rename a b", "ab"),
            ("copy a b replace", "ab"),
            ("lcs a b len", "ab"),
            ("bitop and a b c", "abc"),
            ("memory usage a samples 1", "a"),
            ("object help", ""),
            ("flushall", ""),
            ("eval s 2 a b c", "ab"),
            ("eval s 0 a", ""),
            ("eval s 9 a b", "ab"),
            ("evalsha s x a", ""),
            ("zunion 2 a b weights 1 2", "ab"),
            ("zunion 9 a b", "ab"),
            ("zunion -1 a b", ""),
            ("zdiffstore d 2 a b", "dab"),
            ("zdiffstore d x a", "d"),
            ("zrangestore d a 0 1", "da"),
            ("zmpop 1 a min", "a"),
        ] {
            let line = format!("{line}\r\n");
            let parsed = Codec::new(true).next(line.as_bytes(), &limits, &scratch);
            let Parsed::Request { request, .. } = parsed else {
                panic!("{parsed:?}");
            };
            let command = super::find_exactly(request).unwrap();
            let keys: Vec<&[u8]> = command.keys_of(request.args()).collect();
            assert_eq!(keys.concat(), expected.as_bytes(), "{line}");
            let concerns_all = command.name == "flushall";
            assert_eq!(command.concerns_all_keys(), concerns_all, "{line}");
        }
    }

    #[test]
    fn every_command_is_found_in_any_case() {
        for command in all() {
            for name in [command.name.to_owned(), command.name.to_uppercase()] {
                let found = find(name.as_bytes()).expect(&name);
                assert_eq!(found.name, command.name);
            }
        }
        for name in [
            "",
            "ge",
            "gett",
            "lpush",
            "a name that no command has",
            "get\0",
            "\x07et",
            "g%t",
            "bitfield\x7fro",
            "eval\x7fro",
            "EVAL?RO",
            "client|id",
            "bitfield-ro",
        ] {
            assert!(find(name.as_bytes()).is_none(), "{name:?}");
        }
    }
}
