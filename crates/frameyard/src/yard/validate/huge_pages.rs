//! Pools of huge pages, against the pages.

use super::{ListKind, Recount, ValidateError, compare};
use crate::huge_pool::HugePageSize;
use crate::page::{Counts, PageRef};
use crate::platform::Platform;
use crate::units::{Order, ZoneId};
use crate::yard::Yard;

impl<P: Platform> Yard<P> {
    /// Counts the head of a pooled page.
    pub(super) fn count_pooled(&self, page: PageRef<'_, P>, order: Order, recount: &mut Recount) {
        let Some(size) = HugePageSize::of_order(order) else { return };
        let page = self.counted_page(page);
        let found = &mut recount.pooled[size as usize];
        found.pages += 1;
        found.free += u64::from(page.counts() == Counts::default());
        found.map_returned.0 = found.map_returned.0.wrapping_add(page.index());
    }

    /// Compares the pools of a zone with its pages, and follows their lists.
    pub(super) fn check_huge_pools(&self, zone: ZoneId, recount: &Recount) -> Result<(), ValidateError> {
        for size in HugePageSize::ALL {
            let found = recount.pooled[size as usize];
            let kept = self.pool(zone, size).statistics();
            compare("huge pages of a pool", zone, kept.pages, found.pages)?;
            compare("free huge pages of a pool", zone, kept.free, found.free)?;
            compare("bytes of the map returned for a pool", zone, kept.map_returned.0, found.map_returned.0)?;
            let locked = self.pool(zone, size).lock().map_err(ValidateError::Lock)?;
            let mut listed = 0;
            for page in locked.listed() {
                page.map_err(|at| ValidateError::BrokenList { kind: ListKind::HugePages, zone, at })?;
                listed += 1;
            }
            compare("huge pages on the list of a pool", zone, listed, found.free)?;
        }
        Ok(())
    }
}
