//! Instrumentation: what the core reports about its work to simulators, counters and progress displays.

use crate::platform::SharedLine;
use crate::units::{NodeId, PageCount, Pfn, PfnRange, named};

/// Receives events from the core ([`Platform::probe`](super::Platform::probe)). Every method does nothing by default,
/// and the core's behaviour depends on none of them.
#[expect(unused_variables, reason = "the defaults ignore their arguments")]
pub trait Probe {
    /// Whether the probe uses [`touch_page`](Self::touch_page) and [`block_taken`](Self::block_taken). If not, the
    /// core need not compute the numbers of frames whose page structures it finds by their place in the map. Always the
    /// same answer, so that it compiles to a constant. `true` by default.
    #[inline(always)]
    fn sees_pages(&self) -> bool {
        true
    }

    /// The caller is about to access the page structure of `pfn`. Not called if [`sees_pages`](Self::sees_pages) returns `false`.
    #[inline(always)]
    fn touch_page(&self, pfn: Pfn, access: Access) {}

    /// The caller is about to access a line of shared state that is neither a page structure nor a lock.
    ///
    /// Called before the access, and before each attempt at an exchange. Not called for data that is written only once,
    /// when a yard is created, or for counters that change very rarely.
    #[inline(always)]
    fn touch_line(&self, line: SharedLine, access: Access) {}

    /// The caller begins an activity.
    ///
    /// Activities nest: the inner one ends before the outer one. [`Activity::Refill`] and [`Activity::Drain`] do not contain
    /// each other; both begin with the lock of the CPU's lists held and the zone lock free.
    #[inline(always)]
    fn begin_activity(&self, activity: Activity) {}

    /// The caller ends an activity that covered `pages` pages.
    #[inline(always)]
    fn end_activity(&self, activity: Activity, pages: PageCount) {}

    /// A block of more than one page has left the zone's free lists for a request. Called with the zone lock held. Not
    /// called if [`sees_pages`](Self::sees_pages) returns `false`.
    #[inline(always)]
    fn block_taken(&self, block: PfnRange) {}

    /// All page structures of `frames`, holes included, have been written during map initialisation. Called once per
    /// pass over them, before any other code reads them, and without a lock held.
    #[inline(always)]
    fn map_written(&self, frames: PfnRange, how: MapWrite) {}

    /// Initialisation of the memory map has made progress. Called by the worker that did the work, without a lock held.
    fn init_progress(&self, progress: InitProgress) {}

    /// A monotonic clock in ns, for the times that [`NodeInit`] reports; `None` without a clock.
    fn clock_ns(&self) -> Option<u64> {
        None
    }

    /// The clock that times locks, in ns; `None` (the default) while locks are not timed.
    ///
    /// Read three times per acquisition of a lock that has counters: before the wait, after it, and before the unlock.
    #[inline(always)]
    fn lock_clock_ns(&self) -> Option<u64> {
        None
    }
}

/// The probe of a platform without instrumentation: calls to it compile to nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoProbe;

impl Probe for NoProbe {
    #[inline(always)]
    fn sees_pages(&self) -> bool {
        false
    }
}

/// How the caller is about to use a cache line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Plain load.
    Read,
    /// Plain store.
    Write,
    /// Atomic read-modify-write.
    ReadModifyWrite,
    /// One of several plain loads whose values are used only after the last of them, so that their misses overlap.
    ReadAhead,
    /// A prefetch of a line that will be written.
    Prefetch,
}

/// How a part of the memory map was written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MapWrite {
    /// Through the caches: the processor fetches each line and later writes it back.
    Cached,
    /// As [`Cached`](Self::Cached), but each page structure was zeroed by its own `memset` call first.
    MemsetEach,
    /// By one `memset` of the whole part.
    Memset,
    /// With non-temporal stores of whole lines.
    Streamed,
}

/// A kind of work to which a [`Probe`] can attribute time and memory accesses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Activity {
    /// Frames move from a zone to a CPU's list.
    Refill,
    /// Frames move from a CPU's lists to the zone.
    Drain,
    /// An address is accessed. Pages: the number of faults taken, 0 or 1.
    Fault,
    /// One call that maps or unmaps addresses. Pages: those that were unmapped.
    Map,
    /// Page-table entries are cleared. Pages: the number of entries, whatever size each mapped.
    Zap,
    /// An address space is torn down. Pages: those it had.
    Exit,
    /// An allocation, successful or not. Pages: 0.
    Alloc,
    /// A free, successful or not. Pages: 0.
    Free,
    /// Under the zone lock, a block is removed from the free lists and its unused part put back. Pages: the number of
    /// blocks taken.
    Split,
    /// Under the zone lock, a block is put on the free lists and merged with its buddies. Pages: 1.
    Merge,
    /// Frames that the transfer policy keeps between per-CPU lists and free lists move to the free lists. Pages: 0.
    Collect,
    /// A part of the memory map is initialised. Pages: the frames that became free.
    BringUp,
    /// Under the lock of an LRU shard, blocks are added, removed or moved. Pages: the number of blocks.
    Relist,
}

named!(Activity: Refill => "refill", Drain => "drain", Fault => "fault", Map => "map", Zap => "zap", Exit => "exit",
    Alloc => "alloc", Free => "free", Split => "split", Merge => "merge", Collect => "collect", BringUp => "bring-up",
    Relist => "relist");

/// What [`Probe::init_progress`] reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum InitProgress {
    /// The page structures of these frames, holes included, are written, and their free frames can be allocated.
    Written(PfnRange),
    /// A pass over the rest of a node's memory map is done.
    NodeDone(NodeInit),
}

/// One pass over a node's memory map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeInit {
    /// The node.
    pub node: NodeId,
    /// The number of threads of the largest job.
    pub threads: usize,
    /// The number of jobs.
    pub jobs: u64,
    /// Page structures that were written, or were zero already and needed no write; holes included.
    pub pages: PageCount,
    /// Frames that became free.
    pub freed: PageCount,
    /// How long the pass took, if the platform has a clock.
    pub elapsed_ns: Option<u64>,
}
