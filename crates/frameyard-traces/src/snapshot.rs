//! What /proc said of a kernel's memory at one moment: buddyinfo, pagetypeinfo and zoneinfo.

use std::collections::BTreeMap;
use std::fmt;

use frameyard::units::ZoneKind;
use frameyard::{CpuId, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange};

/// The orders of a kernel's free lists.
pub const ORDERS: usize = 11;

/// More frames than a kernel's zones have: 16 TiB in pages of 4 KiB.
const MOST_FRAMES: u64 = 1 << 32;

/// Why a file of /proc was not understood, or does not fit another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotError(String);

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SnapshotError {}

/// A zone of a kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelZone {
    /// Frames from the first to the last, holes included.
    pub span: PfnRange,
    /// Frames given to the allocator.
    pub managed: PageCount,
    /// The `min` watermark.
    pub min: PageCount,
    /// Free blocks by type and order.
    pub free: BTreeMap<MigrateType, [u64; ORDERS]>,
    /// Pageblocks by type.
    pub pageblocks: BTreeMap<MigrateType, u64>,
    /// Frames on the lists of each CPU.
    pub per_cpu: BTreeMap<CpuId, PageCount>,
}

impl KernelZone {
    /// Free blocks of an order, of all types.
    #[must_use]
    pub fn free_blocks(&self, order: Order) -> u64 {
        self.free.values().filter_map(|blocks| blocks.get(order.index())).sum()
    }

    /// Frames on free lists.
    #[must_use]
    pub fn free_pages(&self) -> PageCount {
        (0..ORDERS as u8).map(|order| PageCount(self.free_blocks(Order(order)) << order)).sum()
    }
}

/// The zones of a kernel that manage memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelSnapshot {
    /// By node and kind.
    pub zones: BTreeMap<(NodeId, ZoneKind), KernelZone>,
}

impl KernelSnapshot {
    /// Reads the files. Without `pagetypeinfo` all free memory counts as movable.
    ///
    /// # Errors
    ///
    /// [`SnapshotError`] names the file, and the line that was not understood; or the zone for which the files disagree by more than a
    /// tenth of its free memory.
    pub fn parse(buddyinfo: &str, pagetypeinfo: Option<&str>, zoneinfo: &str) -> Result<Self, SnapshotError> {
        let mut snapshot = Self::default();
        snapshot.read_zoneinfo(zoneinfo)?;
        snapshot.zones.retain(|_, zone| zone.managed.0 > 0);
        if snapshot.zones.is_empty() {
            return Err(SnapshotError("zoneinfo: no zone with memory".to_owned()));
        }
        snapshot.read_buddyinfo(buddyinfo)?;
        if let Some(pagetypeinfo) = pagetypeinfo {
            let by_order = snapshot.clone();
            snapshot.read_pagetypeinfo(pagetypeinfo)?;
            snapshot.compare(&by_order)?;
        }
        for ((node, kind), zone) in &snapshot.zones {
            if zone.free_pages() > zone.managed || zone.managed > zone.span.count() {
                let (free, managed) = (zone.free_pages().0, zone.managed.0);
                let span = zone.span.count().0;
                let zone = format!("node {}, zone {kind}", node.0);
                return Err(SnapshotError(format!("{zone}: {free} pages are free, {managed} managed, {span} spanned")));
            }
        }
        Ok(snapshot)
    }

    fn read_zoneinfo(&mut self, text: &str) -> Result<(), SnapshotError> {
        let (mut id, mut cpu) = (None, None);
        for (at, line) in text.lines().enumerate() {
            let bad = || SnapshotError(format!("zoneinfo, line {}: not understood: {}", at + 1, line.trim()));
            if line.starts_with("Node") {
                let (zone, _) = zone_of(line).ok_or_else(bad)?;
                (id, cpu) = (Some(zone), None);
                self.zones.entry(zone).or_default();
                continue;
            }
            let mut words = line.split_ascii_whitespace();
            let (Some(name), Some(value)) = (words.next(), words.next()) else { continue };
            let Some(zone) = id.and_then(|id| self.zones.get_mut(&id)) else { continue };
            let number = || value.parse().ok().filter(|number| *number < MOST_FRAMES).ok_or_else(bad);
            match name {
                "min" => zone.min = PageCount(number()?),
                "managed" => zone.managed = PageCount(number()?),
                "spanned" => zone.span.end = Pfn(number()?),
                "cpu:" => cpu = Some(CpuId(value.parse().map_err(|_| bad())?)),
                "count:" => {
                    zone.per_cpu.insert(cpu.ok_or_else(bad)?, PageCount(number()?));
                }
                "start_pfn:" => {
                    let start = Pfn(number()?);
                    let end = Some(start.0 + zone.span.end.0).filter(|end| *end < MOST_FRAMES).ok_or_else(bad)?;
                    zone.span = PfnRange { start, end: Pfn(end) };
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn read_buddyinfo(&mut self, text: &str) -> Result<(), SnapshotError> {
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let bad = || SnapshotError(format!("buddyinfo, line {}: not understood: {}", at + 1, line.trim()));
            let (id, rest) = zone_of(line).ok_or_else(bad)?;
            let blocks = blocks(rest).ok_or_else(bad)?;
            let missing = || SnapshotError(format!("buddyinfo, line {}: zoneinfo has no such zone", at + 1));
            let zone = self.zones.get_mut(&id).ok_or_else(missing)?;
            zone.free.insert(MigrateType::Movable, blocks);
            let pageblocks = zone.managed.0.div_ceil(512);
            zone.pageblocks.insert(MigrateType::Movable, pageblocks);
        }
        Ok(())
    }

    fn read_pagetypeinfo(&mut self, text: &str) -> Result<(), SnapshotError> {
        self.zones.values_mut().for_each(|zone| (zone.free, zone.pageblocks) = Default::default());
        let mut types: Vec<Option<MigrateType>> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let bad = || SnapshotError(format!("pagetypeinfo, line {}: not understood: {}", at + 1, line.trim()));
            if let Some(names) = line.strip_prefix("Number of blocks type") {
                types = names.split_ascii_whitespace().map(type_named).collect();
            }
            if !line.starts_with("Node") {
                continue;
            }
            let (id, rest) = zone_of(line).ok_or_else(bad)?;
            let Some(zone) = self.zones.get_mut(&id) else { continue };
            if let Some(rest) = rest.trim_start_matches([',', ' ']).strip_prefix("type") {
                let (name, rest) = rest.trim_start().split_once(' ').ok_or_else(bad)?;
                let blocks = blocks(rest).ok_or_else(bad)?;
                if let Some(of) = type_named(name) {
                    zone.free.insert(of, blocks);
                }
            } else {
                for (count, of) in rest.split_ascii_whitespace().zip(&types) {
                    let count = count.parse().map_err(|_| bad())?;
                    of.map(|of| zone.pageblocks.insert(of, count));
                }
            }
        }
        Ok(())
    }

    /// Compares free memory by type with that by order.
    fn compare(&self, by_order: &Self) -> Result<(), SnapshotError> {
        for ((node, kind), zone) in &self.zones {
            let (by_type, total) =
                (zone.free_pages().0, by_order.zones.get(&(*node, *kind)).map_or(0, |zone| zone.free_pages().0));
            if by_type.abs_diff(total) > total / 10 + 1024 {
                let zone = format!("node {}, zone {kind}", node.0);
                return Err(SnapshotError(format!(
                    "{zone}: buddyinfo has {total} free pages and pagetypeinfo {by_type}: the files are of different moments"
                )));
            }
        }
        Ok(())
    }

    /// The zone that spans a frame.
    #[must_use]
    pub fn zone_of(&self, pfn: Pfn) -> Option<(NodeId, ZoneKind)> {
        self.zones.iter().find(|(_, zone)| zone.span.contains(pfn)).map(|(id, _)| *id)
    }
}

/// The zone of `Node 0, zone   Normal …`, and what follows.
fn zone_of(line: &str) -> Option<((NodeId, ZoneKind), &str)> {
    let rest = line.strip_prefix("Node")?.trim_start();
    let (node, rest) = rest.split_once(',')?;
    let rest = rest.trim_start().strip_prefix("zone")?.trim_start();
    let end = rest.find([' ', ',']).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    let kind = ZoneKind::ALL.into_iter().find(|kind| kind.name() == name)?;
    Some(((NodeId(node.trim().parse().ok()?), kind), rest))
}

/// Counts by order. A list that the kernel stopped to count has a `>` before its number.
fn blocks(text: &str) -> Option<[u64; ORDERS]> {
    let mut blocks = [0; ORDERS];
    for (at, word) in text.split_ascii_whitespace().enumerate() {
        let count: u64 = word.trim_start_matches('>').parse().ok().filter(|count| *count < MOST_FRAMES)?;
        match blocks.get_mut(at) {
            Some(block) => *block = count,
            None if count == 0 => {}
            None => return None,
        }
    }
    Some(blocks)
}

fn type_named(name: &str) -> Option<MigrateType> {
    MigrateType::ALL.into_iter().find(|of| of.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDDY: &str = include_str!("../tests/fixtures/rust-build.buddyinfo.before");
    const TYPES: &str = include_str!("../tests/fixtures/rust-build.pagetypeinfo.before");
    const ZONES: &str = include_str!("../tests/fixtures/rust-build.zoneinfo.before");

    #[test]
    fn a_real_snapshot_has_its_zones_lists_and_free_blocks() {
        let snapshot = KernelSnapshot::parse(BUDDY, Some(TYPES), ZONES).unwrap();
        assert_eq!(snapshot.zones.len(), 3);
        let normal = &snapshot.zones[&(NodeId(0), ZoneKind::Normal)];
        assert_eq!(normal.span, PfnRange::new(Pfn(1_048_576), PageCount(5_505_024)));
        assert_eq!((normal.managed, normal.min), (PageCount(1_769_472), PageCount(11_741)));
        assert_eq!(normal.free[&MigrateType::Reclaimable][0], 2873);
        assert_eq!((normal.free_blocks(Order(0)), normal.free_blocks(Order(10))), (15_118, 746));
        assert_eq!(normal.pageblocks[&MigrateType::Unmovable], 337);
        assert_eq!(normal.per_cpu[&CpuId(0)], PageCount(8321));
        assert_eq!(snapshot.zone_of(Pfn(5000)), Some((NodeId(0), ZoneKind::Dma32)));
    }

    #[test]
    fn without_types_all_free_memory_is_movable() {
        let snapshot = KernelSnapshot::parse(BUDDY, None, ZONES).unwrap();
        let normal = &snapshot.zones[&(NodeId(0), ZoneKind::Normal)];
        assert_eq!(normal.free[&MigrateType::Movable][0], 15_118);
    }

    #[test]
    fn wrong_files_are_named_with_their_lines() {
        let error = |buddy: &str, types: &str, zones: &str| {
            KernelSnapshot::parse(buddy, Some(types), zones).unwrap_err().to_string()
        };
        assert_eq!(error("Node 0\n", TYPES, ZONES), "buddyinfo, line 1: not understood: Node 0");
        assert_eq!(error(BUDDY, TYPES, ""), "zoneinfo: no zone with memory");
        let other = TYPES.replace("    746 ", "      9 ");
        let message = error(BUDDY, &other, ZONES);
        assert!(message.contains("the files are of different moments"), "{message}");
        let many = BUDDY.replace("   746", "  9746");
        assert!(KernelSnapshot::parse(&many, None, ZONES).unwrap_err().to_string().contains("pages are free"));
        let high = ZONES.replace("min      11741", &format!("min      {}", u64::MAX));
        let message = error(BUDDY, TYPES, &high);
        assert!(message.contains("not understood: min"), "{message}");
        let cut = &ZONES[..ZONES.len() / 2];
        let _ = KernelSnapshot::parse(BUDDY, Some(TYPES), cut);
    }
}
