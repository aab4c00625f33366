//! Mapping and unmapping of address ranges.

use frameyard::platform::{Activity, Probe};
use frameyard::units::PhysAddr;
use frameyard::{ByteSize, PageCount, Platform};

use crate::address::{ENTRY_FRAMES_END, PageLevel, VirtAddr, VirtRange};
use crate::area::{Area, HugeAdvice, MapKind, Protection, Sharing};
use crate::error::VmError;
use crate::file_id::FileId;
use crate::space::{AddressSpace, MapError, SpaceRef, Unmapped};
use crate::vm::Vm;
use crate::zap::Zapped;

/// A request to map memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MapRequest {
    /// The first address; `None` if the space is to choose one, from the highest addresses down.
    pub at: Option<VirtAddr>,
    /// The size in bytes: a multiple of the page size of the kind.
    pub bytes: ByteSize,
    /// The kind of memory.
    pub kind: MapKind,
    /// The allowed accesses.
    pub protection: Protection,
}

impl MapRequest {
    /// Anonymous memory at an address that the space chooses, with default advice on huge pages.
    #[must_use]
    pub const fn anonymous(bytes: ByteSize) -> Self {
        Self::of(bytes, MapKind::Anonymous { huge: HugeAdvice::Default })
    }

    /// Physical addresses of a device at an address that the space chooses, with entries of size `page`.
    #[must_use]
    pub const fn device(first: PhysAddr, bytes: ByteSize, page: PageLevel) -> Self {
        Self::of(bytes, MapKind::Device { first, page })
    }

    /// Pages of a file from page `first` on, at an address that the space chooses. The range may extend past the end of
    /// the file: accesses there fail with [`FaultError::BehindFile`](crate::FaultError::BehindFile).
    #[must_use]
    pub const fn file(file: FileId, first: u64, bytes: ByteSize, sharing: Sharing) -> Self {
        Self::of(bytes, MapKind::File { file, first, sharing })
    }

    /// Huge pages that a pool has handed out, `bytes` from the physical address `first` on, at an address that the
    /// space chooses, with entries of size `page`. Each entry is a user of its huge page, so the page does not return
    /// to its pool before it is unmapped.
    #[must_use]
    pub const fn pooled(first: PhysAddr, bytes: ByteSize, page: PageLevel) -> Self {
        Self::of(bytes, MapKind::Pooled { first, page })
    }

    const fn of(bytes: ByteSize, kind: MapKind) -> Self {
        Self { at: None, bytes, kind, protection: Protection::ReadWrite }
    }

    /// Maps at `addr` and nowhere else.
    #[must_use]
    pub const fn at(self, addr: VirtAddr) -> Self {
        Self { at: Some(addr), ..self }
    }

    /// Sets the advice on huge pages. It has no effect on devices, files and pages of pools.
    #[must_use]
    pub const fn advised(self, huge: HugeAdvice) -> Self {
        match self.kind {
            MapKind::Anonymous { .. } => Self { kind: MapKind::Anonymous { huge }, ..self },
            MapKind::Device { .. } | MapKind::File { .. } | MapKind::Pooled { .. } => self,
        }
    }

    /// Sets the protection. The default is [`Protection::ReadWrite`].
    #[must_use]
    pub const fn protected(self, protection: Protection) -> Self {
        Self { protection, ..self }
    }

    /// The alignment of a chosen address: the size of an entry, or 2 MiB if the memory can get huge pages (the kernel's
    /// `thp_get_unmapped_area`).
    fn alignment(&self) -> ByteSize {
        match self.kind {
            MapKind::Anonymous { huge } if huge != HugeAdvice::Never && self.bytes >= PageLevel::Huge.size() => {
                PageLevel::Huge.size()
            }
            kind => kind.page_size(),
        }
    }

    /// Checks the request; returns the requested range if it names an address.
    fn checked(&self) -> Result<Option<VirtRange>, MapError> {
        let align = self.kind.page_size();
        if self.bytes.0 == 0 {
            return Err(MapError::Empty);
        }
        aligned("the length", self.bytes.0, align)?;
        if let MapKind::Device { first, .. } | MapKind::Pooled { first, .. } = self.kind {
            aligned("the physical address", first.0, align)?;
            if first.0.checked_add(self.bytes.0).is_none_or(|end| end > PHYSICAL_END) {
                return Err(MapError::BeyondPhysicalAddresses { first, bytes: self.bytes });
            }
        }
        if let MapKind::File { first, .. } = self.kind
            && first.checked_add(self.bytes.0 / align.0).is_none_or(|end| end > FILE_PAGES_END)
        {
            return Err(MapError::BeyondFile { first, bytes: self.bytes });
        }
        let Some(start) = self.at else { return Ok(None) };
        aligned("the address", start.0, align)?;
        within(start, self.bytes).map(Some)
    }
}

/// The end of the physical addresses that fit in a page-table entry.
const PHYSICAL_END: u64 = ENTRY_FRAMES_END.0 << 12;

/// The end of the pages of the largest file.
const FILE_PAGES_END: u64 = 1 << 52;

fn aligned(what: &'static str, value: u64, align: ByteSize) -> Result<(), MapError> {
    if value & (align.0 - 1) == 0 { Ok(()) } else { Err(MapError::Misaligned { what, value, align }) }
}

fn within(start: VirtAddr, bytes: ByteSize) -> Result<VirtRange, MapError> {
    let all = VirtRange { start: VirtAddr::LOWEST, end: VirtAddr::END };
    let range = VirtRange::new(start, bytes).filter(|range| all.covers(*range));
    range.ok_or(MapError::BeyondAddressSpace { start, bytes })
}

impl<P: Platform> AddressSpace<'_, P> {
    /// Maps a range of addresses. Pages are not allocated and page-table entries not written yet: faults do both on
    /// first access, for devices too.
    ///
    /// Adjacent anonymous ranges with equal advice and protection become one area. A mapped file lives on even without
    /// a handle. If the request names no address, the space takes the highest gap that fits, aligned to 2 MiB if huge
    /// pages are possible.
    ///
    /// # Errors
    ///
    /// [`MapError`]. Nothing has changed then.
    ///
    /// # Cost
    ///
    /// The map lock for writing; O(log n) for n areas.
    pub fn map(&self, request: MapRequest) -> Result<VirtRange, MapError> {
        let platform = self.space().vm().yard().platform();
        platform.probe().begin_activity(Activity::Map);
        let mapped = self.map_checked(request);
        platform.probe().end_activity(Activity::Map, PageCount(0));
        mapped
    }

    #[inline(always)]
    fn map_checked(&self, request: MapRequest) -> Result<VirtRange, MapError> {
        let requested = request.checked()?;
        let space = self.space();
        space.vm().check_damage()?;
        let _writing = space.map_lock().write().map_err(VmError::from)?;
        let file = match request.kind {
            MapKind::File { file, .. } => Some(FileUse::of(*space.vm(), file)?),
            _ => None,
        };
        let range = match requested {
            Some(range) => match space.areas_in(range).next() {
                Some(there) => return Err(MapError::Overlap(there.range.intersection(range))),
                None => range,
            },
            None => space.find_gap(request.bytes, request.alignment()).ok_or(MapError::NoRoom(request.bytes))?,
        };
        space.insert_area(range, request.kind, request.protection)?;
        // The area has its use now.
        core::mem::forget(file);
        Ok(range)
    }

    /// Unmaps a range of addresses, all of which must be mapped. Frees its pages, and the page tables that become
    /// empty, in batches.
    ///
    /// Huge mappings of anonymous memory are split at the ends of the range. Mappings of devices cannot be split.
    ///
    /// # Errors
    ///
    /// [`MapError::NotMapped`] with the first hole, [`MapError::Misaligned`] if an end is inside a page. Nothing has
    /// changed then. [`MapError::Moving`] is different: pages of the range may be gone.
    ///
    /// # Cost
    ///
    /// The map lock for writing; O(log n) per area, O(1) per page.
    pub fn unmap(&self, range: VirtRange) -> Result<Unmapped, MapError> {
        let platform = self.space().vm().yard().platform();
        platform.probe().begin_activity(Activity::Map);
        let unmapped = self.unmap_checked(range);
        platform.probe().end_activity(Activity::Map, unmapped.map_or(PageCount(0), |unmapped| unmapped.pages));
        unmapped
    }

    #[inline(always)]
    fn unmap_checked(&self, range: VirtRange) -> Result<Unmapped, MapError> {
        let page = PageLevel::Small.size();
        if range.is_empty() {
            return Err(MapError::Empty);
        }
        aligned("the start", range.start.0, page)?;
        aligned("the end", range.end.0, page)?;
        within(range.start, range.size())?;
        let space = self.space();
        let _writing = space.map_lock().write().map_err(VmError::from)?;
        if let Some(hole) = space.first_hole(range) {
            return Err(MapError::NotMapped(hole));
        }
        check_ends(space, range)?;
        let spare = space.spare_for_removal(range)?;
        let zapped = match space.zap(range) {
            Ok(Zapped { moving: Some(addr), .. }) => Err(MapError::Moving(addr)),
            Ok(zapped) => Ok(zapped),
            Err(error) => Err(MapError::Vm(error)),
        };
        let zapped = zapped.inspect_err(|_| space.free_spare(spare))?;
        let tables = free_tables_of(space, range)?;
        space.remove_areas(range, spare)?;
        Ok(Unmapped {
            pages: PageCount(zapped.pages),
            huge: zapped.huge,
            file: PageCount(zapped.file),
            tables: PageCount(zapped.tables + tables),
        })
    }
}

/// The use of a file that an area takes over.
struct FileUse<'y, P: Platform> {
    vm: Vm<'y, P>,
    file: FileId,
}

impl<'y, P: Platform> FileUse<'y, P> {
    fn of(vm: Vm<'y, P>, file: FileId) -> Result<Self, MapError> {
        if vm.get_file_user(file) { Ok(Self { vm, file }) } else { Err(MapError::NoFile(file)) }
    }
}

impl<P: Platform> Drop for FileUse<'_, P> {
    fn drop(&mut self) {
        self.vm.put_file_user(self.file);
    }
}

/// Checks that the ends of a mapped range are between two entries of devices.
fn check_ends<P: Platform>(space: SpaceRef<'_, P>, range: VirtRange) -> Result<(), MapError> {
    let at = |area: Area| area.kind.page_size();
    if let Some(first) = space.first_area_ending_after(range.start) {
        aligned("the start", range.start.0, at(first))?;
    }
    if let Some(last) = space.last_area_starting_before(range.end) {
        aligned("the end", range.end.0, at(last))?;
    }
    Ok(())
}

/// Frees the page tables of an unmapped range whose areas still exist.
fn free_tables_of<P: Platform>(space: SpaceRef<'_, P>, range: VirtRange) -> Result<u64, VmError> {
    let below =
        space.last_area_starting_before(range.start).map_or(VirtAddr(0), |area| area.range.end.min(range.start));
    let above = space.first_area_ending_after(range.end).map_or(VirtAddr::END, |area| area.range.start.max(range.end));
    space.free_tables(range, below, above)
}
