//! The memory of this process.

use std::fs;
use std::io;

use frameyard::ByteSize;

use crate::kernel_text::size_field;

/// The memory of a process, as the kernel accounts for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ResidentSize {
    /// All resident pages (`VmRSS`).
    pub resident: ByteSize,
    /// The resident pages, each divided among its mappings (`Pss`); `None` if the kernel does not report it.
    pub proportional: Option<ByteSize>,
    /// Private memory in transparent huge pages (`AnonHugePages`); `None` if the kernel does not report it.
    pub anonymous_huge: Option<ByteSize>,
}

impl ResidentSize {
    /// The memory of this process now. Cost: a walk over its page tables.
    ///
    /// # Errors
    ///
    /// The system's error if `/proc/self/status` cannot be read or lacks `VmRSS`.
    pub fn of_this_process() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
        Self::parse(&status, &rollup)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/self/status: expected a line VmRSS: N kB"))
    }

    fn parse(status: &str, rollup: &str) -> Option<Self> {
        Some(Self {
            resident: size_field(status, "VmRSS:")?,
            proportional: size_field(rollup, "Pss:"),
            anonymous_huge: size_field(rollup, "AnonHugePages:"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::memory::HugePages;
    use crate::region::Region;

    #[test]
    fn the_fields_are_found() {
        let status = "Name:\tcat\nVmHWM:\t  99 kB\nVmRSS:\t    1880 kB\n";
        let rollup =
            "55d0-7ffe ---p 00000000 00:00 0 [rollup]\nRss:   1880 kB\nPss:    146 kB\nAnonHugePages:   2048 kB\n";
        let size = ResidentSize::parse(status, rollup).unwrap();
        assert_eq!(size.resident, ByteSize::kib(1880));
        assert_eq!(size.proportional, Some(ByteSize::kib(146)));
        assert_eq!(size.anonymous_huge, Some(ByteSize::mib(2)));
        assert_eq!(ResidentSize::parse(status, "").unwrap().proportional, None);
        assert_eq!(ResidentSize::parse("", rollup), None);
    }

    #[test]
    fn populated_memory_is_counted() {
        let region = Region::zeroed(ByteSize::mib(64), HugePages::Never).unwrap();
        region.prefault(NonZeroUsize::MIN, &mut |_| {}).unwrap();
        assert!(ResidentSize::of_this_process().unwrap().resident >= ByteSize::mib(64));
    }
}
