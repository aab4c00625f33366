//! `contig`: allocates contiguous ranges in a Movable zone whose memory is in constant use.
//!
//! Occupants fill part of the zone with pages of address spaces and files, and fault, write, read and unmap them while the
//! calling thread requests ranges. Then that thread pins a page and requests the range around it, which must fail with that frame as
//! the reason. After the unpin it requests the range again, zeroed, which would show if an occupant still had a page there.
//! At the end the occupants check all their contents.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use frameyard::AllocError;
use frameyard::contig::BlockedBy;
use frameyard::stats::ZoneStatistics;
use frameyard::{ByteSize, Gfp, NodeId, Order, PageCount, Pfn, PfnRange, ZoneId};
use frameyard_host::{HostPlatform, LockTiming};
use frameyard_vm::{HugeAdvice, MapRequest, PinnedPage, Vm, VmCounter};

use crate::compaction::movable_zone;
use crate::error::WorkloadError;
use crate::fixture::Fixture;
use crate::measure::nanoseconds;
use crate::task::task_seed;

mod occupant;

use occupant::Occupant;

/// The flags of the ranges: memory for user pages.
const GFP: Gfp = Gfp::HIGHUSER_MOVABLE.union(Gfp::NOWARN);
/// Pages faulted at most to find one in the Movable zone.
const PIN_TRIES: u64 = 64;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct ContigPlan {
    /// The size of the ranges.
    pub size: ByteSize,
    /// Memory of the zone that occupants use.
    pub fill: ByteSize,
    /// Memory that they use at first, before they free pages all over it.
    pub most: ByteSize,
    /// Number of occupants.
    pub tasks: u32,
    /// Seed of the random choices.
    pub seed: u64,
}

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskedFor {
    /// A range anywhere.
    Anywhere,
    /// A given range that contains a pinned page.
    Pinned,
    /// The same range after the unpin, zeroed.
    Unpinned,
}

impl AskedFor {
    /// The name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anywhere => "busy",
            Self::Pinned => "pinned",
            Self::Unpinned => "unpinned",
        }
    }
}

/// One request.
#[derive(Clone, PartialEq, Debug)]
pub struct Attempt {
    /// Its kind.
    pub asked: AskedFor,
    /// The range, or why it could not be allocated.
    pub outcome: Result<PfnRange, AllocError>,
    /// The pinned frame.
    pub pinned: Option<Pfn>,
    /// Its duration.
    pub contig_ns: u64,
    /// Pages that were migrated.
    pub pages_moved: u64,
    /// Pages of the zone in use before.
    pub used_before: PageCount,
    /// Pages that occupants wrote, read, mapped or unmapped meanwhile.
    pub occupant_steps: u64,
}

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct ContigRun {
    /// Frames of the Movable zone.
    pub zone: PageCount,
    /// The requests, in order.
    pub attempts: Vec<Attempt>,
    /// Pages whose contents occupants checked at the end.
    pub checked: u64,
}

/// State shared by the calling thread and the occupants.
#[derive(Default)]
struct Shared {
    over: AtomicBool,
    steps: AtomicU64,
}

/// Ends the occupants on drop.
struct OverOnDrop<'a>(&'a Shared);

impl Drop for OverOnDrop<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// Runs the workload once, with one request of each kind.
///
/// # Errors
///
/// [`WorkloadError::Input`] without a Movable zone; [`WorkloadError::RunTime`] for wrong contents, and for a range that was
/// allocated in spite of a pinned page.
pub fn run(fixture: &Fixture<'_>, plan: &ContigPlan) -> Result<ContigRun, WorkloadError> {
    let vm = fixture.vm;
    vm.yard().platform().time_locks(LockTiming::Off);
    let zone = movable_zone(vm.yard()).ok_or_else(|| WorkloadError::input("there is no Movable zone"))?;
    let shared = Shared::default();
    let (prepared, preparations) = mpsc::channel();
    thread::scope(|scope| {
        let over = OverOnDrop(&shared);
        let mut occupants = Vec::new();
        for number in 0..plan.tasks {
            let (shared, prepared) = (&shared, prepared.clone());
            let body = move || {
                let share = |bytes: ByteSize| ByteSize(bytes.0 / u64::from(plan.tasks));
                let amounts = (share(plan.fill), share(plan.most));
                let occupant = Occupant::fill(vm, number, task_seed(plan.seed, number), amounts);
                let _ = prepared.send(occupant.is_ok());
                occupant?.work(&shared.over, &shared.steps)
            };
            occupants.push(thread::Builder::new().spawn_scoped(scope, body).map_err(WorkloadError::run_time)?);
        }
        drop(prepared);
        let attempts = if preparations.iter().take(occupants.len()).all(|well| well) {
            ask(vm, &zone, plan, &shared)
        } else {
            Ok(Vec::new())
        };
        drop(over);
        let mut checked = 0;
        for occupant in occupants {
            checked += occupant
                .join()
                .map_err(|_| WorkloadError::run_time("an occupant panicked"))?
                .map_err(WorkloadError::run_time)?;
        }
        Ok(ContigRun { zone: zone.managed, attempts: attempts?, checked })
    })
}

/// Makes all requests, in order.
fn ask(
    vm: Vm<'_, HostPlatform>,
    zone: &ZoneStatistics,
    plan: &ContigPlan,
    shared: &Shared,
) -> Result<Vec<Attempt>, WorkloadError> {
    let asker = Asker { vm, zone: zone.id, count: vm.yard().geometry().pages_in(plan.size), shared };
    let align = Order(plan.size.0.trailing_zeros() as u8 - vm.yard().geometry().page_shift());
    let anywhere = || vm.yard().request(asker.count, GFP).aligned(align).node(NodeId(0)).owners(&vm.owners()).range();
    let mut attempts = vec![asker.ask(AskedFor::Anywhere, None, anywhere)?];
    let page = asker.pinned_page()?;
    let (pfn, range) = (page.pfn(), around(page.pfn(), asker.count, zone.span, vm.yard().geometry().pageblock_order()));
    let this = |gfp| vm.yard().request(range, gfp).owners(&vm.owners()).range();
    let pinned = asker.ask(AskedFor::Pinned, Some(pfn), || this(GFP))?;
    match &pinned.outcome {
        Err(AllocError::Blocked(blocker)) if blocker.pfn == pfn && blocker.why == BlockedBy::Pinned => {}
        Err(AllocError::Blocked(blocker)) => {
            return Err(WorkloadError::run_time(format!("{pfn} is pinned in {range}, but {blocker}")));
        }
        _ => return Err(WorkloadError::run_time(format!("{pfn} is pinned, but {range} was taken with it"))),
    }
    attempts.push(pinned);
    drop(page);
    attempts.push(asker.ask(AskedFor::Unpinned, None, || this(GFP | Gfp::ZERO))?);
    Ok(attempts)
}

/// A range of `count` frames of a zone around a frame, aligned to a pageblock.
fn around(pfn: Pfn, count: PageCount, zone: PfnRange, pageblock: Order) -> PfnRange {
    let middle = Pfn(pfn.0.saturating_sub(count.0 / 2)).align_down(pageblock);
    let last = Pfn(zone.end.0.saturating_sub(count.0)).align_down(pageblock);
    PfnRange::new(middle.min(last).max(zone.start), count)
}

struct Asker<'a, 'y> {
    vm: Vm<'y, HostPlatform>,
    zone: ZoneId,
    count: PageCount,
    shared: &'a Shared,
}

impl<'y> Asker<'_, 'y> {
    /// Makes one request and frees the range.
    fn ask(
        &self,
        asked: AskedFor,
        pinned: Option<Pfn>,
        request: impl FnOnce() -> Result<PfnRange, AllocError>,
    ) -> Result<Attempt, WorkloadError> {
        let yard = self.vm.yard();
        let moved = || self.vm.counted(VmCounter::PgmigrateSuccess);
        let steps = || self.shared.steps.load(Ordering::Relaxed);
        let zone = yard.zone(self.zone).statistics();
        let used_before = PageCount(zone.managed.0.saturating_sub(zone.free.0 + zone.per_cpu.0));
        let before = (moved(), steps());
        let begin = Instant::now();
        let outcome = request();
        let contig_ns = nanoseconds(begin.elapsed());
        let (pages_moved, occupant_steps) = (moved() - before.0, steps() - before.1);
        match &outcome {
            Ok(range) => yard.free_range(*range).map_err(WorkloadError::run_time)?,
            Err(AllocError::Blocked(_) | AllocError::NoPlace { .. }) => {}
            Err(error) => return Err(WorkloadError::run_time(*error)),
        }
        Ok(Attempt { asked, outcome, pinned, contig_ns, pages_moved, used_before, occupant_steps })
    }

    /// Pins a page of the zone, in an address space of its own.
    fn pinned_page(&self) -> Result<Pinned<'y>, WorkloadError> {
        let page = self.vm.yard().geometry().page_size().0;
        let space = self.vm.create_space().map_err(WorkloadError::run_time)?;
        let request = MapRequest::anonymous(ByteSize(PIN_TRIES * page)).advised(HugeAdvice::Never);
        let range = space.map(request).map_err(WorkloadError::run_time)?;
        for addr in (range.start.0..range.end.0).step_by(page as usize).map(frameyard_vm::VirtAddr) {
            space.write(addr, &[1]).map_err(WorkloadError::run_time)?;
            let pin = space.pin(addr).map_err(WorkloadError::run_time)?;
            if self.vm.yard().zone_of(pin.pfn()) == Some(self.zone) {
                return Ok(Pinned { pin, _space: space });
            }
        }
        Err(WorkloadError::run_time("no page that was faulted in lies in the Movable zone: fill less of it"))
    }
}

/// A pinned page and its address space.
struct Pinned<'y> {
    pin: PinnedPage<'y, HostPlatform>,
    _space: frameyard_vm::AddressSpace<'y, HostPlatform>,
}

impl Pinned<'_> {
    fn pfn(&self) -> Pfn {
        self.pin.pfn()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_around_a_frame_stays_in_the_zone() {
        let zone = PfnRange { start: Pfn(4096), end: Pfn(4096 + 8192) };
        let range = |pfn| around(Pfn(pfn), PageCount(2048), zone, Order(9));
        for pfn in [4096, 5000, 8000, 12287] {
            assert!(range(pfn).contains(Pfn(pfn)) && range(pfn).intersection(zone) == range(pfn), "{pfn}");
        }
        assert_eq!(range(8000), PfnRange::new(Pfn(6656), PageCount(2048)));
    }
}
