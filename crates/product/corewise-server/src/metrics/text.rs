//! Prints the metrics.

use super::keyspace::Keyspace;
use super::{command_sums, values};
use crate::shared::Shared;
use corewise_engine::Engine;
use corewise_ops::Now;
use corewise_wire::memcached::StatsWriter;
use std::fmt::Write as _;

/// A section of `INFO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Server,
    Clients,
    Memory,
    Persistence,
    Stats,
    Replication,
    Cpu,
    Modules,
    Commandstats,
    Errorstats,
    Latencystats,
    Cluster,
    Keyspace,
}

impl Section {
    /// In the order of Redis.
    pub(super) const ALL: [Self; 13] = [
        Self::Server,
        Self::Clients,
        Self::Memory,
        Self::Persistence,
        Self::Stats,
        Self::Replication,
        Self::Cpu,
        Self::Modules,
        Self::Commandstats,
        Self::Errorstats,
        Self::Latencystats,
        Self::Cluster,
        Self::Keyspace,
    ];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Server => "Server",
            Self::Clients => "Clients",
            Self::Memory => "Memory",
            Self::Persistence => "Persistence",
            Self::Stats => "Stats",
            Self::Replication => "Replication",
            Self::Cpu => "CPU",
            Self::Modules => "Modules",
            Self::Commandstats => "Commandstats",
            Self::Errorstats => "Errorstats",
            Self::Latencystats => "Latencystats",
            Self::Cluster => "Cluster",
            Self::Keyspace => "Keyspace",
        }
    }
}

/// A set of sections: a bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sections(u16);

impl Sections {
    const ALL: Self = Self((1 << Section::ALL.len()) - 1);
    /// Those that `INFO` prints without arguments.
    const DEFAULT: Self = Self(
        Self::ALL.0 & !(Self::of(Section::Commandstats).0 | Self::of(Section::Latencystats).0),
    );

    const fn of(section: Section) -> Self {
        Self(1 << section as u16)
    }

    /// Those that `INFO` prints with these arguments. A name costs the same whether it is known or
    /// not, and allocates nothing: a request may have hundreds of thousands.
    pub(crate) fn asked<'n>(names: impl ExactSizeIterator<Item = &'n [u8]>) -> Self {
        if names.len() == 0 {
            return Self::DEFAULT;
        }
        names.fold(Self(0), |sum, name| Self(sum.0 | Self::named(name).0))
    }

    fn named(name: &[u8]) -> Self {
        let is = |word: &str| word.as_bytes().eq_ignore_ascii_case(name);
        if is("all") || is("everything") {
            return Self::ALL;
        }
        if is("default") {
            return Self::DEFAULT;
        }
        if is("module_list") {
            return Self::of(Section::Modules);
        }
        let section = Section::ALL.into_iter().find(|one| is(one.title()));
        section.map_or(Self(0), Self::of)
    }

    pub(super) fn has(self, section: Section) -> bool {
        self.0 & Self::of(section).0 != 0
    }
}

/// Prints `stats`.
pub(crate) fn stats<E: Engine>(shared: &Shared, engine: &E, now: Now, out: &mut Vec<u8>) {
    let mut w = StatsWriter::new(out);
    for (metric, value) in values(shared, engine, now, |metric| metric.stats.is_some()) {
        if let (Some(name), Some(value)) = (metric.stats, value) {
            w.stat(name, value);
        }
    }
    w.end();
}

/// The text of `INFO`, of the sections that are wanted.
pub(crate) fn info<E: Engine>(shared: &Shared, engine: &E, now: Now, wanted: Sections) -> String {
    let mut text = String::new();
    let values = values(shared, engine, now, |metric| {
        metric.info.is_some_and(|(section, _)| wanted.has(section))
    });
    for section in Section::ALL.into_iter().filter(|one| wanted.has(*one)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        // Writing to a String cannot fail, here and below.
        let _ = write!(text, "# {}\r\n", section.title());
        for (metric, value) in &values {
            match (metric.info, value) {
                (Some((of, name)), Some(value)) if of == section => {
                    let _ = write!(text, "{name}:{value}\r\n");
                }
                _ => {}
            }
        }
        match section {
            Section::Commandstats => command_sums(shared).print_commands(&mut text),
            Section::Errorstats => command_sums(shared).print_errors(&mut text),
            Section::Keyspace => Keyspace::sample(engine, now).print(&engine.stats(), &mut text),
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Section, Sections};

    #[test]
    fn names_of_sections_are_found_in_any_case() {
        let asked = |names: &[&str]| Sections::asked(names.iter().map(|name| name.as_bytes()));
        for (index, section) in Section::ALL.into_iter().enumerate() {
            assert_eq!(section as usize, index);
            let title = section.title();
            for name in [title.to_ascii_lowercase(), title.to_ascii_uppercase()] {
                assert_eq!(asked(&["foo", &name]), Sections::of(section));
            }
        }
        let most = [Section::Server, Section::Errorstats, Section::Keyspace];
        for names in [
            &[][..],
            &["Default"],
            &["default", "server", "", "defaultx"],
        ] {
            assert!(most.iter().all(|one| asked(names).has(*one)));
            assert!(!asked(names).has(Section::Commandstats));
            assert!(!asked(names).has(Section::Latencystats));
        }
        assert_eq!(asked(&["cpu", "ALL"]), Sections::ALL);
        assert_eq!(asked(&["everything"]), Sections::ALL);
        assert_eq!(asked(&["module_list"]), Sections::of(Section::Modules));
        let mut looked_at = 0;
        let names = [&b"foo"[..]; 1_000].into_iter().inspect(|_| looked_at += 1);
        assert_eq!(Sections::asked(names), Sections(0));
        assert_eq!(looked_at, 1_000, "each name is looked at once");
    }
}
