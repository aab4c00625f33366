//! How each kind of yard is made: private, in a new memory file, or in one that has a yard.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use frameyard::boot::{AttachError, Initialiser, MemorySource};
use frameyard::{Layout, MemoryTable, NodeId, PfnRange, Platform, YardConfig};

use super::HostYard;
use super::error::{HostYardError, MapRegionProblem};
use super::name::{self, YardName};
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
use crate::shared::{SharedFrames, SharedLayout, SharedMemoryFile, SizeGuard};
use crate::sys::mapping::Piece;
use crate::sys::private_yards;
use crate::sys::window::MapWindow;
use crate::topology::HostTopology;

/// How long a call waits for a lock of a shared yard whose holder lives.
const LOCK_LIMIT: Duration = Duration::from_secs(10);

/// How processes find a new yard that they share.
#[derive(Debug)]
pub(super) enum Sharing {
    Inherited,
    ByName(PathBuf),
}

/// The settings of a yard, apart from its machine.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) sharing: Option<Sharing>,
    pub(super) backing: Option<Backing>,
    pub(super) huge_pages: Option<HugePages>,
    pub(super) map_huge_pages: Option<HugePages>,
    pub(super) binding: Option<NodeBinding>,
    pub(super) identity: Option<CpuIdentity>,
    pub(super) list_access: Option<ListAccess>,
    pub(super) map_region: Option<Region>,
    pub(super) init_watch: Option<InitWatch>,
    pub(super) populate_map: PopulateMap,
    pub(super) lock_limit: Option<Duration>,
    pub(super) devices: Vec<(PfnRange, Arc<DeviceMemory>)>,
}

impl Settings {
    /// Makes a new yard.
    pub(super) fn make(
        mut self,
        memory: &CollectedMemory,
        config: &YardConfig<'_>,
        host: &HostTopology,
    ) -> Result<HostYard, HostYardError> {
        match self.sharing.take() {
            None => self.make_private(memory, config, host),
            Some(Sharing::Inherited) => {
                let (yard, file) = self.make_shared(in_memory, memory, config, host)?;
                Ok(HostYard { yard, file: Some(file), name: None })
            }
            Some(Sharing::ByName(name)) => {
                let path = name::path_of(&name);
                let unnamed = |length| name::unnamed_file(&path, length);
                let (yard, file) = self.make_shared(unnamed, memory, config, host)?;
                let name = YardName::link(path, file.reopened()?)?;
                Ok(HostYard { yard, file: Some(file), name: Some(name) })
            }
        }
    }

    /// Makes a yard for this process alone.
    fn make_private(
        mut self,
        memory: &CollectedMemory,
        config: &YardConfig<'_>,
        host: &HostTopology,
    ) -> Result<HostYard, HostYardError> {
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
        Ok(HostYard { yard, file: None, name: None })
    }

    /// Makes a yard in a memory file that `make` creates.
    fn make_shared(
        self,
        make: impl FnOnce(u64) -> Result<File, MemoryError>,
        memory: &CollectedMemory,
        config: &YardConfig<'_>,
        host: &HostTopology,
    ) -> Result<(OwnedYard, SharedMemoryFile), HostYardError> {
        let layout = Layout::plan(&memory.table(), config)?;
        let frames = match self.backing {
            Some(Backing::Phantom) => SharedFrames::Phantom,
            _ => SharedFrames::Memory,
        };
        let wanted = SharedLayout {
            geometry: config.geometry,
            ranges: &memory.node_frames(),
            frames,
            memory_map: layout.map_bytes(),
            control: layout.control_bytes(),
            devices: config.device_space.zip(layout.device_map_offset()),
        };
        let file = SharedMemoryFile::create_in(make, &wanted, host)?;
        let (regions, piece) = (regions_of(&file)?, device_piece(&file));
        let platform = self.platform_in(&file, host)?;
        let with_view = |window| platform.with_view(window);
        let yard = OwnedYard::create(&memory.table(), config, &layout, regions, piece, with_view)?;
        Ok((yard, file))
    }

    /// Opens the yard of a name.
    pub(super) fn open_named(self, name: &Path, host: &HostTopology) -> Result<HostYard, HostYardError> {
        let name = YardName::open(name::path_of(name))?;
        let file = SharedMemoryFile::attach_file(name.file()?, SizeGuard::Permissions, host)?;
        let yard = self.attach_to(&file, host)?;
        Ok(HostYard { yard, file: Some(file), name: Some(name) })
    }

    /// Attaches the yard in a file, of which it keeps a handle of its own.
    pub(super) fn attach(self, file: &SharedMemoryFile, host: &HostTopology) -> Result<HostYard, HostYardError> {
        let yard = self.attach_to(file, host)?;
        Ok(HostYard { yard, file: Some(file.try_clone()?), name: None })
    }

    fn attach_to(self, file: &SharedMemoryFile, host: &HostTopology) -> Result<OwnedYard, HostYardError> {
        let (regions, piece) = (regions_of(file)?, device_piece(file));
        let platform = self.platform_in(file, host)?;
        // SAFETY: the file's parts for map and control region. The caller of `HostYardBuilder::open` or `attach` has
        // promised what writes to the file.
        #[expect(unsafe_code, reason = "relies on the contracts of the builder's `open` and `attach`")]
        let yard = unsafe { OwnedYard::attach(regions, piece, |window| platform.with_view(window))? };
        if !file.fits(yard.core()) {
            return Err(AttachError::Damaged.into());
        }
        match yard.core().platform().lock_error() {
            Some(error) => Err(HostYardError::Lock(error)),
            None => Ok(yard),
        }
    }

    /// The platform of this process's view of the yard in a file, in which it takes a place.
    fn platform_in<'f>(
        self,
        file: &'f SharedMemoryFile,
        host: &HostTopology,
    ) -> Result<PlatformInFile<'f>, HostYardError> {
        let attachment = Arc::new(file.take_place()?);
        let lock_limit = self.lock_limit.unwrap_or(LOCK_LIMIT);
        let platform = self.platform(file.map_frames(HugePages::Default, host)?, host)?;
        let platform = platform.with_attachment(Arc::clone(&attachment), lock_limit);
        Ok(PlatformInFile { platform, file, attachment, lock_limit })
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

/// The platform of a yard in a memory file, before it has a view of the map's part for devices.
struct PlatformInFile<'f> {
    platform: HostPlatform,
    file: &'f SharedMemoryFile,
    attachment: Arc<Attachment>,
    lock_limit: Duration,
}

impl PlatformInFile<'_> {
    /// The platform with a view of the part for devices, if there is one.
    fn with_view(self, window: Option<MapWindow>) -> Result<HostPlatform, HostYardError> {
        let Self { platform, file, attachment, lock_limit } = self;
        let Some((window, part)) = window.zip(file.device_part()) else { return Ok(platform) };
        let window = Arc::new(window);
        let words = file.map_view_words()?;
        let map = file.map_file(part.piece.offset)?;
        let view = SharedView::attach(Arc::clone(&window), map, words, attachment, lock_limit)?;
        Ok(platform.with_device_map(Some(DeviceMap::shared(window, part, view))))
    }
}

/// The memory map and the control region of a file.
fn regions_of(file: &SharedMemoryFile) -> Result<(Region, Region), MemoryError> {
    Ok((file.map_memory_map(HugePages::Default)?, file.map_control(HugePages::Default)?))
}

/// The part of a file's memory map for devices.
fn device_piece(file: &SharedMemoryFile) -> Option<Piece> {
    file.device_part().map(|part| part.piece)
}

/// The answers of a [`MemorySource`].
///
/// Plan, frames and yard must describe the same machine, so the source is called only once.
#[derive(Default, Debug)]
pub(super) struct CollectedMemory {
    memory: Vec<(PfnRange, NodeId)>,
    reserved: Vec<PfnRange>,
    cma: Vec<PfnRange>,
}

impl CollectedMemory {
    pub(super) fn of(source: &dyn MemorySource) -> Self {
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
