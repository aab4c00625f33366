//! Release of references and pins. Adjacent pages with one head are released together.
//!
//! After the kernel's `unpin_user_pages` and `unpin_user_page_range_dirty_lock`.
//!
//! # Releases by number
//!
//! Safe code may name any frame, so a release keeps what other code relies on. Only pages of spaces, files, devices and pools of huge
//! pages are released. The reference of a mapping is never released here. Bytes of a page of a space are accessed only under the lock
//! of the table that maps it, or while its counts are frozen, when there is nothing to release. So no release frees bytes that are
//! being accessed. A caller that releases a pin of another caller ends that pin: the page may be moved or, once unmapped, freed. A
//! batch or an isolator that then lacks its reference notes damage.
//!
//! Bytes of a page of a file are accessed under its page lock, with a reference, whether a space maps it or not. So such a page
//! counts the references that were taken, and a release takes only those. This costs three more atomic operations on the cache line
//! of the page structure. A page that was written is marked dirty in its file while its pin still keeps it.

use frameyard::page::ReferenceUnderflow;
use frameyard::{Order, PageCount, Pfn, Platform};

use super::PageRun;
use super::error::{ReleaseError, ReleaseProblem};
use super::part::Part;
use super::request::{Dirty, PinCall, RefHandling};
use crate::cache::{taken, uncount_taken};
use crate::frame_vec::Gathered;
use crate::page::Flags;
use crate::vm::Vm;

/// The kind of a release.
#[derive(Clone, Copy)]
struct Release {
    call: PinCall,
    refs: RefHandling,
    dirty: Dirty,
}

/// Pages that are released together; `Err` with a frame that is no page to release.
type Piece<'y, P> = Result<Part<'y, P>, Pfn>;

/// The frames of a list, grouped by adjacent frames with one head.
fn pieces_of_list<'a, 'y: 'a, P: Platform>(
    vm: Vm<'y, P>,
    mut frames: &'a [Pfn],
) -> impl Iterator<Item = Piece<'y, P>> + Clone + use<'a, 'y, P> {
    core::iter::from_fn(move || {
        let first = *frames.first()?;
        let Some(part) = vm.part_at(PageRun { first, pages: PageCount(1) }) else {
            frames = &[];
            return Some(Err(first));
        };
        let (head, order) = (part.page.pfn(), part.order);
        let pages = leading_pages(frames, head, order);
        frames = &frames[pages..];
        Some(Ok(Part { pages: pages as u64, ..part }))
    })
}

/// The number of leading frames of a list in one block.
#[inline(always)]
fn leading_pages(frames: &[Pfn], head: Pfn, order: Order) -> usize {
    /// Compared in chunks, so that one instruction compares several.
    const SOME: usize = 32;
    let outside = |pfn: &Pfn| (pfn.0 ^ head.0) >> order.0;
    let mut pages = 0;
    if order > Order::ZERO {
        let chunks = frames.chunks_exact(SOME);
        let all_inside = |some: &&[Pfn]| some.iter().fold(0, |any, pfn| any | outside(pfn)) == 0;
        pages = SOME * chunks.take_while(all_inside).count();
    }
    pages + frames[pages..].iter().take_while(|pfn| outside(pfn) == 0).count()
}

/// The frames of runs, grouped by head.
fn pieces_of_runs<'a, 'y: 'a, P: Platform>(
    vm: Vm<'y, P>,
    runs: impl Iterator<Item = PageRun> + Clone + 'a,
) -> impl Iterator<Item = Piece<'y, P>> + Clone {
    runs.flat_map(move |run| {
        let mut rest = run;
        core::iter::from_fn(move || {
            if rest.pages.0 == 0 {
                return None;
            }
            let Some(part) = vm.part_at(rest) else {
                let first = rest.first;
                rest.pages = PageCount(0);
                return Some(Err(first));
            };
            let pages = PageCount(part.pages);
            rest = PageRun { first: rest.first + pages, pages: rest.pages - pages };
            Some(Ok(part))
        })
    })
}

impl<'y, P: Platform> Vm<'y, P> {
    /// Releases one reference per frame, as taken with [`PinCall::Get`].
    ///
    /// # Errors
    ///
    /// [`ReleaseError`] names the first frame that lacks the reference to be released. If you release a reference that
    /// you do not hold, you may release somebody else's.
    ///
    /// # Cost
    ///
    /// One atomic operation per group of adjacent frames with one head. Pages that lose their last reference are freed,
    /// 32 at once.
    pub fn put_pages(&self, frames: &[Pfn], refs: RefHandling) -> Result<(), ReleaseError> {
        self.release(pieces_of_list(*self, frames), Release { call: PinCall::Get, refs, dirty: Dirty::Keep })
    }

    /// Releases one pin per frame, as taken with [`PinCall::Pin`].
    ///
    /// [`Dirty::Mark`] records that the pages were written. For a device, the device keeps track of that itself.
    ///
    /// # Errors
    ///
    /// Those of [`put_pages`](Self::put_pages).
    ///
    /// # Cost
    ///
    /// As there, but three atomic operations on one cache line for pages of larger blocks.
    pub fn unpin_pages(&self, frames: &[Pfn], refs: RefHandling, dirty: Dirty) -> Result<(), ReleaseError> {
        self.release(pieces_of_list(*self, frames), Release { call: PinCall::Pin, refs, dirty })
    }

    /// Like [`put_pages`](Self::put_pages), for runs.
    ///
    /// # Errors
    ///
    /// Those of [`put_pages`](Self::put_pages).
    pub fn put_runs(&self, runs: &[PageRun], refs: RefHandling) -> Result<(), ReleaseError> {
        let release = Release { call: PinCall::Get, refs, dirty: Dirty::Keep };
        self.release(pieces_of_runs(*self, runs.iter().copied()), release)
    }

    /// Like [`unpin_pages`](Self::unpin_pages), for runs.
    ///
    /// # Errors
    ///
    /// Those of [`put_pages`](Self::put_pages).
    pub fn unpin_runs(&self, runs: &[PageRun], refs: RefHandling, dirty: Dirty) -> Result<(), ReleaseError> {
        self.unpin_each(runs.iter().copied(), refs, dirty)
    }

    /// Like [`unpin_runs`](Self::unpin_runs).
    pub(crate) fn unpin_each(
        &self,
        runs: impl Iterator<Item = PageRun> + Clone,
        refs: RefHandling,
        dirty: Dirty,
    ) -> Result<(), ReleaseError> {
        self.release(pieces_of_runs(*self, runs), Release { call: PinCall::Pin, refs, dirty })
    }

    #[inline(always)]
    fn release(&self, pieces: impl Iterator<Item = Piece<'y, P>> + Clone, how: Release) -> Result<(), ReleaseError> {
        let none = PageCount(0);
        for piece in pieces.clone() {
            let part =
                piece.map_err(|pfn| ReleaseError { pfn, problem: ReleaseProblem::NoUserPage, released: none })?;
            part.check(how.call).map_err(|problem| ReleaseError { pfn: part.page.pfn(), problem, released: none })?;
        }
        let (mut unused, mut released) = (Gathered::new(), none);
        let done = pieces.into_iter().try_for_each(|piece| {
            let part = piece.map_err(|pfn| (pfn, ReleaseProblem::NoUserPage))?;
            let left = if part.is_of_file() { self.release_file_page(&part, how) } else { part.release(how) };
            let left = left.map_err(|problem| (part.page.pfn(), problem))?;
            released += PageCount(part.pages);
            if left == 0 {
                unused.push(part.page.pfn());
                if unused.is_full() {
                    self.free_unused(unused.take());
                }
            }
            Ok(())
        });
        self.free_unused(unused.frames());
        done.map_err(|(pfn, problem)| ReleaseError { pfn, problem, released })
    }

    /// Releases references that were taken of a page of a file; returns the remaining ones.
    fn release_file_page(&self, part: &Part<'y, P>, how: Release) -> Result<u32, ReleaseProblem> {
        let references = part.references(how.call, part.pages).ok_or_else(|| part.underflow())?;
        // As in `Part::unpin`: without a reference the frame may have another use by now.
        if !part.try_get_many(1) {
            return Err(part.underflow());
        }
        let released = if !part.is_still_there() {
            Err(part.underflow())
        } else {
            let marked = if how.dirty == Dirty::Mark { self.mark_file_page_dirty(part.page) } else { Ok(()) };
            match marked {
                Ok(()) if uncount_taken(part.page, references) => Ok(references),
                Ok(()) => Err(part.underflow()),
                Err(error) => Err(ReleaseProblem::Vm(error)),
            }
        };
        let put = part.page.put_many(1 + released.unwrap_or_default());
        let left = put.map_err(ReleaseProblem::Underflow)?;
        match released {
            Ok(_) => Ok(left),
            Err(problem) => {
                if left == 0 {
                    self.free_unused(&[part.page.pfn()]);
                }
                Err(problem)
            }
        }
    }
}

impl<P: Platform> Part<'_, P> {
    fn underflow(&self) -> ReleaseProblem {
        ReleaseProblem::Underflow(ReferenceUnderflow { pfn: self.page.pfn(), counts: self.page.counts() })
    }

    /// Checks that the pages seem to have the references being released.
    #[inline(always)]
    fn check(&self, call: PinCall) -> Result<(), ReleaseProblem> {
        let counts = self.page.counts();
        let unmapped = counts.references.saturating_sub(counts.mappings);
        let given_back = self.references(call, self.pages).and_then(|all| all.checked_add(self.kept()));
        if self.is_of_file() {
            let has_taken = given_back.is_some_and(|all| u64::from(all) <= taken(self.page));
            return if has_taken { Ok(()) } else { Err(self.underflow()) };
        }
        let has_references = given_back.is_some_and(|all| all <= unmapped);
        let has_pins = call == PinCall::Get || self.order == Order::ZERO || self.page.pins() >= self.pages;
        if has_references && has_pins { Ok(()) } else { Err(self.underflow()) }
    }

    /// Releases the references of these pages; returns the remaining ones.
    #[inline(always)]
    fn release(&self, how: Release) -> Result<u32, ReleaseProblem> {
        if how.dirty == Dirty::Mark && self.is_of_space() && self.page.owner() & Flags::DIRTY == 0 {
            self.page.set_owner_bits(Flags::DIRTY);
        }
        let (each, times) = match how.refs {
            RefHandling::Batched => (self.pages, 1),
            RefHandling::PerPage => (1, self.pages),
        };
        let each = u32::try_from(each).map_err(|_| self.underflow())?;
        let mut left = 0;
        for _ in 0..times {
            left = match how.call {
                PinCall::Get => self.page.put_unmapped(each, self.kept()).map_err(ReleaseProblem::Underflow)?,
                PinCall::Pin => self.unpin(each)?,
            };
        }
        Ok(left)
    }

    #[inline(always)]
    fn unpin(&self, pins: u32) -> Result<u32, ReleaseProblem> {
        if self.order == Order::ZERO {
            let references = self.references(PinCall::Pin, pins.into()).ok_or_else(|| self.underflow())?;
            return self.page.put_unmapped(references, self.kept()).map_err(ReleaseProblem::Underflow);
        }
        // A pin implies a reference. Without a reference, do not touch the pin counter: in a frame that was freed and
        // reused that word is something else.
        if !self.try_get_many(1) {
            return Err(self.underflow());
        }
        let unpinned = if self.is_still_there() {
            self.page.unpin_and_put(pins, 1).map_err(ReleaseProblem::Underflow)
        } else {
            Err(self.underflow())
        };
        unpinned.inspect_err(|_| {
            // As in `Part::put`.
            let _ = self.page.put_many(1);
        })
    }
}
