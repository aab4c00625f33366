//! `memory-region`: memory is registered and deregistered in a loop, in a yard and by the host's kernel.

use std::time::{Duration, Instant};

use frameyard::{ByteSize, Geometry, NodeId, PageCount, Pfn, PfnRange};
use frameyard_host::{
    Backing, HostMemory, HostTopology, HugePages, HugetlbPool, HugetlbSize, IoBuffer, IoRing, IoRingError, NodeFrames,
    Region,
};
use frameyard_vm::{Dirty, MemoryAccess, MemoryRegion, PinCall, PinFlags, PinRequest, RefHandling, VirtRange};

use crate::error::WorkloadError;
use crate::measure::nanoseconds;
use crate::pin::{PinBuffers, PinCase, PinFixture, PinInterface};

/// How references are counted when memory is registered, and when it is deregistered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionRefs {
    /// On registration.
    pub take: RefHandling,
    /// On deregistration.
    pub release: RefHandling,
}

impl RegionRefs {
    /// As devices were before the series, as huge pages were before it (all of a head at once when taken, one by one when
    /// given back), and after it.
    pub const ALL: [Self; 3] = [
        Self { take: RefHandling::PerPage, release: RefHandling::PerPage },
        Self { take: RefHandling::Batched, release: RefHandling::PerPage },
        Self { take: RefHandling::Batched, release: RefHandling::Batched },
    ];
}

/// Rounds of registering and deregistering.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rounds {
    /// Number of rounds.
    pub rounds: u64,
    /// Time of all rounds.
    pub elapsed_ns: u64,
    /// Of that, in the registering.
    pub register_ns: u64,
    /// Runs that a region has; buffers, where the host's kernel has it.
    pub runs: u64,
}

/// Registers and deregisters until a time is over, at least once.
fn rounds(
    duration: Duration,
    mut round: impl FnMut() -> Result<(u64, u64), WorkloadError>,
) -> Result<Rounds, WorkloadError> {
    let mut done = Rounds::default();
    let begin = Instant::now();
    while done.rounds == 0 || begin.elapsed() < duration {
        let (register_ns, runs) = round()?;
        done.rounds += 1;
        done.register_ns += register_ns;
        done.runs = runs;
    }
    done.elapsed_ns = nanoseconds(begin.elapsed());
    Ok(done)
}

/// Registers a range of a yard's space, for writing, for a time.
///
/// What is counted in batches on both sides is a [`MemoryRegion`]. The others take and give back the same pages by the calls
/// that a region is made of, with their runs in an array.
pub fn in_yard(
    fixture: &PinFixture<'_>,
    range: VirtRange,
    refs: RegionRefs,
    duration: Duration,
    buffers: &mut PinBuffers,
) -> Result<Rounds, WorkloadError> {
    if refs == RegionRefs::ALL[2] {
        return rounds(duration, || {
            let begin = Instant::now();
            let region =
                MemoryRegion::register(&fixture.space, range, MemoryAccess::Write).map_err(WorkloadError::run_time)?;
            let (register_ns, runs) = (nanoseconds(begin.elapsed()), region.run_count());
            region.deregister().map_err(WorkloadError::run_time)?;
            Ok((register_ns, runs))
        });
    }
    let request = PinRequest::PIN.with(PinFlags::WRITE).with(PinFlags::LONGTERM).counted(refs.take);
    let case = PinCase { request, interface: PinInterface::Runs, batch: usize::MAX };
    rounds(duration, || {
        let begin = Instant::now();
        let used = fixture.take_runs(range, case, &mut buffers.runs)?;
        let register_ns = nanoseconds(begin.elapsed());
        fixture.release_runs(&buffers.runs[..used], PinCall::Pin, refs.release, Dirty::Mark)?;
        Ok((register_ns, used as u64))
    })
}

/// Memory of this process that the host's kernel registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostKind {
    /// Pages of 4 KiB.
    Small,
    /// Transparent huge pages.
    Transparent,
    /// Pages of 2 MiB from the host's pool.
    Hugetlb,
}

impl HostKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Small, Self::Transparent, Self::Hugetlb];

    /// The name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "anonymous",
            Self::Transparent => "huge",
            Self::Hugetlb => "hugetlb",
        }
    }

    /// The size of its pages.
    #[must_use]
    pub const fn page_bytes(self) -> u64 {
        match self {
            Self::Small => 4096,
            Self::Transparent | Self::Hugetlb => 2 << 20,
        }
    }
}

/// What the host's kernel does, or why it does not.
pub type HostRounds = Result<Rounds, String>;

/// Has the host's kernel register memory as buffers of an `io_uring`, for a time.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] where something fails that is neither missing nor forbidden.
pub fn on_host(
    kind: HostKind,
    size: ByteSize,
    duration: Duration,
    host: &HostTopology,
) -> Result<HostRounds, WorkloadError> {
    let mut ring = match IoRing::new() {
        Ok(ring) => ring,
        Err(error @ IoRingError::NotAllowed(_)) => return Ok(Err(format!("not allowed: {error}"))),
        Err(error) => return Err(WorkloadError::run_time(error)),
    };
    match kind {
        HostKind::Small | HostKind::Transparent => {
            let advice = if kind == HostKind::Small { HugePages::Never } else { HugePages::Advise };
            let region = Region::zeroed(size, advice).map_err(WorkloadError::run_time)?;
            region.prefault(std::num::NonZeroUsize::MIN, &mut |_| {}).map_err(WorkloadError::run_time)?;
            let huge = region.memory_use(ByteSize(0), region.size()).map_err(WorkloadError::run_time)?.huge;
            if kind == HostKind::Transparent && huge < region.size() {
                return Ok(Err(format!("the host gave transparent huge pages for {huge} of {}", region.size())));
            }
            register(&mut ring, IoBuffer { start: region.base(), size }, duration)
        }
        HostKind::Hugetlb => {
            let page = HugetlbSize::TwoMib;
            let free = HugetlbPool::of_host(host, page).map_or(0, |pool| pool.free);
            let needed = size.0.div_ceil(page.size().0);
            if free < needed {
                return Ok(Err(format!("the host's pool has {free} free pages of {page}: {needed} are needed")));
            }
            let frames = PageCount(size.0 / Geometry::X86_64.page_size().0);
            let range = NodeFrames { range: PfnRange::new(Pfn(0), frames), node: NodeId(0) };
            let memory = HostMemory::builder(Geometry::X86_64, &[range]).backing(Backing::Hugetlb(page));
            let memory = memory.build(host).map_err(WorkloadError::run_time)?;
            let start = memory.frame(Pfn(0)).ok_or_else(|| WorkloadError::run_time("frame 0 has no bytes"))?;
            register(&mut ring, IoBuffer { start, size }, duration)
        }
    }
}

fn register(ring: &mut IoRing, buffer: IoBuffer, duration: Duration) -> Result<HostRounds, WorkloadError> {
    // Whether it is allowed at all shows at once.
    match ring.register(&[buffer]) {
        Ok(buffers) => drop(buffers),
        Err(error @ (IoRingError::LockedMemory { .. } | IoRingError::NotAllowed(_))) => {
            return Ok(Err(format!("not allowed: {error}")));
        }
        Err(error) => return Err(WorkloadError::run_time(error)),
    }
    let done = rounds(duration, || {
        let begin = Instant::now();
        let buffers = ring.register(&[buffer]).map_err(WorkloadError::run_time)?;
        Ok((nanoseconds(begin.elapsed()), buffers.buffers() as u64))
    });
    done.map(Ok)
}
