//! `pin`: gets or pins pages of an address space and releases them, over mappings and page maps of every size.
//!
//! All compared kinds of memory are mapped side by side in one address space, so that runs can alternate. Device frames have
//! no memory behind them; only their page structures are used.

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use frameyard::boot::BootError;
use frameyard::devices::{DeviceRequest, MapLayout, MapPlacement};
use frameyard::huge_pages::HugePageSize;
use frameyard::units::PhysAddr;
use frameyard::{ByteSize, Geometry, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig};
use frameyard_host::{DeviceAlignment, DeviceMemory, HostPlatform, HostTopology, HostYard, HostYardError};
use frameyard_vm::{
    AddressSpace, Dirty, File, MapRequest, MemoryAccess, PageLevel, PageRun, PinCall, PinRequest, RefHandling, Sharing,
    VirtAddr, VirtRange, Vm, VmConfig,
};

use crate::error::WorkloadError;
use crate::mapping::{Pages, map};
use crate::measure::nanoseconds;

mod pooled;

/// The first frame, above all zones with an upper limit.
const FIRST: Pfn = Pfn(0x10_0000);
/// Frames of 1 GiB, the alignment of devices.
const GIGANTIC: u64 = 1 << 18;
/// Memory for page tables, per-CPU lists and reserves.
const SPARE: ByteSize = ByteSize::mib(96);
const PAGE: u64 = 4096;
const PAGE_STRUCTURE: u64 = 64;
/// The key of the file that is mapped.
const FILE_KEY: u64 = 1;

/// The memory whose pages are taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PinnedMemory {
    /// Anonymous memory in small pages.
    Anonymous,
    /// Anonymous memory in transparent huge pages.
    Huge,
    /// Huge pages of a pool.
    Pool,
    /// Device memory.
    Device,
    /// Shared anonymous memory.
    Shared,
    /// A shared mapping of a file of the page cache.
    SharedFile,
    /// A private mapping of a file of the page cache.
    PrivateFile,
}

impl PinnedMemory {
    /// The name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Huge => "huge",
            Self::Pool => "pool",
            Self::Device => "device",
            Self::Shared => "shared",
            Self::SharedFile => "shared-file",
            Self::PrivateFile => "private-file",
        }
    }
}

/// A kind of memory: its page table entries have one size, its page map the same or another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PinKind {
    /// Its memory.
    pub memory: PinnedMemory,
    /// The memory that a page table entry maps.
    pub page: DeviceAlignment,
    /// The memory that one head page represents.
    pub map: DeviceAlignment,
}

impl PinKind {
    /// All kinds. Devices with a map of base pages are as they were before compound maps existed.
    pub const ALL: [Self; 12] = [
        Self::of(PinnedMemory::Anonymous, DeviceAlignment::Base, DeviceAlignment::Base),
        Self::of(PinnedMemory::Huge, DeviceAlignment::Huge, DeviceAlignment::Huge),
        Self::of(PinnedMemory::Pool, DeviceAlignment::Huge, DeviceAlignment::Huge),
        Self::of(PinnedMemory::Pool, DeviceAlignment::Gigantic, DeviceAlignment::Gigantic),
        Self::of(PinnedMemory::Device, DeviceAlignment::Base, DeviceAlignment::Base),
        Self::of(PinnedMemory::Device, DeviceAlignment::Huge, DeviceAlignment::Base),
        Self::of(PinnedMemory::Device, DeviceAlignment::Gigantic, DeviceAlignment::Base),
        Self::of(PinnedMemory::Device, DeviceAlignment::Huge, DeviceAlignment::Huge),
        Self::of(PinnedMemory::Device, DeviceAlignment::Gigantic, DeviceAlignment::Gigantic),
        Self::of(PinnedMemory::Shared, DeviceAlignment::Base, DeviceAlignment::Base),
        Self::of(PinnedMemory::SharedFile, DeviceAlignment::Base, DeviceAlignment::Base),
        Self::of(PinnedMemory::PrivateFile, DeviceAlignment::Base, DeviceAlignment::Base),
    ];

    const fn of(memory: PinnedMemory, page: DeviceAlignment, map: DeviceAlignment) -> Self {
        Self { memory, page, map }
    }

    /// Real memory that a mapping of `size` needs.
    #[must_use]
    pub fn memory_needed(self, size: ByteSize) -> ByteSize {
        match self.memory {
            PinnedMemory::Anonymous => ByteSize(size.0 + size.0 / 256),
            PinnedMemory::Huge => ByteSize(size.0 + size.0 / 64),
            // Also the nodes of the file's tree.
            PinnedMemory::Shared | PinnedMemory::SharedFile => ByteSize(size.0 + size.0 / 64),
            // The pages of the file, and their copies.
            PinnedMemory::PrivateFile => ByteSize(2 * size.0 + size.0 / 64),
            // Page tables, and at most the page structures. Pages of pools are not written.
            PinnedMemory::Pool | PinnedMemory::Device => ByteSize(size.0 / 512),
        }
    }

    /// Frames of the yard's memory that a mapping of `size` needs. Whole pages of a pool, wherever their alignment puts them.
    fn frames_needed(self, size: ByteSize) -> u64 {
        let memory = match self.memory {
            PinnedMemory::Pool => size.0 + size.0 / 64 + self.page.size().0,
            _ => self.memory_needed(size).0,
        };
        memory.div_ceil(PAGE)
    }

    fn level(self) -> PageLevel {
        match self.page {
            DeviceAlignment::Base => PageLevel::Small,
            DeviceAlignment::Huge => PageLevel::Huge,
            DeviceAlignment::Gigantic => PageLevel::Gigantic,
        }
    }
}

/// What the caller receives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PinInterface {
    /// The frame number of each page.
    Array,
    /// Runs of frames.
    Runs,
}

impl PinInterface {
    /// The name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Runs => "runs",
        }
    }
}

/// Whether pages are present before they are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touched {
    /// They are.
    Before,
    /// The calls fault them in, in every run.
    ByTheCall,
}

/// The result of one run: nanoseconds for the whole size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PinRun {
    /// Time of the calls that take pages.
    pub take_ns: u64,
    /// Time of the calls that release them.
    pub release_ns: u64,
    /// Time to write the same number of frame numbers into the same array; `None` for runs.
    pub array_write_ns: Option<u64>,
    /// Number of runs; `None` for arrays.
    pub runs: Option<usize>,
}

/// The page structures of devices.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DeviceMaps {
    /// Which ones devices of compound pages have.
    pub layout: MapLayout,
    /// Where they lie. On the device itself they are pages of its memory file.
    pub placement: MapPlacement,
}

impl DeviceMaps {
    /// Frames of a device before its `pages` frames of data: whole pages of 1 GiB that its page structures fit in.
    fn room(self, pages: u64) -> u64 {
        match self.placement {
            MapPlacement::Memory => 0,
            MapPlacement::Device => (pages / (PAGE / PAGE_STRUCTURE)).next_multiple_of(GIGANTIC),
        }
    }
}

/// How pages are taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PinCase {
    /// What is requested.
    pub request: PinRequest,
    /// What the caller receives.
    pub interface: PinInterface,
    /// The most pages that one call takes.
    pub batch: usize,
}

/// A yard in which all compared kinds can be mapped.
#[derive(Debug)]
pub struct PinYard {
    yard: HostYard,
    size: ByteSize,
    kinds: Vec<PinKind>,
    /// The data of the device of each page size of the map.
    devices: Vec<(DeviceAlignment, PfnRange)>,
    /// Ranges of consecutive pages that the pools have handed out.
    pooled: Vec<(HugePageSize, PfnRange)>,
}

impl PinYard {
    /// Creates a yard with the memory that the kinds need, and devices with the given page structures.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::Input`] if there is no such yard; [`WorkloadError::RunTime`] if the host refuses.
    pub fn new(
        size: ByteSize,
        kinds: &[PinKind],
        maps: DeviceMaps,
        host: &HostTopology,
    ) -> Result<Self, WorkloadError> {
        let needed = kinds.iter().map(|kind| kind.frames_needed(size)).sum::<u64>() + SPARE.0 / PAGE;
        let frames = needed.next_multiple_of(1 << 15);
        let memory = [(PfnRange::new(FIRST, PageCount(frames)), NodeId(0))];
        let mut next = (FIRST.0 + frames).next_multiple_of(GIGANTIC);
        let begin = next;
        let mut devices: Vec<(DeviceAlignment, PfnRange)> = Vec::new();
        for kind in kinds.iter().filter(|kind| kind.memory == PinnedMemory::Device) {
            if devices.iter().all(|(map, _)| *map != kind.map) {
                let data = next + maps.room(size.0 / PAGE);
                devices.push((kind.map, PfnRange::new(Pfn(data), PageCount(size.0 / PAGE))));
                next = (data + size.0 / PAGE).next_multiple_of(GIGANTIC);
            }
        }
        let cpus = vec![NodeId(0); host.allowed().as_slice().len().max(1)];
        let space = PfnRange { start: Pfn(begin), end: Pfn(next) };
        let device_space = (!devices.is_empty()).then_some(space);
        let config = YardConfig { device_space, ..YardConfig::new(&cpus) };
        let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
        let yard = HostYard::builder().machine(&table, &config).host(host).build().map_err(|error| match error {
            HostYardError::Boot(error) if !BootError::is_at_run_time(&error) => WorkloadError::input(error),
            other => WorkloadError::run_time(other),
        })?;
        for &(map, data) in &devices {
            let range = PfnRange { start: Pfn(data.start.0 - maps.room(size.0 / PAGE)), end: data.end };
            map_device(&yard, map, range, maps)?;
        }
        let mut pooled = Vec::new();
        // The largest first, while memory is in one piece.
        for page in
            HugePageSize::ALL.into_iter().rev().filter(|page| kinds.iter().any(|kind| kind.pooled() == Some(*page)))
        {
            pooled.extend(pooled::hand_out(&yard, page, size)?.into_iter().map(|range| (page, range)));
        }
        Ok(Self { yard, size, kinds: kinds.to_vec(), devices, pooled })
    }

    /// Creates an address space, calls `run` with it, and checks the yard afterwards.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::RunTime`] for a failed check, and the errors of `run`.
    pub fn with_fixture<R, E: From<WorkloadError>>(
        &self,
        run: impl FnOnce(&PinFixture<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let fixture = self.create()?;
        let result = run(&fixture)?;
        self.close(fixture)?;
        Ok(result)
    }

    fn create(&self) -> Result<PinFixture<'_>, WorkloadError> {
        let vm = Vm::create(self.yard.core(), &VmConfig::default()).map_err(WorkloadError::run_time)?;
        let space = vm.create_space().map_err(WorkloadError::run_time)?;
        let file = vm.create_file(FILE_KEY, self.size).map_err(WorkloadError::run_time)?;
        let memory = vm.create_shared_memory(self.size).map_err(WorkloadError::run_time)?;
        Ok(PinFixture { vm, space, file, memory, yard: self })
    }

    fn close(&self, fixture: PinFixture<'_>) -> Result<(), WorkloadError> {
        let vm = fixture.vm;
        drop(fixture);
        vm.lru_drain_all();
        vm.validate().map_err(WorkloadError::run_time)?;
        // SAFETY: the callers of `with_fixture` have ended, and kept no view: only the fixture leads to the yard.
        unsafe { vm.destroy() }.map_err(WorkloadError::run_time)?;
        self.yard.validate().map_err(WorkloadError::run_time)
    }
}

/// Maps a device. It has memory only if that holds its page structures.
fn map_device(
    yard: &HostYard,
    map: DeviceAlignment,
    range: PfnRange,
    DeviceMaps { layout, placement }: DeviceMaps,
) -> Result<(), WorkloadError> {
    let platform = yard.platform();
    if placement == MapPlacement::Device {
        let memory = DeviceMemory::builder(ByteSize(range.count().0 * PAGE), DeviceAlignment::Huge);
        let memory = memory.build(platform.host()).map_err(WorkloadError::run_time)?;
        platform.add_device(range, Arc::new(memory)).map_err(WorkloadError::run_time)?;
    }
    let order = map.order(Geometry::X86_64);
    // Base pages have only one layout.
    let layout = if order == Order::ZERO { MapLayout::Full } else { layout };
    let request = DeviceRequest { range, node: NodeId(0), order, layout, placement };
    yard.map_device(request).map(drop).map_err(WorkloadError::run_time)
}

/// An address space in which all kinds can be mapped.
#[derive(Debug)]
pub struct PinFixture<'y> {
    /// The owners.
    pub vm: Vm<'y, HostPlatform>,
    /// The address space.
    pub space: AddressSpace<'y, HostPlatform>,
    /// A file whose pages have a pattern. They stay in memory between mappings.
    file: File<'y, HostPlatform>,
    /// Shared anonymous memory, likewise.
    memory: File<'y, HostPlatform>,
    yard: &'y PinYard,
}

impl PinFixture<'_> {
    /// The kinds of memory that can be mapped.
    #[must_use]
    pub fn kinds(&self) -> &[PinKind] {
        &self.yard.kinds
    }

    /// 4 KiB pages of a mapping.
    #[must_use]
    pub fn pages(&self) -> usize {
        (self.yard.size.0 / PAGE) as usize
    }

    /// Maps memory of a kind. No page of it is mapped yet. Pages of files may be in memory from earlier mappings.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::RunTime`] if the address space refuses.
    pub fn map(&self, kind: PinKind) -> Result<VirtRange, WorkloadError> {
        let size = self.yard.size;
        let mapped = match kind.memory {
            PinnedMemory::Anonymous => map(&self.space, size, Pages::Small),
            PinnedMemory::Huge => map(&self.space, size, Pages::Huge),
            PinnedMemory::Shared => self.space.map(MapRequest::file(self.memory.id(), 0, size, Sharing::Shared)),
            PinnedMemory::SharedFile => self.space.map(MapRequest::file(self.file.id(), 0, size, Sharing::Shared)),
            PinnedMemory::PrivateFile => self.space.map(MapRequest::file(self.file.id(), 0, size, Sharing::Private)),
            PinnedMemory::Pool => return self.map_pooled(kind),
            PinnedMemory::Device => {
                let device = self.yard.devices.iter().find(|(map, _)| *map == kind.map);
                let (_, range) = device.ok_or_else(|| WorkloadError::run_time("no device of that geometry"))?;
                self.space.map(MapRequest::device(PhysAddr(range.start.0 * PAGE), size, kind.level()))
            }
        };
        mapped.map_err(WorkloadError::run_time)
    }

    /// Makes all pages of a mapping present.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::RunTime`] if a fault fails.
    pub fn touch(&self, kind: PinKind, range: VirtRange) -> Result<(), WorkloadError> {
        for addr in (range.start.0..range.end.0).step_by(kind.page.size().0 as usize).map(VirtAddr) {
            self.space.touch(addr, MemoryAccess::Write).map_err(WorkloadError::run_time)?;
        }
        Ok(())
    }

    /// Takes a range and releases it, once on each thread. The threads begin together, each with buffers of its own, and all take
    /// all pages. Returns the result of each.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::RunTime`] if the address space refuses.
    pub fn run_together(
        &self,
        range: VirtRange,
        case: PinCase,
        buffers: &mut [PinBuffers],
    ) -> Result<Vec<PinRun>, WorkloadError> {
        if let [own] = buffers {
            return Ok(vec![self.run(range, case, own)?]);
        }
        let ready = &Barrier::new(buffers.len());
        thread::scope(|scope| {
            let run = |own| {
                scope.spawn(move || {
                    ready.wait();
                    self.run(range, case, own)
                })
            };
            let threads: Vec<_> = buffers.iter_mut().map(run).collect();
            let result = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().expect("pinning does not panic");
            threads.into_iter().map(result).collect()
        })
    }

    /// Takes a range and releases it, once.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::RunTime`] if the address space refuses.
    pub fn run(&self, range: VirtRange, case: PinCase, buffers: &mut PinBuffers) -> Result<PinRun, WorkloadError> {
        match case.interface {
            PinInterface::Array => self.by_array(range, case, &mut buffers.frames),
            PinInterface::Runs => self.by_runs(range, case, &mut buffers.runs),
        }
    }

    fn by_array(&self, range: VirtRange, case: PinCase, frames: &mut [Pfn]) -> Result<PinRun, WorkloadError> {
        let array_write_ns = write_alone(frames);
        let mut done = 0;
        let begin = Instant::now();
        while done < frames.len() {
            let end = done.saturating_add(case.batch).min(frames.len());
            let at = VirtAddr(range.start.0 + done as u64 * PAGE);
            done += self.space.take_pages(at, case.request, &mut frames[done..end]).map_err(WorkloadError::run_time)?.0
                as usize;
        }
        let take_ns = nanoseconds(begin.elapsed());
        let begin = Instant::now();
        for part in frames.chunks(case.batch) {
            self.release_pages(part, case.request).map_err(WorkloadError::run_time)?;
        }
        Ok(PinRun {
            take_ns,
            release_ns: nanoseconds(begin.elapsed()),
            array_write_ns: Some(array_write_ns),
            runs: None,
        })
    }

    fn release_pages(&self, frames: &[Pfn], request: PinRequest) -> Result<(), frameyard_vm::ReleaseError> {
        match request.call {
            PinCall::Get => self.vm.put_pages(frames, request.refs),
            PinCall::Pin => self.vm.unpin_pages(frames, request.refs, Dirty::Keep),
        }
    }

    fn by_runs(&self, range: VirtRange, case: PinCase, runs: &mut [PageRun]) -> Result<PinRun, WorkloadError> {
        let begin = Instant::now();
        let used = self.take_runs(range, case, runs)?;
        let take_ns = nanoseconds(begin.elapsed());
        let begin = Instant::now();
        self.release_runs(&runs[..used], case.request.call, case.request.refs, Dirty::Keep)?;
        Ok(PinRun { take_ns, release_ns: nanoseconds(begin.elapsed()), array_write_ns: None, runs: Some(used) })
    }

    /// Takes a range as runs. Returns their number.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::RunTime`] if the address space refuses.
    pub fn take_runs(&self, range: VirtRange, case: PinCase, runs: &mut [PageRun]) -> Result<usize, WorkloadError> {
        let (mut used, mut at) = (0, range.start);
        while at < range.end {
            let bytes = (case.batch as u64).saturating_mul(PAGE);
            let end = VirtAddr(at.0.saturating_add(bytes).min(range.end.0));
            let part = VirtRange { start: at, end };
            let taken = self.space.take_runs(part, case.request, &mut runs[used..]).map_err(WorkloadError::run_time)?;
            used += taken.runs;
            at.0 += taken.pages.0 * PAGE;
        }
        Ok(used)
    }

    /// Releases runs.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::RunTime`] if the yard refuses.
    pub fn release_runs(
        &self,
        runs: &[PageRun],
        call: PinCall,
        refs: RefHandling,
        dirty: Dirty,
    ) -> Result<(), WorkloadError> {
        let released = match call {
            PinCall::Get => self.vm.put_runs(runs, refs),
            PinCall::Pin => self.vm.unpin_runs(runs, refs, dirty),
        };
        released.map_err(WorkloadError::run_time)
    }
}

/// The arrays for frame numbers and runs, reused by every run.
#[derive(Debug)]
pub struct PinBuffers {
    frames: Vec<Pfn>,
    /// Runs of the last call.
    pub runs: Vec<PageRun>,
}

impl PinBuffers {
    /// Creates arrays for `pages` pages, in runs of any length.
    #[must_use]
    pub fn new(pages: usize) -> Self {
        // Not zero, so that the host provides the memory now.
        let run = PageRun { first: Pfn(1), pages: PageCount(1) };
        Self { frames: vec![Pfn(1); pages], runs: vec![run; pages] }
    }
}

/// Nanoseconds to write consecutive frame numbers into an array that was just written, as it was when pages are taken.
fn write_alone(frames: &mut [Pfn]) -> u64 {
    let mut elapsed = 0;
    for _ in 0..2 {
        let first = black_box(FIRST.0);
        let begin = Instant::now();
        for (index, frame) in frames.iter_mut().enumerate() {
            *frame = Pfn(first + index as u64);
        }
        black_box(&mut *frames);
        elapsed = nanoseconds(begin.elapsed());
    }
    elapsed
}
