//! [`HostYard`]: a yard on the memory of this host.

use std::path::Path;
use std::sync::Arc;

use frameyard::alloc::Wanted;
use frameyard::boot::{AttachError, InitError};
use frameyard::counting::TaskCounters;
use frameyard::validate::ValidateError;
use frameyard::views::{YardHugePages, YardStats, YardZone};
use frameyard::{AllocError, ByteSize, Frames, FreeError, Geometry, Gfp, Order, Pfn, PfnRange, Yard, ZoneId};

use crate::mapped::frames::sealed::Sealed;
use crate::mapped::frames::{MappedFrames, YardHandle};
use crate::mapped::yard::{CountingYard, OwnedYard};
use crate::memory::HostMemory;
use crate::platform::HostPlatform;
use crate::region::Region;
use crate::shared::SharedMemoryFile;

pub(crate) mod builder;
mod devices;
pub(crate) mod error;
mod make;
pub(crate) mod name;
mod plan;
pub(crate) mod request;

use builder::HostYardBuilder;
use error::HostYardError;
use name::YardName;

/// A yard together with its memory: frames, memory map and control region.
///
/// [`with_memory`](Self::with_memory) makes a private one, [`create_shared`](Self::create_shared) and
/// [`open_shared`](Self::open_shared) one that processes find by name, and the [builder](Self::builder) any other.
///
/// The methods here are those that programs on Linux need every day. [`core`](Self::core) returns the [`Yard`] of the
/// crate `frameyard`, which has all others: policies, compaction, contiguous areas, counted blocks, and guards of
/// phantom frames.
///
/// Everything a yard returns borrows it, except [owning guards](Self::frames_owned). Dropping the yard unmaps its
/// memory; for a shared yard, it unmaps this process's view.
///
/// In builds with debug assertions, dropping a private yard of up to 2²⁴ frames prints how many blocks were never
/// freed. [`stats().allocated_blocks()`](YardStats::allocated_blocks) lists them.
///
/// ```compile_fail,E0505
/// # fn f(yard: frameyard_host::HostYard) {
/// let ranges = yard.memory_ranges();
/// drop(yard);
/// ranges.count();
/// # }
/// ```
///
/// # Shared yards
///
/// A shared yard lies in a memory file that several processes use at once: its memory map, its lists and its frames.
///
/// ```
/// use frameyard_host::{ByteSize, Gfp, HostYard, Order};
///
/// let name = format!("example-{}", std::process::id());
/// let yard = HostYard::create_shared(&name, ByteSize::mib(64))?;
/// // Usually in another process:
/// // SAFETY: only this program writes to the file.
/// let other = unsafe { HostYard::open_shared(&name)? };
/// let block = other.frames(Order(9), Gfp::HIGHUSER_MOVABLE)?;
/// assert_eq!(yard.stats().free_pages().0, 16384 - 512);
/// drop(block);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A name is the path of a file; without a leading slash, it is a file in `/dev/shm`. The file system must have room
/// for the frames (containers often limit `/dev/shm` to 64 MiB), and it should keep files in memory.
///
/// The file has mode 0600, so processes of the same user and of root can open it. To admit other users, change the mode
/// of [`path`](Self::path). A process that can open the file can also shorten it, and that kills the processes that map
/// it.
///
/// The memory file of a [yard without a name](HostYardBuilder::shared) can only be inherited.
///
/// # Life of a name
///
/// Each process holds a shared lock (`flock`) on the file while it uses the yard. However the process ends, the kernel
/// releases the lock.
///
/// | event | effect |
/// |---|---|
/// | a yard is created | The name appears once the yard is complete. |
/// | a yard is created with a name that a running process uses | [`SharedFileError::NameInUse`](crate::SharedFileError::NameInUse) |
/// | the last process drops its yard | The name is removed. |
/// | all processes were killed | The file stays until the next yard is created or opened with that name, which removes it. |
/// | a removed or leftover name is opened | [`SharedFileError::NoSuchName`](crate::SharedFileError::NoSuchName) |
///
/// The frames of a killed process stay allocated while the yard is in use. A process that is killed inside the
/// allocator may leave a lock of the yard held. The yard is then damaged for good: calls fail with
/// [`LockError::OwnerDied`](frameyard::platform::LockError::OwnerDied), and it cannot be opened. If the holder of a lock
/// is only stopped, calls that need the lock fail with [`LockStuck`](frameyard::platform::LockError::LockStuck) after 10
/// seconds, until the process continues.
#[derive(Debug)]
pub struct HostYard {
    // Fields drop in this order: the memory is unmapped before the name goes.
    yard: OwnedYard,
    /// The memory file of a shared yard.
    file: Option<SharedMemoryFile>,
    /// The name of the file.
    name: Option<YardName>,
}

impl Sealed for &HostYard {}
impl Sealed for Arc<HostYard> {}

impl YardHandle for &HostYard {
    #[inline]
    fn yard(&self) -> &Yard<HostPlatform> {
        self.core()
    }
}

impl YardHandle for Arc<HostYard> {
    #[inline]
    fn yard(&self) -> &Yard<HostPlatform> {
        self.core()
    }
}

/// Making yards.
impl HostYard {
    /// A builder with the default settings. It still needs to know what the yard is made from, for example a
    /// [size](HostYardBuilder::size).
    #[must_use]
    pub fn builder<'a>() -> HostYardBuilder<'a> {
        HostYardBuilder::default()
    }

    /// Makes a private yard with at least `size` of memory, and with the CPUs and nodes of this host: short for
    /// `HostYard::builder().size(size).build()`.
    ///
    /// The size is rounded up to a multiple of 4 MiB. The frames take no memory until they are touched, and are backed
    /// by huge pages where the host has them. A small part is reserved for urgent requests, as in any yard
    /// ([watermarks](frameyard::watermarks::Watermarks)). Blocks of up to 1 GiB are aligned to their size in memory. No
    /// two yards that a process makes by size have a frame number in common.
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
        Self::builder().size(size).build()
    }

    /// Creates a [shared yard](Self#shared-yards) with at least `size` of memory, which other processes open by name:
    /// short for `HostYard::builder().size(size).shared_as(name).build()`.
    ///
    /// The size is rounded up as by [`with_memory`](Self::with_memory).
    ///
    /// # Errors
    ///
    /// [`HostYardError::File`] with [`SharedFileError::NameInUse`](crate::SharedFileError::NameInUse) if a running
    /// process has a yard with that name. Other errors say what is not available.
    pub fn create_shared(name: impl AsRef<Path>, size: ByteSize) -> Result<Self, HostYardError> {
        Self::builder().size(size).shared_as(name).build()
    }

    /// Opens a [shared yard](Self#shared-yards) that a running process has created: short for
    /// `HostYard::builder().open(name).build()`.
    ///
    /// # Errors
    ///
    /// [`HostYardError::File`] with [`SharedFileError::NoSuchName`](crate::SharedFileError::NoSuchName) if no running
    /// process has a yard with that name. Other errors say why it cannot be attached.
    ///
    /// # Safety
    ///
    /// As for [`HostYardBuilder::attach`]: while the yard is in use, only yards write to the file.
    #[expect(unsafe_code, reason = "passes the contract on")]
    pub unsafe fn open_shared(name: impl AsRef<Path>) -> Result<Self, HostYardError> {
        // SAFETY: passed on to the caller.
        unsafe { Self::builder().open(name) }.build()
    }
}

/// Blocks as guards.
impl HostYard {
    /// Allocates a block ([`Order`](frameyard::Order)), a number of contiguous frames
    /// ([`PageCount`](frameyard::PageCount)), or a range, and returns a guard with their bytes, which frees them when it
    /// is dropped.
    ///
    /// Cost: that of [`Yard::alloc`], plus a search for the address among the ranges of memory.
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is allocated then. A yard of phantom frames returns [`AllocError::NoFrameBytes`]: use
    /// [`Yard::frames`] of its [`core`](Self::core), whose guard has bytes as an `Option`.
    pub fn frames(&self, wanted: impl Into<Wanted>, gfp: Gfp) -> Result<MappedFrames<&Self>, AllocError> {
        MappedFrames::allocate(self, wanted.into(), gfp)
    }

    /// As [`frames`](Self::frames), with a guard that holds an [`Arc`] of the yard instead of borrowing it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::thread;
    ///
    /// use frameyard_host::{ByteSize, Gfp, HostYard, Order};
    ///
    /// let yard = Arc::new(HostYard::with_memory(ByteSize::mib(64))?);
    /// let mut block = yard.frames_owned(Order(0), Gfp::KERNEL | Gfp::ZERO)?;
    /// drop(yard);
    /// let first = thread::spawn(move || {
    ///     block.bytes_mut()[0] += 1;
    ///     block.bytes()[0]
    /// });
    /// assert_eq!(first.join().unwrap(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`frames`](Self::frames).
    pub fn frames_owned(
        self: &Arc<Self>,
        wanted: impl Into<Wanted>,
        gfp: Gfp,
    ) -> Result<MappedFrames<Arc<Self>>, AllocError> {
        MappedFrames::allocate(Arc::clone(self), wanted.into(), gfp)
    }

    /// Turns a guard of the [`core`](Self::core) into one with bytes.
    ///
    /// # Errors
    ///
    /// [`AllocError::NoFrameBytes`] for phantom frames, which are freed.
    ///
    /// # Panics
    ///
    /// If the frames belong to another yard.
    pub fn with_bytes<'y>(&'y self, frames: Frames<'y, HostPlatform>) -> Result<MappedFrames<&'y Self>, AllocError> {
        MappedFrames::new(self, frames)
    }
}

/// Blocks by frame number.
impl HostYard {
    /// Allocates a block of `2^order` frames and returns the first ([`Yard::alloc`]).
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is allocated then.
    #[inline(always)]
    pub fn alloc(&self, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        self.core().alloc(order, gfp)
    }

    /// Frees a block that [`alloc`](Self::alloc) returned, with the same order ([`Yard::free`]).
    ///
    /// # Errors
    ///
    /// [`FreeError`] names the frame and its state; nothing has changed then.
    #[inline(always)]
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.core().free(pfn, order)
    }

    /// Allocates single frames into the front of `frames`, and returns their number ([`Yard::alloc_bulk`]).
    ///
    /// # Errors
    ///
    /// [`AllocError`] if there is none.
    #[inline(always)]
    pub fn alloc_bulk(&self, gfp: Gfp, frames: &mut [Pfn]) -> Result<usize, AllocError> {
        self.core().alloc_bulk(gfp, frames)
    }

    /// Frees single frames ([`Yard::free_bulk`]).
    ///
    /// # Errors
    ///
    /// [`FreeError`] names the first frame that cannot be freed. All others are freed.
    #[inline(always)]
    pub fn free_bulk(&self, frames: &[Pfn]) -> Result<(), FreeError> {
        self.core().free_bulk(frames)
    }

    /// Frees every block of a range, such as [`MappedFrames::into_range`] returns ([`Yard::free_range`]).
    ///
    /// # Errors
    ///
    /// [`FreeError`] names the first frame that cannot be freed. Nothing has changed then, unless other threads free
    /// blocks of the range at the same time.
    #[inline(always)]
    pub fn free_range(&self, range: PfnRange) -> Result<(), FreeError> {
        self.core().free_range(range)
    }

    /// Pools of huge pages.
    #[inline(always)]
    pub fn huge_pages(&self) -> YardHugePages<'_, HostPlatform> {
        self.core().huge_pages()
    }

    /// Moves all frames on per-CPU lists back to the zones ([`Yard::drain_all`]).
    pub fn drain_all(&self) {
        self.core().drain_all();
    }
}

/// What the yard is and what it holds.
impl HostYard {
    /// The yard of the crate `frameyard`, with all of its operations.
    #[inline(always)]
    #[must_use]
    pub fn core(&self) -> &Yard<HostPlatform> {
        self.yard.core()
    }

    /// Page size, section size, pageblock order and maximum order.
    #[inline(always)]
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.core().geometry()
    }

    /// The ranges of memory, ascending, each with its zone.
    pub fn memory_ranges(&self) -> impl ExactSizeIterator<Item = (PfnRange, ZoneId)> {
        self.core().memory_ranges()
    }

    /// Statistics of the yard and its frames.
    #[inline(always)]
    pub fn stats(&self) -> YardStats<'_, HostPlatform> {
        self.core().stats()
    }

    /// The view of a zone ([`Yard::zone`]).
    #[inline(always)]
    pub fn zone(&self, id: ZoneId) -> YardZone<'_, HostPlatform> {
        self.core().zone(id)
    }

    /// The platform: CPU identity, devices, topology.
    #[inline(always)]
    #[must_use]
    pub fn platform(&self) -> &HostPlatform {
        self.core().platform()
    }

    /// The memory behind the frames.
    #[must_use]
    pub fn memory(&self) -> &HostMemory {
        self.platform().memory()
    }

    /// The memory file of a shared yard, for the programs that [inherit](SharedMemoryFile::inherit) it. `None` if the
    /// yard is private.
    ///
    /// Only a yard without a name can be inherited. The file of a yard with a name is not sealed, so
    /// [`SharedMemoryFile::from_environment`] refuses it with [`HeaderError::NotSealed`](crate::HeaderError::NotSealed);
    /// the program must [open the name](Self::open_shared) instead.
    #[must_use]
    pub fn shared_file(&self) -> Option<&SharedMemoryFile> {
        self.file.as_ref()
    }

    /// The path of the memory file. `None` if it has no name, or the yard is private.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.name.as_ref().map(YardName::path)
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

    /// As [`Yard::validate`], but compiled in this crate, so that it is fast even if your program is built without
    /// optimisation.
    ///
    /// # Errors
    ///
    /// [`ValidateError`] names the first equation that does not hold.
    pub fn validate(&self) -> Result<(), ValidateError> {
        self.core().validate()
    }

    /// Initialises all deferred memory, as [`YardInit::finish`](frameyard::views::YardInit::finish) does. Like
    /// [`validate`](Self::validate), it is compiled in this crate.
    ///
    /// # Errors
    ///
    /// [`InitError`]: the initialised part of the yard stays in use.
    pub fn finish_init(&self) -> Result<(), InitError> {
        self.core().init().finish()
    }

    /// A second view of the yard that counts accesses to page structures and locks in `counters`. Calls on the yard
    /// itself are not counted.
    ///
    /// `task` returns a small number for the calling task. Two tasks that use the view at the same time must have
    /// different numbers.
    ///
    /// # Errors
    ///
    /// [`AttachError`], as for any second view.
    pub fn counting<'y, W: Fn() -> u32 + Sync, const LINES: usize>(
        &'y self,
        counters: &'y [TaskCounters<LINES>],
        task: W,
    ) -> Result<CountingYard<'y, W, LINES>, AttachError> {
        self.yard.counting(counters, task)
    }

    /// Drops the yard, or this process's view of a shared yard, and returns the region of its memory map.
    #[must_use]
    pub fn into_map_region(self) -> Region {
        self.yard.into_map()
    }
}
