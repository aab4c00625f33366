//! The kernel's files that describe the machine.

use std::io;
use std::path::{Path, PathBuf};

use frameyard_units::ByteSize;

use super::super::parse_cpu_list;

/// The files under a root directory.
pub(super) struct Files {
    root: PathBuf,
}

impl Files {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The text of a file, without white space at its end.
    pub(super) fn text(&self, path: &str) -> io::Result<String> {
        let bytes = std::fs::read(self.root.join(path))?;
        Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    }

    /// The number in a file. `None` for a missing file or a negative number, which the kernel writes for "unknown".
    pub(super) fn number(&self, path: &str) -> Option<u32> {
        self.text(path).ok()?.trim().parse().ok()
    }

    /// The numbers of a directory's entries that are named `prefix` and a number, ascending.
    pub(super) fn numbered(&self, directory: &str, prefix: &str) -> Vec<u64> {
        let Ok(entries) = std::fs::read_dir(self.root.join(directory)) else {
            return Vec::new();
        };
        let number = |name: &str| name.strip_prefix(prefix)?.parse().ok();
        let mut numbers: Vec<u64> =
            entries.flatten().filter_map(|entry| number(&entry.file_name().to_string_lossy())).collect();
        numbers.sort_unstable();
        numbers
    }

    /// The first value of a key in `/proc/cpuinfo`.
    pub(super) fn cpu_info(&self, key: &str) -> Option<String> {
        let text = self.text("proc/cpuinfo").ok()?;
        let value = |line: &str| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == key).then(|| value.trim().to_owned())
        };
        text.lines().find_map(value)
    }

    /// The host's numbers of the present CPUs.
    pub(super) fn cpu_numbers(&self) -> Vec<u32> {
        let listed = ["present", "online"].iter().find_map(|list| {
            let text = self.text(&format!("sys/devices/system/cpu/{list}")).ok()?;
            parse_cpu_list(&text).ok().filter(|cpus| !cpus.is_empty())
        });
        listed.unwrap_or_else(|| {
            let text = self.text("proc/cpuinfo").unwrap_or_default();
            let cpus = text.lines().filter(|line| line.split(':').next().is_some_and(|key| key.trim() == "processor"));
            (0..cpus.count() as u32).collect()
        })
    }

    /// The memory that the kernel manages.
    pub(super) fn mem_total(&self) -> Option<ByteSize> {
        mem_total(&self.text("proc/meminfo").ok()?)
    }

    /// The memory that the kernel manages on a node.
    pub(super) fn node_mem_total(&self, node: u32) -> Option<ByteSize> {
        mem_total(&self.text(&format!("sys/devices/system/node/node{node}/meminfo")).ok()?)
    }

    /// The size of a memory block. The file has it in hexadecimal.
    pub(super) fn block_size(&self) -> Option<u64> {
        let text = self.text("sys/devices/system/memory/block_size_bytes").ok()?;
        u64::from_str_radix(&text, 16).ok().filter(|&size| size != 0)
    }

    /// The numbers of a node's memory blocks.
    pub(super) fn node_blocks(&self, node: u32) -> Vec<u64> {
        self.numbered(&format!("sys/devices/system/node/node{node}"), "memory")
    }
}

/// The value of a line such as `MemTotal: 16384000 kB` or `Node 0 MemTotal: 16384000 kB`.
fn mem_total(text: &str) -> Option<ByteSize> {
    let (_, rest) = text.split_once("MemTotal:")?;
    let kib: u64 = rest.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1 << 10).map(ByteSize)
}
