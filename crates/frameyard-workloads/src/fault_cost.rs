//! `fault-cost`: the cost of a fault and its later unmap beyond the zeroing of the page.
//!
//! Three kinds of measurement alternate over the same number of pages: touching a mapping page by page and unmapping it;
//! zeroing frames one by one in the order in which the allocator returns them; and allocating and freeing them. So all see
//! the same state of the machine, its caches and the free lists.

use std::time::Instant;

use frameyard::{ByteSize, Gfp, Order};
use frameyard_host::HostPlatform;
use frameyard_vm::{AddressSpace, MemoryAccess};

use crate::error::WorkloadError;
use crate::fixture::Fixture;
use crate::mapping::{Pages, map, pages_of};
use crate::measure::nanoseconds;

/// One round: nanoseconds per page.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FaultCostRound {
    /// A fault and its share of the unmap.
    pub fault_and_unmap_ns: f64,
    /// The faults alone.
    pub fault_ns: f64,
    /// The unmap alone.
    pub unmap_ns: f64,
    /// Zeroing a page.
    pub zero_ns: f64,
    /// Allocating and freeing a frame. All are allocated before the first is freed.
    pub allocate_and_free_ns: f64,
}

/// Runs `rounds` rounds over mappings of `bytes`, after one round to warm up.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] if an access or an allocation fails.
pub fn run(fixture: &Fixture<'_>, bytes: ByteSize, rounds: u32) -> Result<Vec<FaultCostRound>, WorkloadError> {
    let space = fixture.vm.create_space().map_err(WorkloadError::run_time)?;
    let pages = bytes.0 / fixture.vm.yard().geometry().page_size().0;
    let mut done = Vec::new();
    for _ in 0..=rounds {
        let (fault_ns, unmap_ns) = fault_and_unmap(&space, bytes)?;
        let (zero_ns, allocate_and_free_ns) = zero(fixture, pages)?;
        let each = |ns: u64| ns as f64 / pages as f64;
        done.push(FaultCostRound {
            fault_and_unmap_ns: each(fault_ns + unmap_ns),
            fault_ns: each(fault_ns),
            unmap_ns: each(unmap_ns),
            zero_ns: each(zero_ns),
            allocate_and_free_ns: each(allocate_and_free_ns),
        });
    }
    done.remove(0);
    Ok(done)
}

/// Maps, touches every page, and unmaps. Returns the nanoseconds of touching and of unmapping.
fn fault_and_unmap(space: &AddressSpace<'_, HostPlatform>, bytes: ByteSize) -> Result<(u64, u64), WorkloadError> {
    let range = map(space, bytes, Pages::Small).map_err(WorkloadError::run_time)?;
    let begin = Instant::now();
    for addr in pages_of(range) {
        space.touch(addr, MemoryAccess::Write).map_err(WorkloadError::run_time)?;
    }
    let fault_ns = nanoseconds(begin.elapsed());
    let begin = Instant::now();
    space.unmap(range).map_err(WorkloadError::run_time)?;
    Ok((fault_ns, nanoseconds(begin.elapsed())))
}

/// Allocates, zeroes and frees frames. Returns the nanoseconds of zeroing and of the rest.
fn zero(fixture: &Fixture<'_>, pages: u64) -> Result<(u64, u64), WorkloadError> {
    let yard = fixture.vm.yard();
    let begin = Instant::now();
    let allocate = |_| yard.frames(Order::ZERO, Gfp::HIGHUSER_MOVABLE);
    let mut frames = (0..pages).map(allocate).collect::<Result<Vec<_>, _>>().map_err(WorkloadError::run_time)?;
    let allocated_ns = nanoseconds(begin.elapsed());
    let begin = Instant::now();
    for frame in &mut frames {
        frame.bytes_mut().ok_or_else(|| WorkloadError::run_time("a frame has no bytes"))?.fill(0);
    }
    let zero_ns = nanoseconds(begin.elapsed());
    let begin = Instant::now();
    drop(frames);
    Ok((zero_ns, allocated_ns + nanoseconds(begin.elapsed())))
}
