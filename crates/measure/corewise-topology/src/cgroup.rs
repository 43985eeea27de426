//! CPU time that the control groups of this process grant.
//!
//! A limit applies if it is set anywhere between the process's group and the root, so the smallest
//! counts. In a container the path in `/proc/self/cgroup` may not exist under the mount: missing
//! parts are skipped and the mount's root, which is then the container's group, is read.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// The smallest quota in CPUs, of either version; `None` if there is no quota.
pub(crate) fn cpu_quota(root: &Path) -> Option<f64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mount = root.join("sys/fs/cgroup");
    groups
        .lines()
        .filter_map(|line| quota_of_line(&mount, line))
        .min_by(f64::total_cmp)
}

/// A line is `number:controllers:path`; version 2 has no controllers.
fn quota_of_line(mount: &Path, line: &str) -> Option<f64> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
    if controllers.is_empty() {
        let unified = [mount.to_owned(), mount.join("unified")];
        return smallest(&unified, group, quota_v2);
    }
    if !controllers.split(',').any(|name| name == "cpu") {
        return None;
    }
    smallest(
        &[mount.join(controllers), mount.join("cpu")],
        group,
        quota_v1,
    )
}

/// The smallest quota of `group` and its ancestors under any of `mounts`.
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
