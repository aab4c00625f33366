//! The state that a yard keeps for each region of 1 GiB. The rules are in [`regions`](crate::placement::regions).

use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::{MigrateType, Order, PageCount, Pfn, PfnRange, ZoneId, named};
use crate::zone::exclusive::add_exclusive;

/// Whether a yard keeps regions of 1 GiB clean: free of blocks that cannot move.
///
/// Set in the configuration ([`YardConfig::clean_regions`](crate::YardConfig::clean_regions));
/// [`Yard::set_clean_regions`](crate::Yard::set_clean_regions) changes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum CleanRegions {
    /// Requests take frames from any region.
    #[default]
    Off,
    /// Requests for frames that cannot move take them from tainted regions first, and movable requests from clean
    /// regions. [`ZonePolicy::Bits`](crate::policy::ZonePolicy::Bits) still empties pageblocks.
    On,
}

named!(CleanRegions: Off => "off", On => "on");

impl CleanRegions {
    pub(crate) fn from_bits(bits: u64) -> Self {
        if bits == Self::On as u64 { Self::On } else { Self::Off }
    }
}

/// The types of pageblocks that taint a region.
const TAINTING: [MigrateType; 3] = [MigrateType::Unmovable, MigrateType::Reclaimable, MigrateType::HighAtomic];

/// The place of a type among those that taint a region.
fn tainting(migrate_type: MigrateType) -> Option<usize> {
    TAINTING.into_iter().position(|of| of == migrate_type)
}

/// A region of 1 GiB that was free memory of one zone when the yard was created. Changes under the lock of that zone.
#[derive(Default)]
pub(crate) struct Region {
    /// Its first frame plus 1; 0 in an unused entry. Written when the yard is created.
    start: AtomicU64,
    /// Its zone. Written when the yard is created.
    zone: AtomicU32,
    /// Its pageblocks of each type that taints it.
    kept: [AtomicU32; TAINTING.len()],
    /// Its frames on free lists.
    free: AtomicU32,
    /// Those of them on the lists of the type Movable.
    movable: AtomicU32,
}

all_atomic!(Region { start, zone, kept, free, movable });

fn load(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}

fn change(word: &AtomicU32, change: fn(u32, u32) -> u32, amount: u32) {
    word.store(change(load(word), amount), Ordering::Relaxed);
}

impl Region {
    /// Makes it the record of a region.
    pub(crate) fn assign(&self, start: Pfn, zone: ZoneId) {
        self.start.store(start.0 + 1, Ordering::Relaxed);
        self.zone.store(zone.0.into(), Ordering::Relaxed);
    }

    /// The first frame of the region; `None` in an unused entry.
    pub(crate) fn start(&self) -> Option<Pfn> {
        self.start.load(Ordering::Relaxed).checked_sub(1).map(Pfn)
    }

    pub(crate) fn is_of(&self, zone: ZoneId) -> bool {
        load(&self.zone) == zone.0.into() && self.start().is_some()
    }

    /// Its pageblocks that taint it.
    pub(crate) fn tainting(&self) -> u32 {
        self.kept.iter().map(load).fold(0, u32::wrapping_add)
    }

    pub(crate) fn free(&self) -> PageCount {
        PageCount(load(&self.free).into())
    }

    /// Free frames on the lists of the type Movable.
    pub(crate) fn free_movable(&self) -> PageCount {
        PageCount(load(&self.movable).into())
    }

    /// Counts a free block that joins or leaves the list of a type.
    pub(crate) fn count_free(&self, order: Order, migrate_type: MigrateType, by: fn(u32, u32) -> u32) {
        let pages = order.pages().0 as u32;
        change(&self.free, by, pages);
        if migrate_type == MigrateType::Movable {
            change(&self.movable, by, pages);
        }
    }

    /// Counts a pageblock of a type.
    pub(crate) fn count_pageblock(&self, migrate_type: MigrateType, by: fn(u32, u32) -> u32) {
        if let Some(at) = tainting(migrate_type) {
            change(&self.kept[at], by, 1);
        }
    }

    /// Forgets all counts.
    pub(crate) fn clear(&self) {
        self.kept.iter().chain([&self.free, &self.movable]).for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Names the first count that differs from a recount.
    pub(crate) fn differing(&self, recount: &Self) -> Option<(&'static str, u64, u64)> {
        let words =
            |of: &Self| [load(&of.kept[0]), load(&of.kept[1]), load(&of.kept[2]), load(&of.free), load(&of.movable)];
        let names = [
            "unmovable pageblocks of a region",
            "reclaimable pageblocks of a region",
            "high-atomic pageblocks of a region",
            "free frames of a region",
            "free movable frames of a region",
        ];
        let mut counts = names.into_iter().zip(words(self)).zip(words(recount));
        counts.find(|((_, kept), found)| kept != found).map(|((name, kept), found)| (name, kept.into(), found.into()))
    }

    /// The region's counts.
    pub(crate) fn read(&self, order: Order, pageblock: Order) -> Option<RegionStatistics> {
        let [unmovable, reclaimable, high_atomic] = [0, 1, 2].map(|at| load(&self.kept[at]));
        let all = 1u32 << (order.0 - pageblock.0);
        Some(RegionStatistics {
            frames: PfnRange::new(self.start()?, order.pages()),
            zone: ZoneId(load(&self.zone) as u16),
            unmovable,
            reclaimable,
            high_atomic,
            movable: all.saturating_sub(self.tainting()),
            free: self.free(),
        })
    }
}

/// The composition of a region of 1 GiB: its pageblocks by type, and its free frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionStatistics {
    /// Its frames.
    pub frames: PfnRange,
    /// Its zone.
    pub zone: ZoneId,
    /// Pageblocks of the type Unmovable.
    pub unmovable: u32,
    /// Pageblocks of the type Reclaimable.
    pub reclaimable: u32,
    /// Pageblocks of the type HighAtomic.
    pub high_atomic: u32,
    /// All other pageblocks.
    pub movable: u32,
    /// Free frames, on free lists or as bits. Frames on per-CPU lists are not included.
    pub free: PageCount,
}

impl RegionStatistics {
    /// Whether the region has a pageblock that may contain a block that cannot move.
    #[must_use]
    pub const fn is_tainted(&self) -> bool {
        self.unmovable != 0 || self.reclaimable != 0 || self.high_atomic != 0
    }
}

/// What a zone counts of its regions. Changes under the zone lock.
#[derive(Default)]
pub(crate) struct RegionEvents {
    tainted: AtomicU64,
    cleaned: AtomicU64,
    moved: AtomicU64,
    /// The nearly clean region that a background step looked at last.
    pub(crate) cursor: AtomicU64,
    /// The pageblock from which the next background step moves blocks.
    pub(crate) room_cursor: AtomicU64,
}

all_atomic!(RegionEvents { tainted, cleaned, moved, cursor, room_cursor });

/// Counts of events in the regions of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegionCounts {
    /// Regions that became tainted.
    pub tainted: u64,
    /// Regions that became clean again.
    pub cleaned: u64,
    /// Frames that background steps moved out of tainted regions.
    pub moved: u64,
}

impl RegionEvents {
    /// Counts a change of a region from that number of tainting pageblocks to the other.
    pub(crate) fn count_change(&self, before: u32, after: u32) {
        match (before, after) {
            (0, 1..) => add_exclusive(&self.tainted, 1),
            (1.., 0) => add_exclusive(&self.cleaned, 1),
            _ => {}
        }
    }

    /// Counts frames that a background step moved.
    pub(crate) fn count_moved(&self, pages: PageCount) {
        self.moved.fetch_add(pages.0, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> RegionCounts {
        let [tainted, cleaned, moved] =
            [&self.tainted, &self.cleaned, &self.moved].map(|of| of.load(Ordering::Relaxed));
        RegionCounts { tainted, cleaned, moved }
    }
}
