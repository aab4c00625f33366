//! What the core asks of the world it runs in: the [`Platform`] trait.
//!
//! A platform says who is running ([`Platform::current_cpu`]), what waiting for a lock means, where the
//! bytes of a frame are, and is told of each cache line of a page structure that is touched. The native
//! platforms leave the hooks at their empty defaults, so they cost nothing; a counting platform counts;
//! a simulator charges virtual time.

use core::ptr::NonNull;

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::units::named;
use crate::units::{ByteSize, CpuId, NodeId, Order, PageCount, Pfn, PfnRange, ZoneId};

mod counting;
mod line;
mod mark;
#[cfg(all(test, not(loom)))]
pub(crate) mod plain;

pub use line::{LineKind, SharedLine};
pub use mark::{GetMark, StillGetting};

pub use counting::{Counted, CountingPlatform, CountingRow, LockKind, LocksTaken, PageTouches, SpanTouches};

/// The identity of a lock: what it guards, not where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockId {
    /// The lock of a zone's free lists.
    Zone(ZoneId),
    /// The lock of one CPU's lists in one zone.
    PerCpu(ZoneId, CpuId),
    /// The lock of what one CPU owns in one zone.
    Mechanism(ZoneId, CpuId),
    /// The lock of a shard of a node's lists of used pages.
    Lru(NodeId, u16),
    /// The lock of one CPU's batch of pages on their way to such a list.
    LruBatch(CpuId),
    /// The readers-writer lock of an address space's map.
    Space(u32),
    /// The lock of one page of page tables.
    PageTable(Pfn),
    /// The lock of a table of owners' small objects, by its kind.
    Objects(u32),
    /// The lock of a cached file.
    File(u32),
    /// The lock of the table of devices.
    Devices,
}

/// How a cache line is about to be used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Plain load.
    Read,
    /// Plain store.
    Write,
    /// An atomic read-modify-write.
    ReadModifyWrite,
    /// A plain load, made together with others like it before any of them is looked at: their misses overlap.
    ReadAhead,
}

/// How the lines of a part of the memory map go to memory when it is written: see [`Platform::map_written`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MapWrite {
    /// Through the caches: each line is fetched first, and written back when it is pushed out.
    Cached,
    /// Past the caches, as whole lines.
    Streamed,
}

/// What is being done: see [`Platform::span_begins`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Span {
    /// Frames are fetched for a CPU's list.
    Refill,
    /// Frames leave a CPU's lists for the zone.
    Drain,
    /// An address is used. Pages: the faults that took, one or none.
    Fault,
    /// Addresses are mapped, or unmapped: one call. Pages: those that were unmapped.
    Map,
    /// Entries of page tables are cleared. Pages: so many entries, whatever each mapped.
    Zap,
    /// An address space is taken down. Pages: those that it had.
    Exit,
    /// A block is allocated, or there is none. Pages: not said.
    Alloc,
    /// A block is freed, or refused. Pages: not said.
    Free,
    /// Under the zone lock, a block is taken off the free lists, and what is not wanted of it put back. Pages: those taken.
    Split,
    /// Under the zone lock, a block is put on the free lists, merged with its buddies. Pages: those of the block.
    Merge,
    /// What is kept between CPUs' lists and the free lists is brought back to these. Pages: not said.
    Collect,
    /// A part of the memory map comes up. Pages: those that became free.
    BringUp,
    /// Under the lock of lists of used pages, blocks are put on them, taken off or moved. Pages: so many blocks.
    Relist,
}

named!(Span: Refill => "refill", Drain => "drain", Fault => "fault", Map => "map", Zap => "zap", Exit => "exit",
    Alloc => "alloc", Free => "free", Split => "split", Merge => "merge", Collect => "collect", BringUp => "bring-up",
    Relist => "relist");

/// Whether frames' bytes were zeroed: see [`Platform::zero_frames`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Zeroing {
    /// Whoever asked is to do it.
    ByCaller,
    /// The platform has done it, or has no bytes that could be read.
    Done,
}

/// Whether frames' bytes were copied: see [`Platform::copy_frames`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Copying {
    /// Whoever asked is to do it.
    ByCaller,
    /// The platform has done it, or has no bytes that could be read.
    Done,
}

/// Whether a lock was free when it was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Contention {
    /// Nobody held it.
    Free,
    /// Somebody held it: the caller waited, or (with `try_lock`) got nothing.
    Contended,
}

const FREE: u32 = 0;
const HELD: u32 = 1;

/// The environment of a yard.
///
/// # CPU identities
///
/// [`current_cpu`](Platform::current_cpu) may be stale by the time it is used, and may name a CPU that
/// the yard does not know; the core folds it into range and never relies on it for correctness.
pub trait Platform: Sync {
    /// Held while a lock of the yard is held: where a kernel switches off preemption or interrupts, so that what
    /// interrupts the holder cannot wait for it.
    type Guard;

    /// Enters a section that holds a lock. Sections nest.
    fn guard(&self) -> Self::Guard;

    /// The CPU that runs the caller, now or a moment ago.
    fn current_cpu(&self) -> CpuId;

    /// Called between two looks at something busy; `round` counts from 0.
    ///
    /// Must yield to other threads after a bounded number of rounds where the holder may be preempted, and rather sleep
    /// from some round on, though not within the first 32: who waits for others gives up after a few thousand rounds,
    /// who must not sleep after those 32.
    fn relax(&self, round: u32);

    /// Where the bytes of a frame (and of those that follow it in its block) are mapped, if they are.
    fn frame_bytes(&self, pfn: Pfn) -> Option<NonNull<u8>>;

    /// Asked by who is about to zero the bytes of a block of frames, which he has alone: whether the platform has done it.
    /// By default it leaves that to him.
    ///
    /// A platform without the memory of so many frames answers [`Zeroing::Done`], and need not write what nobody can look at.
    #[inline(always)]
    fn zero_frames(&self, frames: PfnRange) -> Zeroing {
        let _ = frames;
        Zeroing::ByCaller
    }

    /// Asked by who is about to copy the bytes of a block of frames to another block of as many, both of which he keeps others
    /// from: whether the platform has done it. By default it leaves that to him.
    ///
    /// A platform without the memory of so many frames answers [`Copying::Done`], and need not copy what nobody has written.
    #[inline(always)]
    fn copy_frames(&self, from: PfnRange, to: Pfn) -> Copying {
        let _ = (from, to);
        Copying::ByCaller
    }

    /// Told of each access to the page structure of `pfn`. Natively empty.
    #[inline(always)]
    fn touch_page(&self, pfn: Pfn, access: Access) {
        let _ = (pfn, access);
    }

    /// Told of each access to a line of shared state that is no page structure and no lock. Natively empty.
    ///
    /// Called before the access, and before each try of an exchange, whether it succeeds or fails: so what a platform does
    /// here happens while the line is on its way. What is written once, when a yard is created, and counters that change
    /// once in very many operations are not told of.
    #[inline(always)]
    fn touch_line(&self, line: SharedLine, access: Access) {
        let _ = (line, access);
    }

    /// A hint that the page structure of `pfn`, at `address`, will be written soon.
    #[inline(always)]
    fn prefetch_page(&self, pfn: Pfn, address: *const u8) {
        let _ = pfn;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: prefetching never faults and changes nothing that can be observed, whatever the address.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = address;
    }

    /// The caller begins to do something. Natively empty.
    ///
    /// Spans nest by containment, and one ends before that which it is in. Those of moving frames between a CPU's lists and a
    /// zone ([`Span::Refill`], [`Span::Drain`]) are not inside each other; the lock of the lists is held when they begin, that of
    /// the zone is not yet. All others may be inside any.
    #[inline(always)]
    fn span_begins(&self, span: Span) {
        let _ = span;
    }

    /// The caller is done with so many pages, and holds the zone's lock no more. Pairs with
    /// [`span_begins`](Self::span_begins).
    #[inline(always)]
    fn span_ends(&self, span: Span, pages: PageCount) {
        let _ = (span, pages);
    }

    /// Takes the lock whose word is `word`, waiting for it: as long as others hold it, who wait for nobody meanwhile but
    /// for the holders of locks further down.
    ///
    /// Pairs with [`unlock`](Platform::unlock).
    #[inline]
    fn lock(&self, id: LockId, word: &AtomicU32) -> Contention {
        if self.try_lock(id, word) == Contention::Free {
            return Contention::Free;
        }
        let mut round = 0;
        loop {
            while word.load(Ordering::Relaxed) != FREE {
                self.relax(round);
                round = round.saturating_add(1);
            }
            if self.try_lock(id, word) == Contention::Free {
                return Contention::Contended;
            }
        }
    }

    /// Takes the lock if it is free; `Contended` means that it was not taken.
    #[inline(always)]
    fn try_lock(&self, id: LockId, word: &AtomicU32) -> Contention {
        let _ = id;
        // Acquire: sees all that the last holder wrote before its `unlock`.
        if word.swap(HELD, Ordering::Acquire) == FREE { Contention::Free } else { Contention::Contended }
    }

    /// Gives the lock back.
    #[inline(always)]
    fn unlock(&self, id: LockId, word: &AtomicU32) {
        let _ = id;
        // Release: pairs with the Acquire in `try_lock`.
        word.store(FREE, Ordering::Release);
    }

    /// Called between two looks at the word of a lock that is not taken by [`lock`](Self::lock): `word` was `seen`, and who
    /// changes it to what can be waited for says so ([`word_changes`](Self::word_changes)). `round` as in [`relax`](Self::relax),
    /// which this is by default.
    #[inline(always)]
    fn await_word(&self, id: LockId, word: &AtomicU64, seen: u64, round: u32) {
        let _ = (id, word, seen);
        self.relax(round);
    }

    /// The word of such a lock has changed, and those who [wait](Self::await_word) are to look again. Natively empty.
    #[inline(always)]
    fn word_changes(&self, id: LockId, word: &AtomicU64) {
        let _ = (id, word);
    }

    /// Runs `job` on `count` workers at once, each with its own number, and waits for all. The caller is worker 0.
    ///
    /// Worker n should run on a CPU of the node that `node_of` gives for n. Where fewer workers than asked for can
    /// be had, fewer run: a job must not count on all of them. The default runs worker 0 alone, and lets its panic pass.
    ///
    /// # Errors
    ///
    /// [`WorkerPanicked`] when a worker did not come to its end. All others have ended then.
    fn run_workers(
        &self,
        count: usize,
        node_of: &(dyn Fn(usize) -> NodeId + Sync),
        job: &(dyn Fn(usize) + Sync),
    ) -> Result<(), WorkerPanicked> {
        let _ = (count, node_of);
        job(0);
        Ok(())
    }

    /// A clock that only rises, in ns; `None` where there is none. Nothing is decided by it.
    fn clock_ns(&self) -> Option<u64> {
        None
    }

    /// The clock by which locks are timed, in ns; `None`, as by default, while they are not. Asked three times
    /// for each time a lock is taken that keeps counters: before, when it was got, and before it is given back.
    #[inline(always)]
    fn lock_clock_ns(&self) -> Option<u64> {
        None
    }

    /// Provides memory for a part of the memory map that is about to be written: `bytes` from `address`, the page
    /// structures of `frames`. Called once for each part. Where the map is backed already, as by default, does
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`MapNotBacked`] where there is no memory. Those frames stay out of use until somebody tries again.
    fn back_map(&self, frames: PfnRange, address: NonNull<u8>, bytes: usize) -> Result<(), MapNotBacked> {
        let _ = (frames, address, bytes);
        Ok(())
    }

    /// Told that all page structures of `frames`, holes included, were written as the map comes up: once for each pass over them,
    /// while nobody else reads them and no lock is held. Natively empty.
    #[inline(always)]
    fn map_written(&self, frames: PfnRange, how: MapWrite) {
        let _ = (frames, how);
    }

    /// Told that of a part of the memory map only some places will be written: the structures of the heads of compound pages
    /// of that order, and with them the map page that each begins. Before one is written, it comes to
    /// [`back_map`](Self::back_map) (or [`place_map`](Self::place_map)). All others are to read as zero from now on, in every
    /// view of the yard, and may share one page of memory; nobody writes there, unless they come to `back_map` when a
    /// compound page is split. By default does nothing: a map that is untouched memory is like that.
    ///
    /// What is read there is zero by now. But whoever got references there before, of pages that are no more, may still try an
    /// exchange, without effect: where tails cannot be written, those are waited for first
    /// ([`speculative_gets`](Self::speculative_gets)).
    ///
    /// `bytes` from `address` are the page structures of `frames`, which [`return_map`](Self::return_map) gives back.
    ///
    /// # Errors
    ///
    /// [`MapNotBacked`] where that cannot be had. The device is not mapped then.
    fn share_tails(
        &self,
        frames: PfnRange,
        order: Order,
        address: NonNull<u8>,
        bytes: usize,
    ) -> Result<(), MapNotBacked> {
        let _ = (frames, order, address, bytes);
        Ok(())
    }

    /// A part of the memory map holds zero alone, and is written no more: its memory may be given back, as long as it reads as
    /// zero. `bytes` from `address` are the page structures of `frames`: all of a device that was removed, or the tails
    /// behind the first map page of a compound page that was joined. After a device was removed the part must also be
    /// writable: who looked a page up before may try to change it, without effect, until he has seen that it is gone. By
    /// default does nothing.
    fn return_map(&self, frames: PfnRange, address: NonNull<u8>, bytes: usize) {
        let _ = (frames, address, bytes);
    }

    /// Makes `holding`, frames of a device, the memory of a part of the memory map that is about to be written: `bytes` from
    /// `address`. Otherwise as [`back_map`](Self::back_map). By default it cannot be done.
    ///
    /// # Errors
    ///
    /// [`MapNotBacked`] where it cannot be done.
    fn place_map(&self, holding: PfnRange, address: NonNull<u8>, bytes: usize) -> Result<(), MapNotBacked> {
        let _ = (holding, address, bytes);
        Err(MapNotBacked)
    }

    /// Gives the memory behind free frames back to where it came from. Their bytes are lost; what is read there before they
    /// are written to again is any bytes. No lock is held. By default nothing can be given back.
    ///
    /// # Errors
    ///
    /// [`FramesNotReturned`]: the frames have their memory still, or part of it.
    fn return_frames(&self, frames: &FreeFrames) -> Result<(), FramesNotReturned> {
        let _ = frames;
        Err(FramesNotReturned::NotPossible)
    }

    /// Whether speculative gets of references on pages of devices are to be told of: asked when a device is mapped, and noted
    /// in its sections, so that there is nothing to ask where they are not. By default they are not.
    ///
    /// A platform wants it where [`share_tails`](Self::share_tails) or [`return_map`](Self::return_map) makes pages of the
    /// map that cannot be written of such that can: it has to wait then until all gets have ended that had begun before.
    fn speculative_gets(&self) -> SpeculativeGets {
        SpeculativeGets::Unmarked
    }

    /// The caller is about to read a count of a page of a device, may exchange it then and, having found another page than
    /// it looked for, gives back what it got. The mark that this sets, if any, is [taken back](GetMark::end) when that is
    /// over. Called for [marked](SpeculativeGets::Marked) devices alone, and not again before that.
    #[inline(always)]
    fn get_begins(&self) -> Option<&GetMark> {
        None
    }

    /// Told how the memory map comes up. Called by whichever worker does it, while no lock is held.
    fn init_progress(&self, progress: InitProgress) {
        let _ = progress;
    }
}

/// Whether [`Platform::get_begins`] is called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SpeculativeGets {
    /// It is not.
    #[default]
    Unmarked,
    /// It is.
    Marked,
}

/// What [`Platform::init_progress`] is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InitProgress {
    /// The page structures of these frames, holes included, are written and their free frames can be allocated.
    Written(PfnRange),
    /// A pass over all that was left of a node's memory map is done.
    NodeDone(NodeInit),
}

/// What a pass over a node's memory map did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeInit {
    /// The node.
    pub node: NodeId,
    /// How many threads the largest job was given.
    pub threads: usize,
    /// How many jobs there were.
    pub jobs: u64,
    /// Page structures written or, where they were zero already, taken over; holes included.
    pub pages: PageCount,
    /// Frames that became free.
    pub freed: PageCount,
    /// How long it took, where the platform has a clock.
    pub elapsed_ns: Option<u64>,
}

/// There is no memory for a part of the memory map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapNotBacked;

impl core::fmt::Display for MapNotBacked {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("no memory for a part of the memory map")
    }
}

impl core::error::Error for MapNotBacked {}

/// Free frames that nobody is given meanwhile: what [`Platform::return_frames`] is called with.
///
/// Only a yard makes one, of frames of its own: who has it knows that nobody reads or writes their bytes. A platform that
/// hands it on hands it to what is behind the same frames.
#[derive(Debug)]
pub struct FreeFrames(PfnRange);

impl FreeFrames {
    /// The caller has the frames alone, and nobody has their bytes.
    pub(crate) fn new(range: PfnRange) -> Self {
        Self(range)
    }

    /// The frames.
    #[must_use]
    pub fn range(&self) -> PfnRange {
        self.0
    }
}

/// Why frames kept the memory behind them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FramesNotReturned {
    /// There is no memory behind frames, or none that can be given back.
    NotPossible,
    /// Only whole pieces of this size can be given back.
    Granule(ByteSize),
    /// The system refused, with this error number.
    Refused(i32),
}

impl core::fmt::Display for FramesNotReturned {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotPossible => f.write_str("the frames have no memory behind them that could be given back"),
            Self::Granule(size) => write!(f, "memory is given back in pieces of {size}"),
            Self::Refused(error) => write!(f, "the system took no memory back: error {error}"),
        }
    }
}

impl core::error::Error for FramesNotReturned {}

/// A worker thread panicked while it ran a job of the platform.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkerPanicked;

impl core::fmt::Display for WorkerPanicked {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("a worker thread panicked")
    }
}

impl core::error::Error for WorkerPanicked {}
