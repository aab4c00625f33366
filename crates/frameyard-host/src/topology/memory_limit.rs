//! The memory limit of the control group of this process.

use std::fs;
use std::path::Path;

use frameyard::ByteSize;

/// The smallest limit of the process's group and the groups above it; `None` if there is none.
///
/// Reads both versions of the control-group file system at their conventional mount points. A file that cannot be read
/// sets no limit, since this only gives an early error: the kernel enforces the real limit.
pub(super) fn of_this_process(root: &Path) -> Option<ByteSize> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    groups.lines().filter_map(|line| limit_of_line(root, line)).min()
}

fn limit_of_line(root: &Path, line: &str) -> Option<ByteSize> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let (mount, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|name| name == "memory") => ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return None,
    };
    let group = Path::new(path.trim_start_matches('/'));
    let limits = group.ancestors().filter_map(|group| {
        let text = fs::read_to_string(root.join(mount).join(group).join(file)).ok()?;
        text.trim().parse::<u64>().ok()
    });
    limits.min().map(ByteSize)
}
