//! All fixed reply lines.
//!
//! The codec sends most of them; the server sends those that belong to decisions only it can make
//! (connection limits, authentication, admin commands).

/// Ends every line, and follows every value.
pub const LINE_BREAK: &[u8] = b"\r\n";
/// An admin command was executed.
pub const OK: &[u8] = b"OK\r\n";
/// `stats reset` was executed.
pub const RESET: &[u8] = b"RESET\r\n";
/// End of a list.
pub const END: &[u8] = b"END\r\n";
/// Unknown command, or a known one with the wrong number of arguments.
pub const ERROR: &[u8] = b"ERROR\r\n";
/// The connection limit is reached; sent before hanging up.
pub const TOO_MANY_CONNECTIONS: &[u8] = b"ERROR Too many open connections\r\n";
/// Reply to `mn`.
pub const META_NOOP: &[u8] = b"MN\r\n";
/// A meta get or meta debug found nothing.
pub const META_MISS: &[u8] = b"EN\r\n";

/// A store succeeded; also the reply to a successful authentication.
pub const STORED: &[u8] = b"STORED\r\n";
/// A store's condition did not hold.
pub const NOT_STORED: &[u8] = b"NOT_STORED\r\n";
/// A cas value did not match.
pub const EXISTS: &[u8] = b"EXISTS\r\n";
/// There is no such item.
pub const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
/// An item was removed.
pub const DELETED: &[u8] = b"DELETED\r\n";
/// An item's time to live was replaced.
pub const TOUCHED: &[u8] = b"TOUCHED\r\n";

/// The item is over the size limit.
pub const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
/// There is no room for the item.
pub const OUT_OF_MEMORY_STORING: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
/// There is no room for the longer counter or the tombstone.
pub const OUT_OF_MEMORY: &[u8] = b"SERVER_ERROR out of memory\r\n";
/// There is no memory to read the request into. After an unfinished line the connection is closed;
/// the data of a store is discarded.
pub const OUT_OF_MEMORY_READING: &[u8] = b"SERVER_ERROR out of memory reading request\r\n";
/// An outcome that the command cannot have (a bug in the engine).
pub const UNHANDLED: &[u8] = b"SERVER_ERROR Unhandled storage type.\r\n";

/// A malformed line.
pub const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
/// A data block that does not end where the line announced.
pub const BAD_DATA_CHUNK: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
/// A `delete` with invalid arguments after the key.
pub const DELETE_USAGE: &[u8] =
    b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
/// The amount of an `incr` or `decr` is not a number.
pub const BAD_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta argument\r\n";
/// The expiry time of a `touch`, `gat` or `flush_all` is not a number.
pub const BAD_EXPTIME: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
/// The item is not a decimal number.
pub const NON_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";

/// More than eighteen meta flags.
pub const META_TOO_MANY_FLAGS: &[u8] = b"CLIENT_ERROR options flags are too long\r\n";
/// A meta flag given twice (or a byte that is not ASCII).
pub const META_DUPLICATE_FLAG: &[u8] = b"CLIENT_ERROR duplicate flag\r\n";
/// A meta flag that does not exist.
pub const META_INVALID_FLAG: &[u8] = b"CLIENT_ERROR invalid flag\r\n";
/// A meta flag whose argument is not a number.
pub const META_BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad token in command line format\r\n";
/// A meta key with the `b` flag that is not valid base64.
pub const META_BAD_BASE64: &[u8] = b"CLIENT_ERROR error decoding key\r\n";
/// An opaque of more than 31 bytes.
pub const META_LONG_OPAQUE: &[u8] = b"CLIENT_ERROR opaque token too long\r\n";
/// A mode that is not one byte.
pub const META_BAD_MODE_LENGTH: &[u8] = b"CLIENT_ERROR incorrect length for M token\r\n";
/// An unknown mode of a meta set.
pub const META_BAD_SET_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ms M token\r\n";
/// An unknown mode of a meta arithmetic.
pub const META_BAD_ARITH_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ma M token\r\n";
/// The initial value of a meta arithmetic is not a number.
pub const META_BAD_INITIAL: &[u8] = b"CLIENT_ERROR invalid numeric initial value\r\n";
/// The amount of a meta arithmetic is not a number.
pub const META_BAD_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta value\r\n";

/// A request other than a well-formed `set` before authentication.
pub const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";
/// The credentials do not end in a line break.
pub const AUTH_BAD_TERMINATION: &[u8] = b"CLIENT_ERROR bad command line termination\r\n";
/// The credentials are not `user password`.
pub const AUTH_BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad authentication token format\r\n";
/// The credentials are wrong.
pub const AUTH_FAILURE: &[u8] = b"CLIENT_ERROR authentication failure\r\n";

/// `flush_all` is disabled.
pub const FLUSH_NOT_ALLOWED: &[u8] = b"CLIENT_ERROR flush_all not allowed\r\n";
/// `shutdown` is disabled.
pub const SHUTDOWN_NOT_ENABLED: &[u8] = b"ERROR: shutdown not enabled\r\n";
/// `shutdown` with an unknown argument.
pub const BAD_SHUTDOWN_MODE: &[u8] = b"CLIENT_ERROR invalid shutdown mode\r\n";
/// `cache_memlimit` under 8 MB.
pub const MEMLIMIT_TOO_SMALL: &[u8] = b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n";
/// `cache_memlimit` in bytes instead of megabytes.
pub const MEMLIMIT_IN_BYTES: &[u8] =
    b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n";
/// The server could not change its memory limit.
pub const MEMLIMIT_FAILED: &[u8] = b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n";

/// `stats` with arguments missing.
pub const STATS_BAD_LINE: &[u8] = b"CLIENT_ERROR bad command line\r\n";
/// `stats detail` with an argument other than its three words.
pub const STATS_DETAIL_USAGE: &[u8] = b"CLIENT_ERROR usage: stats detail on|off|dump\r\n";
/// `stats detail` while dumps are disabled.
pub const STATS_DETAIL_NOT_ALLOWED: &[u8] = b"CLIENT_ERROR stats detail not allowed\r\n";
/// `stats cachedump` while dumps are disabled.
pub const CACHEDUMP_NOT_ALLOWED: &[u8] = b"CLIENT_ERROR stats cachedump not allowed\r\n";
/// `stats cachedump` of a class past the last.
pub const CACHEDUMP_BAD_CLASS: &[u8] = b"CLIENT_ERROR Illegal slab id\r\n";
/// `lru_crawler metadump` while dumps are disabled.
pub const METADUMP_NOT_ALLOWED: &[u8] = b"ERROR metadump not allowed\r\n";
/// `lru_crawler mgdump` while dumps are disabled.
pub const MGDUMP_NOT_ALLOWED: &[u8] = b"ERROR key dump not allowed\r\n";
/// `lru_crawler` with a sleep of more than a second.
pub const CRAWLER_BAD_SLEEP: &[u8] = b"CLIENT_ERROR sleep must be one second or less\r\n";
/// `lru_crawler` with a class that does not exist.
pub const CRAWLER_BAD_CLASS: &[u8] = b"BADCLASS invalid class id\r\n";
/// A dump could not be completed; see `Engine::scan` of `corewise-engine`.
pub const DUMP_LOST: &[u8] = b"SERVER_ERROR the table changed too often during the dump\r\n";
/// The crawler is already running.
pub const CRAWLER_BUSY: &[u8] = b"BUSY currently processing crawler request\r\n";
/// `slabs reassign` from a class to itself.
pub const SLABS_SAME: &[u8] = b"SAME src and dst class are identical\r\n";
/// `slabs reassign` with a class that does not exist.
pub const SLABS_BAD_CLASS: &[u8] = b"BADCLASS invalid src or dst class id\r\n";
/// `slabs reassign`: the class has no page to spare.
pub const SLABS_NO_SPARE: &[u8] = b"NOSPARE source class has no spare pages\r\n";
/// `lru tune` with percentages that leave too little for the rest.
pub const LRU_TOO_MUCH: &[u8] = b"ERROR hot and warm pcts must not exceed 80\r\n";
/// `lru tune` with a factor that is not positive.
pub const LRU_BAD_FACTOR: &[u8] = b"ERROR hot/warm age factors must be greater than 0\r\n";
/// `watch`: watchers are not supported.
pub const WATCH_NOT_ALLOWED: &[u8] = b"CLIENT_ERROR watch commands not allowed\r\n";
