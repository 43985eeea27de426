//! Lists of CPUs as the kernel writes them: `0,2-5`.

use std::fmt::Write;

/// Upper bound of CPU numbers: the largest number that Linux can be built for, with room to spare.
pub const MAX_CPUS: usize = 8192;

/// Why a text is no list of CPUs and no policy, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError(pub(crate) String);

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParseError {}

/// Parses `0,2-5` into 0, 2, 3, 4, 5, in the order written. An empty text is an empty list.
///
/// ```
/// assert_eq!(corewise_topology::parse_cpu_list("4,0-2\n").unwrap(), [4, 0, 1, 2]);
/// ```
///
/// # Errors
///
/// If a part is not a number below [`MAX_CPUS`], or a range ends before it starts.
pub fn parse_cpu_list(text: &str) -> Result<Vec<usize>, ParseError> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (parse_cpu(first)?, parse_cpu(last)?);
        if last < first {
            let text = format!("the range `{part}` ends before it starts");
            return Err(ParseError(text));
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

fn parse_cpu(text: &str) -> Result<usize, ParseError> {
    let cpu = text.trim().parse().ok().filter(|&cpu| cpu < MAX_CPUS);
    cpu.ok_or_else(|| ParseError(format!("`{text}` is not a CPU number below {MAX_CPUS}")))
}

/// Formats CPUs as [`parse_cpu_list`] parses them, joining ascending neighbours into ranges.
///
/// ```
/// assert_eq!(corewise_topology::format_cpu_list(&[4, 0, 1, 2]), "4,0-2");
/// ```
pub fn format_cpu_list(cpus: &[usize]) -> String {
    let mut text = String::new();
    for run in cpus.chunk_by(|a, b| a + 1 == *b) {
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = match run {
            [only] => write!(text, "{comma}{only}"),
            [first, .., last] => write!(text, "{comma}{first}-{last}"),
            [] => Ok(()),
        };
    }
    text
}
