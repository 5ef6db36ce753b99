//! The memory limit of this process, from its control groups and the size of the machine's memory.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the memory limit in bytes; `None` on a system that does not report it.
pub(crate) fn limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let allowed = limits_of(&groups)
        .into_iter()
        .filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|report| of_machine(&report));
    allowed.chain(machine).min()
}

/// Returns the resident memory of this process in bytes; `None` on a system that does not report it.
pub(crate) fn resident() -> Option<u64> {
    let pages: u64 = fs::read_to_string("/proc/self/statm")
        .ok()?
        .split(' ')
        .nth(1)?
        .parse()
        .ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Returns the files that may contain a limit, for both versions of control groups: those of each group and its parents. In a
/// container, the parents of its own group are not visible.
fn limits_of(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for group in groups.lines() {
        let mut parts = group.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            some if some.split(',').any(|controller| controller == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let path = Path::new(path.trim_start_matches('/'));
        files.extend(
            path.ancestors()
                .map(|group| Path::new(root).join(group).join(file)),
        );
    }
    files
}

fn of_machine(report: &str) -> Option<u64> {
    let total = report
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    total
        .trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()
        .map(|kilobytes| kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_and_those_above_it_may_have_a_limit() {
        let check = |groups, expected: &[&str]| {
            assert_eq!(
                limits_of(groups),
                expected.iter().map(PathBuf::from).collect::<Vec<_>>(),
                "{groups}"
            );
        };
        check("0::/\n", &["/sys/fs/cgroup/memory.max"]);
        check(
            "0::/a.slice/b\n",
            &[
                "/sys/fs/cgroup/a.slice/b/memory.max",
                "/sys/fs/cgroup/a.slice/memory.max",
                "/sys/fs/cgroup/memory.max",
            ],
        );
        check(
            "4:cpu,memory:/docker/1\n3:cpuset:/\n",
            &[
                "/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            ],
        );
        check("nonsense", &[]);
    }

    #[test]
    fn the_machine_reports_kilobytes() {
        assert_eq!(
            of_machine("MemTotal:       24684084 kB\nMemFree: 1 kB\n"),
            Some(24_684_084 << 10)
        );
        assert_eq!(of_machine("MemFree: 1 kB\n"), None);
    }
}
