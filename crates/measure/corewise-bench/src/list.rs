//! `corewise bench list`.

use std::fmt::Write;

use corewise_topology::Topology;

use crate::format::Format;
use crate::manifest::caches;
use crate::registry::Registry;
use crate::sections::SECTIONS;
use crate::suite::{SUITES, Suite};

/// Lists everything that can be named on the command line.
pub(crate) fn list(registry: &Registry, format: Format) -> String {
    match format {
        Format::Text => text(registry),
        Format::Json => json(registry),
    }
}

fn text(registry: &Registry) -> String {
    let mut out = String::from("tables\n");
    for entry in registry.entries() {
        let card = &entry.card;
        let resizes = [", resizes on request", ""][usize::from(!entry.resizes())];
        let _ = writeln!(
            out,
            "  {:<20} {} ({} {}){resizes}",
            card.name, card.about, card.language, card.version
        );
    }
    for missing in registry.missing() {
        let (name, reason) = (&missing.name, &missing.reason);
        out += &format!("  {name:<20} not in this build: {reason}\n");
    }
    out += "\nsections\n";
    for section in SECTIONS {
        let _ = writeln!(out, "  {:<20} {}", section.name(), section.preset().about);
    }
    out += "\nsuites\n";
    for (name, _) in SUITES {
        let about = Suite::find(name).map_or(String::new(), |suite| suite.about);
        let _ = writeln!(out, "  {name:<20} {about}");
    }
    out += "\nworkload\n  distributions        uniform, zipf:EXPONENT, hotspot:DRAWS%:KEYS%, single, sequential\n";
    out += "  keys                 u64; bytes of 16 to 250 with values of 8 to 4096\n";
    out + "\nmachine\n" + &machine(&Topology::detect())
}

fn machine(topology: &Topology) -> String {
    let allowed: Vec<usize> = topology.allowed().map(|cpu| cpu.id.0).collect();
    let mut out = format!(
        "  CPUs                 {} ({} cores, {} sockets)\n",
        corewise_topology::format_cpu_list(&allowed),
        topology.cores(),
        topology.packages()
    );
    for cache in caches(topology) {
        let (level, kib, shared) = (cache.level, cache.size_bytes >> 10, cache.shared_by);
        out += &format!("  cache level {level}        {kib} KiB, shared by {shared}\n");
    }
    out.trim_end().into()
}

fn json(registry: &Registry) -> String {
    let card = |entry: &crate::entry::Entry| {
        let mut card = serde_json::json!(entry.card);
        card["resizes_on_request"] = entry.resizes().into();
        card["capabilities"] = serde_json::json!(entry.capabilities());
        card
    };
    let cards: Vec<_> = registry.entries().iter().map(card).collect();
    let sections: Vec<_> = SECTIONS
        .iter()
        .map(|of| serde_json::json!({"name": of.name(), "about": of.preset().about}))
        .collect();
    let suites: Vec<_> = SUITES.iter().map(|(name, _)| name).collect();
    let missing = registry.missing();
    serde_json::json!({"tables": cards, "missing": missing, "sections": sections, "suites": suites})
        .to_string()
}
