//! Commands that the server executes as their text counterparts.

use super::response::Echo;
use crate::memcached::{Admin, StatsRequest};

/// A command that the server executes. It executes [`admin`](Self::admin), takes the text reply,
/// and sends what [`encode`](Self::encode) makes of it.
///
/// ```
/// use bumpalo::Bump;
/// use corewise_ops::Now;
/// use corewise_wire::{Step, binary::Codec, memcached::Limits};
///
/// let (limits, scratch) = (Limits::default(), Bump::new());
/// let mut request = [0; 24];
/// request[..2].copy_from_slice(&[0x80, 0x10]);
/// let now = Now::new(1, 1);
/// let step = Codec::default().next(&request, &limits, now, &scratch);
/// let Step::Call { call, .. } = step else { panic!() };
///
/// let mut out = Vec::new();
/// call.encode(b"STAT pid 42\r\nEND\r\n", &mut out);
/// assert_eq!(out.len(), 24 + b"pid42".len() + 24);
/// assert_eq!(out[24..29], *b"pid42");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Call<'i> {
    /// The text command.
    pub admin: Admin<'i>,
    pub(super) echo: Echo,
    pub(super) is_quiet: bool,
}

impl Call<'_> {
    /// Appends the response, which may be empty, to `out`: `text` is the reply to the text command.
    pub fn encode(&self, text: &[u8], out: &mut Vec<u8>) {
        match self.admin {
            Admin::Stats(StatsRequest::DetailDump) => {
                self.echo.push_stat(b"detailed", text, out);
                self.echo.push_stat(b"", b"", out);
            }
            Admin::Stats(_) => {
                for (name, value) in stats(text) {
                    self.echo.push_stat(name, value, out);
                }
                self.echo.push_stat(b"", b"", out);
            }
            _ if self.is_quiet => {}
            _ => self.echo.push_success(0, out),
        }
    }
}

/// The names and values of lines `STAT name value`.
fn stats(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    text.split(|&byte| byte == b'\n').filter_map(|line| {
        let stat = line.strip_prefix(b"STAT ")?;
        let stat = stat.strip_suffix(b"\r").unwrap_or(stat);
        let blank = memchr::memchr(b' ', stat).unwrap_or(stat.len());
        let (name, value) = stat.split_at(blank);
        Some((name, value.get(1..).unwrap_or_default()))
    })
}
