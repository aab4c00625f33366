//! Bytes go from files to callers and back.

use frameyard::{ByteSize, Platform};

use super::File;
use super::bring::Limit;
use super::error::FileError;
use super::page_lock::LockedPage;
use crate::error::VmError;
use crate::page::Flags;
use crate::words;

/// A part of one page: what a transfer does at once.
#[derive(Clone, Copy)]
struct Part {
    index: u64,
    /// From this byte of the page on.
    from: usize,
    len: usize,
}

impl<P: Platform> File<'_, P> {
    /// The first part of `len` bytes of the file at `at`; `len` is not 0.
    fn part(&self, at: u64, len: usize) -> Part {
        let geometry = self.file.vm().yard().geometry();
        let ByteSize(page) = geometry.page_size();
        let from = (at % page) as usize;
        Part { index: at >> geometry.page_shift(), from, len: len.min(page as usize - from) }
    }

    /// Reads bytes of the file from `offset` on, as many as there are: how many were read. Less than asked for means that
    /// the file ends there.
    ///
    /// Pages that are not in memory are filled from the store, and ahead of a reader who goes on in sequence.
    ///
    /// # Errors
    ///
    /// [`FileError`]: a page could not be brought; `bytes` may hold anything then.
    ///
    /// # Cost
    ///
    /// For each page: the file's lock once, and the page's own while its bytes are copied.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, FileError> {
        let mut done = 0;
        // A page is looked for again only where somebody has taken it out meanwhile: each time round, somebody gets on.
        while done < bytes.len() {
            let Some(at) = offset.checked_add(done as u64).filter(|at| *at < self.file.size()) else { break };
            let rest = (bytes.len() - done) as u64;
            let part = self.part(at, bytes.len() - done);
            let asked = self.file.pages_of(rest.min(self.file.size().saturating_sub(at)) + part.from as u64).max(1);
            let Some(page) = self.file.page_to_read(part.index, asked, &self.stream)? else { continue };
            // It may have been cut meanwhile.
            let there = self.file.size().saturating_sub(at).min(part.len as u64) as usize;
            self.copy_out(&page, part.from, &mut bytes[done..done + there])?;
            if self.stream.read(part.index) {
                self.file.vm().lru_mark_accessed(page.page());
            }
            done += there;
        }
        Ok(done)
    }

    fn copy_out(&self, page: &LockedPage<'_, P>, from: usize, bytes: &mut [u8]) -> Result<(), FileError> {
        let pfn = page.page().pfn();
        // SAFETY: writers need the page's lock, which this thread holds.
        let copied = unsafe { words::read_bytes(self.file.vm().yard(), pfn, from, bytes) };
        if copied { Ok(()) } else { Err(VmError::NoFrameBytes(pfn).into()) }
    }

    /// Writes bytes into the file from `offset` on, and makes it longer where they end behind its end.
    ///
    /// Pages that are written in part are filled first. What a file that grows skips is what the store gives there.
    ///
    /// # Errors
    ///
    /// [`FileError`]: a page could not be brought, or somebody else makes the file longer or shorter and does not come to
    /// an end. What stands before that page is written, the rest is not.
    ///
    /// # Cost
    ///
    /// For each page: the file's lock twice, and the page's own while bytes are copied.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let len = bytes.len() as u64;
        if offset.checked_add(len).is_none() {
            return Err(FileError::TooLarge { offset, bytes: len });
        }
        let mut done = 0;
        // As in `read`: who looks again does so because somebody else got on.
        while done < bytes.len() {
            let at = offset + done as u64;
            let part = self.part(at, bytes.len() - done);
            if self.write_part(at, part, &bytes[done..done + part.len])? {
                done += part.len;
            }
        }
        Ok(())
    }

    /// Writes a part of one page; `false` where it was taken out or cut just now: look again.
    fn write_part(&self, at: u64, part: Part, bytes: &[u8]) -> Result<bool, FileError> {
        let vm = self.file.vm();
        let end = at + part.len as u64;
        let growing = if end > self.file.size() { Some(self.file.lock_size()?) } else { None };
        let limit = if growing.is_some() { Limit::None } else { Limit::Size };
        let Some(page) = self.file.page_to_write(part.index, limit)? else { return Ok(false) };
        if growing.is_none() && end > self.file.size() {
            return Ok(false);
        }
        let is_whole = bytes.len() as u64 == vm.yard().geometry().page_size().0;
        if !is_whole {
            self.file.fill(&page)?;
        }
        let pfn = page.page().pfn();
        // SAFETY: this thread holds the page's lock.
        if !unsafe { words::write_bytes(vm.yard(), pfn, part.from, bytes) } {
            return Err(VmError::NoFrameBytes(pfn).into());
        }
        page.set(Flags::UPTODATE);
        self.file.set_dirty(&page);
        if growing.is_some() {
            let mut tree = self.file.lock();
            let size = tree.size().max(end);
            tree.set_size(size);
        }
        if self.stream.wrote(part.index) {
            vm.lru_mark_accessed(page.page());
        }
        Ok(true)
    }
}
