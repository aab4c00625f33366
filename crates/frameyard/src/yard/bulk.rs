//! Allocating many single frames at once.

use super::alloc::OFF_FAST_PATH;
use super::{AllocError, Yard};
use crate::boot::home_slot;
use crate::gfp::Gfp;
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::units::{Order, Pfn};
use crate::zone::pcp::ListId;

impl<P: Platform> Yard<P> {
    /// Allocates single frames into `frames` and says how many: fewer than asked for when memory runs out.
    ///
    /// After the kernel's `alloc_pages_bulk`. The per-CPU lock is taken once for as many frames as the list's
    /// array holds, not once a frame.
    ///
    /// # Errors
    ///
    /// [`AllocError`] where not even one frame was allocated.
    pub fn alloc_bulk(&self, gfp: Gfp, frames: &mut [Pfn]) -> Result<usize, AllocError> {
        let mut done = 0;
        while done < frames.len() {
            done += self.take_many_held(gfp, &mut frames[done..])?;
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
    fn take_many_held(&self, gfp: Gfp, frames: &mut [Pfn]) -> Result<usize, AllocError> {
        let migrate_type = gfp.migrate_type().ok_or(AllocError::BadFlags(gfp))?;
        let Some(list) = ListId::new(Order::ZERO, migrate_type, self.geometry) else { return Ok(0) };
        let cpu = self.cpu();
        let home = self.fast.homes.get(home_slot(cpu, gfp)).map(|home| home.load(Ordering::Relaxed) as usize);
        let Some(pcp) = home.and_then(|home| self.tables.pcps.get(home)) else { return Ok(0) };
        let plain = !gfp.intersects(OFF_FAST_PATH);
        let Some(mut lists) = pcp.try_lock(&self.platform, pcp.zone(), cpu).filter(|_| plain) else { return Ok(0) };
        let mut taken = 0;
        for frame in frames.iter_mut() {
            let Some(index) = lists.pop(list, Order::ZERO) else { break };
            self.allocation_map.mark_allocated_at(&self.platform, index as usize, Order::ZERO, migrate_type);
            *frame = self.map.pfn(index);
            taken += 1;
        }
        lists.count_allocations(list, taken as u64);
        Ok(taken)
    }
}
