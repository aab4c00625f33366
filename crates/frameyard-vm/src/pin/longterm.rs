//! Pages that are taken for long must not lie where everything has to be movable: they are moved out first.
//!
//! After the kernel's `check_and_migrate_movable_pages` and `folio_is_longterm_pinnable`.

use frameyard::{Block, FrameOwner, Gfp, MigrateMode, MigrateProblem, Order, Platform, ZoneKind};

use super::part::Part;
use crate::inject::Step;
use crate::vm::Vm;

impl<P: Platform> Vm<'_, P> {
    /// Whether a page may stay where it is for long: not in a Movable zone, not in a contiguous memory area. The caller has
    /// a reference, or keeps its mapping.
    #[inline(always)]
    pub(super) fn stays(&self, part: &Part<'_, P>) -> bool {
        let pfn = part.page.pfn();
        part.page.tag().zone().kind() != ZoneKind::Movable && !self.yard().cma_areas().any(|area| area.contains(pfn))
    }

    /// Moves a block to unmovable memory, where it may stay. The caller has no lock. One attempt: a block that is mapped by
    /// small entries is merely split by it, and [`Busy`](MigrateProblem::Busy).
    pub(super) fn move_to_stay(&self, part: &Part<'_, P>) -> Result<(), MigrateProblem> {
        const TARGET: Gfp = Gfp::KERNEL.union(Gfp::NOWARN);
        let from = Block { pfn: part.page.pfn(), order: part.order };
        self.isolate(from, MigrateMode::Sync)?;
        let large = if from.order > Order::ZERO { Gfp::COMP.union(Gfp::NORETRY) } else { Gfp::NOWAIT };
        let Ok(to) = self.alloc_frames(from.order, TARGET.union(large), Step::AllocatePage) else {
            self.put_back(from);
            return Err(MigrateProblem::Failed);
        };
        let moved = self.migrate(from, to, MigrateMode::Sync);
        let unused = if moved.is_ok() {
            from.pfn
        } else {
            self.put_back(from);
            to
        };
        let freed = self.yard().free(unused, from.order);
        debug_assert!(freed.is_ok(), "who moved a block has the other: {freed:?}");
        moved
    }
}
