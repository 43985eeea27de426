//! Printing of statistics and dumps.

use std::fmt::{Display, Write as _};

use corewise_ops::{ItemFlags, ItemView, Now};

use super::reply;

/// Prints `STAT name value` lines and the line that ends them; also the lines of the dumps.
///
/// ```
/// use corewise_wire::memcached::StatsWriter;
/// let mut out = Vec::new();
/// let mut stats = StatsWriter::new(&mut out);
/// stats.stat("pid", 42);
/// stats.stat(format_args!("items:{}:number", 3), 7);
/// stats.end();
/// assert_eq!(out, b"STAT pid 42\r\nSTAT items:3:number 7\r\nEND\r\n");
/// ```
#[derive(Debug)]
pub struct StatsWriter<'o> {
    out: &'o mut Vec<u8>,
}

/// Lets `write!` append to a byte vector without an error path.
struct Text<'o>(&'o mut Vec<u8>);

impl std::fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl<'o> StatsWriter<'o> {
    /// Creates a writer that appends to `out`.
    #[must_use]
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Prints `STAT name value`.
    pub fn stat(&mut self, name: impl Display, value: impl Display) {
        self.line(format_args!("STAT {name} {value}\r\n"));
    }

    /// Prints a line of `stats detail dump`. Bytes of `prefix` are sent unchanged.
    pub fn prefix(&mut self, prefix: &[u8], get: u64, hit: u64, set: u64, del: u64) {
        self.out.extend_from_slice(b"PREFIX ");
        self.out.extend_from_slice(prefix);
        self.line(format_args!(" get {get} hit {hit} set {set} del {del}\r\n"));
    }

    /// Prints a line of `stats cachedump`: the key, the size of the value, and the expiry time in
    /// Unix seconds (zero for never).
    pub fn cachedump(&mut self, item: &ItemView<'_>, now: Now) {
        self.out.extend_from_slice(b"ITEM ");
        self.out.extend_from_slice(item.key);
        let (size, dies) = (item.value.len(), unix_expiry(item, now).unwrap_or(0));
        self.line(format_args!(" [{size} b; {dies} s]\r\n"));
    }

    /// Prints a line of `lru_crawler metadump`; the key is URI-encoded.
    pub fn metadump(&mut self, item: &ItemView<'_>, now: Now) {
        self.out.extend_from_slice(b"key=");
        self.uri(item.key);
        match unix_expiry(item, now) {
            Some(dies) => self.line(format_args!(" exp={dies}")),
            None => self.line(format_args!(" exp=-1")),
        }
        let la = now.unix_s.saturating_sub(u64::from(item.idle_s));
        let fetch = if item.flags.contains(ItemFlags::FETCHED) {
            "yes"
        } else {
            "no"
        };
        let (cas, cls, size) = (item.cas, item.size_class, item.footprint);
        self.line(format_args!(
            " la={la} cas={cas} fetch={fetch} cls={cls} size={size}\n"
        ));
    }

    /// Prints a line of `lru_crawler mgdump`: a request for the item. A key that could not stand on
    /// a line unchanged is printed in base64, with the `b` flag.
    pub fn mgdump(&mut self, key: &[u8]) {
        use base64::Engine as _;
        use base64::engine::general_purpose::STANDARD;
        self.out.extend_from_slice(b"mg ");
        if key.iter().all(u8::is_ascii_graphic) {
            self.out.extend_from_slice(key);
        } else {
            let mut text = [0; 4 * super::MAX_KEY_LEN.div_ceil(3)];
            match STANDARD.encode_slice(key, &mut text) {
                Ok(len) => self.out.extend_from_slice(&text[..len]),
                Err(_) => debug_assert!(false, "a key of {} bytes", key.len()),
            }
            self.out.extend_from_slice(b" b");
        }
        self.out.extend_from_slice(b"\r\n");
    }

    /// Ends a list with `END`.
    pub fn end(self) {
        self.out.extend_from_slice(reply::END);
    }

    /// Ends an `mgdump` with `EN`.
    pub fn end_mgdump(self) {
        self.out.extend_from_slice(reply::META_MISS);
    }

    /// Prints the reply to `stats reset`: `RESET`.
    pub fn reset(self) {
        self.out.extend_from_slice(reply::RESET);
    }

    /// Appends formatted text.
    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a vector does not fail.
        let _ = Text(self.out).write_fmt(text);
    }

    /// Appends `bytes`, percent-encoded except for unreserved characters.
    fn uri(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                self.out.push(byte);
            } else {
                self.line(format_args!("%{byte:02X}"));
            }
        }
    }
}

/// The expiry time of an item in Unix seconds, `None` for never.
fn unix_expiry(item: &ItemView<'_>, now: Now) -> Option<u64> {
    item.deadline
        .remaining_ms(now)
        .map(|ms| now.unix_s + ms.div_ceil(1000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_ops::Deadline;

    const NOW: Now = Now::new(10_000, 1_700_000_000);

    fn item<'a>(key: &'a [u8], deadline: Deadline) -> ItemView<'a> {
        ItemView {
            key,
            value: b"12345",
            client_flags: 0,
            cas: 9,
            deadline,
            idle_s: 4,
            flags: ItemFlags::FETCHED,
            footprint: 64,
            size_class: 2,
            kind: corewise_ops::ItemKind::String,
        }
    }

    fn written(write: impl FnOnce(StatsWriter<'_>)) -> String {
        let mut out = Vec::new();
        write(StatsWriter::new(&mut out));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_list_ends_with_its_terminator() {
        assert_eq!(written(|w| w.end()), "END\r\n");
        assert_eq!(written(|w| w.end_mgdump()), "EN\r\n");
        assert_eq!(written(|w| w.reset()), "RESET\r\n");
    }

    #[test]
    fn a_prefix_line_counts_gets_hits_sets_and_deletes() {
        let text = written(|mut w| w.prefix(b"foo", 4, 3, 2, 1));
        assert_eq!(text, "PREFIX foo get 4 hit 3 set 2 del 1\r\n");
    }

    #[test]
    fn cachedump_shows_size_and_date_of_death() {
        let text = written(|mut w| {
            w.cachedump(&item(b"a", Deadline::NEVER), NOW);
            w.cachedump(&item(b"b", Deadline::at_ms(12_500)), NOW);
        });
        assert_eq!(text, "ITEM a [5 b; 0 s]\r\nITEM b [5 b; 1700000003 s]\r\n");
    }

    #[test]
    fn metadump_encodes_the_key_and_ends_in_a_bare_line_feed() {
        let text = written(|mut w| {
            w.metadump(&item(b"a,b\xff", Deadline::NEVER), NOW);
            w.metadump(&item(b"c", Deadline::at_ms(11_000)), NOW);
        });
        assert_eq!(
            text,
            "key=a%2Cb%FF exp=-1 la=1699999996 cas=9 fetch=yes cls=2 size=64\n\
             key=c exp=1700000001 la=1699999996 cas=9 fetch=yes cls=2 size=64\n"
        );
    }

    #[test]
    fn mgdump_prints_requests() {
        let text = written(|mut w| {
            w.mgdump(b"plain");
            w.mgdump(b"\0\xff");
            w.mgdump(&[0; 250]);
        });
        assert!(text.starts_with("mg plain\r\nmg AP8= b\r\nmg AAAA"));
    }
}
