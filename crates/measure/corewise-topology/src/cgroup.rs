//! CPU time and memory that the control groups of this process grant.
//!
//! A limit applies if it is set anywhere between the process's group and the root, so the smallest
//! counts. In a container the path in `/proc/self/cgroup` may not exist under the mount: missing
//! parts are skipped and the mount's root, which is then the container's group, is read.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// A controller, and how its limit is read from the folder of a group in either version.
struct Controller {
    name: &'static str,
    v2: fn(&Path) -> Option<f64>,
    v1: fn(&Path) -> Option<f64>,
}

const CPU: Controller = Controller {
    name: "cpu",
    v2: quota_v2,
    v1: quota_v1,
};

const MEMORY: Controller = Controller {
    name: "memory",
    v2: |dir| bytes(&dir.join("memory.max")),
    v1: |dir| bytes(&dir.join("memory.limit_in_bytes")),
};

/// The smallest quota in CPUs, of either version; `None` if there is no quota.
pub(crate) fn cpu_quota(root: &Path) -> Option<f64> {
    limit(root, &CPU)
}

/// The smallest limit of memory in bytes, of either version; `None` if there is no limit.
pub(crate) fn memory_limit(root: &Path) -> Option<u64> {
    // Limits are multiples of a page, so those that exist are exact in a float.
    limit(root, &MEMORY).map(|bytes| bytes as u64)
}

fn limit(root: &Path, controller: &Controller) -> Option<f64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mount = root.join("sys/fs/cgroup");
    groups
        .lines()
        .filter_map(|line| limit_of_line(&mount, line, controller))
        .min_by(f64::total_cmp)
}

/// A line is `number:controllers:path`; version 2 has no controllers.
fn limit_of_line(mount: &Path, line: &str, controller: &Controller) -> Option<f64> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
    if controllers.is_empty() {
        let unified = [mount.to_owned(), mount.join("unified")];
        return smallest(&unified, group, controller.v2);
    }
    let Controller { name, v1, .. } = controller;
    if !controllers.split(',').any(|other| other == *name) {
        return None;
    }
    smallest(&[mount.join(controllers), mount.join(name)], group, *v1)
}

/// The smallest limit of `group` and its ancestors under any of `mounts`.
fn smallest(mounts: &[PathBuf], group: &str, read: fn(&Path) -> Option<f64>) -> Option<f64> {
    let names = Path::new(group)
        .components()
        .filter_map(|component| match component {
            // `..` means a group outside the container's view; it is skipped.
            Component::Normal(name) => Some(name),
            _ => None,
        });
    let relative: PathBuf = names.collect();
    mounts
        .iter()
        .flat_map(|mount| relative.ancestors().map(|group| mount.join(group)))
        .filter_map(|dir| read(&dir))
        .min_by(f64::total_cmp)
}

/// `max 100000` or `150000 100000`.
fn quota_v2(dir: &Path) -> Option<f64> {
    let text = fs::read_to_string(dir.join("cpu.max")).ok()?;
    let mut words = text.split_whitespace();
    let quota_us = words.next()?.parse().ok()?;
    let period_us = words
        .next()
        .map_or(Some(100_000.0), |word| word.parse().ok())?;
    ratio(quota_us, period_us)
}

fn quota_v1(dir: &Path) -> Option<f64> {
    let number =
        |name| -> Option<f64> { fs::read_to_string(dir.join(name)).ok()?.trim().parse().ok() };
    ratio(number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
}

/// Converts a quota to CPUs. Version 1 writes -1 for no quota.
fn ratio(quota_us: f64, period_us: f64) -> Option<f64> {
    (quota_us > 0.0 && period_us > 0.0).then(|| quota_us / period_us)
}

/// `max` in version 2, and a number of pages next to 2^63 bytes in version 1, mean no limit.
fn bytes(file: &Path) -> Option<f64> {
    let bytes: u64 = fs::read_to_string(file).ok()?.trim().parse().ok()?;
    (bytes < 1 << 62).then_some(bytes as f64)
}
