//! The machine a result was measured on.

use std::fs;

use serde::{Deserialize, Serialize};

/// The machine that the program runs on; `None` for what /proc does not report.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct HostFacts {
    /// Model name of the first CPU.
    pub(crate) cpu: Option<String>,
    /// Online CPUs, including those that this process may not use.
    pub(crate) cpus: Option<u32>,
    /// Memory that the kernel manages.
    pub(crate) memory_bytes: Option<u64>,
    /// The kernel's release.
    pub(crate) kernel: Option<String>,
}

impl HostFacts {
    /// Reads them from /proc.
    pub(crate) fn read() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        Self::of(&text("/proc/cpuinfo"), &text("/proc/meminfo"), &text("/proc/sys/kernel/osrelease"))
    }

    fn of(cpuinfo: &str, meminfo: &str, release: &str) -> Self {
        let field = |line: &str, name| -> Option<String> {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        };
        let cpus = cpuinfo.lines().filter(|line| field(line, "processor").is_some()).count();
        let memory_kib = meminfo.lines().find_map(|line| field(line, "MemTotal"));
        Self {
            cpu: cpuinfo.lines().find_map(|line| field(line, "model name")),
            cpus: u32::try_from(cpus).ok().filter(|cpus| *cpus > 0),
            memory_bytes: memory_kib
                .and_then(|value| value.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)),
            kernel: Some(release.trim().to_owned()).filter(|release| !release.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_are_read_from_proc() {
        let cpuinfo =
            "processor\t: 0\nmodel name\t: A CPU @ 2.00GHz\n\nprocessor\t: 1\nmodel name\t: A CPU @ 2.00GHz\n";
        let facts = HostFacts::of(cpuinfo, "MemTotal:       16374476 kB\nMemFree: 1 kB\n", "6.12.0-1\n");
        let expected = HostFacts {
            cpu: Some("A CPU @ 2.00GHz".to_owned()),
            cpus: Some(2),
            memory_bytes: Some(16_374_476 << 10),
            kernel: Some("6.12.0-1".to_owned()),
        };
        assert_eq!(facts, expected);
    }

    #[test]
    fn missing_facts_are_none() {
        let facts = HostFacts::of("", "MemTotal: lots", "");
        assert_eq!(facts, HostFacts { cpu: None, cpus: None, memory_bytes: None, kernel: None });
    }
}
