//! Contiguous memory areas: ranges fixed at creation, which movable allocations use until a request takes them.
//!
//! The allocation-map entry of a block allocated from an area has the type Cma, which no other allocated block has.
//! This is how a release tells such a block from a movable block that happens to be in the area.

use crate::gfp::Gfp;
use crate::owners::Owners;
use crate::page::FrameState;
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::units::{MigrateType, Order, PageCount, Pfn, PfnRange, errors};
use crate::yard::{AllocError, CmaAreas, FreeError, Yard};
use crate::zone::CmaEvents;

errors! {
    /// Why a contiguous memory area did not take frames back. Nothing has changed.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[non_exhaustive]
    pub enum CmaReleaseError {
        /// The range is empty, or does not lie in one area.
        NotInAnArea(range: PfnRange) = "{range} does not lie in a contiguous memory area",
        /// The block at this frame was not allocated from an area.
        NotFromAnArea {
            /// The frame.
            pfn: Pfn,
            /// What it is.
            state: FrameState,
        } = "{pfn} is {state} and was not allocated from its contiguous memory area",
        /// A frame of the range is not allocated.
        Free(error: FreeError) = "{error}",
    }
}

impl<P: Platform> Yard<P> {
    /// Takes `count` frames that begin at a multiple of `2^align` out of an area, or any area, and has owners move the
    /// blocks in use away (`cma_alloc`).
    pub(crate) fn alloc_from_area(
        &self,
        area: Option<PfnRange>,
        (count, align): (PageCount, Order),
        gfp: Gfp,
        owners: &Owners<'_>,
    ) -> Result<PfnRange, AllocError> {
        let mut failed = area.map_or(AllocError::NoPlace { count, align }, AllocError::NoSuchArea);
        for candidate in self.cma().ranges().filter(|candidate| area.is_none_or(|area| area == *candidate)) {
            match self.first_place(candidate, (count, align), MigrateType::Cma, gfp, owners) {
                Ok(range) => {
                    self.cma_events(candidate).served.fetch_add(1, Ordering::Relaxed);
                    return Ok(range);
                }
                Err(problem) => failed = problem.unwrap_or(AllocError::NoPlace { count, align }),
            }
            self.cma_events(candidate).failed.fetch_add(1, Ordering::Relaxed);
        }
        Err(failed)
    }

    /// Counters of the zone that an area lies in.
    fn cma_events(&self, area: PfnRange) -> &CmaEvents {
        let zone = self.zone_of(area.start).map_or(0, |zone| zone.index());
        &self.tables.zones[zone].cma_events
    }
}

impl<'y, P: Platform> CmaAreas<'y, P> {
    /// The contiguous memory areas, ascending.
    pub fn ranges(self) -> impl ExactSizeIterator<Item = PfnRange> {
        self.yard.tables.cma_areas()
    }

    /// Frees frames that were allocated from an area (`cma_release`): the range that a request returned, or any part of
    /// it. Movable allocations may use the frames again.
    ///
    /// # Errors
    ///
    /// [`CmaReleaseError`]; nothing has changed then.
    pub fn release(self, range: PfnRange) -> Result<(), CmaReleaseError> {
        let yard = self.yard;
        if range.is_empty() || !yard.cma().ranges().any(|area| area.intersection(range) == range) {
            return Err(CmaReleaseError::NotInAnArea(range));
        }
        let mut at = range.start;
        while at < range.end {
            let block = yard.allocated_around(at).filter(|(_, entry)| entry.migrate_type() == MigrateType::Cma);
            let Some((head, entry)) = block else {
                let state = yard.page_of(at).map_or(FrameState::Interior, |_| yard.tag_at(at).state());
                return Err(CmaReleaseError::NotFromAnArea { pfn: at, state });
            };
            at = head + entry.order().pages();
        }
        yard.free_range(range).map_err(CmaReleaseError::Free)
    }
}
