//! What a range of addresses costs the host: its share of the pages, its mappings, its page tables.
//!
//! The resident size counts a page once per mapping. The proportional set size divides a page among its mappings and
//! does not count the host's zero page, so it is what a memory map with deduplicated tails really costs.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::ops::Range;

use frameyard::ByteSize;

use crate::kernel_text;

/// What a range of addresses of this process costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct MemoryUse {
    /// Resident pages, each divided among its mappings (`Pss`).
    pub proportional: ByteSize,
    /// Resident pages, counted once per mapping (`Rss`). The host's zero page is not counted.
    pub resident: ByteSize,
    /// Resident transparent huge pages, private and shared.
    pub huge: ByteSize,
    /// The number of mappings (`vm_area_struct`) in the range.
    pub mappings: u64,
}

impl MemoryUse {
    /// What the kernel reports for the mappings in a range of addresses (`/proc/self/smaps`).
    ///
    /// Cost: the kernel walks all page tables of the process.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if only part of a mapping lies in the range, because the kernel reports whole
    /// mappings. The system's error if the file cannot be read.
    pub fn of_addresses(range: Range<usize>) -> io::Result<Self> {
        Self::parse(BufReader::new(File::open("/proc/self/smaps")?), &range)
    }

    fn parse(smaps: impl BufRead, range: &Range<usize>) -> io::Result<Self> {
        let mut found = Self::default();
        let mut is_inside = false;
        for line in smaps.lines() {
            let line = line?;
            if let Some(mapping) = addresses(&line) {
                let overlaps = mapping.start < range.end && mapping.end > range.start;
                is_inside = mapping.start >= range.start && mapping.end <= range.end;
                if overlaps && !is_inside {
                    let problem = format!(
                        "the mapping {:#x}-{:#x} is in {:#x}-{:#x} only in part: measure whole mappings",
                        mapping.start, mapping.end, range.start, range.end
                    );
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
                }
                found.mappings += u64::from(is_inside);
            } else if is_inside {
                found.add(&line);
            }
        }
        Ok(found)
    }

    /// Adds a line that follows the line of a mapping.
    fn add(&mut self, line: &str) {
        let Some((key, value)) = line.split_once(':') else { return };
        let sum = match key {
            "Pss" => &mut self.proportional,
            "Rss" => &mut self.resident,
            "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => &mut self.huge,
            _ => return,
        };
        if let Some(size) = kernel_text::size(value) {
            sum.0 += size.0;
        }
    }
}

/// The addresses at the start of a line of `smaps` or `maps`.
fn addresses(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split_ascii_whitespace().next()?.split_once('-')?;
    let address = |digits| usize::from_str_radix(digits, 16).ok();
    Some(address(start)?..address(end)?)
}

/// The size of this process's page tables (`VmPTE`). The kernel counts only those of the lowest level.
///
/// # Errors
///
/// The system's error if `/proc/self/status` cannot be read or lacks the line.
pub fn page_table_bytes() -> io::Result<ByteSize> {
    let status = fs::read_to_string("/proc/self/status")?;
    kernel_text::size_field(&status, "VmPTE:")
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/self/status: expected a line VmPTE: N kB"))
}

/// How many mappings a process has, and how many it may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MappingLimit {
    /// The limit (`vm.max_map_count`).
    pub limit: u64,
    /// The number of mappings now.
    pub used: u64,
}

impl MappingLimit {
    /// The mappings of this process. Cost: the kernel writes a line of text for each mapping.
    ///
    /// # Errors
    ///
    /// The system's error if `/proc` cannot be read.
    pub fn of_this_process() -> io::Result<Self> {
        Self::of_process("self")
    }

    /// The numbers of a process of the same user.
    pub(crate) fn of_process(id: &str) -> io::Result<Self> {
        const LIMIT: &str = "/proc/sys/vm/max_map_count";
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, format!("{LIMIT}: expected a number"));
        let limit = fs::read_to_string(LIMIT)?.trim().parse().map_err(|_| invalid())?;
        let used = BufReader::new(File::open(format!("/proc/{id}/maps"))?).lines().count() as u64;
        Ok(Self { limit, used })
    }

    /// How many more mappings the process may have.
    #[must_use]
    pub fn left(self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::memory::{HugePages, in_memory};
    use crate::region::Region;

    const SMAPS: &str = "\
7f0000000000-7f0000002000 rw-p 00000000 00:00 0 \n\
Size:                  8 kB\n\
Rss:                   8 kB\n\
Pss:                   6 kB\n\
Pss_Dirty:             4 kB\n\
AnonHugePages:         0 kB\n\
THPeligible:           0\n\
VmFlags: rd wr mr mw me nr sd \n\
7f0000002000-7f0000004000 r--p 00000000 00:00 0      [anon: x]\n\
Rss:                   4 kB\n\
Pss:                   1 kB\n\
7f0000004000-7f0000005000 r--p 00000000 00:00 0 \n\
Pss:                   3 kB\n";

    fn parsed(start: usize, end: usize) -> io::Result<MemoryUse> {
        MemoryUse::parse(SMAPS.as_bytes(), &(0x7f00_0000_0000 + start..0x7f00_0000_0000 + end))
    }

    #[test]
    fn only_mappings_in_the_range_are_added_up() {
        let expected =
            MemoryUse { proportional: ByteSize::kib(7), resident: ByteSize::kib(12), huge: ByteSize(0), mappings: 2 };
        assert_eq!(parsed(0, 0x4000).unwrap(), expected);
        assert_eq!(parsed(0x5000, 0x9000).unwrap(), MemoryUse::default());
    }

    #[test]
    fn a_mapping_that_lies_in_the_range_only_in_part_is_refused() {
        let error = parsed(0x1000, 0x4000).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("0x7f0000000000-0x7f0000002000 is in 0x7f0000001000-"), "{error}");
    }

    #[test]
    fn the_zero_page_costs_page_tables_and_no_memory() {
        let region = Region::zeroed(ByteSize::mib(64), HugePages::Never).unwrap();
        assert_eq!(region.memory_use(ByteSize(0), region.size()).unwrap().proportional, ByteSize(0));
        let words = region.atomics();
        let zeros: u64 = words.iter().step_by(512).map(|word| word.load(Ordering::Relaxed)).sum();
        assert_eq!(zeros, 0);
        let read = region.memory_use(ByteSize(0), region.size()).unwrap();
        assert_eq!((read.proportional, read.mappings), (ByteSize(0), 1));
        words[0].store(1, Ordering::Relaxed);
        words[(32 << 20) / 8].store(1, Ordering::Relaxed);
        let page = crate::sys::host_page_size() as u64;
        assert_eq!(region.memory_use(ByteSize(0), region.size()).unwrap().proportional, ByteSize(2 * page));
        assert_eq!(region.memory_use(ByteSize::mib(32), ByteSize(page)).unwrap().proportional, ByteSize(page));
        assert_eq!(region.memory_use(ByteSize(page), ByteSize(page)).unwrap().proportional, ByteSize(0));
    }

    #[test]
    fn a_page_with_two_mappings_counts_once() {
        let file = in_memory(2 << 20).unwrap();
        let regions = [(); 2].map(|()| Region::in_file(&file, 0, ByteSize::mib(2), HugePages::Default).unwrap());
        for region in &regions {
            region.atomics().iter().step_by(512).for_each(|word| {
                word.store(1, Ordering::Relaxed);
            });
        }
        for region in &regions {
            let found = region.memory_use(ByteSize(0), region.size()).unwrap();
            assert_eq!((found.proportional, found.resident), (ByteSize::mib(1), ByteSize::mib(2)));
        }
    }

    #[test]
    fn a_part_that_is_outside_or_not_whole_pages_is_refused() {
        let region = Region::zeroed(ByteSize::mib(2), HugePages::Never).unwrap();
        for (offset, size) in [(0, 0), (0, (2 << 20) + 4096), (u64::MAX, 4096), (1, 4096), (0, 4095)] {
            let error = region.memory_use(ByteSize(offset), ByteSize(size)).unwrap_err();
            assert!(error.to_string().contains("whole host pages of the region"), "{error}");
        }
    }

    #[test]
    fn this_process_is_below_its_limit_of_mappings() {
        let limit = MappingLimit::of_this_process().unwrap();
        assert!(limit.used > 10 && limit.used + limit.left() == limit.limit, "{limit:?}");
        assert_eq!(MappingLimit { limit: 5, used: 9 }.left(), 0);
        assert!(MappingLimit::of_process("no process").is_err());
    }
}
