//! `memory-region`: registers and deregisters memory in a loop, in a yard and with the host's kernel.

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

/// How registration and deregistration count references.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionRefs {
    /// On registration.
    pub take: RefHandling,
    /// On deregistration.
    pub release: RefHandling,
}

impl RegionRefs {
    /// Before the kernel series: devices page by page; huge pages in a batch per head when taken, one by one when released.
    /// After it: batches both ways.
    pub const ALL: [Self; 3] = [
        Self { take: RefHandling::PerPage, release: RefHandling::PerPage },
        Self { take: RefHandling::Batched, release: RefHandling::PerPage },
        Self { take: RefHandling::Batched, release: RefHandling::Batched },
    ];
}

/// Rounds of registration and deregistration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rounds {
    /// Number of rounds.
    pub rounds: u64,
    /// Time of all rounds.
    pub elapsed_ns: u64,
    /// Time of the registrations alone.
    pub register_ns: u64,
    /// Runs of a region; with the host's kernel, buffers.
    pub runs: u64,
}

/// Repeats `round` until `duration` is over, at least once. It returns the nanoseconds of the registration, and the runs.
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

/// Registers a range of an address space for writing, repeatedly for `duration`.
///
/// With batches both ways this is a [`MemoryRegion`]. The other ways use the calls that a region consists of, with the runs
/// in an array.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] if the yard refuses.
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

/// Memory that the host's kernel registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostKind {
    /// 4 KiB pages.
    Small,
    /// Transparent huge pages.
    Transparent,
    /// 2 MiB pages of the host's hugetlb pool.
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

/// The rounds of the host's kernel, or why it refuses.
pub type HostRounds = Result<Rounds, String>;

/// Registers memory with the host's kernel as `io_uring` buffers, repeatedly for `duration`.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] for failures other than a missing or forbidden facility.
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
    // The first registration shows whether the kernel allows it.
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
