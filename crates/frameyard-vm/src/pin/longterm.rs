//! Long-term pins: pages are first moved out of memory that must stay movable, and pages of files have further rules.
//!
//! A mapped page of a file cannot be moved ([`cache`](crate::cache)). In a Movable zone or a contiguous memory area its
//! long-term pin fails with [`PinError::NotMoved`].
//!
//! After the kernel's `check_and_migrate_movable_pages` and `folio_is_longterm_pinnable`.

use frameyard::owners::{Block, FrameOwner, MigrateMode, MigrateProblem};
use frameyard::units::ZoneKind;
use frameyard::{Gfp, Order, Platform};

use super::error::PinError;
use super::part::Part;
use super::request::{PinCall, PinFlags};
use super::{PageSink, Taking};
use crate::address::VirtAddr;
use crate::area::{MapKind, Sharing};
use crate::error::Damage;
use crate::inject::Step;
use crate::table::Entry;
use crate::vm::Vm;

impl<'y, P: Platform, S: PageSink> Taking<'_, 'y, P, S> {
    /// Whether a page may stay for the duration of the request. A long-term pin excludes Movable zones and contiguous
    /// memory areas. The caller has a reference, or keeps the page mapped.
    ///
    /// Areas consist of whole pageblocks, so one check per pageblock suffices.
    #[inline(always)]
    pub(super) fn may_stay(&mut self, part: &Part<'y, P>) -> bool {
        !self.request.flags.contains(PinFlags::LONGTERM) || self.may_stay_long(part)
    }

    /// Whether the walk without locks may take a page: it [may stay](Self::may_stay), and a page of a file needs no look
    /// at its area.
    #[inline(always)]
    pub(super) fn may_take_fast(&mut self, part: &Part<'y, P>) -> bool {
        !self.request.flags.contains(PinFlags::LONGTERM) || self.may_stay_long(part) && self.may_take_file(part)
    }

    #[inline]
    fn may_stay_long(&mut self, part: &Part<'y, P>) -> bool {
        let yard = self.space.vm().yard();
        let block = part.page.pfn().align_down(yard.geometry().pageblock_order());
        if self.known_stable != Some(block) {
            if yard.cma().ranges().any(|area| area.contains(part.page.pfn())) {
                return false;
            }
            self.known_stable = Some(block);
        }
        part.page.tag().zone().kind() != ZoneKind::Movable
    }
}

impl<'y, P: Platform, S: PageSink> Taking<'_, 'y, P, S> {
    /// Whether the request pins for long.
    #[inline(always)]
    fn pins_longterm(&self) -> bool {
        self.request.call == PinCall::Pin && self.request.flags.contains(PinFlags::LONGTERM)
    }

    /// Whether the walk without locks may take a page for long: not a page of a file for reading, whose area may be
    /// private, nor for writing, unless it is shared memory. The caller has a reference, and checks afterwards that
    /// the page is still mapped. After the kernel's `gup_must_unshare` and `gup_fast_folio_allowed`.
    #[inline]
    fn may_take_file(&self, part: &Part<'y, P>) -> bool {
        if !part.is_of_file() || !self.pins_longterm() {
            return true;
        }
        let file = self.space.vm().mapped_file_of(part.page);
        self.request.flags.contains(PinFlags::WRITE) && file.is_some_and(|file| file.allows_longterm_writes())
    }

    /// What the walk under the map lock does with an entry of a page of a file at the current address.
    ///
    /// - A private mapping gets its own page for a long-term pin, so that a later write does not separate the pinned page
    ///   from the mapped one, and for a write by force (`gup_must_unshare`, `can_follow_write_pte`).
    /// - A shared mapping of a file with a store gets no long-term pin for writing: the device would write to a page after
    ///   its write-back (`writable_file_mapping_allowed`).
    #[inline(always)]
    pub(super) fn file_entry(&self, entry: Entry) -> Result<FileEntry, PinError> {
        let allowed = if entry.allows(self.request.access()) { FileEntry::Take } else { FileEntry::Write };
        if self.pins_longterm() || self.request.flags.contains(PinFlags::FORCE) {
            self.file_entry_of_area(allowed)
        } else {
            Ok(allowed)
        }
    }

    #[cold]
    fn file_entry_of_area(&self, allowed: FileEntry) -> Result<FileEntry, PinError> {
        let addr = VirtAddr(self.at);
        let area = self.space.area_of(addr).map(|area| area.kind);
        let Some(MapKind::File { file, sharing, .. }) = area else {
            return Err(self.space.vm().damaged(Damage::Entry).into());
        };
        let (flags, is_longterm) = (self.request.flags, self.pins_longterm());
        let writes = flags.contains(PinFlags::WRITE);
        if sharing == Sharing::Private && (is_longterm || writes && flags.contains(PinFlags::FORCE)) {
            return Ok(FileEntry::Unshare);
        }
        if is_longterm && writes && !self.space.vm().mapped_file(file)?.allows_longterm_writes() {
            return Err(PinError::WritableFile(addr));
        }
        Ok(allowed)
    }
}

/// What the walk under the map lock does with an entry of a page of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FileEntry {
    /// Takes its page.
    Take,
    /// Faults for a write: the entry is not writable yet.
    Write,
    /// Replaces the page by a copy of the space.
    Unshare,
}

impl<P: Platform> Vm<'_, P> {
    /// Moves a block to unmovable memory. The caller holds no lock. Makes one attempt: for a block that small entries
    /// map it only splits the block and returns [`Busy`](MigrateProblem::Busy).
    pub(super) fn move_to_stay(&self, part: &Part<'_, P>) -> Result<(), MigrateProblem> {
        const TARGET: Gfp = Gfp::KERNEL.union(Gfp::NOWARN);
        let from = Block { pfn: part.page.pfn(), order: part.order };
        self.isolate(from, MigrateMode::Sync)?;
        let large = if from.order > Order::ZERO { Gfp::COMP.union(Gfp::NORETRY) } else { Gfp::NOWAIT };
        let Ok(to) = self.alloc_frames(from.order, TARGET.union(large), Step::AllocatePage) else {
            self.put_back(from);
            return Err(MigrateProblem::Failed);
        };
        let to = to.into_pfn();
        let moved = self.migrate(from, to, MigrateMode::Sync);
        let unused = if moved.is_ok() {
            from.pfn
        } else {
            self.put_back(from);
            to
        };
        // The caller owns the other block.
        self.expect(self.yard().free(unused, from.order), Damage::Frame);
        moved
    }
}
