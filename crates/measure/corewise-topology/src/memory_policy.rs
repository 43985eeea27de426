//! On which NUMA nodes the system places memory, in the words of numactl.

use std::fmt;
use std::io;
use std::str::FromStr;

use crate::{ParseError, Topology, parse_cpu_list};

/// Nodes that a policy can name: those with smaller numbers.
const MAX_NODES: usize = 64;

/// Where the pages go that a thread touches first (\[CHTBench\] §3.4.6).
///
/// ```
/// use corewise_topology::MemoryPolicy;
/// let policy: MemoryPolicy = "interleave:0-1".parse().unwrap();
/// assert_eq!(policy, MemoryPolicy::Interleave(0b11));
/// assert_eq!(policy.to_string(), "interleave:0-1");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// The system's: the node of the thread, and others when that is full. Written `default`.
    #[default]
    Default,
    /// The node of the thread that touches the page. Written `localalloc`.
    Local,
    /// These nodes in turn, a bit for each. Written `interleave:all` or `interleave:0-1`.
    Interleave(u64),
    /// These nodes only: an allocation fails when they are full. Written `membind:0`.
    Bind(u64),
}

impl FromStr for MemoryPolicy {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text.split_once(':') {
            None if text == "default" => Ok(Self::Default),
            None if text == "localalloc" => Ok(Self::Local),
            Some(("interleave", "all")) => Ok(Self::Interleave(u64::MAX)),
            Some(("interleave", list)) => Ok(Self::Interleave(nodes(list)?)),
            Some(("membind", list)) => Ok(Self::Bind(nodes(list)?)),
            _ => Err(ParseError(format!(
                "`{text}` is not one of default, localalloc, interleave:all, interleave:0-1, \
                 membind:0"
            ))),
        }
    }
}

/// Returns the bits of a list of nodes.
fn nodes(list: &str) -> Result<u64, ParseError> {
    let nodes = parse_cpu_list(list)?;
    if nodes.is_empty() || nodes.iter().any(|&node| node >= MAX_NODES) {
        let text = format!("`{list}` names no node below {MAX_NODES}");
        return Err(ParseError(text));
    }
    Ok(nodes.iter().fold(0, |bits, node| bits | 1 << node))
}

impl fmt::Display for MemoryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |bits: u64| {
            let nodes: Vec<usize> = (0..MAX_NODES).filter(|at| bits >> at & 1 == 1).collect();
            crate::format_cpu_list(&nodes)
        };
        match *self {
            Self::Default => f.write_str("default"),
            Self::Local => f.write_str("localalloc"),
            Self::Interleave(u64::MAX) => f.write_str("interleave:all"),
            Self::Interleave(nodes) => write!(f, "interleave:{}", list(nodes)),
            Self::Bind(nodes) => write!(f, "membind:{}", list(nodes)),
        }
    }
}

impl MemoryPolicy {
    /// Sets the policy for the calling thread, for the threads that it starts later, and for a
    /// program that it executes. Pages that are in place stay where they are.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if a node is not on this machine; the system's error if it refuses;
    /// `Unsupported` on systems without such a call.
    pub fn set(self, machine: &Topology) -> io::Result<()> {
        let known = machine.nodes.iter().filter(|node| node.id < MAX_NODES);
        let there = known.fold(0_u64, |bits, node| bits | 1 << node.id);
        match self {
            Self::Default => imp::set(imp::DEFAULT, 0),
            Self::Local => imp::set(imp::LOCAL, 0),
            Self::Interleave(u64::MAX) => imp::set(imp::INTERLEAVE, there),
            Self::Interleave(nodes) | Self::Bind(nodes) if nodes & !there != 0 => {
                let text = format!("{self}: this machine has no such node");
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
            Self::Interleave(nodes) => imp::set(imp::INTERLEAVE, nodes),
            Self::Bind(nodes) => imp::set(imp::BIND, nodes),
        }
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use std::io;

    pub(super) const DEFAULT: i32 = libc::MPOL_DEFAULT;
    pub(super) const LOCAL: i32 = libc::MPOL_LOCAL;
    pub(super) const INTERLEAVE: i32 = libc::MPOL_INTERLEAVE;
    pub(super) const BIND: i32 = libc::MPOL_BIND;

    pub(super) fn set(mode: i32, nodes: u64) -> io::Result<()> {
        let mask = [nodes, 0];
        let (mask_at, bits) = match nodes {
            0 => (std::ptr::null(), 0),
            _ => (mask.as_ptr(), super::MAX_NODES + 1),
        };
        // SAFETY: the kernel reads at most `bits` bits, rounded up to a word, of `mask`, which is
        // two words long; it reads nothing if the pointer is null.
        let status = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask_at, bits) };
        if status == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::io;

    pub(super) const DEFAULT: i32 = 0;
    pub(super) const LOCAL: i32 = 1;
    pub(super) const INTERLEAVE: i32 = 2;
    pub(super) const BIND: i32 = 3;

    pub(super) fn set(mode: i32, _: u64) -> io::Result<()> {
        if mode == DEFAULT {
            return Ok(());
        }
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_name_parses_to_the_same_value() {
        for text in [
            "default",
            "localalloc",
            "interleave:all",
            "interleave:0,2-3",
            "membind:63",
        ] {
            let policy: MemoryPolicy = text.parse().expect("a policy");
            assert_eq!(policy.to_string(), text);
        }
        for bad in [
            "",
            "local",
            "interleave",
            "membind:",
            "membind:64",
            "membind:x",
        ] {
            assert!(bad.parse::<MemoryPolicy>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_node_that_is_not_there_is_refused() {
        let error = MemoryPolicy::Bind(1 << 5).set(&Topology::flat(2));
        let kind = error.expect_err("there is one node").kind();
        assert_eq!(kind, io::ErrorKind::InvalidInput);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_takes_each_policy_or_has_none() {
        // On another thread: the policy ends with it.
        let set = |policy: MemoryPolicy| {
            let machine = Topology::detect();
            let thread = std::thread::spawn(move || policy.set(&machine));
            thread.join().expect("no panic")
        };
        let node = Topology::detect().nodes[0].id.min(MAX_NODES - 1);
        for policy in [
            MemoryPolicy::Interleave(u64::MAX),
            MemoryPolicy::Bind(1 << node),
            MemoryPolicy::Local,
            MemoryPolicy::Default,
        ] {
            if let Err(error) = set(policy) {
                // Kernels without NUMA, and sandboxes, refuse the call itself.
                let refused = [libc::ENOSYS, libc::EPERM];
                let code = error.raw_os_error();
                assert!(
                    code.is_some_and(|code| refused.contains(&code)),
                    "{policy}: {error}"
                );
            }
        }
    }
}
