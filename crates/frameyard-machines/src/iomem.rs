//! Machines from the text of `/proc/iomem`.

use frameyard_units::{Geometry, NodeId, PhysAddr};

use super::description::stem;
use super::validate::{check_disjoint, check_range};
use super::{AddressRange, Cpu, Machine, MachineError, MachineNode, Place, Problem, ZoneLimits, default_distances};

/// A machine with the memory of an `/proc/iomem` text, on one node with one CPU.
///
/// Memory is "System RAM" at the outermost level, including the ranges nested in it (the kernel's own code and data).
/// "Persistent Memory", and RAM nested in it, is not memory. `file` names the text in errors.
///
/// # Errors
///
/// With file and line: [`MachineError::Malformed`] for a line that is not a resource, and [`MachineError::Invalid`] for
/// overlapping, empty or too large ranges. [`MachineError::HiddenAddresses`] if the text was read without privilege.
/// [`MachineError::NoMemoryMap`] if it has no "System RAM".
pub fn from_iomem(file: &str, text: &str) -> Result<Machine, MachineError> {
    let machine = Machine {
        name: stem(file),
        description: "one node with one CPU, and the memory of a resource map".to_owned(),
        source: file.to_owned(),
        geometry: Geometry::X86_64,
        zones: ZoneLimits::X86_64,
        cpus: vec![Cpu::default()],
        nodes: vec![MachineNode { memory: system_ram(file, text)? }],
        distances: default_distances(1),
        reserved: Vec::new(),
        cma: Vec::new(),
        clock_mhz: None,
        simulation: None,
    };
    machine.validate().map_err(|error| error.at(Place { file: file.to_owned(), line: 1 }))?;
    Ok(machine)
}

/// The outermost "System RAM" ranges, lowest first.
pub(super) fn system_ram(file: &str, text: &str) -> Result<Vec<AddressRange>, MachineError> {
    let place = |line: usize| Place { file: file.to_owned(), line };
    let (mut ranges, mut hidden) = (Vec::new(), false);
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let Some(resource) = Resource::parse(line) else {
            let message = "no resource: a line reads as in '00100000-bfffffff : System RAM'".to_owned();
            return Err(MachineError::Malformed { place: place(index + 1), message });
        };
        if resource.nested || resource.name != "System RAM" {
            continue;
        }
        if resource.first == 0 && resource.last == 0 {
            hidden = true;
            continue;
        }
        // The last address is inclusive. `check_range` refuses a saturated end.
        let range = AddressRange::new(PhysAddr(resource.first), PhysAddr(resource.last.saturating_add(1)));
        check_range(range).map_err(|problem| MachineError::from(problem).at(place(index + 1)))?;
        ranges.push((index + 1, range));
    }
    if ranges.is_empty() && hidden {
        return Err(MachineError::HiddenAddresses { file: file.to_owned() });
    }
    if ranges.is_empty() {
        let expected = "lines as in '00100000-bfffffff : System RAM'";
        return Err(MachineError::NoMemoryMap { file: file.to_owned(), expected });
    }
    let mut sorted: Vec<_> = ranges.iter().map(|(_, range)| (NodeId(0), *range)).collect();
    check_disjoint(&mut sorted).map_err(|problem| {
        let second = match &problem {
            Problem::Overlap { second_range, .. } => *second_range,
            _ => AddressRange::default(),
        };
        let line = ranges.iter().rfind(|(_, range)| *range == second).map_or(1, |(line, _)| *line);
        MachineError::from(problem).at(place(line))
    })?;
    Ok(sorted.into_iter().map(|(_, range)| range).collect())
}

/// A line of the resource map.
struct Resource<'a> {
    nested: bool,
    first: u64,
    last: u64,
    name: &'a str,
}

impl<'a> Resource<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (range, name) = line.split_once(" : ").or_else(|| Some((line.strip_suffix(" :")?, "")))?;
        let (first, last) = range.trim_start_matches(' ').split_once('-')?;
        Some(Self { nested: range.starts_with(' '), first: hex(first)?, last: hex(last)?, name: name.trim() })
    }
}

fn hex(digits: &str) -> Option<u64> {
    let is_hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hex { u64::from_str_radix(digits, 16).ok() } else { None }
}

/// Whether the text begins as a resource map does.
pub(super) fn looks_like_iomem(text: &str) -> bool {
    text.lines().find(|line| !line.trim().is_empty()).is_some_and(|line| Resource::parse(line).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
00000000-00000fff : Reserved
00001000-0009fbff : System RAM
00100000-bfffffff : System RAM
  01000000-0220bb07 : Kernel code
  02000000-02ffffff : System RAM
c0001000-eebfffff : PCI Bus 0000:00
100000000-63fffffff : System RAM
640000000-73fffffff : Persistent Memory
  640000000-73fffffff : System RAM (kmem)
";

    #[test]
    fn outermost_system_ram_is_memory_and_nothing_else() {
        let machine = from_iomem("/proc/iomem", TEXT).unwrap();
        let ends: Vec<_> = machine.memory_ranges().map(|(_, range)| (range.start.0, range.end.0)).collect();
        assert_eq!(ends, [(0x1000, 0x9fc00), (0x10_0000, 0xc000_0000), (0x1_0000_0000, 0x6_4000_0000)]);
        assert_eq!((machine.name.as_str(), machine.cpus.len()), ("iomem", 1));
    }

    #[test]
    fn hidden_addresses_are_reported() {
        let hidden: String = TEXT
            .lines()
            .map(|line| {
                let indent = if line.starts_with(' ') { "  " } else { "" };
                format!("{indent}00000000-00000000 : {}\n", line.split_once(" : ").unwrap().1)
            })
            .collect();
        let error = from_iomem("/proc/iomem", &hidden).unwrap_err();
        assert_eq!(error, MachineError::HiddenAddresses { file: "/proc/iomem".to_owned() });
        assert!(error.to_string().contains("privilege"));
    }

    #[test]
    fn malformed_and_overlapping_lines_are_reported() {
        let error = |text: &str| from_iomem("map", text).unwrap_err().to_string();
        assert!(error("00000000-00000fff : Reserved\nzzz : System RAM\n").starts_with("map:2: no resource"));
        let text = "00100000-bfffffff : System RAM\n100000000-1ffffffff : System RAM\nb0000000-b0ffffff : System RAM\n";
        assert!(error(text).starts_with("map:3: memory"), "{}", error(text));
        assert!(error("00200000-00100000 : System RAM").starts_with("map:1: the range"));
        assert!(error("00100000-ffffffffffffffff : System RAM").starts_with("map:1: the range"));
        assert!(error("00100000-fffffffffffffffff : System RAM").starts_with("map:1: no resource"));
        assert!(error("00100000-001fffff : Reserved").starts_with("map: says nothing about memory"));
        assert!(error("").starts_with("map: says nothing about memory"));
    }
}
