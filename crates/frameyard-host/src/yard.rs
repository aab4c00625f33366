//! [`HostYard`]: a yard on the memory of this host.

use std::ops::Deref;
use std::sync::Arc;

use frameyard::boot::{AttachError, InitError};
use frameyard::counting::TaskCounters;
use frameyard::validate::ValidateError;
use frameyard::{AllocError, Frames, Gfp, Order, Yard};

use crate::mapped::frames::sealed::Sealed;
use crate::mapped::frames::{MappedFrames, YardHandle};
use crate::mapped::yard::{CountingYard, OwnedYard};
use crate::memory::HostMemory;
use crate::platform::HostPlatform;
use crate::region::Region;

pub(crate) mod builder;
mod devices;
pub(crate) mod error;
mod plan;

/// A yard together with its memory: frames, memory map and control region.
///
/// Dereferences to [`Yard`]. Dropping it unmaps everything; in a shared yard, this process's view. In builds with debug assertions, dropping a
/// private yard with blocks that were allocated by number and not freed prints how many; [`stats().allocated_blocks()`](frameyard::views::YardStats::allocated_blocks)
/// lists them. Everything it
/// returns borrows it, except [owning guards](Self::frames_owned):
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

impl Sealed for &HostYard {}
impl Sealed for Arc<HostYard> {}

impl YardHandle for &HostYard {
    #[inline]
    fn yard(&self) -> &Yard<HostPlatform> {
        &self.yard
    }
}

impl YardHandle for Arc<HostYard> {
    #[inline]
    fn yard(&self) -> &Yard<HostPlatform> {
        &self.yard
    }
}

impl HostYard {
    /// Allocates a block of frames with bytes, which is freed on drop.
    ///
    /// Cost: as [`Yard::alloc`], and a look-up of the address among the ranges of memory.
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is allocated then. [`AllocError::NoFrameBytes`] in a yard of phantom frames: use
    /// [`Yard::frames`] there, whose guard has bytes as an `Option`.
    pub fn frames(&self, order: Order, gfp: Gfp) -> Result<MappedFrames<&Self>, AllocError> {
        MappedFrames::allocate(self, order, gfp)
    }

    /// Allocates a block of frames with bytes whose guard shares the yard instead of borrowing it.
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
    pub fn frames_owned(self: &Arc<Self>, order: Order, gfp: Gfp) -> Result<MappedFrames<Arc<Self>>, AllocError> {
        MappedFrames::allocate(Arc::clone(self), order, gfp)
    }

    /// Turns a guard of this yard into one that has bytes: for [requests](Yard::request) that say more than order and
    /// flags.
    ///
    /// ```
    /// use frameyard_host::{ByteSize, Gfp, HostYard, NodeId, Order};
    ///
    /// let yard = HostYard::with_memory(ByteSize::mib(64))?;
    /// let block = yard.with_bytes(yard.request(Order(3), Gfp::KERNEL).node(NodeId(0)).zeroed().guard()?)?;
    /// assert!(block.bytes().iter().all(|byte| *byte == 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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

    /// As [`Yard::validate`]. Compiled in this crate, so a check is fast in a program without optimisation too.
    ///
    /// # Errors
    ///
    /// [`ValidateError`] names the first equation that does not hold.
    pub fn validate(&self) -> Result<(), ValidateError> {
        self.yard.validate()
    }

    /// Initialises all deferred memory, as [`YardInit::finish`](frameyard::views::YardInit::finish) does. Compiled in this
    /// crate, like [`validate`](Self::validate).
    ///
    /// # Errors
    ///
    /// [`InitError`]: the initialised part of the yard stays in use.
    pub fn finish_init(&self) -> Result<(), InitError> {
        self.yard.init().finish()
    }

    /// A second view of the yard that counts accesses to page structures and locks in `counters`. Calls on the yard
    /// itself are not counted.
    ///
    /// `task` returns the small number of the calling task. Tasks that use the view at the same time have different
    /// numbers.
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
