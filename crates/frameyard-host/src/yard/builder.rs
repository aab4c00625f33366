//! [`HostYardBuilder`]: the settings of a new yard.

use std::fs::File;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use frameyard::boot::{AttachError, Initialiser, MemorySource};
use frameyard::policy::ZonePolicy;
use frameyard::units::GeometryError;
use frameyard::{ByteSize, Geometry, Layout, MemoryTable, NodeId, Pfn, PfnRange, Platform, Yard, YardConfig};

use super::HostYard;
use super::error::{HostYardError, MapRegionProblem};
use super::plan::HostPlan;
use crate::device::DeviceMemory;
use crate::device_map::{DeviceMap, Fresh};
use crate::device_part::DevicePart;
use crate::init_watch::InitWatch;
use crate::mapped::yard::OwnedYard;
use crate::memory::{Backing, HostMemory, HugePages, MemoryError, NodeBinding, NodeFrames, in_memory};
use crate::platform::{CpuIdentity, HostPlatform, ListAccess, PopulateMap};
use crate::region::Region;
use crate::shared::process::Attachment;
use crate::shared::view::SharedView;
use crate::shared::{SharedFrames, SharedLayout, SharedMemoryFile};
use crate::sys::private_yards;
use crate::sys::window::MapWindow;
use crate::topology::HostTopology;

/// The settings of a new [`HostYard`].
#[derive(Debug)]
pub struct HostYardBuilder {
    backing: Backing,
    frame_size: ByteSize,
    cpus: Option<NonZeroU32>,
    huge_pages: Option<HugePages>,
    map_huge_pages: Option<HugePages>,
    binding: NodeBinding,
    identity: Option<CpuIdentity>,
    list_access: ListAccess,
    map_region: Option<Region>,
    init_watch: Option<InitWatch>,
    populate_map: PopulateMap,
    lock_limit: Duration,
    devices: Vec<(PfnRange, Arc<DeviceMemory>)>,
    device_space: ByteSize,
    policy: ZonePolicy,
}

impl Default for HostYardBuilder {
    fn default() -> Self {
        Self {
            backing: Backing::default(),
            frame_size: Geometry::X86_64.page_size(),
            cpus: None,
            huge_pages: None,
            map_huge_pages: None,
            binding: NodeBinding::default(),
            identity: None,
            list_access: ListAccess::default(),
            map_region: None,
            init_watch: None,
            populate_map: PopulateMap::default(),
            lock_limit: Duration::from_secs(10),
            devices: Vec::new(),
            device_space: ByteSize(0),
            policy: ZonePolicy::default(),
        }
    }
}

impl HostYard {
    /// Starts with the default settings: private memory, huge pages where the host has them.
    #[must_use]
    pub fn builder() -> HostYardBuilder {
        HostYardBuilder::default()
    }

    /// A yard with at least `size` of private memory, and with the CPUs and nodes of this host.
    ///
    /// The size is rounded up to multiples of 4 MiB. No two yards of a process that are made by size have a frame number in common, and blocks of up to
    /// 1 GiB are aligned to their size in memory. The frames are backed by huge pages where the
    /// host has them and take no memory until they are touched. A small part of the memory is reserved for urgent
    /// requests, as in any yard ([watermarks](frameyard::watermarks::Watermarks)). Use the [builder](Self::builder) for
    /// everything else.
    ///
    /// ```
    /// use frameyard_host::{ByteSize, Gfp, HostYard, Order};
    ///
    /// let yard = HostYard::with_memory(ByteSize::mib(64))?;
    /// let mut block = yard.frames(Order(9), Gfp::HIGHUSER_MOVABLE)?;
    /// block.bytes_mut()[0] = 42;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`HostYardError::TooSmall`] for less than 4 MiB, [`HostYardError::Memory`] if this process may not use as much.
    pub fn with_memory(size: ByteSize) -> Result<Self, HostYardError> {
        Self::builder().with_memory(size)
    }
}

impl HostYardBuilder {
    /// The memory behind the frames; private memory by default.
    #[must_use]
    pub fn backing(mut self, backing: Backing) -> Self {
        self.backing = backing;
        self
    }

    /// The size of a frame in yards that [`with_memory`](Self::with_memory) makes: a power of two from 4 KiB, the default, to 1 GiB.
    ///
    /// A yard allocates whole frames, and keeps a page structure and part of its tables for each. With frames of 2 MiB it serves no smaller
    /// requests, and they take 0.004 % of its memory instead of 1.6 %; lists of each CPU on each node come on top. Frames start at
    /// multiples of their size in memory. Orders count in frames: `Order(0)` is one frame, and
    /// [`Geometry::block_order`](frameyard::Geometry::block_order) has the order for a size. The statistics and the formats of the kernel
    /// count such frames as pages, as a kernel with larger pages does. See [`Geometry::of_frames`](frameyard::Geometry::of_frames) for
    /// the other sizes of such a yard. [`build`](Self::build) takes the frame size from its configuration.
    ///
    /// ```
    /// use frameyard_host::{ByteSize, Gfp, HostYard, Order};
    ///
    /// let yard = HostYard::builder().frame_size(ByteSize::mib(2)).with_memory(ByteSize::mib(64))?;
    /// let frame = yard.frames(Order(0), Gfp::HIGHUSER_MOVABLE | Gfp::ZERO)?;
    /// assert_eq!(frame.bytes().len(), 2 << 20);
    /// let larger = yard.frames(yard.geometry().block_order(ByteSize::mib(8))?, Gfp::KERNEL)?;
    /// assert_eq!(larger.bytes().len(), 8 << 20);
    /// assert!(yard.geometry().block_order(ByteSize::kib(64)).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn frame_size(mut self, size: ByteSize) -> Self {
        self.frame_size = size;
        self
    }

    /// The number of CPUs that have lists of their own in yards that [`with_memory`](Self::with_memory) makes; by default all CPU numbers
    /// of the host.
    ///
    /// Further CPUs share these lists, so CPUs lock them. A number above the host's has no effect.
    #[must_use]
    pub fn cpus(mut self, cpus: NonZeroU32) -> Self {
        self.cpus = Some(cpus);
        self
    }

    /// Whether the host is advised to use huge pages for frames and memory map.
    ///
    /// By default it is, if it has any. The map of phantom frames gets the advice only if its initialiser writes all of
    /// it; otherwise few places are written.
    #[must_use]
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.huge_pages = Some(huge_pages);
        self
    }

    /// Whether the host is advised to use huge pages for the memory map; by default as for the frames.
    ///
    /// The map takes 1.6 % of the memory. A new yard writes few places of it. With huge pages the whole map becomes resident at once, and
    /// the processor reads it with fewer translations. With [`HugePages::Never`] it becomes resident with the memory that is used.
    #[must_use]
    pub fn map_huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.map_huge_pages = Some(huge_pages);
        self
    }

    /// Whether frames of a node come from the host node that stands for it; by default they do.
    #[must_use]
    pub fn node_binding(mut self, binding: NodeBinding) -> Self {
        self.binding = binding;
        self
    }

    /// How threads find out their CPU; the fastest available way by default.
    #[must_use]
    pub fn identity(mut self, identity: CpuIdentity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Sets how CPUs use their own lists in a private yard. Shared yards lock them.
    #[must_use]
    pub fn list_access(mut self, access: ListAccess) -> Self {
        self.list_access = access;
        self
    }

    /// A region for the memory map, which the caller may have pre-faulted.
    ///
    /// It must be private and at least as large as the layout says. It must be zeroed if the initialiser is
    /// [`Initialiser::None`]. Only [`build`](Self::build) uses it.
    #[must_use]
    pub fn map_region(mut self, region: Region) -> Self {
        self.map_region = Some(region);
        self
    }

    /// Reports the progress of initialising the memory map to `watch`, starting with the creation of the yard.
    ///
    /// A watch of several yards sees their sum. For a yard in a memory file it sees the work of this process.
    #[must_use]
    pub fn init_watch(mut self, watch: &InitWatch) -> Self {
        self.init_watch = Some(watch.clone());
        self
    }

    /// Whether the host provides memory for the memory map before it is written; by default it does not.
    #[must_use]
    pub fn populate_map(mut self, populate: PopulateMap) -> Self {
        self.populate_map = populate;
        self
    }

    /// How long a thread of this process waits at most for a lock of a shared yard that a process holds which is stopped;
    /// 10 seconds by default. The call then fails with [`LockError::LockStuck`](frameyard::platform::LockError::LockStuck), or with
    /// [`DeviceMapProblem::Changing`](crate::DeviceMapProblem::Changing) if it waits for the right to change views of the memory map.
    ///
    /// A holder that has died is noticed earlier. Private yards have no limit.
    #[must_use]
    pub fn lock_limit(mut self, limit: Duration) -> Self {
        self.lock_limit = limit;
        self
    }

    /// Adds a device with the bytes of these frames to the platform. [`HostPlatform::add_device`] does so later.
    #[must_use]
    pub fn device(mut self, range: PfnRange, memory: Arc<DeviceMemory>) -> Self {
        self.devices.push((range, memory));
        self
    }

    /// Room for devices of that size in yards that [`with_memory`](Self::with_memory) makes; by default there is none.
    ///
    /// It is rounded up to whole sections, and lies behind the memory: [`YardDevices::space`](frameyard::views::YardDevices::space) is where.
    /// The memory map reserves addresses for its page structures, 64 bytes for each frame.
    #[must_use]
    pub fn device_space(mut self, size: ByteSize) -> Self {
        self.device_space = size;
        self
    }

    /// The policy of yards that [`with_memory`](Self::with_memory) makes. [`build`](Self::build) takes it from its configuration instead.
    ///
    /// A yard cannot change to or from some policies later: see [`ZonePolicy::is_changeable`].
    #[must_use]
    pub fn policy(mut self, policy: ZonePolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Makes a yard with at least `size` of memory, and with the CPUs and nodes of this host.
    ///
    /// See [`HostYard::with_memory`].
    ///
    /// # Errors
    ///
    /// [`HostYardError`] says which part is not available.
    pub fn with_memory(self, size: ByteSize) -> Result<HostYard, HostYardError> {
        let host = HostTopology::current()?;
        let plan = self.plan(size, &host, HostPlan::with_numbers_of_its_own)?;
        self.build(&plan.table(), &plan.config(), &host)
    }

    /// Makes a yard for this process alone. Touches no frame, unless frames are poisoned.
    ///
    /// Calls the memory source once. Later changes to what it reports have no effect.
    ///
    /// # Errors
    ///
    /// [`HostYardError`] says which part is not available.
    pub fn build(
        mut self,
        memory: &dyn MemorySource,
        config: &YardConfig<'_>,
        host: &HostTopology,
    ) -> Result<HostYard, HostYardError> {
        let memory = CollectedMemory::of(memory);
        let layout = Layout::plan(&memory.table(), config)?;
        let huge_pages = self.huge_pages_on(host);
        let map = self.map_for(&layout, config, self.map_huge_pages.unwrap_or(huge_pages))?;
        let fresh = if map.is_zeroed() { Fresh::Yes } else { Fresh::No };
        let regions = (map, Region::zeroed(layout.control_bytes(), HugePages::Never)?);
        let frames = HostMemory::builder(config.geometry, &memory.node_frames()).backing(self.backing.clone());
        let frames = match self.backing {
            Backing::Phantom => frames,
            _ => frames.huge_pages(huge_pages),
        };
        let platform = self.platform(frames.node_binding(self.binding).build(host)?, host)?;
        let platform = match self.list_access {
            ListAccess::Sequences => platform.with_sequences(config.cpus.len() as u32),
            ListAccess::Locked => platform,
        };
        let devices = config.device_space.zip(layout.device_map_offset());
        let part = devices.and_then(|(space, offset)| DevicePart::of(space, offset));
        let with_window = |window: Option<MapWindow>| -> Result<HostPlatform, HostYardError> {
            let map = window.zip(part).map(|(window, part)| DeviceMap::private(window, part, fresh, huge_pages));
            let (action, size) = ("keep huge pages off the page structures of devices", layout.map_bytes());
            let map = map.transpose().map_err(|source| MemoryError::System { action, size, source })?;
            Ok(platform.with_device_map(map))
        };
        let size = layout.control_bytes();
        let handlers = |source| MemoryError::System { action: "install fork handlers", size, source };
        private_yards::install_hook().map_err(handlers)?;
        let mut yard =
            OwnedYard::create(&memory.table(), config, &layout, regions, part.map(|part| part.piece), with_window)?;
        yard.make_fork_safe()?;
        Ok(HostYard { yard })
    }

    /// Makes a yard in a memory file without a name, for this process and the programs that inherit the file.
    ///
    /// Ignores the settings for backing, huge pages and binding: the host decides on huge pages of memory files, and
    /// frames are bound to the host's nodes if it has several.
    ///
    /// # Errors
    ///
    /// [`HostYardError`] says which part is not available.
    pub fn build_shared(
        self,
        memory: &dyn MemorySource,
        config: &YardConfig<'_>,
        frames: SharedFrames,
        host: &HostTopology,
    ) -> Result<(HostYard, SharedMemoryFile), HostYardError> {
        self.build_shared_in(in_memory, memory, config, frames, host)
    }

    /// The same in a memory file that `make` creates.
    fn build_shared_in(
        self,
        make: impl FnOnce(u64) -> Result<File, MemoryError>,
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
            devices: config.device_space.zip(layout.device_map_offset()),
        };
        let file = SharedMemoryFile::create_in(make, &wanted, host)?;
        let regions = (file.map_memory_map(HugePages::Default)?, file.map_control(HugePages::Default)?);
        let attachment = Arc::new(file.take_place()?);
        let platform = self.platform(file.map_frames(HugePages::Default, host)?, host)?;
        let platform = platform.with_attachment(Arc::clone(&attachment), self.lock_limit);
        let piece = file.device_part().map(|part| part.piece);
        let with_view = |window| with_view(platform, window, &file, (attachment, self.lock_limit));
        let yard = OwnedYard::create(&memory.table(), config, &layout, regions, piece, with_view)?;
        Ok((HostYard { yard }, file))
    }

    /// Makes a yard with at least `size` of memory in a file that `make` creates, with the CPUs and nodes of this host.
    pub(crate) fn with_memory_in(
        self,
        make: impl FnOnce(u64) -> Result<File, MemoryError>,
        size: ByteSize,
        host: &HostTopology,
    ) -> Result<HostYard, HostYardError> {
        let plan = self.plan(size, host, HostPlan::with_random_numbers)?;
        let (yard, _) = self.build_shared_in(make, &plan.table(), &plan.config(), SharedFrames::Memory, host)?;
        Ok(yard)
    }

    /// Makes a view of the yard that another process has created in a memory file.
    ///
    /// Checks the headers of file and yard, and the tables that sizes and places follow from.
    ///
    /// # Errors
    ///
    /// [`HostYardError`] if the file contains no complete yard, or one of frames that the file lacks, or if it cannot
    /// be mapped. [`HostYardError::Lock`] if the yard is damaged: a process ended inside a call, or its lists are corrupt.
    ///
    /// # Safety
    ///
    /// Only yards write to the file while this one is used: the yard that made it and those attached to it. Owners of frames write
    /// to their own frames. A view checks the links and indices in the file, so a process that writes anything else there cannot make
    /// it access memory outside the yard. But it can change the bytes of frames that this process borrows, and give one frame to two
    /// owners. Attach only files of trusted processes.
    #[expect(unsafe_code, reason = "passes the contract on")]
    pub unsafe fn attach(self, file: &SharedMemoryFile, host: &HostTopology) -> Result<HostYard, HostYardError> {
        let regions = (file.map_memory_map(HugePages::Default)?, file.map_control(HugePages::Default)?);
        let attachment = Arc::new(file.take_place()?);
        let platform = self.platform(file.map_frames(HugePages::Default, host)?, host)?;
        let platform = platform.with_attachment(Arc::clone(&attachment), self.lock_limit);
        let piece = file.device_part().map(|part| part.piece);
        // SAFETY: the file's parts for map and control region; passed on to the caller.
        let yard = unsafe {
            OwnedYard::attach(regions, piece, |window| {
                with_view(platform, window, file, (attachment, self.lock_limit))
            })?
        };
        if !fits(&yard, file) {
            return Err(AttachError::Damaged.into());
        }
        if let Some(error) = yard.platform().lock_error() {
            return Err(HostYardError::Lock(error));
        }
        Ok(HostYard { yard })
    }

    /// A view of the yard in a memory file that reads it: without a place among its processes, and without the bytes of frames. What it
    /// would write stays in this process. Also returns a mapping of the table of processes.
    pub(crate) fn observe(
        self,
        file: &SharedMemoryFile,
        host: &HostTopology,
    ) -> Result<(HostYard, Region), HostYardError> {
        let [map, control, processes] = file.observe()?;
        let platform = self.platform(file.phantom_frames(), host)?;
        // SAFETY: the two parts of one file. The yard checks what it reads there (see `attach`), so that a process which writes
        // anything else cannot make it access memory outside the yard. This view has no frames to lose.
        #[expect(unsafe_code, reason = "makes a second view of a yard, whose checks suffice without frames")]
        let yard = unsafe { OwnedYard::attach((map, control), None, |_| Ok::<_, HostYardError>(platform))? };
        if !fits(&yard, file) {
            return Err(AttachError::Damaged.into());
        }
        Ok((HostYard { yard }, processes))
    }

    /// The plan of a yard of that size, which `number` gives its frame numbers.
    fn plan<F>(&self, size: ByteSize, host: &HostTopology, number: F) -> Result<HostPlan, HostYardError>
    where
        F: FnOnce(Geometry, &dyn Fn(Pfn) -> Result<HostPlan, HostYardError>) -> Result<HostPlan, HostYardError>,
    {
        let geometry = self.geometry()?;
        number(geometry, &|first| {
            let plan = HostPlan::new(host, geometry, size, first)?;
            plan.with_cpus(self.cpus).with_policy(self.policy).with_device_space(self.device_space)
        })
    }

    /// The geometry of yards that are requested by size alone.
    fn geometry(&self) -> Result<Geometry, GeometryError> {
        if self.frame_size == Geometry::X86_64.page_size() {
            return Ok(Geometry::X86_64);
        }
        Geometry::of_frames(self.frame_size)
    }

    fn huge_pages_on(&self, host: &HostTopology) -> HugePages {
        let by_default = || if host.huge_page_mode().is_some() { HugePages::Advise } else { HugePages::Default };
        self.huge_pages.unwrap_or_else(by_default)
    }

    /// The region of the memory map: the caller's if it is suitable, or a new one.
    fn map_for(
        &mut self,
        layout: &Layout,
        config: &YardConfig<'_>,
        huge_pages: HugePages,
    ) -> Result<Region, HostYardError> {
        let is_written = config.map_init.initialiser != Initialiser::None;
        let Some(region) = self.map_region.take() else {
            let is_sparse = self.backing == Backing::Phantom && !is_written;
            let advice = if is_sparse { HugePages::Never } else { huge_pages };
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

/// Adds a view of the part of a shared memory map for devices to a platform.
fn with_view(
    platform: HostPlatform,
    window: Option<MapWindow>,
    file: &SharedMemoryFile,
    (attachment, lock_limit): (Arc<Attachment>, Duration),
) -> Result<HostPlatform, HostYardError> {
    let Some((window, part)) = window.zip(file.device_part()) else { return Ok(platform) };
    let window = Arc::new(window);
    let words = file.map_view_words()?;
    let map = file.map_file(part.piece.offset)?;
    let view = SharedView::attach(Arc::clone(&window), map, words, attachment, lock_limit)?;
    Ok(platform.with_device_map(Some(DeviceMap::shared(window, part, view))))
}

/// Whether all memory of a yard consists of frames of the file.
fn fits(yard: &Yard<HostPlatform>, file: &SharedMemoryFile) -> bool {
    let is_there = |memory: PfnRange| file.ranges().iter().any(|frames| frames.range.intersection(memory) == memory);
    yard.geometry() == file.geometry() && yard.memory_ranges().all(|(memory, _)| is_there(memory))
}

/// The answers of a [`MemorySource`].
///
/// Plan, frames and yard must describe the same machine, so the source is called only once.
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
