//! The walk under the map lock: faults missing pages in, and takes all pages of a table under one hold of its lock.

use frameyard::page::ReferenceOverflow;
use frameyard::{PageCount, Platform};

use super::ahead::Ahead;
use super::error::PinError;
use super::longterm::FileEntry;
use super::part::Part;
use super::request::PinRequest;
use super::{PageRun, PageSink, Taking};
use crate::address::VirtAddr;
use crate::error::VmError;
use crate::space::{FaultError, MemoryAccess};

/// Attempts to move a page before the request fails.
const MOVE_TRIES: u32 = 16;

/// Attempts to change the entry of a page of a file before the request fails.
const CHANGE_TRIES: u32 = 1 << 12;

/// The end of a walk in one table.
enum Stop<'y, P> {
    /// At the end of the table, or at an address that needs a fault.
    GoOn,
    /// The sink is full.
    Full,
    /// At a page that must be moved first.
    Moves(Part<'y, P>),
    /// At a page of a file whose entry must change first.
    File(FileEntry),
}

impl<'y, P: Platform, S: PageSink> Taking<'_, 'y, P, S> {
    /// Takes pages up to the end of the current table.
    #[cold]
    pub(super) fn slow(&mut self) -> Result<(), PinError> {
        let (mut moves, mut copies) = (0, 0);
        while self.at < self.end {
            let before = self.at;
            let stop = self.slow_table()?;
            if self.at > before {
                (moves, copies) = (0, 0);
            }
            match stop {
                Stop::GoOn => {}
                Stop::Full if self.at == before => return Err(PinError::NoRoom),
                Stop::Full => return Ok(()),
                Stop::File(wanted) => {
                    // Each further try means that another CPU has unmapped or replaced the page meanwhile.
                    if copies == CHANGE_TRIES {
                        return Err(VmError::Stalled.into());
                    }
                    copies += 1;
                    self.change_file_entry(wanted)?;
                }
                Stop::Moves(part) => {
                    let Err(problem) = self.space.vm().move_to_stay(&part) else { continue };
                    moves += 1;
                    if moves == MOVE_TRIES {
                        let (addr, pfn) = (VirtAddr(self.at), part.page.pfn());
                        return Err(PinError::NotMoved { addr, pfn, problem });
                    }
                    self.space.vm().yard().platform().wait(moves);
                }
            }
        }
        Ok(())
    }

    /// Makes the entry of a page of a file at the current address writable, or replaces it by one of a copy.
    fn change_file_entry(&self, wanted: FileEntry) -> Result<(), PinError> {
        let (space, addr) = (self.space, VirtAddr(self.at));
        let _reading = space.map_lock().read().map_err(VmError::from)?;
        match wanted {
            FileEntry::Take => {}
            FileEntry::Write => _ = space.present(addr, MemoryAccess::Write)?,
            FileEntry::Unshare => _ = space.unshare(addr)?,
        }
        Ok(())
    }

    /// Takes pages up to the end of the current table.
    fn slow_table(&mut self) -> Result<Stop<'y, P>, PinError> {
        let space = self.space;
        let access = self.request.access();
        let _reading = space.map_lock().read().map_err(VmError::from)?;
        let spot = space.present(VirtAddr(self.at), self.request.access_to_map())?;
        let table = space.lock_table(spot.table)?;
        let end = self.end_of_table(spot.level);
        let mut ahead = Ahead::new(spot.table, spot.level, self.at, end);
        while self.at < end {
            let index = spot.level.index(self.at);
            let entry = table.entry(index);
            self.fetch(&mut ahead, index, entry);
            if !entry.is_present() || entry.is_table(spot.level) {
                break;
            }
            if entry.is_file() {
                match self.file_entry(entry)? {
                    FileEntry::Take => {}
                    wanted => return Ok(Stop::File(wanted)),
                }
            } else if !self.request.allows(entry) {
                return Err(FaultError::ReadOnly(VirtAddr(self.at)).into());
            }
            let run = self.run(entry, spot.level);
            if run.pages.0 == 0 {
                return Ok(Stop::Full);
            }
            let missing = PinError::NoPage { addr: VirtAddr(self.at), pfn: run.first };
            let part = space.vm().part_behind(entry, spot.level, run).ok_or(missing)?;
            if !self.may_stay(&part) {
                return Ok(Stop::Moves(part));
            }
            take_mapped(self.request, &part)?;
            let used = entry.used(access);
            if used != entry {
                table.set(index, used);
            }
            self.note(PageRun { pages: PageCount(part.pages), ..run });
        }
        Ok(Stop::GoOn)
    }
}

/// Takes the pages of an entry under the lock of its table, which keeps them mapped.
fn take_mapped<P: Platform>(request: PinRequest, part: &Part<'_, P>) -> Result<(), PinError> {
    if part.try_get(request) {
        part.count_pins(request);
        return Ok(());
    }
    Err(PinError::Overflow(ReferenceOverflow { pfn: part.page.pfn(), counts: part.page.counts() }))
}
