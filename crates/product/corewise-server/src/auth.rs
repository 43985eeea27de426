//! The authentication file (`-Y`): lines of `user:password`.

use crate::config::StartError;
use std::path::Path;

/// Maximum number of entries in a file, as in memcached.
const MAX_ENTRIES: usize = 8;
/// Maximum length of a user name or password in bytes.
const MAX_LENGTH: usize = 256;

/// The users that may authenticate.
#[derive(Debug, Default)]
pub(crate) struct Users(Vec<(Vec<u8>, Vec<u8>)>);

impl Users {
    /// Reads the file. Empty lines are skipped.
    pub(crate) fn read(path: &Path) -> Result<Self, StartError> {
        let wrong = |reason: String| StartError::AuthFile {
            path: path.display().to_string(),
            reason,
        };
        let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        Self::parse(&text).map_err(wrong)
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
        let mut users = Vec::new();
        for (number, line) in text.split(|&c| c == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            let colon = line.iter().position(|&c| c == b':');
            let colon = colon.ok_or_else(|| format!("line {} has no colon", number + 1))?;
            let (user, password) = (&line[..colon], &line[colon + 1..]);
            if user.len() > MAX_LENGTH || password.len() > MAX_LENGTH {
                return Err(format!("line {} is too long", number + 1));
            }
            users.push((user.to_vec(), password.to_vec()));
        }
        match users.len() {
            0 => Err("no user in it".into()),
            1..=MAX_ENTRIES => Ok(Self(users)),
            n => Err(format!("{n} users, at most {MAX_ENTRIES} are allowed")),
        }
    }

    /// The names of the users.
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|(name, _)| &**name)
    }

    /// Whether there is an entry of this user.
    pub(crate) fn has(&self, user: &[u8]) -> bool {
        self.0.iter().any(|(name, _)| name == user)
    }

    /// Whether `user` exists and has this password. For inputs of equal lengths the time does not
    /// depend on whether they match.
    pub(crate) fn admit(&self, user: &[u8], password: &[u8]) -> bool {
        self.0.iter().fold(false, |admitted, (name, secret)| {
            admitted | (same(name, user) & same(secret, password))
        })
    }
}

fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |diff, (x, y)| diff | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_pair_is_admitted() {
        let users = Users::parse(b"foo:bar\r\n\nbaz:a:b\n").unwrap();
        assert!(users.admit(b"foo", b"bar"));
        assert!(users.admit(b"baz", b"a:b"));
        assert!(!users.admit(b"foo", b"a:b"));
        assert!(!users.admit(b"", b""));
    }

    #[test]
    fn a_file_that_admits_nobody_is_refused() {
        assert!(Users::parse(b"\n").is_err());
        assert!(Users::parse(b"nocolon\n").is_err());
        assert!(Users::parse(&b"a:b\n".repeat(9)).is_err());
    }
}
