//! The header of a request, and the shapes that requests may have.

use super::response::{Echo, Failure};
use super::{HEADER_LEN, REQUEST};
use crate::memcached::MAX_KEY_LEN;

/// The largest body; memcached's largest item size.
const MAX_BODY_LEN: u32 = 1 << 30;

/// A command, regardless of whether it is quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Get,
    /// Also returns the key.
    GetKey,
    Touch,
    GetAndTouch,
    /// Also returns the key.
    GetKeyAndTouch,
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Delete,
    Increment,
    Decrement,
    Quit,
    Flush,
    Noop,
    Version,
    Stat,
    Verbosity,
    SaslListMechanisms,
    /// The first or a further step.
    SaslStep,
}

impl Command {
    /// The command of an opcode, and whether it is quiet.
    #[inline]
    fn of(opcode: u8) -> Option<(Self, bool)> {
        Some(match opcode {
            0x00 => (Self::Get, false),
            0x01 => (Self::Set, false),
            0x02 => (Self::Add, false),
            0x03 => (Self::Replace, false),
            0x04 => (Self::Delete, false),
            0x05 => (Self::Increment, false),
            0x06 => (Self::Decrement, false),
            0x07 => (Self::Quit, false),
            0x08 => (Self::Flush, false),
            // From here on memcached's list is not in order: quiet gets among others, then the
            // quiet writes, then what came with later versions.
            0x09 => (Self::Get, true),
            0x0a => (Self::Noop, false),
            0x0b => (Self::Version, false),
            0x0c => (Self::GetKey, false),
            0x0d => (Self::GetKey, true),
            0x0e => (Self::Append, false),
            0x0f => (Self::Prepend, false),
            0x10 => (Self::Stat, false),
            0x11 => (Self::Set, true),
            0x12 => (Self::Add, true),
            0x13 => (Self::Replace, true),
            0x14 => (Self::Delete, true),
            0x15 => (Self::Increment, true),
            0x16 => (Self::Decrement, true),
            0x17 => (Self::Quit, true),
            0x18 => (Self::Flush, true),
            0x19 => (Self::Append, true),
            0x1a => (Self::Prepend, true),
            0x1b => (Self::Verbosity, false),
            0x1c => (Self::Touch, false),
            0x1d => (Self::GetAndTouch, false),
            0x1e => (Self::GetAndTouch, true),
            0x20 => (Self::SaslListMechanisms, false),
            // The first step and those that follow are refused alike.
            0x21 | 0x22 => (Self::SaslStep, false),
            0x23 => (Self::GetKeyAndTouch, false),
            0x24 => (Self::GetKeyAndTouch, true),
            _ => return None,
        })
    }

    /// Whether a request of this command may have these lengths of extras, key and value.
    #[inline]
    fn allows(self, extras: usize, key: usize, value: usize) -> bool {
        match self {
            Self::Get | Self::GetKey | Self::Delete => extras == 0 && key > 0 && value == 0,
            // A value is let through, as memcached lets it.
            Self::Touch | Self::GetAndTouch | Self::GetKeyAndTouch => extras == 4 && key > 0,
            Self::Set | Self::Add | Self::Replace => extras == 8 && key > 0,
            Self::Append | Self::Prepend | Self::SaslStep => extras == 0 && key > 0,
            Self::Increment | Self::Decrement => extras == 20 && key > 0 && value == 0,
            Self::Flush => matches!((extras, key, value), (0 | 4, 0, 0)),
            Self::Verbosity => (extras, key, value) == (4, 0, 0),
            Self::Stat => extras == 0,
            Self::Quit | Self::Noop | Self::Version | Self::SaslListMechanisms => {
                (extras, key, value) == (0, 0, 0)
            }
        }
    }
}

/// The header of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) echo: Echo,
    pub(super) extras_len: usize,
    pub(super) key_len: usize,
    pub(super) body_len: u32,
    pub(super) cas: u64,
}

/// Why there is no header.
pub(super) enum NoHeader {
    /// It has not arrived.
    Unfinished,
    /// The first byte is another one.
    Malformed,
}

/// Why a request is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejected {
    /// Its shape is wrong: the connection is closed.
    Malformed(Failure),
    /// Its command is unknown: the body is discarded.
    Unknown,
}

impl Header {
    /// Parses the header at the start of `input`. A wrong first byte is found at once, so a client
    /// of another protocol does not wait for a reply.
    #[inline]
    pub(super) fn parse(input: &[u8]) -> Result<Self, NoHeader> {
        if input.first().is_some_and(|&first| first != REQUEST) {
            return Err(NoHeader::Malformed);
        }
        let header = input.first_chunk::<HEADER_LEN>();
        let header = header.ok_or(NoHeader::Unfinished)?;
        #[rustfmt::skip]
        let [
            _, opcode, k0, k1, extras_len, _data_type, _v0, _v1, b0, b1, b2, b3,
            o0, o1, o2, o3, cas @ ..
        ] = *header;
        Ok(Self {
            echo: Echo {
                opcode,
                opaque: [o0, o1, o2, o3],
            },
            extras_len: usize::from(extras_len),
            key_len: usize::from(u16::from_be_bytes([k0, k1])),
            body_len: u32::from_be_bytes([b0, b1, b2, b3]),
            cas: u64::from_be_bytes(cas),
        })
    }

    /// Bytes of the request before the value.
    #[inline]
    pub(super) fn head_len(&self) -> usize {
        HEADER_LEN + self.extras_len + self.key_len
    }

    /// The command, and whether it is quiet, if the request has a shape that the command allows.
    #[inline]
    pub(super) fn check(&self) -> Result<(Command, bool), Rejected> {
        let rest = self.extras_len + self.key_len;
        let Some(value_len) = (self.body_len as usize).checked_sub(rest) else {
            return Err(Rejected::Malformed(Failure::UNKNOWN_COMMAND));
        };
        if self.body_len > MAX_BODY_LEN || self.key_len > MAX_KEY_LEN {
            return Err(Rejected::Malformed(Failure::INVALID));
        }
        let Some((command, is_quiet)) = Command::of(self.echo.opcode) else {
            return Err(Rejected::Unknown);
        };
        if !command.allows(self.extras_len, self.key_len, value_len) {
            return Err(Rejected::Malformed(Failure::INVALID));
        }
        match command {
            Command::SaslListMechanisms | Command::SaslStep => Err(Rejected::Unknown),
            _ => Ok((command, is_quiet)),
        }
    }

    /// Bytes of the value. Call [`check`](Self::check) first.
    #[inline]
    pub(super) fn value_len(&self) -> usize {
        (self.body_len as usize).saturating_sub(self.extras_len + self.key_len)
    }
}
