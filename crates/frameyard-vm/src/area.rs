//! Areas: ranges of addresses of a space with one kind of mapping, as objects in a tree (the kernel's
//! `vm_area_struct`).
//!
//! Adjacent anonymous areas with equal advice and protection are merged (`vma_merge`). A partial unmap shrinks an area,
//! or splits it if both ends remain. An area of a file is a user of the file (`vm_file`), so the file lives while it is
//! mapped.

use frameyard::platform::Access;
use frameyard::sync::Ordering;
use frameyard::units::{PhysAddr, named};
use frameyard::{ByteSize, Platform};

use crate::address::{PageLevel, VirtAddr, VirtRange};
use crate::error::{Damage, VmError};
use crate::file_id::FileId;
use crate::object_id::{ObjectId, ObjectKind};
use crate::space::{SpaceRef, SpaceWord};
use crate::words::Words;
use tree::AreaTree;

mod gap;
#[cfg(test)]
mod model_tests;
mod tree;
mod validate;

/// Advice on huge pages for a range of anonymous memory, as given with the kernel's `madvise`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum HugeAdvice {
    /// No advice: huge pages only with [`ThpMode::Always`](crate::ThpMode::Always).
    #[default]
    Default = 0,
    /// Huge pages unless the mode is [`ThpMode::Never`](crate::ThpMode::Never) (`MADV_HUGEPAGE`).
    Huge = 1,
    /// No huge pages (`MADV_NOHUGEPAGE`).
    Never = 2,
}

named!(HugeAdvice: Default => "default", Huge => "huge", Never => "never");

/// The accesses that an area allows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Protection {
    /// Read and write.
    #[default]
    ReadWrite = 0,
    /// Read only (an area without the kernel's `VM_WRITE`). Anonymous memory can still be pinned for writing by force
    /// ([`PinFlags::FORCE`](crate::PinFlags::FORCE)), because it is private (`VM_MAYWRITE` without `VM_SHARED`).
    ReadOnly = 1,
}

named!(Protection: ReadWrite => "read-write", ReadOnly => "read-only");

/// What a write to a mapping of a file changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Sharing {
    /// The file: all its mappings and handles see the write (`MAP_SHARED`).
    #[default]
    Shared = 0,
    /// A copy of the page that belongs to the space alone (`MAP_PRIVATE`).
    Private = 1,
}

named!(Sharing: Shared => "shared", Private => "private");

/// The kind of memory that a range maps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MapKind {
    /// Zeroed memory, allocated on first access.
    Anonymous {
        /// Advice on huge pages.
        huge: HugeAdvice,
    },
    /// Consecutive physical addresses outside the yard's memory.
    Device {
        /// The physical address of the range's first byte; a multiple of the page size.
        first: PhysAddr,
        /// The size that each page-table entry maps.
        page: PageLevel,
    },
    /// Consecutive pages of a file of the page cache, in pages of 4 KiB.
    File {
        /// The file.
        file: FileId,
        /// The number, in the file, of the range's first page.
        first: u64,
        /// What a write changes.
        sharing: Sharing,
    },
    /// Huge pages that a pool has handed out ([`Yard::huge_pages`](frameyard::Yard::huge_pages)), at consecutive physical addresses.
    Pooled {
        /// The physical address of the range's first byte; a multiple of the page size.
        first: PhysAddr,
        /// The size that each page-table entry maps: the size of the huge pages, or a smaller one.
        page: PageLevel,
    },
}

impl MapKind {
    /// The alignment of the area's ends.
    #[inline]
    #[must_use]
    pub const fn page_size(self) -> ByteSize {
        match self {
            Self::Anonymous { .. } | Self::File { .. } => PageLevel::Small.size(),
            Self::Device { page, .. } | Self::Pooled { page, .. } => page.size(),
        }
    }

    /// The kind `by` bytes further into the area.
    #[inline]
    #[must_use]
    pub const fn advanced(self, by: ByteSize) -> Self {
        match self {
            Self::Anonymous { .. } => self,
            Self::Device { first, page } => Self::Device { first: PhysAddr(first.0.wrapping_add(by.0)), page },
            Self::File { file, first, sharing } => {
                Self::File { file, first: first.wrapping_add(by.0 / PageLevel::Small.size().0), sharing }
            }
            Self::Pooled { first, page } => Self::Pooled { first: PhysAddr(first.0.wrapping_add(by.0)), page },
        }
    }
}

/// A snapshot of an area, taken under the space's map lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Area {
    pub(crate) id: ObjectId,
    pub(crate) range: VirtRange,
    pub(crate) kind: MapKind,
    pub(crate) protection: Protection,
}

/// Words of an area. Look-ups read only the first cache line.
struct AreaWord;

impl AreaWord {
    const START: usize = 0;
    const END: usize = 1;
    /// [`MapKind`]: variant in bits 0–7, advice, level or sharing in bits 8–15. [`Protection`] in bit 16.
    const KIND: usize = 2;
    /// The first physical address of an area of a device or of huge pages, or the first page of a file's.
    const PLACE: usize = 3;
    /// Left child: lower addresses.
    const LEFT: usize = 4;
    /// Right child: higher addresses.
    const RIGHT: usize = 5;
    /// The [`FileId`] of a file's area.
    const FILE: usize = 6;

    /// Levels of the subtree.
    const HEIGHT: usize = 8;
    /// Start of the subtree's first area.
    const FIRST: usize = 9;
    /// End of the subtree's last area.
    const LAST: usize = 10;
    /// Bytes of the largest gap between areas of the subtree.
    const GAP: usize = 11;
}

/// A found area replaces the cached one only if the page's number in it is a multiple of this: the first page, and one
/// page in 2 MiB.
const CACHE_INTERVAL: u64 = 512;

const ANONYMOUS: u64 = 1;
const DEVICE: u64 = 2;
const FILE: u64 = 3;
const POOLED: u64 = 4;
const READ_ONLY: u64 = 1 << 16;

impl MapKind {
    /// The kind as the words `KIND`, `PLACE` and `FILE`.
    const fn words(self) -> (u64, u64, u64) {
        match self {
            Self::Anonymous { huge } => (ANONYMOUS | (huge as u64) << 8, 0, 0),
            Self::Device { first, page } => (DEVICE | (page as u64) << 8, first.0, 0),
            Self::Pooled { first, page } => (POOLED | (page as u64) << 8, first.0, 0),
            Self::File { file, first, sharing } => (FILE | (sharing as u64) << 8, first, file.to_bits()),
        }
    }
}

/// An area as a node of the tree. Its words are accessed under the space's map lock.
#[derive(Clone, Copy)]
struct Node<'y> {
    id: ObjectId,
    words: Words<'y>,
}

impl<'y> Node<'y> {
    #[inline(always)]
    fn get(self, word: usize) -> u64 {
        self.words.at(word).load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn set(self, word: usize, value: u64) {
        self.words.at(word).store(value, Ordering::Relaxed);
    }

    #[inline(always)]
    fn range(self) -> VirtRange {
        VirtRange { start: VirtAddr(self.get(AreaWord::START)), end: VirtAddr(self.get(AreaWord::END)) }
    }

    #[inline(always)]
    fn kind(self) -> MapKind {
        let kind = self.get(AreaWord::KIND);
        let choice = (kind >> 8 & 0xff) as usize;
        if kind & 0xff <= ANONYMOUS {
            return MapKind::Anonymous { huge: HugeAdvice::ALL.get(choice).copied().unwrap_or_default() };
        }
        let place = self.get(AreaWord::PLACE);
        if kind & 0xff != FILE {
            let (first, page) = (PhysAddr(place), PageLevel::ALL.get(choice).copied().unwrap_or(PageLevel::Small));
            return if kind & 0xff == POOLED {
                MapKind::Pooled { first, page }
            } else {
                MapKind::Device { first, page }
            };
        }
        let file = FileId::from_bits(self.get(AreaWord::FILE));
        MapKind::File { file, first: place, sharing: Sharing::ALL.get(choice).copied().unwrap_or_default() }
    }

    fn protection(self) -> Protection {
        if self.get(AreaWord::KIND) & READ_ONLY == 0 { Protection::ReadWrite } else { Protection::ReadOnly }
    }

    fn area(self) -> Area {
        Area { id: self.id, range: self.range(), kind: self.kind(), protection: self.protection() }
    }

    /// Writes its range, kind and protection. The caller updates the tree.
    fn write(self, range: VirtRange, kind: MapKind, protection: Protection) {
        let (kind, place, file) = kind.words();
        let protection = if protection == Protection::ReadOnly { READ_ONLY } else { 0 };
        self.set(AreaWord::START, range.start.0);
        self.set(AreaWord::END, range.end.0);
        self.set(AreaWord::KIND, kind | protection);
        self.set(AreaWord::PLACE, place);
        self.set(AreaWord::FILE, file);
    }
}

/// A preallocated area object, for a change that must not fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpareArea(ObjectId);

/// Methods that read need the map lock at least for reading; methods that change need it for writing.
impl<'y, P: Platform> SpaceRef<'y, P> {
    #[inline(always)]
    fn areas(&self) -> AreaTree<'y, P> {
        AreaTree { vm: *self.vm(), root: self.word(SpaceWord::AREAS) }
    }

    /// The area that contains an address, found without the cached area: for callers off the path of anonymous faults.
    #[cold]
    pub(crate) fn area_of(&self, addr: VirtAddr) -> Option<Area> {
        self.first_area_ending_after(addr).filter(|area| area.range.contains(addr))
    }

    /// The area that contains an address. Checks the cached area first.
    #[inline]
    pub(crate) fn find_area(&self, addr: VirtAddr) -> Option<Area> {
        let last_found = self.word(SpaceWord::LAST_FOUND);
        self.report_access(last_found, Access::Read);
        let known = ObjectId::from_bits(last_found.load(Ordering::Relaxed));
        let known = known.some().and_then(|id| self.areas().node(id).ok());
        known.inspect(|node| self.report_access(node.words.at(AreaWord::START), Access::Read));
        if let Some(node) = known.filter(|node| node.range().contains(addr)) {
            return Some(node.area());
        }
        let node = self.areas().first_ending_after(addr).filter(|node| node.range().contains(addr))?;
        let area = node.area();
        // Replace the cached area rarely: tasks that share a space would otherwise transfer its cache line on each
        // fault.
        let page = (addr.0 - area.range.start.0) / PageLevel::Small.size().0;
        if known.is_none() || page.is_multiple_of(CACHE_INTERVAL) {
            self.report_access(last_found, Access::Write);
            last_found.store(node.id.bits(), Ordering::Relaxed);
        }
        Some(area)
    }

    /// The lowest area that ends above an address: the one that contains it, or the next.
    pub(crate) fn first_area_ending_after(&self, addr: VirtAddr) -> Option<Area> {
        self.areas().first_ending_after(addr).map(Node::area)
    }

    /// The highest area that starts below an address.
    pub(crate) fn last_area_starting_before(&self, addr: VirtAddr) -> Option<Area> {
        self.areas().last_starting_before(addr).map(Node::area)
    }

    /// The areas that intersect a range, lowest first. Descends the tree once per area.
    pub(crate) fn areas_in(&self, range: VirtRange) -> impl Iterator<Item = Area> + use<'y, P> {
        let areas = self.areas();
        let mut at = range.start;
        core::iter::from_fn(move || {
            let area = areas.first_ending_after(at).map(Node::area).filter(|area| area.range.start < range.end)?;
            at = area.range.end;
            (at > range.start && !range.is_empty()).then_some(area)
        })
    }

    /// The first part of a range that no area covers.
    pub(crate) fn first_hole(&self, range: VirtRange) -> Option<VirtRange> {
        let mut at = range.start;
        for area in self.areas_in(range) {
            if area.range.start > at {
                return Some(VirtRange { start: at, end: area.range.start });
            }
            at = area.range.end;
        }
        (at < range.end).then_some(VirtRange { start: at, end: range.end })
    }

    /// The highest unmapped range of `bytes` that starts at a multiple of `align`, at least a page.
    pub(crate) fn find_gap(&self, bytes: ByteSize, align: ByteSize) -> Option<VirtRange> {
        self.areas().find_gap(bytes, align)
    }

    /// Adds an unmapped range: extends an equal adjacent area, or creates a new one. Returns the area that contains the
    /// range. The area of a file takes over a use of the file from the caller.
    ///
    /// On error nothing has changed.
    pub(crate) fn insert_area(&self, range: VirtRange, kind: MapKind, protection: Protection) -> Result<Area, VmError> {
        let requested = (kind, protection);
        let areas = self.areas();
        let below = areas.last_starting_before(range.start);
        let below =
            below.filter(|node| node.range().end == range.start && merge((node.kind(), node.protection()), requested));
        let above = areas.first_ending_after(range.end);
        let above =
            above.filter(|node| node.range().start == range.end && merge(requested, (node.kind(), node.protection())));
        let node = match (below, above) {
            (Some(below), Some(above)) => {
                let whole = VirtRange { start: below.range().start, end: above.range().end };
                self.remove_node(above);
                self.resize_area(below, whole);
                below
            }
            (Some(below), None) => {
                self.resize_area(below, VirtRange { start: below.range().start, end: range.end });
                below
            }
            (None, Some(above)) => {
                self.resize_area(above, VirtRange { start: range.start, end: above.range().end });
                above
            }
            (None, None) => self.insert_spare(self.spare_area()?, range, kind, protection)?,
        };
        self.add(SpaceWord::MAPPED_BYTES, range.size().0);
        Ok(node.area())
    }

    /// The spare area that [`remove_areas`](Self::remove_areas) needs for that range: one if an area extends beyond
    /// both ends of it.
    pub(crate) fn spare_for_removal(&self, range: VirtRange) -> Result<Option<SpareArea>, VmError> {
        let covering = self.first_area_ending_after(range.start);
        let is_cut_in_two = covering.is_some_and(|area| area.range.start < range.start && range.end < area.range.end);
        if is_cut_in_two { self.spare_area().map(Some) } else { Ok(None) }
    }

    /// Frees an unused spare from [`spare_for_removal`](Self::spare_for_removal).
    pub(crate) fn free_spare(&self, spare: Option<SpareArea>) {
        if let Some(SpareArea(id)) = spare {
            self.vm().delete_object(ObjectKind::Area, id);
        }
    }

    /// Removes a range that areas cover completely. An area that is split becomes two with `spare`, the result of
    /// [`spare_for_removal`](Self::spare_for_removal).
    ///
    /// # Errors
    ///
    /// The tree of areas is damaged, and not all of them are removed.
    pub(crate) fn remove_areas(&self, range: VirtRange, mut spare: Option<SpareArea>) -> Result<(), VmError> {
        let areas = self.areas();
        let mut at = range.start;
        while let Some(node) = areas.first_ending_after(range.start).filter(|node| node.range().start < range.end) {
            let (whole, kind, protection) = (node.range(), node.kind(), node.protection());
            // Each step removes the lowest area, so the next one is above it.
            if whole.end <= at || whole.start >= whole.end {
                return Err(self.vm().damaged(Damage::Area));
            }
            at = whole.end.min(range.end);
            let before = VirtRange { start: whole.start, end: range.start };
            let after = VirtRange { start: range.end, end: whole.end };
            let kind_after = kind.advanced(ByteSize(range.end.0.saturating_sub(whole.start.0)));
            match (before.is_empty(), after.is_empty()) {
                (true, true) => self.remove_node(node),
                (false, true) => self.resize_area(node, before),
                (true, false) => {
                    node.write(after, kind_after, protection);
                    areas.ends_changed(after.start);
                }
                (false, false) => {
                    self.resize_area(node, before);
                    let spare = spare.take().ok_or_else(|| self.vm().damaged(Damage::Area))?;
                    if let MapKind::File { file, .. } = kind_after {
                        self.vm().mapped_file(file)?.add_user()?;
                    }
                    self.insert_spare(spare, after, kind_after, protection)?;
                }
            }
            self.subtract(SpaceWord::MAPPED_BYTES, whole.intersection(range).size().0);
        }
        Ok(())
    }

    /// Removes all areas.
    pub(crate) fn clear_areas(&self) {
        self.word(SpaceWord::LAST_FOUND).store(0, Ordering::Relaxed);
        self.areas().clear(|node| {
            let kind = node.kind();
            self.vm().delete_object(ObjectKind::Area, node.id);
            self.end_use(kind);
        });
        self.word(SpaceWord::AREA_COUNT).store(0, Ordering::Relaxed);
        self.word(SpaceWord::MAPPED_BYTES).store(0, Ordering::Relaxed);
    }

    fn spare_area(&self) -> Result<SpareArea, VmError> {
        self.vm().new_object(ObjectKind::Area).map(SpareArea)
    }

    fn insert_spare(
        &self,
        spare: SpareArea,
        range: VirtRange,
        kind: MapKind,
        protection: Protection,
    ) -> Result<Node<'y>, VmError> {
        let node = self.areas().node(spare.0)?;
        node.write(range, kind, protection);
        self.areas().insert(node);
        self.add(SpaceWord::AREA_COUNT, 1);
        Ok(node)
    }

    fn remove_node(&self, node: Node<'y>) {
        self.areas().remove(node);
        let last_found = self.word(SpaceWord::LAST_FOUND);
        if last_found.load(Ordering::Relaxed) == node.id.bits() {
            last_found.store(0, Ordering::Relaxed);
        }
        let kind = node.kind();
        self.vm().delete_object(ObjectKind::Area, node.id);
        self.subtract(SpaceWord::AREA_COUNT, 1);
        self.end_use(kind);
    }

    /// Ends the use of a file by a removed area. The caller holds no spinning lock: the last use deletes the file.
    fn end_use(&self, kind: MapKind) {
        if let MapKind::File { file, .. } = kind {
            self.vm().put_file_user(file);
        }
    }

    fn resize_area(&self, node: Node<'y>, range: VirtRange) {
        node.write(range, node.kind(), node.protection());
        self.areas().ends_changed(range.start);
    }
}

/// Whether two adjacent areas can be merged.
fn merge(below: (MapKind, Protection), above: (MapKind, Protection)) -> bool {
    matches!(below.0, MapKind::Anonymous { .. }) && below == above
}
