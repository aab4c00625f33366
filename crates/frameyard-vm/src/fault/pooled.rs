//! Faults on huge pages of a pool.

use frameyard::page::{CountedPage, FrameState};
use frameyard::units::PhysAddr;
use frameyard::{Pfn, Platform};

use super::Faulted;
use crate::address::{ENTRY_FRAMES_END, VirtAddr};
use crate::area::{Area, MapKind};
use crate::error::{Damage, VmError};
use crate::space::{FaultError, MemoryAccess, SpaceRef};
use crate::table::{Entry, Level, Spot};
use crate::vm::Vm;

impl<P: Platform> Vm<'_, P> {
    /// Releases the reference of an entry that maps a huge page of a pool, or a part of it.
    pub(crate) fn unmap_pooled(&self, page: CountedPage<'_, P>) {
        match page.unmap() {
            // SAFETY: this thread put the last reference.
            Ok(0) => self.expect(unsafe { self.yard().huge_pages().take_back(page.pfn()) }, Damage::Frame),
            Ok(_) => {}
            Err(_) => _ = self.damaged(Damage::Entry),
        }
    }
}

impl<'y, P: Platform> SpaceRef<'y, P> {
    /// Maps a huge page of a pool, or a part of it: of the area's size, or smaller if a table exists there.
    pub(super) fn fault_pooled(
        &self,
        area: &Area,
        spot: Spot<'y>,
        addr: VirtAddr,
        access: MemoryAccess,
    ) -> Result<Faulted, FaultError> {
        let MapKind::Pooled { first: PhysAddr(first), page: wanted } = area.kind else { return Ok(Faulted::Retry) };
        // Fits in an entry whatever the words of the area are.
        let physical = |addr: u64| first.wrapping_add(addr.wrapping_sub(area.range.start.0));
        let frame = |addr: u64| Pfn((physical(addr) >> Level::SMALL.shift()) % ENTRY_FRAMES_END.0);
        let (page, order) = self.mapped_pooled(frame(addr.0))?;
        let unused = || self.vm().unmap_pooled(page);
        let mut level = Level(wanted as u8).min(spot.level);
        while level.pages() > order.pages().0 {
            level = level.below();
        }
        let spot = self.descend(spot, addr.0, level).inspect_err(|_| unused())?;
        let table = self.lock_table(spot.table).inspect_err(|_| unused())?;
        if spot.level != level || !table.entry(spot.index).is_empty() {
            drop(table);
            unused();
            return Ok(Faulted::Retry);
        }
        let entry = Entry::pooled(frame(level.align_down(addr.0)), level).protected(area.protection);
        table.fill(spot.index, entry.used(access), level);
        Ok(Faulted::Mapped)
    }

    /// The huge page of a pool that has a frame, with a reference for a new entry.
    fn mapped_pooled(&self, pfn: Pfn) -> Result<(CountedPage<'y, P>, frameyard::Order), VmError> {
        let vm = self.vm();
        let (page, order) = vm.pooled_page(pfn).ok_or(VmError::NotPooled(pfn))?;
        if !page.try_get() {
            return Err(VmError::NotPooled(pfn));
        }
        // The reference keeps the page what it is now.
        let is_same = page.tag().is(FrameState::Pooled) && page.tag().order() == order;
        if is_same {
            page.map();
        }
        vm.put_page(page);
        if is_same { Ok((page, order)) } else { Err(VmError::NotPooled(pfn)) }
    }
}
