//! Getting and pinning pages of address spaces: references and pins by range, without locks if possible.
//!
//! After the kernel's `gup_fast_pgd_range` and `__get_user_pages`, and the series that made pinning device memory as
//! fast as pinning huge pages.
//!
//! | module | contents |
//! |---|---|
//! | `request`, `error`, `sink` | requests, errors, and where the frames go |
//! | `part` | the pages of a run with one head, which counts their references |
//! | `fast` | the walk without locks |
//! | `slow` | the walk under the map lock, which faults missing pages in |
//! | `ahead` | prefetch of page structures for both walks |
//! | `longterm` | migration of pages out of memory that must stay movable |
//! | `release` | release of references and pins |
//! | `page` | one pin at a time |
//!
//! # Fast path
//!
//! The caller has a handle, so the space and its root table stay. It takes no lock, so everything below can change at
//! any time: an entry can be cleared, marked or split, and a table can be freed and its frame reused. The walk does, in
//! this order:
//!
//! 1. Read the space's count of removed tables ([`SpaceWord::TABLE_REMOVALS`], Acquire).
//! 2. Walk down. Read frames named by entries as tables only if they are memory of the yard, and only with atomic
//!    loads. A reused frame yields at most a wrong number.
//! 3. For a present entry: check that the head of its frame is a page of a space, and try to take all references at
//!    once (Acquire). This writes nothing to a page without references, that is, to a page that is free, being freed or
//!    frozen.
//! 4. Read the entry and the count of step 1 again. If either differs, release the references and leave the rest to the
//!    slow path. Otherwise the references belong to the mapped page.
//!
//! # Races
//!
//! - **Unmap** clears the entry and then releases the mapping's reference (Release). A walk that takes its references
//!   afterwards has read that count or a later one, even if the frame is a different page by then, so step 4 sees the
//!   cleared entry. A walk that took its references earlier keeps the page: it got the page before the unmap.
//! - **Migration** marks the entry and then freezes the counts. Earlier references make the freeze fail. After the
//!   freeze no references can be taken until the frame has a new owner, and by then step 4 sees the mark. **Splitting**
//!   works the same way: a huge mapping is marked before its block is frozen ([`split_huge`](SpaceRef::split_huge)),
//!   and the parts of a frozen block get new entries before their pages get users
//!   ([`split_parts`](SpaceRef::split_parts)). A walk therefore never takes references of a block for its first page or
//!   the reverse.
//! - **Removal of tables** clears the entry that leads to the table, raises the count of step 1, executes a fence, and
//!   frees the frame. A walk that reads the raised count in step 1 does not reach the table. A walk that read the old
//!   count, and in step 2 or 3 reads a later owner's write to the frame, reads the raised count in step 4: see below.
//! - **Devices** are removed only when no entry counts as theirs, and entries are cleared before they are uncounted. A
//!   removed page has no references to take. A page of another device in the same place has, and then step 4 sees the
//!   cleared entry.
//! - **Pins** of larger blocks are counted in a word that only a page of a space has, so they are counted after step 4.
//!   Until then such a block is merely in use.
//!
//! # Freed tables
//!
//! Steps 2 and 3 can read a word while a later owner of the frame writes there with plain stores. The language does not
//! define this case. A processor returns some value, and step 4 must discard it. It does so because the raised count reaches
//! the walking CPU before the later owner's store:
//!
//! 1. The removing CPU raises the count, executes the fence, and frees the frame under a lock. The later owner takes the
//!    frame under a lock, possibly on a third CPU, and then stores. Each step is ordered behind the one before by release and
//!    acquire, so the store comes after the raised count in the order that the later owner's CPU has seen.
//! 2. The walk loads the entry with Acquire, so its load of the count in step 4 comes later.
//!
//! On processors where a store becomes visible to all other CPUs at once (x86-64, AArch64, RISC-V), these two orders suffice.
//! The language, and processors that show a store to some CPUs earlier (POWER), allow the walk to see the store of 1 and an old
//! count, because the later owner executes no fence between its lock and its store. There, [`visible_to_all`] is a sequentially
//! consistent fence after the count is raised and before step 4 reads it. The removing CPU's fence precedes the later owner's
//! store, and the walk reads that store before its own fence, so the fences are in this order and the walk reads the raised
//! count. Models follow the language and execute the fence; `loom_models/pins.rs` fails without it.
//!
//! The fast path does not set accessed or dirty bits. A caller that writes reports this when it unpins.

use core::fmt;

use frameyard::sync::{Ordering, fence};
use frameyard::{PageCount, Pfn, Platform};

use crate::address::{PageLevel, VirtAddr, VirtRange};
use crate::space::{AddressSpace, SpaceRef, SpaceWord};
use crate::table::{Entry, HUGE, Level};

mod ahead;
mod error;
mod fast;
mod longterm;
mod page;
mod part;
mod release;
mod request;
mod sink;
mod slow;

pub use error::{PinError, ReleaseError, ReleaseProblem};
pub use page::PinnedPage;
pub use request::{Dirty, PinCall, PinFlags, PinPath, PinRequest, RefHandling};
pub use sink::PageRun;
pub(crate) use sink::PageSink;
use sink::{FrameArray, RunArray};

/// What [`take_runs`](crate::AddressSpace::take_runs) has taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TakenRuns {
    /// The number of runs filled in.
    pub runs: usize,
    /// The number of pages in those runs.
    pub pages: PageCount,
}

/// The state of a walk.
struct Taking<'a, 'y, P: Platform, S> {
    space: SpaceRef<'y, P>,
    request: PinRequest,
    /// The current address.
    at: u64,
    end: u64,
    sink: &'a mut S,
    /// The last run taken, not yet passed to the sink.
    open: PageRun,
    /// A pageblock known to be outside contiguous memory areas (CMA).
    known_stable: Option<Pfn>,
}

/// A run of this length goes to the sink even if it could grow.
const LONG_RUN: PageCount = HUGE.pages();

impl<P: Platform, S> fmt::Debug for Taking<'_, '_, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of addresses [{:#x}, {:#x})", self.request, self.at, self.end)
    }
}

impl<P: Platform, S: PageSink> Taking<'_, '_, P, S> {
    /// The frames of an entry from the current address on, limited by the remaining room.
    #[inline(always)]
    fn run(&mut self, entry: Entry, level: Level) -> PageRun {
        let behind = (level.align_down(self.at) + level.span()).min(self.end);
        let pages = PageCount((behind - self.at) >> Level::SMALL.shift());
        let run = PageRun { first: frame_at(entry, level, self.at), pages };
        if self.continues(run) {
            return run;
        }
        self.flush_run();
        PageRun { pages: PageCount(self.sink.room(run)), ..run }
    }

    /// Notes a taken run. There is room for it.
    #[inline(always)]
    fn note(&mut self, run: PageRun) {
        if self.continues(run) {
            self.open.pages += run.pages;
        } else {
            self.open = run;
        }
        if self.open.pages >= LONG_RUN {
            self.flush_run();
        }
        self.at += run.pages.0 << Level::SMALL.shift();
    }

    /// Whether a run continues the open one.
    #[inline(always)]
    fn continues(&self, run: PageRun) -> bool {
        self.open.pages > PageCount(0) && self.open.end() == run.first
    }

    /// Passes the open run to the sink.
    #[inline(always)]
    fn flush_run(&mut self) {
        if self.open.pages > PageCount(0) {
            self.sink.push(core::mem::take(&mut self.open));
        }
    }

    /// The address at which the walk leaves a table of that level.
    #[inline(always)]
    fn end_of_table(&self, level: Level) -> u64 {
        let table = Level(level.0 + 1);
        (table.align_down(self.at) + table.span()).min(self.end)
    }

    /// Takes the requested pages; returns their number.
    #[inline]
    fn take(&mut self) -> Result<PageCount, PinError> {
        let start = self.at;
        let done = match self.request.path {
            PinPath::SlowOnly => self.slow(),
            PinPath::FastThenSlow => {
                self.fast();
                if self.at == self.end { Ok(()) } else { self.slow() }
            }
            PinPath::FastOnly => {
                self.fast();
                if self.at > start { Ok(()) } else { Err(PinError::NotFast(VirtAddr(self.at))) }
            }
        };
        self.flush_run();
        match done {
            Err(problem) if self.at == start => Err(problem),
            _ => Ok(PageCount((self.at - start) >> Level::SMALL.shift())),
        }
    }
}

/// The frame of an address that the entry maps.
#[inline(always)]
pub(crate) fn frame_at(entry: Entry, level: Level, addr: u64) -> Pfn {
    Pfn(entry.pfn().0 + ((addr - level.align_down(addr)) >> Level::SMALL.shift()))
}

impl<P: Platform> SpaceRef<'_, P> {
    /// The count of removed tables of this space.
    #[inline(always)]
    fn table_removals(&self) -> u64 {
        // Acquire: pairs with the Release in `announce_table_removal`.
        self.word(SpaceWord::TABLE_REMOVALS).load(Ordering::Acquire)
    }

    /// Announces the removal of tables that are no longer linked; the caller may free them afterwards. The caller holds
    /// the map lock for writing.
    pub(crate) fn announce_table_removal(&self) {
        #[cfg(loom)]
        if frameyard::sync::is_weakened(frameyard::sync::Weakness::TablesFreedUncounted) {
            return;
        }
        // Release: pairs with the Acquire in `table_removals`. A walk that reads the new count finds no entry that leads to the
        // freed tables.
        self.word(SpaceWord::TABLE_REMOVALS).fetch_add(1, Ordering::Release);
        // Release: pairs with the Acquire in `Table::entry`. A walk that reaches a freed table and reads a later write there
        // also sees the new count.
        fence(Ordering::Release);
        visible_to_all();
    }
}

/// A fence where stores may become visible to one CPU before another, see [Freed tables](self#freed-tables). Also in models, which
/// follow the rules of the language.
#[inline(always)]
fn visible_to_all() {
    #[cfg(loom)]
    if frameyard::sync::is_weakened(frameyard::sync::Weakness::StoresSeenEarly) {
        return;
    }
    if cfg!(any(loom, not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))) {
        // SeqCst: pairs with itself in `visible_to_all`.
        fence(Ordering::SeqCst);
    }
}

impl<P: Platform> AddressSpace<'_, P> {
    /// Takes the pages from `start` on, one for each element of `frames`, and writes their frame numbers there. Returns
    /// the number of pages taken, which is at least one.
    ///
    /// Like the kernel, it takes fewer pages rather than failing; the next call then returns the reason. Release the
    /// pages with [`put_pages`](crate::Vm::put_pages) or [`unpin_pages`](crate::Vm::unpin_pages), depending on the
    /// request.
    ///
    /// # Errors
    ///
    /// [`PinError`] says why the first page was not taken.
    ///
    /// # Cost
    ///
    /// On the fast path, per page-table entry: three loads, one atomic operation on the head's page structure (two to
    /// pin a larger block), and 8 bytes written per page. Per 2 MiB of small entries: a walk of four loads. The slow
    /// path takes the map lock for reading, and the lock of each table once for all its entries.
    pub fn take_pages(&self, start: VirtAddr, request: PinRequest, frames: &mut [Pfn]) -> Result<PageCount, PinError> {
        let bytes = (frames.len() as u64).checked_mul(PageLevel::Small.size().0);
        let end = bytes.and_then(|bytes| start.0.checked_add(bytes)).unwrap_or(u64::MAX);
        self.take(VirtRange { start, end: VirtAddr(end) }, request, &mut FrameArray::new(frames))
    }

    /// Takes the pages of a range, at least one, and fills in runs of frames. Adjacent runs are merged, whatever their
    /// heads. It stops when `runs` is full.
    ///
    /// Release the pages with [`put_runs`](crate::Vm::put_runs) or [`unpin_runs`](crate::Vm::unpin_runs).
    ///
    /// # Errors
    ///
    /// Those of [`take_pages`](Self::take_pages).
    ///
    /// # Cost
    ///
    /// As there, but with 16 bytes written per run.
    pub fn take_runs(
        &self,
        range: VirtRange,
        request: PinRequest,
        runs: &mut [PageRun],
    ) -> Result<TakenRuns, PinError> {
        let mut sink = RunArray::new(runs);
        let pages = self.take(range, request, &mut sink)?;
        Ok(TakenRuns { runs: sink.len, pages })
    }

    /// Takes the pages of a range until `sink` is full.
    pub(crate) fn take<S: PageSink>(
        &self,
        range: VirtRange,
        request: PinRequest,
        sink: &mut S,
    ) -> Result<PageCount, PinError> {
        if range.is_empty() || !range.is_aligned(PageLevel::Small.size()) || range.end > VirtAddr::END {
            return Err(PinError::BadRange(range));
        }
        let (at, end) = (range.start.0, range.end.0);
        Taking { space: self.space(), request, at, end, sink, open: PageRun::default(), known_stable: None }.take()
    }
}
