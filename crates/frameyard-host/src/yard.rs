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
/// Dereferences to [`Yard`]. Everything it returns borrows it, except [owning guards](Self::frames_owned). Dropping it
/// unmaps the memory; for a shared yard, it unmaps this process's view.
///
/// In builds with debug assertions, dropping a private yard of up to 2²⁴ frames prints how many blocks were never
/// freed. [`stats().allocated_blocks()`](frameyard::views::YardStats::allocated_blocks) lists them.
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
    /// Allocates a block of frames and returns a guard with their bytes, which frees them when it is dropped.
    ///
    /// Cost: that of [`Yard::alloc`], plus a search for the address among the ranges of memory.
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is allocated then. A yard of phantom frames returns [`AllocError::NoFrameBytes`]: use
    /// [`Yard::frames`] there, whose guard has bytes as an `Option`.
    pub fn frames(&self, order: Order, gfp: Gfp) -> Result<MappedFrames<&Self>, AllocError> {
        MappedFrames::allocate(self, order, gfp)
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
    pub fn frames_owned(self: &Arc<Self>, order: Order, gfp: Gfp) -> Result<MappedFrames<Arc<Self>>, AllocError> {
        MappedFrames::allocate(Arc::clone(self), order, gfp)
    }

    /// Turns a guard of this yard into one with bytes, after a [request](Yard::request) that says more than order and
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

    /// As [`Yard::validate`], but compiled in this crate, so that it is fast even if your program is built without
    /// optimisation.
    ///
    /// # Errors
    ///
    /// [`ValidateError`] names the first equation that does not hold.
    pub fn validate(&self) -> Result<(), ValidateError> {
        self.yard.validate()
    }

    /// Initialises all deferred memory, as [`YardInit::finish`](frameyard::views::YardInit::finish) does. Like
    /// [`validate`](Self::validate), it is compiled in this crate.
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
