//! Getting and pinning pages of address spaces: references and pins by range, without locks where that goes.
//!
//! After the kernel's `gup_fast_pgd_range` and `__get_user_pages`, and the series that made device memory as fast as huge pages.
//!
//! - `request`: what is asked for; `error`: why it is not had; `sink`: where the frames go;
//! - `part`: the pages of a run that have one head, which counts the references of all of them;
//! - `fast`: the walk without locks; `slow`: the walk under the map lock, which maps what is missing; `ahead`: page
//!   structures that both fetch before they come to them;
//! - `longterm`: moving pages out of where they must not stay; `release`: giving back; `page`: one pin at a time.
//!
//! # Protocol of the fast path
//!
//! The caller has a handle, so the space and its topmost table stay. He takes no lock, so anything below may go at any time:
//! an entry may be cleared, moved or split while he looks at it, and a table be freed and be another's frame. In this order:
//!
//! 1. Read the word that counts when tables of this space went ([`SpaceWord::TABLES_GONE`], Acquire).
//! 2. Walk down. Frames that entries name are looked at as tables only where they are memory of the yard, and with atomic
//!    loads, so whatever stands there is at most a wrong number.
//! 3. For a present entry: look whether its frame's head is a page of a space, and try to get all references at once
//!    (Acquire). That writes nothing where there are no references, which is all pages that are free, being freed, or frozen.
//! 4. Look at the entry again, and at the word of 1. Where either differs, put what was got, and leave the rest to the slow
//!    path. Else the references are to what is mapped there.
//!
//! # Who sees what
//!
//! - **Unmapping** clears the entry, then puts its mapping's reference (Release). Who gets his in 3 after that has read that
//!   count or a later one, also if the frame is another page by then: so he sees in 4 that the entry was cleared. Who got it
//!   before keeps the page: it was taken before it was unmapped.
//! - **Moving** marks the entry, then freezes the counts. References got before make the freeze fail; after it there are none
//!   to get until the frame is somebody's again, and then the mark is seen in 4. The same holds for **splitting**: a huge
//!   mapping is marked before its block is frozen ([`split_huge`](SpaceRef::split_huge)), and parts of a block that is frozen
//!   get their new entries before their pages get users ([`split_parts`](SpaceRef::split_parts)). So nobody gets
//!   references of a block and finds them to be of its first page, or the other way round.
//! - **Tables that go**: the entry that led there is cleared, the word of 1 is raised, and only then the frame is freed, with
//!   a fence between. Who reads the raised word in 1 does not come to the table any more. Who read the word before and reads
//!   in 2 or 3 what a later owner of the frame wrote, reads the raised word in 4.
//! - **Devices** are removed when no entry counts as theirs any more, and entries are cleared before they are uncounted. Pages
//!   that are removed have no references to get; those of another device in the same place have, and then 4 shows that the
//!   entry was cleared.
//! - **Pins** of larger blocks are counted in a word that only a page of a space has, so they are counted after 4. Between,
//!   such a block is merely in use.
//!
//! As in every such protocol, 2 and 3 may read a word while a later owner of the frame writes bytes there by plain writes. The
//! language has no name for that; a processor hands out some value, and 4 throws it away.
//!
//! What the fast path does not do: it does not mark an entry as used or written. Who writes says so when he unpins.

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

/// How much was taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TakenRuns {
    /// How many runs were filled.
    pub runs: usize,
    /// How many pages those have.
    pub pages: PageCount,
}

/// A walk that takes pages.
struct Taking<'a, 'y, P: Platform, S> {
    space: SpaceRef<'y, P>,
    request: PinRequest,
    /// Where the walk is.
    at: u64,
    end: u64,
    sink: &'a mut S,
    /// What was taken last and not handed to the sink: pages one after the other, as one run.
    open: PageRun,
    /// A pageblock that was found to lie in no contiguous memory area.
    settled: Option<Pfn>,
}

/// Runs of so many pages are handed on, though they may go on.
const LONG_RUN: PageCount = HUGE.pages();

impl<P: Platform, S> fmt::Debug for Taking<'_, '_, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of addresses [{:#x}, {:#x})", self.request, self.at, self.end)
    }
}

impl<P: Platform, S: PageSink> Taking<'_, '_, P, S> {
    /// The frames behind an entry from where the walk is, as far as there is room for them.
    #[inline(always)]
    fn run(&mut self, entry: Entry, level: Level) -> PageRun {
        let behind = (level.align_down(self.at) + level.span()).min(self.end);
        let pages = PageCount((behind - self.at) >> Level::SMALL.shift());
        let run = PageRun { first: frame_at(entry, level, self.at), pages };
        if self.goes_on(run) {
            return run;
        }
        self.hand_on();
        PageRun { pages: PageCount(self.sink.room(run)), ..run }
    }

    /// Notes a run that was taken, for which there is room.
    #[inline(always)]
    fn note(&mut self, run: PageRun) {
        if self.goes_on(run) {
            self.open.pages += run.pages;
        } else {
            self.open = run;
        }
        if self.open.pages >= LONG_RUN {
            self.hand_on();
        }
        self.at += run.pages.0 << Level::SMALL.shift();
    }

    /// Whether a run goes on where the open one ends.
    #[inline(always)]
    fn goes_on(&self, run: PageRun) -> bool {
        self.open.pages > PageCount(0) && self.open.end() == run.first
    }

    /// Hands the open run to the sink.
    #[inline(always)]
    fn hand_on(&mut self) {
        if self.open.pages > PageCount(0) {
            self.sink.push(core::mem::take(&mut self.open));
        }
    }

    /// Where the walk leaves a table of that level.
    #[inline(always)]
    fn end_of_table(&self, level: Level) -> u64 {
        let table = Level(level.0 + 1);
        (table.align_down(self.at) + table.span()).min(self.end)
    }

    /// Takes what the request says; how many pages.
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
        self.hand_on();
        match done {
            Err(problem) if self.at == start => Err(problem),
            _ => Ok(PageCount((self.at - start) >> Level::SMALL.shift())),
        }
    }
}

/// The frame of an address behind an entry.
#[inline(always)]
pub(crate) fn frame_at(entry: Entry, level: Level, addr: u64) -> Pfn {
    Pfn(entry.pfn().0 + ((addr - level.align_down(addr)) >> Level::SMALL.shift()))
}

impl<P: Platform> SpaceRef<'_, P> {
    /// How often tables of this space have gone.
    #[inline(always)]
    fn tables_gone(&self) -> u64 {
        // Acquire: pairs with the Release in `tables_go`.
        self.word(SpaceWord::TABLES_GONE).load(Ordering::Acquire)
    }

    /// Says that tables go, to whom nothing leads any more; they may be freed afterwards. The caller has the map lock for
    /// writing.
    pub(crate) fn tables_go(&self) {
        #[cfg(loom)]
        if frameyard::sync::is_weakened(frameyard::sync::Weakness::TablesGoSilently) {
            return;
        }
        // Release: pairs with the Acquire in `tables_gone`. A walk that reads the new count finds no entry that leads to the
        // freed tables.
        self.word(SpaceWord::TABLES_GONE).fetch_add(1, Ordering::Release);
        // Release: pairs with the Acquire in `Table::entry`. A walk that reaches a freed table and reads a later write there
        // also sees the new count.
        fence(Ordering::Release);
    }
}

impl<P: Platform> AddressSpace<'_, P> {
    /// Takes the pages of as many addresses as `frames` has places, from `start` on, and fills in their frames, from the first
    /// place on; how many were taken, at least one.
    ///
    /// Like the kernel's, it takes fewer pages rather than none: what stopped it shows in the next call. Give the pages back
    /// with [`put_pages`](crate::Vm::put_pages) or [`unpin_pages`](crate::Vm::unpin_pages), after the call that took them.
    ///
    /// # Errors
    ///
    /// [`PinError`] says why the first page was not taken.
    ///
    /// # Cost
    ///
    /// By the fast path, for each entry of page tables: three loads, one atomic operation on the head's page structure (two
    /// to pin a larger block), and 8 bytes written a page. For each 2 MiB of small entries, a walk of four loads. The slow path
    /// takes the map lock for reading and the lock of a table for all its entries.
    pub fn take_pages(&self, start: VirtAddr, request: PinRequest, frames: &mut [Pfn]) -> Result<PageCount, PinError> {
        let bytes = (frames.len() as u64).checked_mul(PageLevel::Small.size().0);
        let end = bytes.and_then(|bytes| start.0.checked_add(bytes)).unwrap_or(u64::MAX);
        self.take(VirtRange { start, end: VirtAddr(end) }, request, &mut FrameArray::new(frames))
    }

    /// Takes the pages of a range and fills in runs of frames, from the first place on. Runs that touch are one, whatever
    /// heads they have. Ends where there is no place for a further run. At least one page is taken.
    ///
    /// Give them back with [`put_runs`](crate::Vm::put_runs) or [`unpin_runs`](crate::Vm::unpin_runs).
    ///
    /// # Errors
    ///
    /// As [`take_pages`](Self::take_pages). Cost: as there, but 16 bytes written a run.
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

    /// Takes the pages of a range, as far as `sink` has room.
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
        Taking { space: self.space(), request, at, end, sink, open: PageRun::default(), settled: None }.take()
    }
}
