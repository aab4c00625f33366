//! Mapping and unmapping ranges of addresses.

use frameyard::platform::Activity;
use frameyard::units::PhysAddr;
use frameyard::{ByteSize, PageCount, Platform};

use crate::address::{PageLevel, VirtAddr, VirtRange};
use crate::area::{Area, HugeAdvice, MapKind, Protection};
use crate::space::{AddressSpace, MapError, SpaceRef, Unmapped};

/// What is to be mapped, and where.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MapRequest {
    /// Where exactly; `None` where the space is to choose, from the highest addresses down.
    pub at: Option<VirtAddr>,
    /// How many bytes: a multiple of the page size of the kind.
    pub bytes: ByteSize,
    /// What the addresses show.
    pub kind: MapKind,
    /// What may be done with them.
    pub protection: Protection,
}

impl MapRequest {
    /// Anonymous memory, wherever there is room, in huge pages where everybody gets them.
    #[must_use]
    pub const fn anonymous(bytes: ByteSize) -> Self {
        Self::of(bytes, MapKind::Anonymous { huge: HugeAdvice::Default })
    }

    /// Physical addresses of a device, wherever there is room, by entries of that size.
    #[must_use]
    pub const fn device(first: PhysAddr, bytes: ByteSize, page: PageLevel) -> Self {
        Self::of(bytes, MapKind::Device { first, page })
    }

    const fn of(bytes: ByteSize, kind: MapKind) -> Self {
        Self { at: None, bytes, kind, protection: Protection::ReadWrite }
    }

    /// The same, there and nowhere else.
    #[must_use]
    pub const fn at(self, addr: VirtAddr) -> Self {
        Self { at: Some(addr), ..self }
    }

    /// The same, with advice on huge pages, where it is for anonymous memory.
    #[must_use]
    pub const fn advised(self, huge: HugeAdvice) -> Self {
        match self.kind {
            MapKind::Anonymous { .. } => Self { kind: MapKind::Anonymous { huge }, ..self },
            MapKind::Device { .. } => self,
        }
    }

    /// The same, with that protection; they may be read and written unless it says otherwise.
    #[must_use]
    pub const fn protected(self, protection: Protection) -> Self {
        Self { protection, ..self }
    }

    /// What the first address must be a multiple of where the space chooses: what one entry maps, or could map if the
    /// memory comes in huge pages (the kernel's `thp_get_unmapped_area`).
    fn alignment(&self) -> ByteSize {
        match self.kind {
            MapKind::Anonymous { huge } if huge != HugeAdvice::Never && self.bytes >= PageLevel::Huge.size() => {
                PageLevel::Huge.size()
            }
            kind => kind.page_size(),
        }
    }

    /// The range asked for, where it is said where; or that the numbers cannot be.
    fn checked(&self) -> Result<Option<VirtRange>, MapError> {
        let align = self.kind.page_size();
        if self.bytes.0 == 0 {
            return Err(MapError::Empty);
        }
        aligned("the length", self.bytes.0, align)?;
        if let MapKind::Device { first, .. } = self.kind {
            aligned("the physical address", first.0, align)?;
            if first.0.checked_add(self.bytes.0).is_none_or(|end| end > PHYSICAL_END) {
                return Err(MapError::BeyondPhysicalAddresses { first, bytes: self.bytes });
            }
        }
        let Some(start) = self.at else { return Ok(None) };
        aligned("the address", start.0, align)?;
        within(start, self.bytes).map(Some)
    }
}

/// Where physical addresses end that an entry of page tables has room for.
const PHYSICAL_END: u64 = 1 << 52;

fn aligned(what: &'static str, value: u64, align: ByteSize) -> Result<(), MapError> {
    if value & (align.0 - 1) == 0 { Ok(()) } else { Err(MapError::Misaligned { what, value, align }) }
}

fn within(start: VirtAddr, bytes: ByteSize) -> Result<VirtRange, MapError> {
    let all = VirtRange { start: VirtAddr::LOWEST, end: VirtAddr::END };
    let range = VirtRange::new(start, bytes).filter(|range| all.covers(*range));
    range.ok_or(MapError::BeyondAddressSpace { start, bytes })
}

impl<P: Platform> AddressSpace<'_, P> {
    /// Maps a range of addresses. Anonymous memory is allocated when it is touched; entries of the page tables are made
    /// then, too, those of devices as well.
    ///
    /// A range of anonymous memory that touches another with the same advice and protection becomes one area with it. Where the space
    /// chooses, it takes the highest gap that is large enough, and aligns what can have huge pages to 2 MiB.
    ///
    /// # Errors
    ///
    /// [`MapError`]; nothing has changed then.
    ///
    /// # Cost
    ///
    /// The map lock for writing; O(log n) for n areas.
    pub fn map(&self, request: MapRequest) -> Result<VirtRange, MapError> {
        let platform = self.space().vm().yard().platform();
        platform.begin_activity(Activity::Map);
        let mapped = self.map_checked(request);
        platform.end_activity(Activity::Map, PageCount(0));
        mapped
    }

    #[inline(always)]
    fn map_checked(&self, request: MapRequest) -> Result<VirtRange, MapError> {
        let asked = request.checked()?;
        let space = self.space();
        let _writing = space.map_lock().write();
        let range = match asked {
            Some(range) => match space.areas_in(range).next() {
                Some(there) => return Err(MapError::Overlap(there.range.intersection(range))),
                None => range,
            },
            None => space.find_gap(request.bytes, request.alignment()).ok_or(MapError::NoRoom(request.bytes))?,
        };
        space.insert_area(range, request.kind, request.protection)?;
        Ok(range)
    }

    /// Unmaps a range of addresses, all of which must be mapped, by however many areas. Its pages and the page tables that
    /// map nothing any more are freed in batches.
    ///
    /// Huge mappings of anonymous memory are split where a border lies inside of them; those of devices cannot be.
    ///
    /// # Errors
    ///
    /// [`MapError::NotMapped`] names the first hole, [`MapError::Misaligned`] a border inside a page. Nothing has changed
    /// then, but for [`MapError::Moving`].
    ///
    /// # Cost
    ///
    /// The map lock for writing; O(log n) for each of the areas, O(1) for each page.
    pub fn unmap(&self, range: VirtRange) -> Result<Unmapped, MapError> {
        let platform = self.space().vm().yard().platform();
        platform.begin_activity(Activity::Map);
        let unmapped = self.unmap_checked(range);
        platform.end_activity(Activity::Map, unmapped.map_or(PageCount(0), |unmapped| unmapped.pages));
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
        let _writing = space.map_lock().write();
        if let Some(hole) = space.first_hole(range) {
            return Err(MapError::NotMapped(hole));
        }
        borders_between_pages(space, range)?;
        let spare = space.spare_for_removal(range)?;
        let zapped = space.zap(range);
        if let Some(addr) = zapped.moving {
            space.give_back_spare(spare);
            return Err(MapError::Moving(addr));
        }
        let tables = free_tables_of(space, range);
        space.remove_areas(range, spare);
        Ok(Unmapped { pages: PageCount(zapped.pages), huge: zapped.huge, tables: PageCount(zapped.tables + tables) })
    }
}

/// Whether a range of mapped addresses begins and ends between two entries of devices.
fn borders_between_pages<P: Platform>(space: SpaceRef<'_, P>, range: VirtRange) -> Result<(), MapError> {
    let at = |area: Area| area.kind.page_size();
    if let Some(first) = space.first_area_ending_after(range.start) {
        aligned("the start", range.start.0, at(first))?;
    }
    if let Some(last) = space.last_area_starting_before(range.end) {
        aligned("the end", range.end.0, at(last))?;
    }
    Ok(())
}

/// Frees the page tables of a range that maps nothing any more, though its areas still stand.
fn free_tables_of<P: Platform>(space: SpaceRef<'_, P>, range: VirtRange) -> u64 {
    let below =
        space.last_area_starting_before(range.start).map_or(VirtAddr(0), |area| area.range.end.min(range.start));
    let above = space.first_area_ending_after(range.end).map_or(VirtAddr::END, |area| area.range.start.max(range.end));
    space.free_tables(range, below, above)
}
