//! Memory behind the map and behind frames: what a platform can provide, share and give back.

use core::ptr::NonNull;

use crate::platform::GetMark;
use crate::units::{ByteSize, Order, Pfn, PfnRange, messages};

/// Provides, shares and returns the memory behind the map and behind frames
/// ([`Platform::backing`](super::Platform::backing)).
///
/// All methods have defaults, which are those of [`OrdinaryMemory`]: the map has memory before the yard is created,
/// frames cannot be returned, and the core itself writes the bytes of frames.
#[expect(unused_variables, reason = "the defaults ignore their arguments")]
pub trait MemoryBacking {
    /// Provides memory for a part of the memory map that is about to be written: the `bytes` bytes at `address`, which
    /// are the page structures of `frames`. Called once per part, and again after
    /// [`release_tails`](Self::release_tails). The default does nothing: the map has memory already.
    ///
    /// # Errors
    ///
    /// [`MapNotBacked`] if there is no memory. Those frames stay out of use until a caller tries again.
    fn back_map(&self, frames: PfnRange, address: NonNull<u8>, bytes: usize) -> Result<(), MapNotBacked> {
        Ok(())
    }

    /// Announces that only a small part of the `bytes` bytes at `address`, the page structures of `frames`, will be
    /// written: the heads of compound pages of that order, and the map page that each head begins. By default this does
    /// nothing, which suits a map of untouched memory.
    ///
    /// Before a head is written, it is passed to [`back_map`](Self::back_map) or [`place_map`](Self::place_map). From
    /// now on all other structures must read as zero in every view of the yard, and they may share one page of memory.
    /// They are not written before they are passed to `back_map`, which happens when a compound page is split, or if
    /// each compound page keeps a second map page. [`return_map`](Self::return_map) undoes this call.
    ///
    /// The part reads as zero when this is called. A thread that looked up a page of an earlier device there may still try
    /// an exchange, which fails but is a write to the processor. A platform that makes tails read-only first waits for such
    /// threads ([`speculative_gets`](Self::speculative_gets)).
    ///
    /// # Errors
    ///
    /// [`MapNotBacked`] if this is not possible. The device is not mapped then.
    fn share_tails(
        &self,
        frames: PfnRange,
        order: Order,
        address: NonNull<u8>,
        bytes: usize,
    ) -> Result<(), MapNotBacked> {
        Ok(())
    }

    /// Allows the platform to take back the memory of a part of the map that contains only zeroes and is no longer
    /// written. The part must still read as zero. By default this does nothing.
    ///
    /// The `bytes` bytes at `address` are the page structures of `frames`: those of a whole removed device, or the
    /// tails behind the first map page of a joined compound page. The part of a removed device must stay writable: a
    /// thread that looked up a page earlier may try an exchange, which fails, before it finds the device removed.
    fn return_map(&self, frames: PfnRange, address: NonNull<u8>, bytes: usize) {}

    /// Gives the memory behind the page structures of a huge page's tails back to the host; returns the number of bytes
    /// given back. The structures are zero, must still read as zero in every view of the yard, and are not written
    /// before they are passed to [`back_map`](Self::back_map). Called without a lock held. The default gives nothing
    /// back.
    fn release_tails(&self, tails: &HugePageTails) -> ByteSize {
        ByteSize(0)
    }

    /// As [`back_map`](Self::back_map), but the memory for that part of the map is `holding`, frames of the device
    /// itself. Not possible by default.
    ///
    /// # Errors
    ///
    /// [`MapNotBacked`] if this is not possible.
    fn place_map(&self, holding: PfnRange, address: NonNull<u8>, bytes: usize) -> Result<(), MapNotBacked> {
        Err(MapNotBacked)
    }

    /// Gives the memory behind free frames back to the host. Their bytes are lost, and until the next write they may
    /// read as anything. Called without a lock held. Not possible by default.
    ///
    /// # Errors
    ///
    /// [`FramesNotReturned`]: the frames keep some or all of their memory.
    fn return_frames(&self, frames: &FreeFrames) -> Result<(), FramesNotReturned> {
        Err(FramesNotReturned::NotPossible)
    }

    /// Zeroes the bytes of a block, which the caller owns. By default the core does it through
    /// [`frame_bytes`](super::Platform::frame_bytes).
    ///
    /// Override it on a platform with a faster way, such as a copy engine, or one whose frames have no memory.
    #[inline(always)]
    fn zero_frames(&self, frames: PfnRange) -> Offload {
        Offload::Declined
    }

    /// Copies the bytes of a block to a block of the same size. No other thread accesses either. By default the core does
    /// it through [`frame_bytes`](super::Platform::frame_bytes).
    #[inline(always)]
    fn copy_frames(&self, from: PfnRange, to: Pfn) -> Offload {
        Offload::Declined
    }

    /// Whether the platform needs [marks](GetMark) of speculative gets on pages of devices. Asked once per device, when it
    /// is mapped. By default it does not.
    ///
    /// A platform needs them if its [`share_tails`](Self::share_tails) or [`return_map`](Self::return_map) makes map
    /// pages read-only: it must then first wait until every earlier get has ended.
    fn speculative_gets(&self) -> SpeculativeGets {
        SpeculativeGets::Unmarked
    }

    /// Sets the calling thread's mark. The caller is about to read a page's count and may exchange it. It
    /// [ends](GetMark::end) the mark after the exchange and, if it got a reference on the wrong page, after it has
    /// released that.
    ///
    /// Called for [marked](SpeculativeGets::Marked) devices only. Calls do not nest.
    #[inline(always)]
    fn begin_get(&self) -> Option<&GetMark> {
        None
    }
}

/// The backing of a kernel that maps the whole memory map before it creates the yard, and keeps it mapped.
#[derive(Clone, Copy, Debug)]
pub struct OrdinaryMemory;

impl MemoryBacking for OrdinaryMemory {}

/// Whether the platform did the work that it was offered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Offload {
    /// The platform did nothing; the caller does the work.
    Declined,
    /// The platform did the work, or the frames have no bytes that anyone could read.
    Done,
}

/// Whether [`MemoryBacking::begin_get`] is called for a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SpeculativeGets {
    /// It is not called.
    #[default]
    Unmarked,
    /// It is called before each get.
    Marked,
}

/// There is no memory for a part of the memory map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapNotBacked;

messages!(MapNotBacked { Self => "no memory for a part of the memory map" });

/// Free frames, isolated from allocation: the argument of [`MemoryBacking::return_frames`].
///
/// Only a yard creates this, for its own frames. While it exists, no code reads or writes their bytes.
#[derive(Debug)]
pub struct FreeFrames(PfnRange);

impl FreeFrames {
    /// The caller has isolated the frames.
    pub(crate) fn new(range: PfnRange) -> Self {
        Self(range)
    }

    /// The frames.
    #[must_use]
    pub fn range(&self) -> PfnRange {
        self.0
    }
}

/// The page structures of the tails of a huge page in a pool: the argument of [`MemoryBacking::release_tails`].
///
/// Only a yard creates this, for a page that it has taken off all lists. While it exists, the structures are zero and
/// no code writes them.
#[derive(Debug)]
pub struct HugePageTails {
    frames: PfnRange,
    address: NonNull<u8>,
    bytes: usize,
}

impl HugePageTails {
    /// The page structures of `frames`, at `address`. The caller owns the huge page that the frames belong to, and they are tails.
    pub(crate) fn new(frames: PfnRange, (address, bytes): (NonNull<u8>, usize)) -> Self {
        Self { frames, address, bytes }
    }

    /// The frames.
    #[must_use]
    pub fn frames(&self) -> PfnRange {
        self.frames
    }

    /// The address of the first structure.
    #[must_use]
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// The size of all of them in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Why frames kept the memory behind them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FramesNotReturned {
    /// The frames have no memory, or memory that cannot be returned.
    NotPossible,
    /// The host takes memory back in pieces of this size only.
    Granule(ByteSize),
    /// The host refused, with this error number.
    Refused(i32),
}

messages!(FramesNotReturned {
    Self::NotPossible => "the frames have no memory that can be returned to the host",
    Self::Granule(size) => "the host takes memory back in pieces of {size}",
    Self::Refused(error) => "the host took no memory back: error {error}",
});
