//! `compaction`: compacts a zone in which every second frame is free.
//!
//! Two address spaces fault pages alternately until the Movable zone is full. Then one of them exits, which leaves free
//! memory in single frames. The pages of the other space have contents, which are checked at the end.

use std::num::NonZeroUsize;
use std::time::Instant;

use frameyard::compaction::{CompactOutcome, CompactRequest};
use frameyard::stats::ZoneStatistics;
use frameyard::units::ZoneKind;
use frameyard::{MigrateType, Order, PageCount, Yard, ZoneId};
use frameyard_host::{HostPlatform, LockTiming};
use frameyard_vm::{AddressSpace, HugeAdvice, MapRequest, MemoryAccess, VirtAddr};

use crate::error::WorkloadError;
use crate::fixture::Fixture;
use crate::measure::nanoseconds;
use crate::stamp::{PAGE, check, stamp};

/// The order of the counted blocks: 2 MiB.
pub const HUGE: Order = Order(9);
/// Frames left free above the low watermark, below which allocations use other zones. Less than a huge block.
const LEFT: u64 = 128;
/// Pages that each space faults between two reads of the free count.
const BETWEEN_LOOKS: u64 = 16;
/// The key of the contents.
const KEY: u64 = 0xc0;

/// The result of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CompactionRun {
    /// Frames of the zone.
    pub zone: PageCount,
    /// Free frames before.
    pub free: PageCount,
    /// Free blocks of that order before, with larger blocks counted as several.
    pub huge_before: u64,
    /// Blocks of that order that free memory could form.
    pub huge_possible: u64,
    /// Free blocks of that order after.
    pub huge_after: u64,
    /// The fragmentation index for that order in thousandths: near 1000, a request fails for fragmentation; near 0, for lack
    /// of memory.
    pub fragmentation_before: Option<i64>,
    /// The same, after.
    pub fragmentation_after: Option<i64>,
    /// Thousandths of free memory in smaller blocks.
    pub unusable_before: Option<u64>,
    /// The same, after.
    pub unusable_after: Option<u64>,
    /// The outcome of compaction.
    pub outcome: CompactOutcome,
    /// Its duration.
    pub compact_ns: u64,
    /// Pages whose contents were checked at the end.
    pub checked: u64,
}

/// Runs the workload once.
///
/// # Errors
///
/// [`WorkloadError::Input`] without a Movable zone; [`WorkloadError::RunTime`] for a failed fault, check or validation.
pub fn run(fixture: &Fixture<'_>) -> Result<CompactionRun, WorkloadError> {
    let vm = fixture.vm;
    let yard = vm.yard();
    yard.platform().time_locks(LockTiming::Off);
    let zone = movable_zone(yard).ok_or_else(|| WorkloadError::input("there is no Movable zone"))?;
    let [going, staying] = [Area::new(fixture, zone.managed)?, Area::new(fixture, zone.managed)?];
    let pages = fill(fixture, zone.id, &going, &staying)?;
    let _gone = going.space.exit(NonZeroUsize::MIN).map_err(|stalled| WorkloadError::run_time(stalled.problem))?;
    yard.drain_all();
    let before = Shape::of(yard, zone.id);

    let begin = Instant::now();
    // As a write to the kernel's `compact_memory` does: pages in LRU batches cannot be isolated.
    vm.lru_drain_all();
    let outcome = yard.compaction().zone(zone.id, CompactRequest::WHOLE_ZONE, &vm.owners());
    let compact_ns = nanoseconds(begin.elapsed());

    vm.lru_drain_all();
    yard.drain_all();
    let after = Shape::of(yard, zone.id);
    vm.validate().map_err(WorkloadError::run_time)?;
    yard.validate().map_err(WorkloadError::run_time)?;
    staying.check(pages)?;
    Ok(CompactionRun {
        zone: zone.managed,
        free: before.free,
        huge_before: before.huge,
        huge_possible: before.free.0 >> HUGE.0,
        huge_after: after.huge,
        fragmentation_before: before.fragmentation,
        fragmentation_after: after.fragmentation,
        unusable_before: before.unusable,
        unusable_after: after.unusable,
        outcome,
        compact_ns,
        checked: pages,
    })
}

/// The first Movable zone, if there is one.
pub fn movable_zone(yard: &Yard<HostPlatform>) -> Option<ZoneStatistics> {
    yard.stats().zones().find(|zone| zone.id.kind() == ZoneKind::Movable)
}

/// The free memory of a zone, by block size.
struct Shape {
    free: PageCount,
    huge: u64,
    fragmentation: Option<i64>,
    unusable: Option<u64>,
}

impl Shape {
    fn of(yard: &Yard<HostPlatform>, zone: ZoneId) -> Self {
        let of_order = |order: Order| -> u64 {
            MigrateType::ALL.into_iter().map(|of| yard.zone(zone).free_blocks(order, of)).sum::<u64>()
                << (order.0 - HUGE.0)
        };
        Self {
            free: yard.zone(zone).statistics().free,
            huge: (HUGE.0..=yard.geometry().max_order().0).map(|order| of_order(Order(order))).sum(),
            fragmentation: yard.zone(zone).fragmentation_index(HUGE),
            unusable: yard.zone(zone).unusable_index(HUGE),
        }
    }
}

/// An address space with one area.
struct Area<'y> {
    space: AddressSpace<'y, HostPlatform>,
    start: VirtAddr,
}

impl<'y> Area<'y> {
    fn new(fixture: &Fixture<'y>, pages: PageCount) -> Result<Self, WorkloadError> {
        let space = fixture.vm.create_space().map_err(WorkloadError::run_time)?;
        let bytes = fixture.vm.yard().geometry().size_of(pages);
        let request = MapRequest::anonymous(bytes).advised(HugeAdvice::Never);
        let start = space.map(request).map_err(WorkloadError::run_time)?.start;
        Ok(Self { space, start })
    }

    fn addr(&self, page: u64) -> VirtAddr {
        VirtAddr(self.start.0 + page * PAGE as u64)
    }

    fn check(&self, pages: u64) -> Result<(), WorkloadError> {
        let mut bytes = vec![0; PAGE];
        for page in 0..pages {
            self.space.read(self.addr(page), &mut bytes).map_err(WorkloadError::run_time)?;
            check(&bytes, KEY, page, "the space that stayed").map_err(WorkloadError::run_time)?;
        }
        Ok(())
    }
}

/// Faults pages of both spaces alternately until the zone is full. Returns the pages per space.
fn fill(fixture: &Fixture<'_>, zone: ZoneId, going: &Area<'_>, staying: &Area<'_>) -> Result<u64, WorkloadError> {
    let yard = fixture.vm.yard();
    let mut bytes = vec![0; PAGE];
    let mut pages = 0;
    loop {
        let look = yard.zone(zone).statistics();
        let enough = look.watermarks.low.0 + LEFT;
        if look.free.0 <= enough {
            // Frames on per-CPU lists are free too.
            yard.drain_all();
            if yard.zone(zone).statistics().free.0 <= enough {
                return Ok(pages);
            }
        }
        for page in pages..pages + BETWEEN_LOOKS {
            going.space.touch(going.addr(page), MemoryAccess::Write).map_err(WorkloadError::run_time)?;
            stamp(&mut bytes, KEY, page);
            staying.space.write(staying.addr(page), &bytes).map_err(WorkloadError::run_time)?;
        }
        pages += BETWEEN_LOOKS;
    }
}
