//! [`HostYardBuilder`]: what a yard is made from, and its settings.

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use frameyard::boot::MemorySource;
use frameyard::policy::ZonePolicy;
use frameyard::units::GeometryError;
use frameyard::{ByteSize, Geometry, Pfn, PfnRange, YardConfig};

use super::HostYard;
use super::error::HostYardError;
use super::make::{CollectedMemory, Settings, Sharing};
use super::plan::HostPlan;
use crate::device::DeviceMemory;
use crate::init_watch::InitWatch;
use crate::memory::{Backing, HugePages, NodeBinding};
use crate::platform::{CpuIdentity, ListAccess, PopulateMap};
use crate::region::Region;
use crate::shared::SharedMemoryFile;
use crate::topology::HostTopology;

/// What a yard is made from, and its settings ([`HostYard::builder`]). [`build`](Self::build) makes it.
///
/// A yard is made from exactly one of four sources:
///
/// | source | the yard |
/// |---|---|
/// | [`size`](Self::size) | a new one with that much memory, and with the CPUs and nodes of this host |
/// | [`machine`](Self::machine) | a new one with the memory, CPUs and options that you describe |
/// | [`open`](Self::open) | a shared one that another process has created with a name |
/// | [`attach`](Self::attach) | a shared one in a memory file that this process has inherited or created |
///
/// A new yard is private unless [`shared`](Self::shared) or [`shared_as`](Self::shared_as) says otherwise.
///
/// ```
/// use frameyard_host::{Backing, ByteSize, Gfp, HostYard, Order};
///
/// let yard = HostYard::builder().size(ByteSize::mib(64)).backing(Backing::Memfd).build()?;
/// let block = yard.frames(Order(3), Gfp::KERNEL)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A setting that does not apply to the yard is an error ([`HostYardError::Setting`]); none is ignored:
///
/// | settings | apply to |
/// |---|---|
/// | `frame_size`, `cpus`, `device_space`, `policy` | yards by size. A machine has them in its configuration. |
/// | `shared`, `shared_as` | new yards |
/// | `backing` | new yards. If they are shared, they can only have [`Backing::Phantom`]. |
/// | `huge_pages`, `map_huge_pages`, `node_binding`, `list_access`, `map_region` | private yards |
/// | `lock_limit` | shared yards |
/// | `host`, `identity`, `init_watch`, `populate_map`, `device` | all yards |
#[derive(Debug, Default)]
pub struct HostYardBuilder<'a> {
    source: Option<Source<'a>>,
    /// The setter of another source.
    other_source: Option<&'static str>,
    host: Option<&'a HostTopology>,
    settings: Settings,
    frame_size: Option<ByteSize>,
    cpus: Option<NonZeroU32>,
    device_space: Option<ByteSize>,
    policy: Option<ZonePolicy>,
}

/// What a yard is made from.
#[derive(Debug)]
enum Source<'a> {
    Size(ByteSize),
    Machine(CollectedMemory, &'a YardConfig<'a>),
    Open(PathBuf),
    Attach(&'a SharedMemoryFile),
}

impl Source<'_> {
    fn setter(&self) -> &'static str {
        match self {
            Self::Size(_) => "size",
            Self::Machine(..) => "machine",
            Self::Open(_) => "open",
            Self::Attach(_) => "attach",
        }
    }
}

/// The source. Each yard has exactly one.
impl<'a> HostYardBuilder<'a> {
    /// Makes a new yard with at least `size` of memory, and with the CPUs and nodes of this host.
    ///
    /// The size is rounded up to a multiple of 4 MiB, or of a frame if frames are larger. See
    /// [`HostYard::with_memory`].
    #[must_use]
    pub fn size(self, size: ByteSize) -> Self {
        self.with_source(Source::Size(size))
    }

    /// Makes a new yard on a machine that you describe. It touches no frame unless frames are poisoned.
    ///
    /// The memory source is asked here, once. If it reports something else later, the yard does not notice.
    ///
    /// ```
    /// use frameyard::{MemoryTable, YardConfig};
    /// use frameyard_host::{HostYard, NodeId, Pfn, PfnRange};
    ///
    /// // Two nodes with 64 MiB and one CPU each.
    /// let memory = [
    ///     (PfnRange { start: Pfn(0x8000), end: Pfn(0xc000) }, NodeId(0)),
    ///     (PfnRange { start: Pfn(0x10000), end: Pfn(0x14000) }, NodeId(1)),
    /// ];
    /// let memory = MemoryTable { memory: &memory, ..MemoryTable::default() };
    /// let config = YardConfig::new(&[NodeId(0), NodeId(1)]);
    /// let yard = HostYard::builder().machine(&memory, &config).build()?;
    /// assert_eq!(yard.core().nodes(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn machine(self, memory: &dyn MemorySource, config: &'a YardConfig<'a>) -> Self {
        self.with_source(Source::Machine(CollectedMemory::of(memory), config))
    }

    /// Opens the [shared yard](HostYard#shared-yards) that a running process has created with that name.
    ///
    /// # Safety
    ///
    /// As for [`attach`](Self::attach), from the time of the build.
    #[expect(unsafe_code, reason = "the contract of `build`")]
    #[must_use]
    pub unsafe fn open(self, name: impl AsRef<Path>) -> Self {
        self.with_source(Source::Open(name.as_ref().to_owned()))
    }

    /// Attaches the yard that was created in a memory file, in this process or in another.
    ///
    /// Before the yard is used, the headers of file and yard are checked, and the tables that determine sizes and
    /// places.
    ///
    /// # Safety
    ///
    /// While the yard is in use, only yards may write to the file: the one that was created in it and those attached to
    /// it. Owners of frames may write to their frames.
    ///
    /// The yard checks the links and indices it reads from the file, so a process that writes anything else there
    /// cannot make this process access memory outside the yard. But it can change the bytes of frames that this process
    /// borrows, and it can make two owners get the same frame. Attach only files of processes you trust.
    #[expect(unsafe_code, reason = "the contract of `build`")]
    #[must_use]
    pub unsafe fn attach(self, file: &'a SharedMemoryFile) -> Self {
        self.with_source(Source::Attach(file))
    }

    fn with_source(mut self, source: Source<'a>) -> Self {
        let earlier = self.source.as_ref().map(Source::setter).filter(|setter| *setter != source.setter());
        self.other_source = self.other_source.or(earlier);
        self.source = Some(source);
        self
    }
}

/// The settings.
impl<'a> HostYardBuilder<'a> {
    /// Makes a new yard in a memory file without a name, for this process and the programs that inherit the file. The
    /// yard [hands the file out](HostYard::shared_file).
    ///
    /// The host decides whether the file gets huge pages. If the host has several nodes, frames are bound to them.
    #[must_use]
    pub fn shared(mut self) -> Self {
        // A name says more.
        self.settings.sharing = self.settings.sharing.or(Some(Sharing::Inherited));
        self
    }

    /// Makes a new yard in a memory file with a name, by which other processes [open](Self::open) it. See
    /// [shared yards](HostYard#shared-yards).
    #[must_use]
    pub fn shared_as(mut self, name: impl AsRef<Path>) -> Self {
        self.settings.sharing = Some(Sharing::ByName(name.as_ref().to_owned()));
        self
    }

    /// The topology of this host, if you have read it already. By default, [`build`](Self::build) reads it.
    #[must_use]
    pub fn host(mut self, host: &'a HostTopology) -> Self {
        self.host = Some(host);
        self
    }

    /// The memory behind the frames; private memory by default.
    #[must_use]
    pub fn backing(mut self, backing: Backing) -> Self {
        self.settings.backing = Some(backing);
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
    /// let yard = HostYard::builder().size(ByteSize::mib(64)).frame_size(ByteSize::mib(2)).build()?;
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
        self.settings.huge_pages = Some(huge_pages);
        self
    }

    /// Whether to advise the host to use huge pages for the memory map. The default is the advice for the frames.
    ///
    /// The map takes 1.6 % of the memory, and a new yard writes only a few places of it. With huge pages, all of the
    /// map becomes resident at once, and the processor needs fewer TLB entries to read it. With [`HugePages::Never`],
    /// the map becomes resident as the memory it describes is used.
    #[must_use]
    pub fn map_huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.settings.map_huge_pages = Some(huge_pages);
        self
    }

    /// Whether each node's frames come from the host node that stands for it; by default they do.
    #[must_use]
    pub fn node_binding(mut self, binding: NodeBinding) -> Self {
        self.settings.binding = Some(binding);
        self
    }

    /// How a thread finds out which CPU it runs on. The default is the fastest way available.
    #[must_use]
    pub fn identity(mut self, identity: CpuIdentity) -> Self {
        self.settings.identity = Some(identity);
        self
    }

    /// How the CPUs of a private yard use their own lists. Shared yards always lock them.
    #[must_use]
    pub fn list_access(mut self, access: ListAccess) -> Self {
        self.settings.list_access = Some(access);
        self
    }

    /// Memory for the memory map, for example a region that you have pre-faulted.
    ///
    /// It must be private and at least as large as the layout says. It must be zeroed if the initialiser is
    /// [`Initialiser::None`](frameyard::boot::Initialiser::None).
    #[must_use]
    pub fn map_region(mut self, region: Region) -> Self {
        self.settings.map_region = Some(region);
        self
    }

    /// Reports the progress of initialising the memory map to `watch`, from the creation of the yard on.
    ///
    /// If several yards report to one watch, it has their sum. For a yard in a memory file, it covers the work of this
    /// process only.
    #[must_use]
    pub fn init_watch(mut self, watch: &InitWatch) -> Self {
        self.settings.init_watch = Some(watch.clone());
        self
    }

    /// Whether the host provides the memory of the memory map before it is written; by default it does not.
    #[must_use]
    pub fn populate_map(mut self, populate: PopulateMap) -> Self {
        self.settings.populate_map = populate;
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
        self.settings.lock_limit = Some(limit);
        self
    }

    /// Adds a device that has the bytes of these frames to the platform. To add one later, use
    /// [`HostYard::add_device`].
    #[must_use]
    pub fn device(mut self, range: PfnRange, memory: Arc<DeviceMemory>) -> Self {
        self.settings.devices.push((range, memory));
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

    /// Makes the yard.
    ///
    /// # Errors
    ///
    /// [`HostYardError::Setting`] for a setting that does not apply, and for a builder without a source or with two.
    ///
    /// [`HostYardError::File`] with [`SharedFileError::NameInUse`](crate::SharedFileError::NameInUse) if a running
    /// process has a yard with the name of the new one, and with
    /// [`SharedFileError::NoSuchName`](crate::SharedFileError::NoSuchName) if none has the yard to be opened.
    ///
    /// For a yard that exists: [`HostYardError::Attach`] if the file contains no complete one, or one with frames that
    /// the file lacks; [`HostYardError::Lock`] if it is damaged, because a process died inside a call or found its lists
    /// corrupt.
    ///
    /// Other errors say what is not available.
    pub fn build(mut self) -> Result<HostYard, HostYardError> {
        let source = self.source()?;
        self.refuse_settings(&source)?;
        let host = match self.host {
            Some(host) => Cow::Borrowed(host),
            None => Cow::Owned(HostTopology::current()?),
        };
        match source {
            Source::Size(size) => {
                let plan = self.plan(size, &host)?;
                self.settings.make(&CollectedMemory::of(&plan.table()), &plan.config(), &host)
            }
            Source::Machine(memory, config) => self.settings.make(&memory, config, &host),
            Source::Open(name) => self.settings.open_named(&name, &host),
            Source::Attach(file) => self.settings.attach(file, &host),
        }
    }

    fn source(&mut self) -> Result<Source<'a>, HostYardError> {
        let source = self.source.take();
        let source = source.ok_or(setting("size", "is missing: use it, or `machine`, `open` or `attach`"))?;
        match self.other_source {
            Some(other) => Err(setting(other, "does not apply: the yard is made from something else as well")),
            None => Ok(source),
        }
    }

    /// Refuses settings that do not apply to a yard from that source.
    fn refuse_settings(&self, source: &Source<'_>) -> Result<(), HostYardError> {
        let is_new = matches!(source, Source::Size(_) | Source::Machine(..));
        let is_shared = self.settings.sharing.is_some() || !is_new;
        let by_size = [
            ("frame_size", self.frame_size.is_some()),
            ("cpus", self.cpus.is_some()),
            ("device_space", self.device_space.is_some()),
            ("policy", self.policy.is_some()),
        ];
        let of_new_yards = [
            ("shared", matches!(self.settings.sharing, Some(Sharing::Inherited))),
            ("shared_as", matches!(self.settings.sharing, Some(Sharing::ByName(_)))),
            ("backing", self.settings.backing.is_some()),
        ];
        let of_private_yards = [
            ("backing", self.settings.backing.as_ref().is_some_and(|backing| *backing != Backing::Phantom)),
            ("huge_pages", self.settings.huge_pages.is_some()),
            ("map_huge_pages", self.settings.map_huge_pages.is_some()),
            ("node_binding", self.settings.binding.is_some()),
            ("list_access", self.settings.list_access.is_some()),
            ("map_region", self.settings.map_region.is_some()),
        ];
        match source {
            Source::Size(_) => {}
            Source::Machine(..) => refuse(&by_size, "does not apply: set it in the configuration of the machine")?,
            Source::Open(_) | Source::Attach(_) => {
                refuse(&by_size, "does not apply: the yard exists already")?;
                refuse(&of_new_yards, "does not apply: the yard exists already")?;
            }
        }
        if is_shared {
            return refuse(&of_private_yards, "does not apply: it is for private yards, and this one is shared");
        }
        refuse(
            &[("lock_limit", self.settings.lock_limit.is_some())],
            "does not apply: it is for shared yards, and this one is private",
        )?;
        let map_has_region = self.settings.map_huge_pages.is_some() && self.settings.map_region.is_some();
        refuse(&[("map_huge_pages", map_has_region)], "does not apply: the memory map gets a region that you made")
    }

    /// The plan of a yard of that size. A private one has frame numbers that no other yard of this process has. A
    /// process may use several shared yards, so they have numbers that other yards are unlikely to have.
    fn plan(&self, size: ByteSize, host: &HostTopology) -> Result<HostPlan, HostYardError> {
        let geometry = self.geometry()?;
        let make = |first: Pfn| {
            let plan = HostPlan::new(host, geometry, size, first)?;
            let plan = plan.with_cpus(self.cpus).with_policy(self.policy.unwrap_or_default());
            plan.with_device_space(self.device_space.unwrap_or_default())
        };
        match self.settings.sharing {
            None => HostPlan::with_numbers_of_its_own(geometry, &make),
            Some(_) => HostPlan::with_random_numbers(geometry, &make),
        }
    }

    /// The geometry of yards by size.
    fn geometry(&self) -> Result<Geometry, GeometryError> {
        match self.frame_size {
            Some(size) if size != Geometry::X86_64.page_size() => Geometry::of_frames(size),
            _ => Ok(Geometry::X86_64),
        }
    }
}

fn setting(setting: &'static str, why: &'static str) -> HostYardError {
    HostYardError::Setting { setting, why }
}

/// Refuses the first setting that is set.
fn refuse(settings: &[(&'static str, bool)], why: &'static str) -> Result<(), HostYardError> {
    match settings.iter().find(|(_, is_set)| *is_set) {
        Some((name, _)) => Err(setting(name, why)),
        None => Ok(()),
    }
}
