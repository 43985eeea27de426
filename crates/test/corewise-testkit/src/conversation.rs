//! Conversations as text: a request and its reply in each row.
//!
//! ```text
//! == a stored item is found
//! set greeting 5 0 5|hello -> STORED
//! get greeting -> VALUE greeting 5 5|hello|END
//! ```
//!
//! A `|` stands for a line break. One ends each side, unless `\.` or `<closed>` does. `\|` is a
//! bar, other escapes are those of Rust for bytes, and `{k*251}` repeats a text. Lines that begin
//! with `#` are comments.

/// The conversations of a file: titles, and the rows below them.
pub fn conversations(file: &str) -> impl Iterator<Item = (&str, &str)> {
    let file = &file[file.find("== ").expect("a title") + 3..];
    let split = |text: &'static str| file.split(text);
    split("\n== ").map(|text| text.split_once('\n').expect("rows below a title"))
}

/// The rows of a text, each with its request and its reply.
pub fn rows(text: &str) -> impl Iterator<Item = (&str, [&str; 2])> {
    let lines = text.lines();
    let is_row = |line: &&str| !line.is_empty() && !line.starts_with(['#', '=']);
    lines.filter(is_row).map(|row| {
        let sides = row.strip_suffix(" ->").map(|request| (request, "\\."));
        let (request, reply) = sides.or_else(|| row.split_once(" -> ")).expect(row);
        (row, [request, reply])
    })
}

/// What one side of a row stands for.
#[must_use]
pub fn bytes(side: &str) -> Vec<u8> {
    let (text, end) = match side.strip_suffix("\\.") {
        Some(text) => (text, ""),
        None if side.ends_with("<closed>") => (side, ""),
        None => (side, "|"),
    };
    plain(&(repeated(text) + end), b"\r\n")
}

/// Replaces escapes only.
///
/// ```
/// use corewise_testkit::conversation::{bytes, unescape};
/// assert_eq!(bytes(r"a|\x01\|{k*3}"), b"a\r\n\x01|kkk\r\n");
/// assert_eq!(unescape(r"a|\x01"), b"a|\x01");
/// ```
#[must_use]
pub fn unescape(text: &str) -> Vec<u8> {
    plain(text, b"|")
}

fn plain(text: &str, bar: &[u8]) -> Vec<u8> {
    let (mut plain, mut bytes) = (Vec::new(), text.bytes());
    while let Some(byte) = bytes.next() {
        match byte {
            b'|' => plain.extend(bar),
            b'\\' => plain.push(match bytes.next().expect("something behind a backslash") {
                b'r' => b'\r',
                b'n' => b'\n',
                b't' => b'\t',
                b'0' => 0,
                b'x' => {
                    let digits: String = bytes.by_ref().take(2).map(char::from).collect();
                    u8::from_str_radix(&digits, 16).expect("two digits")
                }
                other => other,
            }),
            _ => plain.push(byte),
        }
    }
    plain
}

/// Replaces each `{text*times}`; other braces stay.
#[must_use]
pub fn repeated(text: &str) -> String {
    let mut parts = text.split('{');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let repetition = part.split_once('}').and_then(|(repeat, rest)| {
            let (what, times) = repeat.split_once('*')?;
            Some(what.repeat(times.parse().ok()?) + rest)
        });
        whole += &repetition.unwrap_or_else(|| format!("{{{part}"));
    }
    whole
}
