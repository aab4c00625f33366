//! Reads and writes of bytes.

use frameyard::{ByteSize, Platform};

use super::error::FileError;
use super::fetch::Limit;
use super::{File, RETRIES};
use crate::error::VmError;
use crate::page::Flags;

/// The part of a transfer in one page.
#[derive(Clone, Copy)]
struct Part {
    index: u64,
    /// The first byte in the page.
    from: usize,
    len: usize,
}

impl<P: Platform> File<'_, P> {
    /// The first part of a non-empty transfer of `len` bytes at `at`.
    fn part(&self, at: u64, len: usize) -> Part {
        let geometry = self.file.vm().yard().geometry();
        let ByteSize(page) = geometry.page_size();
        let from = (at % page) as usize;
        Part { index: at >> geometry.page_shift(), from, len: len.min(page as usize - from) }
    }

    /// Reads bytes of the file from `offset` on, and returns how many. If there are fewer than requested, the file ends
    /// there.
    ///
    /// Missing pages are filled from the store, with readahead if reads are sequential.
    ///
    /// # Errors
    ///
    /// [`FileError`] if a page could not be filled. The contents of `bytes` are undefined then.
    ///
    /// # Cost
    ///
    /// Per page: the file lock once, and the page lock while bytes are copied.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, FileError> {
        let (mut done, mut retries) = (0, 0);
        // The loop retries a page only if another CPU removed it meanwhile, which is progress.
        while done < bytes.len() {
            retries += 1;
            if retries > RETRIES {
                return Err(VmError::Stalled.into());
            }
            let Some(at) = offset.checked_add(done as u64).filter(|at| *at < self.file.size()) else { break };
            let rest = (bytes.len() - done) as u64;
            let part = self.part(at, bytes.len() - done);
            let requested = self.file.pages_of(rest.min(self.file.size().saturating_sub(at)) + part.from as u64).max(1);
            let Some(mut page) = self.file.page_to_read(part.index, requested, &self.stream)? else { continue };
            // The file may have been truncated meanwhile.
            let there = self.file.size().saturating_sub(at).min(part.len as u64) as usize;
            page.bytes().read(part.from, &mut bytes[done..done + there])?;
            if self.stream.read(part.index) {
                self.file.vm().lru_mark_accessed(page.page());
            }
            if there > 0 {
                (done, retries) = (done + there, 0);
            }
        }
        Ok(done)
    }

    /// Writes bytes to the file at `offset`. If they go past its end, the file grows.
    ///
    /// A page of which only a part is written is filled first. If there is a gap between the old end and `offset`, it
    /// has the store's contents.
    ///
    /// # Errors
    ///
    /// [`FileError`] if a page could not be filled, or if the wait for another change of the size timed out. The bytes
    /// before that page have been written, the rest have not.
    ///
    /// # Cost
    ///
    /// Per page: the file lock twice, and the page lock while bytes are copied.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let len = bytes.len() as u64;
        if offset.checked_add(len).is_none() {
            return Err(FileError::TooLarge { offset, bytes: len });
        }
        let (mut done, mut retries) = (0, 0);
        // As in `read`: a retry means progress of another CPU.
        while done < bytes.len() {
            let at = offset + done as u64;
            let part = self.part(at, bytes.len() - done);
            if self.write_part(at, part, &bytes[done..done + part.len])? {
                (done, retries) = (done + part.len, 0);
            } else if retries == RETRIES {
                return Err(VmError::Stalled.into());
            } else {
                retries += 1;
            }
        }
        Ok(())
    }

    /// Writes the part in one page; `false` if the page was just removed or truncated: retry.
    fn write_part(&self, at: u64, part: Part, bytes: &[u8]) -> Result<bool, FileError> {
        let vm = self.file.vm();
        let end = at + part.len as u64;
        let growing = if end > self.file.size() { Some(self.file.lock_size()?) } else { None };
        let limit = if growing.is_some() { Limit::None } else { Limit::Size };
        let Some(mut page) = self.file.page_to_write(part.index, limit)? else { return Ok(false) };
        if growing.is_none() && end > self.file.size() {
            return Ok(false);
        }
        let is_whole = bytes.len() as u64 == vm.yard().geometry().page_size().0;
        if !is_whole {
            self.file.fill(&mut page)?;
        }
        page.bytes().write(part.from, bytes)?;
        page.set(Flags::UPTODATE);
        self.file.set_dirty(&page)?;
        if growing.is_some() {
            let mut tree = self.file.lock()?;
            let size = tree.size().max(end);
            tree.set_size(size);
        }
        if self.stream.wrote(part.index) {
            vm.lru_mark_accessed(page.page());
        }
        Ok(true)
    }
}
