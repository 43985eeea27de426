//! Page policies, and restarting the program with another allocator or policy.
//!
//! | policy | mimalloc | glibc | process |
//! |---|---|---|---|
//! | `default` | its own: advises huge pages for arenas | its own: advises nothing | nothing |
//! | `huge` | `MIMALLOC_ALLOW_THP=2` | `glibc.malloc.hugetlb=1` (2.35 and later) | THP not forbidden |
//! | `small` | `MIMALLOC_ALLOW_THP=0` | `glibc.malloc.hugetlb=0` | `PR_SET_THP_DISABLE` |
//!
//! So under `default` on a system set to `madvise`, mimalloc's memory is in huge pages and the
//! system allocator's is not: compare allocators under `huge` or `small`. No policy uses reserved
//! huge pages (`MIMALLOC_ALLOW_LARGE_OS_PAGES`, `hugetlb=2`), which few systems have.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use clap::ValueEnum;
use corewise_measure::machine::chosen;
use itertools::Itertools;

use super::{ALLOCATOR_VARIABLE, Choice, current, name_of};

/// The environment variable that names the page policy.
pub(super) const PAGES_VARIABLE: &str = "COREWISE_PAGES";
/// The environment variable that records the allocator and policy of a restart.
const GUARD_VARIABLE: &str = "COREWISE_REEXEC";
const GLIBC_VARIABLE: &str = "GLIBC_TUNABLES";
const GLIBC_TUNABLE: &str = "glibc.malloc.hugetlb";
const MIMALLOC_VARIABLE: &str = "MIMALLOC_ALLOW_THP";

/// The page policy of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Pages {
    /// The default of the allocator and the system.
    #[default]
    Default,
    /// The allocator advises transparent huge pages.
    Huge,
    /// No transparent huge pages in this process.
    Small,
}

impl Pages {
    /// Returns the policy that this process was started with; `small` only if the kernel confirms
    /// it.
    pub fn current() -> Self {
        let named = std::env::var(PAGES_VARIABLE).unwrap_or_default();
        let named = Self::from_str(&named, false).unwrap_or_default();
        if named == Self::Small && !thp_disabled() {
            return Self::Default;
        }
        named
    }

    /// Returns the settings of mimalloc and of glibc; none under `default`.
    fn settings(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Default => None,
            Self::Huge => Some(("2", "1")),
            Self::Small => Some(("0", "0")),
        }
    }
}

/// Why the program could not be restarted.
#[derive(Debug, thiserror::Error)]
pub enum ReexecError {
    /// The program runs on another global allocator.
    #[error("this program does not run on the benchmark's allocator, so it cannot change it")]
    NotInstalled,
    /// It was already restarted for the same allocator and policy, without effect.
    #[error("allocator {0} with {1} pages was asked for and is not in force")]
    NoEffect(String, String),
    /// The kernel refused.
    #[error("cannot start the program anew: {0}")]
    System(#[from] std::io::Error),
}

/// Ensures that the process runs with this allocator and these pages. Returns if it does; otherwise
/// replaces the process by the same program with the same arguments and another environment. Call
/// it at the start of `main`, before starting threads and opening files.
///
/// # Errors
///
/// If the program does not run on [`super::BenchAllocator`], if it was already restarted for the
/// same allocator and policy, or if the system refuses.
pub fn reexec(allocator: Choice, pages: Pages) -> Result<(), ReexecError> {
    let now = current().ok_or(ReexecError::NotInstalled)?;
    if (now, Pages::current()) == (allocator, pages) {
        return Ok(());
    }
    let (name, page_name) = (name_of(&allocator), name_of(&pages));
    let wish = format!("{name}/{page_name}");
    if std::env::var_os(GUARD_VARIABLE).is_some_and(|tried| tried == *wish) {
        return Err(ReexecError::NoEffect(name, page_name));
    }
    // The setting survives the exec, so it applies to the new process from its first page.
    disable_thp(pages == Pages::Small)?;
    let mut command = Command::new(program()?);
    command.args(std::env::args_os().skip(1));
    command.env(ALLOCATOR_VARIABLE, name);
    command.env(GUARD_VARIABLE, wish);
    set_pages(&mut command, pages);
    Err(ReexecError::System(replace_process(command)))
}

/// Returns the path of this program, valid even if its file was replaced meanwhile.
fn program() -> std::io::Result<std::path::PathBuf> {
    let own = Path::new("/proc/self/exe");
    if own.exists() {
        return Ok(own.to_owned());
    }
    std::env::current_exe()
}

/// Sets the environment variables of both allocators. Under the default policy it keeps the user's
/// settings and removes only ours.
fn set_pages(command: &mut Command, pages: Pages) {
    let ours = std::env::var_os(PAGES_VARIABLE).is_some_and(|name| name != "default");
    command.env(PAGES_VARIABLE, name_of(&pages));
    let tunables = std::env::var_os(GLIBC_VARIABLE).unwrap_or_default();
    match pages.settings() {
        Some((mimalloc, glibc)) => {
            command.env(MIMALLOC_VARIABLE, mimalloc);
            command.env(GLIBC_VARIABLE, with_tunable(&tunables, Some(glibc)));
        }
        None if ours => {
            command.env_remove(MIMALLOC_VARIABLE);
            command.env(GLIBC_VARIABLE, with_tunable(&tunables, None));
        }
        None => {}
    }
}

/// Returns glibc's tunables (`name=value:name=value`) with ours set or removed.
fn with_tunable(tunables: &OsStr, value: Option<&str>) -> OsString {
    let text = tunables.to_string_lossy();
    let others = text
        .split(':')
        .filter(|entry| !entry.is_empty() && entry.split('=').next() != Some(GLIBC_TUNABLE));
    let ours = value.map(|value| format!("{GLIBC_TUNABLE}={value}"));
    others.chain(ours.as_deref()).join(":").into()
}

fn replace_process(mut command: Command) -> std::io::Error {
    if let Some(name) = std::env::args_os().next() {
        command.arg0(name);
    }
    command.exec()
}

/// Returns whether the kernel forbids transparent huge pages in this process.
#[cfg(target_os = "linux")]
fn thp_disabled() -> bool {
    rustix::thread::transparent_huge_pages_are_disabled().unwrap_or(false)
}

#[cfg(target_os = "linux")]
fn disable_thp(disable: bool) -> std::io::Result<()> {
    if disable != thp_disabled() {
        rustix::thread::disable_transparent_huge_pages(disable)?;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn thp_disabled() -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn disable_thp(disable: bool) -> std::io::Result<()> {
    if disable {
        return Err(std::io::ErrorKind::Unsupported.into());
    }
    Ok(())
}

/// Returns the policy and the system's setting, for the manifest: `huge (system: madvise)`.
pub fn pages_line() -> String {
    line_of(Pages::current(), Path::new("/"), thp_disabled())
}

fn line_of(pages: Pages, root: &Path, disabled: bool) -> String {
    let file = root.join("sys/kernel/mm/transparent_hugepage/enabled");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let system = match chosen(&text) {
        "" => "unknown",
        word => word,
    };
    let process = match (pages, disabled) {
        (Pages::Default | Pages::Huge, true) => ", off for this process",
        _ => "",
    };
    format!("{} (system: {system}{process})", name_of(&pages))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for pages in [Pages::Default, Pages::Huge, Pages::Small] {
            assert_eq!(Pages::from_str(&name_of(&pages), false), Ok(pages));
        }
        assert!(Pages::from_str("giant", false).is_err());
    }

    #[test]
    fn other_tunables_are_kept() {
        let with = |text: &str, value| with_tunable(OsStr::new(text), value);
        assert_eq!(with("", Some("1")), "glibc.malloc.hugetlb=1");
        assert_eq!(
            with("a=1:glibc.malloc.hugetlb=2:b=2", Some("0")),
            "a=1:b=2:glibc.malloc.hugetlb=0"
        );
        assert_eq!(with("glibc.malloc.hugetlb=1", None), "");
    }

    #[test]
    fn huge_pages_that_the_process_disables_are_reported_as_off() {
        let root = tempfile::tempdir().expect("a directory");
        let line = |pages, disabled| line_of(pages, root.path(), disabled);
        assert_eq!(line(Pages::Default, false), "default (system: unknown)");
        let dir = root.path().join("sys/kernel/mm/transparent_hugepage");
        std::fs::create_dir_all(&dir).expect("a directory");
        std::fs::write(dir.join("enabled"), "always [madvise] never\n").expect("a file");
        assert_eq!(line(Pages::Small, true), "small (system: madvise)");
        assert_eq!(
            line(Pages::Huge, true),
            "huge (system: madvise, off for this process)"
        );
    }

    #[test]
    fn a_program_on_another_allocator_is_told_so() {
        let refused = reexec(Choice::System, Pages::Default);
        assert!(matches!(refused, Err(ReexecError::NotInstalled)));
    }
}
