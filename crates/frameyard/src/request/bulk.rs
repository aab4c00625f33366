//! Allocating and freeing many single frames at once.

use crate::gfp::Gfp;
use crate::lists::{ListId, LockedPcp};
use crate::platform::{LockId, Platform};
use crate::request::search::OFF_FAST_PATH;
use crate::units::{CpuId, Order, Pfn, ZoneId};
use crate::yard::{AllocError, FreeError, Yard};

/// Frees single frames one after the other, and keeps the per-CPU lists of their zone locked in between.
pub(crate) struct BulkFree<'y, P: Platform> {
    yard: &'y Yard<P>,
    cpu: CpuId,
    held: Option<(ZoneId, LockedPcp<'y, P>)>,
}

impl<'y, P: Platform> BulkFree<'y, P> {
    pub(crate) fn new(yard: &'y Yard<P>) -> Self {
        Self { yard, cpu: yard.cpu(), held: None }
    }

    /// Frees the frame at a place, which the caller holds exclusively.
    pub(crate) fn free(&mut self, place: usize) {
        let yard = self.yard;
        // A yard whose blocks all take slow paths has no ordinary ones here.
        let ordinary = yard.fast.blocks.ordinary_at(place);
        let list = ordinary.and_then(|(kind, zone)| Some((ListId::small(Order::ZERO, kind)?, zone)));
        let Some((list, zone)) = list else {
            drop(self.held.take());
            let _ = yard.free_block_at(place, Order::ZERO);
            return;
        };
        if self.held.as_ref().is_none_or(|(of, _)| *of != zone) {
            drop(self.held.take());
            let pcp = yard.tables.pcp_of(zone, self.cpu);
            self.held = pcp.and_then(|pcp| pcp.try_lock(&yard.platform, zone, self.cpu)).map(|lists| (zone, lists));
        }
        let Some((_, lists)) = &mut self.held else {
            let _ = yard.free_block_at(place, Order::ZERO);
            return;
        };
        if !lists.push(list, place as u32) {
            lists.push_slow(yard.zone_view(zone), list, place as u32);
        }
    }
}

impl<P: Platform> Yard<P> {
    /// Frees single frames in the given order. Takes the per-CPU lock once for all frames of a zone, not once per
    /// frame.
    ///
    /// Modelled on the kernel's `release_pages`, without its reference counts.
    ///
    /// # Errors
    ///
    /// [`FreeError`] names the first frame that is not an allocated single frame. The remaining frames are still freed.
    pub fn free_bulk(&self, frames: &[Pfn]) -> Result<(), FreeError> {
        let mut bulk = BulkFree::new(self);
        let mut problem = None;
        for pfn in frames.iter().copied() {
            let place = self.map.place(pfn);
            match self.allocation_map().clear_allocated_at(&self.platform, place, Order::ZERO) {
                Some(_) => bulk.free(place),
                None => _ = problem.get_or_insert_with(|| self.refuse(pfn, Order::ZERO)),
            }
        }
        problem.map_or(Ok(()), Err)
    }

    /// Allocates single frames into `frames`; returns how many, which is fewer than the slice has room for if memory
    /// runs out.
    ///
    /// Modelled on the kernel's `alloc_pages_bulk`. Takes the per-CPU lock once for all frames that it takes from the
    /// list, not once per frame.
    ///
    /// # Errors
    ///
    /// [`AllocError`] if not a single frame was allocated.
    pub fn alloc_bulk(&self, gfp: Gfp, frames: &mut [Pfn]) -> Result<usize, AllocError> {
        let mut done = 0;
        while done < frames.len() {
            done += self.pop_many_held(gfp, &mut frames[done..])?;
            if done == frames.len() {
                break;
            }
            // Fetches the next batch, and one frame of it.
            match self.alloc(Order::ZERO, gfp) {
                Ok(pfn) => frames[done] = pfn,
                Err(problem) if done == 0 => return Err(problem),
                Err(_) => break,
            }
            done += 1;
        }
        Ok(done)
    }

    /// Takes frames that the caller's list holds already; none is no error.
    fn pop_many_held(&self, gfp: Gfp, frames: &mut [Pfn]) -> Result<usize, AllocError> {
        let migrate_type = gfp.migrate_type().ok_or(AllocError::BadFlags(gfp))?;
        let Some(list) = ListId::small(Order::ZERO, migrate_type) else { return Ok(0) };
        let cpu = self.cpu();
        let Some(pcp) = self.home_lists(cpu, gfp) else { return Ok(0) };
        let plain = !gfp.intersects(OFF_FAST_PATH);
        let Some(mut lists) = pcp.try_lock(&self.platform, pcp.zone(), cpu).filter(|_| plain) else { return Ok(0) };
        let mut taken = 0;
        for frame in frames.iter_mut() {
            let Some(index) = lists.pop(list) else { break };
            let place = index as usize;
            if !self.mark_allocated_at(place, Order::ZERO, migrate_type) {
                self.platform.note_corrupt(LockId::PerCpu(pcp.zone(), cpu));
                break;
            }
            *frame = self.map.pfn(index);
            taken += 1;
        }
        Ok(taken)
    }
}
