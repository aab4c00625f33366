//! Statistics: sums over the yard.

use frameyard::{Platform, Yard};

use crate::shared::error::fy_error;
use crate::shared::handle::{Handle, call};
use crate::shared::sized::{self, SizedStruct};
use crate::shared::status::fy_status;

/// Sums over all zones of a yard. Members about frames count frames. The remaining ones count events since the creation.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct fy_statistics {
    /// `sizeof(fy_statistics)`.
    pub size: usize,
    /// Frames given to the allocator.
    pub managed: u64,
    /// Free frames, those on the lists of CPUs included.
    pub free: u64,
    /// Frames on the lists of CPUs.
    pub per_cpu: u64,
    /// Blocks allocated.
    pub allocations: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Frames allocated.
    pub frames_allocated: u64,
    /// Frames freed.
    pub frames_freed: u64,
    /// Requests that found no memory, apart from those with `FY_GFP_NOWARN`.
    pub failures: u64,
    /// Requests served by another node than the preferred one.
    pub other_node: u64,
    /// Refills of the lists of CPUs.
    pub refills: u64,
    /// Drains of the lists of CPUs.
    pub drains: u64,
    /// Acquisitions of zone locks.
    pub lock_acquisitions: u64,
    /// Those that waited.
    pub lock_contended: u64,
    /// Requests served from blocks of another migration type.
    pub fallbacks: u64,
    /// Frames out of use because they or their page structures were damaged.
    pub bad_frames: u64,
}

// SAFETY: numbers alone, the size first.
unsafe impl SizedStruct for fy_statistics {
    const NAME: &'static str = "fy_statistics";
}

/// `fy_yard_statistics`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn yard_statistics<Y: Handle>(
    yard: *const Y,
    statistics: *mut fy_statistics,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &Y| {
        // SAFETY: passed on to the caller.
        unsafe { sized::write(statistics, &sums_of(yard.yard()))? };
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, work) }
}

fn sums_of<P: Platform>(yard: &Yard<P>) -> fy_statistics {
    let mut sums = fy_statistics { failures: yard.stats().failures(), ..fy_statistics::default() };
    for zone in yard.stats().zones() {
        let mut add = |sum: fn(&mut fy_statistics) -> &mut u64, value: u64| {
            let sum = sum(&mut sums);
            *sum = sum.wrapping_add(value);
        };
        add(|sums| &mut sums.managed, zone.managed.0);
        add(|sums| &mut sums.free, (zone.free + zone.per_cpu).0);
        add(|sums| &mut sums.per_cpu, zone.per_cpu.0);
        add(|sums| &mut sums.allocations, zone.allocations);
        add(|sums| &mut sums.frees, zone.frees);
        add(|sums| &mut sums.frames_allocated, zone.pages_allocated);
        add(|sums| &mut sums.frames_freed, zone.pages_freed);
        add(|sums| &mut sums.other_node, zone.numa_miss);
        add(|sums| &mut sums.refills, zone.refills);
        add(|sums| &mut sums.drains, zone.drains);
        add(|sums| &mut sums.lock_acquisitions, zone.lock.acquisitions);
        add(|sums| &mut sums.lock_contended, zone.lock.contended);
        add(|sums| &mut sums.fallbacks, zone.fallbacks);
        add(|sums| &mut sums.bad_frames, zone.bad_pages);
    }
    sums
}
