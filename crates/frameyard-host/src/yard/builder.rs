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
///
/// [`with_memory`](Self::with_memory) and [`SharedYard::create_with`](crate::SharedYard::create_with) make yards *by size*,
/// with the CPUs and nodes of this host. [`build`](Self::build) and [`build_shared`](Self::build_shared) take a memory table
/// and a configuration instead.
///
/// A setting that does not apply to the yard is an error ([`HostYardError::Setting`]); none is ignored:
///
/// | settings | `with_memory` | `build` | `create_with` | `build_shared` | [`attach`](Self::attach) |
/// |---|---|---|---|---|---|
/// | `frame_size`, `cpus`, `device_space`, `policy` | apply | error | apply | error | error |
/// | `backing`, `huge_pages`, `map_huge_pages`, `node_binding`, `list_access`, `map_region` | apply | apply | error | error | error |
/// | all others | apply | apply | apply | apply | apply |
///
/// `build` and `build_shared` find the settings of the first row in the configuration, and `attach` finds them in the yard.
#[derive(Debug)]
pub struct HostYardBuilder {
    backing: Option<Backing>,
    frame_size: Option<ByteSize>,
    cpus: Option<NonZeroU32>,
    huge_pages: Option<HugePages>,
    map_huge_pages: Option<HugePages>,
    binding: Option<NodeBinding>,
    identity: Option<CpuIdentity>,
    list_access: Option<ListAccess>,
    map_region: Option<Region>,
    init_watch: Option<InitWatch>,
    populate_map: PopulateMap,
    lock_limit: Duration,
    devices: Vec<(PfnRange, Arc<DeviceMemory>)>,
    device_space: Option<ByteSize>,
    policy: Option<ZonePolicy>,
}

impl Default for HostYardBuilder {
    fn default() -> Self {
        Self {
            backing: None,
            frame_size: None,
            cpus: None,
            huge_pages: None,
            map_huge_pages: None,
            binding: None,
            identity: None,
            list_access: None,
            map_region: None,
            init_watch: None,
            populate_map: PopulateMap::default(),
            lock_limit: Duration::from_secs(10),
            devices: Vec::new(),
            device_space: None,
            policy: None,
        }
    }
}

impl HostYard {
    /// A builder with the default settings: private memory, in huge pages where the host has them.
    #[must_use]
    pub fn builder() -> HostYardBuilder {
        HostYardBuilder::default()
    }

    /// Makes a private yard with at least `size` of memory, and with the CPUs and nodes of this host.
    ///
    /// The size is rounded up to a multiple of 4 MiB. The frames take no memory until they are touched, and are backed
    /// by huge pages where the host has them. A small part is reserved for urgent requests, as in any yard
    /// ([watermarks](frameyard::watermarks::Watermarks)). Blocks of up to 1 GiB are aligned to their size in memory. No
    /// two yards that a process makes by size have a frame number in common. Use the [builder](Self::builder) for
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
    /// [`HostYardError::TooSmall`] for less than 4 MiB, [`HostYardError::Memory`] if this process may not use that
    /// much.
    pub fn with_memory(size: ByteSize) -> Result<Self, HostYardError> {
        Self::builder().with_memory(size)
    }
}

impl HostYardBuilder {
    /// The memory behind the frames; private memory by default.
    #[must_use]
    pub fn backing(mut self, backing: Backing) -> Self {
        self.backing = Some(backing);
        self
    }

    /// The size of a frame in yards made by size: a power of two from 4 KiB, the default, to 1 GiB.
    ///
    /// A yard allocates whole frames, and keeps a page structure and part of its tables for each. With frames of 2 MiB
    /// it serves nothing smaller, and this metadata takes 0.004 % of memory instead of 1.6 %; the lists of each CPU on
    /// each node come on top. Frames start at multiples of their size in memory.
    ///
    /// Orders count frames: `Order(0)` is one frame, and [`Geometry::block_order`](frameyard::Geometry::block_order)
    /// returns the order for a size. Statistics and kernel formats count each frame as one page, as a kernel with
    /// larger pages does. [`Geometry::of_frames`](frameyard::Geometry::of_frames) describes the other sizes of such a
    /// yard.
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
        self.frame_size = Some(size);
        self
    }

    /// The number of CPUs with lists of their own, in yards made by size. The default is one for each CPU number of the
    /// host.
    ///
    /// With fewer, CPUs share lists and lock them. A number above the host's has no effect.
    #[must_use]
    pub fn cpus(mut self, cpus: NonZeroU32) -> Self {
        self.cpus = Some(cpus);
        self
    }

    /// Whether to advise the host to use huge pages for frames and memory map.
    ///
    /// By default it is advised to, if it has any. If the frames are phantom, the map gets the advice only when its
    /// initialiser writes all of it, because otherwise only a few places are ever written.
    #[must_use]
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.huge_pages = Some(huge_pages);
        self
    }

    /// Whether to advise the host to use huge pages for the memory map. The default is the advice for the frames.
    ///
    /// The map takes 1.6 % of the memory, and a new yard writes only a few places of it. With huge pages, all of the
    /// map becomes resident at once, and the processor needs fewer TLB entries to read it. With [`HugePages::Never`],
    /// the map becomes resident as the memory it describes is used.
    #[must_use]
    pub fn map_huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.map_huge_pages = Some(huge_pages);
        self
    }

    /// Whether each node's frames come from the host node that stands for it; by default they do.
    #[must_use]
    pub fn node_binding(mut self, binding: NodeBinding) -> Self {
        self.binding = Some(binding);
        self
    }

    /// How a thread finds out which CPU it runs on. The default is the fastest way available.
    #[must_use]
    pub fn identity(mut self, identity: CpuIdentity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// How the CPUs of a private yard use their own lists. Shared yards always lock them.
    #[must_use]
    pub fn list_access(mut self, access: ListAccess) -> Self {
        self.list_access = Some(access);
        self
    }

    /// Memory for the memory map, for example a region that you have pre-faulted.
    ///
    /// It must be private and at least as large as the layout says. If the initialiser is [`Initialiser::None`], it
    /// must be zeroed.
    #[must_use]
    pub fn map_region(mut self, region: Region) -> Self {
        self.map_region = Some(region);
        self
    }

    /// Reports the progress of initialising the memory map to `watch`, from the creation of the yard on.
    ///
    /// If several yards report to one watch, it has their sum. For a yard in a memory file, it covers the work of this
    /// process only.
    #[must_use]
    pub fn init_watch(mut self, watch: &InitWatch) -> Self {
        self.init_watch = Some(watch.clone());
        self
    }

    /// Whether the host provides the memory of the memory map before it is written; by default it does not.
    #[must_use]
    pub fn populate_map(mut self, populate: PopulateMap) -> Self {
        self.populate_map = populate;
        self
    }

    /// The longest wait of a thread of this process for a lock of a shared yard whose holder is alive but does not
    /// release it, because it is stopped in a debugger, for example. The default is 10 seconds.
    ///
    /// After that time, the call fails with [`LockError::LockStuck`](frameyard::platform::LockError::LockStuck), or
    /// with [`DeviceMapProblem::Changing`](crate::DeviceMapProblem::Changing) if it waits for the right to change views
    /// of the memory map. A holder that has died is noticed earlier. Private yards have no limit.
    #[must_use]
    pub fn lock_limit(mut self, limit: Duration) -> Self {
        self.lock_limit = limit;
        self
    }

    /// Adds a device that has the bytes of these frames to the platform. To add one later, use
    /// [`HostPlatform::add_device`].
    #[must_use]
    pub fn device(mut self, range: PfnRange, memory: Arc<DeviceMemory>) -> Self {
        self.devices.push((range, memory));
        self
    }

    /// Room for devices of that total size, in yards made by size; by default there is none.
    ///
    /// It is rounded up to whole sections and lies after the memory.
    /// [`YardDevices::space`](frameyard::views::YardDevices::space) returns its frame numbers. The memory map reserves
    /// addresses for its page structures, 64 bytes for each frame.
    #[must_use]
    pub fn device_space(mut self, size: ByteSize) -> Self {
        self.device_space = Some(size);
        self
    }

    /// The policy of yards made by size.
    ///
    /// A yard cannot switch to or from some of the policies later: see [`ZonePolicy::is_changeable`].
    #[must_use]
    pub fn policy(mut self, policy: ZonePolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Makes a private yard with at least `size` of memory, and with the CPUs and nodes of this host, as
    /// [`HostYard::with_memory`] does.
    ///
    /// # Errors
    ///
    /// [`HostYardError`] says what is not available.
    pub fn with_memory(self, size: ByteSize) -> Result<HostYard, HostYardError> {
        let host = HostTopology::current()?;
        let plan = self.plan(size, &host, HostPlan::with_numbers_of_its_own)?;
        self.build_private(&plan.table(), &plan.config(), &host)
    }

    /// Makes a yard for this process alone from a memory table and a configuration. It touches no frame unless frames
    /// are poisoned.
    ///
    /// `build` asks the memory source once. If the source reports something else later, the yard does not notice.
    ///
    /// # Errors
    ///
    /// [`HostYardError`] says what is not available.
    pub fn build(
        self,
        memory: &dyn MemorySource,
        config: &YardConfig<'_>,
        host: &HostTopology,
    ) -> Result<HostYard, HostYardError> {
        self.refuse_settings_by_size("set it in the configuration of the yard")?;
        self.build_private(memory, config, host)
    }

    fn build_private(
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
        let backing = self.backing.clone().unwrap_or_default();
        let frames = HostMemory::builder(config.geometry, &memory.node_frames()).backing(backing.clone());
        let frames = match backing {
            Backing::Phantom => frames,
            _ => frames.huge_pages(huge_pages),
        };
        let platform = self.platform(frames.node_binding(self.binding.unwrap_or_default()).build(host)?, host)?;
        let platform = match self.list_access.unwrap_or_default() {
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
    /// The host decides whether the file gets huge pages. If the host has several nodes, frames are bound to them.
    ///
    /// # Errors
    ///
    /// [`HostYardError`] says what is not available.
    pub fn build_shared(
        self,
        memory: &dyn MemorySource,
        config: &YardConfig<'_>,
        frames: SharedFrames,
        host: &HostTopology,
    ) -> Result<(HostYard, SharedMemoryFile), HostYardError> {
        self.refuse_settings_by_size("set it in the configuration of the yard")?;
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
        self.refuse_settings_of_private_yards()?;
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

    /// Attaches the yard that another process has created in a memory file.
    ///
    /// Before it uses the yard, it checks the headers of file and yard, and the tables that determine sizes and places.
    ///
    /// # Errors
    ///
    /// [`HostYardError`] if the file contains no complete yard, if the yard has frames that the file lacks, or if the
    /// file cannot be mapped. [`HostYardError::Lock`] if the yard is damaged: a process died inside a call, or a
    /// process found its lists corrupt.
    ///
    /// # Safety
    ///
    /// While the yard is in use, only yards may write to the file: the one that was created in it and those attached to
    /// it. Owners of frames may write to their frames.
    ///
    /// The yard checks the links and indices it reads from the file, so a process that writes anything else there
    /// cannot make this process access memory outside the yard. But it can change the bytes of frames that this process
    /// borrows, and it can make two owners get the same frame. Attach only files of processes you trust.
    #[expect(unsafe_code, reason = "passes the contract on")]
    pub unsafe fn attach(self, file: &SharedMemoryFile, host: &HostTopology) -> Result<HostYard, HostYardError> {
        self.refuse_settings_by_size("the yard exists already")?;
        self.refuse_settings_of_private_yards()?;
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

    /// Refuses what follows from a configuration, or from the yard that there is.
    fn refuse_settings_by_size(&self, why: &'static str) -> Result<(), HostYardError> {
        refuse(
            [
                ("frame_size", self.frame_size.is_some()),
                ("cpus", self.cpus.is_some()),
                ("device_space", self.device_space.is_some()),
                ("policy", self.policy.is_some()),
            ],
            why,
        )
    }

    fn refuse_settings_of_private_yards(&self) -> Result<(), HostYardError> {
        refuse(
            [
                ("backing", self.backing.is_some()),
                ("huge_pages", self.huge_pages.is_some()),
                ("map_huge_pages", self.map_huge_pages.is_some()),
                ("node_binding", self.binding.is_some()),
                ("list_access", self.list_access.is_some()),
                ("map_region", self.map_region.is_some()),
            ],
            "it is for private yards, and this one is shared",
        )
    }

    /// The plan of a yard of that size, which `number` gives its frame numbers.
    fn plan<F>(&self, size: ByteSize, host: &HostTopology, number: F) -> Result<HostPlan, HostYardError>
    where
        F: FnOnce(Geometry, &dyn Fn(Pfn) -> Result<HostPlan, HostYardError>) -> Result<HostPlan, HostYardError>,
    {
        let geometry = self.geometry()?;
        number(geometry, &|first| {
            let plan = HostPlan::new(host, geometry, size, first)?;
            let plan = plan.with_cpus(self.cpus).with_policy(self.policy.unwrap_or_default());
            plan.with_device_space(self.device_space.unwrap_or_default())
        })
    }

    /// The geometry of yards that are requested by size alone.
    fn geometry(&self) -> Result<Geometry, GeometryError> {
        match self.frame_size {
            Some(size) if size != Geometry::X86_64.page_size() => Geometry::of_frames(size),
            _ => Ok(Geometry::X86_64),
        }
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
            let is_sparse = self.backing == Some(Backing::Phantom) && !is_written;
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

/// Refuses the first setting that is set.
fn refuse<const N: usize>(settings: [(&'static str, bool); N], why: &'static str) -> Result<(), HostYardError> {
    match settings.into_iter().find(|(_, is_set)| *is_set) {
        Some((setting, _)) => Err(HostYardError::Setting { setting, why }),
        None => Ok(()),
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
