//! `compaction`: a zone in which every second frame is free is compacted on request.
//!
//! Two address spaces fault pages alternately until the Movable zone is full, and one of them goes. What is free then is in
//! single frames. The other one's pages have contents, which are checked when all is done.

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

/// The blocks that are counted: of 2 MiB.
pub const HUGE: Order = Order(9);
/// Frames that stay free above the low watermark, where allocations go elsewhere: less than a huge block.
const LEFT: u64 = 128;
/// Pages that are faulted by each space between two looks at what is free.
const BETWEEN_LOOKS: u64 = 16;
/// What the contents of pages follow from.
const KEY: u64 = 0xc0;

/// What came of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CompactionRun {
    /// Frames of the zone.
    pub zone: PageCount,
    /// Free frames before.
    pub free: PageCount,
    /// Free blocks of that order, or such parts of larger ones, before and after.
    pub huge_before: u64,
    /// As many as free memory would make.
    pub huge_possible: u64,
    /// After.
    pub huge_after: u64,
    /// Why a request of that order would have failed, in thousandths.
    pub fragmentation_before: Option<i64>,
    /// The same, after.
    pub fragmentation_after: Option<i64>,
    /// The part of free memory in smaller blocks, in thousandths.
    pub unusable_before: Option<u64>,
    /// The same, after.
    pub unusable_after: Option<u64>,
    /// What compaction did.
    pub outcome: CompactOutcome,
    /// How long it took.
    pub compact_ns: u64,
    /// Pages whose contents were checked in the end.
    pub checked: u64,
}

/// One run of the workload.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] for what a fault, a check of contents or a validator says.
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
    // As a write to the kernel's `compact_memory` does: pages in batches could not be set aside.
    vm.lru_drain_all();
    let outcome = yard.compact_zone(zone.id, CompactRequest::WHOLE_ZONE, &vm.owners());
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

/// The Movable zone of the only node, where there is one.
pub fn movable_zone(yard: &Yard<HostPlatform>) -> Option<ZoneStatistics> {
    yard.zones().find(|zone| zone.id.kind() == ZoneKind::Movable)
}

/// How free memory of a zone is cut.
struct Shape {
    free: PageCount,
    huge: u64,
    fragmentation: Option<i64>,
    unusable: Option<u64>,
}

impl Shape {
    fn of(yard: &Yard<HostPlatform>, zone: ZoneId) -> Self {
        let of_order = |order: Order| -> u64 {
            MigrateType::ALL.into_iter().map(|of| yard.free_blocks(zone, order, of)).sum::<u64>() << (order.0 - HUGE.0)
        };
        Self {
            free: yard.zone_statistics(zone).free,
            huge: (HUGE.0..=yard.geometry().max_order().0).map(|order| of_order(Order(order))).sum(),
            fragmentation: yard.fragmentation_index(zone, HUGE),
            unusable: yard.unusable_index(zone, HUGE),
        }
    }
}

/// A space with one area.
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

/// Faults pages of both spaces alternately until the zone is full; how many of each.
fn fill(fixture: &Fixture<'_>, zone: ZoneId, going: &Area<'_>, staying: &Area<'_>) -> Result<u64, WorkloadError> {
    let yard = fixture.vm.yard();
    let mut bytes = vec![0; PAGE];
    let mut pages = 0;
    loop {
        let look = yard.zone_statistics(zone);
        let enough = look.watermarks.low.0 + LEFT;
        if look.free.0 <= enough {
            // What per-CPU lists hold is free as well.
            yard.drain_all();
            if yard.zone_statistics(zone).free.0 <= enough {
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
