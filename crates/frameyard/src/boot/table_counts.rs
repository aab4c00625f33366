//! How large each table of the control region is, and where it lies.

use super::ZONE_CHOICES;
use super::claims::words_for;
use super::tables::{HEADER_WORDS, TABLES, TableId, Tables};
use crate::control::{TablePlanner, TableSpan};
use crate::devices::{DeviceDirectory, DeviceSection};
use crate::sync::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};
use crate::units::{Geometry, PageCount, ZoneKind};
use crate::zone::pcp::PerCpuPages;
use crate::zone::transfer::{self, TableSizes};
use crate::zone::{TransferCounters, Zone};

/// The numbers that table sizes follow from.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableCounts {
    pub(super) geometry: Geometry,
    /// Frames of the map, holes included: whole sections.
    pub(super) frames: PageCount,
    pub(super) nodes: usize,
    pub(super) cpus: usize,
    /// Ranges of memory, split at zone borders.
    pub(super) ranges: usize,
    pub(super) reserved: usize,
    pub(super) cma: usize,
    /// Words for what zones have once per batch of their memory.
    pub(super) batch_words: usize,
    /// Cache groups.
    pub(super) groups: usize,
    /// 1 if there is room for devices, else 0.
    pub(super) directories: usize,
}

/// Plans each table in order, or returns `None` from the function if one does not fit.
macro_rules! plan {
    ($planner:ident, $spans:ident: $($table:ident: $entry:ty = $count:expr),+ $(,)?) => {
        $(match $planner.table::<$entry>($count) {
            Some(span) => $spans[TableId::$table as usize] = span,
            None => return None,
        })+
    };
}

impl TableCounts {
    /// The spans of all tables, and the bytes of the region; `None` if it does not fit an address space.
    pub(super) const fn plan(&self) -> Option<([TableSpan; TABLES], usize)> {
        if self.frames.0 >= u32::MAX as u64 {
            return None;
        }
        let frames = self.frames.0 as usize;
        let sections = frames >> self.geometry.section_pages_shift();
        let pageblocks = frames >> self.geometry.pageblock_order().0;
        let blocks = self.frames.0 >> self.geometry.max_order().0;
        let zones = self.nodes * ZoneKind::COUNT;
        let Some(lists) = self.cpus.checked_mul(zones) else { return None };
        // A free range begins where memory does, or where a reserved range ends. The rest is cut off at creation.
        let Some(free_ranges) = self.ranges.checked_add(self.reserved) else { return None };
        let mut planner = TablePlanner::new();
        let mut spans = [TableSpan { offset: 0, count: 0 }; TABLES];
        if planner.table::<AtomicU64>(HEADER_WORDS).is_none() {
            return None;
        }
        let Self { cpus, groups, batch_words, .. } = *self;
        let Some(transfer) = transfer::plan(&mut planner, &TableSizes { cpus, zones, groups, pageblocks, batch_words })
        else {
            return None;
        };
        let mut at = 0;
        while at < transfer.len() {
            spans[TableId::Transfer as usize + at] = transfer[at];
            at += 1;
        }
        // The allocation map is last, because it is the largest: a byte per frame, touched only where frames are allocated.
        plan! { planner, spans:
            CpuNodes: AtomicU16 = self.cpus,
            HomePcps: AtomicU32 = self.cpus * ZONE_CHOICES,
            Distances: AtomicU8 = self.nodes * self.nodes,
            Zonelists: AtomicU16 = self.nodes * Tables::zonelist_stride(self.nodes),
            Zones: Zone = zones,
            Sections: AtomicU32 = sections,
            Pageblocks: AtomicU8 = pageblocks,
            RangeStarts: AtomicU64 = self.ranges,
            RangeEnds: AtomicU64 = self.ranges,
            RangeZones: AtomicU16 = self.ranges,
            FreeStarts: AtomicU64 = free_ranges,
            FreeEnds: AtomicU64 = free_ranges,
            CmaStarts: AtomicU64 = self.cma,
            CmaEnds: AtomicU64 = self.cma,
            Claims: AtomicU64 = words_for(blocks) as usize,
            SkipHints: AtomicU64 = pageblocks.div_ceil(64),
            Pcps: PerCpuPages = lists,
            TransferCounters: TransferCounters = lists,
            DeviceSections: DeviceSection = if self.directories > 0 { sections } else { 0 },
            Devices: DeviceDirectory = self.directories,
            AllocationMap: AtomicU8 = frames,
        }
        Some((spans, planner.bytes()))
    }
}
