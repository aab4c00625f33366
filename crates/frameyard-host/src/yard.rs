//! [`HostYard`]: a yard on the memory of this host.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use frameyard::boot::{AttachError, BootError, Initialiser, MemorySource};
use frameyard::{ByteSize, Layout, MemoryTable, NodeId, PfnRange, Yard, YardConfig};
use frameyard_counting::TaskCounters;

use crate::device::{AddDeviceError, DeviceMemory};
use crate::device_map::{DeviceMap, DevicePart, Fresh};
use crate::device_problem::DeviceMapProblem;
use crate::init_watch::InitWatch;
use crate::memory::{Backing, HostMemory, HugePages, MemoryError, NodeBinding, NodeFrames};
use crate::platform::{CpuIdentity, HostPlatform, PopulateMap, RseqUnavailable};
use crate::region::Region;
use crate::shared::{SharedFileError, SharedFrames, SharedLayout, SharedMemoryFile};
use crate::sys::window::MapWindow;
pub use crate::sys::yard::CountingYard;
use crate::sys::yard::OwnedYard;
use crate::topology::HostTopology;

mod devices;

use devices::with_view;

/// A yard and all the memory that it needs: frames, memory map and control region.
///
/// Dereferences to [`Yard`]. Dropping it unmaps everything; in a shared yard, this process's view of it. What it
/// hands out borrows it:
///
/// ```compile_fail,E0505
/// # fn f(yard: frameyard_host::HostYard) {
/// let ranges = yard.memory_ranges();
/// drop(yard);
/// ranges.count();
/// # }
/// ```
#[derive(Debug)]
pub struct HostYard {
    yard: OwnedYard,
}

impl Deref for HostYard {
    type Target = Yard<HostPlatform>;

    #[inline(always)]
    fn deref(&self) -> &Yard<HostPlatform> {
        &self.yard
    }
}

/// How a [`HostYard`] is to be made.
#[derive(Debug)]
pub struct HostYardBuilder {
    backing: Backing,
    huge_pages: HugePages,
    binding: NodeBinding,
    identity: Option<CpuIdentity>,
    map_region: Option<Region>,
    init_watch: Option<InitWatch>,
    populate_map: PopulateMap,
    devices: Vec<(PfnRange, Arc<DeviceMemory>)>,
}

impl Default for HostYardBuilder {
    fn default() -> Self {
        Self {
            backing: Backing::Anonymous,
            huge_pages: HugePages::Advise,
            binding: NodeBinding::Bind,
            identity: None,
            map_region: None,
            init_watch: None,
            populate_map: PopulateMap::No,
            devices: Vec::new(),
        }
    }
}

impl HostYardBuilder {
    /// What stands behind the frames; private memory by default.
    #[must_use]
    pub fn backing(mut self, backing: Backing) -> Self {
        self.backing = backing;
        self
    }

    /// Whether huge pages are advised, for frames and memory map; they are by default. The map of phantom frames
    /// gets them only where its initialiser writes all of it: else it is written at few places.
    #[must_use]
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    /// Whether frames come from the host's nodes that stand for theirs; they do by default.
    #[must_use]
    pub fn node_binding(mut self, binding: NodeBinding) -> Self {
        self.binding = binding;
        self
    }

    /// How threads know their CPU; the fastest way there is by default.
    #[must_use]
    pub fn identity(mut self, identity: CpuIdentity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// The memory of the map, which the caller made and may have pre-faulted. It has to be private and as large as
    /// the layout says; where the initialiser is [`Initialiser::None`], zeroed too. Only [`build`](Self::build)
    /// looks at it.
    #[must_use]
    pub fn map_region(mut self, region: Region) -> Self {
        self.map_region = Some(region);
        self
    }

    /// Lets `watch` see how the memory map comes up, from the creation of the yard on.
    ///
    /// A watch of several yards sees them together. Of a yard in a memory file it sees what this process does.
    #[must_use]
    pub fn init_watch(mut self, watch: &InitWatch) -> Self {
        self.init_watch = Some(watch.clone());
        self
    }

    /// Whether memory for the memory map is asked for before it is written; by default it is not.
    #[must_use]
    pub fn populate_map(mut self, populate: PopulateMap) -> Self {
        self.populate_map = populate;
        self
    }

    /// Gives the yard's platform a device that has the bytes of these frames, as [`HostPlatform::add_device`] does later.
    #[must_use]
    pub fn device(mut self, range: PfnRange, memory: Arc<DeviceMemory>) -> Self {
        self.devices.push((range, memory));
        self
    }

    /// Makes a yard for this process alone. No frame is touched, unless they are all poisoned.
    ///
    /// The memory source is asked once: what it says later changes nothing.
    ///
    /// # Errors
    ///
    /// [`HostYardError`] says which part cannot be had.
    pub fn build(
        mut self,
        memory: &dyn MemorySource,
        config: &YardConfig<'_>,
        host: &HostTopology,
    ) -> Result<HostYard, HostYardError> {
        let memory = CollectedMemory::of(memory);
        let layout = Layout::plan(&memory.table(), config)?;
        let map = self.map_for(&layout, config)?;
        let fresh = if map.is_zeroed() { Fresh::Yes } else { Fresh::No };
        let regions = (map, Region::zeroed(layout.control_bytes(), HugePages::Never)?);
        let frames = HostMemory::builder(config.geometry, &memory.node_frames()).backing(self.backing.clone());
        let frames = match self.backing {
            Backing::Phantom => frames,
            _ => frames.huge_pages(self.huge_pages),
        };
        let platform = self.platform(frames.node_binding(self.binding).build(host)?, host)?;
        let part = config.device_space.and_then(|space| DevicePart::of(layout.frames(), space));
        let with_window = |window: Option<MapWindow>| {
            let map = window.zip(part).map(|(window, part)| DeviceMap::private(window, part, fresh, self.huge_pages));
            let (action, size) = ("keep huge pages off the page structures of devices", layout.map_bytes());
            let map = map.transpose().map_err(|source| MemoryError::System { action, size, source })?;
            Ok(platform.with_device_map(map))
        };
        let yard =
            OwnedYard::create(&memory.table(), config, &layout, regions, part.map(|part| part.piece), with_window)?;
        Ok(HostYard { yard })
    }

    /// Makes a yard in a memory file, for this process and those that inherit the file.
    ///
    /// Of the builder's settings backing, huge pages and binding are not looked at: in a memory file huge pages are
    /// the host's choice, and frames are bound to the host's nodes wherever it has several.
    ///
    /// # Errors
    ///
    /// [`HostYardError`] says which part cannot be had.
    pub fn build_shared(
        self,
        memory: &dyn MemorySource,
        config: &YardConfig<'_>,
        frames: SharedFrames,
        host: &HostTopology,
    ) -> Result<(HostYard, SharedMemoryFile), HostYardError> {
        let memory = CollectedMemory::of(memory);
        let layout = Layout::plan(&memory.table(), config)?;
        let wanted = SharedLayout {
            geometry: config.geometry,
            ranges: &memory.node_frames(),
            frames,
            memory_map: layout.map_bytes(),
            control: layout.control_bytes(),
            map_frames: layout.frames(),
            device_space: config.device_space,
        };
        let file = SharedMemoryFile::create(&wanted, host)?;
        let regions = (file.map_memory_map(HugePages::Default)?, file.map_control(HugePages::Default)?);
        let platform = self.platform(file.map_frames(HugePages::Default, host)?, host)?;
        let piece = file.device_part().map(|part| part.piece);
        let with_view = |window| with_view(platform, window, &file);
        let yard = OwnedYard::create(&memory.table(), config, &layout, regions, piece, with_view)?;
        Ok((HostYard { yard }, file))
    }

    /// A view of the yard that another process has made in a memory file.
    ///
    /// Headers are checked; the rest of the file is trusted to be what yards have written there. A process that
    /// writes to it otherwise can break all that have it mapped.
    ///
    /// # Errors
    ///
    /// [`HostYardError`] where the file holds no finished yard, or one of other frames than the file has, or it
    /// cannot be mapped.
    pub fn attach(self, file: &SharedMemoryFile, host: &HostTopology) -> Result<HostYard, HostYardError> {
        let regions = (file.map_memory_map(HugePages::Default)?, file.map_control(HugePages::Default)?);
        let platform = self.platform(file.map_frames(HugePages::Default, host)?, host)?;
        let piece = file.device_part().map(|part| part.piece);
        let yard = OwnedYard::attach(regions, piece, |window| with_view(platform, window, file))?;
        if !fits(&yard, file) {
            return Err(AttachError::Damaged.into());
        }
        Ok(HostYard { yard })
    }

    /// The region of the memory map: the caller's, where it will do, or a new one.
    fn map_for(&mut self, layout: &Layout, config: &YardConfig<'_>) -> Result<Region, HostYardError> {
        let is_written = config.map_init.initialiser != Initialiser::None;
        let Some(region) = self.map_region.take() else {
            let is_sparse = self.backing == Backing::Phantom && !is_written;
            let advice = if is_sparse { HugePages::Never } else { self.huge_pages };
            return Ok(Region::zeroed(layout.map_bytes(), advice)?);
        };
        if !region.is_private() {
            return Err(HostYardError::MapRegion(MapRegionProblem::Shared));
        }
        if region.size() < layout.map_bytes() {
            let (given, needed) = (region.size(), layout.map_bytes());
            return Err(HostYardError::MapRegion(MapRegionProblem::TooSmall { given, needed }));
        }
        if !is_written && !region.is_zeroed() {
            return Err(HostYardError::MapRegion(MapRegionProblem::NotZeroed));
        }
        Ok(region)
    }

    fn platform(&self, frames: HostMemory, host: &HostTopology) -> Result<HostPlatform, HostYardError> {
        let mut platform = HostPlatform::new(frames, host).with_populate_map(self.populate_map);
        if let Some(watch) = &self.init_watch {
            platform = platform.with_init_watch(watch);
        }
        for (range, memory) in &self.devices {
            platform.add_device(*range, Arc::clone(memory))?;
        }
        match self.identity {
            Some(identity) => Ok(platform.with_identity(identity)?),
            None => Ok(platform),
        }
    }
}

/// Whether all memory of a yard is frames of the file.
fn fits(yard: &Yard<HostPlatform>, file: &SharedMemoryFile) -> bool {
    let is_there = |memory: PfnRange| file.ranges().iter().any(|frames| frames.range.intersection(memory) == memory);
    yard.geometry() == file.geometry() && yard.memory_ranges().all(|(memory, _)| is_there(memory))
}

/// What a [`MemorySource`] said when it was asked.
///
/// The plan, the frames' memory and the yard have to be of the same machine, so a source is not asked twice.
#[derive(Default)]
struct CollectedMemory {
    memory: Vec<(PfnRange, NodeId)>,
    reserved: Vec<PfnRange>,
    cma: Vec<PfnRange>,
}

impl CollectedMemory {
    fn of(source: &dyn MemorySource) -> Self {
        let mut collected = Self::default();
        source.for_each_memory(&mut |range, node| collected.memory.push((range, node)));
        source.for_each_reserved(&mut |range| collected.reserved.push(range));
        source.for_each_cma(&mut |range| collected.cma.push(range));
        collected
    }

    fn table(&self) -> MemoryTable<'_> {
        MemoryTable { memory: &self.memory, reserved: &self.reserved, cma: &self.cma }
    }

    fn node_frames(&self) -> Vec<NodeFrames> {
        self.memory.iter().map(|(range, node)| NodeFrames { range: *range, node: *node }).collect()
    }
}

impl HostYard {
    /// How to make one: private memory with huge pages advised, unless told otherwise.
    #[must_use]
    pub fn builder() -> HostYardBuilder {
        HostYardBuilder::default()
    }

    /// The memory behind the frames.
    #[must_use]
    pub fn memory(&self) -> &HostMemory {
        self.platform().memory()
    }

    /// The region of the memory map.
    #[must_use]
    pub fn map_region(&self) -> &Region {
        self.yard.map()
    }

    /// The control region.
    #[must_use]
    pub fn control_region(&self) -> &Region {
        self.yard.control()
    }

    /// A further view of the yard through which lines of page structures and locks are counted, in `rows`; what is done to
    /// the yard itself is not. `who` says which task runs the caller: a small number, which no two tasks share that use the
    /// view at the same time.
    ///
    /// # Errors
    ///
    /// [`AttachError`], as of any further view.
    pub fn counting<'y, W: Fn() -> u32 + Sync, const LINES: usize>(
        &'y self,
        rows: &'y [TaskCounters<LINES>],
        who: W,
    ) -> Result<CountingYard<'y, W, LINES>, AttachError> {
        self.yard.counting(rows, who)
    }

    /// Ends the yard and gives back the region of its memory map, with whatever stands in it; in a shared yard, this
    /// process's view of it.
    #[must_use]
    pub fn into_map_region(self) -> Region {
        self.yard.into_map()
    }
}

/// Why a yard cannot be made on this host.
#[derive(Debug)]
#[non_exhaustive]
pub enum HostYardError {
    /// Memory, CPUs or options make no yard.
    Boot(BootError),
    /// Memory cannot be had.
    Memory(MemoryError),
    /// The memory file cannot be made or used.
    File(SharedFileError),
    /// The file holds no finished yard.
    Attach(AttachError),
    /// `rseq` was asked for and is not there.
    Rseq(RseqUnavailable),
    /// The region given for the memory map will not do.
    MapRegion(MapRegionProblem),
    /// A device cannot have the frames that it was given for.
    AddDevice(AddDeviceError),
    /// This process cannot join those that agree on the memory map of devices.
    Devices(DeviceMapProblem),
}

/// Why a region cannot be a yard's memory map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MapRegionProblem {
    /// It is smaller than planned.
    TooSmall {
        /// How large it is.
        given: ByteSize,
        /// How large it must be.
        needed: ByteSize,
    },
    /// It was written to, and nobody would write it again.
    NotZeroed,
    /// Other processes may write to it.
    Shared,
}

impl fmt::Display for MapRegionProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall { given, needed } => {
                write!(f, "the region for the memory map has {given}: {needed} are needed")
            }
            Self::NotZeroed => f.write_str(
                "the region for the memory map was written to, and initialiser none counts on zeroes: zero it or choose another initialiser",
            ),
            Self::Shared => f.write_str("the region for the memory map is shared with others: give a private one"),
        }
    }
}

impl std::error::Error for MapRegionProblem {}

impl fmt::Display for HostYardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boot(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
            Self::File(error) => error.fmt(f),
            Self::Attach(error) => error.fmt(f),
            Self::Rseq(error) => error.fmt(f),
            Self::MapRegion(problem) => problem.fmt(f),
            Self::AddDevice(error) => error.fmt(f),
            Self::Devices(problem) => problem.fmt(f),
        }
    }
}

impl std::error::Error for HostYardError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // Each prints as what it holds, so what comes next is the source of that.
        match self {
            Self::Boot(error) => error.source(),
            Self::Memory(error) => error.source(),
            Self::File(error) => error.source(),
            Self::Attach(error) => error.source(),
            Self::Rseq(error) => error.source(),
            Self::MapRegion(problem) => problem.source(),
            Self::AddDevice(error) => error.source(),
            Self::Devices(problem) => problem.source(),
        }
    }
}

macro_rules! from_errors {
    ($($error:ident => $variant:ident),*) => {
        $(impl From<$error> for HostYardError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })*
    };
}

from_errors!(BootError => Boot, MemoryError => Memory, SharedFileError => File, AttachError => Attach, RseqUnavailable => Rseq,
    AddDeviceError => AddDevice,
    DeviceMapProblem => Devices);
