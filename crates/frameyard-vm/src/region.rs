//! Memory regions: ranges of a space pinned for long, as a list of runs of frames.
//!
//! This is how RDMA and io_uring register memory (`ib_umem_get`, `io_sqe_buffers_register`): all pages get a long-term
//! pin, and contiguous pages are merged into runs, so that a device needs few entries. The list is in frames of the
//! yard. Each frame starts with the link of the next one, followed by runs of two words: first frame and length.

use core::fmt;

use frameyard::page::FrameLink;
use frameyard::sync::Ordering;
use frameyard::{PageCount, Pfn, Platform};

use crate::address::VirtRange;
use crate::error::{Damage, VmError};
use crate::inject::Step;
use crate::object_id::ObjectId;
use crate::page::{PageKind, owner_word};
use crate::pin::{Dirty, PageRun, PageSink, PinError, PinFlags, PinRequest, RefHandling, ReleaseError};
use crate::space::{AddressSpace, MemoryAccess};
use crate::vm::Vm;
use crate::words::Words;

/// The word with the link of the next frame of the list.
const NEXT: usize = 0;
/// The first word of runs, and the words per run.
const FIRST_RUN: usize = 2;
const RUN: usize = 2;

/// A list of runs in frames of the yard.
struct RunList<'y, P: Platform> {
    vm: Vm<'y, P>,
    first: Option<Pfn>,
    /// The place of the last run.
    last: Option<Words<'y>>,
    in_last: usize,
    runs: u64,
    /// Frames of the list.
    frames: u64,
    /// The last run, which can still grow.
    open: PageRun,
}

impl<'y, P: Platform> RunList<'y, P> {
    const fn new(vm: Vm<'y, P>) -> Self {
        let open = PageRun { first: Pfn(0), pages: PageCount(0) };
        Self { vm, first: None, last: None, in_last: 0, runs: 0, frames: 0, open }
    }

    /// Whether the last frame has a place for another run.
    #[inline(always)]
    fn has_place(&self) -> bool {
        self.last.is_some_and(|words| FIRST_RUN + (self.in_last + 1) * RUN <= words.len())
    }

    /// Makes room for at least one more run. May reclaim, so the caller holds no lock.
    fn make_room(&mut self) -> Result<(), VmError> {
        if self.has_place() {
            return Ok(());
        }
        let owner = owner_word(PageKind::Objects, ObjectId::NONE, 0);
        let pfn = self.vm.alloc_state(owner, 0, Step::AllocateObjects)?;
        let words = self.vm.words(pfn)?;
        self.frames += 1;
        words.at(NEXT).store(u64::from(FrameLink::NONE.bits()), Ordering::Relaxed);
        match self.last {
            None => self.first = Some(pfn),
            Some(last) => {
                last.at(NEXT).store(u64::from(self.vm.yard().counted().link(pfn).bits()), Ordering::Relaxed);
            }
        }
        (self.last, self.in_last) = (Some(words), 0);
        Ok(())
    }

    fn write_open(&self) {
        if let Some(last) = self.last {
            let at = FIRST_RUN + (self.in_last - 1) * RUN;
            last.at(at).store(self.open.first.0, Ordering::Relaxed);
            last.at(at + 1).store(self.open.pages.0, Ordering::Relaxed);
        }
    }

    /// All runs, in order.
    fn runs(&self) -> Runs<'_, P> {
        let words = self.first.and_then(|pfn| self.vm.words(pfn).ok());
        Runs { vm: self.vm, words, index: 0, left: self.runs }
    }

    fn free(&self) {
        let mut next = self.first.and_then(|pfn| self.vm.try_page(pfn));
        let owner = owner_word(PageKind::Objects, ObjectId::NONE, 0);
        for _ in 0..self.frames {
            let found = next
                .filter(|page| page.owner() == owner)
                .and_then(|page| Some((page, self.vm.words(page.pfn()).ok()?)));
            let Some((page, words)) = found else {
                // The rest of the list is lost.
                self.vm.damaged(Damage::Region);
                break;
            };
            next = self.vm.linked_page(FrameLink::from_bits(words.at(NEXT).load(Ordering::Relaxed) as u32));
            self.vm.free_state(page);
        }
    }
}

impl<P: Platform> PageSink for RunList<'_, P> {
    #[inline(always)]
    fn room(&mut self, run: PageRun) -> u64 {
        let joins = self.runs > 0 && self.open.end() == run.first;
        if joins || self.has_place() { run.pages.0 } else { 0 }
    }

    #[inline(always)]
    fn push(&mut self, run: PageRun) {
        if self.runs > 0 && self.open.end() == run.first {
            self.open.pages += run.pages;
        } else {
            self.open = run;
            self.in_last += 1;
            self.runs += 1;
        }
        self.write_open();
    }
}

/// The runs of a [`MemoryRegion`], in order of its addresses. Borrows the region, which owns the list.
pub struct Runs<'y, P: Platform> {
    vm: Vm<'y, P>,
    words: Option<Words<'y>>,
    index: usize,
    left: u64,
}

impl<P: Platform> Clone for Runs<'_, P> {
    fn clone(&self) -> Self {
        Self { vm: self.vm, words: self.words, index: self.index, left: self.left }
    }
}

impl<P: Platform> fmt::Debug for Runs<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} runs", self.left)
    }
}

impl<P: Platform> Iterator for Runs<'_, P> {
    type Item = PageRun;

    fn next(&mut self) -> Option<PageRun> {
        let mut words = self.words.filter(|_| self.left > 0)?;
        if FIRST_RUN + (self.index + 1) * RUN > words.len() {
            let link = FrameLink::from_bits(words.at(NEXT).load(Ordering::Relaxed) as u32);
            words = self.vm.words(self.vm.yard().counted().linked(link)?).ok()?;
            (self.words, self.index) = (Some(words), 0);
        }
        let at = FIRST_RUN + self.index * RUN;
        (self.index, self.left) = (self.index + 1, self.left - 1);
        let word = |at| words.at(at).load(Ordering::Relaxed);
        Some(PageRun { first: Pfn(word(at)), pages: PageCount(word(at + 1)) })
    }
}

/// A pinned range of addresses, as physically contiguous runs of frames for a device.
///
/// The pages stay, even after an unmap or the end of the space. Dropping the region unpins them;
/// [`deregister`](Self::deregister) does too, and returns errors.
pub struct MemoryRegion<'y, P: Platform> {
    list: RunList<'y, P>,
    range: VirtRange,
    access: MemoryAccess,
}

impl<'y, P: Platform> MemoryRegion<'y, P> {
    /// Takes long-term pins on a range of whole pages, and lists its runs.
    ///
    /// # Errors
    ///
    /// [`PinError`] says why a page could not be pinned, or that there was no memory for the list. No page is pinned
    /// then.
    ///
    /// # Cost
    ///
    /// That of [`take_runs`](AddressSpace::take_runs), plus one frame per 255 runs, which is allocated before the walk
    /// takes locks.
    pub fn register(space: &AddressSpace<'y, P>, range: VirtRange, access: MemoryAccess) -> Result<Self, PinError> {
        let written = if access == MemoryAccess::Write { PinFlags::WRITE } else { PinFlags::NONE };
        let request = PinRequest::PIN.with(PinFlags::LONGTERM | written);
        let mut region = Self { list: RunList::new(*space.space().vm()), range, access: MemoryAccess::Read };
        let mut rest = range;
        // The first call that takes no page returns the reason.
        while !rest.is_empty() || range.is_empty() {
            // The walk holds locks, so it only fills the room that there is. On failure, dropping `region` unpins what was
            // pinned.
            region.list.make_room().map_err(PinError::Vm)?;
            let taken = space.take(rest, request, &mut region.list)?;
            rest.start.0 += taken.0 * crate::PageLevel::Small.size().0;
        }
        region.access = access;
        Ok(region)
    }

    /// The addresses.
    #[must_use]
    pub fn range(&self) -> VirtRange {
        self.range
    }

    /// The number of runs.
    #[must_use]
    pub fn run_count(&self) -> u64 {
        self.list.runs
    }

    /// The runs, in order of the addresses.
    #[must_use]
    pub fn runs(&self) -> Runs<'_, P> {
        self.list.runs()
    }

    /// Unpins the pages. If the region was registered for writing, they are marked dirty.
    ///
    /// # Errors
    ///
    /// [`ReleaseError`] if another caller has released pins of these pages. The region is gone in either case.
    pub fn deregister(self) -> Result<(), ReleaseError> {
        let region = core::mem::ManuallyDrop::new(self);
        region.unpin()
    }

    fn unpin(&self) -> Result<(), ReleaseError> {
        let dirty = if self.access == MemoryAccess::Write { Dirty::Mark } else { Dirty::Keep };
        let unpinned = self.list.vm.unpin_each(self.list.runs(), RefHandling::Batched, dirty);
        self.list.free();
        unpinned
    }
}

impl<P: Platform> Drop for MemoryRegion<'_, P> {
    fn drop(&mut self) {
        self.list.vm.expect(self.unpin(), Damage::Region);
    }
}

impl<P: Platform> fmt::Debug for MemoryRegion<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {} runs", self.range, self.list.runs)
    }
}
