//! `device-map`: writes page structures for device memory, measures them and removes them.
//!
//! Device frames have no memory behind them, so a device may be larger than the host. Its page structures are real. Each run
//! also measures how long the host takes to provide the same memory when one byte of each page is written.

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use frameyard::boot::BootError;
use frameyard::devices::{DeviceInfo, DeviceRequest, MapLayout, MapPlacement, Removal};
use frameyard::{ByteSize, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig};
use frameyard_host::{
    Backing, DeviceMapProblem, HostDeviceError, HostTopology, HostYard, HostYardError, HugePages, Region,
    page_table_bytes,
};

use crate::error::WorkloadError;
use crate::measure::nanoseconds;

/// Memory of the yard besides the device: 64 MiB from 4 GiB on.
const MEMORY: PfnRange = PfnRange { start: Pfn(0x10_0000), end: Pfn(0x10_4000) };
/// The first device frame, a multiple of the largest pages.
const FIRST: Pfn = Pfn(0x20_0000);
/// The size of a page structure.
const PAGE_STRUCTURE: u64 = 64;
/// The size of a page of the host, and of a frame.
const PAGE: u64 = 4096;

/// Whether the yard is private to the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum YardSharing {
    /// A yard of this process alone.
    Private,
    /// A yard in a memory file, which other processes may attach to.
    Shared,
}

impl YardSharing {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Private, Self::Shared];

    /// The name on command lines and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Shared => "shared",
        }
    }
}

/// A device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceShape {
    /// Its size.
    pub size: ByteSize,
    /// The order of its pages.
    pub order: Order,
    /// Which page structures are written.
    pub layout: MapLayout,
}

impl DeviceShape {
    fn frames(self) -> PageCount {
        PageCount(self.size.0 / PAGE)
    }

    /// Number of compound pages, or of base pages for order 0.
    pub fn pages(self) -> u64 {
        self.frames().0 >> self.order.0
    }

    /// Bytes from head to head in a memory map with a structure for each frame.
    fn stride(self) -> u64 {
        PAGE_STRUCTURE << self.order.0
    }

    /// Bytes of each compound page's structures that are written, in whole pages, if the rest are shared tails.
    fn kept(self) -> Option<u64> {
        let kept = match self.layout {
            MapLayout::Deduplicated => PAGE,
            MapLayout::DeduplicatedTwo => 2 * PAGE,
            MapLayout::Full | MapLayout::Folded => return None,
        };
        (self.stride() > kept).then_some(kept)
    }

    /// One of `pieces` equal parts.
    #[must_use]
    pub fn piece(self, pieces: NonZeroU64) -> Self {
        Self { size: ByteSize(self.size.0 / pieces), ..self }
    }

    /// Host memory that a run needs, roughly: the page structures written, and page tables for those read.
    pub fn needs(self) -> ByteSize {
        let addresses = if self.layout == MapLayout::Folded { 0 } else { self.frames().0 * PAGE_STRUCTURE };
        ByteSize(self.map_bytes().0 + addresses / (PAGE / 8))
    }

    /// Memory of the page structures, computed from their number.
    pub fn map_bytes(self) -> ByteSize {
        ByteSize(match self.layout {
            MapLayout::Folded => (self.pages() * PAGE_STRUCTURE).next_multiple_of(PAGE),
            _ => self.kept().map_or(self.frames().0 * PAGE_STRUCTURE, |kept| self.pages() * kept),
        })
    }
}

/// The result of a run: memory and time of the page structures. Of several pieces the sums, and the most mappings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceMapRun {
    /// The number of page structures that were written.
    pub structures: u64,
    /// Memory that they take, as the yard reports it.
    pub map_bytes: ByteSize,
    /// Proportional set size of the map after every tail was read.
    pub resident: ByteSize,
    /// Growth of the process's page tables.
    pub page_tables: ByteSize,
    /// Mappings (VMAs) of the map.
    pub mappings: u64,
    /// Time to write the page structures.
    pub bring_up_ns: u64,
    /// Time to remove the device.
    pub remove_ns: u64,
    /// Time in which the host provides the same pages, when only one byte of each is written.
    pub host_fault_ns: u64,
}

impl DeviceMapRun {
    /// The results of this run and of a run of another piece of the same device.
    fn and(self, piece: Self) -> Self {
        Self {
            structures: self.structures + piece.structures,
            map_bytes: ByteSize(self.map_bytes.0 + piece.map_bytes.0),
            resident: ByteSize(self.resident.0 + piece.resident.0),
            page_tables: ByteSize(self.page_tables.0 + piece.page_tables.0),
            mappings: self.mappings.max(piece.mappings),
            bring_up_ns: self.bring_up_ns + piece.bring_up_ns,
            remove_ns: self.remove_ns + piece.remove_ns,
            host_fault_ns: self.host_fault_ns + piece.host_fault_ns,
        }
    }
}

/// A yard with space for one device.
#[derive(Debug)]
pub struct DeviceMapFixture {
    yard: HostYard,
    threads: NonZeroUsize,
}

impl DeviceMapFixture {
    /// Creates a yard with space for a device of `size`, and with one CPU for each that this process may use.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::Input`] if no yard can have a device of this size.
    pub fn new(size: ByteSize, sharing: YardSharing, host: &HostTopology) -> Result<Self, WorkloadError> {
        let threads = NonZeroUsize::new(host.allowed().as_slice().len()).unwrap_or(NonZeroUsize::MIN);
        let cpus = vec![NodeId(0); threads.get()];
        let space = PfnRange::new(FIRST, PageCount(size.0.div_ceil(PAGE)));
        let config = YardConfig { device_space: Some(space), ..YardConfig::new(&cpus) };
        let memory = MemoryTable { memory: &[(MEMORY, NodeId(0))], ..MemoryTable::default() };
        let builder = HostYard::builder().machine(&memory, &config).host(host).backing(Backing::Phantom);
        let made = match sharing {
            YardSharing::Private => builder.build(),
            YardSharing::Shared => builder.shared().build(),
        };
        let yard = made.map_err(|error| match error {
            HostYardError::Boot(error) if !BootError::is_at_run_time(&error) => WorkloadError::input(error),
            other => WorkloadError::run_time(other),
        })?;
        Ok(Self { yard, threads })
    }

    /// The most threads that write page structures.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.get()
    }

    /// Runs a device in equal pieces, one after another, each in its own part of the map. A piece is removed before the next is
    /// mapped, so the host needs memory for the page structures of one piece.
    ///
    /// # Errors
    ///
    /// As [`Self::run`].
    pub fn run_in_pieces(
        &self,
        shape: DeviceShape,
        pieces: NonZeroU64,
    ) -> Result<Result<DeviceMapRun, String>, WorkloadError> {
        let (piece, mut all) = (shape.piece(pieces), DeviceMapRun::default());
        for number in 0..pieces.get() {
            match self.run_at(FIRST + PageCount(number * piece.frames().0), piece)? {
                Ok(run) => all = all.and(run),
                Err(reason) => return Ok(Err(reason)),
            }
        }
        Ok(Ok(all))
    }

    /// Maps a device, reads all of its page structures, and removes it. The inner error is the reason why the device would need
    /// more mappings than a process may have.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::RunTime`] if the host refuses, or if the page structures are wrong.
    pub fn run(&self, shape: DeviceShape) -> Result<Result<DeviceMapRun, String>, WorkloadError> {
        self.run_at(FIRST, shape)
    }

    fn run_at(&self, first: Pfn, shape: DeviceShape) -> Result<Result<DeviceMapRun, String>, WorkloadError> {
        let tables_before = page_table_bytes().map_err(WorkloadError::run_time)?;
        let range = PfnRange::new(first, shape.frames());
        let DeviceShape { order, layout, .. } = shape;
        let request = DeviceRequest { range, node: NodeId(0), order, layout, placement: MapPlacement::Memory };
        let begin = Instant::now();
        let id = match self.yard.map_device(request) {
            Err(HostDeviceError::Map { problem: problem @ DeviceMapProblem::Mappings { .. }, .. }) => {
                return Ok(Err(problem.to_string()));
            }
            mapped => mapped.map_err(WorkloadError::run_time)?,
        };
        let bring_up_ns = nanoseconds(begin.elapsed());
        let device = self.yard.devices().at(first).ok_or_else(|| WorkloadError::run_time(format!("{id} has gone")))?;
        self.read_structures(&device)?;
        let offset = self.map_offset(first)?;
        let addresses = ByteSize(shape.frames().0 * PAGE_STRUCTURE);
        let used = self.yard.map_region().memory_use(offset, addresses).map_err(WorkloadError::run_time)?;
        let tables = page_table_bytes().map_err(WorkloadError::run_time)?;
        let begin = Instant::now();
        self.yard.devices().unmap(id, Removal::Refuse).map_err(WorkloadError::run_time)?;
        let remove_ns = nanoseconds(begin.elapsed());
        Ok(Ok(DeviceMapRun {
            structures: device.structures,
            map_bytes: device.map_bytes,
            resident: used.proportional,
            page_tables: ByteSize(tables.0.saturating_sub(tables_before.0)),
            mappings: used.mappings,
            bring_up_ns,
            remove_ns,
            host_fault_ns: self.host_faults(shape)?,
        }))
    }

    /// Where in the map the page structures from a frame on lie.
    fn map_offset(&self, first: Pfn) -> Result<ByteSize, WorkloadError> {
        self.yard.core().map_offset(first).ok_or_else(|| WorkloadError::run_time("the yard has no room for the device"))
    }

    /// Reads the first word of every page structure, tails included, and checks that exactly the heads are not zero. A folded
    /// map has no tails, so there it looks up every frame.
    fn read_structures(&self, device: &DeviceInfo) -> Result<(), WorkloadError> {
        let written = if device.layout == MapLayout::Folded {
            let frames = (device.range.start.0..device.range.end.0).map(Pfn);
            let heads = frames.filter(|pfn| self.yard.devices().page(*pfn).is_some_and(|page| page.head() == *pfn));
            heads.count() as u64
        } else {
            let first = self.map_offset(device.range.start)?.0 as usize / 8;
            // SAFETY: the words are only read, as atomics like the yard's own reads, and only this thread maps and removes devices.
            let words = unsafe { self.yard.map_region().words() };
            let words = &words[first..first + device.range.count().0 as usize * 8];
            words.iter().step_by(8).filter(|word| word.load(Ordering::Relaxed) != 0).count() as u64
        };
        let (expected, layout) = (device.pages().0, device.layout);
        if written == expected {
            return Ok(());
        }
        Err(WorkloadError::run_time(format!(
            "{written} page structures are not zero, where {layout} has {expected} heads"
        )))
    }

    /// Time in which the host provides the pages of such page structures, on the same number of threads.
    fn host_faults(&self, shape: DeviceShape) -> Result<u64, WorkloadError> {
        let Some(kept) = shape.kept() else {
            let region = Region::zeroed(shape.map_bytes(), HugePages::Advise).map_err(WorkloadError::run_time)?;
            let begin = Instant::now();
            region.prefault(self.threads, &mut |_| {}).map_err(WorkloadError::run_time)?;
            return Ok(nanoseconds(begin.elapsed()));
        };
        let (stride, pages) = (shape.stride() as usize, shape.pages() as usize);
        let mut region = Region::zeroed(ByteSize(stride as u64 * pages as u64), HugePages::Never)
            .map_err(WorkloadError::run_time)?;
        let bytes = region.bytes_mut().ok_or_else(|| WorkloadError::run_time("new memory is shared"))?;
        let share = pages.div_ceil(self.threads.get()) * stride;
        let begin = Instant::now();
        thread::scope(|scope| {
            for part in bytes.chunks_mut(share) {
                scope.spawn(|| {
                    for structures in part.chunks_mut(stride) {
                        structures[..kept as usize].iter_mut().step_by(PAGE as usize).for_each(|byte| *byte = 1);
                    }
                });
            }
        });
        Ok(nanoseconds(begin.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_computed_size_of_a_map_is_that_of_the_yard() {
        let host = HostTopology::current().unwrap();
        let size = ByteSize::gib(2);
        let fixture = DeviceMapFixture::new(size, YardSharing::Private, &host).unwrap();
        for order in [Order(0), Order(9), Order(18)] {
            for layout in MapLayout::ALL {
                let shape = DeviceShape { size, order, layout };
                let run = fixture.run(shape).unwrap().unwrap();
                assert_eq!(run.map_bytes, shape.map_bytes(), "{shape:?}");
                let least = ByteSize(run.structures * 64);
                assert!(run.resident >= least && run.resident <= shape.map_bytes(), "{shape:?}: {}", run.resident);
            }
        }
        fixture.yard.validate().unwrap();
    }

    #[test]
    fn pieces_take_the_memory_of_the_whole_device() {
        let host = HostTopology::current().unwrap();
        let size = ByteSize::gib(2);
        let fixture = DeviceMapFixture::new(size, YardSharing::Private, &host).unwrap();
        let shape = DeviceShape { size, order: Order(0), layout: MapLayout::Full };
        let memory = |run: DeviceMapRun| (run.structures, run.map_bytes, run.resident);
        let whole = fixture.run(shape).unwrap().unwrap();
        let pieces = fixture.run_in_pieces(shape, NonZeroU64::new(8).unwrap()).unwrap().unwrap();
        assert_eq!(memory(pieces), memory(whole));
    }
}
