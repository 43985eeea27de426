//! Machines described by files.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// A directory that stands for `/`.
pub(crate) struct Fake(TempDir);

impl Fake {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, path: &str, content: &str) -> &Self {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{content}\n")).unwrap();
        self
    }

    pub(crate) fn online(&self, list: &str) -> &Self {
        self.file("sys/devices/system/cpu/online", list)
    }

    pub(crate) fn cpu(&self, cpu: usize, package: &str, siblings: &str) -> &Self {
        let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        self.file(&format!("{topology}/physical_package_id"), package);
        self.file(&format!("{topology}/thread_siblings_list"), siblings)
    }

    pub(crate) fn cache(&self, cpu: usize, index: usize, facts: [&str; 4]) -> &Self {
        let dir = format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
        for (name, fact) in ["level", "type", "size", "shared_cpu_list"]
            .iter()
            .zip(facts)
        {
            self.file(&format!("{dir}/{name}"), fact);
        }
        self.file(&format!("{dir}/coherency_line_size"), "64")
    }

    pub(crate) fn node(&self, node: usize, list: &str) -> &Self {
        self.file(&format!("sys/devices/system/node/node{node}/cpulist"), list)
    }

    /// Two sockets of four cores with two hardware threads each; the siblings of 0–7 are 8–15, and
    /// socket 0 has the even cores. Many servers number them this way.
    pub(crate) fn two_sockets() -> Self {
        let fake = Self::new();
        fake.online("0-15")
            .node(0, "0,2,4,6,8,10,12,14")
            .node(1, "1,3,5,7,9,11,13,15");
        for cpu in 0..16 {
            let (core, socket) = (cpu % 8, cpu % 2);
            let pair = format!("{core},{}", core + 8);
            let shared = if socket == 0 {
                "0,2,4,6,8,10,12,14"
            } else {
                "1,3,5,7,9,11,13,15"
            };
            fake.cpu(cpu, &socket.to_string(), &pair);
            fake.cache(cpu, 0, ["1", "Data", "32K", &pair]);
            fake.cache(cpu, 1, ["1", "Instruction", "32K", &pair]);
            fake.cache(cpu, 2, ["2", "Unified", "1024K", &pair]);
            fake.cache(cpu, 3, ["3", "Unified", "22M", shared]);
        }
        fake
    }
}
