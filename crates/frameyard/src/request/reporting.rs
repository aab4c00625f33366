//! Free-page reporting: giving the memory behind free frames back to the host, outside the allocation paths.

use crate::boot::Poisoning;
use crate::platform::{FramesNotReturned, FreeFrames, LockError, MemoryBacking, Platform};
use crate::store;
use crate::store::buddy::Taken;
use crate::units::{MigrateType, Order, PageCount, PfnRange, errors};
use crate::yard::Yard;
use crate::zone::ZoneView;

/// How much memory was given back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ReportOutcome {
    /// Frames.
    pub pages: PageCount,
    /// Blocks.
    pub blocks: u64,
}

errors! {
    /// Why free memory was not returned, or only part of it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[non_exhaustive]
    pub enum ReportError {
        /// The yard poisons free frames: their bytes must stay.
        Poisoning = "free frames are poisoned: their bytes must stay to be checked",
        /// There are no blocks of that order.
        OrderTooLarge {
            /// The requested order.
            order: Order,
            /// The largest order.
            max: Order,
        } = "{order} is above the maximum, {max}",
        /// Another process holds a lock and does not release it, or has damaged the yard.
        Lock(error: LockError) = "{error}",
        /// The platform did not take these frames. They are free as before.
        NotReturned {
            /// The frames.
            frames: PfnRange,
            /// Why.
            problem: FramesNotReturned,
            /// The amount that was returned before.
            before: ReportOutcome,
        } = "{frames} was not returned, after {}: {problem}" (before.pages),
    }
}

impl<P: Platform> Yard<P> {
    /// Gives the memory behind free blocks of order `min_order` or more back to the host, largest blocks first, up to
    /// `budget` frames (rounded up to a block). The frames stay free, and get new memory when they are next used.
    ///
    /// If free frames are bits, whole pageblocks first return to the free lists; if `min_order` is less than a
    /// pageblock, all free frames do. The call takes up to 32 blocks at a time off the free lists, and stops before a
    /// zone falls below its low watermark. It skips blocks that were reported before and not used since;
    /// [`ZoneStatistics::reported`](crate::stats::ZoneStatistics::reported) counts them. Modelled on the kernel's
    /// `page_reporting_process`.
    ///
    /// # Errors
    ///
    /// [`ReportError`]; blocks that were reported before the error stay reported.
    ///
    /// # Cost
    ///
    /// Reads the page structure of every free block of those orders. Takes the zone lock twice for every 32 blocks
    /// reported, and once for each pageblock that returns to the free lists. Calls the platform without a lock, once for
    /// each block.
    pub fn report_free_pages(&self, min_order: Order, budget: PageCount) -> Result<ReportOutcome, ReportError> {
        let max = self.geometry.max_order();
        if min_order > max {
            return Err(ReportError::OrderTooLarge { order: min_order, max });
        }
        if self.poisoning == Poisoning::On {
            return Err(ReportError::Poisoning);
        }
        let mut outcome = ReportOutcome::default();
        for view in self.populated_zones().filter(|_| budget.0 > 0) {
            store::collect_at_least(view, min_order);
            for order in (min_order.0..=max.0).rev().map(Order) {
                for migrate_type in MigrateType::ALL.into_iter().filter(|of| *of != MigrateType::Isolate) {
                    self.report_list(view, order, migrate_type, budget, &mut outcome)?;
                }
            }
        }
        Ok(outcome)
    }

    /// Returns the memory of the blocks that are on one list now.
    fn report_list(
        &self,
        view: ZoneView<'_, P>,
        order: Order,
        migrate_type: MigrateType,
        budget: PageCount,
        outcome: &mut ReportOutcome,
    ) -> Result<(), ReportError> {
        let all = self.map.places() >> order.0;
        let mut looks = view.zone.free_blocks_racy(order.index(), migrate_type).min(all);
        while looks > 0 && outcome.pages < budget {
            let most = (budget - outcome.pages).0.div_ceil(order.pages().0);
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            let mut locked = view.lock().map_err(ReportError::Lock)?;
            let Taken { batch, looked, at_watermark } = locked.take_unreported(order, migrate_type, looks, most);
            drop(locked);
            looks -= looked;
            let (mut reported, mut refused) = (0, None);
            while let (Some(pfn), None) = (batch.blocks().get(reported), refused) {
                let frames = PfnRange::new(*pfn, order.pages());
                match self.platform.backing().return_frames(&FreeFrames::new(frames)) {
                    Ok(()) => reported += 1,
                    Err(problem) => refused = Some((frames, problem)),
                }
            }
            if !batch.blocks().is_empty() {
                let mut locked = view.lock().map_err(ReportError::Lock)?;
                outcome.pages += locked.put_back_reported(&batch, order, reported);
                drop(locked);
                outcome.blocks += reported as u64;
            }
            if let Some((frames, problem)) = refused {
                return Err(ReportError::NotReturned { frames, problem, before: *outcome });
            }
            if at_watermark || looked == 0 {
                break;
            }
        }
        Ok(())
    }
}
