//! Long-term pins: pages are first moved out of memory that must stay movable.
//!
//! After the kernel's `check_and_migrate_movable_pages` and `folio_is_longterm_pinnable`.

use frameyard::owners::{Block, FrameOwner, MigrateMode, MigrateProblem};
use frameyard::units::ZoneKind;
use frameyard::{Gfp, Order, Platform};

use super::part::Part;
use super::request::PinFlags;
use super::{PageSink, Taking};
use crate::error::Damage;
use crate::inject::Step;
use crate::vm::Vm;

impl<'y, P: Platform, S: PageSink> Taking<'_, 'y, P, S> {
    /// Whether a page may stay for the duration of the request. A long-term pin excludes Movable zones and contiguous
    /// memory areas. The caller has a reference, or keeps the page mapped.
    ///
    /// Areas consist of whole pageblocks, so one check per pageblock suffices.
    #[inline(always)]
    pub(super) fn may_stay(&mut self, part: &Part<'y, P>) -> bool {
        if !self.request.flags.contains(PinFlags::LONGTERM) {
            return true;
        }
        let yard = self.space.vm().yard();
        let block = part.page.pfn().align_down(yard.geometry().pageblock_order());
        if self.known_stable != Some(block) {
            if yard.cma().ranges().any(|area| area.contains(part.page.pfn())) {
                return false;
            }
            self.known_stable = Some(block);
        }
        part.page.tag().zone().kind() != ZoneKind::Movable
    }
}

impl<P: Platform> Vm<'_, P> {
    /// Moves a block to unmovable memory. The caller holds no lock. Makes one attempt: for a block that small entries
    /// map it only splits the block and returns [`Busy`](MigrateProblem::Busy).
    pub(super) fn move_to_stay(&self, part: &Part<'_, P>) -> Result<(), MigrateProblem> {
        const TARGET: Gfp = Gfp::KERNEL.union(Gfp::NOWARN);
        let from = Block { pfn: part.page.pfn(), order: part.order };
        self.isolate(from, MigrateMode::Sync)?;
        let large = if from.order > Order::ZERO { Gfp::COMP.union(Gfp::NORETRY) } else { Gfp::NOWAIT };
        let Ok(to) = self.alloc_frames(from.order, TARGET.union(large), Step::AllocatePage) else {
            self.put_back(from);
            return Err(MigrateProblem::Failed);
        };
        let to = to.into_pfn();
        let moved = self.migrate(from, to, MigrateMode::Sync);
        let unused = if moved.is_ok() {
            from.pfn
        } else {
            self.put_back(from);
            to
        };
        // The caller owns the other block.
        self.expect(self.yard().free(unused, from.order), Damage::Frame);
        moved
    }
}
