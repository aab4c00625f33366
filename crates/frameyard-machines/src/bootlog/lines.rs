//! Boot messages about memory, nodes and CPUs.

use frameyard_units::{NodeId, PhysAddr};

use super::{AddressRange, CpuListError, MAX_CPUS, MAX_NODES};

/// The contents of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Line {
    /// A kernel starts.
    Boot,
    /// Usable memory of the firmware's map.
    Firmware(AddressRange),
    /// Usable memory of the map that the command line changed.
    User(AddressRange),
    /// Memory that is no longer usable.
    Remove(AddressRange),
    /// Memory that has become usable.
    Add(AddressRange),
    /// Memory of a node that the kernel uses.
    NodeRange(NodeId, AddressRange),
    /// Addresses that firmware assigns to a node.
    Affinity(NodeId, AddressRange),
    /// The node of the first CPU.
    BootCpuNode(NodeId),
    /// CPUs of a node.
    NodeCpus(NodeId, Vec<u32>),
    /// The number of present CPUs.
    PresentCpus(u64),
    /// The number of running CPUs.
    BootedCpus(u64),
    /// The largest number of sockets.
    Packages(u16),
    /// The largest number of threads of a core.
    ThreadsPerCore(u8),
    /// The clock in MHz.
    Clock(u32),
    /// A contiguous area.
    Cma(AddressRange),
}

/// Reads messages in order, because some depend on earlier ones.
#[derive(Default)]
pub(super) struct Scanner {
    /// Whether the next line may belong to the list under `Early memory node ranges`.
    node_ranges: bool,
    /// The node of the last CPU list, until all CPUs run. A list may continue after other messages.
    listing: Option<NodeId>,
}

const RANGE: &str = "a range reads as in [mem 0x00100000-0xbfffffff]";
const NODE: &str = "a node is a number below 1024";
const COUNT: &str = "a count is a decimal number";

impl Scanner {
    /// The contents of a line, or `None` for a line about something else.
    ///
    /// # Errors
    ///
    /// A message for a line that begins like a known one and continues differently.
    pub(super) fn read(&mut self, line: &str) -> Result<Option<Line>, String> {
        let text = without_stamp(line);
        if text.starts_with("Linux version ") {
            *self = Self::default();
            return Ok(Some(Line::Boot));
        }
        if text.starts_with("Early memory node ranges") {
            self.node_ranges = true;
            return Ok(None);
        }
        if self.node_ranges {
            if let Some(rest) = text.strip_prefix("node ") {
                let (node, rest) = rest.split_once(':').ok_or("a node's range reads as in 'node 0: [mem ...]'")?;
                return Ok(Some(Line::NodeRange(node_id(node)?, range(rest)?.0)));
            }
            self.node_ranges = false;
        }
        match memory_line(text)? {
            None => self.cpu_line(text),
            said => Ok(said),
        }
    }

    fn cpu_line(&mut self, text: &str) -> Result<Option<Line>, String> {
        if let Some(rest) = text.strip_prefix(".... node ") {
            let (node, cpus) = rest.split_once(", CPUs:").ok_or("a list reads as in '.... node  #0, CPUs: #1 #2'")?;
            let node = node_id(node.trim().trim_start_matches('#'))?;
            self.listing = Some(node);
            return Ok(Some(Line::NodeCpus(node, numbered(cpus)?)));
        }
        if let Some(node) = self.listing
            && text.starts_with('#')
            && text.split_whitespace().all(|word| word.starts_with('#') && number(&word[1..]).is_some())
        {
            return Ok(Some(Line::NodeCpus(node, numbered(text)?)));
        }
        if let Some(rest) = after(text, &["smp: Brought up ", "x86: Booted up "]) {
            self.listing = None;
            let cpus = rest.split_once(", ").and_then(|(_, cpus)| number(cpus.split_whitespace().next()?));
            return cpus.map(|cpus| Some(Line::BootedCpus(cpus))).ok_or_else(|| COUNT.to_owned());
        }
        if let Some(rest) = after(text, &["smpboot: Allowing ", "CPU topo: Allowing "]) {
            return present_cpus(rest).map(|count| Some(Line::PresentCpus(count))).ok_or_else(|| COUNT.to_owned());
        }
        if let Some(count) = after(text, &["Max. logical packages:", "Max logical packages:"]) {
            let count = number(count).ok_or(COUNT)?;
            return Ok(Some(Line::Packages(count.min(MAX_CPUS as u64) as u16)));
        }
        if let Some(count) = after(text, &["Max. threads per core:"]) {
            let count = number(count).ok_or(COUNT)?;
            return Ok(Some(Line::ThreadsPerCore(u8::try_from(count).unwrap_or(1))));
        }
        let clock = text.strip_prefix("tsc: Detected ").and_then(|rest| rest.split_once('.'));
        Ok(clock.and_then(|(mhz, _)| mhz.parse().ok()).map(Line::Clock))
    }
}

fn memory_line(text: &str) -> Result<Option<Line>, String> {
    // Newer kernels also list the gaps between ranges.
    if let Some(rest) = text.strip_prefix("BIOS-e820: ").filter(|rest| !rest.starts_with("[gap ")) {
        let (range, kind) = range(rest)?;
        return Ok(is_usable(kind).then_some(Line::Firmware(range)));
    }
    if let Some(rest) = text.strip_prefix("user: [mem").map(|_| &text["user: ".len()..]) {
        let (range, kind) = range(rest)?;
        return Ok(is_usable(kind).then_some(Line::User(range)));
    }
    if let Some(rest) = text.strip_prefix("e820: remove ") {
        let (range, kind) = range(rest)?;
        return Ok((kind.is_empty() || is_usable(kind)).then_some(Line::Remove(range)));
    }
    if let Some(rest) = text.strip_prefix("e820: update ") {
        let (range, change) = range(rest)?;
        let (from, to) = change.split_once(" ==> ").ok_or("an update reads as in 'usable ==> reserved'")?;
        return Ok(match (is_usable(from), is_usable(to)) {
            (true, false) => Some(Line::Remove(range)),
            (false, true) => Some(Line::Add(range)),
            _ => None,
        });
    }
    if let Some((_, rest)) = text.split_once("SRAT: ") {
        return affinity(rest);
    }
    // The message about an area of several ranges does not state an address.
    if let Some(rest) = text.strip_prefix("cma: Reserved ").filter(|rest| rest.contains(" MiB at ")) {
        return contiguous_area(rest).map(|range| Some(Line::Cma(range)));
    }
    Ok(None)
}

/// `Node 0 PXM 0 [mem ...]`, or `PXM 0 -> APIC 0x00 -> Node 0` for the first CPU.
fn affinity(rest: &str) -> Result<Option<Line>, String> {
    if let Some(rest) = rest.strip_prefix("Node ")
        && let Some(at) = rest.find("[mem ")
    {
        let node = rest.split_whitespace().next().unwrap_or_default();
        return Ok(Some(Line::Affinity(node_id(node)?, range(&rest[at..])?.0)));
    }
    let words: Vec<&str> = rest.split_whitespace().collect();
    if let ["PXM", _, "->", "APIC", apic, "->", "Node", node] = words[..]
        && hex(apic) == Some(0)
    {
        return Ok(Some(Line::BootCpuNode(node_id(node)?)));
    }
    Ok(None)
}

/// `16 MiB at 0x00000000fe800000`, perhaps followed by the node.
fn contiguous_area(rest: &str) -> Result<AddressRange, String> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    let area = match words[..] {
        [mib, "MiB", "at", start, ..] => number(mib).zip(hex(start)),
        _ => None,
    };
    let (mib, start) = area.ok_or("an area reads as in '16 MiB at 0xfe800000'")?;
    let end = start.saturating_add(mib.saturating_mul(1 << 20));
    Ok(AddressRange::new(PhysAddr(start), PhysAddr(end)))
}

/// `4 present CPUs plus 0 hotplug CPUs`, or `4 CPUs, 0 hotplug CPUs`. In the second form the first number includes the
/// second.
fn present_cpus(rest: &str) -> Option<u64> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    match words[..] {
        [present, "present", ..] => number(present),
        [possible, "CPUs,", hotplug, ..] => Some(number(possible)?.saturating_sub(number(hotplug)?)),
        _ => None,
    }
}

/// Whether a message's text means usable memory: "usable", or since Linux 6.16 "System RAM". The test must reject
/// "unusable".
fn is_usable(kind: &str) -> bool {
    let kind = kind.trim();
    kind == "usable" || kind.ends_with("System RAM")
}

/// The inclusive range at the beginning of the text, and the rest of the text.
fn range(text: &str) -> Result<(AddressRange, &str), String> {
    let parse = || {
        let (inside, rest) = text.trim_start().strip_prefix("[mem ")?.split_once(']')?;
        let (first, last) = inside.split_once('-')?;
        let range = AddressRange::new(PhysAddr(hex(first)?), PhysAddr(hex(last)?.saturating_add(1)));
        Some((range, rest.trim()))
    };
    parse().ok_or_else(|| RANGE.to_owned())
}

/// CPUs as in `#1 #2`.
fn numbered(text: &str) -> Result<Vec<u32>, String> {
    let cpus = text.split_whitespace().filter(|word| word.starts_with('#')).map(|word| {
        let cpu = number(&word[1..]).ok_or_else(|| CpuListError::Malformed(word.to_owned()).to_string())?;
        if cpu >= MAX_CPUS as u64 { Err(CpuListError::TooLarge(cpu).to_string()) } else { Ok(cpu as u32) }
    });
    cpus.collect()
}

fn node_id(text: &str) -> Result<NodeId, String> {
    match number(text.trim()) {
        Some(node) if node < MAX_NODES as u64 => Ok(NodeId(node as u16)),
        _ => Err(NODE.to_owned()),
    }
}

fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn hex(text: &str) -> Option<u64> {
    let digits = text.trim().strip_prefix("0x")?;
    if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) { u64::from_str_radix(digits, 16).ok() } else { None }
}

fn after<'a>(text: &'a str, markers: &[&str]) -> Option<&'a str> {
    markers.iter().find_map(|marker| text.split_once(marker)).map(|(_, rest)| rest)
}

/// The message without the prefix of `dmesg`, the console or a journal.
fn without_stamp(line: &str) -> &str {
    let mut text = line.split_once(" kernel: ").map_or(line, |(_, message)| message).trim();
    if let Some((level, rest)) = text.strip_prefix('<').and_then(|rest| rest.split_once('>'))
        && number(level).is_some()
    {
        text = rest.trim_start();
    }
    // A stamp, and on some kernels the thread or CPU: [    0.000000][    T0].
    while let Some((stamp, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        if !stamp.bytes().all(|byte| byte.is_ascii_digit() || b" .TC".contains(&byte)) {
            break;
        }
        text = rest.trim_start();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Result<Option<Line>, String> {
        Scanner::default().read(line)
    }

    fn range(start: u64, end: u64) -> AddressRange {
        AddressRange::new(PhysAddr(start), PhysAddr(end))
    }

    #[test]
    fn a_message_reads_the_same_behind_every_stamp() {
        let said = Ok(Some(Line::Firmware(range(0x1000, 0xa0000))));
        for stamp in ["", "[    0.000000] ", "<6>[    0.000000] ", "[    0.1][    T0] ", "Nov 21 03:35 box kernel: "] {
            assert_eq!(one(&format!("{stamp}BIOS-e820: [mem 0x1000-0x9ffff] usable")), said, "{stamp}");
        }
    }

    #[test]
    fn unusable_memory_is_not_usable() {
        assert_eq!(one("BIOS-e820: [mem 0x1000-0x9ffff] unusable"), Ok(None));
        assert_eq!(one("BIOS-e820: [mem 0x1000-0x9ffff] reserved"), Ok(None));
        assert_eq!(one("BIOS-e820: [gap 0x1000-0x9ffff]"), Ok(None));
    }

    #[test]
    fn updates_add_and_remove_by_their_direction() {
        let update = |change: &str| one(&format!("e820: update [mem 0x0-0xfff] {change}"));
        assert_eq!(update("usable ==> reserved"), Ok(Some(Line::Remove(range(0, 0x1000)))));
        assert_eq!(update("reserved ==> usable"), Ok(Some(Line::Add(range(0, 0x1000)))));
        assert_eq!(update("reserved ==> ACPI data"), Ok(None));
        assert!(update("usable").is_err());
    }

    #[test]
    fn present_cpus_exclude_hot_pluggable_ones() {
        assert_eq!(one("smpboot: Allowing 8 CPUs, 4 hotplug CPUs"), Ok(Some(Line::PresentCpus(4))));
        assert_eq!(one("CPU topo: Allowing 4 present CPUs plus 2 hotplug CPUs"), Ok(Some(Line::PresentCpus(4))));
    }

    #[test]
    fn a_cpu_list_continues_after_other_messages() {
        let mut scanner = Scanner::default();
        let mut read = |line: &str| scanner.read(line).unwrap();
        assert_eq!(read(".... node  #1, CPUs:      #1 #2"), Some(Line::NodeCpus(NodeId(1), vec![1, 2])));
        assert_eq!(read("calibrate_delay_direct() dropping max"), None);
        assert_eq!(read("[    0.999076]  #3"), Some(Line::NodeCpus(NodeId(1), vec![3])));
        assert_eq!(read("smp: Brought up 1 node, 4 CPUs"), Some(Line::BootedCpus(4)));
        assert_eq!(read("#5"), None);
    }

    #[test]
    fn the_first_apic_places_the_first_cpu() {
        assert_eq!(one("ACPI: SRAT: PXM 1 -> APIC 0x00 -> Node 1"), Ok(Some(Line::BootCpuNode(NodeId(1)))));
        assert_eq!(one("ACPI: SRAT: PXM 1 -> APIC 0x02 -> Node 1"), Ok(None));
    }

    #[test]
    fn a_contiguous_area_has_a_size_and_a_place() {
        let said = one("cma: Reserved 16 MiB at 0x00000000fe800000 on node -1");
        assert_eq!(said, Ok(Some(Line::Cma(range(0xfe80_0000, 0xff80_0000)))));
        assert!(one("cma: Reserved 16 MiB at nowhere").is_err());
        assert_eq!(one("cma: Reserved 16 MiB in 2 ranges"), Ok(None));
    }
}
