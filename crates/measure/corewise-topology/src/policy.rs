//! Named policies for placing threads on CPUs.

use std::fmt;
use std::str::FromStr;

use crate::{ParseError, format_cpu_list, parse_cpu_list};

/// How threads are bound to CPUs.
///
/// The first three are the default, compact and balanced schemes of \[CHTBench\] §3.4.6, which
/// finds none of them best everywhere: measure. `SmtPair` is how \[CPHASH\] §6 places a client
/// thread and the server thread that it sends requests to.
///
/// ```
/// use corewise_topology::PinPolicy;
/// let policy: PinPolicy = "list:0,2-3".parse().unwrap();
/// assert_eq!(policy, PinPolicy::List(vec![0, 2, 3]));
/// assert_eq!(policy.to_string(), "list:0,2-3");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PinPolicy {
    /// The scheduler decides. Written `none` or `default`.
    #[default]
    None,
    /// Threads close together: one socket after the other, in it one NUMA node after the other, as
    /// \[NR\] §4 places them; within a node one thread per core, then the second hardware threads.
    /// (\[CHTBench\] does not define the order within a socket.)
    Compact,
    /// Threads spread out: sockets in turn, one thread per core until every core has one.
    Balanced,
    /// Threads 2i and 2i + 1 on the two hardware threads of one core, cores in compact order.
    /// Without SMT the two are on neighbouring cores.
    SmtPair,
    /// These CPUs in this order, unchecked.
    List(Vec<usize>),
}

impl FromStr for PinPolicy {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "none" | "default" => Ok(Self::None),
            "compact" => Ok(Self::Compact),
            "balanced" => Ok(Self::Balanced),
            "smt-pair" => Ok(Self::SmtPair),
            _ => match text.strip_prefix("list:").map(parse_cpu_list) {
                None => Err(ParseError(format!(
                    "`{text}` is not one of none, default, compact, balanced, smt-pair, list:0,2-5"
                ))),
                Some(Ok(cpus)) if cpus.is_empty() => {
                    Err(ParseError("the list names no CPU".into()))
                }
                Some(cpus) => cpus.map(Self::List),
            },
        }
    }
}

impl fmt::Display for PinPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Compact => f.write_str("compact"),
            Self::Balanced => f.write_str("balanced"),
            Self::SmtPair => f.write_str("smt-pair"),
            Self::List(cpus) => write!(f, "list:{}", format_cpu_list(cpus)),
        }
    }
}
